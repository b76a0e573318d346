//! `StateMachine`: applies entries to the program's keyspaces, and makes and installs snapshots of them.

use std::io::Cursor;
use std::marker::PhantomData;
use std::sync::Arc;

use esker::{Db, Durability, Keyspace, Transaction};
use openraft::storage::RaftStateMachine;
use openraft::{
    Entry, EntryPayload, ErrorSubject, ErrorVerb, LogId, OptionalSend, RaftSnapshotBuilder, RaftTypeConfig,
    Snapshot, SnapshotMeta, StorageError, StoredMembership,
};
use serde::{Deserialize, Serialize};

use crate::error::{Error, blocking, of};
use crate::snapshot;
use crate::stored::{APPLIED, DATA, META, decode, encode};

/// The state of the program, and what a request does to it.
pub trait Machine<C: RaftTypeConfig>: Send + Sync + 'static {
    /// Returns the keyspaces that make up the state, in the same order on each node. Only `apply` writes to
    /// them.
    fn keyspaces(&self) -> Vec<Keyspace>;

    /// Applies a request and returns the answer. It runs again if something else writes to the keyspaces
    /// meanwhile, so it has no effects outside of `t`.
    ///
    /// # Errors
    /// An error stops the node. An answer is for what a client can do wrong.
    fn apply(&self, t: &mut Transaction, request: &C::D) -> esker::Result<C::R>;

    /// Returns the answer to an entry without a request.
    fn no_answer(&self) -> C::R;
}

/// The state machine of a Raft group over the keyspaces of a [`Machine`].
pub struct StateMachine<C, M> {
    shared: Arc<Parts<M>>,
    types: PhantomData<fn() -> C>,
}

struct Parts<M> {
    db: Db,
    meta: Keyspace,
    snapshot: Keyspace,
    machine: M,
}

/// Makes a snapshot of the state at one commit.
pub struct SnapshotBuilder<C, M> {
    shared: Arc<Parts<M>>,
    state: esker::Snapshot,
    types: PhantomData<fn() -> C>,
}

/// The position up to which entries are applied.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
struct Applied<C: RaftTypeConfig> {
    last: Option<LogId<C::NodeId>>,
    membership: StoredMembership<C::NodeId, C::Node>,
}

impl<C: RaftTypeConfig> Default for Applied<C> {
    fn default() -> Self {
        Applied { last: None, membership: StoredMembership::default() }
    }
}

/// A snapshot: what it is of, and its bytes.
type Kept<C> = (MetaOf<C>, Vec<u8>);

type MetaOf<C> = SnapshotMeta<<C as RaftTypeConfig>::NodeId, <C as RaftTypeConfig>::Node>;

impl<C, M> StateMachine<C, M>
where
    C: RaftTypeConfig<Entry = Entry<C>, SnapshotData = Cursor<Vec<u8>>>,
    M: Machine<C>,
{
    /// Opens the state machine of the group `name`, or creates it.
    ///
    /// # Errors
    /// Those of [`Db::keyspace`].
    pub fn open(db: &Db, name: &str, machine: M) -> Result<Self, Error> {
        let meta = db.keyspace(&format!("{name}/meta"))?;
        let snapshot = db.keyspace(&format!("{name}/snapshot"))?;
        let shared = Arc::new(Parts { db: db.clone(), meta, snapshot, machine });
        Ok(StateMachine { shared, types: PhantomData })
    }

    /// The program's part.
    pub fn machine(&self) -> &M {
        &self.shared.machine
    }
}

impl<M> Parts<M> {
    /// raft.2
    fn apply<C>(&self, entries: &[Entry<C>]) -> Result<Vec<C::R>, Error>
    where
        C: RaftTypeConfig<Entry = Entry<C>>,
        M: Machine<C>,
    {
        let transaction = self.db.transaction().durability(Durability::Sync);
        let done = transaction.run(|t| -> Result<_, Error> {
            let mut applied: Applied<C> = match t.get(&self.meta, APPLIED)? {
                Some(bytes) => decode(APPLIED, &bytes)?,
                None => Applied::default(),
            };
            let mut answers = Vec::with_capacity(entries.len());
            for entry in entries {
                applied.last = Some(entry.log_id.clone());
                answers.push(match &entry.payload {
                    EntryPayload::Blank => self.machine.no_answer(),
                    EntryPayload::Normal(request) => self.machine.apply(t, request)?,
                    EntryPayload::Membership(membership) => {
                        applied.membership =
                            StoredMembership::new(Some(entry.log_id.clone()), membership.clone());
                        self.machine.no_answer()
                    }
                });
            }
            t.put(&self.meta, APPLIED, encode(APPLIED, &applied)?)?;
            Ok(answers)
        })?;
        Ok(done.value)
    }

