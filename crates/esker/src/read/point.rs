//! Looks up one key: searches the sources from newest to oldest, up to the first one with an answer.
//!
//! ```text
//!   key --hash--> each memtable's filter, tree --> each run: its one table, filter, index, block
//! ```
//!
//! The first version found up to `at` is the newest (view.1), and the resolver interprets it. The resolver is
//! given the range tombstones of that source and of newer ones. Older sources hold only older tombstones over
//! the key.
//!
//! A caller that looks up many keys repins after every [`LOOKUPS_PER_PIN`]. Blocks that lookups evict from
//! the block cache stay in memory as long as the pin.

use std::sync::Arc;

use crossbeam_epoch::Guard;

use super::fetch;
use super::fold::{Base, FoldContext, Folded, Operands};
use super::resolve::{Answer, Resolver};
use super::view::ReadView;
use crate::blob::BlobSet;
use crate::encoding::hash::key_hash;
use crate::manifest::version::Run;
use crate::sstable::{Found, MemoryOnly, NoAnswer, OnMiss, ReadOnMiss};
use crate::types::entry::EntryRef;
use crate::types::expiry::Expiry;
use crate::types::range_tombstone::RangeTombstones;
use crate::types::stored::Stored;
use crate::types::{Cached, Result, SeqNo, Value};

/// Number of keys looked up under one pin.
pub const LOOKUPS_PER_PIN: usize = 16;

/// A memtable with fewer entries is likely in the processor cache.
const WARM_ENTRIES_MIN: u64 = 10_000;

