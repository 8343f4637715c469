//! Numbers on their way: seven bits a byte, the lowest first; the last byte has no highest bit.

use penstock_engine::{Error, Kind, Result};

/// Adds a number.
pub(super) fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
}

/// What servers have delivered, as it is read.
pub(super) struct Reading<'a>(pub(super) &'a [u8]);

pub(super) fn refusal(cause: &str) -> Error {
    Error::new(Kind::Peer, "reading what servers deliver", cause)
}

impl<'a> Reading<'a> {
    pub(super) fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

    /// The next number.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn number(&mut self) -> Result<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let Some((byte, rest)) = self.0.split_first() else {
                return Err(refusal("it ends within a number"));
            };
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(refusal("a number is too long"))
    }

    /// The next number, of things that lie in memory.
    ///
    /// # Errors
    /// As [`Reading::number`].
    pub(super) fn count(&mut self) -> Result<usize> {
        usize::try_from(self.number()?).map_err(|_| refusal("a number is too large"))
    }

    /// The next bytes.
    ///
    /// # Errors
    /// When there are fewer.
    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let Some((bytes, rest)) = self.0.split_at_checked(count) else {
            return Err(refusal("it ends too early"));
        };
        self.0 = rest;
        Ok(bytes)
    }

    /// The next bytes, which follow their number; `None` if they have not come yet. What is read is
    /// then as before.
    pub(super) fn sized(&mut self) -> Option<&'a [u8]> {
        let mut after = Self(self.0);
        let count = after.count().ok()?;
        let bytes = after.bytes(count).ok()?;
        *self = after;
        Some(bytes)
    }

    /// The next `N` bytes.
    ///
    /// # Errors
    /// When there are fewer.
    pub(super) fn word<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.bytes(N)?.first_chunk();
        bytes.copied().ok_or_else(|| refusal("it ends too early"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let numbers = [0, 1, 127, 128, 16_383, 16_384, 1 << 35, u64::MAX];
        let mut bytes = Vec::new();
        numbers.iter().for_each(|number| put(&mut bytes, *number));
        let mut reading = Reading(&bytes);
        for number in numbers {
            assert_eq!(reading.number().unwrap(), number);
        }
        assert!(reading.is_at_end() && reading.number().is_err());
        assert!(Reading(&[0xff; 20]).number().is_err());
        assert!(Reading(&[0; 3]).word::<4>().is_err());
        let mut sized = Reading(&[2, 5, 6, 0, 3, 7]);
        assert_eq!(sized.sized(), Some(&[5, 6][..]));
        assert_eq!(sized.sized(), Some(&[][..]));
        assert_eq!((sized.sized(), sized.0), (None, &[3, 7][..]));
    }
}
