//! One suite that every back end of the fabric passes.
//!
//! A back end gives a [`Target`]: how to start a node, and how to open links to it. The cases use
//! only the traits of `forebay_fabric`, so they check only the contract, and nothing specific to a
//! back end. Each runs on a node of its own, in a thread of its own under a watchdog: an operation
//! that never ends is a failure with a name, not a test run that hangs.
//!
//! [`conformance_tests!`] makes a test of each group of cases. `FOREBAY_CASE=part_of_a_name` runs
//! only the cases whose name contains that.

#![forbid(unsafe_code)]

mod case;
pub mod cases;
mod fixture;
pub mod seeds;
mod target;

pub use case::Case;
pub(crate) use case::case_list;
pub use fixture::{Connection, Fixture, Message};
pub use target::{Connect, Node, Start, Target};

use forebay_env::thread;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::Duration;

/// Longest that a case may take. Most take milliseconds; builds share the machine.
const WATCHDOG: Duration = Duration::from_secs(60);

/// Runs all cases one after the other, even when some fail.
///
/// # Panics
/// When a case fails or does not end; the message names them all.
pub fn run(target: &Target, cases: &'static [Case]) {
    let wanted = std::env::var("FOREBAY_CASE").unwrap_or_default();
    let failures: Vec<String> = cases
        .iter()
        .filter(|case| case.name.contains(&wanted))
        .filter_map(|case| run_one(target, case).err().map(|why| format!("  {}: {why}", case.name)))
        .collect();
    assert!(failures.is_empty(), "back end `{}` fails\n{}", target.name, failures.join("\n"));
}

/// Runs the whole suite.
///
/// # Panics
/// As [`run`].
pub fn run_all(target: &Target) {
    for group in cases::GROUPS {
        run(target, group);
    }
}

fn run_one(target: &Target, case: &'static Case) -> Result<(), String> {
    let (done, ended) = mpsc::channel();
    let target = target.clone();
    let body = move || {
        let result = catch_unwind(AssertUnwindSafe(|| (case.run)(&Fixture::start(&target))));
        // The receiver is gone if the watchdog was faster.
        let _ = done.send(result.map_err(|panic| text_of(&*panic)));
    };
    thread::spawn(case.name, body).map_err(|e| e.to_string())?;
    ended.recv_timeout(WATCHDOG).unwrap_or_else(|_| Err(format!("did not end within {WATCHDOG:?}")))
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    text.unwrap_or("panicked").to_owned()
}

/// Makes a test of each group of cases for the [`Target`] that the expression gives.
#[macro_export]
macro_rules! conformance_tests {
    ($target:expr; $($group:ident),* $(,)?) => {
        $(
            #[test]
            fn $group() {
                $crate::run(&$target, $crate::cases::$group::CASES);
            }
        )*

        #[test]
        fn every_group_is_there() {
            assert_eq!($crate::cases::GROUPS.len(), [$(stringify!($group)),*].len());
        }
    };
    ($target:expr) => {
        $crate::conformance_tests!($target; operations, order, concurrency, messages, rpc, access, failure, counting);
    };
}
