//! Accesses: one read or write of one rank, and how its data are moved.
//!
//! ```text
//! data of the access     0 .. bytes, as they lie in the file's representation
//! in the file            the data of the view from the access's offset on
//! in memory              the data of the instances of a datatype, or a packed buffer of them
//! ```

use std::ops::Range;
use std::sync::Arc;

use penstock_engine::Operation;
use penstock_files::Selection;
use penstock_layout::{Holding, List, exact};
use penstock_machines::mpi::abi::Handle;

use crate::context::Own;
use crate::external32::Way;
use crate::failure::{Class, Result, wrong};
use crate::memory::Memory;
use crate::mpi::Mpi;
use crate::plan::{SERIES_MAX, Touch};
use crate::shared::Shared;
use crate::storage::Storage;
use crate::types;
use crate::view::View;

/// One read or write of one rank.
pub struct Access {
    operation: Operation,
    view: Arc<View>,
    /// The data of the view.
    data: Range<u64>,
    /// Where the data are, in the representation of the file.
    memory: Memory,
    /// The buffer of packed items, where the representation is not that of memory.
    packed: Option<Packed>,
}

/// A buffer of packed items, and the program's memory.
struct Packed {
    mpi: &'static Mpi,
    items: Vec<u8>,
    memory: Memory,
    datatype: Datatype,
    /// The bytes of an instance of the datatype in the file.
    instance_bytes: u64,
}

/// A handle of a datatype that stays valid: a duplicate of a derived one, which is freed when this
/// is dropped.
pub struct Datatype {
    mpi: &'static Mpi,
    pub handle: Handle,
    is_own: bool,
}

impl Datatype {
    /// Keeps a datatype.
    ///
    /// # Errors
    /// What MPI answers.
    pub fn keep(mpi: &'static Mpi, handle: Handle) -> Result<Self> {
        if types::is_predefined(mpi, handle)? {
            return Ok(Self {
                mpi,
                handle,
                is_own: false,
            });
        }
        let mut own: Handle = 0;
        // SAFETY: the out-parameter has room for a handle of any ABI.
        let code = unsafe { (mpi.call.type_dup)(handle, (&raw mut own).cast()) };
        mpi.check("keeping a datatype", code)?;
        Ok(Self {
            mpi,
            handle: own,
            is_own: true,
        })
    }
}

impl Datatype {
    /// The handle, which the caller now frees if it is no predefined one.
    pub fn into_handle(mut self) -> Handle {
        self.is_own = false;
        self.handle
    }
}

impl Drop for Datatype {
    fn drop(&mut self) {
        if self.is_own && self.mpi.is_usable() {
            // SAFETY: nobody else has the duplicate. There is nobody to tell of a failure.
            let _ = unsafe { (self.mpi.call.type_free)((&raw mut self.handle).cast()) };
        }
    }
}

/// The arguments of an access that say where its data are in memory.
#[derive(Debug, Clone, Copy)]
pub struct Buffer {
    pub address: usize,
    pub count: i64,
    pub datatype: Handle,
}

impl Access {
    /// Makes an access to the data of a view from `at` on. A write in another representation is
    /// converted now.
    ///
    /// # Errors
    /// When an argument makes no sense; those of the conversion.
    pub fn new(
        mpi: &'static Mpi,
        operation: Operation,
        view: Arc<View>,
        at: u64,
        buffer: Buffer,
    ) -> Result<Self> {
        let datatype = types::in_memory(mpi, buffer.datatype)?;
        let memory = Memory::new(buffer.address, datatype, buffer.count)?;
        let (memory, packed) = match view.representation.is_native() {
            true => (memory, None),
            false => {
                let mut packed = Packed::new(mpi, memory, buffer.datatype, &view)?;
                if operation == Operation::Write {
                    packed.pack(&view)?;
                }
                let place = packed.items.as_mut_ptr() as usize;
                let bytes = packed.items.len() as u64;
                (Memory::packed(place, bytes), Some(packed))
            }
        };
        let bytes = memory.bytes();
        if view.etype_bytes > 0 && bytes % view.etype_bytes > 0 {
            let cause = format!(
                "an access to {bytes} bytes, in a view of elementary types of {}",
                view.etype_bytes
            );
            return Err(wrong(Class::Arg, cause));
        }
        let end = at
            .checked_add(bytes)
            .filter(|end| i64::try_from(*end).is_ok());
        let end = end.ok_or_else(|| wrong(Class::Arg, "an access beyond all numbers"))?;
        let data = match view.is_empty() {
            true => at..at, // a view without data: nothing is moved
            false => at..end,
        };
        Ok(Self {
            operation,
            view,
            data,
            memory,
            packed,
        })
    }

    /// Whether the access is a read or a write.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// The bytes of data in the file.
    pub fn bytes(&self) -> u64 {
        self.data.end - self.data.start
    }

