//! Access modes.

use std::ffi::c_int;

use crate::abi::ModeBits;
use crate::failure::{Class, Result, wrong};

/// What an access mode says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode {
    /// The mode as the program has given it.
    pub bits: c_int,
    pub reads: bool,
    pub writes: bool,
    pub create: bool,
    pub excl: bool,
    pub delete_on_close: bool,
    pub append: bool,
    /// Only the shared pointer is used.
    pub sequential: bool,
}

impl Mode {
    /// The mode of these bits.
    ///
    /// # Errors
    /// [`Class::Amode`] when they contradict each other or the standard.
    pub fn of(known: &ModeBits, bits: c_int) -> Result<Self> {
        let has = |bit: c_int| bits & bit != 0;
        let accesses = [known.rdonly, known.rdwr, known.wronly];
        let all = accesses.iter().fold(0, |all, bit| all | bit)
            | known.append
            | known.create
            | known.delete_on_close
            | known.excl
            | known.sequential
            | known.unique_open;
        let cause = if accesses.iter().filter(|&&bit| has(bit)).count() != 1 {
            "it must have one of MPI_MODE_RDONLY, MPI_MODE_RDWR and MPI_MODE_WRONLY"
        } else if has(known.rdonly) && (has(known.create) || has(known.excl)) {
            "a file that is only read cannot be made"
        } else if has(known.rdwr) && has(known.sequential) {
            "a sequential file cannot be read and written"
        } else if bits & !all != 0 {
            "it has bits that mean nothing"
        } else {
            return Ok(Self {
                bits,
                reads: !has(known.wronly),
                writes: !has(known.rdonly),
                create: has(known.create),
                excl: has(known.excl),
                delete_on_close: has(known.delete_on_close),
                append: has(known.append),
                sequential: has(known.sequential),
            });
        };
        Err(wrong(
            Class::Amode,
            format_args!("the access mode {bits}: {cause}"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: ModeBits = ModeBits {
        append: 1,
        create: 2,
        delete_on_close: 4,
        excl: 8,
        rdonly: 16,
        rdwr: 32,
        sequential: 64,
        unique_open: 128,
        wronly: 256,
    };

    #[test]
    fn modes_that_contradict_themselves_are_refused() {
        for bits in [
            0,
            2,
            16 | 32,
            32 | 256,
            16 | 2,
            16 | 8,
            32 | 64,
            32 | 512,
            -1,
        ] {
            assert_eq!(
                Mode::of(&KNOWN, bits).unwrap_err().class,
                Class::Amode,
                "{bits}"
            );
        }
        let mode = Mode::of(&KNOWN, 256 | 2 | 1 | 64 | 128).unwrap();
        assert!(mode.writes && !mode.reads && mode.create && mode.append && mode.sequential);
        assert!(Mode::of(&KNOWN, 16 | 4 | 64).unwrap().delete_on_close);
    }
}
