//! libmdbx through signet-libmdbx: LMDB's descendant, set up as LMDB is.
//!
//! ```text
//! Store::write -> mdbx_txn_begin .. mdbx_put .. mdbx_txn_commit (data, meta page, one fdatasync or two)
//! Reader       -> one read-only transaction, kept, reset and renewed (parked); values are lent from the map
//! Store::get   -> the same for one read
//! ```
//!
//! This binding needs no libclang to build. libmdbx is the version that it bundles.
//!
//! - Readers and writers end before the environment is closed or replaced: `compact` and `set_durability`
//!   take `&mut self`, readers borrow `&self`.
//! - A change of the durability opens the environment again. mdbx chooses the handle for its meta page when
//!   it opens (O_DSYNC in the durable mode), and keeps it when the flag changes later.
#![expect(unsafe_code, reason = "the binding leaves compacting to mdbx's own function")]

mod keyspaces;
mod parked;

use std::borrow::Cow;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use signet_libmdbx::ffi::{MDBX_CP_COMPACT, MDBX_SUCCESS, mdbx_env_copy};
use signet_libmdbx::tx::aliases::RwTxUnsync;
use signet_libmdbx::{Database, Environment, EnvironmentFlags, Geometry, Mode, SyncMode, WriteFlags};

use self::parked::{Lent, Parked};
use esker_bench_api::{
    AsyncCommits, Durability, Engine, EngineOption, Failure, Isolation, Keyspaces, OpenOptions, Reached,
    Reader, Result, Store, TransactionKind, VisitItem, Writer, engine_options, store::Work,
};

/// Upper bound of the map: more than any scale of any suite writes. The file grows with the data.
const MAP_BYTES: usize = 64 << 30;
/// Step by which the file grows: the default of mdbx.
const GROWTH_STEP_BYTES: isize = 16 << 20;
/// Number of unsynced bytes from which on an async commit syncs.
const SYNC_BYTES: usize = 64 << 20;
const DATA_FILE: &str = "mdbx.dat";

pub(crate) struct Libmdbx;

