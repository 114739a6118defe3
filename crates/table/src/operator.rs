//! Merge operators: how the operands written to a key become its value (`docs/decisions/0047`).
//!
//! An operand is a record of its own, so a merge is a write without a read. The operator of the database decides what an
//! operand means. It is known by its name: the database was created with the name, a job carries the name, and a runner
//! that does not know the name refuses the job.
//!
//! ```text
//!   newest ── operand ── operand ── operand ── value, deletion, or nothing
//!             └─── partial ───┘
//!             └──────────────── full ────────────┘
//! ```
//!
//! Operators are functions of only their arguments: reads, compactions at several nodes, and compactions after a crash must
//! find the same value.

use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

/// Name of the operator that adds to a counter.
const COUNTER: &str = "counter";
/// Name of the operator whose last operand is the value.
const LAST: &str = "last";
/// Name of the operator that appends, and the start of its name when there is a separator.
const APPEND: &str = "append";
const APPEND_WITH: &str = "append:";

/// Makes values from operands. Its results depend only on its arguments.
pub trait MergeOperator: Debug + Send + Sync {
    /// Whether this is a valid operand. Invalid ones are refused when they are written.
    fn takes(&self, _operand: &[u8]) -> bool {
        true
    }

    /// The value of `key`: `operands`, oldest first and at least one, applied to the value that it had, if any. `None` when
    /// the operator does not understand that value. Then reads fail, and the operands are kept.
    fn full(&self, key: &[u8], value: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>>;

    /// One operand that has the same effect as `older` followed by `newer`; `None` when there is none.
    fn partial(&self, key: &[u8], older: &[u8], newer: &[u8]) -> Option<Vec<u8>>;
}

/// Merge operators by name: the built-in ones, and those that were registered.
///
/// | name | a value is | an operand |
/// |---|---|---|
/// | `counter` | a signed integer of 8 bytes, little-endian | is added, wrapping around; without a value, to zero |
/// | `append` | any bytes | goes to the end |
/// | `append:` and a separator | any bytes | goes to the end, after the separator unless there was no value |
/// | `last` | any bytes | becomes the value |
#[derive(Debug, Clone, Default)]
pub struct MergeOperators(BTreeMap<String, Arc<dyn MergeOperator>>);

impl MergeOperators {
    /// Adds an operator under a name, and replaces one of the same name. The name must mean the same in all processes that
    /// open the database. Memory nodes and workers know only the built-in operators: compactions of a database with another
    /// one run at the compute node.
    ///
    /// # Errors
    /// [`Error::BuiltInOperator`] for the names above, also with any separator; [`Error::Invalid`] for an empty name.
    pub fn register(&mut self, name: &str, operator: Arc<dyn MergeOperator>) -> Result<&mut Self> {
        if name.is_empty() {
            return Err(Error::Invalid("a merge operator needs a name"));
        }
        if built_in(name).is_some() {
            return Err(Error::BuiltInOperator(name.to_owned()));
        }
        self.0.insert(name.to_owned(), operator);
        Ok(self)
    }

    /// The operator of this name.
    ///
    /// # Errors
    /// [`Error::UnknownOperator`].
    pub fn get(&self, name: &str) -> Result<Arc<dyn MergeOperator>> {
        let registered = || self.0.get(name).map(Arc::clone);
        built_in(name).or_else(registered).ok_or_else(|| Error::UnknownOperator(name.to_owned()))
    }
}

/// The operator that this name means in every process.
fn built_in(name: &str) -> Option<Arc<dyn MergeOperator>> {
    match (name, name.strip_prefix(APPEND_WITH)) {
        (COUNTER, _) => Some(Arc::new(Counter)),
        (LAST, _) => Some(Arc::new(Last)),
        (APPEND, _) => Some(Arc::new(Append { separator: Vec::new() })),
        (_, Some(separator)) => Some(Arc::new(Append { separator: separator.as_bytes().to_vec() })),
        _ => None,
    }
}

/// Adds to a signed integer of 8 bytes.
#[derive(Debug)]
struct Counter;

fn integer(bytes: &[u8]) -> Option<i64> {
    bytes.try_into().map(i64::from_le_bytes).ok()
}

impl MergeOperator for Counter {
    fn takes(&self, operand: &[u8]) -> bool {
        integer(operand).is_some()
    }

