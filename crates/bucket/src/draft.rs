//! Repositories, which keep a history of states, and drafts of their next states.
//!
//! A *repository* (Icechunk's) shows a state whole, by a commit, or not at all. So what is put
//! needs no conditions, no lease and no other keys: it goes to a *draft*, which nobody else sees
//! before it is committed. Each server puts objects into a *fork* of the draft, a copy of its own;
//! the changes of all forks are merged into the draft before the commit.
//!
//! ```text
//! icechunk://run-main-1f0c/u      a repository: its last state, for readers
//! icechunk://run-main-1f0c+1/u    draft 1, which one call writes
//!
//! director     begin   put metadata   [draft, as bytes] ------+      merge   commit
//! server 0                               put chunks           |      ^
//! server 1                               fork   put chunks  changes--+
//! ```
//!
//! The software that knows the repository is not linked: a program lends it, as [`Repositories`].

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use crate::process::own_process;
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use object_store::path::Path as Key;
use object_store::{
    Attributes, CopyOptions, Error as Failure, GetOptions, GetRange, GetResult, GetResultPayload,
    ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions,
    PutPayload, PutResult, Result as Answer,
};
use penstock_engine::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use crate::failure::told;
use crate::url;

/// A state of a repository: one that is committed, a draft, or a fork of a draft. Keys have no
/// slashes at their ends.
///
/// # Errors
/// All methods give the error of the repository.
pub trait State: fmt::Debug + Send + Sync {
    /// The bytes of an object, or of the range of it that is there; `None` if there is none.
    fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Option<Bytes>>;

    /// The length of an object; `None` if there is none.
    fn length(&self, key: &str) -> Result<Option<u64>>;

    /// Puts an object.
    fn put(&self, key: &str, data: Bytes) -> Result<()>;

    /// Removes an object, if there is one.
    fn remove(&self, key: &str) -> Result<()>;

    /// Removes all objects below a key.
    fn remove_below(&self, key: &str) -> Result<()>;

    /// The keys of all objects below a key.
    fn keys_below(&self, key: &str) -> Result<Vec<String>>;

    /// The names right below a key below which there are objects.
    fn directories(&self, key: &str) -> Result<Vec<String>>;

    /// A text that another state has not.
    fn id(&self) -> String;

    /// Whether other processes can have a copy of the state.
    fn is_shared(&self) -> bool;

    /// The state, or the changes of a fork: for [`Repositories::fork`] in another process, and for
    /// [`Repositories::merge`].
    fn bytes(&self) -> Result<Vec<u8>>;
}

/// The repositories that a program lends to this process. Each has a name: what follows
/// `icechunk://` in its URL.
///
/// # Errors
/// [`Kind::Missing`] for a name that no repository and no draft has; the error of the repository.
pub trait Repositories: Send + Sync {
    /// The state of a name: the last one that was committed, or the draft.
    fn state(&self, name: &str) -> Result<Arc<dyn State>>;

    /// The copy of a state that another process has given as bytes.
    fn fork(&self, bytes: &[u8]) -> Result<Arc<dyn State>>;

    /// Begins a draft of the next state of a repository, or one *aside*, which is never committed;
    /// gives the draft's name.
    fn begin(&self, name: &str, is_aside: bool) -> Result<String>;

    /// Merges the changes of forks into a draft.
    fn merge(&self, draft: &str, changes: &[Vec<u8>]) -> Result<()>;

    /// Commits a draft, and gives true; or keeps it for more calls. `what` says in words what a
    /// call has changed.
    fn commit(&self, draft: &str, what: &str) -> Result<bool>;

    /// Gives up a draft.
    fn discard(&self, draft: &str);
}

static LENT: OnceLock<Box<dyn Repositories>> = OnceLock::new();

/// Lends repositories to this process. Only the first of a process count.
pub fn lend(repositories: Box<dyn Repositories>) {
    let _ = LENT.set(repositories);
}

