//! Runs the requests of one caller in the process that has the database: of a guest's connection, or of the
//! host's own handles.
//!
//! ```text
//!   Request --> Session { keyspaces by number, held snapshot or transaction, collected writes } --> Reply
//! ```

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use esker::{
    Db, Durability, Error, Isolation, Keyspace, KeyspaceId, KeyspaceOptions, LockMode, ReadCore, Reads,
    Result, Savepoint, Snapshot, Transaction, Ttl, Value, WriteBatch,
};

use crate::lanes::{Found, Lane, Lanes, RECORDS};
use crate::protocol::{
    At, Bytes, Op, Opening, Owned, Page, Reply, Request, WireDurability, WireIsolation, WireLifetime,
};

/// Bytes of keys and values after which a page ends.
const PAGE_BYTES: usize = 256 << 10;
/// Bytes of values after which a reply to `MultiGet` ends.
const VALUES_BYTES: usize = 4 << 20;
/// How long a resolution waits for a commit that runs.
const RESOLVE_PATIENCE: Duration = Duration::from_millis(500);

/// The state that a session reads at [`At::Held`].
#[derive(Default)]
enum Held {
    #[default]
    Nothing,
    Snapshot(Snapshot),
    /// With its savepoints, by the guest's numbers. Those that are gone may be among them.
    Transaction(Box<Transaction>, BTreeMap<u64, Savepoint>),
}

/// The requests of one caller. See the module's documentation.
pub(crate) struct Session {
    db: Db,
    lanes: Arc<Lanes>,
    /// `None`: the host itself, whose commits have no records.
    lane: Option<Arc<Lane>>,
    keyspaces: HashMap<u32, Keyspace>,
    held: Held,
    gathered: Option<WriteBatch>,
    /// Whether the guest has said goodbye: it has no questions about its commits.
    is_over: bool,
}

impl Session {
    pub(crate) fn new(db: &Db, lanes: &Arc<Lanes>, lane: Option<Arc<Lane>>) -> Self {
        let (keyspaces, held, gathered) = (HashMap::new(), Held::Nothing, None);
        Session { db: db.clone(), lanes: lanes.clone(), lane, keyspaces, held, gathered, is_over: false }
    }

    /// Returns whether it holds a transaction, on which others may wait.
    pub(crate) fn holds_transaction(&self) -> bool {
        matches!(self.held, Held::Transaction(..))
    }

    /// Runs a request.
    pub(crate) fn run(&mut self, request: Request<'_>) -> Result<Reply> {
        match request {
            Request::Keyspaces => {
                let mut names = self.db.keyspaces()?;
                names.retain(|name| name != RECORDS);
                Ok(Reply::Names(names))
            }
            Request::Keyspace(name, opening) => self.keyspace(name, opening),
            Request::DropKeyspace(name) => self.check_name(name)?.drop_keyspace(name).map(|()| Reply::Done),
            Request::RenameKeyspace(from, to) => {
                self.check_name(to)?;
                self.check_name(from)?.rename_keyspace(from, to).map(|()| Reply::Done)
            }
            Request::Sync => self.db.sync().map(|()| Reply::Done),
            Request::Hold => {
                let snapshot = self.db.snapshot();
                let seqno = snapshot.seqno();
                self.held = Held::Snapshot(snapshot);
                Ok(Reply::Seqno(seqno))
            }
            Request::Begin(isolation) => {
                // The last one ends first: it may be exclusive.
                self.held = Held::Nothing;
                let transaction = self.db.transaction().isolation(isolation.into()).begin();
                self.held = Held::Transaction(Box::new(transaction), BTreeMap::new());
                Ok(Reply::Done)
            }
            Request::Release | Request::Goodbye => {
                self.is_over = request == Request::Goodbye;
                self.release();
                Ok(Reply::Done)
            }
            Request::Resolve(lane, number, durability) => self.resolve(lane, number, durability),
            Request::Forget(lane) => {
                self.lanes.forget(lane);
                Ok(Reply::Done)
            }
            Request::Gather(ops) => {
                let mut batch = self.gathered.take().unwrap_or_else(|| self.db.batch());
                self.apply_all(&mut batch, ops)?;
                self.gathered = Some(batch);
                Ok(Reply::Done)
            }
            Request::Commit(number, durability, ops) => self.commit(number, durability, ops),
            Request::CommitTransaction(number, durability) => self.commit_transaction(number, durability),
            Request::Write(..)
            | Request::FetchAdd(..)
            | Request::Replace(..)
            | Request::Expire(..)
            | Request::Lock(..)
            | Request::LockName(..) => self.write(request),
            Request::Savepoint(..) | Request::RollbackTo(..) | Request::ReleaseSavepoint(..) => {
                self.savepoint(&request)
            }
            other => self.read(other),
        }
    }

