//! Traces for people: for ui.perfetto.dev, and as the way of a disk's arm.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};

use super::StudyError;
use super::text::Grid;
use penstock_sim::time::{Interval, Span, Time};
use penstock_sim::trace::{Part, Record, Trace};

/// A trace in Chrome's JSON format, "JSON Object Format" of the Trace Event Format: a process for
/// each node, a thread for each of its parts, a complete event for each record.
pub struct Chrome<'a> {
    pub trace: &'a Trace,
    /// The number of clients, which are the first nodes; the others are I/O nodes.
    pub clients: usize,
}

impl Serialize for Chrome<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut file = serializer.serialize_map(Some(2))?;
        file.serialize_entry("displayTimeUnit", "ms")?;
        file.serialize_entry("traceEvents", &Events(self))?;
        file.end()
    }
}

struct Events<'a>(&'a Chrome<'a>);

impl Serialize for Events<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut events = serializer.serialize_seq(None)?;
        for name in self.0.names() {
            events.serialize_element(&name)?;
        }
        for record in &self.0.trace.records {
            events.serialize_element(&Event::of(record))?;
        }
        events.end()
    }
}

/// The name of a process or a thread, or its place in the order.
#[derive(Serialize)]
struct Name {
    ph: &'static str,
    name: &'static str,
    pid: usize,
    tid: u64,
    args: NameArgs,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum NameArgs {
    Name(String),
    SortIndex(u64),
}

/// An action that took `dur` microseconds from `ts` on.
#[derive(Serialize)]
struct Event {
    ph: &'static str,
    name: &'static str,
    pid: usize,
    tid: u64,
    ts: f64,
    dur: f64,
    args: EventArgs,
}

#[derive(Serialize)]
struct EventArgs {
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cylinder: Option<u32>,
}

impl Chrome<'_> {
    /// The names of all processes and threads in the trace.
    fn names(&self) -> Vec<Name> {
        let records = self.trace.records.iter();
        let threads: BTreeSet<(usize, u64, String)> = records
            .map(|record| (record.node, thread(record.part), part_name(record.part)))
            .collect();
        let nodes: BTreeSet<usize> = threads.iter().map(|(node, ..)| *node).collect();
        let named = |name, pid, tid, args| Name {
            ph: "M",
            name,
            pid,
            tid,
            args,
        };
        let mut names = Vec::new();
        for node in nodes {
            let name = match node.checked_sub(self.clients) {
                None => format!("client {node}"),
                Some(io_node) => format!("I/O node {io_node}"),
            };
            let place = NameArgs::SortIndex(node as u64);
            names.push(named("process_name", node, 0, NameArgs::Name(name)));
            names.push(named("process_sort_index", node, 0, place));
        }
        for (node, tid, name) in threads {
            let place = NameArgs::SortIndex(tid);
            names.push(named("thread_name", node, tid, NameArgs::Name(name)));
            names.push(named("thread_sort_index", node, tid, place));
        }
        names
    }
}

impl Event {
    fn of(record: &Record) -> Self {
        Self {
            ph: "X",
            name: record.what,
            pid: record.node,
            tid: thread(record.part),
            ts: microseconds(record.interval.start - Time::ZERO),
            dur: microseconds(record.interval.span()),
            args: EventArgs {
                block: record.block,
                cylinder: record.cylinder,
            },
        }
    }
}

/// The number of a part among the parts of its node.
fn thread(part: Part) -> u64 {
    match part {
        Part::Cpu => 1,
        Part::Bus => 2,
        // Disks have odd and buffers even numbers, so that neither runs into the other.
        Part::Disk(disk) => 3 + 2 * disk as u64,
        Part::Buffer(buffer) => 4 + 2 * buffer as u64,
    }
}

fn part_name(part: Part) -> String {
    match part {
        Part::Cpu => "CPU".into(),
        Part::Bus => "bus".into(),
        Part::Disk(disk) => format!("disk {disk}"),
        Part::Buffer(buffer) => format!("buffer {buffer}"),
    }
}

fn microseconds(span: Span) -> f64 {
    span.as_ps() as f64 / 1e6
}

/// A stop is a place of a disk's arm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Stop {
    /// The time in milliseconds.
    pub t_ms: f64,
    pub cylinder: u32,
    /// The action at the stop.
    pub what: &'static str,
}

/// The way of a disk's arm.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Seeks {
    pub disk: usize,
    /// The title of the run.
    pub title: String,
    /// The stops in order of time: both ends of each seek, the beginning of all other actions.
    pub points: Vec<Stop>,
}

