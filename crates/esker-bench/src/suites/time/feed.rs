//! Rows of the change feed, which only Esker has.
//!
//! ```text
//! database without a feed  <-- commits
//! database with a feed     <-- commits;  Feed --commit by commit--> a reader in another thread
//!                          Feed from the first commit on
//!                          the same commits from the log's files, with a checksum and not decoded
//! ```
//!
//! A reader of the feed sees each commit once, in order, with the key and the value that were committed.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use esker::{Db, FeedChange, FeedCommit, Keyspace, SeqNo};
use esker_bench_api::generate::checksum::{checksum, probe};
use esker_bench_api::generate::entries::Entries;
use esker_bench_api::{Engine, Failure, Result};

use super::{CACHE_BYTES, FEED, ITEM_BYTES, NO_FEED, READ_FEED, READ_LOG, SEED};
use crate::recorder::{Outcome, Recorder};
use crate::suites::interpret::recorded;
use crate::suites::plan::Budget;
use crate::suites::works::Calls;

const HOME: &str = "esker";
const NOT_HOME: &str = "it has no change feed that survives the process";
/// The feed keeps every commit of a row.
const RETENTION: Duration = Duration::from_secs(24 * 3600);
/// How long the reader waits for a commit before it checks whether the writer has ended.
const PATIENCE: Duration = Duration::from_millis(20);
/// How long the reader may take for the remaining commits after the writer has ended.
const LAG_MAX: Duration = Duration::from_secs(120);
const PASSES: usize = 3;

pub(super) fn run(engine: &dyn Engine, budget: Budget, recorder: &mut Recorder) -> Result<()> {
    if engine.name() != HOME {
        return Err(Failure::Unsupported(NOT_HOME.to_owned()));
    }
    let (dir, entries) = (recorder.dir().to_path_buf(), Entries::new(SEED, 0, 0));
    let calls = || Calls::new(&["commit"], budget, &dir);
    let plain = Db::builder().memory(CACHE_BYTES).open(dir.join("plain"))?;
    recorder.row(NO_FEED, || Ok(write(&plain, entries, calls()?)?.0))?;
    recorder.drain_by(|_| Ok(()))?;
    plain.close()?;

    let with_feed = dir.join("feed");
    let builder = Db::builder().memory(CACHE_BYTES).feed_retention(u64::MAX, RETENTION);
    let db = builder.open(&with_feed)?;
    let mut written = Seen::default();
    recorder.row(FEED, || {
        let (outcome, all) = write_and_follow(&db, entries, calls()?)?;
        written = all;
        Ok(outcome)
    })?;
    recorder.drain_by(|_| db.sync().map_err(Failure::engine))?;
    let rate = |seconds| Outcome {
        seconds: Some(seconds),
        ops: Some(written.commits),
        live_bytes: written.commits * ITEM_BYTES,
        ..Outcome::default()
    };
    recorder.row_of_passes(READ_FEED, PASSES, || {
        let start = Instant::now();
        let mut feed = db.feed_after(SeqNo::ZERO)?;
        let mut seen = Seen::default();
        while let Some(commit) = feed.try_next()? {
            seen.add_commit(commit)?;
        }
        let seconds = start.elapsed().as_secs_f64();
        seen.expect(written)?;
        Ok(rate(seconds))
    })?;
    recorder.row_of_passes(READ_LOG, PASSES, || {
        let start = Instant::now();
        let bytes = read_log(&with_feed)?;
        let seconds = start.elapsed().as_secs_f64();
        if bytes < written.commits * ITEM_BYTES {
            return Err(Failure::Wrong(format!("the log's files have {bytes} bytes, fewer than the items")));
        }
        let mut outcome = rate(seconds);
        let figures = &mut outcome.detail.get_or_insert_default().figures;
        figures.insert("bytes of the log's files".to_owned(), bytes as f64);
        Ok(outcome)
    })?;
    db.close().map_err(Failure::engine)
}

/// Summary of the items that a reader of the feed has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    commits: u64,
    sum: u64,
}

impl Seen {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        self.commits += 1;
        self.sum = self.sum.rotate_left(1) ^ probe(key) ^ probe(value);
    }

    /// A commit without a put belongs to the catalog.
    fn add_commit(&mut self, mut commit: FeedCommit) -> Result<()> {
        while let Some(change) = commit.next_change()? {
            if let FeedChange::Put { key, value, .. } = change {
                self.add(key, value.bytes().unwrap_or_default());
            }
        }
        Ok(())
    }

    /// Fails unless the feed has the commits of the writer, each once and in order.
    fn expect(self, written: Self) -> Result<()> {
        if self == written {
            return Ok(());
        }
        Err(Failure::Wrong(format!("the feed has {self:?}, but the writer {written:?}")))
    }
}

