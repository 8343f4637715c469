//! Reading and writing, in all forms: who says where, who takes part, and who waits.
//!
//! | positioning | alone | together |
//! |---|---|---|
//! | explicit offset | `read_at` | `read_at_all` |
//! | individual pointer | `read` | `read_all` |
//! | shared pointer | `read_shared` | `read_ordered` |
//!
//! A pointer moves when the call begins, by what was asked for. So calls that follow need not wait.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use penstock_engine::{
    Decision, Director, Error, Operation, Proposal, RankParts, Request, Rest, Strategy, Tally,
    Traffic,
};
use penstock_layout::{DiskSchema, Order};
use penstock_machines::Node;
use serde::{Deserialize, Serialize};

use crate::access::{Access, Buffer, touch};
use crate::ask::{Ask, Say, error_of};
use crate::context::{self, Own, lock};
use crate::failure::{Class, Failure, Result, wrong};
use crate::file::{File, Split, meet};
use crate::medium;
use crate::pending::{Moved, Pending};
use crate::plan::{Directed, Plan, Touch, decide};
use crate::report::Count;
use crate::storage::{VolumeFile, VolumeTurn};

/// Independent accesses of more bytes than this go on in a thread.
const AT_ONCE_BYTES_MAX: u64 = 64 << 10;

/// Who says where in the file an access begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// The program, in elementary types.
    Explicit(i64),
    /// The rank's own pointer.
    Individual,
    /// The pointer that all ranks share.
    Shared,
    /// The pointer that all ranks share, in the order of ranks.
    Ordered,
}

/// What a call of the program asks for.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// The name of the function.
    pub function: &'static str,
    pub operation: Operation,
    pub position: Position,
    pub buffer: Buffer,
}

/// What a rank says of its access.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Word {
    touch: Touch,
    /// The elementary types of an access in the order of ranks.
    etypes: i64,
    /// About how many series its data are in memory.
    series_of_memory: u64,
}

/// What rank 0 answers to all.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Answer {
    plan: Plan,
    /// The bytes of the file before the access.
    file_bytes: u64,
    /// Where the access of each rank begins, in the order of ranks.
    starts: Vec<i64>,
}

impl File {
    /// Makes the access of a call, and moves pointers.
    fn access(&self, call: &Call) -> Result<Access> {
        self.check_mode(call)?;
        let mut cursor = lock(&self.cursor);
        let view = cursor.view.clone();
        let at = match call.position {
            Position::Explicit(offset) => view.data_at(offset)?,
            Position::Individual => view.data_at(cursor.pointer)?,
            Position::Shared | Position::Ordered => 0,
        };
        let mut access = Access::new(self.mpi, call.operation, view, at, call.buffer)?;
        match call.position {
            Position::Explicit(_) => {}
            Position::Individual => cursor.pointer += access.etypes(),
            // Several ranks hear from rank 0 where each begins.
            Position::Ordered if self.context.machine.is_some() => {}
            Position::Shared | Position::Ordered => {
                let before = self.shared.advance(access.etypes())?;
                let at = access.view().data_at(before)?;
                access.place_at(at);
            }
        }
        Ok(access)
    }

    fn check_mode(&self, call: &Call) -> Result<()> {
        let (function, mode) = (call.function, &self.mode);
        let is_shared = matches!(call.position, Position::Shared | Position::Ordered);
        if mode.sequential && !is_shared {
            let cause = format!("{function}: the file was opened with MPI_MODE_SEQUENTIAL");
            return Err(wrong(Class::UnsupportedOperation, cause));
        }
        match call.operation {
            Operation::Read if !mode.reads => {
                let cause = format!("{function}: the file was opened with MPI_MODE_WRONLY");
                Err(wrong(Class::Access, cause))
            }
            Operation::Write if !mode.writes => {
                let cause = format!("{function}: the file was opened with MPI_MODE_RDONLY");
                Err(wrong(Class::ReadOnly, cause))
            }
            _ => Ok(()),
        }
    }

    fn move_alone(&self, access: &Access) -> Result<u64> {
        let atomic = self.is_atomic().then_some(&self.shared);
        access.alone(&self.storage, atomic)
    }

