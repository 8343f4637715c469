//! The text that Prometheus reads (format 0.0.4).
//!
//! Numbers of servers have the label `server`. Clients are told apart by user and node, files by
//! the identity of their object: paths may be nobody's business, and whoever may reach the endpoint
//! reads all of it.

use std::borrow::Cow;
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use penstock_engine::collective::counts::{CallCounts, KindOfCall};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::prometheus_text::{self, CONTENT_TYPE};
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::{Registry, Unit};

use super::kinds::{DiskKind, RequestKind, WaitKind};
use super::snapshot::{DoorCounts, Snapshot, Viewer};
use super::table::Turnover;
use super::{Meter, ROWS_MAX};

/// The label of what has no row of its own.
const OTHER: &str = "other";

/// The nanoseconds of a second.
const SECOND: f64 = 1e9;

/// The callers of a process, and the calls on arrays that it has directed, as they are now.
pub type Process = dyn Fn() -> (DoorCounts, Option<CallCounts>) + Send + Sync;

/// What Prometheus is told of a server process.
#[derive(Clone)]
pub struct Exposition(Arc<Source>);

struct Source {
    meters: Vec<Arc<Meter>>,
    process: Box<Process>,
}

/// The labels of one sample.
type Labels<'a> = Vec<(&'static str, Cow<'a, str>)>;

/// A family of rows: its name, its unit, what it counts, and the number of a row.
type RowFamily = (
    &'static str,
    Option<Unit>,
    &'static str,
    fn(&Turnover) -> Number,
);

/// A family of kinds of calls: its name, its unit, what it counts, and the number of a kind.
type CallFamily = (
    &'static str,
    Option<Unit>,
    &'static str,
    fn(&KindOfCall) -> Number,
);

impl Debug for Exposition {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "Exposition of {} servers", self.0.meters.len())
    }
}

impl Exposition {
    /// The type of the text, as HTTP has it.
    pub const CONTENT_TYPE: &'static str = CONTENT_TYPE;

    /// Makes the exposition of the servers of a process.
    pub fn new(meters: Vec<Arc<Meter>>, process: Box<Process>) -> Self {
        Self(Arc::new(Source { meters, process }))
    }

    /// Whether all servers serve.
    pub fn is_ready(&self) -> bool {
        self.0.meters.iter().all(|meter| meter.is_ready())
    }

    /// The text of now.
    pub fn text(&self) -> String {
        let mut registry = Registry::with_prefix("penstock");
        registry.register_collector(Box::new(self.clone()));
        let mut text = String::new();
        match prometheus_text::encode(&mut text, &registry) {
            Ok(()) => text,
            Err(_) => String::new(), // writing into a text does not fail
        }
    }
}

/// One family of samples after the other.
struct Families<'a, 'e> {
    encoder: &'a mut DescriptorEncoder<'e>,
    servers: &'a [(String, Snapshot)],
}

/// The kind of a family whose samples are numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Counter,
    Gauge,
}

