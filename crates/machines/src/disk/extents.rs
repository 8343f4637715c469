//! Where the bytes of a file lie on its device.
//!
//! The kernel gives the extents of a file of an ordinary file system (`FIEMAP`). On a raw device an
//! offset is a position. What the kernel says is a hint: a file system may move data later, and the
//! worst that comes of it is a worse order. It is checked all the same, and nothing is taken of an
//! answer that makes no sense.
//!
//! ```text
//! offsets in the file      |--- 0 ---|--- 1 ---|   hole   |--- 2 ---|
//! extents                    at 700    at 300               at 900
//! ```
//!
//! Cost: one call of the kernel for each [`ASKED_AT_ONCE`] extents, and 24 bytes for each that does
//! not go on where the one before ends.

use std::fs::File;
use std::os::unix::fs::FileTypeExt;

use rustix::ioctl::{Opcode, Updater, opcode};

/// The most extents of one call.
const ASKED_AT_ONCE: usize = 128;
/// The most extents that are kept of a file. A file in more pieces has no order worth keeping.
const EXTENTS_MAX: usize = 1 << 16;

/// `FS_IOC_FIEMAP`, which counts no extents as its argument.
const FS_IOC_FIEMAP: Opcode = opcode::read_write::<[u8; 32]>(b'f', 11);
/// The extent is the file's last.
const LAST: u32 = 0x1;
/// The extent has no position, or not yet (unknown, delayed allocation), or its bytes lie otherwise
/// than in the file (encoded, not aligned, beside metadata, beside other data).
const UNPLACED: u32 = 0x2 | 0x4 | 0x8 | 0x100 | 0x200 | 0x400;

/// `struct fiemap_extent` of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// `struct fiemap` of the kernel, with room for extents.
#[repr(C)]
struct RawMap {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [RawExtent; ASKED_AT_ONCE],
}

/// A run of a file's bytes that lie together on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extent {
    /// The first byte in the file.
    start: u64,
    /// The byte after the last.
    end: u64,
    /// The position of the first byte on the device.
    position: u64,
}

/// The extents of a file that have a position, in the order of the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Extents(Vec<Extent>);

impl Extents {
    /// Looks up the extents of a file. There are none where the file system does not tell.
    pub fn of(file: &File) -> Self {
        if is_raw(file) {
            let (start, end, position) = (0, u64::MAX, 0);
            return Self(vec![Extent {
                start,
                end,
                position,
            }]);
        }
        Self::listed(|start, answer| ask(file, start, answer)).unwrap_or_default()
    }

    /// The position of the byte at `offset` of the file, if it is known.
    pub fn position(&self, offset: u64) -> Option<u64> {
        let after = self.0.partition_point(|extent| extent.end <= offset);
        let extent = self.0.get(after)?;
        let inside = offset.checked_sub(extent.start)?;
        Some(extent.position + inside)
    }

    /// Whether all known positions ascend with the offsets.
    pub fn are_in_order(&self) -> bool {
        self.0.is_sorted_by_key(|extent| extent.position)
    }

    /// Lists the extents that `ask` gives from an offset on, until it gives the last. `None` if an
    /// answer fails or makes no sense.
    fn listed(mut ask: impl FnMut(u64, &mut Vec<RawExtent>) -> Option<()>) -> Option<Self> {
        let (mut extents, mut answer, mut seen) = (Vec::<Extent>::new(), Vec::new(), 0);
        loop {
            answer.clear();
            ask(seen, &mut answer)?;
            let mut is_last = answer.is_empty();
            for raw in &answer {
                let end = raw.logical.checked_add(raw.length)?;
                let goes_on = raw.logical >= seen && end > raw.logical;
                raw.physical.checked_add(raw.length)?;
                if !goes_on || extents.len() >= EXTENTS_MAX {
                    return None;
                }
                seen = end;
                is_last |= raw.flags & LAST != 0;
                if raw.flags & UNPLACED != 0 {
                    continue;
                }
                let (start, position) = (raw.logical, raw.physical);
                match extents.last_mut() {
                    Some(former)
                        if former.end == start
                            && former.position + (former.end - former.start) == position =>
                    {
                        former.end = end;
                    }
                    _ => extents.push(Extent {
                        start,
                        end,
                        position,
                    }),
                }
            }
            if is_last {
                return Some(Self(extents));
            }
        }
    }
}

