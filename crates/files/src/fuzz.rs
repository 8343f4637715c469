//! Requests that are not what they should be: a client sends them to the servers of a simulated
//! volume, which must not fail, and go on serving another client.
//!
//! A failure prints its seed; `PENSTOCK_SEED=<seed> cargo test -p penstock-files --lib fuzz` runs
//! that one alone. `PENSTOCK_FUZZ_SECONDS` runs seeds for as long: `make fuzz`.

#[path = "../tests/all/seeds/mod.rs"]
mod seeds;
#[path = "../tests/all/simulated/mod.rs"]
mod simulated;

use penstock_engine::encoding::{decode, encode};
use penstock_engine::{Error, Kind, Machine, MemoryId, Operation};
use penstock_layout::{List, SubfileOrder, View};
use penstock_net::Greeting;
use penstock_sim::random::Random;
use simulated::{Program, Volume, open, path};

use crate::caller::Homes;
use crate::disk::{Description, VERSION};
use crate::job::standing::volume_told;
use crate::messages::{
    Access, Ask, CellPart, ClientPart, Collective, NewKind, NewObject, PartBytes, Purpose, Request,
    Turn, Usage, requests,
};
use crate::names::HASH_BITS;
use crate::object::{FileShape, Identity, ObjectId};
use crate::placement::Placement;
use crate::service::pointers::{PointerId, PointerMove, Seek};
use crate::transaction::{FileChange, NewAttributes, NewTime, Replacement, TransactionId};
use crate::volume::cells::Version;

const SERVERS: usize = 3;
/// The requests of a seed.
const REQUESTS: u64 = 60;
/// The volume of `simulated`.
const VOLUME: u64 = 5;

/// A number that is often wrong: small, near the bounds of types, or anything.
fn number(random: &mut Random) -> u64 {
    match random.below(6) {
        0 => random.below(3),
        1 | 2 => random.below(300),
        3 => u64::MAX - random.below(3),
        4 => 1 << random.below(64),
        _ => random.below(u64::MAX),
    }
}

fn list(random: &mut Random) -> List {
    let loops: Vec<(u64, i64)> = (0..random.below(3))
        .map(|_| (number(random), number(random).cast_signed()))
        .collect();
    let strided = List::strided(number(random), number(random), &loops);
    let few = List::strided(
        random.below(400),
        random.below(100),
        &[(random.below(5), 130)],
    );
    match random.below(3) {
        0 => strided.unwrap_or_default(),
        1 => few.unwrap_or_default(),
        _ => {
            List::concat([few.unwrap_or_default(), strided.unwrap_or_default()]).unwrap_or_default()
        }
    }
}

fn file(random: &mut Random) -> ObjectId {
    ObjectId(number(random))
}

fn operation(random: &mut Random) -> Operation {
    [Operation::Read, Operation::Write][random.below(2) as usize]
}

fn version(random: &mut Random) -> Version {
    [Version::Active, Version::Checkpoint][random.below(2) as usize]
}

fn placement(random: &mut Random) -> Placement {
    let number = |random: &mut Random| number(random) as u32;
    match random.below(2) {
        0 => Placement::default(),
        _ => Placement {
            step: random.below(9),
            ring: number(random),
            former: number(random),
            moved: random.below(9),
        },
    }
}

fn memory(random: &mut Random) -> MemoryId {
    MemoryId::new([77, random.below(4)])
}

fn access(random: &mut Random, id: ObjectId) -> Access {
    let part = |random: &mut Random| {
        let places = list(random);
        let memory = match random.below(3) {
            0 => List::default(),
            1 => places.clone(),
            _ => list(random),
        };
        CellPart {
            cell: number(random),
            places,
            memory,
        }
    };
    Access {
        ticket: number(random),
        request: number(random),
        oldest: number(random),
        operation: operation(random),
        file: id,
        owner: 2,
        base: number(random) as usize,
        placement: placement(random),
        home: number(random) as usize,
        version: version(random),
        turn: match random.below(3) {
            0 => Turn::Any,
            1 => Turn::Arrival,
            _ => Turn::Token((0..random.below(4)).map(|n| n as usize).collect()),
        },
        parts: (0..random.below(3)).map(|_| part(random)).collect(),
        memory: (random.below(2) == 0).then(|| memory(random)),
        wants_word: random.below(2) == 0,
        hold: None,
        begun: std::time::Duration::ZERO,
        span: penstock_engine::trace::Span::none(),
    }
}

