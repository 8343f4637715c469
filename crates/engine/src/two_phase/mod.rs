//! Two-phase I/O: clients move large conforming parts, and permute the data among themselves.
//!
//! del Rosario, Bordawekar and Choudhary 1993. The file's blocks are cut into as many consecutive
//! parts as there are clients: the conforming distribution, `rb` for a row-major matrix. Each
//! client moves its part by one large request, and exchanges the elements with those who hold them:
//!
//! ```text
//! read    every client reads its part | elements go to their holders
//! write   elements come from their holders | every client writes its part
//! ```
//!
//! There are two descriptions of two-phase I/O, and both are here:
//!
//! | | Kotz, TOCS 1997, Figure 2(b) | Dickens and Thakur, section 3.3 |
//! |---|---|---|
//! | the exchange | [`Exchange::Remote`]: memget and memput, barriers around each phase | messages, in five ways: [`Exchange::Step1`] to [`Exchange::Step5`] |
//! | the disks | [`StoreAccess::Servers`]: a parallel file system, here [`caching`] | any file system: also [`StoreAccess::Direct`] |
//!
//! | module | contents |
//! |---|---|
//! | `exchange` | the messages, and the five ways to order them |
//!
//! Memory: of a client [`TwoPhase::buffer_bytes_max`], or one block if that is more, and the send
//! buffers of the step; a client with a larger part makes all clients go through the two phases
//! several times. Each element crosses the network once, and again on its way to the servers.

mod exchange;

use std::rc::Rc;
use std::slice;

use futures::future::{join, join_all};
use penstock_layout::{Block, Holding, MemorySchema, exact};

use crate::caching::client::{Client, Local};
use crate::call::Call;
use crate::direct_disks::DirectDisks;
use crate::error::{Error, Result, Who};
use crate::holders::Holders;
use crate::lists::{self, Lists};
use crate::machine::{BlockFile, Machine, Operation};
use crate::outcome::{Outcome, Traffic};
use crate::own::OwnPart;
use crate::portions::{Parts, check_apart, move_portions};
use crate::request::Request;
use crate::split::{HandOver, Latch, start};
use crate::tree::Tree;
use crate::tuning::{Caching, Exchange, StoreAccess, TwoPhase};
use exchange::Messages;

/// Runs the part of the client of `rank`: it permutes, and moves its part or asks the servers to.
pub(crate) async fn transfer<M: Machine>(
    call: &Call<'_, M>,
    request: &Request,
    options: &TwoPhase,
    (rank, list): (usize, &Holding),
    latch: &Latch,
) -> Outcome {
    let mut client = Conforming::new(call, request, options, (rank, list), latch);
    let moved = client.run().await;
    Outcome::of(moved.map_err(|error| error.by(Who::Rank(rank))))
}

/// The client of one node, and its conforming part.
struct Conforming<'a, M: Machine> {
    call: &'a Call<'a, M>,
    tree: Tree<'a, M>,
    request: &'a Request,
    options: &'a TwoPhase,
    latch: &'a Latch,
    /// This rank's own list, if ranks have lists.
    list: &'a Holding,
    /// The pieces that all ranks' lists have of this client's blocks.
    lists: Lists,
    /// The blocks of each round.
    rounds: Vec<Vec<Rc<Block>>>,
}

impl<'a, M: Machine> Conforming<'a, M> {
    fn new(
        call: &'a Call<'a, M>,
        request: &'a Request,
        options: &'a TwoPhase,
        (rank, list): (usize, &'a Holding),
        latch: &'a Latch,
    ) -> Self {
        let clients = call.party().clients.len();
        let blocks_staged = options.blocks_staged(request.split, request.disk.block_bytes_max());
        let rounds = request
            .disk
            .conforming_blocks_max(clients)
            .div_ceil(blocks_staged);
        // All clients go through all rounds, also with nothing to move in some.
        let mut blocks = vec![Vec::new(); exact::<usize>(rounds)];
        for block in request.disk.conforming(rank, clients) {
            let (_, place) = request.disk.conforming_place(&block, clients);
            blocks[exact::<usize>(place / blocks_staged)].push(Rc::new(block));
        }
        Self {
            tree: call.clients(rank),
            call,
            request,
            options,
            latch,
            list,
            lists: Lists::default(),
            rounds: blocks,
        }
    }

    /// The client that moves a block.
    fn owner(request: &Request, block: &Block, clients: usize) -> usize {
        request.disk.conforming_place(block, clients).0
    }

    /// Gives all clients the pieces that this rank's list has of their blocks, and takes theirs.
    async fn deal_lists(&mut self) -> Result<()> {
        let (call, requests) = (self.call, slice::from_ref(self.request));
        if !lists::are_in(requests) {
            return Ok(());
        }
        let (clients, me) = (&call.party().clients, self.tree.place);
        let owner = |request: &Request, block: &Block| Self::owner(request, block, clients.len());
        let own = [self.list];
        let sent = lists::send(call, requests, &own, clients, owner);
        let is_own = |request: &Request, block: &Block| owner(request, block) == me;
        let (sent, received) = join(sent, Lists::receive(call, requests, me, is_own)).await;
        sent?;
        self.lists = received?;
        Ok(())
    }

    /// What ranks hold of this client's blocks.
    fn parts(&self) -> Parts<'_> {
        Parts {
            request: self.request,
            array: 0,
            lists: &self.lists,
        }
    }

