//! What a server that comes back does not know any more, and how its clients go on.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;

use futures::future::{Either, select};
use penstock_engine::{Kind, Machine, Operation, Who};
use penstock_files::{ClientState, Identity, Mode, PointerMove, Seek, Version};
use penstock_sim::Span;
use penstock_sim::machine::{Faults, Moment, Outage, Scope};

use crate::simulated::{BOTH, Program, Volume, open, path};

const STRIPED: [u64; 4] = [1; 4];

/// A volume of three servers. One is lost when the clients have set up what they want.
fn volume(clients: usize, server: usize) -> Volume {
    let outage = Outage {
        scope: Scope::Node(clients + server),
        at: Moment::Event(30_000),
        lasts: Span::from_ms(300),
    };
    Volume {
        clients,
        has_own_nodes: true,
        faults: Faults {
            outages: vec![outage],
            notice_max: Span::from_ms(2),
            ..Faults::default()
        },
        ..Volume::default()
    }
}

/// Waits until a server is lost, or is back.
async fn wait_for(me: &Program, server: usize, is_lost: bool) {
    let node = me.state.shape.servers.node(server).unwrap();
    while me.node.absence(node).is_some() != is_lost {
        me.node.sleep(Span::from_us_f64(20.0)).await;
    }
}

/// A name whose object a server keeps.
fn name_on(me: &Program, server: usize, of: &str) -> String {
    let names = (0..).map(|nth| format!("/{of}{nth}"));
    let mut names = names.filter(|name| me.keeper_of(name) == server);
    names.next().unwrap()
}

/// A shared pointer is lost with its server: who moves it hears that, and shares another one.
#[test]
fn a_shared_pointer_is_lost_with_its_server() {
    volume(1, 1).run(|me| async move {
        let client = me.client();
        let step = PointerMove {
            seek: Seek::Here,
            bytes: 10,
        };
        let mut pointers = Vec::new();
        while pointers
            .iter()
            .all(|pointer: &penstock_files::PointerId| pointer.server != 1)
        {
            pointers.push(client.share_pointer(5).await.unwrap());
        }
        wait_for(&me, 1, true).await;
        wait_for(&me, 1, false).await;
        for pointer in pointers {
            let moved = client.move_pointer(pointer, step).await;
            match pointer.server {
                1 => {
                    let error = moved.unwrap_err();
                    assert_eq!((error.kind, error.who), (Kind::Peer, Some(Who::Server(1))));
                }
                _ => assert_eq!(moved.unwrap(), 5),
            }
        }
        for _ in 0..9 {
            let pointer = client.share_pointer(7).await.unwrap();
            assert_eq!(client.move_pointer(pointer, step).await.unwrap(), 7);
        }
    });
}

