//! The hash of an element, and the estimate from what registers hold.
//!
//! The low bits of an element's hash choose a register. The register keeps the largest rank that it was given. The rank
//! of an element is the place of the lowest one bit among the other bits of its hash. The estimate is that of Otmar Ertl,
//! "New cardinality estimation algorithms for HyperLogLog sketches" (2017), section 4: it needs no correction constants.

/// Bits of a hash that choose the register.
const INDEX_BITS: u32 = 14;
/// Number of registers.
pub(super) const REGISTERS: usize = 1 << INDEX_BITS;
/// Bits of a hash that give the rank.
const RANK_BITS: u32 = 64 - INDEX_BITS;
/// Values that a register of six bits can have.
pub(super) const RANKS: usize = 64;
const SEED: u64 = 0xadc8_3b19;

/// The register of an element, and its rank, from 1 to 51.
pub(super) fn place(element: &[u8]) -> (usize, u8) {
    let hash = murmur(element, SEED);
    let index = hash & (REGISTERS as u64 - 1);
    let rank = (hash >> INDEX_BITS | 1 << RANK_BITS).trailing_zeros() + 1;
    (usize::try_from(index).unwrap_or(0), u8::try_from(rank).unwrap_or(u8::MAX))
}

/// MurmurHash64A.
fn murmur(bytes: &[u8], seed: u64) -> u64 {
    const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
    const SHIFT: u32 = 47;
    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(FACTOR);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let mut mixed = u64::from_le_bytes(*word).wrapping_mul(FACTOR);
        mixed ^= mixed >> SHIFT;
        hash = (hash ^ mixed.wrapping_mul(FACTOR)).wrapping_mul(FACTOR);
    }
    if !rest.is_empty() {
        let last = rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        hash = (hash ^ last).wrapping_mul(FACTOR);
    }
    hash = (hash ^ hash >> SHIFT).wrapping_mul(FACTOR);
    hash ^ hash >> SHIFT
}

/// The estimate from the number of registers of each rank.
pub(super) fn cardinality(histogram: &[u64; RANKS]) -> u64 {
    let registers = REGISTERS as f64;
    let of = |rank: u32| histogram.get(rank as usize).map_or(0.0, |&count| count as f64);
    let mut sum = registers * tau((registers - of(RANK_BITS + 1)) / registers);
    for rank in (1..=RANK_BITS).rev() {
        sum = (sum + of(rank)) * 0.5;
    }
    sum += registers * sigma(of(0) / registers);
    let alpha = 0.5 / std::f64::consts::LN_2;
    (alpha * registers * registers / sum).round() as u64
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut weight, mut sum) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let former = sum;
        weight *= 0.5;
        sum -= (1.0 - x) * (1.0 - x) * weight;
        if former == sum {
            return sum / 3.0;
        }
    }
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut weight, mut sum) = (1.0, x);
    loop {
        x *= x;
        let former = sum;
        sum += x * weight;
        weight += weight;
        if former == sum {
            return sum;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_estimated_as_nothing_and_everything_as_much() {
        let mut histogram = [0; RANKS];
        histogram[0] = REGISTERS as u64;
        assert_eq!(cardinality(&histogram), 0);
        let mut histogram = [0; RANKS];
        histogram[51] = REGISTERS as u64;
        assert!(cardinality(&histogram) > 1 << 60);
    }

    #[test]
    fn estimates_are_within_three_standard_errors() {
        for count in [10_u64, 1000, 20_000, 300_000] {
            let mut ranks = vec![0_u8; REGISTERS];
            for element in 0..count {
                let (index, rank) = place(element.to_string().as_bytes());
                ranks[index] = ranks[index].max(rank);
            }
            let mut histogram = [0; RANKS];
            ranks.iter().for_each(|&rank| histogram[usize::from(rank)] += 1);
            let error = cardinality(&histogram).abs_diff(count) as f64 / count as f64;
            assert!(error <= 3.0 * 0.0081, "{count}: {error}");
        }
    }
}
