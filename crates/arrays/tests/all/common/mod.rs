//! Writes and reads whole arrays block by block, as several servers would, with the most naive
//! gather and scatter.
#![allow(dead_code, missing_docs)]

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use penstock_arrays::{ArraySchema, ElementType, Format, Keys, Pending, Storage, StoredArray};
use penstock_engine::Result;
use penstock_layout::{Block, Edges};

pub fn chunks(chunk: &[u64], subchunks: Option<&[u64]>, codec: &str) -> Storage {
    let subchunks = subchunks.map(<[u64]>::to_vec);
    Storage::Chunks {
        chunk: Edges::regular(chunk),
        subchunks,
        codec: codec.to_string(),
    }
}

/// Chunks whose extents are listed for both dimensions.
pub fn listed(rows: &[u64], columns: &[u64], subchunks: Option<&[u64]>, codec: &str) -> Storage {
    Storage::Chunks {
        chunk: [rows, columns]
            .map(|list| Edges::Listed(list.to_vec()))
            .into(),
        subchunks: subchunks.map(<[u64]>::to_vec),
        codec: codec.to_string(),
    }
}

pub fn parts(dists: &str, mesh: &[u64]) -> Storage {
    Storage::Parts(dists.parse().unwrap(), mesh.to_vec())
}

pub fn flat(format: Format) -> Storage {
    Storage::RowMajor { format }
}

pub const CODECS: [&str; 9] = [
    "none",
    "crc32c",
    "zstd",
    "zstd:-5+crc32c",
    "blosc",
    "blosc:lz4:5",
    "blosc:blosclz:9:bitshuffle",
    "blosc:zlib:1:noshuffle+crc32c",
    "blosc:lz4hc:3",
];

/// Every form for an array of two dimensions.
pub fn forms() -> Vec<Storage> {
    let mut disks = vec![
        flat(Format::Raw),
        flat(Format::Npy),
        parts("BLOCK,*", &[3]),
        parts("*,BLOCK", &[4]),
        parts("BLOCK,BLOCK", &[4, 3]),
        parts("*,*", &[]),
        chunks(&[4, 6], Some(&[2, 3]), "none"),
        chunks(&[4, 6], Some(&[4, 2]), "zstd:1+crc32c"),
        chunks(&[4, 6], Some(&[1, 6]), "blosc"),
        chunks(&[20, 20], Some(&[5, 4]), "crc32c"),
    ];
    disks.extend(CODECS.map(|codec| chunks(&[4, 3], None, codec)));
    // The last chunks reach beyond the array, or end where it does.
    disks.extend(["none", "crc32c", "zstd"].map(|codec| listed(&[3, 1, 5], &[1, 6], None, codec)));
    disks.extend(["none", "zstd:1"].map(|codec| listed(&[4, 6], &[3, 6], Some(&[2, 3]), codec)));
    disks
}

/// Records of 12, of 37 and of 300 bytes.
pub fn records() -> impl Iterator<Item = ElementType> {
    let many: Vec<String> = (0..25)
        .map(|n| format!("('f{n}', [('x', 'f8'), ('n', 'u4')])"))
        .collect();
    let words = [
        "[('x', 'f8'), ('id', 'i4')]".to_string(),
        "[('a', 'u1'), ('p', [('c', 'c16'), ('n', 'i2')]), ('x', 'f8'), ('y', 'f8'), ('b', 'u2')]"
            .to_string(),
        format!("[{}]", many.join(", ")),
    ];
    words
        .into_iter()
        .map(|word| ElementType::parse(&word).unwrap().0)
}

pub fn schema(shape: &[u64], element: ElementType, disk: Storage) -> ArraySchema {
    ArraySchema::new("u", shape, element, disk)
}

/// The bytes of an array, row-major: elements differ as far as possible.
pub fn values(schema: &ArraySchema, seed: u64) -> Vec<u8> {
    let bytes = schema.shape.iter().product::<u64>() * schema.element.width();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    let truth = schema.element == ElementType::Bool;
    (0..bytes)
        .map(|_| if truth { next() & 1 } else { next() })
        .collect()
}

/// The byte offsets of each element of a block: in the array and in the block.
fn offsets(block: &Block, shape: &[u64], width: u64) -> Vec<(usize, usize)> {
    let region = &block.region;
    let mut pairs = Vec::new();
    for number in 0..region.elements() {
        let (mut rest, mut array, mut inside, mut array_stride) = (number, 0, 0, 1);
        for d in (0..shape.len()).rev() {
            let i = rest % region.shape[d];
            rest /= region.shape[d];
            array += (region.start[d] + i) * array_stride;
            array_stride *= shape[d];
            inside += i * block.strides[d];
        }
        pairs.push(((array * width) as usize, (inside * width) as usize));
    }
    pairs
}

