//! Opens sessions on threads or over MPI, and chooses which ranks serve.

use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{JoinHandle, ScopedJoinHandle};
use std::time::Duration;

use futures::FutureExt;
use futures::future::select;
use penstock_engine::version::Version;
use penstock_engine::{Attendance, Error, Kind, Machine, Party, PartyId, Result, Who};
use penstock_layout::exact;
use penstock_machines::calls::{self, NodeServers};
use penstock_machines::mpi::abi::Handle;
use penstock_machines::mpi::api::Api;
use penstock_machines::mpi::{self, Transport};
use penstock_machines::node::pause::{LOOKS_AWAKE, Pause};
use penstock_machines::{Node, Threads};
use penstock_net::Call;

use super::driver::{Driver, Interrupt, UNASKED_MAX, node_cache_bytes};
use super::hello;
use super::opener::StoreOpener;
use super::session::Session;
use super::settings::{SessionOptions, Settings};
use super::standing::{Meeting, Place};

/// The party of a session: it has a machine to itself.
const PARTY: PartyId = PartyId(0);

/// A rank's place among the threads of a program. The thread that will use the session opens it.
pub struct Seat {
    rank: usize,
    options: SessionOptions,
    machine: SeatMachine,
}

/// The machine of the threads of a program.
enum SeatMachine {
    /// The threads themselves.
    Own {
        threads: Threads,
        party: Arc<Party>,
        dedicated: Vec<JoinHandle<()>>,
    },
    /// Servers that stand, whose clients the threads are.
    Standing(Call, Option<Arc<Meeting>>),
}

impl Drop for Seat {
    /// The other threads do not wait for one that has opened no session.
    fn drop(&mut self) {
        if let SeatMachine::Standing(_, Some(meeting)) = &self.machine {
            meeting.leave(self.rank);
        }
    }
}

impl Seat {
    /// Makes a machine of `ranks` threads and starts its dedicated servers.
    ///
    /// # Errors
    /// When `ranks`, the number of servers or `block_bytes` is zero, or when no thread can start.
    pub fn all(ranks: usize, options: &SessionOptions) -> Result<Vec<Seat>> {
        let servers = options
            .servers
            .unwrap_or_else(|| default_servers(ranks, processors()));
        check_count("ranks", ranks)?;
        check_count("servers", servers)?;
        check_count("block_bytes", exact::<usize>(options.block_bytes))?;
        let nodes = if options.dedicated {
            ranks + servers
        } else {
            ranks
        };
        let on = |server| {
            if options.dedicated {
                ranks + server
            } else {
                server % ranks
            }
        };
        let of_servers = (0..servers).map(on).collect();
        let party = Arc::new(Party::new(PARTY, (0..ranks).collect(), of_servers));
        let threads = Threads::new(nodes);
        let mut dedicated = Vec::new();
        for node in ranks..nodes {
            let (threads, party) = (threads.clone(), party.clone());
            let opener = StoreOpener::new(options);
            let cache_bytes = options.cache_bytes;
            let serve = move || serve(&threads.node(node, opener), &party, cache_bytes, None);
            let thread = std::thread::Builder::new()
                .name(format!("server-{node}"))
                .spawn(serve);
            dedicated
                .push(thread.map_err(|e| Error::new(Kind::Io, "starting a server's thread", e))?);
        }
        let mut seats: Vec<Seat> = (0..ranks)
            .map(|rank| Seat {
                rank,
                options: options.clone(),
                machine: SeatMachine::Own {
                    threads: threads.clone(),
                    party: party.clone(),
                    dedicated: Vec::new(),
                },
            })
            .collect();
        if let SeatMachine::Own { dedicated: own, .. } = &mut seats[0].machine {
            *own = dedicated;
        }
        Ok(seats)
    }

    /// Makes the seats of threads that are clients of servers that stand.
    ///
    /// # Errors
    /// When `ranks` is zero, or the URL of the servers makes no sense.
    pub fn all_of_standing(
        ranks: usize,
        options: &SessionOptions,
        (url, keys): (&str, Option<&str>),
    ) -> Result<Vec<Seat>> {
        check_count("ranks", ranks)?;
        let call = call_of(url, keys)?;
        let meeting = Arc::new(Meeting::new(ranks));
        let seats = (0..ranks).map(|rank| Seat {
            rank,
            options: options.clone(),
            machine: SeatMachine::Standing(call.clone(), Some(meeting.clone())),
        });
        Ok(seats.collect())
    }

