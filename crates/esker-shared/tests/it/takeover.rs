//! The host goes, or its socket does: another process takes over.

use std::path::Path;
use std::time::{Duration, Instant};

use esker::{Db, Durability};
use esker_shared::{Error, Result, Shared, SharedKeyspace, SharedTransaction};

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn open(dir: &Path) -> Shared {
    Shared::builder().wait(Duration::from_secs(20)).open(dir).unwrap()
}

#[test]
fn one_of_the_guests_takes_over_by_itself_and_handles_stay_valid() {
    let dir = tempfile::tempdir().unwrap();
    let mut all: Vec<Shared> = (0..4).map(|_| open(dir.path())).collect();
    let mut handles: Vec<_> = all.iter().map(|shared| shared.keyspace("k").unwrap()).collect();
    for round in 0..3_u8 {
        let at = all.iter().position(Shared::is_host).unwrap();
        let host = all.remove(at);
        handles.remove(at);
        let snapshot = all[0].snapshot().unwrap();
        let mut left_open = all[0].begin().unwrap();
        left_open.put(&handles[0], "lost", "x").unwrap();
        handles[0].put([round], "kept").unwrap();
        host.close().unwrap();
        wait_until("no guest has taken over", || all.iter().any(Shared::is_host));
        for ks in &handles {
            assert_eq!(ks.len().unwrap(), u64::from(round) + 1);
        }
        assert!(matches!(snapshot.get(&handles[0], "a"), Err(Error::HostGone)));
        assert!(matches!(left_open.commit(), Err(Error::HostGone)));
    }
}

#[test]
fn what_a_guest_holds_ends_with_the_host_and_transact_runs_again() {
    let dir = tempfile::tempdir().unwrap();
    let (host, guest) = (open(dir.path()), open(dir.path()));
    let ks = guest.keyspace("k").unwrap();
    for n in 0..1000_u32 {
        ks.with(Durability::Buffered).put(n.to_be_bytes(), "").unwrap();
    }
    let (snapshot, mut range) = (guest.snapshot().unwrap(), ks.iter());
    range.next().unwrap().unwrap();
    let mut host = Some(host);
    let mut runs = 0;
    guest
        .transact(|t| {
            runs += 1;
            t.put(&ks, "once", "1")?;
            if let Some(host) = host.take() {
                host.close().unwrap();
            }
            t.fetch_add(&ks, "count", 1)
        })
        .unwrap();
    assert_eq!((runs, ks.fetch_add("count", 0).unwrap()), (2, 1));
    assert!(matches!(snapshot.get(&ks, "a"), Err(Error::HostGone)));
    assert!(matches!(range.find_map(Result::err), Some(Error::HostGone)));
    assert!(range.next().is_none());
    assert!(guest.is_host());
}

#[test]
fn a_part_that_loses_its_host_has_the_whole_transaction_run_again() {
    let dir = tempfile::tempdir().unwrap();
    let (host, guest) = (open(dir.path()), open(dir.path()));
    let ks = guest.keyspace("k").unwrap();
    let mut host = Some(host);
    let mut runs = 0;
    guest
        .transact(|t| {
            runs += 1;
            t.put(&ks, "before", "1")?;
            t.nested(|t| {
                t.put(&ks, "within", "1")?;
                if let Some(host) = host.take() {
                    host.close().unwrap();
                }
                t.fetch_add(&ks, "count", 1)
            })
        })
        .unwrap();
    assert_eq!((runs, ks.fetch_add("count", 0).unwrap(), ks.len().unwrap()), (2, 1, 3));
}

#[test]
fn a_read_of_a_range_that_loses_its_host_has_the_transaction_run_again() {
    type ReadEnd = fn(&mut SharedTransaction, &SharedKeyspace) -> Result<bool>;
    let reads: [ReadEnd; 5] = [
        |t, ks| t.range(ks, ..).next().transpose().map(|entry| entry.is_none()),
        |t, ks| t.first(ks).map(|entry| entry.is_none()),
        |t, ks| t.is_empty(ks),
        |t, ks| t.pop_first(ks).map(|entry| entry.is_none()),
        |t, ks| t.pop_last(ks).map(|entry| entry.is_none()),
    ];
    for (at, read) in reads.into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let (host, guest) = (open(dir.path()), open(dir.path()));
        let ks = guest.keyspace("k").unwrap();
        let mut host = Some(host);
        let mut runs = 0;
        let is_empty = guest.transact(|t| {
            runs += 1;
            if let Some(host) = host.take() {
                host.close().unwrap();
            }
            read(t, &ks)
        });
        assert_eq!((is_empty.unwrap(), runs), (true, 2), "read {at}");
    }
}

