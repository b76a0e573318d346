//! The tree: finds the newest version of a key, without locks, while one applier inserts.
//!
//! ```text
//!            root (Inner)                     TreeWriter: the applier (writer.rs)
//!           /     |      \                    Tree:       point look-ups
//!       Inner   Inner   Inner                 Position:   ordered walks (position.rs)
//!       /   \
//!    Leaf   Leaf --> newest record --> previous version --> ...
//! ```
//!
//! tree.1. Whatever was published before a reader took its sequence number is reachable for that reader by every path
//!     from the root, however old the nodes are that it holds. Nothing is freed before the whole arena.
//! tree.2. A split of a child `C` at separator `s` writes fresh nodes `A` (below `s`) and `B`, then stores in the parent
//!     first the permutation that shows `s` and `B`, then `A` in the place of `C`. A reader that sees the old
//!     permutation and the new child would miss `B`: it notices by loading the permutation again.
//! tree.3. Between the two stores, `C` stands left of `s` and holds keys behind `s` too. So a leaf may hold keys beyond
//!     its upper fence, never below its lower fence: a walk goes on from the last key that it saw, not from the fence.
//! tree.4. There are no links between siblings: at the end of a leaf, a walk takes the next child of the leaf's parent, as the parent was
//!     when the walk came to it. Where the parent has changed, or ends, the walk descends from the root.
//!
//! Every node but the root is found between two fences, the nearest separators to its left and right on the way down; a
//! replaced node is never changed again, and holds all that was inserted before it was replaced (tree.1).
#![expect(unsafe_code, reason = "follows pointers to nodes in the arena")]

use super::arena::{Arena, Bump};
use super::node::{Inner, Leaf, Node, prefetch_node};
use super::permutation::Permutation;
use super::record::RecordRef;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicPtr, Ordering};

/// Keys that are gone down to side by side.
pub(super) const WARMED: usize = 16;

/// The arena and the root in it.
pub(super) struct Tree {
    /// Release store by the applier, acquire load by readers: publishes a new root.
    root: AtomicPtr<Node>,
    pub(super) arena: Arena,
    /// Taken by the one applier.
    bump: Mutex<Option<Bump>>,
}

// SAFETY: the pointers lead into the arena, which the tree owns. What is shared is atomic, or complete before it is published
// and never written again (node.1, record.1); writing needs the one `Bump`.
unsafe impl Send for Tree {}
// SAFETY: as above.
unsafe impl Sync for Tree {}

/// A leaf and the fences of the way to it; none at the edges of the tree.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) leaf: &'a Leaf,
    pub(super) low: Option<RecordRef<'a>>,
    pub(super) high: Option<RecordRef<'a>>,
    /// The last step of the way; none if the root is a leaf, or if nobody asked for fences.
    pub(super) parent: Option<Step<'a>>,
}

/// A step on the way down: at `inner`, between `low` and `high`, to the left of the separator with this rank.
#[derive(Clone, Copy)]
pub(super) struct Step<'a> {
    pub(super) inner: &'a Inner,
    /// What `inner` showed.
    pub(super) permutation: Permutation,
    pub(super) rank: usize,
    pub(super) low: Option<RecordRef<'a>>,
    pub(super) high: Option<RecordRef<'a>>,
}

impl Tree {
    /// A tree of one empty leaf.
    pub(super) fn new() -> Self {
        let arena = Arena::default();
        let mut bump = Bump::new();
        let root = Leaf::new(0, &[]).place(&mut bump, &arena);
        Tree { root: AtomicPtr::new(root.cast_mut()), arena, bump: Mutex::new(Some(bump)) }
    }

    /// The right to insert, once.
    pub(super) fn take_bump(&self) -> Option<Bump> {
        self.bump.lock().take()
    }

    #[inline(always)]
    pub(super) fn root(&self) -> *const Node {
        self.root.load(Ordering::Acquire)
    }

    /// Replaces the root (applier only).
    pub(super) fn set_root(&self, root: *const Node) {
        self.root.store(root.cast_mut(), Ordering::Release);
    }

