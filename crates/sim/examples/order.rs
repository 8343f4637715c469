use penstock_sim::experiment::*;
use penstock_sim::preset::Preset;
use penstock_sim::trace::Part;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let preset = Preset::find(&args[1]).unwrap();
    let e = Experiment { preset: &preset, pattern: args[2].parse().unwrap(), record_bytes: args[3].parse().unwrap(), layout: Layout::Contiguous, method: if args[4]=="tc" {Method::Caching} else {Method::DdioSort}, trial: 0 };
    let (o, t) = e.run_traced().unwrap();
    println!("{:.2}", o.throughput_mb_s());
    for d in 0..16 {
        let seq: Vec<u64> = t.records.iter().filter(|r| r.part == Part::Disk(d) && (r.what=="read"||r.what=="write"||r.what=="hit")).map(|r| r.block.unwrap()).collect();
        let last = t.records.iter().filter(|r| r.part == Part::Disk(d)).map(|r| r.interval.end).max().unwrap();
        println!("disk {d} end {:.1} ms: {:?}", last.as_seconds_f64()*1e3, &seq[..]);
    }
}
