//! Commands for operators: options, whole databases, saving, stopping.

use std::sync::atomic::Ordering;

use crate::base::clock;
use crate::command::spec::Group::Server;
use crate::config;
use crate::holdings::namespace::database_name;
use crate::resp::Request;
use crate::resp::fail::{Done, Fail, SYNTAX};
use crate::resp::numbers::{int, parse_float};
use crate::run::cx::Cx;
use crate::run::dispatch::unknown_subcommand;
use crate::run::registry::row::*;
use crate::store::Span;
use crate::store::database::Database;

/// The version of Redis that the commands follow.
pub(super) const REDIS_VERSION: &str = "8.4.0";

const WHOLE: u32 = WRITE | DANGEROUS;

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("bgrewriteaof", 1, ADMIN | NO_SCRIPT, NO_KEYS, Server, "", "Does nothing: the engine limits the size of its log itself.", bgrewriteaof),
    command("bgsave", -1, ADMIN | NO_SCRIPT, NO_KEYS, Server, "[schedule]", "Same as SAVE.", bgsave),
    command("cluster", -2, ADMIN | NO_SCRIPT | OPEN, NO_KEYS, Server, "info | myid | nodes | slots", "Reports that there is no cluster mode.", |_, _| Err("ERR This instance has cluster support disabled".into())),
    command("config", -2, ADMIN | NO_SCRIPT, NO_KEYS, Server, "get pattern ... | set name value ... | resetstat | rewrite", "Shows options and sets them.", config).own_flags(&[(&["help"], 0)]).hides(secrets::options),
    command("dbsize", 1, READ | FAST, NO_KEYS, Server, "", "Returns the number of keys in the database.", dbsize).in_categories(&["keyspace"]),
    command("debug", -2, ADMIN | NO_SCRIPT | OPEN | ONE_RIGHT, NO_KEYS, Server, "sleep seconds | jmap | set-active-expire n | object key | error text | digest", "Supports tests.", debug),
    command("flushall", -1, WHOLE, NO_KEYS, Server, "[async|sync]", "Removes all keys of all databases.", flushall).in_categories(&["keyspace"]),
    command("flushdb", -1, WHOLE, NO_KEYS, Server, "[async|sync]", "Removes all keys of the database.", flushdb).in_categories(&["keyspace"]),
    command("lastsave", 1, FAST | ADMIN, NO_KEYS, Server, "", "Returns when SAVE last ran.", lastsave),
    command("lolwut", -1, READ | FAST, NO_KEYS, Server, "[version n]", "Shows the version.", lolwut),
    command("save", 1, ADMIN | NO_SCRIPT | NO_MULTI, NO_KEYS, Server, "", "Makes all writes durable.", save),
    command("shutdown", -1, ADMIN | NO_SCRIPT | NO_MULTI | WHILE_BUSY, NO_KEYS, Server, "[nosave|save] [now] [force]", "Makes all writes durable and stops the server.", shutdown),
    command("swapdb", 3, WHOLE | FAST | FIRST_OF_COMMIT, NO_KEYS, Server, "number number", "Swaps two databases.", swapdb).in_categories(&["keyspace"]),
    command("time", 1, FAST, NO_KEYS, Server, "", "Returns the time in seconds and microseconds.", time),
];

