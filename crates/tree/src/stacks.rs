//! Stacks of free blocks in remote memory, so that few blocks are lost when a client dies.
//!
//! Blocks are handed over in *batches*. A batch has a *list* of its blocks, which is itself a block of the class
//! [`Class::List`]. Each class has three stacks of lists (Treiber's), and a *claim* on a chunk that is being divided.
//! A node's *round* says what each stack is for:
//!
//! ```text
//!   round n      retired blocks ──► stack n mod 3      stack n+2 mod 3      stack n+1 mod 3 ──► blocks to be used
//!                                   taking             waits                giving
//! ```
//!
//! - **Push.** Read round and tops; write the list with the taking stack's top below it; swap the top for the list.
//! - **Pop.** Read the tops, then the round; read the list on top of the giving stack; swap the top for the one below.
//!   The list is retired.
//! - **Claim.** If the giving stack is empty: swap the claim for one that is a batch further. If nothing is left of
//!   the chunk: take another chunk, write its class into it, and swap the claim for its first batch.
//! - **Advance.** Read the round *n*. If it names no reading epoch: ask the readers, and swap the round for itself
//!   with the epoch that ended then. If it names one that everybody has passed: swap it for round *n* + 1.
//!
//! Each of these happens within a read of its client, so blocks retired meanwhile are not used before that read ends.
//!
//! Invariants, for the rounds counted without end:
//!
//! 1. *A client that pushes has retired the blocks before it read its round m, so before round m + 1 began.* So
//!    however late it swaps the top, the blocks on a stack of round m were retired before round m + 1 began.
//! 2. *Round n + 1 begins when nobody reads what was retired before round n began.* The epoch of round n ended after
//!    round n had begun, and everybody has passed it. By 1, this covers all blocks that were pushed in rounds up to
//!    n - 1.
//! 3. *Nobody reads what is popped.* A pop reads the top before it reads the round n. So the client that pushed what is
//!    there read a round of at most n. Because this is the stack of n + 1, that round was at most n - 2. So 2 holds for
//!    it, with n - 1 for n.
//! 4. *While a read is open, at most one round ends.* The read began in an epoch k, and no epoch from k on passes. A
//!    round that begins after the read gets no earlier epoch. So the round word does not return to an earlier value
//!    while a client is about to swap it, although it only counts to three.
//! 5. *A top does not return to an earlier value while a client is about to swap it.* A popped list is retired, and
//!    used for another list only after the readers have passed. So the client's swap takes what it read, or fails.
//! 6. *A claim never comes back*: a chunk is handed out once, and its next block only grows.
//!
//! A client that dies loses what it holds: a batch that is on no stack, claimed blocks, a chunk that it took. Nobody
//! waits for it.

use crate::class::{Block, CHUNK_BYTES, Class, LIST_BYTES};
use crate::planted::{Bug, planted};
use crate::shelf::{Batch, Claim, ROUND_OFFSET, Round, SHELF_BYTES, STACKS, claim_offset, shelf_offset, top_offset};
use crate::word::Address;
use crate::{Error, TreeClient};
use std::sync::Arc;

/// Bytes handed over after which the readers are asked for their progress.
const ADVANCE_BYTES: u64 = 1 << 20;
/// Bytes handed over, or taken from unused chunks, after which the readers are asked before another unused chunk is
/// taken while blocks wait.
const SHORT_BYTES: u64 = 256 << 10;

/// A class's words in a superblock, and the round after they were read.
#[derive(Debug, Clone, Copy)]
struct Shelf {
    tops: [u64; STACKS],
    claim: Claim,
    round: Round,
}

impl Shelf {
    /// Whether the chunk is used up, and blocks wait for a later round.
    fn is_short(&self, in_chunk: u64) -> bool {
        let used_up = self.claim.chunk == Address::default() || self.claim.next >= in_chunk;
        used_up && self.tops.iter().any(|&top| top != 0)
    }

    fn top(&self, stack: usize) -> u64 {
        self.tops.get(stack).copied().unwrap_or_default()
    }
}

