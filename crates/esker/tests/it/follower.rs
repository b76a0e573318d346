//! Followers beside a live writer: each state is that of one commit, in order, and none that was acknowledged
//! is missing.
//!
//! ```text
//!   writer, a process --commit n = ops(n)--> directory --catch_up--> contents, n --> the model's
//!      `--after each commit: n--------------------------------------------------> n is not less
//! ```

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use esker::env::{Env, File, FileLock, Fs, LockError, MemFs, OpenOptions};
use esker::{Builder, Db, Durability, Error, Follower, History};

use crate::common::contents::{Contents, dump, dump_sound};

/// Commits after which the writer begins with the same contents again.
const CYCLE: u64 = 400;

fn builder() -> Builder {
    let small = Db::builder()
        .memory(2 << 20)
        .tuning(|t| t.memtable_bytes(24 << 10).table_bytes(12 << 10).block_bytes(512));
    small.blobs(esker::Blobs::From(600)).adoption_bytes(10 << 10).durability(Durability::Buffered)
}

/// One change of a keyspace.
enum Change {
    Put(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
    RemoveRange(Vec<u8>, Vec<u8>),
    Append(Vec<u8>, Vec<u8>),
    Create,
    Drop,
}

/// What commit `n` changes.
fn ops(n: u64) -> Vec<(String, Change)> {
    let of = |name: &str, change| vec![(name.to_owned(), change)];
    let hash = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
    let key = |at: u64| format!("key {:03}", at % 150).into_bytes();
    let value = |len: usize| n.to_string().into_bytes().into_iter().cycle().take(len).collect::<Vec<u8>>();
    match n % CYCLE {
        50 | 250 => of("extra", Change::Create),
        200 | 350 => of("extra", Change::Drop),
        at if (50..200).contains(&at) && at % 10 == 1 => of("extra", Change::Put(key(hash), value(300))),
        at if at % 40 == 7 => (0..120).flat_map(|i| of("map", Change::Put(key(i), value(150)))).collect(),
        at if at % 9 == 2 => of("map", Change::Put(key(hash), value(2000))),
        at if at % 11 == 3 => of("map", Change::RemoveRange(key(hash % 140), key(hash % 140 + 8))),
        at if at % 7 == 1 => of("map", Change::Remove(key(hash))),
        at if at % 5 == 4 => of("words", Change::Append(key(hash % 9), value(2))),
        at if at % 50 == 6 => of("words", Change::RemoveRange(key(0), key(149))),
        _ => of("map", Change::Put(key(hash), value(100))),
    }
}

/// The model: knows nothing of files.
struct Model {
    commits: u64,
    contents: Contents,
}

impl Model {
    fn new() -> Model {
        let names = ["default", "map", "words"].map(|name| (name.to_owned(), BTreeMap::new()));
        Model { commits: 0, contents: names.into() }
    }

