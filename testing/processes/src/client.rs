//! A client's life: operations on the tree, each answer checked.

use crate::common::{Outcome, READY, TREE, session, wait_for_the_end};
use crate::journal::Journal;
use crate::records::{self, CLIENTS, SHARED, key, number_of, parse_key, parse_value, place_of, value};
use forebay::tree::{Entry, Range};
use forebay::{NodeAddress, Tree, TreeClient, TreeOptions};
use forebay_env::Random;
use std::ops::Bound;
use std::path::PathBuf;

/// Number of operations after which progress is recorded.
const STRIDE: u64 = 64;
/// Number of operations during which the clients fill, or empty, one window of the keys.
const WINDOW_OPERATIONS: u64 = 4000;
const WINDOW_KEYS: u64 = 500;
/// Times that the whole tree is filled and emptied.
const SWINGS: u64 = 4;
const SCAN: usize = 100;

/// What a client is told.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    pub memory: NodeAddress,
    pub journal: PathBuf,
    /// Which client.
    pub number: u64,
    /// How often it was killed.
    pub life: u64,
    /// Keys of each class.
    pub keys: u64,
    /// Operations, of all lives together.
    pub operations: u64,
    pub seed: u64,
}

/// Runs until all operations are done and the driver has seen it.
///
/// # Errors
/// The first wrong answer.
pub fn execute(arguments: &Arguments) -> Outcome {
    let sessions = session(&arguments.memory, &format!("client-{}-{}", arguments.number, arguments.life))?;
    println!("{READY}");
    let tree = Tree::open(&sessions, TREE, TreeOptions::default()).map_err(|error| error.to_string())?;
    let (number, keys, life) = (arguments.number, arguments.keys, arguments.life);
    let mut own: Vec<_> = (0..keys).map(|index| (key(number_of(number, index)), index)).collect();
    own.sort_unstable();
    let mut client = Client {
        tree: tree.client().map_err(|error| error.to_string())?,
        journal: Journal::open(&arguments.journal, 2 * keys)?,
        random: Random::seeded(records::mix(arguments.seed ^ number << 32 ^ life)),
        seen: vec![[0; CLIENTS as usize]; keys as usize],
        own,
        number,
        keys,
        life,
        writes: 0,
        operations: arguments.operations,
    };
    let result = client.live();
    let kept = client.journal.note_progress();
    result.map_err(|error| format!("after {} operations, seed {}: {error}", client.done(), arguments.seed))?;
    kept?;
    // A session that ended normally would not be like that of a killed client.
    wait_for_the_end();
    Ok(())
}

struct Client {
    tree: TreeClient,
    /// Keys of the client's own class, then of the shared one.
    journal: Journal,
    random: Random,
    /// For each key of the shared class, the newest version seen of each writer.
    seen: Vec<[u64; CLIENTS as usize]>,
    /// All keys of the own class in order, with their indexes.
    own: Vec<(Vec<u8>, u64)>,
    number: u64,
    keys: u64,
    life: u64,
    /// Versions used in this life.
    writes: u64,
    operations: u64,
}

/// A write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Write {
    Put,
    Insert,
    Update,
    Swap,
    Delete,
}

impl Client {
    fn done(&self) -> u64 {
        self.journal.progress.done
    }

    fn live(&mut self) -> Outcome {
        if self.life > 0 {
            self.read_back()?;
        }
        while self.done() < self.operations {
            self.one()?;
            self.journal.progress.done += 1;
            if self.done().is_multiple_of(STRIDE) {
                self.journal.note_progress()?;
            }
        }
        Ok(())
    }

    /// Finds, by one scan, what earlier lives wrote. For a write that a kill cut short, either state is right in the
    /// own class; in the shared class the write is done again.
    fn read_back(&mut self) -> Outcome {
        let mut found = vec![None; self.keys as usize];
        let own = self.number;
        let mut visit = |key: &[u8], value: &[u8]| {
            let place = parse_key(key).map(place_of).filter(|&(class, _)| class == own);
            if let Some(place) = place.and_then(|(_, index)| found.get_mut(index as usize)) {
                *place = Some(value.to_vec());
            }
        };
        self.tree.scan_with(Range::all(), &mut visit).map_err(|error| error.to_string())?;
        for (index, found) in (0..).zip(found) {
            let number = number_of(own, index);
            let entry = self.journal.entry(index);
            let is_it = |state: u64| found == (state > 0).then(|| value(number, own, state));
            let states = [entry.before, entry.after];
            let state = states.into_iter().find(|&state| is_it(state)).ok_or_else(|| {
                format!("key {number} is not as one of {states:x?} after a kill: {}", self.describe(number, &found))
            })?;
            self.journal.settle(index, state)?;
            self.journal.progress.read_back += 1;
        }
        for index in 0..self.keys {
            let entry = self.journal.entry(self.keys + index);
            if entry.before != entry.after {
                let number = number_of(SHARED, index);
                match entry.after {
                    0 => self.tree.delete(&key(number)),
                    version => self.tree.put(&key(number), &value(number, self.number, version)),
                }
                .map_err(|error| error.to_string())?;
                self.journal.settle(self.keys + index, entry.after)?;
            }
        }
        Ok(())
    }

