//! How what is run here ends.

/// What went wrong, for people.
pub type Outcome<T = ()> = Result<T, String>;
