//! Memories of clients, of real machines.

use penstock_layout::Share;

use crate::truth;

/// How a share lies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Row-major and dense.
    Dense,
    /// Row-major, with two elements of a halo on either side of every dimension.
    Halo,
    /// Column-major and dense.
    Fortran,
    /// Backwards in every dimension.
    Reversed,
}

impl Form {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Dense, Self::Halo, Self::Fortran, Self::Reversed];
}

/// A client's memory as a test sees it.
pub trait Held {
    /// What the machine is given.
    type Memory;

    /// The memory, to be exposed for as long as this lives.
    fn memory(&self) -> Self::Memory;

    /// The elements of the share, one behind the other.
    ///
    /// # Panics
    /// When anything else in the memory was changed.
    fn values(&self) -> Vec<u8>;
}

/// What lies between elements.
const NOBODYS: u8 = 0xee;

/// A share in memory of its own, in one of the forms.
pub struct Frame {
    bytes: *mut u8,
    length: usize,
    first: usize,
    strides: Vec<isize>,
    extents: Vec<u64>,
    width: usize,
    form: Form,
}

impl Frame {
    /// A frame that holds `values`, the elements of `share` one behind the other.
    pub fn new(share: &Share, width: usize, values: &[u8], form: Form) -> Self {
        let extents = share.extents();
        let around = if form == Form::Halo { 2 } else { 0 };
        let padded: Vec<u64> = extents.iter().map(|&n| n + 2 * around).collect();
        let mut strides = match form {
            Form::Fortran => truth::column_major_strides(&padded, width),
            Form::Dense | Form::Halo | Form::Reversed => truth::row_major_strides(&padded, width),
        };
        let length = padded.iter().product::<u64>() as usize * width;
        let mut first: usize = strides.iter().map(|s| around as usize * *s as usize).sum();
        if form == Form::Reversed && share.elements() > 0 {
            let ends = strides.iter().zip(&extents);
            first = ends.map(|(&s, &n)| s as usize * (n as usize - 1)).sum();
            strides.iter_mut().for_each(|stride| *stride = -*stride);
        }
        assert_eq!(values.len() as u64, share.elements() * width as u64);
        let bytes = Box::into_raw(vec![NOBODYS; length].into_boxed_slice()).cast();
        let frame = Self {
            bytes,
            length,
            first,
            strides,
            extents,
            width,
            form,
        };
        if form == Form::Dense {
            // SAFETY: it has the length of the values, and nobody else knows it yet.
            unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), frame.bytes, length) };
            return frame;
        }
        for (nth, at) in frame.places().into_iter().enumerate() {
            let value = &values[nth * width..][..width];
            // SAFETY: the place of an element is inside the frame, which nobody else knows yet.
            unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), frame.bytes.add(at), width) };
        }
        frame
    }

    /// The share's first element; null where it has none.
    pub fn base(&self) -> *mut u8 {
        match self.extents.contains(&0) {
            true => std::ptr::null_mut(),
            false => self.bytes.wrapping_add(self.first),
        }
    }

    /// The extents of the share.
    pub fn extents(&self) -> &[u64] {
        &self.extents
    }

    /// Bytes of one element.
    pub fn width(&self) -> usize {
        self.width
    }

    /// From one index to the next, bytes a dimension.
    pub fn strides(&self) -> &[isize] {
        &self.strides
    }

    /// Where each element begins, in the order of the share.
    fn places(&self) -> Vec<usize> {
        let offset = |place: Vec<u64>| {
            let steps = place.iter().zip(&self.strides);
            steps.fold(self.first as isize, |at, (&i, &s)| at + i as isize * s) as usize
        };
        truth::indices(&self.extents).map(offset).collect()
    }

    /// The elements of the share, one behind the other.
    ///
    /// # Panics
    /// When anything else was changed.
    pub fn values(&self) -> Vec<u8> {
        // SAFETY: programs look at their memory when no call is under way on it.
        let mut all = unsafe { std::slice::from_raw_parts(self.bytes, self.length) }.to_vec();
        if self.form == Form::Dense {
            return all;
        }
        let mut values = Vec::with_capacity(self.length);
        for at in self.places() {
            let element = &mut all[at..at + self.width];
            values.extend_from_slice(element);
            element.fill(NOBODYS);
        }
        let is_whole = all.iter().all(|&byte| byte == NOBODYS);
        assert!(is_whole, "what lies between elements was changed");
        values
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        let bytes = std::ptr::slice_from_raw_parts_mut(self.bytes, self.length);
        // SAFETY: it was made from a box of this length, and is freed once.
        drop(unsafe { Box::from_raw(bytes) });
    }
}
