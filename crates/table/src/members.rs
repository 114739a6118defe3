//! The content of a database's register: which memory nodes hold the copies of its shards (`docs/decisions/0036`).
//!
//! The body of the frame "FBMB":
//!
//! ```text
//!   1   u64 number of the database, u32 number of copies, and its configuration (a store's, see `manifest`) after its length
//!   2 * members of a shard, in the order of the shards: count (varint), each u32 number of the node, u64 incarnation
//!   3   where memory nodes are the register: u64 epoch of the owner, u64 number of the write, and the nodes that vote, as in 2
//!   4   after 3, while the nodes that vote change (`docs/decisions/0065`): those that voted before, as in 2
//! ```
//!
//! Without field 1 there is no database: it was dropped. With only field 1 the database is being created, and no node holds
//! anything yet. All fields are mandatory. Programs before field 4 refuse a record that has it.
//!
//! Purpose and golden test: `docs/formats/members.md`.

use crate::error::{Context, Result};
use crate::frame::{FrameKind, Need, for_each_field, put_field, read_count};
use crate::manifest::StoreConfig;
use forebay_base::{DecodeError, Reader, Writer};

const MEMBERS: FrameKind = FrameKind { what: "the members of a database", magic: *b"FBMB", version: 1 };

/// The error for a record that names who voted before but not who votes.
const NO_BALLOT: DecodeError = DecodeError::BadValue { what: "a field without the one before it", found: 4 };

/// A memory node in one of its lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemberNode {
    /// Its number.
    pub node: u32,
    /// Its incarnation.
    pub incarnation: u64,
}

/// A database with several copies in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedDatabase {
    /// A random number.
    pub database: u64,
    /// The wanted number of copies.
    pub copies: u32,
    /// What all its owners agree on.
    pub config: StoreConfig,
}

/// Decides which record counts, where memory nodes are the register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ballot {
    /// The owner's epoch at the nodes that vote.
    pub epoch: u64,
    /// The number of the owner's write.
    pub write: u64,
    /// The nodes that vote.
    pub voters: Vec<MemberNode>,
    /// While the voters change, the nodes that voted before; more than half of them must also have the record. Otherwise
    /// empty.
    pub before: Vec<MemberNode>,
}

impl Ballot {
    /// Whether a node votes or voted before.
    #[must_use]
    pub fn names(&self, node: MemberNode) -> bool {
        self.voters.contains(&node) || self.before.contains(&node)
    }

    /// Whether these nodes are enough to decide: more than half of those that vote and, while the voters change, more than
    /// half of those that voted before.
    #[must_use]
    pub fn is_decided_by(&self, nodes: &[MemberNode]) -> bool {
        let are_most = |of: &[MemberNode]| of.iter().filter(|voter| nodes.contains(voter)).count() * 2 > of.len();
        are_most(&self.voters) && (self.before.is_empty() || are_most(&self.before))
    }
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MembersRecord {
    /// The database; `None` when it was dropped.
    pub database: Option<CopiedDatabase>,
    /// The members of each shard; empty while the database is being created.
    pub shards: Vec<Vec<MemberNode>>,
    /// Decides whether the record counts, where memory nodes are the register.
    pub ballot: Option<Ballot>,
}

impl MembersRecord {
    /// The record's bytes.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] when they reach 4 GiB.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let config = self.database.as_ref().map(|database| database.config.encode()).transpose()?;
        let mut out = Vec::new();
        MEMBERS.encode(&mut out, |body| {
            if let (Some(database), Some(config)) = (&self.database, &config) {
                put_field(body, 1, Need::Mandatory, |out| {
                    out.put_u64(database.database);
                    out.put_u32(database.copies);
                    out.put_prefixed(config);
                });
            }
            for members in &self.shards {
                put_field(body, 2, Need::Mandatory, |out| put_members(out, members));
            }
            if let Some(Ballot { epoch, write, voters, before }) = &self.ballot {
                put_field(body, 3, Need::Mandatory, |out| {
                    out.put_u64(*epoch);
                    out.put_u64(*write);
                    put_members(out, voters);
                });
                if !before.is_empty() {
                    put_field(body, 4, Need::Mandatory, |out| put_members(out, before));
                }
            }
        })?;
        Ok(out)
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// [`crate::Error::Damaged`] or [`crate::Error::Unknown`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut record = Self::default();
        for_each_field(MEMBERS.decode(bytes)?, MEMBERS.what, |number, value| record.decode_field(number, value))?;
        Ok(record)
    }

