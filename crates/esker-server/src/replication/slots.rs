//! Slots: the progress of each replica. The log after it is kept while the replica is away.
//!
//! ```text
//!   ES.REPLICATE ... name --take--> slot: position, the engine's number of it --> record, Db::hold_feed
//!   each second: durable commits of replicas --keep--> slots move
//!                                            `-- log gone --> dropped, connection ended
//! ```
//!
//! slots.1. The log is held by what the durable records say. So no crash makes a slot ask for released log.
//!
//! - A slot moves to a commit that its replica has durably, or to an earlier one. If several
//!   connections use the slot, the slowest counts.
//! - Moving a slot is itself a commit on a primary. A slot that lacks only that commit stays, or the moves
//!   would never end.
//! - Commits from before a server took its role may have no numbers there. A slot promises nothing for them.
//!
//! Bytes: docs/formats/replication.md

use std::collections::{BTreeMap, VecDeque};

use esker::{Db, Error, Result, SeqNo};
use parking_lot::MutexGuard;

use super::Replication;
use super::bytes::{Broken, Reader};
use super::position::Position;
use super::records::Records;

/// Maximum number of remembered moments. Beyond it every second one is dropped.
const MOMENTS_MAX: usize = 1024;
/// Maximum length of a slot's name.
const NAME_BYTES_MAX: usize = 64;

/// A replica's position in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Everything after this commit is kept for it.
    pub at: Position,
    /// The engine's number up to which this database has all commits up to `at`.
    pub local: u64,
}

impl Slot {
    /// Encodes the slot.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.at.encode(&mut out);
        out.extend_from_slice(&self.local.to_le_bytes());
        out
    }

    /// Decodes what [`encode`](Self::encode) writes.
    pub fn decode(bytes: &[u8]) -> std::result::Result<Self, Broken> {
        Slot::read(&mut Reader::new(bytes))
    }

    /// Decodes a slot from a reader that may hold more.
    pub(super) fn read(reader: &mut Reader<'_>) -> std::result::Result<Self, Broken> {
        Ok(Slot { at: Position::decode(reader)?, local: reader.u64()? })
    }
}

/// The slots, as the durable records have them.
#[derive(Default)]
pub(super) struct Slots {
    all: BTreeMap<String, Slot>,
    /// Commits of the history that were the newest at some moment, with the engine's numbers.
    moments: VecDeque<(u64, u64)>,
}

impl Slots {
    /// Returns the first commit that a slot needs, by the engine's number.
    fn first(&self) -> Option<SeqNo> {
        self.all.values().map(|slot| SeqNo::new(slot.local + 1)).min()
    }

    fn note(&mut self, moment: (u64, u64)) {
        let oldest = self.all.values().map(|slot| slot.at.seq).min().unwrap_or(u64::MAX);
        while self.moments.front().is_some_and(|(seq, _)| *seq <= oldest) {
            self.moments.pop_front();
        }
        if self.moments.back() != Some(&moment) {
            self.moments.push_back(moment);
        }
        if self.moments.len() > MOMENTS_MAX {
            let mut keep = false;
            self.moments.retain(|_| {
                keep = !keep;
                keep
            });
        }
    }

    /// Returns which slots can move, given the durable commits of their replicas. Empty if that is not worth
    /// a commit.
    fn moves(&self, durable: &BTreeMap<String, u64>) -> Vec<(String, u64, u64)> {
        let behind = |name: &str, slot: &Slot| {
            let durable = *durable.get(name)?;
            let found = self.moments.iter().rev().find(|(seq, _)| *seq <= durable);
            found.filter(|(seq, _)| *seq > slot.at.seq).copied()
        };
        let moves: Vec<_> = self
            .all
            .iter()
            .filter_map(|(name, slot)| behind(name, slot).map(|(seq, local)| (name.clone(), seq, local)))
            .collect();
        let is_worth_it = |(name, seq, _): &(String, u64, u64)| *seq > self.all[name].at.seq + 1;
        if moves.iter().any(is_worth_it) { moves } else { Vec::new() }
    }
}

/// Returns whether this is a valid name of a slot.
pub fn is_name(name: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_known)
}

impl Replication {
    /// Returns the name under which this database follows primaries, if it has one.
    ///
    /// # Errors
    /// Fails if the engine fails.
    pub fn name(&self) -> Result<Option<String>> {
        self.local().map_or(Ok(None), |(_, records)| records.name())
    }

    /// Returns the name like `name`, and creates one if there is none.
    ///
    /// # Errors
    /// Fails if the engine fails.
    pub(crate) fn own_name(&self) -> Result<String> {
        if let Some(name) = self.name()? {
            return Ok(name);
        }
        let name = format!("replica-{:016x}", fastrand::u64(..));
        let _turn = self.take_turn();
        if let Some((_, records)) = self.local().filter(|_| self.is_replica()) {
            records.set_name(&name)?;
        }
        Ok(name)
    }

    /// Returns the slots and their names.
    pub fn slots(&self) -> BTreeMap<String, Slot> {
        self.slots.lock().all.clone()
    }

    /// Returns the bytes of log kept from a slot on.
    pub fn slot_bytes(&self, slot: &Slot) -> u64 {
        let local = self.local();
        local.map_or(0, |(db, _)| db.feed_bytes_after(SeqNo::new(slot.local)).unwrap_or_default())
    }

    /// Holds the log as the records say.
    pub(super) fn read_slots(&self, db: &Db, records: &Records) -> Result<()> {
        let slots = Slots { all: records.slots()?, moments: VecDeque::new() };
        db.hold_feed_after(slots.first().map(SeqNo::prev));
        *self.slots.lock() = slots;
        Ok(())
    }