/// Whether a file is a raw block device.
pub fn is_raw(file: &File) -> bool {
    let meta = file.metadata();
    meta.is_ok_and(|meta| meta.file_type().is_block_device())
}

/// Asks the kernel for the extents of a file from byte `start` on.
fn ask(file: &File, start: u64, answer: &mut Vec<RawExtent>) -> Option<()> {
    let mut map = RawMap {
        start,
        length: u64::MAX - start,
        flags: 0, // data that wait for their allocation are not written back for this
        mapped_extents: 0,
        extent_count: u32::try_from(ASKED_AT_ONCE).ok()?,
        reserved: 0,
        extents: [RawExtent::default(); ASKED_AT_ONCE],
    };
    // SAFETY: the number is that of a call that takes a map of this form, and the kernel writes to
    // no more extents than the map says it has room for.
    let asked = unsafe { rustix::ioctl::ioctl(file, Updater::<FS_IOC_FIEMAP, _>::new(&mut map)) };
    let mapped = map
        .extents
        .get(..usize::try_from(map.mapped_extents).ok()?)?;
    answer.extend_from_slice(mapped);
    asked.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(logical: u64, physical: u64, length: u64, flags: u32) -> RawExtent {
        RawExtent {
            logical,
            physical,
            length,
            flags,
            ..RawExtent::default()
        }
    }

    /// Answers with two extents at a time, from the asked offset on.
    fn listed(extents: &[RawExtent]) -> Option<Extents> {
        Extents::listed(|start, answer| {
            let rest = extents.iter().filter(|extent| extent.logical >= start);
            answer.extend(rest.take(2));
            Some(())
        })
    }

    #[test]
    fn a_byte_lies_in_its_extent_or_nowhere() {
        let extents = [
            raw(0, 7000, 1000, 0),
            raw(1000, 8000, 500, 0x800), // allocated, and not written yet
            raw(1500, 3000, 500, 0),
            raw(2000, 0, 1000, 0x2 | 0x4),
            raw(4000, 9000, 1000, LAST),
        ];
        let extents = listed(&extents).unwrap();
        assert_eq!(extents.0.len(), 3, "what lies together is one extent");
        for (offset, position) in [
            (0, Some(7000)),
            (999, Some(7999)),
            (1499, Some(8499)),
            (1500, Some(3000)),
            (1999, Some(3499)),
            (2000, None),
            (3999, None),
            (4000, Some(9000)),
            (4999, Some(9999)),
            (5000, None),
            (u64::MAX, None),
        ] {
            assert_eq!(extents.position(offset), position, "{offset}");
        }
        assert!(!extents.are_in_order());
        assert!(
            listed(&[raw(0, 3, 1, 0), raw(9, 4, 1, LAST)])
                .unwrap()
                .are_in_order()
        );
        assert_eq!(listed(&[]), Some(Extents::default()));
    }

    #[test]
    fn an_answer_that_makes_no_sense_is_none() {
        let cases: [&[RawExtent]; 5] = [
            &[raw(0, 0, 0, 0)],
            &[raw(0, u64::MAX, 2, 0)],
            &[raw(u64::MAX, 0, 2, 0)],
            &[raw(0, 0, 10, 0), raw(5, 50, 10, 0)],
            &[raw(9, 0, 10, 0), raw(0, 50, 5, 0)],
        ];
        for extents in cases {
            let found = Extents::listed(|_, answer| {
                answer.extend_from_slice(extents);
                Some(())
            });
            assert_eq!(found, None);
        }
        assert_eq!(Extents::listed(|_, _| None), None);
        let endless = Extents::listed(|start, answer| {
            answer.push(raw(start, 2 * start, 1, 0));
            Some(())
        });
        assert_eq!(endless, None, "a file of too many extents");
    }

    #[test]
    fn what_has_no_extents_has_no_positions() {
        for path in ["/dev/null", "/proc/self/stat"] {
            let file = File::open(path).unwrap();
            assert_eq!(Extents::of(&file).position(0), None, "{path}");
        }
    }
}
