//! Bugs that a test plants in a whole process.

/// Makes the functions of a crate's module of planted bugs, for its enumeration of them, whose numbers begin with 1.
/// With the crate's feature `planted`, these are `plant`, which plants a bug or none, and `planted`, which tells
/// whether a bug is planted. Without the feature, there is only a `planted` that is the constant `false`.
#[macro_export]
macro_rules! plantable {
    ($bug:ident) => {
        #[cfg(feature = "planted")]
        mod checked {
            use super::$bug;
            use std::sync::atomic::{AtomicU8, Ordering};

            static PLANTED: AtomicU8 = AtomicU8::new(0);

            /// Plants a bug everywhere in the process, or none.
            pub fn plant(bug: Option<$bug>) {
                PLANTED.store(bug.map_or(0, |bug| bug as u8), Ordering::SeqCst);
            }

            #[inline]
            pub(crate) fn planted(bug: $bug) -> bool {
                PLANTED.load(Ordering::Relaxed) == bug as u8
            }
        }

        #[cfg(feature = "planted")]
        pub use checked::plant;
        #[cfg(feature = "planted")]
        pub(crate) use checked::planted;

        #[cfg(not(feature = "planted"))]
        #[inline(always)]
        pub(crate) const fn planted(_bug: $bug) -> bool {
            false
        }
    };
}
