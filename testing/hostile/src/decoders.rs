//! What decodes bytes that come from outside, each as a function that may be given any: the targets of `fuzz/`, and of
//! the short deterministic run in this package's tests.
//!
//! None may panic, and what is decoded comes back as the bytes that it was read from: nothing has two forms.

use forebay_base::{InternalKey, KeyOrder, SequenceNumber, Tag};
pub use forebay_fabric::decoders as fabric;
use forebay_fabric::rpc;
use forebay_offload::{Letter, StoredPlace};
use forebay_proto::replies::{
    Done, Exchanged, ExtentPage, ExtentsGranted, JobDone, OutputGranted, PoolPage, RangePage, RangesGranted,
    ReadersPassed, Renewed, Root, SessionOpened, ShardAcquired, Statistics, StoreOpened, StorePage, TenantPage,
    TicketJoined, TicketOpened,
};
use forebay_proto::{Message, Procedure, Request, gather};
use forebay_table::BlockIterator;
use forebay_table::job::{
    CompactionJob, CompactionResult, CopyJob, MAX_SEARCHED_BYTES, MAX_SEARCHED_KEYS, SearchJob, SearchResult,
    ShortScanJob, ShortScanResult,
};
use std::ops::Range;

/// A decoder.
pub type Decoder = fn(&[u8]);

/// All of them, by the names of their targets in `fuzz/`.
pub const ALL: [(&str, Decoder); 16] = [
    ("tcp-frames", fabric::tcp_frames),
    ("tcp-node", fabric::tcp_node),
    ("tcp-client", fabric::tcp_client),
    ("shm-frame", fabric::shm_frame),
    ("envelope", envelope),
    ("reply-envelope", fabric::reply),
    ("requests", requests),
    ("replies", replies),
    ("gather", gathers),
    ("compaction-job", compaction_jobs),
    ("compaction-result", compaction_results),
    ("search", searches),
    ("search-result", search_results),
    ("index-block", index_blocks),
    ("letters", letters),
    ("stored-place", stored_places),
];

/// The body of a request. The first byte chooses the procedure.
///
/// # Panics
/// When a request that was decoded is not encoded as it was.
pub fn requests(bytes: &[u8]) {
    let Some((&which, body)) = bytes.split_first() else { return };
    let Some(&procedure) = Procedure::ALL.get(usize::from(which) % Procedure::ALL.len()) else { return };
    if let Ok(request) = Request::decode(procedure, body) {
        assert_eq!(request.procedure(), procedure);
        let mut again = body.get(..1).unwrap_or_default().to_vec();
        request.put(&mut again);
        assert_eq!(again, body, "{request:?}");
    }
}

fn reply<M: Message + std::fmt::Debug>(body: &[u8]) {
    if let Ok(reply) = M::decode(body) {
        assert_eq!(reply.encode(), body, "{reply:?}");
    }
}

/// The body of a reply. The first byte chooses which.
///
/// # Panics
/// When a reply that was decoded is not encoded as it was.
pub fn replies(bytes: &[u8]) {
    let kinds: [Decoder; 20] = [
        reply::<Done>,
        reply::<SessionOpened>,
        reply::<Renewed>,
        reply::<ReadersPassed>,
        reply::<ExtentsGranted>,
        reply::<ExtentPage>,
        reply::<RangePage>,
        reply::<StoreOpened>,
        reply::<StorePage>,
        reply::<ShardAcquired>,
        reply::<Root>,
        reply::<JobDone>,
        reply::<Statistics>,
        reply::<TenantPage>,
        reply::<TicketOpened>,
        reply::<TicketJoined>,
        reply::<RangesGranted>,
        reply::<OutputGranted>,
        reply::<Exchanged>,
        reply::<PoolPage>,
    ];
    let Some((&which, body)) = bytes.split_first() else { return };
    if let Some(decode) = kinds.get(usize::from(which) % kinds.len()) {
        decode(body);
    }
}

/// The envelope of a request: as it is, and with the right checksum, without which nothing behind it is looked at.
///
/// # Panics
/// When arguments are longer than there may be.
pub fn envelope(bytes: &[u8]) {
    let check = |bytes: &[u8]| {
        if let Ok(request) = rpc::Request::decode(bytes) {
            assert!(request.argument_bytes() <= rpc::MAX_ARGUMENT_BYTES);
            assert!(request.inline_arguments().is_none_or(|inline| inline.len() <= rpc::MAX_INLINE_BYTES));
        }
    };
    check(bytes);
    let crc = forebay_base::envelope_checksum(bytes);
    check(&[&crc.to_le_bytes(), bytes].concat());
}

/// The arguments of a gather.
///
/// # Panics
/// When ranges that were decoded are not encoded as they were, or are more than there may be.
pub fn gathers(bytes: &[u8]) {
    if let Ok(ranges) = gather::decode(bytes) {
        assert!(gather::total_bytes(&ranges).is_some_and(|total| total <= gather::MAX_BYTES));
        assert_eq!(gather::encode(&ranges), bytes);
    }
}

/// The bytes with the number of those behind the header in its field `length`, and with a right checksum behind them.
fn repaired(bytes: &[u8], length: Range<usize>, header_bytes: usize) -> Vec<u8> {
    let mut frame = bytes.to_vec();
    let behind = bytes.len().saturating_sub(header_bytes).to_le_bytes();
    if let Some(field) = frame.get_mut(length) {
        field.iter_mut().zip(behind).for_each(|(byte, right)| *byte = right);
    }
    frame.extend(forebay_base::checksum(&frame).to_le_bytes());
    frame
}

