//! The contents of the commits of a database on storage: its identity, the logs that it needs, and its shards' versions.
//!
//! A commit is a snapshot or continues the one before (crate `storage`, the commit register). The first field distinguishes
//! them: only a snapshot has it, and then the edits of shards are their whole versions. The body of a commit's frame "FBDC":
//!
//! ```text
//!   1   u128 number of the database, and its configuration (a store's, see `manifest`) after its length
//!   2   name of the stores on the memory nodes that placements in memory are of; replaces the one before
//!   3   logs that are needed, oldest first: count (varint), each u64 epoch, u64 serial; replaces those before
//!   4 * version edit: u64 shard, and the edit after its length
//!   5   checkpoints that are being dropped: count (varint), each its name and number, as its object has them, after their length,
//!       u8 1 if that is decided, else 0; replaces those before; a snapshot without it has none
//! ```
//!
//! A snapshot without field 1 says that there is no database: it was dropped. All fields are mandatory, so a build that
//! does not know field 5 refuses a database while a checkpoint of it is being dropped.
//!
//! The body of the frame "FBDR", which is the root of each of the database's shards on a memory node, and says that storage
//! knows its versions: u128 number of the database, u64 epoch of the owner.
//!
//! Purpose and golden test: `docs/formats/database-commit.md`.

use crate::error::{Context, Result};
use crate::frame::{FrameKind, Need, for_each_field, put_field, read_count, read_flag, read_text};
use crate::manifest::StoreConfig;
use crate::version_edit::VersionEdit;
use forebay_base::{DecodeError, Reader, Writer};
use std::collections::BTreeMap;

const COMMIT: FrameKind = FrameKind { what: "a commit of a database", magic: *b"FBDC", version: 1 };
const ROOT: FrameKind = FrameKind { what: "the root of a shard on storage", magic: *b"FBDR", version: 1 };

/// A log of a database on storage: the epoch of its writer, and the log's number among that writer's logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogName {
    /// The epoch.
    pub epoch: u64,
    /// The log's number in the epoch.
    pub serial: u64,
}

/// What stays the same during a database's life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseIdentity {
    /// A random number.
    pub database: u128,
    /// What all its owners agree on.
    pub config: StoreConfig,
}

/// The progress of dropping a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropStage {
    /// The process that drops it checks whether it may. Nothing is deleted yet.
    Asked,
    /// It is dropped, even if the database changes its owner: what is left of it must be deleted.
    Decided,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DatabaseCommit {
    /// The database; set by a snapshot.
    pub identity: Option<DatabaseIdentity>,
    /// The name of the stores on memory nodes to which placements in memory refer.
    pub memory_store: Option<String>,
    /// The logs that are needed, oldest first.
    pub logs: Option<Vec<LogName>>,
    /// The checkpoints that are being dropped.
    pub drops: Option<BTreeMap<String, DropStage>>,
    /// Edits of the versions of shards.
    pub edits: Vec<(u64, VersionEdit)>,
}

