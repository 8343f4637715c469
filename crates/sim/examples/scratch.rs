use penstock_sim::experiment::*;
use penstock_sim::preset::Preset;
use std::time::Instant;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let preset = Preset::find(&args[1]).unwrap();
    let trials: u64 = args[2].parse().unwrap();
    for spec in &args[3..] {
        let f: Vec<&str> = spec.split(',').collect();
        let layout = match f[0] { "c" => Layout::Contiguous, "r" => Layout::RandomBlocks, _ => Layout::RandomTracks };
        let method = match f[3] { "tc" => Method::Caching, "2p" => Method::TwoPhase, "dd" => Method::Ddio, _ => Method::DdioSort };
        let t = Instant::now();
        let mut mb = vec![]; let mut ev = 0;
        let mut last = None;
        for trial in 0..trials {
            let e = Experiment { preset: &preset, pattern: f[1].parse().unwrap(), record_bytes: f[2].parse().unwrap(), layout, method, trial };
            let o = e.run().unwrap();
            mb.push(o.throughput_mb_s()); ev += o.events; last = Some(o);
        }
        let w = t.elapsed().as_secs_f64();
        let mean = mb.iter().sum::<f64>() / mb.len() as f64;
        let o = last.unwrap();
        println!("{spec:16} {mean:8.2} MB/s  {:.2}..{:.2} events {ev} {:.2} M/s wall {w:.2} blocks {} msgs {}", mb.iter().cloned().fold(f64::MAX, f64::min), mb.iter().cloned().fold(0.0, f64::max), ev as f64 / w / 1e6, o.blocks, o.messages);
    }
}
