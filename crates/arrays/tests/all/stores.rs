//! Arrays are read as they were written, through every store, for every element type.

use crate::common::*;
use penstock_arrays::{
    ArraySchema, ByteOrder, ElementType, Format, Keys, Pending, Storage, StoredArray,
    StoredElement, npy,
};
use penstock_engine::Kind;
use penstock_layout::Edges;
use serde_json::json;

#[test]
fn every_type_through_every_store() {
    let directory = place();
    for (at, disk) in forms().into_iter().enumerate() {
        for (number, element) in ElementType::all().chain(records()).enumerate() {
            let schema = schema(&[9, 7], element.clone(), disk.clone());
            let path = directory.path().join(format!("{at}-{number}"));
            let values = values(&schema, at as u64 + 1);
            write(&path, &schema, &values).unwrap();
            let stored = StoredArray::open(&path, None).unwrap();
            if disk == flat(Format::Npy) {
                assert_eq!(stored.schema().disk, disk);
                assert_eq!(stored.schema().element, element);
            } else {
                assert_eq!(*stored.schema(), normalised(schema));
            }
            assert!(
                read_stored(&stored).unwrap() == values,
                "{disk:?} {element}"
            );
        }
    }
}

/// The schema as it is read back: with the codec's defaults written out, and names of dimensions.
fn normalised(mut schema: ArraySchema) -> ArraySchema {
    if let Storage::Chunks { .. } = schema.disk {
        schema.dimension_names = Some(schema.names_of_dimensions());
    }
    if let Storage::Chunks { codec, .. } = &mut schema.disk {
        *codec = codec
            .parse::<penstock_arrays::codec::Codec>()
            .unwrap()
            .to_string();
        // A shuffle that follows from the element's width is not repeated.
        let implied = if schema.element.width() == 1 {
            ":bitshuffle"
        } else {
            ":shuffle"
        };
        *codec = codec.replace(implied, "");
    }
    schema
}

/// In each dimension a chunk of one index, and one of all others.
fn ones_and_rest(shape: &[u64], codec: &str) -> Storage {
    let edges = shape.iter().map(|&n| match n {
        0 | 1 => Edges::Regular(1),
        n => Edges::Listed(vec![1, n - 1]),
    });
    Storage::Chunks {
        chunk: edges.collect(),
        subchunks: None,
        codec: codec.to_string(),
    }
}

#[test]
fn every_shape() {
    let directory = place();
    let shapes: [&[u64]; 8] = [
        &[],
        &[0],
        &[1],
        &[13],
        &[0, 5],
        &[5, 0],
        &[3, 4, 5],
        &[2, 1, 3, 2],
    ];
    for (at, shape) in shapes.into_iter().enumerate() {
        let dims = shape.len();
        let twos = vec![2; dims];
        let fours = vec![4; dims];
        let dists = vec!["BLOCK"; dims].join(",");
        for (which, disk) in [
            flat(Format::Raw),
            flat(Format::Npy),
            parts(&dists, &vec![3; dims]),
            chunks(&twos, None, "none"),
            chunks(&fours, None, "zstd"),
            chunks(&fours, Some(&twos), "none"),
            chunks(&fours, Some(&twos), "blosc+crc32c"),
            ones_and_rest(shape, "none"),
            ones_and_rest(shape, "zstd"),
        ]
        .into_iter()
        .enumerate()
        {
            let schema = schema(shape, ElementType::F4, disk);
            let path = directory.path().join(format!("{at}-{which}"));
            let values = values(&schema, 7);
            write(&path, &schema, &values).unwrap();
            let stored = StoredArray::open(&path, None).unwrap();
            assert_eq!(stored.schema().shape, shape);
            assert!(
                read_stored(&stored).unwrap() == values,
                "{shape:?} {:?}",
                schema.disk
            );
        }
    }
}

#[test]
fn attributes_and_dimension_names_come_back() {
    let directory = place();
    for (at, disk) in [
        chunks(&[2, 2], None, "none"),
        flat(Format::Raw),
        parts("BLOCK,*", &[2]),
    ]
    .into_iter()
    .enumerate()
    {
        let mut schema = schema(&[3, 2], ElementType::F8, disk);
        schema
            .attributes
            .insert("units".to_string(), json!({ "K": [1, null, 2.5, "µ"] }));
        schema.dimension_names = Some(vec!["x".to_string(), "y".to_string()]);
        let path = directory.path().join(at.to_string());
        write(&path, &schema, &values(&schema, 1)).unwrap();
        assert_eq!(
            *StoredArray::open(&path, Some("u")).unwrap().schema(),
            schema
        );
    }
    let mut schema = schema(&[3], ElementType::F8, flat(Format::Npy));
    schema.attributes.insert("a".to_string(), json!(1));
    let error = write(&directory.path().join("n.npy"), &schema, &[0; 24]).unwrap_err();
    assert_eq!(error.kind, Kind::Unsupported);
}

