//! One body of tests for [`Medium`], run on every form of an array and through every wrapper.
//!
//! What a medium should hold is told by a naive model: the bytes of each block.

use crate::cases;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::cases::Chance;
use crate::common::*;
use penstock_arrays::calls::settings::SessionOptions;
use penstock_arrays::groups::verify;
use penstock_arrays::testing::Faults;
use penstock_arrays::{
    ArraySchema, ElementType, Fill, Keys, Pending, Storage, StoredArray, Target,
};
use penstock_engine::Kind;
use penstock_layout::{Block, DiskSchema, Split};
use penstock_machines::Medium;

/// What is done with a medium while it is open for writing.
const ACTS: usize = 120;

/// What is put around the medium of a form, from the inside out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrapper {
    /// Faults that no operation meets.
    Faults,
    /// Blocks of the fill value are left out. Each block is to be written once.
    LeavesOut,
    /// Checksums are made of what is written, and compared when it is read.
    Sums,
}

use Wrapper::{Faults as Faulty, LeavesOut, Sums};

/// Every wrapper, and wrappers on wrappers.
const WRAPPINGS: [&[Wrapper]; 8] = [
    &[],
    &[Faulty],
    &[Sums],
    &[LeavesOut],
    &[Sums, Faulty],
    &[LeavesOut, Sums],
    &[LeavesOut, Faulty, Faulty],
    &[LeavesOut, Sums, Faulty, Faulty],
];

/// A medium as a server has it, with what should be in it.
struct Case {
    medium: Arc<dyn Medium>,
    blocks: Vec<Block>,
    schema: ArraySchema,
    disk: DiskSchema,
    model: BTreeMap<(u64, u64), Vec<u8>>,
    chance: Chance,
    /// What is said when something is wrong.
    about: String,
}

/// Puts faults around a medium, as often as the wrapping says.
fn around(
    mut medium: Arc<dyn Medium>,
    wrapping: &[Wrapper],
    target: &Target,
    disk: &DiskSchema,
) -> Arc<dyn Medium> {
    let faults = Faults {
        bytes_per_second: Some(1e12),
        ..Faults::default()
    };
    for _ in wrapping.iter().filter(|&&wrapper| wrapper == Faulty) {
        medium = faults.around(medium, target, disk).unwrap();
    }
    medium
}

/// Whether an array is written to a bucket.
fn is_in_bucket(pending: &Pending) -> bool {
    let about = format!("{:?}", pending.target());
    about.contains("memory://")
}

/// The sums that a medium has made.
fn sums_of(medium: &dyn Medium) -> Vec<(u64, u32)> {
    let digests = medium.digests().into_iter();
    digests
        .map(|digest| (digest.object, digest.crc32c))
        .collect()
}

/// The sums of all objects; some are known.
fn known(disk: &DiskSchema, sums: &[(u64, u32)]) -> Vec<Option<u32>> {
    let mut known = vec![None; disk.objects() as usize];
    let some = sums.iter();
    some.for_each(|&(object, sum)| known[object as usize] = Some(sum));
    known
}

impl Case {
    /// A medium that is open for writing.
    fn write(pending: &Pending, schema: &ArraySchema, wrapping: &[Wrapper], seed: u64) -> Self {
        let mut disk = schema.disk_schema(20).unwrap();
        if is_in_bucket(pending) {
            disk = disk.split(Split::Whole).unwrap(); // as a call writes it
        }
        let mut target = pending.target().clone();
        if wrapping.contains(&LeavesOut) {
            target = target.leaving_out(schema.fill.element(&schema.element));
        }
        if wrapping.contains(&Sums) {
            target = target.with_sums();
        }
        let medium = target.open_write(&disk).unwrap();
        Self {
            medium: around(medium, wrapping, &target, &disk),
            blocks: disk.blocks(0, 1).collect(),
            schema: schema.clone(),
            disk,
            model: BTreeMap::new(),
            chance: Chance(seed),
            about: format!("{:?} through {wrapping:?}", schema.disk),
        }
    }

