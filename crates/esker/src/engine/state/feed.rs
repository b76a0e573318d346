//! The change feed of the running database: what opening finds, what is kept, and a reader's next commit.
//!
//! ```text
//!   opening --segments older than recovery needs, as far back as the manifest says--> Keeper
//!   flush, log thread --retain--> manifest (from) --> shelf, kept tables --> files removed
//!   reader --next_of--> Follower --record--> Changes
//! ```
//!
//! - Released commits are refused to readers before any of their files is removed, and after the manifest
//!   records the release (manifest_feed.1).
//! - A reader that has the record of a commit first takes the current blob files, then checks that the commit
//!   is still kept. If so, its values are in these files (collect.4).
//!
//! Commits made while the feed was off are not shown.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use esker_env::Env;

use crate::blob::BlobSet;
use crate::encoding::bytes::DecodeError;
use crate::engine::state::State;
use crate::feed::{self, Changes, CommitPlace, Keeper};
use crate::manifest::edit::{Adopted, VersionEdit};
use crate::manifest::feed::{FeedEdit, FeedFrom, FeedLimits, Released};
use crate::sstable::BlockCache;
use crate::types::{Error, Result, SeqNo};
use crate::wal::{self, Followed, Follower, Recovered, Shelf, Shelved};

/// How often a waiting reader checks whether writes have stopped.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What opening finds of the feed.
pub(in crate::engine) struct Found {
    limits: FeedLimits,
    /// The feed's part of the new manifest.
    edit: FeedEdit,
    from: FeedFrom,
    /// Kept segments that recovery does not need.
    pub(in crate::engine) segments: BTreeMap<u64, Shelved>,
}

impl Found {
    /// Finds what the manifest says is kept and the directory has. `None` if the feed is off. Changes
    /// nothing.
    pub(in crate::engine) fn look(
        env: &Env,
        dir: &Path,
        limits: Option<FeedLimits>,
        state: &VersionEdit,
    ) -> Result<Option<Found>> {
        let limits = limits.or(state.feed.limits).filter(|limits| limits.bytes > 0);
        let Some(limits) = limits else { return Ok(None) };
        let needed_from = state.log_extent().from;
        let from = state.feed.from.unwrap_or_else(|| begin(state));
        let names = env.fs.list_dir(dir).map_err(|e| Error::io("list", dir, e))?;
        let there: BTreeSet<u64> =
            names.iter().filter_map(|name| wal::file_name::parse_segment(name)).collect();
        let mut segments = BTreeMap::new();
        let mut first = needed_from;
        while let Some(before) = first.checked_sub(1).filter(|n| *n >= from.segment && there.contains(n)) {
            let Some(shelved) = wal::look_at(env, dir, before, state.database_id)? else { break };
            segments.insert(before, shelved);
            first = before;
        }
        let from = FeedFrom { segment: first, ..from };
        let kept = state.feed.kept.iter().filter(|commit| commit.seq >= from.oldest).cloned().collect();
        let released = state.feed.released.iter().filter(|part| part.below > first).copied().collect();
        let edit = FeedEdit { from: Some(from), limits: Some(limits), released, kept };
        Ok(Some(Found { limits, edit, from, segments }))
    }

    /// The feed's part of the new manifest.
    pub(in crate::engine) fn edit(found: Option<&Found>) -> FeedEdit {
        found.map(|found| found.edit.clone()).unwrap_or_default()
    }

    /// Starts keeping commits, beginning with the segments that recovery has read and finished.
    pub(in crate::engine) fn keeper(
        self,
        env: &Env,
        dir: &Path,
        (cache, hold_bytes): (&Arc<BlockCache>, u64),
        (log, last, database_id): (&Recovered, SeqNo, u32),
    ) -> Result<Keeper> {
        let mut segments = self.segments;
        for &number in &log.segments {
            let shelved = wal::look_at(env, dir, number, Some(database_id))?;
            segments.insert(number, shelved.unwrap_or_default());
        }
        let shelf = Arc::new(Shelf::new(segments, log.next_segment, last, self.from.oldest));
        let place = (env.clone(), dir.to_path_buf(), cache.clone());
        Ok(Keeper::new(shelf, self.limits, hold_bytes, place, &self.edit.kept))
    }
}

/// Where a feed begins that was off until now. Values and tables of older commits may be gone.
fn begin(state: &VersionEdit) -> FeedFrom {
    let adopted = state.adopted.iter().map(|Adopted { seq, .. }| *seq).max();
    let newest = adopted.max(state.flushed_seq).unwrap_or_default();
    FeedFrom { segment: state.log_extent().from, oldest: newest.next() }
}

impl State {
    /// The feed's part of a flush's edit: recovery no longer needs the log below this segment.
    pub(in crate::engine) fn released_now(&self, below: u64, beside: u64) -> FeedEdit {
        if self.feed.is_none() {
            return FeedEdit::default();
        }
        let at = self.env.clock.unix_time().as_secs();
        FeedEdit { released: vec![Released { below, at, beside }], ..FeedEdit::default() }
    }

