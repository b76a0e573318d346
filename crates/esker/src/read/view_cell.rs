//! Publishes the current read view to readers, without locks.
//!
//! ```text
//!   flush, compaction, rotate --update--> ViewCell <--load under an epoch pin-- readers
//! ```
//!
//! view_cell.1. A view loaded under a pin stays valid as long as the pin and the cell, or as long as an `Arc`
//!     of it.
//! view_cell.2. Each replacement is made from the view that it replaces, so concurrent replacements are not
//!     lost.
//! view_cell.3. A replaced view is freed once, and not before every pin that could have found it has ended.
//!
//! Freeing a view may free memtables and whole tables with their blocks, which takes long. It is
//! therefore done by background threads and when closing, not by a reader or writer whose pin collects
//! garbage.
//!
//! The number of readers holding a view is computed from its reference count, at no cost to readers.
#![expect(unsafe_code, reason = "an atomic pointer reclaimed by epochs")]

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use esker_env::Clock;

use super::held::Held;
use super::view::ReadView;
use crate::sync::atomic::{AtomicPtr, Ordering};
use crate::sync::fault::{self, Fault};
use crate::sync::{Mutex, Pin};

/// Holds the current view.
pub struct ViewCell<T = ReadView> {
    /// From `Box::into_raw`, never null. Stored with Release once the view is complete; loaded with Acquire.
    current: AtomicPtr<Shown<T>>,
    /// Held while the next view is made from the current one (view_cell.2).
    replacing: Mutex<Replacing<T>>,
    /// Replaced views that no pin can find.
    retired: Arc<Mutex<Vec<Shown<T>>>>,
    /// Clock for the times of replacements.
    clock: Arc<dyn Clock>,
    /// Makes the next update panic while the view is locked.
    #[cfg(test)]
    pub(crate) bursts: std::sync::atomic::AtomicBool,
    _owns: PhantomData<Arc<T>>,
}

/// A view as published to readers.
struct Shown<T> {
    view: Arc<T>,
    /// Lives as long as this reference to the view, which belongs to no reader.
    _token: Arc<()>,
}

struct Replacing<T> {
    current: Arc<T>,
    held: Held<T>,
}

impl<T> Shown<T> {
    /// Publishes a view and registers it in `held`.
    fn new(view: &Arc<T>, held: &mut Held<T>, now: Duration) -> *mut Self {
        let token = Arc::new(());
        held.show(view, &token, now);
        Box::into_raw(Box::new(Shown { view: view.clone(), _token: token }))
    }
}