impl TreeClient {
    fn read_shelf(&mut self, node: usize, class: Class) -> Result<Shelf, Error> {
        let shelf = self.tree().memory.superblock(node, shelf_offset(class))?;
        let round = self.tree().memory.superblock(node, ROUND_OFFSET)?;
        let early = if planted(Bug::RoundBeforeTops) { Some(self.read_word(node, round)?) } else { None };
        let shelf = self.verbs.post_read(node, shelf, SHELF_BYTES)?;
        self.verbs.then(node)?;
        let round = self.verbs.post_read(node, round, 8)?;
        let bytes = self.verbs.bytes(shelf)?;
        let word = |at: usize| crate::layout::word_at(&bytes, 8 * at);
        let (tops, claim) = (std::array::from_fn(word), Claim::from_word(word(STACKS)));
        self.verbs.release(node, bytes);
        let bytes = self.verbs.bytes(round)?;
        let round = Round::decode(early.unwrap_or(crate::layout::word_at(&bytes, 0)))?;
        self.verbs.release(node, bytes);
        Ok(Shelf { tops, claim, round })
    }

    /// Gets free blocks of a class for this process: from a stack, or from a chunk.
    pub(crate) fn refill(&mut self, node: usize, class: Class) -> Result<(), Error> {
        let tree = Arc::clone(self.tree());
        let (memory, cut) = (tree.memory.node(node)?, &tree.memory.cut);
        let mut attempt = 0;
        loop {
            let shelf = self.read_shelf(node, class)?;
            let stack = shelf.round.giving();
            let got = match shelf.top(stack) {
                0 if memory.moved_bytes() >= SHORT_BYTES && shelf.is_short(class.in_chunk(&cut.geometry)) => {
                    self.advance(node)?;
                    None
                }
                0 if matches!(class, Class::Large(_)) => Some(vec![self.take_large(node, class)?]),
                0 => self.claim(node, class, shelf.claim)?,
                top => self.pop(node, class, stack, top)?,
            };
            if let Some(blocks) = got {
                self.untidy |= memory.add(blocks, cut);
                return Ok(());
            }
            Self::again(&mut attempt)?;
        }
    }

    /// Pops the batch whose list is at a top; `None` when the top has changed.
    fn pop(&mut self, node: usize, class: Class, stack: usize, top: u64) -> Result<Option<Vec<Block>>, Error> {
        let tree = Arc::clone(self.tree());
        let at = Address::from_bits(top);
        // Others may hand over larger batches than this process.
        let read = self.read_all(&[(at, LIST_BYTES)])?;
        let batch = Batch::decode(read.first().map_or(&[], Vec::as_slice), class)?;
        let word = tree.memory.superblock(node, top_offset(class, stack))?;
        if self.compare_swap(node, word, top, batch.below)? != top {
            return Ok(None);
        }
        let list = Block { class: Class::List, at, generation: 1 };
        let memory = tree.memory.node(node)?;
        if planted(Bug::ListUsedAtOnce) {
            memory.give_back(list, &tree.memory.cut);
        } else {
            memory.retire(list);
        }
        Ok(Some(batch.blocks))
    }

    /// Claims a batch of the chunk that is being divided, or of another one; `None` when others were faster.
    fn claim(&mut self, node: usize, class: Class, claim: Claim) -> Result<Option<Vec<Block>>, Error> {
        let tree = Arc::clone(self.tree());
        let geometry = &tree.memory.cut.geometry;
        let (in_chunk, in_batch) = (class.in_chunk(geometry), tree.memory.cut.in_batch(class) as u64);
        let blocks = |chunk: Address, numbers: std::ops::Range<u64>| -> Vec<Block> {
            numbers.map(|number| class.block_of_chunk(chunk, number, geometry)).collect()
        };
        let word = tree.memory.superblock(node, claim_offset(class))?;
        if claim.chunk != Address::default() && claim.next < in_chunk {
            let next = in_chunk.min(claim.next + in_batch);
            let found = self.compare_swap(node, word, claim.word(), Claim { next, ..claim }.word())?;
            return Ok((found == claim.word()).then(|| blocks(claim.chunk, claim.next..next)));
        }
        let chunk = self.take_chunk(node, class, 1)?;
        let next = in_chunk.min(in_batch);
        let found = self.compare_swap(node, word, claim.word(), Claim { chunk, next }.word())?;
        // If another client has brought another chunk, this chunk belongs entirely to this process.
        Ok(Some(blocks(chunk, 0..if found == claim.word() { next } else { in_chunk })))
    }

    fn take_large(&mut self, node: usize, class: Class) -> Result<Block, Error> {
        let Class::Large(chunks) = class else { return Err(Error::corrupt("a large block of a small class")) };
        let at = self.take_chunk(node, class, chunks)?;
        Ok(class.block_of_chunk(at, 0, &self.tree().memory.cut.geometry))
    }

