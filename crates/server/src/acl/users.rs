//! All users, and the file that holds them.
//!
//! The file has a line for each user: `user`, its name, and the words that describe it in full.

use crate::acl::catalogue::Catalogue;
use crate::acl::denials::Denials;
use crate::acl::modifiers::{apply, describe, empty_selector, join};
use crate::acl::user::{Rules, User, digest_of};
use crate::file::replace_file;
use bytes::Bytes;
use forebay_env::sync::{Mutex, lock};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Largest file of users, bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// The user of connections that have not logged in.
pub const DEFAULT: &[u8] = b"default";

const SPACES: &str = "Usernames can't contain spaces or null characters";

/// All users.
#[derive(Debug)]
pub struct Users {
    catalogue: Catalogue,
    default: Arc<User>,
    users: Mutex<BTreeMap<Bytes, Arc<User>>>,
    file: Option<PathBuf>,
    /// Only one thread writes the file at a time.
    saving: Mutex<()>,
    /// What was denied lately.
    pub denials: Denials,
}

/// Rules of the users that are to exist, by their names.
type Defined = BTreeMap<Bytes, Rules>;

impl Users {
    /// Begins with the user `default` alone, who may do everything without a password; if there is a file, with the
    /// file's users.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn new(catalogue: Catalogue, file: Option<PathBuf>) -> Result<Self, String> {
        let default = Arc::new(User::new(Bytes::from_static(DEFAULT), everything(&catalogue)));
        let users = Mutex::new(BTreeMap::from([(default.name().clone(), Arc::clone(&default))]));
        let users = Self { catalogue, default, users, file, saving: Mutex::new(()), denials: Denials::default() };
        if users.file.is_some() {
            users.load()?;
        }
        Ok(users)
    }

    /// The names of all commands.
    #[must_use]
    pub const fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// The user of connections that have not logged in.
    #[must_use]
    pub const fn default(&self) -> &Arc<User> {
        &self.default
    }

    /// Returns the user of a new connection, if no password is needed.
    #[must_use]
    pub fn anonymous(&self) -> Option<Arc<User>> {
        let rules = self.default.rules();
        (rules.is_on && rules.has_no_password).then(|| Arc::clone(&self.default))
    }

    /// A user.
    pub fn find(&self, name: &[u8]) -> Option<Arc<User>> {
        lock(&self.users).get(name).cloned()
    }

    /// Whether this user exists, and was not deleted.
    pub fn has(&self, user: &Arc<User>) -> bool {
        self.find(user.name()).is_some_and(|found| Arc::ptr_eq(&found, user))
    }

    /// All users, by their names.
    pub fn all(&self) -> Vec<Arc<User>> {
        lock(&self.users).values().cloned().collect()
    }

    /// Returns the user of this name, if the password is right and the user may log in. An unknown name takes about as
    /// long.
    #[must_use]
    pub fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        match self.find(name) {
            Some(user) => user.rules().admit(password).then_some(user),
            None => {
                let _ = Rules::default().admit(password);
                None
            }
        }
    }

    /// Changes or adds a user. Either all of these words take effect or none.
    ///
    /// # Errors
    /// What is wrong.
    pub fn set(&self, name: &[u8], words: &[&[u8]]) -> Result<Arc<User>, String> {
        let mut users = lock(&self.users);
        let known = users.get(name).cloned();
        let rules = known.as_ref().map(|user| (*user.rules()).clone());
        let rules = self.changed(name, rules, words)?;
        match known {
            Some(user) => {
                user.set(rules);
                Ok(user)
            }
            None => {
                let name = Bytes::copy_from_slice(name);
                let user = Arc::new(User::new(name.clone(), rules));
                users.insert(name, Arc::clone(&user));
                Ok(user)
            }
        }
    }

    /// The rules of a user after these words.
    fn changed(&self, name: &[u8], rules: Option<Rules>, words: &[&[u8]]) -> Result<Rules, String> {
        if name.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0) {
            return Err(SPACES.to_owned());
        }
        let mut rules = rules.unwrap_or_else(|| nothing(&self.catalogue));
        for word in join(words)? {
            apply(&mut rules, &self.catalogue, &word).map_err(|why| {
                let word = crate::text::shown::short(&word, 128);
                format!("Error in ACL SETUSER modifier '{word}': {why}")
            })?;
        }
        Ok(rules)
    }

    /// Removes a user.
    pub fn remove(&self, name: &[u8]) -> Option<Arc<User>> {
        lock(&self.users).remove(name)
    }

    /// Gives the user `default` this password alone. With an empty one, it has no password.
    pub fn set_default_password(&self, password: &[u8]) {
        // Otherwise another change of the user at the same time might be lost.
        let _users = lock(&self.users);
        let mut rules = (*self.default.rules()).clone();
        rules.has_no_password = password.is_empty();
        rules.passwords = if password.is_empty() { Vec::new() } else { vec![digest_of(password)] };
        self.default.set(rules);
    }

    /// Whether there is a file.
    #[must_use]
    pub const fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Reads the file: afterwards there are the file's users and no others. Returns the users that are gone.
    ///
    /// # Errors
    /// What is wrong with the file; then nothing changes.
    pub fn load(&self) -> Result<Vec<Arc<User>>, String> {
        let Some(path) = &self.file else { return Ok(Vec::new()) };
        let mut defined = self.read(path)?;
        let mut users = lock(&self.users);
        // The user `default` may have been given a password outside of the file.
        if let Some(default) = defined.remove(DEFAULT) {
            self.default.set(default);
        }
        let mut gone = Vec::new();
        users.retain(|name, user| {
            let stays = &name[..] == DEFAULT || defined.contains_key(name);
            if !stays {
                gone.push(Arc::clone(user));
            }
            stays
        });
        for (name, rules) in defined {
            match users.get(&name) {
                Some(user) => user.set(rules),
                None => {
                    users.insert(name.clone(), Arc::new(User::new(name, rules)));
                }
            }
        }
        Ok(gone)
    }

    fn read(&self, path: &Path) -> Result<Defined, String> {
        let shown = path.display();
        let mut text = Vec::new();
        let file = File::open(path).map_err(|error| format!("{shown}: {error}"))?;
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut text).map_err(|error| format!("{shown}: {error}"))?;
        if text.len() as u64 > MAX_FILE_BYTES {
            return Err(format!("{shown}: it is larger than {MAX_FILE_BYTES} bytes"));
        }
        let mut defined = Defined::new();
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let refuse = |why: &str| format!("{shown}:{number}: {why}");
            let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect::<Vec<_>>();
            let (name, words) = match words.as_slice() {
                [] => continue,
                [first, ..] if first.starts_with(b"#") => continue,
                [b"user", name, words @ ..] => (*name, words),
                _ => return Err(refuse("a line is: user, its name, and what it may do")),
            };
            let rules = self.changed(name, None, words).map_err(|why| refuse(&why))?;
            if defined.insert(Bytes::copy_from_slice(name), rules).is_some() {
                return Err(refuse("the user is there twice"));
            }
        }
        Ok(defined)
    }

    /// The line of each user.
    pub fn lines(&self) -> Vec<Vec<u8>> {
        let line = |user: Arc<User>| [b"user ", &user.name()[..], b" ", &describe(&user.rules())].concat();
        self.all().into_iter().map(line).collect()
    }

    /// Writes the file anew. Whatever fails, the file holds either its old contents or all users.
    ///
    /// # Errors
    /// Those of the system.
    pub fn save(&self) -> std::io::Result<()> {
        let Some(path) = &self.file else { return Ok(()) };
        let _saving = lock(&self.saving);
        let mut lines = self.lines();
        lines.iter_mut().for_each(|line| line.push(b'\n'));
        replace_file(path, &lines.concat(), 0o600)
    }
}

