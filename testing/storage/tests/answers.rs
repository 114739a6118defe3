//! How the back end handles rare answers of a service: a server in this process gives them when a test plans it.

use bytes::Bytes;
use forebay_base::ErrorKind;
use forebay_env::sync::{Mutex, lock};
use forebay_storage::{Follow, ObjectName, Permit, PutMode, SignedAccess, Storage, StorageOptions};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of an object that is written in two parts.
const TWO_PARTS: usize = (8 << 20) + 3;

/// What goes wrong with a request.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// The request is carried out, but an intermediary says that it does not know the result.
    ReplyLost,
    /// The request is not carried out, and this is the answer.
    Refused(&'static str, &'static str),
}

const CONFLICT: Fault = Fault::Refused("409 Conflict", "ConditionalRequestConflict");
const NO_UPLOAD: Fault = Fault::Refused("404 Not Found", "NoSuchUpload");

/// A bucket of S3, as far as these tests need one.
#[derive(Debug, Default)]
struct Bucket {
    objects: BTreeMap<String, Vec<u8>>,
    /// The bytes of the upload that was begun.
    upload: Option<Vec<u8>>,
    /// Whether the condition of a put is ignored.
    is_careless: bool,
    /// Faults for the next requests that begin with these texts.
    faults: Vec<(&'static str, Fault)>,
}

const OK: &str = "200 OK";

/// Status and body.
type Answer = (&'static str, Vec<u8>);

fn refusal(status: &'static str, code: &str) -> Answer {
    (status, format!("<Error><Code>{code}</Code><Message>no</Message></Error>").into())
}

impl Bucket {
    fn carry_out(&mut self, request: &str, is_conditional: bool, body: Vec<u8>) -> Answer {
        let (method, target) = request.split_once(' ').unwrap();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        match (method, query) {
            ("POST", "uploads" | "uploads=") => {
                self.upload = Some(Vec::new());
                let said = "<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>";
                (OK, said.into())
            }
            ("PUT", query) if query.contains("partNumber") => match &mut self.upload {
                Some(upload) => {
                    upload.extend_from_slice(&body);
                    (OK, Vec::new())
                }
                None => refusal("404 Not Found", "NoSuchUpload"),
            },
            ("POST", _) => match self.upload.take() {
                Some(upload) => {
                    self.objects.insert(path.to_owned(), upload);
                    let said = "<CompleteMultipartUploadResult><ETag>1</ETag></CompleteMultipartUploadResult>";
                    (OK, said.into())
                }
                None => refusal("404 Not Found", "NoSuchUpload"),
            },
            ("DELETE", query) if query.contains("uploadId") => {
                self.upload = None;
                (OK, Vec::new())
            }
            ("PUT", _) if is_conditional && !self.is_careless && self.objects.contains_key(path) => {
                refusal("412 Precondition Failed", "PreconditionFailed")
            }
            ("PUT", _) => {
                self.objects.insert(path.to_owned(), body);
                (OK, Vec::new())
            }
            ("GET" | "HEAD", _) => match self.objects.get(path) {
                Some(object) => (OK, object.clone()),
                None => refusal("404 Not Found", "NoSuchKey"),
            },
            _ => refusal("501 Not Implemented", "NotImplemented"),
        }
    }

    fn answer(&mut self, request: &str, is_conditional: bool, body: Vec<u8>) -> Answer {
        let planned = self.faults.iter().position(|(start, _)| request.starts_with(start));
        match planned.map(|place| self.faults.remove(place).1) {
            Some(Fault::Refused(status, code)) => refusal(status, code),
            Some(Fault::ReplyLost) => {
                self.carry_out(request, is_conditional, body);
                refusal("502 Bad Gateway", "BadGateway")
            }
            None => self.carry_out(request, is_conditional, body),
        }
    }
}

/// A range given by its first and last byte.
fn inclusive((first, last): (&str, &str)) -> Range<usize> {
    first.parse().unwrap()..last.parse::<usize>().unwrap() + 1
}

/// Takes one request from a connection and answers it.
fn serve(stream: TcpStream, bucket: &Mutex<Bucket>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let (mut first, mut length, mut is_conditional, mut range) = (String::new(), 0, false, None);
    reader.read_line(&mut first)?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().unwrap(),
            "if-none-match" => is_conditional = true,
            "range" => range = value.strip_prefix("bytes=").and_then(|range| range.split_once('-')).map(inclusive),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let request = first.rsplit_once(' ').map_or("", |(request, _)| request);
    let (mut status, mut body) = lock(bucket).answer(request, is_conditional, body);
    let mut usual = "ETag: \"1\"\r\nLast-Modified: Wed, 01 Jan 2025 00:00:00 GMT\r\nConnection: close\r\n".to_owned();
    if let (OK, Some(range)) = (status, range) {
        let part = body[range.clone()].to_vec();
        usual = format!("{usual}Content-Range: bytes {}-{}/{}\r\n", range.start, range.end - 1, body.len());
        (status, body) = ("206 Partial Content", part);
    }
    let mut stream = reader.into_inner();
    write!(stream, "HTTP/1.1 {status}\r\n{usual}Content-Length: {}\r\n\r\n", body.len())?;
    if request.starts_with("HEAD") { Ok(()) } else { stream.write_all(&body) }
}

/// A bucket of its own, and storage that reaches it.
fn start() -> (Arc<Mutex<Bucket>>, Storage) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let bucket = Arc::<Mutex<Bucket>>::default();
    let served = Arc::clone(&bucket);
    // The thread ends with the process.
    let serve_all = move || {
        for stream in listener.incoming().flatten() {
            let _ = serve(stream, &served);
        }
    };
    drop(forebay_env::thread::spawn("bucket", serve_all).unwrap());
    let settings = [
        ("aws_endpoint", format!("http://127.0.0.1:{port}")),
        ("aws_allow_http", "true".to_owned()),
        ("aws_region", "us-east-1".to_owned()),
        ("aws_access_key_id", "test".to_owned()),
        ("aws_secret_access_key", "test".to_owned()),
    ];
    let settings = settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let options = StorageOptions { settings, operation_timeout: Duration::from_secs(20), ..StorageOptions::default() };
    (bucket, Storage::open("s3://bucket", options).unwrap())
}

/// Neither such an endpoint nor such a URL reaches the library.
#[test]
fn what_names_no_service_is_refused() {
    let open = |url: &str, settings: &[(&str, &str)]| {
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Storage::open(url, StorageOptions { settings, ..StorageOptions::default() }).map(drop)
    };
    for endpoint in ["", "localhost:9000", "127.0.0.1", "http://", "file:///bucket"] {
        for name in ["aws_endpoint", "aws_endpoint_url_s3"] {
            let error = open("s3://bucket", &[(name, endpoint)]).unwrap_err();
            assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("the endpoint"), "{error}");
        }
    }
    for url in ["s3://bucket?x=1", "s3://bucket?x=1/prefix", "s3://a bucket", "gs://bucket#part", "az://user@container"]
    {
        assert_eq!(open(url, &[]).unwrap_err().kind(), ErrorKind::Invalid, "{url}");
    }
    open("s3://a-bucket.of_names", &[("aws_endpoint", "http://[::1]:9000/path")]).unwrap();
}

