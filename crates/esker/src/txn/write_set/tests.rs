//! Tests of write sets against a map, with random writes.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::*;
use crate::encoding::bytes::Decoded;
use crate::encoding::operand::elements;
use crate::read::operators::{Operator, Operators};
use crate::types::key::encode_key;

fn decode(payload: &[u8]) -> Decoded<WriteSet> {
    let behind = [b"header", payload].concat();
    WriteSet::decode(Cow::Owned(behind), 6)
}

fn k(n: u8) -> Vec<u8> {
    vec![1, n]
}

#[test]
fn an_end_longer_than_any_key_is_refused() {
    let encoded = |end: usize| {
        let mut set = WriteSet::default();
        set.delete_range(&k(3), &vec![9; end]);
        assert_eq!(set.is_decodable(), decode(set.payload()).is_ok(), "write_set.5");
        set.payload().to_vec()
    };
    let longest = crate::KEY_BYTES_MAX + key::PREFIX_BYTES_MAX + 1;
    assert!(decode(&encoded(longest)).is_ok());
    assert!(decode(&encoded(longest + 1)).is_err());
}

/// A loop of savepoints, reads and rollbacks in a large transaction costs only what it undoes.
#[test]
fn going_back_keeps_what_is_known_of_earlier_ops() {
    let mut set = WriteSet::new();
    let key = |n: u32| [vec![1], (n % 700).to_be_bytes().to_vec()].concat();
    (0..1_000).for_each(|n| set.put(&key(n), &n.to_be_bytes()));
    assert!(matches!(set.get(&key(3)), Own::Put(entry) if entry.value == 703_u32.to_be_bytes()));
    for round in 0..10 {
        let mark = set.mark();
        set.put(&key(3), b"undone");
        set.remove(&key(4));
        set.put(&[1, 1], b"a key of its own");
        assert!(matches!(set.get(&key(3)), Own::Put(entry) if entry.value == b"undone"));
        set.go_back(&mark);
        assert_eq!(set.index.lock().len(), 1_000 + round, "all that stays is known");
        assert!(matches!(set.get(&key(3)), Own::Put(entry) if entry.value == 703_u32.to_be_bytes()));
        assert!(matches!(set.get(&key(4)), Own::Put(entry) if entry.value == 704_u32.to_be_bytes()));
        assert_eq!(set.get(&[1, 1]), Own::Untouched);
        set.put(&key(500), b"stays");
        assert!(matches!(set.get(&key(500)), Own::Put(entry) if entry.value == b"stays"));
    }
}

/// Compares a set with a model map and its removed ranges after the same calls.
fn check(set: &WriteSet, model: &BTreeMap<Vec<u8>, Option<Vec<u8>>>, removed: &[(u8, u8)]) {
    for n in 0..20 {
        let key = k(n);
        let expected = match model.get(&key) {
            Some(Some(value)) => Own::Put(EntryRef { key: &key, seq: SeqNo::MAX, kind: Kind::PUT, value }),
            Some(None) => Own::Removed,
            None if removed.iter().any(|&(s, e)| s <= n && n < e) => Own::Removed,
            None => Own::Untouched,
        };
        assert_eq!(set.get(&k(n)), expected, "key {n}");
    }
    let entries: Vec<_> = set.entries(SeqNo::new(5)).map(|e| (e.key.to_vec(), e.kind)).collect();
    let expected: Vec<_> = model
        .iter()
        .map(|(key, v)| (key.clone(), if v.is_some() { Kind::PUT } else { Kind::REMOVE }))
        .collect();
    assert_eq!(entries, expected);
    assert_eq!(set.key_count(), model.len());
    assert_eq!(set.is_empty(), model.is_empty() && removed.is_empty());
}

#[test]
fn write_set_1_a_range_removal_cancels_ops_that_replaced_undone_ones() {
    let mut set = WriteSet::new();
    set.put(b"a", b"1");
    let mark = set.mark();
    set.put(b"b", b"2");
    set.delete_range(b"x", b"y");
    assert_eq!(set.op_count(), 2);
    for key in [b"m", b"A", b"z"] {
        set.go_back(&mark);
        set.put(key, b"3");
        set.delete_range(b"c", b"d");
        assert_eq!(set.op_count(), 2, "write_set.1: {key:?}");
        set.delete_range(key, &[key[0], 0]);
        assert_eq!(set.op_count(), 1, "write_set.1: {key:?}");
    }
    set.clear();
    set.put(b"0", b"4");
    set.delete_range(b"0", b"1");
    assert_eq!(set.op_count(), 0, "write_set.1: after clearing");
}

