//! Remote services through crate `object_store`.
//!
//! The library is asynchronous; its runtime is private (`runtime`).
//!
//! The library repeats requests that a service refuses for the moment, within bounds ([`StorageOptions`]). So it also
//! repeats a put whose reply was lost, and the repetition may find its own object. The result is then `AlreadyExists`; the
//! layers above compare bytes to distinguish it from another writer's object.

use super::runtime::Runtime;
use super::services::{Service, service};
use super::{
    ObjectInfo, ObjectReader, ObjectStorage, ObjectWriter, Permit, PutMode, ReadRequest, SignedUrl, has_failed,
    too_short,
};
use crate::error::{Error, Result};
use crate::name::ObjectName;
use crate::options::StorageOptions;
use bytes::{Bytes, BytesMut};
use forebay_base::ErrorKind;
use futures_util::StreamExt;
use futures_util::future::join_all;
use object_store::path::Path;
use object_store::signer::{Method, Signer};
use object_store::{
    GetOptions, GetRange, MultipartUpload, ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions,
};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a part of a streamed object: at least 5 MiB on S3.
const PART_BYTES: usize = 8 << 20;

/// Objects of a remote service.
#[derive(Debug, Clone)]
pub struct RemoteObjects {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    service: Arc<dyn ObjectStore>,
    /// The same service, where it can sign names.
    signer: Option<Arc<dyn Signer>>,
    keeps_conditions: bool,
    /// The text that precedes names; empty, or ends in `/`.
    prefix: String,
    url: String,
    timeout: Duration,
    runtime: Runtime,
}

/// Opens the service that `url` names.
pub(crate) fn open(scheme: &str, url: &str, options: &StorageOptions) -> Result<RemoteObjects> {
    let (authority, prefix) = match url.split_once("://").map(|(_, rest)| rest.split_once('/').unwrap_or((rest, ""))) {
        Some((authority, prefix)) if names_a_place(authority) => (authority, prefix.trim_end_matches('/')),
        _ => {
            let detail = format!("name where it is, and nothing else: {scheme}://NAME/prefix");
            return Err(Error::new(ErrorKind::Invalid, "open", url, detail));
        }
    };
    let prefix = if prefix.is_empty() { String::new() } else { format!("{}/", ObjectName::new(prefix)?) };
    let runtime = Runtime::new(url)?;
    let service = service(scheme, authority, options, &runtime).map_err(|cause| of_settings(url, &cause))?;
    let Some(Service { store, signer, keeps_conditions }) = service else { return Err(Error::not_built(url, scheme)) };
    let url = format!("{scheme}://{authority}/{prefix}");
    let inner =
        Inner { service: store, signer, keeps_conditions, prefix, url, timeout: options.operation_timeout, runtime };
    Ok(RemoteObjects { inner: Arc::new(inner) })
}

/// Whether `authority` can be the name of a bucket or a container, or a host with a port.
fn names_a_place(authority: &str) -> bool {
    let is_of_names = |byte: u8| byte.is_ascii_alphanumeric() || b".-_$:[]".contains(&byte);
    !authority.is_empty() && authority.bytes().all(is_of_names)
}

/// The error when there is no service. No request was made yet, so the settings are wrong.
fn of_settings(url: &str, cause: &object_store::Error) -> Error {
    let error = converted("open", url, cause);
    match error.kind() {
        ErrorKind::Unavailable => error.meaning(ErrorKind::Invalid, "a setting does not fit"),
        _ => error,
    }
}

impl RemoteObjects {
    fn path(&self, name: &ObjectName) -> Path {
        Path::from(format!("{}{name}", self.inner.prefix))
    }

    fn object(&self, name: &ObjectName) -> String {
        format!("{}{name}", self.inner.url)
    }

