//! Opening: from a directory to a running database.
//!
//! ```text
//!   LOCK --> CURRENT, MANIFEST --> tables opened --> WAL replayed into memtables --> catalog --> new MANIFEST --> WAL's torn tail
//!        cut, leftovers removed --> threads
//! ```
//!
//! open.1. Nothing on disk is changed before the manifest, the tables, the log and the catalog have been read and found sound; but the end of
//!      the log is written once more, as it is, to make it durable (recovery.4 of wal/recovery.rs).
//! open.2. Replaying puts each commit after `flushed_seq` into memtables as it was: same sequence number, all or nothing.
//! open.3. Only files that the engine itself names, and that the manifest does not need, are removed; and no table that holds commits
//!      that neither manifest nor log knows, or is of a newer format (unnamed.1, unnamed.2 of unnamed.rs).
//! open.4. Every message about damage says what can be done about it.
//! open.5. A directory that a repair has not finished filling is refused (unfinished.1 of unfinished.rs).
//! open.6. A leftover that cannot be removed is no reason to refuse the database, and keeps no other from being removed: the numbers of tables
//!      and manifests are not given out again (`first_number`), and what replaces a file writes over what was left under its temporary
//!      name. Not so those of the log that recovery.8 of wal/recovery.rs names.
//! open.7. The name of a new database's directory is durable before anything in it is.
//! open.8. The directory stays the same when the process changes its working directory, or a link on the way to it is turned elsewhere: its
//!      path is made absolute before it is used. And it is opened once (fs.5 of esker-env's fs.rs): if it is moved or replaced, the database
//!      goes on in the one that it has opened. No file in it is reached through a link.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use esker_env::{Env, FileLock};
use parking_lot::Mutex;

use super::blobs::{Tail, check_tail, new_blob_file, open_blobs};
use super::catalog::Catalog;
use super::core::Core;
use super::dir_lock::DirLock;
use super::handle::Handle;
use super::history;
use super::install::Tables;
use super::keyspace_options::{KeyspaceOptions, options_of};
use super::options::{Background, Modes, Options};
use super::pace::Pace;
use super::page_cache::PageCache;
use super::room::Room;
use super::stats::{Counters, add};
use super::unfinished;
use super::unnamed::refuse_needed;
use crate::blob::{BlobCache, BlobSet, BlobStore};
use crate::cache::{BudgetKind, MemoryBudget};
use crate::manifest::edit::{Adopted, VersionEdit};
use crate::manifest::file_name::{self, CURRENT, FileKind, LOCK, REPAIRING, manifest_name, table_path};
use crate::manifest::log::ManifestLog;
use crate::manifest::version::{Level, RunId, Version};
use crate::memtable::{Applier, Memtable};
use crate::read::operators::Operators;
use crate::read::view::ReadView;
use crate::read::view_cell::ViewCell;
use crate::sstable::{BlockCache, Table};
use crate::txn::blobs::sync_beside;
use crate::txn::commit::Pipeline;
use crate::txn::memtables::Sealed;
use crate::txn::snapshots::Published;
use crate::txn::{apply, payload};
use crate::types::bounds::Bounds;
use crate::types::key::{decode_key, encode_key, keyspace_end};
use crate::types::{Error, FileId, KeyspaceId, Result, SeqNo};
use crate::wal::{self, LogExtent, Recovered, WalPool, WalWriter};

/// How often the lock is tried by who waits for it.
const LOCK_RETRY: Duration = Duration::from_millis(10);

/// Opens or creates the database in `dir`.
pub(crate) fn open(options: Options, dir: &Path) -> Result<Arc<Handle>> {
    if dir.as_os_str().is_empty() {
        let text = "the path of the database is empty: name a directory; `.` is the working directory";
        return Err(Error::Invalid(text.to_owned()));
    }
    // open.8
    let dir = options.env().fs.absolute(dir).map_err(|e| cannot_open(options.env(), dir, e))?;
    let (env, lock) = wait_for_lock(&options, &dir)?;
    // open.5
    unfinished::refuse(&env, &dir)?;
    open_locked(options, env, &dir, lock)
}