    fn go_to(&mut self, commits: u64) {
        while self.commits < commits {
            self.commits += 1;
            for (name, change) in ops(self.commits) {
                match change {
                    Change::Create => drop(self.contents.insert(name, BTreeMap::new())),
                    Change::Drop => drop(self.contents.remove(&name)),
                    change => apply(self.contents.get_mut(&name).unwrap(), change),
                }
            }
            let count = self.commits.to_string().into_bytes();
            self.contents.get_mut("default").unwrap().insert(b"commits".to_vec(), count);
        }
    }
}

fn apply(map: &mut BTreeMap<Vec<u8>, Vec<u8>>, change: Change) {
    match change {
        Change::Put(key, value) => drop(map.insert(key, value)),
        Change::Remove(key) => drop(map.remove(&key)),
        Change::RemoveRange(from, to) => map.retain(|key, _| *key < from || *key >= to),
        Change::Append(key, operand) => map.entry(key).or_default().extend(operand),
        Change::Create | Change::Drop => {}
    }
}

fn commits(db: &Db) -> u64 {
    let found = db.default_keyspace().get("commits").unwrap();
    found.map_or(0, |count| std::str::from_utf8(&count).unwrap().parse().unwrap())
}

fn write(db: &Db, n: u64) {
    let mut transaction = db.begin();
    for (name, change) in ops(n) {
        match change {
            Change::Create => drop(transaction.create_keyspace(&name).unwrap()),
            Change::Drop => transaction.drop_keyspace(&name).unwrap(),
            Change::Put(key, value) => {
                let keyspace = transaction.open_keyspace(&name).unwrap();
                match n % 3 {
                    0 => transaction.put_with_ttl(&keyspace, key, value, Duration::from_secs(9999)).unwrap(),
                    _ => transaction.put(&keyspace, key, value).unwrap(),
                }
            }
            Change::Remove(key) => {
                transaction.delete(&transaction.open_keyspace(&name).unwrap(), key).unwrap();
            }
            Change::RemoveRange(from, to) => {
                transaction.delete_range(&transaction.open_keyspace(&name).unwrap(), from..to).unwrap();
            }
            Change::Append(key, operand) => {
                transaction.merge(&transaction.open_keyspace(&name).unwrap(), key, operand).unwrap();
            }
        }
    }
    transaction.put(&db.default_keyspace(), "commits", n.to_string()).unwrap();
    let durability = if n.is_multiple_of(17) { Durability::Sync } else { Durability::Buffered };
    transaction.commit_with(durability).unwrap();
}

fn prepare(db: &Db) {
    db.keyspace("map").unwrap().set_history(History::Versions(2)).unwrap();
    db.keyspace("words").unwrap().set_merge_operator("append").unwrap();
}

/// Catches up and compares. Returns the number of commits.
fn follow(follower: &mut Follower, model: &mut Model) -> u64 {
    let before = follower.seqno();
    let seqno = follower.catch_up().unwrap_or_else(|error| panic!("after {}: {error}", model.commits));
    assert!(seqno >= before && seqno == follower.seqno(), "live.3");
    let seen = commits(follower.db());
    assert!(seen >= model.commits, "live.3: {seen} after {}", model.commits);
    model.go_to(seen);
    assert!(dump(follower.db()).unwrap() == model.contents, "live.1: the state after {seen} commits");
    seen
}

/// A file system that does some work in one of its calls.
#[derive(Debug)]
struct BusyFs {
    inner: Arc<MemFs>,
    calls: AtomicU64,
    work: Mutex<Option<Work>>,
}

/// Work, and the number of calls before it.
struct Work(u64, Box<dyn FnOnce() + Send>);

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "work in call {}", self.0)
    }
}

impl BusyFs {
    fn call(&self) -> &MemFs {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let mut work = self.work.lock().unwrap();
        let due = work.take_if(|work| work.0 <= call);
        drop(work);
        due.into_iter().for_each(|work| work.1());
        &self.inner
    }
}

impl Fs for BusyFs {
    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        assert!(!options.write, "a follower writes nothing");
        self.call().open(path, options)
    }
    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        panic!("a follower creates nothing");
    }
    fn list_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        self.call().list_dir(path)
    }
    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        panic!("a follower renames nothing");
    }
    fn remove_file(&self, _: &Path) -> io::Result<()> {
        panic!("a follower removes nothing");
    }
    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        panic!("a follower syncs nothing");
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.call().exists(path)
    }
    fn file_size(&self, path: &Path) -> io::Result<u64> {
        self.call().file_size(path)
    }
    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }
    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>, LockError> {
        panic!("a follower locks {}", path.display());
    }
}

/// The writer works between any two calls of the follower's file system.
#[test]
fn live_1_each_state_is_that_of_a_commit_whatever_the_writer_does_meanwhile() {
    for seed in 0..8_u64 {
        let inner = Arc::new(MemFs::new());
        let small = builder().background(false);
        let writer = small.env(Env::simulated(inner.clone(), seed)).open("db").unwrap();
        prepare(&writer);
        (1..30).for_each(|n| write(&writer, n));
        let fs = Arc::new(BusyFs { inner, calls: AtomicU64::new(0), work: Mutex::new(None) });
        let mut follower = builder().env(Env::simulated(fs.clone(), seed)).open_follower("db").unwrap();
        let mut model = Model::new();
        assert_eq!(follow(&mut follower, &mut model), 29);
        let (mut written, mut hit) = (29, 0);
        for round in 0..60_u64 {
            let (shown, before) = (follower.db().clone(), model.commits);
            let (db, first, busy) = (writer.clone(), written, 1 + round % 40);
            let work = move || {
                (1..=busy).for_each(|n| write(&db, first + n));
                match (round + seed) % 4 {
                    0 => db.flush().unwrap(),
                    1 => db.compact().unwrap(),
                    _ => {}
                }
            };
            *fs.work.lock().unwrap() = Some(Work((round * 5 + seed) % 19, Box::new(work)));
            fs.calls.store(0, Ordering::Relaxed);
            follow(&mut follower, &mut model);
            assert_eq!(commits(&shown), before, "a state does not change");
            if fs.work.lock().unwrap().take().is_none() {
                (written, hit) = (written + busy, hit + 1);
            }
        }
        assert!(hit > 20, "{hit}");
        assert_eq!(follow(&mut follower, &mut model), written, "nothing acknowledged is missing");
        dump_sound(follower.db()).unwrap();
    }
}

