//! Where readers find the current read view without taking a lock.
//!
//! ```text
//!   flush, merge, rotate --update--> ViewCell <--load under an epoch pin-- readers
//! ```
//!
//! CE1. A view loaded under a guard stays valid for as long as the guard is held, or an `Arc` of it.
#![expect(unsafe_code, reason = "an atomic pointer reclaimed by epochs")]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_epoch::{Atomic, Guard, Owned};
use parking_lot::Mutex;

use super::view::ReadView;

/// The current view.
pub struct ViewCell {
    /// Ordering: replaced with Release after the view is complete; loaded with Acquire.
    current: Atomic<Arc<ReadView>>,
    /// Held while a new view is made of the old one.
    replacing: Mutex<()>,
}

impl ViewCell {
    /// Starts with `view`.
    pub fn new(view: ReadView) -> Self {
        ViewCell { current: Atomic::new(Arc::new(view)), replacing: Mutex::new(()) }
    }

    /// The current view, for as long as the guard is held.
    #[inline]
    pub fn load<'g>(&self, guard: &'g Guard) -> &'g Arc<ReadView> {
        let shared = self.current.load(Ordering::Acquire, guard);
        // SAFETY: the pointer is never null (set in `new`, replaced by non-null ones), and what it points to is
        // freed only after every guard taken before its replacement is dropped (CE1).
        unsafe { shared.deref() }
    }

    /// The current view, kept alive by the caller.
    pub fn get(&self) -> Arc<ReadView> {
        self.load(&crossbeam_epoch::pin()).clone()
    }

    /// Makes a new view of the current one and puts it in its place.
    pub fn update(&self, change: impl FnOnce(&ReadView) -> ReadView) {
        let _turn = self.replacing.lock();
        let view = change(&self.get());
        let guard = crossbeam_epoch::pin();
        let old = self.current.swap(Owned::new(Arc::new(view)), Ordering::AcqRel, &guard);
        // SAFETY: `old` was just unlinked, so no new reader can find it; readers that have it hold guards.
        unsafe { guard.defer_destroy(old) };
        guard.flush();
    }

    /// Frees replaced views that no reader uses any more, and with them memtables and the files of obsolete tables.
    /// Without it they would wait for later replacements.
    pub fn reclaim(&self) {
        // Garbage is freed two epochs after it was made; each flush tries to advance by one.
        for _ in 0..4 {
            crossbeam_epoch::pin().flush();
        }
    }
}

impl Drop for ViewCell {
    fn drop(&mut self) {
        let last = std::mem::replace(&mut self.current, Atomic::null());
        // SAFETY: &mut self: no reader can be inside, and the pointer is not null.
        drop(unsafe { last.into_owned() });
    }
}
