//! A real fork: the child has the handles of its parent, and may not use them. Each test has a process of its
//! own, because the child of a fork inherits locks that other threads hold at that moment.
#![expect(unsafe_code, reason = "a fork has no safe wrapper")]

use std::time::{Duration, Instant};

use esker::Error as DbError;
use esker_shared::{Error, Shared};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::own_process::ran;

unsafe extern "C" {
    fn fork() -> i32;
    fn _exit(code: i32) -> !;
}

/// Runs `child` in a fork, and `meanwhile` in this process. The child's result must come within some time.
fn forked(child: impl FnOnce() -> bool, meanwhile: impl FnOnce()) {
    // SAFETY: the child ends with _exit, so it runs nothing of the test program besides `child`.
    let pid = unsafe { fork() };
    if pid == 0 {
        let is_right = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(false);
        // SAFETY: it takes any code.
        unsafe { _exit(i32::from(!is_right)) }
    }
    let pid = Pid::from_raw(pid).unwrap();
    meanwhile();
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        match waitpid(Some(pid), WaitOptions::NOHANG).unwrap() {
            Some((_, status)) => return assert_eq!(status.exit_status(), Some(0), "the child failed"),
            None if Instant::now() > until => {
                kill_process(pid, Signal::KILL).unwrap();
                panic!("the child hangs");
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

#[test]
fn a_child_is_refused_disturbs_nothing_and_opens_again() {
    if ran(a_child_is_refused_disturbs_nothing_and_opens_again) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let open = || Shared::builder().wait(Duration::from_secs(10)).open(dir.path());
    let (host, guest) = (open().unwrap(), open().unwrap());
    let (own, ks) = (host.keyspace("k").unwrap(), guest.keyspace("k").unwrap());
    ks.put("a", "1").unwrap();
    let mut open_transaction = guest.begin().unwrap();
    open_transaction.put(&ks, "b", "2").unwrap();
    let child = || {
        let is_refused = matches!(ks.get("a"), Err(Error::Db(DbError::Forked)))
            && matches!(ks.put("a", "child"), Err(Error::Db(DbError::Forked)))
            && matches!(guest.begin().map(drop), Err(Error::Db(DbError::Forked)))
            && matches!(own.put("a", "child"), Err(Error::Db(DbError::Forked)));
        let _ = (guest.clone().close(), host.clone().close());
        let again = open().unwrap();
        let own = again.keyspace("k").unwrap();
        own.put("of the child", "3").unwrap();
        is_refused && !again.is_host() && own.get("a").unwrap().as_deref() == Some(b"1")
    };
    forked(child, || {});
    open_transaction.commit().unwrap();
    assert_eq!((ks.len().unwrap(), own.len().unwrap()), (3, 3));
    assert!(dir.path().join("SOCKET").exists());
}

#[test]
fn a_child_that_lives_on_does_not_keep_the_lock_of_a_closed_host() {
    if ran(a_child_that_lives_on_does_not_keep_the_lock_of_a_closed_host) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let open = || Shared::builder().wait(Duration::from_millis(400)).open(dir.path());
    let host = open().unwrap();
    let child = || {
        std::thread::sleep(Duration::from_secs(1));
        true
    };
    forked(child, || {
        host.close().unwrap();
        open().unwrap().keyspace("k").unwrap().put("a", "1").unwrap();
    });
}
