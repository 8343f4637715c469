//! What a mount needs of names and attributes: symbolic links, renames that replace, sizes in
//! canonical order, times, sticky directories, extended attributes.

use penstock_engine::Kind;
use penstock_files::{
    Client, ClientState, EntryKind, FileChange, Identity, NewAttributes, NewTime, ObjectKind,
    Replacement,
};

use crate::simulated::{self, Program, Volume, open, path};

fn kind<T>(result: penstock_engine::Result<T>) -> Kind {
    result
        .err()
        .map_or_else(|| panic!("it went well"), |error| error.kind)
}

/// The state of a client that acts for another user.
fn acting(me: &Program, user: u32, groups: &[u32]) -> ClientState {
    let mut state = me.state.clone();
    state.who = Identity::new(user, 50 + user, groups.to_vec());
    state
}

fn extended(name: &str, value: Option<&[u8]>) -> NewAttributes {
    NewAttributes {
        extended: Some((name.to_string(), value.map(<[u8]>::to_vec))),
        ..NewAttributes::default()
    }
}

#[test]
fn symbolic_links() {
    Volume::default().run(|me| async move {
        let client = me.client();
        let target = "../some where".to_string();
        client
            .make_symlink(path("/l"), target.clone())
            .await
            .unwrap();
        let found = client.details(&path("/l")).await.unwrap();
        assert_eq!(found.object.kind, ObjectKind::Symlink(target));
        assert_eq!((found.size(), found.links), (13, 1));
        let entries = client.list(&path("/")).await.unwrap();
        assert_eq!(entries[0].1.kind, EntryKind::Symlink);
        assert_eq!(
            kind(client.attach(&path("/l"), simulated::BOTH).await),
            Kind::Schema
        );
        assert_eq!(kind(client.list(&path("/l")).await), Kind::Schema);
        let below = client.make_directory(path("/l/d"), 0o755).await;
        assert_eq!(kind(below), Kind::Schema);
        for target in [String::new(), "x".repeat(4096), "a\0b".to_string()] {
            let made = client.make_symlink(path("/m"), target).await;
            assert_eq!(kind(made), Kind::Schema);
        }
        client.rename(&path("/l"), &path("/m")).await.unwrap();
        client.remove(&path("/m")).await.unwrap();
    });
}

#[test]
fn renames_replace_what_is_there() {
    let left = Volume::default().run(|me| async move {
        let client = me.client();
        for name in ["/a", "/b", "/c"] {
            let file = me.create(name, 3, 10).await.unwrap();
            let whole = open(&file, [1, 1, 1, 1], 0);
            me.write(&whole, 0, name.as_bytes()).await.unwrap();
            client.detach(&file).await.unwrap();
        }
        let [a, b, c, kept] = ["/a", "/b", "/c", "/kept"].map(path);
        assert_eq!(kind(client.rename(&a, &b).await), Kind::Exists);
        client.replace(&a, &b, Replacement::Removed).await.unwrap();
        assert_eq!(kind(client.stat(&a).await), Kind::Missing);
        client
            .replace(&b, &c, Replacement::Moved(kept.clone()))
            .await
            .unwrap();
        for (at, content) in [(&c, "/a"), (&kept, "/c")] {
            let file = client.attach(at, simulated::BOTH).await.unwrap();
            let whole = open(&file, [1, 1, 1, 1], 0);
            let (_, data) = me.read(&whole, 0, 2).await.unwrap();
            assert_eq!(data, content.as_bytes());
        }
        for name in ["/d", "/e", "/e/below"] {
            client.make_directory(path(name), 0o755).await.unwrap();
        }
        let [d, e] = ["/d", "/e"].map(path);
        let removed = || Replacement::Removed;
        assert_eq!(kind(client.replace(&d, &e, removed()).await), Kind::Exists);
        assert_eq!(kind(client.replace(&c, &d, removed()).await), Kind::Schema);
        assert_eq!(kind(client.replace(&d, &c, removed()).await), Kind::Schema);
        let root = Replacement::Moved(path("/"));
        assert_eq!(kind(client.replace(&c, &kept, root).await), Kind::Schema);
        client.replace(&e, &d, removed()).await.unwrap();
        let names = client.list(&path("/")).await.unwrap();
        let names: Vec<&str> = names.iter().map(|(name, _)| &name[..]).collect();
        assert_eq!(names, ["c", "d", "kept"]);
        assert_eq!(client.list(&d).await.unwrap().len(), 1);
    });
    left.check();
}

