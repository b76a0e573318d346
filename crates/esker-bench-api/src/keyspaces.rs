//! Many keyspaces in one database: the interface for suite `keyspaces`.
//!
//! ```text
//! Engine --open_keyspaces(dir, count)--> Keyspaces --write(txn)-------> KeyspaceWriter   put
//!                                                  --get, range-------> the newest state of one keyspace
//!                                                  --remove_keyspaces-> whole ones
//! an engine with one order: Engine --open(dir)--> Store --Prefixed--> Keyspaces
//! ```
//!
//! - `Keyspaces::write` is one atomic transaction over any keyspaces, unless [`Isolation`](crate::Isolation)
//!   says otherwise, with the durability given at the opening. The same holds for the keyspaces that
//!   [`Engine::open_keyspaces`](crate::Engine::open_keyspaces) creates.
//! - Keyspaces are separate orders. The same key in two of them is two items, and a range ends with its
//!   keyspace.
//! - A removed keyspace is empty, also after another opening. The removal is on the device when
//!   `remove_keyspaces` returns, whatever the durability. An engine without sync commits does its best.

use std::ops::Range;
use std::time::Instant;

use crate::store::{Durability, Failure, Result, Store, VisitItem, Writer};

/// Number of items that [`Prefixed`] removes in one transaction.
const REMOVE_BATCH: u64 = 1000;

/// The work of one transaction over keyspaces.
pub type KeyspacesWork<'a> = &'a mut dyn FnMut(&mut dyn KeyspaceWriter) -> Result<()>;

