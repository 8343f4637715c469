//! `penstock serve`, and what belongs to it: keys, and a look at servers.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::ready;
use penstock_arrays::calls::meter::CallMeter;
use penstock_arrays::calls::office::{Arrays, Reception, StandingOpener};
use penstock_arrays::fs::user::User as ArrayUser;
use penstock_engine::{Kind, NodeId};
use penstock_files::disk::{self, CreateOptions};
use penstock_files::job::standing::{Calls, Reload, StandOptions, look, stand};
use penstock_files::job::{JobOptions, Seat};
use penstock_machines::{Node, Opener};
use penstock_net::Call;
use penstock_net::address::Address;
use penstock_net::door::Guests;
use penstock_net::keys;
use penstock_net::links::Roster;
use penstock_net::peer::{Peer, User};
use penstock_net::shared::Shared;
use penstock_net::tls::KeyFiles;
use penstock_trace::sizes::bytes;
use serde::Deserialize;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing_subscriber::Layer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::arguments::{Keys, LogForm, Serve, Servers};
use crate::failure::Failure;
use penstock_trace::Wanted;

/// The name of the socket in the directory of a volume.
const SOCKET: &str = "penstock.sock";

/// The most clients at a time, unless the configuration says otherwise.
const CLIENTS_MAX: usize = 4096;

/// The description of a volume and its server processes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The path of the volume, in which `{server}` stands for the number of a server.
    volume: String,
    /// The cache of each server.
    #[serde(default = "default_cache")]
    cache: String,
    /// Whether block files are read and written around the page cache.
    #[serde(default)]
    direct: bool,
    /// The directory of keys: `server-N` are those of process N.
    keys: Option<PathBuf>,
    /// The most clients at a time.
    #[serde(default = "default_clients")]
    clients: usize,
    /// The seconds for which a client may take nothing while there is something for it.
    #[serde(default = "default_patience")]
    patience: u64,
    /// Who may come, if not everybody.
    admit: Option<Admit>,
    /// The directory of arrays, the same for all processes, if arrays are served.
    arrays: Option<PathBuf>,
    /// The server processes, in the order of their numbers.
    #[serde(rename = "process")]
    processes: Vec<ProcessConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Admit {
    #[serde(default)]
    users: Vec<u32>,
    #[serde(default)]
    groups: Vec<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProcessConfig {
    /// The addresses at which the process listens, and others call it.
    listen: Vec<String>,
    /// The servers of the volume that it has.
    servers: Vec<usize>,
    /// The endpoint for Prometheus, if there is to be one.
    metrics: Option<String>,
    /// The file of a trace, if there is to be one.
    trace: Option<PathBuf>,
    /// The most bytes of that file.
    trace_bytes: Option<String>,
}

fn default_cache() -> String {
    "256MiB".to_string()
}

fn default_clients() -> usize {
    CLIENTS_MAX
}

fn default_patience() -> u64 {
    Call::PATIENCE.as_secs()
}

/// The clients that are connected, as the servers of arrays know them.
struct Clients(Roster);

impl Reception for Clients {
    fn is_server(&self, node: NodeId) -> bool {
        matches!(self.0.peer(node), Some(Peer::Server(_)))
    }

    fn user(&self, node: NodeId) -> Option<ArrayUser> {
        match self.0.peer(node)? {
            Peer::Client(who) => Some(ArrayUser {
                user: who.user,
                group: who.group,
                groups: who.groups,
            }),
            Peer::Server(_) => None,
        }
    }
}

/// The servers of arrays: those of the processes that have not gone for good.
fn homes_of_arrays(options: &StandOptions) -> Vec<NodeId> {
    let is_there = |process: &&NodeId| {
        let listens = options.addresses.get(**process);
        listens.is_some_and(|addresses| !addresses.is_empty())
    };
    options.homes.iter().filter(is_there).copied().collect()
}

/// The number of hosts of server processes: one, if one of them listens at a Unix socket alone.
fn hosts(addresses: &[Vec<Address>]) -> usize {
    let there: Vec<_> = addresses.iter().filter(|at| !at.is_empty()).collect();
    let is_on_this = |at: &&Vec<Address>| at.iter().all(|one| matches!(one, Address::Host(_)));
    match there.iter().any(is_on_this) {
        true => 1,
        false => there.len(),
    }
}

/// The word that servers are to stop. It may come before they wait for it.
#[derive(Default)]
struct Stop(Mutex<(bool, Vec<oneshot::Sender<()>>)>);

impl Stop {
    fn tell(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (is_told, waiting) = &mut *state;
        *is_told = true;
        waiting.clear(); // who waits hears that
    }

    fn wait(&self) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (is_told, waiting) = &mut *state;
        if !*is_told {
            waiting.push(sender);
        }
        receiver
    }
}

