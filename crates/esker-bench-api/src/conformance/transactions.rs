//! The conformance test of transactions that read what they write: no update is lost, and a failed
//! transaction has no effect.
//!
//!   each kind: put, own writes, rollback, many threads on one counter and on few accounts, reopening
#![expect(clippy::unwrap_used, reason = "a test, in the library so that adapters in other crates can run it")]

use std::path::Path;
use std::sync::Barrier;
use std::thread;

use super::{CACHE_BYTES, drain_deadline};
use crate::engine::Engine;
use crate::generate::accounts::{Account, Accounts, BALANCE, Transfers, VALUE_BYTES};
use crate::store::{Durability, Failure, OpenOptions, Result};
use crate::transactions::{Transaction, TransactionKind, Transactions};

const THREADS: u64 = 8;
const TRANSFERS: u64 = 40;
const ACCOUNTS: u64 = 6;
const KEYS: usize = 3;

fn account(transaction: &mut dyn Transaction, accounts: Accounts, i: u64) -> Option<Account> {
    let mut account = None;
    let found = transaction.get(&accounts.key(i), &mut |bytes| account = accounts.read(i, bytes)).unwrap();
    assert_eq!(found, account.is_some(), "account {i} is whole");
    account
}

fn put(transaction: &mut dyn Transaction, accounts: Accounts, i: u64, account: Account) -> Result<()> {
    let mut value = [0; VALUE_BYTES];
    accounts.value(i, account, &mut value);
    transaction.put(&accounts.key(i), &value)
}

/// Returns the sum of all balances and the sum of all changes.
fn sums(store: &dyn Transactions, accounts: Accounts) -> (i64, u64) {
    let keys: Vec<_> = (0..ACCOUNTS).map(|i| accounts.key(i)).collect();
    let mut sums = (0, 0);
    let seen = store.scan(&mut |key, value| {
        let i = keys.iter().position(|k| k == key).unwrap() as u64;
        let account = accounts.read(i, value).unwrap();
        sums = (sums.0 + account.balance, sums.1 + account.changes);
    });
    assert_eq!(seen.unwrap(), ACCOUNTS);
    sums
}

fn transfer(store: &dyn Transactions, accounts: Accounts, transfers: &mut Transfers) {
    let mut drawn = [0; KEYS];
    let amount = transfers.draw(&mut drawn);
    let keys = drawn.map(|i| accounts.key(i));
    let keys = keys.each_ref().map(|key| &key[..]);
    let move_money = &mut |transaction: &mut dyn Transaction| {
        drawn.iter().enumerate().try_for_each(|(n, i)| {
            let Account { balance, changes } = account(transaction, accounts, *i).unwrap();
            thread::yield_now();
            let change = if n == 0 { -amount * (KEYS as i64 - 1) } else { amount };
            put(transaction, accounts, *i, Account { balance: balance + change, changes: changes + 1 })
        })
    };
    store.transact(&keys, move_money).unwrap();
}

/// Runs the test on each kind of `engine` in directories below the empty directory `dir`.
///
/// # Panics
/// When the adapter or its engine is wrong.
#[expect(clippy::disallowed_methods, reason = "the lab's own directories")]
pub fn check_transactions(engine: &dyn Engine, dir: &Path) {
    for kind in engine.transaction_kinds() {
        let dir = dir.join(kind.name().replace(' ', "-"));
        std::fs::create_dir(&dir).unwrap();
        check_kind(engine, *kind, &dir);
    }
}

fn check_kind(engine: &dyn Engine, kind: TransactionKind, dir: &Path) {
    let durability = engine.first_of(&[Durability::Async, Durability::NoSync, Durability::Sync]).unwrap();
    let options = OpenOptions {
        value_bytes: VALUE_BYTES as u64,
        concurrent_writes: THREADS,
        durability,
        ..OpenOptions::with_cache(CACHE_BYTES)
    };
    let accounts = Accounts::new(11);
    let keys: Vec<_> = (0..ACCOUNTS).map(|i| accounts.key(i)).collect();
    let keys: Vec<_> = keys.iter().map(|key| &key[..]).collect();
    let expected = (ACCOUNTS as i64 * BALANCE, THREADS * TRANSFERS * KEYS as u64);
    {
        let store = engine.open_transactions(dir, &options, kind).unwrap();
        let conflicts = store.transact(&keys, &mut |transaction| {
            (0..ACCOUNTS).try_for_each(|i| {
                assert_eq!(account(transaction, accounts, i), None);
                put(transaction, accounts, i, Account { balance: 0, changes: 7 })?;
                assert_eq!(account(transaction, accounts, i), Some(Account { balance: 0, changes: 7 }));
                put(transaction, accounts, i, Account::NEW)
            })
        });
        assert_eq!(conflicts.unwrap(), 0, "a single writer has no conflicts");
        let given_up = store.transact(&keys[..1], &mut |transaction| {
            put(transaction, accounts, 0, Account { balance: 1, changes: 1 })?;
            Err(Failure::Engine("stop".to_owned()))
        });
        assert!(given_up.is_err());
        assert_eq!(sums(&*store, accounts), (expected.0, 0), "given up");

        let start = Barrier::new(THREADS as usize);
        thread::scope(|scope| {
            for writer in 0..THREADS {
                let (start, store) = (&start, &*store);
                scope.spawn(move || {
                    let mut transfers = Transfers::new(accounts, writer, ACCOUNTS);
                    start.wait();
                    (0..TRANSFERS).for_each(|_| transfer(store, accounts, &mut transfers));
                });
            }
        });
        assert_eq!(sums(&*store, accounts), expected, "an update was lost");
        store.drain(drain_deadline()).unwrap();
    }
    let store = engine.open_transactions(dir, &options, kind).unwrap();
    assert_eq!(sums(&*store, accounts), expected, "opened again");
}