    /// A medium that changes an array in place, in which nothing is written yet. Nothing is left
    /// out of such an array, and it has no sums, whatever the target says.
    fn update(path: &Path, schema: &ArraySchema, wrapping: &[Wrapper], seed: u64) -> Self {
        let disk = schema.disk_schema(20).unwrap();
        let mut target = StoredArray::open(path, None).unwrap().target().clone();
        if wrapping.contains(&LeavesOut) {
            target = target.leaving_out(schema.fill.element(&schema.element));
        }
        if wrapping.contains(&Sums) {
            target = target.with_sums();
        }
        let medium = target.open_update(&disk).unwrap();
        Self {
            medium: around(medium, wrapping, &target, &disk),
            blocks: disk.blocks(0, 1).collect(),
            schema: schema.clone(),
            disk,
            model: BTreeMap::new(),
            chance: Chance(seed),
            about: format!("{:?} in place, through {wrapping:?}", schema.disk),
        }
    }

    /// What was written, opened for reading.
    fn read(self, path: &Path, wrapping: &[Wrapper], sums: &[(u64, u32)]) -> Self {
        let stored = StoredArray::open(path, None).unwrap();
        let mut target = stored.target().clone();
        if wrapping.contains(&Sums) {
            target = target.checked_by(known(&self.disk, sums));
        }
        let medium = target.open_read(&self.disk).unwrap();
        let medium = around(medium, wrapping, &target, &self.disk);
        Self { medium, ..self }
    }

    /// Opens what was written bare and wrapped, to tell positions, and gives the number of blocks
    /// of known positions. The wrapped medium knows what the bare one knows.
    fn positions(self, path: &Path, wrapping: &[Wrapper], sums: &[(u64, u32)]) -> usize {
        let stored = StoredArray::open(path, None).unwrap();
        let bare = stored.target().clone();
        let bare = bare.with_direct(true).telling_positions(true);
        let target = match wrapping.contains(&Sums) {
            true => bare.clone().checked_by(known(&self.disk, sums)),
            false => bare.clone(),
        };
        let bare = bare.open_read(&self.disk).unwrap();
        let wrapped = target.open_read(&self.disk).unwrap();
        let wrapped = around(wrapped, wrapping, &target, &self.disk);
        assert_eq!(wrapped.is_in_order(), bare.is_in_order());
        let knows = |block: &&Block| {
            let mut data = vec![0; block.bytes as usize];
            for medium in [&wrapped, &bare] {
                medium.read(block, &mut data).unwrap();
            }
            let position = bare.position(block);
            assert_eq!(wrapped.position(block), position, "{}", self.about);
            position.is_some()
        };
        self.blocks.iter().filter(knows).count()
    }

    fn fill(&self, bytes: u64) -> Vec<u8> {
        let element = self.schema.fill.element(&self.schema.element);
        element.repeat(bytes as usize / element.len())
    }

    /// Some block, and some of its bytes: an offset and a length, of whole elements.
    fn some(&mut self) -> (Block, usize, usize) {
        let nth = self.chance.below(self.blocks.len() as u64) as usize;
        let block = self.blocks[nth].clone();
        let width = self.schema.element.width();
        let elements = block.bytes / width;
        let start = self.chance.below(elements);
        let count = 1 + self.chance.below(elements - start);
        (block, (start * width) as usize, (count * width) as usize)
    }

    fn stored(&self, block: &Block) -> Vec<u8> {
        let written = self.model.get(&(block.object, block.offset)).cloned();
        written.unwrap_or_else(|| self.fill(block.bytes))
    }

    /// A block's elements, now and then all of the fill value; its padding is of that always.
    fn data(&mut self, block: &Block) -> Vec<u8> {
        let seed = self.chance.below(u64::MAX);
        let values = match seed % 4 {
            0 => self.fill(self.disk.bytes()),
            _ => values(&self.schema, seed),
        };
        let mut data = self.fill(block.bytes);
        let held = gather(
            block,
            &values,
            &self.schema.shape,
            self.schema.element.width(),
        );
        let inside = gather(
            block,
            &vec![1; values.len()],
            &self.schema.shape,
            self.schema.element.width(),
        );
        let elements = data.iter_mut().zip(held).zip(inside);
        elements
            .filter(|(_, inside)| *inside == 1)
            .for_each(|((to, from), _)| *to = from);
        data
    }

