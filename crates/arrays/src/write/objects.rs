//! The place of an array in a bucket, to which the array comes by one put under a condition.
//!
//! An object is replaced whole or not at all, and nothing can be renamed. So a new array is not
//! written to another place: its chunks are put under *keys* that the former array has not, and the
//! metadata, which name the keys, come last. Zarr knows four ways to name a chunk:
//!
//! ```text
//! run.zarr/u/zarr.json    names the keys: at any moment one array is there, and all of it
//!            c/0/1        "default" keys with "/"
//!            c.0.1        "default" keys with "."
//!            0/1          "v2" keys with "/"
//!            0.1          "v2" keys with "."
//!            .penstock    the lease of the write that is under way
//! ```
//!
//! 1. The root leases the array: an object that only one writer can create. It says who writes, and
//!    is renewed as long as the writer lives. The lease of a writer that is dead is taken over.
//! 2. Chunks that a killed write has left under the new keys are removed.
//! 3. Servers put chunks.
//! 4. The metadata are put, if they are still those that were there at the beginning: this is the
//!    moment at which the array is there. A writer that has lost its lease stops before.
//! 5. The group's consolidated metadata follow; the former chunks and the lease are removed.
//!
//! A program that has opened the former array before does not find its chunks after step 5, as with
//! files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use penstock_bucket::{Place, Version};
use penstock_engine::{Error, Kind, Result};
use serde_json::{Map, Value, json};

use super::checks::{check_not_in_checkpoints, check_not_saved};
use super::lease::Lease;
use super::place::groups_above;
use crate::formats::zarr::{self, Node, consolidated};
use crate::fs::files::{self, damaged};
use crate::json;

/// The most tries to change the metadata of a group that others change, too.
const TRIES_MAX: u32 = 100;

/// A write of an array to a bucket, as its root has it.
pub(super) struct ObjectsPlace {
    group: PathBuf,
    name: String,
    array: Place,
    /// The metadata of the new array.
    metadata: Value,
    keys: Keys,
    /// The former array, if there is one.
    former: Option<Former>,
    lease: Lease,
    /// Whether the new array has the chunks of the former that no server has put.
    is_change: bool,
    /// Whether the new array is there: before, what was written goes when this is dropped.
    is_there: bool,
}

/// The array that is replaced.
pub(super) struct Former {
    version: Version,
    keys: Option<Keys>,
}

/// A way to name chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Keys {
    encoding: &'static str,
    separator: &'static str,
}

/// All ways to name chunks; the first is the usual one.
pub(super) const ALL_KEYS: [Keys; 4] = [
    Keys::new("default", "/"),
    Keys::new("default", "."),
    Keys::new("v2", "/"),
    Keys::new("v2", "."),
];

impl Keys {
    const fn new(encoding: &'static str, separator: &'static str) -> Self {
        Self {
            encoding,
            separator,
        }
    }

    /// The keys of a stored array; `None` for others than these.
    pub(super) fn of(metadata: &Value) -> Option<Self> {
        Self::in_words(&metadata["chunk_key_encoding"])
    }

    /// Keys in Zarr's words.
    pub(super) fn in_words(encoding: &Value) -> Option<Self> {
        let usual = if encoding["name"] == "v2" { "." } else { "/" };
        let separator = encoding["configuration"]["separator"].as_str();
        let separator = separator.unwrap_or(usual);
        let is_it = |keys: &&Self| encoding["name"] == keys.encoding && separator == keys.separator;
        ALL_KEYS.iter().find(is_it).copied()
    }

    /// Keys for a new array of `dims` dimensions, which share no chunk with any of `taken`. An
    /// array of fewer than two dimensions has fewer ways to name its chunks, and may share a killed
    /// writer's.
    pub(super) fn beside(taken: &[Self], dims: usize) -> Self {
        let is_free = |keys: &&Self| !taken.iter().any(|taken| taken.meets(**keys, dims));
        let mut free = ALL_KEYS.iter().filter(is_free);
        let first = taken.first().map(std::slice::from_ref).unwrap_or_default();
        let apart = |keys: &&Self| !first.iter().any(|taken| taken.meets(**keys, dims));
        let found = free.next().or_else(|| ALL_KEYS.iter().find(apart));
        found.copied().unwrap_or(ALL_KEYS[0])
    }

    /// Whether some chunk has the same key in both ways.
    fn meets(self, other: Self, dims: usize) -> bool {
        let is_one_number = dims == 0 || (dims == 1 && self.encoding == "v2");
        self.encoding == other.encoding && (is_one_number || self.separator == other.separator)
    }

