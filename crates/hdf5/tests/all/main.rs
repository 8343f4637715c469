//! Files that are made and read again, by the library itself and by its tools where they are there.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use penstock_engine::Kind;
use penstock_hdf5::{
    Attribute, Changes, Chunk, ChunkEntry, Dataset, Element, FileForm, Filter, Hdf5File, Member,
    NewDataset, Places, Storage, Values, is_hdf5,
};

/// A new dataset of these extents, in one run from `place` on.
fn plain(element: &str, shape: &[u64], place: u64) -> NewDataset {
    NewDataset {
        element: element.to_string(),
        shape: shape.to_vec(),
        grows: vec![false; shape.len()],
        chunk: None,
        filters: Vec::new(),
        fill: Vec::new(),
        dimensions: Vec::new(),
        attributes: Vec::new(),
        places: Places::From(place),
    }
}

fn write(path: &Path, changes: &Changes) {
    let mut options = File::options();
    let file = options.write(true).create(true).truncate(false).open(path);
    let file = file.unwrap();
    if file.metadata().unwrap().len() < changes.bytes {
        file.set_len(changes.bytes).unwrap();
    }
    for (at, data) in &changes.writes {
        file.write_all_at(data, *at).unwrap();
    }
}

/// A directory, and the path of a file in it.
fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.h5");
    (directory, path)
}

/// Makes a file of these datasets, whose elements end before `end`.
fn make(path: &Path, end: u64, form: FileForm, datasets: &[(&str, NewDataset)]) {
    let mut file = Hdf5File::create(path, form, end).unwrap();
    for (name, new) in datasets {
        file.put(name, new.clone(), form).unwrap();
    }
    write(path, &file.finish().unwrap());
}

fn open(path: &Path) -> Hdf5File {
    Hdf5File::open(File::open(path).unwrap(), path, &Changes::default()).unwrap()
}

fn is_bare(file: &Hdf5File, name: &str) -> bool {
    let members = file.members("").unwrap();
    members.contains(&(name.to_string(), Member::Dimension))
}

fn dataset(path: &Path, name: &str) -> Dataset {
    open(path).dataset(name).unwrap().unwrap()
}

const ELEMENTS: [&str; 25] = [
    "|b1", "|i1", "<i2", ">i2", "<i4", ">i4", "<i8", ">i8", "|u1", "<u2", ">u2", "<u4", ">u4",
    "<u8", ">u8", "<f2", ">f2", "<f4", ">f4", "<f8", ">f8", "<c8", ">c8", "<c16", ">c16",
];

#[test]
fn every_element_type_is_read_as_it_was_made() {
    let (_directory, path) = place();
    let names: Vec<String> = (0..ELEMENTS.len())
        .map(|n| format!("/of/type{n}"))
        .collect();
    let of = |(element, name): (&&str, &'_ String)| {
        let width: u64 = element[2..].parse().unwrap();
        let mut new = plain(element, &[3, 2], 4096);
        new.fill = vec![1; width as usize];
        (name.clone(), new)
    };
    let made: Vec<_> = ELEMENTS.iter().zip(&names).map(of).collect();
    let made: Vec<_> = made
        .iter()
        .map(|(name, _)| name.as_str())
        .zip(ELEMENTS.iter().zip(&names).map(of).map(|(_, new)| new))
        .collect();
    make(&path, 8192, FileForm::Hdf5, &made);
    let file = open(&path);
    let mut there = file.datasets().unwrap();
    there.sort_by_key(|name| {
        name.trim_start_matches("/of/type")
            .parse::<usize>()
            .unwrap()
    });
    assert_eq!(there, names);
    for (element, name) in ELEMENTS.iter().zip(&names) {
        let found = file.dataset(name).unwrap().unwrap();
        assert_eq!(found.element, Element::Stored((*element).to_string()));
        assert_eq!(found.storage, Storage::Contiguous(Some(4096)));
        assert_eq!(
            found.fill,
            made[names.iter().position(|n| n == name).unwrap()].1.fill
        );
        assert_eq!((found.shape, found.grows), (vec![3, 2], vec![false; 2]));
    }
}

