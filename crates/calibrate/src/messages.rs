//! Messages, memgets and waking between the nodes of a real machine.
//!
//! Node 0 sends to node 1 and waits for the answer; both ways together are two messages. With all
//! pairs at once, nodes 2k and 2k + 1 do so, too. A node that waits sleeps soon, so that the time
//! of a small message is that of waking a thread.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_engine::address::MemoryId;
use penstock_engine::{Error, Kind, Machine, Opening, Port, Result, Window};
use penstock_layout::{Piece, Region, Share, exact};
use penstock_machines::{
    BlockSieve, ClientMemory, DeviceId, Medium, Node, Opener, Threads, no_sieve,
};
use serde::{Deserialize, Serialize};

use crate::sample::{Samples, Watch};

const LARGE_BYTES: u64 = 1 << 20;

/// Seconds between nodes.
#[derive(Clone, Debug, Default)]
pub struct Messages {
    /// One small message, from the beginning of its sending to its reception.
    pub small: Samples,
    /// The sender's part of it.
    pub send: Samples,
    /// One message of 1 MiB.
    pub large: Samples,
    /// One message of 1 MiB while all pairs exchange such.
    pub crowded: Samples,
    /// A memget of 1 MiB.
    pub memget: Samples,
    /// A memput of 1 MiB.
    pub memput: Samples,
    /// A memget of one element.
    pub small_memget: Samples,
}

/// The measurements as a rank tells them: the percentiles of each.
#[derive(Serialize, Deserialize)]
pub(crate) struct Told {
    small: Vec<f64>,
    send: Vec<f64>,
    large: Vec<f64>,
    crowded: Vec<f64>,
    memget: Vec<f64>,
    memput: Vec<f64>,
    small_memget: Vec<f64>,
}

impl Told {
    pub(crate) fn of(messages: &Messages) -> Self {
        let values = |samples: &Samples| samples.percentiles();
        Self {
            small: values(&messages.small),
            send: values(&messages.send),
            large: values(&messages.large),
            crowded: values(&messages.crowded),
            memget: values(&messages.memget),
            memput: values(&messages.memput),
            small_memget: values(&messages.small_memget),
        }
    }

    pub(crate) fn heard(self) -> Messages {
        Messages {
            small: Samples::new(self.small),
            send: Samples::new(self.send),
            large: Samples::new(self.large),
            crowded: Samples::new(self.crowded),
            memget: Samples::new(self.memget),
            memput: Samples::new(self.memput),
            small_memget: Samples::new(self.small_memget),
        }
    }
}

/// Nothing is opened while messages are measured.
pub(crate) struct NoStores;

impl Opener for NoStores {
    fn device(&self, _opening: &Opening) -> Result<DeviceId> {
        Ok(DeviceId::of_service("none"))
    }

    fn open(&self, _opening: &Opening, _tells_positions: bool) -> Result<Arc<dyn Medium>> {
        let cause = "messages alone are measured";
        Err(Error::new(Kind::Unsupported, "opening a target", cause))
    }

    fn sieve(&self, _words: &[u8], _opening: &Opening) -> Result<Box<dyn BlockSieve>> {
        Err(no_sieve())
    }
}

/// Measures between threads of this process for about `time`.
///
/// # Errors
/// [`Kind::Peer`] when stopped, and those of the machine.
pub fn measure_threads(time: Duration, watch: &Watch<'_>) -> Result<Messages> {
    watch.check()?;
    // As many pairs as there are processors, all of which then work.
    let nodes = 2 * crate::memory::processors().clamp(1, 8);
    let machine = Threads::new(nodes);
    let machine = &machine;
    let run = |me: usize| {
        let node = Rc::new(machine.node(me, Arc::new(NoStores)));
        node.block_on(measure_on(&node, nodes, time))
    };
    let run = &run;
    let measured = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..nodes).map(|me| scope.spawn(move || run(me))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Messages>>| {
            thread.join().unwrap_or_else(|_| {
                Err(Error::new(
                    Kind::Peer,
                    "measuring messages",
                    "a thread has panicked",
                ))
            })
        };
        threads.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    watch.check()?;
    measured
        .into_iter()
        .next()
        .ok_or_else(|| Error::new(Kind::Peer, "measuring messages", "there are no nodes"))
}

/// The mailboxes of the measurement.
fn port(number: u64) -> Port {
    Port::new([u64::MAX - 7, number, 0])
}

/// Measures as one node of several; node 0 has the result.
///
/// # Errors
/// Those of the machine.
///
/// # Collective
/// Over all nodes, two at least.
pub async fn measure_on(node: &Rc<Node>, nodes: usize, time: Duration) -> Result<Messages> {
    let me = node.me();
    let each = time / 6;
    let mut measured = Messages::default();
    let is_first = me < 2;
    let pairs = Pairs { node, nodes };
    if is_first {
        let (small, send) = pairs.exchange(1, 8, each).await?;
        (measured.small, measured.send) = (small, send);
        (measured.large, _) = pairs.exchange(2, LARGE_BYTES, each).await?;
    }
    pairs.meet(3).await?;
    if me < nodes / 2 * 2 {
        (measured.crowded, _) = pairs.exchange(4, LARGE_BYTES, each).await?;
    }
    pairs.meet(5).await?;
    if is_first {
        let all = pairs.transfer(each).await?;
        [measured.memget, measured.memput, measured.small_memget] = all;
    }
    pairs.meet(6).await?;
    Ok(measured)
}

