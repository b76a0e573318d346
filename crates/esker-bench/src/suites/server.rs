//! Suite `server`: servers of the Redis protocol, measured by a client.
//!
//! ```text
//! Engine::serve --> a process of its own <--connections-- redis-benchmark --CSV--> rate, latencies
//!                             '------------ after the row: is there what must be there?
//! ```
//!
//! - The load comes from the program `redis-benchmark`, which is independent of both servers. It uses
//!   processor time of the same machine, the same for each request of both servers.
//! - Rows with a countable result are checked: answered increments are there, and pushed items are popped.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use esker_bench_api::results::{Detail, Latency, Unit};
use esker_bench_api::{Failure, Result, Serving, Syncing};

use crate::recorder::Outcome;
use crate::row::Row;
use crate::scale::Scale;
use crate::suites::plan::Part;
use crate::suites::works::expect;
use crate::suites::{Stream, Suite, Turn};

const MEMORY_BYTES: u64 = 1 << 30;
/// Memory of servers in the rows beyond memory.
const SMALL_MEMORY_BYTES: u64 = 64 << 20;
const MEMORY_BYTES_MAX: u64 = 12 << 30;
/// Time after which a command has failed.
const PATIENCE: Duration = Duration::from_secs(30);
const GROUPS: [Group; 4] = [
    Group { syncing: Syncing::Always, beyond: false },
    Group { syncing: Syncing::EverySecond, beyond: false },
    Group { syncing: Syncing::Never, beyond: false },
    Group { syncing: Syncing::EverySecond, beyond: true },
];

/// Rows that one server process runs.
#[derive(Clone, Copy)]
struct Group {
    syncing: Syncing,
    /// Whether the data far exceeds the memory of the server.
    beyond: bool,
}

/// The command that a row sends.
#[derive(Clone, Copy)]
enum Work {
    Set,
    Get,
    Incr,
    Mset,
    Zadd,
    Lpush,
    Brpop,
    Lrange,
    /// Esker's own command: 100 keys and values from a random key on.
    Range,
}

#[derive(Clone, Copy)]
struct Load {
    work: Work,
    connections: u32,
    pipeline: u32,
    value_bytes: u32,
}

impl Load {
    const fn of(work: Work, connections: u32, pipeline: u32, value_bytes: u32) -> Self {
        Self { work, connections, pipeline, value_bytes }
    }

    fn name(self, group: Group) -> String {
        let (what, _) = self.work.said();
        let pipeline =
            if self.pipeline > 1 { format!(", pipeline {}", self.pipeline) } else { String::new() };
        let beyond = if group.beyond { ", beyond memory" } else { "" };
        let (connections, bytes) = (self.connections, self.value_bytes);
        format!(
            "{what} {bytes} B, {connections} connections{pipeline}, fsync {}{beyond}",
            group.syncing.name()
        )
    }

    fn requests(self, scale: Scale, group: Group) -> u64 {
        let many = match scale {
            Scale::Test => return 200 * u64::from(self.pipeline),
            Scale::Quick => 100_000,
            Scale::Seed => 1_000_000,
            Scale::Full => 10_000_000,
        };
        let writes = !matches!(self.work, Work::Get | Work::Lrange | Work::Range);
        let slow = writes && group.syncing == Syncing::Always && self.pipeline == 1;
        match (slow, self.connections) {
            (_, 1) => many / 10,
            (true, _) => many / 4,
            (false, _) if matches!(self.work, Work::Lrange | Work::Range) => many / 4,
            (false, _) => many,
        }
    }
}

impl Work {
    /// Returns its name, and the arguments for redis-benchmark.
    fn said(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Set => ("SET", &["-t", "set"]),
            Self::Get => ("GET", &["-t", "get"]),
            Self::Incr => ("INCR of one key,", &["INCR", "counter"]),
            Self::Mset => ("MSET of 10 keys,", &["-t", "mset"]),
            Self::Zadd => ("ZADD", &["-t", "zadd"]),
            Self::Lpush => ("LPUSH", &["-t", "lpush"]),
            Self::Brpop => ("BRPOP", &["BRPOP", "mylist", "5"]),
            Self::Lrange => ("LRANGE of 100,", &["-t", "lrange_100"]),
            Self::Range => ("ES.RANGE of 100,", &["ES.RANGE", "key:__rand_int__", "", "LIMIT", "100"]),
        }
    }
}

