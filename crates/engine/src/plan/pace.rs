//! How fast writers go when memory is short: as fast as it is returned.
//!
//! *Returned* memory is what flushes took plus what became free since the last report. Its rate over the last seconds
//! says how long collection takes to return what a memtable needs. With room for [`KEPT`] memtables, half of what is
//! plenty, each memtable follows the previous one after this time. With more room it follows earlier, with less room
//! later. So room settles where writers take what is returned.

use crate::plan::room::{PLENTY, Room};
use std::time::Duration;

/// Nanoseconds over which the rate is averaged.
const WINDOW: f64 = 4e9;
/// Room with which writers take as much as is returned, in memtables.
const KEPT: u64 = PLENTY / 2;
/// The longest pause of a writer. If more is needed, it waits for its turn instead.
const LONGEST: Duration = Duration::from_millis(400);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ReturnPace {
    /// Bytes returned, and the nanoseconds that this took. Older ones count less.
    returned: f64,
    nanos: f64,
    /// Free bytes, and the time, of the last report.
    last: Option<(u64, u64)>,
    /// What flushes took since.
    flushed: u64,
    /// When the last memtable was installed.
    installed_at: u64,
}

impl ReturnPace {
    /// Notes how much is free.
    pub(crate) fn report(&mut self, free: u64, now: u64) {
        if let Some((before, at)) = self.last {
            let nanos = now.saturating_sub(at) as f64;
            let left = (-nanos / WINDOW).exp();
            // Negative while a compaction writes what it gives back later.
            let returned = free as f64 - before as f64 + self.flushed as f64;
            self.returned = self.returned.mul_add(left, returned);
            self.nanos = self.nanos.mul_add(left, nanos);
        }
        (self.last, self.flushed) = (Some((free, now)), 0);
    }

    /// Notes what a flush took.
    pub(crate) fn flushed(&mut self, bytes: u64) {
        self.flushed = self.flushed.saturating_add(bytes);
    }

    /// How long a writer pauses that has just taken room for a memtable and left this much room.
    pub(crate) fn pause(&mut self, room: Room, memtable_bytes: u64, now: u64) -> Duration {
        let since = now.saturating_sub(std::mem::replace(&mut self.installed_at, now));
        if room.is_plenty() {
            return Duration::ZERO;
        }
        let each = if self.returned > 0.0 { memtable_bytes as f64 * self.nanos / self.returned } else { f64::INFINITY };
        let share = PLENTY.saturating_sub(room.memtables) as f64 / (PLENTY - KEPT) as f64;
        let pause = (each * share - since as f64).clamp(0.0, LONGEST.as_nanos() as f64);
        let pause = Duration::from_nanos(pause as u64);
        self.installed_at = now.saturating_add(pause.as_nanos() as u64);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const SECOND: u64 = 1_000_000_000;

    fn room(memtables: u64) -> Room {
        Room { memtables, ..Room::default() }
    }

    /// A pace after ten seconds in which flushes took, and collection returned, four memtables a second.
    fn steady() -> (ReturnPace, u64) {
        let mut pace = ReturnPace::default();
        for tenth in 0..100 {
            pace.flushed(4 * MIB / 10);
            pace.report(100 * MIB, tenth * SECOND / 10);
        }
        (pace, 10 * SECOND)
    }

    #[test]
    fn a_memtable_follows_when_its_memory_was_returned() {
        let millis = |memtables, since| {
            let (mut pace, now) = steady();
            pace.installed_at = now - since;
            pace.pause(room(memtables), MIB, now).as_millis()
        };
        assert_eq!(millis(PLENTY, 0), 0);
        assert!((230..=260).contains(&millis(KEPT, 0)), "{}", millis(KEPT, 0));
        assert!((110..=130).contains(&millis(PLENTY - KEPT / 2, 0)));
        assert!((130..=160).contains(&millis(KEPT, SECOND / 10)), "a tenth of a second is over");
        assert_eq!(millis(KEPT, SECOND), 0);
        assert_eq!(millis(0, 0), LONGEST.as_millis());
    }

    #[test]
    fn room_settles() {
        let (mut pace, mut now) = steady();
        let mut free = PLENTY as f64;
        for _ in 0..200 {
            let before = now;
            now += SECOND / 100;
            now += pace.pause(room(free as u64), MIB, now).as_nanos() as u64;
            free += (now - before) as f64 / SECOND as f64 * 4.0 - 1.0;
            pace.flushed(MIB);
            pace.report((free * MIB as f64) as u64, now);
        }
        assert!((KEPT - 2..=KEPT + 2).contains(&(free as u64)), "{free}");
    }

    #[test]
    fn nothing_returned_is_the_longest_pause() {
        let mut pace = ReturnPace::default();
        assert_eq!(pace.pause(room(1), MIB, SECOND), LONGEST);
        assert_eq!(pace.pause(room(PLENTY), MIB, 2 * SECOND), Duration::ZERO);
    }
}
