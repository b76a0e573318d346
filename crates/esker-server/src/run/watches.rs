//! Keys that are watched until `EXEC`.
//!
//! Watching, changes and `EXEC` all happen in the sequencer, one after the other. So a change between `WATCH`
//! and `EXEC` is never missed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

type Key = (usize, Vec<u8>);

/// All watched keys.
#[derive(Default)]
pub struct Watches {
    watchers: Mutex<HashMap<Key, Vec<Arc<AtomicBool>>>>,
    /// Number of watched keys. Relaxed: watches and changes both happen in the sequencer.
    len: AtomicUsize,
}

/// What a watched key was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// It did not exist.
    Absent,
    /// It existed. A hash had this number of fields that were expired but still stored.
    There { expired_fields: u64 },
}

/// Keys watched by one connection.
#[derive(Debug, Default)]
pub struct Watch {
    /// The keys, with what each was.
    pub keys: Vec<(Key, Watched)>,
    /// Set when one of them has changed. Relaxed: see `Watches::len`.
    changed: Arc<AtomicBool>,
}

impl Watch {
    /// Returns whether a watched key has changed.
    pub fn has_changed(&self) -> bool {
        self.changed.load(Ordering::Relaxed)
    }
}

impl Watches {
    /// Watches a key.
    pub fn add(&self, watch: &mut Watch, db: usize, key: &[u8], was: Watched) {
        let key = (db, key.to_vec());
        if watch.keys.iter().any(|(known, _)| *known == key) {
            return;
        }
        let mut watchers = self.watchers.lock();
        watchers.entry(key.clone()).or_default().push(watch.changed.clone());
        self.len.store(watchers.len(), Ordering::Relaxed);
        watch.keys.push((key, was));
    }

    /// Returns the number of watched keys.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Returns whether no key is watched.
    pub fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    /// Stops watching the keys of `watch`.
    pub fn remove(&self, watch: &Watch) {
        let mut watchers = self.watchers.lock();
        for (key, _) in &watch.keys {
            if let Some(list) = watchers.get_mut(key) {
                list.retain(|changed| !Arc::ptr_eq(changed, &watch.changed));
                if list.is_empty() {
                    watchers.remove(key);
                }
            }
        }
        self.len.store(watchers.len(), Ordering::Relaxed);
    }

    /// Reports that a key has changed.
    #[inline]
    pub fn touch(&self, db: usize, key: &[u8]) {
        if self.len.load(Ordering::Relaxed) > 0 {
            self.tell(|known| known.0 == db && known.1 == key);
        }
    }

    /// Reports that all keys of a database may have changed.
    pub fn touch_all(&self, db: usize) {
        if self.len.load(Ordering::Relaxed) > 0 {
            self.tell(|known| known.0 == db);
        }
    }

    fn tell(&self, is_meant: impl Fn(&Key) -> bool) {
        for (key, list) in &*self.watchers.lock() {
            if is_meant(key) {
                list.iter().for_each(|changed| changed.store(true, Ordering::Relaxed));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_reported_until_the_watch_ends() {
        let (watches, mut a, mut b) = (Watches::default(), Watch::default(), Watch::default());
        watches.add(&mut a, 0, b"k", Watched::There { expired_fields: 0 });
        watches.add(&mut b, 1, b"k", Watched::There { expired_fields: 0 });
        watches.touch(0, b"other");
        assert!(!a.has_changed());
        watches.touch(0, b"k");
        assert!(a.has_changed() && !b.has_changed());
        watches.remove(&a);
        watches.touch_all(1);
        assert!(b.has_changed());
        watches.remove(&b);
        assert_eq!(watches.len.load(Ordering::Relaxed), 0);
    }
}
