//! A real fork: the child has the handles of its parent, and may not use them. Each test has a process of its
//! own, because the child of a fork inherits locks that other threads hold at that moment.
#![expect(unsafe_code, reason = "a fork has no safe wrapper")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use esker::Error as DbError;
use esker_shared::{Error, Shared};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::kill::{Killed, of_child, start, wait_for};
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

/// A host, with a guest in the same process, that starts another program and notes its process.
#[test]
fn host_of_a_program() {
    let Some((dir, _)) = of_child() else { return };
    let open = || Shared::open(dir.join("db")).unwrap();
    let (host, guest) = (open(), open());
    guest.keyspace("k").unwrap().put("a", "1").unwrap();
    let mut program = Command::new("sleep").arg("600").spawn().unwrap();
    note(&dir, program.id());
    program.wait().unwrap();
    drop((host, guest));
}

/// A host whose fork goes on without `exec`, and notes the fork.
#[test]
fn host_of_a_fork() {
    let Some((dir, _)) = of_child() else { return };
    let host = Shared::open(dir.join("db")).unwrap();
    host.keyspace("k").unwrap().put("a", "1").unwrap();
    // SAFETY: the child only sleeps.
    let pid = unsafe { fork() };
    if pid != 0 {
        note(&dir, pid.cast_unsigned());
    }
    std::thread::sleep(Duration::from_secs(600));
}

fn note(dir: &Path, pid: u32) {
    std::fs::write(dir.join("new"), pid.to_string()).unwrap();
    std::fs::rename(dir.join("new"), dir.join("child")).unwrap();
}

/// A process that ends with its test.
struct Ends(Pid);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::KILL);
    }
}

/// Starts a host, which starts a child, and returns both.
fn start_both(dir: &Path, host: &str) -> (Killed, Ends) {
    let host = Killed(start(dir, host, 0));
    wait_for(&dir.join("child"));
    let child: i32 = std::fs::read_to_string(dir.join("child")).unwrap().parse().unwrap();
    (host, Ends(Pid::from_raw(child).unwrap()))
}

#[test]
fn a_program_that_outlives_the_host_that_started_it_holds_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (mut host, child) = start_both(dir.path(), "fork::host_of_a_program");
    let guest = Shared::builder().wait(Duration::from_secs(20)).open(dir.path().join("db")).unwrap();
    let ks = guest.keyspace("k").unwrap();
    host.kill();
    ks.put("b", "1").unwrap();
    assert!(guest.is_host());
    assert_eq!(rustix::process::test_kill_process(child.0), Ok(()), "it still runs");
    for entry in std::fs::read_dir(format!("/proc/{}/fd", child.0.as_raw_nonzero())).into_iter().flatten() {
        let target = std::fs::read_link(entry.unwrap().path()).unwrap_or_default();
        let is_ours = target.starts_with(dir.path()) || target.to_string_lossy().starts_with("socket:");
        assert!(!is_ours, "it has inherited {}", target.display());
    }
}

#[test]
fn a_fork_that_outlives_its_host_keeps_the_lock_until_it_ends() {
    let dir = tempfile::tempdir().unwrap();
    let (mut host, child) = start_both(dir.path(), "fork::host_of_a_fork");
    let guest = Shared::builder().wait(Duration::from_secs(2)).open(dir.path().join("db")).unwrap();
    let ks = guest.keyspace("k").unwrap();
    host.kill();
    let refused = ks.get("a");
    let Err(Error::NoHost { why, .. }) = &refused else { panic!("{refused:?}") };
    assert!(why.contains("a child that it forked lives on"), "{why}");
    drop(child);
    let until = Instant::now() + Duration::from_secs(20);
    while !guest.is_host() {
        assert!(Instant::now() < until, "no takeover");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(ks.get("a").unwrap().as_deref(), Some(&b"1"[..]));
}