    /// Drops what is held and collected.
    fn release(&mut self) {
        self.held = Held::Nothing;
        self.gathered = None;
    }

    fn read(&mut self, request: Request<'_>) -> Result<Reply> {
        match request {
            Request::Get(at, keyspace, key) => {
                let found = self.look(at, keyspace, |reads| reads.value_of(key.0))?;
                Ok(Reply::Value(found.map(Owned)))
            }
            Request::Contains(at, keyspace, key) => {
                self.look(at, keyspace, |reads| reads.has(key.0)).map(Reply::Bool)
            }
            Request::Ttl(at, keyspace, key) => {
                let ttl = self.look(at, keyspace, |reads| reads.ttl_of(key.0))?;
                Ok(Reply::Ttl(ttl.map(|ttl| match ttl {
                    Ttl::Unlimited => None,
                    Ttl::Left(left) => Some(left),
                })))
            }
            Request::Len(at, keyspace) => self.look(at, keyspace, |reads| reads.count()).map(Reply::Count),
            Request::MultiGet(at, keyspace, keys) => self.multi_get(at, keyspace, &keys),
            Request::Page(at, keyspace, page) => self.page(at, keyspace, &page),
            _ => Err(Error::Invalid("not a request to read".to_owned())),
        }
    }

    /// Refuses the name of the records' keyspace.
    fn check_name(&self, name: &str) -> Result<&Db> {
        match name == RECORDS {
            true => Err(Error::Invalid(format!("keyspace {RECORDS:?} is reserved: choose another name"))),
            false => Ok(&self.db),
        }
    }

    fn keyspace(&mut self, name: &str, opening: Opening<'_>) -> Result<Reply> {
        let db = self.check_name(name)?;
        let keyspace = match opening {
            Opening::Existing => db.open_keyspace(name),
            Opening::CreateIfMissing => db.keyspace(name),
            Opening::Create(options) => {
                db.create_keyspace_with(name, KeyspaceOptions::from_bytes(options.0)?)
            }
        }?;
        let id = keyspace.id().get();
        self.keyspaces.insert(id, keyspace);
        Ok(Reply::Keyspace(id))
    }

    /// Returns the keyspace with this number.
    fn find(&mut self, id: u32) -> Result<Keyspace> {
        if let Some(keyspace) = self.keyspaces.get(&id) {
            return Ok(keyspace.clone());
        }
        let found = self.db.keyspace_by_id(KeyspaceId::new(id))?;
        let found = found.filter(|found| found.name() != RECORDS);
        let keyspace = found.ok_or_else(|| Error::KeyspaceNotFound(format!("number {id}")))?;
        self.keyspaces.insert(id, keyspace.clone());
        Ok(keyspace)
    }

    /// Reads a keyspace in the newest state, or in the held one.
    fn look<T>(&mut self, at: At, keyspace: u32, read: impl FnOnce(&dyn ReadCore) -> Result<T>) -> Result<T> {
        let keyspace = self.find(keyspace)?;
        match (at, &self.held) {
            (At::Now, _) => read(&keyspace),
            (At::Held, Held::Snapshot(snapshot)) => read(&snapshot.keyspace(&keyspace)),
            (At::Held, Held::Transaction(transaction, _)) => read(&transaction.keyspace(&keyspace)),
            (At::Held, Held::Nothing) => Err(nothing_held()),
        }
    }

    /// Begins a reply that may have several parts: [`At::Now`] takes a snapshot, which the others read.
    fn begin_parts(&mut self, at: At) {
        if at == At::Now {
            self.held = Held::Snapshot(self.db.snapshot());
        }
    }

    /// Drops the snapshot of [`begin_parts`](Self::begin_parts) if the first part is the last one.
    fn end_parts(&mut self, at: At, is_last: bool) {
        if at == At::Now && is_last {
            self.held = Held::Nothing;
        }
    }

    fn multi_get(&mut self, at: At, keyspace: u32, keys: &[Bytes<'_>]) -> Result<Reply> {
        self.begin_parts(at);
        let keyspace = self.find(keyspace)?;
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.0).collect();
        let values = match &self.held {
            Held::Snapshot(snapshot) => snapshot.multi_get_within(&keyspace, &keys, VALUES_BYTES),
            Held::Transaction(transaction, _) => transaction.multi_get_within(&keyspace, &keys, VALUES_BYTES),
            Held::Nothing => Err(nothing_held()),
        };
        let is_last = values.as_ref().map_or(true, |values| values.len() == keys.len());
        self.end_parts(at, is_last);
        Ok(Reply::Values(values?.into_iter().map(|value| value.map(Owned)).collect()))
    }

