//! Opens sessions whose servers stand: each rank is a client of them.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use penstock_engine::encoding::{decode, encode};
use penstock_engine::{Error, Kind, Party, PartyId, Result, Who};
use penstock_layout::exact;
use penstock_machines::Node;
use penstock_machines::links::Process;
use penstock_net::{Call, Visit};

use super::driver::{Driver, Interrupt, UNASKED_MAX};
use super::opener::StoreOpener;
use super::session::Session;
use super::settings::{SessionOptions, Settings};
use crate::json::AsText;
use crate::{ArraySchema, groups};

/// The words that ranks exchange while they open a session: whether all is well, and then what they
/// have to say, or an error.
pub(super) type Words = [u64; 64];

/// The most characters of an error's words that other ranks hear of.
const ERROR_CHARS: usize = 50;

/// What a rank says, or why it cannot.
fn told(rank: usize, mine: &Result<[u64; 3]>) -> Result<Words> {
    let mut words = [0; size_of::<Words>() / 8];
    match mine {
        Ok(said) => words[1..4].copy_from_slice(said),
        Err(error) => {
            let short = |words: &str| words.chars().take(ERROR_CHARS).collect();
            let error = Error {
                doing: short(&error.doing),
                cause: short(&error.cause),
                path: None,
                bytes: None,
                ..error.clone()
            };
            let encoded = encode(&error.by(Who::Rank(rank)))?;
            words[0] = 1 + encoded.len() as u64;
            for (word, bytes) in words[1..].iter_mut().zip(encoded.chunks(8)) {
                let mut whole = [0; 8];
                whole[..bytes.len()].copy_from_slice(bytes);
                *word = u64::from_le_bytes(whole);
            }
        }
    }
    Ok(words)
}

/// What another rank has said.
///
/// # Errors
/// Its error.
fn heard(words: &Words) -> Result<[u64; 3]> {
    if words[0] == 0 {
        return Ok([words[1], words[2], words[3]]);
    }
    let bytes: Vec<u8> = words[1..]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    let length = usize::try_from(words[0] - 1).unwrap_or(usize::MAX);
    let error: Error = decode(bytes.get(..length).unwrap_or_default())?;
    Err(error)
}

/// Tells all ranks what this one has to say, or its error, and hears them all.
///
/// # Errors
/// That of the lowest rank that has one.
fn exchange(
    rank: usize,
    mine: Result<[u64; 3]>,
    all_of: &dyn Fn(Words) -> Result<Vec<Words>>,
) -> Result<Vec<[u64; 3]>> {
    let all = all_of(told(rank, &mine)?)?;
    let mine = mine.map_err(|error| error.by(Who::Rank(rank)));
    let heard = all.iter().enumerate().map(|(of, words)| match of == rank {
        true => mine.clone(), // with all of its words
        false => heard(words),
    });
    heard.collect()
}

/// A rank's place among those that open a session together.
pub(super) struct Place<'a> {
    pub(super) rank: usize,
    /// Gives the words of all ranks, by rank.
    pub(super) all_of: &'a dyn Fn(Words) -> Result<Vec<Words>>,
}

