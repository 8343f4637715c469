//! Datatypes: what they were made of, and where their bytes lie.
//!
//! Each constructor becomes a [`Tree`]; subarrays and distributed arrays become nested loops.
//!
//! A type has a place in memory and, in a view, in a file. In a file the predefined types have the
//! sizes of the data representation, and what is counted in extents grows with them (MPI 5.0,
//! section 14.5.1): so a type is flattened for a [`Representation`].
//!
//! What was flattened for memory is kept with the datatype, as an attribute, and goes with it.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use penstock_layout::exact;
use penstock_machines::mpi::abi::Handle;
use rustc_hash::FxHashMap;

use crate::abi::Combiner;
use crate::contents::{self, Contents, Numbers, natural, unknown};
use crate::dimensions::{Indices, part_of_array};
use crate::failure::{Class, Result, wrong};
use crate::flat::{Type, blocks_of};
use crate::items::{Item, Items};
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
    Ok(contents::combiner(mpi, handle)?.is_predefined())
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
/// The error of a function of the representation.
pub fn memory_bytes(
    mpi: &Mpi,
    datatype: &Type,
    representation: &Representation,
    packed: u64,
) -> Result<u64> {
    let (mut rest, mut bytes) = (packed, 0);
    for (item, count) in datatype.items.iter() {
        let in_file = representation
            .bytes(mpi, item.handle)?
            .unwrap_or(item.bytes);
        let whole = rest.checked_div(in_file).unwrap_or(count).min(count);
        bytes += whole * item.bytes;
        rest -= whole * in_file;
        if whole < count {
            if in_file == item.bytes {
                bytes += rest; // the beginning of an item
            }
            break;
        }
    }
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

/// The places of `count` blocks: in extents of the old type, or in bytes.
fn places<'a>(
    combiner: Combiner,
    old: &Type,
    count: usize,
    numbers: &mut Numbers<'a>,
) -> Result<impl Iterator<Item = i64> + Clone + use<'a>> {
    let (next, unit): (fn(&mut Numbers<'a>) -> Result<i64>, _) = match combiner {
        Combiner::Indexed | Combiner::IndexedBlock => (Numbers::count, old.extent),
        _ => (Numbers::address, 1),
    };
    Ok(numbers.each(count, next)?.map(move |place| place * unit))
}

/// Flattens types for one representation.
struct Flattening<'a> {
    mpi: &'a Mpi,
    representation: &'a Representation,
}

impl Flattening<'_> {
    /// The flattened type, and whether it is a predefined one.
    fn flatten(&self, handle: Handle) -> Result<(Type, bool)> {
        let contents = contents::contents(self.mpi, handle)?;
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
        let combiner = contents::combiner(self.mpi, handle);
        if !combiner.is_ok_and(Combiner::is_predefined) {
            let mut handle = handle;
            // SAFETY: the handle is of this library, and nobody else has it. There is nobody to
            // tell of a failure.
            let _ = unsafe { (self.mpi.call.type_free)((&raw mut handle).cast()) };
        }
    }

    /// A predefined type.
    fn predefined(&self, handle: Handle) -> Result<Type> {
        let bytes = contents::data_bytes(self.mpi, handle)?;
        let items = Items::one(Item { handle, bytes });
        if let Some(size) = self.representation.bytes(self.mpi, handle)? {
            return Ok(Type {
                tree: Tree::run(size),
                lower: 0,
                extent: size as i64,
                items,
            });
        }
        let (mut lower, mut extent) = (0, 0);
        // SAFETY: out-parameters live across the call.
        let code = unsafe { (self.mpi.call.type_get_extent)(handle, &mut lower, &mut extent) };
        self.mpi.check("reading the extent of a datatype", code)?;
        let tree = match bytes as i64 == extent {
            true => Tree::run(bytes),
            false => self.pair(handle, bytes)?,
        };
        Ok(Type {
            tree,
            lower,
            extent,
            items,
        })
    }

    /// A pair of a value and an `int`, such as `MPI_DOUBLE_INT`: both lie where a C compiler puts
    /// them.
    fn pair(&self, handle: Handle, size: u64) -> Result<Tree> {
        const INT: u64 = size_of::<c_int>() as u64;
        let value = size.checked_sub(INT).filter(|&value| value > 0);
        let value = value.ok_or_else(|| {
            let name = contents::name(self.mpi, handle);
            unknown(&format!("{name} has gaps that are not known"))
        })?;
        let place = value.next_multiple_of(INT);
        Ok(Tree::runs([(0, value), (place as i64, INT)]))
    }

    /// A type of these contents, whose old types `old` gives by their numbers.
    fn derived(&self, contents: &Contents, old: &dyn Fn(usize) -> Result<Type>) -> Result<Type> {
        let numbers = &mut Numbers::of(contents);
        match contents.combiner {
            Combiner::Named
            | Combiner::Parametrized
            | Combiner::ParametrizedComplex
            | Combiner::ValueIndex => Err(unknown("a predefined type")),
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
                let lengths = numbers.each(count, |from| natural(from.count()?))?;
                let places = places(contents.combiner, &old, count, numbers)?;
                Ok(blocks_of(&old, places.zip(lengths)))
            }
            Combiner::IndexedBlock | Combiner::HindexedBlock => {
                let old = old(0)?;
                let count = exact::<usize>(natural(numbers.count()?)?);
                let length = natural(numbers.count()?)?;
                let places = places(contents.combiner, &old, count, numbers)?;
                Ok(blocks_of(&old, places.map(|place| (place, length))))
            }
            Combiner::Struct => {
                let count = exact::<usize>(natural(numbers.count()?)?);
                let lengths = numbers.several(count, Numbers::count)?;
                let places = numbers.several(count, Numbers::address)?;
                let parts = lengths.into_iter().zip(places).enumerate();
                let parts = parts.filter(|(_, (length, _))| *length != 0); // they have no bounds
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
