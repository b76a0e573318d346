//! LMDB through heed, set up as redb's own benchmark sets it up.
//!
//! ```text
//! Store::write -> mdb_txn_begin .. mdb_put .. mdb_txn_commit (fdatasync, then the meta page with O_DSYNC)
//! Reader       -> one MDB_RDONLY transaction; values are lent from the map
//! ```
//!
//! Reader and writer transactions end before the environment is closed, replaced or has its flags changed:
//! `compact` and `set_durability` take `&mut self`, readers borrow `&self`.
#![expect(unsafe_code, reason = "heed makes opening an environment and changing its sync flags unsafe")]

mod keyspaces;

use std::fs::File;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use heed::types::Bytes;
use heed::{
    CommitOrAbort, CompactionOption, Database, Env, EnvFlags, EnvOpenOptions, FlagSetMode, RoTxn, RwTxn,
    WithTls,
};

use esker_bench_api::{
    AsyncCommits, Durability, Engine, EngineOption, Failure, Isolation, Keyspaces, OpenOptions, Reached,
    Reader, Result, Store, TransactionKind, VisitItem, Writer, engine_options, store::Work, visit_some,
};

/// Address space of the map: more than any scale of any suite writes. It costs nothing until it is used.
const MAP_BYTES: usize = 64 << 30;

type Map = Database<'static, Bytes, Bytes>;

pub(crate) struct Lmdb;

impl Engine for Lmdb {
    fn name(&self) -> &'static str {
        "lmdb"
    }

    fn version(&self) -> String {
        let lmdb = heed::lmdb_version();
        format!("{}.{}.{} (heed {})", lmdb.major, lmdb.minor, lmdb.patch, env!("VERSION_HEED"))
    }

    fn options(&self) -> &'static [EngineOption] {
        engine_options! {
            "compression", "none", "LMDB has none", "its documentation names none";
            "map size", "64 GiB", "choose the map larger than the data will ever be; unused address space is free", "lmdb.h, mdb_env_set_mapsize";
            "MDB_MAXKEYSIZE", "0: as long as a page allows, 1,982 bytes", "suite `shapes` has keys of 1 KB; the default is 511 bytes", "mdb.c, MDB_MAXKEYSIZE; heed, feature longer-keys";
            "cache", "the page cache", "LMDB has no cache of its own; on a machine with less free memory than the cache size of the others this favours no engine", "lmdb.h, the introduction: no page caching layer of its own";
            "MDB_WRITEMAP", "off", "LMDB's documentation warns that stray writes then corrupt the file", "redb's lmdb_benchmark leaves it off; lmdb.h, MDB_WRITEMAP";
            "MDB_NORDAHEAD", "on where a suite is about to read at random in more data than memory holds, off for its scans and else", "helps random reads when the database is larger than memory, and only then", "lmdb.h, MDB_NORDAHEAD";
            "async commits", "MDB_NOMETASYNC", "its one mode that keeps the database sound after a power cut, which may undo the last commit; the meta page is written and not synced, the data before it still is, once a commit", "lmdb.h, MDB_NOMETASYNC; mdb.c, mdb_env_write_meta";
            "nosync commits", "MDB_NOSYNC", "switched on for those rows only; its commits then write the meta page through the handle without O_DSYNC", "redb's lmdb_benchmark";
            "compaction", "mdb_env_copy2 with MDB_CP_COMPACT", "LMDB's only compaction: copy, sync, rename over the data file, and reopen, which is a part of it and timed", "redb's lmdb_benchmark";
            "single gets", "a read transaction for each, begun and aborted", "mdb_txn_reset and mdb_txn_renew, which the header advises, save the allocation of one and a part of its set-up (not measured). heed has neither, and keeps the handles to itself that calling them takes; the slot in the reader table stays with its thread all the same", "lmdb.h, mdb_txn_reset; heed, src/txn.rs";
            "size", "data.mdb and lock.mdb", "the files as they stand in the directory", "lmdb.h, mdb_env_open: the directory in which the database files reside";
            "keyspaces", "named databases, mdb_env_set_maxdbs as many; mdb_drop, all in one transaction", "its own; their handles are opened once, as lmdb.h has it, which warns of huge numbers: 7 to 120 words a transaction each, and a search of all at each opening", "lmdb.h, mdb_env_set_maxdbs, mdb_dbi_open and mdb_drop";
        }
    }

    fn async_commits(&self) -> Option<AsyncCommits> {
        Some(AsyncCommits {
            reached: Reached::System,
            then: "its data is on the device already, since each commit syncs it; its meta page follows with the next commit",
            pointer: "lmdb.h, MDB_NOMETASYNC; mdb.c, mdb_env_write_meta",
        })
    }

    fn syncs_unasked(&self) -> Option<&'static str> {
        Some(
            "MDB_NOMETASYNC syncs the data of each commit, and leaves out the sync of the meta page only (lmdb.h)",
        )
    }

    /// One writer at a time, on the newest state.
    fn isolation(&self) -> Isolation {
        Isolation::Serializable
    }

    fn open(&self, dir: &Path, options: &OpenOptions) -> Result<Box<dyn Store>> {
        Ok(Box::new(LmdbStore::new(dir, options)?))
    }

    fn open_keyspaces(&self, dir: &Path, options: &OpenOptions, count: u32) -> Result<Box<dyn Keyspaces>> {
        keyspaces::open(dir, options, count)
    }

    fn transaction_kinds(&self) -> &'static [TransactionKind] {
        &[TransactionKind::OneWriter]
    }
}

