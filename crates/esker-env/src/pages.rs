//! Memory in whole pages, which the operating system has back as soon as it is given up.
//!
//! ```text
//!   PageBuf::new(len) --up to 2 KiB--> the allocator
//!                     --up to 1 MiB--> a slot of the pool: warm (its pages are there) or cold (given back, its address is kept)
//!                     --more---------> a mapping of its own
//! ```
//!
//! What is made by one thread and freed by another, in many sizes, is what general allocators keep most of: memory that was freed stays in
//! the arena of the thread that made it. Cached blocks and memtables are just that, and they are nearly all of a database's memory: with a
//! budget of 256 MiB a process took up to 1,140 MiB (`cargo run --release -p esker --example memory`).
//!
//! PG1. A slot belongs to one `PageBuf`, or it is in one free list.
//! PG2. Free slots whose pages are there take at most [`WARM_BYTES_MAX`]: so much is kept because the next block comes when the last one goes,
//!      and touching a fresh page costs more than taking a lock.
//! PG3. The bytes of a new buffer are zeros or those of an earlier owner: whoever takes it writes before reading.
//! PG4. Address space of the pool is never given back: it grows to the most that was ever in use, for each class of sizes.
//!
//! With `--cfg esker_plain_pages`, which sanitizers want, on systems other than Linux, and where pages are not of 4 KiB, all comes from the allocator.
#![expect(unsafe_code, reason = "memory by the page")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use parking_lot::Mutex;

/// The unit of everything here, in bytes.
const PAGE_BYTES: usize = 4096;
/// Less than half a page is left to the allocator.
const HEAP_BYTES_MAX: usize = PAGE_BYTES / 2;
/// More gets a mapping of its own.
const POOLED_BYTES_MAX: usize = 1 << 20;
/// Bytes of free slots whose pages are not given back (PG2).
const WARM_BYTES_MAX: usize = 8 << 20;
/// Address space is taken for so many bytes of slots at once, or for a few of the large ones.
const REGION_BYTES: usize = 1 << 20;
const REGION_SLOTS_MIN: usize = 4;

/// The sizes of slots, in pages: each up to 16, then four for each doubling. The pages that a buffer does not reach in its slot
/// are not touched.
const CLASSES: [usize; 32] = {
    let mut classes = [0; 32];
    let mut class = 0;
    while class < 16 {
        classes[class] = class + 1;
        class += 1;
    }
    while class < 32 {
        let (doubling, quarter) = ((class - 16) / 4, (class - 16) % 4 + 1);
        classes[class] = (16 << doubling) + quarter * (4 << doubling);
        class += 1;
    }
    classes
};

const _: () = assert!(CLASSES[31] * PAGE_BYTES == POOLED_BYTES_MAX);

/// A byte buffer of fixed length, with any content at first (PG3).
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
    Heap,
    /// A slot of this class.
    Pool(usize),
    /// A mapping of so many bytes.
    Mapping(usize),
}

impl Origin {
    fn of(len: usize) -> Self {
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
    Layout::from_size_align(len.max(1), PageBuf::ALIGN).expect("a buffer fits the address space")
}

impl PageBuf {
    /// Its start is a multiple of this.
    pub const ALIGN: usize = 64;

