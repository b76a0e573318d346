//! Runs a group of a suite at scale `test` within a test, on an engine that records its openings and can lose
//! puts.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use esker_bench_api::results::Record;
use esker_bench_api::store::Work;
use esker_bench_api::{
    AsyncCommits, Durability, Engine, EngineOption, Expiring, Feature, Isolation, OpenOptions, Reader,
    Result, Store, Transaction, TransactionKind, TransactionWork, Transactions, VisitItem, Writer,
};

use crate::engines;
use crate::gate;
use crate::recorder::Recorder;
use crate::recorder::tests::Sent;
use crate::report::summary::tests::record;
use crate::scale::Scale;
use crate::suites::{Suite, Turn};

/// For each get, the row that began last, and the key.
type Gets = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// redb, which refuses to open a database twice, with changes for a test.
#[derive(Default)]
pub(in crate::suites) struct Rehearsed {
    /// Number of puts of the victim that are kept; later ones are lost. `None` keeps all.
    pub(in crate::suites) kept_puts: Option<u64>,
    /// Whether entries do not expire.
    pub(in crate::suites) keeps_expired: bool,
    /// Whether it lacks async commits.
    pub(in crate::suites) lacks_async: bool,
    /// Additional time of an opening.
    pub(in crate::suites) opening: Duration,
    pub(in crate::suites) sent: Sent,
    pub(in crate::suites) victim: Arc<Mutex<Victim>>,
    pub(in crate::suites) opened: Mutex<Vec<String>>,
    /// Number of drains.
    pub(in crate::suites) drained: Arc<Mutex<u32>>,
    pub(in crate::suites) gets: Gets,
    /// For each opening, whether it was for random reads beyond memory.
    pub(in crate::suites) opened_at_random: Mutex<Vec<bool>>,
    /// For each opening, whether it was for keys in ascending order.
    pub(in crate::suites) opened_ascending: Mutex<Vec<bool>>,
}

/// A key of which puts may be lost, and the number of its puts.
#[derive(Default)]
pub(in crate::suites) struct Victim {
    /// Number of puts before its first one.
    earlier_puts: u64,
    key: Vec<u8>,
    puts: u64,
}

impl Victim {
    /// Chooses the key of the put after this number of puts.
    pub(in crate::suites) fn after(earlier_puts: u64) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self { earlier_puts, ..Self::default() }))
    }

    /// Returns whether a put of this key is kept.
    fn keeps(&mut self, key: &[u8], kept_puts: Option<u64>) -> bool {
        if self.puts == 0 {
            if self.earlier_puts > 0 {
                self.earlier_puts -= 1;
                return true;
            }
            self.key = key.to_vec();
        }
        if self.key != key {
            return true;
        }
        self.puts += 1;
        kept_puts.is_none_or(|kept| self.puts <= kept)
    }
}

impl Rehearsed {
    /// Runs a group of a suite and returns its records.
    pub(in crate::suites) fn run(&self, suite: &Suite, group: usize) -> Vec<Record> {
        self.records(suite, group, |recorder| {
            suite.run(Turn { engine: self, scale: Scale::Test, group, recorder })
        })
    }

    /// Returns the error of each row of a group.
    pub(in crate::suites) fn errors(&self, suite: &Suite, group: usize) -> Vec<Option<String>> {
        self.run(suite, group).into_iter().map(|record| record.error).collect()
    }

    /// The same as [`Rehearsed::run`], with `run` in place of the suite's own.
    pub(in crate::suites) fn records(
        &self,
        suite: &Suite,
        group: usize,
        run: impl FnOnce(&mut Recorder) -> Result<()>,
    ) -> Vec<Record> {
        let _open = gate::no_child_starts();
        let dir = tempfile::tempdir().unwrap();
        let rows = suite.rows(Scale::Test).into_iter().filter(|row| row.group == group).collect();
        let blank = Record { value: None, error: None, ..record(self.name(), "", 1, None) };
        let out = Box::new(self.sent.clone());
        // As under a tracer: other tests keep this process busy.
        let mut recorder = Recorder::new(rows, blank, dir.path(), out, true, Duration::ZERO);
        run(&mut recorder).unwrap();
        recorder.finish().unwrap();
        self.sent.records()
    }

    /// Returns, for each opening, the row that began last.
    pub(in crate::suites) fn opened_in(&self) -> Vec<String> {
        self.opened.lock().unwrap().clone()
    }
}

