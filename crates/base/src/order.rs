//! Order of keys.
//!
//! Entries are sorted by user key in the database's order. Within a key, the newest comes first. An
//! [`InternalKey`] is a user key and a [`Tag`].

use crate::sequence::Tag;
use std::cmp::Ordering;

/// Order of user keys, chosen by name when a database is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum KeyOrder {
    /// As unsigned bytes, shorter first.
    #[default]
    Bytewise = 0,
    /// The reverse of [`KeyOrder::Bytewise`].
    ReverseBytewise = 1,
}

impl KeyOrder {
    /// Compares two user keys.
    #[inline]
    #[must_use]
    pub fn compare(self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Self::Bytewise => a.cmp(b),
            Self::ReverseBytewise => b.cmp(a),
        }
    }

    /// Compares two internal keys: first the user keys, then the newest first.
    #[inline]
    #[must_use]
    pub fn compare_internal(self, a: InternalKey<'_>, b: InternalKey<'_>) -> Ordering {
        self.compare(a.user_key, b.user_key).then(b.tag.cmp(&a.tag))
    }

    /// The first eight bytes of `key`, big-endian and padded with zeros, arranged so that
    /// `prefix(a) < prefix(b)` implies `a < b` in this order. If prefixes are equal, compare the
    /// keys.
    #[inline]
    #[must_use]
    pub fn prefix(self, key: &[u8]) -> u64 {
        let prefix = if let Some(head) = key.first_chunk::<8>() {
            u64::from_be_bytes(*head)
        } else {
            let mut head = [0; 8];
            head[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(head)
        };
        match self {
            Self::Bytewise => prefix,
            Self::ReverseBytewise => !prefix,
        }
    }

    /// The order's name, as stored and as given in options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bytewise => "bytewise",
            Self::ReverseBytewise => "reverse-bytewise",
        }
    }

    /// The order with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Bytewise, Self::ReverseBytewise].into_iter().find(|order| order.name() == name)
    }

    /// The order with this number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Bytewise),
            1 => Some(Self::ReverseBytewise),
            _ => None,
        }
    }
}

/// A user key and its tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InternalKey<'a> {
    /// The key as given by the user.
    pub user_key: &'a [u8],
    /// Sequence number and kind.
    pub tag: Tag,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn prefixes_agree_with_the_order(a: Vec<u8>, b: Vec<u8>) {
            for order in [KeyOrder::Bytewise, KeyOrder::ReverseBytewise] {
                if order.prefix(&a) < order.prefix(&b) {
                    prop_assert_eq!(order.compare(&a, &b), Ordering::Less);
                }
            }
        }
    }
}
