//! Metadata that are not what they should be: bytes and JSON values changed at random in every form
//! of store. Whatever reads them gives a value or an error, and nothing worse.
//!
//! A failure prints its seed; `PENSTOCK_SEED=<seed> cargo test -p penstock-arrays --test all fuzz`
//! runs that one alone. `PENSTOCK_FUZZ_SECONDS` runs seeds for as long: `make fuzz`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cases::{Chance, save_group};
use crate::common::{
    chunks, flat, forms, listed, place, read_stored, records, schema, values, write,
};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use penstock_arrays::calls::settings::SessionOptions;
use penstock_arrays::groups::{Catalog, describe, list, open, verify};
use penstock_arrays::{ElementType, Fill, Format, Storage, Target};
use penstock_engine::encoding::{decode, encode};
use serde_json::{Value, json};

/// The most bytes of an array that is read, whatever its metadata say.
const READ_MAX: u64 = 1 << 20;
/// The most chunks of an array that is verified: each is looked for.
const OBJECTS_MAX: u64 = 10_000;
/// The longest time that one store may take.
const STORE_MAX: Duration = Duration::from_secs(20);

/// A store of each form, in a directory of its own.
struct Stores {
    _place: tempfile::TempDir,
    roots: Vec<PathBuf>,
}

impl Stores {
    fn new() -> Self {
        let place = place();
        let mut roots = Vec::new();
        let mut root = || {
            let root = place.path().join(roots.len().to_string());
            fs::create_dir(&root).unwrap();
            roots.push(root.clone());
            root.join("run")
        };
        for disk in forms() {
            let mut schema = schema(&[8, 6], ElementType::F8, disk);
            if matches!(schema.disk, Storage::Chunks { .. }) {
                schema.fill = Fill::new(&ElementType::F8, &f64::NAN.to_ne_bytes()).unwrap();
            }
            write(&root(), &schema, &values(&schema, 1)).unwrap();
        }
        for (number, element) in records().take(2).enumerate() {
            let codec = ["none", "blosc"][number];
            let mut schema = schema(&[8, 6], element, chunks(&[4, 3], Some(&[2, 3]), codec));
            schema.fill =
                Fill::new(&schema.element, &vec![7; schema.element.width() as usize]).unwrap();
            write(&root(), &schema, &values(&schema, 1)).unwrap();
            schema.disk = flat(Format::Npy);
            schema.fill = Fill::default();
            write(&root(), &schema, &values(&schema, 1)).unwrap();
        }
        second_format(&root());
        records_of_second_format(&root());
        references(&root());
        tables(&root());
        for codec in ["none", "zstd+crc32c"] {
            for disk in [
                chunks(&[4, 3], None, codec),
                listed(&[3, 5], &[1, 5], None, codec),
            ] {
                let schema = schema(&[8, 6], ElementType::F4, disk);
                save_group(&root(), &schema, &SessionOptions::default());
            }
        }
        Self {
            _place: place,
            roots,
        }
    }
}

