//! Introspection: `COMMAND`, `INFO`, the slow log, memory.

use std::ops::ControlFlow;

use super::info::{self, engine_figures};
use crate::command::spec::{Group::Server, Spec};
use crate::resp::fail::{Done, SYNTAX};
use crate::resp::numbers::{int, parse_int};
use crate::resp::{Out, Request};
use crate::run::cx::Cx;
use crate::run::dispatch::unknown_subcommand;
use crate::run::registry::row::*;
use crate::store::{Order, Span};
use crate::types::{Collection, Kind, Main};

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("command", -1, 0, NO_KEYS, Server, "[count | info [name ...] | docs [name ...] | list [filterby pattern|aclcat|module name] | getkeys command argument ... | getkeysandflags command argument ...]", "Describes commands.", command_command).in_categories(&["connection"]),
    command("info", -1, DANGEROUS, NO_KEYS, Server, "[section ...]", "Shows the state and the counters of the server.", info::info),
    command("memory", -2, READ | NO_ACCESS, Keys::At(2, 2, 1), Server, "usage key [samples n] | doctor | stats | malloc-stats | purge", "Shows the use of memory.", memory).each(KeyUse::LOOK).own_flags(&[(&["doctor", "help", "malloc-stats", "purge", "stats"], 0)]),
    command("module", -2, ADMIN | NO_SCRIPT, NO_KEYS, Server, "list", "Reports that there are no modules.", module).own_flags(&[(&["help"], 0)]),
    command("monitor", 1, ADMIN | NO_SCRIPT | NO_MULTI, NO_KEYS, Server, "", "Shows all commands as the server receives them.", monitor),
    command("slowlog", -2, ADMIN, NO_KEYS, Server, "get [n] | len | reset", "Shows slow commands.", slowlog).own_flags(&[(&["help"], 0)]),
];

fn command_command(cx: &mut Cx<'_>, request: &Request) -> Done {
    let Some(sub) = request.get(1) else {
        put_all(cx);
        return Ok(());
    };
    match sub.to_ascii_lowercase().as_slice() {
        b"count" => cx.out.count(cx.server.commands.len()),
        b"info" if request.len() == 2 => put_all(cx),
        b"info" => {
            cx.out.array(request.len() - 2);
            for name in request.from(2) {
                match find(cx, name) {
                    Some((spec, None)) => put_info(cx.out, spec),
                    Some((spec, Some(sub))) => put_subcommand_info(cx.out, spec, sub),
                    None => cx.out.null(),
                }
            }
        }
        b"docs" => {
            let commands = &cx.server.commands;
            let named = || request.from(2).filter_map(|name| commands.find(name).map(|found| &**found));
            let all = if request.len() == 2 { commands.specs().to_vec() } else { named().collect() };
            cx.out.map(all.len());
            all.into_iter().for_each(|spec| put_docs(cx.out, spec));
        }
        b"list" => {
            let filter = match request.len() {
                2 => None,
                5 if request.is(2, "filterby") => Some(filter(request)?),
                _ => return Err(SYNTAX.into()),
            };
            let specs = cx.server.commands.specs().iter();
            let wanted: Vec<_> = specs.flat_map(|spec| names_of(spec, filter.as_ref())).collect();
            cx.out.array(wanted.len());
            wanted.iter().for_each(|name| cx.out.bulk(name.as_bytes()));
        }
        b"getkeysandflags" if request.len() > 2 => {
            let (command, words) = named_command(cx, request)?;
            let keys = command.key_uses(&words);
            cx.out.array(keys.len());
            for (key, used) in keys {
                cx.out.array(2);
                cx.out.bulk(key);
                put_names(cx.out, &used.names());
            }
        }
        b"getkeys" if request.len() > 2 => get_keys(cx, request)?,
        _ => return Err(unknown_subcommand(request)),
    }
    Ok(())
}

/// Returns the command that `COMMAND GETKEYS` asks about, and its request.
fn named_command(cx: &Cx<'_>, request: &Request) -> Done<(&'static Command, Request)> {
    let words = Request::of(request.from(2));
    let command = cx.server.commands.find(&words[0]).ok_or("ERR Invalid command specified")?;
    Ok((command, words))
}