#[test]
fn a_removed_socket_and_a_stale_one_are_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("SOCKET");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    std::fs::write(dir.path().join("SOCKET-new"), "left").unwrap();
    let host = open(dir.path());
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600, "socket.2");
    std::fs::remove_file(&path).unwrap();
    let guest = open(dir.path());
    guest.keyspace("k").unwrap().put("a", "1").unwrap();
    assert!(!guest.is_host());
    host.close().unwrap();
    wait_until("no takeover", || guest.is_host());
    guest.close().unwrap();
    assert!(!path.exists(), "a clean end removes it");
}

#[test]
fn a_removed_database_is_not_replaced_by_an_empty_one() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("db");
    let (host, guest) = (open(&dir), open(&dir));
    guest.keyspace("k").unwrap().put("a", "1").unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    // Its log has lost its name.
    let _ = host.close();
    let gone = guest.keyspace("k");
    assert!(matches!(gone, Err(Error::Db(esker::Error::NotFound(_)))), "{gone:?}");
    assert!(!dir.join("CURRENT").exists());
}

#[test]
fn a_directory_with_a_long_path_has_a_socket_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let long = dir.path().join("d".repeat(120)).join("e".repeat(120));
    std::fs::create_dir_all(&long).unwrap();
    let (_host, guest) = (open(&long), open(&long));
    guest.keyspace("k").unwrap().put("a", "1").unwrap();
    assert!(!guest.is_host());
}

#[test]
fn a_process_that_does_not_serve_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    let refused = Shared::builder().wait(Duration::from_millis(50)).open(dir.path());
    let Err(Error::NoHost { why, .. }) = &refused else { panic!("{refused:?}") };
    assert!(why.contains(&std::process::id().to_string()), "{why}");
    db.close().unwrap();
    open(dir.path());
}

#[test]
fn a_program_that_closes_its_database_ends_its_role() {
    let dir = tempfile::tempdir().unwrap();
    let (host, guest) = (open(dir.path()), open(dir.path()));
    let ks = guest.keyspace("k").unwrap();
    ks.put("a", "1").unwrap();
    host.db().unwrap().close().unwrap();
    ks.put("b", "2").unwrap();
    assert!(guest.is_host());
    drop(host);
    assert!(dir.path().join("SOCKET").exists(), "socket.1: it belongs to the new host");
    assert_eq!(open(dir.path()).keyspace("k").unwrap().len().unwrap(), 2);
}

#[test]
fn an_idle_transaction_ends_and_frees_its_locks() {
    let dir = tempfile::tempdir().unwrap();
    let builder = Shared::builder().transaction_idle(Duration::from_millis(100));
    let (host, guest) = (builder.clone().open(dir.path()).unwrap(), builder.open(dir.path()).unwrap());
    let ks = host.keyspace("k").unwrap();
    let of_guest = guest.keyspace("k").unwrap();
    let exclusive = guest.transaction().isolation(esker::Isolation::Exclusive);
    let mut idle = exclusive.begin().unwrap();
    idle.put(&of_guest, "idle", "x").unwrap();
    ks.put("a", "1").unwrap();
    assert!(matches!(idle.commit(), Err(Error::HostGone)));
    assert_eq!(of_guest.get("idle").unwrap(), None);
}

#[test]
fn tools_pass_over_the_socket() {
    let dir = tempfile::tempdir().unwrap();
    let (host, guest) = (open(dir.path()), open(dir.path()));
    guest.keyspace("k").unwrap().put("a", "1").unwrap();
    let db = host.db().unwrap();
    let target = tempfile::tempdir().unwrap();
    db.checkpoint(target.path().join("copy")).unwrap();
    let mut backup = esker::backup::Backup::open(target.path().join("backups")).unwrap();
    backup.create(&db).unwrap();
    let id = backup.list().unwrap().pop().unwrap().id;
    backup.restore(target.path().join("restored")).backup(id).run().unwrap();
    for copy in ["copy", "restored"] {
        assert!(!target.path().join(copy).join("SOCKET").exists());
        let copy = open(&target.path().join(copy));
        assert_eq!(copy.keyspace("k").unwrap().get("a").unwrap().as_deref(), Some(&b"1"[..]));
    }
    let follower = Db::open_follower(dir.path()).unwrap();
    assert_eq!(follower.db().open_keyspace("k").unwrap().len().unwrap(), 1);
    drop((host, guest, db, follower));
    // As kill -9 leaves it.
    drop(std::os::unix::net::UnixListener::bind(dir.path().join("SOCKET")).unwrap());
    assert_eq!(esker::check_offline(dir.path()).unwrap().problems, Vec::<String>::new());
    esker::repair(dir.path(), target.path().join("repaired")).unwrap();
    assert_eq!(Db::open_read_only(dir.path()).unwrap().open_keyspace("k").unwrap().len().unwrap(), 1);
}
