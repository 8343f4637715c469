//! A file driver of the HDF5 library: the file as it is, with all changes kept in memory.
//!
//! The library reads the file through an [`Image`], and never writes to it: the image keeps what
//! the library writes, and its owner puts that into the file when all else is done. Elements never
//! pass through the library either. While its owner names *places*, each run of elements for which
//! the library wants space gets the next of these places, and what the library would write there is
//! dropped.
//!
//! The interface is that of `H5FDdevelop.h` of HDF5 2.x, whose structures the crate of bindings
//! does not have: the version of the bundled library is pinned.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use hdf5_metno_sys::h5::{haddr_t, herr_t, hsize_t};
use hdf5_metno_sys::h5f::H5F_close_degree_t;
use hdf5_metno_sys::h5i::hid_t;
use hdf5_metno_sys::h5p::{H5Pget_driver_info, H5Pset_driver};

use crate::library::{Outcome, call};

/// The bytes that are kept together.
const PAGE: usize = 4096;
/// The library's address of nothing.
const NOWHERE: haddr_t = haddr_t::MAX;
const DONE: herr_t = 0;
const FAILED: herr_t = -1;
/// The library's kind of space for elements (`H5FD_MEM_DRAW`).
const ELEMENTS: c_int = 3;
/// The driver writes metadata in the order in which the library does
/// (`H5FD_FEAT_SUPPORTS_SWMR_IO`).
const KEEPS_ORDER: c_ulong = 0x1000;
/// The version of [`Class`] (`H5FD_CLASS_VERSION`).
const CLASS_VERSION: c_uint = 1;
/// A number for the driver, from those that the library leaves to its users.
const DRIVER_NUMBER: c_int = 541;

/// A file as the library sees it.
#[derive(Debug, Default)]
pub(crate) struct Image {
    file: Option<File>,
    /// The bytes of the file, with the changes.
    bytes: u64,
    /// The pages that have changed.
    pages: BTreeMap<u64, Box<[u8; PAGE]>>,
    /// The first and the last but one byte of all that has changed.
    changed: BTreeMap<u64, u64>,
    /// The end of the addresses that the library has given out.
    end: u64,
    /// The places of the elements that come next, if the owner names places.
    places: Option<VecDeque<u64>>,
    /// The end of a run of elements that the library is to forget.
    forgotten: Option<u64>,
}

/// An image, as its owner and the library share it.
pub(crate) type SharedImage = Arc<Mutex<Image>>;

