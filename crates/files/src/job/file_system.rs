//! The file system: names, attributes, space.

use std::collections::BTreeMap;
use std::sync::Arc;

use penstock_engine::{Error, Result};
use penstock_machines::node::runner::Runner;

use super::core::{Core, Failure};
use super::view::OpenFile;
use crate::client::{Client, ClientState, Mode, VolumeSpace};
use crate::messages::Attacher;
use crate::names::FilePath;
use crate::object::{Attributes, Identity};
use crate::transaction::{Entry, FileChange};

/// A client of a volume, and the servers of this process.
pub struct FileSystem {
    core: Arc<Core>,
    /// Whether this client stops the servers when it closes.
    stops: bool,
}

impl FileSystem {
    pub(super) fn new(runner: Runner, state: ClientState, failure: Failure, stops: bool) -> Self {
        Self {
            core: Arc::new(Core {
                runner,
                state,
                failure,
            }),
            stops,
        }
    }

    /// The number of servers.
    pub fn servers(&self) -> usize {
        self.core.state.shape.servers.len()
    }

    /// The bytes of a block.
    pub fn block_bytes(&self) -> u64 {
        self.core.state.shape.block_bytes
    }

    /// The user.
    pub fn identity(&self) -> &Identity {
        &self.core.state.who
    }

    /// Makes a directory (an Xref).
    ///
    /// # Errors
    /// As [`Client::make_directory`].
    pub fn make_directory(&self, path: FilePath, mode: u16) -> Result<Attributes> {
        self.core.run(|node, state| async move {
            Client::new(&*node, &state).make_directory(path, mode).await
        })
    }

    /// Makes a file.
    ///
    /// # Errors
    /// As [`Client::create`].
    pub fn create(
        &self,
        path: FilePath,
        shape: (u64, u64, Option<usize>),
        mode: u16,
    ) -> Result<Attributes> {
        self.core.run(move |node, state| async move {
            Client::new(&*node, &state).create(path, shape, mode).await
        })
    }

    /// The attributes of an object, and of a file the bytes up to the end of each cell that has
    /// any.
    ///
    /// # Errors
    /// As [`Client::stat`].
    pub fn stat(&self, path: FilePath) -> Result<(Attributes, BTreeMap<u64, u64>)> {
        self.core.run(move |node, state| async move {
            let client = Client::new(&*node, &state);
            let object = client.stat(&path).await?;
            let bytes = match object.shape() {
                Ok(_) => client.cell_bytes(&object).await?,
                Err(_) => BTreeMap::new(), // a directory has no cells
            };
            Ok((object, bytes))
        })
    }

    /// The entries of a directory, in the order of their names.
    ///
    /// # Errors
    /// As [`Client::list`].
    pub fn list(&self, path: FilePath) -> Result<Vec<(String, Entry)>> {
        self.core
            .run(move |node, state| async move { Client::new(&*node, &state).list(&path).await })
    }

    /// Who has a file attached.
    ///
    /// # Errors
    /// As [`Client::status`].
    pub fn status(&self, path: FilePath) -> Result<Vec<Attacher>> {
        self.core
            .run(move |node, state| async move { Client::new(&*node, &state).status(&path).await })
    }

    /// Removes a file, or an empty directory.
    ///
    /// # Errors
    /// As [`Client::remove`].
    pub fn remove(&self, path: FilePath) -> Result<()> {
        self.core
            .run(move |node, state| async move { Client::new(&*node, &state).remove(&path).await })
    }

    /// Gives an object, and all below it, another path.
    ///
    /// # Errors
    /// As [`Client::rename`].
    pub fn rename(&self, from: FilePath, to: FilePath) -> Result<()> {
        self.core.run(move |node, state| async move {
            Client::new(&*node, &state).rename(&from, &to).await
        })
    }

    /// Changes the mode, the owner or the group of an object.
    ///
    /// # Errors
    /// As [`Client::protect`].
    pub fn protect(
        &self,
        path: FilePath,
        settings: (Option<u16>, Option<u32>, Option<u32>),
    ) -> Result<()> {
        self.core.run(move |node, state| async move {
            Client::new(&*node, &state).protect(&path, settings).await
        })
    }

    /// Changes all cells of a file.
    ///
    /// # Errors
    /// As [`Client::change`].
    pub fn change(&self, path: FilePath, change: FileChange) -> Result<()> {
        self.core.run(move |node, state| async move {
            Client::new(&*node, &state).change(&path, change).await
        })
    }

    /// Puts all data of the volume on stable storage.
    ///
    /// # Errors
    /// As [`Client::sync`].
    pub fn sync(&self) -> Result<()> {
        self.core
            .run(|node, state| async move { Client::new(&*node, &state).sync(None).await })
    }

    /// The space of the volume, and of a user's files in it.
    ///
    /// # Errors
    /// As [`Client::space`].
    pub fn space(&self, user: u32) -> Result<VolumeSpace> {
        self.core
            .run(move |node, state| async move { Client::new(&*node, &state).space(user).await })
    }

    /// Limits the bytes of blocks of a user.
    ///
    /// # Errors
    /// As [`Client::limit`].
    pub fn limit(&self, user: u32, bytes: Option<u64>) -> Result<()> {
        self.core.run(move |node, state| async move {
            Client::new(&*node, &state).limit(user, bytes).await
        })
    }

    /// Attaches a file.
    ///
    /// # Errors
    /// As [`Client::attach`].
    pub fn attach(&self, path: FilePath, mode: Mode) -> Result<OpenFile> {
        let file = self.core.run(move |node, state| async move {
            Client::new(&*node, &state).attach(&path, mode).await
        })?;
        Ok(OpenFile::new(self.core.clone(), file))
    }

    /// Saves all, and ends the servers of the volume if this client has started them. What is open
    /// cannot be used any more.
    ///
    /// # Errors
    /// Those of disks.
    pub fn close(&self) -> Result<()> {
        match self.stops {
            true => self
                .core
                .run(|node, state| async move { Client::new(&*node, &state).stop().await }),
            false => Ok(()),
        }
    }

    /// Tells all others that this program leaves because of an error.
    pub fn leave(&self, error: &Error) {
        self.core.runner.leave(error);
    }
}
