//! Iterators, the change feed, watches and listeners as streams, for async code (feature `tokio`).
//!
//! ```text
//!   Range, Keys, Versions, Changes --one batch at a time, on blocking threads--> EntryStream
//!   Feed --------------the same; no new commit: its shelf wakes the task-------> FeedStream
//!   Watch, Listener ---one event at a time, from the queue in memory-----------> EventStream
//!                                        no event: the next commit wakes the task
//! ```
//!
//! The polling task never waits for a disk, or for a lock that is held over I/O. `spawn_blocking` does.
//!
//! - Cancel-safe: an item leaves the stream only when the poll that returns it is ready. A dropped stream's
//!   pending read ends by itself.
//! - The first batch is small. A batch is limited in bytes, but has at least one item.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use tokio::task::{JoinHandle, spawn_blocking};

use super::feed::{Feed, FeedCommit};
use super::key_handle::Key;
use super::past::{Changes, Version, Versions};
use super::range::{Keys, Range};
use super::watch::{Change, Listener, Notice, Watch, to_change, to_notice};
use crate::txn::watchers::{Event, Watcher};
use crate::types::{Error, Result, SeqNo, Value};

/// Items of the first and of the largest batch.
const BATCH_LEN_MIN: usize = 8;
const BATCH_LEN_MAX: usize = 1024;
const BATCH_BYTES: usize = 256 << 10;
/// Commits in a batch of the feed. Each holds a log record in memory.
const COMMITS_MAX: usize = 16;

/// The items of a [`Range`], [`Keys`], [`Versions`] or [`Changes`] as a stream: made by their `into_stream`.
/// Poll it in a tokio runtime, whose blocking threads read ahead one batch at a time. It is safe to drop the
/// stream, or a future of [`next`](Self::next), at any time. No item of the stream is lost.
///
/// ```
/// # fn main() -> esker::Result<()> {
/// # let db = esker::Db::in_memory()?;
/// # let users = db.keyspace("users")?;
/// # users.put("ann", "1")?;
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// let mut entries = users.range("a".."c").into_stream();
/// while let Some(entry) = entries.next().await {
///     let (key, value) = entry?;
///     println!("{key:?} = {value:?}");
/// }
/// # Ok(())
/// # })
/// # }
/// ```
pub struct EntryStream<I: Iterator> {
    /// `None` while a batch is read, and at the end.
    walk: Option<I>,
    ready: std::vec::IntoIter<I::Item>,
    job: Option<JoinHandle<Batch<I, I::Item>>>,
    batch_len: usize,
    bytes_of: fn(&I::Item) -> usize,
}

/// The source with its remaining items, and the items read.
type Batch<S, T> = (Option<S>, Vec<T>);

impl Range {
    /// Converts the remaining entries, from the front, to a stream.
    pub fn into_stream(self) -> EntryStream<Range> {
        EntryStream::new(self, |entry: &Result<(Key, Value)>| {
            entry.as_ref().map_or(0, |(key, value)| key.len() + value.len())
        })
    }
}

impl Keys {
    /// Converts the remaining keys, from the front, to a stream.
    pub fn into_stream(self) -> EntryStream<Keys> {
        EntryStream::new(self, |key: &Result<Key>| key.as_ref().map_or(0, |key| key.len()))
    }
}

impl Versions {
    /// Converts the remaining versions to a stream.
    pub fn into_stream(self) -> EntryStream<Versions> {
        EntryStream::new(self, |version: &Result<Version>| {
            version.as_ref().map_or(0, |version| version.value.as_ref().map_or(0, |value| value.len()))
        })
    }
}

impl Changes {
    /// Converts the remaining changes to a stream. Take [`seqno`](Self::seqno) before.
    pub fn into_stream(self) -> EntryStream<Changes> {
        EntryStream::new(self, |change: &Result<(SeqNo, Change)>| match change {
            Ok((_, Change::Put { key, value })) => key.len() + value.as_ref().map_or(0, |value| value.len()),
            Ok((_, Change::Delete { key } | Change::Expire { key })) => key.len(),
            _ => 0,
        })
    }
}

impl<I: Iterator> EntryStream<I> {
    fn new(walk: I, bytes_of: fn(&I::Item) -> usize) -> Self {
        let ready = Vec::new().into_iter();
        EntryStream { walk: Some(walk), ready, job: None, batch_len: BATCH_LEN_MIN, bytes_of }
    }
}

impl<I> EntryStream<I>
where
    I: Iterator + Unpin + Send + 'static,
    I::Item: Send + Unpin,
{
    /// Returns the next item, or `None` after the last.
    pub async fn next(&mut self) -> Option<I::Item> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }
}

impl<I> Stream for EntryStream<I>
where
    I: Iterator + Unpin + Send + 'static,
    I::Item: Send + Unpin,
{
    type Item = I::Item;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<I::Item>> {
        let stream = self.get_mut();
        loop {
            if let Some(item) = stream.ready.next() {
                return Poll::Ready(Some(item));
            }
            if let Some(job) = &mut stream.job {
                let (walk, items) = finished(ready!(Pin::new(job).poll(context)));
                (stream.job, stream.walk, stream.ready) = (None, walk, items.into_iter());
                continue;
            }
            let Some(walk) = stream.walk.take() else { return Poll::Ready(None) };
            let (len, bytes_of) = (stream.batch_len, stream.bytes_of);
            stream.batch_len = (len * 4).min(BATCH_LEN_MAX);
            stream.job = Some(spawn_blocking(move || read_batch(walk, len, bytes_of)));
        }
    }
}

