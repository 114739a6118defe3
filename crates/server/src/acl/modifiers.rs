//! The words that change a user, and that describe one.

use crate::acl::catalogue::Catalogue;
use crate::acl::selector::{Access, KeyPattern, Selector};
use crate::acl::user::{PasswordDigest, Rules, digest_of};
use bytes::Bytes;
use std::borrow::Cow;

const SYNTAX: &str = "Syntax error";
const UNKNOWN: &str = "Unknown command or category name in ACL";
const NO_SUCH_PASSWORD: &str = "The password you are trying to remove from the user does not exist";
const KEYS_HAVE_NO_EFFECT: &str = "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does \
                                   not have any effect. Try 'resetkeys' to start with an empty list of patterns";
const CHANNELS_HAVE_NO_EFFECT: &str = "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid \
                                       and does not have any effect. Try 'resetchannels' to start with an empty list \
                                       of channels";
const BAD_DIGEST: &str =
    "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters";
const NO_ARGUMENT: &str = "Allowing first-arg of a subcommand is not supported";

/// Joins the words of each selector, which stand between parentheses.
///
/// # Errors
/// The text of the error for a selector that does not end.
pub fn join(words: &[&[u8]]) -> Result<Vec<Vec<u8>>, String> {
    let mut joined: Vec<Vec<u8>> = Vec::new();
    // The text of an open selector so far, and its first word.
    let mut begun: Option<(Vec<u8>, &[u8])> = None;
    for &word in words {
        let (selector, first) = match begun.take() {
            Some((mut selector, first)) => {
                selector.push(b' ');
                selector.extend_from_slice(word);
                (selector, first)
            }
            None => (word.to_vec(), word),
        };
        if selector.starts_with(b"(") && !selector.ends_with(b")") {
            begun = Some((selector, first));
        } else {
            joined.push(selector);
        }
    }
    match begun {
        Some((_, first)) => {
            let shown = crate::text::shown::short(first, 128);
            Err(format!("Unmatched parenthesis in acl selector starting at '{shown}'."))
        }
        None => Ok(joined),
    }
}

/// Returns a word as it is compared: in small letters, unless it holds a password or a pattern.
fn compared(word: &[u8]) -> Cow<'_, [u8]> {
    match word {
        [b'>' | b'<' | b'#' | b'!' | b'(' | b'~' | b'%' | b'&', ..] => Cow::Borrowed(word),
        _ => Cow::Owned(word.to_ascii_lowercase()),
    }
}

/// Applies a word to a user.
///
/// # Errors
/// Why the word is wrong.
pub fn apply(rules: &mut Rules, catalogue: &Catalogue, word: &[u8]) -> Result<(), &'static str> {
    match &*compared(word) {
        b"" => {}
        b"on" => rules.is_on = true,
        b"off" => rules.is_on = false,
        b"nopass" => {
            rules.has_no_password = true;
            rules.passwords.clear();
        }
        b"resetpass" => {
            rules.has_no_password = false;
            rules.passwords.clear();
        }
        b"sanitize-payload" => rules.sanitizes = Some(true),
        b"skip-sanitize-payload" => rules.sanitizes = Some(false),
        b"clearselectors" => rules.selectors.clear(),
        b"reset" => {
            *rules = Rules { sanitizes: Some(true), ..Rules::default() };
            rules.root.set_all_commands(catalogue, false);
        }
        [b'>', password @ ..] => add(rules, digest_of(password)),
        [b'#', digits @ ..] => add(rules, digest(digits)?),
        [b'<', password @ ..] => remove(rules, &digest_of(password))?,
        [b'!', digits @ ..] => remove(rules, &digest(digits)?)?,
        [b'(', words @ .., b')'] => {
            let mut selector = empty_selector(catalogue);
            let words = words.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
            for word in words {
                // In the file of users, it would end the selector.
                if word.ends_with(b")") {
                    return Err(SYNTAX);
                }
                apply_to_selector(&mut selector, catalogue, word)?;
            }
            rules.selectors.push(selector);
        }
        word => apply_to_selector(&mut rules.root, catalogue, word)?,
    }
    Ok(())
}

