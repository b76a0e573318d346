//! `EVAL` and related commands. A script runs in the sequencer, as one command, and may use any key.

use std::sync::atomic::Ordering;

#[cfg(feature = "lua")]
use super::functions::{fcall, function};
use crate::base::sha1;
use crate::command::spec::Group::Scripting;
use crate::resp::Request;
use crate::resp::fail::Done;
use crate::resp::numbers::int;
use crate::run::cx::Cx;
use crate::run::dispatch::unknown_subcommand;
use crate::run::registry::row::*;
use crate::run::scripts::{Running, Script};

const RUNS: u32 = WRITE | NO_SCRIPT;
const SCRIPT_KEYS: Keys = Keys::Numbered(2, 0);

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("eval", -3, RUNS, SCRIPT_KEYS, Scripting, "script n key ... argument ...", "Runs a script.", |cx, r| eval(cx, r, false)).each(KeyUse::SHOW_UPDATE),
    command("eval_ro", -3, RUNS, SCRIPT_KEYS, Scripting, "script n key ... argument ...", "Runs a script that only reads.", |cx, r| eval(cx, r, true)).each(KeyUse::SHOW),
    command("evalsha", -3, RUNS, SCRIPT_KEYS, Scripting, "digest n key ... argument ...", "Runs a known script.", |cx, r| evalsha(cx, r, false)).each(KeyUse::SHOW_UPDATE),
    command("evalsha_ro", -3, RUNS, SCRIPT_KEYS, Scripting, "digest n key ... argument ...", "Runs a known script that only reads.", |cx, r| evalsha(cx, r, true)).each(KeyUse::SHOW),
    command("fcall", -3, RUNS, SCRIPT_KEYS, Scripting, "function n key ... argument ...", "Runs a function of a library.", |cx, r| fcall(cx, r, false)).each(KeyUse::SHOW_UPDATE),
    command("fcall_ro", -3, RUNS, SCRIPT_KEYS, Scripting, "function n key ... argument ...", "Runs a function that only reads.", |cx, r| fcall(cx, r, true)).each(KeyUse::SHOW),
    command("function", -2, NO_SCRIPT | SEQUENCED | PAUSED, NO_KEYS, Scripting, "load [replace] code | delete library | list [libraryname pattern] [withcode] | dump | restore bytes [flush|append|replace] | flush [async|sync] | kill | stats", "Manages the libraries of functions.", function).own_flags(FUNCTION_FLAGS),
    command("script", -2, NO_SCRIPT, NO_KEYS, Scripting, "load script | exists digest ... | flush [async|sync] | kill | debug yes|sync|no", "Manages the known scripts.", script).own_flags(&[(&["kill"], NO_SCRIPT | WHILE_BUSY)]),
];

/// Flags of the subcommands of `FUNCTION`.
const FUNCTION_FLAGS: &[(&[&str], u32)] = &[
    (&["delete", "flush"], WRITE | NO_SCRIPT),
    (&["load", "restore"], WRITE | NO_SCRIPT | DENY_OOM),
    (&["dump", "list"], NO_SCRIPT),
    (&["kill", "stats"], NO_SCRIPT | WHILE_BUSY),
];
#[cfg(not(feature = "lua"))]
const NOT_BUILT: &str = "ERR this server was built without scripts (feature `lua`)";

/// Number of hexadecimal digits of a digest.
const DIGEST_LEN: usize = 40;
fn eval(cx: &mut Cx<'_>, request: &Request, only_reads: bool) -> Done {
    #[cfg(feature = "lua")]
    super::lua::check_len(&request[1])?;
    run(cx, request, &sha1::hex(&request[1]), &request[1], only_reads)
}

fn evalsha(cx: &mut Cx<'_>, request: &Request, only_reads: bool) -> Done {
    let digest = String::from_utf8_lossy(&request[1]).to_lowercase();
    if digest.len() == DIGEST_LEN {
        // Errors in the arguments take precedence over an unknown script.
        key_count(request)?;
    }
    let source = cx.server.scripts.get(&digest).ok_or("NOSCRIPT No matching script. Please use EVAL.")?;
    run(cx, request, &digest, &source, only_reads)
}