    /// A buffer of so many bytes.
    ///
    /// # Panics
    /// Ends the process as a failing allocation does, if the system has no more memory.
    pub fn new(len: usize) -> Self {
        observe(len as isize);
        let start = match Origin::of(len) {
            Origin::Heap => {
                let layout = heap_layout(len);
                // SAFETY: the layout's size is not zero.
                let start = unsafe { alloc_zeroed(layout) };
                NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout))
            }
            Origin::Pool(class) => take_slot(class).0,
            Origin::Mapping(bytes) => sys::map(bytes),
        };
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
            Origin::Heap => self.len,
            Origin::Pool(_) | Origin::Mapping(_) => self.len.next_multiple_of(PAGE_BYTES),
        }
    }

    /// Cuts it to `len` bytes; false, and nothing done, where that would want less memory.
    pub fn cut(&mut self, len: usize) -> bool {
        let fits =
            len <= self.len && Origin::of(len) == Origin::of(self.len) && Origin::of(len) != Origin::Heap;
        if fits {
            observe(len as isize - self.len as isize);
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
        observe(-(self.len as isize));
        match Origin::of(self.len) {
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
        // SAFETY: start is valid for len initialised bytes while self lives (PG1, PG3).
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
    warm_bytes: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    warm: [const { Vec::new() }; CLASSES.len()],
    cold: [const { Vec::new() }; CLASSES.len()],
    warm_bytes: 0,
});

fn take_slot(class: usize) -> Slot {
    let bytes = CLASSES[class] * PAGE_BYTES;
    let mut pool = POOL.lock();
    if let Some(slot) = pool.warm[class].pop() {
        pool.warm_bytes -= bytes;
        return slot;
    }
    if let Some(slot) = pool.cold[class].pop() {
        return slot;
    }
    let slots = (REGION_BYTES / bytes).max(REGION_SLOTS_MIN);
    let region = sys::map(slots * bytes);
    // SAFETY: the region has as many slots.
    pool.cold[class].extend((1..slots).map(|n| Slot(unsafe { region.add(n * bytes) })));
    Slot(region)
}

fn give_back(class: usize, slot: Slot) {
    let bytes = CLASSES[class] * PAGE_BYTES;
    let mut pool = POOL.lock();
    if pool.warm_bytes + bytes <= WARM_BYTES_MAX {
        pool.warm_bytes += bytes;
        pool.warm[class].push(slot);
        return;
    }
    drop(pool);
    // SAFETY: the slot is in nobody's hands (PG1), so its content may go.
    unsafe { sys::forget(slot.0, bytes) };
    POOL.lock().cold[class].push(slot);
}

/// Called with the bytes of each buffer that is made, and with their negative when it goes.
type Observer = fn(isize);

/// A function pointer, or null. Relaxed: tests set it before they begin.
static OBSERVER: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Has tests that count allocated memory told of buffers, too.
#[doc(hidden)]
pub fn observe_page_bufs(observer: Observer) {
    OBSERVER.store(observer as *mut (), Ordering::Relaxed);
}

#[inline]
fn observe(bytes: isize) {
    let observer = OBSERVER.load(Ordering::Relaxed);
    if !observer.is_null() {
        // SAFETY: only `observe_page_bufs` writes to it, and pointers to functions can be made to plain ones and back.
        unsafe { std::mem::transmute::<*mut (), Observer>(observer)(bytes) };
    }
}

#[cfg(all(target_os = "linux", not(miri), not(esker_plain_pages)))]
mod sys {
    //! Pages of the operating system.

    use super::{Layout, NonNull, PAGE_BYTES, handle_alloc_error, ptr};
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    pub(super) fn has_pages() -> bool {
        cfg!(target_arch = "x86_64") || rustix::param::page_size() == PAGE_BYTES
    }

    pub(super) fn map(bytes: usize) -> NonNull<u8> {
        // SAFETY: a new mapping at an address of the system's choice touches nobody's memory.
        let mapped = unsafe {
            mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        let start = mapped.ok().and_then(|start| NonNull::new(start.cast()));
        start.unwrap_or_else(|| {
            let layout = Layout::from_size_align(bytes, PAGE_BYTES);
            handle_alloc_error(layout.expect("the address space was asked for it"))
        })
    }

    /// # Safety
    /// The range was mapped by `map`, and is in nobody's hands any more.
    pub(super) unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's promise. A failure leaves memory in use, which nothing here could mend.
        let _ = unsafe { munmap(start.as_ptr().cast(), bytes) };
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

    pub(super) fn map(_bytes: usize) -> NonNull<u8> {
        unreachable!("there are no pages")
    }

    /// # Safety
    /// Never called.
    pub(super) unsafe fn unmap(_start: NonNull<u8>, _bytes: usize) {}

    /// # Safety
    /// Never called.
    pub(super) unsafe fn forget(_start: NonNull<u8>, _bytes: usize) {}
}

#[cfg(test)]
mod tests;
