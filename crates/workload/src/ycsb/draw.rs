//! The choice of the record for an operation.

use forebay_env::Random;
use std::str::FromStr;

/// Skew of YCSB's own workloads.
pub const YCSB_THETA: f64 = 0.99;

/// The distribution of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distribution {
    /// All records are equally likely.
    Uniform,
    /// The probability of the r-th most popular record is proportional to r to the power of minus
    /// theta. Popularity is unrelated to key order, because keys are scrambled.
    Zipfian,
    /// The same, with the newest record as the most popular.
    Latest,
}

impl Distribution {
    const ALL: [(&'static str, Self); 3] =
        [("uniform", Self::Uniform), ("zipfian", Self::Zipfian), ("latest", Self::Latest)];
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|(known, _)| *known == name);
        let wrong = || format!("there is no distribution `{name}`; there are uniform, zipfian, latest");
        found.map(|(_, distribution)| distribution).ok_or_else(wrong)
    }
}

/// Ranks from 0 with Zipf's law, exact for every positive exponent, in constant time and memory:
/// rejection-inversion (Hörmann and Derflinger 1996). It inverts a continuous density above the
/// law's probabilities, and rejects what lies between the two.
#[derive(Debug, Clone)]
pub struct Zipf {
    count: f64,
    theta: f64,
    area_first: f64,
    area_all: f64,
    /// Points up to this far to the right of a rank are accepted without computing probabilities.
    accepted: f64,
}

impl Zipf {
    /// Ranks below `count`, which is at least 1, with exponent `theta`.
    #[must_use]
    pub fn new(count: u64, theta: f64) -> Self {
        let mut zipf = Self { count: count.max(1) as f64, theta, area_first: 0.0, area_all: 0.0, accepted: 0.0 };
        zipf.area_first = zipf.area(1.5) - 1.0;
        zipf.area_all = zipf.area(zipf.count + 0.5);
        zipf.accepted = 2.0 - zipf.point(zipf.area(2.5) - zipf.density(2.0));
        zipf
    }

    /// Draws a rank.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.area_all + random.unit() * (self.area_first - self.area_all);
            let point = self.point(area);
            let rank = point.round().clamp(1.0, self.count);
            if rank - point <= self.accepted || area >= self.area(rank + 0.5) - self.density(rank) {
                return rank as u64 - 1;
            }
        }
    }

    fn density(&self, point: f64) -> f64 {
        (-self.theta * point.ln()).exp()
    }

    /// Area under the density from 1 to `point`.
    fn area(&self, point: f64) -> f64 {
        let log = point.ln();
        let exponent = (1.0 - self.theta) * log;
        // Near 1 the usual form loses all digits, so this uses (e^x - 1) / x.
        let slope = if exponent.abs() > 1e-8 { exponent.exp_m1() / exponent } else { 1.0 + exponent / 2.0 };
        slope * log
    }

    /// The inverse of `area`.
    fn point(&self, area: f64) -> f64 {
        let exponent = (area * (1.0 - self.theta)).max(-1.0);
        let slope = if exponent.abs() > 1e-8 { exponent.ln_1p() / exponent } else { 1.0 - exponent / 2.0 };
        (slope * area).exp()
    }
}

/// Draws the records of a phase.
#[derive(Debug, Clone)]
pub(super) struct Chooser {
    distribution: Distribution,
    zipf: Zipf,
}

impl Chooser {
    /// A drawer for a store that has `count` records at the beginning.
    pub fn new(distribution: Distribution, count: u64, theta: f64) -> Self {
        Self { distribution, zipf: Zipf::new(count, theta) }
    }

    /// Draws a record below `count`, which only grows.
    #[inline]
    pub fn draw(&self, count: u64, random: &mut Random) -> u64 {
        match self.distribution {
            Distribution::Uniform => random.below(count),
            Distribution::Zipfian => self.zipf.draw(random),
            Distribution::Latest => count.saturating_sub(1 + self.zipf.draw(random)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_are_those_of_the_law() {
        for theta in [0.5, 0.99, 1.0, 1.7366] {
            let (count, draws) = (50_u64, 200_000);
            let zipf = Zipf::new(count, theta);
            let mut random = Random::seeded(7);
            let mut seen = vec![0_u64; count as usize];
            for _ in 0..draws {
                seen[zipf.draw(&mut random) as usize] += 1;
            }
            let weight = |rank: u64| (rank as f64 + 1.0).powf(-theta);
            let sum: f64 = (0..count).map(weight).sum();
            for rank in 0..count {
                let expected = weight(rank) / sum * f64::from(draws);
                let error = (seen[rank as usize] as f64 - expected).abs();
                assert!(error < 6.0 * expected.sqrt() + 3.0, "theta {theta} rank {rank}: {error} of {expected}");
            }
        }
    }

    #[test]
    fn what_is_drawn_exists() {
        let mut random = Random::seeded(1);
        for distribution in [Distribution::Uniform, Distribution::Zipfian, Distribution::Latest] {
            for count in [1, 2, 1000] {
                let chooser = Chooser::new(distribution, count, YCSB_THETA);
                assert!((0..1000).all(|_| chooser.draw(count, &mut random) < count));
            }
        }
        assert!("zipf".parse::<Distribution>().is_err());
    }
}
