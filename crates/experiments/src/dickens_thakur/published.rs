//! The paper's numbers and comparisons, machine by machine. Its figures are drawings: only numbers
//! of the text are here.

use serde::Serialize;

use super::run::{Background, Case, Way};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// The IBM SP2 at Argonne.
    Sp2,
    /// The Intel Paragon at Caltech.
    Paragon,
    /// The SGI Origin2000 at Argonne.
    Origin,
    /// The HP Exemplar at Caltech.
    Exemplar,
}

/// A value that the paper gives as a number.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    /// The rate of a case, MB/s.
    Rate(Case),
    /// The gain of the second case's rate over the first's, percent.
    Gain(Case, Case),
    /// The part of the first case's time that its permutation takes, percent: the second case does
    /// not permute.
    Permutation(Case, Case),
    /// The part of the first case's time that the second case saves, percent.
    Saved(Case, Case),
}

impl Value {
    /// The cases whose seconds the value needs.
    pub fn cases(&self) -> Vec<Case> {
        match *self {
            Value::Rate(case) => vec![case],
            Value::Gain(a, b) | Value::Permutation(a, b) | Value::Saved(a, b) => vec![a, b],
        }
    }

    /// The unit of the value.
    pub fn unit(&self) -> &'static str {
        match self {
            Value::Rate(_) => "MB/s",
            _ => "%",
        }
    }

    /// The case that a number of the paper is about, with the number in the unit of its figure: a
    /// percentage of another case is taken of that case's simulated `seconds`.
    pub fn implied(&self, paper: f64, seconds: impl Fn(&Case) -> f64) -> (Case, f64) {
        let rate = |case: &Case| case.file_mb as f64 / seconds(case);
        match *self {
            Value::Rate(case) => (case, paper),
            Value::Gain(from, to) => (to, rate(&from) * (1.0 + paper / 100.0)),
            Value::Permutation(all, write) => (all, rate(&write) * (1.0 - paper / 100.0)),
            Value::Saved(before, after) => (after, seconds(&before) * (1.0 - paper / 100.0)),
        }
    }

    /// The value, worked out from seconds.
    pub fn of(&self, seconds: impl Fn(&Case) -> f64) -> f64 {
        let rate = |case: &Case| case.file_mb as f64 / seconds(case);
        match self {
            Value::Rate(case) => rate(case),
            Value::Gain(from, to) => 100.0 * (rate(to) / rate(from) - 1.0),
            Value::Permutation(all, write) => 100.0 * (1.0 - seconds(write) / seconds(all)),
            Value::Saved(before, after) => 100.0 * (1.0 - seconds(after) / seconds(before)),
        }
    }
}

/// The aim of a simulated number beside the paper's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aim {
    /// The number lies within a quarter of the paper's; a percentage may also lie within some
    /// points.
    Near,
    /// The number lies below the paper's.
    Below,
}

/// A number of the paper.
#[derive(Clone, Copy, Debug)]
pub struct Number {
    pub figure: u8,
    pub what: &'static str,
    pub value: Value,
    pub paper: f64,
    pub aim: Aim,
}

/// A comparison of the paper: the first case is slower than the second.
#[derive(Clone, Copy, Debug)]
pub struct Comparison {
    pub figure: u8,
    pub what: &'static str,
    pub slower: Case,
    pub faster: Case,
}

/// Makes a case of 64 MB, as in Figure 2.
fn at(clients: usize, way: Way) -> Case {
    Case::new(clients, 64, way)
}

fn near(figure: u8, what: &'static str, value: Value, paper: f64) -> Number {
    Number {
        figure,
        what,
        value,
        paper,
        aim: Aim::Near,
    }
}

const NONE: Way = Way::NonCollective;
const STEP1: Way = Way::Step(1);
const STEP2: Way = Way::Step(2);
const STEP5: Way = Way::Step(5);

/// Adds computation to a case: 64 MB by Step 5, or 4 MB a processor, conforming.
fn computes(case: Case, background: Background) -> Case {
    Case {
        computes: Some(background),
        ..case
    }
}

