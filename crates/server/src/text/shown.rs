//! Bytes of clients, made safe to show: in a log, on a terminal, in a line of `MONITOR`.

use std::fmt::Write;

/// `bytes` between double quotes; everything but printable ASCII is escaped.
#[must_use]
pub fn quoted(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() + 2);
    text.push('"');
    for &byte in bytes {
        match byte {
            b'\\' | b'"' => {
                text.push('\\');
                text.push(char::from(byte));
            }
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            7 => text.push_str("\\a"),
            8 => text.push_str("\\b"),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => {
                let _ = write!(text, "\\x{byte:02x}");
            }
        }
    }
    text.push('"');
    text
}

/// Returns the bytes before the first zero byte: the part that Redis uses of a script's text.
#[must_use]
pub fn up_to_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// At most `most` bytes of `bytes` as text for an error message: bytes that are not printable ASCII are left out.
#[must_use]
pub fn short(bytes: &[u8], most: usize) -> String {
    let shown = bytes.get(..most.min(bytes.len())).unwrap_or_default();
    let printable = |&byte: &u8| match byte {
        b' '..=b'~' => char::from(byte),
        b'\r' | b'\n' => ' ',
        _ => '?',
    };
    shown.iter().map(printable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leaves_as_it_came_but_printable_text() {
        assert_eq!(quoted(b"a\"\\\n\r\t\x07\x08\x00\xffz"), r#""a\"\\\n\r\t\a\b\x00\xffz""#);
        let all: Vec<u8> = (0..=255).collect();
        assert!(quoted(&all).bytes().all(|byte| matches!(byte, b' '..=b'~')));
        assert_eq!(short(b"get\r\x00me", 5), "get ?");
        assert_eq!([&b""[..], b"a b", b"a\0b", b"\0"].map(up_to_zero), [&b""[..], b"a b", b"a", b""]);
    }
}
