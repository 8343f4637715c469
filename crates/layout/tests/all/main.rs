//! Layouts against naive models, exhaustively and by chance.

mod copying;
mod exhaustive;
mod file_order;
mod list_costs;
mod lists;
mod model;
mod properties;
mod view;
