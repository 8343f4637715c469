//! The space of a server's disks: places for blocks, in use or free.

use penstock_layout::exact;

/// The places of a server. Place `p` is on disk `p % disks`.
pub(crate) struct Space {
    places: u64,
    /// A bit for each place: set if it is in use.
    used: Vec<u64>,
    free: u64,
    /// Free places that changed blocks in memory will take.
    reserved: u64,
}

impl Space {
    /// Makes a space of free places.
    pub(crate) fn new(places: u64) -> Self {
        let words = places.div_ceil(u64::from(u64::BITS));
        Self {
            places,
            used: vec![0; exact::<usize>(words)],
            free: places,
            reserved: 0,
        }
    }

    /// The number of places.
    pub(crate) fn places(&self) -> u64 {
        self.places
    }

    /// The number of free places that nobody has reserved.
    pub(crate) fn unreserved(&self) -> u64 {
        self.free - self.reserved
    }

    /// Reserves a place, if there is one.
    pub(crate) fn reserve(&mut self) -> bool {
        let is_there = self.unreserved() > 0;
        self.reserved += u64::from(is_there);
        is_there
    }

    /// Gives a reservation back.
    pub(crate) fn unreserve(&mut self) {
        self.reserved -= 1;
    }

    fn is_used(&self, place: u64) -> bool {
        let (word, bit) = (place / 64, place % 64);
        self.used[exact::<usize>(word)] >> bit & 1 == 1
    }

    /// Takes a place that was reserved: the first free one from `near` on, so that what is written
    /// in order lies in order.
    ///
    /// # Panics
    /// If none was reserved.
    pub(crate) fn take(&mut self, near: u64) -> u64 {
        assert!(self.reserved > 0, "a place that nobody has reserved");
        let near = near % self.places;
        let place = self.first_free(near..self.places);
        let place = place.or_else(|| self.first_free(0..near));
        let Some(place) = place else {
            unreachable!("{} free places, and none found", self.free);
        };
        self.reserved -= 1;
        self.mark(place);
        place
    }

    fn first_free(&self, range: std::ops::Range<u64>) -> Option<u64> {
        let mut place = range.start;
        while place < range.end {
            let word = self.used[exact::<usize>(place / 64)] >> (place % 64);
            let skipped = u64::from((!word).trailing_zeros());
            if skipped < 64 - place % 64 {
                let found = place + skipped;
                return (found < range.end).then_some(found);
            }
            place = (place / 64 + 1) * 64;
        }
        None
    }

    /// Notes that a place is in use. Gives false if it is not there, or was in use already.
    pub(crate) fn mark(&mut self, place: u64) -> bool {
        if place >= self.places || self.is_used(place) {
            return false;
        }
        self.used[exact::<usize>(place / 64)] |= 1 << (place % 64);
        self.free -= 1;
        true
    }

    /// Frees a place.
    ///
    /// # Panics
    /// If it is free.
    pub(crate) fn free(&mut self, place: u64) {
        assert!(self.is_used(place), "place {place} is free already");
        self.used[exact::<usize>(place / 64)] &= !(1 << (place % 64));
        self.free += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_taken_in_order_and_wrap() {
        let mut space = Space::new(130);
        let mut take = |near| {
            assert!(space.reserve());
            space.take(near)
        };
        assert_eq!((take(0), take(0), take(1)), (0, 1, 2));
        assert_eq!((take(63), take(63), take(129), take(129)), (63, 64, 129, 3));
        space.free(1);
        assert!(space.reserve());
        assert_eq!((space.take(130), space.unreserved()), (1, 123));
        assert!(!space.mark(1) && !space.mark(130) && space.mark(100));
        let mut rest = 0;
        while space.reserve() {
            space.take(77);
            rest += 1;
        }
        assert_eq!((rest, space.unreserved()), (122, 0));
        space.free(5);
        assert!(space.reserve() && !space.reserve());
        space.unreserve();
        assert_eq!(space.unreserved(), 1);
    }
}
