//! Explains a part of an open array before it is moved.

use std::fmt::Write;

use penstock_engine::{AskedBlocks, Operation, Result, asked_blocks};

use super::{ArrayPart, OpenArray};
use crate::calls::session::Session;

impl Session {
    /// Explains in words and numbers what [`Session::move_part`] would do. Nothing is moved.
    ///
    /// # Errors
    /// When the part does not fit the array.
    pub fn explain_part(
        &self,
        array: &OpenArray,
        operation: Operation,
        part: &ArrayPart,
    ) -> Result<String> {
        array.check_part(operation, part)?;
        let asked = asked_blocks(&array.disk, array.description.servers, &part.of_file());
        Ok(text(array, operation, &asked))
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
