//! Options of a command from a file and from variables, beside flags.
//!
//! A flag comes before its variable, and a variable before the file. A value from a file or a variable alone becomes a
//! flag in front of the given flags, so that the command line's parser checks all values alike. An error then names the
//! place that the value came from.
//!
//! ```text
//!   flag  --max-background-jobs   variable  FOREBAY_MAX_BACKGROUND_JOBS   key of the file  max-background-jobs
//! ```
//!
//! The file has parameters in a table, one key for each. A flag for one parameter leaves the others as they are.

use crate::access;
use crate::failure::Failure;
use clap::error::{ContextKind, ContextValue};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt::{Display, Formatter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// The flag that names the file.
pub const FILE: &str = "config";
/// The flag that asks for the options in effect.
pub const CHECK: &str = "check-config";
/// The flag for a parameter, and the name of their table in the file.
pub const PARAMETER: &str = "parameter";
pub const PARAMETERS: &str = "parameters";
/// Largest file, bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The options in effect where nobody set any.
#[derive(Debug, Default)]
pub struct Usual {
    /// The values of options.
    pub values: BTreeMap<&'static str, String>,
    /// Options that have no use, because of other options.
    pub unused: BTreeSet<String>,
}

/// Where the value of an option comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Origin {
    Variable(String),
    File(PathBuf, usize),
}

impl Display for Origin {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Variable(name) => f.write_str(name),
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
        }
    }
}

/// The options from outside of the command line.
#[derive(Debug, Default)]
pub struct Configuration {
    origins: BTreeMap<String, Origin>,
    /// Options whose variables the command reads itself.
    elsewhere: BTreeMap<String, Origin>,
}

