//! The expected contents of a worker's keyspaces, with the machine's clock. A call happens at some time
//! within its span. If that time decides whether a key exists, the key is unsure and not compared until it is
//! set or removed.

use std::collections::{BTreeMap, BTreeSet};

use esker_world::model::values::ValueNo;
use serde::{Deserialize, Serialize};

/// Number of keyspaces of a worker.
pub(super) const SLOTS: usize = 3;
/// Default lifetime in the second one.
pub(super) const DEFAULT_TTL_MS: u64 = 400;
/// Number of keys of values. Keys above are those of numbers.
pub(super) const KEYS: u16 = 400;
/// Number of keys of numbers.
pub(super) const NUMBERS: u16 = 8;

/// The earliest and latest time of an event, in milliseconds of the engine's time.
pub(super) type Span = (u64, u64);

/// The content of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Content {
    /// Length and stamp of a value.
    Bytes(u32, u32),
    /// A counter.
    Number(i64),
}

impl Content {
    pub(super) fn of(value: ValueNo) -> Self {
        Content::Bytes(value.len, value.stamp())
    }

    pub(super) fn bytes(self) -> Vec<u8> {
        match self {
            Content::Bytes(len, stamp) => ValueNo::new(len, stamp).bytes(),
            Content::Number(number) => number.to_le_bytes().to_vec(),
        }
    }
}

/// The lifetime of a put.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Life {
    /// The default of the keyspace.
    Default,
    /// In milliseconds.
    For(u64),
}

/// One change of a keyspace.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Change {
    Put(u16, u32, u32, Life),
    Merge(u16, u32, u32),
    /// By `update`: reads and applies a merge.
    Update(u16, u32, u32),
    Add(u16, i64),
    Remove(u16),
    /// By `take`.
    Take(u16),
    /// The first key and the one after the last.
    RemoveRange(u16, u16),
    Clear,
    Expire(u16, u64),
    Persist(u16),
}

/// How changes are committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Method {
    Single,
    Batch,
    Transaction,
    Ingest,
    /// Two keyspaces swap their names in a transaction.
    Swap,
    /// The keyspace is dropped and recreated with the changes.
    Recreate,
}

/// One commit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Action {
    pub(super) method: Method,
    pub(super) changes: Vec<(usize, Change)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) content: Content,
    pub(super) until: Option<Span>,
}

/// One keyspace.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Slot {
    pub(super) name: String,
    pub(super) entries: BTreeMap<u16, Entry>,
    pub(super) unsure: BTreeSet<u16>,
    /// Whether results of `fold` on expiring keys are not compared.
    skips_folded_expiry: bool,
}

/// All keyspaces of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Model {
    pub(super) slots: Vec<Slot>,
}

/// Whether an entry exists during all, none or a part of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    Live,
    Gone,
    Unsure,
}

impl Entry {
    pub(super) fn presence(&self, span: Span) -> Presence {
        match self.until {
            None => Presence::Live,
            Some((earliest, _)) if earliest > span.1 => Presence::Live,
            Some((_, latest)) if latest <= span.0 => Presence::Gone,
            Some(_) => Presence::Unsure,
        }
    }
}

impl Slot {
    pub(super) fn presence(&self, key: u16, span: Span) -> Presence {
        match self.entries.get(&key) {
            _ if self.unsure.contains(&key) => Presence::Unsure,
            None => Presence::Gone,
            Some(entry) => entry.presence(span),
        }
    }

    fn set(&mut self, key: u16, content: Content, until: Option<Span>) {
        self.unsure.remove(&key);
        self.entries.insert(key, Entry { content, until });
    }

    fn remove(&mut self, key: u16) {
        self.unsure.remove(&key);
        self.entries.remove(&key);
    }

    /// Sets the result of `fold` on the current content, keeping its expiry time.
    fn fold(
        &mut self,
        key: u16,
        span: Span,
        default: Option<Span>,
        fold: impl Fn(Option<Content>) -> Content,
    ) {
        let expires = self.entries.get(&key).map_or(default, |entry| entry.until.or(default)).is_some();
        match (self.presence(key, span), self.entries.get(&key).copied()) {
            _ if expires && self.skips_folded_expiry => {
                self.unsure.insert(key);
            }
            (Presence::Unsure, _) => {
                self.unsure.insert(key);
            }
            (Presence::Live, Some(entry)) => self.set(key, fold(Some(entry.content)), entry.until),
            _ => self.set(key, fold(None), default),
        }
    }

