use penstock_layout::{Region, Share};

use super::*;

const MB: u64 = 1 << 20;

/// The held array indices along one dimension.
fn indices(share: &Share, dimension: usize) -> Vec<u64> {
    let dim = share.dims()[dimension];
    (0..dim.extent()).map(|memory| dim.index(memory)).collect()
}

/// The places of client 0's records in the file, in records, ascending.
fn held(pattern: &str, record_bytes: u64) -> Vec<u64> {
    let pattern: Pattern = pattern.parse().unwrap();
    let (memory, disk) = pattern.schemas(10 * MB, 8192, record_bytes, 16).unwrap();
    assert_eq!(memory.shape(), disk.shape());
    assert_eq!(disk.bytes(), 10 * MB);
    let share = memory.share(0);
    match memory.shape() {
        [_] => indices(&share, 0),
        [_, columns] => {
            let across = indices(&share, 1);
            let row = |row: u64| across.iter().map(move |column| row * columns + column);
            let rows = indices(&share, 0).into_iter();
            rows.flat_map(|index| row(index).collect::<Vec<_>>())
                .collect()
        }
        other => panic!("{other:?}"),
    }
}

/// The longest chunk, and the distances from chunk to chunk, without repeats, in order.
fn chunks(records: &[u64]) -> (u64, Vec<u64>) {
    let mut starts = vec![records[0]];
    let mut longest = 1;
    let mut length = 1;
    for pair in records.windows(2) {
        if pair[1] == pair[0] + 1 {
            length += 1;
        } else {
            starts.push(pair[1]);
            length = 1;
        }
        longest = longest.max(length);
    }
    let mut strides: Vec<u64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    strides.sort_unstable();
    strides.dedup();
    (longest, strides)
}

#[test]
fn table_2_of_the_report() {
    const K: u64 = 1024;
    let table: [(&str, u64, u64, &[u64]); 24] = [
        ("ra", 8, 1280 * K, &[]),
        ("rn", 8, 1280 * K, &[]),
        ("rb", 8, 80 * K, &[]),
        ("rc", 8, 1, &[16]),
        ("rnn", 8, 1280 * K, &[]),
        ("rnb", 8, 64, &[K]),
        ("rnc", 8, 1, &[16]),
        ("rbn", 8, 80 * K, &[]),
        ("rbb", 8, 256, &[K]),
        ("rbc", 8, 1, &[4]),
        ("rcn", 8, K, &[16 * K]),
        ("rcb", 8, 256, &[4 * K]),
        ("rcc", 8, 1, &[4, 3 * K + 4]),
        ("rb", 8192, 80, &[]),
        ("rc", 8192, 1, &[16]),
        ("rnn", 8192, 1280, &[]),
        ("rnb", 8192, 2, &[32]),
        ("rnc", 8192, 1, &[16]),
        ("rbn", 8192, 80, &[]),
        ("rbb", 8192, 8, &[32]),
        ("rbc", 8192, 1, &[4]),
        ("rcn", 8192, 32, &[512]),
        ("rcb", 8192, 8, &[128]),
        ("rcc", 8192, 1, &[4, 100]),
    ];
    for (pattern, record, chunk, strides) in table {
        let held = held(pattern, record);
        assert_eq!(
            chunks(&held),
            (chunk, strides.to_vec()),
            "{pattern} {record}"
        );
        let writes = pattern.replacen('r', "w", 1);
        if pattern != "ra" {
            assert_eq!(self::held(&writes, record), held, "{writes} {record}");
        }
    }
}

#[test]
fn names_come_back() {
    let letters = ["n", "b", "c"];
    let pairs = letters
        .iter()
        .flat_map(|a| letters.map(|b| format!("{a}{b}")));
    let deals: Vec<String> = letters.map(String::from).into_iter().chain(pairs).collect();
    for deal in deals {
        for operation in ["r", "w"] {
            let name = format!("{operation}{deal}");
            assert_eq!(name.parse::<Pattern>().unwrap().to_string(), name);
        }
    }
    assert_eq!("ra".parse::<Pattern>().unwrap().to_string(), "ra");
    assert_eq!("wa".parse::<Pattern>(), Err(PatternError::WriteAll));
    for unknown in [
        "", "r", "w", "rx", "raa", "rab", "rbbb", "b", "Rb", "rb ", "écc",
    ] {
        let refused = unknown.parse::<Pattern>();
        assert_eq!(refused, Err(PatternError::Unknown(unknown.into())));
    }
}

