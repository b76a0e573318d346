//! A pool of read transactions of libmdbx. Beginning a transaction allocates it and takes the lock of the
//! reader table, for which all threads wait with MDBX_NOSTICKYTHREADS. `mdbx_txn_reset` and `mdbx_txn_renew`,
//! which the binding lacks, avoid both.
//!
//! ```text
//! lend -> renew a parked transaction, or begin one -> get, range, keys, len at its snapshot -> reset -> park
//! ```
//!
//! - A parked transaction is reset: it has no snapshot and does not delay the reuse of pages.
//! - A transaction is either parked or lent, so one thread at a time uses it. The binding opens environments
//!   with MDBX_NOSTICKYTHREADS, so that another thread may use it next.
//! - All transactions are aborted before the environment closes. A lent transaction borrows the pool, and the
//!   pool drops the parked ones before its handle of the environment.
//! - A transaction keeps the cursor of its first walk and binds it again for each walk, which avoids an
//!   allocation. The cursor is closed before the transaction is aborted.
#![expect(unsafe_code, reason = "resetting, renewing and walks over keys alone are mdbx's own functions")]

use std::ffi::c_void;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::{Mutex, MutexGuard, PoisonError};

use signet_libmdbx::Environment;
use signet_libmdbx::ffi::{
    MDBX_NEXT, MDBX_NOTFOUND, MDBX_SET_RANGE, MDBX_TXN_RDONLY, MDBX_cursor, MDBX_dbi, MDBX_stat, MDBX_txn,
    MDBX_val, mdbx_cursor_bind, mdbx_cursor_close, mdbx_cursor_get, mdbx_cursor_open, mdbx_dbi_stat,
    mdbx_get, mdbx_txn_abort, mdbx_txn_begin_ex, mdbx_txn_renew, mdbx_txn_reset,
};

use super::checked;
use esker_bench_api::{Failure, Result, VisitItem};

/// The transactions of one environment.
pub(super) struct Parked {
    /// Dropped before `env`.
    txns: Mutex<Vec<Txn>>,
    env: Environment,
}

impl Parked {
    pub(super) fn new(env: Environment) -> Self {
        Self { txns: Mutex::default(), env }
    }

    /// Aborts all parked transactions, before a map that they may know is removed.
    pub(super) fn clear(&self) {
        self.txns().clear();
    }

    /// Lends a transaction at the newest snapshot.
    pub(super) fn lend(&self) -> Result<Lent<'_>> {
        let parked = self.txns().pop();
        let txn = match parked {
            Some(txn) => txn.renewed()?,
            None => Txn::begin(&self.env)?,
        };
        Ok(Lent { txn: ManuallyDrop::new(txn), pool: self })
    }

    fn txns(&self) -> MutexGuard<'_, Vec<Txn>> {
        // No code panics while it holds the lock.
        self.txns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lent transaction, parked again when dropped.
pub(super) struct Lent<'pool> {
    txn: ManuallyDrop<Txn>,
    pool: &'pool Parked,
}

impl Deref for Lent<'_> {
    type Target = Txn;

    fn deref(&self) -> &Txn {
        &self.txn
    }
}

impl DerefMut for Lent<'_> {
    fn deref_mut(&mut self) -> &mut Txn {
        &mut self.txn
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        // SAFETY: it is taken only here, and not used afterwards.
        let txn = unsafe { ManuallyDrop::take(&mut self.txn) };
        // A transaction that cannot be reset has been aborted. That does not affect what it has read.
        if let Ok(txn) = txn.reset() {
            self.pool.txns().push(txn);
        }
    }
}

/// A read transaction, aborted when it is dropped.
pub(super) struct Txn {
    txn: NonNull<MDBX_txn>,
    /// Cursor of its walks.
    cursor: Option<NonNull<MDBX_cursor>>,
}

// SAFETY: a transaction is either parked or lent, so one thread at a time uses it and its cursor. The
// environment is open with MDBX_NOSTICKYTHREADS, so that another thread may use it next.
unsafe impl Send for Txn {}

