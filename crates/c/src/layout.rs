//! The structures of the header, as Rust and as C has them.
//!
//! A C program prints the sizes and offsets that the compiler gives them, by the header; the test
//! compares these with Rust's.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// A structure of the header, as Rust has it.
pub struct Layout {
    pub name: &'static str,
    pub bytes: usize,
    pub align: usize,
    pub fields: &'static [(&'static str, usize)],
}

/// The layout of a structure: `layout!(name in the header = type of Rust { all fields })`.
macro_rules! layout {
    ($name:ident = $rust:ty { $($field:ident),* $(,)? }) => {
        Layout {
            name: stringify!($name),
            bytes: size_of::<$rust>(),
            align: align_of::<$rust>(),
            fields: &[$((stringify!($field), std::mem::offset_of!($rust, $field))),*],
        }
    };
}

const LAYOUTS: &[Layout] = &[
    layout!(
        penstock_error = crate::border::LastError {
            code,
            rank,
            server,
            doing,
            path,
            first,
            end,
            cause,
            text,
        }
    ),
    layout!(penstock_session_options = crate::session::SessionOptions<'static> {
        size, transport, root, servers, url, keys, dedicated, sync, direct, block_bytes,
        background_bytes, cache_bytes, strategy,
    }),
    layout!(penstock_memory = crate::local::Memory<'static> { base, shape, strides }),
    layout!(
        penstock_report = crate::local::Report {
            bytes,
            seconds,
            blocks,
            disk_bytes,
            transfers,
            buffer_bytes,
            servers,
        }
    ),
    layout!(penstock_call_options = crate::call::CallOptions<'static> {
        size, strategy, background, attributes, time, step,
    }),
    layout!(penstock_locals = crate::group::ArrayLocals<'static> { count, memories }),
    layout!(penstock_copy_options = crate::store::CopyOptions<'static> {
        size, arrays, name, chunks, subchunks, codec, row_major, raw_dims, raw_shape, raw_dtype,
        memory_bytes, overwrite, drop_attributes, ranks, sync, progress, context,
    }),
    layout!(
        penstock_copy_report = crate::store::CopyReport {
            bytes,
            read_bytes,
            seconds,
            slabs,
            slabs_found,
        }
    ),
    layout!(penstock_volume_options = crate::files::volume::VolumeOptions<'static> {
        size, servers, block_bytes, capacity, disk_count, disks,
    }),
    layout!(penstock_fs_options = crate::files::volume::FsOptions<'static> {
        size, servers, dedicated, cache_bytes, direct, keys,
    }),
    layout!(
        penstock_stat = crate::files::names::Stat {
            kind,
            owner,
            group,
            mode,
            created,
            accessed,
            changed,
            modified,
            bytes,
            cells,
            bsu_bytes,
            base,
            checkpoints,
        }
    ),
    layout!(
        penstock_usage = crate::files::names::Usage {
            bytes,
            used,
            of_user,
            quota
        }
    ),
    layout!(penstock_view = crate::files::view::ViewNumbers { vbs, vn, hbs, hn }),
    layout!(penstock_transfer_options = crate::files::transfer::TransferOptions<'static> {
        size, view, subfile, order, of_checkpoint, memory_bytes, cells, bsu_bytes, base, mode,
        overwrite,
    }),
    layout!(penstock_pointer = crate::files::subfile::Pointer { server, number }),
];

/// The header.
fn header() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/penstock.h");
    std::fs::read_to_string(path).unwrap()
}

/// A line for each number of a structure.
fn lines(layouts: &[&Layout]) -> String {
    let mut lines = String::new();
    for Layout {
        name,
        bytes,
        align,
        fields,
    } in layouts
    {
        writeln!(lines, "{name} {bytes} {align}").unwrap();
        for (field, offset) in *fields {
            writeln!(lines, "{name}.{field} {offset}").unwrap();
        }
    }
    lines
}

/// A C program that prints the same lines.
fn program(layouts: &[&Layout]) -> String {
    let mut text = "#include <penstock.h>\n#include <stdio.h>\nint main(void) {\n".to_string();
    for Layout { name, fields, .. } in layouts {
        let of = |what: &str| format!("{what}({name})");
        let (size, align) = (of("sizeof"), of("_Alignof"));
        writeln!(text, "printf(\"{name} %zu %zu\\n\", {size}, {align});").unwrap();
        for (field, _) in *fields {
            let offset = format!("offsetof({name}, {field})");
            writeln!(text, "printf(\"{name}.{field} %zu\\n\", {offset});").unwrap();
        }
    }
    text + "}\n"
}

/// The structures that the header defines, with the numbers of their fields.
fn defined(header: &str) -> Vec<(String, usize)> {
    let parts = header.split("*/");
    let bare: String = parts.map(|part| part.split("/*").next().unwrap()).collect();
    let mut found = Vec::new();
    for part in bare.split("typedef struct ").skip(1) {
        let Some((name, rest)) = part.split_once('{') else {
            continue;
        };
        if name.contains(';') {
            continue; // a handle
        }
        let body = rest.split_once('}').unwrap().0;
        found.push((name.trim().to_string(), body.matches(';').count()));
    }
    found
}

#[test]
fn c_and_rust_lay_structures_out_alike() {
    let layouts: Vec<&Layout> = LAYOUTS.iter().collect();
    let mut known: Vec<(String, usize)> = layouts
        .iter()
        .map(|layout| (layout.name.to_string(), layout.fields.len()))
        .collect();
    let mut there = defined(&header());
    known.sort();
    there.sort();
    assert_eq!(known, there);

    let directory = tempfile::tempdir().unwrap();
    let (source, binary) = (directory.path().join("a.c"), directory.path().join("a"));
    std::fs::write(&source, program(&layouts)).unwrap();
    let include = format!("-I{}/include", env!("CARGO_MANIFEST_DIR"));
    let compiled = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror"])
        .arg(include)
        .arg(&source)
        .arg("-o")
        .arg(&binary)
        .status();
    assert!(compiled.unwrap().success());
    let said = Command::new(&binary).output().unwrap().stdout;
    assert_eq!(String::from_utf8(said).unwrap(), lines(&layouts));
}
