//! The preset that follows from the measurements.
//!
//! | numbers | from |
//! |---|---|
//! | `host.copy_ns_per_byte`, `stretch_ns`, `crowding` | copies by stride; what an element at a stride takes more than at stride 1; all processors against one |
//! | `host.message_latency_us`, `message_bytes_per_second`, `copy_us`, `costs.send_us` | messages and memgets, of ranks if there was a job, else of threads |
//! | `file_system` | the page cache: a line through accesses of 4 KiB and 1 MiB, one at a time |
//! | `around.disk`, `around.file_system` | direct I/O: latency of 4 KiB, the greatest rates, and what a lone access of 1 MiB takes more |
//! | `host.calls` | calls that move next to nothing, less what the model counts of them |
//!
//! What two measurements make together has the spread of their pairs in order: low with low.

use std::collections::BTreeMap;

use penstock_engine::{Error, Kind, Result, Strategy};
use penstock_predict::description::{Array, Description, Direction};
use penstock_predict::{Question, predict};
use penstock_sim::disk::FlashParameters;
use penstock_sim::preset::{
    Access, Around, CopyRate, DiskKind, FileRate, FileSystem, Host, Measured, MetadataTime, Preset,
    STRIDES, Spread, Way,
};

use crate::calls::{CallKind, Calls, RANKS};
use crate::files::{Files, Rate};
use crate::memory::Memory;
use crate::messages::Messages;
use crate::sample::Samples;

/// All that was measured.
pub struct All {
    pub memory: Memory,
    pub threads: Messages,
    pub ranks: Option<Messages>,
    pub files: Files,
    pub calls: Calls,
}

/// The skeleton: numbers that are not measured, each with its reason.
const SKELETON: &str = include_str!("skeleton.toml");

/// The least number that stands for a difference that is none, or below the noise: it is not to be
/// left out, for then the skeleton's number would stand in its place.
const LEAST: f64 = 1e-6;

/// Makes the preset.
///
/// # Errors
/// When the measurements together describe no possible machine.
pub fn preset(all: All, mut remarks: Vec<String>) -> Result<Preset> {
    let skeleton = Preset::from_toml(SKELETON, "the skeleton of a calibration");
    let mut maker = Maker {
        preset: skeleton.map_err(unfit)?,
        spread: BTreeMap::new(),
    };
    let messages = match &all.ranks {
        Some(ranks) => ranks,
        None => {
            remarks.push(
                "messages are those of threads of one process: --mpiexec measures ranks of a job"
                    .into(),
            );
            &all.threads
        }
    };
    remarks.push(
        "the network between hosts was not measured: it is taken for 1 GB/s and 20 us".into(),
    );
    maker.memory(&all.memory);
    maker.messages(messages);
    maker.files(&all.files, &mut remarks);
    maker.preset.spread = maker.spread.clone();
    maker.calls(&all.calls)?;
    maker.preset.spread = std::mem::take(&mut maker.spread);
    maker.preset.measured = Some(measured(&all, remarks));
    maker.preset.validate().map_err(unfit)?;
    Ok(maker.preset)
}

fn unfit(error: impl std::fmt::Display) -> Error {
    Error::new(Kind::Schema, "describing the machine", error)
}

struct Maker {
    preset: Preset,
    spread: BTreeMap<String, Spread>,
}

impl Maker {
    /// Gives a number its median, and notes the spread. A number without measurements stays that of
    /// the skeleton.
    fn set(&mut self, key: &str, samples: &Samples, number: impl FnOnce(&mut Preset) -> &mut f64) {
        let Some(median) = samples.at(0.5) else {
            return;
        };
        *number(&mut self.preset) = median;
        self.spread.insert(key.into(), samples.spread());
    }

    /// The same of a whole number.
    fn set_whole(
        &mut self,
        key: &str,
        samples: &Samples,
        number: impl FnOnce(&mut Preset) -> &mut u64,
    ) {
        let samples = samples.map(|value| value.round().clamp(1.0, 1e15));
        let Some(median) = samples.at(0.5) else {
            return;
        };
        *number(&mut self.preset) = whole(median);
        let Spread { low, high } = samples.spread();
        // The number lies between the two, rounded as it is.
        let (low, high) = (low.floor(), high.ceil());
        self.spread.insert(key.into(), Spread { low, high });
    }

