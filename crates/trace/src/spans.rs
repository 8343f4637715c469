//! Spans, as `tracing` tells of them, become slices.
//!
//! Times are multiples of 125 ns: in microseconds these are exact in decimals and in binary, so
//! that no reader rounds a slice out of the one around it. A slice begins at least one such step
//! behind the one around it.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use penstock_engine::trace::arrow;
use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, SpanRef};

use super::file::{Arrow, Began, STEP_NS, Sink, Slice, Value};
use super::tracks::{Group, Track, Tracks};

/// The fields that say where a span is shown, and how it is called.
const NAME: &str = "kind";
const TRACK: &str = "track";
const SERVER: &str = "server";
const RANK: &str = "rank";
/// How the names of arrows begin that leave a span, and that come to it.
const OUT: &str = "out_";
const IN: &str = "in_";
/// The arrow from a span to one within it that is shown elsewhere.
const WITHIN: &str = "within";

/// Makes slices of spans.
pub(super) struct Spans {
    sink: Sink,
    began: Began,
    started: Instant,
    tracks: Mutex<Tracks>,
    arrows: AtomicU64,
}

/// What is kept of a span until it ends.
struct Kept {
    slice: Slice,
    group: Group,
    /// Whether the track is that of the span around it.
    is_in_parent: bool,
    /// Whether a span within this one is shown in its track now.
    has_child: bool,
    /// The time at which the last of these has ended.
    latest: u64,
}

/// What the fields of a span say.
struct Said<'a> {
    at: u64,
    slice: &'a mut Slice,
    group: Option<Group>,
}

impl Said<'_> {
    fn value(&mut self, field: &Field, value: Value) {
        let name = field.name();
        let number = match value {
            Value::Number(number) => Some(number),
            _ => None,
        };
        let (arrow, is_out) = match (name.strip_prefix(OUT), name.strip_prefix(IN)) {
            (Some(arrow), _) => (Some(arrow), true),
            (_, arrow) => (arrow, false),
        };
        if let (Some(name), Some(id)) = (arrow, number) {
            let at = self.at;
            return self.slice.arrows.push(Arrow {
                name,
                id,
                at,
                is_out,
            });
        }
        match (name, number) {
            (SERVER, Some(server)) => self.group = Some(Group::Server(server)),
            (RANK, Some(rank)) => self.group = Some(Group::Rank(rank)),
            _ => {}
        }
        self.slice.values.push((name, value));
    }
}

impl Visit for Said<'_> {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.value(field, Value::Number(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.value(field, Value::Flag(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            NAME => self.slice.name = value.to_string(),
            TRACK => self.group = Some(Group::Named(value.to_string())),
            _ => self.value(field, Value::Text(value.to_string())),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.value(field, Value::Text(format!("{value:?}")));
    }
}

/// Where a span is shown.
struct Shown {
    track: Track,
    track_name: Arc<str>,
    group: Group,
    is_in_parent: bool,
    /// The time before which it cannot begin.
    free_since: u64,
    /// The arrow to it from the span around it, if that is shown elsewhere.
    arrow: Option<u64>,
}

impl Spans {
    pub(super) fn new(sink: Sink, began: Began) -> Self {
        Self {
            sink,
            started: began.at,
            began,
            tracks: Mutex::default(),
            arrows: AtomicU64::new(0),
        }
    }

    /// The steps since the trace began.
    fn now(&self) -> u64 {
        let since = self.started.elapsed().as_nanos() / u128::from(STEP_NS);
        u64::try_from(since).unwrap_or(u64::MAX)
    }

    /// The tracks, which are valid at any time, also after a panic of a holder.
    fn tracks(&self) -> MutexGuard<'_, Tracks> {
        self.tracks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a track of a group.
    fn take(&self, group: Group, arrow: Option<u64>) -> Option<Shown> {
        let taken = self.tracks().take(&group);
        let Some(taken) = taken else {
            self.sink.drop_one();
            return None;
        };
        Some(Shown {
            track: taken.track,
            track_name: taken.name,
            group,
            is_in_parent: false,
            free_since: taken.free_since,
            arrow,
        })
    }

