//! Requests to servers of files, and their answers.

use std::rc::Rc;
use std::time::Duration;

use penstock_engine::trace::Span;
use penstock_engine::{Error, Kind, MemoryId, NodeId, Operation, Port};
use penstock_layout::{List, SubfileOrder, View};
use serde::{Deserialize, Serialize};

use crate::attached::Attacher;
use crate::metrics::{RequestKind, Snapshot};
use crate::names::{FilePath, Keepers};
use crate::object::{Attributes, FileShape, Identity, ObjectId};
use crate::placement::{Placement, Rings};
use crate::rights::{Hold, Right};
use crate::service::pointers::{PointerId, PointerMove};
use crate::transaction::{Entry, FileChange, NewAttributes, Replacement, Step, TransactionId};
use crate::volume::cells::Version;
use crate::volume::moved::{Leaves, MovedPart};

/// The second word of all ports of files, and bits of the third. The engine has the same second
/// word in ports about a party's members, with 0 and 1 as the third.
const FILES: u64 = u64::MAX;
const REQUESTS: u64 = 1 << 62;
const ANSWERS: u64 = 1 << 63;

/// The mailbox of a server of a volume.
pub(crate) fn requests(volume: u64, server: usize) -> Port {
    Port::new([volume, FILES, REQUESTS | server as u64])
}

/// The mailbox for the answers to the request with this ticket.
pub(crate) fn answers(volume: u64, ticket: u64) -> Port {
    Port::new([volume, FILES, ANSWERS | ticket])
}

/// A message to a server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Move bytes of cells.
    Access(Access),
    /// Do something else, for a user.
    Ask(u64, Identity, Ask),
    /// Take a token.
    Token(Token),
    /// The request with this number of a client has its place on all of its servers.
    Placed(NodeId, u64),
    /// The token of the request with this number of a client may be lost with this server, or a
    /// part of the request is: it ends by an error.
    Lost(NodeId, u64, usize),
    /// Tokens that the first of these servers has passed on to the second may be lost: the link was
    /// cut.
    Gap(usize, usize),
}

impl Request {
    /// Whether only servers send such a request.
    pub(crate) fn is_of_servers(&self) -> bool {
        match self {
            Self::Access(_) | Self::Lost(..) => false,
            Self::Token(_) | Self::Placed(..) | Self::Gap(..) => true,
            Self::Ask(_, _, ask) => matches!(
                ask,
                Ask::BeCautious(_)
                    | Ask::BeReckless(_)
                    | Ask::Prepare(..)
                    | Ask::Decide(..)
                    | Ask::WasDecided(_)
                    | Ask::Allot(..)
                    | Ask::GiveBack(_)
                    | Ask::Allow(..)
                    | Ask::Right(..)
                    | Ask::Take { .. }
                    | Ask::GiveUp(_)
                    | Ask::Cells(..)
                    | Ask::Leaves(..)
                    | Ask::Block(..)
            ),
        }
    }
}

/// The order in which a request is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Turn {
    /// In any order (reckless mode).
    Any,
    /// In the order of arrival: this server is the only one.
    Arrival,
    /// In the order of tokens: servers of these turns, ascending, have parts of the request.
    Token(Vec<usize>),
}

/// The part of a cell in a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CellPart {
    pub(crate) cell: u64,
    /// Bytes of the cell, ascending.
    pub(crate) places: List,
    /// Where each lies in the client's memory; nothing if the data travel with the messages.
    pub(crate) memory: List,
}

/// A client asks a server to move bytes of its cells of one file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Access {
    pub(crate) ticket: u64,
    /// The number of the whole request; other servers may have other parts of it.
    pub(crate) request: u64,
    /// The lowest number of a request of the client that has not ended.
    pub(crate) oldest: u64,
    pub(crate) operation: Operation,
    pub(crate) file: ObjectId,
    pub(crate) owner: u32,
    pub(crate) base: usize,
    pub(crate) placement: Placement,
    /// The server that keeps the object of the file.
    pub(crate) home: usize,
    pub(crate) version: Version,
    pub(crate) turn: Turn,
    pub(crate) parts: Vec<CellPart>,
    /// The client's memory, if servers are to take the data from there, or put them there.
    pub(crate) memory: Option<MemoryId>,
    /// Whether the client waits for the word that the request has its place in the order.
    pub(crate) wants_word: bool,
    /// What the request takes of its client's share of memory on the server.
    #[serde(skip)]
    pub(crate) hold: Option<Rc<Hold>>,
    /// The time at which it came to the server, if that counts what it does.
    #[serde(skip)]
    pub(crate) begun: Duration,
    /// What a trace shows of it.
    #[serde(skip, default = "Span::none")]
    pub(crate) span: Span,
}

