//! Point lookups that the memory node does (O3-LSM 4.5): one message searches all tables whose point indexes are not held,
//! for all keys that wait for them.
//!
//! The message names the index block of each table, which the sparse index knows, and where the tables' segments are.
//! The node answers with the newest record up to the number of the read, or with the record's address when the record
//! is long. An answer is verified like bytes that were read: a record by its checksum, key and number, an address by
//! the table's properties. If the node does not answer, or answers wrongly, the blocks are read instead (see `lookup`).
//!
//! The node cannot reach tables in storage. They are looked up by reading, if the key is in no other table.

use crate::plan::delegating::{Delegating, LookupCost};
use crate::read::probe::{Answer, Delivered, Probe};
use crate::remote::segment::Remote;
use crate::terms::statistics::add;
use crate::tree::shared::Tree;
use crate::tree::table::Table;
use forebay_base::{InternalKey, KeyOrder, Record, Tag};
use forebay_env::HashMap;
use forebay_proto::job_kind;
use forebay_table::job::{
    MAX_SEARCHED_BYTES, MAX_SEARCHED_KEYS, SearchHit, SearchJob, SearchPlace, SearchResult, SearchedBlock, SearchedKey,
    SearchedTable,
};
use forebay_table::{Candidate, IndexEntry, TableId};
use std::sync::Arc;

/// Records of at most this many bytes come with the answer.
const INLINE_BYTES: u32 = 4 << 10;
/// Approximate bytes of an answer without its record.
const ANSWER_BYTES: u64 = 24;

/// What is asked for a key.
struct Question<'v> {
    /// Position of its probe.
    probe: usize,
    /// The member where it reads.
    at: &'v Remote,
    /// The tables, newest first, and whether the node looks into a block of each. If not, all entries of the table sort
    /// before the key.
    tables: Vec<(&'v Arc<Table>, bool)>,
}

/// Keys to be searched for, in one message.
struct Questions<'v> {
    questions: Vec<Question<'v>>,
    job: SearchJob,
    /// Positions of the tables in the message.
    named: HashMap<SearchPlace, u32>,
    /// Bytes of the blocks to be searched.
    block_bytes: u64,
    /// Approximate bytes of the records that may be found.
    record_bytes: u64,
}

/// What came of asking the memory node.
#[derive(Default)]
pub(crate) struct Searched<'v> {
    /// The tables that were searched, each with its member; `bytes_each` is what the search cost for each of them.
    pub(crate) tables: Vec<(&'v Remote, &'v Arc<Table>)>,
    pub(crate) bytes_each: u64,
    /// Whether all questions were answered. Probes that still wait had no room in the message, or the node cannot reach
    /// their tables.
    pub(crate) is_answered: bool,
}

/// Makes the memory node of the member `at` look up what `probes`, which read there, wait for, if that costs less.
/// Probes without an answer continue to wait.
pub(crate) fn look_up<'v>(tree: &Tree, at: &Remote, probes: &mut [&mut Probe<'v>]) -> Searched<'v> {
    let searches = at.searches();
    let delegating = Delegating::new(tree.options.delegation, &at.memory_node().link().capabilities());
    if !delegating.is_possible() || !at.can_search() {
        return Searched::default();
    }
    let questions = Questions::of(probes);
    let searched = questions.job.keys.len();
    if searched == 0 {
        return Searched::default();
    }
    let mut arguments = Vec::new();
    questions.job.encode(&mut arguments);
    let cost = LookupCost {
        one_sided_round_trips: 2,
        one_sided_bytes: questions.block_bytes + questions.record_bytes,
        delegated_bytes: arguments.len() as u64 + questions.record_bytes + ANSWER_BYTES * searched as u64,
    };
    let counters = &tree.counters.delegation;
    if !delegating.delegates(cost, searches.waiting()) {
        searches.spared();
        add(&counters.read_keys, searched as u64);
        return Searched::default();
    }
    let sent = arguments.len();
    let Some((result, received)) = ask(at, arguments, searched) else {
        add(&counters.refusals, 1);
        return Searched::default();
    };
    add(&counters.searches, 1);
    add(&counters.searched_keys, searched as u64);
    let tables = questions.tables();
    let is_answered = questions.answer(tree, result, probes);
    let bytes_each = (sent + received) as u64 / tables.len().max(1) as u64;
    Searched { tables, bytes_each, is_answered }
}

/// Makes the call. Returns `None` when the node does not answer, whatever the cause.
fn ask(at: &Remote, arguments: Vec<u8>, keys: usize) -> Option<(SearchResult, usize)> {
    let bytes = at.search(job_kind::SEARCH, arguments)?;
    let result = SearchResult::decode(&bytes, keys);
    let result = result.inspect_err(|error| tracing::debug!(%error, "a node's answer to a search")).ok()?;
    at.searches().told(result.waiting);
    Some((result, bytes.len()))
}

