//! The decoders of bytes from outside, as functions that take any bytes: the targets of `fuzz/`, and of the short
//! deterministic run in this package's tests.
//!
//! None may panic, and a decoded value encodes to the same bytes: nothing has two forms.

use forebay_base::{CrossingMark, InternalKey, KeyOrder, Record, SequenceNumber, Tag};
pub use forebay_fabric::decoders as fabric;
use forebay_fabric::rpc;
use forebay_offload::{Letter, StoredPlace};
use forebay_proto::replies::{
    Done, Exchanged, ExtentPage, ExtentsGranted, JobDone, OutputGranted, PoolPage, RangePage, RangesGranted,
    ReadersPassed, Renewed, Root, SessionOpened, ShardAcquired, Statistics, StoreOpened, StorePage, TenantPage,
    TicketJoined, TicketOpened,
};
use forebay_proto::{Message, Procedure, Request, gather};
use forebay_table::checkpoint::{self, BlockWriter, Footer, TRAILER_LENGTH};
use forebay_table::image::FOOTER_BYTES;
use forebay_table::job::{
    CompactionJob, CompactionResult, CopyJob, MAX_SEARCHED_BYTES, MAX_SEARCHED_KEYS, SearchJob, SearchResult,
    ShortScanJob, ShortScanResult,
};
use forebay_table::{
    BlockIterator, CachedTable, DatabaseCommit, ManifestRoot, MembersRecord, PointIndex, SparseIndex, StorageRoot,
    StoreConfig, TableProperties, VersionEdit, key_hash,
};
use std::ops::Range;

/// A decoder.
pub type Decoder = fn(&[u8]);

/// All of them, by the names of their targets in `fuzz/`.
pub const ALL: [(&str, Decoder); 19] = [
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
    ("table-tail", table_tails),
    ("metadata", metadata),
    ("letters", letters),
    ("stored-place", stored_places),
    ("crossing-mark", crossing_marks),
];

/// Decodes the body of a request. The first byte chooses the procedure.
///
/// # Panics
/// When a decoded request does not encode to the same bytes.
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

/// Decodes the body of a reply. The first byte chooses which one.
///
/// # Panics
/// When a decoded reply does not encode to the same bytes.
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

/// Decodes the envelope of a request: as it is, and with the right checksum, because nothing after a wrong one is
/// examined.
///
/// # Panics
/// When arguments are longer than allowed.
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
/// When decoded ranges do not encode to the same bytes, or are more than allowed.
pub fn gathers(bytes: &[u8]) {
    if let Ok(ranges) = gather::decode(bytes) {
        assert!(gather::total_bytes(&ranges).is_some_and(|total| total <= gather::MAX_BYTES));
        assert_eq!(gather::encode(&ranges), bytes);
    }
}

/// Returns the bytes with the number of bytes after the header in the field `length`, and a right checksum at the end.
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
/// When encoding and decoding again gives another value. Fields may come in any order, so the bytes may differ.
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
/// When decoded arguments do not encode to the same bytes, or ask for more than allowed.
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
/// When a decoded result does not encode to the same bytes.
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
    // An entry has at least two bytes.
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

/// Tails of tables, which are also in the result of a compaction: as they are, with the right checksum of directory and
/// footer, and as a single section with its length and the right checksum.
///
/// # Panics
/// When a tail takes far more memory than it has bytes, properties change when they are encoded, blocks do not follow
/// one another, or a point index has more entries than bytes for them.
pub fn table_tails(bytes: &[u8]) {
    for tail in [Some(bytes.to_vec()), repaired_tail(bytes)].into_iter().flatten() {
        if let Ok(table) = CachedTable::parse(&tail) {
            assert!(table.size_bytes() <= 4 * tail.len());
            properties(table.properties());
            sparse_index(table.sparse_index());
            if let Some(index) = table.point_index() {
                point_index(index, tail.len());
            }
        }
    }
    let section = repaired_frame(bytes);
    if let Ok(decoded) = TableProperties::decode(&section) {
        properties(&decoded);
    }
    if let Ok(index) = SparseIndex::parse(section.as_slice().into()) {
        sparse_index(&index);
    }
    if let Ok(index) = PointIndex::parse(&section) {
        point_index(&index, section.len());
    }
}

