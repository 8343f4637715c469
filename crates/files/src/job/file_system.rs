//! The file system: names, attributes, space.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use penstock_engine::{Error, Kind, Machine, Port, Result};
use penstock_machines::Node;
use penstock_machines::node::runner::Runner;
use penstock_net::Calling;

use super::core::{Core, Failure, hear};
use super::view::OpenFile;
use crate::attached::Attacher;
use crate::client::{Client, ClientState, Mode, VolumeSpace};
use crate::names::FilePath;
use crate::names::Keepers;
use crate::object::{Attributes, Details, Identity};
use crate::placement::Rings;
use crate::transaction::{Entry, FileChange, NewAttributes, Replacement};
use crate::volume::cells::Version;

/// The mailbox of the words with which a program ends.
const PARTING: Port = Port::new([u64::MAX, u64::MAX, 1 << 60]);

/// A client of a volume, and the servers of this process.
pub struct FileSystem {
    core: Arc<Core>,
    ending: Arc<Ending>,
    /// The user for whom this handle acts, if it is not the client's own.
    who: Option<Arc<Identity>>,
}

/// How a program ends its use of a volume.
pub(super) enum Ending {
    /// The servers end with the program, and so do all of its nodes.
    Together {
        /// The number of servers of this process that serve.
        running: Arc<AtomicUsize>,
        /// The number of nodes of the program.
        nodes: usize,
    },
    /// The servers stand, and are called when they are not there.
    Alone { _calling: Arc<Calling> },
}

impl FileSystem {
    pub(super) fn new(
        runner: Runner,
        state: ClientState,
        failure: Failure,
        ending: Ending,
    ) -> Self {
        Self {
            core: Arc::new(Core {
                rank: rank_of(&runner, &state),
                runner,
                state,
                failure,
                is_joined: AtomicBool::new(true),
                has_changed: AtomicBool::new(false),
            }),
            ending: Arc::new(ending),
            who: None,
        }
    }

    /// A handle of the same client that acts for a user, who is asked for permissions and owns new
    /// objects. Servers of this process trust it; those that stand do so if the client is root's or
    /// the owner's of the volume.
    #[must_use]
    pub fn as_user(&self, who: Identity) -> Self {
        Self {
            core: self.core.clone(),
            ending: self.ending.clone(),
            who: Some(Arc::new(who)),
        }
    }

