//! Acting for a user: servers that stand touch files as the user whose call it is, and the kernel
//! checks what that user may do.
//!
//! Linux keeps the user of file accesses for each thread. A thread that is started meanwhile has
//! the same.

use std::sync::Arc;

use penstock_engine::{Digest, Error, Kind, Result};
use penstock_layout::Block;
use penstock_machines::Medium;
use serde::{Deserialize, Serialize};

/// A user, as the kernel or a certificate has named it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The number of the user.
    pub user: u32,
    /// The number of the user's first group.
    pub group: u32,
    /// The numbers of the other groups.
    pub groups: Vec<u32>,
}

/// The thread acts for a user until this is dropped.
struct Acting {
    user: u32,
    group: u32,
    groups: Vec<libc::gid_t>,
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

impl User {
    /// Checks that this process can act for the user.
    ///
    /// # Errors
    /// [`Kind::ReadOnly`] when the process is another user, and not the system's.
    pub fn check(&self) -> Result<()> {
        let own = own_user();
        match own == 0 || own == self.user {
            true => Ok(()),
            false => {
                let cause = format!(
                    "the servers run as user {own}, and cannot act for user {}: let root start them",
                    self.user
                );
                Err(Error::new(Kind::ReadOnly, "acting for a user", cause))
            }
        }
    }

    /// Does something for the user, on this thread.
    ///
    /// # Errors
    /// As [`User::check`], and when the kernel refuses.
    pub fn act<T>(&self, doing: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.user == own_user() {
            return doing();
        }
        self.check()?;
        let _acting = Acting::begin(self)?;
        doing()
    }
}

impl Acting {
    fn begin(user: &User) -> Result<Self> {
        let groups = rustix::process::getgroups().unwrap_or_default();
        let former = Self {
            user: own_user(),
            group: rustix::process::getegid().as_raw(),
            groups: groups.into_iter().map(|group| group.as_raw()).collect(),
        };
        let wanted = Self {
            user: user.user,
            group: user.group,
            groups: user.groups.clone(),
        };
        let is_set = wanted.set_groups() && wanted.set_group() && wanted.set_user();
        let acting = former; // it is set back in any case
        match is_set {
            true => Ok(acting),
            false => {
                let cause = format!("the kernel does not let this process be user {}", user.user);
                Err(Error::new(Kind::ReadOnly, "acting for a user", cause))
            }
        }
    }

    fn set_groups(&self) -> bool {
        // SAFETY: the kernel reads as many groups as there are. The call itself, other than that of
        // the C library, is about this thread alone.
        let answer =
            unsafe { libc::syscall(libc::SYS_setgroups, self.groups.len(), self.groups.as_ptr()) };
        answer == 0
    }

    fn set_group(&self) -> bool {
        // SAFETY: numbers go in and out. A group that cannot be says which one it is now.
        let now = unsafe {
            libc::setfsgid(self.group);
            libc::setfsgid(u32::MAX)
        };
        u32::try_from(now) == Ok(self.group)
    }

    fn set_user(&self) -> bool {
        // SAFETY: as for groups.
        let now = unsafe {
            libc::setfsuid(self.user);
            libc::setfsuid(u32::MAX)
        };
        u32::try_from(now) == Ok(self.user)
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        // The user comes first: it has the right to the rest.
        let is_set = self.set_user() & self.set_group() & self.set_groups();
        debug_assert!(is_set, "a thread that stays another user");
    }
}

/// A medium that is used for a user.
pub struct UserMedium {
    medium: Arc<dyn Medium>,
    user: User,
}

impl UserMedium {
    /// Makes a medium that is used for this user.
    pub fn new(medium: Arc<dyn Medium>, user: User) -> Self {
        Self { medium, user }
    }
}

impl Medium for UserMedium {
    fn position(&self, block: &Block) -> Option<u64> {
        self.medium.position(block)
    }

    fn is_in_order(&self) -> bool {
        self.medium.is_in_order()
    }

    fn write(&self, block: &Block, data: &[u8]) -> Result<()> {
        self.user.act(|| self.medium.write(block, data))
    }

    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        self.user.act(|| self.medium.read(block, data))
    }

    fn moves_parts(&self) -> bool {
        self.medium.moves_parts()
    }

    fn write_part(&self, block: &Block, offset: u64, data: &[u8]) -> Result<()> {
        self.user
            .act(|| self.medium.write_part(block, offset, data))
    }

    fn read_part(&self, block: &Block, offset: u64, data: &mut [u8]) -> Result<()> {
        self.user.act(|| self.medium.read_part(block, offset, data))
    }

    fn finish(&self, sync: bool) -> Result<()> {
        self.user.act(|| self.medium.finish(sync))
    }

    fn digests(&self) -> Vec<Digest> {
        self.medium.digests()
    }

    fn changes(&self) -> Vec<u8> {
        self.medium.changes()
    }
}
