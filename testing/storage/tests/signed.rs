//! Signed names: their holder may do without a key what their owner allows, and nothing else.

use bytes::Bytes;
use forebay_base::ErrorKind;
use forebay_env::{Clock, SystemClock};
use forebay_storage::{
    Error, Follow, ObjectName, Permit, PutMode, ReadRequest, SignedAccess, SignedUrl, Storage, StorageOptions,
};
use forebay_storage_conformance::Place;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
/// Longer than a part of a streamed object.
const LONG_BYTES: usize = (9 << 20) + 7;

fn name(text: &str) -> ObjectName {
    ObjectName::new(text).unwrap()
}

/// What `permit` allows to do with the object, as its owner signs it.
fn sign(owner: &Storage, permit: Permit, object: &str, lifetime: Duration) -> SignedUrl {
    owner.objects().sign(permit, &[name(object)], lifetime).unwrap().remove(0)
}

/// A client without a key.
fn stranger() -> SignedAccess {
    SignedAccess::open(Follow::Http, StorageOptions { retries: 2, ..StorageOptions::default() }).unwrap()
}

fn read(access: &SignedAccess, object: &str, url: SignedUrl) -> Result<Bytes, Error> {
    access.storage([(name(object), url)], [])?.objects().get(&name(object))
}

fn write(access: &SignedAccess, object: &str, url: SignedUrl, bytes: &[u8]) -> Result<(), Error> {
    let mut writer = access.storage([], [(name(object), url)])?.objects().writer(&name(object))?;
    for part in bytes.chunks(1 << 20) {
        writer.write(Bytes::copy_from_slice(part))?;
    }
    writer.finish()
}

/// Reads and writes as the owner allows.
fn expect_allowed(owner: &Storage) {
    let access = stranger();
    for (object, length) in [("db/segment/short", 10), ("db/segment/a=b_c.d-e", LONG_BYTES)] {
        let bytes: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
        write(&access, object, sign(owner, Permit::Write, object, HOUR), &bytes).unwrap();
        assert!(owner.objects().get(&name(object)).unwrap() == bytes, "{object}");
        assert!(read(&access, object, sign(owner, Permit::Read, object, HOUR)).unwrap() == bytes, "{object}");
        let storage = access.storage([(name(object), sign(owner, Permit::Read, object, HOUR))], []).unwrap();
        assert_eq!(storage.objects().size(&name(object)).unwrap(), length as u64);
        let reader = storage.objects().open(&name(object)).unwrap();
        let (mut first, mut last, mut none) = ([0; 3], [0; 4], []);
        let offset = length as u64 - 4;
        reader
            .read_many(&mut [
                ReadRequest { offset, out: &mut last },
                ReadRequest { offset: 5, out: &mut none },
                ReadRequest { offset: 1, out: &mut first },
            ])
            .unwrap();
        assert_eq!((&first[..], &last[..]), (&bytes[1..4], &bytes[length - 4..]));
        for offset in [length as u64 - 2, length as u64 + 5] {
            let error = reader.read_at(offset, &mut first).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        }
    }
    let missing = read(&access, "db/missing", sign(owner, Permit::Read, "db/missing", HOUR)).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound, "{missing}");
}

/// Expects a refusal that does not repeat what was signed.
fn expect_refused<T>(done: Result<T, Error>, url: &SignedUrl, what: &str) {
    let Err(error) = done else { panic!("{what} was allowed") };
    assert_eq!(error.kind(), ErrorKind::AccessDenied, "{what}: {error}");
    let signature = url.secret().rsplit_once("Signature=").unwrap().1;
    let shown = format!("{error} {error:?}");
    assert!(signature.len() >= 64 && !shown.contains(signature), "{what}: {shown}");
}

#[test]
fn moto_follows_signed_names() {
    expect_allowed(&Place::moto().open("some/prefix"));
}

#[test]
fn a_signature_is_good_for_one_method_on_one_object_for_a_while() {
    let place = Place::seaweedfs_with_a_key();
    let owner = place.open("some/prefix");
    expect_allowed(&owner);
    let put = |object: &str| owner.objects().put(&name(object), Bytes::from_static(b"mine"), PutMode::Replace).unwrap();
    ["one", "two"].iter().for_each(|object| put(object));
    let access = stranger();
    let (reads, writes) = (sign(&owner, Permit::Read, "one", HOUR), sign(&owner, Permit::Write, "one", HOUR));
    // Nothing signed, another object, another method.
    let bare = |url: &SignedUrl| SignedUrl::new(url.secret().split_once('?').unwrap().0.to_owned());
    expect_refused(read(&access, "one", bare(&reads)), &reads, "a read without a signature");
    let moved = |url: &SignedUrl| SignedUrl::new(url.secret().replace("/one?", "/two?"));
    expect_refused(read(&access, "two", moved(&reads)), &reads, "a read of another object");
    expect_refused(write(&access, "two", moved(&writes), b"theirs"), &writes, "a put of another object");
    expect_refused(write(&access, "one", reads.clone(), b"theirs"), &reads, "a put by what is signed to be read");
    expect_refused(read(&access, "one", writes.clone()), &writes, "a read by what is signed to be put");
    // Signed by another key.
    let mut options = place.options();
    options.settings.push(("aws_secret_access_key".to_owned(), "another".to_owned()));
    let other = Storage::open(&place.url("some/prefix"), options).unwrap();
    let forged = sign(&other, Permit::Read, "one", HOUR);
    expect_refused(read(&access, "one", forged.clone()), &forged, "a read by another key");
    // Too late.
    let short = sign(&owner, Permit::Read, "one", Duration::from_secs(1));
    let longer = SignedUrl::new(short.secret().replace("X-Amz-Expires=1&", "X-Amz-Expires=3600&"));
    expect_refused(read(&access, "one", longer.clone()), &longer, "a read that gives itself more time");
    let clock = SystemClock::new();
    let late = loop {
        match read(&access, "one", short.clone()) {
            Ok(_) if clock.now() < 60_000_000_000 => clock.sleep(Duration::from_millis(100)),
            done => break done,
        }
    };
    expect_refused(late, &short, "a read after its time");
    for object in ["one", "two"] {
        assert_eq!(owner.objects().get(&name(object)).unwrap(), b"mine"[..], "{object}");
    }
}

#[test]
#[ignore = "needs Azurite: cargo xtask storage-azure"]
fn azure_follows_signed_names() {
    let place = Place::azure();
    let owner = place.open("some/prefix");
    expect_allowed(&owner);
    let read_only = sign(&owner, Permit::Read, "one", HOUR);
    let error = write(&stranger(), "one", read_only, b"theirs").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AccessDenied, "{error}");
}

#[test]
fn whoever_has_no_key_signs_nothing() {
    for place in [Place::folder(), Place::google()] {
        let owner = place.open("some/prefix");
        for permit in [Permit::Read, Permit::Write] {
            let error = owner.objects().sign(permit, &[name("one")], HOUR).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        }
    }
    // A client asks for encryption by headers, which a name does not carry.
    for (setting, value) in [("aws_skip_signature", "true"), ("aws_server_side_encryption", "aws:kms")] {
        let settings = vec![(setting.to_owned(), value.to_owned())];
        let storage = Storage::open("s3://bucket", StorageOptions { settings, ..StorageOptions::default() }).unwrap();
        let error = storage.objects().sign(Permit::Read, &[name("one")], HOUR).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }
}
