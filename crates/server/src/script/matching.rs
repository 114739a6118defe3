//! Patterns of Lua 5.1.
//!
//! A pattern is a sequence of items without branches, which is read once. A match goes along the items, and leaves a
//! choice where it could have continued in another way. When it cannot continue, it goes back to the latest choice. An
//! item leaves at most one choice, so a match holds no more than a few words for each item.
//!
//! Some patterns take time that is exponential in their length. So steps are counted, and at intervals the caller says
//! whether the match continues.
//!
//! Lua finds an error in a pattern only when a match comes to that place. So does this code: the rest of the pattern
//! from there on is one item, at which a match fails.

use crate::text::shown::up_to_zero;
use std::ops::Range;

/// Most captures of a pattern.
const MAX_CAPTURES: usize = 32;
/// Steps after which the caller is asked.
const STEPS: usize = 10_000;

const MISSING_BRACKET: &str = "malformed pattern (missing ']')";
const ENDS_WITH_PERCENT: &str = "malformed pattern (ends with '%')";
const MISSING_SET: &str = "missing '[' after '%f' in pattern";
const UNBALANCED: &str = "unbalanced pattern";
const TOO_MANY_CAPTURES: &str = "too many captures";
const NO_CAPTURE_TO_END: &str = "invalid pattern capture";
const NO_SUCH_CAPTURE: &str = "invalid capture index";
const UNFINISHED: &str = "unfinished capture";

/// Why matching stopped without a result.
#[derive(Debug, PartialEq, Eq)]
pub enum Stop<E> {
    /// The pattern is wrong: the text of Lua's error.
    Wrong(&'static str),
    /// The caller did not want to continue.
    Ended(E),
}

/// A set of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Set([u64; 4]);

/// The classes that have names.
const CLASSES: [(u8, Set); 10] = {
    let mut classes = [(0, Set::EMPTY); 10];
    let mut place = 0;
    while place < classes.len() {
        let letter = b"acdlpsuwxz"[place];
        classes[place] = (letter, Set::named(letter));
        place += 1;
    }
    classes
};

impl Set {
    const EMPTY: Self = Self([0; 4]);

    const fn add(&mut self, byte: u8) {
        self.0[(byte >> 6) as usize] |= 1 << (byte & 63);
    }

    const fn has(&self, byte: u8) -> bool {
        self.0[(byte >> 6) as usize] >> (byte & 63) & 1 == 1
    }

    fn add_all(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(word, others)| *word |= others);
    }

    fn inverted(self) -> Self {
        Self(self.0.map(|word| !word))
    }

    /// Returns the class of a letter.
    const fn named(letter: u8) -> Self {
        let mut set = Self::EMPTY;
        let mut byte = 0_u8;
        loop {
            let is_in = match letter {
                b'a' => byte.is_ascii_alphabetic(),
                b'c' => byte.is_ascii_control(),
                b'd' => byte.is_ascii_digit(),
                b'l' => byte.is_ascii_lowercase(),
                b'p' => byte.is_ascii_punctuation(),
                b's' => matches!(byte, 9..=13 | b' '),
                b'u' => byte.is_ascii_uppercase(),
                b'w' => byte.is_ascii_alphanumeric(),
                b'x' => byte.is_ascii_hexdigit(),
                _ => byte == 0,
            };
            if is_in {
                set.add(byte);
            }
            if byte == u8::MAX {
                return set;
            }
            byte += 1;
        }
    }

    /// What `%` and this letter stand for.
    fn class(letter: u8) -> Self {
        let Some((_, set)) = CLASSES.iter().find(|(name, _)| *name == letter.to_ascii_lowercase()) else {
            let mut set = Self::EMPTY;
            set.add(letter);
            return set;
        };
        if letter.is_ascii_uppercase() { set.inverted() } else { *set }
    }

