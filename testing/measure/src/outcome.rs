//! The outcome of a measurement.

/// What went wrong, for people.
pub type Outcome<T = ()> = Result<T, String>;
