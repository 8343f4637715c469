//! One node of a machine, and what programs do with it again and again.

use std::cell::Cell;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use penstock_engine::{CopyKind, Elements, Machine, MemoryId, Message, Port, Window};
use penstock_layout::{Region, Share};

use crate::{Bench, Form, Held};

/// The first number of the ports of a case's barriers.
const BARRIERS: u64 = 0;
/// The memory that fills buffers and reads them.
const SCRATCH: MemoryId = MemoryId::new([u64::MAX, 0]);

/// A machine's staging buffer.
pub type BufferOf<B> = <<B as Bench>::Machine as Machine>::Buffer;
/// Elements that a machine carries with a message.
pub type ParcelOf<B> = <<B as Bench>::Machine as Machine>::Parcel;

/// One node, as a case's program has it.
pub struct Seat<B: Bench> {
    /// The machine as this node sees it.
    pub machine: Rc<B::Machine>,
    /// How many nodes run the program.
    pub nodes: usize,
    barriers: Cell<u32>,
}

/// The port of these two numbers.
pub fn port(group: u64, number: u32) -> Port {
    Port::new([group, 0, number.into()])
}

/// The name of a memory with this number.
pub const fn memory(number: u64) -> MemoryId {
    MemoryId::new([0, number])
}

impl<B: Bench> Seat<B> {
    /// Takes this node's seat in a machine of `nodes` nodes.
    pub fn new(machine: Rc<B::Machine>, nodes: usize) -> Self {
        Self {
            machine,
            nodes,
            barriers: Cell::new(0),
        }
    }

    /// This node's number.
    pub fn me(&self) -> usize {
        self.machine.me()
    }

    /// Waits until all nodes have come to this.
    pub async fn barrier(&self) {
        let number = self.barriers.get();
        self.barriers.set(number + 1);
        let others = 1..self.nodes;
        let (arrived, go) = (port(BARRIERS, 2 * number), port(BARRIERS, 2 * number + 1));
        if self.me() > 0 {
            self.tell(0, arrived).await;
            self.receive(go).await;
            return;
        }
        for _ in others.clone() {
            self.receive(arrived).await;
        }
        for other in others {
            self.tell(other, go).await;
        }
    }

    /// Sends a message without contents.
    pub async fn tell(&self, to: usize, port: Port) {
        self.send(to, port, Vec::new()).await;
    }

    /// Sends a message without a parcel.
    pub async fn send(&self, to: usize, port: Port, body: Vec<u8>) {
        self.machine.send(to, port, body, None).await.unwrap();
    }

    /// The next message at a port.
    pub async fn receive(&self, port: Port) -> Message<ParcelOf<B>> {
        self.machine.receive(port).await
    }

    /// A buffer of exactly these bytes, or of more, that begins with them.
    pub fn buffer(&self, bytes: &[u8]) -> BufferOf<B> {
        let buffer = self.machine.buffer(bytes.len() as u64).unwrap();
        self.fill(&buffer, 0, bytes);
        buffer
    }

    /// Puts bytes into a buffer.
    pub fn fill(&self, buffer: &BufferOf<B>, at: usize, bytes: &[u8]) {
        self.with_line(bytes, |window, piece| {
            let windows = [Window {
                offset: at,
                ..window
            }];
            let (from, to) = (Elements::Exposed, Elements::Staged(&windows, buffer));
            let pieces = [piece];
            let copied = self
                .machine
                .copy(SCRATCH, 1, &pieces, from, to, CopyKind::Bytes);
            copied.unwrap();
        });
    }

    /// What is in a buffer.
    pub fn bytes(&self, buffer: &BufferOf<B>, part: Range<usize>) -> Vec<u8> {
        self.with_line(&vec![0; part.len()], |window, piece| {
            let offset = part.start;
            let windows = [Window { offset, ..window }];
            let (from, to) = (Elements::Staged(&windows, buffer), Elements::Exposed);
            let pieces = [piece];
            let copied = self
                .machine
                .copy(SCRATCH, 1, &pieces, from, to, CopyKind::Bytes);
            copied.unwrap();
        })
    }

    /// Exposes a line of bytes while `act` copies all of it, and returns what it is then.
    fn with_line(&self, line: &[u8], act: impl FnOnce(Window, penstock_layout::Piece)) -> Vec<u8> {
        let region = Region::whole(&[line.len() as u64]);
        let share = Share::of_box(&region);
        let held = B::hold(&share, 1, line, Form::Dense);
        let exposure = self.machine.expose(SCRATCH, held.memory());
        let window = Window {
            width: 1,
            offset: 0,
            strides: vec![1],
        };
        if let Some(piece) = share.intersect(&region) {
            act(window, piece.into());
        }
        drop(exposure);
        held.values()
    }

    /// A parcel of these bytes.
    pub fn parcel(&self, bytes: &[u8]) -> ParcelOf<B> {
        let buffer = self.buffer(bytes);
        self.machine.cut(&buffer, 0..bytes.len() as u64)
    }

    /// Whether these are the bytes of a parcel.
    pub fn is_parcel(&self, parcel: &ParcelOf<B>, bytes: &[u8]) -> bool {
        let mut expected = vec![0x11; bytes.len() + 16];
        let buffer = self.buffer(&expected);
        expected[8..8 + bytes.len()].copy_from_slice(bytes);
        self.machine.paste(parcel, &buffer, 8);
        self.bytes(&buffer, 0..expected.len()) == expected
    }
}

/// Lets the node do what else there is to do.
pub async fn pause() {
    let mut has_paused = false;
    std::future::poll_fn(move |context| match has_paused {
        true => Poll::Ready(()),
        false => {
            has_paused = true;
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

/// What comes of a future that is looked at once.
pub async fn look<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|context| {
        Poll::Ready(match future.as_mut().poll(context) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}
