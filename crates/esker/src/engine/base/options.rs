//! The options of a database: the settings that the user gives, and the sizes derived from them.
//!
//! ```text
//!   Settings (memory, durability, compression, ...) --> Options (all sizes) --> OPTIONS file, info()
//! ```
//!
//! Of the memory budget, memtables take their part first, then indexes and filters. The cache gets the rest.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use esker_env::{Env, OpenOptions, read_range};

use super::allowances::Allowances;
use super::events::Listener;
use super::file_sizes::FileSizes;
use super::info::Info;
use crate::blob::{Blobs, StoreOptions};
use crate::compaction::filter::Filter;
use crate::compaction::plan::Limits;
use crate::encoding::checksum::crc32c;
use crate::encryption;
use crate::manifest::feed::FeedLimits;
use crate::manifest::file_name::{OPTIONS, OPTIONS_TMP};
use crate::read::operators::Registered;
use crate::sstable::{TableCompression, TableOptions};
use crate::txn::commit::{Durability, Isolation};
use crate::types::{Error, Result, replace_file_in_time};
use crate::wal::WalOptions;

/// Blocks in a page of an index of a miniature database.
const MINIATURE_PAGE_BLOCKS: usize = 2;
const MIB: u64 = 1 << 20;
/// Larger memtables are refused. Sums of such sizes could overflow.
const MEMTABLE_BYTES_MAX: u64 = 16 << 30;
/// Larger transactions become tables, whatever the size of memtables.
const ADOPTION_BYTES_MAX: u64 = 16 * MIB;
const TABLE_BYTES_MAX: u64 = 1 << 40;
const SYNC_EVERY_MIN: Duration = Duration::from_millis(1);
const SYNC_EVERY_MAX: Duration = Duration::from_secs(3600);
/// Tables in one compaction when data exceeds the cache: few enough to leave disk time for flushes, enough to
/// pay for the seeks.
pub(in crate::engine) const COMPACTION_TABLES: u64 = 16;
/// Immutable memtables that may wait for their flush before writers wait.
pub(crate) const SEALED_MAX: usize = 2;

/// What runs the background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Background {
    /// The engine's own threads.
    Threads,
    /// Writers that find a memtable full.
    Writers,
    /// Callers of `step`. Writers do it only when they would have to wait.
    Steps,
}

/// Permission bits, on systems that have them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Modes {
    /// Of the directory, if opening makes it.
    pub(crate) dir: u32,
    /// Of new files.
    pub(crate) files: u32,
}

/// How opening treats the directory.
#[derive(Clone, Debug)]
pub(crate) struct OpenSettings {
    pub(crate) create_if_missing: bool,
    pub(crate) error_if_exists: bool,
    /// Whether the database is only read.
    pub(crate) read_only: bool,
    /// How long opening waits for the directory lock.
    pub(crate) lock_timeout: Duration,
    /// `None`: files get the permissions that their directory allows.
    pub(crate) modes: Option<Modes>,
}

/// Sizes in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Sizes {
    pub(crate) memtable_bytes: Option<usize>,
    /// Bytes of one transaction's writes that stay in memory. `None`: a quarter of the memory.
    pub(crate) transaction_memory: Option<u64>,
    /// Size at which a transaction is adopted as tables. `None`: a part of a memtable.
    pub(crate) adoption_bytes: Option<u64>,
    pub(crate) block_bytes: usize,
    pub(crate) table_bytes: u64,
    pub(crate) replay_bytes: u64,
    pub(crate) miniature: Option<u64>,
    pub(crate) file_sizes: FileSizes,
}

/// Values in blob files.
#[derive(Clone, Debug)]
pub(crate) struct BlobSettings {
    /// Which values are stored in blob files.
    pub(crate) rule: Blobs,
    /// Maximum size of blob files, in percent of their live values.
    pub(crate) amplification_percent_max: u64,
}

/// How the log is written.
#[derive(Clone, Debug)]
pub(crate) struct LogSettings {
    /// Whether small commits may be stored through a memory map of the log's file.
    pub(crate) map: bool,
    /// Delay after which a commit that does not wait for the disk is synced.
    pub(crate) sync_every: Duration,
}

/// The log that is kept for the change feed.
#[derive(Clone, Debug, Default)]
pub(crate) struct FeedSettings {
    /// How much is kept. `None`: what the last opening said.
    pub(crate) retention: Option<FeedLimits>,
    /// Maximum bytes of log kept for readers that hold commits.
    pub(crate) hold: u64,
}

