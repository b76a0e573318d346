//! Real threads: writers, readers, flushes and compactions at once, on a real directory and in memory.
//!
//! ```text
//!   writers, readers, snapshots, flush, compact --threads--> one Db --> invariants hold in any interleaving
//! ```
//!
//! - A snapshot shows only whole commits, in order: sums and sequences never break, even for cursors that
//!   change direction.
//! - Acknowledged writes are visible to all later reads.
//! - `len` equals what a scan of the same snapshot counts, also when commits are grouped.
//! - There are no lost updates: conflicting transactions fail or are ordered.
//! - Closing ends all threads, whatever handles remain.
//! - A check finds nothing wrong, whatever runs beside it.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::contents::dump_sound;
use crate::common::dir;
use esker::{Builder, Cursor, Db, Durability, Error, Key, Keyspace, Snapshot, Value};
use esker_env::{Env, FaultAction, FaultFs, FaultRule, FsRef, MemFs, OpKind};

/// Small sizes, with threads.
fn small(builder: Builder) -> Builder {
    builder.memory(4 << 20).tuning(|t| t.memtable_bytes(32 << 10).block_bytes(512).table_bytes(16 << 10))
}

/// Runs a test. The database must be sound, and still be after reopening.
fn check(test: impl Fn(&Db), open: impl Fn() -> Db) {
    let db = open();
    test(&db);
    let before = dump_sound(&db).unwrap();
    db.close().unwrap();
    let db = open();
    assert!(dump_sound(&db).unwrap() == before, "reopened");
    db.close().unwrap();
}

/// Runs a test on a file system.
fn on(fs: FsRef, test: impl Fn(&Db)) {
    check(test, || small(Db::builder()).env(Env::with_fs(fs.clone())).open(dir()).unwrap());
}

/// Runs a test in memory and in a real directory.
fn everywhere(test: impl Fn(&Db)) {
    on(Arc::new(MemFs::new()), &test);
    let real = tempfile::tempdir().unwrap();
    check(&test, || small(Db::builder()).open(real.path()).unwrap());
}

/// Runs a test in memory with slow syncs, so that all other writers wait for the next sync as one group.
fn in_groups(test: impl Fn(&Db)) {
    let faults = FaultFs::new(Arc::new(MemFs::new()));
    let slow = FaultAction::Delay(Duration::from_micros(200));
    faults.add(FaultRule::new(&[OpKind::SyncData], slow).on_path(".wal").forever());
    on(Arc::new(faults), test);
}

fn number(value: Option<Value>) -> u64 {
    value.map_or(0, |v| u64::from_le_bytes(v[..].try_into().unwrap()))
}

/// Sets the flag when dropped, so that a failed assertion does not leave the other threads running.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Flushes and compacts until the end.
fn churn(db: &Db, end: &AtomicBool) {
    for round in 0.. {
        if end.load(Ordering::Relaxed) {
            break;
        }
        db.flush().unwrap();
        if round % 4 == 0 {
            db.compact().unwrap();
        }
        std::thread::yield_now();
    }
}

/// Accounts, and a log of the transfers between them.
struct Bank {
    db: Db,
    accounts: Keyspace,
    log: Keyspace,
}

impl Bank {
    const ACCOUNTS: u64 = 40;
    const MONEY: u64 = Self::ACCOUNTS * 1000;

    fn new(db: &Db) -> Self {
        let (accounts, log) = (db.keyspace("accounts").unwrap(), db.keyspace("log").unwrap());
        let mut batch = db.batch();
        for n in 0..Self::ACCOUNTS {
            batch.put(&accounts, Self::name(n), (Self::MONEY / Self::ACCOUNTS).to_le_bytes()).unwrap();
        }
        batch.commit().unwrap();
        Bank { db: db.clone(), accounts, log }
    }

    fn name(n: u64) -> String {
        format!("account/{n:04}")
    }

