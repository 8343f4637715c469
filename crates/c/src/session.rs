//! Sessions: `penstock_session` and `penstock_seat`.
//!
//! Every collective call goes through [`Shared::together`]: what cannot be prepared on this rank,
//! all ranks hear of, and none waits.

use std::ffi::{c_int, c_void};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use penstock_arrays::DirectIo;
use penstock_arrays::calls::settings::{
    BACKGROUND_BYTES, BLOCK_BYTES, CACHE_BYTES, SessionOptions as CallOptions,
};
use penstock_arrays::calls::strategy::{self, Tuning};
use penstock_arrays::calls::{Seat as ThreadSeat, Session as Calls, call_of};
use penstock_engine::{Error, Kind, Result, Strategy};
use penstock_machines::mpi::Transport;

use crate::border::{
    Ended, Options, Place, Text, Versioned, answer, caught, enter, kind_of, needed, number, wrong,
};
use crate::meet::meet;
use crate::mpi::{Communicator, Given};

const OPENING: &str = "opening a session";
/// More of anything is a mistake.
const COUNT_MAX: u64 = 1 << 48;

// --- options -------------------------------------------------------------------------------------

/// `penstock_session_options`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SessionOptions<'a> {
    pub size: usize,
    pub transport: Text<'a>,
    pub root: Text<'a>,
    pub servers: u64,
    pub url: Text<'a>,
    pub keys: Text<'a>,
    pub dedicated: c_int,
    pub sync: c_int,
    pub direct: c_int,
    pub block_bytes: u64,
    pub background_bytes: u64,
    pub cache_bytes: u64,
    pub strategy: Text<'a>,
}

impl Versioned for SessionOptions<'_> {
    const INIT: Self = Self {
        size: size_of::<Self>(),
        transport: Text::NULL,
        root: Text::NULL,
        servers: 0,
        url: Text::NULL,
        keys: Text::NULL,
        dedicated: -1,
        sync: 1,
        direct: -1,
        block_bytes: 0,
        background_bytes: 0,
        cache_bytes: 0,
        strategy: Text::NULL,
    };
    const FIRST_BYTES: usize = size_of::<Self>();
    const NAME: &'static str = "penstock_session_options";
}

/// The options of a session, checked.
struct Chosen {
    transport: Transport,
    root: Option<PathBuf>,
    /// The URL of servers that stand, and the keys for them.
    standing: Option<(String, Option<String>)>,
    options: CallOptions,
}

/// `PENSTOCK_AUTO`, `PENSTOCK_NO` or `PENSTOCK_YES`.
///
/// # Errors
/// [`Kind::Schema`] for any other number.
fn answer_of(word: c_int, what: &str) -> Result<Option<bool>> {
    match word {
        -1 => Ok(None),
        0 => Ok(Some(false)),
        1 => Ok(Some(true)),
        _ => {
            let cause = format!("{what} is {word}: use PENSTOCK_AUTO, PENSTOCK_NO or PENSTOCK_YES");
            Err(Error::new(Kind::Schema, OPENING, cause))
        }
    }
}

/// A count; 0 stands for `usual`.
fn count_of(count: u64, usual: u64, what: &str) -> Result<u64> {
    match count {
        0 => Ok(usual),
        1..COUNT_MAX => Ok(count),
        _ => {
            let cause = format!("{what} is {count}, which is too much");
            Err(Error::new(Kind::Schema, OPENING, cause))
        }
    }
}

/// The strategy with a name, if there is one.
///
/// # Errors
/// [`Kind::Schema`] for what is no strategy.
pub fn strategy_of(word: Text<'_>) -> Result<Option<Strategy>> {
    let word = word.optional("strategy")?;
    word.map(|word| strategy::named(word, &Tuning::default()))
        .transpose()
}

