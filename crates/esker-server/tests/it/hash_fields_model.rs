//! Random commands on hashes whose fields expire, against a model.
//!
//! A command runs at some millisecond between its request and its reply. The model runs it at each of these
//! and keeps all states in which the reply is right. It fails if there is none.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fastrand::Rng;

use crate::node::{Node, assert_same};
use crate::wire::{Reply, Wire};

/// A field: its value, and when it expires.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Field {
    value: String,
    deadline: Option<u64>,
}

/// A hash: its fields, and when it expires.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Hash {
    fields: BTreeMap<String, Field>,
    deadline: Option<u64>,
}

/// What a database holds, and what was dumped last.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    hashes: BTreeMap<String, Hash>,
    dumped: Option<BTreeMap<String, Field>>,
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}

fn list(items: impl IntoIterator<Item = Reply>) -> Reply {
    Reply::List('*', items.into_iter().collect())
}

fn ok() -> Reply {
    Reply::Simple("OK".into())
}

/// The words behind `FIELDS n`.
fn named<'w>(words: &[&'w str]) -> Vec<&'w str> {
    let at = words.iter().position(|word| *word == "FIELDS").unwrap();
    words[at + 2..].to_vec()
}

/// The deadline that an option such as `EX 5` or a command such as `HEXPIRE` gives.
fn deadline(unit: &str, n: &str, now: u64) -> u64 {
    let n: u64 = n.parse().unwrap();
    match unit {
        "EX" | "HEXPIRE" => now + 1000 * n,
        "PX" | "HPEXPIRE" | "PEXPIRE" => now + n,
        "EXAT" | "HEXPIREAT" => 1000 * n,
        _ => n,
    }
}

impl State {
    /// Removes what has expired by this time. It can never be seen again.
    fn expire(&mut self, now: u64) {
        for hash in self.hashes.values_mut() {
            if hash.deadline.is_some_and(|at| at <= now) {
                hash.fields.clear();
            }
            hash.fields.retain(|_, field| field.deadline.is_none_or(|at| at > now));
        }
        self.hashes.retain(|_, hash| !hash.fields.is_empty());
    }

    fn deadlines(&self) -> impl Iterator<Item = u64> {
        self.hashes
            .values()
            .flat_map(|hash| hash.fields.values().map(|field| field.deadline).chain([hash.deadline]))
            .flatten()
    }

    /// Runs a command at this time.
    fn run(&mut self, words: &[&str], now: u64) -> Reply {
        self.expire(now);
        let reply = match words[0] {
            "KEYS" => list(self.hashes.keys().map(|key| bulk(key))),
            "SCAN" => list([bulk("0"), list(self.hashes.keys().map(|key| bulk(key)))]),
            "COPY" | "RENAME" | "RESTORE" | "DUMP" => self.run_whole(words, now),
            "EXISTS" | "TYPE" | "DEL" | "PEXPIRE" | "PERSIST" | "PEXPIRETIME" => self.run_key(words, now),
            _ => {
                let hash = self.hashes.entry(words[1].to_owned()).or_default();
                hash.run(words, now)
            }
        };
        self.expire(now);
        reply
    }

    fn run_whole(&mut self, words: &[&str], now: u64) -> Reply {
        let found = self.hashes.get(words[1]).cloned();
        match words[0] {
            "DUMP" => {
                self.dumped = found.map(|hash| hash.fields);
                // The bytes of a payload are the server's own.
                self.dumped.as_ref().map_or(Reply::Null, |_| bulk("payload"))
            }
            "RESTORE" => {
                let fields = self.dumped.clone().unwrap_or_default();
                let ms: u64 = words[2].parse().unwrap();
                let hash = Hash { fields, deadline: (ms > 0).then_some(now + ms) };
                self.hashes.insert(words[1].to_owned(), hash);
                ok()
            }
            "RENAME" => match found {
                Some(hash) => {
                    self.hashes.remove(words[1]);
                    self.hashes.insert(words[2].to_owned(), hash);
                    ok()
                }
                None => Reply::Error("ERR no such key".into()),
            },
            _ => match found {
                Some(hash) => {
                    self.hashes.insert(words[2].to_owned(), hash);
                    Reply::Int(1)
                }
                None => Reply::Int(0),
            },
        }
    }