/// The bytes as a tail whose directory and footer have the right checksum; `None` when they are too few.
fn repaired_tail(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut tail = bytes.to_vec();
    // The second half of a footer begins with the number of sections. The directory before it has 24 bytes for each.
    let [a, b, c, d, ..] = *bytes.last_chunk::<{ FOOTER_BYTES / 2 }>()?;
    let sections = u32::from_le_bytes([a, b, c, d]) as usize;
    let directory = bytes.len().checked_sub(FOOTER_BYTES + 24 * sections)?;
    // The checksum is the last field but one. Both have four bytes.
    let covered = directory..bytes.len() - 8;
    let checksum = forebay_base::checksum(bytes.get(covered.clone())?);
    tail.get_mut(covered.end..covered.end + 4)?.copy_from_slice(&checksum.to_le_bytes());
    Some(tail)
}

fn properties(decoded: &TableProperties) {
    let mut again = Vec::new();
    assert!(decoded.encode(&mut again).is_ok(), "{decoded:?}");
    assert_eq!(TableProperties::decode(&again).as_ref(), Ok(decoded));
}

fn sparse_index(index: &SparseIndex) {
    let mut end = 0;
    for number in 0..index.block_count() {
        let block = index.block(number).filter(|block| block.offset == end && block.length > 0);
        assert!(block.is_some() && index.last_key(number).is_some(), "block {number}");
        assert_eq!(index.block_at(end), number);
        end += block.map_or(0, |block| u64::from(block.length));
    }
    assert_eq!((index.blocks_bytes(), index.block_at(end)), (end, index.block_count()));
    let target = InternalKey { user_key: b"key", tag: Tag::seek(SequenceNumber(5)) };
    assert!(index.seek(KeyOrder::Bytewise, target) <= index.block_count());
}

/// Looks up a few keys in a point index that comes from this many bytes.
fn point_index(index: &PointIndex, bytes: usize) {
    // An entry has at least four bits.
    let most = 2 * bytes;
    assert!(index.entry_count() as usize <= most, "it has {} entries", index.entry_count());
    for hash in [0, key_hash(b"key"), u64::MAX] {
        let _ = (index.bucket_bytes(hash), index.entries_bytes(hash));
        assert!(index.candidates(hash).count() <= most);
    }
}

/// Records, and what databases keep of themselves on nodes and on storage. The first byte chooses which: as it is, and
/// with its length and the right checksum.
///
/// # Panics
/// When encoding and decoding again gives another value.
pub fn metadata(bytes: &[u8]) {
    let Some((&which, bytes)) = bytes.split_first() else { return };
    for bytes in [bytes, &repaired_frame(bytes)] {
        match which % 9 {
            0 => stays(VersionEdit::decode, |edit, out| edit.encode(out), bytes),
            1 => stays(DatabaseCommit::decode, |commit, out| commit.encode().map(|bytes| out.extend(bytes)), bytes),
            2 => stays(StorageRoot::decode, |root, out| root.encode().map(|bytes| out.extend(bytes)), bytes),
            3 => stays(MembersRecord::decode, |members, out| members.encode().map(|bytes| out.extend(bytes)), bytes),
            4 => stays(ManifestRoot::decode, |root, out| root.encode().map(|bytes| out.extend(bytes)), bytes),
            5 => stays(StoreConfig::decode, |config, out| config.encode().map(|bytes| out.extend(bytes)), bytes),
            6 => stays(
                checkpoint::decode_header,
                |header, out| checkpoint::encode_header(header).map(|bytes| out.extend(bytes)),
                bytes,
            ),
            7 => checkpoint_block(bytes),
            _ => checkpoint_footer(bytes),
        }
    }
    // A record has its checksum in front.
    let record = [&forebay_base::checksum(bytes).to_le_bytes()[..], bytes].concat();
    for bytes in [bytes, &record] {
        if let Ok(record) = Record::decode(bytes) {
            let mut again = Vec::new();
            record.encode(&mut again);
            assert_eq!(Record::decode(&again), Ok(record));
        }
    }
}

