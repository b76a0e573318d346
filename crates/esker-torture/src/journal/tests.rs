//! Tests losses that the journal must detect and states that it must accept.

use super::*;
use esker_world::model::keys::KeyNo;
use esker_world::model::state::State;
use esker_world::model::values::ValueNo;
use esker_world::op::{KeyspaceNo, Op, Write};

use crate::writers::{Script, Transfer};

/// A batch of two writes.
fn batch(n: u16, durability: Durability) -> Task {
    let put = |key, stamp: u16| (KeyspaceNo(0), Write::Put(KeyNo(key), ValueNo::new(4, stamp.into())));
    Task { op: Op::Batch(vec![put(n, 1), put(999, n)], durability), transfer: None }
}

/// Returns the contents after these numbers of operations.
fn after(journal: &Journal, ops: &[usize]) -> Found {
    found(&journal.after(ops))
}

fn found(expected: &Expected) -> Found {
    let contents = |state: &State| {
        let map = |name: &String| (name.clone(), (*state.named(name).unwrap()).clone());
        state.names().keys().map(map).collect()
    };
    Found { writers: expected.writers.iter().map(contents).collect(), bank: expected.bank.clone() }
}

/// Writer 0: Sync a, None b, Buffered c, all acknowledged. Then writer 1: None x acknowledged, None y
/// started.
fn example() -> Journal {
    let mut journal = Journal::new(Expected::empty(2), Durability::Sync);
    for (key, durability) in [(1, Durability::Sync), (2, Durability::None), (3, Durability::Buffered)] {
        journal.intent(0, batch(key, durability));
        journal.ack(0);
    }
    journal.intent(1, batch(4, Durability::None));
    journal.ack(1);
    journal.intent(1, batch(5, Durability::None));
    journal
}

#[test]
fn what_durability_promises_is_needed_and_no_more() {
    let journal = example();
    let verdict = |ops: &[usize], crash| journal.verify(&after(&journal, ops), crash);
    for crash in [Crash::Process, Crash::Power] {
        let left = verdict(&[3, 2], crash).unwrap();
        assert_eq!((left.ops, left.unacknowledged, left.lost), (vec![3, 2], 1, 0));
        assert_eq!(verdict(&[3, 0], crash).unwrap().lost, 1);
        assert!(
            verdict(&[0, 0], crash).unwrap_err().contains("operation 0 of writer 0 was acknowledged")
                == (crash == Crash::Power)
        );
    }
    // A killed process keeps c, and b before it; a power loss may lose both.
    assert!(verdict(&[2, 0], Crash::Process).is_err());
    assert!(verdict(&[1, 0], Crash::Power).is_ok());
}

#[test]
fn half_an_operation_is_no_state() {
    let journal = example();
    let mut expected = journal.after(&[1, 0]);
    let Op::Batch(writes, _) = journal.tasks[0][1].op.clone() else { unreachable!("it is a batch") };
    let half = Op::Batch(writes[..1].to_vec(), Durability::None);
    expected.apply(0, &Task { op: half, transfer: None });
    assert!(journal.verify(&found(&expected), Crash::Power).unwrap_err().contains("match no state"));
}

#[test]
fn what_is_left_is_a_prefix_over_all_writers() {
    let journal = example();
    // x started after c was acknowledged, so x must not survive without c.
    let error = journal.verify(&after(&journal, &[1, 1]), Crash::Power).unwrap_err();
    assert!(error.contains("operation 0 of writer 1 is left"), "{error}");
}

#[test]
fn what_was_seen_after_a_kill_comes_before_what_follows() {
    let mut journal = example();
    let left = journal.verify(&after(&journal, &[3, 2]), Crash::Process).unwrap();
    journal.settle(&left);
    // Being seen promises nothing.
    assert!(journal.verify(&after(&journal, &[1, 0]), Crash::Power).is_ok());
    journal.intent(0, batch(6, Durability::Sync));
    journal.ack(0);
    assert!(journal.verify(&after(&journal, &[4, 2]), Crash::Power).is_ok());
    assert!(journal.verify(&after(&journal, &[4, 1]), Crash::Power).is_err());
    // Lost operations never happened.
    let mut journal = example();
    let left = journal.verify(&after(&journal, &[3, 0]), Crash::Process).unwrap();
    journal.settle(&left);
    assert_eq!((journal.tasks[0].len(), journal.tasks[1].len()), (3, 0));
}

#[test]
fn money_neither_comes_nor_goes() {
    let mut journal = Journal::new(Expected::empty(1), Durability::Sync);
    let transfer = Some(Transfer { from: 1, to: 2, amount: 5 });
    journal.intent(0, Task { transfer, ..batch(1, Durability::Sync) });
    journal.ack(0);
    let mut found = after(&journal, &[1]);
    assert!(journal.verify(&found, Crash::Process).is_ok());
    found.bank.insert(2, 4);
    assert!(journal.verify(&found, Crash::Process).unwrap_err().contains("bank"));
}

#[test]
fn the_bank_tells_apart_states_that_look_alike() {
    let mut journal = Journal::new(Expected::empty(1), Durability::None);
    let transfer = Some(Transfer { from: 1, to: 2, amount: 5 });
    journal.intent(0, Task { transfer, ..batch(1, Durability::None) });
    journal.ack(0);
    let clear = Op::Write(KeyspaceNo(0), Write::Clear);
    journal.intent(0, Task { op: clear, transfer: None });
    for n in [0, 2] {
        assert_eq!(journal.verify(&after(&journal, &[n]), Crash::Power).unwrap().ops, [n]);
    }
}

#[test]
fn a_script_is_the_same_again_and_keeps_to_what_it_has() {
    let tasks = |n: usize| {
        let mut script = Script::new(7, 2, State::new());
        let next = || {
            let task = script.next();
            script.go_on(&task);
            task
        };
        std::iter::repeat_with(next).take(n).collect::<Vec<_>>()
    };
    let all = tasks(2000);
    assert_eq!(format!("{:?}", &all[..300]), format!("{:?}", tasks(300)));
    let mut state = State::new();
    for task in all {
        assert!(state.commit_of(&task.op).is_ok(), "{task:?}");
        state.perform(&task.op);
    }
    assert!(state.names().len() > 1, "{:?}", state.names());
}