    fn run_key(&mut self, words: &[&str], now: u64) -> Reply {
        let found = self.hashes.get_mut(words[1]);
        match (words[0], found) {
            ("TYPE", found) => Reply::Simple(if found.is_some() { "hash" } else { "none" }.into()),
            ("PEXPIRETIME", None) => Reply::Int(-2),
            (_, None) => Reply::Int(0),
            ("DEL", Some(_)) => {
                self.hashes.remove(words[1]);
                Reply::Int(1)
            }
            ("PEXPIRE", Some(hash)) => {
                hash.deadline = Some(deadline(words[0], words[2], now));
                Reply::Int(1)
            }
            ("PERSIST", Some(hash)) => Reply::Int(i64::from(hash.deadline.take().is_some())),
            ("PEXPIRETIME", Some(hash)) => Reply::Int(hash.deadline.map_or(-1, |at| at as i64)),
            _ => Reply::Int(1),
        }
    }
}

impl Hash {
    fn value(&self, field: &str) -> Reply {
        self.fields.get(field).map_or(Reply::Null, |field| bulk(&field.value))
    }

    fn set(&mut self, field: &str, value: &str, deadline: Option<u64>) -> bool {
        self.fields.insert(field.to_owned(), Field { value: value.to_owned(), deadline }).is_none()
    }

    fn run(&mut self, words: &[&str], now: u64) -> Reply {
        match words[0] {
            "HGETALL" => list(self.fields.iter().flat_map(|(name, field)| [bulk(name), bulk(&field.value)])),
            "HKEYS" | "HRANDFIELD" => list(self.fields.keys().map(|name| bulk(name))),
            "HVALS" => list(self.fields.values().map(|field| bulk(&field.value))),
            "HSCAN" => list([bulk("0"), list(self.fields.keys().map(|name| bulk(name)))]),
            "HLEN" => Reply::Int(self.fields.len() as i64),
            "HGET" => self.value(words[2]),
            "HMGET" => list(words[2..].iter().map(|field| self.value(field))),
            "HEXISTS" => Reply::Int(i64::from(self.fields.contains_key(words[2]))),
            "HSTRLEN" => Reply::Int(self.fields.get(words[2]).map_or(0, |field| field.value.len() as i64)),
            "HSET" => {
                let pairs = words[2..].chunks(2);
                Reply::Int(pairs.map(|pair| i64::from(self.set(pair[0], pair[1], None))).sum())
            }
            "HSETNX" => {
                let is_free = !self.fields.contains_key(words[2]);
                Reply::Int(i64::from(is_free && self.set(words[2], words[3], None)))
            }
            "HINCRBY" => {
                let old = self.fields.get(words[2]).cloned();
                let before = old.as_ref().map_or(Some(0), |field| field.value.parse::<i64>().ok());
                let Some(before) = before else {
                    return Reply::Error("ERR hash value is not an integer".into());
                };
                let after = before + words[3].parse::<i64>().unwrap();
                self.set(words[2], &after.to_string(), old.and_then(|field| field.deadline));
                Reply::Int(after)
            }
            "HDEL" => {
                let removed = words[2..].iter().filter(|field| self.fields.remove(**field).is_some());
                Reply::Int(removed.count() as i64)
            }
            _ => self.run_deadlines(words, now),
        }
    }

