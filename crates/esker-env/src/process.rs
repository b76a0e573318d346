//! Caches the process id, and queries the limit of descriptors.
//!
//! After a fork, the child must not see its parent's id: a fork handler clears the cache before `fork`
//! returns. Without a handler, each call asks the system.
#![cfg_attr(unix, expect(unsafe_code, reason = "pthread_atfork has no safe wrapper"))]

#[cfg(unix)]
use std::sync::OnceLock;
#[cfg(unix)]
use std::sync::atomic::{AtomicU32, Ordering};

/// The cached id; 0 before the first call and after a fork. Relaxed: each thread reads 0 or the right id,
/// since a forked child begins with one thread, which stored the 0.
#[cfg(unix)]
static KNOWN: AtomicU32 = AtomicU32::new(0);

/// Returns the process id, or 0 on platforms without one, where `std` would panic.
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
    static CLEARS_ON_FORK: OnceLock<bool> = OnceLock::new();
    let clears_on_fork = *CLEARS_ON_FORK.get_or_init(|| {
        // SAFETY: the handler runs in the forked child of a multithreaded process, where only
        // async-signal-safe code may run. It stores an integer and lives as long as the program.
        unsafe { libc::pthread_atfork(None, None, Some(forget)) == 0 }
    });
    let id = std::process::id();
    if clears_on_fork {
        KNOWN.store(id, Ordering::Relaxed);
    }
    id
}

/// Returns the process id, or 0 on platforms without one, where `std` would panic.
#[cfg(not(unix))]
pub(crate) fn process_id() -> u32 {
    if cfg!(target_family = "wasm") { 0 } else { std::process::id() }
}

/// Returns the limit of descriptors of this process, if there is one.
#[cfg(unix)]
pub(crate) fn descriptors_max() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

/// Returns the limit of descriptors of this process, if there is one.
#[cfg(not(unix))]
pub(crate) fn descriptors_max() -> Option<u64> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_child_of_a_fork_has_a_number_of_its_own() {
        assert_eq!([process_id(); 2], [std::process::id(), process_id()]);
        // SAFETY: the child calls only async-signal-safe code and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_right = KNOWN.load(Ordering::Relaxed) == 0 && process_id() == std::process::id();
            // SAFETY: exits without running handlers registered by other threads.
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        let mut status = -1;
        // SAFETY: the child is ours, and `status` is a local variable.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    }
}
