//! Checks of memory: what processes of a host share, and huge pages.
//!
//! Ranks of a host map one segment, which the first of them has made, through its
//! `/proc/PID/fd`. A server copies long pieces straight out of a rank's memory if the kernel allows
//! it; whoever may open `/proc/PID/mem` may do that, too. Here two processes beside each other, as
//! ranks are, try both.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use penstock_machines::memory::segment::{Mapping, SegmentName};
use serde::{Deserialize, Serialize};

use super::outcome::Outcome;
use super::part::{self, Part};
use super::site::{Site, failed};
use super::space::{free_bytes, sized};
use crate::failure::Failure;
use crate::output;

/// The bytes of a segment, and of the memory beside it.
const BYTES: usize = 64 << 10;
/// The byte that both are full of.
const MARK: u8 = 0x5e;
/// The name of the file that tells the borrower what is lent.
const LOAN: &str = "loan.json";

/// What a process lends: a segment, and memory of its own.
#[derive(Serialize, Deserialize)]
struct Loan {
    segment: SegmentName,
    address: u64,
}

/// How a process has reached what another lends; the reasons why it has not.
#[derive(Serialize, Deserialize)]
struct Reach {
    /// Why the segment cannot be mapped.
    unmapped: Option<String>,
    /// Why the other memory cannot be copied.
    uncopied: Option<String>,
}

/// Lends memory until the standard input ends.
pub(super) fn lend() -> Result<(), Failure> {
    let segment = Mapping::shared(BYTES)?;
    // SAFETY: the segment has this number of bytes, and nobody else has heard of it yet.
    unsafe { std::slice::from_raw_parts_mut(segment.base(), BYTES) }.fill(MARK);
    let own = vec![MARK; BYTES];
    let loan = segment.name().map(|segment| Loan {
        segment,
        address: own.as_ptr().addr() as u64,
    });
    let loan = loan.ok_or_else(|| Failure::failed("the segment has no name"))?;
    output::text(&(serde_json::to_string(&loan).map_err(Failure::failed)? + "\n"))?;
    part::wait_for_parent();
    drop(std::hint::black_box(own));
    Ok(())
}

/// Tries to reach what another process lends, and says how that went.
pub(super) fn borrow(directory: &Path) -> Result<(), Failure> {
    let path = directory.join(LOAN);
    let loan = std::fs::read(&path).map_err(|error| failed("reading", &path, &error))?;
    let loan: Loan = serde_json::from_slice(&loan).map_err(Failure::failed)?;
    let reach = Reach {
        unmapped: map(&loan).err(),
        uncopied: copy(&loan).err(),
    };
    output::text(&(serde_json::to_string(&reach).map_err(Failure::failed)? + "\n"))
}

fn map(loan: &Loan) -> Result<(), String> {
    let segment = Mapping::open(&loan.segment).map_err(|error| error.cause)?;
    // SAFETY: the mapping has this number of bytes, and its owner does not change them any more.
    let bytes = unsafe { std::slice::from_raw_parts(segment.base(), segment.bytes()) };
    marked(bytes)
}

fn copy(loan: &Loan) -> Result<(), String> {
    let memory = File::open(format!("/proc/{}/mem", loan.segment.process));
    let mut bytes = vec![0; BYTES];
    let read = memory.and_then(|memory| memory.read_exact_at(&mut bytes, loan.address));
    read.map_err(|error| error.to_string())?;
    marked(&bytes)
}

fn marked(bytes: &[u8]) -> Result<(), String> {
    match bytes.iter().all(|&byte| byte == MARK) {
        true => Ok(()),
        false => Err("it has other bytes than were lent".to_string()),
    }
}

/// Lets one process reach the memory that another lends.
pub(super) fn shared(site: &Site) -> Result<Outcome, Failure> {
    let lender = Part::Lender.start(site)?;
    let loan = lender.line(site, "what a process lends")?;
    let path = site.path(LOAN);
    std::fs::write(&path, loan).map_err(|error| failed("writing", &path, &error))?;
    let borrower = Part::Borrower.start(site)?;
    let reach = borrower.line(site, "another process, which maps that")?;
    let reach: Reach = serde_json::from_str(&reach).map_err(Failure::failed)?;
    Ok(reached(reach, &shared_directory(site)))
}

