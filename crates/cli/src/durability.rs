//! Flags that say what a database survives.

use crate::arguments::NodeAddresses;
use crate::failure::Failure;
use crate::storage_flags::{ENDS, NamedStorage, directory, named_directory};
use crate::{names, output, units};
use forebay::{
    DEFAULT_NAME, DirectoryOptions, Durability, EngineError, ErrorKind, NodeAddress, Options, Storage, StorageOptions,
    Store, Syncing,
};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The message when a directory is named together with memory nodes of other processes.
pub const PATH_WITH_MEMORY: &str =
    "--path opens a directory with memory of this process: with --memory, name it by --storage";

/// Where a database lies, and what its writes survive.
#[derive(Debug, Clone, clap::Args)]
pub struct DurabilityArguments {
    /// Directory of the database. There it survives the end of the command, and, with a sync each second, a crash of
    /// the machine.
    #[arg(long, value_name = "DIRECTORY", value_parser = directory, conflicts_with_all = ["db", "storage"])]
    path: Option<PathBuf>,
    /// Name of the database on the memory nodes of --memory, or in --storage (there `default`). It outlives the command; a
    /// database without a name ends with the command.
    #[arg(long, value_name = "NAME", value_parser = names::database)]
    db: Option<String>,
    /// Storage in which the database lies: a path or file:///path, s3://bucket/prefix, gs://bucket/prefix,
    /// az://container/prefix or hdfs://host:port/prefix (where they are built in), memory: (for this command alone).
    /// There it survives the loss of everything else.
    #[arg(long, value_name = "URL")]
    storage: Option<NamedStorage>,
    /// Where it is written which memory nodes hold the copies of a database with --durability=memory=COPIES, and who owns
    /// it: a path, or a URL as for --storage. It must outlive the memory nodes. Without it, more than half of them decide.
    #[arg(long, value_name = "URL")]
    register: Option<NamedStorage>,
    /// What a write survives once it is acknowledged: none; with memory, the end of this process (needs --db); with
    /// memory=COPIES, also the loss of all but one of this many memory nodes (needs this many addresses in --memory, and
    /// --register for all of that); with storage=sync, the loss of everything except the storage, with
    /// storage=interval:1s, the same except for the last second, with storage=flush, except for what was not flushed
    /// (need --path or --storage). By default storage=interval:1s with --path, storage=sync with --storage, else none.
    #[arg(long, value_name = "DURABILITY")]
    durability: Option<DurabilityArgument>,
}

/// A durability on the command line.
#[derive(Debug, Clone, Copy)]
struct DurabilityArgument(Durability);

impl FromStr for DurabilityArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let right =
            "a durability is none, memory, memory=COPIES, storage=sync, storage=interval:DURATION or storage=flush";
        let durability = match text.split_once('=') {
            None if text == "none" => Durability::None,
            None if text == "memory" => Durability::Memory { copies: 1 },
            Some(("memory", copies)) => match copies.parse() {
                Ok(copies) if copies > 0 => Durability::Memory { copies },
                _ => return Err(right.to_owned()),
            },
            Some(("storage", "sync")) => Durability::Storage(Syncing::Sync),
            Some(("storage", "flush")) => Durability::Storage(Syncing::Flush),
            Some(("storage", rest)) => match rest.split_once(':') {
                Some(("interval", interval)) => Durability::Storage(Syncing::Interval(units::duration(interval)?)),
                _ => return Err(right.to_owned()),
            },
            _ => return Err(right.to_owned()),
        };
        Ok(Self(durability))
    }
}

/// Warns when a new database will survive less than its copies promise: without a register, it opens only while more than
/// half of its memory nodes live. Where there are fewer nodes than copies, it is refused.
pub fn warn_if_frail(addresses: &[NodeAddress], options: &Options) {
    let (Durability::Memory { copies }, None, Some(name)) = (options.durability, &options.register, &options.name)
    else {
        return;
    };
    let (promised, kept) = (copies.saturating_sub(1), addresses.len().saturating_sub(1) / 2);
    let is_new = || Store::options_of(addresses, name).is_err_and(|error| error.kind() == ErrorKind::NotFound);
    if options.storage.is_none() && kept < promised && promised < addresses.len() && is_new() {
        output::complain(&format!(
            "forebay: warning: without --register the database {name:?} survives the loss of {kept} of its {} memory nodes, not \
             of {promised}: more than half must be there to open it. Name a register, or more memory nodes",
            addresses.len()
        ));
    }
}

/// Warns when a database that was just opened has fewer copies than it should.
pub fn warn_of_missing_copies(store: &Store) {
    let missing = store.missing_copies();
    if missing > 0 {
        output::complain(&format!(
            "forebay: warning: {missing} copies of shards are missing: memory nodes that had them were not named or not reached. A process \
             that has the database open makes them again, on those of the nodes of its --memory that hold none; until then it survives \
             fewer losses"
        ));
    }
}

impl DurabilityArguments {
    /// Places the database in `directory`, unless a flag says where it is or what its writes survive.
    pub fn or_in(&mut self, directory: &str) {
        if self.path.is_none() && self.db.is_none() && self.storage.is_none() && self.durability.is_none() {
            self.path = Some(directory.into());
        }
    }

