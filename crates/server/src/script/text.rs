//! Texts that are made for a script outside of Lua, which counts none of their bytes before they are whole.
//!
//! A table may be in another one many times, so a text is not bounded by what its tables take, and neither is the time.

use mlua::{Error, Result};
use std::cell::Cell;

/// Most memory of a script, and of a text that is made for it.
pub const MAX_MEMORY_BYTES: usize = 256 << 20;

/// Values after which a script is asked whether it is to end.
const VALUES: usize = 1000;

/// Asks now and then whether a script is to end.
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

    /// Another value is dealt with.
    ///
    /// # Errors
    /// When the script is to end.
    pub fn count(&self) -> std::result::Result<(), E> {
        let values = self.values.get() + 1;
        self.values.set(values % VALUES);
        if values < VALUES { Ok(()) } else { (self.must_end)() }
    }
}

/// A text that is being made.
#[derive(Debug, Default)]
pub struct Text(Vec<u8>);

/// A text has become too long.
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
    /// When it becomes longer than a script may have memory.
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

/// A text that is being made of tables.
#[derive(Debug)]
pub struct TableText<'t> {
    text: Text,
    patience: Patience<'t>,
}

impl<'t> TableText<'t> {
    /// An empty text. `must_end` fails when the script is to end.
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
    /// When the script is to end.
    pub fn begin_table(&self) -> Result<()> {
        self.patience.count()
    }

    /// What was added.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.text.bytes()
    }
}