/// What the reach of a process comes to; `directory` says the same of that of MPI libraries.
fn reached(reach: Reach, directory: &str) -> Outcome {
    if let Some(reason) = reach.unmapped {
        return Outcome::Lacks(format!(
            "no process may map what another one lends ({reason}): in a job, open sessions with \
             transport=\"messages\", which is slower; threads do not need it; {directory}"
        ));
    }
    if let Some(reason) = reach.uncopied {
        return Outcome::Lacks(format!(
            "processes share segments, but may not copy each other's memory ({reason}{}): ranks \
             copy when servers ask, slower where pieces are long; {directory}",
            traced()
        ));
    }
    Outcome::Works(format!(
        "processes share segments, and copy each other's memory; {directory}"
    ))
}

/// The setting that forbids copies, if the kernel has it.
fn traced() -> String {
    let setting = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    let setting = setting.map(|value| format!("; kernel.yama.ptrace_scope is {}", value.trim()));
    setting.unwrap_or_default()
}

/// The directory in which MPI libraries share memory, in words. Penstock's segments are in none.
fn shared_directory(site: &Site) -> String {
    let directory = Path::new("/dev/shm");
    let file = directory.join(format!("penstock-selftest-{}", std::process::id()));
    let written = std::fs::write(&file, [MARK]).and_then(|()| std::fs::remove_file(&file));
    match (written, free_bytes(site, directory)) {
        (Ok(()), Some(bytes)) => format!("/dev/shm, which MPI uses, has {} free", sized(bytes)),
        (Ok(()), None) => "/dev/shm, which MPI uses, can be written".to_string(),
        (Err(error), _) => format!("/dev/shm, which MPI uses, cannot be written ({error})"),
    }
}

/// Tells whether memory is in huge pages: what a device then takes in one piece.
pub(super) fn huge_pages(_: &Site) -> Result<Outcome, Failure> {
    let directory = Path::new("/sys/kernel/mm/transparent_hugepage");
    let setting = |name: &str| {
        let text = std::fs::read_to_string(directory.join(name)).ok()?;
        chosen(&text).map(str::to_string)
    };
    let (private, shared) = (setting("enabled"), setting("shmem_enabled"));
    Ok(in_words(private.as_deref(), shared.as_deref()))
}

/// The chosen word of a setting such as `always [madvise] never`.
fn chosen(setting: &str) -> Option<&str> {
    let mut words = setting.split_whitespace();
    words.find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
}

/// What the settings for memory of one process, and for shared memory, come to.
fn in_words(private: Option<&str>, shared: Option<&str>) -> Outcome {
    let shared = match shared {
        Some("always" | "within_size" | "advise" | "force") => "so has shared memory",
        Some("deny") => "shared memory has none",
        _ => "shared memory has them from Linux 6.1 on",
    };
    let ask = "direct I/O and copies cost more; the administrator can write madvise to \
               /sys/kernel/mm/transparent_hugepage/enabled";
    match private {
        Some("always") => Outcome::Works(format!("all memory has them; {shared}")),
        Some("madvise") => Outcome::Works(format!(
            "memory has them where a program asks, as Penstock does; {shared}"
        )),
        Some(word) => Outcome::Lacks(format!("the kernel's setting is {word}: {ask}; {shared}")),
        None => Outcome::Lacks(format!("the kernel has none, or does not tell: {ask}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_reached_is_told() {
        let reach = |unmapped: Option<&str>, uncopied: Option<&str>| {
            let [unmapped, uncopied] = [unmapped, uncopied].map(|text| text.map(str::to_string));
            reached(Reach { unmapped, uncopied }, "all is well")
        };
        assert!(matches!(reach(None, None), Outcome::Works(_)));
        for (outcome, word) in [
            (
                reach(Some("denied"), Some("denied")),
                "transport=\"messages\"",
            ),
            (reach(None, Some("denied")), "ranks copy"),
        ] {
            let is_told = |text: &str| text.contains(word) && text.contains("(denied");
            assert!(
                matches!(&outcome, Outcome::Lacks(text) if is_told(text)),
                "{outcome:?}"
            );
        }
    }

    #[test]
    fn settings_in_words() {
        assert_eq!(chosen("always [madvise] never\n"), Some("madvise"));
        assert_eq!(chosen("always madvise"), None);
        let works = |private, shared| matches!(in_words(private, shared), Outcome::Works(_));
        assert!(works(Some("always"), Some("never")) && works(Some("madvise"), None));
        assert!(!works(Some("never"), Some("always")) && !works(None, None));
    }
}
