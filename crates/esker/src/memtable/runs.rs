//! Long runs of operands of one key, which readers get as one list.
//!
//! ```text
//!   chain:     operand --> operand --> ... --> operand --> base
//!                 |                                          ^
//!                 `--> joined record: all of these operands -'
//! ```
//!
//! A reader of a key needs all operands down to the base. So that a counter with 100,000 operands is not read operand by operand, the
//! applier writes a joined record with some of them. Readers take it in place of the run. Who needs each version (a flush, a history)
//! follows the chain.
//!
//! runs.1. A joined record is written when a key has got [`OPERANDS_MIN`] operands since the last one, and as many bytes of them as that
//!      one has. So joined records take at most twice the memory of the operands, and a reader meets few operands one by one, or
//!      few beside what the joined record has.
//! runs.2. A run ends above a version that is no operand, and above what a range tombstone of the same memtable hides. Other range
//!      tombstones are older or newer than all of the run.
//! runs.3. Which keys have long runs is an estimate: keys that share a place in a small table may hide each other's runs. Then they
//!      are read operand by operand.

use super::Memtable;
use super::record::RecordRef;
use crate::types::SeqNo;
use crate::types::entry::EntryRef;
use crate::types::expiry::Expiry;
use crate::types::limits::VALUE_BYTES_MAX;

/// runs.1
const OPERANDS_MIN: u32 = 64;
/// Places of the table of keys. A key may stand in any of `WAYS` places.
const PLACES: usize = 256;
const WAYS: usize = 4;

/// Makes one list of the operands of a run.
pub(crate) trait Join: Send {
    /// The lists of an encoded key, the newest first, as one. `may_expire_below`: whether what the run lies on is a value that expires;
    /// none: that is in older memtables or tables. None: they stay apart.
    fn join(&self, key: &[u8], lists: &[&[u8]], may_expire_below: Option<bool>) -> Option<Vec<u8>>;
}

/// A joined record to write.
pub(super) struct Joined<'a> {
    /// The operands.
    pub(super) list: Vec<u8>,
    /// The version below the run.
    pub(super) below: Option<RecordRef<'a>>,
}

/// Finds the keys with long runs.
#[derive(Default)]
pub(super) struct Runs {
    /// None: nothing is joined.
    join: Option<Box<dyn Join>>,
    /// Empty until there are operands.
    places: Vec<Place>,
}

/// What is known of a key's run.
#[derive(Clone, Default)]
struct Place {
    hash: u64,
    /// Operands since the last joined record, less the operands of keys that found no place.
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

    /// Notes an operand that is about to be inserted. The joined record to insert with it, if one is due (runs.1).
    pub(super) fn joined<'m>(
        &mut self,
        entry: EntryRef<'_>,
        hash: u64,
        memtable: &'m Memtable,
    ) -> Option<Joined<'m>> {
        let join = self.join.as_ref()?;
        if self.places.is_empty() {
            self.places = vec![Place::default(); PLACES];
        }
        let first = hash as usize % (PLACES / WAYS) * WAYS;
        let place = Place::of(&mut self.places[first..first + WAYS], hash)?;
        place.operands += 1;
        place.bytes += entry.value.len();
        if place.operands < OPERANDS_MIN || place.bytes < place.joined_bytes {
            return None;
        }
        let joined = join_run(&**join, entry, memtable);
        (place.operands, place.bytes) = (0, 0);
        place.joined_bytes = joined.as_ref().map_or(0, |joined| joined.list.len());
        joined
    }
}

impl Place {
    /// The place of a key, or one whose key has had few operands lately (runs.3).
    fn of(set: &mut [Place], hash: u64) -> Option<&mut Place> {
        if let Some(known) = set.iter().position(|place| place.hash == hash) {
            return Some(&mut set[known]);
        }
        let coldest = set.iter_mut().min_by_key(|place| place.operands)?;
        if coldest.operands > 0 {
            coldest.operands -= 1;
            return None;
        }
        *coldest = Place { hash, ..Place::default() };
        Some(coldest)
    }
}

/// runs.2
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

    /// Makes one text of texts.
    struct Concat;

    impl Join for Concat {
        fn join(&self, _: &[u8], lists: &[&[u8]], _: Option<bool>) -> Option<Vec<u8>> {
            Some(lists.iter().rev().flat_map(|list| list.iter().copied()).collect())
        }
    }

    /// The text of a key, and how many versions were read for it.
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

    /// At each sequence number readers find the same text by joined records as by the chain, among puts, removals and range removals.
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
                assert_eq!(by_get, expected, "runs.2: by a look-up at {at}");
                let by_walk = text(walk(memtable.cursor(at), key).into_iter(), cover).0;
                assert_eq!(by_walk, expected, "runs.2: by a walk at {at}");
                longest = longest.max(expected.len());
                assert!(read <= 2 * OPERANDS_MIN as usize + longest / 2, "runs.1: {read} of {longest}");
            }
        }
    }
}