    fn memory(&mut self, memory: &Memory) {
        if let Some(host) = &mut self.preset.host {
            host.processors = memory.processors;
        }
        let of = |all: &[(u64, Samples)], stride: u64| {
            let found = all.iter().find(|(known, _)| *known == stride);
            found
                .map(|(_, samples)| samples.clone())
                .unwrap_or_default()
        };
        let dense = of(&memory.alone, 1);
        let per_byte = dense.map(|seconds| seconds * 1e9);
        self.set("host.copy_ns_per_byte", &per_byte, |p| {
            &mut host_of(p).copy_ns_per_byte
        });
        self.set("costs.copy_ns_per_byte", &per_byte, |p| {
            &mut p.costs.copy_ns_per_byte
        });
        let zeroing = memory.zeroing.map(|seconds| seconds * 1e9);
        self.set("costs.buffer_ns_per_byte", &zeroing, |p| {
            &mut p.costs.buffer_ns_per_byte
        });
        for (place, stride) in STRIDES.into_iter().enumerate().skip(1) {
            // An element has 8 bytes, and is a stretch.
            let more = of(&memory.alone, stride).less(&dense, 1.0);
            let more = more.map(|seconds| seconds * 8e9);
            let key = format!("host.stretch_ns[{place}]");
            self.set(&key, &more, |p| &mut host_of(p).stretch_ns[place]);
        }
        if memory.processors > 1 {
            let alone = dense.median().max(1e-15);
            let crowding =
                of(&memory.together, 1).map(|seconds| (seconds / alone - 1.0).max(LEAST));
            self.set("host.crowding", &crowding, |p| &mut host_of(p).crowding);
        }
        if let Some(processors) = &mut self.preset.processors {
            processors.kernel_copy_ns_per_byte = per_byte.median();
        }
    }

    fn messages(&mut self, messages: &Messages) {
        let send = messages.send.map(|seconds| seconds * 1e6);
        self.set("costs.send_us", &send, |p| &mut p.costs.send_us);
        let latency = messages
            .small
            .less(&messages.send, 1.0)
            .map(|seconds| seconds * 1e6);
        self.set("host.message_latency_us", &latency, |p| {
            &mut host_of(p).message_latency_us
        });
        let small = messages.small.median();
        let rate = messages
            .large
            .map(|seconds| (1u64 << 20) as f64 / (seconds - small).max(1e-9));
        self.set_whole("host.message_bytes_per_second", &rate, |p| {
            &mut host_of(p).message_bytes_per_second
        });
        let copy = messages.small_memget.map(|seconds| seconds * 1e6);
        self.set("host.copy_us", &copy, |p| &mut host_of(p).copy_us);
    }

    fn files(&mut self, files: &Files, remarks: &mut Vec<String>) {
        if files.rates.is_empty() {
            self.preset.around = None;
            return;
        }
        let name = |wanted: &str| {
            let found = files.names.iter().find(|(name, _)| *name == wanted);
            found
                .map(|(_, seconds)| seconds.map(|s| s * 1e6))
                .unwrap_or_default()
        };
        let forcing = files.forcing.map(|seconds| seconds * 1e9);
        let systems: &[&str] = match files.has_direct {
            true => &["", "around."],
            false => &[""],
        };
        for prefix in systems {
            let key = |name: &str| format!("{prefix}file_system.{name}");
            let is_around = !prefix.is_empty();
            let (creates, opens, syncs) = (name("create"), name("open"), name("fsync"));
            self.set(&key("object_create_us"), &creates, |p| {
                &mut system_of(p, is_around).object_create_us
            });
            self.set(&key("object_open_us"), &opens, |p| {
                &mut system_of(p, is_around).object_open_us
            });
            self.set(&key("object_sync_us"), &syncs, |p| {
                &mut system_of(p, is_around).object_sync_us
            });
        }
        self.set("file_system.sync_ns_per_byte", &forcing, |p| {
            &mut system_of(p, false).sync_ns_per_byte
        });
        self.cached(files);
        match files.has_direct {
            true => self.direct(files),
            false => {
                self.preset.around = None;
                remarks.push("without direct I/O the preset has no section around".into());
            }
        }
    }

    /// The page cache: what an access takes, and what a byte.
    fn cached(&mut self, files: &Files) {
        for is_read in [true, false] {
            let seconds =
                |bytes| files.seconds((is_read, Access::Sequential, Way::Cached), bytes, 1);
            let (small, large) = (seconds(4 << 10), seconds(1 << 20));
            let per_byte = large.less(&small, ((1 << 20) - (4 << 10)) as f64);
            let per_byte = per_byte.map(|seconds| seconds * 1e9);
            match is_read {
                true => self.set("file_system.read_ns_per_byte", &per_byte, |p| {
                    &mut system_of(p, false).read_ns_per_byte
                }),
                false => self.set("file_system.write_ns_per_byte", &per_byte, |p| {
                    &mut system_of(p, false).write_ns_per_byte
                }),
            }
            if is_read {
                let fixed =
                    small.map(|seconds| (seconds * 1e6 - per_byte.median() * 4.096).max(LEAST));
                self.set("file_system.request_us", &fixed, |p| {
                    &mut system_of(p, false).request_us
                });
            }
        }
    }

