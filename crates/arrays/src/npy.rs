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
//! The text is a literal of Python, with the names of its third version in UTF-8. Of records,
//! `descr` is a list: `[('x', '<f8'), ('', '|V4'), ('n', '<i4', (3,))]`, where a field without a
//! name is padding.

use std::fmt;

use penstock_engine::Error;
use penstock_layout::exact;

use crate::dtype::StoredElement;
use crate::literal::{self, Literal};

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
    /// One element.
    pub element: StoredElement,
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
    /// The header as bytes: version 1.0, or 2.0 if the text is too long for it, or 3.0 if it is not
    /// in ASCII.
    pub fn encode(&self) -> Vec<u8> {
        let extents: Vec<String> = self.shape.iter().map(u64::to_string).collect();
        let comma = if extents.len() == 1 { "," } else { "" };
        let mut text = format!(
            "{{'descr': {}, 'fortran_order': {}, 'shape': ({}{comma}), }}",
            self.element.literal(),
            if self.fortran { "True" } else { "False" },
            extents.join(", "),
        );
        let padded = |prefix: usize, text: usize| (prefix + text + 1).next_multiple_of(ALIGN);
        let is_ascii = text.is_ascii();
        let long = !is_ascii || padded(10, text.len()) - 10 > usize::from(u16::MAX);
        let prefix = if long { 12 } else { 10 };
        let total = padded(prefix, text.len());
        text.extend(std::iter::repeat_n(' ', total - prefix - text.len() - 1));
        text.push('\n');
        let mut bytes = MAGIC.to_vec();
        let version = match (is_ascii, long) {
            (false, _) => 3,
            (true, true) => 2,
            (true, false) => 1,
        };
        bytes.extend([version, 0]);
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
        // Version 3.0 alone is in UTF-8; the others are Latin-1, which matters for names of fields.
        let text = match std::str::from_utf8(text) {
            Ok(text) => text.to_string(),
            Err(_) => text.iter().copied().map(char::from).collect(),
        };
        let literal = literal::parse(&text).map_err(|e| damaged(format!("its header {e}")))?;
        let Literal::Dictionary(pairs) = literal else {
            return Err(damaged("its header is no dictionary"));
        };
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        for (key, value) in pairs {
            match (key.as_str(), value) {
                ("descr", value @ (Literal::Text(_) | Literal::List(_))) => descr = Some(value),
                ("fortran_order", Literal::Truth(value)) => fortran = Some(value),
                ("shape", value) if value.numbers().is_some() => shape = value.numbers(),
                ("descr" | "fortran_order" | "shape", value) => {
                    return Err(damaged(format!("its header has {value} as {key:?}")));
                }
                _ => return Err(damaged(format!("its header has a key {key:?}"))),
            }
        }
        let missing = |key| damaged(format!("its header has no {key:?}"));
        let descr = descr.ok_or_else(|| missing("descr"))?;
        let unsupported = |error: Error| {
            HeaderError::Unsupported(format!("elements of dtype {descr}: {}", error.cause))
        };
        Ok(Self {
            shape: shape.ok_or_else(|| missing("shape"))?,
            element: StoredElement::of_literal(&descr).map_err(unsupported)?,
            fortran: fortran.ok_or_else(|| missing("fortran_order"))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::{ByteOrder, ElementType};

    fn header(shape: &[u64]) -> Header {
        Header {
            shape: shape.to_vec(),
            element: StoredElement::of(&ElementType::F8, ByteOrder::Little),
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
    fn headers_of_records_are_those_of_numpy() {
        for (descr, version) in [
            ("[('x', '>f8'), ('', '|V4'), ('n', '<i4', (3, 2))]", 1),
            (
                "[('p', [('a', '|u1'), ('b', '<c16')], (2,)), (\"it's\", '|b1')]",
                1,
            ),
            ("[('größe', '<f4')]", 3),
        ] {
            let element = StoredElement::parse(descr).unwrap();
            let written = Header {
                element,
                ..header(&[4])
            };
            let bytes = written.encode();
            assert_eq!(bytes[6], version);
            let text = Header::text_range(&bytes[..12]).unwrap();
            let words = std::str::from_utf8(&bytes[text.clone()]).unwrap();
            assert!(words.starts_with(&format!("{{'descr': {descr}, 'fortran_order': ")));
            assert_eq!(Header::parse(&bytes[text]).unwrap(), written);
        }
        let latin = b"{'descr': [('gr\xf6\xdfe', '<f4')], 'fortran_order': False, 'shape': ()}";
        let name = Header::parse(latin).unwrap().element.element().word();
        assert_eq!(name, "[('größe', 'f4')]");
    }

    #[test]
    fn other_spellings_are_read() {
        let text = br#" {"shape":(3L,),"descr":">c16",'fortran_order' : True}  "#;
        let read = Header::parse(text).unwrap();
        assert_eq!(
            read,
            Header {
                shape: vec![3],
                element: StoredElement::of(&ElementType::C16, ByteOrder::Big),
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
            "{'descr': [('a', '<U8')], 'fortran_order': False, 'shape': (), }",
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
