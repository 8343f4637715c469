//! Every strategy stores the same bytes: writes and reads of random schemas on the simulated
//! machine with real bytes, each read back by every strategy in another distribution.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use penstock_engine::collective::client::Client;
use penstock_engine::collective::server::Servers;
use penstock_engine::tuning::{Caching, DiskDirected, Exchange, QueueOrder, StoreAccess, TwoPhase};
use penstock_engine::{
    Attendance, Call, Decision, Holders, Machine, Operation, Plan, Request, Rest, Strategy, Traffic,
};
use penstock_layout::{
    DiskSchema, Dist, Distribution, Dists, Holding, List, MemorySchema, Order, Region, Replicated,
    Share, Split,
};
use penstock_sim::machine::Layout;
use penstock_sim::machine::{Setup, SimNode, Simulation};
use penstock_sim::preset::Preset;
use penstock_sim::random::Random;

use crate::directing;

const SEEDS: u64 = 400;

/// A case is one write, and the reads after it.
struct Case {
    seed: u64,
    clients: usize,
    io_nodes: usize,
    disks: usize,
    servers: usize,
    shape: Vec<u64>,
    width: u64,
    disk: DiskSchema,
    layout: Layout,
}

impl Case {
    fn of(seed: u64) -> (Self, Random) {
        let mut random = Random::new(seed);
        let clients = 1 + random.below(7) as usize;
        let io_nodes = 1 + random.below(4) as usize;
        let disks = io_nodes + random.below(4) as usize;
        let servers = 1 + random.below(disks as u64) as usize;
        let dims = random.below(4) as usize;
        let shape: Vec<u64> = (0..dims).map(|_| random.below(12)).collect();
        let width = [1, 2, 3, 4, 8, 16][random.below(6) as usize];
        let disk = disk_schema(&shape, width, &mut random);
        let layout = [
            Layout::Contiguous,
            Layout::RandomBlocks,
            Layout::RandomTracks,
        ];
        let layout = layout[random.below(3) as usize];
        let case = Self {
            seed,
            clients,
            io_nodes,
            disks,
            servers,
            shape,
            width,
            disk,
            layout,
        };
        (case, random)
    }

    fn simulation(&self) -> Simulation {
        let mut preset = Preset::find("tocs97").unwrap();
        preset.nodes.clients = self.clients;
        preset.nodes.io_nodes = self.io_nodes;
        preset.nodes.disks = self.disks;
        let setup = Setup {
            layout: self.layout,
            slots: self.disk.conforming_blocks_max(self.servers),
            slot_bytes: self.disk.block_bytes_max(),
            is_disk_free: false,
            seed: self.seed,
            is_real: true,
            is_traced: false,
        };
        Simulation::new(&preset, &setup).unwrap()
    }

    /// The bytes of one element, by its place in the array.
    fn element(&self, index: &[u64]) -> Vec<u8> {
        let place = index
            .iter()
            .zip(&self.shape)
            .fold(1, |n, (i, e)| n * (e + 1) + i);
        let mut random = Random::of(self.seed, place);
        (0..self.width).map(|_| random.below(256) as u8).collect()
    }

    /// The elements that a rank holds, dense and row-major.
    fn share_bytes(&self, memory: &MemorySchema, rank: usize) -> Vec<u8> {
        let share = memory.share(rank);
        let extents = share.extents();
        let mut bytes = Vec::new();
        for place in indices(&extents) {
            if share.elements() > 0 {
                let global: Vec<u64> = share
                    .dims()
                    .iter()
                    .zip(&place)
                    .map(|(dim, &i)| dim.index(i))
                    .collect();
                bytes.extend(self.element(&global));
            }
        }
        bytes
    }

