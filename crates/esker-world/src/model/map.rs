//! The entries of a keyspace in the model, with a digest that depends only on them.

use std::collections::BTreeMap;

use super::keys::{self, KeyNo};
use super::values::ValueNo;
use crate::op::{Merged, Write};

/// The entries of a keyspace.
#[derive(Clone, Debug, Default)]
pub struct Map {
    entries: BTreeMap<KeyNo, ValueNo>,
    /// Expiry times of the entries that have one.
    until: BTreeMap<KeyNo, u64>,
    /// What merges into entries would have made if a sweep had removed those entries before: see
    /// [`merge_at`](Self::merge_at).
    if_swept: BTreeMap<KeyNo, Vec<ValueNo>>,
    /// The write that set each entry last, by number.
    written: BTreeMap<KeyNo, u64>,
    /// Number of writes so far.
    writes: u64,
    digest: u64,
}

/// Scrambles a number, so that sums of scrambled numbers identify sets (the finalizer of SplitMix64).
pub(super) fn scramble(n: u64) -> u64 {
    let n = (n ^ n >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ n >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ n >> 31
}

fn entry_digest(key: KeyNo, value: ValueNo) -> u64 {
    scramble(scramble(u64::from(key.0) + 1) ^ value.digest())
}

fn until_digest(key: KeyNo, until: u64) -> u64 {
    scramble(scramble(u64::from(key.0) + 2) ^ scramble(until))
}

impl Map {
    /// Returns the entries.
    pub fn entries(&self) -> &BTreeMap<KeyNo, ValueNo> {
        &self.entries
    }

    /// Returns a digest that depends only on the contents.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Sets a key.
    pub fn put(&mut self, key: KeyNo, value: ValueNo) {
        self.remove(key);
        self.entries.insert(key, value);
        self.writes += 1;
        self.written.insert(key, self.writes);
        self.digest = self.digest.wrapping_add(entry_digest(key, value));
    }

    /// Returns the number of writes so far. It does not decrease.
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// Returns the number of the write that set an entry last; 0 if it is not there.
    pub fn written(&self, key: KeyNo) -> u64 {
        self.written.get(&key).copied().unwrap_or(0)
    }

    /// Applies a merge operand to a key.
    pub fn merge(&mut self, key: KeyNo, operand: ValueNo) {
        let before = self.entries.get(&key);
        self.put(key, before.map_or(operand, |before| before.merged(operand)));
    }

    /// Applies a merge operand to a key as of the time of the call. If the entry had expired or did not
    /// exist, the operand starts a new value. If it expires in the millisecond of the call, a sweep may have
    /// removed it before an operand that is dated back: then both are expired, but history shows the operand
    /// by itself.
    pub fn merge_at(&mut self, key: KeyNo, operand: ValueNo, merged: Merged) {
        let until = self.until.get(&key).copied();
        if self.entries.contains_key(&key) && until.is_none_or(|until| until > merged.at_ms) {
            let mut if_swept = self.if_swept.remove(&key).unwrap_or_default();
            if_swept.iter_mut().for_each(|value| *value = value.merged(operand));
            // An operand with a lifetime of zero is of the millisecond before.
            if merged.lifetime_ms == 1 && until == Some(merged.at_ms + 1) {
                if_swept.push(operand);
            }
            self.merge(key, operand);
            until.into_iter().for_each(|until| self.set_until(key, until));
            if !if_swept.is_empty() {
                self.if_swept.insert(key, if_swept);
            }
        } else {
            self.put(key, operand);
            if merged.lifetime_ms > 0 {
                self.set_until(key, merged.at_ms.saturating_add(merged.lifetime_ms));
            }
        }
    }

    /// Returns what an expired entry may be instead.
    pub fn if_swept(&self, key: KeyNo) -> &[ValueNo] {
        self.if_swept.get(&key).map_or(&[], Vec::as_slice)
    }

    /// Returns the expiry times of the entries that have one.
    pub fn until(&self) -> &BTreeMap<KeyNo, u64> {
        &self.until
    }

    /// Removes entries that have expired by `now_ms`.
    pub fn expire(&mut self, now_ms: u64) {
        let gone: Vec<_> =
            self.until.iter().filter(|(_, until)| **until <= now_ms).map(|(key, _)| *key).collect();
        gone.into_iter().for_each(|key| self.remove(key));
    }

    /// Sets the expiry time of an entry that has none.
    pub fn set_until(&mut self, key: KeyNo, until: u64) {
        self.until.insert(key, until);
        self.digest = self.digest.wrapping_add(until_digest(key, until));
    }

    /// Removes a key if it exists.
    pub fn remove(&mut self, key: KeyNo) {
        if let Some(until) = self.until.remove(&key) {
            self.digest = self.digest.wrapping_sub(until_digest(key, until));
        }
        self.written.remove(&key);
        self.if_swept.remove(&key);
        if let Some(old) = self.entries.remove(&key) {
            self.digest = self.digest.wrapping_sub(entry_digest(key, old));
        }
    }

    /// Applies a write of the model.
    pub(super) fn write(&mut self, write: &Write) {
        match write {
            Write::Put(key, value) => self.put(*key, *value),
            Write::PutUntil(key, value, until) => {
                self.put(*key, *value);
                self.set_until(*key, *until);
            }
            Write::PutFor(..) | Write::MergeFor(..) => panic!("the model has it dated"),
            Write::Merge(key, operand) => self.merge(*key, *operand),
            Write::MergeAt(key, operand, merged) => self.merge_at(*key, *operand, *merged),
            Write::Remove(key) => self.remove(*key),
            Write::RemoveRange(bounds) => {
                let Some(range) = keys::range(*bounds) else { return };
                let gone: Vec<_> = self.entries.range(range).map(|(key, _)| *key).collect();
                gone.into_iter().for_each(|key| self.remove(key));
            }
            Write::Clear => *self = Map { writes: self.writes, ..Map::default() },
        }
    }
}