    fn write_block(&mut self, block: &Block) {
        let data = self.data(block);
        self.medium.write(block, &data).unwrap();
        self.model.insert((block.object, block.offset), data);
    }

    fn read_block(&self, block: &Block) {
        let mut data = vec![0x5a; block.bytes as usize];
        self.medium.read(block, &mut data).unwrap();
        assert!(data == self.stored(block), "{}: {block:?}", self.about);
    }

    /// Where parts cannot be moved by themselves, that is said, and the block stays what it is.
    fn write_part(&mut self) {
        let (block, offset, length) = self.some();
        let data = self.data(&block)[offset..offset + length].to_vec();
        let written = self.medium.write_part(&block, offset as u64, &data);
        if !self.medium.moves_parts() {
            return assert_eq!(
                written.unwrap_err().kind,
                Kind::Unsupported,
                "{}",
                self.about
            );
        }
        written.unwrap();
        let mut stored = self.stored(&block);
        stored[offset..offset + length].copy_from_slice(&data);
        self.model.insert((block.object, block.offset), stored);
    }

    fn read_part(&mut self) {
        let (block, offset, length) = self.some();
        let mut data = vec![0x5a; length];
        match self.medium.read_part(&block, offset as u64, &mut data) {
            Ok(()) => assert!(
                data == self.stored(&block)[offset..offset + length],
                "{}",
                self.about
            ),
            Err(error) => {
                assert!(!self.medium.moves_parts(), "{}: {error}", self.about);
                assert_eq!(error.kind, Kind::Unsupported, "{}", self.about);
            }
        }
    }

    /// Writes and reads at random. Where each block is to be written once, some stay unwritten.
    fn act(&mut self, writes_again: bool) {
        for _ in 0..ACTS {
            let (block, ..) = self.some();
            let is_new = !self.model.contains_key(&(block.object, block.offset));
            match self.chance.below(5) {
                0 | 1 if is_new || writes_again => self.write_block(&block),
                2 if writes_again => self.write_part(),
                3 => self.read_part(),
                _ => self.read_block(&block),
            }
        }
    }

    /// The checksum of each object that was written, of all its bytes.
    fn sums(&self) -> Vec<(u64, u32)> {
        let mut objects = BTreeMap::new();
        for (&(object, offset), data) in &self.model {
            let bytes = objects
                .entry(object)
                .or_insert_with(|| self.fill(self.disk.object_bytes(object)));
            bytes[offset as usize..offset as usize + data.len()].copy_from_slice(data);
        }
        let sum = |(object, bytes): (u64, Vec<u8>)| (object, crc32c::crc32c(&bytes));
        objects.into_iter().map(sum).collect()
    }

    /// Everything is there, in any order and twice; and nothing can be written.
    fn look(&mut self) {
        let mut blocks = self.blocks.clone();
        blocks.sort_by_key(|block| (block.object * 31 + block.index * 17 + 5) % 23);
        for block in self.blocks.iter().chain(&blocks) {
            self.read_block(block);
        }
        for _ in 0..ACTS / 4 {
            self.read_part();
        }
        let (block, offset, length) = self.some();
        self.medium
            .write(&block, &vec![1; block.bytes as usize])
            .unwrap_err();
        self.medium
            .write_part(&block, offset as u64, &vec![1; length])
            .unwrap_err();
        self.read_block(&block);
        self.medium.finish(true).unwrap();
        assert!(self.medium.digests().is_empty(), "{}", self.about);
    }
}

