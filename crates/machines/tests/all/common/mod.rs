//! What real machines have on the bench: memories in any form, and disks in memory.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

use penstock_conformance::{Form, Frame, Held, targets, truth};
use penstock_engine::{Access, Digest, Error, Kind, Opening, Result};
use penstock_layout::{Block, Share};
use penstock_machines::disk::medium::no_parts;
use penstock_machines::{BlockSieve, ClientMemory, DeviceId, Medium, Opener, no_sieve};

/// A client's memory.
pub struct Memory(Frame);

impl Memory {
    pub fn new(share: &Share, width: usize, values: &[u8], form: Form) -> Self {
        Self(Frame::new(share, width, values, form))
    }
}

impl Held for Memory {
    type Memory = ClientMemory;

    fn memory(&self) -> ClientMemory {
        ClientMemory {
            base: self.0.base(),
            extents: self.0.extents().to_vec(),
            strides: self.0.strides().to_vec(),
            width: self.0.width(),
        }
    }

    fn values(&self) -> Vec<u8> {
        self.0.values()
    }
}

/// The bytes of each block that was written, by object and offset.
type Blocks = BTreeMap<(u64, u64), Vec<u8>>;

/// What is stored under each target.
#[derive(Default)]
pub struct Stores(Mutex<HashMap<Vec<u8>, Arc<Mutex<Blocks>>>>);

impl Opener for Stores {
    fn device(&self, _opening: &Opening) -> Result<DeviceId> {
        Ok(DeviceId::of(Path::new("/")).unwrap())
    }

    fn open(&self, opening: &Opening, _tells_positions: bool) -> Result<Arc<dyn Medium>> {
        let target = &*opening.target;
        let failed = |kind| Err(Error::new(kind, "opening", "the bench has it so"));
        if target == targets::MISSING {
            return failed(Kind::Missing);
        }
        if target == targets::READ_ONLY && opening.access == Access::Write {
            return failed(Kind::ReadOnly);
        }
        let mut stores = self.0.lock().unwrap();
        Ok(Arc::new(Store {
            blocks: stores.entry(target.to_vec()).or_default().clone(),
            moves_parts: target == targets::PARTS,
            is_summed: target == targets::SUMMED,
            written: Mutex::default(),
        }))
    }

    fn sieve(&self, _words: &[u8], _opening: &Opening) -> Result<Box<dyn BlockSieve>> {
        Err(no_sieve())
    }
}

/// Blocks in memory.
struct Store {
    blocks: Arc<Mutex<Blocks>>,
    moves_parts: bool,
    is_summed: bool,
    /// The objects that this medium has written to.
    written: Mutex<BTreeSet<u64>>,
}

impl Store {
    /// Lets `act` have part of a block, if parts of this length may be moved.
    fn with(
        &self,
        (block, part): (&Block, Range<usize>),
        doing: &str,
        act: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        if !self.moves_parts && part.len() as u64 != block.bytes {
            return Err(no_parts(doing));
        }
        let mut blocks = self.blocks.lock().unwrap();
        let nothing = || vec![0; block.bytes as usize];
        let stored = blocks.entry((block.object, block.offset));
        act(&mut stored.or_insert_with(nothing)[part]);
        Ok(())
    }
}

impl Medium for Store {
    fn position(&self, _: &Block) -> Option<u64> {
        None // they lie in memory
    }

    fn is_in_order(&self) -> bool {
        true
    }

    fn write(&self, block: &Block, data: &[u8]) -> Result<()> {
        self.write_part(block, 0, data)
    }

    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        self.read_part(block, 0, data)
    }

    fn moves_parts(&self) -> bool {
        self.moves_parts
    }

    fn write_part(&self, block: &Block, offset: u64, data: &[u8]) -> Result<()> {
        self.written.lock().unwrap().insert(block.object);
        let part = offset as usize..offset as usize + data.len();
        self.with((block, part), "writing", |stored| {
            stored.copy_from_slice(data)
        })
    }

    fn read_part(&self, block: &Block, offset: u64, data: &mut [u8]) -> Result<()> {
        let part = offset as usize..offset as usize + data.len();
        self.with((block, part), "reading", |stored| {
            data.copy_from_slice(stored)
        })
    }

    fn finish(&self, _sync: bool) -> Result<()> {
        Ok(())
    }

    fn digests(&self) -> Vec<Digest> {
        if !self.is_summed {
            return Vec::new();
        }
        let blocks = self.blocks.lock().unwrap();
        let digest = |&object: &u64| {
            let of_object = blocks.range((object, 0)..=(object, u64::MAX));
            let bytes: Vec<u8> = of_object.flat_map(|(_, bytes)| bytes).copied().collect();
            Digest {
                object,
                crc32c: truth::crc32c(&bytes),
                bounds: None,
            }
        };
        self.written.lock().unwrap().iter().map(digest).collect()
    }

    fn changes(&self) -> Vec<u8> {
        Vec::new()
    }
}
