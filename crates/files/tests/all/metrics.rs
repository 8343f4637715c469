//! What servers count, on a simulated machine: exact numbers, and the same ones in each run.

use std::cell::RefCell;
use std::rc::Rc;

use penstock_files::metrics::{RequestKind, Snapshot, WaitKind};
use penstock_sim::Span;

use crate::simulated::{self, Program, Volume, open, path};

const CLIENTS: usize = 3;
const SERVERS: usize = 3;
const ROUNDS: u64 = 20;
const BYTES: u64 = 60;

/// All clients write and read the same bytes, which lie on all servers; and the numbers after that.
fn numbers(seed: u64) -> Vec<Snapshot> {
    let volume = Volume {
        seed,
        clients: CLIENTS,
        servers: SERVERS,
        has_own_nodes: true,
        ..Volume::default()
    };
    let all = Rc::new(RefCell::new(Vec::new()));
    let seen = all.clone();
    volume.run(move |me: Program| {
        let seen = seen.clone();
        async move {
            let client = me.client();
            if me.rank == 0 {
                let shape = (3, 8, Some(0));
                client.create(path("/f"), shape, 0o644).await.unwrap();
            }
            me.meet(CLIENTS).await;
            let file = client.attach(&path("/f"), simulated::BOTH).await.unwrap();
            let subfile = open(&file, [1, 1, 1, 1], 0);
            for _ in 0..ROUNDS {
                let data = vec![7; BYTES as usize];
                me.write(&subfile, 0, &data).await.unwrap();
                let (read, _) = me.read(&subfile, 0, BYTES as usize).await.unwrap();
                assert_eq!(read, BYTES);
            }
            me.meet(2 * CLIENTS).await;
            assert!(
                client
                    .attach(&path("/none"), simulated::BOTH)
                    .await
                    .is_err()
            );
            me.meet(3 * CLIENTS).await;
            me.node.sleep(Span::from_us_f64(1e5)).await; // the last is noted just after its answer
            if me.rank == 0 {
                for server in 0..SERVERS {
                    let snapshot = client.metrics(server).await.unwrap();
                    seen.borrow_mut().push(snapshot);
                }
            }
        }
    });
    all.take()
}

#[test]
fn servers_count_what_clients_do() {
    let mut sum = Snapshot::default();
    numbers(1).iter().for_each(|one| sum.add(one));
    let accesses = CLIENTS as u64 * ROUNDS;
    assert_eq!((sum.servers, sum.ready), (3, 3));
    assert_eq!(sum.read_bytes(), accesses * BYTES);
    assert_eq!(sum.written_bytes(), accesses * BYTES);
    for kind in [RequestKind::Read, RequestKind::Write] {
        let counts = sum.kind(kind);
        assert_eq!((counts.times.count(), counts.failed), (accesses * 3, 0));
        assert!(counts.times.quantile_ns(0.5) <= counts.times.quantile_ns(0.99));
    }
    let attached = sum.kind(RequestKind::Attach);
    assert_eq!((attached.times.count(), attached.failed), (6, 3));
    // Each access waits for its token at the second and the third server.
    let tokens = sum.waits[WaitKind::Token as usize];
    assert_eq!(tokens.count, 2 * 2 * accesses);
    assert!(tokens.ns > 0);
    assert!(
        sum.waits[WaitKind::Turn as usize].count > 0,
        "they conflict"
    );
    assert_eq!(sum.waiting, [0; WaitKind::ALL.len()]);
    // The clients and the file, each on all servers.
    assert_eq!((sum.clients.len(), sum.files.len()), (CLIENTS, 1));
    for row in &sum.clients {
        assert_eq!(row.turnover.read_bytes, ROUNDS * BYTES);
        assert_eq!(row.turnover.written_bytes, ROUNDS * BYTES);
    }
    assert_eq!(sum.files[0].path.as_deref(), Some("/f"));
    assert_eq!(sum.files[0].turnover.requests, 2 * 3 * accesses);
    let wanted = sum.cache.hits + sum.cache.misses;
    assert!(wanted > 0 && sum.cache.bytes <= sum.cache.bytes_max);
}

#[test]
fn numbers_of_a_seed_are_the_same_in_each_run() {
    for seed in 2..6 {
        assert_eq!(numbers(seed), numbers(seed), "seed {seed}");
    }
}
