//! `FUNCTION` and `FCALL`: libraries of functions that are kept in the database.
//!
//! ```text
//!   FUNCTION LOAD --run its code in an interpreter of its own--> es.functions
//!   FCALL --generation--> the interpreter of the generation --> the function, as one command
//! ```

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use esker_rdb::{Dump, libraries_of_dump};

use super::restore::refused;
use crate::base::glob;
use crate::lua::library::{self, Registered};
use crate::lua::machine::Machine;
use crate::resp::Request;
use crate::resp::fail::{Done, Fail, READ_ONLY, SYNTAX};
use crate::resp::numbers::int;
use crate::run::cx::Cx;
use crate::run::dispatch::unknown_subcommand;
use crate::run::functions::{Function, GENERATION_KEY, KEYSPACE, Libraries, Library, generation};
use crate::run::scripts::{Running, Script, names_exchange};
use crate::store::{Order, Space, Span};

/// Maximum bytes of the sources of all libraries. The interpreter keeps them in compiled form.
const SOURCES_MAX: usize = 8 << 20;

fn described(registered: &[Registered], source: &[u8]) -> Vec<Function> {
    let names_exchange = names_exchange(source);
    let describe = |new: &Registered| Function {
        name: new.name.clone(),
        description: new.description.clone(),
        flags: new.flags.clone(),
        names_exchange,
    };
    registered.iter().map(describe).collect()
}

/// Returns the names and sources of all libraries that the command sees.
///
/// # Errors
/// Errors of the store.
fn sources(cx: &Cx<'_>, space: &Space) -> Done<Vec<(String, Vec<u8>)>> {
    let mut sources = Vec::new();
    cx.access.reads().range(space, Span::ALL, Order::Up, &mut |name, source| {
        if name != GENERATION_KEY {
            sources.push((String::from_utf8_lossy(name).into_owned(), source.to_vec()));
        }
        ControlFlow::Continue(())
    })?;
    Ok(sources)
}

/// Sets and removes libraries. `None` instead of a source removes the library.
///
/// # Errors
/// Errors of the store.
fn change(cx: &mut Cx<'_>, changes: &[(&str, Option<&[u8]>)]) -> Done {
    let space = cx.server.store.space(KEYSPACE, false)?;
    let transaction = cx.access.transaction()?;
    for (name, source) in changes {
        match source {
            Some(source) => transaction.put(&space, name.as_bytes(), source)?,
            None => transaction.remove(&space, name.as_bytes())?,
        }
    }
    // A number that is used once, even if this transaction is undone.
    transaction.put(&space, GENERATION_KEY, &fastrand::u128(..).to_le_bytes())?;
    cx.effects.changes += 1;
    Ok(())
}

/// Returns the libraries that the command sees.
fn current(cx: &mut Cx<'_>) -> Done<Arc<Libraries>> {
    let (generation, space) = generation(&*cx.server.store, cx.access.reads())?;
    let known = cx.server.scripts.libraries.lock().clone();
    if let Some(known) = known.filter(|known| known.generation == generation) {
        return Ok(known);
    }
    let sources = space.map_or(Ok(Vec::new()), |space| sources(cx, &space))?;
    let mut all = Vec::new();
    for (name, source) in sources {
        let functions = match examine(cx, &source) {
            Ok((_, functions)) => functions,
            // The next call tries again.
            Err(Refused { why, has_ended: true }) => return Err(*why),
            Err(_) => Vec::new(),
        };
        all.push(Library { name, source, functions });
    }
    let libraries = Arc::new(Libraries { generation, all });
    *cx.server.scripts.libraries.lock() = Some(libraries.clone());
    Ok(libraries)
}

/// Why a library cannot be loaded.
struct Refused {
    why: Box<Fail>,
    /// Its code was ended, so it may load another time.
    has_ended: bool,
}

impl From<Fail> for Refused {
    fn from(why: Fail) -> Self {
        Refused { why: Box::new(why), has_ended: false }
    }
}

impl From<Refused> for Fail {
    fn from(refused: Refused) -> Self {
        *refused.why
    }
}

/// Runs the code of a library in an interpreter of its own. Returns its name and its functions.
fn examine(cx: &Cx<'_>, source: &[u8]) -> Result<(String, Vec<Function>), Refused> {
    super::lua::check_len(source)?;
    // It can be killed, and an earlier kill does not concern it.
    let _running = Running::new(&cx.server.scripts, cx.now);
    super::lua::with_stack(|| {
        let (name, code) = library::header(source).map_err(Fail::text)?;
        let machine = Machine::new(cx.server.scripts.kill.clone());
        let machine = machine.map_err(|error| Fail::text(format!("ERR {error}")))?;
        machine.limits.begin();
        let registered = library::load(&machine, code);
        let has_ended = machine.limits.has_ended();
        let registered = registered.map_err(|why| Refused { why: Box::new(Fail::text(why)), has_ended })?;
        Ok((name, described(&registered, source)))
    })
}

