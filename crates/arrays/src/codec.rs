//! Compression and checksums, as a word: `none`, `zstd:3`, `blosc:lz4:5:bitshuffle+crc32c`.
//!
//! ```text
//! codec      = compressor [ "+crc32c" ] | "crc32c" | chain
//! compressor = "none" | "zstd" [ ":" level ] | "gzip" [ ":" level ]
//!            | "blosc" [ ":" cname [ ":" level [ ":" shuffle ] ] ]
//! cname      = "blosclz" | "lz4" | "lz4hc" | "zlib" | "zstd"
//! shuffle    = "noshuffle" | "shuffle" | "bitshuffle"
//! chain      = the JSON of a list of codecs, as Zarr's metadata have it
//! ```
//!
//! Defaults are zarr-python's: zstd at level 3 (which it writes as 0), gzip at level 5, blosc with
//! zstd at level 5, bytes shuffled by the element's width (bits if that is one byte). A chain is a
//! list of codecs of other writers that no word describes: an array that is copied keeps it.

use std::fmt;
use std::str::FromStr;

use penstock_engine::{Error, Kind};
use serde_json::{Value, json};

use crate::dtype::{ByteOrder, ElementType};

/// The words for codecs that an error lists.
const ALLOWED: &str = "allowed are \"none\", \"zstd\", \"zstd:LEVEL\" (-131072 to 22), \"gzip\", \
    \"gzip:LEVEL\" (0 to 9), \"blosc\", \
    \"blosc:CNAME\", \"blosc:CNAME:LEVEL\" (0 to 9) and \"blosc:CNAME:LEVEL:SHUFFLE\" with CNAME \
    blosclz, lz4, lz4hc, zlib or zstd and SHUFFLE noshuffle, shuffle or bitshuffle, each with \
    \"+crc32c\" behind it if wanted, \"crc32c\", and a list of codecs as Zarr's metadata have it, in JSON";
const ZSTD_LEVELS: std::ops::RangeInclusive<i32> = -131_072..=22;
const ZSTD_LEVEL_DEFAULT: i32 = 3;
const GZIP_LEVELS: std::ops::RangeInclusive<u8> = 0..=9;
const GZIP_LEVEL_DEFAULT: u8 = 5;
const BLOSC_LEVELS: std::ops::RangeInclusive<u8> = 0..=9;
const BLOSC_LEVEL_DEFAULT: u8 = 5;
const BLOSC_CNAMES: [&str; 5] = ["blosclz", "lz4", "lz4hc", "zlib", "zstd"];
const BLOSC_CNAME_DEFAULT: &str = "zstd";
const SHUFFLES: [&str; 3] = ["noshuffle", "shuffle", "bitshuffle"];

/// The most bytes that one call of blosc can compress (BLOSC2_MAX_BUFFERSIZE).
pub const BLOSC_BYTES_MAX: u64 = i32::MAX as u64 - 32;

/// The codec of a chunk's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Codec {
    /// A codec that a word describes.
    Word {
        /// The compressor of the bytes.
        compressor: Compressor,
        /// Whether a CRC-32C follows the bytes.
        crc32c: bool,
    },
    /// Any other list of Zarr's codecs, in order.
    Chain(Vec<Value>),
}

impl Default for Codec {
    /// The codec that leaves bytes as they are.
    fn default() -> Self {
        Self::Word {
            compressor: Compressor::None,
            crc32c: false,
        }
    }
}

/// The compressor of a chunk's bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Compressor {
    /// No compression.
    #[default]
    None,
    /// Zstandard at this level.
    Zstd(i32),
    /// gzip at this level.
    Gzip(u8),
    Blosc {
        /// The compressor inside Blosc.
        cname: &'static str,
        /// The level of the compressor.
        level: u8,
        /// The kind of shuffle; `None` shuffles by the element's width.
        shuffle: Option<&'static str>,
    },
}

