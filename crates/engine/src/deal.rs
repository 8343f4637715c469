//! The dealing of records: clients pass each other what they have got, until all have as many.
//!
//! Number the records of all ranks in the order of the ranks: rank `r` has got `sums[r] ..
//! sums[r + 1]` of `n`, and is to have `r n / p .. (r + 1) n / p`, rounded down, of `p` ranks. Each
//! sends others their part of what it has got. All know all counts, so nobody asks.
//!
//! ```text
//! has got       0 1 2 3 4 5 6 | 7 | | 8
//! is to have    0 1 | 2 3 | 4 5 6 | 7 8          n = 9, p = 4
//! ```
//!
//! Costs: one message up and one down the tree of clients; messages of at most [`RECORDS_MAX`]
//! records between ranks that have something for each other, at most `2 p` such pairs in all. They
//! are sent at once: a rank gets no more than it is to have.

use std::ops::Range;

use futures::future::join;

use crate::address::Step;
use crate::call::Call;
use crate::deliveries::refusal;
use crate::error::Result;
use crate::machine::Machine;
use crate::sieve::Catch;
use crate::tree::Tree;

/// The most records of a message.
const RECORDS_MAX: u64 = 1 << 14;

/// The bytes before the records of a message: the number of the first.
const HEADER_BYTES: usize = 8;

/// What each rank has got of all records, as the sums of the counts before.
struct Counts(Vec<u64>);

impl Counts {
    /// The counts of all ranks, if each has told its own once.
    fn new(mut counts: Vec<(usize, u64)>, ranks: usize) -> Option<Self> {
        counts.sort_unstable();
        let is_each = counts.iter().map(|(rank, _)| *rank).eq(0..ranks);
        let mut sums = vec![0u64];
        for (_, count) in counts {
            sums.push(sums.last()?.checked_add(count)?);
        }
        is_each.then_some(Self(sums))
    }

    fn ranks(&self) -> usize {
        self.0.len() - 1
    }

    fn got(&self, rank: usize) -> Range<u64> {
        self.0[rank]..self.0[rank + 1]
    }

    fn due(&self, rank: usize) -> Range<u64> {
        equal_part(self.0[self.ranks()], self.ranks(), rank)
    }
}

/// The numbers of the things that a rank has, of things that ranks have evenly in their order: rank
/// `r` of `p` has `r n / p .. (r + 1) n / p`, rounded down, of `n`.
pub fn equal_part(all: u64, ranks: usize, rank: usize) -> Range<u64> {
    let (ranks, rank) = (ranks as u64, rank as u64);
    // Without a product that could overflow.
    let end = |rank: u64| all / ranks * rank + all % ranks * rank / ranks;
    end(rank)..end(rank + 1)
}

fn common(one: &Range<u64>, other: &Range<u64>) -> Range<u64> {
    let start = one.start.max(other.start);
    start..one.end.min(other.end).max(start)
}

