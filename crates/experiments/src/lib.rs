//! The papers' experiments, and one beyond them: the runs of each, and their tables and figures.
//!
//! | module | contents |
//! |---|---|
//! | [`experiment`] | one run: a preset, a pattern, a layout, a method |
//! | [`pattern`] | the records that each client holds: `rb`, `wcn` and the others |
//! | [`case`](mod@case) | a configuration, run for several trials, many side by side |
//! | [`run`] | one case by itself |
//! | [`table`] | Tables 3 and 4 of Kotz, PCS-TR94-226, measured beside published |
//! | [`figure`] | Figures 4 to 15 of Kotz, TOCS 1997 |
//! | [`summary`] | Table III of TOCS 1997: the gain of each method over traditional caching |
//! | [`scale`] | clients and servers in numbers that no paper had |
//! | [`expand`] | filtering, and distribution by value, at the servers and at the clients |
//! | [`dickens_thakur`] | Figures 2 to 7 of Dickens and Thakur, on four machines of their time |
//! | [`panda`] | Figures 3 to 9 of Seamons et al., SC '95, on the machine of that paper |
//! | [`vesta`] | Table I and Figures 10 to 17 of Corbett and Feitelson, TOCS 1996, on their machine |
//! | [`trace`] | traces for Perfetto, and the way of a disk's arm |
//!
//! Each study is planned first, as a list of cases, then measured, then put together; only
//! measuring takes time. The results are data that serialise, and print as aligned text. Throughput
//! is in MB/s of 2^20 bytes, the mean of trials; `cv`, its coefficient of variation, is the
//! deviation of a sample over the mean, 0 for one trial.
//!
//! ```
//! use penstock_experiments::experiment::{Experiment, Method};
//! use penstock_sim::machine::Layout;
//! use penstock_sim::preset::Preset;
//!
//! let experiment = Experiment {
//!     preset: &Preset::find("tr94")?,
//!     pattern: "rb".parse()?,
//!     record_bytes: 8192,
//!     layout: Layout::RandomBlocks,
//!     method: Method::DdioSort,
//!     trial: 0,
//! };
//! let outcome = experiment.run()?;
//! assert_eq!(format!("{:.1} MB/s", outcome.throughput_mb_s()), "6.3 MB/s");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod case;
pub mod dickens_thakur;
mod error;
pub mod expand;
pub mod experiment;
pub mod figure;
pub mod names;
pub mod panda;
pub mod pattern;
pub mod run;
pub mod scale;
pub mod summary;
pub mod table;
mod text;
mod threads;
pub mod trace;
pub mod vesta;

pub use case::{Case, Mean, Measured, Trials, Watch, measure};
pub use error::StudyError;

/// The bytes of a MB.
pub(crate) const MB: f64 = (1u64 << 20) as f64;
