//! The names of the strategies.

use penstock_engine::tuning::{Caching, DiskDirected, Exchange, StoreAccess, TwoPhase};
use penstock_engine::{Error, Kind, Result, Strategy};

/// The names of strategies, the default first. `two-phase` is the last of its steps.
pub const WORDS: [&str; 9] = [
    "disk-directed",
    "two-phase",
    "two-phase:1",
    "two-phase:2",
    "two-phase:3",
    "two-phase:4",
    "two-phase:5",
    "caching",
    "independent",
];

/// The memory that strategies take for their buffers. Results do not depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// The number of blocks that a caching server keeps for each client.
    pub buffers_per_client: u32,
    /// The bytes of a client's buffer in two-phase I/O.
    pub staging_bytes: u64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            buffers_per_client: Caching::default().buffers_per_client,
            staging_bytes: TwoPhase::default().buffer_bytes_max,
        }
    }
}

/// The strategy with the name `word`.
///
/// # Errors
/// [`Kind::Schema`] for any word outside [`WORDS`].
pub fn named(word: &str, tuning: &Tuning) -> Result<Strategy> {
    let caching = Caching {
        buffers_per_client: tuning.buffers_per_client,
        ..Caching::default()
    };
    let two_phase = |exchange: Exchange| {
        Strategy::TwoPhase(TwoPhase {
            buffer_bytes_max: tuning.staging_bytes,
            exchange,
            io: StoreAccess::Direct,
        })
    };
    match word {
        "disk-directed" => Ok(Strategy::DiskDirected(DiskDirected::default())),
        "two-phase:1" => Ok(two_phase(Exchange::Step1)),
        "two-phase:2" => Ok(two_phase(Exchange::Step2)),
        "two-phase:3" => Ok(two_phase(Exchange::Step3)),
        "two-phase:4" => Ok(two_phase(Exchange::Step4)),
        "two-phase" | "two-phase:5" => Ok(two_phase(Exchange::Step5)),
        "caching" => Ok(Strategy::Caching(caching)),
        "independent" => Ok(Strategy::Independent),
        _ => {
            let words = WORDS.map(|word| format!("\"{word}\"")).join(", ");
            let cause = format!("\"{word}\" is no strategy: use one of {words}");
            Err(Error::new(Kind::Schema, "choosing a strategy", cause))
        }
    }
}

/// The name of a strategy, with its tuning if that is not the default. Different strategies have
/// different words.
pub fn in_words(strategy: &Strategy) -> String {
    let usual = |word: &str| named(word, &Tuning::default());
    match WORDS
        .into_iter()
        .find(|word| usual(word).as_ref() == Ok(strategy))
    {
        Some(word) => word.to_string(),
        None => format!("{} {strategy:?}", strategy.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_strategies_and_others_are_refused() {
        for name in WORDS {
            let strategy = named(name, &Tuning::default()).unwrap();
            // Two names stand for one strategy: the shorter is the one that is shown.
            let shorter = name.replace(":5", "");
            assert_eq!(
                (strategy.name(), in_words(&strategy)),
                (&*shorter, shorter.clone())
            );
        }
        let first = named(WORDS[0], &Tuning::default());
        assert_eq!(first, Ok(Strategy::default()));
        for other in [
            "",
            "auto",
            "Caching",
            "two_phase",
            "disk-directed ",
            "two-phase:",
            "two-phase:0",
            "two-phase:6",
        ] {
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
