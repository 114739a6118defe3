//! Options of databases, reads and writes.

use crate::border::{end, exclusive, give, optional_bytes, quiet, shared};
use crate::comparator::leveldb_comparator_t;
use crate::environment::{leveldb_env_t, leveldb_logger_t};
use crate::failure::Failure;
use crate::hints::{leveldb_cache_t, leveldb_filterpolicy_t};
use crate::snapshot::leveldb_snapshot_t;
use forebay::process::Owned;
use forebay::{DirectoryOptions, IterOptions, NodeAddress, Options, Snapshot};
use libc::{c_char, c_int, size_t};
use std::ffi::CString;
use std::sync::Arc;

/// Options of opening a database.
#[derive(Clone)]
pub struct leveldb_options_t {
    /// How a directory is opened. A part of it also holds for memory nodes.
    pub(crate) directory: DirectoryOptions,
    /// Memory nodes of other processes; with none, the database is in a directory.
    pub(crate) nodes: Vec<NodeAddress>,
    /// The number of shards; `None` for that of the database, or the usual number for a new database.
    pub(crate) shards: Option<usize>,
    /// The number of copies in memory; `None` for that of the database, or one for a new database.
    pub(crate) copies: Option<usize>,
    /// Where it is stored who holds the copies; `None` for the memory nodes.
    pub(crate) register: Option<CString>,
    /// Why these options open nothing.
    pub(crate) refused: Option<Failure>,
}

impl leveldb_options_t {
    /// The engine's options.
    pub(crate) const fn engine(&mut self) -> &mut Options {
        &mut self.directory.database
    }
}

impl Default for leveldb_options_t {
    fn default() -> Self {
        let (directory, nodes) = (DirectoryOptions::default(), Vec::new());
        let mut options = Self { directory, nodes, shards: None, copies: None, register: None, refused: None };
        options.engine().create_if_missing = false;
        options
    }
}

/// Options of a read.
#[derive(Default)]
pub struct leveldb_readoptions_t {
    snapshot: Option<Arc<Owned<Snapshot>>>,
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
}

impl leveldb_readoptions_t {
    pub(crate) fn snapshot(&self) -> Result<Option<&Snapshot>, Failure> {
        Ok(self.snapshot.as_deref().map(Owned::get).transpose()?)
    }

    pub(crate) fn iteration(&self) -> Result<IterOptions<'_>, Failure> {
        let (lower, upper) = (self.lower.as_deref(), self.upper.as_deref());
        Ok(IterOptions { lower, upper, snapshot: self.snapshot()?, ..IterOptions::default() })
    }

    pub(crate) fn set_bounds(&mut self, lower: Option<&[u8]>, upper: Option<&[u8]>) {
        (self.lower, self.upper) = (lower.map(<[u8]>::to_vec), upper.map(<[u8]>::to_vec));
    }
}

/// Options of a write.
#[derive(Default)]
pub struct leveldb_writeoptions_t {
    pub(crate) sync: bool,
}

/// Options, or the defaults for `NULL`.
///
/// # Safety
/// As [`shared`].
pub(crate) unsafe fn or_default<T>(options: *const T, default: &T) -> &T {
    // SAFETY: the caller's duty.
    unsafe { shared(options) }.unwrap_or(default)
}

/// New options with LevelDB's defaults: the database must exist, keys are ordered by their bytes.
#[unsafe(no_mangle)] // SAFETY: the name is LevelDB's.
pub extern "C" fn leveldb_options_create() -> *mut leveldb_options_t {
    quiet(std::ptr::null_mut(), || Ok(give(leveldb_options_t::default())))
}

/// Ends options.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_destroy(options: *mut leveldb_options_t) {
    // SAFETY: the caller's duty.
    unsafe { end(options) }
}

/// Changes options.
///
/// # Safety
/// As [`exclusive`].
pub(crate) unsafe fn change<T>(options: *mut T, change: impl FnOnce(&mut T)) {
    // SAFETY: the caller's duty.
    quiet((), || unsafe { exclusive(options) }.map(change));
}

/// Sets the order of keys to that of a comparator, known by the comparator's name. With any other comparator, opening
/// fails with "Not implemented": memory nodes also compare keys, and cannot run a function of this process. `NULL` is
/// the order by bytes.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_comparator(
    options: *mut leveldb_options_t,
    comparator: *mut leveldb_comparator_t,
) {
    // SAFETY: the caller's duty.
    let order = unsafe { comparator.as_ref() }.map_or(Ok(Default::default()), leveldb_comparator_t::order);
    // SAFETY: the caller's duty.
    unsafe {
        change(options, |options| match order {
            Ok(order) => (options.engine().key_order, options.refused) = (order, None),
            Err(failure) => options.refused = Some(failure),
        });
    }
}

/// Has no effect: indexes tell which keys they do not have, so there is nothing to filter.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_filter_policy(
    _options: *mut leveldb_options_t,
    _policy: *mut leveldb_filterpolicy_t,
) {
}

/// Sets whether a database that does not exist is created.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_create_if_missing(options: *mut leveldb_options_t, value: u8) {
    // SAFETY: the caller's duty.
    unsafe { change(options, |options| options.engine().create_if_missing = value != 0) }
}

