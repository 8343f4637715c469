use penstock_sim::experiment::*;
use penstock_sim::preset::Preset;
use penstock_sim::trace::Part;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let mut preset = Preset::find(&args[1]).unwrap();
    preset.file.bytes = args[5].parse().unwrap();
    let e = Experiment { preset: &preset, pattern: args[2].parse().unwrap(), record_bytes: args[3].parse().unwrap(), layout: Layout::Contiguous, method: if args[4]=="tc" {Method::Caching} else {Method::DdioSort}, trial: 0 };
    let (o, t) = e.run_traced().unwrap();
    println!("{}", o.throughput_mb_s());
    let end = t.records.iter().map(|r| r.interval.end.as_seconds_f64()).fold(0.0, f64::max);
    for k in 0..20 {
        let from = end * k as f64 / 20.0; let to = from + 0.001;
        let mut busy = vec![0.0; 32];
        for r in t.records.iter().filter(|r| matches!(r.part, Part::Cpu)) {
            let (s, e) = (r.interval.start.as_seconds_f64(), r.interval.end.as_seconds_f64());
            if s < to && e > from { busy[r.node] += e.min(to) - s.max(from); }
        }
        println!("{:.4}: {}", from, busy.iter().map(|b| format!("{:3.0}", b*1e5)).collect::<Vec<_>>().join(" "));
    }
}
