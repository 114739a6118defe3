//! Functions that Forebay has and LevelDB's interface does not.

use crate::border::{array, array_mut, bytes, bytes_for_caller, exclusive, failing, quiet, shared, string};
use crate::database::leveldb_t;
use crate::failure::{self, Failure};
use crate::options::{leveldb_options_t, leveldb_readoptions_t, leveldb_writeoptions_t, or_default};
use forebay::{KeyOrder, NodeAddress, WriteBatch};
use libc::{c_char, c_int, c_void, size_t};

/// Forebay's version, as text that the library owns.
#[unsafe(no_mangle)] // SAFETY: the name is this library's.
pub extern "C" fn forebay_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// The kind of the last error of the calling thread, one of `FOREBAY_ERROR_…`; 0 before the first. The kind says what
/// to do, while the text of an error has only LevelDB's class. Functions that cannot report an error also set it.
#[unsafe(no_mangle)] // SAFETY: the name is this library's.
pub extern "C" fn forebay_error_kind() -> c_int {
    failure::last().into()
}

/// Sets the order of keys: `FOREBAY_ORDER_BYTEWISE` or `FOREBAY_ORDER_REVERSE_BYTEWISE`. With another number, opening
/// fails.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_options_set_key_order(options: *mut leveldb_options_t, order: c_int) {
    // SAFETY: the caller's duty.
    quiet((), || unsafe {
        let options = exclusive(options)?;
        let known = match order {
            0 => Ok(KeyOrder::Bytewise),
            1 => Ok(KeyOrder::ReverseBytewise),
            _ => Err(Failure::invalid(format!("{order} is no order of keys: use a number of FOREBAY_ORDER_…"))),
        };
        match known {
            Ok(order) => (options.engine().key_order, options.refused) = (order, None),
            Err(failure) => options.refused = Some(failure),
        }
        Ok(())
    });
}

/// Sets how many bytes of memory a database in a directory may take; what does not fit is stored in the directory
/// alone.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_options_set_memory_bytes(options: *mut leveldb_options_t, bytes: u64) {
    // SAFETY: the caller's duty.
    quiet((), || unsafe { exclusive(options) }.map(|options| options.directory.memory_bytes = bytes));
}

/// Sets the memory nodes that hold the database: addresses as `tcp://host:port` or `shm:path`, separated by commas. An empty
/// text means a directory of this machine. On memory nodes the database's name is a name, not a path: letters, digits, `.`,
/// `_`, `-`.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_options_set_memory_nodes(
    options: *mut leveldb_options_t,
    addresses: *const c_char,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the caller's duty.
    unsafe {
        failing(errptr, (), || {
            let addresses = string(addresses, "list of addresses")?.to_str();
            let addresses = addresses.map_err(|_| Failure::invalid("the list of addresses is no text"))?;
            let addresses = addresses.split(',').map(str::trim).filter(|address| !address.is_empty());
            let nodes = addresses.map(str::parse).collect::<Result<Vec<NodeAddress>, _>>()?;
            if nodes.contains(&NodeAddress::Local) {
                return Err(Failure::invalid("local is this process: leave the list empty for that"));
            }
            exclusive(options)?.nodes = nodes;
            Ok(())
        });
    }
}

/// Sets the number of shards, which is fixed when a database is created: a database that has another number does not
/// open. If it is not set, an existing database opens with its own number.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_options_set_shards(options: *mut leveldb_options_t, shards: size_t) {
    // SAFETY: the caller's duty.
    quiet((), || unsafe { exclusive(options) }.map(|options| options.shards = Some(shards)));
}

/// Sets on how many memory nodes each part of a new database is. A write is on all of them before it returns. If this is not
/// set, an existing database opens with its own number, and with no other. A database in a directory has one copy.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_options_set_copies(options: *mut leveldb_options_t, copies: size_t) {
    // SAFETY: the caller's duty.
    quiet((), || unsafe { exclusive(options) }.map(|options| options.copies = Some(copies)));
}

/// Sets where it is stored which memory nodes hold the copies of a database that has several: a path or a URL of storage,
/// which must outlive the memory nodes. A database that was created with a register opens with it alone; it is also named to
/// drop the database. Without one, more than half of the memory nodes must be there to open the database.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_options_set_register(options: *mut leveldb_options_t, url: *const c_char) {
    // SAFETY: the caller's duty.
    quiet((), || unsafe {
        let url = string(url, "register")?.to_owned();
        exclusive(options)?.register = Some(url).filter(|url| !url.is_empty());
        Ok(())
    });
}

