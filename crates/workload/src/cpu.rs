//! Processor time.

use rustix::time::{ClockId, clock_gettime};

/// Processor time that this process has used, in seconds.
pub(crate) fn process_seconds() -> f64 {
    seconds(ClockId::ProcessCPUTime)
}

/// Processor time that the calling thread has used, in seconds.
pub(crate) fn thread_seconds() -> f64 {
    seconds(ClockId::ThreadCPUTime)
}

fn seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_part_of_the_process() {
        let (thread, process) = (thread_seconds(), process_seconds());
        assert!(thread > 0.0 && process >= thread);
    }
}