/// Serves a volume until a signal comes.
pub(crate) fn serve(asked: &Serve) -> Result<(), Failure> {
    let config = match (&asked.config, asked.process) {
        (Some(config), Some(process)) => Some((ConfigFile::read(config)?, process)),
        _ => None,
    };
    begin_log(asked, config.as_ref())?;
    let (options, root) = match (config, &asked.volume) {
        (Some((config, process)), _) => config.options(process)?,
        (_, Some(volume)) => (of_volume(asked, volume)?, asked.arrays.clone()),
        _ => return Err(Failure::input("what is to be served?")),
    };
    let listens: Vec<String> = options
        .addresses
        .get(options.process)
        .into_iter()
        .flatten()
        .map(ToString::to_string)
        .collect();
    // Signals are caught before anything is open.
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]);
    let mut signals = signals.map_err(|error| Failure::failed(format!("signals: {error}")))?;
    let volume = options.template.clone();
    let meter = CallMeter::default();
    let homes = Shared::new(match &root {
        Some(_) => homes_of_arrays(&options),
        None => Vec::new(),
    });
    let arrays = root.map(|root| {
        let arrays = Arrays {
            root,
            homes: homes.clone(),
            hosts: hosts(&options.addresses),
            cache_bytes: options.options.cache_bytes,
            meter: meter.clone(),
        };
        arrays.checked()
    });
    let arrays = arrays.transpose()?;
    let calls: Arc<Calls> = Arc::new(move |is_there| meter.counted(is_there));
    let opened = stand(StandOptions {
        arrays: homes.read(),
        calls: arrays.is_some().then_some(calls),
        ..options
    })?;
    let metrics = opened.endpoint().map(|address| address.to_string());
    tracing::info!(volume, addresses = ?listens, metrics, "serving");
    let stop = Arc::new(Stop::default());
    let (on_signal, handle) = (stop.clone(), signals.handle());
    let again = asked.config.clone().zip(asked.process);
    let again = again.map(|(config, process)| (config, process, opened.reload()));
    let waiting = std::thread::spawn(move || {
        for signal in signals.forever() {
            match &again {
                Some((config, process, reload)) if signal == SIGHUP => {
                    match read_again(config, *process, reload, &homes) {
                        Ok(processes) => tracing::info!(processes, "the configuration is read"),
                        Err(failure) => {
                            tracing::error!(why = failure.text(), "all stays as it was")
                        }
                    }
                }
                _ => {
                    tracing::info!(signal, "stopping");
                    on_signal.tell();
                }
            }
        }
    });
    let beside = |node: Rc<Node>, roster: Roster| match arrays {
        None => ready(()).boxed_local(),
        Some(arrays) => {
            let clients = Box::new(Clients(roster));
            async move { arrays.serve(&node, clients).await }.boxed_local()
        }
    };
    let served = opened.serve(&|| stop.wait(), Box::new(beside));
    handle.close();
    let _ = waiting.join();
    penstock_trace::end();
    served?;
    tracing::info!("stopped: all is saved");
    Ok(())
}

/// Reads the configuration once more: processes may have come behind the others, or have gone for
/// good. Gives their number.
fn read_again(
    config: &Path,
    process: usize,
    reload: &Reload,
    homes: &Shared<Vec<NodeId>>,
) -> Result<usize, Failure> {
    let (options, _) = ConfigFile::read(config)?.options(process)?;
    let arrays = match homes.read().is_empty() {
        true => Vec::new(), // none are served
        false => homes_of_arrays(&options),
    };
    let processes = options.addresses.len();
    reload.reload(options.homes, options.addresses, arrays.clone())?;
    homes.replace(arrays);
    Ok(processes)
}