    fn page(&mut self, at: At, keyspace: u32, page: &Page<'_>) -> Result<Reply> {
        self.begin_parts(at);
        let read = self.look(At::Held, keyspace, |reads| entries_of(reads, page));
        let is_last = read.as_ref().map_or(true, |read| read.1);
        self.end_parts(at, is_last);
        read.map(|(entries, is_last)| Reply::Page { entries, is_last })
    }

    fn transaction(&mut self) -> Result<&mut Transaction> {
        match &mut self.held {
            Held::Transaction(transaction, _) => Ok(transaction),
            _ => Err(nothing_held()),
        }
    }

    /// Runs a request that changes the held transaction.
    fn write(&mut self, request: Request<'_>) -> Result<Reply> {
        match request {
            Request::Write(keyspace, op) => {
                let keyspace = self.find(keyspace)?;
                apply!(self.transaction()?, &keyspace, op)?;
            }
            Request::FetchAdd(keyspace, key, add) => {
                let keyspace = self.find(keyspace)?;
                let old = self.transaction()?.keyspace_mut(&keyspace).fetch_add(key.0, add)?;
                return Ok(Reply::Number(old));
            }
            Request::Replace(keyspace, key, new) => {
                let keyspace = self.find(keyspace)?;
                let new = new.map(|new| Value::copy_of(new.0));
                let mut view = self.transaction()?.keyspace_mut(&keyspace);
                let replaced = view.update(key.0, |old| new.clone().filter(|_| old.is_some()))?;
                // The value has expired since the guest found it, and its successor with it.
                if let (None, Some(new)) = (replaced.old, new) {
                    view.put_until(key.0, new, Some(SystemTime::UNIX_EPOCH))?;
                }
            }
            Request::Expire(keyspace, key, ttl) => {
                let keyspace = self.find(keyspace)?;
                let mut view = self.transaction()?.keyspace_mut(&keyspace);
                let is_there = match ttl {
                    Some(ttl) => view.expire(key.0, ttl)?,
                    None => view.persist(key.0)?,
                };
                return Ok(Reply::Bool(is_there));
            }
            Request::Lock(keyspace, key, is_alone) => {
                let keyspace = self.find(keyspace)?;
                self.transaction()?.lock(&keyspace, key.0, lock_mode(is_alone))?;
            }
            Request::LockName(name, is_alone) => {
                self.transaction()?.lock_name(name, lock_mode(is_alone))?;
            }
            _ => return Err(Error::Invalid("not a request to write".to_owned())),
        }
        Ok(Reply::Done)
    }

    /// Sets, rolls back to, or releases a savepoint.
    fn savepoint(&mut self, request: &Request<'_>) -> Result<Reply> {
        let Held::Transaction(transaction, points) = &mut self.held else { return Err(nothing_held()) };
        match request {
            Request::Savepoint(number) => drop(points.insert(*number, transaction.savepoint())),
            Request::RollbackTo(number) => {
                transaction.rollback_to(points.get(number).ok_or(Error::SavepointGone)?)?;
            }
            Request::ReleaseSavepoint(number) => {
                transaction.release(points.remove(number).ok_or(Error::SavepointGone)?)?;
            }
            _ => return Err(Error::Invalid("not a request about savepoints".to_owned())),
        }
        Ok(Reply::Done)
    }

