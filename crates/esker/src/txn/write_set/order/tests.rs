//! Tests of orders that follow the changes of their sets, against orders of sets that were decoded.

use std::borrow::Cow;
use std::sync::Arc;

use super::*;
use crate::encoding::operand::Operand;
use crate::read::operators::{Operator, Operators};
use crate::txn::write_set::Mark;
use crate::types::KeyspaceId;
use crate::types::key::encode_key;

/// An entry, and the value of what its operands follow.
type Shown = (Vec<u8>, Kind, Vec<u8>, Option<(Kind, Vec<u8>)>);

fn shown(set: &WriteSet) -> Vec<Shown> {
    let ops = (0..set.key_count()).map(|place| set.nth(place).unwrap());
    let shown: Vec<Shown> = ops
        .map(|op| {
            let entry = set.entry_at(op, SeqNo::MAX);
            let base = set.base_of(op, SeqNo::MAX).map(|base| (base.kind, base.value.to_vec()));
            (entry.key.to_vec(), entry.kind, entry.value.to_vec(), base)
        })
        .collect();
    let entries = set.entries(SeqNo::MAX).map(|e| (e.key.to_vec(), e.kind, e.value.to_vec()));
    assert!(entries.eq(shown.iter().map(|(key, kind, value, _)| (key.clone(), *kind, value.clone()))));
    shown
}

/// Asserts that a set has the order of a set that is made from its ops.
fn check(set: &WriteSet, what: &str) {
    let again = WriteSet::decode(Cow::Borrowed(set.payload()), 0).unwrap();
    let (shown, expected) = (shown(set), shown(&again));
    assert_eq!(shown, expected, "order.1: {what}");
    for (place, (key, ..)) in expected.iter().enumerate() {
        assert_eq!(set.rank(key), place, "{what}");
        assert_eq!(set.entries_from(key, SeqNo::MAX).count(), expected.len() - place, "{what}");
    }
    assert_eq!(set.nth(expected.len()), None, "{what}");
}

struct Random {
    rng: fastrand::Rng,
    operator: Operator,
    keys: u16,
    marks: Vec<Mark>,
}

impl Random {
    fn key(&mut self) -> Vec<u8> {
        encode_key(KeyspaceId::new(1 + self.rng.u32(..2)), &self.rng.u16(..self.keys).to_be_bytes()).to_vec()
    }

    fn change(&mut self, set: &mut WriteSet) {
        let key = self.key();
        let value = vec![self.rng.u8(..); self.rng.usize(..4)];
        match self.rng.u8(..40) {
            0..14 => set.put(&key, &value),
            14..19 => set.remove(&key),
            19..22 => set.put_until(Kind::PUT, &key, Some(Expiry::at_ms(7)), &value),
            22..34 => {
                let kept = self.marks.last().map_or(0, Mark::op_count);
                let bytes = [self.rng.u8(..2), 0, 0, 0, 0, 0, 0, 0];
                let operand = Operand { at_ms: self.rng.u64(5..7), lifetime_ms: 0, bytes: &bytes };
                set.merge(&key, operand, &self.operator, kept);
            }
            34 => {
                let mut end = self.key();
                if self.rng.bool() {
                    end = [&key[..], &[0]].concat();
                }
                set.delete_range(&key, &end);
            }
            35..38 => self.marks.push(set.mark()),
            _ if !self.marks.is_empty() => {
                self.marks.truncate(self.rng.usize(..self.marks.len()) + 1);
                let mark = self.marks.last().unwrap();
                set.go_back(mark);
                if self.rng.bool() {
                    self.marks.pop();
                }
            }
            _ => {}
        }
    }
}

#[test]
fn order_1_an_order_that_follows_changes_is_that_of_all_ops() {
    let operators = Operators::default();
    operators.set(KeyspaceId::DEFAULT, "add-u64", String::new);
    let operator = operators.of(KeyspaceId::DEFAULT).unwrap();
    let mut open_walks = 0;
    for seed in 0..400 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let keys = [4, 30, 300][seed as usize % 3];
        let between = [1, 3, 40][seed as usize / 3 % 3];
        let mut walks: Vec<(Arc<WriteSet>, Vec<Shown>)> = Vec::new();
        let mut set = Arc::new(WriteSet::new());
        let mut random = Random { rng: rng.fork(), operator: operator.clone(), keys, marks: Vec::new() };
        for step in 0..rng.usize(..250) {
            for _ in 0..rng.usize(..=between) {
                random.change(Arc::make_mut(&mut set));
            }
            if rng.u8(..4) > 0 {
                check(&set, &format!("seed {seed}, step {step}"));
            }
            if rng.u8(..16) == 0 {
                // A walk stays open while writes follow.
                walks.push((set.clone(), shown(&set)));
            }
        }
        check(&set, &format!("seed {seed}"));
        open_walks += walks.len();
        for (walk, then) in walks {
            assert_eq!(shown(&walk), then, "seed {seed}");
        }
    }
    assert!(open_walks > 1_000, "{open_walks}");
}

/// A walk after a write compares few keys, however many there are.
#[test]
fn an_order_is_kept_when_a_set_changes() {
    let mut set = WriteSet::new();
    let key = |n: u32| [vec![1], n.wrapping_mul(0x9E37_79B9).to_be_bytes().to_vec()].concat();
    (0..1_000).for_each(|n| set.put(&key(n), b""));
    assert_eq!(set.key_count(), 1_000);
    let covered = |set: &mut WriteSet| {
        set.sorted.note_change();
        set.sorted.earlier.get_mut().as_ref().map(|order| order.covered)
    };
    for n in 0..50 {
        let ops = set.ops.len();
        set.put(&key(1_000 + n), b"");
        assert_eq!(covered(&mut set), Some(ops));
        set.sort();
        let mark = set.mark();
        set.remove(&key(1_000 + n));
        set.delete_range(&key(n), &[&key(n)[..], &[0]].concat());
        set.sort();
        set.go_back(&mark);
        assert_eq!(covered(&mut set), Some(ops + 1), "a rollback keeps it");
        set.delete_range(&key(n), &[&key(n)[..], &[0]].concat());
        assert_eq!(covered(&mut set), Some(ops + 1), "a range removal keeps it");
        assert_eq!(set.key_count(), 1_000);
    }
}
