//! A node that leaves while others are at something with it.
//!
//! The last node leaves. It still looks at what comes until all others have ended, but in
//! [`gone_at_once`].

use std::pin::pin;

use futures::future::join;
use penstock_engine::{Change, Error, Kind, Machine, MemoryId, Result, Window};
use penstock_layout::{Piece, Region, Share};

use crate::seat::{look, memory, pause, port};
use crate::truth::noise;
use crate::{Bench, Form, Held, Seat};

/// The ports of what goes on, and of what the node that leaves takes part in.
const KEPT: u64 = 4;
const LOST: u64 = 5;
/// The memory that the node exposes that leaves.
const LINE: MemoryId = memory(5);
/// Why it leaves.
const CAUSE: &str = "it has seen enough";

fn leaver<B: Bench>(seat: &Seat<B>) -> usize {
    seat.nodes - 1
}

fn is_leaver<B: Bench>(seat: &Seat<B>) -> bool {
    seat.me() == leaver(seat)
}

fn leave<B: Bench>(seat: &Seat<B>) {
    let error = Error::new(Kind::Peer, "leaving", CAUSE);
    B::leave(&seat.machine, &error);
}

/// Leaves, and looks at what comes until all others have ended.
async fn leave_and_look<B: Bench>(seat: &Seat<B>) {
    leave(seat);
    for _ in 1..seat.nodes {
        let message = seat.receive(port(KEPT, 99)).await;
        seat.tell(message.from, port(KEPT, 100)).await;
    }
}

/// Tells the node that leaves that this one has ended, and waits until that is known: all that was
/// sent to either has come then.
async fn end<B: Bench>(seat: &Seat<B>) {
    seat.tell(leaver(seat), port(KEPT, 99)).await;
    seat.receive(port(KEPT, 100)).await;
}

/// The leaver's word arrives as it was.
fn check(error: &Error) {
    assert_eq!((error.kind, &*error.cause), (Kind::Peer, CAUSE));
}

/// Waits until it is known that a node has left. Gives the number of the next change.
async fn await_loss<B: Bench>(seat: &Seat<B>) -> u64 {
    let mut next = 0;
    loop {
        let (after, node, change) = seat.machine.change(next).await;
        next = after;
        if let Change::Left(error) = change {
            assert_eq!(node, leaver(seat));
            check(&error);
            assert_eq!(seat.machine.absence(node), Some(error));
            return next;
        }
    }
}

/// Does something again and again, until that fails.
async fn until_it_fails(mut act: impl AsyncFnMut() -> Result<()>) -> Error {
    loop {
        match act().await {
            Ok(()) => pause().await,
            Err(error) => return error,
        }
    }
}

/// The leaver leaves once all others have told it that they wait.
pub(super) async fn receive<B: Bench>(seat: Seat<B>) {
    if is_leaver(&seat) {
        for _ in 1..seat.nodes {
            seat.receive(port(KEPT, 0)).await;
        }
        return leave_and_look(&seat).await;
    }
    // Nothing comes, and nothing else is disturbed: the node hears of the departure.
    let mut never = pin!(seat.machine.receive(port(LOST, 1)));
    assert!(look(never.as_mut()).await.is_none());
    let told = seat.tell(leaver(&seat), port(KEPT, 0));
    join(await_loss(&seat), told).await;
    assert!(look(never.as_mut()).await.is_none());
    // So does a node that asks afterwards, and no second one has left.
    let next = await_loss(&seat).await;
    assert!(look(pin!(seat.machine.change(next))).await.is_none());
    assert_eq!(seat.machine.changes(), next);
    assert_eq!(seat.machine.absence(seat.me()), None);
    end(&seat).await;
}

