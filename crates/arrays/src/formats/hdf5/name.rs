//! Paths with a dataset in them.

use std::path::{Path, PathBuf};

/// The ends of names of HDF5 and NetCDF-4 files.
const ENDINGS: [&str; 8] = ["h5", "hdf5", "hdf", "he5", "nc", "nc4", "cdf", "h5p"];

/// Splits `run.h5:/fields/u` into the file and the dataset's path. A path is split where a file
/// ends: at a `:/` behind one that is there, or behind a name that ends as those of such files do.
pub(crate) fn split(path: &Path) -> Option<(PathBuf, String)> {
    let text = path.to_str()?;
    let mut places = text.match_indices(":/");
    places.find_map(|(at, _)| {
        let (file, dataset) = (Path::new(&text[..at]), &text[at + 1..]);
        let is_named = file
            .extension()
            .is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known));
        (is_named || file.is_file()).then(|| (file.to_path_buf(), tidy(dataset)))
    })
}

/// Whether the file that a path names is of NetCDF-4, or otherwise of HDF5, by the end of its name;
/// `None` for any other file.
pub(crate) fn is_netcdf(path: &Path) -> Option<bool> {
    let file = split(path).map_or(path.to_path_buf(), |(file, _)| file);
    let ending = file.extension()?.to_str()?;
    ENDINGS
        .contains(&ending)
        .then_some(matches!(ending, "nc" | "nc4" | "cdf"))
}

/// A dataset's path with one `/` before each name.
pub(crate) fn tidy(path: &str) -> String {
    let names = path.split('/').filter(|name| !name.is_empty());
    names.fold(String::new(), |path, name| path + "/" + name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_split_where_a_file_ends() {
        let of = |path: &str| split(Path::new(path));
        let some = |file: &str, dataset: &str| Some((PathBuf::from(file), dataset.to_string()));
        assert_eq!(of("run.h5:/fields/u"), some("run.h5", "/fields/u"));
        assert_eq!(of("/a:/b/run.nc://u/"), some("/a:/b/run.nc", "/u"));
        assert_eq!(of("run.h5:/"), some("run.h5", ""));
        for path in [
            "run.h5",
            "run.zarr:/u",
            "s3://bucket/run",
            "run.h5:u",
            "C:/run",
        ] {
            assert_eq!(of(path), None, "{path}");
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        let with = format!("{}:/u", file.path().display());
        assert_eq!(of(&with), some(file.path().to_str().unwrap(), "/u"));
    }
}
