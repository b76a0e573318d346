//! The program in Go that does the work of suites. A process starts it once and sends calls through a pipe.
//!
//! ```text
//! Remote, Piped --calls: JSON, a line each, and bytes--> bench/go, `serve` --> engine
//!               <--answers--'
//! ```
//!
//! bench/go/lab/serve.go is the other side and describes the calls.
//!
//! Nothing that a row measures goes through the pipe, except the opening of a store by a suite that is a
//! program.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use esker_bench_api::store::Work as StoreWork;
use esker_bench_api::{
    Durability, Failure, OpenOptions, Reader, Result, Store, TransactionKind, VisitItem, Writer,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::measure;
use crate::suites::items::{Kind, Source};
use crate::suites::plan::Work;
use crate::suites::works::{Checked, Done, Executor, OnProgress};

/// In place of the length of a value: the key is removed.
const NO_VALUE: u32 = u32::MAX;
/// Number of items of a range that one call asks for.
const PAGE: u64 = 10_000;

/// A running program.
struct Process {
    _child: Child,
    calls: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// An answer: progress, a failure, or what was done.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Answer {
    progress: Option<u64>,
    failure: Option<Failed>,
    pub(super) done: Done,
    seconds: f64,
    items: u64,
    live_bytes: u64,
    reader: u64,
    found: bool,
    count: u64,
    bytes: usize,
    #[serde(skip)]
    payload: Vec<u8>,
}

#[derive(Deserialize)]
struct Failed {
    kind: String,
    text: String,
}

impl Failed {
    fn into_failure(self) -> Failure {
        match self.kind.as_str() {
            "unsupported" => Failure::Unsupported(self.text),
            "wrong" => Failure::Wrong(self.text),
            _ => Failure::Engine(self.text),
        }
    }
}

static PROCESS: OnceLock<Result<Mutex<Process>>> = OnceLock::new();

/// Starts the program, if it does not run. From then on the program is the measured process.
pub(super) fn start(program: &Path) -> Result<()> {
    let started = PROCESS.get_or_init(|| {
        let mut command = Command::new(program);
        let command = command.arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        measure::measure_process(child.id());
        let pipe = || Failure::engine("a process without a pipe");
        let calls = child.stdin.take().ok_or_else(pipe)?;
        let answers = BufReader::new(child.stdout.take().ok_or_else(pipe)?);
        Ok(Mutex::new(Process { _child: child, calls, answers }))
    });
    started.as_ref().map(drop).map_err(Failure::clone)
}

fn process() -> Result<MutexGuard<'static, Process>> {
    match PROCESS.get() {
        Some(Ok(process)) => Ok(process.lock().unwrap_or_else(PoisonError::into_inner)),
        Some(Err(failure)) => Err(failure.clone()),
        None => Err(Failure::engine("the program in Go was not started")),
    }
}

/// Makes one call with the arguments `asked`.
pub(super) fn call(asked: Value, payload: &[u8], on_progress: OnProgress<'_>) -> Result<Answer> {
    let mut asked = asked;
    asked["bytes"] = payload.len().into();
    let mut process = process()?;
    let gone = |error: std::io::Error| Failure::Engine(format!("the program in Go: {error}"));
    let line = format!("{asked}\n");
    let calls = &mut process.calls;
    calls.write_all(line.as_bytes()).and_then(|()| calls.write_all(payload)).map_err(gone)?;
    calls.flush().map_err(gone)?;
    loop {
        let mut line = String::new();
        if process.answers.read_line(&mut line).map_err(gone)? == 0 {
            return Err(Failure::engine("the program in Go ended"));
        }
        let mut answer: Answer = serde_json::from_str(&line)?;
        if let Some(done) = answer.progress {
            on_progress(done, Instant::now())?;
            continue;
        }
        answer.payload = vec![0; answer.bytes];
        process.answers.read_exact(&mut answer.payload).map_err(gone)?;
        return answer.failure.take().map_or(Ok(answer), |failed| Err(failed.into_failure()));
    }
}

fn call_simply(asked: Value) -> Result<Answer> {
    call(asked, &[], &mut |_, _| Ok(()))
}

fn number(durability: Durability) -> u64 {
    match durability {
        Durability::Sync => 0,
        Durability::Async => 1,
        Durability::NoSync => 2,
    }
}

fn options_of(options: &OpenOptions) -> Value {
    json!({
        "cache_bytes": options.cache_bytes,
        "write_buffer_bytes": options.write_buffer_bytes.unwrap_or(0),
        "value_bytes": options.value_bytes,
        "durability": number(options.durability),
        "concurrent_writes": options.concurrent_writes,
        "ascending_keys": options.ascending_keys,
    })
}

/// Runs the work of a group on an engine in Go.
pub(crate) struct Remote {
    items: u64,
    live_bytes: u64,
}

impl Remote {
    pub(crate) fn new(
        engine: &str,
        source: Source,
        transactions: Option<TransactionKind>,
        dir: &Path,
    ) -> Result<Self> {
        let kind = transactions.map_or("", TransactionKind::name);
        call_simply(json!({
            "call": "start", "engine": engine, "dir": dir, "source": source, "transactions": kind,
        }))?;
        Ok(Self { items: 0, live_bytes: 0 })
    }

    fn call(&mut self, asked: Value, on_progress: OnProgress<'_>) -> Result<Answer> {
        let answer = call(asked, &[], on_progress)?;
        (self.items, self.live_bytes) = (answer.items, answer.live_bytes);
        Ok(answer)
    }

