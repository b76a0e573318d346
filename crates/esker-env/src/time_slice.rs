//! Time slices of threads that do long work, on Linux.
//!
//! From version 6.12 on, Linux lets a thread that wakes up interrupt a running one if its time slice is
//! shorter. Otherwise it may wait until the slice of the running thread ends, some 3 ms. The shares of
//! processor time stay the same. The source of the technique is the scheduler EEVDF (`sched_setattr(2)`).
#![cfg_attr(all(target_os = "linux", not(miri)), expect(unsafe_code, reason = "rustix has no sched_setattr"))]

/// Slice of a thread that does long work. A longer one also makes the thread wait longer for its next turn.
#[cfg(all(target_os = "linux", not(miri)))]
const SLICE_NS: u64 = 8_000_000;

/// Gives the calling thread a long time slice, unless it has a policy other than the usual one. An older
/// system refuses or ignores it.
#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) fn give_way() {
    let size = size_of::<libc::sched_attr>() as u32;
    // SAFETY: all bytes zero are a valid value of this structure of numbers.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes at most `size` bytes. 0 means the calling thread.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    if got == 0 && attributes.sched_policy == libc::SCHED_OTHER as u32 {
        attributes.size = size;
        attributes.sched_runtime = SLICE_NS;
        // SAFETY: the call reads `size` bytes.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    }
}

/// Does nothing.
#[cfg(not(all(target_os = "linux", not(miri))))]
pub(crate) fn give_way() {}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;

    fn attributes() -> libc::sched_attr {
        let size = size_of::<libc::sched_attr>() as u32;
        // SAFETY: as in `give_way`.
        let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
        // SAFETY: as in `give_way`.
        let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
        assert_eq!(got, 0);
        attributes
    }

    #[test]
    fn a_thread_gets_a_long_slice_unless_it_has_another_policy() {
        let of_thread = |policy| {
            let work = move || {
                let mut wanted = attributes();
                wanted.size = size_of::<libc::sched_attr>() as u32;
                wanted.sched_policy = policy as u32;
                // SAFETY: as in `give_way`.
                assert_eq!(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) }, 0);
                let before = attributes();
                give_way();
                let after = attributes();
                assert_eq!((after.sched_policy, after.sched_nice), (policy as u32, before.sched_nice));
                (before.sched_runtime, after.sched_runtime)
            };
            std::thread::scope(|scope| scope.spawn(work).join().unwrap())
        };
        // Before version 6.12, the system shows no slices.
        let (before, after) = of_thread(libc::SCHED_OTHER);
        assert!(before == 0 || after == SLICE_NS, "{before} {after}");
        let (before, after) = of_thread(libc::SCHED_BATCH);
        assert_eq!(before, after);
    }
}