fn get_keys(cx: &mut Cx<'_>, request: &Request) -> Done {
    let (command, words) = named_command(cx, request)?;
    if !command.fits(&words) {
        return Err("ERR Invalid number of arguments specified for command".into());
    }
    let keys = command.keys_of(&words);
    // Scripts are valid without keys.
    if keys.is_empty() && !matches!(command.keys, Keys::Numbered(..)) {
        return Err("ERR The command has no key arguments".into());
    }
    cx.out.array(keys.len());
    keys.iter().for_each(|key| cx.out.bulk(key));
    Ok(())
}

/// The argument of `FILTERBY`.
enum Filter {
    Pattern(Vec<u8>),
    Category(String),
    Module,
}

fn filter(request: &Request) -> Done<Filter> {
    let lower = request[4].to_ascii_lowercase();
    match request[3].to_ascii_lowercase().as_slice() {
        b"pattern" => Ok(Filter::Pattern(lower)),
        b"aclcat" => Ok(Filter::Category(format!("@{}", String::from_utf8_lossy(&lower)))),
        b"module" => Ok(Filter::Module),
        _ => Err(SYNTAX.into()),
    }
}

/// Returns the names of a command and its subcommands that match a filter.
fn names_of(command: &'static Spec, filter: Option<&Filter>) -> Vec<String> {
    let subs =
        command.subcommands().map(|sub| (format!("{}|{sub}", command.name), command.subcommand_flags(sub)));
    let all = [(command.name.to_owned(), command.flags)].into_iter().chain(subs);
    let is_wanted = |name: &str, flags: u32| match filter {
        None => true,
        Some(Filter::Pattern(pattern)) => crate::base::glob::matches(pattern, name.as_bytes()),
        Some(Filter::Category(category)) => command.categories_with(flags).contains(category),
        Some(Filter::Module) => false,
    };
    all.filter(|(name, flags)| is_wanted(name, *flags)).map(|(name, _)| name).collect()
}

/// Finds the command of a name, and its subcommand if the name has one: `config|get`.
fn find(cx: &Cx<'_>, name: &[u8]) -> Option<(&'static Spec, Option<&'static str>)> {
    let lower = String::from_utf8_lossy(name).to_lowercase();
    match lower.split_once('|') {
        None => cx.server.commands.find(name).map(|command| (&**command, None)),
        Some((name, word)) => {
            let command = cx.server.commands.find(name.as_bytes())?;
            command.subcommands().find(|sub| *sub == word).map(|sub| (&**command, Some(sub)))
        }
    }
}

fn put_all(cx: &mut Cx<'_>) {
    let specs = cx.server.commands.specs();
    cx.out.array(specs.len());
    specs.iter().for_each(|spec| put_info(cx.out, spec));
}

/// Writes a set of names.
fn put_names<T: AsRef<str>>(out: &mut Out, names: &[T]) {
    out.set(names.len());
    names.iter().for_each(|name| out.simple(name.as_ref()));
}

fn put_info(out: &mut Out, command: &'static Spec) {
    put_head(out, command, command.name, command.arity, command.flags);
    let subs: Vec<_> = command.subcommands().collect();
    out.array(subs.len());
    subs.into_iter().for_each(|sub| put_subcommand_info(out, command, sub));
}

fn put_subcommand_info(out: &mut Out, command: &'static Spec, sub: &str) {
    put_head(
        out,
        command,
        &format!("{}|{sub}", command.name),
        command.subcommand_arity(sub),
        command.subcommand_flags(sub),
    );
    out.array(0);
}

/// Writes everything about a command except its subcommands.
fn put_head(out: &mut Out, command: &Spec, name: &str, arity: i32, flags: u32) {
    out.array(10);
    out.bulk(name.as_bytes());
    out.int(arity.into());
    put_names(out, &command.flag_names(flags));
    command.keys.positions().iter().for_each(|position| out.int(*position));
    put_names(out, &command.categories_with(flags));
    (0..2).for_each(|_| out.array(0));
}

fn put_docs(out: &mut Out, command: &Spec) {
    out.bulk(command.name.as_bytes());
    let pairs = [
        ("summary", command.summary),
        ("since", "1.0.0"),
        ("group", command.group.name()),
        ("complexity", if command.flags & FAST != 0 { "O(1)" } else { "O(N)" }),
        ("usage", command.usage),
    ];
    out.map(pairs.len());
    for (name, value) in pairs {
        out.bulk(name.as_bytes());
        out.bulk(value.as_bytes());
    }
}

