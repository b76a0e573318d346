//! What readers see: the visible sequence number, the live counts at it, and the snapshots that pin older
//! ones.
//!
//! ```text
//!   commit --publish(seq, deltas)--> visible, counts        get, range: visible()
//!   snapshot() --> SnapshotGuard(seq)                       compaction: horizons() = pinned seqs + visible
//! ```
//!
//! snapshots.1. `visible` and all counts change together, under one lock. Readers of a single value need no
//!     lock. A reader of a count (`count_of`) finds no older state visible afterwards, and vice versa.
//! snapshots.2. A sequence number is pinned from before `snapshot()` returns until its last guard is dropped.
//!     `horizons` contains every pinned number.
//! snapshots.3. A counter keeps its value at every pinned sequence number.
//!
//! The count of a keyspace at opening is kept as a plain number until its counter is requested, because most
//! keyspaces of a large database are never used.

use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::low_water_key::LowWaterKey;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::types::canary::{self, Canary};
use crate::types::{KeyspaceId, SeqNo};

/// The published state.
#[derive(Debug, Default)]
pub struct Published {
    /// Stored with Release after the entries of the commit are in the memtable. A reader that loads it with
    /// Acquire finds all of them.
    visible: AtomicU64,
    pins: Mutex<Pins>,
    counters: RwLock<Counters>,
    /// Set once a count may include a key twice (see `read/unresolved.rs`). Relaxed: it is set before the
    /// first such count is published.
    may_overcount: AtomicBool,
    /// Whether a keyspace has a low-water key. SeqCst, like `entered`, the last commit that started: see
    /// `LowWaterKey::is_known`.
    has_low_water_keys: AtomicBool,
    entered: AtomicU64,
}

#[derive(Debug, Default)]
struct Pins {
    /// Pinned sequence numbers.
    pinned: BTreeMap<SeqNo, Pin>,
    /// Keyspaces whose counts changed since the last call of [`Published::take_changed`], each once.
    changed: Vec<KeyspaceId>,
}

/// The counters of all non-empty keyspaces, and of some others.
#[derive(Debug, Default)]
struct Counters {
    made: HashMap<KeyspaceId, Arc<Counter>>,
    /// Counts at opening of keyspaces without a counter, by id. Zero once a counter was created or the
    /// keyspace was dropped.
    recovered: Vec<(KeyspaceId, u64)>,
}

impl Counters {
    /// Removes and returns the count at opening, to create a counter from it.
    fn take_recovered(&mut self, id: KeyspaceId) -> u64 {
        let at = self.recovered.binary_search_by_key(&id, |counted| counted.0);
        at.map_or(0, |at| std::mem::take(&mut self.recovered[at].1))
    }

    /// Returns all nonzero counts, unsorted. `of` returns the count of a counter.
    fn all(&self, of: impl Fn(&Counter) -> u64) -> Vec<(KeyspaceId, u64)> {
        let made = self.made.iter().map(|(&id, counter)| (id, of(counter)));
        made.chain(self.recovered.iter().copied()).filter(|&(_, count)| count > 0).collect()
    }
}

#[derive(Debug)]
struct Pin {
    guards: usize,
    /// When the first of its guards was created.
    since: Duration,
}

/// The live keys of one keyspace, now and at pinned sequence numbers.
#[derive(Debug, Default)]
pub struct Counter {
    now: AtomicU64,
    /// The commit since which `now` holds. Stored before `now` and loaded after it: a reader for which this
    /// is not newer than its own sequence number has read a count visible at that number.
    since: AtomicU64,
    /// (First sequence number, count from then on), ascending. Pruned when publishing (snapshots.3).
    history: Mutex<Vec<(SeqNo, u64)>>,
    /// The count before the history begins.
    recovered: u64,
    /// Whether the keyspace is in `Pins::changed`. Relaxed: used under the lock of the pins.
    is_changed: AtomicBool,
    /// The low-water key of the keyspace.
    pub(crate) low_water_key: LowWaterKey,
}

impl Counter {
    fn new(count: u64) -> Arc<Self> {
        Arc::new(Counter { now: AtomicU64::new(count), recovered: count, ..Counter::default() })
    }

    /// Returns the count at the visible sequence number.
    #[inline]
    pub fn now(&self) -> u64 {
        self.now.load(Ordering::Acquire)
    }

    /// Returns the count at a pinned sequence number.
    #[inline]
    pub fn at(&self, seq: SeqNo) -> u64 {
        let now = self.now();
        if self.since.load(Ordering::Acquire) <= seq.get() { now } else { self.earlier(seq) }
    }

