//! The net machine: its conformance, and connections that are cut and delayed.

#[path = "../../../machines/tests/all/common/mod.rs"]
mod common;
mod conformance;
#[path = "../../../machines/tests/all/common/on_threads.rs"]
mod on_threads;
mod ports;
mod proxy;
mod troubles;
