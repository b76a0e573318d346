//! Commands for operations of the engine.

use std::path::Path;
use std::sync::Arc;

use esker::Db;
use esker::backup::{Backup, Point};
use esker_env::{Env, Fs, MemFs, OpenOptions};
use esker_server::{BackupTarget, Fsync, Options};

use crate::harness::TestServer;
use crate::wire::Wire;

#[test]
fn copies_and_backups_are_made_where_the_operator_says() {
    let (data, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let options =
        Options { backups: Some(BackupTarget::Directory(dir.path().to_owned())), ..Options::default() };
    let server = TestServer::start_with(Db::open(data.path()).unwrap(), options);
    let mut wire = server.wire();
    wire.say("SET k before");
    assert!(wire.say("ES.CHECKPOINT copy").starts_with(':'));
    assert!(wire.say("ES.CHECKPOINT copy").starts_with("-ERR"));
    wire.say("SET k after");
    assert!(wire.say("ES.BACKUP").starts_with("*[\"id\", :1, "));
    assert!(wire.say("ES.BACKUP").starts_with("*[\"id\", :2, "));
    for name in ["../x", "a/b", ".x", "", "/tmp/x"] {
        let reply = format!("{:?}", wire.call(&["ES.CHECKPOINT", name]));
        assert!(reply.starts_with("-ERR"), "{name}: {reply}");
    }
    let mut backups = Backup::open(dir.path().join("backups")).unwrap();
    assert!(backups.verify().unwrap().is_sound());
    backups.restore(dir.path().join("restored")).backup(2).run().unwrap();
    for (name, value) in [("copy", "before"), ("restored", "after")] {
        let other = TestServer::start_with(Db::open(dir.path().join(name)).unwrap(), Options::default());
        assert_eq!(other.wire().say("GET k"), format!("\"{value}\""));
    }
    assert!(TestServer::start().wire().say("ES.BACKUP").contains("--backup-dir"));
}

#[test]
fn several_copies_at_once_in_one_place_have_different_names() {
    let (data, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let options =
        Options { backups: Some(BackupTarget::Directory(dir.path().to_owned())), ..Options::default() };
    let server = TestServer::start_with(Db::open(data.path()).unwrap(), options);
    let mut wire = server.wire();
    let refused = wire.say("ES.CHECKPOINT backups");
    assert!(refused.starts_with("-ERR this name is reserved for the backups"), "{refused}");
    wire.say("ES.BACKUP");
    // Hold the lock, like another backup.
    let _held = Env::real().fs.lock(&dir.path().join("backups/LOCK")).unwrap();
    for command in ["ES.BACKUP", "ES.BACKUP FEED"] {
        let refused = wire.say(command);
        assert!(refused.starts_with("-ERR a copy or backup is being made or read in "), "{refused}");
    }
}

#[test]
fn what_was_written_between_two_backups_comes_back_up_to_a_commit() {
    let (data, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let options =
        Options { backups: Some(BackupTarget::Directory(dir.path().to_owned())), ..Options::default() };
    let db = Db::builder().feed_retention(64 << 20, std::time::Duration::MAX).open(data.path()).unwrap();
    let server = TestServer::start_with(db.clone(), options);
    let mut wire = server.wire();
    assert!(wire.say("ES.BACKUP FEED").contains("no backup"));
    wire.say("ES.BACKUP");
    let first = db.snapshot().seqno().get() + 1;
    wire.say("SADD members ann bob");
    let good = db.snapshot().seqno();
    wire.say("FLUSHALL");
    let kept = wire.say("ES.BACKUP FEED");
    let last = db.snapshot().seqno().get();
    assert!(kept.starts_with(&format!("*[\"first\", :{first}, \"last\", :{last}, ")), "{kept}");
    assert!(wire.say("ES.BACKUP FEED").starts_with("*[\"first\", :0, "));
    assert!(wire.say("ES.BACKUP NOW").starts_with("-ERR"));
    let mut backups = Backup::open(dir.path().join("backups")).unwrap();
    let restored = dir.path().join("restored");
    backups.restore(&restored).point(Point::Commit(good)).run().unwrap();
    let other = TestServer::start_with(Db::open(&restored).unwrap(), Options::default());
    assert_eq!(other.wire().say("SCARD members"), ":2");
}

#[test]
fn the_engine_syncs_merges_and_checks_on_request() {
    let fs = MemFs::new();
    let env = Env::with_fs(Arc::new(fs.clone()));
    let options = Options { fsync: Fsync::Never, ..Options::default() };
    let server = TestServer::start_with(Db::builder().env(env).open("db").unwrap(), options);
    let mut wire = server.wire();
    let figure = |wire: &mut Wire, name: &str| {
        let stats = wire.say("ES.STATS");
        stats.split(&format!("\"{name}\", \"")).nth(1).map(|rest| rest.split('"').next().unwrap().to_owned())
    };
    wire.say("SET k v");
    assert_eq!(wire.say("ES.SYNC"), "+OK");
    let after_a_power_cut = Db::builder().env(Env::with_fs(Arc::new(fs.crash_strict()))).open("db").unwrap();
    assert!(after_a_power_cut.open_keyspace("r0").unwrap().get("k").unwrap().is_some());
    assert_eq!(figure(&mut wire, "engine_tables").as_deref(), Some("0"));
    assert_eq!(wire.say("ES.COMPACT"), "+OK");
    assert_eq!(figure(&mut wire, "engine_tables").as_deref(), Some("1"));
    assert_eq!(wire.say("ES.VERIFY"), "*[]");
    let dir = Path::new("db");
    let names = fs.list_dir(dir).unwrap();
    let table = names.iter().find(|name| name.ends_with(".sst")).unwrap();
    let file = fs.open(&dir.join(table), OpenOptions::create()).unwrap();
    file.write_all_at(&[0xFF; 16], 4).unwrap();
    assert!(wire.say("ES.VERIFY").contains(table.as_str()), "it names what is damaged");
    drop(wire);
    server.end();
}

#[test]
fn merges_go_by_the_operator_of_their_keyspace() {
    let server = TestServer::start();
    let mut wire = server.wire();
    assert!(wire.say("ES.MERGE k v").contains("works in a keyspace"));
    wire.say("ES.KS CREATE logs");
    wire.say("ES.KS USE logs");
    assert!(wire.say("ES.MERGE k v").starts_with("-ERR"));
    assert!(wire.say("ES.KS OPERATOR logs nosuch").starts_with("-ERR"));
    assert_eq!(wire.say("ES.KS OPERATOR logs append"), "+OK");
    for part in ["one", "two"] {
        assert_eq!(wire.say(&format!("ES.MERGE k {part}")), "+OK");
    }
    assert_eq!(wire.say("ES.GET k"), "\"onetwo\"");
}