impl Engine for Rehearsed {
    fn name(&self) -> &'static str {
        "rehearsed"
    }

    fn version(&self) -> String {
        String::new()
    }

    fn options(&self) -> &'static [EngineOption] {
        &[]
    }

    fn cannot(&self, feature: Feature) -> Option<&'static str> {
        (self.lacks_async && feature == Feature::AsyncCommits).then_some("has no such mode")
    }

    fn isolation(&self) -> Isolation {
        Isolation::Serializable
    }

    fn async_commits(&self) -> Option<AsyncCommits> {
        engines::find("redb").unwrap().async_commits()
    }

    fn open(&self, dir: &Path, options: &OpenOptions) -> Result<Box<dyn Store>> {
        self.opened.lock().unwrap().push(self.sent.begun().pop().unwrap_or_default());
        self.opened_at_random.lock().unwrap().push(options.random_beyond_memory);
        self.opened_ascending.lock().unwrap().push(options.ascending_keys);
        thread::sleep(self.opening);
        let inner = engines::find("redb").unwrap().open(dir, options)?;
        Ok(Box::new(Losing {
            inner,
            kept_puts: self.kept_puts,
            victim: Arc::clone(&self.victim),
            drained: Arc::clone(&self.drained),
            sent: self.sent.clone(),
            gets: Arc::clone(&self.gets),
        }))
    }

    fn transaction_kinds(&self) -> &'static [TransactionKind] {
        &[TransactionKind::OneWriter]
    }

    fn open_transactions(
        &self,
        dir: &Path,
        options: &OpenOptions,
        kind: TransactionKind,
    ) -> Result<Box<dyn Transactions>> {
        let inner = engines::find("redb").unwrap().open_transactions(dir, options, kind)?;
        Ok(Box::new(LosingTransactions {
            inner,
            kept_puts: self.kept_puts,
            victim: Arc::clone(&self.victim),
        }))
    }

    fn open_expiring(&self, dir: &Path, options: &OpenOptions) -> Result<Box<dyn Expiring>> {
        Ok(Box::new(LosingExpiring {
            inner: engines::find("esker").unwrap().open_expiring(dir, options)?,
            keeps_expired: self.keeps_expired,
            kept_puts: self.kept_puts,
            victim: Arc::clone(&self.victim),
        }))
    }
}

/// Esker, because redb has no entries that expire.
struct LosingExpiring {
    inner: Box<dyn Expiring>,
    keeps_expired: bool,
    kept_puts: Option<u64>,
    victim: Arc<Mutex<Victim>>,
}

impl Expiring for LosingExpiring {
    fn put(&self, key: &[u8], value: &[u8], ttl: Option<Duration>) -> Result<()> {
        if !self.victim.lock().unwrap().keeps(key, self.kept_puts) {
            return Ok(());
        }
        self.inner.put(key, value, ttl.filter(|_| !self.keeps_expired))
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.inner.get(key, visit)
    }

    fn scan(&self, visit: VisitItem<'_>) -> Result<u64> {
        self.inner.scan(visit)
    }
}

struct LosingTransactions {
    inner: Box<dyn Transactions>,
    kept_puts: Option<u64>,
    victim: Arc<Mutex<Victim>>,
}

impl Transactions for LosingTransactions {
    fn transact(&self, keys: &[&[u8]], work: TransactionWork<'_>) -> Result<u64> {
        self.inner.transact(keys, &mut |inner| work(&mut LosingTransaction { inner, store: self }))
    }

    fn scan(&self, visit: VisitItem<'_>) -> Result<u64> {
        self.inner.scan(visit)
    }
}

struct LosingTransaction<'a> {
    inner: &'a mut dyn Transaction,
    store: &'a LosingTransactions,
}

impl Transaction for LosingTransaction<'_> {
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.inner.get(key, visit)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let is_kept = self.store.victim.lock().unwrap().keeps(key, self.store.kept_puts);
        if is_kept { self.inner.put(key, value) } else { Ok(()) }
    }
}

struct Losing {
    inner: Box<dyn Store>,
    kept_puts: Option<u64>,
    victim: Arc<Mutex<Victim>>,
    drained: Arc<Mutex<u32>>,
    sent: Sent,
    gets: Gets,
}

impl Store for Losing {
    fn set_durability(&mut self, durability: Durability) -> Result<()> {
        self.inner.set_durability(durability)
    }

    fn write(&self, work: Work<'_>) -> Result<()> {
        self.inner.write(&mut |inner| work(&mut LosingWriter { inner, store: self }))
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        self.inner.reader()
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let begun = self.sent.begun().pop().unwrap_or_default();
        self.gets.lock().unwrap().push((begun, key.to_vec()));
        self.inner.get(key, visit)
    }

    fn compact(&mut self) -> Result<()> {
        self.inner.compact()
    }

    fn drain(&self, deadline: Instant) -> Result<()> {
        *self.drained.lock().unwrap() += 1;
        self.inner.drain(deadline)
    }
}

struct LosingWriter<'a> {
    inner: &'a mut dyn Writer,
    store: &'a Losing,
}

impl Writer for LosingWriter<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let is_kept = self.store.victim.lock().unwrap().keeps(key, self.store.kept_puts);
        if is_kept { self.inner.put(key, value) } else { Ok(()) }
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        self.inner.remove(key)
    }
}
