//! Processes that write one directory, while their hosts are killed again and again.
//!
//! ```text
//!   parent --spawns--> workers: Shared::open, calls --before and after each: a line--> journals
//!      |--SIGKILL of the host, or of a guest; SIGSTOP for a moment; removes the socket
//!      `--at the end: opens the database --contents--> compare with all journals
//! ```
//!
//! Each worker checks what only it changes after each call: a lost commit, or one applied twice, shows there
//! at once. `ESKER_SHARED_KILLS` sets the number of kills.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use esker::{Builder, Db, Durability, KeyspaceOptions, LockMode, Ttl};
use esker_shared::{Error, Outcome, Result, Shared, SharedKeyspace, SharedTransaction};
use fastrand::Rng;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

const DIR: &str = "ESKER_SHARED_DIR";
const WORKER: &str = "ESKER_SHARED_WORKER";
const WORKERS: usize = 4;
const ACCOUNTS: u64 = 8;
const TOTAL: i64 = 1000;
/// Longest time in which a worker must finish a call.
const HANG: Duration = Duration::from_secs(60);

fn engine() -> Builder {
    let builder = Db::builder().memory(64 << 20).durability(Durability::Buffered);
    builder.tuning(|tuning| tuning.memtable_bytes(1 << 20))
}

fn open(dir: &Path) -> Result<Shared> {
    Shared::builder().engine(engine()).wait(Duration::from_secs(50)).open(dir.join("db"))
}

/// Starts this test program as another process that runs one test.
pub(crate) fn start(dir: &Path, test: &str, worker: u64) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]);
    command.env(DIR, dir).env(WORKER, worker.to_string()).stdout(Stdio::null());
    command.spawn().unwrap()
}

/// The directory and the number of this process, if it is a child.
pub(crate) fn of_child() -> Option<(PathBuf, u64)> {
    let dir = PathBuf::from(std::env::var_os(DIR)?);
    Some((dir, std::env::var(WORKER).ok()?.parse().ok()?))
}

/// A process that ends with its test.
pub(crate) struct Killed(pub(crate) Child);

impl Killed {
    /// Returns once all of its threads have stopped.
    fn stop(&self) {
        signal(&self.0, Signal::STOP);
        let stopped = waitpid(Some(Pid::from_child(&self.0)), WaitOptions::UNTRACED).unwrap();
        assert!(stopped.is_some_and(|(_, status)| status.stopped()));
    }

    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

struct Worker {
    shared: Shared,
    map: SharedKeyspace,
    sums: SharedKeyspace,
    accounts: SharedKeyspace,
    journal: File,
    id: u64,
    rng: Rng,
    /// Number of calls of each kind that were acknowledged.
    done: [u64; 3],
}

/// Kinds of calls in journals.
const INSERT: usize = 0;
const MERGE: usize = 1;
const COUNT: usize = 2;

impl Worker {
    fn note(&mut self, what: char, kind: usize, number: u64) {
        // One write: a kill leaves whole lines.
        self.journal.write_all(format!("{what} {kind} {number}\n").as_bytes()).unwrap();
    }

    fn durability(&mut self) -> Durability {
        [Durability::Sync, Durability::Buffered, Durability::None][self.rng.usize(..3)]
    }