fn object() -> ObjectName {
    ObjectName::new("object").unwrap()
}

/// Writes an object as a stream. Returns the error's kind and text.
fn stream(storage: &Storage, length: usize) -> Result<(), (ErrorKind, String)> {
    let mut writer = storage.objects().writer(&object()).unwrap();
    let written = writer.write(Bytes::from(vec![7; length])).and_then(|()| writer.finish());
    written.map_err(|error| (error.kind(), error.to_string()))
}

#[test]
fn an_upload_whose_completion_lost_its_reply_is_done() {
    let (bucket, storage) = start();
    lock(&bucket).faults.push(("POST /bucket/object?uploadId", Fault::ReplyLost));
    assert_eq!(stream(&storage, TWO_PARTS), Ok(()));
    assert!(lock(&bucket).faults.is_empty());
    assert_eq!(storage.objects().size(&object()).unwrap(), TWO_PARTS as u64);
}

#[test]
fn an_upload_that_is_gone_is_begun_again() {
    let (bucket, storage) = start();
    // First no object has the name, then a shorter one.
    for _ in 0..2 {
        lock(&bucket).faults.push(("POST /bucket/object?uploadId", NO_UPLOAD));
        let (kind, text) = stream(&storage, TWO_PARTS).unwrap_err();
        assert!(kind == ErrorKind::Unavailable && text.contains("NoSuchUpload"), "{kind} {text}");
        storage.objects().put(&object(), Bytes::from_static(b"shorter"), PutMode::Replace).unwrap();
    }
    assert_eq!(stream(&storage, TWO_PARTS), Ok(()));
}

/// Until it is removed, its parts take room, and no list shows them.
#[test]
fn an_upload_of_which_a_part_fails_is_removed() {
    let (bucket, storage) = start();
    for part in ["PUT /bucket/object?partNumber=1", "PUT /bucket/object?partNumber=2"] {
        lock(&bucket).faults.push((part, Fault::Refused("403 Forbidden", "AccessDenied")));
        let (kind, text) = stream(&storage, TWO_PARTS).unwrap_err();
        assert_eq!(kind, ErrorKind::AccessDenied, "{text}");
        let bucket = lock(&bucket);
        assert!(bucket.faults.is_empty() && bucket.upload.is_none(), "{part}");
    }
    assert_eq!(stream(&storage, TWO_PARTS), Ok(()));
}

