//! A target is whole or unchanged before, during and after a write.

use crate::common;
use std::path::Path;

use crate::common::*;
use penstock_arrays::{ArraySchema, ElementType, Format, Keys, Pending, Storage, StoredArray};
use penstock_engine::Kind;
use serde_json::{Value, json};

fn of(disk: Storage) -> (ArraySchema, Vec<u8>) {
    let schema = schema(&[5, 4], ElementType::F8, disk);
    let values = values(&schema, 1);
    (schema, values)
}

fn forms() -> Vec<Storage> {
    vec![
        chunks(&[2, 2], None, "none"),
        chunks(&[4, 4], Some(&[2, 2]), "zstd"),
        listed(&[1, 2, 2], &[2, 5], None, "none"),
        flat(Format::Raw),
        flat(Format::Npy),
        parts("BLOCK,*", &[2]),
    ]
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn kind_of(path: &Path, schema: &ArraySchema) -> Kind {
    Pending::create(path, schema, Keys::Nested)
        .err()
        .expect("must be refused")
        .kind
}

#[test]
fn nothing_is_seen_before_the_commit_and_nothing_is_left_of_what_is_given_up() {
    for disk in forms() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run");
        let (schema, values) = of(disk);
        let pending = write_pending(&path, &schema, &values, 2).unwrap();
        assert_eq!(
            StoredArray::open(&path, None).err().unwrap().kind,
            Kind::Missing
        );
        drop(pending);
        assert!(names(directory.path()).is_empty());
        write_pending(&path, &schema, &values, 2)
            .unwrap()
            .abort()
            .unwrap();
        assert!(names(directory.path()).is_empty());
    }
}

#[test]
fn the_old_stays_until_the_new_is_whole() {
    for disk in forms() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run");
        let (schema, old) = of(disk);
        write(&path, &schema, &old).unwrap();
        let before = snapshot(directory.path());
        let new = values(&schema, 2);
        let pending = write_pending(&path, &schema, &new, 3).unwrap();
        assert_eq!(read(&path).unwrap(), old);
        drop(pending);
        assert!(snapshot(directory.path()) == before);
        let pending = write_pending(&path, &schema, &new, 1).unwrap();
        pending.commit(true).unwrap();
        assert_eq!(read(&path).unwrap(), new);
        assert_eq!(
            names(directory.path()).len(),
            if schema.disk == flat(Format::Raw) {
                2
            } else {
                1
            }
        );
    }
}

#[test]
fn an_array_of_another_shape_leaves_no_old_chunk() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.zarr");
    let big = schema(&[8, 8], ElementType::F8, chunks(&[2, 2], None, "none"));
    write(&path, &big, &values(&big, 1)).unwrap();
    let small = schema(&[2], ElementType::U1, chunks(&[1], None, "zstd"));
    write(&path, &small, &[7, 8]).unwrap();
    assert_eq!(names(&path.join("u/c")), ["0", "1"]);
    assert_eq!(read(&path).unwrap(), [7, 8]);
}