    /// Checks that the flags fit together, and fit these memory nodes.
    ///
    /// # Errors
    /// Usage.
    pub fn check(&self, memory: &NodeAddresses) -> Result<(), Failure> {
        if self.db.is_some() && self.storage.is_none() && memory.is_local() {
            return Err(Failure::usage(
                "--db names a database on memory nodes of other processes, or in storage: say where it lies with --memory or \
                 --storage. Without them it would end with this process",
            ));
        }
        match self.durability.map(|durability| durability.0) {
            Some(Durability::Storage(_)) if !self.has_storage() => Err(Failure::usage(
                "--durability=storage=... is for a database in storage: say where it lies with --path or --storage",
            )),
            Some(Durability::Memory { .. }) if self.path.is_none() && self.name().is_none() => Err(Failure::usage(
                "--durability=memory is for a database that outlives this process: name it with --db, on the nodes of \
                 --memory",
            )),
            _ => Ok(()),
        }
    }

    /// Checks that the database will still exist when the command has ended.
    ///
    /// # Errors
    /// Usage.
    pub fn check_lasting(&self, memory: &NodeAddresses) -> Result<(), Failure> {
        let ends = |named: &Option<NamedStorage>| named.as_ref().is_some_and(NamedStorage::ends_with_process);
        let ended =
            [("--storage", &self.storage), ("--register", &self.register)].into_iter().find(|(_, named)| ends(named));
        match ended {
            Some((flag, _)) => Err(Failure::usage(format_args!("{flag}: {ENDS}"))),
            None if !self.has_storage() && (memory.is_local() || self.db.is_none()) => Err(Failure::usage(
                "say which database: --path DIRECTORY, --storage URL, or --memory ADDRESS and --db NAME. Without, it ends with \
                 this command",
            )),
            None => Ok(()),
        }
    }

    /// Returns the database's directory, if a flag names one; then the database has no name and no storage.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The database's name.
    pub fn name(&self) -> Option<String> {
        self.db.clone().or_else(|| self.storage.as_ref().map(|_| DEFAULT_NAME.to_owned()))
    }

    /// Whether the database is in storage: that of its directory, or another one.
    pub fn has_storage(&self) -> bool {
        self.path.is_some() || self.storage.is_some()
    }

    /// Returns the storage in which the database is, or will be, if that storage exists.
    pub fn found_storage(&self) -> Option<Storage> {
        match (&self.path, &self.storage) {
            (Some(path), _) => named_directory(&path.to_string_lossy()).ok()?.found(),
            (None, storage) => storage.as_ref()?.found(),
        }
    }

    /// Checks options of a database in the place that the flags name, before anything there is opened.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn check_options(&self, options: &Options) -> Result<(), forebay::Error> {
        let stand_in =
            |is_named: bool| is_named.then(|| Storage::open("memory:", StorageOptions::default())).transpose();
        let storage = stand_in(self.has_storage()).map_err(EngineError::from)?;
        let register = stand_in(self.register.is_some()).map_err(EngineError::from)?;
        let name = options.name.clone().or_else(|| self.path.as_ref().map(|_| DEFAULT_NAME.to_owned()));
        Ok(Options { name, storage, register, ..options.clone() }.check()?)
    }

    /// Checks the options, and sets their storage to the one that the flags name. Where a database may be created, a
    /// directory is created too.
    ///
    /// # Errors
    /// Those of the options, and of the storage.
    pub fn opened(&self, options: Options) -> Result<Options, forebay::Error> {
        self.check_options(&options)?;
        let open = if options.create_if_missing { NamedStorage::open } else { NamedStorage::open_existing };
        let storage = self.storage.as_ref().map(|storage| open(storage, "--storage")).transpose()?;
        let register = self.register.as_ref().map(|register| open(register, "--register")).transpose()?;
        Ok(Options { storage, register, ..options })
    }

    /// Returns what the database's writes survive.
    pub fn durability(&self) -> Durability {
        match (&self.durability, &self.path, &self.storage) {
            (Some(durability), ..) => durability.0,
            (None, Some(_), _) => DirectoryOptions::default().database.durability,
            (None, None, Some(_)) => Durability::Storage(Syncing::Sync),
            (None, None, None) => Durability::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn durabilities_have_names() {
        let of = |text: &str| text.parse::<DurabilityArgument>().map(|found| found.0);
        assert_eq!(of("none"), Ok(Durability::None));
        assert_eq!(of("memory"), Ok(Durability::Memory { copies: 1 }));
        assert_eq!(of("memory=2"), Ok(Durability::Memory { copies: 2 }));
        assert_eq!(of("storage=sync"), Ok(Durability::Storage(Syncing::Sync)));
        assert_eq!(of("storage=flush"), Ok(Durability::Storage(Syncing::Flush)));
        let second = Durability::Storage(Syncing::Interval(Duration::from_secs(1)));
        assert_eq!(of("storage=interval:1s"), Ok(second));
        for bad in
            ["", "storage", "storage=", "storage=interval", "storage=interval:1", "memory=1x", "memory=0", "disk"]
        {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
