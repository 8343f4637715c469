//! What a node does, as spans of time, for those who want to see it.
//!
//! A span is a request, a call, a part of one, a wait, or a disk operation: from its making until
//! it is dropped. What begins within a span is shown inside it. Where nobody looks, a span costs
//! one comparison. The command `penstock` and the Python package write spans to a file:
//!
//! ```text
//! span!("wait", kind = "token")           category, and the name that people see
//! span!("disk", kind = "write", bytes)    with numbers
//! span!("question", out_question = arrow(...))         an arrow begins here
//! span!("request", in_question = arrow(...))           and ends there, on any node
//! ```
//!
//! | category | from | to |
//! |---|---|---|
//! | `access` | a program's read or write of a file | its end |
//! | `question` | what a client asks one server | the answer |
//! | `request` | the coming of a question to a server | the answer has gone |
//! | `call` | a collective call of a rank; its direction | its verdict |
//! | `director` | work on a call's target | |
//! | `part` | one server's part of a collective request | its end |
//! | `buffer` | the blocks that pass through one buffer of a part | the last of them |
//! | `portions` | the pulling of a block's portions, or their pushing | the last of them |
//! | `wait` | a wait for a `token`, a `turn`, `clients`, the `queue` of a device, a `verdict` | |
//! | `disk` | a disk operation, with its wait in the queue | its end |
//! | `worker` | the worker of a device begins an operation | its end |
//!
//! Identities of nodes and objects are numbers, and nothing here is a path or data of a user.

use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;
#[doc(hidden)]
pub use tracing;
pub use tracing::field::Empty;
pub use tracing::{Instrument, Span};

/// The target of all spans.
pub const TARGET: &str = "penstock::trace";

/// The bits of an arrow: numbers of JSON have no more.
const ARROW_BITS: u32 = 53;

/// Makes a span: its category, and its fields. See the head of `penstock_engine::trace`.
#[macro_export]
macro_rules! span {
    (parent: $parent:expr, $($rest:tt)+) => {
        $crate::trace::tracing::trace_span!(
            target: $crate::trace::TARGET,
            parent: $parent,
            $($rest)+
        )
    };
    ($($rest:tt)+) => {
        $crate::trace::tracing::trace_span!(target: $crate::trace::TARGET, $($rest)+)
    };
}

/// The number of an arrow from one span to another, which both make of the same name.
pub fn arrow(name: impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    name.hash(&mut hasher);
    hasher.finish() >> (u64::BITS - ARROW_BITS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn arrows_of_different_names_differ() {
        let nodes = [0usize, 1, 2, 1 << 40, usize::MAX];
        let names = nodes.iter().flat_map(|node| {
            let tickets = (0..2_000u64).map(|number| (number % 3) << 40 | number);
            tickets.map(move |ticket| (*node, ticket))
        });
        let arrows: BTreeSet<u64> = names.clone().map(arrow).collect();
        assert_eq!(arrows.len(), names.count());
        assert!(arrows.iter().all(|arrow| arrow >> ARROW_BITS == 0));
    }

    #[test]
    fn a_span_that_nobody_sees_is_none() {
        assert!(span!("wait", kind = "token").is_none());
        assert!(span!(parent: None, "disk", kind = "write", bytes = 5u64).is_none());
    }
}
