//! Flattened datatypes: where the bytes of an instance lie, and how far instances are apart.

use crate::items::{Item, Items};
use crate::tree::Tree;

/// A flattened datatype.
#[derive(Debug, Clone)]
pub struct Type {
    /// Where the bytes lie.
    pub tree: Tree,
    /// The lower bound.
    pub lower: i64,
    /// The distance from one of several to the next.
    pub extent: i64,
    /// The items of predefined types.
    pub items: Items,
}

impl Type {
    /// The bytes of data.
    pub fn size(&self) -> u64 {
        self.tree.size()
    }

    /// Whether several of them have no gaps.
    pub fn is_dense(&self) -> bool {
        self.tree.is_run() && self.size() as i64 == self.extent && self.tree.bounds().start == 0
    }

    fn upper(&self) -> i64 {
        self.lower + self.extent
    }

    /// `count` of them, `stride` bytes apart.
    #[must_use]
    pub fn repeated(&self, count: u64, stride: i64) -> Self {
        let Some(last) = count.checked_sub(1) else {
            return Self::nothing();
        };
        let last = stride * last as i64;
        let (lower, upper) = (self.lower + last.min(0), self.upper() + last.max(0));
        Self {
            tree: self.tree.clone().repeated(count, stride),
            lower,
            extent: upper - lower,
            items: self.items.repeated(count),
        }
    }

    /// A byte of no type in particular.
    pub fn byte() -> Self {
        Self {
            tree: Tree::run(1),
            lower: 0,
            extent: 1,
            items: Items::one(Item {
                handle: 0,
                bytes: 1,
            }),
        }
    }

    fn nothing() -> Self {
        Self {
            tree: Tree::run(0),
            lower: 0,
            extent: 0,
            items: Items::none(),
        }
    }

    /// The type, `distance` bytes further on.
    #[must_use]
    pub fn shifted(mut self, distance: i64) -> Self {
        self.tree = self.tree.shifted(distance);
        self.lower += distance;
        self
    }

    /// Types one behind the other in the order of data.
    pub fn sequence(parts: Vec<Self>) -> Self {
        let bounds = parts.iter().filter(|part| !part.is_nothing());
        let bounds = bounds.map(|part| (part.lower, part.upper()));
        let bounds = bounds.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
        let (lower, upper) = bounds.unwrap_or((0, 0));
        Self {
            lower,
            extent: upper - lower,
            items: Items::sequence(parts.iter().map(|part| part.items.clone()).collect()),
            tree: Tree::sequence(parts.into_iter().map(|part| part.tree)),
        }
    }

    /// Whether the type has neither data nor bounds.
    fn is_nothing(&self) -> bool {
        self.size() == 0 && self.extent == 0 && self.lower == 0
    }
}

/// Blocks of a type, each at a place and of a length.
pub fn blocks_of(old: &Type, blocks: impl Iterator<Item = (i64, u64)> + Clone) -> Type {
    let lengths = blocks.clone().map(|(_, length)| length);
    let items = old.items.repeated(lengths.sum::<u64>());
    let filled = blocks.filter(|&(_, length)| length > 0);
    if !old.is_dense() {
        let parts = filled.map(|(place, length)| old.repeated(length, old.extent).shifted(place));
        return Type {
            items,
            ..Type::sequence(parts.collect())
        };
    }
    let bounds = filled.clone();
    let bounds = bounds.map(|(place, length)| (place, place + length as i64 * old.extent));
    let bounds = bounds.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
    let (lower, upper) = bounds.unwrap_or((0, 0));
    Type {
        lower,
        extent: upper - lower,
        items,
        tree: Tree::runs(filled.map(|(place, length)| (place, length * old.size()))),
    }
}
