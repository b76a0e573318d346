//! Bf-Tree: an index with single operations only. It has no transactions, no snapshots for reads, and no
//! synced commit.
//!
//!   Store::write -> each write is applied at once
//!   Reader       -> the tree itself; values are copied into a buffer of the thread, as its interface has it
//!   closing      -> a snapshot file (its only way to find data again), from which the next open starts

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use bf_tree::{BfTree as Tree, Config, LeafInsertResult, LeafReadResult, ScanReturnField};

use esker_bench_api::{
    AsyncCommits, Durability, Engine, EngineOption, Failure, Feature, Isolation, OpenOptions, Reader, Result,
    Store, VisitItem, Writer, engine_options, store::Work,
};

/// Longest key of the suites that do not state the length of their keys, with some reserve.
const KEY_BYTES: u64 = 32;
/// With longer keys, a page of the default size has no space for its records.
const KEY_BYTES_MAX: u64 = 128;
/// Largest record, the default for keys of `KEY_BYTES`.
const RECORD_BYTES_MAX: usize = 1952;
/// More than the largest record of a page of the default size.
const BUFFER_BYTES: usize = 4096;
const SNAPSHOT: &str = "snapshot.";

thread_local! {
    /// Buffer for the records that this thread reads. Made once, as a user of Bf-Tree would do it.
    static BUFFER: RefCell<[u8; BUFFER_BYTES]> = const { RefCell::new([0; BUFFER_BYTES]) };
}

const NO_DURABILITY: &str = "Bf-Tree finds data again from a snapshot of the whole tree only: its log is written, never synced, and the code that would read it back is unfinished";
const NO_TRANSACTIONS: &str = "Bf-Tree has no transactions: its writes are single operations";
const NO_SNAPSHOTS: &str = "Bf-Tree has no snapshots to read from";
const NO_COMPACTION: &str = "Bf-Tree has no compaction";
const NO_LARGE_VALUES: &str =
    "Bf-Tree takes records of at most 1,952 bytes at its default page size, and of 16 KB at its largest";

pub(crate) struct BfTree;

impl Engine for BfTree {
    fn name(&self) -> &'static str {
        "bf-tree"
    }

    fn version(&self) -> String {
        env!("VERSION_BF_TREE").to_owned()
    }

    fn options(&self) -> &'static [EngineOption] {
        engine_options! {
            "compression", "none", "Bf-Tree has none", "its documentation names none";
            "cb_size_byte", "the suite's cache, rounded down to a power of two", "its circular buffer is its one cache, and takes powers of two only", "docs of Config::cb_size_byte, Config::validate";
            "cb_max_key_len, cb_max_record_size", "32, or the longest key of the suite, up to 128; the default of 1,952, less twice what is beyond 32", "the default of 16 is too short for the keys of most suites, and longer ones leave less room in a page", "docs of Config::cb_max_key_len";
            "storage_backend", "Std", "the default for a file; its io_uring backend waits by polling, which takes a core", "docs of Config::storage_backend";
            "write-ahead log", "off", "the default; it would make each write wait for a timer, and cannot be recovered from", "bf-tree, src/wal/mod.rs and BfTree::recovery, marked incomplete";
            "use_snapshot", "true", "without it nothing is there after closing", "bf-tree README, Snapshots and Recovery";
            "keyspaces", "prefixes of keys: 4 bytes in front of each", "a tree is one order with a cache and a file of its own", "docs of BfTree and Config";
        }
    }

    fn async_commits(&self) -> Option<AsyncCommits> {
        None
    }

    fn isolation(&self) -> Isolation {
        Isolation::Operation
    }

    fn cannot(&self, feature: Feature) -> Option<&'static str> {
        match feature {
            Feature::SyncCommits | Feature::AsyncCommits => Some(NO_DURABILITY),
            Feature::NoSyncCommits => None,
            Feature::LargeTransactions => Some(NO_TRANSACTIONS),
            Feature::LargeValues => Some(NO_LARGE_VALUES),
            Feature::Compaction => Some(NO_COMPACTION),
            Feature::Snapshots => Some(NO_SNAPSHOTS),
        }
    }

    fn open(&self, dir: &Path, options: &OpenOptions) -> Result<Box<dyn Store>> {
        check_durability(options.durability)?;
        let cache_bytes = usize::try_from(options.cache_bytes)?;
        let cache_bytes = 1_usize << cache_bytes.ilog2();
        let (generation, tree) = match newest_snapshot(dir)? {
            Some((generation, path)) => {
                (generation, Tree::new_from_cpr_snapshot(path, true, None, Some(cache_bytes), None))
            }
            None => {
                let mut config = Config::new(dir.join("data.bftree"), cache_bytes);
                let key_bytes = options.key_bytes.clamp(KEY_BYTES, KEY_BYTES_MAX) as usize;
                config.cb_max_key_len(key_bytes).max_fence_len(2 * key_bytes).use_snapshot(true);
                // Longer fence keys leave less space in a page of the default size.
                config.cb_max_record_size(RECORD_BYTES_MAX - 2 * (key_bytes - KEY_BYTES as usize));
                (0, Tree::with_config(config, None))
            }
        };
        let tree = tree.map_err(|error| Failure::Engine(format!("{error:?}")))?;
        Ok(Box::new(BfTreeStore { tree, dir: dir.to_path_buf(), generation }))
    }
}

