//! Thousands of random runs of several databases, executors and schedulers, each with faults, and then a sweep.

use crate::world::{Settings, Step, World};
use forebay_offload::planted::Bug;

fn run(seed: u64, bug: Option<Bug>) -> World {
    let mut random = fastrand::Rng::with_seed(seed);
    let settings = Settings {
        owners: random.usize(1..4),
        jobs: random.u64(1..5),
        executors: random.usize(1..4),
        schedulers: random.usize(1..3),
        faults: random.u32(0..6),
        passes: random.u32(0..4),
        bug,
    };
    let mut world = World::new(settings);
    for _ in 0..random.usize(20..200) {
        let steps = world.steps();
        // Many of the possible steps are faults, which would otherwise all come at the beginning.
        let is_fault = |step: &Step| {
            matches!(
                step,
                Step::Lose(_) | Step::Double(_) | Step::Fail(..) | Step::Crash(_) | Step::Lapse(_) | Step::Pass
            )
        };
        let (faults, others): (Vec<_>, Vec<_>) = steps.into_iter().partition(is_fault);
        let chosen = if others.is_empty() || random.u8(0..12) == 0 { faults } else { others };
        let Some(&step) = random.choice(&chosen) else { break };
        world.take(step);
    }
    world.settle();
    world
}

#[test]
fn thousands_of_seeds() {
    let (mut in_the_pool, mut elsewhere) = (0, 0);
    for seed in 0..3000 {
        let world = run(seed, None);
        assert_eq!(world.broken, None, "seed {seed}: {world:#?}");
        in_the_pool += world.done.values().map(|done| done.0).sum::<u32>();
        elsewhere += world.done.values().map(|done| done.1).sum::<u32>();
    }
    assert!(in_the_pool > 3000 && elsewhere > 300, "{in_the_pool} in the pool, {elsewhere} elsewhere");
}

#[test]
fn every_planted_bug_is_caught() {
    for bug in [Bug::InstallsLate, Bug::FreesInputsEarly, Bug::GrantsOutlive, Bug::TwoSchedulers] {
        assert!((0..3000).any(|seed| run(seed, Some(bug)).broken.is_some()), "{bug:?}");
    }
}
