//! Requests of non-blocking accesses: generalised requests, which the program tests and waits for
//! as for any other.
//!
//! A generalised request ends when somebody says so. Where the MPI library polls such requests, an
//! access that has ended is found then; elsewhere the thread that ends it tells MPI, which needs
//! `MPI_THREAD_MULTIPLE`; and where neither is possible, the access ends before its call returns.
//!
//! | library | who ends the request |
//! |---|---|
//! | MPICH (`MPIX_Grequest_start`) | the program's test or wait, which polls |
//! | others, all threads may call MPI | the thread that has moved the data |
//! | others | the call that begins it |

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex};

use penstock_machines::mpi::abi::Handle;

use crate::context::lock;
use crate::failure::{Class, Result, wrong};
use crate::file::File;
use crate::mpi::Mpi;
use crate::operations::Call;
use crate::pending::Pending;

/// A request under way, as its callbacks see it.
struct State {
    file: Arc<File>,
    pending: Mutex<Option<Pending>>,
    /// The end of the access, once MPI has asked: it may ask again.
    landed: Mutex<Option<Result<u64>>>,
    ending: Arc<Mutex<Ending>>,
}

/// How a request comes to its end: its handle is known once it was started, and its access may have
/// ended before.
#[derive(Debug, Default)]
struct Ending {
    request: Option<Handle>,
    has_moved: bool,
    is_told: bool,
}

impl Ending {
    /// The request, if it is to be ended now: once.
    fn take(&mut self) -> Option<Handle> {
        let request = self.request.filter(|_| self.has_moved && !self.is_told);
        self.is_told |= request.is_some();
        request
    }
}

/// Ends a request if its access has ended.
fn complete(mpi: &Mpi, ending: &Mutex<Ending>) {
    let request = lock(ending).take();
    if let Some(request) = request {
        // SAFETY: the request is under way, and is ended once. There is nobody to tell of a
        // failure.
        let _ = unsafe { (mpi.call.grequest_complete)(request) };
    }
}

/// Begins a non-blocking access, and gives its request.
///
/// # Errors
/// Those of the arguments; what MPI answers.
pub fn begin(file: &Arc<File>, call: &Call, is_collective: bool) -> Result<Handle> {
    let mpi = file.mpi;
    let ending = Arc::new(Mutex::new(Ending::default()));
    let tells = mpi.polled.is_none() && mpi.has_threads();
    let own = ending.clone();
    let then = move || {
        lock(&own).has_moved = true;
        if tells {
            complete(mpi, &own);
        }
    };
    let pending = match is_collective {
        true => file.begin_together(call, then)?,
        false => file.begin_alone(call, then)?,
    };
    let pending = match mpi.polled.is_some() || tells {
        true => pending,
        false => Pending::Ended(Box::new(pending.wait(&file.context))),
    };
    let state = Arc::new(State {
        file: file.clone(),
        pending: Mutex::new(Some(pending)),
        landed: Mutex::default(),
        ending: ending.clone(),
    });
    let state = Arc::into_raw(state).cast_mut().cast::<c_void>();
    let mut request: Handle = 0;
    let place = (&raw mut request).cast();
    // SAFETY: the state lives until `free` is called; the out-parameter has room for a handle of
    // any ABI.
    let code = unsafe {
        match &mpi.polled {
            Some(polled) => {
                let machine = file.context.machine.as_ref();
                let is_looked_after = machine.is_none_or(|machine| !machine.needs_mpi());
                let waits = is_looked_after.then_some(wait as _);
                (polled.start)(query, free, cancel, poll, waits, state, place)
            }
            None => (mpi.call.grequest_start)(query, free, cancel, state, place),
        }
    };
    mpi.check("starting a request", code)?;
    lock(&ending).request = Some(request);
    if mpi.polled.is_none() {
        complete(mpi, &ending);
    }
    Ok(request)
}

/// The state of a request.
///
/// # Safety
/// The pointer must be that of a request that was not freed.
unsafe fn state_of<'a>(state: *mut c_void) -> &'a State {
    // SAFETY: the caller's promise.
    unsafe { &*state.cast::<State>() }
}

/// Fills the status of a request that has ended.
unsafe extern "C" fn query(state: *mut c_void, status: *mut c_void) -> c_int {
    // SAFETY: MPI passes on the state of a request that was not freed.
    let state = unsafe { state_of(state) };
    let file = &state.file;
    let ended = lock(&state.pending).take();
    let mut landed = lock(&state.landed);
    if let Some(pending) = ended {
        *landed = Some(pending.wait(&file.context).land());
    }
    let told = landed
        .clone()
        .unwrap_or_else(|| Err(wrong(Class::Request, "the access has been ended already")));
    drop(landed);
    match told {
        Ok(bytes) => {
            // SAFETY: MPI gives a place for a status.
            unsafe { set_status(file.mpi, status, bytes) };
            0
        }
        Err(failure) => {
            // SAFETY: as above.
            unsafe { set_status(file.mpi, status, 0) };
            let handler = *lock(&file.handler);
            handler.handle_failure(file.mpi, file.handle, &failure)
        }
    }
}

/// Frees the state of a request.
unsafe extern "C" fn free(state: *mut c_void) -> c_int {
    // SAFETY: MPI calls this once for each request.
    let state = unsafe { Arc::from_raw(state.cast::<State>()) };
    // The program may have freed the request and not waited for it.
    let left = lock(&state.pending).take();
    if let Some(pending) = left {
        drop(pending.wait(&state.file.context));
    }
    0
}

/// An access that has begun is not cancelled.
unsafe extern "C" fn cancel(_: *mut c_void, _: c_int) -> c_int {
    0
}

/// Looks whether an access has ended.
unsafe extern "C" fn poll(state: *mut c_void, _: *mut c_void) -> c_int {
    // SAFETY: as of `query`.
    let state = unsafe { state_of(state) };
    let pending = lock(&state.pending);
    let has_ended = pending
        .as_ref()
        .is_some_and(|pending| pending.has_ended(&state.file.context));
    drop(pending);
    if has_ended {
        lock(&state.ending).has_moved = true;
        complete(state.file.mpi, &state.ending);
    }
    0
}

/// Waits for accesses.
unsafe extern "C" fn wait(count: c_int, states: *mut *mut c_void, _: f64, _: *mut c_void) -> c_int {
    for nth in 0..count.max(0) as usize {
        // SAFETY: MPI gives so many states of requests that were not freed.
        let state = unsafe { state_of(*states.add(nth)) };
        let pending = lock(&state.pending).take();
        if let Some(pending) = pending {
            let moved = pending.wait(&state.file.context);
            *lock(&state.pending) = Some(Pending::Ended(Box::new(moved)));
        }
        lock(&state.ending).has_moved = true;
        complete(state.file.mpi, &state.ending);
    }
    0
}

/// Fills a status with bytes of memory, if the program wants it.
///
/// # Safety
/// The status must be null, `MPI_STATUS_IGNORE`, or a place for a status.
pub unsafe fn set_status(mpi: &Mpi, status: *mut c_void, bytes: u64) {
    if status as usize == mpi.dialect.status_ignore || status.is_null() {
        return;
    }
    let (byte, bytes) = (mpi.dialect.constants.byte, bytes as i64);
    // SAFETY: the caller's promise. There is nobody to tell of a failure.
    unsafe {
        let _ = (mpi.call.status_set_elements)(status, byte, bytes);
        let _ = (mpi.call.status_set_cancelled)(status, 0);
    }
}