/// Opens an environment with room for `named` named databases.
fn open_env(dir: &Path, no_read_ahead: bool, named: u32) -> Result<Env> {
    let flags = if no_read_ahead { EnvFlags::NO_READ_AHEAD } else { EnvFlags::empty() };
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP_BYTES).max_dbs(named);
    // SAFETY: the directory is this run's own; no other process or handle maps or changes its files. The flag
    // is advice to the kernel.
    unsafe { options.flags(flags).open(dir) }.map_err(Failure::engine)
}

/// Sets the flags of a mode, and clears those of the others. No other thread may use the environment
/// meanwhile.
fn set_flags(env: &Env, durability: Durability) -> Result<()> {
    for (flag, mode) in [(EnvFlags::NO_META_SYNC, Durability::Async), (EnvFlags::NO_SYNC, Durability::NoSync)]
    {
        let set = if mode == durability { FlagSetMode::Enable } else { FlagSetMode::Disable };
        // SAFETY: every caller has the store to itself, so no other thread is inside the environment. NO_SYNC
        // risks scratch data of this run only.
        unsafe { env.set_flags(flag, set) }?;
    }
    Ok(())
}

struct LmdbStore {
    dir: PathBuf,
    /// `None` only within `compact`, while the data file is being replaced.
    open: Option<Open>,
    no_read_ahead: bool,
    /// Mode of the next commits.
    durability: Durability,
}

struct Open {
    env: Env,
    map: Map,
}

impl Open {
    fn new(dir: &Path, no_read_ahead: bool) -> Result<Self> {
        let env = open_env(dir, no_read_ahead, 0)?;
        let txn = env.read_txn()?;
        // The unnamed map is always there: nothing is created, and nothing synced.
        let opened: heed::Result<CommitOrAbort<Option<Map>, ()>> = env
            .open_databases_and_commit(txn, |opener, txn| {
                opener.open_database(txn, None).map(CommitOrAbort::Commit)
            });
        let map = opened?.commit().flatten();
        let map = map.ok_or_else(|| Failure::engine("the unnamed map is not there"))?;
        Ok(Self { env, map })
    }

    fn reader(&self) -> Result<LmdbReader<'_>> {
        Ok(LmdbReader { txn: self.env.read_txn()?, map: self.map })
    }
}

impl LmdbStore {
    fn new(dir: &Path, options: &OpenOptions) -> Result<Self> {
        let no_read_ahead = options.random_beyond_memory;
        let open = Some(Open::new(dir, no_read_ahead)?);
        let store = Self { dir: dir.to_path_buf(), open, no_read_ahead, durability: options.durability };
        set_flags(&store.open()?.env, options.durability)?;
        Ok(store)
    }

    fn open(&self) -> Result<&Open> {
        self.open.as_ref().ok_or_else(|| Failure::engine("closed by a compaction that failed"))
    }
}

impl Store for LmdbStore {
    fn set_durability(&mut self, durability: Durability) -> Result<()> {
        set_flags(&self.open()?.env, durability)?;
        self.durability = durability;
        // In both other modes: MDB_NOMETASYNC leaves the last meta page to the sync of the next commit.
        if durability == Durability::Sync {
            self.open()?.env.force_sync().map_err(Failure::engine)
        } else {
            Ok(())
        }
    }

    fn write(&self, work: Work<'_>) -> Result<()> {
        let open = self.open()?;
        let mut writer = LmdbWriter { txn: open.env.write_txn()?, map: open.map };
        work(&mut writer)?;
        writer.txn.commit().map_err(Failure::engine)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(self.open()?.reader()?))
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.open()?.reader()?.get(key, visit)
    }

    fn compact(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else { return self.open().map(|_| ()) };
        let compacted = self.dir.join("compacted.mdb");
        let mut file = File::create_new(&compacted)?;
        open.env.copy_to_file(&mut file, CompactionOption::Enabled)?;
        file.sync_all()?;
        open.env.prepare_for_closing().wait();
        std::fs::rename(&compacted, self.dir.join("data.mdb"))?;
        self.open = Some(Open::new(&self.dir, self.no_read_ahead)?);
        set_flags(&self.open()?.env, self.durability)
    }
}

struct LmdbWriter<'env> {
    txn: RwTxn<'env>,
    map: Map,
}

impl Writer for LmdbWriter<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.map.put(&mut self.txn, key, value).map_err(Failure::engine)
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        self.map.delete(&mut self.txn, key).map(|_| ()).map_err(Failure::engine)
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.map.get(&self.txn, key)?;
        Ok(value.map(visit).is_some())
    }
}

struct LmdbReader<'env> {
    txn: RoTxn<'env, WithTls>,
    map: Map,
}

impl Reader for LmdbReader<'_> {
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.map.get(&self.txn, key)?;
        Ok(value.map(visit).is_some())
    }

    fn range(&mut self, from: &[u8], limit: u64, visit: VisitItem<'_>) -> Result<u64> {
        // LMDB has no empty keys and refuses to search for one.
        let start = if from.is_empty() { Bound::Unbounded } else { Bound::Included(from) };
        let bounds = (start, Bound::Unbounded);
        let items = self.map.range(&self.txn, &bounds)?;
        visit_some(items, limit, |(key, value)| visit(key, value))
    }

    fn len(&mut self) -> Result<u64> {
        self.map.len(&self.txn).map_err(Failure::engine)
    }
}