/// The options that C gives, with a default for `dedicated`.
fn chosen(given: Options<'_, SessionOptions<'_>>, is_dedicated: bool) -> Result<Chosen> {
    let given = given.read()?;
    let transport = match given.transport.optional("transport")? {
        None | Some("shared") => Transport::Shared,
        Some("messages") => Transport::Messages,
        Some(other) => {
            let cause = format!("'{other}' is no transport: use \"shared\" or \"messages\"");
            return Err(Error::new(Kind::Schema, OPENING, cause));
        }
    };
    let url = given.url.optional("url")?;
    if url.is_some() && given.servers != 0 {
        let cause = "standing servers have a number of their own: give a url, or servers";
        return Err(Error::new(Kind::Schema, OPENING, cause));
    }
    let keys = given.keys.optional("keys")?.map(str::to_string);
    let servers = count_of(given.servers, 0, "servers")?;
    let servers = usize::try_from(servers).map_err(wrong)?;
    let usual = CallOptions::default();
    Ok(Chosen {
        transport,
        root: given.root.optional("root")?.map(PathBuf::from),
        standing: url.map(|url| (url.to_string(), keys)),
        options: CallOptions {
            servers: (servers > 0).then_some(servers),
            dedicated: answer_of(given.dedicated, "dedicated")?.unwrap_or(is_dedicated),
            sync: answer_of(given.sync, "sync")?.unwrap_or(usual.sync),
            block_bytes: count_of(given.block_bytes, BLOCK_BYTES, "block_bytes")?,
            background_bytes: count_of(
                given.background_bytes,
                BACKGROUND_BYTES,
                "background_bytes",
            )?,
            cache_bytes: count_of(given.cache_bytes, CACHE_BYTES, "cache_bytes")?,
            direct: answer_of(given.direct, "direct")?.map_or(usual.direct, DirectIo::from),
            strategy: strategy_of(given.strategy)?.unwrap_or(usual.strategy),
            ..usual
        },
    })
}

// --- sessions ------------------------------------------------------------------------------------

/// A session that one thread at a time uses.
struct OneThread(Calls);

// SAFETY: a session and all that it refers to is one value, and no part of it is tied to a thread;
// its reference counts and cells are only reached through it, and the mutex in `Shared` lets only
// one thread do so at a time. (MPI wants its calls from one thread: the header says so.)
unsafe impl Send for OneThread {}

/// A session, and the splits and open arrays that belong to it.
pub struct Shared {
    /// Nothing once the session is closed.
    calls: Mutex<Option<OneThread>>,
    rank: Option<usize>,
    clients: usize,
    servers: usize,
    root: Option<PathBuf>,
}

/// `penstock_session`.
pub struct Session(pub Arc<Shared>);

impl Session {
    fn new(calls: Calls, root: Option<PathBuf>) -> Self {
        Self(Arc::new(Shared {
            rank: calls.rank(),
            clients: calls.clients(),
            servers: calls.servers(),
            calls: Mutex::new(Some(OneThread(calls))),
            root,
        }))
    }
}

impl Shared {
    /// This rank.
    ///
    /// # Errors
    /// [`Kind::Schema`] on a dedicated server.
    pub fn rank(&self) -> Result<usize> {
        let on_server = || {
            let cause = "this rank is a dedicated server: it makes no calls";
            Error::new(Kind::Schema, "using a session", cause)
        };
        self.rank.ok_or_else(on_server)
    }

    /// The number of clients.
    pub fn clients(&self) -> usize {
        self.clients
    }

    /// A path, below the session's root if it has one.
    ///
    /// # Errors
    /// [`Kind::Schema`] when there is none.
    pub fn path(&self, path: Text<'_>, what: &str) -> Result<PathBuf> {
        Ok(self.below_root(path.needed(what)?))
    }

    /// A path, below the session's root if it has one.
    pub fn below_root(&self, path: &str) -> PathBuf {
        match &self.root {
            Some(root) => root.join(path),
            None => PathBuf::from(path),
        }
    }

