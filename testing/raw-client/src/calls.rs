//! Calls of a memory node and their replies, as far as attacks need them. Procedures and fields follow the pages
//! to which `docs/formats/node-messages.md` links.

use crate::body::{Body, Fields, Granted, Shard, VERSION};
use std::marker::PhantomData;

/// The version of the calls' meaning.
pub const PROTOCOL_VERSION: u16 = 2;
/// Numbers of all procedures.
pub const PROCEDURES: [u16; 38] = [
    1, 2, 3, 4, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 32, 33, 34, 35, 48, 49, 50, 51, 52, 64, 72, 73, 74,
    75, 76, 77, 78, 80, 81, 82, 83,
];
/// The procedure that ends a session.
pub const CLOSE_SESSION: u16 = 3;
/// The procedure that runs a job.
pub const SUBMIT_JOB: u16 = 64;
/// Memory for new data.
pub const FLUSH: u8 = 0;
/// Memory for garbage collection.
pub const COLLECTION: u8 = 1;

/// A call: its procedure, its body, and the type of its reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call<R> {
    /// Number of the procedure.
    pub procedure: u16,
    /// The body.
    pub body: Vec<u8>,
    reply: PhantomData<fn() -> R>,
}

fn call<R>(procedure: u16, fields: impl FnOnce(Body) -> Body) -> Call<R> {
    Call { procedure, body: fields(Body::default()).bytes(), reply: PhantomData }
}

/// Opens a session with the expected tenant, which may be empty, and the session's name.
#[must_use]
pub fn open_session(tenant: &str, name: &str) -> Call<SessionOpened> {
    call(1, |body| body.u16(PROTOCOL_VERSION).text(tenant).text(name).u64(0))
}

/// Renews a session that has been reading since this reading epoch.
#[must_use]
pub fn renew(session: u64, reading_epoch: u64) -> Call<Renewed> {
    call(2, |body| body.u64(session).u64(reading_epoch))
}

/// Ends a session.
#[must_use]
pub fn close_session(session: u64) -> Call<Done> {
    call(CLOSE_SESSION, |body| body.u64(session))
}

/// Leases extents for [`FLUSH`] or [`COLLECTION`].
#[must_use]
pub fn lease_extents(session: u64, count: u32, purpose: u8) -> Call<ExtentsGranted> {
    call(16, |body| body.u64(session).u32(count).u8(purpose))
}

/// Gives extents back.
#[must_use]
pub fn return_extents(session: u64, extents: &[u32]) -> Call<Done> {
    call(17, |body| body.u64(session).extents(extents))
}

/// Asks for keys to a shard's extents.
#[must_use]
pub fn map_extents(session: u64, shard: Shard, write: bool, extents: &[u32]) -> Call<ExtentsGranted> {
    call(18, |body| body.u64(session).shard(shard).flag(write).extents(extents))
}

/// Frees extents of a shard.
#[must_use]
pub fn release_extents(session: u64, shard: Shard, epoch: u64, extents: &[u32]) -> Call<Done> {
    call(20, |body| body.u64(session).shard(shard).u64(epoch).extents(extents))
}

/// Lists a shard's extents from this one on.
#[must_use]
pub fn list_extents(session: u64, shard: Shard, from: u32) -> Call<ExtentPage> {
    call(21, |body| body.u64(session).shard(shard).u32(from))
}

/// Creates a store; without a name it is private.
#[must_use]
pub fn create_store(session: u64, name: &str, config: &[u8]) -> Call<StoreOpened> {
    call(32, |body| body.u64(session).text(name).blob(config))
}

/// Opens a store.
#[must_use]
pub fn open_store(session: u64, name: &str) -> Call<StoreOpened> {
    call(33, |body| body.u64(session).text(name))
}

/// Lists stores after this name.
#[must_use]
pub fn list_stores(session: u64, after: &str) -> Call<StorePage> {
    call(34, |body| body.u64(session).text(after))
}

/// Drops a store.
#[must_use]
pub fn drop_store(session: u64, store: u64) -> Call<Done> {
    call(35, |body| body.u64(session).u64(store))
}

/// Becomes the owner of a shard.
#[must_use]
pub fn acquire_shard(session: u64, shard: Shard, takeover: bool) -> Call<ShardAcquired> {
    call(48, |body| body.u64(session).shard(shard).flag(takeover))
}

/// Sets the root of a shard.
#[must_use]
pub fn set_root(session: u64, shard: Shard, epoch: u64, root: &[u8]) -> Call<Done> {
    call(50, |body| body.u64(session).shard(shard).u64(epoch).blob(root))
}

/// Runs a job of this kind.
#[must_use]
pub fn submit_job(session: u64, shard: Shard, epoch: u64, attempt: u64, kind: u16, arguments: &[u8]) -> Call<JobDone> {
    call(SUBMIT_JOB, |body| body.u64(session).shard(shard).u64(epoch).u64(attempt).u16(kind).rest(arguments))
}

/// Asks for figures.
#[must_use]
pub fn get_statistics(session: u64) -> Call<Statistics> {
    call(80, |body| body.u64(session))
}

/// Lists tenants after this name.
#[must_use]
pub fn list_tenants(session: u64, after: &str) -> Call<TenantPage> {
    call(81, |body| body.u64(session).text(after))
}

/// A reply to a call.
pub trait Reply: Sized {
    /// The version of its body.
    const VERSION: u8 = VERSION;

