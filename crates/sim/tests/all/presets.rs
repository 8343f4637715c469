//! The presets of Penstock, and the complaints about impossible ones: one line, with the preset,
//! the key, the value, and the remedy.

use penstock_engine::tuning::QueueOrder;
use penstock_sim::disk::parts as disks;
use penstock_sim::network::{FatTreeParameters, parts as networks};
use penstock_sim::preset::{Batch, DiskKind, FatTreeKind, NetworkKind, Preset, Start};

const TR94: &str = include_str!("../../presets/tr94.toml");
const TOCS97: &str = include_str!("../../presets/tocs97.toml");
const PANDA: &str = include_str!("../../presets/sp2-nas.toml");
const NVME: &str = include_str!("../../presets/nvme-server.toml");

fn found(name: &str) -> Preset {
    Preset::find(name).unwrap()
}

/// Replaces `from`, which must be in the text once; if it ends with a `=`, with its value.
fn with(text: &str, from: &str, to: &str) -> String {
    assert_eq!(text.matches(from).count(), 1, "{from:?}");
    let (before, after) = text.split_once(from).unwrap();
    let rest = match from.ends_with('=') {
        true => after.trim_start_matches(|char| !matches!(char, '#' | '\n')),
        false => after,
    };
    format!("{before}{to}{rest}")
}

fn complaint(text: &str) -> String {
    let error = Preset::from_toml(text, "mine.toml").expect_err("a preset that cannot be");
    let line = error.to_string();
    assert!(!line.contains(char::is_control), "{line:?}");
    assert!(line.starts_with("preset mine.toml: "), "{line}");
    line
}

fn assert_says(line: &str, fragments: &[&str]) {
    for fragment in fragments {
        assert!(
            line.contains(fragment),
            "no {fragment:?} in what is said:\n{line}"
        );
    }
}

#[test]
fn all_that_come_with_penstock_can_be() {
    let names = [
        "tr94",
        "tocs97",
        "hdd-server",
        "nvme-server",
        "cloud-vm",
        "sp2-anl",
        "sp1-vesta",
        "sp2-nas",
        "paragon-caltech",
        "origin2000-anl",
        "exemplar-caltech",
    ];
    assert_eq!(Preset::names(), names);
    for name in names {
        let preset = found(name);
        assert_eq!(preset.name, name);
        preset.validate().unwrap();
    }
}

#[test]
fn the_text_of_a_preset_is_that_preset() {
    for name in Preset::names() {
        let text = Preset::text(name).unwrap();
        assert_eq!(Preset::from_toml(text, "copy.toml").unwrap(), found(name));
        assert!(text.ends_with('\n') && text.contains('#'), "{name}");
    }
    let line = Preset::text("tr95").unwrap_err().to_string();
    assert_says(&line, &["preset tr95: there is none", "nvme-server"]);
}

#[test]
fn hardware_is_that_of_the_parts() {
    let rotating = |name| match found(name).disk {
        DiskKind::Rotating(disk) => disk,
        DiskKind::Flash(_) => panic!("{name} has flash"),
    };
    let flash = |name| match found(name).disk {
        DiskKind::Flash(flash) => flash,
        DiskKind::Rotating(_) => panic!("{name} rotates"),
    };
    for name in ["tr94", "tocs97"] {
        assert_eq!(rotating(name), disks::hp_97560());
        let NetworkKind::Torus(torus) = found(name).network else {
            panic!("{name} has no torus");
        };
        assert_eq!(torus, networks::kotz_torus());
        assert_eq!(
            found(name).bus.bytes_per_second,
            disks::SCSI_2_BYTES_PER_SECOND
        );
    }
    assert_eq!(rotating("hdd-server"), disks::nearline_18_tb());
    assert_eq!(flash("nvme-server"), disks::nvme_7_68_tb());
    assert_eq!(flash("cloud-vm"), disks::network_disk_gp3());
    for (name, tree) in [
        ("hdd-server", networks::hdr_fat_tree(0)),
        ("nvme-server", networks::hdr_fat_tree(0)),
        ("cloud-vm", networks::cloud_10_gb(0)),
    ] {
        let FatTreeParameters {
            nodes: _,
            nodes_per_leaf,
            leaves_per_pod,
            bytes_per_second,
            adapter_latency_ns,
            switch_latency_ns,
        } = tree;
        let kind = FatTreeKind {
            nodes_per_leaf,
            leaves_per_pod,
            bytes_per_second,
            adapter_latency_ns,
            switch_latency_ns,
        };
        assert_eq!(found(name).network, NetworkKind::FatTree(kind), "{name}");
    }
    let nvme = found("nvme-server");
    let drives_per_bus = (nvme.nodes.disks / nvme.nodes.io_nodes) as u64;
    let lanes = drives_per_bus * disks::PCIE_4_X4_BYTES_PER_SECOND;
    assert!(nvme.bus.bytes_per_second.abs_diff(lanes) < drives_per_bus);
}