#[test]
fn boxes_of_elements_are_read_into_larger_boxes() {
    let (_directory, path) = place();
    let big = Changes {
        writes: vec![(4096, (0..35i16).flat_map(i16::to_be_bytes).collect())],
        bytes: 8192,
    };
    make(
        &path,
        8192,
        FileForm::Hdf5,
        &[("/u", plain(">i2", &[5, 7], 4096))],
    );
    write(&path, &big);
    let elements = open(&path).elements("/u", "<i2").unwrap();
    for (start, shape, extents) in [
        ([0, 0], [5, 7], [5, 7]),
        ([1, 2], [3, 4], [3, 5]),
        ([4, 6], [1, 1], [4, 4]),
        ([2, 3], [0, 4], [0, 4]),
    ] {
        let [rows, columns] = extents.map(|n| n as usize);
        let mut found = vec![9u8; rows * columns * 2];
        elements
            .read((&start, &shape), &extents, &mut found)
            .unwrap();
        for (at, bytes) in found.chunks(2).enumerate() {
            let (row, column) = ((at / columns) as u64, (at % columns) as u64);
            let is_read = row < shape[0] && column < shape[1];
            let known = ((start[0] + row) * 7 + start[1] + column) as i16;
            let expected = if is_read { known } else { 0x0909 };
            assert_eq!(bytes, expected.to_le_bytes(), "{start:?} {shape:?} {at}");
        }
    }
    let mut data = [0; 8];
    let beyond = elements.read((&[4, 6], &[2, 2]), &[2, 2], &mut data);
    assert_eq!(beyond.unwrap_err().kind, Kind::Damaged);
    let other = elements.read((&[0], &[4]), &[4], &mut data);
    assert_eq!(other.unwrap_err().kind, Kind::Busy);
}

#[test]
fn chunks_are_where_they_were_put() {
    let (_directory, path) = place();
    let run = NewDataset {
        chunk: Some(vec![2, 3]),
        ..plain("<i4", &[5, 7], 4096)
    };
    let growing = NewDataset {
        chunk: Some(vec![2, 3]),
        grows: vec![true, false],
        ..plain("<i4", &[5, 7], 5000)
    };
    let chunks = |skip: u64| -> Vec<Chunk> {
        let starts = [
            [0, 0],
            [0, 3],
            [0, 6],
            [2, 0],
            [2, 3],
            [2, 6],
            [4, 0],
            [4, 3],
            [4, 6],
        ];
        let chunk = |(number, start): (u64, &[u64; 2])| Chunk {
            start: start.to_vec(),
            place: 10_000 - number * 100,
            bytes: 10 + number,
            skipped: 0,
        };
        let all = (0..).zip(&starts).map(chunk);
        all.filter(|chunk| skip == 0 || chunk.bytes % skip > 0)
            .collect()
    };
    let filters = vec![
        Filter {
            number: Filter::SHUFFLE,
            parameters: vec![4],
        },
        Filter {
            number: Filter::DEFLATE,
            parameters: vec![1],
        },
        Filter {
            number: Filter::FLETCHER32,
            parameters: vec![],
        },
        Filter {
            number: 32015,
            parameters: vec![3],
        },
    ];
    let encoded = |grows, skip| NewDataset {
        chunk: Some(vec![2, 3]),
        grows: vec![grows, false],
        filters: filters.clone(),
        places: Places::Each(chunks(skip)),
        ..plain("<i4", &[5, 7], 0)
    };
    make(
        &path,
        12_000,
        FileForm::Hdf5,
        &[
            ("/run", run),
            ("/growing", growing),
            ("/encoded", encoded(false, 0)),
            ("/some", encoded(true, 3)),
            (
                "/none",
                NewDataset {
                    places: Places::Each(Vec::new()),
                    ..encoded(false, 0)
                },
            ),
        ],
    );
    let places = |name: &str| -> BTreeMap<Vec<u64>, (u64, u64)> {
        let Storage::Chunked { chunk, chunks } = dataset(&path, name).storage else {
            panic!("{name} is in no chunks");
        };
        assert_eq!(chunk, [2, 3]);
        chunks
            .into_iter()
            .map(|c| (c.start, (c.place, c.bytes)))
            .collect()
    };
    for (name, from) in [("/run", 4096), ("/growing", 5000)] {
        let there: Vec<_> = places(name).into_values().collect();
        let wanted: Vec<_> = (0..9).map(|number| (from + number * 24, 24)).collect();
        assert_eq!(there, wanted, "{name}");
    }
    for (name, skip) in [("/encoded", 0), ("/some", 3)] {
        let wanted = chunks(skip)
            .into_iter()
            .map(|c| (c.start, (c.place, c.bytes)));
        assert_eq!(places(name), wanted.collect(), "{name}");
        assert_eq!(dataset(&path, name).filters[1..], filters[1..]);
    }
    assert!(places("/none").is_empty());
    assert_eq!(dataset(&path, "/growing").grows, [true, false]);
}