/// Functions of the program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Functions {
    /// Merge operators that the program registered.
    pub(crate) operators: Registered,
    /// Whether a keyspace may have an operator that is not registered.
    pub(crate) may_lack_operators: bool,
    /// Compaction filters by the names of their keyspaces.
    pub(crate) filters: BTreeMap<String, Filter>,
    /// Receives the events.
    pub(crate) listener: Option<Listener>,
    /// Duration from which on an operation is an event.
    pub(crate) slow_after: Option<Duration>,
}

/// The settings that the user gives.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) env: Env,
    pub(crate) memory: u64,
    pub(crate) durability: Durability,
    pub(crate) compression: TableCompression,
    pub(crate) isolation: Isolation,
    /// How long transactions wait for a lock or the exclusive turn.
    pub(crate) lock_patience: Duration,
    pub(crate) background: Background,
    pub(crate) log: LogSettings,
    pub(crate) first_number: u64,
    pub(crate) allowances: Allowances,
    pub(crate) opening: OpenSettings,
    pub(crate) sizes: Sizes,
    pub(crate) blobs: BlobSettings,
    pub(crate) feed: FeedSettings,
    pub(crate) functions: Functions,
}

impl Default for OpenSettings {
    fn default() -> Self {
        OpenSettings {
            create_if_missing: true,
            error_if_exists: false,
            read_only: false,
            lock_timeout: Duration::ZERO,
            modes: None,
        }
    }
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes {
            memtable_bytes: None,
            transaction_memory: None,
            adoption_bytes: None,
            block_bytes: 8 << 10,
            table_bytes: 64 * MIB,
            replay_bytes: 4 * MIB,
            miniature: None,
            file_sizes: FileSizes::default(),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            env: Env::real(),
            memory: 1 << 30,
            durability: Durability::Sync,
            isolation: Isolation::default(),
            lock_patience: Duration::from_secs(10),
            compression: TableCompression::Auto,
            background: if cfg!(target_family = "wasm") { Background::Writers } else { Background::Threads },
            log: LogSettings { map: true, sync_every: Duration::from_millis(100) },
            first_number: 1,
            allowances: Allowances::default(),
            opening: OpenSettings::default(),
            sizes: Sizes::default(),
            blobs: BlobSettings { rule: Blobs::From(4 << 10), amplification_percent_max: 150 },
            feed: FeedSettings::default(),
            functions: Functions::default(),
        }
    }
}

impl Settings {
    /// Derives all options.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a setting is out of its range.
    pub(crate) fn derive(self) -> Result<Options> {
        let invalid = |text: &str| Err(Error::Invalid(text.to_owned()));
        check_memory(self.memory)?;
        if !(64..=MIB as usize).contains(&self.sizes.block_bytes) {
            return invalid("block_bytes: 64 bytes to 1 MiB");
        }
        if self.sizes.table_bytes < self.sizes.block_bytes as u64 {
            return invalid("table_bytes: at least one block");
        }
        if self.sizes.table_bytes > TABLE_BYTES_MAX {
            return invalid("table_bytes: at most 1 TiB");
        }
        self.allowances.check()?;
        if !(SYNC_EVERY_MIN..=SYNC_EVERY_MAX).contains(&self.log.sync_every) {
            return invalid("sync_every: 1 ms to 1 hour");
        }
        let memtable_bytes = self.sizes.memtable_bytes.unwrap_or((self.memory / 8).min(64 * MIB) as usize);
        if !(110..=10_000).contains(&self.blobs.amplification_percent_max) {
            return invalid("space_amplification_max: 1.1 to 100");
        }
        if memtable_bytes == 0 {
            return invalid("memtable_bytes: more than nothing is needed");
        }
        if memtable_bytes as u64 > MEMTABLE_BYTES_MAX {
            return invalid("memtable_bytes: at most 16 GiB");
        }
        Ok(Options { memtable_bytes, given: self })
    }
}

/// Checks the size of the memory budget.
pub(crate) fn check_memory(bytes: u64) -> Result<()> {
    if bytes < MIB {
        return Err(Error::Invalid("memory: at least 1 MiB is needed".to_owned()));
    }
    Ok(())
}

/// All options: given and derived.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    given: Settings,
    pub(crate) memtable_bytes: usize,
}

