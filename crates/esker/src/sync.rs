//! Atomics, locks and pins of the parts that are shared between threads, or their models.
//!
//! ```text
//!   normal build     std atomics, parking_lot locks
//!   --cfg loom       loom's: a test in a `models` module runs once for every interleaving, and for every
//!                    value that a weak memory order lets a load return
//! ```
//!
//! Only what has models takes its atomics from here. With `--cfg loom` nothing but the models can run.
//! Command: `cargo xtask sanitize loom`.

pub(crate) mod fault;
mod pin;

pub use self::pin::settle_garbage;
pub(crate) use self::pin::{Pin, pin};
#[cfg(not(loom))]
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic;

#[cfg(loom)]
pub(crate) use self::modelled::{Condvar, Mutex, MutexGuard};
#[cfg(loom)]
pub(crate) use loom::sync::atomic;

#[cfg(loom)]
mod modelled {
    //! loom's locks with the signatures of parking_lot's.

    use std::ops::{Deref, DerefMut};

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    /// Empty only inside [`Condvar::wait`].
    pub(crate) struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

    #[derive(Debug, Default)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    const HELD: &str = "a guard holds its lock";
    const SOUND: &str = "no thread of a model panics while it holds a lock and lets others go on";

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().expect(SOUND)))
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok().map(|guard| MutexGuard(Some(guard)))
        }

        pub(crate) fn get_mut(&mut self) -> &mut T {
            self.0.get_mut().expect(SOUND)
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.0.as_ref().expect(HELD)
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().expect(HELD)
        }
    }

    impl Condvar {
        pub(crate) fn new() -> Self {
            Condvar(loom::sync::Condvar::new())
        }

        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let held = guard.0.take().expect(HELD);
            guard.0 = Some(self.0.wait(held).expect(SOUND));
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }
    }
}

/// Runs a model in all interleavings with at most `LOOM_MAX_PREEMPTIONS` (2 if not set) switches from a
/// thread that could have gone on. Bugs that need more are rare (Musuvathi and Qadeer, CHESS, 2007).
#[cfg(all(test, loom))]
pub(crate) fn model(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.max_branches = 100_000;
    builder.check(body);
}
