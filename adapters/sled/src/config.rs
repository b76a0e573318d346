//! `Config`: the options. Those about sled's files are taken and have no effect.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use esker::Durability;

const DEFAULT_PATH: &str = "default.sled";
/// The engine's smallest budget.
const MEMORY_MIN: u64 = 16 << 20;
/// The range of the engine's interval of syncs.
const SYNC_MS: (u64, u64) = (1, 3_600_000);

/// sled's choice between space and speed. It has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Less space.
    LowSpace,
    /// Faster writes.
    HighThroughput,
}

/// Options of a database. Clones share a temporary directory, which goes with the last of them and of the
/// databases opened with them.
#[derive(Clone, Debug, Default)]
pub struct Config(Arc<Options>);

#[derive(Debug)]
struct Options {
    path: PathBuf,
    temporary_path: PathBuf,
    temporary: bool,
    create_new: bool,
    cache_capacity: u64,
    flush_every_ms: Option<u64>,
    id_lease: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            path: PathBuf::from(DEFAULT_PATH),
            temporary_path: temporary_path(),
            temporary: false,
            create_new: false,
            cache_capacity: 1 << 30,
            flush_every_ms: Some(500),
            id_lease: 1_000_000,
        }
    }
}

impl Options {
    /// Another set of options has a temporary directory of its own.
    fn copy(&self) -> Self {
        Options { path: self.path.clone(), temporary_path: temporary_path(), ..*self }
    }

    fn dir(&self) -> &Path {
        match self.temporary && self.path == Path::new(DEFAULT_PATH) {
            true => &self.temporary_path,
            false => &self.path,
        }
    }
}

impl Drop for Options {
    fn drop(&mut self) {
        if self.temporary {
            // Nothing may have been opened, so there may be nothing to remove.
            let _ = std::fs::remove_dir_all(self.dir());
        }
    }
}

macro_rules! without_effect {
    ($($name:ident: $type:ty,)*) => {$(
        /// An option of sled's files. It has no effect.
        #[must_use]
        pub fn $name(self, _: $type) -> Self {
            self
        }
    )*};
}

impl Config {
    /// Returns the default options.
    pub fn new() -> Config {
        Config::default()
    }

    fn set(mut self, set: impl FnOnce(&mut Options)) -> Self {
        match Arc::get_mut(&mut self.0) {
            Some(options) => {
                set(options);
                self
            }
            None => {
                let mut options = self.0.copy();
                set(&mut options);
                Config(Arc::new(options))
            }
        }
    }

    /// Sets the directory. Default `default.sled`.
    #[must_use]
    pub fn path<P: AsRef<Path>>(self, path: P) -> Config {
        self.set(|options| options.path = path.as_ref().to_path_buf())
    }

    /// Removes the database after use. Unless a path is set it is in the directory for temporary files.
    #[must_use]
    pub fn temporary(self, to: bool) -> Self {
        self.set(|options| options.temporary = to)
    }

    /// Fails if there is a database already.
    #[must_use]
    pub fn create_new(self, to: bool) -> Self {
        self.set(|options| options.create_new = to)
    }

    /// Sets the budget for all memory, in bytes: at least 16 MiB. Default 1 GiB.
    #[must_use]
    pub fn cache_capacity(self, to: u64) -> Self {
        self.set(|options| options.cache_capacity = to)
    }

    /// Sets how long writes may stay without a sync: what a power loss can take. Default 500 ms. `None`: an
    /// hour, or until a flush.
    #[must_use]
    pub fn flush_every_ms(self, every_ms: Option<u64>) -> Self {
        self.set(|options| options.flush_every_ms = every_ms)
    }

    /// Sets how many numbers of `generate_id` are reserved by one write.
    #[must_use]
    pub fn idgen_persist_interval(self, interval: u64) -> Self {
        self.set(|options| options.id_lease = interval.clamp(1, 1 << 32))
    }

    without_effect! {
        mode: Mode,
        use_compression: bool,
        compression_factor: i32,
        segment_size: usize,
        print_profile_on_drop: bool,
        snapshot_after_ops: u64,
        segment_cleanup_threshold: u8,
        segment_cleanup_skew: usize,
    }

    /// Returns the directory of the database.
    pub fn get_path(&self) -> PathBuf {
        self.0.dir().to_path_buf()
    }

    pub(crate) fn id_lease(&self) -> u64 {
        self.0.id_lease
    }

    pub(crate) fn builder(&self) -> esker::Builder {
        let options = &self.0;
        let sync_ms = options.flush_every_ms.unwrap_or(SYNC_MS.1).clamp(SYNC_MS.0, SYNC_MS.1);
        esker::Db::builder()
            .memory(options.cache_capacity.max(MEMORY_MIN))
            .durability(Durability::Buffered)
            .error_if_exists(options.create_new)
            .sync_every(Duration::from_millis(sync_ms))
    }
}

fn temporary_path() -> PathBuf {
    /// Makes the names of this process differ. Relaxed: it orders nothing.
    static MADE: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("esker-sled-{}-{now}-{number}", std::process::id()))
}
