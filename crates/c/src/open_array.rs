//! Arrays that stay open: `penstock_open_array`.

use std::ffi::{CString, c_char, c_int};
use std::sync::Arc;

use penstock_arrays::calls::{ArrayPart, OpenArray as Opened};
use penstock_arrays::{ArraySchema, Storage};
use penstock_engine::{Operation, Result};
use penstock_layout::Region;

use crate::array::Array;
use crate::border::{Many, Place, Text, c_text, enter, needed};
use crate::list::{self, List};
use crate::local::{Locals, Memory, Report, is_true};
use crate::session::{Session, Shared};

/// `penstock_open_array`.
pub struct OpenArray {
    session: Arc<Shared>,
    opened: Opened,
    name: CString,
    dtype: CString,
}

impl OpenArray {
    fn schema(&self) -> ArraySchema {
        let (name, shape) = (self.opened.name(), self.opened.shape());
        ArraySchema::new(name, shape, self.opened.element().clone(), Storage::Natural)
    }

    /// Moves a box between the servers and a local array.
    fn move_box(
        &self,
        operation: Operation,
        start: Many<'_, u64>,
        shape: Many<'_, u64>,
        local: Option<&Memory<'_>>,
    ) -> Result<()> {
        let dims = self.opened.shape().len();
        let (start, shape) = (start.needed(dims, "start")?, shape.needed(dims, "shape")?);
        let local = needed(local, "the local array")?;
        let local = local.part(shape, self.opened.element())?;
        let part = ArrayPart::Box(Region {
            start: start.to_vec(),
            shape: shape.to_vec(),
        });
        self.session
            .alone(|calls| calls.move_part(&self.opened, operation, &part, local))
    }

    /// Moves the elements of a list between the servers and a local array.
    fn move_list(
        &self,
        operation: Operation,
        list: Option<&List>,
        places: Option<&List>,
        local: Option<&Memory<'_>>,
    ) -> Result<()> {
        let own = list::for_shape(self.opened.shape(), list, places)?;
        let local = needed(local, "the local array")?;
        let local = local.part(&own.local_shape(), self.opened.element())?;
        let part = ArrayPart::List(own);
        self.session
            .alone(|calls| calls.move_part(&self.opened, operation, &part, local))
    }

    /// Moves the parts of all ranks.
    fn move_all(
        &self,
        operation: Operation,
        array: Option<&Array>,
        locals: Locals<'_>,
    ) -> Result<Report> {
        let session = &self.session;
        let prepare = || {
            let array = needed(array, "the array")?;
            let parts = locals.parts(array, session.rank()?)?;
            Ok((array.call.clone(), parts))
        };
        let report = session.together(prepare, |calls, (array, parts)| {
            calls.move_together(&self.opened, operation, array, parts)
        })?;
        Ok(report.into())
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_open_array_open(
    session: Option<&Session>,
    path: Text<'_>,
    name: Text<'_>,
    is_writable: c_int,
    mut open: Place<'_, Option<Box<OpenArray>>>,
) -> c_int {
    enter(|| {
        open.put(None);
        let session = &needed(session, "the session")?.0;
        let prepare = || {
            open.check("the open array")?;
            Ok((session.path(path, "path")?, name.optional("name")?))
        };
        let opened = session.together(prepare, |calls, (path, name)| {
            calls.open_array(&path, name, is_true(is_writable))
        })?;
        open.put_handle(OpenArray {
            session: session.clone(),
            name: c_text(opened.name()),
            dtype: c_text(&opened.element().word()),
            opened,
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_open_array_name(open: Option<&OpenArray>) -> *const c_char {
    open.map_or(std::ptr::null(), |open| open.name.as_ptr())
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_open_array_dims(open: Option<&OpenArray>) -> usize {
    open.map_or(0, |open| open.opened.shape().len())
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_open_array_shape(open: Option<&OpenArray>) -> *const u64 {
    open.map_or(std::ptr::null(), |open| open.opened.shape().as_ptr())
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_open_array_dtype(open: Option<&OpenArray>) -> *const c_char {
    open.map_or(std::ptr::null(), |open| open.dtype.as_ptr())
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_open_array_read(
    open: Option<&OpenArray>,
    start: Many<'_, u64>,
    shape: Many<'_, u64>,
    local: Option<&Memory<'_>>,
) -> c_int {
    enter(|| needed(open, "the open array")?.move_box(Operation::Read, start, shape, local))
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_open_array_write(
    open: Option<&OpenArray>,
    start: Many<'_, u64>,
    shape: Many<'_, u64>,
    local: Option<&Memory<'_>>,
) -> c_int {
    enter(|| needed(open, "the open array")?.move_box(Operation::Write, start, shape, local))
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_open_array_read_list(
    open: Option<&OpenArray>,
    list: Option<&List>,
    places: Option<&List>,
    local: Option<&Memory<'_>>,
) -> c_int {
    enter(|| needed(open, "the open array")?.move_list(Operation::Read, list, places, local))
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_open_array_write_list(
    open: Option<&OpenArray>,
    list: Option<&List>,
    places: Option<&List>,
    local: Option<&Memory<'_>>,
) -> c_int {
    enter(|| needed(open, "the open array")?.move_list(Operation::Write, list, places, local))
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_open_array_read_all(
    open: Option<&OpenArray>,
    array: Option<&Array>,
    count: usize,
    locals: Many<'_, Memory<'_>>,
    mut report: Place<'_, Report>,
) -> c_int {
    enter(|| {
        let locals = Locals::Several(count, locals);
        report.put(needed(open, "the open array")?.move_all(Operation::Read, array, locals)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_open_array_write_all(
    open: Option<&OpenArray>,
    array: Option<&Array>,
    count: usize,
    locals: Many<'_, Memory<'_>>,
    mut report: Place<'_, Report>,
) -> c_int {
    enter(|| {
        let locals = Locals::Several(count, locals);
        report.put(needed(open, "the open array")?.move_all(Operation::Write, array, locals)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_open_array_schema(
    open: Option<&OpenArray>,
    mut array: Place<'_, Option<Box<Array>>>,
) -> c_int {
    enter(|| {
        array.put(None);
        array.check("the array")?;
        array.put_handle(Array::stored(needed(open, "the open array")?.schema()));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_open_array_flush(open: Option<&OpenArray>) -> c_int {
    enter(|| {
        let open = needed(open, "the open array")?;
        open.session.alone(|calls| calls.flush_array(&open.opened))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_open_array_close(open: Option<Box<OpenArray>>) -> c_int {
    enter(|| {
        let Some(mut open) = open else {
            return Ok(());
        };
        if open.session.is_closed() {
            return Ok(()); // the session has closed the array
        }
        open.session
            .alone(|calls| calls.close_array(&mut open.opened))
    })
}