    /// Opens the session of this seat's rank. The rank calls `interrupt` now and then while it
    /// waits.
    ///
    /// # Errors
    /// Where servers stand, as [`Session::mpi_standing`].
    pub fn open(mut self, interrupt: Option<Interrupt>) -> Result<Session> {
        let (rank, options) = (self.rank, self.options.clone());
        let (threads, party, dedicated) = match &mut self.machine {
            SeatMachine::Own {
                threads,
                party,
                dedicated,
            } => (threads.clone(), party.clone(), std::mem::take(dedicated)),
            SeatMachine::Standing(call, meeting) => {
                let Some(meeting) = meeting.take() else {
                    unreachable!("a seat is opened once");
                };
                let asked = interrupt.clone();
                let all_of = |words| meeting.all_of(rank, words, asked.as_ref());
                let place = Place {
                    rank,
                    all_of: &all_of,
                };
                let opened = Session::standing(&place, Ok((call.clone(), options)), interrupt);
                if opened.is_err() {
                    meeting.leave(rank);
                }
                return opened;
            }
        };
        let node = threads.node(rank, StoreOpener::new(&options));
        let settings = Settings::new(&party, 1, options, true);
        let driver = Driver::new(node, party.clone(), settings.options.cache_bytes, interrupt);
        let session = Session::new(driver, party, Some(rank), settings, dedicated);
        Ok(session)
    }

    /// Gives the seat up, for `cause`: the sessions of the other threads fail.
    pub fn give_up(self, cause: &str) {
        // Where servers stand, the others hear of it when the seat is dropped.
        if matches!(self.machine, SeatMachine::Own { .. })
            && let Ok(mut session) = self.open(None)
        {
            session.leave(cause);
        }
    }
}

/// How to call the servers of a URL.
///
/// # Errors
/// [`Kind::Schema`] when it is none; those of the keys.
pub fn call_of(url: &str, keys: Option<&str>) -> Result<Call> {
    let no_url = || {
        let cause = format!("{url:?} is no URL of servers, penstock://HOST:PORT or unix:///PATH");
        Error::new(Kind::Schema, "opening a session", cause)
    };
    Call::of_url(url, keys)?.ok_or_else(no_url)
}

/// The longest time that a caller that waits for its ranks goes without asking whether it must
/// stop.
const JOIN_WAIT: Duration = Duration::from_millis(20);

/// Tells the caller that a rank has ended, also if its thread panics.
struct Ended(mpsc::Sender<()>);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.send(()); // the caller has heard of a panic elsewhere
    }
}

/// Runs `body` as each rank of a session on threads of this process, and gives the result of each
/// rank. The calling thread waits, and calls `interrupt` now and then.
///
/// # Errors
/// As [`Seat::all`].
pub fn on_threads<T: Send>(
    ranks: usize,
    options: &SessionOptions,
    interrupt: &dyn Fn() -> bool,
    body: impl Fn(&Session) -> Result<T> + Sync,
) -> Result<Vec<Result<T>>> {
    let stops = Arc::new(AtomicBool::new(false));
    let run = |seat: Seat| {
        let stops = stops.clone();
        let mut session = seat.open(Some(Arc::new(move || stops.load(Ordering::Relaxed))))?;
        let done = body(&session)?;
        session.close()?;
        Ok(done)
    };
    let seats = Seat::all(ranks, options)?;
    Ok(std::thread::scope(|scope| {
        let (ends, ended) = mpsc::channel();
        let start = |seat| {
            let end = Ended(ends.clone());
            scope.spawn(|| {
                let _end = end;
                run(seat)
            })
        };
        let threads: Vec<_> = seats.into_iter().map(start).collect();
        let mut left = threads.len();
        while left > 0 {
            match ended.recv_timeout(JOIN_WAIT) {
                Ok(()) => left -= 1,
                Err(_) if interrupt() => stops.store(true, Ordering::Relaxed),
                Err(_) => {}
            }
        }
        let crashed = || Error::new(Kind::Peer, "running a session", "a thread has panicked");
        let join =
            |thread: ScopedJoinHandle<'_, _>| thread.join().unwrap_or_else(|_| Err(crashed()));
        threads.into_iter().map(join).collect()
    }))
}

