//! The commands: one table says what each is called, takes, may do and does.
//!
//! ```text
//!   request --> find --> arity, password, MULTI --> run --> reply
//! ```
//!
//! commands.1. A command that fails has written nothing to its reply before its error.
//! commands.2. A command that fails has changed nothing: its writes and effects are undone. A script and EXEC keep what their commands did.
//! commands.3. A held transaction cannot commit after one of its commands that may write has failed, until it is rolled back to before it.

mod acl;
mod bit_fields;
mod bits;
mod connection;
mod dump;
mod expiry;
mod geo;
mod hashes;
mod held;
mod help;
mod hyper_log_logs;
mod info;
mod inside;
mod key_flags;
mod keys;
mod latency;
mod lcs;
mod list_pops;
mod lists;
mod not_built;
mod operations;
mod options;
mod ordered;
mod parts;
mod pubsub;
mod replication;
mod rows;
mod scan;
mod scripts;
mod server;
mod sets;
mod shown;
mod slots;
mod sort;
mod sorted_sets;
mod stream_groups;
mod stream_info;
mod stream_trim;
mod streams;
mod strings;
mod subcommands;
mod table;
mod transactions;
pub mod verify;
mod words;

use std::collections::HashMap;
use std::sync::atomic::Ordering;

pub use self::connection::credentials;
pub(crate) use self::options::{sort_reads_others, wait_class};
pub use self::replication::awaited;
#[cfg(feature = "lua")]
pub(crate) use self::scripts::Script;
pub use self::scripts::Scripts;
#[cfg(feature = "lua")]
pub(crate) use self::scripts::TIME_MAX as SCRIPT_TIME_MAX;
pub use self::server::is_first_of_commit;
pub use self::slots::{ShownSlot, shown_slots};
pub use self::table::{CATEGORIES, Command, Keys, commands as table, commands_document, flag};
pub use self::transactions::unwatch;
use crate::base::clock;
use crate::base::fail::{Done, Fail};
use crate::observe::slow_log::SlowCommand;
use crate::observe::stats::CommandStats;
use crate::observe::trace;
use crate::resp::{Out, Request};
use crate::run::cx::{Access, Cx};
use crate::run::effects::EffectsMark;
use crate::run::memory::MemoryLimits;
use crate::run::pause;
use crate::run::server::Server;
use crate::run::session::{ReplyMode, Session};
use crate::run::waiters::Woken;

/// Names of commands are no longer.
const NAME_BYTES_MAX: usize = 32;

/// All commands, by their names, and what they have done.
pub struct Commands {
    by_name: HashMap<&'static [u8], (&'static Command, usize)>,
    stats: Vec<CommandStats>,
    /// How much memory they may take.
    pub memory: MemoryLimits,
}

/// The table, ready to look names up in.
pub fn all() -> Commands {
    let by_name: HashMap<_, _> =
        table::commands().enumerate().map(|(at, command)| (command.name.as_bytes(), (command, at))).collect();
    let stats = (0..by_name.len()).map(|_| CommandStats::default()).collect();
    Commands { by_name, stats, memory: MemoryLimits::default() }
}

impl Commands {
    fn entry(&self, name: &[u8]) -> Option<&(&'static Command, usize)> {
        let mut lower = [0; NAME_BYTES_MAX];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        self.by_name.get(&*lower)
    }

    /// The command of a name, whatever its case.
    pub fn find(&self, name: &[u8]) -> Option<&'static Command> {
        self.entry(name).map(|entry| entry.0)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// What each has done.
    pub fn stats(&self) -> impl Iterator<Item = (&'static str, &CommandStats)> {
        table::commands().map(|command| command.name).zip(&self.stats)
    }
}

/// Runs a request, or has it wait for `EXEC`. Errors are in the reply when it returns, except for one that has to wait.
///
/// # Errors
/// Why it was not done.
pub fn run(cx: &mut Cx<'_>, request: &Request) -> Done {
    if cx.session.generation != cx.server.generation() {
        cx.session.generation = cx.server.generation();
        cx.session.data = cx.server.database(cx.session.db)?;
    }
    let mark = cx.out.mark();
    let done = admit(cx, request);
    if let Err(fail) = &done {
        if matches!(fail, Fail::Blocks(_)) {
            return done;
        }
        cx.out.truncate(mark);
        cx.out.error(&fail.message());
        cx.server.stats.note_error(&fail.message());
    }
    match cx.session.reply {
        ReplyMode::On => {}
        // What tells of subscriptions is no reply.
        _ if cx.server.commands.find(&request[0]).is_some_and(Command::changes_subscriptions) => {}
        ReplyMode::SkipNext => {
            cx.session.reply = ReplyMode::Skip;
            cx.out.truncate(mark);
        }
        ReplyMode::Skip => {
            cx.session.reply = ReplyMode::On;
            cx.out.truncate(mark);
        }
        ReplyMode::Off => cx.out.truncate(mark),
    }
    done
}

