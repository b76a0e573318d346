//! Watches of keys and listeners to topics.

use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use super::Db;
use super::bounds::{encode_bounds, prefix_bounds};
use super::key_handle::Key;
use super::keyspace::Keyspace;
use crate::txn::watchers::{Event, Interest, Watcher};
use crate::types::bounds::Bounds;
use crate::types::key::decode_key;
use crate::types::key_range::KeyRange;
use crate::types::{KeyBounds, Result, SeqNo, Value};

/// A committed change of a key, as [`Keyspace::watch`] and [`Keyspace::since`] report it. The
/// [feed](crate::Db::feed_after) has the same names, with more detail: [`FeedChange`](crate::FeedChange).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change<K = Key, V = Value> {
    /// A key was set to a value.
    Put {
        /// The key.
        key: K,
        /// The value. A watch gives `None` if it is in a blob file or too large to queue in memory, or if a
        /// merge made it: read the key.
        value: Option<V>,
    },
    /// A key was removed. It may have been absent.
    Delete {
        /// The key.
        key: K,
    },
    /// A key has expired and was swept, some time after readers stopped finding it. A watch that begins
    /// during a sweep may report a range instead. [`Keyspace::since`] reports it as `Delete`.
    Expire {
        /// The key.
        key: K,
    },
    /// All keys of a range were removed. The range may extend beyond the watched keys.
    DeleteRange {
        /// The first key of the range.
        start: Key,
        /// The first key after the range. `None`: the range reaches to the end of the keyspace.
        end: Option<Key>,
    },
    /// Changes up to here are not reported: too many were queued, they took too much memory, or a commit was
    /// so large that it was written as tables. Read the watched keys again. All watches and listeners of a
    /// database share an eighth of [`Builder::memory`](crate::Builder::memory), in equal parts of at least
    /// 64 KiB.
    Missed,
}

/// Changes of keys, in commit order: made by [`Keyspace::watch`]. As an iterator it waits for the next
/// change, and ends when the database is closed.
#[derive(Debug)]
pub struct Watch {
    pub(super) watcher: Arc<Watcher>,
}

/// Notices under topics: made by [`Db::listen`]. As an iterator it waits for the next notice, and ends when
/// the database is closed.
#[derive(Debug)]
pub struct Listener {
    pub(super) watcher: Arc<Watcher>,
}

/// A notice sent under a topic by [`Transaction::notify`](crate::Transaction::notify).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// A notice.
    Said {
        /// The topic.
        topic: Arc<str>,
        /// The text of the notice.
        text: Value,
    },
    /// Some notices up to here are not reported: too many were queued, or they took too much memory.
    Missed,
}

impl Keyspace {
    /// Watches a range of keys for changes committed from now on.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let db = esker::Db::in_memory()?;
    /// let users = db.keyspace("users")?;
    /// let mut watch = users.watch("a".."c")?;
    /// users.put("bob", "1")?;
    /// users.put("dan", "2")?;
    /// let (seqno, change) = watch.next().expect("the database is open");
    /// println!("commit {seqno}: {change:?}");
    /// assert!(watch.try_next().is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`KeyspaceNotFound`](crate::Error::KeyspaceNotFound) if the keyspace was dropped.
    pub fn watch(&self, range: impl KeyBounds) -> Result<Watch> {
        self.watch_between(encode_bounds(self.state.id, &range), false)
    }

    /// Watches all keys with this prefix.
    ///
    /// # Errors
    /// Those of [`watch`](Self::watch).
    pub fn watch_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Watch> {
        self.watch_between(prefix_bounds(self.state.id, prefix.as_ref()), false)
    }

    /// Same as [`watch`](Self::watch), but keeps only the newest queued change of each key.
    ///
    /// # Errors
    /// Those of [`watch`](Self::watch).
    pub fn watch_newest(&self, range: impl KeyBounds) -> Result<Watch> {
        self.watch_between(encode_bounds(self.state.id, &range), true)
    }

    fn watch_between(&self, bounds: Bounds, is_coalesced: bool) -> Result<Watch> {
        let core = self.core();
        core.check_open()?;
        core.check_there(&self.state)?;
        let (start, end) = super::range::ends(&bounds);
        let interest = Interest::Keys(KeyRange { start, end });
        Ok(Watch { watcher: core.pipeline.watchers.add(interest, is_coalesced, core.cache.budget()) })
    }
}