/// Parses the number of arguments that are keys.
fn key_count(request: &Request) -> Done<usize> {
    let count = int(&request[2])?;
    let count = usize::try_from(count).map_err(|_| "ERR Number of keys can't be negative")?;
    if count > request.len() - 3 {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    Ok(count)
}

fn run(cx: &mut Cx<'_>, request: &Request, digest: &str, source: &[u8], only_reads: bool) -> Done {
    let words = request.tail(3);
    let (keys, arguments) = words.split_at(key_count(request)?);
    let server = cx.server.clone();
    let _running = Running::new(&server.scripts, cx.now);
    let script = Script {
        digest,
        whole: source,
        source,
        keys,
        arguments,
        only_reads,
        #[cfg(feature = "lua")]
        libraries: None,
    };
    run_inside(cx, &script)
}

/// Runs a script or a function in the place of the command.
pub(super) fn run_inside(cx: &mut Cx<'_>, script: &Script<'_>) -> Done {
    let was_inside = std::mem::replace(&mut cx.session.turn.is_inside, true);
    let (db, data, generation) = (cx.session.db, cx.session.data.clone(), cx.session.generation);
    let is_resp3 = cx.out.is_resp3;
    let done = execute(cx, script);
    cx.session.turn.is_inside = was_inside;
    cx.out.is_resp3 = is_resp3;
    // If the script has exchanged databases, the next command finds that `data` is of an older generation.
    (cx.session.db, cx.session.data, cx.session.generation) = (db, data, generation);
    done
}

#[cfg(feature = "lua")]
fn execute(cx: &mut Cx<'_>, script: &Script<'_>) -> Done {
    super::lua::run(cx, script)
}

#[cfg(not(feature = "lua"))]
fn execute(_: &mut Cx<'_>, _: &Script<'_>) -> Done {
    Err(NOT_BUILT.into())
}

#[cfg(not(feature = "lua"))]
fn fcall(_: &mut Cx<'_>, _: &Request, _: bool) -> Done {
    Err(NOT_BUILT.into())
}

/// Test suites of clients remove functions that they have not made.
#[cfg(not(feature = "lua"))]
fn function(cx: &mut Cx<'_>, request: &Request) -> Done {
    if request.is(1, "flush") {
        cx.out.ok();
    } else if request.is(1, "list") {
        cx.out.array(0);
    } else {
        return Err(NOT_BUILT.into());
    }
    Ok(())
}

/// Ends the running script or function.
pub(super) fn kill(cx: &mut Cx<'_>) -> Done {
    let scripts = &cx.server.scripts;
    if !scripts.is_running.load(Ordering::Relaxed) {
        return Err("NOTBUSY No scripts in execution right now.".into());
    }
    scripts.kill.store(true, Ordering::Relaxed);
    cx.out.ok();
    Ok(())
}

fn script(cx: &mut Cx<'_>, request: &Request) -> Done {
    let scripts = &cx.server.scripts;
    match (request[1].to_ascii_lowercase().as_slice(), request.len()) {
        (b"load", 3) => {
            #[cfg(feature = "lua")]
            super::lua::check(&request[2])?;
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
            scripts.clear();
            cx.out.ok();
        }
        (b"flush", 3) if request.is(2, "async") || request.is(2, "sync") => {
            scripts.clear();
            cx.out.ok();
        }
        (b"flush", _) => return Err("ERR SCRIPT FLUSH only support SYNC|ASYNC option".into()),
        (b"kill", 2) => kill(cx)?,
        (b"debug", 3) if request.is(2, "no") => cx.out.ok(),
        (b"debug", 3) => return Err("ERR scripts cannot be debugged".into()),
        _ => return Err(unknown_subcommand(request)),
    }
    Ok(())
}
