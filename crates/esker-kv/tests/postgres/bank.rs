//! Transfers while the server crashes or cuts connections. Each transfer leaves a receipt in its commit, so
//! that the state at the end shows which were committed.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use esker_kv::postgres::Options;
use esker_kv::{Error, Kv, Query, Reads, Result, Span, collect, transact};

use super::server::Server;
use super::{FAST, Store, open, sql};

const ACCOUNTS: u8 = 8;
const OPENING: i64 = 1_000;
const THREADS: u8 = 4;

/// What a client knows of its transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Said {
    Committed,
    NotCommitted,
    Unknown,
}

/// The transfers of a client, by receipt.
type Transfers = BTreeMap<Vec<u8>, Said>;

fn balance(reads: &dyn Reads, space: &esker_kv::Space, account: u8) -> Result<i64> {
    let value = reads.get(space, &[b'a', account])?.unwrap();
    Ok(i64::from_be_bytes(value[..].try_into().unwrap()))
}

fn transfer(kv: &dyn Kv, receipt: &[u8], (from, to, amount): (u8, u8, i64)) -> Result<()> {
    let space = kv.find_space("bank")?.unwrap();
    let mut transaction = kv.begin()?;
    let (left, right) = (balance(&*transaction, &space, from)?, balance(&*transaction, &space, to)?);
    transaction.put(&space, &[b'a', from], &(left - amount).to_be_bytes())?;
    transaction.put(&space, &[b'a', to], &(right + amount).to_be_bytes())?;
    transaction.put(&space, receipt, &[&[from, to], &amount.to_be_bytes()[..]].concat())?;
    transaction.commit()
}

/// Makes transfers until the end. Fails with an error that no caller could act on.
fn client(kv: &dyn Kv, thread: u8, is_over: &AtomicBool) -> Result<Transfers> {
    let mut random = fastrand::Rng::with_seed(u64::from(thread));
    let mut transfers = Transfers::new();
    for number in 0..u32::MAX {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let receipt = [&[b'r', thread], &number.to_be_bytes()[..]].concat();
        let from = random.u8(..ACCOUNTS);
        let to = (from + random.u8(1..ACCOUNTS)) % ACCOUNTS;
        let said = match transfer(kv, &receipt, (from, to, random.i64(1..50))) {
            Ok(()) => Said::Committed,
            Err(Error::Conflict) => Said::NotCommitted,
            Err(Error::Unavailable(_)) => {
                thread::sleep(Duration::from_millis(10));
                Said::NotCommitted
            }
            Err(Error::OutcomeUnknown(_)) => Said::Unknown,
            Err(other) => return Err(other),
        };
        transfers.insert(receipt, said);
    }
    Ok(transfers)
}

fn open_accounts(store: &Store) {
    let space = store.kv.space("bank").unwrap();
    transact(&store.kv, |transaction| {
        (0..ACCOUNTS)
            .try_for_each(|account| transaction.put(&space, &[b'a', account], &OPENING.to_be_bytes()))
    })
    .unwrap();
}

/// Compares the state with the answers that the clients got. Returns the number of each.
fn check(store: &Store, answers: &Transfers) -> [usize; 3] {
    let space = store.kv.find_space("bank").unwrap().unwrap();
    let snapshot = store.kv.snapshot().unwrap();
    let found = collect(&*snapshot, &space, Query::new(Span::from(b"r"))).unwrap();
    let found: BTreeMap<_, _> = found.into_iter().map(|(key, value)| (key.to_vec(), value)).collect();
    let mut balances = [OPENING; ACCOUNTS as usize];
    for (receipt, value) in &found {
        assert_ne!(answers.get(receipt), Some(&Said::NotCommitted), "{receipt:?} is there");
        let amount = i64::from_be_bytes(value[2..].try_into().unwrap());
        balances[usize::from(value[0])] -= amount;
        balances[usize::from(value[1])] += amount;
    }
    for (receipt, said) in answers {
        assert!(*said != Said::Committed || found.contains_key(receipt), "{receipt:?} is lost");
    }
    for account in 0..ACCOUNTS {
        let is = balance(&*snapshot, &space, account).unwrap();
        assert_eq!(is, balances[usize::from(account)], "account {account} and the receipts");
    }
    [Said::Committed, Said::NotCommitted, Said::Unknown]
        .map(|said| answers.values().filter(|is| **is == said).count())
}

/// Runs clients while `disturb` runs. Returns their answers.
fn under_load(store: &Store, disturb: impl FnOnce()) -> Transfers {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn({
                    let is_over = &is_over;
                    move || client(&store.kv, thread, is_over)
                })
            })
            .collect();
        let disturbed = catch_unwind(AssertUnwindSafe(disturb));
        is_over.store(true, Ordering::Relaxed);
        if let Err(panic) = disturbed {
            resume_unwind(panic);
        }
        clients.into_iter().flat_map(|client| client.join().unwrap().unwrap()).collect()
    })
}

fn options() -> Options {
    Options { wait: Duration::from_secs(2), ..Options::default() }
}

#[test]
fn nothing_is_lost_when_the_server_is_killed() {
    let Some(mut server) = Server::start(FAST) else { return };
    let store = open(&server, options()).unwrap();
    open_accounts(&store);
    let answers = under_load(&store, || {
        for round in 0..6 {
            thread::sleep(Duration::from_millis(500 + 37 * round));
            server.kill();
            assert!(matches!(store.kv.spaces(), Err(Error::Unavailable(_))));
            server.restart();
            let start = Instant::now();
            while store.kv.spaces().is_err() {
                assert!(start.elapsed() < Duration::from_secs(10), "calls work again");
            }
        }
        thread::sleep(Duration::from_millis(300));
    });
    let counts = check(&store, &answers);
    println!("committed, not, unknown: {counts:?}");
    assert!(counts[0] > 100 && counts[1] > 0, "{counts:?}");
}

#[test]
fn nothing_is_lost_when_connections_are_cut() {
    let Some(server) = Server::start(FAST) else { return };
    let store = open(&server, options()).unwrap();
    open_accounts(&store);
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
               WHERE application_name = 'esker-kv'";
    let answers = under_load(&store, || {
        for _ in 0..100 {
            thread::sleep(Duration::from_millis(30));
            sql(&server, &store.runtime, cut);
        }
    });
    let counts = check(&store, &answers);
    println!("committed, not, unknown: {counts:?}");
    assert!(counts[0] > 100 && counts[1] > 0, "{counts:?}");
    thread::sleep(Duration::from_millis(100));
    store.kv.spaces().unwrap();
}
