//! The header of a `.npy` file.
//!
//! ```text
//! 6 bytes    \x93NUMPY
//! 2 bytes    version 1.0, 2.0 or 3.0
//! 2 or 4     length of the text, little-endian (4 from version 2.0 on)
//! text       {'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }, padded with spaces to a
//!            multiple of 64 bytes and ended by a newline
//! elements
//! ```
//!
//! The text is a literal of Python. This module reads as much of that language as the format has: a
//! dictionary of strings, truth values and tuples of integers.

use std::fmt;

use penstock_engine::Error;
use penstock_layout::exact;

use crate::dtype::{ByteOrder, ElementType};

/// The first bytes of every `.npy` file.
pub const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// The most bytes of text that are read: NumPy itself refuses more than 10,000 unless told
/// otherwise.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
const ALIGN: usize = 64;

/// The contents of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The extents of the array.
    pub shape: Vec<u64>,
    /// The type of one element.
    pub element: ElementType,
    /// The byte order of the elements.
    pub order: ByteOrder,
    /// Whether the first dimension is contiguous.
    pub fortran: bool,
}

/// The reason why a header cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderError {
    /// NumPy does not write such a header.
    Damaged(String),
    /// NumPy writes such a header, but Penstock does not read it.
    Unsupported(String),
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged(cause) | Self::Unsupported(cause) => f.write_str(cause),
        }
    }
}

fn damaged(cause: impl Into<String>) -> HeaderError {
    HeaderError::Damaged(cause.into())
}

impl Header {
    /// The header as bytes: version 1.0, or 2.0 if the text is too long for it.
    pub fn encode(&self) -> Vec<u8> {
        let extents: Vec<String> = self.shape.iter().map(u64::to_string).collect();
        let comma = if extents.len() == 1 { "," } else { "" };
        let mut text = format!(
            "{{'descr': '{}', 'fortran_order': {}, 'shape': ({}{comma}), }}",
            self.element.numpy_in(self.order),
            if self.fortran { "True" } else { "False" },
            extents.join(", "),
        );
        let padded = |prefix: usize, text: usize| (prefix + text + 1).next_multiple_of(ALIGN);
        let long = padded(10, text.len()) - 10 > usize::from(u16::MAX);
        let prefix = if long { 12 } else { 10 };
        let total = padded(prefix, text.len());
        text.extend(std::iter::repeat_n(' ', total - prefix - text.len() - 1));
        text.push('\n');
        let mut bytes = MAGIC.to_vec();
        bytes.extend([if long { 2 } else { 1 }, 0]);
        match u16::try_from(text.len()) {
            Ok(length) if !long => bytes.extend(length.to_le_bytes()),
            _ => bytes.extend(exact::<u32>(text.len()).to_le_bytes()),
        }
        bytes.extend(text.as_bytes());
        bytes
    }

    /// The range of the text in a file, from the file's first 12 bytes.
    ///
    /// # Errors
    /// When the bytes do not begin a `.npy` file of a known version.
    pub fn text_range(start: &[u8]) -> Result<std::ops::Range<usize>, HeaderError> {
        if start.len() < 10 || start[..6] != MAGIC[..] {
            return Err(damaged("it does not begin as a .npy file does"));
        }
        let (from, length) = match (start[6], start.get(8..12)) {
            (1, _) => (10, usize::from(u16::from_le_bytes([start[8], start[9]]))),
            (2 | 3, Some(&[a, b, c, d])) => (12, u32::from_le_bytes([a, b, c, d]) as usize),
            (2 | 3, _) => return Err(damaged("it ends within the header")),
            (version, _) => {
                let cause = format!("version {version} of the .npy format");
                return Err(HeaderError::Unsupported(cause));
            }
        };
        if length > TEXT_BYTES_MAX {
            return Err(damaged(format!("a header of {length} bytes")));
        }
        Ok(from..from + length)
    }

    /// Reads the text of a header.
    ///
    /// # Errors
    /// When NumPy does not write such a header, or Penstock does not read it.
    pub fn parse(text: &[u8]) -> Result<Self, HeaderError> {
        let text = std::str::from_utf8(text).map_err(|_| damaged("its header is not text"))?;
        let mut reader = Reader { rest: text };
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        reader.expect('{')?;
        while !reader.accept('}') {
            let key = reader.string()?;
            reader.expect(':')?;
            match key {
                "descr" if reader.peek('[') => {
                    let cause = "its elements are records, which Penstock does not read";
                    return Err(HeaderError::Unsupported(cause.to_string()));
                }
                "descr" => descr = Some(reader.string()?),
                "fortran_order" => fortran = Some(reader.truth()?),
                "shape" => shape = Some(reader.tuple()?),
                _ => return Err(damaged(format!("its header has a key {key:?}"))),
            }
            if !reader.accept(',') {
                reader.expect('}')?;
                break;
            }
        }
        let missing = |key| damaged(format!("its header has no {key:?}"));
        let descr = descr.ok_or_else(|| missing("descr"))?;
        let unsupported = |error: Error| {
            HeaderError::Unsupported(format!("elements of dtype {descr:?}: {}", error.cause))
        };
        let (element, order) = ElementType::parse(descr).map_err(unsupported)?;
        let fortran = fortran.ok_or_else(|| missing("fortran_order"))?;
        Ok(Self {
            shape: shape.ok_or_else(|| missing("shape"))?,
            element,
            order,
            fortran,
        })
    }
}

