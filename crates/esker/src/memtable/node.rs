//! Nodes of the tree: leaves with records, inner nodes with separators and children.
//!
//! ```text
//!   Inner  [permutation][prefix, level][15 heads][16 children][15 separators]     384 bytes
//!   Leaf   [permutation][prefix, level][15 heads][15 records]                     256 bytes
//! ```
//!
//! node.1. A slot's head and separator (in a leaf: its key) are written before the permutation that shows the slot, and
//!     never again. What does change later: a leaf's record pointer, to a newer version of the same key; an inner
//!     node's child pointer, to a node of the same or a narrower key range (tree.2).
//! node.2. All keys that a search brings to a node share its first `prefix` bytes, and so do the node's own keys; heads
//!     are the 8 bytes after those.
//!
//! An inner node has one child more than separators: child 0 is left of all; child `s + 1` begins at the separator in
//! slot `s`.
#![expect(unsafe_code, reason = "follows pointers between nodes in the arena")]

use std::cmp::Ordering::{Equal, Greater, Less};

use super::arena::{Arena, Bump};
use super::permutation::{Permutation, SLOTS};
use super::record::{Record, RecordRef};
use crate::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use crate::sync::fault::{self, Fault};
use crate::types::key::head8;
use crate::types::prefetch::prefetch_line;

/// What leaves and inner nodes share, at the head of both.
#[repr(C)]
pub(super) struct Node {
    /// Release store by the applier, acquire load by readers: it publishes the slots that it shows (node.1).
    permutation: AtomicU64,
    prefix: u32,
    level: u32,
    /// Relaxed: readers use the heads that a permutation showed them.
    heads: [AtomicU64; SLOTS],
}

/// A leaf: level 0.
#[repr(C)]
pub(super) struct Leaf {
    pub(super) node: Node,
    /// Newest version of each key. Release store, acquire load: publishes a newer version's record.
    records: [AtomicPtr<Record>; SLOTS],
}

/// An inner node: its children are one level below.
#[repr(C)]
pub(super) struct Inner {
    pub(super) node: Node,
    /// Release store, acquire load: publishes a new child, and the permutation stored before it (tree.2).
    children: [AtomicPtr<Node>; SLOTS + 1],
    /// Records whose keys separate the children. Relaxed: the permutation publishes them.
    separators: [AtomicPtr<Record>; SLOTS],
}

// Pointers of 32 bits make them smaller.
#[cfg(all(not(loom), target_pointer_width = "64"))]
const _: () = assert!(size_of::<Leaf>() == 256 && size_of::<Inner>() == 384);

/// Where a node begins: on a cache line.
const NODE_ALIGN: usize = 64;

/// An entry to build a node from.
#[derive(Clone, Copy)]
pub(super) struct Slot<'a> {
    pub(super) head: u64,
    /// A leaf's record, or an inner node's separator.
    pub(super) record: RecordRef<'a>,
}

