//! Reads references in Parquet tables: of each array one table for every so many chunks, with a row
//! a chunk in the order of the grid.
//!
//! | `path` | `offset`, `size` | `raw` | the chunk |
//! |---|---|---|---|
//! | null | | null | is missing |
//! | | | bytes | is these bytes |
//! | text | 0, 0 | null | is a whole file |
//! | text | numbers | null | is a part of a file |

use std::path::Path;

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use penstock_bucket::Place;
use penstock_engine::Result;

use super::reference::{FileNames, Reference};
use crate::fs::files::{self, damaged};

/// Reads the tables in `home`, an array's directory, of an array of `objects` chunks.
///
/// # Errors
/// [`penstock_engine::Kind::Damaged`] when a table cannot be understood, or has more rows than
/// chunks.
pub(super) fn read(
    home: &Path,
    (record_size, objects): (u64, u64),
    names: &mut FileNames,
    chunks: &mut Vec<(u64, Reference)>,
) -> Result<()> {
    for (number, name) in tables_in(home)? {
        let path = home.join(name);
        let first = number.checked_mul(record_size);
        let first = first.ok_or_else(|| damaged(&path, "no array has so many chunks"))?;
        let Some(bytes) = files::read_if_there(&path)? else {
            continue;
        };
        let wrong = |e: ParquetError| damaged(&path, format!("it is no table of Parquet: {e}"));
        let table = SerializedFileReader::new(Bytes::from(bytes)).map_err(wrong)?;
        for (row, index) in table.get_row_iter(None).map_err(wrong)?.zip(0..record_size) {
            let reference = reference_of(&row.map_err(wrong)?, names);
            let Some(reference) = reference.map_err(|cause| {
                damaged(&path, format!("its row {index} is no reference: {cause}"))
            })?
            else {
                continue;
            };
            match first.checked_add(index).filter(|object| *object < objects) {
                Some(object) => chunks.push((object, reference)),
                None => {
                    let cause =
                        format!("its row {index} is of a chunk that the array does not have");
                    return Err(damaged(&path, cause));
                }
            }
        }
    }
    Ok(())
}

/// The tables in a directory, by their numbers.
fn tables_in(home: &Path) -> Result<Vec<(u64, String)>> {
    let names = match Place::of(home)? {
        Some(place) => place.keys_below(|key| !key.contains('/'))?,
        None if !home.is_dir() => Vec::new(),
        None => {
            let entries = files::entries(home)?.into_iter();
            entries
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect()
        }
    };
    let number_of = |name: &str| {
        name.strip_prefix("refs.")?
            .strip_suffix(".parq")?
            .parse()
            .ok()
    };
    let tables = names.into_iter();
    let tables = tables.filter_map(|name| Some((number_of(&name)?, name)));
    Ok(tables.collect())
}

/// The reference in a row; `None` for a chunk that is missing.
fn reference_of(
    row: &Row,
    names: &mut FileNames,
) -> std::result::Result<Option<Reference>, &'static str> {
    let mut name = None;
    let mut numbers = [0, 0];
    for (column, field) in row.get_column_iter() {
        match (column.as_str(), field) {
            (_, Field::Null) => {}
            ("raw", Field::Bytes(bytes)) => {
                return Ok(Some(Reference::Inline(bytes.data().to_vec())));
            }
            ("raw", Field::Str(text)) => {
                return Ok(Some(Reference::Inline(text.clone().into_bytes())));
            }
            ("path", Field::Str(text)) => name = Some(text.clone()),
            ("path", Field::Bytes(bytes)) => {
                let text = bytes.as_utf8().map_err(|_| "its path is no UTF-8")?;
                name = Some(text.to_string());
            }
            ("offset" | "size", field) => {
                let number = number_of(field).ok_or("its offset or size is no number of bytes")?;
                numbers[usize::from(column == "size")] = number;
            }
            ("raw" | "path", _) => return Err("its path or bytes are of another type"),
            _ => {}
        }
    }
    let Some(name) = name else {
        return Ok(None);
    };
    let file = names.number(name)?;
    let [at, bytes] = numbers;
    Ok(Some(match (at, bytes) {
        (0, 0) => Reference::File(file),
        _ => Reference::Part { file, at, bytes },
    }))
}

fn number_of(field: &Field) -> Option<u64> {
    match field {
        Field::Int(number) => (*number).try_into().ok(),
        Field::Long(number) => (*number).try_into().ok(),
        Field::UInt(number) => Some((*number).into()),
        Field::ULong(number) => Some(*number),
        _ => None,
    }
}
