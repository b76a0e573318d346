//! A slot: the pointer through which a block is found while it is in memory.
//!
//! ```text
//!   empty --insert--> block, accessed --clock passes--> block --clock passes--> empty
//!                         ^---------------hit-------------'
//! ```
//!
//! slot.1. A pointer in a slot came from `Arc::into_raw` and owns one count of that Arc.
//! slot.2. A pointer is taken out of a slot by one thread (swap), which gives up its count only after every epoch pinned
//!      at that time has ended (`defer`), unless there are no readers any more (`take`). So a block loaded under a
//!      pin lives, with a count of at least one, until the unpin.
//! slot.3. The lowest bit of the pointer is the access bit of the clock; it says nothing about the block. It is written
//!      only when clear, so that readers of hot blocks share the cache line without writing to it.
//! slot.4. The second pointer is a hint, where the block's bytes are: it is prefetched, never followed, so it may be stale.
//!      Block and bytes are then fetched side by side instead of one after the other.
#![expect(unsafe_code, reason = "reference counts are held by atomic pointers")]

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::sync::Pin;
use crate::sync::atomic::{AtomicPtr, Ordering};
use crate::sync::fault::{self, Fault};
use crate::types::prefetch::prefetch_line;

const ACCESSED: usize = 1;

/// Bytes fetched ahead: the heads of an 8 KiB block of middle-sized entries.
const PREFETCHED_BYTES: usize = 256;
const LINE_BYTES: usize = 64;

/// A place for one block.
pub(super) struct Slot<T> {
    pointer: AtomicPtr<T>,
    hint: AtomicPtr<u8>,
    _owns: PhantomData<Arc<T>>,
}

/// A block under the protection of a pin.
pub(crate) struct Pinned<'g, T> {
    pointer: NonNull<T>,
    _pin: PhantomData<&'g T>,
}

impl<T> Clone for Pinned<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Pinned<'_, T> {}

impl<T> Deref for Pinned<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: slot.2, the pin lasts for 'g.
        unsafe { self.pointer.as_ref() }
    }
}

impl<T> Pinned<'_, T> {
    /// The block for as long as the caller wants it.
    #[inline(always)]
    pub(crate) fn to_arc(self) -> Arc<T> {
        // SAFETY: the pointer came from Arc::into_raw (slot.1) and the count is at least one (slot.2); the count added here
        // belongs to the new Arc.
        unsafe {
            Arc::increment_strong_count(self.pointer.as_ptr());
            Arc::from_raw(self.pointer.as_ptr())
        }
    }
}

/// Asks for the first lines behind the pointer, which may be anything (slot.4).
#[inline(always)]
fn prefetch(bytes: *const u8) {
    for at in (0..PREFETCHED_BYTES).step_by(LINE_BYTES) {
        prefetch_line(bytes.wrapping_add(at));
    }
}

fn untagged<T>(tagged: *mut T) -> *mut T {
    tagged.map_addr(|address| address & !ACCESSED)
}

impl<T: Send + Sync + 'static> Slot<T> {
    const ALIGNED: () = assert!(align_of::<T>() > ACCESSED, "slot.3: the lowest bit of a pointer is free");

    pub(super) fn empty() -> Self {
        Slot {
            pointer: AtomicPtr::new(ptr::null_mut()),
            hint: AtomicPtr::new(ptr::null_mut()),
            _owns: PhantomData,
        }
    }

    /// The block, and a note that it was used. Acquire pairs with the Release of `insert`: the block's content is
    /// seen whole.
    #[inline(always)]
    pub(super) fn load<'g>(&self, _pin: &'g impl Pin) -> Option<Pinned<'g, T>> {
        prefetch(self.hint.load(Ordering::Relaxed));
        let tagged = self.pointer.load(Ordering::Acquire);
        let pointer = NonNull::new(untagged(tagged))?;
        if tagged.addr() & ACCESSED == 0 {
            let marked = tagged.map_addr(|address| address | ACCESSED);
            // A failure means that the clock or another reader was here: either is fine.
            let _ = self.pointer.compare_exchange(tagged, marked, Ordering::Relaxed, Ordering::Relaxed);
        }
        Some(Pinned { pointer, _pin: PhantomData })
    }

    /// The block without a note.
    pub(super) fn peek<'g>(&self, _pin: &'g impl Pin) -> Option<Pinned<'g, T>> {
        let pointer = NonNull::new(untagged(self.pointer.load(Ordering::Acquire)))?;
        Some(Pinned { pointer, _pin: PhantomData })
    }

    /// Puts the block, whose bytes start at `hint`, into an empty slot; false if there is one already.
    pub(super) fn insert(&self, block: Arc<T>, hint: *const u8, accessed: bool) -> bool {
        let () = Self::ALIGNED;
        self.hint.store(hint.cast_mut(), Ordering::Relaxed);
        let pointer = Arc::into_raw(block).cast_mut();
        let tagged = if accessed { pointer.map_addr(|address| address | ACCESSED) } else { pointer };
        let inserted = self
            .pointer
            .compare_exchange(
                ptr::null_mut(),
                tagged,
                fault::ordering(Fault::BlockNotReleased, Ordering::AcqRel),
                Ordering::Relaxed,
            )
            .is_ok();
        if !inserted {
            // SAFETY: from Arc::into_raw above, and no slot took it.
            drop(unsafe { Arc::from_raw(pointer) });
        }
        inserted
    }

    /// The clock's hand passes: an accessed block loses its mark, another one loses its place. Returns the evicted
    /// block's `size`.
    pub(super) fn tick(&self, pin: &impl Pin, size: impl FnOnce(&T) -> u64) -> Option<u64> {
        let tagged = self.pointer.load(Ordering::Acquire);
        if tagged.is_null() {
            return None;
        }
        let next = if tagged.addr() & ACCESSED != 0 { untagged(tagged) } else { ptr::null_mut() };
        let won = self.pointer.compare_exchange(tagged, next, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if !won || !next.is_null() {
            return None;
        }
        // SAFETY: the exchange made this thread the one that took the pointer out (slot.2); it holds the count still.
        let bytes = size(unsafe { &*tagged });
        // SAFETY: slot.1 and slot.2: the count is given up once, after all present pins; T is Send.
        unsafe { pin.defer(move || drop(Arc::from_raw(tagged.cast_const()))) };
        Some(bytes)
    }
}

impl<T> Slot<T> {
    /// Takes the block out for good.
    ///
    /// # Safety
    /// No [`Pinned`] of this slot is left, and none is made any more. Hands may still pass.
    pub(super) unsafe fn take(&self) -> Option<Arc<T>> {
        let pointer = untagged(self.pointer.swap(ptr::null_mut(), Ordering::AcqRel));
        // SAFETY: slot.1, and the swap made this thread the one that took it out (slot.2). There are no readers to wait for, and a hand looks at
        // a block only after it has taken it out itself.
        NonNull::new(pointer).map(|pointer| unsafe { Arc::from_raw(pointer.as_ptr().cast_const()) })
    }
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        // A load would do, but for loom: it does not see the counts by which a directory goes from one thread to another, and may let a
        // load return what the slot held before it was emptied.
        // SAFETY: &mut self means that no reader holds this slot. A `Pinned` cannot outlive the slot's owner:
        // `CachedBlocks::load` ties it to a borrow of the owner too.
        drop(unsafe { self.take() });
    }
}
