//! How a scheduler places jobs, as a flag: the name of a policy, and what differs from it.
//!
//! ```text
//!   sparing                     away,patience=2s                     paper,moved=0.5,pending=2
//! ```

use crate::units;
use forebay_offload::{Policy, Weights};

/// Names of weights.
const NAMED: [(&str, Weights); 4] =
    [("sparing", Weights::SPARING), ("away", Weights::AWAY), ("paper", Weights::PAPER), ("moving", Weights::MOVING)];

/// The name of the weights that [`Policy::default`] has.
pub const USUAL: &str = "sparing";

/// The largest weight.
const MOST: f64 = 1e6;

/// What can differ.
const PARTS: &str = "threads, throughput, pending, moved and home are weights, accept, silence and patience times, ahead a size, \
                     attempts a number";

/// Parses the policy of a scheduler.
///
/// # Errors
/// What would be valid.
pub fn policy(text: &str) -> Result<Policy, String> {
    let mut policy = Policy::default();
    for (place, word) in text.split(',').enumerate() {
        match (word.split_once('='), NAMED.iter().find(|(name, _)| *name == word)) {
            (Some((name, value)), _) => set(&mut policy, name, value).map_err(|why| format!("{name}: {why}"))?,
            (None, Some((_, weights))) if place == 0 => policy.weights = *weights,
            _ => {
                return Err(format!(
                    "sparing, away, paper or moving, and then what is different, such as moved=0.5,patience=2s: {PARTS}"
                ));
            }
        }
    }
    Ok(policy)
}

/// Changes one setting.
fn set(policy: &mut Policy, name: &str, value: &str) -> Result<(), String> {
    let weight = || match value.parse::<f64>() {
        Ok(weight) if (0.0..=MOST).contains(&weight) => Ok((weight * 1000.0).round() as u32),
        _ => Err(format!("a weight is a number from 0 to {MOST}, such as 0.5")),
    };
    let time = || units::interval(value).map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    match name {
        "threads" => policy.weights.threads = weight()?,
        "throughput" => policy.weights.throughput = weight()?,
        "pending" => policy.weights.pending = weight()?,
        "moved" => policy.weights.moved = weight()?,
        "home" => policy.weights.home = weight()?,
        "accept" => policy.accept = time()?,
        "silence" => policy.silence = time()?,
        "patience" => policy.patience = time()?,
        "ahead" => policy.most_ahead_bytes = units::size(value)?,
        "attempts" => match value.parse() {
            Ok(attempts @ 1..=100) => policy.attempts = attempts,
            _ => return Err("a number from 1 to 100".to_owned()),
        },
        _ => return Err(format!("no such part: {PARTS}")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_what_is_different() {
        let of = policy;
        assert_eq!((of("sparing"), of(USUAL)), (Ok(Policy::default()), Ok(Policy::default())));
        assert_eq!(of("away"), Ok(Policy { weights: Weights::AWAY, ..Policy::default() }));
        let weights = Weights { moved: 500, pending: 2000, ..Weights::PAPER };
        let expected = Policy { weights, patience: 2_000_000_000, attempts: 5, ..Policy::default() };
        assert_eq!(of("paper,moved=0.5,pending=2,patience=2s,attempts=5"), Ok(expected));
        assert_eq!(of("home=0").map(|policy| policy.weights), Ok(Weights::PAPER));
        assert_eq!(of("ahead=1GiB").map(|policy| policy.most_ahead_bytes), Ok(1 << 30));
        for wrong in
            ["", "near", "paper,away", "moved", "moved=-1", "moved=2e6", "patience=0s", "attempts=0", "x=1", "paper,"]
        {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
