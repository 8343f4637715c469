//! Vesta.

mod run;
mod sort;
mod volume;

pub use run::{CACHE_BYTES, Case, Part, Seconds, Way};

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_sim::preset::Preset;

    #[test]
    fn sorts() {
        let preset = Preset::find("sp1-vesta").unwrap();
        for block_records in [512, 1024, 4096, 16384] {
            let line = [1, 2, 4, 8].map(|servers| {
                let case = sort::SortCase { servers, block_records, records: sort::RECORDS };
                case.run(&preset, 0).unwrap()
            });
            println!("{block_records}: {line:.1?} {:.2?}", line.map(|s| line[0] / s));
        }
    }

    #[test]
    fn probe() {
        let preset = Preset::find("sp1-vesta").unwrap();
        let mb: u64 = std::env::var("MB").map_or(16, |mb| mb.parse().unwrap());
        let sizes = std::env::var("SIZES").unwrap_or("1024,65536".into());
        let inside = std::env::var("INSIDE").is_ok();
        let nodes = std::env::var("NODES").unwrap_or("1,1".into());
        let (clients, servers) = nodes.split_once(',').unwrap();
        let way = match std::env::var("WAY").unwrap_or_default().as_str() {
            "sequence" => Way::Sequence,
            "cyclic" => Way::Cyclic,
            "striped" => Way::Striped,
            _ => Way::Cells,
        };
        for size in sizes.split(',') {
            let case = Case {
                clients: clients.parse().unwrap(),
                servers: servers.parse().unwrap(),
                way,
                access_bytes: size.parse().unwrap(),
                cell_bytes: mb << 20,
                is_synced: mb > 32,
                is_inside: inside,
                is_rewritten: true,
                is_read: true,
            };
            let began = std::time::Instant::now();
            let s = case.run(&preset, 0).unwrap();
            let parts = [Part::FirstWrite, Part::SecondWrite, Part::Read];
            let line = parts.map(|p| {
                let s = p.of(&s);
                format!("{}: {:.3} MB/s {:.4} ms", p.name(), case.mb_s(s), case.access_ms(s))
            });
            println!("{size}: {} in {:?}", line.join("  "), began.elapsed());
        }
    }
}
