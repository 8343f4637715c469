//! Checks that a [`Preset`] describes a possible machine, and an experiment that can end.

use super::{
    Batch, Costs, DiskKind, FileSystem, Host, NetworkKind, Preset, PresetError, Processors, Start,
};
use crate::disk::{DiskParameters, Region};
use crate::network::TorusParameters;

/// The most clients, I/O nodes or disks: some gigabytes of the host's memory.
const COUNT_MAX: usize = 1 << 20;
/// The greatest side of a torus: a million places.
const SIDE_MAX: u32 = 1 << 10;
/// The greatest cost of software: beyond a tenth of a second it is a mistake in the unit.
const COST_US_MAX: f64 = 1e5;
/// The greatest cost for each byte: ten kilobytes a second.
const NS_PER_BYTE_MAX: f64 = 1e5;
/// The most that a processor may be slower than another, as a part.
const SLOWNESS_MAX: f64 = 100.0;
/// The greatest other length of time, in its unit.
const LENGTH_MAX: f64 = 1e6;
/// The most cylinders of a drive: a seek is worked out for each.
const CYLINDERS_MAX: u32 = 1 << 24;
/// The most surfaces of a drive.
const HEADS_MAX: u32 = 1 << 10;
/// The most sectors of a track, bytes of a sector, or channels of flash.
const PARTS_MAX: u32 = 1 << 20;
/// The most bytes of a header, or of a buffer for a batch of pieces.
const HEADER_BYTES_MAX: u64 = 1 << 20;
/// The most virtual time in which the file, once for each client, may move if all is done one after
/// the other; clocks count to 213 days.
const SECONDS_MAX: f64 = 1e7;

/// A complaint names a mistake and its remedy.
pub(super) type Complaint = Result<(), String>;

impl Preset {
    /// Checks that the preset describes a possible machine. Call it again after a field was
    /// changed.
    ///
    /// # Errors
    /// The first mistake: its key, its value, and the remedy, in one line.
    pub fn validate(&self) -> Result<(), PresetError> {
        self.first_complaint()
            .map_err(|what| PresetError::new(&self.name, what))
    }

    pub(super) fn first_complaint(&self) -> Complaint {
        self.check_nodes()?;
        self.check_disk()?;
        self.check_network()?;
        self.check_file()?;
        self.check_costs()?;
        self.check_processors()?;
        self.check_host()?;
        self.check_tuning()?;
        self.check_duration()?;
        self.check_spread()?;
        self.measured
            .iter()
            .try_for_each(|measured| measured.check())?;
        match self.around_page_cache() {
            // Its spread is checked here.
            Some(around) => around
                .first_complaint()
                .map_err(|what| format!("around: {what}")),
            None => Ok(()),
        }
    }

    fn check_nodes(&self) -> Complaint {
        let nodes = &self.nodes;
        for (key, count) in [
            ("nodes.clients", nodes.clients),
            ("nodes.io_nodes", nodes.io_nodes),
            ("nodes.disks", nodes.disks),
        ] {
            positive(key, count as u64)?;
            at_most(key, count as u64, COUNT_MAX as u64)?;
        }
        ensure(nodes.disks >= nodes.io_nodes, || {
            format!(
                "nodes.disks is {}, fewer than nodes.io_nodes, {}: give each I/O node a disk",
                nodes.disks, nodes.io_nodes
            )
        })
    }

    fn check_disk(&self) -> Complaint {
        let (device, facts) = match &self.disk {
            DiskKind::Rotating(disk) => ("drive", disk.validate()),
            DiskKind::Flash(flash) => ("device", flash.validate()),
        };
        facts.map_err(|error| {
            // A device's own complaints begin with the key, except these.
            let key = match error.what.as_str() {
                what if what.starts_with("region ") || what.starts_with("no regions") => {
                    "regions: "
                }
                what if what.starts_with("no seek curve") => "seek: ",
                _ => "",
            };
            format!("disk.{key}{}: give what a {device} can have", error.what)
        })?;
        match &self.disk {
            DiskKind::Rotating(disk) => check_drive(disk)?,
            DiskKind::Flash(flash) => {
                at_most(
                    "disk.sector_bytes",
                    flash.sector_bytes.into(),
                    PARTS_MAX.into(),
                )?;
                at_most("disk.channels", flash.channels.into(), PARTS_MAX.into())?;
            }
        }
        if let Start::Common { rotation_ms } = self.start {
            cost("start.rotation_ms", rotation_ms, LENGTH_MAX)?;
        }
        positive("bus.bytes_per_second", self.bus.bytes_per_second)
    }

