//! Starts children of a process that also opens databases.
//!
//! Between fork and exec, a child holds copies of all open files of this process, and with them the locks of
//! databases, even after they are closed here. Tests run campaigns concurrently, so no child is started while
//! a database is open.

use std::io;
use std::process::{Child, Command};

use parking_lot::{RwLock, RwLockReadGuard};

static GATE: RwLock<()> = RwLock::new(());

/// Starts a child. When this returns, it runs its program.
pub(crate) fn start(command: &mut Command) -> io::Result<Child> {
    let _shut = GATE.write();
    command.spawn()
}

/// Returns a guard to hold while a database is open.
pub(crate) fn no_child_starts() -> RwLockReadGuard<'static, ()> {
    GATE.read()
}