    /// The newest version of a key.
    #[inline]
    pub(super) fn find(&self, key: &[u8]) -> Option<RecordRef<'_>> {
        let leaf = self.descend::<false>(|inner, permutation| covering(inner, permutation, key), |_| ()).leaf;
        let permutation = leaf.node.permutation();
        let (rank, found) = leaf.lower_bound(permutation, key);
        found.then(|| leaf.record(permutation.slot(rank)))
    }

    /// Asks the processor for the leaves whose keys may include these, and for their records, going down to all of them side by side: the cache
    /// misses of a level overlap. Of more than [`WARMED`] keys the rest is left out.
    pub(super) fn warm<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        let root = self.root();
        let mut ways = [(root, &[][..]); WARMED];
        let mut count = 0;
        for (way, key) in ways.iter_mut().zip(keys) {
            way.1 = key;
            count += 1;
        }
        let ways = &mut ways[..count];
        // SAFETY: the root is a complete node in the arena, valid for the borrow of `self`; so are all nodes below, loaded with acquire.
        let levels = unsafe { &*root }.level();
        for _ in 0..levels {
            for (at, key) in &mut *ways {
                // SAFETY: as above. Of the nodes on the way down from the root, all but the last are inner nodes; `at` was made from the
                // node's whole allocation.
                let inner: &Inner = unsafe { &*at.cast::<Inner>() };
                let permutation = inner.node.permutation();
                // A child that a split replaces just now is the wrong one: no harm.
                *at = inner.child(permutation, covering(inner, permutation, key));
                prefetch_node(*at);
            }
        }
        for (at, key) in ways {
            // SAFETY: as above; levels count down to the leaves.
            let leaf: &Leaf = unsafe { &*at.cast::<Leaf>() };
            leaf.prefetch_record_of(key);
        }
    }

    /// The leaf whose keys may include `key`.
    #[inline]
    pub(super) fn place_of(&self, key: &[u8]) -> Place<'_> {
        self.descend::<true>(|inner, permutation| covering(inner, permutation, key), |_| ())
    }

    /// The same, noting the steps.
    #[inline]
    pub(super) fn path_to<'a>(&'a self, key: &[u8], step: impl FnMut(Step<'a>)) -> Place<'a> {
        self.descend::<true>(|inner, permutation| covering(inner, permutation, key), step)
    }

    /// The leaf of the last key below `key`, if there is one.
    pub(super) fn place_before(&self, key: &[u8]) -> Place<'_> {
        self.descend::<true>(|inner, permutation| inner.lower_bound(permutation, key).0, |_| ())
    }

    /// The first leaf.
    pub(super) fn first_place(&self) -> Place<'_> {
        self.descend::<true>(|_, _| 0, |_| ())
    }

    /// The last leaf.
    pub(super) fn last_place(&self) -> Place<'_> {
        self.descend::<true>(|_, permutation| permutation.len(), |_| ())
    }

    /// Goes down from the root; `choose` gives the rank of the separator to keep to the left of.
    #[inline(always)]
    fn descend<'a, const FENCES: bool>(
        &'a self,
        choose: impl Fn(&Inner, Permutation) -> usize,
        mut step: impl FnMut(Step<'a>),
    ) -> Place<'a> {
        let (mut low, mut high, mut parent) = (None, None, None);
        let mut at = self.root();
        loop {
            // SAFETY: `at` is the root or a child, loaded with acquire: a complete node in the arena, valid for 'a.
            let node: &'a Node = unsafe { &*at };
            if node.level() == 0 {
                // SAFETY: nodes of level 0 are leaves; `at` was made from the leaf's whole allocation.
                return Place { leaf: unsafe { &*at.cast::<Leaf>() }, low, high, parent };
            }
            // SAFETY: nodes of other levels are inner nodes, likewise.
            let inner: &'a Inner = unsafe { &*at.cast::<Inner>() };
            let (permutation, rank, child) = loop {
                let permutation = node.permutation();
                let rank = choose(inner, permutation);
                let child = inner.child(permutation, rank);
                // tree.2. It ends: the applier adds at most 15 separators to a node.
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
    /// The fences of the child that it leads to.
    #[inline(always)]
    fn fences(self) -> (Option<RecordRef<'a>>, Option<RecordRef<'a>>) {
        let separator = |rank| self.inner.separator(self.permutation.slot(rank));
        let low = if self.rank > 0 { Some(separator(self.rank - 1)) } else { self.low };
        let high = if self.rank < self.permutation.len() { Some(separator(self.rank)) } else { self.high };
        (low, high)
    }

    /// The leaf that this step leads to, from a node of level 1. None if the node has changed since the walk came to it (tree.2).
    #[inline]
    pub(super) fn leaf(self) -> Option<Place<'a>> {
        let child = self.inner.child(self.permutation, self.rank);
        if self.inner.node.level() != 1 || !self.inner.node.permutation_is_still(self.permutation) {
            return None;
        }
        let (low, high) = self.fences();
        // SAFETY: the child was loaded with acquire: a complete node in the arena, valid for 'a; it was made from its whole
        // allocation. Children of nodes of level 1 are leaves.
        let leaf = unsafe { &*child.cast::<Leaf>() };
        Some(Place { leaf, low, high, parent: Some(self) })
    }

    /// The step to the next child of the same node.
    #[inline]
    pub(super) fn next(self) -> Option<Self> {
        (self.rank < self.permutation.len()).then(|| Step { rank: self.rank + 1, ..self })
    }

    /// The step to the child before.
    #[inline]
    pub(super) fn prev(self) -> Option<Self> {
        self.rank.checked_sub(1).map(|rank| Step { rank, ..self })
    }

    /// Asks the processor for the leaf that it leads to.
    #[inline]
    pub(super) fn prefetch(self) {
        // A child that a split replaces just now is the wrong one: no harm.
        prefetch_node(self.inner.child(self.permutation, self.rank));
    }
}

/// The rank of the first separator above `key`.
#[inline(always)]
fn covering(inner: &Inner, permutation: Permutation, key: &[u8]) -> usize {
    let (rank, equal) = inner.lower_bound(permutation, key);
    rank + usize::from(equal)
}