    fn check_network(&self) -> Complaint {
        let first = u64::from(self.nodes.first_place);
        let nodes = (self.nodes.clients + self.nodes.io_nodes) as u64;
        match &self.network {
            NetworkKind::Torus(torus) => {
                check_torus(torus)?;
                let places = u64::from(torus.side) * u64::from(torus.side);
                ensure(first + nodes <= places, || {
                    format!(
                        "nodes.clients {} + nodes.io_nodes {} + nodes.first_place {first} is {}, \
                         more than the {places} places of the torus: take fewer, or a larger \
                         network.side than {}",
                        self.nodes.clients,
                        self.nodes.io_nodes,
                        first + nodes,
                        torus.side
                    )
                })
            }
            NetworkKind::FatTree(tree) => {
                positive("network.nodes_per_leaf", tree.nodes_per_leaf.into())?;
                positive("network.leaves_per_pod", tree.leaves_per_pod.into())?;
                positive("network.bytes_per_second", tree.bytes_per_second)?;
                for (key, ns) in [
                    ("network.adapter_latency_ns", tree.adapter_latency_ns),
                    ("network.switch_latency_ns", tree.switch_latency_ns),
                ] {
                    cost(key, ns, LENGTH_MAX)?;
                }
                at_most("nodes.first_place", first, COUNT_MAX as u64)
            }
        }
    }

    fn check_file(&self) -> Complaint {
        let file = &self.file;
        positive("file.bytes", file.bytes)?;
        positive("file.block_bytes", file.block_bytes)?;
        let (sector, capacity) = match &self.disk {
            DiskKind::Rotating(disk) => (u64::from(disk.sector_bytes), sectors(disk)),
            DiskKind::Flash(flash) => (u64::from(flash.sector_bytes), flash.sectors),
        };
        ensure(file.block_bytes.is_multiple_of(sector), || {
            format!(
                "file.block_bytes is {}, not a multiple of a sector: make it one of {sector}",
                file.block_bytes
            )
        })?;
        let blocks = file
            .bytes
            .div_ceil(file.block_bytes)
            .div_ceil(self.nodes.disks as u64);
        ensure(blocks <= capacity / (file.block_bytes / sector), || {
            format!(
                "file.bytes is {}, more than {} disks of {} bytes hold: take a smaller file, or \
                 more disks",
                file.bytes,
                self.nodes.disks,
                u128::from(capacity) * u128::from(sector)
            )
        })
    }

    fn check_costs(&self) -> Complaint {
        let Costs {
            header_bytes,
            batch,
            ..
        } = &self.costs;
        for (key, us) in self.costs.in_us() {
            cost(key, us, COST_US_MAX)?;
        }
        for (key, ns) in self.costs.in_ns_per_byte() {
            cost(key, ns, NS_PER_BYTE_MAX)?;
        }
        at_most("costs.header_bytes", *header_bytes, HEADER_BYTES_MAX)?;
        match batch {
            Batch::None => Ok(()),
            Batch::Gather {
                bytes_max,
                list_us,
                gather_us,
                scatter_us,
            } => {
                positive("costs.batch.bytes_max", *bytes_max)?;
                cost("costs.batch.list_us", *list_us, COST_US_MAX)?;
                cost("costs.batch.gather_us", *gather_us, COST_US_MAX)?;
                cost("costs.batch.scatter_us", *scatter_us, COST_US_MAX)
            }
        }
    }

