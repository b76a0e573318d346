//! The first steps of an opening: everything is read and checked. Nothing on disk changes (open.1).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use esker_env::Env;

use super::Opening;
use super::progress::Progress;
use crate::blob::BlobCache;
use crate::cache::MemoryBudget;
use crate::engine::base::options::Options;
use crate::engine::disk::blobs::open_blobs;
use crate::engine::disk::unnamed::refuse_needed;
use crate::engine::life::replay::{Replayed, replay};
use crate::engine::state::catalog::{Catalog, TakeEntry};
use crate::engine::state::feed;
use crate::manifest::edit::VersionEdit;
use crate::manifest::file_name::{self, CURRENT, FileKind, table_path};
use crate::manifest::level::{Level, RunId};
use crate::manifest::log::{FoundManifest, ManifestLog};
use crate::manifest::version::Version;
use crate::read::operators::Operators;
use crate::read::time::Time;
use crate::read::view::ReadView;
use crate::read::view_cell::ViewCell;
use crate::sstable::{BlockCache, Table};
use crate::txn::snapshots::Published;
use crate::types::bounds::Bounds;
use crate::types::key::{decode_key, encode_key, keyspace_end};
use crate::types::{Error, FileId, KeyspaceId, Result, SeqNo};
use crate::wal;

/// What the directory holds.
pub(super) struct Found {
    /// The names of all files.
    pub(super) names: Vec<String>,
    /// The state that the manifest describes.
    pub(super) state: VersionEdit,
    /// The manifest, if this opening can continue it. `None`: a new one has to be written.
    pub(super) manifest: Option<FoundManifest>,
    pub(super) cache: Arc<BlockCache>,
    pub(super) blob_cache: Arc<BlobCache>,
    pub(super) version: Arc<Version>,
    /// What the log adds to the tables.
    pub(super) replayed: Replayed,
    /// The segment for which an earlier process left a file that this one may put to use (pool.10).
    pub(super) left: Option<u64>,
    /// Whether the directory has no database yet.
    pub(super) is_new: bool,
    pub(super) feed: Option<feed::Found>,
    /// The number of the first new file.
    pub(super) next_file: FileId,
}

/// What readers need.
pub(super) struct Readers {
    pub(super) view: Arc<ViewCell>,
    pub(super) published: Arc<Published>,
    pub(super) catalog: Catalog,
    pub(super) time: Arc<Time>,
    pub(super) operators: Arc<Operators>,
    pub(super) closed: Arc<AtomicBool>,
}

impl Opening {
    /// Reads the manifest, describes the tables, and replays the log.
    pub(super) fn read(&self) -> Result<Found> {
        let Opening { options, env, dir, .. } = self;
        let (mut state, mut manifest) = read_manifest(env, options, dir)?;
        let is_new = manifest.is_none();
        if settle_counts(&mut state, dir)? {
            manifest = None;
        }
        let cache = BlockCache::new(MemoryBudget::new(options.memory()));
        let names = list(env, dir)?;
        let blocks = cache.clone();
        let blob_cache = BlobCache::new(cache.budget(), Box::new(move || blocks.room_bytes()));
        let version = open_tables(env, dir, &names, &state, &cache)?;
        let blobs = version.blobs().clone().cached_in(dir, blob_cache.clone());
        let version = Arc::new(version.with_blobs(blobs));
        let progress = Progress::new(self.events.clone(), env.clock.clone(), self.begun);
        let replayed = replay((env, dir), options, &state, version.blobs(), progress)?;
        refuse_needed(env, dir, &names, &state, replayed.last_seq)?;
        let feed = feed::Found::look(env, dir, options.feed_retention(), &state)?;
        let kept = feed::Found::edit(feed.as_ref());
        if kept != state.feed {
            // A new manifest leaves out what is no longer kept. An edit cannot.
            (state.feed, manifest) = (kept, None);
        }
        let next_file = first_number(dir, &names, &state)?;
        let wal_options = options.wal_options(state.database_id.unwrap_or_default());
        let left = wal::find_left(env, dir, &replayed.log, state.wal_named, &wal_options);
        let left = left.filter(|_| !options.is_read_only());
        Ok(Found {
            names,
            state,
            manifest,
            cache,
            blob_cache,
            version,
            replayed,
            left,
            is_new,
            feed,
            next_file,
        })
    }