    /// What a rank holds, as a list, in the order of its share.
    fn list(&self, memory: &MemorySchema, rank: usize) -> Holding {
        let share = memory.share(rank);
        let mut numbers = Vec::new();
        if share.elements() > 0 {
            for place in indices(&share.extents()) {
                let dims = share.dims().iter().zip(&place).zip(&self.shape);
                let number = dims.fold(0, |n, ((dim, &i), extent)| n * extent + dim.index(i));
                numbers.push(number);
            }
        }
        let file = List::runs(&numbers, &vec![1; numbers.len()]).unwrap();
        let memory = List::runs(&[0], &[numbers.len() as u64]).unwrap();
        Holding::new(&file, &memory).unwrap()
    }

    /// Writes what lists have, and leaves all else alone.
    fn leave_rest(
        &self,
        simulation: &Simulation,
        id: u64,
        lists: Vec<Holding>,
        memories: &[Rc<RefCell<Vec<u8>>>],
    ) -> Traffic {
        let lists = Rc::new(lists);
        let request = Request {
            operation: Operation::Write,
            strategy: Strategy::default(),
            holders: Holders::Lists {
                shape: self.shape.clone(),
                ranks: memories.len(),
            },
            disk: self.disk.clone(),
            target: Vec::new(),
            servers: self.servers,
            sync: true,
            split: None,
            file: None,
            rest: Rest::Leave,
            sifting: None,
        };
        let moved = Rc::new(RefCell::new(Traffic::default()));
        let party = simulation.party().clone();
        let program = |node: SimNode| {
            let (request, party, moved) = (request.clone(), party.clone(), moved.clone());
            let (rank, lists) = (party.rank(node.me()).unwrap(), lists.clone());
            let held = memories[rank].clone();
            async move {
                let attendance = Attendance::new(party);
                let call = Call::new(&node, &attendance, id);
                let share = Share::of_box(&Region::whole(&[lists[rank].elements()]));
                let _exposure = node.expose(call.id.memory(0), (share, Some(held)));
                let handed_over = Cell::new(false);
                let own = [&lists[rank]];
                let client = Client::new(call, rank, &handed_over).with_lists(&own);
                let verdict = directing::run(client, rank, Decision::Serve(vec![request]));
                *moved.borrow_mut() = verdict.await.unwrap().moved;
            }
        };
        let server = |node: SimNode| {
            let attendance = Rc::new(Attendance::new(party.clone()));
            async move { Servers::new(&node, attendance, 0).run().await }
        };
        simulation.run_with_servers(program, server).unwrap();
        moved.take()
    }