    /// Waits for `work` as long as an operation may take.
    fn wait<T, W>(&self, operation: &'static str, object: &str, work: W) -> Result<T>
    where
        T: Send + 'static,
        W: Future<Output = object_store::Result<T>> + Send + 'static,
    {
        let done = self.inner.runtime.wait(operation, object, self.inner.timeout, work)?;
        done.map_err(|cause| converted(operation, object, &cause))
    }

    fn read(&self, name: &ObjectName, ranges: Vec<(u64, u64)>) -> Result<Vec<Bytes>> {
        let (service, path) = (Arc::clone(&self.inner.service), self.path(name));
        self.wait("read", &self.object(name), async move {
            let reads = ranges.into_iter().map(|(start, end)| {
                let options = GetOptions { range: Some(GetRange::Bounded(start..end)), ..Default::default() };
                let (service, path) = (Arc::clone(&service), path.clone());
                async move { service.get_opts(&path, options).await?.bytes().await }
            });
            join_all(reads).await.into_iter().collect()
        })
    }
}

impl ObjectStorage for RemoteObjects {
    fn describe(&self) -> String {
        self.inner.url.clone()
    }

    fn keeps_conditions(&self) -> bool {
        self.inner.keeps_conditions
    }

    fn put(&self, name: &ObjectName, bytes: Bytes, mode: PutMode) -> Result<()> {
        let (service, path) = (Arc::clone(&self.inner.service), self.path(name));
        let mode = match mode {
            PutMode::Replace => object_store::PutMode::Overwrite,
            PutMode::IfAbsent => object_store::PutMode::Create,
        };
        self.wait("put", &self.object(name), async move {
            service.put_opts(&path, bytes.into(), PutOptions::from(mode)).await.map(|_| ())
        })
    }

    fn writer(&self, name: &ObjectName) -> Result<Box<dyn ObjectWriter>> {
        Ok(Box::new(RemoteWriter {
            objects: self.clone(),
            name: name.clone(),
            buffer: BytesMut::new(),
            upload: None,
            length: 0,
            has_failed: false,
        }))
    }

    fn get(&self, name: &ObjectName) -> Result<Bytes> {
        let (service, path) = (Arc::clone(&self.inner.service), self.path(name));
        self.wait("get", &self.object(name), async move { service.get(&path).await?.bytes().await })
    }

    fn open(&self, name: &ObjectName) -> Result<Arc<dyn ObjectReader>> {
        Ok(Arc::new(RemoteReader { objects: self.clone(), name: name.clone() }))
    }

    fn size(&self, name: &ObjectName) -> Result<u64> {
        let (service, path) = (Arc::clone(&self.inner.service), self.path(name));
        self.wait("look", &self.object(name), async move { Ok(service.head(&path).await?.size) })
    }

    fn sign(&self, permit: Permit, names: &[ObjectName], lifetime: Duration) -> Result<Vec<SignedUrl>> {
        let Some(signer) = self.inner.signer.clone() else {
            let detail = "names cannot be signed here: there is no key, or the service takes no signed names";
            return Err(Error::new(ErrorKind::Unsupported, "sign", self.describe(), detail));
        };
        let method = match permit {
            Permit::Read => Method::GET,
            Permit::Write => Method::PUT,
        };
        let paths: Vec<_> = names.iter().map(|name| self.path(name)).collect();
        let signed =
            self.wait("sign", &self.inner.url, async move { signer.signed_urls(method, &paths, lifetime).await })?;
        Ok(signed.into_iter().map(|url| SignedUrl::new(url.into())).collect())
    }

    fn delete(&self, name: &ObjectName) -> Result<()> {
        let (service, path) = (Arc::clone(&self.inner.service), self.path(name));
        let deleted = self.wait("delete", &self.object(name), async move { service.delete(&path).await });
        match deleted {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            deleted => deleted,
        }
    }

