//! Messages whose parcel is in a send buffer.

use std::pin::pin;

use futures::future::{join, join_all};
use penstock_engine::Machine;

use crate::seat::{look, pause, port};
use crate::truth::noise;
use crate::{Bench, Seat};

/// Bytes of parcels.
const SIZES: [usize; 5] = [0, 1, 500, 5000, 300_000];
/// Longer than any of them.
const BUFFER_BYTES: usize = 300_100;

fn bytes(from: usize, to: usize, nth: usize) -> Vec<u8> {
    noise(
        &[from as u64, to as u64, nth as u64],
        SIZES[nth % SIZES.len()],
    )
}

/// The buffer is filled with something else as soon as the transmit has ended.
pub(super) async fn what_was_there<B: Bench>(seat: Seat<B>) {
    let (me, nodes) = (seat.me(), seat.nodes);
    let sends = (0..nodes).map(|to| {
        let seat = &seat;
        async move {
            let buffer = seat.machine.buffer(BUFFER_BYTES as u64).unwrap();
            for nth in 0..15 {
                let sent = bytes(me, to, nth);
                seat.fill(&buffer, 0, &sent);
                let (body, length) = (vec![nth as u8; nth * 60], sent.len() as u64);
                let ended = seat.machine.transmit(to, port(1, 0), body, &buffer, length);
                ended.await.unwrap();
                seat.machine.clear(&buffer, BUFFER_BYTES as u64, &[9]);
            }
        }
    });
    let receives = async {
        let mut next = vec![0; nodes];
        for turn in 0..nodes * 15 {
            let message = seat.receive(port(1, 0)).await;
            let (from, nth) = (message.from, next[message.from]);
            next[from] += 1;
            assert!(
                message.body == vec![nth as u8; nth * 60],
                "body {nth} from {from}"
            );
            let parcel = message.parcel.unwrap();
            // It is held for a while: what is transmitted next must not show in it.
            for _ in 0..turn % 4 {
                pause().await;
            }
            assert!(
                seat.is_parcel(&parcel, &bytes(from, me, nth)),
                "parcel {nth} from {from}"
            );
        }
    };
    join(join_all(sends), receives).await;
    seat.barrier().await;
}

/// The receiver asks for it only when it knows that the transmit has ended.
pub(super) async fn nobody_waits<B: Bench>(seat: Seat<B>) {
    let (me, nodes) = (seat.me(), seat.nodes);
    let (data, ended) = (port(1, 0), port(1, 1));
    let buffer = seat.machine.buffer(BUFFER_BYTES as u64).unwrap();
    for to in 0..nodes {
        for nth in 0..SIZES.len() {
            let sent = bytes(me, to, nth);
            seat.fill(&buffer, 0, &sent);
            let length = sent.len() as u64;
            let end = seat.machine.transmit(to, data, Vec::new(), &buffer, length);
            end.await.unwrap();
            seat.machine.clear(&buffer, BUFFER_BYTES as u64, &[9]);
        }
        seat.tell(to, ended).await;
    }
    for _ in 0..nodes {
        seat.receive(ended).await;
    }
    let mut next = vec![0; nodes];
    for _ in 0..nodes * SIZES.len() {
        let message = seat.receive(data).await;
        let nth = next[message.from];
        next[message.from] += 1;
        let sent = bytes(message.from, me, nth);
        assert!(
            seat.is_parcel(&message.parcel.unwrap(), &sent),
            "parcel {nth}"
        );
    }
    seat.barrier().await;
}

/// A receiver that waits, and holds the parcel while it exchanges other messages with the sender.
pub(super) async fn parcel_is_held<B: Bench>(seat: Seat<B>) {
    let (me, to) = (seat.me(), (seat.me() + 1) % seat.nodes);
    let (data, held, seen) = (port(1, 0), port(1, 1), port(1, 2));
    let from = (me + seat.nodes - 1) % seat.nodes;
    let receive = async {
        let message = seat.receive(data).await;
        let parcel = message.parcel.unwrap();
        seat.tell(from, held).await;
        seat.receive(seen).await;
        assert!(seat.is_parcel(&parcel, &bytes(from, me, 4)));
    };
    let send = async {
        let sent = bytes(me, to, 4);
        let buffer = seat.buffer(&sent);
        let transmit = async {
            let length = sent.len() as u64;
            let end = seat.machine.transmit(to, data, Vec::new(), &buffer, length);
            end.await.unwrap();
            seat.machine.clear(&buffer, length, &[9]);
        };
        let other = async {
            seat.receive(held).await;
            seat.tell(to, seen).await;
        };
        join(transmit, other).await;
    };
    join(receive, send).await;
    seat.barrier().await;
}

/// The receiver waits, so that the parcel may stay where it is, and gives up before it takes it.
pub(super) async fn dropped_receives<B: Bench>(seat: Seat<B>) {
    let (me, to) = (seat.me(), (seat.me() + 1) % seat.nodes);
    let from = (me + seat.nodes - 1) % seat.nodes;
    let (data, ready, tick) = (port(1, 0), port(1, 1), port(1, 2));
    let sends = async {
        let buffer = seat.machine.buffer(BUFFER_BYTES as u64).unwrap();
        for nth in 0..10 {
            seat.receive(ready).await;
            let sent = bytes(me, to, nth);
            seat.fill(&buffer, 0, &sent);
            let length = sent.len() as u64;
            let end = seat.machine.transmit(to, data, Vec::new(), &buffer, length);
            let told = seat.tell(to, tick);
            join(end, told).await.0.unwrap();
            seat.machine.clear(&buffer, BUFFER_BYTES as u64, &[9]);
        }
    };
    let receives = async {
        for nth in 0..10 {
            let mut came = {
                let mut receive = pin!(seat.machine.receive(data));
                let came = look(receive.as_mut()).await;
                seat.tell(from, ready).await;
                seat.receive(tick).await;
                came
            };
            if came.is_none() {
                came = Some(seat.machine.receive(data).await);
            }
            let parcel = came.unwrap().parcel.unwrap();
            assert!(
                seat.is_parcel(&parcel, &bytes(from, me, nth)),
                "parcel {nth}"
            );
        }
    };
    join(sends, receives).await;
    seat.barrier().await;
}

/// What is sent when a transmit has ended comes after it, and what is transmitted then after that.
pub(super) async fn order<B: Bench>(seat: Seat<B>) {
    let (me, to) = (seat.me(), (seat.me() + 1) % seat.nodes);
    let sends = async {
        let buffer = seat.machine.buffer(BUFFER_BYTES as u64).unwrap();
        for nth in 0..20 {
            let body = vec![nth as u8; nth * 40];
            let sent = bytes(me, to, nth);
            if nth % 2 == 0 {
                let parcel = Some(seat.parcel(&sent));
                seat.machine
                    .send(to, port(1, 0), body, parcel)
                    .await
                    .unwrap();
            } else {
                seat.fill(&buffer, 0, &sent);
                let length = sent.len() as u64;
                let end = seat.machine.transmit(to, port(1, 0), body, &buffer, length);
                end.await.unwrap();
            }
        }
    };
    let receives = async {
        for nth in 0..20 {
            let message = seat.receive(port(1, 0)).await;
            assert!(message.body == vec![nth as u8; nth * 40], "message {nth}");
            let sent = bytes(message.from, me, nth);
            assert!(
                seat.is_parcel(&message.parcel.unwrap(), &sent),
                "parcel {nth}"
            );
        }
    };
    join(sends, receives).await;
    seat.barrier().await;
}