impl<T: Send + Sync + 'static> ViewCell<T> {
    /// Creates a cell with the view `view`.
    pub fn new(view: T, clock: Arc<dyn Clock>) -> Self {
        let (view, mut held) = (Arc::new(view), Held::default());
        let current = AtomicPtr::new(Shown::new(&view, &mut held, clock.monotonic()));
        ViewCell {
            current,
            replacing: Mutex::new(Replacing { current: view, held }),
            retired: Arc::new(Mutex::new(Vec::new())),
            clock,
            #[cfg(test)]
            bursts: Default::default(),
            _owns: PhantomData,
        }
    }

    /// Returns the current view, valid while the pin is held.
    #[inline]
    pub(crate) fn load<'g>(&'g self, _pin: &'g impl Pin) -> &'g Arc<T> {
        let pointer = self.current.load(Ordering::Acquire);
        // SAFETY: the pointer is never null (set in `new`, replaced by non-null pointers). Its target is
        // freed only after every pin taken before its replacement has ended (view_cell.3), or with the cell,
        // which is borrowed.
        unsafe { &(*pointer).view }
    }

    /// Returns a counted reference to the current view.
    pub fn get(&self) -> Arc<T> {
        self.load(&crate::sync::pin()).clone()
    }

    /// Replaces the current view by one made from it.
    pub fn update(&self, change: impl FnOnce(&T) -> T) {
        let change = |old: &T| {
            #[cfg(test)]
            assert!(!self.bursts.swap(false, std::sync::atomic::Ordering::Relaxed), "the view bursts");
            change(old)
        };
        self.replace(crate::sync::pin, change).flush();
    }

    /// Like `update`, under a pin of any type, which is returned.
    pub(super) fn replace<P: Pin>(&self, pin: impl FnOnce() -> P, change: impl FnOnce(&T) -> T) -> P {
        // Pinned before locking, because a pin may free garbage and thereby remove files.
        let pin = pin();
        let mut replacing = self.replacing.lock();
        let view = Arc::new(change(&replacing.current));
        let new = Shown::new(&view, &mut replacing.held, self.clock.monotonic());
        let old = self.current.swap(new, fault::ordering(Fault::ViewNotReleased, Ordering::AcqRel));
        let retired = self.retired.clone();
        // SAFETY: the pointer came from `Box::into_raw` and was just removed, so new readers cannot find it;
        // readers that have it hold pins (view_cell.3). `T` is `Send` and borrows nothing.
        unsafe { pin.defer(move || retired.lock().push(*Box::from_raw(old))) };
        replacing.current = view;
        pin
    }

    /// Returns the number of views held by readers such as iterators, and when the oldest of these views was
    /// replaced.
    pub fn held(&self) -> (u64, Option<Duration>) {
        self.replacing.lock().held.count()
    }

    /// Frees replaced views without readers, and with them memtables and files of obsolete tables. Otherwise
    /// they would wait for later replacements.
    pub fn reclaim(&self) {
        // Garbage is freed two epochs after it was created; each flush tries to advance by one.
        Self::flush_garbage(4);
        self.free_retired();
    }

    /// Like `reclaim`, after freeing all other garbage such as evicted blocks. A flush frees only a few
    /// hundred items.
    pub fn reclaim_all(&self) {
        Self::flush_garbage(1000);
        self.free_retired();
    }

    /// Frees the views retired so far.
    pub(crate) fn free_retired(&self) {
        let retired = std::mem::take(&mut *self.retired.lock());
        drop(retired);
    }

    fn flush_garbage(times: u32) {
        for _ in 0..times {
            crate::sync::pin().flush();
        }
    }
}

