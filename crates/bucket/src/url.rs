//! URLs of buckets: `scheme://bucket/key`.

use std::path::Path;

/// The kinds of services that have buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Scheme {
    /// Amazon's S3, and services that speak its protocol.
    S3,
    /// Google Cloud Storage.
    Google,
    /// Azure Blob Storage.
    Azure,
    /// A web server, which is only read.
    Web,
    /// The memory of this process.
    Memory,
}

impl Scheme {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "s3" | "s3a" => Self::S3,
            "gs" => Self::Google,
            "az" | "azure" | "abfs" | "abfss" => Self::Azure,
            "http" | "https" => Self::Web,
            "memory" => Self::Memory,
            _ => return None,
        })
    }
}

/// A URL in its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Url<'a> {
    pub(crate) scheme: Scheme,
    /// The URL of the bucket: all before the key, without a slash at the end.
    pub(crate) bucket: &'a str,
    /// The key, without slashes at its ends.
    pub(crate) key: &'a str,
}

/// Whether a path is the URL of a place in a bucket.
pub fn is_url(path: &Path) -> bool {
    parse(path).is_some()
}

/// The parts of a path that is a URL of a bucket.
pub(crate) fn parse(path: &Path) -> Option<Url<'_>> {
    let text = path.to_str()?;
    let (scheme, rest) = text.split_once("://")?;
    let scheme = Scheme::named(scheme)?;
    let authority = rest.find('/').unwrap_or(rest.len());
    let (bucket, key) = text.split_at(text.len() - rest.len() + authority);
    Some(Url {
        scheme,
        bucket,
        key: key.trim_matches('/'),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_told_from_paths() {
        let url = parse(Path::new("s3://data/runs/a.zarr/")).unwrap();
        let parts = (url.scheme, url.bucket, url.key);
        assert_eq!(parts, (Scheme::S3, "s3://data", "runs/a.zarr"));
        let url = parse(Path::new("https://example.org:8080")).unwrap();
        assert_eq!((url.bucket, url.key), ("https://example.org:8080", ""));
        for path in [
            "run.zarr",
            "/s3/x",
            "s3:/x",
            "file:///x",
            "penstock://x",
            "",
        ] {
            assert!(!is_url(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn a_url_is_joined_as_a_path_is() {
        let path = Path::new("memory://one/run.zarr")
            .join("u")
            .join("zarr.json");
        let url = parse(&path).unwrap();
        assert_eq!(
            (url.bucket, url.key),
            ("memory://one", "run.zarr/u/zarr.json")
        );
        let above = path.parent().and_then(Path::parent);
        assert_eq!(above, Some(Path::new("memory://one/run.zarr")));
    }
}