impl FromStr for Codec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refused = || Error::new(Kind::Schema, format!("reading the codec {text:?}"), ALLOWED);
        if text.starts_with('[') {
            let chain: Vec<Value> = serde_json::from_str(text).map_err(|_| refused())?;
            let are_codecs = chain.iter().all(|codec| name_of(codec).is_some());
            return match chain.is_empty() || !are_codecs {
                true => Err(refused()),
                false => Ok(Self::Chain(chain)),
            };
        }
        let (word, crc32c) = match text.strip_suffix("+crc32c") {
            Some(word) => (word, true),
            None if text == "crc32c" => ("none", true),
            None => (text, false),
        };
        let parts: Vec<&str> = word.split(':').collect();
        let compressor = match parts.as_slice() {
            ["none"] => Some(Compressor::None),
            ["zstd"] => Some(Compressor::Zstd(ZSTD_LEVEL_DEFAULT)),
            ["zstd", level] => within(level, &ZSTD_LEVELS).map(Compressor::Zstd),
            ["gzip"] => Some(Compressor::Gzip(GZIP_LEVEL_DEFAULT)),
            ["gzip", level] => within(level, &GZIP_LEVELS).map(Compressor::Gzip),
            ["blosc", rest @ ..] => blosc(rest),
            _ => None,
        };
        Ok(Self::Word {
            compressor: compressor.ok_or_else(refused)?,
            crc32c,
        })
    }
}

fn within<T: FromStr + PartialOrd>(text: &str, range: &std::ops::RangeInclusive<T>) -> Option<T> {
    text.parse().ok().filter(|number| range.contains(number))
}

fn blosc(parts: &[&str]) -> Option<Compressor> {
    let one_of = |names: &'static [&str], name: &str| names.iter().find(|n| **n == name).copied();
    let (cname, level, shuffle) = match parts {
        [] => (None, None, None),
        [cname] => (Some(cname), None, None),
        [cname, level] => (Some(cname), Some(level), None),
        [cname, level, shuffle] => (Some(cname), Some(level), Some(shuffle)),
        _ => return None,
    };
    Some(Compressor::Blosc {
        cname: cname.map_or(Some(BLOSC_CNAME_DEFAULT), |name| {
            one_of(&BLOSC_CNAMES, name)
        })?,
        level: level.map_or(Some(BLOSC_LEVEL_DEFAULT), |text| {
            within(text, &BLOSC_LEVELS)
        })?,
        shuffle: match shuffle {
            None => None,
            Some(name) => Some(one_of(&SHUFFLES, name)?),
        },
    })
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (compressor, crc32c) = match self {
            Self::Word { compressor, crc32c } => (compressor, *crc32c),
            Self::Chain(chain) => return write!(f, "{}", Value::from(chain.clone())),
        };
        match compressor {
            Compressor::None if crc32c => return f.write_str("crc32c"),
            Compressor::None => f.write_str("none")?,
            Compressor::Zstd(level) => write!(f, "zstd:{level}")?,
            Compressor::Gzip(level) => write!(f, "gzip:{level}")?,
            Compressor::Blosc {
                cname,
                level,
                shuffle,
            } => {
                write!(f, "blosc:{cname}:{level}")?;
                if let Some(shuffle) = shuffle {
                    write!(f, ":{shuffle}")?;
                }
            }
        }
        f.write_str(if crc32c { "+crc32c" } else { "" })
    }
}

impl Codec {
    /// Whether bytes reach the disk as they are.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// The most decoded bytes that the codec takes at once.
    pub fn bytes_max(&self) -> u64 {
        let has_blosc = match self {
            Self::Word { compressor, .. } => matches!(compressor, Compressor::Blosc { .. }),
            Self::Chain(chain) => chain.iter().any(|codec| name_of(codec) == Some("blosc")),
        };
        match has_blosc {
            true => BLOSC_BYTES_MAX,
            false => i64::MAX as u64,
        }
    }

