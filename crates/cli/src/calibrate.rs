//! `penstock calibrate`: measures this machine, and writes a preset of it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use penstock_arrays::calls::array::{ArrayCall, LocalPart, Memory};
use penstock_arrays::calls::settings::SessionOptions;
use penstock_arrays::calls::{Session, on_threads};
use penstock_arrays::{ArraySchema, ElementType, Format, Storage};
use penstock_calibrate::calls::ELEMENTS;
use penstock_calibrate::{CallKind, Options, Watch, calibrate, job};
use penstock_layout::{Dist, Dists, Edges};
use penstock_machines::ClientMemory;
use penstock_sim::preset::Preset;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::arguments::Calibrate;
use crate::failure::Failure;
use crate::output;
use crate::progress::Bar;

/// The exit code of a command that a signal has stopped.
const STOPPED: u8 = 130;
/// The longest calibration, in seconds.
const SECONDS_MAX: f64 = 86_400.0;

/// `python` is the interpreter that runs this program, if one does.
pub(crate) fn run(asked: &Calibrate, python: Option<&Path>) -> Result<(), Failure> {
    if !(asked.seconds > 0.0 && asked.seconds <= SECONDS_MAX) {
        return Err(Failure::input(
            "--seconds is a number above 0, and a day at most",
        ));
    }
    let time = Duration::from_secs_f64(asked.seconds);
    if let Some(library) = &asked.rank {
        let told = job::rank(library, time)?;
        return told.map_or(Ok(()), |line| output::text(&format!("{line}\n")));
    }
    let mpiexec = asked.mpiexec.as_deref().unwrap_or_default();
    let options = Options {
        path: asked.path.clone(),
        time,
        mpiexec: mpiexec.split_whitespace().map(str::to_string).collect(),
        rank_command: rank_command(python)?,
    };
    let preset = measured(&options)?;
    let text = preset.to_toml().map_err(Failure::failed)?;
    match &asked.output {
        None => output::text(&text),
        Some(path) => {
            std::fs::write(path, &text).map_err(|error| {
                Failure::failed(format!("cannot write {}: {error}", path.display()))
            })?;
            output::text(&said(&preset, path))
        }
    }
}

fn measured(options: &Options) -> Result<Preset, Failure> {
    let stops = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, stops.clone()).map_err(Failure::failed)?;
    }
    let interrupt = || stops.load(Ordering::Relaxed);
    let bar = Bar::new();
    let tell = |what: &str| bar.tell_text(format!("measuring {what}"));
    let watch = Watch {
        interrupt: &interrupt,
        tell: &tell,
    };
    let make_calls = |path: &Path, kind, rounds| make_calls(path, kind, rounds, &interrupt);
    match calibrate(options, &make_calls, &watch) {
        Err(_) if interrupt() => Err(Failure::silent(STOPPED)),
        measured => Ok(measured?),
    }
}

/// The words by which a rank of a job runs this program.
fn rank_command(python: Option<&Path>) -> Result<Vec<String>, Failure> {
    let (program, module) = match python {
        // Not the program that runs: a virtual environment's interpreter is a link to it.
        Some(python) => (python.to_path_buf(), &["-m", "penstock"][..]),
        None => (std::env::current_exe().map_err(Failure::failed)?, &[][..]),
    };
    let words = module.iter().chain(&["calibrate", "--rank"]);
    let words = words.map(|word| (*word).to_string());
    Ok(std::iter::once(program.to_string_lossy().into_owned())
        .chain(words)
        .collect())
}

/// What was measured, in some lines.
fn said(preset: &Preset, path: &Path) -> String {
    let mut text = format!(
        "{}: {} numbers with their spread\n",
        path.display(),
        preset.spread.len()
    );
    let measured = preset.measured.iter();
    for remark in measured.flat_map(|measured| &measured.remarks) {
        text += &format!("note: {remark}\n");
    }
    text
}

/// Writes a small array and reads it back, again and again, on threads.
fn make_calls(
    path: &Path,
    kind: CallKind,
    rounds: u32,
    interrupt: &dyn Fn() -> bool,
) -> penstock_engine::Result<(Vec<f64>, Vec<f64>)> {
    let options = SessionOptions {
        sync: kind.is_synced,
        ..SessionOptions::default()
    };
    let call = array(kind);
    let body = |session: &Session| write_and_read(session, path, &call, rounds);
    let mut ran = on_threads(kind.ranks, &options, interrupt, body)?.into_iter();
    let first = ran.next().unwrap_or_else(|| Ok(Default::default()))?;
    ran.try_for_each(|of_rank| of_rank.map(drop))?;
    Ok(first)
}

fn array(kind: CallKind) -> ArrayCall {
    let disk = match kind.is_flat {
        true => Storage::RowMajor {
            format: Format::Raw,
        },
        false => Storage::Chunks {
            chunk: vec![Edges::Regular(ELEMENTS)],
            subchunks: None,
            codec: "none".into(),
        },
    };
    ArrayCall {
        schema: ArraySchema {
            name: "u".into(),
            shape: vec![ELEMENTS * kind.ranks as u64],
            element: ElementType::F8,
            disk,
            dimension_names: None,
            attributes: Default::default(),
            fill: Default::default(),
        },
        memory: Memory::Distribution {
            dists: Dists(vec![Dist::Block]),
            mesh: vec![kind.ranks as u64],
            halo: vec![(0, 0)],
        },
    }
}

/// Writes new arrays, reads each back, and gives the seconds of each call, from the last rank's
/// beginning on.
fn write_and_read(
    session: &Session,
    path: &Path,
    call: &ArrayCall,
    rounds: u32,
) -> penstock_engine::Result<(Vec<f64>, Vec<f64>)> {
    let mut elements = vec![0.0f64; 8];
    let mut local = || LocalPart {
        memory: ClientMemory {
            base: elements.as_mut_ptr().cast(),
            extents: vec![ELEMENTS],
            strides: vec![8],
            width: 8,
        },
        element: ElementType::F8,
        is_writable: true,
    };
    let (mut writes, mut reads) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let mut path = path.to_path_buf().into_os_string();
        path.push(format!("-{round}"));
        let path = Path::new(&path);
        session.barrier()?;
        let begun = Instant::now();
        session.write(path, call.clone(), vec![local()], None)?;
        writes.push(begun.elapsed().as_secs_f64());
        session.barrier()?;
        let begun = Instant::now();
        session.read(path, call.clone(), vec![local()], None)?;
        reads.push(begun.elapsed().as_secs_f64());
    }
    Ok((writes, reads))
}
