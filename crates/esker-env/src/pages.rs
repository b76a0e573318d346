//! Buffers in whole pages that the operating system gets back when they are freed.
//!
//! ```text
//!   PageBuf::new(len) --up to 2 KiB--> the allocator
//!                     --up to 4 MiB--> a slot of the pool: warm or cold (pages returned, address kept)
//!                     --larger-------> a mapping of its own
//! ```
//!
//! General allocators retain most memory when one thread allocates and another frees buffers of many sizes.
//! Cached blocks and memtables are such buffers, and nearly all of a database's memory. Without this pool,
//! a process with a budget of 256 MiB used up to 1,200 MiB (`cargo run --release -p esker-bench
//! --no-default-features --example memory`).
//!
//! env_pages.1. A slot belongs to one `PageBuf`, or is in one free list, or is moving from one to the other.
//! - Free warm slots take at most an eighth of the bytes in use, within [`WARM_BYTES_MIN`] and
//!   [`WARM_BYTES_MAX`], or the recent peak if that is larger ([`age_page_bufs`]). Locked memory is an
//!   exception, because the system refuses to take it back.
//!
//! Warm slots pay off because a fresh page costs more than a lock: the system zeroes it, and interrupts all
//! threads when it takes it back. The address space of the pool is never returned; it grows to the peak use
//! of each size class. A new buffer contains zeros or bytes of an earlier owner.
//!
//! With `--cfg esker_plain_pages` (for sanitizers), on systems other than Linux, and for pages other than 4
//! KiB, all memory comes from the allocator.
#![expect(unsafe_code, reason = "memory by the page")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

/// The unit of everything here, in bytes.
const PAGE_BYTES: usize = 4096;
/// Smaller buffers come from the allocator.
const HEAP_BYTES_MAX: usize = PAGE_BYTES / 2;
/// Larger buffers get their own mapping.
const POOLED_BYTES_MAX: usize = 4 << 20;
/// Limits on the bytes of warm free slots.
const WARM_BYTES_MIN: usize = 4 << 20;
const WARM_BYTES_MAX: usize = 256 << 20;
const WARM_PART: usize = 8;
/// The peak sinks by this part of the difference each time.
const PEAK_PART: usize = 8;
const AGE_AFTER: Duration = Duration::from_millis(200);
/// Address space is reserved for this many bytes of slots at a time.
const REGION_BYTES: usize = 4 << 20;
/// Buffers up to this size are mostly written completely at once, so one call populates their pages.
const FILLED_BYTES_MAX: usize = 256 << 10;
/// A call populates at most this many bytes of further slots, and at most this part of the bytes in use.
const AHEAD_BYTES_MAX: usize = 64 << 10;
const AHEAD_PART: usize = 16;
/// Smaller slots would share huge pages.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The sizes of slots in pages: each size up to 16, then four per doubling. Pages of a slot beyond its buffer
/// are not touched.
const CLASSES: [usize; 40] = {
    let mut classes = [0; 40];
    let mut class = 0;
    while class < EXACT_CLASSES {
        classes[class] = class + 1;
        class += 1;
    }
    while class < classes.len() {
        let (doubling, quarter) = ((class - EXACT_CLASSES) / 4, (class - EXACT_CLASSES) % 4 + 1);
        classes[class] = (16 << doubling) + quarter * (4 << doubling);
        class += 1;
    }
    classes
};

/// Number of classes whose slots contain no unused page.
const EXACT_CLASSES: usize = 16;

const _: () = assert!(CLASSES[39] * PAGE_BYTES == POOLED_BYTES_MAX && POOLED_BYTES_MAX <= REGION_BYTES);

/// A byte buffer of fixed length with arbitrary initial content.
pub struct PageBuf {
    start: NonNull<u8>,
    /// Also determines the origin of the memory.
    len: usize,
}

// SAFETY: the buffer owns its memory, like a Box<[u8]>.
unsafe impl Send for PageBuf {}
// SAFETY: shared access only reads.
unsafe impl Sync for PageBuf {}

/// The origin of a buffer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// An empty buffer has no memory.
    Nowhere,
    Heap,
    /// A slot of this class.
    Pool(usize),
    /// A mapping of this many bytes.
    Mapping(usize),
}

