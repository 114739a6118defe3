//! Rust code as words and signs, without the code for tests.

use super::masking::{code_only, is_identifier};

/// A word, `::`, or any other sign of one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    /// Counted from 1.
    pub(super) line: usize,
}

impl Token<'_> {
    pub(super) fn is_word(&self) -> bool {
        self.text.bytes().next().is_some_and(is_identifier)
    }
}

/// The first words of items that may have commas outside of brackets.
const ITEMS: &[&str] =
    &["fn", "const", "async", "unsafe", "extern", "impl", "struct", "enum", "union", "trait", "mod", "macro_rules"];

/// Source text that is ready to be cut into tokens: comments and literals are blank.
#[derive(Debug)]
pub(super) struct Code(String);

impl Code {
    pub(super) fn of(source: &str) -> Self {
        Self(code_only(source))
    }

    /// The tokens of what is built outside of tests, without attributes. Nothing when all of it is for tests.
    pub(super) fn tokens(&self) -> Vec<Token<'_>> {
        let all = cut(&self.0);
        let mut kept = Vec::with_capacity(all.len());
        let mut at = 0;
        while let Some(token) = all.get(at) {
            let Some(attribute) = attribute(&all, at) else {
                kept.push(*token);
                at += 1;
                continue;
            };
            at = attribute.end;
            match (is_for_tests(&all[attribute.start..attribute.end]), attribute.is_inner) {
                (true, true) => return Vec::new(),
                (true, false) => at = end_of_item(&all, at),
                (false, _) => {}
            }
        }
        kept
    }
}

fn cut(code: &str) -> Vec<Token<'_>> {
    let bytes = code.as_bytes();
    let mut tokens = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < bytes.len() {
        let rest = &code[at..];
        let word = rest.bytes().take_while(|byte| is_identifier(*byte)).count();
        let length = match word {
            0 if rest.starts_with("::") => 2,
            0 => 1,
            // A raw identifier.
            1 if rest.starts_with("r#") => 2 + rest.bytes().skip(2).take_while(|byte| is_identifier(*byte)).count(),
            word => word,
        };
        let text = &rest[..length];
        if !text.trim().is_empty() {
            tokens.push(Token { text, line });
        }
        line += usize::from(text == "\n");
        at += length;
    }
    tokens
}

/// The place of an attribute, from its `#` to after its bracket.
struct Attribute {
    start: usize,
    end: usize,
    /// Whether it applies to the enclosing item: `#![…]`.
    is_inner: bool,
}

fn attribute(tokens: &[Token<'_>], start: usize) -> Option<Attribute> {
    let text = |at: usize| tokens.get(at).map(|token| token.text);
    let is_inner = text(start + 1) == Some("!");
    let bracket = start + 1 + usize::from(is_inner);
    let is_attribute = text(start) == Some("#") && text(bracket) == Some("[");
    is_attribute.then(|| Attribute { start, end: end_of_group(tokens, bracket), is_inner })
}

/// Whether `attribute` is a `cfg` that holds in tests only: it has `test`, alone or in `all(…)`.
fn is_for_tests(attribute: &[Token<'_>]) -> bool {
    let mut groups = Vec::new();
    for (at, token) in attribute.iter().enumerate() {
        match token.text {
            "(" => groups.push(at.checked_sub(1).map_or("", |before| attribute[before].text)),
            ")" => drop(groups.pop()),
            "test" if groups.first() == Some(&"cfg") && groups[1..].iter().all(|group| *group == "all") => return true,
            _ => {}
        }
    }
    false
}

/// The place after the bracket that closes the one at `open`.
pub(super) fn end_of_group(tokens: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// The place after the item, field, variant or statement that begins at `start`.
fn end_of_item(tokens: &[Token<'_>], start: usize) -> usize {
    let mut at = start;
    while let Some(attribute) = attribute(tokens, at) {
        at = attribute.end;
    }
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text);
    if text(at) == "pub" {
        at = if text(at + 1) == "(" { end_of_group(tokens, at + 1) } else { at + 1 };
    }
    let keyword = text(at);
    let ends_with_semicolon = matches!(keyword, "use" | "const" | "static" | "type" | "let") && text(at + 1) != "fn";
    let is_item = ends_with_semicolon || ITEMS.contains(&keyword);
    while let Some(token) = tokens.get(at) {
        match token.text {
            ";" => return at + 1,
            "," if !is_item => return at + 1,
            ")" | "]" | "}" => return at,
            "{" => {
                at = end_of_group(tokens, at);
                if !ends_with_semicolon {
                    return at;
                }
            }
            "(" | "[" => at = end_of_group(tokens, at),
            _ => at += 1,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(source: &str) -> String {
        let code = Code::of(source);
        code.tokens().iter().map(|token| token.text).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn words_and_signs_keep_their_lines() {
        let code = Code::of("use a::b; // c::d\nr#type");
        let found: Vec<_> = code.tokens().iter().map(|token| (token.text, token.line)).collect();
        assert_eq!(found, [("use", 1), ("a", 1), ("::", 1), ("b", 1), (";", 1), ("r#type", 2)]);
    }

    #[test]
    fn what_is_for_tests_is_left_out() {
        for source in [
            "a #[cfg(test)] mod tests { b } c",
            "a #[cfg(all(test, not(miri)))] #[path = \"x\"] mod tests; c",
            "a #[cfg(test)] pub(super) use x::{b, d}; c",
            "a #[cfg(test)] pub(crate) fn b<A, B>(x: [u8; 2]) -> A { d } c",
            "a #[cfg(test)] const X: Y = Y { b: 1 }; c",
            "a #[cfg(test)] impl<A, B> X for Y { b } c",
            "a #[cfg(test)] b: Option<u8>, c",
            "a #[allow(b)] c",
        ] {
            assert_eq!(kept(source), "a c", "{source}");
        }
        assert_eq!(kept("{ a #[cfg(test)] b: u8 } c"), "{ a } c");
        assert_eq!(kept("#![cfg(test)] a"), "");
    }

    #[test]
    fn what_is_not_only_for_tests_stays() {
        for condition in ["not(test)", "any(test, miri)", "all(not(test), miri)", "miri"] {
            assert_eq!(kept(&format!("#[cfg({condition})] mod a;")), "mod a ;", "{condition}");
        }
    }
}
