use proptest::prelude::*;

use super::*;

#[test]
fn every_type_parses_what_it_prints() {
    for (element, short, long, number) in TABLE.iter() {
        assert_eq!(
            (element.number(), number.element()),
            (Some(*number), element)
        );
        for text in [*short, *long, &element.numpy(), &format!("={short}")] {
            let read = ElementType::parse(text).unwrap();
            assert_eq!(read, (element.clone(), ByteOrder::NATIVE), "{text}");
        }
        let (read, order) = ElementType::parse(&format!(">{short}")).unwrap();
        let expected = match element.width() {
            1 => ByteOrder::NATIVE,
            _ => ByteOrder::Big,
        };
        assert_eq!((read, order), (element.clone(), expected));
        let json = serde_json::to_string(element).unwrap();
        assert_eq!(
            serde_json::from_str::<ElementType>(&json).unwrap(),
            *element
        );
    }
    assert_eq!(ElementType::parse("?").unwrap().0, ElementType::Bool);
    assert_eq!(
        ElementType::parse("<f8").unwrap(),
        (ElementType::F8, ByteOrder::Little)
    );
    assert_eq!(
        serde_json::to_string(&ElementType::Bool).unwrap(),
        "\"bool\""
    );
}

#[test]
fn what_is_no_type_is_refused_with_the_list() {
    for text in ["", "<", "f3", "O", "<U4", "float", "ééé", "[('x', 'O')]"] {
        let error = ElementType::parse(text).unwrap_err();
        assert_eq!(error.kind, Kind::Schema);
        assert!(error.cause.contains("complex128"), "{error}");
    }
}

#[test]
fn what_is_no_record_is_refused() {
    let many: Vec<String> = (0..70_000).map(|n| format!("('{n}', 'u1')")).collect();
    for (text, cause) in [
        ("[]", "without fields"),
        ("[('', '|V4')]", "without fields"),
        ("[('', 'f8')]", "no name"),
        ("[('a', 'f8'), ('a', 'f4')]", "the name \"a\""),
        ("[('a', 'f8', (0,))]", "no bytes"),
        ("[('a', 'f8', (1 << 40,))]", "has"),
        ("[('a', 'f8', (1099511627776,))]", "too many"),
        ("[('a', 'f8', (4294967296, 4294967296))]", "too many"),
        ("[('a', 'u1', (16777216,)), ('b', 'u1')]", "too many"),
        ("[('a', 'u1'), ('', '|V2147483647')]", "more than"),
        ("[('a', 'u1'), ('', '|V18446744073709551615')]", "more than"),
        (
            "[('p', [('a', 'u1'), ('b', 'f8')], (100000,))]",
            "numbers apart",
        ),
        (
            "[('p', [('a', [('', 'f8')])])]",
            "field \"p\": the field \"a\": a field has no name",
        ),
        ("[1]", "a field is"),
        ("['a']", "a field is"),
        ("[('a',)]", "a field is"),
        ("[('a', 'f8', (2,), 3)]", "a field is"),
        ("[('a', 'f8', ('b',))]", "a field is"),
        ("[(1, 'f8')]", "a field is"),
        ("[('a', ('b', 'f8'))]", "a type is"),
        ("[('a', 'f8')", "should stand"),
        (&format!("[{}]", many.join(", ")), "numbers apart"),
        (&"[('a', ".repeat(1000), "in one another"),
    ] {
        let error = StoredElement::parse(text).unwrap_err();
        assert_eq!(error.kind, Kind::Schema, "{text:.80}");
        assert!(error.cause.contains(cause), "{text:.80}: {error:.200}");
    }
    for (text, cause) in [
        ("[('a', '<f8'), ('b', '>f8')]", "both byte orders"),
        ("[('a', '<f8'), ('', '|V4')]", "without padding"),
    ] {
        let error = ElementType::parse(text).unwrap_err();
        assert!(error.cause.contains(cause), "{error}");
    }
}

#[test]
fn records_are_packed_in_memory() {
    for (text, word, width, stored) in [
        (
            "[('x', '<f8'), ('n', 'i4', (3,))]",
            "[('x', 'f8'), ('n', 'i4', (3,))]",
            20,
            20,
        ),
        (
            "[('x', 'u1'), ('', 'V7'), ('y', 'f8')]",
            "[('x', 'u1'), ('y', 'f8')]",
            9,
            16,
        ),
        ("[(('title', 'x'), '?', 2)]", "[('x', 'b1', (2,))]", 2, 2),
        (
            "[('p', [('a', '<c8'), ('', '|V1')], (2, 3)), ('b', '|i1')]",
            "[('p', [('a', 'c8')], (2, 3)), ('b', 'i1')]",
            49,
            55,
        ),
    ] {
        let read = StoredElement::parse(text).unwrap();
        assert_eq!(read.element().word(), word);
        assert_eq!(
            (read.element().width(), read.width()),
            (width, stored),
            "{text}"
        );
        let again = ElementType::parse(word).unwrap();
        assert_eq!(again, (read.element().clone(), ByteOrder::NATIVE));
        let json = serde_json::to_string(&read).unwrap();
        assert_eq!(serde_json::from_str::<StoredElement>(&json).unwrap(), read);
    }
    let (element, order) = ElementType::parse("[('a', '|u1'), ('b', '>f8')]").unwrap();
    assert_eq!(order, ByteOrder::Big);
    assert_eq!(element.numpy_in(order), "[('a', '|u1'), ('b', '>f8')]");
    assert!(!element.has_no_order());
    assert!(
        ElementType::parse("[('a', '|u1')]")
            .unwrap()
            .0
            .has_no_order()
    );
}