    /// Reads or writes alone, and gives the bytes of memory.
    ///
    /// # Errors
    /// Those of the arguments, and of the operating system.
    pub fn alone(&self, call: &Call) -> Result<u64> {
        let begun = Instant::now();
        let mut access = self.access(call)?;
        let moved = self.move_alone(&access)?;
        self.count(call.function, |count| {
            count_access(count, &access);
            count.time += begun.elapsed();
        });
        access.land(moved)
    }

    /// Begins to read or write alone. `then` is called when that has ended, perhaps by another
    /// thread.
    ///
    /// # Errors
    /// Those of the arguments.
    pub fn begin_alone(
        self: &Arc<Self>,
        call: &Call,
        then: impl FnOnce() + Send + 'static,
    ) -> Result<Pending> {
        let access = self.access(call)?;
        self.count(call.function, |count| count_access(count, &access));
        let file = self.clone();
        let is_large = access.bytes() > AT_ONCE_BYTES_MAX || self.is_atomic();
        let act = move || {
            let bytes = file.move_alone(&access);
            Moved {
                access: Ok(access),
                bytes,
            }
        };
        match is_large && self.shared.is_for_all_threads() {
            true => Ok(Pending::on_thread(act, then)),
            false => {
                let moved = act();
                then();
                Ok(Pending::Ended(Box::new(moved)))
            }
        }
    }

    /// Reads or writes together with all ranks, and gives the bytes of memory.
    ///
    /// # Errors
    /// The same on all ranks.
    ///
    /// # Collective
    /// Over the ranks of the file.
    pub fn together(self: &Arc<Self>, call: &Call) -> Result<u64> {
        let begun = Instant::now();
        let access = self.access(call);
        self.count_collective(call, &access);
        let (file, numbers, call) = (self.clone(), self.next_numbers()?, *call);
        let turn = self.storage.volume().map(VolumeFile::turn);
        let moved = match &self.context.machine {
            None => move_one(&file, access),
            Some(machine) => machine.run(|node| async move {
                Ok(move_together(node, file, numbers, &call, (access, turn)).await)
            })?,
        };
        self.count(call.function, |count| count.time += begun.elapsed());
        moved.land()
    }

    fn count_collective(&self, call: &Call, access: &Result<Access>) {
        if let Ok(access) = access {
            self.count(call.function, |count| count_access(count, access));
        }
    }

    /// Begins to read or write together with all ranks. `then` is called when that has ended,
    /// perhaps by another thread.
    ///
    /// # Errors
    /// When the file has seen too many calls.
    ///
    /// # Collective
    /// Over the ranks of the file.
    pub fn begin_together(
        self: &Arc<Self>,
        call: &Call,
        then: impl FnOnce() + Send + 'static,
    ) -> Result<Pending> {
        let access = self.access(call);
        self.count_collective(call, &access);
        let (file, numbers, call) = (self.clone(), self.next_numbers()?, *call);
        let turn = self.storage.volume().map(VolumeFile::turn);
        match &self.context.machine {
            None => Ok(match access {
                Ok(_) if self.shared.is_for_all_threads() => {
                    Pending::on_thread(move || move_one(&file, access), then)
                }
                access => {
                    let moved = move_one(&file, access);
                    then();
                    Pending::Ended(Box::new(moved))
                }
            }),
            Some(machine) => Ok(Pending::Job(machine.begin(|node| async move {
                let moved = move_together(node, file, numbers, &call, (access, turn)).await;
                then();
                moved
            }))),
        }
    }

    /// Begins a split access.
    ///
    /// # Errors
    /// [`Class::Request`] when one is under way.
    ///
    /// # Collective
    /// Over the ranks of the file.
    pub fn begin_split(self: &Arc<Self>, call: &Call, ends_with: &'static str) -> Result<()> {
        let mut split = lock(&self.split);
        if let Some(before) = &*split {
            let cause = format!(
                "{}: another split access is under way, which {} ends",
                call.function, before.ends_with
            );
            return Err(wrong(Class::Request, cause));
        }
        let pending = self.begin_together(call, || ())?;
        *split = Some(Split { ends_with, pending });
        Ok(())
    }

