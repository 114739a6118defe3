//! Bytes that come from Python, and the options of reads.

use forebay::IterOptions;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

/// Bytes of an argument, which nobody can change. A `bytes` object is not copied. Any other buffer is copied, because
/// another thread may change it once the interpreter's lock is released.
pub(crate) struct Bytes<'py>(Bound<'py, PyBytes>);

impl<'py> FromPyObject<'_, 'py> for Bytes<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self(bytes.to_owned()));
        }
        // The buffer may have any format and shape, as `bytes` takes them; but a number is no buffer.
        let copy = PyMemoryView::from(&object)?.call_method0("tobytes")?;
        Ok(Self(copy.cast_into()?))
    }
}

impl Bytes<'_> {
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.0.as_bytes()
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