fn user_key(encoded: &[u8]) -> Option<Key> {
    decode_key(encoded).map(|(_, key)| Key::new(key))
}

impl Watch {
    /// Returns the next change and its commit, if one is queued.
    pub fn try_next(&mut self) -> Option<(SeqNo, Change)> {
        self.next_within(Duration::ZERO)
    }

    /// Returns the next change and its commit, waiting up to `patience` for it.
    pub fn next_within(&mut self, patience: Duration) -> Option<(SeqNo, Change)> {
        self.watcher.next(Some(patience)).map(to_change)
    }

    /// Returns the next change and its commit, or `None` once the database is closed. If none is queued, the
    /// result is `Pending`, and `waker` is called at the next change. The call may come from a thread that is
    /// committing: it must not use the database. With the feature `tokio`, `into_stream` makes a stream.
    pub fn poll_next(&mut self, waker: &Waker) -> Poll<Option<(SeqNo, Change)>> {
        self.watcher.poll_next(waker).map(|next| next.map(to_change))
    }

    /// Returns whether the database is closed. Then only queued changes remain.
    pub fn is_ended(&self) -> bool {
        self.watcher.is_ended()
    }
}

pub(super) fn to_change((seq, event): (SeqNo, Event)) -> (SeqNo, Change) {
    let known = |key: Vec<u8>| user_key(&key).unwrap_or_else(|| Key::new(&[]));
    let change = match event {
        Event::Put(key, value) => Change::Put { key: known(key), value },
        Event::Removed(key) => Change::Delete { key: known(key) },
        Event::Expired(key) => Change::Expire { key: known(key) },
        Event::RangeRemoved(start, end) => {
            let of = decode_key(&start).map(|(id, _)| id);
            let end = decode_key(&end).filter(|(id, _)| Some(*id) == of).map(|(_, key)| Key::new(key));
            Change::DeleteRange { start: known(start), end }
        }
        Event::Notice(..) | Event::Missed => Change::Missed,
    };
    (seq, change)
}

impl Iterator for Watch {
    type Item = (SeqNo, Change);
    fn next(&mut self) -> Option<Self::Item> {
        self.watcher.next(None).map(to_change)
    }
}

impl Db {
    /// Listens to the notices that transactions send under a topic from now on.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let db = esker::Db::in_memory()?;
    /// let mut listener = db.listen("jobs")?;
    /// let mut transaction = db.begin();
    /// transaction.put(&db.default_keyspace(), "job 7", "todo")?;
    /// transaction.notify("jobs", "job 7");
    /// transaction.commit()?;
    /// println!("{:?}", listener.next());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Closed`](crate::Error::Closed).
    pub fn listen(&self, topic: &str) -> Result<Listener> {
        self.listen_to(Interest::Topics(topic.to_owned(), true))
    }

    /// Listens to all topics with this prefix.
    ///
    /// # Errors
    /// Those of [`listen`](Self::listen).
    pub fn listen_prefix(&self, prefix: &str) -> Result<Listener> {
        self.listen_to(Interest::Topics(prefix.to_owned(), false))
    }

    fn listen_to(&self, interest: Interest) -> Result<Listener> {
        let core = &self.handle.core;
        core.check_open()?;
        Ok(Listener { watcher: core.pipeline.watchers.add(interest, false, core.cache.budget()) })
    }
}

impl Listener {
    /// Returns the next notice and its commit, if one is queued.
    pub fn try_next(&mut self) -> Option<(SeqNo, Notice)> {
        self.next_within(Duration::ZERO)
    }

    /// Returns the next notice and its commit, waiting up to `patience` for it.
    pub fn next_within(&mut self, patience: Duration) -> Option<(SeqNo, Notice)> {
        self.watcher.next(Some(patience)).map(to_notice)
    }
}

pub(super) fn to_notice((seq, event): (SeqNo, Event)) -> (SeqNo, Notice) {
    match event {
        Event::Notice(topic, text) => (seq, Notice::Said { topic, text }),
        _ => (seq, Notice::Missed),
    }
}

impl Iterator for Listener {
    type Item = (SeqNo, Notice);
    fn next(&mut self) -> Option<Self::Item> {
        self.watcher.next(None).map(to_notice)
    }
}
