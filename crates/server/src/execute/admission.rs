//! Whether a connection may do what a request asks for.
//!
//! A request may be planned several times before its reply: one before it in the pipeline may turn out to take long, or
//! to be too much for the run. A transaction may be carried out twice. So what a user is denied is remembered with the
//! reply.

use crate::acl::denials::Denial;
use crate::commands::arguments::Arguments;
use crate::commands::command::{Command, flags};
use crate::commands::permission;
use crate::keyspace::failure::Failure;
use crate::state::session::Session;
use crate::state::shared::Shared;

/// Why a request is refused.
#[derive(Debug)]
pub(super) struct Refused {
    /// The text of the reply.
    pub(super) failure: Failure,
    /// What the user is denied, if that is why.
    denial: Option<Box<Denial>>,
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self { failure, denial: None }
    }
}

/// Whether the connection may do this.
pub(super) fn admit(
    shared: &Shared,
    session: &Session,
    command: &Command,
    arguments: Arguments<'_>,
) -> Result<(), Refused> {
    let Some(user) = &session.user else {
        return if command.has(flags::NO_AUTH) {
            Ok(())
        } else {
            Err(Failure::text("NOAUTH Authentication required.").into())
        };
    };
    permission::check(&shared.users, user, command, arguments).map_err(|refusal| {
        let context = if session.queue.is_some() || session.is_in_transaction { "multi" } else { "toplevel" };
        let name = user.name().clone();
        let denial = shared.denial(&session.client, refusal.reason, context, refusal.object, name);
        // Users may have changed since the command was queued.
        let failure = if session.is_in_transaction { refusal.failure_in_exec() } else { refusal.failure(command) };
        Refused { failure, denial: Some(Box::new(denial)) }
    })
}

/// Remembers what the user of a refused request is denied, and returns the failure that is the reply.
pub(super) fn refuse(shared: &Shared, refused: Refused) -> Failure {
    if let Some(denial) = refused.denial {
        shared.deny(*denial);
    }
    refused.failure
}