impl Options {
    pub(crate) fn env(&self) -> &Env {
        &self.given.env
    }
    pub(crate) fn durability(&self) -> Durability {
        self.given.durability
    }
    pub(crate) fn isolation(&self) -> Isolation {
        self.given.isolation
    }
    pub(crate) fn lock_patience(&self) -> Duration {
        self.given.lock_patience
    }
    /// Delay after which a commit that does not wait for the disk is synced.
    pub(crate) fn sync_every(&self) -> Duration {
        self.given.log.sync_every
    }
    pub(crate) fn background(&self) -> Background {
        self.given.background
    }
    pub(crate) fn listener(&self) -> Option<&Listener> {
        self.given.functions.listener.as_ref()
    }
    pub(crate) fn slow_after(&self) -> Option<Duration> {
        self.given.functions.slow_after
    }
    pub(crate) fn create_if_missing(&self) -> bool {
        self.given.opening.create_if_missing
    }
    pub(crate) fn error_if_exists(&self) -> bool {
        self.given.opening.error_if_exists
    }
    /// Whether the database is only read.
    pub(crate) fn is_read_only(&self) -> bool {
        self.given.opening.read_only
    }
    pub(crate) fn lock_timeout(&self) -> Duration {
        self.given.opening.lock_timeout
    }
    pub(crate) fn memory(&self) -> u64 {
        self.given.memory
    }
    pub(super) fn compression(&self) -> TableCompression {
        self.given.compression
    }
    pub(super) fn blobs(&self) -> Blobs {
        self.given.blobs.rule
    }
    pub(super) fn block_bytes(&self) -> usize {
        self.given.sizes.block_bytes
    }
    pub(super) fn table_bytes(&self) -> u64 {
        self.given.sizes.table_bytes
    }
    pub(crate) fn replay_bytes(&self) -> u64 {
        self.given.sizes.replay_bytes
    }
    /// Memory left for blocks, indexes and filters when all memtables are full, but at least a
    /// quarter of the memory. The choice of compactions compares the data with this size. If memtables are
    /// large, the cache itself shrinks further (cache/budget.rs).
    pub(crate) fn cache_bytes(&self) -> u64 {
        let memtables = (SEALED_MAX as u64 + 1) * self.memtable_bytes as u64;
        let rest = self.given.memory.saturating_sub(memtables).max(self.given.memory / 4);
        rest.min(self.given.sizes.miniature.unwrap_or(u64::MAX))
    }
    /// Size of the log's largest segment. A memtable spans a handful of them.
    pub(crate) fn wal_segment_bytes(&self) -> u64 {
        // Segments are whole sectors.
        (self.memtable_bytes as u64 / 4).next_multiple_of(512).clamp(4 << 10, 16 * MIB)
    }
    /// Size in bytes at which a transaction is adopted as tables.
    pub(crate) fn adoption_bytes(&self) -> u64 {
        self.given.sizes.adoption_bytes.unwrap_or((self.memtable_bytes as u64 / 4).min(ADOPTION_BYTES_MAX))
    }
    /// Size of the pieces in which such a transaction is written.
    pub(crate) fn piece_bytes(&self) -> u64 {
        (self.adoption_bytes() / 4).max(1)
    }
    /// Bytes of a transaction's writes that stay in memory. Further writes go to tables at once.
    pub(crate) fn transaction_bytes(&self) -> u64 {
        self.given.sizes.transaction_memory.unwrap_or(self.given.memory / 4)
    }
    /// How the log lays out its files.
    pub(crate) fn wal_options(&self, database_id: u32) -> WalOptions {
        let FileSizes { first_segment, bulk_segment, .. } = self.given.sizes.file_sizes;
        WalOptions {
            maps: self.given.log.map,
            segment_bytes_max: self.wal_segment_bytes(),
            first_segment_bytes: first_segment,
            bulk_segment_bytes: bulk_segment.max(self.wal_segment_bytes()),
            database_id,
        }
    }
    pub(crate) fn allowances(&self) -> Allowances {
        self.given.allowances
    }
    /// Number of compactions that may run at the same time. Writers that do the work themselves wait for each
    /// other. Steps need a setting for more than one.
    pub(crate) fn compactions(&self) -> usize {
        match self.given.background {
            Background::Threads => self.given.allowances.compaction_threads(),
            Background::Steps => self.given.allowances.compactions.unwrap_or(1),
            Background::Writers => 1,
        }
    }
    /// How much of the log is kept for the change feed, if set.
    pub(crate) fn feed_retention(&self) -> Option<FeedLimits> {
        self.given.feed.retention
    }
    /// Maximum bytes of log kept for readers that hold commits.
    pub(crate) fn feed_hold(&self) -> u64 {
        self.given.feed.hold
    }
    /// Merge operators that the program registered.
    pub(crate) fn operators(&self) -> &Registered {
        &self.given.functions.operators
    }
    /// Whether a keyspace may have an operator that is not registered.
    pub(crate) fn may_lack_operators(&self) -> bool {
        self.given.functions.may_lack_operators
    }
    pub(crate) fn modes(&self) -> Option<Modes> {
        self.given.opening.modes
    }
    /// The compaction filters, by the names of their keyspaces.
    pub(crate) fn filters(&self) -> &BTreeMap<String, Filter> {
        &self.given.functions.filters
    }
    /// The first commit number of a new database.
    pub(crate) fn first_number(&self) -> u64 {
        self.given.first_number
    }
    /// How blob files are written.
    pub(crate) fn blob_store(&self) -> StoreOptions {
        StoreOptions {
            blobs: self.given.blobs.rule,
            file_bytes_max: self.blob_file_bytes(),
            buffer_bytes: (self.given.memory / 64).clamp(16 << 10, MIB) as usize,
            compress: self.given.compression != TableCompression::None,
            threads: self.has_threads(),
        }
    }

