//! Databases that are exchanged among other commands: in pipelines, in transactions and in scripts.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use esker::Db;
use esker_server::{Fsync, Options};
use fastrand::Rng;

use crate::harness::TestServer;
use crate::wire::{Wire, encode};

/// Sends commands together and returns their replies.
fn pipe<T: AsRef<str>>(wire: &mut Wire, commands: &[T]) -> Vec<String> {
    let words = |command: &T| encode(&command.as_ref().split(' ').collect::<Vec<_>>());
    wire.send_bytes(&commands.iter().map(words).collect::<Vec<_>>().concat());
    commands.iter().map(|_| format!("{:?}", wire.reply())).collect()
}

#[test]
fn commands_behind_an_exchange_see_the_writes_before_it() {
    let server = TestServer::start();
    let mut wire = server.wire();
    // The keyspaces of both databases exist.
    pipe(&mut wire, &["SET k zero", "SELECT 1", "SET k one", "SELECT 0"]);
    let seen = pipe(&mut wire, &["SET k 1", "SWAPDB 2 3", "GET k", "INCR k", "SWAPDB 0 1", "GET k"]);
    assert_eq!(seen, ["+OK", "+OK", "\"1\"", ":2", "+OK", "\"one\""]);
    let seen = pipe(&mut wire, &["SELECT 1", "INCR k", "MULTI", "SWAPDB 0 1", "INCR k", "EXEC"]);
    assert_eq!(seen[1], ":3");
    assert!(seen[5].starts_with("*[+OK, -ERR value is not an integer"), "{seen:?}");
    assert_eq!(pipe(&mut wire, &["SELECT 0", "INCR k"]), ["+OK", ":4"]);
}

#[test]
fn replies_before_an_exchange_come_first() {
    let dir = tempfile::tempdir().unwrap();
    // A commit that waits for the disk lets the connection send what is ready.
    let options = Options { fsync: Fsync::Always, ..Options::default() };
    let server = TestServer::start_with(Db::open(dir.path()).unwrap(), options);
    let mut wire = server.wire();
    wire.say("SET k text");
    for n in 0..20 {
        let echo = format!("ECHO {n}");
        let seen = pipe(&mut wire, &[&*echo, "GET k", "SET other 1", "INCR k", "SWAPDB 1 2", "GET k"]);
        let expected = [
            &format!("\"{n}\""),
            "\"text\"",
            "+OK",
            "-ERR value is not an integer or out of range",
            "+OK",
            "\"text\"",
        ];
        assert_eq!(seen, expected, "pipeline {n}");
        let seen = pipe(&mut wire, &[&*echo, "SET other 1", "MULTI", "SWAPDB 1 2", "GET k", "EXEC"]);
        let expected = [&format!("\"{n}\""), "+OK", "+OK", "+QUEUED", "+QUEUED", "*[+OK, \"text\"]"];
        assert_eq!(seen, expected, "transaction {n}");
    }
}

#[cfg(feature = "lua")]
#[test]
fn a_connection_stays_in_its_database_after_a_script_has_exchanged_it() {
    let server = TestServer::start();
    let mut wire = server.wire();
    pipe(&mut wire, &["SET k zero", "SELECT 1", "SET k one", "SELECT 0"]);
    let script = "redis.call('SWAPDB', 0, 1) redis.call('SELECT', 1) return redis.call('GET', 'k')";
    assert_eq!(format!("{:?}", wire.call(&["EVAL", script, "0"])), "\"zero\"");
    assert_eq!(wire.say("GET k"), "\"one\"");
    assert_eq!(wire.say("SET k new"), "+OK");
    assert_eq!(server.wire().say("GET k"), "\"new\"");
    // So it does inside a transaction.
    wire.say("MULTI");
    wire.call(&["EVAL", script, "0"]);
    wire.say("GET k");
    assert_eq!(wire.say("EXEC"), "*[\"new\", \"zero\"]");
    assert_eq!((wire.say("GET k"), server.wire().say("GET k")), ("\"zero\"".into(), "\"zero\"".into()));
}

