//! The block file of a real server: a medium, whose calls wait in the queue of a device.

use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use penstock_engine::{Access, BlockFile, Digest, Opening, Result};
use penstock_layout::{Block, exact};

use super::device::{Device, DeviceId, no_answer};
use super::medium::Medium;
use super::queue::Place;
use super::sieve::BlockSieve;
use crate::memory::buffer::Buffer;

/// An opener opens the target of a request on a server.
pub trait Opener: Send + Sync {
    /// The device of the target on one server, also if the target is not there yet. Called on the
    /// node's thread, at each opening: it is to be cheap.
    ///
    /// # Errors
    /// When the target makes no sense.
    fn device(&self, opening: &Opening) -> Result<DeviceId>;

    /// Opens the target on the disk of one server. Called on the thread of the device's worker, and
    /// may block. `tells_positions` says whether the medium is to look up where its blocks lie.
    ///
    /// # Errors
    /// When the target is not there or does not allow the request's operation.
    fn open(&self, opening: &Opening, tells_positions: bool) -> Result<Arc<dyn Medium>>;

    /// Makes the sieve of a sifted read of the target, whose words are
    /// [`penstock_engine::Sifting::words`]. Called on the node's thread.
    ///
    /// # Errors
    /// When the words make no sense; [`super::sieve::no_sieve`] where reads are not sifted.
    fn sieve(&self, words: &[u8], opening: &Opening) -> Result<Box<dyn BlockSieve>>;
}

/// The medium, or the error of opening it, once the worker has tried.
type OpenedMedium = OnceLock<Result<Arc<dyn Medium>>>;

/// A real disk is a block file of a real server: one target on one device.
pub struct RealDisk {
    medium: Arc<OpenedMedium>,
    device: Rc<Device>,
    /// The number of this file on its device.
    number: u64,
    is_synced: bool,
}

impl RealDisk {
    /// Opens a target on its device. An error of opening is the answer to all later calls. Where
    /// the positions of blocks are to be known, the future ends when they are; a new target has
    /// none yet. It ends when the target is open, too, where another worker may take the next call.
    pub async fn open(device: Rc<Device>, opener: Arc<dyn Opener>, opening: Opening) -> Self {
        let file = Self {
            medium: Arc::default(),
            number: device.file_number(),
            device,
            is_synced: opening.sync,
        };
        let tells_positions = file.device.has_order() && opening.access != Access::Write;
        let medium = file.medium.clone();
        let opened = file.device.run(Place::Line, file.number, move || {
            let _ = medium.set(opener.open(&opening, tells_positions)); // nobody else sets it
        });
        if tells_positions || file.device.is_wide() {
            let _ = opened.await; // an error is the answer to all later calls
        }
        file
    }

    /// The medium, once it is open.
    fn opened(&self) -> Option<&dyn Medium> {
        let medium = self.medium.get()?.as_ref().ok()?;
        Some(&**medium)
    }

    /// The position of a block on the device, if it is known.
    fn known_position(&self, block: &Block) -> Option<u64> {
        let medium = self.opened().filter(|_| self.device.has_order())?;
        medium.position(block)
    }

    /// The place of a block's request in the queue.
    fn place(&self, block: &Block) -> Place {
        self.known_position(block).map_or(Place::Line, Place::At)
    }

    /// Lets the worker run `act`.
    async fn with_medium<T: Send + 'static>(
        &self,
        place: Place,
        act: impl FnOnce(&dyn Medium) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let medium = self.medium.clone();
        let act = move || match medium.get() {
            Some(Ok(medium)) => act(&**medium),
            Some(Err(error)) => Err(error.clone()),
            None => Err(no_answer()), // opening panicked
        };
        let answer = self.device.run(place, self.number, act);
        // This thread may have much to copy for the next block: the disk should begin before that.
        std::thread::yield_now();
        answer.await?
    }

    /// Lets the worker run `act` with the block's bytes in the buffer, from `at` on.
    async fn with_data(
        &self,
        block: &Block,
        buffer: &Buffer,
        at: u64,
        act: impl FnOnce(&dyn Medium, &Block, &mut [u8]) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let (block, staging) = (block.clone(), buffer.staging().clone());
        let (at, bytes) = (exact::<usize>(at), exact::<usize>(block.bytes));
        let end = at.checked_add(bytes);
        assert!(
            end.is_some_and(|end| end <= staging.bytes()),
            "a block beyond its buffer"
        );
        self.with_medium(self.place(&block), move |medium| {
            // SAFETY: in bounds; the engine leaves the buffer alone until the disk has ended, and
            // the memory itself is kept by `staging`.
            let data = unsafe { std::slice::from_raw_parts_mut(staging.base().add(at), bytes) };
            act(medium, &block, data)
        })
        .await
    }
}

impl BlockFile for RealDisk {
    type Buffer = Buffer;