impl Node {
    fn new(level: u32, prefix: usize, slots: &[Slot<'_>]) -> Self {
        let head = |i| slots.get(i).map_or(0, |s: &Slot<'_>| s.head);
        Node {
            permutation: AtomicU64::new(Permutation::in_order(slots.len()).word()),
            prefix: u32::try_from(prefix).expect("a prefix is part of a key"),
            level,
            heads: std::array::from_fn(|i| AtomicU64::new(head(i))),
        }
    }

    #[inline(always)]
    pub(super) fn level(&self) -> u32 {
        self.level
    }

    #[inline(always)]
    pub(super) fn prefix(&self) -> usize {
        self.prefix as usize
    }

    /// The entries in use, for readers: what it shows may be read.
    #[inline(always)]
    pub(super) fn permutation(&self) -> Permutation {
        Permutation::from_word(self.permutation.load(Ordering::Acquire))
    }

    /// Whether the permutation is still this one. After an acquire load of a child, false if that child was stored
    /// after a newer permutation (tree.2).
    #[inline(always)]
    pub(super) fn permutation_is_still(&self, permutation: Permutation) -> bool {
        self.permutation.load(Ordering::Relaxed) == permutation.word()
    }

    #[inline(always)]
    pub(super) fn head(&self, slot: usize) -> u64 {
        self.heads[slot].load(Ordering::Relaxed)
    }

    /// The rank of the first entry whose key is not below `key`, and whether it is equal. `key` has the node's
    /// prefix (node.2); `key_of` gives the key of a slot.
    #[inline(always)]
    fn lower_bound<'a>(
        &self,
        permutation: Permutation,
        key: &[u8],
        key_of: impl Fn(usize) -> &'a [u8],
    ) -> (usize, bool) {
        let tail = &key[self.prefix()..];
        let head = head8(tail);
        // Without branches, over all slots: the order does not matter for counting, and slots not yet shown are masked.
        let mut below = 0u32;
        for (slot, other) in self.heads.iter().enumerate() {
            below |= u32::from(other.load(Ordering::Relaxed) < head) << slot;
        }
        let len = permutation.len();
        let rank = (below & ((1 << len) - 1)).count_ones() as usize;
        if rank == len || self.head(permutation.slot(rank)) != head {
            return (rank, false);
        }
        let compare = |rank: usize| {
            let slot = permutation.slot(rank);
            if self.head(slot) != head { Greater } else { key_of(slot)[self.prefix()..].cmp(tail) }
        };
        match compare(rank) {
            Equal => return (rank, true),
            Greater => return (rank, false),
            Less => {}
        }
        // Several equal heads: halve what is left.
        let (mut low, mut high) = (rank + 1, len);
        while low < high {
            let middle = (low + high) / 2;
            match compare(middle) {
                Less => low = middle + 1,
                Equal => return (middle, true),
                Greater => high = middle,
            }
        }
        (low, false)
    }
}

impl Leaf {
    /// A leaf of these entries, in order.
    pub(super) fn new(prefix: usize, slots: &[Slot<'_>]) -> Self {
        Leaf {
            node: Node::new(0, prefix, slots),
            records: std::array::from_fn(|i| AtomicPtr::new(record_or_null(slots.get(i)))),
        }
    }

    /// The newest version in a slot that a permutation showed.
    #[inline(always)]
    pub(super) fn record(&self, slot: usize) -> RecordRef<'_> {
        // SAFETY: records are written into the arena that holds this leaf; the acquire load pairs with the release store
        // of the pointer or, for the first one, of the permutation that the caller saw.
        unsafe { RecordRef::from_ptr(self.records[slot].load(Ordering::Acquire)) }.expect("node.1")
    }

    #[inline(always)]
    pub(super) fn lower_bound(&self, permutation: Permutation, key: &[u8]) -> (usize, bool) {
        self.node.lower_bound(permutation, key, |slot| self.record(slot).key())
    }

    /// Asks the processor for the beginnings of the records of some slots that a permutation showed.
    #[inline]
    pub(super) fn prefetch_records(&self, slots: impl Iterator<Item = usize>) {
        for slot in slots {
            let record = self.records[slot].load(Ordering::Relaxed).cast::<u8>();
            prefetch_line(record);
            prefetch_line(record.wrapping_add(64));
        }
    }

    /// Asks the processor for the record of a key, as far as heads tell which one it is.
    #[inline]
    pub(super) fn prefetch_record_of(&self, key: &[u8]) {
        let permutation = self.node.permutation();
        let head = head8(&key[self.node.prefix()..]);
        let slot = (0..permutation.len()).find(|slot| self.node.head(*slot) == head);
        self.prefetch_records(slot.into_iter());
    }

    /// Adds a key (applier only).
    #[inline]
    pub(super) fn insert(&self, permutation: Permutation, rank: usize, record: RecordRef<'_>) {
        let slot = permutation.len();
        let head = head8(&record.key()[self.node.prefix()..]);
        self.node.heads[slot].store(head, Ordering::Relaxed);
        self.records[slot].store(record.as_ptr().cast_mut(), Ordering::Relaxed);
        // Publishes head, pointer and record.
        let release = fault::ordering(Fault::PermutationNotReleased, Ordering::Release);
        self.node.permutation.store(permutation.with(rank).word(), release);
    }

