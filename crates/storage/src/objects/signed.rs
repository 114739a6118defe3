//! Objects that another party allows this process to read or write, by signed names: URLs that are valid for one method on
//! one object until a stated time. Their holder needs no rights of its own.
//!
//! The signer is a back end ([`ObjectStorage::sign`]): S3, Google's and Azure's stores can sign. This module is the other
//! side, an [`ObjectStorage`] that knows only these names.
//!
//! - A URL is a secret. No error, log or debug output shows one: [`SignedUrl`].
//! - An object is put with one request once it is complete, because its length must be known. Its bytes are held until then.
//! - A list, a deletion and a condition have no signed names: they are refused as `Unsupported`.

use super::signed_name::{Permit, Requests, SignedUrl};
use super::{ObjectInfo, ObjectReader, ObjectStorage, ObjectWriter, PutMode, ReadRequest, has_failed, too_short};
use crate::error::{Error, Result};
use crate::name::ObjectName;
use crate::options::StorageOptions;
use crate::store::Storage;
use bytes::{Bytes, BytesMut};
use forebay_base::ErrorKind;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Longest object that is put by a signed name, in bytes: what S3 takes with one request.
const MAX_PUT_BYTES: usize = 5 << 30;

/// Which signed names may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Follow {
    /// Those with `https`. A name with `http` shows its signature to the network, and may lead to a service that answers
    /// anybody nearby.
    #[default]
    Https,
    /// Also those with `http`.
    Http,
}

impl Follow {
    fn allows(self, url: &str) -> bool {
        let begins = |scheme: &str| url.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
        begins("https://") || self == Self::Http && begins("http://")
    }
}

/// Signed names by what they are called.
type Names = BTreeMap<ObjectName, SignedUrl>;

/// The client for signed names, for any number of jobs at once.
#[derive(Debug, Clone)]
pub struct SignedAccess {
    requests: Arc<dyn Requests>,
    follow: Follow,
    options: StorageOptions,
}

impl SignedAccess {
    /// Prepares to use signed names. Of the options, only the times and the number of retries count.
    ///
    /// # Errors
    /// `Unsupported` for a build without the features `s3`, `gs` and `az`; when the system starts no thread.
    pub fn open(follow: Follow, options: StorageOptions) -> Result<Self> {
        #[cfg(feature = "http")]
        return Ok(Self { requests: Arc::new(super::signed_http::HttpRequests::new(&options)?), follow, options });
        #[cfg(not(feature = "http"))]
        {
            let _ = (follow, options);
            Err(Error::not_built("signed names", "s3"))
        }
    }

    /// Storage that has only these objects.
    ///
    /// # Errors
    /// `Unsupported` for a URL that may not be used.
    pub fn storage(
        &self,
        reads: impl IntoIterator<Item = (ObjectName, SignedUrl)>,
        writes: impl IntoIterator<Item = (ObjectName, SignedUrl)>,
    ) -> Result<Storage> {
        let (reads, writes): (Names, Names) = (reads.into_iter().collect(), writes.into_iter().collect());
        for (name, url) in reads.iter().chain(&writes) {
            if !self.follow.allows(url.secret()) {
                let detail = "its signed name does not begin with https://, and others are not followed here";
                return Err(Error::new(ErrorKind::Unsupported, "follow", name.as_str(), detail));
            }
        }
        let objects =
            SignedObjects { requests: Arc::clone(&self.requests), reads: reads.into(), writes: writes.into() };
        Ok(Storage::of_objects(Arc::new(objects), self.options.clone()))
    }
}

/// See the module.
#[derive(Debug, Clone)]
struct SignedObjects {
    requests: Arc<dyn Requests>,
    reads: Arc<Names>,
    writes: Arc<Names>,
}

impl SignedObjects {
    fn url(&self, permit: Permit, name: &ObjectName) -> Result<&SignedUrl> {
        let (names, operation, what) = match permit {
            Permit::Read => (&self.reads, "read", "whoever owns the job has not allowed this object to be read"),
            Permit::Write => (&self.writes, "put", "whoever owns the job has not allowed this object to be written"),
        };
        names.get(name).ok_or_else(|| Error::new(ErrorKind::AccessDenied, operation, name.as_str(), what))
    }

    fn put_whole(&self, name: &ObjectName, bytes: Bytes) -> Result<()> {
        self.requests.put(name.as_str(), self.url(Permit::Write, name)?, bytes)
    }
}

