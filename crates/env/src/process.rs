//! What the operating system reports about this process and lets it do. `None` where it does not report a figure.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Physical memory that the process has, in bytes.
#[must_use]
pub fn resident_bytes() -> Option<u64> {
    kilobytes_in(&std::fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// Physical memory of the machine, in bytes.
#[must_use]
pub fn machine_bytes() -> Option<u64> {
    kilobytes_in(&std::fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")
}

/// The system's name, its release, and the machine's kind, as `uname -s -r -m` says them.
#[must_use]
pub fn system() -> String {
    let system = rustix::system::uname();
    let names = [system.sysname(), system.release(), system.machine()];
    names.map(|name| name.to_string_lossy().into_owned()).join(" ")
}

/// Processor time of the process so far, in seconds: in the system, and in its own code.
#[must_use]
pub fn processor_seconds() -> Option<(f64, f64)> {
    let (system, user) = ticks_in(&std::fs::read_to_string("/proc/self/stat").ok()?)?;
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    Some((system as f64 / per_second, user as f64 / per_second))
}

/// Returns how many files and sockets the process may have open at once. Raises the limit to `wanted` if it is lower, as far
/// as the system allows.
#[must_use]
pub fn allow_open_files(wanted: u64) -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let (now, most) = (current.unwrap_or(u64::MAX), maximum.unwrap_or(u64::MAX));
    let raised = wanted.min(most);
    if raised > now && setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum }).is_ok() {
        raised
    } else {
        now
    }
}

/// The bytes that the line with this name says.
fn kilobytes_in(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The name of the process, which may hold anything, ends with the last parenthesis. The fields from the third on follow.
/// The fourteenth is the time in its own code, the fifteenth the time in the system.
fn ticks_in(stat: &str) -> Option<(u64, u64)> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_ascii_whitespace().skip(11).map_while(|field| field.parse().ok());
    let (user, system) = (times.next()?, times.next()?);
    Some((system, user))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_high_enough_stays() {
        let now = allow_open_files(0);
        assert!(now > 0);
        assert_eq!((allow_open_files(1), allow_open_files(now)), (now, now));
    }

    #[test]
    fn figures_are_found_in_what_the_system_says() {
        assert_eq!(kilobytes_in("Name:\tx\nVmHWM:\t  9 kB\nVmRSS:\t    2048 kB\n", "VmRSS:"), Some(2 << 20));
        assert_eq!(kilobytes_in("Name:\tx\n", "VmRSS:"), None);
        let stat = "7 (a ) 1 2) S 1 7 7 0 -1 4194304 100 0 0 0 250 31 0 0 20 0 1 0 5";
        assert_eq!(ticks_in(stat), Some((31, 250)));
        assert_eq!(ticks_in("7 (a) S 1"), None);
        assert!(resident_bytes().is_none_or(|bytes| bytes > 1 << 16));
        assert!(machine_bytes() >= resident_bytes() && system().split(' ').count() >= 3);
    }
}
