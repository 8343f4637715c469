//! `penstock`: see [`penstock_cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(penstock_cli::run(std::env::args_os()))
}
