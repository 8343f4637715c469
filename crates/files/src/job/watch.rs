//! What a server process counts, and its endpoint for Prometheus.

use std::sync::{Arc, OnceLock};

use penstock_engine::collective::counts::CallCounts;
use penstock_engine::{NodeId, Result};
use penstock_net::endpoint::{Endpoint, Page};
use penstock_net::links::Roster;

use crate::metrics::exposition::Exposition;
use crate::metrics::{DoorCounts, Meter};

/// The calls on arrays that a process has directed. It is told whether a client is connected.
pub type Calls = dyn Fn(&dyn Fn(NodeId) -> bool) -> CallCounts + Send + Sync;

/// The meters of the servers of a process, and its endpoint, open as long as this is kept.
pub(super) struct Watching {
    meters: Vec<Arc<Meter>>,
    /// Who is connected, once the door is open.
    roster: Arc<OnceLock<Roster>>,
    endpoint: Option<Endpoint>,
}

/// Who has come to a server process.
pub(super) fn door(roster: &Roster) -> DoorCounts {
    let mut door = DoorCounts {
        clients: roster.clients() as u64,
        ..DoorCounts::default()
    };
    for (reason, count) in roster.dismissals() {
        let counts = match reason.is_refusal() {
            true => &mut door.refused,
            false => &mut door.cut_off,
        };
        counts.insert(reason.name().to_string(), count);
    }
    door
}

/// The calls that a server process has directed, if it serves arrays.
pub(super) fn calls(calls: Option<&Arc<Calls>>, roster: &Roster) -> Option<CallCounts> {
    let is_there = |node| roster.peer(node).is_some();
    calls.map(|calls| calls(&is_there))
}

impl Watching {
    /// Makes the meters of servers, and opens the endpoint if there is to be one. It answers from
    /// now on, though the servers are not ready.
    ///
    /// # Errors
    /// As [`Endpoint::open`].
    pub(super) fn begin(
        servers: impl Iterator<Item = usize>,
        address: Option<&str>,
        directed: Option<Arc<Calls>>,
    ) -> Result<Self> {
        let runner = rustix::process::getuid().as_raw();
        let meters = servers.map(|server| Arc::new(Meter::new(server, runner)));
        let meters: Vec<_> = meters.collect();
        let roster = Arc::new(OnceLock::<Roster>::new());
        let known = roster.clone();
        let process = move || {
            let told = known.get();
            told.map_or_else(Default::default, |roster| {
                (door(roster), calls(directed.as_ref(), roster))
            })
        };
        let exposition = Exposition::new(meters.clone(), Box::new(process));
        let site = move |path: &str| match path {
            "/metrics" => Some(Page {
                is_well: true,
                content_type: Exposition::CONTENT_TYPE,
                text: exposition.text(),
            }),
            "/healthz" => Some(Page::plain(true, "alive\n")),
            "/readyz" => Some(match exposition.is_ready() {
                true => Page::plain(true, "ready\n"),
                false => Page::plain(false, "not ready\n"),
            }),
            _ => None,
        };
        let endpoint = address.map(|address| Endpoint::open(address, Arc::new(site)));
        Ok(Self {
            meters,
            roster,
            endpoint: endpoint.transpose()?,
        })
    }

    /// Tells who is connected.
    pub(super) fn know(&self, roster: Roster) {
        let _ = self.roster.set(roster); // it is told once
    }

    /// The meter of a server of this process; another's has one that nobody reads.
    pub(super) fn meter(&self, server: usize) -> Arc<Meter> {
        let own = self.meters.iter().find(|meter| meter.server() == server);
        own.cloned()
            .unwrap_or_else(|| Arc::new(Meter::new(server, 0)))
    }

    /// Where the endpoint listens.
    pub(super) fn address(&self) -> Option<std::net::SocketAddr> {
        self.endpoint.as_ref().map(Endpoint::address)
    }
}
