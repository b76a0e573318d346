//! Random `OB` commands, compared with a model: walks, slices, and nested transactions.

use std::collections::BTreeMap;

use fastrand::Rng;

use crate::harness::TestServer;
use crate::wire::{Reply, Wire};

type Rows = BTreeMap<(String, String, String), String>;

/// A part of a selection: which names it selects, and its words.
struct Part {
    words: Vec<String>,
    holds: Box<dyn Fn(&str) -> bool>,
}

fn name(random: &mut Rng) -> String {
    let len = random.usize(1..4);
    (0..len).map(|_| ['\0', '\u{1}', 'a', 'b'][random.usize(..4)]).collect()
}

fn table(random: &mut Rng) -> String {
    ["t", "t\0", "u"][random.usize(..3)].to_owned()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn part(random: &mut Rng, [range, prefix, list]: [&str; 3]) -> Part {
    let (a, b) = (name(random), name(random));
    match random.u8(..3) {
        0 => {
            let to = if random.bool() { b } else { String::new() };
            let words = words(&[range, &a, &to]);
            Part { words, holds: Box::new(move |key| *key >= *a && (to.is_empty() || *key < *to)) }
        }
        1 => Part { words: words(&[prefix, &a]), holds: Box::new(move |key| key.starts_with(&a)) },
        _ => Part { words: words(&[list, "2", &a, &b]), holds: Box::new(move |key| key == a || key == b) },
    }
}

/// Generates up to two parts. Without parts, everything is selected.
fn selection(random: &mut Rng, names: [&str; 3]) -> Part {
    let parts: Vec<Part> = (0..random.u8(..3)).map(|_| part(random, names)).collect();
    Part {
        words: parts.iter().flat_map(|part| part.words.clone()).collect(),
        holds: Box::new(move |key| parts.is_empty() || parts.iter().any(|part| (part.holds)(key))),
    }
}

const KEYS: [&str; 3] = ["RANGE", "PREFIX", "KEYS"];
const COLUMNS: [&str; 3] = ["COLRANGE", "COLPREFIX", "COLS"];

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}

fn list(items: Vec<Reply>) -> Reply {
    Reply::List('*', items)
}

/// The expected reply of a slice. Without `max_columns`, it has only keys.
struct Slice {
    keys: Part,
    columns: Part,
    after: Option<String>,
    is_down: bool,
    max_keys: usize,
    max_columns: Option<usize>,
    /// A column that must exist, and its minimum value, if any.
    test: Option<(String, String)>,
}

impl Slice {
    fn random(random: &mut Rng, has_columns: bool) -> (Self, Vec<String>) {
        let slice = Slice {
            keys: selection(random, KEYS),
            columns: if has_columns {
                selection(random, COLUMNS)
            } else {
                selection(&mut Rng::with_seed(0), KEYS)
            },
            after: random.bool().then(|| name(random)),
            is_down: random.bool(),
            max_keys: random.usize(1..6),
            max_columns: has_columns.then(|| random.usize(1..4)),
            test: (has_columns && random.bool()).then(|| (name(random), name(random))),
        };
        let mut said = slice.keys.words.clone();
        said.extend(words(&["MAXKEYS", &slice.max_keys.to_string()]));
        if let Some(max) = slice.max_columns {
            said.extend(slice.columns.words.clone());
            said.extend(words(&["MAXCOLS", &max.to_string()]));
        }
        if slice.is_down {
            said.push("REV".to_owned());
        }
        if let Some(after) = &slice.after {
            said.extend(words(&["AFTER", after]));
        }
        if let Some((column, value)) = &slice.test {
            said.extend(words(&["WHERE", column, "GE", value, "OR", value, "EXISTS", "AND", "a", "EXISTS"]));
        }
        (slice, said)
    }

    fn fulfils(&self, columns: &BTreeMap<&str, &str>) -> bool {
        let Some((column, value)) = &self.test else { return true };
        columns.get(&**column).is_some_and(|data| *data >= value.as_str())
            || columns.contains_key(&**value) && columns.contains_key("a")
    }

    fn expected(&self, rows: &Rows, table: &str) -> Reply {
        let mut keys: BTreeMap<&str, BTreeMap<&str, &str>> = BTreeMap::new();
        for ((of, key, column), data) in rows {
            if of == table && (self.keys.holds)(key) {
                keys.entry(key).or_default().insert(column, data);
            }
        }
        if let Some(after) = &self.after {
            keys.retain(|key, _| if self.is_down { *key < after.as_str() } else { *key > after.as_str() });
        }
        let mut shown = Vec::new();
        for (key, columns) in keys {
            let mut chosen: Vec<_> = columns.iter().filter(|column| (self.columns.holds)(column.0)).collect();
            // Rows with a column count towards the limit, even if they do not fulfil the condition.
            let is_row = self.max_columns.is_none() || !chosen.is_empty();
            if !is_row {
                continue;
            }
            if self.is_down {
                chosen.reverse();
            }
            chosen.truncate(self.max_columns.unwrap_or(0));
            let cells = chosen.into_iter().flat_map(|(name, data)| [bulk(name), bulk(data)]).collect();
            let is_shown = self.fulfils(&columns);
            let row = if self.max_columns.is_none() { bulk(key) } else { list(vec![bulk(key), list(cells)]) };
            shown.push((key, is_shown.then_some(row)));
        }
        if self.is_down {
            shown.reverse();
        }
        let (mut last, mut replies) = (None, Vec::new());
        for (key, row) in shown {
            if replies.len() == self.max_keys {
                return list(vec![last.map_or(Reply::Null, bulk), list(replies)]);
            }
            if let Some(row) = row {
                replies.push(row);
                last = Some(key);
            }
        }
        list(vec![Reply::Null, list(replies)])
    }
}

