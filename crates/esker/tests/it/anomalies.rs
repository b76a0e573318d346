//! The anomalies named in the literature, under each isolation level.
//!
//! ```text
//! w1[x=2] r2[x] a1 c2      transaction 1 writes x, 2 reads it, 1 rolls back, 2 commits; x and y start as 1
//! p1[a..z]                 it walks a range;   l1  it reads the length;   b1  it begins
//!         |
//!         v                the answer shows values read, and ! after a commit that conflicts
//! w1 r2[x=1] a1 c2
//! ```
//!
//! The names are those of Berenson and others ("A critique of ANSI SQL isolation levels", 1995), Adya ("Weak
//! consistency", 1999), Fekete and others ("A read-only transaction anomaly under snapshot isolation", 2004)
//! and Sovran and others ("Transactional storage for geo-replicated systems", 2011). Exclusive transactions
//! take turns: each runs in its own thread, and they begin in the order of their numbers.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests with real threads and time")]

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use esker::{Db, Error, Isolation, Keyspace, Result, Transaction};

/// One step: the action, the number of the transaction, and the text in its brackets.
type Step<'a> = (char, u8, &'a str);

fn steps(history: &str) -> Vec<Step<'_>> {
    history
        .split_whitespace()
        .map(|word| {
            let number = word.as_bytes()[1] - b'0';
            let rest = word[2..].trim_start_matches('[').trim_end_matches(']');
            (word.chars().next().unwrap(), number, rest)
        })
        .collect()
}

