//! Independent and collective requests on one open file see each other's data.
//!
//! Clients of a simulated job read and write random boxes of a file that its servers keep open,
//! through a cache that holds a few blocks at most. Now and then all of them write or read it
//! together. Every write has a number of its own, and puts it into each of its elements, so that a
//! read tells which write it has seen. A read must see, of each element, a write that had begun
//! when the read ended, and that no other write had followed when the read began.
//!
//! The same with messages that are late; and with a client that is lost at a random message: the
//! others then succeed or hear of it, and the servers give back all that they had.
//!
//! A failure prints its seed: `PENSTOCK_SEED=<seed> cargo test -p penstock-sim open_files::`
//! runs that one alone, and `PENSTOCK_SEEDS=100000` in its place runs that number of seeds.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use futures::future::{Either, select};
use penstock_engine::collective::client::Client;
use penstock_engine::collective::server::Servers;
use penstock_engine::encoding::encode;
use penstock_engine::{
    Access, Attendance, Call, Decision, Error, FileClient, FileId, FilePart, Holders, Machine,
    MemoryId, Opening, Operation, Order as FileOrder, Port, Request, Rest, Strategy,
};
use penstock_layout::{
    DiskSchema, Distribution, Holding, List, MemorySchema, Order, Region, Share, Split,
};
use penstock_sim::Span;
use penstock_sim::machine::{Faults, Layout, Loss, Moment, Setup, SimNode, Simulation};
use penstock_sim::preset::Preset;
use penstock_sim::random::Random;

use crate::directing;

const WIDTH: u64 = 8;
const STEPS: u64 = 12;

/// A request on some elements, by place in row-major order, with the number that each had.
struct Event {
    operation: Operation,
    begun: u64,
    ended: u64,
    elements: Vec<(usize, u64)>,
}

/// A case is one job with one file.
struct Case {
    seed: u64,
    clients: usize,
    disks: usize,
    servers: usize,
    cache_bytes: u64,
    shape: Vec<u64>,
    disk: DiskSchema,
}

/// A share that a client exposes, with its memory.
type Exposed = (Share, Rc<RefCell<Vec<u8>>>);

/// The elements that a client moves in one request.
struct Part {
    /// Their places in the array, in the order of the memory.
    places: Vec<usize>,
    /// The share of the memory.
    share: Share,
    /// The list, if the elements are one.
    list: Option<Arc<Holding>>,
}

impl Part {
    fn of_share(case: &Case, share: Share) -> Self {
        let places = match share.elements() {
            0 => Vec::new(),
            _ => case.places(&share),
        };
        Self {
            places,
            share,
            list: None,
        }
    }

    /// The list of elements at these places, in this order.
    fn of_list(places: Vec<usize>) -> Self {
        let offsets: Vec<u64> = places.iter().map(|&place| place as u64).collect();
        let file = List::runs(&offsets, &vec![1; places.len()]).unwrap();
        let memory = List::runs(&[0], &[places.len() as u64]).unwrap();
        Self {
            share: Share::of_box(&Region::whole(&[places.len() as u64])),
            list: Some(Arc::new(Holding::new(&file, &memory).unwrap())),
            places,
        }
    }

    fn of_file(&self) -> FilePart {
        match &self.list {
            Some(list) => FilePart::List(list.clone()),
            None => FilePart::Share(self.share.clone()),
        }
    }
}

/// One client of a case.
struct Player<'a> {
    case: &'a Case,
    node: &'a SimNode,
    attendance: &'a Attendance,
    rank: usize,
    events: &'a RefCell<Vec<Event>>,
    writes: &'a Cell<u64>,
    calls: Cell<u64>,
    tickets: Cell<u64>,
}

