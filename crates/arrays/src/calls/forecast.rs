//! What a call is predicted to take, as all ranks hear it.

use std::fmt;

use penstock_engine::Strategy;
use penstock_predict::Prediction;
use serde::{Deserialize, Serialize};

use super::strategy::{Choice, in_words};

/// What a call was predicted to take.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// The word for the strategy.
    pub strategy: String,
    pub servers: usize,
    pub block_bytes: u64,
    /// Seconds, corrected by what earlier calls took.
    pub seconds: f64,
    /// The seconds on the machine with every number at the fast end of its spread.
    pub low: f64,
    /// The seconds with every number at the slow end.
    pub high: f64,
    /// Bytes of the array.
    pub bytes: u64,
    /// Bytes between buffers and disks, padding included.
    pub disk_bytes: u64,
    pub messages: u64,
    /// Bytes of staging, send and cache buffers of all nodes together.
    pub memory_bytes: u64,
    /// The part of the machine that works longest: `disk`, `network`, `copying`, `CPU`, `metadata`.
    pub bottleneck: String,
    /// `closed form` or `simulation`.
    pub by: String,
    /// What the prediction leaves out, in words; empty if that is nothing that is known.
    pub remark: String,
}

impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            strategy,
            servers,
            block_bytes,
            seconds,
            low,
            high,
            bytes,
            disk_bytes,
            messages,
            memory_bytes,
            bottleneck,
            by,
            remark: _,
        } = self;
        write!(
            f,
            "{seconds:.6} s ({low:.6} to {high:.6}): {strategy}, {servers} servers, blocks of \
             {block_bytes} bytes; {bytes} bytes, {disk_bytes} on disk, {messages} messages, \
             {memory_bytes} bytes of buffers; bottleneck: {bottleneck}; {by}"
        )
    }
}

impl Forecast {
    /// Whether both are of one way.
    pub(super) fn is_of_way(&self, other: &Forecast) -> bool {
        let way = |of: &Forecast| (of.strategy.clone(), of.servers, of.block_bytes);
        way(self) == way(other)
    }

    /// The forecast of a call by a strategy and with blocks of this size.
    pub(super) fn of(
        predicted: &Prediction,
        (strategy, block_bytes): (Strategy, u64),
        remark: &str,
    ) -> Self {
        Self {
            strategy: in_words(&Choice::By(strategy)),
            servers: predicted.servers,
            block_bytes,
            seconds: predicted.seconds,
            low: predicted.low,
            high: predicted.high,
            bytes: predicted.bytes,
            disk_bytes: predicted.disk_bytes,
            messages: predicted.messages,
            memory_bytes: predicted.memory_bytes,
            bottleneck: predicted.bottleneck.to_string(),
            by: predicted.by.to_string(),
            remark: remark.to_string(),
        }
    }
}
