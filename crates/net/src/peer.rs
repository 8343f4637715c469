//! Who is at the other end of a connection, by the kernel's word or by a certificate.
//!
//! Certificates name their holder by a URI among their alternative names:
//!
//! | URI | the holder |
//! |---|---|
//! | `penstock:user:1000:100:27,44` | the user with this number, group, and other groups |
//! | `penstock:server:2` | the server of the volume with this number |

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use penstock_engine::{Error, Kind, Result};
use penstock_layout::exact;
use serde::{Deserialize, Serialize};
use x509_parser::extensions::GeneralName;

/// A user, as the kernel or a certificate says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The number of the user.
    pub user: u32,
    /// The number of the user's first group.
    pub group: u32,
    /// The numbers of the other groups.
    pub groups: Vec<u32>,
}

/// Who is at the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// A client of a user.
    Client(User),
    /// The server process with this number.
    Server(usize),
}

const USER: &str = "penstock:user:";
const SERVER: &str = "penstock:server:";

impl Peer {
    /// The URI by which a certificate names this peer.
    pub fn uri(&self) -> String {
        match self {
            Self::Client(who) => {
                let groups: Vec<String> = who.groups.iter().map(u32::to_string).collect();
                format!("{USER}{}:{}:{}", who.user, who.group, groups.join(","))
            }
            Self::Server(number) => format!("{SERVER}{number}"),
        }
    }

    /// The peer that a URI names.
    fn of_uri(uri: &str) -> Option<Self> {
        if let Some(number) = uri.strip_prefix(SERVER) {
            return Some(Self::Server(number.parse().ok()?));
        }
        let mut parts = uri.strip_prefix(USER)?.split(':');
        let user = parts.next()?.parse().ok()?;
        let group = parts.next()?.parse().ok()?;
        let groups = parts.next().unwrap_or("").split(',');
        let groups = groups.filter(|one| !one.is_empty());
        let groups: std::result::Result<Vec<u32>, _> = groups.map(str::parse).collect();
        let groups = groups.ok()?;
        parts.next().is_none().then_some(Self::Client(User {
            user,
            group,
            groups,
        }))
    }

    /// The peer whom a certificate names. The certificate has been verified.
    ///
    /// # Errors
    /// [`Kind::ReadOnly`] when it names nobody, or several.
    pub fn of_certificate(der: &[u8]) -> Result<Self> {
        let refused = |cause: String| Error::new(Kind::ReadOnly, "reading a certificate", cause);
        let (_, certificate) =
            x509_parser::parse_x509_certificate(der).map_err(|e| refused(e.to_string()))?;
        let names = certificate.subject_alternative_name();
        let names = names.map_err(|e| refused(e.to_string()))?;
        let names = names.map_or(&[][..], |names| &names.value.general_names);
        let named = names.iter().filter_map(|name| match name {
            GeneralName::URI(uri) => Self::of_uri(uri),
            _ => None,
        });
        match &named.collect::<Vec<_>>()[..] {
            [one] => Ok(one.clone()),
            other => Err(refused(format!(
                "it names {} users or servers",
                other.len()
            ))),
        }
    }
}

/// The user at the other end of a Unix socket, by the kernel's word.
///
/// # Errors
/// [`Kind::ReadOnly`] when the kernel does not say.
pub(crate) fn user_of_socket(socket: &UnixStream) -> Result<User> {
    let refused = |error: &dyn std::fmt::Display| {
        Error::new(Kind::ReadOnly, "asking who is at a socket", error)
    };
    let credentials = credentials_of_socket(socket).map_err(|error| refused(&error))?;
    Ok(User {
        user: credentials.uid,
        group: credentials.gid,
        groups: groups_of_socket(socket).map_err(|error| refused(&error))?,
    })
}

/// The process at the other end of a socket. Its number is 0 if that is in a namespace which this
/// process does not see, as in a container that shares the socket.
fn credentials_of_socket(socket: &UnixStream) -> std::io::Result<libc::ucred> {
    let mut credentials = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let size = size_of::<libc::ucred>();
    let mut bytes = exact::<libc::socklen_t>(size);
    // SAFETY: the kernel writes at most `bytes` bytes, which the structure has, and says how many.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &mut bytes,
        )
    };
    match result {
        0 if bytes as usize == size => Ok(credentials),
        0 => Err(std::io::Error::other("the kernel tells less than all")),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// The most groups that a process has on Linux.
const GROUPS_MAX: usize = 1 << 16;

fn groups_of_socket(socket: &UnixStream) -> std::io::Result<Vec<u32>> {
    let mut groups: Vec<u32> = vec![0; 64];
    loop {
        let mut bytes = exact::<libc::socklen_t>(size_of_val(&groups[..]));
        // SAFETY: the kernel writes at most `bytes` bytes, which the vector has, and says how many.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &mut bytes,
            )
        };
        let count = bytes as usize / size_of::<u32>();
        if result == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        let error = std::io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ERANGE) if groups.len() < GROUPS_MAX => groups.resize(GROUPS_MAX, 0),
            _ => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_peers() {
        let user = |user, group, groups: &[u32]| {
            Peer::Client(User {
                user,
                group,
                groups: groups.to_vec(),
            })
        };
        for peer in [user(0, 0, &[]), user(1000, 100, &[27, 44]), Peer::Server(3)] {
            assert_eq!(Peer::of_uri(&peer.uri()), Some(peer));
        }
        for uri in [
            "penstock:user:",
            "penstock:user:1:2:3:4",
            "penstock:user:-1:2",
            "penstock:user:1:x",
            "penstock:server:",
            "penstock:server:99999999999999999999",
            "https://example.org",
            "",
        ] {
            assert_eq!(Peer::of_uri(uri), None, "{uri}");
        }
    }

    #[test]
    fn the_kernel_tells_who_is_at_a_socket() {
        let (one, _other) = UnixStream::pair().unwrap();
        let user = user_of_socket(&one).unwrap();
        assert_eq!(user.user, rustix::process::getuid().as_raw());
        assert_eq!(user.group, rustix::process::getgid().as_raw());
        let groups = rustix::process::getgroups().unwrap();
        let groups: Vec<u32> = groups.iter().map(|group| group.as_raw()).collect();
        assert_eq!(user.groups, groups);
    }
}