/// The reply to a client that writes to a replica.
pub const READ_ONLY: &str = "READONLY You can't write against a read only replica.";
/// The reply to a client whose script was ended.
pub const ENDED_SCRIPT: &str =
    "ERR Script killed by user with SCRIPT KILL, or after 5 seconds: nothing of what it did stays";
/// The reply to a client that was woken by another one.
pub const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";
/// The reply to a client that waits while its server becomes a replica. Its connection ends, so that it looks for the primary.
pub const DEMOTED: &str =
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";
/// The reply to a client whose command broke off.
pub const BROKEN: &str = "ERR internal error: the command was not done; please report it";

/// The same. None if the command panicked, which is an error of ours: its client is told, and others are served on.
pub fn run_caught(cx: &mut Cx<'_>, request: &Request) -> Option<Done> {
    let mark = cx.out.mark();
    // What it may leave half done is forgotten: the caller does not commit it.
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(cx, request)));
    if ran.is_err() {
        cx.out.truncate(mark);
        cx.out.error(BROKEN);
        cx.session.is_inside = false;
        #[cfg(debug_assertions)]
        {
            cx.session.named = None;
        }
    }
    ran.ok()
}

/// Runs a request if its connection may, and it is a request.
fn admit(cx: &mut Cx<'_>, request: &Request) -> Done {
    let found = cx.server.commands.entry(&request[0]).copied();
    let wrong = found.and_then(|(command, _)| match command.fits(request) {
        true => command.wrong_subcommand(request),
        false => Some(command.wrong_arity()),
    });
    let (command, at) = match (found, wrong) {
        (Some(found), None) => found,
        (found, wrong) => {
            let text = wrong.unwrap_or_else(|| unknown(request));
            let reject = found.map(|(_, at)| at);
            reject.iter().for_each(|at| cx.server.commands.stats[*at].rejected.add(1));
            if request.is(0, "exec") {
                transactions::give_up(cx);
                let why = text.trim_start_matches("ERR ");
                return Err(Fail::text(format!("EXECABORT Transaction discarded because of: {why}")));
            }
            if let Some(multi) = &mut cx.session.multi {
                multi.has_failed = true;
            }
            if let Some((command, _)) = found {
                held::refuse_commit(cx, command);
            }
            return Err(Fail::text(text));
        }
    };
    let allowed = check_rights(cx, command, at, request);
    if allowed.is_err() {
        held::refuse_commit(cx, command);
    }
    allowed?;
    check_busy(cx, command, request)?;
    // Each command of a script is looked at by itself.
    let is_write = command.flags & flag::WRITE != 0 && command.group != table::Group::Scripting;
    if is_write && cx.server.replication.is_replica() {
        if let Some(multi) = &mut cx.session.multi {
            multi.has_failed = true;
        }
        return Err(READ_ONLY.into());
    }
    if !cx.session.is_inside {
        *cx.session.client.command.lock() = (command.name, command.asked_subcommand(request));
    }
    if let Some(multi) = cx.session.multi.as_mut().filter(|_| command.flags & flag::ENDS_MULTI == 0) {
        if command.name == "watch" {
            return Err("ERR WATCH inside MULTI is not allowed".into());
        }
        if command.flags & flag::NO_MULTI != 0 {
            multi.has_failed = true;
            return Err("ERR Command not allowed inside a transaction".into());
        }
        // What will not run takes no memory.
        if !multi.has_failed {
            multi.queue.push(request.clone());
            multi.bytes += request.bytes() + size_of::<Request>();
            multi.may_write |= pause::may_write(command);
            cx.session.client.queued.fetch_add(1, Ordering::Relaxed);
        }
        cx.out.simple("QUEUED");
        return Ok(());
    }
    let is_held = !cx.out.is_resp3 && cx.session.is_subscribed() && !cx.session.is_inside;
    if is_held && command.flags & flag::WHILE_SUBSCRIBED == 0 {
        return Err(Fail::text(format!(
            "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
            command.name
        )));
    }
    call(cx, command, at, request)
}

/// Whether the user may run this (acl.1, acl.2).
fn check_rights(cx: &mut Cx<'_>, command: &'static Command, at: usize, request: &Request) -> Done {
    let generation = cx.server.acl.generation();
    if cx.session.users_generation != generation {
        cx.session.users_generation = generation;
        let user = cx.session.user.take().and_then(|user| cx.server.acl.user(&user.name));
        cx.session.become_user(user);
    }
    if !cx.session.is_known && command.flags & flag::NO_AUTH == 0 {
        return Err("NOAUTH Authentication required.".into());
    }
    let Some(user) = cx.session.user.as_ref().filter(|user| !user.is_unlimited) else { return Ok(()) };
    let Err(denied) = user.check(at, command, request) else { return Ok(()) };
    if let Some(multi) = &mut cx.session.multi {
        multi.has_failed = true;
    }
    cx.server.commands.stats[at].rejected.add(1);
    let name = user.name.clone();
    acl::note_refusal(cx, denied.reason, denied.object.clone(), name);
    Err(Fail::text(denied.message()))
}

