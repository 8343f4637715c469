//! Checks of arrays: written by the ranks of one distribution and read by those of another,
//! verified, and copied.
//!
//! Each element of an array is a number that tells its place, so that every element is compared.
//!
//! ```text
//! 1009 x 761   BLOCK,BLOCK over 2 x 2    edges of shares at 505 and 381
//!              chunks of 256 x 128       edges of chunks at 256, 512, ... and 128, 256, 384, ...
//! ```

use std::path::{Path, PathBuf};

use penstock_arrays::calls::array::{ArrayCall, LocalPart, Memory};
use penstock_arrays::calls::copy::{self, Form, Options};
use penstock_arrays::calls::settings::SessionOptions;
use penstock_arrays::calls::{Session, on_threads};
use penstock_arrays::groups::{self, Verification};
use penstock_arrays::{ArraySchema, ElementType, Format, Storage};
use penstock_engine::{Error, Kind, Result};
use penstock_layout::{Edges, exact};
use penstock_machines::ClientMemory;

use super::outcome::Outcome;
use super::site::{Site, failed};
use super::space::sized;
use crate::failure::Failure;

/// The extents of arrays: primes, which no mesh and no chunk divides.
pub(super) const SHAPE: [u64; 2] = [1009, 761];
/// The ranks of a session in this process.
const RANKS: usize = 4;
/// The bytes of an element.
const WIDTH: u64 = 4;

/// The number that an element has: each another, and none the fill value.
pub(super) fn number(index: u64) -> u32 {
    exact::<u32>(index + 1)
}

/// An array of two dimensions whose elements are numbers of 4 bytes.
pub(super) fn array(
    shape: [u64; 2],
    disk: Storage,
    (dists, mesh): (&str, &[u64]),
) -> Result<ArrayCall> {
    let wrong = |error| Error::new(Kind::Schema, "distributing an array", error);
    Ok(ArrayCall {
        schema: ArraySchema::new("u", &shape, ElementType::U4, disk),
        memory: Memory::Distribution {
            dists: dists.parse().map_err(wrong)?,
            mesh: mesh.to_vec(),
            halo: vec![(0, 0); shape.len()],
        },
    })
}

/// Chunks of a Zarr array.
pub(super) fn chunks(extents: [u64; 2], codec: &str) -> Storage {
    Storage::Chunks {
        chunk: extents.map(Edges::Regular).to_vec(),
        subchunks: None,
        codec: codec.to_string(),
    }
}

/// One `.npy` file.
pub(super) fn npy() -> Storage {
    Storage::RowMajor {
        format: Format::Npy,
    }
}

fn hdf5() -> Storage {
    Storage::Hdf5 {
        dataset: String::new(),
        chunk: Some(vec![256, 128]),
        filters: "shuffle+deflate:1".to_string(),
        is_netcdf: false,
    }
}

/// The elements that a rank holds: their extents, and their indices in the whole array.
struct Held {
    extents: Vec<u64>,
    indices: Vec<u64>,
}

impl Held {
    fn by(session: &Session, call: &ArrayCall) -> Result<Self> {
        let shares = call.shares(session.rank().unwrap_or_default())?;
        let [_, row] = call.schema.shape[..] else {
            return Err(no_matrix());
        };
        let mut held = Self {
            extents: vec![0; 2],
            indices: Vec::new(),
        };
        for share in &shares {
            let [rows, columns] = share.dims() else {
                return Err(no_matrix());
            };
            held.extents = share.extents();
            for r in (0..rows.extent()).map(|r| rows.index(r)) {
                let index = |c| r * row + columns.index(c);
                held.indices.extend((0..columns.extent()).map(index));
            }
        }
        Ok(held)
    }

    /// The memory of these elements, in which each has a place.
    fn part(&self, elements: &mut [u32]) -> LocalPart {
        let row = self.extents.last().copied().unwrap_or_default() * WIDTH;
        LocalPart {
            memory: ClientMemory {
                base: elements.as_mut_ptr().cast(),
                extents: self.extents.clone(),
                strides: vec![exact::<isize>(row), exact::<isize>(WIDTH)],
                width: exact::<usize>(WIDTH),
            },
            element: ElementType::U4,
            is_writable: true,
        }
    }
}

fn no_matrix() -> Error {
    let cause = "it has not two dimensions";
    Error::new(Kind::Schema, "filling an array", cause)
}