impl Case {
    fn of(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let shape: Vec<u64> = (0..random.below(3)).map(|_| 1 + random.below(9)).collect();
        let chunk: Vec<u64> = shape.iter().map(|_| 1 + random.below(4)).collect();
        let bytes_max = WIDTH * (1 + random.below(6));
        let disk = match random.below(3) {
            0 => DiskSchema::flat(&shape, WIDTH, Order::RowMajor, bytes_max),
            1 => DiskSchema::chunked(&shape, WIDTH, &chunk),
            _ => DiskSchema::chunked(&shape, WIDTH, &chunk)
                .and_then(|disk| disk.split(Split::Contiguous(bytes_max))),
        };
        let (disk, disks) = (disk.unwrap(), 1 + random.below(3) as usize);
        Self {
            seed,
            clients: 1 + random.below(4) as usize,
            servers: 1 + random.below(disks as u64) as usize,
            cache_bytes: disk.block_bytes_max() * random.below(4),
            disks,
            shape,
            disk,
        }
    }

    const FILE: FileId = FileId {
        party: penstock_engine::PartyId(0),
        number: 0,
    };

    fn simulation(&self, faults: &Faults) -> Simulation {
        let mut preset = Preset::find("tocs97").unwrap();
        preset.nodes.clients = self.clients;
        preset.nodes.io_nodes = 1 + self.disks / 2;
        preset.nodes.disks = self.disks;
        let setup = Setup {
            layout: Layout::Contiguous,
            slots: self.disk.conforming_blocks_max(self.servers),
            slot_bytes: self.disk.block_bytes_max(),
            is_disk_free: false,
            seed: self.seed,
            is_real: true,
            is_traced: false,
        };
        Simulation::with_faults(&preset, &setup, faults).unwrap()
    }

    fn request(&self, operation: Operation, holders: Holders) -> Request {
        Request {
            operation,
            strategy: Strategy::default(),
            holders,
            disk: self.disk.clone(),
            target: Vec::new(),
            file: Some(Self::FILE),
            servers: self.servers,
            sync: true,
            split: None,
            rest: Rest::Keep,
            sifting: None,
        }
    }

    fn memory(&self, random: &mut Random) -> MemorySchema {
        let dists = self.shape.iter().map(|_| "*").collect::<Vec<_>>().join(",");
        let mesh = match self.shape.first() {
            Some(_) => vec![1 + random.below(self.clients as u64)],
            None => vec![],
        };
        let kind = ["BLOCK", "CYCLIC", "CYCLIC(2)"][random.below(3) as usize];
        let dists = dists.replacen('*', kind, 1);
        let dists = dists.parse().unwrap();
        Distribution::new(&self.shape, &dists, &mesh)
            .unwrap()
            .into()
    }

    /// The places of the elements of a share, in the order of its memory.
    fn places(&self, share: &Share) -> Vec<usize> {
        let mut places = vec![0];
        for (dim, extent) in share.dims().iter().zip(&self.shape) {
            let indices = (0..dim.extent()).map(|memory| dim.index(memory));
            let indices: Vec<u64> = indices.collect();
            let deeper = |place: usize| {
                let here = indices.iter();
                here.map(move |&index| place * *extent as usize + index as usize)
            };
            places = places.into_iter().flat_map(deeper).collect();
        }
        places
    }

