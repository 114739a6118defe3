//! How two replies must agree.

use crate::client::Value;
use crate::families::streams::without_times;

/// How two replies to the same command must agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agreement {
    /// They are equal.
    Equal,
    /// They have the same elements in any order.
    Elements,
    /// They have the same pairs of elements in any order.
    Pairs,
    /// They have the same form; the content is random.
    Form,
    /// They have the same kinds, as do their elements and the elements of those.
    Kinds,
    /// They are numbers that differ by at most this.
    Near(i64),
    /// A scan finds the same elements in all; its steps differ.
    Scan,
    /// The same scan, of pairs.
    ScanPairs,
    /// The replies of a transaction agree as the replies of its commands do.
    Transaction,
    /// They are equal, except times of streams' entries and sizes of trees.
    StreamTimes,
    /// Nothing is compared: Redis's reply depends on what it did before.
    Any,
}

impl Agreement {
    /// The agreement of a sign in a family's table.
    ///
    /// # Panics
    /// When there is none of this sign.
    #[must_use]
    pub fn of_sign(sign: &str) -> Self {
        match sign {
            "=" => Self::Equal,
            "~" => Self::Elements,
            "%" => Self::Pairs,
            "?" => Self::Form,
            "kinds" => Self::Kinds,
            "s" => Self::Near(60),
            "ms" => Self::Near(60_000),
            "scan" => Self::Scan,
            "scan%" => Self::ScanPairs,
            "exec" => Self::Transaction,
            "times" => Self::StreamTimes,
            "any" => Self::Any,
            _ => panic!("no agreement has the sign {sign}"),
        }
    }

    /// Whether they agree.
    #[must_use]
    pub fn holds(self, a: &Value, b: &Value) -> bool {
        match (self, a, b) {
            (Self::Any, ..) => true,
            (Self::Elements, Value::Many(..), Value::Many(..)) => sorted(a, 1) == sorted(b, 1),
            (Self::Pairs, Value::Many(..), Value::Many(..)) => sorted(a, 2) == sorted(b, 2),
            (Self::Form, Value::Many(x, xs), Value::Many(y, ys)) => x == y && xs.len() == ys.len(),
            (Self::Form, Value::Error(x), Value::Error(y)) => x == y,
            (Self::Form, ..) => std::mem::discriminant(a) == std::mem::discriminant(b),
            (Self::Kinds, ..) => are_of_same_kinds(a, b, 2),
            (Self::Near(most), Value::Integer(x), Value::Integer(y)) => (x - y).abs() <= most && (*x < 0) == (*y < 0),
            (Self::StreamTimes, ..) => without_times(a) == without_times(b),
            _ => a == b,
        }
    }
}

/// Whether two values, and their elements down to a depth, have the same kind.
fn are_of_same_kinds(a: &Value, b: &Value, depth: usize) -> bool {
    let (Value::Many(x, xs), Value::Many(y, ys)) = (a, b) else {
        return std::mem::discriminant(a) == std::mem::discriminant(b);
    };
    let mut pairs = xs.iter().zip(ys);
    x == y && (depth == 0 || (xs.len() == ys.len() && pairs.all(|(a, b)| are_of_same_kinds(a, b, depth - 1))))
}

/// The groups of elements in an order that does not depend on the order in which they came.
#[must_use]
pub fn sorted(value: &Value, group: usize) -> (u8, Vec<String>) {
    let Value::Many(sign, values) = value else { return (0, Vec::new()) };
    // In RESP3 some replies have their pairs as arrays.
    let is_nested = values.iter().all(|value| matches!(value, Value::Many(..)));
    let group = if is_nested { 1 } else { group };
    let mut groups: Vec<String> =
        values.chunks(group).map(|group| group.iter().map(|value| format!("{value} ")).collect::<String>()).collect();
    groups.sort_unstable();
    (*sign, groups)
}
