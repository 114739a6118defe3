//! What a get through the C interface costs compared with one through Rust: `get [KEYS [GETS]]` prints nanoseconds and
//! ratios.
//!
//! `get KEYS GETS WAY` runs one way alone, for a profiler that counts instructions: the difference of two runs with
//! different GETS does not include the cost of opening and filling.

#![allow(clippy::cast_precision_loss, reason = "figures for people")]

use forebay::{Options, Store};
use forebay_capi::{
    forebay_get, leveldb_close, leveldb_free, leveldb_get, leveldb_open, leveldb_options_create,
    leveldb_options_destroy, leveldb_options_set_create_if_missing, leveldb_put, leveldb_t,
};
use forebay_env::SystemClock;
use std::ffi::{c_char, c_void};
use std::hint::black_box;
use std::ptr::null_mut;

const MEMORY_BYTES: u64 = 4 << 30;
const VALUE_BYTES: usize = 400;
const ROUNDS: usize = 9;

/// Reads keys, and returns the bytes found.
type Way<'a> = (&'static str, Box<dyn Fn(&[[u8; 20]]) -> usize + 'a>);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default| arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (count, gets): (usize, usize) = (number(0, 100_000), number(1, 400_000));
    let keys: Vec<[u8; 20]> = (0..count).map(key).collect();
    let asked: Vec<[u8; 20]> = (0..gets).map(|i| key(i.wrapping_mul(0x9e37_79b9) % count)).collect();
    let store = Store::embedded(MEMORY_BYTES, Options::default()).expect("a store opens");
    keys.iter().for_each(|key| store.put(key, &[7; VALUE_BYTES]).expect("a put succeeds"));
    store.compact_range(None, None).expect("it compacts");
    let db = filled(&keys);
    let ways: [Way<'_>; 4] = [
        ("rust get_with", Box::new(|keys| by_rust(&store, keys))),
        ("c forebay_get", Box::new(|keys| by_callback(db, keys))),
        ("rust get", Box::new(|keys| by_copy_in_rust(&store, keys))),
        ("c leveldb_get", Box::new(|keys| by_copy(db, keys))),
    ];
    if let Some(way) = arguments.get(2) {
        let (_, run) = ways.iter().find(|(name, _)| name == way).expect("one of the ways");
        println!("{} bytes", run(&asked));
    } else {
        compare(&ways, &asked);
    }
    // SAFETY: it was opened, and nobody uses it any more.
    unsafe { leveldb_close(db) };
}

/// Runs all ways in turn, and prints each one's best round.
fn compare(ways: &[Way<'_>], asked: &[[u8; 20]]) {
    let clock = SystemClock::shared();
    let mut best = vec![f64::INFINITY; ways.len()];
    for _ in 0..ROUNDS {
        for ((_, run), best) in ways.iter().zip(&mut best) {
            let begun = clock.now();
            let bytes = run(asked);
            let nanos = clock.now().saturating_sub(begun) as f64;
            assert_eq!(bytes, asked.len() * VALUE_BYTES);
            *best = best.min(nanos / asked.len() as f64);
        }
    }
    println!("{:<16} {:>10} {:>14}", "way", "ns a get", "above Rust, ns");
    for (i, ((name, _), nanos)) in ways.iter().zip(&best).enumerate() {
        // Each way through C comes after the same way in Rust.
        let above =
            if i % 2 == 1 { format!("{:.1} ({:.2}x)", nanos - best[i - 1], nanos / best[i - 1]) } else { "-".into() };
        println!("{name:<16} {nanos:>10.1} {above:>14}");
    }
}

fn key(number: usize) -> [u8; 20] {
    let mut key = [b'0'; 20];
    let text = format!("{number:020}");
    key.copy_from_slice(text.as_bytes());
    key
}

/// A database, opened and filled through C.
fn filled(keys: &[[u8; 20]]) -> *mut leveldb_t {
    let mut error: *mut c_char = null_mut();
    // SAFETY: handles are from the functions before, pointers are of living arrays, `error` is null or from the library.
    unsafe {
        let options = leveldb_options_create();
        leveldb_options_set_create_if_missing(options, 1);
        let db = leveldb_open(options, c"benchmark".as_ptr(), &raw mut error);
        leveldb_options_destroy(options);
        for key in keys {
            let value = [7u8; VALUE_BYTES];
            leveldb_put(
                db,
                null_mut(),
                key.as_ptr().cast(),
                key.len(),
                value.as_ptr().cast(),
                value.len(),
                &raw mut error,
            );
        }
        forebay_capi::leveldb_compact_range(db, null_mut(), 0, null_mut(), 0);
        assert!(error.is_null());
        db
    }
}

fn by_rust(store: &Store, keys: &[[u8; 20]]) -> usize {
    let length = |key| store.get_with(key, None, |value| black_box(value).len()).expect("a get succeeds");
    keys.iter().map(|key| length(key).unwrap_or(0)).sum()
}

fn by_copy_in_rust(store: &Store, keys: &[[u8; 20]]) -> usize {
    let value = |key| black_box(store.get(key).expect("a get succeeds"));
    keys.iter().map(|key| value(key).map_or(0, |value| value.len())).sum()
}

/// Adds a value's length to the sum that `state` points to.
///
/// # Safety
/// `state` points to a `usize` that nobody else uses.
unsafe extern "C" fn add(state: *mut c_void, value: *const c_char, length: usize) {
    black_box(value);
    // SAFETY: the caller's duty.
    unsafe { *state.cast::<usize>() += length };
}

fn by_callback(db: *mut leveldb_t, keys: &[[u8; 20]]) -> usize {
    let (mut sum, mut error) = (0usize, null_mut());
    for key in keys {
        let state = (&raw mut sum).cast();
        // SAFETY: the database is open, the key lives, `add` takes a pointer to a sum.
        unsafe { forebay_get(db, null_mut(), key.as_ptr().cast(), key.len(), Some(add), state, &raw mut error) };
    }
    sum
}

fn by_copy(db: *mut leveldb_t, keys: &[[u8; 20]]) -> usize {
    let (mut sum, mut error) = (0, null_mut());
    for key in keys {
        let mut length = 0;
        // SAFETY: the database is open, the key lives; what comes back is freed.
        unsafe {
            let value = leveldb_get(db, null_mut(), key.as_ptr().cast(), key.len(), &raw mut length, &raw mut error);
            leveldb_free(black_box(value).cast());
        }
        sum += length;
    }
    sum
}
