//! The files and objects that references lead to, and the bytes there.

use std::borrow::Cow;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_bucket::{Place, is_url};
use penstock_engine::{Error, Kind, Result};
use penstock_layout::exact;

use super::reference::Reference;
use crate::fs::files::{self, Open, damaged};

/// The most files that a server has open for one array.
const OPEN_MAX: usize = 64;
/// The beginnings of the names of local files in the words of URLs.
const LOCAL: [&str; 2] = ["file://", "local://"];

/// The file or URL that a reference in the set at `home` names. A relative path is relative to the
/// set.
///
/// # Errors
/// [`Kind::Unsupported`] for URLs of other kinds, and for local files that a set in a bucket names.
pub(super) fn path_of(name: &str, home: &Path) -> Result<PathBuf> {
    let refused = |cause: &str| {
        let cause = format!("its chunks are in {name:?}: {cause}");
        Err(Error::new(Kind::Unsupported, "reading references", cause).at(home))
    };
    if name.contains("::") {
        return refused("chains of URLs are not read");
    }
    if is_url(Path::new(name)) {
        return Ok(PathBuf::from(name));
    }
    let local = LOCAL.iter().find_map(|start| name.strip_prefix(start));
    if local.is_none() && name.contains("://") {
        return refused("URLs of this kind are not read");
    }
    if local.is_some_and(|path| !path.starts_with('/')) {
        return refused("a URL of a file has three slashes before its path");
    }
    let path = Path::new(local.unwrap_or(name));
    if path.is_absolute() && is_url(home) {
        return refused("references in a bucket lead to no files of this machine");
    }
    Ok(home.parent().unwrap_or(home).join(path))
}

/// The first bytes of a file or an object, at most `bytes`.
pub(super) fn start_of(path: &Path, bytes: usize) -> Result<Vec<u8>> {
    let source = Source::open(path)?;
    let mut start = files::zeros(source.bytes.min(bytes as u64))?;
    source.read_at(&mut start, 0, path)?;
    Ok(start)
}

/// A file or object that is open.
struct Source {
    form: SourceForm,
    bytes: u64,
}

enum SourceForm {
    File(File),
    Object(Place),
}

impl Source {
    fn open(path: &Path) -> Result<Self> {
        if let Some(place) = Place::of(path)? {
            let missing = || Error::new(Kind::Missing, "opening", "it is not there").at(path);
            let bytes = place.about()?.ok_or_else(missing)?.bytes;
            let form = SourceForm::Object(place);
            return Ok(Self { form, bytes });
        }
        let found = std::fs::metadata(path).map_err(|e| Error::io(&e, "opening", path))?;
        if !found.is_file() {
            // A pipe would let its reader wait.
            let cause = "it is no file";
            return Err(Error::new(Kind::Unsupported, "opening", cause).at(path));
        }
        let file = File::open(path).map_err(|e| Error::io(&e, "opening", path))?;
        let bytes = files::length(&file, path)?;
        let form = SourceForm::File(file);
        Ok(Self { form, bytes })
    }

    fn read_at(&self, data: &mut [u8], offset: u64, path: &Path) -> Result<()> {
        match &self.form {
            SourceForm::File(file) => files::read_at(file, data, offset, path),
            SourceForm::Object(place) => match place.read_part(data, offset)? {
                true => Ok(()),
                false => Err(damaged(path, "it went away while it was read")),
            },
        }
    }
}

/// The files of some references, a few of them open.
pub(crate) struct Sources {
    files: Vec<PathBuf>,
    open: Open<Source>,
}

impl Sources {
    pub(crate) fn new(files: Vec<PathBuf>) -> Self {
        Self {
            files,
            open: Open::new(OPEN_MAX),
        }
    }

    /// The open file of a reference, and the bytes of it that the reference means.
    fn source(&self, number: u32, reference: &Reference) -> Result<(Arc<Source>, &Path, u64, u64)> {
        let Some(path) = self.files.get(number as usize) else {
            let cause = "a reference leads to a file that is not in the table";
            return Err(Error::new(Kind::Damaged, "reading references", cause));
        };
        let (source, _) = self.open.get(number.into(), || Source::open(path))?;
        let (at, bytes) = match *reference {
            Reference::Part { at, bytes, .. } => (at, bytes),
            _ => (0, source.bytes),
        };
        let end = at.saturating_add(bytes);
        if end > source.bytes {
            let cause = format!(
                "the reference ends behind the file, which has {} bytes",
                source.bytes
            );
            return Err(damaged(path, cause).in_bytes(at..end));
        }
        Ok((source, path, at, bytes))
    }

    /// The number of bytes that a reference stands for.
    ///
    /// # Errors
    /// [`Kind::Missing`] when its file is gone; [`Kind::Damaged`] when the file ends before that.
    pub(crate) fn length(&self, reference: &Reference) -> Result<u64> {
        match reference {
            Reference::Inline(bytes) => Ok(bytes.len() as u64),
            Reference::File(number) | Reference::Part { file: number, .. } => {
                self.source(*number, reference).map(|(.., bytes)| bytes)
            }
        }
    }

    /// The bytes that a reference stands for.
    ///
    /// # Errors
    /// As [`Sources::length`]; the error of the file or the service.
    pub(crate) fn whole<'a>(&self, reference: &'a Reference) -> Result<Cow<'a, [u8]>> {
        if let Reference::Inline(bytes) = reference {
            return Ok(Cow::Borrowed(bytes));
        }
        let mut data = files::zeros(self.length(reference)?)?;
        self.part(reference, &mut data, 0)?;
        Ok(Cow::Owned(data))
    }

    /// Fills `data` with the bytes that a reference stands for, from `offset` on.
    ///
    /// # Errors
    /// As [`Sources::whole`].
    pub(crate) fn part(&self, reference: &Reference, data: &mut [u8], offset: u64) -> Result<()> {
        let end = offset.saturating_add(data.len() as u64);
        let short = |bytes: u64| {
            let cause = format!("the chunk has {bytes} bytes, and {end} belong there");
            Error::new(Kind::Damaged, "reading", cause)
        };
        match reference {
            Reference::Inline(bytes) => {
                let whole = bytes.len() as u64;
                if end > whole {
                    return Err(short(whole));
                }
                data.copy_from_slice(&bytes[exact::<usize>(offset)..exact::<usize>(end)]);
                Ok(())
            }
            Reference::File(number) | Reference::Part { file: number, .. } => {
                let (source, path, at, bytes) = self.source(*number, reference)?;
                if end > bytes {
                    return Err(short(bytes).at(path));
                }
                source.read_at(data, at + offset, path)
            }
        }
    }
}
