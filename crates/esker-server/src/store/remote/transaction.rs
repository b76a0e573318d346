//! Transactions of a [`RemoteStore`](super::RemoteStore): of the sequencer, and parts, which are those of
//! connections.
//!
//! The sequencer runs one transaction at a time and is the only writer of the store (remote.1), so that its
//! own never conflict. Parts conflict with what the sequencer has committed since they began.

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use bytes::Bytes;
use esker_kv::buffer::{self, Buffer};

use super::history::{full_key, full_range, key_of, meets, range_of, written};
use super::{Shared, unsupported, value, values, walk};
use crate::store::{
    Durability, Error, Isolation, Order, Reads, Result, Space, Span, Transaction, Value, Visit, Write,
};

/// A transaction.
pub(super) struct RemoteTransaction {
    shared: Arc<Shared>,
    /// The isolation as part of another transaction. `None`: a transaction of the sequencer.
    isolation: Option<Isolation>,
    /// The store's transaction, begun by the first call that needs it.
    inner: OnceCell<Result<Box<dyn esker_kv::Transaction>, String>>,
    /// The writes, with the keys of [`super::history`].
    writes: Buffer,
    /// Number of writes, and of those before each savepoint.
    count: u64,
    counts_before: Vec<u64>,
    /// The spaces written to, by number.
    spaces: Vec<(u32, Space)>,
    /// The last commit that a part sees.
    began: Cell<u64>,
    notes_reads: bool,
    /// What a serializable part has read.
    reads: RefCell<Vec<(Bytes, Bytes)>>,
}

impl RemoteTransaction {
    /// Begins a transaction of the sequencer.
    pub(super) fn of_sequencer(shared: Arc<Shared>) -> Self {
        RemoteTransaction::new(shared, None, 0)
    }

    /// Begins a part that reads nothing: it depends on the ranges given to it.
    pub(super) fn watcher(shared: Arc<Shared>) -> Self {
        let began = shared.history.lock().begin();
        RemoteTransaction::new(shared, Some(Isolation::Serializable), began)
    }

    /// Begins a part. It reads the state of this moment.
    pub(super) fn part(shared: Arc<Shared>, isolation: Isolation) -> Self {
        // Before the state: a commit in between counts as a later one.
        let began = shared.history.lock().begin();
        let part = RemoteTransaction::new(shared, Some(isolation), began);
        part.inner.get_or_init(|| part.begin());
        part
    }

    fn new(shared: Arc<Shared>, isolation: Option<Isolation>, began: u64) -> Self {
        RemoteTransaction {
            shared,
            isolation,
            inner: OnceCell::new(),
            writes: Buffer::default(),
            count: 0,
            counts_before: Vec::new(),
            spaces: Vec::new(),
            began: Cell::new(began),
            notes_reads: true,
            reads: RefCell::default(),
        }
    }

    fn begin(&self) -> Result<Box<dyn esker_kv::Transaction>, String> {
        let begin = || -> Result<Box<dyn esker_kv::Transaction>> {
            self.shared.owner.check()?;
            let mut inner = self.shared.kv.begin()?;
            // The writes and savepoints made before: after a refresh there are some.
            self.writes.replay(|write| match write {
                Some(write) => repeat(&mut *inner, &self.spaces, write),
                None => {
                    inner.savepoint()?;
                    Ok(())
                }
            })?;
            Ok(inner)
        };
        begin().map_err(|error| error.to_string())
    }

    fn inner(&self) -> Result<&dyn esker_kv::Transaction> {
        let inner = self.inner.get_or_init(|| self.begin());
        inner.as_deref().map_err(|error| Error::Unavailable(error.clone()))
    }

    fn inner_mut(&mut self) -> Result<&mut (dyn esker_kv::Transaction + 'static)> {
        self.inner()?;
        match self.inner.get_mut() {
            Some(Ok(inner)) => Ok(&mut **inner),
            _ => Err(Error::Unavailable("the store did not begin a transaction".to_owned())),
        }
    }

    fn number(&self, space: &Space) -> u32 {
        self.shared.history.lock().number_of(space)
    }

    /// Records a read, if the transaction is a serializable part.
    fn note_read(&self, space: &Space, span: &Span<'_>) {
        if self.notes_reads && self.isolation == Some(Isolation::Serializable) {
            self.reads.borrow_mut().push(full_range(self.number(space), span));
        }
    }

