//! Disks of servers, against a naive model: the bytes of each block.

use std::collections::BTreeMap;
use std::ops::Range;

use futures::future::{join, join_all};
use penstock_engine::{BlockFile, Kind, Machine, Operation, Request, Rest, Result, Strategy};
use penstock_layout::{Block, DiskSchema, Order, Replicated, Split};

use crate::seat::BufferOf;
use crate::truth::{UNTOUCHED, crc32c, noise};
use crate::{Bench, Seat, targets};

/// Bytes an element.
const WIDTH: u64 = 4;
/// Longer than any block.
const BUFFER_BYTES: usize = 1000;

/// The disk schemas: chunks, chunks in several blocks with padding, and a flat file.
fn schemas() -> [DiskSchema; 3] {
    let chunked = |shape: &[u64], chunk: &[u64]| DiskSchema::chunked(shape, WIDTH, chunk).unwrap();
    [
        chunked(&[40, 9], &[5, 4]),
        chunked(&[30, 7], &[4, 6])
            .split(Split::Contiguous(40))
            .unwrap(),
        DiskSchema::flat(&[60, 11], WIDTH, Order::RowMajor, 132).unwrap(),
    ]
}

/// One server's disk for one call, what was written to it, and a buffer.
struct Desk<'a, B: Bench> {
    seat: &'a Seat<B>,
    disk: <B::Machine as Machine>::File,
    blocks: Vec<Block>,
    model: BTreeMap<(u64, u64), Vec<u8>>,
    buffer: BufferOf<B>,
    /// Numbers that choose what is done next.
    state: u64,
}

fn request(operation: Operation, disk: &DiskSchema, servers: usize, target: &[u8]) -> Request {
    Request {
        operation,
        strategy: Strategy::default(),
        holders: Replicated::new(disk.shape(), 1).into(),
        disk: disk.clone(),
        target: target.to_vec(),
        servers,
        sync: true,
        split: None,
        file: None,
        rest: Rest::Keep,
        sifting: None,
    }
}

async fn open<'a, B: Bench>(
    seat: &'a Seat<B>,
    operation: Operation,
    schema: &DiskSchema,
    (server, servers): (usize, usize),
    target: &[u8],
) -> Desk<'a, B> {
    let request = request(operation, schema, servers, target);
    Desk {
        seat,
        disk: seat.machine.open(request.opening(server)).await.unwrap(),
        blocks: schema.blocks(server, servers).collect(),
        model: BTreeMap::new(),
        buffer: seat.buffer(&[UNTOUCHED; BUFFER_BYTES]),
        state: server as u64,
    }
}