impl Seeks {
    /// Makes the way of the arm of `disk`, from a trace with the title `title`.
    ///
    /// # Errors
    /// When there is no arm of that number, or the arm was not used.
    pub fn new(trace: &Trace, disk: usize, title: String) -> Result<Self, StudyError> {
        let mut points: Vec<Stop> = Vec::new();
        let of_disk = trace.records.iter().filter(|r| r.part == Part::Disk(disk));
        for record in of_disk {
            let Some(cylinder) = record.cylinder else {
                continue;
            };
            let stop = |at: Time, cylinder: u32| Stop {
                t_ms: (at - Time::ZERO).as_ms_f64(),
                cylinder,
                what: record.what,
            };
            if record.what == "seek" {
                let from = points.last().map(|last| last.cylinder);
                points.extend(from.map(|from| stop(record.interval.start, from)));
                points.push(stop(record.interval.end, cylinder));
            } else {
                points.push(stop(record.interval.start, cylinder));
            }
        }
        if points.is_empty() {
            return Err(StudyError::Input(format!(
                "disk {disk} has moved no arm: take another disk, of a preset whose disks turn"
            )));
        }
        Ok(Self {
            disk,
            title,
            points,
        })
    }
}

/// The share of a run in which the parts of one sort were busy.
///
/// A part is busy while it does at least one thing. A disk does several at once: it takes a command
/// in while the media stream on for the command before, and flash works at many commands. Time that
/// several actions share counts once, so that no part is busy for longer than the run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Busy {
    /// The sort of part.
    pub part: &'static str,
    /// The action of such a part while it is busy.
    pub does: &'static str,
    /// The number of parts that did anything.
    pub count: usize,
    /// The mean of the parts' busy time, as a part of the run: 0 to 1.
    pub mean: f64,
    /// The greatest of the parts' busy times, as a part of the run.
    pub max: f64,
}

/// The actions for which a part of each sort is busy.
const SORTS: [(&str, &str); 4] = [
    ("CPU", "runs software"),
    ("bus", "carries bytes"),
    (
        "disk",
        "works at a command (overhead, seek, rotation, media), not while it only reads ahead",
    ),
    ("buffer", "is filled or emptied, or waits for the disk"),
];

fn sort(part: Part) -> &'static str {
    match part {
        Part::Cpu => SORTS[0].0,
        Part::Bus => SORTS[1].0,
        Part::Disk(_) => SORTS[2].0,
        Part::Buffer(_) => SORTS[3].0,
    }
}

/// Measures how busy each sort of part was in a run that took `elapsed`. Parts that did nothing are
/// left out, and so are actions after the end of the run.
pub fn busy(trace: &Trace, elapsed: Span) -> Vec<Busy> {
    let end = Time::ZERO + elapsed;
    let mut parts = BTreeMap::<(usize, u64), (&'static str, Vec<Interval>)>::new();
    for record in &trace.records {
        let part = (record.node, thread(record.part));
        let (_, intervals) = parts
            .entry(part)
            .or_insert_with(|| (sort(record.part), Vec::new()));
        let Interval { start, end: last } = record.interval;
        if start < end {
            intervals.push(Interval::new(start, last.min(end)));
        }
    }
    let whole = elapsed.as_ps().max(1) as f64;
    let shares: Vec<(&str, f64)> = parts
        .into_values()
        .map(|(sort, intervals)| (sort, covered(intervals).as_ps() as f64 / whole))
        .collect();
    let of_sort = |(part, does)| {
        let mine = shares.iter().filter(|(sort, _)| *sort == part);
        let mine: Vec<f64> = mine.map(|(_, share)| *share).collect();
        Some(Busy {
            part,
            does,
            count: mine.len(),
            mean: mine.iter().sum::<f64>() / mine.len() as f64,
            max: mine.into_iter().max_by(f64::total_cmp)?,
        })
    };
    SORTS.into_iter().filter_map(of_sort).collect()
}

/// The time that lies in at least one of the intervals.
fn covered(mut intervals: Vec<Interval>) -> Span {
    intervals.sort_by_key(|interval| interval.start);
    let mut all = Span::ZERO;
    let mut until = Time::ZERO;
    for interval in intervals {
        let end = interval.end.max(until);
        all += end - interval.start.max(until);
        until = end;
    }
    all
}

/// The report of [`busy`], as aligned text.
pub struct Shares<'a> {
    pub busy: &'a [Busy],
    /// The time of the run.
    pub elapsed: Span,
}

