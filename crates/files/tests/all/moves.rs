//! Files and names that move to other servers while clients use them: without any loss, and while
//! servers are lost and come back.
//!
//! One client makes rings of random servers and lets all files and slots move, again and again; the
//! others each write to a file of their own and one together, and know what these may hold.
//! (Crashes of all servers are in `crashes.rs`.)

use std::cell::RefCell;
use std::rc::Rc;

use penstock_engine::{Error, Kind, Operation};
use penstock_files::{Attachment, FileChange, OpenSubfile, Version};
use penstock_layout::{SubfileOrder, View};
use penstock_sim::Span;
use penstock_sim::machine::{Faults, Moment, Outage, Scope};
use penstock_sim::random::Random;

use crate::naive::File;
use crate::simulated::{BOTH, Program, Volume, open, open_in, path};
use crate::unsure::Versions;
use crate::{naive, seeds};

const STEPS: usize = 60;

fn name(rank: usize) -> String {
    format!("/d{rank}/f")
}

/// Lets all that there is move to a random ring.
async fn spread(me: &Program, files: &[String], random: &mut Random) -> Result<(), Error> {
    let client = me.client();
    let servers = me.state.shape.servers.count() as u64;
    let mut some: Vec<usize> = (0..servers as usize)
        .filter(|_| random.below(2) == 0)
        .collect();
    some.push(random.below(servers) as usize);
    client.add_ring(&some).await?;
    for name in files {
        let slot = me.state.shape.names.slot_of(&path(name));
        let to = some[random.below(some.len() as u64) as usize];
        client.move_slot(slot, to).await?;
        while client.move_on(&path(name)).await? > 0 {}
    }
    if random.below(2) == 0 {
        // All other slots are empty, and may be with servers that are to go.
        client.retire().await?;
    }
    Ok(())
}

fn volume_of(seed: u64) -> Volume {
    let mut random = Random::new(seed);
    let block_bytes = [8, 32, 64][random.below(3) as usize];
    let servers = 2 + random.below(4) as usize;
    Volume {
        seed,
        clients: 2 + random.below(2) as usize,
        servers,
        later: random.below(servers as u64) as usize,
        block_bytes,
        blocks: 3000,
        cache_bytes: block_bytes * random.below(6),
        has_own_nodes: true,
        ..Volume::default()
    }
}

/// Every read gives what was written last, also collective ones.
#[test]
fn nobody_notices_that_files_move() {
    seeds::for_seeds("nobody_notices_that_files_move", 40, |seed| {
        let volume = volume_of(seed);
        let clients = volume.clients;
        let left = volume.run(move |me| async move {
            let mut random = Random::of(seed, me.rank as u64);
            let client = me.client();
            let shape = (1 + random.below(7), 1 + random.below(20), None);
            if me.rank == 0 {
                client
                    .create(path("/all"), (5, 7, None), 0o644)
                    .await
                    .unwrap();
            }
            client
                .make_directory(path(&format!("/d{}", me.rank)), 0o755)
                .await
                .unwrap();
            client
                .create(path(&name(me.rank)), shape, 0o644)
                .await
                .unwrap();
            me.meet(clients).await;
            let files: Vec<String> = (0..clients).map(name).chain(["/all".into()]).collect();
            let own = client.attach(&path(&name(me.rank)), BOTH).await.unwrap();
            let all = client.attach(&path("/all"), BOTH).await.unwrap();
            let mut known = File::new(shape.0 as usize, shape.1 as usize);
            for step in 0..STEPS {
                if me.rank == 0 && step % 3 == 0 {
                    spread(&me, &files, &mut random).await.unwrap();
                }
                if step % 6 == 5 {
                    together(&me, &all, step).await;
                    continue;
                }
                let mut below = |bound| 1 + random.below(bound);
                let view = [below(3), below(3), below(3), below(3)];
                let (subfile, offset) = (below(view[1] * view[3]) - 1, below(60) - 1);
                let opened = open_in(&own, view, subfile, SubfileOrder::Block);
                let places = known.places(view, subfile, SubfileOrder::Block, offset as usize, 50);
                match below(5) {
                    1 => client.sync(Some(&own)).await.unwrap(),
                    2 => {
                        let bytes = below(100);
                        let change = FileChange::Resize(bytes);
                        client.change(&path(&name(me.rank)), change).await.unwrap();
                        known.change(naive::Change::Resize(bytes as usize));
                    }
                    3 => {
                        let (moved, data) = me.read(&opened, offset, 50).await.unwrap();
                        assert_eq!((moved, data), known.read(&places, 0xee), "step {step}");
                    }
                    _ => {
                        let fill = step as u8 + 1;
                        let moved = me.write(&opened, offset, &[fill; 50]).await.unwrap();
                        assert_eq!(moved, known.write(&places, fill));
                    }
                }
            }
            let found = cells_of(&me, &own, Version::Active).await.unwrap();
            assert_eq!(found, known.cells());
            let ends = client
                .cell_bytes(&own.object, Version::Active)
                .await
                .unwrap();
            for (cell, bytes) in ends {
                assert_eq!(found[cell as usize].len() as u64, bytes);
            }
        });
        left.check();
    });
}

/// All clients write to parts of a file together, and read parts of others.
async fn together(me: &Program, all: &Attachment, step: usize) {
    let clients = me.state.clients.len();
    let part = |rank: usize| (rank * 40) as u64;
    let opened = open(all, [1, 1, 1, 1], 0);
    let fill = |rank: usize| (step + rank) as u8;
    let memory = Rc::new(RefCell::new(vec![fill(me.rank); 40]));
    let moved = me.access_all(Ok(&opened), all, Operation::Write, part(me.rank), &memory);
    assert_eq!(moved.await.unwrap(), 40);
    let other = (me.rank + 1) % clients;
    let memory = Rc::new(RefCell::new(vec![0; 40]));
    let moved = me.access_all(Ok(&opened), all, Operation::Read, part(other), &memory);
    assert_eq!(moved.await.unwrap(), 40);
    assert_eq!(memory.take(), vec![fill(other); 40]);
}

