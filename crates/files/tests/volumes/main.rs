//! Volumes on simulated machines, on threads, and on servers that stand: one program, which
//! compiles the engine and the service for each machine once.

mod behaviour;
mod collective;
mod crashes;
mod fsck;
mod metrics;
mod model;
mod moves;
mod naive;
mod outages;
mod posix;
mod returns;
#[path = "../seeds/mod.rs"]
mod seeds;
#[path = "../simulated/mod.rs"]
mod simulated;
mod standing;
mod threads;
mod unsure;