/// What a lookup returns about a key.
pub trait PointQuery {
    /// Type of the answer.
    type Out;
    /// Whether the key is likely absent, so that filters are checked before cached blocks.
    const EXPECTS_NONE: bool;
    /// Whether expired versions count as live.
    const SEES_EXPIRED: bool = false;
    /// Whether an operand alone is the answer, whatever lies below it.
    const OPERAND_SUFFICES: bool = false;
    /// Returns the answer for a live version in a memtable.
    fn of_memtable(stored: Stored<&[u8]>, blobs: &BlobSet) -> Result<Self::Out>;
    /// Like `of_memtable`, for a version whose expiry is known.
    #[inline(always)]
    fn of_entry(entry: &EntryRef<'_>, blobs: &BlobSet) -> Result<Self::Out> {
        Self::of_memtable(Stored::of(entry.kind, entry.value), blobs)
    }
    /// Returns the answer for a live version in a table.
    fn of_table(found: Found<'_>, blobs: &BlobSet) -> Result<Self::Out>;
    /// Returns the answer for operands of an encoded key.
    fn of_folded(folded: &Folded, key: &[u8], fold_context: FoldContext<'_>) -> Result<Self::Out>;
}

/// The value; with `AS_MADE`, even if it has expired.
pub struct ValueQuery<const AS_MADE: bool>;
/// Whether the key is present; with `COUNTED`, whether it is counted: it is present, or has expired without
/// having been swept.
pub struct PresenceQuery<const COUNTED: bool>;
/// The expiry, if the key expires; with `COUNTED`, including expired keys.
pub struct ExpiryQuery<const COUNTED: bool>;
/// The value and its expiry, if it expires.
pub struct EntryOf;
/// The value, if it is stored inline.
pub struct InlineOf;

/// The value.
pub type ValueOf = ValueQuery<false>;
/// The value of a version, even if it has expired.
pub type ValueAsMade = ValueQuery<true>;
/// Whether the key is present.
pub type Presence = PresenceQuery<false>;
/// Whether the key is counted.
pub type CountedPresence = PresenceQuery<true>;
/// The expiry, if the key expires.
pub type ExpiryOf = ExpiryQuery<false>;
/// Like `ExpiryOf`, including expired keys.
pub type ExpiryOfCounted = ExpiryQuery<true>;

impl<const AS_MADE: bool> PointQuery for ValueQuery<AS_MADE> {
    type Out = Value;
    const EXPECTS_NONE: bool = false;
    const SEES_EXPIRED: bool = AS_MADE;
    #[inline]
    fn of_memtable(stored: Stored<&[u8]>, blobs: &BlobSet) -> Result<Value> {
        fetch::copy(stored, blobs)
    }
    #[inline(always)]
    fn of_table(found: Found<'_>, blobs: &BlobSet) -> Result<Value> {
        fetch::value(found.share(), blobs)
    }
    fn of_folded(folded: &Folded, key: &[u8], fold_context: FoldContext<'_>) -> Result<Value> {
        folded.value(key, fold_context)
    }
}

impl PointQuery for EntryOf {
    type Out = (Value, Option<Expiry>);
    const EXPECTS_NONE: bool = false;
    fn of_memtable(stored: Stored<&[u8]>, blobs: &BlobSet) -> Result<Self::Out> {
        Ok((fetch::copy(stored, blobs)?, None))
    }
    fn of_entry(entry: &EntryRef<'_>, blobs: &BlobSet) -> Result<Self::Out> {
        let value = fetch::copy(Stored::of(entry.kind, entry.value), blobs)?;
        Ok((value, Expiry::of_version(entry.kind, entry.value)))
    }
    fn of_table(found: Found<'_>, blobs: &BlobSet) -> Result<Self::Out> {
        let expiry = found.expiry();
        Ok((fetch::value(found.share(), blobs)?, expiry))
    }
    fn of_folded(folded: &Folded, key: &[u8], fold_context: FoldContext<'_>) -> Result<Self::Out> {
        Ok((folded.value(key, fold_context)?, folded.expiry()))
    }
}

impl PointQuery for InlineOf {
    type Out = Option<Value>;
    const EXPECTS_NONE: bool = false;
    fn of_memtable(stored: Stored<&[u8]>, _: &BlobSet) -> Result<Option<Value>> {
        Ok(match stored {
            Stored::Inline(value) => Some(Value::copy_of(value)),
            Stored::Blob(_) => None,
        })
    }
    fn of_table(found: Found<'_>, _: &BlobSet) -> Result<Option<Value>> {
        Ok(match found.share() {
            Stored::Inline(value) => Some(value),
            Stored::Blob(_) => None,
        })
    }
    fn of_folded(folded: &Folded, key: &[u8], fold_context: FoldContext<'_>) -> Result<Option<Value>> {
        if folded.needs_fetch() { Ok(None) } else { folded.value(key, fold_context).map(Some) }
    }
}

impl<const COUNTED: bool> PointQuery for PresenceQuery<COUNTED> {
    type Out = ();
    const EXPECTS_NONE: bool = true;
    const SEES_EXPIRED: bool = COUNTED;
    const OPERAND_SUFFICES: bool = COUNTED;
    #[inline]
    fn of_memtable(_: Stored<&[u8]>, _: &BlobSet) -> Result<()> {
        Ok(())
    }
    #[inline]
    fn of_table(_: Found<'_>, _: &BlobSet) -> Result<()> {
        Ok(())
    }
    fn of_folded(_: &Folded, _: &[u8], _: FoldContext<'_>) -> Result<()> {
        Ok(())
    }
}

impl<const COUNTED: bool> PointQuery for ExpiryQuery<COUNTED> {
    type Out = Option<Expiry>;
    const EXPECTS_NONE: bool = false;
    const SEES_EXPIRED: bool = COUNTED;
    fn of_memtable(_: Stored<&[u8]>, _: &BlobSet) -> Result<Option<Expiry>> {
        Ok(None)
    }
    fn of_entry(entry: &EntryRef<'_>, _: &BlobSet) -> Result<Option<Expiry>> {
        Ok(Expiry::of_version(entry.kind, entry.value))
    }
    fn of_table(found: Found<'_>, _: &BlobSet) -> Result<Option<Expiry>> {
        Ok(found.expiry())
    }
    fn of_folded(folded: &Folded, _: &[u8], _: FoldContext<'_>) -> Result<Option<Expiry>> {
        Ok(folded.expiry())
    }
}

impl ReadView {
    /// Returns whether a version with this expiry has expired, as far as the query cares.
    #[inline]
    pub(crate) fn has_expired<W: PointQuery>(&self, expiry: Option<Expiry>) -> bool {
        !W::SEES_EXPIRED && expiry.is_some_and(|expiry| self.time.has_come(expiry))
    }

    /// Looks up an encoded key at `at`.
    #[inline]
    pub fn find<W: PointQuery>(&self, key: &[u8], at: SeqNo, guard: &Guard) -> Result<Option<W::Out>> {
        self.find_hashed::<W>(key, key_hash(key), at, guard)
    }

    /// Returns false if the filters of all sources show that no version of the key exists. Probes all filters
    /// without waiting for each answer, so that their cache misses overlap.
    #[inline]
    pub fn may_contain(&self, key: &[u8], hash: u64, guard: &Guard) -> bool {
        let in_memtables = self.memtables().fold(false, |may, memtable| may | memtable.may_contain(hash));
        let may_hold =
            |run: &Run| run.find(key).is_some_and(|i| run.tables()[i].table.may_contain(hash, guard));
        self.version.runs().iter().fold(in_memtables, |may, run| may | may_hold(run))
    }

    /// Prefetches the parts of memtables that lookups of these keys will read, so that their cache misses
    /// overlap. Takes at most [`LOOKUPS_PER_PIN`] keys with their hashes.
    pub(crate) fn warm<'k>(&self, keys: impl Iterator<Item = (&'k [u8], u64)> + Clone) {
        for memtable in self.memtables().filter(|memtable| memtable.entries() >= WARM_ENTRIES_MIN) {
            // Lookups made by a commit are followed by inserts into the active memtable.
            let is_active = Arc::ptr_eq(memtable, &self.active);
            let held = keys.clone().filter(|(_, hash)| is_active || memtable.may_contain(*hash));
            memtable.warm(held.map(|(key, _)| key));
        }
    }

