//! Bytes that come from Python, and the options of reads.

use forebay::IterOptions;
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Bytes of an argument. A `bytes` object stays where it is: nobody can change it. Any other buffer is copied, since another
/// thread may change it once the interpreter's lock is given away.
pub(crate) enum Bytes<'py> {
    Kept(Bound<'py, PyBytes>),
    Copied(Vec<u8>),
}

impl<'py> FromPyObject<'_, 'py> for Bytes<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match object.cast::<PyBytes>() {
            Ok(bytes) => Ok(Self::Kept(bytes.to_owned())),
            Err(_) => Ok(Self::Copied(PyBuffer::<u8>::get(&object)?.to_vec(object.py())?)),
        }
    }
}

impl Bytes<'_> {
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Kept(bytes) => bytes.as_bytes(),
            Self::Copied(bytes) => bytes,
        }
    }
}

/// Which keys an iteration shows.
pub(crate) struct Keys<'py> {
    pub(crate) start: Option<Bytes<'py>>,
    pub(crate) stop: Option<Bytes<'py>>,
    pub(crate) prefix: Option<Bytes<'py>>,
}

impl Keys<'_> {
    /// Options of an iterator, without a snapshot.
    pub(crate) fn options(&self) -> IterOptions<'_> {
        fn slice<'a>(bytes: &'a Option<Bytes<'_>>) -> Option<&'a [u8]> {
            bytes.as_ref().map(Bytes::as_slice)
        }
        let (lower, upper, prefix) = (slice(&self.start), slice(&self.stop), slice(&self.prefix));
        IterOptions { lower, upper, prefix, snapshot: None }
    }
}

/// The bytes of each.
pub(crate) fn slices<'a>(keys: &'a [Bytes<'_>]) -> Vec<&'a [u8]> {
    keys.iter().map(Bytes::as_slice).collect()
}

/// Values as Python sees them.
pub(crate) fn values<'py>(py: Python<'py>, values: &[Option<Vec<u8>>]) -> Vec<Option<Bound<'py, PyBytes>>> {
    values.iter().map(|value| value.as_ref().map(|value| PyBytes::new(py, value))).collect()
}
