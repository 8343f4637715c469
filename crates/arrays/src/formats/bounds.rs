//! The bounds of the elements of chunks: kept with a group's checksums if a program asks for that,
//! and looked at before chunks are read for a condition.
//!
//! In a file the bounds of a chunk are 24 bytes: the low and the high bound as little-endian
//! doubles, [`IS_THERE`] with what else is known, and the CRC-32C of these 20 bytes. A chunk
//! without bounds has 24 zeros. Integers that no double has are rounded outwards: bounds may be
//! wider than the elements, never narrower.

use std::path::Path;

use crc32c::crc32c;
use half::f16;
use penstock_engine::{Bounds, Result};

use crate::dtype::{ElementType, NumberType};
use crate::fs::files::damaged;

/// The bounds of an array, one an object; `None` for an object whose elements are not known.
pub(crate) type AllBounds = Vec<Option<Bounds>>;

/// The bytes of the bounds of an object in a file.
pub(crate) const BOUNDS_BYTES: u64 = 24;
const IS_THERE: u32 = 1;
const HAS_NAN: u32 = 2;
/// The bytes in front of the checksum.
const SUMMED: usize = 20;

/// Encodes bounds for a file.
pub(crate) fn encode(bounds: &[Option<Bounds>]) -> Vec<u8> {
    bounds.iter().flat_map(encode_one).collect()
}

fn encode_one(bounds: &Option<Bounds>) -> Vec<u8> {
    let Some(Bounds { low, high, has_nan }) = bounds else {
        return vec![0; SUMMED + 4];
    };
    let about = IS_THERE | if *has_nan { HAS_NAN } else { 0 };
    let mut bytes = [low.to_le_bytes(), high.to_le_bytes()].concat();
    bytes.extend(about.to_le_bytes());
    bytes.extend(crc32c(&bytes).to_le_bytes());
    bytes
}

/// Decodes the bounds in these bytes of the file at `path`.
///
/// # Errors
/// [`penstock_engine::Kind::Damaged`] when the bytes are no bounds.
pub(crate) fn decode(bytes: &[u8], path: &Path) -> Result<AllBounds> {
    let (all, rest) = bytes.as_chunks::<{ SUMMED + 4 }>();
    let all = all.iter().map(decode_one);
    let all: Option<AllBounds> = all.collect();
    match all {
        Some(all) if rest.is_empty() => Ok(all),
        _ => Err(damaged(path, "these are no bounds of chunks")),
    }
}

/// The bounds of an object, if it has some; `None` for bytes that are neither.
fn decode_one(bytes: &[u8; SUMMED + 4]) -> Option<Option<Bounds>> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Some(None);
    }
    let (summed, sum) = bytes.split_first_chunk::<SUMMED>()?;
    let (low, rest) = summed.split_first_chunk::<8>()?;
    let (high, about) = rest.split_first_chunk::<8>()?;
    let about = u32::from_le_bytes(about.try_into().ok()?);
    let is_sound = *sum == crc32c(summed).to_le_bytes()
        && about & IS_THERE != 0
        && about & !(IS_THERE | HAS_NAN) == 0;
    let bounds = Bounds {
        low: f64::from_le_bytes(*low),
        high: f64::from_le_bytes(*high),
        has_nan: about & HAS_NAN != 0,
    };
    let are_numbers = !bounds.low.is_nan() && !bounds.high.is_nan();
    (is_sound && are_numbers).then_some(Some(bounds))
}

/// Whether elements of this type have bounds.
pub(crate) fn has(element: &ElementType) -> bool {
    let number = element.number();
    number.is_some_and(|number| of_elements(number, &[]).is_some())
}

/// The bounds of elements in the machine's byte order; `None` for numbers without an order.
pub(crate) fn of_elements(number: NumberType, data: &[u8]) -> Option<Bounds> {
    Some(match number {
        NumberType::Bool | NumberType::U1 => whole(data, u8::from_ne_bytes),
        NumberType::U2 => whole(data, u16::from_ne_bytes),
        NumberType::U4 => whole(data, u32::from_ne_bytes),
        NumberType::U8 => whole(data, u64::from_ne_bytes),
        NumberType::I1 => whole(data, i8::from_ne_bytes),
        NumberType::I2 => whole(data, i16::from_ne_bytes),
        NumberType::I4 => whole(data, i32::from_ne_bytes),
        NumberType::I8 => whole(data, i64::from_ne_bytes),
        NumberType::F2 => floats(data, |bytes| f16::from_ne_bytes(bytes).to_f64()),
        NumberType::F4 => floats(data, |bytes| f32::from_ne_bytes(bytes).into()),
        NumberType::F8 => floats(data, f64::from_ne_bytes),
        NumberType::C8 | NumberType::C16 => return None,
    })
}

