//! The check of a writer that is killed: what it was replacing is whole, in its old version or its
//! new one, and the next writer goes on.
//!
//! ```text
//! writer    version 7 | says 7 | version 8 ... SIGKILL
//! check                 hears 7                        reads: all elements are 7, or all are 8
//! ```
//!
//! A version is an array whose elements all have its number. A writer says a version once its call
//! has returned; from then on no kill may take it back.

use std::path::Path;
use std::time::Duration;

use penstock_arrays::calls::array::ArrayCall;
use penstock_arrays::calls::settings::SessionOptions;
use penstock_arrays::calls::{Session, on_threads};
use penstock_engine::{Error, Kind, Result};

use super::arrays::{array, chunks, on_ranks, read, write as write_array};
use super::outcome::Outcome;
use super::part::Part;
use super::site::Site;
use crate::failure::Failure;
use crate::output;

/// The number of kills.
const KILLS: u32 = 5;
/// The number of versions that a writer has written before it is killed.
const VERSIONS: usize = 2;
/// How much later each kill comes after a version than the one before: they meet a writer in
/// different steps.
const LATER: Duration = Duration::from_millis(4);
/// The ranks of a writer and of a reader.
const RANKS: usize = 2;
/// The name of the array's group.
const STATE: &str = "state.zarr";

/// The array: 16 chunks, so that a version takes some time.
fn state() -> Result<ArrayCall> {
    let ranks = [RANKS as u64];
    array([512, 512], chunks([128, 128], "none"), ("BLOCK,*", &ranks))
}

/// The version of an array; an error if its elements are of several.
fn version(session: &Session, path: &Path, call: &ArrayCall) -> Result<u32> {
    let found = read(session, path, call)?;
    let (_, first) = found.first().copied().unwrap_or_default();
    match found.iter().find(|(_, element)| *element != first) {
        None => Ok(first),
        Some((index, other)) => Err(of_several(
            path,
            &format!("element {index} is {other}"),
            first,
        )),
    }
}

fn of_several(path: &Path, other: &str, first: u32) -> Error {
    let cause = format!("{other}, and others are {first}: the array is of two versions");
    Error::new(Kind::Damaged, "reading after a kill", cause).at(path)
}

/// Replaces the array again and again, until somebody ends this process. Says each version.
pub(super) fn write(directory: &Path) -> std::result::Result<(), Failure> {
    let path = directory.join(STATE);
    let call = state()?;
    let write = |session: &Session| {
        let mut version = match path.exists() {
            true => version(session, &path, &call)?,
            false => 0,
        };
        loop {
            version += 1;
            write_array(session, &path, &call, |_| version)?;
            let told = match session.rank() {
                Some(0) => output::text(&format!("{version}\n")),
                _ => Ok(()),
            };
            told.map_err(|failure| Error::new(Kind::Peer, "telling", failure.text()))?;
        }
    };
    let ran = on_threads(RANKS, &SessionOptions::default(), &|| false, write)?;
    ran.into_iter().collect::<Result<Vec<()>>>()?;
    Ok(())
}

/// Kills writers, and looks at what they leave.
pub(super) fn kill(site: &Site) -> std::result::Result<Outcome, Failure> {
    let (path, call) = (site.path(STATE), state()?);
    let mut last = 0;
    // The last writer is there to go on.
    for kill in 0..=KILLS {
        let said = said_until_killed(site, LATER * kill)?;
        site.note("reading after a kill");
        let body = |session: &Session| version(session, &path, &call);
        let found = on_ranks(site, RANKS, &SessionOptions::default(), body)?;
        let there = found.first().copied().unwrap_or_default();
        if let Some(other) = found.iter().find(|&&other| other != there) {
            return Err(of_several(&path, &format!("some elements are {other}"), there).into());
        }
        let said_last = said.last().copied().unwrap_or_default();
        let goes_on = said.first() == Some(&(last + 1));
        if !goes_on || there < said_last || there > said_last + 1 {
            return Err(Failure::failed(format!(
                "after version {last} a writer has written {said:?} and was killed, and the array \
                 is of version {there}"
            )));
        }
        last = there;
    }
    Ok(Outcome::Works(format!(
        "a writer was killed {KILLS} times: the array was whole, and the next one went on, to \
         version {last}"
    )))
}

/// Starts a writer, kills it some time after its first versions, and gives all that it has said.
fn said_until_killed(site: &Site, later: Duration) -> std::result::Result<Vec<u32>, Failure> {
    let writer = Part::Writer.start(site)?;
    let mut said = Vec::new();
    for _ in 0..VERSIONS {
        said.push(writer.line(site, "a version of an array")?);
    }
    std::thread::sleep(later);
    said.extend(writer.kill(site)?);
    let read = |line: &String| line.parse::<u32>();
    let versions = said.iter().map(read).collect::<std::result::Result<_, _>>();
    versions.map_err(|_| Failure::failed(format!("the writer has said {said:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_of_two_versions_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let (path, call) = (directory.path().join(STATE), state().unwrap());
        for (torn_at, expected) in [(u64::MAX, Ok(1)), (300, Err(Kind::Damaged))] {
            let body = |session: &Session| {
                write_array(session, &path, &call, |index| {
                    1 + u32::from(index >= torn_at)
                })?;
                Ok(version(session, &path, &call).map_err(|error| error.kind))
            };
            let found = on_threads(RANKS, &SessionOptions::default(), &|| false, body).unwrap();
            assert_eq!(found[0].as_ref().unwrap(), &expected);
        }
    }
}