/// A store of Zarr's second format, by hand.
fn second_format(path: &Path) {
    let metadata = json!({
        "zarr_format": 2, "shape": [8, 6], "chunks": [4, 3], "dtype": "<f8", "order": "C",
        "compressor": {"id": "zlib", "level": 1}, "filters": [{"id": "delta", "dtype": "<f8"}],
        "fill_value": "NaN", "dimension_separator": ".",
    });
    fs::create_dir(path).unwrap();
    fs::write(path.join(".zgroup"), r#"{"zarr_format": 2}"#).unwrap();
    fs::create_dir(path.join("u")).unwrap();
    fs::write(path.join("u/.zarray"), metadata.to_string()).unwrap();
    fs::write(path.join("u/.zattrs"), r#"{"_FillValue": -9.5}"#).unwrap();
    fs::write(path.join("u/0.0"), [0x78, 0x9c, 3, 0, 0, 0, 0, 1]).unwrap();
}

/// As [`second_format`], of records of both byte orders.
fn records_of_second_format(path: &Path) {
    let metadata = json!({
        "zarr_format": 2, "shape": [8], "chunks": [8], "order": "C", "compressor": null,
        "dtype": [["x", "<u2"], ["p", [["y", ">i2"], ["z", "|i1", [3]]]]],
        "filters": null, "fill_value": "AQIDBAUGBw==", "dimension_separator": ".",
    });
    fs::create_dir_all(path.join("u")).unwrap();
    fs::write(path.join(".zgroup"), r#"{"zarr_format": 2}"#).unwrap();
    fs::write(path.join("u/.zarray"), metadata.to_string()).unwrap();
    fs::write(path.join("u/0"), [5; 56]).unwrap();
}

/// The keys of a reference set, each with what is there: metadata, or a file, an offset and a
/// length.
fn keys() -> Value {
    let metadata = json!({
        "zarr_format": 2, "shape": [8, 6], "chunks": [4, 3], "dtype": ">f8", "order": "C",
        "compressor": null, "filters": null, "fill_value": "NaN", "dimension_separator": ".",
    });
    json!({
        ".zgroup": {"zarr_format": 2},
        "u/.zarray": metadata,
        "u/.zattrs": {"_ARRAY_DIMENSIONS": ["y", "x"]},
        "u/0.0": ["values", 0, 96],
        "u/0.1": ["values", 7, 96],
        "u/1.1": "base64:".to_string() + &"AAAA".repeat(32),
    })
}

/// References in a JSON file.
fn references(path: &Path) {
    let set = json!({"version": 1, "templates": {"a": "b"}, "refs": keys()});
    fs::write(path, set.to_string()).unwrap();
    fs::write(path.with_file_name("values"), [1; 103]).unwrap();
}

/// References in Parquet tables.
fn tables(path: &Path) {
    let mut metadata = keys();
    let nodes = metadata.as_object_mut().unwrap();
    nodes.retain(|key, _| key.contains(".z"));
    let set = json!({"record_size": 2, "metadata": metadata});
    fs::create_dir_all(path.join("u")).unwrap();
    fs::write(path.join(".zmetadata"), set.to_string()).unwrap();
    fs::write(path.with_file_name("values"), [1; 103]).unwrap();
    for number in 0..2 {
        let schema = "message table { optional binary path (UTF8); required int64 offset;
            required int64 size; optional binary raw; }";
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let file = fs::File::create(path.join(format!("u/refs.{number}.parq"))).unwrap();
        let mut table = SerializedFileWriter::new(file, schema, Default::default()).unwrap();
        let mut rows = table.next_row_group().unwrap();
        let (levels, name) = (&[1, 0][..], [ByteArray::from("values")]);
        let raw = [ByteArray::from(vec![7; 96])];
        let mut column = rows.next_column().unwrap().unwrap();
        column
            .typed::<ByteArrayType>()
            .write_batch(&name, Some(levels), None)
            .unwrap();
        column.close().unwrap();
        for numbers in [[3, 0], [96, 0]] {
            let mut column = rows.next_column().unwrap().unwrap();
            column
                .typed::<Int64Type>()
                .write_batch(&numbers, None, None)
                .unwrap();
            column.close().unwrap();
        }
        let mut column = rows.next_column().unwrap().unwrap();
        column
            .typed::<ByteArrayType>()
            .write_batch(&raw, Some(&[0, 1]), None)
            .unwrap();
        column.close().unwrap();
        rows.close().unwrap();
        table.close().unwrap();
    }
}

/// All files below a directory.
fn files(below: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(below).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

/// Copies a directory.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in files(from) {
        let target = to.join(file.strip_prefix(from).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(&file, &target).unwrap();
    }
}

/// Numbers and others at the edges of what metadata may hold.
fn odd_value(chance: &mut Chance) -> Value {
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let mut odd = vec![
        json!(0),
        json!(1),
        json!(-1),
        json!(3),
        json!(1u64 << 32),
        json!(1u64 << 62),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(1e308),
        json!(0.5),
        json!(null),
        json!(true),
        json!(""),
        json!("NaN"),
        json!("float64"),
        json!(">i2"),
        json!("../../u"),
        json!("\u{0}"),
        json!([]),
        json!([0]),
        json!([1u64 << 40, 1u64 << 40]),
        json!([[3, 1u64 << 60], 2]),
        json!([[3, 2], 1, [1, u64::MAX]]),
        json!({}),
        json!({"name": "zstd", "configuration": {"level": 99}}),
        deep,
    ];
    odd.swap_remove(chance.below(odd.len() as u64) as usize)
}

/// Changes one value somewhere in a document.
fn change_value(value: &mut Value, chance: &mut Chance) {
    let goes_in = chance.below(5) > 0;
    match value {
        Value::Object(map) if goes_in && !map.is_empty() => {
            let nth = chance.below(map.len() as u64) as usize;
            let key = map.keys().nth(nth).unwrap().clone();
            match chance.below(8) {
                0 => drop(map.remove(&key)),
                1 => drop(map.insert("extra".to_string(), odd_value(chance))),
                _ => change_value(&mut map[&key], chance),
            }
        }
        Value::Array(list) if goes_in && !list.is_empty() => {
            let nth = chance.below(list.len() as u64) as usize;
            match chance.below(8) {
                0 => drop(list.remove(nth)),
                1 => list.push(list[nth].clone()),
                _ => change_value(&mut list[nth], chance),
            }
        }
        other => *other = odd_value(chance),
    }
}

/// Changes bytes anywhere.
fn change_bytes(bytes: &mut Vec<u8>, chance: &mut Chance) {
    for _ in 0..1 + chance.below(4) {
        let at = chance.below(bytes.len() as u64 + 1) as usize;
        match chance.below(5) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, chance.below(256) as u8),
            2 if at < bytes.len() => drop(bytes.remove(at)),
            3 if at < bytes.len() => bytes[at] = chance.one_of(b"09{}[],:\"-e\\\xff\0"),
            _ if at < bytes.len() => bytes[at] ^= 1 << chance.below(8),
            _ => {}
        }
    }
}

