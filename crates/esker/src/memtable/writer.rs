//! The writing side of the tree: inserts and splits.
//!
//! ```text
//!   entry --finger or descent--> leaf --free slot--> slot, permutation
//!                                   `--full-------> split: new leaves, separator into the parent
//! ```
//!
//! Each tree has one writer (memtable.1), and only it stores to nodes. The finger remembers the leaf of the
//! last insert.
//!
//! The leaf of the finger is in the tree, and the path and the fences are those that a descent would produce.
//! A split clears the finger.
//!
//! A split at the end of the tree, or in a run of ascending keys, leaves the full node unchanged and starts a
//! new one with the new entry. Sorted loads therefore fill their nodes completely and copy nothing.
#![expect(unsafe_code, reason = "keeps pointers to nodes from one insert to the next")]

use std::ptr;
use std::sync::Arc;

use super::arena::Bump;
use super::node::{Inner, Leaf, Node, Slot};
use super::permutation::{Permutation, SLOTS};
use super::record::{Record, RecordRef};
use super::runs::Joined;
use super::tree::Tree;
use crate::types::entry::EntryRef;
use crate::types::key::{common_prefix_len, head8};

/// Number of consecutive ascending keys that count as a sorted batch. In random order, one key in 720 follows
/// such a run.
const ASCENDING_MIN: u32 = 5;

/// Number of inserts that skip the fence check after a check that failed.
const CHECKS_SKIPPED: u32 = 16;

/// The only writer of a tree.
pub(super) struct TreeWriter {
    tree: Arc<Tree>,
    bump: Bump,
    finger: Finger,
}

/// The leaf of the last insert and the path to it.
struct Finger {
    path: Vec<RawStep>,
    /// Null if no leaf is known.
    leaf: *const Leaf,
    low: *const Record,
    high: *const Record,
    /// The record written by the last insert.
    last: *const Record,
    /// Length of the run of ascending keys that ends with the last insert.
    ascending: u32,
    /// Whether the finger has found the leaf of an insert since the last descent.
    has_hit: bool,
    /// Number of inserts that still skip the finger, because their batch is sparse compared with the tree.
    skipped: u32,
}

/// A step of the path; see `tree::Step`.
struct RawStep {
    inner: *const Inner,
    rank: usize,
    low: *const Record,
    high: *const Record,
}

// SAFETY: the pointers lead into the arena of `tree`, which the writer keeps alive. They are not tied to a
// thread.
unsafe impl Send for TreeWriter {}

impl TreeWriter {
    /// # Panics
    /// If the tree already has a writer (memtable.1).
    pub(super) fn new(tree: Arc<Tree>) -> Self {
        let bump = tree.take_bump().expect("memtable.1: one applier per memtable");
        let finger = Finger {
            path: Vec::new(),
            leaf: ptr::null(),
            low: ptr::null(),
            high: ptr::null(),
            last: ptr::null(),
            ascending: 0,
            has_hit: false,
            skipped: 0,
        };
        TreeWriter { tree, bump, finger }
    }

    pub(super) fn writes_to(&self, tree: &Arc<Tree>) -> bool {
        Arc::ptr_eq(&self.tree, tree)
    }

    /// Prefetches the leaves of the keys that are inserted next, unless the finger leads to them.
    #[inline]
    pub(super) fn warm<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        if !self.finger.has_hit {
            self.tree.warm(keys);
        }
    }

    /// Inserts a version, and the joined record of its run if there is one. Calls `before_new_key` before a
    /// new key becomes reachable.
    ///
    /// # Panics
    /// If the key already has a version with this or a larger sequence number (memtable.2).
    #[inline]
    pub(super) fn insert(
        &mut self,
        entry: EntryRef<'_>,
        joined: Option<Joined<'_>>,
        before_new_key: impl FnOnce(),
    ) {
        let TreeWriter { tree, bump, finger } = self;
        let tree: &Tree = tree;
        let leaf = finger.seek(tree, entry.key);
        let permutation = leaf.node.permutation();
        let (rank, found) = leaf.lower_bound(permutation, entry.key);
        let record;
        if found {
            let slot = permutation.slot(rank);
            let newest = leaf.record(slot);
            assert!(newest.seq() < entry.seq, "memtable.2: version {} after {}", entry.seq, newest.seq());
            let joined = joined.map(|joined| {
                let list = EntryRef { value: &joined.list, ..entry };
                Record::write(bump, &tree.arena, list, joined.below, None)
            });
            record = Record::write(bump, &tree.arena, entry, Some(newest), joined);
            leaf.replace(slot, record);
        } else {
            before_new_key();
            record = Record::write(bump, &tree.arena, entry, None, None);
            if permutation.is_full() {
                Split { tree, bump, finger }.split_leaf(leaf, permutation, rank, record);
            } else {
                leaf.insert(permutation, rank, record);
            }
        }
        finger.last = record.as_ptr();
    }
}

