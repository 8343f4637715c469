//! The few MPI functions that Penstock calls, taken from the library that the program has loaded.
//!
//! A Python package cannot be linked with every MPI library that there is, and must import where
//! there is none. So the functions are looked up at run time, in the very library that mpi4py (or
//! any other caller) uses, and its constants are given by the caller. Handles are passed as machine
//! words: they are 32-bit integers in MPICH's ABI and pointers in Open MPI's and the standard ABI,
//! and both travel in one register in the calling conventions of x86-64 and AArch64. A library of
//! any other ABI is refused. See `docs/decisions/002-mpi-at-run-time.md`.

use std::ffi::{c_int, c_void};
use std::path::Path;

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL, Symbol};
use penstock_engine::{Error, Kind, Result};
use penstock_layout::exact;

use crate::mpi::abi::{self, Constants, Handle};

/// Room for an `MPI_Status` of any ABI that is let in. MPICH's has 20 bytes, Open MPI's has 24, and
/// the standard one has 32.
#[repr(C, align(16))]
pub struct Status([u8; 128]);

impl Status {
    fn new() -> Self {
        Self([0; 128])
    }
}

/// A message that has been matched and not received yet.
pub struct MatchedMessage {
    message: Handle,
    bytes: c_int,
}

type Fn2<A, B> = unsafe extern "C" fn(A, B) -> c_int;

/// The functions, and the library that they live in.
pub struct Api {
    comm_rank: Symbol<Fn2<Handle, *mut c_int>>,
    comm_size: Symbol<Fn2<Handle, *mut c_int>>,
    comm_dup: Symbol<Fn2<Handle, *mut Handle>>,
    comm_free: Symbol<unsafe extern "C" fn(*mut Handle) -> c_int>,
    barrier: Symbol<unsafe extern "C" fn(Handle) -> c_int>,
    finalized: Symbol<unsafe extern "C" fn(*mut c_int) -> c_int>,
    allgather: Symbol<
        unsafe extern "C" fn(
            *const c_void,
            c_int,
            Handle,
            *mut c_void,
            c_int,
            Handle,
            Handle,
        ) -> c_int,
    >,
    isend: Symbol<
        unsafe extern "C" fn(
            *const c_void,
            c_int,
            Handle,
            c_int,
            c_int,
            Handle,
            *mut Handle,
        ) -> c_int,
    >,
    improbe: Symbol<
        unsafe extern "C" fn(c_int, c_int, Handle, *mut c_int, *mut Handle, *mut Status) -> c_int,
    >,
    get_count: Symbol<unsafe extern "C" fn(*const Status, Handle, *mut c_int) -> c_int>,
    mrecv:
        Symbol<unsafe extern "C" fn(*mut c_void, c_int, Handle, *mut Handle, *mut Status) -> c_int>,
    test: Symbol<unsafe extern "C" fn(*mut Handle, *mut c_int, *mut Status) -> c_int>,
    constants: Constants,
    _library: Library,
}

impl Api {
    /// Looks the functions up in `library` and what it depends on: the shared object of mpi4py, or
    /// libmpi itself. It must be loaded already.
    ///
    /// # Errors
    /// When it cannot be found, has not all the functions (MPI 3.0 has), or has an ABI that
    /// Penstock does not know.
    pub fn load(library: &Path, constants: Constants) -> Result<Self> {
        let failed =
            |e: libloading::Error| Error::new(Kind::Unsupported, abi::FINDING, e).at(library);
        // SAFETY: the object is loaded already, so that no initialiser runs.
        let found = unsafe { Library::open(Some(library), RTLD_LAZY | RTLD_LOCAL) };
        let found = found.map_err(failed)?;
        abi::check(&found, constants).map_err(|error| error.at(library))?;
        // SAFETY: the signatures are those of the MPI standard, with handles as machine words, as
        // they may be in the ABIs that were let in.
        unsafe {
            Ok(Self {
                comm_rank: found.get(b"MPI_Comm_rank").map_err(failed)?,
                comm_size: found.get(b"MPI_Comm_size").map_err(failed)?,
                comm_dup: found.get(b"MPI_Comm_dup").map_err(failed)?,
                comm_free: found.get(b"MPI_Comm_free").map_err(failed)?,
                barrier: found.get(b"MPI_Barrier").map_err(failed)?,
                finalized: found.get(b"MPI_Finalized").map_err(failed)?,
                allgather: found.get(b"MPI_Allgather").map_err(failed)?,
                isend: found.get(b"MPI_Isend").map_err(failed)?,
                improbe: found.get(b"MPI_Improbe").map_err(failed)?,
                get_count: found.get(b"MPI_Get_count").map_err(failed)?,
                mrecv: found.get(b"MPI_Mrecv").map_err(failed)?,
                test: found.get(b"MPI_Test").map_err(failed)?,
                constants,
                _library: found,
            })
        }
    }

    /// This rank in `comm`, and how many there are.
    ///
    /// # Errors
    /// What MPI answers.
    pub fn rank_and_size(&self, comm: Handle) -> Result<(usize, usize)> {
        let (mut rank, mut size) = (0, 0);
        // SAFETY: out-parameters live across the calls.
        unsafe {
            check("MPI_Comm_rank", (self.comm_rank)(comm, &mut rank))?;
            check("MPI_Comm_size", (self.comm_size)(comm, &mut size))?;
        }
        Ok((rank as usize, size as usize))
    }

