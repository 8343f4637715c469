//! The border between C and Rust: how every function of the header is entered, and how what C gives
//! is checked.
//!
//! ```text
//! C  --- pointers ---> a function of the header --- checked values ---> a body that returns Result
//!    <-- a code ------ enter(): no panic leaves <-- Err: the thread's last error
//! ```
//!
//! What comes from C has types that say so, and that have the form of C's pointers: [`Text`],
//! [`Many`], [`Options`], [`Place`], `Option<&T>` and `Option<Box<T>>` for handles. The header is
//! the promise on which their uses of pointers rest: a pointer is NULL, or it points to what the
//! header says, for the length of the call.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use penstock_engine::{Error, Kind, Result, Who};

/// `PENSTOCK_OK`.
pub const OK: c_int = 0;

/// The code of a kind.
pub fn code_of(kind: Kind) -> c_int {
    match kind {
        Kind::Schema => 1,
        Kind::Mismatch => 2,
        Kind::Overlap => 3,
        Kind::Missing => 4,
        Kind::Damaged => 5,
        Kind::ReadOnly => 6,
        Kind::Full => 7,
        Kind::Busy => 8,
        Kind::Peer => 9,
        Kind::Unsupported => 10,
        Kind::Io => 11,
        Kind::Exists => 12,
    }
}

/// The kind of a code.
///
/// # Errors
/// [`Kind::Schema`] for what is no code of an error.
pub fn kind_of(code: c_int) -> Result<Kind> {
    let kind = Kind::ALL.into_iter().find(|kind| code_of(*kind) == code);
    kind.ok_or_else(|| wrong(format!("{code} is no code of an error")))
}

/// The name of a code.
fn name_of(code: c_int) -> &'static CStr {
    match kind_of(code) {
        Ok(Kind::Schema) => c"Schema",
        Ok(Kind::Mismatch) => c"Mismatch",
        Ok(Kind::Overlap) => c"Overlap",
        Ok(Kind::Missing) => c"Missing",
        Ok(Kind::Damaged) => c"Damaged",
        Ok(Kind::ReadOnly) => c"ReadOnly",
        Ok(Kind::Full) => c"Full",
        Ok(Kind::Busy) => c"Busy",
        Ok(Kind::Peer) => c"Peer",
        Ok(Kind::Unsupported) => c"Unsupported",
        Ok(Kind::Io) => c"Io",
        Ok(Kind::Exists) => c"Exists",
        Err(_) if code == OK => c"Ok",
        Err(_) => c"Unknown",
    }
}

// --- entering ------------------------------------------------------------------------------------

/// Runs the body of a function that can fail: keeps the error for `penstock_last_error`, and gives
/// the code.
pub fn enter(body: impl FnOnce() -> Result<()>) -> c_int {
    let ended = caught(body).flat();
    match ended {
        Ok(()) => OK,
        Err(error) => {
            let code = code_of(error.kind);
            keep(&error);
            code
        }
    }
}

/// Runs the body of a function that gives a text, which the program frees with `penstock_free`.
pub fn give_text(
    mut place: Place<'_, *mut c_char>,
    body: impl FnOnce() -> Result<String>,
) -> c_int {
    enter(|| {
        place.put(std::ptr::null_mut());
        place.check("the text")?;
        place.put_text(&body()?)
    })
}

/// Runs the body of a function that cannot fail, and gives `otherwise` if it panics all the same.
pub fn answer<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(otherwise)
}

/// How a body has ended.
pub enum Ended<T> {
    /// It has returned.
    Returned(Result<T>),
    /// It has panicked, which the error says.
    Panicked(Error),
}

impl<T> Ended<T> {
    /// The result, with a panic as an error.
    pub fn flat(self) -> Result<T> {
        match self {
            Self::Returned(result) => result,
            Self::Panicked(error) => Err(error),
        }
    }
}

/// Runs a body, and lets no panic out of it.
pub fn caught<T>(body: impl FnOnce() -> Result<T>) -> Ended<T> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => Ended::Returned(result),
        Err(panic) => Ended::Panicked(error_of(&*panic)),
    }
}

/// The error that a panic is for C.
fn error_of(panic: &(dyn Any + Send)) -> Error {
    let said = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text.as_str(),
        (None, None) => "it does not say why",
    };
    let cause = format!("Penstock has panicked, which is a mistake in it: {said}");
    Error::new(Kind::Io, "a call of Penstock", cause)
}