    fn one(&mut self) -> Outcome {
        let class = if self.random.one_in(15, 100) { SHARED } else { self.number };
        let index = self.draw_index();
        let number = number_of(class, index);
        match self.random.below(100) {
            0..32 => self.read(number),
            32..34 => self.read_several(class),
            34..36 => self.scan(number),
            _ => {
                let write = self.draw_write();
                if class == SHARED { self.write_shared(index, write) } else { self.write_own(index, write) }
            }
        }
    }

    /// The window of keys in which the clients work now.
    fn window(&self) -> u64 {
        self.done() / WINDOW_OPERATIONS
    }

    fn draw_index(&mut self) -> u64 {
        if self.random.one_in(1, 2) {
            return self.random.below(self.keys);
        }
        let width = WINDOW_KEYS.min(self.keys);
        // A window is filled first and emptied next.
        records::mix(self.window() / 2) % (self.keys - width + 1) + self.random.below(width)
    }

    fn draw_write(&mut self) -> Write {
        let swing = self.done() * 2 * SWINGS / self.operations.max(1);
        let empties = (swing + self.window()) % 2 == 1;
        if self.random.one_in(if empties { 65 } else { 12 }, 100) {
            return Write::Delete;
        }
        match self.random.below(8) {
            0 => Write::Update,
            1 => Write::Swap,
            2 | 3 => Write::Insert,
            _ => Write::Put,
        }
    }

    fn next_version(&mut self) -> u64 {
        self.writes += 1;
        records::version(self.life, self.writes)
    }

    fn get(&mut self, number: u64) -> Outcome<Option<Vec<u8>>> {
        self.tree.get(&key(number)).map_err(|error| error.to_string())
    }

    fn read(&mut self, number: u64) -> Outcome {
        let found = self.get(number)?;
        self.check(number, found.as_deref())
    }

    fn read_several(&mut self, class: u64) -> Outcome {
        let numbers = [(); 8].map(|()| number_of(class, self.draw_index()));
        let keys = numbers.map(key);
        let found = self.tree.multi_get(&keys.each_ref().map(|key| &key[..])).map_err(|error| error.to_string())?;
        numbers.iter().zip(found).try_for_each(|(&number, found)| self.check(number, found.as_deref()))
    }

    /// Checks what was read of a key of the own or the shared class.
    fn check(&mut self, number: u64, found: Option<&[u8]>) -> Outcome {
        self.journal.progress.checks += 1;
        let (class, index) = place_of(number);
        if class == self.number {
            let state = self.journal.entry(index).after;
            let expected = (state > 0).then(|| value(number, self.number, state));
            if expected.as_deref() != found {
                return Err(format!("key {number} has not state {state:x}: {}", self.describe(number, &found)));
            }
            return Ok(());
        }
        let Some(bytes) = found else { return Ok(()) };
        if class != SHARED {
            // A short value of another writer does not identify itself.
            let is_whole = bytes.len() < 8 || parse_value(number, bytes).is_some();
            return is_whole.then_some(()).ok_or_else(|| format!("key {number} has {}", self.describe(number, &found)));
        }
        let (writer, version) = parse_value(number, bytes)
            .ok_or_else(|| format!("key {number} has what nobody wrote: {}", self.describe(number, &found)))?;
        let seen = &mut self.seen[index as usize][writer as usize];
        let own = self.journal.entry(self.keys + index).after;
        if version < *seen || writer == self.number && version != own {
            return Err(format!(
                "key {number} went back to version {version:x} of writer {writer}: seen {seen:x}, own {own:x}"
            ));
        }
        *seen = version;
        Ok(())
    }

    fn describe(&self, number: u64, found: &Option<impl AsRef<[u8]>>) -> String {
        match found {
            None => "absent".into(),
            Some(bytes) => match parse_value(number, bytes.as_ref()) {
                Some((writer, version)) => format!("version {version:x} of writer {writer}"),
                None => format!("{} bytes {:02x?}", bytes.as_ref().len(), bytes.as_ref()),
            },
        }
    }

