//! Messages between two nodes, without Vesta: the first lines of Table I (section 5.2).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use penstock_engine::{CopyKind, Machine, Port, Result, Work};
use penstock_sim::machine::{Layout, Setup, SimNode, Simulation};
use penstock_sim::preset::Preset;
use penstock_sim::time::Time;
use serde::Serialize;

/// A pattern of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Messages go one way, one behind the other.
    Piped,
    /// A request, and the data with the acknowledgement.
    Read {
        /// Whether the data are also copied once more.
        is_copied: bool,
    },
    /// A request, the data right behind it, and an acknowledgement.
    Write {
        /// Whether the data are also copied once more.
        is_copied: bool,
    },
    /// A request with the data in it, and an acknowledgement: what Penstock's clients can do.
    WriteInside,
}

/// The number of messages, or of exchanges, that are measured.
const COUNT: u64 = 16;

/// The milliseconds of a message, or of an exchange, with `bytes` bytes of data.
///
/// # Errors
/// When the machine is impossible.
pub fn milliseconds(preset: &Preset, pattern: Pattern, bytes: u64) -> Result<f64> {
    let mut preset = preset.clone();
    (
        preset.nodes.clients,
        preset.nodes.io_nodes,
        preset.nodes.disks,
    ) = (1, 1, 1);
    let setup = Setup {
        layout: Layout::Contiguous,
        slots: 1,
        slot_bytes: preset.file.block_bytes,
        is_disk_free: true,
        seed: 0,
        is_real: false,
        is_traced: false,
    };
    let simulation = Simulation::new(&preset, &setup)?;
    let (ended, last) = (
        Rc::new(RefCell::new(Ok(()))),
        Rc::new(Cell::new(Time::ZERO)),
    );
    simulation.run(|node| {
        let (ended, last) = (ended.clone(), last.clone());
        async move {
            let ran = on(&node, pattern, bytes).await;
            last.set(last.get().max(node.time()));
            if ran.is_err() {
                *ended.borrow_mut() = ran;
            }
        }
    })?;
    ended.borrow().clone()?;
    let elapsed = last.get().saturating_since(Time::ZERO);
    Ok(1e3 * elapsed.as_seconds_f64() / COUNT as f64)
}

async fn on(node: &SimNode, pattern: Pattern, bytes: u64) -> Result<()> {
    let is_client = node.me() == 0;
    for _ in 0..COUNT {
        match (pattern, is_client) {
            (Pattern::Piped, true) => send(node, bytes).await?,
            (Pattern::Piped, false) => receive(node).await,
            (Pattern::Read { is_copied }, true) => {
                send(node, 0).await?;
                receive(node).await;
                copy(node, is_copied, bytes).await;
            }
            (Pattern::Read { .. }, false) => {
                receive(node).await;
                send(node, bytes).await?;
            }
            (Pattern::Write { is_copied }, true) => {
                send(node, 0).await?;
                copy(node, is_copied, bytes).await;
                send(node, bytes).await?;
                receive(node).await;
            }
            (Pattern::Write { .. }, false) => {
                receive(node).await;
                receive(node).await;
                send(node, 0).await?;
            }
            (Pattern::WriteInside, true) => {
                send(node, bytes).await?;
                receive(node).await;
            }
            (Pattern::WriteInside, false) => {
                receive(node).await;
                send(node, 0).await?;
            }
        }
    }
    Ok(())
}

const PORT: Port = Port::new([0; 3]);

async fn send(node: &SimNode, bytes: u64) -> Result<()> {
    let buffer = node.buffer(bytes)?;
    let parcel = node.cut(&buffer, 0..bytes);
    node.send(1 - node.me(), PORT, Vec::new(), Some(parcel))
        .await
}

async fn receive(node: &SimNode) {
    node.receive(PORT).await;
}

async fn copy(node: &SimNode, is_copied: bool, bytes: u64) {
    if is_copied {
        let (stretches, by) = (1, CopyKind::Kernels);
        let packing = Work::Pack {
            bytes,
            stretches,
            by,
        };
        node.work(packing).await;
    }
}
