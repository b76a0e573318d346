//! Single gets of libmdbx, each at the newest snapshot, through read transactions that are kept: beginning one anew allocates it and takes a
//! lock of the reader table, which `mdbx_txn_reset` and `mdbx_txn_renew` save. The binding does not have them.
//!
//!   get -> renew a parked transaction, or begin one -> mdbx_get, the value is lent -> reset -> park
//!
//! P1. A parked transaction is reset: it has no snapshot, and keeps no page from being used again.
//! P2. A transaction is either parked or with the one get that took it, so one thread uses it; the binding opens environments with
//!     MDBX_NOSTICKYTHREADS, which lets the next be another.
//! P3. All transactions are aborted before the environment closes: a get borrows the pool, and the pool drops them before its handle of the
//!     environment.
#![expect(unsafe_code, reason = "resetting and renewing are mdbx's own functions")]

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, PoisonError};

use signet_libmdbx::Environment;
use signet_libmdbx::ffi::{
    MDBX_NOTFOUND, MDBX_TXN_RDONLY, MDBX_dbi, MDBX_txn, MDBX_val, mdbx_get, mdbx_txn_abort,
    mdbx_txn_begin_ex, mdbx_txn_renew, mdbx_txn_reset,
};

use super::checked;
use esker_bench_api::Failure;

/// The transactions of one environment.
pub(super) struct Parked {
    /// Dropped before `env` (P3).
    txns: Mutex<Vec<Txn>>,
    env: Environment,
}

impl Parked {
    pub(super) fn new(env: Environment) -> Self {
        Self { txns: Mutex::default(), env }
    }

    /// Aborts all that are parked: before a map goes that they may know.
    pub(super) fn clear(&self) {
        self.txns().clear();
    }

    /// Shows the newest value of `key` in `map` to `visit`; false when there is none.
    pub(super) fn get(
        &self,
        map: MDBX_dbi,
        key: &[u8],
        visit: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, Failure> {
        let parked = self.txns().pop();
        let txn = match parked {
            Some(txn) => txn.renewed()?,
            None => Txn::begin(&self.env)?,
        };
        let found = txn.get(map, key, visit)?;
        let txn = txn.reset()?;
        self.txns().push(txn);
        Ok(found)
    }

    fn txns(&self) -> MutexGuard<'_, Vec<Txn>> {
        // Nothing panics while it is locked.
        self.txns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A read transaction, aborted when it is dropped.
struct Txn(NonNull<MDBX_txn>);

// SAFETY: P2.
unsafe impl Send for Txn {}

impl Txn {
    fn begin(env: &Environment) -> Result<Self, Failure> {
        let mut txn = ptr::null_mut();
        let code = env.with_raw_env_ptr(|env| {
            // SAFETY: the environment is open, and stays so for as long as the transaction lives (P3).
            unsafe { mdbx_txn_begin_ex(env, ptr::null_mut(), MDBX_TXN_RDONLY, &raw mut txn, ptr::null_mut()) }
        });
        checked(code)?;
        NonNull::new(txn).map(Self).ok_or_else(|| Failure::engine("a transaction that is not there"))
    }

    fn renewed(self) -> Result<Self, Failure> {
        // SAFETY: a read transaction that is reset (P1), used by this thread alone (P2), of an open environment (P3).
        checked(unsafe { mdbx_txn_renew(self.0.as_ptr()) })?;
        Ok(self)
    }

    fn reset(self) -> Result<Self, Failure> {
        // SAFETY: a read transaction that runs, used by this thread alone (P2), of an open environment (P3).
        checked(unsafe { mdbx_txn_reset(self.0.as_ptr()) })?;
        Ok(self)
    }

    fn get(&self, map: MDBX_dbi, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, Failure> {
        let key = MDBX_val { iov_base: key.as_ptr().cast::<c_void>().cast_mut(), iov_len: key.len() };
        let mut value = MDBX_val { iov_base: ptr::null_mut(), iov_len: 0 };
        // SAFETY: the transaction runs, `key` is only read, and `value` is there to be written.
        let code = unsafe { mdbx_get(self.0.as_ptr(), map, &raw const key, &raw mut value) };
        if code == MDBX_NOTFOUND {
            return Ok(false);
        }
        checked(code)?;
        if value.iov_len == 0 {
            visit(&[]);
        } else {
            // SAFETY: mdbx found so many bytes at this address of its map, which nobody writes to before the transaction ends.
            visit(unsafe { std::slice::from_raw_parts(value.iov_base.cast::<u8>(), value.iov_len) });
        }
        Ok(true)
    }
}

impl Drop for Txn {
    fn drop(&mut self) {
        // SAFETY: the handle is valid until it is aborted, which happens here alone, and its environment is open (P3). The
        // code that is returned says nothing of use: the handle is gone.
        let _ = unsafe { mdbx_txn_abort(self.0.as_ptr()) };
    }
}