    /// Reads the set after `[` in a pattern. Returns it with the rest; `None` when it has no end.
    fn parse(pattern: &[u8]) -> Option<(Self, &[u8])> {
        let (is_inverted, pattern) = match pattern {
            [b'^', rest @ ..] => (true, rest),
            _ => (false, pattern),
        };
        let mut end = 0;
        loop {
            end += match pattern.get(end..)? {
                [] => return None,
                [b'%', _, ..] => 2,
                [..] => 1,
            };
            if *pattern.get(end)? == b']' {
                break;
            }
        }
        let (mut members, after) = pattern.split_at_checked(end)?;
        let mut set = Self::EMPTY;
        loop {
            members = match members {
                [] => break,
                // Lua takes the bracket as the letter.
                [b'%'] => {
                    set.add(b']');
                    break;
                }
                [b'%', letter, rest @ ..] => {
                    set.add_all(Self::class(*letter));
                    rest
                }
                [from, b'-', to, rest @ ..] => {
                    (*from..=*to).for_each(|byte| set.add(byte));
                    rest
                }
                [byte, rest @ ..] => {
                    set.add(*byte);
                    rest
                }
            };
        }
        Some((if is_inverted { set.inverted() } else { set }, after.get(1..)?))
    }
}

/// What one byte of a subject must be.
#[derive(Debug, Clone, Copy)]
enum One {
    Any,
    Byte(u8),
    Of(Set),
}

impl One {
    const fn takes(&self, byte: u8) -> bool {
        match self {
            Self::Any => true,
            Self::Byte(own) => *own == byte,
            Self::Of(set) => set.has(byte),
        }
    }
}

/// How often an item repeats.
#[derive(Debug, Clone, Copy)]
enum Repeat {
    Once,
    /// `?`
    AtMostOnce,
    /// `*`
    Many,
    /// `+`
    AtLeastOnce,
    /// `-`
    Few,
}

/// An item of a pattern.
#[derive(Debug, Clone, Copy)]
enum Item {
    /// Bytes of a kind.
    Bytes(One, Repeat),
    /// `(`
    Begin,
    /// `()`
    Place,
    /// `)`
    Finish,
    /// `%b`: from the first byte to the second one that belongs to it.
    Balanced(u8, u8),
    /// `%f`: the place where the set begins.
    Border(Set),
    /// `%1` and its like: what was captured there. `None` for `%0`.
    Again(Option<usize>),
    /// `$` at the end.
    End,
    /// The error at this place.
    Wrong(&'static str),
}

/// A pattern. See the module.
#[derive(Debug)]
pub struct Pattern(Vec<Item>);

impl Pattern {
    /// Reads a pattern, which ends where there is a zero. A `^` at its beginning is like any other byte.
    #[must_use]
    pub fn new(pattern: &[u8]) -> Self {
        let mut items = Vec::new();
        let mut rest = up_to_zero(pattern);
        while !rest.is_empty() {
            let (item, after) = item(rest).unwrap_or_else(|wrong| (Item::Wrong(wrong), &[]));
            items.push(item);
            rest = after;
        }
        Self(items)
    }
}

/// Returns the first item of a pattern, and the rest. Fails with what is wrong.
fn item(pattern: &[u8]) -> Result<(Item, &[u8]), &'static str> {
    Ok(match pattern {
        [b'(', b')', rest @ ..] => (Item::Place, rest),
        [b'(', rest @ ..] => (Item::Begin, rest),
        [b')', rest @ ..] => (Item::Finish, rest),
        [b'%', b'b', from, to, rest @ ..] => (Item::Balanced(*from, *to), rest),
        [b'%', b'b', ..] => return Err(UNBALANCED),
        [b'%', b'f', b'[', rest @ ..] => {
            let (set, rest) = Set::parse(rest).ok_or(MISSING_BRACKET)?;
            (Item::Border(set), rest)
        }
        [b'%', b'f', ..] => return Err(MISSING_SET),
        [b'%', digit @ b'0'..=b'9', rest @ ..] => (Item::Again(usize::from(digit - b'0').checked_sub(1)), rest),
        [b'$'] => (Item::End, &[]),
        _ => {
            let (one, rest) = one(pattern)?;
            let (repeat, rest) = match rest {
                [b'?', rest @ ..] => (Repeat::AtMostOnce, rest),
                [b'*', rest @ ..] => (Repeat::Many, rest),
                [b'+', rest @ ..] => (Repeat::AtLeastOnce, rest),
                [b'-', rest @ ..] => (Repeat::Few, rest),
                _ => (Repeat::Once, rest),
            };
            (Item::Bytes(one, repeat), rest)
        }
    })
}

