//! `penstock top`: what the servers of a volume do, again and again.

use std::fmt::Write;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use penstock_files::job::observer::{Observation, Observer};
use penstock_files::metrics::{
    DiskKind, DoorCounts, Histogram, RequestKind, Snapshot, Turnover, WaitKind,
};
use penstock_net::Call;
use serde_json::{Map, Value, json};

use crate::arguments::Top;
use crate::failure::Failure;
use crate::output;

/// The least and the greatest time from one look to the next, in seconds.
const INTERVAL_MIN: f64 = 0.01;
const INTERVAL_MAX: f64 = 86_400.0;

/// What a terminal does: go to the first place, forget the rest of a line, forget what is below.
const HOME: &str = "\x1b[H";
const END_OF_LINE: &str = "\x1b[K";
const BELOW: &str = "\x1b[J";

/// What was seen of all servers.
struct View {
    /// Since the servers began.
    all: Snapshot,
    /// Since the look before.
    recent: Snapshot,
    /// The seconds since then.
    seconds: f64,
    /// The servers that do not answer, and why.
    missing: Vec<(usize, String)>,
}

/// The row of a client or of a file, which is a user's.
struct Row<N> {
    user: u32,
    name: N,
    /// Since the look before.
    recent: Turnover,
    all: Turnover,
}

/// Looks at servers, and remembers what it saw last.
struct Looks {
    observer: Observer,
    before: Vec<Snapshot>,
    at: Instant,
}

impl Looks {
    fn new(observer: Observer) -> Self {
        Self {
            observer,
            before: Vec::new(),
            at: Instant::now(),
        }
    }

    /// Looks at all servers. The first look sees what was since they began.
    fn look(&mut self) -> View {
        let seen = self.observer.look();
        let is_first = self.before.is_empty();
        self.before.resize(seen.len(), Snapshot::default());
        let seconds = self.at.elapsed().as_secs_f64();
        self.at = Instant::now();
        let mut view = View::of(seen, &mut self.before);
        view.seconds = match is_first {
            true => view.all.age_ns as f64 / 1e9,
            false => seconds,
        };
        view
    }
}

impl View {
    /// The sums of what servers say, and of what has come since `before`.
    fn of(seen: Vec<Observation>, before: &mut [Snapshot]) -> Self {
        let mut view = Self {
            all: Snapshot::default(),
            recent: Snapshot::default(),
            seconds: 0.0,
            missing: Vec::new(),
        };
        for (server, (one, before)) in seen.into_iter().zip(before).enumerate() {
            match one {
                Ok(now) => {
                    view.all.add(&now);
                    view.recent.add(&now.since(before));
                    *before = now;
                }
                Err(error) => view.missing.push((server, error.to_string())),
            }
        }
        view
    }

    fn per_second(&self, count: u64) -> f64 {
        match self.seconds > 0.0 {
            true => count as f64 / self.seconds,
            false => 0.0,
        }
    }

    /// The part of wanted blocks that were in memory.
    fn hit_rate(&self) -> Option<f64> {
        let cache = &self.recent.cache;
        let wanted = cache.hits + cache.misses;
        (wanted > 0).then(|| cache.hits as f64 / wanted as f64)
    }

    /// The callers of all server processes together.
    fn door(&self) -> DoorCounts {
        let mut all = DoorCounts::default();
        for door in self.all.doors.values() {
            // A client is connected with all processes.
            all.clients = all.clients.max(door.clients);
            for (sum, more) in [
                (&mut all.refused, &door.refused),
                (&mut all.cut_off, &door.cut_off),
            ] {
                for (reason, count) in more {
                    *sum.entry(reason.clone()).or_default() += count;
                }
            }
        }
        all
    }

    /// The rows of clients by their nodes, the busiest first.
    fn clients(&self) -> Vec<Row<String>> {
        let rows = self.recent.clients.iter().map(|row| {
            let mut all = self.all.clients.iter();
            let all = all.find(|all| all.node == row.node);
            Row {
                user: row.user,
                name: format!("{:016x}", row.node),
                recent: row.turnover,
                all: all.map_or(row.turnover, |all| all.turnover),
            }
        });
        busiest(rows.collect())
    }

