//! Servers that stand, and clients that come and go, over Unix sockets.

use std::path::Path;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures::channel::oneshot;
use penstock_engine::{Kind, Operation, Result};
use penstock_files::disk::{self, CreateOptions};
use penstock_files::fsck::{FsckOptions, fsck_volume};
use penstock_files::job::standing::{StandOptions, connect, stand};
use penstock_files::job::{FileSystem, JobOptions, Memory, OpenView, Seat};
use penstock_files::{FilePath, Mode, Version};
use penstock_layout::{SubfileOrder, View};
use penstock_net::Call;
use penstock_net::address::Address;
use penstock_net::door::Guests;

/// Only what hangs takes longer.
const WAIT_MAX: Duration = Duration::from_secs(60);

const BOTH: Mode = Mode {
    reads: true,
    writes: true,
    is_reckless: false,
};

/// A server process, as a thread.
struct Server {
    stop: Vec<oneshot::Sender<()>>,
    thread: JoinHandle<Result<()>>,
}

impl Server {
    fn start(volume: &Path, servers: usize) -> Self {
        let options = StandOptions {
            template: volume.to_str().unwrap().to_string(),
            process: 0,
            homes: vec![0; servers],
            addresses: vec![vec![address(volume)]],
            keys: None,
            admission: Guests::All,
            clients_max: 100,
            patience: WAIT_MAX,
            options: JobOptions::default(),
            opener: Seat::opener(&JobOptions::default()),
            arrays: Vec::new(),
            metrics: None,
            calls: None,
        };
        let (sender, ready) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let open = stand(options)?;
            let stops = || {
                let (stop, stopped) = oneshot::channel();
                sender.send(stop).unwrap();
                stopped
            };
            open.serve(&stops, Box::new(|_, _| Box::pin(std::future::ready(()))))
        });
        let stop = (0..servers).map(|_| ready.recv_timeout(WAIT_MAX).unwrap());
        Self {
            stop: stop.collect(),
            thread,
        }
    }

    fn stop(self) {
        for stop in self.stop {
            stop.send(()).unwrap();
        }
        self.thread.join().unwrap().unwrap();
    }
}

fn address(volume: &Path) -> Address {
    Address::Host(volume.join("socket"))
}

fn client(volume: &Path) -> FileSystem {
    let call = Call {
        addresses: vec![address(volume)],
        keys: None,
        patience: WAIT_MAX,
    };
    connect(&call, None).unwrap()
}

fn path(text: &str) -> FilePath {
    FilePath::new(text).unwrap()
}

fn view(fs: &FileSystem, file: &str) -> OpenView {
    let file = fs.attach(path(file), BOTH).unwrap();
    let whole = View::try_from([1, 1, 1, 1]).unwrap();
    file.open(whole, 0, SubfileOrder::Block, Version::Active, None)
        .unwrap()
}

fn write(view: &OpenView, offset: u64, bytes: &[u8]) -> Result<u64> {
    let mut bytes = bytes.to_vec();
    // SAFETY: the vector outlives the access.
    let memory = unsafe { Memory::new(bytes.as_mut_ptr(), bytes.len() as u64, None) };
    Ok(view.access(Operation::Write, offset, memory)?.bytes)
}

fn read(view: &OpenView, offset: u64, count: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; count];
    // SAFETY: the vector outlives the access.
    let memory = unsafe { Memory::new(bytes.as_mut_ptr(), count as u64, None) };
    view.access(Operation::Read, offset, memory)?;
    Ok(bytes)
}

fn content(salt: u8, count: usize) -> Vec<u8> {
    (0..count).map(|nth| (nth / 7) as u8 ^ salt).collect()
}

fn make_volume(servers: usize) -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let volume = directory.path().join("v");
    let options = CreateOptions {
        block_bytes: 4096,
        ..CreateOptions::new(servers)
    };
    disk::create(volume.to_str().unwrap(), &options).unwrap();
    (directory, volume)
}

