//! Pieces that are got from the memories of clients, and put into them.

use futures::future::join_all;
use penstock_engine::{Machine, MemoryId, Window};
use penstock_layout::{Piece, Region, Share};

use super::schemas::{Spread, of_many_dimensions, spreads};
use crate::seat::memory;
use crate::truth::{UNTOUCHED, WIDTHS, changed, stage, values, windows};
use crate::{Bench, Form, Held, Seat};

/// The memory that is got from, and the memory that is put into.
const GET: MemoryId = memory(10);
const PUT: MemoryId = memory(11);

/// One array that is moved: its elements, and their form in memory.
struct Move<'a> {
    spread: &'a Spread,
    width: usize,
    form: Form,
    /// Whether one buffer is filled by one client after the other, or by all at a time.
    at_a_time: bool,
}

/// The pieces of a region: client, its share, and what that has of the region.
fn pieces(spread: &Spread, region: &Region, nodes: usize) -> Vec<(usize, Share, Piece)> {
    let of_client = |client| {
        let share = spread.shares(client).remove(0);
        let piece = share.intersect(region)?.into();
        Some((client, share, piece))
    };
    (0..nodes).filter_map(of_client).collect()
}

impl Move<'_> {
    /// All nodes get all regions; then each region is put by one of them.
    async fn run<B: Bench>(&self, seat: &Seat<B>) {
        let (salt, new) = (self.width as u64, self.width as u64 + 100);
        let share = self.spread.shares(seat.me()).remove(0);
        let own = values(&share, self.width, salt);
        let got = B::hold(&share, self.width, &own, self.form);
        let put = B::hold(&share, self.width, &own, self.form);
        let exposures = [
            seat.machine.expose(GET, got.memory()),
            seat.machine.expose(PUT, put.memory()),
        ];
        seat.barrier().await;
        for (nth, region) in self.spread.regions.iter().enumerate() {
            let windows = windows(&region.shape, self.width);
            for (window, bytes) in &windows {
                self.get(seat, region, (window, *bytes), salt).await;
            }
            if nth % seat.nodes == seat.me() {
                let (window, bytes) = &windows[nth % windows.len()];
                self.put(seat, region, (window, *bytes), new).await;
            }
        }
        seat.barrier().await;
        drop(exposures);
        assert!(got.values() == own, "memory that was got from has changed");
        let whole = Region::whole(self.spread.memory.shape());
        let expected = changed(&share, self.width, (salt, new), &whole);
        assert!(
            put.values() == expected,
            "what was put, {} bytes",
            self.width
        );
    }

    async fn get<B: Bench>(
        &self,
        seat: &Seat<B>,
        region: &Region,
        (window, bytes): (&Window, usize),
        salt: u64,
    ) {
        let mut expected = vec![UNTOUCHED; bytes];
        let buffer = seat.buffer(&expected);
        let pieces = pieces(self.spread, region, seat.nodes);
        for (_, share, _) in &pieces {
            stage(&mut expected, share, region, window, salt);
        }
        let got = |(client, _, piece)| seat.machine.memget(GET, client, piece, window, &buffer);
        let parts = pieces
            .iter()
            .map(|(client, share, piece)| (*client, share, piece));
        if self.at_a_time && !self.spread.memory.is_shared() {
            let ends = join_all(parts.map(got)).await;
            ends.into_iter().for_each(|end| end.unwrap());
        } else {
            for part in parts {
                got(part).await.unwrap();
            }
        }
        let came = seat.bytes(&buffer, 0..bytes);
        assert!(came == expected, "{region:?} of {:?}", self.spread.memory);
    }

    async fn put<B: Bench>(
        &self,
        seat: &Seat<B>,
        region: &Region,
        (window, bytes): (&Window, usize),
        salt: u64,
    ) {
        let mut staged = vec![UNTOUCHED; bytes];
        let pieces = pieces(self.spread, region, seat.nodes);
        for (_, share, _) in &pieces {
            stage(&mut staged, share, region, window, salt);
        }
        let buffer = seat.buffer(&staged);
        let puts = pieces
            .iter()
            .map(|(client, _, piece)| seat.machine.memput(PUT, *client, piece, window, &buffer));
        let ends = join_all(puts).await;
        ends.into_iter().for_each(|end| end.unwrap());
        assert!(
            seat.bytes(&buffer, 0..bytes) == staged,
            "the buffer has changed"
        );
    }
}

