//! What the servers of a volume do, as a client sees it: `penstock top`.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use penstock_engine::{Error, Machine, Result, Who};
use penstock_machines::Node;
use penstock_net::{Call, Calling};

use super::nodes::identity;
use super::standing::{Guest, call};
use crate::client::{Client, ClientState};
use crate::metrics::Snapshot;

/// A client that looks at servers again and again.
pub struct Observer {
    node: Node,
    state: ClientState,
    servers: usize,
    /// Calls server processes that have gone.
    _calling: Arc<Calling>,
}

/// What a server has said of itself, or why it has not.
pub type Observation = Result<Snapshot>;

impl Observer {
    /// Calls the servers of a volume.
    ///
    /// # Errors
    /// As [`penstock_net::join`].
    pub fn new(asked: &Call) -> Result<Self> {
        let Guest {
            node,
            volume,
            homes,
            calling,
        } = call(asked)?;
        let (servers, shape) = (homes.count(), volume.shape(homes));
        Ok(Self {
            node,
            state: ClientState::new(shape, identity(), (0, [].into()), 0),
            servers,
            _calling: calling,
        })
    }

    /// Asks all servers, at once.
    pub fn look(&self) -> Vec<Observation> {
        let client = Client::new(&self.node, &self.state);
        let asked = (0..self.servers).map(|server| {
            let client = &client;
            async move {
                let seen = client.metrics(server).await;
                seen.map_err(|error: Error| error.by(Who::Server(server)))
            }
        });
        self.node.block_on(join_all(asked))
    }

    /// Waits, and answers servers meanwhile.
    pub fn wait(&self, time: Duration) {
        self.node.block_on(self.node.wait(time));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use futures::channel::oneshot;
    use penstock_engine::encoding::encode;
    use penstock_engine::{Change, Kind, Operation};
    use penstock_layout::List;
    use penstock_net::address::Address;
    use penstock_net::door::Guests;

    use super::super::nodes::{JobOptions, Seat};
    use super::super::standing::{StandOptions, stand};
    use super::*;
    use crate::disk::{self, CreateOptions};
    use crate::messages::{Access, CellPart, Request, Turn, requests};
    use crate::metrics::RequestKind;
    use crate::placement::Placement;
    use crate::{FilePath, Mode, Version};

    /// Only what hangs takes longer.
    const WAIT_MAX: Duration = Duration::from_secs(60);

    /// A client may be of another make: this write is to a file that it has attached to read.
    fn trespass(rogue: &Observer) {
        let client = Client::new(&rogue.node, &rogue.state);
        let path = FilePath::new("/f").unwrap();
        let mode = Mode {
            reads: true,
            writes: false,
            is_reckless: false,
        };
        let created = rogue.node.block_on(async {
            client.create(path.clone(), (1, 64, None), 0o644).await?;
            client.attach(&path, mode).await
        });
        let object = created.unwrap().object;
        let part = CellPart {
            cell: 0,
            places: List::strided(0, 0, &[]).unwrap(),
            memory: List::default(),
        };
        let access = Access {
            ticket: 1 << 30,
            request: 1 << 20,
            oldest: 0,
            operation: Operation::Write,
            file: object.id,
            owner: object.owner,
            base: 0,
            placement: Placement::default(),
            home: 0,
            version: Version::Active,
            turn: Turn::Arrival,
            parts: vec![part],
            memory: None,
            wants_word: false,
            hold: None,
            begun: Duration::ZERO,
            span: penstock_engine::trace::Span::none(),
        };
        let shape = &rogue.state.shape;
        let body = encode(&Request::Access(access)).unwrap();
        let (node, port) = (shape.servers.node(0).unwrap(), requests(shape.volume, 0));
        let sent = rogue.node.send(node, port, body, None);
        rogue.node.block_on(sent).unwrap();
    }

    #[test]
    fn an_observer_sees_who_was_cut_off_and_why() {
        let directory = tempfile::tempdir().unwrap();
        let volume = directory.path().join("v");
        let template = volume.to_str().unwrap().to_string();
        disk::create(&template, &CreateOptions::new(1)).unwrap();
        let addresses = vec![Address::Host(directory.path().join("socket"))];
        let options = StandOptions {
            template,
            process: 0,
            homes: vec![0],
            addresses: vec![addresses.clone()],
            keys: None,
            admission: Guests::All,
            clients_max: 2,
            patience: WAIT_MAX,
            options: JobOptions::default(),
            opener: Seat::opener(&JobOptions::default()),
            arrays: Vec::new(),
            metrics: None,
            calls: None,
        };
        let (told, stop) = std::sync::mpsc::channel();
        let served = std::thread::spawn(move || {
            let stops = || {
                let (stop, stopped) = oneshot::channel();
                told.send(stop).unwrap();
                stopped
            };
            stand(options)?.serve(&stops, Box::new(|_, _| Box::pin(std::future::ready(()))))
        });
        let stop = stop.recv_timeout(WAIT_MAX).unwrap();
        let call = Call {
            addresses,
            keys: None,
            patience: WAIT_MAX,
        };
        let (observer, rogue) = (Observer::new(&call).unwrap(), Observer::new(&call).unwrap());
        assert_eq!(Observer::new(&call).err().unwrap().kind, Kind::Busy);
        trespass(&rogue);
        let end = Instant::now() + WAIT_MAX;
        let seen = loop {
            let mut seen = observer.look();
            let one = seen.remove(0).unwrap();
            if one.doors[&0].cut_off["trespass"] > 0 {
                break one;
            }
            assert!(Instant::now() < end);
            observer.wait(Duration::from_millis(5));
        };
        // It has heard that, and may be back by now.
        let (_, who, change) = rogue.node.block_on(rogue.node.change(0));
        assert!(who == 0 && matches!(change, Change::Left(_)), "{change:?}");
        let door = &seen.doors[&0];
        assert_eq!((door.cut_off["trespass"], door.refused["full"]), (1, 1));
        assert_eq!(door.cut_off.values().sum::<u64>(), 1);
        assert_eq!(seen.kind(RequestKind::Attach).times.count(), 1);
        assert_eq!(seen.written_bytes(), 0);
        stop.send(()).unwrap();
        served.join().unwrap().unwrap();
    }
}
