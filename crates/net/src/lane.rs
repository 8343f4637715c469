//! A lane: a pipe of bytes in memory that two processes share, one that writes and one that reads.
//!
//! ```text
//! segment   | lane to the server: words, bytes | lane to the client: words, bytes |
//! lane      head: bytes read | tail: bytes written | does the reader watch, the writer wait?
//! ```
//!
//! Each side keeps its own count in its own memory and only publishes it, and checks what the other
//! side publishes: who shares the segment can spoil the bytes in it, and nothing else. Neither
//! side sleeps here: a reader that does not watch, and a writer that waits for room, are told
//! through the socket beside the lane.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use penstock_engine::{Error, Kind, Result};
use penstock_layout::exact;
use penstock_machines::memory::segment::Mapping;

/// The bytes that are on their way in a lane at most. A power of two.
pub(crate) const LANE_BYTES: usize = 1 << 18;

/// The words of a lane, those of reader and writer apart, so that they do not share a line of the
/// processors' caches.
#[repr(C, align(128))]
struct Words {
    head: AtomicU64,
    is_watched: AtomicU32,
    _apart: [u8; 112],
    tail: AtomicU64,
    waits_for_room: AtomicU32,
}

const WORDS_BYTES: usize = 4096;

/// The bytes of a segment of two lanes.
pub(crate) const SEGMENT_BYTES: usize = 2 * (WORDS_BYTES + LANE_BYTES);

/// The direction of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    ToServer,
    ToClient,
}

/// One lane of a segment.
struct Lane {
    segment: Arc<Mapping>,
    direction: Direction,
}

impl Lane {
    fn offset(&self) -> usize {
        match self.direction {
            Direction::ToServer => 0,
            Direction::ToClient => WORDS_BYTES + LANE_BYTES,
        }
    }

    fn words(&self) -> &Words {
        const { assert!(size_of::<Words>() <= WORDS_BYTES) };
        // SAFETY: the segment has `SEGMENT_BYTES` bytes, as its two makers checked; it is aligned
        // to pages, and any bytes are valid words.
        unsafe { &*self.segment.base().add(self.offset()).cast::<Words>() }
    }

    /// The address of the byte with this number, and the bytes from there to the end of the memory.
    fn place(&self, number: u64) -> (*mut u8, usize) {
        let at = exact::<usize>(number % LANE_BYTES as u64);
        let start = self
            .segment
            .base()
            .wrapping_add(self.offset() + WORDS_BYTES);
        (start.wrapping_add(at), LANE_BYTES - at)
    }
}

/// Makes the two ends of a segment: the lane to write, and the lane to read.
///
/// # Panics
/// When the segment has another size than [`SEGMENT_BYTES`].
pub(crate) fn ends(segment: Mapping, is_server: bool) -> (LaneWriter, LaneReader) {
    assert_eq!(segment.bytes(), SEGMENT_BYTES, "a segment of another size");
    let segment = Arc::new(segment);
    let (write, read) = match is_server {
        true => (Direction::ToClient, Direction::ToServer),
        false => (Direction::ToServer, Direction::ToClient),
    };
    let lane = |direction| Lane {
        segment: segment.clone(),
        direction,
    };
    let writer = LaneWriter {
        lane: lane(write),
        tail: 0,
    };
    let reader = LaneReader {
        lane: lane(read),
        head: 0,
    };
    (writer, reader)
}

/// The end of a lane that writes.
pub(crate) struct LaneWriter {
    lane: Lane,
    tail: u64,
}

impl LaneWriter {
    /// Writes as many bytes as there is room for, and says how many. If that is not all, the reader
    /// will tell when there is room.
    ///
    /// # Errors
    /// [`Kind::Peer`] when the other side has spoiled the words of the lane.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut written = self.write_some(bytes)?;
        if written < bytes.len() {
            self.lane.words().waits_for_room.store(1, Ordering::SeqCst);
            // The reader may have made room before it could see that.
            written += self.write_some(&bytes[written..])?;
        }
        Ok(written)
    }

    fn write_some(&mut self, bytes: &[u8]) -> Result<usize> {
        let words = self.lane.words();
        let used = self.tail.wrapping_sub(words.head.load(Ordering::SeqCst));
        let room = (LANE_BYTES as u64).checked_sub(used).ok_or_else(spoiled)?;
        let count = bytes.len().min(exact::<usize>(room));
        let (place, to_end) = self.lane.place(self.tail);
        let (first, second) = bytes[..count].split_at(count.min(to_end));
        let start = self.lane.place(0).0;
        // SAFETY: both parts lie within the lane's memory, and the reader leaves them alone until
        // the tail says that they are there.
        unsafe {
            std::ptr::copy_nonoverlapping(first.as_ptr(), place, first.len());
            std::ptr::copy_nonoverlapping(second.as_ptr(), start, second.len());
        }
        self.tail = self.tail.wrapping_add(count as u64);
        words.tail.store(self.tail, Ordering::Release);
        Ok(count)
    }

    /// Whether the reader must be told that there is something: it does not watch. From now on it
    /// counts as told.
    pub(crate) fn must_tell(&self) -> bool {
        fence(Ordering::SeqCst);
        let words = self.lane.words();
        words.is_watched.load(Ordering::SeqCst) == 0
            && words.is_watched.swap(1, Ordering::SeqCst) == 0
    }
}

/// The end of a lane that reads.
pub(crate) struct LaneReader {
    lane: Lane,
    head: u64,
}