    /// The rows of files by their identities, and paths if these are known; the busiest first.
    fn files(&self) -> Vec<Row<(String, Option<String>)>> {
        let rows = self.recent.files.iter().map(|row| {
            let mut all = self.all.files.iter();
            let all = all.find(|all| all.id == row.id);
            Row {
                user: row.owner,
                name: (format!("{:016x}", row.id.0), row.path.clone()),
                recent: row.turnover,
                all: all.map_or(row.turnover, |all| all.turnover),
            }
        });
        busiest(rows.collect())
    }

    /// All as a JSON object.
    fn json(&self) -> Value {
        let (all, recent) = (&self.all, &self.recent);
        let door = self.door();
        let kinds = RequestKind::ALL.iter().filter_map(|&kind| {
            let (counts, now) = (all.kind(kind), recent.kind(kind));
            (counts.times.count() > 0).then(|| {
                let told = json!({
                    "requests": counts.times.count(),
                    "failed": counts.failed,
                    "bytes": counts.bytes,
                    "requests_per_second": self.per_second(now.times.count()),
                    "median_us": quantile(&now.times, 0.5),
                    "p99_us": quantile(&now.times, 0.99),
                });
                (kind.name().to_string(), told)
            })
        });
        let waiting = WaitKind::ALL.iter().zip(&all.waiting);
        let waiting = waiting.map(|(kind, count)| (kind.name().to_string(), json!(count)));
        let waits = [WaitKind::Token, WaitKind::Turn].map(|kind| {
            let (counts, now) = (&all.waits[kind as usize], &recent.waits[kind as usize]);
            let told = json!({
                "count": counts.count,
                "seconds": counts.ns as f64 / 1e9,
                "per_second": self.per_second(now.count),
            });
            (kind.name().to_string(), told)
        });
        let disks = DiskKind::ALL.iter().zip(&all.disks).zip(&recent.disks);
        let disks = disks.map(|((kind, counts), now)| {
            let told = json!({
                "operations": counts.count,
                "failed": counts.failed,
                "bytes": counts.bytes,
                "seconds": counts.ns as f64 / 1e9,
                "bytes_per_second": self.per_second(now.bytes),
            });
            (kind.name().to_string(), told)
        });
        let clients = self.clients().into_iter().map(|row| {
            let label = json!({"user": row.user, "client": row.name});
            self.row(label, &row)
        });
        let files = self.files().into_iter().map(|row| {
            let (file, path) = &row.name;
            let label = json!({"owner": row.user, "file": file, "path": path});
            self.row(label, &row)
        });
        let missing = self.missing.iter();
        let missing = missing.map(|(server, why)| json!({"server": server, "reason": why}));
        json!({
            "servers": all.servers,
            "ready": all.ready,
            "missing": missing.collect::<Vec<_>>(),
            "seconds": self.seconds,
            "requests": all.requests(),
            "failed": all.failed(),
            "read_bytes": all.read_bytes(),
            "written_bytes": all.written_bytes(),
            "requests_per_second": self.per_second(recent.requests()),
            "read_bytes_per_second": self.per_second(recent.read_bytes()),
            "written_bytes_per_second": self.per_second(recent.written_bytes()),
            "cache": {
                "hits": all.cache.hits,
                "misses": all.cache.misses,
                "fetched": all.cache.fetched,
                "evictions": all.cache.evictions,
                "hit_rate": self.hit_rate(),
                "bytes": all.cache.bytes,
                "changed_bytes": all.cache.changed_bytes,
                "bytes_max": all.cache.bytes_max,
            },
            "tasks": all.tasks,
            "waiting": Value::Object(waiting.collect()),
            "waits": Value::Object(waits.into_iter().collect()),
            "disks": Value::Object(disks.collect()),
            "kinds": Value::Object(kinds.collect::<Map<_, _>>()),
            "calls": self.calls(),
            "connected": door.clients,
            "refused": door.refused,
            "cut_off": door.cut_off,
            "has_all_rows": all.has_all_rows(),
            "clients": clients.collect::<Vec<_>>(),
            "files": files.collect::<Vec<_>>(),
            "other_clients": all.other_clients.map(|other| turnover(&other)),
            "other_files": all.other_files.map(|other| turnover(&other)),
        })
    }

