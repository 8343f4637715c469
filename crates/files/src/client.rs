//! A client of a volume: what a program asks for.
//!
//! A file is attached once, which reads its attributes; after that the client itself finds the
//! bytes of any view of the file by arithmetic, and asks each server for its own:
//!
//! ```text
//! offset and count of a subfile -> bytes of cells (layout::view) -> one request a server, at once
//! ```
//!
//! | messages | read | write | and, in cautious mode, |
//! |---|---|---|---|
//! | a server touched | 2 | 2, the data inside the first | a token from server to server |
//! | a server touched, more than 1 MiB | 2 | 2 | the same; data go straight to memory or from there |
//!
//! [`ClientState::request_bytes_max`] and [`ClientState::answer_bytes_max`] let shorter data, too,
//! go straight.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use futures::future::join_all;
use penstock_engine::trace::{Instrument, Span};
use penstock_engine::{
    CopyKind, Elements, Error, Kind, Machine, MemoryId, NodeId, Operation, Result, Who, Work, span,
};
use penstock_layout::{
    CellAccess, Holding, List, ListPiece, Piece, Subfile, SubfileOrder, View, exact,
};

use crate::attached::Attacher;
use crate::caller::{Caller, Question, unexpected};
use crate::messages::{
    Access, Answer, Ask, CellPart, ClientPart, Collective, Moved, NewKind, NewObject, PartBytes,
    Purpose, Request, Turn, Usage,
};
use crate::metrics::{RequestKind, Snapshot};
use crate::names::{FilePath, Keepers};
use crate::object::{Attributes, Details, FileShape, Identity, ObjectId, ObjectKind, at_path};
use crate::pace::Pace;
use crate::placement::{Placement, Rings};
use crate::service::VolumeShape;
use crate::service::access::INSIDE_BYTES_MAX;
use crate::service::losses::is_loss;
use crate::service::pointers::{PointerId, PointerMove};
use crate::service::quotas::keeper;
use crate::transaction::{Entry, FileChange, NewAttributes, Replacement};
use crate::volume::cells::Version;

/// The state of a client that lasts from request to request.
#[derive(Debug, Clone)]
pub struct ClientState {
    /// The structure of the volume.
    pub shape: VolumeShape,
    /// The user.
    pub who: Identity,
    /// The number of the program, the same for all of its processes.
    pub program: u64,
    /// The nodes of the program's clients, by rank: those of its collective calls.
    pub clients: Arc<[NodeId]>,
    /// The most bytes of data that travel inside a request. A server takes the data of a longer
    /// write from the client's memory, block by block. At most 2^20, the default.
    pub request_bytes_max: u64,
    /// The most bytes of data that travel inside an answer. A server puts the data of a longer read
    /// into the client's memory, block by block. At most 2^20, the default.
    pub answer_bytes_max: u64,
    pace: Pace,
    /// The number of the client among the clients of its node.
    number: u32,
    next: Arc<AtomicU64>,
    /// The number of the program's next collective call.
    calls: Arc<AtomicU64>,
    under_way: UnderWay,
    /// The changes of the membership before the last sync of the whole volume.
    saved: Arc<AtomicU64>,
    /// The changes of the membership before the last collective call, by its server.
    met: Arc<Mutex<BTreeMap<usize, u64>>>,
    /// Takes in what the door of a server process says of all processes.
    pub(crate) hear: Option<HearNotice>,
    /// The rings of the volume, as far as the client has heard of them.
    rings: Arc<RwLock<Arc<Rings>>>,
    /// The servers that keep its slots, as far as the client has heard.
    keepers: Arc<Mutex<Keepers>>,
}

/// Takes in a notice, encoded.
#[derive(Clone)]
pub(crate) struct HearNotice(pub(crate) Arc<Hear>);

type Hear = dyn Fn(&[u8]) + Send + Sync;

impl std::fmt::Debug for HearNotice {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("HearNotice")
    }
}

/// The numbers of the accesses of a client that have not ended.
#[derive(Debug, Clone, Default)]
struct UnderWay(Arc<Mutex<BTreeSet<u64>>>);

impl UnderWay {
    fn numbers(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins an access. It has ended when this is dropped.
    fn begin(&self, number: u64) -> AccessUnderWay<'_> {
        self.numbers().insert(number);
        AccessUnderWay(self, number)
    }
}

/// An access that has not ended.
struct AccessUnderWay<'a>(&'a UnderWay, u64);

impl AccessUnderWay<'_> {
    /// The lowest number of an access of the client that has not ended.
    fn oldest(&self) -> u64 {
        self.0.numbers().first().copied().unwrap_or(self.1)
    }
}

impl Drop for AccessUnderWay<'_> {
    fn drop(&mut self) {
        self.0.numbers().remove(&self.1);
    }
}

impl ClientState {
    /// Makes the state of a client with a number, below 2^21, that no other client of its node has.
    /// `clients` has the nodes of all clients of the program, by rank.
    pub fn new(
        shape: VolumeShape,
        who: Identity,
        (program, clients): (u64, Arc<[NodeId]>),
        number: u32,
    ) -> Self {
        let rings = Arc::new(Rings::new(shape.names.servers));
        Self {
            hear: None,
            rings: Arc::new(RwLock::new(rings)),
            keepers: Arc::new(Mutex::new(shape.names.keepers())),
            who,
            program,
            clients,
            calls: Arc::default(),
            pace: Pace::default(),
            request_bytes_max: INSIDE_BYTES_MAX,
            answer_bytes_max: INSIDE_BYTES_MAX,
            number: number & ((1 << 21) - 1),
            next: Arc::default(),
            under_way: UnderWay::default(),
            saved: Arc::default(),
            met: Arc::default(),
            shape,
        }
    }
}

/// A client of a volume on a node.
pub struct Client<'m, M: Machine> {
    state: &'m ClientState,
    caller: Caller<'m, M>,
}

/// The access that a program wants to a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mode {
    /// Whether it reads.
    pub reads: bool,
    /// Whether it writes.
    pub writes: bool,
    /// Whether its requests need keep no order with those of others, which saves tokens. Where
    /// another program uses the file and one of the two writes, they keep it all the same.
    pub is_reckless: bool,
}

impl Mode {
    fn usage(self) -> Usage {
        Usage {
            reads: self.reads,
            writes: self.writes,
            is_reckless: self.is_reckless,
        }
    }
}

/// An attached file: all that a process must know in order to use it. It may be handed to other
/// processes of the program.
#[derive(Debug, Clone)]
pub struct Attachment {
    /// The attributes at the time of the attach.
    pub object: Attributes,
    /// The structure of the file, as it was then: cells and BSUs do not change.
    pub shape: FileShape,
    /// What was asked for.
    pub mode: Mode,
    /// Whether several programs had the file attached then, and one of them to write.
    pub is_shared: bool,
    /// The key of the attachment, which is another when the file has been attached again.
    key: Arc<AtomicU64>,
    /// The server that keeps the object.
    home: Arc<AtomicUsize>,
    pub(crate) is_cautious: Arc<AtomicBool>,
    /// The changes of the membership before the last sync.
    saved: Arc<AtomicU64>,
    /// The servers of the cells, as the client has heard last.
    placement: Arc<Mutex<Placement>>,
}