    fn list(&self, prefix: Option<&ObjectName>) -> Result<Vec<ObjectInfo>> {
        let found = self.entries(prefix)?;
        let mut objects: Vec<ObjectInfo> = found
            .into_iter()
            .filter_map(|(path, size_bytes)| {
                let name = ObjectName::new(path.strip_prefix(&self.inner.prefix)?).ok()?;
                Some(ObjectInfo { name, size_bytes })
            })
            .collect();
        objects.sort();
        Ok(objects)
    }
}

impl RemoteObjects {
    /// Paths below `prefix`, and sizes.
    fn entries(&self, prefix: Option<&ObjectName>) -> Result<Vec<(String, u64)>> {
        let service = Arc::clone(&self.inner.service);
        let folder = prefix.map_or_else(|| Path::from(self.inner.prefix.as_str()), |prefix| self.path(prefix));
        self.wait("list", &self.inner.url, async move {
            let mut found = Vec::new();
            let mut listed = service.list(Some(&folder));
            while let Some(object) = listed.next().await {
                let object = object?;
                found.push((object.location.to_string(), object.size));
            }
            Ok(found)
        })
    }
}

#[derive(Debug)]
struct RemoteReader {
    objects: RemoteObjects,
    name: ObjectName,
}

impl ObjectReader for RemoteReader {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.read_many(&mut [ReadRequest { offset, out }])
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        // A range of no bytes cannot be asked for.
        let wanted: Vec<_> = requests.iter_mut().filter(|request| !request.out.is_empty()).collect();
        let end = |request: &ReadRequest<'_>| request.offset.saturating_add(request.out.len() as u64);
        let ranges = wanted.iter().map(|request| (request.offset, end(request))).collect();
        let read = match self.objects.read(&self.name, ranges) {
            // Services refuse a range that begins after the end in ways of their own.
            Err(error) => return Err(self.explained(error, wanted.iter().map(|request| end(request)).max())),
            Ok(read) => read,
        };
        for (request, bytes) in wanted.into_iter().zip(read) {
            if bytes.len() != request.out.len() {
                return Err(too_short(self.name.as_str(), request.offset, request.out.len()));
            }
            request.out.copy_from_slice(&bytes);
        }
        Ok(())
    }
}

impl RemoteReader {
    /// `error`, unless it comes from an object that ends before `end`.
    fn explained(&self, error: Error, end: Option<u64>) -> Error {
        let is_answer = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::AccessDenied | ErrorKind::TimedOut);
        if is_answer {
            return error;
        }
        match (self.objects.size(&self.name), end) {
            (Ok(size), Some(end)) if size < end => Error::corrupt(
                self.objects.object(&self.name),
                format!("the object has {size} bytes, and {end} were needed"),
            ),
            _ => error,
        }
    }
}

/// A streamed object: parts of [`PART_BYTES`], or one put when it is shorter.
#[derive(Debug)]
struct RemoteWriter {
    objects: RemoteObjects,
    name: ObjectName,
    buffer: BytesMut,
    upload: Option<Box<dyn MultipartUpload>>,
    /// Bytes so far.
    length: u64,
    has_failed: bool,
}

impl RemoteWriter {
    fn refuse_failed(&self) -> Result<()> {
        if self.has_failed { Err(has_failed(self.name.as_str())) } else { Ok(()) }
    }

    /// Sends a part, after those before it. Begins the upload with the first.
    fn put_part(&mut self, part: Bytes) -> Result<()> {
        // A part that fails leaves the upload here, to be removed with the parts that were sent.
        self.has_failed = true;
        let object = self.objects.object(&self.name);
        if self.upload.is_none() {
            let (service, path) = (Arc::clone(&self.objects.inner.service), self.objects.path(&self.name));
            let begun = self.objects.wait("put", &object, async move {
                service.put_multipart_opts(&path, PutMultipartOptions::default()).await
            })?;
            self.upload = Some(begun);
        }
        if let Some(upload) = &mut self.upload {
            let sent = upload.put_part(part.into());
            self.objects.wait("put", &object, sent)?;
        }
        self.has_failed = false;
        Ok(())
    }

    /// Interprets a missing upload when it should be completed. If the object exists as it was written, it was completed
    /// before, and the reply was lost.
    fn completed_before(&self, not_found: Error) -> Result<()> {
        match self.objects.size(&self.name) {
            Ok(size) if size == self.length => Ok(()),
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Err(not_found.meaning(ErrorKind::Unavailable, "the upload is gone: begin the object again")),
        }
    }
}