    /// The codec chain as Zarr's metadata have it.
    pub fn zarr(&self, element: &ElementType) -> Vec<Value> {
        let (compressor, crc32c) = match self {
            Self::Word { compressor, crc32c } => (compressor, *crc32c),
            Self::Chain(chain) => return chain.clone(),
        };
        let mut chain = vec![bytes_codec(element, ByteOrder::NATIVE)];
        match compressor {
            Compressor::None => {}
            Compressor::Zstd(level) => chain.push(json!({
                "name": "zstd", "configuration": { "level": level, "checksum": false }
            })),
            Compressor::Gzip(level) => chain.push(json!({
                "name": "gzip", "configuration": { "level": level }
            })),
            Compressor::Blosc {
                cname,
                level,
                shuffle,
            } => chain.push(json!({
                "name": "blosc", "configuration": {
                    "cname": cname,
                    "clevel": level,
                    "shuffle": shuffle.unwrap_or_else(|| shuffle_default(element)),
                    "typesize": element.width(),
                    "blocksize": 0,
                }
            })),
        }
        if crc32c {
            chain.push(json!({ "name": "crc32c" }));
        }
        chain
    }

    /// The codec for a chain of Zarr's metadata, in the machine's byte order: a word if there is
    /// one, which [`Codec::zarr`] turns into the same chain.
    pub fn of_zarr(chain: &[Value], element: &ElementType) -> Self {
        let mut chain = chain.to_vec();
        for codec in &mut chain {
            if byte_order_of(codec, element).is_some() {
                *codec = bytes_codec(element, ByteOrder::NATIVE);
            }
        }
        Self::word_of(&chain, element).unwrap_or(Self::Chain(chain))
    }

    /// The word for a chain of Zarr's metadata, if there is one: exactly if [`Codec::zarr`] turns
    /// the word into the same chain.
    fn word_of(chain: &[Value], element: &ElementType) -> Option<Self> {
        let (bytes, mut rest) = chain.split_first()?;
        if byte_order_of(bytes, element) != Some(ByteOrder::NATIVE) {
            return None;
        }
        let crc32c = rest
            .last()
            .is_some_and(|last| name_of(last) == Some("crc32c"));
        if crc32c {
            rest = &rest[..rest.len() - 1];
        }
        let compressor = match rest {
            [] => Compressor::None,
            [one] => compressor_of(one, element)?,
            _ => return None,
        };
        Some(Self::Word { compressor, crc32c })
    }
}

fn shuffle_default(element: &ElementType) -> &'static str {
    if element.width() == 1 {
        "bitshuffle"
    } else {
        "shuffle"
    }
}

fn compressor_of(codec: &Value, element: &ElementType) -> Option<Compressor> {
    let setting = &codec["configuration"];
    match name_of(codec)? {
        "zstd" => {
            let plain = setting["checksum"].as_bool() != Some(true);
            let level = i32::try_from(setting["level"].as_i64()?).ok()?;
            (plain && ZSTD_LEVELS.contains(&level)).then_some(Compressor::Zstd(level))
        }
        "gzip" => {
            let level = u8::try_from(setting["level"].as_u64()?).ok()?;
            GZIP_LEVELS
                .contains(&level)
                .then_some(Compressor::Gzip(level))
        }
        "blosc" => {
            let level = setting["clevel"].as_u64()?.to_string();
            let shuffle = setting["shuffle"].as_str()?;
            let typesize = setting["typesize"].as_u64();
            let by_width = typesize == Some(element.width()) || shuffle == "noshuffle";
            if !by_width || setting["blocksize"].as_u64().unwrap_or(0) != 0 {
                return None;
            }
            let parts = [setting["cname"].as_str()?, &level, shuffle];
            blosc(if shuffle == shuffle_default(element) {
                &parts[..2]
            } else {
                &parts
            })
        }
        _ => None,
    }
}

/// The name of a codec, which is written as an object or as a mere string.
pub(crate) fn name_of(codec: &Value) -> Option<&str> {
    codec.as_str().or_else(|| codec["name"].as_str())
}

/// Zarr's `bytes` codec.
pub(crate) fn bytes_codec(element: &ElementType, order: ByteOrder) -> Value {
    match element.has_no_order() {
        true => json!({ "name": "bytes" }),
        false => json!({ "name": "bytes", "configuration": { "endian": order.name() } }),
    }
}

