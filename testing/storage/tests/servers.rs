//! The suite on back ends that need a server, which the tests start and end.

use forebay_base::ErrorKind;
use forebay_storage::{ObjectName, PutMode, Storage, StorageOptions};
use forebay_storage_conformance::{Place, cases};
use std::time::Duration;

#[test]
fn moto() {
    let place = Place::moto();
    cases::run(&place.open("some/prefix"));
    cases::run(&place.open(""));
    // A bucket that is not there fails a put.
    let missing = Storage::open("s3://no-such-bucket", place.options()).unwrap();
    let name = ObjectName::new("object").unwrap();
    let error = missing.objects().put(&name, b"x"[..].into(), PutMode::Replace).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(error.to_string().contains("NoSuchBucket"), "{error}");
    let hurried = StorageOptions { operation_timeout: Duration::from_secs(5), retries: 1, ..place.options() };
    let gone = Storage::open(&place.url(""), hurried).unwrap();
    drop(place);
    // Nobody is there any more.
    let error = gone.objects().get(&name).unwrap_err();
    assert!(error.is_transient(), "{error}");
}

#[test]
fn seaweedfs() {
    cases::run(&Place::seaweedfs().open("some/prefix"));
}

#[test]
fn hdfs() {
    cases::run(&Place::hdfs().open("some/prefix"));
}
