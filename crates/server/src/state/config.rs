//! Parameters that `CONFIG GET` shows and `CONFIG SET` changes.
//!
//! Parameters without effect here are shown because tools ask for them, with the value that says so, and cannot be
//! changed.

use crate::keyspace::events::Wanted;
use crate::state::clients;
use crate::text::{number, pattern};
use bytes::Bytes;
use forebay_env::sync::{Mutex, RwLock, lock};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, PoisonError};

/// How a parameter can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// It cannot change.
    Never,
    /// To a number within these limits.
    Number(i64, i64),
    /// To a number of clients that the system allows.
    Clients,
    /// To letters of events.
    Events,
    /// To yes or no.
    Switch,
    /// To any text.
    Text,
}

/// A parameter: its name, its value at first, how it can change.
type Parameter = (&'static str, &'static str, Change);

/// The largest string: an engine's value has at most 64 MiB.
pub const MAX_BULK_BYTES: i64 = (64 << 20) - 64;

const PARAMETERS: &[Parameter] = &[
    ("aclfile", "", Change::Never),
    ("acllog-max-len", "128", Change::Number(0, 1 << 20)),
    ("appendfsync", "no", Change::Never),
    ("appendonly", "no", Change::Never),
    ("bind", "127.0.0.1", Change::Never),
    ("busy-reply-threshold", "5000", Change::Number(0, i64::MAX)),
    (
        "client-output-buffer-limit",
        // The limit for bytes that clients did not ask for: `MAX_UNASKED_BYTES`.
        "normal 33554432 0 0 slave 0 0 0 pubsub 33554432 0 0",
        Change::Never,
    ),
    ("cluster-enabled", "no", Change::Never),
    ("databases", "16", Change::Never),
    ("dir", "/", Change::Never),
    ("hash-max-listpack-entries", "512", Change::Number(0, i64::MAX)),
    ("hash-max-listpack-value", "64", Change::Never),
    ("hll-sparse-max-bytes", "3000", Change::Number(0, i64::MAX)),
    ("latency-monitor-threshold", "0", Change::Number(0, i64::MAX)),
    ("list-max-listpack-size", "-2", Change::Never),
    ("maxclients", "10000", Change::Clients),
    ("maxmemory", "0", Change::Never),
    ("maxmemory-policy", "noeviction", Change::Never),
    ("notify-keyspace-events", "", Change::Events),
    ("port", "6379", Change::Never),
    ("protected-mode", "yes", Change::Never),
    ("proto-max-bulk-len", "67108800", Change::Number(1 << 20, MAX_BULK_BYTES)),
    ("requirepass", "", Change::Text),
    ("save", "", Change::Never),
    ("set-max-intset-entries", "512", Change::Never),
    ("slowlog-log-slower-than", "10000", Change::Number(-1, i64::MAX)),
    ("slowlog-max-len", "128", Change::Number(0, 1 << 20)),
    ("tcp-keepalive", "300", Change::Number(0, i32::MAX as i64)),
    ("timeout", "0", Change::Number(0, i32::MAX as i64)),
    (TLS_CLUSTER, "no", Change::Switch),
    ("tls-port", "0", Change::Never),
    ("tracking-table-max-keys", "1000000", Change::Number(0, i64::MAX)),
    ("zset-max-listpack-entries", "128", Change::Number(0, i64::MAX)),
    ("zset-max-listpack-value", "64", Change::Never),
];

/// The parameter that says whether keys move to other servers within TLS.
pub const TLS_CLUSTER: &str = "tls-cluster";
/// Why it cannot say so.
pub const NO_TLS_TO_OTHERS: &str = "the server speaks no TLS to others: it needs a certificate, and the authority of \
                                    theirs (--tls-listen-certificate, --tls-listen-client-authority)";

/// The parameter that is a secret.
const PASSWORD: &str = "requirepass";

/// Older names of parameters.
const OLD_NAMES: &[(&str, &str)] = &[("lua-time-limit", "busy-reply-threshold")];

/// A file that keeps parameters, for `CONFIG REWRITE`.
pub trait ConfigFile: std::fmt::Debug + Send + Sync {
    /// Returns where the file is.
    fn path(&self) -> &Path;

    /// Writes these parameters with these values into the file, which otherwise stays unchanged.
    ///
    /// # Errors
    /// Why it cannot be written; then the file is unchanged.
    fn keep(&self, parameters: &[(&str, &[u8])]) -> Result<(), String>;
}

