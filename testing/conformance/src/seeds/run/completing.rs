//! Handling of completions, and of their absence.

use super::*;

impl Run {
    /// Takes the available completions. With `wait`, waits for one.
    pub(super) fn collect(&mut self, client: usize, slot: usize, wait: bool) -> Checked {
        let endpoint = &mut self.clients[client].slots[slot].endpoint;
        endpoint.flush();
        let first = if wait && endpoint.outstanding() > 0 { Some(endpoint.wait()) } else { None };
        match first {
            Some(Ok(completion)) => self.complete(client, slot, completion)?,
            Some(Err(_)) => self.clients[client].slots[slot].broken = true,
            None => {}
        }
        while let Some(completion) = self.clients[client].slots[slot].endpoint.poll() {
            self.complete(client, slot, completion)?;
        }
        Ok(())
    }

    pub(super) fn complete(&mut self, client: usize, slot: usize, completion: Completion) -> Checked {
        let to = self.tick();
        let slot = &mut self.clients[client].slots[slot];
        let Some(pending) = slot.take_pending(completion.id) else {
            let expected = slot.ignored == Some(completion.id);
            return if expected { Ok(()) } else { Err(format!("{completion:?} is of nothing that was in flight")) };
        };
        let look = Look { from: pending.posted, to, origin: Some(pending.origin) };
        match (pending.kind, completion.result) {
            (Kind::Refused, Err(Error::OutOfBounds { .. } | Error::AccessDenied)) => slot.broken = true,
            (Kind::Refused, Ok(_)) => return Err(format!("an operation that must be refused succeeded: {pending:?}")),
            (_, Err(cause)) => {
                slot.broken = true;
                let may_be_denied = self.revoked.contains(&pending.grant);
                match cause {
                    Error::Flushed | Error::PeerLost { .. } => {}
                    Error::AccessDenied if may_be_denied => {}
                    cause => return Err(format!("{pending:?} ended with: {cause}")),
                }
                self.lose(pending);
            }
            (Kind::Write { first, count, number }, Ok(Outcome::Done(from))) => {
                if let Some(from) = from {
                    slot.endpoint.release(from);
                }
                (0..count).for_each(|i| self.words.completed(first + i, value_of(number, i), to));
            }
            (Kind::Read { first, .. }, Ok(Outcome::Read(into))) => {
                for (i, word) in words_of(&into).enumerate() {
                    self.words.seen(first + i, word, look)?;
                }
                slot.endpoint.release(into);
            }
            (Kind::ReadAtomic { word }, Ok(Outcome::Read(into))) => {
                words_of(&into).for_each(|value| self.atomics[word].seen(value, look));
                slot.endpoint.release(into);
            }
            (Kind::Atomic { word, change }, Ok(Outcome::Word(before))) => {
                self.atomics[word].completed(change, before, look);
            }
            (Kind::Message, Ok(Outcome::Done(from))) => {
                self.sent.insert(pending.origin.endpoint, pending.origin.sequence);
                if let Some(from) = from {
                    slot.endpoint.release(from);
                }
            }
            (_, Ok(outcome)) => return Err(format!("{pending:?} ended with {outcome:?}")),
        }
        Ok(())
    }

    /// Notes that an operation ended without saying whether it took effect.
    pub(super) fn lose(&mut self, pending: Pending) {
        self.report.failed += 1;
        if let Kind::Atomic { word, change } = pending.kind {
            self.lost_atomics += 1;
            self.atomics[word].lost(change, pending.posted);
        }
    }

    /// Waits for all that an endpoint has in flight, and gives up what does not end.
    pub(super) fn drain(&mut self, client: usize, slot: usize) -> Checked {
        loop {
            let endpoint = &mut self.clients[client].slots[slot].endpoint;
            if endpoint.outstanding() == 0 {
                break;
            }
            match endpoint.wait() {
                Ok(completion) => self.complete(client, slot, completion)?,
                Err(_) => break,
            }
        }
        self.abandon(client, slot);
        Ok(())
    }

    /// Gives up all that the endpoint has in flight: nothing more will be heard of it.
    pub(super) fn abandon(&mut self, client: usize, slot: usize) {
        let slot = &mut self.clients[client].slots[slot];
        let pending = std::mem::take(&mut slot.pending);
        slot.broken |= !pending.is_empty();
        pending.into_iter().for_each(|pending| self.lose(pending));
    }
}