impl Finger {
    /// Finds the leaf for `key` and sets the path and the fences.
    #[inline]
    fn seek<'a>(&mut self, tree: &'a Tree, key: &[u8]) -> &'a Leaf {
        let ascends = record_at(tree, self.last).is_some_and(|last| last.key() < key);
        self.ascending = if ascends { self.ascending.saturating_add(1) } else { 0 };
        // The fence may not be in the processor cache, so it is checked only if the finger is likely to be
        // right.
        self.skipped = self.skipped.saturating_sub(1);
        if self.in_run() && !self.leaf.is_null() && self.skipped == 0 {
            // The last key was in this leaf and `key` is larger: only the upper fence remains to be checked.
            if record_at(tree, self.high).is_none_or(|high| key < high.key()) {
                self.has_hit = true;
                // SAFETY: the leaf is a complete node in the arena of this tree. Only its
                // atomics change.
                return unsafe { &*self.leaf };
            }
            self.skipped = if self.has_hit { 0 } else { CHECKS_SKIPPED };
        }
        self.has_hit = false;
        self.path.clear();
        let path = &mut self.path;
        let place = tree.path_to(key, |step| {
            path.push(RawStep {
                inner: step.inner,
                rank: step.rank,
                low: ptr_of(step.low),
                high: ptr_of(step.high),
            });
        });
        (self.leaf, self.low, self.high) = (place.leaf, ptr_of(place.low), ptr_of(place.high));
        place.leaf
    }

    fn in_run(&self) -> bool {
        self.ascending >= ASCENDING_MIN
    }
}

/// An insert into a full leaf.
struct Split<'a, 'w> {
    tree: &'a Tree,
    bump: &'w mut Bump,
    finger: &'w mut Finger,
}

