//! Runs a command and records it: counters, times, monitors, the slow log.

use std::sync::atomic::Ordering;

use tokio::runtime::{Handle, RuntimeFlavor};

use crate::base::clock;
use crate::command::flag;
use crate::command::spec::Group;
#[cfg(debug_assertions)]
use crate::command::{keys::Keys, reach::Reach};
use crate::observe::slow_log::SlowCommand;
use crate::observe::trace;
use crate::resp::Request;
use crate::resp::fail::{Done, Fail};
use crate::run::cx::{Access, Cx};
use crate::run::effects::EffectsMark;
use crate::run::parts;
use crate::run::registry::Command;
use crate::run::shown::short_words;

/// Runs a command and records it.
pub(super) fn call(cx: &mut Cx<'_>, command: &'static Command, at: usize, request: &Request) -> Done {
    let is_monitored =
        cx.server.clients.has_monitors() && !command.is(flag::ADMIN) && !cx.session.turn.is_again;
    // Monitors see `EXEC` after the commands that it runs.
    if is_monitored && !command.is(flag::RUNS_QUEUE) {
        tell_monitors(cx, command, request);
    }
    let stats = cx.server.commands.stats_at(at);
    let times = calls_measured(cx, command, stats.calls.get());
    let start = (times > 0).then(clock::moment);
    let part = parts::begin(cx, command);
    begin_memory(cx);
    let before = mark(cx, command);
    note_reads(cx, command, true);
    #[cfg(debug_assertions)]
    {
        cx.session.turn.named = named(command, request);
    }
    remember_keys(cx, command, request);
    cx.session.turn.is_access = is_access(cx, command);
    let mut done = run_traced(cx, command, request);
    note_reads(cx, command, false);
    if cx.out.take_cut() && done.is_ok() {
        done = Err(cx.out.too_large());
    }
    if let Some(before) = before.filter(|_| done.is_ok() && cx.session.turn.is_inside) {
        done = cx.effects.check(before.effects, cx.effects_max());
    }
    if let Some(part) = part {
        done = parts::end(cx, part, done);
    }
    #[cfg(debug_assertions)]
    if let (Some(named), Err(Fail::Blocks(wait))) = (cx.session.turn.named.take(), &done) {
        assert!(wait.keys.iter().all(|key| named.contains(key)), "{} waits for other keys", command.name);
    }
    if let Some(before) = before {
        settle(cx, command, &done, before);
    }
    if is_monitored && command.is(flag::RUNS_QUEUE) {
        tell_monitors(cx, command, request);
    }
    if matches!(done, Err(Fail::Blocks(_))) {
        return done;
    }
    if let Some(start) = start {
        let took = start.elapsed();
        let micros = took.as_micros() as u64;
        stats.micros.add(micros * times);
        if cx.server.config.tracks_latency() {
            stats.latency.add(micros, times);
        }
        cx.server.note_latency(if command.is(flag::FAST) { "fast-command" } else { "command" }, took);
        note_slow(cx, command, request, micros);
    }
    stats.calls.add(1);
    cx.server.observed.stats.commands.add(1);
    cx.session.client.traffic.commands.add(1);
    if done.is_err() {
        stats.failed.add(1);
    }
    done
}

/// Runs the command's function, or replies with its help.
fn run_traced(cx: &mut Cx<'_>, command: &Command, request: &Request) -> Done {
    let _span = trace::command(&cx.session.client, command.name);
    if !command.is_help(request) {
        return match parts::may_run_scripts(cx, command) && is_only_worker() {
            true => tokio::task::block_in_place(|| (command.run)(cx, request)),
            false => (command.run)(cx, request),
        };
    }
    let lines = command.help();
    cx.out.array(lines.len());
    lines.iter().for_each(|line| cx.out.simple(line));
    Ok(())
}

/// Returns whether this thread is the only one that serves connections. It must not run a long script: then
/// `SCRIPT KILL` would not be read. Of several threads, another one reads it (net/pulse.rs).
fn is_only_worker() -> bool {
    let Ok(runtime) = Handle::try_current() else { return false };
    runtime.runtime_flavor() == RuntimeFlavor::MultiThread && runtime.metrics().num_workers() == 1
}

/// Resets the memory limits when a command begins (command_memory.1). Effects are limited for the whole
/// script or transaction.
fn begin_memory(cx: &mut Cx<'_>) {
    cx.effects.progress.begin();
    if !cx.session.turn.is_inside {
        cx.effects.bytes_before = cx.effects.bytes;
        cx.out.bytes_max = cx.server.commands.memory.reply.load(Ordering::Relaxed);
    }
}

/// Remembers the keys that a client is about to read, if it tracks them (tracking.2). Keys of keyspaces are
/// not tracked.
fn remember_keys(cx: &Cx<'_>, command: &Command, request: &Request) {
    let (session, clients) = (&*cx.session, &cx.server.clients);
    if !session.client.tracking.remembers() || !command.is(flag::READ) || command.group == Group::Rows {
        return;
    }
    let is_ordered = command.takes_part();
    let keys = command.keys_of(request);
    if keys.is_empty() || is_ordered && session.places.space.is_some() {
        return;
    }
    // `ES.GET key SNAP id`, and reads of a held transaction.
    let is_past = is_ordered && (request.len() > 2 || session.own.transaction.is_some());
    let keys_max = usize::try_from(cx.server.config.number("tracking-table-max-keys")).unwrap_or(0);
    clients.remember(&session.client, &keys, session.turn.rounds, is_past, keys_max);
}