    /// The disk: direct I/O.
    fn direct(&mut self, files: &Files) {
        if let Some(Around { disk, .. }) = &mut self.preset.around
            && let DiskKind::Flash(flash) = disk
        {
            flash.sectors = (files.bytes / u64::from(flash.sector_bytes)).max(1 << 20);
        }
        for is_read in [true, false] {
            let word = if is_read { "read" } else { "write" };
            let key = |name: &str| format!("around.disk.{word}_{name}");
            let one = files.seconds((is_read, Access::Random, Way::Direct), 4 << 10, 1);
            let latency = one.map(|seconds| seconds * 1e6);
            self.set(&key("latency_us"), &latency, move |p| match is_read {
                true => &mut flash_of(p).read_latency_us,
                false => &mut flash_of(p).write_latency_us,
            });
            let rates = files.greatest(is_read, Way::Direct);
            self.set_whole(&key("bytes_per_second"), &rates, move |p| match is_read {
                true => &mut flash_of(p).read_bytes_per_second,
                false => &mut flash_of(p).write_bytes_per_second,
            });
            let many = files.seconds((is_read, Access::Random, Way::Direct), 4 << 10, 16);
            let operations = many.map(|seconds| 1.0 / seconds);
            self.set_whole(
                &key("operations_per_second"),
                &operations,
                move |p| match is_read {
                    true => &mut flash_of(p).read_operations_per_second,
                    false => &mut flash_of(p).write_operations_per_second,
                },
            );
            // A lone access of 1 MiB takes longer than its latency and its bytes at the full rate.
            let large = files.seconds((is_read, Access::Sequential, Way::Direct), 1 << 20, 1);
            let known = latency.median() / 1e6 + (1 << 20) as f64 / rates.median().max(1.0);
            let more = large.map(|seconds| ((seconds - known) * 1e9 / (1 << 20) as f64).max(LEAST));
            let key = format!("around.file_system.{word}_ns_per_byte");
            self.set(&key, &more, move |p| match is_read {
                true => &mut system_of(p, true).read_ns_per_byte,
                false => &mut system_of(p, true).write_ns_per_byte,
            });
        }
    }

    /// What calls take beside what the model counts: it predicts calls that move next to nothing
    /// with nothing beside.
    fn calls(&mut self, calls: &Calls) -> Result<()> {
        let mut further = Vec::new();
        for is_flat in [false, true] {
            for (is_read, is_synced) in [(false, false), (false, true), (true, false)] {
                let kind = |ranks| CallKind {
                    ranks,
                    is_flat,
                    is_synced,
                    is_read,
                };
                let counted = self.counted(kind(1))?;
                let rest = calls
                    .of(kind(1))
                    .map(|seconds| ((seconds - counted) * 1e6).max(LEAST));
                let name = match (is_read, is_synced) {
                    (true, _) => "read",
                    (false, false) => "write",
                    (false, true) => "synced",
                };
                let form = if is_flat { "flat" } else { "chunks" };
                let key = format!("host.calls.{form}_{name}_us");
                self.set(&key, &rest, move |p| {
                    let calls = &mut host_of(p).calls;
                    match (is_flat, is_read, is_synced) {
                        (false, true, _) => &mut calls.chunks_read_us,
                        (false, false, false) => &mut calls.chunks_write_us,
                        (false, false, true) => &mut calls.chunks_synced_us,
                        (true, true, _) => &mut calls.flat_read_us,
                        (true, false, false) => &mut calls.flat_write_us,
                        (true, false, true) => &mut calls.flat_synced_us,
                    }
                });
                if !is_synced
                    && let (Some(one), Some(all)) =
                        (calls.of(kind(1)).at(0.5), calls.of(kind(RANKS)).at(0.5))
                {
                    let more = all - one - (self.counted(kind(RANKS))? - counted);
                    further.push((more * 1e6 / (RANKS - 1) as f64).max(LEAST));
                }
            }
        }
        let further = Samples::new(further);
        self.set("host.calls.client_us", &further, |p| {
            &mut host_of(p).calls.client_us
        });
        Ok(())
    }