impl Access {
    /// What names the servers of the file, and the order in which tokens pass them.
    pub(crate) fn way(&self) -> (usize, Placement) {
        (self.base, self.placement)
    }

    /// The bytes of data that travel in messages; as many as can be counted.
    pub(crate) fn inside_bytes(&self) -> u64 {
        let bytes = self.parts.iter().map(|part| part.places.elements());
        match self.memory {
            None => bytes.fold(0, u64::saturating_add),
            Some(_) => 0,
        }
    }
}

/// A token passes the servers of a request, from the lowest turn to the highest, through those
/// between (section 4.3).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Token {
    pub(crate) file: ObjectId,
    pub(crate) base: usize,
    pub(crate) placement: Placement,
    /// The life of the link from one server to the next, and the token's number among those of its
    /// bucket that pass over the link in that life.
    pub(crate) life: u64,
    pub(crate) number: u64,
    /// The turns of the servers that have parts.
    pub(crate) turns: Vec<usize>,
    /// The node of the asker, and the number of its request; for a change, the ticket of the
    /// answers.
    pub(crate) from: NodeId,
    pub(crate) request: u64,
    pub(crate) errand: Errand,
}

impl Token {
    /// What names the servers of the file, and the order in which the token passes them.
    pub(crate) fn way(&self) -> (usize, Placement) {
        (self.base, self.placement)
    }
}

/// The part of one client in a collective request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClientPart {
    /// The client's node, and its memory.
    pub(crate) node: NodeId,
    pub(crate) memory: MemoryId,
    pub(crate) bytes: PartBytes,
}

/// The bytes of the part of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PartBytes {
    /// A range of bytes of a subfile, whose bytes lie in memory one behind the other.
    Subfile {
        view: View,
        number: u64,
        order: SubfileOrder,
        offset: u64,
        bytes: u64,
    },
    /// Bytes of some cells.
    Cells(Vec<CellPart>),
}

/// A collective request, on which all of its clients must agree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Collective {
    pub(crate) operation: Operation,
    pub(crate) file: ObjectId,
    pub(crate) owner: u32,
    /// The server that keeps the object of the file.
    pub(crate) home: usize,
    pub(crate) shape: FileShape,
    pub(crate) version: Version,
    /// The nodes of all clients, by rank.
    pub(crate) clients: Vec<NodeId>,
    /// The number of the request among those of the program.
    pub(crate) sequence: u64,
}

/// The errand of a token.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Errand {
    /// A client's request has its place.
    Access,
    /// All servers of a file are to serve a collective request.
    Collective(Collective, Vec<ClientPart>),
    /// The cells of a file are to change: a step of a transaction, on all servers.
    Change {
        id: TransactionId,
        owner: u32,
        shape: FileShape,
        change: FileChange,
    },
}

