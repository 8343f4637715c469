//! Datatypes: what they were made of, and where their bytes lie.
//!
//! `MPI_Type_get_envelope` and `MPI_Type_get_contents` tell how a datatype was made. Each
//! constructor becomes a [`Tree`]; subarrays and distributed arrays become nested loops.
//!
//! A type has a place in memory and, in a view, in a file. In a file the predefined types have the
//! sizes of the data representation, and what is counted in extents grows with them (MPI 5.0,
//! section 14.5.1): so a type is flattened for a [`Representation`].
//!
//! What was flattened for memory is kept with the datatype, as an attribute, and goes with it.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use penstock_layout::exact;
use penstock_machines::mpi::abi::Handle;
use rustc_hash::FxHashMap;

use crate::abi::Combiner;
use crate::dimensions::{Indices, part_of_array};
use crate::failure::{Class, Failure, Result, wrong};
use crate::flat::{Type, blocks_of};
use crate::mpi::{Mpi, no_copy};
use crate::representation::Representation;
use crate::tree::Tree;

/// The type of a handle in memory.
///
/// # Errors
/// When it is none, or was made in a way that Penstock does not know.
pub fn in_memory(mpi: &Mpi, handle: Handle) -> Result<Arc<Type>> {
    if let Some(known) = predefined().get(&handle) {
        return Ok(known.clone());
    }
    check(mpi, handle)?;
    let keyval = *KEYVAL.get_or_init(|| make_keyval(mpi));
    let mut kept: *mut Type = ptr::null_mut();
    let mut is_kept = 0;
    if let Some(keyval) = keyval {
        // SAFETY: out-parameters live across the call; the attribute is a pointer.
        let code = unsafe {
            (mpi.call.type_get_attr)(handle, keyval, (&raw mut kept).cast(), &mut is_kept)
        };
        mpi.check("reading an attribute of a datatype", code)?;
        if is_kept != 0 {
            // SAFETY: the attribute is an `Arc` that `keep` has put there, and which the datatype
            // keeps as long as it is.
            unsafe {
                Arc::increment_strong_count(kept);
                return Ok(Arc::from_raw(kept));
            }
        }
    }
    let (flat, is_predefined) = Flattening {
        mpi,
        representation: &Representation::Native,
    }
    .flatten(handle)?;
    let flat = Arc::new(flat);
    if is_predefined {
        predefined().insert(handle, flat.clone());
    } else if let Some(keyval) = keyval {
        let kept = Arc::into_raw(flat.clone()).cast_mut();
        // SAFETY: the attribute is dropped by `forget`.
        let code = unsafe { (mpi.call.type_set_attr)(handle, keyval, kept.cast()) };
        if code != 0 {
            // SAFETY: nobody else has it.
            drop(unsafe { Arc::from_raw(kept) });
        }
    }
    Ok(flat)
}

/// Whether MPI gives a datatype, so that nobody frees it.
///
/// # Errors
/// As [`in_memory`].
pub fn is_predefined(mpi: &Mpi, handle: Handle) -> Result<bool> {
    if predefined().contains_key(&handle) {
        return Ok(true);
    }
    check(mpi, handle)?;
    let flattening = Flattening {
        mpi,
        representation: &Representation::Native,
    };
    Ok(flattening.envelope(handle)?.0.is_predefined())
}

/// The type of a handle in a file of this representation.
///
/// # Errors
/// As [`in_memory`]; the error of a function of the representation.
pub fn in_file(mpi: &Mpi, handle: Handle, representation: &Representation) -> Result<Arc<Type>> {
    if representation.is_native() {
        return in_memory(mpi, handle);
    }
    check(mpi, handle)?;
    let flattening = Flattening {
        mpi,
        representation,
    };
    Ok(Arc::new(flattening.flatten(handle)?.0))
}

/// How many bytes of memory the first `packed` bytes of an instance are, in a file of this
/// representation. An item that is not whole counts where it is as long as in memory.
///
/// # Errors
/// As [`in_file`].
pub fn memory_bytes(
    mpi: &Mpi,
    handle: Handle,
    representation: &Representation,
    packed: u64,
) -> Result<u64> {
    let (mut rest, mut bytes) = (packed, 0);
    let flattening = Flattening {
        mpi,
        representation,
    };
    flattening.visit(handle, &mut |item| {
        let mut own = 0;
        // SAFETY: the out-parameter lives across the call.
        let code = unsafe { (mpi.call.type_size)(item, &mut own) };
        mpi.check("reading the size of a datatype", code)?;
        let own = natural(own)?;
        let in_file = representation.bytes(mpi, item)?.unwrap_or(own);
        let fits = in_file <= rest;
        if fits {
            rest -= in_file;
            bytes += own;
        } else if in_file == own {
            bytes += rest; // the beginning of an item
        }
        Ok(fits)
    })?;
    Ok(bytes)
}

