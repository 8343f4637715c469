//! `penstock copy`: copies an array or a data set into another arrangement.

use penstock_arrays::calls::Session;
use penstock_arrays::calls::copy::{self, Form, Options, Report};
use penstock_arrays::{ElementType, Format};
use penstock_trace::sizes::bytes;

use crate::arguments::Copy;
use crate::failure::Failure;
use crate::output::{self, counted};
use crate::progress::Bar;

/// Copies on threads of this process.
pub(crate) fn run(copy: &Copy) -> Result<(), Failure> {
    let options = options(copy)?;
    let bar = Bar::new();
    let report = copy::on_threads(
        (&copy.source, &copy.target),
        &options,
        copy.ranks.unwrap_or(1),
        !copy.no_sync,
        &|| false,
        &|progress| {
            bar.tell(progress);
            Ok(())
        },
    )?;
    drop(bar);
    output::text(&said(&report))
}

/// Copies as one rank of an open session.
pub(crate) fn run_in(session: &Session, copy: &Copy) -> Result<(), Failure> {
    if copy.ranks.is_some() {
        let cause = "--ranks is of no use under mpiexec, where the processes are the ranks";
        return Err(Failure::input(cause));
    }
    let options = options(copy)?;
    let bar = (session.rank() == Some(0)).then(Bar::new);
    let mut tell = |progress| {
        if let Some(bar) = &bar {
            bar.tell(progress);
        }
        Ok(())
    };
    let report = session.copy(&copy.source, &copy.target, &options, &mut tell)?;
    drop(bar);
    match session.rank() {
        Some(0) => output::text(&said(&report)),
        _ => Ok(()),
    }
}

/// The report of a copy in a line.
fn said(report: &Report) -> String {
    let rate = report.bytes as f64 / 1e6 / report.seconds.max(1e-9);
    let mut text = format!(
        "copied {}, {} bytes in {:.2} s, {rate:.0} MB/s, {}, the source read {:.2} times",
        counted(report.plans.len() as u64, "array"),
        report.bytes,
        report.seconds,
        counted(report.slabs, "slab"),
        report.read_bytes as f64 / report.bytes.max(1) as f64
    );
    if report.plans.iter().any(|(_, plan)| plan.between.is_some()) {
        text.push_str(", through a store in between");
    }
    if report.slabs_found > 0 {
        text += &format!(", of which {} had been done before", report.slabs_found);
    }
    if !report.as_they_are.is_empty() {
        text += &format!(
            "; kept {} as they are, which Penstock does not understand",
            report.as_they_are.join(", ")
        );
    }
    if !report.skipped.is_empty() {
        text += &format!("; left out {}", report.skipped.join(", "));
    }
    text + "\n"
}

/// The options of a copy that the arguments name.
fn options(copy: &Copy) -> Result<Options, Failure> {
    let raw = match (&copy.shape, &copy.dtype) {
        (Some(shape), Some(dtype)) => Some((shape.clone(), ElementType::parse(dtype)?.0)),
        _ => None,
    };
    Ok(Options {
        arrays: copy.arrays.clone(),
        name: copy.name.clone(),
        form: form(copy)?,
        raw,
        memory_bytes: bytes(&copy.memory)?,
        drops_attributes: copy.drop_attributes,
        overwrites: copy.overwrite,
        skips_unsupported: copy.skip_unsupported,
    })
}

fn form(copy: &Copy) -> Result<Form, Failure> {
    let is_npy = copy.target.extension().is_some_and(|end| end == "npy");
    if !copy.row_major && (!is_npy || copy.chunks.is_some()) {
        return Ok(Form::of(
            &copy.target,
            copy.chunks.clone(),
            copy.subchunks.clone(),
            copy.codec.clone(),
            copy.filters.clone(),
        )?);
    }
    if copy.filters.is_some() {
        return Err(Failure::input("a row-major file has no filters"));
    }
    if let Some(codec) = &copy.codec {
        return Err(Failure::input(format!(
            "a .npy file has no codec: leave --codec {codec} out, or give a target without .npy"
        )));
    }
    Ok(Form::RowMajor(match is_npy {
        true => Format::Npy,
        false => Format::Raw,
    }))
}
