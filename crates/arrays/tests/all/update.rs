//! Arrays are changed in place, block by block, by servers that keep them open: against a naive
//! model, the bytes of each block.

use crate::cases;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cases::Chance;
use crate::common::*;
use penstock_arrays::calls::settings::SessionOptions;
use penstock_arrays::{
    ArraySchema, ByteOrder, ElementType, Fill, Format, Keys, Pending, StoredArray, StoredElement,
    npy,
};
use penstock_engine::Kind;
use penstock_layout::{Block, DiskSchema};
use penstock_machines::Medium;
use serde_json::{Value, json};

/// What is done with an array.
const ACTS: usize = 300;
/// The servers that have the array open.
const SERVERS: usize = 3;
/// The most bytes of a block, where the store leaves a choice.
const BLOCK_BYTES: u64 = 20;

/// An array that servers have open, with what should be in it.
struct Case {
    path: PathBuf,
    media: Vec<Arc<dyn Medium>>,
    disk: DiskSchema,
    /// The blocks of each server.
    blocks: Vec<Vec<Block>>,
    model: BTreeMap<(u64, u64), Vec<u8>>,
    chance: Chance,
    is_direct: bool,
}

impl Case {
    fn new(path: &Path, seed: u64) -> Self {
        Self::with(path, seed, false)
    }

    fn with(path: &Path, seed: u64, is_direct: bool) -> Self {
        let stored = StoredArray::open(path, None).unwrap();
        let disk = stored.disk_schema(BLOCK_BYTES).unwrap();
        let servers = 0..SERVERS;
        let blocks = servers.map(|server| disk.blocks(server, SERVERS).collect());
        let mut case = Self {
            path: path.to_path_buf(),
            media: Vec::new(),
            blocks: blocks.collect(),
            disk,
            model: BTreeMap::new(),
            chance: Chance(seed),
            is_direct,
        };
        case.model = case.stored();
        case.media = (0..SERVERS).map(|server| case.open(server)).collect();
        case
    }

    fn open(&self, server: usize) -> Arc<dyn Medium> {
        let stored = StoredArray::open(&self.path, None).unwrap();
        let target = stored.target().clone().for_server(server, SERVERS);
        let target = target.with_direct(self.is_direct).with_sync(true);
        target.open_update(&self.disk).unwrap()
    }

    /// What a reader finds in each block.
    fn stored(&self) -> BTreeMap<(u64, u64), Vec<u8>> {
        let stored = StoredArray::open(&self.path, None).unwrap();
        let medium = stored.target().open_read(&self.disk).unwrap();
        let mut found = BTreeMap::new();
        for block in self.disk.blocks(0, 1) {
            let mut data = vec![0x5a; block.bytes as usize];
            medium.read(&block, &mut data).unwrap();
            found.insert(key(&block), data);
        }
        found
    }

    /// Some block of a server, and some of its bytes: an offset and a length, of whole elements.
    fn some(&mut self, server: usize) -> Option<(Block, usize, usize)> {
        let blocks = &self.blocks[server];
        let nth = self.chance.below(blocks.len() as u64) as usize;
        let block = blocks.get(nth)?.clone();
        let width = self.disk.width();
        let elements = block.bytes / width;
        let start = self.chance.below(elements);
        let count = 1 + self.chance.below(elements - start);
        Some((block, (start * width) as usize, (count * width) as usize))
    }

    fn data(&mut self, bytes: usize) -> Vec<u8> {
        match self.chance.below(5) {
            0 => vec![0; bytes],
            _ => (0..bytes).map(|_| self.chance.below(256) as u8).collect(),
        }
    }

    fn read(&self, server: usize, block: &Block) {
        let mut data = vec![0x5a; block.bytes as usize];
        self.media[server].read(block, &mut data).unwrap();
        assert_eq!(
            data,
            self.model[&key(block)],
            "{} {block:?}",
            self.path.display()
        );
    }