impl<B: Bench> Desk<'_, B> {
    /// A number below `end`.
    fn choose(&mut self, end: usize) -> usize {
        self.state += 1;
        let bytes = noise(&[self.state], 4);
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize % end
    }

    fn block(&mut self) -> Block {
        let nth = self.choose(self.blocks.len());
        self.blocks[nth].clone()
    }

    /// What a block is: zeros where it was never written.
    fn stored(&mut self, block: &Block) -> &mut Vec<u8> {
        let nothing = || vec![0; block.bytes as usize];
        let model = self.model.entry((block.object, block.offset));
        model.or_insert_with(nothing)
    }

    async fn write(&mut self, block: &Block) {
        let room = BUFFER_BYTES - block.bytes as usize;
        let (at, seed) = (self.choose(room), self.choose(1 << 30) as u64);
        let bytes = noise(&[seed], block.bytes as usize);
        self.seat.fill(&self.buffer, at, &bytes);
        let end = self.disk.write(block, &self.buffer, at as u64).await;
        end.unwrap();
        *self.stored(block) = bytes;
    }

    /// Reads a block; the rest of the buffer stays what it is.
    async fn read(&mut self, block: &Block) {
        let at = self.choose(BUFFER_BYTES - block.bytes as usize);
        let mut expected = vec![UNTOUCHED; BUFFER_BYTES];
        self.seat.fill(&self.buffer, 0, &expected);
        let end = self.disk.read(block, &self.buffer, at as u64).await;
        end.unwrap();
        expected[at..at + block.bytes as usize].copy_from_slice(self.stored(block));
        let found = self.seat.bytes(&self.buffer, 0..BUFFER_BYTES);
        assert!(
            found == expected,
            "block {} of object {}",
            block.index,
            block.object
        );
    }

    async fn read_all(&mut self) {
        for block in self.blocks.clone() {
            self.read(&block).await;
        }
    }

    /// Up to three parts of a block, multiples of an element, that do not overlap.
    fn some_parts(&mut self, block: &Block) -> Vec<Range<u64>> {
        let elements = (block.bytes / WIDTH) as usize;
        let mut ends: Vec<u64> = (0..6)
            .map(|_| self.choose(elements + 1) as u64 * WIDTH)
            .collect();
        ends.sort_unstable();
        let parts = ends.chunks(2).map(|pair| pair[0]..pair[1]);
        parts.filter(|part| !part.is_empty()).collect()
    }

    async fn write_parts(&mut self, block: &Block) {
        let parts = self.some_parts(block);
        let bytes = noise(&[self.choose(1 << 30) as u64], block.bytes as usize);
        self.seat.fill(&self.buffer, 0, &bytes);
        let end = self.disk.write_parts(block, &parts, &self.buffer).await;
        end.unwrap();
        let stored = self.stored(block);
        for part in parts {
            let part = part.start as usize..part.end as usize;
            stored[part.clone()].copy_from_slice(&bytes[part]);
        }
    }

    async fn read_parts(&mut self, block: &Block) {
        let parts = self.some_parts(block);
        let mut expected = vec![UNTOUCHED; BUFFER_BYTES];
        self.seat.fill(&self.buffer, 0, &expected);
        let end = self.disk.read_parts(block, &parts, &self.buffer).await;
        end.unwrap();
        for part in parts {
            let part = part.start as usize..part.end as usize;
            let stored = self.stored(block)[part.clone()].to_vec();
            expected[part].copy_from_slice(&stored);
        }
        let found = self.seat.bytes(&self.buffer, 0..BUFFER_BYTES);
        assert!(found == expected, "parts of block {}", block.index);
    }
}

/// Runs a block for each server of this node, and waits for all nodes.
macro_rules! on_each_server {
    ($seat:ident, |$server:ident, $of:ident| $act:block) => {
        let (own, $of) = B::servers(&$seat.machine, $seat.nodes);
        for $server in own {
            $act
        }
        $seat.barrier().await;
    };
}

pub(super) async fn blocks<B: Bench>(seat: Seat<B>) {
    let schema = &schemas()[0];
    on_each_server!(seat, |server, servers| {
        let at = (server, servers);
        let mut desk = open(&seat, Operation::Write, schema, at, targets::PARTS).await;
        for block in desk.blocks.clone().iter().step_by(2) {
            desk.write(block).await;
        }
        desk.read_all().await; // in a write, what was never written is zero
        desk.disk.finish().await.unwrap();
        let model = std::mem::take(&mut desk.model);
        let mut again = open(&seat, Operation::Read, schema, at, targets::PARTS).await;
        again.model = model;
        again.read_all().await;
        again.disk.finish().await.unwrap();
    });
}

pub(super) async fn written_again<B: Bench>(seat: Seat<B>) {
    let schema = &schemas()[1];
    on_each_server!(seat, |server, servers| {
        let at = (server, servers);
        let mut desk = open(&seat, Operation::Write, schema, at, targets::PARTS).await;
        for _ in 0..80 {
            let block = desk.block();
            match desk.choose(3) {
                0 => desk.read(&block).await,
                _ => desk.write(&block).await,
            }
        }
        desk.disk.finish().await.unwrap();
        let model = std::mem::take(&mut desk.model);
        let mut again = open(&seat, Operation::Read, schema, at, targets::PARTS).await;
        again.model = model;
        again.read_all().await;
    });
}

