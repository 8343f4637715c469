//! The runs of each figure, and what the paper says of it.

use std::collections::HashMap;

use super::published::{
    self, MEMORY_MB_S, NODE_READ_MB_S, NODE_REWRITE_MB_S, Number, READ_MB_S, Statement, WRITE_MB_S,
    model_mb_s,
};
use super::run::{Case, Part, Seconds, Way};
use super::sort::SortCase;
use crate::figure::{Figure, Line, Point, Published, Scale, X};

/// The accesses of 64 KB of Figures 11 and 13.
const ACCESS_BYTES: u64 = 64 << 10;
/// The file of Figure 10 that the cache holds.
const SMALL_MB: u64 = 16;
/// The data sets of Figure 11, MB.
const DATA_SETS_MB: [u64; 9] = [8, 16, 24, 32, 40, 48, 64, 96, 128];
/// The I/O nodes of Figure 12, and its accesses.
const SERVERS: [usize; 7] = [1, 2, 3, 4, 6, 8, 12];
const ACCESSES: [u64; 3] = [16 << 10, 64 << 10, 256 << 10];
/// The clients of Figure 13, with three I/O nodes each.
const CLIENTS: [usize; 4] = [1, 2, 3, 4];
/// The I/O nodes of Figure 17, and its blocks, in records.
const SORT_SERVERS: [usize; 4] = [1, 2, 4, 8];
const SORT_BLOCKS: [u64; 4] = [512, 1024, 4096, 16384];

const PARTS: [Part; 3] = [Part::FirstWrite, Part::SecondWrite, Part::Read];

/// The greatest distance from a number of the paper, as a part of it.
const NEAR: f64 = 0.1;

/// The runs that were measured.
#[derive(Default)]
pub(super) struct Results {
    pub(super) cases: HashMap<Case, Seconds>,
    pub(super) sorts: HashMap<SortCase, f64>,
}

impl Results {
    fn seconds(&self, case: &Case, part: Part) -> f64 {
        self.cases
            .get(case)
            .map_or(f64::NAN, |seconds| part.of(seconds))
    }

    fn mb_s(&self, case: &Case, part: Part) -> f64 {
        case.mb_s(self.seconds(case, part))
    }

    fn sort_seconds(&self, case: &SortCase) -> f64 {
        self.sorts.get(case).copied().unwrap_or(f64::NAN)
    }
}

/// The sizes of the runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// The MB of a cell that the cache does not hold.
    pub(super) cell_mb: u64,
    /// The records of the file that is sorted.
    pub(super) records: u64,
}

/// The accesses of Figure 10, and of Figures 14 and 16.
const ALONE: [u32; 13] = [8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20];
const WAYS: [u32; 8] = [10, 12, 14, 16, 17, 18, 19, 20];

/// Accesses with these powers of two.
fn accesses<const N: usize>(exponents: [u32; N]) -> impl Iterator<Item = u64> {
    exponents.into_iter().map(|exponent| 1 << exponent)
}

impl Sizes {
    /// A run with big cells.
    fn big(&self, (clients, servers): (usize, usize), way: Way, access_bytes: u64) -> Case {
        // Small accesses take long to simulate: their cells are shorter, and longer than the cache.
        let most_mb = match access_bytes {
            0..4096 => 40,
            4096..16384 if servers > 1 => 64,
            _ => u64::MAX,
        };
        Case {
            clients,
            servers,
            way,
            access_bytes,
            cell_bytes: self.cell_mb.min(most_mb) << 20,
            is_synced: true,
            is_inside: false,
            is_rewritten: true,
            is_read: true,
        }
    }

    /// One client and one I/O node.
    pub(super) fn big_alone(&self, access_bytes: u64) -> Case {
        self.big((1, 1), Way::Cells, access_bytes)
    }

    /// The same, with a file that the cache holds.
    pub(super) fn small(&self, access_bytes: u64) -> Case {
        Case {
            cell_bytes: SMALL_MB.min(self.cell_mb) << 20,
            is_synced: false,
            ..self.big_alone(access_bytes)
        }
    }

