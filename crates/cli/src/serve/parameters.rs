//! Parameters of `CONFIG SET`: as options, and in the file of options, which `CONFIG REWRITE` changes.
//!
//! The file has them in a table of its own, `[parameters]`, with their names and values. Only changed values are
//! written anew; the rest of the file stays as it is, to the byte.

use crate::configuration::{PARAMETERS, written};
use forebay_env::sync::{Mutex, lock};
use forebay_server::{ConfigFile, replace_file};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A parameter and its value.
#[derive(Debug, Clone)]
pub struct Parameter(pub String, pub String);

impl FromStr for Parameter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').ok_or("NAME=VALUE")?;
        Ok(Self(name.to_owned(), value.to_owned()))
    }
}

/// A TOML file that keeps parameters.
#[derive(Debug)]
pub struct ParameterFile {
    path: PathBuf,
    /// Only one thread writes the file at a time.
    writing: Mutex<()>,
}

impl ParameterFile {
    /// Names the file at this path.
    pub const fn new(path: PathBuf) -> Self {
        Self { path, writing: Mutex::new(()) }
    }

    fn replace(&self, text: &str) -> std::io::Result<()> {
        // A symbolic link stays one.
        let path = self.path.canonicalize()?;
        let mode = std::fs::metadata(&path)?.permissions().mode();
        replace_file(&path, text.as_bytes(), mode)
    }
}

impl ConfigFile for ParameterFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn keep(&self, parameters: &[(&str, &[u8])]) -> Result<(), String> {
        let _writing = lock(&self.writing);
        let text = std::fs::read_to_string(&self.path).map_err(|error| error.to_string())?;
        let mut changed = text.clone();
        for (name, value) in parameters {
            let value = std::str::from_utf8(value).map_err(|_| format!("the value of {name} is no UTF-8"))?;
            changed = with(&changed, name, value)?;
        }
        if changed == text { Ok(()) } else { self.replace(&changed).map_err(|error| error.to_string()) }
    }
}

/// Returns the file's text with this value of the parameter, and everything else unchanged.
fn with(text: &str, name: &str, value: &str) -> Result<String, String> {
    let line = format!("{name} = {}", written(value));
    let file = DeTable::parse(text).map_err(|error| error.message().to_owned())?;
    let Some((key, parameters)) = file.get_ref().get_key_value(PARAMETERS) else {
        let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        let space = if text.is_empty() { "" } else { "\n" };
        return Ok(format!("{text}{end}{space}[{PARAMETERS}]\n{line}\n"));
    };
    let DeValue::Table(parameters) = parameters.get_ref() else { return Err(format!("{PARAMETERS} is no table")) };
    let found = parameters.iter().find(|(key, _)| key.get_ref().replace('_', "-").eq_ignore_ascii_case(name));
    if let Some((_, value_before)) = found {
        let place = value_before.span();
        let (before, after) = text.get(..place.start).zip(text.get(place.end..)).ok_or("a value is out of place")?;
        return Ok(format!("{before}{}{after}", written(value)));
    }
    // The new line comes after the last parameter, or else after the table's own line.
    let last = parameters.values().map(|value| value.span().end).chain([key.span().end]).max().unwrap_or(0);
    let rest = text.get(last..).unwrap_or_default();
    let (before, after) = text.split_at(last + rest.find('\n').unwrap_or(rest.len()));
    let changed = format!("{before}\n{line}{after}");
    // An inline table, or one of dotted keys, has no place for another line.
    let has = |file: Spanned<DeTable<'_>>| Some(file.get_ref().get(PARAMETERS)?.get_ref().get(name).is_some());
    match DeTable::parse(&changed).ok().and_then(has) {
        Some(true) => Ok(changed),
        _ => Err(format!("{PARAMETERS} is a table within a line: write it as [{PARAMETERS}]")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_was_changed_and_the_rest_stays() {
        for (before, after) in [
            ("", "[parameters]\ntimeout = 5\n"),
            ("threads = 2 # two", "threads = 2 # two\n\n[parameters]\ntimeout = 5\n"),
            (
                "# Mine.\nthreads = 2\n\n[parameters] # all\ntimeout = 300 # seconds\nother = 'x'\n",
                "# Mine.\nthreads = 2\n\n[parameters] # all\ntimeout = 5 # seconds\nother = 'x'\n",
            ),
            ("[parameters] # none\n", "[parameters] # none\ntimeout = 5\n"),
            ("[parameters]\nb = 1 # b\n\n# The end.\n", "[parameters]\nb = 1 # b\ntimeout = 5\n\n# The end.\n"),
            ("parameters.timeout = \"3\"\nthreads = 1\n", "parameters.timeout = 5\nthreads = 1\n"),
        ] {
            assert_eq!(with(before, "timeout", "5").as_deref(), Ok(after));
        }
        assert_eq!(
            with("", "notify-keyspace-events", "AK\"").as_deref(),
            Ok("[parameters]\nnotify-keyspace-events = \"AK\\\"\"\n")
        );
        for (broken, why) in [
            ("threads = ", "string values must be quoted"),
            ("parameters = 3", "no table"),
            ("parameters = { b = 1 }", "within a line"),
            ("parameters.b = 1\n", "within a line"),
        ] {
            let error = with(broken, "timeout", "5").unwrap_err();
            assert!(error.contains(why) || broken.starts_with("threads"), "{error}");
        }
    }
}
