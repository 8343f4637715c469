//! `penstock fs fsck`.

use std::fmt::Write;

use penstock_files::fsck::{Checked, FsckOptions, Report, fsck_volume};
use serde_json::{Value, json};

use super::arguments::Fsck;
use super::print_json;
use crate::failure::Failure;
use crate::output::{self, counted};
use crate::progress::Bar;

/// Checks a volume. Each finding is a line on the standard output.
pub(super) fn run(asked: &Fsck) -> Result<(), Failure> {
    let options = FsckOptions {
        reads_data: asked.data,
        mends: asked.mend,
    };
    let bar = Bar::new();
    let checked = fsck_volume(&asked.volume, &options, &mut |done, all| {
        bar.tell_position(done, all);
        Ok(())
    })?;
    drop(bar);
    match asked.json {
        true => print_json(&described(&checked))?,
        false => output::text(&said(&checked))?,
    }
    match checked.report.findings.is_empty() {
        true => Ok(()),
        false => Err(Failure::silent(1)),
    }
}

/// What was found as text.
fn said(Checked { report, mended }: &Checked) -> String {
    let mut text = String::new();
    // Writing into a String cannot fail.
    for transaction in &report.transactions {
        let _ = writeln!(text, "left by a crash: {transaction}");
    }
    for finding in &report.findings {
        let _ = writeln!(text, "found: {finding}");
    }
    if let Some(after) = mended {
        for finding in &after.findings {
            let _ = writeln!(text, "not mended: {finding}");
        }
    }
    let numbers = mended.as_ref().unwrap_or(report).numbers;
    let _ = write!(
        text,
        "{}, {}, {} in use, {} free",
        counted_directories(numbers.directories),
        counted(numbers.files, "file"),
        counted(numbers.blocks, "block"),
        numbers.free
    );
    if numbers.read > 0 {
        let _ = write!(text, ", {} read", numbers.read);
    }
    let verdict = match (report.findings.len() as u64, mended) {
        (0, _) => "nothing was found".to_string(),
        (found, None) => format!("{} found", counted(found, "fault")),
        (found, Some(after)) => format!(
            "{} found, {} left after mending",
            counted(found, "fault"),
            after.findings.len()
        ),
    };
    let _ = writeln!(text, ": {verdict}");
    text
}

fn counted_directories(count: u64) -> String {
    match count {
        1 => "1 directory".to_string(),
        _ => format!("{count} directories"),
    }
}

/// What was found as JSON.
fn described(Checked { report, mended }: &Checked) -> Value {
    let findings = |report: &Report| -> Vec<String> {
        report.findings.iter().map(ToString::to_string).collect()
    };
    let transactions: Vec<String> = report
        .transactions
        .iter()
        .map(ToString::to_string)
        .collect();
    let numbers = mended.as_ref().unwrap_or(report).numbers;
    json!({
        "findings": findings(report),
        "transactions": transactions,
        "not_mended": mended.as_ref().map(findings),
        "directories": numbers.directories,
        "files": numbers.files,
        "cells": numbers.cells,
        "blocks": numbers.blocks,
        "free_blocks": numbers.free,
        "blocks_read": numbers.read,
    })
}
