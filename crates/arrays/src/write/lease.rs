//! The lease of a write to an array in a bucket: an object that only one writer can create.
//!
//! A lease says who writes, and on which host. As long as its writer lives, a thread renews it. A
//! lease is dead if its process is gone, as a process on the same host can tell, or if nobody has
//! renewed it for [`DEAD_AFTER`]. Then another writer takes it over, by a put under the condition
//! that the lease is still the dead one. A writer that slept so long finds that its lease is
//! another's, and fails.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use penstock_bucket::{Place, Version};
use penstock_engine::{Error, Kind, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fs::files::lock;
use crate::fs::ops::{boot, host};
use crate::fs::temporary::nonce;
use crate::json;

/// The name of a lease, below its array.
pub(super) const NAME: &str = ".penstock";
/// The time between two renewals of a lease.
const RENEWED_AFTER: Duration = Duration::from_secs(15);
/// The age of a lease that nobody renews. Clocks of hosts and services may differ by less.
const DEAD_AFTER: Duration = Duration::from_secs(120);

/// A lease, as its writer holds it; it goes when this is dropped.
pub(crate) struct Lease {
    place: Place,
    held: Arc<Mutex<Held>>,
    /// What the dead writer whose lease this was has noted.
    former: Option<Value>,
}

/// The lease as it was last put.
struct Held {
    owner: Owner,
    /// The version; `None` when the lease is lost, or was given back.
    version: Option<Version>,
}

/// The contents of a lease.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Owner {
    /// A text that no other lease has.
    id: String,
    host: String,
    /// The number of the host's start.
    boot: u64,
    process: u32,
    /// The number of renewals: each is another object.
    renewals: u64,
    /// What the writer has to say to one who takes over.
    note: Value,
}

impl Owner {
    fn own() -> Self {
        Self {
            id: nonce(),
            host: host(),
            boot: boot(),
            process: std::process::id(),
            renewals: 0,
            note: Value::Null,
        }
    }

    /// Whether this host can tell that the process is gone.
    fn is_gone(&self) -> bool {
        let own = Self::own();
        let is_here = own.host == self.host && own.boot == self.boot;
        is_here && !Path::new(&format!("/proc/{}", self.process)).exists()
    }

    fn text(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

impl Lease {
    /// Leases an array.
    ///
    /// # Errors
    /// [`Kind::Busy`] when somebody else has leased it; the error of the service.
    pub(crate) fn take(array: &Place) -> Result<Self> {
        let place = array.below(NAME)?;
        let owner = Owner::own();
        if let Some(version) = place.create(&owner.text())? {
            return Ok(Self::hold(place, owner, version, None));
        }
        let (Some((text, version)), Some(about)) = (place.read()?, place.about()?) else {
            return Err(busy(array, "another job has just written it"));
        };
        let found: Option<Owner> = json::parse(&text)
            .ok()
            .and_then(|found| serde_json::from_value(found).ok());
        let age = SystemTime::now().duration_since(about.written);
        let is_old = age.is_ok_and(|age| age > DEAD_AFTER);
        if !is_old && !found.as_ref().is_some_and(Owner::is_gone) {
            let by = found.map_or("another job".to_string(), |found| {
                format!("process {} on {}", found.process, found.host)
            });
            let wait = DEAD_AFTER.as_secs();
            let cause = format!("{by} is writing it (or was, less than {wait} seconds ago)");
            return Err(busy(array, &cause));
        }
        match place.replace(&owner.text(), &version)? {
            Some(version) => Ok(Self::hold(
                place,
                owner,
                version,
                found.map(|found| found.note),
            )),
            None => Err(busy(array, "another job has just begun to write it")),
        }
    }

    /// Holds a lease, and renews it.
    fn hold(place: Place, owner: Owner, version: Version, former: Option<Value>) -> Self {
        let version = Some(version);
        let held = Arc::new(Mutex::new(Held { owner, version }));
        let lease = Self {
            place,
            held,
            former,
        };
        let (place, held) = (lease.place.clone(), Arc::downgrade(&lease.held));
        lease.place.repeat(RENEWED_AFTER, move || {
            let Some(held) = held.upgrade() else {
                return false;
            };
            let mut held = lock(&held);
            held.owner.renewals += 1;
            // An error may pass; a lease that is another's by now does not come back.
            let renewed = held.put(&place);
            renewed.is_err() || held.version.is_some()
        });
        lease
    }

    /// What the dead writer has noted whose lease this was.
    pub(super) fn former(&self) -> Option<&Value> {
        self.former.as_ref()
    }

    /// Notes something for one who takes over.
    ///
    /// # Errors
    /// As [`Lease::check`].
    pub(super) fn note(&self, note: &Value) -> Result<()> {
        let mut held = lock(&self.held);
        held.owner.note = note.clone();
        held.put(&self.place)?;
        self.kept(&held)
    }

    /// Checks that the lease is still this writer's.
    ///
    /// # Errors
    /// [`Kind::Busy`] when it is not; the error of the service.
    pub(crate) fn check(&self) -> Result<()> {
        let mut held = lock(&self.held);
        held.owner.renewals += 1;
        held.put(&self.place)?;
        self.kept(&held)
    }

    fn kept(&self, held: &Held) -> Result<()> {
        match held.version {
            Some(_) => Ok(()),
            None => Err(busy(&self.place, "another job has taken this one for dead")),
        }
    }
}

impl Held {
    /// Puts the lease anew, if it is still this writer's.
    fn put(&mut self, place: &Place) -> Result<()> {
        if let Some(version) = &self.version {
            self.version = place.replace(&self.owner.text(), version)?;
        }
        Ok(())
    }
}

impl Drop for Lease {
    /// Gives the lease back, if it is not another's by now. One that cannot be removed is found
    /// dead later.
    fn drop(&mut self) {
        let mut held = lock(&self.held);
        held.owner.renewals += 1;
        let is_told = held.put(&self.place).is_ok();
        if held.version.take().is_some() && is_told {
            let _ = self.place.remove();
        }
    }
}

fn busy(place: &Place, cause: &str) -> Error {
    Error::new(Kind::Busy, "writing", cause).at(place.url())
}
