//! Random cases: arrays, their schemas in memory and on disk, and local arrays that show errors.
#![allow(dead_code, missing_docs)]

use std::collections::BTreeSet;
use std::path::Path;

use penstock_arrays::calls::array::{ArrayCall, LocalPart, Memory};
use penstock_arrays::calls::list::RankList;
use penstock_arrays::calls::save::{GroupCall, Save};
use penstock_arrays::calls::settings::SessionOptions;
use penstock_arrays::calls::{Seat, Session};
use penstock_arrays::{ArraySchema, ElementType, Fill, Format, Storage};
use penstock_layout::{DiskSchema, Dist, Dists, Edges, List, Order, Region};
use penstock_machines::ClientMemory;

/// SplitMix64: random enough to choose cases, and the same on every machine.
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n.max(1)
    }

    pub fn one_of<T: Clone>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize].clone()
    }
}

/// Elements of many widths: records of 12 and of 37 bytes among them.
pub fn elements() -> Vec<ElementType> {
    let words = [
        "bool",
        "u1",
        "f2",
        "i4",
        "f8",
        "c16",
        "[('x', 'f8'), ('id', 'i4')]",
        "[('a', 'u1'), ('p', [('c', 'c16'), ('n', 'i2')]), ('x', 'f8'), ('y', 'f8'), ('b', 'u2')]",
    ];
    let element = |word| ElementType::parse(word).unwrap().0;
    words.map(element).to_vec()
}