    /// The seconds that the model counts of a call that moves next to nothing.
    fn counted(&self, kind: CallKind) -> Result<f64> {
        let mut machine = self.preset.clone();
        machine.spread.clear();
        if let Some(host) = &mut machine.host {
            host.calls = Default::default();
        }
        let elements = 8 * kind.ranks as u64;
        let description = Description {
            operation: match kind.is_read {
                true => Direction::Read,
                false => Direction::Write,
            },
            ranks: kind.ranks,
            hosts: 1,
            servers: None,
            strategies: Vec::new(),
            direct: false,
            sync: kind.is_synced,
            block_bytes: penstock_predict::description::BLOCK_BYTES,
            arrays: vec![Array {
                shape: vec![elements],
                dtype: "f8".into(),
                memory: "BLOCK".into(),
                mesh: vec![kind.ranks as u64],
                lists: Vec::new(),
                chunks: (!kind.is_flat).then(|| vec![8]),
            }],
        };
        let requests = description.requests(&machine, Strategy::default())?;
        let question = Question {
            requests: &requests,
            lists: &[],
            clients: kind.ranks,
            hosts: 1,
        };
        Ok(predict(&machine, &question)?.seconds)
    }
}

impl Files {
    /// The seconds of an access, by the rates of accesses under way at once.
    fn seconds(&self, kind: (bool, Access, Way), bytes: u64, depth: u32) -> Samples {
        let found = self.rates.iter().find(|rate| {
            (rate.is_read, rate.access, rate.way) == kind
                && (rate.bytes, rate.depth) == (bytes, depth)
        });
        found
            .map(|rate| rate.rates.map(|rate| bytes as f64 / rate))
            .unwrap_or_default()
    }

    /// The rates of the accesses that are fastest.
    fn greatest(&self, is_read: bool, way: Way) -> Samples {
        let rates = self
            .rates
            .iter()
            .filter(|rate| (rate.is_read, rate.way) == (is_read, way));
        let fastest = rates.max_by(|a, b| a.rates.median().total_cmp(&b.rates.median()));
        fastest.map(|rate| rate.rates.clone()).unwrap_or_default()
    }
}

fn whole(value: f64) -> u64 {
    // The callers clamp it.
    #[allow(clippy::cast_possible_truncation)]
    let whole = value as u64;
    whole
}

/// The host of the skeleton, which has one.
fn host_of(preset: &mut Preset) -> &mut Host {
    match &mut preset.host {
        Some(host) => host,
        None => unreachable!("the skeleton has a host"),
    }
}

/// The file system of the skeleton, through the page cache or around it.
fn system_of(preset: &mut Preset, is_around: bool) -> &mut FileSystem {
    match (is_around, &mut preset.around, &mut preset.file_system) {
        (true, Some(around), _) => &mut around.file_system,
        (false, _, Some(system)) => system,
        _ => unreachable!("the skeleton has both file systems"),
    }
}

/// The device of the skeleton that calls around the page cache see.
fn flash_of(preset: &mut Preset) -> &mut FlashParameters {
    match &mut preset.around {
        Some(Around {
            disk: DiskKind::Flash(flash),
            ..
        }) => flash,
        _ => unreachable!("the skeleton has a device without moving parts"),
    }
}

fn measured(all: &All, remarks: Vec<String>) -> Measured {
    let memory = &all.memory;
    let kinds = [(1, &memory.alone), (memory.processors, &memory.together)];
    let copies = kinds.into_iter().flat_map(|(processors, all)| {
        all.iter().filter_map(move |(stride, samples)| {
            Some(CopyRate {
                stride: *stride,
                processors,
                bytes_per_second: samples.map(|seconds| 1.0 / seconds).median_and_spread()?,
            })
        })
    });
    let file = |rate: &Rate| {
        Some(FileRate {
            operation: if rate.is_read { "read" } else { "write" }.into(),
            access: rate.access,
            way: rate.way,
            bytes: rate.bytes,
            depth: rate.depth,
            bytes_per_second: rate.rates.median_and_spread()?,
        })
    };
    let names = all.files.names.iter().filter_map(|(name, seconds)| {
        Some(MetadataTime {
            operation: (*name).into(),
            us: seconds.map(|seconds| seconds * 1e6).median_and_spread()?,
        })
    });
    let machines = [("threads", Some(&all.threads)), ("mpi", all.ranks.as_ref())];
    let mut others = BTreeMap::new();
    for (machine, messages) in machines {
        let Some(messages) = messages else { continue };
        for (name, samples) in [
            ("message_8_us", &messages.small),
            ("send_8_us", &messages.send),
            ("message_1mib_us", &messages.large),
            ("message_1mib_all_pairs_us", &messages.crowded),
            ("memget_1mib_us", &messages.memget),
            ("memput_1mib_us", &messages.memput),
            ("memget_8_us", &messages.small_memget),
        ] {
            if let Some(median) = samples.map(|seconds| seconds * 1e6).median_and_spread() {
                others.insert(format!("{machine}_{name}"), median);
            }
        }
    }
    Measured {
        remarks,
        copies: copies.collect(),
        files: all.files.rates.iter().filter_map(file).collect(),
        metadata: names.collect(),
        others,
    }
}
