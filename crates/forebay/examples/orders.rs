//! Orders and an index of them by customer: two keyspaces of a database in a directory, written by one batch.
//!
//! `cargo run --package forebay --example orders`

use forebay::{IterOptions, Keyspaces, Store, WriteBatch};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let store = Store::open(folder.path().join("shop"))?;
    let keyspaces = Keyspaces::open(store.db())?;
    let (orders, by_customer) = (keyspaces.create("orders")?, keyspaces.create("by-customer")?);

    for (number, customer, text) in [(1_u32, "ada", "a compass"), (2, "grace", "a lamp"), (3, "ada", "a rope")] {
        // Both writes take effect, or neither.
        let mut batch = WriteBatch::new();
        batch.within(&orders).put(&number.to_be_bytes(), text.as_bytes());
        batch.within(&by_customer).put(format!("{customer}/{number}").as_bytes(), &number.to_be_bytes());
        store.write(&batch)?;
    }

    // What a snapshot reads stays as it was.
    let before = store.snapshot();
    orders.delete(&1_u32.to_be_bytes())?;
    assert!(orders.get(&1_u32.to_be_bytes())?.is_none());

    let mut texts = Vec::new();
    let options = IterOptions { lower: Some(b"ada/"), upper: Some(b"ada0"), ..IterOptions::default() };
    let mut found = by_customer.iter_with(&options)?;
    found.seek_to_first()?;
    while found.valid() {
        let order = orders.get_at(found.value(), &before)?.ok_or("an index without its order")?;
        texts.push(String::from_utf8(order)?);
        found.next()?;
    }
    println!("Ada ordered {}.", texts.join(" and "));
    assert_eq!(texts, ["a compass", "a rope"]);

    drop(found);
    store.close()?;
    Ok(())
}

#[test]
fn it_runs() {
    main().unwrap();
}
