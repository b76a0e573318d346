//! The conformance file, `bindings/conformance.jsonl`: calls with the replies that every binding must give.
//!
//! ```text
//!   scenes below --script.rs--> the file's lines, with replies of model.rs --replay.rs--> a C program
//! ```
//!
//! `ESKER_BLESS=1 cargo test -p esker-c` writes the file again. Its form: `bindings/README.md`.

mod model;
mod replay;
mod script;

use std::path::PathBuf;

use esker_tuple::Element;
use fastrand::Rng;

use model::{Bytes, Kind, Operator};
use script::{At, Script, Span, hex};

fn file() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../bindings/conformance.jsonl"))
}

#[test]
fn the_file_is_what_the_model_says_and_the_c_api_does_it() {
    let mut script = Script::new();
    tuples(&mut script);
    entries(&mut script);
    keyspaces(&mut script);
    conflicts(&mut script);
    many_entries(&mut script);
    let made = script.text;
    if std::env::var_os("ESKER_BLESS").is_some() {
        std::fs::write(file(), &made).unwrap();
    }
    let there = std::fs::read_to_string(file()).unwrap();
    assert!(made == there, "not current: ESKER_BLESS=1 cargo test -p esker-c");
    replay::run(&there);
}

const fn at(keyspace: &str) -> At<'_> {
    At { keyspace, txn: None }
}

/// Tuples with each kind of field and its extremes, and bytes that are none.
fn tuples(s: &mut Script) {
    let text = |text: &str| Element::Text(text.to_owned());
    s.pack(vec![]);
    s.pack(vec![Element::Null]);
    for bytes in [&b""[..], b"\0", b"\0\xFF", b"a\0b", b"\xFF"] {
        s.pack(vec![Element::Bytes(bytes.to_vec())]);
    }
    for words in ["", "ann", "a\0b", "\u{e9}", "\u{6f22}\u{5b57}", "\u{1f600}", "\"\\"] {
        s.pack(vec![text(words)]);
    }
    let powers = (0..63).flat_map(|bit| {
        let power = 1_i128 << bit;
        [power - 1, power, power + 1, -power, -power - 1]
    });
    let ends = [i128::from(i64::MIN), i128::from(i64::MAX), i128::from(i64::MAX) + 1, i128::from(u64::MAX)];
    for number in powers.chain(ends) {
        s.pack(vec![Element::Int(number)]);
    }
    for number in [0.0, -0.0, 1.5, -1.5, f64::MAX, f64::MIN_POSITIVE, f64::INFINITY, f64::NEG_INFINITY] {
        s.pack(vec![Element::Double(number)]);
        s.pack(vec![Element::Float(number as f32)]);
    }
    s.pack(vec![Element::Bool(false), Element::Bool(true)]);
    s.pack(vec![Element::Uuid(std::array::from_fn(|at| at as u8 * 17))]);
    let inner = Element::Tuple(vec![Element::Null, text("x"), Element::Tuple(vec![]), Element::Int(-1)]);
    s.pack(vec![inner.clone(), Element::Tuple(vec![inner, Element::Null]), Element::Int(300)]);
    s.pack(vec![text("visits"), Element::Int(2026), Element::Double(0.25), Element::Bytes(vec![0, 1])]);
    for bytes in ["01", "0161", "05", "0500ff", "0c00", "1500", "160001", "20", "30", "03", "ff", "02ff00"] {
        s.fails("unpack", &[("key", &format!("\"{bytes}\""))], "invalid");
    }
}

/// Keys with extreme bytes, common prefixes, and an empty one.
fn key(rng: &mut Rng) -> Bytes {
    const ODD: [&[u8]; 8] = [b"", b"\0", b"\0\0", b"\xFF", b"\xFF\xFF", b"\xFE\xFF", b"k", b"k\0"];
    match rng.u8(..3) {
        0 => ODD[rng.usize(..ODD.len())].to_vec(),
        1 => format!("k/{}", rng.u8(..12)).into_bytes(),
        _ => format!("k/{}/{}", rng.u8(..3), rng.u8(..4)).into_bytes(),
    }
}

fn value(rng: &mut Rng) -> Bytes {
    let len = if rng.u8(..8) == 0 { 0 } else { rng.usize(..24) };
    std::iter::repeat_with(|| rng.u8(..)).take(len).collect()
}