    fn lock(&self) -> Result<MutexGuard<'_, Option<OneThread>>> {
        match self.calls.try_lock() {
            Ok(owned) => Ok(owned),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                let cause = "it is in use by another thread, or by the call that this call is from";
                Err(Error::new(Kind::Schema, "using a session", cause))
            }
        }
    }

    /// Whether the session is closed.
    pub fn is_closed(&self) -> bool {
        self.lock().is_ok_and(|owned| owned.is_none())
    }

    /// Makes a call of this rank. A panic ends this rank's part in the session: the calls of the
    /// others fail, in place of waiting.
    ///
    /// # Errors
    /// Those of the call; [`Kind::Schema`] when another thread uses the session, or it is closed.
    pub fn alone<T>(&self, call: impl FnOnce(&mut Calls) -> Result<T>) -> Result<T> {
        self.rank()?;
        let mut owned = self.lock()?;
        let closed = || Error::new(Kind::Schema, "using a session", "the session is closed");
        let OneThread(calls) = owned.as_mut().ok_or_else(closed)?;
        match caught(|| call(calls)) {
            Ended::Returned(result) => result,
            Ended::Panicked(error) => {
                let left = caught(|| {
                    calls.leave(&error.cause);
                    Ok(())
                });
                drop(left.flat()); // the first panic is what is told
                Err(error)
            }
        }
    }

    /// Makes a collective call with what `prepare` gives. Where it gives an error, this rank takes
    /// part in the call all the same, and all ranks have the error.
    ///
    /// # Errors
    /// The same on all ranks: those of a rank's `prepare`, and those of the call.
    ///
    /// # Collective
    /// Over all clients.
    pub fn together<P, T>(
        &self,
        prepare: impl FnOnce() -> Result<P>,
        call: impl FnOnce(&mut Calls, P) -> Result<T>,
    ) -> Result<T> {
        self.alone(|calls| match caught(prepare).flat() {
            Ok(prepared) => call(calls, prepared),
            Err(error) => Err(calls.refuse(error)),
        })
    }

    /// Ends the session.
    fn close(&self) -> Result<()> {
        let mut owned = self.lock()?;
        let Some(OneThread(mut calls)) = owned.take() else {
            return Ok(());
        };
        drop(owned);
        match caught(|| calls.close()) {
            Ended::Returned(closed) => closed,
            Ended::Panicked(error) => {
                calls.leave(&error.cause);
                Err(error)
            }
        }
    }

    fn leave(&self, cause: &str) -> Result<()> {
        let taken = self.lock()?.take();
        if let Some(OneThread(mut calls)) = taken {
            calls.leave(cause);
        }
        Ok(())
    }
}

/// A session of this process alone.
fn embedded(options: Options<'_, SessionOptions<'_>>) -> Result<Session> {
    let chosen = chosen(options, true)?;
    let mut seats = seats_of(1, &chosen)?;
    let none = || Error::new(Kind::Schema, OPENING, "there is no seat");
    let seat = seats.pop().ok_or_else(none)?;
    Ok(Session::new(seat.open(None)?, chosen.root))
}

