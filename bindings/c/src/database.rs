//! Databases and snapshots.

use crate::batch::leveldb_writebatch_t;
use crate::border::{
    array, array_mut, bytes, bytes_for_caller, end, failing, give, optional_bytes, quiet, shared, string, take,
    text_for_caller,
};
use crate::failure::Failure;
use crate::options::{leveldb_options_t, leveldb_readoptions_t, leveldb_writeoptions_t, or_default};
use crate::process;
use crate::snapshot::leveldb_snapshot_t;
use forebay::process::Owned;
use forebay::{DirectoryOptions, EngineError, ErrorKind, Options, Storage, StorageOptions, Store};
use libc::{c_char, c_int, size_t};
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// An open database.
pub struct leveldb_t {
    store: Owned<Arc<Store>>,
}

impl leveldb_t {
    /// The store, unless this process was forked after it was opened.
    pub(crate) fn store(&self) -> Result<&Store, Failure> {
        Ok(self.shared_store()?)
    }

    /// Returns the same, for objects that keep the store.
    pub(crate) fn shared_store(&self) -> Result<&Arc<Store>, Failure> {
        Ok(self.store.get()?)
    }
}

/// Opens the database of this name: on the memory nodes that the options name, or else in the directory of this path.
/// Only this function decides where a database is.
pub(crate) fn open(options: &leveldb_options_t, name: &CStr) -> Result<Store, Failure> {
    if let Some(failure) = &options.refused {
        return Err(failure.clone());
    }
    let DirectoryOptions { memory_bytes, database } = options.directory.clone();
    let register = register(options, database.create_if_missing)?;
    let database = Options { register, ..database };
    let opened = if options.nodes.is_empty() {
        let path = OsStr::from_bytes(name.to_bytes());
        let directory = DirectoryOptions { memory_bytes, database };
        Store::open_found(path, options.shards, options.copies, directory)
    } else {
        let name = database_name(name)?;
        Store::connect_found(&options.nodes, name, options.shards, options.copies, database)
    };
    opened.map_err(|error| Failure::from(error).of_opening(&name.to_string_lossy(), &options.directory.database))
}

/// Opens what says where the copies in memory are, if the options name it.
fn register(options: &leveldb_options_t, create_directory: bool) -> Result<Option<Storage>, Failure> {
    let open = |url: &CString| -> Result<Storage, Failure> {
        let url =
            url.to_str().map_err(|_| Failure::invalid("the register is no text: name a path or a URL in UTF-8"))?;
        let options = StorageOptions { create_directory, ..StorageOptions::default() };
        Ok(Storage::open(url, options).map_err(EngineError::from)?)
    };
    options.register.as_ref().map(open).transpose()
}

/// Drops the database of this name, from where [`open`] finds it.
fn destroy(options: &leveldb_options_t, name: &CStr) -> Result<(), Failure> {
    let destroyed = if options.nodes.is_empty() {
        Store::destroy_path(OsStr::from_bytes(name.to_bytes()))
    } else {
        let name = database_name(name)?;
        match register(options, false)? {
            Some(register) => Store::destroy_copied(&register, &options.nodes, &name),
            None => Store::destroy(&options.nodes, &name),
        }
    };
    match destroyed.map_err(Failure::from) {
        // As in LevelDB, a missing database counts as destroyed.
        Err(failure) if failure.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn database_name(name: &CStr) -> Result<String, Failure> {
    name.to_str().map(str::to_owned).map_err(|_| Failure::invalid("the name of a database on memory nodes is text"))
}

/// Opens a database. `NULL` on failure.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_open(
    options: *const leveldb_options_t,
    name: *const c_char,
    errptr: *mut *mut c_char,
) -> *mut leveldb_t {
    // SAFETY: the caller's duty.
    unsafe {
        failing(errptr, std::ptr::null_mut(), || {
            let (default, name) = (leveldb_options_t::default(), string(name, "name of the database")?);
            process::watch();
            let store = Arc::new(open(or_default(options, &default), name)?);
            process::remember(&store);
            Ok(give(leveldb_t { store: Owned::new(store) }))
        })
    }
}

/// Closes a database. An error of the last flush is not reported; see [`crate::forebay_close`].
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_close(db: *mut leveldb_t) {
    // SAFETY: the caller's duty.
    unsafe { crate::forebay_close(db, std::ptr::null_mut()) }
}

/// Closes a database. It is closed even if this fails: then the last flush has failed, and what it would have kept is
/// lost. In a process that was forked after the database was opened, this only frees the handle.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_close(db: *mut leveldb_t, errptr: *mut *mut c_char) {
    // SAFETY: the caller's duty.
    unsafe {
        failing(errptr, (), || {
            let store = take(db).map(|db| db.store.into_inner());
            // A database that was opened before a fork is not closed here.
            store.and_then(Result::ok).map_or(Ok(()), |store| Ok(store.close()?))
        });
    }
}