    /// The calls on arrays, if the servers serve some.
    fn calls(&self) -> Value {
        let Some((all, recent)) = self.all.all_calls().zip(self.recent.all_calls()) else {
            return Value::Null;
        };
        let kinds = all.kinds.iter().map(|(kind, counts)| {
            let now = recent.kinds.get(kind).copied().unwrap_or_default();
            let told = json!({
                "calls": counts.count,
                "failed": counts.failed,
                "bytes": counts.disk_bytes,
                "seconds": counts.ns as f64 / 1e9,
                "calls_per_second": self.per_second(now.count),
                "bytes_per_second": self.per_second(now.disk_bytes),
            });
            (kind.clone(), told)
        });
        json!({
            "kinds": Value::Object(kinds.collect()),
            "open": all.open,
            "handed_over": all.handed_over,
            "left": all.left,
        })
    }

    /// A row with its numbers.
    fn row<N>(&self, label: Value, row: &Row<N>) -> Value {
        let now = &row.recent;
        let rates = json!({
            "requests_per_second": self.per_second(now.requests),
            "read_bytes_per_second": self.per_second(now.read_bytes),
            "written_bytes_per_second": self.per_second(now.written_bytes),
        });
        let parts = [label, turnover(&row.all), rates].into_iter();
        let parts = parts.filter_map(|part| match part {
            Value::Object(fields) => Some(fields),
            _ => None,
        });
        Value::Object(parts.flatten().collect())
    }

    /// All as text, with this many rows.
    fn text(&self, rows_max: usize) -> String {
        let mut text = String::new();
        // Writing into a String cannot fail.
        let _ = self.write_head(&mut text);
        let _ = self.write_kinds(&mut text);
        let _ = self.write_calls(&mut text);
        let other = self.recent.other_clients;
        let _ = self.write_rows(&mut text, "user  client", self.clients(), other, rows_max);
        let files = self.files().into_iter().map(|row| {
            let (file, path) = row.name;
            Row {
                name: path.map_or(file, |path| printable(&path)),
                user: row.user,
                recent: row.recent,
                all: row.all,
            }
        });
        let other = self.recent.other_files;
        let files: Vec<_> = files.collect();
        let _ = self.write_rows(&mut text, "owner  file", files, other, rows_max);
        text
    }

    fn write_head(&self, text: &mut String) -> std::fmt::Result {
        let (all, recent) = (&self.all, &self.recent);
        let door = self.door();
        let servers = all.servers + self.missing.len() as u64;
        let (ready, clients, seconds) = (all.ready, door.clients, self.seconds);
        writeln!(
            text,
            "{ready} of {servers} servers serve   {clients} clients   in the last {seconds:.1} s:"
        )?;
        for (server, why) in &self.missing {
            writeln!(text, "server {server} does not answer: {}", printable(why))?;
        }
        let hits = self
            .hit_rate()
            .map_or("-".to_string(), |rate| format!("{:.1} %", 100.0 * rate));
        writeln!(
            text,
            "requests {:.0}/s   read {}   written {}   failed {:.0}/s",
            self.per_second(recent.requests()),
            rate(self.per_second(recent.read_bytes())),
            rate(self.per_second(recent.written_bytes())),
            self.per_second(recent.failed()),
        )?;
        let cache = &all.cache;
        writeln!(
            text,
            "cache    in memory {hits}   {} of {} used, {} to be written   {:.0} blocks/s gone",
            size(cache.bytes),
            size(cache.bytes_max),
            size(cache.changed_bytes),
            self.per_second(recent.cache.evictions),
        )?;
        write!(text, "disks   ")?;
        for (kind, now) in DiskKind::ALL.iter().zip(&recent.disks) {
            let (name, count) = (kind.name(), self.per_second(now.count));
            write!(text, " {name} {count:.0}/s")?;
            if now.bytes > 0 {
                write!(text, ", {}", rate(self.per_second(now.bytes)))?;
            }
            write!(text, "  ")?;
        }
        write!(text, "\nwaiting ")?;
        for (kind, count) in WaitKind::ALL.iter().zip(&all.waiting) {
            write!(text, " {} {count}  ", kind.name())?;
        }
        write!(text, "\nwaits   ")?;
        for kind in [WaitKind::Token, WaitKind::Turn] {
            let now = &recent.waits[kind as usize];
            let each = match now.count {
                0 => "-".to_string(),
                count => format!("{:.1} us", now.ns as f64 / 1e3 / count as f64),
            };
            let (name, count) = (kind.name(), self.per_second(now.count));
            write!(text, " {name} {count:.0}/s, each {each}  ")?;
        }
        writeln!(text)
    }

