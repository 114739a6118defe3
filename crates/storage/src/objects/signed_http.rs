//! The requests of signed names, by HTTP: a range is a GET, an object is a PUT.
//!
//! The size of an object comes with its first byte, because a name that is signed for GET is not valid for HEAD.
//!
//! A request that was refused for the moment, or got no answer, is sent again within the bounds of [`StorageOptions`]. The
//! request is the same each time, so it does no harm if it has already been carried out.

use super::runtime::Runtime;
use super::signed_name::{Requests, SignedUrl};
use crate::error::{Error, Result};
use crate::options::StorageOptions;
use bytes::{Bytes, BytesMut};
use forebay_base::ErrorKind;
use forebay_env::{Clock, SystemClock};
use futures_util::future::join_all;
use reqwest::header::{CONTENT_RANGE, RANGE};
use reqwest::{Client, Method, Response, StatusCode};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The first pause before a request is sent again. Each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// For each this many bytes of an object that is put, the request and its repetitions get the time of one other request.
const TIMED_BYTES: u64 = 8 << 20;
/// Most bytes that are read of the reason for a refusal.
const MAX_REFUSAL_BYTES: usize = 64 << 10;

/// See the module.
#[derive(Debug)]
pub(super) struct HttpRequests {
    runtime: Runtime,
    sender: Arc<Sender>,
    operation_timeout: Duration,
}

/// One request.
#[derive(Debug, Clone)]
enum Request {
    Get(Range<u64>),
    Put(Bytes),
}

/// Why there is no answer: what the caller must do, and the details.
#[derive(Debug)]
struct Failure {
    kind: ErrorKind,
    detail: String,
    /// Whether the same request may succeed soon.
    is_passing: bool,
}

/// What the service has sent.
#[derive(Debug)]
struct Answer {
    body: Bytes,
    /// Bytes of the whole object, where it says so.
    size: Option<u64>,
}

impl Request {
    /// The factor by which this request may take longer than others.
    fn times(&self) -> u32 {
        match self {
            Self::Get(_) => 1,
            Self::Put(bytes) => u32::try_from(bytes.len() as u64 / TIMED_BYTES).unwrap_or(u32::MAX).saturating_add(1),
        }
    }
}

impl HttpRequests {
    pub(super) fn new(options: &StorageOptions) -> Result<Self> {
        // The cryptography of TLS is the process's, and ring's unless somebody chose another before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            // A name is signed for one host.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent("forebay")
            .build()
            .map_err(|cause| Error::new(ErrorKind::Invalid, "open", "signed names", told(cause)))?;
        let StorageOptions { retries, request_timeout, operation_timeout, .. } = *options;
        let sender = Arc::new(Sender { client, retries, request_timeout, patience: operation_timeout / 2 });
        Ok(Self { runtime: Runtime::new("signed names")?, sender, operation_timeout })
    }

    fn send(
        &self,
        operation: &'static str,
        object: &str,
        url: &SignedUrl,
        requests: Vec<Request>,
    ) -> Result<Vec<Answer>> {
        let times = requests.iter().map(Request::times).max().unwrap_or(1);
        let timeout = self.operation_timeout.saturating_mul(times);
        let (sender, url) = (Arc::clone(&self.sender), url.clone());
        let all = async move {
            let sent = requests.into_iter().map(|request| sender.send(&url, request));
            join_all(sent).await.into_iter().collect::<std::result::Result<Vec<_>, Failure>>()
        };
        let answered = self.runtime.wait(operation, object, timeout, all)?;
        answered.map_err(|Failure { kind, detail, .. }| Error::new(kind, operation, object, detail))
    }
}

impl Requests for HttpRequests {
    fn read(&self, object: &str, url: &SignedUrl, ranges: Vec<Range<u64>>) -> Result<Vec<Bytes>> {
        let answers = self.send("read", object, url, ranges.into_iter().map(Request::Get).collect())?;
        Ok(answers.into_iter().map(|answer| answer.body).collect())
    }

    fn size(&self, object: &str, url: &SignedUrl) -> Result<u64> {
        let answers = self.send("look", object, url, vec![Request::Get(0..1)])?;
        let size = answers.into_iter().find_map(|answer| answer.size);
        let unknown = || Error::new(ErrorKind::Unavailable, "look", object, "the service does not say how long it is");
        size.ok_or_else(unknown)
    }

    fn put(&self, object: &str, url: &SignedUrl, bytes: Bytes) -> Result<()> {
        self.send("put", object, url, vec![Request::Put(bytes)]).map(drop)
    }
}

#[derive(Debug)]
struct Sender {
    client: Client,
    /// How often a request is sent again.
    retries: usize,
    /// For a request that is not long: how long after the first attempt another may begin, and the longest
    /// time of each attempt.
    patience: Duration,
    request_timeout: Duration,
}

