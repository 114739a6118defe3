//! Operations, their answers, and the search for an order that explains them.

use forebay_env::sync::lock;
use forebay_tree::{Error, TreeClient};
use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The value of a key, if it has one.
pub(crate) type Value = Option<Vec<u8>>;

/// An operation on one key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// Reads the value.
    Get,
    /// Sets it.
    Put(Vec<u8>),
    /// Sets it if there is none.
    Insert(Vec<u8>),
    /// Sets it if there is one.
    Update(Vec<u8>),
    /// Sets it to the second if it is the first.
    Swap(Vec<u8>, Vec<u8>),
    /// Removes it.
    Delete,
}

/// The answer of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    Value(Value),
    Done(bool),
}

/// A key, as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key(pub(crate) Value);

impl SequentialSpec for Key {
    type Op = Action;
    type Ret = Answer;

    fn invoke(&mut self, action: &Action) -> Answer {
        let was = self.0.is_some();
        match action {
            Action::Get => return Answer::Value(self.0.clone()),
            Action::Put(value) => self.0 = Some(value.clone()),
            Action::Insert(value) => {
                if !was {
                    self.0 = Some(value.clone());
                }
                return Answer::Done(!was);
            }
            Action::Update(value) => self.0 = was.then(|| value.clone()),
            Action::Swap(expected, new) => {
                let is_same = self.0.as_ref() == Some(expected);
                if is_same {
                    self.0 = Some(new.clone());
                }
                return Answer::Done(is_same);
            }
            Action::Delete => self.0 = None,
        }
        Answer::Done(was)
    }
}

/// Runs an operation.
pub(crate) fn perform(client: &mut TreeClient, key: &[u8], action: &Action) -> Result<Answer, Error> {
    Ok(match action {
        Action::Get => Answer::Value(client.get(key)?),
        Action::Put(value) => Answer::Done(client.put(key, value)?),
        Action::Insert(value) => Answer::Done(client.insert(key, value)?),
        Action::Update(value) => Answer::Done(client.update(key, value)?),
        Action::Swap(expected, new) => Answer::Done(client.compare_and_set(key, expected, new)?),
        Action::Delete => Answer::Done(client.delete(key)?),
    })
}

/// The beginning or the end of an operation of a client on a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    Begin(u32, Action),
    End(u32, Answer),
}

/// What happened to each key, in order. A client that disappears has an operation that does not end,
/// and no later ones: its successor has another number.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<BTreeMap<usize, Vec<Event>>>);

impl History {
    pub(crate) fn begin(&self, client: u32, key: usize, action: Action) {
        lock(&self.0).entry(key).or_default().push(Event::Begin(client, action));
    }

    pub(crate) fn end(&self, client: u32, key: usize, answer: Answer) {
        lock(&self.0).entry(key).or_default().push(Event::End(client, answer));
    }

    /// Operations that were begun.
    pub(crate) fn operations(&self) -> u64 {
        lock(&self.0).values().flatten().filter(|event| matches!(event, Event::Begin(..))).count() as u64
    }

    /// Checks that each key's events have an order that begins with these values and explains the events.
    ///
    /// # Errors
    /// The events that have none.
    pub(crate) fn check(&self, before: &[Value]) -> Result<(), String> {
        for (&key, events) in &*lock(&self.0) {
            let value = before.get(key).cloned().flatten();
            if !is_explained(value.clone(), events)? {
                let events: Vec<String> = events.iter().map(|event| format!("  {event:?}\n")).collect();
                return Err(format!(
                    "no order explains the events of key {key}, which was {value:?}:\n{}",
                    events.concat()
                ));
            }
        }
        Ok(())
    }
}

pub(crate) fn is_explained(before: Value, events: &[Event]) -> Result<bool, String> {
    let mut tester = LinearizabilityTester::new(Key(before));
    for event in events {
        match event.clone() {
            Event::Begin(client, action) => tester.on_invoke(client, action)?,
            Event::End(client, answer) => tester.on_return(client, answer)?,
        };
    }
    Ok(tester.is_consistent())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(client: u32, value: u8) -> Event {
        Event::Begin(client, Action::Put(vec![value]))
    }

    fn get(client: u32) -> Event {
        Event::Begin(client, Action::Get)
    }

    fn done(client: u32, was: bool) -> Event {
        Event::End(client, Answer::Done(was))
    }

    fn found(client: u32, value: Option<u8>) -> Event {
        Event::End(client, Answer::Value(value.map(|value| vec![value])))
    }

    #[test]
    fn orders_are_found_where_there_are_some() {
        let explained = |events: &[Event]| is_explained(None, events).unwrap();
        assert!(explained(&[put(1, 5), get(2), found(2, Some(5)), done(1, false)]));
        assert!(explained(&[put(1, 5), get(2), found(2, None), done(1, false)]));
        assert!(!explained(&[put(1, 5), done(1, false), get(2), found(2, None)]));
        assert!(!explained(&[put(1, 5), done(1, true)]));
        // The operation of a client that died may have been done, and then it stays done.
        let dead = [put(1, 5), get(2), found(2, Some(5)), get(2), found(2, None)];
        assert!(explained(&dead[..3]) && !explained(&dead));
        assert!(explained(&[put(1, 5), get(2), found(2, None), get(2), found(2, Some(5))]));
    }
}
