//! Many keys at once: what memory knows first, then the disk, by several threads.
//!
//! ```text
//!   keys --each--> in memory? --yes--> answer
//!                         `-no--> sorted, in shares --a thread each--> read, answer
//! ```
//!
//! many.1. Answers stand in the order of the keys.
//! many.2. Keys that share a block are looked up by one thread: it is read once.
//! many.3. Without background threads, or where no thread starts, the caller does it alone.

use super::catalog::KeyspaceState;
use super::core::Core;
use super::reads::ReadSource;
use crate::encoding::hash::key_hash;
use crate::read::point::{InlineOf, LOOKUPS_PER_PIN, ValueOf};
use crate::types::key::KeyBuf;
use crate::types::limits::check_key;
use crate::types::{Result, Value};

/// A thread has at least this number of reads: starting it takes about as long as one.
const READS_PER_THREAD_MIN: usize = 4;
/// So many reads are under way at a time.
const THREADS_MAX: usize = 16;

/// A key whose value is not in memory, and its place among the keys.
type Missing = (KeyBuf, usize);

/// Keys as they are stored, with their hashes.
fn hashed<K: AsRef<[u8]>>(keyspace: &KeyspaceState, keys: &[K]) -> Result<Vec<(KeyBuf, u64)>> {
    let hashed = keys.iter().map(|key| {
        // Once: it may answer differently the next time.
        let key = key.as_ref();
        check_key(key)?;
        let key = KeyBuf::new(keyspace.id, key);
        let hash = key_hash(&key);
        Ok((key, hash))
    });
    hashed.collect()
}

impl Core {
    /// Has the processor fetch what memtables hold of these keys.
    pub(crate) fn prefetch<K: AsRef<[u8]>>(&self, keyspace: &KeyspaceState, keys: &[K]) {
        let guard = crate::sync::pin();
        let view = self.view.load(&guard);
        for chunk in keys.chunks(LOOKUPS_PER_PIN) {
            // What is no key is told to who puts it.
            let Ok(hashed) = hashed(keyspace, chunk) else { continue };
            view.warm(hashed.iter().map(|(key, hash)| (&**key, *hash)));
        }
    }
}

impl ReadSource {
    /// Looks several keys up; with `threads`, those that are not in memory by several threads.
    pub(crate) fn find_many<K: AsRef<[u8]>>(
        &self,
        keyspace: &KeyspaceState,
        keys: &[K],
        threads: bool,
    ) -> Result<Vec<Option<Value>>> {
        let mut found = Vec::with_capacity(keys.len());
        let mut missing = Vec::new();
        let mut guard = crate::sync::pin();
        for chunk in keys.chunks(LOOKUPS_PER_PIN) {
            guard.repin();
            let hashed = hashed(keyspace, chunk)?;
            if hashed.len() > 1 {
                self.view.warm(hashed.iter().map(|(key, hash)| (&**key, *hash)));
            }
            for (key, hash) in hashed {
                match self.view.find_in_memory::<InlineOf>(&key, hash, self.at, &guard)? {
                    // Many values together would keep every block that they are in.
                    Some(Some(Some(value))) => found.push(Some(value.unpinned())),
                    Some(None) => found.push(None),
                    Some(Some(None)) | None => {
                        missing.push((key, found.len()));
                        found.push(None);
                    }
                }
            }
        }
        drop(guard);
        self.read_missing(missing, threads, &mut found)?;
        Ok(found)
    }

    fn read_missing(
        &self,
        mut missing: Vec<Missing>,
        threads: bool,
        found: &mut [Option<Value>],
    ) -> Result<()> {
        let shares = (missing.len() / READS_PER_THREAD_MIN).clamp(1, if threads { THREADS_MAX } else { 1 });
        if shares == 1 {
            return self.read_share(&missing).map(|values| place(&missing, values, found));
        }
        // many.2
        missing.sort_unstable_by(|(a, _), (b, _)| a[..].cmp(&b[..]));
        let shares: Vec<_> = missing.chunks(missing.len().div_ceil(shares)).collect();
        std::thread::scope(|scope| {
            let start = |share| {
                let thread = std::thread::Builder::new().name("esker-read".into());
                // many.3
                (share, thread.spawn_scoped(scope, move || self.read_share(share)).ok())
            };
            let (own, others) = shares.split_first().expect("there are keys");
            let started: Vec<_> = others.iter().copied().map(start).collect();
            place(own, self.read_share(own)?, found);
            for (share, thread) in started {
                let values = match thread.map(|thread| thread.join()) {
                    Some(Ok(values)) => values,
                    Some(Err(panic)) => std::panic::resume_unwind(panic),
                    None => self.read_share(share),
                };
                place(share, values?, found);
            }
            Ok(())
        })
    }

    fn read_share(&self, share: &[Missing]) -> Result<Vec<Option<Value>>> {
        let mut guard = crate::sync::pin();
        let find = |(n, (key, _)): (usize, &Missing)| {
            if n.is_multiple_of(LOOKUPS_PER_PIN) {
                guard.repin();
            }
            Ok(self.view.find::<ValueOf>(key, self.at, &guard)?.map(Value::unpinned))
        };
        share.iter().enumerate().map(find).collect()
    }
}

/// many.1
fn place(share: &[Missing], values: Vec<Option<Value>>, found: &mut [Option<Value>]) {
    share.iter().zip(values).for_each(|((_, at), value)| found[*at] = value);
}
