//! All that is done with files beside reading and writing.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use penstock_machines::mpi::abi::Handle;

use crate::access::Datatype;
use crate::ask::Ask;
use crate::context::lock;
use crate::failure::{Class, Result, wrong};
use crate::file::File;
use crate::mpi::Mpi;
use crate::representation::{Converter, ExtentOf, Registered, Representation};
use crate::storage::Name;
use crate::types;

/// Deletes a file.
///
/// # Errors
/// What the operating system answers.
pub fn delete(name: &str) -> Result<()> {
    Name::read(name)?.delete()
}

/// A size that a program gives.
fn size(function: &str, bytes: i64) -> Result<u64> {
    let bytes_given = u64::try_from(bytes);
    bytes_given.map_err(|_| wrong(Class::Arg, format_args!("{function}: {bytes} bytes")))
}

fn check_writes(file: &File, function: &str) -> Result<()> {
    match file.mode.writes {
        true => Ok(()),
        false => {
            let cause = format!("{function}: the file was opened with MPI_MODE_RDONLY");
            Err(wrong(Class::ReadOnly, cause))
        }
    }
}

/// Refuses a call that looks at a pointer of a sequential file, or moves it.
///
/// # Errors
/// [`Class::UnsupportedOperation`].
pub fn refuse_sequential(file: &File, function: &str) -> Result<()> {
    match file.mode.sequential {
        false => Ok(()),
        true => {
            let cause = format!("{function}: the file was opened with MPI_MODE_SEQUENTIAL");
            Err(wrong(Class::UnsupportedOperation, cause))
        }
    }
}

/// Sets the bytes of a file.
///
/// # Errors
/// The same on all ranks.
///
/// # Collective
/// Over the ranks of the file.
pub fn set_size(file: &Arc<File>, bytes: i64) -> Result<()> {
    let function = "MPI_File_set_size";
    let said = check_writes(file, function).and_then(|()| size(function, bytes));
    let own = file.clone();
    file.meet(Ask::SetSize { bytes }, said, move |sizes: Vec<u64>| {
        own.storage.set_size(sizes[0])
    })
}

/// Reserves space for the bytes of a file.
///
/// # Errors
/// The same on all ranks.
///
/// # Collective
/// Over the ranks of the file.
pub fn preallocate(file: &Arc<File>, bytes: i64) -> Result<()> {
    let function = "MPI_File_preallocate";
    let said = check_writes(file, function).and_then(|()| size(function, bytes));
    let own = file.clone();
    file.meet(Ask::Preallocate { bytes }, said, move |sizes: Vec<u64>| {
        if sizes[0] == 0 {
            return Ok(());
        }
        own.storage.reserve(sizes[0])
    })
}

/// Gives hints.
///
/// # Errors
/// The same on all ranks.
///
/// # Collective
/// Over the ranks of the file.
pub fn set_info(file: &File, info: Handle) -> Result<()> {
    let mut hints = lock(&file.hints).clone();
    let taken = file.mpi.info(info).and_then(|info| hints.take(&info));
    file.meet(Ask::SetInfo, taken, |_: Vec<()>| Ok(()))?;
    *lock(&file.hints) = hints;
    Ok(())
}

/// Sets this rank's view.
///
/// # Errors
/// The same on all ranks.
///
/// # Collective
/// Over the ranks of the file.
pub fn set_view(
    file: &Arc<File>,
    displacement: i64,
    types: (Handle, Handle),
    name: Result<String>,
    info: Handle,
) -> Result<()> {
    let mut hints = lock(&file.hints).clone();
    let is_current = displacement == file.mpi.dialect.displacement_current;
    let made = (|| {
        hints.take(&file.mpi.info(info)?)?;
        let displacement = match (is_current, file.mode.sequential) {
            (false, false) => displacement,
            (false, true) => {
                let cause = "setting a view: a file opened with MPI_MODE_SEQUENTIAL takes no \
                             displacement but MPI_DISPLACEMENT_CURRENT";
                return Err(wrong(Class::Arg, cause));
            }
            (true, true) => {
                let view = lock(&file.cursor).view.clone();
                view.place(view.data_at(file.shared.advance(0)?)?)
            }
            (true, false) => {
                let cause = "setting a view: MPI_DISPLACEMENT_CURRENT is for files opened with \
                             MPI_MODE_SEQUENTIAL";
                return Err(wrong(Class::Arg, cause));
            }
        };
        let representation = Representation::named(&name?)?;
        file.make_view(displacement, types, representation)
    })();
    let said = made.as_ref().map_err(Clone::clone).map(|cursor| {
        let (view, name) = (&cursor.view, cursor.view.representation.name().to_string());
        (name, view.etype_extent, view.etype_bytes)
    });
    let own = file.clone();
    file.meet(Ask::SetView, said, move |all: Vec<(String, i64, u64)>| {
        let other = all.iter().position(|one| *one != all[0]);
        match other {
            None => own.shared.set_pointer(0),
            Some(rank) => Err(wrong(Class::NotSame, difference(&all[0], rank, &all[rank]))),
        }
    })?;
    *lock(&file.cursor) = made?;
    *lock(&file.hints) = hints;
    Ok(())
}

