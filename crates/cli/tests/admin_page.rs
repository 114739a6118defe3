//! The page for operators, in a real browser: `cargo xtask admin-page`.

use crate::common::start;
use rustix::process::Signal;
use std::process::{Command, Stdio};

/// Returns what Chromium shows of a page after a few answers, and its messages meanwhile.
fn browse(address: &str) -> (String, String) {
    let profile = crate::common::fresh_path(".chromium");
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--enable-logging=stderr"])
        .arg(format!("--user-data-dir={}", profile.display()))
        // Virtual time advances while nothing is running, so this takes less real time.
        .args(["--virtual-time-budget=4000", "--dump-dom", address])
        .output()
        .unwrap_or_else(|error| panic!("chromium: {error}: `cargo xtask admin-page` installs it"));
    let _ = std::fs::remove_dir_all(&*profile);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{output:?}");
    (text(&output.stdout), text(&output.stderr))
}

/// Returns what is between two texts, at their first occurrence.
fn between<'a>(page: &'a str, begin: &str, end: &str) -> &'a str {
    let from = page.find(begin).unwrap_or_else(|| panic!("{begin} is not in:\n{page}")) + begin.len();
    page[from..].split(end).next().unwrap_or_default()
}

#[test]
#[ignore = "needs Chromium: `cargo xtask admin-page`"]
fn a_server_in_a_browser() {
    let flags = "--listen=127.0.0.1:0 --admin=127.0.0.1:0 --local-memory-size=512MiB --durability=none";
    let mut server = start(&format!("serve {flags}"));
    let out = server.until(|out| out.contains("\nadmin http://"));
    let port = out.lines().next().unwrap().rsplit(':').next().unwrap().to_owned();
    let admin = out.lines().find_map(|line| line.strip_prefix("admin ")).unwrap().to_owned();
    for command in ["config set slowlog-log-slower-than 0", "set <b>key</b> \"<script>x</script>\"", "get key"] {
        let mut child =
            Command::new("redis-cli").args(["-p", &port]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), command.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
    }
    let (page, said) = browse(&admin);
    assert!(!said.contains("CONSOLE"), "{said}");
    assert_eq!(between(&page, "id=\"ready\" class=\"state\" role=\"status\">", "<"), "ready");
    assert_eq!(between(&page, "id=\"role\" class=\"badge\">", "<"), "serve");
    for part in ["topology", "levels", "nodes", "stalls", "work", "slow"] {
        let card = between(&page, &format!("id=\"{part}-card\""), ">");
        assert!(!card.contains("hidden"), "{part}: {card}");
    }
    assert!(between(&page, "id=\"tenants-card\"", ">").contains("hidden"));
    assert!(page.contains("<svg") && page.contains("Memory node 0"), "{page}");
    // There were two answers, and so a rate.
    let commands = between(&page, ">Commands</div><div class=\"value\">", "<");
    assert_ne!(commands, "–");
    // What a client sent is shown as text.
    assert!(page.contains("&lt;b&gt;key&lt;/b&gt;") && !page.contains("<script>x"), "{page}");
    server.signal(Signal::INT);
    server.wait_stopped();
}

#[test]
#[ignore = "needs Chromium: `cargo xtask admin-page`"]
fn a_memory_node_in_a_browser() {
    let mut node = start("memory-node --listen=tcp://127.0.0.1:0 --memory=64MiB --admin=127.0.0.1:0");
    let out = node.until(|out| out.contains("\nadmin http://"));
    let (page, said) = browse(out.lines().find_map(|line| line.strip_prefix("admin ")).unwrap());
    assert!(!said.contains("CONSOLE"), "{said}");
    assert!(between(&page, "id=\"levels-card\"", ">").contains("hidden"));
    assert!(!between(&page, "id=\"nodes-card\"", ">").contains("hidden"));
    assert!(page.contains("Memory handed out"), "{page}");
    node.signal(Signal::TERM);
    node.wait_stopped();
}