    /// Makes a snapshot, and keeps it unless a newer one was installed meanwhile.
    fn build<C: RaftTypeConfig>(&self, state: &esker::Snapshot) -> Result<Kept<C>, Error>
    where
        M: Machine<C>,
    {
        let applied: Applied<C> = match state.get(&self.meta, APPLIED)? {
            Some(bytes) => decode(APPLIED, &bytes)?,
            None => Applied::default(),
        };
        let index = applied.last.as_ref().map_or(0, |last| last.index);
        let snapshot_id = format!("{index}-{}", state.seqno());
        let meta =
            SnapshotMeta { last_log_id: applied.last, last_membership: applied.membership, snapshot_id };
        let data = snapshot::write(state, &self.machine.keyspaces())?;
        let transaction = self.db.transaction().durability(Durability::Sync);
        transaction.run(|t| -> Result<_, Error> {
            let kept: Option<MetaOf<C>> =
                t.get(&self.snapshot, META)?.map(|bytes| decode(META, &bytes)).transpose()?;
            if kept.is_some_and(|kept| kept.last_log_id > meta.last_log_id) {
                return Ok(());
            }
            t.put(&self.snapshot, META, encode(META, &meta)?)?;
            Ok(t.put(&self.snapshot, DATA, &data)?)
        })?;
        Ok((meta, data))
    }

    /// raft.3
    fn install<C: RaftTypeConfig>(&self, meta: &MetaOf<C>, data: &[u8]) -> Result<(), Error>
    where
        M: Machine<C>,
    {
        let applied: Applied<C> =
            Applied { last: meta.last_log_id.clone(), membership: meta.last_membership.clone() };
        let transaction = self.db.transaction().durability(Durability::Sync);
        transaction.run(|t| -> Result<_, Error> {
            snapshot::read(data, t, &self.machine.keyspaces())?;
            t.put(&self.meta, APPLIED, encode(APPLIED, &applied)?)?;
            t.put(&self.snapshot, META, encode(META, meta)?)?;
            Ok(t.put(&self.snapshot, DATA, data)?)
        })?;
        Ok(())
    }

    fn current<C: RaftTypeConfig>(&self) -> Result<Option<Kept<C>>, Error> {
        let state = self.db.snapshot();
        let Some(meta) = state.get(&self.snapshot, META)? else { return Ok(None) };
        let data = state.get(&self.snapshot, DATA)?.map_or_else(Vec::new, |data| data.to_vec());
        Ok(Some((decode(META, &meta)?, data)))
    }
}

impl<C, M> RaftStateMachine<C> for StateMachine<C, M>
where
    C: RaftTypeConfig<Entry = Entry<C>, SnapshotData = Cursor<Vec<u8>>>,
    M: Machine<C>,
{
    type SnapshotBuilder = SnapshotBuilder<C, M>;

    async fn applied_state(
        &mut self,
    ) -> Result<(Option<LogId<C::NodeId>>, StoredMembership<C::NodeId, C::Node>), StorageError<C::NodeId>>
    {
        let shared = self.shared.clone();
        let read = blocking(move || match shared.meta.get(APPLIED)? {
            Some(bytes) => decode::<Applied<C>>(APPLIED, &bytes),
            None => Ok(Applied::default()),
        });
        let applied = read.await.map_err(of(ErrorSubject::StateMachine, ErrorVerb::Read))?;
        Ok((applied.last, applied.membership))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<C::R>, StorageError<C::NodeId>>
    where
        I: IntoIterator<Item = Entry<C>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let (shared, entries) = (self.shared.clone(), entries.into_iter().collect::<Vec<_>>());
        blocking(move || shared.apply(&entries))
            .await
            .map_err(of(ErrorSubject::StateMachine, ErrorVerb::Write))
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder<C, M> {
        let state = self.shared.db.snapshot();
        SnapshotBuilder { shared: self.shared.clone(), state, types: PhantomData }
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Cursor<Vec<u8>>>, StorageError<C::NodeId>> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &MetaOf<C>,
        snapshot: Box<Cursor<Vec<u8>>>,
    ) -> Result<(), StorageError<C::NodeId>> {
        let (shared, of_meta, signature) = (self.shared.clone(), meta.clone(), meta.signature());
        blocking(move || shared.install::<C>(&of_meta, snapshot.get_ref()))
            .await
            .map_err(of(ErrorSubject::Snapshot(Some(signature)), ErrorVerb::Write))
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<C>>, StorageError<C::NodeId>> {
        let shared = self.shared.clone();
        let current = blocking(move || shared.current::<C>())
            .await
            .map_err(of(ErrorSubject::Snapshot(None), ErrorVerb::Read))?;
        Ok(current.map(|(meta, data)| Snapshot { meta, snapshot: Box::new(Cursor::new(data)) }))
    }
}

impl<C, M> RaftSnapshotBuilder<C> for SnapshotBuilder<C, M>
where
    C: RaftTypeConfig<Entry = Entry<C>, SnapshotData = Cursor<Vec<u8>>>,
    M: Machine<C>,
{
    async fn build_snapshot(&mut self) -> Result<Snapshot<C>, StorageError<C::NodeId>> {
        let (shared, state) = (self.shared.clone(), self.state.clone());
        let (meta, data) = blocking(move || shared.build::<C>(&state))
            .await
            .map_err(of(ErrorSubject::Snapshot(None), ErrorVerb::Write))?;
        Ok(Snapshot { meta, snapshot: Box::new(Cursor::new(data)) })
    }
}
