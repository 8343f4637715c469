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

pub(crate) fn run(asked: &Calibrate) -> Result<(), Failure> {
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
        rank_command: rank_command()?,
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
fn rank_command() -> Result<Vec<String>, Failure> {
    let program = std::env::current_exe().map_err(Failure::failed)?;
    let program = program.to_string_lossy().into_owned();
    Ok(vec![program, "calibrate".into(), "--rank".into()])
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
    let ran = on_threads(kind.ranks, &options, interrupt, body)?;
    let of_ranks = ran
        .into_iter()
        .collect::<penstock_engine::Result<Vec<_>>>()?;
    let (writes, reads): (Vec<_>, Vec<_>) = of_ranks.into_iter().unzip();
    Ok((seconds_of(&writes), seconds_of(&reads)))
}

/// When calls began and ended on one rank.
type Stays = Vec<(Instant, Instant)>;

/// The seconds of calls, each from the last rank's beginning to the last's end: ranks that wait for
/// a processor at the end of a call are a part of what it takes.
fn seconds_of(of_ranks: &[Stays]) -> Vec<f64> {
    let calls = of_ranks.iter().map(Vec::len).min().unwrap_or(0);
    let of_call = |nth: usize| {
        let stays = of_ranks.iter().map(|stays| stays[nth]);
        let last = stays.reduce(|(begun, ended), (other, end)| (begun.max(other), ended.max(end)));
        last.map_or(0.0, |(begun, ended)| (ended - begun).as_secs_f64())
    };
    (0..calls).map(of_call).collect()
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

/// Writes new arrays, reads each back, and says when this rank's calls began and ended.
fn write_and_read(
    session: &Session,
    path: &Path,
    call: &ArrayCall,
    rounds: u32,
) -> penstock_engine::Result<(Stays, Stays)> {
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
        writes.push((begun, Instant::now()));
        session.barrier()?;
        let begun = Instant::now();
        session.read(path, call.clone(), vec![local()], None)?;
        reads.push((begun, Instant::now()));
    }
    Ok((writes, reads))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_call_lasts_from_the_last_beginning_to_the_last_end() {
        let zero = Instant::now();
        let stay = |begun, ended| {
            let at = |seconds| zero + Duration::from_secs(seconds);
            (at(begun), at(ended))
        };
        let first = vec![stay(0, 3), stay(10, 15), stay(20, 21)];
        let other = vec![stay(1, 2), stay(12, 14), stay(19, 22)];
        assert_eq!(seconds_of(&[first, other]), [2.0, 3.0, 2.0]);
        assert!(seconds_of(&[]).is_empty());
    }
}
