//! Explains a call without running it.

use std::path::Path;
use std::sync::Arc;

use penstock_bucket::is_url;
use penstock_engine::{Operation, Plan, Result, Strategy};
use penstock_layout::{DiskSchema, Holding};

use super::array::{ArrayCall, Memory};
use super::choose::{Known, Matter};
use super::session::Session;
use super::settings::Method;
use super::strategy::Choice;
use super::write::check_write;
use crate::formats::spread::is_template;

/// An array on disk, by the most bytes of a block.
type Disk = Box<dyn Fn(u64) -> Result<DiskSchema>>;

impl Session {
    /// Explains in words and numbers what a write or read of `array` by `strategy` would do. If
    /// each rank names its own boxes or list, those of other ranks are unknown here and are left
    /// out. With a description of the machine it says what each strategy would take.
    ///
    /// # Errors
    /// When the schema does not fit, when the strategy cannot do it, or when the store of a read is
    /// missing.
    pub fn explain(
        &self,
        path: &Path,
        array: &ArrayCall,
        operation: Operation,
        strategy: Option<Choice>,
    ) -> Result<String> {
        let method = Method::by(strategy.unwrap_or(self.settings().options.strategy));
        let rank = self.my_rank()?;
        let boxes = array.own_boxes().map(|own| (rank, own));
        let boxes = boxes.into_iter().collect();
        let holders = array.holders(operation, boxes, self.clients())?;
        let is_in_files = !is_url(path) && !is_template(path);
        let (disk, target, storage): (Disk, _, _) = match operation {
            Operation::Write => {
                let stored = array.stored_schema(&holders)?;
                let storage = stored.disk.clone();
                (
                    Box::new(move |bytes| stored.disk_schema(bytes)),
                    None,
                    storage,
                )
            }
            Operation::Read if self.party().stands => {
                let stored = self.describe(path, Some(&array.schema.name))?;
                let storage = stored.disk.clone();
                (
                    Box::new(move |bytes| stored.disk_schema(bytes)),
                    None,
                    storage,
                )
            }
            Operation::Read => {
                let stored = array.open_stored(path)?;
                let storage = stored.schema().disk.clone();
                let target = stored.target().clone();
                (
                    Box::new(move |bytes| stored.disk_schema(bytes)),
                    Some(target),
                    storage,
                )
            }
        };
        let fits = |strategy: &Strategy, disk: &DiskSchema| match operation {
            Operation::Write => check_write(strategy, array, &holders, disk),
            Operation::Read => Ok(()),
        };
        let own_list = array.own_list().map(|list| {
            let mut by_rank = vec![Arc::default(); rank + 1];
            by_rank[rank] = list.holding().clone();
            by_rank
        });
        let lists: Vec<_> = own_list.into_iter().collect();
        let matter = Matter {
            operation,
            method,
            holders: &holders,
            disk: &disk,
            fits: &fits,
            known: Known::of(is_in_files, &storage),
            lists: &lists,
        };
        let chooser = &self.desk().chooser;
        let chosen = chooser.choose(self.settings(), &matter)?;
        let table = chooser.table(self.settings(), &matter, &chosen)?;
        let disk = disk(chosen.block_bytes)?;
        fits(&chosen.way.strategy, &disk)?;
        let request =
            self.settings()
                .request(operation, chosen.way, holders.clone(), disk, target)?;
        let nothing = Holding::default();
        let list = array.own_list().map_or(&nothing, |list| list.holding());
        let mut text = Plan::new(&request, self.party(), (rank, list)).explain() + &table;
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