    /// Does a job of the client to its end, for the user of this handle.
    fn run<T, F>(&self, job: impl FnOnce(Rc<Node>, ClientState) -> F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + 'static,
    {
        self.core.run(|node, mut state| {
            if let Some(who) = &self.who {
                state.who = (**who).clone();
            }
            job(node, state)
        })
    }

    /// The number of servers.
    pub fn servers(&self) -> usize {
        self.core.state.shape.servers.count()
    }

    /// The bytes of a block.
    pub fn block_bytes(&self) -> u64 {
        self.core.state.shape.block_bytes
    }

    /// The user.
    pub fn identity(&self) -> &Identity {
        self.who.as_deref().unwrap_or(&self.core.state.who)
    }

    /// Makes a directory (an Xref).
    ///
    /// # Errors
    /// As [`Client::make_directory`].
    pub fn make_directory(&self, path: FilePath, mode: u16) -> Result<Attributes> {
        self.run(|node, state| async move {
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
        self.run(move |node, state| async move {
            Client::new(&*node, &state).create(path, shape, mode).await
        })
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// As [`Client::make_symlink`].
    pub fn make_symlink(&self, path: FilePath, target: String) -> Result<Attributes> {
        self.run(move |node, state| async move {
            let client = Client::new(&*node, &state);
            client.make_symlink(path, target).await
        })
    }

    /// The cells, the bytes of a BSU and the base of a new file. What is left open fits the volume:
    /// a cell a server, and BSUs as large as a block.
    pub fn shape(
        &self,
        cells: Option<u64>,
        bsu_bytes: Option<u64>,
        base: Option<usize>,
    ) -> (u64, u64, Option<usize>) {
        (
            cells.unwrap_or(self.servers() as u64),
            bsu_bytes.unwrap_or(self.block_bytes()),
            base,
        )
    }

    /// The bytes up to the end of each cell of a file that has any.
    ///
    /// # Errors
    /// As [`Client::cell_bytes`].
    pub fn cell_bytes(&self, file: Attributes, version: Version) -> Result<BTreeMap<u64, u64>> {
        self.run(move |node, state| async move {
            let client = Client::new(&*node, &state);
            client.cell_bytes(&file, version).await
        })
    }

    /// The attributes of an object, and of a file the bytes up to the end of each cell that has
    /// any.
    ///
    /// # Errors
    /// As [`Client::stat`].
    pub fn stat(&self, path: FilePath) -> Result<(Attributes, BTreeMap<u64, u64>)> {
        self.run(move |node, state| async move {
            let client = Client::new(&*node, &state);
            let details = client.details(&path).await?;
            Ok((details.object, details.cells))
        })
    }

    /// The attributes of an object, and of a file what the servers of its cells know.
    ///
    /// # Errors
    /// As [`Client::details`].
    pub fn details(&self, path: FilePath) -> Result<Details> {
        self.run(move |node, state| async move { Client::new(&*node, &state).details(&path).await })
    }

    /// What the servers of the cells of an object know, with the attributes that are given.
    ///
    /// # Errors
    /// As [`Client::details_of`].
    pub fn details_of(&self, object: Attributes) -> Result<Details> {
        self.run(
            move |node, state| async move { Client::new(&*node, &state).details_of(object).await },
        )
    }

    /// The entries of a directory, in the order of their names.
    ///
    /// # Errors
    /// As [`Client::list`].
    pub fn list(&self, path: FilePath) -> Result<Vec<(String, Entry)>> {
        self.run(move |node, state| async move { Client::new(&*node, &state).list(&path).await })
    }

    /// Who has a file attached.
    ///
    /// # Errors
    /// As [`Client::status`].
    pub fn status(&self, path: FilePath) -> Result<Vec<Attacher>> {
        self.run(move |node, state| async move { Client::new(&*node, &state).status(&path).await })
    }

    /// Removes a file, or an empty directory.
    ///
    /// # Errors
    /// As [`Client::remove`].
    pub fn remove(&self, path: FilePath) -> Result<()> {
        self.run(move |node, state| async move { Client::new(&*node, &state).remove(&path).await })
    }

    /// Gives an object, and all below it, another path.
    ///
    /// # Errors
    /// As [`Client::rename`].
    pub fn rename(&self, from: FilePath, to: FilePath) -> Result<()> {
        self.run(
            move |node, state| async move { Client::new(&*node, &state).rename(&from, &to).await },
        )
    }

    /// Gives an object, and all below it, another path. What is there is replaced, in one step.
    ///
    /// # Errors
    /// As [`Client::replace`].
    pub fn replace(&self, from: FilePath, to: FilePath, replacement: Replacement) -> Result<()> {
        self.run(move |node, state| async move {
            let client = Client::new(&*node, &state);
            client.replace(&from, &to, replacement).await
        })
    }

    /// Gives an object other attributes.
    ///
    /// # Errors
    /// As [`Client::set`].
    pub fn set(&self, path: FilePath, new: NewAttributes) -> Result<()> {
        self.run(
            move |node, state| async move { Client::new(&*node, &state).set(&path, new).await },
        )
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
        self.run(move |node, state| async move {
            Client::new(&*node, &state).protect(&path, settings).await
        })
    }

    /// Changes all cells of a file.
    ///
    /// # Errors
    /// As [`Client::change`].
    pub fn change(&self, path: FilePath, change: FileChange) -> Result<()> {
        self.run(move |node, state| async move {
            Client::new(&*node, &state).change(&path, change).await
        })
    }

    /// Puts all data of the volume on stable storage.
    ///
    /// # Errors
    /// As [`Client::sync`].
    pub fn sync(&self) -> Result<()> {
        self.run(|node, state| async move { Client::new(&*node, &state).sync(None).await })
    }

    /// The space of the volume, and of a user's files in it.
    ///
    /// # Errors
    /// As [`Client::space`].
    pub fn space(&self, user: u32) -> Result<VolumeSpace> {
        self.run(move |node, state| async move { Client::new(&*node, &state).space(user).await })
    }

    /// The space of each server of the volume, and of a user's files on it.
    ///
    /// # Errors
    /// As [`Client::space_by_server`].
    pub fn space_by_server(&self, user: u32) -> Result<Vec<VolumeSpace>> {
        self.run(move |node, state| async move {
            Client::new(&*node, &state).space_by_server(user).await
        })
    }

    /// Hears of the rings and slots of a volume that others may have changed, if a server is there.
    pub(super) fn hear(&self) -> Result<()> {
        self.run(|node, state| async move {
            Client::new(&*node, &state).hear().await;
            Ok(())
        })
    }

    /// The rings of the volume.
    ///
    /// # Errors
    /// As [`Client::newest_rings`].
    pub fn rings(&self) -> Result<Arc<Rings>> {
        self.run(|node, state| async move { Client::new(&*node, &state).newest_rings().await })
    }

    /// Lets the servers go that have nothing.
    ///
    /// # Errors
    /// As [`Client::retire`].
    pub fn retire(&self) -> Result<()> {
        self.run(|node, state| async move { Client::new(&*node, &state).retire().await })
    }

    /// Gives the volume a ring of servers.
    ///
    /// # Errors
    /// As [`Client::add_ring`].
    pub fn add_ring(&self, servers: &[usize]) -> Result<u32> {
        let servers = servers.to_vec();
        self.run(
            move |node, state| async move { Client::new(&*node, &state).add_ring(&servers).await },
        )
    }

    /// Lets some cells of a file move on to the newest ring.
    ///
    /// # Errors
    /// As [`Client::move_on`].
    pub fn move_on(&self, path: FilePath) -> Result<u64> {
        self.run(move |node, state| async move { Client::new(&*node, &state).move_on(&path).await })
    }

    /// The servers that keep the slots of the volume.
    ///
    /// # Errors
    /// As [`Client::keepers`].
    pub fn keepers(&self) -> Result<Keepers> {
        self.run(|node, state| async move { Client::new(&*node, &state).keepers().await })
    }

    /// Lets another server keep a slot.
    ///
    /// # Errors
    /// As [`Client::move_slot`].
    pub fn move_slot(&self, slot: usize, to: usize) -> Result<()> {
        self.run(
            move |node, state| async move { Client::new(&*node, &state).move_slot(slot, to).await },
        )
    }

    /// Limits the bytes of blocks of a user.
    ///
    /// # Errors
    /// As [`Client::limit`].
    pub fn limit(&self, user: u32, bytes: Option<u64>) -> Result<()> {
        self.run(
            move |node, state| async move { Client::new(&*node, &state).limit(user, bytes).await },
        )
    }

    /// Attaches a file.
    ///
    /// # Errors
    /// As [`Client::attach`].
    pub fn attach(&self, path: FilePath, mode: Mode) -> Result<OpenFile> {
        self.core.note_use(mode);
        let file = self.run(move |node, state| async move {
            Client::new(&*node, &state).attach(&path, mode).await
        })?;
        Ok(OpenFile::new(self.core.clone(), file))
    }

    /// Attaches a file for all clients of the program, by one request. A client without a path
    /// gives the reason, which is the error of all.
    ///
    /// # Errors
    /// As [`Client::attach_all`].
    ///
    /// # Collective
    /// Over all clients of the program.
    pub fn attach_all(&self, path: Result<FilePath>, mode: Mode) -> Result<OpenFile> {
        self.core.note_use(mode);
        let file = self.run(move |node, state| async move {
            let client = Client::new(&*node, &state);
            client.attach_all(path, mode).await
        })?;
        Ok(OpenFile::new(self.core.clone(), file))
    }

    /// Waits until all clients of the program have called this, and gives the sum of their numbers.
    ///
    /// # Errors
    /// As [`Client::agree`].
    ///
    /// # Collective
    /// Over all clients of the program.
    pub fn agree(&self, done: Result<u64>) -> Result<u64> {
        self.run(move |node, state| async move { Client::new(&*node, &state).agree(done).await })
    }

    /// The number of the program, which no other has that uses the volume.
    pub fn program(&self) -> u64 {
        self.core.state.program
    }

    /// Saves all, and ends the servers of the volume, unless these stand. What is open cannot be
    /// used any more. After an error this program has left.
    ///
    /// # Errors
    /// Those of disks; the reason why another client has left.
    ///
    /// # Collective
    /// Over all clients of the program.
    pub fn close(&self) -> Result<()> {
        let closed = match &*self.ending {
            Ending::Together { running, nodes } => self.save_and_stop(running, *nodes),
            Ending::Alone { .. } => self.save_and_go(),
        };
        closed.inspect_err(|error| self.leave(error))
    }

    /// Saves what this program may have changed, and leaves servers that stand.
    fn save_and_go(&self) -> Result<()> {
        let has_changed = self.core.has_changed.load(Ordering::Relaxed);
        self.run(move |node, state| async move {
            let client = Client::new(&*node, &state);
            if has_changed {
                client.sync(None).await?;
            }
            match state.clients.len() {
                1 => Ok(()), // nobody waits for it
                _ => client.agree(Ok(0)).await.map(|_| ()),
            }
        })?;
        let cause = "it has closed its file system";
        self.leave(&Error::new(Kind::Peer, "leaving a volume", cause));
        Ok(())
    }

    fn save_and_stop(&self, running: &AtomicUsize, nodes: usize) -> Result<()> {
        self.run(|node, state| async move {
            let client = Client::new(&*node, &state);
            client.agree(Ok(0)).await?;
            match client.is_first() {
                true => client.stop().await,
                false => Ok(()),
            }
        })?;
        self.serve(running, nodes)
    }

    /// The rank of this client among the program's; nothing where there are servers alone.
    pub fn rank(&self) -> Option<usize> {
        self.core.rank
    }

    /// The number of clients of the program.
    pub fn clients(&self) -> usize {
        self.core.state.clients.len()
    }

    /// Whether this process has a client.
    pub(super) fn is_client(&self) -> bool {
        self.core.rank.is_some()
    }

    /// Where this process has servers alone, waits until a client has stopped them.
    ///
    /// # Errors
    /// The error of a server; when this thread is interrupted.
    pub(super) fn serve_alone(&self) -> Result<()> {
        match &*self.ending {
            Ending::Together { running, nodes } => self.serve(running, *nodes),
            Ending::Alone { .. } => Ok(()),
        }
    }

    /// Waits until a client has stopped the servers of this process.
    ///
    /// # Errors
    /// The error of a server; when this thread is interrupted.
    fn serve(&self, running: &AtomicUsize, nodes: usize) -> Result<()> {
        let failure = &self.core.failure;
        let has_ended = || running.load(Ordering::Acquire) == 0 || failure.get().is_some();
        self.core.runner.wait(has_ended)?;
        failure.get().map_or(Ok(()), Err)?;
        self.part(nodes)
    }

    /// Waits until all nodes have come here: then no disk of the volume is in use.
    fn part(&self, nodes: usize) -> Result<()> {
        let others = 1..nodes;
        self.run(|node, _| async move {
            if node.me() > 0 {
                node.send(0, PARTING, Vec::new(), None).await?;
                // Others may have heard already, and left.
                return hear(&node, PARTING, |who| who == 0).await.map(|_| ());
            }
            for _ in others.clone() {
                hear(&node, PARTING, |_| true).await?;
            }
            for other in others {
                node.send(other, PARTING, Vec::new(), None).await?;
            }
            Ok(())
        })?;
        self.core.is_joined.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Tells all others that this program leaves because of an error.
    pub fn leave(&self, error: &Error) {
        self.core.leave(error);
    }
}

/// The rank of the client on a runner's node.
fn rank_of(runner: &Runner, state: &ClientState) -> Option<usize> {
    let me = runner.node();
    state.clients.iter().position(|&node| node == me)
}
