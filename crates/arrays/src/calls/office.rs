//! The office of servers that stand: the calls on arrays of whatever session comes.
//!
//! A call's errand comes from rank 0 of a session. Its director works in a thread of its own, for
//! the user of that session and below the root of the arrays: the kernel checks what the user may
//! do, and a path that leads out of the root is refused.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::LocalBoxFuture;
use penstock_engine::collective::chair::Delegate;
use penstock_engine::collective::{Office, Voice, difference};
use penstock_engine::encoding::{decode, encode};
use penstock_engine::{
    Decision, Director, Error, Kind, Machine, NodeId, Opening, Party, PartyId, RankParts, Result,
    Strategy, Tally, Traffic,
};
use penstock_machines::calls::NodeServers;
use penstock_machines::{BlockSieve, DeviceId, Medium, Node, Opener};
use penstock_net::shared::Shared;

use super::ask::Ask;
use super::commit::CommitErrand;
use super::desk::Desk;
use super::errand::{AnyErrand, Close, Meet, Topic, heard};
use super::meter::{CallMeter, CountedCall};
use super::open_array::{OpenErrand, OrderErrand, TogetherErrand};
use super::opener::open_target;
use super::read::ReadErrand;
use super::restart::FindErrand;
use super::save::SaveErrand;
use super::settings::{BACKGROUND_BYTES, SessionOptions, Settings, heard_target};
use super::sifted::SiftErrand;
use super::write::WriteErrand;
use crate::formats::spread::of_server;
use crate::fs::user::{User, UserMedium};
use crate::json::AsText;
use crate::{Target, groups, sieve};

/// The most bytes of a block that a session may ask for.
const BLOCK_BYTES_MAX: u64 = 1 << 30;

/// The most sessions at a time.
const SESSIONS_MAX: usize = 1 << 14;

/// The clients of servers that stand, as the machine knows them.
pub trait Reception {
    /// Whether the node is one of the processes with servers.
    fn is_server(&self, node: NodeId) -> bool;

    /// The user of a client that is connected.
    fn user(&self, node: NodeId) -> Option<User>;
}

/// What servers of arrays serve.
pub struct Arrays {
    /// The directory of the arrays, the same for all servers.
    pub root: PathBuf,
    /// The node of each server, by number, as new sessions must know them. Processes come and go.
    pub homes: Shared<Vec<NodeId>>,
    /// The number of hosts that they are on.
    pub hosts: usize,
    /// The bytes of the cache for arrays that stay open, of each server.
    pub cache_bytes: u64,
    /// Counts the calls that this process directs.
    pub meter: CallMeter,
}

impl Arrays {
    /// Checks that the root is there, and gives the directory itself, without links.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn checked(self) -> Result<Self> {
        let root = self.root.canonicalize();
        let root = root.map_err(|e| Error::io(&e, "looking for the root of arrays", &self.root))?;
        Ok(Self { root, ..self })
    }

    /// Serves arrays on a node, for ever.
    pub async fn serve(self, node: &Node, reception: Box<dyn Reception>) {
        let homes = self.homes.read();
        let here = homes.iter().filter(|&&home| home == node.me());
        let cache_bytes = self.cache_bytes.saturating_mul(here.count() as u64);
        let office = ArrayOffice {
            arrays: self,
            reception,
            guests: RefCell::default(),
        };
        NodeServers::standing(node, Rc::new(office), cache_bytes)
            .run()
            .await;
    }
}

/// The office of one process.
struct ArrayOffice {
    arrays: Arrays,
    reception: Box<dyn Reception>,
    guests: RefCell<BTreeMap<PartyId, Arc<Guest>>>,
}

/// A session that has come.
struct Guest {
    user: User,
    root: PathBuf,
    party: Party,
    hosts: usize,
    /// Made when the first errand tells the options.
    desk: OnceLock<Arc<Desk>>,
}

