//! All that can happen to one job or two, with few faults, each at every moment; and what planted bugs do.

use crate::world::{Settings, Step, World};
use forebay_offload::planted::Bug;
use stateright::{Checker, Model, Property};

struct Explored(Settings);

impl Model for Explored {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        // A scheduler is elected, and knows the executors.
        let mut world = World::new(self.0);
        world.take(Step::Elect(0));
        (0..self.0.executors).for_each(|i| world.take(Step::Beat(i)));
        vec![world]
    }

    fn actions(&self, state: &World, actions: &mut Vec<Step>) {
        if state.broken.is_none() {
            actions.extend(state.steps());
        }
    }

    fn next_state(&self, last: &World, action: Step) -> Option<World> {
        let mut next = last.clone();
        next.take(action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("what was promised holds", |_, world: &World| world.broken.is_none()),
            Property::sometimes("a job is done in the pool", |_, world: &World| {
                world.done.values().any(|&done| done == (1, 0))
            }),
        ]
    }
}

const FEW: Settings = Settings { owners: 1, jobs: 1, executors: 2, schedulers: 1, faults: 0, passes: 0, bug: None };

fn explore(settings: Settings) -> (usize, Option<String>) {
    let checker = Explored(settings).checker().spawn_bfs().join();
    let broken = checker.discovery("what was promised holds");
    assert!(checker.discovery("a job is done in the pool").is_some() || broken.is_some());
    let told = broken.map(|path| {
        let promise = path.last_state().broken.unwrap_or_default();
        format!("{promise}: {:?}", path.into_actions())
    });
    (checker.unique_state_count(), told)
}

fn holds(settings: Settings) {
    let (states, broken) = explore(settings);
    assert_eq!(broken, None, "{settings:?}");
    println!("{states} states of {settings:?}");
}

#[test]
fn when_nothing_goes_wrong() {
    holds(Settings { jobs: 2, ..FEW });
    holds(Settings { owners: 2, ..FEW });
}

#[test]
fn when_something_goes_wrong_at_any_moment() {
    holds(Settings { faults: 1, ..FEW });
    holds(Settings { faults: 2, executors: 1, ..FEW });
}

#[test]
fn when_time_passes_at_any_moment() {
    holds(Settings { passes: 1, schedulers: 2, ..FEW });
}

#[test]
#[ignore = "takes minutes: cargo xtask offload"]
fn when_several_things_go_wrong_at_any_moment() {
    holds(Settings { faults: 2, ..FEW });
    holds(Settings { faults: 1, passes: 1, schedulers: 2, ..FEW });
}

fn is_caught(bug: Bug, promise: &str) {
    let settings = Settings { faults: 1, passes: 1, schedulers: 2, executors: 1, bug: Some(bug), ..FEW };
    let broken = explore(settings).1.unwrap_or_default();
    assert!(broken.starts_with(promise), "{bug:?}: {broken:?}");
}

#[test]
fn a_late_attempt_that_is_installed_is_caught() {
    is_caught(Bug::InstallsLate, "a job is decided once");
}

#[test]
fn inputs_that_are_freed_early_are_caught() {
    is_caught(Bug::FreesInputsEarly, "inputs are freed behind the ACK");
}

#[test]
fn keys_that_outlive_their_job_are_caught() {
    is_caught(Bug::GrantsOutlive, "keys end with the job");
}

#[test]
fn two_schedulers_are_caught() {
    is_caught(Bug::TwoSchedulers, "nobody works for a scheduler that was deposed");
}
