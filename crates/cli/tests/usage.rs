//! Valid and invalid command lines, and their results.

use crate::common::run;

#[test]
fn help_and_version_go_to_standard_output() {
    assert!(run("version").expect(0).out.starts_with("forebay 0."));
    for line in ["--help", "bench --help", "replay --help", "memory-node --help", "fabric-test --help"] {
        assert!(run(line).expect(0).out.contains("Usage: forebay"), "{line}");
    }
    for (line, like) in [("help", "--help"), ("help bench", "bench --help"), ("help backup copy", "backup copy --help")]
    {
        assert_eq!(run(line).expect(0).out, run(like).expect(0).out, "{line}");
    }
    assert!(run("help benhc").expect(2).error.contains("benhc"));
    // Variables that are wrong do not keep help from those who look for what would be right.
    for (variable, value) in [("FOREBAY_THREADS", "many"), ("FOREBAY_CONFIG", "/nowhere/file")] {
        for line in ["serve --help", "serve -h"] {
            assert!(crate::common::run_with(line, &[(variable, value)]).expect(0).out.contains("--threads"), "{line}");
        }
    }
}

#[test]
fn wrong_command_lines_say_what_would_be_right() {
    for (line, hint) in [
        ("bench --key_sice=20", "--key-size"),
        ("bench --benchmarks=fillrandom,readrandon", "readrandom"),
        ("bench --num=0", "num 0"),
        ("bench --key_size=1 --num=257", "key size"),
        ("bench --memory=tcp://somewhere", "tcp://<host>:<port>"),
        ("bench --local-memory-size=lots", "8GiB"),
        ("bench --local-memory-size=1KiB", "extents"),
        ("bench --write_buffer_size=1", "'--write-buffer-size <SIZE>': a size from 4KiB to 256MiB"),
        ("bench --max-write-buffer-number 1", "--max-write-buffer-number"),
        ("bench --max-background-jobs 65", "--max-background-jobs"),
        ("bench --target-file-size-base 1", "'--target-file-size-base <SIZE>': a size from 4KiB to 1GiB"),
        ("bench --max-bytes-for-level-base 0", "--max-bytes-for-level-base"),
        ("bench --max-bytes-for-level-multiplier 1", "--max-bytes-for-level-multiplier"),
        ("bench --num-levels 1", "--num-levels"),
        ("bench --path /nowhere --block-size 5000", "'--block-size <SIZE>': a block has a power of two"),
        ("bench --path /nowhere --storage-from-level 0", "--storage-from-level"),
        ("bench --settle-after 5", "10s, or never"),
        ("bench --shards 4294967296", "4294967296 is not in 1..=256"),
        ("ycsb --shards 4294967296", "4294967296 is not in 1..=256"),
        ("restore --memory tcp://127.0.0.1:1 --db=x --shards 4294967296 /nowhere", "4294967296 is not in 1..=256"),
        ("bench --durability storage=sync", "--path or --storage"),
        ("bench --durability memory", "--db"),
        ("inspect manifest", "--path, --storage or --memory"),
        ("bench --storage memory: --db a/b", "\"a/b\" is no name for a database: use 1 to 102 letters"),
        ("bench --storage ftp://x", "--storage"),
        ("bench --register s3:x", "--register"),
        ("restore --memory tcp://127.0.0.1:1 --db=x --storage ftp://x /nowhere", "--storage"),
        ("repair --storage . --into=x --into-storage ftp://x", "--into-storage"),
        ("backup copy --path . name --to ftp://x", "--to"),
        ("worker --memory tcp://127.0.0.1:1 --storage ftp://x", "--storage"),
        ("bench --memory local,local", "local is the one memory node of this process"),
        ("bench --link-rtt=2", "2us"),
        ("bench --format=xml", "json"),
        ("replay", "<TRACE>"),
        ("fabric-test --operations=reed", "read"),
        ("fabric-test --depths=0", "4096"),
        ("memory-node", "--listen"),
        ("memory-node --listen=4000", "is no address of a memory node: use shm:<path> or tcp://<host>:<port>"),
        ("memory-node --listen=local", "other processes: use shm:<path> or tcp://<host>:<port>"),
        ("scheduler --listen=4000 --memory tcp://127.0.0.1:1", "node: use shm:<path> or tcp://<host>:<port>"),
        ("memory-node --listen=tcp://0.0.0.0:0", "--allow-remote"),
        ("memory-node --listen=tcp://127.0.0.1:0 --tls-certificate=/nowhere", "key"),
        ("memory-node --listen=tcp://127.0.0.1:0 --tls-client-authority=/nowhere", "within TLS only"),
        ("memory-node --listen=tcp://127.0.0.1:0 --secrets-file=/nowhere/secrets", "/nowhere/secrets"),
        ("memory-node --listen=tcp://127.0.0.1:0 --allow-uid=1", "certificates or secrets"),
        ("memory-node --listen=shm:/tmp/forebay-never --allow-uid=root", "--allow-uid"),
        ("bench --block-cache=1MiB", "--block-cache is for a database in storage: say where it lies with --path"),
        ("bench --storage-from-level=1 --db=name --memory=tcp://127.0.0.1:1", "--storage-from-level is for"),
        ("serve --durability=none --compression=zstd", "--compression is for"),
        ("serve --check-config --db=shop", "--db names a database on memory nodes of other processes, or in storage"),
        ("bench --db=name --durability=memory", "--db names a database on memory nodes of other processes"),
        ("ycsb --db=name --memory=local", "--db names a database on memory nodes of other processes"),
        ("serve --check-config --memory=tcp://127.0.0.1:1 --block-size=8KiB", "--block-size is for"),
        ("serve --check-config --threads=0", "from 1 to 64"),
        ("serve --check-config --listen=localhost:6379", "an IP address and a port, such as 127.0.0.1:0, or none"),
        ("serve --check-config --admin=9121", "an IP address and a port, such as 127.0.0.1:0, or none"),
        ("serve --check-config --tls-listen=6380", "an IP address and a port, such as 127.0.0.1:0"),
        ("serve --check-config --threads=100000", "from 1 to 64"),
        ("serve --check-config --aclfile=/nowhere/users", "/nowhere/users"),
        ("bench --secret-file=/nowhere", "tcp://"),
        ("bench --memory=tcp://127.0.0.1:1 --secret-file=/nowhere/secret", "/nowhere/secret"),
        (
            "worker --memory=tcp://127.0.0.1:1 --scheduler=shm:/nowhere --signed-names=none --secret-file=/nowhere/s",
            "/nowhere/s",
        ),
        ("bench --memory=tcp://127.0.0.1:1 --tls-name=node", "authority"),
        ("checkpoint --memory=tcp://127.0.0.1:1 --db=x --tls-key=/nowhere /nowhere/file", "certificate"),
        ("memory-node --listen=tcp://127.0.0.1:0 --memory=1GiB --extent-size=5", "4096"),
        ("memory-node --listen=tcp://127.0.0.1:0 --memory=8000TiB", "more than this machine has"),
        ("restore --memory tcp://127.0.0.1:1 --db=a/b /nowhere", "\"a/b\" is no name for a database"),
        ("drop --memory tcp://127.0.0.1:1 --db=a/b --yes", "is no name for a database"),
        ("checkpoint", "were not provided: --memory <MEMORY>; --db <NAME>; <FILE>"),
        ("backup create monday", "--path or --storage"),
        ("backup list", "--path or --storage"),
        ("backup list --db=x", "--path or --storage"),
        ("backup create --path . a/b", "is no name of a checkpoint"),
        ("backup clone --path . a --as b/c", "is no name for a database"),
        ("repair --path . --into a/b", "is no name for a database"),
        ("dump --path . --keyspace a/b", "is no name of a keyspace"),
        ("ycsb --engine tree --path /nowhere", "--path is for --engine=lsm"),
        ("ycsb --engine tree --db=name --memory=tcp://127.0.0.1:1", "--db is for"),
        ("ycsb --engine tree --storage=memory:", "--storage is for"),
        ("ycsb --engine tree --shards=2", "--shards is for"),
        ("ycsb --engine tree --takeover", "--takeover is for"),
        ("ycsb --engine tree --compaction_place=memory", "--compaction-place is for"),
        ("ycsb --clients=2", "--threads"),
        ("ycsb --tree-cache-size=1MiB", "--cached-index-size"),
        ("fabric-test --memory=tcp://127.0.0.1:1,tcp://127.0.0.1:2", "one memory node"),
        ("backup copy --path . name --to memory:", "name a directory"),
        ("repair --path . --into x --into-storage memory:", "name a directory"),
        ("restore --memory tcp://127.0.0.1:1 --db x --storage memory: /nowhere", "name a directory"),
        ("restore --memory tcp://127.0.0.1:1 --db x --register memory: /nowhere", "name a directory"),
        (
            "load --storage memory: /dev/null",
            "--storage: what is written to memory: ends with this command; name a directory",
        ),
        ("load /dev/null", "say which database: --path DIRECTORY"),
        ("load --memory tcp://127.0.0.1:1 /dev/null", "--memory ADDRESS and --db NAME"),
        ("worker --memory local", "--memory=local is of this process"),
        ("worker --memory tcp://127.0.0.1:1 --scheduler local", "--scheduler=local is of this process"),
        ("bench --memory tcp://127.0.0.1:1 --scheduler tcp://127.0.0.1:2", "--compaction-place=pool"),
        ("serve --check-config --memory tcp://127.0.0.1:1 --scheduler tcp://127.0.0.1:2", "--compaction-place=pool"),
        ("ycsb --compaction-place pool --scheduler local", "--scheduler=local is of this process"),
        ("scheduler --listen tcp://127.0.0.1:0 --memory local", "use shm:<path> or tcp://<host>:<port>"),
        ("serve --check-config --password-file /nowhere/password", "--password-file /nowhere/password: No such file"),
        ("ycsb --clients=0", "--clients"),
        ("ycsb --engine tree --clients=0", "--clients"),
        ("top --interval 0s", "longer than 0"),
        ("top foo", "ADDRESS:PORT"),
        ("top 127.0.0.1", "ADDRESS:PORT"),
        ("top http://127.0.0.1:9121/metrics", "ADDRESS:PORT"),
        ("top 127.0.0.1:65536", "ADDRESS:PORT"),
        ("top ::1:9121", "ADDRESS:PORT"),
        ("benhc", "bench"),
    ] {
        let ended = run(line).expect(2);
        assert!(ended.error.contains(hint), "{line}: {}", ended.error);
        assert_eq!(ended.out.lines().count(), 0, "{line}: {}", ended.out);
    }
}