    fn run(&self, faults: &Faults) {
        let simulation = self.simulation(faults);
        let (events, writes) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Cell::new(0)));
        let party = simulation.party().clone();
        let this: Rc<Case> = Rc::new(Case::of(self.seed));
        let gone = faults.losses.first().map(|loss| loss.node);
        let (has_heard, idle) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
        let program = |node: SimNode| {
            let (events, writes, party) = (events.clone(), writes.clone(), party.clone());
            let (this, rank) = (this.clone(), party.rank(node.me()).unwrap());
            let has_heard = has_heard.clone();
            async move {
                let attendance = Attendance::new(party);
                let player = Player {
                    case: &this,
                    node: &node,
                    attendance: &attendance,
                    rank,
                    events: &events,
                    writes: &writes,
                    calls: Cell::new(0),
                    tickets: Cell::new(0),
                };
                let playing = Box::pin(player.play());
                let ended = match select(playing, Box::pin(attendance.listen(&node))).await {
                    Either::Left((ended, _)) => ended,
                    Either::Right(_) => unreachable!("listening goes on"),
                };
                assert_eq!(node.buffer_bytes(), 0, "{}", this.replay());
                if let Err(error) = ended {
                    has_heard.set(true);
                    let is_named = gone.is_some_and(|gone| error.cause.contains(&lost(gone)));
                    assert!(is_named, "{}: {error}", this.replay());
                    node.sleep(Span::from_ms(60_000)).await; // the servers clear up
                }
            }
        };
        let server = |node: SimNode| {
            let attendance = Rc::new(Attendance::new(party.clone()));
            let bytes = self.cache_bytes;
            let (idle, replay) = (idle.clone(), self.replay());
            async move {
                let servers = Servers::new(&node, attendance.clone(), bytes);
                let serving = Box::pin(servers.run());
                select(serving, Box::pin(attendance.listen(&node))).await;
                assert!(servers.is_idle(), "{replay}");
                assert_eq!(node.buffer_bytes(), 0, "{replay}");
                idle.set(idle.get() + 1);
            }
        };
        let ran = simulation.run_with_servers(program, server);
        ran.unwrap_or_else(|error| panic!("{}: {error}", self.replay()));
        assert!(
            !has_heard.get() || idle.get() == party.serving().len(),
            "{}: servers go on",
            self.replay()
        );
        self.check(&events.borrow());
    }

    fn replay(&self) -> String {
        format!(
            "PENSTOCK_SEED={} cargo test -p penstock-sim open_files::",
            self.seed
        )
    }

    /// Checks that every read has seen a write that it may see.
    fn check(&self, events: &[Event]) {
        let writes = |place: usize| {
            let writes = events.iter().filter(|e| e.operation == Operation::Write);
            writes.flat_map(move |event| {
                let here = event.elements.iter().filter(move |(at, _)| *at == place);
                here.map(move |&(_, number)| (number, event.begun..event.ended))
            })
        };
        for read in events.iter().filter(|e| e.operation == Operation::Read) {
            for &(place, number) in &read.elements {
                let all: Vec<(u64, Range<u64>)> = writes(place).collect();
                let seen = match number {
                    0 => 0..0, // what was never written is zero
                    _ => {
                        let seen = all.iter().find(|(other, _)| *other == number);
                        let seen = seen.unwrap_or_else(|| {
                            panic!("{}: element {place} is {number}", self.replay())
                        });
                        seen.1.clone()
                    }
                };
                let is_past = |(other, when): &&(u64, Range<u64>)| {
                    *other != number && seen.end < when.start && when.end < read.begun
                };
                let later = all.iter().find(is_past);
                assert!(
                    later.is_none() && seen.start <= read.ended,
                    "{}: a read at {}..{} saw of element {place} write {number} at {seen:?}, and \
                     not {later:?}",
                    self.replay(),
                    read.begun,
                    read.ended,
                );
            }
        }
    }
}