    /// Runs one call; every rank starts with `memories`, in which the call leaves its result.
    fn run(
        &self,
        simulation: &Simulation,
        id: u64,
        operation: Operation,
        (strategy, split): (Strategy, Option<penstock_engine::Split>),
        (memory, is_listed): (&MemorySchema, bool),
        memories: &[Rc<RefCell<Vec<u8>>>],
    ) -> Traffic {
        let ranks = memories.len();
        let lists = (0..ranks).map(|rank| match is_listed {
            true => self.list(memory, rank),
            false => Holding::default(),
        });
        let lists: Rc<Vec<Holding>> = Rc::new(lists.collect());
        let holders = match is_listed {
            false => memory.clone().into(),
            true => Holders::Lists {
                shape: self.shape.clone(),
                ranks,
            },
        };
        let request = Rc::new(Request {
            operation,
            strategy,
            holders,
            disk: self.disk.clone(),
            target: Vec::new(),
            servers: self.servers,
            sync: true,
            split,
            file: None,
            rest: Rest::Fill(Vec::new()),
            sifting: None,
        });
        let moved = Rc::new(RefCell::new(Traffic::default()));
        let party = simulation.party().clone();
        let memories = memories.to_vec();
        let program = |node: SimNode| {
            let (request, party, moved) = (request.clone(), party.clone(), moved.clone());
            let rank = party.rank(node.me()).unwrap();
            let held = memories[rank].clone();
            let share = match is_listed {
                true => Share::of_box(&Region::whole(&[lists[rank].elements()])),
                false => memory.share(rank),
            };
            let lists = lists.clone();
            async move {
                let attendance = Attendance::new(party);
                let call = Call::new(&node, &attendance, id);
                let _exposure = node.expose(call.id.memory(0), (share, Some(held)));
                let handed_over = Cell::new(false);
                let own = [&lists[rank]];
                let client = Client::new(call, rank, &handed_over).with_lists(&own);
                let decision = Decision::Serve(vec![(*request).clone()]);
                let verdict = directing::run(client, rank, decision).await.unwrap();
                assert_eq!(handed_over.get(), request.split.is_some());
                *moved.borrow_mut() = verdict.moved;
            }
        };
        let server = |node: SimNode| {
            let attendance = Rc::new(Attendance::new(party.clone()));
            async move { Servers::new(&node, attendance, 0).run().await }
        };
        let before = simulation.totals().messages;
        let ran = simulation.run_with_servers(program, server);
        ran.unwrap_or_else(|error| panic!("seed {}: {strategy:?} {split:?}: {error}", self.seed));
        if is_counted(&strategy) && split.is_none() {
            let sent = simulation.totals().messages - before;
            let by_schema = Request {
                holders: memory.clone().into(),
                ..(*request).clone()
            };
            let nothing = (0, &Holding::default());
            let mut planned = Plan::new(&by_schema, &party, nothing).messages();
            if is_listed && matches!(strategy, Strategy::DiskDirected(_)) {
                // Clients hear the request, and each sends a list to each server.
                planned += (ranks - 1 + ranks * self.servers) as u64;
            }
            assert_eq!(sent, planned, "seed {}: {strategy:?}", self.seed);
            let of_plan = Plan::new(&request, &party, (0, &lists[0])).messages();
            assert!(of_plan <= sent, "seed {}: {strategy:?}", self.seed);
        }
        moved.take()
    }
}

/// Whether a plan says exactly how many messages a call by this strategy takes.
fn is_counted(strategy: &Strategy) -> bool {
    matches!(strategy, Strategy::DiskDirected(_) | Strategy::Independent)
}

fn indices(extents: &[u64]) -> Vec<Vec<u64>> {
    let mut all = vec![vec![]];
    for &extent in extents {
        all = all
            .into_iter()
            .flat_map(|index| {
                (0..extent).map(move |i| {
                    let mut deeper = index.clone();
                    deeper.push(i);
                    deeper
                })
            })
            .collect();
    }
    all
}

fn disk_schema(shape: &[u64], width: u64, random: &mut Random) -> DiskSchema {
    let chunk: Vec<u64> = shape.iter().map(|_| 1 + random.below(5)).collect();
    let order = [Order::RowMajor, Order::ColumnMajor][random.below(2) as usize];
    let bytes_max = 1 + random.below(12 * width);
    match random.below(4) {
        0 => DiskSchema::flat(shape, width, order, bytes_max).unwrap(),
        1 => DiskSchema::chunked(shape, width, &chunk).unwrap(),
        2 => DiskSchema::chunked(shape, width, &chunk)
            .unwrap()
            .split(Split::Contiguous(bytes_max))
            .unwrap(),
        _ => {
            let shard: Vec<u64> = chunk.iter().map(|c| c * (1 + random.below(3))).collect();
            DiskSchema::chunked(shape, width, &shard)
                .unwrap()
                .split(Split::Inner(chunk))
                .unwrap()
        }
    }
}

fn memory_schema(shape: &[u64], clients: usize, random: &mut Random) -> MemorySchema {
    let mut rest = clients as u64;
    let mut dists = Vec::new();
    let mut mesh = Vec::new();
    for _ in shape {
        let dist = match random.below(4) {
            0 => Dist::Whole,
            1 => Dist::Block,
            2 => Dist::Cyclic(1),
            _ => Dist::Cyclic(1 + random.below(3)),
        };
        if dist != Dist::Whole {
            let extent = 1 + random.below(rest);
            rest /= extent;
            mesh.push(extent);
        }
        dists.push(dist);
    }
    Distribution::new(shape, &Dists(dists), &mesh)
        .unwrap()
        .into()
}

