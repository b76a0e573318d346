//! Detects write conflicts of a transaction with commits made since it began. Snapshot isolation: the first
//! committer wins.
//!
//! conflict.1. A conflict is a version or tombstone newer than the snapshot of the transaction. It concerns a
//!     key that the transaction writes or a range that it removes.
//! conflict.3. The removal of an expired key by a sweep is not a conflict, because readers already saw the
//!     key as removed. If a compaction drops a version below it that a live snapshot does not see, it turns
//!     the sweep into a plain removal. A sweep of a range is a conflict if it removed a
//!     version newer than the snapshot (read/swept.rs). For an operand every sweep is a conflict: its base is
//!     gone, and the operand would create a value that outlives it.
//!
//! - Only conflict checks for isolation ignore sweeps. Code that asks whether anything lies above a
//!   table, or whether a count still holds, uses [`Newer::Versions`].
//!
//! Compactions never drop anything newer than a live snapshot, so all conflicts can be found. The commit lock
//! is held, so nothing is added meanwhile.

use std::sync::Arc;

use super::request::KeyspaceLife;
use crate::encoding::catalog_key::{name_of, options_of};
use crate::read::view::ReadView;
use crate::txn::write_set::WriteSet;
use crate::types::canary::{self, Canary};
use crate::types::entry::EntryRef;
use crate::types::key::decode_key;
use crate::types::key_range::{End, KeyRange};
use crate::types::op::Kind;
use crate::types::range_tombstone::RangeTombstones;
use crate::types::{Contended, Error, KeyspaceId, Result, SeqNo};

/// Which newer versions to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Newer {
    /// Versions written by users, for conflict checks (conflict.3).
    Writes,
    /// All versions, including those of sweeps.
    Versions,
}

impl Newer {
    /// Returns which versions to look for when an op of kind `own` is written (conflict.3).
    #[inline]
    pub(super) fn of(self, own: Kind) -> Self {
        let stands_on_it = own.is_operand() && !canary::is_set(Canary::OperandPassesSweep);
        if stands_on_it { Newer::Versions } else { self }
    }

    /// Returns whether a version of this kind is included.
    #[inline]
    pub(super) fn includes(self, kind: Kind) -> bool {
        self == Newer::Versions || !kind.is_sweep()
    }

    /// Returns whether a range removal with this sequence number is included.
    pub(super) fn includes_range(self, removal: SeqNo, since: SeqNo, view: &ReadView) -> bool {
        removal > since && (self == Newer::Versions || !view.time.swept.is_sweep(removal, since))
    }
}

/// A key or range of a transaction that a later commit has written too.
pub struct Conflict {
    pub(super) start: Vec<u8>,
    pub(super) end: Option<Vec<u8>>,
}

/// Returns the first conflict of a transaction that began at `since` with later commits (conflict.1).
/// `is_unchanged` returns whether the key at a place of the set is known not to have been written later.
pub fn find_conflict(
    set: &WriteSet,
    since: SeqNo,
    view: &ReadView,
    is_unchanged: impl Fn(usize) -> bool,
) -> Result<Option<Conflict>> {
    let mut places = 0..;
    find_conflict_of(set, since, view, |_, kind| kind.is_none() || !places.next().is_some_and(&is_unchanged))
}

/// Like [`find_conflict`], for the ops and range removals that count. `counts` gets the key or the start of
/// the range, and the kind of an op.
pub(crate) fn find_conflict_of(
    set: &WriteSet,
    since: SeqNo,
    view: &ReadView,
    mut counts: impl FnMut(&[u8], Option<Kind>) -> bool,
) -> Result<Option<Conflict>> {
    if view.newest_possible() <= since {
        return Ok(None);
    }
    for entry in set.entries(SeqNo::MAX).filter(|entry| counts(entry.key, Some(entry.kind))) {
        let newer = match Newer::Writes.of(entry.kind) {
            Newer::Writes => view.newest_write(entry.key, since)?,
            Newer::Versions => view.newest_version(entry.key, since)?,
        };
        if newer.is_some() {
            return Ok(Some(Conflict { start: entry.key.to_vec(), end: None }));
        }
    }
    for (start, end) in set.ranges().iter().filter(|(start, _)| counts(start, None)) {
        let range = KeyRange { start: start.clone(), end: End::Excluded(end.clone()) };
        if range_written(&range, since, view, Newer::Writes)? {
            return Ok(Some(Conflict { start: start.clone(), end: Some(end.clone()) }));
        }
    }
    Ok(None)
}

impl Conflict {
    /// Returns the conflict over a range.
    pub(crate) fn over(range: KeyRange) -> Self {
        let is_point = range.is_point();
        let end = match range.end {
            End::Excluded(end) => end,
            End::Included(last) => [&last, &[0][..]].concat(),
        };
        Conflict { start: range.start, end: (!is_point).then_some(end) }
    }

    /// Converts to an error with the name of the keyspace.
    pub fn into_error(self, keyspace_name: impl Fn(KeyspaceId) -> Option<Arc<str>>) -> Error {
        let named = |id| keyspace_name(id).map_or_else(|| format!("number {id}"), |name| name.to_string());
        let (id, start) = decode_key(&self.start).expect("a write set holds encoded keys");
        if id == KeyspaceId::CATALOG {
            let keyspace = match (name_of(start), options_of(start)) {
                (Some(name), _) => name.to_owned(),
                (None, Some(id)) => named(id),
                (None, None) => "default".to_owned(),
            };
            return Error::Conflict { keyspace, contended: Contended::Keyspace };
        }
        let contended = match self.end.as_deref().map(decode_key) {
            None => Contended::Key(start.to_vec()),
            Some(end) => {
                let end = end.filter(|end| end.0 == id).map(|end| end.1.to_vec());
                Contended::Range { start: start.to_vec(), end }
            }
        };
        Error::Conflict { keyspace: named(id), contended }
    }
}

/// Returns the name of a keyspace that is among `keyspaces`.
pub(crate) fn name_among(keyspaces: &[KeyspaceLife], id: KeyspaceId) -> Option<Arc<str>> {
    keyspaces.iter().find(|keyspace| keyspace.id == id).map(|keyspace| keyspace.name.clone())
}

/// Returns whether anything in `range` was written after `since`.
pub(super) fn range_written(range: &KeyRange, since: SeqNo, view: &ReadView, which: Newer) -> Result<bool> {
    let newer = |tombstones: &RangeTombstones| {
        let inside = tombstones.clipped(range);
        let mut seqs = inside.fragments().flat_map(|fragment| fragment.seqs.iter());
        seqs.any(|seq| which.includes_range(seq, since, view))
    };
    let inside = |entry: &EntryRef<'_>| range.end.admits(entry.key);
    for memtable in view.memtables() {
        if memtable.has_range_tombstones() && newer(&memtable.range_tombstones()) {
            return Ok(true);
        }
        let mut scan = memtable.scan();
        scan.seek(&range.start);
        while let Some(entry) = scan.next().filter(inside) {
            if entry.seq > since && which.includes(entry.kind) {
                return Ok(true);
            }
        }
    }
    for table in view.tables_newer(range, since) {
        if newer(table.range_tombstones()) {
            return Ok(true);
        }
        let mut scan = table.scan();
        scan.seek(&range.start)?;
        while let Some(entry) = scan.next()?.filter(inside) {
            if entry.seq > since && which.includes(entry.kind) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
