//! A memory node, an honest tenant who uses it, and the address at which a hostile one reaches it.
//!
//! The honest one opens the first link, by which the node knows it. Later links belong to the hostile one, except
//! those that the arena opens itself.

use forebay_base::ErrorKind;
use forebay_env::{Clock, SystemClock};
use forebay_fabric::{EndpointOptions, Link, Listener, tcp};
use forebay_memory_client::{ClientOptions, Error, ExtentId, ExtentRange, MemoryClient, Purpose, ShardHandle, ShardId};
use forebay_memory_node::{Handle, Identify, Identity, Limits, MemoryNode, Options, TenantOptions, TenantsOptions};
use forebay_proto::job_kind;
use forebay_proto::replies::TenantFigures;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long the honest one waits for a call: longer than any session's lease, so that a slow machine causes no
/// failure.
const PATIENCE: Duration = Duration::from_secs(60);

/// A node under attack.
#[derive(Debug)]
pub struct Arena {
    /// The node.
    pub node: Handle,
    is_honest: Arc<AtomicBool>,
    /// The honest one's session.
    pub victim: Arc<MemoryClient>,
    /// Its shard.
    pub shard: ShardHandle,
    kept: ExtentRange,
}

impl Arena {
    /// Starts a node of 64 MiB with one thread for jobs.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(lease: Duration) -> Self {
        let is_honest = Arc::new(AtomicBool::new(true));
        let asked = Arc::clone(&is_honest);
        let name = |name: &str| Identity::new(name).expect("a name");
        let (honest, hostile) = (name("secret:honest"), name("secret:hostile"));
        let known = vec![
            TenantOptions::new("honest", vec![honest.clone()]),
            TenantOptions {
                limits: Limits { memory_bytes: Some(32 << 20), ..Limits::default() },
                ..TenantOptions::new("hostile", vec![hostile.clone()])
            },
        ];
        let identify = Identify::new(move |_| match asked.load(Ordering::SeqCst) {
            true => honest.clone(),
            false => hostile.clone(),
        });
        let options = Options {
            extent_bytes: Some(2 << 20),
            lease,
            tenants: TenantsOptions { known, others: Limits::default() },
            identify,
            ..Options::with_memory(64 << 20)
        };
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = tcp::listen(any, 1, tcp::Options::default()).expect("a listener");
        let address = listener.address();
        let node = MemoryNode::start(Box::new(listener), options).expect("a node");
        let victim = session(&address).expect("a session");
        is_honest.store(false, Ordering::SeqCst);
        let shard = victim.create_store("db", b"").and_then(|store| store.acquire_shard(ShardId(0), false));
        let shard = shard.expect("a shard");
        let extent = victim.lease(1, Purpose::Flush).expect("an extent")[0];
        let kept = ExtentRange { extent, offset: 64, length: 64 };
        let arena = Self { node, is_honest, victim, shard, kept };
        arena.write(&[7; 64]);
        arena
    }

    /// Where the hostile one connects.
    #[must_use]
    pub fn address(&self) -> &str {
        self.node.address()
    }

    fn write(&self, bytes: &[u8]) {
        let mut endpoint = self.victim.link().endpoint(EndpointOptions::default()).expect("an endpoint");
        endpoint
            .write(self.victim.resolve(self.kept.extent, self.kept.offset).expect("a key"), bytes)
            .expect("a write");
    }

    /// Makes the honest one do everything once. Returns the number of calls.
    ///
    /// # Panics
    /// When any of these calls fails.
    pub fn use_it(&self) -> u64 {
        self.victim.renew().expect("its session is renewed");
        let leased = self.lease();
        self.victim.return_extents(&leased).expect("it gives memory back");
        self.shard.set_root(b"root").expect("it sets its root");
        let mut endpoint = self.victim.link().endpoint(EndpointOptions::default()).expect("an endpoint");
        let mut found = [0; 64];
        endpoint
            .read(self.victim.resolve(self.kept.extent, self.kept.offset).expect("a key"), &mut found)
            .expect("it reads");
        assert_eq!(found, [7; 64], "its bytes are as they were");
        // Arguments that travel with the request, and arguments that are pulled.
        for length in [100, 1500] {
            self.job(length);
        }
        let stores = self.victim.list_stores().expect("it lists its stores");
        assert_eq!(stores.len(), 1);
        7
    }

    fn lease(&self) -> Vec<ExtentId> {
        once_cleaned("it gets memory", || self.victim.lease(1, Purpose::Flush))
    }

    fn job(&self, length: usize) {
        let arguments = vec![5; length];
        let submit = || self.shard.submit_job(length as u64, job_kind::ECHO, &arguments, PATIENCE);
        let result = once_cleaned("its job runs", submit);
        let (range, echoed) = result.split_at(20);
        assert_eq!(echoed, arguments);
        let word = |at: usize| u64::from_le_bytes(range[at..at + 8].try_into().expect("eight bytes"));
        let extent = u32::from_le_bytes(range[..4].try_into().expect("four bytes"));
        let extent = ExtentId(extent);
        let output = ExtentRange { extent, offset: word(4), length: word(12) };
        self.shard.free_ranges(&[output]).expect("it frees the output");
    }

    /// Connects another process of the honest one.
    ///
    /// # Panics
    /// When it is not admitted.
    pub fn another(&self) -> Arc<MemoryClient> {
        self.is_honest.store(true, Ordering::SeqCst);
        let client = session(self.address()).expect("another process gets in");
        self.is_honest.store(false, Ordering::SeqCst);
        client
    }

    /// What the node has counted for a tenant.
    ///
    /// # Panics
    /// When there is no such tenant.
    #[must_use]
    pub fn figures(&self, name: &str) -> TenantFigures {
        let figures = self.node.tenants();
        figures.into_iter().find(|figures| figures.name.as_str() == name).expect("a tenant")
    }

    /// Checks that the honest one has lost nothing and the hostile one stays within its limits.
    ///
    /// # Panics
    /// When this does not hold.
    pub fn check(&self) {
        self.victim.check().expect("the session lives");
        let (honest, hostile) = (self.figures("honest"), self.figures("hostile"));
        assert_eq!((honest.lapsed_sessions, honest.limited_calls, honest.denied_calls), (0, 0, 0));
        assert_eq!(honest.closed_links, 0);
        let bounds = [
            ("links", hostile.links, 256),
            ("sessions", hostile.sessions, 256),
            ("stores", hostile.stores, 1024),
            ("shards", hostile.shards, 4096),
            ("jobs", hostile.jobs, 64),
            ("waiting calls", hostile.waiting_calls, 1024),
            ("extents of its own", hostile.extents - hostile.reserve_extents, hostile.most_extents),
        ];
        for (what, found, most) in bounds {
            assert!(found <= most, "{found} {what} of the hostile tenant, of at most {most}");
        }
        assert!(self.node.is_running());
    }
}

fn session(address: &str) -> Result<Arc<MemoryClient>, Error> {
    let options = ClientOptions { timeout: PATIENCE, ..ClientOptions::default() };
    let link: Arc<dyn Link> = tcp::connect(address, tcp::Options::default())?;
    MemoryClient::connect(link, "honest", options)
}

/// Asks for memory until it gets some. Extents that were given back, even by the hostile one, are cleaned first, and
/// until then the node may say that it is busy.
fn once_cleaned<T>(what: &str, mut asks: impl FnMut() -> Result<T, Error>) -> T {
    let mut given = None;
    eventually(what, || {
        match asks() {
            Err(error) if error.kind() == ErrorKind::Busy => {}
            answer => given = Some(answer.expect(what)),
        }
        given.is_some()
    });
    given.expect("what was waited for")
}

/// Waits for something that other threads bring about.
///
/// # Panics
/// When it does not come.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    for _ in 0..60_000 {
        if holds() {
            return;
        }
        clock.sleep(Duration::from_millis(1));
    }
    panic!("{what}: not within a minute");
}

/// The code of an error kind on the wire.
#[must_use]
pub const fn code(kind: ErrorKind) -> u8 {
    kind.code()
}
