//! The language against an evaluator that takes one element after the other, by the rules as they
//! are written; and texts that make no sense.

use NumberType::{Bool, C8, C16, F2, F4, F8, I1, I2, I4, I8, U1, U2, U4, U8};

use super::*;

/// xorshift64*.
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(super) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

pub(super) fn scope(element: NumberType) -> Scope {
    Scope {
        name: "u".to_string(),
        element: element.element().clone(),
        dims: vec![Some("z".to_string()), None, Some("x".to_string())],
    }
}

fn refusal(text: &str, element: NumberType) -> String {
    let error = Condition::read(text, &scope(element)).unwrap_err();
    assert_eq!(error.kind, Kind::Schema);
    error.cause
}

fn bytes_of(values: &[f64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect()
}

fn holds(text: &str, element: NumberType, bytes: &[u8], indices: &[Vec<i64>; 3]) -> Vec<bool> {
    let condition = Condition::read(text, &scope(element)).unwrap();
    let values = Column::of_bytes(element, bytes);
    let indices = indices.clone().map(Column::I8);
    let elements = Elements {
        values: std::slice::from_ref(&values),
        indices: &indices,
    };
    let count = bytes.len() / usize::try_from(element.width()).unwrap();
    condition.holds(&elements, count).unwrap()
}

fn of_floats(text: &str, values: &[f64]) -> Vec<bool> {
    let count = i64::try_from(values.len()).unwrap();
    let index = |factor: i64| (0..count).map(|at| at * factor).collect();
    holds(
        text,
        F8,
        &bytes_of(values),
        &[index(1), index(10), index(100)],
    )
}

#[test]
fn precedence_is_pythons() {
    for (text, expected) in [
        ("-2 ** 2 == -4", true),
        ("2 ** 3 ** 2 == 512", true),
        ("2 ** -1 == 0.5", true),
        ("1 + 2 * 3 == 7 and not 1 == 2 or False", true),
        ("not 1 == 2", true),
        (
            "7 // -2 == -4 and 7 % -2 == -1 and -7 // 2 == -4 and -7 % 2 == 1",
            true,
        ),
        (
            "-7 // -2 == 3 and -7 % -2 == -1 and 6 // -3 == -2 and 6 % -3 == 0",
            true,
        ),
        ("True or False and False", true),
        ("1 / 2 == .5 and 1_000 == 1e3 and 2. == 2", true),
        ("9007199254740993 == 9007199254740992", false),
        (
            "3 in [1, 2, 3] and 4 not in [1, 2, 3] and 1 not in []",
            true,
        ),
        ("1 in []", false),
        ("between(2, 1, 2) and not between(0.5, 1, 2)", true),
        ("nan == nan or isnan(inf)", false),
        ("isnan(nan) and inf > 1e308 and -inf < -1e308", true),
        (
            "abs(-3) == 3 and abs(-0.5) == 0.5 and real(3) == 3 and imag(3) == 0",
            true,
        ),
        ("18446744073709551615 > 18446744073709551614", true),
    ] {
        assert_eq!(of_floats(text, &[1.0]), [expected], "{text}");
    }
}

#[test]
fn names_stand_for_elements_and_indices() {
    let values = [0.5, -1.5, f64::NAN, 7.0];
    for (text, expected) in [
        ("u > 0", [true, false, false, true]),
        ("value > 0", [true, false, false, true]),
        ("not u > 0", [false, true, true, false]),
        ("isnan(u)", [false, false, true, false]),
        ("u != u", [false, false, true, false]),
        ("z >= 2", [false, false, true, true]),
        ("i1 == 10 or i2 == 300 or x == 0", [true, true, false, true]),
        ("u * i0 == -1.5", [false, true, false, false]),
        ("u in [7, 0.5]", [true, false, false, true]),
        ("between(u, -2, 0.5)", [true, true, false, false]),
        ("True", [true; 4]),
        ("False", [false; 4]),
    ] {
        assert_eq!(of_floats(text, &values), expected, "{text}");
    }
}

#[test]
fn what_is_wrong_is_named_with_its_column() {
    for (element, text, column, words) in [
        (F8, "", 1, "the end"),
        (F8, "u >", 4, "the end"),
        (F8, "u > 0 0", 7, "0"),
        (F8, "u & 1", 3, "'and'"),
        (F8, "u = 1", 3, "'=='"),
        (F8, "(u > 0", 7, "')'"),
        (F8, "1 < u < 2", 7, "between"),
        (F8, "w > 0", 1, "'w' is not known"),
        (F8, "i3 > 0", 1, "no dimension 'i3'"),
        (F8, "u", 1, "float64"),
        (F8, "3", 1, "an integer"),
        (F8, "u and True", 1, "'and' is for conditions"),
        (F8, "not u", 5, "'not' is for conditions"),
        (F8, "u.a > 0", 2, "no field 'a'"),
        (F8, "sin(u) > 0", 1, "no function 'sin'"),
        (F8, "abs(u, 1) > 0", 1, "takes 1"),
        (F8, "between(u, 1)", 1, "takes 3"),
        (F8, "-(u > 0)", 1, "no negative"),
        (F8, "(u > 0) - (u > 1) == 0", 9, "conditions"),
        (F8, "u > 1 // 0", 7, "division by zero"),
        (F8, "u > 18446744073709551616", 5, "64 bits"),
        (F8, "u > 2 ** 65", 7, "64 bits"),
        (F8, "u > 1e", 6, "'e'"),
        (F8, "u > 1__0", 5, "no number"),
        (U1, "u + 256 > 0", 3, "256 is no uint8"),
        (U1, "u - -1 > 0", 3, "-1 is no uint8"),
        (I4, "u ** -1 > 0", 3, "negative power"),
        (C8, "u < 1", 3, "no order"),
        (C8, "u % 2 == 0", 3, "complex"),
        (C16, "u ** 2 == 1", 3, "complex"),
        (Bool, "-u", 1, "no negative"),
    ] {
        let cause = refusal(text, element);
        assert!(
            cause.starts_with(&format!("column {column}: ")),
            "{text}: {cause}"
        );
        assert!(cause.contains(words), "{text}: {cause}");
    }
    let same = Scope {
        name: "z".to_string(),
        ..scope(F8)
    };
    let error = Condition::read("1 < z", &same).unwrap_err();
    assert!(
        error
            .cause
            .starts_with("column 5: 'z' is more than one of the array")
    );
    assert!(Condition::read("i0 < value", &same).is_ok());
}

#[test]
fn what_is_too_deep_or_too_long_is_refused() {
    for text in [
        "(".repeat(5000),
        "(".repeat(2000),
        "-".repeat(3000) + "1 == 1",
        "not ".repeat(900) + "True",
        "1".to_string() + &"**1".repeat(1000) + " == 1",
        "1".to_string() + &"+1".repeat(1000) + " == 1",
        "abs(".repeat(900),
        "u in [".repeat(600),
        "u".to_string() + &".a".repeat(1000),
    ] {
        let cause = refusal(&text, F8);
        let words = ["nested more than", "longer than", "no field"];
        assert!(words.iter().any(|one| cause.contains(one)), "{cause}");
    }
    let many = vec!["u"; 1300].join(", ");
    let cause = refusal(&format!("abs(abs(u)) in [{many}]"), F8);
    assert!(cause.contains("operations"), "{cause}");
    let long = vec!["u == 1"; 300].join(" or ");
    assert!(Condition::read(&long, &scope(F8)).is_ok());
    assert!(
        Condition::read(
            &format!("{}u > 0{}", "(".repeat(60), ")".repeat(60)),
            &scope(F8)
        )
        .is_ok()
    );
}

#[test]
fn integers_are_compared_exactly() {
    let bytes = |values: &[u64]| -> Vec<u8> {
        values
            .iter()
            .flat_map(|value| value.to_ne_bytes())
            .collect()
    };
    let no = [vec![-1; 3], vec![0; 3], vec![i64::MAX; 3]];
    let large = bytes(&[(1 << 53) + 1, u64::MAX, i64::MAX as u64]);
    for (text, expected) in [
        ("u == 9007199254740993", [true, false, false]),
        ("u > 9007199254740992", [true, true, true]),
        ("u > z", [true, true, true]),
        ("u == x", [false, false, true]),
        ("u > -1", [true, true, true]),
        ("u == 18446744073709551615", [false, true, false]),
        ("u in [-5, 9007199254740993]", [true, false, false]),
    ] {
        assert_eq!(holds(text, U8, &large, &no), expected, "{text}");
    }
    let bytes = [i64::MIN, -1, 5].map(i64::to_ne_bytes).concat();
    for (text, expected) in [
        ("u == -9223372036854775808", [true, false, false]),
        ("u < 18446744073709551615", [true, true, true]),
        ("-u == u", [true, false, false]), // it wraps around
        ("u // 0 == 0 and u % 0 == 0", [true, true, true]),
        ("u // -1 == u", [true, false, false]),
        ("u > 4.5", [false, false, true]),
    ] {
        assert_eq!(holds(text, I8, &bytes, &no), expected, "{text}");
    }
    assert_eq!(
        holds(
            "u < 300",
            U1,
            &[0, 255],
            &no.clone().map(|i| i[..2].to_vec())
        ),
        [true; 2]
    );
}

/// A value of the naive evaluator.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Value {
    Integer(NumberType, i128),
    Float(NumberType, f64),
}