#[test]
fn writes_of_other_clients_do_not_disturb_an_exchange() {
    let server = TestServer::start();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (server, is_over) = (&server, &is_over);
            scope.spawn(move || {
                let mut wire = server.wire();
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(wire.say("SET other x"), "+OK");
                }
            });
        }
        let mut wire = server.wire();
        let mut seen = Vec::new();
        #[cfg(feature = "lua")]
        let library = "#!lua name=swap\nredis.register_function('swap', function() return redis.call('SwapDb', 2, 3) end)";
        for _ in 0..100 {
            seen.extend(pipe(&mut wire, &["MULTI", "SWAPDB 2 3", "INCR n", "EXEC"]).pop());
            #[cfg(feature = "lua")]
            {
                let script = "return redis.call('SwapDb', 2, 3)";
                seen.push(format!("{:?}", wire.call(&["EVAL", script, "0"])));
                wire.say("MULTI");
                wire.call(&["EVAL", script, "0"]);
                seen.push(wire.say("EXEC"));
                let digest = wire.call(&["SCRIPT", "LOAD", script]);
                let digest = format!("{digest:?}").trim_matches('"').to_owned();
                seen.push(wire.say(&format!("EVALSHA {digest} 0")));
                // The function is called right after its library has changed, and again.
                seen.push(format!("{:?}", wire.call(&["FUNCTION", "LOAD", "REPLACE", library])));
                seen.extend([wire.say("FCALL swap 0"), wire.say("FCALL swap 0")]);
                wire.say("MULTI");
                wire.say("FCALL swap 0");
                seen.push(wire.say("EXEC"));
            }
        }
        is_over.store(true, Ordering::Relaxed);
        let failed: Vec<_> = seen.iter().filter(|reply| reply.contains('-')).collect();
        assert!(failed.is_empty(), "{} of {} failed: {:?}", failed.len(), seen.len(), failed[0]);
        assert_eq!(wire.say("GET n"), "\"100\"");
    });
}

/// What the databases hold, and where the connection is.
#[derive(Default)]
struct Model {
    data: [BTreeMap<String, i64>; 3],
    db: usize,
}

impl Model {
    /// Runs a command and returns its reply.
    fn run(&mut self, command: &str) -> String {
        let words: Vec<_> = command.split(' ').collect();
        let number = |at: usize| words[at].parse::<usize>().unwrap();
        let here = &mut self.data[self.db];
        let value = |value: Option<&i64>| value.map_or("null".to_owned(), |n| format!("\"{n}\""));
        match words[0] {
            "GET" => return value(here.get(words[1])),
            "ECHO" => return format!("\"{}\"", words[1]),
            "SET" => _ = here.insert(words[1].into(), words[2].parse().unwrap()),
            "DEL" => return format!(":{}", here.remove(words[1]).is_some() as u8),
            "INCR" => {
                let n = here.entry(words[1].into()).or_default();
                *n += 1;
                return format!(":{n}");
            }
            "SELECT" => self.db = number(1),
            "FLUSHDB" => here.clear(),
            "SWAPDB" => self.data.swap(number(1), number(2)),
            _ => return "-ERR value is not an integer or out of range".into(),
        }
        "+OK".into()
    }
}

/// Runs random pipelines with exchanges of databases against the model.
fn compare(wire: &mut Wire, model: &mut Model, rng: &mut Rng, seed: u64) {
    let mut commands = Vec::new();
    let mut expected = Vec::new();
    for _ in 0..rng.usize(1..8) {
        let (key, n) = (["a", "b", "c"][rng.usize(0..3)], rng.u8(..));
        let command = match rng.u8(0..12) {
            0..3 => format!("SWAPDB {} {}", rng.u8(0..3), rng.u8(0..3)),
            3 => format!("SELECT {}", rng.u8(0..3)),
            4 => format!("SET {key} {n}"),
            5 => format!("DEL {key}"),
            6 | 7 => format!("INCR {key}"),
            8 => format!("ECHO {n}"),
            9 if rng.u8(0..4) == 0 => "FLUSHDB".into(),
            10 => format!("INCRBY {key} x"),
            _ => format!("GET {key}"),
        };
        expected.push(model.run(&command));
        commands.push(command);
    }
    // An exchange has to come before other writes of a transaction.
    let is_multi = rng.u8(0..4) == 0 && !commands.iter().skip(1).any(|command| command.starts_with("SWAPDB"));
    if is_multi {
        let replies = std::mem::take(&mut expected);
        let queued = commands.iter().map(|_| "+QUEUED".to_owned());
        expected = std::iter::once("+OK".into())
            .chain(queued)
            .chain([format!("*[{}]", replies.join(", "))])
            .collect();
        commands.insert(0, "MULTI".into());
        commands.push("EXEC".into());
    }
    assert_eq!(pipe(wire, &commands), expected, "ESKER_SEED={seed}: {commands:?}");
}

#[test]
fn pipelines_with_exchanges_follow_the_model() {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let seeds = match (number("ESKER_SEED"), number("ESKER_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, count) => 0..count.unwrap_or(6),
    };
    let dir = tempfile::tempdir().unwrap();
    for seed in seeds {
        let mut rng = Rng::with_seed(seed);
        let fsync = if seed % 2 == 0 { Fsync::Always } else { Fsync::EverySecond };
        let db = Db::open(dir.path().join(seed.to_string())).unwrap();
        let server = TestServer::start_with(db, Options { fsync, ..Options::default() });
        let (mut wire, mut model) = (server.wire(), Model::default());
        for _ in 0..80 {
            compare(&mut wire, &mut model, &mut rng, seed);
        }
        assert_eq!(wire.say("ES.VERIFY"), "*[]", "ESKER_SEED={seed}");
    }
}
