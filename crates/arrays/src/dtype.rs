//! The element types that NumPy and Zarr share.
//!
//! | here | NumPy | Zarr | bytes | swapped in units of |
//! |---|---|---|---|---|
//! | `bool` | `\|b1` | bool | 1 | 1 |
//! | `i1` .. `i8` | `<i8` | int64 | 1 to 8 | all of it |
//! | `u1` .. `u8` | `<u8` | uint64 | 1 to 8 | all of it |
//! | `f2` `f4` `f8` | `<f8` | float64 | 2 to 8 | all of it |
//! | `c8` `c16` | `<c16` | complex128 | 8, 16 | half: the real and the imaginary part |

use std::borrow::Cow;
use std::fmt;

use penstock_engine::{Error, Kind, Result};
use penstock_layout::exact;
use serde::{Deserialize, Serialize};

/// The type of one element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ElementType {
    /// True or false, in a byte.
    Bool,
    /// Signed, 8 bits.
    I1,
    /// Signed, 16 bits.
    I2,
    /// Signed, 32 bits.
    I4,
    /// Signed, 64 bits.
    I8,
    /// Unsigned, 8 bits.
    U1,
    /// Unsigned, 16 bits.
    U2,
    /// Unsigned, 32 bits.
    U4,
    /// Unsigned, 64 bits.
    U8,
    /// Half precision.
    F2,
    /// Single precision.
    F4,
    /// Double precision.
    F8,
    /// Complex, two of single precision.
    C8,
    /// Complex, two of double precision.
    C16,
}

/// The order of the bytes of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ByteOrder {
    /// Least significant first.
    Little,
    /// Most significant first.
    Big,
}

impl ByteOrder {
    /// The machine's byte order.
    pub const NATIVE: Self = if cfg!(target_endian = "big") {
        Self::Big
    } else {
        Self::Little
    };

    /// The name of the order as Zarr writes it: `little` or `big`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Little => "little",
            Self::Big => "big",
        }
    }

    /// The sign of the order as NumPy writes it: `<` or `>`.
    fn sign(self) -> char {
        match self {
            Self::Little => '<',
            Self::Big => '>',
        }
    }
}

/// The types, each with NumPy's letter and width, and Zarr's name.
const TABLE: [(ElementType, &str, &str); 14] = [
    (ElementType::Bool, "b1", "bool"),
    (ElementType::I1, "i1", "int8"),
    (ElementType::I2, "i2", "int16"),
    (ElementType::I4, "i4", "int32"),
    (ElementType::I8, "i8", "int64"),
    (ElementType::U1, "u1", "uint8"),
    (ElementType::U2, "u2", "uint16"),
    (ElementType::U4, "u4", "uint32"),
    (ElementType::U8, "u8", "uint64"),
    (ElementType::F2, "f2", "float16"),
    (ElementType::F4, "f4", "float32"),
    (ElementType::F8, "f8", "float64"),
    (ElementType::C8, "c8", "complex64"),
    (ElementType::C16, "c16", "complex128"),
];

impl ElementType {
    /// All element types.
    pub fn all() -> impl Iterator<Item = ElementType> {
        TABLE.iter().map(|row| row.0)
    }

    /// Reads NumPy's spellings: `f8`, `<f8`, `>i4`, `|b1`, `?`, `float64`, `bool`. Without a sign
    /// (or with `=` or `|`) the byte order is the machine's.
    ///
    /// # Errors
    /// [`Kind::Schema`], with the list of element types.
    pub fn parse(text: &str) -> Result<(Self, ByteOrder)> {
        let mut order = ByteOrder::NATIVE;
        let word = match text.as_bytes().first() {
            Some(b'<') => {
                order = ByteOrder::Little;
                &text[1..]
            }
            Some(b'>') => {
                order = ByteOrder::Big;
                &text[1..]
            }
            Some(b'=' | b'|') => &text[1..],
            _ => text,
        };
        let word = if word == "?" { "b1" } else { word };
        let row = TABLE.iter().find(|row| row.1 == word || row.2 == word);
        let Some(&(element, ..)) = row else {
            let names: Vec<&str> = TABLE.iter().map(|row| row.2).collect();
            let cause = format!("no such element type: there are {}", names.join(", "));
            return Err(Error::new(
                Kind::Schema,
                format!("reading the dtype {text:?}"),
                cause,
            ));
        };
        Ok((
            element,
            if element.width() == 1 {
                ByteOrder::NATIVE
            } else {
                order
            },
        ))
    }