impl Value {
    fn element(self) -> NumberType {
        match self {
            Self::Integer(of, _) | Self::Float(of, _) => of,
        }
    }

    fn as_float(self) -> f64 {
        match self {
            Self::Integer(_, number) => number as f64,
            Self::Float(_, number) => number,
        }
    }

    fn as_integer(self) -> i128 {
        match self {
            Self::Integer(_, number) => number,
            Self::Float(..) => panic!("a float"),
        }
    }
}

/// Wraps a number around into an integer type.
fn wrapped(of: NumberType, number: i128) -> Value {
    let (low, high) = promotion::bounds(of).unwrap();
    let range = high - low + 1;
    Value::Integer(of, (number - low).rem_euclid(range) + low)
}

/// Rounds a number to a float type. Each operation is done in double precision first: for single
/// and half this gives the same as rounding once.
fn rounded(of: NumberType, number: f64) -> Value {
    Value::Float(
        of,
        match of {
            F2 => half::f16::from_f64(number).to_f64(),
            F4 => f64::from(number as f32),
            _ => number,
        },
    )
}

fn naive_arithmetic(op: &str, left: Value, right: Value) -> Value {
    let of = promotion::promoted(left.element(), right.element());
    let is_integer = promotion::class(of) == promotion::Class::Integer;
    if op == "/" {
        let of = if is_integer { F8 } else { of };
        return rounded(
            of,
            rounded(of, left.as_float()).as_float() / rounded(of, right.as_float()).as_float(),
        );
    }
    if is_integer {
        let (a, b) = (left.as_integer(), right.as_integer());
        return wrapped(
            of,
            match op {
                "+" => a + b,
                "-" => a - b,
                "*" => match a.checked_mul(b) {
                    Some(product) => product,
                    None => a.wrapping_mul(b), // both are of 64 bits: the low ones are right
                },
                "//" if b == 0 => 0,
                "%" if b == 0 => 0,
                "//" => (a as f64 / b as f64).floor() as i128, // of small numbers
                _ => a - b * ((a as f64 / b as f64).floor() as i128),
            },
        );
    }
    let (a, b) = (
        rounded(of, left.as_float()).as_float(),
        rounded(of, right.as_float()).as_float(),
    );
    rounded(
        of,
        match op {
            "+" => a + b,
            "-" => a - b,
            _ => a * b,
        },
    )
}

