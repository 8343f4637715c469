//! A small HTTP server for those who watch a process: each page is made anew when it is asked for.
//!
//! It has a thread of its own, and answers one request a connection. It knows nobody: whoever may
//! reach its address may read its pages. So it listens at this host alone, unless told otherwise.

use std::convert::Infallible;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use penstock_engine::{Error, Kind, Result};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::background::{self, Background};

/// The host where nothing else is said.
const OWN_HOST: &str = "127.0.0.1";

/// The callers that are served at a time. Others wait in the system's queue.
const CALLERS_MAX: usize = 16;

/// The longest time that a caller may take.
const CALL_MAX: Duration = Duration::from_secs(10);

/// How soon it listens again after an error: too many files are open, most likely.
const LISTEN_AGAIN: Duration = Duration::from_millis(200);

/// The most bytes of the head of a request.
const HEAD_BYTES: usize = 16 << 10;

/// A page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Whether all is well: the status is 200, and else 503.
    pub is_well: bool,
    /// The type of the text.
    pub content_type: &'static str,
    /// The text.
    pub text: String,
}

impl Page {
    /// A page of plain text.
    pub fn plain(is_well: bool, text: impl Into<String>) -> Self {
        Self {
            is_well,
            content_type: "text/plain; charset=utf-8",
            text: text.into(),
        }
    }
}

/// The pages of an endpoint by their paths.
pub type Site = dyn Fn(&str) -> Option<Page> + Send + Sync;

/// An endpoint, open as long as it is kept.
pub struct Endpoint {
    _background: Background,
    address: SocketAddr,
}

/// The address of `HOST:PORT`, `:PORT` or `PORT`.
///
/// # Errors
/// [`Kind::Schema`] when it makes no sense; [`Kind::Missing`] when the host has no address.
fn address_of(text: &str) -> Result<SocketAddr> {
    let wrong = |kind, cause: &dyn std::fmt::Display| {
        Error::new(kind, format!("listening at {text}"), cause)
    };
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    let port: u16 = port.parse().map_err(|_| {
        let cause = "an endpoint is HOST:PORT, or the number of a port of this host";
        wrong(Kind::Schema, &cause)
    })?;
    let host = match host.trim_start_matches('[').trim_end_matches(']') {
        "" => OWN_HOST,
        host => host,
    };
    let found = (host, port).to_socket_addrs();
    let mut found = found.map_err(|error| wrong(Kind::Missing, &error))?;
    let missing = || wrong(Kind::Missing, &"the host has no address");
    found.next().ok_or_else(missing)
}

