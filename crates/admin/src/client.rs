//! Asks other processes over HTTP, for example for their status.

use crate::error::Error;
use crate::status::Status;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{HOST, HeaderValue};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::net::TcpStream;

/// How long an answer may take. The answering process may have to wait for a memory node.
const LIMIT: Duration = Duration::from_secs(10);
/// Longest answer.
const MAX_BYTES: usize = 16 << 20;

/// Returns the status of the process that serves operators at `address`: `HOST:PORT`.
///
/// # Errors
/// `Unavailable` when nobody answers there, or not in time; `Corrupt` when the answer is not a status.
pub fn fetch(address: &str) -> Result<Status, Error> {
    let request = Request::get(format!("http://{address}/api/status")).body(Bytes::new());
    let answer = exchange(request.map_err(|error| Error::unavailable(address, error))?, LIMIT)?;
    if answer.status() != StatusCode::OK {
        return Err(Error::unavailable(address, format_args!("the answer is {}", answer.status())));
    }
    serde_json::from_slice(answer.body()).map_err(|error| Error::corrupt(address, error))
}

/// Sends a request to the place in its URI, `http://HOST:PORT/…`, waits, and returns the answer, whatever its status.
/// It uses a connection of its own. An answer has at most 16 MiB.
///
/// # Errors
/// `Unavailable` when nobody answers there, not in time, or the answer is too long.
pub fn exchange(request: Request<Bytes>, limit: Duration) -> Result<Response<Bytes>, Error> {
    let address = request.uri().authority().map(ToString::to_string).unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Error::unavailable(&address, error))?;
    runtime.block_on(async {
        match tokio::time::timeout(limit, ask(&address, request)).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::unavailable(&address, format_args!("no answer within {limit:?}"))),
        }
    })
}

async fn ask(address: &str, request: Request<Bytes>) -> Result<Response<Bytes>, Error> {
    let mut request = request.map(Full::new);
    // The request holds the path alone, and the server's name in a field.
    let path = request.uri().path_and_query().cloned().map(Uri::from);
    *request.uri_mut() = path.unwrap_or_default();
    let host = HeaderValue::from_str(address).map_err(|error| Error::unavailable(address, error))?;
    request.headers_mut().insert(HOST, host);
    let stream = TcpStream::connect(address).await.map_err(|error| Error::unavailable(address, error))?;
    let failed = |error: hyper::Error| Error::unavailable(address, error);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let running = tokio::spawn(connection);
    let (head, body) = sender.send_request(request).await.map_err(failed)?.into_parts();
    let body = Limited::new(body, MAX_BYTES).collect().await;
    running.abort();
    let body = body.map_err(|error| Error::unavailable(address, error))?.to_bytes();
    Ok(Response::from_parts(head, body))
}
