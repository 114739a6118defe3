//! Flags of `forebay bench`.

/// Flags that every run has, apart from those asked for.
pub fn usual_flags() -> Vec<String> {
    [
        "--max_background_jobs=4",
        "--level0_slowdown_writes_trigger=20",
        "--level0_stop_writes_trigger=36",
        "--write_buffer_size=67108864",
        "--max_write_buffer_number=5",
        "--target_file_size_base=67108864",
        // As in db_bench without its histogram: no clock in every call, and values that cost nothing to
        // make and are not examined.
        "--histogram=false",
        "--verify=false",
    ]
    .map(String::from)
    .to_vec()
}

/// These flags, and the usual ones that they do not override.
pub fn flags_with(flags: &[String]) -> Vec<String> {
    let name = |flag: &str| flag.split_once('=').map_or(flag, |(name, _)| name).replace('_', "-");
    let is_set = |usual: &String| flags.iter().any(|flag| name(flag) == name(usual));
    usual_flags().into_iter().filter(|usual| !is_set(usual)).chain(flags.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_that_is_set_takes_the_place_of_the_usual_one() {
        let flags = flags_with(&["--write-buffer-size=8MiB".to_owned(), "--verify".to_owned()]);
        assert_eq!(flags.len(), usual_flags().len());
        assert_eq!(flags.iter().filter(|flag| flag.starts_with("--write")).count(), 1);
        assert_eq!(flags.last().map(String::as_str), Some("--verify"));
    }
}
