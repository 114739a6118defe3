//! Packed entries of a fixed number of bits.

/// The lowest `bits` bits set.
#[inline]
pub(crate) const fn mask(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// Number of bits for numbers up to `largest`.
pub(crate) const fn width(largest: u64) -> u32 {
    64 - largest.leading_zeros()
}

/// Entry `index` of entries of `bits` bits, at most 57. Eight bytes must follow the last entry.
#[inline]
pub(crate) fn load(bytes: &[u8], index: u32, bits: u32) -> Option<u64> {
    let at = u64::from(index) * u64::from(bits);
    let word: &[u8; 8] = bytes.get((at / 8) as usize..)?.first_chunk()?;
    Some(u64::from_le_bytes(*word) >> (at % 8) & mask(bits))
}

/// Sets entry `index`, which is zero; bytes as for [`load`].
pub(crate) fn store(bytes: &mut [u8], index: u32, bits: u32, value: u64) {
    let at = u64::from(index) * u64::from(bits);
    if let Some(word) = bytes.get_mut((at / 8) as usize..).and_then(|rest| rest.first_chunk_mut::<8>()) {
        *word = (u64::from_le_bytes(*word) | value << (at % 8)).to_le_bytes();
    }
}