/// The parameters of a server.
#[derive(Debug)]
pub struct Config {
    values: RwLock<BTreeMap<&'static str, Bytes>>,
    /// Changed parameters that are not in the file yet.
    changed: Mutex<BTreeSet<&'static str>>,
    file: Option<Arc<dyn ConfigFile>>,
    max_bulk_bytes: AtomicI64,
    slow_us: AtomicI64,
    latency_ms: AtomicI64,
    events: AtomicU32,
}

impl Default for Config {
    fn default() -> Self {
        let values = PARAMETERS.iter().map(|(name, value, _)| (*name, Bytes::from_static(value.as_bytes())));
        Self {
            values: RwLock::new(values.collect()),
            changed: Mutex::default(),
            file: None,
            max_bulk_bytes: AtomicI64::new(MAX_BULK_BYTES),
            slow_us: AtomicI64::new(10_000),
            latency_ms: AtomicI64::new(0),
            events: AtomicU32::new(0),
        }
    }
}

impl Config {
    /// The value of a parameter.
    #[must_use]
    pub fn get(&self, name: &str) -> Bytes {
        self.values.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned().unwrap_or_default()
    }

    /// The value of a parameter that is a number.
    #[must_use]
    pub fn number(&self, name: &str) -> i64 {
        number::integer(&self.get(name)).unwrap_or(0)
    }

    /// The parameter `proto-max-bulk-len`, which is asked for often.
    #[must_use]
    pub fn max_bulk_bytes(&self) -> i64 {
        self.max_bulk_bytes.load(Ordering::Relaxed)
    }

    /// The parameter `latency-monitor-threshold`, in milliseconds, which is asked for often.
    #[must_use]
    pub fn latency_ms(&self) -> i64 {
        self.latency_ms.load(Ordering::Relaxed)
    }

    /// The parameter `slowlog-log-slower-than`, in microseconds, which is asked for often.
    #[must_use]
    pub fn slow_us(&self) -> i64 {
        self.slow_us.load(Ordering::Relaxed)
    }

    /// The parameter `notify-keyspace-events`, which is asked for often.
    #[must_use]
    pub fn events(&self) -> Wanted {
        Wanted::from_bits(self.events.load(Ordering::Relaxed))
    }

    /// The parameters whose names match a pattern, with their values.
    #[must_use]
    pub fn matching(&self, wanted: &[u8]) -> Vec<(&'static str, Bytes)> {
        let values = self.values.read().unwrap_or_else(PoisonError::into_inner);
        let old = OLD_NAMES.iter().filter_map(|(old, name)| values.get(name).map(|value| (old, value)));
        let chosen = values.iter().chain(old).filter(|(name, _)| pattern::matches_any_case(wanted, name.as_bytes()));
        chosen.map(|(name, value)| (*name, value.clone())).collect()
    }

    /// Sets any parameter before the server starts.
    pub fn set_at_start(&self, name: &'static str, value: impl Into<Bytes>) {
        self.values.write().unwrap_or_else(PoisonError::into_inner).insert(name, value.into());
    }

    /// Sets the file that keeps parameters.
    pub fn keep_in(&mut self, file: Option<Arc<dyn ConfigFile>>) {
        self.file = file;
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.file.as_deref().map(ConfigFile::path)
    }

    /// Writes the changed parameters into the file.
    ///
    /// # Errors
    /// The text of the reply: there is no file, or it cannot be written; or a password was changed, which would be in
    /// it in clear text.
    pub fn rewrite(&self) -> Result<(), String> {
        let file = self.file.as_ref().ok_or("The server is running without a config file")?;
        let mut changed = lock(&self.changed);
        if changed.contains(PASSWORD) {
            return Err(format!(
                "Rewriting config file: {PASSWORD} is a secret: the file that --password-file names is for it"
            ));
        }
        let values: Vec<_> = changed.iter().map(|name| (*name, self.get(name))).collect();
        let values: Vec<(&str, &[u8])> = values.iter().map(|(name, value)| (*name, &value[..])).collect();
        file.keep(&values).map_err(|why| format!("Rewriting config file: {why}"))?;
        changed.clear();
        Ok(())
    }

    /// Changes parameters before the server starts, as [`Config::set`], and assumes that the file has these values.
    ///
    /// # Errors
    /// Those of [`Config::set`]; a parameter that is a secret.
    pub fn begin_with(&self, parameters: &[(String, String)]) -> Result<(), String> {
        for (name, value) in parameters {
            if name.eq_ignore_ascii_case(PASSWORD) {
                return Err(format!("{PASSWORD} is a secret: --password-file names a file with it"));
            }
            self.set(&[(name.as_bytes(), value.as_bytes())])?;
        }
        lock(&self.changed).clear();
        Ok(())
    }

