//! The directory of stores and their shards.
//!
//! A shard's epoch only grows, even when an earlier owner comes back: each acquisition gets the
//! next epoch.

use super::refusal::Refusal;
use super::resources::TenantId;
use forebay_proto::{Blob, Epoch, SessionId, ShardId, ShardKey, StoreId, Text};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Maximum number of stores of a node.
pub const MAX_STORES: usize = 4096;
/// Maximum number of shards of a node, over all stores. Each may have a root of 4 KiB.
pub const MAX_SHARDS: usize = 16_384;
const MAX_NAME_BYTES: usize = 128;

/// A shard.
#[derive(Debug, Default)]
pub struct Shard {
    /// The epoch of its last owner.
    pub epoch: Epoch,
    /// Whether it is shared: all sessions that opened the store write its memory, and it never has
    /// an owner.
    pub shared: bool,
    /// Its owner.
    pub owner: Option<SessionId>,
    /// The root, from which recovery starts, and the epoch that set it.
    pub root: Option<(Epoch, Blob)>,
}

/// A store.
#[derive(Debug)]
pub struct Store {
    /// The tenant that owns it.
    pub tenant: TenantId,
    /// Its name.
    pub name: Text,
    /// The session that it ends with, if it is private.
    pub private_to: Option<SessionId>,
    /// The configuration it was created with.
    pub config: Blob,
    /// Its shards.
    pub shards: BTreeMap<ShardId, Shard>,
}

/// All stores of a node.
#[derive(Debug)]
pub struct Directory {
    stores: BTreeMap<StoreId, Store>,
    names: BTreeMap<(TenantId, Text), StoreId>,
    next: u64,
    shards: usize,
}

/// Whether a store or a database may have this name. An empty name is allowed.
pub fn is_name(name: &Text) -> bool {
    let allowed = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-');
    name.as_str().len() <= MAX_NAME_BYTES && name.as_str().bytes().all(allowed)
}

impl Directory {
    /// An empty directory.
    pub fn new() -> Self {
        Self { stores: BTreeMap::new(), names: BTreeMap::new(), next: 1, shards: 0 }
    }

    /// Creates a store; without a name it is private to `session`.
    pub fn create(
        &mut self,
        tenant: TenantId,
        name: Text,
        config: Blob,
        session: SessionId,
    ) -> Result<StoreId, Refusal> {
        if !is_name(&name) {
            return Err(Refusal::Name(name.as_str().into()));
        }
        if self.names.contains_key(&(tenant, name.clone())) {
            return Err(Refusal::StoreExists(name));
        }
        if self.stores.len() >= MAX_STORES {
            return Err(Refusal::TooMany { what: "stores of the node", most: MAX_STORES });
        }
        let id = StoreId(self.next);
        self.next += 1;
        let private_to = name.as_str().is_empty().then_some(session);
        if private_to.is_none() {
            self.names.insert((tenant, name.clone()), id);
        }
        let store = Store { tenant, name, private_to, config, shards: BTreeMap::new() };
        self.stores.insert(id, store);
        Ok(id)
    }

    /// The tenant's store of that name.
    pub fn find(&self, tenant: TenantId, name: &Text) -> Result<(StoreId, &Store), Refusal> {
        let missing = || Refusal::NoStore(name.clone());
        let id = self.names.get(&(tenant, name.clone())).copied().ok_or_else(missing)?;
        self.stores.get(&id).map(|store| (id, store)).ok_or_else(missing)
    }

