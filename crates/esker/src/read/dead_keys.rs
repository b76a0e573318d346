//! Tracks consecutive dead keys of an iterator. Looks for a skip range occasionally, and adds one after many
//! dead keys.
//!
//! ```text
//!   iterator --dead key--> DeadKeys --every 16th--> SkipRanges: seek past the range
//!                             `--live key, or end of the bounds, after DEAD_MIN--> SkipRanges: add
//! ```

use std::ops::Bound;
use std::sync::{Arc, Weak};

use super::skip_ranges::DEAD_MIN;
use super::view::ReadView;
use crate::types::SeqNo;
use crate::types::bounds::Bounds;

/// An iterator looks for a skip range after [`FIRST_LOOK`] dead keys, and then after each `LOOK_EVERY`.
const LOOK_EVERY: u64 = 16;
const FIRST_LOOK: u64 = 8;

/// The consecutive dead keys that an iterator has stepped over.
#[derive(Default)]
pub(super) struct DeadKeys {
    /// Weak, because the iterator holds the view; a second reference would count as another reader. `None`
    /// disables skip ranges.
    view: Option<Weak<ReadView>>,
    at: SeqNo,
    is_pinned: bool,
    dead: u64,
    /// The first dead key.
    from: Vec<u8>,
}

impl DeadKeys {
    /// Creates a tracker for an iterator at `at` over a view.
    pub(super) fn new(view: &Arc<ReadView>, at: SeqNo, is_pinned: bool) -> Self {
        DeadKeys { view: Some(Arc::downgrade(view)), at, is_pinned, ..DeadKeys::default() }
    }

    /// Creates a tracker for another iterator over the same view.
    pub(super) fn again(&self) -> Self {
        DeadKeys { view: self.view.clone(), dead: 0, from: Vec::new(), ..*self }
    }

    /// Counts a dead key. Returns whether to look for a skip range around it.
    #[inline]
    pub(super) fn step<'k>(&mut self, key: impl FnOnce() -> std::borrow::Cow<'k, [u8]>) -> bool {
        if self.view.is_none() {
            return false;
        }
        if self.dead == 0 {
            self.from.clear();
            self.from.extend_from_slice(&key());
        }
        self.dead += 1;
        self.dead % LOOK_EVERY == FIRST_LOOK
    }

    fn view(&self) -> Option<Arc<ReadView>> {
        self.view.as_ref()?.upgrade()
    }

    /// Returns the key at which a forward iterator continues, if a skip range contains `key`.
    pub(super) fn end_after(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.view()?.skip_ranges.end_after(key, self.at)
    }

    /// Returns the key before which a backward iterator continues.
    pub(super) fn start_before(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.view()?.skip_ranges.start_before(key, self.at)
    }

    /// Ends the dead keys at a live key found by a forward iterator, or at the end of its bounds if `None`.
    #[inline]
    pub(super) fn end(&mut self, live: Option<impl FnOnce() -> Vec<u8>>, bounds: &Bounds) {
        let dead = std::mem::take(&mut self.dead);
        if dead >= DEAD_MIN {
            let end = match (live, &bounds.upper) {
                (Some(live), _) => live(),
                (None, Bound::Excluded(key)) => key.to_vec(),
                (None, Bound::Included(key)) => behind(key),
                (None, Bound::Unbounded) => return,
            };
            self.note(&self.from, &end, dead);
        }
    }

    /// Ends the dead keys at a live key found by a backward iterator, or at the start of its bounds if
    /// `None`.
    #[inline]
    pub(super) fn end_backward(&mut self, live: Option<impl FnOnce() -> Vec<u8>>, bounds: &Bounds) {
        let dead = std::mem::take(&mut self.dead);
        if dead >= DEAD_MIN {
            let start = match (live, &bounds.lower) {
                (Some(live), _) => behind(&live()),
                (None, Bound::Excluded(key)) => behind(key),
                (None, Bound::Included(key)) => key.to_vec(),
                (None, Bound::Unbounded) => return,
            };
            self.note(&start, &behind(&self.from), dead);
        }
    }

    /// Forgets the dead keys: they are dead only at the current time.
    #[inline]
    pub(super) fn forget(&mut self) {
        self.dead = 0;
    }

    #[cold]
    fn note(&self, start: &[u8], end: &[u8], dead: u64) {
        if let Some(view) = self.view() {
            view.skip_ranges.note(view.seen(self.at, self.is_pinned), start, end, dead);
        }
    }
}

