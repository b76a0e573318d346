//! Nodes of the tree: leaves hold records, inner nodes hold separators and children.
//!
//! ```text
//!   Inner  [permutation][prefix, level][15 heads][16 children][15 separators]     384 bytes
//!   Leaf   [permutation][prefix, level][15 heads][15 records]                     256 bytes
//! ```
//!
//! node.1. The head and the separator (in a leaf: the key) of a slot are written before the permutation that
//!     exposes the slot, and never again. Only pointers change later. A record pointer of a leaf moves to a
//!     newer version of the same key. A child pointer of an inner node moves to a node with the same or a
//!     narrower key range (tree.2).
//! node.2. All keys that a search leads to a node share its first `prefix` bytes, as do the keys of the node.
//!     Heads are the 8 bytes after the prefix.
//!
//! An inner node has one more child than separators: child 0 lies left of all separators, and child `s + 1`
//! starts at the separator in slot `s`.
#![expect(unsafe_code, reason = "follows pointers between nodes in the arena")]

use std::cmp::Ordering::{Equal, Greater, Less};

use super::arena::{Arena, Bump};
use super::permutation::{Permutation, SLOTS};
use super::record::{Record, RecordRef};
use crate::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use crate::sync::fault::{self, Fault};
use crate::types::key::head8;
use crate::types::prefetch::prefetch_line;

/// Common first part of leaves and inner nodes.
#[repr(C)]
pub(super) struct Node {
    /// Stored with release by the applier, loaded with acquire by readers: it publishes the slots that it
    /// exposes (node.1).
    permutation: AtomicU64,
    prefix: u32,
    level: u32,
    /// Relaxed: readers only use heads exposed by a permutation that they loaded.
    heads: [AtomicU64; SLOTS],
}

/// A leaf: level 0.
#[repr(C)]
pub(super) struct Leaf {
    pub(super) node: Node,
    /// Newest version of each key. Stored with release, loaded with acquire: it publishes the record of a
    /// newer version.
    records: [AtomicPtr<Record>; SLOTS],
}

/// An inner node: its children are one level below.
#[repr(C)]
pub(super) struct Inner {
    pub(super) node: Node,
    /// Stored with release, loaded with acquire: it publishes a new child, and the permutation stored before
    /// it (tree.2).
    children: [AtomicPtr<Node>; SLOTS + 1],
    /// Records whose keys separate the children. Relaxed: the permutation publishes them.
    separators: [AtomicPtr<Record>; SLOTS],
}

// Nodes are smaller where pointers have 32 bits.
#[cfg(all(not(loom), target_pointer_width = "64"))]
const _: () = assert!(size_of::<Leaf>() == 256 && size_of::<Inner>() == 384);

/// Nodes start on a cache line.
const NODE_ALIGN: usize = 64;

/// An entry from which a node is built.
#[derive(Clone, Copy)]
pub(super) struct Slot<'a> {
    pub(super) head: u64,
    /// The record of a leaf, or the separator of an inner node.
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

    /// Returns the permutation. A reader may use every slot that it exposes.
    #[inline(always)]
    pub(super) fn permutation(&self) -> Permutation {
        Permutation::from_word(self.permutation.load(Ordering::Acquire))
    }

    /// Returns whether the permutation is unchanged. After an acquire load of a child, false means that the
    /// child may belong to a newer permutation (tree.2).
    #[inline(always)]
    pub(super) fn permutation_is_still(&self, permutation: Permutation) -> bool {
        self.permutation.load(Ordering::Relaxed) == permutation.word()
    }

    #[inline(always)]
    pub(super) fn head(&self, slot: usize) -> u64 {
        self.heads[slot].load(Ordering::Relaxed)
    }

    /// Returns the rank of the first entry whose key is `>= key`, and whether it is equal. `key` starts with
    /// the prefix of the node (node.2); `key_of` returns the key of a slot.
    #[inline(always)]
    fn lower_bound<'a>(
        &self,
        permutation: Permutation,
        key: &[u8],
        key_of: impl Fn(usize) -> &'a [u8],
    ) -> (usize, bool) {
        let tail = &key[self.prefix()..];
        let head = head8(tail);
        // Compares all slots without branches. The order of slots does not matter for counting; unexposed
        // slots are masked.
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
        // Several heads are equal: search the rest of them by bisection.
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
    /// Builds a leaf from entries in key order.
    pub(super) fn new(prefix: usize, slots: &[Slot<'_>]) -> Self {
        Leaf {
            node: Node::new(0, prefix, slots),
            records: std::array::from_fn(|i| AtomicPtr::new(record_or_null(slots.get(i)))),
        }
    }

    /// Returns the newest version in a slot exposed by a permutation.
    #[inline(always)]
    pub(super) fn record(&self, slot: usize) -> RecordRef<'_> {
        // SAFETY: records are written into the arena that holds this leaf. The acquire load pairs with the
        // release store of the pointer or, for the first version, of the permutation that the caller loaded.
        unsafe { RecordRef::from_ptr(self.records[slot].load(Ordering::Acquire)) }.expect("node.1")
    }

    #[inline(always)]
    pub(super) fn lower_bound(&self, permutation: Permutation, key: &[u8]) -> (usize, bool) {
        self.node.lower_bound(permutation, key, |slot| self.record(slot).key())
    }

    /// Prefetches the start of the records in slots exposed by a permutation.
    #[inline]
    pub(super) fn prefetch_records(&self, slots: impl Iterator<Item = usize>) {
        for slot in slots {
            let record = self.records[slot].load(Ordering::Relaxed).cast::<u8>();
            prefetch_line(record);
            prefetch_line(record.wrapping_add(64));
        }
    }

    /// Prefetches the first record whose head equals that of `key`.
    #[inline]
    pub(super) fn prefetch_record_of(&self, key: &[u8]) {
        let permutation = self.node.permutation();
        let head = head8(&key[self.node.prefix()..]);
        let slot = (0..permutation.len()).find(|slot| self.node.head(*slot) == head);
        self.prefetch_records(slot.into_iter());
    }

    /// Adds a key. Called only by the applier.
    #[inline]
    pub(super) fn insert(&self, permutation: Permutation, rank: usize, record: RecordRef<'_>) {
        let slot = permutation.len();
        let head = head8(&record.key()[self.node.prefix()..]);
        self.node.heads[slot].store(head, Ordering::Relaxed);
        self.records[slot].store(record.as_ptr().cast_mut(), Ordering::Relaxed);
        // Publishes the head, the pointer and the record.
        let release = fault::ordering(Fault::PermutationNotReleased, Ordering::Release);
        self.node.permutation.store(permutation.with(rank).word(), release);
    }

    /// Replaces the version in a slot by a newer one. Called only by the applier.
    #[inline]
    pub(super) fn replace(&self, slot: usize, record: RecordRef<'_>) {
        self.records[slot].store(record.as_ptr().cast_mut(), Ordering::Release);
    }
}