/// Says for people in what the views of ranks 0 and `rank` differ: representation, extent and bytes
/// of the elementary type.
fn difference(first: &(String, i64, u64), rank: usize, other: &(String, i64, u64)) -> String {
    let of = |(name, extent, bytes): &(String, i64, u64)| {
        format!("\"{name}\" and elementary types of extent {extent} and {bytes} bytes")
    };
    format!(
        "setting a view: rank 0 gives {}, rank {rank} {}",
        of(first),
        of(other)
    )
}

/// The place to which a pointer is moved, in elementary types.
fn target(file: &File, before: i64, offset: i64, whence: c_int) -> Result<i64> {
    let seek = &file.mpi.dialect.seek;
    let from = if whence == seek.set {
        0
    } else if whence == seek.current {
        before
    } else if whence == seek.end {
        let view = lock(&file.cursor).view.clone();
        view.offset_of_end(file.size()?)
    } else {
        return Err(wrong(
            Class::Arg,
            format_args!("moving a pointer: whence is {whence}"),
        ));
    };
    let target = from.checked_add(offset).filter(|target| *target >= 0);
    target.ok_or_else(|| {
        wrong(
            Class::Arg,
            format_args!("moving a pointer: from {from} by {offset}"),
        )
    })
}

/// Moves the pointer of this rank.
///
/// # Errors
/// [`Class::Arg`] when that is before the beginning.
pub fn seek(file: &File, offset: i64, whence: c_int) -> Result<()> {
    refuse_sequential(file, "MPI_File_seek")?;
    let before = lock(&file.cursor).pointer;
    let target = target(file, before, offset, whence)?;
    lock(&file.cursor).pointer = target;
    Ok(())
}

/// Moves the shared pointer.
///
/// # Errors
/// The same on all ranks.
///
/// # Collective
/// Over the ranks of the file.
pub fn seek_shared(file: &Arc<File>, offset: i64, whence: c_int) -> Result<()> {
    refuse_sequential(file, "MPI_File_seek_shared")?;
    let own = file.clone();
    file.meet(
        Ask::SeekShared { offset, whence },
        Ok(()),
        move |_: Vec<()>| {
            let target = target(&own, own.shared.advance(0)?, offset, whence)?;
            own.shared.set_pointer(target)
        },
    )
}

/// The extent of a datatype in a file.
///
/// # Errors
/// When it is none.
pub fn extent(file: &File, datatype: Handle) -> Result<i64> {
    let datatype = file.mpi.dialect.handle(datatype);
    let view = lock(&file.cursor).view.clone();
    Ok(types::in_file(file.mpi, datatype, &view.representation)?.extent)
}

/// Sets atomic mode.
///
/// # Errors
/// The same on all ranks.
///
/// # Collective
/// Over the ranks of the file.
pub fn set_atomicity(file: &File, is_atomic: bool) -> Result<()> {
    file.meet(Ask::SetAtomicity { is_atomic }, Ok(()), |_: Vec<()>| Ok(()))?;
    file.set_atomic(is_atomic);
    Ok(())
}

/// Puts what was written on stable storage.
///
/// # Errors
/// The same on all ranks.
///
/// # Collective
/// Over the ranks of the file.
pub fn sync(file: &Arc<File>) -> Result<()> {
    let fsync = |file: &File| match file.mode.writes {
        true => file.storage.sync(),
        false => Ok(()),
    };
    let own = file.clone();
    // Nobody writes any more once all have come.
    file.meet(Ask::Sync, Ok(()), move |_: Vec<()>| fsync(&own))?;
    if let Some(machine) = &file.context.machine
        && !machine.is_on_one_host()
    {
        // Each host has a cache of its own.
        let is_first = machine.hosts[file.context.rank] == file.context.rank;
        let synced = if is_first { fsync(file) } else { Ok(()) };
        file.meet(Ask::Proceed, synced, |_: Vec<()>| Ok(()))?;
    }
    Ok(())
}

/// A handle for the program, which frees it: a duplicate of a derived datatype.
///
/// # Errors
/// What MPI answers.
pub fn duplicate(mpi: &'static Mpi, handle: Handle) -> Result<Handle> {
    Ok(Datatype::keep(mpi, handle)?.into_handle())
}

/// Registers a data representation.
///
/// # Errors
/// As of [`Representation::register`].
pub fn register(
    name: String,
    read: Converter,
    write: Converter,
    (extent, state): (ExtentOf, *mut c_void),
) -> Result<()> {
    Representation::register(Registered {
        name,
        read,
        write,
        extent,
        state: state as usize,
    })
}

/// The integer of a handle.
pub fn integer_of(handle: usize) -> c_int {
    let null = Mpi::get().map_or(0, |mpi| mpi.dialect.file_null);
    match handle == null {
        true => 0,
        false => c_int::try_from(handle).unwrap_or(-1),
    }
}

/// The handle of an integer.
pub fn handle_of(integer: c_int) -> usize {
    match usize::try_from(integer) {
        Ok(handle) if handle > 0 => handle,
        _ => Mpi::get().map_or(0, |mpi| mpi.dialect.file_null),
    }
}
