//! Spreading a volume over its servers, when some have come or are to go.
//!
//! ```text
//! ring     new files are dealt to these servers from now on
//! slots    names are dealt to them, too, as evenly as they can be
//! files    each file moves to the new ring, a few cells at a time
//! end      servers that have nothing any more are not needed
//! ```
//!
//! Everybody uses the volume meanwhile. Each step is a transaction of the servers: who stops in the
//! middle, or is killed, begins again, and goes on with what is left. New files, and renamed ones,
//! are found by passes over all directories until one finds nothing to move.

use std::collections::BTreeMap;

use penstock_engine::{Error, Kind, Result};

use crate::job::FileSystem;
use crate::names::{FilePath, Keepers};
use crate::object::EntryKind;

/// The most passes over all directories.
const PASSES_MAX: usize = 20;

/// What has been done so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// The slots that have moved.
    pub slots: u64,
    /// The files that have moved.
    pub files: u64,
    /// The files that were looked at in this pass.
    pub seen: u64,
}

/// What a rebalancing has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebalanced {
    /// The number of the newest ring.
    pub ring: u32,
    /// What has been done.
    pub progress: Progress,
    /// The files that could not be moved, with the reasons. They are whole, and where they were.
    pub failures: Vec<(FilePath, Error)>,
}

/// Spreads a volume over some of its servers; the others have nothing at the end. `tell` hears of
/// the progress.
///
/// # Errors
/// [`Kind::ReadOnly`] for users other than the owner of the volume; [`Kind::Schema`] when there are
/// no such servers; the loss of a server; [`Kind::Busy`] when another ring is made meanwhile, or
/// files are renamed all the time; an error of `tell`.
pub fn rebalance(
    fs: &FileSystem,
    servers: &[usize],
    tell: &mut dyn FnMut(&Progress) -> Result<()>,
) -> Result<Rebalanced> {
    let mut servers = servers.to_vec();
    servers.sort_unstable();
    servers.dedup();
    let rings = fs.rings()?;
    let ring = match rings.servers(rings.newest())?[..] == servers[..] {
        true => rings.newest(),
        false => fs.add_ring(&servers)?,
    };
    let mut progress = Progress::default();
    for (slot, server) in plan_slots(&fs.keepers()?, &servers) {
        fs.move_slot(slot, server)?;
        progress.slots += 1;
        tell(&progress)?;
    }
    for _ in 0..PASSES_MAX {
        let before = progress.files;
        let failures = move_all(fs, &mut progress, tell)?;
        let is_over = match failures.is_empty() {
            true => progress.files == before && has_retired(fs)?,
            false => progress.files == before, // the servers that have these files stay
        };
        if is_over {
            return Ok(Rebalanced {
                ring,
                progress,
                failures: failures.into_iter().collect(),
            });
        }
    }
    let cause = "files have come to other paths all the time: try again";
    Err(Error::new(Kind::Busy, "spreading a volume", cause))
}

/// Lets the servers go that have nothing. Gives whether no file is in another ring any more.
fn has_retired(fs: &FileSystem) -> Result<bool> {
    match fs.retire() {
        Err(error) if error.kind == Kind::Busy => Ok(false),
        retired => retired.map(|()| true),
    }
}

/// The slots that are to move, each with its server, so that all of `servers` keep as many, or one
/// more.
fn plan_slots(keepers: &Keepers, servers: &[usize]) -> Vec<(usize, usize)> {
    let (slots, count) = (keepers.slots().len(), servers.len().max(1));
    let share = |nth: usize| slots / count + usize::from(nth < slots % count);
    let shares = servers.iter().enumerate();
    let mut room: BTreeMap<usize, usize> = shares.map(|(nth, &at)| (at, share(nth))).collect();
    let homeless = keepers.slots().iter().enumerate();
    let homeless = homeless.filter_map(|(slot, kept)| {
        let stays = room.get_mut(&kept.server).filter(|room| **room > 0);
        match stays {
            Some(room) => {
                *room -= 1;
                None
            }
            None => Some(slot),
        }
    });
    let homeless: Vec<usize> = homeless.collect();
    let free = room.into_iter();
    let free = free.flat_map(|(server, room)| std::iter::repeat_n(server, room));
    homeless.into_iter().zip(free).collect()
}

/// Lets all files move that are not in the newest ring. Gives those that could not.
fn move_all(
    fs: &FileSystem,
    progress: &mut Progress,
    tell: &mut dyn FnMut(&Progress) -> Result<()>,
) -> Result<BTreeMap<FilePath, Error>> {
    let mut failures = BTreeMap::new();
    progress.seen = 0;
    let mut waiting = vec![FilePath::root()];
    while let Some(directory) = waiting.pop() {
        let entries = match fs.list(directory.clone()) {
            Err(error) if has_gone(&error) => continue,
            entries => entries?,
        };
        for (name, entry) in entries {
            let path = directory.join(&name)?;
            match entry.kind {
                EntryKind::Xref => waiting.push(path),
                EntryKind::Symlink => {}
                EntryKind::File => {
                    progress.seen += 1;
                    if let Some(error) = move_file(fs, &path, progress, tell)? {
                        failures.insert(path, error);
                    }
                }
            }
        }
    }
    Ok(failures)
}

/// Lets a file move to the newest ring. Gives the reason if it cannot.
fn move_file(
    fs: &FileSystem,
    path: &FilePath,
    progress: &mut Progress,
    tell: &mut dyn FnMut(&Progress) -> Result<()>,
) -> Result<Option<Error>> {
    let mut has_moved = false;
    loop {
        match fs.move_on(path.clone()) {
            Ok(0) => break,
            Ok(_) => has_moved = true,
            Err(error) if has_gone(&error) => break,
            Err(error) if is_of_file(&error) => return Ok(Some(error)),
            Err(error) => return Err(error),
        }
        tell(progress)?;
    }
    progress.files += u64::from(has_moved);
    tell(progress)?;
    Ok(None)
}

/// Whether something has been removed or renamed since it was listed.
fn has_gone(error: &Error) -> bool {
    matches!(error.kind, Kind::Missing | Kind::Schema)
}

/// Whether others can be moved though a file cannot.
fn is_of_file(error: &Error) -> bool {
    matches!(
        error.kind,
        Kind::Full | Kind::Damaged | Kind::Busy | Kind::Io
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Names;

    /// Slots are spread evenly, and no more of them move than must.
    #[test]
    fn slots_are_spread_by_few_moves() {
        let names = Names {
            servers: 3,
            hash_bits: 48,
        };
        let mut keepers = names.keepers();
        let mut spread = |servers: &[usize]| {
            let plan = plan_slots(&keepers, servers);
            for &(slot, server) in &plan {
                assert_ne!(keepers.server(slot), server);
                keepers.move_to(slot, server);
            }
            let kept = |server| {
                let slots = keepers.slots().iter();
                slots.filter(|slot| slot.server == server).count()
            };
            let kept: Vec<usize> = (0..5).map(kept).collect();
            (plan.len(), kept)
        };
        assert_eq!(spread(&[0, 1, 2]), (0, vec![85, 85, 85, 0, 0]));
        assert_eq!(spread(&[0, 1, 2, 3]), (63, vec![64, 64, 64, 63, 0]));
        assert_eq!(spread(&[0, 2, 3]), (64, vec![85, 0, 85, 85, 0]));
        assert_eq!(spread(&[4]), (255, vec![0, 0, 0, 0, 255]));
    }
}