/// A missing or unreadable place that a flag names does not make the command line wrong, whichever command it is.
#[test]
fn what_a_flag_names_has_the_code_of_its_error() {
    let endless = crate::common::fresh_path(".endless");
    // A link to itself: nobody can follow it, not even root.
    std::os::unix::fs::symlink(&*endless, &*endless).unwrap();
    let file = crate::common::fresh_path(".file");
    std::fs::write(&*file, "").unwrap();
    for (place, code) in [("/nowhere/mistyped".into(), 1), (endless.join("sub"), 1), (file.join("sub"), 2)] {
        let at = place.display();
        for line in [
            format!("dump --storage={at}"),
            format!("verify --path={at}"),
            format!("inspect manifest --path={at}"),
            format!("repair --storage={at}"),
            format!("drop --yes --storage={at}"),
            format!("backup list --path={at}"),
            format!("backup create --storage={at} name"),
            format!("bench --use_existing_db --storage={at}"),
            format!("checkpoint --memory=tcp://127.0.0.1:1 --db=x --storage={at} /nowhere/file"),
        ] {
            let ended = run(&line).expect(code);
            assert!(ended.error.contains(&format!("{at}")), "{line}: {}", ended.error);
            assert_eq!(ended.error.contains("is the path right?"), at.to_string().contains("mistyped"), "{line}");
        }
    }
    assert!(run("replay /nowhere/trace").expect(1).error.contains("/nowhere/trace: No such file"));
    let full = run("bench --num=1000 --local-memory-size=128MiB --format json --report /dev/full").expect(5);
    assert!(full.error.contains("--report /dev/full: "), "{full:?}");
    assert_eq!(full.json()["benchmarks"].as_array().unwrap().len(), 2, "the results are told");
}

