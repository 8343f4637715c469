//! Keeps an array that is changed in place from other writers.
//!
//! An array that is open to be changed has a temporary with nothing but a lock in it. Whoever else
//! would change the array in place, or write it anew, makes a temporary of the same name and is
//! refused; the kernel gives up the lock of a process that is killed. Readers take no lock. In a
//! bucket a lease is in the lock's place.

use std::path::{Path, PathBuf};

use penstock_bucket::Place;
use penstock_engine::{Error, Kind, Result};

use super::change::metadata_of;
use super::checks::{check_not_in_checkpoints, check_not_saved, is_in_group, resolve};
use super::lease::Lease;
use crate::formats::Form;
use crate::formats::references::only_read;
use crate::formats::spread::of_server;
use crate::fs::temporary::Temporary;
use crate::read::StoredArray;

/// The right to change an array in place, for as long as the value lives.
#[must_use]
pub struct Updatable {
    _right: Right,
}

enum Right {
    Temporary { _held: Temporary },
    Lease { _held: Lease },
}

impl StoredArray {
    /// Checks that the array, which was opened at `path`, may be changed in place, and keeps other
    /// writers from it. Rank 0 calls this before servers open the array
    /// ([`crate::Target::open_update`]), and keeps the answer until they have closed it.
    ///
    /// # Errors
    /// [`penstock_engine::Kind::Unsupported`] for Zarr format 2;
    /// [`penstock_engine::Kind::Schema`] for an array that is saved with its group, or is in a
    /// checkpoint: checksums of these are recorded; [`penstock_engine::Kind::Busy`] when another
    /// job writes the array, or has it open to be changed.
    pub fn updatable(&self, path: &Path) -> Result<Updatable> {
        let form = self.target().form();
        if !matches!(form, Form::Referred(_))
            && let Some(place) = Place::of(self.target().path())?
        {
            if place.is_in_repository() {
                let cause = "a repository is changed by commits: write parts by Session.write";
                let error = Error::new(Kind::Unsupported, "opening for changes", cause);
                return Err(error.at(place.url()));
            }
            return lease(&place);
        }
        let (beside, name, target) = match form {
            Form::Zarr(location) => {
                let array = resolve(&location.directory)?;
                location.check_updatable()?;
                check_not_in_checkpoints(&array)?;
                match is_in_group(&array)? {
                    Some((group, name)) => {
                        check_not_saved(&group, &name)?;
                        (group, Some(name), array)
                    }
                    None => of_itself(array),
                }
            }
            Form::Flat(location) => of_itself(resolve(&location.file)?),
            Form::Placed(location) => {
                location.check_updatable()?;
                of_itself(resolve(&location.file)?)
            }
            Form::Library(location) => return Err(location.refused()),
            Form::Referred(location) => return Err(only_read(location.path())),
            Form::Parts(_) => of_itself(resolve(&of_server(path, 0))?),
        };
        let _held = Temporary::create(&beside, name.as_deref(), &target)?;
        let _right = Right::Temporary { _held };
        Ok(Updatable { _right })
    }
}

/// Leases an array in a bucket.
fn lease(array: &Place) -> Result<Updatable> {
    array.check_writable()?;
    metadata_of(array.url())?;
    let _held = Lease::take(array)?;
    let _right = Right::Lease { _held };
    Ok(Updatable { _right })
}

/// The place of the temporary of an array that is in no group.
fn of_itself(path: PathBuf) -> (PathBuf, Option<String>, PathBuf) {
    (path.clone(), None, path)
}
