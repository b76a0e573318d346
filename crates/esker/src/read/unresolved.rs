//! What unresolved versions come to: the keys that commits counted as new without looking, and that were not.
//!
//! ```text
//!   len() = count of commits - debts of merges - unresolved versions above a live one
//!                                                  |-- of a table: looked up once, in key order
//!                                                  `-- of a memtable: those that came since the last time
//! ```
//!
//! unresolved.1. Whether a version stands above a live one never changes, whatever is merged: it is looked up once while its source lasts.
//! unresolved.2. A reader at a number owes for the versions up to that number.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::point::{CountedPresence, LOOKUPS_PER_PIN};
use super::view::ReadView;
use crate::memtable::Memtable;
use crate::types::entry::EntryRef;
use crate::types::key::decode_key;
use crate::types::{FileId, KeyspaceId, Result, SeqNo};

type Owed = BTreeMap<KeyspaceId, u64>;

/// What was looked up (unresolved.1). Of all views of a database.
#[derive(Debug, Default)]
pub struct Known {
    of: Mutex<OfSources>,
}

#[derive(Debug, Default)]
struct OfSources {
    /// All of a table's.
    tables: BTreeMap<FileId, Owed>,
    memtables: Vec<OfMemtable>,
}

/// Of the versions of a memtable up to a number.
#[derive(Debug)]
struct OfMemtable {
    memtable: Weak<Memtable>,
    upto: SeqNo,
    owed: Owed,
}

impl ReadView {
    /// Versions that are unresolved.
    pub fn unresolved(&self) -> u64 {
        self.memtables().map(|memtable| memtable.unresolved()).sum::<u64>() + self.version.unresolved()
    }

    /// Whether the counts of commits are the numbers of live keys.
    #[inline]
    pub fn is_resolved(&self) -> bool {
        self.version.debts().is_empty() && self.unresolved() == 0
    }

    /// What is to be taken from a keyspace's count at this number, of which all is in the view.
    pub fn owed(&self, keyspace: KeyspaceId, at: SeqNo) -> Result<u64> {
        let mut owed = self.version.debts().at(keyspace, at);
        for memtable in self.memtables().filter(|memtable| memtable.unresolved() > 0) {
            owed += self.owed_of_memtable(memtable, keyspace, at)?;
        }
        if self.version.unresolved() > 0 {
            owed += self.owed_of_tables(keyspace, at)?;
        }
        Ok(owed)
    }

    fn owed_of_memtable(&self, memtable: &Arc<Memtable>, keyspace: KeyspaceId, at: SeqNo) -> Result<u64> {
        let is_it = |known: &OfMemtable| std::ptr::eq(known.memtable.as_ptr(), &raw const **memtable);
        let (from, mut owed) = {
            let mut of = self.known.of.lock();
            of.memtables.retain(|known| known.memtable.strong_count() > 0);
            let known = of.memtables.iter().find(|known| is_it(known) && known.upto <= at);
            known.map_or((SeqNo::ZERO, Owed::new()), |known| (known.upto, known.owed.clone()))
        };
        if from < at && memtable.max_seq() > Some(from) {
            let mut scan = memtable.scan();
            let mut lookups = LookUps::new(self, &mut owed);
            while let Some(entry) = scan.next() {
                if entry.seq > from && entry.seq <= at {
                    lookups.note(&entry)?;
                }
            }
        }
        let of_keyspace = owed.get(&keyspace).copied().unwrap_or(0);
        let upto = at.min(memtable.max_seq().unwrap_or_default());
        let mut of = self.known.of.lock();
        match of.memtables.iter_mut().find(|known| is_it(known)) {
            Some(known) if known.upto >= upto => {}
            Some(known) => (known.upto, known.owed) = (upto, owed),
            None => of.memtables.push(OfMemtable { memtable: Arc::downgrade(memtable), upto, owed }),
        }
        Ok(of_keyspace)
    }

    fn owed_of_tables(&self, keyspace: KeyspaceId, at: SeqNo) -> Result<u64> {
        let mut sum = 0;
        let unresolved = || self.version.tables().filter(|(_, live)| live.meta.counts.unresolved > 0);
        for (_, live) in unresolved() {
            let is_whole = live.meta.counts.max_seq <= at;
            if is_whole && let Some(owed) = self.known.of.lock().tables.get(&live.file) {
                sum += owed.get(&keyspace).copied().unwrap_or(0);
                continue;
            }
            let mut owed = Owed::new();
            let mut lookups = LookUps::new(self, &mut owed);
            let mut scan = live.table.scan();
            while let Some(entry) = scan.next()? {
                if entry.seq <= at {
                    lookups.note(&entry)?;
                }
            }
            sum += owed.get(&keyspace).copied().unwrap_or(0);
            if is_whole {
                self.known.of.lock().tables.insert(live.file, owed);
            }
        }
        let mut of = self.known.of.lock();
        if of.tables.len() > 2 * unresolved().count() + 16 {
            of.tables.retain(|file, _| unresolved().any(|(_, live)| live.file == *file));
        }
        Ok(sum)
    }
}

/// Looks keys up below their unresolved versions.
struct LookUps<'a> {
    view: &'a ReadView,
    owed: &'a mut Owed,
    guard: crossbeam_epoch::Guard,
    done: usize,
}

impl<'a> LookUps<'a> {
    fn new(view: &'a ReadView, owed: &'a mut Owed) -> Self {
        LookUps { view, owed, guard: crate::sync::pin(), done: 0 }
    }

    fn note(&mut self, entry: &EntryRef<'_>) -> Result<()> {
        let Some(before) = entry.seq.before().filter(|_| entry.kind.is_unresolved()) else { return Ok(()) };
        self.done += 1;
        if self.done.is_multiple_of(LOOKUPS_PER_PIN) {
            self.guard.repin();
        }
        if self.view.find::<CountedPresence>(entry.key, before, &self.guard)?.is_some()
            && let Some((keyspace, _)) = decode_key(entry.key)
        {
            *self.owed.entry(keyspace).or_default() += 1;
        }
        Ok(())
    }
}
