//! A keyspace: as it is, or as a snapshot or transaction sees it.
//!
//! | call | keyspace | snapshot, transaction | batch |
//! |---|---|---|---|
//! | reads | newest state, in memory or in `READS` | its state, in memory, in `READS` or its lane | error |
//! | `write` | at once, or the commit thread | - | - |
//! | `stage` | - | into its writes, at once | into its writes, at once |
//! | `remove`, `swap`, `add`, ... | a commit of its own, `WAITS` | in it | error |

use std::sync::Arc;

use esker::{Cached, Durability, Keyspace, ReadCore, Ttl, ViewMut, WriteOptions, memory_only};
use napi::bindgen_prelude::{BigInt, BufferSlice, Env, ToNapiValue, Unknown};
use napi_derive::napi;

use crate::chunk::{Chunk, split};
use crate::completion::{self, Completions, Outcome, returned, value};
use crate::error::{Failure, caught};
use crate::iter::{NativeIter, Shape};
use crate::options::{durability, milliseconds};
use crate::pool::{READS, WAITS};
use crate::shared::Shared;
use crate::txn::{State, Txn, read_in};
use crate::write::end_of;

/// More keys at a time are read by another thread.
const SOON_MAX: usize = 128;
/// What `find` returns if the key does not exist, if a file would have to be read, and if the value is larger
/// than the room.
const ABSENT: i32 = -1;
const UNKNOWN: i32 = -2;
const LARGE: i32 = -3;

#[napi]
pub struct NativeView {
    pub(crate) shared: Arc<Shared>,
    pub(crate) keyspace: Keyspace,
    pub(crate) txn: Option<Arc<Txn>>,
    pub(crate) lasting: Option<Durability>,
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

    /// Reads in memory at once. `None`: a file would have to be read, or the transaction is busy.
    fn read_in_memory(
        &self,
        body: impl FnOnce(&dyn ReadCore) -> esker::Result<Outcome>,
    ) -> Option<completion::Result> {
        let Some(txn) = &self.txn else {
            return memory_only(|| caught(|| Ok(body(&self.keyspace)?)));
        };
        let is_free = txn.lane.is_none() && txn.check_free().is_ok();
        let mut state = txn.state.try_lock().filter(|_| is_free)?;
        memory_only(|| caught(|| read_in(&mut state, &self.keyspace, body)))
    }

    /// Reads in memory, or while JavaScript goes on.
    fn read_soon<'env>(
        &self,
        env: &'env Env,
        number: u32,
        body: impl Fn(&dyn ReadCore) -> esker::Result<Outcome> + Send + 'static,
    ) -> napi::Result<Unknown<'env>> {
        let found = self.read_in_memory(&body);
        if found.is_none() {
            self.read(number, body);
        }
        returned(env, found)
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

    /// Reads the key in the first bytes of `room` in memory, and puts its value there. Returns the length of
    /// the value, or one of [`ABSENT`], [`UNKNOWN`] and [`LARGE`].
    #[napi(catch_unwind)]
    pub fn find(&self, env: &Env, mut room: BufferSlice<'_>, key: u32) -> napi::Result<i32> {
        let found =
            room.get(..key as usize).map_or(Ok(Cached::NotCached), |key| self.keyspace.get_if_cached(key));
        match found {
            Ok(Cached::Value(found)) => Ok(room.get_mut(..found.len()).map_or(LARGE, |place| {
                place.copy_from_slice(&found);
                found.len() as i32
            })),
            Ok(Cached::Absent) => Ok(ABSENT),
            Ok(Cached::NotCached) => Ok(UNKNOWN),
            Err(error) => Err(Failure::from(error).thrown(env)),
        }
    }

    #[napi(catch_unwind)]
    pub fn get<'env>(&self, env: &'env Env, number: u32, key: &[u8]) -> napi::Result<Unknown<'env>> {
        let key = key.to_vec();
        self.read_soon(env, number, move |reads| Ok(Outcome::Value(reads.value_of(&key)?)))
    }

    /// Reads several keys, which stand one after the other.
    #[napi(catch_unwind)]
    pub fn many<'env>(
        &self,
        env: &'env Env,
        number: u32,
        keys: &[u8],
        lengths: &[u32],
    ) -> napi::Result<Unknown<'env>> {
        let keys = split(keys, lengths);
        let is_many = keys.len() > SOON_MAX;
        let body = move |reads: &dyn ReadCore| {
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            Ok(Outcome::Chunk(Chunk::of_values(&reads.values_of(&keys)?)))
        };
        if is_many {
            self.read(number, body);
            return returned(env, None);
        }
        self.read_soon(env, number, body)
    }

    #[napi(catch_unwind)]
    pub fn has_sync(&self, env: &Env, key: &[u8]) -> napi::Result<bool> {
        let key = key.to_vec();
        self.read_now(move |reads| reads.has(&key)).map_err(|why| why.thrown(env))
    }

    #[napi(catch_unwind)]
    pub fn has_many<'env>(
        &self,
        env: &'env Env,
        number: u32,
        keys: &[u8],
        lengths: &[u32],
    ) -> napi::Result<Unknown<'env>> {
        let keys = split(keys, lengths);
        let is_many = keys.len() > SOON_MAX;
        let body = move |reads: &dyn ReadCore| {
            let found: esker::Result<Vec<bool>> = keys.iter().map(|key| reads.has(key)).collect();
            Ok(Outcome::Bools(found?))
        };
        if is_many {
            self.read(number, body);
            return returned(env, None);
        }
        self.read_soon(env, number, body)
    }

    /// Returns the remaining lifetime in milliseconds, infinity if there is no end, nothing for no key.
    #[napi(catch_unwind)]
    pub fn ttl<'env>(&self, env: &'env Env, number: u32, key: &[u8]) -> napi::Result<Unknown<'env>> {
        let key = key.to_vec();
        self.read_soon(env, number, move |reads| {
            Ok(match reads.ttl_of(&key)? {
                None => Outcome::Nothing,
                Some(Ttl::Unlimited) => Outcome::Number(f64::INFINITY),
                Some(Ttl::Left(left)) => Outcome::Number(left.as_millis() as f64),
            })
        })
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

    /// Begins a walk over a range, and takes up to `count` entries as `fillIn` does. Returns nothing if no
    /// more are wanted: if these are all, or if the walk is to end with them.
    #[napi(catch_unwind)]
    pub fn iter(
        &self,
        env: &Env,
        mut room: BufferSlice<'_>,
        shape: u32,
        count: u32,
        start: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> napi::Result<Option<NativeIter>> {
        let (keyspace, shape) = (self.keyspace.clone(), Shape::of(shape));
        let ends = (end_of(start, shape.has_start), end_of(end, shape.has_end));
        let made = caught(|| {
            let made = match &self.txn {
                None => {
                    NativeIter::of_snapshot(&self.shared, self.shared.db.snapshot(), keyspace, ends, shape)?
                }
                Some(txn) => NativeIter::of_txn(&self.shared, txn.clone(), keyspace, ends, shape)?,
            };
            let is_whole = count > 0 && made.begin(&mut room, count)?;
            Ok((!is_whole).then_some(made))
        });
        made.map_err(|why| why.thrown(env))
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
