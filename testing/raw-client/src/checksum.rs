//! The two checksums, by tables: CRC32C (Castagnoli) and CRC-32 (ISO-HDLC), both reflected.

/// CRC32C, of frames.
pub(crate) fn crc32c(parts: &[&[u8]]) -> u32 {
    crc(&CASTAGNOLI, parts)
}

/// CRC-32, of envelopes.
pub(crate) fn crc32(parts: &[&[u8]]) -> u32 {
    crc(&ISO_HDLC, parts)
}

const CASTAGNOLI: [u32; 256] = table(0x82f6_3b78);
const ISO_HDLC: [u32; 256] = table(0xedb8_8320);

const fn table(polynomial: u32) -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ polynomial } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

fn crc(table: &[u32; 256], parts: &[&[u8]]) -> u32 {
    let bytes = parts.iter().copied().flatten();
    !bytes.fold(!0, |crc, byte| crc >> 8 ^ table[usize::from(crc as u8 ^ byte)])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check values in the catalogues of CRCs.
    #[test]
    fn check_values() {
        assert_eq!((crc32c(&[b"1234", b"56789"]), crc32(&[b"123456789"])), (0xe306_9283, 0xcbf4_3926));
    }
}
