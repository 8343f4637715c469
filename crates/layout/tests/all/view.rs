//! Views against a naive model that goes through a file BSU by BSU.

use std::collections::BTreeMap;

use penstock_layout::{LayoutError, Subfile, SubfileOrder, View};
use proptest::prelude::*;

const ORDERS: [SubfileOrder; 3] = [SubfileOrder::Block, SubfileOrder::Row, SubfileOrder::Column];

/// A byte of a cell: the number of the cell, and the byte's place in it.
type Byte = (u64, u64);

/// The equations of the paper, as they stand there: the subfile of BSU `j` of cell `i`, and its
/// number in the subfile.
fn equations(view: [u64; 4], cells: u64, i: u64, j: u64) -> (u64, u64) {
    let [vbs, vn, hbs, hn] = view;
    let c = cells.div_ceil(hbs * hn) * hbs * hn;
    let s = (i % (hbs * hn)) / hbs;
    let t = (j % (vbs * vn)) / vbs;
    let blocks = (j / (vbs * vn)) * (c / (hbs * hn)) + i / (hbs * hn);
    (s + t * hn, blocks * vbs * hbs + (i % hbs) * vbs + j % vbs)
}

/// The number of a BSU of a subfile in row-major order: the BSUs of the subfile sorted by row, then
/// by cell.
fn row_number(view: [u64; 4], cells: u64, i: u64, j: u64) -> u64 {
    let [_, _, hbs, hn] = view;
    let c = cells.div_ceil(hbs * hn) * hbs * hn;
    let (subfile, _) = equations(view, cells, i, j);
    let is_in = |cell: u64, bsu: u64| equations(view, cells, cell, bsu).0 == subfile;
    let row = |bsu: u64| (0..c).filter(|&cell| is_in(cell, bsu)).count() as u64;
    let above: u64 = (0..j).map(row).sum();
    above + (0..i).filter(|&cell| is_in(cell, j)).count() as u64
}

/// The bytes of a subfile in the order of its sequence, with ghosts, as far as `bsus` rows of
/// cells.
fn sequence(
    view: [u64; 4],
    (cells, bsu_bytes): (u64, u64),
    subfile: u64,
    order: SubfileOrder,
    rows: u64,
) -> Vec<Byte> {
    let [_, _, hbs, hn] = view;
    let c = cells.div_ceil(hbs * hn) * hbs * hn;
    let mut bsus = BTreeMap::new();
    for i in 0..c {
        for j in 0..rows {
            let (owner, number) = equations(view, cells, i, j);
            if owner != subfile {
                continue;
            }
            let number = match order {
                SubfileOrder::Row => row_number(view, cells, i, j),
                _ => number,
            };
            assert!(
                bsus.insert(number, (i, j)).is_none(),
                "two BSUs have number {number}"
            );
        }
    }
    // Only what has no gap before it is a sequence.
    let whole = (0..)
        .zip(bsus)
        .take_while(|(nth, (number, _))| nth == number);
    let bytes = whole
        .flat_map(|(_, (_, (i, j)))| (0..bsu_bytes).map(move |byte| (i, j * bsu_bytes + byte)));
    bytes.collect()
}

/// The bytes of an access in the order of its memory, from the naive sequence.
fn expected(sequence: &[Byte], order: SubfileOrder, offset: usize, bytes: usize) -> Vec<Byte> {
    let mut part = sequence[offset..offset + bytes].to_vec();
    if order == SubfileOrder::Column {
        part.sort_unstable();
    }
    part
}

/// The bytes of an access in the order of its memory; `None` where nothing is moved.
fn found(subfile: &Subfile, offset: u64, bytes: u64) -> Vec<Option<Byte>> {
    let mut all = vec![None; bytes as usize];
    let parts = subfile.access(offset, bytes).unwrap();
    assert!(parts.is_sorted_by_key(|part| part.cell));
    for part in parts {
        assert_eq!(
            subfile.in_cell(part.cell, offset, bytes).unwrap().as_ref(),
            Some(&part)
        );
        assert!(part.places.is_disjoint() && part.places.series() <= 7);
        let singles = |list: &penstock_layout::List| -> Vec<u64> {
            let runs = list.iter();
            runs.flat_map(|(start, length)| start..start + length)
                .collect()
        };
        let (places, memory) = (singles(&part.places), singles(&part.memory));
        assert!(places.is_sorted(), "{part:?}");
        assert_eq!(places.len(), memory.len());
        for (place, at) in places.into_iter().zip(memory) {
            let former = all[at as usize].replace((part.cell, place));
            assert_eq!(former, None, "two bytes for one place in memory");
        }
    }
    all
}

