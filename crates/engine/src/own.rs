//! What one rank holds of an array, as the rank itself knows it.

use std::collections::BTreeMap;

use penstock_layout::{Block, DiskSchema, Holding, Piece, Share};

use crate::holders::Holders;
use crate::request::Request;

/// The elements that a rank holds of an array.
pub(crate) enum OwnPart<'a> {
    /// Shares that have elements, each with its number among the rank's shares.
    Shares(Vec<(usize, Share)>),
    /// A list.
    List(&'a Holding),
}

/// A block in which a rank holds elements.
pub(crate) struct OwnBlock {
    pub(crate) block: Block,
    /// The pieces of the block, each with the number of its share.
    pub(crate) pieces: Vec<(usize, Piece)>,
}

impl OwnBlock {
    /// The number of elements of the rank.
    pub(crate) fn elements(&self) -> u64 {
        self.pieces.iter().map(|(_, piece)| piece.elements()).sum()
    }
}

impl<'a> OwnPart<'a> {
    /// What `rank` holds of the array of `request`, or the rank's `list` if ranks have lists.
    pub(crate) fn new(request: &Request, rank: usize, list: &'a Holding) -> Self {
        match &request.holders {
            Holders::Lists { .. } => Self::List(list),
            Holders::Schema(memory) => {
                let shares = memory.shares_of(rank).enumerate();
                let shares = shares.map(|(part, share)| (part, memory.share(share)));
                Self::Shares(shares.filter(|(_, share)| share.elements() > 0).collect())
            }
        }
    }

    /// Whether the rank holds nothing.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Shares(shares) => shares.is_empty(),
            Self::List(list) => list.is_empty(),
        }
    }

    /// The blocks in which the rank holds elements, in file order.
    pub(crate) fn blocks<'b>(
        &'b self,
        disk: &'b DiskSchema,
    ) -> Box<dyn Iterator<Item = OwnBlock> + 'b> {
        match self {
            Self::List(list) => Box::new(list.pieces(disk).map(|(block, piece)| OwnBlock {
                block,
                pieces: vec![(0, piece.into())],
            })),
            Self::Shares(shares) => match shares.as_slice() {
                [one] => Box::new(blocks_of(one, disk)),
                several => {
                    let mut all = BTreeMap::new();
                    for own in several.iter().flat_map(|share| blocks_of(share, disk)) {
                        let OwnBlock { block, pieces } = own;
                        let number = (block.object, block.index);
                        let (_, there) = all.entry(number).or_insert((block, Vec::new()));
                        there.extend(pieces);
                    }
                    let all = all.into_values();
                    Box::new(all.map(|(block, pieces)| OwnBlock { block, pieces }))
                }
            },
        }
    }
}

/// The blocks in which one share has elements.
fn blocks_of<'a>(
    (part, share): &'a (usize, Share),
    disk: &'a DiskSchema,
) -> impl Iterator<Item = OwnBlock> + 'a {
    let bounds = share.bounds().into_iter();
    let blocks = bounds.flat_map(|bounds| disk.blocks_in(&bounds));
    blocks.filter_map(|block| {
        let piece = share.intersect(&block.region)?;
        let pieces = vec![(*part, piece.into())];
        Some(OwnBlock { block, pieces })
    })
}
