//! Transfers between accounts, by many writers at once.
//!
//! ```text
//! writer 1..N --draw 4 accounts--> Transactions::transact: read all, write all, again after a conflict
//!             --> Track; then all accounts --> the sum of the money, the number of changes
//! ```
//!
//! - The rate is commits over wall clock time, from the start of the first writer to the end of the last. The
//!   latency of a commit counts from its first try.
//! - Every account read is checked for whole content. After each row the sum of all balances must be
//!   unchanged, and the sum of all change counts must be four per commit. So no transaction, and no part of
//!   one, is missing or applied twice.
//! - Fairness is the fewest commits of a writer over the most.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use esker_bench_api::generate::accounts::{Account, Accounts, BALANCE, Transfers, VALUE_BYTES};
use esker_bench_api::{Failure, Result, Transaction, Transactions};

use super::state::State;
use super::{Done, OnProgress, expect};
use crate::suites::plan::{Budget, Work};
use crate::track::Track;

/// Number of accounts that a transfer changes.
const KEYS: usize = 4;
const BATCH: u64 = 1000;

/// What one writer did in a row.
#[derive(Clone, Copy, Default)]
struct OfWriter {
    commits: u64,
    conflicts: u64,
    /// Most conflicts of one commit.
    conflicts_most: u64,
    /// Time from its first try to its last commit.
    time: Option<(Instant, Instant)>,
}

/// State shared by the writers of a row.
struct Shared<'a> {
    store: &'a dyn Transactions,
    start: Barrier,
    /// True after a writer failed, so that the others stop. It orders nothing, so `Relaxed` is enough.
    stop: AtomicBool,
    track: Mutex<Track>,
    budget: Budget,
}

impl State {
    pub(super) fn on_transactions(
        &mut self,
        store: &dyn Transactions,
        work: &Work,
        on_progress: OnProgress<'_>,
    ) -> Result<Done> {
        match work {
            Work::LoadAccounts { count } => self.load_accounts(store, *count, on_progress),
            Work::Transfer { writers, below, budget } => self.transfer(store, *writers, *below, *budget),
            Work::Check => self.check_accounts(store),
            _ => Err(Failure::Engine(format!("not the work of transactions: {work:?}"))),
        }
    }

    fn accounts(&self) -> Accounts {
        Accounts::new(self.items.source.seed)
    }

    fn load_accounts(
        &mut self,
        store: &dyn Transactions,
        count: u64,
        on_progress: OnProgress<'_>,
    ) -> Result<Done> {
        let (accounts, mut value) = (self.accounts(), [0; VALUE_BYTES]);
        for first in (0..count).step_by(BATCH as usize) {
            let end = (first + BATCH).min(count);
            let mut batch: Vec<_> = (first..end).map(|i| (accounts.key(i), i)).collect();
            batch.sort_unstable();
            let keys: Vec<&[u8]> = batch.iter().map(|(key, _)| &key[..]).collect();
            store.transact(&keys, &mut |transaction| {
                batch.iter().try_for_each(|(key, i)| {
                    accounts.value(*i, Account::NEW, &mut value);
                    transaction.put(key, &value)
                })
            })?;
            on_progress(end, Instant::now())?;
        }
        self.content.to = count;
        Ok(Done::default())
    }

