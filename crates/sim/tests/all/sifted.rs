//! Sifted reads on the simulated machine: what sieves let through comes to its ranks, whole, once,
//! and with few messages under way; records are dealt out evenly.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Mutex;

use futures::future::{Either, select};
use penstock_engine::collective::client::Client;
use penstock_engine::collective::server::Servers;
use penstock_engine::sieve::Nothing;
use penstock_engine::{
    Attendance, Call, Catch, Decision, Error, Kind, Machine, Operation, Request, Rest, Result,
    Sifting, Strategy, Traffic,
};
use penstock_layout::{DiskSchema, Distribution, MemorySchema};
use penstock_sim::Span;
use penstock_sim::machine::{
    DiskFault, Faults, Layout, Loss, Moment, Selectivity, Setup, SimNode, Simulation,
};
use penstock_sim::preset::Preset;

use crate::directing;

const SHAPE: [u64; 2] = [40, 50];
const WIDTH: u64 = 4;

/// All bytes that come, by server; as records, they are of one element.
#[derive(Default)]
struct Bytes {
    by_server: Mutex<Vec<Vec<u8>>>,
    dealt: Mutex<Vec<u8>>,
}

impl Bytes {
    fn all(&self) -> Vec<u8> {
        self.by_server.lock().unwrap().concat()
    }
}

impl Catch for Bytes {
    fn take(&self, server: usize, bytes: &[u8]) -> Result<()> {
        let mut all = self.by_server.lock().unwrap();
        let servers = all.len().max(server + 1);
        all.resize(servers, Vec::new());
        all[server].extend_from_slice(bytes);
        Ok(())
    }

    fn count(&self) -> Result<u64> {
        Ok(self.all().len() as u64 / WIDTH)
    }

    fn cut(&self, records: Range<u64>) -> Result<Vec<u8>> {
        let part = (records.start * WIDTH) as usize..(records.end * WIDTH) as usize;
        Ok(self.all()[part].to_vec())
    }

    fn keep(&self, records: &[u8]) -> Result<()> {
        self.dealt.lock().unwrap().extend_from_slice(records);
        Ok(())
    }
}

/// A catch that takes nothing.
struct Refusing;

impl Catch for Refusing {
    fn take(&self, _: usize, _: &[u8]) -> Result<()> {
        Err(Error::new(Kind::Io, "taking", "there is no room"))
    }

    fn count(&self) -> Result<u64> {
        Ok(0)
    }

    fn cut(&self, _: Range<u64>) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }

    fn keep(&self, _: &[u8]) -> Result<()> {
        Ok(())
    }
}

/// A catch that has records, and does not give them.
struct Stingy;

impl Catch for Stingy {
    fn take(&self, _: usize, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn count(&self) -> Result<u64> {
        Ok(9)
    }

    fn cut(&self, _: Range<u64>) -> Result<Vec<u8>> {
        Err(Error::new(Kind::Io, "cutting", "there is nothing"))
    }

    fn keep(&self, _: &[u8]) -> Result<()> {
        Ok(())
    }
}

struct Bench {
    simulation: Simulation,
    memory: MemorySchema,
    request: Request,
}

impl Bench {
    fn new(nodes: (usize, usize, usize), disk: &DiskSchema) -> Self {
        Self::with_faults(nodes, disk, &Faults::default())
    }

    fn with_faults(
        (clients, io_nodes, disks): (usize, usize, usize),
        disk: &DiskSchema,
        faults: &Faults,
    ) -> Self {
        let mut preset = Preset::find("tocs97").unwrap();
        preset.nodes.clients = clients;
        preset.nodes.io_nodes = io_nodes;
        preset.nodes.disks = disks;
        let setup = Setup {
            layout: Layout::RandomBlocks,
            slots: disk.conforming_blocks_max(disks),
            slot_bytes: disk.block_bytes_max(),
            is_disk_free: false,
            seed: 1,
            is_real: true,
            is_traced: false,
        };
        let dists = "BLOCK,CYCLIC(3)".parse().unwrap();
        let memory = Distribution::new(&SHAPE, &dists, &[clients as u64, 1]).unwrap();
        let memory = MemorySchema::from(memory);
        let request = Request {
            operation: Operation::Write,
            strategy: Strategy::default(),
            holders: memory.clone().into(),
            disk: disk.clone(),
            target: Vec::new(),
            servers: disks,
            sync: true,
            split: None,
            file: None,
            rest: Rest::Fill(Vec::new()),
            sifting: None,
        };
        Self {
            simulation: Simulation::with_faults(&preset, &setup, faults).unwrap(),
            memory,
            request,
        }
    }

