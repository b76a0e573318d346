//! Checks whether a history of one register is linearizable: whether its operations can be ordered, each at a
//! point between its call and its return, so that every read returns the last written value.
//!
//! ```text
//!   operations of one key, sorted by time --search--> an order, or failure
//! ```
//!
//! The search of Wing and Gong ("Testing and verifying concurrent objects", 1993) with the cache of Lowe
//! ("Testing for linearizability", 2017): no combination of ordered operations and value is tried twice.
//! Linearizability is local, so each key is checked separately. An operation with an unknown outcome
//! (`maybe`) takes effect between its call and its return, or never.

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Serialize};

/// The effect or result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Wrote this value; `None` is a removal.
    Write(Option<u64>),
    /// Read this value.
    Read(Option<u64>),
    /// Found this number (0 if missing) and wrote the next one, atomically.
    Increment(u64),
    /// Found whether there is any value.
    IsThere(bool),
    /// Found no value or another one than this.
    IsNot(u64),
    /// Found some value and replaced it by this one.
    Rename(u64),
}

impl Action {
    /// Returns whether it has no effect, so that it is irrelevant if its outcome is unknown.
    pub fn only_reads(self) -> bool {
        match self {
            Action::Read(_) | Action::IsThere(_) | Action::IsNot(_) => true,
            Action::Write(_) | Action::Increment(_) | Action::Rename(_) => false,
        }
    }
}

/// An operation on a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The register.
    pub key: u64,
    /// Its effect or result.
    pub action: Action,
    /// When it was called.
    pub called: u64,
    /// When it returned.
    pub returned: u64,
    /// Whether it is unknown if it took effect.
    pub maybe: bool,
}

/// Checks each key of a history of initially empty registers. Returns the operations of the first key that is
/// not linearizable, ordered by time.
pub fn check(history: &[Operation]) -> Result<(), Vec<Operation>> {
    let mut keys: BTreeMap<u64, Vec<Operation>> = BTreeMap::new();
    for operation in history {
        // A read with unknown outcome is irrelevant.
        if !(operation.maybe && operation.action.only_reads()) {
            keys.entry(operation.key).or_default().push(*operation);
        }
    }
    for mut operations in keys.into_values() {
        operations.sort_by_key(|operation| operation.called);
        if !Search::new(&operations).finds_order() {
            return Err(operations);
        }
    }
    Ok(())
}

/// Returns the value after an operation, or `None` if the operation is impossible.
fn step(value: Option<u64>, action: Action) -> Option<Option<u64>> {
    match action {
        Action::Write(new) => Some(new),
        Action::Read(seen) => (seen == value).then_some(value),
        Action::Increment(from) => (from == value.unwrap_or(0)).then_some(Some(from + 1)),
        Action::IsThere(is_there) => (value.is_some() == is_there).then_some(value),
        Action::IsNot(other) => (value != Some(other)).then_some(value),
        Action::Rename(new) => value.map(|_| Some(new)),
    }
}

/// Calls and returns ordered by time, as a list from which ordered operations are removed.
struct Search<'a> {
    operations: &'a [Operation],
    /// For each entry, the operation and whether the entry is its call.
    entries: Vec<(usize, bool)>,
    /// For each operation, the entries of its call and its return.
    places: Vec<(usize, usize)>,
    next: Vec<usize>,
    previous: Vec<usize>,
}

/// An ordered operation: its entry, the value before it, and whether it was assumed never to take effect.
struct Placed {
    entry: usize,
    before: Option<u64>,
    skipped: bool,
}

impl<'a> Search<'a> {
    fn new(operations: &'a [Operation]) -> Self {
        let mut times: Vec<(u64, usize, bool)> = Vec::new();
        for (i, operation) in operations.iter().enumerate() {
            assert!(operation.called < operation.returned, "an operation returns after it was called");
            times.push((operation.called, i, true));
            times.push((operation.returned, i, false));
        }
        times.sort_unstable();
        // Entry 0 is the head of the list.
        let mut entries = vec![(usize::MAX, false)];
        let mut places = vec![(0, 0); operations.len()];
        for (_, i, is_call) in times {
            match is_call {
                true => places[i].0 = entries.len(),
                false => places[i].1 = entries.len(),
            }
            entries.push((i, is_call));
        }
        let n = entries.len();
        let (next, previous) = ((1..=n).collect(), (0..=n).map(|i| i.saturating_sub(1)).collect());
        Search { operations, entries, places, next, previous }
    }