    /// Releases what the limits no longer keep. Returns false if there is nothing to release.
    pub(in crate::engine) fn retain(&self) -> Result<bool> {
        let Some(keeper) = &self.feed else { return Ok(false) };
        let mut manifest = self.tables.manifest();
        let state = manifest.state();
        let now = self.env.clock.unix_time().as_secs();
        let needed_from = state.log_extent().from;
        let segments = keeper.shelf.segments();
        let (limits, hold) = (keeper.limits, keeper.hold());
        let first = feed::first_kept(&segments, &state.feed.released, needed_from, limits, hold, now);
        let Some(segment) = first else { return Ok(false) };
        let oldest = keeper.shelf.oldest_from(segment);
        let feed = FeedEdit { from: Some(FeedFrom { segment, oldest }), ..FeedEdit::default() };
        manifest.append(VersionEdit { feed, ..VersionEdit::default() }, || self.tables.new_file())?;
        keeper.shelf.drop_below(segment);
        let version = self.version();
        let is_garbage = |file| version.tables().all(|(_, table)| table.file != file);
        keeper.forget_below(oldest, is_garbage, &self.lock.remover(self.env.fs.clone()));
        drop((manifest, version));
        self.pipeline.release_kept()?;
        Ok(true)
    }

    /// Keeps commits from this one on beyond the limits. `None`: no further than the limits.
    pub(crate) fn hold_feed(&self, from: Option<SeqNo>) {
        self.feed.iter().for_each(|keeper| keeper.set_hold(from));
    }

    /// Bytes kept for the feed from a commit on: those of finished segments, and of data that their commits
    /// have outside the log.
    pub(crate) fn feed_bytes(&self, from: SeqNo) -> u64 {
        let Some(keeper) = &self.feed else { return 0 };
        let first = keeper.shelf.find(from).unwrap_or(0);
        let segments = keeper.shelf.segments();
        let log = segments.iter().filter(|(number, _)| *number >= first).map(|(_, shelved)| shelved.bytes);
        let manifest = self.tables.manifest();
        let released = &manifest.state().feed.released;
        log.chain(released.iter().filter(|part| part.below > first).map(|part| part.beside)).sum()
    }

    /// Returns a reader that starts with this commit.
    pub(crate) fn follow(&self, from: SeqNo) -> Result<Follower> {
        self.check_ours()?;
        let keeper = self.feed.as_ref().ok_or(Error::NoFeed)?;
        let (after, newest) = (from.prev(), self.published.visible());
        if after > newest {
            return Err(Error::FeedAhead { after, newest });
        }
        let oldest = keeper.shelf.oldest();
        if from < oldest {
            return Err(Error::FeedTruncated { oldest });
        }
        Ok(Follower::new(self.env.clone(), self.dir.clone(), keeper.shelf.clone(), from))
    }

    /// Returns a reader's next commit, if there is one within this time, with the blob files that it may
    /// refer to.
    pub(crate) fn next_of(
        &self,
        follower: &mut Follower,
        patience: Duration,
    ) -> Result<Option<(CommitPlace, Changes, BlobSet)>> {
        let Some(keeper) = &self.feed else { return Ok(None) };
        let truncated = || Error::FeedTruncated { oldest: keeper.shelf.oldest() };
        // A reader checks once more before it waits, and before it reports the end.
        let (mut begin, mut seen, mut stopped) = (None, None, None);
        loop {
            self.check_ours()?;
            match follower.next(self.published.visible())? {
                Followed::Commit(seq, record) => {
                    let blobs = self.view.load(&crate::sync::pin()).version.blobs().clone();
                    let (path, offset) = follower.found_at();
                    let place = CommitPlace { seq, path, offset };
                    let of_record = Changes::of_record(record).map_err(|error| place.damaged(error))?;
                    let needs_more = of_record.is_none() || !blobs.is_empty();
                    let changes = match of_record {
                        Some(changes) => Ok(changes),
                        None => match keeper.tables_of(seq) {
                            Some(kept) => Changes::of_tables(kept),
                            None => Err(place.damaged(DecodeError::new(0, "its tables are not there"))),
                        },
                    };
                    if needs_more && seq < keeper.shelf.oldest() {
                        return Err(truncated());
                    }
                    return changes.map(|changes| Some((place, changes, blobs)));
                }
                Followed::Gone => return Err(truncated()),
                Followed::Nothing => {}
            }
            if let Some(cause) = stopped {
                return Err(Error::Poisoned(cause));
            }
            stopped = self.pipeline.stopped_by();
            let moves = keeper.shelf.moves();
            if stopped.is_some() || seen.replace(moves) != Some(moves) {
                continue;
            }
            let now = self.env.clock.monotonic();
            let left = patience.saturating_sub(now.saturating_sub(*begin.get_or_insert(now)));
            if left.is_zero() {
                return Ok(None);
            }
            if !keeper.shelf.wait(moves, left.min(LOOK_EVERY)) {
                return Err(Error::Closed);
            }
        }
    }
}
