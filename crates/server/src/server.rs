//! A running server.

use crate::acl::users::Users;
use crate::commands::command::Registry;
use crate::commands::table;
use crate::execute::Executor;
use crate::keyspace::failure::Failure;
use crate::keyspace::spaces::is_of_others;
use crate::network::event_loop::{Door, EVENTS, EventLoop, MAIL};
use crate::observer::Observer;
use crate::records::store::Records;
use crate::state::clients;
use crate::state::config::{Config, ConfigFile, NO_TLS_TO_OTHERS, TLS_CLUSTER};
use crate::state::mailbox::{Mailbox, Message};
use crate::state::shared::{MAX_STEPS, Shared};
use forebay::ErrorKind;
use forebay::admission::Admission;
use forebay_env::thread::{JoinHandle, spawn};
use forebay_env::{Clock, SystemClock};
use mio::net::TcpListener;
use mio::{Poll, Waker};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// Most threads that serve connections.
const MAX_THREADS: usize = 64;
/// Threads that wait for servers to which keys move.
const MIGRATING_THREADS: usize = 4;

/// How a server behaves.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Where to listen; port 0 lets the system choose.
    pub address: SocketAddr,
    /// Where to listen for connections within TLS, and how.
    pub tls: Option<TlsOptions>,
    /// Threads that serve connections, from 1 to 64.
    pub threads: usize,
    /// The password that clients must give; `None` for no password.
    pub password: Option<Vec<u8>>,
    /// The file of users, which must exist.
    pub users_file: Option<PathBuf>,
    /// Parameters of `CONFIG SET` with their values; if a parameter occurs twice, the last one counts.
    pub parameters: Vec<(String, String)>,
    /// The file that `CONFIG REWRITE` changes.
    pub config_file: Option<Arc<dyn ConfigFile>>,
    /// What clients of another server have set, whose place this one takes. It replaces all options about users,
    /// passwords and parameters.
    pub kept: Option<Kept>,
    /// Whether to refuse connections from other machines while no password is set.
    pub protected: bool,
    /// Most steps of a command, such as elements that it reads, in a thread where other clients wait. A command that
    /// takes more continues in another thread.
    pub max_steps: u64,
    /// The allocator of the process, which `INFO` names; `None` when that is not known.
    pub allocator: Option<&'static str>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 6379)),
            tls: None,
            threads: 1,
            password: None,
            users_file: None,
            parameters: Vec::new(),
            config_file: None,
            kept: None,
            protected: true,
            max_steps: MAX_STEPS,
            allocator: None,
            clock: SystemClock::shared(),
        }
    }
}

impl ServerOptions {
    /// Checks everything that needs neither the store nor the address, and reads the file of users.
    ///
    /// # Errors
    /// `Invalid`: the number of threads is out of range, TLS has no certificate, a parameter cannot have its value, or
    /// the file of users is missing or makes no sense.
    pub fn check(&self) -> Result<(), Error> {
        self.begun(&table::registry()).map(|_| ())
    }

    /// Returns the users and the parameters with which a server begins, if the options are valid.
    fn begun(&self, registry: &Registry) -> Result<Kept, Error> {
        let invalid = |message| Error { kind: ErrorKind::Invalid, message };
        if !(1..=MAX_THREADS).contains(&self.threads) {
            return Err(invalid(format!("the number of threads must be from 1 to {MAX_THREADS}")));
        }
        if self.tls.as_ref().is_some_and(|tls| !tls.admission.encrypts()) {
            return Err(invalid("TLS needs a certificate and its key".to_owned()));
        }
        if let Some(kept) = &self.kept {
            return Ok(kept.clone());
        }
        let mut config = Config::default();
        let file = self.users_file.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        config.set_at_start("aclfile", file);
        config.set_at_start("protected-mode", if self.protected { "yes" } else { "no" });
        config.set_at_start("requirepass", self.password.clone().unwrap_or_default());
        config.begin_with(&self.parameters).map_err(invalid)?;
        let speaks_to_others = self.tls.as_ref().is_some_and(|tls| tls.admission.as_client().is_some());
        if config.get(TLS_CLUSTER) == "yes" && !speaks_to_others {
            return Err(invalid(format!("{TLS_CLUSTER}: {NO_TLS_TO_OTHERS}")));
        }
        config.keep_in(self.config_file.clone());
        let users = Users::new(table::catalogue(registry), self.users_file.clone()).map_err(invalid)?;
        if let Some(password) = &self.password {
            users.set_default_password(password);
        }
        Ok(Kept { users: Arc::new(users), config: Arc::new(config) })
    }
}