impl Inner {
    /// Builds an inner node from separators in key order and one more child than separators.
    pub(super) fn new(level: u32, prefix: usize, separators: &[Slot<'_>], children: &[*const Node]) -> Self {
        assert!(children.len() == separators.len() + 1 && level > 0);
        let child = |i| children.get(i).map_or(std::ptr::null_mut(), |c: &*const Node| c.cast_mut());
        Inner {
            node: Node::new(level, prefix, separators),
            children: std::array::from_fn(|i| AtomicPtr::new(child(i))),
            separators: std::array::from_fn(|i| AtomicPtr::new(record_or_null(separators.get(i)))),
        }
    }

    /// Returns the separator in a slot exposed by a permutation.
    #[inline(always)]
    pub(super) fn separator(&self, slot: usize) -> RecordRef<'_> {
        // SAFETY: as for `Leaf::record`; the permutation that the caller loaded published the pointer.
        unsafe { RecordRef::from_ptr(self.separators[slot].load(Ordering::Relaxed)) }.expect("node.1")
    }

    #[inline(always)]
    pub(super) fn lower_bound(&self, permutation: Permutation, key: &[u8]) -> (usize, bool) {
        self.node.lower_bound(permutation, key, |slot| self.separator(slot).key())
    }

    /// Returns the child left of the separator with this rank, or the last child for `rank == len`.
    #[inline(always)]
    pub(super) fn child(&self, permutation: Permutation, rank: usize) -> *const Node {
        self.children[child_index(permutation, rank)].load(Ordering::Acquire)
    }

    /// Adds a separator at a rank and the child that starts at it. Called only by the applier.
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
        // Publishes the head, the separator and the child.
        self.node.permutation.store(permutation.with(rank).word(), Ordering::Release);
    }

    /// Replaces the child left of the separator with this rank. Called only by the applier.
    pub(super) fn replace(&self, permutation: Permutation, rank: usize, child: *const Node) {
        // Publishes the child and the permutation stored before it to readers that see the child (tree.2).
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
            /// Moves the node into the arena. The returned pointer is valid for the memory of the whole node
            /// and is not shared yet.
            pub(super) fn place(self, bump: &mut Bump, arena: &Arena) -> *const Node {
                let ptr = bump.alloc(arena, size_of::<$node>(), NODE_ALIGN).cast::<$node>();
                // SAFETY: the arena returned unshared memory of this size and alignment.
                unsafe { ptr.write(self) };
                ptr.as_ptr().cast::<Node>().cast_const()
            }
        }
    };
}

place_in_arena!(Leaf);
place_in_arena!(Inner);

/// Prefetches the cache lines of a node that a search reads.
#[inline(always)]
pub(super) fn prefetch_node(node: *const Node) {
    for line in 0..size_of::<Leaf>() / 64 {
        prefetch_line(node.cast::<u8>().wrapping_add(64 * line));
    }
}