/// Returns the part of a pattern for one byte, and the rest. Fails with what is wrong.
fn one(pattern: &[u8]) -> Result<(One, &[u8]), &'static str> {
    Ok(match pattern {
        [b'%', letter, rest @ ..] => (One::Of(Set::class(*letter)), rest),
        [b'[', rest @ ..] => {
            let (set, rest) = Set::parse(rest).ok_or(MISSING_BRACKET)?;
            (One::Of(set), rest)
        }
        [b'.', rest @ ..] => (One::Any, rest),
        [] | [b'%'] => return Err(ENDS_WITH_PERCENT),
        [byte, rest @ ..] => (One::Byte(*byte), rest),
    })
}

/// What was captured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Capture {
    /// The bytes at these places.
    Bytes(Range<usize>),
    /// A place, counted from zero.
    Place(usize),
}

/// What is known of a capture during a match.
#[derive(Debug, Clone)]
enum Held {
    /// It began here.
    Begun(usize),
    Whole(Capture),
}

/// Where a match could continue in another way: from this item on, and at this place.
#[derive(Debug, Clone, Copy)]
enum Choice {
    Here(usize, usize),
    /// At any place from the first one on, and before the second one.
    Before(usize, usize, usize),
    /// After this item has taken another byte.
    OneMore(usize, usize),
    /// Nowhere, because the latest capture has not begun.
    NotBegun,
    /// Nowhere, because this capture, which began at this place, has not finished.
    NotFinished(usize, usize),
}

/// Matches of a pattern in a subject.
#[derive(Debug)]
pub struct Matches<'m, A> {
    pattern: &'m Pattern,
    subject: &'m [u8],
    captures: Vec<Held>,
    choices: Vec<Choice>,
    steps: usize,
    ask: A,
}

impl<'m, E, A: FnMut() -> Result<(), E>> Matches<'m, A> {
    /// Begins without a search. `ask` fails when matching must end.
    pub const fn new(pattern: &'m Pattern, subject: &'m [u8], ask: A) -> Self {
        Self { pattern, subject, captures: Vec::new(), choices: Vec::new(), steps: 0, ask }
    }

    /// The first match that begins at this place or later.
    ///
    /// # Errors
    /// See [`Stop`].
    pub fn next_from(&mut self, from: usize) -> Result<Option<Range<usize>>, Stop<E>> {
        for at in from..=self.subject.len() {
            if let Some(found) = self.at(at)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The match that begins at this place.
    ///
    /// # Errors
    /// See [`Stop`].
    pub fn at(&mut self, from: usize) -> Result<Option<Range<usize>>, Stop<E>> {
        self.captures.clear();
        self.choices.clear();
        let (mut next, mut at) = (0, from);
        while let Some(item) = self.pattern.0.get(next) {
            self.count(1)?;
            let goes_on = match self.pass(*item, next, at)? {
                Some(after) => Some((next + 1, after)),
                None => self.go_back()?,
            };
            let Some(place) = goes_on else { return Ok(None) };
            (next, at) = place;
        }
        Ok(Some(from..at))
    }

    /// Number of captures of the latest match.
    pub const fn captures(&self) -> usize {
        self.captures.len()
    }

    /// Returns a capture of the latest match, `found`.
    ///
    /// # Errors
    /// When there is none: the text of Lua's error.
    pub fn capture(&self, place: usize, found: &Range<usize>) -> Result<Capture, &'static str> {
        match self.captures.get(place) {
            None if place == 0 => Ok(Capture::Bytes(found.clone())),
            None => Err(NO_SUCH_CAPTURE),
            Some(Held::Begun(_)) => Err(UNFINISHED),
            Some(Held::Whole(capture)) => Ok(capture.clone()),
        }
    }

    /// Counts this many more steps.
    fn count(&mut self, steps: usize) -> Result<(), Stop<E>> {
        self.steps += steps;
        if self.steps >= STEPS {
            self.steps = 0;
            (self.ask)().map_err(Stop::Ended)?;
        }
        Ok(())
    }

    fn rest(&self, at: usize) -> &'m [u8] {
        self.subject.get(at..).unwrap_or_default()
    }

