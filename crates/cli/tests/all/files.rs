//! Tests of `penstock fs` as users run it.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// A directory with a volume of three servers in it, and a local file.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        let made = place.said(&["create-volume", "v", "--servers", "3", "--block", "4KiB"]);
        assert_eq!(made, "made v with 3 servers, blocks of 4096 bytes\n");
        std::fs::write(place.path("local"), data()).unwrap();
        place
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_penstock"))
            .arg("fs")
            .args(arguments)
            .current_dir(self.0.path())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// The output of a good command.
    fn bytes(&self, arguments: &[&str]) -> Vec<u8> {
        let output = self.run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        assert_eq!(errors, "", "{arguments:?}");
        output.stdout
    }

    fn said(&self, arguments: &[&str]) -> String {
        String::from_utf8(self.bytes(arguments)).unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.said(arguments)).unwrap()
    }

    /// The one line of a bad command.
    fn refused(&self, arguments: &[&str], code: i32) -> String {
        let output = self.run(arguments);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        assert_eq!(output.stdout, b"", "{arguments:?}");
        assert_eq!(errors.lines().count(), 1, "{arguments:?}: {errors}");
        assert!(errors.starts_with("penstock: error: "), "{errors}");
        errors
    }

    fn free(&self) -> u64 {
        self.json(&["df", "v", "--json"])["free_bytes"]
            .as_u64()
            .unwrap()
    }
}

fn data() -> Vec<u8> {
    (0..50_001u32).map(|n| (n * 31 % 253) as u8).collect()
}

#[test]
fn names_and_attributes() {
    let place = Place::new();
    assert_eq!(place.said(&["mkdir", "v", "-p", "/runs/deep", "/runs"]), "");
    let file = [
        "create",
        "v",
        "/runs/mesh",
        "--cells",
        "4",
        "--bsu",
        "1KiB",
        "--base",
        "1",
    ];
    place.said(&[&file[..], &["--mode", "640"]].concat());
    place.said(&["create", "v", "/plain"]);
    assert_eq!(place.said(&["ls", "v", "/runs"]), "deep/\nmesh\n");
    assert_eq!(
        place.said(&["ls", "v", "-R"]),
        "/:\nplain\nruns/\n\n/runs:\ndeep/\nmesh\n\n/runs/deep:\n"
    );
    let long = place.said(&["ls", "v", "-l", "/runs"]);
    let lines: Vec<&str> = long.lines().collect();
    assert!(
        lines[0].starts_with("drwxr-xr-x") && lines[0].ends_with(" deep/"),
        "{long}"
    );
    assert!(
        lines[1].starts_with("-rw-r-----") && lines[1].ends_with(" mesh"),
        "{long}"
    );
    assert_eq!(place.said(&["ls", "v", "/runs/mesh"]), "mesh\n");
    let found = place.json(&["stat", "v", "/runs/mesh", "--json"]);
    let number = |name: &str| found[name].as_u64().unwrap();
    assert_eq!(
        (number("cells"), number("bsu"), number("base")),
        (4, 1024, 1)
    );
    assert_eq!(
        (&found["kind"], &found["mode"]),
        (&"file".into(), &"640".into())
    );
    let plain = place.json(&["stat", "v", "/plain", "--json"]);
    assert_eq!(
        (plain["cells"].as_u64(), plain["bsu"].as_u64()),
        (Some(3), Some(4096))
    );

    place.said(&["mv", "v", "/runs", "/old"]);
    place.said(&["chmod", "v", "600", "/old/mesh", "/plain"]);
    let user = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(place.path("v")).unwrap());
    place.said(&["chown", "v", ":77", "/old/mesh"]);
    place.said(&["chown", "v", &user.to_string(), "/old/mesh"]);
    place.said(&["resize", "v", "/old/mesh", "10"]);
    let all = place.json(&["ls", "v", "-R", "--json"]);
    let all = all.as_array().unwrap();
    let paths: Vec<&str> = all
        .iter()
        .map(|one| one["path"].as_str().unwrap())
        .collect();
    assert_eq!(paths, ["/old", "/plain", "/old/deep", "/old/mesh"]);
    assert_eq!(
        (&all[3]["mode"], &all[3]["group"]),
        (&"600".into(), &77.into())
    );
    assert_eq!(all[3]["bytes"], 40);
    assert!(
        place
            .said(&["stat", "v", "/old/mesh"])
            .contains("\ncell 3       10 bytes\n")
    );

    assert!(
        place
            .refused(&["rm", "v", "/old"], 1)
            .contains("/old: the directory has 2 entries")
    );
    place.said(&["rm", "v", "-r", "/old"]);
    place.said(&["rm", "v", "/plain"]);
    assert_eq!(place.said(&["ls", "v"]), "");
}