/// The byte order of a `bytes` codec; `None` for another codec. Without one, records are
/// little-endian: zarr-python up to 3.1 writes them so, and does not say it.
pub(crate) fn byte_order_of(codec: &Value, element: &ElementType) -> Option<ByteOrder> {
    if !matches!(name_of(codec)?, "bytes" | "endian") {
        return None;
    }
    match codec["configuration"]["endian"].as_str() {
        _ if element.has_no_order() => Some(ByteOrder::NATIVE),
        Some("little") => Some(ByteOrder::Little),
        Some("big") => Some(ByteOrder::Big),
        None if element.record().is_some() => Some(ByteOrder::Little),
        _ => None,
    }
}

/// The byte order of elements in a chain of codecs, shards included; that of the machine if no
/// codec says it.
pub(crate) fn byte_order_in(chain: &[Value], element: &ElementType) -> ByteOrder {
    let order = chain.iter().find_map(|codec| {
        let inner = codec["configuration"]["codecs"].as_array();
        match inner.filter(|_| name_of(codec) == Some("sharding_indexed")) {
            Some(inner) => Some(byte_order_in(inner, element)),
            None => byte_order_of(codec, element),
        }
    });
    order.unwrap_or(ByteOrder::NATIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_metadata_say_the_same() {
        for (text, full) in [
            ("none", "none"),
            ("crc32c", "crc32c"),
            ("none+crc32c", "crc32c"),
            ("zstd", "zstd:3"),
            ("zstd:-7+crc32c", "zstd:-7+crc32c"),
            ("gzip", "gzip:5"),
            ("gzip:9+crc32c", "gzip:9+crc32c"),
            ("blosc", "blosc:zstd:5"),
            ("blosc:lz4", "blosc:lz4:5"),
            ("blosc:lz4hc:9", "blosc:lz4hc:9"),
            (
                "blosc:zlib:1:bitshuffle+crc32c",
                "blosc:zlib:1:bitshuffle+crc32c",
            ),
            ("blosc:blosclz:0:noshuffle", "blosc:blosclz:0:noshuffle"),
        ] {
            let codec: Codec = text.parse().unwrap();
            assert_eq!(codec.to_string(), full);
            assert_eq!(full.parse::<Codec>().unwrap(), codec);
            for element in [ElementType::F8, ElementType::C8] {
                assert_eq!(Codec::of_zarr(&codec.zarr(&element), &element), codec);
            }
        }
    }

    #[test]
    fn other_words_are_refused_with_the_list() {
        for text in [
            "",
            "gzip:10",
            "[]",
            "[1]",
            "[{\"a\":1}]",
            "[\"bytes\"",
            "zstd:",
            "zstd:23",
            "zstd:3:4",
            "blosc:",
            "blosc:snappy",
            "blosc:lz4:10",
            "blosc:lz4:5:yes",
            "blosc:lz4:5:shuffle:1",
            "crc32c+crc32c",
            "none:1",
            "ZSTD",
        ] {
            let error = text.parse::<Codec>().unwrap_err();
            assert_eq!(error.kind, Kind::Schema);
            assert!(error.cause.contains("blosc:CNAME"), "{error}");
        }
    }

    #[test]
    fn chains_without_a_word_are_kept() {
        let bytes = json!({ "name": "bytes", "configuration": { "endian": "little" } });
        let big = json!({ "name": "bytes", "configuration": { "endian": "big" } });
        let transpose = json!({ "name": "transpose", "configuration": { "order": [1, 0] } });
        let zstd = json!({ "name": "zstd", "configuration": { "level": 1, "checksum": true } });
        for chain in [
            vec![transpose.clone(), bytes.clone()],
            vec![bytes.clone(), zstd.clone()],
            vec![bytes.clone(), zstd.clone(), json!("crc32c")],
        ] {
            let codec = Codec::of_zarr(&chain, &ElementType::F8);
            assert_eq!(codec, Codec::Chain(chain.clone()));
            assert_eq!(codec.to_string().parse::<Codec>().unwrap(), codec);
            assert_eq!(codec.zarr(&ElementType::F8), chain);
        }
        for order in [bytes, big] {
            assert!(Codec::of_zarr(&[order], &ElementType::F8).is_none());
        }
    }
}