impl Origin {
    fn of(len: usize) -> Self {
        if len == 0 {
            return Origin::Nowhere;
        }
        if len <= HEAP_BYTES_MAX || !sys::has_pages() {
            return Origin::Heap;
        }
        let pages = len.div_ceil(PAGE_BYTES);
        if len > POOLED_BYTES_MAX {
            return Origin::Mapping(pages * PAGE_BYTES);
        }
        Origin::Pool(CLASSES.partition_point(|class| *class < pages))
    }
}

fn heap_layout(len: usize) -> Layout {
    Layout::from_size_align(len, PageBuf::ALIGN).expect("a buffer fits the address space")
}

impl PageBuf {
    /// The alignment of a buffer's start.
    pub const ALIGN: usize = 64;

    /// Allocates a buffer.
    ///
    /// # Panics
    /// Aborts the process, like a failing allocation, if the system is out of memory.
    pub fn new(len: usize) -> Self {
        let origin = Origin::of(len);
        observe(origin, len as isize);
        let start = match origin {
            Origin::Nowhere => ptr::without_provenance_mut(Self::ALIGN),
            Origin::Heap => {
                let layout = heap_layout(len);
                // SAFETY: the layout's size is not zero.
                unsafe { alloc_zeroed(layout) }
            }
            Origin::Pool(class) => match take_slot(class) {
                Some(Taken::Warm(slot)) => slot.0.as_ptr(),
                Some(Taken::Cold(slots)) => warmed(class, slots, len).0.as_ptr(),
                None => ptr::null_mut(),
            },
            Origin::Mapping(bytes) => sys::map(bytes, true),
        };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(heap_layout(len)) };
        PageBuf { start, len }
    }

    /// Allocates a buffer with a copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buffer = Self::new(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }

    /// Returns the bytes of memory that it takes.
    pub fn size_bytes(&self) -> usize {
        match Origin::of(self.len) {
            Origin::Nowhere | Origin::Heap => self.len,
            // The slot's previous owner may have populated more pages than this buffer uses.
            Origin::Pool(class) if class >= EXACT_CLASSES => slot_bytes(class),
            Origin::Pool(_) | Origin::Mapping(_) => self.len.next_multiple_of(PAGE_BYTES),
        }
    }

    /// Shortens the buffer to `len` bytes. Returns false, without effect, if a buffer of that length would
    /// take less memory.
    pub fn cut(&mut self, len: usize) -> bool {
        let origin = Origin::of(self.len);
        let fits = len <= self.len && Origin::of(len) == origin && origin != Origin::Heap;
        if fits {
            observe(origin, len as isize - self.len as isize);
            self.len = len;
        }
        fits
    }

    /// Returns the start. Access through it is allowed where access through the buffer is.
    pub fn as_non_null(&mut self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for PageBuf {
    fn drop(&mut self) {
        let origin = Origin::of(self.len);
        observe(origin, -(self.len as isize));
        match origin {
            Origin::Nowhere => {}
            // SAFETY: allocated in `new` with this layout, since `cut` does not change such a buffer.
            Origin::Heap => unsafe { dealloc(self.start.as_ptr(), heap_layout(self.len)) },
            Origin::Pool(class) => give_back(class, Slot(self.start)),
            // SAFETY: mapped by `new` with this length, since `cut` keeps the origin; there is no other
            // owner.
            Origin::Mapping(bytes) => unsafe { sys::unmap(self.start, bytes) },
        }
    }
}

impl Deref for PageBuf {
    type Target = [u8];
    #[inline(always)]
    fn deref(&self) -> &[u8] {
        // SAFETY: start is valid for len initialised bytes while self lives (env_pages.1).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for PageBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and &mut self makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Default for PageBuf {
    /// No bytes.
    fn default() -> Self {
        Self::new(0)
    }
}

impl std::fmt::Debug for PageBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PageBuf({} bytes)", self.len)
    }
}

/// Memory of a size class that no buffer owns.
struct Slot(NonNull<u8>);

// SAFETY: memory without ties to a thread.
unsafe impl Send for Slot {}

/// The free slots.
struct Pool {
    warm: [Vec<Slot>; CLASSES.len()],
    cold: [Vec<Slot>; CLASSES.len()],
    /// Bytes of all warm slots, and of all slots in buffers.
    warm_bytes: usize,
    used_bytes: usize,
    /// The recent peak of used bytes, and when it was last aged.
    peak_bytes: usize,
    aged_at: Duration,
}

static POOL: Mutex<Pool> = Mutex::new(Pool::new());

fn slot_bytes(class: usize) -> usize {
    CLASSES[class] * PAGE_BYTES
}

