//! The tree finds the newest version of a key without locks while one applier inserts.
//!
//! ```text
//!            root (Inner)                     TreeWriter: the applier (writer.rs)
//!           /     |      \                    Tree:       point lookups
//!       Inner   Inner   Inner                 Position:   ordered walks (position.rs)
//!       /   \
//!    Leaf   Leaf --> newest record --> previous version --> ...
//! ```
//!
//! tree.1. Every record published before a reader obtained its sequence number is reachable for that reader
//!     from the root and from every node that it already holds, however old. Nothing is freed before the
//!     whole arena.
//! tree.2. To split a child `C` at separator `s`, the applier writes new nodes `A` (below `s`) and `B`. It
//!     then stores in the parent first the permutation that exposes `s` and `B`, then `A` in the place of
//!     `C`. A reader with the old permutation and the new child would miss `B`, so it loads the permutation
//!     again after the child.
//! tree.3. Between the two stores, `C` lies left of `s` but still holds keys above `s`. A leaf may therefore
//!     hold keys above its upper fence, never below its lower fence. A walk continues from the last key that
//!     it saw, not from the fence.
//!
//! Fences are the nearest separators left and right of the path to a node. A replaced node is never changed
//! again and holds everything inserted before it was replaced (tree.1).
#![expect(unsafe_code, reason = "follows pointers to nodes in the arena")]

use std::cell::Cell;

use super::arena::{Arena, Bump};
use super::node::{Inner, Leaf, Node, prefetch_node};
use super::permutation::Permutation;
use super::record::RecordRef;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicPtr, Ordering};

/// Number of keys whose paths are prefetched together.
pub(super) const WARMED: usize = 16;

/// The arena and the root of the tree in it.
pub(super) struct Tree {
    /// Stored with release by the applier, loaded with acquire by readers: it publishes a new root.
    root: AtomicPtr<Node>,
    pub(super) arena: Arena,
    /// `None` once the applier has taken it.
    bump: Mutex<Option<Bump>>,
}

// SAFETY: the pointers lead into the arena, which the tree owns. Shared memory is atomic, or complete before
// it is published and never written again (node.1, record.1). Writing requires the only `Bump`.
unsafe impl Send for Tree {}
// SAFETY: as above.
unsafe impl Sync for Tree {}

/// A leaf and the fences of the path to it. A fence is `None` at the edges of the tree.
#[derive(Clone, Copy)]
pub(super) struct LeafPosition<'a> {
    pub(super) leaf: &'a Leaf,
    pub(super) low: Option<RecordRef<'a>>,
    pub(super) high: Option<RecordRef<'a>>,
    /// The last step of the path. `None` if the root is a leaf or if fences were not requested.
    pub(super) parent: Option<Step<'a>>,
}

/// A step of a descent: at `inner`, between the fences `low` and `high`, left of the separator with this
/// rank.
#[derive(Clone, Copy)]
pub(super) struct Step<'a> {
    pub(super) inner: &'a Inner,
    /// The permutation of `inner` when it was read.
    pub(super) permutation: Permutation,
    pub(super) rank: usize,
    pub(super) low: Option<RecordRef<'a>>,
    pub(super) high: Option<RecordRef<'a>>,
}

impl Tree {
    /// Creates a tree of one empty leaf.
    pub(super) fn new() -> Self {
        let arena = Arena::default();
        let mut bump = Bump::new();
        let root = Leaf::new(0, &[]).place(&mut bump, &arena);
        Tree { root: AtomicPtr::new(root.cast_mut()), arena, bump: Mutex::new(Some(bump)) }
    }

    /// Returns the right to insert, on the first call only.
    pub(super) fn take_bump(&self) -> Option<Bump> {
        self.bump.lock().take()
    }

    #[inline(always)]
    pub(super) fn root(&self) -> *const Node {
        self.root.load(Ordering::Acquire)
    }

    /// Replaces the root. Called only by the applier.
    pub(super) fn set_root(&self, root: *const Node) {
        self.root.store(root.cast_mut(), Ordering::Release);
    }

