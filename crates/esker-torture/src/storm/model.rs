//! What one worker's keyspaces must hold, where the clock is the machine's.
//!
//! storm_model.1. A call happens at some moment of its span. What depends on the moment within it is unsure: a key whose
//!     presence it decides is not compared until something sets or removes it.

use std::collections::{BTreeMap, BTreeSet};

use esker_world::model::values::ValueNo;
use serde::{Deserialize, Serialize};

/// Keyspaces of a worker.
pub(super) const SLOTS: usize = 3;
/// The default lifetime in the second one.
pub(super) const DEFAULT_TTL_MS: u64 = 400;
/// Keys of values; above them are those of numbers.
pub(super) const KEYS: u16 = 400;
/// Keys of numbers.
pub(super) const NUMBERS: u16 = 8;

/// The earliest and the latest moment at which something happened, in milliseconds of the engine's time.
pub(super) type Span = (u64, u64);

/// What a key has.
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

/// How long a put lasts.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Life {
    /// As the keyspace has it.
    Default,
    /// This number of milliseconds.
    For(u64),
}

/// One change of a keyspace.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Change {
    Put(u16, u32, u32, Life),
    Merge(u16, u32, u32),
    /// By `update`: what a merge does, by reading.
    Update(u16, u32, u32),
    Add(u16, i64),
    Remove(u16),
    /// By `take`.
    Take(u16),
    /// From this key on, before that one.
    RemoveRange(u16, u16),
    Clear,
    Expire(u16, u64),
    Persist(u16),
}

/// How changes are committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Way {
    Single,
    Batch,
    Transaction,
    Ingest,
    /// Two keyspaces exchange their names in a transaction.
    Swap,
    /// The keyspace goes and a new one of its name gets the changes.
    Recreate,
}

/// One commit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Action {
    pub(super) way: Way,
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
    /// What `fold` makes of a key that expires, or would, is not compared.
    skips_folded_expiry: bool,
}

/// All keyspaces of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Model {
    pub(super) slots: Vec<Slot>,
}

/// Whether something is there at all moments of a span, at none, or at some.
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

    /// What `fold` makes of what the key has, which keeps its expiry, or is new.
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

    /// Compares no key that another model has in another way, until something sets or removes it.
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
        match action.way {
            Way::Swap => {
                let name = self.slots[0].name.clone();
                self.slots[0].name = std::mem::replace(&mut self.slots[1].name, name);
            }
            Way::Recreate => action.changes.iter().for_each(|(slot, _)| {
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

/// The first name of a keyspace.
pub(super) fn name(worker: usize, slot: usize) -> String {
    format!("w{worker}.{slot}")
}

/// The bytes of a key.
pub(super) fn key(no: u16) -> Vec<u8> {
    format!("key {no:05}").into_bytes()
}

/// The key of these bytes.
pub(super) fn key_no(bytes: &[u8]) -> Option<u16> {
    std::str::from_utf8(bytes).ok()?.strip_prefix("key ")?.parse().ok()
}
