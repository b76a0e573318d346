//! When keys were last accessed and how often, in a table of fixed size.
//!
//! ```text
//!   space, key --hash--> a line of 8 entries, each: tag of the key | seconds since 1970 | counter
//!                         `-- full: the entry that is idle longest is replaced
//! ```
//!
//! accesses.1. A key without an entry was last accessed before all keys of its line, if the line is full, and
//!     otherwise before the table was emptied.
//!
//! The table is approximate. Two keys of a line with the same tag share an entry. Times that `RESTORE` sets
//! may be older than those of replaced entries. Of two accesses at the same time only one may count. Atomics
//! are relaxed for that reason: each entry is complete in itself.
//!
//! The counter is that of Redis: it grows ever more slowly, up to 255, and decays with time.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Counter of a new key.
const FIRST_COUNT: u8 = 5;
const TAG_BITS: u32 = 24;
/// Bytes of a line.
const LINE_BYTES: u64 = 64;

/// A cache line of entries. 0: free.
#[derive(Default)]
#[repr(align(64))]
struct Line([AtomicU64; 8]);

/// The content of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Entry {
    tag: u64,
    seconds: u32,
    count: u8,
}

impl Entry {
    fn of(packed: u64) -> Self {
        Entry { tag: packed >> 40, seconds: (packed >> 8) as u32, count: packed as u8 }
    }

    fn packed(self) -> u64 {
        self.tag << 40 | u64::from(self.seconds) << 8 | u64::from(self.count)
    }
}

/// What is known of the accesses to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Seconds since the last access. If the key has no entry, it may be longer.
    pub idle: u64,
    /// The counter; 0 if the key has no entry.
    pub count: u8,
}

/// What to record of a key.
#[derive(Clone, Copy, Debug)]
pub enum Note {
    /// The key was accessed.
    Access,
    /// The key was created: earlier accesses do not count.
    Created,
    /// Seconds since the last access are given.
    Idle(u64),
    /// The counter is given.
    Count(u8),
}

/// The table. It is off and takes no memory until it is turned on.
#[derive(Default)]
pub struct Accesses {
    is_on: AtomicBool,
    lines: OnceLock<Box<[Line]>>,
    /// When it was emptied, in seconds since 1970.
    since: AtomicU64,
    /// `lfu-log-factor` and `lfu-decay-time`.
    log_factor: AtomicU64,
    decay_minutes: AtomicU64,
}

/// The place of a key in the table.
struct Place<'t> {
    line: &'t Line,
    tag: u64,
}

impl Accesses {
    /// Creates a table that is off, with counters as in Redis.
    pub fn new() -> Self {
        let accesses = Accesses::default();
        accesses.set_log_factor(10);
        accesses.set_decay_minutes(1);
        accesses
    }

    /// Returns whether accesses are recorded.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Returns the bytes of the table; 0: it was never on.
    pub fn bytes(&self) -> u64 {
        self.lines.get().map_or(0, |lines| lines.len() as u64 * LINE_BYTES)
    }

    /// Returns the bytes that a table of about this size has.
    pub fn bytes_of(wanted: u64) -> u64 {
        wanted.div_ceil(LINE_BYTES) * LINE_BYTES
    }

    /// Turns the table on with about this size, and empties it, or turns it off. The first size stays.
    pub fn set_bytes(&self, bytes: u64, now_ms: u64) {
        if bytes > 0 && !self.is_on() {
            let count = bytes.div_ceil(LINE_BYTES);
            let lines = self.lines.get_or_init(|| (0..count).map(|_| Line::default()).collect());
            lines.iter().flat_map(|line| &line.0).for_each(|entry| entry.store(0, Ordering::Relaxed));
            self.since.store(now_ms / 1000, Ordering::Relaxed);
        }
        self.is_on.store(bytes > 0, Ordering::Relaxed);
    }

    /// Sets how fast counters grow.
    pub fn set_log_factor(&self, factor: u64) {
        self.log_factor.store(factor, Ordering::Relaxed);
    }

    /// Sets after how many minutes without an access counters lose 1; 0: never.
    pub fn set_decay_minutes(&self, minutes: u64) {
        self.decay_minutes.store(minutes, Ordering::Relaxed);
    }

