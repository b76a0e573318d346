//! Engines with faults, to test that the lab finds them.
//!
//!   canary-wrong   a sound map in memory, except that one read in 100 returns a value with one byte flipped
//!   canary-crash   the same map, but the process aborts when it is compacted
//!   canary-hang    the same map, but compaction never ends
//!   canary-debt    the same map, but its background work never ends
//!   canary-drop    redb, except that a database that is opened again has lost its first item
//!   canary-boast   redb, except that it says that its async commits are handed to the operating system
//!   canary-modest  LMDB, except that it says that its async commits stay in the process
//!
//! They are hidden: `--engine` takes them, `list` and the default run do not show them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

#[cfg(feature = "peers")]
use super::lmdb::Lmdb;
use super::redb::Redb;
use esker_bench_api::{
    AsyncCommits, Durability, Engine, EngineOption, Failure, Feature, Isolation, OpenOptions, Reached,
    Reader, Result, Store, VisitItem, Writer, store::Work,
};

const REOPENING: Duration = Duration::from_millis(500);
const ONE_MODE: &str = "the canary has one mode";

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Canary {
    Wrong,
    Crash,
    Hang,
    Debt,
    Drop,
    Boast,
    #[cfg(feature = "peers")]
    Modest,
}

impl Engine for Canary {
    fn name(&self) -> &'static str {
        match self {
            Self::Wrong => "canary-wrong",
            Self::Crash => "canary-crash",
            Self::Hang => "canary-hang",
            Self::Debt => "canary-debt",
            Self::Drop => "canary-drop",
            Self::Boast => "canary-boast",
            #[cfg(feature = "peers")]
            Self::Modest => "canary-modest",
        }
    }

    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").to_owned()
    }

    fn options(&self) -> &'static [EngineOption] {
        &[]
    }

    fn isolation(&self) -> Isolation {
        Isolation::Snapshot
    }

    fn cannot(&self, feature: Feature) -> Option<&'static str> {
        match self {
            Self::Drop | Self::Boast => Redb.cannot(feature),
            #[cfg(feature = "peers")]
            Self::Modest => Lmdb.cannot(feature),
            Self::Wrong | Self::Crash | Self::Hang | Self::Debt => {
                (feature == Feature::NoSyncCommits).then_some(ONE_MODE)
            }
        }
    }

    fn async_commits(&self) -> Option<AsyncCommits> {
        let false_claim =
            |engine: &dyn Engine, reached| Some(AsyncCommits { reached, ..engine.async_commits()? });
        match self {
            Self::Drop => Redb.async_commits(),
            Self::Boast => false_claim(&Redb, Reached::System),
            #[cfg(feature = "peers")]
            Self::Modest => false_claim(&Lmdb, Reached::Process),
            Self::Wrong | Self::Crash | Self::Hang | Self::Debt => None,
        }
    }

    fn hidden(&self) -> bool {
        true
    }

    fn open(&self, dir: &Path, options: &OpenOptions) -> Result<Box<dyn Store>> {
        match self {
            Self::Drop => open_and_drop(dir, options),
            Self::Boast => Redb.open(dir, options),
            #[cfg(feature = "peers")]
            Self::Modest => Lmdb.open(dir, options),
            Self::Wrong | Self::Crash | Self::Hang | Self::Debt => {
                Ok(Box::new(CanaryStore { kind: *self, map: RwLock::default(), reads: AtomicU64::new(0) }))
            }
        }
    }
}

fn open_and_drop(dir: &Path, options: &OpenOptions) -> Result<Box<dyn Store>> {
    let is_there = std::fs::read_dir(dir)?.next().is_some();
    let store = Redb.open(dir, options)?;
    if is_there {
        let mut first = Vec::new();
        store.reader()?.range(&[], 1, &mut |key, _| first.extend_from_slice(key))?;
        store.write(&mut |writer| writer.remove(&first))?;
    }
    Ok(store)
}

fn wait_forever() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

#[derive(Default)]
struct Map(BTreeMap<Vec<u8>, Vec<u8>>);

struct CanaryStore {
    kind: Canary,
    map: RwLock<Map>,
    /// Number of reads so far; a plain count, so `Relaxed` is enough.
    reads: AtomicU64,
}

impl Store for CanaryStore {
    fn set_durability(&mut self, durability: Durability) -> Result<()> {
        match durability {
            Durability::Sync => Ok(()),
            Durability::Async | Durability::NoSync => Err(Failure::Unsupported(ONE_MODE.to_owned())),
        }
    }

    fn write(&self, work: Work<'_>) -> Result<()> {
        work(&mut *self.map.write()?)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(CanaryReader { store: self, map: self.map.read()? }))
    }

    fn compact(&mut self) -> Result<()> {
        match self.kind {
            Canary::Crash => std::process::abort(),
            Canary::Hang => wait_forever(),
            _ => Ok(()),
        }
    }

    /// Slow, to catch a suite that includes it in a measured time.
    fn reopen(&mut self) -> Result<()> {
        std::thread::sleep(REOPENING);
        Ok(())
    }

    fn drain(&self, _deadline: Instant) -> Result<()> {
        if self.kind == Canary::Debt { wait_forever() } else { Ok(()) }
    }
}

impl Writer for Map {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        self.0.remove(key);
        Ok(())
    }
}

struct CanaryReader<'store> {
    store: &'store CanaryStore,
    map: RwLockReadGuard<'store, Map>,
}

impl Reader for CanaryReader<'_> {
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let Some(value) = self.map.0.get(key) else { return Ok(false) };
        let turn = self.store.reads.fetch_add(1, Ordering::Relaxed);
        if self.store.kind == Canary::Wrong && turn % 100 == 99 {
            let mut flipped = value.clone();
            if let Some(byte) = flipped.last_mut() {
                *byte ^= 1;
            }
            visit(&flipped);
        } else {
            visit(value);
        }
        Ok(true)
    }

    fn range(&mut self, from: &[u8], limit: u64, visit: VisitItem<'_>) -> Result<u64> {
        let limit = usize::try_from(limit)?;
        let items = self.map.0.range(from.to_vec()..).take(limit);
        Ok(items.map(|(key, value)| visit(key, value)).count() as u64)
    }

    fn len(&mut self) -> Result<u64> {
        Ok(self.map.0.len() as u64)
    }
}
