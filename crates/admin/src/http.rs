//! Who may ask, what for, and the limits.
//!
//! One thread reads requests and writes answers. A second thread gathers statuses, so that a memory node that does not
//! answer holds up neither `/healthz` nor the page. Both are idle unless somebody asks.
//!
//! There are at most [`MAX_CONNECTIONS`] connections, each for at most [`CONNECTION_LIMIT`]. A request's head has at
//! most [`MAX_HEAD_BYTES`], and no body is read. On loopback, a request must name the server by an address or as
//! `localhost`: a page of another site whose name resolves to this machine gets nothing.

use crate::error::Error;
use crate::gather::Birth;
use crate::status::Status;
use crate::{metrics, page};
use bytes::Bytes;
use forebay_env::SystemClock;
use forebay_env::sync::{Mutex, lock};
use forebay_env::thread::{JoinHandle, spawn};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, oneshot};

/// Most connections at a time; those beyond are closed.
pub const MAX_CONNECTIONS: usize = 32;
/// How long a connection may be open.
pub const CONNECTION_LIMIT: Duration = Duration::from_secs(60);
/// How long a request may take to come in.
const HEAD_LIMIT: Duration = Duration::from_secs(5);
/// Longest head of a request, in bytes.
pub const MAX_HEAD_BYTES: usize = 16 << 10;
/// Most fields of a request.
const MAX_FIELDS: usize = 64;
/// How long to wait after accepting has failed, for example because file descriptors run out.
const RETRY: Duration = Duration::from_millis(100);
/// How long to wait at the end for a status that is being gathered.
const LINGER: Duration = Duration::from_secs(5);

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
/// The page loads everything from this server.
const POLICY: HeaderValue = HeaderValue::from_static("default-src 'self'; frame-ancestors 'none'; base-uri 'none'");

/// Returns what the process does. It may wait, for example for a memory node. One thread calls it at a time.
type Source = Arc<dyn Fn() -> Status + Send + Sync>;

/// What requests share.
struct Shared {
    birth: Birth,
    source: Mutex<Option<Source>>,
    /// Whether only this machine can connect.
    is_local: bool,
}

impl Shared {
    fn status(&self) -> Status {
        let starting = || {
            let mut process = self.birth.process("");
            process.not_ready = "it is starting".to_owned();
            Status { process, ..Status::default() }
        };
        // Clone the source: calling it may wait, and replacing it must not.
        let source = lock(&self.source).clone();
        source.map_or_else(starting, |source| source())
    }
}

/// A listener for operators. Dropping it closes it and all of its connections.
pub struct Admin {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Admin {
    /// Starts to listen. With port 0 the system chooses one. Until [`Admin::serve`], the process is alive and not
    /// ready.
    ///
    /// # Errors
    /// `Io` when the address is taken or not this machine's, or the system refuses a thread.
    pub fn start(address: SocketAddr, role: &'static str) -> Result<Self, Error> {
        let failed = || Error::io(format!("listening for operators on {address}"));
        let listener = std::net::TcpListener::bind(address).map_err(failed())?;
        listener.set_nonblocking(true).map_err(failed())?;
        let address = listener.local_addr().map_err(failed())?;
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(1)
            .thread_name("forebay-gather")
            .build()
            .map_err(failed())?;
        let listener = {
            let _within = runtime.enter();
            TcpListener::from_std(listener).map_err(failed())?
        };
        let birth = Birth::now(role, SystemClock::shared());
        let shared = Arc::new(Shared { birth, source: Mutex::default(), is_local: address.ip().is_loopback() });
        let (stop, stopped) = oneshot::channel();
        let of_thread = Arc::clone(&shared);
        let thread = spawn("forebay-admin", move || run(runtime, listener, of_thread, stopped));
        let thread = thread.map_err(Error::io("starting a thread for operators"))?;
        Ok(Self { address, shared, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Records that the process has started, or does something else than before. From now on `source` says what it
    /// does. `address` is where it serves, if not empty.
    pub fn serve(&self, address: impl Into<String>, source: impl Fn(Status) -> Status + Send + Sync + 'static) {
        let address = address.into();
        let shared = Arc::downgrade(&self.shared);
        let source: Source = Arc::new(move || {
            let process = shared.upgrade().map(|shared| shared.birth.process(address.clone())).unwrap_or_default();
            source(Status { process, ..Status::default() })
        });
        *lock(&self.shared.source) = Some(source);
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        drop(self.stop.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that serves operators panicked");
        }
    }
}

fn run(runtime: Runtime, listener: TcpListener, shared: Arc<Shared>, stopped: oneshot::Receiver<()>) {
    runtime.block_on(async {
        let accepting = tokio::spawn(accept(listener, shared));
        let _ = stopped.await;
        accepting.abort();
    });
    runtime.shutdown_timeout(LINGER);
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let (stream, _) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection of an operator was not accepted");
                tokio::time::sleep(RETRY).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&room).try_acquire_owned() else { continue };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            // How a connection ends does not matter: the client knows whether there was an answer.
            let _ = tokio::time::timeout(CONNECTION_LIMIT, converse(stream, shared)).await;
            drop(place);
        });
    }
}