fn strategy(random: &mut Random) -> Strategy {
    let orders = [
        QueueOrder::Fcfs,
        QueueOrder::CScanFile,
        QueueOrder::CScanDisk,
    ];
    let caching = Caching {
        outstanding_max: 1 + random.below(4) as u32,
        looks_ahead: random.below(2) == 1,
        call_bytes_max: 1 + random.below(100),
        buffers_per_client: 1 + random.below(3) as u32,
        queue: orders[random.below(3) as usize],
        read_ahead_blocks: random.below(3) as u32,
    };
    let exchanges = [Exchange::STEPS.as_slice(), &[Exchange::Remote]].concat();
    match random.below(7) {
        0 => Strategy::Caching(caching),
        1 | 5 | 6 => Strategy::TwoPhase(TwoPhase {
            buffer_bytes_max: 1 + random.below(300),
            exchange: exchanges[random.below(6) as usize],
            io: [StoreAccess::Servers(caching), StoreAccess::Direct][random.below(2) as usize],
        }),
        4 => Strategy::Independent,
        presort => Strategy::DiskDirected(DiskDirected {
            presort: presort == 2,
            buffers: 1 + random.below(4),
        }),
    }
}

/// Draws no split, or buffers for all blocks that a node moves, or for some.
fn split(random: &mut Random) -> Option<penstock_engine::Split> {
    let buffer_bytes_max = [1 << 20, 1 + random.below(200)][random.below(2) as usize];
    (random.below(2) == 0).then_some(penstock_engine::Split { buffer_bytes_max })
}

#[test]
fn what_one_strategy_writes_all_others_read() {
    for seed in 0..SEEDS {
        let (case, mut random) = Case::of(seed);
        let simulation = case.simulation();
        let schema = memory_schema(&case.shape, case.clients, &mut random);
        let memories: Vec<_> = (0..case.clients)
            .map(|rank| Rc::new(RefCell::new(case.share_bytes(&schema, rank))))
            .collect();
        let writer = (strategy(&mut random), split(&mut random));
        let held = (&schema, random.below(3) == 0);
        case.run(&simulation, 0, Operation::Write, writer, held, &memories);
        for id in 1..4 {
            let schema = match random.below(4) {
                0 => Replicated::new(&case.shape, case.clients).into(),
                _ => memory_schema(&case.shape, case.clients, &mut random),
            };
            let expected: Vec<_> = (0..case.clients)
                .map(|rank| case.share_bytes(&schema, rank))
                .collect();
            let memories: Vec<_> = expected
                .iter()
                .map(|bytes| Rc::new(RefCell::new(vec![0x5a; bytes.len()])))
                .collect();
            let reader = (strategy(&mut random), split(&mut random));
            let held = (&schema, random.below(3) == 0);
            case.run(&simulation, id, Operation::Read, reader, held, &memories);
            for (rank, expected) in expected.iter().enumerate() {
                assert!(
                    *memories[rank].borrow() == *expected,
                    "seed {seed}: rank {rank} read something else; {:?} by {writer:?}, then {schema:?} \
                     by {reader:?}",
                    case.disk,
                );
            }
        }
    }
}

/// The bytes of all elements, in row-major order.
fn read_all(case: &Case, simulation: &Simulation, id: u64) -> Vec<u8> {
    let schema: MemorySchema = Replicated::new(&case.shape, 1).into();
    let bytes = case.share_bytes(&schema, 0).len();
    let memories: Vec<_> = (0..case.clients)
        .map(|_| Rc::new(RefCell::new(vec![0x5a; bytes])))
        .collect();
    let (reader, held) = ((Strategy::default(), None), (&schema, false));
    case.run(simulation, id, Operation::Read, reader, held, &memories);
    memories[0].take()
}