/// The writes are begun, and the disk is finished before they have ended.
pub(super) async fn finish_ends_writes<B: Bench>(seat: Seat<B>) {
    let schema = &schemas()[0];
    on_each_server!(seat, |server, servers| {
        let at = (server, servers);
        let mut desk = open(&seat, Operation::Write, schema, at, targets::PARTS).await;
        let blocks = desk.blocks.clone();
        let buffers = blocks.iter().map(|block| {
            let bytes = noise(&[block.object, block.offset], block.bytes as usize);
            (seat.buffer(&bytes), bytes)
        });
        let buffers: Vec<_> = buffers.collect();
        let writes = blocks.iter().zip(&buffers);
        let writes = join_all(writes.map(|(block, (buffer, _))| desk.disk.write(block, buffer, 0)));
        let (written, finished) = join(writes, desk.disk.finish()).await;
        finished.unwrap();
        written.into_iter().for_each(|end| end.unwrap());
        for (block, (_, bytes)) in blocks.iter().zip(buffers) {
            *desk.stored(block) = bytes;
        }
        let model = std::mem::take(&mut desk.model);
        let mut again = open(&seat, Operation::Read, schema, at, targets::PARTS).await;
        again.model = model;
        again.read_all().await;
    });
}

pub(super) async fn disk_for<B: Bench>(seat: Seat<B>) {
    let schema = &schemas()[0];
    on_each_server!(seat, |server, servers| {
        let at = (server, servers);
        let mut desk = open(&seat, Operation::Write, schema, at, targets::PARTS).await;
        for block in desk.blocks.clone() {
            desk.write(&block).await;
        }
        desk.disk.finish().await.unwrap();
        let (model, blocks) = (std::mem::take(&mut desk.model), desk.blocks.clone());
        let at = (seat.machine.disk_for(server), servers);
        let mut other = open(&seat, Operation::Read, schema, at, targets::PARTS).await;
        (other.model, other.blocks) = (model, blocks);
        other.read_all().await;
    });
}

pub(super) async fn parts<B: Bench>(seat: Seat<B>) {
    let schema = &schemas()[2];
    on_each_server!(seat, |server, servers| {
        let at = (server, servers);
        let mut desk = open(&seat, Operation::Write, schema, at, targets::PARTS).await;
        assert_eq!(desk.disk.moves_parts().await, Ok(true));
        for _ in 0..150 {
            let block = desk.block();
            match desk.choose(5) {
                0 => desk.read(&block).await,
                1 => desk.write(&block).await,
                2 => desk.read_parts(&block).await,
                _ => desk.write_parts(&block).await,
            }
        }
        desk.disk.finish().await.unwrap();
        let model = std::mem::take(&mut desk.model);
        let mut again = open(&seat, Operation::Read, schema, at, targets::PARTS).await;
        again.model = model;
        again.read_all().await;
        for _ in 0..50 {
            let block = again.block();
            again.read_parts(&block).await;
        }
    });
}

/// Blocks have positions of their own. In the order of the schema these ascend, where the disk says
/// so.
pub(super) async fn positions<B: Bench>(seat: Seat<B>) {
    let schema = &schemas()[2];
    on_each_server!(seat, |server, servers| {
        let at = (server, servers);
        let desk = open(&seat, Operation::Read, schema, at, targets::PARTS).await;
        let places = desk.blocks.iter().map(|block| desk.disk.position(block));
        let mut places: Vec<_> = places.collect();
        if desk.disk.is_in_schema_order() {
            assert!(places.is_sorted());
        }
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), desk.blocks.len());
        assert!(desk.disk.queue_depth() > 0);
    });
}

