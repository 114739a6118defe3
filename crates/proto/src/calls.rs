//! Requests of a compute node to a memory node.
//!
//! A session is bound to its link: the node refuses its number on any other link. Calls on a shard carry the epoch at
//! which it was acquired. They are refused with [`Fenced`](forebay_base::ErrorKind::Fenced) when that is not the
//! current epoch. [`crate::field`] shows the coding; see `docs/formats/node-messages.md`.

use crate::field::{Blob, Field, Message, Rest, Text, message};
use crate::ids::{Epoch, ExtentId, ExtentRange, Purpose, SessionId, ShardKey, StoreId};
use crate::replies::{
    Credit, Done, Exchanged, ExtentPage, ExtentsGranted, JobDone, NodeLoad, OutputGranted, PoolPage, RangePage,
    RangesGranted, ReadersPassed, Renewed, Root, SessionOpened, ShardAcquired, Statistics, StoreOpened, StorePage,
    TenantPage, TicketJoined, TicketOpened,
};
use forebay_base::DecodeError;

/// A request, with its procedure and the type of its reply.
pub trait Call: Message {
    /// Its number.
    const PROCEDURE: Procedure;
    /// The reply.
    type Reply: Message;
}

macro_rules! calls {
    ($($(#[$about:meta])* $name:ident = $number:literal -> $reply:ty {
        $($(#[$field_about:meta])* $field:ident: $type:ty,)*
    })*) => {
        $(
            message! { $(#[$about])* $name { $($(#[$field_about])* $field: $type,)* } }

            impl Call for $name {
                const PROCEDURE: Procedure = Procedure::$name;
                type Reply = $reply;
            }

            impl From<$name> for Request {
                fn from(call: $name) -> Self {
                    Self::$name(call)
                }
            }
        )*

        /// Numbers of the procedures.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Procedure {
            $(#[doc = concat!("[`", stringify!($name), "`]")] $name = $number,)*
        }

        impl Procedure {
            /// All procedures.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The procedure with this number.
            #[must_use]
            pub const fn from_number(number: u16) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The procedure's name in logs.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }
        }

        /// Any request.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Request {
            $(#[doc = concat!("[`", stringify!($name), "`]")] $name($name),)*
        }

        impl Request {
            /// Decodes the request of a procedure.
            ///
            /// # Errors
            /// [`DecodeError`].
            pub fn decode(procedure: Procedure, body: &[u8]) -> Result<Self, DecodeError> {
                match procedure {
                    $(Procedure::$name => <$name as Message>::decode(body).map(Self::$name),)*
                }
            }

            /// Its procedure.
            #[must_use]
            pub const fn procedure(&self) -> Procedure {
                match self {
                    $(Self::$name(_) => Procedure::$name,)*
                }
            }

            /// Appends its body.
            pub fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$name(call) => Field::put(call, out),)*
                }
            }
        }
    };
}

calls! {
    /// Opens the link's session. Refused when the link has one.
    OpenSession = 1 -> SessionOpened {
        /// [`PROTOCOL_VERSION`](crate::PROTOCOL_VERSION).
        protocol: u16,
        /// The tenant to which the client expects to belong; empty for any. The identity that the link has proven
        /// determines the tenant, and another one is refused ([`AccessDenied`](forebay_base::ErrorKind::AccessDenied)).
        tenant: Text,
        /// The name of the process, for logs.
        name: Text,
        /// Capabilities of the process. No bit is defined yet.
        capabilities: u64,
    }
    /// Renews the session. The node's *reading epoch* counts frees. A session that reads memory that others may free
    /// announces the reading epoch at which its oldest read began. Memory freed since then is not reused before the
    /// session announces a later epoch.
    Renew = 2 -> Renewed {
        /// The session.
        session: SessionId,
        /// Reading epoch of the oldest read; `u64::MAX` when there is none.
        reading_epoch: u64,
    }
    /// Ends the session: gives back its shards and all memory that no shard adopted.
    CloseSession = 3 -> Done {
        /// The session.
        session: SessionId,
    }
    /// Begins a new reading epoch, and reports the progress of the readers, for sessions that divide shared memory
    /// themselves. Memory that nobody can reach any more at the time of this call may be reused once the oldest reading
    /// epoch is past the one that this call ended.
    PassReaders = 4 -> ReadersPassed {
        /// The session.
        session: SessionId,
        /// As in [`Renew`].
        reading_epoch: u64,
    }
    /// Leases extents (dLSM V-A). Grants fewer when memory is short. [`Full`](forebay_base::ErrorKind::Full) when there
    /// are none, [`Busy`](forebay_base::ErrorKind::Busy) when freed ones are about to become free.
    LeaseExtents = 16 -> ExtentsGranted {
        /// The session.
        session: SessionId,
        /// How many extents; at most [`MAX_LIST`](crate::MAX_LIST).
        count: u32,
        /// The purpose.
        purpose: Purpose,
    }
    /// Gives leased extents back.
    ReturnExtents = 17 -> Done {
        /// The session.
        session: SessionId,
        /// The extents.
        extents: Vec<ExtentId>,
    }
    /// Gets keys to a shard's extents. The shard's owner gets keys to read and write the adopted extents if it wants to
    /// write. Otherwise a session that opened the store gets keys to read. For a shared shard, the keys allow writing
    /// on request. [`Busy`](forebay_base::ErrorKind::Busy) while an earlier owner has not released extents that are to
    /// be written.
    MapExtents = 18 -> ExtentsGranted {
        /// The session.
        session: SessionId,
        /// The shard.
        shard: ShardKey,
        /// Whether the shard's owner wants to write.
        write: bool,
        /// The extents.
        extents: Vec<ExtentId>,
    }
    /// Passes extents from the session to the shard, so that they outlive the session.
    AdoptExtents = 19 -> Done {
        /// The session, which owns the shard.
        session: SessionId,
        /// The shard.
        shard: ShardKey,
        /// Its epoch.
        epoch: Epoch,
        /// The extents.
        extents: Vec<ExtentId>,
    }
    /// Frees extents that the shard adopted.
    ReleaseExtents = 20 -> Done {
        /// The session, which owns the shard.
        session: SessionId,
        /// The shard.
        shard: ShardKey,
        /// Its epoch.
        epoch: Epoch,
        /// The extents.
        extents: Vec<ExtentId>,
    }
    /// Lists the extents of a shard, both adopted ones and those with outputs of jobs.
    ListExtents = 21 -> ExtentPage {
        /// The session.
        session: SessionId,
        /// The shard.
        shard: ShardKey,
        /// The first extent of interest.
        from: ExtentId,
    }
    /// Passes outputs of jobs to the shard, so that they outlive the session. At most 32 ranges fit into one message.
    AdoptRanges = 22 -> Done {
        /// The session, which owns the shard.
        session: SessionId,
        /// The shard.
        shard: ShardKey,
        /// Its epoch.
        epoch: Epoch,
        /// The ranges.
        ranges: Vec<ExtentRange>,
    }
    /// Frees outputs of jobs in one batch (dLSM V-B).
    FreeBatch = 23 -> Done {
        /// The session, which owns the shard.
        session: SessionId,
        /// The shard.
        shard: ShardKey,
        /// Its epoch.
        epoch: Epoch,
        /// The ranges.
        ranges: Vec<ExtentRange>,
    }
    /// Lists the job outputs that a shard's owners adopted. An owner that recovers the shard frees those that no
    /// version names.
    ListRanges = 24 -> RangePage {
        /// The session.
        session: SessionId,
        /// The shard.
        shard: ShardKey,
        /// The extent of the first range of interest.
        from: ExtentId,
        /// The offset at which it begins, in bytes.
        offset: u64,
    }
    /// Passes leased extents to a shared shard, which has no owner. Every session that opened the store gets keys with
    /// all rights to them ([`MapExtents`]). The first call makes the shard shared; refused when it has, or had, an
    /// owner. There is no epoch: nobody can own a shared shard, and so nobody is deposed there.
    ShareExtents = 25 -> Done {
        /// The session, which opened the store.
        session: SessionId,
        /// The shard.
        shard: ShardKey,
        /// The extents.
        extents: Vec<ExtentId>,
    }
    /// Fills a range with zeros, in an extent that the shard has adopted or that the session has leased for it: at most
    /// [`MAX_ZEROED_BYTES`]. Only for memory that nobody reads or writes at that time.
    ZeroRange = 26 -> Done {
        /// The session, which owns the shard.
        session: SessionId,
        /// The shard.
        shard: ShardKey,
        /// Its epoch.
        epoch: Epoch,
        /// The range.
        range: ExtentRange,
    }
    /// Declares the session's database and the weight of its share of the tenant's memory, and asks what it may take. The
    /// last declaration counts while the session lives.
    GetCredit = 27 -> Credit {
        /// The session.
        session: SessionId,
        /// The database's name, as for a store; empty for one without a name, which belongs to the session alone. Sessions
        /// of one tenant that declare the same name belong to one database. The database holds what they lease, and the
        /// memory of stores whose shards they own. Where several databases own shards of a store, the store counts for the
        /// owner of the first.
        database: Text,
        /// The weight of its share; a lower weight counts as 1.
        share: u32,
    }
    /// Writes bytes into memory that belongs to the shard or that the session has leased for it. This includes outputs of
    /// jobs, to which owners have no writing keys. Where one copy of a segment is damaged, its owner writes the bytes of
    /// another copy over it.
    WriteRange = 28 -> Done {
        /// The session, which owns the shard.
        session: SessionId,
        /// The shard.
        shard: ShardKey,
        /// Its epoch.
        epoch: Epoch,
        /// The extent.
        extent: ExtentId,
        /// Where the bytes go, in bytes from its start.
        offset: u64,
        /// The bytes.
        bytes: Blob,
    }
    /// Creates a store and opens it.
    CreateStore = 32 -> StoreOpened {
        /// The session.
        session: SessionId,
        /// The store's name: letters, digits, `.`, `_`, `-`. A store without a name is private: nobody
        /// else can open it, and it is dropped with the session.
        name: Text,
        /// Configuration that its users must agree on; the node does not interpret it.
        config: Blob,
    }
    /// Opens a store of the session's tenant.
    OpenStore = 33 -> StoreOpened {
        /// The session.
        session: SessionId,
        /// The store's name.
        name: Text,
    }
    /// Lists the stores of the session's tenant.
    ListStores = 34 -> StorePage {
        /// The session.
        session: SessionId,
        /// Only names after this one.
        after: Text,
    }
    /// Drops a store and frees its memory. [`Busy`](forebay_base::ErrorKind::Busy) while another session owns one of
    /// its shards or one of its jobs runs.
    DropStore = 35 -> Done {
        /// The session.
        session: SessionId,
        /// The store.
        store: StoreId,
    }
    /// Becomes the owner of a shard, with the next epoch. [`Busy`](forebay_base::ErrorKind::Busy) when another session
    /// owns it, unless it is taken over: then that session's keys to the shard's memory are revoked and its calls are
    /// fenced.
    AcquireShard = 48 -> ShardAcquired {
        /// The session.
        session: SessionId,
        /// The shard.
        shard: ShardKey,
        /// Whether to take it from another session.
        takeover: bool,
    }
    /// Releases the shard.
    ReleaseShard = 49 -> Done {
        /// The session, which owns the shard.
        session: SessionId,
        /// The shard.
        shard: ShardKey,
        /// Its epoch.
        epoch: Epoch,
    }
    /// Sets the root of the shard, from which recovery starts.
    SetRoot = 50 -> Done {
        /// The session, which owns the shard.
        session: SessionId,
        /// The shard.
        shard: ShardKey,
        /// Its epoch.
        epoch: Epoch,
        /// The root; the node does not interpret it.
        root: Blob,
    }
    /// Gets the root of the shard, from which recovery starts.
    GetRoot = 51 -> Root {
        /// The session, which opened the store.
        session: SessionId,
        /// The shard.
        shard: ShardKey,
    }
    /// Becomes the owner, as [`AcquireShard`] does, if the shard's root is still what the caller has seen.
    /// [`Conflict`](forebay_base::ErrorKind::Conflict) when it is not: then nothing was done, and any owner continues.
    AcquireSeen = 52 -> ShardAcquired {
        /// The session.
        session: SessionId,
        /// The shard.
        shard: ShardKey,
        /// Whether to take it from another session.
        takeover: bool,
        /// The epoch that set the root; 0 if none did, or if nobody has ever owned the shard.
        epoch: Epoch,
        /// The root.
        root: Blob,
    }
    /// Runs a job near the data (dLSM X-D2: the caller sleeps, the arguments are pulled).
    /// [`Busy`](forebay_base::ErrorKind::Busy) when the queue is full: run it elsewhere.
    SubmitJob = 64 -> JobDone {
        /// The session, which owns the shard.
        session: SessionId,
        /// The shard.
        shard: ShardKey,
        /// Its epoch.
        epoch: Epoch,
        /// Distinguishes attempts of the same work ([`attempt`](crate::attempt)).
        attempt: u64,
        /// The kind of job.
        kind: u16,
        /// Its arguments.
        arguments: Rest,
    }
    /// Opens a ticket: a job of the shard that another session of the tenant may run, with memory of the shard and of
    /// this session. It ends with the epoch and the session.
    OpenTicket = 72 -> TicketOpened {
        /// The session, which owns the shard.
        session: SessionId,
        /// The shard.
        shard: ShardKey,
        /// Its epoch.
        epoch: Epoch,
        /// What an attempt must know to join, drawn at random.
        secret: u128,
    }
    /// Ends a ticket: keys of its attempts are revoked, and outputs that the shard did not adopt are freed.
    CloseTicket = 73 -> Done {
        /// The session, which owns the shard.
        session: SessionId,
        /// The shard.
        shard: ShardKey,
        /// Its epoch.
        epoch: Epoch,
        /// The ticket.
        ticket: u64,
    }
    /// Joins a ticket as an attempt, which ends all earlier ones: their keys are revoked, and their outputs are freed.
    /// [`Fenced`](forebay_base::ErrorKind::Fenced) when the ticket has ended, or a later attempt has joined.
    JoinTicket = 74 -> TicketJoined {
        /// The session, which runs the attempt.
        session: SessionId,
        /// The ticket.
        ticket: u64,
        /// Its secret.
        secret: u128,
        /// The attempt.
        attempt: u64,
    }
    /// Gets keys for an attempt, to read ranges of the shard's memory or of its owner's: at most [`MAX_RANGES`], of whole
    /// pages. They end with the attempt.
    ReadForTicket = 75 -> RangesGranted {
        /// The session, which runs the attempt.
        session: SessionId,
        /// The ticket.
        ticket: u64,
        /// The attempt.
        attempt: u64,
        /// The ranges.
        ranges: Vec<ExtentRange>,
    }
    /// Allocates an output of an attempt, and gets a key to write it. The output is pending until the shard's owner adopts
    /// it. The key ends with the attempt.
    AllocateForTicket = 76 -> OutputGranted {
        /// The session, which runs the attempt.
        session: SessionId,
        /// The ticket.
        ticket: u64,
        /// The attempt.
        attempt: u64,
        /// Length in bytes.
        length: u64,
    }
    /// Ends an attempt. Its keys are revoked. Its outputs are kept for the owner if it went well, otherwise freed.
    FinishTicket = 77 -> Done {
        /// The session, which runs the attempt.
        session: SessionId,
        /// The ticket.
        ticket: u64,
        /// The attempt.
        attempt: u64,
        /// Whether it went well.
        well: bool,
    }
    /// Gives letters to the scheduler at this node, and takes those that wait for the session.
    /// [`Unavailable`](forebay_base::ErrorKind::Unavailable) when no scheduler runs here.
    Exchange = 78 -> Exchanged {
        /// The session.
        session: SessionId,
        /// The letters (`docs/formats/offload-letter.md`).
        letters: Rest,
    }
    /// The node's figures as if only the session's tenant used it. If the tenant administers the node and has no right to
    /// data, the figures of the whole node. The time is the whole node's for every tenant that administers it.
    GetStatistics = 80 -> Statistics {
        /// The session.
        session: SessionId,
    }
    /// Lists the node's tenants with their figures, for a session whose tenant administers the node.
    ListTenants = 81 -> TenantPage {
        /// The session.
        session: SessionId,
        /// Only names after this one.
        after: Text,
    }
    /// Lists the databases that have declared a share, with what they hold: those of the session's tenant, or all if it
    /// administers the node.
    ListPool = 82 -> PoolPage {
        /// The session.
        session: SessionId,
        /// How many of them to skip.
        skip: u32,
    }
    /// How busy the node's own threads are, for a scheduler elsewhere: with jobs of all tenants if the session's tenant
    /// administers the node, otherwise with its own jobs.
    GetLoad = 83 -> NodeLoad {
        /// The session.
        session: SessionId,
    }
}

/// Maximum number of ranges in one message.
pub const MAX_RANGES: usize = 32;

/// Most bytes that one call may zero, so that other calls do not wait long for it.
pub const MAX_ZEROED_BYTES: u64 = 512 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{GrantedExtent, ShardId};
    use crate::replies::{DoorFigures, PoolEntry, TenantFigures};
    use forebay_fabric::rpc::MAX_INLINE_BYTES;
    use forebay_fabric::{AccessKey, Rights};
    use proptest::prelude::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn text(text: &str) -> Text {
        Text::new(text).unwrap()
    }

    const SESSION: SessionId = SessionId(0x51);
    const SHARD: ShardKey = ShardKey { store: StoreId(0x52), shard: ShardId(0x53) };
    const EPOCH: Epoch = Epoch(0xe);

    fn samples() -> Vec<(Request, &'static str)> {
        let session = SESSION;
        let shard = SHARD;
        let epoch = EPOCH;
        let extents = vec![ExtentId(1), ExtentId(0x0203)];
        let ranges = vec![ExtentRange { extent: ExtentId(4), offset: 0x1000, length: 0x2000 }];
        let blob = Blob::new(*b"blob").unwrap();
        vec![
            (
                OpenSession { protocol: 1, tenant: text("t"), name: text("me"), capabilities: 9 }.into(),
                "0101000174026d650900000000000000",
            ),
            (Renew { session, reading_epoch: u64::MAX }.into(), "015100000000000000ffffffffffffffff"),
            (CloseSession { session }.into(), "015100000000000000"),
            (PassReaders { session, reading_epoch: 3 }.into(), "0151000000000000000300000000000000"),
            (LeaseExtents { session, count: 7, purpose: Purpose::Collection }.into(), "0151000000000000000700000001"),
            (ReturnExtents { session, extents: extents.clone() }.into(), "01510000000000000002000100000003020000"),
            (
                MapExtents { session, shard, write: true, extents: extents.clone() }.into(),
                "0151000000000000005200000000000000530000000102000100000003020000",
            ),
            (
                AdoptExtents { session, shard, epoch, extents: extents.clone() }.into(),
                "0151000000000000005200000000000000530000000e0000000000000002000100000003020000",
            ),
            (
                ReleaseExtents { session, shard, epoch, extents }.into(),
                "0151000000000000005200000000000000530000000e0000000000000002000100000003020000",
            ),
            (
                ListExtents { session, shard, from: ExtentId(3) }.into(),
                "01510000000000000052000000000000005300000003000000",
            ),
            (
                AdoptRanges { session, shard, epoch, ranges: ranges.clone() }.into(),
                "0151000000000000005200000000000000530000000e0000000000000001000400000000100000000000000020000000000000",
            ),
            (
                FreeBatch { session, shard, epoch, ranges: ranges.clone() }.into(),
                "0151000000000000005200000000000000530000000e0000000000000001000400000000100000000000000020000000000000",
            ),
            (
                ZeroRange { session, shard, epoch, range: ranges[0] }.into(),
                "0151000000000000005200000000000000530000000e000000000000000400000000100000000000000020000000000000",
            ),
            (
                WriteRange { session, shard, epoch, extent: ExtentId(4), offset: 6, bytes: blob.clone() }.into(),
                "0151000000000000005200000000000000530000000e000000000000000400000006000000000000000400626c6f62",
            ),
            (
                ListRanges { session, shard, from: ExtentId(3), offset: 5 }.into(),
                "015100000000000000520000000000000053000000030000000500000000000000",
            ),
            (
                ShareExtents { session, shard, extents: vec![ExtentId(1)] }.into(),
                "015100000000000000520000000000000053000000010001000000",
            ),
            (GetCredit { session, database: text("d"), share: 2 }.into(), "015100000000000000016402000000"),
            (
                CreateStore { session, name: text("s"), config: blob.clone() }.into(),
                "01510000000000000001730400626c6f62",
            ),
            (OpenStore { session, name: text("s") }.into(), "0151000000000000000173"),
            (ListStores { session, after: text("") }.into(), "01510000000000000000"),
            (DropStore { session, store: SHARD.store }.into(), "0151000000000000005200000000000000"),
            (AcquireShard { session, shard, takeover: true }.into(), "01510000000000000052000000000000005300000001"),
            (
                ReleaseShard { session, shard, epoch }.into(),
                "0151000000000000005200000000000000530000000e00000000000000",
            ),
            (
                SetRoot { session, shard, epoch, root: blob.clone() }.into(),
                "0151000000000000005200000000000000530000000e000000000000000400626c6f62",
            ),
            (GetRoot { session, shard }.into(), "015100000000000000520000000000000053000000"),
            (
                AcquireSeen { session, shard, takeover: true, epoch, root: blob }.into(),
                "015100000000000000520000000000000053000000010e000000000000000400626c6f62",
            ),
            (
                SubmitJob { session, shard, epoch, attempt: 2, kind: 1, arguments: Rest(vec![0xaa, 0xbb]) }.into(),
                "0151000000000000005200000000000000530000000e0000000000000002000000000000000100aabb",
            ),
            (
                OpenTicket { session, shard, epoch, secret: 0x77 }.into(),
                "0151000000000000005200000000000000530000000e0000000000000077000000000000000000000000000000",
            ),
            (
                CloseTicket { session, shard, epoch, ticket: 6 }.into(),
                "0151000000000000005200000000000000530000000e000000000000000600000000000000",
            ),
            (
                JoinTicket { session, ticket: 6, secret: 0x77, attempt: 8 }.into(),
                "0151000000000000000600000000000000770000000000000000000000000000000800000000000000",
            ),
            (
                ReadForTicket { session, ticket: 6, attempt: 8, ranges: ranges.clone() }.into(),
                "0151000000000000000600000000000000080000000000000001000400000000100000000000000020000000000000",
            ),
            (
                AllocateForTicket { session, ticket: 6, attempt: 8, length: 9 }.into(),
                "015100000000000000060000000000000008000000000000000900000000000000",
            ),
            (
                FinishTicket { session, ticket: 6, attempt: 8, well: true }.into(),
                "0151000000000000000600000000000000080000000000000001",
            ),
            (Exchange { session, letters: Rest(vec![0xaa]) }.into(), "015100000000000000aa"),
            (GetStatistics { session }.into(), "015100000000000000"),
            (ListTenants { session, after: text("t") }.into(), "0151000000000000000174"),
            (ListPool { session, skip: 64 }.into(), "01510000000000000040000000"),
            (GetLoad { session }.into(), "015100000000000000"),
        ]
    }

    fn body(request: &Request) -> Vec<u8> {
        let mut out = vec![1];
        request.put(&mut out);
        out
    }

    #[test]
    fn golden_requests() {
        let samples = samples();
        assert_eq!(samples.len(), Procedure::ALL.len());
        for (request, expected) in samples {
            let bytes = body(&request);
            assert_eq!(hex(&bytes), expected, "{request:?}");
            assert_eq!(Request::decode(request.procedure(), &bytes), Ok(request.clone()));
            for cut in 0..bytes.len() {
                let short = Request::decode(request.procedure(), &bytes[..cut]);
                let is_open = matches!(request, Request::SubmitJob(_) | Request::Exchange(_));
                assert!(short.is_err() || is_open, "{request:?}");
            }
        }
    }

    #[test]
    fn golden_replies() {
        let key = AccessKey::new(3, 0x0102);
        let granted = GrantedExtent { extent: ExtentId(5), rights: Rights::ALL, key };
        let opened = SessionOpened {
            session: SESSION,
            lease_ms: 0x1388,
            node: 1,
            incarnation: 0xabcd,
            extent_bytes: 1 << 26,
            extents: 128,
            headroom_extents: 8,
            reading_epoch: 4,
            capabilities: 1,
        };
        let range = ExtentRange { extent: ExtentId(9), offset: 7, length: 5 };
        let entry = crate::replies::StoreEntry { store: SHARD.store, name: text("s") };
        let credit = Credit {
            free_extents: 9,
            headroom_extents: 1,
            withheld_extents: 2,
            owed_extents: 3,
            share_extents: 4,
            held_extents: 5,
            databases: 6,
            is_called: true,
        };
        let entry_of_pool = PoolEntry {
            tenant: text("t"),
            database: text("d"),
            process: text("me"),
            session: SESSION,
            sessions: 1,
            weight: 2,
            share_extents: 4,
            held_extents: 5,
            owed_extents: 1,
        };
        let lines = [
            hex(&Done {}.encode()),
            hex(&opened.encode()),
            hex(&Renewed { lease_ms: 5, reading_epoch: 6 }.encode()),
            hex(&ReadersPassed { ended_epoch: 5, oldest_epoch: 4, reading_epoch: 6 }.encode()),
            hex(&ExtentsGranted { extents: vec![granted] }.encode()),
            hex(&ExtentPage { extents: vec![ExtentId(9)], more: true }.encode()),
            hex(&RangePage { ranges: vec![range], more: true }.encode()),
            hex(&StoreOpened { store: SHARD.store, config: Blob::default() }.encode()),
            hex(&StorePage { stores: vec![entry], more: false }.encode()),
            hex(&ShardAcquired { epoch: EPOCH }.encode()),
            hex(&Root { epoch: EPOCH, root: Blob::new([7]).unwrap() }.encode()),
            hex(&JobDone { result: Rest(vec![1, 2]) }.encode()),
            hex(&TicketOpened { ticket: 6 }.encode()),
            hex(&TicketJoined { longest_bytes: 7 }.encode()),
            hex(&RangesGranted { keys: vec![key] }.encode()),
            hex(&OutputGranted { range, key, longest_bytes: 7 }.encode()),
            hex(&Exchanged { term: 3, letters: Rest(vec![0xaa]) }.encode()),
            hex(&credit.encode()),
            hex(&PoolPage { databases: vec![entry_of_pool], more: true, free_extents: 3, other_extents: 2 }.encode()),
            hex(&NodeLoad { running_jobs: 1, job_threads: 2, queued_jobs: 3, most_queued_jobs: 4 }.encode()),
        ];
        assert_eq!(
            lines,
            [
                "01",
                "0151000000000000008813000001000000cdab0000000000000000000400000000800000000800000004000000000000000100000000000000",
                "01050000000600000000000000",
                "01050000000000000004000000000000000600000000000000",
                "01010005000000070300000002010000000000000000000000000000",
                "0101000900000001",
                "010100090000000700000000000000050000000000000001",
                "0152000000000000000000",
                "0101005200000000000000017300",
                "010e00000000000000",
                "010e00000000000000010007",
                "010102",
                "010600000000000000",
                "010700000000000000",
                "0101000300000002010000000000000000000000000000",
                "01090000000700000000000000050000000000000003000000020100000000000000000000000000000700000000000000",
                "0103000000aa",
                "010900000000000000010000000000000002000000000000000300000000000000040000000000000005000000000000000600000001",
                "01010001740164026d6551000000000000000100000002000000040000000000000005000000000000000100000000000000\
                 0103000000000000000200000000000000",
                "0101000000020000000300000004000000",
            ]
        );
        assert_eq!(
            ExtentsGranted::decode(&ExtentsGranted { extents: vec![granted] }.encode()).unwrap().extents,
            [granted]
        );
        assert_eq!(Statistics::decode(&[1; 1 + 27 * 8]).map(|s| s.uptime_ms), Ok(0x0101_0101_0101_0101));
        let figures = [1; 1 + 2 + 4 + 24 * 8];
        assert_eq!(TenantFigures::decode(&figures).map(|figures| figures.busy_us), Ok(0x0101_0101_0101_0101));
        let door = DoorFigures { admitted: 1, refused: 2, shown_out: 3, late: 4, crowded: 5, withdrawn: 6 };
        let page = TenantPage { tenants: vec![TenantFigures::decode(&figures).unwrap()], more: true, door };
        let words: String = (1..=6u64).map(|word| hex(&word.to_le_bytes())).collect();
        assert_eq!(hex(&page.encode()), format!("020100{}01{words}", hex(&figures[1..])));
        let earlier = [&[1], &page.encode()[1..]].concat();
        assert_eq!(TenantPage::decode(&earlier), Err(DecodeError::BadValue { what: "message version", found: 1 }));
    }

    #[test]
    fn numbers_are_distinct_and_pinned() {
        let numbers: Vec<u16> = Procedure::ALL.iter().map(|&procedure| procedure as u16).collect();
        assert_eq!(
            numbers,
            [
                1, 2, 3, 4, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 32, 33, 34, 35, 48, 49, 50, 51, 52, 64,
                72, 73, 74, 75, 76, 77, 78, 80, 81, 82, 83
            ]
        );
        assert!((0..100).filter_map(Procedure::from_number).eq(Procedure::ALL.iter().copied()));
    }

    #[test]
    fn full_lists_travel_in_one_message() {
        let extents = vec![ExtentId(u32::MAX); crate::MAX_LIST];
        let longest = AdoptExtents { session: SESSION, shard: SHARD, epoch: EPOCH, extents }.encode();
        assert!(longest.len() <= MAX_INLINE_BYTES);
        let ranges = vec![ExtentRange { extent: ExtentId(0), offset: 0, length: 0 }; MAX_RANGES];
        let longest = FreeBatch { session: SESSION, shard: SHARD, epoch: EPOCH, ranges }.encode();
        assert!(longest.len() <= MAX_INLINE_BYTES);
    }

    proptest! {
        #[test]
        fn any_bytes_decode_without_panic(which in 0..Procedure::ALL.len(), mut bytes in proptest::collection::vec(any::<u8>(), 1..200)) {
            bytes[0] = 1;
            let procedure = Procedure::ALL[which];
            if let Ok(request) = Request::decode(procedure, &bytes) {
                prop_assert_eq!(body(&request), bytes.clone());
            }
            let _ = SessionOpened::decode(&bytes);
            let _ = ExtentsGranted::decode(&bytes);
            let _ = StorePage::decode(&bytes);
            let _ = Root::decode(&bytes);
            let _ = ExtentPage::decode(&bytes);
            let _ = RangePage::decode(&bytes);
            let _ = Statistics::decode(&bytes);
            let _ = RangesGranted::decode(&bytes);
            let _ = Credit::decode(&bytes);
            let _ = PoolPage::decode(&bytes);
        }
    }
}
