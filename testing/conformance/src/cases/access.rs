//! What a grant allows, and that nothing else is possible.

use crate::fixture::eventually;
use crate::{Connection, Fixture, case_list};
use forebay_base::ErrorKind;
use forebay_env::{Clock, SystemClock};
use forebay_fabric::{AccessKey, Endpoint, Error, RemoteAddress, RevocationMode, Rights};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

case_list![
    nothing_outside_the_granted_range,
    misaligned_atomics_are_refused_at_the_post,
    forged_keys_are_denied,
    keys_of_other_links_are_denied,
    rights_are_kept_apart,
    a_revoked_key_is_denied,
    revoking_stops_operations_in_flight,
    a_write_is_confirmed_until_its_key_is_being_revoked,
    what_is_written_at_once_is_confirmed,
    hundreds_of_grants,
    grants_that_cannot_be,
];

const PAGE: u64 = 4096;

/// An operation of each kind on `length` bytes; atomics only where they fit.
fn try_all(connection: &Connection, at: RemoteAddress, length: usize) -> Vec<(&'static str, Result<(), Error>)> {
    type Attempt<'a> = (&'static str, Box<dyn FnMut(&mut Endpoint) -> Result<(), Error> + 'a>);
    let mut attempts: Vec<Attempt<'_>> = vec![
        ("read", Box::new(|endpoint| endpoint.read(at, &mut vec![0; length]))),
        ("write", Box::new(|endpoint| endpoint.write(at, &vec![0xee; length]))),
    ];
    if length == 8 && at.offset.is_multiple_of(8) {
        attempts.push(("fetch-and-add", Box::new(|endpoint| endpoint.fetch_add(at, 1).map(drop))));
        attempts.push(("compare-and-swap", Box::new(|endpoint| endpoint.compare_swap(at, 0, 1).map(drop))));
    }
    // A failure breaks its endpoint: each has its own.
    attempts.iter_mut().map(|(what, attempt)| (*what, attempt(&mut connection.endpoint()))).collect()
}

fn assert_denied(connection: &Connection, key: AccessKey, whose: &str) {
    for (what, result) in try_all(connection, key.at(0), 8) {
        assert_eq!(result, Err(Error::AccessDenied), "{what} with {whose} key");
    }
}

fn nothing_outside_the_granted_range(fixture: &Fixture) {
    let connection = fixture.connect();
    let region = fixture.allocate(4 * PAGE as usize);
    let key = connection.peer.grant(&region, PAGE, 2 * PAGE, Rights::ALL).unwrap();
    let end = 2 * PAGE;
    let outside = [
        (end, 8),
        (end, 1),
        (end - 7, 8),
        (end - 8, 9),
        (end + PAGE, 8),
        (0, end as usize + 1),
        (1, end as usize),
        (u64::MAX, 8),
        (u64::MAX - 7, 8),
        (u64::MAX - 6, 7),
        (u64::MAX - PAGE + 1, 8),
        (1 << 63, 8),
        (u64::from(u32::MAX) + 1, 8),
    ];
    for (offset, length) in outside {
        for (what, result) in try_all(&connection, key.at(offset), length) {
            let error = result.expect_err("an operation outside the grant");
            let found = matches!(error, Error::OutOfBounds { .. });
            assert!(found && error.kind() == ErrorKind::Invalid, "{what} of {length} at {offset}: {error}");
        }
    }
    let mut bytes = vec![0; 4 * PAGE as usize];
    region.read(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0), "a refused operation changed memory");
    for (offset, length) in [(0, end as usize), (end - 1, 1), (end - 8, 8), (end, 0)] {
        connection.endpoint().write(key.at(offset), &vec![0; length]).expect("within the grant");
    }
}

fn misaligned_atomics_are_refused_at_the_post(fixture: &Fixture) {
    let (connection, region, key) = fixture.granted(PAGE as usize, Rights::ALL);
    let mut endpoint = connection.endpoint();
    for offset in [1, 2, 4, 7, 12, PAGE - 4, u64::MAX] {
        let expected = Err(Error::Misaligned { offset });
        assert_eq!(endpoint.fetch_add(key.at(offset), 1), expected);
        assert_eq!(endpoint.compare_swap(key.at(offset), 0, 1), expected);
    }
    assert_eq!(endpoint.fetch_add(key.at(0), 1), Ok(0), "a refused post breaks nothing");
    assert_eq!(region.load(0), Ok(1));
}

