//! What the nodes of one host share: its processors and its memory.
//!
//! Without a section `host` each node has a CPU and a memory of its own, as the papers' machines
//! do. With it several nodes are processes, or threads, of one host: they share its processors,
//! elements go from one to another by a copy in memory, and messages do not pass the network.

use serde::{Deserialize, Serialize};

use super::{DiskKind, FileSystem, Preset};

/// The strides at which copies are measured, in elements of 8 bytes.
pub const STRIDES: [u64; 5] = [1, 2, 8, 64, 512];

/// A host is a computer whose processors several nodes share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// The number of processors of a host.
    pub processors: usize,
    /// The number of clients on each host, in the order of their numbers; the I/O nodes are dealt
    /// out to the hosts in turn. 0: all nodes are on one host.
    pub clients: usize,
    /// The part by which work takes longer if all processors of the host work.
    pub crowding: f64,
    /// The time from the end of a message's sending to its reception, on one host.
    pub message_latency_us: f64,
    /// The rate at which one node takes in messages of its host.
    pub message_bytes_per_second: u64,
    /// The time of a memget or memput between nodes of one host, whatever its size.
    pub copy_us: f64,
    /// The time for each byte.
    pub copy_ns_per_byte: f64,
    /// The time of each contiguous stretch, besides, if stretches of one element of 8 bytes are 1,
    /// 2, 8, 64 and 512 elements apart.
    pub stretch_ns: [f64; STRIDES.len()],
    /// What a collective call takes beside all that is counted.
    pub calls: Calls,
}

/// The time of a collective call by one client beside what is counted: metadata, and the program's
/// way into the call and back. It depends on what is on disk, chunks or one flat file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calls {
    pub chunks_write_us: f64,
    /// A write that waits for stable storage.
    pub chunks_synced_us: f64,
    pub chunks_read_us: f64,
    pub flat_write_us: f64,
    /// A write that waits for stable storage.
    pub flat_synced_us: f64,
    pub flat_read_us: f64,
    /// The time that each further client adds.
    pub client_us: f64,
}

/// The disk and its file system, as calls see them that go around the page cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Around {
    pub disk: DiskKind,
    pub file_system: FileSystem,
}

impl Calls {
    /// The times, by name.
    pub fn in_us(&self) -> [(&'static str, f64); 7] {
        [
            ("host.calls.chunks_write_us", self.chunks_write_us),
            ("host.calls.chunks_synced_us", self.chunks_synced_us),
            ("host.calls.chunks_read_us", self.chunks_read_us),
            ("host.calls.flat_write_us", self.flat_write_us),
            ("host.calls.flat_synced_us", self.flat_synced_us),
            ("host.calls.flat_read_us", self.flat_read_us),
            ("host.calls.client_us", self.client_us),
        ]
    }
}

impl Host {
    /// The host of a node. Clients are nodes 0 and up, I/O nodes follow.
    pub fn of(&self, node: usize, clients: usize) -> usize {
        match (self.clients, node < clients) {
            (0, _) => 0,
            (each, true) => node / each,
            (each, false) => (node - clients) % clients.div_ceil(each).max(1),
        }
    }

    /// The number of hosts of a machine with this number of clients.
    pub fn count(&self, clients: usize) -> usize {
        match self.clients {
            0 => 1,
            each => clients.div_ceil(each).max(1),
        }
    }

    /// The time of a stretch, in ns, if stretches begin `apart` bytes from each other: between the
    /// strides that were measured along a line over the logarithm of the stride.
    pub fn stretch_ns(&self, apart: f64) -> f64 {
        let (mut below, mut at_most) = (0, STRIDES.len() - 1);
        let stride = (apart / 8.0).clamp(STRIDES[below] as f64, STRIDES[at_most] as f64);
        for (place, &known) in STRIDES.iter().enumerate() {
            match known as f64 <= stride {
                true => below = place,
                false => at_most = at_most.min(place),
            }
        }
        let (low, high) = (STRIDES[below] as f64, STRIDES[at_most] as f64);
        let part = match high > low {
            true => (stride / low).ln() / (high / low).ln(),
            false => 0.0,
        };
        self.stretch_ns[below] + part * (self.stretch_ns[at_most] - self.stretch_ns[below])
    }

    /// The factor on the time of work while this number of processors work, this one included.
    pub fn slowness(&self, working: usize) -> f64 {
        match self.processors {
            0 | 1 => 1.0,
            all => {
                let others = working.clamp(1, all) - 1;
                1.0 + self.crowding * others as f64 / (all - 1) as f64
            }
        }
    }
}

impl Preset {
    /// The machine as calls see it that go around the page cache, if it has a section `around`.
    pub fn around_page_cache(&self) -> Option<Preset> {
        let Around { disk, file_system } = self.around.clone()?;
        let mut spread = self.spread.clone();
        spread.retain(|key, _| !key.starts_with("disk.") && !key.starts_with("file_system."));
        for (key, given) in &self.spread {
            if let Some(key) = key.strip_prefix("around.") {
                spread.insert(key.into(), *given);
            }
        }
        spread.retain(|key, _| !key.starts_with("around."));
        Some(Preset {
            disk,
            file_system: Some(file_system),
            around: None,
            spread,
            ..self.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Host {
        Host {
            processors: 3,
            clients: 4,
            crowding: 0.5,
            message_latency_us: 1.0,
            message_bytes_per_second: 1,
            copy_us: 0.0,
            copy_ns_per_byte: 0.0,
            stretch_ns: [1.0, 2.0, 4.0, 8.0, 16.0],
            calls: Calls::default(),
        }
    }

    #[test]
    fn nodes_have_hosts() {
        let hosts: Vec<_> = (0..13).map(|node| host().of(node, 9)).collect();
        assert_eq!(hosts, [0, 0, 0, 0, 1, 1, 1, 1, 2, 0, 1, 2, 0]);
        assert_eq!(host().count(9), 3);
        let all = Host {
            clients: 0,
            ..host()
        };
        assert!((0..13).all(|node| all.of(node, 9) == 0) && all.count(9) == 1);
    }

    #[test]
    fn stretches_between_the_strides_that_were_measured() {
        for (apart, ns) in [
            (0.0, 1.0),
            (8.0, 1.0),
            (16.0, 2.0),
            (32.0, 3.0),
            (64.0, 4.0),
            (512.0, 8.0),
            (4096.0, 16.0),
            (1e9, 16.0),
        ] {
            assert!((host().stretch_ns(apart) - ns).abs() < 1e-9, "{apart}");
        }
    }

    #[test]
    fn a_crowded_host_is_slower() {
        let slowness: Vec<_> = (0..5).map(|working| host().slowness(working)).collect();
        assert_eq!(slowness, [1.0, 1.0, 1.25, 1.5, 1.5]);
    }
}
