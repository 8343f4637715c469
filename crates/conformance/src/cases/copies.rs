//! Buffers, parcels, and copies on one node.

use penstock_engine::{CopyKind, Elements, Kind, Machine, MemoryId, Window};
use penstock_layout::{Piece, Region, Share};

use super::schemas::spreads;
use crate::seat::memory;
use crate::truth::{UNTOUCHED, WIDTHS, changed, is_in, noise, packed, stage, values, windows};
use crate::{Bench, Form, Held, Seat};

const NAME: MemoryId = memory(10);
const OTHER: MemoryId = memory(11);

pub(super) async fn buffers<B: Bench>(seat: Seat<B>) {
    let sizes = [
        0, 1, 100, 4096, 100_000, 600_000, 600_000, 600_000, 1_100_001,
    ];
    for turn in 0..2 {
        let buffers = sizes.map(|size| (size, seat.machine.buffer(size).unwrap()));
        let bytes = |nth: usize, size: u64| noise(&[nth as u64, turn], size as usize);
        for (nth, (size, buffer)) in buffers.iter().enumerate() {
            seat.fill(buffer, 0, &bytes(nth, *size));
        }
        for (nth, (size, buffer)) in buffers.iter().enumerate() {
            let found = seat.bytes(buffer, 0..*size as usize);
            assert!(found == bytes(nth, *size), "buffer {nth}");
        }
    }
    seat.barrier().await;
}

pub(super) async fn cleared<B: Bench>(seat: Seat<B>) {
    for width in WIDTHS {
        for element in [Vec::new(), vec![5; width], noise(&[1], width)] {
            for count in [0, 1, 1000] {
                let bytes = count * width;
                let buffer = seat.buffer(&vec![UNTOUCHED; bytes + 50]);
                seat.machine.clear(&buffer, bytes as u64, &element);
                let zero = vec![0; width];
                let element = if element.is_empty() { &zero } else { &element };
                let mut expected = element.repeat(count);
                expected.resize(bytes + 50, UNTOUCHED);
                assert!(
                    seat.bytes(&buffer, 0..bytes + 50) == expected,
                    "{element:?}"
                );
            }
        }
    }
    seat.barrier().await;
}

pub(super) async fn cut_and_paste<B: Bench>(seat: Seat<B>) {
    let bytes = noise(&[1], 10_000);
    let buffer = seat.buffer(&bytes);
    for part in [
        0..10_000,
        0..1,
        17..17,
        9_999..10_000,
        4_095..4_097,
        10_000..10_000,
    ] {
        let parcel = seat
            .machine
            .cut(&buffer, part.start as u64..part.end as u64);
        // What is done with the buffer afterwards does not show in the parcel.
        seat.fill(&buffer, 0, &vec![UNTOUCHED; 10_000]);
        assert!(seat.is_parcel(&parcel, &bytes[part.clone()]), "{part:?}");
        let last = 10_000 - part.len();
        for at in [0, last.min(3), last] {
            seat.machine.paste(&parcel, &buffer, at as u64);
            let mut expected = vec![UNTOUCHED; 10_000];
            expected[at..at + part.len()].copy_from_slice(&bytes[part.clone()]);
            assert!(
                seat.bytes(&buffer, 0..10_000) == expected,
                "{part:?} at {at}"
            );
            seat.fill(&buffer, 0, &vec![UNTOUCHED; 10_000]);
        }
        seat.fill(&buffer, 0, &bytes);
    }
    seat.barrier().await;
}

/// Some pieces of one share, and where they lie in buffers.
struct Pieces {
    share: Share,
    regions: Vec<Region>,
    pieces: Vec<Piece>,
    windows: Vec<Window>,
    /// Bytes of a buffer that holds the windows, and of one that the pieces fill.
    staged_bytes: usize,
    packed_bytes: usize,
    width: usize,
}

impl Pieces {
    /// The pieces that a share has of the regions. Their windows lie one behind the other.
    fn new(share: &Share, regions: &[Region], width: usize, which: usize) -> Self {
        let mut all = Self {
            share: share.clone(),
            regions: Vec::new(),
            pieces: Vec::new(),
            windows: Vec::new(),
            staged_bytes: 0,
            packed_bytes: 0,
            width,
        };
        for region in regions {
            let Some(piece) = share.intersect(region).map(Piece::from) else {
                continue;
            };
            let (mut window, bytes) = windows(&region.shape, width).swap_remove(which);
            window.offset += all.staged_bytes;
            all.staged_bytes += bytes;
            all.packed_bytes += piece.elements() as usize * width;
            all.regions.push(region.clone());
            all.pieces.push(piece);
            all.windows.push(window);
        }
        all
    }

