//! Comparators. The engine has a fixed set of key orders, and a comparator's name says which one it is.

use crate::border::{end, give, quiet, string};
use crate::failure::Failure;
use forebay::{ErrorKind, KeyOrder};
use libc::{c_char, c_int, c_void, size_t};

/// Names of comparators, and the order that each of them stands for.
const NAMES: [(&str, KeyOrder); 3] = [
    ("leveldb.BytewiseComparator", KeyOrder::Bytewise),
    ("forebay.ReverseBytewiseComparator", KeyOrder::ReverseBytewise),
    ("rocksdb.ReverseBytewiseComparator", KeyOrder::ReverseBytewise),
];

/// Ends the state of an object that a C program made.
type Destructor = Option<unsafe extern "C" fn(*mut c_void)>;

/// A comparator that a C program made.
pub struct leveldb_comparator_t {
    state: *mut c_void,
    destructor: Destructor,
    name: Option<unsafe extern "C" fn(*mut c_void) -> *const c_char>,
}

impl leveldb_comparator_t {
    /// The order that the comparator's name stands for.
    pub(crate) fn order(&self) -> Result<KeyOrder, Failure> {
        let name = self.name.ok_or_else(|| Failure::invalid("the comparator has no function that tells its name"))?;
        // SAFETY: the function was given with this state (5), and returns a string.
        let name = unsafe { string(name(self.state), "comparator's name")? }.to_string_lossy();
        NAMES.iter().find(|known| known.0 == name).map(|known| known.1).ok_or_else(|| {
            let message = format!(
                "the comparator {name:?} is a function of this process, which memory nodes cannot run: order keys by \
                 their bytes, or give the comparator the name \"{}\" if that is what it does",
                NAMES[0].0
            );
            Failure::new(ErrorKind::Unsupported, message)
        })
    }
}

impl Drop for leveldb_comparator_t {
    fn drop(&mut self) {
        if let Some(destructor) = self.destructor {
            // SAFETY: the function was given with this state (5), and is called once.
            unsafe { destructor(self.state) }
        }
    }
}

/// Makes a comparator. Only its functions `name` and `destructor` are called; see
/// [`crate::leveldb_options_set_comparator`].
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_comparator_create(
    state: *mut c_void,
    destructor: Option<unsafe extern "C" fn(*mut c_void)>,
    _compare: Option<unsafe extern "C" fn(*mut c_void, *const c_char, size_t, *const c_char, size_t) -> c_int>,
    name: Option<unsafe extern "C" fn(*mut c_void) -> *const c_char>,
) -> *mut leveldb_comparator_t {
    quiet(std::ptr::null_mut(), || Ok(give(leveldb_comparator_t { state, destructor, name })))
}

/// Ends a comparator, after its destructor was called.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_comparator_destroy(comparator: *mut leveldb_comparator_t) {
    // SAFETY: the caller's duty.
    unsafe { end(comparator) }
}
