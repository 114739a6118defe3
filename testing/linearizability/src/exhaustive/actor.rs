//! A client and its script. What a client does is a function of what it has found so far. So its findings
//! are its place. To continue, the client is run again from its beginning with these findings and one more.

use super::link::{Mode, Seat, Wanted};
use super::script::Step;
use crate::history::{Answer, perform};
use forebay_env::HashMap;
use forebay_tree::{BlockName, Range, Tree, TreeClient};
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// What operations found. Each different finding gets one number, because most occur again and again.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    all: Vec<Arc<[u64]>>,
    numbers: HashMap<Arc<[u64]>, u32>,
}

impl Findings {
    pub(crate) fn number(&mut self, words: &[u64]) -> u32 {
        if let Some(&number) = self.numbers.get(words) {
            return number;
        }
        let (number, words) = (self.all.len() as u32, Arc::<[u64]>::from(words));
        self.all.push(Arc::clone(&words));
        self.numbers.insert(words, number);
        number
    }

    pub(crate) fn words(&self, number: u32) -> &[u64] {
        &self.all[number as usize]
    }
}

/// What happened since the previous place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Turn {
    /// The next step of the script was begun.
    Begun,
    /// What the operations of a doorbell found.
    Found(Vec<u32>),
}

/// What comes next.
#[derive(Debug, Clone)]
pub(crate) enum Next {
    /// The next step may be begun.
    Begin,
    /// These operations are posted.
    Posted(Arc<[Wanted]>),
    /// The script has ended, and the process has these blocks.
    Ended(Arc<[BlockName]>),
}

/// The answers of a step, by key.
pub(crate) type Answers = Arc<[(usize, Answer)]>;

/// Where a client is.
#[derive(Debug)]
struct Place {
    before: Option<(u32, Turn)>,
    known: Option<Known>,
}

#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) next: Next,
    /// Number of steps that have ended, and the answers of the last one.
    pub(crate) ended: usize,
    pub(crate) answers: Answers,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Actor {
    seat: Arc<Seat>,
    tree: Arc<Tree>,
    keys: Arc<[Vec<u8>]>,
    pub(crate) script: Vec<Step>,
    places: Vec<Place>,
    turns: HashMap<(u32, Turn), u32>,
}

impl Actor {
    pub(crate) fn new(seat: Arc<Seat>, tree: Arc<Tree>, keys: Arc<[Vec<u8>]>, script: Vec<Step>) -> Self {
        let places = vec![Place { before: None, known: None }];
        Self { seat, tree, keys, script, places, turns: HashMap::default() }
    }

    /// Places that the client has been at.
    pub(crate) fn places(&self) -> usize {
        self.places.len()
    }

    fn go(&mut self, place: u32, turn: Turn) -> u32 {
        match self.turns.entry((place, turn)) {
            Entry::Occupied(found) => *found.get(),
            Entry::Vacant(vacant) => {
                let number = self.places.len() as u32;
                self.places.push(Place { before: Some(vacant.key().clone()), known: None });
                *vacant.insert(number)
            }
        }
    }

    /// The place after the next step was begun.
    pub(crate) fn begin(&mut self, place: u32) -> u32 {
        self.go(place, Turn::Begun)
    }

    /// The place after a doorbell's operations found something.
    pub(crate) fn find(&mut self, place: u32, found: Vec<u32>) -> u32 {
        self.go(place, Turn::Found(found))
    }

    /// What is next at a place.
    pub(crate) fn known(&mut self, place: u32, findings: &Findings) -> Result<Known, String> {
        if let Some(known) = &self.places[place as usize].known {
            return Ok(known.clone());
        }
        let known = self.run(place, findings)?;
        self.places[place as usize].known = Some(known.clone());
        Ok(known)
    }

    /// Runs the client from its beginning to a place.
    fn run(&self, place: u32, findings: &Findings) -> Result<Known, String> {
        let (mut begun, mut doorbells) = (0, Vec::new());
        let mut place = &self.places[place as usize];
        while let Some((before, turn)) = &place.before {
            match turn {
                Turn::Begun => begun += 1,
                Turn::Found(found) => doorbells.push(found),
            }
            place = &self.places[*before as usize];
        }
        let found = doorbells.iter().rev().flat_map(|found| found.iter());
        let answers = found.map(|&number| Arc::clone(&findings.all[number as usize])).collect();
        self.seat.set(Mode::Fed { answers, next: 0, wanted: Vec::new() });
        let known = self.perform(begun);
        self.seat.set(Mode::Direct);
        known
    }

    fn perform(&self, begun: usize) -> Result<Known, String> {
        let tree = self.tree.fork();
        let mut client = tree.client().map_err(|error| error.to_string())?;
        let mut last = Answers::default();
        for (ended, step) in self.script.iter().take(begun).enumerate() {
            let said = self.step(&mut client, step);
            if let Mode::Fed { answers, next, wanted } = self.seat.set(Mode::Closed) {
                if !wanted.is_empty() {
                    return Ok(Known { next: Next::Posted(wanted.into()), ended, answers: last });
                }
                self.seat.set(Mode::Fed { answers, next, wanted });
            }
            last = said?;
        }
        let ended = begun.min(self.script.len());
        if begun <= self.script.len() {
            self.seat.set(Mode::Closed);
            return Ok(Known { next: Next::Begin, ended, answers: last });
        }
        // After the script, the client is dropped: it retires what it displaced.
        drop(client);
        let next = match self.seat.set(Mode::Closed) {
            Mode::Fed { wanted, .. } if !wanted.is_empty() => Next::Posted(wanted.into()),
            _ => Next::Ended(tree.stock().into()),
        };
        Ok(Known { next, ended, answers: last })
    }

    fn step(&self, client: &mut TreeClient, step: &Step) -> Result<Answers, String> {
        let failed = |error: forebay_tree::Error| format!("{step:?} failed: {error}");
        match step {
            Step::One(key, action) => {
                let answer = perform(client, &self.keys[*key], action).map_err(failed)?;
                Ok(Arc::new([(*key, answer)]))
            }
            Step::Scan { backward } => {
                let mut found = client.scan(Range { backward: *backward, ..Range::all() }).map_err(failed)?;
                if *backward {
                    found.reverse();
                }
                self.found(&found)
            }
            Step::MultiGet => {
                let wanted: Vec<&[u8]> = self.keys.iter().map(Vec::as_slice).collect();
                let values = client.multi_get(&wanted).map_err(failed)?;
                Ok(values.into_iter().map(Answer::Value).enumerate().collect())
            }
            &Step::Take(class) => client.take_batch(class).map(|()| Answers::default()).map_err(failed),
            &Step::Give(class) => client.give_batch(class).map(|()| Answers::default()).map_err(failed),
            Step::Round => client.begin_round().map(|()| Answers::default()).map_err(failed),
        }
    }

    /// What a scan found, as a get of each key.
    fn found(&self, found: &[(Vec<u8>, Vec<u8>)]) -> Result<Answers, String> {
        if !found.is_sorted_by(|a, b| a.0 < b.0) || found.iter().any(|(key, _)| !self.keys.contains(key)) {
            return Err(format!("a scan found {found:?}"));
        }
        let value = |key: &Vec<u8>| found.iter().find(|(other, _)| other == key).map(|(_, value)| value.clone());
        Ok(self.keys.iter().map(|key| Answer::Value(value(key))).enumerate().collect())
    }
}