/// The error of an argument that does not fit.
pub fn wrong(cause: impl std::fmt::Display) -> Error {
    Error::new(Kind::Schema, "reading the arguments of a call", cause)
}

// --- the last error of a thread ------------------------------------------------------------------

/// `penstock_error`.
#[repr(C)]
pub struct LastError {
    pub code: c_int,
    pub rank: i64,
    pub server: i64,
    pub doing: *const c_char,
    pub path: *const c_char,
    pub first: u64,
    pub end: u64,
    pub cause: *const c_char,
    pub text: *const c_char,
}

/// An error as C sees it, with the texts to which it points.
struct Kept {
    error: LastError,
    _texts: [CString; 4],
}

thread_local! {
    static LAST: RefCell<Option<Box<Kept>>> = const { RefCell::new(None) };
}

/// Keeps an error as the last one of this thread.
fn keep(error: &Error) {
    let path = error.path.as_deref();
    let texts = [
        c_text(&error.doing),
        c_text(path.unwrap_or_default()),
        c_text(&error.cause),
        c_text(&error.to_string()),
    ];
    let (rank, server) = match error.who {
        Some(Who::Rank(rank)) => (number(rank), -1),
        Some(Who::Server(server)) => (-1, number(server)),
        None => (-1, -1),
    };
    let bytes = error.bytes.clone().unwrap_or_default();
    let [doing, place, cause, text] = &texts;
    let kept = Kept {
        error: LastError {
            code: code_of(error.kind),
            rank,
            server,
            doing: doing.as_ptr(),
            path: path.map_or(std::ptr::null(), |_| place.as_ptr()),
            first: bytes.start,
            end: bytes.end,
            cause: cause.as_ptr(),
            text: text.as_ptr(),
        },
        _texts: texts,
    };
    // A thread that is ending has no place for errors any more.
    let _ = LAST.try_with(|last| *last.borrow_mut() = Some(Box::new(kept)));
}

/// A count as one of C's that may be -1.
pub fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A text of C's. Zeros in it, which C would take for its end, are left out.
pub fn c_text(text: &str) -> CString {
    let bytes: Vec<u8> = text.bytes().filter(|&byte| byte != 0).collect();
    CString::new(bytes).unwrap_or_default()
}

// --- functions -----------------------------------------------------------------------------------

#[unsafe(no_mangle)]
pub extern "C" fn penstock_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_last_error() -> *const LastError {
    let last = LAST.try_with(|last| match &*last.borrow() {
        Some(kept) => &raw const kept.error,
        None => std::ptr::null(),
    });
    last.unwrap_or(std::ptr::null())
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_code_name(code: c_int) -> *const c_char {
    name_of(code).as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_free(text: *mut c_void) {
    // SAFETY: it is null, or `given` has taken it from the same allocator.
    unsafe { libc::free(text) }
}

// --- what C gives --------------------------------------------------------------------------------

/// A text that C gives: NULL, or bytes that end with a zero.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Text<'a>(*const c_char, PhantomData<&'a CStr>);

impl<'a> Text<'a> {
    /// NULL.
    pub const NULL: Self = Self(std::ptr::null(), PhantomData);

    /// The text. `what` names the argument.
    ///
    /// # Errors
    /// [`Kind::Schema`] when it is NULL, or no UTF-8.
    pub fn needed(self, what: &str) -> Result<&'a str> {
        let text = self.optional(what)?;
        text.ok_or_else(|| wrong(format!("{what} is NULL")))
    }

    /// The text, if it is not NULL.
    ///
    /// # Errors
    /// [`Kind::Schema`] when it is no UTF-8.
    pub fn optional(self, what: &str) -> Result<Option<&'a str>> {
        if self.0.is_null() {
            return Ok(None);
        }
        // SAFETY: what is not NULL ends with a zero, says the header.
        let text = unsafe { CStr::from_ptr(self.0) };
        let text = text.to_str();
        text.map(Some)
            .map_err(|error| wrong(format!("{what} is no UTF-8: {error}")))
    }

    /// The text as a path.
    ///
    /// # Errors
    /// As of [`Text::needed`].
    pub fn path(self, what: &str) -> Result<&'a Path> {
        self.needed(what).map(Path::new)
    }
}

/// Values that C gives behind one another: NULL, or as many as another argument says.
#[repr(transparent)]
pub struct Many<'a, T>(*const T, PhantomData<&'a [T]>);

impl<T> Clone for Many<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Many<'_, T> {}

