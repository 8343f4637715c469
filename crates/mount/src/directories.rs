//! Open directories: their entries, as they were when somebody began to read.

use std::sync::{Arc, Mutex, PoisonError};

use fuser::{Errno, FileType, INodeNo, ReplyDirectory, Request};
use penstock_files::Entry;
use penstock_files::job::FileSystem;

use crate::attributes::file_type;
use crate::errno::Answer;
use crate::open::OpenDirectory;
use crate::state::Mount;
use crate::tree::number_of;
use crate::{removed, users};

impl Mount {
    /// Opens a directory for a user who may list it.
    pub(crate) fn open_directory(&self, request: &Request, number: u64) -> Answer<u64> {
        let fs = self.fs.as_user(users::identity(request));
        let entries = self.entries(&fs, number)?;
        let directory = OpenDirectory {
            entries,
            is_read: false,
        };
        let handle = self.new_handle();
        let mut all = self
            .directories
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        all.insert(handle, Arc::new(Mutex::new(directory)));
        Ok(handle)
    }

    fn entries(&self, fs: &FileSystem, number: u64) -> Answer<Vec<(String, Entry)>> {
        self.at(number, |node| {
            let mut entries = fs.list(node.path.clone())?;
            entries.retain(|(name, _)| !removed::is_hidden(Some(&node.path), name));
            Ok(entries)
        })
    }

    /// Gives entries from an offset on. The first two are the directory itself, and the one above.
    pub(crate) fn list(
        &self,
        number: u64,
        handle: u64,
        offset: u64,
        reply: &mut ReplyDirectory,
    ) -> Answer<()> {
        let directory = {
            let all = self
                .directories
                .read()
                .unwrap_or_else(PoisonError::into_inner);
            all.get(&handle).cloned().ok_or(Errno::EBADF)?
        };
        let mut directory = directory.lock().unwrap_or_else(PoisonError::into_inner);
        if offset == 0 && std::mem::replace(&mut directory.is_read, true) {
            directory.entries = self.entries(&self.fs, number)?;
        }
        let selves = [".", ".."].map(|name| (number, FileType::Directory, name));
        let others = directory.entries.iter().map(|(name, entry)| {
            let number = number_of(entry.id);
            (number, file_type(entry.kind), &name[..])
        });
        let all = selves.into_iter().chain(others);
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for (next, (number, kind, name)) in (1..).zip(all).skip(from) {
            if reply.add(INodeNo(number), next, kind, name) {
                break; // the buffer is full
            }
        }
        Ok(())
    }

    /// Closes a directory.
    pub(crate) fn close_directory(&self, handle: u64) {
        let mut all = self
            .directories
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        all.remove(&handle);
    }
}
