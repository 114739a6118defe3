//! Named stores: created, opened, listed, dropped.

use crate::{Error, Options, Result};
use forebay_base::ErrorKind;
use forebay_memory_client::{MemoryClient, StoreHandle};
use forebay_table::StoreConfig;
use std::sync::Arc;

/// Opens the store `name`, or creates it, as the options say; `config` is what it must have been
/// created with.
///
/// # Errors
/// `NotFound`, `AlreadyExists`, and `Invalid` when it was created with something else.
pub(crate) fn open(
    client: &Arc<MemoryClient>,
    name: &str,
    config: &StoreConfig,
    options: &Options,
) -> Result<StoreHandle> {
    let found = match client.open_store(name) {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        found => Some(found?),
    };
    let store = match found {
        Some(_) if options.error_if_exists => {
            return Err(Error::new(ErrorKind::AlreadyExists, format!("there is a database {name:?} already")));
        }
        Some(store) => store,
        None if !options.create_if_missing => {
            return Err(Error::new(ErrorKind::NotFound, format!("there is no database {name:?}")));
        }
        None => create(client, name, config, options)?,
    };
    let found = StoreConfig::decode(store.config()).map_err(|error| Error::from(error).during("opening a store"))?;
    check(name, &found, config)?;
    Ok(store)
}

fn create(client: &Arc<MemoryClient>, name: &str, config: &StoreConfig, options: &Options) -> Result<StoreHandle> {
    match client.create_store(name, &config.encode()?) {
        // Somebody else was faster.
        Err(error) if error.kind() == ErrorKind::AlreadyExists && !options.error_if_exists => {
            Ok(client.open_store(name)?)
        }
        created => Ok(created?),
    }
}

fn check(name: &str, found: &StoreConfig, wanted: &StoreConfig) -> Result<()> {
    let differ = |what: &str, found: &dyn std::fmt::Display, wanted: &dyn std::fmt::Display| {
        Err(Error::invalid(format!("the database {name:?} was created with {what} {found}, not {wanted}")))
    };
    if found.key_order != wanted.key_order {
        return differ("the key order", &found.key_order.name(), &wanted.key_order.name());
    }
    if found.shards != wanted.shards {
        return differ("a number of shards of", &found.shards, &wanted.shards);
    }
    if found.merge_operator != wanted.merge_operator {
        return differ("the merge operator", &found.merge_operator, &wanted.merge_operator);
    }
    Ok(())
}

/// Names of the databases in a memory node, in ascending order.
///
/// # Errors
/// `Unavailable` when it is gone.
pub(crate) fn list(client: &MemoryClient) -> Result<Vec<String>> {
    Ok(client.list_stores()?.into_iter().map(|(name, _)| name).collect())
}

/// Drops the store `name` with all that is in it.
///
/// # Errors
/// `NotFound`; `Busy` while a process has it open.
pub(crate) fn destroy(client: &Arc<MemoryClient>, name: &str) -> Result<()> {
    let store = client.open_store(name)?;
    Ok(client.drop_store(store.id())?)
}
