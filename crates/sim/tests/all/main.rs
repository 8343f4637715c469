//! The simulated machine, and runs of the engine on it: one program, which compiles the engine for
//! it once.

mod calibrated;
mod common;
mod conformance;
mod directing;
mod disk_contents;
mod faults;
mod hp97560_mechanics;
mod hp97560_published;
mod network_contention;
mod open_files;
mod parties;
mod presets;
mod seeds;
mod sifted;
mod speed;
mod strategies;
