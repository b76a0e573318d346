//! An ordered walk over the tree that owns its share of it.
//!
//! ```text
//!   key --descent--> leaf, permutation, rank --> record --> older versions of the key
//!                      `-- end of the leaf: the parent's next child, or a descent (tree.4)
//! ```
//!
//! Records lie where they were written, all over the arena: when a walk comes to a leaf, the processor is asked for those of the leaf, and
//! once the walk is long, for those of the next one.
//!
//! position.1. A step forward leads to a larger key and a step back to a smaller one, and passes over no key that was inserted
//!      before the position was made (tree.1, tree.3).
#![expect(unsafe_code, reason = "keeps pointers to nodes from one step to the next")]

use std::ptr;
use std::sync::Arc;

use super::node::{Inner, Leaf};
use super::permutation::Permutation;
use super::record::{Record, RecordRef};
use super::tree::{Place, Step, Tree};
use crate::types::SeqNo;

/// A walk that has come to so many leaves one after another is long.
const LONG: u32 = 2;

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
    parent: Parent,
    way: Way,
    /// Leaves that the walk has come to one after another.
    streak: u32,
}

/// The step that led to the leaf: see `tree::Step`.
#[derive(Clone, Copy)]
struct Parent {
    /// Null: none.
    inner: *const Inner,
    permutation: Permutation,
    rank: usize,
    low: *const Record,
    high: *const Record,
}

/// Which way a walk goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Up,
    Down,
}

impl Way {
    /// The step to the next child of a node.
    #[inline]
    fn of(self, step: Step<'_>) -> Option<Step<'_>> {
        if self == Way::Up { step.next() } else { step.prev() }
    }
}

impl Parent {
    const NONE: Parent = Parent {
        inner: ptr::null(),
        permutation: Permutation::from_word(0),
        rank: 0,
        low: ptr::null(),
        high: ptr::null(),
    };

    #[inline]
    fn of(step: Option<Step<'_>>) -> Self {
        step.map_or(Parent::NONE, |step| Parent {
            inner: step.inner,
            permutation: step.permutation,
            rank: step.rank,
            low: step.low.map_or(ptr::null(), RecordRef::as_ptr),
            high: step.high.map_or(ptr::null(), RecordRef::as_ptr),
        })
    }
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
            parent: Parent::NONE,
            way: Way::Up,
            streak: 0,
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

    /// As [`older_version`](Self::older_version), for readers of the key's value (record.3).
    pub(super) fn older_shown(&mut self) -> bool {
        self.show(|version| version.previous().map(RecordRef::shown))
    }

    /// Shows the newest version not newer than `at`. False if there is none.
    #[inline]
    pub(super) fn show_at(&mut self, at: SeqNo) -> bool {
        self.show(|newest| newest.visible(at))
    }

    /// As [`show_at`](Self::show_at), for readers of the key's value (record.3).
    #[inline]
    pub(super) fn show_joined_at(&mut self, at: SeqNo) -> bool {
        self.show(|newest| newest.visible(at).map(RecordRef::shown))
    }

    #[inline]
    fn show<'a>(&'a mut self, choose: impl FnOnce(RecordRef<'a>) -> Option<RecordRef<'a>>) -> bool {
        let Position { tree, spot } = self;
        let chosen = spot.version(tree).and_then(choose);
        spot.version = chosen.map_or(spot.version, RecordRef::as_ptr);
        chosen.is_some()
    }

    /// Moves to the next key of the same leaf, to its newest version not newer than `at`; stays, and says no, if that is none or not admitted.
    #[inline]
    pub(super) fn next_in_leaf(&mut self, at: SeqNo, admits: impl FnOnce(RecordRef<'_>) -> bool) -> bool {
        let Position { tree, spot } = self;
        let rank = spot.rank + 1;
        if rank >= spot.permutation.len() {
            return false;
        }
        let version = spot.leaf(tree).record(spot.permutation.slot(rank)).visible(at);
        let version = version.filter(|version| admits(*version));
        if let Some(version) = version {
            (spot.rank, spot.version) = (rank, version.as_ptr());
        }
        version.is_some()
    }

    /// Asks the processor for all of the record that the walk comes to next: somebody reads whole values.
    #[inline]
    pub(super) fn prefetch_value(&self) {
        let Spot { rank, permutation, way, .. } = self.spot;
        let next = if way == Way::Up { rank + 1 } else { rank.wrapping_sub(1) };
        if next < permutation.len() {
            self.spot.leaf(&self.tree).record(permutation.slot(next)).prefetch();
        }
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
        self.spot.begin(&self.tree, 0, Way::Up);
    }

    /// Moves to the last key, if any.
    pub(super) fn last(&mut self) {
        self.spot.enter(self.tree.last_place());
        match self.spot.permutation.len() {
            0 => self.spot.leave(), // An empty tree.
            len => self.spot.begin(&self.tree, len - 1, Way::Down),
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
        self.parent = Parent::of(place.parent);
        place.leaf
    }

    /// The step that led to the leaf.
    #[inline]
    fn step<'a>(&self, tree: &'a Tree) -> Option<Step<'a>> {
        let Parent { inner, permutation, rank, low, high } = self.parent;
        let (low, high) = (self.fence(tree, low), self.fence(tree, high));
        // SAFETY: null, or a node of this tree that a descent came to; of nodes only atomics change.
        let inner = unsafe { inner.as_ref() }?;
        Some(Step { inner, permutation, rank, low, high })
    }

