//! Merge operators of simulated databases: built-in ones, which every node knows, and one that only the database's
//! processes know, so that its compactions run there.

use forebay_engine::{MergeOperator, MergeOperators};
use std::sync::Arc;

/// An operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    /// Appends.
    Append,
    /// Appends after a separator, unless there was no value.
    Separated,
    /// Appends between brackets, to a word if there was no value. Two operands cannot be combined.
    Bracket,
}

impl Operator {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Append => "append",
            Self::Separated => "append:,",
            Self::Bracket => "bracket",
        }
    }

    /// Returns what a process must register to know the operator.
    pub(crate) fn registered() -> MergeOperators {
        let mut operators = MergeOperators::default();
        operators.register(Self::Bracket.name(), Arc::new(Bracket)).expect("no built-in one has the name");
        operators
    }

    /// Returns the value that an operand makes of the value before.
    pub(crate) fn applied(self, value: Option<&[u8]>, operand: &[u8]) -> Vec<u8> {
        match (self, value) {
            (Self::Append | Self::Separated, None) => operand.to_vec(),
            (Self::Append, Some(value)) => [value, operand].concat(),
            (Self::Separated, Some(value)) => [value, b",", operand].concat(),
            (Self::Bracket, value) => [value.unwrap_or(NOTHING), b"[", operand, b"]"].concat(),
        }
    }
}

const NOTHING: &[u8] = b"nothing";

/// See [`Operator::Bracket`].
#[derive(Debug)]
struct Bracket;

impl MergeOperator for Bracket {
    fn full(&self, _key: &[u8], value: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        let first = value.unwrap_or(NOTHING).to_vec();
        Some(operands.iter().fold(first, |value, operand| Operator::Bracket.applied(Some(&value), operand)))
    }

    fn partial(&self, _key: &[u8], _older: &[u8], _newer: &[u8]) -> Option<Vec<u8>> {
        None
    }
}