impl Txn {
    fn begin(env: &Environment) -> Result<Self> {
        let mut txn = ptr::null_mut();
        let code = env.with_raw_env_ptr(|env| {
            // SAFETY: the environment is open for as long as the transaction lives.
            unsafe { mdbx_txn_begin_ex(env, ptr::null_mut(), MDBX_TXN_RDONLY, &raw mut txn, ptr::null_mut()) }
        });
        checked(code)?;
        let txn = NonNull::new(txn).ok_or_else(|| Failure::engine("a transaction that is not there"))?;
        Ok(Self { txn, cursor: None })
    }

    fn renewed(self) -> Result<Self> {
        // SAFETY: the read transaction is reset, only this thread uses it, and its environment is open.
        checked(unsafe { mdbx_txn_renew(self.txn.as_ptr()) })?;
        Ok(self)
    }

    fn reset(self) -> Result<Self> {
        // SAFETY: the read transaction runs, only this thread uses it, and its environment is open.
        checked(unsafe { mdbx_txn_reset(self.txn.as_ptr()) })?;
        Ok(self)
    }

    /// Passes the value of `key` in `map` to `visit`. Returns false if there is none.
    pub(super) fn get(&self, map: MDBX_dbi, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let (key, mut value) = (place_of(key), place_of(&[]));
        // SAFETY: the transaction runs, `key` is only read, and `value` may be written.
        let code = unsafe { mdbx_get(self.txn.as_ptr(), map, &raw const key, &raw mut value) };
        if code == MDBX_NOTFOUND {
            return Ok(false);
        }
        checked(code)?;
        // SAFETY: mdbx found the value there in its map, which is not written to before the transaction ends.
        visit(unsafe { bytes_at(&value) });
        Ok(true)
    }

    /// Passes up to `limit` items of `map` from the first key >= `from` to `visit`. Returns their number.
    pub(super) fn range(
        &mut self,
        map: MDBX_dbi,
        from: &[u8],
        limit: u64,
        visit: VisitItem<'_>,
    ) -> Result<u64> {
        self.walk::<true>(map, from, limit, visit)
    }

    /// Does the same with keys only. mdbx does not read values if it gets no pointer for them.
    pub(super) fn keys(
        &mut self,
        map: MDBX_dbi,
        from: &[u8],
        limit: u64,
        visit: &mut dyn FnMut(&[u8]),
    ) -> Result<u64> {
        self.walk::<false>(map, from, limit, |key, _| visit(key))
    }

