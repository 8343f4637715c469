//! The tracks of a trace: a viewer shows each as a line.
//!
//! Slices of one track must lie beside one another or within one another. A span takes the track of
//! the span around it, unless another is there already; then it takes a track of its own:
//!
//! ```text
//! server 0       | read ......................| write ........|
//!                  | token ...| disk .......|
//! server 0, 2          | read ......|
//! disk-0-8:1                    | worker |
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The most tracks of a process.
const TRACKS_MAX: usize = 4096;

/// The tracks of one kind: their names begin alike.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Group {
    /// Those of clients.
    Client,
    /// Those of the rank with this number.
    Rank(u64),
    /// Those of the server with this number.
    Server(u64),
    /// The one with this name.
    Named(String),
}

impl Group {
    /// The name of the track with this number.
    fn name(&self, number: usize) -> String {
        let first = match self {
            Self::Client => "client".to_string(),
            Self::Rank(rank) => format!("rank {rank}"),
            Self::Server(server) => format!("server {server}"),
            Self::Named(name) => name.clone(),
        };
        match number {
            0 => first,
            more => format!("{first}, {}", more + 1),
        }
    }
}

/// A track, until it is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Track(pub(super) usize);

impl Track {
    /// The number of the track in a file; 0 stands for the process.
    pub(super) fn number(self) -> usize {
        self.0 + 1
    }
}

/// A track that a span has got.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) track: Track,
    pub(super) name: Arc<str>,
    /// The time at which the last slice there has ended.
    pub(super) free_since: u64,
}

/// All tracks of a process.
#[derive(Debug, Default)]
pub(super) struct Tracks {
    /// The group and name of each track, and the time at which its last slice has ended.
    all: Vec<(Group, Arc<str>, u64)>,
    /// The number of tracks of each group, and those that are free.
    groups: BTreeMap<Group, (usize, BTreeSet<Track>)>,
}

impl Tracks {
    /// Takes a track of a group, the first that is free. There may be too many.
    pub(super) fn take(&mut self, group: &Group) -> Option<Taken> {
        let (count, free) = self.groups.entry(group.clone()).or_default();
        if let Some(track) = free.pop_first() {
            let (_, name, free_since) = &self.all[track.0];
            return Some(Taken {
                track,
                name: name.clone(),
                free_since: *free_since,
            });
        }
        if self.all.len() >= TRACKS_MAX {
            return None;
        }
        let (track, name) = (Track(self.all.len()), Arc::<str>::from(group.name(*count)));
        *count += 1;
        self.all.push((group.clone(), name.clone(), 0));
        Some(Taken {
            track,
            name,
            free_since: 0,
        })
    }

    /// Gives a track back whose last slice has ended at a time.
    pub(super) fn give_back(&mut self, track: Track, ended: u64) {
        let (group, _, free_since) = &mut self.all[track.0];
        *free_since = ended;
        if let Some((_, free)) = self.groups.get_mut(group) {
            free.insert(track);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_free_track_is_taken() {
        let mut tracks = Tracks::default();
        let (server, other) = (Group::Server(3), Group::Client);
        let take = |tracks: &mut Tracks, group: &Group| tracks.take(group).unwrap();
        let first = take(&mut tracks, &server);
        assert_eq!(&*first.name, "server 3");
        let second = take(&mut tracks, &server);
        assert_eq!(&*second.name, "server 3, 2");
        assert_eq!(&*take(&mut tracks, &other).name, "client");
        tracks.give_back(second.track, 90);
        tracks.give_back(first.track, 70);
        let again = take(&mut tracks, &server);
        assert_eq!(
            (again.track, again.free_since, again.name),
            (first.track, 70, first.name)
        );
        assert_eq!(take(&mut tracks, &server).track, second.track);
    }

    #[test]
    fn there_is_an_end_of_tracks() {
        let mut tracks = Tracks::default();
        let taken = (0..2 * TRACKS_MAX).filter_map(|_| tracks.take(&Group::Client));
        assert_eq!(taken.count(), TRACKS_MAX);
    }
}
