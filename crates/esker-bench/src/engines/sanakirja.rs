//! sanakirja, as redb's benchmark used it in the past.
//!
//! ```text
//! Store::write -> mut_txn_begin, one B tree of byte slices, commit (msync of the pages, then of the root)
//! Reader       -> txn_begin; keys and values are lent from the map
//! ```
//!
//! - A tree of sanakirja holds pairs, and a key may have several values. A map has one, so `put` deletes the
//!   key first.
//! - Its byte slices hold at most 510 bytes, which it asserts when it writes a page. The adapter refuses
//!   longer ones.
//! - It has one writer at a time. Its lock is a file lock, which excludes other processes but not other
//!   threads, so threads take turns here.
#![expect(unsafe_code, reason = "making a tree of slices is unsafe in sanakirja, and it does not say why")]

use std::path::Path;
use std::sync::Mutex;

use sanakirja::btree::{self, Db_, page_unsized};
use sanakirja::{Commit, Env, MutTxn, RootDb, Txn};

use esker_bench_api::{
    AsyncCommits, Durability, Engine, EngineOption, Failure, Feature, Isolation, OpenOptions, Reader, Result,
    Store, VisitItem, Writer, engine_options, store::Work, visit_some,
};

const FILE: &str = "data.sanakirja";
/// Length of the map and of its sparse file: more than any scale of any suite writes, so that there is one
/// map and it never grows.
const MAP_BYTES: u64 = 64 << 30;
const VERSIONS: usize = 2;
const ROOT: usize = 0;
/// Largest key or value that a page takes.
const SLICE_BYTES_MAX: usize = 510;

const NO_OTHER_MODE: &str = "sanakirja syncs every commit; it has no other mode";
const NO_COMPACTION: &str = "sanakirja has no compaction, and its file never shrinks";
const TOO_LARGE: &str = "sanakirja keeps at most 510 bytes in a key or a value of a tree of byte slices";

type Tree = Db_<[u8], [u8], page_unsized::Page<[u8], [u8]>>;

pub(crate) struct Sanakirja;

impl Engine for Sanakirja {
    fn name(&self) -> &'static str {
        "sanakirja"
    }

    fn version(&self) -> String {
        env!("VERSION_SANAKIRJA").to_owned()
    }

    fn options(&self) -> &'static [EngineOption] {
        engine_options! {
            "compression", "none", "sanakirja has none", "its documentation names none";
            "version", "1.4", "the newest release; 2.0 is in beta", "its page in the registry";
            "Env::new, length", "64 GiB", "larger than the data will ever be, as LMDB's and mdbx's map: the file is sparse; a shorter one grows by maps, each twice as long as the last, and a commit then syncs them all one by one", "redb's lmdb_benchmark opened it with 4 GiB while it had it; sanakirja, src/environment/muttxn.rs, commit";
            "Env::new, n_roots", "2", "versions that may be alive at once: a reader and a writer do not wait for each other", "the same example; redb's lmdb_benchmark up to the change that removed sanakirja";
            "cache", "the page cache", "it maps its file and has no cache of its own", "documentation of the crate";
            "writers", "a mutex", "its own lock keeps processes apart and not threads: without this, two at once ruin the tree", "sanakirja, src/environment/muttxn.rs, mut_txn_begin";
            "put", "btree::del, then btree::put", "its trees keep several values for a key, and a map must not", "docs of btree::put";
            "keyspaces", "prefixes of keys: 4 bytes in front of each", "the page of a version's roots has room for 508 trees; a tree that holds the roots of more is left to the program", "sanakirja, src/environment/muttxn.rs, set_root and root_page_mut";
        }
    }

    fn async_commits(&self) -> Option<AsyncCommits> {
        None
    }

    fn isolation(&self) -> Isolation {
        Isolation::Serializable
    }

    fn cannot(&self, feature: Feature) -> Option<&'static str> {
        match feature {
            Feature::AsyncCommits | Feature::NoSyncCommits => Some(NO_OTHER_MODE),
            Feature::LargeValues => Some(TOO_LARGE),
            Feature::Compaction => Some(NO_COMPACTION),
            _ => None,
        }
    }

    fn open(&self, dir: &Path, options: &OpenOptions) -> Result<Box<dyn Store>> {
        if options.durability != Durability::Sync {
            return Err(Failure::Unsupported(NO_OTHER_MODE.to_owned()));
        }
        let env = Env::new(dir.join(FILE), MAP_BYTES, VERSIONS)?;
        create_tree(&env)?;
        Ok(Box::new(SanakirjaStore { env, turn: Mutex::new(()) }))
    }
}