/// Reads literals of Python from the front of a text.
struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn skip(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn peek(&mut self, sign: char) -> bool {
        self.skip();
        self.rest.starts_with(sign)
    }

    fn accept(&mut self, sign: char) -> bool {
        self.skip();
        match self.rest.strip_prefix(sign) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, sign: char) -> Result<(), HeaderError> {
        if self.accept(sign) {
            Ok(())
        } else {
            Err(self.wrong(&format!("{sign:?}")))
        }
    }

    fn wrong(&self, wanted: &str) -> HeaderError {
        let found: String = self.rest.chars().take(20).collect();
        damaged(format!(
            "its header has {found:?} where {wanted} should stand"
        ))
    }

    fn string(&mut self) -> Result<&'a str, HeaderError> {
        self.skip();
        let quote = if self.rest.starts_with('"') {
            '"'
        } else {
            '\''
        };
        let inside = self
            .rest
            .strip_prefix(quote)
            .ok_or_else(|| self.wrong("a string"))?;
        let (string, rest) = inside
            .split_once(quote)
            .ok_or_else(|| self.wrong("a string"))?;
        self.rest = rest;
        Ok(string)
    }

    fn truth(&mut self) -> Result<bool, HeaderError> {
        self.skip();
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = self.rest.strip_prefix(word) {
                self.rest = rest;
                return Ok(value);
            }
        }
        Err(self.wrong("True or False"))
    }

    fn tuple(&mut self) -> Result<Vec<u64>, HeaderError> {
        let mut numbers = Vec::new();
        self.expect('(')?;
        while !self.accept(')') {
            self.skip();
            let end = self
                .rest
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(self.rest.len());
            let (digits, rest) = self.rest.split_at(end);
            numbers.push(digits.parse().map_err(|_| self.wrong("an extent"))?);
            // Python 2 wrote long integers with an L.
            self.rest = rest.strip_prefix('L').unwrap_or(rest);
            if !self.accept(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(shape: &[u64]) -> Header {
        let (element, order) = (ElementType::F8, ByteOrder::Little);
        Header {
            shape: shape.to_vec(),
            element,
            order,
            fortran: false,
        }
    }

    #[test]
    fn the_bytes_are_those_of_numpy() {
        let mut expected = b"\x93NUMPY\x01\x00v\x00".to_vec();
        expected.extend(b"{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }");
        expected.resize(127, b' ');
        expected.push(b'\n');
        assert_eq!(header(&[3, 4]).encode(), expected);
    }

    #[test]
    fn every_header_reads_back() {
        let long: Vec<u64> = vec![1 << 40; 6_000];
        for shape in [&[][..], &[5], &[0, 3], &[1, 2, 3, 4], &[u64::MAX], &long] {
            let bytes = header(shape).encode();
            assert_eq!(bytes.len() % 64, 0);
            assert_eq!(bytes[6], if shape.len() > 1_000 { 2 } else { 1 });
            let text = Header::text_range(&bytes[..12]).unwrap();
            assert_eq!(text.end, bytes.len());
            assert_eq!(Header::parse(&bytes[text]).unwrap(), header(shape));
        }
    }

    #[test]
    fn other_spellings_are_read() {
        let text = br#" {"shape":(3L,),"descr":">c16",'fortran_order' : True}  "#;
        let read = Header::parse(text).unwrap();
        let (element, order) = (ElementType::C16, ByteOrder::Big);
        assert_eq!(
            read,
            Header {
                shape: vec![3],
                element,
                order,
                fortran: true
            }
        );
    }

    #[test]
    fn what_is_no_header_is_damaged() {
        for text in [
            "",
            "{",
            "{}",
            "{'descr': '<f8'}",
            "{'descr': '<f8', 'fortran_order': 1, 'shape': ()}",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (1 2)}",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999,)}",
            "{'descr: '<f8'}",
            "{'x': 1}",
        ] {
            assert!(
                matches!(Header::parse(text.as_bytes()), Err(HeaderError::Damaged(_))),
                "{text}"
            );
        }
        for text in [
            "{'descr': [('a', '<f8')], }",
            "{'descr': '|O', 'fortran_order': False, 'shape': (), }",
        ] {
            assert!(
                matches!(
                    Header::parse(text.as_bytes()),
                    Err(HeaderError::Unsupported(_))
                ),
                "{text}"
            );
        }
        for start in [
            &b"\x93NUMPY\x01\x00"[..],
            b"\x93NUMPX\x01\x00vvvv",
            b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
        ] {
            assert!(matches!(
                Header::text_range(start),
                Err(HeaderError::Damaged(_))
            ));
        }
    }
}
