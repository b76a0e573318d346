//! Suite `transactions`: writers that read what they write, all at once, over many accounts or few.
//!
//! ```text
//! writer 1..N --draw 4 accounts--> Transactions::transact: read all, write all --commit, again after a conflict--> Track
//!                                                                     all accounts --> the sum of the money, the number of changes
//! ```
//!
//! Each engine has its own kind of transactions, and some have two. So there are two families of rows: `optimistic`, where conflicts show at the
//! commit, and `waiting`, where writers wait for a lock or for each other. An engine that lacks one takes part with the other, and a note on each row
//! says what it did. The accounts of a transfer are read in the order of their keys, so that locks meet no deadlock.
//!
//! bench_suites_transactions.1. The rate is commits over the time on the wall, from the moment at which the first writer begins to that at which the last has ended. A commit's
//!     latency counts from its first try.
//! bench_suites_transactions.2. Every read is looked at: its bytes belong together. After each row the sum of all balances is what it was, and the sum of all changes is four
//!     for each commit: neither a part of a transaction is missing nor a whole one, and none is there twice.
//! bench_suites_transactions.3. Fairness is the commits of the writer with the fewest over those of the one with the most.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use esker_bench_api::generate::accounts::{Account, Accounts, BALANCE, Transfers, VALUE_BYTES};
use esker_bench_api::results::Unit;
use esker_bench_api::{
    Durability, Failure, OpenOptions, Transaction, TransactionKind, Transactions, transactions,
};

use crate::recorder::Outcome;
use crate::row::{Commits, Row};
use crate::scale::Scale;
use crate::suites::budget::Budget;
use crate::suites::verify::expect;
use crate::suites::{Stream, Suite, Turn, needs};
use crate::track::Track;

/// Commits of a row at scale `test`, of all its writers together.
const TEST_COMMITS: u64 = 96;
const SEED: u64 = 41;
const KEY_BYTES: u64 = 16;
const ITEM_BYTES: u64 = KEY_BYTES + VALUE_BYTES as u64;
/// Accounts that a transfer changes.
const KEYS: usize = 4;
/// Accounts that a contended row draws from.
const HOT: u64 = 32;
const WRITERS: [u64; 3] = [1, 4, 16];
const CACHE_BYTES: u64 = 512 << 20;
const MEMORY_BYTES_MAX: u64 = 4 << 30;
const LOAD_BATCH: u64 = 1000;

pub(crate) struct TransactionsSuite;

/// What the rows of a group have in common.
#[derive(Clone, Copy)]
struct Group {
    family: &'static str,
    /// The kind of transactions that the family asks engines for.
    kind: TransactionKind,
    durability: Durability,
}

impl Group {
    const ALL: [Self; 4] = [
        Self::of("optimistic", TransactionKind::Optimistic, Durability::Sync),
        Self::of("optimistic", TransactionKind::Optimistic, Durability::Async),
        Self::of("waiting", TransactionKind::Locks, Durability::Sync),
        Self::of("waiting", TransactionKind::Locks, Durability::Async),
    ];

    const fn of(family: &'static str, kind: TransactionKind, durability: Durability) -> Self {
        Self { family, kind, durability }
    }

    fn mode(self) -> &'static str {
        if self.durability == Durability::Sync { "sync" } else { "async" }
    }

    /// The rows with this number of writers: the name of each, and the number of accounts that it draws from. One writer has no contended row.
    fn rows(self, writers: u64, accounts: u64) -> Vec<(String, u64)> {
        let (Self { family, .. }, mode) = (self, self.mode());
        let s = if writers == 1 { "" } else { "s" };
        let row = |contention, below| (format!("{family}, {contention}, {writers} writer{s}, {mode}"), below);
        let mut rows = vec![row("uncontended", accounts)];
        if writers > 1 {
            rows.push(row("contended", HOT));
        }
        rows
    }
}

fn account_count(scale: Scale) -> u64 {
    match scale {
        Scale::Quick => 100_000,
        Scale::Seed => 1_000_000,
        Scale::Full => 10_000_000,
        Scale::Test => 60,
    }
}

fn budget(scale: Scale) -> Budget {
    let seconds = match scale {
        Scale::Quick => 1,
        Scale::Seed => 10,
        Scale::Full => 60,
        Scale::Test => return Budget { time: Duration::from_secs(3600), ops: TEST_COMMITS },
    };
    Budget { time: Duration::from_secs(seconds), ops: u64::MAX }
}

