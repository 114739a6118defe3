//! Names on the command line: an invalid name is refused before anything is done.

use forebay::{Db, Keyspaces, Options};

fn checked(text: &str, checked: Result<(), forebay::EngineError>) -> Result<String, String> {
    checked.map(|()| text.to_owned()).map_err(|error| error.to_string())
}

/// The name of a database.
///
/// # Errors
/// A text that says what a name is.
pub fn database(text: &str) -> Result<String, String> {
    checked(text, Options::check_name(text))
}

/// The name of a checkpoint in storage.
///
/// # Errors
/// As [`database`].
pub fn checkpoint(text: &str) -> Result<String, String> {
    checked(text, Db::check_checkpoint_name(text))
}

/// The name of a keyspace.
///
/// # Errors
/// As [`database`].
pub fn keyspace(text: &str) -> Result<String, String> {
    checked(text, Keyspaces::check_name(text))
}