struct Pairs<'a> {
    node: &'a Rc<Node>,
    nodes: usize,
}

impl Pairs<'_> {
    /// All nodes meet.
    async fn meet(&self, number: u64) -> Result<()> {
        let (node, to) = (self.node, port(number));
        match node.me() {
            0 => {
                for _ in 1..self.nodes {
                    node.receive(to).await;
                }
                for other in 1..self.nodes {
                    node.send(other, to, Vec::new(), None).await?;
                }
            }
            _ => {
                node.send(0, to, Vec::new(), None).await?;
                node.receive(to).await;
            }
        }
        Ok(())
    }

    /// Exchanges messages with the other of the pair, and gives the seconds of one and of its
    /// sending. The first of the pair says when it is enough.
    async fn exchange(
        &self,
        number: u64,
        bytes: u64,
        time: Duration,
    ) -> Result<(Samples, Samples)> {
        let (node, to) = (self.node, port(number));
        let (me, other) = (node.me(), node.me() ^ 1);
        let buffer = node.buffer(bytes)?;
        node.clear(&buffer, bytes, &[]);
        let (mut both, mut sends) = (Vec::new(), Vec::new());
        let begun = Instant::now();
        if me < other {
            loop {
                let is_last = both.len() >= 6 && (begun.elapsed() >= time || both.len() > 2000);
                let start = Instant::now();
                let parcel = node.cut(&buffer, 0..bytes);
                node.send(other, to, vec![u8::from(is_last)], Some(parcel))
                    .await?;
                sends.push(start.elapsed().as_secs_f64());
                self.take(to, &buffer).await;
                both.push(start.elapsed().as_secs_f64() / 2.0);
                if is_last {
                    break;
                }
            }
        } else {
            loop {
                let is_last = self.take(to, &buffer).await;
                let parcel = node.cut(&buffer, 0..bytes);
                node.send(other, to, Vec::new(), Some(parcel)).await?;
                if is_last {
                    break;
                }
            }
        }
        let without_first = |values: Vec<f64>| Samples::new(values.into_iter().skip(1).collect());
        Ok((without_first(both), without_first(sends)))
    }

    /// Takes a message in, and says whether it is the last.
    async fn take(&self, at: Port, buffer: &<Node as Machine>::Buffer) -> bool {
        let message = self.node.receive(at).await;
        if let Some(parcel) = &message.parcel {
            self.node.paste(parcel, buffer, 0);
        }
        message.body.first() == Some(&1)
    }

    /// Node 0 gets from the memory of node 1, and puts into it: seconds of each memget and memput
    /// of 1 MiB, and of a memget of one element.
    async fn transfer(&self, time: Duration) -> Result<[Samples; 3]> {
        let (node, done) = (self.node, port(8));
        let memory = MemoryId::new([u64::MAX - 7, 9 << 32]);
        if node.me() == 1 {
            let mut elements = vec![0u8; exact::<usize>(LARGE_BYTES)];
            let held = ClientMemory {
                base: elements.as_mut_ptr(),
                extents: vec![LARGE_BYTES / 8],
                strides: vec![8],
                width: 8,
            };
            let exposure = node.expose(memory, held);
            node.send(0, done, Vec::new(), None).await?;
            node.receive(done).await;
            drop(exposure);
            return Ok(Default::default());
        }
        node.receive(done).await;
        let buffer = node.buffer(LARGE_BYTES)?;
        node.clear(&buffer, LARGE_BYTES, &[]);
        let window = Window {
            width: 8,
            offset: 0,
            strides: vec![8],
        };
        let piece = |elements: u64| {
            let whole = Region::new(&[0], &[elements]);
            Share::of_box(&Region::new(&[0], &[LARGE_BYTES / 8]))
                .intersect(&whole)
                .map(Piece::from)
                .ok_or_else(|| Error::new(Kind::Schema, "measuring a memget", "nothing to get"))
        };
        let (large, small) = (piece(LARGE_BYTES / 8)?, piece(1)?);
        let mut seconds = [Vec::new(), Vec::new(), Vec::new()];
        let begun = Instant::now();
        while seconds[0].len() < 6 || (begun.elapsed() < time && seconds[0].len() < 2000) {
            let start = Instant::now();
            node.memget(memory, 1, &large, &window, &buffer).await?;
            seconds[0].push(start.elapsed().as_secs_f64());
            let start = Instant::now();
            node.memput(memory, 1, &large, &window, &buffer).await?;
            seconds[1].push(start.elapsed().as_secs_f64());
            let start = Instant::now();
            node.memget(memory, 1, &small, &window, &buffer).await?;
            seconds[2].push(start.elapsed().as_secs_f64());
        }
        node.send(1, done, Vec::new(), None).await?;
        Ok(seconds.map(|values| Samples::new(values.into_iter().skip(1).collect())))
    }
}
