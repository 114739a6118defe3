//! The directory of stores and their shards.
//!
//! A shard's epoch only grows, also over owners that come back: whoever acquires gets the next one.

use super::Refusal;
use forebay_proto::{Blob, Epoch, SessionId, ShardId, ShardKey, StoreId, Text};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Most stores of a node.
pub const MAX_STORES: usize = 4096;
/// Most shards of a node, over all stores: each may have a root of 4 KiB.
pub const MAX_SHARDS: usize = 16_384;
const MAX_NAME_BYTES: usize = 128;

/// A shard.
#[derive(Debug, Default)]
pub struct Shard {
    /// The epoch of its last owner.
    pub epoch: Epoch,
    /// All sessions that opened the store write its memory; it never has an owner.
    pub shared: bool,
    /// Its owner.
    pub owner: Option<SessionId>,
    /// What recovery starts from, and who said so.
    pub root: Option<(Epoch, Blob)>,
}

/// A store.
#[derive(Debug)]
pub struct Store {
    /// Whose it is.
    pub tenant: Text,
    /// Its name.
    pub name: Text,
    /// The session that it ends with, if it is private.
    pub private_to: Option<SessionId>,
    /// What it was created with.
    pub config: Blob,
    /// Its shards.
    pub shards: BTreeMap<ShardId, Shard>,
}

/// All stores of a node.
#[derive(Debug)]
pub struct Directory {
    stores: BTreeMap<StoreId, Store>,
    names: BTreeMap<(Text, Text), StoreId>,
    next: u64,
    shards: usize,
}

impl Directory {
    /// An empty directory.
    pub fn new() -> Self {
        Self { stores: BTreeMap::new(), names: BTreeMap::new(), next: 1, shards: 0 }
    }

    /// Creates a store; without a name it is private to `session`.
    pub fn create(&mut self, tenant: &Text, name: Text, config: Blob, session: SessionId) -> Result<StoreId, Refusal> {
        let allowed = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-');
        let text = name.as_str();
        if text.len() > MAX_NAME_BYTES || !text.bytes().all(allowed) {
            return Err(Refusal::Name(text.into()));
        }
        if self.names.contains_key(&(tenant.clone(), name.clone())) {
            return Err(Refusal::StoreExists(name));
        }
        if self.stores.len() >= MAX_STORES {
            return Err(Refusal::TooMany("stores"));
        }
        let id = StoreId(self.next);
        self.next += 1;
        let private_to = name.as_str().is_empty().then_some(session);
        if private_to.is_none() {
            self.names.insert((tenant.clone(), name.clone()), id);
        }
        let store = Store { tenant: tenant.clone(), name, private_to, config, shards: BTreeMap::new() };
        self.stores.insert(id, store);
        Ok(id)
    }

    /// The tenant's store of that name.
    pub fn find(&self, tenant: &Text, name: &Text) -> Result<(StoreId, &Store), Refusal> {
        let missing = || Refusal::NoStore(name.clone());
        let id = self.names.get(&(tenant.clone(), name.clone())).copied().ok_or_else(missing)?;
        self.stores.get(&id).map(|store| (id, store)).ok_or_else(missing)
    }

    /// The tenant's stores with names behind `after`.
    pub fn list<'a>(&'a self, tenant: &'a Text, after: &Text) -> impl Iterator<Item = (StoreId, &'a Text)> {
        let from = (tenant.clone(), after.clone());
        self.names
            .range((Bound::Excluded(from), Bound::Unbounded))
            .take_while(move |((of, _), _)| of == tenant)
            .map(|((_, name), &id)| (id, name))
    }

    /// The store.
    pub fn get(&self, id: StoreId) -> Option<&Store> {
        self.stores.get(&id)
    }

    /// Removes a store.
    pub fn remove(&mut self, id: StoreId) {
        if let Some(store) = self.stores.remove(&id) {
            self.shards -= store.shards.len();
            self.names.remove(&(store.tenant, store.name));
        }
    }

    /// The stores that end with the session.
    pub fn private_to(&self, session: SessionId) -> Vec<StoreId> {
        self.stores.iter().filter(|(_, store)| store.private_to == Some(session)).map(|(&id, _)| id).collect()
    }

    /// The shards of a store.
    pub fn shards_of(&self, id: StoreId) -> Vec<ShardKey> {
        let shards = self.stores.get(&id).into_iter().flat_map(|store| store.shards.keys());
        shards.map(|&shard| ShardKey { store: id, shard }).collect()
    }

    /// The shard, if anybody ever acquired it.
    pub fn shard(&self, key: ShardKey) -> Option<&Shard> {
        self.stores.get(&key.store)?.shards.get(&key.shard)
    }

    /// The shard.
    pub fn shard_mut(&mut self, key: ShardKey) -> Option<&mut Shard> {
        self.stores.get_mut(&key.store)?.shards.get_mut(&key.shard)
    }

    /// Gives the shard, which is created if need be, to `session`. Returns its epoch.
    pub fn acquire(&mut self, key: ShardKey, session: SessionId, takeover: bool) -> Result<Epoch, Refusal> {
        let store = self.stores.get_mut(&key.store).ok_or(Refusal::NotOpen(key.store))?;
        if !store.shards.contains_key(&key.shard) {
            if self.shards >= MAX_SHARDS {
                return Err(Refusal::TooMany("shards"));
            }
            self.shards += 1;
        }
        let shard = store.shards.entry(key.shard).or_default();
        if shard.shared {
            return Err(Refusal::Shared(key));
        }
        if shard.owner.is_some_and(|owner| owner != session) && !takeover {
            return Err(Refusal::Owned(key));
        }
        shard.owner = Some(session);
        shard.epoch = Epoch(shard.epoch.0 + 1);
        Ok(shard.epoch)
    }

    /// Makes a shard, which is created if need be, shared.
    pub fn share(&mut self, key: ShardKey) -> Result<(), Refusal> {
        let store = self.stores.get_mut(&key.store).ok_or(Refusal::NotOpen(key.store))?;
        match store.shards.get(&key.shard) {
            Some(shard) if shard.shared => return Ok(()),
            Some(_) => return Err(Refusal::Owned(key)),
            None if self.shards >= MAX_SHARDS => return Err(Refusal::TooMany("shards")),
            None => {}
        }
        self.shards += 1;
        store.shards.insert(key.shard, Shard { shared: true, ..Shard::default() });
        Ok(())
    }

    /// Checks that `session` owns the shard at `epoch`.
    pub fn check(&mut self, key: ShardKey, session: SessionId, epoch: Epoch) -> Result<&mut Shard, Refusal> {
        let shard = self.shard_mut(key).ok_or(Refusal::NoShard(key))?;
        if shard.owner != Some(session) || shard.epoch != epoch {
            return Err(Refusal::Fenced { shard: key, epoch, present: shard.epoch });
        }
        Ok(shard)
    }

    /// The shards that `session` owns.
    pub fn owned_by(&self, session: SessionId) -> Vec<ShardKey> {
        self.iter().filter(|(_, shard)| shard.owner == Some(session)).map(|(key, _)| key).collect()
    }

    /// All shards.
    pub fn iter(&self) -> impl Iterator<Item = (ShardKey, &Shard)> {
        self.stores.iter().flat_map(|(&store, entry)| {
            entry.shards.iter().map(move |(&shard, state)| (ShardKey { store, shard }, state))
        })
    }

    /// Stores and shards.
    pub fn len(&self) -> (usize, usize) {
        (self.stores.len(), self.shards)
    }
}
