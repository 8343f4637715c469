//! Filters of HDF5: in words, as HDF5 has them, and as codecs of Zarr.
//!
//! | word | number | parameters | codec |
//! |---|---|---|---|
//! | `shuffle` | 2 | the bytes of an element | `numcodecs.shuffle` |
//! | `deflate:LEVEL` | 1 | the level, 0 to 9; 4 if none is given | `numcodecs.zlib` |
//! | `zstd:LEVEL` | 32015 | the level; 3 if none is given | `zstd` |
//! | `fletcher32` | 3 | | `numcodecs.fletcher32` |
//! | `bzip2:LEVEL` | 307 | the level, 1 to 9; 9 if none is given | `numcodecs.bz2` |
//! | `blosc` | 32001 | read only | `blosc` |
//! | `lzf`, `nbit`, `scaleoffset` | 32000, 5, 6 | read only, through the library | |
//!
//! The bytes that a filter of HDF5 makes are those that the codec makes.

use penstock_engine::{Error, Kind, Result};
use penstock_hdf5::Filter;
use serde_json::{Value, json};

use crate::dtype::ElementType;

const NBIT: i32 = 5;
const SCALE_OFFSET: i32 = 6;
const BZIP2: i32 = 307;
const LZF: i32 = 32000;
const BLOSC: i32 = 32001;
const ZSTD: i32 = 32015;
/// Filters that Penstock reads, and does not write, by their words.
const READ_ONLY: [(&str, i32); 4] = [
    ("blosc", BLOSC),
    ("lzf", LZF),
    ("nbit", NBIT),
    ("scaleoffset", SCALE_OFFSET),
];
/// The names of filters that Penstock does not know.
const UNKNOWN: [(i32, &str); 12] = [
    (4, "SZIP"),
    (305, "LZO"),
    (32004, "LZ4"),
    (32006, "Mafisc"),
    (32008, "bitshuffle"),
    (32013, "ZFP"),
    (32017, "SZ"),
    (32018, "FCIDECOMP"),
    (32023, "granular bit round"),
    (32024, "SZ3"),
    (32026, "Blosc2"),
    (32028, "SPERR"),
];
/// The levels that programs take where nobody gives one.
const DEFLATE_LEVEL: u32 = 4;
const ZSTD_LEVEL: i32 = 3;
const BZIP2_LEVEL: u32 = 9;

/// Reads the words of filters, which follow each other with `+` between, in the order in which they
/// are applied; `none` and no text mean none.
///
/// # Errors
/// [`Kind::Schema`], with the list of words.
pub(crate) fn parse(words: &str, element: &ElementType) -> Result<Vec<Filter>> {
    if matches!(words, "" | "none") {
        return Ok(Vec::new());
    }
    let filter = |word: &str| of_word(word, element).ok_or_else(|| unknown(words));
    words.split('+').map(filter).collect()
}

fn unknown(words: &str) -> Error {
    let cause = "filters are \"shuffle\", \"deflate\" or \"deflate:LEVEL\" (0 to 9), \"zstd\" or \
        \"zstd:LEVEL\" (-131072 to 22), \"bzip2\" or \"bzip2:LEVEL\" (1 to 9) and \"fletcher32\", with \"+\" between";
    Error::new(
        Kind::Schema,
        format!("reading the filters {words:?}"),
        cause,
    )
}

fn of_word(word: &str, element: &ElementType) -> Option<Filter> {
    let (name, level) = match word.split_once(':') {
        Some((name, level)) => (name, Some(level.parse::<i32>().ok()?)),
        None => (word, None),
    };
    let (number, parameters) = match (name, level) {
        ("shuffle", None) => (Filter::SHUFFLE, vec![u32::try_from(element.width()).ok()?]),
        ("fletcher32", None) => (Filter::FLETCHER32, Vec::new()),
        ("deflate", level) => {
            let level = level.map_or(Some(DEFLATE_LEVEL), |level| u32::try_from(level).ok())?;
            (Filter::DEFLATE, vec![level])
        }
        ("bzip2", level) => {
            let level = level.map_or(Some(BZIP2_LEVEL), |level| u32::try_from(level).ok())?;
            (BZIP2, vec![level])
        }
        ("zstd", level) => (ZSTD, vec![level.unwrap_or(ZSTD_LEVEL).cast_unsigned()]),
        (name, None) => {
            let known = READ_ONLY.iter().find(|(known, _)| *known == name)?;
            (known.1, Vec::new())
        }
        _ => return None,
    };
    let is_known = match number {
        Filter::DEFLATE => parameters[0] <= 9,
        BZIP2 => (1..=9).contains(&parameters[0]),
        ZSTD => (-131_072..=22).contains(&parameters[0].cast_signed()),
        _ => true,
    };
    is_known.then_some(Filter { number, parameters })
}

/// Refuses filters that Penstock only reads.
///
/// # Errors
/// [`Kind::Unsupported`].
pub(crate) fn check_writable(filters: &[Filter]) -> Result<()> {
    let is_read_only = |filter: &Filter| {
        let mut known = READ_ONLY.iter();
        known.find(|(_, number)| *number == filter.number)
    };
    match filters.iter().find_map(is_read_only) {
        Some((word, _)) => {
            let cause = "Penstock reads it, and does not write it: use \"shuffle+zstd\", or \
                \"shuffle+deflate\", which every HDF5 library reads";
            let doing = format!("filtering by {word:?}");
            Err(Error::new(Kind::Unsupported, doing, cause))
        }
        None => Ok(()),
    }
}