/// A selector that allows nothing, and whose words say so.
#[must_use]
pub fn empty_selector(catalogue: &Catalogue) -> Selector {
    let mut selector = Selector::default();
    selector.set_all_commands(catalogue, false);
    selector
}

fn add(rules: &mut Rules, password: PasswordDigest) {
    rules.has_no_password = false;
    if !rules.passwords.contains(&password) {
        rules.passwords.push(password);
    }
}

fn remove(rules: &mut Rules, password: &PasswordDigest) -> Result<(), &'static str> {
    let place = rules.passwords.iter().position(|known| known == password).ok_or(NO_SUCH_PASSWORD)?;
    rules.passwords.remove(place);
    Ok(())
}

fn digest(digits: &[u8]) -> Result<PasswordDigest, &'static str> {
    let mut digest = PasswordDigest::default();
    let (pairs, rest) = digits.as_chunks::<2>();
    if pairs.len() != digest.len() || !rest.is_empty() {
        return Err(BAD_DIGEST);
    }
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(BAD_DIGEST),
    };
    for (byte, [high, low]) in digest.iter_mut().zip(pairs) {
        *byte = value(*high)? << 4 | value(*low)?;
    }
    Ok(digest)
}

/// The digest of a password, as written after `#`.
#[must_use]
pub fn digits(password: &PasswordDigest) -> String {
    password.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn apply_to_selector(selector: &mut Selector, catalogue: &Catalogue, word: &[u8]) -> Result<(), &'static str> {
    match &*compared(word) {
        b"allkeys" => add_key(selector, b"*", Access::BOTH)?,
        b"resetkeys" => {
            selector.all_keys = false;
            selector.keys.clear();
        }
        b"allchannels" => add_channel(selector, b"*")?,
        b"resetchannels" => {
            selector.all_channels = false;
            selector.channels.clear();
        }
        b"allcommands" => selector.set_all_commands(catalogue, true),
        b"nocommands" => selector.set_all_commands(catalogue, false),
        [b'~', pattern @ ..] => add_key(selector, pattern, Access::BOTH)?,
        [b'%', ..] if selector.all_keys => return Err(KEYS_HAVE_NO_EFFECT),
        [b'%', rest @ ..] => {
            let place = rest.iter().position(|byte| *byte == b'~').ok_or(SYNTAX)?;
            let (letters, pattern) = rest.split_at(place);
            let mut access = Access::NONE;
            for letter in letters {
                match letter.to_ascii_uppercase() {
                    b'R' => access.reads = true,
                    b'W' => access.writes = true,
                    _ => return Err(SYNTAX),
                }
            }
            if access == Access::NONE {
                return Err(SYNTAX);
            }
            add_key(selector, pattern.get(1..).unwrap_or_default(), access)?;
        }
        [b'&', pattern @ ..] => add_channel(selector, pattern)?,
        [sign @ (b'+' | b'-'), rest @ ..] => {
            let name = std::str::from_utf8(rest).map_err(|_| UNKNOWN)?;
            set_commands(selector, catalogue, *sign == b'+', name)?;
        }
        _ => return Err(SYNTAX),
    }
    Ok(())
}

fn set_commands(
    selector: &mut Selector,
    catalogue: &Catalogue,
    is_allowed: bool,
    name: &str,
) -> Result<(), &'static str> {
    if name == "@all" {
        selector.set_all_commands(catalogue, is_allowed);
        return Ok(());
    }
    if let Some(category) = name.strip_prefix('@') {
        let numbers = catalogue.category(category).ok_or(UNKNOWN)?;
        selector.set_commands(numbers, is_allowed, name);
        return Ok(());
    }
    if catalogue.number(name).is_some() {
        selector.set_commands(&catalogue.family(name), is_allowed, name);
        return Ok(());
    }
    let (command, argument) = name.split_once('|').filter(|_| is_allowed).ok_or(UNKNOWN)?;
    if argument.contains('|') {
        return Err(NO_ARGUMENT);
    }
    let family = catalogue.family(command);
    match family.as_slice() {
        [] => Err(UNKNOWN),
        // In the file of users, blanks are between words.
        [number] if !argument.is_empty() && !has_spaces(argument.as_bytes()) => {
            selector.add_first_argument(*number, argument, name);
            Ok(())
        }
        [_] => Err(SYNTAX),
        // The command has subcommands, and this is not one of them.
        _ => Err(UNKNOWN),
    }
}

