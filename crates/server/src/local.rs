//! A server without sockets and threads: bytes of requests in, bytes of replies out, in the caller's thread. For tests
//! that need the commands and no network, such as fuzzing.
//!
//! There are no threads of jobs: commands that run scripts, take long, or reach for another server wait until
//! [`LocalServer::carry_out_jobs`].

use crate::acl::users::Users;
use crate::commands::command::Registry;
use crate::commands::table;
use crate::dialogue::Dialogue;
use crate::execute::Executor;
use crate::network::event_loop::MAIL;
use crate::network::expiry;
use crate::records::store::Records;
use crate::server::{Error, shared};
use crate::state::counters::Counters;
use crate::state::mailbox::{Mailbox, Message};
use crate::state::session::Session;
use crate::state::shared::Shared;
use forebay::ErrorKind;
use forebay_env::Clock;
use mio::{Poll, Waker};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// Nothing more is carried out when this many bytes are to be sent at once.
const MAX_SENT_BYTES: usize = 16 << 20;

/// See the module.
#[derive(Debug)]
pub struct LocalServer {
    shared: Shared,
    registry: Registry,
    counters: Arc<Counters>,
    mailbox: Arc<Mailbox>,
    /// The poll that the mailbox would wake.
    _poll: Poll,
}

/// A connection to a [`LocalServer`].
#[derive(Debug)]
pub struct LocalConnection<'s> {
    server: &'s LocalServer,
    dialogue: Dialogue,
}

impl LocalServer {
    /// Makes a server of a store, without the commands of these names, in small letters.
    ///
    /// # Errors
    /// Those of the store; `Invalid` when the store has keys that no server has written; `Io` when the system refuses
    /// what a mailbox needs.
    pub fn new(store: impl Into<Records>, clock: Arc<dyn Clock>, without: &[&str]) -> Result<Self, Error> {
        let io = Error::io("preparing a mailbox");
        let all = table::registry();
        let users = Users::new(table::catalogue(&all), None).map_err(|text| Error::new(ErrorKind::Invalid, text))?;
        let registry = Registry::new(all.all().iter().copied().filter(|command| !without.contains(&command.name)));
        let shared = shared(store.into(), Arc::new(users), address(), 1, clock)?;
        let counters = shared.counts.of_thread(registry.numbers());
        let poll = Poll::new().and_then(|poll| Waker::new(poll.registry(), MAIL).map(|waker| (poll, waker)));
        let (poll, waker) = poll.map_err(io)?;
        Ok(Self { shared, registry, counters, mailbox: Arc::new(Mailbox::new(waker)), _poll: poll })
    }

    fn executor(&self) -> Executor<'_> {
        Executor { shared: &self.shared, registry: &self.registry, counters: &self.counters }
    }

    /// The names of its commands, without subcommands.
    pub fn commands(&self) -> impl Iterator<Item = &'static str> {
        self.registry.all().iter().map(|command| command.name)
    }

    /// Returns the records that it serves.
    #[must_use]
    pub const fn records(&self) -> &Records {
        &self.shared.store
    }

    /// A new connection.
    #[must_use]
    pub fn connect(&self) -> LocalConnection<'_> {
        let now_ms = self.shared.clock.wall_ms();
        let client = self.shared.clients.add(Arc::clone(&self.mailbox), address(), address(), now_ms);
        LocalConnection { server: self, dialogue: Dialogue::new(Session::new(client, self.shared.users.anonymous())) }
    }

    /// Sets a parameter, as `CONFIG SET` does.
    ///
    /// # Errors
    /// `Invalid`: there is none of this name, or it cannot have this value.
    pub fn set(&self, parameter: &str, value: &str) -> Result<(), Error> {
        let changed = self.shared.config.set(&[(parameter.as_bytes(), value.as_bytes())]);
        changed.map_err(|why| Error::new(ErrorKind::Invalid, why))
    }

    /// Carries out the jobs that wait, and returns how many.
    pub fn carry_out_jobs(&self) -> usize {
        let executor = self.executor();
        let jobs = std::iter::from_fn(|| self.shared.scripts.jobs.take()).map(|job| executor.carry_out(job)).count();
        jobs + std::iter::from_fn(|| self.shared.migrations.take()).map(|job| executor.answer(job)).count()
    }

    /// Removes keys that have expired.
    ///
    /// # Errors
    /// Those of the store.
    pub fn sweep(&self) -> Result<(), Error> {
        let executor = self.executor();
        loop {
            match expiry::remove_some(&executor) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(failure) => return Err(Error::new(failure.kind(), failure.message().to_owned())),
            }
        }
    }
}

impl LocalConnection<'_> {
    /// Carries out the requests in these bytes, together with an incomplete request that was sent before, and returns
    /// what the client is sent. Requests after 16 MiB of replies wait for the next call. Nothing is carried out once the
    /// connection has ended, or while it waits in a command.
    pub fn send(&mut self, bytes: &[u8]) -> Vec<u8> {
        let executor = self.server.executor();
        self.dialogue.requests.push(bytes);
        let mut sent = Vec::new();
        while self.may_go_on() && sent.len() < MAX_SENT_BYTES && self.dialogue.carry_out(&executor) {
            self.take_out(&mut sent);
        }
        self.read_mail();
        self.take_out(&mut sent);
        sent
    }

    fn take_out(&mut self, sent: &mut Vec<u8>) {
        self.dialogue.out.parts().for_each(|part| sent.extend_from_slice(part));
        self.dialogue.out.forget();
    }

    /// Whether requests are carried out: the connection has not ended, and waits for nothing.
    #[must_use]
    pub fn may_go_on(&self) -> bool {
        self.dialogue.session.may_go_on()
    }

    /// Takes the mail for this connection; mail for other connections is lost.
    fn read_mail(&mut self) {
        let dialogue = &mut self.dialogue;
        let here = dialogue.session.client.id;
        for message in self.server.mailbox.take() {
            match message {
                Message::Send { client, letter } if client == here && dialogue.session.wants(&letter) => {
                    dialogue.out.raw(letter.bytes());
                }
                Message::Unblock { client, bytes } if client == here => dialogue.unblock(bytes),
                Message::Release(client) if client == here => dialogue.release(),
                Message::Kill(client) if client == here => dialogue.session.is_closing = true,
                _ => {}
            }
        }
    }
}

impl Drop for LocalConnection<'_> {
    fn drop(&mut self) {
        self.server.executor().forget(&mut self.dialogue.session);
    }
}

const fn address() -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0)
}

#[cfg(test)]
mod tests;