pub(super) async fn what_came_before<B: Bench>(seat: Seat<B>) {
    let body = |nth: u64| noise(&[nth], [3, 100_000][nth as usize % 2]);
    if is_leaver(&seat) {
        for to in 0..leaver(&seat) {
            for nth in 0..6 {
                let parcel = Some(seat.parcel(&body(nth + 1)));
                let sent = seat.machine.send(to, port(LOST, 0), body(nth), parcel);
                sent.await.unwrap();
            }
        }
        return leave_and_look(&seat).await;
    }
    await_loss(&seat).await;
    for nth in 0..6 {
        let message = seat.receive(port(LOST, 0)).await;
        assert!(message.body == body(nth), "message {nth}");
        assert!(seat.is_parcel(&message.parcel.unwrap(), &body(nth + 1)));
    }
    assert!(
        look(pin!(seat.machine.receive(port(LOST, 0))))
            .await
            .is_none()
    );
    end(&seat).await;
}

pub(super) async fn other_calls<B: Bench>(seat: Seat<B>) {
    if is_leaver(&seat) {
        return leave_and_look(&seat).await;
    }
    await_loss(&seat).await;
    let others = seat.nodes - 1;
    let to = (seat.me() + 1) % others;
    let buffer = seat.buffer(&[seat.me() as u8; 5000]);
    let receives = async {
        for nth in 0..10 {
            let message = seat.receive(port(KEPT, nth)).await;
            let sent = [message.from as u8; 5000];
            assert!(seat.is_parcel(&message.parcel.unwrap(), &sent));
        }
    };
    let sends = async {
        for nth in 0..10 {
            let body = vec![0; 20_000];
            let end = seat
                .machine
                .transmit(to, port(KEPT, nth), body, &buffer, 5000);
            end.await.unwrap();
        }
    };
    join(receives, sends).await;
    end(&seat).await;
}

/// Long messages are sent, whether anybody takes them or not.
pub(super) async fn send<B: Bench>(seat: Seat<B>) {
    let (question, answer) = (port(LOST, 0), port(LOST, 1));
    if is_leaver(&seat) {
        for _ in 0..3 * (seat.nodes - 1) {
            let message = seat.receive(question).await;
            seat.tell(message.from, answer).await;
        }
        return leave_and_look(&seat).await;
    }
    let to = leaver(&seat);
    for _ in 0..3 {
        seat.send(to, question, vec![1; 400_000]).await;
        seat.receive(answer).await;
    }
    await_loss(&seat).await;
    // A send that is not answered ends, whether it can tell or not.
    let sent = seat.machine.send(to, question, vec![1; 400_000], None);
    if let Err(error) = sent.await {
        check(&error);
    }
    end(&seat).await;
}

pub(super) async fn transmit<B: Bench>(seat: Seat<B>) {
    if is_leaver(&seat) {
        for _ in 0..3 * (seat.nodes - 1) {
            seat.receive(port(LOST, 0)).await;
        }
        return leave_and_look(&seat).await;
    }
    let (to, buffer) = (leaver(&seat), seat.buffer(&vec![1; 200_000]));
    let transmit = async || {
        let body = vec![2; 20];
        let end = seat
            .machine
            .transmit(to, port(LOST, 0), body, &buffer, 200_000);
        end.await
    };
    check(&until_it_fails(transmit).await);
    check(&transmit().await.unwrap_err());
    end(&seat).await;
}

/// Where the parcel stays in the sender's buffer, the sender has an error.
pub(super) async fn held_parcel<B: Bench>(seat: Seat<B>) {
    if is_leaver(&seat) {
        let mut held = Vec::new();
        for other in 0..leaver(&seat) {
            let mut receive = pin!(seat.machine.receive(port(LOST, other as u32)));
            assert!(look(receive.as_mut()).await.is_none());
            seat.tell(other, port(KEPT, 0)).await;
            held.push(receive.await);
        }
        leave_and_look(&seat).await;
        return drop(held);
    }
    seat.receive(port(KEPT, 0)).await;
    let buffer = seat.buffer(&vec![1; 200_000]);
    let port = port(LOST, seat.me() as u32);
    let transmitted = seat
        .machine
        .transmit(leaver(&seat), port, Vec::new(), &buffer, 200_000);
    if let Err(error) = transmitted.await {
        check(&error);
    }
    await_loss(&seat).await;
    end(&seat).await;
}

