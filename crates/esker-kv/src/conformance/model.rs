//! Random transactions against an ordered map in memory.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::{Case, Check, said, same};
use crate::{Order, Query, Reads, Result, Span, Transaction, collect};

pub(super) const CHECKS: &[Check] = &[("model", model)];

const TRANSACTIONS: u64 = 40;
const STEPS: usize = 15;
/// Keys have one or two bytes of these.
const LETTERS: &[u8] = &[0, b'a', b'b', b'c', 255];

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn random_key(random: &mut fastrand::Rng) -> Vec<u8> {
    (0..random.usize(1..=2)).map(|_| LETTERS[random.usize(..LETTERS.len())]).collect()
}

fn random_bound(random: &mut fastrand::Rng) -> Bound<Vec<u8>> {
    match random.u8(..3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(random_key(random)),
        _ => Bound::Excluded(random_key(random)),
    }
}

fn bytes(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| &key[..])
}

fn model(case: &Case<'_>) -> Result<(), String> {
    let mut committed = Model::new();
    for seed in 0..TRANSACTIONS {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut transaction = said("begin", case.kv.begin())?;
        let mut state = committed.clone();
        let mut points = Vec::new();
        for step in 0..STEPS {
            run_step(case, &mut *transaction, &mut state, &mut points, &mut random)
                .map_err(|what| format!("transaction {seed}, step {step}: {what}"))?;
        }
        if random.u8(..4) > 0 {
            said("commit", transaction.commit())?;
            committed = state;
        } else {
            drop(transaction);
        }
        let found = case.all(case.kv)?;
        let found: Model = found.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
        same(&format!("all keys after transaction {seed}"), found, committed.clone())?;
    }
    Ok(())
}

fn run_step(
    case: &Case<'_>,
    transaction: &mut dyn Transaction,
    state: &mut Model,
    points: &mut Vec<(crate::Savepoint, Model)>,
    random: &mut fastrand::Rng,
) -> Result<(), String> {
    let key = random_key(random);
    match random.u8(..10) {
        0..4 => {
            let value = random.u64(..).to_be_bytes()[..random.usize(..8)].to_vec();
            said("put", transaction.put(&case.space, &key, &value))?;
            state.insert(key, value);
        }
        4 => {
            said("remove", transaction.remove(&case.space, &key))?;
            state.remove(&key);
        }
        5 => {
            let (lower, upper) = (random_bound(random), random_bound(random));
            let span = Span { lower: bytes(&lower), upper: bytes(&upper) };
            said("remove_range", transaction.remove_range(&case.space, span))?;
            state.retain(|key, _| !(lower_holds(&lower, key) && upper_holds(&upper, key)));
        }
        6 => points.push((said("savepoint", transaction.savepoint())?, state.clone())),
        7 if !points.is_empty() => {
            let at = random.usize(..points.len());
            points.truncate(at + 1);
            let (point, old) = &points[at];
            said("rollback_to", transaction.rollback_to(*point))?;
            state.clone_from(old);
        }
        _ => return check_reads(case, transaction, state, random),
    }
    Ok(())
}

fn lower_holds(bound: &Bound<Vec<u8>>, key: &[u8]) -> bool {
    match bound {
        Bound::Included(from) => key >= &from[..],
        Bound::Excluded(from) => key > &from[..],
        Bound::Unbounded => true,
    }
}

fn upper_holds(bound: &Bound<Vec<u8>>, key: &[u8]) -> bool {
    match bound {
        Bound::Included(to) => key <= &to[..],
        Bound::Excluded(to) => key < &to[..],
        Bound::Unbounded => true,
    }
}

fn check_reads(
    case: &Case<'_>,
    reads: &dyn Reads,
    state: &Model,
    random: &mut fastrand::Rng,
) -> Result<(), String> {
    let key = random_key(random);
    let value = said("get", reads.get(&case.space, &key))?;
    same(&format!("get {key:?}"), value.as_deref(), state.get(&key).map(|value| &value[..]))?;
    let (lower, upper) = (random_bound(random), random_bound(random));
    let order = if random.bool() { Order::Up } else { Order::Down };
    let query = Query::new(Span { lower: bytes(&lower), upper: bytes(&upper) }).order(order);
    let found = said("page", collect(reads, &case.space, query.bytes(random.usize(1..40))))?;
    let mut expected: Vec<_> = state
        .iter()
        .filter(|(key, _)| lower_holds(&lower, key) && upper_holds(&upper, key))
        .map(|(key, value)| super::entry(key, value))
        .collect();
    if order == Order::Down {
        expected.reverse();
    }
    same(&format!("range {lower:?} {upper:?} {order:?}"), &found, &expected)?;
    let count = said("count", reads.count(&case.space, query.span))?;
    same(&format!("count {lower:?} {upper:?}"), count, expected.len() as u64)
}
