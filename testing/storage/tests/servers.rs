//! The suite on back ends that need a server, which the tests start and end.

use forebay_base::ErrorKind;
use forebay_storage::{ObjectName, PutMode, Storage, StorageOptions};
use forebay_storage_conformance::{Place, cases};
use std::time::Duration;

fn object() -> ObjectName {
    ObjectName::new("object").unwrap()
}

/// Runs the suite under a prefix, and under none.
fn run_everywhere(place: &Place) {
    cases::run(&place.open("some/prefix"));
    cases::run(&place.open(""));
}

/// The error of a put where the bucket does not exist.
fn error_without_a_bucket(url: &str, place: &Place) -> String {
    let missing = Storage::open(url, place.options()).unwrap();
    let error = missing.objects().put(&object(), b"x"[..].into(), PutMode::Replace).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    error.to_string()
}

/// A client with another value for this setting may not read.
fn expect_refusal(place: &Place, setting: &str, wrong: &str) {
    let mut options = place.options();
    options.settings.push((setting.to_owned(), wrong.to_owned()));
    let refused = Storage::open(&place.url(""), options).unwrap();
    let error = refused.objects().get(&object()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AccessDenied, "{error}");
}

#[test]
fn moto() {
    let place = Place::moto();
    run_everywhere(&place);
    assert!(error_without_a_bucket("s3://no-such-bucket", &place).contains("NoSuchBucket"));
    let hurried = StorageOptions { operation_timeout: Duration::from_secs(5), retries: 1, ..place.options() };
    let gone = Storage::open(&place.url(""), hurried).unwrap();
    drop(place);
    // The server is gone.
    let error = gone.objects().get(&object()).unwrap_err();
    assert!(error.is_transient(), "{error}");
}

#[test]
fn seaweedfs() {
    cases::run(&Place::seaweedfs().open("some/prefix"));
}

#[test]
fn google() {
    let place = Place::google();
    run_everywhere(&place);
    assert!(error_without_a_bucket("gs://no-such-bucket", &place).contains("NoSuchBucket"));
    expect_refusal(&place, "google_bearer_token", "another");
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
    let error = storage.objects().get(&object()).unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("127.0.0.1:1/"), "{error}");
    let unknown = StorageOptions { settings: vec![setting("google_colour", "red")], ..StorageOptions::default() };
    let error = Storage::open("gs://bucket", unknown).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[test]
#[ignore = "needs Azurite: cargo xtask storage-azure"]
fn azure() {
    let place = Place::azure();
    run_everywhere(&place);
    error_without_a_bucket("az://no-such-container", &place);
    expect_refusal(&place, "azure_storage_account_key", "d3Jvbmc=");
}

#[test]
fn hdfs() {
    cases::run(&Place::hdfs().open("some/prefix"));
}
