//! The new database that a repair fills.
//!
//! ```text
//!   put, apply --encoded keys--> commits --finish--> catalog completed, closed --check--> opened, checked
//! ```
//!
//! Keys keep their keyspace ids. The catalog is copied like other data until `finish` completes it: then
//! every keyspace with keys has one name, and no id is used twice.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use esker_env::{Env, FileLock};

use super::report::{LostKeys, RepairReport, RepairedKeyspace};
use super::target_dir::TargetDir;
use crate::KEY_BYTES_MAX;
use crate::blob::BlobSet;
use crate::encoding::bytes::ByteReader;
use crate::encoding::catalog_key::{name_key, name_of, options_key, options_of};
use crate::engine::base::options::Settings;
use crate::engine::life::handle::Handle;
use crate::engine::life::open::open_locked;
use crate::engine::state::catalog;
use crate::engine::state::history::Kept;
use crate::engine::state::keyspace_options::StoredOptions;
use crate::txn::commit::Durability;
use crate::txn::write_set::WriteSet;
use crate::types::expiry::Expiry;
use crate::types::key::{decode_key, encode_key, keyspace_end};
use crate::types::op::Kind;
use crate::types::{Error, KeyspaceId, Result, SeqNo};

/// Size of the commits for entries of tables.
const BATCH_BYTES: usize = 1 << 20;

/// The database being filled.
pub(super) struct Target {
    settings: Settings,
    env: Env,
    dir: PathBuf,
    lock: Arc<dyn FileLock>,
    handle: Arc<Handle>,
    batch: WriteSet,
    /// Operands for keys of this batch, or of earlier ones.
    merges: WriteSet,
    /// The entries of keyspace 0 so far.
    catalog: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The newest commit that some table proves to be flushed.
    pub newest_flushed: SeqNo,
    /// Blob files of the source, with values that are not in tables.
    pub blobs: BlobSet,
}

impl Target {
    pub(super) fn create(settings: &Settings, dir: &TargetDir) -> Result<Target> {
        // Operands are copied without merging them.
        let mut settings = settings.clone();
        settings.functions.may_lack_operators = true;
        (settings.opening.create_if_missing, settings.opening.error_if_exists) = (true, false);
        let handle = open_locked(settings.clone().derive()?, dir.env.clone(), &dir.path, dir.lock.clone())?;
        Ok(Target {
            settings,
            env: dir.env.clone(),
            dir: dir.path.clone(),
            lock: dir.lock.clone(),
            handle,
            batch: WriteSet::new(),
            merges: WriteSet::new(),
            catalog: BTreeMap::new(),
            newest_flushed: SeqNo::ZERO,
            blobs: BlobSet::default(),
        })
    }

    /// Puts an entry of a table.
    pub(super) fn put(
        &mut self,
        key: &[u8],
        expiry: Option<Expiry>,
        value: &[u8],
        report: &mut RepairReport,
    ) -> Result<()> {
        match decode_key(key) {
            Some((KeyspaceId::CATALOG, name)) => drop(self.catalog.insert(name.to_vec(), value.to_vec())),
            Some((_, user_key)) if user_key.len() <= KEY_BYTES_MAX => {
                self.batch.put_until(Kind::PUT, key, expiry, value);
                if self.batch.byte_len() >= BATCH_BYTES {
                    self.commit_batch()?;
                }
            }
            _ => {
                let detail = format!("a key without a keyspace, \"{}\"", key.escape_ascii());
                report.lose(Error::corrupt("table", &self.dir, 0, detail), 0, LostKeys::Any);
            }
        }
        Ok(())
    }

    /// Merges a list of operands into an entry of a table. The entry has been put before, if it exists.
    pub(super) fn merge(&mut self, key: &[u8], list: &[u8]) -> Result<()> {
        // `put` has reported other keys.
        if matches!(decode_key(key), Some((id, user_key)) if id != KeyspaceId::CATALOG && user_key.len() <= KEY_BYTES_MAX)
        {
            self.merges.write(Kind::MERGE, key, list);
        }
        if self.merges.byte_len() >= BATCH_BYTES { self.commit_batch() } else { Ok(()) }
    }