fn check(mpi: &Mpi, handle: Handle) -> Result<()> {
    match handle == mpi.dialect.datatype_null {
        true => Err(wrong(Class::Type, "the datatype is MPI_DATATYPE_NULL")),
        false => Ok(()),
    }
}

/// The predefined types that have been flattened.
fn predefined() -> std::sync::MutexGuard<'static, FxHashMap<Handle, Arc<Type>>> {
    static KNOWN: OnceLock<Mutex<FxHashMap<Handle, Arc<Type>>>> = OnceLock::new();
    let known = KNOWN.get_or_init(Mutex::default);
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The key of the attribute, if MPI gave one.
static KEYVAL: OnceLock<Option<c_int>> = OnceLock::new();

fn make_keyval(mpi: &Mpi) -> Option<c_int> {
    let mut keyval = 0;
    // SAFETY: the out-parameter lives across the call.
    let code =
        unsafe { (mpi.call.type_create_keyval)(no_copy, forget, &mut keyval, ptr::null_mut()) };
    (code == 0).then_some(keyval)
}

/// Drops the attribute of a datatype that goes.
unsafe extern "C" fn forget(_: Handle, _: c_int, kept: *mut c_void, _: *mut c_void) -> c_int {
    // SAFETY: the attribute is an `Arc` that `in_memory` has put there.
    drop(unsafe { Arc::from_raw(kept.cast::<Type>()) });
    0
}

/// What a datatype was made of.
struct Contents {
    combiner: Combiner,
    integers: Vec<c_int>,
    addresses: Vec<isize>,
    counts: Vec<i64>,
    types: Vec<Handle>,
}

/// The integers of the contents of a type, some of which large counts have in another list.
struct Numbers<'a> {
    integers: std::slice::Iter<'a, c_int>,
    addresses: std::slice::Iter<'a, isize>,
    counts: std::slice::Iter<'a, i64>,
    /// Whether counts and displacements are in `counts`.
    is_large: bool,
}

impl<'a> Numbers<'a> {
    fn of(contents: &'a Contents) -> Self {
        Self {
            integers: contents.integers.iter(),
            addresses: contents.addresses.iter(),
            counts: contents.counts.iter(),
            is_large: !contents.counts.is_empty(),
        }
    }

    fn small(&mut self) -> Result<c_int> {
        self.integers
            .next()
            .copied()
            .ok_or_else(|| unknown("too few integers"))
    }

    /// A count, or a displacement in extents.
    fn count(&mut self) -> Result<i64> {
        match self.is_large {
            true => self
                .counts
                .next()
                .copied()
                .ok_or_else(|| unknown("too few counts")),
            false => self.small().map(i64::from),
        }
    }

    /// A displacement in bytes.
    fn address(&mut self) -> Result<i64> {
        match self.is_large {
            true => self.count(),
            false => {
                let next = self.addresses.next().copied();
                next.map(|next| next as i64)
                    .ok_or_else(|| unknown("too few addresses"))
            }
        }
    }

    fn several<T>(
        &mut self,
        count: usize,
        mut next: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        (0..count).map(|_| next(self)).collect()
    }
}

fn unknown(cause: &str) -> Failure {
    wrong(
        Class::Type,
        format_args!("a datatype cannot be decoded: {cause}"),
    )
}

fn natural(number: i64) -> Result<u64> {
    u64::try_from(number).map_err(|_| unknown("a count below 0"))
}

/// Flattens types for one representation.
struct Flattening<'a> {
    mpi: &'a Mpi,
    representation: &'a Representation,
}

