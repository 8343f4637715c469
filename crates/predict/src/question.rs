//! The question, and the machine cut to it.

use std::sync::Arc;

use penstock_engine::{Error, Kind, Request, Result, Strategy};
use penstock_layout::{Assignment, Holding};
use penstock_sim::preset::Preset;

/// The question: what a call costs that makes these requests.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The requests, one for each array; one at least. Only disk-directed I/O meets several at
    /// once.
    pub requests: &'a [Request],
    /// For each request whose ranks hold lists what each rank holds, by rank; ranks beyond hold
    /// nothing. Requests beyond have no lists.
    pub lists: &'a [Vec<Arc<Holding>>],
    /// The number of clients.
    pub clients: usize,
    /// The number of hosts that the clients are on, in equal parts.
    pub hosts: usize,
}

impl Question<'_> {
    /// Checks the question, and gives its first request.
    pub(crate) fn check(&self) -> Result<&Request> {
        let wrong = |cause: &str| Error::new(Kind::Schema, "predicting a call", cause);
        let first = self
            .requests
            .first()
            .ok_or_else(|| wrong("there is no array"))?;
        if self.clients == 0 || self.hosts == 0 || first.servers == 0 {
            return Err(wrong("there are no clients, hosts or servers"));
        }
        if self.hosts > self.clients {
            return Err(wrong("there are more hosts than clients"));
        }
        let is_alone = |strategy| !matches!(strategy, Strategy::DiskDirected(_));
        if self.requests.len() > 1 && is_alone(first.strategy) {
            return Err(wrong("only disk-directed I/O moves several arrays at once"));
        }
        for (nth, request) in self.requests.iter().enumerate() {
            self.check_lists(request, self.lists_of(nth))?;
        }
        Ok(first)
    }

    /// What each rank holds by its list in a request.
    pub(crate) fn lists_of(&self, nth: usize) -> &[Arc<Holding>] {
        self.lists.get(nth).map_or(&[], Vec::as_slice)
    }

    /// Checks what ranks hold by lists in one request.
    fn check_lists(&self, request: &Request, lists: &[Arc<Holding>]) -> Result<()> {
        let asking = "predicting a call";
        if !request.holders.are_lists() {
            return Ok(());
        }
        if lists.is_empty() {
            let cause = "ranks hold lists, which only they know";
            return Err(Error::new(Kind::Unsupported, asking, cause));
        }
        let elements: u64 = request.disk.shape().iter().product();
        let reach = |list: &Arc<Holding>| list.file_bounds().map_or(0, |bounds| bounds.end);
        if lists.len() > self.clients || lists.iter().any(|list| reach(list) > elements) {
            let cause = "there are more lists than clients, or one reaches beyond the array";
            return Err(Error::new(Kind::Schema, asking, cause));
        }
        Ok(())
    }
}

/// The machine of a preset, with as many clients, servers and hosts as the question has.
pub(crate) fn cut(machine: &Preset, question: &Question<'_>) -> Result<Preset> {
    let servers = question.requests.iter().map(|request| request.servers);
    let servers = servers.max().unwrap_or(1);
    let mut cut = machine.clone();
    cut.nodes.clients = question.clients;
    cut.nodes.io_nodes = servers;
    cut.nodes.disks = servers;
    if let Some(host) = &mut cut.host {
        host.clients = match question.hosts {
            1 => 0,
            hosts => question.clients.div_ceil(hosts),
        };
    }
    // The file of the preset's experiments is another.
    cut.file.bytes = cut.file.block_bytes;
    cut.spread.clear();
    cut.measured = None;
    cut.around = None;
    cut.validate().map_err(unfit)?;
    Ok(cut)
}

pub(crate) fn unfit(error: impl std::fmt::Display) -> Error {
    Error::new(Kind::Schema, "setting up a machine for a prediction", error)
}

/// Whether the array lies in one file that servers share.
pub(crate) fn is_flat(request: &Request) -> bool {
    request.disk.assignment() == Assignment::Blocks
}
