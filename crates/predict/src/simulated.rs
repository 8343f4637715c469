//! The time of a call in simulation.

use std::rc::Rc;

use penstock_engine::{Error, Kind, Result};
use penstock_sim::call::CollectiveRun;
use penstock_sim::machine::{Layout, Setup, Simulation};
use penstock_sim::preset::Preset;

use crate::closed::call_seconds;
use crate::question::Question;

/// The most steps of a call that is simulated. A simulation makes at least 1.5 million steps a
/// second, and there are three (the numbers, and both ends of their spread): 25,000 take 50 ms.
pub const STEPS_MAX: u64 = 25_000;

/// The seconds of the call on a machine that is cut to it.
///
/// # Errors
/// When the disks have no room, and those of the engine; [`Kind::Unsupported`] if ranks hold lists,
/// which simulated clients do not have.
pub fn seconds(machine: &Preset, question: &Question<'_>) -> Result<f64> {
    if question.requests.iter().any(|one| one.holders.are_lists()) {
        let cause = "ranks hold lists: only the closed form knows them";
        return Err(Error::new(Kind::Unsupported, "simulating a call", cause));
    }
    let disks = question.requests.iter().map(|request| &request.disk);
    let slot_bytes = disks.clone().map(|disk| disk.block_bytes_max()).max();
    let slots = disks
        .map(|disk| disk.conforming_blocks_max(machine.nodes.disks))
        .max();
    let setup = Setup {
        layout: Layout::Contiguous,
        slots: slots.unwrap_or(0),
        slot_bytes: slot_bytes.unwrap_or(0).max(1),
        is_disk_free: false,
        seed: 0,
        is_real: false,
        is_traced: false,
    };
    let simulation = Simulation::new(machine, &setup)?;
    let requests = question
        .requests
        .iter()
        .enumerate()
        .map(|(array, request)| {
            let mut request = request.clone();
            request.target = array.to_le_bytes().to_vec(); // each array has a file of its own
            request
        });
    let run = Rc::new(CollectiveRun {
        requests: requests.collect(),
        party: simulation.party().clone(),
        is_collective: true,
    });
    run.in_simulation(&simulation, |node| {
        let run = run.clone();
        async move { run.call(&node).await }
    })?;
    let elapsed = simulation.now().as_seconds_f64();
    Ok(elapsed + call_seconds(machine, question))
}