impl Pool {
    const fn new() -> Self {
        Pool {
            warm: [const { Vec::new() }; CLASSES.len()],
            cold: [const { Vec::new() }; CLASSES.len()],
            warm_bytes: 0,
            used_bytes: 0,
            peak_bytes: 0,
            aged_at: Duration::ZERO,
        }
    }

    fn put_warm(&mut self, class: usize, slot: Slot) {
        self.warm_bytes += slot_bytes(class);
        self.warm[class].push(slot);
    }

    fn take_warm(&mut self, class: usize) -> Option<Slot> {
        let slot = self.warm[class].pop()?;
        self.warm_bytes -= slot_bytes(class);
        Some(slot)
    }

    /// Removes a warm slot whose pages should be returned, from the class with the most warm
    /// bytes.
    fn take_surplus(&mut self) -> Option<(usize, Slot)> {
        let limit = (self.used_bytes / WARM_PART).clamp(WARM_BYTES_MIN, WARM_BYTES_MAX);
        let limit = limit.max(self.peak_bytes.saturating_sub(self.used_bytes));
        if self.warm_bytes <= limit {
            return None;
        }
        let class = (0..CLASSES.len()).max_by_key(|class| self.warm[*class].len() * slot_bytes(*class))?;
        Some((class, self.take_warm(class)?))
    }

    fn note_used(&mut self, bytes: usize) {
        self.used_bytes += bytes;
        self.peak_bytes = self.peak_bytes.max(self.used_bytes);
    }

    /// Lowers the peak towards the current use.
    fn age(&mut self, now: Duration) {
        if now.abs_diff(self.aged_at) >= AGE_AFTER {
            self.aged_at = now;
            self.peak_bytes -= (self.peak_bytes - self.used_bytes).div_ceil(PEAK_PART);
        }
    }
}

/// What a new buffer gets.
enum Taken {
    Warm(Slot),
    /// A slot for the buffer, and the slots directly behind it.
    Cold(Vec<Slot>),
}

/// Takes a slot. `None` if the system is out of memory.
fn take_slot(class: usize) -> Option<Taken> {
    let bytes = slot_bytes(class);
    let mut pool = POOL.lock();
    let ahead_bytes = (pool.used_bytes / AHEAD_PART).min(AHEAD_BYTES_MAX);
    pool.note_used(bytes);
    if let Some(slot) = pool.take_warm(class) {
        return Some(Taken::Warm(slot));
    }
    let cold = &mut pool.cold[class];
    if cold.is_empty() {
        let slots = REGION_BYTES / bytes;
        let region = NonNull::new(sys::map(slots * bytes, bytes >= HUGE_PAGE_BYTES))?;
        // SAFETY: the region contains this many slots.
        cold.extend((0..slots).rev().map(|n| Slot(unsafe { region.add(n * bytes) })));
    }
    let adjacent = |slots: &[Slot]| slots[1].0.addr().get() + bytes == slots[0].0.addr().get();
    let run = 1 + cold.windows(2).rev().take(ahead_bytes / bytes).take_while(|slots| adjacent(slots)).count();
    Some(Taken::Cold(cold.drain(cold.len() - run..).rev().collect()))
}

/// Populates cold slots by one call. Returns the first one, for a buffer of `len` bytes, and keeps the others
/// for later buffers.
fn warmed(class: usize, mut slots: Vec<Slot>, len: usize) -> Slot {
    let further = slots.split_off(1);
    let slot = slots.pop().expect("a slot for the buffer");
    if len <= FILLED_BYTES_MAX {
        let bytes = match further.len() {
            0 => len.next_multiple_of(PAGE_BYTES),
            _ => (1 + further.len()) * slot_bytes(class),
        };
        // SAFETY: the slot and those directly behind it belong to the caller.
        unsafe { sys::fill(slot.0, bytes) };
    }
    if !further.is_empty() {
        let mut pool = POOL.lock();
        further.into_iter().rev().for_each(|slot| pool.put_warm(class, slot));
        trim(pool);
    }
    slot
}

fn give_back(class: usize, slot: Slot) {
    let mut pool = POOL.lock();
    pool.used_bytes -= slot_bytes(class);
    pool.put_warm(class, slot);
    trim(pool);
}

/// Ages the recent peak and returns surplus pages to the system. A background thread calls it
/// periodically with a monotonic time.
pub fn age_page_bufs(now: Duration) {
    let mut pool = POOL.lock();
    pool.age(now);
    trim(pool);
}

