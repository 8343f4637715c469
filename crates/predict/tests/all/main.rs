//! Predictions: the closed forms beside the simulation.

mod access;
mod forms;
mod lists;
