//! What is checked during the run and when everything has come to rest.

use super::*;

impl Run {
    /// Handles the node's events.
    pub(super) fn pump(&mut self) -> Checked {
        // A crashed node reports nothing.
        while let Ok(Some(event)) = self.listener.next(Duration::ZERO) {
            match event {
                Event::Joined(peer) => self.joined = Some(peer),
                Event::Left { .. } => {}
                Event::Message { bytes, .. } => {
                    let words: Vec<u64> = words_of(&bytes).collect();
                    let &[endpoint, sequence, ..] = &words[..] else { return Err("a message was cut".into()) };
                    let origin = Origin { endpoint: endpoint as u32, sequence };
                    let last = self.arrived.insert(origin.endpoint, sequence);
                    if bytes != message(origin) || last.is_some_and(|last| last >= sequence) {
                        return Err(format!("message {origin:?} came after {last:?}, or changed"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Lets everything come to rest, and checks everything.
    pub(super) fn rest(&mut self) -> Checked {
        for client in 0..CLIENTS {
            for slot in 0..ENDPOINTS {
                self.drain(client, slot)?;
                if self.clients[client].slots[slot].broken {
                    let lives = self.report.restarts;
                    self.replace(client, slot)?;
                    if self.report.restarts > lives {
                        return Ok(());
                    }
                }
            }
        }
        self.network.settle();
        self.pump()?;
        if self.network.running(NODE) != Some(self.listener.identity()) {
            return self.restart();
        }
        for (endpoint, sequence) in std::mem::take(&mut self.sent) {
            let arrived = self.arrived.get(&endpoint).copied().unwrap_or(0);
            if arrived < sequence {
                return Err(format!(
                    "message {sequence} of endpoint {endpoint} was sent, the last that came is {arrived}"
                ));
            }
        }
        self.check_memory()?;
        (0..CLIENTS).try_for_each(|client| self.check_counts(client))
    }

    pub(super) fn check_memory(&mut self) -> Checked {
        let at = self.tick();
        let memory = self.memory()?;
        self.layout.check(&memory)?;
        for (word, value) in words_of(in_range(&memory, &self.layout.data)).enumerate() {
            self.words.settled(word, value, at)?;
        }
        for (word, value) in words_of(in_range(&memory, &self.layout.atomics)).enumerate() {
            self.atomics[word].settled(value, self.ordering).map_err(|why| format!("atomic {word}: {why}"))?;
        }
        for (at, found) in in_range(&memory, &self.layout.private).iter().enumerate() {
            let lost =
                |(start, bytes): &(usize, Vec<u8>)| at.checked_sub(*start).and_then(|i| bytes.get(i)) == Some(found);
            if self.private[at] != *found && !self.private_lost.iter().any(lost) {
                return Err(format!("private byte {at} is {found:02x} and nobody wrote that"));
            }
            self.private[at] = *found;
        }
        self.private_lost.clear();
        self.lost_atomics = 0;
        if let Some((region, before)) = self.dead.take()
            && read_all(&region)? != before
        {
            return Err("the memory of a node that has crashed changed".into());
        }
        Ok(())
    }

    pub(super) fn check_counts(&self, client: usize) -> Checked {
        let Client { link, expected, .. } = &self.clients[client];
        let mut counts = link.counts(Traffic::Foreground);
        // The conformance suite checks how often a caller waited.
        (counts.round_trips, counts.doorbells) = (0, 0);
        if counts == *expected { Ok(()) } else { Err(format!("counted {counts:?}, posted {expected:?}")) }
    }

    pub(super) fn memory(&self) -> Result<Vec<u8>, String> {
        read_all(&self.region)
    }
}
