//! Processes that open databases, and are killed.

use super::Cluster;
use forebay_engine::{Db, Error, Options};
use forebay_fabric::Link;
use forebay_memory_client::{ClientOptions, MemoryClient};
use std::sync::Arc;

/// A process, with a session at each of its memory nodes. The sessions end when it is killed.
pub struct Process {
    pub links: Vec<Arc<dyn Link>>,
    pub clients: Vec<Arc<MemoryClient>>,
    /// A memory node of its own.
    own: Option<Cluster>,
}

impl Process {
    pub fn start<'a>(nodes: impl IntoIterator<Item = &'a Cluster>) -> Self {
        let links: Vec<_> = nodes.into_iter().map(Cluster::connect).collect();
        let client = |link: &Arc<dyn Link>| {
            MemoryClient::connect(Arc::clone(link), "process", ClientOptions::default()).unwrap()
        };
        Self { clients: links.iter().map(client).collect(), links, own: None }
    }

    /// A process with a memory node of its own, which is empty.
    pub fn with_empty_memory() -> Self {
        let own = Cluster::start(64 << 20);
        let mut process = Self::start([&own]);
        process.own = Some(own);
        process
    }

    pub fn open(&self, options: Options) -> Db {
        self.try_open(options).unwrap()
    }

    pub fn try_open(&self, options: Options) -> Result<Db, Error> {
        Db::open(&self.clients, options)
    }

    pub fn lose_links(&self) {
        self.links.iter().for_each(|link| link.close());
    }

    pub fn kill(self, db: Db) {
        self.lose_links();
        drop(db);
    }
}