/// Locks the directory, and waits for that as long as the options say.
fn wait_for_lock(options: &Options, dir: &Path) -> Result<(Env, Arc<dyn FileLock>)> {
    let clock = &options.env().clock;
    let start = clock.monotonic();
    loop {
        let left = options.lock_timeout().saturating_sub(clock.monotonic().saturating_sub(start));
        match lock_dir(options, dir) {
            Err(Error::Locked { .. }) if !left.is_zero() => clock.sleep(left.min(LOCK_RETRY)),
            locked => return locked,
        }
    }
}

/// The same in a directory that the caller has locked, also one that a repair fills.
pub(crate) fn open_locked(
    options: Options,
    env: Env,
    dir: &Path,
    lock: Arc<dyn FileLock>,
) -> Result<Arc<Handle>> {
    let lock = DirLock::new(lock, &env);
    // Tables that were opened may be there for a while.
    open_dir(options, env, dir, lock.clone()).inspect_err(|_| lock.give_back()).map_err(with_remedy)
}

/// open.4. Whoever finds the damage knows what is wrong; what helps is mostly the same.
fn with_remedy(error: Error) -> Error {
    match error {
        Error::Corrupt { what, path, offset, detail } if !detail.contains("esker repair") => {
            let detail = format!("{detail}; restore a backup or run `esker repair`");
            Error::corrupt(what, path, offset, detail)
        }
        other => other,
    }
}

fn open_dir(options: Options, env: Env, dir: &Path, lock: Arc<DirLock>) -> Result<Arc<Handle>> {
    let mut state = read_manifest(&env, &options, dir)?;
    pay_debts(&mut state, dir)?;
    let cache = BlockCache::new(MemoryBudget::new(options.memory()));
    let version = open_tables(&env, dir, &state, &cache)?;
    let replayed = replay(&env, dir, &options, &state, version.blobs())?;
    refuse_needed(&env, dir, &state.added, replayed.last_seq)?;
    let manifest_id = first_number(&env, dir, &state)?;
    let published = Published::new(replayed.last_seq, replayed.counts);
    let closed = Arc::<AtomicBool>::default();
    let operators = Arc::new(Operators::new(options.operators().clone()));
    let view = ReadView {
        active: replayed.active,
        immutables: replayed.sealed.iter().rev().map(|s| s.memtable.clone()).collect(),
        version: Arc::new(version),
        closed: closed.clone(),
        known: Arc::default(),
        operators: operators.clone(),
    };
    if view.unresolved() > 0 {
        published.note_owing();
    }
    let view = Arc::new(ViewCell::new(view, env.clock.clone()));
    let (catalog, keyspace_options) = load_catalog(&view.get(), &published, dir)?;
    if !options.may_lack_operators() {
        check_operators(&catalog, &keyspace_options, &operators)?;
    }

    // From here on the directory is changed (open.1).
    let state = VersionEdit { next_file: Some(manifest_id.next()), ..state };
    let next_run = state.next_run.map_or(1, |run| run.0);
    let wal_from = state.log_extent().from;
    let log = &replayed.log;
    let database_id = state.database_id.unwrap_or_else(|| draw_database_id(&env));
    let state = VersionEdit {
        wal_named: log.named_to(),
        // What was replayed is durable.
        durable_seq: Some(replayed.last_seq),
        database_id: Some(database_id),
        ..state
    };
    let kept = keyspace_options.iter().map(|(id, options)| (id, &options.history));
    let (marks, floors) = history::recovered(&env, &state, kept, replayed.last_seq);
    let state = VersionEdit { marks, floors: floors.clone(), ..state };
    let manifest = ManifestLog::create(&env, dir, manifest_id, state)?;
    let manifest = manifest.replaced_from(options.manifest_bytes_min());
    let tables = Tables::new(manifest, manifest_id.next(), RunId(next_run));
    log.finish(&env, dir)?;
    // recovery.8: the writer removes, when it can, what cannot be removed now.
    let mut of_earlier = wal::remove_obsolete(&env, dir, wal_from)?;
    of_earlier.extend(&log.segments);
    wal::remove_unused(&env, dir)?;
    let new_blob_file = new_blob_file(env.clone(), dir.to_path_buf(), &tables, view.clone());
    let blobs = BlobStore::new(env.clone(), options.blob_store(), cache.budget().clone(), new_blob_file);
    for (_, source) in view.get().version.blobs().iter() {
        source.file.note_commit(replayed.last_seq);
    }
    let wal_pool = WalPool::new(
        env.clone(),
        dir.to_path_buf(),
        options.wal_options(database_id),
        tables.register_segments().syncing_beside(sync_beside(blobs.clone(), options.has_threads())),
    )?;
    let mut wal = WalWriter::create(wal_pool.clone(), log.next_segment, &of_earlier)?;
    for adopted in &replayed.unlogged {
        wal.append(adopted.seq, &[&payload::encode_header(&adopted.deltas)])?;
    }
    let torn_bytes = log.trimmed_bytes;
    remove_leftovers(&env, dir, &view.get().version, manifest_id)?;
    options.save(&env, dir)?;

    let pipeline = Pipeline::new(
        wal,
        view.clone(),
        published.clone(),
        replayed.applier,
        replayed.sealed,
        options.memtable_bytes,
    );
    let core = Arc::new(Core {
        env,
        dir: dir.to_path_buf(),
        view,
        published,
        pipeline,
        blobs,
        catalog,
        operators,
        histories: Default::default(),
        tables,
        memtable_memory: Mutex::new(cache.budget().reserve(BudgetKind::Memtable, 0)),
        cache,
        wal_pool,
        turns: Default::default(),
        signal: Default::default(),
        throttle: Default::default(),
        trouble: Default::default(),
        read_cost: Default::default(),
        rest: Default::default(),
        room: Room::new(&options),
        page_cache: PageCache::default(),
        pace: Pace::default(),
        counters: Counters::default(),
        watch: Default::default(),
        closed,
        right_of_way: Default::default(),
        locks: Default::default(),
        committer: Default::default(),
        decisions: Default::default(),
        lock,
        options,
    });
    keyspace_options.into_iter().for_each(|(id, options)| core.take_options(id, None, options));
    core.histories.raise(&floors);
    add(&core.counters.recovered_commits, replayed.commits);
    core.counters.recovered_torn_bytes.store(torn_bytes, Ordering::Relaxed);
    core.account_room();
    core.account_page_cache();
    core.seal_long_log()?;
    let threads = match core.options.background() {
        Background::Threads => core.start_threads()?,
        Background::Writers | Background::Steps => Vec::new(),
    };
    Ok(Handle::new(core, threads))
}

