//! What was found: rows under names, for people as tables and for programs as JSON, and what is wrong.

use crate::terms::{Error, Result};
use forebay_base::{ErrorKind, SegmentId};

/// A value in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    /// There is none.
    Nothing,
    /// There is a number, but nobody knows it.
    Unknown,
    /// A number.
    Number(u64),
    /// Text.
    Text(String),
    /// A key, or other bytes of users.
    Bytes(Vec<u8>),
}

impl From<u64> for Cell {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<usize> for Cell {
    fn from(number: usize) -> Self {
        Self::Number(number as u64)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&[u8]> for Cell {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.to_vec())
    }
}

impl From<SegmentId> for Cell {
    fn from(segment: SegmentId) -> Self {
        Self::Number(segment.0)
    }
}

impl<T: Into<Self>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Nothing, Into::into)
    }
}

/// Rows of the same columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// Its name.
    pub name: &'static str,
    /// Names of the columns.
    pub columns: &'static [&'static str],
    /// The rows, each with a cell for each column.
    pub rows: Vec<Vec<Cell>>,
}

impl Section {
    pub(crate) const fn new(name: &'static str, columns: &'static [&'static str]) -> Self {
        Self { name, columns, rows: Vec::new() }
    }
}

/// Something that is wrong, or worth knowing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The object, file, table or log that it is about.
    pub object: String,
    /// What is the matter.
    pub detail: String,
    /// What the caller must do.
    pub kind: ErrorKind,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// What there is.
    pub sections: Vec<Section>,
    /// What is damaged or missing.
    pub problems: Vec<Finding>,
    /// What is not as one might expect, and does no harm.
    pub notes: Vec<Finding>,
}

impl Report {
    /// Notes that something is damaged or missing.
    pub(crate) fn problem(&mut self, object: impl Into<String>, kind: ErrorKind, detail: impl ToString) {
        self.problems.push(Finding { object: object.into(), detail: detail.to_string(), kind });
    }

    /// Checks that nothing was met that a newer build wrote.
    ///
    /// # Errors
    /// `Unsupported`, naming the first.
    pub(crate) fn check_known(&self) -> Result<()> {
        match self.problems.iter().find(|problem| problem.kind == ErrorKind::Unsupported) {
            Some(Finding { object, detail, kind }) => Err(Error::new(*kind, format!("{object}: {detail}"))),
            None => Ok(()),
        }
    }

    pub(crate) fn note(&mut self, object: impl Into<String>, detail: impl ToString) {
        self.notes.push(Finding { object: object.into(), detail: detail.to_string(), kind: ErrorKind::Invalid });
    }
}

/// How far a call has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Bytes that were read.
    pub bytes: u64,
    /// Bytes that are to be read.
    pub of_bytes: u64,
}