/// A question or order of another kind.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// The attributes of an object.
    Stat(FilePath),
    /// The attributes, and the right of clients to use the file for as long as they live.
    Attach {
        path: FilePath,
        usage: Usage,
        program: u64,
        clients: Vec<NodeId>,
    },
    /// The right is not needed any more.
    Detach(u64),
    /// Make a new object; the server gives it an identity, times and, where the asker has left that
    /// open, a base.
    Create(NewObject),
    /// Remove an object.
    Remove(FilePath),
    /// Give an object, and all below it, another path.
    Rename(FilePath, FilePath, Replacement),
    /// Give an object other attributes.
    Set(FilePath, NewAttributes),
    /// The entries of an Xref.
    List(FilePath),
    /// Change all cells of a file.
    Change(FilePath, FileChange),
    /// The bytes of the cells of a file with this placement on this server, and the time of the
    /// last write to them.
    CellBytes(ObjectId, Version, Placement),
    /// Who has a file attached.
    Status(FilePath),
    /// Store all changed blocks of a file, or of all files, and save them.
    Sync(Option<ObjectId>),
    /// Bring these parts of cells into memory.
    Prefetch(ObjectId, Vec<(u64, List)>),
    /// Store the changed blocks among these parts of cells, and let them be replaced first.
    Flush(ObjectId, Vec<(u64, List)>),
    /// The space of this server, and that which a user has here.
    Space(u32),
    /// As the keeper of a user, limit the user's blocks, or let the user have any number.
    Quota(u32, Option<u64>),
    /// As the keeper of a user, allow a server more blocks of the user's.
    Allot(u32, usize),
    /// Give back the allowance of a user, and tell how many blocks are in use or promised.
    GiveBack(u32),
    /// From now on this server may give a user this number of blocks.
    Allow(u32, u64),
    /// Wait until all clients of a program have come. All of them get one answer: that to their
    /// purpose, or the error of one of them.
    Meet {
        program: u64,
        clients: Vec<NodeId>,
        purpose: Result<Purpose, Error>,
    },
    /// Take part in a collective request of a program as the client of a rank; or let it fail.
    Join {
        program: u64,
        rank: usize,
        request: Collective,
        part: Result<ClientPart, Error>,
    },
    /// Make a shared pointer with this value.
    NewPointer(u64),
    /// Move a shared pointer, and give the value before.
    MovePointer(PointerId, PointerMove),
    /// From now on, requests to this file keep the order of tokens.
    BeCautious(ObjectId),
    /// What a client may do with a file whose object this server keeps.
    Right(ObjectId, NodeId),
    /// As long as the server that says this is there, requests to this file may come in any order.
    BeReckless(ObjectId),
    /// Prepare the steps of a transaction.
    Prepare(TransactionId, Vec<Step>),
    /// Carry a transaction out, or undo it.
    Decide(TransactionId, bool),
    /// Whether a transaction that this server has directed was decided.
    WasDecided(TransactionId),
    /// What the server has done and does, as far as the asker may see that.
    Metrics,
    /// The rings of the volume, and the servers that keep its slots.
    Places,
    /// Let another server keep a slot.
    MoveSlot(usize, usize),
    /// Let the volume have one more ring, with these servers. New files are dealt to it.
    AddRing(Vec<usize>),
    /// Let the servers go that have nothing, if no file is in another ring than the newest.
    Retire,
    /// Let some cells of a file move on to the servers of the newest ring.
    MoveOn(FilePath),
    /// Take over the cells of a file that come here when it has this placement: as far as they are
    /// now; or, in a transaction in which nobody else uses the file, wholly.
    Take {
        transaction: Option<TransactionId>,
        file: ObjectId,
        shape: FileShape,
        placement: Placement,
    },
    /// Give up what was taken over of a file.
    GiveUp(ObjectId),
    /// What there is of these cells of a file here, when all that was written to it is stored.
    Cells(ObjectId, Vec<u64>),
    /// Leaves of a cell of a file, from one on.
    Leaves(ObjectId, u64, u64),
    /// The bytes of a block.
    Block(ObjectId, u64, u64, Version),
    /// Save all, and serve no more.
    Stop,
}

impl Ask {
    /// The path that the question is about, if it goes to the server that keeps it.
    pub(crate) fn path(&self) -> Option<&FilePath> {
        match self {
            Self::Stat(path)
            | Self::Attach { path, .. }
            | Self::Create(NewObject { path, .. })
            | Self::Remove(path)
            | Self::Rename(path, ..)
            | Self::Set(path, _)
            | Self::List(path)
            | Self::Change(path, _)
            | Self::Status(path)
            | Self::MoveOn(path) => Some(path),
            _ => None,
        }
    }

