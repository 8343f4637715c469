//! A place in a bucket: one key, and all keys below it.

use std::future::ready;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use futures::future::try_join_all;
use futures::stream::{self, StreamExt, TryStreamExt};
use object_store::path::Path as Key;
use object_store::{
    Error as Failure, GetOptions, GetRange, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode,
    PutOptions, PutPayload, PutResult, Result as Answer, UpdateVersion,
};
use penstock_engine::{Error, Kind, Result};

use crate::draft::{Fork, State};
use crate::failure;
use crate::service::{self, Bucket};
use crate::url::{self, Scheme};

/// The most bytes of one request. Longer objects are put, and longer parts are read, by several
/// requests at once.
const REQUEST_BYTES_MAX: usize = 16 << 20;
/// The bytes of each request of an object that several requests move; S3 wants 5 MiB at least.
const PART_BYTES: usize = 8 << 20;
/// The most requests of one call that are under way at once.
const REQUESTS_MAX: usize = 8;
/// The tries of a request whose answer breaks off, and the time within which it is tried again.
const TRIES_MAX: u32 = 5;
const TRYING: Duration = Duration::from_secs(60);

/// A place in a bucket.
#[derive(Clone)]
pub struct Place {
    bucket: Arc<Bucket>,
    key: Key,
    url: PathBuf,
}

/// The version of an object: it changes with each put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version(UpdateVersion);

/// What a service says of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// The length.
    pub bytes: u64,
    /// The version.
    pub version: Version,
    /// The time of the last put, by the clock of the service.
    pub written: SystemTime,
}

impl Place {
    /// The place that a path names; `None` if the path is no URL of a bucket.
    ///
    /// # Errors
    /// [`Kind::Schema`] for a key that services do not take, and when the environment does not say
    /// how to reach the bucket.
    pub fn of(path: &Path) -> Result<Option<Self>> {
        let Some(url) = url::parse(path) else {
            return Ok(None);
        };
        let wrong = |e| Error::new(Kind::Schema, "reading a URL", e).at(path);
        let key = Key::parse(url.key).map_err(wrong)?;
        let bucket = service::bucket(&url).map_err(|e| e.at(path))?;
        let url = path.to_path_buf();
        Ok(Some(Self { bucket, key, url }))
    }

    /// The place that a URL of a bucket names.
    ///
    /// # Errors
    /// As [`Place::of`]; [`Kind::Schema`] for another path.
    pub fn at(url: &Path) -> Result<Self> {
        Self::of(url)?.ok_or_else(|| {
            let cause = "it is no URL of a bucket";
            Error::new(Kind::Schema, "reading a URL", cause).at(url)
        })
    }

    /// The URL of the place.
    pub fn url(&self) -> &Path {
        &self.url
    }

    /// The place of this name below.
    ///
    /// # Errors
    /// As [`Place::of`].
    pub fn below(&self, name: &str) -> Result<Self> {
        let url = self.url.join(name);
        let wrong = |e| Error::new(Kind::Schema, "reading a URL", e).at(&url);
        let whole = format!("{}/{name}", self.key);
        let key = Key::parse(whole.trim_start_matches('/')).map_err(wrong)?;
        let bucket = self.bucket.clone();
        Ok(Self { bucket, key, url })
    }

    /// The place of a URL in a state of a repository that another process, or this one, has.
    ///
    /// # Errors
    /// As [`Place::at`]; [`Kind::Unsupported`] in a program that has no such repositories.
    pub fn in_fork(url: &Path, fork: &Fork) -> Result<Self> {
        if fork.is_own() {
            return Self::at(url);
        }
        let parts = url::parse(url).map_or("", |url| url.key);
        let wrong = |e| Error::new(Kind::Schema, "reading a URL", e).at(url);
        let key = Key::parse(parts).map_err(wrong)?;
        let state = fork.open().map_err(|e| e.at(url))?;
        let bucket = Bucket::of_state(state, true)?;
        let url = url.to_path_buf();
        Ok(Self { bucket, key, url })
    }

    /// What other processes need to open the same state; `None` for a place in a bucket.
    ///
    /// # Errors
    /// The error of the repository.
    pub fn fork(&self) -> Result<Option<Fork>> {
        let fork = self.bucket.state.as_deref().map(Fork::of).transpose();
        fork.map_err(|e| e.at(&self.url))
    }

    /// The changes of the fork of another process's state that this place is in; none for any other
    /// place.
    ///
    /// # Errors
    /// The error of the repository.
    pub fn changes(&self) -> Result<Vec<u8>> {
        let fork = self.bucket.state.as_deref().filter(|_| self.bucket.is_fork);
        let changes = fork.map(State::bytes).transpose();
        Ok(changes.map_err(|e| e.at(&self.url))?.unwrap_or_default())
    }

