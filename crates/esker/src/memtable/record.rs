//! A record: one version of one key in the arena.
//!
//! ```text
//!   [previous version][seq << 8 | kind][key length u32][value length u32][key][value][joined record]
//!          |
//!          `--> record of the same key with a smaller sequence number, or null
//! ```
//!
//! The top bit of the key length marks a record with a joined record.
//!
//! record.1. A record is complete before a pointer to it is published, and is never written again. Its memory
//!     lives as long as the arena. Along the chain of previous versions the key stays the same and sequence
//!     numbers decrease.
//!
//! - A joined record has the key, sequence number and kind of the record that points to it. Its value
//!   lists all operands from there down to its own previous version (`runs.rs`).
#![expect(unsafe_code, reason = "reads and writes records in raw arena memory")]

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use super::arena::{Arena, Bump};
use crate::types::SeqNo;
use crate::types::entry::EntryRef;
use crate::types::op::Kind;
use crate::types::prefetch::prefetch_line;

/// Bytes of each record prefetched by a cursor, and the maximum for a record whose value is read.
const PREFETCHED_BYTES: usize = 128;
const PREFETCHED_BYTES_MAX: usize = 1024;

/// Bit in the key length that marks a record followed by a pointer to a joined record.
const JOINED: u32 = 1 << 31;

/// The fixed part of a record.
#[repr(C)]
pub(super) struct Record {
    previous: *const Record,
    seq_and_kind: u64,
    key_len: u32,
    value_len: u32,
}

/// A reference to a record, valid while the arena is borrowed (record.1).
#[derive(Clone, Copy)]
pub(super) struct RecordRef<'a> {
    ptr: NonNull<Record>,
    arena: PhantomData<&'a Arena>,
}

impl Record {
    /// Writes a record. Other threads cannot see it until the caller publishes the pointer.
    #[inline]
    pub(super) fn write<'a>(
        bump: &mut Bump,
        arena: &'a Arena,
        entry: EntryRef<'_>,
        previous: Option<RecordRef<'a>>,
        joined: Option<RecordRef<'a>>,
    ) -> RecordRef<'a> {
        let too_long = "keys are shorter than 2 GiB, and values shorter than 4 GiB";
        let key_len = u32::try_from(entry.key.len()).ok().filter(|len| len & JOINED == 0).expect(too_long);
        let header = Record {
            previous: previous.map_or(ptr::null(), RecordRef::as_ptr),
            seq_and_kind: entry.seq.get() << 8 | u64::from(entry.kind.to_u8()),
            key_len: if joined.is_some() { key_len | JOINED } else { key_len },
            value_len: u32::try_from(entry.value.len()).expect(too_long),
        };
        let behind = if joined.is_some() { size_of::<*const Record>() } else { 0 };
        let size = size_of::<Record>() + entry.key.len() + entry.value.len() + behind;
        let ptr = bump.alloc(arena, size, align_of::<Record>()).cast::<Record>();
        // SAFETY: the arena returned `size` unshared bytes, aligned for the header, with space after it for
        // the key, the value and the pointer. The pointer is written unaligned.
        unsafe {
            ptr.write(header);
            let key = ptr.add(1).cast::<u8>().as_ptr();
            ptr::copy_nonoverlapping(entry.key.as_ptr(), key, entry.key.len());
            ptr::copy_nonoverlapping(entry.value.as_ptr(), key.add(entry.key.len()), entry.value.len());
            if let Some(joined) = joined {
                let place = key.add(entry.key.len() + entry.value.len()).cast::<*const Record>();
                place.write_unaligned(joined.as_ptr());
            }
        }
        RecordRef { ptr, arena: PhantomData }
    }
}

impl<'a> RecordRef<'a> {
    /// Returns the record at an address. `None` if it is null.
    ///
    /// # Safety
    /// `ptr` is null or comes from [`RecordRef::as_ptr`] of a record whose arena outlives `'a`. The reader
    /// has synchronized with the writer of the record, by an acquire load of the pointer or of a word
    /// published after it.
    #[inline(always)]
    pub(super) unsafe fn from_ptr(ptr: *const Record) -> Option<Self> {
        NonNull::new(ptr.cast_mut()).map(|ptr| RecordRef { ptr, arena: PhantomData })
    }

