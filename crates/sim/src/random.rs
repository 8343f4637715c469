//! A small seeded generator: xoshiro256++, seeded through SplitMix64 (Blackman and Vigna, 2018).
//!
//! It uses only integer arithmetic, so its stream is the same on every machine and in every
//! release. It is for simulation, not for secrets.

use penstock_layout::exact;

/// A stream of random numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// Makes the stream of `seed`.
    pub fn new(seed: u64) -> Random {
        let mut mix = seed;
        Random {
            state: std::array::from_fn(|_| split_mix(&mut mix)),
        }
    }

    /// Makes a stream for the item with number `index`, such as one disk of many. Two indices or
    /// two seeds give unrelated streams, in whatever order they are made.
    pub fn of(seed: u64, index: u64) -> Random {
        let mut mix = seed;
        let mut other = split_mix(&mut mix) ^ index;
        Random::new(split_mix(&mut other))
    }

    /// Draws 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c1, d1) = (c ^ a, d ^ b);
        self.state = [a ^ d1, b ^ c1, c1 ^ (b << 17), d1.rotate_left(45)];
        result
    }

    /// Draws a number from 0 up to `bound`, each equally likely (Lemire, 2019).
    ///
    /// # Panics
    /// When `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below 0");
        loop {
            let product = u128::from(self.next_u64()) * u128::from(bound);
            // The low half is short by the part of 2^64 that `bound` does not divide: draw again.
            #[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
            let low = product as u64;
            if low >= bound.wrapping_neg() % bound {
                return (product >> 64) as u64;
            }
        }
    }

    /// Draws a number from 0 up to 1, with 53 random bits.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Puts `items` into a random order, each equally likely.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for left in (1..items.len()).rev() {
            items.swap(left, exact::<usize>(self.below(left as u64 + 1)));
        }
    }

    /// Draws `count` different numbers below `bound`, in random order (Floyd's method, then a
    /// shuffle).
    ///
    /// # Panics
    /// When there are fewer than `count`.
    pub fn distinct(&mut self, count: usize, bound: u64) -> Vec<u64> {
        assert!(
            count as u64 <= bound,
            "there are not {count} numbers below {bound}"
        );
        let mut seen = std::collections::HashSet::with_capacity(count);
        let mut drawn = Vec::with_capacity(count);
        for top in bound - count as u64..bound {
            let number = self.below(top + 1);
            let fresh = if seen.insert(number) { number } else { top };
            seen.insert(fresh);
            drawn.push(fresh);
        }
        self.shuffle(&mut drawn);
        drawn
    }
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs of the authors' C code from the state 1, 2, 3, 4.
    #[test]
    fn the_published_stream() {
        let mut random = Random {
            state: [1, 2, 3, 4],
        };
        let stream: Vec<u64> = (0..4).map(|_| random.next_u64()).collect();
        assert_eq!(
            stream,
            [41943041, 58720359, 3588806011781223, 3591011842654386]
        );
    }

    #[test]
    fn the_published_seeding() {
        let mut state = 1477776061723855037;
        assert_eq!(split_mix(&mut state), 1985237415132408290);
        assert_eq!(split_mix(&mut state), 2979275885539914483);
    }

    #[test]
    fn below_is_fair() {
        let mut random = Random::new(1);
        let mut counts = [0u32; 7];
        (0..70_000).for_each(|_| counts[random.below(7) as usize] += 1);
        assert!(
            counts.iter().all(|&count| (9_600..10_400).contains(&count)),
            "{counts:?}"
        );
    }

    #[test]
    fn distinct_numbers_are_distinct_and_below() {
        let mut random = Random::new(2);
        for (count, bound) in [(0, 0), (0, 5), (1, 1), (5, 5), (80, 165_442)] {
            let mut drawn = random.distinct(count, bound);
            drawn.sort_unstable();
            drawn.dedup();
            assert_eq!(drawn.len(), count);
            assert!(drawn.iter().all(|&number| number < bound));
        }
    }

    #[test]
    fn streams_of_neighbours_differ() {
        let first = |seed, index| Random::of(seed, index).next_u64();
        let mut firsts = vec![first(0, 0), first(0, 1), first(1, 0), first(1, 1)];
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts.len(), 4);
    }

    #[test]
    fn unit_is_below_one() {
        let mut random = Random::new(3);
        let mean = (0..10_000).map(|_| random.unit()).sum::<f64>() / 10_000.0;
        assert!((0.49..0.51).contains(&mean));
    }
}