impl LaneReader {
    /// The number of bytes that are there.
    ///
    /// # Errors
    /// [`Kind::Peer`] when the other side has spoiled the words of the lane.
    pub(crate) fn ready(&self) -> Result<usize> {
        let tail = self.lane.words().tail.load(Ordering::Acquire);
        match tail.wrapping_sub(self.head) {
            ready if ready <= LANE_BYTES as u64 => Ok(exact::<usize>(ready)),
            _ => Err(spoiled()),
        }
    }

    /// Reads bytes to the end of `into`, at most `count` of them, and says how many.
    ///
    /// # Errors
    /// As [`LaneReader::ready`].
    pub(crate) fn read(&mut self, into: &mut Vec<u8>, count: usize) -> Result<usize> {
        let count = count.min(self.ready()?);
        let (place, to_end) = self.lane.place(self.head);
        let first = count.min(to_end);
        into.reserve(count);
        let end = into.spare_capacity_mut().as_mut_ptr().cast::<u8>();
        // SAFETY: both parts lie within the lane's memory. They are copied before anybody looks at
        // them, so that a writer who changes them all the same spoils the copy alone. The vector
        // has room for them, and they make its end.
        unsafe {
            std::ptr::copy_nonoverlapping(place, end, first);
            std::ptr::copy_nonoverlapping(self.lane.place(0).0, end.add(first), count - first);
            into.set_len(into.len() + count);
        }
        self.head = self.head.wrapping_add(count as u64);
        self.lane.words().head.store(self.head, Ordering::SeqCst);
        Ok(count)
    }

    /// Whether the writer must be told that there is room: it waits for that.
    pub(crate) fn must_tell(&self) -> bool {
        let words = self.lane.words();
        words.waits_for_room.load(Ordering::SeqCst) != 0
            && words.waits_for_room.swap(0, Ordering::SeqCst) != 0
    }

    /// From now on this reader looks by itself.
    pub(crate) fn watch(&self) {
        self.lane.words().is_watched.store(1, Ordering::SeqCst);
    }

    /// From now on this reader wants to be told. Says whether something has come meanwhile.
    ///
    /// # Errors
    /// As [`LaneReader::ready`].
    pub(crate) fn unwatch(&self) -> Result<bool> {
        self.lane.words().is_watched.store(0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        Ok(self.ready()? > 0)
    }
}

fn spoiled() -> Error {
    let cause = "the counts of bytes read and written do not fit";
    Error::new(
        Kind::Peer,
        "using memory shared with another process",
        cause,
    )
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    fn pair() -> ((LaneWriter, LaneReader), (LaneWriter, LaneReader)) {
        let segment = Mapping::shared(SEGMENT_BYTES).unwrap();
        let file = segment.file().unwrap().try_clone_to_owned().unwrap();
        let other = Mapping::sent(file, SEGMENT_BYTES).unwrap();
        (ends(segment, true), ends(other, false))
    }

    #[test]
    fn bytes_come_in_their_order_whatever_their_number() {
        let ((_, mut reader), (mut writer, _)) = pair();
        let text: Vec<u8> = (0..3 * LANE_BYTES + 77)
            .map(|nth| (nth / 3) as u8)
            .collect();
        let (mut sent, mut came, mut step) = (0, Vec::new(), 1);
        while came.len() < text.len() {
            let part = &text[sent..(sent + step).min(text.len())];
            sent += writer.write(part).unwrap();
            reader.read(&mut came, step * 2 / 3 + 1).unwrap();
            step = step * 7 % 100_003;
        }
        assert!(came == text);
    }

    #[test]
    fn a_full_lane_and_a_sleeping_reader_are_told_of() {
        let ((_, mut reader), (mut writer, _)) = pair();
        assert!(writer.must_tell(), "nobody watches a new lane");
        assert!(!writer.must_tell(), "it has been told");
        assert_eq!(writer.write(&[1; 10]).unwrap(), 10);
        assert!(reader.unwatch().unwrap(), "something has come before");
        assert!(!reader.must_tell());
        assert_eq!(writer.write(&vec![2; LANE_BYTES]).unwrap(), LANE_BYTES - 10);
        assert!(reader.read(&mut Vec::new(), 1).unwrap() == 1 && reader.must_tell());
        assert!(!reader.must_tell());
        assert!(writer.must_tell());
        reader.watch();
        assert!(!writer.must_tell());
    }

    #[test]
    fn counts_of_the_other_side_are_checked() {
        let ((mut server, reader), (client, _)) = pair();
        let words = client.lane.words();
        words.tail.store(LANE_BYTES as u64 + 1, Ordering::SeqCst);
        assert_eq!(reader.ready().unwrap_err().kind, Kind::Peer);
        let mut wrong = server.lane.words().head.load(Ordering::SeqCst);
        wrong = wrong.wrapping_add(1);
        server.lane.words().head.store(wrong, Ordering::SeqCst);
        assert_eq!(server.write(&[0]).unwrap_err().kind, Kind::Peer);
    }

    #[test]
    fn others_cannot_cut_a_segment_short() {
        let segment = Mapping::shared(SEGMENT_BYTES).unwrap();
        let file = segment.file().unwrap().try_clone_to_owned().unwrap();
        assert!(rustix::fs::ftruncate(&file, 0).is_err());
        let plain = rustix::fs::memfd_create("plain", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&plain, SEGMENT_BYTES as u64).unwrap();
        assert!(
            Mapping::sent(plain, SEGMENT_BYTES).is_err(),
            "it is not sealed"
        );
    }
}
