//! The calls a second that the models answer, for the simulator's two million events a second.
//!
//! `cargo test --release -p penstock-sim --test all speed -- --ignored --nocapture`

use std::time::Instant;

use crate::common::*;
use penstock_sim::network::{Contention, TorusParameters, parts};
use penstock_sim::{FatTree, Random, Span, Time, Torus};

fn rate(what: &str, calls: u64, mut call: impl FnMut(u64)) {
    let begun = Instant::now();
    (0..calls).for_each(&mut call);
    println!(
        "{what:<40} {:>7.1} million/s",
        calls as f64 / begun.elapsed().as_secs_f64() / 1e6
    );
}

#[test]
#[ignore = "measures time; run it alone, in release"]
fn calls_a_second() {
    let hp = hp();
    let blocks = hp.sectors() / BLOCK_SECTORS;
    let mut host = Host::new(&hp, Span::ZERO);
    rate("disk, contiguous 8 KB reads", 2_000_000, |k| {
        host.read(k % blocks * BLOCK_SECTORS);
    });
    let mut host = Host::new(&hp, Span::ZERO);
    rate("disk, contiguous 8 KB writes", 2_000_000, |k| {
        host.write(k % blocks * BLOCK_SECTORS);
    });
    let (mut host, mut random) = (Host::new(&hp, Span::ZERO), Random::new(1));
    rate("disk, random 8 KB reads", 1_000_000, |_| {
        host.read(random.below(blocks) * BLOCK_SECTORS);
    });
    for contention in [Contention::Exact, Contention::Stochastic] {
        let parameters = TorusParameters {
            contention,
            ..parts::kotz_torus()
        };
        let mut torus = Torus::new(&parameters, Random::new(1)).unwrap();
        rate(&format!("torus, {contention:?}, 8 B"), 5_000_000, |k| {
            let (from, to) = (random.below(36) as u32, random.below(36) as u32);
            torus.deliver(Time::ZERO + Span::from_ns(k * 500), from, to, 8);
        });
    }
    let mut tree = FatTree::new(&parts::hdr_fat_tree(100_000)).unwrap();
    rate("fat tree, 100,000 nodes, 8 B", 5_000_000, |k| {
        let (from, to) = (random.below(100_000) as u32, random.below(100_000) as u32);
        tree.deliver(Time::ZERO + Span::from_ns(k), from, to, 8);
    });
}
