//! Meetings: all clients of a program wait for each other, and get one answer.
//!
//! In a meeting they agree on whether each of them has done its part, add up what they have done,
//! or attach a file together (a collective attach, section 3.1): one request is made for all.

use std::collections::BTreeMap;

use futures::future::join_all;
use penstock_engine::{Error, Kind, Machine, NodeId, Result};

use super::gathering::{Arrival, Meeting, left_before, mismatch, wait_for_clients};
use super::state::{Service, Task};
use crate::messages::{Answer, Ask, Purpose};
use crate::object::Identity;
use crate::object::overtaken;
use crate::volume::records::RecordStore;

impl<M: Machine, R: RecordStore> Service<'_, M, R> {
    /// Lets a client wait for all others of its program.
    pub(super) async fn meet(
        &self,
        program: u64,
        (from, ticket): (NodeId, u64),
        clients: Vec<NodeId>,
        purpose: Result<(Identity, Purpose)>,
    ) {
        let left = left_before(&clients, &self.departed.borrow());
        let Some(rank) = clients.iter().position(|&node| node == from) else {
            return; // it is no client of the program
        };
        let is_here = {
            let meetings = self.meetings.borrow();
            let meeting = meetings.get(&program);
            meeting.is_some_and(|meeting| meeting.arrivals.contains_key(&rank))
        };
        if is_here {
            let cause = "another collective call of this client is under way";
            let answer = Err(Error::new(Kind::Busy, "a collective call on files", cause));
            let _ = self.caller.reply(from, ticket, &answer, None).await;
            return;
        }
        let complete = {
            let mut meetings = self.meetings.borrow_mut();
            let meeting = meetings.entry(program).or_insert_with(|| Meeting {
                program,
                clients: clients.clone(),
                arrivals: BTreeMap::new(),
            });
            let arrival = Arrival {
                answer: (from, ticket),
                part: match meeting.clients == clients {
                    true => purpose,
                    false => Err(mismatch()),
                },
                wait: wait_for_clients(),
            };
            meeting.arrivals.insert(rank, arrival);
            match left.is_some() || meeting.arrivals.len() >= meeting.clients.len() {
                true => meetings.remove(&program),
                false => None,
            }
        };
        if let Some(meeting) = complete {
            self.end_meeting(meeting, left).await;
        }
    }

    async fn end_meeting(&self, meeting: Meeting, left: Option<Error>) {
        let answer = match (left, meeting.purpose()) {
            (Some(error), _) | (None, Err(error)) => Err(error),
            (None, Ok(None)) => Ok(Answer::Done),
            (None, Ok(Some((_, Purpose::Sum(sum))))) => Ok(Answer::Value(sum)),
            (None, Ok(Some((who, Purpose::Attach(path, usage))))) => {
                let attach = Ask::Attach {
                    path: path.clone(),
                    usage,
                    program: meeting.program,
                    clients: meeting.clients.clone(),
                };
                let attached = self.undisturbed(None, async || {
                    let server = self.server_of(&path);
                    match self.caller.ask(server, &who, attach.clone()).await? {
                        Answer::HasMoved => Err(overtaken("attaching", &path)),
                        answer => Ok(answer),
                    }
                });
                attached.await
            }
        };
        let told = meeting.arrivals.values().map(|arrival| {
            let ((node, ticket), answer) = (arrival.answer, &answer);
            async move { self.caller.reply(node, ticket, answer, None).await }
        });
        join_all(told).await; // who has left needs no answer
    }

    /// Ends the waiting for nodes that have left.
    pub(super) fn give_up_meetings(&self) -> Vec<Task<'_>> {
        let (mut meetings, departed) = (self.meetings.borrow_mut(), self.departed.borrow());
        let left = |meeting: &Meeting| left_before(&meeting.clients, &departed);
        let given_up = meetings.extract_if(.., |_, meeting| left(meeting).is_some());
        let given_up: Vec<_> = given_up.collect();
        given_up
            .into_iter()
            .map(|(_, meeting)| -> Task<'_> {
                let left = left(&meeting);
                Box::pin(self.end_meeting(meeting, left))
            })
            .collect()
    }
}