    /// The kind of the question, as people see it.
    pub(crate) fn kind(&self) -> RequestKind {
        match self {
            Self::Stat(_) => RequestKind::Stat,
            Self::Attach { .. } => RequestKind::Attach,
            Self::Detach(_) => RequestKind::Detach,
            Self::Create(_) => RequestKind::Create,
            Self::Remove(_) => RequestKind::Remove,
            Self::Rename(..) => RequestKind::Rename,
            Self::Set(..) => RequestKind::Set,
            Self::List(_) => RequestKind::List,
            Self::Change(..) => RequestKind::Change,
            Self::CellBytes(..) => RequestKind::Size,
            Self::Status(_) => RequestKind::Status,
            Self::Sync(_) => RequestKind::Sync,
            Self::Prefetch(..) => RequestKind::Prefetch,
            Self::Flush(..) => RequestKind::Flush,
            Self::Space(_) => RequestKind::Space,
            Self::Quota(..) => RequestKind::Quota,
            Self::Meet { .. } => RequestKind::Meet,
            Self::Join { request, .. } => RequestKind::of_collective(request.operation),
            Self::NewPointer(_) | Self::MovePointer(..) => RequestKind::Pointer,
            Self::Metrics => RequestKind::Metrics,
            Self::Allot(..)
            | Self::GiveBack(_)
            | Self::Allow(..)
            | Self::BeCautious(_)
            | Self::Right(..)
            | Self::Places
            | Self::MoveSlot(..)
            | Self::AddRing(_)
            | Self::Retire
            | Self::MoveOn(_)
            | Self::Take { .. }
            | Self::GiveUp(_)
            | Self::Cells(..)
            | Self::Leaves(..)
            | Self::Block(..)
            | Self::BeReckless(_)
            | Self::Prepare(..)
            | Self::Decide(..)
            | Self::WasDecided(_)
            | Self::Stop => RequestKind::Other,
        }
    }
}

/// The purpose for which the clients of a program meet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Purpose {
    /// Add up a number of each.
    Sum(u64),
    /// Attach a file for all of them.
    Attach(FilePath, Usage),
}

/// The use of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Usage {
    pub(crate) reads: bool,
    pub(crate) writes: bool,
    pub(crate) is_reckless: bool,
}

/// A new object.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct NewObject {
    pub(crate) path: FilePath,
    pub(crate) mode: u16,
    pub(crate) kind: NewKind,
}

/// The kind of a new object.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum NewKind {
    /// A file: cells, bytes of a BSU, and the base, if the user gives one.
    File(u64, u64, Option<usize>),
    Xref,
    /// A symbolic link with this target.
    Symlink(String),
}

/// A server's answer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// It is done.
    Done,
    /// The request has its place in the order.
    Placed,
    /// The request has been done. For each of its parts, the end of the cell: what lies behind was
    /// not moved. Data that were read may come as a parcel.
    Moved(Vec<u64>),
    /// The collective request has been done: for each rank what was moved.
    Collected(Vec<Moved>),
    /// The file is shared: the request must keep the order of tokens.
    BeCautious,
    Object(Attributes),
    /// The attributes, and the number of links.
    Found(Attributes, u32),
    Attached {
        object: Attributes,
        key: u64,
        is_cautious: bool,
    },
    Entries(Vec<(String, Entry)>),
    CellBytes(Vec<(u64, u64)>, u64),
    Status(Vec<Attacher>),
    Space {
        used: u64,
        blocks: u64,
        block_bytes: u64,
        of_user: u64,
        limit: Option<u64>,
    },
    Pointer(PointerId),
    Value(u64),
    /// Whether a transaction was decided; nothing as long as it is under way.
    Decided(Option<bool>),
    /// A token may be lost with this server.
    Gap(usize),
    Right(Option<Right>),
    Metrics(Box<Snapshot>),
    /// And what the door of the server process says of them all, if it has one.
    Places(Rings, Keepers, Option<Vec<u8>>),
    Cells(MovedPart),
    Leaves(Leaves),
    /// The file has moved to other servers since the asker has heard of it, or the path is one of
    /// a slot that another server keeps.
    HasMoved,
    /// The server of the file's object does not know that the client has the file attached: it has
    /// been started since. The client attaches the file again.
    NotAttached,
}

/// The bytes that an access has moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// The number of real bytes.
    pub bytes: u64,
    /// One past the last real byte, counted from the first byte of the access: in a subfile without
    /// ghosts and holes the number of real bytes.
    pub reach: u64,
}

impl Moved {
    /// What two parts of an access have moved together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            reach: self.reach.max(other.reach),
        }
    }
}

/// The error for a peer that sends something impossible.
pub(crate) fn refusal(cause: impl Into<String>) -> Error {
    Error::new(Kind::Peer, "answering a client of files", cause.into())
}
