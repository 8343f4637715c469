//! Sizes, as people write them.

use penstock_engine::{Error, Kind, Result};

/// The number of bytes in a text such as `256MiB`.
///
/// # Errors
/// [`Kind::Schema`] for a text that is no size, and for a size of 2^64 bytes and more.
pub fn bytes(text: &str) -> Result<u64> {
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: Option<u64> = match unit.trim() {
        "" | "B" => Some(1),
        "kB" | "KB" => Some(1000),
        "MB" => Some(1_000_000),
        "GB" => Some(1_000_000_000),
        "KiB" | "K" => Some(1 << 10),
        "MiB" | "M" => Some(1 << 20),
        "GiB" | "G" => Some(1 << 30),
        _ => None,
    };
    let bytes = number.parse::<u64>().ok().zip(factor);
    bytes
        .and_then(|(number, factor)| number.checked_mul(factor))
        .ok_or_else(|| {
            let cause = format!("{text:?} is no size: write it as 256MiB, or 1GB");
            Error::new(Kind::Schema, "reading a size", cause)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, expected) in [
            ("1", 1),
            ("256MiB", 256 << 20),
            ("1 GB", 1_000_000_000),
            ("3K", 3072),
        ] {
            assert_eq!(bytes(text), Ok(expected));
        }
        for text in ["", "MiB", "1.5GiB", "-1", "1XB", "99999999999999999999"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