impl ArrayOffice {
    /// The user of all clients of a party.
    ///
    /// # Errors
    /// [`Kind::Peer`] when the party may not come.
    fn user_of(&self, party: &Party) -> Result<User> {
        let refused = |cause: &str| Error::new(Kind::Peer, "opening a session", cause);
        let users = party.clients.iter().map(|&node| self.reception.user(node));
        let users: Option<Vec<User>> = users.collect();
        let users = users.ok_or_else(|| refused("a rank is not connected with all servers"))?;
        if party.servers != self.arrays.homes.read() {
            return Err(refused("other servers are meant"));
        }
        if self.guests.borrow().len() >= SESSIONS_MAX {
            return Err(refused("there are too many sessions"));
        }
        let mut first = users.iter().take(1).cloned();
        let user = first.find(|first| users.iter().all(|one| one == first));
        user.ok_or_else(|| refused("its ranks are of several users"))
    }
}

impl Office for ArrayOffice {
    fn is_server(&self, node: NodeId) -> bool {
        self.reception.is_server(node)
    }

    fn director_node(&self) -> Option<NodeId> {
        self.arrays.homes.read().first().copied()
    }

    fn check(&self, party: &Party) -> Result<()> {
        self.user_of(party)?.check()
    }

    fn admit(&self, party: &Party) {
        let Ok(user) = self.user_of(party) else {
            return; // a rank has left since the check: its party is told so
        };
        let guest = Guest {
            user,
            root: self.arrays.root.clone(),
            party: party.clone(),
            hosts: self.arrays.hosts,
            desk: OnceLock::new(),
        };
        self.guests.borrow_mut().insert(party.id, Arc::new(guest));
    }

    fn director(&self, party: &Party, errand: Vec<u8>) -> Box<dyn Delegate> {
        let topic = topic_of(&errand).unwrap_or(Topic::Unknown);
        let work = match self.guests.borrow().get(&party.id) {
            Some(guest) => Work::Told(guest.clone(), errand),
            None => Work::Done,
        };
        let counted = self.arrays.meter.begin(topic, party.clients.clone());
        Box::new(Clerk { work, counted })
    }

    fn difference(&self, one: &Voice, other: &Voice) -> String {
        difference::<Ask>(one, other)
    }

    fn answer(&self, party: &Party, question: Vec<u8>) -> LocalBoxFuture<'_, Result<Vec<u8>>> {
        let guest = self.guests.borrow().get(&party.id).cloned();
        let answering = async move {
            let guest = guest.ok_or_else(closed)?;
            apart(move || {
                guest.user.clone().act(|| {
                    let (path, name): (PathBuf, Option<String>) = decode(&question)?;
                    let path = within(&guest.root, &path)?;
                    let schema = groups::open_schema(&path, name.as_deref())?;
                    encode(&AsText(schema))
                })
            })
            .await
        };
        answering.boxed_local()
    }

    fn close(&self, party: PartyId) {
        self.guests.borrow_mut().remove(&party);
    }
}

fn closed() -> Error {
    Error::new(Kind::Peer, "a collective call", "the session is closed")
}

/// Does something in a thread of its own, while the node goes on.
async fn apart<T: Send + 'static>(doing: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let (sender, receiver) = oneshot::channel();
    let begun = std::thread::Builder::new()
        .name("penstock-director".to_string())
        .spawn(move || {
            let _ = sender.send(doing()); // nobody waits if the call was given up
        });
    begun.map_err(|e| Error::new(Kind::Io, "starting a thread", e))?;
    let died = |_| {
        Error::new(
            Kind::Io,
            "directing a call",
            "it has failed in a way of its own",
        )
    };
    receiver.await.map_err(died)?
}

/// What an errand that was told is about.
fn topic_of(told: &[u8]) -> Result<Topic> {
    let (_, errand): (SessionOptions, Vec<u8>) = decode(told)?;
    let (topic, _): (Topic, Vec<u8>) = decode(&errand)?;
    Ok(topic)
}

/// A clerk directs one call.
struct Clerk {
    work: Work,
    counted: CountedCall,
}

/// What a clerk has to do.
enum Work {
    /// An errand of a guest, as it was told.
    Told(Arc<Guest>, Vec<u8>),
    /// A call that is under way.
    Begun(Arc<Guest>, Box<dyn Director + Send>),
    Done,
}