#[test]
fn chunks_get_other_places_whatever_their_lengths() {
    let deflate = Filter {
        number: Filter::DEFLATE,
        parameters: vec![1],
    };
    let chunk = |start: [u64; 2], place, bytes| Chunk {
        start: start.to_vec(),
        place,
        bytes,
        skipped: 0,
    };
    for (shape, grows) in [
        ([5, 7], [false, false]), // a fixed array of chunks
        ([5, 7], [true, false]),  // one that can grow
        ([5, 7], [true, true]),   // a tree
        ([2, 3], [false, false]), // one chunk
    ] {
        let (_directory, path) = place();
        let starts = (0..shape[0]).step_by(2).flat_map(|a| {
            let inner = (0..shape[1]).step_by(3);
            inner.map(move |b| [a, b])
        });
        let starts: Vec<[u64; 2]> = starts.collect();
        let first = (0..).zip(&starts);
        let first = first.map(|(n, start)| chunk(*start, 4096 + n * 100, 20));
        let mut wanted: BTreeMap<Vec<u64>, (u64, u64)> = BTreeMap::new();
        let first: Vec<Chunk> = first.filter(|chunk| chunk.place != 4196).collect();
        wanted.extend(first.iter().map(|c| (c.start.clone(), (c.place, c.bytes))));
        let new = NewDataset {
            chunk: Some(vec![2, 3]),
            grows: grows.to_vec(),
            filters: vec![deflate.clone()],
            places: Places::Each(first),
            ..plain("<i4", &shape, 0)
        };
        make(&path, 6000, FileForm::Hdf5, &[("/u", new)]);
        for round in 0..4 {
            let end = open(&path).end();
            let changed: Vec<Chunk> = (0..)
                .zip(&starts)
                .filter(|(n, _)| (n + round) % 3 != 1 || starts.len() == 1)
                .map(|(n, start)| {
                    chunk(
                        *start,
                        end + n * 50,
                        [20, 1, 30, 1][(n + round) as usize % 4],
                    )
                })
                .collect();
            let last = changed.iter().map(|c| c.place + c.bytes).max().unwrap();
            let mut file = Hdf5File::change(File::open(&path).unwrap(), &path, last).unwrap();
            let pairs: Vec<ChunkEntry> = changed
                .iter()
                .map(|new| {
                    let former = wanted.get(&new.start);
                    let former = former.map(|&(place, bytes)| Chunk {
                        place,
                        bytes,
                        ..new.clone()
                    });
                    (new.clone(), former)
                })
                .collect();
            file.enter("/u", &pairs).unwrap();
            let changes = file.finish().unwrap();
            let is_behind =
                |(at, data): &(u64, Vec<u8>)| *at >= last || at + data.len() as u64 <= end;
            assert!(
                changes.writes.iter().all(is_behind),
                "no element is overwritten"
            );
            write(&path, &changes);
            wanted.extend(
                changed
                    .iter()
                    .map(|c| (c.start.clone(), (c.place, c.bytes))),
            );
            let Storage::Chunked { chunks, .. } = dataset(&path, "/u").storage else {
                panic!("it is in chunks");
            };
            let there = chunks.into_iter().map(|c| (c.start, (c.place, c.bytes)));
            assert_eq!(
                there.collect::<BTreeMap<_, _>>(),
                wanted,
                "{grows:?} {round}"
            );
        }
    }
}

