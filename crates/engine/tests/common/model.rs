//! What a database must hold.

use forebay_engine::{Db, DbIterator, Error, WriteBatch};
use forebay_env::Random;
use std::collections::BTreeMap;

pub type Model = BTreeMap<Vec<u8>, Vec<u8>>;

pub fn key(number: u64) -> Vec<u8> {
    format!("{number:05}").into_bytes()
}

pub fn contents(db: &Db) -> Model {
    scanned(db).unwrap()
}

pub fn scanned(db: &Db) -> Result<Model, Error> {
    let mut entries = db.iter()?;
    entries.seek_to_first()?;
    let mut found = Model::new();
    while entries.valid() {
        found.insert(entries.key().to_vec(), entries.value().to_vec());
        entries.next()?;
    }
    Ok(found)
}

/// Everything that an iterator shows, in its order.
pub fn walk(mut iterator: DbIterator) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    iterator.seek_to_first().unwrap();
    while iterator.valid() {
        all.push((iterator.key().to_vec(), iterator.value().to_vec()));
        iterator.next().unwrap();
    }
    all
}

/// Writes of all kinds, in batches and one by one, also to a model.
pub fn write(db: &Db, model: &mut Model, random: &mut Random, writes: u64) {
    for _ in 0..writes {
        let at = random.below(2000);
        match random.below(10) {
            0 => {
                db.delete(&key(at)).unwrap();
                model.remove(&key(at));
            }
            1 => {
                let end = at + random.below(20);
                db.delete_range(&key(at), &key(end)).unwrap();
                model.retain(|found, _| *found < key(at) || *found >= key(end));
            }
            2 => {
                let mut batch = WriteBatch::new();
                for number in at..at + random.below(30) {
                    let value = vec![random.below(256) as u8; random.below(300) as usize];
                    batch.put(&key(number), &value);
                    model.insert(key(number), value);
                }
                db.write(&batch).unwrap();
            }
            _ => {
                let value = vec![random.below(256) as u8; random.below(300) as usize];
                db.put(&key(at), &value).unwrap();
                model.insert(key(at), value);
            }
        }
    }
}