    fn data_set(&self, mb: u64) -> Case {
        Case {
            cell_bytes: mb << 20,
            is_synced: false,
            is_rewritten: false,
            is_read: false,
            ..self.big_alone(ACCESS_BYTES)
        }
    }

    /// The data sets of Figure 11, up to the length of a cell, and the first in any case.
    fn data_sets(&self) -> impl Iterator<Item = u64> + use<> {
        let most = self.cell_mb.max(DATA_SETS_MB[0]);
        DATA_SETS_MB.into_iter().filter(move |&mb| mb <= most)
    }

    fn many_servers(&self, servers: usize, access_bytes: u64) -> Case {
        self.big((1, servers), Way::Cells, access_bytes)
    }

    fn system(&self, clients: usize) -> Case {
        self.big((clients, 3 * clients), Way::Cells, ACCESS_BYTES)
    }

    fn one_client(&self, way: Way, access_bytes: u64) -> Case {
        Case {
            is_rewritten: false,
            ..self.big((1, 4), way, access_bytes)
        }
    }

    fn four_clients(&self, way: Way, access_bytes: u64) -> Case {
        self.big((4, 4), way, access_bytes)
    }

    fn sort(&self, servers: usize, block_records: u64) -> SortCase {
        SortCase {
            servers,
            block_records,
            records: self.records,
        }
    }

    /// The runs of the sort that a figure needs.
    pub(super) fn sorts(&self, figure: u8) -> Vec<SortCase> {
        let all = SORT_BLOCKS.into_iter();
        let all = all.flat_map(|block| SORT_SERVERS.map(|servers| self.sort(servers, block)));
        all.filter(|_| figure == 17).collect()
    }

    /// All other runs that a figure needs.
    pub(super) fn cases(&self, figure: u8) -> Vec<Case> {
        let mut cases: Vec<Case> = match figure {
            10 => accesses(ALONE)
                .flat_map(|bytes| {
                    let inside = Case {
                        is_inside: true,
                        ..self.small(bytes)
                    };
                    [self.small(bytes), inside, self.big_alone(bytes)]
                })
                .collect(),
            11 => self.data_sets().map(|mb| self.data_set(mb)).collect(),
            12 => SERVERS
                .into_iter()
                .flat_map(|servers| ACCESSES.map(|bytes| self.many_servers(servers, bytes)))
                .collect(),
            13 => CLIENTS.map(|clients| self.system(clients)).into(),
            14 => accesses(WAYS)
                .flat_map(|bytes| ONE_CLIENT.map(|(_, way)| self.one_client(way, bytes)))
                .collect(),
            16 => accesses(WAYS)
                .flat_map(|bytes| FOUR_CLIENTS.map(|(_, way)| self.four_clients(way, bytes)))
                .collect(),
            _ => Vec::new(),
        };
        if figure == 16 {
            cases.extend(accesses(WAYS).map(|bytes| self.big_alone(bytes)));
            let halves = accesses(WAYS).map(|bytes| bytes / 2);
            cases.extend(halves.map(|bytes| self.four_clients(Way::Cells, bytes)));
        }
        cases
    }