/// Writes an array through a wrapping, and reads it through another.
fn run(path: &Path, schema: &ArraySchema, wrapping: &[Wrapper], seed: u64) {
    let pending = Pending::create(path, schema, Keys::Nested).unwrap();
    let mut case = Case::write(&pending, schema, wrapping, seed);
    let writes_again = !wrapping.contains(&LeavesOut);
    assert!(!wrapping.contains(&Sums) || !case.medium.moves_parts());
    case.act(writes_again);
    case.medium.finish(seed.is_multiple_of(2)).unwrap();
    let sums = sums_of(&*case.medium);
    match wrapping.contains(&Sums) {
        true => assert_eq!(sums, case.sums(), "{}", case.about),
        false => assert!(sums.is_empty(), "nobody asked for sums: {}", case.about),
    }
    pending.commit(true).unwrap();
    case.read(path, wrapping, &sums).look();
}

/// Changes an array in place through a wrapping, and finishes that several times.
fn run_in_place(path: &Path, schema: &ArraySchema, wrapping: &[Wrapper], seed: u64) {
    let pending = Pending::create(path, schema, Keys::Nested).unwrap();
    pending.commit(true).unwrap();
    let mut case = Case::update(path, schema, wrapping, seed);
    for turn in 0..3 {
        case.act(true);
        case.medium.finish((turn + seed).is_multiple_of(2)).unwrap();
        assert!(case.medium.digests().is_empty(), "{}", case.about);
    }
    case.read(path, &[Faulty], &[]).look();
}

fn run_all(schemas: impl IntoIterator<Item = ArraySchema>) {
    let directory = place();
    run_all_in(directory.path(), schemas);
}

/// Runs all in a directory, or in a bucket.
fn run_all_in(place: &Path, schemas: impl IntoIterator<Item = ArraySchema>) {
    let mut seed = 0;
    for schema in schemas {
        for wrapping in WRAPPINGS {
            seed += 1;
            let path = place.join(seed.to_string());
            run(&path, &schema, wrapping, seed);
            let is_encoded_in_file = !schema.disk.writes_parts();
            if is_encoded_in_file && matches!(schema.disk, Storage::Hdf5 { .. }) {
                continue; // its chunks are not changed in place
            }
            let path = place.join(format!("{seed}-in-place"));
            run_in_place(&path, &schema, wrapping, seed);
        }
    }
}

#[test]
fn chunks_in_a_bucket_through_every_wrapper() {
    let schemas = chunked().map(|disk| schema(&[9, 7], ElementType::I2, disk));
    run_all_in(Path::new("memory://media"), schemas);
    run_all_in(Path::new("memory://media-filled"), filled_chunks());
}

/// Chunks of all layouts.
fn chunked() -> [Storage; 8] {
    [
        chunks(&[4, 6], None, "none"),
        chunks(&[4, 6], None, "zstd:1"),
        chunks(&[4, 6], Some(&[2, 3]), "none"),
        chunks(&[8, 12], Some(&[1, 2]), "zstd:1"),
        chunks(&[20, 20], Some(&[5, 4]), "crc32c"),
        listed(&[3, 4, 2], &[5, 2], None, "none"),
        listed(&[3, 4, 5], &[5, 9], None, "zstd:1"),
        listed(&[2, 4, 8], &[3, 9], Some(&[1, 3]), "crc32c"),
    ]
}

/// Arrays in these chunks, with a fill value.
fn filled_chunks() -> [ArraySchema; 8] {
    let fill = Fill::new(&ElementType::I2, &[3, 9]).unwrap();
    chunked().map(|disk| ArraySchema {
        fill: fill.clone(),
        ..schema(&[9, 7], ElementType::I2, disk)
    })
}

#[test]
fn every_form_through_every_wrapper() {
    run_all(
        forms()
            .into_iter()
            .map(|disk| schema(&[9, 7], ElementType::I4, disk)),
    );
}

#[test]
fn datasets_of_hdf5_files_through_every_wrapper() {
    let dataset = |chunk: Option<&[u64]>, filters: &str, is_netcdf| Storage::Hdf5 {
        dataset: String::new(),
        chunk: chunk.map(<[u64]>::to_vec),
        filters: filters.to_string(),
        is_netcdf,
    };
    let disks = [
        dataset(None, "none", false),
        dataset(Some(&[4, 3]), "none", true),
        dataset(Some(&[4, 3]), "shuffle+deflate:1+fletcher32", false),
        dataset(Some(&[9, 7]), "zstd:1", true),
    ];
    run_all(disks.map(|disk| schema(&[9, 7], ElementType::I4, disk)));
}

