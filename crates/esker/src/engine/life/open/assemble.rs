//! The last step of an opening: stacks the layers and starts the threads.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::Opening;
use super::log::Log;
use super::manifest::Named;
use super::read::{Found, Readers};
use crate::cache::BudgetKind;
use crate::engine::base::Base;
use crate::engine::base::options::Background;
use crate::engine::base::stats::add;
use crate::engine::core::Core;
use crate::engine::disk::Disk;
use crate::engine::disk::page_cache::PageCache;
use crate::engine::disk::reserve::DiskReserve;
use crate::engine::life::background::Threads;
use crate::engine::life::handle::Handle;
use crate::engine::state::State;
use crate::engine::state::history::Histories;
use crate::engine::upkeep::Upkeep;
use crate::engine::writes::Writes;
use crate::engine::writes::sweep::Sweeper;
use crate::read::cost::ReadCost;
use crate::txn::commit::Pipeline;
use crate::types::Result;

impl Opening {
    /// Builds the running database from what was found, and starts its threads.
    pub(super) fn assemble(
        self,
        found: Found,
        readers: Readers,
        named: Named,
        log: Log,
    ) -> Result<Arc<Handle>> {
        let Opening { options, env, dir, lock, events, .. } = self;
        let Found { cache, replayed, .. } = found;
        let Readers { view, published, catalog, time, operators, closed } = readers;
        let (commits, torn_bytes) = (replayed.commits, replayed.log.trimmed_bytes);
        let pipeline = Pipeline::new(
            log.writer,
            view.clone(),
            published.clone(),
            replayed.applier,
            replayed.sealed,
            options.memtable_bytes,
        );
        let sweeper = Sweeper::new(catalog.time_ms, published.visible());
        let disk = Disk {
            env,
            dir,
            tables: named.tables,
            wal_pool: log.pool,
            blobs: log.blobs,
            memtable_memory: Mutex::new(cache.budget().reserve(BudgetKind::Memtable, 0)),
            cache,
            reserve: DiskReserve::new(&options),
            page_cache: PageCache::default(),
            lock,
            base: Base::new(options, closed, events),
        };
        let state = State {
            view,
            published,
            pipeline,
            catalog,
            time,
            operators,
            histories: Histories::default(),
            read_cost: ReadCost::default(),
            feed: log.feed,
            disk,
        };
        let core = Arc::new(Core::new(Writes::new(Upkeep::new(state), sweeper)));
        for (id, options) in core.catalog.all_options() {
            core.take_options(id, None, options);
        }
        core.histories.raise(&named.floors);
        add(&core.counters.recovered_commits, commits);
        core.counters.recovered_torn_bytes.store(torn_bytes, Ordering::Relaxed);
        if core.slow.is_some() {
            core.cache.activity().measure_all_gets();
        }
        core.account_reserve();
        core.seal_long_log()?;
        let threads = match core.options.background() {
            Background::Threads => core.start_threads()?,
            Background::Writers | Background::Steps => {
                core.account_page_cache();
                Threads::default()
            }
        };
        Ok(Handle::new(core, threads))
    }
}