#[test]
fn the_report_and_the_article_differ_where_they_say_so() {
    let (report, article) = (found("tr94"), found("tocs97"));
    assert!(matches!(report.start, Start::Common { .. }));
    assert_eq!(article.start, Start::Random);
    assert_eq!(report.costs.batch, Batch::None);
    assert!(matches!(article.costs.batch, Batch::Gather { .. }));
    let tuning = |preset: &Preset| {
        let caching = &preset.caching;
        (
            caching.outstanding_max,
            caching.buffers_per_client,
            caching.queue,
            preset.disk_directed.waits_for_media,
        )
    };
    assert_eq!(tuning(&report), (1, 2, QueueOrder::Fcfs, false));
    assert_eq!(tuning(&article), (4, 8, QueueOrder::CScanFile, true));
    assert_eq!(
        (&report.nodes, &report.file, &report.disk),
        (&article.nodes, &article.file, &article.disk)
    );
}

/// A source stands on the number's line or, alone or with the lines around it, on the line before.
#[test]
fn every_number_has_its_source_beside_it() {
    for name in Preset::names() {
        let path = format!("{}/presets/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let mut explained = false;
        for line in text.lines() {
            let is_number = line
                .split_once(" = ")
                .is_some_and(|(_, value)| value.starts_with(|first: char| first.is_ascii_digit()));
            match () {
                () if line.starts_with('#') => explained = true,
                () if line.is_empty() || line.starts_with('[') => explained = false,
                () => assert!(
                    !is_number || explained || line.contains(" # "),
                    "{name}: {line}"
                ),
            }
        }
    }
}

#[test]
fn a_file_serves_as_well_as_a_name() {
    let folder = std::env::temp_dir().join(format!("penstock-presets-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("mine.toml");
    let path = path.to_str().unwrap();
    std::fs::write(path, with(TR94, "name = \"tr94\"", "name = \"mine\"")).unwrap();
    assert_eq!(found(path).name, "mine");
    std::fs::write(path, [0xff, 0xfe]).unwrap();
    let binary = Preset::find(path).unwrap_err().to_string();
    assert_says(&binary, &[path, "not text in UTF-8"]);
    let unreadable = Preset::find(folder.to_str().unwrap()).unwrap_err();
    assert_says(&unreadable.to_string(), &["cannot be read"]);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn of_an_unknown_name_the_known_ones_are_told() {
    for name in ["tr95", "no/such/file.toml", "", "a\nb", "Cargo.toml/x"] {
        let line = Preset::find(name).unwrap_err().to_string();
        assert!(!line.contains('\n'), "{line}");
        assert_says(&line, Preset::names());
    }
    let line = Preset::find("tr95").unwrap_err().to_string();
    assert_says(
        &line,
        &["preset tr95: there is none", "path of a TOML file"],
    );
}

#[test]
fn text_that_is_no_toml_is_located() {
    #[rustfmt::skip]
    let table = [
        (with(TR94, "clients = 16", "clients = = 16"), "clients = = 16"),
        (with(TR94, "[file]", "[file"), "[file"),
        (with(TR94, "name = \"tr94\"", "name = \"tr94"), "name = \"tr94"),
        (with(TR94, "heads = 19", "heads = nineteen"), "heads = nineteen"),
        (with(TR94, "clients = 16", "clients = 16\nclients = 17"), "clients = 17"),
        (format!("{TR94}\n[bus]\nbytes_per_second = 1\n"), ""),
    ];
    for (text, at) in table {
        let line = complaint(&text);
        assert_says(&line, &["line ", "column "]);
        if !at.is_empty() {
            let number = text.lines().position(|line| line.starts_with(at)).unwrap() + 1;
            assert_says(&line, &[&format!("line {number}, ")]);
        }
    }
}

#[test]
fn unknown_keys_are_refused_everywhere() {
    let sections = [
        (TR94, "[nodes]"),
        (TR94, "[file]"),
        (TR94, "[disk]"),
        (TR94, "[disk.seek]"),
        (TR94, "[start]"),
        (TR94, "[bus]"),
        (TR94, "[network]"),
        (TR94, "[costs]"),
        (TOCS97, "[costs.batch]"),
        (TR94, "[caching]"),
        (TR94, "[two_phase]"),
        (TR94, "[disk_directed]"),
        (NVME, "[disk]"),
        (NVME, "[network]"),
        (PANDA, "[file_system]"),
        // These kinds have no keys of their own.
        (TOCS97, "[start]"),
        (TR94, "[costs.batch]"),
    ];
    for (text, section) in sections {
        let text = with(text, section, &format!("{section}\ncolour = \"grey\""));
        let line = complaint(&text);
        let number = text.lines().position(|line| line == section).unwrap() + 2;
        let key = format!("{}.colour", section.trim_matches(['[', ']']));
        let place = format!("line {number}, column 1: {key}: unknown key `colour`");
        assert_says(&line, &[&place]);
    }
    let line = complaint(&format!("colour = \"grey\"\n{TR94}"));
    assert_says(&line, &["line 1, column 1: colour: unknown key", "`about`"]);
    let line = complaint(&format!("{TR94}\n[rack]\nunits = 42\n"));
    assert_says(&line, &["rack: unknown key `rack`"]);
    let line = complaint(&with(
        TR94,
        "{ first_cylinder = 654,",
        "{ colour = 1, first_cylinder = 654,",
    ));
    assert_says(&line, &["disk.regions[1].colour: unknown key `colour`"]);
}

#[test]
fn what_does_not_fit_a_key_is_refused() {
    #[rustfmt::skip]
    let table: [(&str, &str, &str, &[&str]); 22] = [
        (TR94, "clients = 16", "clients = \"many\"", &["nodes.clients: invalid type: string \"many\"", "whole number"]),
        (TR94, "clients = 16", "clients = 16.5", &["nodes.clients: ", "floating point `16.5`", "whole number"]),
        (TR94, "clients = 16", "clients = -1", &["nodes.clients: ", "`-1`", "whole number"]),
        (TR94, "clients = 16", "clients = 99999999999999999999", &["line ", "column "]),
        (TR94, "clients = 16 # TR, Table 1\n", "", &["nodes: missing key `clients`"]),
        (TR94, "[bus]\nbytes_per_second = 10485760", "[nodes.bus]\nbytes_per_second = 1", &["nodes.bus: unknown key `bus`"]),
        (TR94, "heads = 19", "heads = \"nineteen\"", &["disk.heads: invalid type: string \"nineteen\"", "whole number"]),
        (TR94, "short_root_ms = 0.4", "short_root_ms = true", &["disk.seek.short_root_ms: ", "`true`", "a number"]),
        (TR94, "kind = \"two_part\"", "kind = \"steep\"", &["disk.seek.kind: unknown value `steep`", "`three_point`"]),
        (TR94, "kind = \"rotating\"", "kind = \"drum\"", &["disk.kind: unknown value `drum`", "`flash`"]),
        (TR94, "kind = \"rotating\"\n", "", &["disk: missing key `kind`"]),
        (TR94, "heads = 19 # RW, data sheet\n", "", &["disk: missing key `heads`"]),
        (TR94, "kind = \"torus\"", "kind = \"ring\"", &["network.kind: unknown value `ring`", "`fat-tree`"]),
        (TR94, "contention = \"stochastic\"", "contention = \"none\"", &["network.contention: unknown value `none`", "`exact`"]),
        (TR94, "phase = \"common\"", "phase = \"lunar\"", &["start.phase: unknown value `lunar`", "`random`"]),
        (TR94, "rotation_ms =", "rotation_ms = \"4\"", &["start.rotation_ms: ", "string \"4\"", "a number"]),
        (TR94, "queue = \"fcfs\"", "queue = \"lifo\"", &["caching.queue: unknown value `lifo`", "`c-scan-file`"]),
        (TR94, "immediate_report = true", "immediate_report = 1", &["disk.immediate_report: ", "`1`", "true or false"]),
        (TR94, "kind = \"none\"", "kind = \"gather\"", &["costs.batch: missing key `bytes_max`"]),
        (TOCS97, "\nbytes_max =", "\nbytes_max = []", &["costs.batch.bytes_max: ", "a list", "whole number"]),
        (TOCS97, "send_us =", "send_us = { a = 1 }", &["costs.send_us: ", "a section", "a number"]),
        (NVME, "channels = 128", "channels = 1.5", &["disk.channels: ", "`1.5`", "whole number"]),
    ];
    for (text, from, to, fragments) in table {
        let line = complaint(&with(text, from, to));
        assert_says(&line, fragments);
        assert_says(&line, &["line ", "column "]);
    }
    let line = complaint("");
    assert_says(&line, &["missing key `name`"]);
    // The message names the section within a section that lacks the key.
    let line = complaint(&with(TR94, "kind = \"two_part\"\n", ""));
    assert_says(&line, &["disk.seek: missing key `kind`"]);
    let line = complaint(&with(TR94, "last_cylinder = 1298, ", ""));
    assert_says(&line, &["disk.regions[1]: missing key `last_cylinder`"]);
    // The message names the one of several keys with that value where it does not fit.
    let text = with(TR94, "\nname = \"HP 97560\"", "\nname = \"19\"");
    let line = complaint(&with(&text, "heads = 19", "heads = \"19\""));
    assert_says(&line, &["disk.heads: invalid type: string \"19\""]);
}

#[test]
fn machines_that_cannot_be_are_refused() {
    #[rustfmt::skip]
    let table: [(&str, &str, &str, &[&str]); 55] = [
        (TR94, "clients = 16", "clients = 0", &["nodes.clients is 0: give at least 1"]),
        (TR94, "io_nodes = 16", "io_nodes = 0", &["nodes.io_nodes is 0: give at least 1"]),
        (TR94, "disks = 16", "disks = 0", &["nodes.disks is 0: give at least 1"]),
        (TR94, "clients = 16", "clients = 2_000_000", &["nodes.clients is 2000000: give at most 1048576"]),
        (TR94, "disks = 16", "disks = 15", &["nodes.disks is 15", "nodes.io_nodes, 16", "give each I/O node a disk"]),
        (TR94, "first_place = 1", "first_place = 5", &["is 37", "the 36 places of the torus", "first_place 5", "network.side than 6"]),
        (TR94, "clients = 16", "clients = 20", &["nodes.clients 20", "nodes.io_nodes 16", "is 37", "36 places"]),
        (TR94, "first_place = 1", "first_place = 4294967295", &["is 4294967327", "36 places"]),
        (NVME, "first_place = 0", "first_place = 4294967295", &["nodes.first_place is 4294967295: give at most"]),
        (TR94, "\nbytes = 10485760", "\nbytes = 0", &["file.bytes is 0: give at least 1"]),
        (TR94, "block_bytes = 8192", "block_bytes = 0", &["file.block_bytes is 0: give at least 1"]),
        (TR94, "block_bytes = 8192", "block_bytes = 8000", &["file.block_bytes is 8000", "not a multiple of a sector", "512"]),
        (TR94, "\nbytes = 10485760", "\nbytes = 1_000_000_000_000", &["file.bytes is 1000000000000", "16 disks of 1355304960 bytes", "smaller file"]),
        (TR94, "block_bytes = 8192", "block_bytes = 2147483648", &["file.bytes is 10485760", "16 disks of 1355304960 bytes"]),
        (TR94, "heads = 19", "heads = 0", &["disk.heads is 0"]),
        (TR94, "sector_bytes = 512", "sector_bytes = 0", &["disk.sector_bytes is 0"]),
        (TR94, "first_cylinder = 654", "first_cylinder = 600", &["disk.regions: region 600/0 to 1298/18 starts in the one before"]),
        (TR94, "rotations_per_minute = 4002.0", "rotations_per_minute = nan", &["disk.rotations_per_minute is NaN"]),
        (TR94, "head_switch_ms = 1.6", "head_switch_ms = -1.6", &["disk.head_switch_ms is -1.6"]),
        (TR94, "cylinders = 1962", "cylinders = 4294967295", &["disk.cylinders is 4294967295: give at most 16777216"]),
        (TR94, "heads = 19", "heads = 4294967295", &["disk.heads is 4294967295: give at most 1024"]),
        (TR94, "first_head = 4, last_cylinder = 646, last_head = 3, sectors_per_track = 72, track_skew_sectors = 8",
            "first_head = 4, last_cylinder = 646, last_head = 3, sectors_per_track = 72, track_skew_sectors = 73", &["track_skew_sectors of a region of disk.regions is 73: give at most 72"]),
        (TR94, "rotations_per_minute = 4002.0", "rotations_per_minute = 1e-300", &["disk.rotations_per_minute is 0.0", "give a number from 1 to"]),
        (TR94, "long_cylinder_ms = 0.008", "long_cylinder_ms = 9e5", &["disk.seek takes up to", "at most 1000000"]),
        (TR94, "short_ms = 3.24", "short_ms = 9e5", &["disk.rotations_per_minute and disk.seek", "may take", "smaller file"]),
        (NVME, "channels = 128", "channels = 0", &["disk.channels is 0"]),
        (PANDA, "open_us = 80000.0", "open_us = -1.0", &["file_system.open_us is -1: give a number from 0"]),
        (PANDA, "sync_us = 20000.0", "sync_us = 1e7", &["file_system.sync_us is 10000000: give a number from 0 to 1000000"]),
        (PANDA, "read_cluster_bytes = 65536", "read_cluster_bytes = 0", &["file_system.read_cluster_bytes is 0: give at least 1"]),
        (PANDA, "write_ns_per_byte = 0.0", "write_ns_per_byte = nan", &["file_system.write_ns_per_byte is NaN"]),
        (NVME, "channels = 128", "channels = 4294967295", &["disk.channels is 4294967295: give at most 1048576"]),
        (TR94, "rotation_ms =", "rotation_ms = -4.0", &["start.rotation_ms is -4: give a number from 0"]),
        (TR94, "bytes_per_second = 10485760", "bytes_per_second = 0", &["bus.bytes_per_second is 0: give at least 1"]),
        (TR94, "bytes_per_second = 10485760", "bytes_per_second = 1", &["bus.bytes_per_second", "10485760 bytes", "16 clients", "may take 167772160 s", "smaller file"]),
        (TR94, "side = 6", "side = 0", &["network.side is 0: give at least 1"]),
        (TR94, "side = 6", "side = 100_000", &["network.side is 100000: give at most 1024"]),
        (TR94, "bytes_per_second = 200000000", "bytes_per_second = 0", &["network.bytes_per_second is 0"]),
        (TR94, "router_latency_ns = 20.0", "router_latency_ns = 0", &["network.router_latency_ns is 0: give at least 0.001"]),
        (TR94, "window_us = 1000.0", "window_us = inf", &["network.window_us is inf: give a number from 0"]),
        (NVME, "nodes_per_leaf = 20", "nodes_per_leaf = 0", &["network.nodes_per_leaf is 0"]),
        (NVME, "adapter_latency_ns = 600.0", "adapter_latency_ns = -1", &["network.adapter_latency_ns is -1"]),
        (TR94, "send_us =", "send_us = -5.0", &["costs.send_us is -5: give a number from 0 to 100000"]),
        (TR94, "receive_us =", "receive_us = nan", &["costs.receive_us is NaN"]),
        (TR94, "index_2d_us =", "index_2d_us = inf", &["costs.index_2d_us is inf"]),
        (TR94, "memget_us = 5.0", "memget_us = 5e6", &["costs.memget_us is 5000000: give a number from 0 to 100000"]),
        (TR94, "copy_ns_per_byte = 10.0", "copy_ns_per_byte = -10.0", &["costs.copy_ns_per_byte is -10"]),
        (TR94, "header_bytes = 16", "header_bytes = 9223372036854775807", &["costs.header_bytes is 9223372036854775807: give at most"]),
        (TOCS97, "\nbytes_max =", "\nbytes_max = 0", &["costs.batch.bytes_max is 0: give at least 1"]),
        (TOCS97, "gather_us =", "gather_us = -4.5", &["costs.batch.gather_us is -4.5"]),
        (TOCS97, "scatter_us =", "scatter_us = nan", &["costs.batch.scatter_us is NaN"]),
        (TR94, "outstanding_max = 1", "outstanding_max = 0", &["caching.outstanding_max is 0: give at least 1"]),
        (TR94, "buffers_per_client = 2", "buffers_per_client = 0", &["caching.buffers_per_client is 0: give at least 1"]),
        (TR94, "buffers_per_client = 2", "buffers_per_client = 4294967295", &["caching.buffers_per_client is 4294967295", "16 clients", "take fewer"]),
        (TR94, "buffer_bytes_max = 1073741824", "buffer_bytes_max = 0", &["two_phase.buffer_bytes_max is 0", "give at least 8192"]),
        (NVME, "read_bytes_per_second = 7000000000", "read_bytes_per_second = 1", &["disk.read_bytes_per_second", "are not simulated"]),
    ];
    for (text, from, to, fragments) in table {
        assert_says(&complaint(&with(text, from, to)), fragments);
    }
    let text = with(
        NVME,
        "operation_bytes_max = 131072",
        "operation_bytes_max = 1",
    );
    let from = "write_operations_per_second = 130000";
    let line = complaint(&with(&text, from, "write_operations_per_second = 1"));
    assert_says(
        &line,
        &["disk.write_operations_per_second", "are not simulated"],
    );
}

#[test]
fn every_key_is_missed_when_it_is_left_out() {
    for (name, text) in [("tr94", TR94), ("tocs97", TOCS97), ("nvme-server", NVME)] {
        let lines: Vec<_> = text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let Some((key, value)) = line.split_once(" = ") else {
                continue;
            };
            if line.starts_with([' ', '#']) || value == "[" {
                continue;
            }
            let rest = [&lines[..index], &lines[index + 1..]].concat().join("\n");
            assert_says(
                &complaint(&rest),
                &[&format!("missing key `{key}`"), "line "],
            );
        }
        assert!(lines.len() > 60, "{name}");
    }
}

/// A machine is checked again after an experiment has varied it.
#[test]
fn a_changed_preset_is_checked_again() {
    let mut preset = found("tr94");
    preset.nodes.io_nodes = 1;
    preset.nodes.disks = 32;
    preset.file.bytes *= 100;
    preset.validate().unwrap();
    preset.nodes.io_nodes = 0;
    let line = preset.validate().unwrap_err().to_string();
    assert_eq!(line, "preset tr94: nodes.io_nodes is 0: give at least 1");
    preset.name = "two\nlines".into();
    let line = preset.validate().unwrap_err().to_string();
    assert!(line.starts_with("preset two lines: "), "{line}");
}
