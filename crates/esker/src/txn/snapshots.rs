//! What readers see: the visible sequence number, the live counts at it, and the snapshots that pin older ones.
//!
//! ```text
//!   commit --publish(seq, deltas)--> visible, counts        get, range: visible()
//!   snapshot() --> SnapshotGuard(seq)                       compaction: horizons() = pinned seqs + visible
//! ```
//!
//! snapshots.1. `visible` and all counts move together, under one lock; readers of a single value need no lock. Who has read a count
//!      (`count_of`) finds no older state visible afterwards, and the other way round.
//! snapshots.2. A sequence number is pinned from before `snapshot()` returns until its last guard drops; `horizons` never
//!      leaves out a pinned one.
//! snapshots.3. A counter keeps its value at every pinned sequence number.
//! snapshots.4. What a keyspace counted when the database was opened is kept as a number until somebody asks for its counter: most keyspaces of many
//!      are never used.

use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::front::Front;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::types::canary::{self, Canary};
use crate::types::{KeyspaceId, SeqNo};

/// The published state.
#[derive(Debug, Default)]
pub struct Published {
    /// Ordering: stored with Release after the commit's entries are in the memtable; a reader that loads it with
    /// Acquire finds them all.
    visible: AtomicU64,
    pins: Mutex<Pins>,
    counters: RwLock<Counters>,
    /// Counts may hold keys that are counted twice (read/unresolved.rs). Relaxed: set before the count is published that is the first to do so.
    may_owe: AtomicBool,
    /// There are keyspaces with a front, and the commit that was entered last. SeqCst: see `Front::is_known`.
    has_fronts: AtomicBool,
    entered: AtomicU64,
}

#[derive(Debug, Default)]
struct Pins {
    /// Pinned sequence numbers.
    pinned: BTreeMap<SeqNo, Pin>,
    /// Keyspaces whose counts have changed since [`Published::take_changed`] was called last, each once.
    changed: Vec<KeyspaceId>,
}

/// The counters of all keyspaces that hold anything, and of others.
#[derive(Debug, Default)]
struct Counters {
    made: HashMap<KeyspaceId, Arc<Counter>>,
    /// What the others counted at the opening, by id; zero: it has a counter now, or is forgotten (snapshots.4).
    recovered: Vec<(KeyspaceId, u64)>,
}

impl Counters {
    /// Takes a number for a counter that is made of it.
    fn take_recovered(&mut self, id: KeyspaceId) -> u64 {
        let at = self.recovered.binary_search_by_key(&id, |counted| counted.0);
        at.map_or(0, |at| std::mem::take(&mut self.recovered[at].1))
    }

    /// All, unsorted, as `of` says of a counter.
    fn all(&self, of: impl Fn(&Counter) -> u64) -> Vec<(KeyspaceId, u64)> {
        let made = self.made.iter().map(|(&id, counter)| (id, of(counter)));
        made.chain(self.recovered.iter().copied()).filter(|&(_, count)| count > 0).collect()
    }
}

#[derive(Debug)]
struct Pin {
    guards: usize,
    /// When the first of them was made, by the clock.
    since: Duration,
}

/// The live items of one keyspace, now and at pinned sequence numbers.
#[derive(Debug, Default)]
pub struct Counter {
    now: AtomicU64,
    /// The commit since which `now` holds. Stored before `now`, loaded after it: who finds it not newer than its own
    /// number has read a count that its number sees.
    since: AtomicU64,
    /// (first sequence number, count from then on), ascending; pruned on publishing (snapshots.3).
    history: Mutex<Vec<(SeqNo, u64)>>,
    /// The count before the history begins.
    recovered: u64,
    /// It is among those that have changed. Relaxed: used under the lock of the pins.
    is_changed: AtomicBool,
    /// Below it nothing is there.
    pub(crate) front: Front,
}

impl Counter {
    fn new(count: u64) -> Arc<Self> {
        Arc::new(Counter { now: AtomicU64::new(count), recovered: count, ..Counter::default() })
    }

    /// The count at the visible sequence number.
    #[inline]
    pub fn now(&self) -> u64 {
        self.now.load(Ordering::Acquire)
    }

    /// The count at a pinned sequence number.
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
    /// The state after recovery.
    pub fn new(visible: SeqNo, counts: impl IntoIterator<Item = (KeyspaceId, u64)>) -> Arc<Self> {
        let mut recovered: Vec<_> = counts.into_iter().collect();
        recovered.sort();
        let counters = Counters { recovered, made: HashMap::new() };
        Arc::new(Published {
            visible: AtomicU64::new(visible.get()),
            pins: Mutex::default(),
            counters: RwLock::new(counters),
            may_owe: AtomicBool::new(false),
            has_fronts: AtomicBool::new(false),
            entered: AtomicU64::new(visible.get()),
        })
    }

    /// The newest sequence number that readers see. Load it after the read view, not before: a view loaded later
    /// may lack versions that only an earlier, unpinned number needs.
    #[inline]
    pub fn visible(&self) -> SeqNo {
        let visible = SeqNo::new(self.visible.load(Ordering::Acquire));
        #[cfg(test)]
        after_visible::run();
        visible
    }