    /// Ends a split access, and gives the bytes of memory.
    ///
    /// # Errors
    /// [`Class::Request`] when none is under way that this function ends; the access's.
    ///
    /// # Collective
    /// Over the ranks of the file.
    pub fn end_split(&self, function: &'static str) -> Result<u64> {
        let mut split = lock(&self.split);
        let ended = split.take_if(|split| split.ends_with == function);
        let other = split.as_ref().map_or("none", |split| split.ends_with);
        let ended = ended.ok_or_else(|| {
            let cause = format!("{function}: it ends no split access under way ({other} does)");
            wrong(Class::Request, cause)
        })?;
        drop(split);
        ended.pending.wait(&self.context).land()
    }
}

/// Counts an access.
fn count_access(count: &mut Count, access: &Access) {
    let touch = access.touch();
    count.calls += 1;
    count.bytes += touch.bytes;
    count.runs += touch.runs;
}

/// The collective access of a file that one rank has.
fn move_one(file: &File, access: Result<Access>) -> Moved {
    let bytes = match &access {
        Ok(access) => file.move_alone(access),
        Err(_) => Ok(0),
    };
    Moved { access, bytes }
}

/// The part of a rank in a collective access.
async fn move_together(
    node: Rc<Node>,
    file: Arc<File>,
    numbers: [u64; 2],
    call: &Call,
    (access, mut turn): (Result<Access>, Option<VolumeTurn>),
) -> Moved {
    let mut access = access;
    if let Some(turn) = &mut turn {
        turn.come().await;
    }
    let bytes = move_agreed(&node, &file, numbers, call, &mut access).await;
    Moved { access, bytes }
}

async fn move_agreed(
    node: &Node,
    file: &Arc<File>,
    numbers: [u64; 2],
    call: &Call,
    access: &mut Result<Access>,
) -> Result<u64> {
    let Some(party) = file.party() else {
        return Err(Failure::new(
            Class::Other,
            "a file of several ranks has no servers",
        ));
    };
    let place = |number| (party.clone(), file.context.rank, number);
    let is_ordered = call.position == Position::Ordered;
    let said: Say<Word> = match access {
        Ok(access) => Ok(word_of(access, is_ordered)),
        Err(failure) => Err(failure.clone()),
    };
    let ask = Ask::Access {
        function: call.function.to_string(),
    };
    let (director, operation) = (file.clone(), call.operation);
    let direct = move |words: Vec<Word>| director.answer(&words, operation, is_ordered);
    let answer: Answer = meet(node, place(numbers[0]), ask, said, direct).await?;
    let access = access.as_mut().map_err(|failure| failure.clone())?;
    if let Some(&start) = answer.starts.get(file.context.rank) {
        let at = access.view().data_at(start)?;
        access.place_at(at);
    }
    let is_read = operation == Operation::Read;
    if is_read {
        access.cut(answer.file_bytes);
    }
    match answer.plan {
        Plan::Nothing => Ok(0),
        Plan::Alone => {
            let moved = file.move_alone(access);
            let said = moved.as_ref().map(|_| ()).map_err(Clone::clone);
            let meeting = meet(node, place(numbers[1]), Ask::Proceed, said, |_: Vec<()>| {
                Ok(())
            });
            meeting.await?;
            moved
        }
        Plan::Directed(plan) => {
            file.count(call.function, |count| count.directed += 1);
            let is_orderly = access.view().is_orderly();
            for nth in 0..plan.windows {
                let number = match nth {
                    0 => numbers[1],
                    _ => plan.further + nth - 1,
                };
                if let Some(volume) = file.storage.volume() {
                    let part = match is_orderly {
                        true => access.selection_of(plan.window(nth)),
                        false => access.selection_of(0..0), // it is read alone, below
                    };
                    // SAFETY: the program has given this memory to the access.
                    unsafe { volume.select_all(operation, part).await? };
                    continue;
                }
                let own = access.own_of(plan.window(nth));
                let moving = move_directed(node, place(number), file, (operation, &plan), own);
                let traffic = moving.await?;
                if file.context.rank == 0 {
                    file.count(call.function, |count| count.moved.add(&traffic));
                }
            }
            match file.storage.volume() {
                Some(_) if !is_orderly => file.move_alone(access),
                _ => Ok(access.bytes()),
            }
        }
    }
}

