//! Walks over a range, many entries a call.

use std::ops::Bound;
use std::sync::Arc;

use esker::{Key, Keys, Keyspace, Range, ReadCore, Snapshot, Value, memory_only};
use napi::bindgen_prelude::{BufferSlice, Env, Unknown};
use napi_derive::napi;
use parking_lot::Mutex;

use crate::chunk::Chunk;
use crate::completion::Outcome;
use crate::error::{Failure, caught};
use crate::pool::READS;
use crate::shared::Shared;
use crate::txn::{Txn, read_in};
use crate::write::Ends;

/// Bytes of the first entries of a walk, about.
const FIRST_SIZE: u32 = 8192;

/// What a walk returns, and in which order.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    reverse: bool,
    keys: bool,
    values: bool,
    pub(crate) has_start: bool,
    pub(crate) has_end: bool,
    /// Whether the walk ends with its first entries.
    is_short: bool,
}

impl Shape {
    /// Reads the bits that lib/chunk.js makes.
    pub(crate) fn of(bits: u32) -> Shape {
        let [reverse, keys, values, has_start, has_end, is_short] =
            std::array::from_fn(|bit| bits & (1 << bit) != 0);
        Shape { reverse, keys, values, has_start, has_end, is_short }
    }
}

enum Source {
    Snapshot(Snapshot),
    Txn(Arc<Txn>),
    Closed,
}

enum Walk {
    Entries(Range),
    Keys(Keys),
    Closed,
}

struct State {
    source: Source,
    walk: Walk,
    /// The ends with which the walk began.
    ends: Ends,
    /// Entries that were read, but did not fit the room of the caller.
    ready: Option<Chunk>,
    /// The error that follows the entries of the last chunk. The walk returns an error only once.
    failed: Option<esker::Error>,
}

#[napi]
pub struct NativeIter {
    shared: Arc<Shared>,
    state: Arc<Mutex<State>>,
    keyspace: Keyspace,
    ends: Ends,
    shape: Shape,
}

fn borrowed(end: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    end.as_ref().map(Vec::as_slice)
}

/// Begins a walk. Ends that leave no key are allowed.
fn walk(reads: &dyn ReadCore, ends: &Ends, shape: Shape) -> Walk {
    let range = reads.between(borrowed(&ends.0), borrowed(&ends.1));
    match shape.values {
        true => Walk::Entries(range),
        false => Walk::Keys(range.keys()),
    }
}

fn walk_in(source: &Source, keyspace: &Keyspace, ends: Ends, shape: Shape) -> Result<Walk, Failure> {
    match source {
        Source::Snapshot(snapshot) => Ok(walk(&snapshot.keyspace(keyspace), &ends, shape)),
        Source::Txn(txn) => {
            let keyspace = keyspace.clone();
            txn.sync(move |state| read_in(state, &keyspace, |reads| Ok(walk(reads, &ends, shape))))
        }
        Source::Closed => Err(Failure::invalid("the walk has ended")),
    }
}

impl State {
    fn step(&mut self, reverse: bool) -> esker::Result<Option<(Key, Option<Value>)>> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        match &mut self.walk {
            Walk::Entries(range) => {
                let entry = if reverse { range.next_back() } else { range.next() };
                Ok(entry.transpose()?.map(|(key, value)| (key, Some(value))))
            }
            Walk::Keys(keys) => {
                let key = if reverse { keys.next_back() } else { keys.next() };
                Ok(key.transpose()?.map(|key| (key, None)))
            }
            Walk::Closed => Ok(None),
        }
    }

    /// Takes the next entries: up to `count` of them, and not many more than `size` bytes.
    fn fill(&mut self, shape: Shape, count: u32, size: u32) -> esker::Result<Chunk> {
        if let Some(chunk) = self.ready.take() {
            return Ok(chunk);
        }
        let mut chunk = Chunk::default();
        while chunk.len() < count as usize && chunk.size() < size as usize {
            let entry = match self.step(shape.reverse) {
                // The entries before the error come first.
                Err(error) if chunk.len() > 0 => {
                    self.failed = Some(error);
                    break;
                }
                entry => entry?,
            };
            let Some((key, value)) = entry else {
                chunk.is_last = true;
                break;
            };
            let key = if shape.keys { &key[..] } else { &[] };
            chunk.push(key, value.as_deref().unwrap_or_default());
        }
        Ok(chunk)
    }
}

impl NativeIter {
    fn new(
        shared: &Arc<Shared>,
        source: Source,
        keyspace: Keyspace,
        ends: Ends,
        shape: Shape,
    ) -> Result<NativeIter, Failure> {
        let walk = walk_in(&source, &keyspace, ends.clone(), shape)?;
        let begun = State { source, walk, ends: ends.clone(), ready: None, failed: None };
        let state = Arc::new(Mutex::new(begun));
        Ok(NativeIter { shared: shared.clone(), state, keyspace, ends, shape })
    }