async fn converse(stream: TcpStream, shared: Arc<Shared>) {
    let service = service_fn(move |request| answer(request, Arc::clone(&shared)));
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_FIELDS)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Response<Full<Bytes>>, Infallible> {
    if shared.is_local && !names_this_machine(&request) {
        return Ok(respond(StatusCode::FORBIDDEN, TEXT, "the request is for another host than this machine\n"));
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = respond(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(response);
    }
    let path = request.uri().path();
    if let Some(file) = page::FILES.iter().find(|file| file.path == path) {
        return Ok(respond(StatusCode::OK, file.content_type, file.content));
    }
    Ok(match path {
        // A process that answers is alive.
        "/healthz" => respond(StatusCode::OK, TEXT, "ok\n"),
        "/readyz" => {
            gathered(shared, |status| match status.process.not_ready.as_str() {
                "" => respond(StatusCode::OK, TEXT, "ready\n"),
                reason => respond(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{reason}\n")),
            })
            .await
        }
        "/metrics" => {
            gathered(shared, |status| respond(StatusCode::OK, metrics::CONTENT_TYPE, metrics::text(&status))).await
        }
        "/api/status" => {
            let told = |status: Status| match serde_json::to_vec(&status) {
                Ok(json) => respond(StatusCode::OK, JSON, json),
                Err(_) => failed(),
            };
            gathered(shared, told).await
        }
        _ => respond(StatusCode::NOT_FOUND, TEXT, "no such page\n"),
    })
}

/// Gathers a status on the second thread, and answers with it. Nothing is gathered for a client that has gone before the
/// thread gets to its request: clients that still wait come next.
async fn gathered(
    shared: Arc<Shared>,
    tell: impl FnOnce(Status) -> Response<Full<Bytes>> + Send + 'static,
) -> Response<Full<Bytes>> {
    let (answers, answer) = oneshot::channel();
    tokio::task::spawn_blocking(move || {
        if !answers.is_closed() {
            // The client may have gone meanwhile.
            let _ = answers.send(tell(shared.status()));
        }
    });
    answer.await.unwrap_or_else(|_| failed())
}

fn failed() -> Response<Full<Bytes>> {
    respond(StatusCode::INTERNAL_SERVER_ERROR, TEXT, "the status could not be gathered: see the log\n")
}

fn respond(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

/// Whether the request names its server by an address or as `localhost`, or not at all.
fn names_this_machine<T>(request: &Request<T>) -> bool {
    let Some(host) = request.headers().get(HOST) else { return true };
    let Ok(host) = host.to_str() else { return false };
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, _)) => name,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::sync::mpsc;
    use std::task::Poll;

    #[test]
    fn only_this_machine_is_meant() {
        let named = |host: &'static str| {
            let mut request = Request::new(());
            request.headers_mut().insert(HOST, HeaderValue::from_static(host));
            names_this_machine(&request)
        };
        for host in ["127.0.0.1:9121", "localhost:9121", "LOCALHOST", "[::1]:9121", "10.0.0.1"] {
            assert!(named(host), "{host}");
        }
        for host in ["example.org:9121", "localhost.example.org", "127.0.0.1.example.org:80", ""] {
            assert!(!named(host), "{host}");
        }
        assert!(names_this_machine(&Request::new(())));
    }

    #[test]
    fn nothing_is_gathered_for_a_client_that_has_gone() {
        let ((begins, begun), (go_on, waits)) = (mpsc::channel(), mpsc::channel::<()>());
        let waits = Mutex::new(waits);
        let source: Source = Arc::new(move || {
            begins.send(()).unwrap();
            // Ends when the other side is dropped.
            let _ = lock(&waits).recv();
            Status::default()
        });
        let birth = Birth::now("worker", SystemClock::shared());
        let shared = Arc::new(Shared { birth, source: Mutex::new(Some(source)), is_local: true });
        let asked = || Box::pin(gathered(Arc::clone(&shared), |_| respond(StatusCode::OK, TEXT, "")));
        let runtime = Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let (mut first, mut gone, mut last) = (asked(), asked(), asked());
            for request in [&mut first, &mut gone, &mut last] {
                assert!(poll_fn(|context| Poll::Ready(request.as_mut().poll(context))).await.is_pending());
            }
            begun.recv().unwrap();
            drop(gone);
            drop(go_on);
            for request in [first, last] {
                assert_eq!(request.await.status(), StatusCode::OK);
            }
        });
        assert_eq!(begun.try_iter().count(), 1, "only the last one was still waited for");
    }
}