    /// Whether a key is that of a chunk named in this way.
    pub(super) fn has(self, key: &str) -> bool {
        let numbers = match self.encoding {
            "default" if key == "c" => return true,
            "default" => key
                .strip_prefix('c')
                .and_then(|k| k.strip_prefix(self.separator)),
            _ => Some(key),
        };
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        numbers.is_some_and(|numbers| numbers.split(self.separator).all(is_number))
    }

    /// The numbers in the key of a chunk of an array of `dims` dimensions.
    pub(super) fn numbers(key: &str, dims: usize) -> Vec<String> {
        if dims == 0 {
            return Vec::new();
        }
        let digits = key.split(|c: char| !c.is_ascii_digit());
        digits
            .filter(|n| !n.is_empty())
            .map(str::to_string)
            .collect()
    }

    /// The key of a chunk of these numbers. An array of no dimensions has one chunk.
    pub(super) fn name(self, numbers: &[String]) -> String {
        let joined = numbers.join(self.separator);
        match (self.encoding, joined.as_str()) {
            ("default", "") => "c".to_string(),
            ("default", _) => format!("c{}{joined}", self.separator),
            (_, "") => "0".to_string(),
            _ => joined,
        }
    }

    /// Removes all chunks of an array that are named in this way.
    fn remove_from(self, array: &Place) -> Result<()> {
        array.remove_all(&array.keys_below(|key| self.has(key))?)
    }

    /// Copies the chunks of an array that are named in this way as they are, from `source` to the
    /// place of another array of `dims` dimensions, with new names.
    pub(super) fn copy_chunks(
        self,
        source: &Path,
        home: &Place,
        new: Self,
        dims: usize,
    ) -> Result<()> {
        let there = files::keys_below(source, &|key| self.has(key))?;
        let renamed = there.into_iter().map(|key| {
            let name = new.name(&Self::numbers(&key, dims));
            (key, name)
        });
        if let Some(from) = Place::of(source)? {
            return home.copy_all(&from, &renamed.collect::<Vec<_>>());
        }
        for (key, name) in renamed {
            if let Some(chunk) = files::read_if_there(&source.join(key))? {
                home.below(&name)?.write(chunk)?;
            }
        }
        Ok(())
    }

    pub(super) fn in_json(self) -> Value {
        let configuration = json!({ "separator": self.separator });
        json!({ "name": self.encoding, "configuration": configuration })
    }
}

impl ObjectsPlace {
    /// Leases the place of an array `name` in the group at `group`, a URL, for an array of these
    /// metadata, which get the keys of its chunks.
    ///
    /// # Errors
    /// [`Kind::Busy`] when somebody else writes the array; [`Kind::Schema`] when something else is
    /// there; [`Kind::ReadOnly`] for a web server; the error of the service.
    pub(super) fn new(group: &Path, name: &str, metadata: Value) -> Result<Self> {
        let array = Place::at(&group.join(name))?;
        array.check_writable()?;
        check_group(group)?;
        check_not_in_checkpoints(group)?;
        check_not_saved(group, name)?;
        let dims = dims_of(&metadata);
        let lease = Lease::take(&array)?;
        // What is there is read after the lease: nobody else replaces it now.
        let former = Former::read(&array)?;
        let of_former = former.as_ref().and_then(|former| former.keys);
        let of_dead = lease.former().and_then(Keys::of);
        let taken: Vec<Keys> = of_former.into_iter().chain(of_dead).collect();
        let keys = Keys::beside(&taken, dims);
        let mut metadata = metadata;
        metadata["chunk_key_encoding"] = keys.in_json();
        lease.note(&json!({ "chunk_key_encoding": keys.in_json() }))?;
        keys.remove_from(&array)?;
        Ok(Self {
            group: group.to_path_buf(),
            name: name.to_string(),
            array,
            metadata,
            keys,
            former,
            lease,
            is_change: false,
            is_there: false,
        })
    }

    /// Leases the place of the array at a URL, to change a part of the array.
    ///
    /// # Errors
    /// As [`ObjectsPlace::new`]; [`Kind::Unsupported`] for chunks of other names than these.
    pub(super) fn of_change(array: &Path, metadata: Value) -> Result<Self> {
        let group = array.parent().unwrap_or(array);
        let name = array.file_name().unwrap_or_default().to_string_lossy();
        let mut place = Self::new(group, &name, metadata)?;
        if place.base_keys().is_none() {
            let cause = "its chunks have names that Penstock does not write: copy the array first";
            return Err(Error::new(Kind::Unsupported, "writing", cause).at(array));
        }
        place.is_change = true;
        Ok(place)
    }

    /// The names of the chunks of the array that is replaced, in Zarr's words.
    pub(super) fn base_keys(&self) -> Option<Value> {
        Some(self.former.as_ref()?.keys?.in_json())
    }

    /// The URL of the array.
    pub(super) fn url(&self) -> &Path {
        self.array.url()
    }

