//! Separates Rust code from comments and literals, as far as the rules need it.

/// `source` with comments and the contents of string and character literals turned into spaces.
/// Lines stay where they are.
pub(super) fn code_only(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let follows_identifier = at > 0 && is_identifier(bytes[at - 1]);
        match masked_length(&bytes[at..], follows_identifier) {
            Some(length) => {
                let end = bytes.len().min(at + length);
                out[at..end].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
                at = end;
            }
            None => at += 1,
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Whether `byte` can be part of an identifier.
pub(super) fn is_identifier(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric() || byte >= 0x80
}

/// The offsets at which `word` stands in `text` as a word of its own.
pub(super) fn word_offsets<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = text.as_bytes();
    let is_boundary = move |inside: Option<&u8>, outside: Option<&u8>| {
        !(inside.copied().is_some_and(is_identifier) && outside.copied().is_some_and(is_identifier))
    };
    text.match_indices(word).map(|(offset, _)| offset).filter(move |&offset| {
        let before = offset.checked_sub(1).and_then(|before| bytes.get(before));
        let after = bytes.get(offset + word.len());
        is_boundary(word.as_bytes().first(), before) && is_boundary(word.as_bytes().last(), after)
    })
}

/// The line, counted from 1, of the byte at `offset`.
pub(super) fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// Length of the comment or literal at the front of `rest`, if there is one.
fn masked_length(rest: &[u8], follows_identifier: bool) -> Option<usize> {
    match rest {
        [b'/', b'/', ..] => Some(rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len())),
        [b'/', b'*', ..] => Some(block_comment_length(rest)),
        [b'"', ..] => Some(quoted_length(rest, b'"')),
        [b'r', ..] if !follows_identifier => raw_string_length(rest),
        [b'b' | b'c', b'r', ..] if !follows_identifier => raw_string_length(&rest[1..]).map(|length| length + 1),
        [b'\'', b'\\', ..] | [b'\'', _, b'\'', ..] => Some(quoted_length(rest, b'\'')),
        // A character of more than one byte; otherwise the quote starts a lifetime.
        [b'\'', first, ..] if *first >= 0x80 => Some(quoted_length(rest, b'\'')),
        _ => None,
    }
}

fn block_comment_length(rest: &[u8]) -> usize {
    let mut depth = 0usize;
    let mut at = 0;
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn quoted_length(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

/// `rest` starts with `r`.
fn raw_string_length(rest: &[u8]) -> Option<usize> {
    let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return None;
    }
    let end = [b"\"", "#".repeat(hashes).as_bytes()].concat();
    let body = 2 + hashes;
    let length = rest[body..].windows(end.len()).position(|window| window == end);
    Some(length.map_or(rest.len(), |length| body + length + end.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_masked() {
        for source in [
            "a // unsafe\nb",
            "a /* x /* unsafe */ unsafe */ b",
            "a \"unsafe \\\" unsafe\" b",
            "a r#\"unsafe \" unsafe\"# b",
            "a br\"unsafe\" b",
            "a '\"' b '\\'' b 'é' \"unsafe\" b",
        ] {
            let code = code_only(source);
            assert!(!code.contains("unsafe"), "{source}: {code}");
            assert!(code.starts_with('a') && code.ends_with('b'), "{source}: {code}");
            assert_eq!(code.lines().count(), source.lines().count());
        }
    }

    #[test]
    fn code_is_not_masked() {
        for source in ["fn f<'a>(x: &'a str) -> &'a str { x }", "let r#type = attr / 2;", "for r in rows {}"] {
            assert_eq!(code_only(source), source);
        }
    }

    #[test]
    fn any_cut_is_masked_without_panic() {
        let source = "a \"\\\" b\" /* /* */ r#\"x\"# 'é' '\\n' // é";
        for (cut, _) in source.char_indices() {
            code_only(&source[..cut]);
        }
    }

    #[test]
    fn words_have_boundaries() {
        let offsets = |text, word| word_offsets(text, word).collect::<Vec<_>>();
        assert_eq!(offsets("unsafe_code unsafe reunsafe", "unsafe"), [12]);
        assert_eq!(offsets("stop!( stop", "stop!("), [0]);
        assert_eq!(line_of("a\nb\nc", 4), 3);
    }
}
