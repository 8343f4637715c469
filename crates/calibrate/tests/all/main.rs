//! A short calibration: its preset is whole, and the directory is left as it was.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use penstock_calibrate::{CallKind, Options, Watch, calibrate};
use penstock_engine::{Error, Kind};
use penstock_predict::description::{Description, predict_all};
use penstock_sim::preset::Preset;

/// A directory with something in it, removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("penstock-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("kept")).unwrap();
        fs::write(path.join("kept/file"), b"mine").unwrap();
        Self(path)
    }

    fn is_as_it_was(&self) -> bool {
        let names = fs::read_dir(&self.0).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        names == ["kept"] && fs::read(self.0.join("kept/file")).unwrap() == b"mine"
    }

    fn options(&self) -> Options {
        Options {
            path: self.0.clone(),
            time: Duration::from_secs(2),
            mpiexec: Vec::new(),
            rank_command: Vec::new(),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Calls that take a thousandth of a second, and leave a file behind.
fn calls(
    path: &Path,
    kind: CallKind,
    rounds: u32,
) -> penstock_engine::Result<(Vec<f64>, Vec<f64>)> {
    fs::write(path, b"an array").unwrap();
    let seconds = vec![1e-3 * kind.ranks as f64; rounds as usize];
    Ok((seconds.clone(), seconds))
}

fn quiet<'a>(interrupt: &'a (dyn Fn() -> bool + Sync)) -> Watch<'a> {
    Watch {
        interrupt,
        tell: &|_| {},
    }
}

#[test]
fn the_preset_is_whole_and_nothing_is_left_behind() {
    let place = Place::new("calibrates");
    let preset = calibrate(&place.options(), &calls, &quiet(&|| false)).unwrap();
    assert!(place.is_as_it_was());
    let text = preset.to_toml().unwrap();
    let back = Preset::from_toml(&text, "calibrated").unwrap();
    assert_eq!(back, preset);
    assert!(preset.spread.len() > 20, "{:?}", preset.spread.keys());
    let measured = preset.measured.as_ref().unwrap();
    assert_eq!(measured.copies.len(), 10);
    assert!(measured.files.len() == 48 || measured.files.len() == 96);
    assert_eq!(measured.metadata.len(), 5);
    let has_direct = preset.around.is_some();
    let says_no = measured
        .remarks
        .iter()
        .any(|remark| remark.contains("no direct I/O"));
    assert_eq!(has_direct, !says_no, "{:?}", measured.remarks);
    preset.fastest().unwrap();
    preset.slowest().unwrap();
    let asked = r#"{"operation": "write", "ranks": 4, "arrays": [{"shape": [64, 64, 64],
        "dtype": "f8", "memory": "BLOCK,*,*", "mesh": [4], "chunks": [32, 64, 64]}]}"#;
    let description: Description = serde_json::from_str(asked).unwrap();
    for prediction in predict_all(&preset, &description).unwrap() {
        assert!(prediction.seconds > 0.0 && prediction.seconds.is_finite());
        assert!(prediction.low <= prediction.seconds && prediction.seconds <= prediction.high);
    }
}

/// Stopped at its nth question, it ends soon, and leaves nothing behind.
#[test]
fn stopped_anywhere_it_leaves_nothing_behind() {
    let place = Place::new("stops");
    for nth in [0, 3, 20, 60, 120, 200] {
        let asked = AtomicU32::new(0);
        let stops = || asked.fetch_add(1, Ordering::Relaxed) >= nth;
        let stopped = calibrate(&place.options(), &calls, &quiet(&stops));
        assert_eq!(stopped.unwrap_err().kind, Kind::Peer, "at {nth}");
        assert!(place.is_as_it_was(), "at {nth}");
    }
}

#[test]
fn calls_that_fail_become_a_remark() {
    let place = Place::new("fails");
    let count = Cell::new(0);
    let fails = |_: &Path, _: CallKind, _: u32| {
        count.set(count.get() + 1);
        Err(Error::new(Kind::Io, "writing", "the disk is broken"))
    };
    let preset = calibrate(&place.options(), &fails, &quiet(&|| false)).unwrap();
    assert_eq!(count.get(), 8);
    let remarks = preset.measured.unwrap().remarks;
    assert!(
        remarks
            .iter()
            .any(|remark| remark.contains("the disk is broken"))
    );
    assert!(place.is_as_it_was());
}

/// The system lets nobody write below it, not even root.
#[test]
fn a_directory_that_cannot_be_written_to_becomes_a_remark() {
    let mut options = Place::new("reads").options();
    options.path = "/proc".into();
    let preset = calibrate(&options, &calls, &quiet(&|| false)).unwrap();
    let measured = preset.measured.unwrap();
    assert!(
        measured.remarks[0].contains("/proc cannot be written to"),
        "{:?}",
        measured.remarks
    );
    assert!(measured.files.is_empty() && preset.around.is_none());
    options.path = "/proc/nothing".into();
    let missing = calibrate(&options, &calls, &quiet(&|| false)).unwrap_err();
    assert_eq!(missing.kind, Kind::Missing);
}

#[test]
fn a_job_that_cannot_be_started_becomes_a_remark() {
    let place = Place::new("starts");
    let mut options = place.options();
    options.mpiexec = vec!["/no/such/mpiexec".into(), "-n".into(), "2".into()];
    let preset = calibrate(&options, &calls, &quiet(&|| false)).unwrap();
    let remarks = preset.measured.unwrap().remarks;
    assert!(
        remarks
            .iter()
            .any(|remark| remark.contains("ranks were not measured")),
        "{remarks:?}"
    );
}
