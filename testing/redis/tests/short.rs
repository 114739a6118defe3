//! Some thousand commands of each family; `cargo xtask redis-differential` sends a million.

use forebay_redis_differential::families::FAMILIES;
use forebay_redis_differential::run::{self, Pair};
use forebay_server::ServerOptions;

const COMMANDS: u64 = 2500;

fn agree(pair: &Pair, seeds: std::ops::RangeInclusive<u64>) {
    for family in FAMILIES {
        for seed in seeds.clone() {
            if let Err(difference) = run::family(pair, family, seed, COMMANDS) {
                panic!("{}: {difference}", family.name);
            }
        }
    }
}

#[test]
fn replies_agree_with_a_real_redis() {
    agree(&Pair::start(), 1..=2);
}

/// A command of more than three words, or that passes a fourth element, takes long: it goes on in another thread.
#[test]
fn replies_agree_where_most_commands_take_long() {
    agree(&Pair::start_with(ServerOptions { max_steps: 3, ..ServerOptions::default() }), 3..=3);
}
