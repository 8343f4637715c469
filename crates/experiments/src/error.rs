//! Why a study did not come to its end.

use penstock_engine::{Error, Kind};
use thiserror::Error;

use crate::pattern::PatternError;
use penstock_sim::preset::PresetError;

/// Why a study did not come to its end.
#[derive(Debug, Error)]
pub enum StudyError {
    /// A pattern that there is not, or that does not fit.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// A machine that there is not, or that cannot be.
    #[error(transparent)]
    Preset(#[from] PresetError),
    /// Something else that was asked for and cannot be.
    #[error("{0}")]
    Input(String),
    /// What a run met.
    #[error(transparent)]
    Run(#[from] Error),
}

impl StudyError {
    /// Whether what was asked for cannot be, rather than that doing it failed.
    pub fn is_input(&self) -> bool {
        match self {
            Self::Pattern(_) | Self::Preset(_) | Self::Input(_) => true,
            Self::Run(error) => error.kind == Kind::Schema,
        }
    }
}
