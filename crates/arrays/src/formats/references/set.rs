//! A set of references: its keys, and the chunks of its arrays.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use penstock_bucket::{Place, is_url};
use penstock_engine::{Error, Kind, Result};
use serde_json::Value;

use super::reference::{FileNames, Reference};
use super::source::{self, Sources};
use super::{json, parquet};
use crate::fs::files::{damaged, lock, read_if_there, read_json};
use crate::json as people;

/// The file of the metadata of all nodes, and of the tables.
const METADATA: &str = ".zmetadata";
/// The bytes at the beginning of a file that tell whether it may hold references.
const START_BYTES: usize = 64 << 10;
/// The words of which one is at the beginning of references in JSON.
const WORDS: [&str; 5] = ["\"refs\"", ".zgroup", ".zarray", ".zattrs", "zarr.json"];

/// The references of some chunks, by the numbers of the chunks in their grid, and the files that
/// they lead to.
pub(crate) type ChunkReferences = (Vec<PathBuf>, Vec<(u64, Reference)>);

/// A set of references.
#[derive(Debug)]
pub(crate) struct References {
    /// The JSON file, or the directory.
    home: PathBuf,
    files: FileNames,
    keys: BTreeMap<String, Reference>,
    /// The number of chunks in a Parquet table, if there are tables.
    record_size: Option<u64>,
    /// The references of the chunks of arrays that were opened: many calls may read one array.
    opened: Mutex<BTreeMap<String, Arc<ChunkReferences>>>,
}

impl References {
    fn new(home: &Path, keys: BTreeMap<String, Reference>, files: FileNames) -> Self {
        Self {
            home: home.to_path_buf(),
            files,
            keys,
            record_size: None,
            opened: Mutex::default(),
        }
    }

    /// The reference set in which a path leads, and the path of a node there, without slashes at
    /// its ends; `None` if the path leads to no such set.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when the set cannot be understood; [`Kind::Unsupported`] for parts of the
    /// format that Penstock does not read.
    pub(crate) fn find(path: &Path) -> Result<Option<(Arc<Self>, String)>> {
        let Some(text) = path.to_str() else {
            return Ok(None);
        };
        if !is_url(path) {
            let mut splits = text
                .match_indices(":/")
                .map(|(at, _)| (&text[..at], &text[at + 2..]));
            if let Some((file, inner)) = splits.find(|(file, _)| Path::new(file).exists()) {
                let set = Self::at(Path::new(file))?;
                return Ok(set.map(|set| (set, inner.trim_matches('/').to_string())));
            }
        }
        for home in path.ancestors() {
            if is_url(path) && !has_key(home) {
                break;
            }
            if let Some(set) = Self::at(home)? {
                let inner = path.strip_prefix(home).unwrap_or(Path::new(""));
                let inner = inner.to_string_lossy().trim_matches('/').to_string();
                return Ok(Some((set, inner)));
            }
        }
        Ok(None)
    }

    /// The set at a path; `None` if none is there. A process keeps the set that it has read last:
    /// each array of a set is opened by a call of its own.
    fn at(home: &Path) -> Result<Option<Arc<Self>>> {
        static LAST: Mutex<Option<(PathBuf, String, Arc<References>)>> = Mutex::new(None);
        let Some((stamp, is_directory)) = stamp_of(home)? else {
            return Ok(None);
        };
        if let Some((path, of_last, set)) = &*lock(&LAST)
            && (path, of_last) == (&home.to_path_buf(), &stamp)
        {
            return Ok(Some(set.clone()));
        }
        let read = match is_directory {
            true => Self::read_directory(home)?,
            false => Self::read_file(home)?,
        };
        let set = read.map(Arc::new);
        if let Some(set) = &set {
            *lock(&LAST) = Some((home.to_path_buf(), stamp, set.clone()));
        }
        Ok(set)
    }

