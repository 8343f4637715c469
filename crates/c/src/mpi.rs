//! The MPI communicator of the program, of whatever MPI it has loaded.
//!
//! A C program is linked to its MPI, so the library is the one whose functions the program calls;
//! a program of another language may have loaded it otherwise. The library shows the ABI, and the
//! ABI how wide the program's `MPI_Comm` is. `MPI_Init` is enough: other threads of Penstock call
//! MPI only where `MPI_THREAD_MULTIPLE` allows it.

use std::ffi::{c_int, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;

use libloading::os::unix::Library;
use penstock_engine::{Error, Kind, Result};
use penstock_machines::mpi::abi::{self, Abi, Constants, Handle};
use penstock_machines::mpi::api::Api;
use penstock_machines::mpi::loaded::{called_by_program, loaded_with};

type Flag = unsafe extern "C" fn(*mut c_int) -> c_int;
type OfComm = unsafe extern "C" fn(Handle, *mut c_int) -> c_int;
type OfFortran = unsafe extern "C" fn(c_int) -> Handle;

/// The MPI library of the program.
struct Mpi {
    path: PathBuf,
    abi: Abi,
    constants: Constants,
    comm_null: Handle,
    initialized: Flag,
    finalized: Flag,
    query_thread: Flag,
    comm_test_inter: OfComm,
    /// What makes a handle of Fortran's integer, where that is not the handle itself.
    of_fortran: Option<OfFortran>,
    _library: Library,
}

/// A communicator of the program.
pub struct Communicator {
    /// The functions of its library.
    pub api: Api,
    pub handle: Handle,
    /// Whether any thread may call MPI at any time.
    pub may_use_threads: bool,
}

/// A communicator as the program gives it.
#[derive(Clone, Copy)]
pub enum Given {
    /// The address of an `MPI_Comm`, which is not NULL.
    Address(*const c_void),
    /// An integer of Fortran's.
    Fortran(c_int),
}

fn refused(kind: Kind, cause: impl std::fmt::Display) -> Error {
    Error::new(kind, abi::FINDING, cause)
}

impl Mpi {
    /// The library.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] when the process has loaded none, or one that is too old.
    fn get() -> Result<&'static Self> {
        static LIBRARY: OnceLock<Mpi> = OnceLock::new();
        if let Some(known) = LIBRARY.get() {
            return Ok(known);
        }
        let found = Self::find()?; // a program may load MPI after a first try
        Ok(LIBRARY.get_or_init(|| found))
    }

    fn find() -> Result<Self> {
        let symbol = c"PMPI_Comm_rank";
        let found = called_by_program(symbol).or_else(|| loaded_with(symbol));
        let none = || {
            let cause = "the program has loaded no MPI library: link it with its MPI, or give NULL \
                         in place of a communicator";
            refused(Kind::Unsupported, cause)
        };
        let (path, library) = found.ok_or_else(none)?;
        let abi = Abi::of(&library);
        let handle = |name: &[u8]| abi::handle_named(&library, name);
        let missing = |name: &str| {
            let cause = format!("it has no {name}: MPI 3 is needed");
            refused(Kind::Unsupported, cause).at(&path)
        };
        let constants = abi.constants(&handle);
        let constants = constants.ok_or_else(|| missing("predefined handles"))?;
        let comm_null = abi.comm_null(&handle);
        let comm_null = comm_null.ok_or_else(|| missing("MPI_COMM_NULL"))?;
        let flag = |name: &'static str| {
            // SAFETY: the MPI standard gives this signature.
            let found = unsafe { library.get::<Flag>(name.as_bytes()) };
            found.map(|symbol| *symbol).map_err(|_| missing(name))
        };
        let comm_test_inter = {
            let name = "PMPI_Comm_test_inter";
            // SAFETY: the MPI standard gives this signature, with handles as words.
            let found = unsafe { library.get::<OfComm>(name.as_bytes()) };
            found.map(|symbol| *symbol).map_err(|_| missing(name))?
        };
        let of_fortran = match abi {
            Abi::Mpich => None,
            Abi::OpenMpi | Abi::Standard => {
                let names = [b"MPI_Comm_f2c".as_slice(), b"MPI_Comm_fromint"];
                // SAFETY: as above.
                let found = names.map(|name| unsafe { library.get::<OfFortran>(name) });
                let found = found.into_iter().find_map(|found| found.ok());
                Some(*found.ok_or_else(|| missing("MPI_Comm_f2c"))?)
            }
        };
        Ok(Self {
            abi,
            constants,
            comm_null,
            initialized: flag("PMPI_Initialized")?,
            finalized: flag("PMPI_Finalized")?,
            query_thread: flag("PMPI_Query_thread")?,
            comm_test_inter,
            of_fortran,
            path: path.clone(),
            _library: library,
        })
    }

    /// What a function answers through its only argument.
    fn ask(&self, function: Flag) -> Result<c_int> {
        let mut answer = 0;
        // SAFETY: the out-parameter lives across the call.
        match unsafe { function(&mut answer) } {
            0 => Ok(answer),
            code => Err(refused(Kind::Peer, format!("MPI error code {code}"))),
        }
    }

    /// Checks that MPI may be called.
    fn check_usable(&self) -> Result<()> {
        if self.ask(self.initialized)? == 0 {
            return Err(refused(
                Kind::Schema,
                "call MPI_Init before a session is opened",
            ));
        }
        if self.ask(self.finalized)? != 0 {
            return Err(refused(Kind::Schema, "MPI_Finalize has been called"));
        }
        Ok(())
    }

    fn handle(&self, given: Given) -> Handle {
        match (given, self.of_fortran) {
            // SAFETY: the header says that an MPI_Comm is there, and the library has this ABI.
            (Given::Address(place), _) => unsafe { self.abi.load(place, 0) },
            (Given::Fortran(number), None) => number.cast_unsigned() as Handle,
            // SAFETY: MPI has been initialised, and takes any integer.
            (Given::Fortran(number), Some(convert)) => unsafe { convert(number) },
        }
    }
}

impl Communicator {
    /// The communicator that the program gives.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] when the process has loaded no MPI that Penstock knows;
    /// [`Kind::Schema`] when MPI is not initialised, and for what is no intracommunicator. All
    /// ranks of the communicator come to the same.
    pub fn of(given: Given) -> Result<Self> {
        let mpi = Mpi::get()?;
        mpi.check_usable()?;
        let handle = mpi.handle(given);
        if handle == mpi.comm_null || handle == 0 {
            return Err(refused(Kind::Schema, "the communicator is MPI_COMM_NULL"));
        }
        let mut is_inter = 0;
        // SAFETY: the out-parameter lives across the call.
        let code = unsafe { (mpi.comm_test_inter)(handle, &mut is_inter) };
        if code != 0 || is_inter != 0 {
            return Err(refused(
                Kind::Schema,
                "the communicator is no intracommunicator",
            ));
        }
        Ok(Self {
            api: Api::load(&mpi.path, mpi.constants)?,
            handle,
            may_use_threads: mpi.ask(mpi.query_thread)? >= mpi.abi.thread_multiple(),
        })
    }
}