    /// Returns the newest version of a key.
    #[inline]
    pub(super) fn find(&self, key: &[u8]) -> Option<RecordRef<'_>> {
        let leaf = self.descend::<false>(|inner, permutation| covering(inner, permutation, key), |_| ()).leaf;
        let permutation = leaf.node.permutation();
        let (rank, found) = leaf.lower_bound(permutation, key);
        found.then(|| leaf.record(permutation.slot(rank)))
    }

    /// Prefetches the leaves and records that these keys lead to. It descends to all of them level by level,
    /// so that their cache misses overlap. Keys beyond the first [`WARMED`] are ignored.
    pub(super) fn warm<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        let root = self.root();
        let mut paths = [(root, &[][..]); WARMED];
        let mut count = 0;
        for (path, key) in paths.iter_mut().zip(keys) {
            path.1 = key;
            count += 1;
        }
        let paths = &mut paths[..count];
        // SAFETY: the root is a complete node in the arena, valid for the borrow of `self`. So are all nodes
        // below it, loaded with acquire.
        let levels = unsafe { &*root }.level();
        for _ in 0..levels {
            for (at, key) in &mut *paths {
                // SAFETY: as above. Nodes above the leaf level are inner nodes, and `at` was made from the
                // whole allocation of the node.
                let inner: &Inner = unsafe { &*at.cast::<Inner>() };
                let permutation = inner.node.permutation();
                // A concurrent split may make this the wrong child, which only wastes the prefetch.
                *at = inner.child(permutation, covering(inner, permutation, key));
                prefetch_node(*at);
            }
        }
        for (at, key) in paths {
            // SAFETY: as above; level 0 holds the leaves.
            let leaf: &Leaf = unsafe { &*at.cast::<Leaf>() };
            leaf.prefetch_record_of(key);
        }
    }

    /// Returns the leaf whose key range includes `key`.
    #[inline]
    pub(super) fn leaf_of(&self, key: &[u8]) -> LeafPosition<'_> {
        self.descend::<true>(|inner, permutation| covering(inner, permutation, key), |_| ())
    }

    /// Like `leaf_of`, and passes each step of the descent to `step`.
    #[inline]
    pub(super) fn path_to<'a>(&'a self, key: &[u8], step: impl FnMut(Step<'a>)) -> LeafPosition<'a> {
        self.descend::<true>(|inner, permutation| covering(inner, permutation, key), step)
    }

    /// Returns the leaf that holds the last key below `key`, if there is one.
    pub(super) fn leaf_before(&self, key: &[u8]) -> LeafPosition<'_> {
        self.descend::<true>(|inner, permutation| inner.lower_bound(permutation, key).0, |_| ())
    }

    /// Returns the first leaf.
    pub(super) fn first_leaf(&self) -> LeafPosition<'_> {
        self.descend::<true>(|_, _| 0, |_| ())
    }

    /// Returns the last leaf.
    pub(super) fn last_leaf(&self) -> LeafPosition<'_> {
        self.descend::<true>(|_, permutation| permutation.len(), |_| ())
    }

    /// Estimates the fraction of the keys that are less than `key`. It takes the children of each node on the
    /// path for equally large.
    pub(super) fn fraction_before(&self, key: &[u8]) -> f64 {
        let (mut before, mut width) = (0.0, 1.0);
        let leaf = self.path_to(key, |step| {
            width /= (step.permutation.len() + 1) as f64;
            before += width * step.rank as f64;
        });
        let permutation = leaf.leaf.node.permutation();
        let (rank, _) = leaf.leaf.lower_bound(permutation, key);
        before + width * rank as f64 / permutation.len().max(1) as f64
    }

    /// Returns a key with about this fraction of the keys before it; `None` if the tree is empty.
    pub(super) fn near_fraction(&self, fraction: f64) -> Option<RecordRef<'_>> {
        // What is left of the fraction, as a fraction of the node reached.
        let left = Cell::new(fraction);
        let rank_among = |count: usize| ((left.get() * count as f64) as usize).min(count.saturating_sub(1));
        let choose = |_: &Inner, permutation: Permutation| rank_among(permutation.len() + 1);
        let step = |step: Step<'_>| {
            let within = left.get() * (step.permutation.len() + 1) as f64 - step.rank as f64;
            left.set(within.clamp(0.0, 1.0));
        };
        let leaf = self.descend::<true>(choose, step).leaf;
        let permutation = leaf.node.permutation();
        let rank = rank_among(permutation.len());
        (rank < permutation.len()).then(|| leaf.record(permutation.slot(rank)))
    }

    /// Descends from the root. `choose` returns the rank of the separator whose left child is taken.
    #[inline(always)]
    fn descend<'a, const FENCES: bool>(
        &'a self,
        choose: impl Fn(&Inner, Permutation) -> usize,
        mut step: impl FnMut(Step<'a>),
    ) -> LeafPosition<'a> {
        let (mut low, mut high, mut parent) = (None, None, None);
        let mut at = self.root();
        loop {
            // SAFETY: `at` is the root or a child, loaded with acquire: a complete node in the arena, valid
            // for `'a`.
            let node: &'a Node = unsafe { &*at };
            if node.level() == 0 {
                // SAFETY: nodes of level 0 are leaves, and `at` was made from the whole allocation of the
                // leaf.
                return LeafPosition { leaf: unsafe { &*at.cast::<Leaf>() }, low, high, parent };
            }
            // SAFETY: nodes of other levels are inner nodes, likewise.
            let inner: &'a Inner = unsafe { &*at.cast::<Inner>() };
            let (permutation, rank, child) = loop {
                let permutation = node.permutation();
                let rank = choose(inner, permutation);
                let child = inner.child(permutation, rank);
                // tree.2. The loop ends because the applier adds at most 15 separators to a node.
                if node.permutation_is_still(permutation) {
                    break (permutation, rank, child);
                }
            };
            prefetch_node(child);
            if FENCES {
                let here = Step { inner, permutation, rank, low, high };
                step(here);
                (low, high) = here.fences();
                parent = Some(here);
            }
            at = child;
        }
    }
}