impl ObjectWriter for RemoteWriter {
    fn write(&mut self, bytes: Bytes) -> Result<()> {
        self.refuse_failed()?;
        self.buffer.extend_from_slice(&bytes);
        self.length += bytes.len() as u64;
        while self.buffer.len() >= PART_BYTES {
            let part = self.buffer.split_to(PART_BYTES).freeze();
            self.put_part(part)?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.refuse_failed()?;
        let rest = std::mem::take(&mut self.buffer).freeze();
        if self.upload.is_none() {
            return self.objects.put(&self.name, rest, PutMode::Replace);
        }
        if !rest.is_empty() {
            self.put_part(rest)?;
        }
        let Some(mut upload) = self.upload.take() else { return Err(has_failed(self.name.as_str())) };
        let object = self.objects.object(&self.name);
        // From here on the upload may be completed at any time: it is not removed any more.
        let completed = self.objects.wait("put", &object, async move { upload.complete().await.map(drop) });
        match completed {
            Err(error) if error.kind() == ErrorKind::NotFound => self.completed_before(error),
            completed => completed,
        }
    }
}

impl Drop for RemoteWriter {
    fn drop(&mut self) {
        if let Some(mut upload) = self.upload.take() {
            // What cannot be removed now is left to the service's rules.
            let _ = self.objects.wait("abort", self.objects.inner.url.as_str(), async move { upload.abort().await });
        }
    }
}

/// What the caller must do about an error of the library.
fn converted(operation: &'static str, object: &str, cause: &object_store::Error) -> Error {
    use object_store::Error as Cause;
    let text = chain(cause);
    let kind = match cause {
        Cause::NotFound { .. } => ErrorKind::NotFound,
        Cause::AlreadyExists { .. } | Cause::Precondition { .. } if is_conflict(&text) => ErrorKind::Busy,
        Cause::AlreadyExists { .. } | Cause::Precondition { .. } => ErrorKind::AlreadyExists,
        Cause::PermissionDenied { .. } | Cause::Unauthenticated { .. } => ErrorKind::AccessDenied,
        Cause::InvalidPath { .. } | Cause::UnknownConfigurationKey { .. } => ErrorKind::Invalid,
        Cause::NotSupported { .. } | Cause::NotImplemented { .. } => ErrorKind::Unsupported,
        _ => kind_of_text(&text),
    };
    Error::new(kind, operation, object, text)
}

/// Whether a service refused a request because another one for the same name is under way. S3 says so by status 409, which
/// the library takes for an existing object.
fn is_conflict(text: &str) -> bool {
    ["ConditionalRequestConflict", "OperationAborted"].iter().any(|code| text.contains(code))
}

/// The library returns the service's answer only as text.
fn kind_of_text(text: &str) -> ErrorKind {
    const KINDS: [(&[&str], ErrorKind); 6] = [
        // HDFS: quotas, and no DataNode with room.
        (&["QuotaExceeded", "could only be written to 0 of", "InsufficientStorage", "507 "], ErrorKind::Full),
        (&["AccessControlException", "AccessDenied", "SASL error", "GSSAPI error"], ErrorKind::AccessDenied),
        // S3: credentials for a time, by status 400.
        (&["ExpiredToken", "InvalidToken", "TokenRefreshRequired"], ErrorKind::AccessDenied),
        (&["SafeModeException", "SlowDown", "503 "], ErrorKind::Busy),
        (&["checksums didn't match"], ErrorKind::Corrupt),
        (&["timed out", "operation timed out"], ErrorKind::TimedOut),
    ];
    let found = KINDS.iter().find(|(marks, _)| marks.iter().any(|mark| text.contains(mark)));
    found.map_or(ErrorKind::Unavailable, |(_, kind)| *kind)
}

/// An error with its causes, each once.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_that_have_ended_are_refused_access() {
        for (code, kind) in [
            ("ExpiredToken", ErrorKind::AccessDenied),
            ("TokenRefreshRequired", ErrorKind::AccessDenied),
            ("RequestTimeout", ErrorKind::Unavailable),
        ] {
            let said = format!("Server returned non-2xx status code: 400 Bad Request: <Code>{code}</Code>");
            let cause = object_store::Error::Generic { store: "S3", source: said.into() };
            assert_eq!(converted("put", "object", &cause).kind(), kind, "{code}");
        }
    }
}