fn check(volume: &Path) {
    let options = FsckOptions {
        reads_data: true,
        mends: false,
    };
    let checked = fsck_volume(volume.to_str().unwrap(), &options, &mut |_, _| Ok(()));
    assert_eq!(checked.unwrap().report.findings, []);
}

#[test]
fn clients_come_and_go_and_share_files() {
    for servers in [1, 3] {
        let (_directory, volume) = make_volume(servers);
        let server = Server::start(&volume, servers);
        let first = client(&volume);
        first.create(path("/f"), (5, 1000, None), 0o644).unwrap();
        let clients: Vec<_> = (0..4u8)
            .map(|nth| {
                let volume = volume.clone();
                std::thread::spawn(move || {
                    let fs = client(&volume);
                    let own = view(&fs, "/f");
                    let place = u64::from(nth) * 1_000_000;
                    for round in 0..5 {
                        let bytes = content(nth * 16 + round, 100_000 + usize::from(nth));
                        assert_eq!(write(&own, place, &bytes).unwrap(), bytes.len() as u64);
                        assert!(read(&own, place, bytes.len()).unwrap() == bytes);
                    }
                    match nth {
                        0 => drop(fs), // without a word
                        _ => fs.close().unwrap(),
                    }
                })
            })
            .collect();
        for client in clients {
            client.join().unwrap();
        }
        let seen = view(&first, "/f");
        for nth in 0..4u8 {
            let bytes = content(nth * 16 + 4, 100_000 + usize::from(nth));
            assert!(read(&seen, u64::from(nth) * 1_000_000, bytes.len()).unwrap() == bytes);
        }
        let until = Instant::now() + WAIT_MAX;
        while first.status(path("/f")).unwrap().len() > 1 {
            assert!(
                Instant::now() < until,
                "those who have left are attached still"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        first.close().unwrap();
        server.stop();
        check(&volume);
    }
}

#[test]
fn a_client_goes_on_when_its_server_is_back() {
    let (_directory, volume) = make_volume(1);
    let server = Server::start(&volume, 1);
    let fs = client(&volume);
    fs.create(path("/f"), (1, 4096, None), 0o644).unwrap();
    let bytes = content(9, 50_000);
    write(&view(&fs, "/f"), 0, &bytes).unwrap();
    server.stop();
    let error = fs.stat(path("/f")).unwrap_err();
    assert_eq!(error.kind, Kind::Peer, "{error}");
    let server = Server::start(&volume, 1);
    let until = Instant::now() + WAIT_MAX;
    while let Err(error) = fs.stat(path("/f")) {
        assert_eq!(error.kind, Kind::Peer, "{error}");
        assert!(Instant::now() < until, "the client does not come back");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(
        fs.sync().unwrap_err().kind,
        Kind::Peer,
        "what was not saved may be lost"
    );
    let again = view(&fs, "/f");
    assert!(read(&again, 0, bytes.len()).unwrap() == bytes);
    fs.close().unwrap();
    server.stop();
    check(&volume);
}

#[test]
fn only_one_process_serves_a_volume() {
    let (_directory, volume) = make_volume(1);
    let server = Server::start(&volume, 1);
    let (other, elsewhere) = make_volume(1);
    let options = |template: &Path| StandOptions {
        template: template.to_str().unwrap().to_string(),
        process: 0,
        homes: vec![0],
        addresses: vec![vec![address(&volume)]],
        keys: None,
        admission: Guests::All,
        clients_max: 1,
        patience: WAIT_MAX,
        options: JobOptions::default(),
        opener: Seat::opener(&JobOptions::default()),
        arrays: Vec::new(),
        metrics: None,
        calls: None,
    };
    assert_eq!(stand(options(&volume)).err().unwrap().kind, Kind::Busy);
    let taken = stand(options(&elsewhere)).err().unwrap();
    assert_eq!(
        taken.kind,
        Kind::Busy,
        "another server listens there: {taken}"
    );
    let fs = client(&volume);
    assert!(fs.list(path("/")).unwrap().is_empty());
    fs.close().unwrap();
    server.stop();
    drop(other);
}
