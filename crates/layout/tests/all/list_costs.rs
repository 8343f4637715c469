//! What lists are kept as, what they cost, and what is refused. Costs are counted, never timed.

use crate::copying::run;
use penstock_layout::{Direction, DiskSchema, Holding, LayoutError, List, ListPiece, Order};

fn flat(list: &List) -> Vec<u64> {
    list.iter()
        .flat_map(|(start, length)| start..start + length)
        .collect()
}

#[test]
fn lists_as_they_are_kept() {
    let runs = |runs: &[(u64, u64)]| {
        let (offsets, lengths): (Vec<_>, Vec<_>) = runs.iter().copied().unzip();
        List::runs(&offsets, &lengths).unwrap()
    };
    let strided =
        |start, length, loops: &[(u64, i64)]| List::strided(start, length, loops).unwrap();
    let rows: Vec<(u64, u64)> = (0..12).map(|n| (100 * (n / 4) + 10 * (n % 4), 3)).collect();
    #[rustfmt::skip]
    let table = [
        // nothing
        (runs(&[]), List::default(), 0),
        (runs(&[(5, 0), (9, 0)]), List::default(), 0),
        (strided(7, 2, &[(3, 10), (0, 1)]), List::default(), 0),
        // runs that touch, loops of one turn, loops that continue each other
        (runs(&[(4, 2), (6, 3), (9, 1)]), strided(4, 6, &[]), 1),
        (strided(4, 2, &[(1, -99), (3, 2)]), strided(4, 6, &[]), 1),
        (strided(0, 1, &[(3, 20), (4, 5)]), strided(0, 1, &[(12, 5)]), 1),
        // regular runs, forwards, backwards and in two dimensions
        (runs(&[(4, 2), (14, 2), (24, 2)]), strided(4, 2, &[(3, 10)]), 1),
        (runs(&[(24, 2), (14, 2), (4, 2)]), strided(24, 2, &[(3, -10)]), 1),
        (runs(&[(7, 1), (7, 1), (7, 1)]), strided(7, 1, &[(3, 0)]), 1),
        (runs(&rows), strided(0, 3, &[(3, 100), (4, 10)]), 1),
        (List::concat([strided(0, 3, &[(4, 10)]), strided(40, 3, &[(5, 10)])]).unwrap(),
         strided(0, 3, &[(9, 10)]), 1),
        (List::concat([strided(0, 3, &[]), strided(10, 3, &[(5, 10)])]).unwrap(),
         strided(0, 3, &[(6, 10)]), 1),
        // the order of the elements has a meaning
        (strided(0, 1, &[(3, 1), (4, 3)]), strided(0, 1, &[(3, 1), (4, 3)]), 1),
    ];
    for (list, expected, series) in table {
        assert_eq!(list, expected);
        assert_eq!(list.series(), series);
    }
}

