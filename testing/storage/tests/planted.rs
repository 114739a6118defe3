//! A checker finds each planted bug, and without a bug no checker finds anything.

use forebay_storage::planted::{Bug, plant};
use forebay_storage_conformance::crash::{self, DiskWorld, ObjectWorld};
use std::panic::catch_unwind;

const SEEDS: u64 = 12;

/// A checker: returns what it finds with a seed.
type Checker = fn(u64) -> Result<u64, String>;

/// The checkers that must find a bug.
fn finders(bug: Bug) -> &'static [Checker] {
    match bug {
        Bug::CommitReplaces | Bug::PrunedNumberIsFree => {
            &[crash::register::<DiskWorld>, crash::register::<ObjectWorld>]
        }
        Bug::LostReplyFences => &[crash::register::<ObjectWorld>],
        Bug::AcknowledgedBeforeSync
        | Bug::FailedSyncIsRetried
        | Bug::HolesAreSkipped
        | Bug::RecoveredIsNotSynced
        | Bug::RoomIsNotSynced
        | Bug::FolderIsNotSynced
        | Bug::RecoveryReplaces => &[crash::log::<DiskWorld>],
        Bug::SealIsNotSeen => &[crash::log::<DiskWorld>, crash::log::<ObjectWorld>],
        Bug::ObjectIsNotSynced | Bug::NameIsNotSynced => &[crash::objects::<DiskWorld>],
        Bug::DamageIsTorn => &[crash::damaged_log::<DiskWorld>],
        Bug::CutIsTorn => &[crash::cut_log],
        Bug::NotFoundIsTrimmed => &[crash::not_found_log],
    }
}

/// In one test, one after the other, because bugs are planted for the whole process. The test has a
/// process of its own.
#[test]
fn planted_bugs_are_found() {
    for bug in Bug::ALL {
        for (index, checker) in finders(bug).iter().enumerate() {
            plant(Some(bug));
            // A checker may also panic on what it finds.
            let found = (0..SEEDS)
                .find_map(|seed| catch_unwind(|| checker(seed)).unwrap_or_else(|_| Err("a panic".into())).err());
            plant(None);
            match found {
                Some(finding) => println!("{bug:?}: {finding}"),
                None => panic!("{bug:?} was planted, and checker {index} found nothing"),
            }
        }
    }
}
