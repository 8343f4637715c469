//! Chooses the way of a call, by the model of this machine.
//!
//! The machine is a preset that `penstock calibrate` has written. Of a call with a new shape the
//! node that directs predicts every way in closed form, and takes the fastest, or the usual one if
//! that is not much slower: a prediction may be a third off. Later calls of that shape find the
//! predictions here. What a call took corrects the prediction of its way, and by itself no other.
//! The usual way is taken at its word until a call has tried it: if another way needs longer than
//! that, the next call goes the usual way.
//!
//! ```text
//! ways   strategies x servers (the usual number, all, one a host) x blocks (1 MiB, 4 MiB)
//! ```
//!
//! Only what the model knows is chosen for: arrays in files and in chunks on a file system, whose
//! ranks hold boxes. Other calls are carried out as they would be without a machine. Chunks with a
//! codec are predicted as if they had none, which says so, and take the usual way. Lists are known
//! to their ranks alone: an explanation predicts them, a call does not. The save of a group has one
//! way: it is predicted, and its prediction is corrected by earlier saves.

mod table;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use penstock_engine::encoding::encode;
use penstock_engine::{Error, Holders, Kind, Operation, Request, Result, Strategy};
use penstock_layout::{DiskSchema, Holding};
use penstock_predict::predicting::predict_by;
use penstock_predict::{By, Question, of_file};
use penstock_sim::preset::Preset;
use serde::{Deserialize, Serialize};

use super::array::ArrayCall;
use super::forecast::Forecast;
use super::settings::{BLOCK_BYTES, Method, Settings, Way};
use super::strategy::{Choice, Tuning, strategy_named};
use crate::DirectIo;
use crate::schema::Storage;

/// The larger of the two block sizes that are weighed.
const LARGE_BLOCK_BYTES: u64 = 4 * BLOCK_BYTES;
/// The part of the usual way's time that another way must be predicted to stay below, before it has
/// been tried.
const MUCH_FASTER: f64 = 0.67;
/// The weight of the last call in the correction of a prediction.
const LAST_WEIGHT: f64 = 0.5;
/// The most shapes that are remembered.
const SHAPES_MAX: usize = 1000;

/// The matter of a choice: the call, as far as it is known before its target is made.
pub(super) struct Matter<'a> {
    pub(super) operation: Operation,
    pub(super) method: Method,
    pub(super) holders: &'a Holders,
    /// The array on disk, by the most bytes of a block.
    pub(super) disk: &'a dyn Fn(u64) -> Result<DiskSchema>,
    /// Whether a strategy can carry the call out.
    pub(super) fits: &'a dyn Fn(&Strategy, &DiskSchema) -> Result<()>,
    pub(super) known: Known,
    /// What ranks hold by lists, as a [`Question`] has it; none where only they know it.
    pub(super) lists: &'a [Vec<Arc<Holding>>],
}

/// What the prediction of a save leaves out.
const OF_SAVES: &str = "the commit of the group is not counted: earlier saves correct for it";

/// What the model knows of an array on disk, the most first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Known {
    /// All of it: elements as they are, on a file system.
    All,
    /// All but its codecs, or the index of its sub-chunks.
    ButCodecs,
    /// Nothing: it is in a bucket, or each server has a part on a disk of its own.
    Nothing,
}

impl Known {
    /// What is known of an array that is stored so, in files or not.
    pub(super) fn of(is_in_files: bool, storage: &Storage) -> Self {
        match (is_in_files, storage.writes_parts()) {
            (false, _) => Self::Nothing,
            (true, true) => Self::All,
            (true, false) => Self::ButCodecs,
        }
    }

    /// What is known of several arrays together, if there are any.
    pub(super) fn of_all(is_in_files: bool, arrays: &[ArrayCall]) -> Self {
        let each = arrays
            .iter()
            .map(|array| Self::of(is_in_files, &array.schema.disk));
        each.max().unwrap_or(Self::Nothing)
    }