    /// Makes a call that journals compare.
    fn counted(&mut self, kind: usize, call: impl FnOnce(&mut Self, u64) -> Result<()>) -> Result<()> {
        let number = self.done[kind];
        self.note('I', kind, number);
        call(self, number)?;
        self.note('A', kind, number);
        self.done[kind] += 1;
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        let (id, durability) = (self.id, self.durability());
        match self.rng.u8(..10) {
            0 | 1 => self.counted(INSERT, |w, n| {
                let large = if w.rng.u8(..8) == 0 { 300_000 } else { 20 };
                let (key, value) = (format!("{id}/{n}"), vec![n as u8; large]);
                match w.rng.u8(..4) {
                    0 => w.map.with(durability).put(&key, &value).map(drop)?,
                    1 => {
                        let hours = Duration::from_secs(36_000);
                        w.map.with(durability).put_with_ttl(&key, &value, hours)?;
                        assert!(matches!(w.map.ttl(&key)?, Some(Ttl::Left(left)) if left <= hours));
                    }
                    2 => {
                        let hours = Duration::from_secs(36_000);
                        w.map.with(durability).put_until(&key, &value, Some(SystemTime::now() + hours))?;
                        // Ends are rounded up to milliseconds.
                        let most = hours + Duration::from_millis(1);
                        assert!(matches!(w.map.ttl(&key)?, Some(Ttl::Left(left)) if left <= most));
                    }
                    _ => {
                        let mut batch = w.shared.batch();
                        batch.put(&w.map, &key, &value)?;
                        batch.put(&w.map, format!("{key}/"), &value)?;
                        batch.commit_with(durability)?;
                        let both = w.map.multi_get(&[&key, &format!("{key}/")])?;
                        assert!(both.iter().all(|found| found.as_deref() == Some(&value)), "half a batch");
                    }
                }
                assert!(w.map.get(&key)?.as_deref() == Some(&value), "{key} is lost");
                Ok(())
            }),
            2 | 3 => self.counted(MERGE, |w, n| {
                w.sums.with(durability).merge(id.to_be_bytes(), 1_u64.to_le_bytes())?;
                let sum =
                    w.sums.get(id.to_be_bytes())?.map(|sum| u64::from_le_bytes((*sum).try_into().unwrap()));
                assert_eq!(sum, Some(n + 1), "merges of worker {id}");
                Ok(())
            }),
            4 | 5 => self.counted(COUNT, |w, n| {
                let before = w.map.with(durability).fetch_add(format!("count {id}"), 1)?;
                assert_eq!(before, n as i64, "additions of worker {id}");
                w.map.fetch_add("count of all", 1)?;
                Ok(())
            }),
            6 | 7 => self.transfer(),
            8 => self.sum(),
            _ => {
                let (key, short) = (format!("mortal {id}"), Duration::from_millis(1));
                if self.rng.bool() {
                    self.map.put_with_ttl(&key, "", short)?;
                } else {
                    self.map.put(&key, "")?;
                    assert!(self.map.expire(&key, short)?, "it was put for ever");
                }
                std::thread::sleep(2 * short);
                assert_eq!((self.map.get(&key)?, self.map.persist(&key)?), (None, false));
                Ok(())
            }
        }
    }

    fn transfer(&mut self) -> Result<()> {
        let (from, to) = (self.rng.u64(..ACCOUNTS), self.rng.u64(..ACCOUNTS));
        let (accounts, how) = (&self.accounts, self.rng.u8(..8));
        self.shared.transact(|t| {
            match how {
                0 => t.lock(accounts, from.to_be_bytes(), LockMode::Exclusive)?,
                1 => t.lock_name("transfers", LockMode::Exclusive)?,
                2 | 3 => add_and_undo(t, accounts, to)?,
                _ => {}
            }
            t.fetch_add(accounts, from.to_be_bytes(), -1)?;
            t.fetch_add(accounts, to.to_be_bytes(), 1).map(drop)
        })
    }