    /// Writes or removes slots, then holds the log by the new ones (slots.1).
    fn change_slots(&self, _turn: &MutexGuard<'_, ()>, changes: Vec<(String, Option<Slot>)>) -> Result<()> {
        let Some((db, records)) = self.local() else { return Ok(()) };
        if changes.is_empty() {
            return Ok(());
        }
        records.write_slots(&changes)?;
        let mut slots = self.slots.lock();
        for (name, slot) in changes {
            match slot {
                Some(slot) => drop(slots.all.insert(name, slot)),
                None => drop(slots.all.remove(&name)),
            }
        }
        db.hold_feed_after(slots.first().map(SeqNo::prev));
        Ok(())
    }

    /// Places the slot of a replica that follows from a commit on, given with the engine's number; `None`: it
    /// gets a copy. A slot that is earlier stays.
    ///
    /// # Errors
    /// Fails if the engine fails.
    pub fn take_slot(&self, name: &str, from: Option<(Position, u64)>) -> Result<()> {
        let turn = self.take_turn();
        let known = self.slots.lock().all.get(name).copied();
        let (at, local) = from.unwrap_or_else(|| self.here_in(&self.state.lock()));
        if from.is_some() && known.is_some_and(|known| known.local <= local) {
            return Ok(());
        }
        self.change_slots(&turn, vec![(name.to_owned(), Some(Slot { at, local }))])
    }

    /// Removes a slot. Returns false if there is none with this name.
    ///
    /// # Errors
    /// Fails if the engine fails.
    pub fn drop_slot(&self, name: &str) -> Result<bool> {
        let turn = self.take_turn();
        let is_there = self.slots.lock().all.contains_key(name);
        if is_there {
            self.change_slots(&turn, vec![(name.to_owned(), None)])?;
        }
        Ok(is_there)
    }

    /// Moves slots to the durable commits of their replicas, and drops those whose log is gone. Returns the
    /// dropped ones.
    ///
    /// # Errors
    /// The engine's. No slot has moved then.
    pub fn keep_slots(&self, durable: &BTreeMap<String, u64>) -> Result<Vec<(String, Slot)>> {
        let Some((db, _)) = self.local() else { return Ok(Vec::new()) };
        let turn = self.take_turn();
        let (here, local, history) = {
            let state = self.state.lock();
            let (here, local) = self.here_in(&state);
            (here, local, state.history.clone())
        };
        let (known, moves) = {
            let mut slots = self.slots.lock();
            slots.note((here.seq, local));
            (slots.all.clone(), slots.moves(durable))
        };
        if known.is_empty() {
            return Ok(Vec::new());
        }
        let oldest = match db.feed_after(SeqNo::ZERO) {
            Err(Error::FeedTruncated { oldest }) => oldest.get(),
            // The feed was switched off.
            Err(Error::NoFeed) => u64::MAX,
            feed => feed?.position().get(),
        };
        let gone: Vec<_> = known.into_iter().filter(|(_, slot)| slot.local + 1 < oldest).collect();
        let moved = moves.into_iter().filter(|(name, ..)| gone.iter().all(|(gone, _)| gone != name));
        let moved = moved.map(|(name, seq, local)| {
            (name, Some(Slot { at: Position { epoch: history.epoch_of(seq), seq }, local }))
        });
        let changes = moved.chain(gone.iter().map(|(name, _)| (name.clone(), None))).collect();
        self.change_slots(&turn, changes)?;
        Ok(gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_move_to_what_is_on_the_disk_and_come_to_rest() {
        let slot = |seq| Slot { at: Position { seq, ..Position::default() }, local: seq + 1000 };
        let names = ["a", "b"].map(str::to_owned);
        let mut slots =
            Slots { all: names.iter().cloned().zip([slot(10), slot(12)]).collect(), ..Slots::default() };
        [5, 10, 14, 20, 20, 30].into_iter().for_each(|seq| slots.note((seq, seq + 1000)));
        let moves = |slots: &Slots, durable: [u64; 2]| {
            let durable = names.iter().cloned().zip(durable).collect();
            slots.moves(&durable).into_iter().map(|(name, seq, _)| format!("{name}{seq}")).collect::<Vec<_>>()
        };
        // Durable commits of a and b -> moves
        let table: [([u64; 2], &[&str]); 5] = [
            ([10, 12], &[]),
            ([13, 13], &[]),
            ([19, 13], &["a14"]),
            ([29, 30], &["a20", "b30"]),
            ([99, 0], &["a30"]),
        ];
        for (durable, expected) in table {
            assert_eq!(moves(&slots, durable), expected, "{durable:?}");
        }
        assert_eq!(slots.moves(&BTreeMap::new()), [], "no replica follows");
        slots.all.insert("a".to_owned(), slot(29));
        assert_eq!(moves(&slots, [30, 12]), <[&str; 0]>::default());
        assert_eq!(moves(&slots, [30, 30]), ["a30", "b30"], "both by one commit");
        assert_eq!(slots.first(), Some(SeqNo::new(1013)));
        (31..9000).for_each(|seq| slots.note((seq, seq + 1000)));
        assert!(slots.moments.len() <= MOMENTS_MAX && moves(&slots, [8000, 0]).len() == 1);
    }

    #[test]
    fn names_are_words() {
        assert!(["b", "replica-0f.1_x", &"n".repeat(64)].iter().all(|name| is_name(name)));
        assert!(["", "a b", "a/b", "\u{e9}", &"n".repeat(65)].iter().all(|name| !is_name(name)));
    }
}
