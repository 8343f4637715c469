//! One body for every machine: whatever the schemas, what all ranks write together is on disk as a
//! naive model says, and comes back to any other distribution.
//!
//! A failure prints its seed; `PENSTOCK_SEED=<seed> cargo test -p penstock-arrays --test
//! conformance` runs that one alone.

use std::path::Path;

use penstock_arrays::call::{ArrayCall, Local, Memory};
use penstock_arrays::session::{Options, Seat, Session};
use penstock_arrays::{ArraySchema, Disk, ElementType, Format};
use penstock_layout::{Dist, Dists, Region};
use penstock_machines::ClientMemory;

/// SplitMix64: enough chance for choosing cases, and the same on every machine.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n.max(1)
    }

    fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }
}

const ELEMENTS: [ElementType; 6] = [
    ElementType::Bool,
    ElementType::U1,
    ElementType::F2,
    ElementType::I4,
    ElementType::F8,
    ElementType::C16,
];

/// A distribution of `shape` over at most `ranks`.
fn distribution(chance: &mut Chance, shape: &[u64], ranks: u64) -> (Dists, Vec<u64>) {
    let (mut dists, mut mesh, mut left) = (Vec::new(), Vec::new(), ranks);
    for _ in shape {
        let dist = chance.one_of(&[
            Dist::Block,
            Dist::Whole,
            Dist::Cyclic(1),
            Dist::Cyclic(2),
            Dist::Cyclic(3),
        ]);
        if dist != Dist::Whole {
            let extent = 1 + chance.below(left);
            left /= extent;
            mesh.push(extent);
        }
        dists.push(dist);
    }
    (Dists(dists), mesh)
}

/// A box for each rank: slabs along the first dimension, with gaps.
fn slab(shape: &[u64], rank: u64, ranks: u64) -> Region {
    let mut own = Region::whole(shape);
    let step = shape[0].div_ceil(ranks).max(1);
    own.start[0] = (rank * step).min(shape[0]);
    own.shape[0] = step.saturating_sub(rank % 2).min(shape[0] - own.start[0]);
    own
}

fn memory(chance: &mut Chance, shape: &[u64], rank: u64, ranks: u64) -> Memory {
    let halo: Vec<(u64, u64)> = shape
        .iter()
        .map(|_| (chance.below(3), chance.below(2)))
        .collect();
    if !shape.is_empty() && chance.below(4) == 0 {
        return Memory::Box {
            own: slab(shape, rank, ranks),
            halo,
        };
    }
    let (dists, mesh) = distribution(chance, shape, ranks);
    Memory::Distribution { dists, mesh, halo }
}

fn disk(chance: &mut Chance, shape: &[u64]) -> Disk {
    let extents: Vec<u64> = shape.iter().map(|_| 1 + chance.below(5)).collect();
    let codec = chance
        .one_of(&["none", "zstd:1", "blosc:lz4:1+crc32c", "crc32c"])
        .to_string();
    match chance.below(5) {
        0 => Disk::RowMajor {
            format: Format::Raw,
        },
        1 => Disk::RowMajor {
            format: Format::Npy,
        },
        2 => {
            let dists = shape
                .iter()
                .map(|_| chance.one_of(&[Dist::Block, Dist::Whole]));
            let dists: Vec<Dist> = dists.collect();
            let places = dists.iter().filter(|dist| **dist == Dist::Block);
            let mesh = places.map(|_| 1 + chance.below(3)).collect();
            Disk::Parts(Dists(dists), mesh)
        }
        3 => {
            let times = 1 + chance.below(3);
            let chunk = extents.iter().map(|extent| extent * times).collect();
            Disk::Chunks {
                chunk,
                subchunks: Some(extents),
                codec,
            }
        }
        _ => Disk::Chunks {
            chunk: extents,
            subchunks: None,
            codec,
        },
    }
}

/// What byte `byte` of the element with the row-major number `element` is. A Bool is 0 or 1.
fn expected(element: u64, byte: u64, of: ElementType) -> u8 {
    if of == ElementType::Bool {
        return (element % 3 == 1) as u8;
    }
    (element.wrapping_mul(31) + byte * 7 + 1) as u8
}

/// A rank's local array, filled in as expected, with `0xEE` in its halo; or all `0xEE`.
fn local_array(call: &ArrayCall, rank: usize, is_filled: bool) -> (Vec<u8>, Local) {
    let element = call.schema.element;
    let width = element.width();
    let shape = call.local_shape(rank).unwrap();
    let mut strides = vec![width as isize; shape.len()];
    for d in (1..shape.len()).rev() {
        strides[d - 1] = strides[d] * shape[d] as isize;
    }
    let mut bytes = vec![0xEE; (shape.iter().product::<u64>() * width) as usize];
    if is_filled {
        for_owned(call, rank, &shape, |at, number| {
            for byte in 0..width {
                bytes[at * width as usize + byte as usize] = expected(number, byte, element);
            }
        });
    }
    let memory = ClientMemory {
        base: bytes.as_mut_ptr(),
        strides,
    };
    (
        bytes,
        Local {
            memory,
            shape,
            element,
            is_writable: true,
        },
    )
}