#[test]
fn other_arrays_and_the_group_stay_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.zarr");
    let (mut schema, values) = of(chunks(&[2, 2], None, "none"));
    write(&path, &schema, &values).unwrap();
    // Another tool gives the group attributes and consolidates its metadata.
    let group = json!({
        "zarr_format": 3, "node_type": "group", "attributes": { "title": "x" },
        "consolidated_metadata": { "kind": "inline", "must_understand": false, "metadata": {} },
    });
    std::fs::write(path.join("zarr.json"), group.to_string()).unwrap();
    let before = snapshot(&path.join("u"));
    schema.name = "v".to_string();
    let pending = write_pending(&path, &schema, &values, 2).unwrap();
    assert_eq!(names(&path), ["u", "zarr.json"]);
    pending.commit(true).unwrap();
    assert_eq!(names(&path), ["u", "v", "zarr.json"]);
    assert_eq!(names(directory.path()), ["run.zarr"]);
    assert!(snapshot(&path.join("u")) == before);
    let group: Value =
        serde_json::from_slice(&std::fs::read(path.join("zarr.json")).unwrap()).unwrap();
    assert_eq!(group["attributes"]["title"], "x");
    let nodes = group["consolidated_metadata"]["metadata"]
        .as_object()
        .unwrap();
    assert_eq!(nodes.len(), 2);
    assert!(nodes.contains_key("u") && nodes.contains_key("v"));
    // With two arrays, a read must name one.
    let error = StoredArray::open(&path, None).err().unwrap();
    assert!(
        error.kind == Kind::Schema && error.cause.contains("u, v"),
        "{error}"
    );
    let error = StoredArray::open(&path, Some("w")).err().unwrap();
    assert!(
        error.kind == Kind::Missing && error.cause.contains("u, v"),
        "{error}"
    );
    assert_eq!(
        StoredArray::open(&path, Some("v")).unwrap().schema().name,
        "v"
    );
    assert_eq!(
        StoredArray::open(&path.join("v"), None)
            .unwrap()
            .schema()
            .name,
        "v"
    );
}

#[test]
fn two_arrays_of_a_new_group_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.zarr");
    let (u, values) = of(chunks(&[2, 2], None, "none"));
    let v = ArraySchema {
        name: "v".to_string(),
        ..u.clone()
    };
    let first = write_pending(&path, &u, &values, 2).unwrap();
    let second = write_pending(&path, &v, &values, 2).unwrap();
    second.commit(true).unwrap();
    first.commit(true).unwrap();
    assert_eq!(names(&path), ["u", "v", "zarr.json"]);
    assert_eq!(names(directory.path()), ["run.zarr"]);
}

/// Of several that find no group at the moment of their commits, one makes it, and the others put
/// their arrays into that one.
#[test]
fn arrays_of_a_new_group_are_committed_at_the_same_moment() {
    let names_of_arrays = ["t", "u", "v", "w"];
    for round in 0..100 {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run.zarr");
        let (schema, values) = of(chunks(&[2, 2], None, "none"));
        let ready = std::sync::Barrier::new(names_of_arrays.len());
        std::thread::scope(|scope| {
            for name in names_of_arrays {
                let schema = ArraySchema {
                    name: name.to_string(),
                    ..schema.clone()
                };
                let pending = write_pending(&path, &schema, &values, 1).unwrap();
                let ready = &ready;
                scope.spawn(move || {
                    ready.wait();
                    pending.commit(round % 2 == 0).unwrap();
                });
            }
        });
        assert_eq!(names(&path), ["t", "u", "v", "w", "zarr.json"]);
        assert_eq!(names(directory.path()), ["run.zarr"]);
        let group = std::fs::read_to_string(path.join("zarr.json")).unwrap();
        let group: Value = serde_json::from_str(&group).unwrap();
        let known = &group["consolidated_metadata"]["metadata"];
        for name in names_of_arrays {
            assert!(known[name].is_object(), "{name} is not in {known}");
        }
    }
}

#[test]
fn two_jobs_that_write_the_same_are_told() {
    for disk in forms() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run");
        let (schema, values) = of(disk);
        let first = write_pending(&path, &schema, &values, 1).unwrap();
        let error = Pending::create(&path, &schema, Keys::Nested).err().unwrap();
        assert_eq!(error.kind, Kind::Busy);
        assert!(
            error.cause.contains(&std::process::id().to_string()),
            "{error}"
        );
        first.commit(true).unwrap();
        write(&path, &schema, &values).unwrap();
        assert_eq!(read(&path).unwrap(), values);
    }
}