    /// Makes the first view, and loads the catalog from it.
    pub(super) fn readers(&self, found: &Found) -> Result<Readers> {
        let replayed = &found.replayed;
        let published = Published::new(replayed.last_seq, replayed.counts.now(&found.state));
        published.note_changed(replayed.counts.unsealed.clone());
        let view = replayed.view(&self.env, &self.options, found.version.clone());
        let (time, operators, closed) = (view.time.clone(), view.operators.clone(), view.closed.clone());
        if view.unresolved() > 0 {
            published.note_overcount();
        }
        let catalog = load_catalog(&view, &published, &self.dir)?;
        if !self.options.may_lack_operators() {
            check_operators(&catalog, &operators)?;
        }
        // time.2
        time.raise(catalog.time_ms);
        let view = Arc::new(ViewCell::new(view, self.env.clock.clone()));
        Ok(Readers { view, published, catalog, time, operators, closed })
    }
}

/// Reads the manifest. A new database has none, and its state is empty.
fn read_manifest(env: &Env, options: &Options, dir: &Path) -> Result<(VersionEdit, Option<FoundManifest>)> {
    match ManifestLog::find(env, dir)? {
        Some(_) if options.error_if_exists() => Err(Error::AlreadyExists(dir.to_owned())),
        Some(found) => Ok((found.state.clone(), Some(found))),
        None => {
            let names = list(env, dir)?;
            if let Some(name) = names.iter().find(|name| is_data(name)) {
                let detail = format!(
                    "it is missing, but {name} is there: restore it from a backup or run `esker repair`"
                );
                return Err(Error::corrupt("CURRENT", dir.join(CURRENT), 0, detail));
            }
            Ok((new_state(options.first_number()), None))
        }
    }
}

/// The state of an empty database whose commit numbers start at `first`.
fn new_state(first: u64) -> VersionEdit {
    let wal_from = Some(first);
    if first == 1 {
        return VersionEdit { wal_from, ..VersionEdit::default() };
    }
    let (next_file, flushed_seq) = (Some(FileId::new(first)), Some(SeqNo::new(first - 1)));
    VersionEdit { wal_from, next_file, next_run: Some(RunId(first)), flushed_seq, ..VersionEdit::default() }
}

/// Returns whether a file of this name proves that there is a database. A new database writes CURRENT before
/// its first log segment or table: a manifest alone belongs to a database that was never finished.
pub(crate) fn is_data(name: &str) -> bool {
    matches!(file_name::parse(name), FileKind::Table(_) | FileKind::Blob(_))
        || wal::file_name::parse_segment(name).is_some()
}

pub(in crate::engine) fn list(env: &Env, dir: &Path) -> Result<Vec<String>> {
    env.fs.list_dir(dir).map_err(|e| Error::io("list", dir, e))
}

/// Opens the version that the manifest describes. `names` lists the directory.
pub(in crate::engine) fn open_tables(
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

/// Checks what a version asserts. Damage of the manifest that its checksums missed becomes a typed error.
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

/// The number of the first new file: above those of all files, and above all that the manifest says were
/// given out. Refuses numbers that leave too few. `names` lists the directory.
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

/// Subtracts the unresolved counts of the manifest, before the first read. Returns whether there were any.
pub(in crate::engine) fn settle_counts(state: &mut VersionEdit, dir: &Path) -> Result<bool> {
    let has_overcounts = !state.overcounts.is_empty();
    state.settle_overcounts().map_err(|detail| Error::corrupt("manifest", dir.join(CURRENT), 0, detail))?;
    Ok(has_overcounts)
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

/// Refuses a database that needs merge operators which are not registered.
fn check_operators(catalog: &Catalog, operators: &Operators) -> Result<()> {
    for (id, options) in catalog.all_options() {
        if let Some(operator) = options.given.merge_operator.filter(|operator| !operators.knows(operator))
            && let Some(state) = catalog.with_id(id)
        {
            return Err(Error::MergeOperatorMissing { keyspace: state.name().to_string(), operator });
        }
    }
    Ok(())
}
