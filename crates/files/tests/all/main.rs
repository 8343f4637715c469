//! Parallel files: volumes on simulated machines, on threads, and on servers that stand. One
//! program, which compiles the service for each machine once.

mod behaviour;
mod collective;
mod crashes;
mod disk;
mod embedded;
mod fsck;
mod metrics;
mod model;
mod moves;
mod naive;
mod outages;
mod posix;
mod records;
mod returns;
mod seeds;
mod simulated;
mod standing;
mod threads;
mod unsure;
