//! A connection: the packets that go over a stream, in both directions.
//!
//! A packet is preceded by its length, four bytes, the lowest first. Packets that cannot go at once
//! are kept, up to a number of bytes; a peer that takes nothing for a while, or sends what is too
//! long, is cut off.
//!
//! A packet of no bytes is a sign of life. A client asks its servers for one when it has heard
//! nothing for a while, and servers ask each other; who gets none gives the connection up. The
//! other process may be stopped, or a byte that was changed on the way may keep TLS waiting for
//! more.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use penstock_engine::{Error, Kind, Result};

use crate::dismissals::Dismissal;
use crate::stream::{Found, Stream, broken};

/// The bytes of a length.
const LENGTH_BYTES: usize = 4;

/// The bytes for which memory is taken when the length of a packet has come. For more it is taken
/// when they come.
const RESERVED_BYTES: usize = 1 << 20;

/// The bytes that are taken from one connection before others have their turn.
const TURN_BYTES: usize = 1 << 20;

/// The looks at a silent connection from one question for a sign of life to the next.
const LOOKS_BETWEEN: u32 = 10;

/// The limits of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// The bytes of the longest packet.
    pub(crate) packet_bytes: usize,
    /// The bytes that are kept for a peer that does not take them.
    pub(crate) kept_bytes: usize,
    /// The bytes of the peer's messages that may wait here for somebody to take them.
    pub(crate) mail_bytes: u64,
    /// How long a peer may take nothing while there is something for it.
    pub(crate) patience: Duration,
}

/// A connection with another node.
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    pub(crate) limits: Limits,
    /// The length of the packet that comes, as far as it has come.
    length: Vec<u8>,
    /// The packet that comes, as far as it has come, and the bytes that are still to come.
    packet: Vec<u8>,
    to_come: usize,
    /// The packets that are to go, each with its length, and the bytes of the first that are out.
    kept: VecDeque<([u8; LENGTH_BYTES], Vec<u8>)>,
    sent: usize,
    kept_bytes: usize,
    /// Since when there has been something to go and nothing went.
    stuck: Option<Instant>,
    is_flushed: bool,
    /// Whether this side asks for signs of life.
    asks: bool,
    /// Whether any bytes have come since the last look for silence.
    has_heard: bool,
    /// The looks in which nothing had come.
    silent_looks: u32,
    /// What the peer does wrong.
    fault: Option<Dismissal>,
}

impl Connection {
    /// Makes a connection. This side `asks` for signs of life if the other one is a server.
    pub(crate) fn new(stream: Stream, limits: Limits, asks: bool) -> Self {
        Self {
            stream,
            limits,
            length: Vec::new(),
            packet: Vec::new(),
            to_come: 0,
            kept: VecDeque::new(),
            sent: 0,
            kept_bytes: 0,
            stuck: None,
            is_flushed: true,
            asks,
            has_heard: false,
            silent_looks: 0,
            fault: None,
        }
    }

    /// The reason for which the peer is cut off, if it is.
    pub(crate) fn fault(&self) -> Option<Dismissal> {
        self.fault
    }

    /// Takes the packets that have come, as many as it may at a time, and says what it found last.
    ///
    /// # Errors
    /// [`Kind::Peer`] when the stream is broken, or a packet is too long.
    pub(crate) fn receive(&mut self, mut take: impl FnMut(Vec<u8>)) -> Result<Found> {
        let mut bytes = 0;
        loop {
            let (found, packet) = self.receive_some(&mut bytes)?;
            match packet {
                Some(packet) if packet.is_empty() => self.answer_sign()?,
                Some(packet) => take(packet),
                None => {}
            }
            if found != Found::Bytes || bytes > TURN_BYTES {
                return Ok(found);
            }
        }
    }

    /// Reads a part of a length or a packet, and counts the bytes; gives the packet at its end.
    fn receive_some(&mut self, bytes: &mut usize) -> Result<(Found, Option<Vec<u8>>)> {
        if self.length.len() < LENGTH_BYTES {
            let missing = LENGTH_BYTES - self.length.len();
            let found = self.stream.read(&mut self.length, missing)?;
            self.has_heard |= found == Found::Bytes;
            *bytes += LENGTH_BYTES;
            let Some(length) = self.length.first_chunk::<LENGTH_BYTES>() else {
                return Ok((found, None));
            };
            self.to_come = u32::from_le_bytes(*length) as usize;
            if self.to_come > self.limits.packet_bytes {
                self.fault = Some(Dismissal::Overlong);
                let cause = format!("a packet of {} bytes is too long", self.to_come);
                return Err(broken(cause));
            }
            self.packet = Vec::with_capacity(self.to_come.min(RESERVED_BYTES));
        }
        let mut found = Found::Bytes;
        if self.to_come > 0 {
            let before = self.packet.len();
            found = self.stream.read(&mut self.packet, self.to_come)?;
            self.has_heard |= found == Found::Bytes;
            let read = self.packet.len() - before;
            self.to_come -= read;
            *bytes += read;
        }
        let whole = (self.to_come == 0).then(|| {
            self.length.clear();
            std::mem::take(&mut self.packet)
        });
        Ok((found, whole))
    }

    /// Answers a question for a sign of life, if nothing else is on its way. Who asks, too, has its
    /// own questions for that.
    fn answer_sign(&mut self) -> Result<()> {
        match self.asks || self.keeps_any() {
            true => Ok(()),
            false => self.post(Vec::new()),
        }
    }

    /// Looks whether the peer is silent, and asks for a sign of life now and then. `every` is the
    /// time between two looks at least.
    ///
    /// # Errors
    /// [`Kind::Peer`] when it has given none for longer than the patience.
    pub(crate) fn look_for_silence(&mut self, every: Duration) -> Result<()> {
        self.silent_looks = match std::mem::take(&mut self.has_heard) {
            true => 0,
            false => self.silent_looks + 1,
        };
        let silence = every * self.silent_looks;
        if silence > self.limits.patience {
            return Err(broken(format!(
                "it has given no sign of life for {} s",
                silence.as_secs()
            )));
        }
        let is_time = self.silent_looks % LOOKS_BETWEEN == 1;
        match is_time && !self.keeps_any() {
            true => self.post(Vec::new()),
            false => Ok(()),
        }
    }

    /// Sends a packet, or keeps what cannot go at once.
    ///
    /// # Errors
    /// [`Kind::Peer`] when the stream is broken, or the peer leaves too much.
    pub(crate) fn post(&mut self, packet: Vec<u8>) -> Result<()> {
        let Ok(length) = u32::try_from(packet.len()) else {
            return Err(broken(format!(
                "a packet of {} bytes is too long",
                packet.len()
            )));
        };
        self.kept_bytes += packet.len();
        self.kept.push_back((length.to_le_bytes(), packet));
        self.move_on()?;
        if self.kept_bytes > self.limits.kept_bytes {
            self.fault = Some(Dismissal::Backlog);
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
        while let Some((length, packet)) = self.kept.front() {
            let rest = match self.sent.checked_sub(LENGTH_BYTES) {
                None => &length[self.sent..],
                Some(sent) => &packet[sent..],
            };
            let count = self.stream.write(rest)?;
            (moved, self.sent) = (moved + count, self.sent + count);
            if count < rest.len() {
                break;
            }
            if self.sent == LENGTH_BYTES + packet.len() {
                self.sent = 0;
                self.kept_bytes -= packet.len();
                self.kept.pop_front();
            }
        }
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
            self.fault = Some(Dismissal::Stuck);
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
