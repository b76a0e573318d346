//! Reads of keys.

use std::mem::MaybeUninit;

use esker::Ttl;

use crate::call::{ErrorPlace, Failure, call, given, set};
use crate::iter::esker_range;
use crate::keyspace::esker_keyspace;
use crate::slice::{esker_buffer, esker_slice, esker_value, set_all, slices};
use crate::status::esker_status;
use crate::txn::{esker_txn, read};

/// Reads a key, in `txn` or, if that is NULL, in the newest state. Free the value with esker_value_free.
///
/// ESKER_NOT_FOUND: there is no such key, and `value->data` is NULL.
#[unsafe(no_mangle)]
pub extern "C" fn esker_get(
    keyspace: Option<&esker_keyspace>,
    txn: Option<&esker_txn<'_>>,
    key: esker_slice<'_>,
    value: Option<&mut MaybeUninit<esker_value>>,
    error: ErrorPlace<'_>,
) -> esker_status {
    let mut value = value;
    if let Some(place) = &mut value {
        place.write(esker_value::NONE);
    }
    call(error, || {
        let (place, key) = (given(value, "value")?, key.bytes()?);
        let value = read(keyspace, txn, |reads| reads.value_of(key))?;
        let is_there = value.is_some();
        place.write(esker_value::of(value));
        found(is_there)
    })
}

pub(crate) fn found(is_there: bool) -> Result<(), Failure> {
    is_there.then_some(()).ok_or(Failure::Status(esker_status::ESKER_NOT_FOUND))
}

/// Reads a key into a buffer, and sets `len` to the length of its value.
///
/// ESKER_NOT_FOUND: there is no such key. ESKER_BUFFER_TOO_SMALL: `len` is what the buffer needs.
#[unsafe(no_mangle)]
pub extern "C" fn esker_get_into(
    keyspace: Option<&esker_keyspace>,
    txn: Option<&esker_txn<'_>>,
    key: esker_slice<'_>,
    buffer: esker_buffer<'_>,
    len: Option<&mut MaybeUninit<usize>>,
    error: ErrorPlace<'_>,
) -> esker_status {
    let mut buffer = buffer;
    call(error, || {
        let key = key.bytes()?;
        let Some(value) = read(keyspace, txn, |reads| reads.value_of(key))? else {
            return found(false);
        };
        set(len, value.len());
        if !buffer.has_room(0, value.len()) {
            return Err(Failure::Status(esker_status::ESKER_BUFFER_TOO_SMALL));
        }
        buffer.copy(0, &value);
        Ok(())
    })
}

/// Reads `count` keys of one state into `count` values. `data` is NULL for a missing key. Free each value.
#[unsafe(no_mangle)]
pub extern "C" fn esker_get_many(
    keyspace: Option<&esker_keyspace>,
    txn: Option<&esker_txn<'_>>,
    keys: Option<&esker_slice<'_>>,
    count: usize,
    values: Option<&mut MaybeUninit<esker_value>>,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || {
        let keys = slices(keys, count)?.iter().map(|key| key.bytes()).collect::<Result<Vec<_>, _>>()?;
        let values = if count == 0 { None } else { Some(given(values, "values")?) };
        let found = read(keyspace, txn, |reads| reads.values_of(&keys))?;
        set_all(values, found.into_iter().map(esker_value::of));
        Ok(())
    })
}

/// Returns ESKER_OK if a key exists, and else ESKER_NOT_FOUND.
#[unsafe(no_mangle)]
pub extern "C" fn esker_contains(
    keyspace: Option<&esker_keyspace>,
    txn: Option<&esker_txn<'_>>,
    key: esker_slice<'_>,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || {
        let key = key.bytes()?;
        found(read(keyspace, txn, |reads| reads.has(key))?)
    })
}

/// Sets `milliseconds` to the remaining lifetime of a key, UINT64_MAX if it does not expire.
#[unsafe(no_mangle)]
pub extern "C" fn esker_ttl(
    keyspace: Option<&esker_keyspace>,
    txn: Option<&esker_txn<'_>>,
    key: esker_slice<'_>,
    milliseconds: Option<&mut MaybeUninit<u64>>,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || {
        let key = key.bytes()?;
        let ttl = read(keyspace, txn, |reads| reads.ttl_of(key))?;
        if let Some(ttl) = ttl {
            let left = match ttl {
                Ttl::Unlimited => u64::MAX,
                Ttl::Left(left) => u64::try_from(left.as_millis()).unwrap_or(u64::MAX - 1),
            };
            set(milliseconds, left);
        }
        found(ttl.is_some())
    })
}

/// Sets `count` to the exact number of keys of a keyspace.
#[unsafe(no_mangle)]
pub extern "C" fn esker_len(
    keyspace: Option<&esker_keyspace>,
    txn: Option<&esker_txn<'_>>,
    count: Option<&mut MaybeUninit<u64>>,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || {
        set(count, read(keyspace, txn, |reads| reads.count())?);
        Ok(())
    })
}

/// Sets `bytes` to the approximate size on disk of a range.
#[unsafe(no_mangle)]
pub extern "C" fn esker_approximate_size(
    keyspace: Option<&esker_keyspace>,
    range: esker_range<'_>,
    bytes: Option<&mut MaybeUninit<u64>>,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || {
        let keyspace = &given(keyspace, "keyspace")?.keyspace;
        set(bytes, keyspace.approximate_size(range.bounds()?)?);
        Ok(())
    })
}

/// Compacts the keys of a range, so that it has no garbage. A `data` that is NULL stands for no bound.
#[unsafe(no_mangle)]
pub extern "C" fn esker_compact_range(
    keyspace: Option<&esker_keyspace>,
    range: esker_range<'_>,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || Ok(given(keyspace, "keyspace")?.keyspace.compact_range(range.bounds()?)?))
}
