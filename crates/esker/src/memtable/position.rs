//! An ordered walk over the tree. It holds a reference to the tree, so it can outlive the memtable.
//!
//! ```text
//!   key --descent--> leaf, permutation, rank --> record --> older versions of the key
//!                      `-- end of the leaf: the next child of the parent, or a descent
//! ```
//!
//! Records are scattered over the arena. When a walk enters a leaf, it prefetches the records of the leaf;
//! once the walk is long, it prefetches those of the next leaf.
//!
//! Leaves have no sibling links. At the end of a leaf, a walk takes the next child of the parent, as the
//! parent was when the walk reached it. If the parent has changed or has no next child, the walk descends
//! from the root.
//!
//! position.1. A step forward leads to a larger key and a step back to a smaller one. No key inserted before
//!     the position was created is skipped (tree.1, tree.3).
#![expect(unsafe_code, reason = "keeps pointers to nodes from one step to the next")]

use std::ptr;
use std::sync::Arc;

use super::node::{Inner, Leaf};
use super::permutation::Permutation;
use super::record::{Record, RecordRef};
use super::tree::{LeafPosition, Step, Tree};
use crate::types::SeqNo;

/// Number of consecutive leaves after which a walk counts as long.
const LONG: u32 = 2;

/// A position on a key of a tree, or none.
pub(super) struct Position {
    tree: Arc<Tree>,
    state: State,
}

/// The pointers of a position. Every method must be passed the tree of the position.
struct State {
    /// Null if the position is not on a key.
    leaf: *const Leaf,
    /// The keys of the leaf when the walk reached it.
    permutation: Permutation,
    rank: usize,
    /// Fences of the leaf. Null at the edges of the tree.
    low: *const Record,
    high: *const Record,
    /// The version of the key at `rank` that is shown.
    version: *const Record,
    parent: Parent,
    direction: Direction,
    /// Number of leaves reached one after another without a search.
    streak: u32,
}

/// The step that led to the leaf; see `tree::Step`.
#[derive(Clone, Copy)]
struct Parent {
    /// Null if there is none.
    inner: *const Inner,
    permutation: Permutation,
    rank: usize,
    low: *const Record,
    high: *const Record,
}

/// Direction of a walk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

