//! The servers of a file: to which of them its cells are dealt, and how tokens pass them.
//!
//! A volume has *rings* of servers. The first has the servers with which the volume was made; each
//! later one has those among which the files were to be dealt from then on, because servers had
//! come or were to go. The cells of a file are dealt to the servers of one ring, from the file's
//! base on. While a file moves to a later ring, its first cells are dealt to that, and the others
//! to the former one:
//!
//! ```text
//! ring 0: servers 0 1 2       ring 1: servers 0 1 2 3       6 cells, base 1, 2 cells moved
//!
//! cell      0  1 | 2  3  4  5
//! server    1  2 | 0  1  2  0
//! ```
//!
//! Tokens of a file pass the servers of both rings, those with higher numbers later, from the base
//! on and round. Each server has a *turn* in that order.

use std::collections::BTreeSet;
use std::sync::Arc;

use penstock_engine::{Error, Kind, Result};
use penstock_layout::exact;
use serde::{Deserialize, Serialize};

use crate::names::Keepers;

/// The ring of a file's cells, and how far the file has moved there. Of two placements of a file
/// the later is the greater.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Placement {
    /// The number of steps that the file has moved in.
    pub step: u64,
    /// The number of the ring to which the file's cells are dealt.
    pub ring: u32,
    /// The ring to which those are dealt that have not moved yet. It is the same when the file
    /// does not move.
    pub former: u32,
    /// The number of cells that have moved, the first ones of the file.
    pub moved: u64,
}

impl Placement {
    /// The placement of a file whose cells are all dealt to one ring.
    pub fn settled(ring: u32) -> Self {
        Self {
            step: 0,
            ring,
            former: ring,
            moved: 0,
        }
    }

    /// The next placement of a file that goes towards this ring, whose cells are on their way to
    /// `ring` or back. Nothing if all are there. `moved` says how many cells have moved after the
    /// step when this number has to.
    pub(crate) fn next(
        self,
        ring: u32,
        cells: u64,
        moved: impl FnOnce(std::ops::Range<u64>) -> u64,
    ) -> Option<Self> {
        let step = self.step + 1;
        let settled = |ring| {
            Some(Self {
                step,
                ..Self::settled(ring)
            })
        };
        match (self.is_settled(), self.ring == ring) {
            (true, true) => None,
            (true, false) => Some(Self {
                step,
                ring,
                former: self.ring,
                moved: 0,
            }),
            (false, true) if self.moved == cells => settled(self.ring),
            // Where it goes to is another ring by now: it goes back first.
            (false, false) if self.moved == 0 => settled(self.former),
            (false, is_there) => {
                let left = match is_there {
                    true => self.moved..cells,
                    false => 0..self.moved,
                };
                Some(Self {
                    step,
                    moved: moved(left),
                    ..self
                })
            }
        }
    }

    /// Whether all cells are dealt to one ring.
    pub fn is_settled(&self) -> bool {
        self.ring == self.former
    }
}

/// The rings of a volume. It gets another one when servers come, or are to go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rings {
    all: Vec<Arc<[usize]>>,
    /// The number of the first ring that files may be in.
    first: u32,
}

impl Rings {
    /// The rings of a volume with this number of servers, which has not been changed.
    pub fn new(servers: usize) -> Self {
        Self {
            all: vec![(0..servers).collect()],
            first: 0,
        }
    }

    /// The number of the newest ring.
    pub fn newest(&self) -> u32 {
        exact::<u32>(self.all.len().saturating_sub(1))
    }

    /// The servers of a ring, ascending.
    ///
    /// # Errors
    /// [`Kind::Peer`] when there is no such ring.
    pub fn servers(&self, ring: u32) -> Result<&Arc<[usize]>> {
        let servers = self.all.get(ring as usize);
        servers.ok_or_else(|| {
            let cause = format!("it names ring {ring} of {}", self.all.len());
            Error::new(Kind::Peer, "looking for the servers of a file", cause)
        })
    }

    /// Whether the volume has the rings of a placement, and it makes sense.
    pub fn have(&self, placement: Placement) -> bool {
        let Placement {
            ring,
            former,
            moved,
            step: _,
        } = placement;
        (ring as usize) < self.all.len() && former <= ring && (former < ring || moved == 0)
    }

    /// The highest number of a server in a ring that files may be in.
    pub fn last_server(&self) -> usize {
        self.in_use().max().unwrap_or(0)
    }

    /// The number of the first ring that files may be in.
    pub fn first(&self) -> u32 {
        self.first
    }