/// Checks that the libraries may be kept together.
fn check_together(all: &[Library]) -> Done {
    let mut names: Vec<_> = all.iter().flat_map(|library| &library.functions).map(|f| &f.name).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Fail::text(format!("ERR Function {} already exists", pair[0])));
    }
    if all.iter().map(|library| library.source.len()).sum::<usize>() > SOURCES_MAX {
        return Err("ERR the libraries would have more than 8 MiB of source".into());
    }
    Ok(())
}

pub(super) fn fcall(cx: &mut Cx<'_>, request: &Request, only_reads: bool) -> Done {
    let libraries = current(cx)?;
    let function = libraries.find(&request[1]).ok_or("ERR Function not found")?;
    let count = int(&request[2]).map_err(|_| "ERR Bad number of keys provided")?;
    if count > request.len() as i64 - 3 {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    let count = usize::try_from(count).map_err(|_| "ERR Number of keys can't be negative")?;
    if only_reads && !function.only_reads() {
        return Err("ERR Can not execute a script with write flag using *_ro command.".into());
    }
    if cx.server.replication.is_replica() && !function.only_reads() {
        return Err(READ_ONLY.into());
    }
    let words = request.tail(3);
    let (keys, arguments) = words.split_at(count);
    let server = cx.server.clone();
    let _running = Running::new(&server.scripts, cx.now);
    *server.scripts.function.lock() =
        Some((function.name.clone(), request.from(0).map(<[u8]>::to_vec).collect()));
    let only_reads = function.only_reads();
    let script = Script {
        digest: &function.name,
        whole: &[],
        source: &[],
        keys,
        arguments,
        only_reads,
        libraries: Some(&libraries),
    };
    super::scripts::run_inside(cx, &script)
}

pub(super) fn function(cx: &mut Cx<'_>, request: &Request) -> Done {
    let sub = request[1].to_ascii_lowercase();
    if matches!(&*sub, b"load" | b"delete" | b"flush" | b"restore") {
        if cx.server.replication.is_replica() {
            return Err(READ_ONLY.into());
        }
        // Those of a transaction were checked with `EXEC`.
        if !cx.session.turn.is_inside {
            cx.server.check_replicas()?;
        }
    }
    match (&*sub, request.len()) {
        (b"load", 3..) => load(cx, request),
        (b"delete", 3) => delete(cx, request),
        (b"flush", 2 | 3) => flush(cx, request),
        (b"list", _) => list(cx, request),
        (b"dump", 2) => dump(cx),
        (b"restore", 3..) => restore(cx, request),
        (b"stats", 2) => stats(cx),
        (b"kill", 2) => super::scripts::kill(cx),
        _ => Err(unknown_subcommand(request)),
    }
}

fn load(cx: &mut Cx<'_>, request: &Request) -> Done {
    let last = request.len() - 1;
    if let Some(at) = (2..last).find(|at| !request.is(*at, "replace")) {
        return Err(Fail::text(format!(
            "ERR Unknown option given: {}",
            String::from_utf8_lossy(&request[at])
        )));
    }
    let (source, replaces) = (&request[last], last > 2);
    let mut all = current(cx)?.all.clone();
    let (name, _) = library::header(source).map_err(Fail::text)?;
    if !replaces && all.iter().any(|library| library.name == name) {
        return Err(Fail::text(format!("ERR Library '{name}' already exists")));
    }
    let (name, functions) = examine(cx, source)?;
    all.retain(|library| library.name != name);
    all.push(Library { name: name.clone(), source: source.to_vec(), functions });
    check_together(&all)?;
    change(cx, &[(name.as_str(), Some(source))])?;
    cx.out.bulk(name.as_bytes());
    Ok(())
}

fn delete(cx: &mut Cx<'_>, request: &Request) -> Done {
    let libraries = current(cx)?;
    let found = libraries.all.iter().find(|library| library.name.as_bytes() == &request[2]);
    let library = found.ok_or("ERR Library not found")?;
    change(cx, &[(library.name.as_str(), None)])?;
    cx.out.ok();
    Ok(())
}

fn flush(cx: &mut Cx<'_>, request: &Request) -> Done {
    if request.len() == 3 && !request.is(2, "sync") && !request.is(2, "async") {
        return Err("ERR FUNCTION FLUSH only supports SYNC|ASYNC option".into());
    }
    let libraries = current(cx)?;
    if !libraries.all.is_empty() {
        let removed: Vec<_> = libraries.all.iter().map(|library| (library.name.as_str(), None)).collect();
        change(cx, &removed)?;
    }
    cx.out.ok();
    Ok(())
}

fn list(cx: &mut Cx<'_>, request: &Request) -> Done {
    let (mut pattern, mut with_code, mut at) = (None, false, 2);
    while at < request.len() {
        if request.is(at, "withcode") && !with_code {
            with_code = true;
        } else if request.is(at, "libraryname") && pattern.is_none() {
            pattern = Some(request.get(at + 1).ok_or("ERR library name argument was not given")?.to_vec());
            at += 1;
        } else {
            let word = String::from_utf8_lossy(&request[at]).into_owned();
            return Err(Fail::text(format!("ERR Unknown argument {word}")));
        }
        at += 1;
    }
    let libraries = current(cx)?;
    let is_meant = |library: &&Library| {
        pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, library.name.as_bytes()))
    };
    let shown: Vec<_> = libraries.all.iter().filter(is_meant).collect();
    let out = &mut *cx.out;
    out.array(shown.len());
    for library in shown {
        out.map(if with_code { 4 } else { 3 });
        out.bulk(b"library_name");
        out.bulk(library.name.as_bytes());
        out.bulk(b"engine");
        out.bulk(b"LUA");
        out.bulk(b"functions");
        out.array(library.functions.len());
        for function in &library.functions {
            out.map(3);
            out.bulk(b"name");
            out.bulk(function.name.as_bytes());
            out.bulk(b"description");
            out.bulk_or_null(function.description.as_deref());
            out.bulk(b"flags");
            out.set(function.flags.len());
            function.flags.iter().for_each(|flag| out.bulk(flag.as_bytes()));
        }
        if with_code {
            out.bulk(b"library_code");
            out.bulk(&library.source);
        }
    }
    Ok(())
}

