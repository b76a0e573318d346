//! Hand-written histories: each anomaly is found with its name, and allowed histories pass.

use super::*;
use Access::{Append, Read};

const X: u64 = 1;
const Y: u64 = 2;

/// A transaction that was open all the time, so that time does not matter.
fn t(accesses: &[Access]) -> Transaction {
    let (promise, outcome) = (Promise::Snapshot, Outcome::Committed);
    Transaction { promise, accesses: accesses.to_vec(), outcome, began: 0, ended: 1000 }
}

fn ended(outcome: Outcome, accesses: &[Access]) -> Transaction {
    Transaction { outcome, ..t(accesses) }
}

fn at(began: u64, ended: u64, accesses: &[Access]) -> Transaction {
    Transaction { began, ended, ..t(accesses) }
}

fn read(key: u64, list: &[Element]) -> Access {
    Read(key, list.to_vec())
}

fn kinds(history: &[Transaction]) -> Vec<Kind> {
    check(history).into_iter().map(|anomaly| anomaly.kind).collect()
}

#[test]
fn good_histories_pass() {
    assert!(kinds(&[]).is_empty());
    let serial = [
        at(0, 1, &[read(X, &[]), Append(X, 1)]),
        at(2, 3, &[read(X, &[1]), Append(X, 2), read(X, &[1, 2]), Append(Y, 3)]),
        at(4, 5, &[read(X, &[1, 2]), read(Y, &[3])]),
    ];
    assert!(kinds(&serial).is_empty(), "{:?}", check(&serial));
    // Each reads what the other writes.
    let skew = [
        t(&[read(X, &[]), read(Y, &[]), Append(X, 1)]),
        t(&[read(X, &[]), read(Y, &[]), Append(Y, 2)]),
        at(1001, 1002, &[read(X, &[1]), read(Y, &[2])]),
    ];
    assert!(kinds(&skew).is_empty(), "{:?}", check(&skew));
    // A reader of an old snapshot, concurrent with writers.
    let old = [t(&[read(X, &[])]), at(1, 2, &[Append(X, 1)]), at(3, 4, &[read(X, &[1]), Append(X, 2)])];
    assert!(kinds(&old).is_empty());
    // A transaction with unknown outcome, seen or not.
    let unknown = ended(Outcome::Unknown, &[read(X, &[]), Append(X, 1)]);
    assert!(kinds(&[unknown.clone(), t(&[read(X, &[1])])]).is_empty());
    assert!(kinds(&[unknown, at(1001, 1002, &[read(X, &[])])]).is_empty());
}

#[test]
fn reads_that_make_no_sense() {
    assert_eq!(kinds(&[t(&[Append(X, 1), read(X, &[])])]), [Kind::Internal]);
    let twice = [t(&[Append(X, 1)]), t(&[read(X, &[]), read(X, &[1])])];
    assert_eq!(kinds(&twice), [Kind::Internal], "two snapshots in one transaction");
    assert_eq!(kinds(&[t(&[Append(X, 1)]), t(&[read(X, &[1, 1])])]), [Kind::Duplicate]);
    assert_eq!(kinds(&[t(&[read(X, &[7])])]), [Kind::Garbage]);
    let writers = [t(&[Append(X, 1)]), t(&[Append(X, 2)])];
    let readers = [t(&[read(X, &[1, 2])]), t(&[read(X, &[2])])];
    assert_eq!(kinds(&[&writers[..], &readers].concat()), [Kind::IncompatibleOrder]);
}

#[test]
fn g1a_and_g1b() {
    assert_eq!(kinds(&[ended(Outcome::Aborted, &[Append(X, 1)]), t(&[read(X, &[1])])]), [Kind::G1a]);
    let midst = [t(&[Append(X, 1), Append(X, 2)]), t(&[read(X, &[1])])];
    assert_eq!(kinds(&midst), [Kind::G1b]);
}

#[test]
fn g0_writes_in_different_orders() {
    let history = [
        t(&[Append(X, 1), Append(Y, 2)]),
        t(&[Append(X, 3), Append(Y, 4)]),
        t(&[read(X, &[1, 3])]),
        t(&[read(Y, &[4, 2])]),
    ];
    assert_eq!(kinds(&history), [Kind::G0]);
}

#[test]
fn g1c_each_reads_what_the_other_wrote() {
    let history = [t(&[Append(X, 1), read(Y, &[2])]), t(&[Append(Y, 2), read(X, &[1])])];
    assert_eq!(kinds(&history), [Kind::G1c]);
}

#[test]
fn lost_update_both_read_the_same_version() {
    let history =
        [t(&[read(X, &[]), Append(X, 1)]), t(&[read(X, &[]), Append(X, 2)]), t(&[read(X, &[1, 2])])];
    assert_eq!(kinds(&history), [Kind::LostUpdate]);
}

#[test]
fn g_single_a_read_skewed_over_a_commit() {
    let history = [t(&[Append(X, 1), Append(Y, 2)]), t(&[read(X, &[]), read(Y, &[2])])];
    assert_eq!(kinds(&history), [Kind::GSingle]);
}

#[test]
fn long_fork_readers_disagree_about_an_order() {
    let history = [
        t(&[Append(X, 1)]),
        t(&[Append(Y, 2)]),
        t(&[read(X, &[1]), read(Y, &[])]),
        t(&[read(X, &[]), read(Y, &[2])]),
    ];
    assert_eq!(kinds(&history), [Kind::LongFork]);
}

/// Returns the same history with serializable transactions.
fn serializable(history: &[Transaction]) -> Vec<Transaction> {
    history.iter().map(|t| Transaction { promise: Promise::Serializable, ..t.clone() }).collect()
}