    fn transfer(&self, rng: &mut fastrand::Rng, note: &str) {
        let (from, to) = (rng.u64(0..Self::ACCOUNTS), rng.u64(0..Self::ACCOUNTS));
        let amount = rng.u64(1..50);
        let transferred = self.db.transact(|t| {
            let have = number(t.get(&self.accounts, Self::name(from))?);
            if from != to && have >= amount {
                let there = number(t.get(&self.accounts, Self::name(to))?);
                t.put(&self.accounts, Self::name(from), (have - amount).to_le_bytes())?;
                t.put(&self.accounts, Self::name(to), (there + amount).to_le_bytes())?;
            }
            t.put(&self.log, note, amount.to_le_bytes())
        });
        transferred.unwrap();
    }

    fn audit(&self, snapshot: &Snapshot, backwards: bool) {
        let range = snapshot.iter(&self.accounts);
        let values: Vec<_> = if backwards { range.rev().collect() } else { range.collect() };
        assert_eq!(values.len() as u64, snapshot.len(&self.accounts).unwrap());
        let sum: u64 = values.into_iter().map(|entry| number(Some(entry.unwrap().1))).sum();
        assert_eq!(sum, Self::MONEY);
        let logged = snapshot.iter(&self.log).keys().map(Result::unwrap).count();
        assert_eq!(logged as u64, snapshot.len(&self.log).unwrap());
    }

    /// Audits new snapshots and an old one, which does not change, until the end.
    fn audit_until(&self, end: &AtomicBool, reader: u64) {
        let mut held = self.db.snapshot();
        for round in 0u64.. {
            self.audit(&self.db.snapshot(), (round + reader).is_multiple_of(2));
            self.audit(&held, round.is_multiple_of(2));
            if round.is_multiple_of(16) {
                held = self.db.snapshot();
            }
            if end.load(Ordering::Relaxed) {
                break;
            }
        }
    }

    /// Reads without a snapshot until the end: even so, one call reads one commit.
    fn sum_until(&self, end: &AtomicBool) {
        // All accounts several times, so that the call takes long and transfers happen during it.
        let names: Vec<_> = (0..10).flat_map(|_| (0..Self::ACCOUNTS).map(Self::name)).collect();
        loop {
            let values = self.accounts.multi_get(&names).unwrap();
            let values: Vec<u64> = values.into_iter().map(number).collect();
            let sums = values.chunks(Self::ACCOUNTS as usize).map(|all| all.iter().sum::<u64>());
            assert_eq!(sums.collect::<Vec<_>>(), [Self::MONEY; 10], "multi_get");
            let sum: u64 = self.accounts.iter().map(|entry| number(Some(entry.unwrap().1))).sum();
            assert_eq!(sum, Self::MONEY, "iter");
            if end.load(Ordering::Relaxed) {
                break;
            }
        }
    }
}

#[test]
fn transfers_keep_the_sum() {
    const TRANSFERS: u64 = 300;
    everywhere(|db| {
        let bank = Bank::new(db);
        let (bank, writing, end) = (&bank, &AtomicU64::new(3), &AtomicBool::new(false));
        std::thread::scope(|scope| {
            for writer in 0..3u64 {
                scope.spawn(move || {
                    let guard = EndOnDrop(end);
                    let mut rng = fastrand::Rng::with_seed(writer);
                    (0..TRANSFERS).for_each(|i| bank.transfer(&mut rng, &format!("{writer}/{i:05}")));
                    if writing.fetch_sub(1, Ordering::Relaxed) > 1 {
                        std::mem::forget(guard);
                    }
                });
            }
            let until_end = |work: &dyn Fn(&AtomicBool)| {
                let _guard = EndOnDrop(end);
                work(end);
            };
            for reader in 0..2 {
                scope.spawn(move || until_end(&|end| bank.audit_until(end, reader)));
            }
            scope.spawn(move || until_end(&|end| bank.sum_until(end)));
            scope.spawn(move || until_end(&|end| churn(db, end)));
        });
        bank.audit(&db.snapshot(), false);
        assert_eq!(bank.log.len().unwrap(), 3 * TRANSFERS);
    });
}