/// Sets a key.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_put(
    db: *mut leveldb_t,
    options: *const leveldb_writeoptions_t,
    key: *const c_char,
    keylen: size_t,
    val: *const c_char,
    vallen: size_t,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the caller's duty.
    unsafe {
        failing(errptr, (), || {
            let (store, default) = (shared(db)?.store()?, leveldb_writeoptions_t::default());
            let options = store.write_options(or_default(options, &default).sync);
            Ok(store.put_with(bytes(key, keylen)?, bytes(val, vallen)?, &options)?)
        });
    }
}

/// Removes a key, which need not exist.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_delete(
    db: *mut leveldb_t,
    options: *const leveldb_writeoptions_t,
    key: *const c_char,
    keylen: size_t,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the caller's duty.
    unsafe {
        failing(errptr, (), || {
            let (store, default) = (shared(db)?.store()?, leveldb_writeoptions_t::default());
            let options = store.write_options(or_default(options, &default).sync);
            Ok(store.delete_with(bytes(key, keylen)?, &options)?)
        });
    }
}

/// Writes a batch, all of which becomes visible at once. An empty batch with sync syncs what was written before.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_write(
    db: *mut leveldb_t,
    options: *const leveldb_writeoptions_t,
    batch: *mut leveldb_writebatch_t,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the caller's duty.
    unsafe {
        failing(errptr, (), || {
            let (store, default) = (shared(db)?.store()?, leveldb_writeoptions_t::default());
            let (sync, writes) = (or_default(options, &default).sync, shared(batch)?.writes()?);
            match sync && writes.is_empty() {
                // Nothing is to be written, but LevelDB syncs all the same.
                true => Ok(store.sync()?),
                false => Ok(store.write_with(writes, &store.write_options(sync))?),
            }
        });
    }
}

/// Returns a copy of the value of a key, and its length. `NULL` when the key has no value, which is no error, or on
/// failure. The caller frees the copy.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_get(
    db: *mut leveldb_t,
    options: *const leveldb_readoptions_t,
    key: *const c_char,
    keylen: size_t,
    vallen: *mut size_t,
    errptr: *mut *mut c_char,
) -> *mut c_char {
    // SAFETY: the caller's duty.
    unsafe {
        let found = failing(errptr, None, || {
            let snapshot = options.as_ref().map_or(Ok(None), leveldb_readoptions_t::snapshot)?;
            let copy = |value: &[u8]| bytes_for_caller(value).map(|copy| (copy, value.len()));
            shared(db)?.store()?.get_with(bytes(key, keylen)?, snapshot, copy)?.transpose()
        });
        let (value, length) = found.unwrap_or((std::ptr::null_mut(), 0));
        if let Some(vallen) = vallen.as_mut() {
            *vallen = length;
        }
        value
    }
}

/// Pins the present moment; `NULL` on failure.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_create_snapshot(db: *mut leveldb_t) -> *const leveldb_snapshot_t {
    // SAFETY: the caller's duty.
    quiet(std::ptr::null(), || unsafe {
        let snapshot = Owned::new(shared(db)?.store()?.snapshot());
        Ok(give(leveldb_snapshot_t(Arc::new(snapshot))).cast_const())
    })
}

/// Releases a snapshot.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_release_snapshot(_db: *mut leveldb_t, snapshot: *const leveldb_snapshot_t) {
    // SAFETY: the caller's duty.
    unsafe { end(snapshot.cast_mut()) }
}

/// Returns a property as text that the caller frees; `NULL` for an unknown name. There are Forebay's properties and
/// LevelDB's.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_property_value(db: *mut leveldb_t, propname: *const c_char) -> *mut c_char {
    quiet(std::ptr::null_mut(), || {
        // SAFETY: the caller's duty.
        let (store, name) = unsafe { (shared(db)?.store()?, string(propname, "name of the property")?) };
        let value = name.to_str().ok().and_then(|name| property(store, name));
        value.map_or(Ok(std::ptr::null_mut()), |value| text_for_caller(&value))
    })
}

/// A property by its name, which may be one of LevelDB's.
fn property(store: &Store, name: &str) -> Option<String> {
    let Some(of_leveldb) = name.strip_prefix("leveldb.") else { return store.property(name) };
    if of_leveldb.starts_with("num-files-at-level") {
        return store.property(&format!("forebay.{of_leveldb}"));
    }
    match of_leveldb {
        "stats" | "sstables" => store.property("forebay.levelstats"),
        "approximate-memory-usage" => {
            let statistics = store.statistics();
            Some(statistics.memtable_bytes.saturating_add(statistics.cached_index_bytes).to_string())
        }
        _ => None,
    }
}