    /// The title of a figure.
    pub(super) fn title(&self, figure: u8) -> &'static str {
        match figure {
            10 => "one client, one I/O node",
            11 => "writes of 64 KB without sync, one client, one I/O node",
            12 => "one client, asynchronous accesses to each I/O node",
            13 => "three I/O nodes a client, asynchronous accesses of 64 KB to each",
            14 => "one client, four I/O nodes, three ways through the file",
            16 => "four clients, four I/O nodes, two ways through the file",
            _ => "FastMeshSort of a file in the cache, eight clients",
        }
    }

    /// A figure from its runs.
    pub(super) fn figure(&self, figure: u8, results: &Results, preset: &str) -> Figure {
        let (x_label, x_scale) = match figure {
            11 => ("data set (MB)", Scale::Log2),
            12 | 17 => ("I/O nodes", Scale::Log2),
            13 => ("clients", Scale::Log2),
            _ => ("access (bytes)", Scale::Log2),
        };
        Figure {
            figure: format!("{figure} of Vesta"),
            title: self.title(figure).into(),
            x_label: x_label.into(),
            y_label: match figure {
                17 => "seconds".into(),
                _ => "throughput (MB/s of 10^6 bytes)".into(),
            },
            x_scale,
            series: self.series(figure, results),
            limits: Vec::new(),
            published: self.published(figure),
            preset: preset.into(),
            trials: 1,
        }
    }

    fn series(&self, figure: u8, results: &Results) -> Vec<Line> {
        let rates = |names: &[(&str, &dyn Fn(u64) -> Case)], parts: &[Part], xs: &[u64]| {
            let lines = names.iter().flat_map(|(name, case)| {
                parts.iter().map(move |part| {
                    let name = format!("{name} {}", part.name());
                    line(&name, xs, |x| results.mb_s(&case(x), *part))
                })
            });
            lines.collect::<Vec<_>>()
        };
        let ways: Vec<u64> = accesses(WAYS).collect();
        let counts = |counts: &[usize]| counts.iter().map(|&n| n as u64).collect::<Vec<u64>>();
        match figure {
            10 => rates(
                &[
                    ("small", &|bytes| self.small(bytes)),
                    ("big", &|bytes| self.big_alone(bytes)),
                ],
                &PARTS,
                &accesses(ALONE).collect::<Vec<_>>(),
            ),
            11 => {
                let xs: Vec<u64> = self.data_sets().collect();
                let rate = |mb| results.mb_s(&self.data_set(mb), Part::FirstWrite);
                vec![line("simulated", &xs, rate)]
            }
            12 => ACCESSES
                .into_iter()
                .flat_map(|bytes| {
                    let name = format!("{} KB", bytes >> 10);
                    let case = |n: u64| self.many_servers(penstock_layout::exact(n), bytes);
                    rates(&[(&name, &case)], &PARTS, &counts(&SERVERS))
                })
                .collect(),
            13 => {
                let case = |n: u64| self.system(penstock_layout::exact(n));
                rates(&[("64 KB", &case)], &PARTS, &counts(&CLIENTS))
            }
            14 => ONE_CLIENT
                .into_iter()
                .flat_map(|(name, way)| {
                    let case = |bytes| self.one_client(way, bytes);
                    rates(&[(name, &case)], &[Part::FirstWrite, Part::Read], &ways)
                })
                .collect(),
            16 => FOUR_CLIENTS
                .into_iter()
                .flat_map(|(name, way)| {
                    let case = |bytes| self.four_clients(way, bytes);
                    rates(&[(name, &case)], &PARTS, &ways)
                })
                .collect(),
            _ => SORT_BLOCKS
                .into_iter()
                .map(|block| {
                    let name = format!("blocks of {block} records");
                    line(&name, &counts(&SORT_SERVERS), |n| {
                        results.sort_seconds(&self.sort(penstock_layout::exact(n), block))
                    })
                })
                .collect(),
        }
    }

    /// The paper's numbers at places of a figure.
    fn published(&self, figure: u8) -> Vec<Published> {
        let at = |x, y| Published {
            name: "the paper's model".into(),
            series: Some("simulated".into()),
            x: Some(X::Count(x)),
            low: y,
            high: y,
            is_relative: false,
        };
        match figure {
            11 => self
                .data_sets()
                .map(|mb| at(mb, model_mb_s(mb as f64)))
                .collect(),
            _ => Vec::new(),
        }
    }

    /// The numbers that the text gives of a figure.
    pub(super) fn numbers(&self, figure: u8, results: &Results) -> Vec<Number> {
        let number = |what: &'static str, paper: f64, simulated: f64| Number {
            figure,
            what,
            paper,
            simulated,
            is_near: (simulated - paper).abs() <= NEAR * paper,
        };
        let rate = |case: Case, part| results.mb_s(&case, part);
        let (kb, mb) = (1 << 10, 1 << 20);
        match figure {
            10 => {
                let big = |bytes, part| rate(self.big_alone(bytes), part);
                vec![
                    number(
                        "big files, 1st write, 64 KB",
                        WRITE_MB_S,
                        big(64 * kb, PARTS[0]),
                    ),
                    number(
                        "big files, read, 64 KB",
                        READ_MB_S,
                        big(64 * kb, Part::Read),
                    ),
                    number(
                        "big files, 2nd write, 16 KB",
                        NODE_REWRITE_MB_S,
                        big(16 * kb, Part::SecondWrite),
                    ),
                ]
            }
            11 => {
                let memory = rate(self.data_set(DATA_SETS_MB[0]), Part::FirstWrite);
                vec![number("data sets in the cache", MEMORY_MB_S, memory)]
            }
            12 => {
                let node = |bytes, part| rate(self.many_servers(4, bytes), part) / 4.0;
                vec![
                    number(
                        "each of 4 I/O nodes, 1st write, 64 KB",
                        WRITE_MB_S,
                        node(64 * kb, PARTS[0]),
                    ),
                    number("the same, 2nd write", WRITE_MB_S, node(64 * kb, PARTS[1])),
                    number(
                        "the same, 2nd write, 16 KB",
                        NODE_REWRITE_MB_S,
                        node(16 * kb, PARTS[1]),
                    ),
                    number(
                        "the same, read, 64 KB",
                        NODE_READ_MB_S,
                        node(64 * kb, Part::Read),
                    ),
                ]
            }
            14 => {
                let way = |way, bytes, part| rate(self.one_client(way, bytes), part);
                vec![
                    number(
                        "cell after cell, read, 64 KB: one disk",
                        READ_MB_S,
                        way(Way::Sequence, 64 * kb, Part::Read),
                    ),
                    number(
                        "striped, 1st write, 1 MB: four disks",
                        4.0 * WRITE_MB_S,
                        way(Way::Striped, mb, Part::FirstWrite),
                    ),
                    number(
                        "striped, read, 1 MB: four disks",
                        4.0 * READ_MB_S,
                        way(Way::Striped, mb, Part::Read),
                    ),
                ]
            }
            _ => Vec::new(),
        }
    }

    /// The rules that the text gives of a figure.
    pub(super) fn statements(&self, figure: u8, results: &Results) -> Vec<Statement> {
        let rules = Rules {
            sizes: self,
            results,
        };
        let rules = match figure {
            10 => rules.alone(),
            11 => rules.data_sets(),
            12 => rules.many_servers(),
            13 => rules.systems(),
            14 => rules.ways(),
            16 => rules.subfiles(),
            _ => rules.sorts(),
        };
        let statement = |(what, found, holds)| Statement {
            figure,
            what,
            found,
            holds,
        };
        rules.into_iter().map(statement).collect()
    }
}