    fn write(&mut self, server: usize, block: &Block) {
        let data = self.data(block.bytes as usize);
        self.media[server].write(block, &data).unwrap();
        self.model.insert(key(block), data);
    }

    fn move_part(&mut self, server: usize, (block, offset, length): (Block, usize, usize)) {
        let medium = self.media[server].clone();
        let (data, at) = (self.data(length), offset as u64);
        if !medium.moves_parts() {
            let refused = medium.write_part(&block, at, &data).unwrap_err();
            assert_eq!(refused.kind, Kind::Unsupported);
            let refused = medium.read_part(&block, at, &mut vec![0; length]);
            return assert_eq!(refused.unwrap_err().kind, Kind::Unsupported);
        }
        let mut back = vec![0x5a; length];
        medium.read_part(&block, at, &mut back).unwrap();
        let whole = self.model.get_mut(&key(&block)).unwrap();
        assert_eq!(back, whole[offset..offset + length]);
        medium.write_part(&block, at, &data).unwrap();
        whole[offset..offset + length].copy_from_slice(&data);
    }

    fn act(&mut self) {
        let server = self.chance.below(SERVERS as u64) as usize;
        match (self.chance.below(20), self.some(server)) {
            (0..2, _) => {
                let is_synced = self.chance.below(2) == 0;
                self.media[server].finish(is_synced).unwrap();
                assert!(self.media[server].digests().is_empty());
            }
            (2, _) => {
                self.media[server].finish(true).unwrap();
                self.media[server] = self.open(server);
            }
            (3..9, Some((block, ..))) => self.write(server, &block),
            (9..14, Some(part)) => self.move_part(server, part),
            (_, Some((block, ..))) => self.read(server, &block),
            (_, None) => {}
        }
    }

    /// Everything is there, for readers too, and nothing else.
    fn look(&self) {
        for (server, medium) in self.media.iter().enumerate() {
            medium.finish(server == 1).unwrap();
        }
        for (server, blocks) in self.blocks.iter().enumerate() {
            blocks.iter().for_each(|block| self.read(server, block));
        }
        assert!(self.stored() == self.model, "{}", self.path.display());
        check_tidy(self.path.parent().unwrap());
    }

    fn run(mut self) {
        for turn in 0..3 {
            for _ in 0..ACTS / 3 {
                self.act();
            }
            if turn < 2 {
                self.look();
            }
        }
        self.look();
    }
}

fn key(block: &Block) -> (u64, u64) {
    (block.object, block.offset)
}

/// No temporaries are below a directory.
fn check_tidy(directory: &Path) {
    for (name, _) in snapshot(directory) {
        assert!(
            !name.contains(".penstock") && !name.contains(".next"),
            "{name}"
        );
    }
}

/// An array with about half of its blocks written.
fn begin(path: &Path, schema: &ArraySchema, servers: Option<usize>) {
    let pending = match servers {
        None => Pending::create(path, schema, Keys::Nested),
        Some(servers) => Pending::create_spread(path, schema, servers),
    };
    let pending = pending.unwrap();
    let disk = schema.disk_schema(BLOCK_BYTES).unwrap();
    let all = servers.unwrap_or(1);
    for server in 0..all {
        let target = pending.target().clone().for_server(server, all);
        let medium = target.open_write(&disk).unwrap();
        for block in disk
            .blocks(server, all)
            .filter(|block| block.object % 2 == 0)
        {
            let data = gather(
                &block,
                &values(schema, 1),
                &schema.shape,
                schema.element.width(),
            );
            medium.write(&block, &data).unwrap();
        }
        medium.finish(true).unwrap();
    }
    pending.commit(true).unwrap();
}

/// Changes metadata of an array without chunks, or of zeros, into those of another form.
fn rewrite(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut json: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    change(&mut json);
    std::fs::write(path, json.to_string()).unwrap();
}

