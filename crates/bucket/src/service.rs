//! Connections to services: one for each bucket that the process uses, which all its places share.
//!
//! Addresses and credentials are those of the environment, as the services' own tools take them:
//! `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT_URL`, profiles, roles
//! of machines and containers; `GOOGLE_APPLICATION_CREDENTIALS`; `AZURE_STORAGE_ACCOUNT_NAME` and
//! `AZURE_STORAGE_ACCOUNT_KEY`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use object_store::aws::{AmazonS3Builder, S3ConditionalPut};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::memory::InMemory;
use object_store::{ClientOptions, ObjectStore};
use penstock_engine::{Error, Kind, Result};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::draft::{self, State, StateStore};
use crate::failure;
use crate::profile::{Profile, has_own_keys, variable};
use crate::url::{Scheme, Url};

/// The threads that make the requests of all buckets.
const THREADS: usize = 2;
/// The beginnings of the names of environment variables that say how to reach services.
const VARIABLES: [&str; 4] = ["AWS_", "AZURE_", "GOOGLE_", "HTTP"];

/// A bucket, connected.
pub(crate) struct Bucket {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) scheme: Scheme,
    /// The state of a repository, which looks like a bucket.
    pub(crate) state: Option<Arc<dyn State>>,
    /// Whether the state is a fork, which another process is to have merged.
    pub(crate) is_fork: bool,
    runtime: Handle,
}

impl Bucket {
    /// A state of a repository.
    pub(crate) fn of_state(state: Arc<dyn State>, is_fork: bool) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            store: Arc::new(StateStore(state.clone())),
            scheme: Scheme::Repository,
            state: Some(state),
            is_fork,
            runtime: runtime()?.handle().clone(),
        }))
    }

    /// Waits for the answer of a request.
    pub(crate) fn wait<T>(&self, request: impl Future<Output = T>) -> T {
        self.runtime.block_on(request)
    }

    /// Begins something that goes on without its caller.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(work);
    }
}

/// The bucket of a URL, and the variables of the environment when it was connected.
type Name = (String, Vec<(String, String)>);

/// The bucket of a URL: the one that is connected, if there is one.
///
/// # Errors
/// [`Kind::Schema`] when the environment does not say how to reach it.
pub(crate) fn bucket(url: &Url<'_>) -> Result<Arc<Bucket>> {
    if url.is_in_repository() {
        return Bucket::of_state(draft::state(url.name())?, false);
    }
    static CONNECTED: OnceLock<Mutex<HashMap<Name, Arc<Bucket>>>> = OnceLock::new();
    let name = (url.bucket.to_string(), variables(url.scheme));
    let connected = CONNECTED.get_or_init(Mutex::default);
    let mut connected = connected.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = connected.get(&name) {
        return Ok(known.clone());
    }
    let store = connect(url)?;
    let bucket = Arc::new(Bucket {
        store,
        scheme: url.scheme,
        state: None,
        is_fork: false,
        runtime: runtime()?.handle().clone(),
    });
    connected.insert(name, bucket.clone());
    Ok(bucket)
}

/// The variables of the environment that say how to reach the service.
fn variables(scheme: Scheme) -> Vec<(String, String)> {
    if scheme == Scheme::Memory {
        return Vec::new();
    }
    let known = |name: &str| VARIABLES.iter().any(|start| name.starts_with(start));
    // Others of the environment may be no text.
    let named = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok().filter(|name| known(name))?;
        Some((name, value.to_string_lossy().into_owned()))
    });
    let mut all: Vec<_> = named.collect();
    all.sort();
    all
}

/// A bucket of S3, as the environment says, and a profile where that says nothing.
///
/// # Errors
/// As of [`Profile::of_environment`].
fn amazon(url: &Url<'_>) -> Result<AmazonS3Builder> {
    let profile = Profile::of_environment()?;
    let is_said = |names: &[&str]| names.iter().any(|name| variable(name).is_some());
    let mut builder = AmazonS3Builder::from_env();
    if let (Some((id, secret)), false) = (profile.key, has_own_keys()) {
        builder = builder
            .with_access_key_id(id)
            .with_secret_access_key(secret);
        if let Some(token) = profile.token {
            builder = builder.with_token(token);
        }
    }
    if let (Some(region), false) = (
        profile.region,
        is_said(&["AWS_REGION", "AWS_DEFAULT_REGION"]),
    ) {
        builder = builder.with_region(region);
    }
    let named = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
    let mut endpoint = named.iter().find_map(|name| variable(name));
    if endpoint.is_none() {
        endpoint = profile.endpoint;
        if let Some(endpoint) = &endpoint {
            builder = builder.with_endpoint(endpoint);
        }
    }
    Ok(builder
        .with_url(url.bucket)
        .with_client_options(client(endpoint))
        .with_conditional_put(S3ConditionalPut::ETagMatch))
}

/// Connects to the service of a bucket.
///
/// # Errors
/// [`Kind::Schema`] when the environment does not say how to reach it; as of
/// [`Profile::of_environment`].
fn connect(url: &Url<'_>) -> Result<Arc<dyn ObjectStore>> {
    // The process may have a provider of cryptography already; then that one serves.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let failed = |e| Error {
        kind: Kind::Schema,
        ..failure::error(&e, "connecting to a bucket")
    };
    Ok(match url.scheme {
        Scheme::S3 => Arc::new(amazon(url)?.build().map_err(failed)?),
        Scheme::Google => {
            let builder = GoogleCloudStorageBuilder::from_env().with_url(url.bucket);
            Arc::new(builder.build().map_err(failed)?)
        }
        Scheme::Azure => {
            let builder = MicrosoftAzureBuilder::from_env()
                .with_url(url.bucket)
                .with_client_options(client(variable("AZURE_STORAGE_ENDPOINT")));
            Arc::new(builder.build().map_err(failed)?)
        }
        Scheme::Web => {
            let options = ClientOptions::new().with_allow_http(true);
            let builder = HttpBuilder::new().with_url(url.bucket);
            let built = builder.with_client_options(options).build();
            Arc::new(built.map_err(failed)?)
        }
        Scheme::Memory | Scheme::Repository => Arc::new(InMemory::new()),
    })
}

/// The options of connections to the service at an address. They are without encryption if the
/// address says so.
fn client(address: Option<String>) -> ClientOptions {
    let is_plain = address.is_some_and(|url| url.starts_with("http://"));
    ClientOptions::new().with_allow_http(is_plain)
}

/// The threads that make requests.
fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: OnceLock<std::io::Result<Runtime>> = OnceLock::new();
    let made = RUNTIME.get_or_init(|| {
        Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("bucket")
            .enable_all()
            .build()
    });
    let failed = |e| Error::new(Kind::Io, "starting the threads of buckets", e);
    made.as_ref().map_err(failed)
}
