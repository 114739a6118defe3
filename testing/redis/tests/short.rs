//! Some thousand commands of each family; `cargo xtask redis-differential` sends a million.

use forebay_redis_differential::families::FAMILIES;
use forebay_redis_differential::run::{self, Pair};

const COMMANDS: u64 = 4000;

#[test]
fn replies_agree_with_a_real_redis() {
    let pair = Pair::start();
    for family in FAMILIES {
        for seed in 1..=2 {
            if let Err(difference) = run::family(&pair, family, seed, COMMANDS) {
                panic!("{}: {difference}", family.name);
            }
        }
    }
}