pub fn gather(block: &Block, values: &[u8], shape: &[u64], width: u64) -> Vec<u8> {
    let (mut data, width_bytes) = (vec![0; block.bytes as usize], width as usize);
    for (array, inside) in offsets(block, shape, width) {
        data[inside..inside + width_bytes].copy_from_slice(&values[array..array + width_bytes]);
    }
    data
}

/// Writes all blocks, dealt out to `servers`, without a commit.
pub fn write_pending(
    path: &Path,
    schema: &ArraySchema,
    values: &[u8],
    servers: usize,
) -> Result<Pending> {
    let pending = Pending::create(path, schema, Keys::Nested)?;
    let disk = schema.disk_schema(40)?;
    for server in 0..servers {
        let medium = pending.target().open_write(&disk)?;
        for block in disk.blocks(server, servers) {
            let data = gather(&block, values, &schema.shape, schema.element.width());
            medium.write(&block, &data)?;
        }
        medium.finish(true)?;
    }
    Ok(pending)
}

pub fn write(path: &Path, schema: &ArraySchema, values: &[u8]) -> Result<()> {
    write_pending(path, schema, values, 3)?
        .commit(true)
        .map(drop)
}

pub fn read_stored(stored: &StoredArray) -> Result<Vec<u8>> {
    let ArraySchema { shape, element, .. } = stored.schema();
    let width = element.width();
    let disk = stored.disk_schema(24)?;
    let mut values = vec![0xa5; disk.bytes() as usize];
    for server in 0..2 {
        let medium = stored.target().open_read(&disk)?;
        for block in disk.blocks(server, 2) {
            let mut data = vec![0x5a; block.bytes as usize];
            medium.read(&block, &mut data)?;
            for (array, inside) in offsets(&block, shape, width) {
                let element = &data[inside..inside + width as usize];
                values[array..array + width as usize].copy_from_slice(element);
            }
        }
    }
    Ok(values)
}

pub fn read(path: &Path) -> Result<Vec<u8>> {
    read_stored(&StoredArray::open(path, None)?)
}

/// The files below a directory, with their bytes, to see that nothing has changed.
pub fn snapshot(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut below = vec![path.to_path_buf()];
    while let Some(at) = below.pop() {
        let name = at.strip_prefix(path).unwrap().display().to_string();
        if at.is_dir() {
            found.push((name, Vec::new()));
            below.extend(
                std::fs::read_dir(&at)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        } else {
            found.push((name, std::fs::read(&at).unwrap()));
        }
    }
    found.sort();
    found
}

/// A directory in memory if there is one: tests then wait for no disk.
pub fn place() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

/// A directory on a disk that has direct I/O.
pub fn disk_place() -> Option<tempfile::TempDir> {
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let probe = place.path().join("probe");
    let mut options = OpenOptions::new();
    options
        .write(true)
        .create(true)
        .custom_flags(libc::O_DIRECT);
    let opened = options.open(&probe);
    let in_memory = rustix::fs::statfs(place.path()).unwrap().f_type == libc::TMPFS_MAGIC;
    if opened.is_err() || in_memory {
        eprintln!("no direct I/O in {}: not tested", place.path().display());
        return None;
    }
    std::fs::remove_file(probe).unwrap();
    Some(place)
}

/// The processor seconds of a clock.
pub fn cpu_seconds(clock: libc::clockid_t) -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call fills the given time, which lives for the length of the call.
    assert_eq!(unsafe { libc::clock_gettime(clock, &mut time) }, 0);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The variable that names the only test of a process.
pub const ALONE: &str = "PENSTOCK_TEST_ALONE";

/// Runs a test, by its full name, in a process of its own: it looks at the whole process, and in
/// this one other tests run.
pub fn in_own_process(test: &str, body: impl FnOnce()) {
    if std::env::var(ALONE).is_ok_and(|alone| alone == test) {
        return body();
    }
    let mut process = std::process::Command::new(std::env::current_exe().unwrap());
    process.args(["--exact", test, "--nocapture"]);
    let ended = process.env(ALONE, test).status().unwrap();
    assert!(ended.success(), "{test} fails in its process");
}
