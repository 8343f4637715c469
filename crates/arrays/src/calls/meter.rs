//! What counts the calls that a process with servers directs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use penstock_engine::NodeId;
use penstock_engine::collective::counts::CallCounts;

use super::errand::Topic;

/// Counts the calls of all sessions.
#[derive(Debug, Clone, Default)]
pub struct CallMeter(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    ended: CallCounts,
    under_way: BTreeMap<u64, UnderWay>,
    /// The number of the next call.
    next: u64,
}

/// A call that has not ended.
#[derive(Debug)]
struct UnderWay {
    clients: Vec<NodeId>,
    is_handed_over: bool,
}

impl CallMeter {
    /// The counts, which are valid at any time, also after a panic of a holder.
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has been counted. `is_there` says whether a client is still connected.
    pub fn counted(&self, is_there: &dyn Fn(NodeId) -> bool) -> CallCounts {
        let counts = self.counts();
        let mut all = counts.ended.clone();
        for call in counts.under_way.values() {
            let is_left = || !call.clients.iter().all(|&client| is_there(client));
            *match call.is_handed_over {
                false => &mut all.open,
                true if is_left() => &mut all.left,
                true => &mut all.handed_over,
            } += 1;
        }
        all
    }

    /// Begins to count a call of clients.
    pub(super) fn begin(&self, topic: Topic, clients: Vec<NodeId>) -> CountedCall {
        let mut counts = self.counts();
        let number = counts.next;
        counts.next += 1;
        let call = UnderWay {
            clients,
            is_handed_over: false,
        };
        counts.under_way.insert(number, call);
        CountedCall {
            meter: self.clone(),
            number,
            topic,
            begun: Instant::now(),
            done: None,
        }
    }
}

/// A call that is counted, until it is dropped.
pub(super) struct CountedCall {
    meter: CallMeter,
    number: u64,
    pub(super) topic: Topic,
    begun: Instant,
    /// The bytes that it has moved, if it has come to a good end.
    pub(super) done: Option<u64>,
}

impl CountedCall {
    /// Servers have all elements of the call's write.
    pub(super) fn hand_over(&self) {
        if let Some(call) = self.meter.counts().under_way.get_mut(&self.number) {
            call.is_handed_over = true;
        }
    }
}

impl Drop for CountedCall {
    fn drop(&mut self) {
        let time = self.begun.elapsed().as_nanos();
        let mut counts = self.meter.counts();
        counts.under_way.remove(&self.number);
        let kind = self.topic.name().to_string();
        let kind = counts.ended.kinds.entry(kind).or_default();
        kind.count += 1;
        kind.failed += u64::from(self.done.is_none());
        let ns = u64::try_from(time).unwrap_or(u64::MAX);
        kind.ns = kind.ns.saturating_add(ns);
        let bytes = self.done.unwrap_or(0);
        kind.disk_bytes = kind.disk_bytes.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_under_way_and_at_their_ends() {
        let meter = CallMeter::default();
        let mut write = meter.begin(Topic::Write, vec![7, 8]);
        let failed = meter.begin(Topic::Write, vec![7]);
        let save = meter.begin(Topic::Timestep, vec![9]);
        save.hand_over();
        write.hand_over();
        let state = |gone: &[NodeId]| {
            let counted = meter.counted(&|node| !gone.contains(&node));
            (counted.open, counted.handed_over, counted.left)
        };
        assert_eq!(state(&[]), (1, 2, 0));
        assert_eq!(state(&[7]), (1, 1, 1));
        assert_eq!(state(&[8, 9]), (1, 0, 2));
        write.done = Some(100);
        drop((write, failed));
        assert_eq!(state(&[]), (0, 1, 0));
        let counted = meter.counted(&|_| true);
        let kind = counted.kinds["write"];
        assert_eq!((kind.count, kind.failed, kind.disk_bytes), (2, 1, 100));
        assert!(!counted.kinds.contains_key("timestep"));
    }
}
