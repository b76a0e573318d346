//! Runs work on an engine in this process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use esker_bench_api::generate::checksum::checksum;
use esker_bench_api::generate::obigstore::Hotspots;
use esker_bench_api::{
    Durability, Engine, Expiring, Failure, Feature, Isolation, Keyspaces, OpenOptions, Reader, Result, Store,
    TransactionKind, Transactions,
};

use super::state::State;
use super::{Checked, Done, Executor, OnProgress, expect};
use crate::load::{KeySource, Load, drive};
use crate::suites::content::Content;
use crate::suites::items::{Items, Kind, Source};
use crate::suites::plan::{Drive, Work};
use crate::suites::verify::full_scan;

const SPOTS_LOG2: u32 = 13;
const STAY: f64 = 0.99999;
/// Largest backlog at the end of an open loop that does not count as overload, in seconds.
const BACKLOG_S_MAX: f64 = 1.0;

/// The open database.
pub(super) enum Opened {
    No,
    Store(Arc<dyn Store>),
    Keyspaces(Box<dyn Keyspaces>),
    Transactions(Box<dyn Transactions>),
    Expiring(Box<dyn Expiring>),
}

/// Work on one engine.
pub(crate) struct Native<'a> {
    engine: &'a dyn Engine,
    transactions: Option<TransactionKind>,
    /// Options of an opening that is part of the next work.
    within: Option<OpenOptions>,
    opened: Opened,
    state: State,
}

impl<'a> Native<'a> {
    pub(crate) fn new(
        engine: &'a dyn Engine,
        source: Source,
        transactions: Option<TransactionKind>,
        dir: PathBuf,
    ) -> Self {
        Self { engine, transactions, within: None, opened: Opened::No, state: State::new(source, dir) }
    }

    fn opened_with(&self, options: &OpenOptions) -> Result<Opened> {
        let (engine, dir) = (self.engine, &self.state.dir);
        Ok(match (self.state.items.source.kind, self.transactions) {
            (Kind::Keyspaces, _) => {
                let count = self.state.items.source.number as u32;
                Opened::Keyspaces(engine.open_keyspaces(dir, options, count)?)
            }
            (Kind::Accounts, Some(kind)) => {
                Opened::Transactions(engine.open_transactions(dir, options, kind)?)
            }
            (Kind::Entries, _) => Opened::Expiring(engine.open_expiring(dir, options)?),
            _ => Opened::Store(Arc::from(engine.open(dir, options)?)),
        })
    }

    /// Returns why a transaction of the engine cannot have any number of items. For an engine without
    /// transactions there is no limit.
    fn cannot_be_large(&self) -> Option<&'static str> {
        let is_operation = self.engine.isolation() == Isolation::Operation;
        self.engine.cannot(Feature::LargeTransactions).filter(|_| !is_operation)
    }

    fn on_store(&mut self, work: &Work, on_progress: OnProgress<'_>) -> Result<Done> {
        let too_large = self.cannot_be_large();
        let Opened::Store(store) = &self.opened else { return Err(Failure::engine("no store is open")) };
        let (store, state) = (&**store, &mut self.state);
        if !matches!(work, Work::Len | Work::Gets { .. } | Work::Ranges { .. } | Work::Scan { .. }) {
            state.scan_sum = None;
        }
        match work {
            Work::Put { .. } => state.put(store, work, too_large, on_progress),
            Work::Remove => state.remove_half(store, too_large),
            Work::Len => state.len(store),
            Work::Gets { count, threads, keys_ahead } => state.gets(store, *count, *threads, *keys_ahead),
            Work::Ranges { .. } => state.ranges(store, work),
            Work::Scan { limit, keys_only } => state.scan(store, *limit, *keys_only),
            Work::Mix(mix) => state.mix(store, mix, on_progress),
            Work::Drive(drive) => state.drive(store, drive),
            Work::Requests { .. } => state.requests(store, work),
            Work::Queue { budget } => state.queue(store, *budget),
            Work::Replace { budget } => state.replace(store, *budget),
            Work::Check => state.check(&mut *store.reader()?).map(|()| Done::default()),
            _ => Err(Failure::Engine(format!("not the work of a store: {work:?}"))),
        }
    }
}

impl State {
    /// Writes requests of pairs.
    fn drive(&mut self, store: &dyn Store, spec: &Drive) -> Result<Done> {
        let source = self.items.source;
        let began_on = self.content.to;
        let keys = match source.kind {
            Kind::Hotspots => KeySource::Hotspots(Hotspots::new(source.seed, STAY, SPOTS_LOG2)),
            Kind::Random => KeySource::Random,
            _ => KeySource::Sequential,
        };
        let mut pairs = crate::load::Source::new(keys, source.seed, source.value_bytes, spec.pairs, began_on);
        let rate = (spec.rate > 0.0).then_some(spec.rate);
        let load = Load {
            concurrency: spec.concurrency,
            multi: spec.multi,
            rate,
            time: spec.budget.time,
            period: spec.period,
        };
        let loaded = drive(store, &mut pairs, load, &self.dir)?;
        self.content.to = pairs.keys_given();
        self.hotspot_pairs += loaded.pairs;
        let backlog_s = loaded.backlog.as_secs_f64();
        let void = rate.filter(|_| backlog_s > BACKLOG_S_MAX).map(|rate| {
            format!("overloaded: {:.0} of {rate:.0} pairs a second", loaded.pairs as f64 / loaded.seconds)
        });
        let offered = rate.map(|rate| ("offered ops/s".to_owned(), rate));
        Ok(Done {
            seconds: loaded.seconds,
            ops: loaded.pairs,
            commits: loaded.commits,
            written_bytes: loaded.bytes,
            began_on: (began_on > 0).then_some(began_on),
            figures: offered.into_iter().collect(),
            detail: Some(loaded.detail),
            void,
            ..Done::default()
        })
    }

