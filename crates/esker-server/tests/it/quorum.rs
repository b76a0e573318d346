//! Pipelines at a primary with `write-quorum` and without replicas: no write is acknowledged.

use std::collections::BTreeMap;
use std::time::Duration;

use esker::Db;
use esker_server::Options;
use fastrand::Rng;

use crate::harness::TestServer;
use crate::wire::{Wire, encode};

const UNCONFIRMED: &str = "-UNCONFIRMED";

/// Starts a server whose replies to writes wait this long for a replica.
fn start(db: Db, timeout_ms: &str) -> TestServer {
    let mut options = Options::default();
    let parameters = [("write-quorum", "1"), ("write-quorum-timeout", timeout_ms)];
    options.given.parameters = parameters.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    TestServer::start_with(db, options)
}

/// The words of a command. A script is one word.
fn words(command: &str) -> Vec<&str> {
    match command.split_once('"').and_then(|(before, rest)| Some((before, rest.split_once('"')?))) {
        Some((before, (script, after))) => {
            before.split_whitespace().chain([script]).chain(after.split_whitespace()).collect()
        }
        None => command.split(' ').collect(),
    }
}

/// Sends commands together and returns this number of replies. Of an error only the code is kept.
fn pipe<T: AsRef<str>>(wire: &mut Wire, commands: &[T], replies: usize) -> Vec<String> {
    let bytes: Vec<_> = commands.iter().flat_map(|command| encode(&words(command.as_ref()))).collect();
    wire.send_bytes(&bytes);
    let code = |reply: String| match reply.starts_with('-') {
        true => reply.split(' ').next().unwrap_or_default().to_owned(),
        false => reply,
    };
    (0..replies).map(|_| code(format!("{:?}", wire.reply()))).collect()
}

#[test]
fn no_write_before_an_exchange_is_acknowledged() {
    let server = start(Db::in_memory().unwrap(), "50");
    let mut wire = server.wire();
    for line in ["SET k 0", "SELECT 1", "SET k one", "SELECT 0"] {
        wire.say(line);
    }
    let seen = pipe(&mut wire, &["SET k v", "SWAPDB 0 1", "GET k"], 3);
    assert_eq!(seen, [UNCONFIRMED, UNCONFIRMED, "\"one\""]);
    let seen = pipe(&mut wire, &["SET k w", "MULTI", "SWAPDB 0 1", "GET k", "EXEC", "GET k"], 6);
    assert_eq!(seen, [UNCONFIRMED, "+OK", "+QUEUED", "+QUEUED", UNCONFIRMED, "\"v\""]);
    // The quorum is set after the server has parsed the whole pipeline.
    wire.say("CONFIG SET write-quorum 0");
    let seen = pipe(&mut wire, &["SET x 1", "CONFIG SET write-quorum 1", "SET k y", "BLPOP none 0.05"], 4);
    assert_eq!(seen[2..], [UNCONFIRMED, "null"]);
    wire.say("CONFIG SET write-quorum 0");
    let seen = pipe(&mut wire, &["SET x 1", "CONFIG SET write-quorum 1", "SET k z", "SWAPDB 0 1"], 4);
    assert_eq!(seen[2..], [UNCONFIRMED, UNCONFIRMED]);
}

#[cfg(feature = "lua")]
#[test]
fn no_write_before_a_script_with_an_exchange_is_acknowledged() {
    let server = start(Db::in_memory().unwrap(), "50");
    let mut wire = server.wire();
    let swap = "return redis.call('swapdb', 0, 1)";
    let digest = format!("{:?}", wire.call(&["SCRIPT", "LOAD", swap])).trim_matches('"').to_owned();
    let by_source = format!("EVAL \"{swap}\" 0");
    for script in [by_source, format!("EVALSHA {digest} 0")] {
        let seen = pipe(&mut wire, &["SET k v", &script, "SET k w", &script, "GET k"], 5);
        assert_eq!(seen, [UNCONFIRMED, UNCONFIRMED, UNCONFIRMED, UNCONFIRMED, "\"v\""], "{script}");
        let seen = pipe(&mut wire, &["SET k v", "MULTI", &script, "EXEC", "SELECT 0"], 5);
        assert_eq!(seen, [UNCONFIRMED, "+OK", "+QUEUED", UNCONFIRMED, "+OK"], "{script}");
    }
}

#[test]
fn messages_come_behind_the_replies_that_wait() {
    let server = start(Db::in_memory().unwrap(), "400");
    let mut wire = server.wire();
    wire.say("HELLO 3");
    let mut other = server.wire();
    wire.send_bytes(&[encode(&["SUBSCRIBE", "channel"]), encode(&["SET", "k", "v"])].concat());
    while other.say("PUBLISH channel text") == ":0" {
        std::thread::sleep(Duration::from_millis(5));
    }
    let seen: Vec<_> = (0..3).map(|_| format!("{:?}", wire.reply())).collect();
    assert!(seen[0].contains("subscribe"), "{seen:?}");
    assert!(seen[1].starts_with(UNCONFIRMED), "{seen:?}");
    assert!(seen[2].contains("message"), "{seen:?}");
}

/// One database: its numbers, and the length of its list.
#[derive(Clone, Default)]
struct Data {
    numbers: BTreeMap<String, i64>,
    list: usize,
}

/// The databases, and the state of the connection.
#[derive(Default)]
struct Model {
    data: [Data; 3],
    db: usize,
}

