//! Joins long runs of operands of one key, so that readers get them as one list.
//!
//! ```text
//!   chain:     operand --> operand --> ... --> operand --> base
//!                 |                                          ^
//!                 `--> joined record: all of these operands -'
//! ```
//!
//! A reader of a key needs all operands down to the base. To avoid reading a counter with 100,000 operands
//! one by one, the applier writes a joined record that lists the operands of a run. Readers of the value use
//! it instead of the run. A flush or a history read needs each version and follows the chain.
//!
//! A joined record is written once a key has received [`OPERANDS_MIN`] operands since the last one, with at
//! least as many bytes as the last one holds. Joined records therefore take at most twice the memory of the
//! operands. A reader meets few operands one by one, or few compared with those in the joined record.
//!
//! A run ends above a version that is not an operand, and above what a range tombstone of the same
//! memtable hides. Other range tombstones are older or newer than the whole run.
//!
//! Keys with long runs are tracked in a small table. Keys that collide in it may stay unjoined; readers then
//! read their operands one by one.

use super::Memtable;
use super::record::RecordRef;
use crate::types::SeqNo;
use crate::types::entry::EntryRef;
use crate::types::expiry::Expiry;
use crate::types::limits::VALUE_BYTES_MAX;

/// Number of operands of a key after which a joined record is written.
const OPERANDS_MIN: u32 = 64;
/// Entries in the table of tracked keys, and how many of them a key may use.
const TRACKED_KEYS: usize = 256;
const KEYS_PER_SET: usize = 4;

/// Joins the operands of a run into one list.
pub(crate) trait Join: Send {
    /// Joins the operand lists of an encoded key, newest first, into one. `may_expire_below` says whether the
    /// value below the run expires; `None` if that value is in older memtables or tables. Returns `None` to
    /// leave the lists separate.
    fn join(&self, key: &[u8], lists: &[&[u8]], may_expire_below: Option<bool>) -> Option<Vec<u8>>;
}

/// A joined record to be written.
pub(super) struct Joined<'a> {
    /// The operands.
    pub(super) list: Vec<u8>,
    /// The version below the run.
    pub(super) below: Option<RecordRef<'a>>,
}

/// Tracks keys to find those with long runs.
#[derive(Default)]
pub(super) struct Runs {
    /// `None` disables joining.
    join: Option<Box<dyn Join>>,
    /// Empty until the first operand is inserted.
    keys: Vec<TrackedKey>,
}

/// The tracked run of one key.
#[derive(Clone, Default)]
struct TrackedKey {
    hash: u64,
    /// Operands since the last joined record, minus the operands of colliding keys that found no entry.
    operands: u32,
    /// Bytes of these operands.
    bytes: usize,
    /// Bytes of the last joined record.
    joined_bytes: usize,
}

impl Runs {
    pub(super) fn join_by(&mut self, join: Box<dyn Join>) {
        self.join = Some(join);
    }

    /// Records an operand that is about to be inserted. Returns the joined record to insert with it, if one
    /// is due.
    pub(super) fn joined<'m>(
        &mut self,
        entry: EntryRef<'_>,
        hash: u64,
        memtable: &'m Memtable,
    ) -> Option<Joined<'m>> {
        let join = self.join.as_ref()?;
        if self.keys.is_empty() {
            self.keys = vec![TrackedKey::default(); TRACKED_KEYS];
        }
        let first = hash as usize % (TRACKED_KEYS / KEYS_PER_SET) * KEYS_PER_SET;
        let tracked = TrackedKey::of(&mut self.keys[first..first + KEYS_PER_SET], hash)?;
        tracked.operands += 1;
        tracked.bytes += entry.value.len();
        if tracked.operands < OPERANDS_MIN || tracked.bytes < tracked.joined_bytes {
            return None;
        }
        let joined = join_run(&**join, entry, memtable);
        (tracked.operands, tracked.bytes) = (0, 0);
        tracked.joined_bytes = joined.as_ref().map_or(0, |joined| joined.list.len());
        joined
    }
}

impl TrackedKey {
    /// Returns the entry of a key, or an entry taken over from a key with few recent operands. `None` if all
    /// candidates are in use.
    fn of(set: &mut [TrackedKey], hash: u64) -> Option<&mut TrackedKey> {
        if let Some(known) = set.iter().position(|tracked| tracked.hash == hash) {
            return Some(&mut set[known]);
        }
        let coldest = set.iter_mut().min_by_key(|tracked| tracked.operands)?;
        if coldest.operands > 0 {
            coldest.operands -= 1;
            return None;
        }
        *coldest = TrackedKey { hash, ..TrackedKey::default() };
        Some(coldest)
    }
}