    fn write_kinds(&self, text: &mut String) -> std::fmt::Result {
        let head = ["requests/s", "median us", "99 % us", "failed/s"];
        write!(text, "\n{:<12}", "kind")?;
        head.iter()
            .try_for_each(|word| write!(text, "{word:>12}"))?;
        writeln!(text)?;
        for kind in RequestKind::ALL {
            let counts = self.recent.kind(kind);
            let (Some(median), Some(p99)) =
                (quantile(&counts.times, 0.5), quantile(&counts.times, 0.99))
            else {
                continue;
            };
            let requests = self.per_second(counts.times.count());
            let failed = self.per_second(counts.failed);
            writeln!(
                text,
                "{:<12}{requests:>12.1}{median:>12.1}{p99:>12.1}{failed:>12.1}",
                kind.name()
            )?;
        }
        Ok(())
    }

    fn write_calls(&self, text: &mut String) -> std::fmt::Result {
        let Some(recent) = self.recent.all_calls() else {
            return Ok(());
        };
        write!(text, "\n{:<16}", "call on arrays")?;
        let head = ["calls/s", "each ms", "MB/s", "failed/s"];
        head.iter()
            .try_for_each(|word| write!(text, "{word:>11}"))?;
        let (open, handed_over, left) = (recent.open, recent.handed_over, recent.left);
        writeln!(
            text,
            "   under way: {open}, handed over: {handed_over}, and left: {left}"
        )?;
        let busy = recent.kinds.iter().filter(|(_, now)| now.count > 0);
        for (kind, now) in busy {
            writeln!(
                text,
                "{:<16}{:>11.1}{:>11.3}{:>11.3}{:>11.1}",
                printable(kind),
                self.per_second(now.count),
                now.ns as f64 / 1e6 / now.count as f64,
                self.per_second(now.disk_bytes) / 1e6,
                self.per_second(now.failed),
            )?;
        }
        Ok(())
    }

    fn write_rows(
        &self,
        text: &mut String,
        head: &str,
        rows: Vec<Row<String>>,
        other: Option<Turnover>,
        rows_max: usize,
    ) -> std::fmt::Result {
        let words = ["requests/s", "read MB/s", "written MB/s"];
        writeln!(text)?;
        words
            .iter()
            .try_for_each(|word| write!(text, "{word:>13}"))?;
        writeln!(text, "  {head}")?;
        let busy = rows
            .into_iter()
            .filter(|row| row.recent != Turnover::default());
        let busy = busy.take(rows_max);
        let busy = busy.map(|row| (format!("{}  {}", row.user, row.name), row.recent));
        let other = other.filter(|now| *now != Turnover::default());
        for (name, now) in busy.chain(other.map(|now| ("others".to_string(), now))) {
            writeln!(
                text,
                "{:>13.1}{:>13.3}{:>13.3}  {name}",
                self.per_second(now.requests),
                self.per_second(now.read_bytes) / 1e6,
                self.per_second(now.written_bytes) / 1e6,
            )?;
        }
        Ok(())
    }
}

/// Rows with the busiest first: by bytes, and then by requests.
fn busiest<N: Ord>(mut rows: Vec<Row<N>>) -> Vec<Row<N>> {
    let load = |row: &Row<N>| {
        let now = &row.recent;
        let bytes = now.read_bytes.saturating_add(now.written_bytes);
        std::cmp::Reverse((bytes, now.requests))
    };
    rows.sort_by(|one, other| (load(one), &one.name).cmp(&(load(other), &other.name)));
    rows
}

fn turnover(all: &Turnover) -> Value {
    json!({
        "requests": all.requests,
        "read_bytes": all.read_bytes,
        "written_bytes": all.written_bytes,
        "seconds": all.ns as f64 / 1e9,
    })
}

/// A quantile in microseconds.
fn quantile(times: &Histogram, part: f64) -> Option<f64> {
    times.quantile_ns(part).map(|ns| ns / 1e3)
}

fn rate(bytes_per_second: f64) -> String {
    format!("{:.1} MB/s", bytes_per_second / 1e6)
}