    fn read_file(home: &Path) -> Result<Option<Self>> {
        if !may_have_references(&source::start_of(home, START_BYTES)?) {
            return Ok(None);
        }
        let Some(text) = read_if_there(home)? else {
            return Ok(None);
        };
        let Some((keys, files)) = json::parse(&text, home)? else {
            return Ok(None);
        };
        let mut set = Self::new(home, keys, files);
        if let Some(consolidated) = set.json(METADATA)? {
            set.add_metadata(&consolidated);
        }
        Ok(Some(set))
    }

    fn read_directory(home: &Path) -> Result<Option<Self>> {
        let file = home.join(METADATA);
        let Some(json) = read_json(&file)? else {
            return Ok(None);
        };
        let Some(record_size) = json.get("record_size") else {
            return Ok(None); // consolidated metadata of Zarr
        };
        let number = record_size.as_u64().filter(|&number| number > 0);
        let number = number.ok_or_else(|| {
            damaged(
                &file,
                format!("its \"record_size\" is {record_size}, and no number of chunks"),
            )
        })?;
        let mut set = Self {
            record_size: Some(number),
            ..Self::new(home, BTreeMap::new(), FileNames::default())
        };
        set.add_metadata(&json);
        Ok(Some(set))
    }

    /// Adds the metadata of nodes that have none of their own.
    fn add_metadata(&mut self, consolidated: &Value) {
        let nodes = consolidated["metadata"].as_object().into_iter().flatten();
        for (key, json) in nodes {
            let bytes = || Reference::Inline(people::line(json).into_bytes());
            self.keys.entry(key.clone()).or_insert_with(bytes);
        }
    }

    /// The path of the set.
    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// The JSON object under a key; `None` if there is none.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when it is no JSON object; the errors of a file that it lies in.
    pub(crate) fn json(&self, key: &str) -> Result<Option<Value>> {
        let Some(reference) = self.keys.get(key) else {
            return Ok(None);
        };
        let place = self.home.join(key);
        let mut files = Vec::new();
        let mut reference = reference.clone();
        if let Some(number) = reference.file() {
            files.push(self.path_of(number)?);
            reference = reference.in_file(0);
        }
        let sources = Sources::new(files);
        let bytes = sources.whole(&reference).map_err(|e| e.at(&place))?;
        let json = people::parse(&bytes);
        let json = json.map_err(|e| damaged(&place, format!("it is not JSON: {e}")))?;
        match json.is_object() {
            true => Ok(Some(json)),
            false => Err(damaged(&place, "it is not a JSON object")),
        }
    }

    /// The names right below a node under which there are keys, in order. Hidden ones are passed
    /// over.
    pub(crate) fn names_below(&self, node: &str) -> Vec<String> {
        let prefix = prefix_of(node);
        let mut names: Vec<String> = Vec::new();
        let mut from = prefix.clone();
        // Each step looks up the first key behind the node that the last one has found.
        while let Some((key, _)) = self.keys.range(from.clone()..).next() {
            let Some(rest) = key.strip_prefix(&prefix) else {
                break;
            };
            let Some((name, _)) = rest.split_once('/') else {
                from = format!("{key}\0");
                continue;
            };
            if !name.is_empty() && !name.starts_with('.') {
                names.push(name.to_string());
            }
            from = format!("{prefix}{name}0"); // '0' comes right behind '/'
        }
        names.sort();
        names
    }

    /// The references of an array's chunks: `number_of` gives the number of the chunk of a key,
    /// below the array's own, in a grid of `objects` chunks.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when a table cannot be understood; [`Kind::Unsupported`] for URLs that
    /// Penstock does not read.
    pub(crate) fn chunks(
        &self,
        array: &str,
        objects: u64,
        number_of: impl Fn(&str) -> Option<u64>,
    ) -> Result<Arc<ChunkReferences>> {
        if let Some(known) = lock(&self.opened).get(array) {
            return Ok(known.clone());
        }
        let found = Arc::new(self.find_chunks(array, objects, number_of)?);
        lock(&self.opened).insert(array.to_string(), found.clone());
        Ok(found)
    }

