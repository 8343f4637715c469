//! `penstock fs add-server` and `rebalance`: servers that come and go.

use std::collections::BTreeSet;

use penstock_files::disk;
use penstock_files::job::FileSystem;
use penstock_files::job::standing::description;
use penstock_files::rebalance::{Progress, Rebalanced, rebalance};
use penstock_net::Call;
use penstock_trace::sizes::bytes;
use serde_json::json;

use super::arguments::{AddServer, Rebalance};
use super::print_json;
use crate::failure::Failure;
use crate::output::{self, counted};
use crate::progress::Bar;

/// Makes the directory of one more server.
pub(super) fn add_server(asked: &AddServer) -> Result<(), Failure> {
    let (like, next) = match &asked.like {
        None => {
            let next = disk::servers(&asked.volume)?;
            (disk::describe(&asked.volume, 0)?, Some(next))
        }
        Some(place) => match Call::of_url(place, None)? {
            Some(call) => {
                let (like, servers) = description(&call)?;
                (like, Some(servers))
            }
            None => (disk::describe(place, 0)?, Some(disk::servers(place)?)),
        },
    };
    let server = asked.server.or(next).unwrap_or(like.servers);
    let capacity = asked.capacity.as_deref().map(bytes).transpose()?;
    disk::add_server(
        &asked.volume,
        server,
        &like,
        (capacity, asked.disks.clone()),
    )?;
    output::text(&format!(
        "made server {server} of {}; `penstock fs rebalance` spreads the volume over it\n",
        asked.volume
    ))
}

/// Spreads a volume over its servers, or some of them.
pub(super) fn run(fs: &FileSystem, asked: &Rebalance) -> Result<(), Failure> {
    let rings = fs.rings()?;
    let now: BTreeSet<usize> = rings.servers(rings.newest())?.iter().copied().collect();
    let servers: BTreeSet<usize> = match (&asked.servers[..], &asked.drain[..]) {
        ([], []) => (0..fs.servers()).collect(),
        ([], drained) => {
            let drained = drained.iter().copied().collect();
            now.difference(&drained).copied().collect()
        }
        (servers, _) => servers.iter().copied().collect(),
    };
    let servers: Vec<usize> = servers.into_iter().collect();
    let bar = Bar::new();
    let done = rebalance(fs, &servers, &mut |progress| {
        bar.tell_text(said(progress));
        Ok(())
    })?;
    drop(bar);
    let Rebalanced {
        ring,
        progress,
        failures,
    } = &done;
    if asked.json {
        let failures: serde_json::Map<String, serde_json::Value> = failures
            .iter()
            .map(|(path, error)| (path.to_string(), json!(error.to_string())))
            .collect();
        print_json(&json!({
            "ring": ring,
            "servers": servers,
            "slots": progress.slots,
            "files": progress.files,
            "failures": failures,
        }))?;
    } else {
        let mut text = said(progress) + "\n";
        for (path, error) in failures {
            text += &format!("not moved: {path}: {error}\n");
        }
        output::text(&text)?;
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(Failure::silent(1)),
    }
}

fn said(progress: &Progress) -> String {
    format!(
        "moved {} of names and {}",
        counted(progress.slots, "slot"),
        counted(progress.files, "file")
    )
}