impl Attachment {
    /// The structure of the file, with the servers of its cells that the client has heard of last.
    fn placed(&self) -> FileShape {
        let placement = self.placement.lock();
        FileShape {
            placement: *placement.unwrap_or_else(PoisonError::into_inner),
            ..self.shape
        }
    }

    /// Notes where the file has moved.
    fn move_to(&self, placement: Placement) {
        let known = self.placement.lock();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        *known = placement.max(*known);
    }
}

/// An open subfile: local, and made without any message.
#[derive(Debug, Clone)]
pub struct OpenSubfile {
    file: Attachment,
    subfile: Subfile,
    version: Version,
}

/// The bytes of a subfile that a client wants to move, and where they lie in its memory.
#[derive(Debug, Clone)]
pub enum Selection {
    /// A range, whose bytes lie in memory one behind the other.
    Range {
        /// The first byte.
        offset: u64,
        /// The number of bytes.
        bytes: u64,
    },
    /// A list: byte `places[i]` of the subfile lies in memory at byte `memory[i]`. The places
    /// ascend.
    Lists {
        /// Bytes of the subfile.
        places: Arc<List>,
        /// Bytes of the memory.
        memory: Arc<List>,
    },
}

impl Selection {
    /// The number of bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Range { bytes, .. } => *bytes,
            Self::Lists { places, .. } => places.elements(),
        }
    }
}

impl From<(u64, u64)> for Selection {
    /// So many bytes from an offset on: both in this order.
    fn from((offset, bytes): (u64, u64)) -> Self {
        Self::Range { offset, bytes }
    }
}

impl From<CellAccess> for CellPart {
    fn from(part: CellAccess) -> Self {
        Self {
            cell: part.cell,
            places: part.places,
            memory: part.memory,
        }
    }
}

/// The space of a volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VolumeSpace {
    /// The bytes of all blocks.
    pub bytes: u64,
    /// The bytes of blocks in use.
    pub used_bytes: u64,
    /// The bytes of blocks that the user's files have.
    pub of_user_bytes: u64,
    /// The bytes that the user may have, if that is limited.
    pub limit_bytes: Option<u64>,
}

impl VolumeSpace {
    /// The space of a server that has answered.
    fn of_answer(answer: Answer) -> Result<Self> {
        let Answer::Space {
            used,
            blocks,
            block_bytes,
            of_user,
            limit,
        } = answer
        else {
            return Err(unexpected());
        };
        Ok(Self {
            bytes: blocks * block_bytes,
            used_bytes: used * block_bytes,
            of_user_bytes: of_user * block_bytes,
            limit_bytes: limit.map(|limit| limit * block_bytes),
        })
    }

    /// The space of two servers together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            used_bytes: self.used_bytes + other.used_bytes,
            of_user_bytes: self.of_user_bytes + other.of_user_bytes,
            limit_bytes: other.limit_bytes.or(self.limit_bytes),
        }
    }
}

impl OpenSubfile {
    /// Opens a subfile of an attached file.
    ///
    /// # Errors
    /// [`Kind::Schema`] when the view has no such subfile; [`Kind::Missing`] when a checkpoint is
    /// wanted and there was none.
    pub fn new(
        file: &Attachment,
        view: View,
        number: u64,
        order: SubfileOrder,
        version: Version,
    ) -> Result<Self> {
        let shape = (file.shape.cells, file.shape.bsu_bytes);
        let subfile = Subfile::new(view, number, order, shape);
        let subfile = subfile.map_err(|error| {
            let mut error = Error::new(Kind::Schema, "opening a subfile", error);
            error.path = Some(file.object.path.to_string());
            error
        })?;
        Ok(Self {
            file: file.clone(),
            subfile,
            version,
        })
    }

    /// The file.
    pub fn file(&self) -> &Attachment {
        &self.file
    }

    /// Whether requests keep an order with those of others.
    pub fn is_cautious(&self) -> bool {
        self.file.is_cautious.load(Ordering::Relaxed)
    }
}

/// What an attempt at an access has come to.
enum Attempt {
    /// It has moved this.
    Moved(Moved),
    /// It is to be made again in cautious mode.
    BeCautious,
    /// It is to be made again when the file has been attached again.
    NotAttached,
    /// It is to be made again on the servers to which the file has moved.
    HasMoved,
}

/// The parts of an access on one server.
pub(crate) struct ServerPart {
    pub(crate) server: usize,
    turn: usize,
    pub(crate) cells: Vec<CellAccess>,
    pub(crate) bytes: u64,
}

impl<'m, M: Machine> Client<'m, M> {
    /// Makes a client on a node.
    pub fn new(machine: &'m M, state: &'m ClientState) -> Self {
        let place = (state.shape.volume, state.shape.servers.clone());
        Self {
            state,
            caller: Caller::new(machine, place, state.number, state.next.clone()),
        }
    }

    async fn ask(&self, server: usize, ask: Ask) -> Result<Answer> {
        self.caller.ask(server, &self.state.who, ask).await
    }

    /// Asks the server that keeps the object of a path.
    async fn ask_about(&self, path: &FilePath, ask: Ask) -> Result<Answer> {
        loop {
            let server = self.keeper_of(path);
            match self.ask(server, ask.clone()).await {
                Ok(Answer::HasMoved) => self.hear_from(server).await?,
                Err(error) if is_loss(&error) => {
                    // It may have gone for good, and another one keep the path.
                    self.hear_elsewhere(server).await;
                    if self.keeper_of(path) == server {
                        return Err(error);
                    }
                }
                answer => return answer,
            }
        }
    }

    /// Hears of rings and keepers from any server but one that is lost.
    async fn hear_elsewhere(&self, lost: usize) {
        for server in self.members().into_iter().filter(|&other| other != lost) {
            if self.hear_from(server).await.is_ok() {
                return;
            }
        }
    }

    /// Hears of the rings and keepers of a volume that others may have changed.
    pub(crate) async fn hear(&self) {
        self.hear_elsewhere(usize::MAX).await;
    }

    /// Hears where a file is, when a server of it is lost: it may have moved away, and that server
    /// have gone for good. Gives whether it has.
    async fn has_followed(&self, file: &Attachment) -> bool {
        let before = file.placed().placement;
        self.follow(file).await.is_ok() && file.placed().placement != before
    }