impl Guest {
    /// The errand that rank 0 has told, and the desk of its session.
    fn read(&self, told: &[u8]) -> Result<(Box<dyn AnyErrand>, &Arc<Desk>)> {
        let (options, errand): (SessionOptions, Vec<u8>) = decode(told)?;
        let (topic, errand): (Topic, Vec<u8>) = decode(&errand)?;
        let mut errand = match topic {
            Topic::Write => heard::<WriteErrand>(&errand),
            Topic::Read | Topic::Restart => heard::<ReadErrand>(&errand),
            Topic::Select | Topic::Reduce => heard::<SiftErrand>(&errand),
            Topic::Timestep | Topic::Checkpoint => heard::<SaveErrand>(&errand),
            Topic::FindCheckpoint => heard::<FindErrand>(&errand),
            Topic::Open => heard::<OpenErrand>(&errand),
            Topic::Order => heard::<OrderErrand>(&errand),
            Topic::Together => heard::<TogetherErrand>(&errand),
            Topic::Meet => heard::<Meet>(&errand),
            Topic::Commit => heard::<CommitErrand>(&errand),
            Topic::Close => heard::<Close>(&errand),
            Topic::Unknown => Err(closed()),
        }?;
        for path in errand.paths() {
            *path = within(&self.root, path)?;
        }
        if self.desk.get().is_none() {
            let settings = Settings::new(&self.party, self.hosts, checked(options)?, true);
            let settings = settings.for_user(self.user.clone());
            let _ = self.desk.set(Arc::new(Desk::new(settings))); // one call is as good as another
        }
        Ok((errand, self.desk.get().ok_or_else(closed)?))
    }

    /// Prepares the call of an errand.
    fn prepare(
        &self,
        told: &[u8],
        parts: RankParts,
    ) -> Result<(Box<dyn Director + Send>, Decision)> {
        self.user.act(|| {
            let (errand, desk) = self.read(told)?;
            let mut director = errand.director(desk);
            let decision = director.prepare(parts)?;
            if let Decision::Serve(requests) = &decision {
                let mut strategies = requests.iter().map(|request| &request.strategy);
                if let Some(other) =
                    strategies.find(|one| !matches!(one, Strategy::DiskDirected(_)))
                {
                    let cause =
                        format!("servers that stand are disk-directed, not {}", other.name());
                    return Err(Error::new(Kind::Unsupported, "a collective call", cause));
                }
            }
            Ok((director, decision))
        })
    }
}

impl Delegate for Clerk {
    fn kind(&self) -> &'static str {
        self.counted.topic.name()
    }

    fn handed_over(&mut self) {
        self.counted.hand_over();
    }

    fn prepare(&mut self, parts: RankParts) -> LocalBoxFuture<'_, Result<Decision>> {
        let preparing = async move {
            let Work::Told(guest, told) = std::mem::replace(&mut self.work, Work::Done) else {
                return Err(closed());
            };
            let own = guest.clone();
            let (director, decision) = apart(move || guest.prepare(&told, parts)).await?;
            self.work = Work::Begun(own, director);
            if let Decision::Tell(_) | Decision::Close(_) = decision {
                self.counted.done = Some(0); // nothing is left to do
            }
            Ok(decision)
        };
        preparing.boxed_local()
    }

    fn conclude(&mut self, outcome: Result<Tally>) -> LocalBoxFuture<'_, Result<Traffic>> {
        let concluding = async move {
            let Work::Begun(guest, mut director) = std::mem::replace(&mut self.work, Work::Done)
            else {
                return outcome.map(|done| done.moved);
            };
            let concluding = apart(move || {
                guest.user.act(|| {
                    let concluded = director.conclude(outcome);
                    drop(director); // it removes what it has left
                    concluded
                })
            });
            let concluded = concluding.await;
            self.counted.done = concluded.as_ref().ok().map(|moved| moved.disk_bytes);
            concluded
        };
        concluding.boxed_local()
    }
}

impl Drop for Clerk {
    /// A call that was given up: its director removes what it has made.
    fn drop(&mut self) {
        if let Work::Begun(guest, director) = std::mem::replace(&mut self.work, Work::Done) {
            let removing = std::thread::Builder::new().spawn(move || {
                guest.user.act(|| {
                    drop(director);
                    Ok(())
                })
            });
            let _ = removing; // the next write removes what stays
        }
    }
}