fn stats(cx: &mut Cx<'_>) -> Done {
    let libraries = current(cx)?;
    let functions: usize = libraries.all.iter().map(|library| library.functions.len()).sum();
    let scripts = &cx.server.scripts;
    let running = scripts.function.lock().clone();
    let out = &mut *cx.out;
    out.map(2);
    out.bulk(b"running_script");
    match running.filter(|_| scripts.is_running.load(Ordering::Relaxed)) {
        Some((name, words)) => {
            out.map(3);
            out.bulk(b"name");
            out.bulk(name.as_bytes());
            out.bulk(b"command");
            out.array(words.len());
            words.iter().for_each(|word| out.bulk(word));
            out.bulk(b"duration_ms");
            out.int(scripts.running_ms() as i64);
        }
        None => out.null(),
    }
    out.bulk(b"engines");
    out.map(1);
    out.bulk(b"LUA");
    out.map(2);
    out.bulk(b"libraries_count");
    out.count(libraries.all.len());
    out.bulk(b"functions_count");
    out.count(functions);
    Ok(())
}

/// Writes all libraries, as Redis does.
fn dump(cx: &mut Cx<'_>) -> Done {
    let libraries = current(cx)?;
    let dump = Dump::libraries(libraries.all.iter().map(|library| library.source.as_slice()));
    cx.out.bulk(&dump.finish());
    Ok(())
}

fn restore(cx: &mut Cx<'_>, request: &Request) -> Done {
    let is = |word: &str| request.len() == 4 && request.is(3, word);
    let (flushes, replaces) = (is("flush"), is("replace"));
    if request.len() > 4 {
        return Err(SYNTAX.into());
    }
    if request.len() == 4 && !flushes && !replaces && !is("append") {
        return Err("ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.".into());
    }
    let old = current(cx)?;
    let mut all = if flushes { Vec::new() } else { old.all.clone() };
    let mut new: Vec<Library> = Vec::new();
    let sources = libraries_of_dump(&request[2], cx.gather_left());
    for source in sources.map_err(|error| refused(cx, &error, &request[2]))? {
        let (name, functions) = examine(cx, &source)?;
        let is_known = all.iter().chain(&new).any(|library| library.name == name);
        if is_known && !replaces {
            return Err(Fail::text(format!("ERR Library {name} already exists")));
        }
        all.retain(|library| library.name != name);
        new.push(Library { name, source, functions });
    }
    all.extend(new.iter().cloned());
    check_together(&all)?;
    let is_kept = |library: &&Library| all.iter().any(|kept| kept.name == library.name);
    let mut changes: Vec<(&str, Option<&[u8]>)> = old
        .all
        .iter()
        .filter(|library| !is_kept(library))
        .map(|library| (library.name.as_str(), None))
        .collect();
    changes.extend(new.iter().map(|library| (library.name.as_str(), Some(library.source.as_slice()))));
    change(cx, &changes)?;
    cx.out.ok();
    Ok(())
}