    #[cold]
    fn earlier(&self, seq: SeqNo) -> u64 {
        let history = self.history.lock();
        let after = history.partition_point(|&(from, _)| from <= seq);
        history[..after].last().map_or(self.recovered, |&(_, count)| count)
    }
}

impl Published {
    /// Creates the state after recovery.
    pub fn new(visible: SeqNo, counts: impl IntoIterator<Item = (KeyspaceId, u64)>) -> Arc<Self> {
        let mut recovered: Vec<_> = counts.into_iter().collect();
        recovered.sort();
        let counters = Counters { recovered, made: HashMap::new() };
        Arc::new(Published {
            visible: AtomicU64::new(visible.get()),
            pins: Mutex::default(),
            counters: RwLock::new(counters),
            may_overcount: AtomicBool::new(false),
            has_low_water_keys: AtomicBool::new(false),
            entered: AtomicU64::new(visible.get()),
        })
    }

    /// Returns the newest visible sequence number. Load it after the read view: a view loaded later may lack
    /// versions that only an earlier, unpinned number needs.
    #[inline]
    pub fn visible(&self) -> SeqNo {
        let visible = SeqNo::new(self.visible.load(Ordering::Acquire));
        #[cfg(test)]
        after_visible::run();
        visible
    }

    /// Returns the count of a keyspace, never newer than what is visible (snapshots.1).
    #[inline]
    pub fn count_of(&self, counter: &Counter) -> u64 {
        let now = counter.now();
        if counter.since.load(Ordering::Acquire) <= self.visible.load(Ordering::Acquire) {
            return now;
        }
        self.count_between_publishing(counter)
    }

    /// Waits for the commit being published: its count is stored but not visible yet.
    #[cold]
    fn count_between_publishing(&self, counter: &Counter) -> u64 {
        let _pins = self.pins.lock();
        counter.now()
    }

    /// Records that counts may include keys twice from the next publication on.
    pub fn note_overcount(&self) {
        self.may_overcount.store(true, Ordering::Relaxed);
    }

    /// Records that a keyspace has a low-water key.
    pub fn note_low_water_key(&self) {
        self.has_low_water_keys.store(true, Ordering::SeqCst);
    }

    /// Registers a commit that starts. Returns whether any keyspace has a low-water key.
    #[inline]
    pub fn enter(&self, seq: SeqNo) -> bool {
        self.entered.store(seq.get(), Ordering::SeqCst);
        self.has_low_water_keys.load(Ordering::SeqCst)
    }

    /// Returns the last commit that started.
    pub fn entered(&self) -> SeqNo {
        SeqNo::new(self.entered.load(Ordering::SeqCst))
    }

    /// Records that all counts are exact. No commit may be running.
    pub fn note_exact(&self) {
        self.may_overcount.store(false, Ordering::Relaxed);
    }

    /// Returns whether counts may include keys twice.
    #[inline]
    pub fn may_overcount(&self) -> bool {
        self.may_overcount.load(Ordering::Relaxed)
    }

    /// Returns the counter of a keyspace, creating it if necessary.
    pub fn counter(&self, id: KeyspaceId) -> Arc<Counter> {
        if let Some(counter) = self.counters.read().made.get(&id) {
            return counter.clone();
        }
        let mut counters = self.counters.write();
        let recovered = counters.take_recovered(id);
        counters.made.entry(id).or_insert_with(|| Counter::new(recovered)).clone()
    }

    /// Marks counts as changed since the last call of [`take_changed`](Self::take_changed), for recovery.
    pub fn note_changed(&self, ids: impl IntoIterator<Item = KeyspaceId>) {
        for id in ids {
            let counter = self.counter(id);
            self.pins.lock().note_changed(id, &counter);
        }
    }

    /// Returns the keyspaces whose counts changed since the last call, by id, with their current counts; zero
    /// if dropped.
    pub fn take_changed(&self) -> Vec<(KeyspaceId, u64)> {
        let mut pins = self.pins.lock();
        let counters = self.counters.read();
        let now = |id: KeyspaceId| {
            let counter = counters.made.get(&id);
            counter.map_or(0, |counter| {
                counter.is_changed.store(false, Ordering::Relaxed);
                counter.now()
            })
        };
        let mut changed: Vec<_> =
            std::mem::take(&mut pins.changed).into_iter().map(|id| (id, now(id))).collect();
        changed.sort_unstable();
        changed.dedup();
        changed
    }

    /// Registers the counter of a new keyspace.
    pub fn count(&self, id: KeyspaceId, counter: &Arc<Counter>) {
        self.counters.write().made.insert(id, counter.clone());
    }

    /// Forgets the counter of a dropped keyspace.
    pub fn forget(&self, id: KeyspaceId) {
        let mut counters = self.counters.write();
        counters.take_recovered(id);
        counters.made.remove(&id);
    }

