//! `penstock ls`, `info`, `verify`, `repair` and `gather`: stores from the shell.

use std::fmt::Write;
use std::path::Path;

use penstock_arrays::ArraySchema;
use penstock_arrays::groups::{self, Catalog, Contents, Entry};
use penstock_engine::Kind;
use serde_json::{Map, Value};

use crate::arguments::{Gather, Info, Ls, Repair, Verify};
use crate::failure::Failure;
use crate::output::{self, counted};
use crate::progress::Bar;

/// The exit code of a verification that had nothing to compare with.
const UNFOUNDED: u8 = 3;

/// Prints one line for each node.
pub(crate) fn ls(ls: &Ls) -> Result<(), Failure> {
    let mut text = String::new();
    match groups::list(&ls.path) {
        Ok(entries) => list(&mut text, "", &ls.path, &entries),
        // A directory that is no store may hold stores.
        Err(error) if ls.path.is_dir() => {
            let entries = std::fs::read_dir(&ls.path).map_err(Failure::failed)?;
            let mut entries: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
            entries.sort();
            for path in entries {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                if name.starts_with('.') {
                    continue;
                }
                if let Ok(entries) = groups::list(&path) {
                    list(&mut text, &format!("{name}/"), &path, &entries);
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

/// Lists the nodes at a path, a line each.
fn list(text: &mut String, prefix: &str, path: &Path, entries: &[Entry]) {
    // The list says why the group cannot be read.
    let catalog = Catalog::read(path).unwrap_or(None);
    let checkpoints = catalog
        .as_ref()
        .map_or(&[][..], |catalog| &catalog.checkpoints);
    for Entry { path, contents } in entries {
        let saved = catalog.as_ref().and_then(|catalog| {
            let array = catalog.arrays.iter().find(|array| array.name == *path);
            array.map(|array| (array, catalog.timesteps))
        });
        let is_saved = !checkpoints.is_empty() && path.starts_with("checkpoints/");
        // Writing into a String cannot fail.
        let _ = match contents {
            // Arrays of a checkpoint are the group's arrays again.
            _ if is_saved => Ok(()),
            Contents::Array(schema) => match saved {
                Some((array, timesteps)) => {
                    writeln!(text, "{}", line(prefix, path, array, Some(timesteps)))
                }
                None => writeln!(text, "{}", line(prefix, path, schema, None)),
            },
            Contents::Group(_) if path.is_empty() && entries.len() > 1 => Ok(()),
            Contents::Group(_) if path == "checkpoints" && catalog.is_some() => Ok(()),
            Contents::Group(_) if path.is_empty() => {
                writeln!(text, "{prefix}  a group without arrays")
            }
            Contents::Group(_) => writeln!(text, "{prefix}{path}/"),
            Contents::Unreadable(error) => {
                writeln!(text, "{prefix}{path}  {}", why_unreadable(error))
            }
        };
    }
    for checkpoint in checkpoints {
        let name = checkpoint
            .path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        let _ = write!(text, "{prefix}checkpoints/{name}  step {}", checkpoint.step);
        if let Some(time) = checkpoint.time {
            let _ = write!(text, ", time {time}");
        }
        text.push('\n');
    }
}

fn why_unreadable(error: &penstock_engine::Error) -> String {
    match error.kind {
        Kind::Unsupported => format!("not supported: {}", error.cause),
        _ => format!("cannot be read: {}", error.cause),
    }
}

/// Describes an array in a line.
fn line(prefix: &str, path: &str, array: &ArraySchema, timesteps: Option<u64>) -> String {
    let name = match path.is_empty() {
        true => &array.name,
        false => path,
    };
    let mut line = format!("{prefix}{name}  {}  {:?}", array.element, array.shape);
    if let Some(timesteps) = timesteps {
        let _ = write!(line, "  {}", counted(timesteps, "timestep"));
    }
    format!("{line}  {}", array.disk)
}

/// Prints the description of a store.
pub(crate) fn info(info: &Info) -> Result<(), Failure> {
    if info.json {
        let described = groups::describe(&info.path)?;
        let text = serde_json::to_string_pretty(&described).map_err(Failure::failed)?;
        return output::text(&(text + "\n"));
    }
    let mut text = String::new();
    if let Some(catalog) = Catalog::read(&info.path).unwrap_or(None) {
        let _ = writeln!(text, "group      {}", catalog.name);
        let _ = writeln!(text, "timesteps  {}", catalog.timesteps);
        list_checkpoints(&mut text, &catalog);
    }
    for Entry { path, contents } in groups::list(&info.path)? {
        match contents {
            Contents::Array(schema) => {
                let name = match path.is_empty() {
                    true => schema.name.clone(),
                    false => path,
                };
                describe(&mut text, &name, &schema);
            }
            Contents::Group(attributes) => {
                if !path.is_empty() {
                    let _ = writeln!(text, "in         {path}/");
                }
                list_attributes(&mut text, &attributes);
            }
            Contents::Unreadable(error) => {
                let _ = writeln!(text, "array      {path}");
                let _ = writeln!(text, "  {}", why_unreadable(&error));
            }
        }
    }
    output::text(&text)
}

fn describe(text: &mut String, name: &str, array: &ArraySchema) {
    let _ = writeln!(text, "array      {name}");
    let _ = writeln!(text, "  type     {}", array.element);
    let _ = writeln!(text, "  shape    {:?}", array.shape);
    if let Some(names) = &array.dimension_names {
        let _ = writeln!(text, "  dims     {}", names.join(", "));
    }
    let _ = writeln!(text, "  on disk  {}", array.disk);
    let _ = writeln!(text, "  bytes    {}", array.bytes());
    if !array.fill.is_zero() {
        let _ = writeln!(text, "  fill     {}", array.fill.shown(&array.element));
    }
    list_attributes(text, &array.attributes);
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

/// Makes one store of several directories.
pub(crate) fn gather(gather: &Gather) -> Result<(), Failure> {
    let Some((target, sources)) = gather.paths.split_last() else {
        return Err(Failure::input("say from where, and to where"));
    };
    let arrays = groups::gather(sources, target)?;
    output::text(&format!(
        "gathered {} into {}\n",
        counted(arrays as u64, "array"),
        target.display()
    ))
}

/// Repairs the metadata of a group.
pub(crate) fn repair(repair: &Repair) -> Result<(), Failure> {
    let said = groups::repair(&repair.path)?;
    let mut text = String::new();
    for line in &said {
        let _ = writeln!(text, "mended: {line}");
    }
    if said.is_empty() {
        text.push_str("nothing was to be mended\n");
    }
    output::text(&text)
}

/// Verifies a store. Each damage is a line on the standard output.
pub(crate) fn verify(verify: &Verify) -> Result<(), Failure> {
    let bar = Bar::new();
    let found = groups::verify(&verify.path, &mut |progress| {
        bar.tell(progress);
        Ok(())
    })?;
    drop(bar);
    let mut text = String::new();
    for damage in &found.damages {
        let _ = writeln!(text, "damaged: {damage}");
    }
    for (path, error) in &found.unread {
        let _ = writeln!(text, "not looked at: {path}: {}", error.cause);
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
        "{}, {} bytes in all: {}",
        counted(found.chunks, "chunk"),
        found.bytes,
        found.verdict()
    );
    output::text(&text)?;
    match (found.damages.is_empty(), found.is_unfounded()) {
        (false, _) => Err(Failure::silent(1)),
        (true, true) => Err(Failure::silent(UNFOUNDED)),
        (true, false) => Ok(()),
    }
}