/// Calls `visit(place in the local array, row-major number in the whole)` for all that `rank` owns.
fn for_owned(call: &ArrayCall, rank: usize, local: &[u64], mut visit: impl FnMut(usize, u64)) {
    let share = call.share(rank).unwrap();
    let halo = match &call.memory {
        Memory::Distribution { halo, .. } | Memory::Box { halo, .. } => halo.clone(),
    };
    let extents = share.extents();
    for number in 0..share.elements() {
        let (mut rest, mut at, mut global, mut local_step, mut step) = (number, 0, 0, 1, 1);
        for d in (0..local.len()).rev() {
            let index = rest % extents[d];
            rest /= extents[d];
            at += (index + halo[d].0) * local_step;
            global += share.dims()[d].index(index) * step;
            local_step *= local[d];
            step *= call.schema.shape[d];
        }
        visit(at as usize, global);
    }
}

/// Writes by one schema, reads by another, on this rank of a machine of any kind.
fn body(session: &Session, directory: &Path, seed: u64) {
    let chance = &mut Chance(seed);
    let (rank, ranks) = (session.rank().unwrap(), session.clients() as u64);
    let dims = chance.below(4);
    let shape: Vec<u64> = (0..dims)
        .map(|_| chance.one_of(&[1, 2, 3, 5, 7, 11, 13, 0]))
        .collect();
    let element = chance.one_of(&ELEMENTS);
    let schema = ArraySchema::new("u", &shape, element, disk(chance, &shape));
    let target = directory.join(format!("target-{seed}"));
    let call = |memory: Memory| ArrayCall {
        schema: schema.clone(),
        memory,
    };

    let written = call(memory(chance, &shape, rank as u64, ranks));
    let (bytes, local) = local_array(&written, rank, true);
    let before = bytes.clone();
    session
        .write(&target, Ok((written.clone(), local)))
        .unwrap();
    assert_eq!(bytes, before, "a write changed what it wrote");

    // What nobody held is zero.
    let total: u64 = shape.iter().product();
    let mut held = vec![matches!(written.memory, Memory::Distribution { .. }); total as usize];
    if matches!(written.memory, Memory::Box { .. }) {
        for other in 0..ranks {
            let own = Memory::Box {
                own: slab(&shape, other, ranks),
                halo: vec![(0, 0); shape.len()],
            };
            let of_other = call(own);
            let local = of_other.local_shape(other as usize).unwrap();
            for_owned(&of_other, other as usize, &local, |_, number| {
                held[number as usize] = true
            });
        }
    }
    let wanted = call(memory(chance, &shape, rank as u64, ranks));
    let (bytes, local) = local_array(&wanted, rank, false);
    let extents = local.shape.clone();
    session.read(&target, Ok((wanted.clone(), local))).unwrap();
    let width = element.width() as usize;
    let mut is_halo = vec![true; bytes.len() / width];
    for_owned(&wanted, rank, &extents, |at, number| {
        is_halo[at] = false;
        for byte in 0..width {
            let there = held[number as usize];
            let right = if there {
                expected(number, byte as u64, element)
            } else {
                0
            };
            assert_eq!(
                bytes[at * width + byte],
                right,
                "element {number}, byte {byte}"
            );
        }
    });
    for (at, _) in is_halo.iter().enumerate().filter(|(_, is_halo)| **is_halo) {
        assert!(
            bytes[at * width..][..width].iter().all(|&b| b == 0xEE),
            "a read touched the halo"
        );
    }
}

#[test]
fn threads() {
    let one = std::env::var("PENSTOCK_SEED")
        .ok()
        .map(|seed| seed.parse::<u64>().unwrap());
    let seeds = one.map_or(0..240, |seed| seed..seed + 1);
    for seed in seeds {
        let chance = &mut Chance(!seed);
        let ranks = 1 + chance.below(5) as usize;
        let options = Options {
            servers: chance.one_of(&[None, Some(1), Some(2), Some(7)]),
            dedicated: chance.below(2) == 0,
            sync: chance.below(2) == 0,
            block_bytes: chance.one_of(&[1, 16, 100, 1 << 20]),
        };
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let case = format!("PENSTOCK_SEED={seed}: {ranks} ranks, {options:?}");
        let all_well = std::thread::scope(|scope| {
            let seats = Seat::all(ranks, &options).unwrap();
            let threads: Vec<_> = seats
                .into_iter()
                .map(|seat| {
                    scope.spawn(move || {
                        let mut session = seat.open();
                        body(&session, path, seed);
                        session.close().unwrap();
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().is_ok())
                .fold(true, |a, b| a & b)
        });
        assert!(all_well, "{case}");
    }
}
