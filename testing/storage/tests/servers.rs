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
fn google_is_asked_where_the_settings_say() {
    let setting = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let settings = vec![
        setting("google_base_url", "http://127.0.0.1:1"),
        setting("google_allow_http", "true"),
        setting("google_bearer_token", "a token"),
    ];
    let options = StorageOptions { settings, operation_timeout: Duration::from_secs(5), ..StorageOptions::default() };
    let storage = Storage::open("gs://bucket/prefix", options).unwrap();
    let error = storage.objects().get(&ObjectName::new("object").unwrap()).unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("127.0.0.1:1/"), "{error}");
    let unknown = StorageOptions { settings: vec![setting("google_colour", "red")], ..StorageOptions::default() };
    let error = Storage::open("gs://bucket", unknown).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[test]
#[ignore = "needs Azurite: cargo xtask storage-azure"]
fn azure() {
    let place = Place::azure();
    cases::run(&place.open("some/prefix"));
    cases::run(&place.open(""));
    let missing = Storage::open("az://no-such-container", place.options()).unwrap();
    let name = ObjectName::new("object").unwrap();
    let error = missing.objects().put(&name, b"x"[..].into(), PutMode::Replace).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    let wrong = vec![("azure_storage_account_key".to_owned(), "d3Jvbmc=".to_owned())];
    let settings = place.options().settings.into_iter().chain(wrong).collect();
    let refused = Storage::open(&place.url(""), StorageOptions { settings, ..StorageOptions::default() }).unwrap();
    let error = refused.objects().get(&name).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AccessDenied, "{error}");
}

#[test]
fn hdfs() {
    cases::run(&Place::hdfs().open("some/prefix"));
}
