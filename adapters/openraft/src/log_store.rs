//! `LogStore`: the log of a group, its vote, and the positions up to which it is purged and committed.

use std::fmt::Debug;
use std::io;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use esker::{Db, Durability, Keyspace, WriteBatch};
use openraft::storage::{LogFlushed, LogState, RaftLogStorage};
use openraft::{
    ErrorSubject, ErrorVerb, LogId, OptionalSend, RaftLogId, RaftLogReader, RaftTypeConfig, StorageError,
    Vote,
};
use serde::de::DeserializeOwned;

use crate::error::{Error, blocking, of};
use crate::stored::{COMMITTED, PURGED, VOTE, decode, encode, key_of};

/// Entries sent to a follower at a time have about this size, or are one entry.
const REPLICATED_BYTES: usize = 4 << 20;

/// The log of a Raft group. Clones share it.
pub struct LogStore<C> {
    db: Db,
    log: Keyspace,
    meta: Keyspace,
    types: PhantomData<fn() -> C>,
}

impl<C> Clone for LogStore<C> {
    fn clone(&self) -> Self {
        LogStore { db: self.db.clone(), log: self.log.clone(), meta: self.meta.clone(), types: PhantomData }
    }
}

impl<C: RaftTypeConfig> LogStore<C> {
    /// Opens the log of the group `name`, or creates it.
    ///
    /// # Errors
    /// Those of [`Db::keyspace`].
    pub fn open(db: &Db, name: &str) -> Result<Self, Error> {
        let log = db.keyspace(&format!("{name}/log"))?;
        let meta = db.keyspace(&format!("{name}/meta"))?;
        Ok(LogStore { db: db.clone(), log, meta, types: PhantomData })
    }

    fn read<T: DeserializeOwned>(&self, key: &'static str) -> Result<Option<T>, Error> {
        self.meta.get(key)?.map(|bytes| decode(key, &bytes)).transpose()
    }

    /// Returns the entries of a range, up to about `bytes` of them, and at least one.
    fn entries(&self, (start, end): Indexes, bytes: usize) -> Result<Vec<C::Entry>, Error> {
        let (mut entries, mut size) = (Vec::new(), 0);
        for entry in self.log.range((start.map(key_of), end.map(key_of))) {
            let (_, value) = entry?;
            size += value.len();
            if size > bytes && !entries.is_empty() {
                break;
            }
            entries.push(decode("a log entry", &value)?);
        }
        Ok(entries)
    }

    fn state(&self) -> Result<LogState<C>, Error> {
        let purged: Option<LogId<C::NodeId>> = self.read(PURGED)?;
        let last = match self.log.last()? {
            Some((_, value)) => {
                let entry: C::Entry = decode("a log entry", &value)?;
                Some(entry.get_log_id().clone())
            }
            None => purged.clone(),
        };
        Ok(LogState { last_purged_log_id: purged, last_log_id: last })
    }
}

type Indexes = (Bound<u64>, Bound<u64>);

/// Commits a batch without blocking the thread.
async fn commit(batch: WriteBatch, durability: Durability) -> Result<(), Error> {
    batch.commit_async_with(durability).await.map_err(|failed| failed.error)?;
    Ok(())
}

impl<C: RaftTypeConfig> RaftLogReader<C> for LogStore<C> {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<C::Entry>, StorageError<C::NodeId>> {
        let (store, range) = (self.clone(), (range.start_bound().cloned(), range.end_bound().cloned()));
        blocking(move || store.entries(range, usize::MAX))
            .await
            .map_err(of(ErrorSubject::Logs, ErrorVerb::Read))
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<C::Entry>, StorageError<C::NodeId>> {
        let (store, range) = (self.clone(), (Bound::Included(start), Bound::Excluded(end)));
        blocking(move || store.entries(range, REPLICATED_BYTES))
            .await
            .map_err(of(ErrorSubject::Logs, ErrorVerb::Read))
    }
}

impl<C: RaftTypeConfig> RaftLogStorage<C> for LogStore<C> {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<C>, StorageError<C::NodeId>> {
        let store = self.clone();
        blocking(move || store.state()).await.map_err(of(ErrorSubject::Logs, ErrorVerb::Read))
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    /// raft.1: returns once the vote is on the disk.
    async fn save_vote(&mut self, vote: &Vote<C::NodeId>) -> Result<(), StorageError<C::NodeId>> {
        let saved = async {
            let mut batch = self.db.batch();
            batch.put(&self.meta, VOTE, encode(VOTE, vote)?)?;
            commit(batch, Durability::Sync).await
        };
        saved.await.map_err(of(ErrorSubject::Vote, ErrorVerb::Write))
    }

    async fn read_vote(&mut self) -> Result<Option<Vote<C::NodeId>>, StorageError<C::NodeId>> {
        let store = self.clone();
        blocking(move || store.read(VOTE)).await.map_err(of(ErrorSubject::Vote, ErrorVerb::Read))
    }

    /// Does not wait for the disk: each later commit that does makes it durable as well.
    async fn save_committed(
        &mut self,
        committed: Option<LogId<C::NodeId>>,
    ) -> Result<(), StorageError<C::NodeId>> {
        let saved = async {
            let mut batch = self.db.batch();
            batch.put(&self.meta, COMMITTED, encode(COMMITTED, &committed)?)?;
            commit(batch, Durability::None).await
        };
        saved.await.map_err(of(ErrorSubject::Store, ErrorVerb::Write))
    }

    async fn read_committed(&mut self) -> Result<Option<LogId<C::NodeId>>, StorageError<C::NodeId>> {
        let store = self.clone();
        blocking(move || Ok(store.read(COMMITTED)?.flatten()))
            .await
            .map_err(of(ErrorSubject::Store, ErrorVerb::Read))
    }

    /// raft.1: calls back once the entries are on the disk.
    async fn append<I>(&mut self, entries: I, callback: LogFlushed<C>) -> Result<(), StorageError<C::NodeId>>
    where
        I: IntoIterator<Item = C::Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let appended = async {
            let mut batch = self.db.batch();
            for entry in entries {
                batch.put(&self.log, key_of(entry.get_log_id().index), encode("a log entry", &entry)?)?;
            }
            commit(batch, Durability::Sync).await
        };
        match appended.await {
            Ok(()) => {
                callback.log_io_completed(Ok(()));
                Ok(())
            }
            Err(error) => {
                callback.log_io_completed(Err(io::Error::other(error.to_string())));
                Err(of(ErrorSubject::Logs, ErrorVerb::Write)(error))
            }
        }
    }

    async fn truncate(&mut self, log_id: LogId<C::NodeId>) -> Result<(), StorageError<C::NodeId>> {
        let truncated = async {
            let mut batch = self.db.batch();
            batch.delete_range(&self.log, key_of(log_id.index)..)?;
            commit(batch, Durability::Sync).await
        };
        truncated.await.map_err(of(ErrorSubject::Logs, ErrorVerb::Delete))
    }

    /// Entries go with the note of it, in one commit.
    async fn purge(&mut self, log_id: LogId<C::NodeId>) -> Result<(), StorageError<C::NodeId>> {
        let purged = async {
            let mut batch = self.db.batch();
            batch.put(&self.meta, PURGED, encode(PURGED, &log_id)?)?;
            batch.delete_range(&self.log, ..=key_of(log_id.index))?;
            commit(batch, Durability::Sync).await
        };
        purged.await.map_err(of(ErrorSubject::Logs, ErrorVerb::Delete))
    }
}