#[test]
fn import_export_and_cat() {
    let place = Place::new();
    let before = place.free();
    let said = place.said(&[
        "import", "v", "local", "/mesh", "--cells", "4", "--bsu", "100",
    ]);
    assert!(
        said.starts_with("imported 50001 bytes in ") && said.ends_with(" MB/s\n"),
        "{said}"
    );
    assert!(place.free() < before);
    for memory in ["1", "777", "1GB"] {
        if memory != "1" {
            assert_eq!(
                place.bytes(&["cat", "v", "/mesh", "--memory", memory]),
                data()
            );
        }
    }
    // A subfile a cell: every fourth BSU.
    let cell = place.bytes(&["cat", "v", "/mesh", "--view", "1,1,1,4", "--subfile", "1"]);
    let expected: Vec<u8> = data()
        .chunks(100)
        .skip(1)
        .step_by(4)
        .flatten()
        .copied()
        .collect();
    assert_eq!(cell, expected);
    // In the order "column" all of a cell comes before the next.
    let column = place.bytes(&["cat", "v", "/mesh", "--order", "column"]);
    let first: Vec<u8> = data().chunks(100).step_by(4).flatten().copied().collect();
    assert_eq!(column[..first.len()], first);
    assert!(
        place
            .refused(
                &["cat", "v", "/mesh", "--order", "column", "--memory", "1000"],
                2
            )
            .contains("takes more than the 1000 bytes of memory")
    );
    // What one view has exported, it imports.
    let view = [
        "--view",
        "2,1,2,2",
        "--subfile",
        "1",
        "--order",
        "row",
        "--memory",
        "999",
    ];
    let said = place.said(&[&["export", "v", "/mesh", "part"][..], &view].concat());
    assert!(said.starts_with("exported "), "{said}");
    let new = [
        "import", "v", "part", "/copy", "--cells", "4", "--bsu", "100",
    ];
    place.said(&[&new[..], &view].concat());
    let part = std::fs::read(place.path("part")).unwrap();
    assert_eq!(
        place.bytes(&[&["cat", "v", "/copy"][..], &view].concat()),
        part
    );
    // A local file stays, unless it may go.
    assert!(
        place
            .refused(&["export", "v", "/mesh", "part"], 1)
            .contains("--overwrite")
    );
    assert_eq!(std::fs::read(place.path("part")).unwrap(), part);
    place.said(&["export", "v", "/mesh", "part", "--overwrite"]);
    assert_eq!(std::fs::read(place.path("part")).unwrap(), data());
    assert!(
        place
            .refused(&["export", "v", "/none", "none"], 1)
            .contains("/none")
    );
    let mut names: Vec<_> = std::fs::read_dir(place.0.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["local", "part", "v"]);
    // Ghost cells: five cells in blocks of two.
    let said = place.said(&[
        "import", "v", "local", "/g", "--cells", "5", "--view", "1,1,2,1",
    ]);
    assert!(said.contains("belong to ghost cells or holes"), "{said}");
}

#[test]
fn checkpoint_and_rollback() {
    let place = Place::new();
    place.said(&["import", "v", "local", "/mesh"]);
    assert!(
        place
            .refused(&["rollback", "v", "/mesh"], 1)
            .contains("there is no checkpoint")
    );
    let none = ["cat", "v", "/mesh", "--checkpoint"];
    assert!(place.refused(&none, 1).contains("there is no checkpoint"));
    place.said(&["checkpoint", "v", "/mesh"]);
    place.said(&["resize", "v", "/mesh", "0"]);
    assert_eq!(place.bytes(&["cat", "v", "/mesh"]), b"");
    assert_eq!(
        place.bytes(&[&none[..], &["--memory", "777"]].concat()),
        data()
    );
    place.said(&["export", "v", "/mesh", "kept", "--checkpoint"]);
    assert_eq!(std::fs::read(place.path("kept")).unwrap(), data());
    place.said(&["rollback", "v", "/mesh"]);
    assert_eq!(place.bytes(&["cat", "v", "/mesh"]), data());
}

