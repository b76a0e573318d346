//! Resolves the counts of keys: finds keys that commits counted as new without a lookup although they
//! existed.
//!
//! ```text
//!   len() = commit counts - overcounts of compacted tables - unresolved versions above a live one
//!                                                    |-- in a table: looked up once, in key order
//!                                                    `-- in a memtable: those added since the last time
//! ```
//!
//! Whether a version lies above a live one never changes, even by compactions. It is looked up
//! once in the lifetime of its source.
//!
//! A reader at a sequence number subtracts the overcounts of versions up to that number.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::point::{CountedPresence, LOOKUPS_PER_PIN};
use super::view::ReadView;
use crate::memtable::Memtable;
use crate::types::entry::EntryRef;
use crate::types::key::decode_key;
use crate::types::{FileId, KeyspaceId, Result, SeqNo};

type Overcounts = BTreeMap<KeyspaceId, u64>;

/// Overcounts looked up so far, shared by all views of a database.
#[derive(Debug, Default)]
pub struct Known {
    of: Mutex<SourceOvercounts>,
}

#[derive(Debug, Default)]
struct SourceOvercounts {
    /// Overcounts of whole tables.
    tables: BTreeMap<FileId, Overcounts>,
    memtables: Vec<MemtableOvercounts>,
}

/// Overcounts of the versions of a memtable up to a sequence number.
#[derive(Debug)]
struct MemtableOvercounts {
    memtable: Weak<Memtable>,
    upto: SeqNo,
    overcounts: Overcounts,
}

impl ReadView {
    /// Number of unresolved versions.
    pub fn unresolved(&self) -> u64 {
        self.memtables().map(|memtable| memtable.unresolved()).sum::<u64>() + self.version.unresolved()
    }

    /// Returns whether the counts of commits equal the numbers of live keys.
    #[inline]
    pub fn is_resolved(&self) -> bool {
        self.version.overcounts().is_empty() && self.unresolved() == 0
    }

    /// Returns the number to subtract from the count of a keyspace at `at`. The view must contain all commits
    /// up to `at`.
    pub fn overcount(&self, keyspace: KeyspaceId, at: SeqNo) -> Result<u64> {
        let mut overcounts = self.version.overcounts().at(keyspace, at);
        for memtable in self.memtables().filter(|memtable| memtable.unresolved() > 0) {
            overcounts += self.overcount_of_memtable(memtable, keyspace, at)?;
        }
        if self.version.unresolved() > 0 {
            overcounts += self.overcount_of_tables(keyspace, at)?;
        }
        Ok(overcounts)
    }

    fn overcount_of_memtable(
        &self,
        memtable: &Arc<Memtable>,
        keyspace: KeyspaceId,
        at: SeqNo,
    ) -> Result<u64> {
        let is_it = |known: &MemtableOvercounts| std::ptr::eq(known.memtable.as_ptr(), &raw const **memtable);
        let (from, mut overcounts) = {
            let mut of = self.known.of.lock();
            of.memtables.retain(|known| known.memtable.strong_count() > 0);
            let known = of.memtables.iter().find(|known| is_it(known) && known.upto <= at);
            known.map_or((SeqNo::ZERO, Overcounts::new()), |known| (known.upto, known.overcounts.clone()))
        };
        if from < at && memtable.max_seq() > Some(from) {
            let mut scan = memtable.scan();
            let mut lookups = OvercountLookups::new(self, &mut overcounts);
            while let Some(entry) = scan.next() {
                if entry.seq > from && entry.seq <= at {
                    lookups.note(&entry)?;
                }
            }
        }
        let of_keyspace = overcounts.get(&keyspace).copied().unwrap_or(0);
        let upto = at.min(memtable.max_seq().unwrap_or_default());
        let mut of = self.known.of.lock();
        match of.memtables.iter_mut().find(|known| is_it(known)) {
            Some(known) if known.upto >= upto => {}
            Some(known) => (known.upto, known.overcounts) = (upto, overcounts),
            None => {
                of.memtables.push(MemtableOvercounts { memtable: Arc::downgrade(memtable), upto, overcounts })
            }
        }
        Ok(of_keyspace)
    }

    fn overcount_of_tables(&self, keyspace: KeyspaceId, at: SeqNo) -> Result<u64> {
        let mut sum = 0;
        let unresolved = || self.version.tables().filter(|(_, live)| live.meta.counts.unresolved > 0);
        for (_, live) in unresolved() {
            let is_whole = live.meta.counts.max_seq <= at;
            if is_whole && let Some(overcounts) = self.known.of.lock().tables.get(&live.file) {
                sum += overcounts.get(&keyspace).copied().unwrap_or(0);
                continue;
            }
            let mut overcounts = Overcounts::new();
            let mut lookups = OvercountLookups::new(self, &mut overcounts);
            let mut scan = live.table.scan();
            while let Some(entry) = scan.next()? {
                if entry.seq <= at {
                    lookups.note(&entry)?;
                }
            }
            sum += overcounts.get(&keyspace).copied().unwrap_or(0);
            if is_whole {
                self.known.of.lock().tables.insert(live.file, overcounts);
            }
        }
        let mut of = self.known.of.lock();
        if of.tables.len() > 2 * unresolved().count() + 16 {
            of.tables.retain(|file, _| unresolved().any(|(_, live)| live.file == *file));
        }
        Ok(sum)
    }
}

/// Looks up keys below their unresolved versions.
struct OvercountLookups<'a> {
    view: &'a ReadView,
    overcounts: &'a mut Overcounts,
    guard: crossbeam_epoch::Guard,
    done: usize,
}

impl<'a> OvercountLookups<'a> {
    fn new(view: &'a ReadView, overcounts: &'a mut Overcounts) -> Self {
        OvercountLookups { view, overcounts, guard: crate::sync::pin(), done: 0 }
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
            *self.overcounts.entry(keyspace).or_default() += 1;
        }
        Ok(())
    }
}