/// The ways of Figure 14 and of Figure 16, with their names.
const ONE_CLIENT: [(&str, Way); 3] = [
    ("cell after cell", Way::Sequence),
    ("cyclic", Way::Cyclic),
    ("striped", Way::Striped),
];
const FOUR_CLIENTS: [(&str, Way); 2] = [("cells", Way::Cells), ("striped", Way::Striped)];

fn line(name: &str, xs: &[u64], y: impl Fn(u64) -> f64) -> Line {
    let point = |&x: &u64| Point {
        x: X::Count(x),
        y: y(x),
        cv: None,
    };
    Line {
        name: name.into(),
        points: xs.iter().map(point).collect(),
    }
}

/// A rule of the paper: its words, what was found, and whether it holds.
type Rule = (&'static str, String, bool);

/// The rules of the text, looked up in the runs.
struct Rules<'a> {
    sizes: &'a Sizes,
    results: &'a Results,
}

fn is_near(simulated: f64, paper: f64) -> bool {
    (simulated - paper).abs() <= NEAR * paper
}

/// Compares pairs of rates; the first is to be like the second.
fn all_near(pairs: &[(f64, f64)]) -> (String, bool) {
    let near = pairs
        .iter()
        .filter(|(one, other)| is_near(*one, *other))
        .count();
    let ratios = pairs.iter().map(|(one, other)| one / other);
    let (least, most) = ratios.fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), ratio| {
        (least.min(ratio), most.max(ratio))
    });
    let found = format!(
        "{least:.2} to {most:.2} times; {near} of {} within 10%",
        pairs.len()
    );
    (found, near == pairs.len())
}

