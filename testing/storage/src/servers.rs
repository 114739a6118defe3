//! Real servers on loopback. The test that needs a server starts it at a free port, and ends it by its process id.
//!
//! A missing server is a failure that says how to install it, not a skipped test.

use forebay_env::{Clock, Random, SystemClock};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The command that installs the servers.
pub const SETUP: &str = "cargo xtask setup";
/// The command that installs Azurite.
const AZURE_SETUP: &str = "cargo xtask storage-azure";

/// How long a server may take to start: builds share the machine.
const PATIENCE: Duration = Duration::from_secs(180);
const INTERVAL: Duration = Duration::from_millis(50);
/// How long a server may take to answer once it is connected, before it is asked again.
const ANSWER: Duration = Duration::from_secs(10);

/// A server that runs until this is dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// Port on 127.0.0.1.
    pub port: u16,
    folder: Option<PathBuf>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

/// The repository's folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).map(Path::to_path_buf).unwrap_or_default()
}

/// Where `cargo xtask setup` puts servers.
fn installed() -> PathBuf {
    root().join("target/servers")
}

/// A new folder for this run, which the caller removes.
///
/// # Panics
/// When it cannot be made.
#[must_use]
pub fn scratch(what: &str) -> PathBuf {
    let number = Random::secret().expect("the system has randomness") as u64;
    let folder = std::env::temp_dir().join(format!("forebay-{what}-{number:016x}"));
    std::fs::create_dir_all(&folder).expect("a temporary folder can be made");
    folder
}

/// Unused ports. They are below those that systems give to connections, because a server takes a while to bind all of its
/// ports, and other tests connect meanwhile.
fn free_ports<const N: usize>() -> [u16; N] {
    let mut random = Random::seeded(Random::secret().expect("the system has randomness") as u64);
    let mut port = || 10_000 + random.below(20_000) as u16;
    let mut free = || std::iter::repeat_with(&mut port).find_map(|port| TcpListener::bind(("127.0.0.1", port)).ok());
    // All are held until all are known, so no two are the same.
    let held = [(); N].map(|()| free().expect("a port is free"));
    held.each_ref().map(|listener| listener.local_addr().expect("it is bound").port())
}

fn start(command: &mut Command, output: Stdio, what: &str) -> Child {
    command.stdin(Stdio::piped()).stdout(output).stderr(Stdio::null());
    command.spawn().unwrap_or_else(|error| panic!("{what} cannot be started ({error}): run `{SETUP}`"))
}

/// moto's S3, whose objects are in memory, with a bucket `forebay`.
///
/// # Panics
/// When it is not installed or does not start.
#[must_use]
pub fn moto() -> Server {
    let python = python_program("s3", "python");
    let [port] = free_ports();
    let mut command = Command::new(python);
    command.args([concat!(env!("CARGO_MANIFEST_DIR"), "/servers/moto_s3.py"), &port.to_string()]);
    let child = start(command.env("MOTO_PORT", port.to_string()), Stdio::null(), "moto's S3");
    Server { child, port, folder: None }.with_bucket("moto's S3", &S3_BUCKET)
}

/// SeaweedFS, whose objects are in a temporary folder, as S3 with a bucket `forebay`. It needs no key.
///
/// # Panics
/// When it is not installed or does not start.
#[must_use]
pub fn seaweedfs() -> Server {
    start_seaweedfs(scratch("seaweedfs"), &[]).0.with_bucket("SeaweedFS", &S3_BUCKET)
}

/// Name and secret of the key that [`seaweedfs_with_a_key`] asks for.
pub const SEAWEEDFS_KEY: (&str, &str) = ("owner", "the owner's secret");