impl<'v> Questions<'v> {
    fn of(probes: &[&mut Probe<'v>]) -> Self {
        let job = SearchJob {
            key_order: KeyOrder::default(),
            inline_bytes: INLINE_BYTES,
            tables: Vec::new(),
            keys: Vec::new(),
        };
        let mut questions =
            Self { questions: Vec::new(), job, named: HashMap::default(), block_bytes: 0, record_bytes: 0 };
        probes.iter().enumerate().for_each(|(at, probe)| questions.add(at, probe));
        questions
    }

    /// Adds what a probe waits for, as far as it is in memory. A probe that the message has no room for continues to
    /// wait.
    fn add(&mut self, position: usize, probe: &Probe<'v>) {
        if self.job.keys.len() == MAX_SEARCHED_KEYS {
            return;
        }
        let target = InternalKey { user_key: probe.user_key(), tag: Tag::seek(probe.number()) };
        let (mut tables, mut blocks) = (Vec::new(), Vec::new());
        let mut record_bytes = 0;
        for table in probe.without_index() {
            let order = table.properties().key_order;
            let sparse = table.cached().sparse_index();
            let block = sparse.block(sparse.seek(order, target));
            let Some(named) = self.name(probe.at(), table) else { continue };
            tables.push((table, block.is_some()));
            if let Some(block) = block {
                self.job.key_order = order;
                blocks.push(SearchedBlock { table: named, block });
                let properties = table.properties();
                record_bytes = properties.record_bytes / properties.entries().max(1);
            }
        }
        let block_bytes: u64 = blocks.iter().map(|searched| u64::from(searched.block.length)).sum();
        // Without a block there is nothing to ask: reading costs nothing either.
        if !blocks.is_empty() && self.block_bytes + block_bytes <= MAX_SEARCHED_BYTES {
            self.block_bytes += block_bytes;
            self.record_bytes += record_bytes;
            let (user_key, number) = (probe.user_key().to_vec(), probe.number());
            self.job.keys.push(SearchedKey { user_key, number, blocks });
            self.questions.push(Question { probe: position, at: probe.at(), tables });
        }
    }

    /// Returns the position in the message of the table at a member; `None` when a part of the table is not there.
    fn name(&mut self, at: &Remote, table: &Table) -> Option<u32> {
        // Tables of different shards may have the same number.
        let image = table.image_place(at.member())?;
        if let Some(&known) = self.named.get(&image) {
            return Some(known);
        }
        let position = self.job.tables.len() as u32;
        self.job.tables.push(SearchedTable { image, segments: table.segment_places(at.member())? });
        self.named.insert(image, position);
        Some(position)
    }

    /// The tables that have a block to be searched, each once for each key.
    fn tables(&self) -> Vec<(&'v Remote, &'v Arc<Table>)> {
        let of = |question: &Question<'v>| {
            let (at, tables) = (question.at, question.tables.iter());
            tables.filter(|(_, has_block)| *has_block).map(|(table, _)| (at, *table)).collect::<Vec<_>>()
        };
        self.questions.iter().flat_map(of).collect()
    }

    /// Passes the answers to the probes. Returns whether all were right.
    fn answer(self, tree: &Tree, result: SearchResult, probes: &mut [&mut Probe<'v>]) -> bool {
        let counters = &tree.counters.delegation;
        let mut are_right = true;
        for (question, hit) in self.questions.into_iter().zip(result.hits) {
            let Some(probe) = probes.get_mut(question.probe) else { continue };
            let is_long = hit.as_ref().is_some_and(|hit| hit.record.is_none());
            match question.answers(probe, hit) {
                Some(answers) => {
                    add(&counters.long_records, is_long.into());
                    probe.look_up(answers);
                }
                // The blocks are read instead, and that read names errors in them.
                None => {
                    add(&counters.refusals, 1);
                    are_right = false;
                }
            }
        }
        are_right
    }
}

impl Question<'_> {
    /// Returns what is known of each table now; `None` when the node's answer cannot be right.
    fn answers(&self, probe: &Probe<'_>, hit: Option<SearchHit>) -> Option<Vec<(TableId, Answer)>> {
        let mut answers = Vec::with_capacity(self.tables.len());
        let mut block = 0;
        for (table, has_block) in &self.tables {
            match &hit {
                Some(hit) if *has_block && hit.block == block => {
                    answers.push((table.id(), found(table, probe, hit)?));
                    // Older tables were not searched.
                    return Some(answers);
                }
                _ => answers.push((table.id(), Answer::Absent)),
            }
            block += u32::from(*has_block);
        }
        hit.is_none().then_some(answers)
    }
}

/// Returns the record that the node found, verified, or the record's place.
fn found(table: &Table, probe: &Probe<'_>, hit: &SearchHit) -> Option<Answer> {
    let key = InternalKey { user_key: probe.user_key(), tag: hit.tag };
    let entry = IndexEntry { key, address: hit.address, length: hit.length, expiry_ms: None };
    let (_, address) = table.properties().locate(&entry).ok()?;
    let place = Candidate { address, read_length: hit.length };
    let Some(bytes) = &hit.record else { return Some(Answer::At(place)) };
    let record = Record::decode(bytes).ok()?;
    let is_right = record.key == probe.user_key() && record.tag == hit.tag && record.tag.sequence() <= probe.number();
    let sequence = record.tag.sequence();
    is_right.then(|| Answer::Here(Delivered { record: bytes.as_slice().into(), sequence, place }))
}