fn nothing(catalogue: &Catalogue) -> Rules {
    Rules { root: empty_selector(catalogue), ..Rules::default() }
}

fn everything(catalogue: &Catalogue) -> Rules {
    let mut rules = Rules { is_on: true, has_no_password: true, ..nothing(catalogue) };
    rules.root.set_all_commands(catalogue, true);
    rules.root.all_keys = true;
    rules.root.all_channels = true;
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_the_default_user_at_the_same_time_are_all_made() {
        const COUNT: usize = 2000;
        let users = Users::new(Catalogue::new([("get", vec!["read"])]), None).unwrap();
        users.set(DEFAULT, &[b"resetkeys"]).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..COUNT).for_each(|_| users.set_default_password(b"secret")));
            for number in 0..COUNT {
                users.set(DEFAULT, &[format!("~{number}").as_bytes()]).unwrap();
            }
        });
        assert_eq!(users.default().rules().root.keys.len(), COUNT);
    }

    /// Otherwise one of them would empty the file to which another gives its name.
    #[test]
    fn users_are_saved_by_one_thread_at_a_time() {
        const COUNT: usize = 20;
        let path = std::env::temp_dir().join(format!("forebay-users-{}", std::process::id()));
        std::fs::write(&path, "user u on nopass +get\n").unwrap();
        let users = Users::new(Catalogue::new([("get", vec!["read"])]), Some(path.clone())).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..COUNT).for_each(|_| users.save().unwrap()));
            }
        });
        assert_eq!(std::fs::read(&path).unwrap(), [&users.lines().join(&b'\n')[..], b"\n"].concat());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_deleted_user_is_not_there_even_if_another_has_its_name() {
        let users = Users::new(Catalogue::new([("get", vec!["read"])]), None).unwrap();
        let user = users.set(b"u", &[b"on", &b"nopass"[..]]).unwrap();
        assert!(users.has(&user) && users.has(users.default()));
        assert!(users.remove(b"u").is_some() && !users.has(&user));
        let other = users.set(b"u", &[b"on"]).unwrap();
        assert!(users.has(&other) && !users.has(&user));
    }
}
