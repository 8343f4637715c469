//! The request of all ranks together, compact whatever the size of the array.

use penstock_layout::DiskSchema;
use serde::{Deserialize, Serialize};

use crate::address::ARRAYS_MAX;
use crate::error::{Error, Kind, Result};
use crate::files::FileId;
use crate::holders::Holders;
use crate::machine::{Access, Opening, Operation};
use crate::party::Party;
use crate::sieve::Sifting;
use crate::tuning::{Caching, Split, StoreAccess, Strategy, TwoPhase};

/// A request is collective and about one array. Servers work out all else from it. A call about
/// several arrays has a request for each.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Request {
    /// The direction of the data.
    pub operation: Operation,
    /// The strategy, with its tuning.
    pub strategy: Strategy,
    /// Which rank holds which elements.
    pub holders: Holders,
    /// The array's disk schema.
    pub disk: DiskSchema,
    /// The target that the disks open, in the machine's own words, without meaning to a strategy.
    pub target: Vec<u8>,
    /// The open file that takes the target's place, if servers have the array open.
    pub file: Option<FileId>,
    /// The number of servers that take part: servers 0 to `servers` - 1.
    pub servers: usize,
    /// Whether written data must be on stable storage before the verdict.
    pub sync: bool,
    /// The split of the call, if the disks are to work while the clients compute.
    pub split: Option<Split>,
    /// The treatment of elements that no rank holds, in a write.
    pub rest: Rest,
    /// The sifting of a read: servers deliver what they make of the elements, in their place.
    pub sifting: Option<Sifting>,
}

/// The rest says what a write does to elements that no rank holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rest {
    /// The elements keep what is stored. Only disk-directed I/O can do it.
    Keep,
    /// The elements become this element, given by its bytes, in each block that has elements of a
    /// rank; no bytes stand for zero. Other blocks are not written: the store gives this element
    /// for them.
    Fill(Vec<u8>),
    /// The elements become this element in all blocks, since the store cannot give it for blocks
    /// that are not written. Only disk-directed and two-phase I/O can do it.
    FillAll(Vec<u8>),
    /// The elements are left alone: others may change them meanwhile, so no byte of them is read or
    /// written. If ranks hold an element together, nobody says whose is written. Only disk-directed
    /// I/O of lists can do it, on a target that is there already and moves parts of blocks.
    Leave,
}

impl Rest {
    /// The bytes of the element that fills the rest.
    pub fn element(&self) -> &[u8] {
        match self {
            Self::Keep | Self::Leave => &[],
            Self::Fill(element) | Self::FillAll(element) => element,
        }
    }
}

impl Request {
    /// The opening of `server` for this request.
    pub fn opening(&self, server: usize) -> Opening {
        Opening {
            target: self.target.clone(),
            disk: self.disk.clone(),
            access: match self.rest {
                Rest::Leave => Access::Update,
                _ => self.operation.into(),
            },
            sync: self.sync,
            server,
            servers: self.servers,
        }
    }

    /// Checks that the request fits together and fits the party. Each schema by itself was checked
    /// when it was made or decoded.
    ///
    /// # Errors
    /// [`Kind::Schema`] when memory and disk schema are of different arrays, when there are more
    /// ranks or servers than in the party, or none, when a write has several holders of one
    /// element, when the rest is no element or cannot be left alone, when the tuning leaves a
    /// strategy no buffer, and when a call is sifted that cannot be; [`Kind::Unsupported`] when
    /// clients are to deal with each other that reach servers alone.
    pub fn check(&self, party: &Party) -> Result<()> {
        let Self {
            holders,
            disk,
            servers,
            ..
        } = self;
        let (ranks, clients, all) = (holders.ranks(), party.clients.len(), party.servers.len());
        let element = self.rest.element().len() as u64;
        let caching_works = |caching: &Caching| {
            caching.outstanding_max > 0
                && caching.call_bytes_max > 0
                && caching.buffers_per_client > 0
        };
        let is_tuned = match &self.strategy {
            Strategy::Caching(caching)
            | Strategy::TwoPhase(TwoPhase {
                io: StoreAccess::Servers(caching),
                ..
            }) => caching_works(caching),
            _ => true,
        };
        let cause = if holders.shape() != disk.shape() {
            let (held, stored) = (holders.shape(), disk.shape());
            format!("an array of {held:?} in memory and of {stored:?} on disk")
        } else if ranks > clients {
            format!("shares of {ranks} ranks, and there are {clients}")
        } else if *servers == 0 || *servers > all {
            format!("{servers} servers, and there are {all}")
        } else if self.operation == Operation::Write && holders.are_shared() {
            "a write of elements that several ranks hold".to_string()
        } else if element != 0 && element != disk.width() {
            let width = disk.width();
            format!("a fill value of {element} bytes for elements of {width}")
        } else if self.rest == Rest::Leave && (!holders.are_lists() || self.file.is_some()) {
            "a write that leaves the rest alone, of a schema or on an open file".to_string()
        } else if !is_tuned {
            "caching without buffers, requests or bytes".to_string()
        } else if self.sifting.is_some() && !self.may_be_sifted() {
            "a sieve in a call that is no disk-directed read, or is split, or of an open file"
                .to_string()
        } else {
            return self.check_deal(party);
        };
        Err(Error::new(Kind::Schema, "checking a request", cause))
    }

    fn may_be_sifted(&self) -> bool {
        self.operation == Operation::Read
            && matches!(self.strategy, Strategy::DiskDirected(_))
            && self.split.is_none()
            && self.file.is_none()
    }

    /// Checks that clients reach each other, if they are to deal with each other.
    fn check_deal(&self, party: &Party) -> Result<()> {
        match &self.sifting {
            Some(Sifting { is_dealt: true, .. }) if party.stands => {
                let cause = "the ranks of a session with servers that stand do not reach each \
                             other, and cannot deal out evenly what servers send them";
                Err(Error::new(Kind::Unsupported, "checking a request", cause))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the requests of one call fit together, each by itself and all with each other.
    ///
    /// # Errors
    /// As [`Request::check`]; [`Kind::Schema`] when there are none or too many, or when they are
    /// not met in one way.
    pub(crate) fn check_all(requests: &[Self], party: &Party) -> Result<()> {
        let wrong = |cause: &str| Err(Error::new(Kind::Schema, "checking a request", cause));
        let Some(first) = requests.first() else {
            return wrong("there is none");
        };
        let way = |request: &Self| (request.operation, request.strategy, request.split);
        if requests.len() > ARRAYS_MAX || requests.iter().any(|other| way(other) != way(first)) {
            return wrong("there are too many, or they are not met in one way");
        }
        if requests.len() > 1 && requests.iter().any(|request| request.sifting.is_some()) {
            return wrong("of several arrays, one is sifted");
        }
        requests.iter().try_for_each(|request| request.check(party))
    }

    /// Whether a write also writes blocks without elements of any rank.
    pub fn writes_all(&self) -> bool {
        self.operation == Operation::Write && matches!(self.rest, Rest::FillAll(_))
    }
}