/// Checks accesses to all subfiles of a view, in all orders.
fn check(
    numbers: [u64; 4],
    file: (u64, u64),
    rows: u64,
    accesses: impl Fn(usize) -> Vec<(usize, usize)>,
) {
    let [vbs, vn, hbs, hn] = numbers;
    let view = View::new(vbs, vn, hbs, hn).unwrap();
    for number in 0..view.subfiles() {
        for order in ORDERS {
            let subfile = Subfile::new(view, number, order, file).unwrap();
            let all = sequence(numbers, file, number, order, rows);
            for (offset, bytes) in accesses(all.len()) {
                let found = found(&subfile, offset as u64, bytes as u64);
                let expected = expected(&all, order, offset, bytes);
                let expected: Vec<_> = expected
                    .into_iter()
                    .map(|byte| Some(byte).filter(|byte| byte.0 < file.0))
                    .collect();
                assert_eq!(
                    found, expected,
                    "{view:?} of {file:?}, subfile {number}, {order:?}, {bytes} from {offset}"
                );
            }
            for cell in 0..file.0 + 2 {
                let is_touched = subfile.in_cell(cell, 0, all.len() as u64).unwrap();
                let is_expected = all.iter().any(|byte| byte.0 == cell) && cell < file.0;
                assert_eq!(is_touched.is_some(), is_expected);
            }
        }
    }
}

/// V1, V3, V5, V6: all small views of all small files, with BSUs of two bytes, so that accesses
/// begin and end within one.
#[test]
fn small_views_are_those_of_the_equations() {
    for vbs in 1..=3 {
        for vn in 1..=3 {
            for hbs in 1..=3 {
                for hn in 1..=3 {
                    for cells in [1, 2, 3, 4, 7] {
                        let rows = 2 * vbs * vn + 1;
                        check([vbs, vn, hbs, hn], (cells, 2), rows, |all| {
                            let sizes = [1, 2, 3, 5, all / 2, all];
                            let offsets = [0, 1, 2, 5, 8, all / 3];
                            let both = offsets.iter().flat_map(|&offset| {
                                sizes.iter().map(move |&bytes| (offset, bytes))
                            });
                            both.filter(|(offset, bytes)| offset + bytes <= all)
                                .collect()
                        });
                    }
                }
            }
        }
    }
}

/// V1: every access of a few views.
#[test]
fn every_access_is_that_of_the_equations() {
    for (view, file) in [
        ([2, 2, 2, 2], (7, 3)),
        ([1, 1, 1, 1], (3, 2)),
        ([1, 1, 1, 4], (4, 3)),
        ([3, 1, 1, 2], (5, 1)),
        ([1, 4, 4, 1], (4, 1)),
        ([2, 1, 3, 1], (4, 2)),
    ] {
        check(view, file, 4 * view[0] * view[1], |all| {
            let all = all.min(60);
            let starts = 0..all;
            starts
                .flat_map(|from| (0..=all - from).map(move |bytes| (from, bytes)))
                .collect()
        });
    }
}

/// V1: subfiles are disjoint, and together they are the file.
#[test]
fn subfiles_are_a_partition() {
    let view = View::new(2, 3, 2, 2).unwrap();
    let (cells, rows) = (7, 12);
    let mut seen = BTreeMap::new();
    for number in 0..view.subfiles() {
        let subfile = Subfile::new(view, number, SubfileOrder::Block, (cells, 1)).unwrap();
        for part in subfile.access(0, 8 * 8).unwrap() {
            for (start, length) in part.places.iter() {
                for byte in start..start + length {
                    assert_eq!(view.subfile_of(part.cell, byte), number);
                    assert_eq!(seen.insert((part.cell, byte), number), None);
                }
            }
        }
    }
    for cell in 0..cells {
        for bsu in 0..rows {
            assert!(
                seen.contains_key(&(cell, bsu)),
                "BSU {bsu} of cell {cell} is nobody's"
            );
        }
    }
}

/// V2: the two views that the paper names.
#[test]
fn a_striped_file_and_a_subfile_a_cell() {
    let file = (4, 10);
    let striped = Subfile::new(View::striped(), 0, SubfileOrder::Block, file).unwrap();
    for byte in 0..200 {
        let part = &striped.access(byte, 1).unwrap()[0];
        let place = part.places.iter().next().unwrap();
        let (bsu, within) = (byte / 10, byte % 10);
        assert_eq!((part.cell, place), (bsu % 4, (bsu / 4 * 10 + within, 1)));
    }
    let own = View::new(1, 1, 1, 4).unwrap();
    for cell in 0..4 {
        let subfile = Subfile::new(own, cell, SubfileOrder::Block, file).unwrap();
        let parts = subfile.access(17, 1 << 40).unwrap();
        assert_eq!((parts.len(), parts[0].cell), (1, cell));
        let runs: Vec<_> = parts[0].places.iter().collect();
        assert_eq!(runs, [(17, 1 << 40)]);
    }
}

