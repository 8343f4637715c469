//! A slab holds items by number.

use penstock_layout::exact;

/// A slab holds items by number. The number of an item taken out is used again.
pub(super) struct Slab<T> {
    items: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    pub(super) fn put(&mut self, item: T) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                self.items[slot as usize] = Some(item);
                slot
            }
            None => {
                self.items.push(Some(item));
                exact::<u32>(self.items.len() - 1)
            }
        }
    }

    pub(super) fn take(&mut self, slot: u32) -> Option<T> {
        let item = self.items[slot as usize].take();
        if item.is_some() {
            self.free.push(slot);
        }
        item
    }

    pub(super) fn get(&mut self, slot: u32) -> Option<&mut T> {
        self.items[slot as usize].as_mut()
    }
}
