//! Calls that make and drop checkpoints, checked against what is known of them.

use crate::calls::Calls;
use crate::checkpoints::any_name;
use crate::journal::published;
use forebay_base::ErrorKind;
use forebay_engine::{Db, Error};
use std::sync::atomic::Ordering;

/// Tries to drop all checkpoints.
const TRIES_TO_DROP: usize = 20;

impl Calls {
    /// Makes a checkpoint, or drops one.
    pub(crate) fn checkpoint(&mut self, db: &Db) {
        let name = any_name(&mut self.random);
        self.look_at_names(db);
        if self.random.one_in(1, 3) {
            self.drop_checkpoint(db, name);
        } else {
            self.make_checkpoint(db, name);
        }
    }

    /// Drops all checkpoints. Returns whether that was done.
    pub(crate) fn drop_checkpoints(&mut self, db: &Db) -> bool {
        (0..TRIES_TO_DROP).any(|_| {
            let names = self.look_at_names(db);
            names.iter().for_each(|name| self.drop_checkpoint(db, name));
            names.is_empty()
        })
    }

    /// Checks which checkpoints the owner of the database knows.
    fn look_at_names(&mut self, db: &Db) -> Vec<String> {
        let names = self.answered(db.checkpoints()).unwrap_or_default();
        if !self.is_taken_over() {
            self.checkpoints.expect_names(&names);
        }
        names
    }

    fn is_taken_over(&self) -> bool {
        self.may_be_fenced.load(Ordering::Relaxed)
    }

    fn make_checkpoint(&mut self, db: &Db, name: &str) {
        let (is_taken_over, numbers) = (self.is_taken_over(), published(db));
        self.checkpoints.make(name, self.model.present());
        let result = db.create_checkpoint(name);
        if is(&result, ErrorKind::AlreadyExists) {
            let is_there = self.checkpoints.not_made(name);
            assert!(is_there || is_taken_over, "there is a checkpoint {name:?}, which nobody made");
        } else if self.answered(result).is_some() {
            assert!(!is_taken_over, "a process made a checkpoint of what another one had taken over");
            self.checkpoints.made(name);
            self.journal.survives(&numbers);
            self.forget();
        }
    }

    fn drop_checkpoint(&mut self, db: &Db, name: &str) {
        let is_taken_over = self.is_taken_over();
        let was_sure = !is_taken_over && self.checkpoints.drop_begins(name);
        let result = db.drop_checkpoint(name);
        if is(&result, ErrorKind::NotFound) {
            assert!(!was_sure, "the checkpoint {name:?} is lost");
            if !is_taken_over {
                self.checkpoints.is_gone(name);
            }
        } else if is(&result, ErrorKind::Busy) && self.checkpoints.may_have_clone() {
            if was_sure {
                self.checkpoints.stays(name);
            }
        } else if self.answered(result).is_some() {
            assert!(!is_taken_over, "a process dropped a checkpoint of what another one had taken over");
            self.checkpoints.dropped(name);
        }
    }
}

fn is(result: &Result<(), Error>, kind: ErrorKind) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == kind)
}
