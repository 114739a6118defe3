//! Workloads from published cache statistics: a table with one line per cluster.
//!
//! These columns are used, by name: `cluster`, `key_bytes_mean`, `value_bytes_mean`, `operations`
//! (such as `set:0.50 get:0.50`) and `zipf_alpha`. A field may be in double quotes.

use super::Mix;
use crate::Error;

/// The statistics of a cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// Mean length of its keys in bytes.
    pub key_size: usize,
    /// Mean length of its values in bytes.
    pub value_size: usize,
    /// Its operations.
    pub mix: Mix,
    /// Skew of its keys.
    pub theta: f64,
}

impl Profile {
    /// The profile of `cluster`, a number or a name, in the table `text` from `path`.
    ///
    /// # Errors
    /// [`Error::Trace`] when it is missing or invalid.
    pub fn parse(path: &str, text: &str, cluster: &str) -> Result<Self, Error> {
        let wrong = |line: usize, cause: String| Error::Trace { path: path.into(), line: line as u64, cause };
        let mut lines = text.lines().zip(1..).map(|(line, number)| (fields(line), number));
        let (header, _) =
            lines.next().ok_or_else(|| wrong(1, "an empty file; a table of clusters is needed".into()))?;
        let column = |name: &str| {
            let found = header.iter().position(|field| field == name);
            found.ok_or_else(|| wrong(1, format!("there is no column `{name}`")))
        };
        let (name, key, value) = (column("cluster")?, column("key_bytes_mean")?, column("value_bytes_mean")?);
        let (operations, alpha) = (column("operations")?, column("zipf_alpha")?);
        let is_it = |found: &str| found == cluster || found.strip_prefix("cluster") == Some(cluster);
        let (row, line) = lines
            .find(|(row, _)| row.get(name).is_some_and(|found| is_it(found)))
            .ok_or_else(|| wrong(1, format!("there is no cluster `{cluster}`")))?;
        let field = |place: usize| row.get(place).map_or("", String::as_str);
        let number = |place: usize| {
            let number = field(place).parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
            number.ok_or_else(|| wrong(line, format!("`{}` is no number", field(place))))
        };
        let mix = mix(field(operations)).ok_or_else(|| {
            wrong(line, format!("`{}` is no mix of operations, such as set:0.50 get:0.50", field(operations)))
        })?;
        Ok(Self {
            name: field(name).into(),
            // A key has room for the record's number.
            key_size: (number(key)?.min(65_536.0) as usize).max(8),
            value_size: number(value)?.min(67_108_864.0) as usize,
            mix,
            theta: number(alpha)?,
        })
    }
}

/// Reads are `get` and `gets`. Every operation that changes a value counts as an update.
fn mix(operations: &str) -> Option<Mix> {
    let mut mix = Mix::default();
    for operation in operations.split_whitespace() {
        let (name, share) = operation.split_once(':')?;
        let share = share.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share))?;
        match name {
            "get" | "gets" => mix.read += share,
            _ => mix.update += share,
        }
    }
    let all = mix.read + mix.update;
    (all > 0.0).then(|| Mix { read: mix.read / all, update: mix.update / all, ..mix })
}

/// The fields of a line of comma-separated values.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    for character in line.chars() {
        match character {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            other => {
                if let Some(last) = fields.last_mut() {
                    last.push(other);
                }
            }
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TABLE: &str = "cluster,key_bytes_mean,value_bytes_mean,common_ttl,operations,zipf_alpha\n\
                         cluster8,23,9497,\"1380s:0.95, 1379s:0.05\",set:0.50 get:0.50,1.7366\n\
                         cluster9,5,39,2h:0.79,get:0.99,1.6796\n";

    #[test]
    fn clusters_are_found_by_number_and_name() {
        let profile = Profile::parse("t", TABLE, "8").unwrap();
        assert_eq!((profile.key_size, profile.value_size, profile.theta), (23, 9497, 1.7366));
        assert_eq!((profile.mix.read, profile.mix.update), (0.5, 0.5));
        let profile = Profile::parse("t", TABLE, "cluster9").unwrap();
        assert_eq!((profile.key_size, profile.mix.read, profile.mix.update), (8, 1.0, 0.0));
        assert!(Profile::parse("t", TABLE, "10").is_err());
        assert!(Profile::parse("t", &TABLE.replace("9497", "many"), "8").is_err());
        assert!(Profile::parse("t", &TABLE.replace("get:0.50", "get"), "8").is_err());
        assert!(Profile::parse("t", &TABLE.replace("zipf_alpha", "alpha"), "8").is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_parsed(text: String, cluster: String) {
            let _ = Profile::parse("t", &text, &cluster);
            let header = TABLE.lines().next().unwrap_or_default();
            let _ = Profile::parse("t", &format!("{header}\n{text}"), &cluster);
        }
    }
}
