//! Ranks that are to open something together hear of the wrong arguments of any of them.
//!
//! ```text
//! all tell all   whether the arguments fit, and the bytes of the error if not
//! all tell all   a part of the error, again and again until it is whole: that of the lowest rank
//! ```

use penstock_engine::encoding::{decode, encode};
use penstock_engine::{Error, Kind, Result, Who};
use penstock_layout::exact;

use crate::mpi::Communicator;

/// The words of an error that are told at a time.
const WORDS: usize = 64;

/// Lets all ranks have the error of the lowest rank that has one. `kind` is compared, too.
///
/// # Errors
/// That error; [`Kind::Mismatch`] when `kind` differs between ranks.
///
/// # Collective
/// Over the communicator.
pub fn meet<T>(comm: &Communicator, mine: Result<(u64, T)>, doing: &str) -> Result<T> {
    let (kind, told) = match &mine {
        Ok((kind, _)) => (*kind, Vec::new()),
        Err(error) => (0, encode(error)?),
    };
    let word = [u64::from(mine.is_ok()), told.len() as u64, kind];
    let all = comm.api.allgather(comm.handle, word)?;
    if let Some(rank) = all.iter().position(|[is_well, ..]| *is_well == 0) {
        let bytes: usize = exact(all[rank][1]);
        let error: Error = decode(&hear(comm, &told, (rank, bytes))?)?;
        return Err(error.by(Who::Rank(rank)));
    }
    if let Some(other) = all.iter().position(|[.., kind]| *kind != all[0][2]) {
        let cause = format!("ranks 0 and {other} give different arguments");
        return Err(Error::new(Kind::Mismatch, doing, cause));
    }
    mine.map(|(_, given)| given)
}

/// The bytes that a rank tells all.
fn hear(comm: &Communicator, told: &[u8], (rank, bytes): (usize, usize)) -> Result<Vec<u8>> {
    let mut heard = Vec::with_capacity(bytes);
    while heard.len() < bytes {
        let part = told.get(heard.len()..).unwrap_or_default();
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(part.chunks(8)) {
            let mut eight = [0; 8];
            eight[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(eight);
        }
        let all = comm.api.allgather(comm.handle, words)?;
        heard.extend(all[rank].iter().flat_map(|word| word.to_le_bytes()));
    }
    heard.truncate(bytes);
    Ok(heard)
}
