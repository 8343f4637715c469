//! Paths, and the servers that keep their objects.
//!
//! The full path is hashed, and the hash names the server: one request reaches the object, and no
//! directory is read on the way (Corbett and Feitelson, TOCS 1996, section 4.1). Hashes are dealt
//! to *slots*; a server keeps each slot, so that the names of a slot can move to another server
//! when servers come, or are to go.

use std::fmt;

use penstock_engine::{Error, Kind, Result};
use penstock_layout::exact;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

/// The most bytes of one name in a path.
pub const NAME_BYTES_MAX: usize = 255;

/// The most bytes of a path.
pub const PATH_BYTES_MAX: usize = 4096;

/// The bits of a path's hash, where a volume has no fewer.
pub const HASH_BITS: u32 = 48;

/// A file path is an absolute path in a volume: `/`, or names that each follow a `/`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FilePath(String);

impl FilePath {
    /// Reads a path. A `/` at its end is left out.
    ///
    /// # Errors
    /// [`Kind::Schema`] when it does not begin with `/`, has a name that is empty, `.` or `..`, or
    /// is too long.
    pub fn new(path: &str) -> Result<Self> {
        let wrong = |cause: &str| {
            let path: String = path.chars().take(200).collect();
            let mut error = Error::new(Kind::Schema, "reading a path", cause);
            error.path = Some(path);
            error
        };
        let Some(rest) = path.strip_prefix('/') else {
            return Err(wrong("a path begins with '/'"));
        };
        let rest = match rest.strip_suffix('/') {
            Some("") => rest, // two slashes
            Some(before) => before,
            None => rest,
        };
        if path.len() > PATH_BYTES_MAX {
            return Err(wrong("it has more than 4096 bytes"));
        }
        for name in rest.split('/').filter(|_| !rest.is_empty()) {
            if matches!(name, "" | "." | "..") || name.contains('\0') {
                return Err(wrong("a name in it is empty, '.' or '..', or has a NUL"));
            }
            if name.len() > NAME_BYTES_MAX {
                return Err(wrong("a name in it has more than 255 bytes"));
            }
        }
        Ok(Self(format!("/{rest}")))
    }

    /// The path of the volume's root.
    pub fn root() -> Self {
        Self("/".to_string())
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path without its last name; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        let (before, name) = self.0.rsplit_once('/')?;
        match (before, name) {
            (_, "") => None,
            ("", _) => Some(Self::root()),
            (before, _) => Some(Self(before.to_string())),
        }
    }

    /// The last name; nothing for the root.
    pub fn name(&self) -> &str {
        self.0.rsplit_once('/').map_or("", |(_, name)| name)
    }

    /// The path of a name below this path.
    ///
    /// # Errors
    /// As [`FilePath::new`].
    pub fn join(&self, name: &str) -> Result<Self> {
        match self.0.as_str() {
            "/" => Self::new(&format!("/{name}")),
            path => Self::new(&format!("{path}/{name}")),
        }
    }

    /// Whether the path is below `other`.
    pub fn is_below(&self, other: &Self) -> bool {
        match other.0.as_str() {
            "/" => self.0 != "/",
            other => {
                let rest = self.0.strip_prefix(other);
                rest.is_some_and(|rest| rest.starts_with('/'))
            }
        }
    }

    /// The path that this one becomes when `old`, which it is or is below, becomes `new`.
    ///
    /// # Errors
    /// When the new path is too long.
    pub fn moved(&self, old: &Self, new: &Self) -> Result<Self> {
        let rest = self.0.strip_prefix(&old.0).unwrap_or_default();
        Self::new(&format!("{}{rest}", new.0))
    }
}

impl TryFrom<String> for FilePath {
    type Error = Error;

    fn try_from(path: String) -> Result<Self> {
        Self::new(&path)
    }
}

impl From<FilePath> for String {
    fn from(path: FilePath) -> Self {
        path.0
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The fewest slots of a volume, if it has no more servers.
const SLOTS: usize = 256;

/// The hashes of the paths of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// The number of servers with which the volume was made. They keep the same number of slots.
    pub servers: usize,
    /// The bits that are kept of a hash: fewer than [`HASH_BITS`] only to test collisions.
    pub hash_bits: u32,
}

impl Names {
    /// The hash of a path.
    pub fn hash(&self, path: &FilePath) -> u64 {
        let hash = XxHash3_64::oneshot(path.as_str().as_bytes());
        hash >> (u64::BITS - self.hash_bits.clamp(1, HASH_BITS))
    }

    /// The number of slots.
    pub fn slots(&self) -> usize {
        self.servers * (SLOTS / self.servers).max(1)
    }

    /// The slot of a path.
    pub fn slot_of(&self, path: &FilePath) -> usize {
        // The hash is mixed once more: names and servers must not share their lowest bits.
        let mixed = XxHash3_64::oneshot(&self.hash(path).to_le_bytes());
        exact::<usize>(mixed % self.slots() as u64)
    }