#[test]
fn write_set_1_write_set_2_the_last_op_counts_also_after_decoding() {
    let mut rng = fastrand::Rng::with_seed(2);
    for ops in [3, 8, 9, 10, 60] {
        for _ in 0..100 {
            let (mut set, mut model, mut removed) = (WriteSet::new(), BTreeMap::new(), Vec::new());
            for i in 0..rng.u8(0..ops) {
                let n = rng.u8(0..20);
                match rng.u8(0..10) {
                    0 => {
                        let end = rng.u8(0..20);
                        set.delete_range(&k(n), &k(end));
                        if n < end {
                            model.retain(|key: &Vec<u8>, _| !(n <= key[1] && key[1] < end));
                            removed.push((n, end));
                        }
                    }
                    1..4 => {
                        set.remove(&k(n));
                        model.insert(k(n), None);
                    }
                    _ => {
                        set.put(&k(n), &[i; 3]);
                        model.insert(k(n), Some(vec![i; 3]));
                    }
                }
            }
            check(&set, &model, &removed);
            check(&decode(set.payload()).unwrap(), &model, &removed);
        }
    }
}

#[test]
fn a_set_goes_back_to_what_it_was() {
    for seed in 0..300 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut set = WriteSet::new();
        type Shown = Vec<(Vec<u8>, Kind)>;
        let mut marks: Vec<(Mark, Vec<u8>, Shown)> = Vec::new();
        let shown = |set: &WriteSet| {
            set.entries(SeqNo::ZERO).map(|entry| (entry.key.to_vec(), entry.kind)).collect::<Vec<_>>()
        };
        for _ in 0..40 {
            let key = k(rng.u8(0..20));
            match rng.u8(0..8) {
                0..4 => set.put(&key, &[7; 5]),
                4 => set.remove(&key),
                5 => set.delete_range(&key, &k(rng.u8(0..20))),
                6 => marks.push((set.mark(), set.payload().to_vec(), shown(&set))),
                _ if !marks.is_empty() => {
                    marks.truncate(rng.usize(0..marks.len()) + 1);
                    let (mark, payload, entries) = marks.last().unwrap();
                    let _ = set.get(&key);
                    set.go_back(mark);
                    assert_eq!((set.payload(), &shown(&set)), (&payload[..], entries), "seed {seed}");
                    let again = decode(payload).unwrap();
                    for key in (0..20).map(k) {
                        assert_eq!(set.get(&key), again.get(&key), "seed {seed}");
                    }
                }
                _ => {}
            }
        }
    }
}

#[test]
fn the_longest_keys_come_back() {
    let longest = [&[1][..], &vec![b'k'; crate::KEY_BYTES_MAX]].concat();
    let after = [&longest[..], &[0]].concat();
    let mut set = WriteSet::new();
    set.delete_range(&after, &[2]);
    set.put(&longest, b"");
    assert_eq!(decode(set.payload()).unwrap().payload(), set.payload());
    assert!(set.is_decodable(), "write_set.5");
    let mut set = WriteSet::new();
    set.remove(&after);
    assert!(decode(set.payload()).is_err());
    assert!(!set.is_decodable(), "write_set.5");
}

#[test]
fn write_set_4_a_record_that_is_given_away_is_not_copied() {
    let mut set = WriteSet::new();
    set.put(&k(1), &[7; 1000]);
    set.delete_range(&k(2), &k(3));
    set.remove(&k(4));
    let record = [b"header", set.payload()].concat();
    let at = record.as_ptr();
    let again = WriteSet::decode(Cow::Owned(record), 6).unwrap();
    assert_eq!(again.payload().as_ptr(), at.wrapping_add(6));
    assert_eq!((again.payload(), again.byte_len()), (set.payload(), set.byte_len()));
}

#[test]
fn damaged_payloads_are_refused() {
    let mut set = WriteSet::new();
    set.put(&k(1), b"one");
    set.delete_range(&k(2), &k(3));
    for len in 1..set.payload().len() {
        if len != 8 {
            assert!(decode(&set.payload()[..len]).is_err(), "{len}");
        }
    }
    assert!(decode(&[9, 1, 1]).is_err());
    assert!(decode(&[Kind::REMOVE.to_u8(), 1, 0xF9]).is_err());
}

#[test]
fn what_expires_comes_back_from_the_log_and_says_when() {
    let mut set = WriteSet::new();
    set.put_until(Kind::PUT, b"\x01a", Some(Expiry::at_ms(7)), b"xyz");
    set.put_until(Kind::PUT, b"\x01b", None, b"");
    set.write(Kind::EXPIRED, b"\x01c", &[]);
    assert_eq!(set.payload(), b"\x81\x02\x01a\x0b\x07\0\0\0\0\0\0\0xyz\x01\x02\x01b\0\x80\x02\x01c");
    let again = decode(set.payload()).unwrap();
    let kinds: Vec<_> = again.entries(SeqNo::ZERO).map(|entry| entry.kind).collect();
    assert_eq!(kinds, [Kind::PUT.expiring(), Kind::PUT, Kind::EXPIRED]);
    assert!(matches!(again.get(b"\x01a"), Own::Put(entry) if Expiry::of(entry.value) == Expiry::at_ms(7)));
    assert_eq!(again.get(b"\x01c"), Own::Removed);
    assert!(decode(b"\x81\x02\x01a\x07\x07\0\0\0\0\0\0").is_err(), "seven bytes are no expiry");
}