fn unsupported<T>(operation: &'static str, object: &str) -> Result<T> {
    Err(Error::new(ErrorKind::Unsupported, operation, object, "no signed name allows that"))
}

impl ObjectStorage for SignedObjects {
    fn describe(&self) -> String {
        "signed names".to_owned()
    }

    fn keeps_conditions(&self) -> bool {
        false
    }

    fn put(&self, name: &ObjectName, bytes: Bytes, mode: PutMode) -> Result<()> {
        match mode {
            PutMode::Replace => self.put_whole(name, bytes),
            PutMode::IfAbsent => unsupported("put if absent", name.as_str()),
        }
    }

    fn writer(&self, name: &ObjectName) -> Result<Box<dyn ObjectWriter>> {
        self.url(Permit::Write, name)?;
        let (objects, name) = (self.clone(), name.clone());
        Ok(Box::new(SignedWriter { objects, name, bytes: BytesMut::new(), has_failed: false }))
    }

    fn get(&self, name: &ObjectName) -> Result<Bytes> {
        let size = usize::try_from(self.size(name)?).ok().filter(|&size| size <= MAX_PUT_BYTES);
        let too_long = || Error::corrupt(name.as_str(), "the service says that it is longer than an object can be");
        let mut bytes = vec![0; size.ok_or_else(too_long)?];
        self.open(name)?.read_at(0, &mut bytes)?;
        Ok(bytes.into())
    }

    fn open(&self, name: &ObjectName) -> Result<Arc<dyn ObjectReader>> {
        let url = self.url(Permit::Read, name)?.clone();
        Ok(Arc::new(SignedReader { requests: Arc::clone(&self.requests), name: name.clone(), url }))
    }

    fn size(&self, name: &ObjectName) -> Result<u64> {
        self.requests.size(name.as_str(), self.url(Permit::Read, name)?)
    }

    fn delete(&self, name: &ObjectName) -> Result<()> {
        unsupported("delete", name.as_str())
    }

    fn list(&self, _: Option<&ObjectName>) -> Result<Vec<ObjectInfo>> {
        unsupported("list", "signed names")
    }
}

#[derive(Debug)]
struct SignedReader {
    requests: Arc<dyn Requests>,
    name: ObjectName,
    url: SignedUrl,
}

impl ObjectReader for SignedReader {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.read_many(&mut [ReadRequest { offset, out }])
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        // A range of no bytes cannot be asked for.
        let wanted: Vec<_> = requests.iter_mut().filter(|request| !request.out.is_empty()).collect();
        let range =
            |request: &&mut ReadRequest<'_>| request.offset..request.offset.saturating_add(request.out.len() as u64);
        let ranges = wanted.iter().map(range).collect();
        for (request, bytes) in wanted.into_iter().zip(self.requests.read(self.name.as_str(), &self.url, ranges)?) {
            if bytes.len() != request.out.len() {
                return Err(too_short(self.name.as_str(), request.offset, request.out.len()));
            }
            request.out.copy_from_slice(&bytes);
        }
        Ok(())
    }
}

#[derive(Debug)]
struct SignedWriter {
    objects: SignedObjects,
    name: ObjectName,
    bytes: BytesMut,
    has_failed: bool,
}

