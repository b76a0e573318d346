//! Writes of keys.
//!
//! Each takes a transaction, or NULL: it is then a commit of its own, with the durability of the keyspace's
//! handle.

use std::mem::MaybeUninit;
use std::time::Duration;

use esker::{Keyspace, ViewMut};

use crate::call::{ErrorPlace, Failure, call, given, set};
use crate::iter::esker_range;
use crate::keyspace::esker_keyspace;
use crate::read::found;
use crate::slice::{esker_slice, esker_value};
use crate::status::esker_status;
use crate::txn::esker_txn;

/// Runs a write: in the transaction or, if there is none, as a commit of its own. The three bodies are for a
/// keyspace, a transaction and a batch.
macro_rules! write {
    (
        $keyspace:expr, $txn:expr, $error:expr,
        let $names:pat = $bytes:expr, |$target:ident, $ks:ident| $now:expr, $within:expr
    ) => {
        call($error, || {
            let $names = $bytes;
            let $ks = &given($keyspace, "keyspace")?.keyspace;
            match $txn {
                None => {
                    let $target = $ks;
                    $now?;
                    Ok(())
                }
                Some(txn) => txn.write(|$target| $within, |$target| $within),
            }
        })
    };
}

/// Sets a key to a value.
#[unsafe(no_mangle)]
pub extern "C" fn esker_put(
    keyspace: Option<&esker_keyspace>,
    txn: Option<&mut esker_txn<'_>>,
    key: esker_slice<'_>,
    value: esker_slice<'_>,
    error: ErrorPlace<'_>,
) -> esker_status {
    write!(
        keyspace, txn, error,
        let (key, value) = (key.bytes()?, value.bytes()?),
        |to, ks| to.put(key, value), to.put(ks, key, value)
    )
}

/// Sets a key to a value that expires after some time, from now on.
#[unsafe(no_mangle)]
pub extern "C" fn esker_put_with_ttl(
    keyspace: Option<&esker_keyspace>,
    txn: Option<&mut esker_txn<'_>>,
    key: esker_slice<'_>,
    value: esker_slice<'_>,
    milliseconds: u64,
    error: ErrorPlace<'_>,
) -> esker_status {
    let ttl = Duration::from_millis(milliseconds);
    write!(
        keyspace, txn, error,
        let (key, value) = (key.bytes()?, value.bytes()?),
        |to, ks| to.put_with_ttl(key, value, ttl), to.put_with_ttl(ks, key, value, ttl)
    )
}

/// Merges an operand into a key by the keyspace's merge operator, without reading the key.
#[unsafe(no_mangle)]
pub extern "C" fn esker_merge(
    keyspace: Option<&esker_keyspace>,
    txn: Option<&mut esker_txn<'_>>,
    key: esker_slice<'_>,
    operand: esker_slice<'_>,
    error: ErrorPlace<'_>,
) -> esker_status {
    write!(
        keyspace, txn, error,
        let (key, operand) = (key.bytes()?, operand.bytes()?),
        |to, ks| to.merge(key, operand), to.merge(ks, key, operand)
    )
}

/// Removes a key, whether it exists or not. esker_remove returns what was there.
#[unsafe(no_mangle)]
pub extern "C" fn esker_delete(
    keyspace: Option<&esker_keyspace>,
    txn: Option<&mut esker_txn<'_>>,
    key: esker_slice<'_>,
    error: ErrorPlace<'_>,
) -> esker_status {
    write!(keyspace, txn, error, let key = key.bytes()?, |to, ks| to.delete(key), to.delete(ks, key))
}

/// Removes all keys of a range, at a cost that does not depend on their number.
#[unsafe(no_mangle)]
pub extern "C" fn esker_delete_range(
    keyspace: Option<&esker_keyspace>,
    txn: Option<&mut esker_txn<'_>>,
    range: esker_range<'_>,
    error: ErrorPlace<'_>,
) -> esker_status {
    write!(keyspace, txn, error, let range = range.bounds()?, |to, ks| to.delete_range(range), to.delete_range(ks, range))
}

