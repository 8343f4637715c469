//! Repeated measurements, their median and percentiles.

use std::time::{Duration, Instant};

use penstock_engine::{Error, Kind, Result};
use penstock_sim::preset::{Median, Spread};

/// The least measurements of which percentiles are taken.
const COUNT_MIN: usize = 5;
/// A difference that is next to nothing, in seconds.
const LEAST: f64 = 1e-15;
/// The most measurements of one thing.
const COUNT_MAX: usize = 1001;

/// The caller, who may stop the measurement, and hears what is measured.
pub struct Watch<'a> {
    pub interrupt: &'a (dyn Fn() -> bool + Sync),
    pub tell: &'a (dyn Fn(&str) + Sync),
}

impl Watch<'_> {
    pub(crate) fn tell(&self, what: &str) {
        (self.tell)(what);
    }

    /// # Errors
    /// [`Kind::Peer`] if the caller wants to stop.
    pub(crate) fn check(&self) -> Result<()> {
        match (self.interrupt)() {
            true => Err(Error::new(Kind::Peer, "calibrating", "it was stopped")),
            false => Ok(()),
        }
    }
}

/// Seconds, or other numbers, that were measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Sorts measurements. Those that are no positive numbers, as of a clock that is too coarse,
    /// are left out.
    pub fn new(mut values: Vec<f64>) -> Self {
        values.retain(|value| value.is_finite() && *value > 0.0);
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    /// The value at a part of the order, from 0 to 1; nothing without measurements.
    pub fn at(&self, part: f64) -> Option<f64> {
        let last = self.0.len().checked_sub(1)?;
        let place = part.clamp(0.0, 1.0) * last as f64;
        let (below, above) = (place.floor(), place.ceil());
        let value = |place: f64| {
            let nth = (0..=last).find(|&nth| nth as f64 >= place).unwrap_or(last);
            self.0[nth]
        };
        Some(value(below) + (place - below) * (value(above) - value(below)))
    }

    /// The percentiles from 0 to 100; fewer measurements are told as they are.
    pub(crate) fn percentiles(&self) -> Vec<f64> {
        const PARTS: usize = 100;
        match self.0.len() <= PARTS {
            true => self.0.clone(),
            false => (0..=PARTS)
                .filter_map(|part| self.at(part as f64 / PARTS as f64))
                .collect(),
        }
    }

    /// The median, or 0 without measurements.
    pub fn median(&self) -> f64 {
        self.at(0.5).unwrap_or(0.0)
    }

    /// The 10th and the 90th percentile.
    pub fn spread(&self) -> Spread {
        Spread {
            low: self.at(0.1).unwrap_or(0.0),
            high: self.at(0.9).unwrap_or(0.0),
        }
    }

    /// The median and its spread, if there are measurements.
    pub fn median_and_spread(&self) -> Option<Median> {
        let Spread { low, high } = self.spread();
        let median = self.at(0.5)?;
        Some(Median { median, low, high })
    }

    /// Measurements of what is made of these.
    #[must_use]
    pub fn map(&self, of: impl Fn(f64) -> f64) -> Self {
        Self::new(self.0.iter().copied().map(of).collect())
    }

    /// The measurements in order.
    pub fn values(&self) -> &[f64] {
        &self.0
    }

    /// The differences between measurements of one thing and of another, paired by their order, and
    /// divided by a number. A difference below nothing is noise, and counts as next to nothing.
    pub fn less(&self, other: &Samples, by: f64) -> Self {
        let parts = [0.1, 0.3, 0.5, 0.7, 0.9];
        let pair = |part: f64| Some(((self.at(part)? - other.at(part)?) / by).max(LEAST));
        Self::new(parts.into_iter().filter_map(pair).collect())
    }
}

/// Measures again and again for `time`: `act` gives the seconds of what it did. The first time does
/// not count.
///
/// # Errors
/// Those of `act`; [`Kind::Peer`] when stopped.
pub fn repeat(
    time: Duration,
    watch: &Watch<'_>,
    mut act: impl FnMut() -> Result<f64>,
) -> Result<Samples> {
    let begun = Instant::now();
    act()?;
    let mut seconds = Vec::new();
    while seconds.len() < COUNT_MIN || (begun.elapsed() < time && seconds.len() < COUNT_MAX) {
        watch.check()?;
        seconds.push(act()?);
    }
    Ok(Samples::new(seconds))
}

/// The seconds that something takes.
pub fn seconds_of(act: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    act();
    begun.elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_lie_between_measurements() {
        let samples = Samples::new(vec![4.0, 1.0, 3.0, 2.0, 5.0, f64::NAN, -1.0, 0.0]);
        assert_eq!(samples.median(), 3.0);
        let Spread { low, high } = samples.spread();
        assert!((low - 1.4).abs() < 1e-9 && (high - 4.6).abs() < 1e-9);
        assert_eq!(
            Samples::new(vec![7.0]).spread(),
            Spread {
                low: 7.0,
                high: 7.0
            }
        );
        assert_eq!(Samples::default().median_and_spread(), None);
    }

    #[test]
    fn who_stops_is_obeyed() {
        let watch = Watch {
            interrupt: &|| true,
            tell: &|_| {},
        };
        let stopped = repeat(Duration::from_secs(60), &watch, || Ok(1.0));
        assert_eq!(stopped.unwrap_err().kind, Kind::Peer);
    }
}