    fn check_processors(&self) -> Complaint {
        if let Some(processors) = &self.processors {
            for (key, ns) in processors.in_ns_per_byte() {
                cost(key, ns, NS_PER_BYTE_MAX)?;
            }
            for (key, us) in [
                ("processors.stretch_us", processors.stretch_us),
                ("processors.spawn_us", processors.spawn_us),
                ("processors.slice_us", processors.slice_us),
                ("processors.switch_us", processors.switch_us),
            ] {
                cost(key, us, COST_US_MAX)?;
            }
            for (key, part) in [
                ("processors.slowness_max", processors.slowness_max),
                (
                    "processors.hypernode_slowness",
                    processors.hypernode_slowness,
                ),
            ] {
                cost(key, part, SLOWNESS_MAX)?;
            }
        }
        if let Some(sharing) = &self.sharing {
            for (key, us) in [
                ("sharing.token_us", sharing.token_us),
                ("sharing.token_waiting_us", sharing.token_waiting_us),
                ("sharing.poll_us", sharing.poll_us),
            ] {
                cost(key, us, COST_US_MAX)?;
            }
            let key = "sharing.system_copy_ns_per_byte";
            cost(key, sharing.system_copy_ns_per_byte, NS_PER_BYTE_MAX)?;
            let key = "sharing.buffered_copy_ns_per_byte";
            cost(key, sharing.buffered_copy_ns_per_byte, NS_PER_BYTE_MAX)?;
        }
        if let Some(file_system) = &self.file_system {
            for (key, us) in [
                ("file_system.open_us", file_system.open_us),
                ("file_system.sync_us", file_system.sync_us),
                ("file_system.request_us", file_system.request_us),
                ("file_system.object_create_us", file_system.object_create_us),
                ("file_system.object_open_us", file_system.object_open_us),
                ("file_system.object_sync_us", file_system.object_sync_us),
            ] {
                // Opening takes more than software: it waits for the disk.
                cost(key, us, LENGTH_MAX)?;
            }
            for (key, ns) in file_system.in_ns_per_byte() {
                cost(key, ns, NS_PER_BYTE_MAX)?;
            }
            let key = "file_system.read_cluster_bytes";
            positive(key, file_system.read_cluster_bytes)?;
        }
        Ok(())
    }

    fn check_host(&self) -> Complaint {
        let Some(host) = &self.host else {
            let taken = self.file_system.as_ref();
            return ensure(!taken.is_some_and(|taken| taken.takes_processor), || {
                "file_system.takes_processor is true: give a section host, whose processors it \
                 takes"
                    .into()
            });
        };
        let Host {
            processors,
            clients,
            crowding,
            message_bytes_per_second,
            copy_ns_per_byte,
            ..
        } = host;
        positive("host.processors", *processors as u64)?;
        at_most("host.processors", *processors as u64, COUNT_MAX as u64)?;
        at_most("host.clients", *clients as u64, COUNT_MAX as u64)?;
        cost("host.crowding", *crowding, SLOWNESS_MAX)?;
        positive("host.message_bytes_per_second", *message_bytes_per_second)?;
        cost("host.copy_ns_per_byte", *copy_ns_per_byte, NS_PER_BYTE_MAX)?;
        for (key, us) in [
            ("host.message_latency_us", host.message_latency_us),
            ("host.copy_us", host.copy_us),
        ] {
            cost(key, us, LENGTH_MAX)?;
        }
        for (key, us) in host.calls.in_us() {
            cost(key, us, LENGTH_MAX)?;
        }
        for ns in host.stretch_ns {
            cost("host.stretch_ns", ns, LENGTH_MAX)?;
        }
        Ok(())
    }

    fn check_tuning(&self) -> Complaint {
        let caching = &self.caching;
        positive("caching.outstanding_max", caching.outstanding_max.into())?;
        let buffers_key = "caching.buffers_per_client";
        positive(buffers_key, caching.buffers_per_client.into())?;
        // The buffers of one disk's cache are counted in memory, and their blocks are addressed.
        let buffers = u64::from(caching.buffers_per_client) * self.nodes.clients as u64;
        ensure(
            buffers.checked_mul(self.file.block_bytes).is_some() && buffers <= u32::MAX.into(),
            || {
                format!(
                    "{buffers_key} is {}, which for {} clients is {buffers} buffers of {} bytes: \
                     take fewer",
                    caching.buffers_per_client, self.nodes.clients, self.file.block_bytes
                )
            },
        )?;
        let least = self.file.block_bytes;
        let staging = self.two_phase.buffer_bytes_max;
        ensure(staging >= least, || {
            format!(
                "two_phase.buffer_bytes_max is {staging}, less than a block: give at least {least}"
            )
        })
    }

