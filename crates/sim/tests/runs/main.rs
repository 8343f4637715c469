//! Runs of the engine on the simulated machine: one program, which compiles the engine for it once.

mod directing;
mod faults;
mod open_files;
mod parties;
mod seeds;
mod sifted;
mod strategies;