#[test]
fn a_memory_node_that_is_not_there() {
    for memory in ["shm:/tmp/forebay-no-such-node", "tcp://127.0.0.1:1"] {
        for command in [
            "bench --num=10",
            "fabric-test --seconds=0.01",
            "replay /dev/null",
            "serve --listen=127.0.0.1:0 --admin=none",
            "serve --listen=127.0.0.1:0 --admin=none --engine=tree",
        ] {
            let ended = run(&format!("{command} --memory={memory}")).expect(3);
            assert!(ended.error.contains("is a memory node running"), "{}", ended.error);
        }
    }
}

/// Names that a directory cannot hold are refused like other invalid names.
#[test]
fn names_have_a_longest_length() {
    let (longest, file) = ("x".repeat(234), crate::common::fresh_path(".tsv"));
    std::fs::write(&file, "key\tvalue\n").unwrap();
    let place = crate::common::fresh_path(".directory");
    let at = format!("--path={} --local-memory-size=256MiB", place.display());
    run(&format!("load {at} {}", file.display())).expect(0);
    let refused = run(&format!("backup create {at} x{longest}")).expect(2);
    assert!(refused.error.contains("is no name of a checkpoint: use 1 to 234"), "{refused:?}");
    run(&format!("backup create {at} {longest}")).expect(0);
    run(&format!("dump {at} --checkpoint={longest}")).expect(0);
    let to = crate::common::fresh_path(".copy");
    run(&format!("backup copy {at} {longest} --to={}", to.display())).expect(0);
    run(&format!("backup clone {at} {longest} --as=other")).expect(0);
    run(&format!("drop --storage={} --db=other --yes", place.display())).expect(0);
    run(&format!("backup drop {at} {longest}")).expect(0);
    run(&format!("backup drop --storage={} {longest}", to.display())).expect(0);
}

