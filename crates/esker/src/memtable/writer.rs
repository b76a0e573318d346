//! The applier's side of the tree: inserts and splits.
//!
//! ```text
//!   entry --finger or descent--> leaf --room?--> free slot, permutation
//!                                   `--full----> split: fresh leaves, separator into the parent, and so on up
//! ```
//!
//! memtable_writer.1. There is one writer per tree; only it stores to nodes.
//! memtable_writer.2. Versions of one key come with strictly increasing sequence numbers.
//! memtable_writer.3. The finger's leaf is in the tree, and its path and fences are those of a descent now: a split drops the finger.
//!
//! A split at the end of the tree, or in a run of ascending keys, leaves the full node as it is and begins a new one
//! with the new entry, so that sorted loads fill their nodes and copy nothing.
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

/// So many ascending keys in a row count as a sorted batch. In random order, 1 key of 720 follows such a run.
const ASCENDING_MIN: u32 = 5;

/// After a look at the fence that was in vain, so many inserts do without.
const LOOKS_SPARED: u32 = 16;

/// The one writer of a tree.
pub(super) struct TreeWriter {
    tree: Arc<Tree>,
    bump: Bump,
    finger: Finger,
}

/// Where the last insert went.
struct Finger {
    path: Vec<RawStep>,
    /// Null: no leaf known.
    leaf: *const Leaf,
    low: *const Record,
    high: *const Record,
    /// The record of the last insert.
    last: *const Record,
    /// Length of the run of ascending keys that ends with the last insert.
    ascending: u32,
    /// An insert found its leaf by the finger since the last descent.
    has_paid: bool,
    /// So many inserts do without the finger: their batch is sparse beside the tree.
    spared: u32,
}

/// A step of the path: see `tree::Step`.
struct RawStep {
    inner: *const Inner,
    rank: usize,
    low: *const Record,
    high: *const Record,
}

// SAFETY: the pointers lead into the arena of `tree`, which the writer keeps alive; they have no ties to a thread.
unsafe impl Send for TreeWriter {}

impl TreeWriter {
    /// # Panics
    /// If the tree has a writer already (memtable_writer.1).
    pub(super) fn new(tree: Arc<Tree>) -> Self {
        let bump = tree.take_bump().expect("memtable_writer.1: one applier per memtable");
        let finger = Finger {
            path: Vec::new(),
            leaf: ptr::null(),
            low: ptr::null(),
            high: ptr::null(),
            last: ptr::null(),
            ascending: 0,
            has_paid: false,
            spared: 0,
        };
        TreeWriter { tree, bump, finger }
    }

    pub(super) fn writes_to(&self, tree: &Arc<Tree>) -> bool {
        Arc::ptr_eq(&self.tree, tree)
    }

    /// Asks the processor for the leaves of keys that are inserted next, where the finger does not lead there.
    #[inline]
    pub(super) fn warm<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        if !self.finger.has_paid {
            self.tree.warm(keys);
        }
    }

    /// Inserts a version, and the record of its run if there is one. `before_new_key` runs before a key that the tree did not have becomes reachable.
    ///
    /// # Panics
    /// If the key has a version of this or a newer sequence number (memtable_writer.2).
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
            assert!(
                newest.seq() < entry.seq,
                "memtable_writer.2: version {} after {}",
                entry.seq,
                newest.seq()
            );
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
    /// The leaf for `key`; path and fences are set.
    #[inline]
    fn seek<'a>(&mut self, tree: &'a Tree, key: &[u8]) -> &'a Leaf {
        let ascends = record_at(tree, self.last).is_some_and(|last| last.key() < key);
        self.ascending = if ascends { self.ascending.saturating_add(1) } else { 0 };
        // The fence may be far from the processor: look at it only if the finger is likely right.
        self.spared = self.spared.saturating_sub(1);
        if self.in_run() && !self.leaf.is_null() && self.spared == 0 {
            // The last key was in the leaf and this one is larger: only the upper fence is left to check.
            if record_at(tree, self.high).is_none_or(|high| key < high.key()) {
                self.has_paid = true;
                // SAFETY: the leaf is in the arena of this tree (memtable_writer.3), complete, and all that changes in it is atomic.
                return unsafe { &*self.leaf };
            }
            self.spared = if self.has_paid { 0 } else { LOOKS_SPARED };
        }
        self.has_paid = false;
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

/// One insert into a full leaf.
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

    /// Whether to begin a new node for an entry of this rank, instead of halving the full one.
    fn appends(&self, rank: usize, high: Option<RecordRef<'_>>) -> bool {
        rank == SLOTS && (high.is_none() || self.finger.in_run())
    }

    /// Puts a separator and the node right of it into the parent, and `left` in the place of the node split (tree.2).
    fn link(&mut self, mut separator: RecordRef<'a>, mut right: *const Node, mut left: Option<*const Node>) {
        let mut level = 1;
        while let Some(step) = self.finger.path.pop() {
            // SAFETY: the path leads through nodes of this tree's arena (memtable_writer.3), of which only atomics change.
            let inner: &'a Inner = unsafe { &*step.inner };
            let permutation = inner.node.permutation();
            assert!(inner.node.level() == level, "memtable_writer.3");
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

    /// Splits a full inner node while adding a child to it. Returns what its parent has to take in.
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
        // The middle separator moves up: it is the new fence between the halves.
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

/// Chooses the prefix of a new node between two fences (node.2), and adapts the heads. The old prefix stays right, since the
/// new fences lie within the old ones; a longer one is sought only if half of the heads is the same in all slots,
/// because fences and keys are cold memory.
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

/// Element `i` of a list with a new element at `rank`.
fn with_new<T>(i: usize, rank: usize, new: T, old: impl Fn(usize) -> T) -> T {
    if i == rank { new } else { old(i - usize::from(i > rank)) }
}

fn ptr_of(record: Option<RecordRef<'_>>) -> *const Record {
    record.map_or(ptr::null(), RecordRef::as_ptr)
}

#[inline]
fn record_at(_: &Tree, ptr: *const Record) -> Option<RecordRef<'_>> {
    // SAFETY: the finger holds pointers to records of its own tree only, all written or seen by this writer.
    unsafe { RecordRef::from_ptr(ptr) }
}
