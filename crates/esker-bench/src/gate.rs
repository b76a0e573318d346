//! Tests of one process that start children, beside tests that open a database again that was open before.
//!
//! A child that is being started holds, until it runs its program, copies of all files that are open here,
//! and with them the locks of databases, also after they are closed here.
//!
//! No child is started while such a database is open.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static GATE: RwLock<()> = RwLock::new(());

/// To be held while a database is open that will be opened again.
pub(crate) fn no_child_starts() -> RwLockReadGuard<'static, ()> {
    GATE.read().unwrap_or_else(PoisonError::into_inner)
}

/// To be held while a child is started.
pub(crate) fn no_database_is_open() -> RwLockWriteGuard<'static, ()> {
    GATE.write().unwrap_or_else(PoisonError::into_inner)
}