impl Session {
    /// Opens a session whose servers stand, in all ranks, each a client. An error in what a rank is
    /// given is its error.
    ///
    /// # Errors
    /// The error of the lowest rank that has one, on all ranks: when servers cannot be reached,
    /// have no arrays, or refuse; when ranks have called different servers.
    ///
    /// # Collective
    /// Over all ranks.
    pub(super) fn standing(
        place: &Place<'_>,
        given: Result<(Call, SessionOptions)>,
        interrupt: Option<Interrupt>,
    ) -> Result<Self> {
        let opening = "opening a session";
        let Place { rank, all_of } = *place;
        let visited = given.and_then(|(call, options)| {
            let visit = call.visit()?;
            if visit.greeting.arrays.is_empty() {
                let cause = "the servers have no arrays: start them with --arrays DIR";
                return Err(Error::new(Kind::Unsupported, opening, cause));
            }
            Ok((visit, options, penstock_net::new_number()?))
        });
        let mine = visited.as_ref();
        let mine = mine.map(|(visit, _, number)| [visit.joined.node as u64, visit.realm, *number]);
        let all = exchange(rank, mine.map_err(Error::clone), all_of)?;
        let (visit, options, _) = visited?;
        if let Some(other) = all.iter().position(|[_, realm, _]| *realm != all[0][1]) {
            let cause = format!("ranks 0 and {other} have called different servers");
            return Err(Error::new(Kind::Mismatch, opening, cause));
        }
        let Visit {
            joined, greeting, ..
        } = visit;
        let nodes = all.iter().map(|[node, ..]| exact::<usize>(*node)).collect();
        let party = Party::of_standing(PartyId(all[0][2]), nodes, greeting.arrays);
        let party = Arc::new(party);
        let opener = StoreOpener::new(&options);
        let node = Node::new(joined.node, joined.links, Process::default(), opener);
        let settings = Settings::new(&party, 1, options, true);
        let driver = Driver::new(node, party.clone(), 0, interrupt);
        let entered = match rank {
            0 => driver.join(),
            _ => Ok(()),
        };
        exchange(rank, entered.map(|()| [0; 3]), all_of)?;
        let session = Session::new(driver, party, Some(rank), settings, Vec::new());
        Ok(session.over(Box::new(joined.calling)))
    }

    /// Describes the array at `path`, of a group the array `name`, as it is stored. Each rank may
    /// call it for itself.
    ///
    /// # Errors
    /// When the array is missing or damaged, or when there are several arrays and no `name`.
    pub fn describe(&self, path: &std::path::Path, name: Option<&str>) -> Result<ArraySchema> {
        if !self.party().stands {
            return groups::open_schema(path, name);
        }
        let answer = self.driver().ask(encode(&(path, name))?)?;
        let AsText(schema) = decode(&answer)?;
        Ok(schema)
    }
}

/// A meeting of the threads that open a session together.
pub(super) struct Meeting {
    state: Mutex<MeetingState>,
    changed: Condvar,
}

struct MeetingState {
    ranks: usize,
    said: Vec<Option<Words>>,
    /// What all have said, and how many have yet to hear it.
    all: (Vec<Words>, usize),
    has_left: Option<usize>,
}

impl Meeting {
    pub(super) fn new(ranks: usize) -> Self {
        let state = MeetingState {
            ranks,
            said: vec![None; ranks],
            all: (Vec::new(), 0),
            has_left: None,
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, MeetingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a rank does not come.
    pub(super) fn leave(&self, rank: usize) {
        self.lock().has_left.get_or_insert(rank);
        self.changed.notify_all();
    }

    /// Tells all others something, and hears them.
    ///
    /// # Errors
    /// [`Kind::Peer`] when a rank does not come, or this one is interrupted.
    pub(super) fn all_of(
        &self,
        rank: usize,
        words: Words,
        interrupt: Option<&Interrupt>,
    ) -> Result<Vec<Words>> {
        let opening = "opening a session";
        let mut state = self.lock();
        let mut has_said = false;
        loop {
            let is_free = state.all.1 == 0; // all have heard what was said before
            if is_free && !has_said {
                state.said[rank] = Some(words);
                has_said = true;
                if state.said.iter().all(Option::is_some) {
                    let all = std::mem::take(&mut state.said);
                    state.said = vec![None; state.ranks];
                    state.all = (all.into_iter().flatten().collect(), state.ranks);
                    self.changed.notify_all();
                }
            }
            if has_said && state.said[rank].is_none() {
                state.all.1 -= 1;
                self.changed.notify_all();
                return Ok(state.all.0.clone());
            }
            if let Some(gone) = state.has_left {
                let error = Error::new(Kind::Peer, opening, "it has not opened its session");
                return Err(error.by(Who::Rank(gone)));
            }
            let waited = self.changed.wait_timeout(state, UNASKED_MAX);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if interrupt.is_some_and(|interrupt| interrupt()) {
                drop(state);
                self.leave(rank);
                return Err(
                    Error::new(Kind::Peer, opening, "it was interrupted").by(Who::Rank(rank))
                );
            }
        }
    }
}