    fn full(&self, _key: &[u8], value: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        let start = value.map_or(Some(0), integer)?;
        let sum = operands.iter().try_fold(start, |sum, operand| Some(sum.wrapping_add(integer(operand)?)))?;
        Some(sum.to_le_bytes().to_vec())
    }

    fn partial(&self, _key: &[u8], older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        Some(integer(older)?.wrapping_add(integer(newer)?).to_le_bytes().to_vec())
    }
}

/// Appends.
#[derive(Debug)]
struct Append {
    separator: Vec<u8>,
}

impl MergeOperator for Append {
    fn full(&self, _key: &[u8], value: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        let parts: Vec<&[u8]> = value.into_iter().chain(operands.iter().copied()).collect();
        Some(parts.join(&self.separator[..]))
    }

    fn partial(&self, _key: &[u8], older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        Some([older, newer].join(&self.separator[..]))
    }
}

/// The last operand is the value.
#[derive(Debug)]
struct Last;

impl MergeOperator for Last {
    fn full(&self, _key: &[u8], _value: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        operands.last().map(|last| last.to_vec())
    }

    fn partial(&self, _key: &[u8], _older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        Some(newer.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::ErrorKind;
    use proptest::prelude::*;

    fn operator(name: &str) -> Arc<dyn MergeOperator> {
        MergeOperators::default().get(name).unwrap()
    }

    #[test]
    fn built_in_operators() {
        let full = |name: &str, value: Option<&[u8]>, operands: &[&[u8]]| operator(name).full(b"k", value, operands);
        let number = |number: i64| number.to_le_bytes();
        assert_eq!(full("counter", None, &[&number(5), &number(-7)]), Some(number(-2).to_vec()));
        assert_eq!(full("counter", Some(&number(i64::MAX)), &[&number(1)]), Some(number(i64::MIN).to_vec()));
        assert_eq!(full("counter", Some(b"abc"), &[&number(1)]), None);
        assert!(!operator("counter").takes(b"1") && operator("counter").takes(&number(1)));
        assert_eq!(full("append", Some(b"a"), &[b"b", b"", b"c"]), Some(b"abc".to_vec()));
        assert_eq!(full("append:, ", Some(b""), &[b"b", b"c"]), Some(b", b, c".to_vec()));
        assert_eq!(full("append:, ", None, &[b"b", b"c"]), Some(b"b, c".to_vec()));
        assert_eq!(full("last", Some(b"a"), &[b"b", b"c"]), Some(b"c".to_vec()));
        let unknown = MergeOperators::default().get("most").unwrap_err();
        assert!(unknown.to_string().contains("\"most\""), "{unknown}");
        assert_eq!(unknown.kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn a_name_means_one_operator() {
        let mut operators = MergeOperators::default();
        for name in ["counter", "last", "append", "append:", "append:-"] {
            let refused = operators.register(name, Arc::new(Last)).unwrap_err();
            assert_eq!((&refused, refused.kind()), (&Error::BuiltInOperator(name.to_owned()), ErrorKind::Invalid));
        }
        assert_eq!(operators.register("", Arc::new(Last)).unwrap_err().kind(), ErrorKind::Invalid);
        operators.register("most", Arc::new(Counter)).unwrap().register("most", Arc::new(Last)).unwrap();
        assert_eq!(operators.get("most").unwrap().full(b"k", None, &[b"x"]), Some(b"x".to_vec()));
    }

    proptest! {
        /// The value is the same, no matter which neighbours are combined first.
        #[test]
        fn partial_merges_change_nothing(
            name in prop::sample::select(vec!["counter", "append", "append:-", "last"]),
            value: Option<[u8; 8]>, operands in prop::collection::vec(any::<[u8; 8]>(), 2..9), at: usize,
        ) {
            let operator = operator(name);
            let operands: Vec<&[u8]> = operands.iter().map(|operand| &operand[..]).collect();
            let value = value.as_ref().map(|value| &value[..]);
            let at = at % (operands.len() - 1);
            let combined = operator.partial(b"k", operands[at], operands[at + 1]).unwrap();
            let fewer = [&operands[..at], &[&combined[..]], &operands[at + 2..]].concat();
            prop_assert_eq!(operator.full(b"k", value, &operands), operator.full(b"k", value, &fewer));
        }
    }
}
