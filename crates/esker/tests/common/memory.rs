//! Measures how much memory a piece of work needs at most, and how much it allocates: a global allocator that
//! counts for each thread, and an observer of buffers from other sources.
#![allow(dead_code, reason = "each test binary uses a part")]
#![expect(unsafe_code, reason = "a global allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    /// Bytes that this thread has allocated and not freed since `peak_of` began, and their peak.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
    /// Bytes that this thread has ever allocated.
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

/// Runs `work` and returns the most bytes held at once.
pub fn peak_of(work: impl FnOnce()) -> usize {
    esker_env::observe_page_bufs(count);
    LIVE.set(0);
    PEAK.set(0);
    work();
    PEAK.get() as usize
}

/// Runs `work` and returns the bytes allocated, freed or not. Measures what it copied.
pub fn allocated_by(work: impl FnOnce()) -> usize {
    esker_env::observe_page_bufs(count);
    let before = ALLOCATED.get();
    work();
    ALLOCATED.get() - before
}

fn count(bytes: isize) {
    ALLOCATED.set(ALLOCATED.get() + bytes.max(0) as usize);
    LIVE.set(LIVE.get() + bytes);
    PEAK.set(PEAK.get().max(LIVE.get()));
}

struct Counting;

// SAFETY: all calls go to the system's allocator unchanged; counting allocates nothing (the cells need no
// initialisation and no destructor).
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size as isize - layout.size() as isize);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}