fn size(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// A text without characters that move a terminal's cursor.
fn printable(text: &str) -> String {
    text.replace(|char: char| char.is_control(), "?")
}

/// Shows what servers do, until the reader has gone.
pub(crate) fn run(asked: &Top) -> Result<(), Failure> {
    if !(INTERVAL_MIN..=INTERVAL_MAX).contains(&asked.interval) {
        let cause = format!(
            "--interval is {}: take {INTERVAL_MIN} to {INTERVAL_MAX}",
            asked.interval
        );
        return Err(Failure::input(cause));
    }
    let call = Call::of_url(&asked.url, None)?;
    let call = call.ok_or_else(|| Failure::input(format!("{} is no URL", asked.url)))?;
    let mut looks = Looks::new(Observer::new(&call)?);
    let first = looks.look();
    if asked.once {
        show(asked, &first)?;
        return match first.missing.is_empty() {
            true => Ok(()),
            false => Err(Failure::silent(1)),
        };
    }
    loop {
        looks.observer.wait(Duration::from_secs_f64(asked.interval));
        show(asked, &looks.look())?;
    }
}

fn show(asked: &Top, view: &View) -> Result<(), Failure> {
    if asked.json {
        return output::text(&format!("{}\n", view.json()));
    }
    let text = view.text(asked.rows);
    if asked.once || !std::io::stdout().is_terminal() {
        return output::text(&text);
    }
    let lines = text.lines().map(|line| format!("{line}{END_OF_LINE}\n"));
    let lines: String = lines.collect();
    output::text(&format!("{HOME}{lines}{BELOW}"))
}

#[cfg(test)]
mod tests {
    use penstock_engine::collective::counts::{CallCounts, KindOfCall};
    use penstock_engine::{Error, Kind};

    use super::*;

    #[test]
    fn a_view_has_sums_rates_and_those_who_are_missing() {
        let mut now = Snapshot {
            servers: 1,
            ready: 1,
            age_ns: 4_000_000_000,
            ..Snapshot::default()
        };
        now.kinds[RequestKind::Read as usize].bytes = 8192;
        now.cache.hits = 3;
        now.cache.misses = 1;
        now.doors.insert(
            0,
            DoorCounts {
                clients: 2,
                ..DoorCounts::default()
            },
        );
        let write = KindOfCall {
            count: 8,
            failed: 1,
            ns: 16_000_000,
            disk_bytes: 4_000_000,
        };
        let calls = CallCounts {
            kinds: [("write".to_string(), write)].into(),
            left: 1,
            ..CallCounts::default()
        };
        now.calls.insert(0, calls);
        let lost = Error::new(Kind::Peer, "asking", "it is\x1b[2J gone");
        let mut before = vec![Snapshot::default(); 2];
        let mut view = View::of(vec![Ok(now.clone()), Err(lost)], &mut before);
        view.seconds = 4.0;
        assert_eq!(before[0], now);
        let told = view.json();
        assert_eq!(told["read_bytes"], 8192);
        assert_eq!(told["read_bytes_per_second"], 2048.0);
        assert_eq!(told["cache"]["hit_rate"], 0.75);
        assert_eq!(
            (&told["servers"], &told["connected"]),
            (&json!(1), &json!(2))
        );
        assert_eq!(told["missing"][0]["server"], 1);
        let calls = &told["calls"];
        assert_eq!((&calls["left"], &calls["open"]), (&json!(1), &json!(0)));
        assert_eq!(calls["kinds"]["write"]["bytes_per_second"], 1e6);
        let text = view.text(5);
        assert!(
            text.starts_with("1 of 2 servers serve   2 clients"),
            "{text}"
        );
        assert!(!text.contains('\x1b'), "{text}");
        let calls = text.lines().find(|line| line.starts_with("write  "));
        let numbers = calls.map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>());
        assert_eq!(numbers.unwrap(), ["2.0", "2.000", "1.000", "0.2"]);
        // Nothing has come since.
        let again = View::of(vec![Ok(now)], &mut before[..1]);
        assert_eq!(
            (again.all.read_bytes(), again.recent.read_bytes()),
            (8192, 0)
        );
        assert_eq!(again.hit_rate(), None);
    }

    #[test]
    fn the_busiest_come_first() {
        let of = |requests, read_bytes| Turnover {
            requests,
            read_bytes,
            ..Turnover::default()
        };
        let rows = [
            ("a", of(9, 0)),
            ("b", of(1, 5)),
            ("c", of(1, 7)),
            ("d", of(9, 0)),
        ];
        let rows = rows.map(|(name, now)| Row {
            user: 0,
            name,
            recent: now,
            all: now,
        });
        let rows = busiest(rows.into_iter().collect());
        let names: Vec<_> = rows.iter().map(|row| row.name).collect();
        assert_eq!(names, ["c", "b", "a", "d"]);
    }
}