    /// Checks that the clocks can count to the end.
    fn check_duration(&self) -> Complaint {
        let bytes = self.file.bytes as f64 * self.nodes.clients as f64;
        let network = match &self.network {
            NetworkKind::Torus(torus) => torus.bytes_per_second,
            NetworkKind::FatTree(tree) => tree.bytes_per_second,
        };
        let mut lengths = vec![
            (
                "bus.bytes_per_second",
                bytes / self.bus.bytes_per_second as f64,
            ),
            ("network.bytes_per_second", bytes / network as f64),
        ];
        for (key, ns) in self.costs.in_ns_per_byte() {
            lengths.push((key, bytes * ns / 1e9));
        }
        let of_files = self.file_system.as_ref().map(FileSystem::in_ns_per_byte);
        for (key, ns) in of_files.into_iter().flatten() {
            lengths.push((key, bytes * ns / 1e9));
        }
        let blocks = bytes / self.file.block_bytes as f64;
        match &self.disk {
            DiskKind::Rotating(disk) => {
                let turn_ms = 60e3 / disk.rotations_per_minute;
                let track = disk.regions.iter().map(|region| region.sectors_per_track);
                let track_bytes =
                    f64::from(track.min().unwrap_or(1)) * f64::from(disk.sector_bytes);
                let turns = self.file.block_bytes as f64 / track_bytes + 2.0;
                let ms = disk.read_overhead_ms
                    + disk.write_overhead_ms
                    + longest_seek_ms(disk)
                    + turns * (turn_ms + disk.head_switch_ms);
                lengths.push(("disk.rotations_per_minute and disk.seek", blocks * ms / 1e3));
            }
            DiskKind::Flash(flash) => {
                let operations = bytes / flash.operation_bytes_max as f64 + blocks;
                for (key, count, rate) in [
                    (
                        "disk.read_bytes_per_second",
                        bytes,
                        flash.read_bytes_per_second,
                    ),
                    (
                        "disk.write_bytes_per_second",
                        bytes,
                        flash.write_bytes_per_second,
                    ),
                    (
                        "disk.read_operations_per_second",
                        operations,
                        flash.read_operations_per_second,
                    ),
                    (
                        "disk.write_operations_per_second",
                        operations,
                        flash.write_operations_per_second,
                    ),
                ] {
                    lengths.push((key, count / rate as f64));
                }
            }
        }
        let too_long = lengths
            .into_iter()
            .find(|(_, seconds)| *seconds > SECONDS_MAX);
        too_long.map_or(Ok(()), |(key, seconds)| {
            Err(format!(
                "with its {key}, the file of {} bytes, once for each of {} clients, may take \
                 {seconds:.0} s: more than {SECONDS_MAX} s are not simulated, take a smaller file",
                self.file.bytes, self.nodes.clients
            ))
        })
    }
}