impl ObjectWriter for SignedWriter {
    fn write(&mut self, bytes: Bytes) -> Result<()> {
        if self.has_failed {
            return Err(has_failed(self.name.as_str()));
        }
        if bytes.len() > MAX_PUT_BYTES.saturating_sub(self.bytes.len()) {
            self.has_failed = true;
            let detail = format!("a signed name takes {MAX_PUT_BYTES} bytes at most: use smaller tables");
            return Err(Error::new(ErrorKind::Unsupported, "put", self.name.as_str(), detail));
        }
        self.bytes.extend_from_slice(&bytes);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        if self.has_failed {
            return Err(has_failed(self.name.as_str()));
        }
        self.objects.put_whole(&self.name, self.bytes.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::MemoryObjects;
    use std::ops::Range;

    /// Requests that end in memory: a URL's last part is the object's name.
    #[derive(Debug)]
    struct ToMemory(MemoryObjects);

    impl ToMemory {
        fn name(url: &SignedUrl) -> ObjectName {
            ObjectName::new(url.secret().rsplit('/').next().unwrap_or_default()).unwrap()
        }
    }

    impl Requests for ToMemory {
        fn read(&self, _: &str, url: &SignedUrl, ranges: Vec<Range<u64>>) -> Result<Vec<Bytes>> {
            let bytes = self.0.get(&Self::name(url))?;
            let part = |range: Range<u64>| {
                let end = range.end.min(bytes.len() as u64) as usize;
                bytes.slice((range.start as usize).min(end)..end)
            };
            Ok(ranges.into_iter().map(part).collect())
        }

        fn size(&self, _: &str, url: &SignedUrl) -> Result<u64> {
            self.0.size(&Self::name(url))
        }

        fn put(&self, _: &str, url: &SignedUrl, bytes: Bytes) -> Result<()> {
            self.0.put(&Self::name(url), bytes, PutMode::Replace)
        }
    }

    fn access(follow: Follow) -> (MemoryObjects, SignedAccess) {
        let memory = MemoryObjects::new();
        let requests = Arc::new(ToMemory(memory.clone()));
        (memory, SignedAccess { requests, follow, options: StorageOptions::default() })
    }

    fn name(text: &str) -> ObjectName {
        ObjectName::new(text).unwrap()
    }

    fn signed(names: &[&str]) -> Vec<(ObjectName, SignedUrl)> {
        let sign = |text: &&str| (name(text), SignedUrl::new(format!("https://secret/{text}")));
        names.iter().map(sign).collect()
    }

    #[test]
    fn only_what_was_signed_is_allowed() {
        let (memory, access) = access(Follow::Https);
        for text in ["read", "other"] {
            memory.put(&name(text), Bytes::from_static(b"0123456789"), PutMode::Replace).unwrap();
        }
        let storage = access.storage(signed(&["read"]), signed(&["written"])).unwrap();
        let objects = storage.objects();
        let mut out = [0; 3];
        objects.open(&name("read")).unwrap().read_at(4, &mut out).unwrap();
        assert_eq!((&out, objects.size(&name("read")).unwrap()), (b"456", 10));
        assert_eq!(objects.get(&name("read")).unwrap(), b"0123456789"[..]);
        let error = objects.open(&name("read")).unwrap().read_at(8, &mut out).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        let mut writer = objects.writer(&name("written")).unwrap();
        writer.write(Bytes::from_static(b"one")).unwrap();
        writer.write(Bytes::from_static(b"two")).unwrap();
        writer.finish().unwrap();
        assert_eq!(memory.get(&name("written")).unwrap(), b"onetwo"[..]);
        // Another object, and another thing to do.
        let kinds = [
            objects.open(&name("other")).map(drop).unwrap_err(),
            objects.size(&name("written")).map(drop).unwrap_err(),
            objects.writer(&name("read")).map(drop).unwrap_err(),
            objects.put(&name("other"), Bytes::new(), PutMode::Replace).unwrap_err(),
            objects.put(&name("written"), Bytes::new(), PutMode::IfAbsent).unwrap_err(),
            objects.delete(&name("read")).unwrap_err(),
            objects.list(None).map(drop).unwrap_err(),
        ]
        .map(|error| error.kind());
        let (denied, unsupported) = (ErrorKind::AccessDenied, ErrorKind::Unsupported);
        assert_eq!(kinds, [denied, denied, denied, denied, unsupported, unsupported, unsupported]);
        let shown = format!("{storage:?} {:?} {access:?}", signed(&["read"]));
        assert!(!shown.contains("secret"), "{shown}");
    }

    #[test]
    fn names_in_the_clear_are_followed_where_that_is_allowed() {
        let urls = ["https://host/a", "HTTPS://host/a", "http://host/a", "file:///a", "httpsa", ""];
        let followed = |follow| {
            let (_, access) = access(follow);
            urls.map(|url| {
                let names = [(name("a"), SignedUrl::new(url.to_owned()))];
                let kind = |kind: ErrorKind| assert_eq!(kind, ErrorKind::Unsupported);
                access.storage(names.clone(), []).map_err(|error| kind(error.kind())).is_ok()
                    && access.storage([], names).is_ok()
            })
        };
        assert_eq!(followed(Follow::Https), [true, true, false, false, false, false]);
        assert_eq!(followed(Follow::Http), [true, true, true, false, false, false]);
    }
}
