//! A group as its saves see it.

use penstock_engine::Result;
use penstock_layout::DiskSchema;
use serde_json::{Map, Value};

use crate::formats::Target;
use crate::formats::bounds::AllBounds;
use crate::formats::sums::Sums;
use crate::schema::ArraySchema;

/// The moment of a save.
#[derive(Debug, Clone, PartialEq)]
pub struct Moment {
    pub step: u64,
    pub time: Option<f64>,
    /// The attributes of the moment.
    pub attributes: Map<String, Value>,
}

/// What is known of an array that servers have written for a moment.
pub struct SavedArray {
    pub(crate) name: String,
    /// The number of rows of its first dimension at this moment.
    pub(crate) rows: u64,
    /// The checksums of its objects.
    pub(crate) sums: Sums,
    /// The bounds of its objects, if they are kept.
    pub(crate) bounds: Option<AllBounds>,
}

/// A group that is open to be saved to. Dropped, it is free for others.
pub trait Group: Timesteps + Checkpoints + Send {
    /// The group's id: no other group has it.
    fn id(&self) -> &str;

    /// The schema of an array of the group at one moment.
    ///
    /// # Errors
    /// When the array's metadata make no sense.
    fn moment(&self, name: &str) -> Result<ArraySchema>;
}

/// The timesteps of a group.
pub trait Timesteps {
    /// Checks that `servers` servers can add timesteps.
    ///
    /// # Errors
    /// [`Kind::Schema`] when the group is spread over more servers.
    fn check_servers(&self, servers: usize) -> Result<()>;

    /// The number of timesteps in a chunk.
    fn time_chunk(&self) -> u64;

    /// The number of timesteps.
    fn timesteps(&self) -> u64;

    /// The time of the last timestep.
    ///
    /// # Errors
    /// When the time cannot be read.
    fn last_time(&self) -> Result<Option<f64>>;

    /// The disk schema and the target of the next timestep of each array, by its name and its
    /// number of rows.
    ///
    /// # Errors
    /// When an array's metadata make no sense; the error of the operating system.
    fn begin_timestep(
        &mut self,
        arrays: &[(String, u64)],
        block_bytes: u64,
    ) -> Result<Vec<(DiskSchema, Target)>>;

    /// Commits a timestep of these arrays, which servers have written and synced.
    ///
    /// # Errors
    /// The error of the operating system. The group is then as it was, or, when the very last steps
    /// fail, a timestep longer.
    fn commit_timestep(&mut self, time: f64, arrays: &[SavedArray]) -> Result<()>;

    /// Removes the rows of a timestep that is given up. A timestep stays if it is committed
    /// already, and only a later step has failed.
    ///
    /// # Errors
    /// The error of the operating system. The next write tries again.
    fn abandon_timestep(&mut self) -> Result<()>;

    /// Removes all timesteps from `first` on.
    ///
    /// # Errors
    /// The error of the operating system.
    fn drop_timesteps(&mut self, first: u64) -> Result<()>;
}

/// The checkpoints of a group.
pub trait Checkpoints {
    /// Begins a checkpoint of a moment. Servers write to the targets, one an array; in a group that
    /// is spread, each of `servers` servers has a part of the checkpoint.
    ///
    /// # Errors
    /// The error of the operating system.
    fn begin_checkpoint(
        &mut self,
        moment: &Moment,
        arrays: &[ArraySchema],
        servers: usize,
    ) -> Result<Vec<Target>>;

    /// Commits the checkpoint of these arrays, which servers have written and synced, and removes
    /// old checkpoints until `keep` are left.
    ///
    /// # Errors
    /// The error of the operating system. All former checkpoints are then there.
    fn commit_checkpoint(
        &mut self,
        moment: &Moment,
        arrays: &[SavedArray],
        keep: usize,
    ) -> Result<()>;

    /// Removes what was written of a checkpoint that is given up.
    ///
    /// # Errors
    /// The error of the operating system. The next write tries again.
    fn abandon_checkpoint(&mut self) -> Result<()>;

    /// Removes all checkpoints with numbers greater than `number`, the newest first: at any moment
    /// the remaining ones have no gap.
    ///
    /// # Errors
    /// The error of the operating system.
    fn drop_checkpoints(&mut self, number: u64) -> Result<()>;
}