#[test]
fn of_many_at_once_one_writes_and_the_others_are_busy() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.npy");
    let (schema, _) = of(flat(Format::Npy));
    let ready = std::sync::Barrier::new(8);
    let made: Vec<_> = std::thread::scope(|scope| {
        let make = || {
            ready.wait();
            Pending::create(&path, &schema, Keys::Nested)
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(made.iter().filter(|made| made.is_ok()).count(), 1);
    assert!(
        made.iter()
            .flat_map(|made| made.as_ref().err())
            .all(|e| e.kind == Kind::Busy)
    );
}

#[test]
fn remains_of_a_killed_write_go_with_the_next() {
    for disk in forms() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run");
        let (schema, values) = of(disk);
        let pending = write_pending(&path, &schema, &values, 1).unwrap();
        let name = names(directory.path()).remove(0);
        assert!(
            name.starts_with(".run~") && name.ends_with(".penstock"),
            "{name}"
        );
        // The remains have a lock file that nobody locks, as after a kill.
        let (own, remains) = (directory.path().join(&name), directory.path().join("copy"));
        copy(&own, &remains);
        std::fs::write(directory.path().join(".run~keep"), "").unwrap();
        pending.abort().unwrap();
        std::fs::rename(&remains, &own).unwrap();
        std::fs::write(own.join("remains"), "").unwrap();
        write(&path, &schema, &values).unwrap();
        assert!(!own.exists());
        assert!(directory.path().join(".run~keep").exists());
        assert_eq!(read(&path).unwrap(), values);
    }
}

fn copy(from: &Path, to: &Path) {
    if !from.is_dir() {
        std::fs::copy(from, to).unwrap();
        return;
    }
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        copy(&entry.path(), &to.join(entry.file_name()));
    }
}

#[test]
fn what_stands_in_the_way_is_not_touched() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let (zarr, values) = of(chunks(&[2, 2], None, "none"));
    let (raw, npy) = (of(flat(Format::Raw)).0, of(flat(Format::Npy)).0);
    let split = of(parts("BLOCK,*", &[2])).0;
    std::fs::write(at("file"), "text").unwrap();
    std::fs::create_dir(at("directory")).unwrap();
    std::fs::write(at("directory/notes"), "text").unwrap();
    std::fs::create_dir(at("second")).unwrap();
    std::fs::write(at("second/.zgroup"), r#"{"zarr_format":2}"#).unwrap();
    std::fs::create_dir(at("broken")).unwrap();
    std::fs::write(at("broken/zarr.json"), "{").unwrap();
    write(&at("g"), &zarr, &values).unwrap();
    std::fs::create_dir(at("g/v")).unwrap();
    std::fs::write(at("g/v/notes"), "text").unwrap();
    write(&at("p"), &split, &values).unwrap();
    std::fs::write(at("theirs.json"), r#"{"a":1}"#).unwrap();
    let before = snapshot(directory.path());
    let v = |schema: &ArraySchema| ArraySchema {
        name: "v".to_string(),
        ..schema.clone()
    };
    for (path, schema, kind) in [
        ("file", &zarr, Kind::Schema),
        ("file", &split, Kind::Schema),
        ("directory", &zarr, Kind::Schema),
        ("directory", &split, Kind::Schema),
        ("directory", &raw, Kind::Schema),
        ("directory", &npy, Kind::Schema),
        ("second", &zarr, Kind::Schema),
        ("broken", &zarr, Kind::Damaged),
        ("g/u", &zarr, Kind::Schema),
        ("g", &v(&zarr), Kind::Schema),
        ("g", &npy, Kind::Schema),
        ("p", &v(&split), Kind::Schema),
        ("p", &zarr, Kind::Schema),
        ("theirs", &raw, Kind::Schema),
        ("nowhere/run", &zarr, Kind::Missing),
        ("nowhere/run", &npy, Kind::Missing),
    ] {
        assert_eq!(kind_of(&at(path), schema), kind, "{path} {:?}", schema.disk);
    }
    assert!(snapshot(directory.path()) == before);
    let error = Pending::create(&at("nowhere/run"), &zarr, Keys::Nested)
        .err()
        .unwrap();
    assert!(error.path.unwrap().ends_with("nowhere"));
    std::fs::write(at("p/notes"), "text").unwrap();
    assert_eq!(kind_of(&at("p"), &split), Kind::Schema);
}

#[test]
fn links_are_followed_and_empty_directories_filled() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    for (number, disk) in forms().into_iter().enumerate() {
        let (schema, values) = of(disk);
        let (real, link) = (at(&format!("real{number}")), at(&format!("link{number}")));
        write(&real, &schema, &values).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let new = common::values(&schema, 2);
        write(&link, &schema, &new).unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        if schema.disk != flat(Format::Raw) {
            assert_eq!(read(&link).unwrap(), new);
        }
        assert_eq!(read(&real).unwrap(), new);
    }
    for (name, disk) in [
        ("a", chunks(&[2, 2], None, "none")),
        ("b", parts("BLOCK,*", &[2])),
    ] {
        let (schema, values) = of(disk);
        std::fs::create_dir(at(name)).unwrap();
        write(&at(name), &schema, &values).unwrap();
        assert_eq!(read(&at(name)).unwrap(), values);
    }
}