/// Generates a command, applies it to the model, and returns its words and the expected reply.
fn command(random: &mut Rng, rows: &mut Rows) -> (Vec<String>, Reply) {
    let (table, key) = (table(random), name(random));
    let ok = Reply::Simple("OK".to_owned());
    match random.u8(..16) {
        0..=4 => {
            let pairs: Vec<_> = (0..random.usize(1..4)).map(|_| (name(random), name(random))).collect();
            let mut said = match random.bool() {
                true => words(&["OB.PUT", &table, &key]),
                false => words(&["OB.MPUT", &table, "ROW", &key, &pairs.len().to_string()]),
            };
            said.extend(pairs.iter().flat_map(|(column, data)| [column.clone(), data.clone()]));
            for (column, data) in pairs {
                rows.insert((table.clone(), key.clone(), column), data);
            }
            (said, ok)
        }
        5 => {
            let column = name(random);
            let removed = [column.clone(), "a".to_owned()];
            rows.retain(|(of, k, c), _| !(*of == table && *k == key && removed.contains(c)));
            (words(&["OB.DEL", &table, &key, &column, "a"]), ok)
        }
        6 => {
            rows.retain(|(of, k, _), _| !(*of == table && *k == key));
            (words(&["OB.DEL", &table, &key]), ok)
        }
        7 => {
            let part = part(random, KEYS);
            rows.retain(|(of, k, _), _| !(*of == table && (part.holds)(k)));
            ([words(&["OB.DELKEYS", &table]), part.words].concat(), ok)
        }
        8 => {
            let (slice, said) = Slice::random(random, false);
            ([words(&["OB.KEYS", &table]), said].concat(), slice.expected(rows, &table))
        }
        9 => {
            let part = selection(random, KEYS);
            let mut keys: Vec<_> =
                rows.keys().filter(|(of, key, _)| *of == table && (part.holds)(key)).map(|k| &k.1).collect();
            keys.dedup();
            ([words(&["OB.COUNT", &table]), part.words].concat(), Reply::Int(keys.len() as i64))
        }
        10 => {
            let column = name(random);
            let data = rows.get(&(table.clone(), key.clone(), column.clone()));
            let reply = list(vec![data.map_or(Reply::Null, |data| bulk(data))]);
            (words(&["OB.GET", &table, &key, &column]), reply)
        }
        11 => {
            let is_there = rows.keys().any(|(of, k, _)| *of == table && *k == key);
            (words(&["OB.EXISTS", &table, &key]), list(vec![Reply::Int(i64::from(is_there))]))
        }
        12 => {
            let mut tables: Vec<_> = rows.keys().map(|(table, ..)| table).collect();
            tables.dedup();
            (words(&["OB.TABLES"]), list(tables.into_iter().map(|table| bulk(table)).collect()))
        }
        _ => {
            let (slice, said) = Slice::random(random, true);
            ([words(&["OB.SLICE", &table]), said].concat(), slice.expected(rows, &table))
        }
    }
}

fn check(wire: &mut Wire, words: &[String], expected: &Reply, seed: u64) {
    let reply = wire.call(words);
    assert!(reply == *expected, "seed {seed}: {words:?}\n replied {reply:?}\nexpected {expected:?}");
}

#[test]
fn random_commands_reply_what_a_map_says() {
    agree(&TestServer::start(), 12);
}

/// Checks for a number of seeds that the server replies like the model.
pub fn agree(server: &TestServer, seeds: u64) {
    for seed in 0..seeds {
        let mut random = Rng::with_seed(seed);
        let (mut wire, mut other) = (server.wire(), server.wire());
        for wire in [&mut wire, &mut other] {
            wire.say(&format!("OB.KS USE model{seed}"));
        }
        // The committed state, followed by the states of nested transactions.
        let mut states = vec![Rows::new()];
        for _ in 0..400 {
            let depth = states.len();
            match random.u8(..24) {
                0 if depth < 4 => {
                    assert!(matches!(
                        wire.call(&["OB.BEGIN", ["RC", "RR"][random.usize(..2)]]),
                        Reply::Int(_)
                    ));
                    states.push(states[depth - 1].clone());
                }
                1 if depth > 1 => {
                    assert_eq!(wire.say("OB.COMMIT"), "+OK");
                    states.remove(depth - 2);
                }
                2 if depth > 1 => {
                    assert_eq!(wire.say("OB.ABORT"), "+OK");
                    states.pop();
                }
                3 => {
                    let (slice, said) = Slice::random(&mut random, true);
                    let said = [words(&["OB.SLICE", "t"]), said].concat();
                    check(&mut other, &said, &slice.expected(&states[0], "t"), seed);
                }
                _ => {
                    let (said, expected) = command(&mut random, &mut states[depth - 1]);
                    check(&mut wire, &said, &expected, seed);
                }
            }
        }
    }
}