    fn unlink(&mut self, entry: usize) {
        let (before, after) = (self.previous[entry], self.next[entry]);
        self.next[before] = after;
        self.previous[after] = before;
    }

    fn link(&mut self, entry: usize) {
        let (before, after) = (self.previous[entry], self.next[entry]);
        self.next[before] = entry;
        self.previous[after] = entry;
    }

    fn finds_order(&mut self) -> bool {
        let end = self.entries.len();
        let mut placed_bits = vec![0u64; self.operations.len().div_ceil(64)];
        let mut tried: HashSet<(Vec<u64>, Option<u64>)> = HashSet::new();
        let mut placed: Vec<Placed> = Vec::new();
        let mut value = None;
        let mut entry = self.next[0];
        let mut may_take_effect = true;
        while self.next[0] != end {
            let (i, is_call) = self.entries[entry];
            if is_call {
                let operation = &self.operations[i];
                let effect = if may_take_effect { step(value, operation.action) } else { None };
                let skipped = effect.is_none() && operation.maybe;
                let after = if skipped { Some(value) } else { effect };
                may_take_effect = true;
                if let Some(after) = after {
                    placed_bits[i / 64] |= 1 << (i % 64);
                    if tried.insert((placed_bits.clone(), after)) {
                        placed.push(Placed { entry, before: value, skipped });
                        value = after;
                        let (call, ret) = self.places[i];
                        self.unlink(call);
                        self.unlink(ret);
                        entry = self.next[0];
                        continue;
                    }
                    placed_bits[i / 64] &= !(1 << (i % 64));
                    if operation.maybe && !skipped {
                        may_take_effect = false;
                        continue;
                    }
                }
                entry = self.next[entry];
                continue;
            }
            // This operation should have been ordered by now: undo the last choice.
            let Some(last) = placed.pop() else { return false };
            let (i, _) = self.entries[last.entry];
            placed_bits[i / 64] &= !(1 << (i % 64));
            let (call, ret) = self.places[i];
            self.link(ret);
            self.link(call);
            value = last.before;
            if self.operations[i].maybe && !last.skipped {
                entry = last.entry;
                may_take_effect = false;
            } else {
                entry = self.next[last.entry];
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(action: Action, called: u64, returned: u64) -> Operation {
        Operation { key: 1, action, called, returned, maybe: false }
    }

    fn write(value: u64, called: u64, returned: u64) -> Operation {
        op(Action::Write(Some(value)), called, returned)
    }

    fn read(value: Option<u64>, called: u64, returned: u64) -> Operation {
        op(Action::Read(value), called, returned)
    }

    fn good(history: &[Operation]) -> bool {
        check(history).is_ok()
    }

    #[test]
    fn sequential_histories() {
        assert!(good(&[]));
        assert!(good(&[read(None, 0, 1), write(1, 2, 3), read(Some(1), 4, 5)]));
        assert!(!good(&[write(1, 2, 3), read(None, 4, 5)]), "a lost write");
        assert!(!good(&[write(1, 0, 1), write(2, 2, 3), read(Some(1), 4, 5)]), "a stale read");
        assert!(!good(&[read(Some(9), 0, 1)]), "a value from nowhere");
        let remove = op(Action::Write(None), 2, 3);
        assert!(good(&[write(1, 0, 1), remove, read(None, 4, 5)]));
        assert!(!good(&[write(1, 0, 1), remove, read(Some(1), 4, 5)]), "a removed value comes back");
    }

    #[test]
    fn concurrent_histories() {
        // Two concurrent writes: readers may see either order, but must agree.
        let writes = [write(1, 0, 10), write(2, 1, 9)];
        let with = |reads: &[Operation]| good(&[&writes, reads].concat());
        assert!(with(&[read(Some(1), 11, 12), read(Some(1), 13, 14)]));
        assert!(with(&[read(Some(2), 11, 12)]));
        assert!(!with(&[read(Some(1), 11, 12), read(Some(2), 13, 14)]));
        assert!(with(&[read(None, 2, 3), read(Some(2), 4, 5), read(Some(1), 6, 7)]));
        // A value that was seen stays visible.
        assert!(!with(&[read(Some(1), 2, 3), read(None, 4, 5)]));
        assert!(!good(&[write(1, 0, 10), read(Some(1), 1, 2), read(None, 3, 4)]));
    }

    #[test]
    fn an_unknown_outcome_happens_in_its_time_or_never() {
        let maybe = Operation { maybe: true, ..write(1, 0, 3) };
        assert!(good(&[maybe, read(None, 4, 5)]));
        assert!(good(&[maybe, read(Some(1), 4, 5)]));
        assert!(!good(&[maybe, read(None, 4, 5), read(Some(1), 6, 7)]), "it happened too late");
        assert!(!good(&[maybe, read(Some(1), 4, 5), read(None, 6, 7)]));
        assert!(good(&[maybe, write(2, 1, 2), read(Some(2), 4, 5), read(Some(2), 6, 7)]));
    }

    #[test]
    fn increments_leave_no_number_out_and_give_none_twice() {
        let increment = |from, called, returned| op(Action::Increment(from), called, returned);
        assert!(good(&[increment(0, 0, 3), increment(1, 1, 2), read(Some(2), 4, 5)]));
        assert!(!good(&[increment(0, 0, 3), increment(0, 1, 2), read(Some(1), 4, 5)]), "a lost update");
        assert!(!good(&[increment(0, 0, 1), read(None, 2, 3)]), "a lost increment");
        assert!(!good(&[increment(0, 0, 1), increment(2, 2, 3)]), "a number left out");
        assert!(!good(&[increment(0, 0, 1), increment(1, 2, 3), increment(1, 4, 5)]), "a stale read");
        // An unknown operation cannot replace a lost one.
        let maybe = Operation { maybe: true, ..increment(1, 2, 9) };
        assert!(good(&[increment(0, 0, 1), maybe, read(Some(2), 10, 11)]));
        assert!(good(&[increment(0, 0, 1), maybe, read(Some(1), 10, 11)]));
        let lost = [increment(0, 0, 1), increment(1, 2, 3), increment(1, 4, 5)];
        let maybe = Operation { maybe: true, ..increment(2, 6, 9) };
        assert!(
            !good(&[&lost[..], &[maybe, read(Some(3), 10, 11)]].concat()),
            "three increments were acknowledged, and the value is 3"
        );
    }

    #[test]
    fn what_comes_and_goes_is_there_in_between_and_under_its_last_name() {
        let made = |n, at| write(n, at, at + 1);
        let gone = |at| op(Action::Write(None), at, at + 1);
        let listed = |is_there, at| op(Action::IsThere(is_there), at, at + 1);
        let refused = |n, at| op(Action::IsNot(n), at, at + 1);
        assert!(good(&[
            listed(false, 0),
            made(7, 2),
            listed(true, 4),
            gone(6),
            listed(false, 8),
            refused(7, 10)
        ]));
        assert!(!good(&[made(7, 0), listed(false, 2)]), "not in the list");
        assert!(!good(&[made(7, 0), gone(2), listed(true, 4)]), "still in the list");
        assert!(!good(&[made(7, 0), refused(7, 2)]), "gone without a drop");
        assert!(!good(&[made(7, 0), gone(2), made(8, 4), read(Some(7), 6, 7)]), "an old handle works");
        assert!(good(&[made(7, 0), gone(2), made(8, 4), refused(7, 6), read(Some(8), 8, 9)]));
        let renamed = |n, at| op(Action::Rename(n), at, at + 1);
        assert!(good(&[made(7, 0), renamed(9, 2), read(Some(9), 4, 5)]));
        assert!(!good(&[renamed(9, 0)]), "there is nothing");
        assert!(!good(&[made(7, 0), gone(2), renamed(9, 4)]), "it has come back");
        let maybe = Operation { maybe: true, ..gone(2) };
        assert!(good(&[made(7, 0), maybe, renamed(9, 4)]) && good(&[made(7, 0), maybe, listed(false, 4)]));
        let unknown = Operation { maybe: true, ..listed(false, 2) };
        assert!(good(&[made(7, 0), unknown, listed(true, 4)]), "an unknown outcome is irrelevant");
    }

    #[test]
    fn keys_are_apart_and_long_histories_are_quick() {
        let other = |operation: Operation, key| Operation { key, ..operation };
        assert!(good(&[other(write(1, 0, 1), 7), read(None, 2, 3), other(read(Some(1), 4, 5), 7)]));
        // Five concurrent clients in a long history: each read sees the last write.
        let mut history = Vec::new();
        for n in 0..2000u64 {
            history.push(write(n, n * 10, n * 10 + 14));
            history.push(read(Some(n), n * 10 + 5, n * 10 + 9));
        }
        assert!(good(&history));
        history.push(read(Some(7), 30_000, 30_001));
        assert!(!good(&history));
    }
}
