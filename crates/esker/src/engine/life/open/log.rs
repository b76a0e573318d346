//! The log of an opening: its end is repaired, and new commits continue after it.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::Opening;
use super::manifest::Named;
use super::read::Found;
use crate::blob::BlobStore;
use crate::engine::disk::blobs::new_blob_file;
use crate::engine::disk::tables::Tables;
use crate::feed::Keeper;
use crate::manifest::file_name::{self, FileKind};
use crate::read::view_cell::ViewCell;
use crate::txn::blobs::sync_beside;
use crate::txn::payload;
use crate::types::{FileId, Result};
use crate::wal::{self, Prepared, WalPool, WalWriter};

/// What commits write to.
pub(super) struct Log {
    pub(super) blobs: Arc<BlobStore>,
    pub(super) feed: Option<Keeper>,
    pub(super) pool: Arc<WalPool>,
    pub(super) writer: WalWriter,
}

impl Opening {
    /// Repairs the end of the log that was found, and begins the next segment.
    pub(super) fn resume_log(
        &self,
        found: &mut Found,
        view: &Arc<ViewCell>,
        named: &mut Named,
    ) -> Result<Log> {
        let Opening { options, env, dir, .. } = self;
        let wal_from = found.state.log_extent().from;
        let (log, last_seq) = (&found.replayed.log, found.replayed.last_seq);
        log.finish(env, dir)?;
        let kept: Vec<u64> = found.feed.iter().flat_map(|feed| feed.segments.keys().copied()).collect();
        // recovery.8: the writer later removes what cannot be removed now.
        let mut of_earlier =
            wal::remove_obsolete(env, dir, &found.names, kept.first().copied().unwrap_or(wal_from))?;
        of_earlier.extend(kept);
        of_earlier.extend(&log.segments);
        let first = named.first.take();
        let kept = first.as_ref().map(Prepared::number).or(found.left);
        wal::remove_unused(env, dir, &found.names, kept)?;
        let new_file = new_blob_file(env.clone(), dir.clone(), &named.tables, view.clone());
        let (budget, blob_cache) = (found.cache.budget().clone(), found.blob_cache.clone());
        let blobs = BlobStore::new(env.clone(), options.blob_store(), budget, blob_cache, new_file);
        for (_, source) in found.version.blobs().iter() {
            source.file.note_commit(last_seq);
        }
        let known = (log, last_seq, named.database_id);
        let memory = (&found.cache, options.feed_hold());
        let feed = found.feed.take().map(|feed| feed.keeper(env, dir, memory, known)).transpose()?;
        let shelf = feed.as_ref().map(|keeper| keeper.shelf.clone());
        let register = named.tables.register_segments().kept_on(shelf);
        let pool = WalPool::new(
            env.clone(),
            dir.clone(),
            options.wal_options(named.database_id),
            register.syncing_beside(sync_beside(blobs.clone(), options.has_threads())),
        )?;
        let mut writer = WalWriter::create(pool.clone(), log.next_segment, &of_earlier)?.behind(log);
        match (first, found.left) {
            (Some(prepared), _) => pool.begin_with(prepared),
            (None, Some(number)) => pool.begin_with_left(number),
            (None, None) => {}
        }
        writer.note_obsolete(wal_from);
        for adopted in &found.replayed.unlogged {
            writer.append(adopted.seq, &[&payload::encode_header(&adopted.deltas)])?;
        }
        if writer.shelf().is_some() {
            writer.sync()?;
        }
        Ok(Log { blobs, feed, pool, writer })
    }

    /// Removes the engine's own files that nothing names any more (open.3), as far as it can (open.6).
    pub(super) fn remove_leftovers(&self, found: &Found, named: &Tables) {
        let (version, kept) = (&found.version, found.state.feed.tables().collect::<BTreeSet<FileId>>());
        let manifest = named.manifest().path();
        let names = &found.names;
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
                let _ = self.env.fs.remove_file(&self.dir.join(name));
            }
        }
    }
}
