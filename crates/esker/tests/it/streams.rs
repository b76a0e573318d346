//! Databases as streams: what arrives is one commit with all features, and a damaged stream restores nothing.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use esker::backup::{Backup, Restore, Stream};
use esker::unload::{Load, Unload};
use esker::{Blobs, Counting, Db, Error, History, SeqNo};
use esker_env::{Env, FaultAction, FaultFs, FaultRule, Fs, MemFs, OpKind, OpenOptions};

use crate::common::contents::{difference, dump, dump_sound};
use crate::common::simulated;

const RESTORED: &str = "restored";

fn open(fs: &MemFs, dir: &str) -> Db {
    let builder = simulated(Arc::new(fs.clone())).stepped().blobs(Blobs::From(200));
    let builder = builder.feed_retention(1 << 20, Duration::MAX).tuning(|t| t.transaction_memory(1 << 10));
    builder.open(dir).unwrap()
}

fn env(fs: &MemFs) -> Env {
    Env::simulated(Arc::new(fs.clone()), 7)
}

fn restore(fs: &MemFs) -> Restore {
    Restore::new(RESTORED).env(env(fs))
}

/// Writes with every feature. Returns a commit whose state the history still has.
fn fill(db: &Db) -> SeqNo {
    let (map, past) = (db.default_keyspace(), db.keyspace("past").unwrap());
    let (sums, brief) = (db.keyspace("sums").unwrap(), db.keyspace("brief").unwrap());
    past.set_history(History::Versions(4)).unwrap();
    sums.set_merge_operator("add-u64").unwrap();
    brief.set_default_ttl(Some(Duration::from_secs(60))).unwrap();
    brief.set_counting(Counting::Lazy).unwrap();
    for n in 0..40_u8 {
        map.put([n], vec![n; usize::from(n) * 20]).unwrap();
        sums.merge([n % 3], u64::from(n).to_le_bytes()).unwrap();
        brief.put([n], "1").unwrap();
        past.put([n % 4], [n]).unwrap();
    }
    let old = past.put("old", "1").unwrap();
    past.put("old", "2").unwrap();
    let mut large = db.begin();
    (0..60_u8).for_each(|n| large.put(&map, [b'l', n], [n; 300]).unwrap());
    large.commit().unwrap();
    map.delete_range([5]..[9]).unwrap();
    db.flush().unwrap();
    sums.merge([1], 5_u64.to_le_bytes()).unwrap();
    map.delete_range([20]..[22]).unwrap();
    past.delete("old").unwrap();
    old
}

fn sent(db: &Db) -> Vec<u8> {
    let mut stream = Vec::new();
    Stream::new().write(db, &mut stream).unwrap();
    stream
}

/// Commits whenever bytes are written.
struct Busy<'a>(&'a Db, Vec<u8>);

