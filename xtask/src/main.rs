//! The one door for checks.
fn main() {}
