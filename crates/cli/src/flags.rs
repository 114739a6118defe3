//! The spelling of flags: dashes and underscores are equivalent, as `db_bench`'s users expect. A flag that takes a list
//! with commas may be given several times.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// A flag that may be given several times.
const REPEATED: &str = "--memory";

/// Replaces underscores by dashes, only in the names of long flags, and joins the values of `--memory`.
pub fn normalise(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    joined(spelt(arguments))
}

/// Makes the last `--memory` name the addresses of all of them, in their order.
fn joined(arguments: Vec<OsString>) -> Vec<OsString> {
    let (flags, rest) =
        arguments.split_at(arguments.iter().position(|argument| argument == "--").unwrap_or(arguments.len()));
    let mut others = Vec::new();
    let mut values: Vec<OsString> = Vec::new();
    let mut flags = flags.iter();
    while let Some(flag) = flags.next() {
        let value = match flag.to_str().and_then(|flag| flag.strip_prefix(REPEATED)) {
            Some("") => flags.next().cloned(),
            Some(value) => value.strip_prefix('=').map(Into::into),
            None => None,
        };
        match value {
            Some(value) => values.push(value),
            None => others.push(flag.clone()),
        }
    }
    if values.len() < 2 {
        return arguments;
    }
    let mut flag = OsString::from(REPEATED);
    flag.push("=");
    flag.push(values.join(OsStr::new(",")));
    others.into_iter().chain([flag]).chain(rest.iter().cloned()).collect()
}

fn spelt(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut only_values = false;
    arguments
        .into_iter()
        .map(|argument| {
            only_values |= argument == "--";
            let bytes = argument.as_bytes();
            if only_values || !bytes.starts_with(b"--") {
                return argument;
            }
            let (name, value) = bytes.split_at(bytes.iter().position(|byte| *byte == b'=').unwrap_or(bytes.len()));
            let mut spelt: Vec<u8> = name.iter().map(|byte| if *byte == b'_' { b'-' } else { *byte }).collect();
            spelt.extend_from_slice(value);
            OsString::from_vec(spelt)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_names_of_flags_change() {
        let before = ["bench", "--key_size=20", "--use_existing_db", "a_b", "--memory=shm:/a_b", "--", "--x_y"];
        let after = super::normalise(before.map(Into::into));
        let expected = ["bench", "--key-size=20", "--use-existing-db", "a_b", "--memory=shm:/a_b", "--", "--x_y"];
        assert_eq!(after, expected);
    }

    #[test]
    fn values_have_any_bytes() {
        use super::{OsString, OsStringExt};
        let flag = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        assert_eq!(super::normalise([flag(b"--tls_key=/a_\xff")]), [flag(b"--tls-key=/a_\xff")]);
    }

    #[test]
    fn memory_nodes_may_be_named_one_by_one() {
        let joined = |line: &str| {
            let words: Vec<_> = super::normalise(line.split(' ').map(Into::into));
            words.join(std::ffi::OsStr::new(" ")).into_string().unwrap()
        };
        assert_eq!(joined("x --memory a --db=d --memory=b,c"), "x --db=d --memory=a,b,c");
        assert_eq!(joined("x --memory a --db=d -- --memory b"), "x --memory a --db=d -- --memory b");
        assert_eq!(joined("x --memory_node a --memory"), "x --memory-node a --memory");
    }
}