impl<'a> Families<'a, '_> {
    fn family(
        &mut self,
        (name, unit, help): (&str, Option<Unit>, &str),
        form: Form,
        samples: impl IntoIterator<Item = (Labels<'a>, Number)>,
    ) -> fmt::Result {
        let metric_type = match form {
            Form::Counter => MetricType::Counter,
            Form::Gauge => MetricType::Gauge,
        };
        let mut family = self
            .encoder
            .encode_descriptor(name, help, unit.as_ref(), metric_type)?;
        for (labels, number) in samples {
            let mut metric = family.encode_family(&labels)?;
            match (form, number) {
                (Form::Counter, Number::Count(count)) => count_up(&mut metric, &count)?,
                (Form::Counter, Number::Seconds(seconds)) => count_up(&mut metric, &seconds)?,
                (Form::Gauge, Number::Count(count)) => {
                    metric.encode_gauge(&i64::try_from(count).unwrap_or(i64::MAX))?;
                }
                (Form::Gauge, Number::Seconds(seconds)) => metric.encode_gauge(&seconds)?,
            }
        }
        Ok(())
    }

    /// One sample a server.
    fn by_server(
        &mut self,
        about: (&str, Option<Unit>, &str),
        form: Form,
        value: impl Fn(&Snapshot) -> u64,
    ) -> fmt::Result {
        let samples = self.servers.iter();
        let samples = samples.map(|(server, one)| (of(server), Number::Count(value(one))));
        let samples: Vec<_> = samples.collect();
        self.family(about, form, samples)
    }

    /// One sample a server and kind.
    fn by_kind(
        &mut self,
        about: (&str, Option<Unit>, &str),
        form: Form,
        label: &'static str,
        kinds: &[(usize, &'static str)],
        value: impl Fn(&Snapshot, usize) -> Number,
    ) -> fmt::Result {
        let mut samples = Vec::new();
        for (server, one) in self.servers {
            for &(nth, name) in kinds {
                let labels = with(of(server), [(label, Cow::Borrowed(name))]);
                samples.push((labels, value(one, nth)));
            }
        }
        self.family(about, form, samples)
    }

    fn requests(&mut self) -> fmt::Result {
        let kinds = RequestKind::ALL.map(|kind| (kind as usize, kind.name()));
        self.by_kind(
            ("requests", None, "Requests of clients that were answered"),
            Form::Counter,
            "kind",
            &kinds,
            |one, kind| Number::Count(one.kinds[kind].times.count()),
        )?;
        self.by_kind(
            (
                "requests_failed",
                None,
                "Requests of clients that were answered by an error",
            ),
            Form::Counter,
            "kind",
            &kinds,
            |one, kind| Number::Count(one.kinds[kind].failed),
        )?;
        let moving = [
            RequestKind::Read,
            RequestKind::Write,
            RequestKind::ReadAll,
            RequestKind::WriteAll,
        ];
        self.by_kind(
            (
                "moved",
                Some(Unit::Bytes),
                "Bytes that clients have read or written",
            ),
            Form::Counter,
            "kind",
            &moving.map(|kind| (kind as usize, kind.name())),
            |one, kind| Number::Count(one.kinds[kind].bytes),
        )?;
        let help = "Time from the coming of a request to its answer, by kinds that have come";
        let mut family = self.encoder.encode_descriptor(
            "request",
            help,
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        for (server, one) in self.servers {
            for (kind, counts) in RequestKind::ALL.iter().zip(&one.kinds) {
                let times = &counts.times;
                if times.count() == 0 {
                    continue;
                }
                let labels = with(of(server), [("kind", Cow::Borrowed(kind.name()))]);
                let powers = times.powers();
                let buckets: Vec<_> = powers
                    .map(|(end, count)| (end as f64 / SECOND, count))
                    .collect();
                let sum = times.sum_ns() as f64 / SECOND;
                family
                    .encode_family(&labels)?
                    .encode_histogram::<NoLabelSet>(sum, times.count(), &buckets, None)?;
            }
        }
        Ok(())
    }

    fn waits(&mut self) -> fmt::Result {
        let kinds = WaitKind::ALL.map(|kind| (kind as usize, kind.name()));
        self.by_kind(
            (
                "waiting",
                None,
                "What waits now: requests, or blocks for a disk",
            ),
            Form::Gauge,
            "for",
            &kinds,
            |one, kind| Number::Count(one.waiting[kind]),
        )?;
        let timed = [WaitKind::Token, WaitKind::Turn].map(|kind| (kind as usize, kind.name()));
        self.by_kind(
            ("waits", None, "Waits of accesses that have ended"),
            Form::Counter,
            "for",
            &timed,
            |one, kind| Number::Count(one.waits[kind].count),
        )?;
        self.by_kind(
            (
                "wait",
                Some(Unit::Seconds),
                "Time of the waits of accesses that have ended",
            ),
            Form::Counter,
            "for",
            &timed,
            |one, kind| Number::seconds(one.waits[kind].ns),
        )?;
        self.by_server(
            (
                "tasks",
                None,
                "Requests, and parts of them, that are under way",
            ),
            Form::Gauge,
            |one| one.tasks,
        )
    }

    fn cache(&mut self) -> fmt::Result {
        let counter = Form::Counter;
        self.by_server(
            (
                "cache_hits",
                None,
                "Blocks that were in memory when they were wanted",
            ),
            counter,
            |one| one.cache.hits,
        )?;
        self.by_server(
            (
                "cache_misses",
                None,
                "Blocks that had to be brought in when they were wanted",
            ),
            counter,
            |one| one.cache.misses,
        )?;
        self.by_server(
            (
                "cache_fetched",
                None,
                "Blocks that were read before they were wanted",
            ),
            counter,
            |one| one.cache.fetched,
        )?;
        self.by_server(
            (
                "cache_evictions",
                None,
                "Blocks that have gone to make room for others",
            ),
            counter,
            |one| one.cache.evictions,
        )?;
        let bytes = || Some(Unit::Bytes);
        self.by_server(("cache", bytes(), "Bytes in memory"), Form::Gauge, |one| {
            one.cache.bytes
        })?;
        self.by_server(
            (
                "cache_changed",
                bytes(),
                "Bytes in memory that are to be written",
            ),
            Form::Gauge,
            |one| one.cache.changed_bytes,
        )?;
        self.by_server(
            ("cache_most", bytes(), "Bytes that may be in memory"),
            Form::Gauge,
            |one| one.cache.bytes_max,
        )
    }

    fn disks(&mut self) -> fmt::Result {
        let kinds = DiskKind::ALL.map(|kind| (kind as usize, kind.name()));
        self.by_kind(
            ("disk_operations", None, "Disk operations that have ended"),
            Form::Counter,
            "kind",
            &kinds,
            |one, kind| Number::Count(one.disks[kind].count),
        )?;
        self.by_kind(
            ("disk_failed", None, "Disk operations that have failed"),
            Form::Counter,
            "kind",
            &kinds,
            |one, kind| Number::Count(one.disks[kind].failed),
        )?;
        self.by_kind(
            (
                "disk",
                Some(Unit::Bytes),
                "Bytes that were read from disks, and written to them",
            ),
            Form::Counter,
            "kind",
            &kinds,
            |one, kind| Number::Count(one.disks[kind].bytes),
        )?;
        self.by_kind(
            (
                "disk",
                Some(Unit::Seconds),
                "Time of disk operations, with that in the queue",
            ),
            Form::Counter,
            "kind",
            &kinds,
            |one, kind| Number::seconds(one.disks[kind].ns),
        )
    }

    /// Four families of rows: requests, their time, and bytes read and written.
    fn rows(&mut self, whose: &'static str, rows: &[(Labels<'a>, Turnover)]) -> fmt::Result {
        let families: [RowFamily; 4] = [
            ("requests", None, "Requests that were answered", |one| {
                Number::Count(one.requests)
            }),
            ("request", Some(Unit::Seconds), "Time of requests", |one| {
                Number::seconds(one.ns)
            }),
            ("read", Some(Unit::Bytes), "Bytes that were read", |one| {
                Number::Count(one.read_bytes)
            }),
            (
                "written",
                Some(Unit::Bytes),
                "Bytes that were written",
                |one| Number::Count(one.written_bytes),
            ),
        ];
        for (name, unit, help, value) in families {
            let samples = rows
                .iter()
                .map(|(labels, one)| (labels.clone(), value(one)));
            let help = format!("{help}, of each {whose}: at most {ROWS_MAX} a server, and others");
            self.family(
                (&format!("{whose}_{name}"), unit, &help),
                Form::Counter,
                samples,
            )?;
        }
        Ok(())
    }

    /// Four families of the rows that servers have of clients, or of files: each row is a user's.
    fn by_row(
        &mut self,
        (users, whose): (&'static str, &'static str),
        rows_of: impl Fn(&Snapshot) -> (Vec<(u32, u64, Turnover)>, Option<Turnover>),
    ) -> fmt::Result {
        let mut rows = Vec::new();
        for (server, one) in self.servers {
            let labels = |user, row| with(of(server), [(users, user), (whose, row)]);
            let (own, others) = rows_of(one);
            rows.extend(own.into_iter().map(|(user, row, turnover)| {
                let (user, row) = (user.to_string(), format!("{row:016x}"));
                (labels(Cow::Owned(user), Cow::Owned(row)), turnover)
            }));
            rows.extend(others.map(|others| (labels(OTHER.into(), OTHER.into()), others)));
        }
        self.rows(whose, &rows)
    }

    fn clients(&mut self) -> fmt::Result {
        self.by_row(("user", "client"), |one| {
            let rows = one.clients.iter();
            let rows = rows.map(|row| (row.user, row.node as u64, row.turnover));
            (rows.collect(), one.other_clients)
        })
    }

    fn files(&mut self) -> fmt::Result {
        self.by_row(("owner", "file"), |one| {
            let rows = one.files.iter();
            let rows = rows.map(|row| (row.owner, row.id.0, row.turnover));
            (rows.collect(), one.other_files)
        })
    }

    fn door(&mut self, door: &DoorCounts) -> fmt::Result {
        let clients = [(Vec::new(), Number::Count(door.clients))];
        self.family(
            ("clients", None, "Clients that are connected"),
            Form::Gauge,
            clients,
        )?;
        let by_reason = |counts: &std::collections::BTreeMap<String, u64>| {
            let samples = counts.iter().map(|(reason, count)| {
                let reason = Cow::Owned(reason.clone());
                (vec![("reason", reason)], Number::Count(*count))
            });
            samples.collect::<Vec<_>>()
        };
        self.family(
            ("refused", None, "Callers that were refused"),
            Form::Counter,
            by_reason(&door.refused),
        )?;
        self.family(
            ("cut_off", None, "Clients that were cut off"),
            Form::Counter,
            by_reason(&door.cut_off),
        )
    }

    /// The calls on arrays that the process has directed.
    fn calls(&mut self, calls: &CallCounts) -> fmt::Result {
        let families: [CallFamily; 4] = [
            ("calls", None, "Collective calls that have ended", |one| {
                Number::Count(one.count)
            }),
            (
                "calls_failed",
                None,
                "Collective calls that have failed",
                |one| Number::Count(one.failed),
            ),
            (
                "call",
                Some(Unit::Seconds),
                "Time from the coming of the first rank to the verdict",
                |one| Number::seconds(one.ns),
            ),
            (
                "call_moved",
                Some(Unit::Bytes),
                "Bytes of blocks that collective calls have read and written",
                |one| Number::Count(one.disk_bytes),
            ),
        ];
        for (name, unit, help, value) in families {
            let kinds = calls.kinds.iter();
            let samples = kinds.map(|(kind, one)| {
                let kind = Cow::Owned(kind.clone());
                (vec![("kind", kind)], value(one))
            });
            let samples: Vec<_> = samples.collect();
            self.family((name, unit, help), Form::Counter, samples)?;
        }
        let states = [
            ("open", calls.open),
            ("handed_over", calls.handed_over),
            ("left", calls.left),
        ];
        let states =
            states.map(|(state, count)| (vec![("state", state.into())], Number::Count(count)));
        let help = "Collective calls under way: open, handed over, and handed over and left";
        self.family(("calls_under_way", None, help), Form::Gauge, states)
    }
}

/// The number of a sample.
enum Number {
    Count(u64),
    Seconds(f64),
}

impl Number {
    fn seconds(ns: u64) -> Self {
        Self::Seconds(ns as f64 / SECOND)
    }
}

fn count_up(
    metric: &mut MetricEncoder<'_>,
    value: &impl prometheus_client::encoding::EncodeCounterValue,
) -> fmt::Result {
    metric.encode_counter::<NoLabelSet, _, f64>(value, None::<&Exemplar<NoLabelSet, f64>>)
}

fn of(server: &str) -> Labels<'_> {
    vec![("server", Cow::Borrowed(server))]
}