fn has_spaces(pattern: &[u8]) -> bool {
    pattern.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0)
}

fn add_key(selector: &mut Selector, pattern: &[u8], access: Access) -> Result<(), &'static str> {
    if pattern == b"*" && access == Access::BOTH {
        selector.all_keys = true;
        selector.keys.clear();
        return Ok(());
    }
    if selector.all_keys {
        return Err(KEYS_HAVE_NO_EFFECT);
    }
    if has_spaces(pattern) {
        return Err(SYNTAX);
    }
    match selector.keys.iter_mut().find(|known| known.pattern == pattern) {
        Some(known) => {
            known.access.reads |= access.reads;
            known.access.writes |= access.writes;
        }
        None => selector.keys.push(KeyPattern { pattern: Bytes::copy_from_slice(pattern), access }),
    }
    Ok(())
}

fn add_channel(selector: &mut Selector, pattern: &[u8]) -> Result<(), &'static str> {
    if pattern == b"*" {
        selector.all_channels = true;
        selector.channels.clear();
        return Ok(());
    }
    if selector.all_channels {
        return Err(CHANNELS_HAVE_NO_EFFECT);
    }
    if has_spaces(pattern) {
        return Err(SYNTAX);
    }
    if !selector.channels.iter().any(|known| known == pattern) {
        selector.channels.push(Bytes::copy_from_slice(pattern));
    }
    Ok(())
}

/// The flags of a user, by their names.
#[must_use]
pub fn flags(rules: &Rules) -> Vec<&'static str> {
    let mut flags = vec![if rules.is_on { "on" } else { "off" }];
    if rules.has_no_password {
        flags.push("nopass");
    }
    flags.extend(rules.sanitizes.map(|is_on| if is_on { "sanitize-payload" } else { "skip-sanitize-payload" }));
    flags
}

/// The keys of a selector, as words.
#[must_use]
pub fn keys(selector: &Selector) -> Vec<u8> {
    match selector.all_keys {
        true => b"~*".to_vec(),
        false => selector.keys.iter().map(KeyPattern::word).collect::<Vec<_>>().join(&b' '),
    }
}

/// The channels of a selector, as words.
#[must_use]
pub fn channels(selector: &Selector) -> Vec<u8> {
    match selector.all_channels {
        true => b"&*".to_vec(),
        false => selector.channels.iter().map(|name| [b"&", &name[..]].concat()).collect::<Vec<_>>().join(&b' '),
    }
}

fn describe_selector(selector: &Selector) -> Vec<u8> {
    let mut parts = vec![keys(selector)];
    if !selector.all_channels {
        parts.push(b"resetchannels".to_vec());
    }
    parts.push(channels(selector));
    parts.push(selector.words.join(" ").into_bytes());
    parts.retain(|part| !part.is_empty());
    parts.join(&b' ')
}