/// Every byte of the file has its holders, whatever the sizes: one, or all clients for `ra`.
#[test]
fn every_byte_is_held() {
    let sizes = [
        (10 * 8192, 8, 16),
        (10 * 8192, 8192, 16),
        (10 * 8192, 40, 4),
        (10 * 8192, 16_384, 3),
        (30 * 8192, 3 * 4096, 5),
        (8192, 8, 1),
        (8192 / 2, 8, 7),
        (8192, 8192, 2),
    ];
    let names = [
        "ra", "rn", "rb", "rc", "rnb", "rbb", "rbc", "rcn", "rcb", "rcc", "rnn", "rbn",
    ];
    for (file, record, clients) in sizes {
        for name in names {
            let pattern: Pattern = name.parse().unwrap();
            let Ok((memory, disk)) = pattern.schemas(file, 8192, record, clients) else {
                continue;
            };
            let what = format!("{name} of {file} bytes in {record} for {clients}");
            let elements: u64 = (0..clients).map(|rank| memory.share(rank).elements()).sum();
            let copies = pattern.copies(clients);
            assert_eq!(elements * disk.width(), file * copies, "{what}");
            let blocks: Vec<_> = disk.blocks(0, 1).collect();
            assert_eq!(blocks.len() as u64, file.div_ceil(8192), "{what}");
            let last = blocks.len() - 1;
            assert!(
                blocks[..last].iter().all(|block| block.bytes == 8192),
                "{what}"
            );
            // A record has one holder.
            let units = record / disk.width();
            let whole = Region::whole(memory.shape());
            for rank in memory.touching(&whole) {
                let inner = memory.share(rank).dims().last().copied().unwrap();
                assert_eq!(inner.extent() % units, 0, "{what}");
            }
        }
    }
}

#[test]
fn large_records_are_dealt_out_whole() {
    let pattern: Pattern = "rc".parse().unwrap();
    let (memory, disk) = pattern.schemas(10 * MB, 8192, 20_480, 16).unwrap();
    assert_eq!((memory.shape(), disk.width()), (&[2560u64][..], 4096));
    let held: Vec<u64> = (0..6).map(|i| memory.share(1).dims()[0].index(i)).collect();
    assert_eq!(held, [5, 6, 7, 8, 9, 85]);
}

#[test]
fn what_does_not_fit() {
    let schemas = |name: &str, file, record, clients| {
        let pattern: Pattern = name.parse().unwrap();
        pattern
            .schemas(file, 8192, record, clients)
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    assert_eq!(schemas("rb", 10 * MB, 8, 16), Ok(()));
    assert_eq!(
        schemas("rb", 10 * MB, 7, 16).unwrap_err(),
        "a file of 10485760 bytes is no whole number of records of 7 bytes"
    );
    assert_eq!(
        schemas("rb", 10 * MB, 0, 16).unwrap_err(),
        "the size of a record is 0"
    );
    assert_eq!(
        schemas("rb", 10 * MB, 20 * MB, 16).unwrap_err(),
        "a file of 10485760 bytes is no whole number of records of 20971520 bytes"
    );
    assert_eq!(
        schemas("rbb", 1001 * 8192, 8192, 16).unwrap_err(),
        "1001 records do not fill a matrix of 16 columns, as rbb needs"
    );
    assert_eq!(
        schemas("ra", 0, 8192, 16).unwrap_err(),
        "the size of the file is 0"
    );
    assert_eq!(
        schemas("rb", MB, 8192, 0).unwrap_err(),
        "the number of clients is 0"
    );
}
