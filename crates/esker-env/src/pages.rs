//! Memory in whole pages, which the operating system has back as soon as it is given up.
//!
//! ```text
//!   PageBuf::new(len) --up to 2 KiB--> the allocator
//!                     --up to 4 MiB--> a slot of the pool: warm (its pages are there) or cold (given back, its address is kept)
//!                     --more---------> a mapping of its own
//! ```
//!
//! What is made by one thread and freed by another, in many sizes, is what general allocators keep most of: memory that was freed stays in
//! the arena of the thread that made it. Cached blocks and memtables are just that, and they are nearly all of a database's memory: with a
//! budget of 256 MiB a process took up to 1,200 MiB (`cargo run --release -p esker --example memory`).
//!
//! env_pages.1. A slot belongs to one `PageBuf`, or it is in one free list, or on its way to the cold one.
//! env_pages.2. Free slots whose pages are there take at most an eighth of what is in use, within [`WARM_BYTES_MIN`] and [`WARM_BYTES_MAX`], or
//!      what was in use in the last seconds, if that is more ([`age_page_bufs`]). Exception: the system refuses locked memory. The next memtable or
//!      block comes when the last one goes. A fresh page costs more than a lock: the system zeroes it, and interrupts all threads of the process
//!      when it takes one back.
//! env_pages.3. The bytes of a new buffer are zeros or those of an earlier owner: whoever takes it writes before reading.
//! env_pages.4. Address space of the pool is never given back: it grows to the most that was ever in use, for each class of sizes.
//!
//! With `--cfg esker_plain_pages`, which sanitizers want, on systems other than Linux, and where pages are not of 4 KiB, all comes from the allocator.
#![expect(unsafe_code, reason = "memory by the page")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

/// The unit of everything here, in bytes.
const PAGE_BYTES: usize = 4096;
/// Up to half a page is left to the allocator.
const HEAP_BYTES_MAX: usize = PAGE_BYTES / 2;
/// More gets a mapping of its own.
const POOLED_BYTES_MAX: usize = 4 << 20;
/// Bytes of free slots whose pages are not given back (env_pages.2).
const WARM_BYTES_MIN: usize = 4 << 20;
const WARM_BYTES_MAX: usize = 256 << 20;
const WARM_PART: usize = 8;
/// Of what is not in use any more, a part is forgotten each time.
const PEAK_PART: usize = 8;
const AGE_AFTER: Duration = Duration::from_millis(200);
/// Address space is taken for so many bytes of slots at once.
const REGION_BYTES: usize = 4 << 20;
/// Buffers up to this size are mostly written whole at once, so their pages are asked for by one call.
const FILLED_BYTES_MAX: usize = 256 << 10;
/// Smaller slots would share huge pages.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The sizes of slots, in pages: each up to 16, then four for each doubling. The pages that a buffer does not reach in its slot
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

/// So many classes have no page that a buffer in them does not need.
const EXACT_CLASSES: usize = 16;

const _: () = assert!(CLASSES[39] * PAGE_BYTES == POOLED_BYTES_MAX && POOLED_BYTES_MAX <= REGION_BYTES);

/// A byte buffer of fixed length, with any content at first (env_pages.3).
pub struct PageBuf {
    start: NonNull<u8>,
    /// Says where the memory is from.
    len: usize,
}

// SAFETY: the buffer owns its memory, like a Box<[u8]>.
unsafe impl Send for PageBuf {}
// SAFETY: shared access only reads.
unsafe impl Sync for PageBuf {}

/// Where the memory of a buffer is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// No bytes, no memory.
    Nowhere,
    Heap,
    /// A slot of this class.
    Pool(usize),
    /// A mapping of so many bytes.
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
    /// Its start is a multiple of this.
    pub const ALIGN: usize = 64;

    /// A buffer of so many bytes.
    ///
    /// # Panics
    /// Ends the process as a failing allocation does, if the system has no more memory.
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
                Some((slot, is_cold)) => {
                    if is_cold && len <= FILLED_BYTES_MAX {
                        // SAFETY: the slot is this buffer's, and has as many bytes.
                        unsafe { sys::fill(slot.0, len.next_multiple_of(PAGE_BYTES)) };
                    }
                    slot.0.as_ptr()
                }
                None => ptr::null_mut(),
            },
            Origin::Mapping(bytes) => sys::map(bytes, true),
        };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(heap_layout(len)) };
        PageBuf { start, len }
    }

    /// A buffer with these bytes.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buffer = Self::new(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }

    /// Bytes of memory that it takes.
    pub fn size_bytes(&self) -> usize {
        match Origin::of(self.len) {
            Origin::Nowhere | Origin::Heap => self.len,
            // Its last owner may have left more of the slot's pages than this one needs.
            Origin::Pool(class) if class >= EXACT_CLASSES => slot_bytes(class),
            Origin::Pool(_) | Origin::Mapping(_) => self.len.next_multiple_of(PAGE_BYTES),
        }
    }

    /// Cuts it to `len` bytes; false, and nothing done, where that would want less memory.
    pub fn cut(&mut self, len: usize) -> bool {
        let origin = Origin::of(self.len);
        let fits = len <= self.len && Origin::of(len) == origin && origin != Origin::Heap;
        if fits {
            observe(origin, len as isize - self.len as isize);
            self.len = len;
        }
        fits
    }

    /// Where it starts. Reading and writing through it is as allowed as through the buffer.
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
            // SAFETY: allocated in `new` with this layout, since `cut` leaves such a buffer alone.
            Origin::Heap => unsafe { dealloc(self.start.as_ptr(), heap_layout(self.len)) },
            Origin::Pool(class) => give_back(class, Slot(self.start)),
            // SAFETY: mapped by `new` with this length, since `cut` keeps the origin; nobody else has it.
            Origin::Mapping(bytes) => unsafe { sys::unmap(self.start, bytes) },
        }
    }
}