/// Parses a parameter and its new value.
fn parameter(name: &[u8], value: &[u8]) -> Done<(String, String)> {
    let name = String::from_utf8_lossy(name).into_owned();
    match std::str::from_utf8(value) {
        Ok(value) => Ok((name, value.to_owned())),
        Err(_) => {
            let why = "argument must be UTF-8";
            Err(Fail::text(format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}")))
        }
    }
}

fn config(cx: &mut Cx<'_>, request: &Request) -> Done {
    if request.is(1, "get") && request.len() > 2 {
        let patterns = request.tail(2);
        let mut found = cx.server.config.find(&patterns);
        let source = cx.server.replication.source();
        let primary = source.map_or(String::new(), |source| format!("{} {}", source.host, source.port));
        for name in ["replicaof", "slaveof"].into_iter().filter(|name| config::is_meant(name, &patterns)) {
            found.push((name.to_owned(), primary.clone()));
        }
        cx.out.map(found.len());
        for (name, value) in found {
            cx.out.bulk(name.as_bytes());
            cx.out.bulk(value.as_bytes());
        }
    } else if request.is(1, "set") && request.len() > 3 && request.len().is_multiple_of(2) {
        let words = request.tail(2);
        let pairs: Done<Vec<_>> = words.chunks(2).map(|pair| parameter(pair[0], pair[1])).collect();
        let pairs = pairs?;
        cx.server.config.check(&pairs).map_err(Fail::text)?;
        if pairs.iter().any(|(name, value)| reads_certificates(cx, name, value)) {
            let read = tokio::task::block_in_place(|| cx.server.read_certificates(&pairs));
            read.map_err(|why| Fail::text(format!("ERR CONFIG SET failed - {why}")))?;
        }
        cx.server.config.set(&pairs).map_err(Fail::text)?;
        if pairs.iter().any(|(name, _)| name.eq_ignore_ascii_case("timeout")) {
            cx.server.clients.wake();
        }
        for (_, password) in pairs.iter().filter(|(name, _)| name.eq_ignore_ascii_case("requirepass")) {
            tokio::task::block_in_place(|| cx.server.acl.require(password)).map_err(Fail::text)?;
        }
        cx.out.ok();
    } else if request.is(1, "resetstat") && request.len() == 2 {
        cx.server.observed.stats.reset();
        cx.server.observed.rates.clear();
        for (_, stats) in cx.server.commands.stats() {
            [&stats.calls, &stats.micros, &stats.failed, &stats.rejected].iter().for_each(|c| c.reset());
            stats.latency.reset();
        }
        cx.out.ok();
    } else if request.is(1, "rewrite") && request.len() == 2 {
        tokio::task::block_in_place(|| cx.server.config.rewrite()).map_err(Fail::text)?;
        cx.out.ok();
    } else {
        return Err(unknown_subcommand(request));
    }
    Ok(())
}

/// Returns whether the certificates are read again before a parameter is set. Without encrypted connections
/// that fails, so it is not tried for a parameter that has its value already.
fn reads_certificates(cx: &Cx<'_>, name: &str, value: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_new = || cx.server.config.get(&name).is_none_or(|old| old != value);
    name.starts_with("tls-") && (cx.server.options.tls.is_some() || is_new())
}

fn dbsize(cx: &mut Cx<'_>, _: &Request) -> Done {
    let len = cx.access.reads().len(&cx.session.data.main)?;
    cx.out.int(len as i64);
    Ok(())
}

/// Checks for `ASYNC` or `SYNC`, which make no difference here.
fn check_flush(request: &Request) -> Done {
    match request.len() {
        1 => Ok(()),
        2 if request.is(1, "async") || request.is(1, "sync") => Ok(()),
        _ => Err(SYNTAX.into()),
    }
}

fn clear(cx: &mut Cx<'_>, data: &Database) -> Done {
    let transaction = cx.access.transaction()?;
    for space in data.spaces() {
        transaction.delete_range(space, Span::ALL)?;
    }
    // `EXEC` notices that watched keys are gone. Watched keys that did not exist have not changed.
    cx.effects.changes += 1;
    cx.replaced(data.number);
    cx.all_changed(database_name(data.number));
    Ok(())
}

fn flushdb(cx: &mut Cx<'_>, request: &Request) -> Done {
    check_flush(request)?;
    let data = cx.session.data.clone();
    clear(cx, &data)?;
    cx.out.ok();
    Ok(())
}

fn flushall(cx: &mut Cx<'_>, request: &Request) -> Done {
    check_flush(request)?;
    for data in cx.server.open_databases() {
        clear(cx, &data)?;
    }
    cx.out.ok();
    Ok(())
}

fn swapdb(cx: &mut Cx<'_>, request: &Request) -> Done {
    let number = |at: usize, text: &'static str| -> Done<usize> {
        let number = int(&request[at]).map_err(|_| text)?;
        usize::try_from(number).map_err(|_| "ERR DB index is out of range".into())
    };
    let (a, b) = (number(1, "ERR invalid first DB index")?, number(2, "ERR invalid second DB index")?);
    if a.max(b) >= cx.server.databases_max() {
        return Err("ERR DB index is out of range".into());
    }
    if !cx.access.transaction()?.is_empty() {
        return Err("ERR SWAPDB has to come before other writes of a transaction".into());
    }
    if a != b {
        cx.server.swap_databases(a, b)?;
        cx.session.turn.has_written = true;
        cx.session.data = cx.server.database(cx.session.db)?;
        cx.touch_all(a);
        cx.touch_all(b);
    }
    cx.out.ok();
    Ok(())
}

