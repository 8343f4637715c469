//! Items: the predefined types of which a datatype is made, in the order of its data.
//!
//! ```text
//! 100 doubles, however they lie         100 x MPI_DOUBLE
//! 5 of a structure of an int and a char 5 x (MPI_INT, MPI_CHAR)
//! ```

use std::sync::Arc;

use penstock_machines::mpi::abi::Handle;

/// An item: one value of a predefined type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item {
    /// The predefined type.
    pub handle: Handle,
    /// The bytes of data in memory.
    pub bytes: u64,
}

/// The items of a datatype.
#[derive(Debug, Clone)]
pub struct Items {
    count: u64,
    shape: Shape,
}

#[derive(Debug, Clone)]
enum Shape {
    /// All items are of one type.
    Same(Item),
    /// Items that are repeated.
    Turns(Arc<Items>),
    /// Items one behind the other.
    Sequence(Arc<[Items]>),
}

impl Items {
    /// One item.
    pub fn one(item: Item) -> Self {
        Self {
            count: 1,
            shape: Shape::Same(item),
        }
    }

    /// No items.
    pub fn none() -> Self {
        Self::sequence(Vec::new())
    }

    /// How many items there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// `turns` of these items.
    #[must_use]
    pub fn repeated(&self, turns: u64) -> Self {
        let shape = match &self.shape {
            Shape::Sequence(_) if turns > 1 => Shape::Turns(Arc::new(self.clone())),
            other => other.clone(),
        };
        Self {
            count: self.count * turns,
            shape,
        }
    }

    /// Items one behind the other.
    pub fn sequence(parts: Vec<Self>) -> Self {
        let mut joined: Vec<Self> = Vec::with_capacity(parts.len());
        for part in parts.into_iter().filter(|part| part.count > 0) {
            match joined.last_mut() {
                Some(last) if last.is_as(&part) => last.count += part.count,
                _ => joined.push(part),
            }
        }
        if joined.len() == 1 {
            return joined.swap_remove(0);
        }
        Self {
            count: joined.iter().map(|part| part.count).sum(),
            shape: Shape::Sequence(joined.into()),
        }
    }

    /// Whether all items of both are of one type.
    fn is_as(&self, other: &Self) -> bool {
        matches!((&self.shape, &other.shape), (Shape::Same(one), Shape::Same(two)) if one == two)
    }

    /// The items in their order: each time some of one type, and how many.
    pub fn iter(&self) -> Iter<'_> {
        Iter {
            under_way: vec![(self, self.turns())],
        }
    }

    /// How often the part below is there.
    fn turns(&self) -> u64 {
        match &self.shape {
            Shape::Turns(inner) => self.count / inner.count.max(1),
            Shape::Same(_) | Shape::Sequence(_) => u64::from(self.count > 0),
        }
    }
}

/// Walks items in their order.
pub struct Iter<'a> {
    /// The parts that have not ended, the innermost last, each with the turns that are left.
    under_way: Vec<(&'a Items, u64)>,
}

impl Iterator for Iter<'_> {
    type Item = (Item, u64);

    fn next(&mut self) -> Option<(Item, u64)> {
        loop {
            let (items, turns) = self.under_way.last_mut()?;
            let items = *items;
            if *turns == 0 {
                self.under_way.pop();
                continue;
            }
            *turns -= 1;
            match &items.shape {
                Shape::Same(item) => return Some((*item, items.count)),
                Shape::Turns(inner) => self.under_way.push((inner, 1)),
                Shape::Sequence(parts) => {
                    let parts = parts.iter().rev().map(|part| (part, part.turns()));
                    self.under_way.extend(parts);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Items, and each of them one by one.
    #[derive(Debug, Clone)]
    struct Both {
        items: Items,
        each: Vec<Handle>,
    }

    fn any() -> impl Strategy<Value = Both> {
        let one = (1usize..4).prop_map(|handle| Both {
            items: Items::one(Item { handle, bytes: 1 }),
            each: vec![handle],
        });
        one.prop_recursive(4, 100, 4, |inner| {
            let repeated = (inner.clone(), 0u64..4).prop_map(|(both, turns)| Both {
                items: both.items.repeated(turns),
                each: both.each.repeat(turns as usize),
            });
            let parts = prop::collection::vec(inner, 0..4).prop_map(|parts| Both {
                each: parts.iter().flat_map(|part| part.each.clone()).collect(),
                items: Items::sequence(parts.into_iter().map(|part| part.items).collect()),
            });
            prop_oneof![repeated, parts]
        })
    }

    proptest! {
        #[test]
        fn each_item_comes_in_its_turn(both in any()) {
            let Both { items, each } = both;
            prop_assert_eq!(items.count(), each.len() as u64);
            let walked = items.iter();
            let walked = walked.flat_map(|(item, count)| vec![item.handle; count as usize]);
            prop_assert_eq!(walked.collect::<Vec<_>>(), each);
        }
    }
}