    /// The metadata of the array.
    pub(super) fn metadata(&self) -> &Value {
        &self.metadata
    }

    /// Puts the array in its place, after all servers have put its chunks.
    ///
    /// # Errors
    /// [`Kind::Busy`] when the lease was lost, or another program has replaced the array; the error
    /// of the service. The former array is then as it was.
    pub(super) fn install(mut self) -> Result<()> {
        if self.is_change {
            self.copy_rest()?;
        }
        self.lease.check()?;
        let shown = self.withdraw()?;
        let file = self.array.below("zarr.json")?;
        let text = json::text(&self.metadata);
        let put = match &self.former {
            None => file.create(&text)?,
            Some(former) => file.replace(&text, &former.version)?,
        };
        if put.is_none() {
            let cause = "another program has written the array meanwhile";
            return Err(Error::new(Kind::Busy, "writing", cause).at(self.array.url()));
        }
        self.is_there = true;
        self.show(shown)?;
        // The array is there: old chunks that remain are no failure of the write.
        let is_old = |key: &str| !self.keys.has(key) && ALL_KEYS.iter().any(|keys| keys.has(key));
        let old = self.array.keys_below(is_old);
        let _ = old.and_then(|old| self.array.remove_all(&old));
        Ok(())
    }

    /// Copies the chunks of the former array that no server has put, within the service.
    fn copy_rest(&self) -> Result<()> {
        let Some(former) = self.former.as_ref().and_then(|former| former.keys) else {
            return Ok(());
        };
        let dims = dims_of(&self.metadata);
        let put = self.array.keys_below(|key| self.keys.has(key))?;
        let put: BTreeSet<String> = put.into_iter().collect();
        let there = self.array.keys_below(|key| former.has(key))?.into_iter();
        let renamed = there.map(|key| (self.keys.name(&Keys::numbers(&key, dims)), key));
        let rest = renamed.filter(|(new, _)| !put.contains(new));
        let rest: Vec<(String, String)> = rest.map(|(new, old)| (old, new)).collect();
        self.array.copy_all(&self.array, &rest)
    }

    /// Removes what was written.
    ///
    /// # Errors
    /// The error of the service. The next write to the same array tries again.
    pub(super) fn abort(mut self) -> Result<()> {
        self.is_there = true; // nothing is left to remove
        self.keys.remove_from(&self.array)
    }

    /// Takes the former array out of the consolidated metadata of the groups above, where they are
    /// to say something else: a group without consolidated metadata is always right. Gives the
    /// groups that had some.
    fn withdraw(&self) -> Result<Vec<(PathBuf, String)>> {
        let entry = consolidated::entry(&self.metadata);
        let mut shown = Vec::new();
        for (group, key) in groups_above(self.array.url())? {
            let mut is_shown = false;
            change_json(&group, |json| {
                let known = consolidated::of(&json)?;
                is_shown = true;
                let is_stale = known.get(&key).is_some_and(|known| *known != entry);
                is_stale.then(|| consolidated::without(json))
            })?;
            if is_shown {
                shown.push((group, key));
            }
        }
        Ok(shown)
    }

    /// Puts the new array into the consolidated metadata of `groups`, which had some, and makes the
    /// array's own group if it is missing.
    fn show(&self, groups: Vec<(PathBuf, String)>) -> Result<()> {
        let entry = consolidated::entry(&self.metadata);
        let own = Place::at(&self.group.join("zarr.json"))?;
        if !self.is_change && own.about()?.is_none() {
            let nodes = Map::from_iter([(self.name.clone(), entry.clone())]);
            let whole = consolidated::with(zarr::group_json(), nodes);
            if own.create(&json::text(&whole))?.is_some() {
                return self.show_group(&whole);
            }
        }
        for (group, key) in groups {
            let mut all = Map::new();
            consolidated::scan(&group, "", &|path| path == key, &mut all)?;
            change_json(&group, |json| {
                let nodes = consolidated::of(&json).cloned();
                let mut nodes = nodes.unwrap_or_else(|| all.clone());
                nodes.insert(key.clone(), entry.clone());
                Some(consolidated::with(json, nodes))
            })?;
        }
        Ok(())
    }

    /// Puts the array's own group, which is new, into the consolidated metadata of the groups above
    /// that have some.
    fn show_group(&self, whole: &Value) -> Result<()> {
        for (group, key) in groups_above(&self.group)? {
            let array = format!("{key}/{}", self.name);
            change_json(&group, |json| {
                let mut nodes = consolidated::of(&json)?.clone();
                nodes.insert(key.clone(), consolidated::entry(whole));
                nodes.insert(array.clone(), consolidated::entry(&self.metadata));
                Some(consolidated::with(json, nodes))
            })?;
        }
        Ok(())
    }
}

