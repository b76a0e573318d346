//! The writes of a keyspace as commits of their own, and those of a batch or transaction.

use napi::bindgen_prelude::{BufferSlice, Env, Unknown};
use napi_derive::napi;

use crate::chunk::MISSING;
use crate::completion::{self, BoxFuture, Outcome, returned};
use crate::error::{Failure, caught};
use crate::txn::State;
use crate::view::NativeView;
use crate::write::{Write, end_of};

#[napi]
impl NativeView {
    /// Writes one key, as a commit of its own.
    #[napi(catch_unwind)]
    pub fn write<'env>(
        &self,
        env: &'env Env,
        number: u32,
        what: u32,
        key: &[u8],
        value: Option<&[u8]>,
        ttl: Option<f64>,
    ) -> napi::Result<Unknown<'env>> {
        let write = Write::of(what, key, value, ttl).map_err(|why| why.thrown(env))?;
        returned(env, self.submit(number, write))
    }

    /// Writes one key, as a commit of its own. The key is in the first bytes of `room`, the value behind it.
    #[napi(catch_unwind)]
    pub fn write_in<'env>(
        &self,
        env: &'env Env,
        number: u32,
        what: u32,
        room: BufferSlice<'_>,
        key: u32,
        end: u32,
    ) -> napi::Result<Unknown<'env>> {
        let parts = room.get(..end as usize).and_then(|bytes| bytes.split_at_checked(key as usize));
        let (key, value) = parts.unwrap_or_default();
        let write = Write::of(what, key, Some(value), None).map_err(|why| why.thrown(env))?;
        returned(env, self.submit(number, write))
    }

    /// Removes a range, as a commit of its own.
    #[napi(catch_unwind)]
    pub fn delete_range(
        &self,
        number: u32,
        start: Option<&[u8]>,
        has_start: bool,
        end: Option<&[u8]>,
        has_end: bool,
    ) {
        let write = Write::DeleteRange((end_of(start, has_start), end_of(end, has_end)));
        if let Some(outcome) = self.submit(number, write) {
            self.shared.done.push(number, outcome);
        }
    }

    /// Adds a write to the transaction or batch.
    #[napi(catch_unwind)]
    pub fn stage(
        &self,
        env: &Env,
        what: u32,
        key: &[u8],
        value: Option<&[u8]>,
        ttl: Option<f64>,
    ) -> napi::Result<()> {
        let staged = Write::of(what, key, value, ttl).and_then(|write| self.stage_write(write));
        staged.map_err(|why| why.thrown(env))
    }

    /// Adds puts and removals to the transaction or batch. `bytes` has their keys and values, one after the
    /// other. `lengths` has two numbers for each: that of its key and that of its value, which is [`MISSING`]
    /// for a removal.
    #[napi(catch_unwind)]
    pub fn stage_many(&self, env: &Env, bytes: BufferSlice<'_>, lengths: &[u32]) -> napi::Result<()> {
        let total: usize =
            lengths.iter().filter(|length| **length != MISSING).map(|length| *length as usize).sum();
        let staged = match bytes.get(..total) {
            Some(bytes) => self.stage_all(bytes.to_vec(), lengths.to_vec()),
            None => Err(Failure::invalid("the lengths are those of more bytes")),
        };
        staged.map_err(|why| why.thrown(env))
    }

    /// Adds the removal of a range to the transaction or batch.
    #[napi(catch_unwind)]
    pub fn stage_delete_range(
        &self,
        env: &Env,
        start: Option<&[u8]>,
        has_start: bool,
        end: Option<&[u8]>,
        has_end: bool,
    ) -> napi::Result<()> {
        let ends = (end_of(start, has_start), end_of(end, has_end));
        self.stage_write(Write::DeleteRange(ends)).map_err(|why| why.thrown(env))
    }
}

impl NativeView {
    fn stage_write(&self, write: Write) -> Result<(), Failure> {
        let txn = self.txn.as_ref().ok_or_else(|| Failure::invalid("there is no transaction"))?;
        let keyspace = self.keyspace.clone();
        txn.sync(move |state| {
            caught(|| match state {
                State::Batch(batch) => Ok(write.stage(batch, &keyspace)?),
                state => Ok(write.stage_in(state.transaction()?, &keyspace)?),
            })
        })
    }

    fn stage_all(&self, bytes: Vec<u8>, lengths: Vec<u32>) -> Result<(), Failure> {
        let txn = self.txn.as_ref().ok_or_else(|| Failure::invalid("there is no transaction"))?;
        let keyspace = self.keyspace.clone();
        txn.sync(move |state| {
            caught(|| {
                let mut rest = &bytes[..];
                for pair in lengths.chunks_exact(2) {
                    let (key, behind) = rest.split_at(pair[0] as usize);
                    let is_put = pair[1] != MISSING;
                    let (value, behind) = behind.split_at(if is_put { pair[1] as usize } else { 0 });
                    rest = behind;
                    match (&mut *state, is_put) {
                        (State::Batch(batch), true) => batch.put(&keyspace, key, value)?,
                        (State::Batch(batch), false) => batch.delete(&keyspace, key)?,
                        (state, true) => state.transaction()?.put(&keyspace, key, value)?,
                        (state, false) => state.transaction()?.delete(&keyspace, key)?,
                    }
                }
                Ok(())
            })
        })
    }

    /// Commits a write. The future's outcome is the number of the commit.
    fn submit(&self, number: u32, write: Write) -> Option<completion::Result> {
        let (shared, keyspace) = (self.shared.clone(), self.keyspace.clone());
        let lasting = self.lasting.unwrap_or(shared.durability);
        let size = write.size();
        let begin = move || -> BoxFuture {
            let commit = match write {
                Write::Put { key, value, ttl: None } => keyspace.put_async(key, value),
                Write::Delete(key) => keyspace.delete_async(key),
                Write::Merge { key, operand } => keyspace.merge_async(key, operand),
                write => {
                    let mut batch = shared.db.batch();
                    let commit =
                        write.stage(&mut batch, &keyspace).map(|()| batch.commit_async_with(lasting));
                    return Box::pin(async move {
                        let seqno = commit?.await.map_err(|failed| failed.error)?;
                        Ok(Outcome::Number(seqno.get() as f64))
                    });
                }
            };
            Box::pin(async move { Ok(Outcome::Number(commit.await?.get() as f64)) })
        };
        self.shared.commits.submit(&self.shared.done, number, size, begin)
    }
}
