//! Walks: `esker_iter` goes one way and fills buffers, `esker_cursor` moves freely.

use std::mem::MaybeUninit;
use std::ops::{Bound, ControlFlow};

use esker::{Cursor, Error, Key, Keys, Range, Value};

use crate::call::{ErrorPlace, Failure, call, given, set};
use crate::keyspace::esker_keyspace;
use crate::slice::{esker_buffer, esker_slice};
use crate::status::esker_status::{self, ESKER_BUFFER_TOO_SMALL, ESKER_NOT_FOUND};
use crate::txn::{esker_txn, read};

/// Walks from the last key to the first.
pub const ESKER_ITER_REVERSE: u32 = 1;
/// Gives keys only; large values are not read.
pub const ESKER_ITER_KEYS: u32 = 2;

/// Size of the values up to which a buffer is filled without handles to them. An entry that does not fit is
/// copied once more, so values behind a larger one have handles.
const VISITED_MAX: usize = 4096;

/// The keys from `start` on, below `end`. A `data` that is NULL stands for no bound.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct esker_range<'a> {
    /// The first key.
    start: esker_slice<'a>,
    /// The first key behind the range.
    end: esker_slice<'a>,
}

/// Where a range begins and ends.
type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

impl<'a> esker_range<'a> {
    pub(crate) fn bounds(self) -> Result<Bounds<'a>, Failure> {
        Ok((
            self.start.bound()?.map_or(Bound::Unbounded, Bound::Included),
            self.end.bound()?.map_or(Bound::Unbounded, Bound::Excluded),
        ))
    }
}

/// A walk in one direction over the state of its begin, for one thread at a time. See esker_iter_free.
pub struct esker_iter {
    walk: Walk,
    is_reverse: bool,
    /// Number of entries after which the walk ends.
    left: u64,
    /// The entry that did not fit into the last buffer, or that esker_iter_next lends.
    held: Option<(Key, Value)>,
    /// The error that follows the entries of the last buffer. The range returns an error only once.
    failed: Option<Error>,
}

enum Walk {
    Entries(Range),
    Keys(Keys),
}

impl esker_iter {
    fn new(range: Range, flags: u32) -> Result<esker_iter, Failure> {
        if flags & !(ESKER_ITER_REVERSE | ESKER_ITER_KEYS) != 0 {
            return Err(Failure::invalid(format!("{flags:#x} has flags that no walk knows")));
        }
        let walk = match flags & ESKER_ITER_KEYS {
            0 => Walk::Entries(range),
            _ => Walk::Keys(range.keys()),
        };
        let is_reverse = flags & ESKER_ITER_REVERSE != 0;
        Ok(esker_iter { walk, is_reverse, left: u64::MAX, held: None, failed: None })
    }

    fn step(&mut self) -> esker::Result<Option<(Key, Value)>> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if self.left == 0 {
            return Ok(None);
        }
        let entry = match (&mut self.walk, self.is_reverse) {
            (Walk::Entries(range), false) => range.next().transpose()?,
            (Walk::Entries(range), true) => range.next_back().transpose()?,
            (Walk::Keys(keys), reverse) => {
                let key = if reverse { keys.next_back() } else { keys.next() };
                key.transpose()?.map(|key| (key, Value::default()))
            }
        };
        self.left -= u64::from(entry.is_some());
        Ok(entry)
    }

    /// Adds the next entries while they are small. An entry that does not fit is held. Reads nothing if the
    /// entries have to be read one by one.
    fn visit(&mut self, filled: &mut Filled<'_>) -> esker::Result<()> {
        let (Walk::Entries(range), false) = (&mut self.walk, self.is_reverse) else { return Ok(()) };
        let (held, left) = (&mut self.held, &mut self.left);
        if *left == 0 {
            return Ok(());
        }
        range.visit(|key, value| {
            *left -= 1;
            let is_added = filled.add(key, value);
            if !is_added {
                *held = Some((Key::from(key), Value::from(value)));
            }
            match is_added && *left > 0 && value.len() <= VISITED_MAX {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })
    }
}

/// The buffer of a caller, and what is in it.
struct Filled<'a> {
    buffer: esker_buffer<'a>,
    entries: usize,
    end: usize,
}

