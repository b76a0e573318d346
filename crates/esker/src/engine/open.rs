//! Opening: from a directory to a running database.
//!
//! ```text
//!   LOCK --> CURRENT, MANIFEST --> tables described --> WAL replayed into memtables --> catalog --> MANIFEST gone on with, or a new one
//!        --> WAL's torn tail cut, leftovers removed --> threads
//! ```
//!
//! open.1. Nothing on disk is changed before the manifest, the log and the catalog have been read and found sound; but the end of
//!      the log is written once more, as it is, to make it durable (recovery.4 of wal/recovery.rs). Tables are there; they are read when they are
//!      needed, and then compared with the manifest (table.6).
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
//! open.9. Behind a clean close an opening writes nothing, and syncs nothing: the manifest is settled (manifest_log.7), and has nothing to learn.
//!      It has, if there are debts in it, or a keyspace keeps history by age.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use esker_env::{Env, FileLock};
use parking_lot::Mutex;

use super::blobs::{new_blob_file, open_blobs};
use super::catalog::{Catalog, TakeEntry};
use super::core::{Core, Gone};
use super::dir_lock::DirLock;
use super::feed;
use super::handle::Handle;
use super::history;
use super::install::Tables;
use super::options::{Background, Modes, Options};
use super::pace::Pace;
use super::page_cache::PageCache;
use super::replay::replay;
use super::room::Room;
use super::stats::{Counters, add};
use super::sweep::Sweeper;
use super::unfinished;
use super::unnamed::refuse_needed;
use crate::blob::{BlobCache, BlobStore};
use crate::cache::{BudgetKind, MemoryBudget};
use crate::manifest::edit::VersionEdit;
use crate::manifest::file_name::{self, CURRENT, FileKind, LOCK, REPAIRING, table_path};
use crate::manifest::log::{FoundManifest, ManifestLog};
use crate::manifest::version::{Level, RunId, Version};
use crate::read::gaps::Gaps;
use crate::read::operators::Operators;
use crate::read::time::Time;
use crate::read::view::ReadView;
use crate::read::view_cell::ViewCell;
use crate::sstable::{BlockCache, Table};
use crate::txn::blobs::sync_beside;
use crate::txn::commit::Pipeline;
use crate::txn::payload;
use crate::txn::snapshots::Published;
use crate::types::bounds::Bounds;
use crate::types::key::{decode_key, encode_key, keyspace_end};
use crate::types::{Error, FileId, KeyspaceId, Result, SeqNo};
use crate::wal::{self, Recovered, WalPool, WalWriter};

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
    error.with_remedy()
}