impl<'a, T> Many<'a, T> {
    /// NULL.
    pub const NULL: Self = Self(std::ptr::null(), PhantomData);

    /// Whether it is NULL.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The values. Without any, the pointer may be NULL. `what` names the argument.
    ///
    /// # Errors
    /// [`Kind::Schema`] when it is NULL, or the count is one that no memory holds.
    pub fn needed(self, count: usize, what: &str) -> Result<&'a [T]> {
        if count == 0 {
            return Ok(&[]);
        }
        if self.0.is_null() {
            return Err(wrong(format!("NULL in place of {what}, {count} of them")));
        }
        let bytes = count.checked_mul(size_of::<T>());
        if bytes.is_none_or(|bytes| isize::try_from(bytes).is_err()) {
            return Err(wrong(format!("no memory has {what}, {count} of them")));
        }
        // SAFETY: what is not NULL has as many values, says the header; the size is checked.
        Ok(unsafe { std::slice::from_raw_parts(self.0, count) })
    }

    /// The values, if the pointer is not NULL.
    ///
    /// # Errors
    /// As of [`Many::needed`].
    pub fn optional(self, count: usize, what: &str) -> Result<Option<&'a [T]>> {
        match self.is_null() {
            true => Ok(None),
            false => self.needed(count, what).map(Some),
        }
    }
}

/// A structure of options, whose first field is its size.
pub trait Versioned: Copy {
    /// The structure as the `..._INIT` macro of the header makes it.
    const INIT: Self;
    /// Its size in the first version that had it.
    const FIRST_BYTES: usize;
    /// Its name in the header.
    const NAME: &'static str;
}

/// Options that C gives: NULL, or a structure that says how large it is.
#[repr(transparent)]
pub struct Options<'a, T>(*const T, PhantomData<&'a T>);

impl<T> Clone for Options<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Options<'_, T> {}

impl<T: Versioned> Options<'_, T> {
    /// NULL.
    pub const NULL: Self = Self(std::ptr::null(), PhantomData);

    /// The options; NULL is the defaults. Fields that the program does not know have their
    /// defaults, and fields that only later versions know are left alone.
    ///
    /// # Errors
    /// [`Kind::Schema`] when the size is smaller than that of the first version.
    pub fn read(self) -> Result<T> {
        let mut options = T::INIT;
        if self.0.is_null() {
            return Ok(options);
        }
        // SAFETY: each structure of options begins with its size.
        let bytes = unsafe { self.0.cast::<usize>().read() };
        if bytes < T::FIRST_BYTES {
            let name = T::NAME;
            let macro_name = name.to_uppercase();
            let cause =
                format!("{name}.size is {bytes}: begin with {name} options = {macro_name}_INIT");
            return Err(wrong(cause));
        }
        let known = bytes.min(size_of::<T>());
        // SAFETY: the program's structure has these bytes, and all fields are integers, floating
        // point numbers and pointers, which may have any value.
        unsafe {
            let (from, to) = (self.0.cast::<u8>(), (&raw mut options).cast::<u8>());
            std::ptr::copy_nonoverlapping(from, to, known);
        }
        Ok(options)
    }
}

/// A place for a result: NULL, or a variable of the program, whose value is of no interest.
#[repr(transparent)]
pub struct Place<'a, T>(*mut T, PhantomData<&'a mut T>);

impl<T> Place<'_, T> {
    /// Checks that there is a place. `what` names the argument.
    ///
    /// # Errors
    /// [`Kind::Schema`] when it is NULL.
    pub fn check(&self, what: &str) -> Result<()> {
        match self.0.is_null() {
            true => Err(wrong(format!("the place for {what} is NULL"))),
            false => Ok(()),
        }
    }

    /// Whether there is none.
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Stores the result, where there is a place for it.
    pub fn put(&mut self, value: T) {
        self.put_nth(0, value);
    }

    /// Stores result `nth` of a place for several.
    pub fn put_nth(&mut self, nth: usize, value: T) {
        if !self.0.is_null() {
            // SAFETY: what is not NULL is a place for as many, says the header.
            unsafe { self.0.add(nth).write(value) }
        }
    }
}

impl<T> Place<'_, Option<Box<T>>> {
    /// Stores a handle.
    pub fn put_handle(&mut self, value: T) {
        self.put(Some(Box::new(value)));
    }
}

/// A handle that C gives. `what` names it.
///
/// # Errors
/// [`Kind::Schema`] when it is NULL.
pub fn needed<T>(handle: Option<T>, what: &str) -> Result<T> {
    handle.ok_or_else(|| wrong(format!("{what} is NULL")))
}