impl Direction {
    /// Returns the step to the next child in this direction.
    #[inline]
    fn of(self, step: Step<'_>) -> Option<Step<'_>> {
        if self == Direction::Forward { step.next() } else { step.prev() }
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

// SAFETY: the pointers lead into the arena of `tree`, which the position keeps alive. They are not tied to a
// thread.
unsafe impl Send for Position {}
// SAFETY: as above; methods that take `&self` only read.
unsafe impl Sync for Position {}

impl Position {
    /// Creates a position that is not on a key.
    pub(super) fn new(tree: Arc<Tree>) -> Self {
        let state = State {
            leaf: ptr::null(),
            permutation: Permutation::default(),
            rank: 0,
            low: ptr::null(),
            high: ptr::null(),
            version: ptr::null(),
            parent: Parent::NONE,
            direction: Direction::Forward,
            streak: 0,
        };
        Position { tree, state }
    }

    /// Returns the version shown. `None` if the position is not on a key.
    #[inline]
    pub(super) fn version(&self) -> Option<RecordRef<'_>> {
        self.state.version(&self.tree)
    }

    /// Shows the next older version of the same key. Returns false if there is none.
    pub(super) fn older_version(&mut self) -> bool {
        self.show(|version| version.previous())
    }

    /// Like [`older_version`](Self::older_version), for readers of the value.
    pub(super) fn older_shown(&mut self) -> bool {
        self.show(|version| version.previous().map(RecordRef::shown))
    }

    /// Shows the newest version up to `at`. Returns false if there is none.
    #[inline]
    pub(super) fn show_at(&mut self, at: SeqNo) -> bool {
        self.show(|newest| newest.visible(at))
    }

    /// Like [`show_at`](Self::show_at), for readers of the value.
    #[inline]
    pub(super) fn show_joined_at(&mut self, at: SeqNo) -> bool {
        self.show(|newest| newest.visible(at).map(RecordRef::shown))
    }

    #[inline]
    fn show<'a>(&'a mut self, choose: impl FnOnce(RecordRef<'a>) -> Option<RecordRef<'a>>) -> bool {
        let Position { tree, state } = self;
        let chosen = state.version(tree).and_then(choose);
        state.version = chosen.map_or(state.version, RecordRef::as_ptr);
        chosen.is_some()
    }

    /// Moves to the next key of the same leaf, at its newest version up to `at`. Returns false without moving
    /// if there is no such version or `admits` rejects it.
    #[inline]
    pub(super) fn next_in_leaf(&mut self, at: SeqNo, admits: impl FnOnce(RecordRef<'_>) -> bool) -> bool {
        let Position { tree, state } = self;
        let rank = state.rank + 1;
        if rank >= state.permutation.len() {
            return false;
        }
        let version = state.leaf(tree).record(state.permutation.slot(rank)).visible(at);
        let version = version.filter(|version| admits(*version));
        if let Some(version) = version {
            (state.rank, state.version) = (rank, version.as_ptr());
        }
        version.is_some()
    }

    /// Returns the newest version of the key that is a number of keys ahead in the same leaf.
    pub(super) fn ahead(&self, keys: usize) -> Option<RecordRef<'_>> {
        let State { rank, permutation, .. } = self.state;
        let is_there = self.version().is_some() && rank + keys < permutation.len();
        is_there.then(|| self.state.leaf(&self.tree).record(permutation.slot(rank + keys)))
    }

    /// Prefetches the whole record of the next key, for walks that read values.
    #[inline]
    pub(super) fn prefetch_value(&self) {
        let State { rank, permutation, direction, .. } = self.state;
        let next = if direction == Direction::Forward { rank + 1 } else { rank.wrapping_sub(1) };
        if next < permutation.len() {
            self.state.leaf(&self.tree).record(permutation.slot(next)).prefetch();
        }
    }

    /// Moves to the first key `>= key`, if there is one.
    #[inline]
    pub(super) fn seek(&mut self, key: &[u8]) {
        self.state.seek(&self.tree, key, false);
    }

    /// Moves to the last key `< key`, if there is one.
    pub(super) fn seek_before(&mut self, key: &[u8]) {
        self.state.seek_before(&self.tree, key);
    }

    /// Moves to the first key, if there is one.
    pub(super) fn first(&mut self) {
        self.state.enter(self.tree.first_leaf());
        if self.state.permutation.len() == 0 {
            return self.state.leave(); // An empty tree.
        }
        self.state.begin(&self.tree, 0, Direction::Forward);
    }

    /// Moves to the last key, if there is one.
    pub(super) fn last(&mut self) {
        self.state.enter(self.tree.last_leaf());
        match self.state.permutation.len() {
            0 => self.state.leave(), // An empty tree.
            len => self.state.begin(&self.tree, len - 1, Direction::Backward),
        }
    }

    /// Moves to the next key, if there is one. The position must be on a key.
    #[inline]
    pub(super) fn next(&mut self) {
        self.state.next(&self.tree);
    }

    /// Moves to the previous key, if there is one. The position must be on a key.
    #[inline]
    pub(super) fn prev(&mut self) {
        self.state.prev(&self.tree);
    }
}

impl State {
    #[inline]
    fn version<'a>(&self, _: &'a Tree) -> Option<RecordRef<'a>> {
        if self.leaf.is_null() {
            return None;
        }
        // SAFETY: on a key, `version` points to a record of this tree that this position loaded.
        unsafe { RecordRef::from_ptr(self.version) }
    }