    /// Returns where the match continues after an item, if it does.
    fn pass(&mut self, item: Item, number: usize, at: usize) -> Result<Option<usize>, Stop<E>> {
        let next = self.subject.get(at).copied();
        Ok(match item {
            Item::Bytes(one, repeat) => return self.pass_bytes(one, repeat, number, at),
            Item::Begin => {
                self.begin(Held::Begun(at))?;
                Some(at)
            }
            Item::Place => {
                self.begin(Held::Whole(Capture::Place(at)))?;
                Some(at)
            }
            Item::Finish => {
                self.finish(at)?;
                Some(at)
            }
            Item::Balanced(open, close) => self.balanced(open, close, at)?,
            Item::Border(set) => {
                let before = at.checked_sub(1).and_then(|before| self.subject.get(before)).copied();
                (!set.has(before.unwrap_or(0)) && set.has(next.unwrap_or(0))).then_some(at)
            }
            Item::Again(place) => match place.and_then(|place| self.captures.get(place)) {
                None | Some(Held::Begun(_)) => return Err(Stop::Wrong(NO_SUCH_CAPTURE)),
                Some(Held::Whole(Capture::Place(_))) => None,
                Some(Held::Whole(Capture::Bytes(range))) => {
                    let bytes = self.subject.get(range.clone()).unwrap_or_default();
                    self.count(bytes.len())?;
                    self.rest(at).starts_with(bytes).then(|| at + bytes.len())
                }
            },
            Item::End => next.is_none().then_some(at),
            Item::Wrong(wrong) => return Err(Stop::Wrong(wrong)),
        })
    }

    fn pass_bytes(&mut self, one: One, repeat: Repeat, number: usize, at: usize) -> Result<Option<usize>, Stop<E>> {
        let takes = self.subject.get(at).is_some_and(|byte| one.takes(*byte));
        let least = match repeat {
            Repeat::Once | Repeat::AtLeastOnce if !takes => return Ok(None),
            Repeat::Once => return Ok(Some(at + 1)),
            Repeat::AtMostOnce if takes => {
                self.choices.push(Choice::Here(number + 1, at));
                return Ok(Some(at + 1));
            }
            Repeat::AtMostOnce => return Ok(Some(at)),
            Repeat::Few => {
                self.choices.push(Choice::OneMore(number, at));
                return Ok(Some(at));
            }
            Repeat::AtLeastOnce => at + 1,
            Repeat::Many => at,
        };
        let rest = self.rest(least);
        let most = least + rest.iter().position(|byte| !one.takes(*byte)).unwrap_or(rest.len());
        self.count(most - least)?;
        if most > least {
            self.choices.push(Choice::Before(number + 1, least, most));
        }
        Ok(Some(most))
    }

