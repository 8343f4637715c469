//! The costs of software: the prices of a preset as spans, and the sums of them for a memput or
//! memget.

use penstock_engine::CopyKind;

use crate::preset::{Batch, Costs, Host, Processors};
use crate::time::Span;

/// Prices are [`Costs`] as spans.
pub(crate) struct Prices {
    pub(super) send: Span,
    pub(super) receive: Span,
    pub(super) header_bytes: u64,
    pub(super) request: Span,
    pub(super) thread: Span,
    pub(super) lookup: Span,
    pub(super) disk_request: Span,
    pub(super) entry: Span,
    pub(super) copy: Span,
    pub(super) copy_ns_per_byte: f64,
    buffer_ns_per_byte: f64,
    memput: Span,
    memput_ns_per_byte: f64,
    memget: Span,
    memget_ns_per_byte: f64,
    memget_reply: Span,
    remote: Span,
    remote_ns_per_byte: f64,
    byte_copy_ns_per_byte: f64,
    kernel_copy_ns_per_byte: f64,
    stretch: Span,
    pub(super) spawn: Span,
    pub(super) slice: Span,
    pub(super) switch: Span,
    /// The price for arrays of one dimension, and of more.
    index: [Span; 2],
    batch: Option<Gather>,
}

/// [`Batch::Gather`] as spans.
struct Gather {
    bytes_max: u64,
    list: Span,
    gather: Span,
    scatter: Span,
}

/// The elements that a memput or a memget moves, and the side that moves them.
pub(super) struct Moving {
    pub(super) stretches: u64,
    pub(super) bytes: u64,
    pub(super) dims: usize,
    pub(super) is_by_client: bool,
}

/// The cost of one memput or memget.
pub(super) struct Cost {
    /// Messages each way.
    pub(super) messages: u64,
    /// The time of the node that puts or gets, to find where the elements belong.
    pub(super) plan: Span,
    /// The time of the node that puts or gets, before it sends anything.
    pub(super) here: Span,
    /// The time of the node that exposes the memory.
    pub(super) remote: Span,
    /// The time of the node that gets, when the answer comes.
    pub(super) reply: Span,
}

impl Prices {
    pub(super) fn new(costs: &Costs, processors: Option<&Processors>) -> Self {
        let us = Span::from_us_f64;
        let batch = match costs.batch {
            Batch::None => None,
            Batch::Gather {
                bytes_max,
                list_us,
                gather_us,
                scatter_us,
            } => Some(Gather {
                bytes_max,
                list: us(list_us),
                gather: us(gather_us),
                scatter: us(scatter_us),
            }),
        };
        Self {
            send: us(costs.send_us),
            receive: us(costs.receive_us),
            header_bytes: costs.header_bytes,
            request: us(costs.request_us),
            thread: us(costs.thread_us),
            lookup: us(costs.lookup_us),
            disk_request: us(costs.disk_request_us),
            entry: us(costs.entry_us),
            copy: us(costs.copy_us),
            copy_ns_per_byte: costs.copy_ns_per_byte,
            buffer_ns_per_byte: costs.buffer_ns_per_byte,
            memput: us(costs.memput_us),
            memput_ns_per_byte: costs.memput_ns_per_byte,
            memget: us(costs.memget_us),
            memget_ns_per_byte: costs.memget_ns_per_byte,
            memget_reply: us(costs.memget_reply_us),
            remote: us(costs.remote_us),
            remote_ns_per_byte: costs.remote_ns_per_byte,
            byte_copy_ns_per_byte: processors
                .map_or(costs.copy_ns_per_byte, |p| p.byte_copy_ns_per_byte),
            kernel_copy_ns_per_byte: processors
                .map_or(costs.copy_ns_per_byte, |p| p.kernel_copy_ns_per_byte),
            stretch: us(processors.map_or(0.0, |p| p.stretch_us)),
            spawn: us(processors.map_or(0.0, |p| p.spawn_us)),
            slice: us(processors.map_or(0.0, |p| p.slice_us)),
            switch: us(processors.map_or(0.0, |p| p.switch_us)),
            index: [us(costs.index_1d_us), us(costs.index_2d_us)],
            batch,
        }
    }

