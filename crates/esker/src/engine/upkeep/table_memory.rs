//! Keeps the memory for indexes and filters of tables within a part of the budget.
//!
//! ```text
//!   flush thread, each tick: more than half of the budget --> tables used least --> not loaded --> view
//! ```
//!
//! An unloaded table takes the place of the loaded one in the version (table.7), and its next reader loads
//! it. Only the handles change, so the manifest has nothing to record.
//!
//! table_memory.1. Tables that a reader, an iterator or a compaction still holds keep their memory until it
//!     ends. It does not count here.

use std::collections::HashMap;
use std::sync::Arc;

use crate::cache::BudgetKind;
use crate::engine::upkeep::Upkeep;
use crate::read::view::ReadView;

impl Upkeep {
    /// Unloads the tables that are used least if indexes and filters take more than half of the memory, until
    /// they take less than three eighths.
    pub(in crate::engine) fn unload_tables(&self) {
        let budget = self.cache.budget();
        let max = budget.capacity_bytes() / 2;
        if budget.reserved_bytes(BudgetKind::Table) <= max {
            return;
        }
        // Versions are replaced under the manifest's lock only.
        let manifest = self.tables.manifest();
        let before = self.version();
        let used = before.tables().filter_map(|(_, live)| live.table.usage().map(|usage| (usage, live)));
        let mut used: Vec<_> = used.collect();
        // Tables that only readers hold do not count: to unload others would not free their memory.
        let mut left: u64 = used.iter().map(|(usage, _)| usage.bytes).sum();
        if left <= max {
            return;
        }
        // By file if equal, so that a simulation is repeatable.
        used.sort_by_key(|(usage, live)| (usage.uses, live.file));
        let mut unloaded = HashMap::new();
        for (usage, live) in used {
            if left <= max / 4 * 3 {
                break;
            }
            let Some(table) = live.table.unloaded() else { continue };
            left = left.saturating_sub(usage.bytes);
            unloaded.insert(live.file, table);
        }
        let version = Arc::new(before.with_handles(&unloaded));
        self.view.update(|old| {
            assert!(Arc::ptr_eq(&old.version, &before), "the version changed under the manifest's lock");
            ReadView { version, ..old.clone() }
        });
        drop((before, manifest));
        self.view.reclaim();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use esker_env::{Env, Fs, ManualClock, MemFs};

    use super::*;
    use crate::{Blobs, Builder, Db, Result, Value};

    const KEYS: u32 = 30_000;
    const MEMORY: u64 = 2 << 20;

    fn builder(env: &Env) -> Builder {
        let small = |t: crate::Tuning| t.block_bytes(64).table_bytes(64 << 10).memtable_bytes(256 << 10);
        Db::builder().stepped().memory(MEMORY).blobs(Blobs::From(60)).env(env.clone()).tuning(small)
    }

    fn key(n: u32) -> [u8; 8] {
        u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
    }

    /// Bytes of the loaded tables of the version.
    fn loaded(db: &Db) -> u64 {
        let version = db.handle.core.version();
        version.tables().filter_map(|(_, live)| live.table.usage()).map(|usage| usage.bytes).sum()
    }

    /// Reads everything. The flush thread keeps the limit at each tick.
    fn check_all(db: &Db, get: impl Fn([u8; 8]) -> Result<Option<Value>>) {
        for n in 0..KEYS {
            assert_eq!(get(key(n)).unwrap().unwrap().len(), 20 + n as usize % 50, "{n}");
            if n % 1000 == 0 {
                db.handle.core.flush_step().unwrap();
                assert!(loaded(db) <= MEMORY / 2, "{}", loaded(db));
            }
        }
    }

    #[test]
    fn indexes_and_filters_stay_within_half_of_the_memory_and_no_answer_changes() {
        let (fs, clock) = (Arc::new(MemFs::new()), Arc::new(ManualClock::new()));
        let mut env = Env::simulated(fs.clone(), 1);
        env.clock = clock.clone();
        let db = builder(&env).open(Path::new("db")).unwrap();
        let map = db.default_keyspace();
        for n in 0..KEYS {
            map.put(key(n), vec![n as u8; 20 + n as usize % 50]).unwrap();
        }
        db.compact().unwrap();
        let (before, snapshot) = (map.range(..), db.snapshot());
        check_all(&db, |key| map.get(key));
        map.put_with_ttl([255; 9], "short-lived", Duration::from_secs(1)).unwrap();
        db.flush().unwrap();
        check_all(&db, |key| map.get(key));
        map.delete_range(..[255; 9]).unwrap();
        assert_eq!((map.len().unwrap(), snapshot.len(&map).unwrap()), (1, u64::from(KEYS)));
        db.flush().unwrap();
        check_all(&db, |key| snapshot.get(&map, key));
        assert_eq!(before.map(Result::unwrap).count(), KEYS as usize, "table_memory.1");
        db.handle.core.flush_step().unwrap();
        let reserved = db.handle.core.cache.budget().reserved_bytes(BudgetKind::Table);
        assert!(reserved <= MEMORY / 2, "{reserved}");
        drop(snapshot);
        clock.advance(Duration::from_secs(2));
        db.sweep().unwrap();
        db.compact().unwrap();
        assert!(map.is_empty().unwrap());
        assert_eq!(map.len().unwrap(), 0);
        let live = db.tables().len();
        drop(map);
        db.close().unwrap();
        let left = fs.list_dir(Path::new("db")).unwrap();
        assert_eq!(left.iter().filter(|name| name.ends_with(".sst")).count(), live, "{left:?}");
    }
}
