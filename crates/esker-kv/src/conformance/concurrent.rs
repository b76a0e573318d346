//! Transactions of several threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::{Case, Check, said, same};
use crate::{Query, Reads, Result, Retry, Span, Transaction, collect};

pub(super) const CHECKS: &[Check] = &[("counter", counter), ("bank", bank)];

const THREADS: u64 = 4;
const INCREMENTS: u64 = 25;
const ACCOUNTS: u64 = 8;
const TRANSFERS: u64 = 25;
const OPENING: u64 = 100;

/// Many runs, since all threads want the same keys.
fn retry() -> Retry {
    Retry { attempts: 500, ..Retry::default() }
}

fn number(transaction: &mut dyn Transaction, case: &Case<'_>, key: &[u8], locks: bool) -> Result<u64> {
    let value = match locks {
        true => transaction.get_for_update(&case.space, key)?,
        false => transaction.get(&case.space, key)?,
    };
    Ok(value.and_then(|value| value[..].try_into().ok()).map_or(0, u64::from_be_bytes))
}

fn counter(case: &Case<'_>) -> Result<(), String> {
    let add = |locks: bool| {
        for _ in 0..INCREMENTS {
            retry().run(case.kv, |transaction| {
                let old = number(transaction, case, b"n", locks)?;
                transaction.put(&case.space, b"n", &(old + 1).to_be_bytes())
            })?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|n| scope.spawn(move || add(n % 2 == 0))).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(done) => said("an increment", done),
            Err(_) => Err("a thread panicked".to_owned()),
        })
    })?;
    let value = said("get", case.kv.get(&case.space, b"n"))?;
    let value = value.and_then(|value| value[..].try_into().ok()).map_or(0, u64::from_be_bytes);
    same("the counter", value, THREADS * INCREMENTS)
}

fn sum(case: &Case<'_>, reads: &dyn Reads) -> Result<u64, String> {
    // Small pages, so that one state is read in several calls.
    let accounts = said("page", collect(reads, &case.space, Query::new(Span::ALL).bytes(40)))?;
    let numbers = accounts.iter().map(|(_, value)| value[..].try_into().map_or(0, u64::from_be_bytes));
    Ok(numbers.sum())
}

/// Transfers between accounts, while snapshots and transactions sum all of them.
fn bank(case: &Case<'_>) -> Result<(), String> {
    let keys: Vec<_> = (0..ACCOUNTS).map(u64::to_be_bytes).collect();
    let opening = OPENING.to_be_bytes();
    case.put(&keys.iter().map(|key| (&key[..], &opening[..])).collect::<Vec<_>>())?;
    let transfer = |seed: u64| {
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..TRANSFERS {
            let (from, to, amount) = (random.u64(..ACCOUNTS), random.u64(..ACCOUNTS), random.u64(..20));
            retry().run(case.kv, |transaction| {
                let left = number(transaction, case, &from.to_be_bytes(), false)?;
                if left < amount || from == to {
                    return Ok(());
                }
                let right = number(transaction, case, &to.to_be_bytes(), false)?;
                transaction.put(&case.space, &from.to_be_bytes(), &(left - amount).to_be_bytes())?;
                transaction.put(&case.space, &to.to_be_bytes(), &(right + amount).to_be_bytes())
            })?;
        }
        Ok(())
    };
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let observer = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let snapshot = said("snapshot", case.kv.snapshot())?;
                same("the sum in a snapshot", sum(case, &*snapshot)?, ACCOUNTS * OPENING)?;
                let transaction = said("begin", case.kv.begin())?;
                same("the sum in a transaction", sum(case, &*transaction)?, ACCOUNTS * OPENING)?;
            }
            Ok::<(), String>(())
        });
        let threads: Vec<_> = (0..THREADS).map(|seed| scope.spawn(move || transfer(seed))).collect();
        let done: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        let observed = observer.join();
        for done in done {
            said("a transfer", done.map_err(|_| "a thread panicked".to_owned())?)?;
        }
        observed.map_err(|_| "a thread panicked".to_owned())?
    })?;
    same("the sum at the end", sum(case, case.kv)?, ACCOUNTS * OPENING)
}