/// The bytes as a frame of `table`.
fn repaired_frame(bytes: &[u8]) -> Vec<u8> {
    repaired(bytes, 8..12, 12)
}

/// The arguments of a compaction, and of a copy: as they are, and with the right checksum.
///
/// # Panics
/// When what was decoded is another thing once it was encoded. Fields may come in any order, so the bytes may differ.
pub fn compaction_jobs(bytes: &[u8]) {
    for bytes in [bytes.to_vec(), repaired_frame(bytes)] {
        if let Ok(job) = CompactionJob::decode(&bytes) {
            let mut again = Vec::new();
            assert!(job.encode(&mut again).is_ok(), "{job:?}");
            assert_eq!(CompactionJob::decode(&again).as_ref(), Ok(&job));
        }
        if let Ok(job) = CopyJob::decode(&bytes) {
            let mut again = Vec::new();
            assert!(job.encode(&mut again).is_ok(), "{job:?}");
            assert_eq!(CopyJob::decode(&again).as_ref(), Ok(&job));
        }
    }
}

/// The result of a compaction, in the same way.
///
/// # Panics
/// As [`compaction_jobs`].
pub fn compaction_results(bytes: &[u8]) {
    for bytes in [bytes.to_vec(), repaired_frame(bytes)] {
        if let Ok(result) = CompactionResult::decode(&bytes) {
            let mut again = Vec::new();
            assert!(result.encode(&mut again).is_ok(), "{result:?}");
            assert_eq!(CompactionResult::decode(&again).as_ref(), Ok(&result));
        }
    }
}

/// The arguments of a search, and of a short scan.
///
/// # Panics
/// When arguments that were decoded are not encoded as they were, or ask for more than there may be.
pub fn searches(bytes: &[u8]) {
    if let Ok(job) = ShortScanJob::decode(bytes) {
        assert!(job.block_bytes() <= MAX_SEARCHED_BYTES);
        let mut again = Vec::new();
        job.encode(&mut again);
        assert_eq!(again, bytes, "{job:?}");
    }
    if let Ok(job) = SearchJob::decode(bytes) {
        assert!(job.keys.len() <= MAX_SEARCHED_KEYS && job.block_bytes() <= MAX_SEARCHED_BYTES);
        let mut again = Vec::new();
        job.encode(&mut again);
        assert_eq!(again, bytes, "{job:?}");
    }
}

/// The result of a search, whose first byte says for how many keys, and of a short scan.
///
/// # Panics
/// When a result that was decoded is not encoded as it was.
pub fn search_results(bytes: &[u8]) {
    let Some((&keys, body)) = bytes.split_first() else { return };
    if let Ok(result) = ShortScanResult::decode(body) {
        let mut again = Vec::new();
        result.encode(&mut again);
        assert_eq!(again, body, "{result:?}");
    }
    if let Ok(result) = SearchResult::decode(body, usize::from(keys % 8)) {
        let mut again = Vec::new();
        result.encode(&mut again);
        assert_eq!(again, body, "{result:?}");
    }
}

/// Index blocks of tables, without their checksum: walked in both directions.
///
/// # Panics
/// When a walk does not end.
pub fn index_blocks(bytes: &[u8]) {
    let block = [bytes, &forebay_base::checksum(bytes).to_le_bytes()].concat();
    let Ok(mut entries) = BlockIterator::new(&block) else { return };
    // An entry has two bytes at least.
    let most = block.len();
    let mut walked = 0;
    let mut moved = entries.seek_to_first();
    while moved.is_ok() && entries.entry().is_some() {
        walked += 1;
        assert!(walked <= most, "it has more entries than bytes");
        moved = entries.advance();
    }
    walked = 0;
    moved = entries.seek_to_last();
    while moved.is_ok() && entries.entry().is_some() {
        walked += 1;
        assert!(walked <= most, "it has more entries than bytes");
        moved = entries.retreat();
    }
    let target = InternalKey { user_key: b"key", tag: Tag::seek(SequenceNumber(5)) };
    let _ = entries.seek(KeyOrder::Bytewise, target);
    let _ = entries.seek_for_prev(KeyOrder::Bytewise, target);
}

/// Letters between databases, schedulers and workers: as they are, and as one with its length and the right checksum.
///
/// # Panics
/// When letters that were decoded are not encoded as they were.
pub fn letters(bytes: &[u8]) {
    for bytes in [bytes, &repaired(bytes, 6..8, 12)] {
        if let Ok(letters) = Letter::decode_all(bytes) {
            let mut again = Vec::new();
            letters.iter().for_each(|letter| letter.encode(&mut again));
            assert_eq!(again, bytes, "{letters:?}");
        }
    }
}

/// Where the objects of a job lie: as it is, and with its length and the right checksum.
///
/// # Panics
/// When what was decoded is not encoded as it was.
pub fn stored_places(bytes: &[u8]) {
    // Such as have signed names are as long as those say.
    for bytes in [bytes, &repaired(bytes, 20..22, 22), &repaired(bytes, 0..0, 0)] {
        if let Ok((place, length)) = StoredPlace::decode(bytes) {
            let mut again = Vec::new();
            place.encode(&mut again);
            assert_eq!(Some(&*again), bytes.get(..length), "{place:?}");
        }
    }
}