fn ask(random: &mut Random, me: &Program, id: ObjectId) -> Ask {
    let name = ["/", "/bad", "/bad/f", "/none/x"][random.below(4) as usize];
    let shape = FileShape {
        cells: number(random),
        bsu_bytes: number(random),
        base: number(random) as usize,
        placement: placement(random),
    };
    let parts = |random: &mut Random| vec![(number(random), list(random))];
    let usage = Usage {
        reads: random.below(2) == 0,
        writes: random.below(2) == 0,
        is_reckless: random.below(2) == 0,
    };
    let program = 100 + random.below(3);
    let pointer = PointerId {
        server: number(random) as usize,
        number: number(random),
    };
    match random.below(29) {
        0 => Ask::Stat(path(name)),
        1 => Ask::Attach {
            path: path(name),
            usage,
            program,
            clients: vec![number(random) as usize, me.node.me()],
        },
        2 => Ask::Detach(number(random)),
        3 => Ask::Create(NewObject {
            path: path(name),
            mode: number(random) as u16,
            kind: match random.below(4) {
                0 => NewKind::Xref,
                1 => NewKind::Symlink("x".repeat((number(random) % 9000) as usize)),
                _ => NewKind::File(shape.cells, shape.bsu_bytes, Some(shape.base)),
            },
        }),
        4 => Ask::Remove(path(name)),
        5 => {
            let replacement = match random.below(3) {
                0 => Replacement::Refused,
                1 => Replacement::Removed,
                _ => Replacement::Moved(path(["/", "/bad3", "/bad2"][random.below(3) as usize])),
            };
            Ask::Rename(path(name), path("/bad2"), replacement)
        }
        6 => {
            let new = NewAttributes {
                mode: Some(number(random) as u16),
                owner: Some(2),
                accessed: (random.below(2) == 0).then_some(NewTime::Now),
                modified: (random.below(2) == 0).then(|| NewTime::At(number(random))),
                extended: (random.below(2) == 0).then(|| {
                    let bytes = (number(random) % 70_000) as usize;
                    let name = "n".repeat((number(random) % 300) as usize);
                    (name, (random.below(2) == 0).then(|| vec![0; bytes]))
                }),
                ..NewAttributes::default()
            };
            Ask::Set(path(name), new)
        }
        7 => Ask::List(path(name)),
        8 => {
            let size = number(random);
            let changes = [FileChange::Resize(size), FileChange::Truncate(size)];
            Ask::Change(path(name), changes[random.below(2) as usize])
        }
        9 => Ask::Change(path(name), FileChange::Checkpoint),
        10 => Ask::CellBytes(id, version(random), placement(random)),
        11 => Ask::Status(path(name)),
        12 => Ask::Sync(Some(id)),
        13 => Ask::Prefetch(id, parts(random)),
        14 => Ask::Flush(id, parts(random)),
        15 => Ask::Quota(9, Some(number(random))),
        16 => Ask::Meet {
            program,
            clients: vec![me.node.me(); random.below(3) as usize],
            purpose: match random.below(3) {
                0 => Ok(Purpose::Sum(number(random))),
                1 => Ok(Purpose::Attach(path(name), usage)),
                _ => Err(Error::new(Kind::Full, "fuzzing", "nothing")),
            },
        },
        17 => Ask::Join {
            program,
            rank: random.below(3) as usize,
            request: Collective {
                operation: operation(random),
                file: id,
                owner: 2,
                home: number(random) as usize,
                shape,
                version: version(random),
                clients: vec![me.node.me(); 1 + random.below(2) as usize],
                sequence: random.below(3),
            },
            part: Ok(ClientPart {
                node: me.node.me(),
                memory: memory(random),
                bytes: match random.below(2) {
                    0 => PartBytes::Subfile {
                        view: View::new(1, 1, 1, 1).unwrap(),
                        number: number(random),
                        order: SubfileOrder::Row,
                        offset: number(random),
                        bytes: number(random),
                    },
                    _ => PartBytes::Cells(access(random, id).parts),
                },
            }),
        },
        18 => Ask::NewPointer(number(random)),
        19 => Ask::MovePointer(
            pointer,
            PointerMove {
                seek: Seek::By(number(random).cast_signed()),
                bytes: number(random),
            },
        ),
        20 => Ask::Prepare(
            TransactionId {
                server: number(random) as usize,
                number: number(random),
            },
            Vec::new(),
        ),
        21 => Ask::Metrics,
        22 => Ask::Places,
        23 => Ask::AddRing(
            (0..random.below(3))
                .map(|_| number(random) as usize)
                .collect(),
        ),
        24 => Ask::MoveOn(path(name)),
        25 => Ask::Cells(id, vec![number(random)]),
        26 => Ask::Leaves(id, number(random), number(random)),
        27 => Ask::Take {
            transaction: None,
            file: id,
            shape,
            placement: placement(random),
        },
        _ => Ask::Allow(2, number(random)),
    }
}