/// Locks an image: it is whole at any time.
pub(crate) fn lock(image: &Mutex<Image>) -> MutexGuard<'_, Image> {
    image.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Image {
    /// The image of a file, or of a new one.
    pub(crate) fn new(file: Option<File>) -> io::Result<Self> {
        let bytes = match &file {
            Some(file) => file.metadata()?.len(),
            None => 0,
        };
        Ok(Self {
            file,
            bytes,
            ..Self::default()
        })
    }

    /// The end of the addresses that are in use.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Makes what the library allocates from now on begin at `end` or later.
    pub(crate) fn begin_at(&mut self, end: u64) {
        self.end = self.end.max(end);
    }

    /// Gives the next runs of elements these places, and drops what the library writes of elements.
    pub(crate) fn place_at(&mut self, places: VecDeque<u64>) {
        self.places = Some(places);
    }

    /// Lets the library forget a run of elements that ends at `end`, when it has no more use for it
    /// and before it wants space: it would take that space for other elements otherwise. For the
    /// library, the run is then the last of the file, which simply becomes shorter.
    pub(crate) fn forget(&mut self, end: Option<u64>) {
        self.forgotten = end;
    }

    /// Ends [`Image::place_at`]. Gives the number of places that are left.
    pub(crate) fn place_no_more(&mut self) -> usize {
        self.places.take().map_or(0, |left| left.len())
    }

    /// All runs of bytes that have changed, in the order of their places.
    pub(crate) fn changes(&self) -> io::Result<Vec<(u64, Vec<u8>)>> {
        let run = |(&start, &end): (&u64, &u64)| {
            let mut data = vec![0; usize::try_from(end - start).unwrap_or(usize::MAX)];
            self.read(start, &mut data)?;
            Ok((start, data))
        };
        self.changed.iter().map(run).collect()
    }

    /// Notes that bytes have changed, as one run with those that they touch.
    fn note(&mut self, mut start: u64, mut end: u64) {
        let touching = self.changed.range(..=end).rev();
        let touching: Vec<_> = touching.take_while(|(_, other)| **other >= start).collect();
        let touching: Vec<(u64, u64)> = touching.into_iter().map(|(&a, &b)| (a, b)).collect();
        for (other, other_end) in touching {
            self.changed.remove(&other);
            (start, end) = (start.min(other), end.max(other_end));
        }
        self.changed.insert(start, end);
    }

    /// Puts bytes over those of the file.
    pub(crate) fn write(&mut self, at: u64, data: &[u8]) -> io::Result<()> {
        for piece in pieces(at, data.len()) {
            if !self.pages.contains_key(&piece.page) {
                let mut page = Box::new([0; PAGE]);
                self.read(piece.page * PAGE as u64, page.as_mut_slice())?;
                self.pages.insert(piece.page, page);
            }
            if let Some(page) = self.pages.get_mut(&piece.page) {
                let part = &data[piece.offset..piece.offset + piece.bytes];
                page[piece.start..piece.start + piece.bytes].copy_from_slice(part);
            }
        }
        let end = at + data.len() as u64;
        self.bytes = self.bytes.max(end);
        self.note(at, end);
        Ok(())
    }

    fn read(&self, at: u64, data: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        if let Some(file) = &self.file {
            while filled < data.len() {
                match file.read_at(&mut data[filled..], at + filled as u64)? {
                    0 => break,
                    bytes => filled += bytes,
                }
            }
        }
        data[filled..].fill(0);
        for piece in pieces(at, data.len()) {
            if let Some(page) = self.pages.get(&piece.page) {
                let part = &page[piece.start..piece.start + piece.bytes];
                data[piece.offset..piece.offset + piece.bytes].copy_from_slice(part);
            }
        }
        Ok(())
    }

    /// Space for `bytes` bytes; `None` if there is no place for elements.
    fn allocate(&mut self, is_of_elements: bool, bytes: u64) -> Option<u64> {
        let place = match &mut self.places {
            Some(places) if is_of_elements => places.pop_front()?,
            _ => self.end,
        };
        self.end = self.end.max(place.checked_add(bytes)?);
        Some(place)
    }
}

/// A part of a page.
struct Piece {
    page: u64,
    /// The first byte within the page.
    start: usize,
    bytes: usize,
    /// The offset within the data.
    offset: usize,
}

/// The pages of `bytes` bytes from `at` on.
fn pieces(at: u64, bytes: usize) -> impl Iterator<Item = Piece> {
    let mut offset = 0;
    std::iter::from_fn(move || {
        let now = at + offset as u64;
        let start = usize::try_from(now % PAGE as u64).ok()?;
        let piece = Piece {
            page: now / PAGE as u64,
            start,
            bytes: (PAGE - start).min(bytes - offset),
            offset,
        };
        offset += piece.bytes;
        (piece.bytes > 0).then_some(piece)
    })
}

/// An open file (`H5FD_t`), with the image behind the library's own fields.
#[repr(C)]
struct Open {
    driver: hid_t,
    class: *const Class,
    number: c_ulong,
    access_flags: c_uint,
    features: c_ulong,
    address_max: haddr_t,
    base: haddr_t,
    threshold: hsize_t,
    alignment: hsize_t,
    is_paged: bool,
    image: SharedImage,
}

/// A function that the driver leaves to the library.
type Missing = Option<unsafe extern "C" fn()>;

/// The functions of a driver (`H5FD_class_t`).
#[repr(C)]
struct Class {
    version: c_uint,
    number: c_int,
    name: *const c_char,
    address_max: haddr_t,
    close_degree: H5F_close_degree_t,
    terminate: Missing,
    superblock: [Missing; 3],
    access_bytes: usize,
    access: [Missing; 3],
    transfer_bytes: usize,
    transfer: [Missing; 2],
    open: unsafe extern "C" fn(*const c_char, c_uint, hid_t, haddr_t) -> *mut Open,
    close: unsafe extern "C" fn(*mut Open) -> herr_t,
    compare: unsafe extern "C" fn(*const Open, *const Open) -> c_int,
    query: unsafe extern "C" fn(*const Open, *mut c_ulong) -> herr_t,
    kinds: Missing,
    allocate: unsafe extern "C" fn(*mut Open, c_int, hid_t, hsize_t) -> haddr_t,
    free: Missing,
    get_end: unsafe extern "C" fn(*const Open, c_int) -> haddr_t,
    set_end: unsafe extern "C" fn(*mut Open, c_int, haddr_t) -> herr_t,
    get_bytes: unsafe extern "C" fn(*const Open, c_int) -> haddr_t,
    handle: Missing,
    read: unsafe extern "C" fn(*mut Open, c_int, hid_t, haddr_t, usize, *mut c_void) -> herr_t,
    write: unsafe extern "C" fn(*mut Open, c_int, hid_t, haddr_t, usize, *const c_void) -> herr_t,
    /// Vectors and selections; flush, truncate, lock, unlock; deletion and control.
    rest: [Missing; 10],
    free_lists: [c_int; 7],
}