    /// What a prediction leaves out, in words; empty if that is nothing.
    pub(super) fn remark(self) -> &'static str {
        match self {
            Self::All | Self::Nothing => "",
            Self::ButCodecs => {
                "codecs are not counted: chunks are taken for uncompressed, and coding for no time"
            }
        }
    }

    /// Whether the model knows calls by a method on such arrays, if it knows what ranks hold.
    fn is_predicted(self, settings: &Settings, method: Method) -> bool {
        self != Self::Nothing && !method.is_split && settings.is_weighed()
    }

    /// What the prediction of a save leaves out, in words.
    fn remark_of_save(self) -> String {
        match self.remark() {
            "" => OF_SAVES.to_string(),
            more => format!("{OF_SAVES}; {more}"),
        }
    }
}

impl Matter<'_> {
    /// Whether the model knows calls of this kind, if it knows what ranks hold.
    fn is_predicted(&self, settings: &Settings) -> bool {
        self.known.is_predicted(settings, self.method)
    }

    /// The request of the call, carried out in this way.
    ///
    /// # Errors
    /// When it cannot be carried out so.
    fn request(&self, settings: &Settings, way: Way, block_bytes: u64) -> Result<Request> {
        let disk = (self.disk)(block_bytes)?;
        (self.fits)(&way.strategy, &disk)?;
        settings.request(self.operation, way, self.holders.clone(), disk, None)
    }

    /// What the model is asked about the call, carried out as this request.
    fn question<'q>(&'q self, settings: &Settings, request: &'q Request) -> Question<'q> {
        Question {
            lists: self.lists,
            ..question_of(settings, std::slice::from_ref(request))
        }
    }
}

/// What the model is asked about a call that makes these requests, whose ranks hold no lists.
fn question_of<'q>(settings: &Settings, requests: &'q [Request]) -> Question<'q> {
    Question {
        requests,
        lists: &[],
        clients: settings.clients,
        hosts: settings.hosts(),
    }
}

/// The choice of a way.
pub(super) struct Chosen {
    pub(super) way: Way,
    pub(super) block_bytes: u64,
    /// The prediction, if a machine is known, and where it is kept.
    pub(super) forecast: Option<Forecast>,
    place: Option<(Vec<u8>, usize)>,
}

/// A way that was weighed.
#[derive(Clone)]
struct Weighed {
    way: Way,
    block_bytes: u64,
    forecast: Forecast,
    /// What calls took over what was predicted.
    correction: Option<f64>,
}

impl Weighed {
    /// The forecast, corrected by what calls took.
    fn corrected(&self) -> Forecast {
        let by = self.correction.unwrap_or(1.0);
        let forecast = self.forecast.clone();
        Forecast {
            seconds: forecast.seconds * by,
            low: forecast.low * by,
            high: forecast.high * by,
            ..forecast
        }
    }
}

#[derive(Default)]
struct State {
    machine: Option<Result<Option<Arc<Preset>>>>,
    shapes: HashMap<Vec<u8>, Vec<Weighed>>,
}

/// The choice of one call, from its preparation to its end. By default the call is carried out by
/// its method.
#[derive(Default)]
pub(super) struct Choosing {
    /// What is known; none for a call that is not chosen for.
    chooser: Option<Arc<Chooser>>,
    made: Option<(Chosen, Instant)>,
}

impl Choosing {
    pub(super) fn by(chooser: &Arc<Chooser>) -> Self {
        Self {
            chooser: Some(chooser.clone()),
            made: None,
        }
    }

    /// Chooses the way and the most bytes of a block.
    ///
    /// # Errors
    /// As [`Chooser::choose`].
    pub(super) fn choose(
        &mut self,
        settings: &Settings,
        matter: &Matter<'_>,
    ) -> Result<(Way, u64)> {
        let Some(chooser) = &self.chooser else {
            return Ok((matter.method.way(), settings.options.block_bytes));
        };
        let chosen = chooser.choose(settings, matter)?;
        let (way, block_bytes) = (chosen.way, chosen.block_bytes);
        self.made = Some((chosen, Instant::now()));
        Ok((way, block_bytes))
    }

