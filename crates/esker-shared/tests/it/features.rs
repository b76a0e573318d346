//! Features of the engine in a shared database whose hosts are killed: history, counting, lifetimes, merges,
//! large transactions, keyspaces of limited size; and in the host, while guests write, the change feed,
//! checkpoints and backups.
//!
//! ```text
//!   workers --calls--> database    --before and after each: a line--> journals: the oracle
//!   the worker that is the host --> feed: each commit once; checkpoints; backups
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use esker::backup::Backup;
use esker::{Builder, Counting, Db, Durability, FeedChange, History, KeyspaceOptions, SeqNo, Ttl};
use esker_shared::{Error, Result, Shared, SharedKeyspace};
use fastrand::Rng;

use crate::kill::{Campaign, journal_of, kills, of_child};

const HOUR: Duration = Duration::from_secs(3600);
/// Keys of a large transaction, and bytes of each value: several times what stays in memory.
const LARGE_KEYS: u64 = 100;
const LARGE_BYTES: usize = 16 << 10;
const RECENT_BYTES: u64 = 1 << 20;

fn engine() -> Builder {
    let builder = Db::builder().memory(64 << 20).durability(Durability::Buffered);
    let builder = builder.feed_retention(1 << 30, Duration::MAX);
    builder.tuning(|tuning| tuning.memtable_bytes(1 << 20).transaction_memory(256 << 10))
}

fn open(dir: &Path) -> Result<Shared> {
    Shared::builder().engine(engine()).wait(Duration::from_secs(50)).open(dir.join("db"))
}

