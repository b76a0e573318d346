//! Starting children of a process that opens databases itself.
//!
//! A child that is being started holds, until it runs its program, copies of all files that are open here, and with them the
//! locks of databases, also after they are closed here. Campaigns are run side by side by tests.
//!
//! gate.1. No child is started while a database is open.

use std::io;
use std::process::{Child, Command};

use parking_lot::{RwLock, RwLockReadGuard};

static GATE: RwLock<()> = RwLock::new(());

/// Starts a child; it runs its program when this returns.
pub(crate) fn start(command: &mut Command) -> io::Result<Child> {
    let _shut = GATE.write();
    command.spawn()
}

/// To be held while a database is open.
pub(crate) fn no_child_starts() -> RwLockReadGuard<'static, ()> {
    GATE.read()
}