#[test]
fn sizes_and_times() {
    Volume::default().run(|me| async move {
        let client = me.client();
        let file = me.create("/f", 3, 10).await.unwrap();
        let at = path("/f");
        let made = client.details(&at).await.unwrap();
        assert_eq!((made.size(), made.modified()), (0, made.object.created));
        let column = open(&file, [1, 1, 1, 3], 2);
        me.write(&column, 12, b"x").await.unwrap();
        let written = client.details(&at).await.unwrap();
        // Byte 2 of BSU 1 of cell 2, which is BSU 5 of the file.
        assert_eq!(written.size(), 53);
        assert!(written.modified() > made.modified());
        assert_eq!(written.changed(), written.modified());
        let new = NewAttributes {
            accessed: Some(NewTime::At(5)),
            modified: Some(NewTime::At(7)),
            mode: Some(0o7604),
            ..NewAttributes::default()
        };
        client.set(&at, new).await.unwrap();
        let set = client.details(&at).await.unwrap();
        assert_eq!((set.object.accessed, set.modified()), (5, 7));
        assert_eq!(set.object.mode, 0o7604);
        me.write(&column, 0, b"y").await.unwrap();
        assert!(client.details(&at).await.unwrap().modified() > set.changed());
        for size in [47, 5, 100, 0, 31] {
            let change = FileChange::Truncate(size);
            client.change(&at, change).await.unwrap();
            assert_eq!(client.details(&at).await.unwrap().size(), size);
        }
        let whole = open(&file, [1, 1, 1, 1], 0);
        assert_eq!(me.read(&whole, 0, 31).await.unwrap(), (31, vec![0; 31]));
        let too_long = client.change(&at, FileChange::Truncate(u64::MAX)).await;
        assert_eq!(kind(too_long), Kind::Schema);
        let root = client.details(&path("/")).await.unwrap();
        client.make_directory(path("/d"), 0o2755).await.unwrap();
        let after = client.details(&path("/")).await.unwrap();
        assert!(after.modified() > root.modified());
        assert_eq!((root.links, after.links), (2, 3));
        client.rename(&path("/d"), &path("/e")).await.unwrap();
        assert_eq!(client.details(&path("/")).await.unwrap().links, 3);
        client.remove(&path("/e")).await.unwrap();
        assert_eq!(client.details(&path("/")).await.unwrap().links, 2);
    });
}

#[test]
fn users_have_their_own_permissions() {
    Volume::default().run(|me| async move {
        let owner = me.client();
        owner.make_directory(path("/tmp"), 0o1777).await.unwrap();
        let (seven, eight) = (acting(&me, 7, &[20]), acting(&me, 8, &[]));
        let seven = Client::new(&me.node, &seven);
        let eight = Client::new(&me.node, &eight);
        let at = path("/tmp/f");
        let made = seven.create(at.clone(), (1, 8, None), 0o644).await.unwrap();
        assert_eq!((made.owner, made.group), (7, 57));
        assert_eq!(kind(eight.remove(&at).await), Kind::ReadOnly);
        let away = eight.rename(&at, &path("/tmp/g")).await;
        assert_eq!(kind(away), Kind::ReadOnly);
        let group = |group| NewAttributes {
            group: Some(group),
            ..NewAttributes::default()
        };
        assert_eq!(kind(seven.set(&at, group(21)).await), Kind::ReadOnly);
        seven.set(&at, group(20)).await.unwrap();
        let time = |time| NewAttributes {
            modified: Some(time),
            ..NewAttributes::default()
        };
        assert_eq!(
            kind(eight.set(&at, time(NewTime::Now)).await),
            Kind::ReadOnly
        );
        seven.protect(&at, (Some(0o666), None, None)).await.unwrap();
        eight.set(&at, time(NewTime::Now)).await.unwrap();
        assert_eq!(
            kind(eight.set(&at, time(NewTime::At(1))).await),
            Kind::ReadOnly
        );
        seven.remove(&at).await.unwrap();
    });
}

#[test]
fn extended_attributes() {
    Volume::default().run(|me| async move {
        let client = me.client();
        let root = path("/");
        client
            .set(&root, extended("user.x", Some(b"1")))
            .await
            .unwrap();
        client
            .set(&root, extended("user.y", Some(b"")))
            .await
            .unwrap();
        client
            .set(&root, extended("user.x", Some(b"2")))
            .await
            .unwrap();
        let found = client.stat(&root).await.unwrap().extended;
        let found: Vec<(&str, &[u8])> = found.iter().map(|(n, v)| (&n[..], &v[..])).collect();
        assert_eq!(found, [("user.x", &b"2"[..]), ("user.y", b"")]);
        client.set(&root, extended("user.x", None)).await.unwrap();
        let gone = client.set(&root, extended("user.x", None)).await;
        assert_eq!(kind(gone), Kind::Missing);
        let long = vec![0; 70_000];
        let full = client.set(&root, extended("user.z", Some(&long))).await;
        assert_eq!(kind(full), Kind::Full);
        let nameless = client.set(&root, extended("", Some(b""))).await;
        assert_eq!(kind(nameless), Kind::Schema);
    });
}
