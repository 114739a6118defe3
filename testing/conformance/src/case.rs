//! A case of the suite.

use crate::Fixture;

/// A case of the suite.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// The name, which states what holds.
    pub name: &'static str,
    /// Panics when the statement does not hold.
    pub run: fn(&Fixture),
}

/// Makes cases from functions.
macro_rules! case_list {
    ($($name:ident),* $(,)?) => {
        /// The cases of this group.
        pub const CASES: &[$crate::Case] = &[$($crate::Case { name: stringify!($name), run: $name }),*];
    };
}
pub(crate) use case_list;
