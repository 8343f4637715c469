//! Copies between slices, each checked to stay inside.

use penstock_layout::StridedCopy;

/// Runs the copies from `source` to `target`.
pub fn run(copies: impl Iterator<Item = StridedCopy>, source: &[u8], target: &mut [u8]) {
    for copy in copies {
        assert_in(&copy, copy.source, |axis| axis.source, source.len());
        assert_in(&copy, copy.target, |axis| axis.target, target.len());
        // SAFETY: all places of the copy lie in the slices, as has just been checked.
        unsafe { copy.run(source.as_ptr(), target.as_mut_ptr()) };
    }
}

fn assert_in(
    copy: &StridedCopy,
    start: isize,
    stride: impl Fn(&penstock_layout::Axis) -> isize,
    bytes: usize,
) {
    let (mut first, mut last) = (start, start);
    for axis in &copy.axes {
        let span = (axis.count as isize - 1) * stride(axis);
        first += span.min(0);
        last += span.max(0);
    }
    let end = last + copy.width as isize;
    assert!(first >= 0 && end <= bytes as isize, "{copy:?} in {bytes}");
}
