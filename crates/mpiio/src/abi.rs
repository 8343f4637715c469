//! What differs between the ABIs of MPI libraries: the width of a handle, and the values of
//! constants.
//!
//! The values are those of `mpi.h` of MPICH 5 and of Open MPI 5, and of `mpi_abi.h` of MPI 5.0.

use std::ffi::{c_int, c_void};

use penstock_layout::exact;
use penstock_machines::mpi::abi::{Abi, Constants, Handle};

use crate::failure::Class;

/// What Penstock must know of an ABI beside the functions.
#[derive(Debug, Clone)]
pub struct Dialect {
    /// The ABI.
    pub abi: Abi,
    /// The constants that the machine needs.
    pub constants: Constants,
    /// `MPI_COMM_NULL`.
    pub comm_null: Handle,
    /// `MPI_COMM_SELF`.
    pub comm_self: Handle,
    /// `MPI_COMM_WORLD`.
    pub comm_world: Handle,
    /// `MPI_DATATYPE_NULL`.
    pub datatype_null: Handle,
    /// `MPI_INFO_NULL`.
    pub info_null: Handle,
    /// `MPI_REQUEST_NULL`.
    pub request_null: Handle,
    /// `MPI_FILE_NULL`.
    pub file_null: Handle,
    /// `MPI_ERRORS_ARE_FATAL`.
    pub errors_are_fatal: Handle,
    /// `MPI_ERRORS_ABORT`, where the library has it.
    pub errors_abort: Option<Handle>,
    /// `MPI_ERRORS_RETURN`.
    pub errors_return: Handle,
    /// `MPI_STATUS_IGNORE`.
    pub status_ignore: usize,
    /// `MPI_DISPLACEMENT_CURRENT`.
    pub displacement_current: i64,
    /// The bits of access modes.
    pub modes: ModeBits,
    /// The three values of `whence`.
    pub seek: SeekValues,
    /// `MPI_ORDER_FORTRAN`.
    pub order_fortran: c_int,
    /// `MPI_DISTRIBUTE_BLOCK`, `MPI_DISTRIBUTE_CYCLIC` and `MPI_DISTRIBUTE_DFLT_DARG`.
    pub distribute: [c_int; 3],
    /// `MPI_LOCK_EXCLUSIVE`.
    pub lock_exclusive: c_int,
    /// `MPI_CONGRUENT`.
    pub congruent: c_int,
}

/// The bits of an access mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModeBits {
    pub append: c_int,
    pub create: c_int,
    pub delete_on_close: c_int,
    pub excl: c_int,
    pub rdonly: c_int,
    pub rdwr: c_int,
    pub sequential: c_int,
    pub unique_open: c_int,
    pub wronly: c_int,
}

/// The values of `whence`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeekValues {
    pub set: c_int,
    pub current: c_int,
    pub end: c_int,
}

/// What a datatype was made by, `MPI_COMBINER_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Combiner {
    Named,
    Dup,
    Contiguous,
    Vector,
    Hvector,
    Indexed,
    Hindexed,
    IndexedBlock,
    HindexedBlock,
    Struct,
    Subarray,
    Darray,
    /// A type of `MPI_Type_create_f90_*`, a predefined one with parameters.
    Parametrized,
    /// A type of `MPI_Type_create_f90_complex`.
    ParametrizedComplex,
    Resized,
    /// `MPI_COMBINER_VALUE_INDEX`: a pair of a value and an index.
    ValueIndex,
}

impl Combiner {
    /// Whether MPI gives the type, and it has no contents.
    pub fn is_predefined(self) -> bool {
        use Combiner::*;
        matches!(
            self,
            Named | Parametrized | ParametrizedComplex | ValueIndex
        )
    }
}

/// The names of Open MPI's handles: addresses of objects of the library.
const OPEN_MPI_HANDLES: [&[u8]; 8] = [
    b"ompi_mpi_comm_self",
    b"ompi_mpi_comm_world",
    b"ompi_mpi_datatype_null",
    b"ompi_mpi_info_null",
    b"ompi_request_null",
    b"ompi_mpi_file_null",
    b"ompi_mpi_errors_are_fatal",
    b"ompi_mpi_errors_return",
];

/// The modes that MPICH and Open MPI have from ROMIO.
const ROMIO_MODES: ModeBits = ModeBits {
    create: 1,
    rdonly: 2,
    wronly: 4,
    rdwr: 8,
    delete_on_close: 16,
    unique_open: 32,
    excl: 64,
    append: 128,
    sequential: 256,
};