    /// The bytes of one element.
    pub fn width(self) -> u64 {
        match self {
            Self::Bool | Self::I1 | Self::U1 => 1,
            Self::I2 | Self::U2 | Self::F2 => 2,
            Self::I4 | Self::U4 | Self::F4 => 4,
            Self::I8 | Self::U8 | Self::F8 | Self::C8 => 8,
            Self::C16 => 16,
        }
    }

    /// The number of bytes that are reversed together when the byte order changes.
    pub fn swap_width(self) -> usize {
        match self {
            Self::C8 => 4,
            Self::C16 => 8,
            _ => exact::<usize>(self.width()),
        }
    }

    /// The number of bytes that are reversed together in elements of this byte order; 1 if it is
    /// the machine's.
    pub fn swap_width_from(self, order: ByteOrder) -> usize {
        match order == ByteOrder::NATIVE {
            true => 1,
            false => self.swap_width(),
        }
    }

    /// NumPy's spelling in the machine's byte order, such as `<f8`.
    pub fn numpy(self) -> String {
        self.numpy_in(ByteOrder::NATIVE)
    }

    /// NumPy's spelling in the given byte order.
    pub fn numpy_in(self, order: ByteOrder) -> String {
        let sign = if self.width() == 1 { '|' } else { order.sign() };
        format!("{sign}{}", self.row().1)
    }

    /// Zarr's name, which is also NumPy's long one, such as `float64`.
    pub fn zarr(self) -> &'static str {
        self.row().2
    }

    fn row(self) -> &'static (ElementType, &'static str, &'static str) {
        &TABLE[self as usize]
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.zarr())
    }
}

/// Reverses each `width` bytes of `data` in place.
pub(crate) fn swap(data: &mut [u8], width: usize) {
    match width {
        0 | 1 => {}
        2 => swap_fixed::<2>(data),
        4 => swap_fixed::<4>(data),
        8 => swap_fixed::<8>(data),
        _ => data.chunks_exact_mut(width).for_each(<[u8]>::reverse),
    }
}

/// The data with each `width` bytes reversed; data of width 1 are borrowed.
pub(crate) fn swapped(data: &[u8], width: usize) -> Cow<'_, [u8]> {
    if width <= 1 {
        return Cow::Borrowed(data);
    }
    let mut data = data.to_vec();
    swap(&mut data, width);
    Cow::Owned(data)
}

/// Reverses each `WIDTH` bytes: a constant width lets the compiler make vector shuffles.
fn swap_fixed<const WIDTH: usize>(data: &mut [u8]) {
    for element in data.as_chunks_mut::<WIDTH>().0 {
        element.reverse();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_parses_what_it_prints() {
        for (at, (element, short, long)) in TABLE.into_iter().enumerate() {
            assert_eq!(
                element as usize, at,
                "the table is in the order of the enum"
            );
            for text in [short, long, &element.numpy(), &format!("={short}")] {
                assert_eq!(
                    ElementType::parse(text).unwrap(),
                    (element, ByteOrder::NATIVE),
                    "{text}"
                );
            }
            let (read, order) = ElementType::parse(&format!(">{short}")).unwrap();
            let expected = if element.width() == 1 {
                ByteOrder::NATIVE
            } else {
                ByteOrder::Big
            };
            assert_eq!((read, order), (element, expected));
        }
        assert_eq!(ElementType::parse("?").unwrap().0, ElementType::Bool);
        assert_eq!(
            ElementType::parse("<f8").unwrap(),
            (ElementType::F8, ByteOrder::Little)
        );
    }

    #[test]
    fn what_is_no_type_is_refused_with_the_list() {
        for text in ["", "<", "f3", "O", "<U4", "float", "ééé"] {
            let error = ElementType::parse(text).unwrap_err();
            assert_eq!(error.kind, Kind::Schema);
            assert!(error.cause.contains("complex128"), "{error}");
        }
    }

    #[test]
    fn swapping_reverses_each_component() {
        let mut data: Vec<u8> = (0..8).collect();
        swap(&mut data, 4);
        assert_eq!(data, [3, 2, 1, 0, 7, 6, 5, 4]);
        swap(&mut data, 2);
        assert_eq!(data, [2, 3, 0, 1, 6, 7, 4, 5]);
        swap(&mut data, 1);
        swap(&mut data, 8);
        assert_eq!(data, [5, 4, 7, 6, 1, 0, 3, 2]);
    }
}