/// Servers where the user names no number: one a processor, but not more than ranks.
fn default_servers(ranks: usize, processors: usize) -> usize {
    processors.min(ranks.max(2)).max(1)
}

/// The number of processors that this process may use.
fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn check_count(what: &str, count: usize) -> Result<()> {
    if count == 0 {
        let cause = format!("{what} must be at least 1");
        return Err(Error::new(Kind::Schema, "opening a session", cause));
    }
    Ok(())
}

/// Serves on a node that is no client until the session is closed, broken, or interrupted.
fn serve(node: &Node, party: &Arc<Party>, cache_bytes: u64, interrupt: Option<&Interrupt>) {
    let cache_bytes = node_cache_bytes(party, node.me(), cache_bytes);
    let attendance = Rc::new(Attendance::new(party.clone()));
    let servers = NodeServers::of_party(node, attendance.clone(), cache_bytes);
    let mut serving = select(servers.run(), calls::listen(node, &attendance));
    let mut pause = Pause::default();
    loop {
        let served = node.look(&mut pause, |context| serving.poll_unpin(context));
        if served.is_ready() {
            return node.post_all_kept();
        }
        pause.looks_awake = match servers.have_open_files() {
            true => LOOKS_AWAKE,
            false => 0,
        };
        pause.sleep(Some(UNASKED_MAX));
        if interrupt.is_some_and(|interrupt| interrupt()) {
            let mut error = Error::new(Kind::Peer, "serving", "it was interrupted");
            if let Some(server) = party.servers_on(node.me()).next() {
                error = error.by(Who::Server(server));
            }
            let all = 0..u64::MAX;
            return calls::leave(node, party, &error, &[all]);
        }
    }
}

impl Session {
    /// Opens a session of the ranks of `comm`. `may_use_threads` is true if any thread may call MPI
    /// at any time (`MPI_THREAD_MULTIPLE`). On a dedicated server the function returns when the
    /// clients have closed the session.
    ///
    /// # Errors
    /// On all ranks: when the options do not fit the job or differ between ranks, when a rank gives
    /// its error instead of options, or when ranks of one host cannot share memory.
    ///
    /// # Collective
    /// Over `comm`.
    pub fn mpi(
        api: Api,
        comm: Handle,
        may_use_threads: bool,
        given: Result<(Transport, SessionOptions)>,
        interrupt: Option<Interrupt>,
    ) -> Result<Session> {
        let options = given.as_ref().map(|(_, options)| options);
        let version = options.map_or(Version::THIS, |options| options.version);
        let given = given.and_then(|given| {
            let (transport, options) = &given;
            let digest = hello::digest(&(*transport == Transport::Shared, options))?;
            Ok((digest, given))
        });
        let mine = given.as_ref().ok().map(|(digest, _)| *digest);
        let met = hello::meet(version, mine, |words| api.allgather(comm, words));
        let (transport, options) = match (met, given) {
            // A rank whose options do not fit says why, if that is all that is wrong.
            (Err(error), Err(own)) if error.kind == Kind::Schema => return Err(own),
            (Err(error), _) | (Ok(()), Err(error)) => return Err(error),
            (Ok(()), Ok((_, given))) => given,
        };
        let job = mpi::join(api, comm, transport, StoreOpener::new(&options))?;
        let party = mpi_party(&job.hosts, &job.processors, &options)?;
        let party = Arc::new(party);
        let rank = party.rank(job.node.me());
        let hosts = job.hosts.iter().collect::<HashSet<_>>().len();
        let has_threads = may_use_threads || !job.node.needs_mpi();
        let settings = Settings::new(&party, hosts, options, has_threads);
        if rank.is_none() {
            serve(
                &job.node,
                &party,
                settings.options.cache_bytes,
                interrupt.as_ref(),
            );
        }
        let driver = Driver::new(
            job.node,
            party.clone(),
            settings.options.cache_bytes,
            interrupt,
        );
        Ok(Session::new(driver, party, rank, settings, Vec::new()))
    }

