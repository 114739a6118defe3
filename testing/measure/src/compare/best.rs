//! What was measured of a group of rows.

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