/// Resets the recent peak and returns surplus pages to the system.
pub fn settle_page_bufs() {
    let mut pool = POOL.lock();
    pool.peak_bytes = pool.used_bytes;
    trim(pool);
}

fn trim(mut pool: MutexGuard<'static, Pool>) {
    while let Some((class, slot)) = pool.take_surplus() {
        drop(pool);
        // SAFETY: no buffer owns the slot (env_pages.1), so its content may be discarded.
        unsafe { sys::forget(slot.0, slot_bytes(class)) };
        pool = POOL.lock();
        pool.cold[class].push(slot);
    }
}

/// Called with the size of each buffer that is not from the allocator, and with the negated size when it is
/// freed.
type Observer = fn(isize);

/// A function pointer, or null. Relaxed: tests set it before they begin.
static OBSERVER: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Reports buffers to tests that count allocated memory.
#[doc(hidden)]
pub fn observe_page_bufs(observer: Observer) {
    OBSERVER.store(observer as *mut (), Ordering::Relaxed);
}

#[inline]
fn observe(origin: Origin, bytes: isize) {
    if !matches!(origin, Origin::Pool(_) | Origin::Mapping(_)) {
        return;
    }
    let observer = OBSERVER.load(Ordering::Relaxed);
    if !observer.is_null() {
        // SAFETY: only `observe_page_bufs` writes to it, and function pointers can be converted to data
        // pointers and back.
        unsafe { std::mem::transmute::<*mut (), Observer>(observer)(bytes) };
    }
}

#[cfg(all(target_os = "linux", not(miri), not(esker_plain_pages)))]
mod sys {
    //! Pages of the operating system.

    use super::{NonNull, PAGE_BYTES, ptr};
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    pub(super) fn has_pages() -> bool {
        cfg!(target_arch = "x86_64") || rustix::param::page_size() == PAGE_BYTES
    }

    /// Maps pages. Returns null if the system is out of memory.
    pub(super) fn map(bytes: usize, huge_pages: bool) -> *mut u8 {
        // SAFETY: a new mapping at an address of the system's choice overlaps no other memory.
        let mapped = unsafe {
            mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        let start = mapped.unwrap_or(ptr::null_mut());
        if !start.is_null() {
            // Large slots hold memtables, whose tree walks need fewer TLB entries with huge pages. For small
            // slots, automatic huge pages would repopulate pages that were returned.
            let advice = if huge_pages { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
            // SAFETY: advice on a new mapping. A system without huge pages refuses it, which is harmless.
            let _ = unsafe { madvise(start, bytes, advice) };
        }
        start.cast()
    }

    /// # Safety
    /// The range was mapped by `map`, and nothing uses it any more.
    pub(super) unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's promise. A failure leaks memory, which cannot be helped here.
        let _ = unsafe { munmap(start.as_ptr().cast(), bytes) };
    }

    /// Populates all pages by one call, which costs less than a fault for each.
    ///
    /// # Safety
    /// The range is part of a mapping of `map` and belongs to the caller.
    pub(super) unsafe fn fill(start: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's promise; existing content stays. A system without this advice refuses it and
        // populates pages on access.
        let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxPopulateWrite) };
    }

    /// Returns the pages but keeps their addresses; they read as zeros afterwards.
    ///
    /// # Safety
    /// The range is part of a mapping of `map`, and its content is no longer needed.
    pub(super) unsafe fn forget(start: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's promise. A failure leaves the pages populated.
        let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxDontNeed) };
    }
}

#[cfg(not(all(target_os = "linux", not(miri), not(esker_plain_pages))))]
mod sys {
    //! Without pages: all memory comes from the allocator.

    use super::NonNull;

    pub(super) fn has_pages() -> bool {
        false
    }

    pub(super) fn map(_bytes: usize, _huge_pages: bool) -> *mut u8 {
        unreachable!("there are no pages")
    }

    /// # Safety
    /// Never called.
    pub(super) unsafe fn unmap(_start: NonNull<u8>, _bytes: usize) {}

    /// # Safety
    /// Never called.
    pub(super) unsafe fn fill(_start: NonNull<u8>, _bytes: usize) {}

    /// # Safety
    /// Never called.
    pub(super) unsafe fn forget(_start: NonNull<u8>, _bytes: usize) {}
}

#[cfg(test)]
mod tests;