/// Names and options of the keyspaces.
fn keyspaces() -> [(&'static str, KeyspaceOptions); 7] {
    let options = KeyspaceOptions::new;
    [
        ("past", options().history(History::For(HOUR))),
        ("exact", options()),
        ("lazy", options().counting(Counting::Lazy)),
        ("mortal", options().default_ttl(HOUR)),
        ("sums", options().merge_operator("add-u64")),
        ("large", options()),
        ("recent", options().bytes_max(RECENT_BYTES)),
    ]
}

struct Worker {
    dir: std::path::PathBuf,
    shared: Shared,
    keyspaces: BTreeMap<&'static str, SharedKeyspace>,
    journal: File,
    id: u64,
    rng: Rng,
    done: BTreeMap<&'static str, u64>,
}

impl Worker {
    fn of(&self, name: &str) -> &SharedKeyspace {
        &self.keyspaces[name]
    }

    /// Makes a call that the journal has, with the number of its commit.
    fn counted(&mut self, kind: &'static str, call: impl FnOnce(&Self, u64) -> Result<SeqNo>) -> Result<()> {
        let n = self.done.get(kind).copied().unwrap_or(0);
        // One write: a kill leaves whole lines.
        self.journal.write_all(format!("I {kind} {n} 0\n").as_bytes()).unwrap();
        let seqno = call(self, n)?.get();
        self.journal.write_all(format!("A {kind} {n} {seqno}\n").as_bytes()).unwrap();
        self.done.insert(kind, n + 1);
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        let id = self.id;
        if let Some(db) = self.shared.db() {
            self.as_host(&db);
        }
        match self.rng.u8(..12) {
            0..3 => self.counted("past", |w, n| w.of("past").put(id.to_be_bytes(), n.to_be_bytes())),
            3..6 => self.counted("count", |w, n| {
                let mut batch = w.shared.batch();
                for name in ["exact", "lazy"] {
                    match n % 3 {
                        2 => batch.delete(w.of(name), format!("{id}/{}", n - 1))?,
                        _ => batch.put(w.of(name), format!("{id}/{n}"), "")?,
                    }
                }
                batch.commit()
            }),
            6 | 7 => self.counted("mortal", |w, n| {
                let (mortal, key) = (w.of("mortal"), format!("{id}/{n}"));
                match n % 2 {
                    0 => mortal.put(key, ""),
                    _ => mortal.put_with_ttl(key, "", Duration::from_millis(1)),
                }
            }),
            8 | 9 => self.counted("sums", |w, _| {
                let mut commit = None;
                while commit.is_none() {
                    let mut t = w.shared.begin()?;
                    let merged = t
                        .merge(w.of("sums"), id.to_be_bytes(), 1_u64.to_le_bytes())
                        .and_then(|()| t.merge(w.of("sums"), "all", 1_u64.to_le_bytes()));
                    commit = match merged.and_then(|()| t.commit()) {
                        Err(Error::HostGone | Error::Db(esker::Error::Conflict { .. })) => None,
                        done => Some(done?),
                    };
                }
                Ok(commit.unwrap())
            }),
            10 => self.counted("large", |w, n| {
                let large = w.of("large");
                w.shared.transact(|t| {
                    t.delete_range(large, large_prefix(id, n.wrapping_sub(1))..large_prefix(id, n))?;
                    (0..LARGE_KEYS).try_for_each(|key| {
                        let key = [large_prefix(id, n), key.to_be_bytes().to_vec()].concat();
                        t.put(large, key, vec![n as u8; LARGE_BYTES])
                    })
                })?;
                let seen = large.prefix(id.to_be_bytes()).keys().map(|key| key.map(drop));
                match seen.collect::<Result<Vec<()>>>() {
                    Ok(seen) => assert_eq!(seen.len() as u64, LARGE_KEYS, "a part of a transaction"),
                    Err(Error::HostGone) => {}
                    Err(error) => return Err(error),
                }
                Ok(SeqNo::new(1))
            }),
            _ => self.counted("recent", |w, n| w.of("recent").put(format!("{id}/{n}"), vec![0; 20_000])),
        }
    }

    /// Does what only hosts can do, while the others write.
    fn as_host(&mut self, db: &Db) {
        match self.rng.u8(..20) {
            0 => {
                let copy = self.dir.join(format!("copies/{}-{}", self.id, fastrand::u64(..)));
                db.checkpoint(&copy).unwrap();
                fs::write(copy.with_extension("done"), "").unwrap();
            }
            1 => drop(Backup::open(self.dir.join("backups")).unwrap().create(db).unwrap()),
            2 => follow(&self.dir, db),
            _ => {}
        }
    }
}

/// The beginning of the keys of a worker's large transaction `n`.
fn large_prefix(id: u64, n: u64) -> Vec<u8> {
    [id.to_be_bytes(), n.wrapping_add(1).to_be_bytes()].concat()
}

/// Reads the feed from where the last host has ended: each worker's puts in `past` come once, in order.
/// Stores the position, and the last put of each worker.
fn follow(dir: &Path, db: &Db) {
    let path = dir.join("followed");
    let stored = fs::read_to_string(&path).unwrap_or_default();
    let mut lines = stored.lines().map(|line| {
        let (worker, last) = line.split_once(' ').unwrap();
        (worker.parse().unwrap(), last.parse().unwrap())
    });
    let after = lines.next().map_or(0, |(_, after): (u64, u64)| after);
    let mut last: BTreeMap<u64, u64> = lines.collect();
    let past = db.open_keyspace("past").unwrap().id();
    let mut feed = db.feed_after(SeqNo::new(after)).unwrap();
    let mut seen = after;
    while let Some(mut commit) = feed.try_next().unwrap() {
        assert_eq!(commit.seqno().get(), seen + 1, "the feed has gaps");
        seen += 1;
        while let Some(change) = commit.next_change().unwrap() {
            let FeedChange::Put { keyspace, key, value } = change else { continue };
            if keyspace == past {
                let worker = u64::from_be_bytes(key.try_into().unwrap());
                let n = u64::from_be_bytes((*value.read().unwrap()).try_into().unwrap());
                assert_eq!(n, last.get(&worker).map_or(0, |last| last + 1), "worker {worker} in the feed");
                last.insert(worker, n);
            }
        }
    }
    let lines = last.iter().map(|(worker, n)| format!("{worker} {n}\n")).collect::<String>();
    let new = dir.join(format!("followed-{}", std::process::id()));
    fs::write(&new, format!("0 {seen}\n{lines}")).unwrap();
    fs::rename(new, path).unwrap();
}

/// The process that [`features_outlive_their_hosts`] starts.
#[test]
fn worker() {
    let Some((dir, id)) = of_child() else { return };
    let shared = open(&dir).unwrap();
    let opened = keyspaces().map(|(name, _)| (name, shared.open_keyspace(name).unwrap()));
    let journal = OpenOptions::new().create(true).append(true).open(journal_of(&dir, id)).unwrap();
    let (rng, done) = (Rng::with_seed(id), BTreeMap::new());
    let mut worker = Worker { dir, shared, keyspaces: opened.into(), journal, id, rng, done };
    loop {
        if let Err(error) = worker.step() {
            panic!("worker {id}: {error}");
        }
    }
}

#[test]
fn features_outlive_their_hosts() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    fs::create_dir(dir.join("copies")).unwrap();
    {
        let (host, guest) = (open(dir).unwrap(), open(dir).unwrap());
        for (at, (name, options)) in keyspaces().iter().enumerate() {
            let by = if at % 2 == 0 { &guest } else { &host };
            by.create_keyspace_with(name, options).unwrap();
            assert_eq!(host.db().unwrap().open_keyspace(name).unwrap().options(), *options);
        }
    }
    let spawned = Campaign::run(dir, "features::worker", kills(20), Duration::from_millis(300));
    let db = engine().open(dir.join("db")).unwrap();
    for id in 1..=spawned {
        verify(&db, id, &fs::read_to_string(journal_of(dir, id)).unwrap_or_default());
    }
    verify_state(&db);
    follow(dir, &db);
    let followed = fs::read_to_string(dir.join("followed")).unwrap().lines().count() as u64 - 1;
    assert_eq!(followed, db.open_keyspace("past").unwrap().len().unwrap(), "workers in the feed");
    let recent = db.open_keyspace("recent").unwrap();
    db.compact().unwrap();
    let size = recent.approximate_size(..).unwrap();
    assert!(size <= 2 * RECENT_BYTES, "{size} bytes in a keyspace of {RECENT_BYTES}");

    let mut copies = 0;
    for entry in fs::read_dir(dir.join("copies")).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.extension().is_some_and(|end| end == "done") {
            verify_state(&engine().open(entry.with_extension("")).unwrap());
            copies += 1;
        }
    }
    let mut backups = Backup::open(dir.join("backups")).unwrap();
    let made = backups.list().unwrap().len();
    if made > 0 {
        backups.restore(dir.join("restored")).run().unwrap();
        verify_state(&engine().open(dir.join("restored")).unwrap());
    }
    eprintln!("{copies} checkpoints, {made} backups, {followed} workers");
}