#[test]
fn arrays_without_dimensions_and_without_elements() {
    let (_directory, path) = place();
    let chunked = NewDataset {
        chunk: Some(vec![4]),
        ..plain("<f8", &[0], 4096)
    };
    make(
        &path,
        5000,
        FileForm::Hdf5,
        &[
            ("/scalar", plain("<f8", &[], 4096)),
            ("/empty", plain("<f8", &[3, 0], 4096)),
            ("/chunked", chunked),
        ],
    );
    assert_eq!(
        dataset(&path, "/scalar").storage,
        Storage::Contiguous(Some(4096))
    );
    assert_eq!(dataset(&path, "/scalar").shape, [0u64; 0]);
    assert_eq!(dataset(&path, "/empty").shape, [3, 0]);
    assert_eq!(dataset(&path, "/chunked").shape, [0]);
}

#[test]
fn attributes_are_read_as_they_were_written() {
    let values = [
        Values::Bools(vec![true]),
        Values::Integers(vec![i64::MIN]),
        Values::Naturals(vec![u64::MAX]),
        Values::Floats(vec![f64::INFINITY]),
        Values::Texts(vec!["größer".to_string()]),
        Values::Texts(vec![String::new()]),
    ];
    let lists = [
        Values::Bools(vec![true, false]),
        Values::Integers(vec![1, -2]),
        Values::Naturals(vec![1, 2]),
        Values::Floats(vec![0.1, -0.0]),
        Values::Texts(vec!["a".to_string(), "bc".to_string()]),
    ];
    let of = |shape: &[usize], values: &Values| Attribute {
        shape: shape.to_vec(),
        values: values.clone(),
    };
    let all = values
        .iter()
        .map(|v| of(&[], v))
        .chain(lists.iter().map(|v| of(&[2], v)));
    let named: Vec<(String, Attribute)> = all
        .enumerate()
        .map(|(n, attribute)| (format!("a{n:02}"), attribute))
        .collect();
    for form in [FileForm::Hdf5, FileForm::NetCdf] {
        let (_directory, path) = place();
        let new = NewDataset {
            attributes: named.clone(),
            ..plain("<f8", &[3], 4096)
        };
        let new = NewDataset {
            dimensions: vec!["x".to_string()],
            ..new
        };
        let mut file = Hdf5File::create(&path, form, 8192).unwrap();
        file.put("/u", new, form).unwrap();
        for (name, attribute) in &named {
            file.set_attribute("", name, &Attribute::text("before"), form)
                .unwrap();
            file.set_attribute("", name, attribute, form).unwrap();
        }
        write(&path, &file.finish().unwrap());
        let wanted: Vec<_> = named
            .iter()
            .map(|(name, a)| (name.clone(), Some(a.clone())))
            .collect();
        assert_eq!(dataset(&path, "/u").attributes, wanted, "{form:?}");
        assert_eq!(open(&path).attributes("").unwrap(), wanted, "{form:?}");
        assert_eq!(dataset(&path, "/u").dimensions, [Some("x".to_string())]);
        assert_eq!(open(&path).is_netcdf(), form == FileForm::NetCdf);
    }
}

#[test]
fn datasets_are_added_and_replaced() {
    let (_directory, path) = place();
    make(
        &path,
        8192,
        FileForm::Hdf5,
        &[("/a/u", plain("<f8", &[4], 4096))],
    );
    let before = std::fs::read(&path).unwrap();
    for round in 0..20 {
        let place = open(&path).end().next_multiple_of(4096);
        let file = File::open(&path).unwrap();
        let mut file = Hdf5File::change(file, &path, place + round * 4).unwrap();
        let name = format!("/a/v{}", round % 7);
        file.put(&name, plain("<i4", &[round], place), FileForm::Hdf5)
            .unwrap();
        assert_eq!(
            file.datasets().unwrap().len(),
            2.max(round as usize + 2).min(8)
        );
        write(&path, &file.finish().unwrap());
        assert_eq!(dataset(&path, &name).shape, [round]);
        assert_eq!(
            dataset(&path, "/a/u").storage,
            Storage::Contiguous(Some(4096))
        );
    }
    let after = std::fs::read(&path).unwrap();
    assert_eq!(
        before[4096..4128],
        after[4096..4128],
        "no element was written"
    );
    let file = File::open(&path).unwrap();
    let error =
        Hdf5File::change(file, &path, 0)
            .unwrap()
            .put("/a", plain("<i4", &[], 0), FileForm::Hdf5);
    assert_eq!(error.unwrap_err().kind, Kind::Schema);
}