#[test]
fn refusals() {
    const MAX: u64 = i64::MAX as u64;
    let text = |result: Result<List, LayoutError>| result.unwrap_err().to_string();
    assert_eq!(
        text(List::runs(&[1, 2], &[1])),
        "2 offsets of runs, but 1 lengths: there must be one for each"
    );
    assert!(List::strided(MAX - 1, 1, &[]).is_ok());
    type Given = (u64, u64, &'static [(u64, i64)]);
    let table: [Given; 8] = [
        (MAX, 1, &[]),
        (u64::MAX, 1, &[]),
        (0, u64::MAX, &[]),
        (5, 1, &[(7, -1)]),
        (0, 1, &[(u64::MAX, 1)]),
        (0, 1, &[(3, i64::MAX)]),
        (1, 1, &[(3, i64::MIN)]),
        (0, 1, &[(1 << 40, 0), (1 << 40, 0)]),
    ];
    for (start, length, loops) in table {
        let message = text(List::strided(start, length, loops));
        assert!(
            message.contains("reach below 0 or beyond 2^63 - 1"),
            "{message}"
        );
    }
    let many = List::strided(0, 1 << 30, &[(1 << 30, 0), (4, 0)]).unwrap();
    let more = List::strided(1, 1 << 31, &[(1 << 31, 0)]).unwrap();
    assert_eq!(
        text(List::concat([many, more])),
        "the 2 series of a list have more than 2^63 - 1 elements together"
    );
    let list = List::strided(3, 2, &[(4, 10)]).unwrap();
    assert_eq!(
        list.check(34).unwrap_err().to_string(),
        "the elements 3..35 of a list are not all inside the 34 that there are"
    );
    assert_eq!(
        Holding::new(&list, &List::default())
            .unwrap_err()
            .to_string(),
        "the list of the file has 8 elements, the list of the memory 0"
    );
}

/// A source of numbers that look random.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let mixed = (self.0 ^ (self.0 >> 33)).wrapping_mul(0xff51afd7ed558ccd);
        mixed ^ (mixed >> 29)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

fn dense(count: u64) -> List {
    List::strided(0, count, &[]).unwrap()
}

/// The most series of a piece, and the pieces.
fn most_series(holding: &Holding, schema: &DiskSchema) -> (usize, usize) {
    let pieces: Vec<usize> = holding
        .pieces(schema)
        .map(|(_, piece)| piece.series())
        .collect();
    (pieces.iter().copied().max().unwrap_or(0), pieces.len())
}

#[test]
fn a_million_regular_runs_stay_few_series() {
    const MANY: u64 = 1 << 20;
    let offsets: Vec<u64> = (0..MANY).map(|n| 5 + 8 * n).collect();
    let list = List::runs(&offsets, &vec![3; MANY as usize]).unwrap();
    assert_eq!(list, List::strided(5, 3, &[(MANY, 8)]).unwrap());
    assert!(postcard::to_stdvec(&list).unwrap().len() < 12);
    assert!(list.is_disjoint());
    let holding = Holding::new(&list, &dense(3 * MANY)).unwrap();
    assert_eq!(holding.series(), 1);
    // Rows are a multiple of the stride: one series a chunk.
    let chunked = DiskSchema::chunked(&[4096, 2048], 8, &[100, 100]).unwrap();
    assert_eq!(most_series(&holding, &chunked), (1, 41 * 21));
    // A flat file has no rows.
    for shape in [&[4096, 2048][..], &[8192, 1024], &[7, 1198373], &[8388611]] {
        let file = DiskSchema::flat(shape, 8, Order::RowMajor, 1 << 20).unwrap();
        let (series, pieces) = most_series(&holding, &file);
        assert!(series <= 3 && pieces <= 80, "{shape:?} {series} {pieces}");
    }
    // The pattern comes again every 8 rows.
    let odd = DiskSchema::chunked(&[4200, 2001], 8, &[100, 87]).unwrap();
    let (series, _) = most_series(&holding, &odd);
    assert!(series <= 8 * 5 + 8, "{series}");
    let fortran = DiskSchema::flat(&[4096, 2048], 8, Order::ColumnMajor, 1 << 20).unwrap();
    let (series, pieces) = most_series(&holding, &fortran);
    assert!(series <= 3 && pieces == 64, "{series} {pieces}");
}

#[test]
fn a_box_is_one_series() {
    // A box of 64 x 128 x 100 of an array of 256^3, in memory with a halo of 2.
    let file = List::strided(7 * 65536 + 40 * 256 + 30, 100, &[(64, 65536), (128, 256)]).unwrap();
    let memory = List::strided(2, 100, &[(64, 132 * 104), (128, 104)]).unwrap();
    let holding = Holding::new(&file, &memory).unwrap();
    assert_eq!(holding.series(), 1);
    let schema = DiskSchema::chunked(&[256; 3], 4, &[32, 50, 64]).unwrap();
    assert_eq!(most_series(&holding, &schema), (1, 3 * 4 * 3));
    for (_, piece) in holding.pieces(&schema) {
        assert!(postcard::to_stdvec(&piece).unwrap().len() <= 24);
    }
    // The same box in another order of elements, and in memory column-major.
    let file = List::strided(
        7 * 65536 + 40 * 256 + 30,
        1,
        &[(100, 1), (128, 256), (64, 65536)],
    );
    let holding = Holding::new(&file.unwrap(), &dense(64 * 128 * 100)).unwrap();
    assert_eq!(holding.series(), 1);
    assert_eq!(most_series(&holding, &schema), (1, 3 * 4 * 3));
}

#[test]
fn lists_of_other_rhythms_pair_in_few_strands() {
    let runs = |run, gap, count| List::strided(0, run, &[(count, gap)]).unwrap();
    #[rustfmt::skip]
    let table = [
        (runs(3, 10, 5 << 20), runs(5, 8, 3 << 20), 7),
        (runs(7, 10, 10 << 20), runs(10, 17, 7 << 20), 16),
        (runs(12, 20, 1 << 20), runs(4, 9, 3 << 20), 1),
        (runs(1, 2, 1 << 20), dense(1 << 20), 1),
        // primes: three strands for each run of the list that has fewer
        (runs(7, 10, 1_000_003), runs(1_000_003, 2_000_000, 7), 3 * 7),
        // ends that do not fit
        (List::concat([runs(7, 9, 1 << 20), List::strided(1 << 40, 5, &[]).unwrap()]).unwrap(),
         dense((7 << 20) + 5), 2),
    ];
    for (file, memory, most) in table {
        for (file, memory) in [(&file, &memory), (&memory, &file)] {
            let holding = Holding::new(file, memory).unwrap();
            assert_eq!(holding.elements(), file.elements());
            assert!(holding.series() <= most, "{} {most}", holding.series());
        }
    }
}

#[test]
fn a_million_irregular_runs_cost_in_proportion() {
    const MANY: u64 = 1_000_000;
    let mut numbers = Numbers(7);
    let mut runs: Vec<(u64, u64)> = (0..MANY)
        .map(|n| (40 * n + numbers.below(20), 1 + numbers.below(15)))
        .collect();
    for is_sorted in [true, false] {
        let (offsets, lengths): (Vec<_>, Vec<_>) = runs.iter().copied().unzip();
        let list = List::runs(&offsets, &lengths).unwrap();
        assert!(list.series() <= MANY as usize && list.is_disjoint());
        let holding = Holding::new(&list, &dense(list.elements())).unwrap();
        assert!(holding.series() <= MANY as usize);
        assert!(holding.is_disjoint_in_file() && holding.is_disjoint_in_memory());
        let schema = DiskSchema::chunked(&[40, MANY], 4, &[7, 9999]).unwrap();
        let (mut elements, mut series, mut runs_cut) = (0, 0, 0);
        for (_, piece) in holding.pieces(&schema).of_server(2, 5) {
            elements += piece.elements();
            series += piece.series() as u64;
            runs_cut += piece.runs();
        }
        // A fifth of the blocks, and few runs are cut in two.
        let share = list.elements() / 5;
        assert!(elements.abs_diff(share) < share / 20, "{elements} {share}");
        assert!(
            series <= runs_cut && runs_cut < MANY / 5 + MANY / 50,
            "{series} {runs_cut}"
        );
        if is_sorted {
            (1..runs.len()).for_each(|n| runs.swap(n, numbers.below(n as u64) as usize));
        }
    }
}

#[test]
fn interleaved_series_are_compared_without_their_elements() {
    let strided =
        |start, length, loops: &[(u64, i64)]| List::strided(start, length, loops).unwrap();
    let many = 1 << 40;
    #[rustfmt::skip]
    let table = [
        // one series, whatever its direction
        (vec![strided(0, 3, &[(many, 3)])], true),
        (vec![strided(1 << 50, 3, &[(many, -4)])], true),
        (vec![strided(0, 1, &[(1 << 20, 1), (1 << 20, 1 << 20)])], true),
        (vec![strided(0, 3, &[(many, 2)])], false),
        (vec![strided(0, 3, &[(many, 0)])], false),
        // real and imaginary parts
        (vec![strided(0, 1, &[(many, 2)]), strided(1, 1, &[(many, 2)])], true),
        (vec![strided(0, 1, &[(many, 2)]), strided(2 * many, 1, &[(many, 2)])], true),
        (vec![strided(0, 1, &[(many, 2)]), strided(2 * many - 2, 1, &[(many, 2)])], false),
        (vec![strided(0, 2, &[(many, 6)]), strided(9, 2, &[(many, 6)])], true),
        (vec![strided(0, 2, &[(many, 6)]), strided(7, 2, &[(many, 6)])], false),
        // columns of rows, whose length is no multiple of the inner stride
        (vec![strided(0, 1, &[(1000, 2001), (1000, 2)]),
              strided(1, 1, &[(1000, 2001), (1000, 2)])], true),
    ];
    for (lists, is_disjoint) in table {
        let list = List::concat(lists.clone()).unwrap();
        assert_eq!(list.is_disjoint(), is_disjoint, "{lists:?}");
    }
}

#[test]
fn arrays_of_more_than_32_bits() {
    // A column of an array of 2^22 x 2^20 elements: in column 12 of 1024 columns of chunks.
    let list = List::strided(12345, 1, &[(1 << 22, 1 << 20)]).unwrap();
    let holding = Holding::new(&list, &dense(1 << 22)).unwrap();
    let schema = DiskSchema::chunked(&[1 << 22, 1 << 20], 8, &[1 << 12, 1 << 10]).unwrap();
    assert!(holding.pieces(&schema).of_server(57, 64).next().is_none());
    let pieces: Vec<_> = holding.pieces(&schema).of_server(12, 64).collect();
    let objects = pieces.iter().map(|(block, _)| block.object);
    assert!(objects.eq((0..1024).map(|row| row * 1024 + 12)));
    for (nth, (_, piece)) in pieces.iter().enumerate() {
        let rows = (nth as u64) << 12..(nth as u64 + 1) << 12;
        assert_eq!((piece.series(), piece.memory_bounds()), (1, Some(rows)));
    }
}

#[test]
fn values_from_elsewhere_are_refused_or_sound() {
    let schema = DiskSchema::chunked(&[20, 30], 2, &[7, 8]).unwrap();
    let list = List::concat([
        List::strided(3, 2, &[(4, 60), (5, 4)]).unwrap(),
        List::runs(&[500, 100, 7], &[3, 4, 5]).unwrap(),
    ])
    .unwrap();
    let holding = Holding::new(&list, &dense(list.elements())).unwrap();
    let (_, piece) = holding
        .pieces(&schema)
        .max_by_key(|(_, piece)| piece.series())
        .unwrap();
    let samples = [
        postcard::to_stdvec(&list).unwrap(),
        postcard::to_stdvec(&piece).unwrap(),
    ];
    let (mut refused, mut used) = ([0, 0], [0, 0]);
    for seed in 0..200_000 {
        let mut numbers = Numbers(seed);
        let which = numbers.below(2) as usize;
        let mut bytes = samples[which].clone();
        for _ in 0..1 + numbers.below(4) {
            let at = numbers.below(bytes.len() as u64) as usize;
            match numbers.below(4) {
                0 => bytes[at] = numbers.next() as u8,
                1 => bytes[at] ^= 1 << numbers.below(8),
                2 => bytes.truncate(at.max(1)),
                _ => {
                    let extreme = [i64::MAX, i64::MIN, -1, 0, 1 << 62][numbers.below(5) as usize];
                    bytes.splice(at..at + 1, postcard::to_stdvec(&extreme).unwrap());
                }
            }
        }
        let is_used = match which {
            0 => {
                let decoded = postcard::from_bytes::<List>(&bytes).ok();
                let inside = decoded.filter(|list| list.check(600).is_ok());
                let small = inside.filter(|list| list.elements() < 10_000);
                small.is_some_and(|list| {
                    assert!(flat(&list).iter().all(|&place| place < 600), "seed {seed}");
                    list.is_disjoint();
                    let count = list.elements();
                    let holding = Holding::new(&list, &dense(count)).unwrap();
                    let pieces = holding.pieces(&schema);
                    assert_eq!(
                        pieces.map(|(_, piece)| piece.elements()).sum::<u64>(),
                        count
                    );
                    true
                })
            }
            _ => {
                let decoded = postcard::from_bytes::<ListPiece>(&bytes).ok();
                let inside = decoded.filter(|piece| piece.is_in(80, 56));
                inside.is_some_and(|piece| {
                    let (mut memory, mut buffer) = (vec![1; 160], vec![2; 112]);
                    piece.gather(2, &memory, &mut buffer);
                    piece.scatter(2, &buffer, &mut memory);
                    let mut parcel = vec![3; 2 * piece.elements() as usize];
                    run(piece.packing(2, 2, Direction::Gather), &memory, &mut parcel);
                    run(piece.unpacking(2, Direction::Gather), &parcel, &mut buffer);
                    true
                })
            }
        };
        let counts = if is_used { &mut used } else { &mut refused };
        counts[which] += 1;
    }
    for count in refused.into_iter().chain(used) {
        assert!(count > 1000, "{refused:?} {used:?}");
    }
}