impl Drop for ObjectsPlace {
    fn drop(&mut self) {
        if !self.is_there {
            let _ = self.keys.remove_from(&self.array); // or the next write does it
        }
    }
}

impl Former {
    /// The array that is there.
    ///
    /// # Errors
    /// [`Kind::Schema`] when something else is there.
    pub(super) fn read(array: &Place) -> Result<Option<Self>> {
        let file = array.below("zarr.json")?;
        if let Some((text, version)) = file.read()? {
            let json: Value = json::parse(&text).unwrap_or_default();
            if json["node_type"] != "array" {
                let cause = "it is there, but not a Zarr array";
                return Err(Error::new(Kind::Schema, "writing", cause).at(array.url()));
            }
            let keys = Keys::of(&json);
            return Ok(Some(Self { version, keys }));
        }
        match Node::read(array.url())? {
            None => Ok(None),
            Some(_) => Err(of_second_format(array.url())),
        }
    }
}

/// The number of dimensions of an array.
pub(super) fn dims_of(metadata: &Value) -> usize {
    metadata["shape"].as_array().map_or(0, Vec::len)
}

/// Checks that an array may go into the group at a URL, which need not be there.
pub(super) fn check_group(group: &Path) -> Result<()> {
    let cause = match Node::read(group)? {
        Some(node) if node.is_second() => return Err(of_second_format(group)),
        Some(node) if node.kind() == zarr::Kind::Array => {
            "it is a Zarr array: give the group that holds it, or another path"
        }
        _ => return Ok(()),
    };
    Err(Error::new(Kind::Schema, "writing", cause).at(group))
}

pub(super) fn of_second_format(path: &Path) -> Error {
    let cause = "it is of Zarr format 2, to which Penstock does not write: give another path";
    Error::new(Kind::Schema, "writing", cause).at(path)
}

/// Changes the metadata of a group, which others may change at the same time: then it is tried
/// again. `change` gives `None` to leave them.
pub(super) fn change_json(
    group: &Path,
    mut change: impl FnMut(Value) -> Option<Value>,
) -> Result<()> {
    let file = Place::at(&group.join("zarr.json"))?;
    for _ in 0..TRIES_MAX {
        let Some((text, version)) = file.read()? else {
            return Ok(());
        };
        let json = json::parse(&text);
        let json = json.map_err(|e| damaged(file.url(), e))?;
        let Some(changed) = change(json) else {
            return Ok(());
        };
        if file.replace(&json::text(&changed), &version)?.is_some() {
            return Ok(());
        }
    }
    let cause = "other programs change the group's metadata all the time";
    Err(Error::new(Kind::Busy, "writing", cause).at(group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_new_array_share_no_chunk_with_the_former() {
        for dims in 0..4 {
            for former in ALL_KEYS {
                let keys = Keys::beside(&[former], dims);
                assert!(!keys.meets(former, dims), "{dims} {former:?}");
                for dead in ALL_KEYS {
                    let keys = Keys::beside(&[former, dead], dims);
                    assert!(!keys.meets(former, dims));
                    assert!(dims < 2 || !keys.meets(dead, dims));
                }
            }
        }
        assert_eq!(Keys::beside(&[], 2), ALL_KEYS[0]);
    }

    #[test]
    fn a_key_tells_how_it_was_named() {
        let ways = |key: &str| ALL_KEYS.map(|keys| keys.has(key));
        assert_eq!(ways("c/0/1"), [true, false, false, false]);
        assert_eq!(ways("c.0.1"), [false, true, false, false]);
        assert_eq!(ways("0/1"), [false, false, true, false]);
        assert_eq!(ways("0.1"), [false, false, false, true]);
        for other in ["zarr.json", ".penstock", "c/x", "u/zarr.json", "cx", ""] {
            assert_eq!(ways(other), [false; 4], "{other}");
        }
    }

    #[test]
    fn a_chunk_is_named_by_its_numbers() {
        for from in ALL_KEYS {
            for to in ALL_KEYS {
                for numbers in [vec![], vec!["7"], vec!["0", "12", "3"]] {
                    let numbers: Vec<String> = numbers.into_iter().map(String::from).collect();
                    let key = from.name(&numbers);
                    assert!(from.has(&key), "{key}");
                    assert_eq!(Keys::numbers(&key, numbers.len()), numbers);
                    assert!(to.has(&to.name(&numbers)));
                }
            }
        }
    }

    #[test]
    fn keys_are_known_again() {
        for keys in ALL_KEYS {
            let metadata = json!({ "chunk_key_encoding": keys.in_json() });
            assert_eq!(Keys::of(&metadata), Some(keys));
        }
        assert_eq!(
            Keys::of(&json!({ "chunk_key_encoding": { "name": "v2" } })),
            Some(ALL_KEYS[3])
        );
    }
}