    /// Opens a session whose servers stand, in all ranks of `comm`, each a client.
    ///
    /// # Errors
    /// On all ranks: when a rank gives its error in the place of options, when options differ, when
    /// servers cannot be reached, have no arrays, or refuse the user.
    ///
    /// # Collective
    /// Over `comm`.
    pub fn mpi_standing(
        api: &Api,
        comm: Handle,
        given: Result<(Call, SessionOptions)>,
        interrupt: Option<Interrupt>,
    ) -> Result<Session> {
        let options = given.as_ref().map(|(_, options)| options);
        let version = options.map_or(Version::THIS, |options| options.version);
        let mine = options.ok().map(hello::digest).transpose()?;
        let met = hello::meet(version, mine, |words| api.allgather(comm, words));
        match (met, given) {
            (Err(error), Err(own)) if error.kind == Kind::Schema => Err(own),
            (Err(error), _) => Err(error),
            (Ok(()), given) => {
                let (rank, _) = api.rank_and_size(comm)?;
                let all_of = |words| api.allgather(comm, words);
                let place = Place {
                    rank,
                    all_of: &all_of,
                };
                Session::standing(&place, given, interrupt)
            }
        }
    }
}

/// Which ranks of an MPI job are clients and which are servers, by the host of each rank and the
/// number of processors there. All ranks must come to the same result.
fn mpi_party(hosts: &[usize], processors: &[usize], options: &SessionOptions) -> Result<Party> {
    let size = hosts.len();
    let mut by_host: Vec<Vec<usize>> = vec![Vec::new(); size];
    for (rank, &host) in hosts.iter().enumerate() {
        by_host[host].push(rank);
    }
    by_host.retain(|ranks| !ranks.is_empty());
    let of_host =
        |ranks: &Vec<usize>| default_servers(ranks.len(), processors[ranks[0]]).min(ranks.len());
    let by_default: Vec<usize> = by_host.iter().map(of_host).collect();
    let servers = match options.servers {
        None if options.dedicated => by_host.len().min(size.saturating_sub(1)),
        None => by_default.iter().sum(),
        Some(servers) => servers,
    };
    check_count("servers", servers)?;
    check_count("block_bytes", exact::<usize>(options.block_bytes))?;
    if options.dedicated && servers >= size {
        let cause = format!("{servers} dedicated servers leave no client among {size} ranks");
        return Err(Error::new(Kind::Schema, "opening a session", cause));
    }
    // Servers are dealt out over the hosts; dedicated ones take the last ranks of each.
    let mut of_servers: Vec<usize> = Vec::with_capacity(servers);
    let turns = (0..).flat_map(|turn| (0..by_host.len()).map(move |host| (turn, host)));
    for (turn, host) in turns {
        if of_servers.len() == servers {
            break;
        }
        let ranks = &by_host[host];
        if !options.dedicated {
            if options.servers.is_none() && turn >= by_default[host] {
                continue;
            }
            of_servers.push(ranks[turn % ranks.len()]);
        } else if let Some(place) = ranks.len().checked_sub(turn + 1) {
            of_servers.push(ranks[place]);
        }
    }
    let is_client = |rank: &usize| !options.dedicated || !of_servers.contains(rank);
    let clients = (0..size).filter(is_client).collect();
    Ok(Party::new(PARTY, clients, of_servers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_has_as_many_servers_as_processors_or_ranks() {
        let options = SessionOptions::default();
        let servers = |hosts: &[usize], processors: &[usize]| {
            let party = mpi_party(hosts, processors, &options).unwrap();
            party.servers
        };
        assert_eq!(servers(&[0, 0, 0], &[2, 2, 2]), [0, 1]);
        assert_eq!(servers(&[0, 0, 2], &[2, 2, 8]), [0, 2, 1]);
        assert_eq!(servers(&[0, 1, 1, 1], &[4, 4, 4, 4]), [0, 1, 2, 3]);
        assert_eq!(servers(&[0, 0, 2, 2], &[1, 1, 2, 2]), [0, 2, 3]);
    }
}
