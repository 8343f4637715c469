//! What is told of files and directories: `ls` and `stat`.

use std::collections::BTreeMap;
use std::fmt::Write;

use penstock_files::job::FileSystem;
use penstock_files::{Attributes, FilePath, ObjectKind};
use serde_json::{Value, json};

use super::arguments::{List, Stat};
use super::{path, print_json};
use crate::failure::Failure;
use crate::output;

/// An object, and the bytes of its cells.
type Found = (Attributes, BTreeMap<u64, u64>);

/// Lists a directory, or a file alone.
pub(super) fn list(fs: &FileSystem, asked: &List) -> Result<(), Failure> {
    let top = path(&asked.path)?;
    let mut text = String::new();
    let mut all = Vec::new();
    let is_file = matches!(fs.stat(top.clone())?.0.kind, ObjectKind::File(_));
    let mut waiting = vec![top.clone()];
    while let Some(directory) = waiting.pop() {
        let entries: Vec<FilePath> = match is_file {
            true => vec![directory.clone()],
            false => {
                let names = fs.list(directory.clone())?.into_iter();
                let below = names.map(|(name, _)| directory.join(&name));
                below.collect::<Result<_, _>>()?
            }
        };
        if asked.recursive && !is_file {
            if !text.is_empty() {
                text.push('\n');
            }
            let _ = writeln!(text, "{directory}:"); // writing into a String cannot fail
        }
        let mut below = Vec::new();
        for entry in entries {
            let is_needed = asked.long || asked.json || asked.recursive || !is_file;
            let found = fs.stat(entry.clone())?;
            if asked.recursive && found.0.kind == ObjectKind::Xref {
                below.push(entry);
            }
            if asked.json {
                all.push(described(&found));
            } else if is_needed && asked.long {
                text.push_str(&line(&found));
            } else {
                let _ = writeln!(text, "{}", shown_name(&found.0));
            }
        }
        waiting.extend(below.into_iter().rev());
    }
    match asked.json {
        true => print_json(&Value::Array(all)),
        false => output::text(&text),
    }
}

/// The name of an object; that of a directory ends with a slash.
fn shown_name(object: &Attributes) -> String {
    match object.kind {
        ObjectKind::Xref => format!("{}/", object.path.name()),
        ObjectKind::File(_) | ObjectKind::Symlink(_) => object.path.name().to_string(),
    }
}

/// A line of `ls -l`.
fn line(found: &Found) -> String {
    let (object, cells) = found;
    let bytes: u64 = cells.values().sum();
    let count = object
        .shape()
        .map_or("-".to_string(), |shape| shape.cells.to_string());
    format!(
        "{} {:>5} {:>5} {bytes:>13} {count:>6} {} {}\n",
        mode_text(object),
        object.owner,
        object.group,
        time_text(object.changed),
        shown_name(object)
    )
}

/// The kind and the permission bits, as in `drwxr-x---`.
fn mode_text(object: &Attributes) -> String {
    let kind = match object.kind {
        ObjectKind::Xref => 'd',
        ObjectKind::File(_) => '-',
        ObjectKind::Symlink(_) => 'l',
    };
    let bits = (0..9).map(|nth| match object.mode >> (8 - nth) & 1 {
        1 => ['r', 'w', 'x'][nth % 3],
        _ => '-',
    });
    std::iter::once(kind).chain(bits).collect()
}

/// A time in UTC, as in `2024-02-29 23:59:59`.
fn time_text(nanoseconds: u64) -> String {
    let seconds = nanoseconds / 1_000_000_000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March, so that a leap day is the last of its year; 719,468 days are from March
    // of year 0 to 1970.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    let year = era * 400 + year + later;
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!(
        "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02}",
        second % 60
    )
}

/// Describes a file or directory.
pub(super) fn stat(fs: &FileSystem, asked: &Stat) -> Result<(), Failure> {
    let found = fs.stat(path(&asked.path)?)?;
    if asked.json {
        return print_json(&described(&found));
    }
    let (object, cells) = found;
    let mut text = String::new();
    let mut tell = |name: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(text, "{name:<12} {value}"); // writing into a String cannot fail
    };
    tell("path", &object.path);
    match &object.kind {
        ObjectKind::Xref => tell("kind", &"directory"),
        ObjectKind::Symlink(target) => {
            tell("kind", &"symlink");
            tell("target", target);
        }
        ObjectKind::File(shape) => {
            tell("kind", &"file");
            tell("bytes", &cells.values().sum::<u64>());
            tell("cells", &shape.cells);
            tell("bsu", &shape.bsu_bytes);
            tell("base", &shape.base);
            tell("checkpoints", &object.checkpoints);
        }
    }
    tell(
        "mode",
        &format!("{:03o} ({})", object.mode, mode_text(&object)),
    );
    tell("owner", &object.owner);
    tell("group", &object.group);
    tell("created", &time_text(object.created));
    tell("accessed", &time_text(object.accessed));
    tell("changed", &time_text(object.changed));
    for (cell, bytes) in &cells {
        tell(&format!("cell {cell}"), &format!("{bytes} bytes"));
    }
    output::text(&text)
}

/// The description of an object as JSON.
fn described((object, cells): &Found) -> Value {
    let mut value = json!({
        "path": object.path.as_str(),
        "kind": match object.kind {
            ObjectKind::Xref => "directory",
            ObjectKind::File(_) => "file",
            ObjectKind::Symlink(_) => "symlink",
        },
        "mode": format!("{:03o}", object.mode),
        "owner": object.owner,
        "group": object.group,
        "created_ns": object.created,
        "accessed_ns": object.accessed,
        "changed_ns": object.changed,
    });
    if let ObjectKind::Symlink(target) = &object.kind {
        value["target"] = json!(target);
    }
    if let ObjectKind::File(shape) = object.kind {
        let cells: BTreeMap<String, u64> = cells
            .iter()
            .map(|(cell, bytes)| (cell.to_string(), *bytes))
            .collect();
        value["bytes"] = json!(cells.values().sum::<u64>());
        value["cells"] = json!(shape.cells);
        value["bsu"] = json!(shape.bsu_bytes);
        value["base"] = json!(shape.base);
        value["checkpoints"] = json!(object.checkpoints);
        value["cell_bytes"] = json!(cells);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_dates() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_399, "2000-02-28 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (951_868_800, "2000-03-01 00:00:00"),
            (1_709_251_199, "2024-02-29 23:59:59"),
            (4_102_444_800, "2100-01-01 00:00:00"),
            (4_107_542_400, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(time_text(seconds * 1_000_000_000), expected);
        }
    }
}
