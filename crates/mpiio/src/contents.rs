//! Contents: what MPI says of how a datatype was made.
//!
//! `MPI_Type_get_envelope` and `MPI_Type_get_contents` give a constructor and its arguments, the
//! numbers in up to three lists. [`Numbers`] hands them out in the order of the arguments.

use std::ffi::{CStr, c_char, c_int};

use penstock_layout::exact;
use penstock_machines::mpi::abi::Handle;

use crate::abi::Combiner;
use crate::failure::{Class, Failure, Result, wrong};
use crate::mpi::Mpi;

/// How a datatype was made.
///
/// # Errors
/// What MPI answers; when Penstock does not know the constructor.
pub fn combiner(mpi: &Mpi, handle: Handle) -> Result<Combiner> {
    Ok(envelope(mpi, handle)?.0)
}

/// The name of a datatype, or nothing.
pub fn name(mpi: &Mpi, handle: Handle) -> String {
    let (mut name, mut bytes) = ([0 as c_char; 512], 0);
    // SAFETY: there is room for the longest name of any ABI.
    let _ = unsafe { (mpi.call.type_get_name)(handle, name.as_mut_ptr(), &mut bytes) };
    // SAFETY: the text is zero behind what the library has written.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) };
    name.to_string_lossy().into_owned()
}

/// The bytes of data of a datatype in memory.
///
/// # Errors
/// What MPI answers.
pub fn data_bytes(mpi: &Mpi, handle: Handle) -> Result<u64> {
    let mut bytes = 0;
    // SAFETY: the out-parameter lives across the call.
    let code = unsafe { (mpi.call.type_size)(handle, &mut bytes) };
    mpi.check("reading the size of a datatype", code)?;
    natural(bytes)
}

/// What a datatype was made of.
pub struct Contents {
    pub combiner: Combiner,
    integers: Vec<c_int>,
    addresses: Vec<isize>,
    counts: Vec<i64>,
    pub types: Vec<Handle>,
}

/// The integers of the contents of a type, some of which large counts have in another list.
#[derive(Clone)]
pub struct Numbers<'a> {
    integers: std::slice::Iter<'a, c_int>,
    addresses: std::slice::Iter<'a, isize>,
    counts: std::slice::Iter<'a, i64>,
    /// Whether counts and displacements are in `counts`.
    is_large: bool,
}

impl<'a> Numbers<'a> {
    /// The numbers of contents.
    pub fn of(contents: &'a Contents) -> Self {
        Self {
            integers: contents.integers.iter(),
            addresses: contents.addresses.iter(),
            counts: contents.counts.iter(),
            is_large: !contents.counts.is_empty(),
        }
    }

    /// A number that is an `int` in all forms.
    ///
    /// # Errors
    /// When there are no more.
    pub fn small(&mut self) -> Result<c_int> {
        self.integers
            .next()
            .copied()
            .ok_or_else(|| unknown("too few integers"))
    }

    /// A count, or a displacement in extents.
    ///
    /// # Errors
    /// When there are no more.
    pub fn count(&mut self) -> Result<i64> {
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
    ///
    /// # Errors
    /// When there are no more.
    pub fn address(&mut self) -> Result<i64> {
        match self.is_large {
            true => self.count(),
            false => {
                let next = self.addresses.next().copied();
                next.map(|next| next as i64)
                    .ok_or_else(|| unknown("too few addresses"))
            }
        }
    }

    /// Several numbers of one kind, each read when it is wanted: there may be millions.
    ///
    /// # Errors
    /// When there are too few, or one is wrong.
    pub fn each<T>(
        &mut self,
        count: usize,
        next: fn(&mut Self) -> Result<T>,
    ) -> Result<impl Iterator<Item = T> + Clone + use<'a, T>> {
        let mut from = self.clone();
        (0..count).try_for_each(|_| next(self).map(drop))?;
        Ok((0..count).filter_map(move |_| next(&mut from).ok())) // all are right, as was seen
    }

    /// A few numbers of one kind.
    ///
    /// # Errors
    /// When there are too few.
    pub fn several<T>(
        &mut self,
        count: usize,
        mut next: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        (0..count).map(|_| next(self)).collect()
    }
}

/// The failure to decode a datatype.
pub fn unknown(cause: &str) -> Failure {
    wrong(
        Class::Type,
        format_args!("a datatype cannot be decoded: {cause}"),
    )
}

/// A number that must not be below 0.
///
/// # Errors
/// When it is.
pub fn natural(number: i64) -> Result<u64> {
    u64::try_from(number).map_err(|_| unknown("a count below 0"))
}

/// The combiner, and the numbers of integers, addresses, counts and types.
fn envelope(mpi: &Mpi, handle: Handle) -> Result<(Combiner, [usize; 4])> {
    let (code, combiner, numbers) = match &mpi.large {
        Some(large) => {
            let (mut numbers, mut combiner) = ([0i64; 4], 0);
            let [integers, addresses, counts, types] = &mut numbers;
            // SAFETY: out-parameters live across the call.
            let code = unsafe {
                (large.type_get_envelope)(handle, integers, addresses, counts, types, &mut combiner)
            };
            (code, combiner, numbers)
        }
        None => {
            let (mut numbers, mut combiner) = ([0; 3], 0);
            let [integers, addresses, types] = &mut numbers;
            // SAFETY: out-parameters live across the call.
            let code = unsafe {
                (mpi.call.type_get_envelope)(handle, integers, addresses, types, &mut combiner)
            };
            let [integers, addresses, types] = numbers.map(i64::from);
            (code, combiner, [integers, addresses, 0, types])
        }
    };
    mpi.check("decoding a datatype", code)?;
    let known = mpi.dialect.combiner(combiner);
    let combiner = known.ok_or_else(|| unknown("its constructor is not known"))?;
    Ok((
        combiner,
        numbers.map(|number| usize::try_from(number).unwrap_or(0)),
    ))
}

/// What a datatype was made of.
///
/// # Errors
/// As [`combiner`].
pub fn contents(mpi: &Mpi, handle: Handle) -> Result<Contents> {
    let (combiner, [integers, addresses, counts, types]) = envelope(mpi, handle)?;
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
        match &mpi.large {
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
            None => (mpi.call.type_get_contents)(
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
    mpi.check("decoding a datatype", code)?;
    let load = |nth| {
        // SAFETY: MPI has stored so many handles there.
        unsafe { mpi.dialect.load(handles.as_ptr().cast(), nth) }
    };
    contents.types = (0..types).map(load).collect();
    Ok(contents)
}