    /// Returns the nonzero counts by keyspace id.
    #[cfg(test)]
    pub fn counts(&self) -> Vec<(KeyspaceId, u64)> {
        let _pins = self.pins.lock();
        let mut counts = self.counters.read().all(Counter::now);
        counts.sort_unstable();
        counts
    }

    /// Returns the nonzero counts at a pinned sequence number, without keyspaces that were dropped since.
    pub fn counts_at(&self, seq: SeqNo) -> Vec<(KeyspaceId, u64)> {
        let mut counts = self.counters.read().all(|counter| counter.at(seq));
        counts.sort_unstable();
        counts
    }

    /// Makes all commits up to `seq` visible, with their counts.
    pub fn publish(&self, seq: SeqNo, deltas: &[(KeyspaceId, i64)]) {
        let counters: Vec<_> =
            deltas.iter().filter(|d| d.1 != 0).map(|&(id, d)| (id, self.counter(id), d)).collect();
        let mut pins = self.pins.lock();
        let newest_pin = pins.pinned.keys().next_back().copied();
        for (id, counter, delta) in counters {
            pins.note_changed(id, &counter);
            let count = counter.now().checked_add_signed(delta).expect("a count never falls below zero");
            let mut history = counter.history.lock();
            let needed = |from: SeqNo| newest_pin.is_some_and(|pin| pin >= from);
            match history.last_mut() {
                Some(last) if !needed(last.0) => *last = (seq, count),
                _ => history.push((seq, count)),
            }
            if history.len() > 8 && history.len() > 2 * pins.pinned.len() + 2 {
                prune(&mut history, &pins.pinned);
            }
            counter.since.store(seq.get(), Ordering::Release);
            counter.now.store(count, Ordering::Release);
        }
        self.visible.store(seq.get(), Ordering::Release);
    }

    /// Pins the visible sequence number. `now` is the current time.
    pub fn snapshot(self: &Arc<Self>, now: Duration) -> SnapshotGuard {
        let mut pins = self.pins.lock();
        let seq = self.visible();
        pins.pinned.entry(seq).or_insert(Pin { guards: 0, since: now }).guards += 1;
        SnapshotGuard(Arc::new(Pinned { seq, published: self.clone() }))
    }

    /// Returns the sequence numbers whose versions a compaction must keep: the pinned ones and the visible
    /// one, ascending.
    pub fn horizons(&self) -> Vec<SeqNo> {
        let pins = self.pins.lock();
        let visible = self.visible();
        if canary::is_set(Canary::SnapshotIgnored) {
            return vec![visible];
        }
        let mut horizons: Vec<_> = pins.pinned.keys().copied().collect();
        if horizons.last() != Some(&visible) {
            horizons.push(visible);
        }
        horizons
    }

    /// Returns the oldest sequence number at which anything reads or will read.
    pub fn oldest_horizon(&self) -> SeqNo {
        let pins = self.pins.lock();
        pins.pinned.keys().next().copied().unwrap_or_else(|| self.visible())
    }

    /// Returns the newest pinned sequence number.
    pub fn newest_snapshot(&self) -> Option<SeqNo> {
        self.pins.lock().pinned.keys().next_back().copied()
    }

    /// Number of open snapshots.
    pub fn snapshots_open(&self) -> usize {
        self.pins.lock().pinned.values().map(|pin| pin.guards).sum()
    }

    /// Returns the oldest pinned sequence number and the time when it was pinned.
    pub fn oldest_pin(&self) -> Option<(SeqNo, Duration)> {
        let pins = self.pins.lock();
        pins.pinned.first_key_value().map(|(seq, pin)| (*seq, pin.since))
    }
}

impl Pins {
    fn note_changed(&mut self, id: KeyspaceId, counter: &Counter) {
        if !counter.is_changed.swap(true, Ordering::Relaxed) {
            self.changed.push(id);
        }
    }
}

/// Keeps the entries that pins need, and the last one.
fn prune(history: &mut Vec<(SeqNo, u64)>, pinned: &BTreeMap<SeqNo, Pin>) {
    let mut kept = Vec::with_capacity(pinned.len() + 1);
    for (i, &(from, count)) in history.iter().enumerate() {
        let until = history.get(i + 1).map(|next| next.0);
        let answers = until.is_none_or(|until| pinned.range(from..until).next().is_some());
        if answers {
            kept.push((from, count));
        }
    }
    *history = kept;
}

/// Pins a sequence number. Clones share the pin.
#[derive(Clone, Debug)]
pub struct SnapshotGuard(Arc<Pinned>);

#[derive(Debug)]
struct Pinned {
    seq: SeqNo,
    published: Arc<Published>,
}

