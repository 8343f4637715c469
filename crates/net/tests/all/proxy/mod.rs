//! Proxies between callers and servers, which pass bytes on late and in pieces, change a byte, let
//! nothing more through, or cut a connection anywhere.
//!
//! They reorder nothing: TCP does not, either. What they do to which byte follows from a seed.

#![allow(dead_code, reason = "each test uses a part")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::try_join;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// The bytes that are passed on at a time.
const PIECE_BYTES: usize = 1 << 16;
/// The most bytes of a small piece.
const SMALL_BYTES: u64 = 8;
/// The longest pause, in milliseconds.
const PAUSE_MAX_MS: u64 = 3;

/// Random numbers: xorshift64*.
pub struct Chance(u64);

impl Chance {
    /// Numbers that follow from a seed.
    pub fn of(seed: u64) -> Self {
        let mut chance = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        chance.next();
        chance
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 33) % bound
    }
}

/// What happens to the bytes of a connection that go one way.
#[derive(Debug, Clone, Copy, Default)]
pub struct Way {
    /// How often they are held up. Until then some go one by one.
    pub pauses: u32,
    /// The byte before which the connection is cut, both ways.
    pub cut_at: Option<u64>,
    /// The byte that has one bit changed.
    pub changed_at: Option<u64>,
    /// The byte from which on nothing comes any more, while the connection stays.
    pub still_at: Option<u64>,
}

/// What happens to a connection: on the way to the server, and on the way back.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plan {
    pub seed: u64,
    pub there: Way,
    pub back: Way,
}

impl Plan {
    /// Held up this often, and otherwise left alone.
    pub fn slow(seed: u64, pauses: u32) -> Self {
        let way = Way {
            pauses,
            ..Way::default()
        };
        Self {
            seed,
            there: way,
            back: way,
        }
    }
}

/// Proxies, one a server, as long as this is kept.
pub struct Proxies {
    /// The ports at which they listen.
    pub ports: Vec<u16>,
    thread: Option<std::thread::JoinHandle<()>>,
    stop: Option<oneshot::Sender<()>>,
}

impl Proxies {
    /// Listens at ports of `host` for the servers at `targets`. `plan` says what is to happen to a
    /// connection with a server, by their numbers.
    pub fn start(
        host: &str,
        targets: Vec<String>,
        plan: impl Fn(usize, u64) -> Plan + Send + Sync + 'static,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let bind = || TcpListener::bind((host, 0));
        let listeners: Vec<_> = targets
            .iter()
            .map(|_| runtime.block_on(bind()).unwrap())
            .collect();
        let port = |listener: &TcpListener| listener.local_addr().map(|at: SocketAddr| at.port());
        let ports = listeners.iter().map(|listener| port(listener).unwrap());
        let ports = ports.collect();
        let (stop, stopped) = oneshot::channel();
        let plan: Arc<PlanOf> = Arc::new(plan);
        let run = move || {
            runtime.block_on(async {
                let all = listeners.into_iter().zip(targets).enumerate();
                for (server, (listener, target)) in all {
                    tokio::spawn(answer(listener, target, server, plan.clone()));
                }
                let _ = stopped.await; // or its sender has gone
            });
        };
        Self {
            ports,
            thread: Some(std::thread::spawn(run)),
            stop: Some(stop),
        }
    }
}

impl Drop for Proxies {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

type PlanOf = dyn Fn(usize, u64) -> Plan + Send + Sync;

async fn answer(listener: TcpListener, target: String, server: usize, plan: Arc<PlanOf>) {
    let connections = AtomicU64::new(0);
    while let Ok((caller, _)) = listener.accept().await {
        let plan = plan(server, connections.fetch_add(1, Ordering::Relaxed));
        let target = target.clone();
        tokio::spawn(async move {
            let Ok(called) = TcpStream::connect(&*target).await else {
                return; // the caller hears that as a connection that is closed
            };
            let _ = connect(caller, called, plan).await; // a cut has closed both
        });
    }
}

/// A connection was cut.
struct Cut;

async fn connect(caller: TcpStream, called: TcpStream, plan: Plan) -> Result<(), Cut> {
    for socket in [&caller, &called] {
        let _ = socket.set_nodelay(true); // one that is closed has no options
    }
    let (from_caller, to_caller) = caller.into_split();
    let (from_called, to_called) = called.into_split();
    let mut chance = Chance::of(plan.seed);
    let (one, other) = (Chance::of(chance.next()), Chance::of(chance.next()));
    let there = pass(from_caller, to_called, plan.there, one);
    let back = pass(from_called, to_caller, plan.back, other);
    try_join(there, back).await.map(|_| ())
}

/// Passes bytes on until one of the two ends closes.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    way: Way,
    mut chance: Chance,
) -> Result<(), Cut> {
    let (mut passed, mut pauses) = (0, way.pauses);
    let mut buffer = vec![0; PIECE_BYTES];
    loop {
        let is_small = pauses > 0 && chance.below(3) > 0;
        let most = match is_small {
            true => 1 + chance.below(SMALL_BYTES) as usize,
            false => PIECE_BYTES,
        };
        let mut count = match from.read(&mut buffer[..most]).await {
            Ok(count) if count > 0 => count as u64,
            _ => break,
        };
        if pauses > 0 && chance.below(2) == 0 {
            pauses -= 1;
            let time = Duration::from_millis(1 + chance.below(PAUSE_MAX_MS));
            tokio::time::sleep(time).await;
        }
        if let Some(at) = way.changed_at
            && (passed..passed + count).contains(&at)
        {
            buffer[(at - passed) as usize] ^= 1 << chance.below(8);
        }
        if let Some(at) = way.still_at {
            count = count.min(at.saturating_sub(passed));
        }
        let whole = way.cut_at.map_or(count, |at| count.min(at - passed));
        if to.write_all(&buffer[..whole as usize]).await.is_err() {
            break; // the other way goes on to its end
        }
        passed += whole;
        if way.cut_at == Some(passed) {
            return Err(Cut);
        }
    }
    let _ = to.shutdown().await; // it may be closed already
    Ok(())
}
