//! The machine of threads, and packets that are wrong.

mod common;
mod hostile;
#[path = "common/on_threads.rs"]
mod on_threads;
mod threads;