/// Gives the approximate bytes of the records in each of `num_ranges` ranges, without what memtables hold; 0 for a range
/// that ends before it starts. After an error, the others are 0, and [`crate::forebay_error_kind`] tells the kind.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_approximate_sizes(
    db: *mut leveldb_t,
    num_ranges: c_int,
    range_start_key: *const *const c_char,
    range_start_key_len: *const size_t,
    range_limit_key: *const *const c_char,
    range_limit_key_len: *const size_t,
    sizes: *mut u64,
) {
    let count = usize::try_from(num_ranges).unwrap_or(0);
    // SAFETY: the caller's duty.
    quiet((), || unsafe {
        let sizes = array_mut(sizes, count)?;
        sizes.fill(0);
        let store = shared(db)?.store()?;
        let starts = array(range_start_key, count)?.iter().zip(array(range_start_key_len, count)?);
        let limits = array(range_limit_key, count)?.iter().zip(array(range_limit_key_len, count)?);
        for ((start, limit), size) in starts.zip(limits).zip(sizes) {
            let range = (bytes(*start.0, *start.1)?, bytes(*limit.0, *limit.1)?);
            match store.approximate_sizes(&[range]) {
                Ok(found) => *size = found.first().copied().unwrap_or(0),
                // The range ends before it starts.
                Err(error) if error.kind() == ErrorKind::Invalid => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    });
}

/// Compacts a range down to the last level; `NULL` is no bound. See [`crate::forebay_compact_range`] for errors.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_compact_range(
    db: *mut leveldb_t,
    start_key: *const c_char,
    start_key_len: size_t,
    limit_key: *const c_char,
    limit_key_len: size_t,
) {
    let nowhere = std::ptr::null_mut();
    // SAFETY: the caller's duty.
    unsafe { crate::forebay_compact_range(db, start_key, start_key_len, limit_key, limit_key_len, nowhere) }
}

/// Compacts a range down to the last level, and waits for it; `NULL` is no bound.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_compact_range(
    db: *mut leveldb_t,
    start_key: *const c_char,
    start_key_len: size_t,
    limit_key: *const c_char,
    limit_key_len: size_t,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the caller's duty.
    unsafe {
        failing(errptr, (), || {
            let (start, limit) = (optional_bytes(start_key, start_key_len)?, optional_bytes(limit_key, limit_key_len)?);
            Ok(shared(db)?.store()?.compact_range(start, limit)?)
        });
    }
}

/// Drops a database and its data. A missing database is no error; an open one is.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_destroy_db(
    options: *const leveldb_options_t,
    name: *const c_char,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the caller's duty.
    unsafe {
        failing(errptr, (), || {
            let default = leveldb_options_t::default();
            destroy(or_default(options, &default), string(name, "name of the database")?)
        });
    }
}

/// Opens and closes an existing database, which recovers what can be recovered. Fails with the error that keeps the
/// database from opening. There are no files to rebuild it from.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_repair_db(
    options: *const leveldb_options_t,
    name: *const c_char,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the caller's duty.
    unsafe {
        failing(errptr, (), || {
            let (default, name) = (leveldb_options_t::default(), string(name, "name of the database")?);
            let mut options = or_default(options, &default).clone();
            let engine = options.engine();
            (engine.create_if_missing, engine.error_if_exists) = (false, false);
            Ok(open(&options, name)?.close()?)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forebay_error_kind;

    #[test]
    fn sizes_that_nobody_knows_leave_an_error_behind() {
        let store = Arc::new(Store::embedded(64 << 20, Options::default()).unwrap());
        let mut db = leveldb_t { store: Owned::new(Arc::clone(&store)) };
        let (starts, limits, lengths) = ([c"b".as_ptr(), c"a".as_ptr()], [c"a".as_ptr(), c"b".as_ptr()], [1; 2]);
        let mut ask = || {
            let (mut sizes, length) = ([1; 2], lengths.as_ptr());
            let (start, limit) = (starts.as_ptr(), limits.as_ptr());
            // SAFETY: all arrays have two elements, and all strings one byte.
            unsafe { leveldb_approximate_sizes(&raw mut db, 2, start, length, limit, length, sizes.as_mut_ptr()) };
            (sizes, forebay_error_kind())
        };
        assert_eq!(ask(), ([0, 0], 0));
        store.close().unwrap();
        assert_eq!(ask(), ([0, 0], i32::from(ErrorKind::Closed.code())));
    }
}