/// A random expression with its value for one element and index.
fn random(chance: &mut Chance, depth: u64, element: Value, index: i64) -> (String, Value) {
    if depth == 0 {
        return match chance.below(3) {
            0 => ("u".to_string(), element),
            1 => ("i1".to_string(), Value::Integer(I8, i128::from(index))),
            _ => ("abs(i1)".to_string(), wrapped(I8, i128::from(index).abs())),
        };
    }
    let (left, a) = random(chance, depth - 1, element, index);
    if chance.below(5) == 0 {
        let value = match a {
            Value::Integer(of, number) => wrapped(of, -number),
            Value::Float(of, number) => Value::Float(of, -number),
        };
        return (format!("(-{left})"), value);
    }
    let (right, b) = random(chance, depth - 1, element, index);
    let of = promotion::promoted(a.element(), b.element());
    let is_integer = promotion::class(of) == promotion::Class::Integer;
    // Quotients of large integers are not those of floats.
    let is_small = |value: Value| value.as_float().abs() < 1e12;
    let ops: &[&str] = match is_integer && is_small(a) && is_small(b) {
        true => &["+", "-", "*", "/", "//", "%"],
        false => &["+", "-", "*", "/"],
    };
    let op = ops[usize::try_from(chance.below(ops.len() as u64)).unwrap()];
    (format!("({left} {op} {right})"), naive_arithmetic(op, a, b))
}