    /// Maximum size of blob files, in percent of their live values.
    pub(crate) fn amplification_percent_max(&self) -> u64 {
        self.given.blobs.amplification_percent_max
    }

    /// Whether background work has its own threads.
    pub(crate) fn has_threads(&self) -> bool {
        self.given.background == Background::Threads
    }

    /// Size at which a blob file is full: the log of a few memtables, so that a full file is settled soon.
    pub(crate) fn blob_file_bytes(&self) -> u64 {
        (4 * self.memtable_bytes as u64).clamp(4 << 10, 256 * MIB)
    }

    /// A manifest smaller than this is not rewritten.
    pub(crate) fn manifest_bytes_min(&self) -> u64 {
        self.given.sizes.file_sizes.manifest_min
    }
    /// How tables are written, with or without direct I/O.
    pub(crate) fn table_options(&self, direct_io: bool) -> TableOptions {
        let mut options = TableOptions {
            block_bytes: self.given.sizes.block_bytes,
            compression: self.given.compression,
            direct_io,
            ..TableOptions::default()
        };
        if self.given.sizes.miniature.is_some() {
            options.page_blocks = MINIATURE_PAGE_BLOCKS;
        }
        options
    }
    /// The limits that shape the runs, given the bytes that the tables hold.
    pub(crate) fn limits(&self, table_bytes_live: u64) -> Limits {
        let limits = Limits {
            table_bytes: self.given.sizes.table_bytes,
            partition_bytes: self.given.sizes.table_bytes,
            run_bytes: self.memtable_bytes as u64,
            compaction_bytes_max: COMPACTION_TABLES * self.given.sizes.table_bytes,
            fits_cache: table_bytes_live <= self.cache_bytes(),
            ..Limits::default()
        };
        match self.given.sizes.miniature {
            Some(_) if !limits.fits_cache => Limits {
                l0_runs_max: 2,
                tier_runs_max: 2,
                base_ratio: 1,
                depth_max: 6,
                run_bytes: self.memtable_bytes as u64 / 32,
                ..limits
            },
            _ => limits,
        }
    }

    /// The options in force, for programs and people.
    pub(crate) fn info(&self) -> Info {
        Info::of(self)
    }

    /// Writes the OPTIONS file for people and tools. An encrypted directory has none.
    pub(crate) fn save(&self, env: &Env, dir: &Path) -> Result<()> {
        if encryption::is_on(env) {
            return Ok(());
        }
        let mut text = String::from(
            "# The options this database was last opened with. Changing this file changes nothing.\n",
        );
        for (name, value) in self.info().pairs() {
            text.push_str(&format!("{name} = {value}\n"));
        }
        text.push_str(&last_line(text.as_bytes()));
        if is_there(env, &dir.join(OPTIONS), text.as_bytes()) {
            return Ok(());
        }
        // The engine does not read it, and an opening writes it again if a crash undid it.
        replace_file_in_time(env, dir, OPTIONS_TMP, OPTIONS, text.as_bytes())
    }
}

/// Returns whether a file can be read and has this content.
fn is_there(env: &Env, path: &Path, content: &[u8]) -> bool {
    let read = || {
        let file = env.fs.open(path, OpenOptions::read())?;
        let is_as_long = file.len()? == content.len() as u64;
        read_range(&*file, 0, if is_as_long { content.len() } else { 0 })
    };
    read().is_ok_and(|found| found == content)
}

/// The last line of an OPTIONS file that starts with `text`.
fn last_line(text: &[u8]) -> String {
    format!("# crc32c {:08x}\n", crc32c(text))
}

/// Returns whether the bytes of an OPTIONS file match its checksum.
pub(crate) fn is_whole(bytes: &[u8]) -> bool {
    let (text, line) = bytes.split_at(bytes.len().saturating_sub(last_line(&[]).len()));
    line == last_line(text).as_bytes()
}