impl Player<'_> {
    fn time(&self) -> u64 {
        self.node.time().as_ps()
    }

    /// Makes one collective call.
    async fn call(&self, decision: Decision, memory: Option<Exposed>) -> Result<(), Error> {
        self.call_with_list(decision, memory, &Holding::default())
            .await
    }

    async fn call_with_list(
        &self,
        decision: Decision,
        memory: Option<Exposed>,
        list: &Holding,
    ) -> Result<(), Error> {
        let number = self.calls.get();
        self.calls.set(number + 1);
        let call = Call::new(self.node, self.attendance, number);
        let exposed = memory
            .map(|(share, memory)| self.node.expose(call.id.memory(0), (share, Some(memory))));
        let handed_over = Cell::new(false);
        let lists = [list];
        let client = Client::new(call, self.rank, &handed_over).with_lists(&lists);
        let verdict = directing::run(client, self.rank, decision).await;
        drop(exposed);
        verdict.map(|_| ())
    }

    async fn play(&self) -> Result<(), Error> {
        let case = self.case;
        let file = Case::FILE;
        self.open(file, Access::Update).await?;
        let mut common = Random::of(case.seed, 1_000);
        let mut own = Random::of(case.seed, self.rank as u64);
        for _ in 0..STEPS {
            let operation = [Operation::Write, Operation::Read][common.below(2) as usize];
            match common.below(7) {
                0 => {
                    let memory = case.memory(&mut common);
                    let share = memory.share(self.rank.min(memory.ranks() - 1));
                    let share = match self.rank < memory.ranks() {
                        true => share,
                        false => Share::empty(case.shape.len()),
                    };
                    let part = Part::of_share(case, share);
                    self.together(operation, part, memory.into()).await?;
                }
                1 => {
                    let salt = common.below(1 << 20);
                    let elements = case.shape.iter().product::<u64>() as usize;
                    let mut own: Vec<usize> = (0..elements)
                        .filter(|&place| self.holds(place, salt))
                        .collect();
                    own.sort_by_key(|place| (place * 617 + salt as usize) % 31);
                    let lists = Holders::Lists {
                        shape: case.shape.clone(),
                        ranks: case.clients,
                    };
                    self.together(operation, Part::of_list(own), lists).await?;
                }
                2 => {
                    self.call(Decision::Order(FileOrder::Flush(file)), None)
                        .await?;
                }
                _ => {}
            }
            for _ in 0..own.below(3) {
                let operation = [Operation::Write, Operation::Read][own.below(2) as usize];
                let extents = case.shape.iter().map(|&extent| {
                    let start = own.below(extent);
                    (start, 1 + own.below(extent - start))
                });
                let (start, shape): (Vec<u64>, Vec<u64>) = extents.unzip();
                let share = Share::of_box(&Region::new(&start, &shape));
                let mut part = Part::of_share(case, share);
                if own.below(2) == 0 {
                    let step = 1 + own.below(3) as usize;
                    part.places.reverse();
                    part = Part::of_list(part.places.into_iter().step_by(step).collect());
                }
                self.transfer(operation, &part, Case::FILE).await?;
            }
        }
        self.call(Decision::Order(FileOrder::Close(file)), None)
            .await?;
        let again = FileId { number: 1, ..file };
        self.open(again, Access::Read).await?;
        let whole = Part::of_share(case, Share::of_box(&Region::whole(&case.shape)));
        self.transfer(Operation::Read, &whole, again).await?;
        self.call(Decision::Close(None), None).await
    }

    /// Whether this client's list has the element at `place`; some are nobody's.
    fn holds(&self, place: usize, salt: u64) -> bool {
        let owner = (place as u64 / 2 * 7 + salt) % (self.case.clients as u64 + 1);
        owner == self.rank as u64
    }

    /// The memory for elements of a share: of a write, with a new number in each element.
    fn memory(&self, operation: Operation, places: &[usize]) -> (u64, Rc<RefCell<Vec<u8>>>) {
        let number = match operation {
            Operation::Read => u64::MAX,
            Operation::Write => {
                self.writes.set(self.writes.get() + 1);
                self.writes.get()
            }
        };
        let memory = number.to_le_bytes().repeat(places.len());
        (number, Rc::new(RefCell::new(memory)))
    }

    /// Notes a request that begins. A write may be seen from now on, even if it never ends well.
    fn begin(&self, operation: Operation, places: &[usize], memory: &[u8]) -> usize {
        let elements = match operation {
            Operation::Read => Vec::new(),
            Operation::Write => numbered(places, memory),
        };
        let event = Event {
            operation,
            begun: self.time(),
            ended: u64::MAX,
            elements,
        };
        self.events.borrow_mut().push(event);
        self.events.borrow().len() - 1
    }

    /// Notes that a request has ended well.
    fn end(&self, event: usize, places: &[usize], memory: &[u8]) {
        let event = &mut self.events.borrow_mut()[event];
        event.ended = self.time();
        event.elements = numbered(places, memory);
    }

    /// Moves a part together with all other clients.
    async fn together(
        &self,
        operation: Operation,
        part: Part,
        holders: Holders,
    ) -> Result<(), Error> {
        let Part {
            places,
            share,
            list,
        } = part;
        let (_, memory) = self.memory(operation, &places);
        let event = self.begin(operation, &places, &memory.borrow());
        let request = self.case.request(operation, holders);
        let decision = Decision::Serve(vec![request]);
        let exposed = Some((share, memory.clone()));
        let list = list.unwrap_or_default();
        self.call_with_list(decision, exposed, &list).await?;
        self.end(event, &places, &memory.borrow());
        Ok(())
    }

    /// Moves a part alone.
    async fn transfer(&self, operation: Operation, part: &Part, file: FileId) -> Result<(), Error> {
        let (case, places) = (self.case, &part.places);
        let (_, memory) = self.memory(operation, places);
        let event = self.begin(operation, places, &memory.borrow());
        let id = MemoryId::new([7, self.tickets.get()]);
        let exposed = (part.share.clone(), Some(memory.clone()));
        let exposed = self.node.expose(id, exposed);
        let disk = (&case.disk, case.servers);
        let client = FileClient::new(self.node, self.attendance, file, disk, &self.tickets);
        client.transfer(operation, &part.of_file(), id).await?;
        drop(exposed);
        self.end(event, places, &memory.borrow());
        Ok(())
    }
}

