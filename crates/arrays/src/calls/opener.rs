//! Opens the targets of arrays on servers.

use std::sync::Arc;

use penstock_engine::encoding::decode;
use penstock_engine::{Access, Opening, Result};
use penstock_machines::{BlockSieve, DeviceId, Medium, Opener};

use super::settings::SessionOptions;
use crate::Target;
use crate::sieve;
use crate::testing::Faults;

/// Opens stores on servers.
pub(super) struct StoreOpener {
    faults: Option<Faults>,
}

impl StoreOpener {
    pub(super) fn new(options: &SessionOptions) -> Arc<Self> {
        let faults = options.faults.clone();
        Arc::new(Self { faults })
    }
}

/// The target of an opening, on its server.
fn target_of(opening: &Opening) -> Result<Target> {
    let target: Target = decode(&opening.target)?;
    Ok(target.for_server(opening.server, opening.servers))
}

/// Opens a target.
pub(super) fn open_target(target: &Target, opening: &Opening) -> Result<Arc<dyn Medium>> {
    match opening.access {
        Access::Write => target.open_write(&opening.disk),
        Access::Read => target.open_read(&opening.disk),
        Access::Update => target.open_update(&opening.disk),
    }
}

impl Opener for StoreOpener {
    fn device(&self, opening: &Opening) -> Result<DeviceId> {
        target_of(opening)?.device()
    }

    fn open(&self, opening: &Opening, tells_positions: bool) -> Result<Arc<dyn Medium>> {
        let target = target_of(opening)?.telling_positions(tells_positions);
        let medium = open_target(&target, opening)?;
        match &self.faults {
            Some(faults) => faults.around(medium, &target, &opening.disk),
            None => Ok(medium),
        }
    }

    fn sieve(&self, words: &[u8], _opening: &Opening) -> Result<Box<dyn BlockSieve>> {
        sieve::heard(words)
    }
}