    fn change_until(&mut self, key: u16, span: Span, until: Option<Span>) {
        match (self.presence(key, span), self.entries.get_mut(&key)) {
            (Presence::Unsure, _) => {
                self.unsure.insert(key);
            }
            (Presence::Live, Some(entry)) => entry.until = until,
            _ => self.remove(key),
        }
    }

    fn apply(&mut self, change: &Change, span: Span, ttl: Option<u64>) {
        let after = |ms: u64| (span.0.saturating_add(ms), span.1.saturating_add(ms));
        let default = ttl.map(after);
        match *change {
            Change::Put(key, len, stamp, life) => {
                let until = match life {
                    Life::Default => default,
                    Life::For(ms) => Some(after(ms)),
                };
                self.set(key, Content::of(ValueNo::new(len, stamp)), until);
            }
            Change::Merge(key, len, stamp) | Change::Update(key, len, stamp) => {
                let operand = ValueNo::new(len, stamp);
                self.fold(key, span, default, |before| match before {
                    Some(Content::Bytes(len, stamp)) => Content::of(ValueNo::new(len, stamp).merged(operand)),
                    _ => Content::of(operand),
                });
            }
            Change::Add(key, by) => self.fold(key, span, default, |before| match before {
                Some(Content::Number(number)) => Content::Number(number + by),
                _ => Content::Number(by),
            }),
            Change::Remove(key) | Change::Take(key) => self.remove(key),
            Change::RemoveRange(from, to) => {
                self.entries.retain(|key, _| !(from..to).contains(key));
                self.unsure.retain(|key| !(from..to).contains(key));
            }
            Change::Clear => {
                self.entries.clear();
                self.unsure.clear();
            }
            Change::Expire(key, ms) => self.change_until(key, span, Some(after(ms))),
            Change::Persist(key) => self.change_until(key, span, None),
        }
    }
}

impl Model {
    pub(super) fn new(worker: usize, skips_folded_expiry: bool) -> Self {
        let slot = |n| Slot {
            name: name(worker, n),
            entries: BTreeMap::new(),
            unsure: BTreeSet::new(),
            skips_folded_expiry,
        };
        Model { slots: (0..SLOTS).map(slot).collect() }
    }

    /// Marks keys that differ from another model as unsure.
    pub(super) fn doubt_what_differs(&mut self, other: &Model) {
        for (slot, other) in self.slots.iter_mut().zip(&other.slots) {
            let keys: BTreeSet<u16> = slot.entries.keys().chain(other.entries.keys()).copied().collect();
            let differs = |key: &u16| slot.entries.get(key) != other.entries.get(key);
            let doubted: Vec<_> = keys.into_iter().filter(differs).collect();
            slot.unsure.extend(doubted);
            slot.unsure.extend(&other.unsure);
        }
    }

    pub(super) fn apply(&mut self, action: &Action, span: Span) {
        match action.method {
            Method::Swap => {
                let name = self.slots[0].name.clone();
                self.slots[0].name = std::mem::replace(&mut self.slots[1].name, name);
            }
            Method::Recreate => action.changes.iter().for_each(|(slot, _)| {
                self.slots[*slot].entries.clear();
                self.slots[*slot].unsure.clear();
            }),
            _ => {}
        }
        for (slot, change) in &action.changes {
            let ttl = (*slot == 1).then_some(DEFAULT_TTL_MS);
            self.slots[*slot].apply(change, span, ttl);
        }
    }
}

/// Returns the first name of a keyspace.
pub(super) fn name(worker: usize, slot: usize) -> String {
    format!("w{worker}.{slot}")
}

/// Returns the bytes of a key.
pub(super) fn key(no: u16) -> Vec<u8> {
    format!("key {no:05}").into_bytes()
}

/// Returns the number of a key.
pub(super) fn key_no(bytes: &[u8]) -> Option<u16> {
    std::str::from_utf8(bytes).ok()?.strip_prefix("key ")?.parse().ok()
}