fn read_batch<I: Iterator>(mut walk: I, len: usize, bytes_of: fn(&I::Item) -> usize) -> Batch<I, I::Item> {
    let (mut items, mut bytes) = (Vec::with_capacity(len), 0);
    while items.len() < len && bytes < BATCH_BYTES {
        let Some(item) = walk.next() else { return (None, items) };
        bytes += bytes_of(&item);
        items.push(item);
    }
    (Some(walk), items)
}

/// Returns what a job has read. A job that was cancelled at the end of the runtime read nothing, and the
/// stream ends.
fn finished<S, T>(job: Result<Batch<S, T>, tokio::task::JoinError>) -> Batch<S, T> {
    job.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => (None, Vec::new()),
    })
}

/// The [change feed](Feed) as a stream: made by [`Feed::into_stream`]. It ends when the database is closed,
/// or after an error. It is safe to drop at any time, like [`EntryStream`].
pub struct FeedStream {
    feed: Option<Feed>,
    ready: std::vec::IntoIter<Result<FeedCommit>>,
    job: Option<JoinHandle<Batch<Feed, Result<FeedCommit>>>>,
    /// Change count of the shelf before the last batch was read.
    seen: u64,
    /// Whether the last batch was empty.
    has_read_all: bool,
}

impl Feed {
    /// Converts the remaining commits to a stream. A task that waits for the next commit occupies no thread.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let hour = std::time::Duration::from_secs(3600);
    /// # let db = esker::Db::builder().feed_retention(64 << 20, hour).open_in_memory()?;
    /// # db.default_keyspace().put("ann", "1")?;
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// let mut commits = db.feed_after(esker::SeqNo::ZERO)?.into_stream();
    /// if let Some(commit) = commits.next().await {
    ///     println!("commit {}", commit?.seqno());
    /// }
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub fn into_stream(self) -> FeedStream {
        FeedStream {
            feed: Some(self),
            ready: Vec::new().into_iter(),
            job: None,
            seen: 0,
            has_read_all: false,
        }
    }

    /// Reads commits that are available without waiting.
    fn read_batch(mut self) -> Batch<Feed, Result<FeedCommit>> {
        let mut commits = Vec::new();
        while commits.len() < COMMITS_MAX {
            match self.try_next() {
                Ok(Some(commit)) => commits.push(Ok(commit)),
                Ok(None) => break,
                Err(Error::Closed) => return (None, commits),
                Err(error) => {
                    commits.push(Err(error));
                    return (None, commits);
                }
            }
        }
        (Some(self), commits)
    }
}

impl FeedStream {
    /// Returns the next commit, or `None` when the database is closed, or after an error.
    pub async fn next(&mut self) -> Option<Result<FeedCommit>> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }
}

impl Stream for FeedStream {
    type Item = Result<FeedCommit>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<FeedCommit>>> {
        let stream = self.get_mut();
        loop {
            if let Some(commit) = stream.ready.next() {
                return Poll::Ready(Some(commit));
            }
            if let Some(job) = &mut stream.job {
                let (feed, commits) = finished(ready!(Pin::new(job).poll(context)));
                (stream.job, stream.feed, stream.ready) = (None, feed, commits.into_iter());
                stream.has_read_all = stream.ready.len() == 0;
                continue;
            }
            let Some(feed) = &stream.feed else { return Poll::Ready(None) };
            if stream.has_read_all && feed.wake_after(stream.seen, context.waker()) {
                return Poll::Pending;
            }
            let Some(feed) = stream.feed.take() else { return Poll::Ready(None) };
            stream.seen = feed.moves();
            stream.job = Some(spawn_blocking(move || feed.read_batch()));
        }
    }
}

/// The changes of a [`Watch`], or the notices of a [`Listener`], as a stream: made by their `into_stream`. It
/// ends when the database is closed. It needs no runtime, and a task that waits occupies no thread. It is
/// safe to drop at any time, like [`EntryStream`].
pub struct EventStream<T> {
    watcher: Arc<Watcher>,
    convert: fn((SeqNo, Event)) -> (SeqNo, T),
}

impl Watch {
    /// Converts the queued and later changes to a stream.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let db = esker::Db::in_memory()?;
    /// # let users = db.keyspace("users")?;
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// let mut changes = users.watch("a".."c")?.into_stream();
    /// users.put("bob", "1")?;
    /// let (seqno, change) = changes.next().await.expect("the database is open");
    /// println!("commit {seqno}: {change:?}");
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub fn into_stream(self) -> EventStream<Change> {
        EventStream { watcher: self.watcher, convert: to_change }
    }
}

impl Listener {
    /// Converts the queued and later notices to a stream.
    pub fn into_stream(self) -> EventStream<Notice> {
        EventStream { watcher: self.watcher, convert: to_notice }
    }
}

impl<T> EventStream<T> {
    /// Returns the next event and its commit, or `None` when the database is closed.
    pub async fn next(&mut self) -> Option<(SeqNo, T)> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }
}

impl<T> Stream for EventStream<T> {
    type Item = (SeqNo, T);

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<(SeqNo, T)>> {
        self.watcher.poll_next(context.waker()).map(|event| event.map(self.convert))
    }
}