/// Returns the words that describe a user in full.
#[must_use]
pub fn describe(rules: &Rules) -> Vec<u8> {
    let mut parts: Vec<Vec<u8>> = flags(rules).iter().map(|flag| flag.as_bytes().to_vec()).collect();
    parts.extend(rules.passwords.iter().map(|password| format!("#{}", digits(password)).into_bytes()));
    parts.push(describe_selector(&rules.root));
    parts.extend(rules.selectors.iter().map(|selector| [b"(", &describe_selector(selector)[..], b")"].concat()));
    parts.join(&b' ')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acl::selector::{Asked, Channel, Denied};
    use proptest::prelude::*;

    fn catalogue() -> Catalogue {
        Catalogue::new([
            ("get", vec!["read", "string", "fast"]),
            ("set", vec!["write", "string", "slow"]),
            ("config", vec!["slow"]),
            ("config|get", vec!["admin", "slow", "dangerous"]),
            ("config|set", vec!["admin", "slow", "dangerous"]),
            ("publish", vec!["pubsub", "fast"]),
            ("select", vec!["connection", "fast"]),
        ])
    }

    fn user(words: &str) -> Result<Rules, String> {
        let mut rules = Rules { root: empty_selector(&catalogue()), ..Rules::default() };
        let words: Vec<&[u8]> = words.split(' ').filter(|word| !word.is_empty()).map(str::as_bytes).collect();
        for word in join(&words)? {
            apply(&mut rules, &catalogue(), &word)?;
        }
        Ok(rules)
    }

    fn described(words: &str) -> String {
        String::from_utf8(describe(&user(words).unwrap())).unwrap()
    }

    #[test]
    fn users_are_described_as_redis_does() {
        for (words, expected) in [
            ("", "off resetchannels -@all"),
            ("on nopass ~* &* +@all", "on nopass ~* &* +@all"),
            (
                "on >p1 +@read -get +config|get ~a:* %R~b* &ch* (+set ~c*)",
                "on #f64551fcd6f07823cb87971cfb91446425da18286b3ab1ef935e0cbd7a69f68a ~a:* %R~b* resetchannels &ch* \
                 -@all +@read -get +config|get (~c* resetchannels -@all +set)",
            ),
            ("+config|get +config", "off resetchannels -@all +config"),
            ("+get +GET -get", "off resetchannels -@all -get"),
            ("+select|0", "off resetchannels -@all +select|0"),
            ("%R~a %W~a %rw~b", "off ~a ~b resetchannels -@all"),
            (
                "ON NoPass ALLKEYS ALLCHANNELS +@ALL (ALLKEYS +GET)",
                "on nopass ~* &* +@all (~* resetchannels -@all +get)",
            ),
            ("~A* &B* %r~C*", "off ~A* %R~C* resetchannels &B* -@all"),
            ("on >a nopass reset", "off sanitize-payload resetchannels -@all"),
            (
                ">a >b <a resetkeys",
                "off #3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d resetchannels -@all",
            ),
        ] {
            assert_eq!(described(words), expected, "{words}");
        }
    }

    #[test]
    fn words_that_are_wrong_say_why() {
        for (words, why) in [
            ("foo", SYNTAX),
            ("+nosuch", UNKNOWN),
            ("-select|0", UNKNOWN),
            ("+@nosuch", UNKNOWN),
            ("+config|nosuch", UNKNOWN),
            ("+config|get|x", NO_ARGUMENT),
            ("+get|", SYNTAX),
            ("+get|a\tb", SYNTAX),
            ("#abc", BAD_DIGEST),
            ("<zzz", NO_SUCH_PASSWORD),
            ("~* ~a", KEYS_HAVE_NO_EFFECT),
            ("allchannels &a", CHANNELS_HAVE_NO_EFFECT),
            ("%X~a", SYNTAX),
            ("%~a", SYNTAX),
            ("(foo)", SYNTAX),
            ("(on)", SYNTAX),
            ("(+get ~a", "Unmatched parenthesis in acl selector starting at '(+get'."),
        ] {
            assert_eq!(user(words).unwrap_err(), why, "{words}");
        }
    }

    #[test]
    fn no_word_ends_the_selector_that_it_is_in() {
        let mut rules = Rules::default();
        assert_eq!(apply(&mut rules, &catalogue(), b"(~x) +get)"), Err(SYNTAX));
        assert_eq!(apply(&mut rules, &catalogue(), b"(~x)y +get)"), Ok(()));
        // Outside of a selector it ends nothing.
        assert_eq!(apply(&mut rules, &catalogue(), b"~x)"), Ok(()));
    }

    #[test]
    fn what_is_asked_for_is_judged_by_every_selector() {
        let rules =
            user("+@all -config +config|get +select|1 -select +select|0 %R~r* %W~w* &ch* (+set ~sel*)").unwrap();
        let judge = |name: &str, argument: &str, key: Option<(&str, Access)>, channel: Option<(&str, bool)>| {
            let command = catalogue().number(name).unwrap();
            let keys = key.iter().map(|(key, access)| (key.as_bytes(), *access)).collect();
            let channels =
                channel.iter().map(|&(name, is_pattern)| Channel { name: name.as_bytes(), is_pattern }).collect();
            rules.judge(&Asked { command, first_argument: argument.as_bytes(), keys, channels })
        };
        assert_eq!(judge("get", "", Some(("r1", Access::READ)), None), Ok(()));
        assert_eq!(judge("get", "", Some(("w1", Access::READ)), None), Err(Denied::Key(0)));
        assert_eq!(judge("get", "", Some(("w1", Access::NONE)), None), Ok(()));
        assert_eq!(judge("set", "", Some(("w1", Access::WRITE)), None), Ok(()));
        assert_eq!(judge("set", "", Some(("r1", Access::BOTH)), None), Err(Denied::Key(0)));
        assert_eq!(judge("set", "", Some(("sel", Access::BOTH)), None), Ok(()));
        assert_eq!(judge("get", "", Some(("sel", Access::READ)), None), Err(Denied::Key(0)));
        assert_eq!(judge("config|get", "", None, None), Ok(()));
        assert_eq!(judge("config|set", "", None, None), Err(Denied::Command));
        assert_eq!(judge("select", "0", None, None), Ok(()));
        assert_eq!(judge("select", "1", None, None), Err(Denied::Command));
        assert_eq!(judge("publish", "", None, Some(("ch1", false))), Ok(()));
        assert_eq!(judge("publish", "", None, Some(("x", false))), Err(Denied::Channel(0)));
        assert_eq!(judge("publish", "", None, Some(("ch*", true))), Ok(()));
        assert_eq!(judge("publish", "", None, Some(("ch1*", true))), Err(Denied::Channel(0)));
        assert!(!rules.root.allows_all() && user("allkeys allchannels allcommands").unwrap().root.allows_all());
    }

    #[test]
    fn passwords_admit_users_that_are_on() {
        let admits = |words: &str, password: &str| user(words).unwrap().admit(password.as_bytes());
        assert!(admits("on >a >b", "b") && admits("on nopass", "x"));
        assert!(!admits("on >a", "b") && !admits(">a", "a") && !admits("nopass", "a") && !admits("on", ""));
    }

    proptest! {
        #[test]
        fn what_describes_a_user_makes_it(words in prop::collection::vec(prop::sample::select(vec![
            "on", "off", "nopass", "resetpass", ">a", ">b", "~*", "resetkeys", "~a*", "%R~a*", "%W~b", "&*", "&c",
            "resetchannels", "+@all", "-@all", "+@read", "-@admin", "+get", "-config", "+config|get", "-config|set",
            "+select|0", "(+get ~x)", "(%R~y +@all -set)", "clearselectors", "reset", "sanitize-payload",
        ]), 0..12)) {
            let mut rules = Rules { root: empty_selector(&catalogue()), ..Rules::default() };
            for word in &words {
                let _ = apply(&mut rules, &catalogue(), word.as_bytes());
            }
            let text = String::from_utf8(describe(&rules)).unwrap();
            let again = user(&text).unwrap();
            prop_assert_eq!(String::from_utf8(describe(&again)).unwrap(), text);
            prop_assert_eq!(&again.root.commands, &rules.root.commands);
            prop_assert_eq!(again.root.all_commands, rules.root.all_commands);
        }

        #[test]
        fn any_word_changes_a_user_or_is_refused(word in prop::collection::vec(any::<u8>(), 0..12), sign in 0usize..9) {
            let signs: [&[u8]; 9] = [b"", b"+", b"-", b"~", b"%", b"&", b"#", b"(", b"+@"];
            let mut rules = Rules { root: empty_selector(&catalogue()), ..Rules::default() };
            let _ = apply(&mut rules, &catalogue(), &[signs[sign], &word].concat());
        }
    }
}