/// A request, changed or not, that does not stop servers nor mean the other client's file.
fn body(random: &mut Random, me: &Program, known: ObjectId, good: ObjectId) -> Option<Vec<u8>> {
    let id = match random.below(2) {
        0 => known,
        _ => file(random),
    };
    let request = match random.below(9) {
        0..4 => Request::Access(access(random, id)),
        4 => {
            let client = [me.node.me(), number(random) as usize][random.below(2) as usize];
            Request::Lost(client, number(random), number(random) as usize)
        }
        _ => {
            let who = Identity::new(2, 2, Vec::new());
            Request::Ask(1 << 30 | random.below(1 << 20), who, ask(random, me, id))
        }
    };
    let mut body = encode(&request).unwrap();
    for _ in 0..random.below(4) {
        let at = random.below(body.len().max(1) as u64) as usize;
        match (random.below(3), body.get_mut(at)) {
            (0, Some(byte)) => *byte ^= 1 << random.below(8),
            (1, _) => body.truncate(at),
            _ => body.extend((0..random.below(9)).map(|_| random.below(256) as u8)),
        }
    }
    let is_harmless = match decode::<Request>(&body) {
        Ok(Request::Ask(_, who, ask)) => {
            let said = format!("{ask:?}");
            let is_stop = matches!(ask, Ask::Stop);
            who.user == 2
                && !is_stop
                && !said.contains("/good")
                && !said.contains(&format!("{good:?}"))
        }
        // A token waits for all parts of its request, and others of its bucket behind it.
        Ok(Request::Access(access)) => {
            access.file != good && !matches!(access.turn, Turn::Token(_))
        }
        _ => true,
    };
    is_harmless.then_some(body)
}

/// Sends what no client should send.
async fn misbehave(me: &Program, random: &mut Random) {
    let client = me.client();
    let known = client
        .create(path("/bad"), (4, 8, None), 0o666)
        .await
        .unwrap();
    let attached = client.attach(&path("/bad"), simulated::BOTH).await.unwrap();
    me.write(&open(&attached, [1, 1, 1, 1], 0), 0, &[3; 100])
        .await
        .unwrap();
    me.meet(2).await;
    let good = client.stat(&path("/good")).await.unwrap().id;
    for _ in 0..REQUESTS {
        if let Some(body) = body(random, me, known.id, good) {
            let server = random.below(SERVERS as u64) as usize;
            let (to, port) = (
                me.state.shape.servers.node(server).unwrap(),
                requests(VOLUME, server),
            );
            let parcel = (random.below(3) == 0).then(|| {
                let buffer = me.node.buffer(1 + random.below(300)).unwrap();
                me.node.cut(&buffer, 0..1)
            });
            let _ = me.node.send(to, port, body, parcel).await;
        }
    }
}