impl Filled<'_> {
    /// Adds an entry, and returns whether it fits.
    fn add(&mut self, key: &[u8], value: &[u8]) -> bool {
        let Filled { buffer, entries, end } = self;
        if !buffer.has_room(*end, entry_size(key, value)) {
            return false;
        }
        // A key has at most 65,535 bytes, and a value at most 4 GiB - 1.
        *end = buffer.copy(*end, &(key.len() as u32).to_le_bytes());
        *end = buffer.copy(*end, &(value.len() as u32).to_le_bytes());
        *end = buffer.copy(*end, key);
        *end = buffer.copy(*end, value);
        *entries += 1;
        true
    }
}

/// Size of an entry in a buffer.
fn entry_size(key: &[u8], value: &[u8]) -> usize {
    8 + key.len() + value.len()
}

/// Begins a walk over the keys of a range. `flags`: ESKER_ITER_REVERSE, ESKER_ITER_KEYS, both or 0.
#[unsafe(no_mangle)]
pub extern "C" fn esker_iter_new(
    keyspace: Option<&esker_keyspace>,
    txn: Option<&esker_txn<'_>>,
    range: esker_range<'_>,
    flags: u32,
    iter: Option<&mut MaybeUninit<Option<Box<esker_iter>>>>,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || {
        let (place, (start, end)) = (given(iter, "iter")?, range.bounds()?);
        let range = read(keyspace, txn, |reads| Ok(reads.between(start, end)))?;
        place.write(Some(Box::new(esker_iter::new(range, flags)?)));
        Ok(())
    })
}

/// Begins a walk over the keys that begin with a prefix.
#[unsafe(no_mangle)]
pub extern "C" fn esker_iter_prefix(
    keyspace: Option<&esker_keyspace>,
    txn: Option<&esker_txn<'_>>,
    prefix: esker_slice<'_>,
    flags: u32,
    iter: Option<&mut MaybeUninit<Option<Box<esker_iter>>>>,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || {
        let place = given(iter, "iter")?;
        let prefix = prefix.bytes()?;
        let range = read(keyspace, txn, |reads| Ok(reads.with_prefix(prefix)))?;
        place.write(Some(Box::new(esker_iter::new(range, flags)?)));
        Ok(())
    })
}

/// Ends a walk after `entries` entries, and reads nothing behind them. Call it before the first one is read.
#[unsafe(no_mangle)]
pub extern "C" fn esker_iter_set_limit(iter: Option<&mut esker_iter>, entries: u64) {
    if let Some(iter) = iter {
        iter.left = entries;
    }
}

/// Sets `key` and `value`, which may be NULL, to the next entry. Both are valid until the next call for this
/// walk. ESKER_NOT_FOUND: there are no more entries.
#[unsafe(no_mangle)]
pub extern "C" fn esker_iter_next<'a>(
    iter: Option<&'a mut esker_iter>,
    key: Option<&mut MaybeUninit<esker_slice<'a>>>,
    value: Option<&mut MaybeUninit<esker_slice<'a>>>,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || {
        let iter = given(iter, "iter")?;
        iter.held = iter.step()?;
        let (k, v) = iter.held.as_ref().ok_or(Failure::Status(ESKER_NOT_FOUND))?;
        set(key, esker_slice::of(k));
        set(value, esker_slice::of(v));
        Ok(())
    })
}

/// Fills a buffer with as many of the next entries as fit. Each is the length of the key and that of the
/// value (two numbers of four bytes, little-endian, not aligned), the key, the value.
///
/// Sets `count` to the number of entries and `bytes` to their size. A count of 0 ends the walk.
/// ESKER_BUFFER_TOO_SMALL: not even the next entry fits; `bytes` is its size, and it comes with the next
/// call. Do not mix it with esker_iter_next.
///
/// If reading fails, the entries before the error come first: the next call returns the error. The walk has
/// ended then, unless the error is ESKER_MERGE: it concerns one entry, and the walk goes on behind it.
#[unsafe(no_mangle)]
pub extern "C" fn esker_iter_fill(
    iter: Option<&mut esker_iter>,
    buffer: esker_buffer<'_>,
    count: Option<&mut MaybeUninit<usize>>,
    bytes: Option<&mut MaybeUninit<usize>>,
    error: ErrorPlace<'_>,
) -> esker_status {
    let mut filled = Filled { buffer, entries: 0, end: 0 };
    call(error, || {
        let iter = given(iter, "iter")?;
        loop {
            let next = match iter.held.take() {
                Some(held) => Some(held),
                None => match iter.step() {
                    Err(error) if filled.entries > 0 => {
                        iter.failed = Some(error);
                        None
                    }
                    step => step?,
                },
            };
            let Some((key, value)) = next else { break };
            if !filled.add(&key, &value) {
                let size = entry_size(&key, &value);
                iter.held = Some((key, value));
                if filled.entries == 0 {
                    set(bytes, size);
                    return Err(Failure::Status(ESKER_BUFFER_TOO_SMALL));
                }
                break;
            }
            if value.len() <= VISITED_MAX
                && let Err(error) = iter.visit(&mut filled)
            {
                iter.failed = Some(error);
                break;
            }
        }
        set(count, filled.entries);
        set(bytes, filled.end);
        Ok(())
    })
}