    /// Takes whole chunks, and writes their class into the first one.
    fn take_chunk(&mut self, node: usize, class: Class, chunks: u64) -> Result<Address, Error> {
        let tree = Arc::clone(self.tree());
        let at = self.take_chunks(node, chunks)?;
        let session = tree.memory.node(node)?.client.session().0;
        self.write_words(node, tree.memory.resolve(at, 0)?, &[class.number(), session])?;
        tree.memory.node(node)?.count_moved(chunks * CHUNK_BYTES);
        Ok(at)
    }

    /// Hands over the batches of retired blocks that this process has; if `all`, also those that are not full.
    pub(crate) fn hand_over(&mut self, node: usize, all: bool) -> Result<(), Error> {
        let tree = Arc::clone(self.tree());
        let memory = tree.memory.node(node)?;
        while let Some(blocks) = memory.take_batch(all, &tree.memory.cut) {
            match self.take_list(node) {
                Ok(list) => self.push(list, blocks)?,
                Err(error) if error.is_full() => memory.hold(blocks),
                Err(error) => {
                    memory.take_back(blocks);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn take_list(&mut self, node: usize) -> Result<Block, Error> {
        let tree = Arc::clone(self.tree());
        loop {
            if let Some(list) = tree.memory.node(node)?.take(Class::List) {
                return Ok(list);
            }
            self.refill(node, Class::List)?;
        }
    }

    /// Pushes a batch of blocks, which were retired before.
    pub(crate) fn push(&mut self, list: Block, blocks: Vec<Block>) -> Result<(), Error> {
        let tree = Arc::clone(self.tree());
        let Some(class) = blocks.first().map(|block| block.class) else { return self.give_back(list) };
        let node = list.at.node();
        let shelf = self.read_shelf(node, class)?;
        let stack = if planted(Bug::PushToGiving) { shelf.round.giving() } else { shelf.round.taking() };
        let mut batch = Batch { class, below: shelf.top(stack), blocks };
        let top = tree.memory.superblock(node, top_offset(class, stack))?;
        let mut attempt = 0;
        loop {
            let to = tree.memory.resolve(list.at, 0)?;
            let late = planted(Bug::ListAfterTop);
            let mut written = None;
            if !late {
                written = Some(self.verbs.post_write(node, to, &batch.image())?);
                self.verbs.then(node)?;
            }
            let swapped = self.verbs.post_swap(node, top, batch.below, list.at.bits())?;
            let written = match written {
                Some(written) => written,
                None => self.verbs.post_write(node, to, &batch.image())?,
            };
            self.verbs.done(written)?;
            let found = self.verbs.word(swapped)?;
            if found == batch.below {
                return Ok(());
            }
            batch.below = found;
            Self::again(&mut attempt)?;
        }
    }

    /// Asks the readers of a node for their progress, and begins the next round if they have passed.
    pub(crate) fn advance(&mut self, node: usize) -> Result<(), Error> {
        let tree = Arc::clone(self.tree());
        let memory = tree.memory.node(node)?;
        let at = tree.memory.superblock(node, ROUND_OFFSET)?;
        let mut word = self.read_word(node, at)?;
        let (mut ended, oldest) = memory.pass_readers()?;
        let mut round = Round::decode(word)?;
        let has_passed = |epoch: u64| epoch < oldest || planted(Bug::AdvanceTooEarly);
        match round.ended {
            Some(epoch) if has_passed(epoch) => {
                round = round.next();
                if self.compare_swap(node, at, word, round.word())? != word {
                    return Ok(());
                }
                word = round.word();
                // The epoch of a round ends after the round began.
                (ended, _) = memory.pass_readers()?;
            }
            Some(_) => return Ok(()),
            None => {}
        }
        self.compare_swap(node, at, word, round.with_ended(ended).word()).map(drop)
    }

    /// Hands over full batches, and asks the readers of a node for their progress if that was much.
    pub(crate) fn hand_over_full(&mut self) -> Result<(), Error> {
        let tree = Arc::clone(self.tree());
        for (number, node) in tree.memory.nodes.iter().enumerate() {
            self.hand_over(number, false)?;
            if node.moved_bytes() >= ADVANCE_BYTES {
                self.advance(number)?;
            }
        }
        Ok(())
    }

    /// Hands over all blocks of this process, including usable ones. One list may be left at each node.
    pub(crate) fn hand_over_stock(&mut self) -> Result<(), Error> {
        let tree = Arc::clone(self.tree());
        self.within_read(|client| {
            for (number, node) in tree.memory.nodes.iter().enumerate() {
                node.retire_free();
                client.hand_over(number, true)?;
                while let Some(lists) = node.take_lists() {
                    let list = client.take_list(number)?;
                    client.push(list, lists)?;
                }
            }
            Ok(())
        })
    }
}