fn check_durability(durability: Durability) -> Result<()> {
    match durability {
        Durability::NoSync => Ok(()),
        Durability::Sync | Durability::Async => Err(Failure::Unsupported(NO_DURABILITY.to_owned())),
    }
}

/// Returns the newest snapshot file and its number.
fn newest_snapshot(dir: &Path) -> Result<Option<(u64, PathBuf)>> {
    let mut newest = None;
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some(generation) = name.strip_prefix(SNAPSHOT).and_then(|number| number.parse::<u64>().ok()) {
            newest = newest.max(Some((generation, path)));
        }
    }
    Ok(newest)
}

struct BfTreeStore {
    tree: Tree,
    dir: PathBuf,
    /// Number of the snapshot from which the tree was opened; 0 if there was none.
    generation: u64,
}

impl Drop for BfTreeStore {
    fn drop(&mut self) {
        self.tree.cpr_snapshot(self.dir.join(format!("{SNAPSHOT}{}", self.generation + 1)));
    }
}

impl Store for BfTreeStore {
    fn set_durability(&mut self, durability: Durability) -> Result<()> {
        check_durability(durability)
    }

    fn write(&self, work: Work<'_>) -> Result<()> {
        work(&mut BfTreeWriter { tree: &self.tree })
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(BfTreeReader { tree: &self.tree }))
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        BfTreeReader { tree: &self.tree }.get(key, visit)
    }
}

struct BfTreeWriter<'store> {
    tree: &'store Tree,
}

impl Writer for BfTreeWriter<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        match self.tree.insert(key, value) {
            LeafInsertResult::InvalidKV(why) => Err(Failure::Unsupported(why)),
            _ => Ok(()),
        }
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        self.tree.delete(key);
        Ok(())
    }
}

struct BfTreeReader<'store> {
    tree: &'store Tree,
}

impl BfTreeReader<'_> {
    /// Walks up to `limit` records. `visit` gets the requested bytes, and how many of them are the key.
    fn walk(
        &mut self,
        from: &[u8],
        limit: u64,
        field: ScanReturnField,
        mut visit: impl FnMut(&[u8], usize),
    ) -> Result<u64> {
        // It accepts no empty key. Every stored key is after this one.
        let from = if from.is_empty() { &[0] } else { from };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut records = self
            .tree
            .scan_with_count(from, limit, field)
            .map_err(|error| Failure::Engine(format!("{error:?}")))?;
        BUFFER.with_borrow_mut(|buffer| {
            let mut seen = 0;
            while let Some((key_bytes, value_bytes)) = records.next(&mut buffer[..]) {
                visit(&buffer[..key_bytes + value_bytes], key_bytes);
                seen += 1;
            }
            Ok(seen)
        })
    }
}

impl Reader for BfTreeReader<'_> {
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        BUFFER.with_borrow_mut(|buffer| match self.tree.read(key, &mut buffer[..]) {
            LeafReadResult::Found(bytes) => {
                visit(&buffer[..bytes as usize]);
                Ok(true)
            }
            LeafReadResult::NotFound | LeafReadResult::Deleted => Ok(false),
            LeafReadResult::InvalidKey => Err(Failure::engine("a key that Bf-Tree does not take")),
        })
    }

    fn range(&mut self, from: &[u8], limit: u64, visit: VisitItem<'_>) -> Result<u64> {
        self.walk(from, limit, ScanReturnField::KeyAndValue, |record, key_bytes| {
            let (key, value) = record.split_at(key_bytes);
            visit(key, value);
        })
    }

    fn keys(&mut self, from: &[u8], limit: u64, visit: &mut dyn FnMut(&[u8])) -> Result<u64> {
        self.walk(from, limit, ScanReturnField::Key, |record, key_bytes| visit(&record[..key_bytes]))
    }

    fn len(&mut self) -> Result<u64> {
        self.walk(&[], u64::MAX, ScanReturnField::Key, |_, _| ())
    }
}