    fn begin(&mut self, held: Held) -> Result<(), Stop<E>> {
        if self.captures.len() >= MAX_CAPTURES {
            return Err(Stop::Wrong(TOO_MANY_CAPTURES));
        }
        self.captures.push(held);
        self.choices.push(Choice::NotBegun);
        Ok(())
    }

    /// Ends the latest capture that has begun.
    fn finish(&mut self, at: usize) -> Result<(), Stop<E>> {
        for (place, held) in self.captures.iter_mut().enumerate().rev() {
            if let Held::Begun(from) = *held {
                *held = Held::Whole(Capture::Bytes(from..at));
                self.choices.push(Choice::NotFinished(place, from));
                return Ok(());
            }
        }
        Err(Stop::Wrong(NO_CAPTURE_TO_END))
    }

    fn balanced(&mut self, open: u8, close: u8, at: usize) -> Result<Option<usize>, Stop<E>> {
        let rest = self.rest(at);
        if rest.first() != Some(&open) {
            return Ok(None);
        }
        let mut depth = 1_usize;
        for (place, byte) in rest.iter().enumerate().skip(1) {
            if *byte == close {
                depth -= 1;
                if depth == 0 {
                    self.count(place)?;
                    return Ok(Some(at + place + 1));
                }
            } else if *byte == open {
                depth += 1;
            }
        }
        self.count(rest.len())?;
        Ok(None)
    }

    /// Goes back to the latest choice and takes another way. Returns the next item, and where.
    fn go_back(&mut self) -> Result<Option<(usize, usize)>, Stop<E>> {
        while let Some(choice) = self.choices.pop() {
            self.count(1)?;
            match choice {
                Choice::Here(item, at) => return Ok(Some((item, at))),
                Choice::Before(item, least, most) => {
                    let at = most - 1;
                    if at > least {
                        self.choices.push(Choice::Before(item, least, at));
                    }
                    return Ok(Some((item, at)));
                }
                Choice::OneMore(item, at) => {
                    let (Some(Item::Bytes(one, _)), Some(byte)) = (self.pattern.0.get(item), self.subject.get(at))
                    else {
                        continue;
                    };
                    if one.takes(*byte) {
                        self.choices.push(Choice::OneMore(item, at + 1));
                        return Ok(Some((item + 1, at + 1)));
                    }
                }
                Choice::NotBegun => _ = self.captures.pop(),
                Choice::NotFinished(place, from) => {
                    self.captures.get_mut(place).into_iter().for_each(|held| *held = Held::Begun(from));
                }
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(subject: &str, pattern: &str, most_asked: usize) -> (Result<Option<Range<usize>>, Stop<()>>, usize) {
        let pattern = Pattern::new(pattern.as_bytes());
        let mut asked = 0;
        let ask = || {
            asked += 1;
            if asked > most_asked { Err(()) } else { Ok(()) }
        };
        (Matches::new(&pattern, subject.as_bytes(), ask).next_from(0), asked)
    }

    #[test]
    fn a_match_without_an_end_is_ended() {
        let optional = "a?".repeat(60) + &"a".repeat(60);
        assert_eq!(found(&"a".repeat(60), &optional, 0), (Err(Stop::Ended(())), 1));
        assert_eq!(found(&"a".repeat(60), &optional, 100), (Err(Stop::Ended(())), 101));
        for (subject, pattern) in [("a", ".-.-.-.-b"), ("a", ".*.*.*.*b"), ("(", "%b()"), ("ab", "(.+)%1c")] {
            assert_eq!(found(&subject.repeat(2000), pattern, 10).0, Err(Stop::Ended(())), "{pattern}");
        }
    }

    #[test]
    fn a_long_pattern_is_no_deep_match() {
        let long = "a".repeat(100_000);
        assert_eq!(found(&long, &"a?".repeat(100_000), 100).0, Ok(Some(0..100_000)));
        assert_eq!(found(&long, &("(".repeat(33)), 100).0, Err(Stop::Wrong(TOO_MANY_CAPTURES)));
    }
}