/// A line of bytes that the leaver exposes.
fn line() -> (Share, Piece, Window) {
    let region = Region::whole(&[5000]);
    let share = Share::of_box(&region);
    let piece = Piece::from(share.intersect(&region).unwrap());
    let window = Window {
        width: 1,
        offset: 0,
        strides: vec![1],
    };
    (share, piece, window)
}

/// Exposes the line until all others have moved it, and leaves.
async fn expose_and_leave<B: Bench>(seat: &Seat<B>) {
    let held = B::hold(&line().0, 1, &[3; 5000], Form::Dense);
    let exposure = seat.machine.expose(LINE, held.memory());
    for other in 0..leaver(seat) {
        seat.tell(other, port(KEPT, 0)).await;
    }
    for _ in 0..3 * leaver(seat) {
        seat.receive(port(KEPT, 1)).await;
    }
    drop(exposure);
    assert!(held.values() == [3; 5000]);
    leave_and_look(seat).await;
}

/// Moves the line until the leaver has left, or has taken its memory back.
async fn move_line<B: Bench>(seat: &Seat<B>, mut act: impl AsyncFnMut() -> Result<()>) {
    seat.receive(port(KEPT, 0)).await;
    let mut moved = 0;
    let error = until_it_fails(async || {
        act().await?;
        moved += 1;
        if moved <= 3 {
            seat.tell(leaver(seat), port(KEPT, 1)).await;
        }
        Ok(())
    });
    assert_eq!(error.await.kind, Kind::Peer);
    await_loss(seat).await;
    assert_eq!(act().await.unwrap_err().kind, Kind::Peer);
    end(seat).await;
}

pub(super) async fn memget<B: Bench>(seat: Seat<B>) {
    if is_leaver(&seat) {
        return expose_and_leave(&seat).await;
    }
    let (_, piece, window) = line();
    let (from, buffer) = (leaver(&seat), seat.buffer(&[0; 5000]));
    let get = async || {
        seat.machine
            .memget(LINE, from, &piece, &window, &buffer)
            .await
    };
    move_line(&seat, get).await;
    assert!(seat.bytes(&buffer, 0..5000) == [3; 5000]);
}

/// What is put is what is there, so that the leaver sees whether anything else comes.
pub(super) async fn memput<B: Bench>(seat: Seat<B>) {
    if is_leaver(&seat) {
        return expose_and_leave(&seat).await;
    }
    let (_, piece, window) = line();
    let (to, buffer) = (leaver(&seat), seat.buffer(&[3; 5000]));
    let put = async || {
        seat.machine
            .memput(LINE, to, &piece, &window, &buffer)
            .await
    };
    move_line(&seat, put).await;
}

/// The leaver's node is dropped as soon as it has left.
pub(super) async fn gone_at_once<B: Bench>(seat: Seat<B>) {
    if is_leaver(&seat) {
        return leave(&seat);
    }
    await_loss(&seat).await;
    let (_, piece, window) = line();
    let (gone, buffer) = (leaver(&seat), seat.buffer(&[0; 5000]));
    let results = [
        seat.machine
            .transmit(gone, port(LOST, 0), Vec::new(), &buffer, 50)
            .await,
        seat.machine
            .memget(LINE, gone, &piece, &window, &buffer)
            .await,
        seat.machine
            .memput(LINE, gone, &piece, &window, &buffer)
            .await,
    ];
    for result in results {
        assert_eq!(result.unwrap_err().kind, Kind::Peer);
    }
    // A send ends, whether it can tell or not.
    let sent = seat.machine.send(gone, port(LOST, 0), vec![1; 50], None);
    if let Err(error) = sent.await {
        check(&error);
    }
}
