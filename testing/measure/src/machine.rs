//! The machine of a measurement.

use serde::{Deserialize, Serialize};
use std::fs;
use std::process::Command;

/// The machine and the versions, as far as they can be found out.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// Name of the processor.
    pub processor: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// The operating system's kernel, with the two numbers of its version that matter.
    pub kernel: String,
    /// The commit of Forebay.
    pub commit: String,
    /// Version of the compiler.
    pub compiler: String,
}

impl Machine {
    /// This machine.
    pub fn this() -> Self {
        let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let processor = processor.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        Self {
            processor: processor.map_or("unknown".into(), |(_, name)| name.trim().into()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory("MemTotal:").unwrap_or(0),
            kernel: without_build(&first_line("uname", &["-sr"])),
            commit: first_line("git", &["describe", "--always", "--dirty"]),
            compiler: first_line("rustc", &["--version"]),
        }
    }

    /// One line for people.
    pub fn line(&self) -> String {
        let memory_gib = self.memory_bytes as f64 / f64::from(1 << 30);
        format!("{} cores of {}, {memory_gib:.0} GiB, {}, {}", self.cores, self.processor, self.kernel, self.compiler)
    }
}

/// Memory that is available without swapping, bytes.
pub fn available_bytes() -> Option<u64> {
    memory("MemAvailable:")
}

fn memory(field: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// A kernel's name and version, without its patch level and its builder.
fn without_build(release: &str) -> String {
    release.split(['.', '-']).take(2).collect::<Vec<_>>().join(".")
}

fn first_line(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_owned()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_kernel_is_named_by_two_numbers() {
        assert_eq!(super::without_build("Linux 6.18.44-amd64"), "Linux 6.18");
        assert_eq!(super::without_build("Linux 6.18-rc1"), "Linux 6.18");
        assert_eq!(super::without_build("unknown"), "unknown");
    }
}