    /// Finds a place for a span: in the track of the one around it, if nothing else is there and it
    /// says no other.
    fn place<'a, S: LookupSpan<'a>>(
        &self,
        parent: Option<&SpanRef<'a, S>>,
        said: Option<Group>,
    ) -> Option<Shown> {
        let mut extensions = parent.map(SpanRef::extensions_mut);
        let around = extensions
            .as_mut()
            .and_then(|extensions| extensions.get_mut::<Kept>());
        let Some(around) = around else {
            return self.take(said.unwrap_or(Group::Client), None);
        };
        let is_elsewhere = said.as_ref().is_some_and(|group| *group != around.group);
        if !is_elsewhere && !around.has_child {
            around.has_child = true;
            return Some(Shown {
                track: around.slice.track,
                track_name: around.slice.track_name.clone(),
                group: around.group.clone(),
                is_in_parent: true,
                free_since: around.latest.max(around.slice.begun + 1),
                arrow: None,
            });
        }
        let number = self.arrows.fetch_add(1, Ordering::Relaxed);
        let arrow = arrow((WITHIN, self.began.process, self.began.unix_ns, number));
        around.slice.arrows.push(Arrow {
            name: WITHIN,
            id: arrow,
            at: around.slice.begun,
            is_out: true,
        });
        let (group, begun) = (
            said.unwrap_or_else(|| around.group.clone()),
            around.slice.begun,
        );
        drop(extensions);
        let shown = self.take(group, Some(arrow));
        shown.map(|shown| Shown {
            free_since: shown.free_since.max(begun + 1),
            ..shown
        })
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        // A process that has been forked has no thread that writes.
        let (Some(span), true) = (context.span(id), self.began.process == std::process::id())
        else {
            return;
        };
        let metadata = attributes.metadata();
        let mut slice = Slice {
            name: metadata.name().to_string(),
            category: metadata.name(),
            track: Track(0),
            track_name: "".into(),
            begun: 0,
            ended: 0,
            values: Vec::new(),
            arrows: Vec::new(),
        };
        let mut said = Said {
            at: 0,
            slice: &mut slice,
            group: None,
        };
        attributes.record(&mut said);
        let group = said.group;
        let now = self.now();
        let Some(shown) = self.place(span.parent().as_ref(), group) else {
            return;
        };
        (slice.track, slice.track_name) = (shown.track, shown.track_name);
        slice.begun = now.max(shown.free_since);
        slice.arrows.extend(shown.arrow.map(|id| Arrow {
            name: WITHIN,
            id,
            at: 0,
            is_out: false,
        }));
        for arrow in &mut slice.arrows {
            arrow.at = slice.begun;
        }
        span.extensions_mut().insert(Kept {
            latest: slice.begun,
            slice,
            group: shown.group,
            is_in_parent: shown.is_in_parent,
            has_child: false,
        });
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else {
            return;
        };
        let mut extensions = span.extensions_mut();
        if let Some(kept) = extensions.get_mut::<Kept>() {
            record.record(&mut Said {
                at: self.now().max(kept.latest),
                slice: &mut kept.slice,
                group: None,
            });
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else {
            return;
        };
        let Some(mut kept) = span.extensions_mut().remove::<Kept>() else {
            return;
        };
        // An arrow at the end of a slice would be that of the next one.
        let arrows = kept.slice.arrows.iter().map(|arrow| arrow.at);
        let last = arrows.max().unwrap_or(kept.slice.begun);
        let ended = self.now().max(kept.latest).max(last + 1);
        kept.slice.ended = ended;
        match (kept.is_in_parent, span.parent()) {
            (true, Some(parent)) => {
                if let Some(around) = parent.extensions_mut().get_mut::<Kept>() {
                    around.has_child = false;
                    around.latest = around.latest.max(ended);
                }
            }
            _ => self.tracks().give_back(kept.slice.track, ended),
        }
        self.sink.tell(kept.slice);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use penstock_engine::span;
    use penstock_engine::trace::{Empty, Span};
    use serde_json::Value as Json;
    use tracing_subscriber::layer::SubscriberExt;

    use super::super::file::Recorder;
    use super::*;

    /// What is in the file after something was done.
    fn traced(doing: impl FnOnce()) -> Vec<Json> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.json");
        let recorder = Recorder::open(Path::new(&path), 1 << 20, "test").unwrap();
        let spans = Spans::new(recorder.sink(), recorder.began());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(spans), doing);
        recorder.end();
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    /// A slice: its track, its begin and its end.
    fn slice(events: &[Json], name: &str) -> (u64, f64, f64) {
        let found = events
            .iter()
            .find(|event| event["ph"] == "X" && event["name"] == name);
        let event = found.unwrap();
        let (track, at) = (event["tid"].as_u64(), event["ts"].as_f64().unwrap());
        (track.unwrap(), at, at + event["dur"].as_f64().unwrap())
    }

    #[test]
    fn spans_within_others_are_in_one_track_unless_they_overlap() {
        let events = traced(|| {
            let request = span!(parent: None, "request", kind = "read", server = 3u64);
            let one = span!(parent: &request, "disk", kind = "one");
            let two = span!(parent: &request, "disk", kind = "two");
            let inner = span!(parent: &two, "wait", kind = "inner");
            drop((inner, two));
            drop(one);
            let three = span!(parent: &request, "disk", kind = "three");
            let worker = span!(parent: &three, "worker", kind = "worker", track = "disk 0");
            drop((worker, three, request));
            drop(span!(parent: None, "request", kind = "next", server = 3u64));
        });
        let [read, one, two, inner, three, worker, next] =
            ["read", "one", "two", "inner", "three", "worker", "next"]
                .map(|name| slice(&events, name));
        let tracks = [one.0, three.0, next.0].map(|track| track == read.0);
        assert_eq!(tracks, [true; 3]);
        assert!(two.0 != read.0 && inner.0 == two.0 && ![read.0, two.0].contains(&worker.0));
        for (inside, around) in [
            (one, read),
            (two, read),
            (inner, two),
            (three, read),
            (worker, three),
        ] {
            assert!(around.1 < inside.1 && inside.2 <= around.2, "{events:?}");
        }
        assert!(one.2 <= three.1 && read.2 <= next.1);
        // Two spans are shown elsewhere than what is around them, and an arrow leads to each.
        let arrows = |phase: &str| {
            let arrows = events.iter().filter(|event| event["ph"] == phase);
            let arrows = arrows.map(|event| (event["id"].as_u64(), event["tid"].as_u64()));
            arrows.collect::<Vec<_>>()
        };
        let (begin, end) = (arrows("s"), arrows("f"));
        assert_eq!((begin.len(), end.len()), (2, 2));
        for (id, track) in end {
            assert!(
                begin
                    .iter()
                    .any(|(other, from)| *other == id && *from != track)
            );
        }
    }

    #[test]
    fn arrows_and_numbers_may_come_later() {
        let events = traced(|| {
            let span = span!(
                "question",
                kind = "write",
                bytes = Empty,
                failed = Empty,
                out_question = 5u64,
                in_answer = Empty,
            );
            span.record("bytes", 77u64);
            span.record("failed", true);
            span.record("in_answer", 6u64);
            span.record("unknown", 1u64);
        });
        let (track, begun, ended) = slice(&events, "write");
        let event = events
            .iter()
            .find(|event| event["name"] == "write")
            .unwrap();
        assert_eq!(
            event["args"],
            serde_json::json!({"bytes": 77, "failed": true})
        );
        for (phase, name, id) in [("s", "question", 5), ("f", "answer", 6)] {
            let arrow = events.iter().find(|event| event["ph"] == phase).unwrap();
            assert_eq!((&arrow["name"], &arrow["id"]), (&name.into(), &id.into()));
            assert_eq!(arrow["tid"], track);
            let at = arrow["ts"].as_f64().unwrap();
            assert!(begun <= at && at < ended);
        }
    }

    /// Many threads at once: slices of one track lie beside or within one another.
    #[test]
    fn slices_of_a_track_never_cross() {
        let events = traced(|| {
            let dispatch = tracing::dispatcher::get_default(Clone::clone);
            std::thread::scope(|scope| {
                for thread in 0..4u64 {
                    let dispatch = &dispatch;
                    scope.spawn(move || {
                        tracing::dispatcher::with_default(dispatch, || {
                            let mut state = thread + 1;
                            let mut open: Vec<Span> = Vec::new();
                            for _ in 0..400 {
                                state ^= state << 13;
                                state ^= state >> 7;
                                state ^= state << 17;
                                match state % 3 {
                                    0 if !open.is_empty() => {
                                        let at = (state >> 8) as usize % open.len();
                                        drop(open.swap_remove(at));
                                    }
                                    1 if !open.is_empty() => {
                                        let at = (state >> 8) as usize % open.len();
                                        open.push(span!(parent: &open[at], "wait"));
                                    }
                                    _ => open.push(span!(parent: None, "call", rank = thread % 2)),
                                }
                            }
                        });
                    });
                }
            });
        });
        let mut tracks: std::collections::BTreeMap<u64, Vec<(f64, f64)>> = Default::default();
        for event in events.iter().filter(|event| event["ph"] == "X") {
            let at = event["ts"].as_f64().unwrap();
            let track = tracks.entry(event["tid"].as_u64().unwrap()).or_default();
            track.push((at, at + event["dur"].as_f64().unwrap()));
        }
        assert!(tracks.len() > 2);
        for mut slices in tracks.into_values() {
            slices.sort_by(|one, other| one.0.total_cmp(&other.0));
            let mut around: Vec<(f64, f64)> = Vec::new();
            for slice in slices {
                while around.last().is_some_and(|(_, end)| *end <= slice.0) {
                    around.pop();
                }
                if let Some((begin, end)) = around.last() {
                    assert!(*begin < slice.0 && slice.1 <= *end);
                }
                around.push(slice);
            }
        }
        let end = &events.last().unwrap()["args"];
        assert_eq!(end["dropped"], 0);
    }
}