    fn apply_all(&mut self, batch: &mut WriteBatch, ops: Vec<(u32, Op<'_>)>) -> Result<()> {
        for (keyspace, op) in ops {
            let keyspace = self.find(keyspace)?;
            apply!(batch, &keyspace, op)?;
        }
        Ok(())
    }

    fn commit(&mut self, number: u64, durability: WireDurability, ops: Vec<(u32, Op<'_>)>) -> Result<Reply> {
        let mut batch = self.gathered.take().unwrap_or_else(|| self.db.batch());
        self.apply_all(&mut batch, ops)?;
        let durability = self.durability(durability);
        let seqno = match &self.lane {
            None => batch.commit_with(durability).map_err(Error::from)?,
            Some(lane) => self.lanes.commit(lane, number, |record| {
                batch.put(record.keyspace, record.key, record.value)?;
                Ok(batch.commit_with(durability)?)
            })?,
        };
        Ok(Reply::Seqno(seqno))
    }

    fn commit_transaction(&mut self, number: u64, durability: WireDurability) -> Result<Reply> {
        let Held::Transaction(mut transaction, _) = std::mem::take(&mut self.held) else {
            return Err(nothing_held());
        };
        let durability = self.durability(durability);
        let seqno = match &self.lane {
            // Whether a commit without writes was made makes no difference.
            Some(lane) if transaction.write_count() > 0 => self.lanes.commit(lane, number, |record| {
                transaction.put(record.keyspace, record.key, record.value)?;
                Ok(transaction.commit_with(durability)?)
            })?,
            _ => transaction.commit_with(durability).map_err(Error::from)?,
        };
        Ok(Reply::Seqno(seqno))
    }

    fn resolve(
        &mut self,
        lane: crate::commit_id::LaneId,
        number: u64,
        durability: WireDurability,
    ) -> Result<Reply> {
        let durability = self.durability(durability);
        Ok(match self.lanes.resolve(lane, number, durability, RESOLVE_PATIENCE)? {
            Found::Outcome(outcome) => Reply::Outcome(outcome),
            Found::Running => Reply::Running,
            Found::Unknowable => Reply::Unknowable,
        })
    }

    /// The durability of a commit. That of a guest survives a kill of the host.
    fn durability(&self, asked: WireDurability) -> Durability {
        match (asked, self.db.info().durability) {
            (WireDurability::Sync, _) | (WireDurability::Default, Durability::Sync) => Durability::Sync,
            _ => Durability::Buffered,
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The transaction ends first, with its locks.
        self.release();
        if let Some(lane) = &self.lane {
            self.lanes.leave(lane, self.is_over);
        }
    }
}

fn lock_mode(is_alone: bool) -> LockMode {
    if is_alone { LockMode::Exclusive } else { LockMode::Shared }
}

/// Returns the moment at this time after the beginning of 1970.
fn moment(since: Option<Duration>) -> Result<Option<SystemTime>> {
    let out_of_range = || Error::Invalid("an expiry that the host's clock cannot express".to_owned());
    since.map(|since| SystemTime::UNIX_EPOCH.checked_add(since).ok_or_else(out_of_range)).transpose()
}

fn nothing_held() -> Error {
    Error::Invalid("the connection holds no snapshot or transaction".to_owned())
}

/// Reads a page. Returns its entries, and whether the range has no further ones.
fn entries_of(reads: &dyn ReadCore, page: &Page<'_>) -> Result<(Vec<(Owned, Owned)>, bool)> {
    let bound = |bound: Bound<Bytes<'_>>| bound.map(|key| key.0.to_vec());
    let mut range = reads.range((bound(page.lower), bound(page.upper)));
    let (mut entries, mut bytes) = (Vec::new(), 0);
    loop {
        let next = if page.is_reverse { range.next_back() } else { range.next() };
        let Some((key, value)) = next.transpose()? else { return Ok((entries, true)) };
        let value = if page.keys_only { Value::empty() } else { value };
        bytes += key.len() + value.len();
        entries.push((Owned(Value::copy_of(&key)), Owned(value)));
        if bytes >= PAGE_BYTES || entries.len() >= page.count_max as usize {
            return Ok((entries, false));
        }
    }
}

/// Applies a write to a batch or to a transaction: their methods have the same names.
macro_rules! apply {
    ($target:expr, $keyspace:expr, $op:expr) => {
        match $op {
            Op::Put { key, value, lifetime } => match lifetime {
                WireLifetime::Default => $target.put($keyspace, key.0, value.0),
                WireLifetime::For(ttl) => $target.put_with_ttl($keyspace, key.0, value.0, ttl),
                WireLifetime::Until(end) => $target.put_until($keyspace, key.0, value.0, moment(end)?),
            },
            Op::Delete(key) => $target.delete($keyspace, key.0),
            Op::DeleteRange(lower, upper) => {
                $target.delete_range($keyspace, (lower.map(|key| key.0), upper.map(|key| key.0)))
            }
            Op::Merge(key, operand) => $target.merge($keyspace, key.0, operand.0),
        }
    };
}
use apply;

impl From<WireIsolation> for Isolation {
    fn from(isolation: WireIsolation) -> Self {
        match isolation {
            WireIsolation::Serializable => Isolation::Serializable,
            WireIsolation::Snapshot => Isolation::Snapshot,
            WireIsolation::Exclusive => Isolation::Exclusive,
        }
    }
}