    /// The elementary types of the data.
    pub fn etypes(&self) -> i64 {
        self.bytes().checked_div(self.view.etype_bytes).unwrap_or(0) as i64
    }

    /// Puts the access to the data of the view from `at` on.
    pub fn place_at(&mut self, at: u64) {
        self.data = at..at + self.bytes();
    }

    /// Leaves out what lies behind the end of the file.
    pub fn cut(&mut self, file_bytes: u64) {
        self.data.end = self.view.end_within(self.data.clone(), file_bytes);
    }

    /// The view.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// What the access touches of the file.
    pub fn touch(&self) -> Touch {
        touch(&self.view, &self.data, self.series_of_memory())
    }

    /// About how many series the data are in memory.
    pub fn series_of_memory(&self) -> u64 {
        self.memory.series(&self.data)
    }

    /// Moves the data by calls of the operating system. Gives the bytes of data that there were,
    /// before the end of the file in a read. With `atomic`, nobody else changes them meanwhile.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn alone(&self, file: &Storage, atomic: Option<&Shared>) -> Result<u64> {
        let is_write = self.operation == Operation::Write;
        let _claim = match atomic {
            Some(shared) if self.bytes() > 0 => {
                let bytes = self.view.bounds(self.data.clone());
                Some(shared.claim(&bytes, is_write)?)
            }
            _ => None,
        };
        // The operating system says where a file ends when it comes to it; elsewhere one must ask.
        let is_orderly = self.view.is_orderly();
        let end = match !is_write && (!is_orderly || file.volume().is_some()) {
            true => self.view.end_within(self.data.clone(), file.size()?),
            false => self.data.end,
        };
        let series = self
            .view
            .series(&self.data)
            .saturating_add(self.series_of_memory());
        let parts = match self.is_run() || !is_orderly {
            true => 1,
            false => series.div_ceil(SERIES_MAX).max(1),
        };
        let each = (end - self.data.start).div_ceil(parts).max(1);
        let (mut at, mut moved) = (self.data.start, 0);
        while at < end {
            let part = at..(at + each).min(end);
            let bytes = part.end - part.start;
            let came = self.move_part(file, part)?;
            moved += came;
            if came < bytes {
                break; // the end of the file
            }
            at += bytes;
        }
        Ok(moved)
    }

    /// Whether the data lie together, in the file and in memory.
    fn is_run(&self) -> bool {
        self.view.is_contiguous() && self.memory.run(&self.own(&self.data)).is_some()
    }

    /// A part of the view's data as a part of the access's own.
    fn own(&self, part: &Range<u64>) -> Range<u64> {
        part.start - self.data.start..part.end - self.data.start
    }

    fn move_part(&self, file: &Storage, part: Range<u64>) -> Result<u64> {
        let (own, bytes) = (self.own(&part), part.end - part.start);
        // SAFETY: the program has given this memory to the access, and the lists are of it.
        unsafe {
            match self.memory.run(&own).filter(|_| self.view.is_contiguous()) {
                Some(run) => {
                    let place = exact::<u64>(self.view.place(part.start));
                    file.move_run(self.operation, place, (run, bytes))
                }
                None => {
                    let (places, memory) = (self.view.list(part)?, self.memory.list(own)?);
                    let all = (self.memory.base(), self.memory.span());
                    file.move_lists(self.operation, places, all, memory)
                }
            }
        }
    }

    /// What this rank brings to the servers' moving of a part of the file.
    ///
    /// # Errors
    /// When a byte lies beyond all numbers.
    pub fn own_of(&self, file_bytes: Range<u64>) -> Result<Own> {
        let Some((places, memory)) = self.lists_in(file_bytes)? else {
            return Ok(Own::default());
        };
        let holding = Holding::new(&places, &memory);
        Ok(Own {
            memory: Some(self.memory.exposed()),
            holding: holding.map_err(|error| wrong(Class::Arg, error))?,
        })
    }

    /// What this rank brings to the moving of a part of a volume's file, and its memory.
    ///
    /// # Errors
    /// When a byte lies beyond all numbers.
    pub fn selection_of(&self, file_bytes: Range<u64>) -> Result<(Selection, (usize, u64))> {
        let (places, memory) = self.lists_in(file_bytes)?.unwrap_or_default();
        let wanted = Selection::Lists {
            places: Arc::new(places),
            memory: Arc::new(memory),
        };
        Ok((wanted, (self.memory.base() as usize, self.memory.span())))
    }

    /// The bytes of a part of the file that the access has, and where they lie in memory; nothing
    /// if there are none.
    fn lists_in(&self, file_bytes: Range<u64>) -> Result<Option<(List, List)>> {
        let (start, end) = match self.view.is_orderly() {
            true => {
                let before = |place| self.view.end_within(self.data.clone(), place);
                (before(file_bytes.start), before(file_bytes.end))
            }
            false if file_bytes.is_empty() => (0, 0),
            false => (self.data.start, self.data.end), // there is one window only
        };
        if start == end {
            return Ok(None);
        }
        let own = self.own(&(start..end));
        Ok(Some((self.view.list(start..end)?, self.memory.list(own)?)))
    }

    /// Ends the access, of whose data so many bytes were moved: a read in another representation is
    /// converted. Gives the bytes of memory.
    ///
    /// # Errors
    /// Those of the conversion.
    pub fn land(&mut self, moved: u64) -> Result<u64> {
        match &mut self.packed {
            None => Ok(moved),
            Some(packed) if self.operation == Operation::Write => {
                packed.memory_bytes(&self.view, moved)
            }
            Some(packed) => packed.unpack(&self.view, moved),
        }
    }
}