    /// Predicts a save of this shape, which is carried out in one way, by these requests.
    ///
    /// # Errors
    /// As [`Chooser::choose`].
    pub(super) fn foretell(
        &mut self,
        settings: &Settings,
        (shape, method, known): (Vec<u8>, Method, Known),
        requests: &[Request],
    ) -> Result<()> {
        if let Some(chooser) = &self.chooser {
            let foretold = chooser.foretell(settings, (shape, method, known), requests)?;
            self.made = foretold.map(|chosen| (chosen, Instant::now()));
        }
        Ok(())
    }

    /// The call has ended well.
    pub(super) fn ended(&self) {
        if let (Some(chooser), Some((chosen, begun))) = (&self.chooser, &self.made) {
            chooser.learn(chosen, begun.elapsed().as_secs_f64());
        }
    }

    /// What all ranks hear: the forecast, encoded.
    pub(super) fn words(&self) -> Vec<u8> {
        let forecast = self
            .made
            .as_ref()
            .and_then(|(chosen, _)| chosen.forecast.as_ref());
        // A forecast that cannot be told is missing in the reports.
        forecast.map_or(Vec::new(), |forecast| encode(forecast).unwrap_or_default())
    }
}

/// What a session knows of its machine, and of the calls that it has made.
#[derive(Default)]
pub(super) struct Chooser(Mutex<State>);

impl Chooser {
    /// Chooses the way of a call.
    ///
    /// # Errors
    /// [`Kind::Schema`] when the choice is left to the model and there is no machine, or its file
    /// makes no sense; the error of the strategy if it cannot carry the call out.
    pub(super) fn choose(&self, settings: &Settings, matter: &Matter<'_>) -> Result<Chosen> {
        let usual = matter.method.way();
        let mut chosen = Chosen {
            way: usual,
            block_bytes: settings.options.block_bytes,
            forecast: None,
            place: None,
        };
        let Some(machine) = self.machine(settings, matter.method.choice)? else {
            return Ok(chosen);
        };
        if !matter.is_predicted(settings) || matter.holders.are_lists() {
            return Ok(chosen);
        }
        let shape = self.weigh(settings, matter, &machine)?;
        let state = self.state();
        let Some(ways) = state.shapes.get(&shape) else {
            return Ok(chosen);
        };
        let taken = match matter.known {
            Known::All => best(ways),
            // Codecs take a time that may be most of it: no way is called faster.
            Known::ButCodecs | Known::Nothing => (!ways.is_empty()).then_some(0),
        };
        if let Some(place) = taken {
            let Weighed {
                way, block_bytes, ..
            } = ways[place];
            chosen = Chosen {
                way,
                block_bytes,
                forecast: Some(ways[place].corrected()),
                place: Some((shape, place)),
            };
        }
        Ok(chosen)
    }

    /// The forecast of a save; none if the model does not know such calls, or there is no machine.
    ///
    /// # Errors
    /// As [`Chooser::choose`].
    fn foretell(
        &self,
        settings: &Settings,
        (shape, method, known): (Vec<u8>, Method, Known),
        requests: &[Request],
    ) -> Result<Option<Chosen>> {
        let are_lists = requests.iter().any(|request| request.holders.are_lists());
        if !known.is_predicted(settings, method) || are_lists {
            return Ok(None);
        }
        let Some(machine) = self.machine(settings, method.choice)? else {
            return Ok(None);
        };
        let (way, block_bytes) = (method.way(), settings.options.block_bytes);
        if !self.state().shapes.contains_key(&shape) {
            let question = question_of(settings, requests);
            let predicted = predict_by(&machine, &question, Some(By::ClosedForm))?;
            let only = Weighed {
                way,
                block_bytes,
                forecast: Forecast::of(
                    &predicted,
                    (way.strategy, block_bytes),
                    &known.remark_of_save(),
                ),
                correction: None,
            };
            self.keep(shape.clone(), vec![only]);
        }
        let state = self.state();
        let only = state.shapes.get(&shape).and_then(|ways| ways.first());
        Ok(only.map(|only| Chosen {
            way,
            block_bytes,
            forecast: Some(only.corrected()),
            place: Some((shape.clone(), 0)),
        }))
    }

    /// Keeps the ways of a shape.
    fn keep(&self, shape: Vec<u8>, ways: Vec<Weighed>) {
        let mut state = self.state();
        if state.shapes.len() >= SHAPES_MAX {
            state.shapes.clear();
        }
        state.shapes.insert(shape, ways);
    }

