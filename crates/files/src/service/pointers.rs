//! Shared pointers: offsets of subfiles that processes share, kept by a server.
//!
//! The value is returned and advanced before the access, so that accesses of several processes go
//! on side by side (Corbett and Feitelson, TOCS 1996, section 4.3).

use std::collections::BTreeMap;

use penstock_engine::{Error, Kind, Result, Who};
use serde::{Deserialize, Serialize};

/// The identity of a shared pointer: its server, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PointerId {
    /// The server that keeps the pointer.
    pub server: usize,
    /// The pointer's number on the server.
    pub number: u64,
}

/// A move of a pointer: where it goes first, and how far it then advances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PointerMove {
    /// Where the access begins.
    pub seek: Seek,
    /// The bytes of the access, by which the pointer advances.
    pub bytes: u64,
}

/// The place where an access begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Seek {
    /// Where the pointer is.
    Here,
    /// At this offset.
    At(u64),
    /// This number of bytes on from the pointer, or back.
    By(i64),
}

impl PointerMove {
    /// Moves a pointer, and gives where the access begins.
    ///
    /// # Errors
    /// [`Kind::Schema`] when that is before the begin, or beyond 2^63.
    pub fn apply(&self, pointer: &mut u64) -> Result<u64> {
        let begin = match self.seek {
            Seek::Here => Some(*pointer),
            Seek::At(offset) => Some(offset),
            Seek::By(distance) => pointer.checked_add_signed(distance),
        };
        let end = begin.and_then(|begin| begin.checked_add(self.bytes));
        match (begin, end) {
            (Some(begin), Some(end)) if end <= i64::MAX.unsigned_abs() => {
                *pointer = end;
                Ok(begin)
            }
            _ => {
                let from = match self.seek {
                    Seek::Here => format!("offset {pointer}"),
                    Seek::At(offset) => format!("offset {offset}"),
                    Seek::By(distance) => format!("offset {pointer}{distance:+}"),
                };
                let cause = format!(
                    "an access of {} bytes from {from} leaves the subfile",
                    self.bytes
                );
                Err(Error::new(Kind::Schema, "moving a pointer", cause))
            }
        }
    }
}

/// The bits of a pointer's number that count those of one life of the server. The others are the
/// same for all of a life.
const COUNT_BITS: u32 = 32;

/// The shared pointers of a server, which it keeps as long as it lives.
pub(crate) struct Pointers {
    server: usize,
    values: BTreeMap<u64, u64>,
    next: u64,
}

impl Pointers {
    /// Makes the pointers of a life of a server.
    pub(crate) fn new(server: usize, life: u64) -> Self {
        Self {
            server,
            values: BTreeMap::new(),
            next: life >> COUNT_BITS << COUNT_BITS,
        }
    }

    /// Makes a pointer, and gives its number.
    pub(crate) fn add(&mut self, value: u64) -> u64 {
        let number = self.next;
        self.next += 1;
        self.values.insert(number, value);
        number
    }

    /// Moves a pointer, and gives where the access begins.
    ///
    /// # Errors
    /// [`Kind::Missing`] when there is no such pointer; [`Kind::Peer`] when it was lost with a
    /// former life of the server; those of [`PointerMove::apply`].
    pub(crate) fn apply(&mut self, number: u64, how: &PointerMove) -> Result<u64> {
        match self.values.get_mut(&number) {
            Some(value) => how.apply(value),
            None if number >> COUNT_BITS != self.next >> COUNT_BITS => {
                let cause = "it was lost with the pointer: share another one";
                let error = Error::new(Kind::Peer, "moving a shared pointer", cause);
                Err(error.by(Who::Server(self.server)))
            }
            None => {
                let cause = format!("pointer {number} is not shared on this server");
                Err(Error::new(Kind::Missing, "moving a shared pointer", cause))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A3, A5: the offset is part of the access, and the pointer moves before it.
    #[test]
    fn a_pointer_moves_before_the_access() {
        let mut pointers = Pointers::new(0, 0);
        let (one, other) = (pointers.add(0), pointers.add(7));
        let step = |seek, bytes| PointerMove { seek, bytes };
        let table = [
            (one, step(Seek::Here, 10), Some(0)),
            (one, step(Seek::Here, 0), Some(10)),
            (one, step(Seek::By(-4), 2), Some(6)),
            (one, step(Seek::At(100), 5), Some(100)),
            (one, step(Seek::Here, 1), Some(105)),
            (one, step(Seek::By(-200), 1), None),
            (one, step(Seek::At(u64::MAX), 1), None),
            (one, step(Seek::Here, 1), Some(106)),
            (other, step(Seek::Here, 1), Some(7)),
            (99, step(Seek::Here, 1), None),
        ];
        for (pointer, how, begin) in table {
            assert_eq!(pointers.apply(pointer, &how).ok(), begin, "{how:?}");
        }
    }

    #[test]
    fn a_pointer_is_of_one_life() {
        let step = PointerMove {
            seek: Seek::Here,
            bytes: 1,
        };
        let mut pointers = Pointers::new(0, 7 << COUNT_BITS | 12345);
        let number = pointers.add(0);
        let mut ask = |number| pointers.apply(number, &step).map_err(|error| error.kind);
        assert_eq!(ask(number), Ok(0));
        assert_eq!(ask(number + 1), Err(Kind::Missing));
        for other in [number - 1, number + (1 << COUNT_BITS), 0] {
            assert_eq!(ask(other), Err(Kind::Peer));
        }
    }
}
