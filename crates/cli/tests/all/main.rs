//! The command, run as a user runs it.

mod command;
mod files;
mod selftest;
