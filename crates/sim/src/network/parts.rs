//! Known networks, every number with its source. The marks are explained in [`crate::disk::parts`].

use super::{Contention, FatTreeParameters, TorusParameters};

/// The network of Kotz's simulations, without its software.
///
/// | number | value | source |
/// |---|---|---|
/// | topology | 6 x 6 torus | TR94-226, Table 1; TOCS 1997, Table I **S** |
/// | bandwidth | 200e6 bytes/s, each direction of each link | both **S** |
/// | router | 20 ns | both **S** |
/// | contention | stochastic, as in all published experiments | both, section 4.1 **S** |
/// | window of the stochastic mode | 1 ms: some 25 messages of 8 KB on a busy link | **E** |
pub fn kotz_torus() -> TorusParameters {
    TorusParameters {
        side: 6,
        bytes_per_second: 200_000_000,
        router_latency_ns: 20.0,
        contention: Contention::Stochastic,
        window_us: 1000.0,
    }
}

/// InfiniBand HDR, 200 Gb/s a port, a fat tree of 40-port switches.
///
/// Sources: Lenovo Press, LP1195, on the ConnectX-6 HDR adapters (L); mellanoxnetwork.com on the
/// QM8790 switch (M).
///
/// | number | value | source |
/// |---|---|---|
/// | port | 200e9 / 8 bytes/s | L **S** |
/// | switch | 130 ns | NVIDIA Mellanox QM8700 data sheet **R** |
/// | adapters | 600 ns, both together | "sub-600 nanosecond latency", L **S** |
/// | nodes per leaf, leaves per pod | 20, 20: half of 40 ports (M **S**) down | **D** |
pub fn hdr_fat_tree(nodes: u32) -> FatTreeParameters {
    FatTreeParameters {
        nodes,
        nodes_per_leaf: 20,
        leaves_per_pod: 20,
        bytes_per_second: 25_000_000_000,
        adapter_latency_ns: 600.0,
        switch_latency_ns: 130.0,
    }
}

/// The Ethernet of a cloud's virtual machines, 10 Gb/s each.
///
/// Source: AWS, "Amazon EC2 instance network bandwidth", in the EC2 User Guide (NB).
///
/// | number | value | source |
/// |---|---|---|
/// | port | 10e9 / 8 bytes/s: m5.8xlarge, and one flow in a cluster placement group | NB **S** |
/// | adapters, with the hypervisors' part | 20 us, both together | **E** |
/// | switch | 1 us | **E** |
/// | nodes per leaf, leaves per pod | 32, 32 | **E** |
pub fn cloud_10_gb(nodes: u32) -> FatTreeParameters {
    FatTreeParameters {
        nodes,
        nodes_per_leaf: 32,
        leaves_per_pod: 32,
        bytes_per_second: 1_250_000_000,
        adapter_latency_ns: 20_000.0,
        switch_latency_ns: 1_000.0,
    }
}
