use super::*;
use proptest::prelude::*;

const COSTS: [u64; 4] = [1_000, 20_000, 300_000, 5_000_000];
const DEAREST: u64 = 5_000_000;
const CASES: u32 = if cfg!(miri) { 2 } else { 256 };

fn turn(party: usize, link: u64) -> Turn<usize> {
    Turn { party, link }
}

/// Takes what is next, of what is ready, and charges it.
fn serve(turns: &mut Turns<usize, u64>, is_ready: impl FnMut(Turn<usize>, &u64) -> bool) -> Option<(Turn<usize>, u64)> {
    let (turn, cost) = turns.next(is_ready)?;
    turns.charge(turn, cost);
    Some((turn, cost))
}

fn accounts(turns: &Turns<usize, u64>) -> impl Iterator<Item = (i64, i64)> {
    turns.parties.0.iter().flat_map(|party| {
        let links = party.value.0.iter().map(|line| (line.credit, line.earns()));
        links.chain([(party.credit, party.earns())])
    })
}

#[test]
fn one_call_among_a_flood_is_next() {
    let mut turns = Turns::default();
    (0..10_000).for_each(|_| turns.push(turn(1, 1), 1, COSTS[0]));
    for _ in 0..100 {
        serve(&mut turns, |_, _| true);
    }
    turns.push(turn(2, 2), 1, COSTS[0]);
    let mut ahead = 0;
    while let Some((next, cost)) = serve(&mut turns, |_, _| true) {
        if next.party == 2 {
            break;
        }
        ahead += cost;
    }
    assert!(ahead <= QUANTUM + COSTS[0], "{ahead} ahead");
}

#[test]
fn links_of_a_party_share_its_turns() {
    let mut turns = Turns::default();
    (0..1000).for_each(|_| turns.push(turn(1, 1), 1, COSTS[1]));
    turns.push(turn(1, 2), 1, COSTS[0]);
    turns.push(turn(2, 3), 1, COSTS[0]);
    let first: Vec<u64> = (0..6).map(|_| serve(&mut turns, |_, _| true).unwrap().0.link).collect();
    assert!(first.contains(&2) && first.contains(&3), "{first:?}");
}

#[test]
fn what_is_not_ready_holds_up_nobody() {
    let mut turns = Turns::default();
    turns.push(turn(1, 1), 1, 1);
    turns.push(turn(1, 2), 1, 2);
    turns.push(turn(2, 3), 1, 3);
    let mut served: Vec<u64> = std::iter::from_fn(|| turns.next(|turn, _| turn.link != 1).map(|(_, it)| it)).collect();
    served.sort_unstable();
    assert_eq!(served, [2, 3]);
    assert_eq!(turns.len(), 1);
    assert_eq!(turns.forget(turn(1, 1)), [1]);
    assert!(turns.is_empty());
    assert!(turns.forget(turn(1, 1)).is_empty());
}

#[test]
fn only_those_whose_turn_it_may_be_are_asked() {
    let mut turns = Turns::default();
    for link in 0..100 {
        (0..16).for_each(|_| turns.push(turn(1, link), 1, COSTS[0]));
    }
    let mut asked = 0;
    for _ in 0..1600 {
        serve(&mut turns, |_, _| {
            asked += 1;
            true
        });
    }
    assert!(turns.is_empty());
    assert!(asked <= 2 * 1600, "asked {asked} times for 1600 pieces of work");
}

#[test]
fn debt_is_paid_while_others_are_served() {
    let mut turns = Turns::default();
    turns.push(turn(1, 1), 1, 50 * QUANTUM);
    assert_eq!(serve(&mut turns, |_, _| true).unwrap().0, turn(1, 1));
    // It rests, and others work for longer than it worked.
    for _ in 0..60 {
        turns.push(turn(2, 2), 1, QUANTUM);
        serve(&mut turns, |_, _| true);
    }
    turns.push(turn(2, 2), 1, QUANTUM);
    turns.push(turn(1, 1), 1, QUANTUM);
    let next: Vec<usize> = (0..2).map(|_| serve(&mut turns, |_, _| true).unwrap().0.party).collect();
    assert!(next.contains(&1), "{next:?}");
}

