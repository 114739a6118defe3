//! Several threads, endpoints and links at once.

use crate::{Connection, Fixture, case_list};
use forebay_env::Random;
use forebay_fabric::{AccessKey, Outcome, Region, Rights};

case_list![
    sums_of_fetch_and_add_are_exact,
    a_spin_lock_of_compare_and_swap_excludes,
    links_have_their_own_grants,
    endpoints_of_a_link_do_not_disturb_each_other,
    links_open_from_many_threads,
];

const THREADS: usize = 4;

/// Two links to one region; threads use them alternately.
fn two_links(fixture: &Fixture, length: usize) -> ([(Connection, AccessKey); 2], Region) {
    let (first, region, key) = fixture.granted(length, Rights::ALL);
    let second = fixture.connect();
    let other_key = second.peer.grant(&region, 0, length as u64, Rights::ALL).unwrap();
    ([(first, key), (second, other_key)], region)
}

fn sums_of_fetch_and_add_are_exact(fixture: &Fixture) {
    const ADDS: u64 = 2000;
    let (links, region) = two_links(fixture, 4096);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (connection, key) = &links[thread % 2];
            scope.spawn(move || {
                let mut endpoint = connection.endpoint();
                let mut before = 0;
                for i in 0..ADDS {
                    if i % 4 != 0 {
                        // In flight with others, unseen.
                        endpoint.post_fetch_add(key.at(64), 1).unwrap();
                        continue;
                    }
                    let word = endpoint.fetch_add(key.at(64), 1).unwrap();
                    assert!(word >= before, "{word} after {before}");
                    before = word;
                }
                while endpoint.outstanding() > 0 {
                    assert!(matches!(endpoint.wait().unwrap().result, Ok(Outcome::Word(_))));
                }
            });
        }
    });
    assert_eq!(region.load(64), Ok(THREADS as u64 * ADDS));
}

fn a_spin_lock_of_compare_and_swap_excludes(fixture: &Fixture) {
    const ROUNDS: u64 = 150;
    let (links, region) = two_links(fixture, 4096);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (connection, key) = &links[thread % 2];
            scope.spawn(move || {
                let mut endpoint = connection.endpoint();
                let me = thread as u64 + 1;
                for _ in 0..ROUNDS {
                    while endpoint.compare_swap(key.at(0), 0, me).unwrap() != 0 {
                        std::thread::yield_now();
                    }
                    let mut word = [0; 8];
                    endpoint.read(key.at(64), &mut word).unwrap();
                    let next = u64::from_le_bytes(word) + 1;
                    endpoint.write(key.at(64), &next.to_le_bytes()).unwrap();
                    assert_eq!(endpoint.compare_swap(key.at(0), me, 0), Ok(me), "somebody else has the lock");
                }
            });
        }
    });
    assert_eq!(region.load(64), Ok(THREADS as u64 * ROUNDS));
}

fn links_have_their_own_grants(fixture: &Fixture) {
    let region = fixture.allocate(8 * 4096);
    let connections: Vec<Connection> = (0..8).map(|_| fixture.connect()).collect();
    let keys: Vec<AccessKey> = (0..)
        .zip(&connections)
        .map(|(i, connection)| connection.peer.grant(&region, 4096 * i, 4096, Rights::ALL).unwrap())
        .collect();
    std::thread::scope(|scope| {
        for (i, (connection, key)) in connections.iter().zip(&keys).enumerate() {
            scope.spawn(move || connection.endpoint().write(key.at(0), &[i as u8 + 1; 4096]).unwrap());
        }
    });
    for (i, (connection, key)) in connections.iter().zip(&keys).enumerate() {
        let mut bytes = [0; 4096];
        connection.endpoint().read(key.at(0), &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == i as u8 + 1), "link {i}");
        assert!(connection.endpoint().read(key.at(1), &mut bytes).is_err(), "link {i} reads its neighbour's range");
    }
    let ids: std::collections::BTreeSet<_> = connections.iter().map(|connection| connection.peer.id()).collect();
    assert_eq!(ids.len(), 8, "links share numbers");
}

fn endpoints_of_a_link_do_not_disturb_each_other(fixture: &Fixture) {
    const ROUNDS: u64 = 60;
    let (connection, _region, key) = fixture.granted(1 << 20, Rights::ALL);
    std::thread::scope(|scope| {
        for thread in 0..THREADS as u64 {
            let connection = &connection;
            scope.spawn(move || {
                let mut random = Random::seeded(thread);
                let mut endpoint = connection.endpoint();
                for _ in 0..ROUNDS {
                    let value = random.word();
                    let mine = |i: u64| key.at((THREADS as u64 * i + thread) * 64);
                    for i in 0..32 {
                        let mut slot = endpoint.slot(64).unwrap();
                        slot.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&(value + i).to_le_bytes()));
                        endpoint.post_write(mine(i), slot).unwrap();
                    }
                    while endpoint.outstanding() > 0 {
                        endpoint.wait().unwrap().result.unwrap();
                    }
                    for i in 0..32 {
                        let mut bytes = [0; 64];
                        endpoint.read(mine(i), &mut bytes).unwrap();
                        assert!(bytes.chunks_exact(8).all(|word| word == (value + i).to_le_bytes()));
                    }
                }
            });
        }
    });
}

fn links_open_from_many_threads(fixture: &Fixture) {
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..10 {
                    let link = fixture.try_connect().unwrap();
                    assert_eq!(link.node(), fixture.identity());
                    let endpoints: Vec<_> = (0..3).map(|_| link.endpoint(Default::default()).unwrap()).collect();
                    drop(link);
                    drop(endpoints);
                }
            });
        }
    });
    let (connection, _region, key) = fixture.granted(4096, Rights::ALL);
    connection.endpoint().write(key.at(0), &[1]).unwrap();
}