impl Flattening<'_> {
    /// The flattened type, and whether it is a predefined one.
    fn flatten(&self, handle: Handle) -> Result<(Type, bool)> {
        let contents = self.contents(handle)?;
        let is_predefined = contents.combiner.is_predefined();
        let flat = match is_predefined {
            true => self.predefined(handle),
            false => self.derived(&contents, &|nth| {
                let old = contents
                    .types
                    .get(nth)
                    .ok_or_else(|| unknown("too few types"))?;
                Ok(self.flatten(*old)?.0)
            }),
        };
        for old in &contents.types {
            self.release(*old);
        }
        let mut flat = flat?;
        if !is_predefined && self.representation.is_native() {
            // What MPI says of bounds counts: it may pad the end of a structure.
            let (mut lower, mut extent) = (0, 0);
            // SAFETY: out-parameters live across the call.
            let code = unsafe { (self.mpi.call.type_get_extent)(handle, &mut lower, &mut extent) };
            self.mpi.check("reading the extent of a datatype", code)?;
            (flat.lower, flat.extent) = (lower, extent);
        }
        Ok((flat, is_predefined))
    }

    /// Frees a handle that the contents of a type have brought, if it is not a predefined one.
    fn release(&self, handle: Handle) {
        let envelope = self.envelope(handle);
        if !envelope.is_ok_and(|(combiner, _)| combiner.is_predefined()) {
            let mut handle = handle;
            // SAFETY: the handle is of this library, and nobody else has it. There is nobody to
            // tell of a failure.
            let _ = unsafe { (self.mpi.call.type_free)((&raw mut handle).cast()) };
        }
    }

    /// The combiner, and the numbers of integers, addresses, counts and types.
    fn envelope(&self, handle: Handle) -> Result<(Combiner, [usize; 4])> {
        let (code, combiner, numbers) = match &self.mpi.large {
            Some(large) => {
                let (mut numbers, mut combiner) = ([0i64; 4], 0);
                let [integers, addresses, counts, types] = &mut numbers;
                // SAFETY: out-parameters live across the call.
                let code = unsafe {
                    (large.type_get_envelope)(
                        handle,
                        integers,
                        addresses,
                        counts,
                        types,
                        &mut combiner,
                    )
                };
                (code, combiner, numbers)
            }
            None => {
                let (mut numbers, mut combiner) = ([0; 3], 0);
                let [integers, addresses, types] = &mut numbers;
                // SAFETY: out-parameters live across the call.
                let code = unsafe {
                    (self.mpi.call.type_get_envelope)(
                        handle,
                        integers,
                        addresses,
                        types,
                        &mut combiner,
                    )
                };
                let [integers, addresses, types] = numbers.map(i64::from);
                (code, combiner, [integers, addresses, 0, types])
            }
        };
        self.mpi.check("decoding a datatype", code)?;
        let known = self.mpi.dialect.combiner(combiner);
        let combiner = known.ok_or_else(|| unknown("its constructor is not known"))?;
        Ok((
            combiner,
            numbers.map(|number| usize::try_from(number).unwrap_or(0)),
        ))
    }

    fn contents(&self, handle: Handle) -> Result<Contents> {
        let (combiner, [integers, addresses, counts, types]) = self.envelope(handle)?;
        let mut contents = Contents {
            combiner,
            integers: vec![0; integers],
            addresses: vec![0; addresses],
            counts: vec![0; counts],
            types: Vec::new(),
        };
        if combiner.is_predefined() {
            return Ok(contents);
        }
        let mut handles: Vec<Handle> = vec![0; types];
        // SAFETY: each list has room for what the envelope has announced.
        let code = unsafe {
            match &self.mpi.large {
                Some(large) => (large.type_get_contents)(
                    handle,
                    integers as i64,
                    addresses as i64,
                    counts as i64,
                    types as i64,
                    contents.integers.as_mut_ptr(),
                    contents.addresses.as_mut_ptr(),
                    contents.counts.as_mut_ptr(),
                    handles.as_mut_ptr().cast(),
                ),
                None => (self.mpi.call.type_get_contents)(
                    handle,
                    exact::<c_int>(integers),
                    exact::<c_int>(addresses),
                    exact::<c_int>(types),
                    contents.integers.as_mut_ptr(),
                    contents.addresses.as_mut_ptr(),
                    handles.as_mut_ptr().cast(),
                ),
            }
        };
        self.mpi.check("decoding a datatype", code)?;
        let load = |nth| {
            // SAFETY: MPI has stored so many handles there.
            unsafe { self.mpi.dialect.load(handles.as_ptr().cast(), nth) }
        };
        contents.types = (0..types).map(load).collect();
        Ok(contents)
    }

    /// Gives `sink` the predefined items of a type in the order of data, until it says that it has
    /// enough.
    fn visit(&self, handle: Handle, sink: &mut dyn FnMut(Handle) -> Result<bool>) -> Result<bool> {
        let contents = self.contents(handle)?;
        if contents.combiner.is_predefined() {
            return sink(handle);
        }
        // How many of each old type there are is what a type of one byte would have.
        let one = |_: usize| Ok(Type::byte());
        let visited = match contents.combiner {
            Combiner::Struct => {
                let numbers = &mut Numbers::of(&contents);
                let count = exact::<usize>(natural(numbers.count()?)?);
                let lengths = numbers.several(count, Numbers::count)?;
                let mut goes_on = Ok(true);
                for (length, old) in lengths.into_iter().zip(&contents.types) {
                    goes_on = goes_on.and_then(|goes_on| match goes_on {
                        true => self.visit_several(*old, natural(length)?, sink),
                        false => Ok(false),
                    });
                }
                goes_on
            }
            _ => {
                let count = self.derived(&contents, &one).map(|flat| flat.items);
                let old = contents
                    .types
                    .first()
                    .ok_or_else(|| unknown("too few types"));
                old.and_then(|&old| self.visit_several(old, count?, sink))
            }
        };
        contents.types.iter().for_each(|&old| self.release(old));
        visited
    }

    fn visit_several(
        &self,
        handle: Handle,
        count: u64,
        sink: &mut dyn FnMut(Handle) -> Result<bool>,
    ) -> Result<bool> {
        for _ in 0..count {
            if !self.visit(handle, sink)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A predefined type.
    fn predefined(&self, handle: Handle) -> Result<Type> {
        if let Some(size) = self.representation.bytes(self.mpi, handle)? {
            return Ok(Type {
                tree: Tree::run(size),
                lower: 0,
                extent: size as i64,
                items: 1,
            });
        }
        let (mut size, mut lower, mut extent) = (0, 0, 0);
        // SAFETY: out-parameters live across the calls.
        let code = unsafe {
            match (self.mpi.call.type_size)(handle, &mut size) {
                0 => (self.mpi.call.type_get_extent)(handle, &mut lower, &mut extent),
                code => code,
            }
        };
        self.mpi.check("reading the size of a datatype", code)?;
        let bytes = natural(size)?;
        let tree = match size == extent {
            true => Tree::run(bytes),
            false => self.pair(handle, bytes)?,
        };
        Ok(Type {
            tree,
            lower,
            extent,
            items: 1,
        })
    }

    /// A pair of a value and an `int`, such as `MPI_DOUBLE_INT`: both lie where a C compiler puts
    /// them.
    fn pair(&self, handle: Handle, size: u64) -> Result<Tree> {
        const INT: u64 = size_of::<c_int>() as u64;
        let value = size.checked_sub(INT).filter(|&value| value > 0);
        let value = value.ok_or_else(|| {
            let mut name = [0 as c_char; 512];
            let mut bytes = 0;
            // SAFETY: there is room for the longest name of any ABI.
            let _ = unsafe { (self.mpi.call.type_get_name)(handle, name.as_mut_ptr(), &mut bytes) };
            // SAFETY: the text is zero behind what the library has written.
            let name = unsafe { CStr::from_ptr(name.as_ptr()) }
                .to_string_lossy()
                .into_owned();
            unknown(&format!("{name} has gaps that are not known"))
        })?;
        let place = value.next_multiple_of(INT);
        Ok(Tree::runs([(0, value), (place as i64, INT)]))
    }

    /// A type of these contents, whose old types `old` gives by their numbers.
    fn derived(&self, contents: &Contents, old: &dyn Fn(usize) -> Result<Type>) -> Result<Type> {
        let numbers = &mut Numbers::of(contents);
        match contents.combiner {
            Combiner::Named | Combiner::Parametrized | Combiner::ValueIndex => {
                Err(unknown("a predefined type"))
            }
            Combiner::Dup => old(0),
            Combiner::Contiguous => {
                let old = old(0)?;
                Ok(old.repeated(natural(numbers.count()?)?, old.extent))
            }
            Combiner::Vector | Combiner::Hvector => {
                let old = old(0)?;
                let (count, length) = (natural(numbers.count()?)?, natural(numbers.count()?)?);
                let stride = match contents.combiner {
                    Combiner::Vector => numbers.count()? * old.extent,
                    _ => numbers.address()?,
                };
                Ok(old.repeated(length, old.extent).repeated(count, stride))
            }
            Combiner::Indexed | Combiner::Hindexed => {
                let old = old(0)?;
                let count = exact::<usize>(natural(numbers.count()?)?);
                let lengths = numbers.several(count, Numbers::count)?;
                let places = match contents.combiner {
                    Combiner::Indexed => {
                        numbers.several(count, |from| Ok(from.count()? * old.extent))
                    }
                    _ => numbers.several(count, Numbers::address),
                }?;
                let blocks = places.iter().zip(lengths);
                let blocks = blocks.map(|(&place, length)| Ok((place, natural(length)?)));
                Ok(blocks_of(&old, &blocks.collect::<Result<Vec<_>>>()?))
            }
            Combiner::IndexedBlock | Combiner::HindexedBlock => {
                let old = old(0)?;
                let (count, length) = (natural(numbers.count()?)?, natural(numbers.count()?)?);
                let places = match contents.combiner {
                    Combiner::IndexedBlock => numbers
                        .several(exact::<usize>(count), |from| Ok(from.count()? * old.extent)),
                    _ => numbers.several(exact::<usize>(count), Numbers::address),
                }?;
                let blocks: Vec<_> = places.iter().map(|&place| (place, length)).collect();
                Ok(blocks_of(&old, &blocks))
            }
            Combiner::Struct => {
                let count = exact::<usize>(natural(numbers.count()?)?);
                let lengths = numbers.several(count, Numbers::count)?;
                let places = numbers.several(count, Numbers::address)?;
                let parts = lengths.into_iter().zip(places).enumerate();
                let parts = parts.map(|(nth, (length, place))| {
                    let old = old(nth)?;
                    Ok(old.repeated(natural(length)?, old.extent).shifted(place))
                });
                Ok(Type::sequence(parts.collect::<Result<_>>()?))
            }
            Combiner::Subarray => self.subarray(&old(0)?, numbers),
            Combiner::Darray => self.darray(&old(0)?, numbers),
            Combiner::Resized => {
                let (lower, extent) = (numbers.address()?, numbers.address()?);
                Ok(Type {
                    lower,
                    extent,
                    ..old(0)?
                })
            }
        }
    }

    fn subarray(&self, old: &Type, numbers: &mut Numbers<'_>) -> Result<Type> {
        let dims = exact::<usize>(natural(numbers.small()?.into())?);
        let sizes = numbers.several(dims, Numbers::count)?;
        let subsizes = numbers.several(dims, Numbers::count)?;
        let starts = numbers.several(dims, Numbers::count)?;
        let order = numbers.small()?;
        let parts = subsizes.iter().zip(&starts);
        let parts =
            parts.map(|(&count, &start)| Ok(Indices::block(natural(start)?, natural(count)?)));
        Ok(part_of_array(
            old,
            &sizes,
            &parts.collect::<Result<Vec<_>>>()?,
            self.is_fortran(order),
        ))
    }

    fn darray(&self, old: &Type, numbers: &mut Numbers<'_>) -> Result<Type> {
        let (size, rank) = (numbers.small()?, numbers.small()?);
        let dims = exact::<usize>(natural(numbers.small()?.into())?);
        let sizes = numbers.several(dims, Numbers::count)?;
        let distributions = numbers.several(dims, Numbers::small)?;
        let arguments = numbers.several(dims, Numbers::small)?;
        let processes = numbers.several(dims, Numbers::small)?;
        let order = numbers.small()?;
        // The ranks are in the grid as C counts, whatever the order of the array.
        let (mut rank, mut all) = (i64::from(rank), i64::from(size));
        let mut parts = Vec::with_capacity(dims);
        for d in 0..dims {
            let along = i64::from(processes[d]).max(1);
            all /= along;
            let place = rank / all.max(1);
            rank %= all.max(1);
            let distribution = (distributions[d], i64::from(arguments[d]));
            parts.push(self.distributed(sizes[d], distribution, along, place)?);
        }
        Ok(part_of_array(old, &sizes, &parts, self.is_fortran(order)))
    }

    /// Whether the first dimension of an array is the fastest.
    fn is_fortran(&self, order: c_int) -> bool {
        order == self.mpi.dialect.order_fortran
    }

    /// The indices that one of `along` processes has of `size`, at this place in the grid.
    fn distributed(
        &self,
        size: i64,
        (distribution, argument): (c_int, i64),
        along: i64,
        place: i64,
    ) -> Result<Indices> {
        let [block, cyclic, default] = self.mpi.dialect.distribute;
        let argument = (argument != i64::from(default)).then_some(argument);
        let (along, place) = (natural(along)?, natural(place)?);
        let size = natural(size)?;
        if distribution == block {
            let length = match argument {
                Some(length) => natural(length)?,
                None => size.div_ceil(along),
            };
            let first = place.saturating_mul(length).min(size);
            return Ok(Indices::block(first, (size - first).min(length)));
        }
        if distribution == cyclic {
            let length = natural(argument.unwrap_or(1))?.max(1);
            return Ok(Indices::cyclic(length, place, along, size));
        }
        Ok(Indices::block(0, size))
    }
}
