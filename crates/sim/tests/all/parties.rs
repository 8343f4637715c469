//! Two parties on the same servers: each has its own data, and one goes on when the other breaks.
//! So it is whether rank 0 directs, or the servers stand and direct; then they finish what has been
//! handed over, whoever leaves.
//!
//! Each seed is one run; see `faults`.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::ready;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, LocalBoxFuture, select};
use penstock_engine::collective::chair::{Delegate, Office};
use penstock_engine::collective::client::Client;
use penstock_engine::collective::server::Servers;
use penstock_engine::collective::{Voice, difference};
use penstock_engine::encoding::{decode, encode};
use penstock_engine::{
    Access, Attendance, Call, Decision, Error, FileClient, FileId, FilePart, Kind, Machine,
    Opening, Operation, Order as FileOrder, Party, PartyId, Port, Proposal, RankParts, Request,
    Rest, Split, Tally, Traffic,
};
use penstock_layout::{DiskSchema, Dist, Distribution, Dists, MemorySchema, Order};
use penstock_sim::Span;
use penstock_sim::machine::{DiskFault, Faults, Layout, Loss, Moment, Setup, SimNode, Simulation};
use penstock_sim::preset::Preset;
use penstock_sim::random::Random;

use crate::directing;
use crate::seeds::{for_seeds, strategies};

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
    books: Rc<Books>,
    /// Whether a server of the first party loses it before its first call.
    is_forgotten: bool,
}

/// A call: the party, and the number among its calls.
type CallName = (u64, u64);

/// What becomes of calls to servers that stand.
#[derive(Default)]
struct Books {
    /// Whether each client has handed over its part of a split write.
    handed_over: RefCell<BTreeMap<CallName, Vec<Rc<Cell<bool>>>>>,
    /// The calls that a client, by rank, knows to have ended well.
    well: RefCell<BTreeSet<(CallName, usize)>>,
    /// Whether each call that was concluded has ended well.
    concluded: RefCell<BTreeMap<CallName, bool>>,
}

/// The office of the servers. An errand is a decision, and the call that comes to it.
struct Desk {
    books: Rc<Books>,
    servers: Vec<usize>,
}

/// The director of one call.
struct Decided {
    books: Rc<Books>,
    call: CallName,
    decision: Decision,
}

impl Books {
    /// Checks that servers have finished what all clients had handed over, and that nobody has
    /// heard of a good end that was none. Gives the number of calls that some rank has handed
    /// over, and was lost before it heard of the end.
    fn check(&self, lost: &[usize]) -> usize {
        let (concluded, well) = (self.concluded.borrow(), self.well.borrow());
        let mut unheard = 0;
        for (call, clients) in self.handed_over.borrow().iter() {
            let have_all = clients.len() == CLIENTS && clients.iter().all(|one| one.get());
            if have_all {
                assert_eq!(concluded.get(call), Some(&true), "{call:?} was handed over");
                let mut of_lost = lost.iter().filter(|_| call.0 == 1);
                unheard += usize::from(of_lost.any(|rank| !well.contains(&(*call, *rank))));
            }
        }
        for (call, _) in well.iter() {
            assert_ne!(concluded.get(call), Some(&false), "{call:?} has ended well");
        }
        unheard
    }
}

impl Office for Desk {
    fn is_server(&self, node: usize) -> bool {
        self.servers.contains(&node)
    }

    fn director_node(&self) -> Option<usize> {
        self.servers.first().copied()
    }

    fn check(&self, _party: &Party) -> Result<(), Error> {
        Ok(())
    }

    fn admit(&self, _party: &Party) {}

    fn director(&self, party: &Party, errand: Vec<u8>) -> Box<dyn Delegate> {
        let (number, decision): (u64, Decision) = decode(&errand).unwrap();
        Box::new(Decided {
            books: self.books.clone(),
            call: (party.id.0, number),
            decision,
        })
    }

    fn difference(&self, one: &Voice, other: &Voice) -> String {
        difference::<()>(one, other)
    }