#[test]
fn a_trace_that_makes_no_sense() {
    let path = crate::common::fresh_path(".lis");
    std::fs::write(&path, "1 1 0 0\n2 1 0 1\nthree\n").unwrap();
    let ended = run(&format!("replay {}", path.display())).expect(2);
    assert!(ended.error.contains("line 3"), "{}", ended.error);
}

#[test]
fn a_command_that_is_refused_creates_no_directory() {
    let path = crate::common::fresh_path(".never");
    let at = path.display();
    for line in [
        format!("serve --storage={at} --path={at}"),
        format!("serve --storage={at} --listen=none"),
        format!("serve --path={at} --listen=none"),
        format!("serve --storage={at} --listen=127.0.0.1:0 --admin=none --storage-from-level=7"),
        format!("serve --check-config --path={at} --level0-stop-writes-trigger=1"),
        format!("serve --path={at} --memory=tcp://127.0.0.1:1"),
        format!("bench --storage={at} --num=0"),
        format!("bench --storage={at} --key-size=1 --num=257"),
        format!("bench --storage={at} --level0-stop-writes-trigger=1"),
        format!("bench --path={at} --level0-stop-writes-trigger=1"),
        format!("bench --path={at} --local-memory-size=1KiB"),
        format!("bench --register={at} --db=x --durability=memory --memory=tcp://127.0.0.1:1"),
        format!("ycsb --storage={at} --clients=2"),
        format!("load --path={at} --keyspace=a/b /dev/null"),
        format!("ycsb --engine=tree --path={at}"),
        format!("ycsb --engine=tree --storage={at}"),
        format!("load --path={at} --memory=tcp://127.0.0.1:1 /dev/null"),
        format!("restore --storage={at} --memory=local --db=x /nowhere"),
    ] {
        run(&line).expect(2);
        assert!(!path.exists(), "{line}");
    }
    for line in [
        format!("bench --storage={at} --use_existing_db"),
        format!("bench --path={at} --use_existing_db"),
        format!("repair --storage=/nowhere --into-storage={at} --into=x"),
        format!("restore --storage={at} --memory=tcp://127.0.0.1:1 --db=x /nowhere"),
    ] {
        run(&line).expect(1);
        assert!(!path.exists(), "{line}");
    }
    run(&format!("serve --check-config --storage={at}")).expect(0);
    assert!(!path.exists());
}

/// What a variable or a flag names may have bytes that are no UTF-8. It is used or refused, and never passed over.
#[test]
fn values_that_are_no_text_count() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::process::Command;
    let odd = OsStr::from_bytes(b"/nowhere/\xff");
    // A node that passes over what it should ask of clients serves until it is ended.
    let forebay = |line: &str| {
        let mut command = Command::new("timeout");
        command.args(["60", env!("CARGO_BIN_EXE_forebay")]).args(line.split(' '));
        command
    };
    let refused = |command: &mut Command, said: &str| {
        let ended = command.output().unwrap();
        let error = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.code() == Some(2) && error.contains(said), "{ended:?}");
    };
    let (node, serve) = ("memory-node --listen=tcp://127.0.0.1:0 --memory=16MiB", "serve --check-config");
    refused(forebay(node).env("FOREBAY_NODE_SECRETS_FILE", odd), "/nowhere/");
    refused(forebay(node).env("FOREBAY_NODE_SECRETS", odd), "the variable FOREBAY_NODE_SECRETS is no UTF-8");
    refused(forebay(node).env("FOREBAY_LOG", odd), "the variable FOREBAY_LOG is no UTF-8");
    refused(forebay(serve).env("FOREBAY_PATH", odd), "the variable FOREBAY_PATH is no UTF-8");
    refused(forebay(serve).env("FOREBAY_CONFIG", odd), "/nowhere/");
    refused(forebay(serve).arg(OsStr::from_bytes(b"--config=/nowhere/\xff")), "/nowhere/");
    refused(forebay(serve).arg(OsStr::from_bytes(b"--password_file=/nowhere/\xff")), "--password-file /nowhere/");
}