/// Returns the rows of a group, in order. `Brpop` pops the items of `Lpush`.
fn loads(group: Group) -> Vec<Load> {
    let of = Load::of;
    if group.beyond {
        return vec![of(Work::Set, 50, 1, 1024), of(Work::Get, 50, 1, 1024), of(Work::Range, 50, 1, 1024)];
    }
    let mut loads = vec![
        of(Work::Set, 1, 1, 32),
        of(Work::Set, 50, 1, 32),
        of(Work::Set, 200, 1, 32),
        of(Work::Set, 50, 16, 32),
        of(Work::Set, 50, 1, 1024),
        of(Work::Incr, 50, 1, 8),
        of(Work::Mset, 50, 1, 32),
        of(Work::Zadd, 50, 1, 32),
        of(Work::Lpush, 50, 1, 32),
        of(Work::Brpop, 50, 1, 32),
    ];
    if group.syncing == Syncing::EverySecond {
        loads.extend([
            of(Work::Get, 1, 1, 32),
            of(Work::Get, 50, 1, 32),
            of(Work::Get, 200, 1, 32),
            of(Work::Get, 50, 16, 32),
            of(Work::Lrange, 50, 1, 32),
            of(Work::Range, 50, 1, 32),
        ]);
    }
    loads
}

/// Number of keys from which requests draw.
fn keys(scale: Scale, group: Group) -> u64 {
    match (scale, group.beyond) {
        (Scale::Test, _) => 100,
        (Scale::Quick, _) => 100_000,
        (Scale::Full, true) => 10_000_000,
        (Scale::Seed | Scale::Full, _) => 1_000_000,
    }
}

pub(crate) static SUITE: Suite = Suite {
    name: "server",
    summary: "servers of the Redis protocol under redis-benchmark: 1 to 200 connections, three kinds of syncing, in memory and beyond; for --engine esker --engine redis",
    memory_bytes_max: |_| Some(MEMORY_BYTES_MAX),
    streams: || vec![Stream::new("requests", "redis-benchmark: random keys, seed by its clock")],
    parts: |scale| GROUPS.map(|group| Part::Program(rows(scale, group), run)).into(),
    ..Suite::EMPTY
};

fn rows(scale: Scale, group: Group) -> Vec<Row> {
    let row = |load: Load| {
        let requests = load.requests(scale, group);
        let work = format!("{requests} requests over {} keys; requests a second", keys(scale, group));
        let row = Row::rate(Unit::OpsPerSecond, load.name(group), work);
        Row { weight: 1 + requests / 50_000, ..row }
    };
    loads(group).into_iter().map(row).collect()
}

fn run(turn: Turn<'_>) -> Result<()> {
    let Turn { engine, scale, group, recorder } = turn;
    let group = GROUPS[group];
    let dir = recorder.dir().to_path_buf();
    let serving = Serving {
        dir: &dir,
        port: free_port()?,
        syncing: group.syncing,
        memory_bytes: if group.beyond { SMALL_MEMORY_BYTES } else { MEMORY_BYTES },
    };
    let Some(command) = engine.serve(serving)? else {
        return Err(Failure::Unsupported("it comes without a server".to_owned()));
    };
    let mut server = Server::start(command, serving.port)?;
    let keys = keys(scale, group);
    let mut counted = 0;
    for load in loads(group) {
        let requests = load.requests(scale, group);
        let is_own = matches!(load.work, Work::Range) && engine.name() != "esker";
        recorder.row(&load.name(group), || {
            if is_own {
                return Err(Failure::Unsupported("it has no ranges over keys".to_owned()));
            }
            let outcome = server.load(load, requests, keys)?;
            Ok(Outcome { note: "load by redis-benchmark, on the same processors".to_owned(), ..outcome })
        })?;
        match load.work {
            Work::Incr => counted += requests,
            Work::Brpop => {
                let port = serving.port;
                recorder.check(|| {
                    expect("increments", number(&ask(port, "GET counter")?)?, counted)?;
                    expect("elements left of the list", number(&ask(port, "LLEN mylist")?)?, 0)
                })?;
            }
            _ => {}
        }
    }
    server.stop()
}

/// A running server. Dropping it kills the process.
struct Server {
    process: Child,
    port: u16,
}