// SAFETY: nobody changes the class, or what it points to.
unsafe impl Sync for Class {}

// The layout that the library's header gives on machines of 64 bits.
const _: () = assert!(offset_of!(Class, open) == 120 && offset_of!(Class, read) == 208);
const _: () = assert!(size_of::<Class>() == 336 && offset_of!(Open, image) == 80);

static CLASS: Class = Class {
    version: CLASS_VERSION,
    number: DRIVER_NUMBER,
    name: c"penstock".as_ptr(),
    address_max: haddr_t::MAX >> 1,
    close_degree: H5F_close_degree_t::H5F_CLOSE_STRONG,
    terminate: None,
    superblock: [None; 3],
    access_bytes: size_of::<*const Mutex<Image>>(),
    access: [None; 3],
    transfer_bytes: 0,
    transfer: [None; 2],
    open,
    close,
    compare,
    query,
    kinds: None,
    allocate,
    free: None,
    get_end,
    set_end,
    get_bytes,
    handle: None,
    read,
    write,
    rest: [None; 10],
    free_lists: [0; 7],
};

/// Makes the files that are opened with this access property list be `image`. The caller keeps the
/// image until then.
pub(crate) fn open_with(access: hid_t, image: &SharedImage) -> Outcome<()> {
    unsafe extern "C" {
        fn H5FDregister(class: *const Class) -> hid_t;
    }
    static DRIVER: OnceLock<hid_t> = OnceLock::new();
    let information = Arc::as_ptr(image);
    let set = call(|| {
        // SAFETY: the class is static, and of the version that it names. The library copies the
        // bytes of the pointer, as many as the class says.
        unsafe {
            let driver = *DRIVER.get_or_init(|| H5FDregister(&raw const CLASS));
            H5Pset_driver(access, driver, (&raw const information).cast())
        }
    });
    set.map(drop)
}

/// The image of an open file.
///
/// # Safety
/// The library gives a file that [`open`] has made and [`close`] has not taken back.
unsafe fn image_of<'a>(file: *const Open) -> MutexGuard<'a, Image> {
    // SAFETY: as above.
    lock(unsafe { &(*file).image })
}

unsafe extern "C" fn open(_: *const c_char, _: c_uint, access: hid_t, _: haddr_t) -> *mut Open {
    // SAFETY: the property list is that of `open_with`, whose caller keeps the image.
    let image = unsafe {
        let information = H5Pget_driver_info(access).cast::<*const Mutex<Image>>();
        if information.is_null() {
            return ptr::null_mut();
        }
        Arc::increment_strong_count(*information);
        Arc::from_raw(*information)
    };
    Box::into_raw(Box::new(Open {
        driver: 0,
        class: ptr::null(),
        number: 0,
        access_flags: 0,
        features: 0,
        address_max: 0,
        base: 0,
        threshold: 0,
        alignment: 0,
        is_paged: false,
        image,
    }))
}

unsafe extern "C" fn close(file: *mut Open) -> herr_t {
    // SAFETY: `open` has made it, and the library does not use it any more.
    drop(unsafe { Box::from_raw(file) });
    DONE
}

unsafe extern "C" fn compare(one: *const Open, other: *const Open) -> c_int {
    // SAFETY: both are open files.
    let address = |file: *const Open| unsafe { Arc::as_ptr(&(*file).image) };
    match address(one).cmp(&address(other)) {
        Ordering::Less => -1,
        Ordering::Equal => 0,
        Ordering::Greater => 1,
    }
}