/// Removes all keys that begin with a prefix.
#[unsafe(no_mangle)]
pub extern "C" fn esker_delete_prefix(
    keyspace: Option<&esker_keyspace>,
    txn: Option<&mut esker_txn<'_>>,
    prefix: esker_slice<'_>,
    error: ErrorPlace<'_>,
) -> esker_status {
    write!(keyspace, txn, error, let prefix = prefix.bytes()?, |to, ks| to.delete_prefix(prefix), to.delete_prefix(ks, prefix))
}

/// Runs an update that reads: in the transaction or, if there is none, as a transaction of its own.
fn update<R>(
    keyspace: Option<&esker_keyspace>,
    txn: Option<&mut esker_txn<'_>>,
    alone: impl FnOnce(&Keyspace) -> esker::Result<R>,
    within: impl FnOnce(&mut ViewMut<'_>) -> esker::Result<R>,
) -> Result<R, Failure> {
    let keyspace = &given(keyspace, "keyspace")?.keyspace;
    match txn {
        None => Ok(alone(keyspace)?),
        Some(txn) => txn.with(|transaction| within(&mut transaction.keyspace_mut(keyspace))),
    }
}

/// Removes a key and sets `old`, which may be NULL, to the value that it had. ESKER_NOT_FOUND: it had none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_remove(
    keyspace: Option<&esker_keyspace>,
    txn: Option<&mut esker_txn<'_>>,
    key: esker_slice<'_>,
    old: Option<&mut MaybeUninit<esker_value>>,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || {
        let key = key.bytes()?;
        let was = update(keyspace, txn, |ks| ks.remove(key), |view| view.remove(key))?;
        let is_there = was.is_some();
        set(old, esker_value::of(was));
        found(is_there)
    })
}

/// A value and what replaces it. `data` NULL stands for no value: the key must be missing, or is removed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct esker_swap<'a> {
    expected: esker_slice<'a>,
    new: esker_slice<'a>,
}

/// Replaces a value if it is the expected one. The new value expires when the old one would. Sets `old`,
/// which may be NULL, to the value that the key had. ESKER_NOT_SWAPPED: it has another, which stays.
#[unsafe(no_mangle)]
pub extern "C" fn esker_compare_and_swap(
    keyspace: Option<&esker_keyspace>,
    txn: Option<&mut esker_txn<'_>>,
    key: esker_slice<'_>,
    swap: esker_swap<'_>,
    old: Option<&mut MaybeUninit<esker_value>>,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || {
        let (key, expected, new) = (key.bytes()?, swap.expected.bound()?, swap.new.bound()?);
        let done = update(
            keyspace,
            txn,
            |ks| ks.compare_and_swap(key, expected, new),
            |view| view.compare_and_swap(key, expected, new),
        )?;
        set(old, esker_value::of(done.old));
        done.swapped.then_some(()).ok_or(Failure::Status(esker_status::ESKER_NOT_SWAPPED))
    })
}

/// Adds to a number of eight bytes (little-endian, two's complement; 0 if the key is missing), and sets
/// `old`, which may be NULL, to the number before. The sum wraps.
#[unsafe(no_mangle)]
pub extern "C" fn esker_fetch_add(
    keyspace: Option<&esker_keyspace>,
    txn: Option<&mut esker_txn<'_>>,
    key: esker_slice<'_>,
    add: i64,
    old: Option<&mut MaybeUninit<i64>>,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || {
        let key = key.bytes()?;
        let number = update(keyspace, txn, |ks| ks.fetch_add(key, add), |view| view.fetch_add(key, add))?;
        set(old, number);
        Ok(())
    })
}

/// Lets a key expire after some time, from now on. UINT64_MAX: it does not expire. ESKER_NOT_FOUND: there is
/// no such key.
#[unsafe(no_mangle)]
pub extern "C" fn esker_expire(
    keyspace: Option<&esker_keyspace>,
    txn: Option<&mut esker_txn<'_>>,
    key: esker_slice<'_>,
    milliseconds: u64,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || {
        let key = key.bytes()?;
        let is_there = match milliseconds {
            u64::MAX => update(keyspace, txn, |ks| ks.persist(key), |view| view.persist(key))?,
            milliseconds => {
                let ttl = Duration::from_millis(milliseconds);
                update(keyspace, txn, |ks| ks.expire(key, ttl), |view| view.expire(key, ttl))?
            }
        };
        found(is_there)
    })
}