impl<T> Drop for ViewCell<T> {
    fn drop(&mut self) {
        // Relaxed: `&mut self` means that every other access happened before.
        let last = self.current.load(Ordering::Relaxed);
        // SAFETY: from `Box::into_raw`; `&mut self` excludes readers, because `load` borrows the cell.
        drop(unsafe { Box::from_raw(last) });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use esker_env::ManualClock;

    use super::*;

    /// A view that shows whether it is complete and when it is freed.
    struct View {
        number: u64,
        copies: Vec<u64>,
        alive: Arc<AtomicUsize>,
    }

    impl View {
        fn new(number: u64, alive: &Arc<AtomicUsize>) -> View {
            alive.fetch_add(1, Ordering::Relaxed);
            View { number, copies: vec![number; 20], alive: alive.clone() }
        }

        fn check(&self) -> u64 {
            assert!(
                self.copies.len() == 20 && self.copies.iter().all(|copy| *copy == self.number),
                "view_cell.1"
            );
            self.number
        }
    }

    impl Drop for View {
        fn drop(&mut self) {
            self.check();
            self.copies.fill(u64::MAX);
            assert!(self.alive.fetch_sub(1, Ordering::Relaxed) > 0, "view_cell.3");
        }
    }

    /// Other tests hold pins too, but not forever.
    #[expect(clippy::disallowed_methods, reason = "it measures time")]
    fn reclaimed(cell: &ViewCell<View>, alive: &AtomicUsize, expected: usize) -> bool {
        let start = std::time::Instant::now();
        while alive.load(Ordering::Relaxed) != expected && start.elapsed().as_secs() < 300 {
            cell.reclaim();
            std::thread::yield_now();
        }
        alive.load(Ordering::Relaxed) == expected
    }

    #[test]
    fn view_cell_1_view_cell_2_view_cell_3_readers_and_replacements_at_the_same_time() {
        const WRITERS: u64 = 2;
        let updates = if cfg!(miri) { 30 } else { 5_000 };
        let alive = Arc::new(AtomicUsize::new(0));
        let cell = ViewCell::new(View::new(0, &alive), Arc::new(ManualClock::new()));
        std::thread::scope(|scope| {
            for _ in 0..WRITERS {
                scope.spawn(|| {
                    for _ in 0..updates {
                        cell.update(|old| View::new(old.check() + 1, &alive));
                    }
                });
            }
            for seed in 0..3 {
                let (cell, end) = (&cell, WRITERS * updates);
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(seed);
                    let (mut last, mut kept) = (0, Vec::new());
                    while last < end {
                        let pin = crate::sync::pin();
                        let view = cell.load(&pin);
                        let number = view.check();
                        assert!(number >= last, "view_cell.2: {number} after {last}");
                        last = number;
                        if rng.u8(..) < 20 {
                            kept.push(view.clone());
                        }
                        drop(pin);
                        if kept.len() == 50 {
                            kept.drain(..).for_each(|view: Arc<View>| assert!(view.check() <= last));
                        }
                    }
                    kept.iter().for_each(|view| assert!(view.check() <= last));
                });
            }
        });
        assert_eq!(cell.get().check(), WRITERS * updates, "view_cell.2");
        assert!(
            reclaimed(&cell, &alive, 1),
            "view_cell.3: {} views are alive",
            alive.load(Ordering::Relaxed)
        );
        drop(cell);
        assert_eq!(alive.load(Ordering::Relaxed), 0, "view_cell.3");
    }

    #[test]
    fn view_cell_2_an_update_that_panics_leaves_the_view_as_it_was() {
        let alive = Arc::new(AtomicUsize::new(0));
        let cell = ViewCell::new(View::new(0, &alive), Arc::new(ManualClock::new()));
        let burst = std::panic::AssertUnwindSafe(|| cell.update(|_| panic!("no view")));
        assert!(std::panic::catch_unwind(burst).is_err());
        assert_eq!(cell.get().check(), 0);
        cell.update(|old| View::new(old.check() + 1, &alive));
        assert_eq!(cell.get().check(), 1, "view_cell.2");
        assert!(reclaimed(&cell, &alive, 1), "view_cell.3");
    }

    #[test]
    fn view_cell_3_a_pin_keeps_what_it_found() {
        let alive = Arc::new(AtomicUsize::new(0));
        let cell = ViewCell::new(View::new(0, &alive), Arc::new(ManualClock::new()));
        let pin = crate::sync::pin();
        let found = cell.load(&pin);
        cell.update(|old| View::new(old.check() + 1, &alive));
        for _ in 0..10 {
            cell.reclaim();
        }
        assert_eq!((found.check(), cell.load(&pin).check()), (0, 1), "view_cell.1");
        assert_eq!(alive.load(Ordering::Relaxed), 2);
        drop(pin);
        assert!(reclaimed(&cell, &alive, 1), "view_cell.3");
    }

    #[test]
    fn view_cell_5_running_the_garbage_frees_no_view() {
        let alive = Arc::new(AtomicUsize::new(0));
        let cell = ViewCell::new(View::new(0, &alive), Arc::new(ManualClock::new()));
        cell.update(|old| View::new(old.check() + 1, &alive));
        // Other tests hold pins too, but not forever.
        while cell.retired.lock().is_empty() {
            crate::sync::pin().flush();
            std::thread::yield_now();
        }
        assert_eq!(alive.load(Ordering::Relaxed), 2);
        cell.free_retired();
        assert_eq!(alive.load(Ordering::Relaxed), 1);
    }
}