#[test]
fn space_and_quotas() {
    let place = Place::new();
    let space = place.json(&["df", "v", "--json"]);
    assert_eq!(
        (&space["used_bytes"], &space["servers"]),
        (&0.into(), &3.into())
    );
    assert!(place.said(&["df", "v"]).contains("\nservers    3\n"));
    assert_eq!(
        place.said(&["quota", "v", "7"]),
        "user 7: 0 bytes, no limit\n"
    );
    place.said(&["quota", "v", "7", "8KiB"]);
    assert_eq!(
        place.json(&["quota", "v", "7", "--json"])["limit_bytes"],
        8192
    );
    assert_eq!(
        place.said(&["quota", "v", "7"]),
        "user 7: 0 bytes, 8192 bytes at most\n"
    );
    place.said(&["quota", "v", "7", "none"]);
    assert!(place.json(&["quota", "v", "7", "--json"])["limit_bytes"].is_null());
}

#[test]
fn a_check_finds_a_block_that_has_changed() {
    let place = Place::new();
    place.said(&[
        "import", "v", "local", "/mesh", "--cells", "1", "--base", "2",
    ]);
    let said = place.said(&["fsck", "v", "--data"]);
    assert!(said.ends_with("13 read: nothing was found\n"), "{said}");
    flip(&place.path("v/server-2/blocks-0"));
    assert!(
        place
            .said(&["fsck", "v"])
            .ends_with(": nothing was found\n")
    );
    let found = place.run(&["fsck", "v", "--data"]);
    assert_eq!(found.status.code(), Some(1));
    let said = String::from_utf8(found.stdout).unwrap();
    assert!(
        said.starts_with("found: /mesh: block 0 of cell 0 on server 2, at place "),
        "{said}"
    );
    assert!(said.ends_with(": 1 fault found\n"), "{said}");
    let found = place.run(&["fsck", "v", "--data", "--json", "--mend"]);
    assert_eq!(found.status.code(), Some(1));
    let found: Value = serde_json::from_slice(&found.stdout).unwrap();
    assert_eq!(found["findings"].as_array().unwrap().len(), 1);
    assert_eq!(found["not_mended"], found["findings"]);
    assert!(
        place
            .refused(&["cat", "v", "/mesh"], 1)
            .contains("is damaged")
    );
}

/// Changes the first byte that is not zero. Block files are sparse: only data are read.
fn flip(path: &Path) {
    use std::io::{Read, Seek, SeekFrom, Write};
    let mut file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let bytes = file.metadata().unwrap().len();
    let end = file.seek(SeekFrom::End(0)).unwrap();
    assert_eq!(bytes, end);
    // The data are the last in the file.
    let from = end - (13 * 4096).min(end);
    file.seek(SeekFrom::Start(from)).unwrap();
    let mut data = Vec::new();
    file.read_to_end(&mut data).unwrap();
    let at = data.iter().position(|&byte| byte != 0).unwrap();
    file.seek(SeekFrom::Start(from + at as u64)).unwrap();
    file.write_all(&[data[at] ^ 1]).unwrap();
}

#[test]
fn bad_input_gets_one_line() {
    let place = Place::new();
    for (arguments, code, cause) in [
        (&["ls", "w"][..], 1, "there is no volume"),
        (&["create-volume", "v"], 1, "there is a volume"),
        (&["create-volume", "w", "--block", "0"], 2, "block_bytes"),
        (&["create-volume", "w", "--block", "much"], 2, "is no size"),
        (&["ls", "v", "runs"], 2, "a path begins with '/'"),
        (&["ls", "v", "/runs"], 1, "/runs: there is nothing"),
        (&["mkdir", "v", "/a/b"], 1, "/a: there is nothing"),
        (&["create", "v", "/f", "--cells", "0"], 2, "0 cells"),
        (
            &["create", "v", "/f", "--mode", "999"],
            2,
            "permission bits",
        ),
        (
            &["create", "v", "/f", "--base", "3"],
            2,
            "there is no base server 3",
        ),
        (&["chown", "v", "me", "/f"], 2, "is no number of a user"),
        (
            &["cat", "v", "/", "--view", "1,1"],
            2,
            "a view is four numbers",
        ),
        (&["cat", "v", "/", "--view", "1,0,1,1"], 2, "view"),
        (&["cat", "v", "/"], 2, "it is a directory"),
        (&["import", "v", "none", "/f"], 1, "none"),
        (&["fsck", "w"], 1, "there is no volume"),
    ] {
        let said = place.refused(arguments, code);
        assert!(said.contains(cause), "{arguments:?}: {said}");
    }
    assert_eq!(place.said(&["ls", "v"]), "");
}