/// The cells of a file.
async fn cells_of(
    me: &Program,
    file: &Attachment,
    version: Version,
) -> Result<Vec<Vec<u8>>, Error> {
    let cells = file.shape.cells;
    let mut found = Vec::new();
    for cell in 0..cells {
        let own = View::new(1, 1, 1, cells).unwrap();
        let opened = OpenSubfile::new(file, own, cell, SubfileOrder::Block, version).unwrap();
        let (moved, mut data) = me.read(&opened, 0, 400).await?;
        data.truncate(moved as usize);
        found.push(data);
    }
    Ok(found)
}

/// A server is lost, or a link is cut, and comes back: an operation that fails says which, and
/// when all are back, all moves go on and nothing that was saved is lost.
#[test]
fn moves_go_on_when_a_lost_server_is_back() {
    seeds::for_seeds("moves_go_on_when_a_lost_server_is_back", 40, |seed| {
        let mut volume = volume_of(seed);
        let events = use_and_move(&volume, seed);
        let mut random = Random::of(seed, 5);
        for _ in 0..3 {
            let (clients, servers) = (volume.clients, volume.servers as u64);
            let one = random.below(servers) as usize;
            let other = (one + 1 + random.below(servers - 1) as usize) % volume.servers;
            volume.faults = Faults {
                notice_max: Span::from_us_f64([0.0, 3000.0][random.below(2) as usize]),
                outages: vec![Outage {
                    scope: match random.below(3) {
                        0 => Scope::Link(clients + one, clients + other),
                        _ => Scope::Node(clients + one),
                    },
                    at: Moment::Event(1 + events / 10 + random.below(events * 8 / 10)),
                    lasts: Span::from_us_f64([500.0, 30_000.0][random.below(2) as usize]),
                }],
                ..Faults::default()
            };
            use_and_move(&volume, seed);
        }
    });
}

/// Does something again and again as long as a server is missing, or something else moves.
async fn patient<T>(me: &Program, act: impl AsyncFn() -> Result<T, Error>) -> T {
    loop {
        match act().await {
            Err(error) if matches!(error.kind, Kind::Peer | Kind::Busy) => {
                me.node.sleep(Span::from_us_f64(500.0)).await;
            }
            done => return done.unwrap(),
        }
    }
}

fn use_and_move(volume: &Volume, seed: u64) -> u64 {
    let clients = volume.clients;
    let left = volume.run(move |me| async move {
        let mut random = Random::of(seed, me.rank as u64);
        let client = me.client();
        let directory = format!("/d{}", me.rank);
        let cells = 1 + random.below(6);
        patient(&me, async || {
            match client.make_directory(path(&directory), 0o755).await {
                Err(error) if error.kind == Kind::Exists => Ok(()),
                made => made.map(|_| ()),
            }
        })
        .await;
        patient(&me, async || {
            match client
                .create(path(&name(me.rank)), (cells, 9, None), 0o644)
                .await
            {
                Err(error) if error.kind == Kind::Exists => Ok(()),
                made => made.map(|_| ()),
            }
        })
        .await;
        me.meet(clients).await;
        let files: Vec<String> = (0..clients).map(name).collect();
        if me.rank == 0 {
            for _ in 0..10 {
                let moved = spread(&me, &files, &mut random).await;
                let may_fail = |kind| matches!(kind, Kind::Peer | Kind::Busy | Kind::Schema);
                assert!(
                    moved
                        .as_ref()
                        .err()
                        .is_none_or(|error| may_fail(error.kind)),
                    "{moved:?}"
                );
                me.node.sleep(Span::from_us_f64(2000.0)).await;
            }
        }
        let file = path(&name(me.rank));
        let own = patient(&me, async || client.attach(&file, BOTH).await).await;
        let mut known = Versions::new(vec![true; cells as usize]);
        let order = SubfileOrder::Block;
        for step in 0..STEPS {
            let offset = random.below(200);
            let opened = open_in(&own, [1, 1, 1, 1], 0, order);
            let naive = File::new(cells as usize, 9);
            let places = naive.places([1, 1, 1, 1], 0, order, offset as usize, 50);
            match random.below(4) {
                0 => known.sync(client.sync(Some(&own)).await.is_ok()),
                1 => {
                    if let Ok((_, data)) = me.read(&opened, offset, 50).await {
                        let wrong = known.refuse(&places, &data, 0xee);
                        assert_eq!(wrong, None, "step {step}: {known:?}");
                    }
                }
                _ => {
                    let fill = step as u8 + 1;
                    let done = me.write(&opened, offset, &[fill; 50]).await;
                    known.write(&places, fill, done.is_ok());
                }
            }
        }
        me.meet(2 * clients).await;
        while me.node.has_outages() {
            me.node.sleep(Span::from_us_f64(100.0)).await;
        }
        me.node.sleep(Span::from_ms(2000)).await; // what is in doubt ends
        if me.rank == 0 {
            patient(&me, async || {
                spread(&me, &files, &mut Random::new(seed)).await
            })
            .await;
        }
        let found = patient(&me, async || cells_of(&me, &own, Version::Active).await).await;
        assert!(
            known.may_be(&[Some(found.clone()), None]),
            "{found:?} {known:?}"
        );
        // The first sync after a loss says that there was one.
        let _ = client.sync(Some(&own)).await;
        client.sync(Some(&own)).await.unwrap();
    });
    left.check();
    left.totals().events
}