impl Sender {
    /// Sends a request until there is an answer, or it is not worth trying.
    async fn send(&self, url: &SignedUrl, request: Request) -> std::result::Result<Answer, Failure> {
        let clock = SystemClock::new();
        let begun = clock.now();
        let (mut pause, mut left) = (FIRST_PAUSE, self.retries);
        loop {
            let failure = match self.send_once(url, &request).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let took = Duration::from_nanos(clock.now().saturating_sub(begun));
            if !failure.is_passing || left == 0 || took + pause > self.patience.saturating_mul(request.times()) {
                return Err(failure);
            }
            left -= 1;
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }

    async fn send_once(&self, url: &SignedUrl, request: &Request) -> std::result::Result<Answer, Failure> {
        let (sent, status, most_bytes) = match request {
            Request::Get(range) => {
                let length = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
                let bytes = format!("bytes={}-{}", range.start, range.end.saturating_sub(1));
                let sent = self.client.request(Method::GET, url.secret()).header(RANGE, bytes);
                (sent, Some(StatusCode::PARTIAL_CONTENT), length)
            }
            Request::Put(bytes) => {
                // Azure requires the header; other services do not know it.
                let sent = self.client.request(Method::PUT, url.secret()).header("x-ms-blob-type", "BlockBlob");
                (sent.body(bytes.clone()), None, MAX_REFUSAL_BYTES)
            }
        };
        let timeout = self.request_timeout.saturating_mul(request.times());
        let mut response = sent.timeout(timeout).send().await.map_err(no_answer)?;
        let found = response.status();
        let size = size_of_whole(&response);
        if found.is_success() && status.is_none_or(|status| status == found) {
            let body = body(&mut response, most_bytes).await.map_err(no_answer)?;
            return Ok(Answer { body, size });
        }
        let said = body(&mut response, MAX_REFUSAL_BYTES).await.unwrap_or_default();
        Err(refused(found, &String::from_utf8_lossy(&said)))
    }
}

/// At most `most_bytes` of what the service sends.
async fn body(response: &mut Response, most_bytes: usize) -> std::result::Result<Bytes, reqwest::Error> {
    let mut body = BytesMut::new();
    while let Some(piece) = response.chunk().await? {
        let left = most_bytes.saturating_sub(body.len());
        body.extend_from_slice(piece.get(..left).unwrap_or(&piece));
        if left < piece.len() {
            break;
        }
    }
    Ok(body.freeze())
}

/// Size of the whole object of which a response carries a part.
fn size_of_whole(response: &Response) -> Option<u64> {
    response.headers().get(CONTENT_RANGE)?.to_str().ok()?.rsplit_once('/')?.1.parse().ok()
}

/// The message of an error of the library, without the URL.
fn told(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

fn no_answer(error: reqwest::Error) -> Failure {
    let kind = match () {
        () if error.is_timeout() => ErrorKind::TimedOut,
        () if error.is_builder() => ErrorKind::Invalid,
        () => ErrorKind::Unavailable,
    };
    Failure { kind, is_passing: kind != ErrorKind::Invalid, detail: told(error) }
}

/// Interprets a refusal. Keeps only the service's code of its text: the rest may repeat the signature.
fn refused(status: StatusCode, said: &str) -> Failure {
    let code = said.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
    let code = code.map_or("", |(code, _)| code);
    let is_code = code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let code = if is_code { code } else { "" };
    let kind = match status.as_u16() {
        401 | 403 => ErrorKind::AccessDenied,
        400 if code.contains("Expired") => ErrorKind::AccessDenied,
        404 => ErrorKind::NotFound,
        408 => ErrorKind::TimedOut,
        416 => ErrorKind::Corrupt,
        409 | 429 | 503 => ErrorKind::Busy,
        507 => ErrorKind::Full,
        _ => ErrorKind::Unavailable,
    };
    let is_passing = status.is_server_error() && kind != ErrorKind::Full || matches!(status.as_u16(), 408 | 409 | 429);
    let meaning = match kind {
        ErrorKind::AccessDenied => "the signed name is refused: it may have expired, or its signer may not do that",
        ErrorKind::Corrupt => "the object ends before what is read of it",
        ErrorKind::NotFound => "there is no such object",
        _ => "the service does not do it",
    };
    Failure { kind, detail: format!("{meaning} (status {}, {code:?})", status.as_u16()), is_passing }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_to_do_and_not_what_was_signed() {
        let said = "<Error><Code>SignatureDoesNotMatch</Code><SignatureProvided>hush</SignatureProvided></Error>";
        let kinds = [
            (403, said, ErrorKind::AccessDenied, false),
            (400, "<Code>ExpiredToken</Code>", ErrorKind::AccessDenied, false),
            (400, said, ErrorKind::Unavailable, false),
            (404, "<Code>hush hush</Code>", ErrorKind::NotFound, false),
            (416, "", ErrorKind::Corrupt, false),
            (503, "<Code>SlowDown</Code>", ErrorKind::Busy, true),
            (500, "<Code>", ErrorKind::Unavailable, true),
            (507, "", ErrorKind::Full, false),
            (301, "", ErrorKind::Unavailable, false),
        ];
        for (status, said, kind, is_passing) in kinds {
            let failure = refused(StatusCode::from_u16(status).unwrap(), said);
            assert_eq!((failure.kind, failure.is_passing), (kind, is_passing), "{status}");
            assert!(!failure.detail.contains("hush"), "{}", failure.detail);
        }
    }

    #[test]
    fn what_cannot_be_reached_is_not_shown() {
        let (retries, request_timeout) = (1, Duration::from_secs(5));
        let requests = HttpRequests::new(&StorageOptions { retries, request_timeout, ..StorageOptions::default() });
        // Nobody listens there.
        for url in ["http://127.0.0.1:1/object?signature=hush", "no url?hush"] {
            let error = requests.as_ref().unwrap().size("object", &SignedUrl::new(url.to_owned())).unwrap_err();
            assert!(!error.to_string().contains("hush"), "{error}");
            let expected = if url.starts_with("http") { ErrorKind::Unavailable } else { ErrorKind::Invalid };
            assert_eq!(error.kind(), expected, "{error}");
        }
    }
}
