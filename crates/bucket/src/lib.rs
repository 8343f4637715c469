//! Buckets of object stores, which hold objects under keys: Amazon's S3 and its likes, Google Cloud
//! Storage, Azure Blob Storage, web servers (to read), and the memory of a process (to try); and
//! repositories of Icechunk, which look like buckets here.
//!
//! | module | contents |
//! |---|---|
//! | [`place`] | a place in a bucket: reads, writes and replaces the object there, lists what is below |
//! | [`draft`] | repositories: states that are committed, and drafts of the next |
//! | `url` | tells URLs of buckets from other paths |
//! | `service` | connects to the service of a bucket, once a process |
//! | `process` | what tells a process from all others of a job |
//! | `profile` | the profiles of Amazon's tools: keys, regions, endpoints |
//! | `failure` | what an error of a service means |
//!
//! An object is whole at any moment: a put replaces all of it, or nothing. A put under a condition
//! ([`Place::create`], [`Place::replace`]) succeeds only while the object is missing, or is still
//! the version that the caller has read. What a rename is in a file system, such a put is in a
//! bucket.
//!
//! All functions block; the requests themselves are made by a few threads that all buckets share.
//! Requests that fail for a reason that may pass (a server is busy, a connection breaks) are
//! repeated, with growing pauses, for up to three minutes.
//!
//! ```
//! use penstock_bucket::Place;
//!
//! let place = Place::of("memory://example/run.zarr/zarr.json".as_ref())?.unwrap();
//! let first = place.create(b"{}")?.unwrap();
//! assert_eq!(place.create(b"other")?, None); // somebody has been here
//! assert!(place.replace(b"new", &first)?.is_some());
//! assert_eq!(place.replace(b"late", &first)?, None);
//! assert_eq!(place.read()?.unwrap().0, b"new".as_slice());
//! # Ok::<(), penstock_engine::Error>(())
//! ```

#![warn(missing_docs)]

pub mod draft;
mod failure;
pub mod place;
mod process;
mod profile;
mod service;
mod url;

pub use draft::{Draft, Fork};
pub use place::{About, Place, Version};
pub use process::own_process;
pub use url::{bucket_of, committed, is_in_repository, is_url, key_of};