impl Endpoint {
    /// Opens an endpoint at `HOST:PORT`.
    ///
    /// # Errors
    /// [`Kind::Schema`] when the address makes no sense; [`Kind::Busy`] when another program
    /// listens there.
    pub fn open(address: &str, site: Arc<Site>) -> Result<Self> {
        let place = address_of(address)?;
        let failed = |error: std::io::Error| {
            let kind = match error.kind() {
                std::io::ErrorKind::AddrInUse => Kind::Busy,
                std::io::ErrorKind::PermissionDenied => Kind::ReadOnly,
                _ => Kind::Io,
            };
            Error::new(kind, format!("listening at {address}"), error)
        };
        let runtime = background::runtime()?;
        let listener = runtime.block_on(TcpListener::bind(place)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let begin = move || {
            tokio::spawn(answer(listener, site));
        };
        Ok(Self {
            _background: Background::start("penstock-metrics", runtime, begin)?,
            address,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn answer(listener: TcpListener, site: Arc<Site>) {
    let callers = Arc::new(Semaphore::new(CALLERS_MAX));
    while let Ok(turn) = callers.clone().acquire_owned().await {
        let Ok((socket, _)) = listener.accept().await else {
            tokio::time::sleep(LISTEN_AGAIN).await;
            continue;
        };
        let site = site.clone();
        tokio::spawn(async move {
            let page = service_fn(|request| {
                let answer = respond(&request, &*site);
                async move { Ok::<_, Infallible>(answer) }
            });
            let served = http1::Builder::new()
                .keep_alive(false)
                .max_buf_size(HEAD_BYTES)
                .serve_connection(TokioIo::new(socket), page);
            let _ = tokio::time::timeout(CALL_MAX, served).await; // it may come again
            drop(turn);
        });
    }
}

fn respond(request: &Request<Incoming>, site: &Site) -> Response<Full<Bytes>> {
    let said = |status, content_type, text: String| {
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        response
    };
    let plain = |status: StatusCode| {
        let text = status.canonical_reason().unwrap_or_default();
        said(status, "text/plain; charset=utf-8", format!("{text}\n"))
    };
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED);
        let allowed = HeaderValue::from_static("GET, HEAD");
        response.headers_mut().insert(ALLOW, allowed);
        return response;
    }
    match site(request.uri().path()) {
        None => plain(StatusCode::NOT_FOUND),
        Some(page) => {
            let status = match page.is_well {
                true => StatusCode::OK,
                false => StatusCode::SERVICE_UNAVAILABLE,
            };
            said(status, page.content_type, page.text)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    fn call(address: SocketAddr, request: &str) -> String {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    }

    fn opened() -> Endpoint {
        let site = |path: &str| match path {
            "/well" => Some(Page::plain(true, "yes")),
            "/ill" => Some(Page::plain(false, "no")),
            _ => None,
        };
        Endpoint::open("0", Arc::new(site)).unwrap()
    }

    #[test]
    fn an_endpoint_answers_one_request_a_connection() {
        let endpoint = opened();
        assert!(endpoint.address().ip().is_loopback());
        let get = |path: &str| {
            let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
            call(endpoint.address(), &request)
        };
        let answer = get("/well?more");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\nyes"), "{answer}");
        assert!(get("/ill").starts_with("HTTP/1.1 503 "));
        assert!(get("/").starts_with("HTTP/1.1 404 "));
        let posted = call(
            endpoint.address(),
            "POST /well HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
        );
        assert!(posted.starts_with("HTTP/1.1 405 "), "{posted}");
        let head = call(endpoint.address(), "HEAD /well HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(
            head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"),
            "{head}"
        );
    }

    #[test]
    fn callers_who_say_nothing_or_nonsense_keep_nobody_waiting() {
        let endpoint = opened();
        let silent: Vec<_> = (0..CALLERS_MAX - 1)
            .map(|_| TcpStream::connect(endpoint.address()).unwrap())
            .collect();
        let nonsense = call(endpoint.address(), "\u{7f}\0\r\n\r\n");
        assert!(nonsense.starts_with("HTTP/1.1 400 "), "{nonsense}");
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(2 * HEAD_BYTES));
        let mut socket = TcpStream::connect(endpoint.address()).unwrap();
        let _ = socket.write_all(long.as_bytes()); // it may be closed before all has gone
        let _ = socket.read_to_end(&mut Vec::new());
        let answer = call(endpoint.address(), "GET /well HTTP/1.0\r\n\r\n");
        assert!(answer.ends_with("yes"), "{answer}");
        drop(silent);
    }

    #[test]
    fn addresses() {
        for (text, there) in [
            ("9100", "127.0.0.1:9100"),
            (":9100", "127.0.0.1:9100"),
            ("127.0.0.2:1", "127.0.0.2:1"),
            ("0.0.0.0:0", "0.0.0.0:0"),
            ("[::1]:9100", "[::1]:9100"),
        ] {
            assert_eq!(address_of(text).unwrap().to_string(), there, "{text}");
        }
        for text in ["", "host", "host:", "1.2.3.4:99999", "::"] {
            assert_eq!(address_of(text).unwrap_err().kind, Kind::Schema, "{text}");
        }
        let one = opened();
        let again = Endpoint::open(&one.address().to_string(), Arc::new(|_: &str| None));
        assert_eq!(again.err().map(|error| error.kind), Some(Kind::Busy));
    }
}