impl<'a> Step<'a> {
    /// Returns the fences of the child that the step leads to.
    #[inline(always)]
    fn fences(self) -> (Option<RecordRef<'a>>, Option<RecordRef<'a>>) {
        let separator = |rank| self.inner.separator(self.permutation.slot(rank));
        let low = if self.rank > 0 { Some(separator(self.rank - 1)) } else { self.low };
        let high = if self.rank < self.permutation.len() { Some(separator(self.rank)) } else { self.high };
        (low, high)
    }

    /// Returns the leaf that this step leads to from a node of level 1. `None` if the node has changed since
    /// the walk reached it (tree.2).
    #[inline]
    pub(super) fn leaf(self) -> Option<LeafPosition<'a>> {
        let child = self.inner.child(self.permutation, self.rank);
        if self.inner.node.level() != 1 || !self.inner.node.permutation_is_still(self.permutation) {
            return None;
        }
        let (low, high) = self.fences();
        // SAFETY: the child was loaded with acquire: a complete node in the arena, valid for `'a`, made from
        // its whole allocation. Children of nodes of level 1 are leaves.
        let leaf = unsafe { &*child.cast::<Leaf>() };
        Some(LeafPosition { leaf, low, high, parent: Some(self) })
    }

    /// Returns the step to the next child of the same node.
    #[inline]
    pub(super) fn next(self) -> Option<Self> {
        (self.rank < self.permutation.len()).then(|| Step { rank: self.rank + 1, ..self })
    }

    /// Returns the step to the previous child of the same node.
    #[inline]
    pub(super) fn prev(self) -> Option<Self> {
        self.rank.checked_sub(1).map(|rank| Step { rank, ..self })
    }

    /// Prefetches the leaf that the step leads to.
    #[inline]
    pub(super) fn prefetch(self) {
        // A concurrent split may make this the wrong child, which only wastes the prefetch.
        prefetch_node(self.inner.child(self.permutation, self.rank));
    }
}

/// Returns the rank of the first separator above `key`.
#[inline(always)]
fn covering(inner: &Inner, permutation: Permutation, key: &[u8]) -> usize {
    let (rank, equal) = inner.lower_bound(permutation, key);
    rank + usize::from(equal)
}