/// Uses a file as a client should.
async fn behave(me: &Program, random: &mut Random) {
    let client = me.client();
    client
        .create(path("/good"), (5, 8, None), 0o600)
        .await
        .unwrap();
    let file = client
        .attach(&path("/good"), simulated::BOTH)
        .await
        .unwrap();
    me.meet(2).await;
    let all = open(&file, [1, 1, 1, 1], 0);
    let mut bytes = vec![0; 500];
    me.write(&all, 0, &bytes).await.unwrap();
    for fill in 0..20 {
        let (at, length) = (random.below(400), random.below(100) as usize);
        me.write(&all, at, &vec![fill; length]).await.unwrap();
        bytes[at as usize..][..length].fill(fill);
        assert_eq!(me.read(&all, 0, 500).await.unwrap(), (500, bytes.clone()));
        match fill % 7 {
            0 => client.sync(Some(&file)).await.unwrap(),
            1 => client
                .change(&path("/good"), FileChange::Checkpoint)
                .await
                .unwrap(),
            2 => assert!(!client.list(&path("/")).await.unwrap().is_empty()),
            _ => {}
        }
    }
}

/// A server tells of a volume that cannot be: a client takes none in which it would divide by zero.
#[test]
fn what_a_server_says_of_its_volume_may_be_anything() {
    let proper = Description {
        version: VERSION,
        identity: 5,
        servers: 2,
        server: 0,
        block_bytes: 4096,
        blocks: 100,
        hash_bits: HASH_BITS,
        owner: 1000,
        disks: vec!["blocks-0".to_string()],
    };
    let volume_of = |volume: Vec<u8>| {
        let greeting = Greeting {
            homes: vec![0, 1],
            volume,
            arrays: Vec::new(),
        };
        volume_told(&greeting, 5)
    };
    assert_eq!(volume_of(encode(&proper).unwrap()), Ok(proper.clone()));
    for block_bytes in [0, u64::MAX] {
        let wrong = Description {
            block_bytes,
            ..proper.clone()
        };
        let refused = volume_of(encode(&wrong).unwrap());
        assert_eq!(refused.map_err(|error| error.kind), Err(Kind::Peer));
    }
    seeds::for_some_time("--lib fuzz", |seed| {
        let mut random = Random::of(seed, 0);
        for _ in 0..1000 {
            let mut volume = encode(&proper).unwrap();
            for _ in 0..1 + random.below(3) {
                let at = random.below(volume.len() as u64) as usize;
                volume[at] = match random.below(2) {
                    0 => volume[at] ^ 1 << random.below(8),
                    _ => [0, 1, 0x7f, 0x80, 0xff][random.below(5) as usize],
                };
            }
            if let Ok(volume) = volume_of(volume) {
                assert!(volume.block_bytes > 0 && (1..=2).contains(&volume.servers));
                let shape = volume.shape(Homes::new([0, 1]));
                assert!(
                    shape
                        .names
                        .keepers()
                        .server(shape.names.slot_of(&path("/a")))
                        < 2
                );
            }
        }
    });
}

#[test]
fn servers_stand_requests_that_make_no_sense() {
    seeds::for_some_time("--lib fuzz", |seed| {
        let volume = Volume {
            seed,
            servers: SERVERS,
            clients: 2,
            ..Volume::default()
        };
        volume.run(move |me| async move {
            let mut random = Random::of(seed, me.rank as u64);
            match me.rank {
                0 => behave(&me, &mut random).await,
                _ => misbehave(&me, &mut random).await,
            }
        });
    });
}
