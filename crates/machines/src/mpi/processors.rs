//! How many processors the ranks of a host may use together.
//!
//! Open MPI's `mpiexec` binds each rank to a processor of its own, and then no rank can count those
//! of its host. So the ranks tell each other which ones they may use.

use penstock_layout::exact;
use rustix::thread::CpuSet;

/// Words of a mask of processors.
const MASK_WORDS: usize = CpuSet::MAX_CPU / u64::BITS as usize;

/// What a rank tells of the processors that it may use: a mask of them, which is empty where the
/// host has too many for one, and how many at a time.
pub type Told = [u64; MASK_WORDS + 1];

/// What this rank tells.
pub fn mine() -> Told {
    let mut told = [0; MASK_WORDS + 1];
    if let Ok(set) = rustix::thread::sched_getaffinity(None) {
        for processor in (0..CpuSet::MAX_CPU).filter(|&processor| set.is_set(processor)) {
            told[processor / 64] |= 1 << (processor % 64);
        }
    }
    told[MASK_WORDS] = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    told
}

/// The processors of a host, by what its ranks have told. A control group's limit counts where it
/// is below what a rank's mask allows.
pub fn together(ranks: &[Told]) -> usize {
    let (mut all, mut at_a_time, mut is_limited) = ([0; MASK_WORDS], 0, false);
    for told in ranks {
        let (mask, count) = (&told[..MASK_WORDS], told[MASK_WORDS]);
        all.iter_mut().zip(mask).for_each(|(all, own)| *all |= own);
        at_a_time = count.max(at_a_time);
        is_limited |= count < ones(mask);
    }
    let count = if is_limited {
        at_a_time
    } else {
        ones(&all).max(at_a_time)
    };
    exact::<usize>(count)
}

fn ones(mask: &[u64]) -> u64 {
    mask.iter().map(|word| u64::from(word.count_ones())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(processors: &[usize], at_a_time: u64) -> Told {
        let mut told = [0; MASK_WORDS + 1];
        for processor in processors {
            told[processor / 64] |= 1 << (processor % 64);
        }
        told[MASK_WORDS] = at_a_time;
        told
    }

    #[test]
    fn ranks_that_are_bound_count_together() {
        assert_eq!(together(&[told(&[0], 1), told(&[70], 1)]), 2);
        assert_eq!(together(&[told(&[0, 1], 2), told(&[1], 1)]), 2);
        assert_eq!(together(&[told(&[0, 1, 2], 3), told(&[0, 1, 2], 3)]), 3);
    }

    #[test]
    fn a_limit_on_all_of_them_counts() {
        assert_eq!(
            together(&[told(&[0, 1, 2, 3], 2), told(&[0, 1, 2, 3], 2)]),
            2
        );
    }

    #[test]
    fn hosts_of_very_many_processors_have_a_number_without_a_mask() {
        assert_eq!(together(&[told(&[], 2000), told(&[], 1900)]), 2000);
    }

    #[test]
    fn this_rank_may_use_some() {
        assert!(together(&[mine()]) >= 1);
    }
}
