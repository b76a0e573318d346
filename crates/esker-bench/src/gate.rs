//! A lock between tests of one process: some start children, and some open a database again that was open
//! before.
//!
//! Until a child runs its program, it holds copies of all open files of this process, and thus the locks of
//! databases. It holds them even after the databases are closed here. So no child is started while such a
//! database is open.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static GATE: RwLock<()> = RwLock::new(());

/// Hold this while a database is open that will be opened again.
pub(crate) fn no_child_starts() -> RwLockReadGuard<'static, ()> {
    GATE.read().unwrap_or_else(PoisonError::into_inner)
}

/// Hold this while a child is started.
pub(crate) fn no_database_is_open() -> RwLockWriteGuard<'static, ()> {
    GATE.write().unwrap_or_else(PoisonError::into_inner)
}