/// Commits items until the budget is used up.
fn write(db: &Db, entries: Entries, mut calls: Calls) -> Result<(Outcome, Seen)> {
    let (map, mut written): (Keyspace, Seen) = (db.default_keyspace(), Seen::default());
    while calls.are_left() {
        let (key, value) = (entries.key(written.commits), entries.value(written.commits));
        calls.call(0, || {
            map.with(esker::Durability::Buffered).put(key, value).map(drop).map_err(Failure::engine)
        })?;
        written.add(&key, &value);
    }
    let bytes = written.commits * ITEM_BYTES;
    Ok((recorded(calls.finish(written.commits, bytes, bytes)), written))
}

/// The same, with a reader that follows.
fn write_and_follow(db: &Db, entries: Entries, calls: Calls) -> Result<(Outcome, Seen)> {
    // It orders nothing, so `Relaxed` is enough.
    let has_ended = AtomicBool::new(false);
    let (outcome, ended, followed) = thread::scope(|scope| {
        let reader = scope.spawn(|| follow(db, &has_ended));
        let outcome = write(db, entries, calls);
        let ended = Instant::now();
        has_ended.store(true, Ordering::Relaxed);
        // The feed has buffered commits after they are on the disk.
        let synced = db.sync().map_err(Failure::engine);
        let followed = reader.join().unwrap_or_else(|_| Err(Failure::engine("the reader panicked")));
        (synced.and(outcome), ended, followed)
    });
    let ((mut outcome, written), followed) = (outcome?, followed?);
    followed.seen.expect(written)?;
    let behind = followed.at.saturating_duration_since(ended);
    let figures = &mut outcome.detail.get_or_insert_default().figures;
    figures.insert(
        "commits left to read at the end".to_owned(),
        (written.commits - followed.while_written) as f64,
    );
    figures.insert("seconds to read them".to_owned(), behind.as_secs_f64());
    Ok((outcome, written))
}

struct Followed {
    seen: Seen,
    /// Number of commits that it had read when it saw that the writer had ended.
    while_written: u64,
    /// Time of the last commit read.
    at: Instant,
}

/// Reads the feed until the writer has ended and nothing is left.
fn follow(db: &Db, has_ended: &AtomicBool) -> Result<Followed> {
    let mut feed = db.feed_after(SeqNo::ZERO)?;
    let mut followed = Followed { seen: Seen::default(), while_written: 0, at: Instant::now() };
    let mut end: Option<Instant> = None;
    loop {
        let next = feed.next_within(PATIENCE)?;
        if has_ended.load(Ordering::Relaxed) && end.is_none() {
            followed.while_written = followed.seen.commits;
            end = Some(Instant::now() + LAG_MAX);
        }
        match next {
            Some(commit) => {
                followed.seen.add_commit(commit)?;
                followed.at = Instant::now();
            }
            // Nothing came for a while after the end.
            None if end.is_some() && followed.at.elapsed() > 10 * PATIENCE => return Ok(followed),
            None => {}
        }
        if end.is_some_and(|end| Instant::now() > end) {
            return Err(Failure::engine("the reader of the feed did not come to its end"));
        }
    }
}

/// Reads all files of the log, and returns their bytes.
fn read_log(dir: &Path) -> Result<u64> {
    let (mut bytes, mut sum) = (0, 0_u64);
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "wal") {
            let segment = std::fs::read(&path)?;
            bytes += segment.len() as u64;
            sum = sum.wrapping_add(checksum(&[], &segment));
        }
    }
    std::hint::black_box(sum);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_that_is_missing_doubled_or_out_of_order_is_found() {
        let entries = Entries::new(SEED, 0, 0);
        let seen = |items: &[u64]| {
            let mut seen = Seen::default();
            items.iter().for_each(|i| seen.add(&entries.key(*i), &entries.value(*i)));
            seen
        };
        let written = seen(&[1, 2, 3]);
        assert!(seen(&[1, 2, 3]).expect(written).is_ok());
        for wrong in [&[1, 2][..], &[1, 2, 3, 3], &[2, 1, 3], &[1, 2, 4]] {
            assert!(seen(wrong).expect(written).is_err(), "{wrong:?}");
        }
    }
}