impl Suite for TransactionsSuite {
    fn name(&self) -> &'static str {
        "transactions"
    }

    fn summary(&self) -> &'static str {
        "transfers between 4 accounts, 1 to 16 writers at once: each reads and writes 4 keys of 16 bytes with values of 100, drawn from all or from 32; commits a second"
    }

    fn memory_bytes_max(&self, _group: usize) -> Option<u64> {
        Some(MEMORY_BYTES_MAX)
    }

    fn streams(&self) -> Vec<Stream> {
        vec![
            Stream::new("accounts", format!("accounts::Accounts, seed {SEED}")),
            Stream::new("transfers", "accounts::Transfers of each writer"),
        ]
    }

    /// A sync serves at most all writers.
    fn syncs_per_commit_min(&self, _group: usize) -> f64 {
        1.0 / WRITERS[WRITERS.len() - 1] as f64
    }

    fn rows(&self, scale: Scale) -> Vec<Row> {
        let (seconds, accounts) = (budget(scale).time.as_secs(), account_count(scale));
        let mut rows = Vec::new();
        for (number, group) in Group::ALL.into_iter().enumerate() {
            for (name, below) in WRITERS.into_iter().flat_map(|writers| group.rows(writers, accounts)) {
                let work = format!(
                    "transfers between 4 of {below} accounts, {accounts} in all, {}; {seconds} s; commits a second",
                    group.mode()
                );
                rows.push(Row {
                    group: number,
                    weight: seconds + accounts / 500_000,
                    commits: match group.durability {
                        Durability::Sync => Commits::Sync(0),
                        _ => Commits::Async(0),
                    },
                    ..Row::rate(Unit::OpsPerSecond, name, work)
                });
            }
        }
        rows
    }

    fn run(&self, turn: Turn<'_>) -> Result<(), Failure> {
        let Turn { engine, scale, group, recorder } = turn;
        let group = Group::ALL[group];
        needs(engine, group.durability.feature())?;
        let Some(kind) = group.kind.nearest(engine.transaction_kinds()) else {
            return Err(transactions::none_of(engine));
        };
        let dir = recorder.dir().to_path_buf();
        let mut bank = Bank { accounts: Accounts::new(SEED), count: account_count(scale), changes: 0 };
        for writers in WRITERS {
            let options = OpenOptions {
                value_bytes: VALUE_BYTES as u64,
                concurrent_writes: writers,
                durability: group.durability,
                ..OpenOptions::with_cache(CACHE_BYTES)
            };
            let store = engine.open_transactions(&dir, &options, kind)?;
            if writers == WRITERS[0] {
                recorder.load("accounts", bank.count, |how_far| {
                    bank.load(&*store, |done| how_far.at(done, Instant::now()))
                })?;
                recorder.drain_by(|deadline| store.drain(deadline))?;
            }
            for (name, below) in group.rows(writers, bank.count) {
                recorder.row(&name, || {
                    let outcome = bank.transfers(&*store, writers, below, budget(scale), &dir)?;
                    Ok(Outcome { note: kind.name().to_owned(), ..outcome })
                })?;
                recorder.drain_by(|deadline| store.drain(deadline))?;
                recorder.check(|| bank.check(&*store))?;
            }
        }
        Ok(())
    }
}

/// What the database must hold.
struct Bank {
    accounts: Accounts,
    /// The number of accounts.
    count: u64,
    /// Changes of all accounts since the load.
    changes: u64,
}

/// What one writer did in a row.
#[derive(Clone, Copy, Default)]
struct Done {
    commits: u64,
    conflicts: u64,
    /// The most conflicts that one commit met.
    conflicts_most: u64,
    /// From its first try to its last commit.
    time: Option<(Instant, Instant)>,
}

/// What the writers of a row share.
struct Shared<'a> {
    store: &'a dyn Transactions,
    start: Barrier,
    /// True once a writer has failed: the others stop. It orders nothing: `Relaxed`.
    stop: AtomicBool,
    track: Mutex<Track>,
    budget: Budget,
}

impl Bank {
    fn load(
        &self,
        store: &dyn Transactions,
        mut tell: impl FnMut(u64) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut value = [0; VALUE_BYTES];
        for first in (0..self.count).step_by(LOAD_BATCH as usize) {
            let end = (first + LOAD_BATCH).min(self.count);
            let mut batch: Vec<_> = (first..end).map(|i| (self.accounts.key(i), i)).collect();
            batch.sort_unstable();
            let keys: Vec<&[u8]> = batch.iter().map(|(key, _)| &key[..]).collect();
            store.transact(&keys, &mut |transaction| {
                batch.iter().try_for_each(|(key, i)| {
                    self.accounts.value(*i, Account::NEW, &mut value);
                    transaction.put(key, &value)
                })
            })?;
            tell(end)?;
        }
        Ok(())
    }

