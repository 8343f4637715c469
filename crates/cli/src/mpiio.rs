//! `penstock mpiio`: runs a command with MPI-IO by Penstock.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use crate::arguments::Mpiio;
use crate::failure::Failure;
use crate::output;

/// The library, under any of its names.
const LIBRARY: &str = "libpenstock_mpiio.so";
/// The variable that names the library, where it is elsewhere.
pub(crate) const VARIABLE: &str = "PENSTOCK_MPIIO_LIBRARY";
/// The variable by which the dynamic linker loads libraries first.
const PRELOAD: &str = "LD_PRELOAD";

/// Runs a command with the library in front, or prints the path of the library.
pub(crate) fn run(asked: &Mpiio) -> Result<(), Failure> {
    let library = find()?;
    let Some((program, arguments)) = asked.command.split_first() else {
        return output::text(&format!("{}\n", library.display()));
    };
    let mut command = std::process::Command::new(program);
    command.args(arguments);
    command.env(PRELOAD, preloaded(&library, std::env::var_os(PRELOAD)));
    if asked.report {
        command.env("PENSTOCK_MPIIO_REPORT", "1");
    }
    let error = command.exec();
    let program = Path::new(program).display();
    Err(Failure::failed(format!("cannot run {program}: {error}")))
}

/// What is loaded first: the library, and then what was to be loaded first before.
fn preloaded(library: &Path, before: Option<OsString>) -> OsString {
    let mut all = library.as_os_str().to_os_string();
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        all.push(OsStr::new(":"));
        all.push(before);
    }
    all
}

/// The library: where the environment says, or beside the code of this command, or in the directory
/// of libraries beside that of the command.
pub(crate) fn find() -> Result<PathBuf, Failure> {
    if let Some(path) = std::env::var_os(VARIABLE).map(PathBuf::from) {
        return match path.is_file() {
            true => Ok(path),
            false => {
                let path = path.display();
                Err(Failure::input(format!(
                    "{VARIABLE} is {path}, which is no file"
                )))
            }
        };
    }
    let own = own_object().and_then(|path| path.canonicalize().ok());
    let directory = own.as_deref().and_then(Path::parent);
    let places = directory.map(|directory| {
        ["", "../lib", "../lib/penstock"].map(|place| directory.join(place).join(LIBRARY))
    });
    let found = places.iter().flatten().find(|place| place.is_file());
    found.cloned().ok_or_else(|| {
        let beside = directory.unwrap_or(Path::new("?")).display();
        Failure::failed(format!(
            "{LIBRARY} is neither in {beside} nor in ../lib beside it: set {VARIABLE} to its path"
        ))
    })
}

/// The executable, or the library of the Python package, that has this code.
fn own_object() -> Option<PathBuf> {
    let here = own_object as *const ();
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines()
        .find_map(|line| object_with(line, here as usize))
}

/// The path of a mapping, as a line of `/proc/self/maps` tells it, if an address lies in it.
fn object_with(line: &str, address: usize) -> Option<PathBuf> {
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    let is_in = (number(start)?..number(end)?).contains(&address);
    is_in.then(|| line.find('/').map(|path| line[path..].into()))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_comes_before_others() {
        let library = Path::new("/lib/x.so");
        assert_eq!(preloaded(library, None), "/lib/x.so");
        assert_eq!(preloaded(library, Some("".into())), "/lib/x.so");
        assert_eq!(preloaded(library, Some("/y.so".into())), "/lib/x.so:/y.so");
    }

    #[test]
    fn the_own_object_is_found() {
        let line = "00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/a program";
        assert_eq!(
            object_with(line, 0x400_000),
            Some("/usr/bin/a program".into())
        );
        assert_eq!(object_with(line, 0x452_000), None);
        assert_eq!(object_with("1-2 rw-p 0 0 0", 1), None);
        assert_eq!(own_object(), std::env::current_exe().ok());
    }
}