    /// Notes that no file is in a ring before this one.
    pub(crate) fn retire_before(&mut self, ring: u32) {
        self.first = ring.max(self.first);
    }

    fn in_use(&self) -> impl Iterator<Item = usize> + '_ {
        let rings = self.all.iter().skip(self.first as usize);
        rings.flat_map(|ring| ring.iter().copied())
    }

    /// The servers that have a part of the volume, ascending: those of the rings that files may be
    /// in, and those that keep slots.
    pub(crate) fn members(&self, keepers: &Keepers) -> Vec<usize> {
        let kept = keepers.slots().iter().map(|slot| slot.server);
        let members: BTreeSet<usize> = self.in_use().chain(kept).collect();
        members.into_iter().collect()
    }

    /// Whether a server is in one of the rings.
    pub fn have_server(&self, server: usize) -> bool {
        self.all.iter().any(|ring| ring.contains(&server))
    }

    /// These rings, and one more.
    #[must_use]
    pub fn with(&self, servers: Arc<[usize]>) -> Self {
        let rings = self.all.iter().cloned();
        Self {
            all: rings.chain([servers]).collect(),
            first: self.first,
        }
    }

    /// The servers of a file with this base, in the order in which tokens pass them.
    ///
    /// # Errors
    /// As [`Rings::servers`].
    pub fn order(&self, base: usize, placement: Placement) -> Result<Order> {
        let ring = self.servers(placement.ring)?.clone();
        let servers = match placement.is_settled() {
            true => ring,
            false => {
                let former = self.servers(placement.former)?;
                let mut both: Vec<usize> = ring.iter().chain(former.iter()).copied().collect();
                both.sort_unstable();
                both.dedup();
                both.into()
            }
        };
        Ok(Order {
            start: start_of(&servers, base),
            servers,
        })
    }
}

/// The place in a ring at which a file with this base begins: where the base stands, or, where it
/// is gone, where the next server stands.
fn start_of(servers: &[usize], base: usize) -> usize {
    let start = servers.partition_point(|&server| server < base);
    start % servers.len().max(1)
}

/// The server in a ring whose turn it is, counted from a file's base.
pub(crate) fn dealt(servers: &[usize], base: usize, cell: u64) -> usize {
    let turn = exact::<usize>(cell % servers.len() as u64);
    servers[(start_of(servers, base) + turn) % servers.len()]
}

/// The servers of a file in the order in which tokens pass them.
#[derive(Debug, Clone)]
pub struct Order {
    servers: Arc<[usize]>,
    start: usize,
}

impl Order {
    /// The number of servers.
    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// The server with a turn.
    pub fn server(&self, turn: usize) -> usize {
        self.servers[(self.start + turn) % self.servers.len()]
    }

    /// The turn of a server, if it is one of these.
    pub fn turn(&self, server: usize) -> Option<usize> {
        let at = self.servers.binary_search(&server).ok()?;
        let all = self.servers.len();
        Some((at + all - self.start) % all)
    }

    /// The server that tokens come to after one with this turn.
    pub fn after(&self, turn: usize) -> usize {
        self.server(turn + 1)
    }

    /// The server that tokens come from to one with this turn.
    pub fn before(&self, turn: usize) -> usize {
        self.server(turn + self.servers.len() - 1)
    }
}

/// How the cells of a file are dealt to servers.
#[derive(Debug, Clone, Copy)]
pub struct Dealing<'a> {
    cells: u64,
    base: usize,
    moved: u64,
    ring: &'a [usize],
    former: &'a [usize],
}

impl<'a> Dealing<'a> {
    /// How `cells` cells from a base on are dealt.
    ///
    /// # Errors
    /// As [`Rings::servers`].
    pub(crate) fn new(
        (cells, base): (u64, usize),
        placement: Placement,
        rings: &'a Rings,
    ) -> Result<Self> {
        Ok(Self {
            cells,
            base,
            moved: placement.moved.min(cells),
            ring: rings.servers(placement.ring)?,
            former: rings.servers(placement.former)?,
        })
    }

    /// The server of a cell.
    pub fn server_of(&self, cell: u64) -> usize {
        match cell < self.moved {
            true => dealt(self.ring, self.base, cell),
            false => dealt(self.former, self.base, cell),
        }
    }

    /// The servers that have cells, ascending.
    pub fn servers(&self) -> Vec<usize> {
        let of = |cells: std::ops::Range<u64>, ring: &[usize]| {
            let end = cells.end.min(cells.start.saturating_add(ring.len() as u64));
            cells.start..end
        };
        let moved = of(0..self.moved, self.ring);
        let others = of(self.moved..self.cells, self.former);
        let mut servers: Vec<usize> = moved
            .chain(others)
            .map(|cell| self.server_of(cell))
            .collect();
        servers.sort_unstable();
        servers.dedup();
        servers
    }

