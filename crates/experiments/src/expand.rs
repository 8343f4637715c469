//! Work at the servers or at the clients: the study that Kotz, TOCS 1997, section 8, leaves open.
//!
//! One file, read by all clients in blocks of rows (`rb`), is *filtered*, so that each client gets
//! the records of its part that satisfy a condition, or *dealt out*, so that each record goes to
//! the client that a value of it names, all equally often.
//!
//! | work | at the servers | at the clients |
//! |---|---|---|
//! | filter | servers look at their blocks, and send the records that satisfy, each with its place | clients read their part, and look at it |
//! | deal out | servers send each record to its client | clients read a part, look at it, and exchange |
//!
//! To look at a record takes the time of a copy on this machine, wherever that is done. Shown are
//! the time until the last client has its records, and the bytes of all messages, over the share of
//! records that satisfy and over the speed of the network.

use std::fmt;
use std::rc::Rc;

use penstock_engine::{Error, Kind, Machine, Port, Sifting, Work};
use penstock_sim::call::CollectiveRun;
use penstock_sim::machine::{Layout, Selectivity, SimNode, Simulation};
use penstock_sim::preset::{NetworkKind, Preset};
use penstock_sim::time::Time;
use serde::Serialize;

use super::figure::{Figure, Line, Point, Scale, X};
use super::text::{Grid, mean_bytes};
use super::{StudyError, Trials, threads};
use crate::experiment::{Experiment, Method};

/// The shares of records that satisfy, in percent.
pub const PERCENTS: [u64; 6] = [1, 5, 20, 50, 80, 100];
/// The parts of the network's speed.
pub const SLOWER: [u64; 3] = [1, 16, 64];

/// The bytes that tell the place of a record.
const PLACE_BYTES: u64 = 2;

/// What is done with the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Job {
    /// So many percent of the records satisfy a condition.
    Filter { percent: u64 },
    /// Each record goes to the client that its value names.
    DealOut,
}

/// Where it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    Servers,
    Clients,
}

/// The options of the study.
#[derive(Clone, Debug)]
pub struct Options {
    pub preset: Preset,
    pub layout: Layout,
    /// The bytes of a record.
    pub record_bytes: u64,
    pub percents: Vec<u64>,
    /// How many times slower the network is than the preset's.
    pub slower: Vec<u64>,
}

/// A row of the study.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    #[serde(flatten)]
    pub job: Job,
    pub at: Place,
    /// How many times slower the network is than the preset's.
    pub slower: u64,
    /// The virtual time until the last client has its records, seconds; the mean of the trials.
    pub seconds: f64,
    /// The bytes of all messages.
    pub message_bytes: f64,
    pub messages: f64,
}

/// The results of the study.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Expand {
    pub preset: String,
    pub file_bytes: u64,
    pub record: u64,
    pub trials: u64,
    /// The rows by network, job and place.
    pub rows: Vec<Row>,
}

/// One run.
struct Case {
    preset: Preset,
    layout: Layout,
    record_bytes: u64,
    job: Job,
    at: Place,
    slower: u64,
}

impl Options {
    /// Runs the study.
    ///
    /// # Errors
    /// When an option makes no sense, and the first error of a run.
    pub fn measure(&self, trials: &Trials) -> Result<Expand, StudyError> {
        let wrong = |cause: &str| Err(StudyError::Input(cause.into()));
        if self.percents.iter().any(|percent| *percent > 100) {
            return wrong("the share of records that satisfy is at most 100 percent");
        }
        if self.slower.is_empty() || self.slower.contains(&0) {
            return wrong("a network is 1 or more times slower");
        }
        let mut jobs: Vec<Job> = self
            .percents
            .iter()
            .map(|&p| Job::Filter { percent: p })
            .collect();
        jobs.push(Job::DealOut);
        let mut cases = Vec::new();
        for &slower in &self.slower {
            let preset = with_slower_network(&self.preset, slower)?;
            for &job in &jobs {
                for at in [Place::Servers, Place::Clients] {
                    cases.push(Case {
                        preset: preset.clone(),
                        layout: self.layout,
                        record_bytes: self.record_bytes,
                        job,
                        at,
                        slower,
                    });
                }
            }
        }
        let runs: Vec<(&Case, u64)> = cases
            .iter()
            .flat_map(|case| (0..trials.count).map(move |nth| (case, trials.first + nth)))
            .collect();
        let ran = threads::run_all(&runs, trials.threads, |(case, trial)| case.run(*trial));
        let mut ends = Vec::with_capacity(ran.len());
        for end in ran.into_iter().flatten() {
            ends.push(end?);
        }
        let count = usize::try_from(trials.count).unwrap_or(1).max(1);
        let of_trials = cases.iter().zip(ends.chunks(count));
        let rows = of_trials.map(|(case, ends)| {
            let mean = |of: &dyn Fn(&End) -> f64| ends.iter().map(of).sum::<f64>() / count as f64;
            Row {
                job: case.job,
                at: case.at,
                slower: case.slower,
                seconds: mean(&|end| end.seconds),
                message_bytes: mean(&|end| end.message_bytes as f64),
                messages: mean(&|end| end.messages as f64),
            }
        });
        Ok(Expand {
            preset: self.preset.name.clone(),
            file_bytes: self.preset.file.bytes,
            record: self.record_bytes,
            trials: trials.count,
            rows: rows.collect(),
        })
    }
}

