//! The strategies by the words that users know them by.

use penstock_engine::{Error, Kind, Result, Strategy, caching, disk_directed, two_phase};

/// The words, the default first.
pub const WORDS: [&str; 4] = ["disk-directed", "two-phase", "caching", "independent"];

/// How much memory the strategies take for what they keep. Results do not depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Blocks of a caching server, for each client.
    pub buffers_per_client: u32,
    /// Bytes of a client's buffer in two-phase I/O.
    pub staging_bytes: u64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            buffers_per_client: caching::Options::default().buffers_per_client,
            staging_bytes: two_phase::Options::default().buffer_bytes_max,
        }
    }
}

/// The strategy of that name.
///
/// # Errors
/// [`Kind::Schema`] for a word that is none of [`WORDS`].
pub fn named(word: &str, tuning: &Tuning) -> Result<Strategy> {
    let caching = caching::Options {
        buffers_per_client: tuning.buffers_per_client,
        ..caching::Options::default()
    };
    match word {
        "disk-directed" => Ok(Strategy::DiskDirected(disk_directed::Options::default())),
        "two-phase" => Ok(Strategy::TwoPhase(two_phase::Options {
            buffer_bytes_max: tuning.staging_bytes,
            caching,
        })),
        "caching" => Ok(Strategy::Caching(caching)),
        "independent" => Ok(Strategy::Independent),
        _ => {
            let words = WORDS.map(|word| format!("\"{word}\"")).join(", ");
            let cause = format!("\"{word}\" is no strategy: use one of {words}");
            Err(Error::new(Kind::Schema, "choosing a strategy", cause))
        }
    }
}

/// A strategy in words in which two that differ differ: its name, and its tuning where that is not
/// the usual.
pub fn in_words(strategy: &Strategy) -> String {
    let name = strategy.name();
    match named(name, &Tuning::default()) {
        Ok(usual) if usual != *strategy => format!("{name} {strategy:?}"),
        _ => name.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_strategies_and_others_are_refused() {
        for name in WORDS {
            let strategy = named(name, &Tuning::default()).unwrap();
            assert_eq!((strategy.name(), in_words(&strategy)), (name, name.into()));
        }
        assert_eq!(named(WORDS[0], &Tuning::default()), Ok(Strategy::default()));
        for other in ["", "Caching", "two_phase", "disk-directed "] {
            let error = named(other, &Tuning::default()).unwrap_err();
            assert!(error.kind == Kind::Schema && error.cause.contains("\"two-phase\""));
        }
        let small = Tuning {
            buffers_per_client: 1,
            staging_bytes: 1,
        };
        let strategy = named("caching", &small).unwrap();
        assert!(in_words(&strategy).contains("buffers_per_client: 1"));
    }
}