    /// Notes what a call took.
    pub(super) fn learn(&self, chosen: &Chosen, seconds: f64) {
        let Some((shape, place)) = &chosen.place else {
            return;
        };
        let mut state = self.state();
        let ways = state.shapes.get_mut(shape);
        if let Some(known) = ways.and_then(|ways| ways.get_mut(*place)) {
            let now = seconds / known.forecast.seconds.max(f64::MIN_POSITIVE);
            known.correction = Some(match known.correction {
                None => now,
                Some(before) => before * (1.0 - LAST_WEIGHT) + now * LAST_WEIGHT,
            });
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The machine of the session, as its calls see it: through the page cache, or around it. None
    /// if the session has none and needs none, and if direct I/O was not measured.
    ///
    /// # Errors
    /// As [`Chooser::choose`].
    pub(super) fn machine(
        &self,
        settings: &Settings,
        choice: Choice,
    ) -> Result<Option<Arc<Preset>>> {
        let Some(path) = &settings.options.machine else {
            let cause = "strategy=\"auto\" needs a description of this machine: let `penstock \
                         calibrate --output FILE` write one, and give it as `machine`";
            return match choice {
                Choice::Auto => Err(Error::new(Kind::Schema, "choosing a strategy", cause)),
                Choice::By(_) => Ok(None),
            };
        };
        let is_around = settings.options.direct == DirectIo::Always;
        let mut state = self.state();
        let read = || Ok(of_file::read(path, is_around)?.map(Arc::new));
        let machine = state.machine.get_or_insert_with(read);
        machine.clone()
    }

    /// Weighs the ways of a call, if no call of its shape was weighed yet, and gives the shape.
    fn weigh(&self, settings: &Settings, matter: &Matter<'_>, machine: &Preset) -> Result<Vec<u8>> {
        let usual = matter.request(settings, matter.method.way(), settings.options.block_bytes)?;
        let shape = encode(&(matter.method.choice, matter.known.remark(), usual))?;
        if self.state().shapes.contains_key(&shape) {
            return Ok(shape);
        }
        self.keep(shape.clone(), weighed(settings, matter, machine)?);
        Ok(shape)
    }
}

/// What each way is taken to need: what is predicted, corrected by calls that went that way. Ways
/// without a call are taken to be as far off as the others, but for the usual way, the first.
fn seconds_of(ways: &[Weighed]) -> Vec<f64> {
    let known: Vec<f64> = ways.iter().filter_map(|way| way.correction).collect();
    let untried = match known.len() {
        0 => 1.0,
        count => known.iter().sum::<f64>() / count as f64,
    };
    let corrected = |(place, way): (usize, &Weighed)| {
        let guess = if place == 0 { 1.0 } else { untried };
        way.forecast.seconds * way.correction.unwrap_or(guess)
    };
    ways.iter().enumerate().map(corrected).collect()
}

/// The place of the way that is taken.
fn best(ways: &[Weighed]) -> Option<usize> {
    let seconds = seconds_of(ways);
    let bound = MUCH_FASTER * seconds.first()?;
    let is_eligible =
        |&place: &usize| place == 0 || ways[place].correction.is_some() || seconds[place] < bound;
    let eligible = (0..ways.len()).filter(is_eligible);
    eligible.min_by(|&one, &other| seconds[one].total_cmp(&seconds[other]))
}

/// Weighs the ways of a call in closed form, the usual one first.
///
/// # Errors
/// When one cannot be predicted.
fn weighed(settings: &Settings, matter: &Matter<'_>, machine: &Preset) -> Result<Vec<Weighed>> {
    let (mut ways, mut seen) = (Vec::new(), HashSet::new());
    for (way, block_bytes) in ways_of(settings, matter) {
        let Ok(request) = matter.request(settings, way, block_bytes) else {
            continue; // it cannot be carried out so
        };
        if !seen.insert(encode(&request)?) {
            continue; // another number of servers or bytes comes to the same
        }
        let question = matter.question(settings, &request);
        let predicted = predict_by(machine, &question, Some(By::ClosedForm))?;
        ways.push(Weighed {
            way,
            block_bytes,
            forecast: Forecast::of(
                &predicted,
                (way.strategy, block_bytes),
                matter.known.remark(),
            ),
            correction: None,
        });
    }
    Ok(ways)
}

/// The ways that are weighed, the usual one first: of ways that take equally long, it is taken.
fn ways_of(settings: &Settings, matter: &Matter<'_>) -> Vec<(Way, u64)> {
    let usual = matter.method.way();
    let options = &settings.options;
    if let Choice::By(_) = matter.method.choice {
        return vec![(usual, options.block_bytes)];
    }
    let blocks = match options.block_bytes == BLOCK_BYTES {
        true => vec![BLOCK_BYTES, LARGE_BLOCK_BYTES],
        false => vec![options.block_bytes],
    };
    let servers = match options.servers {
        Some(_) => vec![None],
        None => vec![None, Some(settings.servers()), Some(settings.hosts())],
    };
    let strategies = ["disk-directed", "two-phase", "caching", "independent"];
    let strategies = strategies.map(|word| strategy_named(word, &Tuning::default()));
    let mut ways = Vec::new();
    for strategy in strategies.into_iter().flatten() {
        for &block_bytes in &blocks {
            for &servers in &servers {
                let way = Way {
                    strategy,
                    servers,
                    ..usual
                };
                ways.push((way, block_bytes));
            }
        }
    }
    ways
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weighed(seconds: f64, correction: Option<f64>) -> Weighed {
        Weighed {
            way: Method::disk_directed().way(),
            block_bytes: BLOCK_BYTES,
            forecast: Forecast {
                strategy: "disk-directed".to_string(),
                servers: 1,
                block_bytes: BLOCK_BYTES,
                seconds,
                low: seconds * 0.9,
                high: seconds * 1.1,
                bytes: 0,
                disk_bytes: 0,
                messages: 0,
                memory_bytes: 0,
                bottleneck: "disk".to_string(),
                by: "closed form".to_string(),
                remark: String::new(),
            },
            correction,
        }
    }

    #[test]
    fn the_fastest_is_taken() {
        assert_eq!(best(&[]), None);
        let ways = [2.0, 1.0, 3.0].map(|seconds| weighed(seconds, None));
        assert_eq!(best(&ways), Some(1));
        let alike = [1.0, 1.0].map(|seconds| weighed(seconds, None));
        assert_eq!(best(&alike), Some(0), "the usual way comes first");
    }

    #[test]
    fn a_slow_machine_changes_nothing() {
        // All is slower than predicted: that is no reason to try what is predicted far slower.
        let ways = [
            weighed(1.0, Some(3.0)),
            weighed(1.5, None),
            weighed(2.0, None),
        ];
        assert_eq!(best(&ways), Some(0));
    }

    #[test]
    fn a_way_that_is_a_little_faster_is_not_tried() {
        let ways = [weighed(1.0, None), weighed(0.85, None), weighed(1.5, None)];
        assert_eq!(best(&ways), Some(0));
        let corrected = [weighed(1.0, Some(2.0)), weighed(0.85, None)];
        assert_eq!(best(&corrected), Some(0));
        let tried = [weighed(1.0, None), weighed(0.85, Some(1.0))];
        assert_eq!(best(&tried), Some(1), "a call has shown it");
        let much = [weighed(1.0, Some(1.0)), weighed(0.6, None)];
        assert_eq!(best(&much), Some(1));
        let slower = [weighed(1.0, Some(1.0)), weighed(0.6, Some(2.0))];
        assert_eq!(best(&slower), Some(0));
    }

    #[test]
    fn the_usual_way_is_tried_when_another_needs_longer_than_it_is_said_to() {
        let other = weighed(0.5, Some(3.0));
        let untried = [weighed(1.0, None), other.clone(), weighed(0.6, None)];
        assert_eq!(
            best(&untried),
            Some(0),
            "the third is as far off as the second"
        );
        let slower = [weighed(1.0, Some(4.0)), other.clone()];
        assert_eq!(best(&slower), Some(1), "both are known");
        let faster = [weighed(1.0, Some(1.2)), other];
        assert_eq!(best(&faster), Some(0));
    }
}