/// Also a call that sends nothing says so.
#[test]
fn an_object_of_which_a_part_failed_takes_no_more_bytes() {
    let (bucket, storage) = start();
    let part = "PUT /bucket/object?partNumber=1";
    lock(&bucket).faults.push((part, Fault::Refused("403 Forbidden", "AccessDenied")));
    let mut writer = storage.objects().writer(&object()).unwrap();
    let kind = |written: forebay_storage::Result<()>| written.unwrap_err().kind();
    assert_eq!(kind(writer.write(Bytes::from(vec![7; TWO_PARTS]))), ErrorKind::AccessDenied);
    assert_eq!(kind(writer.write(Bytes::from_static(b"x"))), ErrorKind::Closed);
    assert_eq!(kind(writer.finish()), ErrorKind::Closed);
    assert_eq!(storage.objects().get(&object()).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_put_into_a_bucket_that_is_missing_may_succeed_later() {
    let (bucket, storage) = start();
    for mode in [PutMode::Replace, PutMode::IfAbsent] {
        lock(&bucket).faults.push(("PUT", Fault::Refused("404 Not Found", "NoSuchBucket")));
        let error = storage.objects().put(&object(), Bytes::from_static(b"x"), mode).unwrap_err();
        assert!(error.kind() == ErrorKind::Unavailable && error.to_string().contains("NoSuchBucket"), "{error}");
    }
    let error = storage.objects().get(&object()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

#[test]
fn a_put_that_meets_another_of_the_name_may_succeed_later() {
    let (bucket, storage) = start();
    let unknown = Fault::Refused("409 Conflict", "AnotherReason");
    for (fault, kind) in [(CONFLICT, ErrorKind::Busy), (unknown, ErrorKind::Unavailable)] {
        lock(&bucket).faults.push(("PUT", fault));
        let error = storage.objects().put_once(&object(), Bytes::from_static(b"x")).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
    storage.objects().put_once(&object(), Bytes::from_static(b"x")).unwrap();
    storage.objects().put_once(&object(), Bytes::from_static(b"x")).unwrap();
    let other = storage.objects().put_once(&object(), Bytes::from_static(b"y"));
    assert_eq!(other.unwrap_err().kind(), ErrorKind::AlreadyExists);
}

#[test]
fn a_service_that_ignores_conditions_is_told_from_one_that_heeds_them() {
    let (bucket, storage) = start();
    let bytes = Bytes::from_static(b"x");
    storage.objects().put(&object(), bytes.clone(), PutMode::IfAbsent).unwrap();
    storage.objects().check_conditions(&object(), bytes.clone()).unwrap();
    lock(&bucket).is_careless = true;
    let error = storage.objects().check_conditions(&object(), bytes.clone()).unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("s3://bucket/"), "{error}");
    // An error that does not answer the question stays unchanged.
    lock(&bucket).faults.push(("PUT", CONFLICT));
    assert_eq!(storage.objects().check_conditions(&object(), bytes).unwrap_err().kind(), ErrorKind::Busy);
}

/// A client with signed names retries like one with a key.
#[test]
fn signed_names_are_tried_again_where_that_helps() {
    let (bucket, owner) = start();
    let sign = |permit| {
        let url = owner.objects().sign(permit, &[object()], Duration::from_secs(3600)).unwrap().remove(0);
        // The server looks only at paths.
        assert!(url.secret().contains("/bucket/object?X-Amz-Algorithm=AWS4-HMAC-SHA256&"));
        [(object(), url)]
    };
    let access = SignedAccess::open(Follow::Http, StorageOptions::default()).unwrap();
    let storage = access.storage(sign(Permit::Read), sign(Permit::Write)).unwrap();
    let put = || storage.objects().put(&object(), Bytes::from_static(b"0123456789"), PutMode::Replace);
    let read = || {
        let mut read = [0; 3];
        storage.objects().open(&object())?.read_at(4, &mut read).map(|()| read)
    };
    let plan = |start, fault| lock(&bucket).faults.push((start, fault));
    plan("PUT", CONFLICT);
    plan("PUT", Fault::ReplyLost);
    put().unwrap();
    plan("GET", Fault::Refused("503 Service Unavailable", "SlowDown"));
    plan("GET", Fault::Refused("500 Internal Server Error", "InternalError"));
    assert_eq!(&read().unwrap(), b"456");
    assert!(lock(&bucket).faults.is_empty());
    // A refusal that lasts is an answer. So is an answer that makes no sense: a range was asked for, not the whole object.
    let lasting = [
        (Fault::Refused("403 Forbidden", "AccessDenied"), ErrorKind::AccessDenied),
        (Fault::Refused("400 Bad Request", "ExpiredToken"), ErrorKind::AccessDenied),
        (Fault::Refused("301 Moved Permanently", "PermanentRedirect"), ErrorKind::Unavailable),
        (Fault::Refused("202 Accepted", ""), ErrorKind::Unavailable),
    ];
    for (fault, kind) in lasting {
        plan("GET", fault);
        let error = read().unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(lock(&bucket).faults.is_empty());
    }
    assert_eq!(&read().unwrap(), b"456");
}