fn naive_comparison(op: &str, a: Value, b: Value) -> bool {
    let both = [a, b].map(|value| promotion::class(value.element()));
    if both == [promotion::Class::Integer; 2] {
        let (a, b) = (a.as_integer(), b.as_integer());
        return match op {
            "<" => a < b,
            "<=" => a <= b,
            "==" => a == b,
            _ => a != b,
        };
    }
    let of = promotion::promoted(a.element(), b.element());
    let (a, b) = (
        rounded(of, a.as_float()).as_float(),
        rounded(of, b.as_float()).as_float(),
    );
    match op {
        "<" => a < b,
        "<=" => a <= b,
        "==" => a == b,
        _ => a != b,
    }
}

#[test]
fn random_expressions_are_as_element_by_element() {
    let mut chance = Chance::new(17);
    for _ in 0..3000 {
        let types = [I1, I2, I4, I8, U1, U2, U4, U8, F2, F4, F8];
        let element = types[usize::try_from(chance.below(types.len() as u64)).unwrap()];
        let low = chance.below(40) as i64 - 20;
        let (value, bytes) = match promotion::bounds(element) {
            Some(_) => {
                let value = wrapped(element, i128::from(low));
                let number = value.as_integer();
                let width = usize::try_from(element.width()).unwrap();
                (value, number.to_le_bytes()[..width].to_vec())
            }
            None => {
                let number = low as f64 / 8.0;
                let bytes = match element {
                    F2 => half::f16::from_f64(number).to_ne_bytes().to_vec(),
                    F4 => (number as f32).to_ne_bytes().to_vec(),
                    _ => number.to_ne_bytes().to_vec(),
                };
                (Value::Float(element, number), bytes)
            }
        };
        let index = chance.below(30) as i64 - 10;
        let (left, a) = random(&mut chance, 3, value, index);
        let (right, b) = random(&mut chance, 2, value, index);
        let op = ["<", "<=", "==", "!="][usize::try_from(chance.below(4)).unwrap()];
        let text = format!("{left} {op} {right}");
        let found = holds(&text, element, &bytes, &[vec![0], vec![index], vec![0]]);
        let expected = naive_comparison(op, a, b);
        assert_eq!(
            found,
            [expected],
            "{text} of {value:?} at {index}: {a:?} and {b:?}"
        );
    }
}

#[test]
fn no_text_makes_anything_but_a_condition_or_an_error() {
    let words = [
        "u",
        "value",
        "i0",
        "i9",
        "z",
        "and",
        "or",
        "not",
        "in",
        "(",
        ")",
        "[",
        "]",
        ",",
        ".",
        "+",
        "-",
        "*",
        "/",
        "//",
        "%",
        "**",
        "<",
        "<=",
        "==",
        "!=",
        ">=",
        ">",
        "0",
        "1",
        "2",
        "3.5",
        "1e300",
        "18446744073709551615",
        "inf",
        "nan",
        "True",
        "False",
        "isnan(",
        "abs(",
        "between(",
        "real(",
        "imag(",
        "é",
        "&",
        "\u{1F600}",
        "\n",
        "1_0",
        "5_",
        "_",
    ];
    let mut chance = Chance::new(5);
    let mut understood = 0;
    for _ in 0..60_000 {
        let many = 1 + chance.below(12);
        let mut text = String::new();
        for _ in 0..many {
            let word = usize::try_from(chance.below(words.len() as u64)).unwrap();
            text += words[word];
            text += if chance.below(3) == 0 { "" } else { " " };
        }
        let elements: Vec<NumberType> = ElementType::all().filter_map(|of| of.number()).collect();
        let element = elements[usize::try_from(chance.below(elements.len() as u64)).unwrap()];
        let Ok(condition) = Condition::read(&text, &scope(element)) else {
            continue;
        };
        understood += 1;
        let width = usize::try_from(element.width()).unwrap();
        for count in [0, 1, 3] {
            let mut bytes = chance.bytes(count * width);
            if element == Bool {
                bytes.iter_mut().for_each(|byte| *byte &= 1);
            }
            let values = Column::of_bytes(element, &bytes);
            let index = Column::I8(vec![i64::MIN; count]);
            let indices = [index.clone(), index.clone(), index];
            let elements = Elements {
                values: std::slice::from_ref(&values),
                indices: &indices,
            };
            if let Ok(truths) = condition.holds(&elements, count) {
                assert_eq!(truths.len(), count, "{text}");
            }
        }
    }
    assert!(understood > 200, "{understood} texts make sense");
}