    fn note_write(&mut self, space: &Space) -> u32 {
        let number = self.number(space);
        if !self.spaces.iter().any(|(known, _)| *known == number) {
            self.spaces.push((number, space.clone()));
        }
        self.count += 1;
        number
    }

    /// The keys of the sequencer's transaction that it has written so far, and what was committed before, are
    /// later than a part that began earlier.
    fn conflicts_with(&self, part: &RemoteTransaction, ranges: &[(Bytes, Bytes)]) -> bool {
        meets(&self.writes, ranges) || self.shared.history.lock().has_changed(part.began.get(), ranges)
    }
}

/// Makes a write of a buffer in a transaction of the store.
fn repeat(
    inner: &mut dyn esker_kv::Transaction,
    spaces: &[(u32, Space)],
    write: &buffer::Write,
) -> Result<()> {
    let (buffer::Write::Put(first, _) | buffer::Write::Remove(first) | buffer::Write::RemoveRange(first, _)) =
        write;
    let number = super::history::number_of_key(first);
    let Some((_, space)) = spaces.iter().find(|(known, _)| *known == number) else { return Ok(()) };
    let done = match write {
        buffer::Write::Put(key, value) => inner.put(space, key_of(key), value),
        buffer::Write::Remove(key) => inner.remove(space, key_of(key)),
        buffer::Write::RemoveRange(from, to) => {
            let upper = match *to == range_of(number).1 {
                true => Bound::Unbounded,
                false => Bound::Excluded(key_of(to)),
            };
            inner.remove_range(space, Span { lower: Bound::Included(key_of(from)), upper })
        }
    };
    Ok(done?)
}

fn one(key: &[u8]) -> Span<'_> {
    Span { lower: Bound::Included(key), upper: Bound::Included(key) }
}

impl Reads for RemoteTransaction {
    fn get(&self, space: &Space, key: &[u8]) -> Result<Option<Value>> {
        self.note_read(space, &one(key));
        Ok(self.inner()?.get(space, key)?.map(|bytes| value(&bytes)))
    }

    fn multi_get(&self, space: &Space, keys: &[&[u8]], bytes_max: usize) -> Result<Vec<Option<Value>>> {
        keys.iter().for_each(|key| self.note_read(space, &one(key)));
        values(self.inner()?, space, keys, bytes_max)
    }

    fn range(&self, space: &Space, span: Span<'_>, order: Order, visit: &mut Visit<'_>) -> Result<()> {
        let mut last = None;
        let done = walk(self.inner()?, space, span, order, &mut |key, value| {
            let step = visit(key, value);
            if step == ControlFlow::Break(()) {
                last = Some(key.to_vec());
            }
            step
        });
        let read = match (&last, order) {
            (None, _) => span,
            (Some(key), Order::Up) => Span { upper: Bound::Included(key), ..span },
            (Some(key), Order::Down) => Span { lower: Bound::Included(key), ..span },
        };
        self.note_read(space, &read);
        done
    }

    fn len(&self, space: &Space) -> Result<u64> {
        self.note_read(space, &Span::ALL);
        Ok(self.inner()?.count(space, Span::ALL)?)
    }
}

impl Transaction for RemoteTransaction {
    fn put(&mut self, space: &Space, key: &[u8], value: &[u8]) -> Result<()> {
        self.inner_mut()?.put(space, key, value)?;
        let number = self.note_write(space);
        self.writes.write(buffer::Write::Put(full_key(number, key), Bytes::copy_from_slice(value)));
        Ok(())
    }

    fn merge(&mut self, _: &Space, _: &[u8], _: &[u8]) -> Result<()> {
        Err(unsupported("merge operators"))
    }

    fn remove(&mut self, space: &Space, key: &[u8]) -> Result<()> {
        self.inner_mut()?.remove(space, key)?;
        let number = self.note_write(space);
        self.writes.write(buffer::Write::Remove(full_key(number, key)));
        Ok(())
    }

    fn delete_range(&mut self, space: &Space, span: Span<'_>) -> Result<()> {
        self.inner_mut()?.remove_range(space, span)?;
        let number = self.note_write(space);
        let (from, to) = full_range(number, &span);
        if from < to {
            self.writes.write(buffer::Write::RemoveRange(from, to));
        }
        Ok(())
    }

    fn version(&self) -> u64 {
        self.shared.history.lock().last() + 1
    }

    fn writes(&self) -> u64 {
        self.count
    }

