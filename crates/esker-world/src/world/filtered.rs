//! Compaction filters: their decisions, and the resulting commits.
//!
//! ```text
//!   compaction --entry--> Filter: keep, drop, change --the engine commits a prefix--> read back --> History
//! ```
//!
//! A decision takes effect by a commit or not at all: the key has its old value or the decided one. The
//! filters decide only while no call fails and no process ends before the outcome is known.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use esker::{Builder, Decision, Durability};
use esker_env::Fs;

use super::faults::attempt;
use super::{DIR, World};
use crate::model::footprint::Footprint;
use crate::model::keys::{self, KeyNo, key};
use crate::model::state::{Commit, DEFAULT, Id};
use crate::model::values::ValueNo;
use crate::op::{NAMES, Write};

/// The filters of a process.
#[derive(Default)]
pub(super) struct Filters {
    decide: AtomicBool,
    /// The decided entries with the names that their keyspaces have at the time, in order.
    decided: Mutex<Vec<(&'static str, KeyNo)>>,
    /// Decisions of compactions that have stopped. Their keyspaces may be renamed before they take effect.
    open: Mutex<Vec<(Id, KeyNo)>>,
}

/// Returns the decision on a value: `None` keeps it.
fn decision(value: ValueNo) -> Option<Option<ValueNo>> {
    match value.stamp() % 8 {
        4 => Some(None),
        // Later decisions keep the changed value.
        5 => Some(Some(ValueNo::new(value.len.max(4), value.stamp() + 2))),
        _ => None,
    }
}

/// The keyspaces with a filter.
fn names() -> [&'static str; 2] {
    [DEFAULT, NAMES[1]]
}

fn taken<T>(list: &Mutex<Vec<T>>) -> Vec<T> {
    std::mem::take(&mut *list.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Filters {
    fn decide(&self, name: &'static str, key: &[u8], value: &[u8]) -> Decision {
        let value = ValueNo::parse(value).expect("a value that was never put");
        let no = keys::find(key).expect("a key that was never put");
        let Some(made) = decision(value).filter(|_| self.decide.load(Ordering::Relaxed)) else {
            return Decision::Keep;
        };
        self.decided.lock().unwrap_or_else(PoisonError::into_inner).push((name, no));
        made.map_or(Decision::Drop, |changed| Decision::Change(changed.bytes()))
    }

    /// Adds the filters to the options.
    pub(super) fn with(self: &Arc<Self>, builder: Builder) -> Builder {
        names().into_iter().fold(builder, |builder, name| {
            let filters = self.clone();
            builder.compaction_filter(name, move |key, value| filters.decide(name, key, value))
        })
    }
}

impl World {
    /// Calls the database with active filters, unless something could fail.
    pub(super) fn filtering<T>(&mut self, call: impl FnOnce(&mut Self) -> T) -> T {
        self.machine.filters.decide.store(self.is_calm(), Ordering::Relaxed);
        let done = call(self);
        self.machine.filters.decide.store(false, Ordering::Relaxed);
        done
    }

    /// Returns whether no call fails and no process ends unexpectedly.
    pub(super) fn is_calm(&self) -> bool {
        let has_room = self.machine.disk.free_bytes(DIR.as_ref()).is_ok_and(|free| free == u64::MAX);
        let is_alone = self.between.is_none() && self.process.armed.is_none();
        let is_sound = !self.process.poisoned && !self.process.panicked;
        has_room && is_alone && is_sound && !self.machine.faults.has_rules() && !self.mode.swept
    }

    /// Notes which decisions took effect. Those of a compaction that has stopped may take effect later.
    pub(super) fn note_filtered(&mut self) {
        let mut decided = taken(&self.machine.filters.open);
        let names = self.history.newest_whole().names();
        let of_names = taken(&self.machine.filters.decided).into_iter();
        decided.extend(of_names.filter_map(|(name, no)| Some((names.get(name).copied()?, no))));
        self.expire();
        let mut open = Vec::new();
        while !decided.is_empty() {
            let (id, no) = decided.remove(0);
            // A repeated decision means that the earlier one had no effect.
            if !decided.contains(&(id, no)) && !self.note_decided(id, no) {
                open.push((id, no));
            }
        }
        if self.compactions() > 0 {
            *self.machine.filters.open.lock().unwrap_or_else(PoisonError::into_inner) = open;
        }
    }

    /// Notes whether a decision took effect. Returns `false` if it may still do so.
    fn note_decided(&mut self, id: Id, no: KeyNo) -> bool {
        let Some(keyspace) = self.keyspaces.get(&id) else { return true };
        // Includes expired entries, which filters see until a compaction or sweep removes them.
        let map = self.history.newest_whole().map(id);
        let Some(value) = map.entries().get(&no).copied() else { return true };
        let Some(made) = decision(value) else { return true };
        let found = attempt(|| keyspace.get(key(no)));
        let found = found.unwrap_or_else(|error| panic!("{error}"));
        let found = found.map(|found| ValueNo::parse(&found).expect("a value that was never put"));
        let is_there = map.until().get(&no).is_none_or(|until| *until > self.now_ms());
        if is_there && found == Some(value) {
            return false;
        }
        // Expired entries cannot be read. The model assumes that the decision took effect.
        assert_eq!(found, made.filter(|_| is_there), "{no:?} was {value:?}");
        let write = match (made, map.until().get(&no)) {
            (None, _) => Write::Remove(no),
            (Some(changed), None) => Write::Put(no, changed),
            (Some(changed), Some(until)) => Write::PutUntil(no, changed, *until),
        };
        let writes = vec![(id, write)];
        let footprint = Footprint::of(&writes);
        self.history.push(Commit::Writes(writes), footprint, Durability::None);
        self.copies.timeline.be_in_doubt();
        self.tally.filtered += 1;
        true
    }
}