    pub(crate) fn of_snapshot(
        shared: &Arc<Shared>,
        snapshot: Snapshot,
        keyspace: Keyspace,
        ends: Ends,
        shape: Shape,
    ) -> Result<NativeIter, Failure> {
        NativeIter::new(shared, Source::Snapshot(snapshot), keyspace, ends, shape)
    }

    pub(crate) fn of_txn(
        shared: &Arc<Shared>,
        txn: Arc<Txn>,
        keyspace: Keyspace,
        ends: Ends,
        shape: Shape,
    ) -> Result<NativeIter, Failure> {
        NativeIter::new(shared, Source::Txn(txn), keyspace, ends, shape)
    }
}

impl NativeIter {
    /// Takes the first entries into `room`, if they are in memory and fit. Returns their number, and whether
    /// they are all.
    fn first(&self, room: &mut [u8], count: u32) -> Result<Option<(usize, bool)>, Failure> {
        let mut state = self.state.lock();
        let Some(chunk) = memory_only(|| state.fill(self.shape, count, FIRST_SIZE)) else {
            state.failed = None;
            state.walk = walk_in(&state.source, &self.keyspace, state.ends.clone(), self.shape)?;
            return Ok(None);
        };
        // The next call returns the error.
        let chunk = match chunk {
            Ok(chunk) => chunk,
            Err(error) => {
                state.failed = Some(error);
                return Ok(None);
            }
        };
        if chunk.copy_into(room) {
            return Ok(Some((chunk.len(), chunk.is_last)));
        }
        state.ready = Some(chunk);
        Ok(None)
    }

    /// Takes the first entries of a new walk. Returns whether no more are wanted.
    pub(crate) fn begin(&self, room: &mut [u8], count: u32) -> Result<bool, Failure> {
        let first = self.first(room, count)?;
        if first.is_none() {
            Chunk::note_none(room);
        }
        Ok(first.is_some_and(|(taken, is_last)| is_last || (self.shape.is_short && taken == count as usize)))
    }
}

#[napi]
impl NativeIter {
    /// Takes the next entries while JavaScript goes on.
    #[napi(catch_unwind)]
    pub fn fill(&self, number: u32, count: u32, size: u32) {
        let (done, state, shape) = (self.shared.done.clone(), self.state.clone(), self.shape);
        READS.run(move || {
            done.finish(number, || Ok(Outcome::Chunk(state.lock().fill(shape, count, size)?)));
        });
    }

    /// Takes the first entries in memory, into `room` (chunk.rs). Returns false if a file would have to be
    /// read, or if they do not fit: then the next call returns them.
    #[napi(catch_unwind)]
    pub fn fill_in(&self, env: &Env, mut room: BufferSlice<'_>, count: u32) -> napi::Result<bool> {
        let filled = caught(|| Ok(self.first(&mut room, count)?.is_some()));
        filled.map_err(|why| why.thrown(env))
    }

    /// Takes the next entries at once.
    #[napi(catch_unwind)]
    pub fn fill_sync<'env>(&self, env: &'env Env, count: u32, size: u32) -> napi::Result<Unknown<'env>> {
        let chunk = caught(|| Ok(self.state.lock().fill(self.shape, count, size)?));
        chunk.map_err(|why| why.thrown(env))?.into_js(env)
    }

    /// Goes on with the first key at `target` or behind it, in the direction of the walk.
    #[napi(catch_unwind)]
    pub fn seek(&self, env: &Env, target: &[u8]) -> napi::Result<()> {
        let sought = caught(|| {
            let mut state = self.state.lock();
            let ends = narrowed(&self.ends, target, self.shape.reverse);
            (state.failed, state.ready) = (None, None);
            state.walk = match ends {
                Some(ends) => {
                    state.ends = ends.clone();
                    walk_in(&state.source, &self.keyspace, ends, self.shape)?
                }
                None => Walk::Closed,
            };
            Ok(())
        });
        sought.map_err(|why| why.thrown(env))
    }

    /// Gives back what the walk holds.
    #[napi(catch_unwind)]
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.walk = Walk::Closed;
        state.source = Source::Closed;
        (state.failed, state.ready) = (None, None);
    }
}

/// The part of a range from `target` on. `None`: the target is beyond the range.
fn narrowed(ends: &Ends, target: &[u8], reverse: bool) -> Option<Ends> {
    let is_below = |end: &Bound<Vec<u8>>| match end {
        Bound::Unbounded => false,
        Bound::Included(key) => target < key.as_slice(),
        Bound::Excluded(key) => target <= key.as_slice(),
    };
    let is_above = |end: &Bound<Vec<u8>>| match end {
        Bound::Unbounded => false,
        Bound::Included(key) => target > key.as_slice(),
        Bound::Excluded(key) => target >= key.as_slice(),
    };
    let here = Bound::Included(target.to_vec());
    let (start, end) = ends.clone();
    match (is_below(&start), is_above(&end), reverse) {
        (true, _, false) => Some((start, end)),
        (_, true, true) => Some((start, end)),
        (_, true, false) | (true, _, true) => None,
        (false, false, false) => Some((here, end)),
        (false, false, true) => Some((start, here)),
    }
}