    /// The bytes that a rank holds: each element is its number in the array.
    fn held(&self, rank: usize) -> Vec<u8> {
        let share = self.memory.share(rank);
        let [rows, columns] = [0, 1].map(|d| share.dims()[d]);
        let mut bytes = Vec::new();
        for row in 0..rows.extent() {
            for column in 0..columns.extent() {
                let number = rows.index(row) * SHAPE[1] + columns.index(column);
                bytes.extend((number as u32).to_le_bytes());
            }
        }
        bytes
    }

    /// Runs a call, and gives its end on each rank.
    fn run(&self, id: u64, request: &Request, catches: &[Rc<dyn Catch>]) -> Vec<Result<Traffic>> {
        let party = self.simulation.party().clone();
        let ends = Rc::new(RefCell::new(vec![Ok(Traffic::default()); catches.len()]));
        let program = |node: SimNode| {
            let rank = party.rank(node.me()).unwrap();
            let (request, party, ends) = (request.clone(), party.clone(), ends.clone());
            let (catch, share) = (catches[rank].clone(), self.memory.share(rank));
            let held = Some(Rc::new(RefCell::new(self.held(rank))));
            async move {
                let attendance = Attendance::new(party);
                let call = Call::new(&node, &attendance, id);
                let _exposure = node.expose(call.id.memory(0), (share, held));
                let handed_over = Cell::new(false);
                let client = Client::new(call, rank, &handed_over).with_catch(&*catch);
                let calling = directing::run(client, rank, Decision::Serve(vec![request]));
                let listening = attendance.listen(&node);
                let ended = match select(Box::pin(calling), Box::pin(listening)).await {
                    Either::Left((ended, _)) => ended,
                    Either::Right(_) => unreachable!("listening goes on"),
                };
                ends.borrow_mut()[rank] = ended.map(|verdict| verdict.moved);
            }
        };
        let server = |node: SimNode| {
            let attendance = Rc::new(Attendance::new(party.clone()));
            async move {
                let servers = Servers::new(&node, attendance.clone(), 0);
                let (serving, listening) = (servers.run(), attendance.listen(&node));
                select(Box::pin(serving), Box::pin(listening)).await;
            }
        };
        self.simulation.run_with_servers(program, server).unwrap();
        ends.take()
    }

