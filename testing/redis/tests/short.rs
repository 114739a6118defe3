//! Some thousand commands of each family; `cargo xtask redis-differential` sends a million.

use forebay_redis_differential::families::FAMILIES;
use forebay_redis_differential::run::{self, Engine, Pair};
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
    agree(&Pair::start(Engine::Lsm), 1..=2);
}

#[test]
fn replies_of_a_server_on_a_shared_tree_agree_with_a_real_redis() {
    agree(&Pair::start(Engine::Tree), 4..=4);
}

/// A command with more than three words, or that passes a fourth element, counts as long: it continues in another
/// thread.
#[test]
fn replies_agree_where_most_commands_take_long() {
    let options = || ServerOptions { max_steps: 3, ..ServerOptions::default() };
    agree(&Pair::start_with(Engine::Lsm, options()), 3..=3);
    agree(&Pair::start_with(Engine::Tree, options()), 3..=3);
}
