use super::*;

const FILL: u8 = 255;

/// Runs `copy`, and a copy element by element, from and to buffers with room on both sides.
fn check(copy: &StridedCopy) {
    let reach = |stride: fn(&Axis) -> isize| {
        copy.axes
            .iter()
            .fold((0, copy.width as isize), |(low, high), axis| {
                let last = (axis.count as isize - 1) * stride(axis);
                (low + last.min(0), high + last.max(0))
            })
    };
    let ((from, from_end), (to, to_end)) = (reach(|axis| axis.source), reach(|axis| axis.target));
    // Three bytes of room make all addresses unaligned.
    let source: Vec<u8> = (0..from_end - from + 6)
        .map(|i| (i * 7 % 251) as u8)
        .collect();
    let mut expected = vec![FILL; (to_end - to + 6) as usize];
    let mut at = vec![(3 - from, 3 - to)];
    for axis in &copy.axes {
        let deeper = at.iter().flat_map(|&(from, to)| {
            (0..axis.count as isize).map(move |i| (from + i * axis.source, to + i * axis.target))
        });
        at = deeper.collect();
    }
    for (from, to) in at {
        let (from, to) = (from as usize, to as usize);
        expected[to..to + copy.width].copy_from_slice(&source[from..from + copy.width]);
    }
    let mut simple = copy.clone();
    simple.simplify();
    assert_eq!(simple.bytes(), copy.bytes(), "{copy:?} became {simple:?}");
    for mut ready in [copy.clone(), simple] {
        ready.source += 3 - from;
        ready.target += 3 - to;
        let mut target = vec![FILL; expected.len()];
        // SAFETY: the buffers were made to hold all that the copy reaches.
        unsafe { ready.run(source.as_ptr(), target.as_mut_ptr()) };
        assert!(target == expected, "{ready:?}");
        target.fill(FILL);
        // SAFETY: as above.
        unsafe { ready.run_by_bytes(source.as_ptr(), target.as_mut_ptr()) };
        assert!(target == expected, "{ready:?} by bytes");
    }
}

fn copy(width: usize, axes: &[(usize, isize, isize)]) -> StridedCopy {
    let axes = axes.iter().map(|&(count, source, target)| Axis {
        count,
        source,
        target,
    });
    StridedCopy {
        axes: axes.collect(),
        ..StridedCopy::element(width)
    }
}

#[test]
fn simplified_forms() {
    #[rustfmt::skip]
    let table = [
        // contiguous in two dimensions: one memcpy
        (copy(8, &[(4, 80, 80), (10, 8, 8)]), copy(320, &[])),
        // rows
        (copy(8, &[(4, 160, 80), (10, 8, 8)]), copy(80, &[(4, 160, 80)])),
        // CYCLIC(4)
        (copy(8, &[(9, 64, 32), (4, 8, 8)]), copy(32, &[(9, 64, 32)])),
        // axes of one vanish, the rest merges though it is strided
        (copy(8, &[(3, 96, 48), (1, 7, 9), (6, 16, 8)]), copy(8, &[(18, 16, 8)])),
        // a transpose ends with the target's axis
        (copy(8, &[(5, 24, 8), (3, 8, 40)]), copy(8, &[(3, 8, 40), (5, 24, 8)])),
        // the source's axis is put beside it
        (copy(8, &[(2, 8, 400), (4, 16, 100), (3, 64, 8)]),
         copy(8, &[(4, 16, 100), (2, 8, 400), (3, 64, 8)])),
        // backwards on both sides is forwards
        (copy(8, &[(4, -8, -8)]), StridedCopy { source: -24, target: -24, ..copy(32, &[]) }),
        // backwards on one side stays so
        (copy(8, &[(4, -8, 8)]), copy(8, &[(4, -8, 8)])),
        (copy(8, &[(4, 8, 8), (0, 8, 8)]), copy(8, &[(0, 0, 0)])),
    ];
    for (mut given, simple) in table {
        given.simplify();
        assert_eq!(given, simple);
    }
}

#[test]
fn one_axis_of_any_width() {
    for width in (1..=35).chain([48, 63, 64, 65, 100, 127, 128, 129, 1000]) {
        let w = width as isize;
        for count in [0, 1, 2, 3, 4, 5, 8, 17] {
            for (from, to) in [
                (w, w),
                (2 * w, w),
                (w, 2 * w),
                (w + 1, w),
                (-w, w),
                (3 * w, -2 * w),
                (0, w),
            ] {
                check(&copy(width, &[(count, from, to)]));
            }
        }
    }
}

#[test]
fn transposes() {
    for width in [1usize, 2, 3, 4, 5, 8, 12, 16, 24, 40] {
        let w = width as isize;
        for (rows, columns) in [
            (2, 2),
            (7, 9),
            (16, 16),
            (17, 33),
            (3, 300),
            (300, 3),
            (64, 65),
            (131, 70),
            (9, 260),
        ] {
            let (m, n) = (rows as isize, columns as isize);
            check(&copy(width, &[(rows, n * w, w), (columns, w, m * w)]));
            // With gaps, and backwards.
            check(&copy(
                width,
                &[(rows, 2 * n * w + 1, w), (columns, 2 * w, m * w + 5)],
            ));
            check(&copy(width, &[(rows, -n * w, w), (columns, w, -m * w)]));
            // A third axis outside.
            check(&copy(
                width,
                &[
                    (2, m * n * w, m * n * w),
                    (rows, n * w, w),
                    (columns, w, m * w),
                ],
            ));
        }
    }
}

#[test]
fn three_and_four_axes() {
    let counts = [3usize, 5, 4, 2];
    let orders = [
        [0, 1, 2, 3],
        [3, 2, 1, 0],
        [2, 0, 3, 1],
        [1, 3, 0, 2],
        [0, 2, 1, 3],
    ];
    for width in [1, 3, 8] {
        for source in orders {
            for target in orders {
                let strides = |order: [usize; 4]| {
                    let (mut stride, mut strides) = (width as isize, [0; 4]);
                    for d in order {
                        strides[d] = stride;
                        stride *= counts[d] as isize;
                    }
                    strides
                };
                let (from, to) = (strides(source), strides(target));
                let axes: Vec<_> = (0..4).map(|d| (counts[d], from[d], to[d])).collect();
                check(&copy(width, &axes));
            }
        }
    }
}
