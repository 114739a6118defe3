//! The measurements of a group of rows.

use super::groups::Figure;
use std::collections::BTreeMap;

/// Operations a second of each figure.
pub type Figures = BTreeMap<Figure, f64>;

/// Keeps the larger of each figure.
pub fn best_of(best: &mut Figures, others: &Figures) {
    for (&figure, &value) in others {
        let known = best.entry(figure).or_insert(value);
        *known = known.max(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_better_of_two_counts() {
        let run = |fill: f64| Figures::from([(Figure::Fill, fill)]);
        let mut best = run(2.0);
        best_of(&mut best, &run(1.0));
        assert_eq!(best, run(2.0));
        best_of(&mut best, &Figures::from([(Figure::Read, 1.0), (Figure::Fill, 4.0)]));
        assert_eq!(best, Figures::from([(Figure::Read, 1.0), (Figure::Fill, 4.0)]));
    }
}
