//! A real Redis on loopback, started at a free port and ended by its process id.

use forebay_env::{Clock, Random, SystemClock};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long it may take to start: builds share the machine.
const PATIENCE: Duration = Duration::from_secs(60);
const INTERVAL: Duration = Duration::from_millis(20);

/// A Redis that runs until this is dropped.
#[derive(Debug)]
pub struct Redis {
    child: Child,
    /// Its port on 127.0.0.1.
    pub port: u16,
    folder: PathBuf,
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Redis {
    /// Starts it, empty and without files.
    ///
    /// # Panics
    /// When it is not installed or does not start.
    #[must_use]
    pub fn start() -> Self {
        let number = Random::secret().expect("the system has randomness") as u64;
        let folder = std::env::temp_dir().join(format!("forebay-redis-{number:016x}"));
        std::fs::create_dir_all(&folder).expect("a temporary folder can be made");
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        drop(listener);
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"]);
        command.arg(&folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("redis-server cannot be started ({error}): run `cargo xtask setup`"));
        let mut redis = Self { child, port, folder };
        let clock = SystemClock::new();
        while !is_served(port) {
            assert!(Duration::from_nanos(clock.now()) < PATIENCE, "redis-server does not answer");
            let ended = redis.child.try_wait().expect("its state can be asked for");
            assert!(ended.is_none(), "redis-server ended at once ({ended:?})");
            clock.sleep(INTERVAL);
        }
        redis
    }
}

/// Whether a server listens. While none does, the system may connect a socket with itself.
fn is_served(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok_and(|stream| stream.local_addr().ok() != stream.peer_addr().ok())
}
