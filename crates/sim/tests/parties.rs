//! Two parties on the same servers: each has its own data, and one goes on when the other breaks.
//!
//! Each seed is one run; see `faults`.

mod directing;
mod seeds;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use futures::future::{Either, select};
use penstock_engine::collective::client::Client;
use penstock_engine::collective::server::Servers;
use penstock_engine::{
    Access, Attendance, Call, Decision, Error, FileClient, FileId, FilePart, Kind, Machine,
    Opening, Operation, Order as FileOrder, Party, PartyId, Request, Rest,
};
use penstock_layout::{DiskSchema, Dist, Distribution, Dists, MemorySchema, Order};
use penstock_sim::Span;
use penstock_sim::machine::{Faults, Layout, Loss, Moment, Setup, SimNode, Simulation};
use penstock_sim::preset::Preset;
use penstock_sim::random::Random;
use seeds::{for_seeds, strategies};

/// The clients of each party.
const CLIENTS: usize = 3;
const ELEMENTS: u64 = 60;
const STEPS: u64 = 4;

/// One client of a party.
struct Player<'a> {
    node: &'a SimNode,
    attendance: &'a Attendance,
    rank: usize,
    seed: u64,
    calls: Cell<u64>,
    tickets: Cell<u64>,
}

type Memory = Rc<RefCell<Vec<u8>>>;

fn disk() -> DiskSchema {
    DiskSchema::flat(&[ELEMENTS], 2, Order::RowMajor, 16).unwrap()
}

fn memory_schema(cyclic: bool) -> MemorySchema {
    let dist = [Dist::Block, Dist::Cyclic(3)][usize::from(cyclic)];
    let distribution = Distribution::new(&[ELEMENTS], &Dists(vec![dist]), &[CLIENTS as u64]);
    distribution.unwrap().into()
}

impl Player<'_> {
    fn party(&self) -> u64 {
        self.attendance.party.id.0
    }

    async fn call(&self, decision: Decision, memory: Option<&Memory>) -> Result<(), Error> {
        let number = self.calls.get();
        self.calls.set(number + 1);
        let call = Call::new(self.node, self.attendance, number);
        let exposed = match (&decision, memory) {
            (Decision::Serve(requests), Some(memory)) => {
                let share = requests[0].holders.share(self.rank);
                Some(
                    self.node
                        .expose(call.id.memory(0), (share, Some(memory.clone()))),
                )
            }
            _ => None,
        };
        let handed_over = Cell::new(false);
        let client = Client::new(call, self.rank, &handed_over);
        let verdict = directing::run(client, self.rank, decision)
            .await
            .map(|_| ());
        drop(exposed);
        verdict
    }

    /// New elements for this rank's share.
    fn elements(&self, step: u64, bytes: u64) -> Vec<u8> {
        let first = self.party() * 100 + self.rank as u64 * 31 + step * 7;
        (0..bytes).map(|byte| (first + byte) as u8).collect()
    }

    /// Joins, writes and reads together and alone, and closes.
    async fn play(&self) -> Result<(), Error> {
        if self.rank == 0 {
            self.attendance.join(self.node).await?;
        }
        let file = FileId {
            party: self.attendance.party.id,
            number: 0,
        };
        let opening = Opening {
            target: vec![self.party() as u8, 1],
            disk: disk(),
            access: Access::Update,
            sync: true,
            server: 0,
            servers: self.attendance.party.servers.len(),
        };
        let open = FileOrder::Open { file, opening };
        self.call(Decision::Order(open), None).await?;
        let mut random = Random::of(self.seed, self.party());
        for step in 0..STEPS {
            let all = strategies();
            let strategy = all[random.below(all.len() as u64) as usize];
            let memory = memory_schema(random.below(2) == 1);
            let is_of_file = random.below(3) == 0;
            let request = Request {
                operation: Operation::Write,
                strategy: if is_of_file { all[0] } else { strategy },
                holders: memory.into(),
                disk: disk(),
                target: vec![self.party() as u8],
                servers: self.attendance.party.servers.len(),
                sync: true,
                split: None,
                file: is_of_file.then_some(file),
                rest: Rest::Fill(Vec::new()),
            };
            self.move_together(step, request).await?;
            self.move_alone(step, file).await?;
        }
        self.call(Decision::Order(FileOrder::Close(file)), None)
            .await?;
        self.call(Decision::Close(None), None).await
    }

    /// Writes with all others, and reads back.
    async fn move_together(&self, step: u64, request: Request) -> Result<(), Error> {
        let bytes = 2 * request.holders.share(self.rank).elements();
        let written = self.elements(step, bytes);
        let memory = Rc::new(RefCell::new(written.clone()));
        self.call(Decision::Serve(vec![request.clone()]), Some(&memory))
            .await?;
        memory.borrow_mut().fill(0);
        let read = Request {
            operation: Operation::Read,
            ..request
        };
        self.call(Decision::Serve(vec![read]), Some(&memory))
            .await?;
        assert_eq!(*memory.borrow(), written, "together");
        Ok(())
    }

    /// Writes the own part of the open file, and reads it back.
    async fn move_alone(&self, step: u64, file: FileId) -> Result<(), Error> {
        let share = memory_schema(false).share(self.rank);
        let written = self.elements(step + 50, 2 * share.elements());
        let memory = Rc::new(RefCell::new(written.clone()));
        let (disk, servers) = (disk(), self.attendance.party.servers.len());
        let client = FileClient::new(
            self.node,
            self.attendance,
            file,
            (&disk, servers),
            &self.tickets,
        );
        for operation in [Operation::Write, Operation::Read] {
            let id = file.memory(self.tickets.get());
            let held = (share.clone(), Some(memory.clone()));
            let _exposed = self.node.expose(id, held);
            let part = FilePart::Share(share.clone());
            client.transfer(operation, &part, id).await?;
            if operation == Operation::Write {
                memory.borrow_mut().fill(0);
            }
        }
        assert_eq!(*memory.borrow(), written, "alone");
        Ok(())
    }
}