impl Configuration {
    /// Completes a command line whose second word is the command, with these options of that command.
    ///
    /// # Errors
    /// When the file cannot be read or understood, or a variable holds no text.
    pub fn complete(
        arguments: &mut Vec<OsString>,
        options: &clap::Command,
        variable: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Self, Failure> {
        let mut configuration = Self::default();
        let (given, file) = given(arguments);
        let (mut added, mut parameters) = (Vec::new(), Vec::new());
        let known = options.get_arguments().filter_map(clap::Arg::get_long).filter(|name| is_option(name));
        for name in known.filter(|name| !given.contains(*name)) {
            let Some((variable_name, value)) = set_variable(name, variable) else { continue };
            if access::FLAGS.contains(&name) {
                configuration.elsewhere.insert(name.to_owned(), Origin::Variable(variable_name));
            } else {
                added.push(flag(name, access::text(&variable_name, value)?));
                configuration.origins.insert(name.to_owned(), Origin::Variable(variable_name));
            }
        }
        let file = file.or_else(|| variable(&variable_of(FILE)).map(PathBuf::from));
        for (name, value, line) in file.as_deref().map(read).transpose()?.unwrap_or_default() {
            let Configuration { origins, elsewhere } = &mut configuration;
            let origin = Origin::File(file.clone().unwrap_or_default(), line);
            if name == PARAMETER {
                parameters.push(flag(&name, value));
                if !given.contains(&name) {
                    origins.entry(name).or_insert(origin);
                }
            } else if !given.contains(&name) && !origins.contains_key(&name) && !elsewhere.contains_key(&name) {
                added.push(flag(&name, value));
                origins.insert(name, origin);
            }
        }
        if let Some(file) = file.filter(|_| !given.contains(FILE)) {
            added.push(flag(FILE, file));
        }
        let place = arguments.len().min(2);
        // Of several values of a parameter the last one counts, and those of variables and flags come after these.
        arguments.splice(place..place, parameters.into_iter().chain(added));
        Ok(configuration)
    }

    /// Returns where a value that the parser refused came from, unless it was a flag.
    pub fn blame(&self, error: &clap::Error) -> Option<String> {
        let Some(ContextValue::String(shown)) = error.get(ContextKind::InvalidArg) else { return None };
        let name = shown.trim_start_matches('-').split([' ', '=', '[']).next()?;
        self.origins.get(name).map(ToString::to_string)
    }

    /// Returns the options in effect, as a file of this form. The values in `usual` of options that nobody set are
    /// comments: they may follow from other options. Options without a use are left out.
    pub fn describe(
        &self,
        options: &clap::Command,
        matches: &clap::ArgMatches,
        Usual { values: usual, unused }: &Usual,
    ) -> String {
        let mut text = String::new();
        for option in options.get_arguments() {
            let named = option.get_long().filter(|name| is_option(name) && !unused.contains(*name));
            let Some(name) = named else { continue };
            let id = option.get_id().as_str();
            if name == PARAMETER {
                continue;
            }
            let values = matches.get_raw(id).map(|values| {
                let values: Vec<_> = values.map(|value| value.to_string_lossy()).collect();
                values.join(",")
            });
            let origin = match (self.origins.get(name), self.elsewhere.get(name), matches.value_source(id)) {
                (Some(origin), ..) => origin.to_string(),
                (None, Some(origin), _) => {
                    let _ = writeln!(text, "# {name} is what {origin} says");
                    continue;
                }
                (None, None, Some(clap::parser::ValueSource::CommandLine)) => "flag".to_owned(),
                _ => "default".to_owned(),
            };
            let _ = match (values, usual.get(name)) {
                (Some(value), _) => writeln!(text, "{name} = {}  # {origin}", written(&value)),
                (None, Some(value)) => writeln!(text, "# {name} = {}  # {origin}", written(value)),
                (None, None) => writeln!(text, "# {name} is not set"),
            };
        }
        let parameters = matches.get_raw(PARAMETER).into_iter().flatten().map(|value| value.to_string_lossy());
        // If a parameter occurs twice, the last one counts.
        let parameters: BTreeMap<String, String> = parameters
            .filter_map(|value| value.split_once('=').map(|(name, value)| (name.to_owned(), written(value))))
            .collect();
        if !parameters.is_empty() {
            let _ = writeln!(text, "\n[{PARAMETERS}]");
        }
        parameters.iter().for_each(|(name, value)| _ = writeln!(text, "{name} = {value}"));
        text
    }
}

/// Returns a value as written in TOML.
pub fn written(value: &str) -> String {
    if matches!(value, "true" | "false") || value.parse::<i64>().is_ok_and(|number| number.to_string() == value) {
        return value.to_owned();
    }
    let mut text = String::from('"');
    for character in value.chars() {
        match character {
            '"' | '\\' => text.extend(['\\', character]),
            character if character.is_control() => {
                let _ = write!(text, "\\u{:04X}", u32::from(character));
            }
            character => text.push(character),
        }
    }
    text.push('"');
    text
}

fn flag(name: &str, value: impl AsRef<OsStr>) -> OsString {
    let mut flag = OsString::from(format!("--{name}="));
    flag.push(value);
    flag
}

/// Whether a flag is an option that a file may have.
fn is_option(name: &str) -> bool {
    !matches!(name, FILE | CHECK | "help")
}

/// The variable of a flag. `FOREBAY_LOG` says what is logged, for every command.
fn variable_of(name: &str) -> String {
    match name {
        "log" => "FOREBAY_LOG_FORM".to_owned(),
        name => format!("FOREBAY_{}", name.to_ascii_uppercase().replace('-', "_")),
    }
}

/// The variable that stands for a flag, if it is set.
fn set_variable(name: &str, variable: &dyn Fn(&str) -> Option<OsString>) -> Option<(String, OsString)> {
    let usual = variable_of(name);
    // A variable with the line itself stands for its file.
    let others = (name == "secret-file").then(|| "FOREBAY_SECRET".to_owned());
    let mut names = std::iter::once(usual).chain(others);
    names.find_map(|name| variable(&name).map(|value| (name, value)))
}

/// Returns the names of a command line's flags, and the file that it names.
fn given(arguments: &[OsString]) -> (BTreeSet<String>, Option<PathBuf>) {
    let (mut names, mut file) = (BTreeSet::new(), None);
    let mut words = arguments.iter().skip(2);
    while let Some(word) = words.next() {
        // A value may be a path that is no UTF-8.
        let mut parts = word.as_bytes().splitn(2, |byte| *byte == b'=').map(OsStr::from_bytes);
        let name = parts.next().and_then(OsStr::to_str).and_then(|name| name.strip_prefix("--"));
        let Some(name) = name else { continue };
        names.insert(name.to_owned());
        if name == FILE {
            file = parts.next().or_else(|| words.next().map(OsString::as_os_str)).map(PathBuf::from);
        }
    }
    (names, file)
}

/// The keys of a file, with their values and lines.
fn read(path: &Path) -> Result<Vec<(String, String, usize)>, Failure> {
    let shown = path.display();
    let refuse = |why: &dyn Display| Failure::usage(format_args!("{shown}: {why}"));
    let size = std::fs::metadata(path).map_err(|error| refuse(&error))?.len();
    if size > MAX_FILE_BYTES {
        return Err(refuse(&format_args!("it is larger than {MAX_FILE_BYTES} bytes")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| refuse(&error))?;
    let line_of = |place: usize| 1 + text.bytes().take(place).filter(|byte| *byte == b'\n').count();
    let table = DeTable::parse(&text).map_err(|error| {
        let line = line_of(error.span().map_or(0, |span| span.start));
        Failure::usage(format_args!("{shown}:{line}: {}", error.message()))
    })?;
    let mut keys: Vec<(String, String, usize)> = Vec::new();
    let mut parameters = None;
    for (key, value) in table.get_ref() {
        let line = line_of(key.span().start);
        if let (PARAMETERS, DeValue::Table(table)) = (&**key.get_ref(), value.get_ref()) {
            parameters = Some(table);
            continue;
        }
        let refuse = |why: &str| Failure::usage(format_args!("{shown}:{line}: {}: {why}", key.get_ref()));
        let name = key.get_ref().replace('_', "-");
        if !is_option(&name) {
            return Err(refuse("this is a flag only"));
        }
        let text = text_of(value.get_ref()).ok_or_else(|| refuse(NO_VALUE))?;
        if keys.iter().any(|(other, ..)| *other == name) {
            return Err(refuse("it is there twice"));
        }
        keys.push((name, text, line));
    }
    for (key, value) in parameters.into_iter().flatten() {
        let (name, line) = (key.get_ref().replace('_', "-"), line_of(key.span().start));
        let text = text_of(value.get_ref());
        let text = text.ok_or_else(|| Failure::usage(format_args!("{shown}:{line}: {name}: {NO_VALUE}")))?;
        keys.push((PARAMETER.to_owned(), format!("{name}={text}"), line));
    }
    Ok(keys)
}

const NO_VALUE: &str = "a value is a string, a number, true or false";

fn text_of(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(number) => Some(number.to_string()),
        DeValue::Boolean(is_so) => Some(is_so.to_string()),
        _ => None,
    }
}