impl fmt::Display for Shares<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut grid = Grid::default();
        let heads = ["busy", "parts", "mean", "most"];
        grid.row(heads.map(String::from));
        for busy in self.busy {
            grid.row([
                busy.part.into(),
                busy.count.to_string(),
                format!("{:.1} %", 100.0 * busy.mean),
                format!("{:.1} %", 100.0 * busy.max),
            ]);
        }
        writeln!(f, "{grid}")?;
        writeln!(
            f,
            "Busy: the part of the run, {:.6} s, in which a part does at least one thing. Parts that do nothing \
             are not counted.",
            self.elapsed.as_seconds_f64()
        )?;
        for busy in self.busy {
            writeln!(f, "A {} {}.", busy.part, busy.does)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn trace() -> Trace {
        let record = |node, part, what, from_us, to_us, cylinder| Record {
            node,
            part,
            what,
            interval: Interval::new(
                Time::ZERO + Span::from_us(from_us),
                Time::ZERO + Span::from_us(to_us),
            ),
            cylinder,
            block: (what == "media").then_some(7),
        };
        Trace {
            records: vec![
                record(0, Part::Cpu, "send", 0, 5, None),
                record(3, Part::Disk(1), "seek", 10, 2000, Some(40)),
                record(3, Part::Disk(1), "rotate", 2000, 3000, None),
                record(3, Part::Disk(1), "media", 3000, 6000, Some(40)),
                record(3, Part::Disk(1), "seek", 6000, 9000, Some(50)),
                record(3, Part::Bus, "data", 6000, 6800, None),
            ],
        }
    }

    #[test]
    fn opens_in_perfetto() {
        let trace = trace();
        let chrome = Chrome {
            trace: &trace,
            clients: 2,
        };
        let value = serde_json::to_value(&chrome).unwrap();
        let events = value["traceEvents"].as_array().unwrap();
        let names: Vec<&str> = events
            .iter()
            .filter(|event| event["ph"] == "M" && event["args"]["name"].is_string())
            .map(|event| event["args"]["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["client 0", "I/O node 1", "CPU", "bus", "disk 1"]);
        let media = events
            .iter()
            .find(|event| event["name"] == "media")
            .unwrap();
        assert_eq!(
            *media,
            json!({"ph": "X", "name": "media", "pid": 3, "tid": 5, "ts": 3000.0, "dur": 3000.0,
                   "args": {"block": 7, "cylinder": 40}})
        );
    }

    #[test]
    fn the_way_of_an_arm() -> Result<(), StudyError> {
        let seeks = Seeks::new(&trace(), 1, "rb".into())?;
        let points: Vec<(f64, u32, &str)> = seeks
            .points
            .iter()
            .map(|stop| (stop.t_ms, stop.cylinder, stop.what))
            .collect();
        let expected = [
            (2.0, 40, "seek"),
            (3.0, 40, "media"),
            (6.0, 40, "seek"),
            (9.0, 50, "seek"),
        ];
        assert_eq!(points, expected);
        assert!(Seeks::new(&trace(), 0, "rb".into()).is_err());
        Ok(())
    }

    fn interval(from_us: u64, to_us: u64) -> Interval {
        let at = |us| Time::ZERO + Span::from_us(us);
        Interval::new(at(from_us), at(to_us))
    }

    #[test]
    fn parts_are_busy_for_a_share() {
        let busy = busy(&trace(), Span::from_us(9_000));
        assert_eq!(busy.len(), 3);
        let share = 8.99 / 9.0;
        assert_eq!((busy[2].part, busy[2].count), ("disk", 1));
        assert_eq!((busy[2].mean, busy[2].max), (share, share));
    }

    #[test]
    fn what_overlaps_counts_once() {
        for (intervals, us) in [
            (vec![], 0),
            (vec![(0, 5)], 5),
            (vec![(0, 5), (5, 8)], 8),
            (vec![(4, 9), (0, 5)], 9),
            (vec![(0, 10), (2, 3), (4, 6)], 10),
            (vec![(0, 2), (6, 8), (1, 3), (7, 9)], 6),
        ] {
            let all = intervals.iter().map(|&(from, to)| interval(from, to));
            assert_eq!(covered(all.collect()), Span::from_us(us), "{intervals:?}");
        }
    }

    #[test]
    fn no_part_is_busy_for_longer_than_the_run() {
        let mut trace = trace();
        let mut over = trace.records[3].clone();
        // The trace has a second command's overhead while the media stream on, and media after the
        // end.
        over.interval = interval(2_500, 4_700);
        trace.records.push(over.clone());
        over.interval = interval(8_000, 20_000);
        trace.records.push(over.clone());
        over.interval = interval(30_000, 40_000);
        trace.records.push(over);
        let elapsed = Span::from_us(10_000);
        let busy = busy(&trace, elapsed);
        assert_eq!((busy[2].mean, busy[2].max), (0.999, 0.999));
        let text = Shares {
            busy: &busy,
            elapsed,
        }
        .to_string();
        for expected in [
            "disk      1  99.9 %  99.9 %",
            "Busy: the part of the run, 0.010000 s, in which a part does at least one thing.",
            "A disk works at a command (overhead, seek, rotation, media), not while it only reads ahead.",
        ] {
            assert!(text.contains(expected), "{text}");
        }
    }
}