/// The elements at these places, with the number in each.
fn numbered(places: &[usize], memory: &[u8]) -> Vec<(usize, u64)> {
    let numbers = memory.chunks(WIDTH as usize);
    let numbers = numbers.map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
    places.iter().copied().zip(numbers).collect()
}

/// The cause of the error for a node that is lost.
fn lost(node: usize) -> String {
    format!("node {node} is lost")
}

/// Runs the case of each seed, with faults of the seed.
fn for_seeds(count: u64, faults: impl Fn(&Case) -> Faults) {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let seeds = match number("PENSTOCK_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("PENSTOCK_SEEDS").unwrap_or(count),
    };
    for seed in seeds {
        let case = Case::of(seed);
        case.run(&faults(&case));
    }
}

#[test]
fn independent_and_collective_requests_see_each_other() {
    for_seeds(300, |_| Faults::default());
}

#[test]
fn late_messages_keep_histories_right() {
    for_seeds(300, |case| Faults {
        late_max: Span::from_us([200, 2_000, 50_000][(case.seed % 3) as usize]),
        ..Faults::default()
    });
}

#[test]
fn a_lost_client_leaves_nothing_taken() {
    for_seeds(600, |case| {
        let mut random = Random::of(case.seed, 2_000);
        let node = random.below(case.clients as u64) as usize;
        let at = Moment::Message(1 + random.below(200));
        Faults {
            losses: vec![Loss { node, at }],
            notice_max: Span::from_us([0, 500, 20_000][random.below(3) as usize]),
            ..Faults::default()
        }
    });
}

/// Requests that do not fit the file are refused, and the server goes on.
#[test]
fn requests_that_do_not_fit_are_refused() {
    let case = Case {
        seed: 1,
        clients: 2,
        disks: 1,
        servers: 1,
        cache_bytes: 100,
        shape: vec![6, 5],
        disk: DiskSchema::chunked(&[6, 5], WIDTH, &[2, 3]).unwrap(),
    };
    let simulation = case.simulation(&Faults::default());
    let party = simulation.party().clone();
    let case = Rc::new(case);
    let program = |node: SimNode| {
        let (case, party) = (case.clone(), party.clone());
        async move {
            let rank = party.rank(node.me()).unwrap();
            let attendance = Attendance::new(party);
            let player = Player {
                case: &case,
                node: &node,
                attendance: &attendance,
                rank,
                events: &RefCell::default(),
                writes: &Cell::new(0),
                calls: Cell::new(0),
                tickets: Cell::new(0),
            };
            player.open(Case::FILE, Access::Update).await.unwrap();
            if rank == 1 {
                player.send_too_little().await;
                player.send_wrong_requests().await;
            }
            let whole = Part::of_share(&case, Share::of_box(&Region::whole(&case.shape)));
            let read = player.transfer(Operation::Read, &whole, Case::FILE).await;
            read.unwrap();
            player.call(Decision::Close(None), None).await.unwrap();
        }
    };
    let server = |node: SimNode| {
        let attendance = Rc::new(Attendance::new(party.clone()));
        async move { Servers::new(&node, attendance, 100).run().await }
    };
    simulation.run_with_servers(program, server).unwrap();
}

