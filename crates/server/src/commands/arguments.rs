//! The arguments of a request, and how commands read them.

use crate::keyspace::failure::{Failure, Outcome};
use crate::text::number;
use std::ops::Range;

/// The arguments of a request; the first one is the command's name.
#[derive(Debug, Clone, Copy)]
pub struct Arguments<'a>(&'a [&'a [u8]]);

impl<'a> Arguments<'a> {
    /// These arguments.
    #[must_use]
    pub const fn new(arguments: &'a [&'a [u8]]) -> Self {
        Self(arguments)
    }

    /// Returns how many there are, including the name.
    #[must_use]
    pub const fn len(self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of all of them.
    #[must_use]
    pub fn size_bytes(self) -> usize {
        self.0.iter().map(|argument| argument.len()).sum()
    }

    /// Returns the argument at a place; empty when there is none. The number of arguments was checked before.
    #[must_use]
    pub fn at(self, place: usize) -> &'a [u8] {
        self.0.get(place).copied().unwrap_or_default()
    }

    /// The arguments from a place on.
    #[must_use]
    pub fn from(self, place: usize) -> &'a [&'a [u8]] {
        self.0.get(place..).unwrap_or_default()
    }

    /// Returns the arguments of a range.
    #[must_use]
    pub fn range(self, from: usize, to: usize) -> &'a [&'a [u8]] {
        self.0.get(from..to).unwrap_or_default()
    }

    /// Whether the argument at a place is this word, in capital or small letters.
    #[must_use]
    pub fn is(self, place: usize, word: &str) -> bool {
        self.0.get(place).is_some_and(|argument| argument.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// The integer at a place.
    ///
    /// # Errors
    /// When it is none.
    pub fn integer(self, place: usize) -> Outcome<i64> {
        integer(self.at(place))
    }

    /// The floating-point number at a place.
    ///
    /// # Errors
    /// When it is none.
    pub fn double(self, place: usize) -> Outcome<f64> {
        number::double(self.at(place)).ok_or(Failure::NOT_FLOAT)
    }

    /// Reads the arguments from a place on, one after another.
    #[must_use]
    pub const fn words(self, place: usize) -> Words<'a> {
        Words { arguments: self, at: place }
    }
}

/// An integer.
///
/// # Errors
/// When it is none.
pub fn integer(text: &[u8]) -> Outcome<i64> {
    number::integer(text).ok_or(Failure::NOT_INTEGER)
}

/// Reads arguments one after another.
#[derive(Debug, Clone, Copy)]
pub struct Words<'a> {
    arguments: Arguments<'a>,
    at: usize,
}

impl<'a> Words<'a> {
    /// The next argument.
    pub fn word(&mut self) -> Option<&'a [u8]> {
        let next = self.arguments.0.get(self.at).copied();
        self.at += usize::from(next.is_some());
        next
    }

    /// Takes the next argument if it is this word.
    pub fn take(&mut self, word: &str) -> bool {
        let is_it = self.arguments.is(self.at, word);
        self.at += usize::from(is_it);
        is_it
    }

    /// Takes the next argument if it is this word and another argument follows. Redis reads a word that needs a value
    /// as something else when no value follows.
    pub fn take_with_value(&mut self, word: &str) -> Option<&'a [u8]> {
        self.take_with_values(word).map(|[value]| value)
    }

    /// As [`Words::take_with_value`], for a word that needs several values.
    pub fn take_with_values<const N: usize>(&mut self, word: &str) -> Option<[&'a [u8]; N]> {
        let values = self.arguments.0.get(self.at + 1..)?.first_chunk().filter(|_| self.arguments.is(self.at, word))?;
        self.at += 1 + N;
        Some(*values)
    }

    /// Takes a login: `AUTH` and a password, or `AUTH2`, a user and a password. Returns the places of user and
    /// password.
    pub fn take_login(&mut self) -> Option<Range<usize>> {
        let first = self.at + 1;
        let is_login = self.take_with_value("AUTH").is_some() || self.take_with_values::<2>("AUTH2").is_some();
        is_login.then_some(first..self.at)
    }

    /// Number of arguments that are left.
    #[must_use]
    pub const fn left(&self) -> usize {
        self.arguments.0.len().saturating_sub(self.at)
    }

    /// Whether nothing is left.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.left() == 0
    }

    /// The place of the next argument.
    #[must_use]
    pub const fn place(&self) -> usize {
        self.at
    }

    /// What is left.
    #[must_use]
    pub fn rest(&self) -> &'a [&'a [u8]] {
        self.arguments.from(self.at)
    }

    /// Passes over arguments.
    pub fn skip(&mut self, count: usize) {
        self.at = self.at.saturating_add(count);
    }
}
