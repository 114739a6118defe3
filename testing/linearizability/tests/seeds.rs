//! Some seeds, and that a seed can be run again.

use forebay_linearizability::run_seed;

#[test]
fn a_seed_always_does_the_same() {
    for seed in [3, 8] {
        let (first, again) = (run_seed(seed).unwrap(), run_seed(seed).unwrap());
        assert_eq!((first.fingerprint, first.steps), (again.fingerprint, again.steps));
        assert!(first.operations > 100);
    }
}

#[test]
fn some_seeds_are_explained() {
    for seed in 0..80 {
        if let Err(why) = run_seed(seed) {
            panic!("seed {seed}: {why}");
        }
    }
}