/// The reply while a script takes long.
const BUSY: &str = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";

/// Whether a script takes so long that this is refused.
fn check_busy(cx: &mut Cx<'_>, command: &Command, request: &Request) -> Done {
    let is_busy = !cx.session.is_inside && cx.server.scripts.is_busy(cx.server.config.busy_ms());
    let is_for_all = command.flags & (flag::NO_AUTH | flag::ENDS_MULTI) != 0 && command.name != "exec"
        || matches!(command.name, "shutdown" | "unwatch")
        || command.name == "script" && request.is(1, "kill");
    if !is_busy || is_for_all {
        return Ok(());
    }
    if command.name == "exec" && cx.session.multi.is_some() {
        transactions::give_up(cx);
        return Err(Fail::text(format!("EXECABORT Transaction discarded because of: {BUSY}")));
    }
    if let Some(multi) = &mut cx.session.multi {
        multi.has_failed = true;
    }
    Err(BUSY.into())
}

/// Whether the user may run this, as far as is known: what a change of users means for it shows when it runs.
pub fn is_allowed(server: &Server, session: &Session, command: &Command, request: &Request) -> bool {
    let place = server.commands.entry(&request[0]).map(|(_, at)| *at);
    match (&session.user, place) {
        (Some(user), Some(at)) => command.fits(request) && user.check(at, command, request).is_ok(),
        _ => false,
    }
}

/// Runs a command, and keeps account of it.
fn call(cx: &mut Cx<'_>, command: &'static Command, at: usize, request: &Request) -> Done {
    let is_monitored =
        cx.server.clients.has_monitors() && command.flags & flag::ADMIN == 0 && !cx.session.is_again;
    // What EXEC runs comes before it.
    if is_monitored && command.name != "exec" {
        server::tell_monitors(cx, command, request);
    }
    let stats = &cx.server.commands.stats[at];
    let times = calls_measured(cx, command, stats.calls.get());
    let start = (times > 0).then(clock::moment);
    let part = parts::begin(cx, command);
    begin_memory(cx);
    let before = mark(cx, command);
    #[cfg(debug_assertions)]
    {
        cx.session.named = named(command, request);
    }
    let mut done = {
        let _span = trace::command(&cx.session.client, command.name);
        match help::is_asked(command, request) {
            true => help::help(cx, command, request),
            false => (command.run)(cx, request),
        }
    };
    if cx.out.take_cut() && done.is_ok() {
        done = Err(cx.out.too_large());
    }
    if let Some(before) = before.filter(|_| done.is_ok() && cx.session.is_inside) {
        done = cx.effects.check(before, cx.effects_max());
    }
    if let Some(part) = part {
        done = parts::end(cx, part, done);
    }
    #[cfg(debug_assertions)]
    if let (Some(named), Err(Fail::Blocks(wait))) = (cx.session.named.take(), &done) {
        assert!(wait.keys.iter().all(|key| named.contains(key)), "{} waits for other keys", command.name);
    }
    if let (Err(fail), Some(before)) = (&done, before) {
        undo(cx, command, fail, before);
    }
    if is_monitored && command.name == "exec" {
        server::tell_monitors(cx, command, request);
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
        cx.server
            .note_latency(if command.flags & flag::FAST != 0 { "fast-command" } else { "command" }, took);
        note_slow(cx, command, request, micros);
    }
    stats.calls.add(1);
    cx.server.stats.commands.add(1);
    cx.session.client.commands.add(1);
    if done.is_err() {
        stats.failed.add(1);
    }
    done
}

/// A command begins: its memory is counted from here (command_memory.1). That of its effects is counted for the whole script or transaction (effects.2).
fn begin_memory(cx: &mut Cx<'_>) {
    cx.effects.progress.begin();
    if !cx.session.is_inside {
        cx.effects.bytes_before = cx.effects.bytes;
        cx.out.bytes_max = cx.server.commands.memory.reply.load(Ordering::Relaxed);
    }
}

/// The keys that a command may use; none if it may use any.
#[cfg(debug_assertions)]
fn named(command: &Command, request: &Request) -> Option<Vec<Vec<u8>>> {
    let uses_others = matches!(command.keys, Keys::None)
        || command.group == table::Group::Scripting
        || command.name.starts_with("sort") && sort_reads_others(request);
    (!uses_others).then(|| command.keys_of(request).into_iter().map(<[u8]>::to_vec).collect())
}