/// Sets whether a database that exists is an error.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_error_if_exists(options: *mut leveldb_options_t, value: u8) {
    // SAFETY: the caller's duty.
    unsafe { change(options, |options| options.engine().error_if_exists = value != 0) }
}

/// Has no effect: everything that is read is checked.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_paranoid_checks(_options: *mut leveldb_options_t, _value: u8) {}

/// Has no effect: there is one environment.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_env(_options: *mut leveldb_options_t, _env: *mut leveldb_env_t) {}

/// Has no effect: nothing makes a logger.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_info_log(
    _options: *mut leveldb_options_t,
    _logger: *mut leveldb_logger_t,
) {
}

/// Sets the capacity of a memtable in bytes, within 4 KiB and 256 MiB.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_write_buffer_size(options: *mut leveldb_options_t, bytes: size_t) {
    // SAFETY: the caller's duty.
    unsafe { change(options, |options| options.engine().write_buffer_bytes = bytes.clamp(4 << 10, 256 << 20)) }
}

/// Has no effect: a database opens no files.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_max_open_files(_options: *mut leveldb_options_t, _files: c_int) {}

/// Limits the cached indexes of tables to the cache's capacity; `NULL` is no limit. The limit applies to each database
/// separately.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_cache(options: *mut leveldb_options_t, cache: *mut leveldb_cache_t) {
    // SAFETY: the caller's duty.
    let limit = unsafe { cache.as_ref() }.map(leveldb_cache_t::capacity_bytes);
    // SAFETY: the caller's duty.
    unsafe { change(options, |options| options.engine().cached_index_bytes = limit) }
}

/// Has no effect: a read brings one record, not a block.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_block_size(_options: *mut leveldb_options_t, _bytes: size_t) {}

/// Has no effect, as [`leveldb_options_set_block_size`].
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_block_restart_interval(_options: *mut leveldb_options_t, _keys: c_int) {}

/// Sets the record bytes at which an output table of a compaction ends, within 4 KiB and 1 GiB.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_max_file_size(options: *mut leveldb_options_t, bytes: size_t) {
    let bytes = (bytes as u64).clamp(4 << 10, 1 << 30);
    // SAFETY: the caller's duty.
    unsafe { change(options, |options| options.engine().target_table_bytes = bytes) }
}

/// Has no effect: records in memory are not compressed.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_compression(_options: *mut leveldb_options_t, _kind: c_int) {}

/// Makes new options of a read, as of now.
#[unsafe(no_mangle)] // SAFETY: the name is LevelDB's.
pub extern "C" fn leveldb_readoptions_create() -> *mut leveldb_readoptions_t {
    quiet(std::ptr::null_mut(), || Ok(give(leveldb_readoptions_t::default())))
}

/// Ends options of a read.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_readoptions_destroy(options: *mut leveldb_readoptions_t) {
    // SAFETY: the caller's duty.
    unsafe { end(options) }
}

/// Has no effect: checksums are always verified.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_readoptions_set_verify_checksums(_options: *mut leveldb_readoptions_t, _value: u8) {}

/// Has no effect: reads do not change what is cached.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_readoptions_set_fill_cache(_options: *mut leveldb_readoptions_t, _value: u8) {}

/// Sets the moment to read at; `NULL` is now. The options keep the moment until they are changed or destroyed, even if
/// the snapshot is released before.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_readoptions_set_snapshot(
    options: *mut leveldb_readoptions_t,
    snapshot: *const leveldb_snapshot_t,
) {
    // SAFETY: the caller's duty.
    let snapshot = unsafe { snapshot.as_ref() }.map(|snapshot| Arc::clone(&snapshot.0));
    // SAFETY: the caller's duty.
    unsafe { change(options, |options| options.snapshot = snapshot) }
}

/// Sets the first key that iterators show, and the first key that they no longer show; `NULL` is no bound.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_readoptions_set_bounds(
    options: *mut leveldb_readoptions_t,
    lower: *const c_char,
    lowerlen: size_t,
    upper: *const c_char,
    upperlen: size_t,
) {
    // SAFETY: the caller's duty.
    quiet((), || unsafe {
        let (lower, upper) = (optional_bytes(lower, lowerlen)?, optional_bytes(upper, upperlen)?);
        exclusive(options).map(|options| options.set_bounds(lower, upper))
    });
}

/// New options of a write, without sync.
#[unsafe(no_mangle)] // SAFETY: the name is LevelDB's.
pub extern "C" fn leveldb_writeoptions_create() -> *mut leveldb_writeoptions_t {
    quiet(std::ptr::null_mut(), || Ok(give(leveldb_writeoptions_t::default())))
}

/// Ends options of a write.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writeoptions_destroy(options: *mut leveldb_writeoptions_t) {
    // SAFETY: the caller's duty.
    unsafe { end(options) }
}

/// Sets whether a write is synced when it returns. In a directory, a synced write is on the disk; on memory nodes, it is
/// in their memory. Without sync, a directory is synced once a second.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writeoptions_set_sync(options: *mut leveldb_writeoptions_t, value: u8) {
    // SAFETY: the caller's duty.
    unsafe { change(options, |options| options.sync = value != 0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_threads_may_pass_the_same_options() {
        // The compiler checks it.
        let pass = |_: &dyn Sync| ();
        pass(&leveldb_options_t::default());
        pass(&leveldb_readoptions_t::default());
        pass(&leveldb_writeoptions_t::default());
    }
}
