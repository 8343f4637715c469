//! For whom a request is done: the user of the program that asks, with all groups.

use fuser::Request;
use penstock_files::Identity;

/// The user of a request.
pub(crate) fn identity(request: &Request) -> Identity {
    let groups = match request.uid() {
        0 => Vec::new(), // who may do everything needs no groups
        _ => groups(request.pid()),
    };
    Identity::new(request.uid(), request.gid(), groups)
}

/// The groups of a process beside the first. A process that is not seen here has none.
fn groups(process: u32) -> Vec<u32> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"));
    groups_in(&status.unwrap_or_default())
}

fn groups_in(status: &str) -> Vec<u32> {
    let mut lines = status.lines();
    let groups = lines.find_map(|line| line.strip_prefix("Groups:"));
    let numbers = groups.unwrap_or_default().split_whitespace();
    numbers.filter_map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_a_process() {
        assert_eq!(groups_in("Name:\tsh\nGroups:\t4 24 1000 \n"), [4, 24, 1000]);
        assert!(groups_in("").is_empty());
    }
}