fn change(file: &Path, chance: &mut Chance) {
    let mut bytes = fs::read(file).unwrap();
    match serde_json::from_slice::<Value>(&bytes) {
        Ok(mut document) if chance.below(3) > 0 => {
            for _ in 0..1 + chance.below(2) {
                change_value(&mut document, chance);
            }
            bytes = document.to_string().into_bytes();
        }
        _ => change_bytes(&mut bytes, chance),
    }
    fs::write(file, bytes).unwrap();
}

/// Asks all that can be asked of a store.
fn ask(path: &Path) {
    let mut are_few = true;
    for name in [None, Some("u"), Some("time")] {
        let stored = open(path, name);
        let Ok((stored, disk)) = stored.and_then(|s| s.disk_schema(24).map(|disk| (s, disk)))
        else {
            continue;
        };
        are_few &= disk.objects() <= OBJECTS_MAX;
        if disk.bytes() <= READ_MAX && disk.object_bytes(0) <= READ_MAX {
            let _ = read_stored(&stored);
        }
    }
    let _ = list(path);
    let _ = describe(path);
    let _ = Catalog::read(path);
    if are_few {
        let _ = verify(path, &mut |_| Ok(()));
    }
}

fn run(stores: &Stores, seed: u64) {
    let chance = &mut Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let root = &stores.roots[chance.below(stores.roots.len() as u64) as usize];
    let own = place();
    let all = own.path().join("all");
    copy(root, &all);
    let all_files = files(&all);
    let is_metadata = |file: &&PathBuf| {
        let name = file.file_name().unwrap().to_string_lossy();
        let words = ["json", "record", "refs"];
        name.starts_with('.') || words.iter().any(|word| name.contains(word))
    };
    let metadata: Vec<_> = all_files.iter().filter(is_metadata).collect();
    let file = match chance.below(4) {
        0 => &all_files[chance.below(all_files.len() as u64) as usize],
        _ if metadata.is_empty() => &all_files[0],
        _ => metadata[chance.below(metadata.len() as u64) as usize],
    };
    change(file, chance);
    ask(&all.join("run"));
}

#[test]
fn stores_with_any_metadata_are_read_or_refused() {
    let number = |name: &str| {
        let value = std::env::var(name).ok();
        value.map(|value| value.parse::<u64>().unwrap())
    };
    let one = number("PENSTOCK_SEED");
    let until = Instant::now() + Duration::from_secs(number("PENSTOCK_FUZZ_SECONDS").unwrap_or(0));
    let stores = Stores::new();
    for seed in one.unwrap_or(0).. {
        let begun = Instant::now();
        let ran = std::panic::catch_unwind(|| run(&stores, seed));
        assert!(ran.is_ok(), "PENSTOCK_SEED={seed}");
        assert!(
            begun.elapsed() < STORE_MAX,
            "PENSTOCK_SEED={seed} takes long"
        );
        if one.is_some() || (seed >= 3000 && Instant::now() > until) {
            return;
        }
    }
}

/// The forms that are changed are read back as they were written, unchanged.
#[test]
fn the_stores_are_whole_before() {
    let stores = Stores::new();
    for root in &stores.roots {
        let path = root.join("run");
        if path.join("u/.zarray").exists() {
            continue; // its only chunk is no chunk
        }
        read_stored(
            &open(&path, None)
                .or_else(|_| open(&path, Some("u")))
                .unwrap(),
        )
        .unwrap();
    }
}

/// Targets from another node are opened, or refused.
#[test]
fn targets_that_are_changed_are_opened_or_refused() {
    let stores = Stores::new();
    for seed in 0..2000u64 {
        let chance = &mut Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let root = &stores.roots[chance.below(stores.roots.len() as u64) as usize];
        let path = root.join("run");
        let Ok(stored) = open(&path, None).or_else(|_| open(&path, Some("u"))) else {
            continue;
        };
        let blocks = stored.disk_schema(1 << 20).unwrap();
        let mut body = encode(stored.target()).unwrap();
        assert_eq!(decode::<Target>(&body).as_ref(), Ok(stored.target()));
        change_bytes(&mut body, chance);
        let ran = std::panic::catch_unwind(|| {
            if let Ok(target) = decode::<Target>(&body) {
                drop(target.open_read(&blocks));
            }
        });
        assert!(ran.is_ok(), "seed {seed}");
    }
}
