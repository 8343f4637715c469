//! `penstock copy`: an array into another arrangement.

use penstock_arrays::copy::{Options, Report};
use penstock_arrays::session::{self, Seat, Session};
use penstock_arrays::{ArraySchema, Disk, ElementType, Format, Stored};
use penstock_engine::{Error, Kind};

use crate::arguments::Copy;
use crate::failure::Failure;
use crate::output::{self, counted};
use crate::progress::Bar;

/// Copies on threads of this process.
pub(crate) fn run(copy: &Copy) -> Result<(), Failure> {
    let ranks = copy.ranks.unwrap_or(1);
    let setup = session::Options {
        sync: !copy.no_sync,
        // A single rank has its servers beside it.
        dedicated: ranks == 1,
        ..session::Options::default()
    };
    let options = options(copy)?;
    let seats = Seat::all(ranks, &setup)?;
    let reports: Vec<Result<Report, Error>> = std::thread::scope(|scope| {
        let threads: Vec<_> = seats
            .into_iter()
            .map(|seat| scope.spawn(|| copy_with(&seat.open(), copy, &options)))
            .collect();
        let crashed = || Error::new(Kind::Peer, "copying", "a thread has panicked");
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err(crashed()))
        };
        threads.into_iter().map(join).collect()
    });
    let report = reports.into_iter().next();
    let report = report.ok_or_else(|| Failure::input("--ranks is 0: take at least 1"))??;
    output::text(&said(&report))
}

/// Copies as one rank of a session that is there.
pub(crate) fn run_in(session: &Session, copy: &Copy) -> Result<(), Failure> {
    if copy.ranks.is_some() {
        let cause = "--ranks is of no use under mpiexec, where the processes are the ranks";
        return Err(Failure::input(cause));
    }
    let report = copy_with(session, copy, &options(copy)?)?;
    match session.rank() {
        Some(0) => output::text(&said(&report)),
        _ => Ok(()),
    }
}

/// This rank's part of a copy, in a session of any machine.
///
/// # Errors
/// As [`Session::copy`].
fn copy_with(session: &Session, copy: &Copy, options: &Options) -> Result<Report, Error> {
    let bar = (session.rank() == Some(0)).then(Bar::new);
    let mut tell = |progress| {
        if let Some(bar) = &bar {
            bar.tell(progress);
        }
    };
    session.copy(&copy.source, &copy.target, options, &mut tell)
}

/// What was done, in a line.
fn said(report: &Report) -> String {
    let rate = report.bytes as f64 / 1e6 / report.seconds.max(1e-9);
    let mut text = format!(
        "copied {} bytes in {:.2} s, {rate:.0} MB/s, {}, the source read {:.2} times",
        report.bytes,
        report.seconds,
        counted(report.slabs, "slab"),
        report.read_bytes as f64 / report.bytes.max(1) as f64
    );
    if report.plan.between.is_some() {
        text.push_str(", through a store in between");
    }
    if report.slabs_found > 0 {
        text += &format!(", of which {} had been done before", report.slabs_found);
    }
    text + "\n"
}

/// What the arguments ask for.
fn options(copy: &Copy) -> Result<Options, Failure> {
    let raw = match (&copy.shape, &copy.dtype) {
        (Some(shape), Some(dtype)) => Some((shape.clone(), ElementType::parse(dtype)?.0)),
        _ => None,
    };
    Ok(Options {
        array: copy.array.clone(),
        disk: disk(copy)?,
        raw,
        memory_bytes: bytes(&copy.memory)?,
        drops_attributes: copy.drop_attributes,
    })
}

fn disk(copy: &Copy) -> Result<Option<Disk>, Failure> {
    let is_npy = copy.target.extension().is_some_and(|end| end == "npy");
    if copy.row_major || (is_npy && copy.chunks.is_none()) {
        if let Some(codec) = &copy.codec {
            return Err(Failure::input(format!(
                "a .npy file has no codec: leave --codec {codec} out, or give a target without .npy"
            )));
        }
        let format = match is_npy {
            true => Format::Npy,
            false => Format::Raw,
        };
        return Ok(Some(Disk::RowMajor { format }));
    }
    // What is not said is as in the source, where that can be written.
    let source = match copy.shape {
        Some(_) => None,
        None => Some(Stored::open(&copy.source, copy.array.as_deref())?),
    };
    let source = source.as_ref().map(Stored::schema);
    let source_codec = match source.map(|schema| &schema.disk) {
        Some(Disk::Chunks { codec, .. }) if !codec.starts_with(['[', '{']) => codec.clone(),
        _ => "none".to_string(),
    };
    let (chunk, subchunks) = match (&copy.chunks, source) {
        (Some(chunk), _) => (chunk.clone(), copy.subchunks.clone()),
        (
            None,
            Some(ArraySchema {
                disk: Disk::Chunks {
                    chunk, subchunks, ..
                },
                ..
            }),
        ) => (chunk.clone(), subchunks.clone()),
        // Without dimensions there is one chunk, which has no extents to say.
        (None, Some(schema)) if schema.shape.is_empty() => (Vec::new(), None),
        (None, _) => {
            return Err(Failure::input(
                "the source has no chunks: say --chunks N,N,... or --row-major",
            ));
        }
    };
    Ok(Some(Disk::Chunks {
        chunk,
        subchunks,
        codec: copy.codec.clone().unwrap_or(source_codec),
    }))
}

/// `256MiB` as a number of bytes.
fn bytes(text: &str) -> Result<u64, Failure> {
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: Option<u64> = match unit.trim() {
        "" | "B" => Some(1),
        "kB" | "KB" => Some(1000),
        "MB" => Some(1_000_000),
        "GB" => Some(1_000_000_000),
        "KiB" | "K" => Some(1 << 10),
        "MiB" | "M" => Some(1 << 20),
        "GiB" | "G" => Some(1 << 30),
        _ => None,
    };
    let bytes = number.parse::<u64>().ok().zip(factor);
    bytes
        .and_then(|(number, factor)| number.checked_mul(factor))
        .ok_or_else(|| Failure::input(format!("{text:?} is no size: write it as 256MiB, or 1GB")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, expected) in [
            ("1", 1),
            ("256MiB", 256 << 20),
            ("1 GB", 1_000_000_000),
            ("3K", 3072),
        ] {
            assert_eq!(bytes(text), Ok(expected));
        }
        for text in ["", "MiB", "1.5GiB", "-1", "1XB", "99999999999999999999"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