impl<'a> Split<'a, '_> {
    fn split_leaf(mut self, leaf: &'a Leaf, permutation: Permutation, rank: usize, record: RecordRef<'a>) {
        let tree = self.tree;
        let (low, high) = (record_at(tree, self.finger.low), record_at(tree, self.finger.high));
        let prefix = leaf.node.prefix();
        let new = Slot { head: head8(&record.key()[prefix..]), record };
        if self.appends(rank, high) {
            let right = self.new_leaf(prefix, &mut [new], Some(record), high);
            self.link(record, right, None);
        } else {
            let old = |rank| {
                let slot = permutation.slot(rank);
                Slot { head: leaf.node.head(slot), record: leaf.record(slot) }
            };
            let mut all: [Slot<'a>; SLOTS + 1] = std::array::from_fn(|i| with_new(i, rank, new, old));
            let (below, above) = all.split_at_mut(SLOTS.div_ceil(2));
            let separator = above[0].record;
            let left = self.new_leaf(prefix, below, low, Some(separator));
            let right = self.new_leaf(prefix, above, Some(separator), high);
            self.link(separator, right, Some(left));
        }
        self.finger.leaf = ptr::null();
    }

    /// Returns whether to start a new node with the entry at `rank` instead of splitting the full node in
    /// half.
    fn appends(&self, rank: usize, high: Option<RecordRef<'_>>) -> bool {
        rank == SLOTS && (high.is_none() || self.finger.in_run())
    }

    /// Inserts a separator and the node right of it into the parent, and replaces the split node by `left`
    /// (tree.2).
    fn link(&mut self, mut separator: RecordRef<'a>, mut right: *const Node, mut left: Option<*const Node>) {
        let mut level = 1;
        while let Some(step) = self.finger.path.pop() {
            // SAFETY: the path consists of nodes in the arena of this tree. Only their
            // atomics change.
            let inner: &'a Inner = unsafe { &*step.inner };
            let permutation = inner.node.permutation();
            assert!(inner.node.level() == level);
            if !permutation.is_full() {
                inner.insert(permutation, step.rank, separator, right);
                if let Some(left) = left {
                    inner.replace(permutation, step.rank, left);
                }
                return;
            }
            (separator, right, left) = self.split_inner(inner, &step, separator, right, left);
            level += 1;
        }
        let old_root = left.unwrap_or_else(|| self.tree.root());
        let slot = Slot { head: head8(separator.key()), record: separator };
        let root = Inner::new(level, 0, &[slot], &[old_root, right]).place(self.bump, &self.tree.arena);
        self.tree.set_root(root);
    }

    /// Splits a full inner node while adding a child. Returns what must be inserted into its parent.
    fn split_inner(
        &mut self,
        inner: &'a Inner,
        step: &RawStep,
        separator: RecordRef<'a>,
        right: *const Node,
        left: Option<*const Node>,
    ) -> (RecordRef<'a>, *const Node, Option<*const Node>) {
        let (low, high) = (record_at(self.tree, step.low), record_at(self.tree, step.high));
        let (level, prefix, rank) = (inner.node.level(), inner.node.prefix(), step.rank);
        if left.is_none() && self.appends(rank, high) {
            let node = self.new_inner(level, prefix, &mut [], &[right], (Some(separator), high));
            return (separator, node, None);
        }
        let permutation = inner.node.permutation();
        let new = Slot { head: head8(&separator.key()[prefix..]), record: separator };
        let old = |rank| {
            let slot = permutation.slot(rank);
            Slot { head: inner.node.head(slot), record: inner.separator(slot) }
        };
        let mut slots: [Slot<'a>; SLOTS + 1] = std::array::from_fn(|i| with_new(i, rank, new, old));
        let mut children: [*const Node; SLOTS + 2] =
            std::array::from_fn(|i| with_new(i, rank + 1, right, |rank| inner.child(permutation, rank)));
        if let Some(left) = left {
            children[rank] = left;
        }
        // The middle separator moves up and becomes the fence between the halves.
        let middle = SLOTS.div_ceil(2);
        let up = slots[middle].record;
        let below =
            self.new_inner(level, prefix, &mut slots[..middle], &children[..=middle], (low, Some(up)));
        let above = self.new_inner(
            level,
            prefix,
            &mut slots[middle + 1..],
            &children[middle + 1..],
            (Some(up), high),
        );
        (up, above, Some(below))
    }

    fn new_leaf(
        &mut self,
        prefix: usize,
        slots: &mut [Slot<'_>],
        low: Option<RecordRef<'_>>,
        high: Option<RecordRef<'_>>,
    ) -> *const Node {
        let prefix = lengthen_prefix(prefix, slots, low, high);
        Leaf::new(prefix, slots).place(self.bump, &self.tree.arena)
    }

    fn new_inner(
        &mut self,
        level: u32,
        prefix: usize,
        slots: &mut [Slot<'_>],
        children: &[*const Node],
        (low, high): (Option<RecordRef<'_>>, Option<RecordRef<'_>>),
    ) -> *const Node {
        let prefix = lengthen_prefix(prefix, slots, low, high);
        Inner::new(level, prefix, slots, children).place(self.bump, &self.tree.arena)
    }
}

/// Chooses the prefix of a new node between two fences (node.2) and adjusts the heads. The old prefix remains
/// valid because the new fences lie within the old ones. A longer one is computed only if all heads share
/// their first half, because reading fences and keys usually misses the processor cache.
fn lengthen_prefix(
    old: usize,
    slots: &mut [Slot<'_>],
    low: Option<RecordRef<'_>>,
    high: Option<RecordRef<'_>>,
) -> usize {
    let (Some(low), Some(high)) = (low, high) else { return old };
    let shared = match slots {
        [first, .., last] => (first.head ^ last.head).leading_zeros(),
        _ => u64::BITS,
    };
    if shared < u64::BITS / 2 {
        return old;
    }
    let prefix = common_prefix_len(low.key(), high.key());
    assert!(prefix >= old, "node.2");
    if prefix > old {
        slots.iter_mut().for_each(|slot| slot.head = head8(&slot.record.key()[prefix..]));
    }
    prefix
}

/// Returns element `i` of a list with `new` inserted at `rank`.
fn with_new<T>(i: usize, rank: usize, new: T, old: impl Fn(usize) -> T) -> T {
    if i == rank { new } else { old(i - usize::from(i > rank)) }
}

fn ptr_of(record: Option<RecordRef<'_>>) -> *const Record {
    record.map_or(ptr::null(), RecordRef::as_ptr)
}

#[inline]
fn record_at(_: &Tree, ptr: *const Record) -> Option<RecordRef<'_>> {
    // SAFETY: the finger only holds pointers to records of its own tree, which this writer wrote or loaded.
    unsafe { RecordRef::from_ptr(ptr) }
}
