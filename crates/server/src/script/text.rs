//! Texts that are built for a script outside of Lua, which counts none of their bytes before they are complete.
//!
//! A table may be in another table many times, so neither a text nor its time is bounded by the size of its tables.

use mlua::{Error, Result};
use std::cell::Cell;

/// Most memory of a script, and of a text that is built for it.
pub const MAX_MEMORY_BYTES: usize = 256 << 20;

/// Number of values between checks whether the script must end.
const VALUES: usize = 1000;

/// Checks now and then whether a script must end.
pub struct Patience<'t, E = Error> {
    values: Cell<usize>,
    must_end: &'t dyn Fn() -> std::result::Result<(), E>,
}

impl<E> std::fmt::Debug for Patience<'_, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Patience").field("values", &self.values).finish_non_exhaustive()
    }
}

impl<'t, E> Patience<'t, E> {
    /// `must_end` fails when the script is to end.
    pub const fn new(must_end: &'t dyn Fn() -> std::result::Result<(), E>) -> Self {
        Self { values: Cell::new(0), must_end }
    }

    /// Counts another value.
    ///
    /// # Errors
    /// When the script must end.
    pub fn count(&self) -> std::result::Result<(), E> {
        let values = self.values.get() + 1;
        self.values.set(values % VALUES);
        if values < VALUES { Ok(()) } else { (self.must_end)() }
    }
}

/// A text that is being built.
#[derive(Debug, Default)]
pub struct Text(Vec<u8>);

/// The error when a text has become too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

impl TooLong {
    /// What Lua says when memory runs out.
    pub const TEXT: &'static str = "not enough memory";
}

impl From<TooLong> for Error {
    fn from(_: TooLong) -> Self {
        Self::runtime(TooLong::TEXT)
    }
}

impl Text {
    /// Adds bytes.
    ///
    /// # Errors
    /// When the text becomes longer than the memory of a script.
    pub fn add(&mut self, bytes: &[u8]) -> std::result::Result<(), TooLong> {
        if bytes.len() > MAX_MEMORY_BYTES.saturating_sub(self.0.len()) {
            return Err(TooLong);
        }
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    /// What was added.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A text that is being built from tables.
#[derive(Debug)]
pub struct TableText<'t> {
    text: Text,
    patience: Patience<'t>,
}

impl<'t> TableText<'t> {
    /// Makes an empty text. `must_end` fails when the script must end.
    pub fn new(must_end: &'t dyn Fn() -> Result<()>) -> Self {
        Self { text: Text::default(), patience: Patience::new(must_end) }
    }

    /// Adds bytes.
    ///
    /// # Errors
    /// As of [`Text::add`].
    pub fn add(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.text.add(bytes)?)
    }

    /// Another table begins.
    ///
    /// # Errors
    /// When the script must end.
    pub fn begin_table(&self) -> Result<()> {
        self.patience.count()
    }

    /// What was added.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.text.bytes()
    }
}
