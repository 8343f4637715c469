//! `penstock ls`, `info` and `verify`: stores looked at from the shell.

use std::fmt::Write;
use std::path::Path;

use penstock_arrays::store::group::{self, Catalog, Seen};
use penstock_arrays::{ArraySchema, Disk, Format};
use serde_json::{Map, Value, json};

use crate::arguments::{Gather, Info, Ls, Verify};
use crate::failure::Failure;
use crate::output::{self, counted};
use crate::progress::Bar;

/// Prints one line a thing.
pub(crate) fn ls(ls: &Ls) -> Result<(), Failure> {
    let mut text = String::new();
    match group::look(&ls.path) {
        Ok(seen) => list(&mut text, "", &seen),
        // A directory that is no store may hold some.
        Err(error) if ls.path.is_dir() => {
            let entries = std::fs::read_dir(&ls.path).map_err(Failure::failed)?;
            let mut entries: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
            entries.sort();
            for path in entries {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                if name.starts_with('.') {
                    continue;
                }
                if let Ok(seen) = group::look(&path) {
                    list(&mut text, &format!("{name}/"), &seen);
                }
            }
            if text.is_empty() {
                return Err(error.into());
            }
        }
        Err(error) => return Err(error.into()),
    }
    output::text(&text)
}

fn list(text: &mut String, prefix: &str, seen: &Seen) {
    // Writing into a String cannot fail.
    match seen {
        Seen::Arrays(arrays) if arrays.is_empty() => {
            let _ = writeln!(text, "{prefix}  a group without arrays");
        }
        Seen::Arrays(arrays) => {
            for array in arrays {
                let _ = writeln!(text, "{}", line(prefix, array, None));
            }
        }
        Seen::Group(catalog) => {
            for array in &catalog.arrays {
                let _ = writeln!(text, "{}", line(prefix, array, Some(catalog.timesteps)));
            }
            for checkpoint in &catalog.checkpoints {
                let name = checkpoint.path.file_name().unwrap_or_default();
                let _ = write!(
                    text,
                    "{prefix}checkpoints/{}  step {}",
                    name.to_string_lossy(),
                    checkpoint.step
                );
                if let Some(time) = checkpoint.time {
                    let _ = write!(text, ", time {time}");
                }
                text.push('\n');
            }
        }
    }
}

/// An array in a line.
fn line(prefix: &str, array: &ArraySchema, timesteps: Option<u64>) -> String {
    let mut line = format!(
        "{prefix}{}  {}  {:?}",
        array.name, array.element, array.shape
    );
    if let Some(timesteps) = timesteps {
        let _ = write!(line, "  {}", counted(timesteps, "timestep"));
    }
    line + "  " + &form(&array.disk)
}

/// How an array lies on disk, in words.
fn form(disk: &Disk) -> String {
    match disk {
        Disk::Natural => "natural chunking".to_string(),
        Disk::Chunks {
            chunk,
            subchunks,
            codec,
        } => match subchunks {
            None => format!("chunks {chunk:?}, {codec}"),
            Some(inner) => format!("shards {chunk:?} of sub-chunks {inner:?}, {codec}"),
        },
        Disk::RowMajor {
            format: Format::Raw,
        } => "row-major, raw".to_string(),
        Disk::RowMajor {
            format: Format::Npy,
        } => "row-major, npy".to_string(),
        Disk::Parts(dists, mesh) => format!("parts {dists} over {mesh:?}"),
    }
}

/// Prints all that is known of a store.
pub(crate) fn info(info: &Info) -> Result<(), Failure> {
    let seen = group::look(&info.path)?;
    if info.json {
        let text = serde_json::to_string_pretty(&described(&seen)).map_err(Failure::failed)?;
        return output::text(&(text + "\n"));
    }
    let mut text = String::new();
    let arrays = match &seen {
        Seen::Arrays(arrays) => arrays,
        Seen::Group(catalog) => {
            let _ = writeln!(text, "group      {}", catalog.name);
            let _ = writeln!(text, "timesteps  {}", catalog.timesteps);
            list_attributes(&mut text, &catalog.attributes);
            list_checkpoints(&mut text, catalog);
            &catalog.arrays
        }
    };
    for array in arrays {
        let _ = writeln!(text, "array      {}", array.name);
        let _ = writeln!(text, "  type     {}", array.element);
        let _ = writeln!(text, "  shape    {:?}", array.shape);
        if let Some(names) = &array.dimension_names {
            let _ = writeln!(text, "  dims     {}", names.join(", "));
        }
        let _ = writeln!(text, "  on disk  {}", form(&array.disk));
        let _ = writeln!(text, "  bytes    {}", array.bytes());
        list_attributes(&mut text, &array.attributes);
    }
    output::text(&text)
}

fn list_attributes(text: &mut String, attributes: &Map<String, Value>) {
    for (name, value) in attributes {
        let _ = writeln!(text, "  {name} = {value}");
    }
}

fn list_checkpoints(text: &mut String, catalog: &Catalog) {
    for checkpoint in &catalog.checkpoints {
        let time = checkpoint
            .time
            .map_or(String::new(), |time| format!(", time {time}"));
        let _ = writeln!(
            text,
            "checkpoint {} of step {}{time}, after {}, version {}",
            checkpoint.number,
            checkpoint.step,
            counted(checkpoint.timesteps, "timestep"),
            checkpoint.version
        );
    }
}

fn described(seen: &Seen) -> Value {
    match seen {
        Seen::Arrays(arrays) => json!({ "arrays": arrays }),
        Seen::Group(catalog) => json!({
            "group": catalog.name,
            "attributes": catalog.attributes,
            "timesteps": catalog.timesteps,
            "arrays": catalog.arrays,
            "checkpoints": catalog.checkpoints,
        }),
    }
}

/// Makes one store of several directories.
pub(crate) fn gather(gather: &Gather) -> Result<(), Failure> {
    let Some((target, sources)) = gather.paths.split_last() else {
        return Err(Failure::input("say from where, and to where"));
    };
    let arrays = penstock_arrays::store::gather(sources, target)?;
    output::text(&format!(
        "gathered {} into {}\n",
        counted(arrays as u64, "array"),
        target.display()
    ))
}

/// Reads everything. What is damaged goes to the standard output, one line each.
pub(crate) fn verify(verify: &Verify) -> Result<(), Failure> {
    let bar = Bar::new();
    let found = group::verify(Path::new(&verify.path), &mut |progress| bar.tell(progress))?;
    drop(bar);
    let mut text = String::new();
    for damage in &found.damages {
        let _ = writeln!(text, "damaged: {damage}");
    }
    if found.timesteps + found.checkpoints > 0 {
        let _ = write!(
            text,
            "{} and {}, ",
            counted(found.timesteps, "timestep"),
            counted(found.checkpoints, "checkpoint")
        );
    }
    let _ = writeln!(
        text,
        "{}, {} bytes in all{}: {}",
        counted(found.chunks, "chunk"),
        found.bytes,
        match found.compared {
            0 => ", which were only read: no checksums are stored for them, unless by their codec",
            _ => "",
        },
        match found.damages.len() {
            0 => "all is well".to_string(),
            1 => "1 is damaged".to_string(),
            count => format!("{count} are damaged"),
        }
    );
    output::text(&text)?;
    match found.damages.is_empty() {
        true => Ok(()),
        false => Err(Failure::silent(1)),
    }
}
