use penstock_sim::experiment::*;
use penstock_sim::preset::Preset;
use penstock_sim::trace::Part;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let preset = Preset::find(&args[1]).unwrap();
    let e = Experiment { preset: &preset, pattern: args[2].parse().unwrap(), record_bytes: args[3].parse().unwrap(), layout: Layout::Contiguous, method: if args[4]=="tc" {Method::Caching} else {Method::DdioSort}, trial: 0 };
    let (_, t) = e.run_traced().unwrap();
    let node: usize = args[5].parse().unwrap();
    for r in t.records.iter().filter(|r| node == r.node && (matches!(r.part, Part::Disk(_)|Part::Bus) || r.what=="disk")).take(160) { println!("{} {:?} {} {:.3}..{:.3} {:?}", r.node, r.part, r.what, r.interval.start.as_seconds_f64()*1e3, r.interval.end.as_seconds_f64()*1e3, r.block); }
}
