//! Archives the change feed next to the backups: the commits between backups.
//!
//! ```text
//!   Db --feed, from the end of the last segment--> feed/DATABASE-BEFORE-LAST.segment
//! ```
//!
//! The segments of a database follow one another without a gap, or a backup closes the gap. From each backup
//! on, the commits up to the last connected segment can be replayed.
//!
//! archive.2. A segment continues at the last commit of the previous segment, or at the backup that it starts
//!     with. The digest of that commit proves this. The digest of a backup's commit inside a segment must
//!     match too. Otherwise archiving is refused, because the database may have been reset to an older state.

use std::path::PathBuf;
use std::time::Duration;

use super::record::Record;
use super::segment::{self, Head, Item, PIECE_BYTES, Writer};
use super::{Backup, BackupInfo};
use crate::db::{Db, Feed, FeedCommit};
use crate::encoding::digest::{Digest, Digester};
use crate::encryption::Unlock;
use crate::replay::encode;
use crate::types::{Error, Result, SeqNo};

const ENDING: &str = ".segment";
/// How long to wait for a durable commit to appear in the feed.
const PATIENCE: Duration = Duration::from_secs(10);

/// A segment of the archive, or the result of [`Backup::archive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Segment {
    /// Id of the database.
    pub database: u32,
    /// The segment holds the commits after this one.
    pub after: SeqNo,
    /// The last commit.
    pub last: SeqNo,
    /// The newest backup of the database when the segment was created. The segment can be replayed on backups
    /// up to this one.
    pub backup: u64,
    /// Creation time, in seconds since 1970 on the wall clock. Its commits were made before.
    pub created: u64,
    /// Size of the segment in bytes.
    pub bytes: u64,
}

impl Backup {
    /// Archives the commits since the last call, or since the newest backup on the first call. Returns `None`
    /// if there are no new commits. The database needs a [feed](crate::Builder::feed_retention) that is
    /// retained for longer than the time between calls.
    ///
    /// # Errors
    /// [`Error::NoBackup`] if there is none of the database; [`Error::Corrupt`] if a damaged record may be of
    /// it; [`Error::NoFeed`]; [`Error::OtherHistory`] if the database was reset to an older state;
    /// [`Error::FeedTruncated`] if commits in between are no longer retained (make a backup, then continue);
    /// [`Error::Locked`]; [`Error::Io`], [`Error::NoSpace`].
    pub fn archive(&mut self, db: &Db) -> Result<Option<Segment>> {
        self.lock_to_create(&db.handle.core.env)?.add(db)
    }

    fn add(&mut self, db: &Db) -> Result<Option<Segment>> {
        let core = &db.handle.core;
        let upto = db.snapshot().seqno();
        db.sync()?;
        let database = core.database_id();
        // A damaged record may be the newest of this database.
        let (newest, damage) = self.newest_of(database)?;
        let Some(newest) = newest else {
            let none = "there is no backup of this database: make one before archiving";
            return Err(damage.unwrap_or_else(|| Error::NoBackup(none.to_owned())));
        };
        let begun = self.begin(db, &newest, upto);
        let Start { before, digest, mut feed } = begun.map_err(|error| match error {
            // The newest backup may have had these commits.
            Error::FeedTruncated { .. } => damage.unwrap_or(error),
            error => error,
        })?;
        if before >= upto {
            return Ok(None);
        }
        let created = core.env.clock.unix_time().as_secs();
        let dir = self.segments_dir();
        self.make_dir(&dir)?;
        let incoming = self.incoming(&dir);
        let head = Head { database, backup: newest.info.id, created, before, digest_before: digest };
        let mut writer = Writer::create(&self.env, &incoming, &head)?;
        while writer.last < upto {
            let Some(mut commit) = feed.next_within(PATIENCE)? else {
                let detail = format!("the change feed does not reach commit {upto}, which is durable");
                return Err(Error::Invalid(detail));
            };
            each_piece(&mut commit, |changes| writer.changes(changes))?;
            writer.commit(commit.seqno())?;
            // archive.2
            if writer.last == newest.info.seqno && writer.digest != newest.tip {
                return Err(of_another(&newest));
            }
        }
        let last = writer.last;
        let bytes = writer.finish()?;
        core.check_ours()?;
        let segment = Segment { database, after: before, last, backup: newest.info.id, created, bytes };
        let path = self.segment_path(&segment);
        self.env.fs.rename_new(&incoming, &path).map_err(|e| Error::io("rename", &incoming, e))?;
        self.sync_dir(&dir)?;
        self.sync_dir(&self.dir)?;
        Ok(Some(segment))
    }