    /// Whether the place is in a repository: then all that is put there is seen at once, by a
    /// commit.
    pub fn is_in_repository(&self) -> bool {
        self.bucket.state.is_some()
    }

    /// Whether other processes reach the bucket, too.
    pub fn is_shared(&self) -> bool {
        let is_shared = self.bucket.state.as_deref().map(State::is_shared);
        is_shared.unwrap_or(self.bucket.scheme != Scheme::Memory)
    }

    /// Refuses places that are only read: those of a web server, and of a committed state.
    ///
    /// # Errors
    /// [`Kind::ReadOnly`]; [`Kind::Unsupported`] for a repository without a draft.
    pub fn check_writable(&self) -> Result<()> {
        match self.bucket.scheme {
            Scheme::Web => {
                let cause = "a web server is only read: give the URL of a bucket";
                Err(Error::new(Kind::ReadOnly, "writing", cause).at(&self.url))
            }
            Scheme::Repository if url::committed(&self.url) == self.url => {
                let cause = "a repository is written by Session.write, timestep and checkpoint, \
                    and by copy";
                Err(Error::new(Kind::Unsupported, "writing", cause).at(&self.url))
            }
            _ => Ok(()),
        }
    }

    /// Reads the object; `None` if there is none.
    ///
    /// # Errors
    /// The error of the service.
    pub fn read(&self) -> Result<Option<(Bytes, Version)>> {
        let read = self.insist(async || {
            let found = self.store().get(&self.key).await?;
            let version = Version::of(&found.meta);
            Ok((found.bytes().await?, version))
        });
        self.if_there(read, "reading")
    }

    /// What the service says of the object; `None` if there is none.
    ///
    /// # Errors
    /// The error of the service.
    pub fn about(&self) -> Result<Option<About>> {
        let meta = self.insist(async || self.store().head(&self.key).await);
        let about = meta.map(|meta| About {
            bytes: meta.size,
            version: Version::of(&meta),
            written: meta.last_modified.into(),
        });
        self.if_there(about, "looking at")
    }

    /// Fills `data` with the object's bytes from `offset` on. Gives whether the object is there.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when the object ends before that; else the error of the service.
    pub fn read_part(&self, data: &mut [u8], offset: u64) -> Result<bool> {
        let size = match data.len() > REQUEST_BYTES_MAX {
            true => PART_BYTES,
            false => data.len().max(1),
        };
        let end = offset.saturating_add(data.len() as u64);
        let filled = self.insist(async || {
            let parts = data.chunks_mut(size).zip(0..);
            let parts = parts.map(|(part, number)| {
                let start = offset + number * size as u64;
                self.fill(part, start..start + part.len() as u64)
            });
            let all = stream::iter(parts).buffer_unordered(REQUESTS_MAX);
            all.try_for_each(|()| ready(Ok(()))).await
        });
        let filled = self.if_there(filled, "reading");
        let filled = filled.map_err(|e| e.in_bytes(offset..end))?;
        Ok(filled.is_some())
    }

    async fn fill(&self, data: &mut [u8], range: Range<u64>) -> Answer<()> {
        if data.is_empty() {
            return Ok(());
        }
        let options = GetOptions {
            range: Some(GetRange::Bounded(range.clone())),
            ..GetOptions::default()
        };
        let found = self.store().get_opts(&self.key, options).await?;
        let mut pieces = found.into_stream();
        let mut filled = 0;
        while let Some(piece) = pieces.try_next().await? {
            let Some(room) = data.get_mut(filled..filled + piece.len()) else {
                return Err(failure::wrong_length(range, filled + piece.len()));
            };
            room.copy_from_slice(&piece);
            filled += piece.len();
        }
        match filled == data.len() {
            true => Ok(()),
            false => Err(failure::wrong_length(range, filled)),
        }
    }

    /// Puts an object here, whatever was here before.
    ///
    /// # Errors
    /// The error of the service. The object may be the former or the new one then.
    pub fn write(&self, data: impl Into<Bytes>) -> Result<()> {
        let data = data.into();
        let put = self.insist(async || match self.is_in_parts(&data) {
            true => self.write_parts(data.clone()).await,
            false => {
                let put = self.store().put(&self.key, data.clone().into());
                put.await.map(drop)
            }
        });
        put.map_err(|e| self.failed(&e, "writing"))
    }

    /// Whether an object is put by several requests.
    fn is_in_parts(&self, data: &[u8]) -> bool {
        data.len() > REQUEST_BYTES_MAX && !self.is_in_repository()
    }

    async fn write_parts(&self, data: Bytes) -> Answer<()> {
        let mut upload = self.store().put_multipart(&self.key).await?;
        let moved = Self::put_parts(&mut upload, data).await;
        if moved.is_err() {
            let _ = upload.abort().await; // the first failure is the one to tell
        }
        moved
    }

