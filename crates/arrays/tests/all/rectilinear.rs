//! Chunks with extents of their own are those of the crate `zarrs`, which has its own reading of
//! Zarr's rectilinear grids.

use std::path::Path;
use std::sync::Arc;

use crate::common::*;
use penstock_arrays::{ElementType, StoredArray};
use serde_json::json;
use zarrs::array::Array;
use zarrs::filesystem::FilesystemStore;
use zarrs::metadata::v3::ArrayMetadataV3;

/// The elements of the array `u` as zarrs reads them.
fn by_zarrs(path: &Path) -> Vec<u8> {
    let store = Arc::new(FilesystemStore::new(path).unwrap());
    let array = Array::open(store, "/u").unwrap();
    let all = array.subset_all();
    let read = array.retrieve_array_subset::<zarrs::array::ArrayBytes<'static>>(&all);
    read.unwrap().into_fixed().unwrap().into_owned()
}

#[test]
fn zarrs_reads_what_penstock_writes() {
    let directory = place();
    for (at, disk) in [
        listed(&[3, 5, 2], &[1, 4, 2], None, "none"),
        listed(&[3, 5, 2], &[1, 6], None, "zstd+crc32c"),
        listed(&[1, 1, 1, 9], &[4, 9], None, "blosc"),
        listed(&[4, 8], &[2, 4, 2], Some(&[2, 1]), "none"),
        listed(&[4, 8], &[2, 4, 2], Some(&[1, 2]), "zstd"),
    ]
    .into_iter()
    .enumerate()
    {
        for element in [ElementType::U1, ElementType::F8] {
            let schema = schema(&[10, 7], element.clone(), disk.clone());
            let path = directory.path().join(format!("{at}-{element}"));
            let values = values(&schema, 7);
            write(&path, &schema, &values).unwrap();
            assert!(by_zarrs(&path) == values, "{disk} {element}");
        }
    }
}

#[test]
fn penstock_reads_what_zarrs_writes() {
    let directory = place();
    for (at, (shapes, codecs)) in [
        (json!([[3, 5, 2], [[2, 2], 3]]), json!([])),
        (json!([[3, [7, 1]], 4]), json!([])),
        (json!([[[3, 2], 9], [1, 6]]), json!([{ "name": "crc32c" }])),
        (
            json!([[[5, 2]], [7]]),
            json!([{ "name": "zstd", "configuration": { "level": 3, "checksum": true } }]),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let path = directory.path().join(at.to_string());
        std::fs::create_dir(&path).unwrap();
        let group = json!({ "zarr_format": 3, "node_type": "group", "attributes": {} });
        std::fs::write(path.join("zarr.json"), group.to_string()).unwrap();
        let little = json!({ "name": "bytes", "configuration": { "endian": "little" } });
        let codecs = [&[little], codecs.as_array().unwrap().as_slice()].concat();
        let metadata = json!({
            "zarr_format": 3, "node_type": "array", "shape": [10, 7], "data_type": "int32",
            "chunk_grid": {
                "name": "rectilinear",
                "configuration": { "kind": "inline", "chunk_shapes": shapes },
            },
            "chunk_key_encoding": { "name": "default", "configuration": { "separator": "/" } },
            "fill_value": -7, "codecs": codecs, "attributes": {},
        });
        let metadata: ArrayMetadataV3 = serde_json::from_value(metadata).unwrap();
        let store = Arc::new(FilesystemStore::new(&path).unwrap());
        let array = Array::new_with_metadata(store, "/u", metadata.into()).unwrap();
        array.store_metadata().unwrap();
        let schema = schema(&[10, 7], ElementType::I4, chunks(&[1, 1], None, "none"));
        let values = values(&schema, at as u64);
        let all = array.subset_all();
        array
            .store_array_subset(&all, zarrs::array::ArrayBytes::new_flen(values.clone()))
            .unwrap();
        let stored = StoredArray::open(&path, Some("u")).unwrap();
        assert!(
            read_stored(&stored).unwrap() == values,
            "{}",
            stored.schema().disk
        );
    }
}