#[test]
fn who_has_nothing_and_owes_nothing_is_forgotten() {
    let mut turns = Turns::default();
    for link in 0..1000 {
        turns.push(turn(link as usize % 7, link), 1, COSTS[0]);
    }
    while serve(&mut turns, |_, _| true).is_some() {}
    for _ in 0..1000 {
        turns.push(turn(9, 9), 1, QUANTUM);
        serve(&mut turns, |_, _| true);
    }
    assert!(turns.parties.0.len() <= 2, "{:?}", turns.parties.0.len());
}

#[test]
fn a_charge_finds_its_party_although_it_was_forgotten() {
    let mut turns = Turns::default();
    turns.push(turn(1, 1), 1, 0);
    let (taken, _) = turns.next(|_, _| true).unwrap();
    turns.forget(taken);
    turns.charge(taken, 10 * QUANTUM);
    turns.push(turn(1, 5), 1, COSTS[0]);
    for _ in 0..5 {
        turns.push(turn(2, 2), 1, QUANTUM);
        assert_eq!(serve(&mut turns, |_, _| true).unwrap().0.party, 2);
    }
}

/// What happens to turns: something comes, somebody is served, a link becomes ready or not, a link ends.
#[derive(Debug, Clone)]
enum Step {
    Push(usize, u64, usize),
    Serve,
    Block(usize, u64, bool),
    Forget(usize, u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..3usize, 0..4u64, 0..4usize).prop_map(|(party, link, cost)| Step::Push(party, link, cost)),
        4 => Just(Step::Serve),
        1 => (0..3usize, 0..4u64, any::<bool>()).prop_map(|(party, link, blocked)| Step::Block(party, link, blocked)),
        1 => (0..3usize, 0..4u64).prop_map(|(party, link)| Step::Forget(party, link)),
    ];
    proptest::collection::vec(step, 0..if cfg!(miri) { 30 } else { 300 })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    /// Parties that always have work get time by their weights, whatever their work costs and however many links they
    /// have. The error is at most one turn and one piece of work.
    #[test]
    fn time_is_shared_by_weight(
        weights in proptest::array::uniform3(1..5u32),
        links in proptest::array::uniform3(1..20u64),
        costs in proptest::array::uniform3(0..4usize),
    ) {
        let mut turns = Turns::default();
        for party in 0..3 {
            for link in 0..links[party] {
                turns.push(turn(party, link), weights[party], COSTS[costs[party]]);
            }
        }
        let mut charged = [0u64; 3];
        for _ in 0..if cfg!(miri) { 300 } else { 30_000 } {
            let (turn, cost) = serve(&mut turns, |_, _| true).unwrap();
            charged[turn.party] += cost;
            turns.push(turn, weights[turn.party], cost);
        }
        let shares: Vec<f64> = (0..3).map(|at| charged[at] as f64 / f64::from(weights[at])).collect();
        let slack = 2.0 * (DEAREST + 5 * QUANTUM) as f64;
        for pair in shares.windows(2) {
            prop_assert!((pair[0] - pair[1]).abs() <= slack, "{shares:?}");
        }
    }

    /// Nothing is lost, doubled or reordered within a link.
    #[test]
    fn all_that_waits_is_served_once_and_in_order(
        work in proptest::collection::vec((0..3usize, 0..4u64, 0..4usize), 0..200),
    ) {
        let mut turns = Turns::default();
        for (at, &(party, link, _)) in work.iter().enumerate() {
            turns.push(turn(party, link), 1, at);
        }
        let mut served = Vec::new();
        while let Some((turn, at)) = turns.next(|_, _| true) {
            turns.charge(turn, COSTS[work[at].2]);
            prop_assert_eq!((turn.party, turn.link), (work[at].0, work[at].1));
            served.push((turn.party, turn.link, at));
        }
        prop_assert_eq!(served.len(), work.len());
        let mut sorted = served.clone();
        sorted.sort_by_key(|&(party, link, at)| (party, link, at));
        served.sort_by_key(|&(party, link, _)| (party, link));
        prop_assert_eq!(served, sorted);
    }

    /// Whatever happens, credit is at most one turn's, debt is at most the cost of one piece of work, and somebody is
    /// served exactly when something is ready.
    #[test]
    fn credit_and_debt_are_bounded(steps in steps(), weight in 1..5u32) {
        let mut turns = Turns::default();
        let mut blocked = Vec::new();
        let mut waiting: Vec<(usize, u64)> = Vec::new();
        for step in steps {
            match step {
                Step::Push(party, link, cost) => {
                    turns.push(turn(party, link), weight, COSTS[cost]);
                    waiting.push((party, link));
                }
                Step::Serve => {
                    let is_ready = |turn: Turn<usize>| !blocked.contains(&(turn.party, turn.link));
                    let somebody = waiting.iter().any(|&(party, link)| is_ready(turn(party, link)));
                    let served = serve(&mut turns, |turn, _| is_ready(turn));
                    prop_assert_eq!(served.is_some(), somebody);
                    if let Some((served, _)) = served {
                        prop_assert!(is_ready(served));
                        let at = waiting.iter().position(|it| *it == (served.party, served.link)).unwrap();
                        waiting.remove(at);
                    }
                }
                Step::Block(party, link, true) => blocked.push((party, link)),
                Step::Block(party, link, false) => blocked.retain(|it| *it != (party, link)),
                Step::Forget(party, link) => {
                    let waited = turns.forget(turn(party, link)).len();
                    prop_assert_eq!(waited, waiting.iter().filter(|it| **it == (party, link)).count());
                    waiting.retain(|it| *it != (party, link));
                }
            }
            prop_assert_eq!(turns.len(), waiting.len());
            for (credit, earns) in accounts(&turns) {
                prop_assert!(credit <= earns, "credit {credit} of {earns}");
                prop_assert!(credit >= -(DEAREST as i64), "debt {credit}");
            }
        }
    }

    /// A party that becomes ready and owes nothing is served before any other has had more than two turns (the rest
    /// of one, and the next) and a piece of work.
    #[test]
    fn nobody_starves(
        floods in proptest::collection::vec((1..5u32, 1..6u64, 0..4usize), 1..5),
        rounds in 0..400usize,
    ) {
        let mut turns = Turns::default();
        for (party, &(weight, links, cost)) in floods.iter().enumerate() {
            for link in 0..links {
                turns.push(turn(party, link), weight, COSTS[cost]);
            }
        }
        let newcomer = turn(floods.len(), 0);
        let again = |turns: &mut Turns<usize, u64>, turn: Turn<usize>, cost| turns.push(turn, floods[turn.party].0, cost);
        turns.push(newcomer, 1, COSTS[0]);
        for _ in 0..rounds {
            let (turn, cost) = serve(&mut turns, |turn, _| turn != newcomer).unwrap();
            again(&mut turns, turn, cost);
        }
        let mut ahead = vec![0u64; floods.len()];
        loop {
            let (turn, cost) = serve(&mut turns, |_, _| true).unwrap();
            if turn == newcomer {
                break;
            }
            ahead[turn.party] += cost;
            again(&mut turns, turn, cost);
        }
        for (&(weight, _, cost), &ahead) in floods.iter().zip(&ahead) {
            let most = 2 * u64::from(weight) * QUANTUM + COSTS[cost];
            prop_assert!(ahead <= most, "{ahead} ahead, of at most {most}");
        }
    }
}
