//! The table of mounts, as `/proc/self/mountinfo` tells it.
//!
//! It names the kind of a file system as the kernel does: `ext4`, `nfs4`, `lustre`, `gpfs`,
//! `fuse.sshfs`. `statfs` gives a number for it, which several kinds have in common.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A mount: its place, and the kind of its file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) place: PathBuf,
    pub(super) kind: String,
}

/// The mount that a path without links lies in, if the kernel tells.
pub(super) fn of(path: &Path) -> Option<Entry> {
    deepest(all(), path)
}

/// The deepest of the mounts that a path lies in: of two at one place, the later hides the other.
fn deepest(mounts: Vec<Entry>, path: &Path) -> Option<Entry> {
    let around = mounts
        .into_iter()
        .filter(|one| path.starts_with(&one.place));
    around.max_by_key(|one| one.place.components().count())
}

/// A place at or below a path at which something is mounted.
pub(super) fn below(path: &Path) -> Option<PathBuf> {
    let mut mounts = all().into_iter();
    mounts.find_map(|one| one.place.starts_with(path).then_some(one.place))
}

fn all() -> Vec<Entry> {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    table
        .split(|&byte| byte == b'\n')
        .filter_map(entry)
        .collect()
}

/// The mount that a line tells: the fifth word is its place, and the kind follows a lone `-`.
fn entry(line: &[u8]) -> Option<Entry> {
    let mut words = line.split(|&byte| byte == b' ');
    let place = words.nth(4)?;
    words.find(|&word| word == b"-")?;
    let kind = words.next()?;
    Some(Entry {
        place: OsString::from_vec(unescaped(place)).into(),
        kind: String::from_utf8_lossy(kind).into_owned(),
    })
}

/// A word in which `\040` stands for a space: a backslash, and the byte in three octal digits.
fn unescaped(word: &[u8]) -> Vec<u8> {
    let (mut plain, mut rest) = (Vec::new(), word);
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| first == b'\\');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                rest = &after[3..];
            }
            None => {
                plain.push(first);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_mount() {
        let line = b"36 35 98:0 /a /mnt/my\\040disk rw,noatime master:1 - fuse.sshfs me:/ rw";
        let expected = Entry {
            place: "/mnt/my disk".into(),
            kind: "fuse.sshfs".into(),
        };
        assert_eq!(entry(line), Some(expected));
        assert_eq!(entry(b""), None);
        assert_eq!(unescaped(b"a\\134b\\9"), b"a\\b\\9");
    }

    #[test]
    fn the_deepest_mount_holds_a_path() {
        let mount = |place: &str, kind: &str| Entry {
            place: place.into(),
            kind: kind.into(),
        };
        let all = [
            mount("/", "ext4"),
            mount("/data", "xfs"),
            mount("/data", "lustre"),
        ];
        for (path, kind) in [
            ("/data/run", "lustre"),
            ("/database", "ext4"),
            ("/data", "lustre"),
        ] {
            let found = deepest(all.to_vec(), Path::new(path));
            assert_eq!(found.map(|one| one.kind), Some(kind.to_string()), "{path}");
        }
        assert!(of(Path::new("/proc/self")).is_some_and(|one| one.kind == "proc"));
    }
}
