//! Values that were written but may never have been visible.
//!
//! ```text
//!   operations --values put by each commit--> replaced in the same commit | perhaps never committed
//! ```
//!
//! Tables of large commits contain such values, and a repair may recover them
//! (repaired.rs).

use std::collections::BTreeMap;

use esker_world::model::keys::KeyNo;
use esker_world::model::values::ValueNo;
use esker_world::op::{NameChange, Op, SLOTS, Write};

/// Why a value may never have been visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hidden {
    /// The same commit replaced or removed it.
    Replaced,
    /// Its commit may have failed.
    Uncommitted,
}

/// Returns the hidden values of operations, regardless of the keyspace.
pub(super) fn values(ops: &[Op]) -> BTreeMap<(KeyNo, ValueNo), Hidden> {
    let mut found = BTreeMap::new();
    let mut transactions: [Vec<Write>; SLOTS] = Default::default();
    for op in ops {
        match op {
            Op::Write(_, write) => note(&mut found, &[*write]),
            Op::Batch(writes, _) => {
                note(&mut found, &writes.iter().map(|(_, write)| *write).collect::<Vec<_>>());
            }
            Op::Names(changes, _) => changes.iter().for_each(|change| match change {
                NameChange::Create(_, writes) | NameChange::Replace(_, writes) => note(&mut found, writes),
                NameChange::Write(_, write) => note(&mut found, &[*write]),
                NameChange::Drop(_) | NameChange::Rename(..) => {}
            }),
            Op::Begin(slot) => note(&mut found, &std::mem::take(&mut transactions[*slot])),
            Op::TransactionWrite(slot, _, write) => transactions[*slot].push(*write),
            _ => {}
        }
    }
    transactions.iter().for_each(|writes| note(&mut found, writes));
    found
}

/// Adds the values that a commit puts.
fn note(found: &mut BTreeMap<(KeyNo, ValueNo), Hidden>, writes: &[Write]) {
    for (n, write) in writes.iter().enumerate() {
        let Write::Put(key, value) = write else { continue };
        let hides = |later: &Write| match later {
            Write::Put(other, _)
            | Write::PutFor(other, ..)
            | Write::PutUntil(other, ..)
            | Write::Merge(other, _)
            | Write::MergeFor(other, ..)
            | Write::MergeAt(other, ..)
            | Write::Remove(other) => other == key,
            Write::RemoveRange(_) | Write::Clear => true,
        };
        let is_replaced = writes[n + 1..].iter().any(hides);
        let hidden = if is_replaced { Hidden::Replaced } else { Hidden::Uncommitted };
        found.insert((*key, *value), hidden);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker::Durability;
    use esker_world::op::KeyspaceNo;

    #[test]
    fn what_a_commit_replaces_is_distinguished_from_what_it_leaves() {
        let put = |n: u16, stamp| Write::Put(KeyNo(n), ValueNo::new(9, stamp));
        let within = |write| Op::TransactionWrite(1, KeyspaceNo(0), write);
        let ops = [
            Op::Batch(vec![(KeyspaceNo(0), put(1, 1)), (KeyspaceNo(0), put(1, 2))], Durability::Sync),
            Op::Begin(1),
            within(put(1, 3)),
            Op::Write(KeyspaceNo(0), put(1, 4)),
            within(Write::Remove(KeyNo(1))),
            Op::Begin(1),
            within(put(1, 5)),
        ];
        let found = values(&ops);
        let of = |stamp| found[&(KeyNo(1), ValueNo::new(9, stamp))];
        use Hidden::{Replaced, Uncommitted};
        assert_eq!([1, 2, 3, 4, 5].map(of), [Replaced, Uncommitted, Replaced, Uncommitted, Uncommitted]);
    }
}
