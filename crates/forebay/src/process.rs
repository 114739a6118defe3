//! What a process has opened, which a fork leaves behind. For bindings: programs in other languages fork as they like.
//!
//! A fork copies the memory of a process, and one of its threads. So the child has its parent's databases as they stood at
//! that moment, with locks that nobody releases and without the threads that work on them. If it used one, two processes
//! would write one log. Therefore what a process opens is [`Owned`]. The child says that it was [`forked`]; from then on, what the
//! parent has opened is of no use to it, and does not end in it.

use crate::Error;
use forebay_base::ErrorKind;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The first of a line of processes, each of which the one before has forked.
static FIRST: Process = Process::new();

/// A process, as it knows itself: a fork copies it, and the child leaves the copy behind.
#[derive(Debug)]
struct Process {
    /// Whether this process is a child of the one that is meant here.
    is_left: AtomicBool,
    child: OnceLock<Box<Self>>,
}

impl Process {
    const fn new() -> Self {
        Self { is_left: AtomicBool::new(false), child: OnceLock::new() }
    }

    /// This process.
    fn current() -> &'static Self {
        let mut process = &FIRST;
        while process.is_left() {
            process = process.child.get_or_init(|| Box::new(Self::new()));
        }
        process
    }

    #[inline]
    fn is_left(&self) -> bool {
        // Only a fork changes it, and then there is one thread.
        self.is_left.load(Ordering::Relaxed)
    }
}

/// Says that this process was forked: what its parent has opened is not its own. To be called in the child, by the thread that
/// forked, before it does anything else. It takes no lock and allocates nothing, so `pthread_atfork` may call it.
pub fn forked() {
    let mut process = &FIRST;
    while process.is_left.swap(true, Ordering::Relaxed) {
        let Some(child) = process.child.get() else { return };
        process = child;
    }
}

/// What one process may use: a store, or what belongs to one. In a process that was [`forked`] later, nobody gets at it, and
/// dropping it forgets it.
#[derive(Debug, Clone)]
pub struct Owned<T> {
    owner: &'static Process,
    /// `None` once it was taken out.
    value: Option<T>,
}

impl<T> Owned<T> {
    /// What this process may use.
    pub fn new(value: T) -> Self {
        Self { owner: Process::current(), value: Some(value) }
    }

    /// What it is.
    ///
    /// # Errors
    /// `Invalid` in a process that was forked later.
    #[inline]
    pub fn get(&self) -> Result<&T, Error> {
        self.value.as_ref().filter(|_| !self.owner.is_left()).ok_or_else(left)
    }

    /// What it is, to change it.
    ///
    /// # Errors
    /// As [`Owned::get`].
    pub fn get_mut(&mut self) -> Result<&mut T, Error> {
        self.value.as_mut().filter(|_| !self.owner.is_left()).ok_or_else(left)
    }

    /// Takes it out.
    ///
    /// # Errors
    /// As [`Owned::get`]; then it is forgotten.
    pub fn into_inner(mut self) -> Result<T, Error> {
        self.get()?;
        self.value.take().ok_or_else(left)
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.owner.is_left() {
            std::mem::forget(self.value.take());
        }
    }
}

#[cold]
fn left() -> Error {
    let message = "the database was opened before a fork: open it in the process that uses it";
    Error::Below { kind: ErrorKind::Invalid, message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// Forks are told to all of a process, so this is one test.
    #[test]
    fn what_was_opened_is_left_behind_by_a_fork() {
        let one = Arc::new(7);
        let (mut owned, mut second) = (Owned::new(Arc::clone(&one)), Owned::new(0));
        assert_eq!(**owned.get().unwrap(), 7);
        *second.get_mut().unwrap() += 1;
        assert_eq!(second.into_inner().unwrap(), 1);
        // Two forks, and nothing was opened between them.
        forked();
        forked();
        for refused in [owned.get().err(), owned.get_mut().err(), owned.clone().into_inner().err()] {
            let refused = refused.unwrap();
            assert_eq!(refused.kind(), ErrorKind::Invalid);
            assert!(refused.to_string().contains("before a fork"), "{refused}");
        }
        let holders = Arc::strong_count(&one);
        drop(owned);
        assert_eq!(Arc::strong_count(&one), holders, "it is forgotten");

        let own = Owned::new(8);
        assert_eq!(*own.get().unwrap(), 8);
        forked();
        own.get().unwrap_err();
    }
}