/// The blocks of a limited user can be divided while a server is lost, and are never more than the
/// quota.
#[test]
fn a_quota_holds_while_a_server_is_lost() {
    const BLOCKS: u64 = 60;
    volume(1, 2).run(|me| async move {
        let client = me.client();
        client.limit(1, Some(BLOCKS * 64)).await.unwrap();
        let all = me.create("/all", 3, 64).await.unwrap();
        let all = open(&all, STRIPED, 0);
        me.write(&all, 0, &[1; 9 * 64]).await.unwrap();
        client.sync(None).await.unwrap();
        let own = name_on(&me, 0, "own");
        let shape = (1, 64, Some(0));
        client.create(path(&own), shape, 0o600).await.unwrap();
        let own = client.attach(&path(&own), BOTH).await.unwrap();
        let own = open(&own, STRIPED, 0);
        wait_for(&me, 2, true).await;
        let mut written = 0;
        let full = loop {
            match me.write(&own, written * 64, &[2; 64]).await {
                Ok(_) => written += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind, Kind::Full, "{full}");
        assert!(written > BLOCKS / 2, "{written} blocks");
        let denied = me.write(&all, 9 * 64, &[3; 3 * 64]).await.unwrap_err();
        assert_eq!(denied.who, Some(Who::Server(2)));
        wait_for(&me, 2, false).await;
        me.node.sleep(Span::from_ms(50)).await;
        let mut more = 0;
        while me.write(&all, (9 + more) * 64, &[3; 64]).await.is_ok() {
            more += 1;
        }
        let space = client.space(1).await.unwrap();
        assert!(space.of_user_bytes <= BLOCKS * 64, "{space:?}");
        client.limit(1, None).await.unwrap();
        me.write(&all, 0, &[4; 60 * 64]).await.unwrap();
    });
}

/// A program that uses a file in reckless mode becomes cautious when the server that keeps the
/// file's object, or one of its cells, has been lost: that does not know any more who uses it.
#[test]
fn a_reckless_program_becomes_cautious() {
    for (lost, keeper) in [(1, 1), (2, 1)] {
        volume(2, lost).run(move |me| async move {
            let mode = Mode {
                is_reckless: true,
                ..BOTH
            };
            let name = name_on(&me, keeper, "loose");
            // Each client is a program of its own.
            let who = Identity::new(1, 10, Vec::new());
            let program = (10 + me.rank as u64, vec![me.node.me()].into());
            let shape = me.state.shape.clone();
            let mut me = me;
            me.state = ClientState::new(shape, who, program, 1);
            let client = me.client();
            if me.rank == 0 {
                client
                    .create(path(&name), (3, 4, Some(0)), 0o600)
                    .await
                    .unwrap();
                let file = client.attach(&path(&name), mode).await.unwrap();
                let open = open(&file, STRIPED, 0);
                me.write(&open, 0, &[1; 30]).await.unwrap();
                assert!(!open.is_cautious());
                wait_for(&me, lost, true).await;
                wait_for(&me, lost, false).await;
                me.node.sleep(Span::from_ms(50)).await;
                me.write(&open, 0, &[2; 30]).await.unwrap();
                assert!(open.is_cautious());
                assert_eq!(me.read(&open, 0, 30).await.unwrap().1, [2; 30]);
                client.detach(&file).await.unwrap();
            }
            me.meet(2).await;
            let file = client.attach(&path(&name), mode).await.unwrap();
            me.meet(4).await;
            let open = open(&file, STRIPED, 0);
            me.write(&open, 0, &[3; 30]).await.unwrap();
            assert!(open.is_cautious(), "two programs write");
        });
    }
}

/// A collective call that a loss has ended can be made again by all clients of the program.
#[test]
fn collective_calls_go_on() {
    const CALLS: usize = 5;
    let done = Rc::new(Cell::new(0));
    let failed = Rc::new(Cell::new(0));
    let (all, failures) = (done.clone(), failed.clone());
    volume(3, 1).run(move |me| {
        let (done, failed) = (all.clone(), failures.clone());
        async move {
            let client = me.client();
            if me.rank == 0 {
                client
                    .create(path("/f"), (6, 8, Some(1)), 0o600)
                    .await
                    .unwrap();
            }
            me.meet(3).await;
            let file = client.attach_all(Ok(path("/f")), BOTH).await.unwrap();
            let own = open(&file, [1, 1, 2, 3], me.rank as u64);
            let (mut calls, mut is_done) = (0, false);
            while done.get() < 3 {
                let memory = Rc::new(RefCell::new(vec![me.rank as u8; 200]));
                let called = me.access_all(Ok(&own), &file, Operation::Write, 0, &memory);
                // When all are done, some may wait for others in one more call.
                let late = pin!(me.node.sleep(Span::from_ms(500)));
                let called = match select(pin!(called), late).await {
                    Either::Left((called, _)) => called,
                    Either::Right(_) => continue,
                };
                match called {
                    Ok(moved) => {
                        assert_eq!(moved, 200);
                        calls += 1;
                    }
                    Err(error) => {
                        assert_eq!(error.kind, Kind::Peer, "{error}");
                        calls = 0;
                        failed.set(failed.get() + 1);
                        me.node.sleep(Span::from_ms(5)).await;
                    }
                }
                if calls >= CALLS && !me.node.has_outages() && !is_done {
                    is_done = true;
                    done.set(done.get() + 1);
                }
            }
            let (moved, data) = me.read(&own, 0, 200).await.unwrap();
            assert_eq!((moved, data), (200, vec![me.rank as u8; 200]));
            assert_eq!(client.agree(Ok(2)).await.unwrap(), 6);
            let cells = client.cell_bytes(&file.object, Version::Active).await;
            assert_eq!(cells.unwrap().len(), 6);
        }
    });
    assert!(failed.get() > 0);
}
