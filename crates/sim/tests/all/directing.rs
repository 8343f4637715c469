//! What clients of tests have in common: a decision made before, and a call that comes to it.

use penstock_engine::collective::client::Client;
use penstock_engine::{Decision, Director, Error, Proposal, RankParts, Tally, Traffic, Verdict};
use penstock_sim::machine::SimNode;

/// The director comes to a decision that was made before, and passes the outcome on.
struct Decided(Decision);

impl Director for Decided {
    fn prepare(&mut self, _parts: RankParts) -> Result<Decision, Error> {
        Ok(self.0.clone())
    }

    fn conclude(&mut self, outcome: Result<Tally, Error>) -> Result<Traffic, Error> {
        outcome.map(|done| done.moved)
    }
}

/// Runs the client of `rank` through a call that comes to this decision.
pub async fn run(
    client: Client<'_, SimNode>,
    rank: usize,
    decision: Decision,
) -> Result<Verdict, Error> {
    let mut decided = Decided(decision);
    let director = (rank == 0).then_some(&mut decided as &mut dyn Director);
    let proposal = Proposal {
        ask: (),
        own_boxes: Vec::new(),
        own: Vec::new(),
        complaint: None,
    };
    client.run(Ok(proposal).into(), director).await
}