    fn decode_field(&mut self, number: u64, value: &mut Reader<'_>) -> Result<bool> {
        match number {
            1 => {
                let (database, copies) = read_database(value).context(MEMBERS.what)?;
                let config = StoreConfig::decode(value.prefixed().context(MEMBERS.what)?)?;
                self.database = Some(CopiedDatabase { database, copies, config });
            }
            2 => self.shards.push(read_members(value).context(MEMBERS.what)?),
            3 => self.ballot = Some(read_ballot(value).context(MEMBERS.what)?),
            4 => {
                let before = read_members(value).context(MEMBERS.what)?;
                self.ballot.as_mut().ok_or(NO_BALLOT).context(MEMBERS.what)?.before = before;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn read_database(value: &mut Reader<'_>) -> std::result::Result<(u64, u32), DecodeError> {
    Ok((value.u64()?, value.u32()?))
}

fn put_members(out: &mut Vec<u8>, members: &[MemberNode]) {
    out.put_varint(members.len() as u64);
    for member in members {
        out.put_u32(member.node);
        out.put_u64(member.incarnation);
    }
}

fn read_ballot(value: &mut Reader<'_>) -> std::result::Result<Ballot, DecodeError> {
    Ok(Ballot { epoch: value.u64()?, write: value.u64()?, voters: read_members(value)?, before: Vec::new() })
}

fn read_members(value: &mut Reader<'_>) -> std::result::Result<Vec<MemberNode>, DecodeError> {
    let count = read_count(value, 12)?;
    (0..count).map(|_| Ok(MemberNode { node: value.u32()?, incarnation: value.u64()? })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::KeyOrder;
    use proptest::prelude::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn record() -> MembersRecord {
        let config = StoreConfig {
            key_order: KeyOrder::Bytewise,
            shards: 2,
            merge_operator: String::new(),
            bounds: vec![b"m".to_vec()],
            part: None,
            copies: 1,
            to_finish: false,
        };
        let [first, second] = [5, 6].map(|incarnation| MemberNode { node: 1, incarnation });
        MembersRecord {
            database: Some(CopiedDatabase { database: 7, copies: 2, config }),
            shards: vec![vec![first, second], vec![second]],
            ballot: None,
        }
    }

    #[test]
    fn golden_bytes() {
        let bytes = record().encode().unwrap();
        assert_eq!(hex(&bytes), GOLDEN);
        assert_eq!(MembersRecord::decode(&bytes).unwrap(), record());
        let [before, voter] = [4, 5].map(|incarnation| vec![MemberNode { node: 1, incarnation }]);
        for (before, golden) in [(vec![], GOLDEN_VOTED), (before, GOLDEN_CHANGING)] {
            let ballot = Ballot { epoch: 3, write: 4, voters: voter.clone(), before };
            let voted = MembersRecord { ballot: Some(ballot), ..MembersRecord::default() };
            let bytes = voted.encode().unwrap();
            assert_eq!(hex(&bytes), golden);
            assert_eq!(MembersRecord::decode(&bytes).unwrap(), voted);
        }
        let dropped = MembersRecord::default();
        assert_eq!(MembersRecord::decode(&dropped.encode().unwrap()).unwrap(), dropped);
    }

    const GOLDEN: &str = "46424d4201000000620000000236070000000000000002000000294642534301000000190000000209086279746577697\
        365040802000000000000000802016dc2258803041902010000000500000000000000010000000600000000000000040d0101000000060000\
        00000000005cb5fde1";

    const GOLDEN_VOTED: &str =
        "46424d42010000001f000000061d03000000000000000400000000000000010100000005000000000000000dc46475";

    const GOLDEN_CHANGING: &str = "46424d42010000002e000000061d0300000000000000040000000000000001010000000500000000000000080d01010000\
        0004000000000000003b983f41";

    #[test]
    fn who_voted_before_is_of_no_use_without_who_votes() {
        let mut bytes = Vec::new();
        MEMBERS.encode(&mut bytes, |body| put_field(body, 4, Need::Mandatory, |out| put_members(out, &[]))).unwrap();
        assert!(MembersRecord::decode(&bytes).is_err());
    }

    #[test]
    fn a_change_is_decided_by_more_than_half_of_both() {
        let [old, new, second, third] = [1, 2, 3, 4].map(|incarnation| MemberNode { node: 1, incarnation });
        let mut ballot = Ballot { epoch: 1, write: 1, voters: vec![new, second, third], before: Vec::new() };
        assert!(ballot.is_decided_by(&[new, second]) && !ballot.is_decided_by(&[old, second]));
        ballot.before = vec![old, second, third];
        assert!(ballot.is_decided_by(&[second, third]) && ballot.is_decided_by(&[old, new, second]));
        assert!(!ballot.is_decided_by(&[new, second]) && !ballot.is_decided_by(&[old, second]));
    }

    #[test]
    fn a_flipped_bit_is_noticed() {
        let bytes = record().encode().unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(MembersRecord::decode(&flipped).is_err(), "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_decode_without_panic(body in prop::collection::vec(any::<u8>(), 0..80)) {
            let mut bytes = Vec::new();
            MEMBERS.encode(&mut bytes, |out| out.extend_from_slice(&body)).unwrap();
            let _ = MembersRecord::decode(&bytes);
            let _ = MembersRecord::decode(&body);
        }
    }
}
