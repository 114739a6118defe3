//! Processor time.

use rustix::time::{ClockId, clock_gettime};

/// Processor time of the calling thread so far, nanoseconds.
#[must_use]
pub fn thread_nanos() -> u64 {
    nanos(ClockId::ThreadCPUTime)
}

/// Processor time of all threads of the process so far, nanoseconds.
#[must_use]
pub fn process_nanos() -> u64 {
    nanos(ClockId::ProcessCPUTime)
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_processor_time() {
        let start = thread_nanos();
        let mut sum = 0u64;
        while thread_nanos() == start {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(process_nanos() >= thread_nanos() - start);
    }
}
