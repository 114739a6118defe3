//! Heights of the skip list's nodes: a quarter of the nodes of one level are on the next.
//!
//! Heights look random and are a function of a record's ordinal in its memtable and of a seed: the
//! ordinals of a group of 4,096 are permuted, and the permuted number's trailing zeros give the
//! height. So a group has exactly 1,024 nodes above level 0, 256 above level 1, and so on, and the
//! arena can be sized so that it never runs out. The seed keeps whoever chooses the keys from
//! choosing the tall ones.

use forebay_base::record::MIN_RECORD_BYTES;

/// Most levels of a node: a quarter of 4^12 records' worth of levels, and one.
pub(crate) const MAX_HEIGHT: usize = 13;
/// Words before a node's links: prefix (two) and record.
pub(crate) const HEADER_WORDS: usize = 3;
/// Nodes start at multiples of this many words, 16 bytes, so that a node of one level, as three of
/// four are, does not straddle a cache line.
pub(crate) const NODE_WORDS: usize = 4;

const GROUP_BITS: u32 = 12;
const GROUP: usize = 1 << GROUP_BITS;

/// Words of a node of this height.
pub(crate) const fn node_words(height: usize) -> usize {
    (HEADER_WORDS + height).next_multiple_of(NODE_WORDS)
}

/// Words that the nodes of a whole group need at most.
const GROUP_WORDS: usize = {
    // By height: 3,072 of 1; 1,020 of 2 to 5; 3 of 6; one taller.
    3072 * node_words(1) + 1020 * node_words(5) + 3 * node_words(6) + node_words(MAX_HEIGHT)
};

/// Words of an arena (with its head) that holds the nodes of any block of `capacity_bytes`.
pub(crate) const fn arena_words(capacity_bytes: usize) -> usize {
    let records = capacity_bytes / MIN_RECORD_BYTES;
    let in_groups = records.div_ceil(GROUP) * GROUP_WORDS;
    let one_by_one = records * node_words(MAX_HEIGHT);
    let nodes = if in_groups < one_by_one { in_groups } else { one_by_one };
    node_words(MAX_HEIGHT) + nodes
}

/// Height, from 1 to [`MAX_HEIGHT`], of the node of the record with this ordinal.
#[inline]
pub(crate) fn height(seed: u64, ordinal: u32) -> usize {
    let random = mix(seed ^ u64::from(ordinal >> GROUP_BITS));
    let permuted = permute(ordinal, random);
    if permuted == 0 {
        // The group's one tallest node goes on by chance.
        let more = mix(random).trailing_zeros() / 2;
        return MAX_HEIGHT.min((1 + GROUP_BITS / 2 + more) as usize);
    }
    (1 + permuted.trailing_zeros() / 2) as usize
}

/// A permutation of the numbers below [`GROUP`]: each step can be undone.
const fn permute(number: u32, key: u64) -> u32 {
    const MASK: u32 = (1 << GROUP_BITS) - 1;
    let mut x = (number ^ key as u32) & MASK;
    let mut round = 0;
    while round < 3 {
        x = x.wrapping_mul((key >> (13 * (round + 1))) as u32 | 1) & MASK;
        x ^= x >> (GROUP_BITS / 2 + 1);
        x = (x + 0x5a7) & MASK;
        round += 1;
    }
    x
}

/// A mixer of 64 bits (the finaliser of splitmix64).
const fn mix(word: u64) -> u64 {
    let mut x = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_exactly_a_quarter_per_level() {
        for (seed, group) in [(1, 0), (1, 1), (7, 4095), (u64::MAX, 3)].into_iter().take(if cfg!(miri) { 1 } else { 4 })
        {
            let mut above = [0; MAX_HEIGHT + 1];
            let mut words = 0;
            for i in 0..GROUP as u32 {
                let h = height(seed, group * GROUP as u32 + i);
                words += node_words(h);
                above[..h].iter_mut().for_each(|n| *n += 1);
            }
            assert_eq!(above[..7], [4096, 1024, 256, 64, 16, 4, 1], "seed {seed}");
            assert!(words <= GROUP_WORDS, "seed {seed}");
        }
    }

    #[test]
    fn heights_follow_no_short_period() {
        // Every 4th, 8th, … ordinal has its share of tall nodes, whatever the seed.
        for seed in 0..if cfg!(miri) { 1 } else { 200 } {
            for stride in if cfg!(miri) { &[4u32][..] } else { &[2, 4, 8, 16] } {
                for phase in 0..*stride {
                    let tall = (0..GROUP as u32).filter(|i| i % stride == phase && height(seed, *i) > 1).count();
                    let expected = GROUP / 4 / *stride as usize;
                    assert!(2 * tall > expected && tall < 2 * expected, "seed {seed} stride {stride}: {tall}");
                }
            }
        }
    }

    #[test]
    fn a_tiny_block_has_a_tiny_arena() {
        assert_eq!(arena_words(48), 16 + 3 * 16);
        assert_eq!(arena_words(1 << 16), 16 + GROUP_WORDS);
    }
}