#[test]
fn parts_concatenate_to_the_row_major_file() {
    let directory = place();
    // 5 parts of 2 rows for 7 rows: the last part is empty, and exists.
    let schema = schema(&[7, 3], ElementType::I2, parts("BLOCK,*", &[5]));
    let (path, values) = (directory.path().join("p"), values(&schema, 3));
    write(&path, &schema, &values).unwrap();
    let files: Vec<Vec<u8>> = (0..5)
        .map(|part| std::fs::read(path.join(format!("u.{part:04}"))).unwrap())
        .collect();
    assert_eq!(
        files.iter().map(Vec::len).collect::<Vec<_>>(),
        [12, 12, 12, 6, 0]
    );
    assert_eq!(files.concat(), values);
}

#[test]
fn what_is_not_written_is_zero() {
    let skips: [fn(usize) -> bool; 2] = [|number| number % 3 == 1, |_all| true];
    for is_skipped in skips {
        let directory = place();
        for (at, disk) in forms().into_iter().enumerate() {
            let schema = schema(&[9, 7], ElementType::F8, disk);
            let path = directory.path().join(at.to_string());
            let pending = Pending::create(&path, &schema, Keys::Nested).unwrap();
            let disk = schema.disk_schema(40).unwrap();
            let medium = pending.target().open_write(&disk).unwrap();
            let mut expected = values(&schema, 1);
            let values = expected.clone();
            for (number, block) in disk.blocks(0, 1).enumerate() {
                let data = gather(&block, &values, &schema.shape, 8);
                if !is_skipped(number) {
                    medium.write(&block, &data).unwrap();
                    continue;
                }
                for i in 0..block.region.shape[0] {
                    for j in 0..block.region.shape[1] {
                        let at = (block.region.start[0] + i) * 7 + block.region.start[1] + j;
                        expected[at as usize * 8..][..8].fill(0);
                    }
                }
            }
            medium.finish(true).unwrap();
            pending.commit(true).unwrap();
            assert!(read(&path).unwrap() == expected, "{:?}", schema.disk);
        }
    }
}

#[test]
fn more_objects_at_once_than_files_kept_open() {
    let directory = place();
    for (at, disk) in [
        chunks(&[4], Some(&[1]), "none"),
        chunks(&[4], Some(&[2]), "zstd"),
        chunks(&[4], None, "none"),
        parts("BLOCK", &[40]),
    ]
    .into_iter()
    .enumerate()
    {
        let schema = schema(&[160], ElementType::I4, disk);
        let path = directory.path().join(at.to_string());
        let values = values(&schema, 5);
        let pending = Pending::create(&path, &schema, Keys::Nested).unwrap();
        let disk = schema.disk_schema(4).unwrap();
        let medium = pending.target().open_write(&disk).unwrap();
        // All first blocks come, then all second ones: every file is closed and opened again.
        let mut blocks: Vec<_> = disk.blocks(0, 1).collect();
        blocks.sort_by_key(|block| (block.index, block.object));
        for block in blocks {
            medium
                .write(&block, &gather(&block, &values, &schema.shape, 4))
                .unwrap();
        }
        medium.finish(true).unwrap();
        pending.commit(true).unwrap();
        assert_eq!(read(&path).unwrap(), values);
    }
}

#[test]
fn threads_write_different_objects_at_once() {
    let directory = place();
    for (at, disk) in [
        chunks(&[8, 8], Some(&[2, 4]), "zstd:1"),
        chunks(&[8, 8], None, "blosc"),
        chunks(&[8, 8], None, "none"),
        parts("BLOCK,BLOCK", &[8, 8]),
        flat(Format::Raw),
    ]
    .into_iter()
    .enumerate()
    {
        let schema = schema(&[61, 59], ElementType::F8, disk);
        let (path, values) = (directory.path().join(at.to_string()), values(&schema, 9));
        let pending = Pending::create(&path, &schema, Keys::Nested).unwrap();
        let disk = schema.disk_schema(64).unwrap();
        let medium = pending.target().open_write(&disk).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (medium, disk, values) = (&medium, &disk, &values);
                scope.spawn(move || {
                    for block in disk.blocks(thread, 8) {
                        medium
                            .write(&block, &gather(&block, values, &[61, 59], 8))
                            .unwrap();
                    }
                });
            }
        });
        medium.finish(true).unwrap();
        pending.commit(true).unwrap();
        assert!(read(&path).unwrap() == values);
    }
}