/// An open database with many ordered maps, numbered from 0.
pub trait Keyspaces: Send + Sync {
    /// Runs `work` in one transaction and commits it. On a conflict the adapter runs `work` again.
    fn write(&self, work: KeyspacesWork<'_>) -> Result<()>;

    /// Passes the newest value of `key` in one keyspace to `visit`. Returns false if there is none.
    fn get(&self, keyspace: u32, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Passes up to `limit` items of one keyspace from the first key >= `from` to `visit`, in key order.
    /// Returns their number.
    fn range(&self, keyspace: u32, from: &[u8], limit: u64, visit: VisitItem<'_>) -> Result<u64>;

    /// Removes existing keyspaces with all their items.
    fn remove_keyspaces(&mut self, keyspaces: Range<u32>) -> Result<()>;

    /// As [`Store::drain`].
    fn drain(&self, _deadline: Instant) -> Result<()> {
        Ok(())
    }

    /// Returns whether the keyspaces are prefixes of keys.
    fn are_prefixes(&self) -> bool {
        false
    }
}

/// The open transaction of a [`Keyspaces::write`].
pub trait KeyspaceWriter {
    /// Inserts or replaces an item in an existing keyspace.
    fn put(&mut self, keyspace: u32, key: &[u8], value: &[u8]) -> Result<()>;
}

/// Handles of an adapter's keyspaces, or their names, by number. A missing keyspace has no handle.
#[derive(Debug)]
pub struct Handles<T>(Vec<Option<T>>);

impl<T> Handles<T> {
    /// Opens `count` keyspaces by their names.
    pub fn open<E>(count: u32, mut open: impl FnMut(&str) -> Result<Option<T>, E>) -> Result<Self, E> {
        (0..count).map(|number| open(&format!("keyspace-{number:05}"))).collect::<Result<_, E>>().map(Self)
    }

    /// Returns whether no keyspace exists, so that the database is new.
    pub fn are_none(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Returns the existing handles.
    pub fn iter(&self) -> impl Iterator<Item = &T> + Clone {
        self.0.iter().flatten()
    }

    /// Returns the handle of a keyspace.
    pub fn get(&self, keyspace: u32) -> Option<&T> {
        self.0.get(keyspace as usize)?.as_ref()
    }

    /// Returns the handle of a keyspace that must exist.
    pub fn of(&self, keyspace: u32) -> Result<&T> {
        self.get(keyspace).ok_or_else(|| Failure::Engine(format!("keyspace {keyspace} is not there")))
    }

    /// Removes and returns the handles of removed keyspaces.
    pub fn take(&mut self, keyspaces: Range<u32>) -> impl Iterator<Item = T> {
        keyspaces.filter_map(move |keyspace| self.0.get_mut(keyspace as usize)?.take())
    }

    /// Converts the handles.
    pub fn map<U>(self, mut change: impl FnMut(T) -> U) -> Handles<U> {
        Handles(self.0.into_iter().map(|handle| handle.map(&mut change)).collect())
    }
}

/// Keyspaces in a store with one order: each key begins with the number of its keyspace, 4 bytes big-endian.
pub(crate) struct Prefixed {
    pub(crate) store: Box<dyn Store>,
    pub(crate) durability: Durability,
}

/// Sets `full` to the key in the store.
fn prefix(keyspace: u32, key: &[u8], full: &mut Vec<u8>) {
    full.clear();
    full.extend_from_slice(&keyspace.to_be_bytes());
    full.extend_from_slice(key);
}

fn prefixed(keyspace: u32, key: &[u8]) -> Vec<u8> {
    let mut full = Vec::with_capacity(size_of::<u32>() + key.len());
    prefix(keyspace, key, &mut full);
    full
}

impl Prefixed {
    /// Returns up to [`REMOVE_BATCH`] keys of the store, from `from` on and before `end`.
    fn keys(&self, from: &[u8], end: &[u8]) -> Result<Vec<Vec<u8>>> {
        let (mut reader, mut keys) = (self.store.reader()?, Vec::new());
        reader.keys(from, REMOVE_BATCH, &mut |key| {
            if key < end {
                keys.push(key.to_vec());
            }
        })?;
        Ok(keys)
    }
}

impl Keyspaces for Prefixed {
    fn write(&self, work: KeyspacesWork<'_>) -> Result<()> {
        self.store.write(&mut |writer| work(&mut PrefixedWriter { writer, key: Vec::new() }))
    }

    fn get(&self, keyspace: u32, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.store.get(&prefixed(keyspace, key), visit)
    }

    fn range(&self, keyspace: u32, from: &[u8], limit: u64, visit: VisitItem<'_>) -> Result<u64> {
        let (number, mut seen) = (keyspace.to_be_bytes(), 0);
        self.store.range(&prefixed(keyspace, from), limit, &mut |key, value| {
            if let Some(key) = key.strip_prefix(&number) {
                visit(key, value);
                seen += 1;
            }
        })?;
        Ok(seen)
    }

    /// Removes the items one by one, and then syncs.
    fn remove_keyspaces(&mut self, keyspaces: Range<u32>) -> Result<()> {
        let (mut from, end) = (prefixed(keyspaces.start, &[]), prefixed(keyspaces.end, &[]));
        loop {
            let keys = self.keys(&from, &end)?;
            let Some(last) = keys.last() else { break };
            self.store.write(&mut |writer| keys.iter().try_for_each(|key| writer.remove(key)))?;
            // The next search begins behind the removed keys.
            from.clone_from(last);
            from.push(0);
        }
        if self.durability == Durability::Sync {
            return Ok(());
        }
        match self.store.set_durability(Durability::Sync) {
            // Makes the earlier commits durable, if the engine has the mode.
            Ok(()) => self.store.set_durability(self.durability),
            Err(Failure::Unsupported(_)) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    fn drain(&self, deadline: Instant) -> Result<()> {
        self.store.drain(deadline)
    }

    fn are_prefixes(&self) -> bool {
        true
    }
}

struct PrefixedWriter<'txn> {
    writer: &'txn mut dyn Writer,
    /// The last key, whose memory the next one takes.
    key: Vec<u8>,
}

impl KeyspaceWriter for PrefixedWriter<'_> {
    fn put(&mut self, keyspace: u32, key: &[u8], value: &[u8]) -> Result<()> {
        prefix(keyspace, key, &mut self.key);
        self.writer.put(&self.key, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_go_by_number() {
        let names = |there: u32| {
            Handles::open(5, move |name| {
                let number: u32 = name.trim_start_matches("keyspace-").parse().unwrap();
                Ok::<_, Failure>((number < there).then(|| name.to_owned()))
            })
        };
        assert!(names(0).unwrap().are_none());
        let mut handles = names(4).unwrap().map(|name| name.len());
        assert!(!handles.are_none() && handles.iter().all(|length| *length == "keyspace-00000".len()));
        assert_eq!((handles.get(3).is_some(), handles.get(4), handles.get(5)), (true, None, None));
        assert_eq!(handles.take(2..9).count(), 2);
        assert_eq!(handles.iter().count(), 2);
        assert!(handles.of(1).is_ok() && handles.of(2).is_err());
    }
}