    fn answer(
        &self,
        _party: &Party,
        question: Vec<u8>,
    ) -> LocalBoxFuture<'_, Result<Vec<u8>, Error>> {
        Box::pin(ready(Ok(question)))
    }

    fn close(&self, _party: PartyId) {}
}

impl Delegate for Decided {
    fn kind(&self) -> &'static str {
        "decided"
    }

    fn handed_over(&mut self) {}

    fn prepare(&mut self, _parts: RankParts) -> LocalBoxFuture<'_, Result<Decision, Error>> {
        Box::pin(ready(Ok(self.decision.clone())))
    }

    fn conclude(
        &mut self,
        outcome: Result<Tally, Error>,
    ) -> LocalBoxFuture<'_, Result<Traffic, Error>> {
        let mut concluded = self.books.concluded.borrow_mut();
        let before = concluded.insert(self.call, outcome.is_ok());
        assert_eq!(before, None, "concluded twice");
        Box::pin(ready(outcome.map(|done| done.moved)))
    }
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

/// Whether clients hand over their parts of what is decided, and may then leave.
fn is_handed_over(decision: &Decision) -> bool {
    let Decision::Serve(requests) = decision else {
        return false;
    };
    requests[0].operation == Operation::Write && requests[0].split.is_some()
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
        let (handed_over, name) = (Rc::new(Cell::new(false)), (self.party(), number));
        let client = Client::new(call, self.rank, &handed_over);
        let verdict = match self.attendance.party.stands {
            false => directing::run(client, self.rank, decision).await,
            true => {
                if is_handed_over(&decision) {
                    let mut known = self.books.handed_over.borrow_mut();
                    known.entry(name).or_default().push(handed_over.clone());
                }
                let errand = (self.rank == 0).then(|| encode(&(number, decision)).unwrap());
                let proposal = Proposal {
                    ask: (),
                    own_boxes: Vec::new(),
                    own: Vec::new(),
                    complaint: None,
                };
                client
                    .with_errand(errand)
                    .run(Ok(proposal).into(), None)
                    .await
            }
        };
        drop(exposed);
        verdict.map(|_| {
            self.books.well.borrow_mut().insert((name, self.rank));
        })
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
            if self.is_forgotten && self.party() == 1 {
                self.be_forgotten().await;
            }
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
        if self.attendance.party.stands {
            let question = vec![self.rank as u8, 7];
            let asked = self.attendance.ask(self.node, self.rank as u32, question);
            assert_eq!(asked.await?, [self.rank as u8, 7]);
        }
        let mut random = Random::of(self.seed, self.party());
        for step in 0..STEPS {
            let stands = self.attendance.party.stands;
            let all = match stands {
                true => strategies()[..1].to_vec(), // disk-directed
                false => strategies(),
            };
            let buffer_bytes_max = [16, 1 << 20][random.below(2) as usize];
            let split = (stands && random.below(2) == 0).then_some(Split { buffer_bytes_max });
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
                split: split.filter(|_| !is_of_file),
                file: is_of_file.then_some(file),
                rest: Rest::Fill(Vec::new()),
                sifting: None,
            };
            self.move_together(step, request).await?;
            self.move_alone(step, file).await?;
        }
        self.call(Decision::Order(FileOrder::Close(file)), None)
            .await?;
        self.call(Decision::Close(None), None).await
    }

    /// Lets another node with servers hear that the first one has left, and end the party.
    async fn be_forgotten(&self) {
        let party = &self.attendance.party;
        let [first, other, ..] = party.serving() else {
            unreachable!("there are two");
        };
        let all_calls = 0..u64::MAX;
        let error = Error::new(Kind::Peer, "working with another node", "it was away");
        let body = encode(&(*first, vec![all_calls], error)).unwrap();
        let departures = Port::new([party.id.0, u64::MAX, 0]);
        let told = self.node.send(*other, departures, body, None);
        told.await.unwrap();
        self.node.wait(Duration::from_secs(1)).await;
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

/// Runs two parties; servers that stand forget the first one, if so said.
fn run(
    seed: u64,
    faults: &Faults,
    stand: bool,
    is_forgotten: bool,
) -> (Ended, Vec<usize>, Rc<Books>) {
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
        let (id, servers) = (PartyId(party as u64), servers.clone());
        Arc::new(match stand {
            true => Party::of_standing(id, clients, servers),
            false => Party::new(id, clients, servers),
        })
    });
    let books = Rc::<Books>::default();
    let program = |node: SimNode| {
        let (party, ended) = (parties[node.me() / CLIENTS].clone(), ended.clone());
        let books = books.clone();
        async move {
            let attendance = Attendance::new(party);
            let player = Player {
                node: &node,
                attendance: &attendance,
                rank: node.me() % CLIENTS,
                seed,
                calls: Cell::new(0),
                tickets: Cell::new(0),
                books,
                is_forgotten,
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
        let desk = Desk {
            books: books.clone(),
            servers: servers.clone(),
        };
        async move {
            if stand {
                return Servers::standing(&node, Rc::new(desk), 64).run().await;
            }
            let servers = Servers::new(&node, attendance.clone(), 64);
            let (serving, listening) = (servers.run(), attendance.listen(&node));
            select(Box::pin(serving), Box::pin(listening)).await;
        }
    };
    simulation.run_with_servers(program, server).unwrap();
    (ended.take(), simulation.lost(), books)
}

#[test]
fn two_parties_have_their_own_data() {
    for_seeds("two_parties_have_their_own_data", 1, |seed| {
        let late_max = Span::from_ms(seed % 2);
        let faults = Faults {
            late_max,
            ..Faults::default()
        };
        let (ended, ..) = run(seed, &faults, seed % 3 == 0, false);
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
        let stand = seed % 2 == 0;
        let (ended, lost, books) = run(seed, &faults, stand, false);
        if stand {
            books.check(&lost);
        }
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

#[test]
fn servers_that_stand_finish_what_was_handed_over() {
    let test = "servers_that_stand_finish_what_was_handed_over";
    let unheard = Cell::new(0);
    for_seeds(test, 1, |seed| {
        let loss = Loss {
            node: (seed % CLIENTS as u64) as usize,
            at: Moment::Event(1 + seed * 15),
        };
        let faults = Faults {
            losses: vec![loss],
            notice_max: Span::from_ms([0, 1, 20][(seed / 3 % 3) as usize]),
            disks: (0..3).map(|disk| (disk, DiskFault::Slow(9))).collect(),
            ..Faults::default()
        };
        let (ended, lost, books) = run(seed, &faults, true, false);
        let of_b = &ended[CLIENTS..];
        assert!(of_b.iter().all(|end| *end == Some(Ok(()))), "{of_b:?}");
        unheard.set(unheard.get() + books.check(&lost));
        seed < 300
    });
    let is_one_seed = std::env::var("PENSTOCK_SEED").is_ok();
    assert!(is_one_seed || unheard.get() > 5, "{} calls", unheard.get());
}

/// A server was away after it had ended a party, and before another heard of it: whoever directs
/// does not wait for it.
#[test]
fn a_party_that_a_server_has_forgotten_hears_of_it() {
    let test = "a_party_that_a_server_has_forgotten_hears_of_it";
    for_seeds(test, 1, |seed| {
        let faults = Faults {
            late_max: Span::from_ms(seed % 2),
            ..Faults::default()
        };
        let (ended, ..) = run(seed, &faults, true, true);
        let (of_a, of_b) = ended.split_at(CLIENTS);
        assert!(of_b.iter().all(|end| *end == Some(Ok(()))), "{of_b:?}");
        for end in of_a {
            let error = end.clone().unwrap().unwrap_err();
            assert!(error.cause.contains("open it again"), "{error}");
        }
        seed < 100
    });
}
