//! Words of a line.

use std::ops::Range;

/// Splits a line into words as a shell does, with `"…"` (with escapes) and `'…'`, and decodes them in place. `None` when a
/// quote does not end, or is not followed by a space.
#[must_use]
pub fn split(line: &mut [u8]) -> Option<Vec<Range<usize>>> {
    let mut words = Vec::new();
    let (mut from, mut to) = (0, 0);
    let mut source = line.to_vec();
    if source.last() == Some(&b'\r') {
        source.pop();
    }
    let at = |from: usize| source.get(from).copied();
    let mut put = |byte: u8, to: &mut usize| {
        if let Some(place) = line.get_mut(*to) {
            *place = byte;
        }
        *to += 1;
    };
    loop {
        while at(from).is_some_and(|byte| byte.is_ascii_whitespace()) {
            from += 1;
        }
        if from >= source.len() {
            return Some(words);
        }
        let start = to;
        while let Some(byte) = at(from).filter(|byte| !byte.is_ascii_whitespace()) {
            from += 1;
            match byte {
                b'"' | b'\'' => {
                    loop {
                        let inner = at(from)?;
                        from += 1;
                        match inner {
                            _ if inner == byte => break,
                            b'\\' if byte == b'"' => {
                                let (decoded, length) = escape(source.get(from..)?)?;
                                put(decoded, &mut to);
                                from += length;
                            }
                            b'\\' if at(from) == Some(b'\'') => {
                                put(b'\'', &mut to);
                                from += 1;
                            }
                            _ => put(inner, &mut to),
                        }
                    }
                    if at(from).is_some_and(|byte| !byte.is_ascii_whitespace()) {
                        return None;
                    }
                }
                _ => put(byte, &mut to),
            }
        }
        words.push(start..to);
    }
}

/// The byte that follows a backslash within `"`, and how long its escape is.
fn escape(rest: &[u8]) -> Option<(u8, usize)> {
    let digit =
        |at: usize| rest.get(at).and_then(|&byte| char::from(byte).to_digit(16)).and_then(|d| u8::try_from(d).ok());
    let first = *rest.first()?;
    if first == b'x'
        && let (Some(high), Some(low)) = (digit(1), digit(2))
    {
        return Some((high << 4 | low, 3));
    }
    let byte = match first {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    };
    Some((byte, 1))
}