#[test]
fn swapping_reverses_each_component() {
    let mut data: Vec<u8> = (0..8).collect();
    swap(&mut data, 4);
    assert_eq!(data, [3, 2, 1, 0, 7, 6, 5, 4]);
    swap(&mut data, 2);
    assert_eq!(data, [2, 3, 0, 1, 6, 7, 4, 5]);
    swap(&mut data, 1);
    swap(&mut data, 8);
    assert_eq!(data, [5, 4, 7, 6, 1, 0, 3, 2]);
}

#[test]
fn like_numbers_are_one_move() {
    let moves = |text: &str| StoredElement::parse(text).unwrap().moves.len();
    assert_eq!(
        moves("[('a', '=f8'), ('b', '=i2'), ('c', '=c16', (9, 9))]"),
        1
    );
    let (other, others) = match ByteOrder::NATIVE {
        ByteOrder::Little => ("'>f8'", "[('a', '>f8', (1000000,)), ('b', '>i8')]"),
        ByteOrder::Big => ("'<f8'", "[('a', '<f8', (1000000,)), ('b', '<i8')]"),
    };
    assert_eq!(moves(others), 1);
    let pairs = format!("[('p', [('a', {other}), ('b', '|u1')], (50,))]");
    assert_eq!(moves(&pairs), 100);
}

/// A field of a naive model: NumPy's word, width, and the width that is swapped.
type Number = (&'static str, usize, usize);
const NUMBERS: [Number; 6] = [
    ("|u1", 1, 1),
    ("i2", 2, 2),
    ("f4", 4, 4),
    ("u8", 8, 8),
    ("c8", 8, 4),
    ("c16", 16, 8),
];

proptest! {
    /// Stored elements against a model that moves byte after byte.
    #[test]
    fn files_and_memory_have_the_same_numbers(
        fields in prop::collection::vec((0..6_usize, any::<bool>(), 0..4_usize, 1..4_usize), 1..9),
        seed in any::<u8>(),
        elements in 0..5_usize,
    ) {
        let mut text = Vec::new();
        // For each byte in memory, its place in the file.
        let (mut places, mut width) = (Vec::new(), 0_usize);
        for (number, (kind, is_big, padding, count)) in fields.into_iter().enumerate() {
            let (word, bytes, unit) = NUMBERS[kind];
            let sign = match (bytes, is_big) {
                (1, _) => "",
                (_, true) => ">",
                (_, false) => "<",
            };
            text.push(format!("('f{number}', '{sign}{word}', ({count},))"));
            for place in (0..bytes * count).step_by(unit) {
                for byte in 0..unit {
                    let is_other = is_big == cfg!(target_endian = "little");
                    let within = if is_other { unit - 1 - byte } else { byte };
                    places.push(width + place + within);
                }
            }
            width += bytes * count;
            if padding > 0 {
                text.push(format!("('', '|V{padding}')"));
                width += padding;
            }
        }
        let stored = StoredElement::parse(&format!("[{}]", text.join(", "))).unwrap();
        prop_assert_eq!(stored.width() as usize, width);
        let packed = places.len();
        prop_assert_eq!(stored.element().width() as usize, packed);
        let file: Vec<u8> = (0..width * elements).map(|n| (n as u8).wrapping_mul(37) ^ seed).collect();
        let expected: Vec<u8> = (0..elements)
            .flat_map(|e| places.iter().map(move |place| (e, *place)))
            .map(|(e, place)| file[e * width + place])
            .collect();
        let mut memory = vec![0; packed * elements];
        stored.pack(&file, &mut memory);
        prop_assert_eq!(&memory, &expected);
        // What goes back is the same, but for the padding.
        let back = stored.stored(&memory);
        let mut again = vec![0; packed * elements];
        stored.pack(&back, &mut again);
        prop_assert_eq!(&again, &expected);
        prop_assert_eq!(back.len() as u64, stored.stored_bytes(memory.len() as u64));
        if !stored.has_padding() {
            prop_assert_eq!(&*back, &file[..]);
            prop_assert_eq!(&*stored.swapped(&memory), &file[..]);
            let mut data = file.clone();
            stored.swap(&mut data);
            prop_assert_eq!(&data, &expected);
        }
    }

    /// Any text is read or refused, and what is read comes back.
    #[test]
    fn texts_from_outside_are_checked(text in r"\[(\((''|'a'|'b'), ('<f8'|'>i2'|'|V3'|'U1'|\[\('c', '\|u1'\)\])(, \(?[0-9]{0,5},?\)?)?\)[, ]{0,2}){0,4}\]?") {
        if let Ok(read) = StoredElement::parse(&text) {
            let word = read.element().word();
            prop_assert_eq!(ElementType::parse(&word).unwrap().0, read.element().clone());
            prop_assert!(read.width() >= read.element().width());
        }
    }
}