impl DatabaseCommit {
    /// The commit's bytes.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] when they reach 4 GiB.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let config = self.identity.as_ref().map(|identity| identity.config.encode()).transpose()?;
        let mut edits = Vec::with_capacity(self.edits.len());
        for (shard, edit) in &self.edits {
            let mut bytes = Vec::new();
            edit.encode(&mut bytes)?;
            edits.push((*shard, bytes));
        }
        let mut out = Vec::new();
        COMMIT.encode(&mut out, |body| {
            if let (Some(identity), Some(config)) = (&self.identity, &config) {
                put_field(body, 1, Need::Mandatory, |out| {
                    out.put_u128(identity.database);
                    out.put_prefixed(config);
                });
            }
            if let Some(name) = &self.memory_store {
                put_field(body, 2, Need::Mandatory, |out| out.put_prefixed(name.as_bytes()));
            }
            if let Some(logs) = &self.logs {
                put_field(body, 3, Need::Mandatory, |out| {
                    out.put_varint(logs.len() as u64);
                    for log in logs {
                        out.put_u64(log.epoch);
                        out.put_u64(log.serial);
                    }
                });
            }
            for (shard, edit) in &edits {
                put_field(body, 4, Need::Mandatory, |out| {
                    out.put_u64(*shard);
                    out.put_prefixed(edit);
                });
            }
            if let Some(drops) = &self.drops {
                put_field(body, 5, Need::Mandatory, |out| {
                    out.put_varint(drops.len() as u64);
                    for (checkpoint, stage) in drops {
                        out.put_prefixed(checkpoint.as_bytes());
                        out.put_u8(u8::from(*stage == DropStage::Decided));
                    }
                });
            }
        })?;
        Ok(out)
    }

    /// Decodes a commit.
    ///
    /// # Errors
    /// [`crate::Error::Damaged`] or [`crate::Error::Unknown`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut commit = Self::default();
        for_each_field(COMMIT.decode(bytes)?, COMMIT.what, |number, value| commit.decode_field(number, value))?;
        Ok(commit)
    }

    fn decode_field(&mut self, number: u64, value: &mut Reader<'_>) -> Result<bool> {
        match number {
            1 => {
                let database = value.u128().context(COMMIT.what)?;
                let config = StoreConfig::decode(value.prefixed().context(COMMIT.what)?)?;
                self.identity = Some(DatabaseIdentity { database, config });
            }
            2 => self.memory_store = Some(read_text(value, "name of a store").context(COMMIT.what)?),
            3 => self.logs = Some(read_logs(value).context(COMMIT.what)?),
            4 => {
                let shard = value.u64().context(COMMIT.what)?;
                self.edits.push((shard, VersionEdit::decode(value.prefixed().context(COMMIT.what)?)?));
            }
            5 => self.drops = Some(read_drops(value).context(COMMIT.what)?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn read_drops(value: &mut Reader<'_>) -> std::result::Result<BTreeMap<String, DropStage>, DecodeError> {
    let count = read_count(value, 2)?;
    let read = |_| {
        let checkpoint = read_text(value, "name of a checkpoint")?;
        let is_decided = read_flag(value, "stage of a drop")?;
        Ok((checkpoint, if is_decided { DropStage::Decided } else { DropStage::Asked }))
    };
    (0..count).map(read).collect()
}

fn read_logs(value: &mut Reader<'_>) -> std::result::Result<Vec<LogName>, DecodeError> {
    let count = read_count(value, 16)?;
    (0..count).map(|_| Ok(LogName { epoch: value.u64()?, serial: value.u64()? })).collect()
}

/// The root of a shard whose versions storage knows: see the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorageRoot {
    /// The database.
    pub database: u128,
    /// The epoch of its owner.
    pub epoch: u64,
}

impl StorageRoot {
    /// The root's bytes.
    ///
    /// # Errors
    /// Never fails, because a root is short.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        ROOT.encode(&mut out, |body| {
            body.put_u128(self.database);
            body.put_u64(self.epoch);
        })?;
        Ok(out)
    }

    /// Decodes a root.
    ///
    /// # Errors
    /// [`crate::Error::Damaged`] or [`crate::Error::Unknown`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(ROOT.decode(bytes)?);
        let (database, epoch) = (reader.u128().context(ROOT.what)?, reader.u64().context(ROOT.what)?);
        reader.finish().context(ROOT.what)?;
        Ok(Self { database, epoch })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::{KeyOrder, SequenceNumber};
    use proptest::prelude::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn commit() -> DatabaseCommit {
        let config = StoreConfig {
            key_order: KeyOrder::Bytewise,
            shards: 2,
            merge_operator: String::new(),
            bounds: vec![b"m".to_vec()],
            part: None,
            copies: 1,
            to_finish: false,
        };
        let edit = VersionEdit { last_sequence: Some(SequenceNumber(9)), ..VersionEdit::default() };
        DatabaseCommit {
            identity: Some(DatabaseIdentity { database: 7, config }),
            memory_store: Some("a.b".to_owned()),
            logs: Some(vec![LogName { epoch: 1, serial: 2 }]),
            drops: None,
            edits: vec![(1, edit)],
        }
    }

    fn drops() -> DatabaseCommit {
        let drops = [("one", DropStage::Asked), ("two", DropStage::Decided)];
        let drops = drops.map(|(checkpoint, stage)| (checkpoint.to_owned(), stage)).into();
        DatabaseCommit { drops: Some(drops), ..DatabaseCommit::default() }
    }

    #[test]
    fn golden_bytes() {
        let bytes = commit().encode().unwrap();
        assert_eq!(hex(&bytes), GOLDEN);
        assert_eq!(DatabaseCommit::decode(&bytes).unwrap(), commit());
        let root = StorageRoot { database: 7, epoch: 3 };
        let bytes = root.encode().unwrap();
        assert_eq!(hex(&bytes), GOLDEN_ROOT);
        assert_eq!(StorageRoot::decode(&bytes).unwrap(), root);
        let bytes = drops().encode().unwrap();
        assert_eq!(hex(&bytes), GOLDEN_DROPS);
        assert_eq!(DatabaseCommit::decode(&bytes).unwrap(), drops());
        let nothing = DatabaseCommit::default();
        assert_eq!(DatabaseCommit::decode(&nothing.encode().unwrap()).unwrap(), nothing);
    }

    const GOLDEN: &str = "46424443010000007a000000023a070000000000000000000000000000002946425343010000001900000002090862797465\
        77697365040802000000000000000802016dc2258803040403612e6206110101000000000000000200000000000000082301\
        000000000000001a46427665010000000a0000000c08090000000000000072a6051728c19d48";
    const GOLDEN_DROPS: &str = "46424443010000000d0000000a0b02036f6e65000374776f0199320bf3";
    const GOLDEN_ROOT: &str = "4642445201000000180000000700000000000000000000000000000003000000000000006b5d75ae";

    #[test]
    fn a_flipped_bit_is_noticed() {
        for bytes in [commit(), drops()].map(|commit| commit.encode().unwrap()) {
            for bit in 0..bytes.len() * 8 {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(DatabaseCommit::decode(&flipped).is_err(), "bit {bit}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_decode_without_panic(body in prop::collection::vec(any::<u8>(), 0..80)) {
            let mut bytes = Vec::new();
            COMMIT.encode(&mut bytes, |out| out.extend_from_slice(&body)).unwrap();
            let _ = DatabaseCommit::decode(&bytes);
            let _ = DatabaseCommit::decode(&body);
            let _ = StorageRoot::decode(&body);
        }
    }
}