    /// Looks up an encoded key with its hash.
    #[inline]
    pub fn find_hashed<W: PointQuery>(
        &self,
        key: &[u8],
        hash: u64,
        at: SeqNo,
        guard: &Guard,
    ) -> Result<Option<W::Out>> {
        self.find_by::<W, ReadOnMiss>(key, hash, at, Operands::default(), guard)
    }

    /// Looks up an encoded key below operands that are newer than every source.
    pub(crate) fn find_below<W: PointQuery>(
        &self,
        key: &[u8],
        at: SeqNo,
        operands: Operands,
        guard: &Guard,
    ) -> Result<Option<W::Out>> {
        self.find_by::<W, ReadOnMiss>(key, key_hash(key), at, operands, guard)
    }

    /// Returns what is needed to compute values.
    #[inline(always)]
    pub fn fold_context(&self) -> FoldContext<'_> {
        FoldContext { blobs: self.version.blobs(), operators: &self.operators }
    }

    /// Returns the answer for operands after the search has ended. `None` if there are no operands or their
    /// value has expired.
    #[inline]
    pub(crate) fn folded<W: PointQuery>(
        &self,
        key: &[u8],
        operands: Operands,
        base: Option<Base>,
    ) -> Result<Option<W::Out>> {
        match Folded::new(operands, base) {
            Some(folded) if !self.has_expired::<W>(folded.expiry()) => {
                W::of_folded(&folded, key, self.fold_context()).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Looks up a key without reading files.
    pub(crate) fn find_in_memory<W: PointQuery>(
        &self,
        key: &[u8],
        hash: u64,
        at: SeqNo,
        guard: &Guard,
    ) -> Result<Cached<W::Out>> {
        match self.find_by::<W, MemoryOnly>(key, hash, at, Operands::default(), guard) {
            Ok(Some(found)) => Ok(Cached::Value(found)),
            Ok(None) => Ok(Cached::Absent),
            Err(NoAnswer::NotInMemory) => Ok(Cached::NotCached),
            Err(NoAnswer::Failed(error)) => Err(error),
        }
    }

    #[inline]
    fn find_by<W: PointQuery, M: OnMiss>(
        &self,
        key: &[u8],
        hash: u64,
        at: SeqNo,
        mut operands: Operands,
        guard: &Guard,
    ) -> Result<Option<W::Out>, M::Error> {
        let mut resolver = Resolver::default();
        // The value below the operands, at the end of the search.
        let base = 'search: {
            for memtable in self.memtables() {
                if memtable.has_range_tombstones() {
                    resolver.cover(memtable.range_tombstones().cover(key, at));
                }
                if (W::EXPECTS_NONE || !self.is_memtable_alone()) && !memtable.may_contain(hash) {
                    continue;
                }
                for entry in memtable.versions(key, at) {
                    // The base of operands counts even if it has expired (fold.3).
                    let expired =
                        || operands.is_empty() && self.has_expired::<W>(Some(Expiry::of(entry.value)));
                    match resolver.feed_reader(entry.seq, entry.kind, expired) {
                        Answer::Live if operands.is_empty() => {
                            return Ok(Some(W::of_entry(&entry, self.version.blobs())?));
                        }
                        Answer::Live => break 'search Some(Base::of(entry.kind, entry.value)),
                        Answer::Gone => break 'search None,
                        Answer::Operand => operands.push(Value::copy_of(entry.value)),
                        Answer::Older => {}
                    }
                    if W::OPERAND_SUFFICES && !operands.is_empty() {
                        break 'search None;
                    }
                }
            }
            for run in self.version.runs() {
                let Some(index) = run.find(key) else { continue };
                let table = &run.tables()[index].table;
                if run.has_range_tombstones() {
                    resolver.cover(table.range_tombstones().cover(key, at));
                }
                let mut below = Some(at);
                while let Some(upto) = below {
                    let filter_first = W::EXPECTS_NONE || run.probes.filter_pays();
                    let found = table.get_by::<M>(key, hash, upto, filter_first, guard)?;
                    run.probes.note(hash, found.is_some());
                    let Some(found) = found else { break };
                    below = found.seq().before();
                    let expired = || operands.is_empty() && self.has_expired::<W>(found.expiry());
                    match resolver.feed_reader(found.seq(), found.kind(), expired) {
                        Answer::Live if operands.is_empty() => {
                            return Ok(Some(W::of_table(found, self.version.blobs())?));
                        }
                        Answer::Live => {
                            break 'search Some(Base { expiry: found.expiry(), stored: found.share() });
                        }
                        Answer::Gone => break 'search None,
                        Answer::Operand => operands.push(found.share().beside()),
                        Answer::Older => {}
                    }
                    if W::OPERAND_SUFFICES && !operands.is_empty() {
                        break 'search None;
                    }
                }
            }
            None
        };
        Ok(self.folded::<W>(key, operands, base)?)
    }

    /// Returns the newest commit after `since` in which a user wrote or removed an encoded key, for conflict
    /// checks. Expiry sweeps do not count (conflict.3).
    pub fn newest_write(&self, key: &[u8], since: SeqNo) -> Result<Option<SeqNo>> {
        self.newest_by(key, since, false)
    }

    /// Returns the sequence number of the newest version of an encoded key after `since`, including sweeps.
    pub(crate) fn newest_version(&self, key: &[u8], since: SeqNo) -> Result<Option<SeqNo>> {
        self.newest_by(key, since, true)
    }

    /// Returns the newest range removal over a key that was made by a user and is newer than `since`.
    fn newest_removal(&self, tombstones: &RangeTombstones, key: &[u8], since: SeqNo) -> SeqNo {
        let mut cover = tombstones.cover(key, SeqNo::MAX);
        while cover > since && self.time.swept.is_sweep(cover, since) {
            cover = cover.before().map_or(SeqNo::ZERO, |before| tombstones.cover(key, before));
        }
        cover
    }

    fn newest_by(&self, key: &[u8], since: SeqNo, counts_sweeps: bool) -> Result<Option<SeqNo>> {
        let hash = key_hash(key);
        let guard = crate::sync::pin();
        let mut newest = SeqNo::ZERO;
        let cover = |tombstones: &RangeTombstones| match counts_sweeps {
            true => tombstones.cover(key, SeqNo::MAX),
            false => self.newest_removal(tombstones, key, since),
        };
        for memtable in self.memtables() {
            if memtable.has_range_tombstones() {
                newest = newest.max(cover(&memtable.range_tombstones()));
            }
            if memtable.may_contain(hash) {
                let found = match counts_sweeps {
                    true => memtable.get(key, SeqNo::MAX).map(|entry| entry.seq),
                    false => memtable.newest_written(key, since),
                };
                newest = newest.max(found.unwrap_or(SeqNo::ZERO));
            }
        }
        for run in self.version.runs().iter().filter(|run| run.max_seq() > since) {
            let Some(index) = run.find(key) else { continue };
            let live = &run.tables()[index];
            if live.meta.counts.max_seq > since {
                newest = newest.max(cover(live.table.range_tombstones()));
                let found = match counts_sweeps {
                    true => live.table.newest_seq(key, hash, &guard)?,
                    false => live.table.newest_written(key, hash, since, &guard)?,
                };
                newest = newest.max(found.unwrap_or(SeqNo::ZERO));
            }
        }
        Ok((newest > since).then_some(newest))
    }
}