    /// The next leaf this way, with its keys and the rank of its first one for the walk; none if that takes a descent.
    #[inline]
    fn neighbour<'a>(&self, tree: &'a Tree, way: Way) -> Option<(Place<'a>, Permutation, usize)> {
        let from = self.version(tree).expect("position.1: on a key").key();
        let step = self.step(tree)?;
        let place = way.of(step)?.leaf()?;
        let permutation = place.leaf.node.permutation();
        let rank = if way == Way::Up { Some(0) } else { permutation.len().checked_sub(1) };
        let rank = rank.filter(|rank| *rank < permutation.len())?;
        let key = place.leaf.record(permutation.slot(rank)).key();
        // tree.3: of two leaves side by side, the left one may hold keys of the right one.
        let is_beyond = if way == Way::Up { key > from } else { key < from };
        is_beyond.then_some((place, permutation, rank))
    }

    /// Stands at a rank of a leaf that the walk has just come to by a search.
    #[inline]
    fn begin(&mut self, tree: &Tree, rank: usize, way: Way) {
        self.stand_at(tree, rank);
        (self.streak, self.way) = (0, way);
        self.prefetch(tree, rank, way);
    }

    /// Asks the processor for what the walk will read from this rank on.
    #[inline]
    fn prefetch(&self, tree: &Tree, rank: usize, way: Way) {
        let ranks = |permutation: Permutation, from: usize| {
            let ranks = if way == Way::Up { from..permutation.len() } else { 0..from };
            ranks.map(move |rank| permutation.slot(rank))
        };
        if self.streak < LONG {
            self.leaf(tree).prefetch_records(ranks(self.permutation, rank));
        }
        let Some(next) = self.step(tree).and_then(|step| way.of(step)) else { return };
        if self.streak + 1 < LONG {
            return next.prefetch();
        }
        if let Some(place) = next.leaf() {
            let permutation = place.leaf.node.permutation();
            place
                .leaf
                .prefetch_records(ranks(permutation, if way == Way::Up { 0 } else { permutation.len() }));
        }
        if let Some(next) = way.of(next) {
            next.prefetch();
        }
    }

    fn leave(&mut self) {
        self.leaf = ptr::null();
    }

    #[inline]
    fn stand_at(&mut self, tree: &Tree, rank: usize) {
        assert!(rank < self.permutation.len(), "position.1");
        self.rank = rank;
        self.version = self.leaf(tree).record(self.permutation.slot(rank)).as_ptr();
    }

    #[inline]
    fn leaf<'a>(&self, _: &'a Tree) -> &'a Leaf {
        assert!(!self.leaf.is_null(), "position.1");
        // SAFETY: the leaf is not null, so it is one of this tree's, which is alive; of leaves only atomics change.
        unsafe { &*self.leaf }
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
        self.begin(tree, rank, Way::Up);
    }

    fn seek_before(&mut self, tree: &Tree, key: &[u8]) {
        let mut place = tree.place_before(key);
        let mut rank = self.enter(place).lower_bound(self.permutation, key).0;
        while rank == 0 {
            let Some(low) = place.low else { return self.leave() };
            place = tree.place_before(low.key());
            rank = self.enter(place).lower_bound(self.permutation, low.key()).0;
        }
        self.begin(tree, rank - 1, Way::Down);
    }

    #[inline]
    fn next(&mut self, tree: &Tree) {
        if self.rank + 1 < self.permutation.len() {
            return self.stand_at(tree, self.rank + 1);
        }
        if !self.move_to_neighbour(tree, Way::Up) {
            self.search_next(tree);
        }
    }

    /// Goes to the leaf beside, if that takes no descent; says whether it did.
    #[inline]
    fn move_to_neighbour(&mut self, tree: &Tree, way: Way) -> bool {
        let Some((place, permutation, rank)) = self.neighbour(tree, way) else { return false };
        self.enter(place);
        self.permutation = permutation;
        (self.streak, self.way) = ((self.streak + 1).min(LONG), way);
        self.stand_at(tree, rank);
        self.prefetch(tree, rank, way);
        true
    }

    fn search_next(&mut self, tree: &Tree) {
        let streak = self.streak;
        let last = self.version(tree).expect("position.1: on a key").key();
        match self.fence(tree, self.high) {
            None => self.leave(),
            Some(high) if high.key() > last => self.seek(tree, high.key(), false),
            // tree.3: the leaf held keys beyond its fence, and the walk has seen them.
            Some(_) => self.seek(tree, last, true),
        }
        self.streak = streak.min(LONG - 1);
    }

    #[inline]
    fn prev(&mut self, tree: &Tree) {
        if self.rank > 0 {
            return self.stand_at(tree, self.rank - 1);
        }
        if self.move_to_neighbour(tree, Way::Down) {
            return;
        }
        let streak = self.streak;
        match self.fence(tree, self.low) {
            None => self.leave(),
            Some(low) => self.seek_before(tree, low.key()),
        }
        self.streak = streak.min(LONG - 1);
    }
}