/// As [`seaweedfs`], but the server checks that each request is signed with its key.
///
/// # Panics
/// As [`seaweedfs`].
#[must_use]
pub fn seaweedfs_with_a_key() -> Server {
    let folder = scratch("seaweedfs");
    let (name, secret) = SEAWEEDFS_KEY;
    let keys = format!(
        r#"{{"identities":[{{"name":"owner","credentials":[{{"accessKey":"{name}","secretKey":"{secret}"}}],
            "actions":["Admin","Read","Write","List"]}}]}}"#
    );
    let file = folder.join("keys.json");
    std::fs::write(&file, keys).expect("a temporary file can be written");
    let (server, files_port) = start_seaweedfs(folder, &[format!("-s3.config={}", file.display())]);
    // Its file interface needs no key, and a bucket is a folder there. S3 refuses requests without a key.
    let bucket = Question { request: "POST /buckets/forebay/", header: "Accept: */*", body: "", answers: &["201"] };
    let refusal = Question { request: "GET /forebay/object", header: "Accept: */*", body: "", answers: &["403"] };
    let port = server.port;
    server.until_answered("SeaweedFS", files_port, &bucket).until_answered("SeaweedFS", port, &refusal)
}

/// Starts SeaweedFS with more arguments. Returns it with the port of its files.
fn start_seaweedfs(folder: PathBuf, more: &[String]) -> (Server, u16) {
    let program = python_program("seaweedfs", "weed");
    let ports: [u16; 8] = free_ports();
    let parts = ["master.port", "volume.port", "filer.port", "s3.port"];
    let parts = parts.into_iter().flat_map(|part| [part.to_owned(), format!("{part}.grpc")]);
    let mut command = Command::new(program);
    command.args(["server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3", "-master.telemetry=false"]);
    // Turns off unneeded parts; sets volumes of 64 MB, because it makes several at once.
    command.args(["-s3.port.iceberg=0", "-s3.port.lance=0", "-master.volumeSizeLimitMB=64", "-volume.max=64"]);
    command.arg(format!("-dir={}", folder.display()));
    command.args(parts.zip(ports).map(|(part, port)| format!("-{part}={port}"))).args(more);
    let [.., files_port, _, port, _] = ports;
    let child = start(&mut command, Stdio::null(), "SeaweedFS");
    (Server { child, port, folder: Some(folder) }, files_port)
}

/// Google Cloud Storage, simulated by a program of these tests, with objects in memory and a bucket `forebay`.
///
/// # Panics
/// When it does not start.
#[must_use]
pub fn google() -> Server {
    let [port] = free_ports();
    let mut command = Command::new("python3");
    command.args([concat!(env!("CARGO_MANIFEST_DIR"), "/servers/google.py"), &port.to_string()]);
    let child = start(&mut command, Stdio::null(), "the store like Google's");
    let bucket = Question { request: "PUT /forebay", header: "Authorization: Bearer test", body: "", answers: &MADE };
    Server { child, port, folder: None }.with_bucket("the store like Google's", &bucket)
}

/// Account of [`azurite`] and its key.
pub const AZURITE_ACCOUNT: (&str, &str) = ("forebay", "Zm9yZWJheSdzIHRlc3RzLCBvbiBsb29wYmFjayBvbmx5");

/// Azure Blob Storage, simulated by Azurite, with objects in memory and a container `forebay`.
///
/// # Panics
/// When it is not installed or does not start.
#[must_use]
pub fn azurite() -> Server {
    let program = installed_program("azure/node_modules/.bin/azurite-blob", AZURE_SETUP);
    let [port] = free_ports();
    let folder = scratch("azurite");
    let mut command = Command::new(program);
    command.args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string(), "--inMemoryPersistence"]);
    command.args(["--silent", "--disableTelemetry", "--skipApiVersionCheck"]);
    let (account, key) = AZURITE_ACCOUNT;
    command.env("AZURITE_ACCOUNTS", format!("{account}:{key}")).current_dir(&folder);
    let child = start(&mut command, Stdio::null(), "Azurite");
    // An account's shared access signature by its key, for the whole service, without an end.
    let container = Question {
        request: "PUT /forebay/forebay?restype=container&sv=2021-08-06&ss=b&srt=sco&sp=rwdlac&se=2099-01-01T00%3A00%3A00Z\
                  &spr=https%2Chttp&sig=Pj%2BO0ejfNaz%2Bnh2GAWRQqsymciCk7n4VhqwNTU0Nrpg%3D",
        header: "x-ms-version: 2021-08-06",
        body: "",
        answers: &MADE,
    };
    Server { child, port, folder: Some(folder) }.with_bucket("Azurite", &container)
}