/// The machine with a slower network.
fn with_slower_network(preset: &Preset, slower: u64) -> Result<Preset, StudyError> {
    let mut preset = preset.clone();
    let rate = match &mut preset.network {
        NetworkKind::Torus(torus) => &mut torus.bytes_per_second,
        NetworkKind::FatTree(tree) => &mut tree.bytes_per_second,
    };
    *rate = (*rate / slower).max(1);
    preset.validate()?;
    Ok(preset)
}

fn unfit(cause: impl fmt::Display) -> Error {
    Error::new(Kind::Schema, "setting up a run", cause)
}

/// What a run came to.
struct End {
    seconds: f64,
    message_bytes: u64,
    messages: u64,
}

impl Case {
    fn run(&self, trial: u64) -> Result<End, Error> {
        let experiment = Experiment {
            preset: &self.preset,
            pattern: "rb".parse().map_err(unfit)?,
            record_bytes: self.record_bytes,
            layout: self.layout,
            method: Method::DdioSort,
            trial,
        };
        let mut request = experiment.request()?;
        let clients = self.preset.nodes.clients;
        if self.at == Place::Servers {
            let (kept, dealt_to) = match self.job {
                Job::Filter { percent } => (percent, None),
                Job::DealOut => (100, Some(clients)),
            };
            let selectivity = Selectivity {
                of: 100,
                kept,
                index_bytes: PLACE_BYTES,
                dealt_to,
            };
            request.sifting = Some(Sifting {
                words: selectivity.words()?,
                is_dealt: false,
            });
        }
        let setup = experiment.setup(&request, false);
        let width = request.disk.width();
        let share = |rank| request.holders.share(rank).elements() * width;
        let own: Rc<Vec<u64>> = Rc::new((0..clients).map(share).collect());
        let simulation = Simulation::new(&self.preset, &setup)?;
        let run = Rc::new(CollectiveRun {
            requests: vec![request],
            party: simulation.party().clone(),
            is_collective: true,
        });
        let (job, at) = (self.job, self.at);
        run.in_simulation(&simulation, |node| {
            let (run, own) = (run.clone(), own.clone());
            async move {
                run.call(&node).await?;
                let Some(rank) = run.party.rank(node.me()) else {
                    return Ok(());
                };
                if at == Place::Clients {
                    node.work(Work::Sift(own[rank])).await;
                    if job == Job::DealOut {
                        exchange(&node, &run.party.clients, &own, rank).await?;
                    }
                }
                Ok(())
            }
        })?;
        let totals = simulation.totals();
        Ok(End {
            seconds: simulation
                .now()
                .saturating_since(Time::ZERO)
                .as_seconds_f64(),
            message_bytes: totals.message_bytes,
            messages: totals.messages,
        })
    }
}

const EXCHANGE: Port = Port::new([0xe0, 0, 0]);

/// Sends every other client its part of this one's records, and takes theirs.
async fn exchange(
    node: &SimNode,
    clients: &[usize],
    own: &[u64],
    rank: usize,
) -> Result<(), Error> {
    let count = clients.len();
    let part = |from: usize| own[from] / count as u64;
    // Each begins with the next one, so that not all send to the first.
    for step in 1..count {
        let to = clients[(rank + step) % count];
        let buffer = node.buffer(part(rank))?;
        let parcel = node.cut(&buffer, 0..part(rank));
        node.send(to, EXCHANGE, Vec::new(), Some(parcel)).await?;
    }
    for _ in 1..count {
        node.receive(EXCHANGE).await;
    }
    Ok(())
}

impl Expand {
    fn row(&self, job: Job, at: Place, slower: u64) -> Option<&Row> {
        let is_it = |row: &&Row| (row.job, row.at, row.slower) == (job, at, slower);
        self.rows.iter().find(is_it)
    }

    /// The time of filtering over the share of records that satisfy.
    pub fn figure(&self) -> Figure {
        let mut networks: Vec<u64> = self.rows.iter().map(|row| row.slower).collect();
        networks.dedup();
        let line = |at: Place, slower: u64| Line {
            name: format!("{}, network / {slower}", words(at)),
            points: self
                .rows
                .iter()
                .filter(|row| row.at == at && row.slower == slower)
                .filter_map(|row| match row.job {
                    Job::Filter { percent } => Some(Point {
                        x: X::Name(format!("{percent}%")),
                        y: 1e3 * row.seconds,
                        cv: None,
                    }),
                    Job::DealOut => None,
                })
                .collect(),
        };
        let places = [Place::Servers, Place::Clients];
        let lines = networks
            .iter()
            .flat_map(|&slower| places.map(|at| line(at, slower)));
        Figure {
            figure: "expand".into(),
            title: "Filtering at the servers and at the clients".into(),
            x_label: "records that satisfy".into(),
            y_label: "ms".into(),
            x_scale: Scale::Category,
            series: lines.collect(),
            limits: Vec::new(),
            published: Vec::new(),
            preset: self.preset.clone(),
            trials: self.trials,
        }
    }
}

