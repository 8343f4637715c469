//! Extended attributes. `user.penstock.cells`, `.bsu` and `.base` tell the structure of a file, and
//! say that of new files below a directory; others are kept as they are.

use fuser::{Errno, Request};
use penstock_files::{Attributes, NewAttributes, ObjectKind};

use crate::errno::Answer;
use crate::state::Mount;
use crate::users;

/// The prefix of names that users choose; others belong to the system.
const USER: &str = "user.";

/// The prefix of names that have a meaning here.
const OWN: &str = "user.penstock.";

/// The names of the numbers of a file's structure.
const STRUCTURE: [&str; 3] = [
    "user.penstock.cells",
    "user.penstock.bsu",
    "user.penstock.base",
];

/// The extended attributes of a directory that say the structure of new files.
pub(crate) fn structure_of(
    directory: &Attributes,
) -> impl Iterator<Item = (&String, &Vec<u8>)> + use<'_> {
    let all = directory.extended.iter();
    all.filter(|(name, _)| STRUCTURE.contains(&&name[..]))
}

fn number(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}

/// The structure of new files in a directory, as far as it says it.
pub(crate) fn structure(directory: &Attributes) -> (Option<u64>, Option<u64>, Option<usize>) {
    let of = |name| directory.extended.get(name).and_then(|value| number(value));
    let [cells, bsu, base] = STRUCTURE.map(of);
    (cells, bsu, base.and_then(|base| usize::try_from(base).ok()))
}

/// All extended attributes of an object.
fn all_of(object: &Attributes) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<(String, Vec<u8>)> = Vec::new();
    if let ObjectKind::File(shape) = object.kind {
        let numbers = [shape.cells, shape.bsu_bytes, shape.base as u64];
        let own = STRUCTURE.into_iter().zip(numbers);
        all.extend(own.map(|(name, number)| (name.to_string(), number.to_string().into_bytes())));
    }
    let others = object.extended.iter();
    all.extend(others.map(|(name, value)| (name.clone(), value.clone())));
    all
}

impl Mount {
    /// The value of an extended attribute.
    pub(crate) fn extended(&self, number: u64, name: &str) -> Answer<Vec<u8>> {
        if !name.starts_with(USER) {
            return Err(Errno::ENODATA); // the system's own are never set
        }
        let object = self.details(number)?.1.object;
        let found = all_of(&object).into_iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value).ok_or(Errno::ENODATA)
    }

    /// The names of all extended attributes, each with a NUL at its end.
    pub(crate) fn extended_names(&self, number: u64) -> Answer<Vec<u8>> {
        let object = self.details(number)?.1.object;
        let names = all_of(&object).into_iter();
        Ok(names
            .flat_map(|(name, _)| name.into_bytes().into_iter().chain([0]))
            .collect())
    }

    /// Sets an extended attribute, or takes it away.
    pub(crate) fn set_extended(
        &self,
        request: &Request,
        number: u64,
        (name, value): (&str, Option<&[u8]>),
        flags: i32,
    ) -> Answer<()> {
        if !name.starts_with(USER) {
            return Err(Errno::EOPNOTSUPP);
        }
        let (node, details) = self.details(number)?;
        let object = details.object;
        check(&object, name, value, self.fs.servers() as u64)?;
        let is_there = all_of(&object).iter().any(|(other, _)| other == name);
        match (flags, is_there, value) {
            (libc::XATTR_CREATE, true, Some(_)) => return Err(Errno::EEXIST),
            (libc::XATTR_REPLACE, false, Some(_)) | (_, false, None) => return Err(Errno::ENODATA),
            _ if node.view.is_some() => return Err(Errno::EPERM),
            _ => {}
        }
        let new = NewAttributes {
            extended: Some((name.to_string(), value.map(<[u8]>::to_vec))),
            ..NewAttributes::default()
        };
        let fs = self.fs.as_user(users::identity(request));
        self.at(number, |node| fs.set(node.path.clone(), new.clone()))
            .map_err(|number| match number {
                errno if errno == Errno::EINVAL => Errno::ERANGE, // a name without a length
                other => other,
            })
    }
}

/// Refuses names of ours that have no meaning, and values that no file can have.
fn check(object: &Attributes, name: &str, value: Option<&[u8]>, servers: u64) -> Answer<()> {
    if !name.starts_with(OWN) {
        return Ok(());
    }
    let is_file = matches!(object.kind, ObjectKind::File(_));
    let which = STRUCTURE.iter().position(|known| *known == name);
    let number = value.map(number);
    match (which, number) {
        _ if is_file => Err(Errno::EPERM), // the structure of a file does not change
        (None, _) | (_, Some(None)) => Err(Errno::EINVAL),
        (Some(0), Some(Some(cells)))
            if !(1..=penstock_files::object::CELLS_MAX).contains(&cells) =>
        {
            Err(Errno::EINVAL)
        }
        (Some(1), Some(Some(bsu)))
            if !(1..=penstock_layout::view::CELL_BYTES_MAX).contains(&bsu) =>
        {
            Err(Errno::EINVAL)
        }
        (Some(2), Some(Some(base))) if base >= servers => Err(Errno::EINVAL),
        _ => Ok(()),
    }
}

/// A name of an extended attribute as text.
pub(crate) fn name_of(name: &std::ffi::OsStr) -> Answer<&str> {
    name.to_str().ok_or(Errno::EILSEQ)
}
