//! The description of the machine that runs this program, from the file that `penstock calibrate`
//! has written.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use penstock_engine::{Error, Kind, Result};
use penstock_sim::preset::Preset;

/// The variable of the environment that names the file.
const MACHINE: &str = "PENSTOCK_MACHINE";

/// The file that is given, or else the one that the environment names.
pub fn named(given: Option<PathBuf>) -> Option<PathBuf> {
    let named = || std::env::var_os(MACHINE).filter(|path| !path.is_empty());
    given.or_else(|| named().map(PathBuf::from))
}

/// Reads the description of a machine. Calls are around the page cache, or through it; `None` if
/// direct I/O was not measured, and they are around it.
///
/// # Errors
/// [`Kind::Schema`] when the file cannot be read or makes no sense, and for a machine that runs no
/// program of today.
pub fn read(path: &Path, is_around: bool) -> Result<Option<Preset>> {
    let wrong = |cause: &dyn Display| {
        let doing = "reading the description of this machine";
        Error::new(Kind::Schema, doing, cause).at(path)
    };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(&error))?;
    let preset =
        Preset::from_toml(&text, &path.to_string_lossy()).map_err(|error| wrong(&error))?;
    if preset.host.is_none() {
        let cause = "it has no section `host`: it describes no machine that runs this program";
        return Err(wrong(&cause));
    }
    Ok(match is_around {
        true => preset.around_page_cache(),
        false => Some(preset),
    })
}