impl Model {
    /// Runs a command. Returns its reply, and whether it has written.
    fn run(&mut self, command: &str) -> (String, bool) {
        let words = words(command);
        let number = |at: usize| words[at].parse::<usize>().unwrap();
        let here = &mut self.data[self.db];
        let value = |value: Option<&i64>| value.map_or("null".to_owned(), |n| format!("\"{n}\""));
        let ok = |has_written: bool| ("+OK".to_owned(), has_written);
        match words[0] {
            "GET" => (value(here.numbers.get(words[1])), false),
            "ECHO" => (format!("\"{}\"", words[1]), false),
            "SET" => {
                here.numbers.insert(words[1].into(), words[2].parse().unwrap());
                ok(true)
            }
            "DEL" => {
                let has_written = here.numbers.remove(words[1]).is_some();
                (format!(":{}", u8::from(has_written)), has_written)
            }
            "RPUSH" => {
                here.list += 1;
                (format!(":{}", here.list), true)
            }
            "BLPOP" => {
                let has_written = here.list > 0;
                here.list -= usize::from(has_written);
                (if has_written { "*[\"list\", \"x\"]" } else { "null" }.to_owned(), has_written)
            }
            "SELECT" => {
                self.db = number(1);
                ok(false)
            }
            "SWAPDB" => {
                self.data.swap(number(1), number(2));
                ok(number(1) != number(2))
            }
            "EVAL" => {
                let script = words[1].replace(['(', ')', '\'', ','], " ");
                let call: Vec<_> = script.split_whitespace().skip(2).collect();
                self.run(&call.join(" "))
            }
            _ => unreachable!("{command}"),
        }
    }
}

fn draw(rng: &mut Rng) -> String {
    let key = ["a", "b", "c"][rng.usize(0..3)];
    let command = match rng.u8(0..12) {
        0 | 1 => format!("SWAPDB {} {}", rng.u8(0..3), rng.u8(0..3)),
        2 => format!("SELECT {}", rng.u8(0..3)),
        3 | 4 => format!("SET {key} {}", rng.u8(..)),
        5 => format!("DEL {key}"),
        6 => "RPUSH list x".to_owned(),
        7 => "BLPOP list 0.01".to_owned(),
        8 => format!("ECHO {}", rng.u8(..)),
        _ => format!("GET {key}"),
    };
    let in_script = cfg!(feature = "lua") && rng.u8(0..4) == 0;
    if !in_script || command.starts_with("BLPOP") || command.starts_with("SELECT") {
        return command;
    }
    let arguments: Vec<_> = command.split(' ').map(|word| format!("'{word}'")).collect();
    format!("EVAL \"return redis.call({})\" 0", arguments.join(","))
}

/// Adds a transaction, with an exchange at its beginning or none.
fn add_transaction(model: &mut Model, rng: &mut Rng, commands: &mut Vec<String>, expected: &mut Vec<String>) {
    commands.push("MULTI".to_owned());
    expected.push("+OK".to_owned());
    let (mut replies, mut has_written) = (Vec::new(), false);
    for at in 0..rng.usize(1..4) {
        let command = draw(rng);
        // A command that waits does not wait here.
        if at > 0 && command.contains("SWAPDB") {
            continue;
        }
        let (reply, writes) = model.run(&command);
        replies.push(reply);
        has_written |= writes;
        commands.push(command);
        expected.push("+QUEUED".to_owned());
    }
    commands.push("EXEC".to_owned());
    expected.push(if has_written { UNCONFIRMED.to_owned() } else { format!("*[{}]", replies.join(", ")) });
}

/// Runs a random pipeline and compares its replies with those of the model.
fn compare(wire: &mut Wire, model: &mut Model, rng: &mut Rng, seed: u64) {
    let (mut commands, mut expected) = (Vec::new(), Vec::new());
    for _ in 0..rng.usize(1..7) {
        if rng.u8(0..6) == 0 {
            add_transaction(model, rng, &mut commands, &mut expected);
            continue;
        }
        let silent = rng.u8(0..8);
        let command = draw(rng);
        let (reply, has_written) = model.run(&command);
        match silent {
            0 => commands.extend(["CLIENT REPLY SKIP".to_owned(), command]),
            1 => {
                commands.extend(["CLIENT REPLY OFF".to_owned(), command, "CLIENT REPLY ON".to_owned()]);
                expected.push("+OK".to_owned());
            }
            _ => {
                commands.push(command);
                expected.push(if has_written { UNCONFIRMED.to_owned() } else { reply });
            }
        }
    }
    let seen = pipe(wire, &commands, expected.len());
    assert_eq!(seen, expected, "ESKER_SEED={seed}: {commands:?}");
}

#[test]
fn pipelines_acknowledge_no_write_without_replicas() {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let seeds = match (number("ESKER_SEED"), number("ESKER_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, count) => 0..count.unwrap_or(6),
    };
    let dir = tempfile::tempdir().unwrap();
    for seed in seeds {
        let mut rng = Rng::with_seed(seed);
        let server = start(Db::open(dir.path().join(seed.to_string())).unwrap(), "10");
        let (mut wire, mut model) = (server.wire(), Model::default());
        for _ in 0..60 {
            compare(&mut wire, &mut model, &mut rng, seed);
        }
        assert_eq!(wire.say("ES.VERIFY"), "*[]", "ESKER_SEED={seed}");
    }
}