    fn run_deadlines(&mut self, words: &[&str], now: u64) -> Reply {
        let fields = named(words);
        match words[0] {
            "HPTTL" | "HPEXPIRETIME" | "HTTL" => list(fields.iter().map(|name| {
                Reply::Int(match self.fields.get(*name) {
                    None => -2,
                    Some(Field { deadline: None, .. }) => -1,
                    Some(Field { deadline: Some(at), .. }) => match words[0] {
                        "HPTTL" => (at - now) as i64,
                        "HTTL" => (at - now).div_ceil(1000) as i64,
                        _ => *at as i64,
                    },
                })
            })),
            "HPERSIST" => list(fields.iter().map(|name| {
                Reply::Int(match self.fields.get_mut(*name) {
                    None => -2,
                    Some(field) => field.deadline.take().map_or(-1, |_| 1),
                })
            })),
            "HGETDEL" => list(
                fields
                    .iter()
                    .map(|name| self.fields.remove(*name).map_or(Reply::Null, |field| bulk(&field.value))),
            ),
            "HGETEX" => list(fields.iter().map(|name| {
                let value = self.value(name);
                if let Some(field) = self.fields.get_mut(*name) {
                    match words[2] {
                        "FIELDS" => {}
                        "PERSIST" => field.deadline = None,
                        unit => field.deadline = Some(deadline(unit, words[3], now)),
                    }
                    // A second mention of the field finds it gone.
                    self.fields.retain(|_, field| field.deadline.is_none_or(|at| at > now));
                }
                value
            })),
            "HSETEX" => self.set_ex(words, now),
            _ => self.hexpire(words, now),
        }
    }

    fn set_ex(&mut self, words: &[&str], now: u64) -> Reply {
        let pairs = named(words);
        let found = pairs.chunks(2).filter(|pair| self.fields.contains_key(pair[0])).count();
        let fits = match words[2] {
            "FNX" => found == 0,
            "FXX" => found == pairs.len() / 2,
            _ => true,
        };
        if !fits {
            return Reply::Int(0);
        }
        let unit = words.iter().position(|word| ["EX", "PX", "EXAT", "PXAT"].contains(word));
        for pair in pairs.chunks(2) {
            let old = self.fields.get(pair[0]).and_then(|field| field.deadline);
            let at = match unit {
                Some(at) => Some(deadline(words[at], words[at + 1], now)),
                None => old.filter(|_| words.contains(&"KEEPTTL")),
            };
            self.set(pair[0], pair[1], at);
        }
        Reply::Int(1)
    }

    fn hexpire(&mut self, words: &[&str], now: u64) -> Reply {
        let at = deadline(words[0], words[2], now);
        list(named(words).iter().map(|name| {
            let Some(field) = self.fields.get_mut(*name) else { return Reply::Int(-2) };
            let old = field.deadline;
            let allowed = match words[3] {
                "NX" => old.is_none(),
                "XX" => old.is_some(),
                "GT" => old.is_some_and(|old| at > old),
                "LT" => old.is_none_or(|old| at < old),
                _ => true,
            };
            if !allowed {
                return Reply::Int(0);
            }
            field.deadline = Some(at);
            if at <= now {
                self.fields.remove(*name);
            }
            Reply::Int(if at <= now { 2 } else { 1 })
        }))
    }
}

/// Unix milliseconds.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

fn key(random: &mut Rng) -> String {
    format!("k{}", random.u8(0..3))
}

fn value(random: &mut Rng) -> String {
    match random.u8(0..8) {
        // Several of these make a hash large.
        0 => "x".repeat(random.usize(200..500)),
        1..5 => random.u8(0..50).to_string(),
        _ => format!("v{}", random.u8(0..9)),
    }
}

fn fields(random: &mut Rng) -> Vec<String> {
    (0..random.usize(1..4)).map(|_| format!("f{}", random.u8(0..6))).collect()
}

fn pairs(random: &mut Rng) -> Vec<String> {
    fields(random).into_iter().flat_map(|field| [field, value(random)]).collect()
}