/// Checks that what is decoded is the same after it was encoded. Fields may come in any order, so the bytes may differ.
fn stays<T: PartialEq + std::fmt::Debug>(
    decode: impl Fn(&[u8]) -> forebay_table::Result<T>,
    encode: impl Fn(&T, &mut Vec<u8>) -> forebay_table::Result<()>,
    bytes: &[u8],
) {
    if let Ok(value) = decode(bytes) {
        let mut again = Vec::new();
        assert!(encode(&value, &mut again).is_ok(), "{value:?}");
        assert_eq!(decode(&again).as_ref(), Ok(&value));
    }
}

fn checkpoint_block(bytes: &[u8]) {
    if let Ok(entries) = checkpoint::decode_block(bytes) {
        let (mut writer, mut again) = (BlockWriter::default(), Vec::new());
        entries.iter().for_each(|entry| writer.push(*entry));
        assert!(writer.finish(&mut again).is_ok(), "{entries:?}");
        assert_eq!(checkpoint::decode_block(&again).as_ref(), Ok(&entries));
    }
}

/// A footer in files of different lengths, whose header has 28 bytes.
fn checkpoint_footer(bytes: &[u8]) {
    const HEADER_BYTES: u64 = 28;
    for offset in [HEADER_BYTES, HEADER_BYTES + 1000, u64::MAX] {
        if let Ok(footer) = Footer::decode(bytes, HEADER_BYTES, offset) {
            let mut again = Vec::new();
            assert!(footer.encode(offset, &mut again).is_ok(), "{footer:?}");
            let trailer = again.len() - TRAILER_LENGTH as usize;
            let located = Footer::locate(&again[trailer..], offset.saturating_add(again.len() as u64));
            if offset < u64::MAX {
                assert_eq!(located, Ok((offset, trailer)));
            }
            assert_eq!(Footer::decode(&again[..trailer], HEADER_BYTES, offset).as_ref(), Ok(&footer));
        }
    }
    let _ = Footer::locate(bytes, bytes.len() as u64);
}

/// Letters between databases, schedulers and workers: as they are, and as one with its length and the right checksum.
///
/// # Panics
/// When decoded letters do not encode to the same bytes.
pub fn letters(bytes: &[u8]) {
    for bytes in [bytes, &repaired(bytes, 6..8, 12)] {
        if let Ok(letters) = Letter::decode_all(bytes) {
            let mut again = Vec::new();
            letters.iter().for_each(|letter| letter.encode(&mut again));
            assert_eq!(again, bytes, "{letters:?}");
        }
    }
}

/// The stored place of a job's objects: as it is, and with its length and the right checksum.
///
/// # Panics
/// When the decoded place does not encode to the same bytes.
pub fn stored_places(bytes: &[u8]) {
    // Places with signed names have the length that those names say.
    for bytes in [bytes, &repaired(bytes, 20..22, 22), &repaired(bytes, 0..0, 0)] {
        if let Ok((place, length)) = StoredPlace::decode(bytes) {
            let mut again = Vec::new();
            place.encode(&mut again);
            assert_eq!(Some(&*again), bytes.get(..length), "{place:?}");
        }
    }
}

/// Marks of batches that cross shards, as recovery finds them in memory of nodes.
///
/// # Panics
/// When a decoded mark does not encode to the same bytes.
pub fn crossing_marks(bytes: &[u8]) {
    if let Ok(mark) = CrossingMark::decode(bytes) {
        assert_eq!(mark.encode(), bytes, "{mark:?}");
    }
}