fn path_in(place: &tempfile::TempDir, name: usize) -> PathBuf {
    let directory = place.path().join(name.to_string());
    std::fs::create_dir(&directory).unwrap();
    directory.join("x")
}

#[test]
fn every_form() {
    let place = place();
    for (at, disk) in forms().into_iter().enumerate() {
        let path = path_in(&place, at);
        let schema = schema(&[9, 7], ElementType::I4, disk);
        begin(&path, &schema, None);
        Case::new(&path, at as u64).run();
    }
}

#[test]
fn every_shape_and_a_fill_value() {
    let place = place();
    let shapes: [&[u64]; 4] = [&[], &[13], &[3, 4, 5], &[0, 3]];
    let mut number = 0;
    for shape in shapes {
        let (twos, fours) = (vec![2; shape.len()], vec![4; shape.len()]);
        for disk in [
            flat(Format::Raw),
            flat(Format::Npy),
            parts(&vec!["BLOCK"; shape.len()].join(","), &vec![3; shape.len()]),
            chunks(&twos, None, "none"),
            chunks(&fours, None, "none"),
            chunks(&fours, None, "zstd"),
            chunks(&fours, Some(&twos), "blosc+crc32c"),
        ] {
            for element in [ElementType::I2, ElementType::C16] {
                number += 1;
                let path = path_in(&place, number);
                let bytes: Vec<u8> = (1..=element.width() as u8).collect();
                let mut schema = schema(shape, element.clone(), disk.clone());
                schema.fill = Fill::new(&element, &bytes).unwrap();
                begin(&path, &schema, None);
                Case::new(&path, number as u64).run();
            }
        }
    }
}

#[test]
fn arrays_that_are_spread() {
    let place = place();
    for (at, disk) in [
        chunks(&[2, 3], None, "none"),
        chunks(&[2, 3], None, "zstd"),
        chunks(&[4, 4], Some(&[2, 2]), "crc32c"),
        parts("BLOCK,*", &[4]),
    ]
    .into_iter()
    .enumerate()
    {
        let directory = place.path().join(at.to_string());
        std::fs::create_dir(&directory).unwrap();
        let path = directory.join("{server}-x");
        let schema = schema(&[9, 7], ElementType::F8, disk);
        begin(&path, &schema, Some(SERVERS));
        Case::new(&path, at as u64).run();
        let stored = StoredArray::open(&path, None).unwrap();
        let disk = stored.disk_schema(BLOCK_BYTES).unwrap();
        for servers in [1, SERVERS - 1, SERVERS + 1] {
            let target = stored.target().clone().for_server(0, servers);
            let refused = target.open_update(&disk).err().unwrap();
            assert_eq!(refused.kind, Kind::Schema, "{refused}");
        }
    }
}