/// A unit and a number: mostly a few milliseconds, some past, some long after the test.
fn time(random: &mut Rng, prefix: &str) -> [String; 2] {
    let near = random.u64(0..60);
    let (unit, n) = match random.u8(0..12) {
        0 => ("EX", 1000),
        1 => ("EX", 0),
        2 => ("EXAT", now() / 1000 + 1),
        3 => ("EXAT", 1),
        4..8 => ("PXAT", now() + near),
        _ => ("PX", near),
    };
    let unit = match (prefix, unit) {
        ("", unit) => unit,
        (_, "EX") => "HEXPIRE",
        (_, "EXAT") => "HEXPIREAT",
        (_, "PXAT") => "HPEXPIREAT",
        _ => "HPEXPIRE",
    };
    [unit.to_owned(), n.to_string()]
}

fn with_fields(mut words: Vec<String>, fields: Vec<String>, count: usize) -> Vec<String> {
    words.extend(["FIELDS".to_owned(), count.to_string()]);
    words.extend(fields);
    words
}

fn pick<'a>(random: &mut Rng, words: &[&'a str]) -> &'a str {
    words[random.usize(0..words.len())]
}

fn command(random: &mut Rng) -> Vec<String> {
    let (key, other) = (key(random), key(random));
    let text = |line: String| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    match random.u8(0..30) {
        0 | 1 => [vec!["HSET".to_owned(), key], pairs(random)].concat(),
        2..7 => {
            let condition = pick(random, &["", " FNX", " FXX"]);
            let life = match random.u8(0..6) {
                0 => " KEEPTTL".to_owned(),
                1 => String::new(),
                _ => format!(" {}", time(random, "").join(" ")),
            };
            let pairs = pairs(random);
            let count = pairs.len() / 2;
            with_fields(text(format!("HSETEX {key}{condition}{life}")), pairs, count)
        }
        7..11 => {
            let [name, n] = time(random, "H");
            let condition = pick(random, &["", "", " NX", " XX", " GT", " LT"]);
            let fields = fields(random);
            let count = fields.len();
            with_fields(text(format!("{name} {key} {n}{condition}")), fields, count)
        }
        11..15 => {
            let name = pick(random, &["HPTTL", "HPEXPIRETIME", "HTTL", "HPERSIST", "HGETDEL"]);
            let fields = fields(random);
            let count = fields.len();
            with_fields(text(format!("{name} {key}")), fields, count)
        }
        15 | 16 => {
            let life = match random.u8(0..4) {
                0 => " PERSIST".to_owned(),
                1 => String::new(),
                _ => format!(" {}", time(random, "").join(" ")),
            };
            let fields = fields(random);
            let count = fields.len();
            with_fields(text(format!("HGETEX {key}{life}")), fields, count)
        }
        17 => text(format!("HSETNX {key} f{} {}", random.u8(0..6), value(random))),
        18 => text(format!("HINCRBY {key} f{} 3", random.u8(0..6))),
        19 => [vec![pick(random, &["HDEL", "HMGET"]).to_owned(), key], fields(random)].concat(),
        20 => text(format!("{} {key} f{}", pick(random, &["HGET", "HEXISTS", "HSTRLEN"]), random.u8(0..6))),
        21 | 22 => text(format!("{} {key}", pick(random, &["HGETALL", "HLEN", "HKEYS", "HVALS"]))),
        23 => text(format!("HSCAN {key} 0 COUNT 100 NOVALUES")),
        24 => text(format!("HRANDFIELD {key} 100")),
        25 => text(pick(random, &["KEYS *", "SCAN 0 COUNT 100"]).to_owned()),
        26 => text(format!("{} {key}", pick(random, &["EXISTS", "TYPE", "PEXPIRETIME", "PERSIST", "DEL"]))),
        27 => text(format!("PEXPIRE {key} {}", random.u8(20..120))),
        28 if key != other => text(format!("RENAME {key} {other}")),
        29 if key != other => text(format!("COPY {key} {other} REPLACE")),
        _ => text(format!("HLEN {key}")),
    }
}