    fn transfer(
        &mut self,
        store: &dyn Transactions,
        writers: u64,
        below: u64,
        budget: Budget,
    ) -> Result<Done> {
        let shared = Shared {
            store,
            start: Barrier::new(writers as usize),
            stop: AtomicBool::new(false),
            track: Mutex::new(Track::new(&["commit"], budget.period(), &self.dir)?),
            budget: Budget { ops: budget.ops / writers, ..budget },
        };
        let done: Vec<_> = thread::scope(|scope| {
            let (shared, accounts) = (&shared, self.accounts());
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
        Ok(Done {
            seconds: wall_seconds(&done).unwrap_or_default(),
            ops: commits,
            commits,
            written_bytes: changes * self.items.source.item_bytes(),
            live_bytes: self.live_bytes(),
            figures: figures(&done),
            detail: Some(track.finish("closed")),
            ..Done::default()
        })
    }

    /// Checks that every account is whole, and the sums of all balances and changes.
    fn check_accounts(&self, store: &dyn Transactions) -> Result<Done> {
        let (mut balances, mut changes, mut torn) = (0_i64, 0_u64, 0_u64);
        let accounts = self.accounts();
        let seen = store.scan(&mut |key, value| {
            let number = accounts.number(key);
            match accounts.read(number, value).filter(|_| *key == accounts.key(number)) {
                Some(account) => {
                    balances = balances.wrapping_add(account.balance);
                    changes = changes.wrapping_add(account.changes);
                }
                None => torn += 1,
            }
        })?;
        expect("accounts", seen, self.content.to)?;
        expect("accounts that are not whole", torn, 0)?;
        let all = self.content.to.cast_signed() * BALANCE;
        if balances != all {
            return Err(Failure::Wrong(format!("the sum of all accounts: {balances}, not {all}")));
        }
        expect("changes of all accounts", changes, self.changes)?;
        Ok(Done::default())
    }
}

/// Returns the seconds from the start of the first writer to the end of the last.
fn wall_seconds(done: &[OfWriter]) -> Option<f64> {
    let times = || done.iter().filter_map(|done| done.time);
    let (first, last) = (times().map(|(from, _)| from).min()?, times().map(|(_, to)| to).max()?);
    Some((last - first).as_secs_f64())
}

/// Returns the figures of a row: conflicts and fairness.
fn figures(done: &[OfWriter]) -> BTreeMap<String, f64> {
    let commits = || done.iter().map(|done| done.commits);
    let (least, most) = (commits().min().unwrap_or(0), commits().max().unwrap_or(0));
    let conflicts: u64 = done.iter().map(|done| done.conflicts).sum();
    let conflicts_most = done.iter().map(|done| done.conflicts_most).max().unwrap_or(0);
    let figures = [
        ("conflicts", conflicts as f64),
        ("conflicts per commit", conflicts as f64 / commits().sum::<u64>().max(1) as f64),
        ("most conflicts of one commit", conflicts_most as f64),
        ("fairness", least as f64 / most.max(1) as f64),
    ];
    figures.map(|(name, figure)| (name.to_owned(), figure)).into()
}

impl Shared<'_> {
    fn write(&self, accounts: Accounts, writer: u64, below: u64) -> Result<OfWriter> {
        let mut transfers = Transfers::new(accounts, writer, below);
        let (mut done, mut untracked) = (OfWriter::default(), Vec::new());
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
            untracked.push((from, now));
            // No writer waits for the track. What it cannot record at once it records later.
            if let Ok(mut track) = self.track.try_lock() {
                untracked.drain(..).for_each(|(from, to)| track.record(0, from, to, 1));
            }
        }
        let mut track = self.track.lock().unwrap_or_else(PoisonError::into_inner);
        untracked.into_iter().for_each(|(from, to)| track.record(0, from, to, 1));
        Ok(done)
    }
}

/// Runs one transaction: takes money from the first of the accounts `drawn` and gives `amount` to each of the
/// others. Returns the number of conflicts.
fn transfer(store: &dyn Transactions, accounts: Accounts, drawn: [u64; KEYS], amount: i64) -> Result<u64> {
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
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_time_is_from_the_first_beginning_to_the_last_end() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let done = |from, to| OfWriter { time: Some((at(from), at(to))), ..OfWriter::default() };
        let idle = OfWriter::default();
        assert_eq!(wall_seconds(&[done(3, 5), idle, done(2, 4), done(2, 9)]), Some(7.0));
        assert_eq!(wall_seconds(&[idle]), None);
    }

    #[test]
    fn fairness_is_of_the_fewest_to_the_most() {
        let done =
            |commits, conflicts| OfWriter { commits, conflicts, conflicts_most: conflicts, time: None };
        let figures = figures(&[done(10, 5), done(40, 0), done(20, 2)]);
        let named = ["conflicts", "conflicts per commit", "most conflicts of one commit", "fairness"];
        assert_eq!(named.map(|name| figures[name]), [7.0, 0.1, 5.0, 0.25]);
    }
}