/// What clients of a server have set: users, and parameters.
#[derive(Debug, Clone)]
pub struct Kept {
    users: Arc<Users>,
    config: Arc<Config>,
}

/// How a server speaks TLS.
#[derive(Debug, Clone)]
pub struct TlsOptions {
    /// Where to listen; port 0 lets the system choose.
    pub address: SocketAddr,
    /// The certificates. [`Admission::reload`] changes what later connections must prove.
    pub admission: Arc<Admission>,
    /// Whether TLS is required: then the server does not listen at its other address.
    pub is_required: bool,
}

/// Why a server could not start or stop. [`Error::kind`] says what the caller must do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

impl Error {
    /// What the caller must do.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    pub(crate) const fn new(kind: ErrorKind, message: String) -> Self {
        Self { kind, message }
    }

    pub(crate) fn io(what: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Self { kind: ErrorKind::Io, message: format!("{what}: {error}") }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// A server that runs. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    tls_address: Option<SocketAddr>,
    mailboxes: Vec<Arc<Mailbox>>,
    threads: Vec<JoinHandle<Result<(), Error>>>,
}

impl Server {
    /// Serves a store, or a shared tree.
    ///
    /// # Errors
    /// Those of [`ServerOptions::check`]; `Io` when the address is taken, or the system refuses threads; `Invalid` when
    /// the store has keys that no server has written; those of the store.
    pub fn start(store: impl Into<Records>, options: ServerOptions) -> Result<Self, Error> {
        let registry = table::registry();
        let Kept { users, config } = options.begun(&registry)?;
        let mut plain = None;
        if !options.tls.as_ref().is_some_and(|tls| tls.is_required) {
            plain = Some(listen(options.address)?);
        }
        let mut tls = None;
        if let Some(TlsOptions { address, admission, .. }) = options.tls {
            let (listener, address) = listen(address)?;
            tls = Some((listener, admission, address));
        }
        let tls_address = tls.as_ref().map(|(.., address)| *address);
        let address = plain.as_ref().map(|(_, address)| *address).or(tls_address).unwrap_or(options.address);
        let mut shared = shared(store.into(), users, address, options.threads, options.clock)?;
        shared.config = config;
        shared.tls = tls.as_ref().map(|(_, admission, _)| Arc::clone(admission));
        shared.max_steps = options.max_steps;
        shared.allocator = options.allocator;
        let wanted = u64::try_from(shared.config.number("maxclients")).unwrap_or(0);
        let possible = clients::possible(wanted);
        if possible < wanted {
            tracing::warn!(
                maxclients = possible,
                "fewer clients can be connected: the system lets too few files be open"
            );
            shared.config.set_at_start("maxclients", possible.to_string());
        }
        let port = |address: Option<SocketAddr>| address.map_or(0, |address| address.port()).to_string();
        shared.config.set_at_start("port", port(plain.as_ref().map(|(_, address)| *address)));
        shared.config.set_at_start("tls-port", port(tls_address));
        shared.config.set_at_start("bind", address.ip().to_string());
        let mut server = Self { shared: Arc::new(shared), tls_address, mailboxes: Vec::new(), threads: Vec::new() };
        let door = Door {
            plain: plain.map(|(listener, _)| listener),
            tls: tls.map(|(listener, admission, _)| (listener, admission)),
            threads: Vec::new(),
            next: 0,
        };
        server.start_threads(registry, door, options.threads)?;
        Ok(server)
    }

    fn start_threads(&mut self, registry: Registry, door: Door, threads: usize) -> Result<(), Error> {
        let registry = Arc::new(registry);
        let failed = || Error::io("preparing to wait for connections");
        let mut polls = Vec::new();
        for _ in 0..threads {
            let poll = Poll::new().map_err(failed())?;
            let waker = Waker::new(poll.registry(), MAIL).map_err(failed())?;
            self.mailboxes.push(Arc::new(Mailbox::new(waker)));
            polls.push(poll);
        }
        let mut door = Some(Door { threads: self.mailboxes.clone(), ..door });
        for (number, (poll, mailbox)) in polls.into_iter().zip(&self.mailboxes).enumerate() {
            let (shared, registry) = (Arc::clone(&self.shared), Arc::clone(&registry));
            let event_loop =
                EventLoop::new(shared, registry, poll, Arc::clone(mailbox), door.take()).map_err(failed())?;
            let serve = move || event_loop.run(EVENTS).map_err(Error::io("waiting for connections"));
            let thread = spawn(format!("forebay-serve-{number}"), serve);
            self.threads.push(thread.map_err(Error::io("starting a thread"))?);
        }
        let mut start = |name: String, work: fn(&Executor<'_>)| {
            let (shared, registry) = (Arc::clone(&self.shared), Arc::clone(&registry));
            let thread = spawn(name, move || {
                let counters = shared.counts.of_thread(registry.numbers());
                work(&Executor { shared: &shared, registry: &registry, counters: &counters });
                Ok(())
            });
            thread.map(|thread| self.threads.push(thread)).map_err(Error::io("starting a thread"))
        };
        start("forebay-scripts".to_owned(), |executor| executor.carry_out_jobs())?;
        for number in 0..MIGRATING_THREADS {
            start(format!("forebay-migrate-{number}"), |executor| executor.carry_out_migrations())?;
        }
        Ok(())
    }