    /// The cells of a server, ascending.
    pub fn cells_of(&self, server: usize) -> impl Iterator<Item = u64> + use<> {
        let of = |cells: std::ops::Range<u64>, ring: &[usize]| {
            let place = ring.binary_search(&server).ok();
            let all = ring.len();
            let turn = place.map(|place| (place + all - start_of(ring, self.base)) % all);
            turn.into_iter().flat_map(move |turn| {
                let (turn, all) = (turn as u64, all as u64);
                let first = cells.start + (turn + all - cells.start % all) % all;
                (first..cells.end).step_by(exact::<usize>(all))
            })
        };
        let moved = of(0..self.moved, self.ring);
        moved.chain(of(self.moved..self.cells, self.former))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Servers, turns and cells of any placement, against looking at each cell.
    #[test]
    fn cells_are_dealt_as_each_of_them_says() {
        let rings = Rings::new(3).with([0, 2, 3, 7].into()).with([1].into());
        for (former, ring) in [(0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2)] {
            for (cells, base) in [(1, 0), (2, 2), (6, 1), (7, 3), (13, 9), (40, 7)] {
                for moved in 0..=cells {
                    let placement = Placement {
                        step: 1,
                        ring,
                        former,
                        moved: if ring == former { 0 } else { moved },
                    };
                    assert!(rings.have(placement));
                    let dealing = Dealing::new((cells, base), placement, &rings).unwrap();
                    let order = rings.order(base, placement).unwrap();
                    let mut by_server = std::collections::BTreeMap::<usize, Vec<u64>>::new();
                    for cell in 0..cells {
                        by_server
                            .entry(dealing.server_of(cell))
                            .or_default()
                            .push(cell);
                    }
                    assert!(dealing.servers().iter().eq(by_server.keys()));
                    for server in 0..9 {
                        let own: Vec<u64> = dealing.cells_of(server).collect();
                        assert_eq!(own, by_server.remove(&server).unwrap_or_default());
                    }
                    for turn in 0..order.len() {
                        let server = order.server(turn);
                        assert_eq!(order.turn(server), Some(turn));
                        let (after, before) = (order.after(turn), order.before(turn));
                        assert_eq!(order.turn(after), Some((turn + 1) % order.len()));
                        let last = (turn + order.len() - 1) % order.len();
                        assert_eq!(order.turn(before), Some(last));
                    }
                    assert!(
                        dealing
                            .servers()
                            .iter()
                            .all(|&server| order.turn(server).is_some())
                    );
                }
            }
        }
    }

    /// F1, F2: cells go round-robin from the base, and wrap.
    #[test]
    fn cells_go_round_robin_from_the_base() {
        let rings = Rings::new(4);
        let dealing = Dealing::new((7, 2), Placement::default(), &rings).unwrap();
        let servers: Vec<_> = (0..7).map(|cell| dealing.server_of(cell)).collect();
        assert_eq!(servers, [2, 3, 0, 1, 2, 3, 0]);
    }

    /// A file moves in steps, each later than the one before; and back, if it is to go elsewhere.
    #[test]
    fn files_move_in_steps() {
        let mut now = Placement::settled(1);
        let mut way = |ring| {
            let mut passed = Vec::new();
            for _ in 0..20 {
                let next = now.next(ring, 5, |left| match left.start == 0 && left.end < 5 {
                    true => left.end.saturating_sub(2),
                    false => (left.start + 2).min(left.end),
                });
                let Some(next) = next else {
                    break;
                };
                assert!(next > now);
                passed.push((next.ring, next.former, next.moved));
                now = next;
                if ring == 2 && next.moved == 4 {
                    break; // another ring is made
                }
            }
            passed
        };
        assert_eq!(way(2), [(2, 1, 0), (2, 1, 2), (2, 1, 4)]);
        let back = [(2, 1, 2), (2, 1, 0), (1, 1, 0)];
        let there = [(3, 1, 0), (3, 1, 2), (3, 1, 4), (3, 1, 5), (3, 3, 0)];
        assert_eq!(way(3), [&back[..], &there[..]].concat());
        assert!(way(3).is_empty());
        let rings = Rings::new(2);
        let beyond = Placement::settled(1);
        let impossible = Placement {
            moved: 1,
            ..Placement::default()
        };
        assert!(!rings.have(beyond) && !rings.have(impossible) && rings.order(0, beyond).is_err());
    }
}
