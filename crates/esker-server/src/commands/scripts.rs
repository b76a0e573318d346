//! Scripts: `EVAL` and its kin. They run in the sequencer, as one command, and may touch any key.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::table::{Command, Group::Scripting, Keys, NO_KEYS, command, flag::*};
use super::unknown_subcommand;
use crate::base::clock;
use crate::base::fail::Done;
use crate::base::numbers::int;
use crate::base::sha1;
use crate::resp::Request;
use crate::run::cx::Cx;

const RUNS: u32 = WRITE | NO_SCRIPT;
const SCRIPT_KEYS: Keys = Keys::Numbered(2, 0);

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("eval", -3, RUNS, SCRIPT_KEYS, Scripting, "script n key ... argument ...", "Runs a script.", |cx, r| eval(cx, r, false)),
    command("eval_ro", -3, RUNS, SCRIPT_KEYS, Scripting, "script n key ... argument ...", "Runs a script that does not write.", |cx, r| eval(cx, r, true)),
    command("evalsha", -3, RUNS, SCRIPT_KEYS, Scripting, "digest n key ... argument ...", "Runs a script that is known.", |cx, r| evalsha(cx, r, false)),
    command("evalsha_ro", -3, RUNS, SCRIPT_KEYS, Scripting, "digest n key ... argument ...", "Runs a script that is known and does not write.", |cx, r| evalsha(cx, r, true)),
    command("script", -2, NO_SCRIPT, NO_KEYS, Scripting, "load script | exists digest ... | flush [async|sync] | kill | debug yes|sync|no", "Scripts that are known.", script),
];

/// A script that runs longer fails (lua.2).
pub(crate) const TIME_MAX: Duration = Duration::from_secs(5);
/// Letters of a digest.
const DIGEST_LEN: usize = 40;
/// So many bytes of scripts are known; then all are forgotten. Clients send them again.
const KNOWN_BYTES_MAX: usize = 64 << 20;

/// The scripts that are known, and what runs them.
#[derive(Default)]
pub struct Scripts {
    known: Mutex<HashMap<String, Vec<u8>>>,
    /// The one that runs is to end. Relaxed: it is looked at now and then.
    pub kill: Arc<AtomicBool>,
    /// One runs. Relaxed: it is told to people.
    pub is_running: AtomicBool,
    /// Since when, in milliseconds since 1970; 0: none does. Relaxed: others ask whether it takes long.
    since: AtomicU64,
    /// The same, by a clock that is never set.
    began: Mutex<Option<Instant>>,
    #[cfg(feature = "lua")]
    pub(crate) machine: Mutex<Option<crate::lua::Machine>>,
}

impl Scripts {
    /// Keeps one that can be read.
    pub(crate) fn add(&self, digest: &str, source: &[u8]) {
        let mut known = self.known.lock();
        if !known.contains_key(digest) {
            if known.values().map(Vec::len).sum::<usize>() + source.len() > KNOWN_BYTES_MAX {
                known.clear();
            }
            known.insert(digest.to_owned(), source.to_vec());
        }
    }

    /// Whether one runs for longer than this, in milliseconds; 0: none runs for too long.
    pub fn is_busy(&self, limit: u64) -> bool {
        let since = self.since.load(Ordering::Relaxed);
        since > 0 && limit > 0 && clock::now_ms().saturating_sub(since) > limit
    }

    /// Whether the one that runs has to end.
    pub fn must_end(&self) -> bool {
        let has_taken_too_long = || self.began.lock().is_some_and(|began| began.elapsed() > TIME_MAX);
        self.is_running.load(Ordering::Relaxed) && (self.kill.load(Ordering::Relaxed) || has_taken_too_long())
    }

    /// How many are known.
    pub fn len(&self) -> usize {
        self.known.lock().len()
    }

    fn get(&self, digest: &str) -> Option<Vec<u8>> {
        self.known.lock().get(digest).cloned()
    }
}

fn eval(cx: &mut Cx<'_>, request: &Request, only_reads: bool) -> Done {
    #[cfg(feature = "lua")]
    crate::lua::check_len(&request[1])?;
    run(cx, request, &sha1::hex(&request[1]), &request[1], only_reads)
}