    /// The tenant's stores with names after `after`.
    pub fn list(&self, tenant: TenantId, after: &Text) -> impl Iterator<Item = (StoreId, &Text)> + use<'_> {
        let from = (tenant, after.clone());
        self.names
            .range((Bound::Excluded(from), Bound::Unbounded))
            .take_while(move |((of, _), _)| *of == tenant)
            .map(|((_, name), &id)| (id, name))
    }

    /// The store.
    pub fn get(&self, id: StoreId) -> Option<&Store> {
        self.stores.get(&id)
    }

    /// All stores.
    #[cfg(test)]
    pub fn stores(&self) -> impl Iterator<Item = StoreId> + use<'_> {
        self.stores.keys().copied()
    }

    /// Removes a store. Returns its tenant, and how many shards it had.
    pub fn remove(&mut self, id: StoreId) -> Option<(TenantId, usize)> {
        let store = self.stores.remove(&id)?;
        self.shards -= store.shards.len();
        if store.private_to.is_none() {
            self.names.remove(&(store.tenant, store.name));
        }
        Some((store.tenant, store.shards.len()))
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

    /// The shard, if it was ever acquired.
    pub fn shard(&self, key: ShardKey) -> Option<&Shard> {
        self.stores.get(&key.store)?.shards.get(&key.shard)
    }

    /// The shard.
    pub fn shard_mut(&mut self, key: ShardKey) -> Option<&mut Shard> {
        self.stores.get_mut(&key.store)?.shards.get_mut(&key.shard)
    }

    /// Gives the shard to `session`, creating it if necessary. Returns its epoch.
    pub fn acquire(&mut self, key: ShardKey, session: SessionId, takeover: bool) -> Result<Epoch, Refusal> {
        let store = self.stores.get_mut(&key.store).ok_or(Refusal::NotOpen(key.store))?;
        if !store.shards.contains_key(&key.shard) {
            if self.shards >= MAX_SHARDS {
                return Err(Refusal::TooMany { what: "shards of the node", most: MAX_SHARDS });
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

    /// Makes a shard shared, creating it if necessary.
    pub fn share(&mut self, key: ShardKey) -> Result<(), Refusal> {
        let store = self.stores.get_mut(&key.store).ok_or(Refusal::NotOpen(key.store))?;
        match store.shards.get(&key.shard) {
            Some(shard) if shard.shared => return Ok(()),
            Some(_) => return Err(Refusal::Owned(key)),
            None if self.shards >= MAX_SHARDS => {
                return Err(Refusal::TooMany { what: "shards of the node", most: MAX_SHARDS });
            }
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

    /// The shards that a session of the tenant owns.
    pub fn owned_by(&self, tenant: TenantId, session: SessionId) -> Vec<ShardKey> {
        self.shards_of_tenant(tenant).filter(|(_, shard)| shard.owner == Some(session)).map(|(key, _)| key).collect()
    }

    /// All shards.
    pub fn iter(&self) -> impl Iterator<Item = (ShardKey, &Shard)> {
        self.stores.iter().flat_map(|(&id, store)| store.each_shard(id))
    }

    /// Shards of the tenant's stores. Looks at none of other tenants.
    pub fn shards_of_tenant(&self, tenant: TenantId) -> impl Iterator<Item = (ShardKey, &Shard)> {
        let mine = self.stores.iter().filter(move |(_, store)| store.tenant == tenant);
        mine.flat_map(|(&id, store)| store.each_shard(id))
    }

    /// Stores and shards.
    pub fn len(&self) -> (usize, usize) {
        (self.stores.len(), self.shards)
    }
}

impl Store {
    /// Its shards; `id` is its own.
    fn each_shard(&self, id: StoreId) -> impl Iterator<Item = (ShardKey, &Shard)> {
        let shards = self.shards.iter().map(move |(&shard, state)| (ShardKey { store: id, shard }, state));
        #[cfg(test)]
        let shards = shards.inspect(|_| VISITED.set(VISITED.get() + 1));
        shards
    }
}

#[cfg(test)]
thread_local! {
    /// Shards that were looked at one after another.
    pub static VISITED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So a deposed owner, whose calls to share carry no epoch, cannot share what it owned.
    #[test]
    fn what_was_ever_owned_is_not_shared() {
        let mut directory = Directory::new();
        let (tenant, [old, new]) = (TenantId(1), [SessionId(1), SessionId(2)]);
        let store = directory.create(tenant, Text::new("db").unwrap(), Blob::default(), old).unwrap();
        let key = |shard| ShardKey { store, shard: ShardId(shard) };
        let epoch = directory.acquire(key(0), old, false).unwrap();
        assert_eq!(directory.share(key(0)), Err(Refusal::Owned(key(0))));
        directory.acquire(key(0), new, true).unwrap();
        assert!(directory.check(key(0), old, epoch).is_err(), "it is deposed");
        assert_eq!(directory.share(key(0)), Err(Refusal::Owned(key(0))));
        directory.shard_mut(key(0)).unwrap().owner = None;
        assert_eq!(directory.share(key(0)), Err(Refusal::Owned(key(0))));
        // And nobody can own what is shared.
        directory.share(key(1)).unwrap();
        directory.share(key(1)).unwrap();
        assert_eq!(directory.acquire(key(1), new, true), Err(Refusal::Shared(key(1))));
        assert_eq!(directory.len(), (1, 2));
    }
}