pub(super) async fn whole_only<B: Bench>(seat: Seat<B>) {
    let schema = &schemas()[0];
    on_each_server!(seat, |server, servers| {
        let at = (server, servers);
        let mut desk = open(&seat, Operation::Write, schema, at, targets::WHOLE).await;
        assert_eq!(desk.disk.moves_parts().await, Ok(false));
        for block in desk.blocks.clone() {
            desk.write(&block).await;
            let part = std::slice::from_ref(&(0..WIDTH));
            let ends = [
                desk.disk.write_parts(&block, part, &desk.buffer).await,
                desk.disk.read_parts(&block, part, &desk.buffer).await,
            ];
            for end in ends {
                assert_eq!(end.unwrap_err().kind, Kind::Unsupported);
            }
        }
        desk.read_all().await;
        desk.disk.finish().await.unwrap();
    });
}

/// Each object has the checksum of its bytes as they were written last.
pub(super) async fn sums<B: Bench>(seat: Seat<B>) {
    let schema = &schemas()[1];
    on_each_server!(seat, |server, servers| {
        let at = (server, servers);
        let mut desk = open(&seat, Operation::Write, schema, at, targets::SUMMED).await;
        for _ in 0..2 {
            for block in desk.blocks.clone() {
                desk.write(&block).await;
            }
        }
        desk.disk.finish().await.unwrap();
        let mut objects = BTreeMap::<u64, Vec<u8>>::new();
        for (&(object, _), bytes) in &desk.model {
            objects.entry(object).or_default().extend(bytes);
        }
        let objects = objects.into_iter();
        let expected: Vec<_> = objects
            .map(|(object, bytes)| (object, crc32c(&bytes)))
            .collect();
        let digests = desk.disk.digests().into_iter();
        let mut sums: Vec<_> = digests
            .map(|digest| (digest.object, digest.crc32c))
            .collect();
        sums.sort_unstable();
        assert_eq!(sums, expected);
        let other = open(&seat, Operation::Write, schema, at, targets::PARTS).await;
        other.disk.finish().await.unwrap();
        assert!(other.disk.digests().is_empty(), "nobody asked for these");
    });
}

/// Says what is wrong with a target: by the opening, or by all that is asked afterwards.
async fn bad<B: Bench>(seat: &Seat<B>, server: usize, request: &Request, kind: Kind) {
    let disk = match seat.machine.open(request.opening(server)).await {
        Ok(disk) => disk,
        Err(error) => return assert_eq!(error.kind, kind),
    };
    let block = request.disk.blocks(server, request.servers).next().unwrap();
    let buffer = seat.buffer(&[UNTOUCHED; BUFFER_BYTES]);
    let all = 0..block.bytes;
    let whole = std::slice::from_ref(&all);
    let results: [Result<()>; 6] = [
        disk.read(&block, &buffer, 0).await,
        disk.write(&block, &buffer, 0).await,
        disk.read_parts(&block, whole, &buffer).await,
        disk.write_parts(&block, whole, &buffer).await,
        disk.moves_parts().await.map(drop),
        disk.finish().await,
    ];
    for result in results {
        assert_eq!(result.unwrap_err().kind, kind);
    }
    assert!(disk.digests().is_empty());
    assert!(seat.bytes(&buffer, 0..BUFFER_BYTES) == [UNTOUCHED; BUFFER_BYTES]);
}

pub(super) async fn bad_targets<B: Bench>(seat: Seat<B>) {
    let schema = &schemas()[0];
    let cases = [
        (Operation::Write, targets::MISSING, Kind::Missing),
        (Operation::Read, targets::MISSING, Kind::Missing),
        (Operation::Write, targets::READ_ONLY, Kind::ReadOnly),
    ];
    on_each_server!(seat, |server, servers| {
        for (operation, target, kind) in cases {
            let request = request(operation, schema, servers, target);
            bad(&seat, server, &request, kind).await;
        }
        let at = (server, servers);
        let mut desk = open(&seat, Operation::Read, schema, at, targets::READ_ONLY).await;
        desk.read_all().await;
    });
}
