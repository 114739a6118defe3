//! Checks that the filters of system calls in the systemd units allow what the command does. `systemd-analyze verify`
//! cannot tell, and otherwise a unit that kills its command is only found where it is installed.

use crate::command::Workspace;
use crate::{Failure, Outcome};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The groups of system calls that systemd knows: each with its members, which may be groups.
struct Groups<'t>(BTreeMap<&'t str, Vec<&'t str>>);

impl<'t> Groups<'t> {
    /// Parses what `systemd-analyze syscall-filter` prints.
    fn parse(text: &'t str) -> Self {
        let (mut groups, mut current) = (BTreeMap::<_, Vec<_>>::new(), "");
        for line in text.lines() {
            let word = line.trim();
            if line.starts_with('@') {
                current = word;
            } else if !word.is_empty() && !word.starts_with('#') {
                groups.entry(current).or_default().push(word);
            }
        }
        Self(groups)
    }

    /// Adds the system calls that a name stands for.
    fn resolve(&self, name: &'t str, calls: &mut BTreeSet<&'t str>) {
        match self.0.get(name) {
            Some(members) => members.iter().for_each(|member| self.resolve(member, calls)),
            None => drop(calls.insert(name)),
        }
    }
}

/// Returns what a unit allows: its lines add to this, or take away.
fn allowed<'t>(unit: &'t str, groups: &Groups<'t>) -> BTreeSet<&'t str> {
    let mut allowed = BTreeSet::new();
    for line in unit.lines().filter_map(|line| line.strip_prefix("SystemCallFilter=")) {
        let (takes_away, names) = line.strip_prefix('~').map_or((false, line), |names| (true, names));
        let mut calls = BTreeSet::new();
        names.split_whitespace().for_each(|name| groups.resolve(name, &mut calls));
        if takes_away {
            allowed.retain(|call| !calls.contains(call));
        } else {
            allowed.extend(calls);
        }
    }
    allowed
}

/// The system calls in what strace wrote: `PID name(arguments…`.
fn used(trace: &str) -> BTreeSet<&str> {
    let call = |line| Some(str::split_once(line, ' ')?.1.trim_start().split_once('(')?.0);
    let is_name = |call: &&str| call.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    trace.lines().filter_map(call).filter(is_name).collect()
}

/// Runs a database, its memory node and its storage in one process, and compares their system calls with each unit.
pub(crate) fn check(workspace: &Workspace, forebay: &Path, units: &[PathBuf], folder: &Path) -> Outcome {
    let read = |path: &Path| {
        std::fs::read_to_string(path).map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))
    };
    let (trace, data) = (folder.join("trace"), folder.join("data"));
    let bench = ["bench", "--num=50000", "--write_buffer_size=1MiB", "--benchmarks=fillrandom,compact,readrandom"];
    let strace = workspace.program("strace").arguments(["-f", "-qq", "-o"]).arguments([&trace, forebay]);
    strace.arguments(bench).arguments(["--path".as_ref(), data.as_path()]).run()?;
    let listed = workspace.program("systemd-analyze").arguments(["syscall-filter", "--no-pager"]).output();
    let listed = listed.ok_or_else(|| Failure::Failed("systemd-analyze syscall-filter failed".into()))?;
    let (trace, groups) = (read(&trace)?, Groups::parse(&listed));
    let used = used(&trace);
    if used.is_empty() {
        return Err(Failure::Failed("strace wrote no system calls".into()));
    }
    for unit in units {
        let text = read(unit)?;
        let refused: Vec<_> = used.difference(&allowed(&text, &groups)).copied().collect();
        if !refused.is_empty() {
            let refused = refused.join(", ");
            return Err(Failure::Failed(format!("{} refuses system calls of the command: {refused}", unit.display())));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_add_and_take_away() {
        let groups = "@all\n    # everything\n    @files\n    nice\n    reboot\n\n@files\n    open\n    read\n";
        let groups = Groups::parse(groups);
        let unit = "[Service]\nSystemCallFilter=@all\nSystemCallFilter=~@files reboot\nSystemCallFilter=read\n";
        assert_eq!(Vec::from_iter(allowed(unit, &groups)), ["nice", "read"]);
        let trace = "12 open(\"a\") = 3\n 13   +++ exited with 0 +++\n12  read(3, <unfinished ...>\n13 <... read resumed>) = 0\n";
        assert_eq!(Vec::from_iter(used(trace)), ["open", "read"]);
    }
}
