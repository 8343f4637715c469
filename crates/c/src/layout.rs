//! The structures of the header, as Rust and as C has them.