    /// The servers that keep the slots of a volume which has not been changed.
    pub fn keepers(&self) -> Keepers {
        let slots = (0..self.slots()).map(|slot| Slot {
            server: slot % self.servers,
            moves: 0,
        });
        Keepers(slots.collect())
    }
}

/// A slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// The server that keeps its objects.
    pub server: usize,
    /// The number of times that it has moved.
    pub moves: u64,
}

/// The servers that keep the slots of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keepers(Vec<Slot>);

impl Keepers {
    /// The slots, by number.
    pub fn slots(&self) -> &[Slot] {
        &self.0
    }

    /// The server that keeps a slot.
    pub fn server(&self, slot: usize) -> usize {
        self.0.get(slot).map_or(0, |slot| slot.server)
    }

    /// Notes that a slot has moved.
    pub(crate) fn move_to(&mut self, slot: usize, server: usize) {
        if let Some(slot) = self.0.get_mut(slot) {
            slot.server = server;
            slot.moves += 1;
        }
    }

    /// Takes in what others have heard of. Gives whether that was new.
    pub(crate) fn hear(&mut self, others: &Self) -> bool {
        let mut is_new = false;
        for (own, other) in self.0.iter_mut().zip(&others.0) {
            if own.moves < other.moves {
                (*own, is_new) = (*other, true);
            }
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let path = |text: &str| FilePath::new(text).map(|path| path.to_string()).ok();
        for (text, read) in [
            ("/", Some("/")),
            ("/a/b", Some("/a/b")),
            ("/a/b/", Some("/a/b")),
            ("/ä b/.c", Some("/ä b/.c")),
            ("", None),
            ("a", None),
            ("//", None),
            ("/a//b", None),
            ("/a/../b", None),
            ("/.", None),
            ("/a\0", None),
        ] {
            assert_eq!(path(text).as_deref(), read, "{text:?}");
        }
        assert!(FilePath::new(&format!("/{}", "x".repeat(256))).is_err());
        assert!(FilePath::new(&"/x".repeat(2049)).is_err());
        let [a, ab, abc] = ["/a", "/a/b", "/ab/c"].map(|text| FilePath::new(text).unwrap());
        assert_eq!(
            (ab.parent(), a.parent()),
            (Some(a.clone()), Some(FilePath::root()))
        );
        assert_eq!((FilePath::root().parent(), ab.name()), (None, "b"));
        assert!(ab.is_below(&a) && !abc.is_below(&a) && !a.is_below(&a));
        assert!(a.is_below(&FilePath::root()) && !FilePath::root().is_below(&FilePath::root()));
        assert_eq!(ab.moved(&a, &abc).unwrap().as_str(), "/ab/c/b");
        assert_eq!(FilePath::root().join("x").unwrap().as_str(), "/x");
    }

    #[test]
    fn slots_move_and_who_has_not_heard_of_that_does() {
        let names = Names {
            servers: 3,
            hash_bits: 48,
        };
        let (mut own, mut others) = (names.keepers(), names.keepers());
        assert_eq!(own.slots().len(), 255);
        let kept = |keepers: &Keepers, server| {
            let slots = keepers.slots().iter();
            slots.filter(|slot| slot.server == server).count()
        };
        assert_eq!([0, 1, 2].map(|server| kept(&own, server)), [85; 3]);
        own.move_to(5, 7);
        others.move_to(6, 8);
        assert!(own.hear(&others) && !own.hear(&others) && others.hear(&own));
        assert_eq!((own.server(5), own.server(6)), (7, 8));
        assert_eq!(own, others);
    }

    /// N1: 150,000 names are dealt out evenly, and no bit of a hash is set too often.
    #[test]
    fn hashes_are_uniform() {
        let names = Names {
            servers: 16,
            hash_bits: HASH_BITS,
        };
        let (count, keepers) = (150_000, names.keepers());
        let (mut by_server, mut bits) = (vec![0u32; names.servers], [0u32; 48]);
        let mut hashes = std::collections::HashSet::new();
        for nth in 0..count {
            let path = FilePath::new(&format!("/runs/{}/step-{nth:06}", nth % 7)).unwrap();
            let hash = names.hash(&path);
            hashes.insert(hash);
            by_server[keepers.server(names.slot_of(&path))] += 1;
            for (bit, set) in bits.iter_mut().enumerate() {
                *set += u32::from(hash >> bit & 1 == 1);
            }
        }
        assert_eq!(hashes.len(), count);
        let expected = count as f64 / names.servers as f64;
        let squares = by_server
            .iter()
            .map(|&found| (f64::from(found) - expected).powi(2));
        let chi_squared = squares.sum::<f64>() / expected;
        assert!(
            chi_squared < 45.0,
            "chi squared of 15 degrees: {chi_squared}, {by_server:?}"
        );
        for set in bits {
            let deviation = (f64::from(set) - count as f64 / 2.0).abs();
            assert!(
                deviation < 5.0 * (count as f64 / 4.0).sqrt(),
                "{set} of {count}"
            );
        }
    }
}
