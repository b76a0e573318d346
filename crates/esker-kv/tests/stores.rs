//! The conformance suite on an Esker database, as it is and below the layers between.

#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use esker_kv::conformance::Failures;
use esker_kv::copy::{compare, copy};
use esker_kv::layered::{Driver, Layered, View, Write};
use esker_kv::local::Local;
use esker_kv::shared::SharedKv;
use esker_kv::{
    Blocking, Kv, Limits, Page, Query, Reads, Result, Space, Span, Threads, Transaction, conformance,
    transact,
};
use tokio::runtime::Runtime;

fn local() -> Local {
    Local::new(esker::Db::in_memory().unwrap())
}

#[test]
fn a_database() {
    conformance(&local()).unwrap();
}

#[test]
#[cfg(unix)]
fn a_shared_database_as_host_and_as_guest() {
    let directory = tempfile::tempdir().unwrap();
    let host = esker_shared::Shared::open(directory.path()).unwrap();
    let guest = esker_shared::Shared::open(directory.path()).unwrap();
    assert!(host.is_host() && !guest.is_host());
    let (host, guest) = (SharedKv::new(host), SharedKv::new(guest));
    conformance(&guest).unwrap();
    conformance(&host).unwrap();
}

#[test]
fn a_database_by_threads_and_back() {
    let runtime = Runtime::new().unwrap();
    let kv = Blocking::new(Arc::new(Threads::new(Arc::new(local()))), runtime.handle().clone());
    conformance(&kv).unwrap();
}

/// What a driver does wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    ReadsForUpdateDoNotConflict,
    CommitsDoNotConflict,
    RemovalsOfRangesAreForgotten,
    PagesEndEarly,
    StatesMove,
    ValuesOfEmptyLengthAreGone,
}

/// A driver over one space of a database.
struct OneSpace {
    kv: Arc<Local>,
    space: Space,
    fault: Fault,
}

struct OneView {
    kv: Arc<Local>,
    transaction: Mutex<Box<dyn Transaction>>,
    space: Space,
    fault: Fault,
}

impl Driver for OneSpace {
    type View = OneView;

    async fn view(&self, _: bool) -> Result<OneView> {
        let transaction = Mutex::new(self.kv.begin()?);
        Ok(OneView { kv: self.kv.clone(), transaction, space: self.space.clone(), fault: self.fault })
    }

    fn limits(&self) -> Limits {
        Limits { key_bytes: 500, value_bytes: 200_000, transaction_bytes: 1 << 20 }
    }
}

impl View for OneView {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let value = match self.fault {
            Fault::StatesMove => self.kv.get(&self.space, key)?,
            _ => self.transaction.lock().unwrap().get(&self.space, key)?,
        };
        Ok(value.filter(|value| self.fault != Fault::ValuesOfEmptyLengthAreGone || !value.is_empty()))
    }

    async fn multi_get(&self, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>> {
        let keys: Vec<_> = keys.iter().map(|key| &key[..]).collect();
        self.transaction.lock().unwrap().multi_get(&self.space, &keys)
    }

    async fn page(&self, query: Query<'_>) -> Result<Page> {
        let mut page = self.transaction.lock().unwrap().page(&self.space, query)?;
        page.has_more &= self.fault != Fault::PagesEndEarly;
        Ok(page)
    }

    async fn count(&self, from: &[u8], to: &[u8]) -> Result<u64> {
        self.transaction.lock().unwrap().count(&self.space, Span::between(from, to))
    }

    async fn get_for_update(&mut self, key: &[u8]) -> Result<Option<Bytes>> {
        let mut transaction = self.transaction.lock().unwrap();
        match self.fault {
            Fault::ReadsForUpdateDoNotConflict => transaction.get(&self.space, key),
            _ => transaction.get_for_update(&self.space, key),
        }
    }

    async fn commit(self, writes: Vec<Write>) -> Result<()> {
        let mut transaction = self.transaction.into_inner().unwrap();
        if self.fault == Fault::CommitsDoNotConflict {
            transaction = self.kv.begin()?;
        }
        for write in writes {
            match write {
                Write::Put(key, value) => transaction.put(&self.space, &key, &value)?,
                Write::Remove(key) => transaction.remove(&self.space, &key)?,
                Write::RemoveRange(..) if self.fault == Fault::RemovalsOfRangesAreForgotten => {}
                Write::RemoveRange(from, to) => {
                    transaction.remove_range(&self.space, Span::between(&from, &to))?;
                }
            }
        }
        transaction.commit()
    }
}

fn run_layered(fault: Fault) -> Result<usize, Failures> {
    let kv = Arc::new(local());
    let space = kv.space("all").unwrap();
    let runtime = Runtime::new().unwrap();
    let layered = runtime.block_on(Layered::open(OneSpace { kv, space, fault })).unwrap();
    conformance(&Blocking::new(Arc::new(layered), runtime.handle().clone()))
}

#[test]
fn a_database_as_one_map_below_the_layers() {
    run_layered(Fault::None).unwrap();
}

#[test]
fn the_suite_finds_stores_that_break_their_promises() {
    for fault in [
        Fault::ReadsForUpdateDoNotConflict,
        Fault::CommitsDoNotConflict,
        Fault::RemovalsOfRangesAreForgotten,
        Fault::PagesEndEarly,
        Fault::StatesMove,
        Fault::ValuesOfEmptyLengthAreGone,
    ] {
        let found = run_layered(fault).expect_err(&format!("{fault:?} is not found"));
        println!("{fault:?}: {found}");
    }
}

#[test]
fn a_copy_writes_what_differs_and_goes_on_after_an_interruption() {
    let (source, target) = (local(), local());
    let (from, to) = (source.space("s").unwrap(), target.space("t").unwrap());
    let value = [7; 1_000];
    for part in 0..5_u16 {
        let keys = part * 1_000..part * 1_000 + 1_000;
        transact(&source, |t| keys.clone().try_for_each(|n| t.put(&from, &n.to_be_bytes(), &value))).unwrap();
    }
    transact(&target, |t| {
        t.put(&to, &7_u16.to_be_bytes(), b"other")?;
        t.put(&to, b"extra", b"1")
    })
    .unwrap();
    let snapshot = source.snapshot().unwrap();
    let side = (&*snapshot as &dyn Reads, &from);
    // It ends in the middle of the walk.
    let stopped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        copy(side, (&target, &to), false, &mut |done| assert!(done.entries < 3_000))
    }));
    assert!(stopped.is_err());
    let rest = copy(side, (&target, &to), false, &mut |_| ()).unwrap();
    assert!(rest.entries == 5_000 && rest.written < 4_000 && rest.written > 1_000, "{rest:?}");
    let found = compare(side, (&target, &to)).unwrap();
    assert_eq!((found.written, found.extra), (0, 1));
    copy(side, (&target, &to), true, &mut |_| ()).unwrap();
    let found = compare(side, (&target, &to)).unwrap();
    assert_eq!((found.entries, found.written, found.extra), (5_000, 0, 0));
}