    /// The count of a keyspace, never newer than what is visible (snapshots.1).
    #[inline]
    pub fn count_of(&self, counter: &Counter) -> u64 {
        let now = counter.now();
        if counter.since.load(Ordering::Acquire) <= self.visible.load(Ordering::Acquire) {
            return now;
        }
        self.count_between_publishing(counter)
    }

    /// A commit is being published: its count is there, and is not visible yet.
    #[cold]
    fn count_between_publishing(&self, counter: &Counter) -> u64 {
        let _pins = self.pins.lock();
        counter.now()
    }

    /// From the next publishing on, counts may hold keys that are counted twice.
    pub fn note_owing(&self) {
        self.may_owe.store(true, Ordering::Relaxed);
    }

    /// A keyspace has a front from now on.
    pub fn note_front(&self) {
        self.has_fronts.store(true, Ordering::SeqCst);
    }

    /// A commit is entered; whether any keyspace has a front.
    #[inline]
    pub fn enter(&self, seq: SeqNo) -> bool {
        self.entered.store(seq.get(), Ordering::SeqCst);
        self.has_fronts.load(Ordering::SeqCst)
    }

    /// The commit that was entered last.
    pub fn entered(&self) -> SeqNo {
        SeqNo::new(self.entered.load(Ordering::SeqCst))
    }

    /// All counts are exact, and nobody commits.
    pub fn note_exact(&self) {
        self.may_owe.store(false, Ordering::Relaxed);
    }

    /// Whether the counts that were read may hold keys that are counted twice.
    #[inline]
    pub fn may_owe(&self) -> bool {
        self.may_owe.load(Ordering::Relaxed)
    }

    /// The counter of a keyspace, made at zero if it is new.
    pub fn counter(&self, id: KeyspaceId) -> Arc<Counter> {
        if let Some(counter) = self.counters.read().made.get(&id) {
            return counter.clone();
        }
        let mut counters = self.counters.write();
        let recovered = counters.take_recovered(id);
        counters.made.entry(id).or_insert_with(|| Counter::new(recovered)).clone()
    }

    /// These counts have changed since [`take_changed`](Self::take_changed) was called last: for recovery.
    pub fn note_changed(&self, ids: impl IntoIterator<Item = KeyspaceId>) {
        for id in ids {
            let counter = self.counter(id);
            self.pins.lock().note_changed(id, &counter);
        }
    }

    /// The keyspaces whose counts have changed since the last call, by id, with what they are now; zero of one that is dropped.
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

    /// Counts a new keyspace by this counter.
    pub fn count(&self, id: KeyspaceId, counter: &Arc<Counter>) {
        self.counters.write().made.insert(id, counter.clone());
    }

    /// Forgets the counter of a dropped keyspace.
    pub fn forget(&self, id: KeyspaceId) {
        let mut counters = self.counters.write();
        counters.take_recovered(id);
        counters.made.remove(&id);
    }

    /// All keyspaces that hold anything, with their counts, by id.
    #[cfg(test)]
    pub fn counts(&self) -> Vec<(KeyspaceId, u64)> {
        let _pins = self.pins.lock();
        let mut counts = self.counters.read().all(Counter::now);
        counts.sort_unstable();
        counts
    }

    /// The counts at a pinned sequence number of the keyspaces that held anything then, but for those that have been dropped since.
    pub fn counts_at(&self, seq: SeqNo) -> Vec<(KeyspaceId, u64)> {
        let mut counts = self.counters.read().all(|counter| counter.at(seq));
        counts.sort_unstable();
        counts
    }

    /// Makes all commits up to `seq` visible, and the counts that they leave.
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

    /// Pins the visible sequence number, now.
    pub fn snapshot(self: &Arc<Self>, now: Duration) -> SnapshotGuard {
        let mut pins = self.pins.lock();
        let seq = self.visible();
        pins.pinned.entry(seq).or_insert(Pin { guards: 0, since: now }).guards += 1;
        SnapshotGuard(Arc::new(Pinned { seq, published: self.clone() }))
    }

    /// The sequence numbers whose versions a compaction must keep: all pinned ones and the visible one, ascending.
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

    /// Nobody reads, or will read, at an older number.
    pub fn oldest_horizon(&self) -> SeqNo {
        let pins = self.pins.lock();
        pins.pinned.keys().next().copied().unwrap_or_else(|| self.visible())
    }

    /// The newest pinned number.
    pub fn newest_snapshot(&self) -> Option<SeqNo> {
        self.pins.lock().pinned.keys().next_back().copied()
    }

    /// How many snapshots are open.
    pub fn snapshots_open(&self) -> usize {
        self.pins.lock().pinned.values().map(|pin| pin.guards).sum()
    }

    /// The oldest pinned number, and since when it is pinned.
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

/// Keeps, for each pin, the entry that answers it, and the last.
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

/// A pinned sequence number. Clones share the pin.
#[derive(Clone, Debug)]
pub struct SnapshotGuard(Arc<Pinned>);

#[derive(Debug)]
struct Pinned {
    seq: SeqNo,
    published: Arc<Published>,
}

impl SnapshotGuard {
    /// The number.
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

/// What a test has happen right after a reader has learnt the visible number.
#[cfg(test)]
pub mod after_visible {
    use std::cell::RefCell;

    thread_local! {
        static NEXT: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
    }

    /// Once, on this thread.
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
    fn snapshots_4_what_was_recovered_is_counted_once_and_changes_are_told_once() {
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