impl Engine for Libmdbx {
    fn name(&self) -> &'static str {
        "libmdbx"
    }

    fn version(&self) -> String {
        let bundled = signet_libmdbx_version();
        format!("{bundled} (signet-libmdbx {})", env!("VERSION_SIGNET_LIBMDBX"))
    }

    fn options(&self) -> &'static [EngineOption] {
        engine_options! {
            "compression", "none", "mdbx has none", "its documentation names none";
            "geometry, upper size", "64 GiB", "the bound of the map; the file itself grows in steps as data comes", "mdbx.h, mdbx_env_set_geometry";
            "geometry, growth step and shrink threshold", "16 MiB, 32 MiB", "what mdbx takes when all is left to it; with a lower size of 0, which the binding's range asks for, it would derive 1 MiB and 2 MiB", "libmdbx, mdbx.c, mdbx_env_set_geometry, where growth_step is less than 0";
            "cache", "the page cache", "mdbx has no cache of its own", "libmdbx README, section on differences from other storages";
            "MDBX_WRITEMAP", "off", "the default, as for LMDB; it also forgoes protection against stray writes", "mdbx.h, MDBX_WRITEMAP";
            "MDBX_LIFORECLAIM", "on", "reuses the pages that were freed last, so that few are written over and over: faster on disks with a write-back cache, by its authors' word", "mdbx.h, MDBX_LIFORECLAIM";
            "MDBX_NORDAHEAD", "on where a suite is about to read at random in more data than memory holds, off for its scans and else", "helps random reads when the database is larger than memory, and only then; off, mdbx itself decides whenever the file's size changes, by the memory that the machine has left, and knows no limit of a control group", "mdbx.h, MDBX_NORDAHEAD";
            "MDBX_NOSTICKYTHREADS", "on", "the binding always sets it: a transaction is not tied to a thread, and beginning a read transaction takes the lock of the reader table", "signet-libmdbx, src/flags.rs; mdbx.c, mvcc_bind_slot";
            "transactions", "unsynchronised", "up to 3 times faster than the binding's thread-safe ones; one thread uses each here", "signet-libmdbx README, Differences from reth-libmdbx";
            "transactions that read", "kept: mdbx_txn_reset, mdbx_txn_renew; each with one cursor, mdbx_cursor_bind", "saves beginning one for each get, range or snapshot: its memory, and the lock of the reader table, for which all threads that read wait; and the memory of a cursor for each walk", "mdbx.h, mdbx_txn_reset and mdbx_cursor_renew";
            "key-only walks", "mdbx_cursor_get without a place for the value", "with one, which the binding always gives, mdbx looks into the first page of each value that lies outside its leaf; LMDB computes where it is", "libmdbx, mdbx.c, cursor_bring and node_read_bigdata";
            "async commits", "MDBX_SAFE_NOSYNC, MDBX_opt_sync_bytes of 64 MiB", "a power cut rolls back to the last steady commit and breaks nothing; without the threshold a commit that finds no free page in the file as it stands makes a steady one first, which syncs, and most do", "mdbx.h, MDBX_SAFE_NOSYNC and MDBX_opt_sync_bytes; mdbx.c, gc_alloc_ex";
            "nosync commits", "MDBX_UTTERLY_NOSYNC", "its fastest mode; sound when only the process dies, switched on for those rows only", "mdbx.h, MDBX_UTTERLY_NOSYNC";
            "change of mode", "sync, close, open in the new mode", "mdbx_env_set_flags keeps the O_DSYNC handle of the meta page, through which every commit would sync", "libmdbx, mdbx.c, where fd4meta is set; mdbx.h, mdbx_env_set_flags";
            "compaction", "mdbx_env_copy with MDBX_CP_COMPACT", "its only full compaction: copy, rename over the data file, and reopen, which is a part of it and timed, as for LMDB", "mdbx.h, mdbx_env_copy";
            "keyspaces", "named tables, MDBX_opt_max_db as many; mdbx_drop, all in one transaction", "its own; their handles are opened once, as for LMDB; mdbx.h has the same warning of huge numbers, and allows 32,765", "mdbx.h, MDBX_opt_max_db, mdbx_env_set_maxdbs, mdbx_dbi_open and mdbx_drop";
        }
    }

    fn async_commits(&self) -> Option<AsyncCommits> {
        Some(AsyncCommits {
            reached: Reached::System,
            then: "synced by the commit with which 64 MiB are reached",
            pointer: "mdbx.h, MDBX_SAFE_NOSYNC and MDBX_opt_sync_bytes",
        })
    }

    fn isolation(&self) -> Isolation {
        Isolation::Serializable
    }

    fn open(&self, dir: &Path, options: &OpenOptions) -> Result<Box<dyn Store>> {
        Ok(Box::new(LibmdbxStore::new(dir, options)?))
    }

    fn open_keyspaces(&self, dir: &Path, options: &OpenOptions, count: u32) -> Result<Box<dyn Keyspaces>> {
        keyspaces::open(dir, options, count)
    }

    fn transaction_kinds(&self) -> &'static [TransactionKind] {
        &[TransactionKind::OneWriter]
    }
}

/// Returns the version of the C library in the binding.
fn signet_libmdbx_version() -> String {
    // SAFETY: a constant of the linked library, written before `main` and never after.
    let version = unsafe { &signet_libmdbx::ffi::mdbx_version };
    format!("{}.{}.{}", version.major, version.minor, version.patch)
}

fn sync_mode(durability: Durability) -> SyncMode {
    match durability {
        Durability::Sync => SyncMode::Durable,
        Durability::Async => SyncMode::SafeNoSync,
        Durability::NoSync => SyncMode::UtterlyNoSync,
    }
}

/// Settings with which an environment is opened.
#[derive(Clone, Copy)]
struct Settings {
    /// A change of the mode opens the environment again.
    mode: SyncMode,
    no_rdahead: bool,
}

impl Settings {
    fn new(options: &OpenOptions) -> Self {
        Self { mode: sync_mode(options.durability), no_rdahead: options.random_beyond_memory }
    }

    /// Opens an environment with room for `named` named tables.
    fn open(self, dir: &Path, named: u32) -> Result<Environment> {
        let Self { mode: sync_mode, no_rdahead } = self;
        let mut builder = Environment::builder();
        builder.set_geometry(Geometry {
            size: Some(0..MAP_BYTES),
            growth_step: Some(GROWTH_STEP_BYTES),
            shrink_threshold: Some(2 * GROWTH_STEP_BYTES),
            ..Geometry::default()
        });
        builder.set_flags(EnvironmentFlags {
            no_rdahead,
            liforeclaim: true,
            ..Mode::ReadWrite { sync_mode }.into()
        });
        if sync_mode == SyncMode::SafeNoSync {
            builder.set_sync_bytes(SYNC_BYTES);
        }
        if named > 0 {
            builder.set_max_dbs(named as usize);
        }
        builder.open(dir).map_err(Failure::engine)
    }
}

