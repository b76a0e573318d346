//! Whether standard output was closed when the program started: `esker export >&-`.
//!
//! closed.1. That is asked before `main`: the standard library opens /dev/null in the place of what is closed, and then all that is written
//!      vanishes with success.
#![expect(unsafe_code, reason = "only a function that runs before the standard library's own can see it")]

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether there was no standard output.
pub(crate) fn stdout_was_closed() -> bool {
    // It was written before there were other threads.
    WAS_CLOSED.load(Ordering::Relaxed)
}

// SAFETY: what stands in this section is called with the arguments of `main`, once, before it; `look` takes none, which the calling
// convention allows. It uses nothing of the standard library that has to be set up: an atomic and a system call.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: the number is only asked about, and only here; the answer for a closed one is an error.
    let stdout = unsafe { BorrowedFd::borrow_raw(1) };
    WAS_CLOSED.store(rustix::io::fcntl_getfd(stdout).is_err(), Ordering::Relaxed);
}