impl SnapshotGuard {
    /// Returns the sequence number.
    pub fn seq(&self) -> SeqNo {
        self.0.seq
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let mut pins = self.published.pins.lock();
        if let Some(pin) = pins.pinned.get_mut(&self.seq) {
            pin.guards -= 1;
            if pin.guards == 0 {
                pins.pinned.remove(&self.seq);
            }
        }
    }
}

/// A hook that runs right after a reader has loaded the visible sequence number.
#[cfg(test)]
pub mod after_visible {
    use std::cell::RefCell;

    thread_local! {
        static NEXT: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
    }

    /// Runs `happens` once, on this thread.
    pub fn once(happens: impl FnOnce() + 'static) {
        NEXT.with(|next| *next.borrow_mut() = Some(Box::new(happens)));
    }

    pub(super) fn run() {
        let happens = NEXT.with(|next| next.borrow_mut().take());
        if let Some(happens) = happens {
            happens();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_2_horizons_are_pins_and_visible() {
        let published = Published::new(SeqNo::new(5), []);
        let at = Duration::from_secs;
        let a = published.snapshot(at(1));
        let again = published.snapshot(at(2));
        assert_eq!(published.oldest_pin(), Some((SeqNo::new(5), at(1))));
        drop(again);
        published.publish(SeqNo::new(7), &[]);
        let b = published.snapshot(at(3));
        let c = b.clone();
        published.publish(SeqNo::new(9), &[]);
        let horizons = || published.horizons().iter().map(|s| s.get()).collect::<Vec<_>>();
        assert_eq!((horizons(), published.snapshots_open()), (vec![5, 7, 9], 2), "clones share a pin");
        assert_eq!(published.oldest_horizon(), SeqNo::new(5));
        drop((a, b));
        assert_eq!(horizons(), [7, 9]);
        assert_eq!(published.oldest_horizon(), SeqNo::new(7));
        assert_eq!(published.oldest_pin(), Some((SeqNo::new(7), at(3))));
        drop(c);
        assert_eq!((horizons(), published.oldest_pin()), (vec![9], None));
    }

    #[test]
    fn snapshots_4_what_was_recovered_is_counted_once_and_changes_are_reported_once() {
        let id = KeyspaceId::new;
        let published = Published::new(SeqNo::new(3), [(id(9), 1), (id(2), 20), (id(4), 40)]);
        assert_eq!(published.counts(), [(id(2), 20), (id(4), 40), (id(9), 1)]);
        let pin = published.snapshot(Duration::ZERO);
        published.publish(SeqNo::new(4), &[(id(4), 2), (id(9), -1), (id(7), 5)]);
        assert_eq!(published.counts(), [(id(2), 20), (id(4), 42), (id(7), 5)]);
        assert_eq!(published.counts_at(pin.seq()), [(id(2), 20), (id(4), 40), (id(9), 1)], "snapshots.3");
        assert_eq!(published.counter(id(2)).now(), 20);
        published.note_changed([id(2)]);
        published.publish(SeqNo::new(5), &[(id(4), 1)]);
        published.forget(id(2));
        let changed = [(id(2), 0), (id(4), 43), (id(7), 5), (id(9), 0)];
        assert_eq!(published.take_changed(), changed);
        assert_eq!((published.take_changed(), published.counts()), (vec![], vec![(id(4), 43), (id(7), 5)]));
    }

    #[test]
    fn snapshots_3_counts_are_exact_at_every_pin() {
        let mut rng = fastrand::Rng::with_seed(4);
        let id = KeyspaceId::DEFAULT;
        let published = Published::new(SeqNo::new(3), [(id, 10)]);
        let (mut seq, mut count) = (3, 10);
        let mut pins: Vec<(SnapshotGuard, i64)> = Vec::new();
        for _ in 0..if cfg!(miri) { 200 } else { 5_000 } {
            match rng.u8(0..4) {
                0 if pins.len() < 20 => pins.push((published.snapshot(Duration::ZERO), count)),
                1 if !pins.is_empty() => drop(pins.swap_remove(rng.usize(..pins.len()))),
                _ => {
                    seq += rng.u64(1..3);
                    let delta = rng.i64(-3..6).max(-count);
                    count += delta;
                    published.publish(SeqNo::new(seq), &[(id, delta)]);
                }
            }
            let counter = published.counter(id);
            assert_eq!(counter.now(), count as u64);
            for (pin, expected) in &pins {
                assert_eq!(counter.at(pin.seq()), *expected as u64);
            }
            assert!(counter.history.lock().len() <= 60);
        }
        assert_eq!(published.counts(), [(id, count as u64)]);
    }
}