/// Creates the tree if it does not exist.
fn create_tree(env: &Env) -> Result<()> {
    let mut txn = Env::mut_txn_begin(env)?;
    if txn.root(ROOT).is_some_and(|root| root != 0) {
        return Ok(());
    }
    // SAFETY: sanakirja documents no condition. The types are those of every later `root_db` of ROOT.
    let tree: Tree = unsafe { btree::create_db_(&mut txn) }?;
    txn.set_root(ROOT, tree.db.into());
    txn.commit().map_err(Failure::engine)
}

struct SanakirjaStore {
    env: Env,
    /// Held by the one transaction that writes.
    turn: Mutex<()>,
}

impl SanakirjaStore {
    fn reads(&self) -> Result<SanakirjaReader<'_>> {
        let txn = Env::txn_begin(&self.env)?;
        let tree: Tree = txn.root_db(ROOT).ok_or_else(no_tree)?;
        Ok(SanakirjaReader { txn, tree })
    }
}

fn no_tree() -> Failure {
    Failure::engine("the tree is not there")
}

impl Store for SanakirjaStore {
    fn set_durability(&mut self, durability: Durability) -> Result<()> {
        match durability {
            Durability::Sync => Ok(()),
            Durability::Async | Durability::NoSync => Err(Failure::Unsupported(NO_OTHER_MODE.to_owned())),
        }
    }

    fn write(&self, work: Work<'_>) -> Result<()> {
        let _turn =
            self.turn.lock().map_err(|_| Failure::engine("a transaction before this one panicked"))?;
        let txn = Env::mut_txn_begin(&self.env)?;
        let tree: Tree = txn.root_db(ROOT).ok_or_else(no_tree)?;
        let mut writer = SanakirjaWriter { txn, tree };
        work(&mut writer)?;
        writer.txn.set_root(ROOT, writer.tree.db.into());
        writer.txn.commit().map_err(Failure::engine)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(self.reads()?))
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.reads()?.get(key, visit)
    }
}

struct SanakirjaWriter<'env> {
    txn: MutTxn<&'env Env, ()>,
    tree: Tree,
}

impl Writer for SanakirjaWriter<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if key.len() > SLICE_BYTES_MAX || value.len() > SLICE_BYTES_MAX {
            return Err(Failure::Unsupported(TOO_LARGE.to_owned()));
        }
        self.remove(key)?;
        btree::put(&mut self.txn, &mut self.tree, key, value).map(|_| ()).map_err(Failure::engine)
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        btree::del(&mut self.txn, &mut self.tree, key, None).map(|_| ()).map_err(Failure::engine)
    }
}

struct SanakirjaReader<'env> {
    txn: Txn<&'env Env>,
    tree: Tree,
}

impl Reader for SanakirjaReader<'_> {
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let item = btree::get(&self.txn, &self.tree, key, None)?;
        // The first pair that is not before the key has the key itself or the next one.
        match item {
            Some((found, value)) if found == key => {
                visit(value);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn range(&mut self, from: &[u8], limit: u64, visit: VisitItem<'_>) -> Result<u64> {
        let start = (!from.is_empty()).then_some((from, None));
        let items = btree::iter(&self.txn, &self.tree, start)?;
        visit_some(items, limit, |(key, value)| visit(key, value))
    }

    fn len(&mut self) -> Result<u64> {
        let items = btree::iter(&self.txn, &self.tree, None)?;
        Ok(items.count() as u64)
    }
}
