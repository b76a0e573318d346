//! A keyspace: as it is, or as a snapshot or transaction sees it.
//!
//! | call | keyspace | snapshot, transaction | batch |
//! |---|---|---|---|
//! | reads | newest state, `READS` | its state, `READS` or its lane | error |
//! | `write` | the commit thread | - | - |
//! | `stage` | - | into its writes, at once | into its writes, at once |
//! | `remove`, `swap`, `add`, ... | a commit of its own, `WAITS` | in it | error |

use std::sync::Arc;

use esker::{Cached, Durability, Keyspace, ReadCore, Ttl, ViewMut, WriteOptions};
use napi::bindgen_prelude::{BigInt, Env, ToNapiValue, Unknown};
use napi_derive::napi;

use crate::chunk::{Chunk, split};
use crate::completion::{BoxFuture, Completions, Outcome, value};
use crate::error::{Failure, caught};
use crate::iter::{NativeIter, Shape};
use crate::options::{durability, milliseconds};
use crate::pool::{READS, WAITS};
use crate::shared::Shared;
use crate::txn::{State, Txn, read_in};
use crate::write::{Write, end_of};

#[napi]
pub struct NativeView {
    pub(crate) shared: Arc<Shared>,
    keyspace: Keyspace,
    txn: Option<Arc<Txn>>,
    lasting: Option<Durability>,
}

impl NativeView {
    pub(crate) fn new(shared: Arc<Shared>, keyspace: Keyspace) -> NativeView {
        NativeView { shared, keyspace, txn: None, lasting: None }
    }

    pub(crate) fn keyspace(&self) -> &Keyspace {
        &self.keyspace
    }

    pub(crate) fn within(&self, txn: Arc<Txn>) -> NativeView {
        let (shared, keyspace) = (self.shared.clone(), self.keyspace.clone());
        NativeView { shared, keyspace, txn: Some(txn), lasting: self.lasting }
    }

    fn done(&self) -> Arc<Completions> {
        self.shared.done.clone()
    }

    /// Reads at once.
    fn read_now<R: Send + 'static>(
        &self,
        body: impl FnOnce(&dyn ReadCore) -> esker::Result<R> + Send + 'static,
    ) -> Result<R, Failure> {
        let Some(txn) = &self.txn else { return caught(|| Ok(body(&self.keyspace)?)) };
        let keyspace = self.keyspace.clone();
        txn.sync(move |state| caught(|| read_in(state, &keyspace, body)))
    }

    /// Reads while JavaScript goes on.
    fn read(&self, number: u32, body: impl FnOnce(&dyn ReadCore) -> esker::Result<Outcome> + Send + 'static) {
        let (done, keyspace) = (self.done(), self.keyspace.clone());
        let Some(txn) = &self.txn else {
            return READS.run(move || done.finish(number, || Ok(body(&keyspace)?)));
        };
        txn.job(move |state| {
            done.finish(number, || {
                let mut state = state?.lock();
                if let State::Snapshot(snapshot) = &*state {
                    let snapshot = snapshot.clone();
                    drop(state);
                    return Ok(body(&snapshot.keyspace(&keyspace))?);
                }
                read_in(&mut state, &keyspace, body)
            });
        });
    }

    /// Reads and writes one key: in the transaction, or as a commit of its own.
    fn update(
        &self,
        number: u32,
        alone: impl FnOnce(&Keyspace) -> esker::Result<Outcome> + Send + 'static,
        within: impl FnOnce(&mut ViewMut<'_>) -> esker::Result<Outcome> + Send + 'static,
    ) {
        let (done, keyspace) = (self.done(), self.keyspace.clone());
        let Some(txn) = &self.txn else {
            return WAITS.run(move || done.finish(number, || Ok(alone(&keyspace)?)));
        };
        txn.job(move |state| {
            done.finish(number, || {
                let mut state = state?.lock();
                Ok(within(&mut state.transaction()?.keyspace_mut(&keyspace))?)
            });
        });
    }
}

#[napi]
impl NativeView {
    #[napi(getter)]
    pub fn name(&self) -> String {
        self.keyspace.name()
    }

    #[napi(getter)]
    pub fn id(&self) -> u32 {
        self.keyspace.id().get()
    }

    /// Returns a handle with a durability and a lifetime of its own.
    #[napi(catch_unwind)]
    pub fn with(&self, env: &Env, lasting: Option<String>, ttl: Option<f64>) -> napi::Result<NativeView> {
        let made = || {
            let mut options = WriteOptions::new();
            let lasting = lasting.as_deref().map(durability).transpose()?.or(self.lasting);
            if let Some(lasting) = lasting {
                options = options.durability(lasting);
            }
            if let Some(ms) = ttl {
                options = options.ttl(milliseconds(ms, "ttl")?);
            }
            let (shared, txn) = (self.shared.clone(), self.txn.clone());
            Ok(NativeView { shared, keyspace: self.keyspace.with(options), txn, lasting })
        };
        caught(made).map_err(|why| why.thrown(env))
    }