/// Nobody reads yet: what is owed is taken from the counts.
fn pay_debts(state: &mut VersionEdit, dir: &Path) -> Result<()> {
    state.pay_debts().map_err(|detail| Error::corrupt("manifest", dir.join(CURRENT), 0, detail))
}

/// A number by which the files of this database are told from those of others; not 0.
fn draw_database_id(env: &Env) -> u32 {
    (env.random.next_u64() as u32).max(1)
}

fn lock_dir(options: &Options, dir: &Path) -> Result<(Env, Arc<dyn FileLock>)> {
    let env = options.env();
    let exists = |path: &Path| env.fs.exists(path).map_err(|e| cannot_open(env, dir, e));
    if !options.create_if_missing() && !exists(&dir.join(CURRENT))? {
        // With data there is a database that has lost its CURRENT: `read_manifest` says so. Or one of which no more was made.
        let has_data = exists(dir)? && list(env, dir)?.iter().any(|name| is_data(name) || name == REPAIRING);
        if !has_data {
            return Err(Error::NotFound(dir.to_path_buf()));
        }
    }
    create_and_lock(env, dir, options.modes())
}

/// Makes the directory if it is missing, opens it (open.8), and keeps all others out of it.
pub(crate) fn create_and_lock(
    env: &Env,
    dir: &Path,
    modes: Option<Modes>,
) -> Result<(Env, Arc<dyn FileLock>)> {
    let io = |e| cannot_open(env, dir, e);
    match modes {
        Some(modes) => env.fs.create_dir_all_as(dir, modes.dir).map_err(io)?,
        None => env.fs.create_dir_all(dir).map_err(io)?,
    }
    let env = env.hold(dir, modes.map(|modes| modes.files)).map_err(io)?;
    let path = dir.join(LOCK);
    let lock = env.fs.lock(&path).map_err(|e| Error::lock(path, e, env.threads.process_id()))?;
    Ok((env, lock.into()))
}

