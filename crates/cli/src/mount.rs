//! `penstock mount`: a volume of parallel files as a file system, whose servers are in this process
//! or stand.

use std::sync::Arc;
use std::time::Duration;

use penstock_files::job::{FileSystem, JobOptions, open};
use penstock_mount::signals::Signals;
use penstock_mount::{MountOptions, Mounted, mount, removed};
use penstock_trace::sizes::bytes;

use crate::arguments::Mount;
use crate::failure::Failure;
use crate::output;

/// Mounts a volume, and serves it until it is unmounted everywhere or a signal comes.
pub(crate) fn run(asked: &Mount) -> Result<(), Failure> {
    let cached = Duration::try_from_secs_f64(asked.attributes);
    let options = MountOptions {
        is_read_only: asked.read_only,
        is_for_all: asked.allow_other,
        threads: asked.threads,
        cached: cached.map_err(|error| Failure::input(format!("--attributes: {error}")))?,
        name: asked.volume.clone(),
    };
    let job = JobOptions {
        cache_bytes: bytes(&asked.cache)?,
        ..JobOptions::default()
    };
    let signals = Signals::take()?;
    let fs = Arc::new(open(&asked.volume, None, None, &job, None)?);
    let served = removed::clear(&fs).map_err(Failure::from);
    let served = served.and_then(|()| serve(&fs, asked, &options, signals));
    let closed = fs.close();
    served?;
    Ok(closed?)
}

fn serve(
    fs: &Arc<FileSystem>,
    asked: &Mount,
    options: &MountOptions,
    signals: Signals,
) -> Result<(), Failure> {
    let mut mounts: Vec<Mounted> = Vec::new();
    for place in &asked.places {
        let mounted = mount(fs.clone(), place, options).inspect_err(|_| {
            for mounted in &mounts {
                // The error that has come first is told.
                let _ = mounted.place().unmount();
            }
        });
        mounts.push(mounted?);
    }
    let (places, open) = (mounts.iter().map(|one| one.place().clone()), fs.clone());
    signals.end(places.collect(), move || {
        // Who still uses the volume gets errors; what has come to it is saved.
        let closed = open.close();
        penstock_trace::end();
        std::process::exit(i32::from(closed.is_err()));
    })?;
    for place in &asked.places {
        output::text(&format!(
            "{} is mounted at {}\n",
            asked.volume,
            place.display()
        ))?;
    }
    let ended: Result<Vec<()>, _> = mounts.into_iter().map(Mounted::wait).collect();
    ended?;
    Ok(())
}