    #[inline(always)]
    pub(super) fn as_ptr(self) -> *const Record {
        self.ptr.as_ptr()
    }

    #[inline(always)]
    fn header(self) -> &'a Record {
        // SAFETY: the header is complete and never written again (record.1).
        unsafe { self.ptr.as_ref() }
    }

    /// Returns bytes after the header.
    #[inline(always)]
    fn bytes(self, start: usize, len: usize) -> &'a [u8] {
        // SAFETY: key and value follow the header in the same allocation, complete and never written again
        // (record.1). Both callers stay within their lengths. The pointer comes from the allocation, not from
        // a reference to the header.
        unsafe { std::slice::from_raw_parts(self.ptr.add(1).cast::<u8>().as_ptr().add(start), len) }
    }

    #[inline(always)]
    fn key_len(self) -> usize {
        (self.header().key_len & !JOINED) as usize
    }

    #[inline(always)]
    pub(super) fn key(self) -> &'a [u8] {
        self.bytes(0, self.key_len())
    }

    #[inline]
    pub(super) fn value(self) -> &'a [u8] {
        self.bytes(self.key_len(), self.header().value_len as usize)
    }

    #[inline]
    pub(super) fn seq(self) -> SeqNo {
        SeqNo::new(self.header().seq_and_kind >> 8)
    }

    #[inline]
    pub(super) fn kind(self) -> Kind {
        Kind::from_u8(self.header().seq_and_kind as u8).expect("records are written with a kind")
    }

    #[inline]
    pub(super) fn entry(self) -> EntryRef<'a> {
        EntryRef { key: self.key(), seq: self.seq(), kind: self.kind(), value: self.value() }
    }

    /// Prefetches the part of the record after its first two cache lines.
    #[inline]
    pub(super) fn prefetch(self) {
        let size = size_of::<Record>() + self.key_len() + self.header().value_len as usize;
        for at in (PREFETCHED_BYTES..size.min(PREFETCHED_BYTES_MAX)).step_by(64) {
            prefetch_line(self.as_ptr().cast::<u8>().wrapping_add(at));
        }
    }

    /// Returns the next older version of the key.
    #[inline]
    pub(super) fn previous(self) -> Option<RecordRef<'a>> {
        // SAFETY: the previous record was written before this one, into the same arena.
        unsafe { RecordRef::from_ptr(self.header().previous) }
    }

    /// Returns the record that readers of the value use instead of this one: its joined record, if it has
    /// one.
    #[inline]
    pub(super) fn shown(self) -> RecordRef<'a> {
        if self.header().key_len & JOINED == 0 {
            return self;
        }
        let start = self.key_len() + self.header().value_len as usize;
        let bytes = self.bytes(start, size_of::<*const Record>());
        // SAFETY: the bytes hold a pointer written with the record (record.1). It points to a record written
        // earlier into the same arena. The pointer is read back with the provenance it was written with.
        let joined = unsafe { RecordRef::from_ptr(bytes.as_ptr().cast::<*const Record>().read_unaligned()) };
        joined.unwrap_or(self)
    }

    /// Returns the newest version with a sequence number up to `at` in the chain that starts here.
    #[inline]
    pub(super) fn visible(self, at: SeqNo) -> Option<RecordRef<'a>> {
        let mut record = self;
        while record.seq() > at {
            record = record.previous()?;
        }
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sequence numbers that do not fit in four bytes, up to the largest.
    #[test]
    fn large_numbers_come_back_whole_with_their_kinds() {
        let (arena, mut bump) = (Arena::default(), Bump::new());
        for n in [1_u64 << 32, (1 << 32) + 7, 1 << 40, SeqNo::MAX.get()] {
            for kind in [Kind::REMOVE, Kind::PUT] {
                let entry = EntryRef { key: b"key", seq: SeqNo::new(n), kind, value: b"value" };
                let record = Record::write(&mut bump, &arena, entry, None, None);
                assert_eq!((record.seq().get(), record.kind()), (n, kind), "{n:#x}");
                assert_eq!(record.entry(), entry, "{n:#x}");
                let before = record.visible(SeqNo::new(n - 1)).map(RecordRef::seq);
                let at = record.visible(SeqNo::new(n)).map(RecordRef::seq);
                assert_eq!((before, at), (None, Some(SeqNo::new(n))), "{n:#x}");
            }
        }
    }
}