/// What a part of a view's data touches of the file. In memory it is about so many series.
pub fn touch(view: &View, data: &Range<u64>, series_of_memory: u64) -> Touch {
    let bounds = view.bounds(data.clone());
    Touch {
        start: bounds.start,
        end: bounds.end,
        bytes: data.end - data.start,
        runs: view.runs(data),
        pieces: match view.is_orderly() {
            true => view.series(data).saturating_add(series_of_memory),
            false => u64::MAX, // it takes one window, whatever others have
        },
    }
}

impl Packed {
    fn new(mpi: &'static Mpi, memory: Memory, datatype: Handle, view: &View) -> Result<Self> {
        let in_file = types::in_file(mpi, datatype, &view.representation)?;
        let bytes = in_file.size().checked_mul(memory.count());
        let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
        let bytes = bytes.ok_or_else(|| wrong(Class::Count, "an access beyond all numbers"))?;
        Ok(Self {
            mpi,
            items: vec![0; bytes],
            memory,
            datatype: Datatype::keep(mpi, datatype)?,
            instance_bytes: in_file.size(),
        })
    }

    fn pack(&mut self, view: &View) -> Result<()> {
        let (memory, count) = (self.memory.instance(0), self.memory.count());
        if self.items.is_empty() {
            return Ok(());
        }
        let instances = (self.datatype.handle, self.memory.datatype(), count);
        // SAFETY: the program has given this memory to the access; the buffer has the bytes of all
        // instances.
        unsafe {
            view.representation
                .convert(self.mpi, Way::ToFile, memory, instances, &mut self.items)
        }
    }

    /// The bytes of memory of the first `moved` bytes.
    fn memory_bytes(&self, view: &View, moved: u64) -> Result<u64> {
        let Some(whole) = moved.checked_div(self.instance_bytes) else {
            return Ok(0);
        };
        let (rest, datatype) = (moved % self.instance_bytes, self.memory.datatype());
        let of_rest = match rest {
            0 => 0,
            rest => types::memory_bytes(self.mpi, datatype, &view.representation, rest)?,
        };
        Ok(whole * datatype.size() + of_rest)
    }

    /// Converts the first `moved` bytes, and gives the bytes of memory.
    fn unpack(&mut self, view: &View, moved: u64) -> Result<u64> {
        let Some(whole) = moved.checked_div(self.instance_bytes) else {
            return Ok(0);
        };
        let (handle, datatype) = (self.datatype.handle, self.memory.datatype());
        let representation = &view.representation;
        let end = exact::<usize>(whole * self.instance_bytes);
        if whole > 0 {
            let memory = self.memory.instance(0);
            let items = &mut self.items[..end];
            // SAFETY: as in `pack`.
            unsafe {
                let instances = (handle, datatype, whole);
                representation.convert(self.mpi, Way::FromFile, memory, instances, items)?;
            }
        }
        let bytes = self.memory_bytes(view, moved)?;
        let of_rest = bytes - whole * datatype.size();
        if of_rest > 0 {
            // An instance that has come in part is converted aside, and what has come is copied.
            let last = &mut self.items[end..end + exact::<usize>(self.instance_bytes)];
            let bounds = datatype.tree.bounds();
            let mut aside = vec![0u8; exact::<usize>(bounds.end - bounds.start)];
            let origin = aside
                .as_mut_ptr()
                .wrapping_offset(-exact::<isize>(bounds.start));
            // SAFETY: the memory aside has room for an instance from its lowest place on.
            unsafe {
                let instance = (handle, datatype, 1);
                representation.convert(self.mpi, Way::FromFile, origin, instance, last)?;
            }
            let memory = self.memory.instance(whole);
            datatype.tree.walk(0, 0..of_rest, &mut |series| {
                series.runs(&mut |place, length| {
                    let (source, target) = (
                        origin.wrapping_offset(exact::<isize>(place)),
                        memory.wrapping_offset(exact::<isize>(place)),
                    );
                    // SAFETY: the places are those of the datatype, in both memories.
                    unsafe {
                        std::ptr::copy_nonoverlapping(source, target, exact::<usize>(length))
                    };
                });
            });
        }
        Ok(bytes)
    }
}
