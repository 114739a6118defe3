//! The first line of a script or a library, which begins with `#!` and describes it.

use crate::text::words;

/// The flags that a script or a function may declare, by Redis's names.
const FLAGS: [&str; 5] = ["no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"];
/// The flag that has an effect here.
const NO_WRITES: u8 = 1;

/// The flags that a script or a function declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(u8);

impl Flags {
    /// Returns these flags with another one, if there is a flag of this name.
    #[must_use]
    pub fn with(self, name: &[u8]) -> Option<Self> {
        let place = FLAGS.iter().position(|flag| flag.as_bytes() == name)?;
        Some(Self(self.0 | 1 << place))
    }

    /// Whether the script does not write.
    #[must_use]
    pub const fn no_writes(self) -> bool {
        self.0 & NO_WRITES != 0
    }

    /// Their names.
    #[must_use]
    pub fn names(self) -> Vec<&'static str> {
        (0..).zip(FLAGS).filter(|(place, _)| self.0 & 1 << place != 0).map(|(_, name)| name).collect()
    }
}

/// What is wrong with a first line: the text of the reply.
pub type Wrong = String;

/// Returns the first line without `#!`, and the rest with unchanged line numbers.
fn split(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len());
    let (line, rest) = text.split_at(end);
    line.strip_prefix(b"#!").map(|line| (line, rest))
}

/// Its words; `None` when a quote does not end.
fn words_of(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut line = line.to_vec();
    let places = words::split(&mut line)?;
    Some(places.into_iter().filter_map(|place| line.get(place).map(<[u8]>::to_vec)).collect())
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the flags in a script's first line, if it has one, and the rest.
///
/// # Errors
/// When it makes no sense.
pub fn of_script(text: &[u8]) -> Result<(Option<Flags>, &[u8]), Wrong> {
    let Some((line, rest)) = split(text) else { return Ok((None, text)) };
    if rest.is_empty() {
        return Err("ERR Invalid script shebang".into());
    }
    let words = words_of(line).ok_or("ERR Invalid engine in script shebang")?;
    let (engine, options) = words.split_first().map_or((&[][..], &[][..]), |(first, rest)| (&first[..], rest));
    if engine != b"lua" {
        return Err(format!("ERR Unexpected engine in script shebang: #!{}", shown(engine)));
    }
    let mut flags = Flags::default();
    for word in options {
        let Some(named) = word.strip_prefix(b"flags=") else {
            return Err(format!("ERR Unknown lua shebang option: {}", shown(word)));
        };
        for flag in named.split(|byte| *byte == b',').filter(|flag| !flag.is_empty()) {
            let with = flags.with(flag);
            flags = with.ok_or_else(|| format!("ERR Unexpected flag in script shebang: {}", shown(flag)))?;
        }
    }
    Ok((Some(flags), rest))
}

/// Returns the name in a library's first line, and the rest.
///
/// # Errors
/// When it makes no sense.
pub fn of_library(text: &[u8]) -> Result<(String, &[u8]), Wrong> {
    let (line, rest) = split(text).ok_or("ERR Missing library metadata")?;
    let words = words_of(line).filter(|_| !rest.is_empty()).ok_or("ERR Invalid library metadata")?;
    // A space may follow `#!`; then there is no engine.
    let (engine, options) = match words.split_first() {
        Some((first, rest)) if line.first().is_some_and(|byte| !byte.is_ascii_whitespace()) => (&first[..], rest),
        _ => (&[][..], &words[..]),
    };
    let mut name: Option<&[u8]> = None;
    for word in options {
        let (start, value) = word.split_at_checked(5).unwrap_or((word, &[]));
        if !start.eq_ignore_ascii_case(b"name=") {
            return Err(format!("ERR Invalid metadata value given: {}", shown(word)));
        }
        if name.replace(value).is_some() {
            return Err("ERR Invalid metadata value, name argument was given multiple times".into());
        }
    }
    let name = name_in(name.ok_or("ERR Library name was not given")?)?;
    if !engine.eq_ignore_ascii_case(b"lua") {
        return Err(format!("ERR Engine '{}' not found", shown(engine)));
    }
    Ok((name, rest))
}

/// The name of a library or a function.
///
/// # Errors
/// When it cannot be a name.
pub fn name_in(given: &[u8]) -> Result<String, Wrong> {
    let is_right = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    if given.is_empty() || !given.iter().all(is_right) {
        return Err("ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one \
                    character long"
            .into());
    }
    Ok(shown(given))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_says_its_name() {
        for (text, expected) in [
            ("#!lua name=a_1\nx", Ok(("a_1".to_owned(), &b"\nx"[..]))),
            ("#!LUA  NAME=\"b\" \n", Ok(("b".to_owned(), b"\n"))),
            ("x\n", Err("Missing")),
            ("#!lua name=a", Err("Invalid library")),
            ("#!lua \"name=a\n", Err("Invalid library")),
            ("#!lua\n", Err("not given")),
            ("#!\n", Err("not given")),
            ("#!lua name=a name=b\n", Err("multiple times")),
            ("#!lua x=1\n", Err("given: x=1")),
            ("#!lua name=a-b\n", Err("can only contain")),
            ("#!js name=a\n", Err("Engine 'js' not found")),
        ] {
            match (of_library(text.as_bytes()), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{text}"),
                (Err(why), Err(part)) => assert!(why.contains(part), "{text}: {why}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_script_has_more_than_a_first_line() {
        for text in ["#!lua", "#!", "#!lua flags=no-writes"] {
            assert_eq!(of_script(text.as_bytes()), Err("ERR Invalid script shebang".to_owned()), "{text}");
        }
        assert_eq!(of_script(b"#!lua \"\n"), Err("ERR Invalid engine in script shebang".to_owned()));
        assert_eq!(of_script(b"#!lua\n"), Ok((Some(Flags::default()), &b"\n"[..])));
        assert_eq!(of_script(b""), Ok((None, &b""[..])));
    }

    #[test]
    fn flags_have_names() {
        let flags = Flags::default().with(b"allow-oom").and_then(|flags| flags.with(b"no-writes")).unwrap();
        assert_eq!(flags.names(), ["no-writes", "allow-oom"]);
        assert!(flags.no_writes() && flags.with(b"nosuch").is_none());
    }
}