    /// The position on the device. Blocks without a known position come after all others, in the
    /// order of the schema.
    fn position(&self, block: &Block) -> (u64, u64) {
        match self.known_position(block) {
            Some(position) => (0, position),
            None => (block.object.saturating_add(1), block.offset),
        }
    }

    fn is_in_schema_order(&self) -> bool {
        let opened = self.opened().filter(|_| self.device.has_order());
        opened.is_none_or(Medium::is_in_order)
    }

    fn queue_depth(&self) -> u32 {
        1 // the worker of its device makes one call at a time
    }

    async fn write(&self, block: &Block, buffer: &Buffer, at: u64) -> Result<()> {
        self.with_data(block, buffer, at, |medium, block, data| {
            medium.write(block, data)
        })
        .await
    }

    async fn read(&self, block: &Block, buffer: &Buffer, at: u64) -> Result<()> {
        self.with_data(block, buffer, at, |medium, block, data| {
            medium.read(block, data)
        })
        .await
    }

    async fn moves_parts(&self) -> Result<bool> {
        match self.opened() {
            Some(medium) => Ok(medium.moves_parts()),
            None => {
                let ask = |medium: &dyn Medium| Ok(medium.moves_parts());
                self.with_medium(Place::Line, ask).await
            }
        }
    }

    async fn write_parts(
        &self,
        block: &Block,
        parts: &[Range<u64>],
        buffer: &Buffer,
    ) -> Result<()> {
        let parts = parts.to_vec();
        self.with_data(block, buffer, 0, move |medium, block, data| {
            parts.into_iter().try_for_each(|Range { start, end }| {
                medium.write_part(
                    block,
                    start,
                    &data[exact::<usize>(start)..exact::<usize>(end)],
                )
            })
        })
        .await
    }

    async fn read_parts(&self, block: &Block, parts: &[Range<u64>], buffer: &Buffer) -> Result<()> {
        let parts = parts.to_vec();
        self.with_data(block, buffer, 0, move |medium, block, data| {
            parts.into_iter().try_for_each(|Range { start, end }| {
                medium.read_part(
                    block,
                    start,
                    &mut data[exact::<usize>(start)..exact::<usize>(end)],
                )
            })
        })
        .await
    }

    async fn finish(&self) -> Result<()> {
        let is_synced = self.is_synced;
        let finish = move |medium: &dyn Medium| medium.finish(is_synced);
        self.with_medium(Place::AfterFile, finish).await
    }

    fn digests(&self) -> Vec<Digest> {
        self.opened().map(Medium::digests).unwrap_or_default()
    }

    fn changes(&self) -> Vec<u8> {
        self.opened().map(Medium::changes).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use penstock_engine::{Error, Kind};
    use penstock_layout::{DiskSchema, Order};

    use super::super::device::tests::end;
    use super::*;

    type OpenAs = Box<dyn Fn() -> Result<Arc<dyn Medium>> + Send + Sync>;

    struct Answer(OpenAs);

    impl Opener for Answer {
        fn device(&self, _: &Opening) -> Result<DeviceId> {
            Ok(DeviceId::of(std::path::Path::new("/")).unwrap())
        }

        fn open(&self, _: &Opening, _: bool) -> Result<Arc<dyn Medium>> {
            (self.0)()
        }

        fn sieve(&self, _: &[u8], _: &Opening) -> Result<Box<dyn BlockSieve>> {
            Err(super::super::sieve::no_sieve())
        }
    }

    fn open(device: &Rc<Device>, answer: OpenAs) -> RealDisk {
        let opening = Opening {
            target: Vec::new(),
            disk: DiskSchema::flat(&[60], 4, Order::RowMajor, 40).unwrap(),
            access: Access::Update,
            sync: true,
            server: 0,
            servers: 1,
        };
        end(RealDisk::open(
            device.clone(),
            Arc::new(Answer(answer)),
            opening,
        ))
    }

    #[test]
    fn why_a_disk_cannot_be_opened_is_said_by_all_that_is_asked_of_it() {
        for has_order in [false, true] {
            let device = Rc::new(Device::start("disk-test".to_string(), has_order, 1).unwrap());
            let error = Error::new(Kind::Missing, "opening", "it is not there");
            let answer = error.clone();
            let disk = open(&device, Box::new(move || Err(answer.clone())));
            for _ in 0..2 {
                assert_eq!(end(disk.moves_parts()), Err(error.clone()));
                assert_eq!(end(disk.finish()), Err(error.clone()));
            }
            assert!(disk.digests().is_empty() && disk.is_in_schema_order());
            let disk = open(&device, Box::new(|| panic!("of the disk")));
            assert_eq!(end(disk.finish()).unwrap_err().kind, Kind::Io);
            assert_eq!(end(device.run(Place::Line, 9, || 2)), Ok(2));
        }
    }
}