/// Notes the moment before a command, to undo what it does if it fails. None if it runs other commands, which are undone one by one.
fn mark(cx: &mut Cx<'_>, command: &Command) -> Option<EffectsMark> {
    if command.name == "exec" || command.group == table::Group::Scripting {
        return None;
    }
    if let Access::Write(transaction) = cx.access {
        transaction.mark();
    }
    Some(cx.effects.mark())
}

/// Undoes what a failed command did (commands.2). One that waits keeps what it did: it has not failed.
fn undo(cx: &mut Cx<'_>, command: &Command, fail: &Fail, before: EffectsMark) {
    if matches!(fail, Fail::Blocks(_)) {
        return;
    }
    if let Access::Write(transaction) = cx.access {
        let undone = transaction.undo();
        cx.effects.must_not_commit |= undone.is_err();
    }
    cx.effects.undo(before);
    held::refuse_commit(cx, command);
}

/// So many calls of a fast command are measured by one of them.
const CALLS_A_MEASURE: u64 = 16;

/// How many calls the time of this one stands for; 0: it is not measured. Looking at the clock costs about as much as a fast command does.
fn calls_measured(cx: &Cx<'_>, command: &Command, calls: u64) -> u64 {
    let config = &cx.server.config;
    let is_measured = command.flags & flag::FAST == 0 || calls < CALLS_A_MEASURE;
    if is_measured || (0..1000).contains(&config.slow_micros()) || config.latency_ms() > 0 {
        return 1;
    }
    if calls.is_multiple_of(CALLS_A_MEASURE) { CALLS_A_MEASURE } else { 0 }
}

fn note_slow(cx: &Cx<'_>, command: &Command, request: &Request, micros: u64) {
    let limit = cx.server.config.slow_micros();
    if limit < 0 || micros < limit as u64 || command.name == "exec" {
        return;
    }
    let words = shown::short_words(command, request);
    let client = &cx.session.client;
    trace::warn("a command took long", Some(client), &format!("{}: {micros} us", command.name));
    let (address, name) = (client.address.clone(), client.name.lock().clone());
    let slow = SlowCommand { id: 0, at: cx.now / 1000, micros, words, address, name };
    cx.server.slow_log.add(slow, cx.server.config.number("slowlog-max-len").max(0) as usize);
}

fn unknown(request: &Request) -> String {
    if let Some(text) = not_built::why(&request[0]) {
        return text;
    }
    let shown = |word: &[u8]| String::from_utf8_lossy(&word[..word.len().min(128)]).into_owned();
    let words: String = request.from(1).take(20).map(|word| format!("'{}' ", shown(word))).collect();
    format!("ERR unknown command '{}', with args beginning with: {words}", shown(&request[0]))
}

/// The error for a word behind a command that is none of its subcommands, or has words behind it that make no sense.
pub(crate) fn unknown_subcommand(request: &Request) -> Fail {
    let (name, sub) = (&request[0], request.get(1).unwrap_or_default());
    let text = |word: &[u8]| String::from_utf8_lossy(&word[..word.len().min(128)]).into_owned();
    let (sub, name) = (text(sub), text(name).to_uppercase());
    Fail::text(format!("ERR unknown subcommand or wrong number of arguments for '{sub}'. Try {name} HELP."))
}

/// The reply to a client that has waited for a lock.
const LOCK_TIMEOUT: &str = "LOCKTIMEOUT a lock was not given back in time; those that were free are held";

/// Keeps account of a command that waits no more.
pub fn note_end_of_wait(server: &Server, session: &Session, request: &Request, woken: Woken) {
    let Some((_, at)) = server.commands.entry(&request[0]) else { return };
    let stats = &server.commands.stats[*at];
    for counter in [&stats.calls, &server.stats.commands, &session.client.commands] {
        counter.add(1);
    }
    if matches!(woken, Woken::Unblocked | Woken::Demoted) {
        stats.failed.add(1);
        server.stats.note_error(UNBLOCKED);
    }
}

/// Replies to a command whose time is over.
pub fn timed_out(request: &Request, out: &mut Out) {
    if request.is(0, "ob.lock") || request.is(0, "es.lock") {
        out.error(LOCK_TIMEOUT);
    } else {
        out.null_array();
    }
}

/// A connection has ended: nothing of it is left behind.
pub fn leave(server: &Server, session: &mut Session) {
    unwatch(server, session);
    pubsub::unsubscribe_all(server, session);
    server.holdings.leave(&mut session.own, session.client.id, &server.sequencer);
    session.client.listens.store(0, Ordering::Relaxed);
    session.rows = None;
}