/// The state of a key: operands alone or with what they follow.
#[derive(Clone, Debug, PartialEq)]
enum Of {
    Value(Vec<u8>),
    Operands(Vec<u8>),
}

/// Returns a write set of puts, merges and savepoints, what each key should hold, and how many merges did not
/// make it longer.
fn random_operands(
    rng: &mut fastrand::Rng,
    most: usize,
    operators: &[Operator; 2],
) -> (WriteSet, BTreeMap<Vec<u8>, Of>, usize) {
    let mut combined_in_place = 0;
    let (mut set, mut model) = (WriteSet::new(), BTreeMap::<Vec<u8>, Of>::new());
    let mut points = Vec::new();
    for _ in 0..rng.usize(1..most) {
        let id = rng.usize(..2);
        let key = encode_key(KeyspaceId::new(1 + id as u32), &[rng.u8(..4)]);
        match rng.u8(..10) {
            0 => {
                let value: &[u8] = if id == 0 { b"v" } else { &[0; 8] };
                set.put(&key, value);
                model.insert(key, Of::Value(value.to_vec()));
            }
            1 => {
                points.push((set.mark(), model.clone()));
            }
            2 => {
                let Some((mark, then)) = points.pop() else { continue };
                set.go_back(&mark);
                model = then;
            }
            _ => {
                let operand = if id == 0 {
                    vec![rng.u8(..); rng.usize(..3)]
                } else {
                    [1, 0, 0, 0, 0, 0, 0, 0].to_vec()
                };
                let before = set.byte_len();
                let kept = points.last().map_or(0, |(mark, _): &(Mark, _)| mark.op_count());
                let merged = Operand { at_ms: 5, lifetime_ms: 0, bytes: &operand };
                set.merge(&key, merged, &operators[id], kept);
                let add = |of: Vec<u8>| match id {
                    0 => [of, operand.clone()].concat(),
                    _ => vec![of[0] + 1, 0, 0, 0, 0, 0, 0, 0],
                };
                let of = match model.remove(&key) {
                    Some(Of::Value(value)) => Of::Value(add(value)),
                    Some(Of::Operands(of)) => Of::Operands(add(of)),
                    None => Of::Operands(operand.clone()),
                };
                model.insert(key, of);
                combined_in_place += usize::from(set.byte_len() == before);
            }
        }
    }
    (set, model, combined_in_place)
}

#[test]
fn operands_of_one_commit_are_joined_and_decode_to_the_same() {
    let operators = Operators::default();
    operators.set(KeyspaceId::DEFAULT, "append", String::new);
    operators.set(KeyspaceId::new(2), "add-u64", String::new);
    let operators = [1, 2].map(|id| operators.of(KeyspaceId::new(id)).unwrap());
    let mut rng = fastrand::Rng::with_seed(6);
    let mut combined_in_place = 0;
    for round in 0..300 {
        let (set, model, combined) = random_operands(&mut rng, [8, 60][round % 2], &operators);
        combined_in_place += combined;
        let value = |key: &[u8], base: Option<&[u8]>, list: &[u8]| {
            let operands: Vec<_> = elements(list).unwrap().iter().map(|operand| operand.bytes).collect();
            operators[usize::from(key[0] - 1)].merge(b"", base, &operands).unwrap()
        };
        let fold = |operands: EntryRef<'_>, base: EntryRef<'_>| {
            Ok((value(operands.key, Some(base.value), operands.value).into(), None))
        };
        let settled = set.settled(fold).unwrap().unwrap_or_else(|| set.clone());
        assert!(settled.settled(fold).unwrap().is_none());
        let again = WriteSet::decode(Cow::Borrowed(settled.payload()), 0).unwrap();
        for (n, set) in [&set, &settled, &again].into_iter().enumerate() {
            let found: BTreeMap<_, _> = set
                .entries(SeqNo::ZERO)
                .map(|entry| match entry.kind.is_operand() {
                    true => (entry.key.to_vec(), Of::Operands(value(entry.key, None, entry.value))),
                    false => (entry.key.to_vec(), Of::Value(entry.value.to_vec())),
                })
                .collect();
            assert!(n == 0 || found == model, "round {round}: {found:?}, not {model:?}");
            for (key, of) in &model {
                let got = match set.get(key) {
                    Own::Put(entry) => Of::Value(entry.value.to_vec()),
                    Own::Operands(lists, below) => {
                        let list: Vec<u8> =
                            lists.iter().rev().flat_map(|list| list.iter().copied()).collect();
                        match below {
                            Below::Put(base) => Of::Value(value(key, Some(base.value), &list)),
                            _ => Of::Operands(value(key, None, &list)),
                        }
                    }
                    other => panic!("{other:?}"),
                };
                assert_eq!(got, *of, "round {round}");
            }
        }
    }
    assert!(combined_in_place > 500, "{combined_in_place}");
}