    /// Determines where the next segment starts.
    fn begin(&self, db: &Db, newest: &Record, upto: SeqNo) -> Result<Start> {
        let BackupInfo { database, seqno, id, .. } = newest.info;
        let of_it = self.spans()?.into_iter().filter(|span| span.database == database);
        if let Some(last) = of_it.max_by_key(|span| span.last) {
            let last = self.segment_of(last)?;
            match self.go_on(db, &last, upto) {
                Ok(start) => {
                    let is_proved = last.backup >= id || seqno > last.last;
                    let is_same = is_proved
                        || match self.archived(database, seqno)? {
                            Archived::Missing => true,
                            Archived::Commit(digest) => digest == newest.tip,
                        };
                    return if is_same { Ok(start) } else { Err(of_another(newest)) };
                }
                // A backup closes the gap.
                Err(Error::FeedTruncated { .. }) if seqno >= last.last => {}
                Err(error) => return Err(error),
            }
        }
        begin_with(db, newest, upto)
    }

    /// Continues after the last segment, if its last commit is in the database (archive.2).
    fn go_on(&self, db: &Db, last: &Segment, upto: SeqNo) -> Result<Start> {
        let put_back = || {
            Error::OtherHistory(format!(
                "the archive ends with a commit {} that this database does not have: it was reset to an older state; remove {} and make a backup",
                last.last,
                self.segments_dir().display()
            ))
        };
        if last.last > upto {
            return Err(put_back());
        }
        let mut reader = segment::Reader::open(&self.env, &self.segment_path(last))?;
        reader.check()?;
        let mut feed = db.feed_after(last.last.prev())?;
        match digest_of(&mut feed)? {
            digest if digest.is_some() && digest == reader.digest => {
                Ok(Start { before: last.last, digest, feed })
            }
            _ => Err(put_back()),
        }
    }

    /// Looks up a commit in the archive.
    fn archived(&self, database: u32, seq: SeqNo) -> Result<Archived> {
        let has = |span: &Span| span.database == database && span.after <= seq && span.last >= seq;
        // A segment that ends with the commit has its digest, and a segment that starts after it may have it.
        match self.spans()?.into_iter().find(has) {
            None => Ok(Archived::Missing),
            Some(span) => self.digest_in(&self.segment_of(span)?, seq).map(Archived::Commit),
        }
    }

    /// Returns the digest of a commit of a segment, or of the commit before it.
    pub(super) fn digest_in(&self, segment: &Segment, seq: SeqNo) -> Result<Option<Digest>> {
        let mut reader = segment::Reader::open(&self.env, &self.segment_path(segment))?;
        while reader.last < seq {
            if matches!(reader.next()?, Item::End) {
                return Ok(None);
            }
        }
        Ok(reader.digest)
    }

    /// Returns the segments of the archive, ordered by database and commit.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Corrupt`] if the start of a segment is damaged.
    pub fn segments(&self) -> Result<Vec<Segment>> {
        match self.look()? {
            true => self.held()?.unlocked(Unlock::Read)?.segments_here(),
            false => Ok(Vec::new()),
        }
    }

    pub(super) fn segments_here(&self) -> Result<Vec<Segment>> {
        self.spans()?.into_iter().map(|span| self.segment_of(span)).collect()
    }

    /// Returns what the names of the segments say, ordered by database and commit. Reads no segment.
    pub(super) fn spans(&self) -> Result<Vec<Span>> {
        let mut spans: Vec<Span> =
            self.names(&self.segments_dir())?.iter().filter_map(|name| parse(name)).collect();
        spans.sort_unstable();
        Ok(spans)
    }