    /// Reads the fields; `None` when they do not match.
    fn read(fields: &mut Fields<'_>) -> Option<Self>;

    /// Reads a body, all of it.
    fn of(body: &[u8]) -> Option<Self> {
        let mut fields = Fields::of(body, Self::VERSION)?;
        Self::read(&mut fields).filter(|_| fields.is_empty())
    }
}

fn next<'a, T>(fields: &mut Fields<'a>, read: impl FnOnce(&mut Fields<'a>) -> Option<T>) -> Option<T> {
    read(fields)
}

/// Declares a reply by its fields, in their order.
macro_rules! replies {
    ($($(#[$about:meta])* $name:ident $(version $version:literal)? { $($field:ident: $type:ty = $read:expr,)* })*) => {$(
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[allow(missing_docs, reason = "named as on the page")]
        pub struct $name {
            $(pub $field: $type,)*
        }

        impl Reply for $name {
            $(const VERSION: u8 = $version;)?

            fn read(fields: &mut Fields<'_>) -> Option<Self> {
                let _ = &fields;
                $(let $field = next(fields, $read)?;)*
                Some(Self { $($field,)* })
            }
        }
    )*};
}

replies! {
    /// Done, without a result.
    Done {}
    /// A session.
    SessionOpened {
        session: u64 = Fields::u64,
        lease_ms: u32 = Fields::u32,
        node: u32 = Fields::u32,
        incarnation: u64 = Fields::u64,
        extent_bytes: u64 = Fields::u64,
        extents: u32 = Fields::u32,
        headroom_extents: u32 = Fields::u32,
        reading_epoch: u64 = Fields::u64,
        capabilities: u64 = Fields::u64,
    }
    /// A session was renewed.
    Renewed {
        lease_ms: u32 = Fields::u32,
        reading_epoch: u64 = Fields::u64,
    }
    /// Keys of extents.
    ExtentsGranted {
        extents: Vec<Granted> = |fields| fields.list(Fields::granted),
    }
    /// Extents of a shard.
    ExtentPage {
        extents: Vec<u32> = |fields| fields.list(Fields::u32),
        more: bool = Fields::flag,
    }
    /// A store.
    StoreOpened {
        store: u64 = Fields::u64,
        config: Vec<u8> = Fields::blob,
    }
    /// Numbers and names of stores.
    StorePage {
        stores: Vec<(u64, String)> = |fields| fields.list(|fields| fields.u64().zip(fields.text())),
        more: bool = Fields::flag,
    }
    /// An epoch.
    ShardAcquired {
        epoch: u64 = Fields::u64,
    }
    /// A job's result.
    JobDone {
        result: Vec<u8> = |fields| Some(fields.rest()),
    }
    /// Figures.
    Statistics {
        extents: u64 = Fields::u64,
        extent_bytes: u64 = Fields::u64,
        free_extents: u64 = Fields::u64,
        headroom_extents: u64 = Fields::u64,
        leased_extents: u64 = Fields::u64,
        adopted_extents: u64 = Fields::u64,
        kept_extents: u64 = Fields::u64,
        job_extents: u64 = Fields::u64,
        recycling_extents: u64 = Fields::u64,
        allocated_bytes: u64 = Fields::u64,
        live_bytes: u64 = Fields::u64,
        job_bytes: u64 = Fields::u64,
        sessions: u64 = Fields::u64,
        stores: u64 = Fields::u64,
        shards: u64 = Fields::u64,
        owned_shards: u64 = Fields::u64,
        calls: u64 = Fields::u64,
        refused_calls: u64 = Fields::u64,
        malformed_messages: u64 = Fields::u64,
        lapsed_sessions: u64 = Fields::u64,
        queued_jobs: u64 = Fields::u64,
        running_jobs: u64 = Fields::u64,
        completed_jobs: u64 = Fields::u64,
        failed_jobs: u64 = Fields::u64,
        reading_epoch: u64 = Fields::u64,
        cpu_us: u64 = Fields::u64,
        uptime_ms: u64 = Fields::u64,
    }
    /// A tenant.
    Tenant {
        name: String = Fields::text,
        weight: u32 = Fields::u32,
        extents: u64 = Fields::u64,
        most_extents: u64 = Fields::u64,
        reserve_extents: u64 = Fields::u64,
        links: u64 = Fields::u64,
        endpoints: u64 = Fields::u64,
        most_endpoints: u64 = Fields::u64,
        sessions: u64 = Fields::u64,
        stores: u64 = Fields::u64,
        shards: u64 = Fields::u64,
        keys: u64 = Fields::u64,
        ranges: u64 = Fields::u64,
        jobs: u64 = Fields::u64,
        waiting_calls: u64 = Fields::u64,
        calls: u64 = Fields::u64,
        refused_calls: u64 = Fields::u64,
        limited_calls: u64 = Fields::u64,
        denied_calls: u64 = Fields::u64,
        malformed_messages: u64 = Fields::u64,
        lapsed_sessions: u64 = Fields::u64,
        closed_links: u64 = Fields::u64,
        completed_jobs: u64 = Fields::u64,
        failed_jobs: u64 = Fields::u64,
        moved_bytes: u64 = Fields::u64,
        busy_us: u64 = Fields::u64,
    }
    /// Tenants, and connections since the node began to listen, by their outcome.
    TenantPage version 2 {
        tenants: Vec<Tenant> = |fields| fields.list(Tenant::read),
        more: bool = Fields::flag,
        admitted: u64 = Fields::u64,
        refused: u64 = Fields::u64,
        shown_out: u64 = Fields::u64,
        late: u64 = Fields::u64,
        crowded: u64 = Fields::u64,
        withdrawn: u64 = Fields::u64,
    }
}
