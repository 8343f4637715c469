//! The table of an explained call: what each strategy would take, and what was chosen by.
//!
//! A row is the way of one strategy that the choice likes best. It is predicted by simulation where
//! that is short, as nothing waits for an explanation; the choice itself goes by the closed form,
//! so that the table says in words what the choice has seen.

use penstock_engine::Result;
use penstock_predict::predict;
use penstock_sim::preset::Preset;

use super::{Chooser, Chosen, Known, MUCH_FASTER, Matter, Weighed, seconds_of, weighed};
use crate::calls::forecast::Forecast;
use crate::calls::settings::{Method, Settings};
use crate::calls::strategy::Choice;

/// A row of the table.
struct Row {
    /// The way, as the choice sees it.
    weighed: Weighed,
    /// The seconds that the choice goes by.
    seconds: f64,
    /// The prediction that is shown.
    shown: Forecast,
}

impl Chooser {
    /// A table of what the strategies would take, the fastest first; empty if the way that was
    /// chosen is not predicted.
    ///
    /// # Errors
    /// As [`Chooser::choose`].
    pub(in crate::calls) fn table(
        &self,
        settings: &Settings,
        matter: &Matter<'_>,
        chosen: &Chosen,
    ) -> Result<String> {
        let machine = self.machine(settings, matter.method.choice)?;
        let Some(machine) = machine.filter(|_| matter.is_predicted(settings)) else {
            return Ok(String::new());
        };
        let any = Matter {
            method: Method::by(Choice::Auto),
            ..*matter
        };
        let (ways, taken) = match &chosen.forecast {
            Some(taken) => (
                self.ways(&self.weigh(settings, &any, &machine)?),
                taken.clone(),
            ),
            // Of lists nothing is kept: another rank has others.
            None => {
                let given = Matter {
                    method: Method::by(Choice::By(chosen.way.strategy)),
                    ..*matter
                };
                let [taken] = &weighed(settings, &given, &machine)?[..] else {
                    return Ok(String::new());
                };
                (weighed(settings, &any, &machine)?, taken.forecast.clone())
            }
        };
        let seconds = seconds_of(&ways);
        let of_usual = seconds.first().copied().unwrap_or(0.0);
        let ways: Vec<_> = ways.into_iter().zip(seconds).collect();
        let mut rows = Vec::new();
        for (weighed, seconds) in best_of_strategies(&ways, chosen, &taken) {
            rows.push(Row {
                shown: shown(settings, matter, &machine, &weighed)?,
                weighed,
                seconds,
            });
        }
        rows.sort_by(|one, other| one.shown.seconds.total_cmp(&other.shown.seconds));
        Ok(text(&rows, &taken, of_usual, matter))
    }

    /// The ways of a shape that was weighed.
    fn ways(&self, shape: &[u8]) -> Vec<Weighed> {
        let state = self.state();
        state.shapes.get(shape).cloned().unwrap_or_default()
    }
}

/// Of each strategy the way that the choice likes best; of the strategy that was chosen, the way
/// that was. Each with the seconds that the choice goes by.
fn best_of_strategies(
    ways: &[(Weighed, f64)],
    chosen: &Chosen,
    taken: &Forecast,
) -> Vec<(Weighed, f64)> {
    let known = ways.iter().find(|(way, _)| way.forecast.is_of_way(taken));
    let given = || {
        let way = Weighed {
            way: chosen.way,
            block_bytes: chosen.block_bytes,
            forecast: taken.clone(),
            correction: None,
        };
        (way, taken.seconds)
    };
    let mut best = vec![known.cloned().unwrap_or_else(given)];
    for (way, seconds) in ways {
        let is_alike =
            |(other, _): &&mut (Weighed, f64)| other.forecast.strategy == way.forecast.strategy;
        match best.iter_mut().find(is_alike) {
            None => best.push((way.clone(), *seconds)),
            Some((other, _)) if other.forecast.is_of_way(taken) => {}
            Some(other) if *seconds < other.1 => *other = (way.clone(), *seconds),
            Some(_) => {}
        }
    }
    best
}

/// The prediction of a way: by simulation where that is short.
fn shown(
    settings: &Settings,
    matter: &Matter<'_>,
    machine: &Preset,
    weighed: &Weighed,
) -> Result<Forecast> {
    let request = matter.request(settings, weighed.way, weighed.block_bytes)?;
    let predicted = predict(machine, &matter.question(settings, &request))?;
    let way = (weighed.way.strategy, weighed.block_bytes);
    Ok(Forecast::of(&predicted, way, matter.known.remark()))
}

/// The table and what was chosen by, in words.
fn text(rows: &[Row], taken: &Forecast, of_usual: f64, matter: &Matter<'_>) -> String {
    let is_chosen = |row: &&Row| row.weighed.forecast.is_of_way(taken);
    let first = rows.iter().find(is_chosen);
    let others = rows.iter().filter(|row| !is_chosen(row));
    let second = others.min_by(|one, other| one.seconds.total_cmp(&other.seconds));
    let mut text =
        "  predicted (each number at the fast and the slow end of its spread):\n".to_string();
    for row in rows {
        let is_second = second.is_some_and(|second| std::ptr::eq(second, row));
        let mark = match (is_chosen(&row), is_second) {
            (true, _) => "  <- chosen",
            (false, true) => "  <- runner-up",
            (false, false) => "",
        };
        text += &format!("    {}{mark}\n", row.shown);
    }
    if !taken.remark.is_empty() {
        text += &format!("  {}\n", taken.remark);
    }
    let in_words = |row: &Row| format!("{} {:.6} s", row.weighed.forecast.strategy, row.seconds);
    text += &match (matter.method.choice, first, second) {
        (Choice::By(_), ..) => "  the strategy is given, and nothing was chosen\n".to_string(),
        (Choice::Auto, ..) if matter.holders.are_lists() || matter.known != Known::All => {
            "  not chosen by that: lists, and chunks with a codec, take the usual way\n".to_string()
        }
        (Choice::Auto, Some(first), Some(second)) => format!(
            "  chosen by the closed form, corrected by what earlier calls took: {}, {}; a way that \
             no call has taken must need less than {MUCH_FASTER} of the usual way's {of_usual:.6} s\n",
            in_words(first),
            in_words(second)
        ),
        (Choice::Auto, ..) => "  no other strategy can do it\n".to_string(),
    };
    text
}