/// Writes an array whose elements `number` makes of their indices.
///
/// # Collective
/// Over all ranks.
pub(super) fn write(
    session: &Session,
    path: &Path,
    call: &ArrayCall,
    number: impl Fn(u64) -> u32,
) -> Result<()> {
    let held = Held::by(session, call)?;
    let mut elements: Vec<u32> = held.indices.iter().map(|&index| number(index)).collect();
    let locals = vec![held.part(&mut elements)];
    session.write(path, call.clone(), locals, None)?;
    Ok(())
}

/// Reads the elements that a rank holds, each with its index.
///
/// # Collective
/// Over all ranks.
pub(super) fn read(session: &Session, path: &Path, call: &ArrayCall) -> Result<Vec<(u64, u32)>> {
    let held = Held::by(session, call)?;
    let mut elements = vec![0; held.indices.len()];
    let locals = vec![held.part(&mut elements)];
    session.read(path, call.clone(), locals, None)?;
    Ok(held.indices.into_iter().zip(elements).collect())
}

/// Reads an array, and compares every element with what [`write()`] made of [`number`].
///
/// # Collective
/// Over all ranks.
pub(super) fn compare(session: &Session, path: &Path, call: &ArrayCall) -> Result<()> {
    let found = read(session, path, call)?;
    let wrong = found
        .iter()
        .find(|(index, element)| *element != number(*index));
    match wrong {
        None => Ok(()),
        Some((index, element)) => {
            let expected = number(*index);
            let cause = format!("element {index} is {element}, and {expected} was written");
            Err(Error::new(Kind::Damaged, "comparing an array", cause).at(path))
        }
    }
}

/// Runs `body` on the ranks of a session, each a thread.
pub(super) fn on_ranks<T: Send>(
    site: &Site,
    ranks: usize,
    options: &SessionOptions,
    body: impl Fn(&Session) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let ran = on_threads(ranks, options, &|| site.is_over(), body)?;
    ran.into_iter().collect()
}

/// Writes an array of [`SHAPE`] by blocks.
fn write_blocks(
    site: &Site,
    path: &Path,
    storage: Storage,
    options: &SessionOptions,
) -> Result<u64> {
    let blocks = array(SHAPE, storage, ("BLOCK,BLOCK", &[2, 2]))?;
    let body = |session: &Session| write(session, path, &blocks, number);
    on_ranks(site, RANKS, options, body)?;
    Ok(blocks.bytes())
}

/// Reads an array of [`SHAPE`] by rows dealt out in turn, and compares it.
fn compare_rows(
    site: &Site,
    path: &Path,
    storage: Storage,
    options: &SessionOptions,
) -> Result<()> {
    let rows = array(SHAPE, storage, ("CYCLIC,*", &[4]))?;
    let body = |session: &Session| compare(session, path, &rows);
    on_ranks(site, RANKS, options, body).map(drop)
}

/// Writes an array by blocks, reads it by rows, and compares it. Gives its bytes.
pub(super) fn write_and_compare(
    site: &Site,
    name: &str,
    storage: Storage,
    options: &SessionOptions,
) -> Result<u64> {
    let path = site.path(name);
    site.note(format!("writing {name}"));
    let bytes = write_blocks(site, &path, storage.clone(), options)?;
    site.note(format!("reading {name}"));
    compare_rows(site, &path, storage, options)?;
    Ok(bytes)
}

/// Writes and reads an array in three forms.
pub(super) fn arrays(site: &Site) -> std::result::Result<Outcome, Failure> {
    let options = SessionOptions::default();
    let zarr = chunks([256, 128], "zstd:1");
    let bytes = write_and_compare(site, "arrays.zarr", zarr, &options)?;
    write_and_compare(site, "arrays.npy", npy(), &options)?;
    write_and_compare(site, "arrays.h5", hdf5(), &options)?;
    Ok(Outcome::Works(format!(
        "Zarr with zstd, .npy, HDF5: {} each, written as BLOCK,BLOCK, read as CYCLIC,*, compared",
        sized(bytes)
    )))
}