/// What reaches too far is refused, and never wraps around.
#[test]
fn numbers_that_are_too_large_are_refused() {
    assert!(matches!(
        View::new(1, 0, 1, 1),
        Err(LayoutError::View { .. })
    ));
    assert!(matches!(
        View::new(1 << 40, 1 << 40, 1, 1),
        Err(LayoutError::View { .. })
    ));
    let view = View::new(1, 1 << 20, 1, 1).unwrap();
    let subfile = Subfile::new(view, 3, SubfileOrder::Block, (2, 1 << 20)).unwrap();
    assert!(subfile.access(1 << 40, 1).is_ok());
    let beyond = subfile.access(1 << 50, 1);
    assert!(
        matches!(beyond, Err(LayoutError::BeyondCell { .. })),
        "{beyond:?}"
    );
    let beyond = subfile.access(u64::MAX, u64::MAX);
    assert!(matches!(beyond, Err(LayoutError::BeyondCell { .. })));
    let wide = View::new(1 << 30, 1 << 32, 1 << 30, 1 << 31).unwrap_err();
    assert!(matches!(wide, LayoutError::View { .. }));
    let tall = View::new(1 << 61, 1, 1, 1).unwrap();
    let tall = Subfile::new(tall, 0, SubfileOrder::Row, (3, 1)).unwrap();
    assert!(tall.access((1 << 62) - 5, 5).is_ok());
    for refused in [(0, 1), (1, 0), (1, 1 << 63)] {
        let subfile = Subfile::new(View::striped(), 0, SubfileOrder::Row, refused);
        assert!(matches!(subfile, Err(LayoutError::Cells { .. })));
    }
    let none = Subfile::new(View::striped(), 1, SubfileOrder::Row, (1, 1));
    assert!(matches!(
        none,
        Err(LayoutError::Subfile {
            number: 1,
            subfiles: 1
        })
    ));
    assert!(View::try_from([1, 0, 1, 1]).is_err());
}

proptest! {
    /// V1: single bytes of files with large numbers, found by the equations.
    #[test]
    fn large_numbers(
        numbers in [1u64..5000, 1u64..50, 1u64..500, 1u64..50],
        cells in 1u64..100_000,
        bsu_bytes in 1u64..1_000_000,
        cell in 0u64..100_000,
        bsu in 0u64..1_000_000,
        byte in 0u64..1_000_000,
        around in 1u64..100,
    ) {
        let (cell, byte) = (cell % cells, byte % bsu_bytes);
        let [vbs, vn, hbs, hn] = numbers;
        let view = View::new(vbs, vn, hbs, hn).unwrap();
        let (number, bsu_number) = equations(numbers, cells, cell, bsu);
        prop_assert_eq!(view.subfile_of(cell, bsu), number);
        let subfile = Subfile::new(view, number, SubfileOrder::Block, (cells, bsu_bytes)).unwrap();
        let offset = bsu_number * bsu_bytes + byte;
        let parts = subfile.access(offset, around).unwrap();
        let first = parts.iter().find(|part| part.memory.iter().next().is_some_and(|(at, _)| at == 0));
        let first = first.expect("the first byte is of a real cell");
        prop_assert_eq!(first.cell, cell);
        prop_assert_eq!(first.places.iter().next().unwrap().0, bsu * bsu_bytes + byte);
        let moved: u64 = parts.iter().map(|part| part.places.elements()).sum();
        prop_assert!(moved <= around);
    }

    /// V1, V5: random views and accesses against the naive sequence.
    #[test]
    fn random_accesses(
        numbers in [1u64..5, 1u64..4, 1u64..5, 1u64..4],
        cells in 1u64..12,
        bsu_bytes in 1u64..9,
        place in (0.0f64..1.0, 0.0f64..1.0),
    ) {
        check(numbers, (cells, bsu_bytes), 3 * numbers[0] * numbers[1], |all| {
            let offset = (all as f64 * place.0) as usize;
            let bytes = ((all - offset) as f64 * place.1) as usize;
            vec![(offset, bytes)]
        });
    }
}
