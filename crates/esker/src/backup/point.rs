//! Restores a database as it was at a moment between two backups.
//!
//! ```text
//!   point --> newest earlier backup --files--> workplace --segments, commit by commit--> database
//! ```
//!
//! restore_point.1. A restore yields the state after the commit that it returns: one backup plus all later
//!     commits. Nothing is restored if commits are missing, or if the archive has a different commit under
//!     the number of the backup's last commit.
//! restore_point.3. The order of backups, segments and commits follows from their numbers. The wall clock
//!     only selects the last backup or segment created by a given time. Everything before that one is
//!     included, whatever the clock showed.
//!
//! The restored database starts a new history, so the replication notes of a server are left out.

use super::record::{Record, is_unusable};
use super::restore::{Restoration, Restored, finish};
use super::segment::{Item, Reader};
use super::{Backup, Segment};
use crate::db::Db;
use crate::replay::Replay;
use crate::txn::commit::Durability;
use crate::types::canary::{self, Canary};
use crate::types::{Error, Result, SeqNo};

/// The keyspace with the replication notes of a server, which is left out.
const REPLICATION: &str = "es.repl";

/// A moment to restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// Immediately after this commit.
    Commit(SeqNo),
    /// Everything archived or backed up by this time, in seconds since 1970.
    Time(u64),
}

impl Restoration<'_> {
    /// Restores the state at a moment between two backups.
    pub(super) fn run_to(self, point: Point) -> Result<Restored> {
        let mut here = self.backups.lock_to_read()?;
        let record = here.base(point, self.id)?;
        let backup = record.info.clone();
        let segments = here.segments_for(point, &record)?;
        let workplace = here.workplace(&self.dir)?;
        here.put(&workplace, record)?;
        let db = self.builder.for_copy().env(workplace.held().clone()).open(workplace.dir())?;
        let seqno = here.replay(&db, point, backup.seqno, &segments)?;
        if db.open_keyspace(REPLICATION).is_ok() {
            db.drop_keyspace(REPLICATION)?;
        }
        db.close()?;
        finish(workplace, self.verify)?;
        let made = segments.last().map_or(backup.created, |segment| segment.created);
        Ok(Restored { seqno, commits: seqno.get() - backup.seqno.get(), made, backup })
    }
}

impl Backup {
    /// Selects the backup to start with.
    fn base(&self, point: Point, base: Option<u64>) -> Result<Record> {
        let is_before = |record: &Record| match point {
            Point::Commit(seq) => record.info.seqno <= seq,
            Point::Time(time) => record.info.created <= time,
        };
        if let Some(id) = base {
            let record = self.record(id)?;
            let text = || Error::NoBackup(format!("backup {id} was made after that moment"));
            return is_before(&record).then_some(record).ok_or_else(text);
        }
        // The database of the newest backup.
        let mut database = None;
        let mut found: Option<Record> = None;
        for id in self.ids()?.into_iter().rev() {
            let record = match self.record(id) {
                // If there is only one database, an earlier backup can be used. Otherwise the damaged record
                // may belong to the desired database.
                Err(error) if is_unusable(&error) && self.only_database()?.is_some() => continue,
                record => record?,
            };
            let is_of_it = *database.get_or_insert(record.info.database) == record.info.database;
            if is_of_it && found.is_none() && is_before(&record) {
                found = Some(record);
            } else if !is_of_it && matches!(point, Point::Commit(_)) && is_before(&record) {
                // Times can be compared across databases, commit numbers cannot.
                let text = "there are backups of several databases, which may all have a commit with that number: specify the backup to start with";
                return Err(Error::Invalid(text.to_owned()));
            }
        }
        found.ok_or_else(|| Error::NoBackup("there is no backup from before that moment".to_owned()))
    }

    /// Returns the segments to replay, in order (restore_point.1). A segment that was started before the
    /// backup and has later commits belongs to a history from which the database was reset.
    fn segments_for(&self, point: Point, record: &Record) -> Result<Vec<Segment>> {
        let backup = &record.info;
        let mut at = backup.seqno;
        let mut chosen = Vec::new();
        let is_over = |at: SeqNo| matches!(point, Point::Commit(seq) if at >= seq);
        let all = self.segments_here()?;
        while !is_over(at) {
            let follows = |segment: &&Segment| {
                let is_of_it = segment.database == backup.database && segment.backup >= backup.id;
                if canary::is_set(Canary::ArchiveByClock) && segment.created < backup.created {
                    return false;
                }
                is_of_it && segment.after <= at && segment.last > at
            };
            let Some(next) = all.iter().filter(follows).max_by_key(|segment| segment.last) else { break };
            if chosen.is_empty() && self.digest_in(next, at)? != record.tip {
                return Err(Error::OtherHistory(format!(
                    "the archive continues another history than backup {}, which has a different commit {at}: specify an earlier or later backup",
                    backup.id
                )));
            }
            chosen.push(*next);
            at = next.last;
        }
        match point {
            Point::Commit(seq) if at < seq => Err(Error::NoBackup(format!(
                "commit {seq} cannot be restored: from backup {} on, the archive has commits up to {at}",
                backup.id
            ))),
            Point::Commit(_) => Ok(chosen),
            Point::Time(time) => {
                // restore_point.3
                let last = chosen.iter().rposition(|segment| segment.created <= time);
                chosen.truncate(last.map_or(0, |last| last + 1));
                Ok(chosen)
            }
        }
    }

    fn replay(&self, db: &Db, point: Point, from: SeqNo, segments: &[Segment]) -> Result<SeqNo> {
        let mut replay = Replay::new(db)?;
        let (mut at, mut digest) = (from, None);
        for segment in segments {
            let path = self.segment_path(segment);
            let mut reader = Reader::open(&self.env, &path)?;
            if digest.is_some() && reader.head.before == at && reader.head.digest_before != digest {
                return Err(Error::OtherHistory(format!(
                    "the commits of {} may not follow the commits before them: start with backup {} or a later one",
                    path.display(),
                    reader.head.backup
                )));
            }
            loop {
                if matches!(point, Point::Commit(seq) if at >= seq) {
                    return Ok(at);
                }
                // Commits contained in the backup are not replayed.
                let is_new = reader.last >= at;
                match reader.next()? {
                    Item::Changes(changes) if is_new => replay.take(changes, |_, _| {})?,
                    Item::Changes(_) => {}
                    Item::Commit(seq) if is_new => {
                        replay.commit(Durability::None)?;
                        at = seq;
                    }
                    Item::Commit(_) => {}
                    Item::End => break,
                }
            }
            digest = reader.digest;
        }
        Ok(at)
    }
}
