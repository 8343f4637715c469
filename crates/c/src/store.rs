//! Stores: copies, checks, descriptions.

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use penstock_arrays::calls::copy::{
    Extents, Form, MEMORY_BYTES, Options as Copy, Report as CopyDone, on_threads,
};
use penstock_arrays::{ElementType, Format, Progress, groups, json};
use penstock_engine::{Error, Kind, Result};

use crate::array::element_of;
use crate::border::{Many, Options, Place, Text, Versioned, enter, give_text, needed, wrong};
use crate::local::is_true;
use crate::session::Session;

/// `penstock_progress`.
type Listener = extern "C" fn(u64, u64, *mut c_void) -> c_int;

/// `penstock_copy_options`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CopyOptions<'a> {
    pub size: usize,
    pub arrays: Text<'a>,
    pub name: Text<'a>,
    pub chunks: Text<'a>,
    pub subchunks: Text<'a>,
    pub codec: Text<'a>,
    pub row_major: Text<'a>,
    pub raw_dims: usize,
    pub raw_shape: Many<'a, u64>,
    pub raw_dtype: Text<'a>,
    pub memory_bytes: u64,
    pub overwrite: c_int,
    pub drop_attributes: c_int,
    pub ranks: u64,
    pub sync: c_int,
    pub progress: Option<Listener>,
    pub context: *mut c_void,
}

impl Versioned for CopyOptions<'_> {
    const INIT: Self = Self {
        size: size_of::<Self>(),
        arrays: Text::NULL,
        name: Text::NULL,
        chunks: Text::NULL,
        subchunks: Text::NULL,
        codec: Text::NULL,
        row_major: Text::NULL,
        raw_dims: 0,
        raw_shape: Many::NULL,
        raw_dtype: Text::NULL,
        memory_bytes: 0,
        overwrite: 0,
        drop_attributes: 0,
        ranks: 0,
        sync: 1,
        progress: None,
        context: std::ptr::null_mut(),
    };
    const FIRST_BYTES: usize = size_of::<Self>();
    const NAME: &'static str = "penstock_copy_options";
}

impl CopyOptions<'_> {
    /// What a raw source holds.
    fn raw(&self) -> Result<Option<(Vec<u64>, ElementType)>> {
        if self.raw_dtype.optional("raw_dtype")?.is_none() {
            return match self.raw_shape.is_null() {
                true => Ok(None),
                false => Err(wrong("a raw source has a shape and a dtype: give both")),
            };
        }
        let shape = self.raw_shape.needed(self.raw_dims, "raw_shape")?;
        Ok(Some((shape.to_vec(), element_of(self.raw_dtype)?)))
    }

    /// The form of the target. A name that ends in `.npy` says so.
    fn form(&self, target: &Path) -> Result<Form> {
        let extents = |text: Text<'_>, what: &str| -> Result<Option<Extents>> {
            let text = text.optional(what)?;
            text.map(Extents::from_str).transpose()
        };
        let chunks = extents(self.chunks, "chunks")?;
        let subchunks = extents(self.subchunks, "subchunks")?;
        let codec = self.codec.optional("codec")?.map(str::to_string);
        let is_npy = target.to_string_lossy().ends_with(".npy");
        let format = match self.row_major.optional("row_major")? {
            Some("raw") => Some(Format::Raw),
            Some("npy") => Some(Format::Npy),
            Some(other) => {
                let cause = format!("'{other}' is no row-major file: use \"raw\" or \"npy\"");
                return Err(wrong(cause));
            }
            None => (is_npy && chunks.is_none()).then_some(Format::Npy),
        };
        match format {
            // In a file of HDF5 the codec is one of filters.
            None if Form::is_in_hdf5(target) => Form::of(target, chunks, subchunks, None, codec),
            None => Form::of(target, chunks, subchunks, codec, None),
            Some(_) if chunks.is_some() || subchunks.is_some() || codec.is_some() => {
                Err(wrong("a row-major file has neither chunks nor a codec"))
            }
            Some(format) => Ok(Form::RowMajor(format)),
        }
    }

    /// The options as a copy takes them.
    fn checked(&self, target: &Path) -> Result<Copy> {
        let arrays = self.arrays.optional("arrays")?.unwrap_or_default();
        let arrays = arrays.split(',').map(str::trim);
        Ok(Copy {
            arrays: arrays
                .filter(|array| !array.is_empty())
                .map(str::to_string)
                .collect(),
            name: self.name.optional("name")?.map(str::to_string),
            raw: self.raw()?,
            form: self.form(target)?,
            memory_bytes: match self.memory_bytes {
                0 => MEMORY_BYTES,
                bytes => bytes,
            },
            drops_attributes: is_true(self.drop_attributes),
            overwrites: is_true(self.overwrite),
            skips_unsupported: false,
        })
    }

    fn teller(&self) -> Teller {
        Teller {
            listener: self.progress,
            context: self.context,
            done: 0,
            all: 0,
        }
    }
}

