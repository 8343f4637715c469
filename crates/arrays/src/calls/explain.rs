//! Explains a call without running it.

use std::path::Path;

use penstock_engine::{Operation, Plan, Result, Strategy};
use penstock_layout::Holding;

use super::array::{ArrayCall, Memory};
use super::session::Session;
use super::settings::Method;
use super::write::check_write;

impl Session {
    /// Explains in words and numbers what a write or read of `array` by `strategy` would do. If
    /// each rank names its own boxes or list, those of other ranks are unknown here and are left
    /// out.
    ///
    /// # Errors
    /// When the schema does not fit, when the strategy cannot do it, or when the store of a read is
    /// missing.
    pub fn explain(
        &self,
        path: &Path,
        array: &ArrayCall,
        operation: Operation,
        strategy: Option<Strategy>,
    ) -> Result<String> {
        let method = Method::by(strategy.unwrap_or(self.settings().options.strategy));
        let rank = self.my_rank()?;
        let boxes = array.own_boxes().map(|own| (rank, own));
        let boxes = boxes.into_iter().collect();
        let holders = array.holders(operation, boxes, self.clients())?;
        let block_bytes = self.settings().options.block_bytes;
        let (disk, target) = match operation {
            Operation::Write => {
                let disk = array.stored_schema(&holders)?.disk_schema(block_bytes)?;
                check_write(&method.strategy, array, &holders, &disk)?;
                (disk, None)
            }
            Operation::Read if self.party().stands => {
                let stored = self.describe(path, Some(&array.schema.name))?;
                (stored.disk_schema(block_bytes)?, None)
            }
            Operation::Read => {
                let stored = array.open_stored(path)?;
                let target = stored.target().clone();
                (stored.disk_schema(block_bytes)?, Some(target))
            }
        };
        let request = self
            .settings()
            .request(operation, method, holders, disk, target)?;
        let nothing = Holding::default();
        let list = array.own_list().map_or(&nothing, |list| list.holding());
        let mut text = Plan::new(&request, self.party(), (rank, list)).explain();
        let what = match array.memory {
            Memory::Distribution { .. } => return Ok(text),
            Memory::List { .. } => "lists",
            Memory::Boxes { .. } | Memory::Rows { .. } => "irregular boxes",
        };
        if self.clients() > 1 {
            text.push_str(&format!(
                "  (of {what}: this rank's only, the others' are not known here)\n"
            ));
        }
        Ok(text)
    }
}