    /// Compares every byte with the expected content.
    pub(super) fn check(&self, reader: &mut dyn Reader) -> Result<()> {
        let (count, expected) = if self.items.source.kind == Kind::Hotspots {
            self.hotspots()
        } else {
            (self.content.len(), self.content.checksum(&self.items))
        };
        // For other engines a count may take as long as the scan.
        if matches!(
            self.items.source.kind,
            Kind::Items | Kind::Ints | Kind::Sequential | Kind::Random | Kind::Hotspots
        ) {
            expect("number of items by len()", reader.len()?, count)?;
        }
        full_scan(reader, count, expected)
    }

    /// Draws the hotspots again. Returns the number of distinct keys, and the sum of the checksums.
    fn hotspots(&self) -> (u64, u64) {
        let Source { seed, value_bytes, .. } = self.items.source;
        let (mut hotspots, mut value) = (Hotspots::new(seed, STAY, SPOTS_LOG2), vec![0; value_bytes]);
        let keys = (0..self.hotspot_pairs).map(|_| hotspots.next_key());
        keys.filter(|(_, is_new)| *is_new).fold((0, 0_u64), |(count, sum), (key, _)| {
            esker_bench_api::generate::obigstore::value(&key, &mut value);
            (count + 1, sum.wrapping_add(checksum(&key, &value)))
        })
    }
}

impl Executor for Native<'_> {
    fn open(&mut self, options: &OpenOptions) -> Result<()> {
        self.close()?;
        self.opened = self.opened_with(options)?;
        Ok(())
    }

    fn open_within(&mut self, options: &OpenOptions) -> Result<()> {
        self.close()?;
        self.within = Some(*options);
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        self.opened = Opened::No;
        self.within = None;
        Ok(())
    }

    fn set_durability(&mut self, durability: Durability) -> Result<()> {
        match &mut self.opened {
            Opened::Store(store) => Arc::get_mut(store)
                .ok_or_else(|| Failure::engine("a snapshot is held"))?
                .set_durability(durability),
            _ => Ok(()),
        }
    }

    fn work(&mut self, work: &Work, on_progress: OnProgress<'_>) -> Result<Done> {
        let start = Instant::now();
        let within = self.within.take();
        if let Some(options) = &within {
            self.opened = self.opened_with(options)?;
        }
        let opening = within.map_or(0.0, |_| start.elapsed().as_secs_f64());
        let state = &mut self.state;
        let mut done = match &mut self.opened {
            Opened::Keyspaces(keyspaces) => state.on_keyspaces(&mut **keyspaces, work),
            Opened::Transactions(transactions) => state.on_transactions(&**transactions, work, on_progress),
            Opened::Expiring(expiring) => state.on_expiring(&**expiring, work, on_progress),
            _ => self.on_store(work, on_progress),
        }?;
        done.seconds += opening;
        if let (Opened::Transactions(_), Some(kind)) = (&self.opened, self.transactions) {
            kind.name().clone_into(&mut done.note);
        }
        Ok(done)
    }

    fn compact(&mut self) -> Result<f64> {
        let Opened::Store(store) = &mut self.opened else { return Ok(0.0) };
        let store = Arc::get_mut(store).ok_or_else(|| Failure::engine("a snapshot is held"))?;
        let seconds = super::timed(|| store.compact())?;
        store.reopen()?;
        Ok(seconds)
    }

    fn drain(&self, deadline: Instant) -> Result<()> {
        match &self.opened {
            Opened::No => Ok(()),
            Opened::Store(store) => store.drain(deadline),
            Opened::Keyspaces(keyspaces) => keyspaces.drain(deadline),
            Opened::Transactions(transactions) => transactions.drain(deadline),
            Opened::Expiring(expiring) => expiring.drain(deadline),
        }
    }

    fn items(&self) -> u64 {
        self.state.content.to
    }

    fn live_bytes(&self) -> u64 {
        match &self.opened {
            Opened::Expiring(_) => self.state.lasting_bytes(),
            _ => self.state.live_bytes(),
        }
    }

    fn under_snapshot(
        &mut self,
        then: &mut dyn FnMut(&mut dyn Executor, Checked<'_>) -> Result<()>,
    ) -> Result<()> {
        let Opened::Store(store) = &self.opened else { return Err(Failure::engine("no store is open")) };
        let store = Arc::clone(store);
        let mut reader = store.reader()?;
        // The items as they were loaded.
        let (items, to) = (Items::new(self.state.items.source), self.state.content.to);
        let mut check = || full_scan(&mut *reader, to, Content::loaded(to).checksum(&items));
        then(self, &mut check)
    }
}