    fn savepoint(&mut self) -> usize {
        if let Some(Ok(inner)) = self.inner.get_mut()
            && let Err(error) = inner.savepoint()
        {
            self.inner = OnceCell::from(Err(error.to_string()));
        }
        self.counts_before.push(self.count);
        self.writes.savepoint().0
    }

    fn rollback_to(&mut self, point: usize) -> Result<()> {
        self.writes.rollback_to(esker_kv::Savepoint(point))?;
        self.counts_before.truncate(point + 1);
        self.count = self.counts_before.last().copied().unwrap_or_default();
        match self.inner.get_mut() {
            Some(Ok(inner)) => Ok(inner.rollback_to(esker_kv::Savepoint(point))?),
            _ => Ok(()),
        }
    }

    fn release(&mut self, point: usize) {
        self.counts_before.truncate(point);
        // The only error is that the savepoint is gone. Then there is nothing to release.
        let _ = self.writes.release(esker_kv::Savepoint(point));
        if let Some(Ok(inner)) = self.inner.get_mut() {
            let _ = inner.release(esker_kv::Savepoint(point));
        }
    }

    fn refresh(&mut self) {
        if self.isolation.is_some() {
            let mut history = self.shared.history.lock();
            history.end(self.began.get());
            self.began.set(history.begin());
        }
        self.reads.borrow_mut().clear();
        self.inner = OnceCell::new();
        self.inner.get_or_init(|| self.begin());
    }

    fn note_reads(&mut self, notes: bool) {
        self.notes_reads = notes;
    }

    fn depend_on(&self, space: &Space, span: Span<'_>) -> Result<()> {
        self.note_read(space, &span);
        Ok(())
    }

    fn admit(&mut self, part: &dyn Transaction) -> Result<()> {
        let part: &RemoteTransaction = part
            .as_any()
            .downcast_ref()
            .ok_or_else(|| Error::Invalid("the part is another store's".to_owned()))?;
        let is_apart = part.isolation >= Some(Isolation::Snapshot);
        if (is_apart && self.conflicts_with(part, &written(&part.writes)))
            || self.conflicts_with(part, &part.reads.borrow())
        {
            return Err(Error::Conflict);
        }
        Ok(())
    }

    fn visit_writes(&self, space: &Space, visit: &mut dyn FnMut(Write<'_>)) -> Result<()> {
        let number = self.number(space);
        let end = range_of(number).1;
        for write in self.writes.writes() {
            match &write {
                buffer::Write::Put(key, _)
                | buffer::Write::Remove(key)
                | buffer::Write::RemoveRange(key, _)
                    if super::history::number_of_key(key) != number => {}
                buffer::Write::Put(key, value) => visit(Write::Put { key: key_of(key), value }),
                buffer::Write::Remove(key) => visit(Write::Remove { key: key_of(key) }),
                buffer::Write::RemoveRange(from, to) => {
                    let to = (*to != end).then(|| key_of(to));
                    visit(Write::RemoveRange { from: key_of(from), to });
                }
            }
        }
        Ok(())
    }

    fn repeat(&mut self, space: &Space, write: Write<'_>) -> Result<()> {
        match write {
            Write::PutUntil { .. } => Err(unsupported("values that expire by themselves")),
            write => self.write(space, write),
        }
    }

    fn write_count(&self) -> usize {
        self.writes.writes().len()
    }

    fn bytes(&self) -> usize {
        usize::try_from(self.writes.bytes()).unwrap_or(usize::MAX)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn commit(mut self: Box<Self>, _: Durability) -> Result<u64> {
        if self.writes() == 0 {
            return Ok(0);
        }
        self.inner()?;
        let Some(Ok(mut inner)) = self.inner.take() else { return Ok(0) };
        let commit = self.shared.history.lock().last() + 1;
        self.shared.owner.admit(&mut *inner, commit)?;
        let done = inner.commit();
        if matches!(done, Ok(()) | Err(esker_kv::Error::OutcomeUnknown(_))) {
            let writes = Arc::new(std::mem::take(&mut self.writes));
            self.shared.history.lock().add(writes.clone());
            self.shared.subscribers.notify(commit, &writes);
        }
        match done {
            Ok(()) => Ok(commit),
            // Only another owner writes to the same keys.
            Err(esker_kv::Error::Conflict) => {
                Err(Error::Unavailable("another server may have taken the store over".to_owned()))
            }
            Err(other) => Err(other.into()),
        }
    }
}

impl Drop for RemoteTransaction {
    fn drop(&mut self) {
        if self.isolation.is_some() {
            self.shared.history.lock().end(self.began.get());
        }
    }
}
