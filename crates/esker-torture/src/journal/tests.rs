//! Losses that the journal must see, and states that it must allow.

use super::*;
use crate::script::{Change, Script, Transfer, home};

fn put(writer: usize, key: &str, value: &str) -> (String, Change) {
    (home(writer), Change::Put(key.into(), value.into()))
}

fn batch(writer: usize, key: &str, durability: Durability) -> Op {
    Op::Batch(vec![put(writer, key, "1"), put(writer, "mark", key)], durability)
}

/// The world after so many operations of each writer.
fn after(journal: &Journal, ops: &[usize]) -> World {
    let mut world = journal.base.clone();
    for (writer, &n) in ops.iter().enumerate() {
        for op in &journal.ops[writer][..n] {
            apply(op, &mut world.writers[writer]);
            apply_to_bank(op, &mut world.bank);
        }
    }
    world
}

/// Writer 0: Sync a, None b, Buffered c, all acknowledged; writer 1 then: None x acknowledged, None y begun.
fn example() -> Journal {
    let mut journal = Journal::new(World::empty(2), Durability::Sync);
    for (key, durability) in [("a", Durability::Sync), ("b", Durability::None), ("c", Durability::Buffered)] {
        journal.intent(0, batch(0, key, durability));
        journal.ack(0);
    }
    journal.intent(1, batch(1, "x", Durability::None));
    journal.ack(1);
    journal.intent(1, batch(1, "y", Durability::None));
    journal
}

#[test]
fn j1_j2_what_durability_promises_is_needed_and_no_more() {
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
    // A killed process keeps c, and b before it; power loss may take both.
    assert!(verdict(&[2, 0], Crash::Process).is_err());
    assert!(verdict(&[1, 0], Crash::Power).is_ok());
}

#[test]
fn j1_half_an_operation_is_no_state() {
    let journal = example();
    let mut found = after(&journal, &[1, 0]);
    let b = journal.ops[0][1].clone();
    let Op::Batch(changes, _) = b else { unreachable!("it is a batch") };
    apply(&Op::Batch(changes[..1].to_vec(), Durability::None), &mut found.writers[0]);
    assert!(journal.verify(&found, Crash::Power).unwrap_err().contains("is no state"));
}

#[test]
fn j3_what_is_left_is_a_prefix_over_all_writers() {
    let journal = example();
    // x began after c was acknowledged: x left and c lost is a hole.
    let error = journal.verify(&after(&journal, &[1, 1]), Crash::Power).unwrap_err();
    assert!(error.contains("operation 0 of writer 1 is left"), "{error}");
}

#[test]
fn j3_what_was_seen_after_a_kill_comes_before_what_follows() {
    let mut journal = example();
    let left = journal.verify(&after(&journal, &[3, 2]), Crash::Process).unwrap();
    journal.settle(&left);
    // Nothing new is promised by having been seen.
    assert!(journal.verify(&after(&journal, &[1, 0]), Crash::Power).is_ok());
    journal.intent(0, batch(0, "d", Durability::Sync));
    journal.ack(0);
    assert!(journal.verify(&after(&journal, &[4, 2]), Crash::Power).is_ok());
    assert!(journal.verify(&after(&journal, &[4, 1]), Crash::Power).is_err());
    // What was lost never happened.
    let mut journal = example();
    let left = journal.verify(&after(&journal, &[3, 0]), Crash::Process).unwrap();
    journal.settle(&left);
    assert_eq!((journal.ops[0].len(), journal.ops[1].len()), (3, 0));
}

#[test]
fn j4_money_neither_comes_nor_goes() {
    let mut journal = Journal::new(World::empty(1), Durability::Sync);
    let transfer = Transfer { from: 1, to: 2, amount: 5 };
    journal.intent(0, Op::Transaction(vec![put(0, "mark", "1")], transfer, Durability::Sync));
    journal.ack(0);
    let mut found = after(&journal, &[1]);
    assert!(journal.verify(&found, Crash::Process).is_ok());
    found.bank.insert(2, 4);
    assert!(journal.verify(&found, Crash::Process).unwrap_err().contains("bank"));
}

#[test]
fn sc1_a_script_is_the_same_again_and_keeps_to_what_it_has() {
    let ops = |n| Script::new(7, 2, None).take(n).collect::<Vec<_>>();
    assert_eq!(format!("{:?}", ops(300)), format!("{:?}", ops(300)));
    let mut world = World::empty(3);
    // `apply` asserts that keyspaces are there.
    for op in ops(2000) {
        apply(&op, &mut world.writers[2]);
    }
    assert!(world.writers[2].len() <= 2 && world.writers[2].contains_key(&home(2)));
}