/// Deals the records of all clients among them; `got` is the number of this one's.
///
/// # Errors
/// An error of any client before the dealing, the same on all; then this client's own.
///
/// # Collective
/// Over all clients of the party.
pub(crate) async fn deal<M: Machine>(
    call: &Call<'_, M>,
    (tree, me): (&Tree<'_, M>, usize),
    catch: &dyn Catch,
    got: Result<u64>,
) -> Result<()> {
    let mine = got.map(|count| vec![(me, count)]);
    let both = |one: Result<Vec<_>>, other: Result<Vec<_>>| {
        let (mut one, other) = (one?, other?);
        one.extend(other);
        Ok(one)
    };
    let all = tree.gather(Step::Counts, mine, both).await?;
    let all: Vec<(usize, u64)> = tree.multicast(Step::Deal, all).await??;
    let counts = Counts::new(all, call.party().clients.len());
    let counts = counts.ok_or_else(|| refusal("ranks have told counts that cannot be"))?;
    let sending = send(call, (&counts, me), catch);
    // What goes wrong here keeps nobody else waiting.
    let (sent, received) = join(sending, receive(call, (&counts, me))).await;
    let others = sent.and(received)?;
    let (got, due) = (counts.got(me), counts.due(me));
    for (rank, records) in others.iter().enumerate() {
        if rank == me {
            let own = common(&got, &due);
            catch.keep(&catch.cut(own.start - got.start..own.end - got.start)?)?;
        }
        for part in records {
            catch.keep(&part[HEADER_BYTES..])?;
        }
    }
    Ok(())
}

/// Sends others what they are to have of this client's records; an empty message, which is refused,
/// where the catch does not give them.
async fn send<M: Machine>(
    call: &Call<'_, M>,
    (counts, me): (&Counts, usize),
    catch: &dyn Catch,
) -> Result<()> {
    let (got, mut all_cut) = (counts.got(me), Ok(()));
    for (rank, &node) in call.party().clients.iter().enumerate() {
        let theirs = common(&got, &counts.due(rank));
        let mut start = theirs.start;
        while rank != me && start < theirs.end {
            let end = theirs.end.min(start + RECORDS_MAX);
            let body = match catch.cut(start - got.start..end - got.start) {
                Ok(records) => [&start.to_le_bytes()[..], &records].concat(),
                Err(error) => {
                    all_cut = Err(error);
                    Vec::new()
                }
            };
            call.machine
                .send(node, call.port(Step::Dealt), body, None)
                .await?;
            start = end;
        }
    }
    all_cut
}

/// Receives what others have of this client's records, by rank.
async fn receive<M: Machine>(
    call: &Call<'_, M>,
    (counts, me): (&Counts, usize),
) -> Result<Vec<Vec<Vec<u8>>>> {
    let due = counts.due(me);
    let part_of = |rank| common(&counts.got(rank), &due);
    let mut next: Vec<Range<u64>> = (0..counts.ranks()).map(part_of).collect();
    next[me] = 0..0;
    let mut parts = vec![Vec::new(); counts.ranks()];
    while next.iter().any(|left| !left.is_empty()) {
        let message = call.machine.receive(call.port(Step::Dealt)).await;
        let rank = call.party().rank(message.from);
        let first = message.body.first_chunk::<HEADER_BYTES>();
        let (Some(rank), Some(first)) = (rank, first) else {
            return Err(refusal("somebody deals who is no client of the call"));
        };
        let left = &mut next[rank];
        if left.is_empty() || u64::from_le_bytes(*first) != left.start {
            return Err(refusal(format!("rank {rank} deals what is not its turn")));
        }
        left.start = left.end.min(left.start + RECORDS_MAX);
        parts[rank].push(message.body);
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_to_have_as_many_as_others_or_one_more() {
        for counts in [
            vec![7, 1, 0, 1],
            vec![0, 0, 0],
            vec![5],
            vec![0, 3],
            vec![u64::MAX / 2, 1, u64::MAX / 2],
        ] {
            let ranks = counts.len();
            let told = counts.iter().copied().enumerate().rev().collect();
            let counts = Counts::new(told, ranks).unwrap();
            let all = counts.0[ranks];
            let mut end = 0;
            for rank in 0..ranks {
                let due = counts.due(rank);
                assert_eq!(due.start, end);
                end = due.end;
                let many = due.end - due.start;
                let least = all / ranks as u64;
                assert!(many == least || many == least + 1, "{many} of {all}");
            }
            assert_eq!(end, all);
        }
    }

    #[test]
    fn counts_that_cannot_be_are_refused() {
        assert!(Counts::new(vec![(0, 1)], 2).is_none());
        assert!(Counts::new(vec![(0, 1), (0, 1)], 2).is_none());
        assert!(Counts::new(vec![(0, 1), (2, 1)], 2).is_none());
        assert!(Counts::new(vec![(0, u64::MAX), (1, 1)], 2).is_none());
    }
}