    async fn put_parts(upload: &mut Box<dyn MultipartUpload>, data: Bytes) -> Answer<()> {
        let starts = (0..data.len()).step_by(PART_BYTES);
        let parts = starts.map(|start| data.slice(start..data.len().min(start + PART_BYTES)));
        let puts: Vec<_> = parts.map(|part| upload.put_part(part.into())).collect();
        let mut puts = puts.into_iter();
        loop {
            let some: Vec<_> = puts.by_ref().take(REQUESTS_MAX).collect();
            if some.is_empty() {
                return upload.complete().await.map(drop);
            }
            try_join_all(some).await?;
        }
    }

    /// Puts an object here if the object that is there still has this version, or if there is still
    /// none. Gives whether it was put. The condition of an object that goes by several requests is
    /// looked at before, since services take none with these.
    ///
    /// # Errors
    /// As [`Place::create`].
    pub fn write_over(&self, data: Vec<u8>, version: Option<&Version>) -> Result<bool> {
        if data.len() <= REQUEST_BYTES_MAX {
            let put = match version {
                None => self.create(&data)?,
                Some(version) => self.replace(&data, version)?,
            };
            return Ok(put.is_some());
        }
        let there = self.about()?.map(|about| about.version);
        // Services need not tell the number of a version with every answer.
        let tag = |version: &Version| version.0.e_tag.clone();
        let is_met = there.as_ref().map(tag) == version.map(tag);
        if is_met {
            self.write(data)?;
        }
        Ok(is_met)
    }

    /// Puts an object here if there is none. Gives the version, or `None` if there is an object.
    ///
    /// # Errors
    /// The error of the service, also of one that has no puts under conditions.
    pub fn create(&self, data: &[u8]) -> Result<Option<Version>> {
        self.put_if(data, PutMode::Create)
    }