fn evalsha(cx: &mut Cx<'_>, request: &Request, only_reads: bool) -> Done {
    let digest = String::from_utf8_lossy(&request[1]).to_lowercase();
    if digest.len() == DIGEST_LEN {
        // The arguments are looked at before the script is.
        key_count(request)?;
    }
    let source = cx.server.scripts.get(&digest).ok_or("NOSCRIPT No matching script. Please use EVAL.")?;
    run(cx, request, &digest, &source, only_reads)
}

/// How many of the arguments are keys.
fn key_count(request: &Request) -> Done<usize> {
    let count = int(&request[2])?;
    let count = usize::try_from(count).map_err(|_| "ERR Number of keys can't be negative")?;
    if count > request.len() - 3 {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    Ok(count)
}

/// A script to run.
#[cfg_attr(not(feature = "lua"), expect(dead_code, reason = "no scripts are run"))]
#[derive(Clone, Copy)]
pub(crate) struct Script<'a> {
    pub digest: &'a str,
    /// As the client sent it.
    pub whole: &'a [u8],
    /// What is compiled of it.
    pub source: &'a [u8],
    pub keys: &'a [&'a [u8]],
    pub arguments: &'a [&'a [u8]],
    pub only_reads: bool,
}

/// Marks that a script runs, until it is dropped.
struct Running<'a>(&'a Scripts);

impl<'a> Running<'a> {
    fn new(scripts: &'a Scripts, since: u64) -> Self {
        scripts.kill.store(false, Ordering::Relaxed);
        scripts.is_running.store(true, Ordering::Relaxed);
        scripts.since.store(since, Ordering::Relaxed);
        *scripts.began.lock() = Some(clock::moment());
        Running(scripts)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.is_running.store(false, Ordering::Relaxed);
        self.0.since.store(0, Ordering::Relaxed);
        *self.0.began.lock() = None;
    }
}

fn run(cx: &mut Cx<'_>, request: &Request, digest: &str, source: &[u8], only_reads: bool) -> Done {
    let words = request.tail(3);
    let (keys, arguments) = words.split_at(key_count(request)?);
    let server = cx.server.clone();
    let _running = Running::new(&server.scripts, cx.now);
    let was_inside = std::mem::replace(&mut cx.session.is_inside, true);
    let (db, data, is_resp3) = (cx.session.db, cx.session.data.clone(), cx.out.is_resp3);
    let done = execute(cx, &Script { digest, whole: source, source, keys, arguments, only_reads });
    cx.session.is_inside = was_inside;
    cx.out.is_resp3 = is_resp3;
    (cx.session.db, cx.session.data) = (db, data);
    done
}

#[cfg(feature = "lua")]
fn execute(cx: &mut Cx<'_>, script: &Script<'_>) -> Done {
    crate::lua::run(cx, script)
}

#[cfg(not(feature = "lua"))]
fn execute(_: &mut Cx<'_>, _: &Script<'_>) -> Done {
    Err("ERR this server was built without scripts (feature `lua`)".into())
}

fn script(cx: &mut Cx<'_>, request: &Request) -> Done {
    let scripts = &cx.server.scripts;
    match (request[1].to_ascii_lowercase().as_slice(), request.len()) {
        (b"load", 3) => {
            #[cfg(feature = "lua")]
            crate::lua::check(&request[2])?;
            let digest = sha1::hex(&request[2]);
            scripts.add(&digest, &request[2]);
            cx.out.bulk(digest.as_bytes());
        }
        (b"exists", 3..) => {
            cx.out.array(request.len() - 2);
            for word in request.from(2) {
                let is_known = scripts.get(&String::from_utf8_lossy(word).to_lowercase()).is_some();
                cx.out.int(i64::from(is_known));
            }
        }
        (b"flush", 2) => {
            scripts.known.lock().clear();
            cx.out.ok();
        }
        (b"flush", 3) if request.is(2, "async") || request.is(2, "sync") => {
            scripts.known.lock().clear();
            cx.out.ok();
        }
        (b"flush", _) => return Err("ERR SCRIPT FLUSH only support SYNC|ASYNC option".into()),
        (b"kill", 2) => {
            if !scripts.is_running.load(Ordering::Relaxed) {
                return Err("NOTBUSY No scripts in execution right now.".into());
            }
            scripts.kill.store(true, Ordering::Relaxed);
            cx.out.ok();
        }
        (b"debug", 3) if request.is(2, "no") => cx.out.ok(),
        (b"debug", 3) => return Err("ERR scripts cannot be debugged".into()),
        _ => return Err(unknown_subcommand(request)),
    }
    Ok(())
}
