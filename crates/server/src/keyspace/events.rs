//! What happens to keys, for clients that have subscribed to it.
//!
//! `notify-keyspace-events` chooses classes of events by letters, and the form of the messages: `K` for a channel for
//! each key, `E` for a channel for each event.

use bytes::Bytes;

/// A class of events, or a form of their messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Class(u32);

impl Class {
    /// Keys of any type: `DEL`, `EXPIRE`, `RENAME` and their like.
    pub const GENERIC: Self = Self(1);
    /// Strings.
    pub const STRING: Self = Self(1 << 1);
    /// Lists.
    pub const LIST: Self = Self(1 << 2);
    /// Sets.
    pub const SET: Self = Self(1 << 3);
    /// Hashes.
    pub const HASH: Self = Self(1 << 4);
    /// Sorted sets.
    pub const SORTED_SET: Self = Self(1 << 5);
    /// Keys that have expired.
    pub const EXPIRED: Self = Self(1 << 6);
    /// Keys that were removed to make room; there are none here.
    pub const EVICTED: Self = Self(1 << 7);
    /// Streams.
    pub const STREAM: Self = Self(1 << 8);
    /// Types of modules; there are none here.
    pub const MODULE: Self = Self(1 << 9);
    /// Keys that were looked up and not found.
    pub const MISS: Self = Self(1 << 10);
    /// Keys that did not exist before.
    pub const NEW: Self = Self(1 << 11);
    const KEYSPACE: Self = Self(1 << 12);
    const KEYEVENT: Self = Self(1 << 13);
    /// All classes that `A` stands for.
    const ALL: u32 = (1 << 10) - 1;
}

/// The letters, in the order in which they are shown.
const LETTERS: [(u8, Class); 14] = [
    (b'g', Class::GENERIC),
    (b'$', Class::STRING),
    (b'l', Class::LIST),
    (b's', Class::SET),
    (b'h', Class::HASH),
    (b'z', Class::SORTED_SET),
    (b'x', Class::EXPIRED),
    (b'e', Class::EVICTED),
    (b't', Class::STREAM),
    (b'd', Class::MODULE),
    (b'K', Class::KEYSPACE),
    (b'E', Class::KEYEVENT),
    (b'm', Class::MISS),
    (b'n', Class::NEW),
];

/// Which events are published, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wanted(u32);

impl Wanted {
    /// Returns what these letters choose; `None` if a letter chooses nothing.
    #[must_use]
    pub fn parse(letters: &[u8]) -> Option<Self> {
        letters.iter().try_fold(Self(0), |wanted, letter| {
            let bits = match letter {
                b'A' => Class::ALL,
                letter => LETTERS.iter().find(|(known, _)| known == letter)?.1.0,
            };
            Some(Self(wanted.0 | bits))
        })
    }

    /// The letters.
    #[must_use]
    pub fn letters(self) -> String {
        let is_all = self.0 & Class::ALL == Class::ALL;
        let shown = LETTERS.iter().filter(|(_, class)| self.0 & class.0 != 0 && !(is_all && class.0 & Class::ALL != 0));
        let all = is_all.then_some('A');
        all.into_iter().chain(shown.map(|(letter, _)| char::from(*letter))).collect()
    }

    /// As a number, and from one.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The inverse of [`Wanted::bits`].
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Whether events of a class are published.
    #[must_use]
    pub const fn has(self, class: Class) -> bool {
        self.0 & class.0 != 0 && self.0 & (Class::KEYSPACE.0 | Class::KEYEVENT.0) != 0
    }

    /// Whether there is a channel for each key.
    #[must_use]
    pub const fn by_key(self) -> bool {
        self.0 & Class::KEYSPACE.0 != 0
    }

    /// Whether there is a channel for each event.
    #[must_use]
    pub const fn by_event(self) -> bool {
        self.0 & Class::KEYEVENT.0 != 0
    }
}

/// Something that happened to a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub name: &'static str,
    /// The database that the key was in.
    pub database: usize,
    /// The key.
    pub key: Bytes,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_choose_classes() {
        for (letters, shown) in
            [("", ""), ("KEA", "AKE"), ("Kg$lshzxetd", "AK"), ("Elx", "lxE"), ("nmKE", "KEmn"), ("AKEmn", "AKEmn")]
        {
            assert_eq!(Wanted::parse(letters.as_bytes()).unwrap().letters(), shown);
        }
        assert_eq!(Wanted::parse(b"Kq"), None);
        let wanted = Wanted::parse(b"Kl").unwrap();
        assert!(wanted.has(Class::LIST) && !wanted.has(Class::SET) && wanted.by_key() && !wanted.by_event());
        assert!(!Wanted::parse(b"A").unwrap().has(Class::LIST));
    }
}
