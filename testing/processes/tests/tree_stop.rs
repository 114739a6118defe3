//! A client that is stopped past its lease, over each back end between processes.

use forebay::{ClientOptions, ErrorKind, MemoryClient, NodeAddress, Tree, TreeOptions};
use forebay_env::{Clock, SystemClock};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// The tree of the clients, and their operations.
const TREE: &str = "tree-kill";
const OPERATIONS: &str = "1000000000";

/// A process, which is killed when this is dropped.
struct Process(Child);

impl Process {
    /// Starts a process, and returns what it says once it is ready.
    fn start(arguments: &[&str]) -> (Self, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tree-kill"));
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Self(command.spawn().unwrap());
        let mut line = String::new();
        BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (process, line.trim().strip_prefix("ready").unwrap().trim().to_owned())
    }

    fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([name, &self.0.id().to_string()]).status().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn session(address: &NodeAddress) -> [Arc<MemoryClient>; 1] {
    let options = ClientOptions { foreign_reads: true, ..ClientOptions::default() };
    [MemoryClient::connect(forebay::connect(address).unwrap(), "test", options).unwrap()]
}

/// A key of another client, which the stopped client may read before it notices that it was stopped. Such a short value
/// identifies no writer.
const KEY: [u8; 8] = 1_u64.to_be_bytes();

/// Others join and continue while it is stopped, and it is fenced when it continues.
#[test]
fn a_client_that_is_stopped_is_in_nobodys_way() {
    let clock = SystemClock::new();
    let folder = std::env::temp_dir().join(format!("forebay-tree-stop-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let shared_memory = format!("shm:{}", folder.join("node").display());
    for listen in [&shared_memory, "tcp://127.0.0.1:0"] {
        let (_node, address) = Process::start(&["node", listen, "268435456", "2000"]);
        let parsed: NodeAddress = address.parse().unwrap();
        let own = session(&parsed);
        let mut observer = Tree::create(&own, TREE, TreeOptions::default()).unwrap().client().unwrap();
        let journal = folder.join("journal");
        let journal = journal.to_str().unwrap();
        let (mut client, _) = Process::start(&["client", &address, journal, "0", "0", "500", OPERATIONS, "1"]);
        while observer.verify().unwrap().keys == 0 {
            clock.sleep(Duration::from_millis(1));
        }
        client.signal("-STOP");
        while own[0].node_statistics().unwrap().lapsed_sessions == 0 {
            clock.sleep(Duration::from_millis(10));
        }
        let sessions = session(&parsed);
        let mut new = Tree::open(&sessions, TREE, TreeOptions::default()).unwrap().client().unwrap();
        new.put(&KEY, b"one").unwrap();
        observer.put(&KEY, b"two").unwrap();
        assert_eq!(new.get(&KEY).unwrap().unwrap(), b"two", "{listen}");
        client.signal("-CONT");
        assert!(!client.0.wait().unwrap().success());
        let mut said = String::new();
        client.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(said.contains("lapsed"), "{listen}: {said}");
        new.verify().unwrap();
        assert_eq!(own[0].open_store("none").unwrap_err().kind(), ErrorKind::NotFound, "the node serves");
        std::fs::remove_file(folder.join("journal")).unwrap();
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
