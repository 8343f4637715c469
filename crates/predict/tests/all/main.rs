//! Predictions: the closed forms beside the simulation.

mod forms;
mod lists;