fn open_dir(options: Options, env: Env, dir: &Path, lock: Arc<DirLock>) -> Result<Arc<Handle>> {
    let (mut state, mut found) = read_manifest(&env, &options, dir)?;
    if pay_debts(&mut state, dir)? {
        found = None;
    }
    let cache = BlockCache::new(MemoryBudget::new(options.memory()));
    let names = list(&env, dir)?;
    let for_room = cache.clone();
    let blob_cache = BlobCache::new(cache.budget(), Box::new(move || for_room.room_bytes()));
    let version = open_tables(&env, dir, &names, &state, &cache)?;
    let blobs = version.blobs().clone().cached_in(blob_cache.clone());
    let version = version.with_blobs(blobs);
    let replayed = replay(&env, dir, &options, &state, version.blobs())?;
    refuse_needed(&env, dir, &names, &state, replayed.last_seq)?;
    let feed = feed::Found::look(&env, dir, options.feed_retention(), &state)?;
    let kept = feed::Found::edit(feed.as_ref());
    if kept != state.feed {
        // What is not kept any more can only be left out.
        (state.feed, found) = (kept, None);
    }
    let kept_tables = state.feed.tables().collect();
    let next_file = first_number(dir, &names, &state)?;
    let published = Published::new(replayed.last_seq, replayed.counts.now(&state));
    published.note_changed(replayed.counts.unsealed);
    let closed = Arc::<AtomicBool>::default();
    let operators = Arc::new(Operators::new(options.operators().clone()));
    let view = ReadView {
        active: replayed.active,
        immutables: replayed.sealed.iter().rev().map(|s| s.memtable.clone()).collect(),
        version: Arc::new(version),
        closed: closed.clone(),
        known: Arc::default(),
        gaps: Arc::new(Gaps::behind(replayed.last_seq)),
        time: Arc::new(Time::new(env.clock.clone())),
        operators: operators.clone(),
    };
    if view.unresolved() > 0 {
        published.note_owing();
    }
    let view = Arc::new(ViewCell::new(view, env.clock.clone()));
    let catalog = load_catalog(&view.get(), &published, dir)?;
    if !options.may_lack_operators() {
        check_operators(&catalog, &operators)?;
    }
    // time.2
    let time = view.get().time.clone();
    time.raise(catalog.time_ms);

    // From here on the directory is changed (open.1).
    let wal_from = state.log_extent().from;
    let log = &replayed.log;
    let database_id = state.database_id.unwrap_or_else(|| draw_database_id(&env));
    let keyspace_options = catalog.all_options();
    let kept = keyspace_options.iter().map(|(id, options)| (id, &options.history));
    let (marks, floors) = history::recovered(&env, &state, kept, replayed.last_seq);
    if (&marks, &floors) != (&state.marks, &state.floors) {
        // What is not kept any more can only be left out.
        (state.marks, state.floors, found) = (marks, floors.clone(), None);
    }
    let next_run = state.next_run.map_or(1, |run| run.0);
    let news = news(&state, log, replayed.last_seq, database_id);
    let tables = put_in_force(&env, dir, &options, found, state, news, (next_file, RunId(next_run)))?;
    log.finish(&env, dir)?;
    // recovery.8: the writer removes, when it can, what cannot be removed now.
    let kept = || feed.iter().flat_map(|found| found.segments.keys().copied());
    let mut of_earlier = wal::remove_obsolete(&env, dir, &names, kept().next().unwrap_or(wal_from))?;
    of_earlier.extend(kept());
    of_earlier.extend(&log.segments);
    wal::remove_unused(&env, dir, &names)?;
    let new_blob_file = new_blob_file(env.clone(), dir.to_path_buf(), &tables, view.clone());
    let blobs =
        BlobStore::new(env.clone(), options.blob_store(), cache.budget().clone(), blob_cache, new_blob_file);
    for (_, source) in view.get().version.blobs().iter() {
        source.file.note_commit(replayed.last_seq);
    }
    let found = (log, replayed.last_seq, database_id);
    let feed = feed.map(|feed| feed.keeper(&env, dir, (&cache, options.feed_hold()), found)).transpose()?;
    let register = tables.register_segments().kept_on(feed.as_ref().map(|keeper| keeper.shelf.clone()));
    let wal_pool = WalPool::new(
        env.clone(),
        dir.to_path_buf(),
        options.wal_options(database_id),
        register.syncing_beside(sync_beside(blobs.clone(), options.has_threads())),
    )?;
    let mut wal = WalWriter::create(wal_pool.clone(), log.next_segment, &of_earlier)?.behind(log);
    wal.note_obsolete(wal_from);
    for adopted in &replayed.unlogged {
        wal.append(adopted.seq, &[&payload::encode_header(&adopted.deltas)])?;
    }
    if wal.is_kept() {
        // adopt.5
        wal.sync()?;
    }
    let torn_bytes = log.trimmed_bytes;
    remove_leftovers(&env, dir, &names, &view.get().version, &kept_tables, &tables.manifest().path());
    options.save(&env, dir)?;

    let pipeline = Pipeline::new(
        wal,
        view.clone(),
        published.clone(),
        replayed.applier,
        replayed.sealed,
        options.memtable_bytes,
    );
    let opened_at = published.visible();
    let core = Arc::new(Core {
        env,
        dir: dir.to_path_buf(),
        view,
        published,
        pipeline,
        blobs,
        sweeper: Sweeper::new(catalog.time_ms, opened_at),
        catalog,
        time,
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
        age: Default::default(),
        room: Room::new(&options),
        page_cache: PageCache::default(),
        _gone: Gone,
        pace: Pace::default(),
        counters: Counters::default(),
        watch: Default::default(),
        closed,
        right_of_way: Default::default(),
        locks: Default::default(),
        committer: Default::default(),
        feed,
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

/// Nobody reads yet: what is owed is taken from the counts. Whether there was anything.
pub(super) fn pay_debts(state: &mut VersionEdit, dir: &Path) -> Result<bool> {
    let is_owing = !state.debts.is_empty();
    state.pay_debts().map_err(|detail| Error::corrupt("manifest", dir.join(CURRENT), 0, detail))?;
    Ok(is_owing)
}

/// What this opening has to say that the manifest does not: nothing, after a clean close.
fn news(state: &VersionEdit, log: &Recovered, last_seq: SeqNo, database_id: u32) -> VersionEdit {
    let from = state.log_extent().from;
    let named_to = log.named_to().unwrap_or(from.saturating_sub(1));
    // Files that are prepared go (recovery.6).
    let is_wrong = state.wal_named.is_some_and(|named| named > named_to) || log.named_to() > state.wal_named;
    // What was replayed is durable; a torn end is not finished yet.
    let is_known = log.is_torn() || Some(last_seq) <= state.durable_seq.max(state.flushed_seq);
    VersionEdit {
        wal_named: is_wrong.then_some(named_to),
        durable_seq: (!is_known).then_some(last_seq),
        database_id: state.database_id.is_none().then_some(database_id),
        ..VersionEdit::default()
    }
}

/// Has a manifest in force that says all of `state`, durably, and the news: the one that was found, or a new one. Files and runs get numbers
/// from `next` on.
fn put_in_force(
    env: &Env,
    dir: &Path,
    options: &Options,
    found: Option<FoundManifest>,
    mut state: VersionEdit,
    news: VersionEdit,
    (next_file, next_run): (FileId, RunId),
) -> Result<Tables> {
    let found = found.map_or(Ok(None), |found| found.go_on(env, dir))?;
    let (manifest, next_file) = match found {
        Some(mut manifest) => {
            if news != VersionEdit::default() {
                manifest.append(news, || next_file)?;
            }
            // Its number, if a new one was started for that.
            let next_file = manifest.state().next_file.max(Some(next_file)).unwrap_or(next_file);
            (manifest, next_file)
        }
        None => {
            let id = next_file;
            state.next_file = Some(id.next());
            state.merge(news);
            (ManifestLog::create(env, dir, id, state)?, id.next())
        }
    };
    Ok(Tables::new(manifest.replaced_from(options.manifest_bytes_min()), next_file, next_run))
}

/// A number by which the files of this database are told from those of others; not 0.
pub(super) fn draw_database_id(env: &Env) -> u32 {
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

/// What the manifest says, and the manifest; a new database has none, and holds nothing.
fn read_manifest(env: &Env, options: &Options, dir: &Path) -> Result<(VersionEdit, Option<FoundManifest>)> {
    match ManifestLog::find(env, dir)? {
        Some(_) if options.error_if_exists() => {
            Err(Error::Invalid(format!("there is a database in {} already", dir.display())))
        }
        Some(found) => Ok((found.state.clone(), Some(found))),
        None => {
            let names = list(env, dir)?;
            if let Some(name) = names.iter().find(|name| is_data(name)) {
                let detail = format!(
                    "it is missing, but {name} is there: restore it from a backup or run `esker repair`"
                );
                return Err(Error::corrupt("CURRENT", dir.join(CURRENT), 0, detail));
            }
            sync_parent(env, dir)?;
            Ok((new_state(options.first_number()), None))
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

pub(super) fn list(env: &Env, dir: &Path) -> Result<Vec<String>> {
    env.fs.list_dir(dir).map_err(|e| Error::io("list", dir, e))
}

/// The version that the manifest describes. `names`: all that is in the directory.
pub(super) fn open_tables(
    env: &Env,
    dir: &Path,
    names: &[String],
    state: &VersionEdit,
    cache: &Arc<BlockCache>,
) -> Result<Version> {
    check_runs(state, dir)?;
    let there: HashSet<FileId> = names.iter().filter_map(|name| table_of(name)).collect();
    let mut described = HashMap::new();
    for added in &state.added {
        let path = table_path(dir, added.file);
        if !there.contains(&added.file) {
            let detail = "the manifest names it, but it is missing: restore a backup or run `esker repair`";
            return Err(Error::corrupt("table", &path, 0, detail));
        }
        described.insert(added.file, Table::described(env, &path, cache, &added.meta)?);
    }
    let version = Version::empty().with_blobs(open_blobs(env, dir, state)?);
    let added = VersionEdit { added: state.added.clone(), ..VersionEdit::default() };
    Ok(version.apply(&added, described))
}

fn table_of(name: &str) -> Option<FileId> {
    match file_name::parse(name) {
        FileKind::Table(id) => Some(id),
        _ => None,
    }
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

/// The number of the first new file: behind those of all files, and behind all that the manifest says were given out. Refuses one that
/// leaves too few.
/// `names`: all that is in the directory.
pub(crate) fn first_number(dir: &Path, names: &[String], state: &VersionEdit) -> Result<FileId> {
    let given = state.next_file.unwrap_or(FileId::new(1));
    if file_name::is_spent(given) {
        let detail = format!("the next file is to get number {given}, which no database comes to");
        return Err(Error::corrupt("manifest", dir.join(CURRENT), 0, detail));
    }
    let files = names.iter().filter_map(|name| match file_name::parse(name) {
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
fn remove_leftovers(
    env: &Env,
    dir: &Path,
    names: &[String],
    version: &Version,
    kept: &BTreeSet<FileId>,
    manifest: &Path,
) {
    let tables: HashSet<FileId> = version.tables().map(|(_, table)| table.file).collect();
    for name in names {
        let needed = match file_name::parse(name) {
            FileKind::Manifest(_) => manifest.file_name().is_some_and(|kept| *kept == **name),
            FileKind::Table(id) => kept.contains(&id) || tables.contains(&id),
            FileKind::Blob(id) => version.blobs().iter().any(|(_, source)| source.file.id() == id),
            FileKind::Temporary => false,
            FileKind::Other => true,
        };
        if !needed {
            let _ = env.fs.remove_file(&dir.join(name));
        }
    }
}

/// Refuses a database that needs merge operators which are not registered.
fn check_operators(catalog: &Catalog, operators: &Operators) -> Result<()> {
    for (id, options) in catalog.all_options() {
        if let Some(operator) = options.merge_operator.filter(|operator| !operators.knows(operator))
            && let Some(state) = catalog.with_id(id)
        {
            return Err(Error::MergeOperatorMissing { keyspace: state.name().to_string(), operator });
        }
    }
    Ok(())
}

fn load_catalog(view: &ReadView, published: &Arc<Published>, dir: &Path) -> Result<Catalog> {
    let bounds = Bounds {
        lower: std::ops::Bound::Included(encode_key(KeyspaceId::CATALOG, &[]).into()),
        upper: std::ops::Bound::Excluded(keyspace_end(KeyspaceId::CATALOG).into()),
    };
    let mut cursor = view.live(published.visible(), bounds);
    let corrupt = |detail| Error::corrupt("keyspace catalog", dir, 0, detail);
    let each = |take: &mut TakeEntry<'_>| {
        cursor.seek_first()?;
        while cursor.valid() {
            let (_, user_key) = decode_key(cursor.key()).expect("keyspace 0 holds encoded keys");
            take(user_key, &cursor.value()?)?;
            cursor.next()?;
        }
        Ok(())
    };
    Catalog::load(published, each, corrupt)
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
    fn open_9_behind_a_clean_close_an_opening_writes_nothing_and_reads_no_table() {
        let faults = FaultFs::new(Arc::new(MemFs::new()));
        let env = Env::simulated(Arc::new(faults.clone()), 1);
        let open = || Db::builder().stepped().env(env.clone()).open(Path::new("db")).unwrap();
        for round in 0..3 {
            let db = open();
            let map = db.default_keyspace();
            map.put([round], "flushed").unwrap();
            db.flush().unwrap();
            if round == 1 {
                map.put("log", "not flushed").unwrap();
            }
            db.close().unwrap();
            let failure = FaultAction::Fail(std::io::ErrorKind::Other);
            // The directory is there.
            let changes: Vec<_> =
                OpKind::CHANGES.into_iter().filter(|kind| *kind != OpKind::CreateDir).collect();
            faults.add(FaultRule::new(&changes, failure).forever());
            let again = open();
            assert_eq!(faults.fired(), 0, "open.9: round {round}");
            faults.clear();
            let tables: Vec<_> = again.handle.core.version().tables().map(|(_, t)| t.table.clone()).collect();
            assert!(
                tables.iter().all(|table| format!("{table:?}").contains("not loaded")),
                "table.6: {tables:?}"
            );
            assert_eq!(again.default_keyspace().get([round]).unwrap().as_deref(), Some(&b"flushed"[..]));
            assert!(again.check().unwrap().problems.is_empty());
            again.close().unwrap();
        }
    }

    #[test]
    fn table_6_damage_of_a_table_is_told_by_who_reads_it_first_and_by_a_check() {
        let fs = MemFs::new();
        let env = Env::simulated(Arc::new(fs.clone()), 1);
        let open = || Db::builder().stepped().env(env.clone()).open(Path::new("db")).unwrap();
        let db = open();
        db.default_keyspace().put("a", "1").unwrap();
        db.flush().unwrap();
        let path = table_path(Path::new("db"), db.handle.core.version().tables().next().unwrap().1.file);
        db.default_keyspace().put("b", "2").unwrap();
        db.close().unwrap();
        let file = env.fs.open(&path, esker_env::OpenOptions::write()).unwrap();
        let last = file.len().unwrap() - 1;
        file.write_all_at(b"!", last).unwrap();
        let db = open();
        let map = db.default_keyspace();
        assert_eq!(map.get("b").unwrap().as_deref(), Some(&b"2"[..]), "it is in the log");
        for wrong in [map.get("a").map(drop), map.iter().try_for_each(|item| item.map(drop))] {
            let error = wrong.unwrap_err();
            assert!(
                error.is_corrupt() && error.to_string().contains(path.to_str().unwrap()),
                "table.6: {error}"
            );
        }
        assert!(!db.check().unwrap().problems.is_empty());
        assert!(db.compact().is_err());
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