#[test]
fn netcdf_dimensions_are_shared() {
    let (_directory, path) = place();
    let named = |names: &[&str], new: NewDataset| NewDataset {
        dimensions: names.iter().map(|name| (*name).to_string()).collect(),
        ..new
    };
    let form = FileForm::NetCdf;
    make(
        &path,
        8192,
        form,
        &[
            ("/u", named(&["y", "x"], plain("<f8", &[3, 4], 4096))),
            ("/x", named(&["x"], plain("<f8", &[4], 5000))),
            ("/in/v", named(&["x", "z"], plain("<f8", &[4, 2], 6000))),
        ],
    );
    let file = open(&path);
    let name_of = |name: &str| Some(name.to_string());
    assert_eq!(
        dataset(&path, "/u").dimensions,
        [name_of("y"), name_of("x")]
    );
    assert_eq!(
        dataset(&path, "/in/v").dimensions,
        [name_of("x"), name_of("z")]
    );
    assert!(is_bare(&file, "/y") && is_bare(&file, "/in/z"));
    assert!(!is_bare(&file, "/x") && !is_bare(&file, "/u"));
    // Dimensions get variables, and variables others in their place, also in a file that is there.
    for (name, length) in [("/y", 3), ("/x", 4), ("/in/z", 2), ("/u", 0), ("/y", 3)] {
        let end = open(&path).end();
        let file = File::open(&path).unwrap();
        let mut file = Hdf5File::change(file, &path, end + 100).unwrap();
        let own = name.rsplit('/').next().unwrap();
        let new = match length {
            0 => named(&["y", "x"], plain("<i2", &[3, 4], end)),
            length => named(&[own], plain("<f4", &[length], end)),
        };
        file.put(name, new, form).unwrap();
        write(&path, &file.finish().unwrap());
        assert!(!is_bare(&open(&path), name));
        assert_eq!(
            dataset(&path, "/u").dimensions,
            [name_of("y"), name_of("x")]
        );
        assert_eq!(
            dataset(&path, "/in/v").dimensions,
            [name_of("x"), name_of("z")]
        );
    }
    let file = File::open(&path).unwrap();
    let mut file = Hdf5File::change(file, &path, 0).unwrap();
    let error = file.put("/w", named(&["x"], plain("<f8", &[5], 4096)), form);
    let error = error.unwrap_err();
    assert!(
        error.kind == Kind::Schema && error.cause.contains("\"x\""),
        "{error}"
    );
}

#[test]
fn what_is_no_hdf5_file_is_refused() {
    let (_directory, path) = place();
    File::create(&path).unwrap().write_all(&[7; 5000]).unwrap();
    assert!(!is_hdf5(&File::open(&path).unwrap()));
    let opened = Hdf5File::open(File::open(&path).unwrap(), &path, &Changes::default());
    assert_eq!(opened.err().unwrap().kind, Kind::Damaged);
    make(
        &path,
        8192,
        FileForm::Hdf5,
        &[("/u", plain("<f8", &[3], 4096))],
    );
    let whole = std::fs::read(&path).unwrap();
    assert!(is_hdf5(&File::open(&path).unwrap()));
    assert!(open(&path).dataset("/v").unwrap().is_none());
    assert!(open(&path).dataset("/u/v").unwrap().is_none());
    // Cut short, and with any byte of the first ones changed: an error or the same, never a crash.
    for at in 0..200 {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x41;
        std::fs::write(&path, &damaged).unwrap();
        let opened = Hdf5File::open(File::open(&path).unwrap(), &path, &Changes::default());
        let _ = opened.and_then(|file| file.datasets().and_then(|_| file.dataset("/u")));
        std::fs::write(&path, &whole[..at]).unwrap();
        assert!(Hdf5File::open(File::open(&path).unwrap(), &path, &Changes::default()).is_err());
    }
}