struct LibmdbxStore {
    dir: PathBuf,
    /// `None` only while it is closed and opened again.
    open: Option<Open>,
    /// Settings of `open`.
    settings: Settings,
}

struct Open {
    parked: Parked,
    env: Environment,
    map: Database,
}

impl Open {
    fn new(dir: &Path, settings: Settings) -> Result<Self> {
        let env = settings.open(dir, 0)?;
        // The unnamed map is always there: nothing is created, and nothing committed.
        let map = env.begin_ro_unsync().and_then(|txn| txn.open_db(None))?;
        Ok(Self { parked: Parked::new(env.clone()), env, map })
    }

    fn reader(&self) -> Result<LibmdbxReader<'_>> {
        Ok(LibmdbxReader { txn: self.parked.lend()?, map: self.map })
    }
}

fn checked(code: i32) -> Result<()> {
    if code == MDBX_SUCCESS {
        Ok(())
    } else {
        Err(Failure::engine(signet_libmdbx::MdbxError::from_err_code(code)))
    }
}

impl LibmdbxStore {
    fn new(dir: &Path, options: &OpenOptions) -> Result<Self> {
        let settings = Settings::new(options);
        let open = Some(Open::new(dir, settings)?);
        Ok(Self { dir: dir.to_path_buf(), open, settings })
    }

    fn open(&self) -> Result<&Open> {
        self.open.as_ref().ok_or_else(|| Failure::engine("closed, and could not be opened again"))
    }
}

impl Store for LibmdbxStore {
    fn set_durability(&mut self, durability: Durability) -> Result<()> {
        let mode = sync_mode(durability);
        if mode != self.settings.mode {
            // Commits of the mode that ends become durable.
            self.open()?.env.sync(true)?;
            self.open = None;
            self.settings.mode = mode;
            self.open = Some(Open::new(&self.dir, self.settings)?);
        }
        Ok(())
    }

    fn write(&self, work: Work<'_>) -> Result<()> {
        let open = self.open()?;
        let txn = open.env.begin_rw_unsync()?;
        let mut writer = LibmdbxWriter { txn, map: open.map };
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
        let compacted = self.dir.join("compacted.dat");
        let path = CString::new(compacted.as_os_str().as_bytes())?;
        let code = open.env.with_raw_env_ptr(|env| {
            // SAFETY: the environment is open and `path` ends with a zero byte.
            unsafe { mdbx_env_copy(env, path.as_ptr(), MDBX_CP_COMPACT) }
        });
        checked(code)?;
        drop(open);
        std::fs::rename(&compacted, self.dir.join(DATA_FILE))?;
        self.open = Some(Open::new(&self.dir, self.settings)?);
        Ok(())
    }

    fn sync_count(&self) -> Option<u64> {
        let info = self.open.as_ref()?.env.info().ok()?;
        Some(info.page_ops().fsync + info.page_ops().msync)
    }
}

struct LibmdbxWriter {
    txn: RwTxUnsync,
    map: Database,
}

impl Writer for LibmdbxWriter {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.txn.put(self.map, key, value, WriteFlags::UPSERT).map_err(Failure::engine)
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        self.txn.del(self.map, key, None).map(|_| ()).map_err(Failure::engine)
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value: Option<Cow<'_, [u8]>> = self.txn.get(self.map.dbi(), key)?;
        Ok(value.map(|value| visit(&value)).is_some())
    }
}

struct LibmdbxReader<'store> {
    txn: Lent<'store>,
    map: Database,
}

impl Reader for LibmdbxReader<'_> {
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.txn.get(self.map.dbi(), key, visit)
    }

    fn range(&mut self, from: &[u8], limit: u64, visit: VisitItem<'_>) -> Result<u64> {
        self.txn.range(self.map.dbi(), from, limit, visit)
    }

    fn keys(&mut self, from: &[u8], limit: u64, visit: &mut dyn FnMut(&[u8])) -> Result<u64> {
        self.txn.keys(self.map.dbi(), from, limit, visit)
    }

    fn len(&mut self) -> Result<u64> {
        self.txn.len(self.map.dbi())
    }
}