    /// Returns where the server listens; if it requires TLS, where it listens within TLS.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// Where the server listens for connections within TLS.
    #[must_use]
    pub const fn tls_address(&self) -> Option<SocketAddr> {
        self.tls_address
    }

    /// Whether the server serves: no client has asked it to stop, and none of its threads has ended.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.shared.is_stopping() && !self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Returns why the served records are of no use any more, if another process has taken them over, or this process
    /// has lost a shared tree. The server continues until it is stopped, and refuses all writes.
    #[must_use]
    pub fn ended(&self) -> Option<Error> {
        let ended = self.shared.store.ended()?;
        Some(Error { kind: ended.kind(), message: ended.to_string() })
    }

    /// Returns what clients have set, for a server that takes the place of this one.
    #[must_use]
    pub fn kept(&self) -> Kept {
        Kept { users: Arc::clone(&self.shared.users), config: Arc::clone(&self.shared.config) }
    }

    /// Returns an observer of the running server.
    #[must_use]
    pub fn observer(&self) -> Observer {
        Observer::of(Arc::clone(&self.shared))
    }

    /// Ends all connections and closes the store.
    ///
    /// # Errors
    /// Those of closing the store; `Io` when a thread of the server has panicked, or could not wait for connections.
    pub fn stop(mut self) -> Result<(), Error> {
        let stopped = self.stop_threads();
        let closed = self.shared.store.close();
        closed.map_err(|error| Error { kind: error.kind(), message: error.to_string() })?;
        stopped
    }

    fn stop_threads(&mut self) -> Result<(), Error> {
        self.shared.stop();
        self.mailboxes.iter().for_each(|mailbox| mailbox.send(Message::Stop));
        let (mut panicked, mut stopped) = (0_usize, Ok(()));
        for thread in self.threads.drain(..) {
            match thread.join() {
                Ok(ended) => stopped = stopped.and(ended),
                Err(_) => panicked += 1,
            }
        }
        if panicked == 0 {
            return stopped;
        }
        tracing::error!(threads = panicked, "threads of the server panicked");
        Err(Error::new(ErrorKind::Io, "a thread of the server panicked".to_owned()))
    }
}

/// Makes what connections to this address share. A store that no server has written is left as it is.
///
/// # Errors
/// `Invalid` for such a store; those of the store.
pub(crate) fn shared(
    store: Records,
    users: Arc<Users>,
    address: SocketAddr,
    threads: usize,
    clock: Arc<dyn Clock>,
) -> Result<Shared, Error> {
    let failed = |failure: Failure| Error { kind: failure.kind(), message: failure.message().to_owned() };
    if is_of_others(&store).map_err(failed)? {
        let message = "the database has keys that forebay serve has not written: clients would not see them, or a part of them would \
                       be taken for keys of clients. Name another database, or an empty one";
        return Err(Error { kind: ErrorKind::Invalid, message: message.to_owned() });
    }
    Shared::new(store, users, address, threads, clock).map_err(failed)
}

fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), Error> {
    let listener = TcpListener::bind(address).map_err(Error::io(format_args!("listening on {address}")))?;
    let address = listener.local_addr().map_err(Error::io("listening"))?;
    Ok((listener, address))
}