    fn walk<const VALUES: bool>(
        &mut self,
        map: MDBX_dbi,
        from: &[u8],
        limit: u64,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<u64> {
        let cursor = self.cursor_in(map)?.as_ptr();
        let (mut key, mut value) = (place_of(from), place_of(&[]));
        let (mut step, mut seen) = (MDBX_SET_RANGE, 0);
        while seen < limit {
            let value_place = if VALUES { &raw mut value } else { ptr::null_mut() };
            // SAFETY: the cursor and its transaction are open, and only this thread uses them. mdbx reads
            // `key` in the first step and replaces it in the others. It replaces `value` in each step if it
            // gets a pointer to it.
            let code = unsafe { mdbx_cursor_get(cursor, &raw mut key, value_place, step) };
            if code == MDBX_NOTFOUND {
                break;
            }
            checked(code)?;
            // SAFETY: mdbx set both to bytes of its map, which is not written to before the transaction ends.
            // Without a pointer to it, `value` is empty.
            let (shown_key, shown_value) = unsafe { (bytes_at(&key), bytes_at(&value)) };
            visit(shown_key, shown_value);
            seen += 1;
            step = MDBX_NEXT;
        }
        Ok(seen)
    }

    /// Returns the number of items of `map`.
    pub(super) fn len(&self, map: MDBX_dbi) -> Result<u64> {
        let mut stat = MaybeUninit::<MDBX_stat>::uninit();
        let (place, bytes) = (stat.as_mut_ptr(), size_of::<MDBX_stat>());
        // SAFETY: the transaction runs, and `place` points to `bytes` bytes that may be written.
        checked(unsafe { mdbx_dbi_stat(self.txn.as_ptr(), map, place, bytes) })?;
        // SAFETY: mdbx has written all of it.
        Ok(unsafe { stat.assume_init() }.ms_entries)
    }

    /// Returns the transaction's cursor, bound to `map`.
    fn cursor_in(&mut self, map: MDBX_dbi) -> Result<NonNull<MDBX_cursor>> {
        if let Some(cursor) = self.cursor {
            // SAFETY: the transaction runs, and its own cursor is open.
            checked(unsafe { mdbx_cursor_bind(self.txn.as_ptr(), cursor.as_ptr(), map) })?;
            return Ok(cursor);
        }
        let mut cursor = ptr::null_mut();
        // SAFETY: the transaction runs, and `cursor` may be written.
        checked(unsafe { mdbx_cursor_open(self.txn.as_ptr(), map, &raw mut cursor) })?;
        let cursor = NonNull::new(cursor).ok_or_else(|| Failure::engine("a cursor that is not there"))?;
        self.cursor = Some(cursor);
        Ok(cursor)
    }
}

impl Drop for Txn {
    fn drop(&mut self) {
        if let Some(cursor) = self.cursor {
            // SAFETY: the cursor is open until here. Its transaction is running or reset.
            unsafe { mdbx_cursor_close(cursor.as_ptr()) };
        }
        // SAFETY: the handle is valid until it is aborted, which happens only here, and its environment is
        // open. The handle is freed whatever the returned code.
        let _ = unsafe { mdbx_txn_abort(self.txn.as_ptr()) };
    }
}

/// Returns the pointer and length of bytes that mdbx reads.
fn place_of(bytes: &[u8]) -> MDBX_val {
    MDBX_val { iov_base: bytes.as_ptr().cast::<c_void>().cast_mut(), iov_len: bytes.len() }
}

/// Returns the bytes at a pointer and length.
///
/// # Safety
/// Unless its length is 0, its address points to that many bytes, which are not written to for `'bytes`.
unsafe fn bytes_at<'bytes>(place: &MDBX_val) -> &'bytes [u8] {
    if place.iov_len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(place.iov_base.cast::<u8>(), place.iov_len) }
}

#[cfg(test)]
mod tests {
    use super::super::Settings;
    use super::*;
    use esker_bench_api::OpenOptions;
    use signet_libmdbx::WriteFlags;

    #[test]
    fn what_was_lent_is_lent_again_at_the_newest_snapshot_with_its_cursor() {
        let dir = tempfile::tempdir().unwrap();
        let env = Settings::new(&OpenOptions::with_cache(1 << 24)).open(dir.path(), 0).unwrap();
        let map = env.begin_ro_unsync().unwrap().open_db(None).unwrap();
        let put = |key: u8| {
            let txn = env.begin_rw_unsync().unwrap();
            txn.put(map, [key], [key], WriteFlags::UPSERT).unwrap();
            txn.commit().unwrap();
        };
        let keys = |txn: &mut Txn| {
            let mut keys = Vec::new();
            let seen = txn.keys(map.dbi(), &[], 9, &mut |key| keys.extend_from_slice(key)).unwrap();
            assert_eq!((seen, txn.len(map.dbi()).unwrap()), (keys.len() as u64, keys.len() as u64));
            keys
        };
        let parked = Parked::new(env.clone());
        put(1);
        let mut first = parked.lend().unwrap();
        assert_eq!(keys(&mut first), [1]);
        put(2);
        let mut second = parked.lend().unwrap();
        assert_eq!((keys(&mut first), keys(&mut second)), (vec![1], vec![1, 2]));
        drop(first);
        let (txn, cursor) = (second.txn.txn, second.cursor);
        drop(second);
        assert_eq!(parked.txns().len(), 2);
        put(3);
        let mut again = parked.lend().unwrap();
        assert_eq!((again.txn.txn, parked.txns().len()), (txn, 1));
        assert_eq!(keys(&mut again), [1, 2, 3]);
        assert!(cursor.is_some() && again.cursor == cursor);
        drop(again);
        parked.clear();
        assert_eq!(parked.txns().len(), 0);
    }
}