/// Begins the log, and the trace if there is to be one.
fn begin_log(asked: &Serve, config: Option<&(ConfigFile, usize)>) -> Result<(), Failure> {
    let own = config.and_then(|(file, process)| file.config.processes.get(*process));
    let path = asked.trace.as_deref();
    let path = path.or_else(|| own.and_then(|own| own.trace.as_deref()));
    let size = asked.trace_bytes.as_deref();
    let size = size.or_else(|| own.and_then(|own| own.trace_bytes.as_deref()));
    let process = config.map_or(0, |(_, process)| *process);
    let name = format!("penstock serve, process {process}");
    let trace = Wanted::of(path, size)?.map(|wanted| penstock_trace::layer(&wanted, &name));
    let filter = tracing_subscriber::EnvFilter::try_from_env("PENSTOCK_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let log = tracing_subscriber::fmt::layer()
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let all = tracing_subscriber::registry().with(trace.transpose()?);
    // A second log of one process, in tests, changes nothing.
    let _ = match asked.log {
        LogForm::Text => all.with(log.with_filter(filter)).try_init(),
        LogForm::Json => all.with(log.json().with_filter(filter)).try_init(),
    };
    Ok(())
}

/// A volume with all of its servers in this process.
fn of_volume(asked: &Serve, volume: &Path) -> Result<StandOptions, Failure> {
    let template = text(volume)?;
    let servers = match disk::servers(&template) {
        Ok(found) => found,
        Err(error) if error.kind == Kind::Missing => {
            disk::create(&template, &CreateOptions::new(1))?;
            tracing::info!(volume = template, "a volume of one server has been made");
            1
        }
        Err(error) => return Err(error.into()),
    };
    let addresses = match &asked.listen[..] {
        [] => {
            let path = std::path::absolute(volume.join(SOCKET));
            let path = path.map_err(|error| Failure::failed(format!("{template}: {error}")))?;
            vec![Address::Host(path)]
        }
        given => addresses(given)?,
    };
    let keys = asked.keys.as_ref();
    let keys = keys.map(|named| KeyFiles::of_holder(named).read());
    Ok(StandOptions {
        template,
        process: 0,
        homes: vec![0; servers],
        addresses: vec![addresses],
        keys: keys.transpose()?,
        admission: Guests::All,
        clients_max: CLIENTS_MAX,
        patience: Call::PATIENCE,
        options: JobOptions {
            cache_bytes: bytes(&asked.cache)?,
            is_direct: asked.direct,
        },
        opener: opener(asked.direct),
        arrays: Vec::new(),
        metrics: asked.metrics.clone(),
        calls: None,
    })
}

/// The opener of a process with servers, of a volume and of arrays.
fn opener(is_direct: bool) -> Arc<dyn Opener> {
    let options = JobOptions {
        is_direct,
        ..JobOptions::default()
    };
    Arc::new(StandingOpener {
        other: Seat::opener(&options),
    })
}

/// A configuration, and where it is.
struct ConfigFile {
    path: PathBuf,
    config: Config,
}

impl ConfigFile {
    fn read(path: &Path) -> Result<Self, Failure> {
        let wrong = |cause: &dyn std::fmt::Display| wrong_in(path, cause);
        let content = std::fs::read_to_string(path).map_err(|error| wrong(&error))?;
        let config = toml::from_str(&content).map_err(|error| wrong(&error))?;
        let path = path.to_path_buf();
        Ok(Self { path, config })
    }

    /// The options of a process, and the directory of arrays.
    fn options(self, process: usize) -> Result<(StandOptions, Option<PathBuf>), Failure> {
        let Self { path, config } = self;
        let wrong = |cause: &dyn std::fmt::Display| wrong_in(&path, cause);
        if process >= config.processes.len() {
            let count = config.processes.len();
            return Err(wrong(&format!(
                "it has {count} processes, and no number {process}"
            )));
        }
        let mut homes = Vec::new();
        for (number, one) in config.processes.iter().enumerate() {
            homes.extend(one.servers.iter().map(|&server| (server, number)));
        }
        homes.sort_unstable();
        let is_whole = homes
            .iter()
            .enumerate()
            .all(|(nth, (server, _))| nth == *server);
        if !is_whole {
            return Err(wrong(
                &"each server of the volume, from 0 on, belongs to one process",
            ));
        }
        let own = config.processes.get(process);
        if own.is_some_and(|own| own.listen.is_empty()) {
            return Err(wrong(&format!(
                "process {process} listens nowhere: it has gone for good"
            )));
        }
        let metrics = own.and_then(|own| own.metrics.clone());
        let listens = config.processes.iter().map(|one| addresses(&one.listen));
        let listens: Vec<Vec<Address>> = listens.collect::<Result<_, _>>()?;
        let keys = config
            .keys
            .as_ref()
            .map(|directory| KeyFiles::within(directory, &format!("server-{process}")).read());
        let options = StandOptions {
            template: config.volume,
            process,
            homes: homes.into_iter().map(|(_, process)| process).collect(),
            addresses: listens,
            keys: keys.transpose()?,
            admission: match config.admit {
                None => Guests::All,
                Some(Admit { users, groups }) => Guests::Only { users, groups },
            },
            clients_max: config.clients,
            patience: Duration::from_secs(config.patience),
            options: JobOptions {
                cache_bytes: bytes(&config.cache)?,
                is_direct: config.direct,
            },
            opener: opener(config.direct),
            arrays: Vec::new(),
            metrics,
            calls: None,
        };
        Ok((options, config.arrays))
    }
}

fn wrong_in(path: &Path, cause: &dyn std::fmt::Display) -> Failure {
    Failure::input(format!("{}: {cause}", path.display()))
}

fn addresses(given: &[String]) -> Result<Vec<Address>, Failure> {
    let read: Result<Vec<Address>, _> = given.iter().map(|text| text.parse()).collect();
    Ok(read?)
}

fn text(path: &Path) -> Result<String, Failure> {
    let text = path.to_str().map(str::to_string);
    text.ok_or_else(|| Failure::input(format!("{}: the path is no text", path.display())))
}

/// Makes keys.
pub(crate) fn keys(asked: &Keys) -> Result<(), Failure> {
    let valid = |days: u32| Duration::from_secs(u64::from(days) * 24 * 3600);
    match asked {
        Keys::Authority { directory, days } => {
            let made = std::fs::create_dir_all(directory);
            made.map_err(|error| Failure::failed(format!("{}: {error}", directory.display())))?;
            keys::make_authority(directory, valid(*days))?;
        }
        Keys::Server {
            directory,
            process,
            hosts,
            days,
        } => {
            let (name, peer) = (format!("server-{process}"), Peer::Server(*process));
            keys::make(directory, &name, &peer, hosts, valid(*days))?;
        }
        Keys::User {
            directory,
            name,
            uid,
            gid,
            groups,
            days,
        } => {
            let peer = Peer::Client(User {
                user: *uid,
                group: *gid,
                groups: groups.clone(),
            });
            keys::make(directory, name, &peer, &[], valid(*days))?;
        }
    }
    Ok(())
}

/// Shows the servers of a volume.
pub(crate) fn servers(asked: &Servers) -> Result<(), Failure> {
    let call = Call::of_url(&asked.url, None)?;
    let call = call.ok_or_else(|| Failure::input(format!("{} is no URL", asked.url)))?;
    let seen = look(&call)?;
    let is_whole = seen.iter().all(|one| one.missing.is_none());
    let rows = seen.iter().map(|one| {
        json!({
            "process": one.process,
            "servers": one.servers,
            "addresses": one.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "is_there": one.missing.is_none(),
            "reason": one.missing.as_ref().map(ToString::to_string),
        })
    });
    let rows: Vec<_> = rows.collect();
    if asked.json {
        println!("{}", serde_json::Value::from(rows));
    } else {
        for one in &seen {
            let addresses: Vec<_> = one.addresses.iter().map(ToString::to_string).collect();
            let servers: Vec<_> = one.servers.iter().map(ToString::to_string).collect();
            let state = match &one.missing {
                None => "serves".to_string(),
                Some(reason) => format!("missing: {reason}"),
            };
            println!(
                "process {}  servers {}  {}  {state}",
                one.process,
                servers.join(","),
                addresses.join(" ")
            );
        }
    }
    match is_whole {
        true => Ok(()),
        false => Err(Failure::silent(1)),
    }
}
