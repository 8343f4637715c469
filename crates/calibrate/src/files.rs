//! Reads, writes, names and syncs of files at a directory.
//!
//! All that is made lies in one directory of its own, [`Scratch`], which goes when it is dropped.
//! Accesses of `depth` at once are those of as many threads, each with one blocking call under way,
//! as the workers of servers make them. Each rate is that of a round: five rounds at least.
//!
//! Writes through the page cache in sequence go to a file that is new, so that pages are made, as
//! in a call that writes an array; all other accesses are to a file that is there.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use penstock_engine::{Error, Kind, Result};
use penstock_sim::preset::{Access, Way};

use crate::sample::{Samples, Watch, seconds_of};

/// The sizes of accesses.
pub const SIZES: [u64; 4] = [4 << 10, 64 << 10, 1 << 20, 8 << 20];
/// The accesses that are under way at once.
pub const DEPTHS: [u32; 3] = [1, 4, 16];
const FILE_BYTES_MAX: u64 = 128 << 20;
const FILE_BYTES_MIN: u64 = 16 << 20;
/// The least time for which a new file is written.
const NEW_FILE_TIME: Duration = Duration::from_millis(50);
/// The alignment that direct I/O needs at most.
const ALIGNMENT: usize = 4096;

/// The rate of accesses of one kind, in bytes a second.
#[derive(Clone, Debug)]
pub struct Rate {
    pub is_read: bool,
    pub access: Access,
    pub way: Way,
    pub bytes: u64,
    pub depth: u32,
    pub rates: Samples,
}

