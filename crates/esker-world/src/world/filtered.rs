//! Compaction filters: what they decide, and the commits that come of it.
//!
//! ```text
//!   compaction --entry--> Filter: keep, drop, change --the engine commits some of it, in this order--> read back --> History
//! ```
//!
//! filtered.1. A decision is carried out by a commit, or not at all: the key has what it had, or what was decided.
//!
//! The filters decide only where nothing fails and no process ends before it is known what was carried out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use esker::{Builder, Decision, Durability};
use esker_env::Fs;

use super::trouble::attempt;
use super::{DIR, World};
use crate::model::footprint::Footprint;
use crate::model::keys::{self, KeyNo, key};
use crate::model::state::{Commit, DEFAULT};
use crate::model::values::ValueNo;
use crate::op::{NAMES, Write};

/// The filters of a process.
#[derive(Default)]
pub(super) struct Filters {
    decide: AtomicBool,
    /// The entries that were decided about, by the names of their keyspaces, in order.
    decided: Mutex<Vec<(&'static str, KeyNo)>>,
}

/// What a filter makes of a value; none: it is kept.
fn decision(value: ValueNo) -> Option<Option<ValueNo>> {
    match value.stamp() % 8 {
        4 => Some(None),
        // It stays then.
        5 => Some(Some(ValueNo::new(value.len.max(4), value.stamp() + 2))),
        _ => None,
    }
}

/// The keyspaces that have a filter.
fn names() -> [&'static str; 2] {
    [DEFAULT, NAMES[1]]
}

impl Filters {
    fn decide(&self, name: &'static str, key: &[u8], value: &[u8]) -> Decision {
        let value = ValueNo::parse(value).expect("filtered.1: a value that was never put");
        let no = keys::find(key).expect("filtered.1: a key that was never put");
        let Some(made) = decision(value).filter(|_| self.decide.load(Ordering::Relaxed)) else {
            return Decision::Keep;
        };
        self.decided.lock().unwrap_or_else(PoisonError::into_inner).push((name, no));
        made.map_or(Decision::Drop, |changed| Decision::Change(changed.bytes()))
    }

    /// An opening with the filters.
    pub(super) fn with(self: &Arc<Self>, builder: Builder) -> Builder {
        names().into_iter().fold(builder, |builder, name| {
            let filters = self.clone();
            builder.compaction_filter(name, move |key, value| filters.decide(name, key, value))
        })
    }
}

impl World {
    /// Calls the database, and has its filters decide meanwhile, unless something could fail.
    pub(super) fn filtering<T>(&mut self, call: impl FnOnce(&mut Self) -> T) -> T {
        let has_room = self.disk.free_bytes(DIR.as_ref()).is_ok_and(|free| free == u64::MAX);
        let is_alone = self.between.is_none() && self.armed.is_none();
        let is_calm = has_room && is_alone && !self.faults.has_rules() && !self.swept;
        self.filters.decide.store(is_calm, Ordering::Relaxed);
        let done = call(self);
        self.filters.decide.store(false, Ordering::Relaxed);
        done
    }

    /// Takes note of what was carried out of the decisions (filtered.1).
    pub(super) fn note_filtered(&mut self) {
        let decided = self.filters.decided.lock().map(|mut decided| std::mem::take(&mut *decided));
        let mut decided = decided.unwrap_or_default();
        self.expire();
        while !decided.is_empty() {
            let (name, no) = decided.remove(0);
            // What was decided again had not been carried out.
            if !decided.contains(&(name, no)) {
                self.note_decided(name, no);
            }
        }
    }

    fn note_decided(&mut self, name: &str, no: KeyNo) {
        // With what has expired, which is shown to filters until a compaction or a sweep removes it.
        let newest = self.history.newest_whole();
        let Some(id) = newest.names().get(name).copied() else { return };
        let map = newest.map(id);
        let Some(value) = map.entries().get(&no).copied() else { return };
        let Some(made) = decision(value) else { return };
        let found = attempt(|| self.keyspaces[&id].get(key(no)));
        let found = found.unwrap_or_else(|error| panic!("filtered.1: {error}"));
        let found =
            found.map(|found| ValueNo::parse(&found).expect("filtered.1: a value that was never put"));
        let is_there = map.until().get(&no).is_none_or(|until| *until > self.now_ms());
        if is_there && found == Some(value) {
            return;
        }
        // What has expired cannot be read. The model takes the decision as carried out.
        assert_eq!(found, made.filter(|_| is_there), "filtered.1: {no:?} was {value:?}");
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
    }
}
