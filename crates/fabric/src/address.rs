//! Names of nodes, grants and places in remote memory.

use std::fmt;
use subtle::ConstantTimeEq;

/// A node, and which life of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeIdentity {
    /// The node's number, chosen by its operator.
    pub node: u32,
    /// Drawn at random when the node starts: a restarted node has a new one.
    pub incarnation: u64,
}

impl fmt::Display for NodeIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} (incarnation {:016x})", self.node, self.incarnation)
    }
}

/// A link as its node knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u64);

/// An endpoint of a link as the link's node knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(pub u32);

/// Name of a grant: what verbs call an rkey, but unguessable.
///
/// On the wire: index (u32), secret (u128), both little-endian.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AccessKey {
    /// Slot in the grantor's table.
    pub index: u32,
    /// 128 random bits, low word first.
    secret: [u64; 2],
}

impl AccessKey {
    /// Length on the wire in bytes.
    pub const WIRE_BYTES: usize = 20;

    /// A key of these parts.
    #[must_use]
    pub const fn new(index: u32, secret: u128) -> Self {
        Self { index, secret: [secret as u64, (secret >> 64) as u64] }
    }

    /// The secret part.
    #[must_use]
    pub const fn secret(&self) -> u128 {
        self.secret[0] as u128 | (self.secret[1] as u128) << 64
    }

    /// Whether the secrets are equal, in time that does not depend on where they differ.
    #[must_use]
    pub fn same_secret(&self, other: &Self) -> bool {
        (self.secret[0].ct_eq(&other.secret[0]) & self.secret[1].ct_eq(&other.secret[1])).into()
    }

    /// The address `offset` bytes into the granted range.
    #[must_use]
    pub const fn at(self, offset: u64) -> RemoteAddress {
        RemoteAddress { key: self, offset }
    }
}

impl fmt::Debug for AccessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The secret is a capability, so logs do not show it.
        write!(f, "AccessKey({})", self.index)
    }
}

/// An aligned word of 8 bytes, and the place that it is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word {
    /// A multiple of 8 in its grant.
    pub at: RemoteAddress,
    /// In remote memory, little-endian.
    pub value: u64,
}

/// A place in remote memory: an offset in a granted range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RemoteAddress {
    /// The grant.
    pub key: AccessKey,
    /// Bytes from the start of the granted range.
    pub offset: u64,
}

impl RemoteAddress {
    /// The address `bytes` further on.
    #[must_use]
    pub const fn add(self, bytes: u64) -> Self {
        Self { key: self.key, offset: self.offset.wrapping_add(bytes) }
    }
}

/// What a grant allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rights(u8);

impl Rights {
    /// One-sided reads.
    pub const READ: Self = Self(1);
    /// One-sided writes.
    pub const WRITE: Self = Self(2);
    /// Compare-and-swap and fetch-and-add.
    pub const ATOMIC: Self = Self(4);
    /// All of them.
    pub const ALL: Self = Self(7);

    /// The union of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` are among these.
    #[must_use]
    pub const fn contain(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// As a number on the wire.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// From a number on the wire.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits & !Self::ALL.0 == 0 { Some(Self(bits)) } else { None }
    }
}
