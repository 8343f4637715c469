//! Tests of `penstock selftest`: what it says, what it leaves, what it refuses.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// The names of all checks, in their order.
const CHECKS: [&str; 12] = [
    "file system",
    "direct I/O",
    "arrays",
    "checksums",
    "kill",
    "copy",
    "servers",
    "shared memory",
    "huge pages",
    "MPI",
    "MPI-IO library",
    "FUSE",
];

/// The checks that no machine may fail.
const NEEDED: [&str; 6] = [
    "file system",
    "arrays",
    "checksums",
    "kill",
    "copy",
    "servers",
];

/// Runs the self-test in a directory, in an environment without other Penstocks.
fn selftest(directory: &Path, options: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_penstock"))
        .arg("selftest")
        .arg(directory)
        .args(options)
        .env_remove("PENSTOCK_MPIIO_LIBRARY")
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn assert_empty(directory: &Path) {
    let left: Vec<_> = directory.read_dir().unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_line_for_each_check_and_nothing_left() {
    let directory = tempfile::tempdir().unwrap();
    let output = selftest(directory.path(), &[], &[]);
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}{errors}");
    assert_eq!(errors, "");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), CHECKS.len() + 1, "{said}");
    for (line, name) in lines.iter().zip(CHECKS) {
        let rest = line
            .strip_prefix(name)
            .unwrap_or_else(|| panic!("{name}: {line}"));
        let is_well = ["ok ", "not here "].map(|word| rest.trim_start().starts_with(word));
        assert!(is_well.contains(&true), "{line}");
        let works = rest.trim_start().starts_with("ok ");
        assert!(
            works || !NEEDED.contains(&name) || name == "file system",
            "{line}"
        );
    }
    let last = lines[CHECKS.len()];
    assert!(
        last.starts_with("penstock ") && last.ends_with(", 0 FAILED"),
        "{last}"
    );
    assert_empty(directory.path());
}

#[test]
fn json_says_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let output = selftest(directory.path(), &["--json"], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = told["checks"].as_array().unwrap();
    let names: Vec<&str> = checks
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, CHECKS);
    let count = |word| checks.iter().filter(|one| one["result"] == word).count();
    assert_eq!(told["ok"], count("ok"));
    assert_eq!(told["not_here"], count("not here"));
    assert_eq!((&told["failed"], count("failed")), (&0.into(), 0));
    for one in checks {
        assert!(one["seconds"].as_f64().unwrap() < 30.0, "{one}");
        assert!(!one["detail"].as_str().unwrap().is_empty(), "{one}");
    }
    let there = directory.path().canonicalize().unwrap();
    assert_eq!(told["directory"], there.to_str().unwrap());
    assert_empty(directory.path());
}

#[test]
fn what_a_user_has_named_and_is_not_there_has_failed() {
    let directory = tempfile::tempdir().unwrap();
    let options = ["--json", "--mpiexec", "/nonexistent/mpiexec -n 2"];
    let named = [("PENSTOCK_MPIIO_LIBRARY", "/nonexistent/library.so")];
    let output = selftest(directory.path(), &options, &named);
    assert_eq!(output.status.code(), Some(1));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["failed"], 2, "{told}");
    for (name, words) in [
        ("MPI", "/nonexistent/mpiexec"),
        (
            "MPI-IO library",
            "PENSTOCK_MPIIO_LIBRARY is /nonexistent/library.so",
        ),
    ] {
        let mut checks = told["checks"].as_array().unwrap().iter();
        let check = checks.find(|one| one["name"] == name).unwrap();
        assert_eq!(check["result"], "failed", "{check}");
        assert!(check["detail"].as_str().unwrap().contains(words), "{check}");
    }
    assert_empty(directory.path());
}

/// The example of docs/selftest.md has the lines that are said, but for numbers and places.
#[test]
fn the_page_shows_what_is_said() {
    let page = include_str!("../../../../docs/selftest.md");
    let example = page.split("```text\n").nth(1).unwrap();
    let example = example.split("```").next().unwrap();
    let lines: Vec<&str> = example.lines().skip(1).collect();
    assert_eq!(lines.len(), CHECKS.len() + 1);
    let directory = tempfile::tempdir().unwrap();
    let output = selftest(directory.path(), &[], &[]);
    let words = |line: &str| -> Vec<String> {
        let words = line.split_whitespace();
        let words = words.filter(|word| !word.contains(|char: char| char.is_ascii_digit()));
        words.map(str::to_owned).collect()
    };
    for ((line, shown), name) in text(&output.stdout).lines().zip(lines).zip(CHECKS) {
        assert!(
            line.starts_with(name) && shown.starts_with(name),
            "{line}\n{shown}"
        );
        // What depends on the machine is said in other words elsewhere.
        if NEEDED[1..].contains(&name) {
            assert_eq!(words(line), words(shown));
        }
    }
    for name in CHECKS {
        let may_be_missing = !NEEDED[1..].contains(&name);
        assert_eq!(
            page.contains(&format!("\n| {name} | ")),
            may_be_missing,
            "{name}"
        );
    }
}

/// A socket's path is short, wherever the directory is.
#[test]
fn a_directory_may_be_deep() {
    let directory = tempfile::tempdir().unwrap();
    let deep = directory
        .path()
        .join("deep".repeat(20))
        .join("deeper".repeat(20));
    std::fs::create_dir_all(&deep).unwrap();
    let output = selftest(&deep, &[], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    assert_empty(&deep);
}

#[test]
fn a_directory_that_cannot_be_written_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |place: &Path| {
        let output = selftest(place, &[], &[]);
        assert_ne!(output.status.code(), Some(0));
        assert_eq!(output.stdout, b"");
        let errors = text(&output.stderr).to_owned();
        assert_eq!(errors.lines().count(), 1, "{errors}");
        assert!(errors.starts_with("penstock: error: cannot "), "{errors}");
        assert!(errors.contains(place.to_str().unwrap()), "{errors}");
    };
    refused(&directory.path().join("missing"));
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    refused(&file);
    let is_root = directory.path().metadata().unwrap().uid() == 0;
    if is_root {
        return; // who may write everywhere
    }
    let closed = directory.path().join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o500)).unwrap();
    refused(&closed);
}

/// The end of the self-test by a signal is that of all that it has started.
#[test]
fn a_signal_ends_it_and_nothing_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_penstock"))
        .arg("selftest")
        .arg(directory.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // The writer that is killed again and again has begun.
    let has_begun = || {
        let mut there = directory.path().read_dir().unwrap().flatten();
        there.any(|entry| entry.path().join("state.zarr").exists())
    };
    while !has_begun() {
        assert_eq!(child.try_wait().unwrap(), None);
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let sent = Command::new("sh")
        .args(["-c", &format!("kill -INT {}", child.id())])
        .status()
        .unwrap();
    assert!(sent.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_empty(directory.path());
}
