//! The spelling of flags: dashes and underscores are equivalent, as `db_bench`'s users expect.

use std::ffi::OsString;

/// Replaces underscores by dashes in the names of long flags, and nowhere else.
pub fn normalise(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut only_values = false;
    arguments
        .into_iter()
        .map(|argument| {
            only_values |= argument == "--";
            match argument.to_str().filter(|text| !only_values && text.starts_with("--")) {
                Some(text) => match text.split_once('=') {
                    Some((name, value)) => format!("{}={value}", name.replace('_', "-")).into(),
                    None => text.replace('_', "-").into(),
                },
                None => argument,
            }
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
}