#[test]
fn counters_lose_no_increment() {
    const INCREMENTS: u64 = 200;
    everywhere(|db| {
        let keyspace = db.default_keyspace();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..INCREMENTS {
                        db.transact(|t| {
                            let n = number(t.get(&keyspace, "counter")?);
                            t.put(&keyspace, "counter", (n + 1).to_le_bytes())
                        })
                        .unwrap();
                    }
                });
            }
        });
        assert_eq!(number(keyspace.get("counter").unwrap()), 4 * INCREMENTS);
    });
}

/// Each writer writes its own keys 0, 1, 2, ... and then publishes its progress.
struct Progress([AtomicU64; 4]);

fn item(writer: usize, n: u64) -> String {
    format!("{writer}/{n:06}")
}

fn write_sequence(db: &Db, keyspace: &Keyspace, writer: usize, progress: &Progress, items: u64) {
    let durability = [Durability::Sync, Durability::Buffered, Durability::None, Durability::None][writer];
    for n in 0..items {
        let mut batch = db.batch();
        batch.put(keyspace, item(writer, n), vec![writer as u8; 40]).unwrap();
        // A window of 500 items moves along, through single removals and range removals.
        if n >= 500 && n % 100 == 0 {
            batch.delete_range(keyspace, item(writer, n - 600.min(n))..item(writer, n - 500)).unwrap();
        }
        batch.commit_with(durability).unwrap();
        progress.0[writer].store(n + 1, Ordering::Release);
    }
}

#[test]
fn acknowledged_writes_are_seen_in_order_by_all() {
    const ITEMS: u64 = 1500;
    everywhere(|db| {
        let keyspace = db.keyspace("sequences").unwrap();
        let progress = Progress(Default::default());
        let (writing, end) = (AtomicU64::new(4), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let (keyspace, progress, writing, end) = (&keyspace, &progress, &writing, &end);
                scope.spawn(move || {
                    let guard = EndOnDrop(end);
                    write_sequence(db, keyspace, writer, progress, ITEMS);
                    if writing.fetch_sub(1, Ordering::Relaxed) > 1 {
                        std::mem::forget(guard);
                    }
                });
            }
            for reader in 0..2usize {
                let (keyspace, progress, end) = (&keyspace, &progress, &end);
                scope.spawn(move || {
                    let _guard = EndOnDrop(end);
                    let mut rng = fastrand::Rng::with_seed(reader as u64);
                    while !end.load(Ordering::Relaxed) {
                        let writer = rng.usize(0..4);
                        let done = progress.0[writer].load(Ordering::Acquire);
                        if done > 0 {
                            let there = keyspace.contains(item(writer, done - 1)).unwrap();
                            // The writer removes it 500 items later at the earliest.
                            assert!(there || progress.0[writer].load(Ordering::Acquire) >= done + 400);
                        }
                        check_sequences(keyspace, writer, done);
                    }
                });
            }
            scope.spawn(|| {
                let _guard = EndOnDrop(&end);
                churn(db, &end);
            });
        });
        for writer in 0..4 {
            check_sequences(&keyspace, writer, ITEMS);
        }
    });
}

