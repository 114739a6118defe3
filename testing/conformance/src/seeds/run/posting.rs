//! Posting operations, and recording them in the model.

use super::*;

impl Run {
    pub(super) fn choose(&mut self) -> Kind {
        let count = 1 + self.random.below(MAX_WORDS.min(self.words.count() as u64)) as usize;
        let first = self.random.below((self.words.count() - count) as u64 + 1) as usize;
        let word = self.random.below(self.atomics.len() as u64) as usize;
        match self.random.below(1000) {
            0..400 => {
                self.last_value += 1;
                Kind::Write { first, count, number: self.last_value }
            }
            400..700 => Kind::Read { first, count },
            700..800 => Kind::Atomic { word, change: Change::Add(self.random.word()) },
            800..860 => {
                let (expected, new) = (self.atomics[word].last_seen(), self.random.word());
                Kind::Atomic { word, change: Change::Swap { expected, new } }
            }
            860..920 => Kind::ReadAtomic { word },
            920..998 => Kind::Message,
            _ => Kind::Refused,
        }
    }

    pub(super) fn post(&mut self, client: usize, slot: usize) -> Checked {
        if self.clients[client].slots[slot].pending.len() >= DEPTH {
            self.collect(client, slot, true)?;
        }
        if self.clients[client].slots[slot].broken {
            return self.replace(client, slot);
        }
        let kind = self.choose();
        let posted = self.tick();
        let oldest = self.oldest(posted);
        let refused = self.clients[client].refused(&self.layout, &self.stale, &mut self.random);
        self.report.operations += 1;
        let Client { data, atomics, expected, slots, .. } = &mut self.clients[client];
        let Slot { endpoint, serial, sequence, pending, .. } = &mut slots[slot];
        *sequence += 1;
        let origin = Origin { endpoint: *serial, sequence: *sequence };
        let mut grant = data.number;
        if self.random.one_in(1, 16) {
            endpoint.fence();
        }
        let id = match kind {
            Kind::Write { first, count, number } => {
                let mut from = endpoint.slot(8 * count).map_err(text)?;
                for (i, word) in from.chunks_exact_mut(8).enumerate() {
                    let value = value_of(number, i);
                    word.copy_from_slice(&value.to_le_bytes());
                    self.words.posted(first + i, value, origin, grant, posted, oldest);
                }
                count_write(expected, 8 * count);
                endpoint.post_write(data.key.at(8 * first as u64), from)
            }
            Kind::Refused => {
                let mut from = endpoint.slot(32).map_err(text)?;
                from.fill(0xee);
                count_write(expected, 32);
                endpoint.post_write(refused, from)
            }
            Kind::Read { first, count } => post_read(endpoint, expected, data.key.at(8 * first as u64), 8 * count),
            Kind::ReadAtomic { word } => {
                grant = atomics.number;
                post_read(endpoint, expected, atomics.key.at(8 * word as u64), 8)
            }
            Kind::Atomic { word, change } => {
                grant = atomics.number;
                expected.atomics += 1;
                expected.bytes_read += 8;
                expected.bytes_written += 8;
                let at = atomics.key.at(8 * word as u64);
                match change {
                    Change::Add(delta) => endpoint.post_fetch_add(at, delta),
                    Change::Swap { expected, new } => endpoint.post_compare_swap(at, expected, new),
                }
            }
            Kind::Message => {
                expected.messages += 1;
                expected.bytes_written += MESSAGE_BYTES as u64;
                endpoint.post_message(&message(origin))
            }
        };
        pending.push_back(Pending { id: id.map_err(text)?, kind, origin, grant, posted });
        if self.random.one_in(1, 3) {
            endpoint.flush();
        }
        Ok(())
    }

    /// When the oldest operation in flight was posted.
    pub(super) fn oldest(&self, now: Moment) -> Moment {
        let slots = self.clients.iter().flat_map(|client| &client.slots);
        slots.filter_map(|slot| slot.pending.front()).map(|pending| pending.posted).min().unwrap_or(now)
    }

    /// Makes one operation on memory that the endpoint uses alone, and waits for its end.
    pub(super) fn use_private(&mut self, client: usize, slot: usize) -> Checked {
        if self.clients[client].slots[slot].broken {
            return self.replace(client, slot);
        }
        let room = self.private.len() / (CLIENTS * ENDPOINTS);
        let start = room * (client * ENDPOINTS + slot);
        let length = self.random.below(room as u64 + 1) as usize;
        let offset = start + self.random.below((room - length) as u64 + 1) as usize;
        self.report.operations += 1;
        let Client { private, expected, slots, .. } = &mut self.clients[client];
        let Slot { endpoint, broken, ignored, .. } = &mut slots[slot];
        let at = private.key.at(offset as u64);
        let range = offset..offset + length;
        if self.random.one_in(1, 2) {
            let mut from = endpoint.slot(length).map_err(text)?;
            self.random.fill(&mut from);
            let bytes = from.to_vec();
            count_write(expected, length);
            let id = endpoint.post_write(at, from).map_err(text)?;
            match endpoint.wait_for(id) {
                Ok(_) => self.private[range].copy_from_slice(&bytes),
                Err(_) => {
                    (*broken, *ignored) = (true, Some(id));
                    self.private_lost.push((offset, bytes));
                }
            }
            return Ok(());
        }
        let id = post_read(endpoint, expected, at, length).map_err(text)?;
        match endpoint.wait_for(id) {
            Ok(Outcome::Read(into)) => {
                let sure =
                    self.private_lost.iter().all(|(lost, bytes)| lost + bytes.len() <= offset || range.end <= *lost);
                if sure && into[..] != self.private[range] {
                    return Err(format!("{length} private bytes at {offset} are not what was written last"));
                }
                endpoint.release(into);
            }
            Ok(other) => return Err(format!("a read ended with {other:?}")),
            Err(_) => (*broken, *ignored) = (true, Some(id)),
        }
        Ok(())
    }
}