impl Player<'_> {
    /// Opens a file together with all other clients.
    async fn open(&self, file: FileId, access: Access) -> Result<(), Error> {
        let opening = Opening {
            target: Vec::new(),
            disk: self.case.disk.clone(),
            access,
            sync: true,
            server: 0,
            servers: self.case.servers,
        };
        let open = FileOrder::Open { file, opening };
        self.call(Decision::Order(open), None).await
    }

    /// Sends a write of a whole block with too few elements: the block stays as it was.
    async fn send_too_little(&self) {
        const WRITE: u32 = 0;
        const SHARE: u32 = 0;
        let dims = vec![(0u64, 2u64, u64::MAX, 2u64), (0, 3, u64::MAX, 3)];
        let part = (SHARE, dims);
        let request = (2u32, (0u64, 0u64, 999u64), WRITE, part, vec![(0u64, 0u64)]);
        let buffer = self.node.buffer(WIDTH).unwrap();
        let parcel = Some(self.node.cut(&buffer, 0..WIDTH));
        let (to, servers) = (self.attendance.party.servers[0], Port::new([u64::MAX; 3]));
        let sent = self
            .node
            .send(to, servers, encode(&request).unwrap(), parcel);
        sent.await.unwrap();
        let block = Share::of_box(&Region::new(&[0, 0], &[2, 3]));
        let block = Part::of_share(self.case, block);
        let read = self.transfer(Operation::Read, &block, Case::FILE).await;
        read.unwrap();
        let events = self.events.borrow();
        let read = &events.last().unwrap().elements;
        assert!(read.iter().all(|&(_, number)| number == 0), "{read:?}");
    }

    /// Sends commands with a request to move a part, field by field as they are encoded, most of
    /// them wrong in one or several fields.
    async fn send_wrong_requests(&self) {
        const TRANSFER: u32 = 2;
        let servers = Port::new([u64::MAX; 3]);
        let mut random = Random::new(7);
        for ticket in 1_000..3_000u64 {
            let mut number = |usual: u64| match random.below(4) {
                0 => [u64::MAX, 1 << 63, 0, 7, u64::from(u32::MAX)][random.below(5) as usize],
                _ => random.below(usual + 1),
            };
            let file = (0u64, number(0), ticket);
            let operation = (number(1) % 2) as u32;
            let dims: Vec<_> = (0..2 + number(0) % 2)
                .map(|_| (number(2), number(2), number(4), number(3)))
                .collect();
            let blocks: Vec<_> = (0..number(2) % 5).map(|_| (number(5), number(0))).collect();
            // A share, or the pieces of a list: each strands with a run, and perhaps loops.
            let body = match number(1) % 2 {
                0 => encode(&(TRANSFER, file, operation, (0u32, dims), blocks)),
                _ => {
                    let mut strand = || {
                        let place = (number(6) as i64, number(6) as i64);
                        let turn = (
                            number(3) as i64,
                            ((number(4) as i64).wrapping_sub(1), number(2) as i64),
                        );
                        (place, number(3) as i64, vec![turn; number(1) as usize % 3])
                    };
                    let pieces: Vec<_> = blocks.iter().map(|_| vec![strand()]).collect();
                    encode(&(TRANSFER, file, operation, (1u32, pieces), blocks))
                }
            };
            let body = body.unwrap();
            let parcel = match number(2) % 300 {
                0 => None,
                bytes => {
                    let buffer = self.node.buffer(bytes).unwrap();
                    Some(self.node.cut(&buffer, 0..bytes))
                }
            };
            let to = self.attendance.party.servers[0];
            self.node.send(to, servers, body, parcel).await.unwrap();
        }
    }
}