fn forged_keys_are_denied(fixture: &Fixture) {
    let (connection, region, key) = fixture.granted(PAGE as usize, Rights::ALL);
    for bit in [0, 1, 63, 64, 127] {
        assert_denied(&connection, AccessKey::new(key.index, key.secret() ^ 1 << bit), "a forged");
    }
    for index in [key.index + 1, key.index ^ 1 << 31, u32::MAX, 1 << 16] {
        assert_denied(&connection, AccessKey::new(index, key.secret()), "a misplaced");
    }
    assert_denied(&connection, AccessKey::new(key.index, 0), "a zero");
    // A grant of the client to the node is not a grant of the node to the client.
    let own = connection.link.allocate(PAGE as usize).unwrap();
    let reverse = connection.link.grant(&own, 0, PAGE, Rights::ALL).unwrap();
    assert_denied(&connection, reverse, "its own");
    assert_eq!(region.load(0), Ok(0));
    assert_eq!(own.load(0), Ok(0));
}

fn keys_of_other_links_are_denied(fixture: &Fixture) {
    let (first, region, first_key) = fixture.granted(PAGE as usize, Rights::ALL);
    let second = fixture.connect();
    assert_denied(&second, first_key, "another link's");
    let second_key = second.peer.grant(&region, 0, PAGE, Rights::ALL).unwrap();
    assert_denied(&second, first_key, "another link's");
    assert_denied(&first, second_key, "another link's");
    assert_eq!(region.load(0), Ok(0));
    assert!(first.peer.revoke(second_key).is_err(), "a link revoked another's grant");
    second.endpoint().write(second_key.at(0), &[1]).unwrap();
}

fn rights_are_kept_apart(fixture: &Fixture) {
    let connection = fixture.connect();
    let region = fixture.allocate(PAGE as usize);
    let needs = [
        ("read", Rights::READ),
        ("write", Rights::WRITE),
        ("fetch-and-add", Rights::ATOMIC),
        ("compare-and-swap", Rights::ATOMIC),
    ];
    for bits in 1..=Rights::ALL.bits() {
        let rights = Rights::from_bits(bits).unwrap();
        let key = connection.peer.grant(&region, 0, PAGE, rights).unwrap();
        for ((what, result), (name, need)) in try_all(&connection, key.at(8), 8).into_iter().zip(needs) {
            assert_eq!(what, name);
            let expected = if rights.contain(need) { Ok(()) } else { Err(Error::AccessDenied) };
            assert_eq!(result, expected, "{what} with rights {bits:03b}");
        }
        connection.peer.revoke(key).unwrap();
    }
}

fn a_revoked_key_is_denied(fixture: &Fixture) {
    let (connection, region, mut key) = fixture.granted(PAGE as usize, Rights::ALL);
    let kept = connection.peer.grant(&region, 0, PAGE, Rights::ALL).unwrap();
    let mut endpoint = connection.endpoint();
    for round in 0..50u64 {
        endpoint.write(key.at(0), &round.to_le_bytes()).unwrap();
        let revocation = connection.peer.revoke(key).unwrap();
        eventually("a revocation", || revocation.is_complete());
        assert_eq!(connection.peer.revoke(key).err(), Some(Error::AccessDenied), "a key revoked twice");
        assert_denied(&connection, key, "a revoked");
        let again = connection.peer.grant(&region, 0, PAGE, Rights::ALL).unwrap();
        assert_denied(&connection, key, "a revoked");
        assert!(again != key);
        key = again;
        assert_eq!(region.load(0), Ok(round));
    }
    endpoint.write(kept.at(0), &[1]).expect("another grant of the same memory");
}

/// Where a write may complete after the node has begun to revoke its key, `confirm` detects it.
fn a_write_is_confirmed_until_its_key_is_being_revoked(fixture: &Fixture) {
    let (connection, region, key) = fixture.granted(4096, Rights::ALL);
    let other = connection.peer.grant(&region, 0, 4096, Rights::ALL).unwrap();
    let mut endpoint = connection.endpoint();
    for key in [key, other] {
        endpoint.write(key.at(0), &[1]).unwrap();
        endpoint.confirm(&key).unwrap();
    }
    let revocation = connection.peer.revoke(key).unwrap();
    if fixture.capabilities().revocation == RevocationMode::Cooperative {
        assert_eq!(endpoint.confirm(&key), Err(Error::AccessDenied));
    } else {
        assert!(revocation.is_complete());
    }
    endpoint.confirm(&other).unwrap();
    assert!(endpoint.failure().is_none(), "a question breaks nothing");
}