    /// Changes parameters, all of them or none.
    ///
    /// # Errors
    /// The name and the reason for the first one that cannot have its value.
    pub fn set(&self, changes: &[(&[u8], &[u8])]) -> Result<(), String> {
        let failed =
            |name: &str, why: &str| format!("CONFIG SET failed (possibly related to argument '{name}') - {why}");
        // All names are looked at before the first value, as in Redis.
        let mut named: Vec<(&str, Change, &[u8])> = Vec::with_capacity(changes.len());
        for (name, value) in changes {
            let old = OLD_NAMES.iter().find(|(old, _)| old.as_bytes().eq_ignore_ascii_case(name));
            let current = old.map_or(*name, |(_, name)| name.as_bytes());
            let known = PARAMETERS.iter().find(|known| known.0.as_bytes().eq_ignore_ascii_case(current));
            let Some((name, _, change)) = known else {
                return Err(format!(
                    "Unknown option or number of arguments for CONFIG SET - '{}'",
                    crate::text::shown::short(name, 128)
                ));
            };
            if matches!(change, Change::Never) {
                return Err(failed(name, "can't set immutable config"));
            }
            if named.iter().any(|(other, ..)| other == name) {
                return Err(failed(name, "duplicate parameter"));
            }
            named.push((*name, *change, *value));
        }
        let mut checked = Vec::with_capacity(named.len());
        for (name, change, value) in named {
            check(change, value).map_err(|why| failed(name, &why))?;
            checked.push((name, shown(change, value)));
        }
        let mut changed = lock(&self.changed);
        let mut values = self.values.write().unwrap_or_else(PoisonError::into_inner);
        for (name, value) in checked {
            if values.insert(name, value.clone()).as_ref() != Some(&value) {
                changed.insert(name);
            }
        }
        drop(values);
        // Nobody else sets parameters before these are like them: `changed` is still locked.
        self.max_bulk_bytes.store(self.number("proto-max-bulk-len"), Ordering::Relaxed);
        self.slow_us.store(self.number("slowlog-log-slower-than"), Ordering::Relaxed);
        self.latency_ms.store(self.number("latency-monitor-threshold"), Ordering::Relaxed);
        let events = Wanted::parse(&self.get("notify-keyspace-events")).unwrap_or_default();
        self.events.store(events.bits(), Ordering::Relaxed);
        drop(changed);
        Ok(())
    }
}

/// The value as it is shown.
fn shown(change: Change, value: &[u8]) -> Bytes {
    match change {
        Change::Events => Wanted::parse(value).unwrap_or_default().letters().into(),
        Change::Switch => value.to_ascii_lowercase().into(),
        _ => Bytes::copy_from_slice(value),
    }
}