/// One random call of a keyspace without numbers.
fn any_call(s: &mut Script, rng: &mut Rng, at: At<'_>) {
    let (a, b) = (key(rng), key(rng));
    let (low, high) = (Bytes::min(a.clone(), b.clone()), Bytes::max(a.clone(), b));
    match rng.u8(..22) {
        0..=4 => s.put(at, &a, &value(rng)),
        5 => s.put_for_an_hour(at, &a, &value(rng)),
        6 => s.delete(at, &a),
        7 => s.remove(at, &a),
        8 => s.delete_range(at, Some(&low), Some(&high)),
        9 => match at.txn {
            None => {
                let was = s.model.get(None, at.keyspace, &a).map(|entry| entry.value);
                s.swap(at.keyspace, &a, was.as_deref(), Some(b"!"));
            }
            Some(_) => s.ttl(at, &a),
        },
        10 => match at.txn {
            None => s.swap(at.keyspace, &a, Some(b"other"), None),
            Some(_) => s.len(at),
        },
        11 => s.contains(at, &a),
        12 => s.many(at, &[a, key(rng), key(rng)]),
        13 => s.ttl(at, &a),
        14 => s.len(at),
        15 => s.scan(at, &Span::Range(Some(&low), Some(&high)), rng.bool(), None),
        16 => s.scan(at, &Span::Range(Some(&low), None), rng.bool(), Some(rng.usize(1..5))),
        17 => s.scan(at, &Span::Range(None, Some(&high)), rng.bool(), Some(rng.usize(1..5))),
        18 => s.scan(at, &Span::Prefix(&a[..a.len().min(3)]), rng.bool(), None),
        19 => s.get(at, &high),
        _ => s.get(at, &a),
    }
}

/// Reads and writes, alone and in transactions, with openings between them.
fn entries(s: &mut Script) {
    let mut rng = Rng::with_seed(52);
    let rng = &mut rng;
    ["first", "second", "sums", "texts", "brief"].into_iter().for_each(|name| s.keyspace(name));
    s.operator("sums", Operator::AddI64);
    s.operator("texts", Operator::Append);
    for round in 0..30 {
        for _ in 0..8 {
            let keyspace = ["first", "second"][rng.usize(..2)];
            any_call(s, rng, at(keyspace));
        }
        numbers(s, rng, None);
        match round % 5 {
            // In a keyspace that is not counted: expired entries count until they are removed.
            0 => s.put_briefly(at("brief"), b"brief", b"x"),
            1 => s.get(at("brief"), b"brief"),
            2 => s.restart("reopen"),
            3 => s.delete_prefix(at("second"), b"k/1"),
            _ => s.scan(at("first"), &Span::Range(None, None), round % 2 == 0, None),
        }
        transaction(s, rng, round);
    }
    s.restart("checkpoint");
    for keyspace in ["first", "second", "sums", "texts"] {
        s.scan(at(keyspace), &Span::Range(None, None), true, None);
    }
    s.fails("merge", &[("keyspace", "\"first\""), ("key", "\"61\""), ("operand", "\"62\"")], "merge");
    s.fails("merge", &[("keyspace", "\"sums\""), ("key", "\"61\""), ("operand", "\"62\"")], "merge");
    s.get(at("first"), b"a");
}

/// Merges and additions.
fn numbers(s: &mut Script, rng: &mut Rng, txn: Option<u64>) {
    let (sums, texts) = (At { keyspace: "sums", txn }, At { keyspace: "texts", txn });
    let (name, by) = (format!("n{}", rng.u8(..3)).into_bytes(), rng.i64(-5..1000));
    s.merge(sums, &name, &by.to_le_bytes());
    if rng.bool() {
        s.add_to(sums, &name, if rng.u8(..9) == 0 { i64::MAX } else { -by });
    }
    s.get(sums, &name);
    s.merge(texts, &name, &value(rng));
    if rng.bool() {
        s.get(texts, &name);
    }
}

