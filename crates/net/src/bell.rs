//! The bell of a node that also waits for sockets.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use penstock_engine::{Error, Kind, Result};
use penstock_machines::bell::{Bell, HasBell};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// The number of the bell itself among what it waits for.
pub(crate) const OWN: u64 = u64::MAX;

/// The most sockets that are looked at together.
const EVENTS_MAX: usize = 64;

/// A bell that rings when other threads ring it, and when a socket is ready.
pub(crate) struct SocketBell {
    bell: Bell,
    sockets: OwnedFd,
    rung: OwnedFd,
}

impl HasBell for SocketBell {
    fn bell(&self) -> &Bell {
        &self.bell
    }

    fn ring(&self) {
        self.bell.ring_by(|| {
            // A counter that is full wakes as well.
            let _ = rustix::io::write(&self.rung, &1u64.to_ne_bytes());
        });
    }

    fn sleep(&self, seen: u32, at_most: Option<Duration>) {
        self.bell.sleep_by(seen, || {
            let at_most = at_most.and_then(|time| Timespec::try_from(time).ok());
            let mut sockets = [PollFd::new(&self.sockets, PollFlags::IN)];
            // Whatever ends it, the node looks again.
            let _ = poll(&mut sockets, at_most.as_ref());
        });
    }
}

impl SocketBell {
    /// Makes a bell without sockets.
    ///
    /// # Errors
    /// When the process has too many files open.
    pub(crate) fn new() -> Result<Self> {
        let make = || {
            let bell = Self {
                bell: Bell::default(),
                sockets: epoll::create(CreateFlags::CLOEXEC)?,
                rung: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            };
            let data = EventData::new_u64(OWN);
            epoll::add(&bell.sockets, &bell.rung, data, EventFlags::IN)?;
            Ok(bell)
        };
        make().map_err(|error: rustix::io::Errno| failed(error))
    }

    /// From now on waits for a socket, known by a number.
    ///
    /// # Errors
    /// When the system keeps no more.
    pub(crate) fn add(&self, socket: &impl AsFd, number: u64) -> Result<()> {
        let data = EventData::new_u64(number);
        epoll::add(&self.sockets, socket, data, EventFlags::IN).map_err(failed)
    }

    /// Says whether it matters that a socket takes bytes again.
    pub(crate) fn want_room(&self, socket: &impl AsFd, number: u64, wants: bool) {
        let flags = match wants {
            true => EventFlags::IN | EventFlags::OUT,
            false => EventFlags::IN,
        };
        let _ = epoll::modify(&self.sockets, socket, EventData::new_u64(number), flags);
    }

    /// No longer waits for a socket.
    pub(crate) fn remove(&self, socket: &impl AsFd) {
        let _ = epoll::delete(&self.sockets, socket);
    }

    /// The numbers of the sockets that are ready now. Never waits.
    pub(crate) fn ready(&self) -> Vec<u64> {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS_MAX);
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let spare = rustix::buffer::spare_capacity(&mut events);
        if epoll::wait(&self.sockets, spare, Some(&now)).is_err() {
            return Vec::new(); // interrupted: the next look will see them
        }
        let numbers = events.iter().map(|event| event.data.u64());
        let numbers: Vec<u64> = numbers.collect();
        if numbers.contains(&OWN) {
            let _ = rustix::io::read(&self.rung, &mut [0; 8]);
        }
        numbers
    }
}

fn failed(error: rustix::io::Errno) -> Error {
    Error::new(Kind::Io, "waiting for sockets", error)
}