    fn find_chunks(
        &self,
        array: &str,
        objects: u64,
        number_of: impl Fn(&str) -> Option<u64>,
    ) -> Result<ChunkReferences> {
        let prefix = prefix_of(array);
        let mut chunks = Vec::new();
        let mut files = FileNames::default();
        let below = self.keys.range(prefix.clone()..);
        for (key, reference) in below.take_while(|(key, _)| key.starts_with(&prefix)) {
            let Some(object) = number_of(&key[prefix.len()..]) else {
                continue;
            };
            let mut reference = reference.clone();
            if let Some(number) = reference.file() {
                let name = self.files.names[number as usize].clone();
                let number = files.number(name).map_err(|e| damaged(&self.home, e))?;
                reference = reference.in_file(number);
            }
            chunks.push((object, reference));
        }
        if let Some(record_size) = self.record_size {
            let home = self.home.join(array);
            parquet::read(&home, (record_size, objects), &mut files, &mut chunks)?;
        }
        // The table of a chunk is overruled by a key of its own, which came first.
        chunks.sort_by_key(|(object, _)| *object);
        chunks.dedup_by_key(|(object, _)| *object);
        let names = files.names.iter();
        let paths = names.map(|name| source::path_of(name, &self.home));
        Ok((paths.collect::<Result<_>>()?, chunks))
    }

    fn path_of(&self, number: u32) -> Result<PathBuf> {
        source::path_of(&self.files.names[number as usize], &self.home)
    }
}

/// The beginning of the keys below a node.
fn prefix_of(node: &str) -> String {
    match node {
        "" => String::new(),
        node => format!("{node}/"),
    }
}

/// Whether a URL names more than a bucket.
fn has_key(url: &Path) -> bool {
    let rest = url.to_str().and_then(|text| text.split_once("://"));
    rest.is_some_and(|(_, rest)| rest.trim_end_matches('/').contains('/'))
}

/// Whether a file with these first bytes may hold references.
fn may_have_references(start: &[u8]) -> bool {
    let start = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start);
    if !start.trim_ascii_start().starts_with(b"{") {
        return false;
    }
    let text = String::from_utf8_lossy(start);
    WORDS.iter().any(|word| text.contains(word))
}

/// A text that changes when what is at a path changes, and whether that is a directory; `None` if
/// nothing is there that may be a set.
fn stamp_of(home: &Path) -> Result<Option<(String, bool)>> {
    if let Some(place) = Place::of(home)? {
        if let Some(about) = place.about()? {
            return Ok(Some((format!("{about:?}"), false)));
        }
        let about = place.below(METADATA)?.about()?;
        return Ok(about.map(|about| (format!("{about:?}"), true)));
    }
    let stamp = |found: &Metadata| {
        let (written, number) = (found.modified().ok(), found.ino());
        format!("{written:?} {number} {}", found.len())
    };
    let Ok(found) = std::fs::metadata(home) else {
        return Ok(None);
    };
    if found.is_file() {
        return Ok(Some((stamp(&found), false)));
    }
    let metadata = std::fs::metadata(home.join(METADATA)).ok();
    Ok(metadata.map(|found| (stamp(&found), true)))
}

/// The text that changes when the references at `home` change.
///
/// # Errors
/// [`Kind::Missing`] when they are gone; the error of the service that has them.
pub(crate) fn stamp(home: &Path) -> Result<String> {
    let gone = || Error::new(Kind::Missing, "looking at", "the references are gone").at(home);
    let (stamp, _) = stamp_of(home)?.ok_or_else(gone)?;
    Ok(format!("{} {stamp}", home.display()))
}

