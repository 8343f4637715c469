//! Numbers of bytes: those that a file system has free, and in words.

use std::path::Path;

use super::part::Process;
use super::site::Site;

/// The free bytes of the file system of a directory, if `df` tells them.
pub(super) fn free_bytes(site: &Site, directory: &Path) -> Option<u64> {
    let words = ["df".into(), "-Pk".into(), directory.as_os_str().into()];
    let asked = Process::start(site, "df", &words).ok()?;
    let lines = asked.last_lines(site).ok()?;
    free_bytes_in(&lines)
}

/// The free bytes in what `df -Pk` says: the fourth word of the second line, in KiB.
fn free_bytes_in(lines: &[String]) -> Option<u64> {
    let kib = lines.get(1)?.split_whitespace().nth(3)?;
    kib.parse::<u64>().ok()?.checked_mul(1024)
}

/// A number of bytes in the unit that suits it.
pub(super) fn sized(bytes: u64) -> String {
    let units = [("TB", 1_000_000_000_000), ("GB", 1_000_000_000)];
    let suits = units.into_iter().find(|(_, unit)| bytes >= *unit);
    let (name, unit) = suits.unwrap_or(("MB", 1_000_000));
    let number = bytes as f64 / unit as f64;
    match number < 10.0 {
        true => format!("{number:.1} {name}"),
        false => format!("{number:.0} {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown() {
        let lines = [
            "Filesystem 1024-blocks Used Available Capacity Mounted on",
            "/dev/sda1        2000  500      1500      25% /",
        ];
        let lines = lines.map(str::to_string);
        assert_eq!(free_bytes_in(&lines), Some(1500 << 10));
        assert_eq!(free_bytes_in(&lines[..1]), None);
        for (bytes, shown) in [
            (0, "0.0 MB"),
            (64 << 20, "67 MB"),
            (2_500_000_000, "2.5 GB"),
            (75_000_000_000, "75 GB"),
            (1_200_000_000_000_000, "1200 TB"),
        ] {
            assert_eq!(sized(bytes), shown);
        }
    }
}
