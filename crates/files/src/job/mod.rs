//! A volume in a program: its servers and its clients in one process, or in the ranks of an MPI
//! job.
//!
//! ```text
//! FileSystem   one client of a volume, for any number of threads; the servers of this node
//! OpenFile     an attached file
//! OpenView     an open subfile, with its pointer
//! Moving       a read or write under way
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `core` | what all that a program has open shares |
//! | `file_system` | names, attributes, space |
//! | `nodes` | the nodes of a program, and the servers on them |
//! | [`mpi`] | the ranks of an MPI job |
//! | [`standing`] | a volume whose servers stand |
//! | [`observer`] | what the servers of a volume do, as a client sees it |
//! | `watch` | what a server process counts, and its endpoint for Prometheus |
//! | `view` | open files and views: reading, writing, pointers |

use penstock_engine::Result;
use penstock_net::Call;

mod core;
mod file_system;
pub mod mpi;
mod nodes;
pub mod observer;
pub mod standing;
mod view;
mod watch;

pub use file_system::FileSystem;
pub use nodes::{JobOptions, Seat, embedded};
pub use penstock_machines::node::runner::Interrupt;
/// Opens a volume as the one client of a program: in this process, with all of its servers, or one
/// whose servers stand.
///
/// # Errors
/// As [`embedded`] and [`standing::connect`].
pub fn open(
    place: &str,
    keys: Option<&str>,
    servers: Option<usize>,
    options: &JobOptions,
    interrupt: Option<Interrupt>,
) -> Result<FileSystem> {
    match Call::of_url(place, keys)? {
        Some(call) => {
            let fs = standing::connect(&call, interrupt)?;
            nodes::check_servers(servers, Some(fs.servers()))?;
            Ok(fs)
        }
        None => embedded(place, servers, options, interrupt),
    }
}

pub use view::{Memory, Moving, OpenFile, OpenView};