fn floats<const WIDTH: usize>(data: &[u8], of: impl Fn([u8; WIDTH]) -> f64) -> Bounds {
    let mut bounds = Bounds::NONE;
    for bytes in data.as_chunks::<WIDTH>().0 {
        let number = of(*bytes);
        bounds.has_nan |= number.is_nan();
        bounds.low = bounds.low.min(number); // not NaN, whatever the number is
        bounds.high = bounds.high.max(number);
    }
    bounds
}

fn whole<T: Copy + Ord + Into<i128>, const WIDTH: usize>(
    data: &[u8],
    of: impl Fn([u8; WIDTH]) -> T,
) -> Bounds {
    let (all, _) = data.as_chunks::<WIDTH>();
    let mut numbers = all.iter().map(|bytes| of(*bytes));
    let Some(first) = numbers.next() else {
        return Bounds::NONE;
    };
    let (low, high) = numbers.fold((first, first), |(low, high), number| {
        (low.min(number), high.max(number))
    });
    Bounds {
        low: -not_less(-low.into()),
        high: not_less(high.into()),
        has_nan: false,
    }
}

/// The least double that is not less than an integer of 64 bits.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a double next to an integer of 64 bits is one of 128"
)]
fn not_less(number: i128) -> f64 {
    let near = number as f64;
    match (near as i128) < number {
        true => near.next_up(),
        false => near,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(low: f64, high: f64, has_nan: bool) -> Bounds {
        Bounds { low, high, has_nan }
    }

    #[test]
    fn what_is_encoded_is_decoded_and_nothing_else() {
        let all = vec![
            Some(bounds(-1.5, 3.0, false)),
            None,
            Some(Bounds {
                has_nan: true,
                ..Bounds::NONE
            }),
            Some(bounds(0.0, 0.0, false)),
        ];
        let (bytes, path) = (encode(&all), Path::new("bounds"));
        assert_eq!(bytes.len() as u64, 4 * BOUNDS_BYTES);
        assert_eq!(decode(&bytes, path).unwrap(), all);
        for at in 0..24 {
            let mut other = bytes.clone();
            other[at] ^= 1;
            decode(&other, path).unwrap_err();
        }
        decode(&bytes[..25], path).unwrap_err();
        let nan = encode(&[Some(bounds(f64::NAN, 1.0, false))]);
        decode(&nan, path).unwrap_err();
    }

    #[test]
    fn bounds_are_those_of_the_elements_rounded_outwards() {
        let of = |number, data: &[u8]| of_elements(number, data).unwrap();
        let bytes: Vec<u8> = [3.5, f64::NAN, -0.5].map(f64::to_ne_bytes).concat();
        assert_eq!(of(NumberType::F8, &bytes), bounds(-0.5, 3.5, true));
        assert_eq!(of(NumberType::F8, &[]), Bounds::NONE);
        assert_eq!(of_elements(NumberType::C8, &[]), None);
        let nan = of(NumberType::F4, &f32::NAN.to_ne_bytes());
        assert!(nan.has_nan && nan.low > nan.high);
        let halves: Vec<u8> = [1.0, -2.0]
            .map(|half| f16::from_f64(half).to_ne_bytes())
            .concat();
        assert_eq!(of(NumberType::F2, &halves), bounds(-2.0, 1.0, false));
        assert_eq!(of(NumberType::Bool, &[0, 1, 1]), bounds(0.0, 1.0, false));
        for number in [
            i64::MIN,
            -(1 << 53) - 1,
            0,
            (1 << 53) + 1,
            i64::MAX,
            i64::MAX - 1,
        ] {
            let found = of(NumberType::I8, &number.to_ne_bytes());
            assert!(found.low as i128 <= number.into() && found.high as i128 >= number.into());
            assert!(found.low.next_up().next_up() >= found.high, "{found:?}");
        }
        let found = of(NumberType::U8, &u64::MAX.to_ne_bytes());
        assert_eq!(found.high, 2f64.powi(64));
        assert!(found.low < found.high);
    }
}