unsafe extern "C" fn query(_: *const Open, features: *mut c_ulong) -> herr_t {
    // SAFETY: the library gives a place for the flags.
    unsafe { *features = KEEPS_ORDER };
    DONE
}

unsafe extern "C" fn allocate(file: *mut Open, kind: c_int, _: hid_t, bytes: hsize_t) -> haddr_t {
    // SAFETY: it is an open file.
    let mut image = unsafe { image_of(file) };
    image.allocate(kind == ELEMENTS, bytes).unwrap_or(NOWHERE)
}

unsafe extern "C" fn get_end(file: *const Open, kind: c_int) -> haddr_t {
    // SAFETY: it is an open file.
    let image = unsafe { image_of(file) };
    match image.forgotten {
        Some(end) if kind == ELEMENTS => end,
        _ => image.end,
    }
}

unsafe extern "C" fn set_end(file: *mut Open, kind: c_int, end: haddr_t) -> herr_t {
    // SAFETY: it is an open file.
    let mut image = unsafe { image_of(file) };
    if kind != ELEMENTS || image.forgotten.take().is_none() {
        image.end = end;
    }
    DONE
}

unsafe extern "C" fn get_bytes(file: *const Open, _: c_int) -> haddr_t {
    // SAFETY: it is an open file.
    let image = unsafe { image_of(file) };
    // The places of elements count: servers write there.
    match image.places {
        Some(_) => image.bytes.max(image.end),
        None => image.bytes,
    }
}

unsafe extern "C" fn read(
    file: *mut Open,
    _: c_int,
    _: hid_t,
    at: haddr_t,
    bytes: usize,
    data: *mut c_void,
) -> herr_t {
    // SAFETY: it is an open file, and the library gives a buffer of these bytes.
    let (image, data) = unsafe {
        let data = std::slice::from_raw_parts_mut(data.cast::<u8>(), bytes);
        (image_of(file), data)
    };
    image.read(at, data).map_or(FAILED, |()| DONE)
}

unsafe extern "C" fn write(
    file: *mut Open,
    kind: c_int,
    _: hid_t,
    at: haddr_t,
    bytes: usize,
    data: *const c_void,
) -> herr_t {
    // SAFETY: it is an open file, and the library gives a buffer of these bytes.
    let (mut image, data) = unsafe {
        let data = std::slice::from_raw_parts(data.cast::<u8>(), bytes);
        (image_of(file), data)
    };
    if kind == ELEMENTS && image.places.is_some() {
        return DONE;
    }
    image.write(at, data).map_or(FAILED, |()| DONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_the_file_with_the_writes_over_it() {
        let mut file = tempfile::tempfile().unwrap();
        let old: Vec<u8> = (0..10_000).map(|at| (at % 251) as u8).collect();
        io::Write::write_all(&mut file, &old).unwrap();
        let mut image = Image::new(Some(file)).unwrap();
        let mut model = old;
        for (at, bytes) in [(0, 1), (4000, 200), (9_990, 30), (20_000, 5000), (4095, 2)] {
            let data = vec![at as u8 ^ 0x5A; bytes];
            image.write(at, &data).unwrap();
            let (at, end) = (at as usize, at as usize + bytes);
            model.resize(model.len().max(end), 0);
            model[at..end].copy_from_slice(&data);
            let mut all = vec![1; model.len() + 100];
            image.read(0, &mut all).unwrap();
            model.resize(all.len(), 0);
            assert!(all == model);
            model.truncate(image.bytes as usize);
        }
        let changes = image.changes().unwrap();
        let places: Vec<_> = changes.iter().map(|(at, data)| (*at, data.len())).collect();
        assert_eq!(places, [(0, 1), (4000, 200), (9_990, 30), (20_000, 5000)]);
        for (at, data) in changes {
            assert!(data == model[at as usize..][..data.len()]);
        }
    }

    #[test]
    fn elements_get_the_places_that_are_named() {
        let mut image = Image::default();
        image.begin_at(100);
        image.place_at([4096, 200].into());
        assert_eq!(image.allocate(true, 50), Some(4096));
        assert_eq!(image.allocate(false, 10), Some(4146));
        assert_eq!(image.allocate(true, 10), Some(200));
        assert_eq!(image.allocate(true, 10), None);
        assert_eq!((image.place_no_more(), image.end()), (0, 4156));
        assert_eq!(image.allocate(true, 10), Some(4156));
    }
}
