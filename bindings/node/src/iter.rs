//! Walks over a range, many entries a call.

use std::ops::Bound;
use std::sync::Arc;

use esker::{Key, Keys, Keyspace, Range, ReadCore, Snapshot, Value};
use napi::bindgen_prelude::{Env, Unknown};
use napi_derive::napi;
use parking_lot::Mutex;

use crate::chunk::Chunk;
use crate::completion::Outcome;
use crate::error::{Failure, caught};
use crate::pool::READS;
use crate::shared::Shared;
use crate::txn::{Txn, read_in};
use crate::write::Ends;

/// What a walk returns, and in which order.
#[napi(object)]
#[derive(Clone, Copy)]
pub struct Shape {
    pub reverse: bool,
    pub keys: bool,
    pub values: bool,
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
        let state = Arc::new(Mutex::new(State { source, walk, failed: None }));
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
            state.failed = None;
            state.walk = match ends {
                Some(ends) => walk_in(&state.source, &self.keyspace, ends, self.shape)?,
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
        state.failed = None;
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
