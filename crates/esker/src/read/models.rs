//! Loom models of the view cell: readers and replacements, in every interleaving. See `crate::sync`.
#![expect(unsafe_code, reason = "views are shared as the engine shares them")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use esker_env::ManualClock;
use loom::cell::UnsafeCell;

use super::view_cell::ViewCell;
use crate::sync::fault::{Broken, Fault};
use crate::sync::{Mutex, Pin, model};

/// A view whose content loom tracks. It reports readers that are not synchronized with the writer, and
/// readers that can still read while the view is dropped.
struct View {
    content: UnsafeCell<u32>,
    dropped: Arc<AtomicUsize>,
}

// SAFETY: `content` is written before the view is shared, and when it is dropped.
unsafe impl Sync for View {}

impl View {
    fn new(content: u32, dropped: &Arc<AtomicUsize>) -> View {
        let view = View { content: UnsafeCell::new(0), dropped: dropped.clone() };
        // SAFETY: the view is not shared yet.
        view.content.with_mut(|p| unsafe { *p = content });
        view
    }

    fn next(&self) -> View {
        View::new(self.read() + 1, &self.dropped)
    }

    fn read(&self) -> u32 {
        // SAFETY: loom checks that no write races with it.
        self.content.with(|p| unsafe { *p })
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // A failing model drops everything at arbitrary points.
        if std::thread::panicking() {
            return;
        }
        // SAFETY: view_cell.1 and view_cell.3: there are no readers left, which loom checks.
        self.content.with_mut(|p| unsafe { *p = u32::MAX });
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counted pins: deferred work runs when the last pin ends.
#[derive(Clone, Default)]
struct Epoch(Arc<Mutex<Pins>>);

#[derive(Default)]
struct Pins {
    open: usize,
    garbage: Vec<Work>,
}

struct Work(Box<dyn FnOnce()>);

// SAFETY: the caller of `defer` allows any thread.
unsafe impl Send for Work {}

struct Pinned(Epoch);

impl Epoch {
    fn pin(&self) -> Pinned {
        self.0.lock().open += 1;
        Pinned(self.clone())
    }
}

// SAFETY: deferred work runs when no pin is left.
unsafe impl Pin for Pinned {
    unsafe fn defer(&self, work: impl FnOnce()) {
        let work: Box<dyn FnOnce() + '_> = Box::new(work);
        // SAFETY: the caller of `defer` allows the work to outlive what it borrows.
        let work =
            unsafe { std::mem::transmute::<Box<dyn FnOnce() + '_>, Box<dyn FnOnce() + 'static>>(work) };
        self.0.0.lock().garbage.push(Work(work));
    }

    fn flush(&self) {}
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let mut pins = self.0.0.lock();
        pins.open -= 1;
        let garbage = if pins.open == 0 { std::mem::take(&mut pins.garbage) } else { Vec::new() };
        drop(pins);
        garbage.into_iter().for_each(|work| (work.0)());
    }
}

struct World {
    cell: ViewCell<View>,
    epoch: Epoch,
    dropped: Arc<AtomicUsize>,
}

impl World {
    fn new() -> Arc<World> {
        let dropped = Arc::default();
        Arc::new(World {
            cell: ViewCell::new(View::new(1, &dropped), Arc::new(ManualClock::new())),
            epoch: Epoch::default(),
            dropped,
        })
    }

    fn update(&self) {
        drop(self.cell.replace(|| self.epoch.pin(), View::next));
    }

    /// Returns the current content. All views are freed with the cell, each once.
    fn end(self: Arc<World>) -> u32 {
        let pin = self.epoch.pin();
        let content = self.cell.load(&pin).read();
        drop(pin);
        self.cell.free_retired();
        let dropped = self.dropped.clone();
        assert_eq!(dropped.load(Ordering::Relaxed), content as usize - 1, "view_cell.3");
        drop(Arc::into_inner(self).expect("all threads have ended"));
        assert_eq!(dropped.load(Ordering::Relaxed), content as usize, "view_cell.3");
        content
    }
}

#[test]
fn view_cell_1_view_cell_3_a_loaded_view_is_whole_and_is_freed_once() {
    model(|| {
        let world = World::new();
        let writer = {
            let world = world.clone();
            loom::thread::spawn(move || {
                world.update();
                world.update();
            })
        };
        let pin = world.epoch.pin();
        let (mut found, mut last) = (Vec::new(), 0);
        // Twice, because loom tries no switch before the first access of a thread to an object.
        for _ in 0..2 {
            let view = world.cell.load(&pin);
            let seen = view.read();
            assert!(seen >= last && (1..=3).contains(&seen), "view_cell.1: {seen} after {last}");
            last = seen;
            found.push((view, seen));
        }
        assert!(found.iter().all(|(view, seen)| view.read() == *seen), "view_cell.1");
        drop(pin);
        writer.join().unwrap();
        assert_eq!(world.end(), 3);
    });
}

#[test]
fn view_cell_2_of_two_replacements_none_is_lost() {
    model(|| {
        let world = World::new();
        let other = {
            let world = world.clone();
            loom::thread::spawn(move || world.update())
        };
        world.update();
        other.join().unwrap();
        assert_eq!(world.end(), 3, "view_cell.2");
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_ce1_a_view_without_release_is_found() {
    let _broken = Broken::new(Fault::ViewNotReleased);
    view_cell_1_view_cell_3_a_loaded_view_is_whole_and_is_freed_once();
}