    /// Returns a fence of the leaf.
    #[inline]
    fn fence<'a>(&self, _: &'a Tree, fence: *const Record) -> Option<RecordRef<'a>> {
        // SAFETY: each fence is null or points to a record of this tree that the descent loaded.
        unsafe { RecordRef::from_ptr(fence) }
    }

    #[inline]
    fn enter<'a>(&mut self, place: LeafPosition<'a>) -> &'a Leaf {
        self.leaf = place.leaf;
        self.permutation = place.leaf.node.permutation();
        self.low = place.low.map_or(ptr::null(), RecordRef::as_ptr);
        self.high = place.high.map_or(ptr::null(), RecordRef::as_ptr);
        self.parent = Parent::of(place.parent);
        place.leaf
    }

    /// Returns the step that led to the leaf.
    #[inline]
    fn step<'a>(&self, tree: &'a Tree) -> Option<Step<'a>> {
        let Parent { inner, permutation, rank, low, high } = self.parent;
        let (low, high) = (self.fence(tree, low), self.fence(tree, high));
        // SAFETY: null, or a node of this tree that a descent reached. Only atomics of nodes change.
        let inner = unsafe { inner.as_ref() }?;
        Some(Step { inner, permutation, rank, low, high })
    }

    /// Returns the adjacent leaf, its keys and the rank at which the walk enters it. `None` if a descent is
    /// needed.
    #[inline]
    fn neighbour<'a>(
        &self,
        tree: &'a Tree,
        direction: Direction,
    ) -> Option<(LeafPosition<'a>, Permutation, usize)> {
        let from = self.version(tree).expect("position.1: on a key").key();
        let step = self.step(tree)?;
        let place = direction.of(step)?.leaf()?;
        let permutation = place.leaf.node.permutation();
        let rank = if direction == Direction::Forward { Some(0) } else { permutation.len().checked_sub(1) };
        let rank = rank.filter(|rank| *rank < permutation.len())?;
        let key = place.leaf.record(permutation.slot(rank)).key();
        // tree.3: of two adjacent leaves, the left one may hold keys of the right one.
        let is_beyond = if direction == Direction::Forward { key > from } else { key < from };
        is_beyond.then_some((place, permutation, rank))
    }

    /// Positions at a rank of a leaf that was reached by a search.
    #[inline]
    fn begin(&mut self, tree: &Tree, rank: usize, direction: Direction) {
        self.stand_at(tree, rank);
        (self.streak, self.direction) = (0, direction);
        self.prefetch(tree, rank, direction);
    }

    /// Prefetches what the walk reads next, starting at this rank.
    #[inline]
    fn prefetch(&self, tree: &Tree, rank: usize, direction: Direction) {
        let ranks = |permutation: Permutation, from: usize| {
            let ranks = if direction == Direction::Forward { from..permutation.len() } else { 0..from };
            ranks.map(move |rank| permutation.slot(rank))
        };
        if self.streak < LONG {
            self.leaf(tree).prefetch_records(ranks(self.permutation, rank));
        }
        let Some(next) = self.step(tree).and_then(|step| direction.of(step)) else { return };
        if self.streak + 1 < LONG {
            return next.prefetch();
        }
        if let Some(place) = next.leaf() {
            let permutation = place.leaf.node.permutation();
            place.leaf.prefetch_records(ranks(
                permutation,
                if direction == Direction::Forward { 0 } else { permutation.len() },
            ));
        }
        if let Some(next) = direction.of(next) {
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
        // SAFETY: a leaf that is not null belongs to this tree, which is alive. Only atomics of leaves
        // change.
        unsafe { &*self.leaf }
    }

    /// Moves to the first key `>= key`, or `> key` if `beyond`.
    #[inline]
    fn seek(&mut self, tree: &Tree, key: &[u8], beyond: bool) {
        let mut place = tree.leaf_of(key);
        let (rank, equal) = self.enter(place).lower_bound(self.permutation, key);
        let mut rank = rank + usize::from(equal && beyond);
        while rank == self.permutation.len() {
            // The upper fence is above `key` and every key of the leaf is below it, so no key lies between
            // (tree.3).
            let Some(high) = place.high else { return self.leave() };
            place = tree.leaf_of(high.key());
            rank = self.enter(place).lower_bound(self.permutation, high.key()).0;
        }
        self.begin(tree, rank, Direction::Forward);
    }

    fn seek_before(&mut self, tree: &Tree, key: &[u8]) {
        let mut place = tree.leaf_before(key);
        let mut rank = self.enter(place).lower_bound(self.permutation, key).0;
        while rank == 0 {
            let Some(low) = place.low else { return self.leave() };
            place = tree.leaf_before(low.key());
            rank = self.enter(place).lower_bound(self.permutation, low.key()).0;
        }
        self.begin(tree, rank - 1, Direction::Backward);
    }

    #[inline]
    fn next(&mut self, tree: &Tree) {
        if self.rank + 1 < self.permutation.len() {
            return self.stand_at(tree, self.rank + 1);
        }
        if !self.move_to_neighbour(tree, Direction::Forward) {
            self.search_next(tree);
        }
    }

    /// Moves to the adjacent leaf if no descent is needed. Returns whether it did.
    #[inline]
    fn move_to_neighbour(&mut self, tree: &Tree, direction: Direction) -> bool {
        let Some((place, permutation, rank)) = self.neighbour(tree, direction) else { return false };
        self.enter(place);
        self.permutation = permutation;
        (self.streak, self.direction) = ((self.streak + 1).min(LONG), direction);
        self.stand_at(tree, rank);
        self.prefetch(tree, rank, direction);
        true
    }

    fn search_next(&mut self, tree: &Tree) {
        let streak = self.streak;
        let last = self.version(tree).expect("position.1: on a key").key();
        match self.fence(tree, self.high) {
            None => self.leave(),
            Some(high) if high.key() > last => self.seek(tree, high.key(), false),
            // tree.3: the leaf held keys above its fence, and the walk has already shown them.
            Some(_) => self.seek(tree, last, true),
        }
        self.streak = streak.min(LONG - 1);
    }

    #[inline]
    fn prev(&mut self, tree: &Tree) {
        if self.rank > 0 {
            return self.stand_at(tree, self.rank - 1);
        }
        if self.move_to_neighbour(tree, Direction::Backward) {
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