    /// A buffer into which the pieces were staged.
    fn staged(&self, salt: u64) -> Vec<u8> {
        let mut bytes = vec![UNTOUCHED; self.staged_bytes];
        for (region, window) in self.regions.iter().zip(&self.windows) {
            stage(&mut bytes, &self.share, region, window, salt);
        }
        bytes
    }

    /// A buffer that the pieces fill.
    fn packed(&self, salt: u64) -> Vec<u8> {
        let regions = self.regions.iter();
        regions
            .flat_map(|region| packed(&self.share, region, self.width, salt))
            .collect()
    }

    /// What the share is when the pieces have been put into it.
    fn put(&self, (old, new): (u64, u64)) -> Vec<u8> {
        let mut bytes = values(&self.share, self.width, old);
        for region in &self.regions {
            let mixed = changed(&self.share, self.width, (old, new), region);
            let held = crate::truth::held(&self.share);
            for (nth, _) in held.iter().enumerate().filter(|(_, i)| is_in(region, i)) {
                let at = nth * self.width..(nth + 1) * self.width;
                bytes[at.clone()].copy_from_slice(&mixed[at]);
            }
        }
        bytes
    }

    /// From every place to every other, and what was around the pieces is as it was.
    fn copy<B: Bench>(&self, seat: &Seat<B>, by: CopyKind) {
        let Self {
            share,
            pieces,
            windows,
            width,
            ..
        } = self;
        let (old, new) = (1, 2);
        let held = || B::hold(share, *width, &values(share, *width, old), Form::Dense);
        let copy =
            |held: &B::Held, from: Elements<'_, B::Machine>, to: Elements<'_, B::Machine>| {
                let _exposure = seat.machine.expose(NAME, held.memory());
                let copied = seat.machine.copy(NAME, *width, pieces, from, to, by);
                copied.unwrap();
            };
        let same = held();
        let (staged, dense) = (self.staged(new), self.packed(new));
        let to_staged = |from: Elements<'_, B::Machine>, salt: u64| {
            let buffer = seat.buffer(&vec![UNTOUCHED; self.staged_bytes]);
            copy(&same, from, Elements::Staged(windows, &buffer));
            let found = seat.bytes(&buffer, 0..self.staged_bytes);
            assert!(found == self.staged(salt), "staged, {width} bytes");
        };
        let to_packed = |from: Elements<'_, B::Machine>, salt: u64| {
            let mut expected = self.packed(salt);
            expected.resize(self.packed_bytes + 9, UNTOUCHED);
            let buffer = seat.buffer(&vec![UNTOUCHED; expected.len()]);
            copy(&same, from, Elements::Packed(&buffer, 0));
            assert!(seat.bytes(&buffer, 0..expected.len()) == expected, "packed");
        };
        let to_exposed = |from: Elements<'_, B::Machine>| {
            let changed = held();
            copy(&changed, from, Elements::Exposed);
            assert!(
                changed.values() == self.put((old, new)),
                "exposed, {width} bytes"
            );
        };
        let (in_buffer, in_packed) = (seat.buffer(&staged), seat.buffer(&dense));
        let came = seat.parcel(&dense);
        to_staged(Elements::Exposed, old);
        to_packed(Elements::Exposed, old);
        to_exposed(Elements::Staged(windows, &in_buffer));
        to_exposed(Elements::Packed(&in_packed, 0));
        to_exposed(Elements::Parcel(&came, 0));
        to_staged(Elements::Packed(&in_packed, 0), new);
        to_staged(Elements::Parcel(&came, 0), new);
        to_packed(Elements::Staged(windows, &in_buffer), new);
        assert!(
            same.values() == values(share, *width, old),
            "what was copied from"
        );
    }
}

pub(super) async fn every_place<B: Bench>(seat: Seat<B>) {
    for spread in spreads(seat.nodes) {
        let share = &spread.shares(seat.me())[0];
        let few = spread.regions.get(..1).unwrap_or_default();
        for width in WIDTHS {
            for (which, regions) in [
                (0, few),
                (0, &spread.regions),
                (1, &spread.regions),
                (2, few),
            ] {
                let by = [CopyKind::Kernels, CopyKind::Bytes][(width + which) % 2];
                Pieces::new(share, regions, width, which).copy(&seat, by);
            }
        }
    }
    seat.barrier().await;
}

