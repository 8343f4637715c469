//! The blocks that were used last.

use std::collections::VecDeque;

use crate::volume::BlockName;

/// The most blocks.
const BLOCKS_MAX: usize = 32;

/// The blocks that were used last, the latest first.
#[derive(Default)]
pub(crate) struct RecentBlocks(VecDeque<BlockName>);

impl RecentBlocks {
    /// Notes that a block is used, and gives the number of blocks to fetch after it.
    pub(crate) fn note(&mut self, name: &BlockName, ahead_max: u64) -> u64 {
        let before = |distance: &u64| {
            let block = name.block.checked_sub(*distance);
            block.is_some_and(|block| {
                let earlier = BlockName {
                    block,
                    ..name.clone()
                };
                self.0.contains(&earlier)
            })
        };
        let ahead = (1..=ahead_max).take_while(before).count() as u64;
        self.0.retain(|other| other != name);
        self.0.push_front(name.clone());
        self.0.truncate(BLOCKS_MAX);
        ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::ObjectId;
    use crate::volume::cells::Version;

    fn name(file: u64, block: u64) -> BlockName {
        BlockName {
            file: ObjectId(file),
            version: Version::Active,
            cell: 0,
            block,
        }
    }

    /// S3: as many blocks ahead as there are behind, without a gap; fewer where files mix.
    #[test]
    fn as_many_ahead_as_behind() {
        let mut recent = RecentBlocks::default();
        let ahead: Vec<u64> = (0..12)
            .map(|block| recent.note(&name(1, block), 8))
            .collect();
        assert_eq!(ahead, [0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 8]);
        assert_eq!(recent.note(&name(1, 30), 8), 0);
        assert_eq!(recent.note(&name(2, 12), 8), 0);
        for file in 2..34 {
            recent.note(&name(file, 0), 8);
        }
        assert_eq!(
            recent.note(&name(1, 12), 8),
            0,
            "others have taken its place"
        );
        assert_eq!(recent.note(&name(1, 13), 0), 0);
    }
}
