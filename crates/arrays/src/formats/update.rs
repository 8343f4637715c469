//! Keeps the rules of a medium that is open for long, and changed in place, around the medium of a
//! form.
//!
//! - A finish has the medium to itself: it puts files in place, which no read or write may meet
//!   half way.
//! - A write or a finish that fails ends the medium: a chunk may be written in part, and the kernel
//!   tells of a failed sync only once. All that follows fails with the same error, until the array
//!   is opened again; what has not been finished is then as it was, or as it was written.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use penstock_engine::{Digest, Error, Result};
use penstock_layout::Block;
use penstock_machines::Medium;

/// A medium that is finished many times.
pub(super) struct UpdateMedium {
    medium: Arc<dyn Medium>,
    /// Held by each read and write, and by a finish alone.
    turn: RwLock<()>,
    failed: OnceLock<Error>,
}

impl UpdateMedium {
    pub(super) fn new(medium: Arc<dyn Medium>) -> Self {
        Self {
            medium,
            turn: RwLock::new(()),
            failed: OnceLock::new(),
        }
    }

    /// Runs `act` beside others, but not beside a finish.
    fn beside_others(&self, act: impl FnOnce() -> Result<()>) -> Result<()> {
        let _turn = self.turn.read().unwrap_or_else(PoisonError::into_inner);
        self.unless_failed()?;
        act()
    }

    fn unless_failed(&self) -> Result<()> {
        self.failed.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Keeps an error for all calls that follow.
    fn noting(&self, answer: Result<()>) -> Result<()> {
        answer.inspect_err(|error| {
            let _ = self.failed.set(error.clone()); // the first error stays
        })
    }
}

impl Medium for UpdateMedium {
    fn position(&self, block: &Block) -> Option<u64> {
        self.medium.position(block)
    }

    fn is_in_order(&self) -> bool {
        self.medium.is_in_order()
    }

    fn write(&self, block: &Block, data: &[u8]) -> Result<()> {
        self.beside_others(|| self.noting(self.medium.write(block, data)))
    }

    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        self.beside_others(|| self.medium.read(block, data))
    }

    fn moves_parts(&self) -> bool {
        self.medium.moves_parts()
    }

    fn write_part(&self, block: &Block, offset: u64, data: &[u8]) -> Result<()> {
        self.beside_others(|| {
            let written = self.medium.write_part(block, offset, data);
            match self.medium.moves_parts() {
                true => self.noting(written),
                false => written, // a refusal, which changes nothing
            }
        })
    }

    fn read_part(&self, block: &Block, offset: u64, data: &mut [u8]) -> Result<()> {
        self.beside_others(|| self.medium.read_part(block, offset, data))
    }

    fn finish(&self, sync: bool) -> Result<()> {
        let _turn = self.turn.write().unwrap_or_else(PoisonError::into_inner);
        self.unless_failed()?;
        self.noting(self.medium.finish(sync))
    }

    fn digests(&self) -> Vec<Digest> {
        Vec::new()
    }

    fn changes(&self) -> Vec<u8> {
        self.medium.changes()
    }
}