#[test]
fn positions_go_through_every_wrapper() {
    let Some(directory) = disk_place() else {
        return;
    };
    for (nth, disk) in forms().into_iter().enumerate() {
        let has_plain_files = match &disk {
            Storage::Chunks {
                subchunks, codec, ..
            } => subchunks.is_none() && codec == "none",
            _ => true,
        };
        let schema = schema(&[9, 7], ElementType::I4, disk);
        for (by, wrapping) in WRAPPINGS.into_iter().enumerate() {
            let path = directory.path().join(format!("{nth}-{by}"));
            let pending = Pending::create(&path, &schema, Keys::Nested).unwrap();
            let mut case = Case::write(&pending, &schema, wrapping, 1);
            for block in case.blocks.clone() {
                case.write_block(&block);
            }
            case.medium.finish(true).unwrap();
            let sums = sums_of(&*case.medium);
            pending.commit(true).unwrap();
            match case.positions(&path, wrapping, &sums) {
                0 if has_plain_files => println!("no positions of {:?} here", schema.disk),
                known => assert_eq!(known > 0, has_plain_files, "{:?}", schema.disk),
            }
        }
    }
}

/// What is never written is the fill value, also in checksums, and sub-chunks of padding alone are.
#[test]
fn chunks_with_a_fill_value_through_every_wrapper() {
    run_all(filled_chunks());
}

#[test]
fn every_shape_through_every_wrapper() {
    let shapes: [&[u64]; 3] = [&[], &[13], &[3, 4, 5]];
    let schemas = shapes.into_iter().flat_map(|shape| {
        let (dims, twos, fours) = (shape.len(), vec![2; shape.len()], vec![4; shape.len()]);
        let disks = [
            flat(penstock_arrays::Format::Raw),
            parts(&vec!["BLOCK"; dims].join(","), &vec![3; dims]),
            chunks(&twos, None, "none"),
            chunks(&fours, None, "zstd"),
            chunks(&fours, Some(&twos), "blosc+crc32c"),
        ];
        disks.map(|disk| schema(shape, ElementType::F8, disk))
    });
    run_all(schemas);
}

/// Padding that lies in no block is of the fill value, in the checksums that were made as in those
/// with which they are compared.
#[test]
fn a_group_with_a_fill_value_is_what_its_checksums_say() {
    let directory = place();
    let options = SessionOptions {
        block_bytes: 20,
        ..SessionOptions::default()
    };
    for (at, disk) in [
        chunks(&[4, 6], None, "none"),
        chunks(&[20, 20], Some(&[5, 4]), "none"),
        chunks(&[8, 12], Some(&[1, 2]), "zstd:1"),
        listed(&[3, 4, 5], &[5, 9], None, "none"),
        listed(&[3, 4, 5], &[5, 9], None, "zstd:1"),
        listed(&[2, 4, 8], &[3, 9], Some(&[1, 3]), "zstd:1"),
    ]
    .into_iter()
    .enumerate()
    {
        let path = directory.path().join(at.to_string());
        let array = ArraySchema {
            fill: Fill::new(&ElementType::I2, &[3, 9]).unwrap(),
            ..schema(&[9, 7], ElementType::I2, disk)
        };
        let saved = cases::save_group(&path, &array, &options);
        let verified = verify(&path, &mut |_| Ok(())).unwrap();
        assert!(verified.damages.is_empty(), "{:?}", verified.damages);
        let all_well = cases::on_threads(1, &options, |session| {
            let found = session.find_checkpoint(&path, None).unwrap().unwrap();
            let group = cases::group_of_one(&path, &array);
            let (bytes, locals) = cases::local_arrays(&group.arrays[0], 0, false);
            session.restart(&found, &group, vec![locals]).unwrap();
            assert!(bytes.concat() == saved);
        });
        assert!(all_well);
    }
}