impl Costs {
    fn in_us(&self) -> [(&'static str, f64); 14] {
        [
            ("costs.send_us", self.send_us),
            ("costs.receive_us", self.receive_us),
            ("costs.request_us", self.request_us),
            ("costs.thread_us", self.thread_us),
            ("costs.lookup_us", self.lookup_us),
            ("costs.copy_us", self.copy_us),
            ("costs.disk_request_us", self.disk_request_us),
            ("costs.entry_us", self.entry_us),
            ("costs.memput_us", self.memput_us),
            ("costs.memget_us", self.memget_us),
            ("costs.memget_reply_us", self.memget_reply_us),
            ("costs.remote_us", self.remote_us),
            ("costs.index_1d_us", self.index_1d_us),
            ("costs.index_2d_us", self.index_2d_us),
        ]
    }

    fn in_ns_per_byte(&self) -> [(&'static str, f64); 5] {
        [
            ("costs.copy_ns_per_byte", self.copy_ns_per_byte),
            ("costs.buffer_ns_per_byte", self.buffer_ns_per_byte),
            ("costs.memput_ns_per_byte", self.memput_ns_per_byte),
            ("costs.memget_ns_per_byte", self.memget_ns_per_byte),
            ("costs.remote_ns_per_byte", self.remote_ns_per_byte),
        ]
    }
}

impl Processors {
    fn in_ns_per_byte(&self) -> [(&'static str, f64); 2] {
        [
            (
                "processors.byte_copy_ns_per_byte",
                self.byte_copy_ns_per_byte,
            ),
            (
                "processors.kernel_copy_ns_per_byte",
                self.kernel_copy_ns_per_byte,
            ),
        ]
    }
}

impl FileSystem {
    fn in_ns_per_byte(&self) -> [(&'static str, f64); 3] {
        [
            ("file_system.read_ns_per_byte", self.read_ns_per_byte),
            ("file_system.write_ns_per_byte", self.write_ns_per_byte),
            ("file_system.sync_ns_per_byte", self.sync_ns_per_byte),
        ]
    }
}

fn check_torus(torus: &TorusParameters) -> Complaint {
    positive("network.side", torus.side.into())?;
    at_most("network.side", torus.side.into(), SIDE_MAX.into())?;
    positive("network.bytes_per_second", torus.bytes_per_second)?;
    for (key, length, least) in [
        ("network.router_latency_ns", torus.router_latency_ns, 0.001),
        ("network.window_us", torus.window_us, 0.001),
    ] {
        cost(key, length, LENGTH_MAX)?;
        ensure(length >= least, || {
            format!("{key} is {length}: give at least {least}")
        })?;
    }
    Ok(())
}

/// Checks a drive for mistakes that `DiskParameters` alone allows, but not a machine to simulate.
fn check_drive(disk: &DiskParameters) -> Complaint {
    for (key, count, most) in [
        ("disk.sector_bytes", disk.sector_bytes, PARTS_MAX),
        ("disk.heads", disk.heads, HEADS_MAX),
        ("disk.cylinders", disk.cylinders, CYLINDERS_MAX),
    ] {
        at_most(key, count.into(), most.into())?;
    }
    for region in &disk.regions {
        let sectors = region.sectors_per_track;
        for (key, count, most) in [
            ("sectors_per_track", sectors, PARTS_MAX),
            ("track_skew_sectors", region.track_skew_sectors, sectors),
            (
                "cylinder_skew_sectors",
                region.cylinder_skew_sectors,
                sectors,
            ),
        ] {
            let key = format!("{key} of a region of disk.regions");
            at_most(&key, count.into(), most.into())?;
        }
    }
    let rotations = disk.rotations_per_minute;
    ensure((1.0..=1e6).contains(&rotations), || {
        format!("disk.rotations_per_minute is {rotations}: give a number from 1 to 1000000")
    })?;
    let longest_ms = longest_seek_ms(disk);
    ensure(longest_ms <= LENGTH_MAX, || {
        format!("disk.seek takes up to {longest_ms} ms: let it take at most {LENGTH_MAX}")
    })
}

fn longest_seek_ms(disk: &DiskParameters) -> f64 {
    disk.seek.table_ms(disk.cylinders).fold(0.0, f64::max)
}

/// The sectors of a drive with valid regions.
fn sectors(disk: &DiskParameters) -> u64 {
    let tracks =
        |region: &Region| region.last_track(disk.heads) + 1 - region.first_track(disk.heads);
    let regions = disk.regions.iter();
    regions
        .map(|region| tracks(region) * u64::from(region.sectors_per_track))
        .sum()
}

pub(super) fn ensure(holds: bool, complaint: impl FnOnce() -> String) -> Complaint {
    match holds {
        true => Ok(()),
        false => Err(complaint()),
    }
}

fn positive(key: &str, count: u64) -> Complaint {
    ensure(count > 0, || format!("{key} is 0: give at least 1"))
}

fn at_most(key: &str, count: u64, most: u64) -> Complaint {
    ensure(count <= most, || {
        format!("{key} is {count}: give at most {most}")
    })
}

/// Checks a length of time in the unit that the key names.
fn cost(key: &str, length: f64, most: f64) -> Complaint {
    ensure((0.0..=most).contains(&length), || {
        format!("{key} is {length}: give a number from 0 to {most}")
    })
}