/// A transaction of some kind with savepoints, beside commits in another keyspace.
fn transaction(s: &mut Script, rng: &mut Rng, round: u64) {
    let txn = round + 1;
    let kind = [Kind::Serializable, Kind::Snapshot, Kind::ReadOnly, Kind::WriteOnly, Kind::Exclusive]
        [rng.usize(..5)];
    let within = At { keyspace: "first", txn: Some(txn) };
    s.begin(txn, kind);
    match kind {
        Kind::ReadOnly => {
            s.put(at("first"), &key(rng), b"later");
            s.delete_prefix(at("first"), b"k/2");
            s.scan(within, &Span::Range(None, None), rng.bool(), None);
            s.get(within, &key(rng));
            s.len(within);
            s.rollback(txn);
        }
        Kind::WriteOnly => {
            for _ in 0..rng.u8(1..6) {
                s.put(within, &key(rng), &value(rng));
                s.delete(within, &key(rng));
            }
            s.merge(At { keyspace: "texts", ..within }, b"n0", b"+");
            end(s, rng, txn);
        }
        _ => {
            (0..rng.u8(2..8)).for_each(|_| any_call(s, rng, within));
            s.savepoint(txn, 1);
            (0..rng.u8(2..8)).for_each(|_| any_call(s, rng, within));
            numbers(s, rng, Some(txn));
            if kind != Kind::Exclusive {
                s.put(at("second"), &key(rng), b"beside");
            }
            if rng.bool() {
                s.rollback_to(txn, 1);
            }
            s.scan(within, &Span::Range(None, None), rng.bool(), None);
            end(s, rng, txn);
        }
    }
    s.scan(at("first"), &Span::Range(None, None), false, None);
}

fn end(s: &mut Script, rng: &mut Rng, txn: u64) {
    if rng.u8(..4) == 0 { s.rollback(txn) } else { s.commit(txn) }
}

/// Changes of keyspaces.
fn keyspaces(s: &mut Script) {
    let name = |name: &str| format!("\"{name}\"");
    s.names();
    s.keyspace("other name");
    s.put(at("other name"), b"a", b"1");
    s.rename("other name", "third");
    s.get(at("third"), b"a");
    s.names();
    s.fails("rename", &[("from", &name("third")), ("to", &name("first"))], "keyspace_exists");
    s.fails("rename", &[("from", &name("missing")), ("to", &name("fourth"))], "keyspace_not_found");
    s.fails("drop", &[("keyspace", &name("missing"))], "keyspace_not_found");
    s.drop("third");
    s.names();
    s.keyspace("third");
    s.get(at("third"), b"a");
    s.len(at("third"));
}

/// Transactions that meet, and what the change feed says of them.
fn conflicts(s: &mut Script) {
    let (x, y): (&[u8], &[u8]) = (b"x", b"y");
    let mut txn = 100;
    s.keyspace("meet");
    s.put(at("meet"), x, b"0");
    s.put(at("meet"), y, b"0");
    s.mark();
    for kind in [Kind::Serializable, Kind::Snapshot] {
        for scene in 0..5 {
            txn += 1;
            let within = At { keyspace: "meet", txn: Some(txn) };
            s.begin(txn, kind);
            match scene {
                // A key that was read changes.
                0 => s.get(within, x),
                // A key appears in a range that was read.
                1 => s.scan(within, &Span::Range(Some(b"p"), Some(b"q")), false, None),
                // A key that was written changes.
                2 => s.put(within, x, b"inner"),
                // Nothing that was read changes.
                3 => s.get(within, b"w"),
                // A key that was read is in a removed range.
                _ => s.contains(within, x),
            }
            match scene {
                1 => s.put(at("meet"), format!("p{txn}").as_bytes(), b"new"),
                4 => s.delete_range(at("meet"), Some(x), Some(y)),
                _ => s.put(at("meet"), x, hex(&[txn as u8]).as_bytes()),
            }
            s.put(within, y, format!("{txn}").as_bytes());
            s.commit(txn);
            s.get(at("meet"), y);
        }
    }
    s.feed();
    s.mark();
    s.feed();
    s.begin(200, Kind::WriteOnly);
    s.put(At { keyspace: "meet", txn: Some(200) }, b"f1", b"1");
    s.delete(At { keyspace: "meet", txn: Some(200) }, b"f2");
    s.commit(200);
    s.merge(at("texts"), b"n1", b"fed");
    s.delete_range(at("meet"), Some(b"f"), Some(b"g"));
    s.feed();
}

/// More entries than a buffer of a binding holds.
fn many_entries(s: &mut Script) {
    let mut rng = Rng::with_seed(53);
    s.keyspace("large");
    for no in 0_u8..40 {
        let value: Bytes = std::iter::repeat_with(|| rng.u8(..)).take(usize::from(no) * 90).collect();
        s.put(at("large"), &[b'l', no], &value);
    }
    s.len(at("large"));
    s.scan(at("large"), &Span::Prefix(b"l"), false, None);
    s.scan(at("large"), &Span::Range(Some(b"l\x05"), None), true, Some(30));
    s.restart("checkpoint");
    s.scan(at("large"), &Span::Range(None, Some(b"l\x03")), false, None);
    s.names();
}