    /// Applies a commit of the log.
    pub(super) fn apply(&mut self, set: WriteSet) -> Result<()> {
        self.commit_batch()?;
        let catalog = encode_key(KeyspaceId::CATALOG, &[]);
        let (mut own, mut rest) = (false, WriteSet::new());
        for (start, end) in set.ranges() {
            if start.starts_with(&catalog) {
                self.catalog.retain(|key, _| {
                    let key = encode_key(KeyspaceId::CATALOG, key);
                    !(*start <= key && key < *end)
                });
                own = true;
            } else {
                rest.delete_range(start, end);
            }
        }
        for entry in set.entries(SeqNo::ZERO) {
            match decode_key(entry.key) {
                Some((KeyspaceId::CATALOG, name)) => {
                    own = true;
                    if entry.kind.is_live() {
                        self.catalog.insert(name.to_vec(), entry.value.to_vec());
                    } else {
                        self.catalog.remove(name);
                    }
                }
                _ => {
                    // The new database counts it again.
                    own |= entry.kind.is_unresolved();
                    rest.write(entry.kind.resolved(), entry.key, entry.value);
                }
            }
        }
        self.commit(if own { rest } else { set })
    }

    fn commit_batch(&mut self) -> Result<()> {
        for set in [&mut self.batch, &mut self.merges].map(std::mem::take) {
            self.commit(set)?;
        }
        Ok(())
    }

    fn commit(&self, set: WriteSet) -> Result<()> {
        self.handle.core.commit_encoded(set, Durability::None)
    }

    /// Completes the catalog, then closes the database.
    pub(super) fn finish(mut self, report: &mut RepairReport) -> Result<ClosedTarget> {
        self.commit_batch()?;
        let (names, writes) = self.whole_catalog(report)?;
        self.commit(writes)?;
        self.handle.core.flush_all()?;
        self.handle.close()?;
        Ok(ClosedTarget { settings: self.settings, env: self.env, dir: self.dir, lock: self.lock, names })
    }

    /// Returns the complete catalog, with the writes that complete it and remove dropped
    /// keyspaces.
    fn whole_catalog(&self, report: &mut RepairReport) -> Result<(BTreeMap<String, KeyspaceId>, WriteSet)> {
        let mut found = self.read_catalog(report);
        let mut set = WriteSet::new();
        self.name_keyspaces(&mut found, &mut set, report)?;
        let FoundCatalog { mut names, next_id, options, time, .. } = found;
        if let Some(value) = options.get(&KeyspaceId::DEFAULT) {
            set.put(&options_key(KeyspaceId::DEFAULT), value);
        }
        for (name, id) in &names {
            set.put(&name_key(name), &catalog::varint(id.get()));
            if let Some(value) = options.get(id) {
                set.put(&options_key(*id), value);
            }
        }
        set.put(&encode_key(KeyspaceId::CATALOG, catalog::NEXT_ID_KEY), &catalog::varint(next_id));
        if let Some(time) = time {
            set.put(&encode_key(KeyspaceId::CATALOG, catalog::TIME_KEY), &time);
        }
        names.insert(catalog::DEFAULT_NAME.to_owned(), KeyspaceId::DEFAULT);
        Ok((names, set))
    }

