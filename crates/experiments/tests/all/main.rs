//! The papers' experiments, beside what the papers have published.

mod dickens_thakur;
mod experiments;
mod panda;
mod study;
mod vesta;