impl Rules<'_> {
    fn rate(&self, case: Case, part: Part) -> f64 {
        self.results.mb_s(&case, part)
    }

    fn alone(&self) -> Vec<Rule> {
        let rate = |bytes, part| self.rate(self.sizes.big_alone(bytes), part);
        let part = |bytes| rate(bytes, Part::SecondWrite) / rate(bytes, Part::FirstWrite);
        let (below, whole) = (part(16 << 10), part(64 << 10));
        vec![
            (
                "the 2nd write of less than 64 KB has about half the rate of the first",
                format!("{below:.2}"),
                (0.4..=0.65).contains(&below),
            ),
            (
                "that of 64 KB has all of it",
                format!("{whole:.2}"),
                is_near(whole, 1.0),
            ),
        ]
    }

    fn data_sets(&self) -> Vec<Rule> {
        let pair = |mb| {
            let simulated = self.rate(self.sizes.data_set(mb), Part::FirstWrite);
            (simulated, model_mb_s(mb as f64))
        };
        let pairs: Vec<_> = self.sizes.data_sets().map(pair).collect();
        let (found, holds) = all_near(&pairs);
        vec![("writes follow the model", found, holds)]
    }

    fn many_servers(&self) -> Vec<Rule> {
        let rate = |servers, part| self.rate(self.sizes.many_servers(servers, ACCESS_BYTES), part);
        let gains = |part| [2, 4].map(|n| (rate(n, part), n as f64 * rate(1, part)));
        let writes = gains(Part::FirstWrite);
        let reads = gains(Part::Read);
        let (found, holds) = all_near(&[writes, reads].concat());
        let part = Part::FirstWrite;
        let (six, all) = (
            rate(6, part) / rate(1, part),
            rate(12, part) / rate(1, part),
        );
        let (write, read) = (rate(12, part), rate(12, Part::Read));
        vec![
            (
                "up to 4 I/O nodes the rate is in proportion to them",
                found,
                holds,
            ),
            (
                "writes reach their limit, the adapter's, at about 6",
                format!("{six:.1} times with 6, {all:.1} with 12"),
                six > 5.0 && all < 1.1 * six,
            ),
            (
                "given enough I/O nodes, writes are faster than reads",
                format!("{write:.2} and {read:.2} MB/s with 12"),
                write > read,
            ),
        ]
    }

    fn systems(&self) -> Vec<Rule> {
        let rate = |clients, part| self.rate(self.sizes.system(clients), part);
        let pairs = PARTS.into_iter().flat_map(|part| {
            CLIENTS.map(|clients| (rate(clients, part), clients as f64 * rate(1, part)))
        });
        let (found, holds) = all_near(&pairs.collect::<Vec<_>>());
        vec![("the rate is in proportion to the system", found, holds)]
    }

    fn ways(&self) -> Vec<Rule> {
        let rate = |way, bytes, part| self.rate(self.sizes.one_client(way, bytes), part);
        let (kb, write, read) = (1 << 10, Part::FirstWrite, Part::Read);
        let cyclic = |part| {
            let all = [16, 64, 256].map(|size| {
                rate(Way::Cyclic, size * kb, part) / rate(Way::Sequence, size * kb, part)
            });
            all.into_iter().fold(f64::INFINITY, f64::min)
        };
        let (writes, reads) = (cyclic(write), cyclic(read));
        let half = rate(Way::Cyclic, 512 * kb, read);
        let whole = rate(Way::Cyclic, 1024 * kb, read);
        let sequence = rate(Way::Sequence, 64 * kb, write);
        vec![
            (
                "cyclic accesses are much faster than one disk",
                format!("writes {writes:.1} times, reads {reads:.1}, at least"),
                writes > 1.5 && reads > 1.5,
            ),
            (
                "cyclic reads fall above 512 KB",
                format!("{half:.2} MB/s, and {whole:.2} with 1 MB"),
                whole < 0.8 * half,
            ),
            (
                "cell after cell, writes are faster than 1.5 MB/s: the last is not waited for",
                format!("{sequence:.2} MB/s"),
                sequence > 1.05 * WRITE_MB_S && sequence < 1.5 * WRITE_MB_S,
            ),
        ]
    }

    fn subfiles(&self) -> Vec<Rule> {
        let sizes = self.sizes;
        let cells = |bytes, part| self.rate(sizes.four_clients(Way::Cells, bytes), part);
        let striped = |bytes, part| self.rate(sizes.four_clients(Way::Striped, bytes), part);
        let by_four = PARTS.into_iter().flat_map(|part| {
            let pair = move |bytes| {
                let alone = self.rate(sizes.big_alone(bytes), part);
                (cells(bytes, part), 4.0 * alone)
            };
            accesses(WAYS).map(pair)
        });
        let (four, is_four) = all_near(&by_four.collect::<Vec<_>>());
        let mut rules = vec![("a subfile a cell: four times Figure 10", four, is_four)];
        for (part, what) in [
            (
                Part::FirstWrite,
                "striped accesses of b as b/2 on a cell, 1st write",
            ),
            (Part::SecondWrite, "the same, 2nd write"),
            (Part::Read, "the same, read"),
        ] {
            let pairs = accesses(WAYS).map(|bytes| (striped(bytes, part), cells(bytes / 2, part)));
            let (found, holds) = all_near(&pairs.collect::<Vec<_>>());
            rules.push((what, found, holds));
        }
        rules
    }

    fn sorts(&self) -> Vec<Rule> {
        let seconds = |servers, block| self.results.sort_seconds(&self.sizes.sort(servers, block));
        let gain = |block| seconds(1, block) / seconds(8, block);
        let [smallest, .., largest] = SORT_BLOCKS;
        let gains = SORT_BLOCKS.map(gain);
        let is_fastest = |&servers: &usize| {
            let others = SORT_BLOCKS.into_iter().filter(|&block| block != largest);
            let mut others = others.map(|block| seconds(servers, block));
            others.all(|other| seconds(servers, largest) < other)
        };
        // The gain of a doubling, in the geometric mean over the figure.
        let doublings = |gain: f64, octaves: f64| gain.powf(1.0 / octaves);
        let count = |items: usize| 1.0 / items as f64;
        let servers = SORT_BLOCKS.map(|block| doublings(gain(block), 3.0));
        let servers = servers.iter().product::<f64>().powf(count(servers.len()));
        let octaves = (largest as f64 / smallest as f64).log2();
        let blocks =
            SORT_SERVERS.map(|n| doublings(seconds(n, smallest) / seconds(n, largest), octaves));
        let blocks = blocks.iter().product::<f64>().powf(count(blocks.len()));
        vec![
            (
                "small blocks speed up best",
                gains.map(|gain| format!("{gain:.2}")).join(", ") + " times with 8 I/O nodes",
                gains.is_sorted_by(|small, large| small > large),
            ),
            (
                "the largest block is the fastest",
                format!("{:.1} to {:.1} s", seconds(1, largest), seconds(8, largest)),
                SORT_SERVERS.iter().all(is_fastest),
            ),
            (
                "twice the I/O nodes help more than twice the block",
                format!("{servers:.2} and {blocks:.2} times, in the mean"),
                servers > blocks,
            ),
        ]
    }
}

/// The figures that have numbers.
pub(super) fn is_there(figure: u8) -> bool {
    published::FIGURES.contains(&figure)
}
