//! Texts that are made for a script outside of Lua, which counts none of their bytes before they are whole.

/// Most memory of a script, and of a text that is made for it.
pub const MAX_MEMORY_BYTES: usize = 256 << 20;

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

impl From<TooLong> for mlua::Error {
    fn from(_: TooLong) -> Self {
        Self::runtime(TooLong::TEXT)
    }
}

impl Text {
    /// Adds bytes.
    ///
    /// # Errors
    /// When it becomes longer than a script may have memory.
    pub fn add(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
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
