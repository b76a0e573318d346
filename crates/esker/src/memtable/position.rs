//! An ordered walk over the tree that owns its share of it.
//!
//! ```text
//!   key --descent--> leaf, permutation, rank --> record --> older versions of the key
//!                      `-- end of the leaf: descent to the neighbour (tree.4)
//! ```
//!
//! position.1. A step forward leads to a larger key and a step back to a smaller one, and passes over no key that was inserted
//!      before the position was made (tree.1, tree.3).
#![expect(unsafe_code, reason = "keeps pointers to nodes from one step to the next")]

use std::ptr;
use std::sync::Arc;

use super::node::Leaf;
use super::permutation::Permutation;
use super::record::{Record, RecordRef};
use super::tree::{Place, Tree};
use crate::types::SeqNo;

/// A place in a tree, or none.
pub(super) struct Position {
    tree: Arc<Tree>,
    spot: Spot,
}

/// The pointers of a position. Its methods must get the tree of the position.
struct Spot {
    /// Null: not on a key.
    leaf: *const Leaf,
    /// The leaf's keys as they were when the walk came to it.
    permutation: Permutation,
    rank: usize,
    /// Fences of the leaf: null at the edges of the tree.
    low: *const Record,
    high: *const Record,
    /// The version shown, of the key at `rank`.
    version: *const Record,
}

// SAFETY: the pointers lead into the arena of `tree`, which the position keeps alive; they have no ties to a thread.
unsafe impl Send for Position {}
// SAFETY: as above; methods that take `&self` only read.
unsafe impl Sync for Position {}

impl Position {
    /// Not on a key.
    pub(super) fn new(tree: Arc<Tree>) -> Self {
        let spot = Spot {
            leaf: ptr::null(),
            permutation: Permutation::default(),
            rank: 0,
            low: ptr::null(),
            high: ptr::null(),
            version: ptr::null(),
        };
        Position { tree, spot }
    }

    /// The version that the position shows; none if it is not on a key.
    #[inline]
    pub(super) fn version(&self) -> Option<RecordRef<'_>> {
        self.spot.version(&self.tree)
    }

    /// Shows the version of the same key before this one. False if there is none.
    pub(super) fn older_version(&mut self) -> bool {
        self.show(|version| version.previous())
    }

    /// Shows the newest version not newer than `at`. False if there is none.
    #[inline]
    pub(super) fn show_at(&mut self, at: SeqNo) -> bool {
        self.show(|newest| newest.visible(at))
    }

    #[inline]
    fn show<'a>(&'a mut self, choose: impl FnOnce(RecordRef<'a>) -> Option<RecordRef<'a>>) -> bool {
        let Position { tree, spot } = self;
        let chosen = spot.version(tree).and_then(choose);
        spot.version = chosen.map_or(spot.version, RecordRef::as_ptr);
        chosen.is_some()
    }

    /// Moves to the first key `>= key`, if any.
    #[inline]
    pub(super) fn seek(&mut self, key: &[u8]) {
        self.spot.seek(&self.tree, key, false);
    }

    /// Moves to the last key `< key`, if any.
    pub(super) fn seek_before(&mut self, key: &[u8]) {
        self.spot.seek_before(&self.tree, key);
    }

    /// Moves to the first key, if any.
    pub(super) fn first(&mut self) {
        self.spot.enter(self.tree.first_place());
        if self.spot.permutation.len() == 0 {
            return self.spot.leave(); // An empty tree.
        }
        self.spot.stand_at(&self.tree, 0);
    }

    /// Moves to the last key, if any.
    pub(super) fn last(&mut self) {
        self.spot.enter(self.tree.last_place());
        match self.spot.permutation.len() {
            0 => self.spot.leave(), // An empty tree.
            len => self.spot.stand_at(&self.tree, len - 1),
        }
    }

    /// Moves to the next key, if any. The position is on a key.
    #[inline]
    pub(super) fn next(&mut self) {
        self.spot.next(&self.tree);
    }

    /// Moves to the key before, if any. The position is on a key.
    #[inline]
    pub(super) fn prev(&mut self) {
        self.spot.prev(&self.tree);
    }
}

impl Spot {
    #[inline]
    fn version<'a>(&self, _: &'a Tree) -> Option<RecordRef<'a>> {
        if self.leaf.is_null() {
            return None;
        }
        // SAFETY: on a key, `version` is a record of this tree that this position loaded.
        unsafe { RecordRef::from_ptr(self.version) }
    }

    /// A fence of the leaf.
    #[inline]
    fn fence<'a>(&self, _: &'a Tree, fence: *const Record) -> Option<RecordRef<'a>> {
        // SAFETY: both fences are null or records of this tree that the descent loaded.
        unsafe { RecordRef::from_ptr(fence) }
    }

    #[inline]
    fn enter<'a>(&mut self, place: Place<'a>) -> &'a Leaf {
        self.leaf = place.leaf;
        self.permutation = place.leaf.node.permutation();
        self.low = place.low.map_or(ptr::null(), RecordRef::as_ptr);
        self.high = place.high.map_or(ptr::null(), RecordRef::as_ptr);
        place.leaf
    }

    fn leave(&mut self) {
        self.leaf = ptr::null();
    }

    #[inline]
    fn stand_at(&mut self, _: &Tree, rank: usize) {
        assert!(!self.leaf.is_null() && rank < self.permutation.len(), "position.1");
        self.rank = rank;
        // SAFETY: the leaf is not null, so it is one of this tree's, which is alive; of leaves only atomics change.
        let leaf = unsafe { &*self.leaf };
        self.version = leaf.record(self.permutation.slot(rank)).as_ptr();
    }

    /// To the first key `>= key`, or `> key` if `beyond`.
    #[inline]
    fn seek(&mut self, tree: &Tree, key: &[u8], beyond: bool) {
        let mut place = tree.place_of(key);
        let (rank, equal) = self.enter(place).lower_bound(self.permutation, key);
        let mut rank = rank + usize::from(equal && beyond);
        while rank == self.permutation.len() {
            // The upper fence is above `key`, and every key of the leaf is not: nothing lies between (tree.3).
            let Some(high) = place.high else { return self.leave() };
            place = tree.place_of(high.key());
            rank = self.enter(place).lower_bound(self.permutation, high.key()).0;
        }
        self.stand_at(tree, rank);
    }

    fn seek_before(&mut self, tree: &Tree, key: &[u8]) {
        let mut place = tree.place_before(key);
        let mut rank = self.enter(place).lower_bound(self.permutation, key).0;
        while rank == 0 {
            let Some(low) = place.low else { return self.leave() };
            place = tree.place_before(low.key());
            rank = self.enter(place).lower_bound(self.permutation, low.key()).0;
        }
        self.stand_at(tree, rank - 1);
    }

    #[inline]
    fn next(&mut self, tree: &Tree) {
        if self.rank + 1 < self.permutation.len() {
            return self.stand_at(tree, self.rank + 1);
        }
        let last = self.version(tree).expect("position.1: on a key").key();
        match self.fence(tree, self.high) {
            None => self.leave(),
            Some(high) if high.key() > last => self.seek(tree, high.key(), false),
            // tree.3: the leaf held keys beyond its fence, and the walk has seen them.
            Some(_) => self.seek(tree, last, true),
        }
    }

    #[inline]
    fn prev(&mut self, tree: &Tree) {
        if self.rank > 0 {
            return self.stand_at(tree, self.rank - 1);
        }
        match self.fence(tree, self.low) {
            None => self.leave(),
            Some(low) => self.seek_before(tree, low.key()),
        }
    }
}
