//! The suite on back ends that need a server, which the tests start and end.

use forebay_base::ErrorKind;
use forebay_storage::{ObjectName, PutMode, Storage, StorageOptions};
use forebay_storage_conformance::{cases, servers};
use std::time::Duration;

fn open(url: &str, settings: &[(&str, &str)]) -> Storage {
    let settings = settings.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    Storage::open(url, StorageOptions { settings, ..Default::default() }).unwrap()
}

fn s3_settings(endpoint: &str) -> [(&str, &str); 5] {
    [
        ("aws_endpoint", endpoint),
        ("aws_allow_http", "true"),
        ("aws_region", "us-east-1"),
        ("aws_access_key_id", "test"),
        ("aws_secret_access_key", "test"),
    ]
}

#[test]
fn s3() {
    let server = servers::s3();
    let endpoint = format!("http://127.0.0.1:{}", server.port);
    cases::run(&open("s3://forebay/some/prefix", &s3_settings(&endpoint)));
    cases::run(&open("s3://forebay", &s3_settings(&endpoint)));
    // A bucket that is not there fails a put.
    let missing = open("s3://no-such-bucket", &s3_settings(&endpoint));
    let name = ObjectName::new("object").unwrap();
    let error = missing.objects().put(&name, b"x"[..].into(), PutMode::Replace).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(error.to_string().contains("NoSuchBucket"), "{error}");
    drop(server);
    // Nobody is there any more.
    let mut options = StorageOptions { operation_timeout: Duration::from_secs(5), retries: 1, ..Default::default() };
    options.settings = s3_settings(&endpoint).map(|(name, value)| (name.into(), value.into())).to_vec();
    let gone = Storage::open("s3://forebay", options).unwrap();
    let error = gone.objects().get(&name).unwrap_err();
    assert!(error.is_transient(), "{error}");
}

#[test]
fn hdfs() {
    let server = servers::hdfs();
    cases::run(&open(&format!("hdfs://127.0.0.1:{}/some/prefix", server.port), &[]));
}
