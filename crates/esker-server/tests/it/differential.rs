//! Sends the same random commands to this server and to Redis, and compares the replies.

use std::process::{Child, Command, Stdio};

use fastrand::Rng;

use crate::generator::{command, templates};
use crate::harness::{TestServer, until};
use crate::wire::{Reply, Wire};

/// A Redis server that stops when this is dropped.
pub struct Redis {
    process: Child,
    pub port: u16,
    _dir: tempfile::TempDir,
}

impl Redis {
    /// Starts Redis. Returns none if `redis-server` is not installed.
    pub fn start() -> Option<Self> {
        // Another process may take the port in the meantime. Redis does not start then, and another port is
        // tried.
        for _ in 0..5 {
            let port = std::net::TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port();
            let dir = tempfile::tempdir().ok()?;
            let process = Command::new("redis-server")
                .args(["--port", &port.to_string(), "--save", "", "--appendonly", "no"])
                .current_dir(dir.path())
                .stdout(Stdio::null())
                .spawn()
                .ok()?;
            let mut redis = Redis { process, port, _dir: dir };
            let mut is_up = false;
            until(|| {
                is_up = std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
                is_up || redis.process.try_wait().is_ok_and(|status| status.is_some())
            });
            if is_up {
                return Some(redis);
            }
        }
        None
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Removes differences that are allowed, such as the order of members.
fn plain(name: &str, reply: Reply) -> Reply {
    match reply {
        Reply::List(kind, mut items) => {
            match name {
                "HGETALL" | "HSCAN" | "SSCAN" | "ZSCAN" => {
                    if let [_, Reply::List(..)] = &items[..] {
                        let Some(Reply::List(_, inner)) = items.pop() else { return Reply::Null };
                        items = inner;
                    }
                    let each = if name == "SSCAN" { 1 } else { 2 };
                    let mut pairs: Vec<_> = items.chunks(each).map(<[Reply]>::to_vec).collect();
                    pairs.sort();
                    items = pairs.concat();
                }
                "SMEMBERS" | "SINTER" | "SUNION" | "SDIFF" | "KEYS" | "HKEYS" | "HVALS" => items.sort(),
                "XINFO" => items.iter_mut().for_each(forget_consumers),
                "EXEC" => items = items.into_iter().map(|item| plain("", unordered(item))).collect(),
                _ => {}
            }
            Reply::List(kind, items)
        }
        // The two compilers describe errors differently.
        Reply::Error(text) if text.starts_with("ERR Error compiling script") => {
            Reply::Error("ERR Error compiling script".to_owned())
        }
        // Time passes between the two commands.
        Reply::Int(n) if name == "TTL" => Reply::Int(n.min(1)),
        other => other,
    }
}

/// Removes the number of consumers of a group. Like Redis 7.2, but unlike 7.0, this server counts consumers
/// that asked for entries and got none.
fn forget_consumers(group: &mut Reply) {
    if let Reply::List(_, figures) = group
        && figures.get(2).is_some_and(|title| *title == Reply::Bulk(b"consumers".to_vec()))
        && let Some(count) = figures.get_mut(3)
    {
        *count = Reply::Int(0);
    }
}

/// Normalizes a reply in a transaction, whose command is unknown here.
fn unordered(mut reply: Reply) -> Reply {
    forget_consumers(&mut reply);
    match reply {
        Reply::List(kind, items) => {
            let mut items: Vec<_> = items.into_iter().map(unordered).collect();
            items.sort();
            Reply::List(kind, items)
        }
        other => other,
    }
}

/// Runs the commands of a seed on both servers. Returns the first difference.
pub fn compare(
    ours: &mut Wire,
    theirs: &mut Wire,
    seed: u64,
    steps: usize,
    version: &str,
) -> Result<(), String> {
    let mut random = Rng::with_seed(seed);
    let templates = templates();
    for wire in [&mut *ours, &mut *theirs] {
        wire.say("RESET");
        wire.say("FLUSHALL");
        wire.call(&["HELLO", version]);
    }
    let mut before = Vec::new();
    for step in 0..steps {
        let words = command(&mut random, &templates);
        let reply = |wire: &mut Wire| plain(&words[0], wire.call(&words));
        let (our, their) = (reply(ours), reply(theirs));
        before.push(format!("{words:?} -> {their:?}"));
        if our != their {
            let from = before.len().saturating_sub(25);
            let history = before[from..].join("\n");

            let held: Vec<_> = words[1..]
                .iter()
                .map(|key| [ours.say(&format!("GET {key}")), theirs.say(&format!("GET {key}"))])
                .collect();
            return Err(format!(
                "seed {seed}, step {step}: {words:?}\nours   {our:?}\ntheirs {their:?}\n{history}\nheld {held:?}"
            ));
        }
    }
    Ok(())
}

#[test]
fn random_commands_have_the_replies_of_redis() {
    let Some(redis) = Redis::start() else {
        eprintln!("no redis-server here: replies are compared with nothing");
        return;
    };
    let server = TestServer::start();
    let seeds: u64 = std::env::var("ESKER_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    for seed in 0..seeds {
        let (mut ours, mut theirs) = (server.wire(), Wire::connect(redis.port));
        let version = if seed % 2 == 0 { "2" } else { "3" };
        if let Err(difference) = compare(&mut ours, &mut theirs, seed, 1500, version) {
            panic!("{difference}");
        }
    }
}