    /// A communicator of the same ranks whose messages are its own.
    ///
    /// # Errors
    /// What MPI answers.
    ///
    /// # Collective
    /// Over `comm`.
    pub fn dup(&self, comm: Handle) -> Result<Handle> {
        let mut new: Handle = 0;
        // SAFETY: the out-parameter lives across the call and has room for either kind of handle.
        check("MPI_Comm_dup", unsafe { (self.comm_dup)(comm, &mut new) })?;
        Ok(new)
    }

    /// Whether MPI may still be called.
    pub fn is_usable(&self) -> bool {
        let mut finalized = 0;
        // SAFETY: the out-parameter lives across the call, which is allowed at any time.
        unsafe { (self.finalized)(&mut finalized) == 0 && finalized == 0 }
    }

    /// Frees a communicator, unless MPI has been finalised.
    pub fn free(&self, comm: Handle) {
        let mut comm = comm;
        if self.is_usable() {
            // SAFETY: the out-parameter lives across the call. There is nobody to tell of a
            // failure.
            let _ = unsafe { (self.comm_free)(&mut comm) };
        }
    }

    /// Waits for all ranks of `comm`.
    ///
    /// # Errors
    /// What MPI answers.
    pub fn barrier(&self, comm: Handle) -> Result<()> {
        // SAFETY: no pointers.
        check("MPI_Barrier", unsafe { (self.barrier)(comm) })
    }

    /// Every rank's `mine`, by rank.
    ///
    /// # Errors
    /// What MPI answers.
    pub fn allgather<const N: usize>(&self, comm: Handle, mine: [u64; N]) -> Result<Vec<[u64; N]>> {
        let (_, size) = self.rank_and_size(comm)?;
        let mut all = vec![[0u64; N]; size];
        let (bytes, byte) = (exact::<c_int>(size_of::<[u64; N]>()), self.constants.byte);
        // SAFETY: the receive buffer has room for `bytes` from each of `size` ranks.
        let code = unsafe {
            (self.allgather)(
                mine.as_ptr().cast(),
                bytes,
                byte,
                all.as_mut_ptr().cast(),
                bytes,
                byte,
                comm,
            )
        };
        check("MPI_Allgather", code)?;
        Ok(all)
    }

    /// Begins to send `packet`, which must be left alone until [`Api::test`] says it is done.
    ///
    /// # Errors
    /// What MPI answers, and when the packet has 2^31 bytes or more.
    pub fn isend(&self, comm: Handle, to: usize, tag: c_int, packet: &[u8]) -> Result<Handle> {
        let bytes = c_int::try_from(packet.len()).map_err(|_| {
            let cause = format!(
                "{} bytes: use smaller chunks (a block must stay below 2 GiB)",
                packet.len()
            );
            Error::new(Kind::Unsupported, "sending a block to another host", cause)
        })?;
        let mut request: Handle = 0;
        let start = packet.as_ptr().cast();
        // SAFETY: the caller keeps the packet; the out-parameter has room for either handle.
        let code = unsafe {
            (self.isend)(
                start,
                bytes,
                self.constants.byte,
                exact::<c_int>(to),
                tag,
                comm,
                &mut request,
            )
        };
        check("MPI_Isend", code)?;
        Ok(request)
    }

    /// Whether a send is done; its packet may then go.
    ///
    /// # Errors
    /// What MPI answers.
    pub fn test(&self, request: &mut Handle) -> Result<bool> {
        let mut done = 0;
        // SAFETY: all three live across the call.
        let code = unsafe { (self.test)(request, &mut done, &mut Status::new()) };
        check("MPI_Test", code)?;
        Ok(done != 0)
    }

    /// Matches a message that has come for `tag`, if there is one.
    ///
    /// # Errors
    /// What MPI answers.
    pub fn probe(&self, comm: Handle, tag: c_int) -> Result<Option<MatchedMessage>> {
        let (mut found, mut message, mut status) = (0, 0, Status::new());
        let (any, byte) = (self.constants.any_source, self.constants.byte);
        // SAFETY: out-parameters live across the calls and are large enough.
        unsafe {
            let code = (self.improbe)(any, tag, comm, &mut found, &mut message, &mut status);
            check("MPI_Improbe", code)?;
            if found == 0 {
                return Ok(None);
            }
            let mut bytes = 0;
            check("MPI_Get_count", (self.get_count)(&status, byte, &mut bytes))?;
            Ok(Some(MatchedMessage { message, bytes }))
        }
    }

    /// Receives a matched message.
    ///
    /// # Errors
    /// What MPI answers.
    pub fn receive(&self, probed: MatchedMessage) -> Result<Vec<u8>> {
        let MatchedMessage { mut message, bytes } = probed;
        let mut packet = vec![0u8; bytes as usize];
        let start = packet.as_mut_ptr().cast();
        // SAFETY: the packet has room for the bytes that the probe counted.
        let code = unsafe {
            (self.mrecv)(
                start,
                bytes,
                self.constants.byte,
                &mut message,
                &mut Status::new(),
            )
        };
        check("MPI_Mrecv", code)?;
        Ok(packet)
    }
}

fn check(function: &str, code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    Err(Error::new(
        Kind::Peer,
        function,
        format!("MPI error code {code}"),
    ))
}
