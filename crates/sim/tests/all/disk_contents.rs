//! The contents of simulated disks: files are kept apart, and a crash loses what was not synced.

use std::cell::RefCell;
use std::rc::Rc;

use penstock_engine::{Access, BlockFile, Elements, Machine, MemoryId, Opening};
use penstock_engine::{CopyKind, Operation};
use penstock_layout::{Block, DiskSchema, Order, Region, Share};
use penstock_sim::machine::{Layout, Setup, SimDisk, SimNode, Simulation};
use penstock_sim::preset::Preset;

const BLOCKS: u64 = 40;
const BLOCK_BYTES: u64 = 1_800;

fn disk() -> DiskSchema {
    DiskSchema::flat(&[BLOCKS * BLOCK_BYTES], 1, Order::RowMajor, BLOCK_BYTES).unwrap()
}

fn simulation(layout: Layout, seed: u64) -> Simulation {
    let mut preset = Preset::find("tocs97").unwrap();
    preset.nodes.clients = 1;
    preset.nodes.io_nodes = 1;
    preset.nodes.disks = 1;
    let setup = Setup {
        layout,
        slots: BLOCKS,
        slot_bytes: BLOCK_BYTES,
        is_disk_free: false,
        seed,
        is_real: true,
        is_traced: false,
    };
    Simulation::new(&preset, &setup).unwrap()
}

async fn open(node: &SimNode, target: &[u8], access: Access) -> SimDisk {
    let opening = Opening {
        target: target.to_vec(),
        disk: disk(),
        access,
        sync: true,
        server: 0,
        servers: 1,
    };
    node.open(opening).await.unwrap()
}

/// Moves a block between the disk and bytes.
async fn move_block(
    node: &SimNode,
    file: &SimDisk,
    block: &Block,
    operation: Operation,
    bytes: &Rc<RefCell<Vec<u8>>>,
) {
    let share = Share::of_box(&Region::new(&[0], &[BLOCK_BYTES]));
    let id = MemoryId::new([9, 9]);
    let _exposed = node.expose(id, (share.clone(), Some(bytes.clone())));
    let piece = share.intersect(&Region::new(&[0], &[BLOCK_BYTES]));
    let pieces = [piece.unwrap().into()];
    let buffer = node.buffer(BLOCK_BYTES).unwrap();
    let packed = Elements::Packed(&buffer, 0);
    let (out, by) = (Elements::Exposed, CopyKind::Kernels);
    match operation {
        Operation::Write => {
            node.copy(id, 1, &pieces, out, packed, by).unwrap();
            file.write(block, &buffer, 0).await.unwrap();
        }
        Operation::Read => {
            file.read(block, &buffer, 0).await.unwrap();
            node.copy(id, 1, &pieces, packed, out, by).unwrap();
        }
    }
}

/// Writes all blocks of a file, full of one byte.
async fn fill(node: &SimNode, file: &SimDisk, byte: u8) {
    let bytes = Rc::new(RefCell::new(vec![byte; BLOCK_BYTES as usize]));
    for block in disk().blocks(0, 1) {
        move_block(node, file, &block, Operation::Write, &bytes).await;
    }
}

/// Reads all blocks of a file.
async fn read(node: &SimNode, file: &SimDisk) -> Vec<Vec<u8>> {
    let mut blocks = Vec::new();
    for block in disk().blocks(0, 1) {
        let bytes = Rc::new(RefCell::new(vec![99; BLOCK_BYTES as usize]));
        move_block(node, file, &block, Operation::Read, &bytes).await;
        blocks.push(bytes.take());
    }
    blocks
}

/// Runs code on the node with the disk.
fn on_server<F: Future<Output = ()> + 'static>(
    simulation: &Simulation,
    code: impl Fn(SimNode) -> F + Clone + 'static,
) {
    let main = |node: SimNode| {
        let code = code.clone();
        async move {
            if node.me() == 1 {
                code(node).await;
            }
        }
    };
    simulation.run(main).unwrap();
}

#[test]
fn files_of_different_targets_are_two() {
    for layout in [
        Layout::Contiguous,
        Layout::RandomBlocks,
        Layout::RandomTracks,
    ] {
        on_server(&simulation(layout, 1), move |node| async move {
            let one = open(&node, b"one", Access::Update).await;
            let other = open(&node, b"other", Access::Update).await;
            let block = disk().block_at(0, 0).unwrap();
            assert_eq!(
                one.position(&block) == other.position(&block),
                layout != Layout::Contiguous
            );
            fill(&node, &one, 1).await;
            fill(&node, &other, 2).await;
            let again = open(&node, b"one", Access::Read).await;
            let all = |byte| vec![vec![byte; BLOCK_BYTES as usize]; BLOCKS as usize];
            assert!(read(&node, &again).await == all(1));
            assert!(read(&node, &other).await == all(2));
            let third = open(&node, b"third", Access::Read).await;
            assert!(read(&node, &third).await == all(0));
        });
    }
}

#[test]
fn a_crash_loses_or_tears_what_was_not_synced() {
    let mut seen = [0; 3];
    for seed in 0..20 {
        let simulation = simulation(Layout::RandomBlocks, seed);
        on_server(&simulation, |node| async move {
            let file = open(&node, b"file", Access::Update).await;
            fill(&node, &file, 1).await;
            file.finish().await.unwrap();
            fill(&node, &file, 2).await;
            let safe = open(&node, b"safe", Access::Update).await;
            fill(&node, &safe, 3).await;
            safe.finish().await.unwrap();
        });
        simulation.crash(0); // it has no disk
        simulation.crash(1);
        let left = Rc::new(RefCell::new(Vec::new()));
        let found = left.clone();
        on_server(&simulation, move |node| {
            let found = found.clone();
            async move {
                let safe = open(&node, b"safe", Access::Read).await;
                assert!(read(&node, &safe).await.concat().iter().all(|&b| b == 3));
                let file = open(&node, b"file", Access::Read).await;
                found.replace(read(&node, &file).await);
            }
        });
        for block in left.take() {
            let new = block.iter().take_while(|&&byte| byte == 2).count();
            assert!(block[new..].iter().all(|&byte| byte == 1), "seed {seed}");
            let is_whole = new == BLOCK_BYTES as usize;
            assert!(is_whole || new % 512 == 0, "seed {seed}: {new} bytes");
            seen[if is_whole {
                1
            } else {
                2 * usize::from(new > 0)
            }] += 1;
        }
    }
    assert!(seen.iter().all(|&count| count > 100), "{seen:?}");
}