/// Why the directory is not opened: the system says of a file that it exists, or that it is no directory.
fn cannot_open(env: &Env, dir: &Path, error: std::io::Error) -> Error {
    use std::io::ErrorKind::{AlreadyExists, NotADirectory};
    if !matches!(error.kind(), AlreadyExists | NotADirectory) {
        return Error::io("open", dir, error);
    }
    let is = match env.fs.exists(dir) {
        Ok(true) => "is a file, not a directory: a database is a directory",
        Ok(false) => "is a link that leads nowhere, or lies behind one",
        Err(_) => "lies in a file, not in a directory",
    };
    Error::Invalid(format!("{} {is}", dir.display()))
}

/// What the manifest says; a new database's is empty.
fn read_manifest(env: &Env, options: &Options, dir: &Path) -> Result<VersionEdit> {
    match ManifestLog::recover(env, dir)? {
        Some(_) if options.error_if_exists() => {
            Err(Error::Invalid(format!("there is a database in {} already", dir.display())))
        }
        Some((_, state)) => Ok(state),
        None => {
            let names = list(env, dir)?;
            if let Some(name) = names.iter().find(|name| is_data(name)) {
                let detail = format!(
                    "it is missing, but {name} is there: restore it from a backup or run `esker repair`"
                );
                return Err(Error::corrupt("CURRENT", dir.join(CURRENT), 0, detail));
            }
            sync_parent(env, dir)?;
            Ok(new_state(options.first_number()))
        }
    }
}

/// A database that holds nothing, and counts from this number on.
fn new_state(first: u64) -> VersionEdit {
    let wal_from = Some(first);
    if first == 1 {
        return VersionEdit { wal_from, ..VersionEdit::default() };
    }
    let (next_file, flushed_seq) = (Some(FileId::new(first)), Some(SeqNo::new(first - 1)));
    VersionEdit { wal_from, next_file, next_run: Some(RunId(first)), flushed_seq, ..VersionEdit::default() }
}

/// Whether a file of this name shows that there is a database. A new one writes CURRENT before its first log segment or table: a manifest
/// alone is one that was never finished.
pub(crate) fn is_data(name: &str) -> bool {
    matches!(file_name::parse(name), FileKind::Table(_) | FileKind::Blob(_))
        || wal::file_name::parse_segment(name).is_some()
}

/// A new database is no more durable than the name of its directory, which its owner may have made just now (open.7).
fn sync_parent(env: &Env, dir: &Path) -> Result<()> {
    let Some(above) = env.fs.dir_above(dir) else { return Ok(()) };
    env.fs.sync_dir_if_readable(&above).map_err(|e| Error::io("sync directory", &above, e))
}

fn list(env: &Env, dir: &Path) -> Result<Vec<String>> {
    env.fs.list_dir(dir).map_err(|e| Error::io("list", dir, e))
}

fn open_tables(env: &Env, dir: &Path, state: &VersionEdit, cache: &Arc<BlockCache>) -> Result<Version> {
    check_runs(state, dir)?;
    let mut opened = HashMap::new();
    for added in &state.added {
        let path = table_path(dir, added.file);
        if !env.fs.exists(&path).map_err(|e| Error::io("look for", &path, e))? {
            let detail = "the manifest names it, but it is missing: restore a backup or run `esker repair`";
            return Err(Error::corrupt("table", &path, 0, detail));
        }
        let table = Table::open_at(env, &path, cache, added.meta.base_seq)?;
        // Sequence numbers are given out once: of two tables that hold the same keys, only one is the right one.
        if table.meta() != added.meta {
            let detail = "it is not the table that the manifest describes, but perhaps another one's copy: restore a \
                          backup or run `esker repair`";
            return Err(Error::corrupt("table", &path, 0, detail));
        }
        opened.insert(added.file, table);
    }
    let blobs = open_blobs(env, dir, state)?.cached_in(BlobCache::new(cache.budget()));
    let version = Version::empty().with_blobs(blobs);
    let added = VersionEdit { added: state.added.clone(), ..VersionEdit::default() };
    Ok(version.apply(&added, opened))
}