/// Whether the library that is built in decodes chunks of these filters.
pub(crate) fn are_in_library(filters: &[Filter]) -> bool {
    let known = [
        Filter::DEFLATE,
        Filter::SHUFFLE,
        Filter::FLETCHER32,
        NBIT,
        SCALE_OFFSET,
        LZF,
    ];
    filters.iter().all(|filter| known.contains(&filter.number))
}

/// The names of the filters that have no word.
pub(crate) fn names_of_unknown(filters: &[Filter]) -> Vec<String> {
    let unknown = filters.iter().filter(|filter| word(filter).is_none());
    let name = |filter: &Filter| {
        let mut known = UNKNOWN.iter();
        match known.find(|(number, _)| *number == filter.number) {
            Some((_, name)) => (*name).to_string(),
            None => format!("number {}", filter.number),
        }
    };
    unknown.map(name).collect()
}

/// The words for filters; `None` where one has no word.
pub(crate) fn words(filters: &[Filter]) -> Option<String> {
    let words: Option<Vec<String>> = filters.iter().map(word).collect();
    match words?.join("+") {
        none if none.is_empty() => Some("none".to_string()),
        words => Some(words),
    }
}

fn word(filter: &Filter) -> Option<String> {
    let first = filter.parameters.first().copied();
    Some(match filter.number {
        Filter::SHUFFLE => "shuffle".to_string(),
        Filter::FLETCHER32 => "fletcher32".to_string(),
        Filter::DEFLATE => format!("deflate:{}", first.unwrap_or(DEFLATE_LEVEL)),
        ZSTD => format!("zstd:{}", first.map_or(ZSTD_LEVEL, u32::cast_signed)),
        BZIP2 => format!("bzip2:{}", first.unwrap_or(BZIP2_LEVEL)),
        number => {
            let mut known = READ_ONLY.iter();
            known.find(|(_, known)| *known == number)?.0.to_string()
        }
    })
}

/// The codecs of Zarr for filters, one a filter, in JSON; `None` where there is no codec for one.
pub(crate) fn codecs(filters: &[Filter], element: &ElementType) -> Option<Vec<String>> {
    let codec = |filter: &Filter| {
        let first = filter.parameters.first().copied();
        Some(match filter.number {
            Filter::SHUFFLE => {
                let bytes = first.unwrap_or(u32::try_from(element.width()).ok()?);
                let configuration = json!({ "elementsize": bytes });
                json!({ "name": "numcodecs.shuffle", "configuration": configuration })
            }
            Filter::DEFLATE => {
                let configuration = json!({ "level": first.unwrap_or(DEFLATE_LEVEL).min(9) });
                json!({ "name": "numcodecs.zlib", "configuration": configuration })
            }
            Filter::FLETCHER32 => json!({ "name": "numcodecs.fletcher32", "configuration": {} }),
            BZIP2 => {
                let configuration = json!({ "level": first.unwrap_or(BZIP2_LEVEL).clamp(1, 9) });
                json!({ "name": "numcodecs.bz2", "configuration": configuration })
            }
            ZSTD => {
                let level = first.map_or(ZSTD_LEVEL, u32::cast_signed);
                let configuration = json!({ "level": level, "checksum": false });
                json!({ "name": "zstd", "configuration": configuration })
            }
            BLOSC => {
                // A frame of Blosc says itself how it was made.
                let configuration = json!({
                    "cname": "lz4", "clevel": 5, "shuffle": "shuffle",
                    "typesize": element.width(), "blocksize": 0,
                });
                json!({ "name": "blosc", "configuration": configuration })
            }
            _ => return None,
        })
    };
    let text = |filter| codec(filter).map(|codec: Value| codec.to_string());
    filters.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_that_are_only_read_have_words_and_are_not_written() {
        for (word, is_in_library) in [
            ("blosc", false),
            ("lzf", true),
            ("shuffle+nbit+deflate:4", true),
            ("scaleoffset+fletcher32", true),
        ] {
            let filters = parse(word, &ElementType::F4).unwrap();
            assert_eq!(words(&filters).as_deref(), Some(word));
            assert_eq!(are_in_library(&filters), is_in_library, "{word}");
            let error = check_writable(&filters).unwrap_err();
            assert!(error.kind == Kind::Unsupported, "{error}");
        }
        let of = |number| Filter {
            number,
            parameters: Vec::new(),
        };
        let unknown = [of(Filter::SHUFFLE), of(32008), of(77)];
        assert_eq!(words(&unknown), None);
        assert_eq!(names_of_unknown(&unknown), ["bitshuffle", "number 77"]);
    }

    #[test]
    fn words_and_filters_say_the_same() {
        for (given, full) in [
            ("", "none"),
            ("none", "none"),
            ("shuffle+deflate", "shuffle+deflate:4"),
            ("deflate:9+fletcher32", "deflate:9+fletcher32"),
            ("zstd", "zstd:3"),
            ("shuffle+zstd:-5", "shuffle+zstd:-5"),
            ("blosc", "blosc"),
        ] {
            let filters = parse(given, &ElementType::F4).unwrap();
            assert_eq!(words(&filters).as_deref(), Some(full));
            assert_eq!(parse(full, &ElementType::F4).unwrap(), filters);
            assert_eq!(
                codecs(&filters, &ElementType::F4).unwrap().len(),
                filters.len()
            );
        }
        for text in [
            "+",
            "lzf:3",
            "szip",
            "deflate:10",
            "deflate:-1",
            "shuffle:4",
            "zstd:23",
            "zstd:",
            "gzip",
        ] {
            let error = parse(text, &ElementType::F4).unwrap_err();
            assert!(
                error.kind == Kind::Schema && error.cause.contains("fletcher32"),
                "{error}"
            );
        }
    }
}
