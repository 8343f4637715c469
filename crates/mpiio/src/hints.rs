//! Hints: what a program says about a file in an info object, and what Penstock makes of it.
//!
//! | key | values | effect |
//! |---|---|---|
//! | `cb_nodes`, `penstock_servers` | a number | servers of collective accesses |
//! | `cb_config_list` | `*:2`, `*:*` | servers a host |
//! | `cb_buffer_size`, `penstock_block_bytes` | bytes | the block that a server moves at once |
//! | `striping_unit` | bytes | blocks begin and end at multiples of it |
//! | `romio_cb_write`, `romio_cb_read` | `enable`, `disable`, `automatic` | whether servers direct the flow: always, never, or where it pays |
//!
//! Rank 0's hints count in collective accesses. Other keys are ignored, as the standard wants it.
//! `MPI_File_get_info` reports the hints in use.

use crate::failure::{Class, Result, wrong};
use crate::plan::{BLOCK_BYTES, BLOCK_BYTES_MIN, Directing, Tuning};

/// The largest block: a rank with a server has two of them.
const BLOCK_BYTES_MAX: u64 = 4 << 20;

/// The hints of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hints {
    /// The number of servers.
    pub servers: Option<usize>,
    /// The number of servers of each host.
    pub servers_of_host: Option<usize>,
    /// The bytes of a block.
    block_bytes: Option<u64>,
    /// The bytes of a stripe of the file system.
    striping_unit: Option<u64>,
    write: Directing,
    read: Directing,
}

