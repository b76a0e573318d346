//! A database as it was at a moment between two backups.
//!
//! ```text
//!   point --> the newest backup before it --files--> workplace --segments, commit by commit--> the database, renamed when it is whole
//! ```
//!
//! restore_point.1. A restore gives the state after the commit that it returns, of one backup and of all commits since. Where commits are missing nothing is restored,
//!      nor if the archive has another commit than the backup under the number of the backup's last one.
//! restore_point.2. It is another history from then on: what a server has noted of its replication is left out.
//! restore_point.3. The order of backups, segments and commits follows from their numbers. The wall clock is asked for one thing: which is
//!      the last backup or segment that was made by a given time. What was made before that one belongs to it, whatever the clock showed.

use std::path::Path;

use super::record::{Record, is_unusable};
use super::segment::{Item, Reader};
use super::{Backup, BackupInfo, Segment};
use crate::db::{Builder, Db};
use crate::replay::Replay;
use crate::txn::commit::Durability;
use crate::types::canary::{self, Canary};
use crate::types::{Error, Result, SeqNo};

/// The keyspace of a server's notes of its replication (restore_point.2).
const REPLICATION: &str = "es.repl";

/// A moment to go back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// Right after this commit.
    Commit(SeqNo),
    /// All that was archived, or in a backup, by then, in seconds since 1970.
    Time(u64),
}

/// What [`Backup::restore_to`] has restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// The backup that it began with.
    pub backup: u64,
    /// The number that its database has for itself.
    pub database: u32,
    /// The commit that it is the state after, as it was counted then.
    pub seqno: SeqNo,
    /// Commits that were made again.
    pub commits: u64,
    /// When the segment with the last of these was made, or the backup if there are none: in seconds since 1970. A later
    /// [`Point::Time`] restores no more than there is.
    pub made: u64,
}

impl Backup {
    /// Makes a database as it was at a moment, in a directory that is not there yet: from the newest backup before that moment, or from `base`, and
    /// the [archive](Self::archive). It is there as a whole, or not at all. `builder` opens it while commits are made again: it has to know the merge operators. Its compaction filters are not asked.
    ///
    /// # Errors
    /// [`Error::Invalid`] if no backup is old enough, or commits are missing; those of [`restore`](Self::restore); [`Error::Corrupt`] naming a segment that is damaged, or without `base` the record of a backup that may be of another database;
    /// [`Error::MergeOperatorMissing`].
    pub fn restore_to(
        &mut self,
        point: Point,
        base: Option<u64>,
        dir: impl AsRef<Path>,
        builder: Builder,
    ) -> Result<Restored> {
        let mut here = self.lock_to_read()?;
        let record = here.base(point, base)?;
        let BackupInfo { id: backup, database, seqno: from, created, .. } = record.info;
        let segments = here.segments_for(point, &record)?;
        let workplace = here.workplace(dir.as_ref())?;
        here.put(&workplace, record)?;
        let env = workplace.held().clone();
        let db = builder.for_copy().env(env).open(workplace.dir())?;
        let seqno = here.replay(&db, point, from, &segments)?;
        if db.open_keyspace(REPLICATION).is_ok() {
            db.drop_keyspace(REPLICATION)?;
        }
        db.close()?;
        workplace.finish()?;
        let made = segments.last().map_or(created, |segment| segment.created);
        Ok(Restored { backup, database, seqno, commits: seqno.get() - from.get(), made })
    }

    /// The backup to begin with.
    fn base(&self, point: Point, base: Option<u64>) -> Result<Record> {
        let is_before = |record: &Record| match point {
            Point::Commit(seq) => record.info.seqno <= seq,
            Point::Time(time) => record.info.created <= time,
        };
        if let Some(id) = base {
            let record = self.record(id)?;
            let text = || Error::Invalid(format!("backup {id} was made after that moment"));
            return is_before(&record).then_some(record).ok_or_else(text);
        }
        // Of the database that was backed up last.
        let mut database = None;
        let mut found: Option<Record> = None;
        for id in self.ids()?.into_iter().rev() {
            let record = match self.record(id) {
                // Of the only database, another backup does as well. Else it may be of the database that is meant.
                Err(error) if is_unusable(&error) && self.only_database()?.is_some() => continue,
                record => record?,
            };
            let is_of_it = *database.get_or_insert(record.info.database) == record.info.database;
            if is_of_it && found.is_none() && is_before(&record) {
                found = Some(record);
            } else if !is_of_it && matches!(point, Point::Commit(_)) && is_before(&record) {
                // Times are the same for all, and numbers are not.
                let text = "there are backups of several databases, and each may have a commit of that number: name the backup to begin with";
                return Err(Error::Invalid(text.to_owned()));
            }
        }
        found.ok_or_else(|| Error::Invalid("there is no backup from before that moment".to_owned()))
    }

    /// The segments to go through, in their order (restore_point.1). A segment that was begun before the backup was made, and has
    /// later commits, is of a history that the database was put back from.
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
                return Err(Error::Invalid(format!(
                    "the archive goes on from another history than that of backup {}, which has another commit {at}: name an earlier or later backup",
                    backup.id
                )));
            }
            chosen.push(*next);
            at = next.last;
        }
        match point {
            Point::Commit(seq) if at < seq => Err(Error::Invalid(format!(
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
                return Err(Error::Invalid(format!(
                    "nothing proves that the commits of {} follow those before them: begin with backup {} or a later one",
                    path.display(),
                    reader.head.backup
                )));
            }
            loop {
                if matches!(point, Point::Commit(seq) if at >= seq) {
                    return Ok(at);
                }
                // Of commits that the backup has, nothing is made again.
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