/// Verifies an array that is whole, and again with one byte changed.
pub(super) fn checksums(site: &Site) -> std::result::Result<Outcome, Failure> {
    let path = site.path("sums.zarr");
    site.note("writing sums.zarr");
    let storage = chunks([256, 128], "zstd:1+crc32c");
    write_blocks(site, &path, storage, &SessionOptions::default())?;
    let whole = verified(site, &path)?;
    if let Some(damage) = whole.damages.first() {
        return Err(Failure::failed(format!("a new array is damaged: {damage}")));
    }
    if whole.compared < whole.chunks || whole.chunks == 0 {
        return Err(Failure::failed(format!(
            "of {} chunks {} were compared with a checksum",
            whole.chunks, whole.compared
        )));
    }
    let chunk = largest_file(&path.join("u").join("c"))?;
    flip(&chunk)?;
    match verified(site, &path)?.damages.len() {
        0 => Err(Failure::failed(format!(
            "a changed byte in {} was not found",
            chunk.display()
        ))),
        1 => Ok(Outcome::Works(format!(
            "{} chunks verified; a changed byte was found",
            whole.chunks
        ))),
        found => Err(Failure::failed(format!(
            "one byte was changed, and {found} damages were found"
        ))),
    }
}

fn verified(site: &Site, path: &Path) -> Result<Verification> {
    site.note("verifying sums.zarr");
    groups::verify(path, &mut |_| match site.is_over() {
        true => Err(Error::new(Kind::Peer, "verifying", "the time is over")),
        false => Ok(()),
    })
}

/// The largest file at or below a path.
fn largest_file(path: &Path) -> std::result::Result<PathBuf, Failure> {
    let mut waiting = vec![path.to_path_buf()];
    let mut largest = None;
    while let Some(directory) = waiting.pop() {
        let entries = std::fs::read_dir(&directory);
        let entries = entries.map_err(|error| failed("reading", &directory, &error))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            match path.metadata() {
                Ok(found) if found.is_dir() => waiting.push(path),
                Ok(found) => largest = largest.max(Some((found.len(), path))),
                Err(error) => return Err(failed("looking at", &path, &error)),
            }
        }
    }
    let nothing = || Failure::failed(format!("there is no chunk in {}", path.display()));
    largest.map(|(_, path)| path).ok_or_else(nothing)
}

/// Changes the byte in the middle of a file.
fn flip(path: &Path) -> std::result::Result<(), Failure> {
    let mut bytes = std::fs::read(path).map_err(|error| failed("reading", path, &error))?;
    let middle = bytes.len() / 2;
    if let Some(byte) = bytes.get_mut(middle) {
        *byte ^= 1;
    }
    std::fs::write(path, bytes).map_err(|error| failed("writing", path, &error))
}

/// Copies an array into other chunks, and compares the copy.
pub(super) fn copy(site: &Site) -> std::result::Result<Outcome, Failure> {
    let (source, target) = (site.path("source.zarr"), site.path("copy.zarr"));
    let options = SessionOptions::default();
    site.note("writing source.zarr");
    write_blocks(site, &source, chunks([256, 128], "zstd:1"), &options)?;
    let extents = Some("100,-1".parse()?);
    let form = Form::of(&target, extents, None, Some("none".to_string()), None)?;
    let asked = Options {
        form,
        ..Options::default()
    };
    site.note("copying source.zarr");
    let interrupt = || site.is_over();
    let report = copy::on_threads(
        (&source, &target),
        &asked,
        2,
        options.sync,
        &interrupt,
        &|_| Ok(()),
    )?;
    site.note("reading copy.zarr");
    compare_rows(site, &target, chunks([100, SHAPE[1]], "none"), &options)?;
    Ok(Outcome::Works(format!(
        "{} from chunks of 256 x 128 with zstd to chunks of 100 x {}, compared",
        sized(report.bytes),
        SHAPE[1]
    )))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::site::Scratch;
    use super::*;

    #[test]
    fn one_wrong_element_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let scratch = Scratch::below(directory.path()).unwrap();
        let site = scratch.site(None, Duration::from_secs(60), &std::sync::Arc::default());
        let (path, call) = (site.path("u.npy"), array([9, 7], npy(), ("BLOCK,*", &[2])));
        let call = call.unwrap();
        for wrong in [None, Some(0), Some(62)] {
            let number_but = |index| number(index) + u32::from(Some(index) == wrong);
            let body = |session: &Session| {
                write(session, &path, &call, number_but)?;
                Ok(compare(session, &path, &call).map_err(|error| error.cause))
            };
            let found = on_ranks(&site, 2, &SessionOptions::default(), body).unwrap();
            let complaints: Vec<_> = found
                .into_iter()
                .filter_map(std::result::Result::err)
                .collect();
            let expected = wrong.map(|index| {
                let (is, was) = (number(index) + 1, number(index));
                format!("element {index} is {is}, and {was} was written")
            });
            assert_eq!(complaints, Vec::from_iter(expected));
        }
    }
}
