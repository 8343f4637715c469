//! The hardware of one run, from its preset: network, disks, and the places of blocks.

use penstock_engine::{Error, Kind, Result};
use penstock_layout::exact;

use super::disks::Places;
use super::setup::{Layout, Setup};
use crate::disk::{Device, Drive, DriveModel, Flash};
use crate::error::ParameterError;
use crate::network::{FatTree, FatTreeParameters, Network, Torus};
use crate::preset::{DiskKind, NetworkKind, Preset, Start};
use crate::random::Random;
use crate::time::Span;

/// Streams of random numbers: each use has its own, so that one never shifts another.
#[derive(Clone, Copy)]
enum Stream {
    Places = 1,
    Rotation = 2,
    Network = 3,
    Slowness = 4,
}

/// Turns an impossible description into an error of the engine.
pub(super) fn unfit(error: ParameterError) -> Error {
    Error::new(Kind::Schema, "setting up the simulated machine", error)
}

fn stream(seed: u64, stream: Stream, index: usize) -> Random {
    Random::of(seed, (stream as u64) << 32 | index as u64)
}

/// Makes the network of a preset's machine.
pub(super) fn network(preset: &Preset, seed: u64) -> std::result::Result<Network, ParameterError> {
    Ok(match &preset.network {
        NetworkKind::Torus(torus) => {
            Network::Torus(Torus::new(torus, stream(seed, Stream::Network, 0))?)
        }
        NetworkKind::FatTree(tree) => {
            let nodes = preset.nodes.clients + preset.nodes.io_nodes;
            Network::FatTree(FatTree::new(&FatTreeParameters {
                nodes: preset.nodes.first_place + exact::<u32>(nodes),
                nodes_per_leaf: tree.nodes_per_leaf,
                leaves_per_pod: tree.leaves_per_pod,
                bytes_per_second: tree.bytes_per_second,
                adapter_latency_ns: tree.adapter_latency_ns,
                switch_latency_ns: tree.switch_latency_ns,
            })?)
        }
    })
}

/// Makes one disk, at its starting angle.
pub(super) fn device(
    preset: &Preset,
    seed: u64,
    server: usize,
) -> std::result::Result<Device, ParameterError> {
    Ok(match &preset.disk {
        DiskKind::Rotating(parameters) => {
            let model = DriveModel::new(parameters)?;
            let rotation = match preset.start {
                Start::Common { rotation_ms } => Span::from_ms_f64(rotation_ms),
                Start::Random => {
                    let mut random = stream(seed, Stream::Rotation, server);
                    Span::from_ps(random.below(model.revolution().as_ps()))
                }
            };
            Device::Rotating(Drive::new(&model, rotation))
        }
        DiskKind::Flash(parameters) => Device::Flash(Flash::new(parameters)?),
    })
}

/// The slowness of each node's processor: a factor on the time of its copies.
pub(super) fn slowness(preset: &Preset, seed: u64, nodes: usize) -> Vec<f64> {
    let Some(processors) = &preset.processors else {
        return vec![1.0; nodes];
    };
    let mut random = stream(seed, Stream::Slowness, 0);
    let mut drawn = || random.below(1 << 32) as f64 / (1u64 << 32) as f64;
    let further = |node: usize| node.checked_div(processors.hypernode).unwrap_or(0) as f64;
    let slowness = |node| {
        let distance = processors.hypernode_slowness * further(node);
        1.0 + processors.slowness_max * drawn() + distance
    };
    (0..nodes).map(slowness).collect()
}

/// Lays out the slots of one disk.
pub(super) fn places(
    setup: &Setup,
    device: &Device,
    server: usize,
    slot_sectors: u64,
) -> Result<Places> {
    let random = &mut stream(setup.seed, Stream::Places, server);
    let slots_max = device.sectors() / slot_sectors;
    if setup.slots > slots_max {
        let cause = format!("{} blocks on a disk that holds {slots_max}", setup.slots);
        return Err(Error::new(Kind::Full, "laying out the file", cause));
    }
    let count = exact::<usize>(setup.slots);
    match setup.layout {
        Layout::Contiguous => Ok(Places::Contiguous),
        Layout::RandomBlocks => {
            let places = random.distinct(count, slots_max).into_iter();
            Ok(Places::Listed(
                places.map(|place| place * slot_sectors).collect(),
            ))
        }
        Layout::RandomTracks => random_tracks(device, count, slot_sectors, random),
    }
}

/// Draws tracks over the whole disk, and fills each with as many blocks as it holds.
fn random_tracks(
    device: &Device,
    count: usize,
    slot_sectors: u64,
    random: &mut Random,
) -> Result<Places> {
    let unfit = |cause: &str| Error::new(Kind::Schema, "laying out the file in tracks", cause);
    let Device::Rotating(drive) = device else {
        return Err(unfit(
            "the disk has no tracks: use contiguous or random-blocks",
        ));
    };
    let mut places = Vec::with_capacity(count);
    let mut taken = std::collections::HashSet::new();
    let mut misses = 0;
    while places.len() < count {
        let lba = random.below(drive.model().sectors());
        let place = drive.model().place(lba);
        let first = lba - u64::from(place.sector);
        let track_sectors = u64::from(place.sector) + place.left_on_track();
        let blocks = track_sectors / slot_sectors;
        if blocks == 0 {
            return Err(unfit(
                "a block is larger than a track: use contiguous or random-blocks",
            ));
        }
        if !taken.insert(first) {
            misses += 1;
            if misses > 100 * count {
                return Err(unfit("the disk has too few tracks for the file"));
            }
            continue;
        }
        places.extend((0..blocks).map(|block| first + block * slot_sectors));
    }
    places.truncate(count);
    Ok(Places::Listed(places))
}