    /// Reads a key in memory: its value, `undefined`, or `null` if a file would have to be read.
    #[napi(catch_unwind)]
    pub fn get_cached<'env>(&self, env: &'env Env, key: &[u8]) -> napi::Result<Unknown<'env>> {
        match self.keyspace.get_if_cached(key) {
            Ok(Cached::Value(found)) => value(env, Some(&found)),
            Ok(Cached::Absent) => value(env, None),
            Ok(Cached::NotCached) => napi::bindgen_prelude::Null.into_unknown(env),
            Err(error) => Err(Failure::from(error).thrown(env)),
        }
    }

    #[napi(catch_unwind)]
    pub fn get_sync<'env>(&self, env: &'env Env, key: &[u8]) -> napi::Result<Unknown<'env>> {
        let found = match &self.txn {
            None => self.keyspace.get(key).map_err(Failure::from),
            Some(_) => {
                let key = key.to_vec();
                self.read_now(move |reads| reads.value_of(&key))
            }
        };
        found.map_err(|why| why.thrown(env)).and_then(|found| value(env, found.as_ref()))
    }

    #[napi(catch_unwind)]
    pub fn get(&self, number: u32, key: &[u8]) {
        let key = key.to_vec();
        self.read(number, move |reads| Ok(Outcome::Value(reads.value_of(&key)?)));
    }

    /// Reads several keys, which stand one after the other.
    #[napi(catch_unwind)]
    pub fn many(&self, number: u32, keys: &[u8], lengths: &[u32]) {
        let keys = split(keys, lengths);
        self.read(number, move |reads| {
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            Ok(Outcome::Chunk(Chunk::of_values(&reads.values_of(&keys)?)))
        });
    }

    #[napi(catch_unwind)]
    pub fn has_sync(&self, env: &Env, key: &[u8]) -> napi::Result<bool> {
        let key = key.to_vec();
        self.read_now(move |reads| reads.has(&key)).map_err(|why| why.thrown(env))
    }

    #[napi(catch_unwind)]
    pub fn has_many(&self, number: u32, keys: &[u8], lengths: &[u32]) {
        let keys = split(keys, lengths);
        self.read(number, move |reads| {
            let found: esker::Result<Vec<bool>> = keys.iter().map(|key| reads.has(key)).collect();
            Ok(Outcome::Bools(found?))
        });
    }

    /// Returns the remaining lifetime in milliseconds, infinity if there is no end, nothing for no key.
    #[napi(catch_unwind)]
    pub fn ttl(&self, number: u32, key: &[u8]) {
        let key = key.to_vec();
        self.read(number, move |reads| {
            Ok(match reads.ttl_of(&key)? {
                None => Outcome::Nothing,
                Some(Ttl::Unlimited) => Outcome::Number(f64::INFINITY),
                Some(Ttl::Left(left)) => Outcome::Number(left.as_millis() as f64),
            })
        });
    }

    #[napi(catch_unwind)]
    pub fn count(&self, number: u32) {
        self.read(number, |reads| Ok(Outcome::Number(reads.count()? as f64)));
    }

    #[napi(catch_unwind)]
    pub fn approximate_size(
        &self,
        number: u32,
        start: Option<&[u8]>,
        has_start: bool,
        end: Option<&[u8]>,
        has_end: bool,
    ) {
        let ends = (end_of(start, has_start), end_of(end, has_end));
        let (done, keyspace) = (self.done(), self.keyspace.clone());
        READS.run(move || {
            done.finish(number, || Ok(Outcome::Number(keyspace.approximate_size(ends)? as f64)));
        });
    }

    #[napi(catch_unwind)]
    pub fn compact_range(
        &self,
        number: u32,
        start: Option<&[u8]>,
        has_start: bool,
        end: Option<&[u8]>,
        has_end: bool,
    ) {
        let ends = (end_of(start, has_start), end_of(end, has_end));
        let (done, keyspace) = (self.done(), self.keyspace.clone());
        WAITS.run(move || {
            done.finish(number, || Ok(keyspace.compact_range(ends).map(|()| Outcome::Nothing)?));
        });
    }

    /// Begins a walk over a range.
    #[napi(catch_unwind)]
    pub fn iter(
        &self,
        env: &Env,
        shape: Shape,
        start: Option<&[u8]>,
        has_start: bool,
        end: Option<&[u8]>,
        has_end: bool,
    ) -> napi::Result<NativeIter> {
        let ends = (end_of(start, has_start), end_of(end, has_end));
        let keyspace = self.keyspace.clone();
        let made = match &self.txn {
            None => caught(|| {
                NativeIter::of_snapshot(&self.shared, self.shared.db.snapshot(), keyspace, ends, shape)
            }),
            Some(txn) => NativeIter::of_txn(&self.shared, txn.clone(), keyspace, ends, shape),
        };
        made.map_err(|why| why.thrown(env))
    }

    /// Writes one key, as a commit of its own.
    #[napi(catch_unwind)]
    pub fn write(&self, number: u32, what: u32, key: &[u8], value: Option<&[u8]>, ttl: Option<f64>) {
        match Write::of(what, key, value, ttl) {
            Ok(write) => self.submit(number, write),
            Err(why) => self.shared.done.push(number, Err(why)),
        }
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
        self.submit(number, Write::DeleteRange((end_of(start, has_start), end_of(end, has_end))));
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

    #[napi(catch_unwind)]
    pub fn remove(&self, number: u32, key: &[u8]) {
        let (key, again) = (key.to_vec(), key.to_vec());
        self.update(
            number,
            move |keyspace| Ok(Outcome::Value(keyspace.remove(key)?)),
            move |view| Ok(Outcome::Value(view.remove(again)?)),
        );
    }

    /// Compares and swaps. No value: the key is missing, or is removed.
    #[napi(catch_unwind)]
    pub fn swap(&self, number: u32, key: &[u8], expected: Option<&[u8]>, value: Option<&[u8]>) {
        let key = key.to_vec();
        let (expected, value) = (expected.map(<[u8]>::to_vec), value.map(<[u8]>::to_vec));
        let arguments = (key.clone(), expected.clone(), value.clone());
        let outcome = |swap: esker::Swap| Outcome::Swap { swapped: swap.swapped, old: swap.old };
        self.update(
            number,
            move |keyspace| {
                keyspace.compare_and_swap(key, expected.as_deref(), value.as_deref()).map(outcome)
            },
            move |view| {
                let (key, expected, value) = arguments;
                view.compare_and_swap(key, expected.as_deref(), value.as_deref()).map(outcome)
            },
        );
    }

    #[napi(catch_unwind)]
    pub fn add(&self, number: u32, key: &[u8], by: BigInt) {
        let (key, again) = (key.to_vec(), key.to_vec());
        let (by, is_exact) = by.get_i64();
        if !is_exact {
            let why = Failure::invalid("the number does not fit into 64 bits with a sign");
            return self.shared.done.push(number, Err(why));
        }
        self.update(
            number,
            move |keyspace| keyspace.fetch_add(key, by).map(Outcome::Int),
            move |view| view.fetch_add(again, by).map(Outcome::Int),
        );
    }

    /// Sets the lifetime of a key; no time: without an end. Returns whether the key exists.
    #[napi(catch_unwind)]
    pub fn expire(&self, number: u32, key: &[u8], ttl: Option<f64>) {
        let ttl = match ttl.map(|ms| milliseconds(ms, "ttl")).transpose() {
            Ok(ttl) => ttl,
            Err(why) => return self.shared.done.push(number, Err(why)),
        };
        let (key, again) = (key.to_vec(), key.to_vec());
        self.update(
            number,
            move |keyspace| match ttl {
                Some(ttl) => keyspace.expire(key, ttl).map(Outcome::Bool),
                None => keyspace.persist(key).map(Outcome::Bool),
            },
            move |view| match ttl {
                Some(ttl) => view.expire(again, ttl).map(Outcome::Bool),
                None => view.persist(again).map(Outcome::Bool),
            },
        );
    }

    /// Removes and returns the first or the last entry.
    #[napi(catch_unwind)]
    pub fn pop(&self, number: u32, last: bool) {
        let entry = |found: Option<(esker::Key, esker::Value)>| {
            Outcome::Entry(found.map(|(key, value)| (key.to_vec(), value)))
        };
        self.update(
            number,
            move |keyspace| if last { keyspace.pop_last() } else { keyspace.pop_first() }.map(entry),
            move |view| if last { view.pop_last() } else { view.pop_first() }.map(entry),
        );
    }

    #[napi(catch_unwind)]
    pub fn set_merge_operator(&self, number: u32, name: String) {
        let (done, keyspace) = (self.done(), self.keyspace.clone());
        WAITS.run(move || {
            done.finish(number, || Ok(keyspace.set_merge_operator(&name).map(|()| Outcome::Nothing)?));
        });
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

    /// Commits a write. The future's outcome is the number of the commit.
    fn submit(&self, number: u32, write: Write) {
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
        self.shared.commits.submit(&self.shared.done, number, size, begin);
    }
}
