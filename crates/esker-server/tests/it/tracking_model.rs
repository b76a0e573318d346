//! Clients that cache what they read, beside writers that change everything in every way. At each quiet
//! moment, all cached values are those of the server.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::harness::TestServer;
use crate::node::Node;
use crate::tracking::invalidated;
use crate::wire::{Reply, Wire};

const KEYS: [&str; 8] = ["a", "b", "c", "p:a", "p:b", "p:c", "big", "t"];
/// Reads of one key. Their replies do not depend on the time.
const READS: [&str; 8] = ["GET", "LRANGE", "HGETALL", "SMEMBERS", "ZRANGE", "STRLEN", "TYPE", "ES.GET"];
const MODES: [&str; 6] =
    ["", "NOLOOP", "OPTIN", "OPTOUT", "BCAST", "BCAST NOLOOP PREFIX p: PREFIX b PREFIX t"];

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// A client that caches.
struct Cacher {
    wire: Wire,
    mode: &'static str,
    /// Replies by the line that reads them.
    cache: HashMap<String, Reply>,
    random: Rng,
}

/// What a line of a pipeline is.
#[derive(Clone, PartialEq, Eq)]
enum Line {
    /// A read whose reply is cached, or not.
    Read(String, bool),
    /// A write, with the keys that it may change.
    Write(String, Vec<&'static str>),
}

fn key_of(line: &str) -> &str {
    line.split(' ').nth(1).unwrap_or_default()
}

impl Cacher {
    fn new(mut wire: Wire, mode: &'static str, seed: u64) -> Self {
        wire.send(&["HELLO", "3"]);
        wire.reply();
        wire.send(&words(format!("CLIENT TRACKING ON {mode}").trim_end()));
        assert_eq!(format!("{:?}", wire.reply()), "+OK");
        Cacher { wire, mode, cache: HashMap::new(), random: Rng::with_seed(seed) }
    }

    fn read_line(&mut self) -> String {
        let (read, key) = (*self.random.choice(&READS).unwrap(), *self.random.choice(&KEYS).unwrap());
        let range = if read.ends_with("RANGE") { " 0 -1" } else { "" };
        format!("{read} {key}{range}")
    }

    /// Returns whether the keys of a prefix of this client are tracked at all.
    fn covers(&self, key: &str) -> bool {
        !self.mode.contains("PREFIX") || ["p:", "b", "t"].iter().any(|prefix| key.starts_with(prefix))
    }

    /// Sends some reads and writes at once, and caches what they return.
    fn step(&mut self) {
        let mut lines = Vec::new();
        for _ in 0..self.random.usize(1..6) {
            if self.random.u8(0..5) == 0 {
                let (line, keys) = write(&mut self.random);
                lines.push(Line::Write(line, keys));
                continue;
            }
            let line = self.read_line();
            let is_cached = self.covers(key_of(&line));
            let given = self.random.bool();
            match self.mode {
                "OPTIN" if given => {
                    lines.push(Line::Read("CLIENT CACHING YES".to_owned(), false));
                    lines.push(Line::Read(line, true));
                }
                "OPTIN" => lines.push(Line::Read(line, false)),
                "OPTOUT" if given => {
                    lines.push(Line::Read("CLIENT CACHING NO".to_owned(), false));
                    lines.push(Line::Read(line, false));
                }
                _ => lines.push(Line::Read(line, is_cached)),
            }
        }
        let bytes: Vec<u8> = lines
            .iter()
            .flat_map(|line| match line {
                Line::Read(line, _) | Line::Write(line, _) => crate::wire::encode(&words(line)),
            })
            .collect();
        self.wire.send_bytes(&bytes);
        for line in lines {
            let reply = self.reply();
            match line {
                Line::Read(line, true) => _ = self.cache.insert(line, reply),
                Line::Read(_, false) => {}
                // The client knows its own changes.
                Line::Write(_, keys) if self.mode.contains("NOLOOP") => {
                    self.cache.retain(|line, _| !keys.contains(&key_of(line)));
                }
                Line::Write(..) => {}
            }
        }
    }

    fn reply(&mut self) -> Reply {
        loop {
            let reply = self.wire.reply();
            match invalidated(&reply) {
                Some(Some(keys)) => self.cache.retain(|line, _| !keys.contains(key_of(line))),
                Some(None) => self.cache.clear(),
                None => return reply,
            }
        }
    }

