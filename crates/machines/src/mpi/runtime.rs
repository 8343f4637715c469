//! The MPI of a program of Penstock's own: it is linked with none, and loads that of its job.
//!
//! ```text
//! mpiexec -n 4 penstock copy a b
//!   rank?  a variable of mpiexec's -> the library beside mpiexec -> MPI_Init_thread, MPI_Finalize
//! ```
//!
//! A library that another mpiexec than its own has started makes each process a job of one rank.
//! That is refused: ranks that know nothing of each other would all do all work, to one target.

use std::ffi::{c_int, c_void};
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use penstock_engine::{Error, Kind, Result};

use crate::mpi::abi::{self, Abi, Constants, Handle};
use crate::mpi::api::Api;

/// The variable that names the library. mpi4py heeds it, too.
pub const LIBRARY_VARIABLE: &str = "MPI4PY_LIBMPI";
/// The program that starts jobs, unless the user names another.
const MPIEXEC: &str = "mpiexec";

/// A starter of jobs: the variables of its ranks, and the libraries that understand it.
struct Starter {
    rank: &'static str,
    size: Option<&'static str>,
    libraries: &'static [&'static str],
}

const MPICH: [&str; 3] = ["libmpi.so.12", "libmpich.so.12", "libmpi.so"];
const OPEN_MPI: [&str; 2] = ["libmpi.so.40", "libmpi.so"];

/// The starters that are known. Open MPI's comes first: it sets variables of PMIx, too.
const STARTERS: [Starter; 4] = [
    Starter {
        rank: "OMPI_COMM_WORLD_RANK",
        size: Some("OMPI_COMM_WORLD_SIZE"),
        libraries: &OPEN_MPI,
    },
    Starter {
        rank: "PMI_RANK",
        size: Some("PMI_SIZE"),
        libraries: &MPICH,
    },
    Starter {
        rank: "MPI_LOCALRANKID",
        size: None,
        libraries: &MPICH,
    },
    Starter {
        rank: "PMIX_RANK",
        size: None,
        libraries: &["libmpi.so.40", "libmpi.so.12", "libmpi.so"],
    },
];

impl Starter {
    /// The starter of this process, if it is a rank of a job.
    fn of_process() -> Option<&'static Self> {
        let mut starters = STARTERS.iter();
        starters.find(|starter| std::env::var_os(starter.rank).is_some())
    }

    /// The number of ranks that it has started, where it tells.
    fn ranks(&self) -> Option<usize> {
        std::env::var(self.size?).ok()?.parse().ok()
    }
}

/// Whether a program such as mpiexec has started this process as a rank of an MPI job.
pub fn is_rank() -> bool {
    Starter::of_process().is_some()
}

/// The MPI library that lies beside a program that starts jobs, or that the environment names.
pub fn library_of(mpiexec: &str) -> Option<PathBuf> {
    let libraries = MPICH.iter().chain(&OPEN_MPI);
    library_among(mpiexec, libraries)
}

fn library_among<'a>(
    mpiexec: &str,
    libraries: impl Iterator<Item = &'a &'a str> + Clone,
) -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(LIBRARY_VARIABLE) {
        return Some(named.into());
    }
    let program = match mpiexec.contains('/') {
        true => PathBuf::from(mpiexec),
        false => {
            let path = std::env::var_os("PATH").unwrap_or_default();
            let mut programs = std::env::split_paths(&path).map(|place| place.join(mpiexec));
            programs.find(|program| program.is_file())?
        }
    };
    let beside = program.with_file_name("../lib");
    let mut beside = libraries.map(|name| beside.join(name));
    beside.find(|library| library.is_file())
}

/// The first of the libraries that the dynamic linker finds, by its name.
fn installed(libraries: &[&str]) -> Option<PathBuf> {
    let mut names = libraries.iter().map(PathBuf::from);
    // SAFETY: an MPI library may be loaded at any time.
    names.find(|name| unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) }.is_ok())
}

/// A loaded MPI library that this program has initialised, with what is in its headers.
pub struct Runtime {
    library: Library,
    path: PathBuf,
    world: Handle,
    constants: Constants,
    may_use_threads: bool,
}