fn db() -> (Db, Keyspace) {
    let db = Db::in_memory().unwrap();
    let map = db.default_keyspace();
    for key in ["x", "y"] {
        map.put(key, "1").unwrap();
    }
    (db, map)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs one step and returns its outcome. Takes a transaction that has ended.
fn run((what, number, rest): Step<'_>, open: &mut Option<Transaction>, map: &Keyspace) -> Result<String> {
    let transaction = open.as_mut().unwrap();
    Ok(match what {
        'b' => format!("b{number}"),
        'r' => {
            let value = transaction.get(map, rest)?;
            format!("r{number}[{rest}={}]", value.map_or("-".to_owned(), |value| text(&value)))
        }
        'p' => {
            let (from, to) = rest.split_once("..").unwrap();
            let found = transaction.range(map, from..to).map(|entry| {
                let (key, value) = entry?;
                Ok(format!("{}={}", text(&key), text(&value)))
            });
            format!("p{number}[{}]", found.collect::<Result<Vec<_>>>()?.join(" "))
        }
        'l' => format!("l{number}[{}]", transaction.len(map)?),
        'w' => {
            let (key, value) = rest.split_once('=').unwrap();
            transaction.put(map, key, value)?;
            format!("w{number}")
        }
        'a' => {
            open.take().unwrap().rollback();
            format!("a{number}")
        }
        'c' => match open.take().unwrap().commit().map_err(Error::from) {
            Ok(_) => format!("c{number}"),
            Err(Error::Conflict { .. }) => format!("c{number}!"),
            Err(error) => return Err(error),
        },
        _ => panic!("no such step: {what}"),
    })
}

/// Runs all steps in order, in one thread.
fn interleaved(isolation: Isolation, history: &str) -> String {
    let (db, map) = db();
    let mut transactions: BTreeMap<u8, Option<Transaction>> = BTreeMap::new();
    let mut outcomes = Vec::new();
    for step in steps(history) {
        let open =
            transactions.entry(step.1).or_insert_with(|| Some(db.transaction().isolation(isolation).begin()));
        outcomes.push(run(step, open, &map).unwrap());
    }
    outcomes.join(" ")
}

/// Runs each transaction in its own thread. The first ends after the others have asked for their turn.
fn exclusive(history: &str) -> String {
    let (db, map) = db();
    let mut of_each: BTreeMap<u8, Vec<Step<'_>>> = BTreeMap::new();
    for step in steps(history) {
        of_each.entry(step.1).or_default().push(step);
    }
    let (tell, outcomes) = mpsc::channel();
    thread::scope(|scope| {
        for (number, steps) in of_each {
            let (db, map, tell) = (&db, &map, tell.clone());
            let (asks, asked) = mpsc::channel();
            scope.spawn(move || {
                if number > 1 {
                    asks.send(()).unwrap();
                }
                let mut open = Some(db.transaction().isolation(Isolation::Exclusive).begin());
                if number == 1 {
                    asks.send(()).unwrap();
                    thread::sleep(Duration::from_millis(20));
                }
                for step in steps {
                    tell.send((number, run(step, &mut open, map).unwrap())).unwrap();
                }
            });
            asked.recv().unwrap();
            // The next thread asks later.
            thread::sleep(Duration::from_millis(2));
        }
    });
    drop(tell);
    // A thread may report later than the thread whose turn followed.
    let mut outcomes: Vec<(u8, String)> = outcomes.iter().collect();
    outcomes.sort_by_key(|(number, _)| *number);
    outcomes.into_iter().map(|(_, step)| step).collect::<Vec<_>>().join(" ")
}

/// A history, and its expected outcomes.
struct Anomaly {
    name: &'static str,
    history: &'static str,
    serializable: &'static str,
    snapshot: &'static str,
    exclusive: &'static str,
}

const ANOMALIES: [Anomaly; 16] = [
    Anomaly {
        name: "dirty write (G0)",
        history: "w1[x=2] w2[x=3] w1[y=2] c1 w2[y=3] c2",
        serializable: "w1 w2 w1 c1 w2 c2!",
        snapshot: "w1 w2 w1 c1 w2 c2!",
        exclusive: "w1 w1 c1 w2 w2 c2",
    },
    Anomaly {
        name: "dirty read, of what is given up (G1a)",
        history: "w1[x=2] r2[x] a1 r2[x] c2",
        serializable: "w1 r2[x=1] a1 r2[x=1] c2",
        snapshot: "w1 r2[x=1] a1 r2[x=1] c2",
        exclusive: "w1 a1 r2[x=1] r2[x=1] c2",
    },
    Anomaly {
        name: "dirty read, of what is overwritten (G1b)",
        history: "w1[x=2] r2[x] w1[x=3] c1 r2[x] c2",
        serializable: "w1 r2[x=1] w1 c1 r2[x=1] c2",
        snapshot: "w1 r2[x=1] w1 c1 r2[x=1] c2",
        exclusive: "w1 w1 c1 r2[x=3] r2[x=3] c2",
    },
    Anomaly {
        name: "circular information flow (G1c)",
        history: "w1[x=2] w2[y=2] r1[y] r2[x] c1 c2",
        serializable: "w1 w2 r1[y=1] r2[x=1] c1 c2!",
        snapshot: "w1 w2 r1[y=1] r2[x=1] c1 c2",
        exclusive: "w1 r1[y=1] c1 w2 r2[x=2] c2",
    },
    Anomaly {
        name: "a transaction that was seen vanishes (OTV)",
        history: "w1[x=2] w1[y=2] w2[x=3] c1 r3[x] w2[y=3] r3[y] c2 r3[x] r3[y] c3",
        serializable: "w1 w1 w2 c1 r3[x=2] w2 r3[y=2] c2! r3[x=2] r3[y=2] c3",
        snapshot: "w1 w1 w2 c1 r3[x=2] w2 r3[y=2] c2! r3[x=2] r3[y=2] c3",
        exclusive: "w1 w1 c1 w2 w2 c2 r3[x=3] r3[y=3] r3[x=3] r3[y=3] c3",
    },
    Anomaly {
        name: "lost update (P4)",
        history: "r1[x] r2[x] w1[x=2] w2[x=3] c1 c2",
        serializable: "r1[x=1] r2[x=1] w1 w2 c1 c2!",
        snapshot: "r1[x=1] r2[x=1] w1 w2 c1 c2!",
        exclusive: "r1[x=1] w1 c1 r2[x=2] w2 c2",
    },
    Anomaly {
        name: "read skew (G-single)",
        history: "r1[x] r2[x] r2[y] w2[x=2] w2[y=2] c2 r1[y] c1",
        serializable: "r1[x=1] r2[x=1] r2[y=1] w2 w2 c2 r1[y=1] c1",
        snapshot: "r1[x=1] r2[x=1] r2[y=1] w2 w2 c2 r1[y=1] c1",
        exclusive: "r1[x=1] r1[y=1] c1 r2[x=1] r2[y=1] w2 w2 c2",
    },
    Anomaly {
        name: "read skew of a writer",
        history: "r1[x] w2[x=2] w2[y=2] c2 w1[z=3] c1",
        serializable: "r1[x=1] w2 w2 c2 w1 c1!",
        snapshot: "r1[x=1] w2 w2 c2 w1 c1",
        exclusive: "r1[x=1] w1 c1 w2 w2 c2",
    },
    Anomaly {
        name: "a range that changes between two walks (PMP)",
        history: "p1[a..z] w2[p=1] c2 p1[a..z] c1",
        serializable: "p1[x=1 y=1] w2 c2 p1[x=1 y=1] c1",
        snapshot: "p1[x=1 y=1] w2 c2 p1[x=1 y=1] c1",
        exclusive: "p1[x=1 y=1] p1[x=1 y=1] c1 w2 c2",
    },
    Anomaly {
        name: "write skew (A5B, G2-item)",
        history: "r1[x] r1[y] r2[x] r2[y] w1[x=0] w2[y=0] c1 c2",
        serializable: "r1[x=1] r1[y=1] r2[x=1] r2[y=1] w1 w2 c1 c2!",
        snapshot: "r1[x=1] r1[y=1] r2[x=1] r2[y=1] w1 w2 c1 c2",
        exclusive: "r1[x=1] r1[y=1] w1 c1 r2[x=0] r2[y=1] w2 c2",
    },
    Anomaly {
        name: "write skew around a ring of three",
        history: "r1[x] r2[y] r3[z] w1[y=2] w2[z=2] w3[x=2] c1 c2 c3",
        serializable: "r1[x=1] r2[y=1] r3[z=-] w1 w2 w3 c1 c2! c3",
        snapshot: "r1[x=1] r2[y=1] r3[z=-] w1 w2 w3 c1 c2 c3",
        exclusive: "r1[x=1] w1 c1 r2[y=2] w2 c2 r3[z=2] w3 c3",
    },
    Anomaly {
        name: "phantom (G2 on a range)",
        history: "p1[a..z] p2[a..z] w1[p=1] w2[q=1] c1 c2",
        serializable: "p1[x=1 y=1] p2[x=1 y=1] w1 w2 c1 c2!",
        snapshot: "p1[x=1 y=1] p2[x=1 y=1] w1 w2 c1 c2",
        exclusive: "p1[x=1 y=1] w1 c1 p2[p=1 x=1 y=1] w2 c2",
    },
    Anomaly {
        name: "phantom of a length",
        history: "l1 l2 w1[p=1] w2[q=1] c1 c2",
        serializable: "l1[2] l2[2] w1 w2 c1 c2!",
        snapshot: "l1[2] l2[2] w1 w2 c1 c2",
        exclusive: "l1[2] w1 c1 l2[3] w2 c2",
    },
    Anomaly {
        name: "phantom of a key that was not there",
        history: "r1[p] r2[q] w1[q=1] w2[p=1] c1 c2",
        serializable: "r1[p=-] r2[q=-] w1 w2 c1 c2!",
        snapshot: "r1[p=-] r2[q=-] w1 w2 c1 c2",
        exclusive: "r1[p=-] w1 c1 r2[q=1] w2 c2",
    },
    Anomaly {
        // 1 deposits. 2 withdraws without having seen the deposit. 3 sees the deposit but not the withdrawal,
        // which costs a fee.
        name: "read-only anomaly (Fekete)",
        history: "r2[x] r2[y] r1[y] w1[y=20] c1 r3[x] r3[y] c3 w2[x=-11] c2",
        serializable: "r2[x=1] r2[y=1] r1[y=1] w1 c1 r3[x=1] r3[y=20] c3 w2 c2!",
        snapshot: "r2[x=1] r2[y=1] r1[y=1] w1 c1 r3[x=1] r3[y=20] c3 w2 c2",
        exclusive: "r1[y=1] w1 c1 r2[x=1] r2[y=20] w2 c2 r3[x=-11] r3[y=20] c3",
    },
    Anomaly {
        // No reader sees the second write without the first.
        name: "long fork",
        history: "b3 w1[x=2] w2[y=2] c1 b4 c2 b5 r3[x] r3[y] r4[y] r4[x] r5[x] r5[y] c3 c4 c5",
        serializable: "b3 w1 w2 c1 b4 c2 b5 r3[x=1] r3[y=1] r4[y=1] r4[x=2] r5[x=2] r5[y=2] c3 c4 c5",
        snapshot: "b3 w1 w2 c1 b4 c2 b5 r3[x=1] r3[y=1] r4[y=1] r4[x=2] r5[x=2] r5[y=2] c3 c4 c5",
        exclusive: "w1 c1 w2 c2 b3 r3[x=2] r3[y=2] c3 b4 r4[y=2] r4[x=2] c4 b5 r5[x=2] r5[y=2] c5",
    },
];

#[test]
fn serializable_transactions_have_none_of_the_anomalies() {
    for anomaly in ANOMALIES {
        let seen = interleaved(Isolation::Serializable, anomaly.history);
        assert_eq!(seen, anomaly.serializable, "{}: {}", anomaly.name, anomaly.history);
    }
}

#[test]
fn transactions_of_a_snapshot_have_write_skew_phantoms_and_the_read_only_anomaly_and_no_other() {
    for anomaly in ANOMALIES {
        let seen = interleaved(Isolation::Snapshot, anomaly.history);
        assert_eq!(seen, anomaly.snapshot, "{}: {}", anomaly.name, anomaly.history);
    }
}

#[test]
fn exclusive_transactions_take_turns_and_never_conflict() {
    for anomaly in ANOMALIES {
        let seen = exclusive(anomaly.history);
        assert_eq!(seen, anomaly.exclusive, "{}: {}", anomaly.name, anomaly.history);
    }
}

/// Two isolation levels at once: each transaction keeps its promise. The serializable one takes no part in a
/// write skew.
#[test]
fn write_skew_between_two_kinds_is_up_to_the_one_that_commits_last() {
    for (kinds, is_refused) in [
        ([Isolation::Snapshot, Isolation::Serializable], true),
        ([Isolation::Serializable, Isolation::Snapshot], false),
    ] {
        let (db, map) = db();
        let mut both = kinds.map(|kind| db.transaction().isolation(kind).begin());
        for (transaction, key) in both.iter_mut().zip(["x", "y"]) {
            transaction.get(&map, "x").unwrap();
            transaction.get(&map, "y").unwrap();
            transaction.put(&map, key, "0").unwrap();
        }
        let [first, last] = both;
        first.commit().unwrap();
        let refused = last.commit().is_err_and(|failed| matches!(failed.error, Error::Conflict { .. }));
        assert_eq!(refused, is_refused, "{kinds:?}");
    }
}