#[test]
fn what_no_list_has_is_left_alone() {
    let mut written = 0;
    for seed in 0..SEEDS {
        let (case, mut random) = Case::of(seed);
        let simulation = case.simulation();
        let schema = memory_schema(&case.shape, case.clients, &mut random);
        let memories: Vec<_> = (0..case.clients)
            .map(|rank| Rc::new(RefCell::new(case.share_bytes(&schema, rank))))
            .collect();
        let (writer, held) = ((Strategy::default(), None), (&schema, false));
        case.run(&simulation, 0, Operation::Write, writer, held, &memories);
        let mut expected = read_all(&case, &simulation, 1);
        // Some elements get new values, and some of them from two ranks, which have one value.
        let elements = expected.len() / case.width as usize;
        let new: Vec<Option<u8>> = (0..elements)
            .map(|_| (random.below(2) == 0).then(|| random.below(256) as u8))
            .collect();
        let mut lists = vec![Vec::new(); case.clients];
        for number in (0..elements).filter(|&number| new[number].is_some()) {
            for _ in 0..1 + random.below(2) {
                let rank = random.below(case.clients as u64) as usize;
                if lists[rank].last() != Some(&(number as u64)) {
                    lists[rank].push(number as u64);
                }
            }
        }
        let width = case.width as usize;
        for (value, place) in new.iter().zip(expected.chunks_mut(width)) {
            value.iter().for_each(|value| place.fill(*value));
        }
        let memories = lists.iter().map(|list| {
            let values = list
                .iter()
                .flat_map(|&n| vec![new[n as usize].unwrap(); width]);
            Rc::new(RefCell::new(values.collect::<Vec<u8>>()))
        });
        let memories: Vec<_> = memories.collect();
        let holdings = lists.iter().map(|list| {
            let file = List::runs(list, &vec![1; list.len()]).unwrap();
            let memory = List::runs(&[0], &[list.len() as u64]).unwrap();
            Holding::new(&file, &memory).unwrap()
        });
        let moved = case.leave_rest(&simulation, 2, holdings.collect(), &memories);
        assert!(
            read_all(&case, &simulation, 3) == expected,
            "seed {seed}: {:?}",
            case.disk
        );
        written += moved.blocks;
    }
    assert!(written > SEEDS, "hardly a block was written");
}

#[test]
fn a_phantom_run_takes_the_same_time_as_a_real_one() {
    for seed in 0..20 {
        let (case, mut random) = Case::of(seed);
        let schema = memory_schema(&case.shape, case.clients, &mut random);
        let strategy = (strategy(&mut random), split(&mut random));
        let time = |is_real| {
            let mut preset = Preset::find("tocs97").unwrap();
            preset.nodes.clients = case.clients;
            preset.nodes.io_nodes = case.io_nodes;
            preset.nodes.disks = case.disks;
            let setup = Setup {
                layout: case.layout,
                slots: case.disk.conforming_blocks_max(case.servers),
                slot_bytes: case.disk.block_bytes_max(),
                is_disk_free: false,
                seed,
                is_real,
                is_traced: false,
            };
            let simulation = Simulation::new(&preset, &setup).unwrap();
            let memories: Vec<_> = (0..case.clients)
                .map(|rank| Rc::new(RefCell::new(case.share_bytes(&schema, rank))))
                .collect();
            case.run(
                &simulation,
                0,
                Operation::Write,
                strategy,
                (&schema, seed % 3 == 0),
                &memories,
            );
            (simulation.now(), simulation.totals().trace_hash)
        };
        assert_eq!(time(true), time(false), "seed {seed}");
    }
}

#[test]
fn a_block_of_padding_alone_is_left_alone() {
    // The region of a chunk beyond the array's end has no elements, and no strategy asks for it.
    let disk = DiskSchema::chunked(&[5], 4, &[4])
        .unwrap()
        .split(Split::Inner(vec![2]))
        .unwrap();
    let blocks: Vec<_> = disk
        .blocks_in(&Region::whole(&[5]))
        .map(|block| block.index)
        .collect();
    assert_eq!(blocks, [0, 1, 0]);
}