impl Hints {
    /// Takes in the keys and values of an info object. What was said before stays, unless it is
    /// said anew.
    ///
    /// # Errors
    /// [`Class::InfoValue`] when a value of Penstock's own keys makes no sense.
    pub fn take(&mut self, info: &[(String, String)]) -> Result<()> {
        for (key, value) in info {
            let value = value.trim();
            let number = value.parse::<u64>().ok().filter(|&number| number > 0);
            match key.as_str() {
                "cb_nodes" => self.servers = count(number).or(self.servers),
                "cb_buffer_size" => self.block_bytes = number.or(self.block_bytes),
                "striping_unit" => self.striping_unit = number.or(self.striping_unit),
                "cb_config_list" => {
                    self.servers_of_host = of_each_host(value).or(self.servers_of_host);
                }
                "romio_cb_write" => self.write = directing(value).unwrap_or(self.write),
                "romio_cb_read" => self.read = directing(value).unwrap_or(self.read),
                "penstock_servers" | "penstock_block_bytes" => {
                    let number = number.ok_or_else(|| {
                        let cause =
                            format!("the hint {key} is \"{value}\", not a number from 1 on");
                        wrong(Class::InfoValue, cause)
                    })?;
                    match key.as_str() {
                        "penstock_servers" => self.servers = count(Some(number)),
                        _ => self.block_bytes = Some(number),
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The tuning of a collective access on a file with so many servers.
    pub fn tuning(&self, is_write: bool, servers: usize) -> Tuning {
        Tuning {
            directing: if is_write { self.write } else { self.read },
            block_bytes: self.block_bytes(),
            servers: self
                .servers
                .map_or(servers, |wanted| wanted.min(servers))
                .max(1),
        }
    }

    fn block_bytes(&self) -> u64 {
        let wanted = self.block_bytes.unwrap_or(BLOCK_BYTES);
        let wanted = wanted.clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX);
        match self.striping_unit {
            Some(unit) if unit <= BLOCK_BYTES_MAX => (wanted / unit).max(1) * unit,
            _ => wanted,
        }
    }

    /// The hints in use, on a file with so many servers.
    pub fn in_use(&self, servers: usize) -> Vec<(&'static str, String)> {
        let servers = self.tuning(true, servers).servers.to_string();
        let block_bytes = self.block_bytes().to_string();
        let mut used = vec![
            ("cb_nodes", servers.clone()),
            ("penstock_servers", servers),
            ("cb_buffer_size", block_bytes.clone()),
            ("penstock_block_bytes", block_bytes),
            ("romio_cb_write", word(self.write).to_string()),
            ("romio_cb_read", word(self.read).to_string()),
        ];
        if let Some(unit) = self.striping_unit {
            used.push(("striping_unit", unit.to_string()));
        }
        if let Some(each) = self.servers_of_host {
            let each = match each {
                usize::MAX => "*".to_string(),
                each => each.to_string(),
            };
            used.push(("cb_config_list", format!("*:{each}")));
        }
        used
    }
}

/// A number of servers: there are never more than fit.
fn count(number: Option<u64>) -> Option<usize> {
    number.map(|number| usize::try_from(number).unwrap_or(usize::MAX))
}

fn directing(value: &str) -> Option<Directing> {
    match value.to_ascii_lowercase().as_str() {
        "enable" | "true" => Some(Directing::Always),
        "disable" | "false" => Some(Directing::Never),
        "automatic" => Some(Directing::Automatic),
        _ => None,
    }
}

fn word(directing: Directing) -> &'static str {
    match directing {
        Directing::Always => "enable",
        Directing::Never => "disable",
        Directing::Automatic => "automatic",
    }
}

/// The servers of each host, by a list such as `*:2`. Lists that name hosts say nothing.
fn of_each_host(value: &str) -> Option<usize> {
    let (host, count) = value.split_once(':').unwrap_or((value, "1"));
    match (host.trim(), count.trim()) {
        ("*", "*") => Some(usize::MAX),
        ("*", count) => count.parse().ok().filter(|&count| count > 0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hints(info: &[(&str, &str)]) -> Result<Hints> {
        let info = info
            .iter()
            .map(|(key, value)| (key.to_string(), value.to_string()));
        let mut hints = Hints::default();
        hints.take(&info.collect::<Vec<_>>())?;
        Ok(hints)
    }

    #[test]
    fn hints_of_others_are_honoured_or_ignored() {
        let given = hints(&[
            ("cb_nodes", "3"),
            ("cb_buffer_size", "65536"),
            ("romio_cb_write", "disable"),
            ("romio_ds_write", "enable"),
            ("cb_config_list", "*:*"),
        ]);
        let given = given.unwrap();
        let tuning = given.tuning(true, 8);
        assert_eq!((tuning.servers, tuning.block_bytes), (3, 65536));
        assert_eq!(tuning.directing, Directing::Never);
        assert_eq!(given.tuning(false, 2).servers, 2);
        assert_eq!(given.tuning(false, 2).directing, Directing::Automatic);
        assert_eq!(given.servers_of_host, Some(usize::MAX));
        let nonsense = hints(&[
            ("cb_nodes", "many"),
            ("cb_buffer_size", "-1"),
            ("romio_cb_read", ""),
        ]);
        assert_eq!(nonsense.unwrap(), Hints::default());
    }

    #[test]
    fn own_hints_are_checked() {
        for value in ["", "0", "-1", "x"] {
            let refused = hints(&[("penstock_servers", value)]).unwrap_err();
            assert_eq!(refused.class, Class::InfoValue);
        }
        assert_eq!(
            hints(&[("penstock_servers", " 2 ")]).unwrap().servers,
            Some(2)
        );
    }

    #[test]
    fn blocks_are_stripes_or_several() {
        let block = |unit: &str, bytes: &str| {
            let given = hints(&[("striping_unit", unit), ("cb_buffer_size", bytes)]).unwrap();
            given.tuning(true, 1).block_bytes
        };
        assert_eq!(block("65536", "1000000"), 15 * 65536);
        assert_eq!(block("2097152", "1048576"), 2097152);
        assert_eq!(block("99999999", "1048576"), 1048576);
        assert_eq!(block("0", "1"), BLOCK_BYTES_MIN);
    }
}