    /// Reads the start of a segment.
    fn segment_of(&self, span: Span) -> Result<Segment> {
        let Span { database, after, last } = span;
        let path = self.segments_dir().join(span.name());
        let Head { database: of_head, before, backup, created, .. } =
            segment::Reader::open(&self.env, &path)?.head;
        if (of_head, before) != (database, after) {
            return Err(Error::corrupt("segment of the feed", path, 0, "the file was renamed"));
        }
        let bytes = self.env.fs.file_size(&path).map_err(|e| Error::io("measure", &path, e))?;
        Ok(Segment { database, after, last, backup, created, bytes })
    }

    pub(super) fn segments_dir(&self) -> PathBuf {
        self.dir.join("feed")
    }

    pub(super) fn segment_path(&self, segment: &Segment) -> PathBuf {
        let &Segment { database, after, last, .. } = segment;
        self.segments_dir().join(Span { database, after, last }.name())
    }
}

/// What the name of a segment says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    pub(super) database: u32,
    after: SeqNo,
    last: SeqNo,
}

impl Span {
    fn name(self) -> String {
        let Span { database, after, last } = self;
        format!("{database:08x}-{:012}-{:012}{ENDING}", after.get(), last.get())
    }
}

/// What the archive knows about a commit.
enum Archived {
    /// The archive does not have the commit.
    Missing,
    /// The digest of the commit, if it has one.
    Commit(Option<Digest>),
}

/// Where a segment starts: after this commit, which has this digest, with the feed from there on.
struct Start {
    before: SeqNo,
    digest: Option<Digest>,
    feed: Feed,
}

/// Starts after a backup, whose last commit the database must have (archive.2).
fn begin_with(db: &Db, newest: &Record, upto: SeqNo) -> Result<Start> {
    let (before, digest) = (newest.info.seqno, newest.tip);
    if before > upto {
        return Err(of_another(newest));
    }
    match db.feed_after(before.prev()) {
        // The feed did not contain the commit when the backup was made. Every database starts empty, so
        // commit 0 needs no proof.
        Err(Error::FeedTruncated { .. }) if digest.is_none() => {}
        _ if before == SeqNo::ZERO => {}
        feed => {
            let mut feed = feed?;
            return match digest_of(&mut feed)? {
                there if there.is_some() && there == digest => Ok(Start { before, digest, feed }),
                _ => Err(of_another(newest)),
            };
        }
    }
    Ok(Start { before, digest, feed: db.feed_after(before)? })
}

fn of_another(backup: &Record) -> Error {
    let BackupInfo { id, seqno, .. } = backup.info;
    Error::OtherHistory(format!(
        "commit {seqno} of backup {id} may not be a commit of this database, which may have been reset to an older state: make another backup, then continue"
    ))
}

/// Returns the digest of the next commit.
pub(super) fn digest_of(feed: &mut Feed) -> Result<Option<Digest>> {
    let Some(mut commit) = feed.next_within(PATIENCE)? else { return Ok(None) };
    let mut digester = Digester::default();
    each_piece(&mut commit, |changes| {
        digester.add(changes);
        Ok(())
    })?;
    Ok(Some(digester.finish()))
}

/// Passes the changes of a commit to `call`, encoded as in a segment.
fn each_piece(commit: &mut FeedCommit, mut call: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut changes = Vec::new();
    while let Some(change) = commit.next_change()? {
        encode(&change, &mut changes)?;
        if changes.len() >= PIECE_BYTES {
            call(&changes)?;
            changes.clear();
        }
    }
    call(&changes)
}

fn parse(name: &str) -> Option<Span> {
    let mut parts = name.strip_suffix(ENDING)?.split('-');
    let database = u32::from_str_radix(parts.next()?, 16).ok()?;
    let mut number = || SeqNo::try_new(parts.next()?.parse().ok()?);
    let (after, last) = (number()?, number()?);
    parts.next().is_none().then_some(Span { database, after, last })
}