/// Returns the first key after `key`.
fn behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ops::{ControlFlow, RangeBounds};
    use std::path::Path;

    use esker_env::{Env, MemFs};

    use super::*;
    use crate::{Db, Reads};

    type Model = BTreeMap<Vec<u8>, Vec<u8>>;

    /// Compares walks in both directions with the model.
    fn compare(rng: &mut fastrand::Rng, reads: &impl Reads, model: &Model, what: &str) {
        for _ in 0..4 {
            let bounds = random_range(rng);
            let expected: Vec<_> = model.range(bounds.clone()).map(|(k, v)| (k.clone(), v.clone())).collect();
            let found = |backward: bool| -> Vec<_> {
                let mut walk = reads.range(bounds.clone());
                let next = std::iter::from_fn(|| if backward { walk.next_back() } else { walk.next() });
                next.map(|e| e.map(|(k, v)| (Vec::from(k), v.to_vec())).unwrap()).collect()
            };
            assert_eq!(found(false), expected, "{what}");
            assert!(found(true).into_iter().rev().eq(expected.iter().cloned()), "{what}");
            // The first two keys are not shown. At most fifty follow, even from the back.
            let (mut walk, mut shown, mut expected) =
                (reads.range(bounds.clone()), Vec::new(), &expected[..]);
            if rng.bool() {
                walk.next_back();
                expected = &expected[..expected.len().saturating_sub(1)];
            }
            (0..2).for_each(|_| drop(walk.next()));
            let visited = walk.visit(|key, value| {
                shown.push((key.to_vec(), value.to_vec()));
                if shown.len() < 50 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            visited.unwrap();
            assert!(shown.iter().eq(expected.iter().skip(2).take(50)), "{what}");
            let key = rng.u16(..).to_be_bytes();
            let mut cursor = reads.cursor().unwrap();
            let after = model.range(key.to_vec()..).next().map(|e| e.0.clone());
            let before = model.range(..key.to_vec()).next_back().map(|e| e.0.clone());
            assert_eq!(cursor.seek(key).unwrap().then(|| cursor.key().to_vec()), after, "{what}");
            assert_eq!(cursor.seek_before(key).unwrap().then(|| cursor.key().to_vec()), before, "{what}");
        }
    }

    fn random_range(rng: &mut fastrand::Rng) -> impl RangeBounds<Vec<u8>> + crate::KeyBounds + Clone + use<> {
        let (a, b) = (rng.u16(..), rng.u16(..));
        a.min(b).to_be_bytes().to_vec()..a.max(b).to_be_bytes().to_vec()
    }

    /// skip_ranges.1, 2, 4: long runs of keys appear and disappear, in memtables and tables, one by one and
    /// by range removals.
    #[test]
    fn skip_ranges_1_walks_over_stretches_of_dead_keys_show_what_is_live() {
        let mut noted = 0;
        for round in 0..15 {
            let mut rng = fastrand::Rng::with_seed(round);
            let env = Env::simulated(Arc::new(MemFs::new()), round);
            let builder = Db::builder()
                .background(false)
                .env(env)
                .tuning(|t| t.block_bytes(200))
                .adoption_bytes(4 << 10);
            let db = builder.tuning(|t| t.table_bytes(4000)).open(Path::new("db")).unwrap();
            let map = db.default_keyspace();
            let (mut model, mut snapshots) = (Model::new(), Vec::new());
            for step in 0..60 {
                let mut batch = db.batch();
                let (start, len) = (rng.u16(..), rng.u16(1..400));
                let mut keys = (0..len).map(|n| start.saturating_add(n * 7).to_be_bytes().to_vec());
                match rng.u8(..8) {
                    0..3 => keys.for_each(|key| {
                        batch.put(&map, &key, [round as u8, step]).unwrap();
                        model.insert(key, vec![round as u8, step]);
                    }),
                    3..6 => keys.for_each(|key| {
                        batch.delete(&map, &key).unwrap();
                        model.remove(&key);
                    }),
                    6 => {
                        let key = keys.next().unwrap();
                        batch.put(&map, &key, [0]).unwrap();
                        model.insert(key, vec![0]);
                    }
                    _ => {
                        let (from, to) = (start, start.saturating_add(len * 7));
                        batch.delete_range(&map, from.to_be_bytes()..to.to_be_bytes()).unwrap();
                        let (from, to) = (from.to_be_bytes().to_vec(), to.to_be_bytes().to_vec());
                        model.retain(|key, _| *key < from || *key >= to);
                    }
                }
                batch.commit().unwrap();
                match rng.u8(..12) {
                    0 => db.flush().unwrap(),
                    1 => db.compact().unwrap(),
                    2 => snapshots.push((db.snapshot(), model.clone())),
                    _ => {}
                }
                compare(&mut rng, &map, &model, &format!("round {round} step {step}"));
                if !snapshots.is_empty() {
                    let (snapshot, model) = &snapshots[rng.usize(..snapshots.len())];
                    compare(
                        &mut rng,
                        &snapshot.keyspace(&map),
                        model,
                        &format!("round {round} step {step}, snapshot"),
                    );
                }
                noted += db.handle.core.view.get().skip_ranges.len();
            }
        }
        assert!(noted > 500, "{noted}");
    }

    /// The second walk does not step over the keys that the first one did: it finds a skip range after a few
    /// keys.
    #[test]
    fn a_gap_is_found_by_walks_either_way_and_at_a_pinned_number() {
        let env = Env::simulated(Arc::new(MemFs::new()), 1);
        let db = Db::builder().background(false).env(env).open(Path::new("db")).unwrap();
        let map = db.default_keyspace();
        let keys = 0..1000_u16;
        for key in keys.clone() {
            map.put(key.to_be_bytes(), "").unwrap();
        }
        for key in keys.skip(1).take(998) {
            map.delete(key.to_be_bytes()).unwrap();
        }
        let snapshot = db.snapshot();
        assert_eq!(map.range(300_u16.to_be_bytes()..).count(), 1);
        let view = db.handle.core.view.get();
        let encoded =
            |key: u16| crate::types::key::encode_key(crate::types::KeyspaceId::DEFAULT, &key.to_be_bytes());
        let at = snapshot.seqno();
        assert_eq!(view.skip_ranges.end_after(&encoded(500), at), Some(encoded(999)));
        assert_eq!(view.skip_ranges.start_before(&encoded(500), at), Some(encoded(300)));
        assert_eq!(map.range(..999_u16.to_be_bytes()).next_back().unwrap().unwrap().0, [0, 0]);
        assert_eq!(view.skip_ranges.start_before(&encoded(500), at), Some([&encoded(0)[..], &[0]].concat()));
        // A put splits it; the snapshot keeps it.
        map.put(500_u16.to_be_bytes(), "").unwrap();
        assert_eq!(map.range(1_u16.to_be_bytes()..).count(), 2);
        assert_eq!(snapshot.range(&map, 1_u16.to_be_bytes()..).count(), 1);
        assert_eq!(view.skip_ranges.end_after(&encoded(400), at), Some(encoded(500)), "skip_ranges.2");
        assert_eq!(view.skip_ranges.end_after(&encoded(500), at), None, "skip_ranges.2");
    }
}
