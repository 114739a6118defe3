//! Libraries of functions, as the store keeps them.
//!
//! Described in `docs/formats/redis-keys.md`. The record `function/` with the library's name, in the area of the server's own
//! records:
//!
//! ```text
//!   offset  size
//!   0       1     version (1)
//!   1       …     the library's text
//! ```

use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::layout::{Range, server_record};
use crate::keyspace::writes::{Direction, Writes};
use bytes::Bytes;

const VERSION: u8 = 1;
const PREFIX: &str = "function/";
/// A name after all names of libraries' records.
const END: &str = "function0";

fn place(name: &str) -> Bytes {
    server_record(&format!("{PREFIX}{name}"))
}

/// Keeps a library.
pub fn keep(writes: &mut Writes<'_>, name: &str, text: &[u8]) {
    writes.put(place(name), [&[VERSION], text].concat());
}

/// Removes a library.
pub fn remove(writes: &mut Writes<'_>, name: &str) {
    writes.delete(place(name));
}

/// The texts of all libraries, in the order of their names.
///
/// # Errors
/// Those of the database; when one is damaged.
pub fn read(writes: &Writes<'_>) -> Outcome<Vec<Bytes>> {
    let range: Range = (server_record(PREFIX), server_record(END));
    let mut texts = Vec::new();
    writes.scan(&range, Direction::Forward, |_, value| {
        let text = value.strip_prefix(&[VERSION]);
        let text = text.ok_or(Failure::damaged("a library of functions is damaged, or a newer build wrote it"))?;
        texts.push(Bytes::copy_from_slice(text));
        Ok(true)
    })?;
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::testing::on_lsm;

    #[test]
    fn golden_bytes_of_a_library() {
        let store = on_lsm(64 << 20);
        let mut writes = Writes::new(&store, 7);
        keep(&mut writes, "b", b"second");
        keep(&mut writes, "a", b"first");
        keep(&mut writes, "c", b"third");
        writes.commit().unwrap();
        assert_eq!(store.get(b"\x01function/a").unwrap().unwrap(), b"\x01first");
        remove(&mut writes, "c");
        assert_eq!(read(&writes).unwrap(), ["first", "second"]);
        store.put(b"\x01function/d", b"\x02").unwrap();
        assert!(read(&writes).is_err());
    }
}