#[test]
fn write_skew_phantoms_and_the_read_only_anomaly_are_of_serializable_transactions_alone() {
    let skew =
        [t(&[read(X, &[]), read(Y, &[]), Append(X, 1)]), t(&[read(X, &[]), read(Y, &[]), Append(Y, 2)])];
    // Each has scanned missing keys, and appends to another of them.
    let phantom = [
        t(&[read(X, &[]), read(Y, &[]), read(3, &[]), read(4, &[]), Append(3, 1)]),
        t(&[read(X, &[]), read(Y, &[]), read(3, &[]), read(4, &[]), Append(4, 2)]),
        t(&[read(3, &[1]), read(4, &[2])]),
    ];
    // T1 has seen neither deposit nor charge; the reader sees the deposit T0 but not the charge.
    let read_only = [
        at(1, 2, &[read(Y, &[]), Append(Y, 1)]),
        at(0, 7, &[read(X, &[]), read(Y, &[]), Append(X, 2)]),
        at(3, 4, &[read(X, &[]), read(Y, &[1])]),
    ];
    let three = [
        t(&[read(X, &[]), Append(Y, 1)]),
        t(&[read(Y, &[]), Append(3, 2)]),
        t(&[read(3, &[]), Append(X, 3)]),
    ];
    for (history, kind) in [
        (&skew[..], Kind::WriteSkew),
        (&phantom, Kind::WriteSkew),
        (&read_only, Kind::G2),
        (&three, Kind::G2),
    ] {
        assert!(kinds(history).is_empty(), "{:?}", check(history));
        assert_eq!(kinds(&serializable(history)), [kind]);
    }
    // One of the two was promised only a snapshot, so the other one precedes it.
    let mixed = [skew[0].clone(), serializable(&skew)[1].clone()];
    assert!(kinds(&mixed).is_empty());
    // The isolation of the reader does not matter, but that of the transaction in the middle does.
    let reader = [read_only[0].clone(), read_only[1].clone(), serializable(&read_only)[2].clone()];
    assert!(kinds(&reader).is_empty());
    let middle = [read_only[0].clone(), serializable(&read_only)[1].clone(), read_only[2].clone()];
    assert_eq!(kinds(&middle), [Kind::G2]);
    // With unknown outcome, and seen.
    let unknown =
        [Transaction { ended: 1000, ..ended(Outcome::Unknown, &skew[0].accesses) }, skew[1].clone()];
    assert!(kinds(&serializable(&unknown)).is_empty());
    let seen = at(1001, 1002, &[read(X, &[1])]);
    assert_eq!(kinds(&serializable(&[&unknown[..], &[seen]].concat())), [Kind::WriteSkew]);
}

#[test]
fn time_stale_reads_and_lost_writes() {
    let stale = [at(0, 1, &[Append(X, 1)]), at(2, 3, &[read(X, &[1])]), at(4, 5, &[read(X, &[])])];
    assert_eq!(kinds(&stale), [Kind::RealTime]);
    let lost = [at(0, 1, &[read(X, &[]), Append(X, 1)]), at(2, 3, &[read(X, &[])])];
    assert_eq!(kinds(&lost), [Kind::RealTime]);
    let overwritten = [
        at(0, 1, &[read(X, &[]), Append(X, 1)]),
        at(2, 3, &[read(X, &[]), Append(X, 2)]),
        at(4, 5, &[read(X, &[2])]),
    ];
    assert_eq!(kinds(&overwritten), [Kind::LostUpdate], "an acknowledged write is lost");
}

#[test]
fn what_was_read_from_an_unknown_transaction_counts_as_a_whole() {
    let unknown = |accesses: &[Access]| Transaction { ended: 3, ..ended(Outcome::Unknown, accesses) };
    let both = unknown(&[Append(X, 1), Append(Y, 2)]);
    let half = [both.clone(), at(4, 5, &[read(X, &[1]), read(Y, &[])])];
    assert_eq!(kinds(&half), [Kind::GSingle], "half of it is there");
    let nothing = [both.clone(), at(4, 5, &[read(X, &[]), read(Y, &[])])];
    assert!(kinds(&nothing).is_empty());
    let all = [both, at(4, 5, &[read(X, &[1]), read(Y, &[2])])];
    assert!(kinds(&all).is_empty());
    // One transaction proves that another has committed: T0, because T1 has read it.
    let chain = [
        unknown(&[Append(X, 1), Append(Y, 2)]),
        unknown(&[read(X, &[1]), Append(3, 3)]),
        at(4, 5, &[read(3, &[3]), read(Y, &[])]),
    ];
    assert_eq!(kinds(&chain), [Kind::GSingle], "T1 counts, and so does T0");
    // Its own reads count.
    let own = unknown(&[read(X, &[7]), Append(Y, 2)]);
    assert!(kinds(&[own.clone(), at(4, 5, &[read(Y, &[])])]).is_empty());
    assert_eq!(kinds(&[own, at(4, 5, &[read(Y, &[2])])]), [Kind::Garbage]);
    let skewed = [
        at(0, 1, &[Append(X, 1), Append(3, 3)]),
        unknown(&[read(3, &[3]), read(X, &[]), Append(Y, 2)]),
        at(4, 5, &[read(X, &[1])]),
    ];
    assert!(kinds(&skewed).is_empty());
    assert_eq!(kinds(&[&skewed[..], &[at(6, 7, &[read(Y, &[2])])]].concat()), [Kind::GSingle]);
    // It ended before the next life, or never takes effect.
    let late = [unknown(&[Append(X, 1)]), at(4, 5, &[read(X, &[])]), at(6, 7, &[read(X, &[1])])];
    assert_eq!(kinds(&late), [Kind::RealTime]);
}