    fn place(&self, space: &str, key: &[u8]) -> Option<Place<'_>> {
        let lines = self.lines.get().filter(|_| self.is_on())?;
        let seed = space.bytes().fold(0, |seed: u64, byte| seed.rotate_left(8) ^ u64::from(byte));
        let hash = xxh3_64_with_seed(key, seed);
        let at = (u128::from(hash) * lines.len() as u128) >> 64;
        Some(Place { line: &lines[at as usize], tag: hash & ((1 << TAG_BITS) - 1) })
    }

    /// Records something of a key.
    pub fn note(&self, space: &str, key: &[u8], note: Note, now_ms: u64) {
        let Some(place) = self.place(space, key) else { return };
        let now = now_ms / 1000;
        let (slot, known) = place.to_write();
        let count = |known: Option<Entry>| known.map_or(FIRST_COUNT, |entry| self.decayed(entry, now));
        let (seconds, count) = match note {
            Note::Access => {
                (now, known.map_or(FIRST_COUNT, |entry| grown(self.decayed(entry, now), self.factor())))
            }
            Note::Created => (now, FIRST_COUNT),
            Note::Idle(seconds) => (now.saturating_sub(seconds), count(known)),
            Note::Count(count) => (now, count),
        };
        let entry = Entry { tag: place.tag, seconds: seconds.clamp(1, u32::MAX.into()) as u32, count };
        slot.store(entry.packed(), Ordering::Relaxed);
    }

    /// Records that a key has another name.
    pub fn rename(&self, space: &str, from: &[u8], to: &[u8]) {
        let Some((_, Some(entry))) = self.place(space, from).map(|place| place.to_write()) else { return };
        let Some(place) = self.place(space, to) else { return };
        let (slot, _) = place.to_write();
        slot.store(Entry { tag: place.tag, ..entry }.packed(), Ordering::Relaxed);
    }

    /// Returns what is known of a key. `None` if accesses are not recorded.
    pub fn seen(&self, space: &str, key: &[u8], now_ms: u64) -> Option<Seen> {
        let place = self.place(space, key)?;
        let now = now_ms / 1000;
        let idle_since = |seconds: u32| now.saturating_sub(seconds.into());
        if let (_, Some(entry)) = place.to_write() {
            return Some(Seen { idle: idle_since(entry.seconds), count: self.decayed(entry, now) });
        }
        let entries = place.line.0.each_ref().map(|entry| entry.load(Ordering::Relaxed));
        // accesses.1
        let oldest = entries.iter().map(|packed| Entry::of(*packed).seconds).min().unwrap_or(0);
        let since = self.since.load(Ordering::Relaxed);
        let idle = if oldest == 0 { now.saturating_sub(since) } else { idle_since(oldest) };
        Some(Seen { idle, count: 0 })
    }

    fn factor(&self) -> u64 {
        self.log_factor.load(Ordering::Relaxed)
    }

    /// Returns the counter of an entry at this time.
    fn decayed(&self, entry: Entry, now: u64) -> u8 {
        let period = self.decay_minutes.load(Ordering::Relaxed).saturating_mul(60);
        if period == 0 {
            return entry.count;
        }
        let periods = (now / period).saturating_sub(u64::from(entry.seconds) / period);
        entry.count.saturating_sub(u8::try_from(periods).unwrap_or(u8::MAX))
    }
}

impl<'t> Place<'t> {
    /// Returns where to write the entry of the key, and the entry if there is one.
    fn to_write(&self) -> (&'t AtomicU64, Option<Entry>) {
        let mut oldest = (&self.line.0[0], u32::MAX);
        for slot in &self.line.0 {
            let packed = slot.load(Ordering::Relaxed);
            let entry = Entry::of(packed);
            if packed != 0 && entry.tag == self.tag {
                return (slot, Some(entry));
            }
            if entry.seconds < oldest.1 {
                oldest = (slot, entry.seconds);
            }
        }
        (oldest.0, None)
    }
}

/// Returns a counter after one more access.
fn grown(count: u8, factor: u64) -> u8 {
    let above = u64::from(count.saturating_sub(FIRST_COUNT));
    let grows = fastrand::u64(..above.saturating_mul(factor).saturating_add(1)) == 0;
    count.saturating_add(u8::from(grows))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(bytes: u64) -> Accesses {
        let accesses = Accesses::new();
        accesses.set_bytes(bytes, 999_960_000);
        accesses
    }

    #[test]
    fn accesses_are_found_by_space_and_decay() {
        let accesses = table(1 << 20);
        let at = |seconds: u64| 999_960_000 + seconds * 1000;
        accesses.note("r0", b"k", Note::Access, at(10));
        assert_eq!(accesses.seen("r0", b"k", at(25)), Some(Seen { idle: 15, count: 5 }));
        assert_eq!(accesses.seen("r1", b"k", at(25)), Some(Seen { idle: 25, count: 0 }));
        (0..2000).for_each(|_| accesses.note("r0", b"k", Note::Access, at(30)));
        let count = accesses.seen("r0", b"k", at(30)).unwrap().count;
        assert!((12..40).contains(&count), "{count}: about the root of 2000 / 5");
        let later = accesses.seen("r0", b"k", at(30 + 600)).unwrap();
        assert_eq!((later.idle, later.count), (600, count - 10), "a minute takes 1");
        accesses.rename("r0", b"k", b"other");
        assert_eq!(accesses.seen("r0", b"other", at(630)).unwrap().count, count - 10);
        accesses.note("r0", b"k", Note::Created, at(640));
        assert_eq!(accesses.seen("r0", b"k", at(640)), Some(Seen { idle: 0, count: 5 }));
        accesses.note("r0", b"k", Note::Idle(5000), at(640));
        accesses.note("r0", b"f", Note::Count(200), at(640));
        assert_eq!(accesses.seen("r0", b"k", at(640)).unwrap().idle, 5000);
        assert_eq!(accesses.seen("r0", b"f", at(640)).unwrap().count, 200);
        accesses.set_bytes(0, at(650));
        assert_eq!(accesses.seen("r0", b"k", at(650)), None);
        accesses.set_bytes(1 << 20, at(700));
        assert_eq!(accesses.seen("r0", b"k", at(701)), Some(Seen { idle: 1, count: 0 }));
    }

    #[test]
    fn keys_without_room_are_idle_at_least_as_long_as_is_said() {
        // 64 entries.
        let accesses = table(512);
        let mut last = std::collections::HashMap::new();
        for step in 0..5000 {
            let (now, key) = (999_960_000 + step * 1000, fastrand::u32(..200));
            accesses.note("r0", &key.to_le_bytes(), Note::Access, now);
            last.insert(key, step);
        }
        let now = 999_960_000 + 5000 * 1000;
        let mut found = 0;
        for (key, step) in last {
            let seen = accesses.seen("r0", &key.to_le_bytes(), now).unwrap();
            assert!(seen.idle <= 5000 - step, "{key}: {seen:?} {step}");
            found += usize::from(seen.count > 0 && seen.idle == 5000 - step);
        }
        assert!((40..=64).contains(&found), "{found}");
    }
}