/// A cursor that changes direction shows the entries of its moment, whatever is written, flushed and
/// compacted meanwhile.
#[test]
fn cursors_turn_round_while_others_write() {
    const KEYS: u64 = 3000;
    const WRITES: u64 = 6000;
    let name = |n: u64| format!("common/{n:05}");
    everywhere(|db| {
        let keyspace = db.keyspace("turns").unwrap();
        let (writing, end) = (AtomicU64::new(2), AtomicBool::new(false));
        let walked = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for writer in 0..2u64 {
                let (keyspace, writing, end, walked) = (&keyspace, &writing, &end, &walked);
                scope.spawn(move || {
                    let guard = EndOnDrop(end);
                    let mut rng = fastrand::Rng::with_seed(writer);
                    // On a slow machine the writers continue until a reader has walked.
                    let is_over = || walked.load(Ordering::Relaxed) > 3 || end.load(Ordering::Relaxed);
                    for n in (0u64..).take_while(|n| *n < WRITES || !is_over()) {
                        let key = name(rng.u64(0..KEYS));
                        let removes = rng.u8(0..4) == 0;
                        let mut batch = db.batch();
                        if removes {
                            batch.delete(keyspace, key)
                        } else {
                            batch.put(keyspace, key, n.to_le_bytes())
                        }
                        .unwrap();
                        batch.commit_with(Durability::None).unwrap();
                    }
                    if writing.fetch_sub(1, Ordering::Relaxed) > 1 {
                        std::mem::forget(guard);
                    }
                });
            }
            for reader in 0..2 {
                let (keyspace, end, walked) = (&keyspace, &end, &walked);
                scope.spawn(move || {
                    let _guard = EndOnDrop(end);
                    let mut rng = fastrand::Rng::with_seed(100 + reader);
                    while !end.load(Ordering::Relaxed) {
                        let snapshot = db.snapshot();
                        let mut cursor = snapshot.cursor(keyspace).unwrap();
                        let all: Vec<_> = snapshot.iter(keyspace).map(Result::unwrap).collect();
                        turn_about(&mut cursor, &all, &mut rng);
                        walked.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            scope.spawn(|| {
                let _guard = EndOnDrop(&end);
                churn(db, &end);
            });
        });
        assert!(walked.load(Ordering::Relaxed) > 3, "no reader walked");
    });
}

/// Walks back and forth from a key. The entries met must be `all`.
fn turn_about(cursor: &mut Cursor, all: &[(Key, Value)], rng: &mut fastrand::Rng) {
    if all.is_empty() {
        return;
    }
    let mut at = rng.usize(0..all.len());
    cursor.seek(&all[at].0).unwrap();
    for _ in 0..300 {
        let found = cursor.valid().then(|| (cursor.key(), cursor.value().unwrap()));
        assert_eq!(found, Some((&all[at].0[..], &all[at].1[..])), "entry {at}");
        let on = if at == 0 { true } else { at + 1 < all.len() && rng.bool() };
        if on && at + 1 == all.len() {
            return;
        }
        if on { cursor.next() } else { cursor.prev() }.unwrap();
        at = if on { at + 1 } else { at - 1 };
    }
}

/// A range over a writer's items has no gap and includes everything acknowledged before.
fn check_sequences(keyspace: &Keyspace, writer: usize, done: u64) {
    let keys: Vec<_> = keyspace.prefix(format!("{writer}/")).keys().map(Result::unwrap).collect();
    let ns: Vec<u64> = keys.iter().map(|k| std::str::from_utf8(&k[2..]).unwrap().parse().unwrap()).collect();
    assert!(ns.windows(2).all(|pair| pair[0] + 1 == pair[1]), "a gap in {ns:?}");
    assert!(done == 0 || ns.last().is_some_and(|last| last + 1 >= done), "{:?} after {done}", ns.last());
}

/// Writers with every way to change a count, and readers that compare. Returns the number of conflicts.
fn count_and_scan(db: &Db) -> u64 {
    const WRITERS: u64 = 4;
    const CALLS: u64 = 400;
    let keyspaces = [db.keyspace("a").unwrap(), db.keyspace("b").unwrap()];
    let (conflicts, writing, end) = (AtomicU64::new(0), AtomicU64::new(WRITERS), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (keyspaces, conflicts, writing, end) = (&keyspaces, &conflicts, &writing, &end);
            scope.spawn(move || {
                let guard = EndOnDrop(end);
                let mut rng = fastrand::Rng::with_seed(writer + 10);
                for _ in 0..CALLS {
                    let keyspace = &keyspaces[rng.usize(0..2)];
                    let key = |rng: &mut fastrand::Rng| vec![b'k', rng.u8(..), rng.u8(0..4)];
                    let (a, b) = (key(&mut rng), key(&mut rng));
                    match rng.u8(0..40) {
                        0 => keyspace.clear().map(drop).unwrap(),
                        1 => keyspace.delete_range(..).map(drop).unwrap(),
                        2..4 => keyspace.delete_range(a..b).map(drop).unwrap(),
                        4..12 => keyspace.delete(a).map(drop).unwrap(),
                        12..18 => {
                            let mut transaction = db.begin();
                            for key in [vec![b'c', rng.u8(0..4)], a, b] {
                                transaction.put(keyspace, key, "3").unwrap();
                            }
                            match transaction.commit() {
                                Ok(_) => {}
                                Err(failed) if matches!(failed.error, Error::Conflict { .. }) => {
                                    conflicts.fetch_add(1, Ordering::Relaxed);
                                }
                                Err(failed) => panic!("{failed}"),
                            }
                        }
                        n => {
                            let mut batch = db.batch();
                            batch.put(keyspace, a, "1").unwrap();
                            batch.put(keyspace, b, "2").unwrap();
                            let durability = if n < 30 { Durability::None } else { Durability::Sync };
                            batch.commit_with(durability).unwrap();
                        }
                    }
                }
                if writing.fetch_sub(1, Ordering::Relaxed) > 1 {
                    std::mem::forget(guard);
                }
            });
        }
        scope.spawn(|| {
            let _guard = EndOnDrop(&end);
            while !end.load(Ordering::Relaxed) {
                let snapshot = db.snapshot();
                for keyspace in &keyspaces {
                    let counted = snapshot.iter(keyspace).keys().map(Result::unwrap).count() as u64;
                    assert_eq!(snapshot.len(keyspace).unwrap(), counted);
                }
            }
        });
        scope.spawn(|| {
            let _guard = EndOnDrop(&end);
            churn(db, &end);
        });
    });
    conflicts.into_inner()
}