/// What was measured at a directory.
#[derive(Debug, Default)]
pub struct Files {
    pub rates: Vec<Rate>,
    /// Seconds of `create`, `open`, `rename`, `unlink` and `fsync`, of small files.
    pub names: Vec<(&'static str, Samples)>,
    /// Seconds for each byte that is forced out.
    pub forcing: Samples,
    /// Whether the file system has direct I/O.
    pub has_direct: bool,
    /// The bytes of the file system.
    pub bytes: u64,
    /// The directory of the measurement, if one could be made.
    pub scratch: Option<Scratch>,
}

/// A directory of its own for what is measured, removed with all in it when dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    fn new(path: &Path) -> std::io::Result<Self> {
        for number in 0..1000u32 {
            let name = format!(".penstock-calibrate-{}-{number}", std::process::id());
            let made = path.join(name);
            match fs::create_dir(&made) {
                Ok(()) => return Ok(Self(made)),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(std::io::ErrorKind::AlreadyExists.into())
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // there is nobody to tell
    }
}

/// Memory for direct I/O.
struct Aligned {
    memory: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl Aligned {
    fn new(bytes: u64) -> Self {
        let bytes = usize::try_from(bytes).unwrap_or(ALIGNMENT);
        let memory = vec![7; bytes + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self {
            memory,
            start,
            bytes,
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.bytes]
    }
}

/// Measures for about `time`. What cannot be measured becomes a remark.
///
/// # Errors
/// [`Kind::Peer`] when stopped, and errors of a disk that has begun to work.
pub fn measure(
    path: &Path,
    time: Duration,
    watch: &Watch<'_>,
    remarks: &mut Vec<String>,
) -> Result<Files> {
    let mut files = Files::default();
    let state = rustix::fs::statvfs(path).map_err(|error| failed(path, error.into()))?;
    files.bytes = state.f_blocks.saturating_mul(state.f_frsize);
    let free = state.f_bavail.saturating_mul(state.f_frsize);
    let scratch = match Scratch::new(path) {
        Ok(scratch) => scratch,
        Err(error) => {
            remarks.push(format!(
                "{} cannot be written to ({error}): nothing was measured there, and the numbers of \
                 disks and files are assumptions",
                path.display()
            ));
            return Ok(files);
        }
    };
    let file_bytes = (free / 4).min(FILE_BYTES_MAX) / SIZES[3] * SIZES[3];
    if file_bytes < FILE_BYTES_MIN {
        remarks.push(format!(
            "{} has {free} bytes free, too few for a file of {FILE_BYTES_MIN}: nothing was measured \
             there, and the numbers of disks and files are assumptions",
            path.display()
        ));
        return Ok(files);
    }
    if file_bytes < FILE_BYTES_MAX {
        remarks.push(format!(
            "too little space: files of {file_bytes} bytes were measured"
        ));
    }
    let place = Place {
        scratch: &scratch,
        file_bytes,
    };
    match place.measure(time, watch, &mut files, remarks) {
        Ok(()) => {}
        // The space can go to others meanwhile.
        Err(error) if error.kind == Kind::Full => {
            remarks.push(format!("the file system became full: {error}"));
        }
        Err(error) => return Err(error),
    }
    files.scratch = Some(scratch);
    Ok(files)
}

fn failed(path: &Path, error: std::io::Error) -> Error {
    let kind = match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Kind::Full,
        _ => Kind::Io,
    };
    Error::new(
        kind,
        format!("measuring files in {}", path.display()),
        error,
    )
}

/// A place where files are measured.
struct Place<'a> {
    scratch: &'a Scratch,
    file_bytes: u64,
}

impl Place<'_> {
    fn failed(&self, error: std::io::Error) -> Error {
        failed(self.scratch.path(), error)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn measure(
        &self,
        time: Duration,
        watch: &Watch<'_>,
        files: &mut Files,
        remarks: &mut Vec<String>,
    ) -> Result<()> {
        self.fill(watch)?;
        let direct = self.opened(true, "file");
        files.has_direct = direct.is_ok();
        if let Err(error) = &direct {
            remarks.push(format!("the file system has no direct I/O ({error})"));
        }
        drop(direct);
        let ways: &[Way] = match files.has_direct {
            true => &[Way::Cached, Way::Direct],
            false => &[Way::Cached],
        };
        self.names(time / 10, watch, files)?;
        self.forcing(time / 10, watch, files)?;
        let kinds = ways.len() * 2 * 2 * SIZES.len() * DEPTHS.len();
        let each = time * 8 / 10 / u32::try_from(kinds).unwrap_or(1);
        for &way in ways {
            for is_read in [true, false] {
                for access in [Access::Sequential, Access::Random] {
                    for bytes in SIZES {
                        for depth in DEPTHS {
                            watch.check()?;
                            let rates = self.rate((is_read, access, way), (bytes, depth), each);
                            files.rates.push(Rate {
                                is_read,
                                access,
                                way,
                                bytes,
                                depth,
                                rates: rates.map_err(|error| self.failed(error))?,
                            });
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes the file that is read and written, on the disk and in the page cache.
    fn fill(&self, watch: &Watch<'_>) -> Result<()> {
        let filled = || -> std::io::Result<()> {
            let file = File::create(self.path("file"))?;
            let part = vec![5; 1 << 20];
            for offset in (0..self.file_bytes).step_by(part.len()) {
                file.write_all_at(&part, offset)?;
                if (watch.interrupt)() {
                    break;
                }
            }
            file.sync_all()
        };
        filled().map_err(|error| self.failed(error))?;
        watch.check()
    }

    fn opened(&self, is_direct: bool, name: &str) -> std::io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        if is_direct {
            options.custom_flags(libc::O_DIRECT);
        }
        let file = options.open(self.path(name))?;
        if is_direct {
            let mut memory = Aligned::new(ALIGNMENT as u64);
            file.read_at(memory.bytes(), 0)?;
        }
        Ok(file)
    }

    /// The rates of rounds of accesses, five at least.
    fn rate(
        &self,
        (is_read, access, way): (bool, Access, Way),
        (bytes, depth): (u64, u32),
        time: Duration,
    ) -> std::io::Result<Samples> {
        let is_new = (is_read, access, way) == (false, Access::Sequential, Way::Cached);
        let name = if is_new { "new" } else { "file" };
        let file = self.opened(way == Way::Direct, name)?;
        let mut memories: Vec<Aligned> = (0..depth).map(|_| Aligned::new(bytes)).collect();
        // New pages are those of a file of some size: few are in a processor's caches already.
        let least = if is_new {
            NEW_FILE_TIME
        } else {
            Duration::ZERO
        };
        let round = (time / 6).max(least);
        let mut rates = Vec::new();
        for nth in 0..6u64 {
            if is_new {
                file.set_len(0)?;
            }
            let begun = Instant::now();
            let ends = |elapsed: Duration| elapsed >= round;
            let moved = std::thread::scope(|scope| {
                let threads: Vec<_> = (0u64..)
                    .zip(&mut memories)
                    .map(|(mover, memory)| {
                        let accesses = Accesses {
                            file: &file,
                            bytes,
                            file_bytes: self.file_bytes,
                            is_read,
                            access,
                            mover: (mover, u64::from(depth)),
                            round: nth,
                            is_new,
                        };
                        scope.spawn(move || accesses.run(memory.bytes(), || ends(begun.elapsed())))
                    })
                    .collect();
                let ended = threads.into_iter().map(|thread| {
                    thread
                        .join()
                        .unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into()))
                });
                ended.sum::<std::io::Result<u64>>()
            })?;
            rates.push(moved as f64 / begun.elapsed().as_secs_f64());
        }
        if is_new {
            fs::remove_file(self.path(name))?;
        }
        Ok(Samples::new(rates.split_off(1)))
    }

    fn names(&self, time: Duration, watch: &Watch<'_>, files: &mut Files) -> Result<()> {
        let mut all: [Vec<f64>; 5] = Default::default();
        let begun = Instant::now();
        let (one, other) = (self.path("name"), self.path("other"));
        while all[0].len() < 6 || (begun.elapsed() < time && all[0].len() < 500) {
            watch.check()?;
            let round = || -> std::io::Result<[f64; 5]> {
                let mut file = None;
                let create = timed(|| {
                    file = Some(File::create(&one)?);
                    Ok(())
                })?;
                let Some(file) = file else {
                    return Err(std::io::ErrorKind::Other.into());
                };
                file.write_all_at(&[1; 4096], 0)?;
                let fsync = timed(|| file.sync_all())?;
                drop(file);
                let open = timed(|| File::open(&one).map(drop))?;
                let rename = timed(|| fs::rename(&one, &other))?;
                let unlink = timed(|| fs::remove_file(&other))?;
                Ok([create, open, rename, unlink, fsync])
            };
            let seconds = round().map_err(|error| self.failed(error))?;
            for (all, seconds) in all.iter_mut().zip(seconds) {
                all.push(seconds);
            }
        }
        let operations = ["create", "open", "rename", "unlink", "fsync"];
        files.names = operations
            .into_iter()
            .zip(all)
            .map(|(name, seconds)| (name, Samples::new(seconds)))
            .collect();
        Ok(())
    }

    /// Forces out a new file, and reckons seconds for each byte beyond those of a small file.
    fn forcing(&self, time: Duration, watch: &Watch<'_>, files: &mut Files) -> Result<()> {
        let bytes = self.file_bytes.min(32 << 20);
        let part = vec![3; 1 << 20];
        let small = files.names.iter().find(|(name, _)| *name == "fsync");
        let small = small.map_or(0.0, |(_, seconds)| seconds.median());
        let mut seconds = Vec::new();
        let begun = Instant::now();
        while seconds.len() < 3 || (begun.elapsed() < time && seconds.len() < 50) {
            watch.check()?;
            let round = || -> std::io::Result<f64> {
                let file = File::create(self.path("forced"))?;
                for offset in (0..bytes).step_by(part.len()) {
                    file.write_all_at(&part, offset)?;
                }
                timed(|| file.sync_all())
            };
            let round = round().map_err(|error| self.failed(error))?;
            // A file system in memory has nothing to force out.
            seconds.push((round - small).max(1e-9) / bytes as f64);
        }
        let removed = fs::remove_file(self.path("forced"));
        removed.map_err(|error| self.failed(error))?;
        files.forcing = Samples::new(seconds);
        Ok(())
    }
}

/// The accesses of one thread in one round.
struct Accesses<'a> {
    file: &'a File,
    bytes: u64,
    file_bytes: u64,
    is_read: bool,
    access: Access,
    /// The number of this thread, and of all.
    mover: (u64, u64),
    round: u64,
    /// Whether the file grows: a round ends where it would write a page again, which takes half as
    /// long as a new one.
    is_new: bool,
}

impl Accesses<'_> {
    /// Reads or writes until the end of the round or of a new file, once at least. Gives the bytes.
    fn run(&self, memory: &mut [u8], is_over: impl Fn() -> bool) -> std::io::Result<u64> {
        let places = (self.file_bytes / self.bytes).max(1);
        let (nth, all) = self.mover;
        // A linear congruence goes through places in an order that is as good as random here.
        let mut drawn = (self.round * all + nth).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let (mut turn, mut moved) = (nth, 0);
        loop {
            let place = match self.access {
                Access::Sequential => turn % places,
                Access::Random => {
                    drawn = drawn
                        .wrapping_mul(0x5851_f42d_4c95_7f2d)
                        .wrapping_add(0x1405_7b7e);
                    (drawn >> 33) % places
                }
            };
            match self.is_read {
                true => self.file.read_exact_at(memory, place * self.bytes)?,
                false => self.file.write_all_at(memory, place * self.bytes)?,
            }
            moved += self.bytes;
            turn += all;
            if is_over() || (self.is_new && turn >= places) {
                return Ok(moved);
            }
        }
    }
}

fn timed(act: impl FnOnce() -> std::io::Result<()>) -> std::io::Result<f64> {
    let mut done = Ok(());
    let seconds = seconds_of(|| done = act());
    done.map(|()| seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_page_of_a_new_file_is_written_twice() {
        let place = Scratch::new(&std::env::temp_dir()).unwrap();
        let file = File::create(place.path().join("new")).unwrap();
        let run = |mover, is_new, rounds: u64| {
            let accesses = Accesses {
                file: &file,
                bytes: 4096,
                file_bytes: 10 * 4096,
                is_read: false,
                access: Access::Sequential,
                mover,
                round: 0,
                is_new,
            };
            let turns = std::cell::Cell::new(0);
            let is_over = || turns.replace(turns.get() + 1) + 1 >= rounds;
            accesses.run(&mut [1; 4096], is_over).unwrap() / 4096
        };
        assert_eq!(run((0, 1), true, 1000), 10);
        let of_threads: u64 = (0..4).map(|nth| run((nth, 4), true, 1000)).sum();
        assert_eq!(of_threads, 10);
        assert_eq!(run((0, 1), true, 3), 3);
        assert_eq!(
            run((0, 1), false, 1000),
            1000,
            "a file that is there has no end"
        );
        assert_eq!(run((11, 16), true, 1000), 1, "once at least");
    }
}