    /// Reads the valid entries of the catalog. Reports the others.
    fn read_catalog(&self, report: &mut RepairReport) -> FoundCatalog {
        let mut found = FoundCatalog {
            names: BTreeMap::new(),
            ids: BTreeSet::from([KeyspaceId::CATALOG, KeyspaceId::DEFAULT]),
            next_id: KeyspaceId::DEFAULT.get() + 1,
            options: BTreeMap::new(),
            time: None,
        };
        for (key, value) in &self.catalog {
            if let (Some(id), Ok(of)) = (options_of(key), StoredOptions::decode(value)) {
                if of.kept() != Kept::default() {
                    report.notes.push(format!("keyspace {id} no longer keeps history"));
                }
                found.options.insert(id, StoredOptions::new(&of.given, Kept::default()).encode());
                continue;
            }
            let mut reader = ByteReader::new(value);
            let id = reader.varint().ok().filter(|_| reader.is_empty()).and_then(|id| u32::try_from(id).ok());
            match (name_of(key), id) {
                (Some(name), Some(id))
                    if catalog::is_stored_name(name) && found.ids.insert(KeyspaceId::new(id)) =>
                {
                    found.names.insert(name.to_owned(), KeyspaceId::new(id));
                    found.next_id = found.next_id.max(id.saturating_add(1));
                }
                _ if key == catalog::TIME_KEY && ByteReader::new(value).varint().is_ok() => {
                    found.time = Some(value.clone());
                    // Closing stores the same time or a later one.
                    ByteReader::new(value)
                        .varint()
                        .into_iter()
                        .for_each(|ms| self.handle.core.time.raise(ms));
                }
                (None, Some(id)) if key == catalog::NEXT_ID_KEY => found.next_id = found.next_id.max(id),
                _ => {
                    let text = format!("the entry \"{}\" is invalid: left out", key.escape_ascii());
                    report.lose(Error::corrupt("keyspace catalog", &self.dir, 0, text), 0, LostKeys::Names);
                }
            }
        }
        found
    }

    /// Names each keyspace with keys and without a name, or removes its keys if it was dropped.
    fn name_keyspaces(
        &self,
        found: &mut FoundCatalog,
        set: &mut WriteSet,
        report: &mut RepairReport,
    ) -> Result<()> {
        let names_lost = report.losses.iter().any(|loss| match &loss.keys {
            LostKeys::Names | LostKeys::Any => true,
            LostKeys::Between(low, _) => low.as_ref().is_none_or(|(id, _)| *id == KeyspaceId::CATALOG),
        });
        let core = &self.handle.core;
        let counts = core.exact_counts(&core.snapshot())?;
        for (id, keys) in counts.into_iter().filter(|(_, keys)| *keys > 0) {
            found.next_id = found.next_id.max(id.get().saturating_add(1));
            if found.ids.contains(&id) {
                continue;
            }
            if !names_lost {
                // A dropped keyspace: the removal of its keys was lost, or was not necessary.
                set.delete_range(&encode_key(id, &[]), &keyspace_end(id));
                report.notes.push(format!("keyspace {id} was dropped: its {keys} keys are left out"));
                continue;
            }
            let mut name = format!("keyspace-{id}");
            while found.names.contains_key(&name) {
                name.push('+');
            }
            let detail =
                format!("the name of keyspace {id}, which holds {keys} keys: it is now named {name:?}");
            report.lose(Error::corrupt("keyspace catalog", &self.dir, 0, detail), 0, LostKeys::Names);
            found.names.insert(name, id);
        }
        Ok(())
    }
}

/// The readable part of the catalog.
struct FoundCatalog {
    names: BTreeMap<String, KeyspaceId>,
    /// Keyspaces with a name.
    ids: BTreeSet<KeyspaceId>,
    next_id: u32,
    options: BTreeMap<KeyspaceId, Vec<u8>>,
    time: Option<Vec<u8>>,
}

/// The complete and closed database. Its directory is still locked.
pub(super) struct ClosedTarget {
    settings: Settings,
    env: Env,
    dir: PathBuf,
    lock: Arc<dyn FileLock>,
    names: BTreeMap<String, KeyspaceId>,
}

impl ClosedTarget {
    /// Opens the database again, checks it, and reports its keyspaces.
    pub(super) fn check(self, report: &mut RepairReport) -> Result<()> {
        let handle = open_locked(self.settings.derive()?, self.env, &self.dir, self.lock)?;
        let found = crate::rescue::check::check(&handle.core)?;
        if let Some(problem) = found.problems.first() {
            return Err(Error::Invalid(format!("the new database is not sound, which is a bug: {problem}")));
        }
        for (name, id) in self.names {
            let keyspace =
                handle.core.catalog.get(&name).ok_or_else(|| Error::KeyspaceNotFound(name.clone()))?;
            let keys = handle.core.len_now(&keyspace)?;
            report.keyspaces.push(RepairedKeyspace { id, name, keys });
        }
        handle.close()
    }
}
