//! Predictions of one client's access.

use penstock_engine::{Kind, Operation};
use penstock_predict::access::in_words;
use penstock_predict::{Access, Bottleneck, By, Prediction, ServerAccess, predict_access};
use penstock_sim::preset::Preset;

const MIB: u64 = 1 << 20;

fn machine() -> Preset {
    Preset::from_toml(include_str!("host.toml"), "host.toml").unwrap()
}

/// A read of `blocks` blocks of 1 MiB from each server, one request a block.
fn read(servers: usize, blocks: u64) -> Access {
    let each = ServerAccess {
        requests: blocks,
        blocks,
        bytes: blocks * MIB,
        read: (blocks, blocks * MIB),
        filled: (0, 0),
        is_inside: true,
    };
    Access {
        operation: Operation::Read,
        servers: vec![each; servers],
        hosts: 1,
        under_way: 2,
        turns: 0,
        messages: 2 * blocks * servers as u64,
    }
}

/// A write that fills the same blocks.
fn write(servers: usize, blocks: u64) -> Access {
    let mut access = read(servers, blocks);
    access.operation = Operation::Write;
    for server in &mut access.servers {
        (server.read, server.filled) = ((0, 0), server.read);
    }
    access
}

fn predicted(access: &Access) -> Prediction {
    let told = predict_access(&machine(), access).unwrap();
    assert!(
        told.low <= told.seconds && told.seconds <= told.high,
        "{told:?}"
    );
    assert!(told.seconds.is_finite() && told.seconds > 0.0, "{told:?}");
    assert_eq!(told.by, By::ClosedForm);
    told
}

#[test]
fn amounts_are_those_of_the_access() {
    let told = predicted(&read(2, 3));
    assert_eq!((told.bytes, told.disk_bytes), (6 * MIB, 6 * MIB));
    assert_eq!((told.servers, told.messages), (2, 12));
    assert_eq!(
        told.memory_bytes,
        12 * MIB,
        "cached blocks and send buffers"
    );
    let line = in_words(&told);
    for words in ["6291456 bytes, 6291456 on disk, 12 messages", "closed form"] {
        assert!(line.contains(words), "{line}");
    }
}

/// One block by hand: request and answer, the page cache's copy, the server's and the client's.
#[test]
fn one_block_is_the_sum_of_its_steps() {
    let mut machine = machine();
    machine.spread.clear();
    let host = machine.host.clone().unwrap();
    let (costs, system) = (&machine.costs, machine.file_system.as_ref().unwrap());
    let mib = MIB as f64;
    let copy = host.copy_us + mib * host.copy_ns_per_byte / 1e3;
    let cached = system.request_us + mib * system.read_ns_per_byte / 1e3;
    let client = costs.request_us + costs.send_us + costs.receive_us + copy;
    let server =
        costs.receive_us + costs.thread_us + costs.send_us + costs.lookup_us + copy + cached;
    let told = predict_access(&machine, &read(1, 1)).unwrap();
    // Client and server work side by side for a part of it, which crowding makes longer; the
    // device of this page cache takes next to nothing.
    let least = (client + server + 2.0 * host.message_latency_us) / 1e6;
    let most = least * (1.0 + host.crowding) * 1.1;
    assert!(
        least <= told.seconds && told.seconds <= most,
        "{least} {most} {told:?}"
    );
    assert_eq!(
        (told.low, told.high),
        (told.seconds, told.seconds),
        "no spread"
    );
}

#[test]
fn more_takes_longer() {
    let seconds = |access: &Access| predicted(access).seconds;
    for of in [read, write] {
        assert!(seconds(&of(1, 8)) > 1.5 * seconds(&of(1, 4)));
        // As many blocks of two servers take little longer, if at all: two processors are crowded.
        assert!(seconds(&of(2, 4)) <= 1.3 * seconds(&of(1, 8)));
        let mut turned = of(2, 4);
        turned.turns = 3;
        assert!(seconds(&turned) > seconds(&of(2, 4)));
        let mut one_by_one = of(1, 8);
        one_by_one.under_way = 1;
        assert!(seconds(&one_by_one) >= seconds(&of(1, 8)));
    }
}

/// The blocks that a write changes in part are read before, and only then.
#[test]
fn a_write_of_whole_blocks_reads_none() {
    let around = machine().around_page_cache().unwrap();
    let whole = predict_access(&around, &write(1, 4)).unwrap();
    let mut parts = write(1, 4);
    for server in &mut parts.servers {
        (server.read, server.filled) = (server.filled, (0, 0));
        server.bytes /= 2;
    }
    let parts = predict_access(&around, &parts).unwrap();
    assert!(parts.disk_bytes == whole.disk_bytes && parts.bytes * 2 == whole.bytes);
    assert!(
        parts.seconds > whole.seconds,
        "nobody waits for what is full"
    );
}

/// Between hosts the port is what takes longest, if it is slow.
#[test]
fn hosts_make_the_network_the_bottleneck() {
    let mut slow = machine();
    if let penstock_sim::preset::NetworkKind::FatTree(tree) = &mut slow.network {
        tree.bytes_per_second = 100_000_000;
    }
    let near = predict_access(&slow, &read(2, 4)).unwrap();
    assert_ne!(near.bottleneck, Bottleneck::Network);
    let mut apart = read(2, 4);
    apart.hosts = 2;
    let far = predict_access(&slow, &apart).unwrap();
    assert_eq!(far.bottleneck, Bottleneck::Network);
    assert!(far.seconds > 4.0 * (MIB as f64) / 1e8);
}

/// The machines of the papers have no host; nothing at all has an answer, too.
#[test]
fn any_machine_and_any_access_has_an_answer() {
    for name in ["nvme-server", "cloud-vm", "tocs97"] {
        let machine = Preset::find(name).unwrap();
        for access in [read(3, 2), write(3, 2), read(0, 0), read(2, 0)] {
            let told = predict_access(&machine, &access).unwrap();
            assert!(
                told.seconds > 0.0 && told.seconds.is_finite(),
                "{name} {told:?}"
            );
        }
    }
}

#[test]
fn an_access_without_hosts_is_refused() {
    let refused = |change: fn(&mut Access)| {
        let mut access = read(1, 1);
        change(&mut access);
        predict_access(&machine(), &access).unwrap_err().kind
    };
    assert_eq!(refused(|access| access.hosts = 0), Kind::Schema);
    assert_eq!(refused(|access| access.under_way = 0), Kind::Schema);
}