/// A distribution of `shape` over at most `ranks`.
pub fn distribution(chance: &mut Chance, shape: &[u64], ranks: u64) -> (Dists, Vec<u64>) {
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
pub fn slab(shape: &[u64], rank: u64, ranks: u64) -> Region {
    let mut own = Region::whole(shape);
    let step = shape[0].div_ceil(ranks).max(1);
    own.start[0] = (rank * step).min(shape[0]);
    own.shape[0] = step.saturating_sub(rank % 2).min(shape[0] - own.start[0]);
    own
}

/// The boxes of a rank: pieces of its slab along the last dimension, every second of them left out.
/// Some ranks have none.
pub fn boxes(shape: &[u64], rank: u64, ranks: u64) -> Vec<Region> {
    let slab = slab(shape, rank, ranks);
    let last = shape.len() - 1;
    let count = [1, 3, 0, 2][(rank % 4) as usize];
    let piece = |number: u64| {
        let mut own = slab.clone();
        let step = slab.shape[last].div_ceil(2 * count).max(1);
        let start = (2 * number * step).min(slab.shape[last]);
        own.start[last] += start;
        own.shape[last] = step.min(slab.shape[last] - start);
        own
    };
    match count {
        1 => vec![slab],
        _ => (0..count).map(piece).collect(),
    }
}

/// The list of a rank: scattered elements in a scattered order, some of them nobody's. Every second
/// rank has places in its local array that are in another order, with gaps.
pub fn list(shape: &[u64], rank: u64, ranks: u64) -> RankList {
    let elements: u64 = shape.iter().product();
    let owner = |number: u64| (number / 2 * 7 + number / 5) % (ranks + 1);
    let mut own: Vec<u64> = (0..elements)
        .filter(|&number| owner(number) == rank)
        .collect();
    own.sort_by_key(|number| (number / 2 * 617 % 31, number % 2));
    let ones = vec![1; own.len()];
    let places: Vec<u64> = (0..own.len() as u64).rev().map(|at| 2 * at + 1).collect();
    let places = List::runs(&places, &ones).unwrap();
    let file = List::runs(&own, &ones).unwrap();
    RankList::new(shape, &file, (rank % 2 == 1).then_some(&places)).unwrap()
}

pub fn memory(chance: &mut Chance, shape: &[u64], rank: u64, ranks: u64) -> Memory {
    let halo: Vec<(u64, u64)> = shape
        .iter()
        .map(|_| (chance.below(3), chance.below(2)))
        .collect();
    if !shape.is_empty() && chance.below(4) == 0 {
        return Memory::Boxes {
            own: boxes(shape, rank, ranks),
            halo,
            is_region: false,
        };
    }
    if chance.below(4) == 0 {
        return Memory::List {
            own: list(shape, rank, ranks),
            is_region: false,
            thinning: None,
        };
    }
    let (dists, mesh) = distribution(chance, shape, ranks);
    Memory::Distribution { dists, mesh, halo }
}

pub fn disk(chance: &mut Chance, shape: &[u64]) -> Storage {
    let extents: Vec<u64> = shape.iter().map(|_| 1 + chance.below(5)).collect();
    let codec = chance
        .one_of(&["none", "zstd:1", "blosc:lz4:1+crc32c", "crc32c"])
        .to_string();
    match chance.below(6) {
        0 => Storage::RowMajor {
            format: Format::Raw,
        },
        1 => Storage::RowMajor {
            format: Format::Npy,
        },
        2 => {
            let dists = shape
                .iter()
                .map(|_| chance.one_of(&[Dist::Block, Dist::Whole]));
            let dists: Vec<Dist> = dists.collect();
            let places = dists.iter().filter(|dist| **dist == Dist::Block);
            let mesh = places.map(|_| 1 + chance.below(3)).collect();
            Storage::Parts(Dists(dists), mesh)
        }
        3 => {
            let times = 1 + chance.below(3);
            let chunk = extents.iter().map(|extent| (extent * times).into());
            Storage::Chunks {
                chunk: chunk.collect(),
                subchunks: Some(extents),
                codec,
            }
        }
        4 => {
            let units = vec![1 + chance.below(2); shape.len()];
            let dims = shape.iter().zip(&units);
            Storage::Chunks {
                chunk: dims.map(|(&n, &unit)| listed(chance, n, unit)).collect(),
                subchunks: (chance.below(2) == 0).then_some(units),
                codec,
            }
        }
        _ => Storage::Chunks {
            chunk: Edges::regular(&extents),
            subchunks: None,
            codec,
        },
    }
}

/// Chunks of a dimension of `n` with extents of their own, multiples of `unit`.
fn listed(chance: &mut Chance, n: u64, unit: u64) -> Edges {
    let (mut extents, mut end) = (Vec::new(), 0);
    while end < n.max(1) {
        let extent = unit * (1 + chance.below(4));
        end += extent;
        extents.push(extent);
    }
    Edges::Listed(extents)
}

/// The value of byte `byte` of the element with the row-major number `element`. A Bool is 0 or 1.
pub fn expected(element: u64, byte: u64, of: &ElementType) -> u8 {
    if *of == ElementType::Bool {
        return (element % 3 == 1) as u8;
    }
    (element.wrapping_mul(31) + byte * 7 + 1) as u8
}

/// A fill value for elements of this type, or zero.
pub fn fill(chance: &mut Chance, element: &ElementType) -> Fill {
    let byte = match element {
        ElementType::Bool => 1,
        _ => chance.below(256) as u8,
    };
    let bytes = vec![byte; element.width() as usize];
    match chance.below(2) {
        0 => Fill::default(),
        _ => Fill::new(element, &bytes).unwrap(),
    }
}

/// A rank's local arrays with the expected bytes and `0xEE` in their halos; or all `0xEE`.
pub fn local_arrays(
    call: &ArrayCall,
    rank: usize,
    is_filled: bool,
) -> (Vec<Vec<u8>>, Vec<LocalPart>) {
    let shapes = call.local_shapes(rank).unwrap().into_iter().enumerate();
    let locals = shapes.map(|(part, shape)| local_array(call, (rank, part), shape, is_filled));
    locals.unzip()
}

fn local_array(
    call: &ArrayCall,
    (rank, part): (usize, usize),
    shape: Vec<u64>,
    is_filled: bool,
) -> (Vec<u8>, LocalPart) {
    let element = &call.schema.element;
    let width = element.width();
    let mut strides = vec![width as isize; shape.len()];
    for d in (1..shape.len()).rev() {
        strides[d - 1] = strides[d] * shape[d] as isize;
    }
    let mut bytes = vec![0xEE; (shape.iter().product::<u64>() * width) as usize];
    if is_filled {
        for_owned(call, (rank, part), &shape, |at, number| {
            for byte in 0..width {
                bytes[at * width as usize + byte as usize] = expected(number, byte, element);
            }
        });
    }
    let memory = ClientMemory {
        base: bytes.as_mut_ptr(),
        extents: shape,
        strides,
        width: width as usize,
    };
    let local = LocalPart {
        memory,
        element: element.clone(),
        is_writable: true,
    };
    (bytes, local)
}

/// Calls `visit(place in the local array, row-major number in the whole)` for all elements of one
/// of `rank`'s parts.
pub fn for_owned(
    call: &ArrayCall,
    (rank, part): (usize, usize),
    local: &[u64],
    mut visit: impl FnMut(usize, u64),
) {
    let halo = match &call.memory {
        Memory::Distribution { halo, .. } | Memory::Boxes { halo, .. } => halo.clone(),
        Memory::Rows { .. } => vec![(0, 0); local.len()],
        Memory::List { own, .. } => {
            let one_block = DiskSchema::flat(&call.schema.shape, 1, Order::RowMajor, u64::MAX);
            for (_, piece) in own.holding().pieces(&one_block.unwrap()) {
                for (number, at, length) in piece.iter() {
                    (0..length).for_each(|along| visit((at + along) as usize, number + along));
                }
            }
            return;
        }
    };
    let share = call.shares(rank).unwrap().remove(part);
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

/// The seeds to try: all, or the one that `PENSTOCK_SEED` names.
pub fn seeds(count: u64) -> std::ops::Range<u64> {
    let one = std::env::var("PENSTOCK_SEED").ok();
    let one = one.map(|seed| seed.parse::<u64>().unwrap());
    one.map_or(0..count, |seed| seed..seed + 1)
}

/// Runs `body` on every rank of a machine of threads. Gives true if none panicked.
pub fn on_threads(ranks: usize, options: &SessionOptions, body: impl Fn(&Session) + Sync) -> bool {
    let run = |seat: Seat| {
        let mut session = seat.open(None).unwrap();
        body(&session);
        session.close().unwrap();
    };
    let run = &run;
    std::thread::scope(|scope| {
        let seats = Seat::all(ranks, options).unwrap();
        let threads = seats.into_iter().map(|seat| scope.spawn(move || run(seat)));
        let threads: Vec<_> = threads.collect();
        let ended = threads.into_iter().map(|thread| thread.join().is_ok());
        ended.fold(true, |a, b| a & b)
    })
}

/// A group of one array, all of it on one rank.
pub fn group_of_one(path: &Path, schema: &ArraySchema) -> GroupCall {
    let dims = schema.shape.len();
    let array = ArrayCall {
        schema: schema.clone(),
        memory: Memory::Distribution {
            dists: Dists(vec![Dist::Whole; dims]),
            mesh: Vec::new(),
            halo: vec![(0, 0); dims],
        },
    };
    GroupCall {
        name: "g".to_string(),
        path: path.to_path_buf(),
        arrays: vec![array],
        coordinates: Vec::new(),
        attributes: serde_json::Map::new(),
        time_attributes: serde_json::Map::new(),
        time_chunk: None,
        keep: 2,
        bounded: BTreeSet::new(),
    }
}

/// Saves a timestep and a checkpoint of a group of one array, and gives that array's bytes.
pub fn save_group(path: &Path, schema: &ArraySchema, options: &SessionOptions) -> Vec<u8> {
    let group = group_of_one(path, schema);
    let saved = on_threads(1, options, |session| {
        let step = Save::Checkpoint {
            step: Some(1),
            time: None,
            attributes: serde_json::Map::new(),
        };
        for save in [Save::Timestep(Some(0.5)), step] {
            let (_bytes, locals) = local_arrays(&group.arrays[0], 0, true);
            session.save(group.clone(), vec![locals], save).unwrap();
        }
    });
    assert!(saved);
    local_arrays(&group.arrays[0], 0, true).0.concat()
}

/// What each element of an array is on disk: whether some rank holds it.
pub fn held(written: &ArrayCall, ranks: u64) -> Vec<bool> {
    owners(written, ranks).iter().map(Option::is_some).collect()
}

/// The rank that holds each element.
pub fn owners(written: &ArrayCall, ranks: u64) -> Vec<Option<u64>> {
    let shape = &written.schema.shape;
    let mut owners = vec![None; shape.iter().product::<u64>() as usize];
    for rank in 0..ranks {
        let halo = vec![(0, 0); shape.len()];
        let memory = match &written.memory {
            Memory::Distribution { dists, mesh, .. } => Memory::Distribution {
                dists: dists.clone(),
                mesh: mesh.clone(),
                halo,
            },
            Memory::List { is_region, .. } => Memory::List {
                own: list(shape, rank, ranks),
                is_region: *is_region,
                thinning: None,
            },
            _ => Memory::Boxes {
                own: boxes(shape, rank, ranks),
                halo,
                is_region: false,
            },
        };
        let call = ArrayCall {
            schema: written.schema.clone(),
            memory,
        };
        let locals = call.local_shapes(rank as usize).unwrap();
        for (part, local) in locals.iter().enumerate() {
            for_owned(&call, (rank as usize, part), local, |_, number| {
                owners[number as usize] = Some(rank);
            });
        }
    }
    owners
}

/// Checks that local arrays hold the expected elements, and that their halos are unchanged.
pub fn check_locals(call: &ArrayCall, rank: usize, bytes: &[Vec<u8>], held: &[bool]) {
    let shapes = call.local_shapes(rank).unwrap();
    for (part, (bytes, shape)) in bytes.iter().zip(&shapes).enumerate() {
        check_local(call, (rank, part), bytes, shape, held);
    }
}

fn check_local(
    call: &ArrayCall,
    place: (usize, usize),
    bytes: &[u8],
    local: &[u64],
    held: &[bool],
) {
    let element = &call.schema.element;
    let fill = call.schema.fill.element(element);
    let width = element.width() as usize;
    let mut is_halo = vec![true; bytes.len() / width];
    for_owned(call, place, local, |at, number| {
        is_halo[at] = false;
        for byte in 0..width {
            let right = match held[number as usize] {
                true => expected(number, byte as u64, element),
                false => fill[byte],
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