/// Runs commands in one script.
const SCRIPT: &str = "local replies, at = {}, 1 \
    while at <= #ARGV do \
        local n = tonumber(ARGV[at]) \
        table.insert(replies, redis.pcall(unpack(ARGV, at + 1, at + n))) \
        at = at + n + 1 \
    end \
    return replies";

/// Sends commands that run at one time, and returns their replies.
fn send(wire: &mut Wire, random: &mut Rng, batch: &[Vec<String>]) -> Vec<Reply> {
    if let [words] = batch {
        return vec![wire.call(words)];
    }
    let reply = if cfg!(feature = "lua") && random.bool() {
        let mut words = vec!["EVAL".to_owned(), SCRIPT.to_owned(), "0".to_owned()];
        for command in batch {
            words.push(command.len().to_string());
            words.extend_from_slice(command);
        }
        wire.call(&words)
    } else {
        wire.say("MULTI");
        batch.iter().for_each(|words| assert_eq!(wire.call(words), Reply::Simple("QUEUED".into())));
        wire.call(&["EXEC"])
    };
    match reply {
        Reply::List(_, replies) => replies,
        other => panic!("{other:?}"),
    }
}

/// The states that a server may be in.
struct Model {
    states: BTreeSet<State>,
    history: Vec<String>,
}

impl Model {
    /// Runs commands at each time at which they may have run, and keeps what fits the replies.
    fn check(&mut self, seed: u64, batch: &[Vec<String>], replies: &[Reply], (from, to): (u64, u64)) {
        self.history.push(format!("{from}..={to} {batch:?} -> {replies:?}"));
        // The result depends on the millisecond itself only if the command has or shows a time.
        let names = ["EX", "PX", "EXAT", "PXAT", "PEXPIRE", "RESTORE", "HPTTL", "HTTL"];
        let has_time = |word: &String| {
            names.contains(&word.as_str()) || word.starts_with("HEXP") || word.starts_with("HPEXP")
        };
        let is_exact = batch.iter().flatten().any(has_time);
        let mut after = BTreeSet::new();
        for state in &self.states {
            let times: BTreeSet<u64> = match is_exact {
                true => (from..=to).collect(),
                false => state.deadlines().filter(|at| (from..=to).contains(at)).chain([from]).collect(),
            };
            for time in times {
                let mut state = state.clone();
                let fits = batch.iter().zip(replies).all(|(words, reply)| {
                    let words: Vec<_> = words.iter().map(String::as_str).collect();
                    let expected = state.run(&words, time);
                    expected == *reply
                        || words[0] == "DUMP"
                            && matches!((&expected, reply), (Reply::Bulk(_), Reply::Bulk(_)))
                });
                if fits {
                    after.insert(state);
                }
            }
        }
        let from = self.history.len().saturating_sub(12);
        let history = self.history[from..].join("\n");
        assert!(!after.is_empty(), "ESKER_SEED={seed}\n{history}\nbefore {:#?}", self.states);
        assert!(after.len() < 5000, "ESKER_SEED={seed}: too many states\n{history}");
        self.states = after;
    }
}

/// Sends commands that run at one time, and compares the replies.
fn step(
    model: &mut Model,
    seed: u64,
    wire: &mut Wire,
    random: &mut Rng,
    batch: &[Vec<String>],
) -> Vec<Reply> {
    let from = now();
    let replies = send(wire, random, batch);
    model.check(seed, batch, &replies, (from, now()));
    replies
}

/// Copies a key by its payload.
fn dump_and_restore(model: &mut Model, seed: u64, wire: &mut Wire, random: &mut Rng) {
    let words = |line: String| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let (from, to) = (key(random), key(random));
    let replies = step(model, seed, wire, random, &[words(format!("DUMP {from}"))]);
    let [Reply::Bulk(payload)] = &replies[..] else { return };
    let ms = pick(random, &["0", "0", "60"]);
    let start = now();
    let reply = wire.call(&[b"RESTORE", to.as_bytes(), ms.as_bytes(), payload, b"REPLACE"]);
    model.check(seed, &[words(format!("RESTORE {to} {ms}"))], &[reply], (start, now()));
}