const STANDARD_MODES: ModeBits = ModeBits {
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

const ROMIO_SEEK: SeekValues = SeekValues {
    set: 600,
    current: 602,
    end: 604,
};

const STANDARD_SEEK: SeekValues = SeekValues {
    current: 401,
    end: 402,
    set: 403,
};

impl Dialect {
    /// The dialect of a library of this ABI, in which `find` finds symbols. Nothing if a handle is
    /// missing.
    pub fn new(abi: Abi, find: &dyn Fn(&[u8]) -> Option<Handle>) -> Option<Self> {
        let constants = abi.constants(find)?;
        let comm_null = abi.comm_null(find)?;
        match abi {
            Abi::Mpich => Some(Self::mpich(constants, comm_null)),
            Abi::Standard => Some(Self::standard(constants, comm_null)),
            Abi::OpenMpi => Self::open_mpi(constants, comm_null, find),
        }
    }

    fn mpich(constants: Constants, comm_null: Handle) -> Self {
        Self {
            abi: Abi::Mpich,
            constants,
            comm_null,
            comm_world: 0x4400_0000,
            comm_self: 0x4400_0001,
            datatype_null: 0x0c00_0000,
            info_null: 0x1c00_0000,
            request_null: 0x2c00_0000,
            file_null: 0,
            errors_are_fatal: 0x5400_0000,
            errors_abort: Some(0x5400_0003),
            errors_return: 0x5400_0001,
            status_ignore: 1,
            displacement_current: -54_278_278,
            modes: ROMIO_MODES,
            seek: ROMIO_SEEK,
            order_fortran: 57,
            distribute: [121, 122, -49_767],
            lock_exclusive: 234,
            congruent: 1,
        }
    }

    fn standard(constants: Constants, comm_null: Handle) -> Self {
        Self {
            abi: Abi::Standard,
            constants,
            comm_null,
            comm_world: 0x101,
            comm_self: 0x102,
            datatype_null: 0x200,
            info_null: 0x130,
            request_null: 0x180,
            file_null: 0x118,
            errors_are_fatal: 0x141,
            errors_abort: Some(0x142),
            errors_return: 0x143,
            status_ignore: 0,
            displacement_current: -1,
            modes: STANDARD_MODES,
            seek: STANDARD_SEEK,
            order_fortran: 0xf,
            distribute: [17, 18, 19],
            lock_exclusive: 301,
            congruent: 202,
        }
    }

    fn open_mpi(
        constants: Constants,
        comm_null: Handle,
        find: &dyn Fn(&[u8]) -> Option<Handle>,
    ) -> Option<Self> {
        let mut handles = [0; OPEN_MPI_HANDLES.len()];
        for (handle, name) in handles.iter_mut().zip(OPEN_MPI_HANDLES) {
            *handle = find(name)?;
        }
        let [
            comm_self,
            comm_world,
            datatype_null,
            info_null,
            request_null,
            file_null,
            errors_are_fatal,
            errors_return,
        ] = handles;
        Some(Self {
            abi: Abi::OpenMpi,
            constants,
            comm_null,
            comm_self,
            comm_world,
            datatype_null,
            info_null,
            request_null,
            file_null,
            errors_are_fatal,
            errors_abort: find(b"ompi_mpi_errors_abort"),
            errors_return,
            status_ignore: 0,
            displacement_current: -54_278_278,
            modes: ROMIO_MODES,
            seek: ROMIO_SEEK,
            order_fortran: 1,
            distribute: [0, 1, -1],
            lock_exclusive: 1,
            congruent: 1,
        })
    }

    /// A handle that came as an argument: MPICH's have 32 bits, and the others are undefined.
    pub fn handle(&self, word: Handle) -> Handle {
        match self.abi {
            Abi::Mpich => word & 0xffff_ffff,
            Abi::OpenMpi | Abi::Standard => word,
        }
    }

    /// Stores a handle where the program wants one.
    ///
    /// # Safety
    /// `place` must have room for a handle of this ABI.
    pub unsafe fn store(&self, place: *mut c_void, handle: Handle) {
        // SAFETY: the caller's promise.
        unsafe {
            match self.abi {
                Abi::Mpich => place.cast::<u32>().write(exact::<u32>(self.handle(handle))),
                Abi::OpenMpi | Abi::Standard => place.cast::<Handle>().write(handle),
            }
        }
    }

    /// Reads handle `nth` of an array of handles.
    ///
    /// # Safety
    /// `place` must have so many handles of this ABI.
    pub unsafe fn load(&self, place: *const c_void, nth: usize) -> Handle {
        // SAFETY: the caller's promise.
        unsafe { self.abi.load(place, nth) }
    }

    /// The combiner of this number, if Penstock knows it.
    pub fn combiner(&self, number: c_int) -> Option<Combiner> {
        use Combiner::*;
        /// In the order of MPICH's numbers, from 1 on.
        const MPICH: [Combiner; 20] = [
            Named,
            Dup,
            Contiguous,
            Vector,
            Hvector,
            Hvector,
            Indexed,
            Hindexed,
            Hindexed,
            IndexedBlock,
            Struct,
            Struct,
            Subarray,
            Darray,
            Parametrized,
            ParametrizedComplex,
            Parametrized,
            Resized,
            HindexedBlock,
            ValueIndex,
        ];
        /// In the order of the numbers of the standard ABI, from 101 on.
        const STANDARD: [Combiner; 17] = [
            Named,
            Dup,
            Contiguous,
            Vector,
            Hvector,
            Indexed,
            Hindexed,
            IndexedBlock,
            HindexedBlock,
            Struct,
            Subarray,
            Darray,
            Parametrized,
            ParametrizedComplex,
            Parametrized,
            Resized,
            ValueIndex,
        ];
        let (all, first): (&[Combiner], c_int) = match self.abi {
            Abi::Mpich => (&MPICH, 1),
            // The same order, from 0 on, without the last.
            Abi::OpenMpi => (&MPICH[..19], 0),
            Abi::Standard => (&STANDARD, 101),
        };
        let place = usize::try_from(number.checked_sub(first)?).ok()?;
        all.get(place).copied()
    }

    /// The number of an error class.
    pub fn class(&self, class: Class) -> c_int {
        let [mpich, open_mpi, standard] = class.numbers();
        match self.abi {
            Abi::Mpich => mpich,
            Abi::OpenMpi => open_mpi,
            Abi::Standard => standard,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dialects() -> [Dialect; 3] {
        let found = |name: &[u8]| Some(name.as_ptr() as Handle);
        [Abi::Mpich, Abi::OpenMpi, Abi::Standard].map(|abi| Dialect::new(abi, &found).unwrap())
    }

    #[test]
    fn combiners_of_each_abi() {
        let [mpich, open_mpi, standard] = dialects();
        assert_eq!(mpich.combiner(1), Some(Combiner::Named));
        assert_eq!(mpich.combiner(13), Some(Combiner::Subarray));
        assert_eq!(mpich.combiner(19), Some(Combiner::HindexedBlock));
        assert_eq!(open_mpi.combiner(0), Some(Combiner::Named));
        assert_eq!(open_mpi.combiner(12), Some(Combiner::Subarray));
        assert_eq!(open_mpi.combiner(18), Some(Combiner::HindexedBlock));
        assert_eq!(standard.combiner(101), Some(Combiner::Named));
        assert_eq!(standard.combiner(111), Some(Combiner::Subarray));
        assert_eq!(standard.combiner(109), Some(Combiner::HindexedBlock));
        for dialect in dialects() {
            for number in [-1, 21, 100, 118, c_int::MIN, c_int::MAX] {
                assert_eq!(dialect.combiner(number), None, "{:?} {number}", dialect.abi);
            }
        }
    }

    #[test]
    fn handles_of_mpich_have_32_bits() {
        let [mpich, open_mpi, standard] = dialects();
        let word = 0x7f01_8c00_0002;
        assert_eq!(mpich.handle(word), 0x8c00_0002);
        assert_eq!(open_mpi.handle(word), word);
        assert_eq!(standard.handle(word), word);
        let mut room = [0xffu8; 16];
        // SAFETY: there is room for two handles of any ABI.
        unsafe { mpich.store(room.as_mut_ptr().cast(), word) };
        assert_eq!(room[..4], [2, 0, 0, 0x8c]);
        assert_eq!(room[4..], [0xff; 12]);
        // SAFETY: as above.
        unsafe { standard.store(room[8..].as_mut_ptr().cast(), word) };
        // SAFETY: as above.
        assert_eq!(unsafe { standard.load(room.as_ptr().cast(), 1) }, word);
    }
}