/// The options of a session, as far as it has a say.
///
/// # Errors
/// [`Kind::Schema`] for what no server does.
fn checked(options: SessionOptions) -> Result<SessionOptions> {
    let wrong = |cause: &str| Err(Error::new(Kind::Schema, "opening a session", cause));
    if !(1..=BLOCK_BYTES_MAX).contains(&options.block_bytes) {
        return wrong("servers that stand have blocks of at most 1 GiB");
    }
    if options.faults.is_some() {
        return wrong("servers that stand have no faults on demand");
    }
    Ok(SessionOptions {
        servers: None,
        background_bytes: options.background_bytes.min(BACKGROUND_BYTES),
        ..options
    })
}

/// A path of a session, below the root.
///
/// # Errors
/// [`Kind::ReadOnly`] for a path that leads out of the root.
fn within(root: &Path, path: &Path) -> Result<PathBuf> {
    let outside = || {
        let cause = "it leads out of the directory that the servers give away";
        Error::new(Kind::ReadOnly, "looking for an array", cause).at(path)
    };
    let below = match path.is_absolute() {
        true => path.strip_prefix(root).map_err(|_| outside())?,
        false => path,
    };
    let is_plain = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    if !below.components().all(is_plain) {
        return Err(outside());
    }
    let whole = root.join(below);
    // Links on the way may lead anywhere: what is there of the path must be below the root.
    for part in of_server(&whole, 0).ancestors() {
        match part.canonicalize() {
            Ok(real) if real.starts_with(root) => return Ok(whole),
            Ok(_) => return Err(outside()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io(&error, "looking for an array", part)),
        }
    }
    Err(outside())
}

/// Opens arrays for users, and has another opener open what is no array.
pub struct StandingOpener {
    /// The opener of all that is no array.
    pub other: Arc<dyn Opener>,
}

/// The target of an opening on its server, and its user, if it is that of an array.
fn target_of(opening: &Opening) -> Option<Result<(User, Target)>> {
    let heard = heard_target(&opening.target)?;
    let for_server =
        |(user, target): (User, Target)| (user, target.for_server(opening.server, opening.servers));
    Some(heard.map(for_server))
}

impl Opener for StandingOpener {
    fn device(&self, opening: &Opening) -> Result<DeviceId> {
        match target_of(opening) {
            Some(read) => read?.1.device(),
            None => self.other.device(opening),
        }
    }

    fn open(&self, opening: &Opening, tells_positions: bool) -> Result<Arc<dyn Medium>> {
        let Some(read) = target_of(opening) else {
            return self.other.open(opening, tells_positions);
        };
        let (user, target) = read?;
        target.check_not_lent()?;
        let opened = user.act(|| open_target(&target.telling_positions(tells_positions), opening));
        Ok(Arc::new(UserMedium::new(opened?, user)))
    }