#[test]
fn a_raw_file_replaced_by_a_npy_file_loses_its_schema_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    let (raw, values) = of(flat(Format::Raw));
    write(&path, &raw, &values).unwrap();
    assert_eq!(names(directory.path()), ["run", "run.json"]);
    let (npy, _) = of(flat(Format::Npy));
    write(&path, &npy, &values).unwrap();
    assert_eq!(names(directory.path()), ["run"]);
    assert_eq!(read(&path).unwrap(), values);
}

#[test]
fn a_full_disk_is_full_and_leaves_the_old() {
    let Some(mount) = Tmpfs::mount("size=256k") else {
        return;
    };
    for disk in [
        chunks(&[64, 64], None, "none"),
        chunks(&[64, 64], None, "crc32c"),
        chunks(&[128, 128], Some(&[64, 64]), "none"),
        flat(Format::Raw),
        flat(Format::Npy),
        parts("BLOCK,*", &[4]),
    ] {
        let directory = mount.path().join("d");
        std::fs::create_dir(&directory).unwrap();
        let path = directory.join("run");
        let small = schema(&[16, 16], ElementType::F8, small(&disk));
        let old = values(&small, 1);
        write(&path, &small, &old).unwrap();
        let before = snapshot(&directory);
        let big = schema(&[256, 256], ElementType::F8, disk);
        let error = write(&path, &big, &values(&big, 2)).unwrap_err();
        assert_eq!(error.kind, Kind::Full, "{error}");
        assert!(error.path.is_some());
        assert!(snapshot(&directory) == before);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}

/// A disk schema of the same form for an array of 16 x 16.
fn small(disk: &Storage) -> Storage {
    match disk {
        Storage::Chunks { .. } => chunks(&[8, 8], None, "none"),
        other => other.clone(),
    }
}

#[test]
fn a_read_only_file_system_is_read_only() {
    let Some(mount) = Tmpfs::mount("size=1m") else {
        return;
    };
    let path = mount.path().join("run");
    let (schema, values) = of(chunks(&[2, 2], None, "none"));
    write(&path, &schema, &values).unwrap();
    mount.remount("ro");
    for disk in forms() {
        assert_eq!(
            kind_of(&mount.path().join("new"), &of(disk).0),
            Kind::ReadOnly
        );
    }
    assert_eq!(kind_of(&path, &schema), Kind::ReadOnly);
    assert_eq!(read(&path).unwrap(), values);
}

/// A small file system of its own, where tests may mount.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn mount(options: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let done = run(&["-t", "tmpfs", "-o", options, "tmpfs"], directory.path());
        if !done {
            eprintln!("cannot mount a tmpfs here: not tested");
        }
        done.then_some(Self(directory))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn remount(&self, options: &str) {
        assert!(run(&["-o", &format!("remount,{options}")], self.path()));
    }
}

fn run(options: &[&str], path: &Path) -> bool {
    let mount = std::process::Command::new("mount")
        .args(options)
        .arg(path)
        .output();
    mount.is_ok_and(|output| output.status.success())
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount")
            .arg(self.path())
            .status();
    }
}