fn words(at: Place) -> &'static str {
    match at {
        Place::Servers => "at servers",
        Place::Clients => "at clients",
    }
}

impl fmt::Display for Expand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut grid = Grid::default();
        let head = [
            "work",
            "network",
            "servers, ms",
            "clients, ms",
            "gain",
            "servers, sent",
            "clients, sent",
            "gain",
        ];
        grid.row(head.map(String::from));
        for at_servers in self.rows.iter().filter(|row| row.at == Place::Servers) {
            let Row { job, slower, .. } = *at_servers;
            let Some(at_clients) = self.row(job, Place::Clients, slower) else {
                continue;
            };
            let work = match job {
                Job::Filter { percent } => format!("filter, {percent}%"),
                Job::DealOut => "deal out".to_string(),
            };
            let ms = |row: &Row| format!("{:.3}", 1e3 * row.seconds);
            grid.row([
                work,
                format!("/ {slower}"),
                ms(at_servers),
                ms(at_clients),
                format!("{:.2}", at_clients.seconds / at_servers.seconds),
                mean_bytes(at_servers.message_bytes),
                mean_bytes(at_clients.message_bytes),
                format!("{:.2}", at_clients.message_bytes / at_servers.message_bytes),
            ]);
        }
        write!(f, "{grid}")?;
        writeln!(f)?;
        writeln!(
            f,
            "{}: a file of {}, records of {} bytes; {}",
            self.preset,
            mean_bytes(self.file_bytes as f64),
            self.record,
            super::text::trials(self.trials)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(preset: &str, percents: &[u64], slower: &[u64]) -> Options {
        let mut preset = Preset::find(preset).unwrap();
        preset.file.bytes = preset.file.block_bytes * 64;
        Options {
            preset,
            layout: Layout::Contiguous,
            record_bytes: 64,
            percents: percents.into(),
            slower: slower.into(),
        }
    }

    fn measured(preset: &str, percents: &[u64], slower: &[u64]) -> Expand {
        let trials = Trials {
            count: 1,
            first: 0,
            threads: 2,
        };
        options(preset, percents, slower).measure(&trials).unwrap()
    }

    #[test]
    fn servers_send_what_satisfies_and_clients_get_all() {
        for preset in ["tocs97", "nvme-server"] {
            let all = measured(preset, &[0, 10, 100], &[1]);
            let sent = |percent, at| {
                let row = all.row(Job::Filter { percent }, at, 1).unwrap();
                row.message_bytes
            };
            let file = all.file_bytes as f64;
            for percent in [0, 10, 100] {
                assert!(sent(percent, Place::Clients) > file);
            }
            assert!(sent(0, Place::Servers) < 0.2 * file);
            let tenth = sent(10, Place::Servers) - sent(0, Place::Servers);
            assert!((0.09..0.2).contains(&(tenth / file)), "{tenth} of {file}");
            let whole = sent(100, Place::Servers) - sent(0, Place::Servers);
            assert!((1.0..1.2).contains(&(whole / file)), "{whole} of {file}");
        }
    }

    #[test]
    fn records_that_are_dealt_out_cross_the_network_once_or_twice() {
        let all = measured("tocs97", &[], &[1, 64]);
        for slower in [1, 64] {
            let row = |at| all.row(Job::DealOut, at, slower).unwrap();
            let (servers, clients) = (row(Place::Servers), row(Place::Clients));
            let file = all.file_bytes as f64;
            assert!((1.0..1.3).contains(&(servers.message_bytes / file)));
            assert!((1.9..2.3).contains(&(clients.message_bytes / file)));
            assert!(servers.seconds < clients.seconds);
        }
    }

    #[test]
    fn the_table_and_the_figure_have_all() {
        let all = measured("tocs97", &[1, 50], &[1, 4]);
        assert_eq!(
            all,
            measured("tocs97", &[1, 50], &[1, 4]),
            "runs are the same"
        );
        let text = all.to_string();
        for words in [
            "filter, 1%",
            "filter, 50%",
            "deal out",
            "/ 4",
            "records of 64 bytes",
        ] {
            assert!(text.contains(words), "{text}");
        }
        let figure = all.figure();
        assert_eq!(figure.series.len(), 4);
        assert!(figure.series.iter().all(|line| line.points.len() == 2));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (percents, slower) in [(&[101][..], &[1][..]), (&[1], &[0]), (&[1], &[])] {
            let trials = Trials::new(1);
            assert!(
                options("tocs97", percents, slower)
                    .measure(&trials)
                    .is_err()
            );
        }
    }
}
