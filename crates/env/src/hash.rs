//! Hash tables whose order is the same in every run.
//!
//! The standard library's tables take their hasher's keys from the system's entropy. Code that walks or
//! drops such a table does so in another order each time, and a seed of the simulation does not run
//! twice alike. Here the keys are fixed. An outsider who chooses keys could make them collide, so these
//! tables hold only what this system numbers itself: segments, sessions, endpoints.

use std::collections::hash_map::DefaultHasher;
use std::hash::BuildHasherDefault;

/// [`std::collections::HashMap`] in an order that depends on its history only.
pub type HashMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<DefaultHasher>>;
/// [`std::collections::HashSet`] in an order that depends on its history only.
pub type HashSet<K> = std::collections::HashSet<K, BuildHasherDefault<DefaultHasher>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_histories_give_equal_orders() {
        let table = || (0..100u64).collect::<HashSet<_>>().into_iter().collect::<Vec<_>>();
        assert_eq!(table(), table());
    }
}
