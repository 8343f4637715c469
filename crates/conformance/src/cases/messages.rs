//! Messages: their order, their parcels, and receives that are dropped.

use std::pin::pin;

use futures::future::{join, join_all};
use penstock_engine::{CopyKind, Machine, Port, Work};

use crate::seat::{look, pause, port};
use crate::truth::noise;
use crate::{Bench, Seat};

/// Messages from each node to each to each port.
const MESSAGES: usize = 16;
/// Ports that are under way together.
const TAGS: u32 = 3;
/// Bytes of bodies and parcels: those around the cells of queues, and longer than a queue.
const SIZES: [usize; 8] = [12, 0, 487, 488, 489, 4000, 1, 150_000];

/// The body of a message, and its parcel if it has one.
fn contents(from: usize, to: usize, number: u32, nth: usize) -> (Vec<u8>, Option<Vec<u8>>) {
    let seed = [from as u64, to as u64, u64::from(number), nth as u64];
    let turn = nth + number as usize;
    let body = noise(&seed, SIZES[turn % SIZES.len()]);
    let parcel = noise(&seed, SIZES[turn / 2 % SIZES.len()]);
    (body, turn.is_multiple_of(3).then_some(parcel))
}

/// Every node sends to every one, itself too, to several ports at a time.
pub(super) async fn arrive_in_order<B: Bench>(seat: Seat<B>) {
    let (me, nodes) = (seat.me(), seat.nodes);
    let sends = async {
        for nth in 0..MESSAGES {
            for number in 0..TAGS {
                for to in 0..nodes {
                    let (body, parcel) = contents(me, to, number, nth);
                    let parcel = parcel.map(|parcel| seat.parcel(&parcel));
                    let port = port(1, number);
                    seat.machine.send(to, port, body, parcel).await.unwrap();
                }
            }
        }
    };
    let receives = (0..TAGS).map(|number| {
        let seat = &seat;
        async move {
            let mut next = vec![0; nodes];
            for _ in 0..nodes * MESSAGES {
                let message = seat.receive(port(1, number)).await;
                let nth = next[message.from];
                next[message.from] += 1;
                let (body, parcel) = contents(message.from, me, number, nth);
                assert!(message.body == body, "message {nth} from {}", message.from);
                assert_eq!(message.parcel.is_some(), parcel.is_some());
                if let (Some(came), Some(sent)) = (message.parcel, parcel) {
                    assert!(seat.is_parcel(&came, &sent), "parcel {nth}");
                }
            }
            assert_eq!(next, vec![MESSAGES; nodes]);
        }
    });
    join(sends, join_all(receives)).await;
    seat.barrier().await;
}

pub(super) async fn empty_parcels<B: Bench>(seat: Seat<B>) {
    let to = (seat.me() + 1) % seat.nodes;
    for with_parcel in [false, true] {
        let parcel = with_parcel.then(|| seat.parcel(&[]));
        let body = vec![u8::from(with_parcel)];
        seat.machine
            .send(to, port(1, 0), body, parcel)
            .await
            .unwrap();
    }
    for with_parcel in [false, true] {
        let message = seat.receive(port(1, 0)).await;
        assert_eq!(message.body, [u8::from(with_parcel)]);
        assert_eq!(message.parcel.is_some(), with_parcel);
        let parcel = message.parcel.iter();
        parcel.for_each(|parcel| assert!(seat.is_parcel(parcel, &[])));
    }
    seat.barrier().await;
}

/// The elements of a parcel are changed where they came from, as soon as the send has returned.
pub(super) async fn parcels_may_change<B: Bench>(seat: Seat<B>) {
    let (me, to) = (seat.me() as u64, (seat.me() + 1) % seat.nodes);
    let bytes = |from: u64, nth| noise(&[from, nth], 70_000);
    let buffer = seat.buffer(&bytes(me, 0));
    for nth in 0..6 {
        seat.fill(&buffer, 0, &bytes(me, nth));
        let parcel = Some(seat.machine.cut(&buffer, 0..70_000));
        seat.machine
            .send(to, port(1, 0), Vec::new(), parcel)
            .await
            .unwrap();
        seat.machine.clear(&buffer, 70_000, &[7]);
    }
    for nth in 0..6 {
        let message = seat.receive(port(1, 0)).await;
        let sent = bytes(message.from as u64, nth);
        assert!(
            seat.is_parcel(&message.parcel.unwrap(), &sent),
            "parcel {nth}"
        );
    }
    seat.barrier().await;
}

/// Receives are dropped before and after they have been looked at, with a message on its way, with
/// one there, and with none.
pub(super) async fn dropped_receives<B: Bench>(seat: Seat<B>) {
    let (me, to) = (seat.me(), (seat.me() + 1) % seat.nodes);
    let from = (me + seat.nodes - 1) % seat.nodes;
    let (data, tick) = (port(1, 0), port(1, 1));
    let contents =
        |from: usize, nth: u64| noise(&[from as u64, nth], SIZES[nth as usize % SIZES.len()]);
    let sends = async {
        for nth in 0..40 {
            if nth % 3 == 0 {
                seat.tell(to, tick).await;
            }
            seat.send(to, data, contents(me, nth)).await;
            if nth % 3 == 1 {
                seat.tell(to, tick).await;
            }
            pause().await;
        }
    };
    let receives = async {
        let mut next = 0;
        for turn in 0..27 {
            drop(seat.machine.receive(data)); // never looked at
            {
                let mut receive = pin!(seat.machine.receive(data));
                let mut came = look(receive.as_mut()).await;
                seat.receive(tick).await;
                if turn % 2 == 0 && came.is_none() {
                    came = look(receive.as_mut()).await;
                }
                if let Some(message) = came {
                    assert!(message.body == contents(from, next), "message {next}");
                    next += 1;
                }
            }
        }
        while next < 40 {
            assert!(
                seat.receive(data).await.body == contents(from, next),
                "message {next}"
            );
            next += 1;
        }
    };
    join(sends, receives).await;
    seat.barrier().await;
}

pub(super) async fn clock_and_work<B: Bench>(seat: Seat<B>) {
    let by = CopyKind::Kernels;
    let works = [
        Work::Request(0, 1 << 10),
        Work::Reply(0),
        Work::Answer,
        Work::Thread,
        Work::Wake,
        Work::Lookup,
        Work::Copy(1000),
        Work::List(3),
        Work::Prepare(1000),
        Work::Sift(1000),
        Work::Pack {
            bytes: 1000,
            stretches: 10,
            by,
        },
    ];
    let mut last = seat.machine.now();
    for work in works {
        seat.machine.work(work).await;
        let now = seat.machine.now();
        assert!(now >= last);
        last = now;
    }
    // Ports differ by each of their numbers.
    let ports: Vec<[u64; 3]> = (0..27).map(|n| [n / 9, 7 + n / 3 % 3, n % 3]).collect();
    for words in &ports {
        let to = (seat.me() + 1) % seat.nodes;
        let body = format!("{words:?}").into_bytes();
        seat.send(to, Port::new(*words), body).await;
    }
    for words in ports.iter().rev() {
        let message = seat.receive(Port::new(*words)).await;
        assert_eq!(message.body, format!("{words:?}").into_bytes());
    }
    seat.barrier().await;
}