fn plain(clients: usize) -> Case {
    Case::new(clients, 4 * clients as u64, Way::Conforming)
}

fn overlapped(case: Case) -> Value {
    saved(case, Background::All)
}

fn saved(case: Case, background: Background) -> Value {
    let before = computes(case, Background::None);
    Value::Saved(before, computes(case, background))
}

impl Machine {
    /// All machines, in the order of the paper.
    pub const ALL: [Machine; 4] = [
        Machine::Sp2,
        Machine::Exemplar,
        Machine::Origin,
        Machine::Paragon,
    ];

    /// The name of the machine's preset.
    pub fn preset(self) -> &'static str {
        match self {
            Machine::Sp2 => "sp2-anl",
            Machine::Paragon => "paragon-caltech",
            Machine::Origin => "origin2000-anl",
            Machine::Exemplar => "exemplar-caltech",
        }
    }

    /// Whether the paper has this figure of the machine.
    pub fn has(self, figure: u8) -> bool {
        figure != 7 || self == Machine::Origin
    }

    /// The processors of Figure 2.
    pub fn clients(self) -> &'static [usize] {
        match self {
            Machine::Sp2 | Machine::Origin => &[4, 8, 16, 32, 64],
            Machine::Exemplar => &[4, 8, 16, 32, 64, 128],
            Machine::Paragon => &[16, 32, 64, 128],
        }
    }

    /// The processors of Figure 3.
    pub fn clients_max(self) -> usize {
        match self {
            Machine::Sp2 | Machine::Origin => 64,
            Machine::Exemplar => 128,
            Machine::Paragon => 256,
        }
    }

    /// The processors of Figures 5 to 7; Figure 4 has 8 to 64.
    pub fn clients_computing(self) -> &'static [usize] {
        match self {
            Machine::Paragon => &[16, 32, 64, 128],
            _ => &[8, 16, 32, 64],
        }
    }

    /// Turns O_DIRECT off for the Origin, as in its Figures 4 to 6.
    pub fn buffered(self, case: Case) -> Case {
        Case {
            is_buffered: self == Machine::Origin,
            ..case
        }
    }

    /// The paper's numbers.
    pub fn numbers(self) -> Vec<Number> {
        match self {
            Machine::Sp2 => of_sp2(),
            Machine::Paragon => of_paragon(),
            Machine::Origin => of_origin(),
            Machine::Exemplar => of_exemplar(),
        }
    }

    /// The paper's comparisons.
    pub fn comparisons(self) -> Vec<Comparison> {
        let mut all: Vec<Comparison> = Vec::new();
        let clients = self.clients();
        for &count in clients {
            // With few processors the paper says this of no machine, and the opposite of the
            // Exemplar.
            if count >= 16 {
                all.push(is_slower(
                    2,
                    "non-collective < Step 1",
                    at(count, NONE),
                    at(count, STEP1),
                ));
            }
            if self != Machine::Exemplar {
                all.push(is_slower(
                    2,
                    "Step 1 < Step 2",
                    at(count, STEP1),
                    at(count, STEP2),
                ));
            }
            // With 64 processors of the SP2 there is no difference.
            if (self, count) != (Machine::Sp2, 64) {
                all.push(is_slower(
                    2,
                    "Step 2 < Step 5",
                    at(count, STEP2),
                    at(count, STEP5),
                ));
            }
        }
        all.extend(self.own_comparisons());
        all
    }

    /// Comparisons of one machine alone.
    fn own_comparisons(self) -> Vec<Comparison> {
        let mut all: Vec<Comparison> = Vec::new();
        let five = |count| at(count, STEP5);
        match self {
            Machine::Sp2 => {
                for other in [4, 8, 16, 64] {
                    all.push(is_slower(
                        2,
                        "Step 5 is fastest with 32 processors",
                        five(other),
                        five(32),
                    ));
                }
            }
            Machine::Paragon => {
                for other in [16, 32, 128] {
                    all.push(is_slower(
                        2,
                        "Step 5 is fastest with 64 processors",
                        five(other),
                        five(64),
                    ));
                }
                let grown = |mb| Case::new(256, mb, STEP5);
                all.push(is_slower(
                    3,
                    "Step 5 still rises from 256 MB to 1 GB",
                    grown(256),
                    grown(1024),
                ));
            }
            Machine::Origin => {
                for other in [4, 8, 16, 32] {
                    all.push(is_slower(
                        2,
                        "Step 5 is fastest with 64 processors",
                        five(other),
                        five(64),
                    ));
                }
                let case = self.buffered(five(64));
                let [none, whole] = [Background::None, Background::All].map(|b| computes(case, b));
                all.push(is_slower(
                    5,
                    "all in background is worse than nothing",
                    whole,
                    none,
                ));
            }
            Machine::Exemplar => {
                for count in [4, 8] {
                    all.push(is_slower(
                        2,
                        "Step 1 < non-collective",
                        at(count, STEP1),
                        at(count, NONE),
                    ));
                }
                for other in [4, 16, 32, 64, 128] {
                    all.push(is_slower(
                        2,
                        "Step 5 is fastest with 8 processors",
                        five(other),
                        five(8),
                    ));
                }
                all.push(is_slower(
                    2,
                    "Step 5 rises from 16 to 128 processors",
                    five(16),
                    five(128),
                ));
                let large = |way| Case::new(128, 256, way);
                all.push(is_slower(
                    3,
                    "256 MB: Step 2 < Step 1",
                    large(STEP2),
                    large(STEP1),
                ));
                all.push(is_slower(
                    3,
                    "256 MB: conforming < staggered",
                    large(Way::Conforming),
                    large(STAGGERED),
                ));
                let case = five(64);
                let [none, whole] = [Background::None, Background::All].map(|b| computes(case, b));
                all.push(is_slower(
                    5,
                    "all in background is worse than nothing",
                    whole,
                    none,
                ));
            }
        }
        all
    }
}

