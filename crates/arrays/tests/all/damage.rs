//! Damaged files give the error `Damaged` with the path, and nothing worse, for any contents.

use std::path::{Path, PathBuf};

use crate::common::*;
use penstock_arrays::{ElementType, Format, Storage, StoredArray};
use penstock_engine::{Error, Kind};
use serde_json::{Value, json};

/// A stored array of 8 x 6, in a directory of its own.
fn stored(disk: Storage) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    let schema = schema(&[8, 6], ElementType::F8, disk);
    write(&path, &schema, &values(&schema, 1)).unwrap();
    (directory, path)
}

fn error(path: &Path) -> Error {
    read(path).expect_err("must be refused")
}

fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn files_cut_short_are_damaged() {
    for (disk, file) in [
        (chunks(&[4, 3], None, "none"), "run/u/c/1/1"),
        (chunks(&[4, 3], None, "crc32c"), "run/u/c/1/1"),
        (chunks(&[4, 3], None, "zstd"), "run/u/c/1/1"),
        (chunks(&[4, 3], None, "blosc"), "run/u/c/1/1"),
        (chunks(&[8, 6], Some(&[4, 3]), "none"), "run/u/c/0/0"),
        (flat(Format::Raw), "run"),
        (flat(Format::Npy), "run"),
        (parts("BLOCK,*", &[3]), "run/u.0001"),
    ] {
        for left in [0, 1, 5] {
            let (directory, path) = stored(disk.clone());
            let file = directory.path().join(file);
            edit(&file, |bytes| bytes.truncate(left));
            // A file without the first bytes of a .npy file may be anything.
            let nothing = disk == flat(Format::Npy);
            let expected = if nothing {
                Kind::Unsupported
            } else {
                Kind::Damaged
            };
            let error = error(&path);
            assert_eq!(error.kind, expected, "{disk:?} {left}: {error}");
            assert_eq!(error.path.as_deref(), file.to_str());
        }
        let (directory, path) = stored(disk);
        let file = directory.path().join(file);
        edit(&file, |bytes| bytes.truncate(bytes.len() - 1));
        assert_eq!(error(&path).kind, Kind::Damaged);
    }
}

#[test]
fn headers_of_npy_files() {
    let (_directory, path) = stored(flat(Format::Npy));
    let whole = std::fs::read(&path).unwrap();
    for left in [6, 8, 10, 60, 127, 128, 200] {
        std::fs::write(&path, &whole[..left]).unwrap();
        assert_eq!(error(&path).kind, Kind::Damaged, "{left}");
    }
    for at in 6..128 {
        for byte in [0, b'9', b'}', 0xff] {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            std::fs::write(&path, bytes).unwrap();
            // A header that still makes sense may be read; nothing else may happen.
            if let Err(error) = read(&path) {
                assert!(
                    matches!(error.kind, Kind::Damaged | Kind::Unsupported),
                    "{error}"
                );
            }
        }
    }
}

#[test]
fn a_flipped_byte_under_a_checksum_is_found() {
    for (disk, file) in [
        (chunks(&[4, 3], None, "crc32c"), "run/u/c/0/1"),
        (chunks(&[4, 3], None, "zstd+crc32c"), "run/u/c/0/1"),
        (chunks(&[4, 3], None, "blosc+crc32c"), "run/u/c/0/1"),
        (chunks(&[8, 6], Some(&[4, 3]), "crc32c"), "run/u/c/0/0"),
    ] {
        let (directory, path) = stored(disk);
        let file = directory.path().join(file);
        let length = std::fs::metadata(&file).unwrap().len() as usize;
        for at in 0..length {
            edit(&file, |bytes| bytes[at] ^= 0x40);
            let error = error(&path);
            assert_eq!(
                (error.kind, error.path.as_deref()),
                (Kind::Damaged, file.to_str())
            );
            edit(&file, |bytes| bytes[at] ^= 0x40);
        }
        read(&path).unwrap();
    }
}

#[test]
fn any_byte_of_any_chunk_may_be_wrong() {
    for disk in [
        chunks(&[4, 3], None, "zstd"),
        chunks(&[4, 3], None, "blosc"),
        chunks(&[4, 3], None, "blosc:lz4:5"),
        chunks(&[4, 3], None, "blosc:blosclz:5:bitshuffle"),
        chunks(&[8, 6], Some(&[4, 3]), "zstd"),
    ] {
        let (directory, path) = stored(disk.clone());
        let shard = matches!(
            disk,
            Storage::Chunks {
                subchunks: Some(_),
                ..
            }
        );
        let file = directory
            .path()
            .join(if shard { "run/u/c/0/0" } else { "run/u/c/0/1" });
        let length = std::fs::metadata(&file).unwrap().len() as usize;
        for at in 0..length {
            for byte in [0x00, 0x01, 0x7f, 0xff] {
                let mut before = 0;
                edit(&file, |bytes| {
                    before = std::mem::replace(&mut bytes[at], byte)
                });
                if let Err(error) = read(&path) {
                    assert_eq!(error.kind, Kind::Damaged, "{error}");
                    assert_eq!(error.path.as_deref(), file.to_str());
                }
                edit(&file, |bytes| bytes[at] = before);
            }
        }
    }
}

