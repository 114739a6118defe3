//! The messages between compute nodes and memory nodes, and the division of an extent. No I/O.
//!
//! A compute node opens a session on its link and then makes [calls]. Each call is one request and one reply over the
//! fabric's RPC, whose envelope carries the procedure's number, the checksums and the error kinds. Lists have a maximum
//! length, so every request except [`calls::SubmitJob`], [`calls::SetRoot`], [`calls::AcquireSeen`],
//! [`calls::WriteRange`] and [`calls::CreateStore`] fits into one message. Longer lists come in pages.
//!
//! | term | meaning here |
//! |---|---|
//! | extent | unit in which the node registers, leases and grants memory; all are equally large |
//! | range | part of an extent: extent, offset, length |
//! | lease | a session's hold on an extent that the session itself divides (dLSM V-A) |
//! | adopt | an extent or range passes from the session to a shard, because a version names it |
//! | owner | the session that holds a shard at its current epoch |

#![forbid(unsafe_code)]

pub mod calls;
pub mod field;
pub mod gather;
mod ids;
pub mod ranges;
pub mod replies;

pub use calls::{Call, Procedure, Request};
pub use field::{Blob, MAX_BLOB_BYTES, MAX_LIST, MAX_TEXT_BYTES, Message, Rest, Text};
pub use ids::{Epoch, ExtentId, ExtentRange, GrantedExtent, Purpose, SessionId, ShardId, ShardKey, StoreId};
pub use ranges::RangeAllocator;

/// Version of the messages. A node refuses a session with another version. From version 2 on, databases declare their share
/// of a node's memory and keep to the node's answer.
pub const PROTOCOL_VERSION: u16 = 2;

/// Maximum number of extents of a node: each is a mapping, and over shared memory an open file.
pub const MAX_EXTENTS: u32 = 1 << 16;

/// Kinds of jobs. Jobs that work on tables have numbers from 16.
pub mod job_kind {
    /// Copies the arguments into an output of the node's own part; the result is the output's range
    /// (20 bytes) and the arguments.
    pub const ECHO: u16 = 1;
    /// CRC32C of a range: the argument is a range, the result 4 bytes.
    pub const CHECKSUM: u16 = 2;
    /// Copies ranges into the result, one after another ([`gather`](crate::gather)).
    pub const GATHER: u16 = 3;
    /// Copies the arguments into an output, whose range (20 bytes) is the result. For a flush that finds no other
    /// memory.
    pub const STORE: u16 = 4;
    /// Compaction near the data (dLSM V): argument and result are those of a compaction job
    /// (`docs/formats/compaction-job.md`).
    pub const COMPACTION: u16 = 16;
    /// The newest records of keys in several tables: argument and result are those of a search
    /// (`docs/formats/search.md`).
    pub const SEARCH: u16 = 17;
    /// The first entries from a key on in several tables: argument and result are those of a short scan
    /// (`docs/formats/search.md`).
    pub const SHORT_SCAN: u16 = 18;
    /// Copies of segments, which an executor that reaches storage puts there (`docs/formats/compaction-job.md`). Memory
    /// nodes have no runner for it.
    pub const COPY: u16 = 19;
}

/// Numbers that distinguish the jobs of a shard that run at the same time. Compactions have their own numbers, which ascend
/// from the lowest. Requests, which have none, are counted from the highest down.
pub mod attempt {
    /// The number of the request with this count, from zero.
    #[must_use]
    pub const fn of_request(count: u64) -> u64 {
        u64::MAX - count
    }

    /// The name of a job with this number in logs and errors.
    #[must_use]
    pub fn shown(number: u64) -> String {
        match u64::MAX - number {
            count if count < number => format!("request {count}"),
            _ => number.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::attempt::{of_request, shown};

    #[test]
    fn requests_are_told_from_jobs() {
        assert_eq!([1, 7].map(shown), ["1", "7"]);
        assert_eq!([0, 19].map(|count| shown(of_request(count))), ["request 0", "request 19"]);
    }
}
