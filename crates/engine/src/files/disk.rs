//! Operations of disks, as a trace shows them.

use std::ops::Range;

use penstock_layout::Block;

use crate::error::Result;
use crate::machine::{BlockFile, Operation};
use crate::span;
use crate::trace::{Instrument, Span};

fn span_of(operation: Operation, block: &Block) -> Span {
    let Block {
        object,
        offset,
        bytes,
        ..
    } = block;
    span!("disk", kind = operation.name(), object, offset, bytes)
}

/// Reads a block into a buffer.
pub(super) async fn read<F: BlockFile>(file: &F, block: &Block, buffer: &F::Buffer) -> Result<()> {
    let reading = file.read(block, buffer, 0);
    reading.instrument(span_of(Operation::Read, block)).await
}

/// Writes a block.
pub(super) async fn write<F: BlockFile>(file: &F, block: &Block, buffer: &F::Buffer) -> Result<()> {
    let writing = file.write(block, buffer, 0);
    writing.instrument(span_of(Operation::Write, block)).await
}

/// Writes parts of a block, in bytes of the block.
pub(super) async fn write_parts<F: BlockFile>(
    file: &F,
    block: &Block,
    parts: &[Range<u64>],
    buffer: &F::Buffer,
) -> Result<()> {
    let writing = file.write_parts(block, parts, buffer);
    writing.instrument(span_of(Operation::Write, block)).await
}

/// Ends the writes so far.
pub(super) async fn finish(file: &impl BlockFile) -> Result<()> {
    file.finish().instrument(span!("disk", kind = "sync")).await
}