/// Joins the run that ends with `entry`.
fn join_run<'m>(join: &dyn Join, entry: EntryRef<'_>, memtable: &'m Memtable) -> Option<Joined<'m>> {
    let cover = match memtable.has_range_tombstones() {
        true => memtable.range_tombstones().cover(entry.key, entry.seq),
        false => SeqNo::ZERO,
    };
    let mut lists = vec![entry.value];
    let mut below = memtable.tree.find(entry.key);
    while let Some(version) = below.map(RecordRef::shown).filter(|version| version.seq() >= cover) {
        if !version.kind().is_operand() {
            break;
        }
        lists.push(version.value());
        below = version.previous();
    }
    if lists.len() == 1 {
        return None;
    }
    let may_expire_below = match below {
        Some(version) if version.seq() >= cover => {
            Some(version.kind().is_live() && Expiry::of_version(version.kind(), version.value()).is_some())
        }
        _ if cover > SeqNo::ZERO => Some(false),
        _ => None,
    };
    let list = join.join(entry.key, &lists, may_expire_below)?;
    (list.len() <= VALUE_BYTES_MAX).then_some(Joined { list, below })
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;
    use crate::types::cursor::SourceCursor;
    use crate::types::op::Kind;
    use crate::types::range_tombstone::RangeTombstone;

    /// Concatenates texts.
    struct Concat;

    impl Join for Concat {
        fn join(&self, _: &[u8], lists: &[&[u8]], _: Option<bool>) -> Option<Vec<u8>> {
            Some(lists.iter().rev().flat_map(|list| list.iter().copied()).collect())
        }
    }

    /// Returns the text of a key and the number of versions read for it.
    fn text<'e>(
        versions: impl Iterator<Item = (SeqNo, Kind, Vec<u8>)> + 'e,
        cover: SeqNo,
    ) -> (Vec<u8>, usize) {
        let (mut lists, mut read) = (Vec::new(), 0);
        for (_, kind, value) in versions.take_while(|version| version.0 >= cover) {
            read += 1;
            let is_last = !kind.is_operand();
            lists.push(value);
            if is_last {
                break;
            }
        }
        (lists.into_iter().rev().flatten().collect(), read)
    }

    fn walk(mut cursor: crate::memtable::MemtableCursor, key: &[u8]) -> Vec<(SeqNo, Kind, Vec<u8>)> {
        let mut versions = Vec::new();
        cursor.seek(key).unwrap();
        while cursor.valid() && cursor.key() == key {
            let value = match cursor.stored() {
                crate::types::stored::Stored::Inline(value) => value.to_vec(),
                crate::types::stored::Stored::Blob(_) => unreachable!("no blobs here"),
            };
            versions.push((cursor.seq(), cursor.kind(), value));
            if !cursor.older().unwrap() {
                break;
            }
        }
        versions
    }

    /// Readers get the same text from joined records as from the chain, at each sequence number, among puts,
    /// removals and range removals.
    #[test]
    fn runs_1_runs_2_joined_records_say_what_the_chain_says() {
        let mut rng = Rng::with_seed(1);
        let memtable = Memtable::new(1 << 16);
        let mut applier = memtable.applier().joining(Box::new(Concat));
        let keys: [&[u8]; 3] = [b"a", b"b", b"c"];
        let mut longest = 0;
        for seq in (1..6000).map(SeqNo::new) {
            let key = *rng.choice(&keys).unwrap();
            let kind = match rng.u32(0..1500) {
                0 => Kind::PUT,
                1 => Kind::REMOVE,
                2 => {
                    let (start, end) = (key.to_vec(), b"d".to_vec());
                    memtable.add_range_tombstone(&mut applier, RangeTombstone { start, end, seq });
                    continue;
                }
                _ => Kind::MERGE,
            };
            let value = [rng.u8(b'a'..=b'z')];
            let value = if kind == Kind::REMOVE { &[][..] } else { &value[..] };
            memtable.insert(&mut applier, EntryRef { key, seq, kind, value });
            if rng.u32(0..50) > 0 {
                continue;
            }
            for at in [seq, SeqNo::new(rng.u64(1..=seq.get()))] {
                let cover = memtable.range_tombstones().cover(key, at);
                let (expected, _) = text(walk(memtable.version_cursor(at), key).into_iter(), cover);
                let found = memtable.versions(key, at).map(|e| (e.seq, e.kind, e.value.to_vec()));
                let (by_get, read) = text(found, cover);
                assert_eq!(by_get, expected, "by a look-up at {at}");
                let by_walk = text(walk(memtable.cursor(at), key).into_iter(), cover).0;
                assert_eq!(by_walk, expected, "by a walk at {at}");
                longest = longest.max(expected.len());
                assert!(read <= 2 * OPERANDS_MIN as usize + longest / 2, "{read} of {longest}");
            }
        }
    }
}