#[test]
fn len_equals_a_scan_of_the_snapshot() {
    everywhere(|db| {
        count_and_scan(db);
    });
}

#[test]
fn len_equals_a_scan_of_the_snapshot_where_commits_come_in_groups() {
    // Threads may by chance take turns without a conflict, but not every time.
    in_groups(|db| assert!((0..20).any(|_| count_and_scan(db) > 0), "transactions conflict"));
}

#[test]
fn a_second_open_names_the_holder() {
    let real = tempfile::tempdir().unwrap();
    let db = Db::open(real.path()).unwrap();
    match Db::open(real.path()) {
        Err(Error::Locked { pid, path, .. }) => {
            assert_eq!(pid, Some(std::process::id()));
            assert!(path.starts_with(real.path()));
        }
        other => panic!("a second open: {other:?}"),
    }
    db.close().unwrap();
    drop(Db::open(real.path()).unwrap());
    Db::open(real.path()).unwrap().close().unwrap();
}

#[test]
fn close_ends_threads_while_others_read_and_write() {
    let mem = MemFs::new();
    let open = || small(Db::builder()).env(Env::with_fs(Arc::new(mem.clone()))).open(dir()).unwrap();
    let db = open();
    let keyspace = db.default_keyspace();
    for n in 0..3000u32 {
        let mut batch = db.batch();
        batch.put(&keyspace, n.to_be_bytes(), [7; 50]).unwrap();
        batch.commit_with(Durability::None).unwrap();
    }
    let mut held = keyspace.iter();
    assert!(held.next().unwrap().is_ok());
    let snapshot = db.snapshot();
    let acknowledged = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 3000..u32::MAX {
                match keyspace.put(n.to_be_bytes(), "more") {
                    Ok(_) => acknowledged.store(u64::from(n), Ordering::Release),
                    Err(Error::Closed) => break,
                    Err(other) => panic!("a write while closing: {other}"),
                }
            }
        });
        while acknowledged.load(Ordering::Acquire) < 3100 {
            std::thread::yield_now();
        }
        db.clone().close().unwrap();
    });
    // Existing readers fail (view.2).
    assert!(matches!(held.map(Result::unwrap_err).collect::<Vec<_>>()[..], [Error::Closed]));
    assert!(matches!(snapshot.len(&keyspace), Err(Error::Closed)));
    assert!(matches!(keyspace.put("x", "y"), Err(Error::Closed)));
    assert!(matches!(db.flush(), Err(Error::Closed)));
    // The directory is free, and all acknowledged entries are there.
    let again = open();
    let last = acknowledged.load(Ordering::Acquire) as u32;
    assert!(again.default_keyspace().contains(last.to_be_bytes()).unwrap());
    dump_sound(&again).unwrap();
}