async fn move_all<B: Bench>(seat: &Seat<B>, forms: &[Form], at_a_time: bool) {
    for (nth, spread) in spreads(seat.nodes).iter().enumerate() {
        for (which, &width) in WIDTHS.iter().enumerate() {
            let form = forms[(nth + which) % forms.len()];
            let array = Move {
                spread,
                width,
                form,
                at_a_time,
            };
            array.run(seat).await;
        }
    }
}

pub(super) async fn every_form<B: Bench>(seat: Seat<B>) {
    move_all(&seat, &[Form::Dense], false).await;
}

pub(super) async fn several_at_a_time<B: Bench>(seat: Seat<B>) {
    move_all(&seat, &[Form::Dense], true).await;
}

pub(super) async fn every_memory<B: Bench>(seat: Seat<B>) {
    move_all(&seat, &Form::ALL, true).await;
}

pub(super) async fn many_dimensions<B: Bench>(seat: Seat<B>) {
    let spread = of_many_dimensions(seat.nodes);
    for width in [1, 3, 8] {
        let array = Move {
            spread: &spread,
            width,
            form: Form::Dense,
            at_a_time: true,
        };
        array.run(&seat).await;
    }
}

/// Pieces of a few long stretches, and of many short ones.
pub(super) async fn large<B: Bench>(seat: Seat<B>) {
    for shape in [[3, 300_001], [3001, 301]] {
        let share = Share::of_box(&Region::whole(&shape));
        let region = Region::new(&[1, 1], &[shape[0] - 1, shape[1] - 1]);
        let piece = Piece::from(share.intersect(&region).unwrap());
        let bytes = region.elements() as usize;
        let window = Window {
            width: 1,
            offset: 0,
            strides: crate::truth::row_major_strides(&region.shape, 1),
        };
        let of_node = |node: usize| crate::truth::noise(&[node as u64], share.elements() as usize);
        let own = of_node(seat.me());
        let (got, put) = (
            B::hold(&share, 1, &own, Form::Dense),
            B::hold(&share, 1, &own, Form::Dense),
        );
        let exposures = [
            seat.machine.expose(GET, got.memory()),
            seat.machine.expose(PUT, put.memory()),
        ];
        seat.barrier().await;
        let client = (seat.me() + 1) % seat.nodes;
        let buffer = seat.machine.buffer(bytes as u64).unwrap();
        let end = seat
            .machine
            .memget(GET, client, &piece, &window, &buffer)
            .await;
        end.unwrap();
        let from = of_node(client);
        let rows = from.chunks(shape[1] as usize).skip(1);
        let expected: Vec<u8> = rows.flat_map(|row| &row[1..]).copied().collect();
        assert!(seat.bytes(&buffer, 0..bytes) == expected, "{shape:?}");
        seat.machine
            .clear(&buffer, bytes as u64, &[seat.me() as u8]);
        let end = seat
            .machine
            .memput(PUT, client, &piece, &window, &buffer)
            .await;
        end.unwrap();
        seat.barrier().await;
        drop(exposures);
        let before = (seat.me() + seat.nodes - 1) % seat.nodes;
        let mut expected = own;
        let rows = expected.chunks_mut(shape[1] as usize).skip(1);
        rows.for_each(|row| row[1..].fill(before as u8));
        assert!(put.values() == expected, "{shape:?}");
    }
}