/// A program of a Python package that `cargo xtask setup` puts into this folder.
fn python_program(folder: &str, name: &str) -> PathBuf {
    installed_program(&format!("{folder}/bin/{name}"), SETUP)
}

/// A program that a command puts among the servers.
fn installed_program(path: &str, command: &str) -> PathBuf {
    let program = installed().join(path);
    assert!(program.exists(), "there is no {}: run `{command}`", program.display());
    program
}

/// A request that is repeated until the service answers as expected.
struct Question {
    request: &'static str,
    header: &'static str,
    body: &'static str,
    /// The status codes that are expected.
    answers: &'static [&'static str],
}

/// A bucket was made.
const MADE: [&str; 2] = ["200", "201"];

const S3_BUCKET: Question = Question {
    request: "PUT /forebay",
    header: "Authorization: AWS4-HMAC-SHA256 Credential=test/20200101/us-east-1/s3/aws4_request, SignedHeaders=host, \
             Signature=0",
    body: "",
    answers: &MADE,
};

impl Server {
    /// Waits until it has made a bucket.
    fn with_bucket(self, what: &str, creation: &Question) -> Self {
        let port = self.port;
        self.until_answered(what, port, creation)
    }

    /// Waits until it answers at this port as expected.
    fn until_answered(mut self, what: &str, port: u16, question: &Question) -> Self {
        let clock = SystemClock::new();
        while !is_answered(port, question) {
            assert!(Duration::from_nanos(clock.now()) < PATIENCE, "{what} does not answer");
            let ended = self.child.try_wait().expect("its state can be asked for");
            assert!(ended.is_none(), "{what} ended at once ({ended:?}): run `{SETUP}` again");
            clock.sleep(INTERVAL);
        }
        self
    }
}

/// Asks, if the server answers in time.
fn is_answered(port: u16, Question { request, header, body, answers }: &Question) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let request = format!(
        "{request} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{header}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n\
         {body}",
        body.len()
    );
    // While nobody listens, the system may connect a socket with itself, if the port is among those that it gives to
    // connections.
    let is_server = stream.local_addr().ok() != stream.peer_addr().ok();
    let mut reply = String::new();
    is_server
        && stream.set_read_timeout(Some(ANSWER)).is_ok()
        && stream.write_all(request.as_bytes()).is_ok()
        && stream.read_to_string(&mut reply).is_ok()
        && reply.split_whitespace().nth(1).is_some_and(|status| answers.contains(&status))
}

/// An HDFS of one NameNode and one DataNode, whose files are in a temporary folder.
///
/// # Panics
/// When it is not installed or does not start.
#[must_use]
pub fn hdfs() -> Server {
    let jars = installed().join("hdfs");
    let is_there = std::fs::read_dir(&jars).is_ok_and(|mut entries| entries.next().is_some());
    assert!(is_there, "HDFS is not at {}: run `{SETUP}`", jars.display());
    let folder = scratch("hdfs");
    let [port] = free_ports();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("servers/hdfs/Cluster.java");
    let mut command = Command::new("java");
    // It is killed in the end, and would leave its files in the system's temporary folder.
    command.arg(format!("-Djava.io.tmpdir={}", folder.display()));
    command.args(["-Xmx256m", "-cp"]).arg(jars.join("*")).arg(source).arg(port.to_string()).arg(&folder);
    let child = start(command.current_dir(&folder), Stdio::piped(), "HDFS (java)");
    let mut server = Server { child, port, folder: Some(folder) };
    let output = server.child.stdout.take().expect("it is piped");
    let (said, told) = std::sync::mpsc::channel();
    let wait = move || {
        let is_ready = BufReader::new(output).lines().map_while(Result::ok).any(|line| line == "ready");
        let _ = said.send(is_ready);
    };
    drop(forebay_env::thread::spawn("hdfs-output", wait).expect("a thread starts"));
    let is_ready = told.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("HDFS was not ready within {PATIENCE:?}"));
    assert!(is_ready, "HDFS ended before it was ready: run `{SETUP}` again");
    server
}