#[test]
fn fields_of_records_have_names() {
    let record =
        "[('x', 'f8'), ('id', 'i4'), ('at', [('row', 'i2'), ('z', 'u1')]), ('v', 'f4', (2,))]";
    let (element, _) = ElementType::parse(record).unwrap();
    let scope = Scope {
        element,
        ..scope(F8)
    };
    let record = |x: f64, id: i32, row: i16, z: u8| {
        let mut bytes = x.to_ne_bytes().to_vec();
        bytes.extend(id.to_ne_bytes());
        bytes.extend(row.to_ne_bytes());
        bytes.extend([z, 9, 9, 9, 9, 9, 9, 9, 9]);
        bytes
    };
    let all = [
        record(1.5, 7, -3, 200),
        record(f64::NAN, -7, 300, 0),
        record(-2.0, 0, 0, 255),
    ];
    let bytes = all.concat();
    let indices: [Column; 3] = [0, 1, 2].map(|_| Column::I8(vec![0, 1, 2]));
    for (text, expected) in [
        ("value.x < 0 or isnan(value.x)", [false, true, true]),
        ("id > 0", [true, false, false]),
        ("u.id + at.row == 4", [true, false, false]),
        ("value.at.row == 300 and i0 == 1", [false, true, false]),
        ("at.z in [200, 255] and not id == 7", [false, false, true]),
        ("value.x == 1.5 and z == 0", [true, false, false]), // z is the dimension
    ] {
        let condition = Condition::read(text, &scope).unwrap();
        let elements = Elements {
            values: &condition.expression().columns(&bytes, 23),
            indices: &indices,
        };
        assert_eq!(condition.holds(&elements, 3).unwrap(), expected, "{text}");
    }
    for (text, words) in [
        (
            "value > 1",
            "it is a record: name one of its fields, 'x', 'id', 'at', 'v'",
        ),
        ("at == 1", "'row', 'z'"),
        ("at.y == 1", "no field 'y': there are 'row', 'z'"),
        (
            "x == 1",
            "more than one of the array, a field and a dimension",
        ),
        ("v == 1", "an array of shape [2]"),
        ("id.row == 1", "no field 'row': it is int32"),
        ("i0.row == 1", "an index has no field"),
        ("y == 1", "'x', 'id', 'at', 'v' for fields"),
    ] {
        let error = Condition::read(text, &scope).unwrap_err();
        assert!(error.cause.contains(words), "{text}: {error}");
    }
}

#[test]
fn hashes_are_of_values() {
    let same = column::hash(&Column::F8(vec![0.0, -0.0, f64::NAN, -f64::NAN, 1.0]));
    let Column::U8(hashes) = &same else { panic!() };
    assert!(hashes[0] == hashes[1] && hashes[2] == hashes[3] && hashes[0] != hashes[4]);
    let narrow = column::hash(&Column::F4(vec![0.0, 0.0, f32::NAN, f32::NAN, 1.0]));
    assert_eq!(narrow, same);
    let (signed, unsigned) = (Column::I4(vec![5, 0, -1]), Column::I8(vec![5, 0, -1]));
    assert_eq!(column::hash(&signed), column::hash(&unsigned));
    let Column::U8(hashes) = column::hash(&Column::I8((0..64_000).collect())) else {
        panic!()
    };
    let mut counts = [0; 64];
    hashes
        .iter()
        .for_each(|hash| counts[(hash % 64) as usize] += 1);
    assert!(
        counts.iter().all(|count| (800..1200).contains(count)),
        "{counts:?}"
    );
}