    async fn run(&mut self) -> Result<Traffic> {
        let mut hand_over = Some(self.latch.hand_over()); // before anything waits
        let dealt = self.deal_lists().await;
        let mut stage = dealt.and(self.stage().await);
        let own = OwnPart::new(self.request, self.tree.place, self.list);
        let messages = Messages::new(
            (self.call, self.tree.place),
            self.parts(),
            &own,
            self.options,
        );
        let is_write = self.request.operation == Operation::Write;
        let mut moved = Traffic::default();
        for (round, blocks) in self.rounds.iter().enumerate() {
            let is_last = round + 1 == self.rounds.len();
            let hands_over = match is_write {
                true => is_last,
                false => round == 0,
            };
            for phase in 0..2 {
                self.meet(round, phase).await?;
                // After an error the client still meets the others, and sends what they wait for.
                let done = match (phase == 0) == is_write {
                    true => {
                        let messages = messages.as_ref();
                        self.exchange(messages, round, blocks, stage.as_ref()).await
                    }
                    false => {
                        let hand_over = hand_over.take_if(|_| hands_over);
                        let ends = is_write && is_last;
                        self.move_blocks(blocks, &stage, hand_over, ends).await
                    }
                };
                match done {
                    Ok(more) => moved.add(&more),
                    Err(error) => stage = stage.and(Err(error)),
                }
            }
        }
        self.meet(self.rounds.len(), 0).await?;
        let stage = stage?;
        moved.buffer_bytes = stage.bytes;
        Ok(moved)
    }

    /// Lets all clients come here, if the exchange demands it.
    async fn meet(&self, round: usize, phase: usize) -> Result<()> {
        let must = match self.options.exchange {
            Exchange::Remote => true,
            // Messages of two rounds must not mix.
            _ => round > 0 && round < self.rounds.len() && phase == 0,
        };
        match must {
            true => {
                let number = 2 * round + phase;
                self.tree.barrier(exact::<u32>(number)).await
            }
            false => Ok(()),
        }
    }

