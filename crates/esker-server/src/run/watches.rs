//! Keys that are watched until `EXEC`.
//!
//! watches.1. Watching, changing and `EXEC` happen in the sequencer, one after the other: a change between
//!     the two others is never missed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

type Key = (usize, Vec<u8>);

/// All watched keys.
#[derive(Default)]
pub struct Watches {
    watchers: Mutex<HashMap<Key, Vec<Arc<AtomicBool>>>>,
    /// How many keys. Relaxed: a watch is set in the sequencer, as are changes (watches.1).
    len: AtomicUsize,
}

/// The keys of one connection.
#[derive(Debug, Default)]
pub struct Watch {
    /// The keys, and whether each was there.
    pub keys: Vec<(Key, bool)>,
    /// Whether one has changed. Relaxed: see `Watches::len`.
    changed: Arc<AtomicBool>,
}

impl Watch {
    /// Whether a key has changed.
    pub fn has_changed(&self) -> bool {
        self.changed.load(Ordering::Relaxed)
    }
}

impl Watches {
    /// Watches a key.
    pub fn add(&self, watch: &mut Watch, db: usize, key: &[u8], was_there: bool) {
        let key = (db, key.to_vec());
        if watch.keys.iter().any(|(known, _)| *known == key) {
            return;
        }
        let mut watchers = self.watchers.lock();
        watchers.entry(key.clone()).or_default().push(watch.changed.clone());
        self.len.store(watchers.len(), Ordering::Relaxed);
        watch.keys.push((key, was_there));
    }

    /// How many keys are watched.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Whether nobody watches anything.
    pub fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    /// Watches none of these any more.
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

    /// A key has changed.
    #[inline]
    pub fn touch(&self, db: usize, key: &[u8]) {
        if self.len.load(Ordering::Relaxed) > 0 {
            self.tell(|known| known.0 == db && known.1 == key);
        }
    }

    /// A whole database has changed.
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
    fn watches_1_changes_are_told_until_the_watch_ends() {
        let (watches, mut a, mut b) = (Watches::default(), Watch::default(), Watch::default());
        watches.add(&mut a, 0, b"k", true);
        watches.add(&mut b, 1, b"k", true);
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
