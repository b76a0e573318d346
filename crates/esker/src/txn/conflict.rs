//! Does a transaction write what somebody else wrote since it began? Snapshot isolation: first committer wins.
//!
//! conflict.1. A conflict is a version, a tombstone or a range tombstone newer than the transaction's snapshot over a key
//!      that it writes, or anywhere in a range that it removes.
//! conflict.2. Nothing newer than a live snapshot is ever garbage-collected or loses its sequence number, so what there is
//!      to find is there. The commit lock is held: nothing new arrives meanwhile.
//! conflict.3. A sweep's removal of expired keys is no conflict, because readers saw them gone before. Where a compaction drops a version below
//!     it that a live snapshot does not see, the removal becomes a plain one (compaction_judge.10). A sweep of a range counts if it removed a
//!     version newer than the snapshot (read/swept.rs).
//!     It is one for an operand: what it was merged into has gone, and it would begin a value that outlives that.
//! conflict.4. Only conflicts of isolation pass over sweeps. Code that asks whether anything lies above a place, or
//!     whether a count still holds, looks for [`Newer::Versions`].

use super::commit::KeyspaceLife;
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

/// Which newer versions are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Newer {
    /// Those that users wrote: conflicts of isolation (conflict.3).
    Writes,
    /// All of them, those of sweeps included (conflict.4).
    Versions,
}

impl Newer {
    /// Which are looked for where an op of this kind is to be written (conflict.3).
    #[inline]
    pub(super) fn of(self, own: Kind) -> Self {
        let stands_on_it = own.is_operand() && !canary::is_set(Canary::OperandPassesSweep);
        if stands_on_it { Newer::Versions } else { self }
    }

    /// Whether a version of this kind is one of them.
    #[inline]
    pub(super) fn includes(self, kind: Kind) -> bool {
        self == Newer::Versions || !kind.is_sweep()
    }

    /// Whether a range removal of this number is one of them.
    pub(super) fn includes_range(self, removal: SeqNo, since: SeqNo, view: &ReadView) -> bool {
        removal > since && (self == Newer::Versions || !view.time.swept.is_sweep(removal, since))
    }
}

/// What a transaction writes that later commits have written, too: an encoded key, or the ends of a range.
pub struct Conflict {
    pub(super) start: Vec<u8>,
    pub(super) end: Option<Vec<u8>>,
}

/// The first conflict of a transaction that began at `since` with later commits (conflict.1).
pub fn find_conflict(set: &WriteSet, since: SeqNo, view: &ReadView) -> Result<Option<Conflict>> {
    if view.newest_possible() <= since {
        return Ok(None);
    }
    for entry in set.entries(SeqNo::MAX) {
        let newer = match Newer::Writes.of(entry.kind) {
            Newer::Writes => view.newest_write(entry.key, since)?,
            Newer::Versions => view.newest_version(entry.key, since)?,
        };
        if newer.is_some() {
            return Ok(Some(Conflict { start: entry.key.to_vec(), end: None }));
        }
    }
    for (start, end) in set.ranges() {
        let range = KeyRange { start: start.clone(), end: End::Excluded(end.clone()) };
        if range_written(&range, since, view, Newer::Writes)? {
            return Ok(Some(Conflict { start: start.clone(), end: Some(end.clone()) }));
        }
    }
    Ok(None)
}

impl Conflict {
    /// For the user, who knows the keyspaces by these names.
    pub fn into_error(self, keyspaces: &[KeyspaceLife]) -> Error {
        let (id, start) = decode_key(&self.start).expect("a write set holds encoded keys");
        if id == KeyspaceId::CATALOG {
            let keyspace = match (name_of(start), options_of(start)) {
                (Some(name), _) => name.to_owned(),
                (None, Some(id)) => name_in(keyspaces, id),
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
        Error::Conflict { keyspace: name_in(keyspaces, id), contended }
    }
}

/// What a keyspace is called, if it is one of these.
fn name_in(keyspaces: &[KeyspaceLife], id: KeyspaceId) -> String {
    let named = keyspaces.iter().find(|keyspace| keyspace.id == id);
    named.map_or_else(|| format!("number {id}"), |keyspace| keyspace.name.to_string())
}

/// Whether anything in `range` was written after `since`.
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