/// Parts of a share are packed in orders of their own, and unpacked. Where nobody holds an element
/// of a parcel, it is zero.
async fn pack_width<B: Bench>(seat: &Seat<B>, width: usize) {
    let (old, new) = (1, 2);
    for spread in spreads(seat.nodes) {
        let share = spread.shares(seat.me()).remove(0);
        let own = values(&share, width, old);
        for region in &spread.regions {
            for (window, _) in windows(&region.shape, width).into_iter().take(2) {
                let window = Window {
                    offset: 0,
                    ..window
                };
                let bytes = region.elements() as usize * width;
                let staged = |salt| {
                    let mut bytes = vec![0; bytes];
                    stage(&mut bytes, &share, region, &window, salt);
                    bytes
                };
                let held = B::hold(&share, width, &own, Form::Dense);
                let exposure = seat.machine.expose(NAME, held.memory());
                let parcel = seat.machine.pack(NAME, &share, region, &window).unwrap();
                assert!(seat.is_parcel(&parcel, &staged(old)), "{region:?}");
                let parcel = seat.parcel(&staged(new));
                let machine = &seat.machine;
                machine
                    .unpack(NAME, &parcel, &share, region, &window)
                    .unwrap();
                drop(exposure);
                assert!(
                    held.values() == changed(&share, width, (old, new), region),
                    "{region:?}"
                );
            }
        }
    }
}

pub(super) async fn pack<B: Bench>(seat: Seat<B>) {
    for width in WIDTHS {
        pack_width(&seat, width).await;
    }
    seat.barrier().await;
}

/// A share of eight elements of two bytes, and a piece that is all of it.
fn line() -> (Share, Region, Piece, Window) {
    let region = Region::whole(&[8]);
    let share = Share::of_box(&region);
    let piece = Piece::from(share.intersect(&region).unwrap());
    let window = Window {
        width: 2,
        offset: 0,
        strides: vec![2],
    };
    (share, region, piece, window)
}

pub(super) async fn nothing_exposed<B: Bench>(seat: Seat<B>) {
    let (share, region, piece, window) = line();
    let machine = &seat.machine;
    let (windows, pieces) = ([window.clone()], [piece]);
    let buffer = seat.buffer(&[1; 16]);
    let other = B::hold(&share, 2, &[0; 16], Form::Dense);
    let _other = machine.expose(OTHER, other.memory());
    let (exposed, staged) = (|| Elements::Exposed, || Elements::Staged(&windows, &buffer));
    let parcel = seat.parcel(&[1; 16]);
    let by = CopyKind::Kernels;
    let kinds = [
        machine.copy(NAME, 2, &pieces, exposed(), staged(), by),
        machine.copy(NAME, 2, &pieces, staged(), exposed(), by),
        machine.pack(NAME, &share, &region, &window).map(drop),
        machine.unpack(NAME, &parcel, &share, &region, &window),
    ];
    for kind in kinds {
        assert_eq!(kind.unwrap_err().kind, Kind::Peer);
    }
    assert!(seat.bytes(&buffer, 0..16) == [1; 16]);
    // A copy between buffers needs no memory of the client's.
    let to = seat.buffer(&[0; 16]);
    let from = Elements::Parcel(&parcel, 0);
    let copied = machine.copy(NAME, 2, &pieces, from, Elements::Staged(&windows, &to), by);
    copied.unwrap();
    assert!(seat.bytes(&to, 0..16) == [1; 16]);
    seat.barrier().await;
}

pub(super) async fn other_sizes<B: Bench>(seat: Seat<B>) {
    let (share, region, piece, window) = line();
    let machine = &seat.machine;
    let (windows, pieces) = ([window.clone()], [piece]);
    let held = B::hold(&share, 2, &[3; 16], Form::Dense);
    let exposure = machine.expose(NAME, held.memory());
    let buffer = seat.buffer(&[1; 16]);
    let by = CopyKind::Kernels;
    for bytes in [0, 15, 17, 32] {
        let parcel = seat.parcel(&vec![9; bytes]);
        // A copy from a parcel may leave a rest of the parcel to another copy.
        let came = || Elements::Parcel(&parcel, bytes.saturating_sub(15) as u64);
        let results = [
            machine.unpack(NAME, &parcel, &share, &region, &window),
            machine.copy(NAME, 2, &pieces, came(), Elements::Exposed, by),
            machine.copy(
                NAME,
                2,
                &pieces,
                came(),
                Elements::Staged(&windows, &buffer),
                by,
            ),
        ];
        for result in results {
            assert_eq!(result.unwrap_err().kind, Kind::Peer, "{bytes} bytes");
        }
    }
    drop(exposure);
    assert!(held.values() == [3; 16]);
    assert!(seat.bytes(&buffer, 0..16) == [1; 16]);
    seat.barrier().await;
}