/// What a version asserts, as a typed error: the manifest may be damaged in a way that its checksums missed.
fn check_runs(state: &VersionEdit, dir: &Path) -> Result<()> {
    let mut runs: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let mut files = BTreeSet::new();
    for added in &state.added {
        if !files.insert(added.file) {
            let detail = "the manifest names it twice: restore a backup or run `esker repair`";
            return Err(Error::corrupt("manifest", table_path(dir, added.file), 0, detail));
        }
        runs.entry((added.level, added.run.0)).or_default().push(added);
    }
    if let Some(second) = runs.iter().filter(|((level, _), _)| *level == Level::BASE).nth(1) {
        let detail = "it is of a second base run: restore a backup or run `esker repair`";
        return Err(Error::corrupt("manifest", table_path(dir, second.1[0].file), 0, detail));
    }
    for tables in runs.values_mut() {
        tables.sort_by(|a, b| a.meta.range.start.cmp(&b.meta.range.start));
        for pair in tables.windows(2) {
            if pair[0].meta.range.overlaps(&pair[1].meta.range) {
                let detail = format!("it overlaps table {} of the same run", pair[0].file);
                return Err(Error::corrupt("manifest", table_path(dir, pair[1].file), 0, detail));
            }
        }
    }
    Ok(())
}

/// What the log adds to the tables.
struct Replayed {
    active: Arc<Memtable>,
    applier: Applier,
    sealed: Vec<Sealed>,
    counts: BTreeMap<KeyspaceId, u64>,
    last_seq: SeqNo,
    commits: u64,
    log: Recovered,
    /// Adopted commits of which the log says nothing.
    unlogged: Vec<Adopted>,
}

fn replay(
    env: &Env,
    dir: &Path,
    options: &Options,
    state: &VersionEdit,
    blobs: &BlobSet,
) -> Result<Replayed> {
    let extent = state.log_extent();
    let flushed = state.flushed_seq.unwrap_or_default();
    let ends_before = check_tail(env, dir, extent, flushed, blobs, Tail::Store)?;
    let extent = LogExtent { ends_before, ..extent };
    replay_with(dir, options, state, extent, |extent, on_record| wal::recover(env, dir, extent, on_record))
}

/// What a reader of the database would see, found out without changing anything. Files that nothing names are not looked at.
pub(crate) fn look_into(env: &Env, dir: &Path, options: &Options, state: &VersionEdit) -> Result<Look> {
    let cache = BlockCache::new(MemoryBudget::new(options.memory()));
    let mut state = state.clone();
    pay_debts(&mut state, dir)?;
    let state = &state;
    let version = open_tables(env, dir, state, &cache)?;
    let extent = state.log_extent();
    let flushed = state.flushed_seq.unwrap_or_default();
    let extent = sound_extent(env, dir, extent, flushed, version.blobs())?;
    let verify = |extent, on_record: OnRecord<'_>| wal::verify(env, dir, extent, on_record);
    let replayed = replay_with(dir, options, state, extent, verify)?;
    let view = ReadView {
        active: replayed.active,
        immutables: replayed.sealed.iter().rev().map(|s| s.memtable.clone()).collect(),
        version: Arc::new(version),
        closed: Arc::default(),
        known: Arc::default(),
        operators: Arc::new(Operators::new(options.operators().clone())),
    };
    Ok(Look { view, counts: replayed.counts, last_seq: replayed.last_seq })
}