#[test]
fn the_index_of_a_shard_without_checksum() {
    let (directory, path) = stored(chunks(&[8, 6], Some(&[4, 3]), "none"));
    let metadata = directory.path().join("run/u/zarr.json");
    let file = directory.path().join("run/u/c/0/0");
    // Without its checksum, the index is believed.
    edit(&metadata, |bytes| {
        let mut json: Value = serde_json::from_slice(bytes).unwrap();
        let index = &mut json["codecs"][0]["configuration"]["index_codecs"];
        index.as_array_mut().unwrap().pop();
        *bytes = json.to_string().into_bytes();
    });
    edit(&file, |bytes| bytes.truncate(bytes.len() - 4));
    read(&path).unwrap();
    let index = std::fs::metadata(&file).unwrap().len() as usize - 64;
    for (entry, number) in [
        (0, 1 << 20),
        (1, 1 << 20),
        (0, u64::MAX - 1),
        (1, u64::MAX),
        (1, 95),
        (1, 0),
    ] {
        let mut before = Vec::new();
        edit(&file, |bytes| {
            let place = &mut bytes[index + 8 * entry..][..8];
            before = place.to_vec();
            place.copy_from_slice(&number.to_le_bytes());
        });
        let error = error(&path);
        assert_eq!(
            (error.kind, error.path.as_deref()),
            (Kind::Damaged, file.to_str()),
            "{error}"
        );
        edit(&file, |bytes| {
            bytes[index + 8 * entry..][..8].copy_from_slice(&before)
        });
    }
    // A sub-chunk that is marked as missing reads as the fill value.
    edit(&file, |bytes| bytes[index..index + 16].fill(0xff));
    assert_eq!(read(&path).unwrap()[..8], [0; 8]);
}

#[test]
fn missing_chunks_are_the_fill_value() {
    for (disk, file) in [
        (chunks(&[4, 3], None, "none"), "run/u/c/0/0"),
        (chunks(&[4, 3], None, "zstd"), "run/u/c/0/0"),
        (chunks(&[8, 6], Some(&[4, 3]), "none"), "run/u/c/0/0"),
    ] {
        let (directory, path) = stored(disk);
        let metadata = directory.path().join("run/u/zarr.json");
        std::fs::remove_file(directory.path().join(file)).unwrap();
        assert_eq!(read(&path).unwrap()[..24], [0; 24]);
        edit(&metadata, |bytes| {
            let mut json: Value = serde_json::from_slice(bytes).unwrap();
            json["fill_value"] = json!(1.5);
            *bytes = json.to_string().into_bytes();
        });
        assert_eq!(
            read(&path).unwrap()[..24],
            [1.5_f64.to_le_bytes(); 3].concat()
        );
    }
}

#[test]
fn metadata_that_make_no_sense() {
    let (directory, path) = stored(chunks(&[4, 3], None, "zstd"));
    let file = directory.path().join("run/u/zarr.json");
    let whole: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    for text in ["", "{", "[]", "3", "{}", "\u{fffd}"] {
        std::fs::write(&file, text).unwrap();
        let error = error(&path);
        assert_eq!(
            (error.kind, error.path.as_deref()),
            (Kind::Damaged, file.to_str()),
            "{error}"
        );
    }
    for key in [
        "zarr_format",
        "node_type",
        "shape",
        "data_type",
        "chunk_grid",
        "codecs",
        "fill_value",
    ] {
        for value in [
            None,
            Some(json!(null)),
            Some(json!([-1])),
            Some(json!("x")),
            Some(json!({})),
        ] {
            let mut json = whole.clone();
            let object = json.as_object_mut().unwrap();
            object.remove(key);
            object.extend(value.map(|value| (key.to_string(), value)));
            std::fs::write(&file, json.to_string()).unwrap();
            let error = error(&path);
            assert!(
                matches!(error.kind, Kind::Damaged | Kind::Unsupported),
                "{key}: {error}"
            );
            assert_eq!(error.path.as_deref(), file.to_str());
        }
    }
    for (pointer, value, kind) in [
        (
            "/chunk_grid/configuration/chunk_shape",
            json!([4]),
            Kind::Damaged,
        ),
        (
            "/chunk_grid/configuration/chunk_shape",
            json!([4, 0]),
            Kind::Damaged,
        ),
        (
            "/chunk_grid/configuration/chunk_shape",
            json!([1_u64 << 62, 4]),
            Kind::Damaged,
        ),
        ("/chunk_grid/name", json!("rectilinear"), Kind::Unsupported),
        ("/shape", json!([u64::MAX, u64::MAX]), Kind::Damaged),
        ("/data_type", json!("string"), Kind::Unsupported),
        (
            "/data_type",
            json!({ "name": "numpy.datetime64" }),
            Kind::Unsupported,
        ),
        ("/codecs", json!([]), Kind::Damaged),
        (
            "/codecs/1",
            json!({ "name": "lzma9000" }),
            Kind::Unsupported,
        ),
        (
            "/codecs/0",
            json!({ "name": "sharding_indexed", "configuration": {} }),
            Kind::Damaged,
        ),
    ] {
        let mut json = whole.clone();
        *json.pointer_mut(pointer).unwrap() = value.clone();
        std::fs::write(&file, json.to_string()).unwrap();
        let error = error(&path);
        assert_eq!(error.kind, kind, "{pointer} {value}: {error}");
        assert_eq!(error.path.as_deref(), file.to_str());
    }
}

