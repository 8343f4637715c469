//! Errors that end a study.

use penstock_engine::{Error, Kind};
use thiserror::Error;

use crate::pattern::PatternError;
use penstock_sim::preset::PresetError;

/// An error that ends a study.
#[derive(Debug, Error)]
pub enum StudyError {
    /// The pattern does not exist, or does not fit.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// The machine does not exist, or is impossible.
    #[error(transparent)]
    Preset(#[from] PresetError),
    /// Another input is impossible.
    #[error("{0}")]
    Input(String),
    /// A run failed.
    #[error(transparent)]
    Run(#[from] Error),
}

impl StudyError {
    /// Whether the input is impossible, rather than that a run failed.
    pub fn is_input(&self) -> bool {
        match self {
            Self::Pattern(_) | Self::Preset(_) | Self::Input(_) => true,
            Self::Run(error) => error.kind == Kind::Schema,
        }
    }
}
