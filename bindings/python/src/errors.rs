//! Errors: each kind is a class of `forebay._errors`.

use forebay::{EngineError, Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::types::PyType;

/// The name of a kind's class.
const fn class(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Invalid => "InvalidError",
        ErrorKind::NotFound => "NotFoundError",
        ErrorKind::AlreadyExists => "AlreadyExistsError",
        ErrorKind::Full => "FullError",
        ErrorKind::Busy => "BusyError",
        ErrorKind::Unavailable => "UnavailableError",
        ErrorKind::Fenced => "FencedError",
        ErrorKind::AccessDenied => "AccessDeniedError",
        ErrorKind::Corrupt => "CorruptError",
        ErrorKind::TimedOut => "TimedOutError",
        ErrorKind::Closed => "ClosedError",
        ErrorKind::Io => "IoError",
        ErrorKind::Unsupported => "UnsupportedError",
        ErrorKind::Conflict => "ConflictError",
        _ => "Error",
    }
}

/// An error that Python sees.
pub(crate) fn raise(kind: ErrorKind, message: String) -> PyErr {
    Python::attach(|py| {
        let class = py.import("forebay._errors").and_then(|module| module.getattr(class(kind)));
        match class.and_then(|class| Ok(class.cast_into::<PyType>()?)) {
            Ok(class) => PyErr::from_type(class, message),
            Err(error) => error,
        }
    })
}

/// The error of a database, for Python.
pub(crate) trait Raised<T> {
    /// Returns the same result, with an error that Python sees.
    fn raised(self) -> PyResult<T>;
}

impl<T> Raised<T> for Result<T, EngineError> {
    fn raised(self) -> PyResult<T> {
        self.map_err(|error| raise(error.kind(), error.to_string()))
    }
}

impl<T> Raised<T> for Result<T, Error> {
    fn raised(self) -> PyResult<T> {
        self.map_err(|error| raise(error.kind(), error.to_string()))
    }
}