fn lent() -> Result<&'static dyn Repositories> {
    let none = || {
        let cause = "this program has no Icechunk repositories: they are opened from Python";
        Error::new(Kind::Unsupported, "opening a repository", cause)
    };
    LENT.get().map(|lent| &**lent).ok_or_else(none)
}

/// The state of a name.
pub(crate) fn state(name: &str) -> Result<Arc<dyn State>> {
    lent()?.state(name)
}

/// What another process needs to open a state of a repository. A process that has the state uses
/// its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fork {
    process: u64,
    bytes: Vec<u8>,
}

impl Fork {
    pub(crate) fn of(state: &dyn State) -> Result<Self> {
        Ok(Self {
            process: own_process(),
            bytes: state.bytes()?,
        })
    }

    /// Whether the state is of this process.
    pub(crate) fn is_own(&self) -> bool {
        self.process == own_process()
    }

    pub(crate) fn open(&self) -> Result<Arc<dyn State>> {
        lent()?.fork(&self.bytes)
    }
}

/// A draft that one call writes. Dropped without a commit, it is given up.
#[derive(Debug)]
pub struct Draft {
    name: String,
    is_over: bool,
}

impl Draft {
    /// Begins a draft of the next state of the repository in which `path` is a place, and gives
    /// the path of the same place in the draft; `None` for any other path.
    ///
    /// # Errors
    /// [`Kind::ReadOnly`] for a state that does not change; the error of the repository.
    pub fn begin(path: &Path) -> Result<Option<(Self, PathBuf)>> {
        let Some(place) = url::parse(path).filter(url::Url::is_in_repository) else {
            return Ok(None);
        };
        let begun = lent().and_then(|lent| lent.begin(place.name(), false));
        let name = begun.map_err(|e| e.at(path))?;
        let path = PathBuf::from(url::Url::repository(&name)).join(place.key);
        let is_over = false;
        Ok(Some((Self { name, is_over }, path)))
    }

    /// Begins a draft of the same repository that is never committed, for what goes when it is
    /// dropped. Gives the path of its root, too.
    ///
    /// # Errors
    /// The error of the repository.
    pub fn aside(&self) -> Result<(Self, PathBuf)> {
        let name = lent()?.begin(&self.name, true)?;
        let root = PathBuf::from(url::Url::repository(&name));
        let is_over = false;
        Ok((Self { name, is_over }, root))
    }

    /// The name, which no other draft of this process has.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Merges the changes of forks.
    ///
    /// # Errors
    /// The error of the repository.
    pub fn merge(&self, changes: &[Vec<u8>]) -> Result<()> {
        match changes {
            [] => Ok(()),
            changes => lent()?.merge(&self.name, changes),
        }
    }

    /// Commits the draft, and gives true; or leaves it for more calls that are committed together.
    /// `what` says in words what a call has changed.
    ///
    /// # Errors
    /// [`Kind::Busy`] when another program has committed meanwhile; the error of the repository.
    pub fn commit(mut self, what: &str) -> Result<bool> {
        self.is_over = true;
        lent()?.commit(&self.name, what)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let (false, Some(lent)) = (self.is_over, LENT.get()) {
            lent.discard(&self.name);
        }
    }
}

/// A state, as an object store.
#[derive(Debug)]
pub(crate) struct StateStore(pub(crate) Arc<dyn State>);

impl fmt::Display for StateStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a state of a repository")
    }
}

impl StateStore {
    fn missing(key: &Key) -> Failure {
        Failure::NotFound {
            path: key.to_string(),
            source: "there is no such object".into(),
        }
    }

    /// What the store says of an object. The time of the last put is not known.
    fn about(&self, location: &Key, size: u64) -> ObjectMeta {
        ObjectMeta {
            location: location.clone(),
            last_modified: SystemTime::UNIX_EPOCH.into(),
            size,
            e_tag: Some(self.0.id()),
            version: None,
        }
    }
}

