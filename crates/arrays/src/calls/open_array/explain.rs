//! Explains a part of an open array before it is moved.

use std::fmt::Write;

use penstock_engine::{AskedBlocks, Operation, Result, Strategy, UNDER_WAY_MAX, asked_blocks};
use penstock_predict::access::in_words;
use penstock_predict::{Access, ServerAccess, predict_access};

use super::{ArrayPart, OpenArray};
use crate::calls::choose::Known;
use crate::calls::session::Session;
use crate::calls::strategy::Choice;

impl Session {
    /// Explains in words and numbers what [`Session::move_part`] would do; with a description of
    /// the machine also what that would take. Nothing is moved.
    ///
    /// # Errors
    /// When the part does not fit the array, and when the description of the machine makes no
    /// sense.
    pub fn explain_part(
        &self,
        array: &OpenArray,
        operation: Operation,
        part: &ArrayPart,
    ) -> Result<String> {
        array.check_part(operation, part)?;
        let asked = asked_blocks(&array.disk, array.description.servers, &part.of_file());
        let mut text = text(array, operation, &asked);
        if let Some(predicted) = self.predicted(array, operation, &asked)? {
            text += &predicted;
        }
        Ok(text)
    }

    /// What an access would take, in words, where the model knows such arrays.
    fn predicted(
        &self,
        array: &OpenArray,
        operation: Operation,
        asked: &[AskedBlocks],
    ) -> Result<Option<String>> {
        let (settings, known) = (self.settings(), array.description.known);
        let given = Choice::By(Strategy::default());
        let machine = self.desk().chooser.machine(settings, given)?;
        let is_known = known != Known::Nothing && settings.is_weighed();
        let Some(machine) = machine.filter(|_| is_known) else {
            return Ok(None);
        };
        let of_server = |asked: &AskedBlocks| {
            let all = (asked.blocks, asked.block_bytes);
            ServerAccess::new(operation, asked.requests, asked.bytes, all, asked.whole)
        };
        let access = Access {
            operation,
            servers: asking(asked).map(|(_, asked)| of_server(asked)).collect(),
            hosts: settings.hosts(),
            under_way: UNDER_WAY_MAX as u64,
            turns: 0,
            messages: messages(asked),
        };
        let mut line = format!("\n{}", in_words(&predict_access(&machine, &access)?));
        if !known.remark().is_empty() {
            let _ = write!(line, "\n{}", known.remark());
        }
        Ok(Some(line))
    }
}

/// The servers that are asked for something.
fn asking(asked: &[AskedBlocks]) -> impl Iterator<Item = (usize, &AskedBlocks)> {
    let numbered = asked.iter().enumerate();
    numbered.filter(|(_, asked)| asked.requests > 0)
}

/// Requests and answers.
fn messages(asked: &[AskedBlocks]) -> u64 {
    2 * asked.iter().map(|one| one.requests).sum::<u64>()
}

/// What an access does, in lines of text.
fn text(array: &OpenArray, operation: Operation, asked: &[AskedBlocks]) -> String {
    let sum = |of: fn(&AskedBlocks) -> u64| asked.iter().map(of).sum::<u64>();
    let (bytes, blocks) = (sum(|one| one.bytes), sum(|one| one.blocks));
    let (servers, messages) = (asking(asked).count(), messages(asked));
    let mut text = format!(
        "{} of {bytes} bytes of '{}' by this rank alone: {blocks} blocks of {servers} servers\n",
        operation.name(),
        array.name()
    );
    for (server, one) in asking(asked) {
        let AskedBlocks {
            requests,
            blocks,
            bytes,
            block_bytes,
            ..
        } = one;
        let _ = writeln!(
            text,
            "  server {server}: {bytes} bytes in {blocks} blocks of {block_bytes} bytes, through its \
             cache, requests: {requests}"
        );
    }
    let _ = write!(
        text,
        "messages: {} requests, {} answers: {messages} in all",
        messages / 2,
        messages / 2
    );
    text
}