/// The log as an opening takes it: it ends before the first commit with a value that is torn (recovery.9).
pub(crate) fn sound_extent(
    env: &Env,
    dir: &Path,
    extent: LogExtent,
    flushed: SeqNo,
    blobs: &BlobSet,
) -> Result<LogExtent> {
    Ok(LogExtent { ends_before: check_tail(env, dir, extent, flushed, blobs, Tail::Look)?, ..extent })
}

/// See [`look_into`].
pub(crate) struct Look {
    pub(crate) view: ReadView,
    pub(crate) counts: BTreeMap<KeyspaceId, u64>,
    pub(crate) last_seq: SeqNo,
}

/// Takes a commit of the log.
type OnRecord<'a> = &'a mut dyn FnMut(SeqNo, Cow<'_, [u8]>) -> Result<(), String>;

/// Replays the log; `recover` reads it.
fn replay_with(
    dir: &Path,
    options: &Options,
    state: &VersionEdit,
    extent: LogExtent,
    recover: impl FnOnce(LogExtent, OnRecord<'_>) -> Result<Recovered>,
) -> Result<Replayed> {
    let flushed = state.flushed_seq.unwrap_or_default();
    let active = Arc::new(Memtable::new(options.memtable_bytes));
    let mut out = Replayed {
        applier: active.applier(),
        active,
        sealed: Vec::new(),
        counts: state.counts.iter().flatten().copied().collect(),
        last_seq: flushed,
        commits: 0,
        log: Recovered::default(),
        unlogged: Vec::new(),
    };
    out.log = recover(extent, &mut |seq, record| {
        if seq <= flushed {
            return Ok(());
        }
        if seq != out.last_seq.next() {
            return Err(format!("commit {seq} follows commit {}", out.last_seq));
        }
        let decoded = payload::decode(record);
        let (deltas, set) = decoded.map_err(|e| format!("commit {seq}, byte {}: {}", e.offset, e.detail))?;
        // adopt.4
        if set.is_empty() && state.adopted.iter().all(|adopted| adopted.seq != seq) {
            return Err(format!(
                "the writes of commit {seq} are in tables that the manifest does not name: it has lost its end"
            ));
        }
        if !out.active.is_empty() && out.active.bytes_used() >= options.memtable_bytes {
            // Its log is released with the last memtable's: which segment it ended in is not worth knowing.
            let memtable = Arc::new(Memtable::new(options.memtable_bytes));
            let applier = memtable.applier();
            let full = std::mem::replace(&mut out.active, memtable);
            out.applier = applier;
            let counts = out.counts.iter().map(|(&id, &n)| (id, n)).filter(|c| c.1 > 0).collect();
            out.sealed.push(Sealed { memtable: full, last_seq: out.last_seq, counts, wal_from: extent.from });
        }
        for (id, delta) in deltas {
            let count = out.counts.entry(id).or_default();
            let changed = count.checked_add_signed(delta);
            *count = changed.ok_or_else(|| format!("commit {seq}: keyspace {id} would count below zero"))?;
        }
        apply::apply(&set, &[], seq, &out.active, &mut out.applier);
        out.last_seq = seq;
        out.commits += 1;
        Ok(())
    })?;
    // adoption.3: what the log does not tell of them.
    let is_next = |last: SeqNo, adopted: &&Adopted| adopted.seq == last.next();
    while let Some(adopted) = state.adopted.iter().find(|adopted| is_next(out.last_seq, adopted)) {
        for &(id, delta) in &adopted.deltas {
            let count = out.counts.entry(id).or_default();
            let changed = count.checked_add_signed(delta);
            *count = changed.ok_or_else(|| {
                let detail = format!("commit {}: keyspace {id} would count below zero", adopted.seq);
                Error::corrupt("manifest", dir.join(CURRENT), 0, detail)
            })?;
        }
        out.last_seq = adopted.seq;
        out.unlogged.push(adopted.clone());
    }
    if let Some(lost) = state.adopted.iter().find(|adopted| adopted.seq > out.last_seq) {
        let detail =
            format!("commit {} was adopted behind commit {}, which is not there", lost.seq, out.last_seq);
        return Err(Error::corrupt("manifest", dir.join(CURRENT), 0, detail));
    }
    Ok(out)
}

/// The number of the first new file: behind those of all files, and behind all that the manifest says were given out. Refuses one that
/// leaves too few.
pub(crate) fn first_number(env: &Env, dir: &Path, state: &VersionEdit) -> Result<FileId> {
    let given = state.next_file.unwrap_or(FileId::new(1));
    if file_name::is_spent(given) {
        let detail = format!("the next file is to get number {given}, which no database comes to");
        return Err(Error::corrupt("manifest", dir.join(CURRENT), 0, detail));
    }
    let files = list(env, dir)?.into_iter().filter_map(|name| match file_name::parse(&name) {
        FileKind::Manifest(id) | FileKind::Table(id) | FileKind::Blob(id) => Some((id, name)),
        FileKind::Temporary | FileKind::Other => None,
    });
    match files.max() {
        Some((highest, name)) if file_name::is_too_far(highest, given) => {
            let detail = format!(
                "the manifest says that the next file gets number {given}, and new files would get larger ones than this: if it is \
                 not of this database move it away, else run `esker repair`"
            );
            Err(Error::corrupt("file name", dir.join(name), 0, detail))
        }
        Some((highest, _)) => Ok(highest.next().max(given)),
        None => Ok(given),
    }
}

/// Removes files of ours that nothing names any more (open.3), all that it can (open.6).
fn remove_leftovers(env: &Env, dir: &Path, version: &Version, manifest: FileId) -> Result<()> {
    for name in list(env, dir)? {
        let needed = match file_name::parse(&name) {
            FileKind::Manifest(id) => id == manifest && name == manifest_name(id),
            FileKind::Table(id) => version.tables().any(|(_, t)| t.file == id),
            FileKind::Blob(id) => version.blobs().iter().any(|(_, source)| source.file.id() == id),
            FileKind::Temporary => false,
            FileKind::Other => true,
        };
        if !needed {
            let _ = env.fs.remove_file(&dir.join(&name));
        }
    }
    Ok(())
}

/// Refuses a database that needs merge operators which are not registered.
fn check_operators(
    catalog: &Catalog,
    options: &[(KeyspaceId, KeyspaceOptions)],
    operators: &Operators,
) -> Result<()> {
    for (name, state) in catalog.all() {
        let of_it = options.iter().find(|(id, _)| *id == state.id);
        let operator = of_it.and_then(|(_, options)| options.merge_operator.clone());
        if let Some(operator) = operator.filter(|operator| !operators.knows(operator)) {
            return Err(Error::MergeOperatorMissing { keyspace: name, operator });
        }
    }
    Ok(())
}

fn load_catalog(
    view: &ReadView,
    published: &Arc<Published>,
    dir: &Path,
) -> Result<(Catalog, Vec<(KeyspaceId, KeyspaceOptions)>)> {
    let bounds = Bounds {
        lower: std::ops::Bound::Included(encode_key(KeyspaceId::CATALOG, &[])),
        upper: std::ops::Bound::Excluded(keyspace_end(KeyspaceId::CATALOG)),
    };
    let at = published.visible();
    let mut cursor = view.live(at, bounds);
    cursor.seek_first()?;
    let mut entries = Vec::new();
    while cursor.valid() {
        let (_, user_key) = decode_key(cursor.key()).expect("keyspace 0 holds encoded keys");
        entries.push(Ok((user_key.to_vec(), cursor.value()?.to_vec())));
        cursor.next()?;
    }
    let options = entries.iter().flatten().filter_map(|(key, value): &(Vec<u8>, Vec<u8>)| {
        Some((options_of(key)?, KeyspaceOptions::decode(value).ok()?))
    });
    let options = options.collect();
    let corrupt = |detail| Error::corrupt("keyspace catalog", dir, 0, detail);
    Ok((Catalog::load(published, entries.into_iter(), corrupt)?, options))
}

#[cfg(test)]
mod tests {
    use esker_env::{FaultAction, FaultFs, FaultRule, MemFs, OpKind};

    use super::*;
    use crate::Db;

    #[test]
    fn recovery_8_opening_passes_by_an_obsolete_log_segment_that_it_cannot_remove() {
        let faults = FaultFs::new(Arc::new(MemFs::new()));
        let env = Env::simulated(Arc::new(faults.clone()), 1);
        let dir = Path::new("db");
        let obsolete = wal::file_name::segment_path(dir, 1);
        let never = FaultAction::Fail(std::io::ErrorKind::PermissionDenied);
        let open = || Db::builder().stepped().env(env.clone()).open(dir).unwrap();
        let db = open();
        db.default_keyspace().put("a", "1").unwrap();
        faults.add(FaultRule::new(&[OpKind::Remove, OpKind::Rename], never).on_file(&obsolete).forever());
        for n in 2..5 {
            db.flush().unwrap();
            db.default_keyspace().put("a", n.to_string()).unwrap();
        }
        db.close().unwrap();
        for _ in 0..2 {
            let db = open();
            assert_eq!(db.default_keyspace().get("a").unwrap().as_deref(), Some(&b"4"[..]));
            assert!(env.fs.exists(&obsolete).unwrap());
            assert!(db.check().unwrap().problems.is_empty());
            db.close().unwrap();
        }
        let db = open();
        faults.clear();
        db.flush().unwrap();
        assert!(!env.fs.exists(&obsolete).unwrap(), "recovery.8: a flush removes it");
    }

    #[test]
    #[cfg(unix)]
    fn open_7_the_directory_above_is_synced_whatever_the_path_says() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let faults = FaultFs::new(Arc::new(esker_env::RealFs::new()));
        let env = Env::simulated(Arc::new(faults.clone()), 1);
        let (above, elsewhere) = (root.join("above"), root.join("elsewhere"));
        let (db, link) = (above.join("db"), elsewhere.join("link"));
        env.fs.create_dir_all(&db.join("sub")).unwrap();
        env.fs.create_dir_all(&elsewhere).unwrap();
        std::os::unix::fs::symlink(&db, &link).unwrap();
        for path in [db.clone(), db.join("."), db.join("sub/.."), link] {
            // The first sync of a directory tells, as it fails, which one it is.
            let failure = FaultAction::Fail(std::io::ErrorKind::Other);
            faults.add(FaultRule::new(&[OpKind::SyncDir], failure));
            let opened = Db::builder().stepped().env(env.clone()).open(&path);
            let Err(Error::Io { path: synced, .. }) = &opened else { panic!("open.7: {opened:?}") };
            assert_eq!(synced.canonicalize().unwrap(), above, "open.7: {}", path.display());
        }
    }

    #[test]
    fn open_6_opening_passes_by_a_leftover_that_it_cannot_remove() {
        let faults = FaultFs::new(Arc::new(MemFs::new()));
        let env = Env::simulated(Arc::new(faults.clone()), 1);
        let dir = Path::new("db");
        let open = || Db::builder().stepped().env(env.clone()).open(dir).unwrap();
        let db = open();
        db.default_keyspace().put("a", "1").unwrap();
        db.flush().unwrap();
        let stray = table_path(dir, db.handle.core.version().tables().next().unwrap().1.file);
        let never = FaultAction::Fail(std::io::ErrorKind::PermissionDenied);
        faults.add(FaultRule::new(&[OpKind::Remove], never).on_file(&stray).forever());
        db.default_keyspace().put("a", "2").unwrap();
        db.compact().unwrap();
        assert!(db.handle.core.version().tables().all(|(_, table)| table_path(dir, table.file) != stray));
        db.close().unwrap();
        for _ in 0..2 {
            let db = open();
            assert_eq!(db.default_keyspace().get("a").unwrap().as_deref(), Some(&b"2"[..]));
            db.close().unwrap();
            let is_manifest = |name: &&String| matches!(file_name::parse(name), FileKind::Manifest(_));
            let names = list(&env, dir).unwrap();
            assert_eq!(names.iter().filter(is_manifest).count(), 1, "open.6: {names:?}");
            assert!(env.fs.exists(&stray).unwrap());
        }
        faults.clear();
        open().close().unwrap();
        assert!(!env.fs.exists(&stray).unwrap(), "open.6: it goes when it can");
    }
}
