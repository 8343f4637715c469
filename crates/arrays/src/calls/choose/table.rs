//! The table of an explained call: what each strategy would take, and what was chosen by.
//!
//! A row is the way of one strategy that the choice likes best. It is predicted by simulation where
//! that is short, as nothing waits for an explanation; the choice itself goes by the closed form,
//! so that the table says in words what the choice has seen.

use penstock_engine::Result;
use penstock_predict::{Question, predict};
use penstock_sim::preset::Preset;

use super::{Chooser, Chosen, MUCH_FASTER, Matter, Weighed, usual_correction};
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
        let (Some(machine), Some(taken)) = (machine, &chosen.forecast) else {
            return Ok(String::new());
        };
        let any = Matter {
            method: Method::by(Choice::Auto),
            ..*matter
        };
        let ways = self.ways(&self.weigh(settings, &any, &machine)?);
        let usual = usual_correction(&ways);
        let mut rows = Vec::new();
        for weighed in best_of_strategies(&ways, chosen, taken) {
            let seconds = match weighed.forecast.is_of_way(taken) {
                true => taken.seconds,
                false => weighed.seconds(usual),
            };
            rows.push(Row {
                seconds,
                shown: shown(settings, matter, &machine, &weighed)?,
                weighed,
            });
        }
        rows.sort_by(|one, other| one.shown.seconds.total_cmp(&other.shown.seconds));
        let of_usual = ways.first().map_or(0.0, |way| way.seconds(usual));
        Ok(text(&rows, taken, matter.method.choice, of_usual))
    }

    /// The ways of a shape that was weighed.
    fn ways(&self, shape: &[u8]) -> Vec<Weighed> {
        let state = self.state();
        state.shapes.get(shape).cloned().unwrap_or_default()
    }
}

/// Of each strategy the way that the choice likes best; of the strategy that was chosen, the way
/// that was.
fn best_of_strategies(ways: &[Weighed], chosen: &Chosen, taken: &Forecast) -> Vec<Weighed> {
    let usual = usual_correction(ways);
    let mut best = vec![Weighed {
        way: chosen.way,
        block_bytes: chosen.block_bytes,
        forecast: taken.clone(),
        correction: None,
    }];
    for weighed in ways {
        let is_alike = |other: &&mut Weighed| other.forecast.strategy == weighed.forecast.strategy;
        match best.iter_mut().find(is_alike) {
            None => best.push(weighed.clone()),
            Some(other) if other.forecast.is_of_way(taken) => {}
            Some(other) if weighed.seconds(usual) < other.seconds(usual) => {
                *other = weighed.clone()
            }
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
    let question = Question {
        requests: std::slice::from_ref(&request),
        lists: &[],
        clients: settings.clients,
        hosts: settings.hosts(),
    };
    let predicted = predict(machine, &question)?;
    let strategy = weighed.way.strategy;
    Ok(Forecast::of(&predicted, strategy, weighed.block_bytes))
}

/// The table and what was chosen by, in words.
fn text(rows: &[Row], taken: &Forecast, choice: Choice, of_usual: f64) -> String {
    let others = rows
        .iter()
        .filter(|row| !row.weighed.forecast.is_of_way(taken));
    let second = others.min_by(|one, other| one.seconds.total_cmp(&other.seconds));
    let second = second.map(|row| (&row.weighed.forecast, row.seconds));
    let mut text =
        "  predicted (each number at the fast and the slow end of its spread):\n".to_string();
    for row in rows {
        let mark = match &row.weighed.forecast {
            forecast if forecast.is_of_way(taken) => "  <- chosen",
            forecast if second.is_some_and(|(other, _)| forecast.is_of_way(other)) => {
                "  <- runner-up"
            }
            _ => "",
        };
        text += &format!("    {}{mark}\n", row.shown);
    }
    let Forecast {
        strategy, seconds, ..
    } = taken;
    text += &match (choice, second) {
        (Choice::By(_), _) => "  the strategy is given, and nothing was chosen\n".to_string(),
        (Choice::Auto, None) => "  no other strategy can do it\n".to_string(),
        (Choice::Auto, Some((other, of_other))) => format!(
            "  chosen by the closed form, corrected by what earlier calls took: {strategy} \
             {seconds:.6} s, {} {of_other:.6} s; a way that no call has taken must need less than \
             {MUCH_FASTER} of the usual way's {of_usual:.6} s\n",
            other.strategy
        ),
    };
    text
}