fn word_of(access: &Access, is_ordered: bool) -> Word {
    Word {
        touch: access.touch(),
        etypes: if is_ordered { access.etypes() } else { 0 },
        series_of_memory: access.series_of_memory(),
    }
}

impl File {
    /// What rank 0 answers to the words of all ranks.
    fn answer(&self, words: &[Word], operation: Operation, is_ordered: bool) -> Result<Answer> {
        let file_bytes = self.size()?;
        let mut touches: Vec<Touch> = words.iter().map(|word| word.touch).collect();
        let mut starts = Vec::new();
        if is_ordered {
            let all = words
                .iter()
                .fold(0i64, |all, word| all.saturating_add(word.etypes));
            let mut next = self.shared.advance(all)?;
            let view = lock(&self.cursor).view.clone();
            for (word, of_rank) in words.iter().zip(&mut touches) {
                starts.push(next);
                let at = view.data_at(next)?;
                *of_rank = touch(&view, &(at..at + word.touch.bytes), word.series_of_memory);
                next += word.etypes;
            }
        }
        if operation == Operation::Read {
            touches = touches
                .iter()
                .filter_map(|touch| touch.before(file_bytes))
                .collect();
        }
        let tuning = lock(&self.hints).tuning(operation == Operation::Write, self.servers());
        let plan = match self.is_atomic() {
            true => Plan::Alone,
            false => decide(&touches, &tuning, |calls| self.reserve(calls)),
        };
        Ok(Answer {
            plan,
            file_bytes,
            starts,
        })
    }
}

/// Lets servers move the data of one window.
async fn move_directed(
    node: &Node,
    place: (Arc<penstock_engine::Party>, usize, u64),
    file: &File,
    (operation, plan): (Operation, &Directed),
    own: Result<Own>,
) -> Result<Traffic> {
    let (own, proposal) = match own {
        Ok(own) => (
            own,
            Ok(Proposal {
                ask: Ask::Move,
                own_boxes: Vec::new(),
                own: Vec::new(),
                complaint: None,
            }),
        ),
        Err(failure) => (Own::default(), Err(error_of(&failure))),
    };
    let mut mover = Mover {
        file: file.number(),
        ranks: file.context.size,
        operation,
        plan,
    };
    let director = (place.1 == 0).then_some(&mut mover as &mut dyn Director);
    let verdict = context::call(node, place, proposal, own, director).await?;
    Ok(verdict.moved)
}

/// Directs the moving of a window.
struct Mover<'a> {
    file: u64,
    ranks: usize,
    operation: Operation,
    plan: &'a Directed,
}

impl Director for Mover<'_> {
    fn prepare(&mut self, _: RankParts) -> std::result::Result<Decision, Error> {
        let shape = [self.plan.end];
        let disk = DiskSchema::flat(&shape, 1, Order::RowMajor, self.plan.block_bytes);
        let disk = disk.map_err(|error| {
            Error::new(penstock_engine::Kind::Schema, "a collective access", error)
        })?;
        Ok(Decision::Serve(vec![Request {
            operation: self.operation,
            strategy: Strategy::default(),
            holders: penstock_engine::Holders::Lists {
                shape: shape.to_vec(),
                ranks: self.ranks,
            },
            disk,
            target: medium::target(self.file)?,
            file: None,
            servers: self.plan.servers,
            sync: false,
            split: None,
            rest: match self.operation {
                Operation::Write => Rest::Leave,
                Operation::Read => Rest::Fill(Vec::new()),
            },
            sifting: None,
        }]))
    }

    fn conclude(
        &mut self,
        outcome: std::result::Result<Tally, Error>,
    ) -> std::result::Result<Traffic, Error> {
        Ok(outcome?.moved)
    }
}