/// With a key that is refused, or that the node has begun to revoke, a write at once never counts as done, and it breaks the
/// endpoint.
fn what_is_written_at_once_is_confirmed(fixture: &Fixture) {
    let (connection, region, key) = fixture.granted(4096, Rights::ALL);
    let read_only = connection.peer.grant(&region, 0, 4096, Rights::READ).unwrap();
    let other = connection.peer.grant(&region, 0, 4096, Rights::ALL).unwrap();
    let block = connection.link.allocate(4096).unwrap();
    let write = |endpoint: &mut Endpoint, key: AccessKey| endpoint.write_at_once(key.at(0), &block, 0, 64, None);
    let mut endpoint = connection.endpoint();
    if write(&mut endpoint, key) == Ok(false) {
        // Posted writes are confirmed afterwards: see above.
        return;
    }
    let _revocation = connection.peer.revoke(key).unwrap();
    assert_eq!(write(&mut endpoint, key), Err(Error::AccessDenied));
    assert!(matches!(write(&mut endpoint, other), Err(Error::Broken(_))));
    for refused in [key, read_only, AccessKey::new(other.index, other.secret() ^ 1), AccessKey::new(77, 1)] {
        assert_eq!(write(&mut connection.endpoint(), refused), Err(Error::AccessDenied));
    }
    assert_eq!(write(&mut connection.endpoint(), other), Ok(true));
}

/// Threads write under a key until it is revoked: after the revocation nothing lands any more.
fn revoking_stops_operations_in_flight(fixture: &Fixture) {
    let connection = fixture.connect();
    let region = fixture.allocate(16 * PAGE as usize);
    for round in 0..5u8 {
        let key = connection.peer.grant(&region, 0, 16 * PAGE, Rights::ALL).unwrap();
        let written = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let (connection, written) = (&connection, &written);
                scope.spawn(move || {
                    let mut endpoint = connection.endpoint();
                    let failure = loop {
                        for i in 0..8 {
                            let mut slot = endpoint.slot(1000).unwrap();
                            slot.fill(0x10 + round);
                            if endpoint.post_write(key.at((thread * 8 + i) * 1000), slot).is_err() {
                                break;
                            }
                        }
                        match endpoint.wait().unwrap().result {
                            Ok(_) => written.fetch_add(1, Ordering::Relaxed),
                            Err(cause) => break cause,
                        };
                    };
                    // The others are flushed, perhaps before.
                    let mut failures = vec![failure];
                    while endpoint.outstanding() > 0 {
                        failures.extend(endpoint.wait().unwrap().result.err());
                    }
                    assert!(failures.contains(&Error::AccessDenied), "{failures:?}");
                });
            }
            eventually("some writes", || written.load(Ordering::Relaxed) > 100);
            let revocation = connection.peer.revoke(key).unwrap();
            eventually("the revocation", || revocation.is_complete());
            region.zero(0, region.length()).unwrap();
            SystemClock::new().sleep(Duration::from_millis(20));
            let mut bytes = vec![1; region.length() as usize];
            region.read(0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| *byte == 0), "a write landed after its key was revoked");
        });
    }
}

fn hundreds_of_grants(fixture: &Fixture) {
    const COUNT: u64 = 400;
    let connection = fixture.connect();
    let region = fixture.allocate((COUNT * PAGE) as usize);
    let grant = |i: u64| connection.peer.grant(&region, i * PAGE, PAGE, Rights::ALL).unwrap();
    let mut keys: Vec<AccessKey> = (0..COUNT).map(grant).collect();
    let mut endpoint = connection.endpoint();
    let mut check = |keys: &[AccessKey], value: u64| {
        for (i, key) in (0u64..).zip(keys) {
            endpoint.write(key.at(8), &(value + i).to_le_bytes()).unwrap();
        }
        for i in 0..COUNT {
            assert_eq!(region.load(i * PAGE + 8), Ok(value + i));
        }
    };
    check(&keys, 1000);
    let mut revoked = Vec::new();
    for i in (0..COUNT as usize).step_by(3) {
        let revocation = connection.peer.revoke(keys[i]).unwrap();
        eventually("a revocation", || revocation.is_complete());
        revoked.push(keys[i]);
    }
    for i in (0..COUNT as usize).step_by(3) {
        keys[i] = grant(i as u64);
    }
    check(&keys, 2000);
    assert!(keys.iter().all(|key| u64::from(key.index) < COUNT), "slots of revoked grants are not used again");
    for key in revoked.into_iter().step_by(16) {
        assert_denied(&connection, key, "a revoked");
    }
}

fn grants_that_cannot_be(fixture: &Fixture) {
    let (connection, region, _key) = fixture.granted(2 * PAGE as usize, Rights::ALL);
    let own = connection.link.allocate(2 * PAGE as usize).unwrap();
    let bad = [(0, 3 * PAGE), (2 * PAGE, PAGE), (PAGE, u64::MAX - PAGE + 1), (u64::MAX, 8), (4, PAGE), (0, 12), (0, 0)];
    for (offset, length) in bad {
        for result in [
            connection.peer.grant(&region, offset, length, Rights::ALL),
            connection.link.grant(&own, offset, length, Rights::ALL),
        ] {
            let error = result.expect_err("an impossible grant");
            assert_eq!(error.kind(), ErrorKind::Invalid, "{length} bytes at {offset}: {error}");
        }
    }
}