/// Frees a walk. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn esker_iter_free(iter: Option<Box<esker_iter>>) {
    drop(iter);
}

/// A position among the keys, which moves both ways. It sees the state at the time when it was made. One
/// thread at a time may use it. Free it with esker_cursor_free.
pub struct esker_cursor {
    cursor: Cursor,
}

/// Makes a cursor over a keyspace, at no key.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cursor_new(
    keyspace: Option<&esker_keyspace>,
    txn: Option<&esker_txn<'_>>,
    cursor: Option<&mut MaybeUninit<Option<Box<esker_cursor>>>>,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || {
        let place = given(cursor, "cursor")?;
        let cursor = read(keyspace, txn, |reads| reads.cursor_between(Bound::Unbounded, Bound::Unbounded))?;
        place.write(Some(Box::new(esker_cursor { cursor })));
        Ok(())
    })
}

/// Moves a cursor. ESKER_NOT_FOUND: there is no such key, and the cursor is at none.
fn go<E>(
    cursor: Option<&mut esker_cursor>,
    error: ErrorPlace<'_>,
    step: impl FnOnce(&mut Cursor) -> Result<bool, E>,
) -> esker_status
where
    Failure: From<E>,
{
    call(error, || match step(&mut given(cursor, "cursor")?.cursor)? {
        true => Ok(()),
        false => Err(Failure::Status(ESKER_NOT_FOUND)),
    })
}

/// Moves to the first key that is `key` or follows it. ESKER_NOT_FOUND: there is none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cursor_seek(
    cursor: Option<&mut esker_cursor>,
    key: esker_slice<'_>,
    error: ErrorPlace<'_>,
) -> esker_status {
    go(cursor, error, |cursor| Ok::<_, Failure>(cursor.seek(key.bytes()?)?))
}

/// Moves to the last key before `key`. ESKER_NOT_FOUND: there is none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cursor_seek_before(
    cursor: Option<&mut esker_cursor>,
    key: esker_slice<'_>,
    error: ErrorPlace<'_>,
) -> esker_status {
    go(cursor, error, |cursor| Ok::<_, Failure>(cursor.seek_before(key.bytes()?)?))
}

/// Moves to the first key. ESKER_NOT_FOUND: there is none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cursor_first(
    cursor: Option<&mut esker_cursor>,
    error: ErrorPlace<'_>,
) -> esker_status {
    go(cursor, error, Cursor::seek_first)
}

/// Moves to the last key. ESKER_NOT_FOUND: there is none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cursor_last(
    cursor: Option<&mut esker_cursor>,
    error: ErrorPlace<'_>,
) -> esker_status {
    go(cursor, error, Cursor::seek_last)
}

/// Moves to the next key. ESKER_NOT_FOUND: there is none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cursor_next(
    cursor: Option<&mut esker_cursor>,
    error: ErrorPlace<'_>,
) -> esker_status {
    go(cursor, error, Cursor::next)
}

/// Moves to the key before. ESKER_NOT_FOUND: there is none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cursor_prev(
    cursor: Option<&mut esker_cursor>,
    error: ErrorPlace<'_>,
) -> esker_status {
    go(cursor, error, Cursor::prev)
}

/// Sets `key` and `value`, which may be NULL, to the entry at the cursor. Both are valid until the cursor
/// moves or is freed. ESKER_NOT_FOUND: the cursor is at no key.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cursor_entry<'a>(
    cursor: Option<&'a esker_cursor>,
    key: Option<&mut MaybeUninit<esker_slice<'a>>>,
    value: Option<&mut MaybeUninit<esker_slice<'a>>>,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || {
        let cursor = &given(cursor, "cursor")?.cursor;
        if !cursor.valid() {
            return Err(Failure::Status(ESKER_NOT_FOUND));
        }
        if value.is_some() {
            set(value, esker_slice::of(cursor.value()?));
        }
        set(key, esker_slice::of(cursor.key()));
        Ok(())
    })
}

/// Frees a cursor. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cursor_free(cursor: Option<Box<esker_cursor>>) {
    drop(cursor);
}