#[test]
fn shards_that_make_no_sense() {
    let (directory, path) = stored(chunks(&[8, 6], Some(&[4, 3]), "none"));
    let file = directory.path().join("run/u/zarr.json");
    let whole: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    for (key, value) in [
        ("chunk_shape", json!([3, 3])),
        ("chunk_shape", json!([4])),
        ("chunk_shape", json!([16, 3])),
        ("chunk_shape", json!([0, 3])),
        ("codecs", json!([])),
        ("codecs", json!([{ "name": "crc32c" }])),
        ("index_codecs", json!([])),
        (
            "index_codecs",
            json!([{ "name": "bytes", "configuration": { "endian": "little" } },
            { "name": "zstd", "configuration": { "level": 1, "checksum": false } }]),
        ),
        ("index_location", json!("middle")),
    ] {
        let mut json = whole.clone();
        json["codecs"][0]["configuration"][key] = value.clone();
        std::fs::write(&file, json.to_string()).unwrap();
        let error = error(&path);
        assert!(
            matches!(error.kind, Kind::Damaged | Kind::Unsupported),
            "{key} {value}: {error}"
        );
        assert_eq!(error.path.as_deref(), file.to_str(), "{error}");
    }
}

#[test]
fn schemas_of_raw_files_and_parts_that_make_no_sense() {
    for (disk, file) in [
        (flat(Format::Raw), "run.json"),
        (parts("BLOCK,*", &[2]), "run/schema.json"),
    ] {
        let (directory, path) = stored(disk);
        let file = directory.path().join(file);
        let whole: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        for text in ["", "{\"penstock\"", "{\"penstock\":1}"] {
            std::fs::write(&file, text).unwrap();
            let error = error(&path);
            assert_eq!(
                (error.kind, error.path.as_deref()),
                (Kind::Damaged, file.to_str()),
                "{error}"
            );
        }
        for (pointer, value) in [
            ("/penstock", json!(2)),
            ("/array/shape", json!([-1, 2])),
            ("/array/shape", json!([8, 7])),
            ("/array/shape", json!([u64::MAX, u64::MAX])),
            ("/array/element", json!("f3")),
            ("/array/name", json!("../u")),
        ] {
            let mut json = whole.clone();
            *json.pointer_mut(pointer).unwrap() = value.clone();
            std::fs::write(&file, json.to_string()).unwrap();
            let error = error(&path);
            assert!(
                matches!(error.kind, Kind::Damaged | Kind::Unsupported),
                "{pointer}: {error}"
            );
        }
    }
}

#[test]
fn what_is_not_there_is_missing() {
    let (directory, path) = stored(chunks(&[4, 3], None, "none"));
    for missing in ["other", "run/v", "none/run"] {
        let error = StoredArray::open(&directory.path().join(missing), None)
            .err()
            .unwrap();
        assert_eq!(error.kind, Kind::Missing, "{error}");
    }
    assert_eq!(
        StoredArray::open(&path, Some("v")).err().unwrap().kind,
        Kind::Missing
    );
    assert_eq!(
        StoredArray::open(&path.join("u"), Some("v"))
            .err()
            .unwrap()
            .kind,
        Kind::Missing
    );
    std::fs::remove_dir_all(path.join("u")).unwrap();
    assert_eq!(
        StoredArray::open(&path, None).err().unwrap().kind,
        Kind::Missing
    );
    assert_eq!(
        StoredArray::open(directory.path(), None)
            .err()
            .unwrap()
            .kind,
        Kind::Unsupported
    );
    let (_directory, path) = stored(parts("BLOCK,*", &[2]));
    std::fs::remove_file(path.join("u.0001")).unwrap();
    let error = error(&path);
    assert!(error.kind == Kind::Damaged && error.path.unwrap().ends_with("u.0001"));
}