    /// The time to copy this number of bytes from memory to memory.
    pub(super) fn copying(&self, bytes: u64) -> Span {
        self.copy + per_byte(self.copy_ns_per_byte, bytes)
    }

    /// The time to copy into or out of a buffer of messages, on a processor slower by this factor.
    pub(super) fn pack(&self, bytes: u64, stretches: u64, by: CopyKind, slower: f64) -> Span {
        let ns_per_byte = match by {
            CopyKind::Bytes => self.byte_copy_ns_per_byte,
            CopyKind::Kernels => self.kernel_copy_ns_per_byte,
        };
        self.stretch * stretches + per_byte(ns_per_byte * slower, bytes)
    }

    /// The time to set up this number of bytes of buffers.
    pub(super) fn prepare(&self, bytes: u64) -> Span {
        per_byte(self.buffer_ns_per_byte, bytes)
    }

    /// The cost of putting elements into another node's memory.
    pub(super) fn memput(&self, moving: &Moving) -> Cost {
        let messages = self.messages(moving);
        let (_, gather, scatter) = self.stretches(moving);
        Cost {
            messages,
            plan: self.index(moving),
            here: self.memput * messages + gather + per_byte(self.memput_ns_per_byte, moving.bytes),
            remote: self.remote(messages, moving) + scatter,
            reply: Span::ZERO,
        }
    }

    /// The cost of getting elements from another node's memory.
    pub(super) fn memget(&self, moving: &Moving) -> Cost {
        let messages = self.messages(moving);
        let (list, gather, scatter) = self.stretches(moving);
        Cost {
            messages,
            plan: self.index(moving),
            here: self.memget * messages + list,
            remote: self.remote(messages, moving) + gather,
            reply: self.memget_reply * messages
                + scatter
                + per_byte(self.memget_ns_per_byte, moving.bytes),
        }
    }

    /// The time of a memget or memput within a host, of stretches that begin `apart` bytes from
    /// each other.
    pub(super) fn in_host(&self, host: &Host, moving: &Moving, apart: f64) -> Span {
        let Moving {
            stretches, bytes, ..
        } = *moving;
        let ns = host.copy_us * 1e3
            + host.copy_ns_per_byte * bytes as f64
            + host.stretch_ns(apart) * stretches as f64;
        Span::from_ns_f64(ns)
    }

    /// The batch, if the elements are batched. A single stretch is not.
    fn batch(&self, moving: &Moving) -> Option<&Gather> {
        self.batch.as_ref().filter(|_| moving.stretches > 1)
    }

    fn messages(&self, moving: &Moving) -> u64 {
        match self.batch(moving) {
            Some(batch) => moving.bytes.div_ceil(batch.bytes_max).max(1),
            None => moving.stretches,
        }
    }

    /// The times to list, gather and scatter the stretches of a batch.
    fn stretches(&self, moving: &Moving) -> (Span, Span, Span) {
        let all = |span: Span| span * moving.stretches;
        self.batch(moving).map_or_else(Default::default, |batch| {
            (all(batch.list), all(batch.gather), all(batch.scatter))
        })
    }

    /// The time to find where each stretch belongs, for an I/O node; a client goes through its own.
    fn index(&self, moving: &Moving) -> Span {
        match moving.is_by_client {
            true => Span::ZERO,
            false => self.index[usize::from(moving.dims > 1)] * moving.stretches,
        }
    }

    fn remote(&self, messages: u64, moving: &Moving) -> Span {
        self.remote * messages + per_byte(self.remote_ns_per_byte, moving.bytes)
    }
}

fn per_byte(ns: f64, bytes: u64) -> Span {
    Span::from_ns_f64(ns * bytes as f64)
}
