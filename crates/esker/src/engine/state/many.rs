//! Many keys at once: what memory knows first, then the disk, by several threads.
//!
//! ```text
//!   keys --each--> in memory? --yes--> answer
//!                         `-no--> sorted, in shares --a thread each--> read, answer
//! ```
//!
//! Answers are in the order of the keys. Keys of one block are looked up by one thread, so the block is read
//! once. Without background threads, or if no thread starts, the caller reads alone.
//!
//! A thread stops reading once all values read exceed the limit of bytes. The answers are those before the
//! first key that was not looked up.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::encoding::hash::key_hash;
use crate::engine::state::State;
use crate::engine::state::catalog::KeyspaceState;
use crate::engine::state::reads::ReadSource;
use crate::read::point::{InlineOf, LOOKUPS_PER_PIN, ValueOf};
use crate::types::key::KeyBuf;
use crate::types::limits::check_key;
use crate::types::{Cached, Result, Value, memory_only};

/// Minimum number of reads for a thread. Starting a thread takes about as long as one read.
const READS_PER_THREAD_MIN: usize = 4;
/// Maximum number of reads at the same time.
const THREADS_MAX: usize = 16;

/// A key whose value is not in memory, and its index among the keys.
type Missing = (KeyBuf, usize);
/// What a thread has found. It may have fewer values than keys.
type Share = Vec<Option<Value>>;

/// Bytes of values that may still be read. Relaxed: each thread sees its own reads at once, and
/// those of others soon.
struct Budget(AtomicUsize);

impl Budget {
    fn is_spent(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    fn take(&self, value: Option<&Value>) {
        let bytes = value.map_or(0, |value| value.len());
        let less = |left: usize| Some(left.saturating_sub(bytes));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

/// Encodes keys and computes their hashes.
fn hashed<K: AsRef<[u8]>>(keyspace: &KeyspaceState, keys: &[K]) -> Result<Vec<(KeyBuf, u64)>> {
    let hashed = keys.iter().map(|key| {
        // Called once: a second call might return another key.
        let key = key.as_ref();
        check_key(key)?;
        let key = KeyBuf::new(keyspace.id, key);
        let hash = key_hash(&key);
        Ok((key, hash))
    });
    hashed.collect()
}

impl State {
    /// Prefetches what memtables hold of these keys into the processor's cache.
    pub(crate) fn prefetch<K: AsRef<[u8]>>(&self, keyspace: &KeyspaceState, keys: &[K]) {
        let guard = crate::sync::pin();
        let view = self.view.load(&guard);
        for chunk in keys.chunks(LOOKUPS_PER_PIN) {
            // The put reports a key that is too long.
            let Ok(hashed) = hashed(keyspace, chunk) else { continue };
            view.warm(hashed.iter().map(|(key, hash)| (&**key, *hash)));
        }
    }
}

impl ReadSource {
    /// Looks up the first keys, until their values exceed `bytes_max` bytes; one key at least. With
    /// `threads`, several threads look up those that are not in memory.
    pub(crate) fn find_many<K: AsRef<[u8]>>(
        &self,
        keyspace: &KeyspaceState,
        keys: &[K],
        threads: bool,
        bytes_max: usize,
    ) -> Result<Vec<Option<Value>>> {
        let mut found = Vec::with_capacity(keys.len());
        let mut missing = Vec::new();
        let budget = Budget(bytes_max.into());
        let mut guard = crate::sync::pin();
        'keys: for chunk in keys.chunks(LOOKUPS_PER_PIN) {
            guard.repin();
            let hashed = hashed(keyspace, chunk)?;
            if hashed.len() > 1 {
                self.view.warm(hashed.iter().map(|(key, hash)| (&**key, *hash)));
            }
            for (key, hash) in hashed {
                if !found.is_empty() && budget.is_spent() {
                    break 'keys;
                }
                match self.view.find_in_memory::<InlineOf>(&key, hash, self.at, &guard)? {
                    // Pinned values would keep each of their blocks in memory.
                    Cached::Value(Some(value)) => {
                        found.push(Some(value.unpinned()));
                        budget.take(found.last().and_then(Option::as_ref));
                    }
                    Cached::Absent => found.push(None),
                    Cached::Value(None) | Cached::NotCached => {
                        missing.push((key, found.len()));
                        found.push(None);
                    }
                }
            }
        }
        drop(guard);
        let unread = self.read_missing(missing, threads, &budget, &mut found)?;
        found.truncate(unread);
        Ok(found)
    }

    /// Reads the missing values. Returns the index of the first key that was not looked up.
    fn read_missing(
        &self,
        mut missing: Vec<Missing>,
        threads: bool,
        budget: &Budget,
        found: &mut [Option<Value>],
    ) -> Result<usize> {
        // At least one key is looked up, whatever the threads do.
        if let Some((key, at)) = missing.first().filter(|(_, at)| *at == 0) {
            let guard = crate::sync::pin();
            found[*at] = self.view.find::<ValueOf>(key, self.at, &guard)?.map(Value::unpinned);
            budget.take(found[*at].as_ref());
            missing.remove(0);
        }
        // memory_only.1: the scope is that of this thread.
        let threads = threads && !memory_only::is_on();
        let shares = (missing.len() / READS_PER_THREAD_MIN).clamp(1, if threads { THREADS_MAX } else { 1 });
        if shares == 1 {
            return Ok(place(&missing, self.read_share(&missing, budget)?, found));
        }
        // Keys of one block go to one thread.
        missing.sort_unstable_by(|(a, _), (b, _)| a[..].cmp(&b[..]));
        let shares: Vec<_> = missing.chunks(missing.len().div_ceil(shares)).collect();
        std::thread::scope(|scope| {
            let start = |share| {
                let thread = std::thread::Builder::new().name("esker-read".into());
                // If no thread starts, the caller reads the share.
                (share, thread.spawn_scoped(scope, move || self.read_share(share, budget)).ok())
            };
            let (own, others) = shares.split_first().expect("there are keys");
            let started: Vec<_> = others.iter().copied().map(start).collect();
            let mut unread = place(own, self.read_share(own, budget)?, found);
            for (share, thread) in started {
                let values = match thread.map(|thread| thread.join()) {
                    Some(Ok(values)) => values,
                    Some(Err(panic)) => std::panic::resume_unwind(panic),
                    None => self.read_share(share, budget),
                };
                unread = unread.min(place(share, values?, found));
            }
            Ok(unread)
        })
    }

    fn read_share(&self, share: &[Missing], budget: &Budget) -> Result<Share> {
        let mut guard = crate::sync::pin();
        let mut values = Vec::with_capacity(share.len());
        for (key, _) in share {
            if budget.is_spent() {
                break;
            }
            if values.len().is_multiple_of(LOOKUPS_PER_PIN) {
                guard.repin();
            }
            let value = self.view.find::<ValueOf>(key, self.at, &guard)?.map(Value::unpinned);
            budget.take(value.as_ref());
            values.push(value);
        }
        Ok(values)
    }
}

/// Puts values at the indexes of their keys. Returns the smallest index without a value.
fn place(share: &[Missing], values: Share, found: &mut [Option<Value>]) -> usize {
    let unread = share[values.len()..].iter().map(|(_, at)| *at).min();
    share.iter().zip(values).for_each(|((_, at), value)| found[*at] = value);
    unread.unwrap_or(usize::MAX)
}