/// Returns whether the look-ups of a command count as accesses.
#[inline]
fn is_access(cx: &Cx<'_>, command: &Command) -> bool {
    let is_touched =
        || !cx.session.client.state.is_no_touch.load(Ordering::Relaxed) || command.name == "touch";
    cx.server.config.accesses.is_on() && !command.is(flag::NO_ACCESS) && is_touched()
}

/// Returns the keys that a command may use, or `None` if it may use any.
#[cfg(debug_assertions)]
fn named(command: &Command, request: &Request) -> Option<Vec<Vec<u8>>> {
    let reaches_all = || command.reaches_of(request).iter().any(|reach| matches!(reach, Reach::AllKeys(_)));
    let uses_others = matches!(command.keys, Keys::None) || command.runs_others() || reaches_all();
    (!uses_others).then(|| command.keys_of(request).into_iter().map(<[u8]>::to_vec).collect())
}

/// The state before a command, to undo the command if it fails.
#[derive(Clone, Copy)]
struct Before {
    effects: EffectsMark,
    /// Savepoint of the transaction, if the command writes to one.
    point: Option<usize>,
}

/// Records the state before a command. Returns `None` if it runs other commands, which are undone one by one.
fn mark(cx: &mut Cx<'_>, command: &Command) -> Option<Before> {
    if command.runs_others() {
        return None;
    }
    let point = match cx.access {
        Access::Write(transaction) => Some(transaction.savepoint()),
        _ => None,
    };
    Some(Before { effects: cx.effects.mark(), point })
}

/// Makes the commit depend on the reads of the command, if the command may read keys that it does not write.
/// A program that embeds the server may change such keys before the commit. For keys that are both read and
/// written, the commit detects the conflict anyway.
fn note_reads(cx: &mut Cx<'_>, command: &Command, notes: bool) {
    if let Access::Write(transaction) = cx.access
        && (command.runs_others() || command.uses.is_mixed())
        && !cx.session.turn.is_inside
    {
        transaction.note_reads(notes);
    }
}

/// Prevents the commit of the connection's held transaction after a failed command that writes or publishes.
pub(super) fn refuse_commit(cx: &Cx<'_>, command: &Command) {
    let matters =
        command.takes_part() && command.is(flag::WRITE | flag::PUBSUB) && !cx.session.turn.is_inside;
    let Some(held) = cx.session.own.transaction.as_ref().filter(|_| matters) else { return };
    // A transaction that has ended meanwhile cannot commit either.
    let _ = held.with(cx.now, |state| {
        state.refuse_level();
        Ok(())
    });
}

/// Undoes a failed command (commands.2). A waiting command has not failed and keeps its changes.
fn settle(cx: &mut Cx<'_>, command: &Command, done: &Done, before: Before) {
    let has_failed = matches!(done, Err(fail) if !matches!(fail, Fail::Blocks(_)));
    if let (Access::Write(transaction), Some(point)) = (&mut *cx.access, before.point) {
        let undone = if has_failed { transaction.rollback_to(point) } else { Ok(()) };
        cx.effects.must_not_commit |= undone.is_err();
        transaction.release(point);
    }
    if has_failed {
        cx.effects.undo(before.effects);
        refuse_commit(cx, command);
    }
}

/// Number of calls of a fast command per call that is measured.
const CALLS_A_MEASURE: u64 = 16;

/// Returns how many calls the time of this call stands for. 0 means that it is not measured: reading the
/// clock costs about as much as a fast command.
fn calls_measured(cx: &Cx<'_>, command: &Command, calls: u64) -> u64 {
    let config = &cx.server.config;
    let is_measured = !command.is(flag::FAST) || calls < CALLS_A_MEASURE;
    if is_measured || (0..1000).contains(&config.slow_micros()) || config.latency_ms() > 0 {
        return 1;
    }
    if calls.is_multiple_of(CALLS_A_MEASURE) { CALLS_A_MEASURE } else { 0 }
}

fn note_slow(cx: &Cx<'_>, command: &Command, request: &Request, micros: u64) {
    let limit = cx.server.config.slow_micros();
    if limit < 0 || micros < limit as u64 || command.is(flag::RUNS_QUEUE) {
        return;
    }
    let words = short_words(command, request);
    let client = &cx.session.client;
    trace::warn("a command took long", Some(client), &format!("{}: {micros} us", command.name));
    let (address, name) = (client.origin.address.clone(), client.name.lock().clone());
    let slow = SlowCommand { id: 0, at: cx.now / 1000, micros, words, address, name };
    cx.server.observed.slow_log.add(slow, cx.server.config.number("slowlog-max-len").max(0) as usize);
}

/// Quotes bytes as Redis does.
fn quoted(word: &[u8]) -> String {
    format!("\"{}\"", word.escape_ascii()).replace("\\'", "'")
}

/// Shows a command to the connections that run `MONITOR`.
fn tell_monitors(cx: &Cx<'_>, command: &Command, request: &Request) {
    let now = clock::now_us();
    let words: Vec<_> = command.shown_words(request).into_iter().map(quoted).collect();
    let is_script = cx.session.turn.is_inside && cx.server.scripts.is_running.load(Ordering::Relaxed);
    let source = if is_script { "lua" } else { &cx.session.client.origin.address };
    let (seconds, micros) = (now / 1_000_000, now % 1_000_000);
    let line = format!("+{seconds}.{micros:06} [{} {source}] {}\r\n", cx.session.db, words.join(" "));
    for client in cx.server.clients.list() {
        if client.state.is_monitor.load(Ordering::Relaxed) {
            client.send(line.as_bytes());
        }
    }
}