fn is_slower(figure: u8, what: &'static str, slower: Case, faster: Case) -> Comparison {
    Comparison {
        figure,
        what,
        slower,
        faster,
    }
}
/// Processors write one after the other: "Some of the processors delay their writes for a short
/// period".
const STAGGERED: Way = Way::Staggered(10_000);

fn of_sp2() -> Vec<Number> {
    use Value::{Gain, Rate};
    vec![
        near(2, "non-collective, 64 processors", Rate(at(64, NONE)), 5.0),
        near(2, "Step 5, 64 processors", Rate(at(64, STEP5)), 68.0),
        near(2, "Step 5, 32 processors", Rate(at(32, STEP5)), 79.0),
        near(
            2,
            "32: non-collective to Step 1",
            Gain(at(32, NONE), at(32, STEP1)),
            310.0,
        ),
        near(
            2,
            "32: Step 1 to Step 2",
            Gain(at(32, STEP1), at(32, STEP2)),
            95.0,
        ),
        near(
            2,
            "32: Step 2 to Step 5",
            Gain(at(32, STEP2), at(32, STEP5)),
            10.0,
        ),
        near(
            2,
            "64: non-collective to Step 1",
            Gain(at(64, NONE), at(64, STEP1)),
            740.0,
        ),
        near(
            2,
            "64: Step 1 to Step 2",
            Gain(at(64, STEP1), at(64, STEP2)),
            62.0,
        ),
        near(
            2,
            "64: Step 2 to Step 5",
            Gain(at(64, STEP2), at(64, STEP5)),
            0.0,
        ),
        near(
            4,
            "plain write overlapped, 64 processors",
            overlapped(plain(64)),
            46.0,
        ),
        near(
            6,
            "disk in background, 64 processors",
            saved(at(64, STEP5), Background::Disk),
            45.0,
        ),
        near(
            6,
            "all in background, 64 processors",
            saved(at(64, STEP5), Background::All),
            45.0,
        ),
    ]
}