/// A table that is lost for good is damage.
#[test]
fn live_2_a_missing_file_is_reported_if_the_writer_did_not_remove_it() {
    let fs = Arc::new(MemFs::new());
    let small = || builder().background(false).env(Env::simulated(fs.clone(), 1));
    let writer = small().open("db").unwrap();
    prepare(&writer);
    (1..100).for_each(|n| write(&writer, n));
    writer.flush().unwrap();
    let names = fs.list_dir(Path::new("db")).unwrap();
    let table = names.iter().find(|name| name.ends_with(".sst")).unwrap();
    fs.remove_file(&Path::new("db").join(table)).unwrap();
    let error = small().open_follower("db").unwrap_err();
    assert!(matches!(&error, Error::Io { path, .. } if path.ends_with(table)), "{error}");
    assert!(matches!(small().open_follower("none").unwrap_err(), Error::NotFound(_)));
}

/// Names the directory in the process that writes.
#[cfg(unix)]
const WRITER: &str = "ESKER_TEST_WRITER";

/// The writer: continues where the last one was killed, and says which commits are acknowledged.
#[cfg(unix)]
fn write_for_ever(dir: &str) {
    use std::io::Write;
    let db = builder().tuning(|t| t.replay_bytes(16 << 10)).open(dir).unwrap();
    prepare(&db);
    let mut out = std::io::stdout();
    for n in commits(&db) + 1.. {
        write(&db, n);
        writeln!(out, "\nacked {n}").unwrap();
        out.flush().unwrap();
    }
}

/// Real processes: the writer is killed at any time and starts again.
#[test]
#[cfg(unix)]
#[expect(clippy::disallowed_methods, reason = "real processes and real time")]
fn live_1_states_of_a_process_that_is_killed_again_and_again() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    use std::time::Instant;
    if let Ok(dir) = std::env::var(WRITER) {
        return write_for_ever(&dir);
    }
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("db");
    let acked = Arc::new(AtomicU64::new(0));
    let start = || {
        let name = "follower::live_1_states_of_a_process_that_is_killed_again_and_again";
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", name, "--nocapture"]).env(WRITER, &dir);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let (lines, acked) = (BufReader::new(child.stdout.take().unwrap()).lines(), acked.clone());
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some(n) = line.strip_prefix("acked ").and_then(|n| n.parse().ok()) {
                    acked.fetch_max(n, Ordering::Relaxed);
                }
            }
        });
        child
    };
    let mut child = start();
    let begin = Instant::now();
    while acked.load(Ordering::Relaxed) < 20 {
        assert!(begin.elapsed() < Duration::from_secs(60), "the writer starts");
        std::thread::sleep(Duration::from_millis(5));
    }
    let (mut follower, mut model) = (builder().open_follower(&dir).unwrap(), Model::new());
    let (mut states, mut kills, begin) = (0, 0, Instant::now());
    while begin.elapsed() < Duration::from_secs(6) {
        let known = acked.load(Ordering::Relaxed);
        let before = model.commits;
        let seen = follow(&mut follower, &mut model);
        assert!(seen >= known, "commit {known} was acknowledged, and {seen} are seen");
        states += u64::from(seen > before);
        if states % 12 == 11 && seen > before {
            child.kill().unwrap();
            child.wait().unwrap();
            follow(&mut follower, &mut model);
            child = start();
            kills += 1;
        }
        if states % 50 == 30 {
            dump_sound(follower.db()).unwrap();
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    println!("{states} states, {kills} kills, {} commits", model.commits);
    assert!(states > 20 && kills > 0, "{states} states, {kills} kills");
    let last = follow(&mut follower, &mut model);
    let db = builder().open_read_only(&dir).unwrap();
    assert_eq!(dump_sound(&db).unwrap(), model.contents, "{last}");
}