#[test]
fn a_crash_in_full_flight_keeps_what_was_acknowledged() {
    const CRASHES: u64 = 30;
    let mem = MemFs::new();
    let open =
        |mem: &MemFs| small(Db::builder()).env(Env::with_fs(Arc::new(mem.clone()))).open(dir()).unwrap();
    let db = open(&mem);
    let keyspace = db.keyspace("sequences").unwrap();
    let progress = Progress(Default::default());
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let (db, keyspace, progress, end) = (&db, &keyspace, &progress, &end);
            scope.spawn(move || {
                let _guard = EndOnDrop(end);
                write_sequence(db, keyspace, writer, progress, 4000);
            });
        }
        scope.spawn(|| {
            let _guard = EndOnDrop(&end);
            churn(&db, &end);
        });
        let _guard = EndOnDrop(&end);
        for crash in 0..CRASHES {
            // Only the first writer waits for the disk. A prefix is left of the others.
            let done = [progress.0[0].load(Ordering::Acquire), 0, 0, 0];
            let left = open(&mem.crash(crash));
            let keyspace = left.open_keyspace("sequences").unwrap();
            for (writer, done) in done.into_iter().enumerate() {
                check_sequences(&keyspace, writer, done);
            }
            dump_sound(&left).unwrap();
        }
    });
}

/// Writes, range removals, changes of keyspaces, flushes and compactions, all while a check runs.
#[test]
fn a_check_finds_nothing_wrong_beside_those_who_write() {
    const ROUNDS_MAX: u64 = 20_000;
    on(Arc::new(MemFs::new()), |db| {
        let (end, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| churn(db, &end));
            for writer in 0..2_u8 {
                let (end, rounds) = (&end, &rounds);
                scope.spawn(move || {
                    let _end = EndOnDrop(end);
                    let shared = db.keyspace("shared").unwrap();
                    let mut rng = fastrand::Rng::with_seed(u64::from(writer));
                    for round in 0_u32.. {
                        if end.load(Ordering::Relaxed) {
                            break;
                        }
                        let name = format!("{writer}/{round}");
                        let own = db.keyspace(&name).unwrap();
                        for _ in 0..rng.usize(1..40) {
                            own.put([rng.u8(..)], [0; 50]).unwrap();
                            shared.put([rng.u8(..)], [writer; 20]).unwrap();
                        }
                        let from = rng.u8(..200);
                        shared.delete_range([from]..[from + 20]).unwrap();
                        if round % 4 != 0 {
                            db.drop_keyspace(&name).unwrap();
                        }
                        rounds.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let _end = EndOnDrop(&end);
            // Checks during which a flush and a compaction ended. On a slow machine the writers continue
            // until there are some.
            let (mut flushed, mut merged) = (0, 0);
            let is_met = |flushed: u32, merged: u32| flushed >= 5 && merged >= 2;
            while !end.load(Ordering::Relaxed) {
                let rounds = rounds.load(Ordering::Relaxed);
                if rounds >= ROUNDS_MAX || rounds >= 60 && is_met(flushed, merged) {
                    break;
                }
                let before = db.stats();
                assert_eq!(db.check().unwrap().problems, Vec::<String>::new());
                let after = db.stats();
                flushed += u32::from(after.flushes > before.flushes);
                merged += u32::from(after.compactions > before.compactions);
            }
            let rounds = rounds.load(Ordering::Relaxed);
            assert!(is_met(flushed, merged), "{flushed} flushes, {merged} merges in {rounds} rounds");
        });
    });
}