/// A session over an MPI communicator. All ranks hear of what is wrong with the arguments of one.
fn over_mpi(
    comm: Given,
    options: Options<'_, SessionOptions<'_>>,
    place: &Place<'_, Option<Box<Session>>>,
) -> Result<Session> {
    let comm = Communicator::of(comm)?;
    let given = caught(|| {
        place.check("the session")?;
        let chosen = chosen(options, false)?;
        let call = chosen.standing.as_ref();
        let call = call.map(|(url, keys)| call_of(url, keys.as_deref()));
        Ok((call.transpose()?, chosen))
    });
    let given = given.flat();
    let given = given.map(|(call, chosen)| (u64::from(call.is_some()), (call, chosen)));
    let (call, chosen) = meet(&comm, given, OPENING)?;
    let Communicator {
        api,
        handle,
        may_use_threads,
    } = comm;
    let Chosen {
        transport,
        root,
        options,
        ..
    } = chosen;
    let calls = match call {
        Some(call) => Calls::mpi_standing(&api, handle, Ok((call, options)), None)?,
        None => {
            let given = Ok((transport, options));
            Calls::mpi(api, handle, may_use_threads, given, None)?
        }
    };
    Ok(Session::new(calls, root))
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_session_open(
    comm: *const c_void,
    options: Options<'_, SessionOptions<'_>>,
    mut session: Place<'_, Option<Box<Session>>>,
) -> c_int {
    enter(|| {
        session.put(None);
        let opened = match comm.is_null() {
            true => {
                session.check("the session")?;
                embedded(options)?
            }
            false => over_mpi(Given::Address(comm), options, &session)?,
        };
        session.put_handle(opened);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_session_open_f(
    comm: c_int,
    options: Options<'_, SessionOptions<'_>>,
    mut session: Place<'_, Option<Box<Session>>>,
) -> c_int {
    enter(|| {
        session.put(None);
        let opened = over_mpi(Given::Fortran(comm), options, &session)?;
        session.put_handle(opened);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_session_rank(session: Option<&Session>) -> i64 {
    let rank = session.and_then(|session| session.0.rank);
    rank.map_or(-1, number)
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_session_size(session: Option<&Session>) -> i64 {
    session.map_or(0, |session| number(session.0.clients))
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_session_servers(session: Option<&Session>) -> i64 {
    session.map_or(0, |session| number(session.0.servers))
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_session_is_client(session: Option<&Session>) -> c_int {
    c_int::from(session.is_some_and(|session| session.0.rank.is_some()))
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_session_barrier(session: Option<&Session>) -> c_int {
    enter(|| {
        let session = needed(session, "the session")?;
        session.0.alone(|calls| calls.barrier())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_session_refuse(
    session: Option<&Session>,
    code: c_int,
    doing: Text<'_>,
    cause: Text<'_>,
) -> c_int {
    enter(|| {
        let session = needed(session, "the session")?;
        let refusal = || {
            let (doing, cause) = (doing.needed("doing")?, cause.needed("cause")?);
            Err::<(), Error>(Error::new(kind_of(code)?, doing, cause))
        };
        session.0.together(refusal, |_, ()| Ok(()))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_session_close(session: Option<Box<Session>>) -> c_int {
    enter(|| session.map_or(Ok(()), |session| session.0.close()))
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_session_leave(session: Option<Box<Session>>, cause: Text<'_>) {
    answer((), || {
        let cause = cause.optional("cause").ok().flatten();
        let cause = cause.unwrap_or("its program has left");
        if let Some(session) = session {
            // Where another thread uses the session, it stays with that thread.
            let _ = session.0.leave(cause);
        }
    });
}

// --- seats ---------------------------------------------------------------------------------------

/// `penstock_seat`.
pub struct Seat {
    seat: ThreadSeat,
    root: Option<PathBuf>,
}

fn seats_of(ranks: usize, chosen: &Chosen) -> Result<Vec<ThreadSeat>> {
    match &chosen.standing {
        Some((url, keys)) => {
            ThreadSeat::all_of_standing(ranks, &chosen.options, (url, keys.as_deref()))
        }
        None => ThreadSeat::all(ranks, &chosen.options),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_seats_create(
    ranks: usize,
    options: Options<'_, SessionOptions<'_>>,
    mut seats: Place<'_, Option<Box<Seat>>>,
) -> c_int {
    enter(|| {
        seats.check("the seats")?;
        count_of(ranks as u64, 0, "ranks")?;
        let chosen = chosen(options, false)?;
        let made = seats_of(ranks, &chosen)?;
        for (rank, seat) in made.into_iter().enumerate() {
            let root = chosen.root.clone();
            seats.put_nth(rank, Some(Box::new(Seat { seat, root })));
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_seat_open(
    seat: Option<Box<Seat>>,
    mut session: Place<'_, Option<Box<Session>>>,
) -> c_int {
    enter(|| {
        session.put(None);
        let seat = needed(seat, "the seat")?;
        if let Err(error) = session.check("the session") {
            seat.seat.give_up(&error.cause);
            return Err(error);
        }
        session.put_handle(Session::new(seat.seat.open(None)?, seat.root));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_seat_free(seat: Option<Box<Seat>>) {
    answer((), || {
        if let Some(seat) = seat {
            seat.seat.give_up("its seat was freed");
        }
    });
}
