//! Detects that standard output was closed when the program started, as in `esker export >&-`.
//!
//! The check must run before `main`: the standard library opens /dev/null in place of a closed descriptor,
//! and all output would then vanish without an error.
#![expect(unsafe_code, reason = "only a function that runs before the standard library's own can see it")]

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Returns whether standard output was closed at the start.
pub(crate) fn stdout_was_closed() -> bool {
    // Relaxed: the value is written before other threads exist.
    WAS_CLOSED.load(Ordering::Relaxed)
}

// SAFETY: the loader calls the functions of this section once, before `main`, with its arguments. `look`
// takes none, which the calling convention allows, and uses only an atomic and a system call, neither of
// which needs the standard library to be initialized.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: the descriptor is only queried, and only here; a closed one makes the query fail.
    let stdout = unsafe { BorrowedFd::borrow_raw(1) };
    WAS_CLOSED.store(rustix::io::fcntl_getfd(stdout).is_err(), Ordering::Relaxed);
}