impl Place<'_, *mut c_char> {
    /// Stores a text, which the program frees with `penstock_free`.
    ///
    /// # Errors
    /// [`Kind::Io`] without memory.
    pub fn put_text(&mut self, text: &str) -> Result<()> {
        self.put_bytes(c_text(text).as_bytes_with_nul())
    }

    /// Stores bytes, which the program frees with `penstock_free`.
    ///
    /// # Errors
    /// [`Kind::Io`] without memory.
    pub fn put_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        if self.is_null() {
            return Ok(());
        }
        // SAFETY: no pointers.
        let room = unsafe { libc::malloc(bytes.len().max(1)) };
        if room.is_null() {
            return Err(Error::new(Kind::Io, "giving a text", "there is no memory"));
        }
        // SAFETY: there is room for the bytes, and nobody else knows of it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), room.cast(), bytes.len()) };
        self.put(room.cast());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the last error of this thread says.
    fn last() -> (c_int, String) {
        let error = penstock_last_error();
        // SAFETY: an error was kept, and its texts live until the next one.
        unsafe {
            let text = CStr::from_ptr((*error).text);
            ((*error).code, text.to_string_lossy().into_owned())
        }
    }

    #[test]
    fn codes_and_names_are_those_of_the_header() {
        let header = include_str!("../include/penstock.h");
        for kind in Kind::ALL {
            let name = kind.to_string();
            assert_eq!(name_of(code_of(kind)).to_str(), Ok(name.as_str()));
            let word: String = match name.as_str() {
                "ReadOnly" => "READ_ONLY".to_string(),
                other => other.to_uppercase(),
            };
            let line = format!("PENSTOCK_ERR_{word} = {}", code_of(kind));
            assert!(header.contains(&line), "{line}");
        }
        assert_eq!(name_of(0), c"Ok");
        assert_eq!(name_of(13), c"Unknown");
        assert_eq!(name_of(-1), c"Unknown");
    }

    #[test]
    fn a_panic_is_an_error() {
        let code = enter(|| panic!("the cause\0 of it"));
        let (kept, text) = last();
        assert_eq!((code, kept), (code_of(Kind::Io), code));
        assert!(text.contains("the cause of it"), "{text}");
        assert_eq!(answer(7, || panic!("again")), 7);
    }

    #[test]
    fn an_error_stays_until_the_next() {
        let first = Error::new(Kind::Full, "writing", "no space").by(Who::Server(3));
        let first = first.at(Path::new("/x")).in_bytes(4..9);
        assert_eq!(enter(|| Err(first.clone())), code_of(Kind::Full));
        assert_eq!(enter(|| Ok(())), OK);
        assert_eq!(last(), (code_of(Kind::Full), first.to_string()));
        // SAFETY: as in `last`.
        let (rank, server, first, end) = unsafe {
            let error = &*penstock_last_error();
            (error.rank, error.server, error.first, error.end)
        };
        assert_eq!((rank, server, first, end), (-1, 3, 4, 9));
        let elsewhere = std::thread::spawn(|| penstock_last_error().is_null());
        assert!(elsewhere.join().unwrap());
    }

    /// Options as a later version may have them.
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Later {
        size: usize,
        first: u64,
        second: u64,
    }

    impl Versioned for Later {
        const INIT: Self = Self {
            size: size_of::<Self>(),
            first: 1,
            second: 2,
        };
        const FIRST_BYTES: usize = std::mem::offset_of!(Later, second);
        const NAME: &'static str = "penstock_later";
    }

    #[test]
    fn options_of_other_versions() {
        let read = |given: &Later| Options(given, PhantomData).read();
        let numbers = |options: Later| (options.first, options.second);
        let given = |size| Later {
            size,
            first: 8,
            second: 9,
        };
        assert_eq!(numbers(Options::<Later>::NULL.read().unwrap()), (1, 2));
        assert_eq!(numbers(read(&given(16)).unwrap()), (8, 2)); // of the first version
        assert_eq!(numbers(read(&given(24)).unwrap()), (8, 9));
        assert_eq!(numbers(read(&given(32)).unwrap()), (8, 9)); // of a later one
        for size in [0, 8, 15] {
            let error = read(&given(size)).map(numbers).unwrap_err();
            assert!(error.cause.contains("PENSTOCK_LATER_INIT"), "{error}");
        }
    }
}
