//! Objects: bytes under a name, written once as a whole and read by ranges.
//!
//! What every back end keeps, and the conformance suite (`testing/storage`) checks:
//!
//! - An object exists as a whole or not at all, at every moment and after every failure.
//! - When [`ObjectStorage::put`] or [`ObjectWriter::finish`] has returned, the object survives what the back end survives (a
//!   power failure for a directory; what the service promises for the others).
//! - Of several puts of an object with [`PutMode::IfAbsent`], at most one ever succeeds while nobody deletes it. This is the
//!   only compare-and-swap that all back ends keep, and all that [`crate::CommitRegister`] and [`crate::Log`] need. A
//!   service may accept the condition and ignore it. So a process that begins to write tests the service
//!   ([`ObjectStorage::check_conditions`]), unless the kind of back end leaves no doubt
//!   ([`ObjectStorage::keeps_conditions`]).
//! - A name that is reported as taken survives. So does a listed name, if it existed before the list began.
//! - A read or a list sees every write that returned before it began.
//! - Only reads say `NotFound`. Where a write or a list fails because a bucket or a folder does not exist,
//!   [`crate::Storage`] makes that `Unavailable`.
//! - A read that does not find an object may be wrong once: a service may answer so by mistake, or for a moment. So
//!   [`crate::Storage`] asks a second time. Where such an answer would lose data, a second source confirms it: a list, or an
//!   object that exists only if this one does.
//! - A write whose error is undecided ([`crate::Error::is_undecided`]) has happened, or has not, or happens later.

mod directory;
mod layered;
#[cfg(feature = "remote")]
pub(crate) mod remote;
#[cfg(feature = "remote")]
mod runtime;
#[cfg(feature = "remote")]
mod services;
mod signed;
#[cfg(feature = "http")]
mod signed_http;
mod signed_name;
mod sim;

pub use directory::DirectoryObjects;
pub(crate) use layered::LayeredObjects;
pub use signed::{Follow, SignedAccess};
pub use signed_name::{Permit, SignedUrl};
pub use sim::{MemoryObjects, ObjectFault};

use crate::error::{Error, Result};
use crate::name::ObjectName;
use bytes::Bytes;
use forebay_base::ErrorKind;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Whether a put may replace an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutMode {
    /// An object of the same name is replaced.
    Replace,
    /// An object of the same name makes the put fail with `AlreadyExists`.
    IfAbsent,
}

/// An object in a list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectInfo {
    /// Its name.
    pub name: ObjectName,
    /// Its size in bytes.
    pub size_bytes: u64,
}

/// A range of an object to be read into a buffer, which is filled as a whole.
#[derive(Debug)]
pub struct ReadRequest<'a> {
    /// Where the range begins, in bytes.
    pub offset: u64,
    /// Where its bytes go.
    pub out: &'a mut [u8],
}

/// A store of objects. Calls block; any number of threads may call at once.
pub trait ObjectStorage: Send + Sync + fmt::Debug {
    /// Its name in errors and logs: a URL without secrets.
    fn describe(&self) -> String;

    /// Writes an object.
    ///
    /// # Errors
    /// `AlreadyExists` where the mode says so; `Full`, `AccessDenied`, `Busy`, `Unavailable`, `TimedOut`, `Io`.
    fn put(&self, name: &ObjectName, bytes: Bytes, mode: PutMode) -> Result<()>;

    /// Writes an object. An existing object with the same bytes is fine: a reply may have been lost.
    ///
    /// # Errors
    /// `AlreadyExists` when there is another one; `Unavailable` when the name was reported as taken but no object has it:
    /// another put of it may be under way; those of [`ObjectStorage::put`].
    fn put_once(&self, name: &ObjectName, bytes: Bytes) -> Result<()> {
        match self.put(name, bytes.clone(), PutMode::IfAbsent) {
            Err(taken) if taken.kind() == ErrorKind::AlreadyExists => match self.get(name) {
                Ok(found) if found == bytes => Ok(()),
                Err(error) if error.kind() == ErrorKind::NotFound => Err(taken_by_nothing(taken)),
                found => found.and(Err(taken)),
            },
            put => put,
        }
    }

    /// Whether the kind of back end guarantees that [`PutMode::IfAbsent`] is kept, like a link of a directory or a rename of
    /// HDFS. A service over HTTP may ignore a header that it does not know.
    fn keeps_conditions(&self) -> bool;

