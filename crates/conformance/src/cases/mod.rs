//! The cases: each is a program that every node runs.

mod copies;
mod disks;
mod exposures;
mod leaving;
mod messages;
mod schemas;
mod transfers;
mod transmitted;

use futures::future::LocalBoxFuture;

use crate::{Bench, Need, Seat};

/// A program, and what it needs.
pub struct Case<B: Bench> {
    /// The promise that it shows.
    pub name: &'static str,
    /// What the machine must have.
    pub needs: &'static [Need],
    /// The fewest nodes on which it means something.
    pub nodes_min: usize,
    /// What each node runs.
    pub program: fn(Seat<B>) -> LocalBoxFuture<'static, ()>,
}

impl<B: Bench> Case<B> {
    fn new(name: &'static str, program: fn(Seat<B>) -> LocalBoxFuture<'static, ()>) -> Self {
        Self {
            name,
            needs: &[],
            nodes_min: 1,
            program,
        }
    }

    fn needing(self, needs: &'static [Need]) -> Self {
        Self { needs, ..self }
    }

    /// The same, for a node that leaves and others that go on.
    fn with_leaver(self) -> Self {
        Self {
            needs: &[Need::Leaving],
            nodes_min: 2,
            ..self
        }
    }
}

/// Makes a case of an asynchronous function.
macro_rules! case {
    ($name:literal, $program:path) => {
        Case::new($name, |seat| Box::pin($program(seat)))
    };
}

/// All cases.
pub fn all<B: Bench>() -> Vec<Case<B>> {
    let groups = [of_messages(), of_memories(), of_disks(), special()];
    groups.into_iter().flatten().collect()
}

fn of_messages<B: Bench>() -> Vec<Case<B>> {
    vec![
        case!(
            "messages of one tag from one node arrive in order",
            messages::arrive_in_order
        ),
        case!(
            "a message without a parcel is not one with an empty parcel",
            messages::empty_parcels
        ),
        case!(
            "a parcel's elements may change once it is sent",
            messages::parcels_may_change
        ),
        case!(
            "a receive that is dropped loses nothing",
            messages::dropped_receives
        ),
        case!(
            "the clock does not go back, and work ends",
            messages::clock_and_work
        ),
        case!(
            "what is transmitted is what was there",
            transmitted::what_was_there
        ),
        case!(
            "a transmit ends though nobody waits for it",
            transmitted::nobody_waits
        ),
        case!(
            "a transmit waits for a receiver that holds its parcel",
            transmitted::parcel_is_held
        ),
        case!(
            "a transmit to a receive that is dropped is not lost",
            transmitted::dropped_receives
        ),
        case!(
            "a message sent after a transmit arrives after it",
            transmitted::order
        ),
    ]
}

/// Of buffers, copies, and memories that clients expose.
fn of_memories<B: Bench>() -> Vec<Case<B>> {
    vec![
        case!(
            "buffers do not overlap, and are as long as asked",
            copies::buffers
        ),
        case!("a buffer is cleared with an element", copies::cleared),
        case!(
            "parcels are cut out of buffers and pasted into them",
            copies::cut_and_paste
        ),
        case!(
            "pieces are copied from every place to every other",
            copies::every_place
        ),
        case!("shares are packed and unpacked", copies::pack),
        case!(
            "copies of a memory that is not exposed fail",
            copies::nothing_exposed
        ),
        case!(
            "a parcel of another size is not unpacked",
            copies::other_sizes
        ),
        case!(
            "pieces are got from clients, and put, in every form",
            transfers::every_form
        ),
        case!(
            "one buffer is filled by several clients at a time",
            transfers::several_at_a_time
        ),
        case!("large pieces are got and put", transfers::large),
        case!(
            "many dimensions are got and put",
            transfers::many_dimensions
        ),
        case!(
            "one node exposes memories under several numbers",
            exposures::several_numbers
        ),
        case!(
            "each box of a list is exposed by itself",
            exposures::lists_of_boxes
        ),
        case!(
            "nobody gets what is not exposed any more",
            exposures::taken_back
        ),
        case!(
            "memory is exposed again under the same number",
            exposures::exposed_again
        ),
    ]
}

fn of_disks<B: Bench>() -> Vec<Case<B>> {
    vec![
        case!("blocks are written and read", disks::blocks),
        case!("a block may be written again", disks::written_again),
        case!(
            "a disk's finish ends the writes under way",
            disks::finish_ends_writes
        ),
        case!(
            "the blocks of a server are reached by the one that is named",
            disks::disk_for
        ),
        case!("parts of blocks are moved by themselves", disks::parts),
        case!("disks know where blocks lie", disks::positions),
    ]
}

/// The cases for which a machine may lack something.
fn special<B: Bench>() -> Vec<Case<B>> {
    let lost = [
        case!(
            "who receives from a node that leaves gets an error",
            leaving::receive
        ),
        case!(
            "what came before a node left is received",
            leaving::what_came_before
        ),
        case!("other calls go on when a node leaves", leaving::other_calls),
        case!(
            "who sends to a node that leaves does not hang",
            leaving::send
        ),
        case!(
            "who transmits to a node that leaves gets an error",
            leaving::transmit
        ),
        case!(
            "who transmits what a node holds when it leaves gets an error",
            leaving::held_parcel
        ),
        case!(
            "who gets from a node that leaves gets an error",
            leaving::memget
        ),
        case!(
            "who puts to a node that leaves gets an error",
            leaving::memput
        ),
        case!(
            "a node that is gone at once is missed by all",
            leaving::gone_at_once
        ),
    ];
    let mut special: Vec<_> = lost.into_iter().map(Case::with_leaver).collect();
    special.extend([
        case!("memories lie in any way", transfers::every_memory).needing(&[Need::Strides]),
        case!("disks that move blocks whole say so", disks::whole_only)
            .needing(&[Need::WholeBlocks]),
        case!("disks give the checksums that are asked for", disks::sums).needing(&[Need::Sums]),
        case!(
            "a target that cannot be opened is told of",
            disks::bad_targets
        )
        .needing(&[Need::BadTargets]),
    ]);
    special
}