/// The error for writes through references.
pub(crate) fn only_read(path: &Path) -> Error {
    let cause = "it is an array of references to files of others, which are only read: copy the \
        array first";
    Error::new(Kind::Unsupported, "writing", cause).at(path)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn set(text: &str) -> Result<Option<References>> {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("refs");
        fs::write(&path, text).unwrap();
        References::read_file(&path)
    }

    fn number_of(key: &str) -> Option<u64> {
        key.parse().ok()
    }

    #[test]
    fn forms_of_one_set_are_one_set() {
        let refs = r#"{".zgroup": {"zarr_format": 2}, "u/.zarray": "{}", "u/0": "ab", "u/1": "base64:/w==",
        "u/2": ["x"], "u/4": ["y", 3, 5], "u/x": "no chunk", "v/0": ["z"]}"#;
        let wrapped = format!(r#"{{"version": 1, "note": 3, "refs": {refs}}}"#);
        let last = format!(r#"{{"refs": {refs}, "templates": {{}}, "version": 1}}"#);
        for text in [
            refs,
            wrapped.as_str(),
            last.as_str(),
            &format!("\u{feff} {refs}"),
        ] {
            let set = set(text).unwrap().unwrap();
            let (files, chunks) = &*set.chunks("u", 9, number_of).unwrap();
            let above = set.home().parent().unwrap();
            assert_eq!(*files, [above.join("x"), above.join("y")]);
            let part = Reference::Part {
                file: 1,
                at: 3,
                bytes: 5,
            };
            let expected = [
                (0, Reference::Inline(b"ab".to_vec())),
                (1, Reference::Inline(vec![255])),
                (2, Reference::File(0)),
                (4, part),
            ];
            assert_eq!(*chunks, expected);
            assert_eq!(
                set.json(".zgroup").unwrap(),
                Some(serde_json::json!({"zarr_format": 2}))
            );
            assert_eq!(set.names_below(""), ["u", "v"]);
        }
    }

    #[test]
    fn nodes_below_are_found_among_many_keys() {
        let keys = [
            "a/.zgroup",
            "a/b/.zarray",
            "a/b/0.0",
            "a/b/0.1",
            "a/b.c/.zarray",
            "a/b/c/.zgroup",
        ];
        let more = [
            "a/.hidden/.zgroup",
            "a//.zgroup",
            "ab/.zarray",
            ".zgroup",
            "b/c/d/.zarray",
        ];
        let refs: Map = keys
            .iter()
            .chain(&more)
            .map(|key| (key.to_string(), "{}".into()))
            .collect();
        let set = set(&Value::Object(refs).to_string()).unwrap().unwrap();
        assert_eq!(set.names_below(""), ["a", "ab", "b"]);
        assert_eq!(set.names_below("a"), ["b", "b.c"]);
        assert_eq!(set.names_below("a/b"), ["c"]);
        assert_eq!(set.names_below("none"), Vec::<String>::new());
    }

    type Map = serde_json::Map<String, Value>;

    #[test]
    fn metadata_of_all_nodes_are_taken_where_a_node_has_none() {
        let all = r#"{"metadata": {"u/.zarray": {"a": 1}, ".zgroup": {"b": 2}}}"#;
        let refs = serde_json::json!({ ".zmetadata": all, "u/.zarray": "{\"a\": 3}" });
        let set = set(&refs.to_string()).unwrap().unwrap();
        let json = |key: &str| set.json(key).unwrap().unwrap();
        assert_eq!(
            (json("u/.zarray")["a"].clone(), json(".zgroup")["b"].clone()),
            (3.into(), 2.into())
        );
    }

    #[test]
    fn files_are_named_in_many_ways() {
        let home = Path::new("/data/refs.json");
        for (name, path) in [
            ("x.h5", "/data/x.h5"),
            ("../x.h5", "/data/../x.h5"),
            ("/other/x.h5", "/other/x.h5"),
            ("file:///other/x y.h5", "/other/x y.h5"),
            ("local:///x", "/x"),
            ("s3://bucket/x", "s3://bucket/x"),
            ("https://example.org/x", "https://example.org/x"),
        ] {
            assert_eq!(
                source::path_of(name, home).unwrap(),
                Path::new(path),
                "{name}"
            );
        }
        for name in ["ftp://a/x", "file://x", "simplecache::s3://b/x"] {
            let error = source::path_of(name, home).unwrap_err();
            assert_eq!(error.kind, Kind::Unsupported);
            assert!(error.cause.contains(name));
        }
        let home = Path::new("s3://bucket/refs.json");
        assert_eq!(
            source::path_of("x", home).unwrap(),
            Path::new("s3://bucket/x")
        );
        assert!(source::path_of("/etc/x", home).is_err());
        assert!(source::path_of("file:///etc/x", home).is_err());
    }
}