    /// Makes sure that [`PutMode::IfAbsent`] is kept, by one more such put of what was just put. Makes no request where the
    /// kind of back end guarantees it.
    ///
    /// # Errors
    /// `Unsupported` when the name was not taken: the condition was ignored, or somebody has deleted the object meanwhile, which
    /// only the caller can tell. Those of [`ObjectStorage::put`].
    fn check_conditions(&self, name: &ObjectName, bytes: Bytes) -> Result<()> {
        if self.keeps_conditions() {
            return Ok(());
        }
        match self.put(name, bytes, PutMode::IfAbsent) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
            Ok(()) => {
                let detail = "this service ignores the condition of a put (If-None-Match): a database there would lose \
                              acknowledged writes. Use a version of it or another service that heeds it, HDFS, or a directory";
                Err(Error::new(ErrorKind::Unsupported, "use", self.describe(), detail))
            }
        }
    }

    /// Begins an object whose bytes come one after the other; an object of the same name will be replaced. The object exists
    /// once [`ObjectWriter::finish`] has returned.
    ///
    /// # Errors
    /// As for [`ObjectStorage::put`].
    fn writer(&self, name: &ObjectName) -> Result<Box<dyn ObjectWriter>>;

    /// Reads an object as a whole.
    ///
    /// # Errors
    /// `NotFound`, `AccessDenied`, `Busy`, `Unavailable`, `TimedOut`, `Io`.
    fn get(&self, name: &ObjectName) -> Result<Bytes>;

    /// Opens an object for reads by ranges. A missing object is reported here, or by the first read.
    ///
    /// # Errors
    /// As for [`ObjectStorage::get`].
    fn open(&self, name: &ObjectName) -> Result<Arc<dyn ObjectReader>>;

    /// Bytes of an object.
    ///
    /// # Errors
    /// As for [`ObjectStorage::get`].
    fn size(&self, name: &ObjectName) -> Result<u64>;

    /// Deletes an object; a missing one is fine. The object may come back after a power failure, until a list of its folder
    /// has not shown it.
    ///
    /// # Errors
    /// `AccessDenied`, `Busy`, `Unavailable`, `TimedOut`, `Io`.
    fn delete(&self, name: &ObjectName) -> Result<()>;

    /// The objects whose names begin with `prefix/`, or all of them, by name.
    ///
    /// # Errors
    /// `AccessDenied`, `Busy`, `Unavailable`, `TimedOut`, `Io`.
    fn list(&self, prefix: Option<&ObjectName>) -> Result<Vec<ObjectInfo>>;

    /// Signs names, so that the holder of the URLs may do to these objects what `permit` says, for `lifetime`, and needs no
    /// rights of its own ([`SignedAccess`]). Returns one URL for each name, in the same order.
    ///
    /// # Errors
    /// `Unsupported` where names cannot be signed: in a directory, on HDFS, without a key. Those of the holder of the key.
    fn sign(&self, permit: Permit, names: &[ObjectName], lifetime: Duration) -> Result<Vec<SignedUrl>> {
        let _ = (permit, names, lifetime);
        Err(Error::new(ErrorKind::Unsupported, "sign", self.describe(), "names cannot be signed here"))
    }

    /// Says that nobody will read an object soon, so memory need not hold it.
    fn let_cool(&self, name: &ObjectName) {
        let _ = name;
    }

    /// What incomplete writes left behind, where it can be distinguished from what somebody is writing. Services do not show
    /// it; a rule of the bucket removes it. On HDFS it stays: files beside the object, whose names begin with a dot.
    ///
    /// # Errors
    /// As for [`ObjectStorage::list`].
    fn unfinished(&self) -> Result<Vec<Unfinished>> {
        Ok(Vec::new())
    }

    /// Removes what [`ObjectStorage::unfinished`] finds, and returns how many. Writes that are under way in any process
    /// continue.
    ///
    /// # Errors
    /// As for [`ObjectStorage::delete`].
    fn sweep(&self) -> Result<u64> {
        Ok(0)
    }
}

/// What is left of an incomplete write. No object's name leads to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfinished {
    /// Its path.
    pub path: String,
    /// Bytes of it.
    pub bytes: u64,
}

/// An object that is being written.
pub trait ObjectWriter: Send + fmt::Debug {
    /// Adds bytes.
    ///
    /// # Errors
    /// As for [`ObjectStorage::put`]: then there will be no object, and later calls fail with `Closed`.
    fn write(&mut self, bytes: Bytes) -> Result<()>;

    /// Makes the object from what was written. Without this call there is no object.
    ///
    /// # Errors
    /// As for [`ObjectStorage::put`].
    fn finish(self: Box<Self>) -> Result<()>;
}

/// An object that is being read; any number of threads may read at once.
pub trait ObjectReader: Send + Sync + fmt::Debug {
    /// Fills `out` with bytes from `offset`.
    ///
    /// # Errors
    /// `Corrupt` when the object ends before: readers know sizes. `NotFound`, and others as for [`ObjectStorage::get`].
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()>;

    /// Reads several ranges, at the same time where that helps.
    ///
    /// # Errors
    /// As for [`ObjectReader::read_at`]; some ranges may have been read.
    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        requests.iter_mut().try_for_each(|request| self.read_at(request.offset, request.out))
    }
}

/// The error for using a writer after one of its calls failed: bytes would be missing.
pub(crate) fn has_failed(name: &str) -> Error {
    let detail = "an earlier part of this object could not be written: begin it again";
    Error::new(ErrorKind::Closed, "put", name, detail)
}

/// The error for an object that ends before what is read of it.
pub(crate) fn too_short(name: &str, offset: u64, wanted: usize) -> Error {
    Error::corrupt(
        name,
        format!("the object ends before the {wanted} bytes from {offset}: it was cut off, or is another one"),
    )
}

/// The error of a put that found its name taken although no object has the name.
pub(crate) fn taken_by_nothing(taken: Error) -> Error {
    taken.meaning(ErrorKind::Unavailable, "the name was taken, and now nothing has it: a put may be under way")
}

/// The error for an object that a list shows but two reads do not find.
pub(crate) fn listed_and_not_found(name: &ObjectName) -> Error {
    let detail = "a list shows it, and a read says that it is not there: the storage contradicts itself. Try again later, and if that \
                  goes on, ask whoever runs the storage for the object";
    Error::new(ErrorKind::Unavailable, "get", name.as_str(), detail)
}

/// Converts an error of an operation other than a read: what is missing is not the object.
pub(crate) fn no_place(error: Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound => error.meaning(
            ErrorKind::Unavailable,
            "the bucket, container or folder may be missing: look whether it is there",
        ),
        _ => error,
    }
}

pub(crate) fn not_found(operation: &'static str, name: &ObjectName) -> Error {
    Error::new(ErrorKind::NotFound, operation, name.as_str(), "there is no such object")
}