fn lolwut(cx: &mut Cx<'_>, request: &Request) -> Done {
    if request.is(1, "version") && request.len() > 2 {
        int(&request[2])?;
    }
    cx.out.verbatim(&format!("Redis ver. {REDIS_VERSION}\n"));
    Ok(())
}

fn time(cx: &mut Cx<'_>, _: &Request) -> Done {
    let now = clock::now_us();
    cx.out.array(2);
    cx.out.bulk_int((now / 1_000_000) as i64);
    cx.out.bulk_int((now % 1_000_000) as i64);
    Ok(())
}

fn sync(cx: &mut Cx<'_>) -> Done {
    let store = &cx.server.store;
    tokio::task::block_in_place(|| store.sync())?;
    cx.server.databases.saved.store(cx.now / 1000, Ordering::Relaxed);
    Ok(())
}

fn save(cx: &mut Cx<'_>, _: &Request) -> Done {
    sync(cx)?;
    cx.out.ok();
    Ok(())
}

fn bgsave(cx: &mut Cx<'_>, request: &Request) -> Done {
    if request.len() > 2 || request.len() == 2 && !request.is(1, "schedule") {
        return Err(SYNTAX.into());
    }
    sync(cx)?;
    cx.out.simple("Background saving started");
    Ok(())
}

fn bgrewriteaof(cx: &mut Cx<'_>, _: &Request) -> Done {
    cx.out.simple("Background append only file rewriting started");
    Ok(())
}

fn lastsave(cx: &mut Cx<'_>, _: &Request) -> Done {
    cx.out.int(cx.server.databases.saved.load(Ordering::Relaxed) as i64);
    Ok(())
}

fn shutdown(cx: &mut Cx<'_>, request: &Request) -> Done {
    let known = ["nosave", "save", "now", "force", "abort"];
    if (1..request.len()).any(|at| !known.iter().any(|word| request.is(at, word))) {
        return Err(SYNTAX.into());
    }
    if request.is(1, "abort") {
        return Err("ERR No shutdown in progress.".into());
    }
    cx.session.is_over = true;
    cx.server.stop_now();
    Ok(())
}

/// Subcommands of `DEBUG` that do harm on purpose in Redis. They are refused here.
const HARMFUL: &[&str] =
    &["assert", "crash-and-abort", "crash-and-recover", "oom", "panic", "restart", "segfault"];

/// Subcommands of `DEBUG` for internals of Redis that do not exist here. They are accepted and do nothing.
const SWITCHES: &[&str] = &[
    "change-repl-id",
    "dict-resizing",
    "jmap",
    "loadaof",
    "pause-cron",
    "quicklist-packed-threshold",
    "reload",
    "replybuffer",
    "set-active-expire",
    "set-disable-deny-scripts",
    "stringmatch-len",
];

fn debug(cx: &mut Cx<'_>, request: &Request) -> Done {
    if request.is(1, "sleep") && request.len() == 3 {
        let seconds = parse_float(&request[2]).filter(|n| (0.0..=3600.0).contains(n)).unwrap_or(0.0);
        let length = std::time::Duration::from_secs_f64(seconds);
        #[expect(clippy::disallowed_methods, reason = "a test asks for it")]
        tokio::task::block_in_place(|| std::thread::sleep(length));
        cx.out.ok();
    } else if request.is(1, "error") && request.len() == 3 {
        return Err(Fail::text(String::from_utf8_lossy(&request[2])));
    } else if request.is(1, "digest") {
        cx.out.simple(&"0".repeat(40));
    } else if request.is(1, "object") && request.len() == 3 {
        let main = cx.main(&request[2])?.ok_or(crate::resp::fail::NO_KEY)?;
        let encoding = super::keys::encoding(cx, &request[2], &main)?;
        let bytes = main.stored_bytes();
        cx.out.simple(&format!(
            "Value at:0x0 refcount:1 encoding:{encoding} serializedlength:{bytes} lru:0 lru_seconds_idle:0"
        ));
    } else if HARMFUL.iter().any(|word| request.is(1, word)) {
        return Err("ERR this server does not crash on demand".into());
    } else if SWITCHES.iter().any(|word| request.is(1, word)) {
        cx.out.ok();
    } else {
        return Err(unknown_subcommand(request));
    }
    Ok(())
}
