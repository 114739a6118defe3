//! Programs in C and C++ that use the installed interface: against the shared and the static library, and under
//! sanitizers, which also look for memory that nobody freed.

use crate::installation::{How, Installed, ran, run};
use forebay::{ListenOptions, MemoryNode, MemoryNodeOptions, NodeAddress, listen};
use std::path::Path;
use std::process::Command;

/// Compiles and runs a program, which must pass.
fn passes(installed: &Installed, source: &str, how: How, arguments: &[&str]) {
    // LevelDB's folder for tests stays, as in LevelDB, so it must be among the files that a build makes.
    let mut program = Command::new(installed.compile(source, how));
    let said = run(program.args(arguments).env("TMPDIR", env!("CARGO_TARGET_TMPDIR")));
    assert!(said.lines().any(|line| line == "passed"), "{source}: {said}");
}

#[test]
fn a_program_of_leveldb_in_c() {
    let installed = Installed::new("leveldb-c");
    for how in [How::Shared, How::Static, How::Sanitized] {
        passes(&installed, "leveldb.c", how, &["program-in-c"]);
    }
}

#[test]
fn a_program_of_leveldb_in_cpp() {
    let installed = Installed::new("leveldb-cc");
    for how in [How::Shared, How::Sanitized] {
        passes(&installed, "leveldb.cc", how, &["program-in-cc"]);
    }
}

#[test]
fn what_leveldb_does_not_have() {
    let installed = Installed::new("extensions");
    let nodes = ["a", "b"].map(|name| {
        let socket = format!("shm:{}/capi-node-{name}-{}", std::env::temp_dir().display(), std::process::id());
        let address: NodeAddress = socket.parse().unwrap();
        let listener = listen(&address, ListenOptions::default()).unwrap();
        (MemoryNode::start(listener, MemoryNodeOptions::with_memory(1 << 30)).unwrap(), socket)
    });
    let [(_, first), (_, second)] = &nodes;
    let register = Path::new(env!("CARGO_TARGET_TMPDIR")).join("register-of-copies");
    let _ = std::fs::remove_dir_all(&register);
    let both = format!("{first},{second}");
    passes(&installed, "extensions.c", How::Sanitized, &[first, &both, &register.to_string_lossy()]);
    drop(nodes);
    passes(&installed, "extensions.cc", How::Sanitized, &[]);
}

/// A child does not free what its parent has opened, so leaks are not looked for in a child.
#[test]
fn a_program_that_forks() {
    let installed = Installed::new("fork");
    let database = Path::new(env!("CARGO_TARGET_TMPDIR")).join("database-of-forks");
    let _ = std::fs::remove_dir_all(&database);
    // Not with the sanitizer: in a child, the allocator of GCC 12's sanitizer waits for locks that other threads held
    // at the fork.
    for how in [How::Shared, How::Static] {
        let mut program = Command::new(installed.compile("fork.c", how));
        let said = run(program.arg(&database));
        assert!(said.lines().any(|line| line == "passed"), "{said}");
    }
}

#[test]
fn a_program_that_ends_without_closing() {
    let installed = Installed::new("exit");
    let database = Path::new(env!("CARGO_TARGET_TMPDIR")).join("database-of-exits");
    let _ = std::fs::remove_dir_all(&database);
    for how in [How::Shared, How::Static, How::Sanitized] {
        let program = installed.compile("exit.c", how);
        for end in ["returns", "closes", "thread", "found", "child", "synced"] {
            for what in [end, "check"] {
                let mut program = Command::new(&program);
                run(program.args([database.as_os_str(), what.as_ref()]).env("ASAN_OPTIONS", "detect_leaks=0"));
            }
        }
    }
}

/// Valgrind does not show a program all that a kernel does.
#[test]
fn a_program_under_valgrind() {
    let installed = Installed::new("valgrind");
    let database = Path::new(env!("CARGO_TARGET_TMPDIR")).join("database-under-valgrind");
    let _ = std::fs::remove_dir_all(&database);
    let program = installed.compile("exit.c", How::Shared);
    for what in ["returns", "check"] {
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--quiet", "--error-exitcode=9"]).arg(&program);
        run(valgrind.args([database.as_os_str(), what.as_ref()]));
    }
}

/// A checker counts only once it has failed.
#[test]
fn the_sanitizers_see_what_they_should() {
    let installed = Installed::new("planted");
    let program = installed.compile("planted.c", How::Sanitized);
    for (bug, sign) in
        [("leak", "LeakSanitizer"), ("after-free", "heap-use-after-free"), ("overflow", "signed integer overflow")]
    {
        let (is_fine, said) = ran(Command::new(&program).arg(bug));
        assert!(!is_fine && said.contains(sign), "{bug}: {said}");
    }
    run(Command::new(&program).arg("none"));
}