    /// Checks, once for each bucket, that the service keeps to conditions: the object here, which
    /// is there, cannot be created again.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] when it can; else as [`Place::create`].
    pub fn check_conditions(&self) -> Result<()> {
        let known = &self.bucket.keeps_conditions;
        if known.load(Ordering::Relaxed) {
            return Ok(());
        }
        if self
            .create(b"a put that the service must refuse")?
            .is_some()
        {
            let cause = "the service does not keep to conditions of puts (If-None-Match), without \
                which two writers are not kept apart: write to another service";
            return Err(Error::new(Kind::Unsupported, "writing", cause).at(&self.url));
        }
        known.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Replaces the object that has this version. Gives the new version, or `None` if the object is
    /// another one by now.
    ///
    /// # Errors
    /// As [`Place::create`].
    pub fn replace(&self, data: &[u8], version: &Version) -> Result<Option<Version>> {
        self.put_if(data, PutMode::Update(version.0.clone()))
    }

    /// A condition that is not met may be the work of this very put: a connection may break after
    /// the service has taken the object, and the request is then repeated. So the object that is
    /// there decides.
    fn put_if(&self, data: &[u8], mode: PutMode) -> Result<Option<Version>> {
        let payload = PutPayload::from(data.to_vec());
        let put = self.insist(async || {
            let options = PutOptions::from(mode.clone());
            self.store()
                .put_opts(&self.key, payload.clone(), options)
                .await
        });
        match put {
            Ok(PutResult { e_tag, version, .. }) => {
                Ok(Some(Version(UpdateVersion { e_tag, version })))
            }
            Err(failure) if failure::is_condition(&failure) || failure::is_missing(&failure) => {
                let found = self.read()?;
                let is_own = |(found, _): &(Bytes, Version)| found == data;
                Ok(found.filter(is_own).map(|(_, version)| version))
            }
            Err(failure) => Err(self.failed(&failure, "writing")),
        }
    }

    /// Removes the object, if there is one.
    ///
    /// # Errors
    /// The error of the service.
    pub fn remove(&self) -> Result<()> {
        let removed = self.insist(async || self.store().delete(&self.key).await);
        self.if_there(removed, "removing").map(drop)
    }

    /// Removes the object, if there is one, and all objects below.
    ///
    /// # Errors
    /// The error of the service.
    pub fn remove_tree(&self) -> Result<()> {
        self.remove()?;
        match &self.bucket.state {
            None => self.remove_all(&self.keys_below(|_| true)?),
            Some(state) => {
                let removed = state.remove_below(self.key.as_ref());
                removed.map_err(|e| e.at(&self.url))
            }
        }
    }

    /// The keys of all objects below that `wanted` takes, relative to this place.
    ///
    /// # Errors
    /// The error of the service.
    pub fn keys_below(&self, wanted: impl Fn(&str) -> bool) -> Result<Vec<String>> {
        let own = format!("{}/", self.key);
        let own = own.trim_start_matches('/');
        let relative = |key: &str| {
            let relative = key.strip_prefix(own).filter(|key| wanted(key));
            ready(Ok(relative.map(str::to_string)))
        };
        let found = self.insist(async || {
            let listed = self.store().list(Some(&self.key));
            let found = listed.try_filter_map(|meta| relative(meta.location.as_ref()));
            found.try_collect().await
        });
        Ok(self.if_there(found, "listing")?.unwrap_or_default())
    }

    /// Removes the objects of these keys, relative to this place.
    ///
    /// # Errors
    /// The error of the service.
    pub fn remove_all(&self, keys: &[String]) -> Result<()> {
        let keys = keys.iter().map(|key| Ok(self.below(key)?.key));
        let keys: Vec<Key> = keys.collect::<Result<_>>()?;
        let gone = self.insist(async || {
            let keys = stream::iter(keys.clone().into_iter().map(Ok)).boxed();
            let gone = self.store().delete_stream(keys);
            gone.try_for_each(|_| ready(Ok(()))).await
        });
        self.if_there(gone, "removing").map(drop)
    }

    /// Copies objects below `source`, each from one key there to another one here; within the
    /// service if it is the same bucket.
    ///
    /// # Errors
    /// The error of the service; [`Kind::Missing`] when an object is gone.
    pub fn copy_all(&self, source: &Self, pairs: &[(String, String)]) -> Result<()> {
        if !Arc::ptr_eq(&self.bucket, &source.bucket) {
            for (from, to) in pairs {
                let from = source.below(from)?;
                let gone = || Error::new(Kind::Missing, "copying", "it is gone").at(&from.url);
                let (data, _) = from.read()?.ok_or_else(gone)?;
                self.below(to)?.write(data)?;
            }
            return Ok(());
        }
        let pairs = pairs
            .iter()
            .map(|(from, to)| Ok((source.below(from)?.key, self.below(to)?.key)));
        let pairs: Vec<(Key, Key)> = pairs.collect::<Result<_>>()?;
        let copied = self.insist(async || {
            let copies = pairs.iter().map(|(from, to)| self.store().copy(from, to));
            let copies = stream::iter(copies).buffer_unordered(REQUESTS_MAX);
            copies.try_for_each(|()| ready(Ok(()))).await
        });
        copied.map_err(|e| self.failed(&e, "copying"))
    }

    /// The names right below this place below which there are objects, in order.
    ///
    /// # Errors
    /// The error of the service.
    pub fn directories(&self) -> Result<Vec<String>> {
        let listed = self.insist(async || self.store().list_with_delimiter(Some(&self.key)).await);
        let listed = self.if_there(listed, "listing")?;
        let prefixes = listed.map_or(Vec::new(), |listed| listed.common_prefixes);
        let names = prefixes.iter().filter_map(Key::filename);
        let mut names: Vec<String> = names.map(str::to_string).collect();
        names.sort();
        Ok(names)
    }

    /// Does something again and again, until `again` says that it is enough, on a thread of the
    /// buckets. Gives up with its process.
    pub fn repeat(&self, pause: Duration, mut again: impl FnMut() -> bool + Send + 'static) {
        self.bucket.spawn(async move {
            loop {
                tokio::time::sleep(pause).await;
                let asked = tokio::task::spawn_blocking(move || (again(), again)).await;
                match asked {
                    Ok((true, next)) => again = next,
                    _ => return,
                }
            }
        });
    }

    /// Waits for the answer of a request, which is made again if its answer breaks off: the crate
    /// repeats what services refuse for now, but not all of that.
    fn insist<T>(&self, mut request: impl AsyncFnMut() -> Answer<T>) -> Answer<T> {
        let begun = Instant::now();
        for _ in 1..TRIES_MAX {
            match self.bucket.wait(request()) {
                Err(failure) if failure::may_pass(&failure) && begun.elapsed() < TRYING => {}
                answer => return answer,
            }
        }
        self.bucket.wait(request())
    }

    fn store(&self) -> &dyn ObjectStore {
        &*self.bucket.store
    }

    /// An answer; `None` if it says that there is no such object.
    fn if_there<T>(&self, answer: Answer<T>, doing: &str) -> Result<Option<T>> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(failure) if failure::is_missing(&failure) => Ok(None),
            Err(failure) => Err(self.failed(&failure, doing)),
        }
    }

    fn failed(&self, failure: &Failure, doing: &str) -> Error {
        failure::error(failure, doing).at(&self.url)
    }
}

impl Version {
    fn of(meta: &object_store::ObjectMeta) -> Self {
        Self(UpdateVersion {
            e_tag: meta.e_tag.clone(),
            version: meta.version.clone(),
        })
    }
}