/// What tells the program of the bytes that are done.
struct Teller {
    listener: Option<Listener>,
    context: *mut c_void,
    done: u64,
    all: u64,
}

// SAFETY: the context is the program's, and the header says that the listener may be called by
// another thread.
unsafe impl Send for Teller {}

impl Teller {
    /// Tells the program.
    ///
    /// # Errors
    /// [`Kind::Peer`] when it wants the call to end.
    fn tell(&mut self, progress: Progress) -> Result<()> {
        match progress {
            Progress::All(bytes) => self.all = bytes,
            Progress::More(bytes) => self.done += bytes,
        }
        let Some(listener) = self.listener else {
            return Ok(());
        };
        match listener(self.done, self.all, self.context) {
            0 => Ok(()),
            code => {
                let cause = format!("the program has ended it: its progress function gave {code}");
                Err(Error::new(Kind::Peer, "telling of what is done", cause))
            }
        }
    }
}

/// `penstock_copy_report`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CopyReport {
    pub bytes: u64,
    pub read_bytes: u64,
    pub seconds: f64,
    pub slabs: u64,
    pub slabs_found: u64,
}

impl From<CopyDone> for CopyReport {
    fn from(done: CopyDone) -> Self {
        Self {
            bytes: done.bytes,
            read_bytes: done.read_bytes,
            seconds: done.seconds,
            slabs: done.slabs,
            slabs_found: done.slabs_found,
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_copy(
    source: Text<'_>,
    target: Text<'_>,
    options: Options<'_, CopyOptions<'_>>,
    mut report: Place<'_, CopyReport>,
) -> c_int {
    enter(|| {
        let (source, target) = (source.path("source")?, target.path("target")?);
        let options = options.read()?;
        let checked = options.checked(target)?;
        let ranks = usize::try_from(options.ranks.max(1)).map_err(wrong)?;
        let teller = Mutex::new(options.teller());
        let tell = |progress| {
            let mut teller = teller.lock().unwrap_or_else(PoisonError::into_inner);
            teller.tell(progress)
        };
        let sync = is_true(options.sync);
        let done = on_threads((source, target), &checked, ranks, sync, &|| false, &tell)?;
        report.put(done.into());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_session_copy(
    session: Option<&Session>,
    source: Text<'_>,
    target: Text<'_>,
    options: Options<'_, CopyOptions<'_>>,
    mut report: Place<'_, CopyReport>,
) -> c_int {
    enter(|| {
        let session = &needed(session, "the session")?.0;
        let prepare = || {
            let source = session.path(source, "source")?;
            let target = session.path(target, "target")?;
            let options = options.read()?;
            let checked = options.checked(&target)?;
            Ok((source, target, checked, options.teller()))
        };
        let done = session.together(prepare, |calls, (source, target, options, mut teller)| {
            let mut has_ended = false;
            let copied = calls.copy(&source, &target, &options, &mut |progress| {
                let told = teller.tell(progress);
                has_ended |= told.is_err();
                told
            });
            if has_ended {
                calls.leave("its program has ended a copy");
            }
            copied
        })?;
        report.put(done.into());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_verify(
    path: Text<'_>,
    mut damages: Place<'_, u64>,
    text: Place<'_, *mut c_char>,
) -> c_int {
    give_text(text, || {
        damages.check("the damages")?;
        let found = groups::verify(path.path("path")?, &mut |_| Ok(()))?;
        damages.put(found.damages.len() as u64);
        Ok(found.verdict())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_repair(path: Text<'_>, text: Place<'_, *mut c_char>) -> c_int {
    give_text(text, || Ok(groups::repair(path.path("path")?)?.join("\n")))
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_describe(path: Text<'_>, json: Place<'_, *mut c_char>) -> c_int {
    give_text(json, || {
        Ok(json::line(&groups::describe(path.path("path")?)?))
    })
}