impl Drop for Server {
    fn drop(&mut self) {
        // It was logged.
        let _ = self.stop_threads();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::path::Path;

    /// A file of parameters that makes the thread panic that writes it.
    #[derive(Debug)]
    struct Broken;

    impl ConfigFile for Broken {
        fn path(&self) -> &Path {
            Path::new("broken")
        }

        fn keep(&self, _: &[(&str, &[u8])]) -> Result<(), String> {
            panic!("this test needs a panic")
        }
    }

    /// A server of a new store, with these options, at a free port.
    fn start(options: ServerOptions) -> Server {
        let of_store = forebay::Options { background_threads: 0, ..forebay::Options::default() };
        let store = forebay::Store::embedded(64 << 20, of_store).unwrap();
        Server::start(store, ServerOptions { address: SocketAddr::from(([127, 0, 0, 1], 0)), ..options }).unwrap()
    }

    /// Returns the replies to these requests, and to the one that ends the connection.
    fn ask(server: &Server, requests: &str) -> String {
        let (mut client, mut replies) = (TcpStream::connect(server.address()).unwrap(), String::new());
        client.write_all(format!("{requests}\r\nQUIT\r\n").as_bytes()).unwrap();
        client.read_to_string(&mut replies).unwrap();
        replies
    }

    /// Otherwise a server that opens its database again would let in whoever connects.
    #[test]
    fn what_clients_have_set_is_there_for_the_next_server() {
        let options =
            ServerOptions { parameters: vec![("timeout".to_owned(), "300".to_owned())], ..ServerOptions::default() };
        let first = start(options.clone());
        let set = "ACL SETUSER guest on nopass +@all\r\nCONFIG SET timeout 500 requirepass secret";
        assert_eq!(ask(&first, set), "+OK\r\n".repeat(3));
        let kept = Some(first.kept());
        first.stop().unwrap();
        // Only what is taken over is not looked at again.
        let unread = ServerOptions { kept: kept.clone(), users_file: Some("/nowhere/users".into()), ..options.clone() };
        assert_eq!(unread.check(), Ok(()));
        assert!(ServerOptions { threads: 0, ..unread }.check().is_err());
        let next = start(ServerOptions { kept, ..options });
        let replies = ask(&next, "PING\r\nAUTH secret\r\nCONFIG GET timeout\r\nACL USERS");
        let end = "+OK\r\n*2\r\n$7\r\ntimeout\r\n$3\r\n500\r\n*2\r\n$7\r\ndefault\r\n$5\r\nguest\r\n+OK\r\n";
        assert!(replies.starts_with("-NOAUTH") && replies.ends_with(end), "{replies}");
    }

    /// Otherwise its clients would wait for a thread that no longer is, and nobody would start another server.
    #[test]
    fn a_server_whose_thread_has_panicked_has_ended() {
        let config_file = Some(Arc::new(Broken) as Arc<dyn ConfigFile>);
        let server = start(ServerOptions { config_file, ..ServerOptions::default() });
        assert!(server.is_running());
        let mut client = TcpStream::connect(server.address()).unwrap();
        client.write_all(b"SET k 1\r\nCONFIG REWRITE\r\n").unwrap();
        // The connection ends with its thread, however that looks to the system.
        let _ = client.read_to_end(&mut Vec::new());
        while server.is_running() {
            std::thread::yield_now();
        }
        let error = server.stop().unwrap_err();
        assert!(error.kind() == ErrorKind::Io && error.to_string().contains("panicked"), "{error}");
    }

    /// Otherwise whoever watches the server would take it for stopped.
    #[test]
    fn a_server_that_cannot_wait_for_connections_says_so_at_its_end() {
        let mut server = start(ServerOptions::default());
        let poll = Poll::new().unwrap();
        let mailbox = Arc::new(Mailbox::new(Waker::new(poll.registry(), MAIL).unwrap()));
        let registry = Arc::new(table::registry());
        let event_loop = EventLoop::new(Arc::clone(&server.shared), registry, poll, mailbox, None).unwrap();
        // The system refuses to report no events at a time.
        let serve = move || event_loop.run(0).map_err(Error::io("waiting for connections"));
        server.threads.push(spawn("forebay-serve-nobody", serve).unwrap());
        while server.is_running() {
            std::thread::yield_now();
        }
        let error = server.stop().unwrap_err();
        assert!(error.kind() == ErrorKind::Io && error.to_string().contains("waiting for connections: "), "{error}");
    }

    #[test]
    fn options_are_looked_at_before_anything_is_opened() {
        let usual = ServerOptions::default();
        assert_eq!(usual.check(), Ok(()));
        let with = |name: &str, value: &str| {
            let parameters = vec![(name.to_owned(), value.to_owned())];
            ServerOptions { parameters, ..usual.clone() }
        };
        for (options, why) in [
            (ServerOptions { threads: 0, ..usual.clone() }, "from 1 to 64"),
            (ServerOptions { threads: 100_000, ..usual.clone() }, "from 1 to 64"),
            (with("timeout", "x"), "'timeout'"),
            (with("tls-cluster", "yes"), "no TLS"),
            (ServerOptions { users_file: Some("/nowhere/users".into()), ..usual }, "/nowhere/users"),
        ] {
            let error = options.check().unwrap_err();
            assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(why), "{error}");
        }
    }
}
