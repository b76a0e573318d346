//! The manifest of an opening: the one that was found is continued, or a new one is written.

use esker_env::Env;

use super::Opening;
use super::read::Found;
use crate::engine::disk::tables::Tables;
use crate::engine::state::catalog::Catalog;
use crate::engine::state::history;
use crate::manifest::edit::{HistoryEdit, VersionEdit};
use crate::manifest::history::Floors;
use crate::manifest::level::RunId;
use crate::manifest::log::{FoundManifest, ManifestLog};
use crate::types::{FileId, Result, SeqNo};
use crate::wal::{self, Prepared};

/// The manifest in force.
pub(super) struct Named {
    pub(super) tables: Tables,
    pub(super) database_id: u32,
    /// The file of the first segment of a new database.
    pub(super) first: Option<Prepared>,
    /// For each keyspace, the commit from which on its history can be read.
    pub(super) floors: Floors,
}

impl Opening {
    /// Makes a manifest durable that describes what was found.
    pub(super) fn put_in_force(&self, found: &mut Found, catalog: &Catalog) -> Result<Named> {
        let env = &self.env;
        let last_seq = found.replayed.last_seq;
        let database_id = found.state.database_id.unwrap_or_else(|| draw_database_id(env));
        let kept = catalog.all_options().into_iter().map(|(id, options)| (id, options.kept()));
        let (marks, floors) = history::recovered(env, &found.state, kept, last_seq);
        if (&marks, &floors) != (&found.state.history.marks, &found.state.history.floors) {
            // A new manifest leaves out what is no longer kept. An edit cannot.
            (found.state.history, found.manifest) = (HistoryEdit { marks, floors: floors.clone() }, None);
        }
        let next_run = RunId(found.state.next_run.map_or(1, |run| run.0));
        let mut news = news(found, last_seq, database_id);
        // Its name becomes durable with that of the manifest, which is not in force before. So the first
        // commit need not write and name a segment (pool.4).
        let first = if found.is_new { self.make_first(found, database_id)? } else { None };
        news.wal_named = first.as_ref().map(Prepared::number).or(news.wal_named);
        let (manifest, state) = (found.manifest.take(), found.state.clone());
        let numbers = (found.next_file, next_run);
        let tables = self.continue_or_create(manifest, state, news, first.as_ref(), numbers)?;
        Ok(Named { tables, database_id, first, floors })
    }

    /// Makes the file of the first segment of a new database.
    fn make_first(&self, found: &Found, database_id: u32) -> Result<Option<Prepared>> {
        let options = self.options.wal_options(database_id);
        wal::make_first(&self.env, &self.dir, &options, found.replayed.log.next_segment)
    }

    /// Continues the manifest `found`, or creates one with all of `state`, and adds `news`. New files and
    /// runs get numbers from `numbers` on. A new manifest may name the `first` segment; then its file is made
    /// durable.
    fn continue_or_create(
        &self,
        found: Option<FoundManifest>,
        mut state: VersionEdit,
        news: VersionEdit,
        first: Option<&Prepared>,
        (next_file, next_run): (FileId, RunId),
    ) -> Result<Tables> {
        let Opening { options, env, dir, .. } = self;
        let found = found.map_or(Ok(None), |found| found.go_on(env, dir))?;
        let (manifest, next_file) = match found {
            Some(mut manifest) => {
                if news != VersionEdit::default() {
                    manifest.append(news, || next_file)?;
                }
                // Appending may have started a new manifest, which took a number.
                let next_file = manifest.state().next_file.max(Some(next_file)).unwrap_or(next_file);
                (manifest, next_file)
            }
            None => {
                let id = next_file;
                state.next_file = Some(id.next());
                state.merge(news);
                let sync_first = || first.map_or(Ok(()), Prepared::sync);
                (ManifestLog::create_beside(env, dir, id, state, sync_first)?, id.next())
            }
        };
        Ok(Tables::new(manifest.replaced_from(options.manifest_bytes_min()), next_file, next_run))
    }
}

/// What this opening has to add to the manifest. After a clean close: nothing.
fn news(found: &Found, last_seq: SeqNo, database_id: u32) -> VersionEdit {
    let (state, log) = (&found.state, &found.replayed.log);
    let from = state.log_extent().from;
    let named_to = log.named_to().unwrap_or(from.saturating_sub(1));
    // Prepared files are removed (recovery.6). The writer may take over a single unused file (pool.10).
    let is_removed = |named| named > named_to && found.left != Some(named);
    let is_wrong = state.wal_named.is_some_and(is_removed) || log.named_to() > state.wal_named;
    // Replayed commits are durable, unless a torn end has still to be repaired.
    let is_known = log.is_torn() || Some(last_seq) <= state.durable_seq.max(state.flushed_seq);
    VersionEdit {
        wal_named: is_wrong.then_some(named_to),
        durable_seq: (!is_known).then_some(last_seq),
        database_id: state.database_id.is_none().then_some(database_id),
        ..VersionEdit::default()
    }
}

/// A number, not 0, that tells the files of this database from those of others.
pub(crate) fn draw_database_id(env: &Env) -> u32 {
    (env.random.next_u64() as u32).max(1)
}
