//! The hello: the first words that ranks of an MPI job exchange, before one relies on another.
//!
//! ```text
//! word 0   the version of the build    these three words stay as they are in all versions
//! word 1   1 if the rank has options
//! word 2   the digest of its options
//! ```

use penstock_engine::encoding::encode;
use penstock_engine::version::Version;
use penstock_engine::{Error, Kind, Result, Who};
use serde::Serialize;
use twox_hash::XxHash3_64;

/// The words of a hello.
pub(super) type Words = [u64; 3];

/// The digest of a value: of its encoding, so that equal values have one digest in all builds of a
/// version.
///
/// # Errors
/// When the value cannot be encoded.
pub(super) fn digest<T: Serialize>(value: &T) -> Result<u64> {
    Ok(XxHash3_64::oneshot(&encode(value)?))
}

/// Exchanges hellos by `exchange`, which gives the words of all ranks by rank, and checks that all
/// ranks are of one version, have options, and have the same. `mine` is this rank's digest; `None`
/// if it has no options.
///
/// # Errors
/// The same on all ranks: [`Kind::Mismatch`] when versions or options differ, [`Kind::Schema`] when
/// a rank has no options; the error of the exchange.
pub(super) fn meet(
    version: Version,
    mine: Option<u64>,
    exchange: impl FnOnce(Words) -> Result<Vec<Words>>,
) -> Result<()> {
    let opening = "opening a session";
    let told = [
        version.word(),
        u64::from(mine.is_some()),
        mine.unwrap_or_default(),
    ];
    let all = exchange(told)?;
    let versions = all.iter().map(|[version, ..]| Version::of_word(*version));
    Version::check_all(&versions.collect::<Vec<_>>())?;
    if let Some(rank) = all.iter().position(|[_, has_options, _]| *has_options == 0) {
        let error = Error::new(Kind::Schema, opening, "its options do not fit");
        return Err(error.by(Who::Rank(rank)));
    }
    let first = all.first().map(|[.., digest]| *digest);
    if let Some(other) = all.iter().position(|[.., digest]| Some(*digest) != first) {
        let cause = format!("ranks 0 and {other} give different options");
        return Err(Error::new(Kind::Mismatch, opening, cause));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::{Barrier, Mutex};

    use super::*;
    use crate::DirectIo;
    use crate::calls::settings::SessionOptions;

    /// The ends of ranks on threads, each with its version and options.
    fn ends(ranks: &[(Version, Option<u64>)]) -> Vec<Result<()>> {
        let told = Mutex::new(vec![[0; 3]; ranks.len()]);
        let all_told = Barrier::new(ranks.len());
        std::thread::scope(|scope| {
            let threads = ranks.iter().enumerate().map(|(rank, (version, mine))| {
                let (told, all_told) = (&told, &all_told);
                scope.spawn(move || {
                    meet(*version, *mine, |words| {
                        told.lock().unwrap()[rank] = words;
                        all_told.wait();
                        Ok(told.lock().unwrap().clone())
                    })
                })
            });
            let threads: Vec<_> = threads.collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        })
    }

    #[test]
    fn all_ranks_hear_of_what_differs() {
        let (this, other) = (Version::THIS, Version { major: 9, minor: 3 });
        let usual = digest(&SessionOptions::default()).unwrap();
        let options = SessionOptions {
            direct: DirectIo::Always,
            ..SessionOptions::default()
        };
        let direct = digest(&options).unwrap();
        assert_ne!(usual, direct);
        for (second, kind, words) in [
            (
                (other, Some(usual)),
                Kind::Mismatch,
                "rank 1 has version 9.3",
            ),
            ((other, None), Kind::Mismatch, "rank 1 has version 9.3"),
            ((this, None), Kind::Schema, "do not fit"),
            ((this, Some(direct)), Kind::Mismatch, "ranks 0 and 1"),
        ] {
            let ends = ends(&[(this, Some(usual)), second, (this, Some(usual))]);
            let error = ends[0].clone().unwrap_err();
            assert!(error.kind == kind && error.cause.contains(words), "{error}");
            assert!(ends.iter().all(|end| *end == ends[0]));
        }
        assert!(ends(&[(this, Some(usual)); 3]).iter().all(Result::is_ok));
    }

    /// The digest is part of the protocol: another one needs another version.
    #[test]
    fn the_digest_is_stable() {
        assert_eq!(digest(&(1u64, "two")).unwrap(), 6_094_114_414_308_103_795);
    }
}
