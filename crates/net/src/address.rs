//! The addresses of servers.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use penstock_engine::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

/// The port of servers where an address names none.
pub const PORT: u16 = 7433;

/// An address at which a server listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Address {
    /// A socket of the host, by its path.
    Host(PathBuf),
    /// A name or number of a host, and a port.
    Remote(String, u16),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(path) => write!(f, "unix://{}", path.display()),
            Self::Remote(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Remote(host, port) => write!(f, "{host}:{port}"),
        }
    }
}

impl FromStr for Address {
    type Err = Error;

    /// Reads `unix:///run/penstock.sock`, `host`, `host:7433`, `10.0.0.1:7433` or `[::1]:7433`.
    fn from_str(text: &str) -> Result<Self> {
        let wrong = |cause: &str| {
            let doing = format!("reading the address \"{text}\"");
            Error::new(Kind::Schema, doing, cause)
        };
        if let Some(path) = text.strip_prefix("unix://") {
            return match path.starts_with('/') {
                true => Ok(Self::Host(path.into())),
                false => Err(wrong("the path of a socket begins with a slash")),
            };
        }
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or_else(|| wrong("no ] in it"))?;
                let port = match rest {
                    "" => None,
                    rest => Some(
                        rest.strip_prefix(':')
                            .ok_or_else(|| wrong("no port behind ]"))?,
                    ),
                };
                (host, port)
            }
            None => match text.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        let port = port.map_or(Ok(PORT), |port| {
            port.parse()
                .map_err(|_| wrong("the port is no number below 65,536"))
        })?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || ".-_:".contains(c);
        match !host.is_empty() && host.chars().all(is_name) {
            true => Ok(Self::Remote(host.to_string(), port)),
            false => Err(wrong("a host is a name or a number")),
        }
    }
}

/// The prefix of the URL of a volume whose servers stand.
pub const SCHEME: &str = "penstock://";

/// Reads a URL: `penstock://host:7433,host2:7433`, or `unix:///run/penstock.sock`. `None` if it is
/// neither, but a path.
///
/// # Errors
/// [`Kind::Schema`] when an address makes no sense.
pub fn of_url(url: &str) -> Result<Option<Vec<Address>>> {
    if url.starts_with("unix://") {
        return Ok(Some(vec![url.parse()?]));
    }
    let Some(hosts) = url.strip_prefix(SCHEME) else {
        return Ok(None);
    };
    let hosts = hosts.trim_end_matches('/').split(',');
    let addresses: Result<Vec<Address>> = hosts.map(str::parse).collect();
    addresses.map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let remote = |host: &str, port| Some(Address::Remote(host.to_string(), port));
        for (text, address) in [
            (
                "unix:///run/penstock.sock",
                Some(Address::Host("/run/penstock.sock".into())),
            ),
            ("unix://penstock.sock", None),
            ("io1", remote("io1", PORT)),
            ("io1:80", remote("io1", 80)),
            ("10.0.0.1:7433", remote("10.0.0.1", 7433)),
            ("[::1]:9", remote("::1", 9)),
            ("[::1]", remote("::1", PORT)),
            ("[::1", None),
            ("[::1]9", None),
            ("io1:", None),
            ("io1:70000", None),
            (":80", None),
            ("io 1", None),
            ("io/1", None),
        ] {
            let read = text.parse::<Address>();
            assert_eq!(read.as_ref().ok(), address.as_ref(), "{text}");
            if let Ok(read) = read {
                assert_eq!(read.to_string().parse::<Address>().unwrap(), read);
            }
        }
    }

    #[test]
    fn urls() {
        assert_eq!(of_url("scratch.vol").unwrap(), None);
        assert_eq!(of_url("/unix/penstock").unwrap(), None);
        assert_eq!(of_url("penstock://a,b:2/").unwrap().unwrap().len(), 2);
        assert_eq!(of_url("unix:///run/p").unwrap().unwrap().len(), 1);
        assert!(of_url("penstock://").is_err());
    }
}