    /// Runs a row: `writers` threads make transfers between the first `below` accounts.
    fn transfers(
        &mut self,
        store: &dyn Transactions,
        writers: u64,
        below: u64,
        budget: Budget,
        dir: &Path,
    ) -> Result<Outcome, Failure> {
        let budget = Budget { ops: budget.ops / writers, ..budget };
        let shared = Shared {
            store,
            start: Barrier::new(writers as usize),
            stop: AtomicBool::new(false),
            track: Mutex::new(Track::new(&["commit"], budget.period(), dir)?),
            budget,
        };
        let done: Vec<_> = thread::scope(|scope| {
            let (shared, accounts) = (&shared, self.accounts);
            let threads: Vec<_> = (0..writers)
                .map(|writer| scope.spawn(move || shared.write(accounts, writer, below)))
                .collect();
            let ended = threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| Err(Failure::engine("a writer panicked"))));
            ended.collect()
        });
        let done = done.into_iter().collect::<Result<Vec<_>, _>>()?;
        let commits: u64 = done.iter().map(|done| done.commits).sum();
        let changes = commits * KEYS as u64;
        self.changes += changes;
        let track = shared.track.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut detail = track.finish("closed");
        detail.figures.extend(figures(&done).map(|(name, figure)| (name.to_owned(), figure)));
        Ok(Outcome {
            seconds: wall_seconds(&done),
            ops: Some(commits),
            commits: Some(commits),
            user_written_bytes: changes * ITEM_BYTES,
            live_bytes: self.count * ITEM_BYTES,
            detail: Some(detail),
            ..Outcome::default()
        })
    }

    /// bench_suites_transactions.2.
    fn check(&self, store: &dyn Transactions) -> Result<(), Failure> {
        let (mut balances, mut changes, mut torn) = (0_i64, 0_u64, 0_u64);
        let seen = store.scan(&mut |key, value| {
            let number = self.accounts.number(key);
            match self.accounts.read(number, value).filter(|_| *key == self.accounts.key(number)) {
                Some(account) => {
                    balances = balances.wrapping_add(account.balance);
                    changes = changes.wrapping_add(account.changes);
                }
                None => torn += 1,
            }
        })?;
        expect("accounts", seen, self.count)?;
        expect("accounts that are not whole", torn, 0)?;
        let all = self.count.cast_signed() * BALANCE;
        if balances != all {
            return Err(Failure::Wrong(format!("the sum of all accounts: {balances}, not {all}")));
        }
        expect("changes of all accounts", changes, self.changes).map(drop)
    }
}

/// From the first writer's beginning to the last one's end (bench_suites_transactions.1).
fn wall_seconds(done: &[Done]) -> Option<f64> {
    let times = || done.iter().filter_map(|done| done.time);
    let (first, last) = (times().map(|(from, _)| from).min()?, times().map(|(_, to)| to).max()?);
    Some((last - first).as_secs_f64())
}

/// The figures of a row: conflicts and fairness (bench_suites_transactions.3).
fn figures(done: &[Done]) -> [(&'static str, f64); 4] {
    let commits = |done: &Done| done.commits;
    let (sum, most) = (done.iter().map(commits).sum::<u64>(), done.iter().map(commits).max().unwrap_or(0));
    let conflicts: u64 = done.iter().map(|done| done.conflicts).sum();
    let least = done.iter().map(commits).min().unwrap_or(0);
    [
        ("conflicts", conflicts as f64),
        ("conflicts per commit", conflicts as f64 / sum.max(1) as f64),
        (
            "most conflicts of one commit",
            done.iter().map(|done| done.conflicts_most).max().unwrap_or(0) as f64,
        ),
        ("fairness", least as f64 / most.max(1) as f64),
    ]
}

impl Shared<'_> {
    fn write(&self, accounts: Accounts, writer: u64, below: u64) -> Result<Done, Failure> {
        let mut transfers = Transfers::new(accounts, writer, below);
        let (mut done, mut told) = (Done::default(), Vec::new());
        self.start.wait();
        let start = Instant::now();
        let mut now = start;
        while done.commits < self.budget.ops
            && now.duration_since(start) < self.budget.time
            && !self.stop.load(Ordering::Relaxed)
        {
            let mut drawn = [0; KEYS];
            let amount = transfers.draw(&mut drawn);
            let from = Instant::now();
            let conflicts = transfer(self.store, accounts, drawn, amount)
                .inspect_err(|_| self.stop.store(true, Ordering::Relaxed))?;
            now = Instant::now();
            done.commits += 1;
            done.time = Some((start, now));
            done.conflicts += conflicts;
            done.conflicts_most = done.conflicts_most.max(conflicts);
            told.push((from, now));
            // Nobody waits for the track: what it could not take now it takes later.
            if let Ok(mut track) = self.track.try_lock() {
                told.drain(..).for_each(|(from, to)| track.record(0, from, to, 1));
            }
        }
        let mut track = self.track.lock().unwrap_or_else(PoisonError::into_inner);
        told.into_iter().for_each(|(from, to)| track.record(0, from, to, 1));
        Ok(done)
    }
}