#[test]
fn numpy_files_of_either_order() {
    let directory = place();
    let shape = [2_u64, 3, 4];
    for (element, order, swap_width, fortran) in [
        (ElementType::I2, ByteOrder::Big, 2, false),
        (ElementType::F8, ByteOrder::Big, 8, true),
        (ElementType::C8, ByteOrder::Big, 4, true),
        (ElementType::U1, ByteOrder::Little, 1, true),
        (ElementType::C16, ByteOrder::Little, 8, false),
    ] {
        let schema = schema(&shape, element.clone(), flat(Format::Npy));
        let (values, width) = (values(&schema, 11), element.width() as usize);
        let mut file = npy::Header {
            shape: shape.to_vec(),
            element: StoredElement::of(&element, order),
            fortran,
        }
        .encode();
        for number in 0..24 {
            // The row-major index of each element, in the file's order.
            let at = if fortran {
                let (i, j, k) = (number % 2, number / 2 % 3, number / 6);
                (i * 3 + j) * 4 + k
            } else {
                number
            };
            let mut one = values[at * width..][..width].to_vec();
            if order == ByteOrder::Big {
                one.chunks_mut(swap_width).for_each(<[u8]>::reverse);
            }
            file.extend(one);
        }
        let path = directory.path().join("a.npy");
        std::fs::write(&path, file).unwrap();
        let stored = StoredArray::open(&path, None).unwrap();
        assert_eq!(stored.schema().name, "a");
        assert!(
            read_stored(&stored).unwrap() == values,
            "{element} {order:?} {fortran}"
        );
    }
}

#[test]
fn raw_files_whose_schema_the_caller_knows() {
    let directory = place();
    let path = directory.path().join("r");
    std::fs::write(&path, [1_u8; 24]).unwrap();
    let stored = StoredArray::open_raw(&path, &[3, 2], &ElementType::I4).unwrap();
    assert_eq!(read_stored(&stored).unwrap(), [1; 24]);
    let error = StoredArray::open_raw(&path, &[3, 3], &ElementType::I4)
        .err()
        .unwrap();
    assert_eq!(error.kind, Kind::Damaged);
    assert!(
        error.cause.contains("24") && error.cause.contains("36"),
        "{error}"
    );
    assert_eq!(
        StoredArray::open(&path, None).err().unwrap().kind,
        Kind::Unsupported
    );
    // A raw file must fit the sidecar beside it.
    write(
        &path,
        &schema(&[3, 2], ElementType::I4, flat(Format::Raw)),
        &[2; 24],
    )
    .unwrap();
    StoredArray::open_raw(&path, &[3, 2], &ElementType::I4).unwrap();
    let error = StoredArray::open_raw(&path, &[3, 2], &ElementType::F4)
        .err()
        .unwrap();
    assert_eq!(error.kind, Kind::Schema, "{error}");
}

/// A cache that spills writes a block before all of it has come, reads it back and writes it again,
/// in an order of its own: the files equal those of a write in order.
#[test]
fn blocks_may_come_in_any_order_and_twice() {
    let directory = place();
    let forms = forms().into_iter().chain([
        // A shard of many sub-chunks, some of padding alone, and more shards than are kept open.
        chunks(&[8, 12], Some(&[1, 2]), "zstd:1"),
        chunks(&[2, 2], Some(&[1, 1]), "crc32c"),
    ]);
    for (at, disk) in forms.enumerate() {
        let schema = schema(&[9, 7], ElementType::I4, disk);
        let (values, other) = (values(&schema, 5), values(&schema, 6));
        let expected = directory.path().join(format!("{at}-expected"));
        let path = directory.path().join(format!("{at}"));
        for place in [&expected, &path] {
            std::fs::create_dir(place).unwrap();
        }
        write(&expected.join("u"), &schema, &values).unwrap();

        let pending = Pending::create(&path.join("u"), &schema, Keys::Nested).unwrap();
        let blocks = schema.disk_schema(16).unwrap();
        let medium = pending.target().open_write(&blocks).unwrap();
        let mut order: Vec<_> = blocks.blocks(0, 1).collect();
        order.sort_by_key(|block| (block.object * 31 + block.index * 17 + 5) % 23);
        for (turn, block) in order.iter().enumerate() {
            let data = gather(block, &values, &schema.shape, 4);
            let before = gather(block, &other, &schema.shape, 4);
            let mut back = vec![1; data.len()];
            medium.read(block, &mut back).unwrap();
            assert!(back.iter().all(|byte| *byte == 0), "{:?}", schema.disk);
            medium.write(block, &before).unwrap();
            if turn % 3 > 0 {
                medium.read(block, &mut back).unwrap();
                assert_eq!(back, before, "{:?}", schema.disk);
                medium.write(block, &data).unwrap();
            }
        }
        for block in order.iter().step_by(3) {
            let data = gather(block, &values, &schema.shape, 4);
            medium.write(block, &data).unwrap();
        }
        medium.finish(true).unwrap();
        pending.commit(true).unwrap();
        assert_eq!(snapshot(&path), snapshot(&expected), "{:?}", schema.disk);
    }
}