impl Server {
    fn start(mut command: Command, port: u16) -> Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let process = process.map_err(|e| Failure::NotRun(format!("{program} cannot be started: {e}")))?;
        let mut server = Self { process, port };
        let begun = Instant::now();
        while !ask(port, "PING").is_ok_and(|answer| answer == "+PONG") {
            if let Ok(Some(status)) = server.process.try_wait() {
                return Err(Failure::Engine(format!("{program} ended at once: {status}")));
            }
            if begun.elapsed() > PATIENCE {
                return Err(Failure::Engine(format!("{program} does not answer")));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Runs redis-benchmark once.
    fn load(&mut self, load: Load, requests: u64, keys: u64) -> Result<Outcome> {
        let (_, said) = load.work.said();
        let numbers = [
            ("-p", u64::from(self.port)),
            ("-n", requests),
            ("-c", u64::from(load.connections)),
            ("-P", u64::from(load.pipeline)),
            ("-d", u64::from(load.value_bytes)),
            ("-r", keys),
        ];
        let mut command = Command::new("redis-benchmark");
        command.arg("--csv");
        for (option, number) in numbers {
            command.args([option, &number.to_string()]);
        }
        let output = command.args(said).stdin(Stdio::null()).output();
        let output =
            output.map_err(|e| Failure::NotRun(format!("redis-benchmark cannot be started: {e}")))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let figures = figures(&text).filter(|_| output.status.success()).ok_or_else(|| {
            let said = String::from_utf8_lossy(&output.stderr);
            Failure::Wrong(format!("redis-benchmark: {} {}", text.trim(), said.trim()))
        })?;
        let rate = figures[0];
        let [_, mean, _, p50, p95, p99, max] = figures.map(|milliseconds| milliseconds / 1000.0);
        let latency = Latency { count: requests, mean, p50, p95, p99, max, ..Latency::default() };
        let mut detail = Box::new(Detail { load: "closed".to_owned(), ..Detail::default() });
        detail.latency.insert("request".to_owned(), latency);
        if let Some(bytes) = self.peak_bytes() {
            detail.figures.insert("peak memory of the server, bytes".to_owned(), bytes);
        }
        let seconds = Some(requests as f64 / rate);
        Ok(Outcome { seconds, ops: Some(requests), detail: Some(detail), ..Outcome::default() })
    }

    fn peak_bytes(&self) -> Option<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        Some(line.split_whitespace().next()?.parse::<f64>().ok()? * 1024.0)
    }

    fn stop(mut self) -> Result<()> {
        // The server answers by closing the connection.
        let _closed = ask(self.port, "SHUTDOWN");
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if self.process.try_wait()?.is_some() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Err(Failure::engine("the server still runs half a minute after SHUTDOWN"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A drop cannot return an error.
        let _ended = self.process.kill().and_then(|()| self.process.wait());
    }
}

/// Parses the last line that redis-benchmark prints. After the name it has requests per second, then
/// milliseconds.
fn figures(csv: &str) -> Option<[f64; 7]> {
    let line = csv.lines().rev().find(|line| line.starts_with('"'))?;
    // The name may contain commas; the figures do not.
    let mut figures: Vec<f64> =
        line.rsplit(',').take(7).map_while(|field| field.trim_matches('"').parse().ok()).collect();
    figures.reverse();
    figures.try_into().ok()
}

fn free_port() -> Result<u16> {
    let bound = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    bound.map(|address| address.port()).map_err(|e| Failure::Engine(format!("find a free port: {e}")))
}

/// Sends an inline command. Returns the lines of the answer without the lengths.
fn ask(port: u16, command: &str) -> Result<String> {
    let exchange = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(format!("{command}\r\n").as_bytes())?;
        let mut answer = String::new();
        let mut bytes = [0; 256];
        loop {
            let read = stream.read(&mut bytes)?;
            answer.push_str(&String::from_utf8_lossy(&bytes[..read]));
            let lines = if answer.starts_with('$') && !answer.starts_with("$-1") { 2 } else { 1 };
            if read == 0 || answer.matches("\r\n").count() >= lines {
                return Ok(answer);
            }
        }
    };
    let answer = exchange().map_err(|e| Failure::Engine(format!("{command}: {e}")))?;
    Ok(answer.lines().rfind(|line| !line.is_empty()).unwrap_or_default().to_owned())
}

/// Parses a number that a server answered.
fn number(answer: &str) -> Result<u64> {
    let parsed = answer.trim_start_matches(':').parse();
    parsed.map_err(|_| Failure::Wrong(format!("a number was to be answered, not {answer}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_redis_benchmark_prints_is_read() {
        let csv = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
                   \"MSET (10 keys, or so)\",\"93457.95\",\"0.272\",\"0.088\",\"0.263\",\"0.375\",\"0.479\",\"1.023\"\n";
        assert_eq!(figures(csv), Some([93457.95, 0.272, 0.088, 0.263, 0.375, 0.479, 1.023]));
        assert_eq!(figures("Could not connect"), None);
        assert_eq!(number(":17").unwrap() + number("3").unwrap(), 20);
    }

    #[test]
    fn servers_answer_as_the_rows_expect() {
        for engine in ["esker", "redis"].into_iter().filter_map(crate::engines::find) {
            let dir = tempfile::tempdir().unwrap();
            let serving = Serving {
                dir: dir.path(),
                port: free_port().unwrap(),
                syncing: Syncing::EverySecond,
                memory_bytes: SMALL_MEMORY_BYTES,
            };
            let command = match engine.serve(serving) {
                Ok(Some(command)) => command,
                other => {
                    println!("{}: not tested: {other:?}", engine.name());
                    continue;
                }
            };
            let server = match Server::start(command, serving.port) {
                Err(Failure::NotRun(why)) => {
                    println!("{}: not tested: {why}", engine.name());
                    continue;
                }
                server => server.unwrap(),
            };
            assert_eq!(ask(serving.port, "INCR counter").unwrap(), ":1");
            assert_eq!(ask(serving.port, "GET counter").unwrap(), "1");
            server.stop().unwrap();
        }
    }
}