/// What holds in each state of the database.
fn verify_state(db: &Db) {
    assert_eq!(db.check().unwrap().problems, Vec::<String>::new());
    let sums = db.open_keyspace("sums").unwrap();
    let number = |value: &[u8]| u64::from_le_bytes(value.try_into().unwrap());
    let (mut all, mut sum) = (0, 0);
    for (key, value) in sums.iter().map(|entry| entry.unwrap()) {
        *(if key == b"all"[..] { &mut all } else { &mut sum }) += number(&value);
    }
    assert_eq!(all, sum, "half a transaction");
    let of = |name| db.open_keyspace(name).unwrap();
    let keys = |name| of(name).keys(..).map(|key| key.unwrap().to_vec()).collect::<BTreeSet<_>>();
    assert_eq!(keys("exact"), keys("lazy"), "half a batch");
    for name in ["exact", "lazy"] {
        assert_eq!(of(name).len().unwrap(), keys(name).len() as u64);
    }
}

/// Compares the keys of one worker with its journal.
fn verify(db: &Db, id: u64, journal: &str) {
    let mut acknowledged: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    let mut begun: BTreeMap<&str, u64> = BTreeMap::new();
    for line in journal.lines() {
        let parts: Vec<&str> = line.split(' ').collect();
        match parts[0] {
            "I" => *begun.entry(parts[1]).or_default() += 1,
            _ => acknowledged.entry(parts[1]).or_default().push(parts[3].parse().unwrap()),
        }
    }
    let done = |kind: &str| acknowledged.get(kind).map_or(0, |done| done.len() as u64);
    let counts = |kind: &str| [done(kind), begun.get(kind).copied().unwrap_or(0)];
    let of = |name| db.open_keyspace(name).unwrap();
    // Each commit was made by this worker alone, so the past shows it at its number.
    for (n, seqno) in acknowledged.get("past").into_iter().flatten().enumerate() {
        let then = of("past").get_at(id.to_be_bytes(), SeqNo::new(*seqno)).unwrap();
        assert_eq!(then.as_deref(), Some(&(n as u64).to_be_bytes()[..]), "worker {id} at {seqno}");
    }
    let keys = of("exact").prefix(format!("{id}/")).map(|entry| entry.unwrap().0.to_vec());
    let keys: BTreeSet<Vec<u8>> = keys.collect();
    let after = |count: u64| {
        let put = (0..count).filter(|n| n % 3 != 2 && !(n % 3 == 1 && n + 1 < count));
        put.map(|n| format!("{id}/{n}").into_bytes()).collect::<BTreeSet<_>>()
    };
    assert!(counts("count").iter().any(|count| after(*count) == keys), "keys of worker {id}: {keys:?}");
    for n in 0..done("mortal") {
        let ttl = of("mortal").ttl(format!("{id}/{n}")).unwrap();
        assert_eq!(matches!(ttl, Some(Ttl::Left(left)) if left <= HOUR), n % 2 == 0, "{id}/{n}: {ttl:?}");
        assert_eq!(ttl.is_some(), n % 2 == 0);
    }
    let sum = of("sums").get(id.to_be_bytes()).unwrap();
    let sum = sum.map_or(0, |sum| u64::from_le_bytes((*sum).try_into().unwrap()));
    assert!(counts("sums").contains(&sum), "merges of worker {id}: {sum}");
    let large = of("large").prefix(id.to_be_bytes()).map(|entry| entry.unwrap()).collect::<Vec<_>>();
    let whole = counts("large").map(|count| if count == 0 { 0 } else { LARGE_KEYS });
    assert!(whole.contains(&(large.len() as u64)), "large transactions of worker {id}: {}", large.len());
    if let Some((_, value)) = large.first() {
        assert!(counts("large").iter().any(|count| count.wrapping_sub(1) as u8 == value[0]));
        assert!(large.iter().all(|(_, other)| other == value), "parts of two transactions");
    }
}
