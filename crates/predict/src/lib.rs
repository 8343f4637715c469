//! What a collective call will cost on a machine, before it is made.
//!
//! [`predict`] takes a machine (a [`Preset`](penstock_sim::preset::Preset), which `penstock
//! calibrate` writes for the machine at hand) and the [`Question`]: the requests of the call, the
//! clients, the hosts. It answers with seconds and their range, bytes, messages, memory, and the
//! part of the machine that is the bottleneck. It is a function: no clock, no
//! network, no file.
//!
//! A small call is simulated: the engine's own strategy, on the machine, in virtual time. Of a
//! large one the same model is evaluated in closed form: [`closed`] has the formulas.
//! `docs/predict.md` says how far the two are apart, and how far both are from what is measured.
//!
//! | module | contents |
//! |---|---|
//! | [`description`] | arrays, ranks, hosts and servers in words, and the requests they make |
//! | [`question`] | the question, and the machine cut to it |
//! | [`load`] | the blocks, portions and bytes of each server and client; a sample, if they are many |
//! | [`closed`] | the time of the load on the machine, by formulas |
//! | [`simulated`] | the time of the call in simulation, where that is short |
//! | [`predicting`] | which of both is taken, and the range |
//! | [`prediction`] | the answer |
//! | [`plan`] | the chunks, servers and strategy that a call would best have |
//!
//! ```
//! use penstock_predict::description::{Description, predict_all};
//! use penstock_sim::preset::Preset;
//!
//! let machine = Preset::find("nvme-server")?;
//! let array = r#"{"shape": [512, 512, 64], "dtype": "f8", "memory": "BLOCK,BLOCK,*",
//!                 "mesh": [4, 4], "chunks": [128, 128, 64]}"#;
//! let asked =
//!     format!(r#"{{"operation": "write", "ranks": 16, "servers": 4, "arrays": [{array}]}}"#);
//! let description: Description = serde_json::from_str(&asked)?;
//! let predictions = predict_all(&machine, &description)?;
//! let best = predictions.iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds)).unwrap();
//! assert_eq!(best.strategy, "disk-directed");
//! assert!(best.low <= best.seconds && best.seconds <= best.high);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod closed;
pub mod description;
pub mod load;
pub mod plan;
pub mod predicting;
pub mod prediction;
pub mod question;
pub mod simulated;

pub use description::{Description, predict_all};
pub use predicting::predict;
pub use prediction::{Bottleneck, By, Prediction, Times};
pub use question::Question;