    fn call_simply(&mut self, asked: Value) -> Result<Answer> {
        self.call(asked, &mut |_, _| Ok(()))
    }
}

impl Executor for Remote {
    fn open(&mut self, options: &OpenOptions) -> Result<()> {
        self.call_simply(json!({"call": "open", "options": options_of(options)})).map(drop)
    }

    fn open_within(&mut self, options: &OpenOptions) -> Result<()> {
        self.call_simply(json!({"call": "open_within", "options": options_of(options)})).map(drop)
    }

    fn close(&mut self) -> Result<()> {
        self.call_simply(json!({"call": "close"})).map(drop)
    }

    fn set_durability(&mut self, durability: Durability) -> Result<()> {
        self.call_simply(json!({"call": "set_durability", "durability": number(durability)})).map(drop)
    }

    fn work(&mut self, work: &Work, on_progress: OnProgress<'_>) -> Result<Done> {
        self.call(json!({"call": "work", "work": work}), on_progress).map(|answer| answer.done)
    }

    fn compact(&mut self) -> Result<f64> {
        self.call_simply(json!({"call": "compact"})).map(|answer| answer.seconds)
    }

    fn drain(&self, deadline: Instant) -> Result<()> {
        drain(deadline)
    }

    fn items(&self) -> u64 {
        self.items
    }

    fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    fn under_snapshot(
        &mut self,
        then: &mut dyn FnMut(&mut dyn Executor, Checked<'_>) -> Result<()>,
    ) -> Result<()> {
        let reader = call_simply(json!({"call": "hold"}))?.reader;
        let mut check = || call_simply(json!({"call": "check_held", "reader": reader})).map(drop);
        then(self, &mut check)?;
        call_simply(json!({"call": "release", "reader": reader})).map(drop)
    }

    fn collect_garbage(&mut self) -> Result<()> {
        self.call_simply(json!({"call": "collect"})).map(drop)
    }
}

fn drain(deadline: Instant) -> Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    call_simply(json!({"call": "drain", "deadline_ns": left.as_nanos() as u64})).map(drop)
}

/// A store of an engine in Go, for suites that are programs.
pub(super) struct Piped;

impl Piped {
    pub(super) fn open(engine: &str, dir: &Path, options: &OpenOptions) -> Result<Self> {
        Remote::new(engine, Source::new(Kind::Items, 0, 0), None, dir)?;
        call_simply(json!({"call": "open", "options": options_of(options)}))?;
        Ok(Self)
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        if let Err(failure) = call_simply(json!({"call": "close"})) {
            eprintln!("esker-bench: closing a store in Go: {failure}");
        }
    }
}

impl Store for Piped {
    fn set_durability(&mut self, durability: Durability) -> Result<()> {
        call_simply(json!({"call": "set_durability", "durability": number(durability)})).map(drop)
    }

    fn write(&self, work: StoreWork<'_>) -> Result<()> {
        let mut pairs = Pairs(Vec::new());
        work(&mut pairs)?;
        call(json!({"call": "write"}), &pairs.0, &mut |_, _| Ok(())).map(drop)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(Held(call_simply(json!({"call": "hold"}))?.reader)))
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        get(0, key, visit)
    }

    fn compact(&mut self) -> Result<()> {
        call_simply(json!({"call": "compact"})).map(drop)
    }

    fn drain(&self, deadline: Instant) -> Result<()> {
        drain(deadline)
    }
}

/// Writes of a transaction, in the format of the pipe.
struct Pairs(Vec<u8>);

impl Pairs {
    fn add(&mut self, key: &[u8], value: &[u8], value_len: u32) {
        self.0.extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.0.extend_from_slice(&value_len.to_le_bytes());
        self.0.extend_from_slice(key);
        self.0.extend_from_slice(value);
    }
}

impl Writer for Pairs {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.add(key, value, value.len() as u32);
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        self.add(key, &[], NO_VALUE);
        Ok(())
    }
}

fn get(reader: u64, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
    let answer = call(json!({"call": "get", "reader": reader}), key, &mut |_, _| Ok(()))?;
    if answer.found {
        visit(&answer.payload);
    }
    Ok(answer.found)
}

/// Number of a snapshot.
struct Held(u64);

impl Drop for Held {
    fn drop(&mut self) {
        // A closed store has released it already.
        drop(call_simply(json!({"call": "release", "reader": self.0})));
    }
}

impl Reader for Held {
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        get(self.0, key, visit)
    }

    fn range(&mut self, from: &[u8], limit: u64, visit: VisitItem<'_>) -> Result<u64> {
        let (mut next, mut seen) = (from.to_vec(), 0);
        while seen < limit {
            let page = PAGE.min(limit - seen);
            let asked = json!({"call": "range", "reader": self.0, "limit": page});
            let answer = call(asked, &next, &mut |_, _| Ok(()))?;
            let mut pairs = &answer.payload[..];
            while let Some((lengths, rest)) = pairs.split_first_chunk::<8>() {
                let [key, value] = [&lengths[..4], &lengths[4..]]
                    .map(|part| part.iter().rev().fold(0, |len, byte| len << 8 | usize::from(*byte)));
                visit(&rest[..key], &rest[key..key + value]);
                next.clear();
                next.extend_from_slice(&rest[..key]);
                next.push(0);
                pairs = &rest[key + value..];
            }
            seen += answer.count;
            if answer.count < page {
                break;
            }
        }
        Ok(seen)
    }

    fn len(&mut self) -> Result<u64> {
        call_simply(json!({"call": "len", "reader": self.0})).map(|answer| answer.count)
    }
}
