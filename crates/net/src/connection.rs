//! A connection: the packets that go over a stream, in both directions.
//!
//! A packet is preceded by its length, four bytes, the lowest first. Packets that cannot go at once
//! are kept, up to a number of bytes; a peer that takes nothing for a while, or sends what is too
//! long, is cut off.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use penstock_engine::{Error, Kind, Result};

use crate::stream::{Found, Stream, broken};

/// The bytes of a length.
const LENGTH_BYTES: usize = 4;

/// The bytes that are taken from one connection before others have their turn.
const TURN_BYTES: usize = 1 << 20;

/// The limits of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// The bytes of the longest packet.
    pub(crate) packet_bytes: usize,
    /// The bytes that are kept for a peer that does not take them.
    pub(crate) kept_bytes: usize,
    /// How long a peer may take nothing while there is something for it.
    pub(crate) patience: Duration,
}

/// A connection with another node.
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    limits: Limits,
    /// What has come and is not yet a packet, from byte `taken` on.
    came: Vec<u8>,
    taken: usize,
    /// The packets that are to go, and the bytes of the first that are out.
    kept: VecDeque<Vec<u8>>,
    sent: usize,
    kept_bytes: usize,
    /// Since when there has been something to go and nothing went.
    stuck: Option<Instant>,
    is_flushed: bool,
}

impl Connection {
    pub(crate) fn new(stream: Stream, limits: Limits) -> Self {
        Self {
            stream,
            limits,
            came: Vec::new(),
            taken: 0,
            kept: VecDeque::new(),
            sent: 0,
            kept_bytes: 0,
            stuck: None,
            is_flushed: true,
        }
    }

    /// Takes the packets that have come, as many as it may at a time, and says what it found last.
    ///
    /// # Errors
    /// [`Kind::Peer`] when the stream is broken, or a packet is too long.
    pub(crate) fn receive(&mut self, mut take: impl FnMut(Vec<u8>)) -> Result<Found> {
        let mut bytes = 0;
        loop {
            let before = self.came.len();
            let found = self.stream.read(&mut self.came)?;
            bytes += self.came.len() - before;
            while let Some(packet) = self.next_packet()? {
                take(packet);
            }
            if found != Found::Bytes || bytes > TURN_BYTES {
                return Ok(found);
            }
        }
    }

    /// The next packet, if all of it has come.
    fn next_packet(&mut self) -> Result<Option<Vec<u8>>> {
        let rest = &self.came[self.taken..];
        let Some((length, rest)) = rest.split_first_chunk::<LENGTH_BYTES>() else {
            self.forget_taken();
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > self.limits.packet_bytes {
            return Err(broken(format!("a packet of {length} bytes is too long")));
        }
        if rest.len() < length {
            self.forget_taken();
            return Ok(None);
        }
        let packet = rest[..length].to_vec();
        self.taken += LENGTH_BYTES + length;
        Ok(Some(packet))
    }

    /// Gives the memory of packets back that have been taken.
    fn forget_taken(&mut self) {
        if self.taken > 0 {
            self.came.drain(..self.taken);
            self.taken = 0;
        }
    }

    /// Sends a packet, or keeps what cannot go at once.
    ///
    /// # Errors
    /// [`Kind::Peer`] when the stream is broken, or the peer leaves too much.
    pub(crate) fn post(&mut self, mut packet: Vec<u8>) -> Result<()> {
        let Ok(length) = u32::try_from(packet.len()) else {
            return Err(broken(format!(
                "a packet of {} bytes is too long",
                packet.len()
            )));
        };
        packet.splice(0..0, length.to_le_bytes());
        self.kept_bytes += packet.len();
        self.kept.push_back(packet);
        self.move_on()?;
        if self.kept_bytes > self.limits.kept_bytes {
            let cause = format!(
                "{} bytes wait for it, which it does not take",
                self.kept_bytes
            );
            return Err(Error::new(Kind::Peer, "sending to another node", cause));
        }
        Ok(())
    }

    /// Sends what is kept, as far as it goes.
    ///
    /// # Errors
    /// [`Kind::Peer`] when the stream is broken, or the peer has taken nothing for too long.
    pub(crate) fn move_on(&mut self) -> Result<()> {
        let mut moved = 0;
        while let Some(packet) = self.kept.front() {
            let count = self.stream.write(&packet[self.sent..])?;
            (moved, self.sent) = (moved + count, self.sent + count);
            if self.sent < packet.len() {
                break;
            }
            self.sent = 0;
            self.kept.pop_front();
        }
        self.kept_bytes -= moved;
        self.is_flushed = self.stream.flush()?;
        if !self.keeps_any() {
            self.stuck = None;
            return Ok(());
        }
        if moved > 0 {
            self.stuck = None;
        }
        let since = self.stuck.get_or_insert_with(Instant::now).elapsed();
        if since > self.limits.patience {
            let cause = format!("it has taken nothing for {} s", since.as_secs());
            return Err(Error::new(Kind::Peer, "sending to another node", cause));
        }
        Ok(())
    }

    /// Whether something is still to go.
    pub(crate) fn keeps_any(&self) -> bool {
        !self.kept.is_empty() || !self.is_flushed
    }
}