/// What Penstock does not write by itself: the other byte order, shards that begin with their
/// index, columns first.
#[test]
fn forms_of_others() {
    let place = place();
    let swapped = json!({ "name": "bytes", "configuration": { "endian": "big" } });
    let columns = json!({ "name": "transpose", "configuration": { "order": [1, 0] } });
    let fill = Fill::new(&ElementType::C8, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    for at in 0..6 {
        let disk = match at {
            0..3 => chunks(&[4, 3], None, "none"),
            _ => chunks(&[4, 6], Some(&[2, 3]), "none"),
        };
        let schema = ArraySchema {
            fill: fill.clone(),
            ..schema(&[9, 7], ElementType::C8, disk)
        };
        let path = path_in(&place, at);
        Pending::create(&path, &schema, Keys::Nested)
            .unwrap()
            .commit(true)
            .unwrap();
        rewrite(&path.join("u/zarr.json"), |json| match at {
            0 => json["codecs"][0] = swapped.clone(),
            1 => json["codecs"] = json!([columns, swapped]),
            2 => json["codecs"] = json!([swapped, { "name": "crc32c" }]),
            3 => json["codecs"][0]["configuration"]["index_location"] = "start".into(),
            4 => json["codecs"][0]["configuration"]["codecs"] = json!([swapped]),
            _ => {
                json["codecs"][0]["configuration"]["index_location"] = "start".into();
                json["codecs"][0]["configuration"]["codecs"] = json!([columns, "bytes"]);
                json["codecs"][0]["configuration"]["codecs"][1] = swapped.clone();
            }
        });
        std::fs::remove_file(path.join("zarr.json")).unwrap(); // its consolidated metadata
        Case::new(&path.join("u"), at as u64).run();
    }
}

#[test]
fn files_of_others() {
    let place = place();
    for (at, disk) in [flat(Format::Raw), parts("*,BLOCK", &[3])]
        .into_iter()
        .enumerate()
    {
        let path = path_in(&place, at);
        let schema = schema(&[9, 7], ElementType::C8, disk);
        Pending::create(&path, &schema, Keys::Nested)
            .unwrap()
            .commit(true)
            .unwrap();
        let sidecar = match at {
            0 => path.with_extension("json"),
            _ => path.join("schema.json"),
        };
        rewrite(&sidecar, |json| json["byte_order"] = "big".into());
        Case::new(&path, at as u64).run();
    }
    for (at, (order, fortran)) in [
        (ByteOrder::Big, false),
        (ByteOrder::Little, true),
        (ByteOrder::Big, true),
    ]
    .into_iter()
    .enumerate()
    {
        let path = path_in(&place, 10 + at);
        let header = npy::Header {
            shape: vec![9, 7],
            element: StoredElement::of(&ElementType::I4, order),
            fortran,
        };
        let mut file = header.encode();
        file.extend((0..9 * 7 * 4).map(|byte| byte as u8));
        std::fs::write(&path, file).unwrap();
        Case::new(&path, at as u64).run();
    }
}

#[test]
fn around_the_page_cache() {
    let Some(place) = disk_place() else {
        return;
    };
    for (at, disk) in [
        flat(Format::Raw),
        parts("BLOCK,*", &[2]),
        chunks(&[40, 60], None, "none"),
    ]
    .into_iter()
    .enumerate()
    {
        let path = path_in(&place, at);
        let mut schema = schema(&[90, 70], ElementType::F8, disk);
        schema.fill = Fill::new(&ElementType::F8, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        begin(&path, &schema, None);
        let mut case = Case::with(&path, at as u64, true);
        case.disk = StoredArray::open(&path, None)
            .unwrap()
            .disk_schema(9000)
            .unwrap();
        let servers = 0..SERVERS;
        case.blocks = servers
            .map(|server| case.disk.blocks(server, SERVERS).collect())
            .collect();
        case.media = (0..SERVERS).map(|server| case.open(server)).collect();
        case.model = case.stored();
        case.run();
    }
}

/// Sub-chunks are kept up to a bound: then shards are written anew, several times before a finish,
/// and are in their places only after it. The files are those of the collective writer.
#[test]
fn more_sub_chunks_than_are_kept() {
    const MIB: u64 = 1 << 20;
    let place = place();
    let schema = schema(
        &[72 * MIB],
        ElementType::U1,
        chunks(&[8 * MIB], Some(&[MIB]), "none"),
    );
    let disk = schema.disk_schema(1).unwrap();
    let paths = ["expected", "x"].map(|name| place.path().join(name));
    let data = |block: &Block, seed: u64| {
        vec![(block.object * 8 + block.index + seed) as u8; MIB as usize]
    };
    let pending = paths.each_ref().map(|path| {
        std::fs::create_dir(path).unwrap();
        Pending::create(&path.join("x"), &schema, Keys::Nested).unwrap()
    });
    let medium = pending[0].target().open_write(&disk).unwrap();
    for block in disk.blocks(0, 1) {
        medium.write(&block, &data(&block, 3)).unwrap();
    }
    medium.finish(false).unwrap();
    for pending in pending {
        pending.commit(true).unwrap();
    }
    let stored = StoredArray::open(&paths[1].join("x"), None).unwrap();
    let medium = stored.target().open_update(&disk).unwrap();
    let mut order: Vec<Block> = disk.blocks(0, 1).collect();
    order.sort_by_key(|block| (block.index * 5 + block.object * 3) % 7);
    for seed in [7, 3] {
        for block in &order {
            medium.write(block, &data(block, seed)).unwrap();
        }
        assert!(seed == 3 || !paths[1].join("x/u/c/0").exists());
        for block in &order {
            let mut back = vec![0; MIB as usize];
            medium.read(block, &mut back).unwrap();
            assert!(back == data(block, seed), "{block:?}");
        }
    }
    medium.finish(false).unwrap();
    assert!(snapshot(&paths[1]) == snapshot(&paths[0]));
}

/// A chunk whose file is that of another array, too, gets a file of its own when it is changed; a
/// part is refused.
#[test]
fn files_of_two_arrays() {
    let place = place();
    for (at, codec) in ["none", "zstd"].into_iter().enumerate() {
        let path = path_in(&place, at);
        begin(
            &path,
            &schema(&[9, 7], ElementType::I4, chunks(&[4, 3], None, codec)),
            None,
        );
        let chunk = path.join("u/c/0/0");
        let before = std::fs::read(&chunk).unwrap();
        let other = place.path().join("other");
        std::fs::hard_link(&chunk, &other).unwrap();
        Case::new(&path, at as u64).run();
        assert!(std::fs::read(&other).unwrap() == before);
        assert!(std::fs::read(&chunk).unwrap() != before);
        std::fs::remove_file(&other).unwrap();
    }
    let path = path_in(&place, 7);
    begin(
        &path,
        &schema(&[9, 7], ElementType::I4, parts("BLOCK,*", &[3])),
        None,
    );
    std::fs::hard_link(path.join("u.0000"), place.path().join("other")).unwrap();
    let stored = StoredArray::open(&path, None).unwrap();
    let disk = stored.disk_schema(BLOCK_BYTES).unwrap();
    let medium = stored.target().open_update(&disk).unwrap();
    let block = disk.blocks(0, 1).next().unwrap();
    let refused = medium
        .write(&block, &vec![1; block.bytes as usize])
        .unwrap_err();
    assert_eq!(refused.kind, Kind::Unsupported, "{refused}");
}

/// What a killed process has left aside goes when the array is opened to be changed again, also by
/// fewer servers, and when it is written in another way; what another server has aside stays.
#[test]
fn remains_are_removed() {
    let place = place();
    let path = path_in(&place, 0);
    let schema = schema(&[9, 7], ElementType::I4, chunks(&[4, 3], None, "zstd"));
    begin(&path, &schema, None);
    let left = |server: usize| path.join(format!("u/.penstock-new-{server}"));
    let leave = |server: usize| {
        std::fs::create_dir_all(left(server)).unwrap();
        std::fs::write(left(server).join("c.0.0"), "torn").unwrap();
    };
    (0..5).for_each(leave);
    let case = Case::new(&path, 1);
    check_tidy(&path);
    leave(1);
    let stored = StoredArray::open(&path, None).unwrap();
    let target = stored.target().clone().for_server(0, 2);
    drop(target.open_update(&case.disk).unwrap());
    assert!(left(1).exists());
    let pending = Pending::change(&path, &stored).unwrap();
    pending.commit(true).unwrap();
    check_tidy(place.path());
    drop(case);
}

/// An error ends the medium: what comes after it fails in the same way, and what was finished is
/// there.
#[test]
fn after_an_error_the_array_must_be_opened_again() {
    let place = place();
    for (at, disk) in [
        chunks(&[4, 3], None, "none"),
        chunks(&[4, 3], None, "zstd"),
        chunks(&[4, 6], Some(&[2, 3]), "none"),
    ]
    .into_iter()
    .enumerate()
    {
        let path = path_in(&place, at);
        begin(&path, &schema(&[9, 7], ElementType::I4, disk), None);
        let mut case = Case::new(&path, at as u64);
        let (block, ..) = case.some(1).unwrap();
        // Nothing can be written aside where a file is in the way.
        let aside = path.join("u/.penstock-new-1");
        std::fs::write(&aside, "in the way").unwrap();
        let chunk = case.blocks[1]
            .iter()
            .find(|block| block.object % 2 == 1)
            .unwrap()
            .clone();
        let data = vec![1; chunk.bytes as usize];
        let written = case.media[1].write(&chunk, &data);
        let error = written
            .and_then(|()| case.media[1].finish(true))
            .unwrap_err();
        std::fs::remove_file(&aside).unwrap();
        assert_eq!(case.media[1].finish(true).unwrap_err(), error);
        assert_eq!(case.media[1].write(&chunk, &data).unwrap_err(), error);
        let mut back = vec![0; block.bytes as usize];
        assert_eq!(case.media[1].read(&block, &mut back).unwrap_err(), error);
        case.media[1] = case.open(1);
        case.run();
    }
}

#[test]
fn what_is_refused() {
    let place = place();
    let path = path_in(&place, 0);
    let array = schema(&[9, 7], ElementType::I4, chunks(&[4, 3], None, "none"));
    cases::save_group(&path, &array, &SessionOptions::default());
    let catalog = penstock_arrays::groups::Catalog::read(&path)
        .unwrap()
        .unwrap();
    assert_eq!(catalog.checkpoints.len(), 1);
    for saved in [path.clone(), path.join("checkpoints/1")] {
        let stored = StoredArray::open(&saved, Some("u")).unwrap();
        let refused = stored.updatable(&saved).err().unwrap();
        assert_eq!(refused.kind, Kind::Schema, "{refused}");
    }
    let path = path_in(&place, 1);
    std::fs::create_dir(&path).unwrap();
    let second = json!({
        "zarr_format": 2, "shape": [9, 7], "chunks": [4, 3], "dtype": "<i4", "compressor": null,
        "fill_value": 0, "order": "C", "filters": null,
    });
    std::fs::write(path.join(".zarray"), second.to_string()).unwrap();
    let stored = StoredArray::open(&path, None).unwrap();
    let refused = stored.updatable(&path).err().unwrap();
    assert_eq!(refused.kind, Kind::Unsupported, "{refused}");
    let disk = stored.disk_schema(BLOCK_BYTES).unwrap();
    let refused = stored.target().open_update(&disk).err().unwrap();
    assert_eq!(refused.kind, Kind::Unsupported, "{refused}");
}

/// While an array is open to be changed, nobody else writes it; others are none of its concern.
#[test]
fn one_at_a_time() {
    let place = place();
    for (at, disk) in [
        chunks(&[4, 3], None, "none"),
        flat(Format::Raw),
        flat(Format::Npy),
        parts("BLOCK,*", &[3]),
    ]
    .into_iter()
    .enumerate()
    {
        let path = path_in(&place, at);
        let array = schema(&[9, 7], ElementType::I4, disk);
        begin(&path, &array, None);
        let before = snapshot(path.parent().unwrap());
        let stored = StoredArray::open(&path, None).unwrap();
        let updatable = stored.updatable(&path).unwrap();
        let busy = [
            stored.updatable(&path).err(),
            Pending::change(&path, &stored).err(),
            Pending::create(&path, &array, Keys::Nested).err(),
        ];
        for error in busy {
            assert_eq!(error.unwrap().kind, Kind::Busy);
        }
        assert!(StoredArray::open(&path, None).is_ok());
        drop(updatable);
        assert!(snapshot(path.parent().unwrap()) == before);
        drop(stored.updatable(&path).unwrap());
        Pending::create(&path, &array, Keys::Nested).unwrap();
    }
}
