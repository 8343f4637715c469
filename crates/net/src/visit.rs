//! A visit: a client calls servers, and hears what they serve.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use penstock_engine::encoding::decode;
use penstock_engine::{Error, Kind, NodeId, Result};
use serde::{Deserialize, Serialize};

use crate::address::{self, Address};
use crate::tls::{KeyFiles, Keys};
use crate::{Hears, Joined, Welcome, join};

/// What server processes tell all clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// The node of each server, by number.
    pub homes: Vec<NodeId>,
    /// The description of the volume of parallel files.
    pub volume: Vec<u8>,
    /// The node of each server of arrays, by number: none where no arrays are served.
    pub arrays: Vec<NodeId>,
}

/// Whom a client calls, and how.
#[derive(Debug, Clone)]
pub struct Call {
    /// Addresses of servers. One of them at least must answer.
    pub addresses: Vec<Address>,
    /// The keys for connections with other hosts.
    pub keys: Option<Keys>,
    /// How long a server may take nothing while there is something for it.
    pub patience: Duration,
}

/// A client that servers have let in, and what they say.
pub struct Visit {
    /// The client.
    pub joined: Joined,
    /// What all servers that can be reached say.
    pub greeting: Greeting,
    /// The number of these servers, which no others have.
    pub realm: u64,
}

impl Call {
    /// The longest time that a server may take nothing, unless a client says otherwise.
    pub const PATIENCE: Duration = Duration::from_secs(30);

    /// How to call the servers of a URL, `penstock://host:7433,host2:7433` or
    /// `unix:///run/penstock.sock`; nothing for the path of a volume. `keys` are a directory and
    /// the name of a holder in it, `DIR/NAME`, as `penstock keys` makes them; or what the
    /// environment variable `PENSTOCK_KEYS` says.
    ///
    /// # Errors
    /// [`Kind::Schema`] when an address makes no sense; those of [`KeyFiles::read`].
    pub fn of_url(url: &str, keys: Option<&str>) -> Result<Option<Self>> {
        let Some(addresses) = address::of_url(url)? else {
            return Ok(None);
        };
        let named = keys.map(str::to_string);
        let named = named.or_else(|| std::env::var("PENSTOCK_KEYS").ok());
        let keys = named.filter(|named| !named.is_empty());
        let keys = keys.map(|named| KeyFiles::of_holder(Path::new(&named)).read());
        Ok(Some(Self {
            addresses,
            keys: keys.transpose()?,
            patience: Self::PATIENCE,
        }))
    }

    /// Calls the servers.
    ///
    /// # Errors
    /// As [`join`]; [`Kind::Mismatch`] when servers say different things; [`Kind::Peer`] when they
    /// say what cannot be.
    pub fn visit(&self) -> Result<Visit> {
        self.visit_and_hear(Arc::new(|_| {}))
    }

    /// Calls the servers, and hears what they say when they are called again.
    ///
    /// # Errors
    /// As [`Call::visit`].
    pub fn visit_and_hear(&self, hears: Hears) -> Result<Visit> {
        let joined = join(&self.addresses, self.keys.as_ref(), self.patience, hears)?;
        let (greeting, realm) = heard(&joined.welcomes)?;
        Ok(Visit {
            joined,
            greeting,
            realm,
        })
    }
}

/// What all servers that can be reached say, and their number.
///
/// # Errors
/// As [`Call::visit`].
pub(crate) fn heard(welcomes: &[Result<Welcome>]) -> Result<(Greeting, u64)> {
    let mut known: Option<(Greeting, u64)> = None;
    for welcome in welcomes.iter().flatten() {
        let greeting: Greeting = decode(&welcome.greeting)?;
        let is_process = |&home: &NodeId| home < welcome.addresses.len();
        let mut nodes = greeting.homes.iter().chain(&greeting.arrays);
        if !nodes.all(is_process) || greeting.homes.is_empty() {
            let cause = "the server says what cannot be";
            return Err(Error::new(Kind::Peer, "connecting", cause));
        }
        let (first, realm) = known.get_or_insert_with(|| (greeting.clone(), welcome.realm));
        // One that has been started anew may know of servers that have come.
        let are_more = greeting.homes.starts_with(&first.homes);
        let are_same = are_more || first.homes.starts_with(&greeting.homes);
        if are_more {
            *first = greeting;
        }
        if !are_same || *realm != welcome.realm {
            let cause = "servers say different things of what they serve";
            return Err(Error::new(Kind::Mismatch, "connecting", cause));
        }
    }
    known.ok_or_else(|| Error::new(Kind::Peer, "connecting", "nobody answers"))
}
