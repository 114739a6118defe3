//! New collections that take the place of what a key holds. Their elements are written as they come (`keyspace::building`).

use crate::commands::collections::{Open, check_element};
use crate::commands::command::Context;
use crate::keyspace::building::NewElements;
use crate::keyspace::events::Class;
use crate::keyspace::failure::Outcome;
use crate::keyspace::header::{Collection, Kind};
use crate::keyspace::layout::{self, Layout, Space};
use crate::records::store::Records;
use bytes::Bytes;

/// A new collection. The caller adds each element once.
#[derive(Debug)]
pub(crate) struct Building<'s> {
    kind: Kind,
    now: Collection,
    space: Space,
    layout: Layout,
    elements: NewElements<'s>,
    store: &'s Records,
}

impl<'s> Building<'s> {
    /// Makes an empty collection.
    pub(crate) fn new(cx: &mut Context<'_, 's>, kind: Kind) -> Outcome<Self> {
        let (space, id) = (cx.space(), cx.keys.new_id()?);
        let (layout, elements) = (cx.keys.layout(), cx.keys.new_elements(space, id));
        let store = cx.keys.reads().store();
        Ok(Self { kind, now: Collection { id, a: 0, b: 0 }, space, layout, elements, store })
    }

    /// Number of its elements.
    pub(crate) const fn len(&self) -> u64 {
        match self.kind {
            Kind::List => self.now.b,
            _ => self.now.a,
        }
    }

    /// Adds an element at the end of a list.
    pub(crate) fn push(&mut self, value: Bytes) -> Outcome {
        let place = self.now.b;
        self.now.b = place.saturating_add(1);
        self.elements.add(layout::list_element(self.space, self.now.id, place as i64), value)
    }

    /// Adds a member of a set, or a field of a hash.
    pub(crate) fn add(&mut self, element: &[u8], value: Bytes) -> Outcome {
        check_element(self.store, element)?;
        self.now.a += 1;
        self.elements.add(self.layout.hashed_element(self.space, self.now.id, element), value)
    }

    /// Adds a member of a sorted set.
    pub(crate) fn add_scored(&mut self, member: &[u8], score: f64) -> Outcome {
        check_element(self.store, member)?;
        self.now.a += 1;
        let id = self.now.id;
        let value = Bytes::copy_from_slice(&layout::score_bytes(score));
        self.elements.add(self.layout.member(self.space, id, member), value)?;
        self.elements.add(layout::scored(self.space, id, score, member), Bytes::new())
    }

    /// Replaces what a key holds by the collection. The key does not expire then.
    pub(crate) fn save(self, cx: &mut Context<'_, 's>, key: &[u8]) -> Outcome {
        cx.keys.adopt(self.elements);
        Open::built(self.kind, self.now).save(cx, key, true)
    }

    /// The same, with an event of this name. If the collection is empty, the key is deleted instead.
    pub(crate) fn store(self, cx: &mut Context<'_, 's>, key: &[u8], class: Class, event: &'static str) -> Outcome {
        if self.len() == 0 {
            return cx.delete(key);
        }
        self.save(cx, key)?;
        cx.notify(class, event, key);
        Ok(())
    }
}