impl Write for Busy<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.default_keyspace().put("busy", self.1.len().to_le_bytes()).unwrap();
        self.1.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_stream_has_one_commit_with_every_feature() {
    let fs = MemFs::new();
    let db = open(&fs, "db");
    let old = fill(&db);
    let (expected, seqno) = (dump(&db).unwrap(), db.snapshot().seqno());
    let mut busy = Busy(&db, Vec::new());
    let sent = Stream::new().write(&db, &mut busy).unwrap();
    assert_eq!(sent.seqno, seqno);
    let stream = busy.1;
    assert!(db.snapshot().seqno() > seqno);
    let received = restore(&fs).verify(true).read(&stream[..]).unwrap();
    assert_eq!((received.seqno, received.files, received.bytes), (sent.seqno, sent.files, sent.bytes));
    assert!(matches!(restore(&fs).read(&stream[..]), Err(Error::AlreadyExists(_))));

    let copy = open(&fs, RESTORED);
    let found = dump_sound(&copy).unwrap();
    assert!(found == expected, "{}", difference(&found, &expected));
    assert_eq!(copy.snapshot().seqno(), seqno);
    let past = copy.keyspace("past").unwrap();
    assert_eq!(past.get_at("old", old).unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(past.get("old").unwrap(), None);
    let ttl = |db: &Db| db.keyspace("brief").unwrap().ttl([1]).unwrap();
    assert!(ttl(&copy).is_some() && format!("{:?}", ttl(&copy)) == format!("{:?}", ttl(&db)));
    for name in ["default", "past", "sums", "brief"] {
        let options = |db: &Db| db.keyspace(name).unwrap().options();
        assert_eq!(options(&copy), options(&db), "{name}");
    }
    // The copy is a database of its own: it commits, feeds, is backed up, and sent on.
    let commit = copy.default_keyspace().put("new", "1").unwrap();
    assert_eq!(copy.feed_after(seqno).unwrap().next().unwrap().unwrap().seqno(), commit);
    let made = Backup::open_in(env(&fs), "backups").unwrap().create(&copy).unwrap();
    assert_eq!(made.seqno, commit);
    assert_ne!(made.database, sent.database);
}

#[test]
fn stream_1_a_cut_or_changed_stream_restores_nothing() {
    let fs = MemFs::new();
    let db = simulated(Arc::new(fs.clone())).stepped().blobs(Blobs::From(64)).open("db").unwrap();
    db.default_keyspace().put("a", "1").unwrap();
    db.default_keyspace().put("b", [7; 100]).unwrap();
    let stream = sent(&db);
    let target = MemFs::new();
    let refused = |bytes: &[u8], what: &str| {
        let error = restore(&target).read(bytes).unwrap_err();
        assert!(error.is_corrupt() || matches!(error, Error::UnsupportedVersion { .. }), "{what}: {error}");
        let names = target.list_dir(Path::new("")).unwrap_or_default();
        assert!(names.is_empty(), "{what}: {names:?}");
    };
    for len in 0..stream.len() {
        refused(&stream[..len], &format!("cut at {len}"));
    }
    for at in 0..stream.len() {
        let mut changed = stream.clone();
        changed[at] ^= 1 << (at % 8);
        refused(&changed, &format!("changed at {at}"));
    }
    // What follows the stream is not read.
    let mut input = &[&stream[..], b"more"].concat()[..];
    restore(&target).read(&mut input).unwrap();
    assert_eq!(input, b"more");
}

#[test]
fn a_full_disk_and_a_broken_pipe_leave_nothing() {
    let fs = MemFs::new();
    let db = open(&fs, "db");
    fill(&db);
    let stream = sent(&db);
    for nth in 1..40 {
        let target = MemFs::new();
        let faulty = FaultFs::new(Arc::new(target.clone()));
        let kinds = [OpKind::Create, OpKind::Write, OpKind::SyncData, OpKind::Rename];
        faulty.add(FaultRule::new(&kinds, FaultAction::NoSpace).nth(nth).forever());
        let env = Env::simulated(Arc::new(faulty), 1);
        match Restore::new(RESTORED).env(env).read(&stream[..]) {
            Ok(_) => assert!(nth > 10),
            Err(error) => {
                assert!(matches!(error, Error::NoSpace { .. }), "{nth}: {error}");
                assert!(!target.exists(Path::new(RESTORED)).unwrap(), "{nth}");
            }
        }
    }
    let mut small = [0; 100];
    assert!(matches!(Stream::new().write(&db, &mut small[..]), Err(Error::Io { .. })));
    assert_eq!(sent(&db).len(), stream.len());
}

#[test]
fn unloads_and_loads_are_streams_too() {
    let fs = MemFs::new();
    let db = open(&fs, "db");
    fill(&db);
    let expected = dump(&db).unwrap();
    let mut stream = Vec::new();
    let written = Unload::new().env(env(&fs)).write_to(&db, &mut stream).unwrap();
    assert_eq!(written.bytes, stream.len() as u64);
    let copy = open(&fs, "copy");
    let loaded = Load::new().read_from(&copy, &stream[..]).unwrap();
    assert_eq!((loaded.entries, loaded.bytes), (written.entries, written.bytes));
    assert!(dump_sound(&copy).unwrap() == expected);

    // The bytes are those of a file.
    fs.open(Path::new("file"), OpenOptions::create()).unwrap().write_all_at(&stream, 0).unwrap();
    let copy = open(&fs, "copy of file");
    Load::new().env(env(&fs)).read(&copy, "file").unwrap();
    assert!(dump_sound(&copy).unwrap() == expected);

    for len in (0..stream.len()).step_by(211) {
        let copy = open(&MemFs::new(), "cut");
        let error = Load::new().read_from(&copy, &stream[..len]).unwrap_err();
        assert!(error.is_corrupt(), "{len}: {error}");
        // The same bytes continue it.
        Load::new().read_from(&copy, &stream[..]).unwrap();
        assert!(dump_sound(&copy).unwrap() == expected, "{len}");
    }
    let mut changed = stream.clone();
    *changed.last_mut().unwrap() ^= 1;
    assert!(Load::new().read_from(&open(&fs, "changed"), &changed[..]).unwrap_err().is_corrupt());
}