    fn ping(&mut self) {
        self.wire.send(&["PING"]);
        assert_eq!(format!("{:?}", self.reply()), "+PONG");
    }
}

/// Returns a write, and the keys that it may change. Changes of all keys are always reported.
fn write(random: &mut Rng) -> (String, Vec<&'static str>) {
    let (key, other) = (*random.choice(&KEYS).unwrap(), *random.choice(&KEYS).unwrap());
    let n = random.u32(0..1000);
    let line = match random.u8(0..40) {
        0..6 => format!("SET {key} {n}"),
        6 => format!("SET {key} {n} PX {}", random.u32(1..30)),
        7 | 8 => format!("INCR {key}"),
        9 => format!("APPEND {key} x"),
        10 => format!("DEL {key} {other}"),
        11 => format!("RENAME {key} {other}"),
        12 => format!("COPY {key} {other} REPLACE"),
        13 => format!("MOVE {key} 1"),
        14 => format!("RPUSH {key} {n}"),
        15 => format!("LPOP {key}"),
        16 => format!("LMOVE {key} {other} LEFT RIGHT"),
        17..20 => format!("HSET {key} f{} {n}", n % 5),
        20 => format!("HPEXPIRE {key} {} FIELDS 1 f{}", random.u32(1..30), n % 5),
        21 => format!("HDEL {key} f{}", n % 5),
        22 => format!("SADD {key} {}", n % 9),
        23 => format!("SPOP {key}"),
        24 | 25 => format!("ZADD {key} {n} m{}", n % 9),
        26 => format!("PEXPIRE {key} {}", random.u32(1..30)),
        27 => format!("PERSIST {key}"),
        28 => format!("MSET {key} {n} {other} {n}"),
        29 | 30 => format!("ES.SET {key} {n}"),
        31 => format!("ES.DEL {key}"),
        32 => format!("SUNIONSTORE {key} {other}"),
        33 => format!("GETEX {key} PX {}", random.u32(1..30)),
        34 => format!("LPUSH {key} {n}"),
        35 => format!("SETRANGE {key} 3 x"),
        36 if random.u8(0..4) == 0 => "FLUSHALL".to_owned(),
        37 if random.u8(0..4) == 0 => "FLUSHDB".to_owned(),
        38 if random.u8(0..4) == 0 => "SWAPDB 0 1".to_owned(),
        _ => format!("SET {key} {n} XX GET"),
    };
    (line, vec![key, other])
}

/// Writes until `stop`.
fn run_writer(mut wire: Wire, seed: u64, stop: &AtomicBool) {
    let mut random = Rng::with_seed(seed);
    while !stop.load(Ordering::Relaxed) {
        let mut lines = vec![write(&mut random).0];
        match random.u8(0..8) {
            0 => {
                lines.insert(0, "MULTI".to_owned());
                lines.extend((0..3).map(|_| write(&mut random).0));
                lines.retain(|line| !line.starts_with("SWAPDB"));
                lines.push("EXEC".to_owned());
            }
            1 => {
                let (key, n) = (random.choice(&KEYS).unwrap(), random.u32(..));
                lines = vec!["ES.BEGIN".to_owned(), format!("ES.SET {key} {n}"), "ES.COMMIT".to_owned()];
            }
            2..4 => lines.extend((0..5).map(|_| write(&mut random).0)),
            #[cfg(feature = "lua")]
            4 => {
                let key = *random.choice(&KEYS).unwrap();
                let script =
                    format!("redis.pcall('SET', '{key}', 1) return redis.pcall('APPEND', '{key}', 'lua')");
                wire.call(&["EVAL", &script, "0"]);
            }
            _ => {}
        }
        let bytes: Vec<u8> = lines.iter().flat_map(|line| crate::wire::encode(&words(line))).collect();
        wire.send_bytes(&bytes);
        lines.iter().for_each(|_| _ = wire.reply());
        if random.u8(0..4) == 0 {
            std::thread::sleep(Duration::from_micros(random.u64(0..2000)));
        }
    }
}

/// Changes strings of database 0 as an embedding program does.
fn run_program(db: &esker::Db, seed: u64, stop: &AtomicBool) {
    let mut random = Rng::with_seed(seed);
    while !stop.load(Ordering::Relaxed) {
        // `SWAPDB` renames keyspaces.
        let Ok(strings) = db.open_keyspace("r0") else { continue };
        let key = *random.choice(&["a", "p:a", "b"]).unwrap();
        // Not over collections, whose parts would stay.
        let _ = db.transact(|t| -> esker::Result<()> {
            match t.get(&strings, key)? {
                Some(old) if old.first() != Some(&0) => Ok(()),
                Some(_) if random.bool() => t.delete(&strings, key),
                _ => t.put(&strings, key, format!("\0{}", random.u32(..))),
            }
        });
        std::thread::sleep(Duration::from_micros(random.u64(0..3000)));
    }
}

/// Compares all caches with the server, which is quiet. Invalidations of the program and of a primary are on
/// their way for a short time. Returns the number of cached values.
fn compare(cachers: &mut [Cacher], wire: &mut Wire, seed: u64) -> usize {
    let start = Instant::now();
    loop {
        let mut wrong = Vec::new();
        let mut count = 0;
        for cacher in &mut *cachers {
            cacher.ping();
            for (line, cached) in &cacher.cache {
                count += 1;
                let fresh = wire.call(&words(line));
                if fresh != *cached {
                    wrong.push(format!("{:?}: {line}: cached {cached:?}, is {fresh:?}", cacher.mode));
                }
            }
        }
        if wrong.is_empty() {
            return count;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "ESKER_SEED={seed}: {wrong:#?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Reads and writes in rounds, and compares after each. `connect`: to the server of the writers, and to the
/// one of the readers.
fn run(seed: u64, rounds: usize, connect: [&dyn Fn() -> Wire; 2], db: Option<&esker::Db>) {
    let [to_writer, to_reader] = connect;
    let is_replica = db.is_none();
    let connect = |(at, mode): (usize, &&'static str)| {
        let mut cacher = Cacher::new(to_reader(), mode, seed + at as u64);
        // Replies of version 3, as the caches have them.
        cacher.ping();
        cacher
    };
    let mut cachers: Vec<_> = MODES.iter().enumerate().map(connect).collect();
    let mut checker = to_reader();
    checker.call(&["HELLO", "3"]);
    let mut filler = to_writer();
    let mut count = 0;
    for round in 0..rounds {
        let fields: Vec<_> = (0..300).map(|n| format!("f{n} {n}")).collect();
        filler.say("DEL big");
        filler.say(&format!("HSET big {}", fields.join(" ")));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let stop = &stop;
            for n in 0..2 {
                let wire = to_writer();
                let seed = seed * 1000 + round as u64 * 10 + n;
                scope.spawn(move || run_writer(wire, seed, stop));
            }
            if let Some(db) = db {
                scope.spawn(move || run_program(db, seed + round as u64, stop));
            }
            let readers: Vec<_> = cachers
                .iter_mut()
                .map(|cacher| scope.spawn(move || (0..60).for_each(|_| cacher.step())))
                .collect();
            let ended: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
            stop.store(true, Ordering::Relaxed);
            ended.into_iter().for_each(|ended| ended.unwrap());
        });
        // Only the clients that cache write now, one after the other. So some of their reads are kept.
        cachers.iter_mut().for_each(|cacher| (0..5).for_each(|_| cacher.step()));
        if is_replica {
            assert_eq!(filler.say("WAIT 1 0"), ":1");
        }
        count += compare(&mut cachers, &mut checker, seed);
    }
    assert!(count > 10 * rounds, "ESKER_SEED={seed}: only {count} values were cached");
}

fn seed() -> u64 {
    std::env::var("ESKER_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| fastrand::u64(..1 << 32))
}

#[test]
fn tracking_2_tracking_3_cached_values_are_those_of_the_server() {
    let server = TestServer::start();
    let connect = || server.wire();
    run(seed(), 12, [&connect, &connect], Some(&server.db));
}

#[test]
fn cached_values_of_a_replica_are_those_of_the_replica() {
    let dir = tempfile::tempdir().unwrap();
    let primary = Node::start(&dir.path().join("a"));
    let replica = Node::replica_of(&dir.path().join("b"), primary.port());
    let mut wire = primary.wire();
    wire.say("SET a 1");
    assert_eq!(wire.say("WAIT 1 0"), ":1");
    run(seed(), 8, [&|| primary.wire(), &|| replica.wire()], None);
}
