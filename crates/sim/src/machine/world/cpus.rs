//! The CPUs of nodes: threads in turn, and interrupts before them.

use std::collections::VecDeque;
use std::rc::Rc;

use penstock_engine::NodeId;
use penstock_layout::exact;

use super::World;
use super::agenda::Event;
use crate::time::{Interval, Span, Time};
use crate::trace::Part;

/// The CPU of one node.
#[derive(Default)]
pub(super) struct Cpu {
    /// Whether a thread has the CPU.
    is_running: bool,
    /// The time by which interrupts have set the thread back.
    set_back: Span,
    /// The waiting threads: the sleeper, the time wanted, and its purpose.
    threads: VecDeque<(u32, Span, &'static str)>,
    interrupts_end_at: Time,
}

impl World {
    /// Charges a node's CPU with `span`: at once if this thread has it, or else after all earlier
    /// threads.
    pub(crate) async fn use_cpu(self: &Rc<Self>, node: NodeId, span: Span, what: &'static str) {
        self.take_cpu(node, span, what, false).await;
    }

    /// Charges a node's CPU with `span`, after all waiting threads, as another thread.
    pub(crate) async fn use_cpu_last(
        self: &Rc<Self>,
        node: NodeId,
        span: Span,
        what: &'static str,
    ) {
        self.take_cpu(node, span, what, true).await;
    }

    async fn take_cpu(
        self: &Rc<Self>,
        node: NodeId,
        span: Span,
        what: &'static str,
        is_last: bool,
    ) {
        if span == Span::ZERO {
            return;
        }
        let sleeper = self.new_sleeper();
        {
            let cpu = &mut self.cpus.borrow_mut()[node];
            match cpu.is_running || (is_last && !cpu.threads.is_empty()) {
                true => cpu.threads.push_back((sleeper, span, what)),
                false => self.run_thread(node, cpu, sleeper, span, what),
            }
        }
        let mut thread = Thread {
            world: self.clone(),
            node,
            sleeper,
            what,
            stage: Stage::Asleep,
        };
        self.sleep_in(sleeper).await;
        thread.stage = Stage::SetBack;
        loop {
            let set_back = std::mem::take(&mut self.cpus.borrow_mut()[node].set_back);
            if set_back == Span::ZERO {
                break;
            }
            let rest = Interval::starting(self.now(), set_back);
            self.record(node, Part::Cpu, what, rest, None, None);
            self.sleep_until(rest.end).await;
        }
        thread.stage = Stage::Ended;
        self.give_cpu_up(node);
    }

    /// Lets the first waiting thread have the CPU, unless the last has taken it again.
    pub(super) fn serve_thread(&self, node: NodeId) {
        let cpu = &mut self.cpus.borrow_mut()[node];
        if !cpu.is_running
            && let Some((sleeper, span, what)) = cpu.threads.pop_front()
        {
            self.run_thread(node, cpu, sleeper, span, what);
        }
    }

    fn give_cpu_up(&self, node: NodeId) {
        let cpu = &mut self.cpus.borrow_mut()[node];
        cpu.is_running = false;
        if !cpu.threads.is_empty() {
            self.schedule_ranked(self.now(), 1, Event::Cpu(exact::<u32>(node)));
        }
    }
    /// Charges like [`World::use_cpu`], but gives the CPU up whether or not the future is awaited:
    /// a program begins it, and waits for something else first.
    pub(crate) async fn use_cpu_anyway(
        self: &Rc<Self>,
        node: NodeId,
        span: Span,
        what: &'static str,
    ) {
        if span == Span::ZERO {
            return;
        }
        let sleeper = self.new_sleeper();
        self.anyway.borrow_mut().insert(sleeper, (node, what));
        {
            let cpu = &mut self.cpus.borrow_mut()[node];
            match cpu.is_running {
                true => cpu.threads.push_back((sleeper, span, what)),
                false => self.run_thread(node, cpu, sleeper, span, what),
            }
        }
        self.sleep_in(sleeper).await;
    }