    /// Scans from a key on, up or down, and checks that exactly the expected keys of the own class are
    /// there.
    fn scan(&mut self, number: u64) -> Outcome {
        let at = key(number);
        let backward = self.random.one_in(1, 2);
        let mut range = Range { limit: SCAN, backward, ..Range::all() };
        *(if backward { &mut range.to } else { &mut range.from }) = Bound::Included(&at);
        let mut found: Vec<Entry> = self.tree.scan(range).map_err(|error| error.to_string())?;
        let is_all = found.len() < SCAN;
        if backward {
            found.reverse();
        }
        if let Some(pair) = found.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
            return Err(format!("a scan brought {:02x?} before {:02x?}", pair[0].0, pair[1].0));
        }
        let (first, last) = (found.first().map(|entry| &entry.0), found.last().map(|entry| &entry.0));
        let (lower, upper) = match (backward, is_all) {
            (false, true) => (Some(&at), None),
            (false, false) => (Some(&at), last),
            (true, true) => (None, Some(&at)),
            (true, false) => (first, Some(&at)),
        };
        let from = lower.map_or(0, |lower| self.own.partition_point(|(key, _)| key < lower));
        let to = upper.map_or(self.own.len(), |upper| self.own.partition_point(|(key, _)| key <= upper));
        let journal = &self.journal;
        let live = self.own[from..to.max(from)].iter().map(|&(_, index)| index);
        let expected: Vec<u64> = live.filter(|&index| journal.entry(index).after > 0).collect();
        let mut indexes = Vec::with_capacity(expected.len());
        for (key, value) in &found {
            let number = parse_key(key).ok_or_else(|| format!("a scan brought the key {key:02x?}"))?;
            let (class, index) = place_of(number);
            if class == self.number {
                indexes.push(index);
            }
            self.check(number, Some(value))?;
        }
        if indexes != expected {
            let way = if backward { "down" } else { "up" };
            return Err(format!("a scan {way} from key {number} brought {indexes:?} and not {expected:?}"));
        }
        Ok(())
    }

    /// Writes a key of the own class: the tree's answer about the earlier value is known.
    fn write_own(&mut self, index: u64, write: Write) -> Outcome {
        let number = number_of(self.number, index);
        let version = self.next_version();
        let before = self.journal.entry(index).after;
        let (key, new) = (key(number), value(number, self.number, version));
        let is_there = before > 0;
        let current = is_there.then(|| value(number, self.number, before));
        let expected = match &current {
            Some(current) if !self.random.one_in(1, 4) => current.clone(),
            // A value of a version that no write has.
            _ => value(number, self.number, version | 1 << 31),
        };
        let swaps = current.as_ref() == Some(&expected);
        let (after, answer) = match write {
            Write::Put => (version, is_there),
            Write::Insert => (if is_there { before } else { version }, !is_there),
            Write::Update => (if is_there { version } else { 0 }, is_there),
            Write::Swap => (if swaps { version } else { before }, swaps),
            Write::Delete => (0, is_there),
        };
        self.journal.begin(index, after)?;
        let answered = match write {
            Write::Put => self.tree.put(&key, &new),
            Write::Insert => self.tree.insert(&key, &new),
            Write::Update => self.tree.update(&key, &new),
            Write::Swap => self.tree.compare_and_set(&key, &expected, &new),
            Write::Delete => self.tree.delete(&key),
        }
        .map_err(|error| error.to_string())?;
        self.journal.settle(index, after)?;
        self.journal.progress.checks += 1;
        if answered != answer {
            return Err(format!("{write:?} of key {number} in state {before:x} answered {answered}"));
        }
        Ok(())
    }

    /// Writes a key of the shared class.
    fn write_shared(&mut self, index: u64, write: Write) -> Outcome {
        let number = number_of(SHARED, index);
        let place = self.keys + index;
        let (key, version) = (key(number), self.next_version());
        let new = value(number, self.number, version);
        let before = self.journal.entry(place).after;
        let expected = if write == Write::Swap {
            let Some(found) = self.get(number)? else { return self.check(number, None) };
            self.check(number, Some(&found))?;
            found
        } else {
            Vec::new()
        };
        let after = if write == Write::Delete { 0 } else { version };
        self.journal.begin(place, after)?;
        let answered = match write {
            Write::Put => self.tree.put(&key, &new).map(|_| true),
            Write::Insert => self.tree.insert(&key, &new),
            Write::Update => self.tree.update(&key, &new),
            Write::Swap => self.tree.compare_and_set(&key, &expected, &new),
            Write::Delete => self.tree.delete(&key).map(|_| true),
        }
        .map_err(|error| error.to_string())?;
        self.journal.settle(place, if answered { after } else { before })
    }
}
