//! Arrays, groups and stores, on threads of this process: one program, so that what it links is
//! linked once.

mod cases;
mod common;
mod conformance;
mod crash;
mod damage;
mod devices;
mod direct;
mod fuzz;
mod media;
mod rectilinear;
mod stores;
mod strategies;
mod targets;
mod testing;
mod update;
