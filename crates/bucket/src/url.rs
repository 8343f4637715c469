//! URLs of buckets: `scheme://bucket/key`.

use std::path::{Path, PathBuf};

/// The scheme of repositories.
const REPOSITORY: &str = "icechunk";

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
    /// A state of a repository, which the program has lent to this process.
    Repository,
}

impl Scheme {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "s3" | "s3a" => Self::S3,
            "gs" => Self::Google,
            "az" | "azure" | "abfs" | "abfss" => Self::Azure,
            "http" | "https" => Self::Web,
            "memory" => Self::Memory,
            REPOSITORY => Self::Repository,
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

impl Url<'_> {
    /// Whether the place is in a repository.
    pub(crate) fn is_in_repository(&self) -> bool {
        self.scheme == Scheme::Repository
    }

    /// What follows the scheme in the URL of the bucket.
    pub(crate) fn name(&self) -> &str {
        self.bucket.split_once("://").map_or("", |(_, name)| name)
    }

    /// The URL of the repository of another name.
    pub(crate) fn repository(name: &str) -> String {
        format!("{REPOSITORY}://{name}")
    }
}

/// Whether a path is the URL of a place in a bucket.
pub fn is_url(path: &Path) -> bool {
    parse(path).is_some()
}

/// Whether a path is the URL of a place in a repository.
pub fn is_in_repository(path: &Path) -> bool {
    parse(path).is_some_and(|url| url.is_in_repository())
}

/// The URL of the bucket in which a URL is a place: of a draft, that of its repository.
pub fn bucket_of(path: &Path) -> Option<&str> {
    let url = parse(path)?;
    let end = match url.is_in_repository() {
        true => url.bucket.find('+'),
        false => None,
    };
    Some(&url.bucket[..end.unwrap_or(url.bucket.len())])
}

/// The path as it is, but for one in a draft of a repository: the same in the repository.
pub fn committed(path: &Path) -> PathBuf {
    match (bucket_of(path), key_of(path)) {
        (Some(bucket), Some(key)) if is_in_repository(path) => Path::new(bucket).join(key),
        _ => path.to_path_buf(),
    }
}

/// The key of a URL's place in its bucket.
pub fn key_of(path: &Path) -> Option<&str> {
    Some(parse(path)?.key)
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
        let url = parse(Path::new("icechunk://run-main-1f0c+2/u")).unwrap();
        assert_eq!((url.name(), url.key), ("run-main-1f0c+2", "u"));
        let of_draft = bucket_of(Path::new("icechunk://run-main-1f0c+2/u"));
        assert_eq!(of_draft, Some("icechunk://run-main-1f0c"));
        assert_eq!(bucket_of(Path::new("s3://a+b/u")), Some("s3://a+b"));
        assert_eq!(bucket_of(Path::new("a/u")), None);
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