fn check(change: Change, value: &[u8]) -> Result<(), String> {
    match change {
        // The name of one that never changes is refused before.
        Change::Never | Change::Text => Ok(()),
        Change::Switch if [&b"yes"[..], b"no"].iter().any(|known| known.eq_ignore_ascii_case(value)) => Ok(()),
        Change::Switch => Err("argument must be 'yes' or 'no'".into()),
        Change::Events if Wanted::parse(value).is_some() => Ok(()),
        Change::Events => Err("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".into()),
        Change::Clients => {
            check(Change::Number(1, u32::MAX.into()), value)?;
            let wanted = number::unsigned(value).unwrap_or(0);
            let possible = clients::possible(wanted);
            if possible < wanted {
                return Err(format!(
                    "The operating system is not able to handle the specified number of clients, try with {possible}"
                ));
            }
            Ok(())
        }
        Change::Number(least, most) => match number::integer(value) {
            None => Err("argument couldn't be parsed into an integer".into()),
            Some(number) if number < least || number > most => {
                Err(format!("argument must be between {least} and {most} inclusive"))
            }
            Some(_) => Ok(()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_change_together_or_not_at_all() {
        let config = Config::default();
        let names: Vec<_> = PARAMETERS.iter().map(|parameter| parameter.0).collect();
        assert!(names.is_sorted());
        let limits = config.get("client-output-buffer-limit");
        let limits = std::str::from_utf8(&limits).unwrap();
        assert_eq!(limits.matches(&format!(" {} 0 0", clients::MAX_UNASKED_BYTES)).count(), 2, "{limits}");
        config.set(&[(b"Timeout", b"5"), (b"requirepass", b"x")]).unwrap();
        assert_eq!((config.number("timeout"), &config.get("requirepass")[..]), (5, &b"x"[..]));
        for (name, value, why) in [
            ("nothing", "1", "Unknown option"),
            ("port", "1", "immutable"),
            ("latency-monitor-threshold", "-1", "between 0 and"),
            ("list-max-listpack-size", "1", "immutable"),
            ("set-max-intset-entries", "1", "immutable"),
            ("hash-max-listpack-value", "1", "immutable"),
            ("zset-max-listpack-value", "1", "immutable"),
            ("timeout", "-1", "between 0 and"),
            ("timeout", "x", "integer"),
            ("tls-cluster", "1", "must be 'yes' or 'no'"),
            ("maxclients", "0", "between 1 and"),
            ("maxclients", "4294967295", "not able to handle"),
            ("notify-keyspace-events", "KEq", "Invalid event class"),
        ] {
            let error = config.set(&[(b"slowlog-max-len", b"9"), (name.as_bytes(), value.as_bytes())]).unwrap_err();
            assert!(error.contains(why), "{error}");
            assert_eq!(config.number("slowlog-max-len"), 128);
        }
        assert_eq!(config.matching(b"MAX*").len(), 3);
        config.set(&[(b"TLS-cluster", b"YES")]).unwrap();
        assert_eq!(config.get(TLS_CLUSTER), "yes");
        config.set(&[(b"LUA-time-limit", b"7")]).unwrap();
        assert_eq!(config.number("busy-reply-threshold"), 7);
        assert_eq!(config.matching(b"lua*"), [("lua-time-limit", Bytes::from_static(b"7"))]);
        assert!(config.set(&[(b"lua-time-limit", b"1"), (b"busy-reply-threshold", b"2")]).is_err());
        // What is wrong with a name comes before what is wrong with a value.
        for (name, why) in [("timeout", "duplicate"), ("port", "immutable"), ("nothing", "Unknown option")] {
            let error = config.set(&[(b"timeout", b"x"), (name.as_bytes(), b"0")]).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn what_threads_set_at_once_is_the_same_wherever_it_is_asked_for() {
        let (config, together) = (Config::default(), std::sync::Barrier::new(2));
        // Each one counts what differs, and continues: the other one would wait forever for a thread that has failed.
        let set = |value: &[u8]| {
            let differs = |_: &u32| {
                together.wait();
                config.set(&[(b"slowlog-log-slower-than", value)]).unwrap();
                together.wait();
                config.slow_us() != config.number("slowlog-log-slower-than")
            };
            (0..2000_u32).filter(differs).count()
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(|| set(b"1"));
            assert_eq!((set(b"2"), other.join().unwrap()), (0, 0));
        });
    }

    /// A file that keeps what it is given, or fails.
    #[derive(Debug, Default)]
    struct Kept(Mutex<Vec<(String, Vec<u8>)>>);

    impl ConfigFile for Kept {
        fn path(&self) -> &Path {
            Path::new("/kept")
        }

        fn keep(&self, parameters: &[(&str, &[u8])]) -> Result<(), String> {
            if parameters.iter().any(|(_, value)| *value == b"13") {
                return Err("No space left on device".to_owned());
            }
            lock(&self.0).extend(parameters.iter().map(|(name, value)| ((*name).to_owned(), value.to_vec())));
            Ok(())
        }
    }

    #[test]
    fn what_was_changed_is_kept_in_the_file() {
        let mut config = Config::default();
        assert_eq!(config.rewrite().unwrap_err(), "The server is running without a config file");
        let kept = Arc::new(Kept::default());
        config.keep_in(Some(Arc::clone(&kept) as _));
        let begun =
            [("timeout", "7"), ("acllog-max-len", "9")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        config.begin_with(&begun).unwrap();
        assert!(config.begin_with(&[("timeout".to_owned(), "x".to_owned())]).is_err());
        assert!(config.begin_with(&[(PASSWORD.to_owned(), "x".to_owned())]).unwrap_err().contains("secret"));
        config.rewrite().unwrap();
        assert!(lock(&kept.0).is_empty());
        config.set(&[(b"timeout", b"13"), (b"acllog-max-len", b"9")]).unwrap();
        assert_eq!(config.rewrite().unwrap_err(), "Rewriting config file: No space left on device");
        config.set(&[(b"timeout", b"14")]).unwrap();
        config.rewrite().unwrap();
        assert_eq!(*lock(&kept.0), [("timeout".to_owned(), b"14".to_vec())]);
        config.set(&[(b"requirepass", b"x")]).unwrap();
        assert!(config.rewrite().unwrap_err().contains("secret"));
    }
}