/// Reads everything from a replica that has all commits.
fn read_replica(model: &mut Model, seed: u64, primary: &mut Wire, replica: &mut Wire, random: &mut Rng) {
    // A link that a restart has cut may still be counted.
    assert!([":1", ":2"].contains(&primary.say("WAIT 1 0").as_str()));
    for _ in 0..3 {
        let words = loop {
            let words = command(random);
            let reads = [
                "HGET",
                "HPTTL",
                "HPEXPIRETIME",
                "HTTL",
                "HMGET",
                "HLEN",
                "HKEYS",
                "HVALS",
                "HSCAN",
                "KEYS",
                "SCAN",
                "EXISTS",
                "TYPE",
                "HGETALL",
                "HEXISTS",
                "HSTRLEN",
                "HRANDFIELD",
                "PEXPIRETIME",
            ];
            if reads.contains(&words[0].as_str()) {
                break words;
            }
        };
        step(model, seed, replica, random, &[words]);
    }
}

/// Runs random commands on a primary with a replica.
fn run(seed: u64, steps: usize) {
    let mut random = Rng::with_seed(seed);
    let dir = tempfile::tempdir().unwrap();
    let mut primary = Node::start(&dir.path().join("a"));
    let mut replica = Node::replica_of(&dir.path().join("b"), primary.port());
    assert_same(&primary, &replica);
    let mut model = Model { states: BTreeSet::from([State::default()]), history: Vec::new() };
    let (mut wire, mut other) = (primary.wire(), replica.wire());
    for n in 0..steps {
        match random.u8(0..40) {
            0..6 => {
                let batch: Vec<_> = (0..random.usize(2..6)).map(|_| command(&mut random)).collect();
                step(&mut model, seed, &mut wire, &mut random, &batch);
            }
            6 | 7 => dump_and_restore(&mut model, seed, &mut wire, &mut random),
            8..11 => read_replica(&mut model, seed, &mut wire, &mut other, &mut random),
            11..14 => std::thread::sleep(Duration::from_millis(random.u64(0..30))),
            14 if random.u8(0..8) == 0 => assert_eq!(wire.say("ES.VERIFY"), "*[]", "ESKER_SEED={seed}"),
            15 if random.u8(0..40) == 0 => {
                (primary, wire) = restarted(primary);
                assert_same(&primary, &replica);
            }
            16 if random.u8(0..40) == 0 => {
                (replica, other) = restarted(replica);
                assert_same(&primary, &replica);
            }
            _ => {
                let words = command(&mut random);
                step(&mut model, seed, &mut wire, &mut random, &[words]);
            }
        }
        if n % 200 == 199 {
            assert_eq!(wire.say("ES.VERIFY"), "*[]", "ESKER_SEED={seed}");
        }
    }
    assert_same(&primary, &replica);
    finish(seed, &primary, wire);
}

fn restarted(mut node: Node) -> (Node, Wire) {
    node.restart();
    let wire = node.wire();
    (node, wire)
}

/// Removes all keys. Then no record of their parts and deadlines is left.
fn finish(seed: u64, primary: &Node, mut wire: Wire) {
    assert_eq!(wire.say("ES.VERIFY"), "*[]", "ESKER_SEED={seed}");
    wire.say("DEL k0 k1 k2");
    crate::harness::until(|| wire.say("DBSIZE") == ":0");
    let db = primary.db();
    for name in ["r0.s", "r0.t", "r0.g"] {
        let space = db.open_keyspace(name).unwrap();
        crate::harness::until(|| space.iter().count() == 0);
    }
    primary.check();
}

#[test]
fn random_commands_have_the_replies_of_a_model() {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let seeds = match (number("ESKER_SEED"), number("ESKER_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, seeds) => 0..seeds.unwrap_or(4),
    };
    for seed in seeds {
        run(seed, 600);
    }
}
