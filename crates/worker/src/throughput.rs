//! What a worker writes a second, and what it can: the best second that it has had (O3-LSM 4.3's calibrated bandwidth).

use forebay_env::Nanos;

const SECOND: Nanos = 1_000_000_000;

/// See the module.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Throughput {
    /// When the second that is being measured began, and how much had been written by then.
    began: Nanos,
    written: u64,
    /// Bytes of the last whole second.
    pub per_second: u64,
    /// Most bytes of a second.
    pub best_per_second: u64,
}

impl Throughput {
    /// So much has been written in all by now.
    pub fn look(&mut self, now: Nanos, written: u64) {
        let took = now.saturating_sub(self.began);
        if took < SECOND {
            return;
        }
        let bytes = written.saturating_sub(self.written);
        let per_second = u128::from(bytes) * u128::from(SECOND) / u128::from(took);
        self.per_second = u64::try_from(per_second).unwrap_or(u64::MAX);
        self.best_per_second = self.best_per_second.max(self.per_second);
        (self.began, self.written) = (now, written);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_second_is_what_it_can_do() {
        let mut throughput = Throughput::default();
        let mut told = Vec::new();
        for (now, written) in [(SECOND, 100), (SECOND + 1, 200), (3 * SECOND, 1100), (4 * SECOND, 1100)] {
            throughput.look(now, written);
            told.push((throughput.per_second, throughput.best_per_second));
        }
        assert_eq!(told, [(100, 100), (100, 100), (500, 500), (0, 500)]);
    }
}
