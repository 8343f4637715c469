//! A node's inbox in shared memory: a bounded queue of fixed slots, many writers, one reader.
//!
//! Dmitry Vyukov's bounded queue. Slot `i` carries a turn number: `i` when it is free for the
//! message of that position, `i + 1` when that message is in it, `i + SLOTS` when it is free again.
//! A writer claims a position by moving `tail` on, writes, and then publishes by the turn. Longer
//! packets take several slots, which the reader joins by sender.
//!
//! All zero memory becomes an empty inbox by [`Inbox::init`]. Nothing blocks: a full inbox says so.

use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use penstock_engine::NodeId;
use penstock_layout::exact;

use crate::bell::Bell;
use crate::memory::board::Board;

const SLOTS: usize = 256;
const SLOT_BYTES: usize = 488;

#[repr(C)]
struct Slot {
    turn: AtomicU64,
    from: UnsafeCell<u32>,
    bytes: UnsafeCell<u32>,
    /// Bytes of the packet that are still to come after this slot.
    rest: UnsafeCell<u64>,
    data: UnsafeCell<[u8; SLOT_BYTES]>,
}

/// The inbox of one node, its bell, and what it exposes. Lies in shared memory.
#[repr(C)]
pub struct Inbox {
    bell: Bell,
    board: Board,
    head: AtomicU64,
    tail: AtomicU64,
    slots: [Slot; SLOTS],
}

// SAFETY: a slot's cells are written only by the writer that claimed its position and read only by
// the one reader after the turn was published with release ordering, and acquired.
unsafe impl Sync for Inbox {}

impl Inbox {
    /// Makes zeroed memory an empty inbox.
    pub fn init(&self) {
        for (position, slot) in self.slots.iter().enumerate() {
            slot.turn.store(position as u64, Ordering::Release);
        }
    }

    /// The bell to ring after putting something in.
    pub fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Where its owner posts what it exposes.
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// Puts in as much of `packet`, from `from` on, as there are free slots for. `sent` counts the
    /// bytes that are in already, and is moved on. True when the whole packet is in.
    ///
    /// Packets of one sender are not interleaved: a sender ends one before it begins another.
    pub fn put(&self, from: NodeId, packet: &[u8], sent: &mut usize) -> bool {
        let mut put_any = false;
        while *sent < packet.len() {
            let part = &packet[*sent..(*sent + SLOT_BYTES).min(packet.len())];
            let rest = (packet.len() - *sent - part.len()) as u64;
            if !self.put_slot(exact::<u32>(from), part, rest) {
                break;
            }
            *sent += part.len();
            put_any = true;
        }
        if put_any {
            self.bell.ring();
        }
        *sent == packet.len()
    }

    fn put_slot(&self, from: u32, part: &[u8], rest: u64) -> bool {
        let mut position = self.tail.load(Ordering::Relaxed);
        loop {
            let slot = &self.slots[exact::<usize>(position) % SLOTS];
            let turn = slot.turn.load(Ordering::Acquire);
            if turn < position {
                return false; // the reader has not freed it yet
            }
            if turn > position {
                position = self.tail.load(Ordering::Relaxed);
                continue;
            }
            let next = position + 1;
            let claim = self.tail.compare_exchange_weak(
                position,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match claim {
                Ok(_) => {
                    // SAFETY: the turn says the slot is free for `position`, and only this writer
                    // has claimed `position`; `part` is no longer than the slot.
                    unsafe {
                        *slot.from.get() = from;
                        *slot.bytes.get() = exact::<u32>(part.len());
                        *slot.rest.get() = rest;
                        let data = slot.data.get().cast::<u8>();
                        std::ptr::copy_nonoverlapping(part.as_ptr(), data, part.len());
                    }
                    slot.turn.store(next, Ordering::Release);
                    return true;
                }
                Err(now) => position = now,
            }
        }
    }

    /// Takes the next whole packet out, with its sender, if there is one. Only the owner may call
    /// it; `begun` keeps what has come of longer packets.
    pub fn take(&self, begun: &mut HashMap<u32, Vec<u8>>) -> Option<(NodeId, Vec<u8>)> {
        loop {
            let position = self.head.load(Ordering::Relaxed);
            let slot = &self.slots[exact::<usize>(position) % SLOTS];
            if slot.turn.load(Ordering::Acquire) != position + 1 {
                return None;
            }
            // SAFETY: the turn says the message of `position` is published, and only this reader
            // takes it out; writers leave the slot alone until its turn is moved on below.
            let (from, part, rest) = unsafe {
                let bytes = (*slot.bytes.get() as usize).min(SLOT_BYTES);
                let data = slot.data.get().cast::<u8>();
                (
                    *slot.from.get(),
                    std::slice::from_raw_parts(data, bytes),
                    *slot.rest.get(),
                )
            };
            let whole = match begun.get_mut(&from) {
                None if rest == 0 => Some(part.to_vec()),
                None => {
                    begun.insert(from, part.to_vec());
                    None
                }
                Some(packet) => {
                    packet.extend_from_slice(part);
                    if rest == 0 { begun.remove(&from) } else { None }
                }
            };
            self.head.store(position + 1, Ordering::Relaxed);
            slot.turn.store(position + SLOTS as u64, Ordering::Release);
            if let Some(packet) = whole {
                return Some((from as NodeId, packet));
            }
        }
    }
}