    /// Adds up all accounts in one state.
    fn sum(&mut self) -> Result<()> {
        let summed = if self.rng.bool() {
            self.accounts.iter().map(|entry| Ok(number(&entry?.1))).sum::<Result<i64>>()
        } else {
            let snapshot = self.shared.snapshot()?;
            let keys: Vec<_> = (0..ACCOUNTS).map(u64::to_be_bytes).collect();
            let found = snapshot.multi_get(&self.accounts, &keys);
            found.map(|found| found.iter().flatten().map(|value| number(value)).sum())
        };
        match summed {
            Ok(sum) => assert_eq!(sum, TOTAL, "money was made or lost"),
            Err(Error::HostGone) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Adds to an account and undoes it, by a savepoint and by a part that fails.
fn add_and_undo(t: &mut SharedTransaction, accounts: &SharedKeyspace, to: u64) -> Result<()> {
    let to = to.to_be_bytes();
    let point = t.savepoint()?;
    let before = t.fetch_add(accounts, to, 1_000)?;
    t.rollback_to(&point)?;
    let part: Result<()> = t.nested(|t| {
        assert_eq!(t.fetch_add(accounts, to, 1_000_000)?, before, "undone");
        Err(esker::Error::SavepointGone.into())
    });
    match part {
        Err(Error::Db(esker::Error::SavepointGone)) => t.release(point),
        other => other,
    }
}

fn number(bytes: &[u8]) -> i64 {
    i64::from_le_bytes(bytes.try_into().unwrap())
}

pub(crate) fn journal_of(dir: &Path, id: u64) -> PathBuf {
    dir.join(format!("journal-{id}"))
}

fn sums_of(shared: &Shared) -> Result<SharedKeyspace> {
    match shared.open_keyspace("sums") {
        Err(Error::Db(esker::Error::KeyspaceNotFound(_))) => {
            shared.create_keyspace_with("sums", &KeyspaceOptions::new().merge_operator("add-u64"))
        }
        found => found,
    }
}

/// The process that [`hosts_are_killed_at_any_moment`] starts.
#[test]
fn worker() {
    let Some((dir, id)) = of_child() else { return };
    let shared = open(&dir).unwrap();
    let (map, accounts) = (shared.keyspace("map").unwrap(), shared.keyspace("accounts").unwrap());
    let journal = OpenOptions::new().create(true).append(true).open(journal_of(&dir, id)).unwrap();
    let sums = sums_of(&shared).unwrap();
    let mut worker =
        Worker { shared, map, sums, accounts, journal, id, rng: Rng::with_seed(id), done: [0; 3] };
    loop {
        if let Err(error) = worker.step() {
            panic!("worker {id}: {error}");
        }
    }
}

/// Worker processes of one database that are killed and replaced.
pub(crate) struct Campaign {
    dir: PathBuf,
    /// The test that each of them runs.
    worker: &'static str,
    workers: Vec<(u64, Child)>,
    next: u64,
    rng: Rng,
    /// Sizes of the journals, and since when they have them.
    seen: BTreeMap<u64, (u64, Instant)>,
}

impl Campaign {
    /// Starts the workers.
    fn begin(dir: &Path, worker: &'static str) -> Self {
        let (workers, seen, rng) = (Vec::new(), BTreeMap::new(), Rng::with_seed(fastrand::u64(..)));
        let mut campaign = Campaign { dir: dir.to_owned(), worker, workers, next: 0, rng, seen };
        (0..WORKERS).for_each(|_| campaign.spawn());
        campaign
    }

    /// Kills and replaces workers, then all of them. Returns how many there were.
    pub(crate) fn run(dir: &Path, worker: &'static str, kills: u64, pause: Duration) -> u64 {
        let mut campaign = Self::begin(dir, worker);
        let (mut of_hosts, began) = (0, Instant::now());
        for n in 0..kills {
            std::thread::sleep(Duration::from_micros(campaign.rng.u64(..pause.as_micros() as u64)));
            campaign.check();
            campaign.disturb();
            of_hosts += u64::from(campaign.kill());
            if n % 100 == 99 || n + 1 == kills {
                eprintln!("{} kills, {of_hosts} of hosts, in {:?}", n + 1, began.elapsed());
            }
        }
        // The last ones must go on as well.
        std::thread::sleep(Duration::from_secs(1));
        campaign.check();
        campaign.next
    }

    fn spawn(&mut self) {
        self.next += 1;
        self.workers.push((self.next, start(&self.dir, self.worker, self.next)));
        self.seen.insert(self.next, (0, Instant::now()));
    }

    /// Returns the position of the host among the workers.
    fn host(&self) -> Option<usize> {
        let pid: u32 = fs::read_to_string(self.dir.join("db/LOCK")).ok()?.trim().parse().ok()?;
        self.workers.iter().position(|(_, child)| child.id() == pid)
    }

    /// Fails if a worker ended by itself, or makes no progress.
    fn check(&mut self) {
        for (id, child) in &mut self.workers {
            assert!(child.try_wait().unwrap().is_none(), "worker {id} ended by itself");
            let size = fs::metadata(journal_of(&self.dir, *id)).map_or(0, |meta| meta.len());
            let seen = self.seen.get_mut(id).unwrap();
            if seen.0 != size {
                *seen = (size, Instant::now());
            }
            assert!(seen.1.elapsed() < HANG, "worker {id} hangs");
        }
    }

    /// Kills a worker, mostly the host, and starts another one. Returns whether it was the host.
    fn kill(&mut self) -> bool {
        let host = self.host();
        let at =
            host.filter(|_| self.rng.u8(..5) > 0).unwrap_or_else(|| self.rng.usize(..self.workers.len()));
        let (_, mut child) = self.workers.swap_remove(at);
        child.kill().unwrap();
        child.wait().unwrap();
        self.spawn();
        host == Some(at)
    }

    fn disturb(&mut self) {
        match self.rng.u8(..40) {
            0 => drop(fs::remove_file(self.dir.join("db/SOCKET"))),
            1 => {
                if let Some(at) = self.host() {
                    signal(&self.workers[at].1, Signal::STOP);
                    std::thread::sleep(Duration::from_millis(self.rng.u64(1..200)));
                    signal(&self.workers[at].1, Signal::CONT);
                }
            }
            _ => {}
        }
    }
}

impl Drop for Campaign {
    fn drop(&mut self) {
        for (_, child) in &mut self.workers {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The number of kills, unless the environment says otherwise.
pub(crate) fn kills(default: u64) -> u64 {
    std::env::var("ESKER_SHARED_KILLS").map_or(default, |kills| kills.parse().unwrap())
}

#[test]
fn hosts_are_killed_at_any_moment() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().to_owned();
    {
        let shared = open(&dir).unwrap();
        let accounts = shared.keyspace("accounts").unwrap();
        for account in 0..ACCOUNTS {
            let part = if account == 0 { TOTAL } else { 0 };
            accounts.put(account.to_be_bytes(), part.to_le_bytes()).unwrap();
        }
        sums_of(&shared).unwrap();
    }
    let spawned = Campaign::run(&dir, "kill::worker", kills(40), Duration::from_millis(60));
    let calls = verify(&dir, spawned);
    eprintln!("{calls} calls were acknowledged");
}

/// Compares the database with the journals. Returns the number of acknowledged calls.
fn verify(dir: &Path, spawned: u64) -> u64 {
    let db = engine().open(dir.join("db")).unwrap();
    let (map, sums) = (db.keyspace("map").unwrap(), db.keyspace("sums").unwrap());
    let (mut all, mut of_all) = (0, (0_u64, 0_u64));
    for id in 1..=spawned {
        let journal = fs::read_to_string(journal_of(dir, id)).unwrap_or_default();
        let (mut begun, mut acknowledged) = ([0_u64; 3], [0_u64; 3]);
        for line in journal.lines() {
            let parts: Vec<&str> = line.split(' ').collect();
            let kind: usize = parts[1].parse().unwrap();
            *(if parts[0] == "I" { &mut begun[kind] } else { &mut acknowledged[kind] }) += 1;
        }
        for n in 0..acknowledged[INSERT] {
            let value = map.get(format!("{id}/{n}")).unwrap();
            assert!(value.is_some_and(|value| value.iter().all(|byte| *byte == n as u8)), "{id}/{n} is lost");
        }
        let sum = sums.get(id.to_be_bytes()).unwrap().map_or(0, |sum| number(&sum) as u64);
        let merges = acknowledged[MERGE]..=begun[MERGE];
        assert!(merges.contains(&sum), "merges of {id}: {sum}, expected {merges:?}: {journal}");
        let count = map.get(format!("count {id}")).unwrap().map_or(0, |count| number(&count) as u64);
        assert!((acknowledged[COUNT]..=begun[COUNT]).contains(&count), "additions of {id}: {count}");
        all += acknowledged.iter().sum::<u64>();
        of_all = (of_all.0 + acknowledged[COUNT], of_all.1 + begun[COUNT]);
    }
    let count = map.get("count of all").unwrap().map_or(0, |count| number(&count) as u64);
    assert!((of_all.0..=of_all.1).contains(&count), "additions of all: {count}, expected {of_all:?}");
    let accounts = db.keyspace("accounts").unwrap();
    let sum: i64 = accounts.iter().map(|entry| number(&entry.unwrap().1)).sum();
    assert_eq!(sum, TOTAL);
    assert_eq!(db.check().unwrap().problems, Vec::<String>::new());
    all
}

/// A host that does nothing but serve.
#[test]
fn idle_host() {
    let Some((dir, _)) = of_child() else { return };
    let shared = open(&dir).unwrap();
    assert!(shared.is_host());
    loop {
        std::thread::park();
    }
}

/// A guest that holds a lock in an open transaction.
#[test]
fn holder() {
    let Some((dir, _)) = of_child() else { return };
    let shared = open(&dir).unwrap();
    let ks = shared.keyspace("k").unwrap();
    let mut transaction = shared.begin().unwrap();
    transaction.lock(&ks, "a", LockMode::Exclusive).unwrap();
    transaction.put(&ks, "a", "of the holder").unwrap();
    transaction.lock_name("job", LockMode::Exclusive).unwrap();
    fs::write(dir.join("locked"), "").unwrap();
    loop {
        std::thread::park();
    }
}

pub(crate) fn wait_for(path: &Path) {
    let until = Instant::now() + HANG;
    while !path.exists() {
        assert!(Instant::now() < until, "{} is missing", path.display());
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_stopped_host_is_a_timeout_and_commits_are_resolved_later() {
    let dir = tempfile::tempdir().unwrap();
    let mut host = Killed(start(dir.path(), "kill::idle_host", 0));
    wait_for(&dir.path().join("db/SOCKET"));
    let shared = Shared::builder().wait(Duration::from_millis(700)).open(dir.path().join("db")).unwrap();
    let ks = shared.keyspace("k").unwrap();
    ks.put("a", "1").unwrap();
    host.stop();
    let began = Instant::now();
    let read = ks.get("a");
    assert!(matches!(read, Err(Error::NoHost { .. })), "{read:?}");
    ks.put("b", "1").map(drop).unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(10));
    signal(&host.0, Signal::CONT);
    let mut left = shared.begin().unwrap();
    left.put(&ks, "c", "1").unwrap();
    // A connection that is open when the host stops: its commit is sent, and no more is known.
    host.stop();
    let Err(Error::OutcomeUnknown(id)) = left.commit() else { panic!("it is not known") };
    signal(&host.0, Signal::CONT);
    let outcome = shared.outcome(&id).unwrap();
    let is_there = ks.get("c").unwrap().is_some();
    assert_eq!(matches!(outcome, Outcome::Applied(_)), is_there, "lanes.2: {outcome:?}");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(ks.get("c").unwrap().is_some(), is_there, "it stays so");
    host.kill();
    assert_eq!(ks.get("a").unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn a_guest_that_is_killed_frees_its_locks() {
    let dir = tempfile::tempdir().unwrap();
    let shared = open(dir.path()).unwrap();
    let mut holder = Killed(start(dir.path(), "kill::holder", 0));
    wait_for(&dir.path().join("locked"));
    let (db, ks) = (shared.db().unwrap(), shared.keyspace("k").unwrap());
    let native = db.keyspace("k").unwrap();
    let short = Duration::from_millis(50);
    let held = db.begin().lock_for(&native, "a", LockMode::Exclusive, short);
    assert!(matches!(held, Err(esker::Error::LockTimeout { .. })), "{held:?}");
    let held = db.lock_for("job", LockMode::Shared, short).map(drop);
    assert!(matches!(held, Err(esker::Error::LockTimeout { .. })), "{held:?}");
    holder.kill();
    db.begin().lock(&native, "a", LockMode::Exclusive).unwrap();
    drop(db.lock("job", LockMode::Exclusive).unwrap());
    assert_eq!(ks.get("a").unwrap(), None);
}

#[test]
fn a_host_that_is_killed_takes_savepoints_and_named_locks_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut host = Killed(start(dir.path(), "kill::idle_host", 0));
    wait_for(&dir.path().join("db/SOCKET"));
    let shared = open(dir.path()).unwrap();
    let ks = shared.keyspace("k").unwrap();
    assert!(!shared.is_host());
    let mut held = shared.begin().unwrap();
    held.lock_name("job", LockMode::Exclusive).unwrap();
    held.put(&ks, "a", "1").unwrap();
    let point = held.savepoint().unwrap();
    held.put(&ks, "b", "1").unwrap();
    host.kill();
    let undone = held.rollback_to(&point);
    assert!(matches!(undone, Err(Error::HostGone)), "{undone:?}");
    // Another one gets the lock, so the first one must not commit any more.
    let mut next = shared.begin().unwrap();
    next.lock_name("job", LockMode::Exclusive).unwrap();
    next.put(&ks, "c", "1").unwrap();
    let undone = next.rollback_to(&point);
    assert!(matches!(undone, Err(Error::Db(esker::Error::SavepointGone))), "{undone:?}");
    next.commit().unwrap();
    assert!(matches!(held.commit(), Err(Error::HostGone)));
    assert_eq!((ks.len().unwrap(), ks.contains("c").unwrap()), (1, true));
}
