//! Subfiles, requests, and pointers that processes share.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use penstock_engine::{Operation, Result};
use penstock_files::job::{Moving, OpenView};
use penstock_files::{PointerId, Seek};

use super::Volume;
use super::attached::File;
use super::view::{ViewNumbers, memory_of, operation_of, order_of, version_of, view_of, wrong};
use super::volume::servers_of;
use crate::border::{Place, answer, enter, needed};

/// `penstock_subfile`.
pub struct Subfile {
    volume: Arc<Volume>,
    view: OpenView,
}

/// `penstock_request`.
pub struct Request {
    volume: Arc<Volume>,
    moving: Moving,
}

/// `penstock_pointer`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Pointer {
    pub server: u64,
    pub number: u64,
}

/// Does something with an open subfile.
fn with(subfile: Option<&Subfile>, act: impl FnOnce(&OpenView) -> Result<()>) -> c_int {
    enter(|| {
        let subfile = needed(subfile, "the subfile")?;
        subfile.volume.fs()?;
        act(&subfile.view)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_subfile_open(
    file: Option<&File>,
    view: Option<&ViewNumbers>,
    subfile: u64,
    order: c_int,
    of_checkpoint: c_int,
    pointer: Option<&Pointer>,
    mut open: Place<'_, Option<Box<Subfile>>>,
) -> c_int {
    enter(|| {
        open.check("the subfile")?;
        let file = needed(file, "the file")?;
        let pointer = pointer.map(|pointer| -> Result<PointerId> {
            Ok(PointerId {
                server: servers_of(pointer.server)?,
                number: pointer.number,
            })
        });
        let (view, order) = (view_of(view)?, order_of(order)?);
        let version = version_of(of_checkpoint);
        let pointer = pointer.transpose()?;
        open.put_handle(Subfile {
            volume: file.volume()?.clone(),
            view: file.file()?.open(view, subfile, order, version, pointer)?,
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_subfile_free(subfile: Option<Box<Subfile>>) {
    answer((), || drop(subfile));
}

/// A read or write at an offset, or at the pointer.
fn access(
    subfile: Option<&Subfile>,
    operation: Operation,
    offset: Option<u64>,
    (memory, bytes): (*mut c_void, usize),
    mut moved: Place<'_, u64>,
) -> c_int {
    with(subfile, |view| {
        let memory = memory_of(memory, bytes)?;
        let offset = match offset {
            Some(offset) => offset,
            None => view.advance(Seek::Here, bytes as u64)?,
        };
        moved.put(view.access(operation, offset, memory)?.bytes);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_subfile_read(
    subfile: Option<&Subfile>,
    memory: *mut c_void,
    bytes: usize,
    moved: Place<'_, u64>,
) -> c_int {
    access(subfile, Operation::Read, None, (memory, bytes), moved)
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_subfile_write(
    subfile: Option<&Subfile>,
    memory: *const c_void,
    bytes: usize,
    moved: Place<'_, u64>,
) -> c_int {
    let memory = (memory.cast_mut(), bytes);
    access(subfile, Operation::Write, None, memory, moved)
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_subfile_seek(
    subfile: Option<&Subfile>,
    offset: i64,
    whence: c_int,
    mut position: Place<'_, u64>,
) -> c_int {
    with(subfile, |view| {
        let seek = match (whence, u64::try_from(offset)) {
            (0, Ok(offset)) => Seek::At(offset),
            (0, Err(_)) => return Err(wrong(format!("there is no byte {offset}"))),
            (1, _) => Seek::By(offset),
            _ => {
                let cause = format!("{whence} is no PENSTOCK_SEEK_SET or PENSTOCK_SEEK_CUR");
                return Err(wrong(cause));
            }
        };
        position.put(view.advance(seek, 0)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_subfile_read_at(
    subfile: Option<&Subfile>,
    offset: u64,
    memory: *mut c_void,
    bytes: usize,
    moved: Place<'_, u64>,
) -> c_int {
    let memory = (memory, bytes);
    access(subfile, Operation::Read, Some(offset), memory, moved)
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_subfile_write_at(
    subfile: Option<&Subfile>,
    offset: u64,
    memory: *const c_void,
    bytes: usize,
    moved: Place<'_, u64>,
) -> c_int {
    let memory = (memory.cast_mut(), bytes);
    access(subfile, Operation::Write, Some(offset), memory, moved)
}

fn begin(
    subfile: Option<&Subfile>,
    operation: Operation,
    offset: u64,
    (memory, bytes): (*mut c_void, usize),
    mut request: Place<'_, Option<Box<Request>>>,
) -> c_int {
    enter(|| {
        request.check("the request")?;
        let subfile = needed(subfile, "the subfile")?;
        subfile.volume.fs()?;
        let memory = memory_of(memory, bytes)?;
        request.put_handle(Request {
            volume: subfile.volume.clone(),
            moving: subfile.view.begin(operation, offset, memory)?,
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_subfile_begin_read_at(
    subfile: Option<&Subfile>,
    offset: u64,
    memory: *mut c_void,
    bytes: usize,
    request: Place<'_, Option<Box<Request>>>,
) -> c_int {
    begin(subfile, Operation::Read, offset, (memory, bytes), request)
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_subfile_begin_write_at(
    subfile: Option<&Subfile>,
    offset: u64,
    memory: *const c_void,
    bytes: usize,
    request: Place<'_, Option<Box<Request>>>,
) -> c_int {
    let memory = (memory.cast_mut(), bytes);
    begin(subfile, Operation::Write, offset, memory, request)
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_request_test(
    request: Option<&Request>,
    mut has_ended: Place<'_, c_int>,
) -> c_int {
    enter(|| {
        has_ended.check("the answer")?;
        let request = needed(request, "the request")?;
        // After the end of the volume nothing is under way any more.
        let ended = request.volume.fs().is_err() || request.moving.has_ended();
        has_ended.put(c_int::from(ended));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_request_wait(
    request: Option<Box<Request>>,
    mut moved: Place<'_, u64>,
) -> c_int {
    enter(|| {
        let request = needed(request, "the request")?;
        request.volume.fs()?;
        moved.put(request.moving.end()?.bytes);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_subfile_share(
    subfile: Option<&Subfile>,
    mut pointer: Place<'_, Pointer>,
) -> c_int {
    with(subfile, |view| {
        pointer.check("the pointer")?;
        let PointerId { server, number } = view.share()?;
        pointer.put(Pointer {
            server: server as u64,
            number,
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_subfile_explain(
    subfile: Option<&Subfile>,
    is_write: c_int,
    offset: u64,
    bytes: u64,
    mut text: Place<'_, *mut c_char>,
) -> c_int {
    with(subfile, |view| {
        text.check("the text")?;
        let plan = view.explain(operation_of(is_write), (offset, bytes))?;
        text.put_text(&plan.to_string())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_subfile_prefetch(
    subfile: Option<&Subfile>,
    offset: u64,
    bytes: u64,
) -> c_int {
    with(subfile, |view| view.prefetch(offset, bytes))
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_subfile_flush(
    subfile: Option<&Subfile>,
    offset: u64,
    bytes: u64,
) -> c_int {
    with(subfile, |view| view.flush(offset, bytes))
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_subfile_sync(subfile: Option<&Subfile>) -> c_int {
    with(subfile, OpenView::sync)
}