    /// Puts a newer version before the one in a slot (applier only).
    #[inline]
    pub(super) fn replace(&self, slot: usize, record: RecordRef<'_>) {
        self.records[slot].store(record.as_ptr().cast_mut(), Ordering::Release);
    }
}

impl Inner {
    /// An inner node of these separators, in order, with a child more than separators.
    pub(super) fn new(level: u32, prefix: usize, separators: &[Slot<'_>], children: &[*const Node]) -> Self {
        assert!(children.len() == separators.len() + 1 && level > 0);
        let child = |i| children.get(i).map_or(std::ptr::null_mut(), |c: &*const Node| c.cast_mut());
        Inner {
            node: Node::new(level, prefix, separators),
            children: std::array::from_fn(|i| AtomicPtr::new(child(i))),
            separators: std::array::from_fn(|i| AtomicPtr::new(record_or_null(separators.get(i)))),
        }
    }

    /// The separator in a slot that a permutation showed.
    #[inline(always)]
    pub(super) fn separator(&self, slot: usize) -> RecordRef<'_> {
        // SAFETY: as for `Leaf::record`; the permutation that the caller saw published the pointer.
        unsafe { RecordRef::from_ptr(self.separators[slot].load(Ordering::Relaxed)) }.expect("node.1")
    }

    #[inline(always)]
    pub(super) fn lower_bound(&self, permutation: Permutation, key: &[u8]) -> (usize, bool) {
        self.node.lower_bound(permutation, key, |slot| self.separator(slot).key())
    }

    /// The child to the left of the separator with this rank (behind the last, for `rank == len`).
    #[inline(always)]
    pub(super) fn child(&self, permutation: Permutation, rank: usize) -> *const Node {
        self.children[child_index(permutation, rank)].load(Ordering::Acquire)
    }

    /// Adds a separator of this rank and the child that begins there (applier only).
    pub(super) fn insert(
        &self,
        permutation: Permutation,
        rank: usize,
        separator: RecordRef<'_>,
        child: *const Node,
    ) {
        let slot = permutation.len();
        let head = head8(&separator.key()[self.node.prefix()..]);
        self.node.heads[slot].store(head, Ordering::Relaxed);
        self.separators[slot].store(separator.as_ptr().cast_mut(), Ordering::Relaxed);
        self.children[slot + 1].store(child.cast_mut(), Ordering::Relaxed);
        // Publishes head, separator and child.
        self.node.permutation.store(permutation.with(rank).word(), Ordering::Release);
    }

    /// Replaces the child to the left of the separator with this rank (applier only).
    pub(super) fn replace(&self, permutation: Permutation, rank: usize, child: *const Node) {
        // Publishes the child; and the permutation stored before, to those who see the child (tree.2).
        self.children[child_index(permutation, rank)].store(child.cast_mut(), Ordering::Release);
    }
}

#[inline(always)]
fn child_index(permutation: Permutation, rank: usize) -> usize {
    if rank == 0 { 0 } else { permutation.slot(rank - 1) + 1 }
}

fn record_or_null(slot: Option<&Slot<'_>>) -> *mut Record {
    slot.map_or(std::ptr::null_mut(), |s| s.record.as_ptr().cast_mut())
}

macro_rules! place_in_arena {
    ($node:ty) => {
        impl $node {
            /// Moves the node into the arena. The pointer may be used for the node's whole memory; nobody else knows it yet.
            pub(super) fn place(self, bump: &mut Bump, arena: &Arena) -> *const Node {
                let ptr = bump.alloc(arena, size_of::<$node>(), NODE_ALIGN).cast::<$node>();
                // SAFETY: the arena gave us memory of this size and alignment, not used by anybody else.
                unsafe { ptr.write(self) };
                ptr.as_ptr().cast::<Node>().cast_const()
            }
        }
    };
}

place_in_arena!(Leaf);
place_in_arena!(Inner);

/// Asks the processor for a node's lines, of which a search needs most.
#[inline(always)]
pub(super) fn prefetch_node(node: *const Node) {
    for line in 0..size_of::<Leaf>() / 64 {
        prefetch_line(node.cast::<u8>().wrapping_add(64 * line));
    }
}