/// Default number of elements that `MEMORY USAGE` samples.
const SAMPLES: usize = 5;
/// Approximate bytes that the engine needs for a record besides its key and value.
const OVERHEAD: usize = 32;
/// Length of the version that starts the key of a part.
const VERSION_BYTES: usize = 8;

/// Estimates the bytes of the parts of a collection that are separate records, from the average of a sample.
fn parts_bytes(cx: &Cx<'_>, key: &[u8], main: &Main, samples: usize) -> Done<usize> {
    let collection = Collection::of(key, main)?;
    let (mut seen, mut bytes) = (0, 0);
    collection.range(cx, Span::ALL, Order::Up, &mut |sub, value| {
        seen += 1;
        bytes += VERSION_BYTES + sub.len() + value.len() + OVERHEAD;
        if seen < samples { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    // A member of a sorted set has two parts.
    let each = if main.kind == Kind::SortedSet { 2 } else { 1 };
    let all = (each * collection.len() as usize).max(seen);
    Ok(if seen < samples { bytes } else { (bytes as f64 / seen as f64 * all as f64) as usize })
}

fn memory_usage(cx: &mut Cx<'_>, request: &Request) -> Done {
    let samples = match request.len() {
        3 => SAMPLES,
        5 if request.is(3, "samples") => match usize::try_from(int(&request[4])?) {
            Ok(0) => usize::MAX,
            Ok(samples) => samples,
            Err(_) => return Err(SYNTAX.into()),
        },
        _ => return Err(SYNTAX.into()),
    };
    let key = &request[2];
    match cx.main(key)? {
        None => cx.out.null(),
        Some(main) => {
            let parts = if main.has_parts() { parts_bytes(cx, key, &main, samples)? } else { 0 };
            cx.out.count(main.stored_bytes() + key.len() + OVERHEAD + parts);
        }
    }
    Ok(())
}

fn memory(cx: &mut Cx<'_>, request: &Request) -> Done {
    match request[1].to_ascii_lowercase().as_slice() {
        b"usage" => memory_usage(cx, request)?,
        b"doctor" => cx.out.verbatim("The engine keeps to the memory that it was given.\n"),
        b"malloc-stats" => cx.out.bulk(b"Stats not supported for the current allocator"),
        b"purge" => cx.out.ok(),
        b"stats" => {
            let numbers = engine_figures(cx.server).into_iter();
            let numbers: Vec<_> = numbers.filter_map(|(name, value)| Some((name, value.number()?))).collect();
            cx.out.map(numbers.len());
            for (name, number) in numbers {
                cx.out.bulk(name.as_bytes());
                cx.out.int(number as i64);
            }
        }
        _ => return Err(unknown_subcommand(request)),
    }
    Ok(())
}

fn module(cx: &mut Cx<'_>, request: &Request) -> Done {
    if !request.is(1, "list") {
        return Err("ERR modules are not supported".into());
    }
    cx.out.array(0);
    Ok(())
}

fn monitor(cx: &mut Cx<'_>, _: &Request) -> Done {
    cx.server.clients.set_monitor(&cx.session.client, true);
    cx.out.ok();
    Ok(())
}

fn slowlog(cx: &mut Cx<'_>, request: &Request) -> Done {
    if request.is(1, "len") && request.len() == 2 {
        cx.out.count(cx.server.observed.slow_log.len());
    } else if request.is(1, "reset") && request.len() == 2 {
        cx.server.observed.slow_log.clear();
        cx.out.ok();
    } else if request.is(1, "get") && request.len() <= 3 {
        let count = request.get(2).map_or(Some(10), parse_int).filter(|count| *count >= -1);
        let count = count.ok_or("ERR count should be greater than or equal to -1")?;
        let newest = cx.server.observed.slow_log.newest(usize::try_from(count).unwrap_or(usize::MAX));
        cx.out.array(newest.len());
        for slow in newest {
            cx.out.array(6);
            cx.out.int(slow.id as i64);
            cx.out.int(slow.at as i64);
            cx.out.int(slow.micros as i64);
            cx.out.array(slow.words.len());
            slow.words.iter().for_each(|word| cx.out.bulk(word));
            cx.out.bulk(slow.address.as_bytes());
            cx.out.bulk(slow.name.as_bytes());
        }
    } else {
        return Err(unknown_subcommand(request));
    }
    Ok(())
}