    fn sieve(&self, words: &[u8], opening: &Opening) -> Result<Box<dyn BlockSieve>> {
        match target_of(opening) {
            Some(read) => read.and_then(|_| sieve::heard(words)),
            None => self.other.sieve(words, opening),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::array::{ArrayCall, Memory};
    use super::super::errand::Errand;
    use super::super::save::{GroupCall, Save};
    use super::super::settings::Method;
    use super::*;
    use crate::{ArraySchema, ElementType, Storage};

    fn guest(root: &Path) -> Guest {
        Guest {
            user: User {
                user: rustix::process::geteuid().as_raw(),
                group: rustix::process::getegid().as_raw(),
                groups: Vec::new(),
            },
            root: root.canonicalize().unwrap(),
            party: Party::of_standing(PartyId(1), vec![5, 6], vec![0]),
            hosts: 1,
            desk: OnceLock::new(),
        }
    }

    #[test]
    fn paths_stay_within_the_root() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root").canonicalize();
        assert!(root.is_err());
        let root = directory.path().canonicalize().unwrap().join("root");
        std::fs::create_dir_all(root.join("a")).unwrap();
        std::os::unix::fs::symlink("/", root.join("out")).unwrap();
        std::os::unix::fs::symlink(root.join("a"), root.join("in")).unwrap();
        let found = |path: &str| within(&root, Path::new(path));
        for inside in ["x", "a/b/c", "./a", "in/x", "a/{server}/x"] {
            assert_eq!(found(inside).unwrap(), root.join(inside), "{inside}");
        }
        assert_eq!(
            found(root.join("a").to_str().unwrap()).unwrap(),
            root.join("a")
        );
        for outside in [
            "../x",
            "a/../../x",
            "out/x",
            "out",
            "/x",
            "/",
            "out/tmp/{server}",
        ] {
            let refused = found(outside).unwrap_err();
            assert_eq!(refused.kind, Kind::ReadOnly, "{outside}: {refused}");
        }
    }

    /// xorshift64*.
    struct Chance(u64);

    impl Chance {
        fn below(&mut self, bound: usize) -> usize {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
        }
    }

    fn told<E: Errand>(errand: E) -> Vec<u8> {
        let told = AnyErrand::told(&errand).unwrap();
        encode(&(SessionOptions::default(), told)).unwrap()
    }

    fn array(disk: Storage) -> ArrayCall {
        ArrayCall {
            schema: ArraySchema::new("u", &[6, 5], ElementType::F8, disk),
            memory: Memory::Distribution {
                dists: "BLOCK,*".parse().unwrap(),
                mesh: vec![2],
                halo: Vec::new(),
            },
        }
    }

    /// Errands as they should be.
    fn proper() -> Vec<Vec<u8>> {
        let method = Method::disk_directed();
        let chunks = Storage::plain_chunks(vec![2, 5]);
        let group = GroupCall {
            name: "g".to_string(),
            path: "g.zarr".into(),
            arrays: vec![array(chunks.clone())],
            coordinates: Vec::new(),
            attributes: serde_json::Map::new(),
            time_attributes: serde_json::Map::new(),
            time_chunk: Some(2),
            keep: 2,
            bounded: std::collections::BTreeSet::new(),
        };
        let write = |disk, path: &str| told(WriteErrand::new(path.into(), array(disk), method));
        vec![
            write(chunks.clone(), "u.zarr"),
            write(Storage::Natural, "v.zarr"),
            told(SaveErrand::new(
                group.clone(),
                Save::Timestep(Some(1.5)),
                method,
            )),
            told(FindErrand::new("g.zarr".into(), None)),
            told(OpenErrand::new(
                0,
                "u.zarr".into(),
                Some("u".to_string()),
                true,
            )),
            told(Meet),
            told(Close),
        ]
    }

    /// What clients send is not always an errand: the office refuses it, and goes on.
    #[test]
    fn spoiled_errands_are_refused() {
        let seconds = std::env::var("PENSTOCK_FUZZ_SECONDS");
        let seconds = seconds.map_or(0, |value| value.parse().unwrap());
        let until = Instant::now() + Duration::from_secs(seconds);
        let directory = tempfile::tempdir().unwrap();
        let proper = proper();
        for told in &proper {
            let prepared = guest(directory.path()).prepare(told, Vec::new());
            let refused = prepared.err();
            assert!(refused.is_none_or(|error| error.kind == Kind::Missing));
        }
        for seed in 0u64.. {
            let chance = &mut Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
            let mut told = proper[chance.below(proper.len())].clone();
            for _ in 0..1 + chance.below(3) {
                let at = chance.below(told.len());
                match chance.below(4) {
                    0 => told[at] ^= 1 << chance.below(8),
                    1 => told[at] = [0, 1, 0x7f, 0x80, 0xff][chance.below(5)],
                    2 => drop(told.splice(at..at, [0xff; 3])),
                    _ => drop(told.remove(at)),
                }
            }
            let guest = guest(directory.path());
            let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                drop(guest.prepare(&told, Vec::new()));
            }));
            assert!(ran.is_ok(), "seed {seed}");
            if seed >= 3_000 && Instant::now() > until {
                break;
            }
        }
    }
}