/// Sets the merge operator of a new database: `counter`, `append`, `append:` and a separator, or `last`. An existing
/// database keeps its own.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_options_set_merge_operator(options: *mut leveldb_options_t, name: *const c_char) {
    // SAFETY: the caller's duty.
    quiet((), || unsafe {
        let name = string(name, "name of the merge operator")?.to_string_lossy().into_owned();
        exclusive(options)?.engine().merge_operator = Some(name).filter(|name| !name.is_empty());
        Ok(())
    });
}

/// Passes the value of a key to `found`, without copying it. Returns whether there is one. `found` must not call this
/// library.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_get(
    db: *mut leveldb_t,
    options: *const leveldb_readoptions_t,
    key: *const c_char,
    keylen: size_t,
    found: Option<unsafe extern "C" fn(*mut c_void, *const c_char, size_t)>,
    state: *mut c_void,
    errptr: *mut *mut c_char,
) -> u8 {
    // SAFETY: the caller's duty; `found` takes bytes of this length for the time of the call (5).
    unsafe {
        failing(errptr, 0, || {
            let found = found.ok_or_else(|| Failure::invalid("the function that takes the value is NULL"))?;
            let snapshot = options.as_ref().map_or(Ok(None), leveldb_readoptions_t::snapshot)?;
            let pass = |value: &[u8]| found(state, value.as_ptr().cast(), value.len());
            Ok(shared(db)?.store()?.get_with(bytes(key, keylen)?, snapshot, pass)?.is_some().into())
        })
    }
}

/// Gives copies of the values of `count` keys and their lengths, all as of the same moment, in few round trips. `NULL`
/// for a key without a value. The caller frees each copy. On failure, there are none.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_multi_get(
    db: *mut leveldb_t,
    options: *const leveldb_readoptions_t,
    count: size_t,
    keys: *const *const c_char,
    keylens: *const size_t,
    values: *mut *mut c_char,
    vallens: *mut size_t,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the caller's duty.
    unsafe {
        failing(errptr, (), || {
            let values = array_mut(values, count)?;
            values.fill(std::ptr::null_mut());
            let lengths = array_mut(vallens, count)?;
            lengths.fill(0);
            let keys = array(keys, count)?.iter().zip(array(keylens, count)?);
            let keys = keys.map(|(key, length)| bytes(*key, *length)).collect::<Result<Vec<_>, _>>()?;
            let store = shared(db)?.store()?;
            let found = match options.as_ref().map_or(Ok(None), leveldb_readoptions_t::snapshot)? {
                Some(snapshot) => store.multi_get_at(&keys, snapshot)?,
                None => store.multi_get(&keys)?,
            };
            for (at, value) in found.iter().enumerate() {
                let Some(value) = value else { continue };
                match bytes_for_caller(value) {
                    Ok(copy) => (values[at], lengths[at]) = (copy, value.len()),
                    Err(failure) => {
                        values[..at].iter_mut().for_each(|copy| {
                            libc::free(copy.cast());
                            *copy = std::ptr::null_mut();
                        });
                        lengths.fill(0);
                        return Err(failure);
                    }
                }
            }
            Ok(())
        });
    }
}

/// Adds an operand to a key. The database's merge operator makes the value from the operands.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_merge(
    db: *mut leveldb_t,
    options: *const leveldb_writeoptions_t,
    key: *const c_char,
    keylen: size_t,
    operand: *const c_char,
    operandlen: size_t,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the caller's duty.
    unsafe {
        failing(errptr, (), || {
            let (store, default) = (shared(db)?.store()?, leveldb_writeoptions_t::default());
            let (key, operand) = (bytes(key, keylen)?, bytes(operand, operandlen)?);
            Ok(store.merge_with(key, operand, &store.write_options(or_default(options, &default).sync))?)
        });
    }
}

/// Removes all keys from `from` (included) to `to` (excluded), at the cost of one record.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_delete_range(
    db: *mut leveldb_t,
    options: *const leveldb_writeoptions_t,
    from: *const c_char,
    fromlen: size_t,
    to: *const c_char,
    tolen: size_t,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the caller's duty.
    unsafe {
        failing(errptr, (), || {
            let (store, default) = (shared(db)?.store()?, leveldb_writeoptions_t::default());
            let mut batch = WriteBatch::new();
            batch.delete_range(bytes(from, fromlen)?, bytes(to, tolen)?);
            Ok(store.write_with(&batch, &store.write_options(or_default(options, &default).sync))?)
        });
    }
}

/// Flushes earlier writes to the memory nodes, and waits for it.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_flush(db: *mut leveldb_t, errptr: *mut *mut c_char) {
    // SAFETY: the caller's duty.
    unsafe { failing(errptr, (), || Ok(shared(db)?.store()?.flush()?)) }
}
