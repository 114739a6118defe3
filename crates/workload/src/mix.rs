//! A mixing function. Equal inputs give equal outputs, on every machine and in every version.

/// Spreads `word` over all 64 bits (the finalizer of SplitMix64).
#[inline]
pub(crate) const fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Spreads two words.
#[inline]
pub(crate) const fn mix_two(first: u64, second: u64) -> u64 {
    mix(mix(first) ^ second)
}

#[cfg(test)]
mod tests {
    #[test]
    fn golden_words() {
        // Recorded values depend on this function, so it must not change.
        assert_eq!(super::mix(0), 0xe220_a839_7b1d_cdaf);
        assert_ne!(super::mix_two(1, 2), super::mix_two(2, 1));
    }
}