    fn known_keepers(&self) -> MutexGuard<'_, Keepers> {
        let keepers = self.state.keepers.lock();
        keepers.unwrap_or_else(PoisonError::into_inner)
    }

    /// The server that keeps the object of a path, as far as the client has heard.
    fn keeper_of(&self, path: &FilePath) -> usize {
        let slot = self.state.shape.names.slot_of(path);
        self.known_keepers().server(slot)
    }

    async fn order(&self, path: &FilePath, ask: Ask) -> Result<()> {
        match self.ask_about(path, ask).await? {
            Answer::Done => Ok(()),
            _ => Err(unexpected()),
        }
    }

    /// Asks all servers, at once.
    async fn ask_all(
        &self,
        servers: impl IntoIterator<Item = usize>,
        ask: &Ask,
    ) -> Result<Vec<Answer>> {
        let asked = servers
            .into_iter()
            .map(|server| self.ask(server, ask.clone()));
        join_all(asked).await.into_iter().collect()
    }

    /// The rings of the volume, as far as the client has heard of them.
    fn rings(&self) -> Arc<Rings> {
        let rings = self.state.rings.read();
        rings.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Hears of the rings of a placement, unless the client has.
    ///
    /// # Errors
    /// The reason of a server that has left.
    async fn hear_of(&self, placement: Placement, server: usize) -> Result<()> {
        if self.rings().have(placement) {
            return Ok(());
        }
        self.hear_from(server).await?;
        match self.rings().have(placement) {
            true => Ok(()),
            false => Err(unexpected()),
        }
    }

    /// Hears from a server which rings there are, and which servers keep the slots.
    ///
    /// # Errors
    /// The reason why it has left.
    async fn hear_from(&self, server: usize) -> Result<()> {
        match self.ask(server, Ask::Places).await? {
            Answer::Places(rings, keepers, notice) => {
                let known = self.caller.servers();
                if let (Some(hear), Some(notice)) = (&self.state.hear, notice) {
                    hear.0(&notice);
                }
                for new in known..self.caller.servers() {
                    self.caller.meet(new).await;
                }
                self.known_keepers().hear(&keepers);
                let known = self.state.rings.write();
                let mut known = known.unwrap_or_else(PoisonError::into_inner);
                let age = |rings: &Rings| (rings.newest(), rings.first());
                if age(&rings) > age(&known) {
                    *known = Arc::new(rings);
                }
                Ok(())
            }
            _ => Err(unexpected()),
        }
    }

    /// The servers that have cells of a file.
    fn servers_of(&self, shape: &FileShape) -> Result<Vec<usize>> {
        Ok(shape.dealing(&self.rings())?.servers())
    }

    /// Makes a directory (an Xref).
    ///
    /// # Errors
    /// [`Kind::Exists`], [`Kind::Missing`] without a parent, [`Kind::ReadOnly`].
    pub async fn make_directory(&self, path: FilePath, mode: u16) -> Result<Attributes> {
        self.create_object(NewObject {
            path,
            mode,
            kind: NewKind::Xref,
        })
        .await
    }

    /// Makes a file of `cells` cells and BSUs of `bsu_bytes` bytes. Cell 0 is on server `base`, or
    /// on one that the volume chooses.
    ///
    /// # Errors
    /// As [`Client::make_directory`]; [`Kind::Schema`] for an impossible structure.
    pub async fn create(
        &self,
        path: FilePath,
        (cells, bsu_bytes, base): (u64, u64, Option<usize>),
        mode: u16,
    ) -> Result<Attributes> {
        let kind = NewKind::File(cells, bsu_bytes, base);
        self.create_object(NewObject { path, mode, kind }).await
    }

    /// Makes a symbolic link. Its target is text that a mount follows, and nobody else.
    ///
    /// # Errors
    /// As [`Client::make_directory`]; [`Kind::Schema`] for an impossible target.
    pub async fn make_symlink(&self, path: FilePath, target: String) -> Result<Attributes> {
        self.create_object(NewObject {
            path,
            mode: 0o777,
            kind: NewKind::Symlink(target),
        })
        .await
    }

    async fn create_object(&self, new: NewObject) -> Result<Attributes> {
        let path = new.path.clone();
        match self.ask_about(&path, Ask::Create(new)).await? {
            Answer::Object(object) => Ok(object),
            _ => Err(unexpected()),
        }
    }

    /// The attributes of an object.
    ///
    /// # Errors
    /// [`Kind::Missing`].
    pub async fn stat(&self, path: &FilePath) -> Result<Attributes> {
        Ok(self.find(path).await?.0)
    }

    async fn find(&self, path: &FilePath) -> Result<(Attributes, u32)> {
        let Answer::Found(object, links) = self.ask_about(path, Ask::Stat(path.clone())).await?
        else {
            return Err(unexpected());
        };
        self.hear_of_file(&object).await?;
        Ok((object, links))
    }

    /// Hears of the rings of an object, if it is a file.
    async fn hear_of_file(&self, object: &Attributes) -> Result<()> {
        match object.kind {
            ObjectKind::File(shape) => {
                let keeper = self.keeper_of(&object.path);
                self.hear_of(shape.placement, keeper).await
            }
            ObjectKind::Xref | ObjectKind::Symlink(_) => Ok(()),
        }
    }

    /// The attributes of a file that has moved to other servers since the client has heard of it.
    ///
    /// # Errors
    /// [`Kind::Missing`] when there is another file now.
    async fn find_again(&self, former: &Attributes) -> Result<Attributes> {
        let (object, _) = self.find(&former.path).await?;
        match object.id == former.id {
            true => Ok(object),
            false => Err(gone(former)),
        }
    }

    /// The attributes of an object, and of a file what the servers of its cells know.
    ///
    /// # Errors
    /// [`Kind::Missing`]; the reason of a server that has left.
    pub async fn details(&self, path: &FilePath) -> Result<Details> {
        let (object, links) = self.find(path).await?;
        let details = self.details_of(object).await?;
        Ok(Details { links, ..details })
    }

    /// What the servers of the cells of an object know, with the attributes that are given.
    ///
    /// # Errors
    /// The reason of a server that has left.
    pub async fn details_of(&self, object: Attributes) -> Result<Details> {
        let (cells, written) = match object.kind {
            ObjectKind::File(_) => self.ends(&object, Version::Active).await?,
            ObjectKind::Xref | ObjectKind::Symlink(_) => Default::default(),
        };
        Ok(Details {
            object,
            links: 1,
            cells,
            written,
        })
    }

    /// The bytes up to the end of each cell of a file, by the number of the cell. Their sum is an
    /// upper bound of what any subfile has.
    ///
    /// # Errors
    /// The reason of a server that has left.
    pub async fn cell_bytes(
        &self,
        object: &Attributes,
        version: Version,
    ) -> Result<BTreeMap<u64, u64>> {
        Ok(self.ends(object, version).await?.0)
    }

    /// The bytes of each cell that has any, and the time of the last write.
    async fn ends(&self, file: &Attributes, version: Version) -> Result<(BTreeMap<u64, u64>, u64)> {
        let mut shape = file.shape()?;
        loop {
            if let Some(ends) = self.ends_of(file.id, &shape, version).await? {
                return Ok(ends);
            }
            shape = self.find_again(file).await?.shape()?;
        }
    }

    /// As [`Client::ends`]; nothing if the file has moved.
    async fn ends_of(
        &self,
        file: ObjectId,
        shape: &FileShape,
        version: Version,
    ) -> Result<Option<(BTreeMap<u64, u64>, u64)>> {
        let (mut all, mut last) = (BTreeMap::new(), 0);
        let asked = Ask::CellBytes(file, version, shape.placement);
        for answer in self.ask_all(self.servers_of(shape)?, &asked).await? {
            match answer {
                Answer::CellBytes(cells, written) => {
                    all.extend(cells);
                    last = last.max(written);
                }
                Answer::HasMoved => return Ok(None),
                _ => return Err(unexpected()),
            }
        }
        Ok(Some((all, last)))
    }

    /// The entries of a directory, each with its name.
    ///
    /// # Errors
    /// [`Kind::Missing`]; [`Kind::Schema`] for a file; [`Kind::ReadOnly`].
    pub async fn list(&self, path: &FilePath) -> Result<Vec<(String, Entry)>> {
        match self.ask_about(path, Ask::List(path.clone())).await? {
            Answer::Entries(entries) => Ok(entries),
            _ => Err(unexpected()),
        }
    }

    /// Who has a file attached.
    ///
    /// # Errors
    /// [`Kind::Missing`].
    pub async fn status(&self, path: &FilePath) -> Result<Vec<Attacher>> {
        match self.ask_about(path, Ask::Status(path.clone())).await? {
            Answer::Status(attachers) => Ok(attachers),
            _ => Err(unexpected()),
        }
    }

    /// Removes a file, or an empty directory.
    ///
    /// # Errors
    /// [`Kind::Missing`]; [`Kind::Exists`] for a directory with entries; [`Kind::ReadOnly`].
    pub async fn remove(&self, path: &FilePath) -> Result<()> {
        self.order(path, Ask::Remove(path.clone())).await
    }

    /// Gives an object, and all below it, another path at which there is nothing.
    ///
    /// # Errors
    /// [`Kind::Missing`], [`Kind::Exists`], [`Kind::ReadOnly`]; [`Kind::Busy`] when names below it
    /// come and go all the time.
    pub async fn rename(&self, from: &FilePath, to: &FilePath) -> Result<()> {
        self.replace(from, to, Replacement::Refused).await
    }

    /// Gives an object, and all below it, another path. What is there is replaced, in one step.
    ///
    /// # Errors
    /// As [`Client::rename`]; [`Kind::Exists`] for a directory with entries; [`Kind::Schema`] when
    /// one of the two is a directory and the other is none.
    pub async fn replace(
        &self,
        from: &FilePath,
        to: &FilePath,
        replacement: Replacement,
    ) -> Result<()> {
        let ask = Ask::Rename(from.clone(), to.clone(), replacement);
        self.order(from, ask).await
    }

    /// Changes the mode, the owner or the group of an object.
    ///
    /// # Errors
    /// [`Kind::Missing`], [`Kind::ReadOnly`].
    pub async fn protect(
        &self,
        path: &FilePath,
        (mode, owner, group): (Option<u16>, Option<u32>, Option<u32>),
    ) -> Result<()> {
        let new = NewAttributes {
            mode,
            owner,
            group,
            ..NewAttributes::default()
        };
        self.set(path, new).await
    }

    /// Gives an object other attributes.
    ///
    /// # Errors
    /// [`Kind::Missing`], also of an extended attribute that is to go; [`Kind::ReadOnly`];
    /// [`Kind::Full`] for too many extended attributes.
    pub async fn set(&self, path: &FilePath, new: NewAttributes) -> Result<()> {
        self.order(path, Ask::Set(path.clone(), new)).await
    }

    /// Changes all cells of a file, at one point of the order of its requests, and all or none.
    ///
    /// # Errors
    /// [`Kind::Missing`], [`Kind::ReadOnly`], [`Kind::Schema`] for a directory.
    pub async fn change(&self, path: &FilePath, change: FileChange) -> Result<()> {
        self.order(path, Ask::Change(path.clone(), change)).await
    }

    /// Puts all data of a file, or of the volume, on stable storage.
    ///
    /// # Errors
    /// Those of disks, also of blocks that were stored earlier. The first sync after a server was
    /// lost names it: what was written to it since the sync before, or since the file was attached,
    /// may be lost, though it is back.
    pub async fn sync(&self, file: Option<&Attachment>) -> Result<()> {
        let mut servers: Vec<usize> = match file {
            Some(file) => self.servers_of(&file.placed())?,
            None => self.members(),
        };
        let ask = Ask::Sync(file.map(|file| file.object.id));
        let mut done = match file {
            Some(_) => self.ask_all(servers.iter().copied(), &ask).await.map(drop),
            None => {
                let done = self.ask_members(&ask).await.map(drop);
                servers = self.members(); // what had a server that has gone for good is elsewhere
                done
            }
        };
        while let (Some(file), Err(error)) = (file, &done)
            && is_loss(error)
            && self.has_followed(file).await
        {
            servers = self.servers_of(&file.placed())?;
            done = self.ask_all(servers.iter().copied(), &ask).await.map(drop);
        }
        let saved = file.map_or(&self.state.saved, |file| &file.saved);
        let since = saved.swap(self.caller.machine.changes(), Ordering::Relaxed);
        done?;
        match self.caller.loss_since(&servers, since) {
            Some(error) => {
                let cause =
                    "it was lost, and what was written to it and not saved may be lost, too";
                Err(Error {
                    doing: "saving".to_string(),
                    cause: cause.to_string(),
                    ..error
                })
            }
            None => Ok(()),
        }
    }

    /// Gives the volume a ring of servers, to which new files are dealt from then on. Only the
    /// owner of the volume may. Gives its number.
    ///
    /// # Errors
    /// [`Kind::ReadOnly`]; [`Kind::Schema`] when there are no such servers; [`Kind::Busy`] when
    /// another ring is being made; the reason of a server that has left: all must be there.
    pub async fn add_ring(&self, servers: &[usize]) -> Result<u32> {
        let director = self.members().first().copied().unwrap_or(0);
        match self.ask(director, Ask::AddRing(servers.to_vec())).await? {
            Answer::Value(ring) => Ok(exact::<u32>(ring)),
            _ => Err(unexpected()),
        }
    }

    /// Lets some cells of a file move on to the servers of the volume's newest ring, while others
    /// use the file. Only the owner of the volume may. Gives 0 if all cells are there already, and
    /// otherwise how much is left: cells, and a step more.
    ///
    /// # Errors
    /// [`Kind::Missing`]; [`Kind::Schema`] for a directory; [`Kind::ReadOnly`]; [`Kind::Full`] when
    /// a server has no room; [`Kind::Damaged`] for a block that is; the reason of a server that has
    /// left. The file is as before then, and on the same servers.
    pub async fn move_on(&self, path: &FilePath) -> Result<u64> {
        match self.ask_about(path, Ask::MoveOn(path.clone())).await? {
            Answer::Value(left) => Ok(left),
            _ => Err(unexpected()),
        }
    }

    /// The rings of the volume.
    ///
    /// # Errors
    /// The reason of a server that has left.
    pub async fn newest_rings(&self) -> Result<Arc<Rings>> {
        let server = self.members().first().copied().unwrap_or(0);
        self.hear_from(server).await?;
        Ok(self.rings())
    }

    /// Lets the servers go that have nothing, if no file is in another ring than the newest. Only
    /// the owner of the volume may.
    ///
    /// # Errors
    /// [`Kind::ReadOnly`]; [`Kind::Busy`] when a file is; the reason of a server that has left.
    pub async fn retire(&self) -> Result<()> {
        let director = self.members().first().copied().unwrap_or(0);
        match self.ask(director, Ask::Retire).await? {
            Answer::Done => self.hear_from(director).await,
            _ => Err(unexpected()),
        }
    }

    /// The servers that have a part of the volume, as far as the client has heard.
    fn members(&self) -> Vec<usize> {
        self.rings().members(&self.known_keepers())
    }

    /// Asks all servers that have a part of the volume, at once. One that has gone for good need
    /// not answer, though the client may hear of that only now. Gives the servers and answers.
    async fn ask_members(&self, ask: &Ask) -> Result<Vec<(usize, Answer)>> {
        loop {
            let members = self.members();
            let error = match self.ask_all(members.iter().copied(), ask).await {
                Ok(answers) => return Ok(members.into_iter().zip(answers).collect()),
                Err(error) => error,
            };
            let Some(Who::Server(lost)) = error.who else {
                return Err(error);
            };
            self.hear_elsewhere(lost).await;
            if self.members().contains(&lost) {
                return Err(error);
            }
        }
    }

    /// The servers that keep the slots of the volume, as all servers that are there say.
    ///
    /// # Errors
    /// The reason of a server that has left: all must be there.
    pub async fn keepers(&self) -> Result<Keepers> {
        for server in self.members() {
            self.hear_from(server).await?;
        }
        Ok(self.known_keepers().clone())
    }

    /// Lets another server keep a slot, while others use the objects in it. Only the owner of the
    /// volume may.
    ///
    /// # Errors
    /// [`Kind::ReadOnly`]; [`Kind::Busy`] when names in it come and go all the time; the reason of
    /// a server that has left: all must be there.
    pub async fn move_slot(&self, slot: usize, to: usize) -> Result<()> {
        loop {
            let keeper = self.known_keepers().server(slot);
            let answer = self.ask(keeper, Ask::MoveSlot(slot, to)).await?;
            self.hear_from(keeper).await?;
            match answer {
                Answer::Done => return Ok(()),
                Answer::HasMoved => {}
                _ => return Err(unexpected()),
            }
        }
    }

    /// Waits until a server serves.
    ///
    /// # Errors
    /// The reason of a server that has left.
    pub async fn is_ready(&self, server: usize) -> Result<()> {
        self.ask(server, Ask::Space(self.state.who.user))
            .await
            .map(|_| ())
    }

    /// What a server has done and does, as far as this user may see that.
    ///
    /// # Errors
    /// The reason of a server that has left.
    pub async fn metrics(&self, server: usize) -> Result<Snapshot> {
        match self.ask(server, Ask::Metrics).await? {
            Answer::Metrics(snapshot) if snapshot.is_whole() => Ok(*snapshot),
            _ => Err(unexpected()),
        }
    }

    /// The space of each server, and of a user's files on it: none on a server that has no part of
    /// the volume.
    ///
    /// # Errors
    /// The reason of a server that has left.
    pub async fn space_by_server(&self, user: u32) -> Result<Vec<VolumeSpace>> {
        self.hear().await; // servers may have come or gone
        let mut all = vec![VolumeSpace::default(); self.caller.servers()];
        for (server, answer) in self.ask_members(&Ask::Space(user)).await? {
            let space = VolumeSpace::of_answer(answer)?;
            if let Some(of_server) = all.get_mut(server) {
                *of_server = space;
            }
        }
        Ok(all)
    }

    /// The space of the volume, and of a user's files in it.
    ///
    /// # Errors
    /// The reason of a server that has left.
    pub async fn space(&self, user: u32) -> Result<VolumeSpace> {
        let servers = self.space_by_server(user).await?.into_iter();
        Ok(servers.fold(VolumeSpace::default(), VolumeSpace::and))
    }

    /// Attaches a file.
    ///
    /// # Errors
    /// [`Kind::Missing`]; [`Kind::Schema`] for a directory; [`Kind::ReadOnly`].
    pub async fn attach(&self, path: &FilePath, mode: Mode) -> Result<Attachment> {
        let ask = Ask::Attach {
            path: path.clone(),
            usage: mode.usage(),
            program: self.state.program,
            clients: vec![self.caller.machine.me()],
        };
        let saved = self.caller.machine.changes();
        let answer = self.ask_about(path, ask).await?;
        self.attachment(answer, (mode, saved)).await
    }

    /// Attaches a file for all clients of the program, by one request (section 3.1). A client
    /// without a path gives the reason, which is the error of all.
    ///
    /// # Errors
    /// As [`Client::attach`], on all clients; [`Kind::Mismatch`] when they name different files or
    /// modes; the reason why one of them has left.
    ///
    /// # Collective
    /// Over all clients of the program.
    pub async fn attach_all(&self, path: Result<FilePath>, mode: Mode) -> Result<Attachment> {
        let purpose = path.map(|path| Purpose::Attach(path, mode.usage()));
        let saved = self.caller.machine.changes();
        let answer = self.meet(purpose).await?;
        self.attachment(answer, (mode, saved)).await
    }

    /// What a server has attached.
    async fn attachment(&self, answer: Answer, (mode, saved): (Mode, u64)) -> Result<Attachment> {
        let Answer::Attached {
            object,
            key,
            is_cautious,
        } = answer
        else {
            return Err(unexpected());
        };
        let shape = object.shape()?;
        self.hear_of_file(&object).await?;
        Ok(Attachment {
            shape,
            placement: Arc::new(Mutex::new(shape.placement)),
            home: Arc::new(AtomicUsize::new(self.keeper_of(&object.path))),
            object,
            mode,
            key: Arc::new(AtomicU64::new(key)),
            is_shared: is_cautious,
            is_cautious: Arc::new(AtomicBool::new(is_cautious || !mode.is_reckless)),
            saved: Arc::new(AtomicU64::new(saved)),
        })
    }

    /// Detaches a file.
    ///
    /// # Errors
    /// The reason of a server that has left.
    pub async fn detach(&self, file: &Attachment) -> Result<()> {
        self.order(
            &file.object.path,
            Ask::Detach(file.key.load(Ordering::Relaxed)),
        )
        .await
    }

    /// Lets a server keep a pointer, so that processes can share it.
    ///
    /// # Errors
    /// The reason of a server that has left.
    pub async fn share_pointer(&self, value: u64) -> Result<PointerId> {
        let mixed = self.caller.ticket().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let server = mixed as usize % self.caller.servers();
        match self.ask(server, Ask::NewPointer(value)).await? {
            Answer::Pointer(pointer) => Ok(pointer),
            _ => Err(unexpected()),
        }
    }

    /// Moves a shared pointer, and gives where the access begins.
    ///
    /// # Errors
    /// [`Kind::Missing`]; those of [`PointerMove::apply`].
    pub async fn move_pointer(&self, pointer: PointerId, how: PointerMove) -> Result<u64> {
        if pointer.server >= self.caller.servers() {
            let cause = format!("there is no server {}", pointer.server);
            return Err(Error::new(Kind::Missing, "moving a shared pointer", cause));
        }
        match self
            .ask(pointer.server, Ask::MovePointer(pointer, how))
            .await?
        {
            Answer::Value(value) => Ok(value),
            _ => Err(unexpected()),
        }
    }

    /// The parts of an access, by server, in the order of turns.
    pub(crate) fn parts(&self, open: &OpenSubfile, wanted: &Selection) -> Result<Vec<ServerPart>> {
        let (shape, rings) = (open.file.placed(), self.rings());
        let (dealing, order) = (shape.dealing(&rings)?, shape.order(&rings)?);
        let access = match wanted {
            Selection::Range { offset, bytes } => open.subfile.access(*offset, *bytes),
            Selection::Lists { places, memory } => open.subfile.access_lists(places, memory),
        };
        let access = access.map_err(|error| {
            let mut error = Error::new(Kind::Schema, "using a subfile", error);
            error.path = Some(open.file.object.path.to_string());
            error
        })?;
        let mut by_turn: BTreeMap<usize, ServerPart> = BTreeMap::new();
        for part in access {
            let server = dealing.server_of(part.cell);
            let turn = order.turn(server).ok_or_else(unexpected)?;
            let of_server = by_turn.entry(turn).or_insert_with(|| ServerPart {
                server,
                turn,
                cells: Vec::new(),
                bytes: 0,
            });
            of_server.bytes += part.places.elements();
            of_server.cells.push(part);
        }
        Ok(by_turn.into_values().collect())
    }

    /// Moves some bytes of a subfile between the file and the memory that this client exposes under
    /// this name. Gives what was moved: bytes of ghost cells, and in a read
    /// bytes beyond the end of their cell, are left alone.
    ///
    /// `placed` is told when the request has its place in the order, if that comes before its end.
    ///
    /// # Errors
    /// The first error of a server, or the loss of one. A part of the bytes may have been moved.
    pub async fn access(
        &self,
        open: &OpenSubfile,
        operation: Operation,
        wanted: impl Into<Selection>,
        memory: MemoryId,
        placed: Option<&dyn Fn()>,
    ) -> Result<Moved> {
        self.check(open, operation)?;
        let wanted = wanted.into();
        let bytes = wanted.bytes();
        let span = span!(
            parent: None,
            "access",
            kind = RequestKind::of_access(operation).name(),
            file = open.file.object.id.0,
            bytes,
        );
        let attempts = self.attempts(open, operation, &wanted, memory, placed);
        attempts.instrument(span).await
    }

    /// Makes attempts at an access until one comes to an end.
    async fn attempts(
        &self,
        open: &OpenSubfile,
        operation: Operation,
        wanted: &Selection,
        memory: MemoryId,
        placed: Option<&dyn Fn()>,
    ) -> Result<Moved> {
        loop {
            let placement = open.file.placed().placement;
            let parts = self.parts(open, wanted)?;
            let is_cautious = open.file.is_cautious.load(Ordering::Relaxed);
            let attempt = self
                .try_access(
                    (open, placement),
                    operation,
                    &parts,
                    memory,
                    (is_cautious, placed),
                )
                .await;
            match attempt {
                Ok(Attempt::Moved(moved)) => return Ok(moved),
                Ok(Attempt::BeCautious) => open.file.is_cautious.store(true, Ordering::Relaxed),
                Ok(Attempt::NotAttached) => self.attach_again(&open.file).await?,
                Ok(Attempt::HasMoved) => self.follow(&open.file).await?,
                Err(error) if is_loss(&error) && self.has_followed(&open.file).await => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Hears where a file has moved.
    ///
    /// # Errors
    /// As [`Client::stat`]; [`Kind::Missing`] when there is another file now.
    async fn follow(&self, file: &Attachment) -> Result<()> {
        let object = self.find_again(&file.object).await?;
        file.move_to(object.shape()?.placement);
        Ok(())
    }

    /// Attaches a file again whose server has been started since.
    ///
    /// # Errors
    /// As [`Client::attach`]; [`Kind::Missing`] when there is another file now.
    async fn attach_again(&self, file: &Attachment) -> Result<()> {
        let again = self.attach(&file.object.path, file.mode).await?;
        if again.object.id != file.object.id {
            return Err(gone(&file.object));
        }
        let home = again.home.load(Ordering::Relaxed);
        file.home.store(home, Ordering::Relaxed);
        file.move_to(again.shape.placement);
        file.key
            .store(again.key.load(Ordering::Relaxed), Ordering::Relaxed);
        if again.is_cautious.load(Ordering::Relaxed) {
            file.is_cautious.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The most bytes of one server that travel in a message.
    pub(crate) fn inside_bytes_max(&self, operation: Operation) -> u64 {
        let wanted = match operation {
            Operation::Read => self.state.answer_bytes_max,
            Operation::Write => self.state.request_bytes_max,
        };
        wanted.min(INSIDE_BYTES_MAX)
    }

    pub(crate) fn check(&self, open: &OpenSubfile, operation: Operation) -> Result<()> {
        let mode = open.file.mode;
        let (is_allowed, verb) = match operation {
            Operation::Read => (mode.reads, "reading"),
            Operation::Write => (mode.writes, "writing"),
        };
        let cause = if !is_allowed {
            "the file was attached for the other use alone"
        } else if operation == Operation::Write && open.version == Version::Checkpoint {
            "a checkpoint cannot be changed"
        } else {
            return Ok(());
        };
        let mut error = Error::new(Kind::ReadOnly, verb, cause);
        error.path = Some(open.file.object.path.to_string());
        Err(error)
    }

    /// Makes one attempt at an access.
    async fn try_access(
        &self,
        (open, placement): (&OpenSubfile, Placement),
        operation: Operation,
        parts: &[ServerPart],
        memory: MemoryId,
        (is_cautious, placed): (bool, Option<&dyn Fn()>),
    ) -> Result<Attempt> {
        let inside_max = self.inside_bytes_max(operation);
        let inside = parts.iter().map(|part| part.bytes);
        let inside = inside.filter(|&bytes| bytes <= inside_max).sum();
        let _entered = self.state.pace.enter(parts.len() as u64, inside).await;
        let turn = turn_of(parts, is_cautious);
        let questions = parts.iter().map(|part| self.caller.question([part.server]));
        let questions: Vec<Question> = questions.collect::<Result<_>>()?;
        let request = self.caller.ticket();
        let under_way = self.state.under_way.begin(request);
        let last = parts.last().map(|part| part.server);
        let asked = parts.iter().zip(&questions).map(|(part, question)| {
            let access = Access {
                ticket: question.ticket,
                request,
                oldest: under_way.oldest(),
                operation,
                file: open.file.object.id,
                owner: open.file.object.owner,
                base: open.file.shape.base,
                placement,
                home: open.file.home.load(Ordering::Relaxed),
                version: open.version,
                turn: turn.clone(),
                parts: Vec::new(),
                memory: None,
                wants_word: placed.is_some() && is_cautious && Some(part.server) == last,
                hold: None,
                begun: Duration::ZERO,
                span: Span::none(),
            };
            let turn = &turn;
            async move {
                let kind = RequestKind::of_access(operation);
                let span = self
                    .caller
                    .question_span(kind, question.ticket, part.server);
                let moving = self.move_part(access, question, part, memory, placed);
                let moved = moving.instrument(span).await;
                if let Turn::Token(_) = turn {
                    let lost = match &moved {
                        Err(error) if error.kind == Kind::Peer => Some(error.who),
                        Ok(Attempt::NotAttached | Attempt::HasMoved) => Some(None),
                        _ => None,
                    };
                    if let Some(who) = lost {
                        self.end_others(parts, part, request, who).await;
                    }
                }
                moved
            }
        });
        // All requests are ended also after an error: servers use the memory until then.
        let ended = join_all(asked).await;
        // Other parts may have failed because of these.
        let is_unknown = |part: &Result<Attempt>| matches!(part, Ok(Attempt::NotAttached));
        if ended.iter().any(is_unknown) {
            return Ok(Attempt::NotAttached);
        }
        let has_moved = |part: &Result<Attempt>| matches!(part, Ok(Attempt::HasMoved));
        if ended.iter().any(has_moved) {
            return Ok(Attempt::HasMoved);
        }
        let mut moved = Moved::default();
        for part in ended {
            match part? {
                Attempt::Moved(part) => moved = moved.and(part),
                other => return Ok(other),
            }
        }
        Ok(Attempt::Moved(moved))
    }

    /// Ends the parts of an access on other servers: the token for which they wait may be lost.
    async fn end_others(
        &self,
        parts: &[ServerPart],
        failed: &ServerPart,
        request: u64,
        who: Option<Who>,
    ) {
        let lost = match who {
            Some(Who::Server(server)) => server,
            _ => failed.server,
        };
        let lost = Request::Lost(self.caller.machine.me(), request, lost);
        let others = parts.iter().filter(|part| part.server != failed.server);
        for part in others {
            let _ = self.caller.send(part.server, &lost, None).await; // it may be lost, too
        }
    }

    /// Moves the part of an access on one server.
    async fn move_part(
        &self,
        access: Access,
        question: &Question,
        part: &ServerPart,
        memory: MemoryId,
        placed: Option<&dyn Fn()>,
    ) -> Result<Attempt> {
        let operation = access.operation;
        self.send_part(access, part, memory).await?;
        loop {
            match self.caller.answer(question).await? {
                (Answer::Placed, _) => placed.iter().for_each(|placed| placed()),
                (Answer::Moved(ends), parcel) => {
                    let taken = self.take_data(operation, part, &ends, parcel, memory);
                    return taken.await.map(Attempt::Moved);
                }
                (Answer::BeCautious, _) => return Ok(Attempt::BeCautious),
                (Answer::NotAttached, _) => return Ok(Attempt::NotAttached),
                (Answer::HasMoved, _) => return Ok(Attempt::HasMoved),
                _ => return Err(unexpected()),
            }
        }
    }

    /// Sends the request for the part of one server.
    async fn send_part(
        &self,
        mut access: Access,
        part: &ServerPart,
        memory: MemoryId,
    ) -> Result<()> {
        let machine = self.caller.machine;
        let travels = part.bytes <= self.inside_bytes_max(access.operation);
        let cell_part = |cell: &CellAccess| CellPart {
            cell: cell.cell,
            places: cell.places.clone(),
            memory: match travels {
                true => List::default(),
                false => cell.memory.clone(),
            },
        };
        access.parts = part.cells.iter().map(cell_part).collect();
        access.memory = (!travels).then_some(memory);
        let to = self.caller.node(part.server)?;
        let written = match (access.operation, travels) {
            (Operation::Write, true) => part.bytes,
            _ => 0,
        };
        machine.work(Work::Request(to, written)).await;
        let parcel = match written {
            0 => None,
            bytes => {
                let send = machine.buffer(bytes)?;
                let (mut at, mut stretches, by) = (0, 0, CopyKind::Kernels);
                for cell in &part.cells {
                    let piece = Piece::from(ListPiece::from(holding_of(cell, u64::MAX)?));
                    let packed = Elements::Packed(&send, at);
                    at += piece.elements();
                    stretches += piece.stretches(&[]);
                    machine.copy(memory, 1, &[piece], Elements::Exposed, packed, by)?;
                }
                let packing = Work::Pack {
                    bytes,
                    stretches,
                    by,
                };
                machine.work(packing).await;
                Some(machine.cut(&send, 0..bytes))
            }
        };
        let request = Request::Access(access);
        self.caller.send(part.server, &request, parcel).await
    }

    /// Puts the data that came with an answer into memory.
    async fn take_data(
        &self,
        operation: Operation,
        part: &ServerPart,
        ends: &[u64],
        parcel: Option<M::Parcel>,
        memory: MemoryId,
    ) -> Result<Moved> {
        if ends.len() != part.cells.len() {
            let cause = format!("server {} has answered about other cells", part.server);
            return Err(Error::new(Kind::Peer, "using a subfile", cause));
        }
        let machine = self.caller.machine;
        let (mut moved, mut stretches, by) = (Moved::default(), 0, CopyKind::Kernels);
        let parcel = parcel.filter(|_| operation == Operation::Read);
        for (cell, &end) in part.cells.iter().zip(ends) {
            let holding = holding_of(cell, end)?;
            let (bytes, bounds) = (holding.elements(), holding.memory_bounds());
            let piece = Piece::from(ListPiece::from(holding));
            if let Some(parcel) = parcel.as_ref().filter(|_| bytes > 0) {
                stretches += piece.stretches(&[]);
                let from = Elements::Parcel(parcel, moved.bytes);
                machine.copy(memory, 1, &[piece], from, Elements::Exposed, by)?;
            }
            moved.bytes += bytes;
            moved.reach = moved.reach.max(bounds.unwrap_or_default().end);
        }
        if parcel.is_some() {
            let packing = Work::Pack {
                bytes: moved.bytes,
                stretches,
                by,
            };
            machine.work(packing).await;
        }
        Ok(moved)
    }

    /// Moves parts of a file together with all other clients of the program: each its own part of
    /// its own subfile, between the file and the memory that the client exposes under this name.
    /// The servers direct the flow (Kotz, TOCS 1997): each passes over its blocks once, in the
    /// order in which they lie. `part` may be the reason why this client has none.
    ///
    /// # Errors
    /// The same for all clients: the first error of a server or of a client, and
    /// [`Kind::Mismatch`] when clients ask for different things, [`Kind::Overlap`] when two write
    /// the same bytes.
    ///
    /// # Collective
    /// Over all clients of the program.
    pub async fn access_all(
        &self,
        open: Result<&OpenSubfile>,
        file: &Attachment,
        operation: Operation,
        wanted: impl Into<Selection>,
        memory: MemoryId,
    ) -> Result<Moved> {
        let wanted = wanted.into();
        let me = self.caller.machine.me();
        let clients = &self.state.clients;
        let rank = clients.iter().position(|&node| node == me);
        let rank = rank.ok_or_else(|| {
            let cause = "this client is none of the program's";
            Error::new(Kind::Schema, "a collective call", cause)
        })?;
        let version = open.as_ref().map_or(Version::Active, |open| open.version);
        let part = open.and_then(|open| {
            self.check(open, operation)?;
            let parts = self.parts(open, &wanted)?; // what reaches too far is refused here
            let (view, number, order) = open.subfile.opened();
            let bytes = match wanted {
                Selection::Range { offset, bytes } => PartBytes::Subfile {
                    view,
                    number,
                    order,
                    offset,
                    bytes,
                },
                Selection::Lists { .. } => {
                    let cells = parts.into_iter().flat_map(|part| part.cells);
                    PartBytes::Cells(cells.map(CellPart::from).collect())
                }
            };
            Ok(ClientPart {
                node: me,
                memory,
                bytes,
            })
        });
        loop {
            let ask = Ask::Join {
                program: self.state.program,
                rank,
                request: Collective {
                    operation,
                    file: file.object.id,
                    owner: file.object.owner,
                    home: file.home.load(Ordering::Relaxed),
                    shape: file.placed(),
                    version,
                    clients: clients.to_vec(),
                    sequence: self.state.calls.fetch_add(1, Ordering::Relaxed),
                },
                part: part.clone(),
            };
            match self.ask_together(file.shape.base, ask).await? {
                Answer::Collected(moved) if rank < moved.len() => return Ok(moved[rank]),
                Answer::HasMoved => self.follow(file).await?,
                _ => return Err(unexpected()),
            }
        }
    }

    /// Asks the servers of a part of a subfile to fetch its blocks, or to store them.
    async fn about_blocks(
        &self,
        open: &OpenSubfile,
        (offset, bytes): (u64, u64),
        ask: impl Fn(ObjectId, Vec<(u64, List)>) -> Ask,
    ) -> Result<()> {
        let parts = self.parts(open, &(offset, bytes).into())?;
        let asked = parts.into_iter().map(|part| {
            let cells = part.cells.into_iter();
            let cells = cells.map(|cell| (cell.cell, cell.places)).collect();
            self.ask(part.server, ask(open.file.object.id, cells))
        });
        let done: Result<Vec<Answer>> = join_all(asked).await.into_iter().collect();
        done.map(|_| ())
    }

    /// Lets servers bring a part of a subfile into memory.
    ///
    /// # Errors
    /// Those of disks.
    pub async fn prefetch(&self, open: &OpenSubfile, offset: u64, bytes: u64) -> Result<()> {
        self.about_blocks(open, (offset, bytes), Ask::Prefetch)
            .await
    }

    /// Lets servers write a part of a subfile to their disks, and drop it before other blocks.
    ///
    /// # Errors
    /// Those of disks.
    pub async fn flush(&self, open: &OpenSubfile, offset: u64, bytes: u64) -> Result<()> {
        self.about_blocks(open, (offset, bytes), Ask::Flush).await
    }

    /// Limits the bytes of blocks that a user's files may have on all servers together, or lets the
    /// user have any number. Only the owner of the volume may. What the user has already stays.
    ///
    /// # Errors
    /// [`Kind::ReadOnly`].
    pub async fn limit(&self, user: u32, bytes: Option<u64>) -> Result<()> {
        let blocks = bytes.map(|bytes| bytes / self.state.shape.block_bytes);
        let keeper = keeper(user, self.state.shape.names, &self.members());
        self.ask(keeper, Ask::Quota(user, blocks)).await.map(|_| ())
    }

    /// Waits until all clients of the program have called this. Gives the sum of what they have
    /// done.
    ///
    /// # Errors
    /// The error of the lowest rank that has one; the reason why one of them has left.
    ///
    /// # Collective
    /// Over all clients of the program.
    pub async fn agree(&self, done: Result<u64>) -> Result<u64> {
        match self.meet(done.map(Purpose::Sum)).await? {
            Answer::Value(sum) => Ok(sum),
            _ => Err(unexpected()),
        }
    }

    /// Asks a server that waits for all clients of the program. If it has been lost since the last
    /// such call, others may have had that error in the place of this call, and do not come: it
    /// ends by the same error.
    async fn ask_together(&self, server: usize, ask: Ask) -> Result<Answer> {
        let met = || {
            let met = self.state.met.lock();
            met.unwrap_or_else(PoisonError::into_inner)
        };
        let changes = || self.caller.machine.changes();
        let since = met().insert(server, changes()).unwrap_or(0);
        if let Some(error) = self.caller.loss_since(&[server], since) {
            return Err(error);
        }
        let answer = self.ask(server, ask).await;
        if answer.is_err() {
            met().insert(server, changes());
        }
        answer
    }

    async fn meet(&self, purpose: Result<Purpose>) -> Result<Answer> {
        let ask = Ask::Meet {
            program: self.state.program,
            clients: self.state.clients.to_vec(),
            purpose,
        };
        self.ask_together(0, ask).await
    }

    /// Whether this is the client of rank 0.
    pub fn is_first(&self) -> bool {
        self.state.clients.first() == Some(&self.caller.machine.me())
    }

    /// Saves all, and stops all servers. Nobody else may use them any more.
    ///
    /// # Errors
    /// Those of disks.
    pub async fn stop(&self) -> Result<()> {
        let servers = 0..self.caller.servers();
        self.ask_all(servers, &Ask::Stop).await.map(|_| ())
    }
}

/// The order in which a request with these parts is done.
pub(crate) fn turn_of(parts: &[ServerPart], is_cautious: bool) -> Turn {
    match (is_cautious, parts) {
        (false, _) => Turn::Any,
        (true, [_] | []) => Turn::Arrival,
        (true, many) => Turn::Token(many.iter().map(|part| part.turn).collect()),
    }
}

/// The error of a file at whose path is another one.
fn gone(file: &Attributes) -> Error {
    let cause = "the file has been removed or renamed since it was attached";
    at_path(Kind::Missing, "using a file", &file.path, cause)
}

/// The bytes of a cell in an access before byte `end` of the cell.
fn holding_of(cell: &CellAccess, end: u64) -> Result<Holding> {
    let holding = Holding::new(&cell.places, &cell.memory);
    let holding = holding.map_err(|error| Error::new(Kind::Schema, "using a subfile", error))?;
    Ok(holding.before(end))
}
