//! What is exposed under which number, and for how long.

use penstock_engine::{Kind, Machine, Window};
use penstock_layout::{Piece, Region, Share};

use super::schemas;
use crate::seat::{BufferOf, memory};
use crate::truth::{UNTOUCHED, stage, values, windows};
use crate::{Bench, Form, Held, Seat};

/// More exposures than there are places on any board.
const NUMBERS: u64 = 21;
const WIDTH: usize = 4;

/// A line of elements on every node.
fn line() -> (Region, Share, Window) {
    let region = Region::whole(&[7]);
    let window = Window {
        width: WIDTH,
        offset: 0,
        strides: vec![WIDTH as isize],
    };
    (region.clone(), Share::of_box(&region), window)
}

/// What a node holds under a number.
fn of(node: usize, number: u64) -> Vec<u8> {
    values(&line().1, WIDTH, 1000 * number + node as u64)
}

fn hold<B: Bench>(node: usize, number: u64) -> B::Held {
    B::hold(&line().1, WIDTH, &of(node, number), Form::Dense)
}

/// Gets all of the line that a node exposes under a name.
async fn get<B: Bench>(
    seat: &Seat<B>,
    name: u64,
    client: usize,
    buffer: &BufferOf<B>,
) -> penstock_engine::Result<Vec<u8>> {
    let (region, share, window) = line();
    let piece = Piece::from(share.intersect(&region).unwrap());
    let got = seat
        .machine
        .memget(memory(name), client, &piece, &window, buffer);
    got.await.map(|()| seat.bytes(buffer, 0..7 * WIDTH))
}

pub(super) async fn several_numbers<B: Bench>(seat: Seat<B>) {
    let buffer = seat.buffer(&[UNTOUCHED; 7 * WIDTH]);
    let held: Vec<_> = (0..NUMBERS)
        .map(|number| hold::<B>(seat.me(), number))
        .collect();
    let exposures = held.iter().zip(10..);
    let exposures =
        exposures.map(|(held, name)| Some(seat.machine.expose(memory(name), held.memory())));
    let mut exposures: Vec<_> = exposures.collect();
    seat.barrier().await;
    for client in 0..seat.nodes {
        for number in (0..NUMBERS).rev() {
            let got = get(&seat, 10 + number, client, &buffer).await;
            assert!(
                got.unwrap() == of(client, number),
                "memory {number} of {client}"
            );
        }
    }
    seat.barrier().await;
    // Every second is taken back; the others are there still.
    exposures
        .iter_mut()
        .step_by(2)
        .for_each(|exposure| *exposure = None);
    seat.barrier().await;
    for client in 0..seat.nodes {
        for number in 0..NUMBERS {
            let got = get(&seat, 10 + number, client, &buffer).await;
            match number % 2 {
                0 => assert_eq!(got.unwrap_err().kind, Kind::Peer),
                _ => assert!(
                    got.unwrap() == of(client, number),
                    "memory {number} of {client}"
                ),
            }
        }
    }
    seat.barrier().await;
}

async fn boxes_of_width<B: Bench>(seat: &Seat<B>, width: usize) {
    let spread = schemas::lists_of_boxes(seat.nodes);
    let held = spread.shares(seat.me()).into_iter().map(|share| {
        let own = values(&share, width, 1);
        B::hold(&share, width, &own, Form::Dense)
    });
    let held: Vec<_> = held.collect();
    let exposures = held.iter().zip(10..);
    let exposures = exposures.map(|(held, name)| seat.machine.expose(memory(name), held.memory()));
    let exposures: Vec<_> = exposures.collect();
    seat.barrier().await;
    for region in &spread.regions {
        for (window, bytes) in windows(&region.shape, width) {
            let mut expected = vec![UNTOUCHED; bytes];
            let buffer = seat.buffer(&expected);
            for client in 0..seat.nodes {
                for (share, name) in spread.shares(client).iter().zip(10..) {
                    stage(&mut expected, share, region, &window, 1);
                    let Some(piece) = share.intersect(region).map(Piece::from) else {
                        continue;
                    };
                    let got = seat
                        .machine
                        .memget(memory(name), client, &piece, &window, &buffer);
                    got.await.unwrap();
                }
            }
            assert!(seat.bytes(&buffer, 0..bytes) == expected, "{region:?}");
        }
    }
    seat.barrier().await;
    drop(exposures);
}

pub(super) async fn lists_of_boxes<B: Bench>(seat: Seat<B>) {
    for width in [1, 3, 8] {
        boxes_of_width(&seat, width).await;
    }
}

/// Before it is exposed, and when the exposure has been dropped, others get an error.
pub(super) async fn taken_back<B: Bench>(seat: Seat<B>) {
    let (region, share, window) = line();
    let piece = Piece::from(share.intersect(&region).unwrap());
    let buffer = seat.buffer(&[UNTOUCHED; 7 * WIDTH]);
    let held = hold::<B>(seat.me(), 1);
    for is_exposed in [false, true, false] {
        let exposure = is_exposed.then(|| seat.machine.expose(memory(10), held.memory()));
        seat.barrier().await;
        for client in 0..seat.nodes {
            let got = get(&seat, 10, client, &buffer).await;
            let put = seat
                .machine
                .memput(memory(11), client, &piece, &window, &buffer)
                .await;
            assert_eq!(put.unwrap_err().kind, Kind::Peer);
            match is_exposed {
                true => assert!(got.unwrap() == of(client, 1)),
                false => assert_eq!(got.unwrap_err().kind, Kind::Peer),
            }
        }
        seat.barrier().await;
        drop(exposure);
    }
    assert!(held.values() == of(seat.me(), 1));
}

pub(super) async fn exposed_again<B: Bench>(seat: Seat<B>) {
    let buffer = seat.buffer(&[UNTOUCHED; 7 * WIDTH]);
    for number in 0..5 {
        let held = hold::<B>(seat.me(), number);
        let exposure = seat.machine.expose(memory(10), held.memory());
        seat.barrier().await;
        for client in 0..seat.nodes {
            let got = get(&seat, 10, client, &buffer).await;
            assert!(
                got.unwrap() == of(client, number),
                "memory {number} of {client}"
            );
        }
        seat.barrier().await;
        drop(exposure);
    }
}
