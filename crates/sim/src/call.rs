//! One collective call on the simulated machine, without elements.
//!
//! Experiments and predictions call the engine through this module alone, so that it is generated
//! once for [`SimNode`]: hence futures in boxes.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use penstock_engine::collective::client::Client;
use penstock_engine::collective::server::{self, Servers};
use penstock_engine::{
    Attendance, Call, Decision, Director, Error, Machine, Party, Proposal, RankParts, Request,
    Tally, Traffic,
};

use crate::machine::{SimNode, Simulation};

/// A collective call that is run once, without elements.
pub struct CollectiveRun {
    /// The requests, one for each array.
    pub requests: Vec<Request>,
    /// The clients and servers.
    pub party: Arc<Party>,
    /// Whether the file system hears of the whole request: the agreement is then part of the time.
    /// Otherwise all nodes know it.
    pub is_collective: bool,
}

impl CollectiveRun {
    /// Runs programs on the clients' nodes, and the servers of this call on theirs, until all
    /// programs have ended.
    ///
    /// # Errors
    /// The error of one program is the error of all.
    pub fn in_simulation<F>(
        self: &Rc<Self>,
        simulation: &Simulation,
        program: impl Fn(SimNode) -> F,
    ) -> Result<(), Error>
    where
        F: Future<Output = Result<(), Error>> + 'static,
    {
        let ended = Rc::new(RefCell::new(Ok(())));
        let program = |node| {
            let (running, ended) = (program(node), ended.clone());
            async move {
                if let Err(error) = running.await {
                    *ended.borrow_mut() = Err(error);
                }
            }
        };
        let server = |node| {
            let run = self.clone();
            async move { run.serve(&node).await }
        };
        simulation.run_with_servers(program, server)?;
        ended.borrow().clone()
    }

    /// Runs the part of the client on this node.
    ///
    /// # Errors
    /// Those of the call.
    pub fn call<'a>(&'a self, node: &'a SimNode) -> LocalBoxFuture<'a, Result<(), Error>> {
        self.run_client(node).boxed_local()
    }

    async fn run_client(&self, node: &SimNode) -> Result<(), Error> {
        let Some(rank) = self.party.rank(node.me()) else {
            return Ok(());
        };
        let attendance = Attendance::new(self.party.clone());
        let call = Call::new(node, &attendance, SEQUENCE);
        let expose = |(array, request): (usize, &Request)| {
            let share = request.holders.share(rank);
            node.expose(call.id.memory(array), (share, None))
        };
        let _exposures: Vec<_> = self.requests.iter().enumerate().map(expose).collect();
        let handed_over = Cell::new(false);
        let client = Client::new(call, rank, &handed_over);
        let mut asking = AskingDirector(self.requests.clone());
        let director = (rank == 0).then_some(&mut asking as &mut dyn Director);
        let proposal = Proposal {
            ask: (),
            own_boxes: Vec::new(),
            own: Vec::new(),
            complaint: None,
        };
        let verdict = match self.is_collective {
            true => client.run(Ok(proposal).into(), director).await,
            false => client.carry_out(&self.requests, director).await,
        };
        verdict.map(|_| ())
    }

    /// Runs the part of the servers on this node.
    fn serve<'a>(&'a self, node: &'a SimNode) -> LocalBoxFuture<'a, ()> {
        self.run_servers(node).boxed_local()
    }

    async fn run_servers(&self, node: &SimNode) {
        let attendance = Rc::new(Attendance::new(self.party.clone()));
        match self.is_collective {
            true => Servers::new(node, attendance, 0).run().await,
            false => {
                let call = Call::new(node, &attendance, SEQUENCE);
                // Simulated messages can always be sent.
                let _ = server::carry_out(call, &self.requests).await;
            }
        }
    }
}

/// The number of the only call.
const SEQUENCE: u64 = 0;

/// A director that asks for the requests of the run.
struct AskingDirector(Vec<Request>);

impl Director for AskingDirector {
    fn prepare(&mut self, _parts: RankParts) -> Result<Decision, Error> {
        Ok(Decision::Serve(self.0.clone()))
    }

    fn conclude(&mut self, outcome: Result<Tally, Error>) -> Result<Traffic, Error> {
        outcome.map(|done| done.moved)
    }
}
