//! Writes that name their request, and take effect once.

use crate::batch::leveldb_writebatch_t;
use crate::border::{bytes, bytes_for_caller, end, failing, give, shared};
use crate::database::leveldb_t;
use crate::options::{leveldb_writeoptions_t, or_default};
use forebay::process::Owned;
use forebay::{Request, Requests, Store};
use libc::{c_char, size_t};
use std::sync::Arc;
use std::time::Duration;

/// A table of the answers to clients' requests.
pub struct forebay_requests_t(Owned<Table>);

struct Table {
    requests: Requests,
    store: Arc<Store>,
}

/// Returns the table of requests whose keys begin with `prefix`. The caller must not use this prefix for other keys. An
/// entry lives for `lifetime_ms` after its client's last request. `NULL` on failure.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_requests_create(
    db: *mut leveldb_t,
    prefix: *const c_char,
    prefixlen: size_t,
    lifetime_ms: u64,
    errptr: *mut *mut c_char,
) -> *mut forebay_requests_t {
    // SAFETY: the caller's duty.
    unsafe {
        failing(errptr, std::ptr::null_mut(), || {
            let store = Arc::clone(shared(db)?.shared_store()?);
            let requests = Requests::under(store.db(), bytes(prefix, prefixlen)?);
            let requests = requests.with_lifetime(Duration::from_millis(lifetime_ms));
            Ok(give(forebay_requests_t(Owned::new(Table { requests, store }))))
        })
    }
}

/// Ends the handle; the table stays.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_requests_destroy(requests: *mut forebay_requests_t) {
    // SAFETY: the caller's duty.
    unsafe { end(requests) }
}

/// Writes a batch as the request `number` of `client`, or finds that it was written, and then sets `is_repeated`.
/// Returns a copy of the result that the written try gave, and its length; the caller frees the copy. `NULL` on
/// failure.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_requests_write(
    requests: *mut forebay_requests_t,
    options: *const leveldb_writeoptions_t,
    client: *const c_char,
    clientlen: size_t,
    number: u64,
    batch: *mut leveldb_writebatch_t,
    result: *const c_char,
    resultlen: size_t,
    is_repeated: *mut u8,
    answerlen: *mut size_t,
    errptr: *mut *mut c_char,
) -> *mut c_char {
    // SAFETY: the caller's duty.
    unsafe {
        let answered = failing(errptr, None, || {
            let Table { requests, store } = shared(requests)?.0.get()?;
            let default = leveldb_writeoptions_t::default();
            let options = store.write_options(or_default(options, &default).sync);
            let request = Request { client: bytes(client, clientlen)?, number };
            let (writes, result) = (shared(batch)?.writes()?, bytes(result, resultlen)?);
            let answer = requests.write_with(request, writes, result, &options)?;
            Ok(Some((bytes_for_caller(&answer.result)?, answer.result.len(), answer.is_repeated)))
        });
        let (answer, length, repeated) = answered.unwrap_or((std::ptr::null_mut(), 0, false));
        if let Some(is_repeated) = is_repeated.as_mut() {
            *is_repeated = repeated.into();
        }
        if let Some(answerlen) = answerlen.as_mut() {
            *answerlen = length;
        }
        answer
    }
}