impl Runtime {
    /// Initialises the MPI of the job that this process is a rank of.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] when no library is found, or one that does not understand what has
    /// started the job.
    ///
    /// # Collective
    /// Over all ranks of the job.
    pub fn of_job() -> Result<Self> {
        let starter = Starter::of_process();
        let libraries = starter.map_or(&MPICH[..], |starter| starter.libraries);
        let path = library_among(MPIEXEC, libraries.iter()).or_else(|| installed(libraries));
        let path = path.ok_or_else(|| {
            refused(format!(
                "no MPI library lies beside mpiexec or where libraries are: set {LIBRARY_VARIABLE} \
                 to the path of the job's"
            ))
        })?;
        let runtime = Self::init(&path)?;
        let told = starter.and_then(Starter::ranks);
        let (_, ranks) = runtime.api()?.rank_and_size(runtime.world)?;
        match told {
            Some(told) if told != ranks => {
                let cause = format!(
                    "the job has {told} ranks, and this library sees {ranks}: it is of another MPI \
                     than mpiexec; set {LIBRARY_VARIABLE} to the path of the job's"
                );
                let path = runtime.path.clone();
                runtime.finalize()?;
                Err(refused(cause).at(&path))
            }
            _ => Ok(runtime),
        }
    }

    /// Loads a library, and initialises MPI.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] when the file is no MPI library, or when MPI refuses.
    ///
    /// # Collective
    /// Over all ranks of the job.
    pub fn init(path: &Path) -> Result<Self> {
        let failed = |cause: String| refused(cause).at(path);
        // SAFETY: an MPI library may be loaded at any time.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
        let library = library.map_err(|error| failed(error.to_string()))?;
        let find = |name: &[u8]| abi::handle_named(&library, name);
        let abi = Abi::of(&library);
        let (Some(constants), Some(world), Some(errors_return)) = (
            abi.constants(&find),
            abi.comm_world(&find),
            abi.errors_return(&find),
        ) else {
            return Err(failed("it has no predefined handles".into()));
        };
        type Init = unsafe extern "C" fn(*mut c_int, *mut c_void, c_int, *mut c_int) -> c_int;
        let mut provided = 0;
        // SAFETY: the MPI standard gives this signature, and there are no arguments to give.
        let code = unsafe {
            let init = library.get::<Init>(b"MPI_Init_thread");
            let init = init.map_err(|error| failed(error.to_string()))?;
            init(
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                abi.thread_multiple(),
                &mut provided,
            )
        };
        if code != 0 || provided < abi.thread_funneled() {
            return Err(failed(format!(
                "MPI_Init_thread gave {code}, and level {provided}"
            )));
        }
        type SetHandler = unsafe extern "C" fn(Handle, Handle) -> c_int;
        // SAFETY: the MPI standard gives this signature, with handles as words. MPI gives errors
        // then, and does not end the job; mpi4py does the same.
        let code = unsafe {
            let set = library.get::<SetHandler>(b"MPI_Comm_set_errhandler");
            set.map_err(|error| failed(error.to_string()))?(world, errors_return)
        };
        if code != 0 {
            return Err(failed(format!("MPI_Comm_set_errhandler gave {code}")));
        }
        Ok(Self {
            library,
            path: path.to_path_buf(),
            world,
            constants,
            may_use_threads: provided >= abi.thread_multiple(),
        })
    }

    /// The functions of the library.
    ///
    /// # Errors
    /// As [`Api::load`].
    pub fn api(&self) -> Result<Api> {
        Api::load(&self.path, self.constants)
    }

    /// `MPI_COMM_WORLD`.
    pub fn world(&self) -> Handle {
        self.world
    }

    /// Whether any thread may call MPI at any time.
    pub fn may_use_threads(&self) -> bool {
        self.may_use_threads
    }

    /// Ends MPI. Nothing may be left of what uses it.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] when MPI refuses.
    ///
    /// # Collective
    /// Over all ranks of the job.
    pub fn finalize(self) -> Result<()> {
        type Finalize = unsafe extern "C" fn() -> c_int;
        let failed = |cause: String| Error::new(Kind::Unsupported, "ending MPI", cause);
        // SAFETY: the MPI standard gives this signature; the caller has dropped its nodes.
        let code = unsafe {
            let finalize = self.library.get::<Finalize>(b"MPI_Finalize");
            finalize.map_err(|error| failed(error.to_string()))?()
        };
        match code {
            0 => Ok(()),
            code => Err(failed(format!("MPI_Finalize gave {code}"))),
        }
    }
}

fn refused(cause: String) -> Error {
    Error::new(Kind::Unsupported, "loading an MPI library", cause)
}