impl Deref for PageBuf {
    type Target = [u8];
    #[inline(always)]
    fn deref(&self) -> &[u8] {
        // SAFETY: start is valid for len initialised bytes while self lives (env_pages.1, env_pages.3).
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

/// Memory of a class, in nobody's hands.
struct Slot(NonNull<u8>);

// SAFETY: memory without ties to a thread.
unsafe impl Send for Slot {}

/// The free slots.
struct Pool {
    warm: [Vec<Slot>; CLASSES.len()],
    cold: [Vec<Slot>; CLASSES.len()],
    /// Of all warm slots, and of all that are in buffers.
    warm_bytes: usize,
    used_bytes: usize,
    /// The most that was in buffers lately, and since when this is so.
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

    /// Takes out a slot whose pages are to go back (env_pages.2), of the class that has most of them.
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

    /// Lets the peak sink to what is used now, by an eighth of the way each time.
    fn age(&mut self, now: Duration) {
        if now.abs_diff(self.aged_at) >= AGE_AFTER {
            self.aged_at = now;
            self.peak_bytes -= (self.peak_bytes - self.used_bytes).div_ceil(PEAK_PART);
        }
    }
}

/// A slot, and whether its pages are not there; none if the system has no more.
fn take_slot(class: usize) -> Option<(Slot, bool)> {
    let bytes = slot_bytes(class);
    let mut pool = POOL.lock();
    pool.note_used(bytes);
    if let Some(slot) = pool.take_warm(class) {
        return Some((slot, false));
    }
    if let Some(slot) = pool.cold[class].pop() {
        return Some((slot, true));
    }
    let slots = REGION_BYTES / bytes;
    let region = NonNull::new(sys::map(slots * bytes, bytes >= HUGE_PAGE_BYTES))?;
    // SAFETY: the region has as many slots.
    pool.cold[class].extend((1..slots).map(|n| Slot(unsafe { region.add(n * bytes) })));
    Some((Slot(region), true))
}

fn give_back(class: usize, slot: Slot) {
    let mut pool = POOL.lock();
    pool.used_bytes -= slot_bytes(class);
    pool.put_warm(class, slot);
    trim(pool);
}

/// Has the pool forget a part of what was in use and is not now, and gives the system what is too much then (env_pages.2). For a thread in
/// the background, now and then; `now` is the time of a clock that does not go back.
pub fn age_page_bufs(now: Duration) {
    let mut pool = POOL.lock();
    pool.age(now);
    trim(pool);
}

/// The same of all that was in use and is not now.
pub fn settle_page_bufs() {
    let mut pool = POOL.lock();
    pool.peak_bytes = pool.used_bytes;
    trim(pool);
}

fn trim(mut pool: MutexGuard<'static, Pool>) {
    while let Some((class, slot)) = pool.take_surplus() {
        drop(pool);
        // SAFETY: the slot is in nobody's hands (env_pages.1), so its content may go.
        unsafe { sys::forget(slot.0, slot_bytes(class)) };
        pool = POOL.lock();
        pool.cold[class].push(slot);
    }
}

/// Called with the bytes of each buffer that is not from the allocator, and with their negative when it goes.
type Observer = fn(isize);

/// A function pointer, or null. Relaxed: tests set it before they begin.
static OBSERVER: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Has tests that count allocated memory told of buffers, too.
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
        // SAFETY: only `observe_page_bufs` writes to it, and pointers to functions can be made to plain ones and back.
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

    /// Null if there is no more.
    pub(super) fn map(bytes: usize, huge_pages: bool) -> *mut u8 {
        // SAFETY: a new mapping at an address of the system's choice touches nobody's memory.
        let mapped = unsafe {
            mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        let start = mapped.unwrap_or(ptr::null_mut());
        if !start.is_null() {
            // Memtables are walked from node to node all over their chunks: with huge pages that takes fewer look-ups of addresses. Where the
            // system makes them unasked, it would fill small slots that were given back with memory again.
            let advice = if huge_pages { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
            // SAFETY: advice on a new mapping. A system without huge pages refuses it, which is as well.
            let _ = unsafe { madvise(start, bytes, advice) };
        }
        start.cast()
    }

    /// # Safety
    /// The range was mapped by `map`, and is in nobody's hands any more.
    pub(super) unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's promise. A failure leaves memory in use, which nothing here could mend.
        let _ = unsafe { munmap(start.as_ptr().cast(), bytes) };
    }

    /// Asks for all pages by one call, which costs less than a fault for each.
    ///
    /// # Safety
    /// The range is part of what `map` gave, and is the caller's.
    pub(super) unsafe fn fill(start: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's promise; content that is there stays. A system that does not know of it refuses: pages come when they are touched.
        let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxPopulateWrite) };
    }

    /// Gives the pages back, but keeps their addresses; they read as zeros afterwards.
    ///
    /// # Safety
    /// The range is part of what `map` gave, and its content is wanted by nobody.
    pub(super) unsafe fn forget(start: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's promise. A failure leaves the pages in use, with their content.
        let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxDontNeed) };
    }
}

#[cfg(not(all(target_os = "linux", not(miri), not(esker_plain_pages))))]
mod sys {
    //! No pages: everything is left to the allocator.

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