fn with<'a>(
    mut labels: Labels<'a>,
    more: impl IntoIterator<Item = (&'static str, Cow<'a, str>)>,
) -> Labels<'a> {
    labels.extend(more);
    labels
}

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let meters = self.0.meters.iter();
        let servers = meters.map(|meter| (meter.server().to_string(), meter.snapshot(Viewer::All)));
        let servers: Vec<_> = servers.collect();
        let mut families = Families {
            encoder: &mut encoder,
            servers: &servers,
        };
        families.by_server(
            ("ready", None, "Whether the server serves clients"),
            Form::Gauge,
            |one| one.ready,
        )?;
        families.requests()?;
        families.waits()?;
        families.cache()?;
        families.disks()?;
        families.clients()?;
        families.files()?;
        let (door, calls) = (self.0.process)();
        families.door(&door)?;
        calls.map_or(Ok(()), |calls| families.calls(&calls))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Answered;
    use super::*;
    use crate::object::ObjectId;

    #[test]
    fn the_text_has_each_family_once_and_one_value_a_label_set() {
        let meters: Vec<_> = (0..2)
            .map(|server| Arc::new(Meter::new(server, 0)))
            .collect();
        let answered = Answered {
            kind: RequestKind::Read,
            from: 0xabc,
            file: Some((ObjectId(1 << 48 | 2), 7)),
            bytes: 4096,
            has_failed: false,
            times: (Duration::ZERO, Duration::from_micros(3)),
        };
        meters[1].note(&answered, || Some(1000));
        let process = || {
            let door = DoorCounts {
                clients: 2,
                refused: [("full".to_string(), 1)].into(),
                cut_off: Default::default(),
            };
            let write = KindOfCall {
                count: 3,
                failed: 1,
                ns: 1_500_000_000,
                disk_bytes: 7,
            };
            let calls = CallCounts {
                kinds: [("write".to_string(), write)].into(),
                left: 1,
                ..CallCounts::default()
            };
            (door, Some(calls))
        };
        let exposition = Exposition::new(meters, Box::new(process));
        assert!(!exposition.is_ready());
        let text = exposition.text();
        for line in [
            "# TYPE penstock_requests_total counter",
            "penstock_requests_total{server=\"1\",kind=\"read\"} 1",
            "penstock_requests_total{server=\"0\",kind=\"read\"} 0",
            "penstock_moved_bytes_total{server=\"1\",kind=\"read\"} 4096",
            "# TYPE penstock_request_seconds histogram",
            "penstock_request_seconds_count{server=\"1\",kind=\"read\"} 1",
            "penstock_request_seconds_bucket{server=\"1\",kind=\"read\",le=\"4.096e-06\"} 1",
            "penstock_client_read_bytes_total{server=\"1\",user=\"1000\",client=\"0000000000000abc\"} 4096",
            "penstock_file_requests_total{server=\"1\",owner=\"7\",file=\"0001000000000002\"} 1",
            "penstock_file_requests_total{server=\"0\",owner=\"other\",file=\"other\"} 0",
            "penstock_clients 2",
            "penstock_calls_total{kind=\"write\"} 3",
            "penstock_calls_failed_total{kind=\"write\"} 1",
            "penstock_call_seconds_total{kind=\"write\"} 1.5",
            "penstock_call_moved_bytes_total{kind=\"write\"} 7",
            "penstock_calls_under_way{state=\"left\"} 1",
            "penstock_calls_under_way{state=\"open\"} 0",
            "penstock_refused_total{reason=\"full\"} 1",
            "penstock_ready{server=\"0\"} 0",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} is not in\n{text}"
            );
        }
        let mut seen = std::collections::BTreeSet::new();
        for line in text.lines() {
            let key = match line.starts_with('#') {
                true => line.split(' ').take(3).collect::<Vec<_>>().join(" "),
                false => line.rsplit_once(' ').unwrap().0.to_string(),
            };
            assert!(seen.insert(key), "twice: {line}");
        }
    }
}
