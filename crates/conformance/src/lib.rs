//! One body of tests for [`Machine`]: what the trait promises is a case here, and every machine
//! runs all cases.
//!
//! A machine's own tests implement [`Bench`], which starts nodes and gives them memories and disks,
//! and call [`run`]. A case is a program that every node runs, written for any number of nodes.
//!
//! | module | what it holds |
//! |---|---|
//! | [`cases`] | the cases |
//! | [`seat`] | one node, and what programs do with it again and again |
//! | [`memory`] | memories of clients: with halos, in any order of dimensions |
//! | [`truth`] | what the elements are, and where they belong, one by one |
//!
//! A machine that cannot show a case says why by [`Bench::lacks`], and its tests name the cases
//! that are left out.

pub mod cases;
pub mod memory;
pub mod seat;
pub mod truth;

use penstock_engine::{Error, Machine};
use penstock_layout::Share;

pub use cases::Case;
pub use memory::{Form, Frame, Held};
pub use seat::Seat;

/// What a case needs that not every machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Memories that are not dense and row-major.
    Strides,
    /// Nodes that leave.
    Leaving,
    /// Disks that move blocks whole, and not parts of them.
    WholeBlocks,
    /// Disks that make checksums.
    Sums,
    /// Targets that cannot be opened.
    BadTargets,
}

/// What a disk is asked to open: [`penstock_engine::Request::target`]. Disks keep what is written
/// to a target for as long as a case runs.
pub mod targets {
    /// Its disks move parts of blocks.
    pub const PARTS: &[u8] = b"parts";
    /// Its disks move blocks whole only.
    pub const WHOLE: &[u8] = b"whole";
    /// Its disks move blocks whole, and make checksums.
    pub const SUMMED: &[u8] = b"summed";
    /// It is not there.
    pub const MISSING: &[u8] = b"missing";
    /// It may be read, and not written.
    pub const READ_ONLY: &[u8] = b"read-only";
}

/// A machine on its bench: how to start its nodes, and what they have.
pub trait Bench: Sized + 'static {
    /// The machine.
    type Machine: Machine + 'static;
    /// The memory of a client.
    type Held: Held<Memory = <Self::Machine as Machine>::Memory>;

    /// Why this machine cannot show what a case needs, if it cannot.
    fn lacks(need: Need) -> Option<&'static str>;

    /// The numbers of nodes on which to run the cases.
    fn sizes(&self) -> Vec<usize>;

    /// Runs a case's program on `nodes` nodes, until all have ended.
    ///
    /// # Panics
    /// When a program does, or does not end.
    fn run(&self, nodes: usize, case: &Case<Self>);

    /// A client's memory that holds `values`, the elements of a share one behind the other.
    fn hold(share: &Share, width: usize, values: &[u8], form: Form) -> Self::Held;

    /// Tells all other nodes that this one leaves, and why.
    fn leave(machine: &Self::Machine, error: &Error);

    /// The servers of this node, and the number of servers on all `nodes` nodes.
    fn servers(machine: &Self::Machine, nodes: usize) -> (Vec<usize>, usize);
}

/// Runs all cases but those for which the machine lacks something. Returns the names of these, each
/// with the reason.
///
/// # Panics
/// When a case fails.
pub fn run<B: Bench>(bench: &B) -> Vec<(&'static str, &'static str)> {
    let mut left_out = Vec::new();
    for case in cases::all::<B>() {
        match case.needs.iter().find_map(|&need| B::lacks(need)) {
            Some(reason) => left_out.push((case.name, reason)),
            None => {
                let sizes = bench.sizes().into_iter();
                sizes
                    .filter(|&nodes| nodes >= case.nodes_min)
                    .for_each(|nodes| bench.run(nodes, &case));
            }
        }
    }
    left_out
}