    async fn stage(&self) -> Result<Stage<'a, M>> {
        let machine = self.call.machine;
        let blocks = self.rounds.iter().map(Vec::len).max().unwrap_or(0);
        let bytes = blocks as u64 * self.request.disk.block_bytes_max();
        let disks = match self.options.io {
            StoreAccess::Direct if blocks > 0 => {
                Some(DirectDisks::open(machine, self.request).await?)
            }
            _ => None,
        };
        Ok(Stage {
            buffer: machine.buffer(bytes)?,
            bytes,
            disks,
        })
    }

    /// Exchanges blocks between the staging buffer and the clients that hold their elements.
    async fn exchange(
        &self,
        messages: Option<&Messages<'_, M>>,
        round: usize,
        blocks: &[Rc<Block>],
        stage: std::result::Result<&Stage<'_, M>, &Error>,
    ) -> Result<Traffic> {
        let mut staging = stage.map(|stage| &stage.buffer);
        let has_gaps = match self.request.operation {
            Operation::Write => self.has_gaps(blocks),
            Operation::Read => Ok(false),
        };
        match (staging, &has_gaps) {
            (Ok(staging), Ok(true)) => {
                let bytes = blocks.len() as u64 * self.request.disk.block_bytes_max();
                let element = self.request.rest.element();
                self.call.machine.clear(staging, bytes, element);
            }
            (_, Ok(_)) => {}
            (_, Err(error)) => staging = staging.and(Err(error)), // others still send
        }
        let staged: Vec<_> = self.staged(blocks).collect();
        let transfers = match (messages, staging) {
            (Some(messages), _) => messages.exchange(round as u64, &staged, staging).await?,
            (None, Ok(staging)) => self.permute(&staged, staging).await?,
            (None, Err(_)) => 0,
        };
        has_gaps?;
        Ok(Traffic {
            transfers,
            ..Traffic::default()
        })
    }

    /// Permutes by memget and memput.
    async fn permute(&self, staged: &[(Rc<Block>, u64)], staging: &M::Buffer) -> Result<u64> {
        let mut transfers = 0;
        for (block, base) in staged {
            let Call { machine, id, .. } = *self.call;
            let portions = self.parts().portions(block)?;
            let place = (&**block, *base);
            move_portions(
                machine,
                (self.call.party(), id.memory(0)),
                self.request,
                &portions,
                place,
                staging,
            )
            .await?;
            transfers += portions.len() as u64;
        }
        Ok(transfers)
    }

    /// Runs the I/O phase: blocks between the staging buffer and the disks. The client hands over
    /// when only the disks are left to work. The last phase of a write `ends` it.
    async fn move_blocks(
        &self,
        blocks: &[Rc<Block>],
        stage: &Result<Stage<'_, M>>,
        hand_over: Option<HandOver<'_>>,
        ends: bool,
    ) -> Result<Traffic> {
        let Ok(stage) = stage else {
            return Ok(Traffic::default());
        };
        // A block that nobody holds has mostly nothing to move.
        let request = self.request;
        let is_moved = |block: &Block| request.writes_all() || self.parts().touch(block);
        let held = self.staged(blocks).filter(|(block, _)| is_moved(block));
        let held: Vec<_> = held.collect();
        match (&self.options.io, &stage.disks) {
            (StoreAccess::Servers(options), _) => {
                drop(hand_over);
                self.ask(options, &held, &stage.buffer).await?;
                Ok(Traffic::default()) // the servers count it
            }
            (StoreAccess::Direct, None) => Ok(Traffic::default()),
            (StoreAccess::Direct, Some(disks)) => {
                let moving = self.move_directly(disks, &held, &stage.buffer, ends);
                match self.request.split.and(hand_over) {
                    None => moving.await?,
                    Some(hand_over) => {
                        let moving = start(moving).await;
                        drop(hand_over);
                        moving.end().await?;
                    }
                }
                Ok(Traffic {
                    blocks: held.len() as u64,
                    disk_bytes: held.iter().map(|(block, _)| block.bytes).sum(),
                    ..Traffic::default()
                })
            }
        }
    }

    /// Asks the servers of a parallel file system for all blocks, as one call of it.
    async fn ask(
        &self,
        options: &Caching,
        staged: &[(Rc<Block>, u64)],
        staging: &M::Buffer,
    ) -> Result<()> {
        let local = Local::Staging(staging, 0);
        let mut client = Client::new(self.call, self.request, options, local);
        let asked = async {
            for (block, base) in staged {
                client.ask_whole(block, *base).await?;
            }
            Ok(())
        };
        let asked = asked.await;
        let ended = client.end_call().await;
        asked.and(ended)
    }

    /// Moves all blocks by itself.
    async fn move_directly(
        &self,
        disks: &DirectDisks<'_, M>,
        staged: &[(Rc<Block>, u64)],
        staging: &M::Buffer,
        ends: bool,
    ) -> Result<()> {
        let moves = staged.iter().map(|(block, base)| async {
            match self.request.operation {
                Operation::Write => disks.of(block).write(block, staging, *base).await,
                Operation::Read => disks.of(block).read(block, staging, *base).await,
            }
        });
        let finish = async {
            match ends {
                true => disks.finish().await,
                false => Ok(()),
            }
        };
        let (moved, finished) = join(join_all(moves), finish).await;
        moved.into_iter().collect::<Result<()>>().and(finished)
    }

    /// Whether some bytes of the blocks are nobody's: they must not be left over from other blocks.
    ///
    /// # Errors
    /// When lists have an element in common.
    fn has_gaps(&self, blocks: &[Rc<Block>]) -> Result<bool> {
        let mut any_has = false;
        for block in blocks {
            any_has |= match &self.request.holders {
                Holders::Schema(MemorySchema::Boxes(_)) | Holders::Lists { .. } => {
                    let portions = self.parts().portions(block)?;
                    check_apart(block, &portions)?;
                    let held: u64 = portions.iter().map(|held| held.piece.elements()).sum();
                    held * self.request.disk.width() < block.bytes
                }
                // Some rank holds each element.
                Holders::Schema(_) => block.is_padded(),
            };
        }
        Ok(any_has)
    }

    /// Each block, with the byte of the staging buffer at which it begins.
    fn staged<'b>(
        &self,
        blocks: &'b [Rc<Block>],
    ) -> impl Iterator<Item = (Rc<Block>, u64)> + use<'b, M> {
        let bytes = self.request.disk.block_bytes_max();
        blocks
            .iter()
            .cloned()
            .zip((0..).step_by(exact::<usize>(bytes)))
    }
}

/// A stage is a client's staging buffer, with the disks.
struct Stage<'a, M: Machine> {
    buffer: M::Buffer,
    bytes: u64,
    /// The disks, if the client moves blocks itself and has any.
    disks: Option<DirectDisks<'a, M>>,
}