/// One transaction: takes money from the first of the accounts `drawn` and gives `amount` to each of the others. Returns the number of its conflicts.
fn transfer(
    store: &dyn Transactions,
    accounts: Accounts,
    drawn: [u64; KEYS],
    amount: i64,
) -> Result<u64, Failure> {
    let keys = drawn.map(|i| accounts.key(i));
    store.transact(&keys.each_ref().map(|key| &key[..]), &mut |transaction: &mut dyn Transaction| {
        let mut values = [[0; VALUE_BYTES]; KEYS];
        for ((i, key), copy) in drawn.iter().zip(&keys).zip(&mut values) {
            let mut account = None;
            transaction.get(key, &mut |value| {
                account = accounts.read(*i, value);
                if account.is_some() {
                    copy.copy_from_slice(value);
                }
            })?;
            let Some(Account { balance, changes }) = account else {
                return Err(Failure::Wrong("an account that was read is not whole".to_owned()));
            };
            let is_giver = *i == drawn[0];
            let change = if is_giver { -amount * (KEYS as i64 - 1) } else { amount };
            accounts.change(*i, Account { balance: balance + change, changes: changes + 1 }, copy);
        }
        keys.iter().zip(&values).try_for_each(|(key, value)| transaction.put(key, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::rehearse::Rehearsed;

    #[test]
    fn bench_suites_transactions_2_a_lost_write_is_found_by_the_sums() {
        assert_eq!(Rehearsed::default().errors(&TransactionsSuite, 1), [const { None }; 5]);
        // It keeps the first account as it was loaded, and loses every change of it: the money of others does not add up any more.
        let losing = Rehearsed { kept_puts: Some(1), ..Rehearsed::default() };
        let errors = losing.errors(&TransactionsSuite, 1);
        let is_found = |error: &Option<String>| {
            error.as_ref().is_some_and(|error| error.starts_with("wrong answer: the sum of all accounts"))
        };
        assert!(errors.iter().any(is_found), "{errors:?}");
    }

    #[test]
    fn bench_suites_transactions_2_transactions_that_are_lost_whole_are_found_by_the_changes() {
        let dir = tempfile::tempdir().unwrap();
        let store = crate::engines::find("redb").unwrap();
        let options = OpenOptions::with_cache(1 << 24);
        let store = store.open_transactions(dir.path(), &options, TransactionKind::OneWriter).unwrap();
        let mut bank = Bank { accounts: Accounts::new(SEED), count: 40, changes: 0 };
        bank.load(&*store, |_| Ok(())).unwrap();
        bank.transfers(&*store, 2, 40, Budget::of_ops(20), dir.path()).unwrap();
        bank.check(&*store).unwrap();
        assert_eq!(bank.changes, 80);
        bank.changes += KEYS as u64;
        let wrong = bank.check(&*store).unwrap_err().to_string();
        assert_eq!(wrong, "wrong answer: changes of all accounts: 80, not 84");
    }

    #[test]
    fn bench_suites_transactions_1_the_time_is_from_the_first_beginning_to_the_last_end() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let done = |from, to| Done { time: Some((at(from), at(to))), ..Done::default() };
        let idle = Done::default();
        assert_eq!(wall_seconds(&[done(3, 5), idle, done(2, 4), done(2, 9)]), Some(7.0));
        assert_eq!(wall_seconds(&[idle]), None);
    }

    #[test]
    fn bench_suites_transactions_3_fairness_is_of_the_fewest_to_the_most() {
        let done = |commits, conflicts| Done { commits, conflicts, conflicts_most: conflicts, time: None };
        let figures = figures(&[done(10, 5), done(40, 0), done(20, 2)]);
        assert_eq!(figures.map(|(_, figure)| figure), [7.0, 0.1, 5.0, 0.25]);
    }

    #[test]
    fn each_row_says_what_kind_it_was() {
        let records = Rehearsed::default().run(&TransactionsSuite, 2);
        assert!(records.iter().all(|record| record.note == "one writer at a time"), "{records:?}");
        assert!(records.iter().all(|record| record.ops == TEST_COMMITS), "{records:?}");
    }
}
