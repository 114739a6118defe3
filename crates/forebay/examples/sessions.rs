//! Sessions that expire by themselves, a counter that is changed without being read first, and a change that fails if
//! another client was faster. The database is in memory alone.
//!
//! `cargo run --package forebay --example sessions`

use forebay::{ErrorKind, Options, Store, WriteBatch};
use std::error::Error;

const HOUR_MS: u64 = 3_600_000;

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options { merge_operator: Some("counter".to_owned()), ..Options::default() };
    let store = Store::embedded(64 << 20, options)?;

    // The session expires in an hour, without a call.
    store.put_expiring(b"session/7", b"ada", store.time_ms() + HOUR_MS)?;
    // This session had expired before it was written.
    store.put_expiring(b"session/8", b"grace", store.time_ms() - HOUR_MS)?;
    assert_eq!(store.get(b"session/7")?.as_deref(), Some(&b"ada"[..]));
    assert_eq!(store.get(b"session/8")?, None);

    for _ in 0..3 {
        store.merge(b"visits", &1_i64.to_le_bytes())?;
    }
    let visits = store.get(b"visits")?.ok_or("nobody counted")?;
    println!("{} visits", i64::from_le_bytes(visits.as_slice().try_into()?));

    // Two clients read the same session, and both want to change it.
    let read = store.get_entry(b"session/7")?.ok_or("the session is over")?;
    let change = |to: &[u8]| {
        let mut batch = WriteBatch::new();
        batch.require_stamp(b"session/7", read.stamp).put(b"session/7", to);
        store.write(&batch)
    };
    change(b"ada, signed in")?;
    let late = change(b"ada, signed out").err().ok_or("both changed it")?;
    assert_eq!(late.kind(), ErrorKind::Conflict);
    println!("the second one has to read again: {late}");
    Ok(())
}

#[test]
fn it_runs() {
    main().unwrap();
}
