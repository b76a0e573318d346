//! The number of this process, at the cost of a load; and how many descriptors it may have.
//!
//! process.1. In a child of a fork the number is the child's: the number is forgotten there before `fork` returns. Where nobody can be told of
//!      forks it is asked for each time, which is a system call.
#![cfg_attr(unix, expect(unsafe_code, reason = "pthread_atfork has no safe wrapper"))]

#[cfg(unix)]
use std::sync::OnceLock;
#[cfg(unix)]
use std::sync::atomic::{AtomicU32, Ordering};

/// The number, once it was asked for; 0 before and after a fork. Relaxed: each thread finds 0 or the number of its process, since a child
/// begins with one thread, which has stored the 0.
#[cfg(unix)]
static KNOWN: AtomicU32 = AtomicU32::new(0);

/// The operating system's number of this process; 0 where there are none, and asking for one would panic.
#[cfg(unix)]
#[inline]
pub(crate) fn process_id() -> u32 {
    match KNOWN.load(Ordering::Relaxed) {
        0 => ask(),
        known => known,
    }
}

#[cfg(unix)]
#[cold]
fn ask() -> u32 {
    extern "C" fn forget() {
        KNOWN.store(0, Ordering::Relaxed);
    }
    static IS_TOLD_OF_FORKS: OnceLock<bool> = OnceLock::new();
    let is_told = *IS_TOLD_OF_FORKS.get_or_init(|| {
        // SAFETY: the handler may run in a child of a process with several threads, where only what is safe in signal handlers may be called:
        // it stores a number, and lives as long as the program.
        unsafe { libc::pthread_atfork(None, None, Some(forget)) == 0 }
    });
    let id = std::process::id();
    if is_told {
        KNOWN.store(id, Ordering::Relaxed);
    }
    id
}

/// The operating system's number of this process; 0 where there are none, and asking for one would panic.
#[cfg(not(unix))]
pub(crate) fn process_id() -> u32 {
    if cfg!(target_family = "wasm") { 0 } else { std::process::id() }
}

/// How many descriptors this process may have, if the system limits them.
#[cfg(unix)]
pub(crate) fn descriptors_max() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

/// How many descriptors this process may have, if the system limits them.
#[cfg(not(unix))]
pub(crate) fn descriptors_max() -> Option<u64> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn process_1_a_child_of_a_fork_has_a_number_of_its_own() {
        assert_eq!([process_id(); 2], [std::process::id(), process_id()]);
        // SAFETY: the child calls nothing but what is safe in signal handlers, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_right = KNOWN.load(Ordering::Relaxed) == 0 && process_id() == std::process::id();
            // SAFETY: ends the process without running what its threads have registered.
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        let mut status = -1;
        // SAFETY: the child is ours, and the status a place of this function.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "process.1");
    }
}