    /// Whether a thread that is to give its CPU up must go on, since it was interrupted. If not,
    /// the thread has given it up.
    pub(super) fn goes_on(&self, sleeper: u32) -> bool {
        let anyway = self.anyway.borrow();
        // Most runs have no such threads.
        let found = (!anyway.is_empty()).then(|| anyway.get(&sleeper)).flatten();
        let Some(&(node, what)) = found else {
            return false;
        };
        drop(anyway);
        let cpu = &mut self.cpus.borrow_mut()[node];
        let set_back = std::mem::take(&mut cpu.set_back);
        if set_back > Span::ZERO {
            let rest = Interval::starting(self.now(), set_back);
            self.record(node, Part::Cpu, what, rest, None, None);
            self.schedule(rest.end, Event::Wake(sleeper));
            return true;
        }
        self.anyway.borrow_mut().remove(&sleeper);
        cpu.is_running = false;
        if !cpu.threads.is_empty() {
            self.schedule_ranked(self.now(), 1, Event::Cpu(exact::<u32>(node)));
        }
        false
    }

    /// Gives the CPU to a thread, which sleeps until it has used it.
    fn run_thread(
        &self,
        node: NodeId,
        cpu: &mut Cpu,
        sleeper: u32,
        span: Span,
        what: &'static str,
    ) {
        cpu.is_running = true;
        cpu.set_back = Span::ZERO;
        let taken = Interval::starting(self.now().max(cpu.interrupts_end_at), span);
        self.schedule(taken.end, Event::Wake(sleeper));
        self.record(node, Part::Cpu, what, taken, None, None);
    }

    /// Takes a node's CPU for `span` at once, after other interrupts only. Returns the end.
    pub(super) fn reserve_interrupt(&self, node: NodeId, span: Span, what: &'static str) -> Time {
        let cpu = &mut self.cpus.borrow_mut()[node];
        let taken = Interval::starting(self.now().max(cpu.interrupts_end_at), span);
        cpu.interrupts_end_at = taken.end;
        if cpu.is_running {
            cpu.set_back += span;
        }
        self.record(node, Part::Cpu, what, taken, None, None);
        taken.end
    }

    /// Interrupts a node's CPU for `span`.
    pub(crate) async fn interrupt(self: &Rc<Self>, node: NodeId, span: Span, what: &'static str) {
        if span > Span::ZERO {
            let end = self.reserve_interrupt(node, span, what);
            self.sleep_until(end).await;
        }
    }
}

/// The stage of a thread's use of the CPU.
enum Stage {
    /// The thread waits for the CPU, or for the end of its time.
    Asleep,
    /// The thread has had its time, and makes up for interrupts.
    SetBack,
    Ended,
}

/// A thread that is dropped before it has used the CPU leaves it to the others: at once if it only
/// waits, or else at the end of its time.
struct Thread {
    world: Rc<World>,
    node: NodeId,
    sleeper: u32,
    what: &'static str,
    stage: Stage,
}

impl Drop for Thread {
    fn drop(&mut self) {
        let (world, node, sleeper) = (&self.world, self.node, self.sleeper);
        match self.stage {
            Stage::Ended => return,
            Stage::SetBack => return world.give_cpu_up(node),
            Stage::Asleep => {}
        }
        // The sleep has been dropped before, and has left its mark unless it was over.
        if world.sleepers.borrow_mut().get(sleeper).is_none() {
            return world.give_cpu_up(node);
        }
        let threads = &mut world.cpus.borrow_mut()[node].threads;
        match threads.iter().position(|(other, ..)| *other == sleeper) {
            Some(place) => {
                threads.remove(place);
                world.sleepers.borrow_mut().take(sleeper);
            }
            None => {
                world.anyway.borrow_mut().insert(sleeper, (node, self.what));
            }
        }
    }
}
