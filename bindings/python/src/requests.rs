//! Writes that name their request, and take effect once.

use crate::batch::Batch;
use crate::bytes::Bytes;
use crate::errors::{Raised, raise};
use crate::shared::SharedStore;
use forebay::process::Owned;
use forebay::{ErrorKind, Request};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::time::Duration;

/// A table of the answers to clients' requests. A write that names its request takes effect once, however often it is
/// tried, and whichever process has the database open.
#[pyclass(frozen, module = "forebay")]
pub(crate) struct Requests(Owned<Table>);

struct Table {
    // Dropped in this order.
    requests: forebay::Requests,
    store: SharedStore,
}

/// The answer to a request.
#[pyclass(frozen, module = "forebay")]
pub(crate) struct Answer {
    /// The result that the written try gave.
    #[pyo3(get)]
    result: Py<PyBytes>,
    /// Whether an earlier try was written, and this one wrote nothing.
    #[pyo3(get)]
    is_repeated: bool,
}

impl Requests {
    pub(crate) fn new(store: SharedStore, prefix: &[u8], lifetime: Option<Duration>) -> Self {
        let requests = forebay::Requests::under(store.db(), prefix);
        let requests = requests.with_lifetime(lifetime.unwrap_or(forebay::Requests::LIFETIME));
        Self(Owned::new(Table { requests, store }))
    }
}

#[pymethods]
impl Requests {
    /// Writes a batch as the request `number` of `client`, or finds that it was written, and then empties it. A client
    /// has a name of 1 to 255 bytes, and numbers that grow: a number before that of a written request is an
    /// `InvalidError`. After any other error the call can be made again, and the batch is as it was. If this try is
    /// written, the answer to it and to every later try has `result`.
    #[pyo3(signature = (client, number, batch, *, result=None))]
    fn write(
        &self,
        py: Python<'_>,
        client: Bytes<'_>,
        number: u64,
        batch: &Batch,
        result: Option<Bytes<'_>>,
    ) -> PyResult<Answer> {
        let Table { requests, store } = self.0.get().raised()?;
        if !batch.is_of(store)? {
            return Err(raise(ErrorKind::Invalid, "the batch is of another database than the requests".into()));
        }
        let request = Request { client: client.as_slice(), number };
        let result = result.as_ref().map_or(&[][..], Bytes::as_slice);
        let answer = batch.written(py, |writes, options| requests.write_with(request, writes, result, options))?;
        Ok(Answer { result: PyBytes::new(py, &answer.result).unbind(), is_repeated: answer.is_repeated })
    }
}

#[pymethods]
impl Answer {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let repeated = if self.is_repeated { "True" } else { "False" };
        Ok(format!("Answer(result={}, is_repeated={repeated})", self.result.bind(py).repr()?))
    }
}