#[async_trait]
impl ObjectStore for StateStore {
    /// Nobody else writes to a draft, so an object is the version that was read.
    async fn put_opts(
        &self,
        key: &Key,
        payload: PutPayload,
        options: PutOptions,
    ) -> Answer<PutResult> {
        if options.mode == PutMode::Create && self.0.length(key.as_ref()).map_err(told)?.is_some() {
            return Err(Failure::AlreadyExists {
                path: key.to_string(),
                source: "there is an object".into(),
            });
        }
        self.0.put(key.as_ref(), payload.into()).map_err(told)?;
        Ok(PutResult {
            e_tag: Some(self.0.id()),
            version: None,
            extensions: Default::default(),
        })
    }

    async fn put_multipart_opts(
        &self,
        _: &Key,
        _: PutMultipartOptions,
    ) -> Answer<Box<dyn MultipartUpload>> {
        Err(not_done("an upload in parts"))
    }

    async fn get_opts(&self, key: &Key, options: GetOptions) -> Answer<GetResult> {
        let missing = || Self::missing(key);
        let (bytes, range) = match (options.head, options.range) {
            (true, _) => {
                let length = self.0.length(key.as_ref()).map_err(told)?;
                (Bytes::new(), 0..length.ok_or_else(missing)?)
            }
            (false, None) => {
                let bytes = self.0.get(key.as_ref(), None).map_err(told)?;
                let bytes = bytes.ok_or_else(missing)?;
                let range = 0..bytes.len() as u64;
                (bytes, range)
            }
            (false, Some(GetRange::Bounded(range))) => {
                let bytes = self
                    .0
                    .get(key.as_ref(), Some(range.clone()))
                    .map_err(told)?;
                (bytes.ok_or_else(missing)?, range)
            }
            (false, Some(_)) => return Err(not_done("a read of an open range")),
        };
        Ok(GetResult {
            payload: GetResultPayload::Stream(stream::iter([Ok(bytes)]).boxed()),
            meta: self.about(key, range.end),
            range,
            attributes: Attributes::default(),
            extensions: Default::default(),
        })
    }

    fn delete_stream(
        &self,
        keys: BoxStream<'static, Answer<Key>>,
    ) -> BoxStream<'static, Answer<Key>> {
        let state = self.0.clone();
        let removed = move |key: Answer<Key>| {
            let key = key?;
            state.remove(key.as_ref()).map_err(told)?;
            Ok(key)
        };
        keys.map(removed).boxed()
    }

    /// The lengths are not asked for.
    fn list(&self, below: Option<&Key>) -> BoxStream<'static, Answer<ObjectMeta>> {
        let below = below.map_or("", Key::as_ref);
        match self.0.keys_below(below) {
            Err(error) => stream::iter([Err(told(error))]).boxed(),
            Ok(keys) => {
                let listed = |key: String| Ok(self.about(&Key::parse(key)?, 0));
                let listed: Vec<_> = keys.into_iter().map(listed).collect();
                stream::iter(listed).boxed()
            }
        }
    }

    async fn list_with_delimiter(&self, below: Option<&Key>) -> Answer<ListResult> {
        let below = below.map_or("", Key::as_ref);
        let names = self.0.directories(below).map_err(told)?.into_iter();
        let prefixes = names.map(|name| Key::parse(format!("{below}/{name}").trim_matches('/')));
        Ok(ListResult {
            common_prefixes: prefixes.collect::<std::result::Result<_, _>>()?,
            objects: Vec::new(),
            extensions: Default::default(),
        })
    }

    async fn copy_opts(&self, from: &Key, to: &Key, _: CopyOptions) -> Answer<()> {
        let bytes = self.0.get(from.as_ref(), None).map_err(told)?;
        let bytes = bytes.ok_or_else(|| Self::missing(from))?;
        self.0.put(to.as_ref(), bytes).map_err(told)
    }
}

fn not_done(what: &str) -> Failure {
    told(Error::new(Kind::Unsupported, "asking a repository", what))
}
