//! Randomness.

/// Pseudo-random numbers from a seed: fast, repeatable, not secret.
#[derive(Debug, Clone)]
pub struct Random(fastrand::Rng);

impl Random {
    /// The generator of this seed.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// A word of 64 random bits.
    #[inline]
    pub fn word(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// A number below `limit`; zero when `limit` is zero.
    #[inline]
    pub fn below(&mut self, limit: u64) -> u64 {
        if limit == 0 { 0 } else { self.0.u64(..limit) }
    }

    /// True in `numerator` of `denominator` cases.
    #[inline]
    pub fn one_in(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }

    /// A number in [0, 1).
    #[inline]
    pub fn unit(&mut self) -> f64 {
        self.0.f64()
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }

    /// Puts `items` in random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        self.0.shuffle(items);
    }
}