fn of_paragon() -> Vec<Number> {
    use Value::Rate;
    vec![
        near(2, "Step 5, 64 processors", Rate(at(64, STEP5)), 170.0),
        near(
            3,
            "Step 5, 1 GB, 256 processors",
            Rate(Case::new(256, 1024, STEP5)),
            440.0,
        ),
        near(
            3,
            "Step 1, 1 GB, 256 processors",
            Rate(Case::new(256, 1024, STEP1)),
            78.0,
        ),
        near(
            4,
            "plain write overlapped, 64 processors",
            overlapped(plain(64)),
            35.0,
        ),
        near(
            5,
            "all in background, 64 processors",
            saved(at(64, STEP5), Background::All),
            0.0,
        ),
        near(
            6,
            "disk in background, 64 processors",
            saved(at(64, STEP5), Background::Disk),
            26.0,
        ),
    ]
}

fn of_origin() -> Vec<Number> {
    use Value::{Permutation, Rate};
    let share = |clients, mb| {
        let case = |way| Case::new(clients, mb, way);
        Permutation(case(STEP5), case(Way::Conforming))
    };
    let buffered = |case| Machine::Origin.buffered(case);
    let six = buffered(at(64, STEP5));
    vec![
        near(2, "non-collective, 64 processors", Rate(at(64, NONE)), 17.0),
        near(2, "Step 1, 64 processors", Rate(at(64, STEP1)), 353.0),
        near(2, "Step 5, 64 processors", Rate(at(64, STEP5)), 435.0),
        near(2, "permutation's share, 16 processors", share(16, 64), 90.0),
        near(2, "permutation's share, 32 processors", share(32, 64), 75.0),
        near(2, "permutation's share, 64 processors", share(64, 64), 55.0),
        near(
            3,
            "permutation's share, 1 GB, 64 processors",
            share(64, 1024),
            35.0,
        ),
        near(
            4,
            "plain write overlapped, 64 processors",
            overlapped(buffered(plain(64))),
            38.0,
        ),
        near(
            6,
            "disk in background, 64 processors",
            saved(six, Background::Disk),
            25.0,
        ),
        near(
            6,
            "all in background, 64 processors",
            saved(six, Background::All),
            -32.0,
        ),
        near(
            7,
            "disk in background, O_DIRECT, 64 processors",
            saved(at(64, STEP5), Background::Disk),
            0.0,
        ),
    ]
}

fn of_exemplar() -> Vec<Number> {
    use Value::{Gain, Rate};
    let large = |way| Case::new(128, 256, way);
    vec![
        near(2, "Step 5, 8 processors", Rate(at(8, STEP5)), 140.0),
        near(2, "non-collective, 8 processors", Rate(at(8, NONE)), 62.0),
        near(2, "Step 1, 8 processors", Rate(at(8, STEP1)), 23.0),
        Number {
            aim: Aim::Below,
            ..near(
                2,
                "non-collective, 128 processors",
                Rate(at(128, NONE)),
                1.0,
            )
        },
        near(2, "Step 1, 128 processors", Rate(at(128, STEP1)), 72.0),
        near(
            3,
            "Step 1, 256 MB, 128 processors",
            Rate(large(STEP1)),
            108.0,
        ),
        near(
            3,
            "Step 2, 256 MB, 128 processors",
            Rate(large(STEP2)),
            75.0,
        ),
        near(
            3,
            "conforming, 256 MB, 128 processors",
            Rate(large(Way::Conforming)),
            94.0,
        ),
        near(3, "the same, staggered", Rate(large(STAGGERED)), 140.0),
        near(
            3,
            "Step 5, 256 MB to 1 GB",
            Gain(large(STEP5), Case::new(128, 1024, STEP5)),
            -20.0,
        ),
        near(
            4,
            "plain write overlapped, 32 processors",
            overlapped(plain(32)),
            26.0,
        ),
        near(
            4,
            "plain write overlapped, 64 processors",
            overlapped(plain(64)),
            9.0,
        ),
        near(
            6,
            "disk in background, 64 processors",
            saved(at(64, STEP5), Background::Disk),
            12.0,
        ),
        near(
            6,
            "all in background, 64 processors",
            saved(at(64, STEP5), Background::All),
            -126.0,
        ),
    ]
}