    fn sifting(&self, selectivity: Selectivity, is_dealt: bool) -> Request {
        Request {
            operation: Operation::Read,
            sifting: Some(Sifting {
                words: selectivity.words().unwrap(),
                is_dealt,
            }),
            ..self.request.clone()
        }
    }
}

/// Catches that take nothing, one for each rank.
fn nobody(ranks: usize) -> Vec<Rc<dyn Catch>> {
    (0..ranks)
        .map(|_| Rc::new(Nothing) as Rc<dyn Catch>)
        .collect()
}

fn numbers(bytes: &[u8]) -> Vec<u32> {
    let mut numbers: Vec<u32> = bytes
        .chunks(WIDTH as usize)
        .map(|number| u32::from_le_bytes(number.try_into().unwrap()))
        .collect();
    numbers.sort_unstable();
    numbers
}

const ALL: Selectivity = Selectivity {
    of: 1,
    kept: 1,
    index_bytes: 0,
    dealt_to: None,
};

fn benches() -> Vec<Bench> {
    let disks = [
        DiskSchema::chunked(&SHAPE, WIDTH, &[7, 9]).unwrap(),
        DiskSchema::chunked(&SHAPE, WIDTH, &[1, 2]).unwrap(),
        DiskSchema::chunked(&SHAPE, WIDTH, &SHAPE).unwrap(),
    ];
    let machines = [(1, 1, 1), (3, 2, 2), (4, 1, 3), (2, 3, 5)];
    let all = disks
        .iter()
        .flat_map(|disk| machines.map(|machine| Bench::new(machine, disk)));
    all.collect()
}

#[test]
fn what_goes_through_comes_to_its_rank() {
    for bench in benches() {
        let ranks = bench.memory.ranks();
        let nobody: Vec<Rc<dyn Catch>> = nobody(ranks);
        bench.run(0, &bench.request, &nobody);
        let catches: Vec<Rc<Bytes>> = (0..ranks).map(|_| Rc::default()).collect();
        let given: Vec<Rc<dyn Catch>> = catches.iter().map(|c| c.clone() as _).collect();
        let ends = bench.run(1, &bench.sifting(ALL, false), &given);
        let all = SHAPE[0] * SHAPE[1] * WIDTH;
        for (rank, catch) in catches.iter().enumerate() {
            assert_eq!(numbers(&catch.all()), numbers(&bench.held(rank)));
            assert_eq!(ends[rank].clone().unwrap().delivered_bytes, all);
            assert!(ends[rank].clone().unwrap().disk_bytes >= all);
        }
    }
}

#[test]
fn records_are_dealt_out_evenly_in_the_order_of_ranks() {
    for bench in benches() {
        let ranks = bench.memory.ranks();
        let nobody: Vec<Rc<dyn Catch>> = nobody(ranks);
        bench.run(0, &bench.request, &nobody);
        for kept in [0, 1, 3] {
            let catches: Vec<Rc<Bytes>> = (0..ranks).map(|_| Rc::default()).collect();
            let given: Vec<Rc<dyn Catch>> = catches.iter().map(|c| c.clone() as _).collect();
            let selectivity = Selectivity { of: 3, kept, ..ALL };
            let id = 1 + kept;
            let ends = bench.run(id, &bench.sifting(selectivity, true), &given);
            assert!(ends.iter().all(Result::is_ok));
            let got: Vec<u8> = catches.iter().flat_map(|catch| catch.all()).collect();
            let dealt: Vec<Vec<u8>> = catches
                .iter()
                .map(|c| c.dealt.lock().unwrap().clone())
                .collect();
            assert_eq!(dealt.concat(), got);
            let counts = || dealt.iter().map(|own| own.len() as u64 / WIDTH);
            assert!(counts().max().unwrap() - counts().min().unwrap() <= 1);
        }
    }
}

#[test]
fn few_elements_take_few_messages() {
    let disk = DiskSchema::chunked(&SHAPE, WIDTH, &[7, 9]).unwrap();
    let bench = Bench::new((4, 2, 2), &disk);
    let nobody: Vec<Rc<dyn Catch>> = nobody(4);
    let sent = |id, selectivity| {
        let before = bench.simulation.totals().messages;
        let ends = bench.run(id, &bench.sifting(selectivity, false), &nobody);
        (
            bench.simulation.totals().messages - before,
            ends[0].clone().unwrap(),
        )
    };
    let (all, moved) = sent(1, ALL);
    let (none, nothing) = sent(2, Selectivity { kept: 0, ..ALL });
    // One message from each server to each client, and its answer, fewer.
    assert_eq!((moved.transfers, nothing.transfers), (2 * 4, 0));
    assert_eq!(all - none, 2 * 2 * 4);
    assert_eq!(nothing.delivered_bytes, 0);
}

#[test]
fn a_client_that_cannot_take_is_the_error_of_all() {
    for is_dealt in [false, true] {
        let disk = DiskSchema::chunked(&SHAPE, WIDTH, &[7, 9]).unwrap();
        let bench = Bench::new((3, 2, 2), &disk);
        let mut catches: Vec<Rc<dyn Catch>> = nobody(3);
        catches[2] = Rc::new(Refusing);
        let ends = bench.run(1, &bench.sifting(ALL, is_dealt), &catches);
        for end in &ends {
            let error = end.clone().unwrap_err();
            assert_eq!(error.cause, "there is no room");
        }
        let catches: Vec<Rc<dyn Catch>> = nobody(3);
        let next = bench.run(2, &bench.sifting(ALL, is_dealt), &catches);
        assert!(next.iter().all(Result::is_ok), "the next call is as ever");
    }
}

/// The errors of ranks that are left, which are alike.
fn error_of_all(ends: &[Result<Traffic>], lost: Option<usize>) -> Option<Error> {
    let left = ends
        .iter()
        .enumerate()
        .filter(|(rank, _)| Some(*rank) != lost);
    let errors: Vec<&Error> = left.filter_map(|(_, end)| end.as_ref().err()).collect();
    assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
    errors.first().map(|error| (*error).clone())
}

#[test]
fn a_node_is_lost_at_any_message_and_nobody_hangs() {
    let disk = DiskSchema::chunked(&SHAPE, WIDTH, &[7, 9]).unwrap();
    let mut errors = 0;
    for seed in 0..600 {
        let (node, message) = ((seed % 5) as usize, 1 + seed / 5);
        let faults = Faults {
            losses: vec![Loss {
                node,
                at: Moment::Message(message),
            }],
            notice_max: Span::from_us([0, 50, 1_000, 20_000][(seed % 4) as usize]),
            ..Faults::default()
        };
        let bench = Bench::with_faults((3, 2, 3), &disk, &faults);
        let catches: Vec<Rc<dyn Catch>> = nobody(3);
        let ends = bench.run(0, &bench.sifting(ALL, seed % 3 == 0), &catches);
        if let Some(error) = error_of_all(&ends, Some(node)) {
            assert_eq!(error.kind, Kind::Peer);
            let named = format!("node {node} is lost");
            assert!(error.cause.contains(&named), "seed {seed}: {error}");
            errors += 1;
        }
    }
    assert!(errors > 50, "{errors} losses are in the call");
}

#[test]
fn late_messages_change_nothing() {
    let disk = DiskSchema::chunked(&SHAPE, WIDTH, &[7, 9]).unwrap();
    for is_dealt in [false, true] {
        let faults = Faults {
            late_max: Span::from_ms(2),
            ..Faults::default()
        };
        let bench = Bench::with_faults((3, 2, 4), &disk, &faults);
        let nobody: Vec<Rc<dyn Catch>> = nobody(3);
        bench.run(0, &bench.request, &nobody);
        let catches: Vec<Rc<Bytes>> = (0..3).map(|_| Rc::default()).collect();
        let given: Vec<Rc<dyn Catch>> = catches.iter().map(|c| c.clone() as _).collect();
        let ends = bench.run(1, &bench.sifting(ALL, is_dealt), &given);
        assert_eq!(error_of_all(&ends, None), None);
        for (rank, catch) in catches.iter().enumerate() {
            assert_eq!(numbers(&catch.all()), numbers(&bench.held(rank)));
        }
    }
}

#[test]
fn the_error_of_a_disk_is_that_of_all_ranks() {
    let disk = DiskSchema::chunked(&SHAPE, WIDTH, &[7, 9]).unwrap();
    for (request, is_dealt) in [(1, false), (3, false), (2, true)] {
        let faults = Faults {
            disks: vec![(1, DiskFault::Failing(request))],
            ..Faults::default()
        };
        let bench = Bench::with_faults((3, 2, 3), &disk, &faults);
        let catches: Vec<Rc<dyn Catch>> = nobody(3);
        let ends = bench.run(0, &bench.sifting(ALL, is_dealt), &catches);
        assert!(ends.iter().all(Result::is_err));
        assert_eq!(error_of_all(&ends, None).unwrap().kind, Kind::Io);
    }
}

#[test]
fn a_client_that_cannot_deal_keeps_nobody_waiting() {
    let disk = DiskSchema::chunked(&SHAPE, WIDTH, &[7, 9]).unwrap();
    for stingy in 0..3 {
        let bench = Bench::new((3, 1, 1), &disk);
        let mut catches: Vec<Rc<dyn Catch>> = nobody(3);
        catches[stingy] = Rc::new(Stingy);
        let ends = bench.run(0, &bench.sifting(ALL, true), &catches);
        assert!(ends.iter().all(Result::is_err));
        assert!(error_of_all(&ends, None).is_some());
    }
}

#[test]
fn requests_that_cannot_be_sifted_are_refused() {
    let disk = DiskSchema::chunked(&SHAPE, WIDTH, &[7, 9]).unwrap();
    let bench = Bench::new((2, 1, 1), &disk);
    let party = bench.simulation.party();
    let sifting = bench.sifting(ALL, false);
    assert!(sifting.check(party).is_ok());
    let write = Request {
        operation: Operation::Write,
        ..sifting.clone()
    };
    let alone = Request {
        strategy: Strategy::Independent,
        ..sifting
    };
    for request in [write, alone] {
        assert_eq!(request.check(party).unwrap_err().kind, Kind::Schema);
    }
}