/// How each client ended, by node.
type Ended = Vec<Option<Result<(), Error>>>;

fn run(seed: u64, faults: &Faults) -> (Ended, Vec<usize>) {
    let mut preset = Preset::find("tocs97").unwrap();
    preset.nodes.clients = 2 * CLIENTS;
    preset.nodes.io_nodes = 2;
    preset.nodes.disks = 3;
    let setup = Setup {
        layout: Layout::RandomBlocks,
        slots: 100,
        slot_bytes: 16,
        is_disk_free: false,
        seed,
        is_real: true,
        is_traced: false,
    };
    let simulation = Simulation::with_faults(&preset, &setup, faults).unwrap();
    let ended: Rc<RefCell<Ended>> = Rc::new(RefCell::new(vec![None; 2 * CLIENTS]));
    let servers = simulation.party().servers.clone();
    let parties = [1, 2].map(|party: usize| {
        let clients = ((party - 1) * CLIENTS..party * CLIENTS).collect();
        Arc::new(Party::new(PartyId(party as u64), clients, servers.clone()))
    });
    let program = |node: SimNode| {
        let (party, ended) = (parties[node.me() / CLIENTS].clone(), ended.clone());
        async move {
            let attendance = Attendance::new(party);
            let player = Player {
                node: &node,
                attendance: &attendance,
                rank: node.me() % CLIENTS,
                seed,
                calls: Cell::new(0),
                tickets: Cell::new(0),
            };
            let playing = Box::pin(player.play());
            let listening = Box::pin(attendance.listen(&node));
            let verdict = match select(playing, listening).await {
                Either::Left((verdict, _)) => verdict,
                Either::Right(_) => unreachable!("listening goes on"),
            };
            ended.borrow_mut()[node.me()] = Some(verdict);
        }
    };
    // The party of the servers alone, which never closes.
    let house = Arc::new(Party::new(PartyId(0), Vec::new(), servers.clone()));
    let server = |node: SimNode| {
        let attendance = Rc::new(Attendance::new(house.clone()));
        async move {
            let servers = Servers::new(&node, attendance.clone(), 64);
            let (serving, listening) = (servers.run(), attendance.listen(&node));
            select(Box::pin(serving), Box::pin(listening)).await;
        }
    };
    simulation.run_with_servers(program, server).unwrap();
    (ended.take(), simulation.lost())
}

#[test]
fn two_parties_have_their_own_data() {
    for_seeds("two_parties_have_their_own_data", 1, |seed| {
        let late_max = Span::from_ms(seed % 2);
        let faults = Faults {
            late_max,
            ..Faults::default()
        };
        let (ended, _) = run(seed, &faults);
        assert!(ended.iter().all(|end| *end == Some(Ok(()))), "{ended:?}");
        seed < 200
    });
}

#[test]
fn a_party_goes_on_when_another_loses_a_client() {
    let test = "a_party_goes_on_when_another_loses_a_client";
    for_seeds(test, 23, |seed| {
        let (node, message) = ((seed % CLIENTS as u64) as usize, 1 + seed / 8);
        let faults = Faults {
            losses: vec![Loss {
                node,
                at: Moment::Message(message),
            }],
            notice_max: Span::from_ms([0, 1, 20][(seed / 3 % 3) as usize]),
            ..Faults::default()
        };
        let (ended, lost) = run(seed, &faults);
        let (of_a, of_b) = ended.split_at(CLIENTS);
        assert!(of_b.iter().all(|end| *end == Some(Ok(()))), "{of_b:?}");
        for (rank, end) in of_a.iter().enumerate() {
            match end {
                None => assert_eq!(lost, [rank]),
                Some(Ok(())) => {}
                Some(Err(error)) => {
                    assert_eq!(error.kind, Kind::Peer, "rank {rank}: {error}");
                    let is_named = error.cause == format!("node {node} is lost");
                    assert!(is_named, "rank {rank}: {error}");
                }
            }
        }
        seed < 8_000
    });
}
