//! Asks another process for its status.

use crate::error::Error;
use crate::status::Status;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::header::HOST;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::net::TcpStream;

/// How long an answer may take. Who answers may have to wait for a memory node.
const LIMIT: Duration = Duration::from_secs(10);
/// Longest answer.
const MAX_BYTES: usize = 16 << 20;

/// The status of the process that serves operators at `address`: `HOST:PORT`.
///
/// # Errors
/// `Unavailable` when nobody answers there, or not in time; `Corrupt` when the answer is not a status.
pub fn fetch(address: &str) -> Result<Status, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Error::unavailable(address, error))?;
    runtime.block_on(async {
        match tokio::time::timeout(LIMIT, ask(address)).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::unavailable(address, format_args!("no answer within {LIMIT:?}"))),
        }
    })
}

async fn ask(address: &str) -> Result<Status, Error> {
    let stream = TcpStream::connect(address).await.map_err(|error| Error::unavailable(address, error))?;
    let failed = |error: hyper::Error| Error::unavailable(address, error);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let running = tokio::spawn(connection);
    let request = Request::get("/api/status").header(HOST, address).body(Empty::<Bytes>::new());
    let request = request.map_err(|error| Error::unavailable(address, error))?;
    let answer = sender.send_request(request).await.map_err(failed)?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), MAX_BYTES).collect().await;
    running.abort();
    let body = body.map_err(|error| Error::unavailable(address, error))?.to_bytes();
    if status != StatusCode::OK {
        return Err(Error::unavailable(address, format_args!("the answer is {status}")));
    }
    serde_json::from_slice(&body).map_err(|error| Error::corrupt(address, error))
}
