//! Patterns of `KEYS`, `SCAN`, `PSUBSCRIBE` and `CONFIG GET`: `*`, `?`, `[a-z]`, `[^a]`, `\` before a byte that is meant.

/// Whether all of `text` matches `pattern`. Takes time proportional to the product of their lengths, at most.
#[must_use]
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    matches_case(pattern, text, false)
}

/// As [`matches()`], but capital and small letters are the same.
#[must_use]
pub fn matches_any_case(pattern: &[u8], text: &[u8]) -> bool {
    matches_case(pattern, text, true)
}

/// When something does not match, only the last `*` needs to take more: the last `*` can also take what an earlier one
/// could take instead.
fn matches_case(pattern: &[u8], text: &[u8], any_case: bool) -> bool {
    let (mut at, mut read) = (0, 0);
    let mut last_star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            last_star = Some((at, read));
            continue;
        }
        let next = match (text.get(read), at < pattern.len()) {
            (None, false) => return true,
            (None, true) => return false,
            (Some(&byte), true) => one(pattern.get(at..).unwrap_or_default(), byte, any_case).map(|length| at + length),
            (Some(_), false) => None,
        };
        match (next, last_star) {
            (Some(next), _) => {
                at = next;
                read += 1;
            }
            (None, Some((star, taken))) => {
                at = star;
                read = taken + 1;
                last_star = Some((star, read));
            }
            (None, None) => return false,
        }
    }
}

/// Length of the pattern's first element when it matches `byte`.
fn one(pattern: &[u8], byte: u8, any_case: bool) -> Option<usize> {
    let fold = |byte: u8| if any_case { byte.to_ascii_lowercase() } else { byte };
    match *pattern.first()? {
        b'?' => Some(1),
        b'[' => {
            let (length, is_in) = class(pattern, fold(byte), &fold);
            is_in.then_some(length)
        }
        b'\\' if pattern.len() > 1 => (fold(*pattern.get(1)?) == fold(byte)).then_some(2),
        literal => (fold(literal) == fold(byte)).then_some(1),
    }
}

/// Length of the class that `pattern` begins with, and whether `byte` is in it. A class that does not end goes up to
/// the pattern's end.
fn class(pattern: &[u8], byte: u8, fold: &impl Fn(u8) -> u8) -> (usize, bool) {
    let at = |place: usize| pattern.get(place).copied();
    let negated = at(1) == Some(b'^');
    let mut place = if negated { 2 } else { 1 };
    let mut found = false;
    loop {
        match at(place) {
            None => return (place, found != negated),
            Some(b']') => return (place + 1, found != negated),
            Some(b'\\') if place + 1 < pattern.len() => {
                found |= at(place + 1).is_some_and(|literal| literal == byte);
                place += 2;
            }
            Some(from) if at(place + 1) == Some(b'-') && place + 2 < pattern.len() => {
                let to = at(place + 2).unwrap_or(from);
                let (low, high) = (fold(from.min(to)), fold(from.max(to)));
                found |= (low..=high).contains(&byte);
                place += 3;
            }
            Some(literal) => {
                found |= fold(literal) == byte;
                place += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abbcd", false),
            ("*a*b*", "xxaxxbxx", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hello", false),
            ("[a", "a", true),
            ("a**b", "ab", true),
            ("*?", "", false),
            ("[\\]]", "]", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
        assert!(matches_any_case(b"MaX*", b"maxmemory") && !matches(b"MaX*", b"maxmemory"));
    }

    #[test]
    fn many_stars_take_no_longer() {
        let pattern = [b"a*".repeat(500), b"b".to_vec()].concat();
        assert!(!matches(&pattern, &vec![b'a'; 5000]));
    }
}
