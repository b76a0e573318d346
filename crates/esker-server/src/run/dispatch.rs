//! Decides whether a request may run, and runs it.
//!
//! ```text
//!   request --> find --> arity, password, rights, MULTI --> call --> reply
//! ```
//!
//! - A command that fails has written nothing to its reply before its error.
//!
//! commands.2. A command that fails has changed nothing: its writes and effects are undone. A script and
//!     `EXEC` keep the changes of the commands that succeeded.
//!
//! - If a command that may write fails in a held transaction, the transaction cannot commit until
//!   it is rolled back to a point before that command.

use std::sync::atomic::Ordering;

use crate::acl::{Reason, Refusal};
use crate::command::spec::Group;
use crate::command::{flag, not_built};
use crate::observe::trace;
use crate::resp::fail::{BROKEN, Done, Fail, NO_REPLICAS, READ_ONLY};
use crate::resp::{Mark, Out, Request};
use crate::run::calls::{call, refuse_commit};
use crate::run::cx::{Access, Cx};
#[cfg(feature = "lua")]
use crate::run::functions;
use crate::run::leave::unwatch;
use crate::run::registry::Command;
use crate::run::scripts::names_exchange;
use crate::run::server::Server;
use crate::run::session::{ReplyMode, Session};

/// Runs a request, or queues it for `EXEC`. Errors are in the reply when this returns.
///
/// # Errors
/// Returns why the request failed, or that it has to wait.
pub fn run(cx: &mut Cx<'_>, request: &Request) -> Done {
    if cx.session.generation != cx.server.generation() {
        cx.session.generation = cx.server.generation();
        cx.session.data = cx.server.database(cx.session.db)?;
    }
    let mark = cx.out.mark();
    let before = writes_before(cx);
    let done = admit(cx, request);
    forget_caching(cx, request, &done);
    if let Err(fail) = &done {
        if matches!(fail, Fail::Blocks(_)) {
            return done;
        }
        cx.out.truncate(mark);
        cx.out.error(&fail.message());
        cx.server.observed.stats.note_error(&fail.message());
    }
    // The replies to subscribing are messages, which a reply mode does not suppress.
    let command = || cx.server.commands.find(&request[0]);
    if cx.session.reply != ReplyMode::On && !command().is_some_and(|command| command.changes_subscriptions())
    {
        suppress(cx.session, cx.out, mark);
    }
    if let Some(before) = before {
        note_write(cx, before, mark);
    }
    done
}

/// Removes the reply since `mark` if the reply mode of the connection wants none (`CLIENT REPLY`).
pub fn suppress(session: &mut Session, out: &mut Out, mark: Mark) {
    session.reply = match session.reply {
        ReplyMode::On => return,
        ReplyMode::SkipNext => ReplyMode::Skip,
        ReplyMode::Skip => ReplyMode::On,
        ReplyMode::Off => ReplyMode::Off,
    };
    out.truncate(mark);
}

/// Returns the writes before a command if replies to writes wait for replicas.
#[inline]
fn writes_before(cx: &mut Cx<'_>) -> Option<u64> {
    if cx.session.turn.is_inside || cx.server.config.safety.quorum() == 0 {
        return None;
    }
    cx.session.turn.has_written = false;
    Some(writes(cx))
}

fn writes(cx: &Cx<'_>) -> u64 {
    match &*cx.access {
        Access::Write(transaction) => transaction.writes(),
        _ => 0,
    }
}

/// Marks the reply to a command that has written: it waits for replicas.
fn note_write(cx: &mut Cx<'_>, before: u64, mark: Mark) {
    let has_written = writes(cx) != before || cx.session.turn.has_written;
    if has_written && !cx.out.since(mark).is_empty() {
        let end = cx.out.bytes.len();
        cx.out.unconfirmed.add(end - cx.out.since(mark).len()..end);
    }
}

/// `CLIENT CACHING` holds for one command, or for the commands of one `EXEC`.
fn forget_caching(cx: &Cx<'_>, request: &Request, done: &Done) {
    let mode = &cx.session.client.tracking;
    if mode.has_caching()
        && !cx.session.turn.is_inside
        && cx.session.multi.is_none()
        && !matches!(done, Err(Fail::Blocks(_)))
        && !request.is(0, "client")
    {
        mode.set_caching(false);
    }
}

/// Runs a request as [`run`] does. Returns `None` if the command panicked, which is a bug of the server: its
/// client gets an error, and other clients are not affected.
pub fn run_caught(cx: &mut Cx<'_>, request: &Request) -> Option<Done> {
    let mark = cx.out.mark();
    // The state that a panic leaves half done is discarded: the caller does not commit it.
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(cx, request)));
    if ran.is_err() {
        cx.out.truncate(mark);
        cx.out.error(BROKEN);
        cx.session.turn.is_inside = false;
        #[cfg(debug_assertions)]
        {
            cx.session.turn.named = None;
        }
    }
    ran.ok()
}

/// Checks a request and whether its connection may run it, then runs it.
fn admit(cx: &mut Cx<'_>, request: &Request) -> Done {
    let found = cx.server.commands.entry_of(request);
    let wrong = found.and_then(|(command, _)| match command.fits(request) {
        true => command.wrong_subcommand(request),
        false => Some(command.wrong_arity()),
    });
    let (command, at) = match (found, wrong) {
        (Some(found), None) => found,
        (found, wrong) => {
            let text = wrong.unwrap_or_else(|| unknown(request));
            if let Some((command, at)) = found {
                cx.server.commands.stats_at(at).rejected.add(1);
                if command.is(flag::RUNS_QUEUE) {
                    return Err(abort_exec(cx, text.trim_start_matches("ERR ")));
                }
                refuse_commit(cx, command);
            }
            fail_multi(cx);
            return Err(Fail::text(text));
        }
    };
    check_rights(cx, command, at, request).inspect_err(|_| refuse_commit(cx, command))?;
    check_busy(cx, command, request)?;
    // Each command of a script is checked on its own.
    let is_write = command.is(flag::WRITE) && !command.runs_others();
    if is_write && cx.server.replication.is_replica() {
        fail_multi(cx);
        return Err(READ_ONLY.into());
    }
    check_replicas(cx, command, is_write)?;
    if !cx.session.turn.is_inside {
        *cx.session.client.command.lock() = (command.name, command.asked_subcommand(request));
    }
    if cx.session.multi.is_some() && !command.is(flag::ENDS_MULTI) {
        return enqueue(cx, command, request);
    }
    let is_held = !cx.out.is_resp3 && cx.session.is_subscribed() && !cx.session.turn.is_inside;
    if is_held && !command.is(flag::WHILE_SUBSCRIBED) {
        return Err(Fail::text(format!(
            "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
            command.name
        )));
    }
    call(cx, command, at, request)
}

/// Checks whether the user may run the command (acl.1).
fn check_rights(cx: &mut Cx<'_>, command: &'static Command, at: usize, request: &Request) -> Done {
    let generation = cx.server.acl.generation();
    if cx.session.login.users_generation != generation {
        cx.session.login.users_generation = generation;
        let user = cx.session.login.user.take().and_then(|user| cx.server.acl.user(&user.name));
        cx.session.become_user(user);
    }
    if !cx.session.login.is_known && !command.is(flag::NO_AUTH) {
        return Err("NOAUTH Authentication required.".into());
    }
    let Some(user) = cx.session.login.user.as_ref().filter(|user| !user.is_unlimited) else { return Ok(()) };
    let Err(denied) = user.check(at, command, request) else { return Ok(()) };
    let name = user.name.clone();
    fail_multi(cx);
    cx.server.commands.stats_at(at).rejected.add(1);
    note_refusal(cx, denied.reason, denied.object.clone(), name);
    Err(Fail::text(denied.message()))
}

/// Fails if the command is to write and too few replicas are connected. What `EXEC` runs was checked with it.
fn check_replicas(cx: &mut Cx<'_>, command: &Command, is_write: bool) -> Done {
    let is_in_exec = cx.session.turn.is_inside && !cx.server.scripts.is_running.load(Ordering::Relaxed);
    let is_exec = command.is(flag::RUNS_QUEUE) && cx.session.queues_writes();
    let is_commit = command.is(flag::COMMITS) && cx.session.own.has_written();
    if is_in_exec || !(is_write || is_exec || is_commit) {
        return Ok(());
    }
    let Err(fail) = cx.server.check_replicas() else { return Ok(()) };
    if is_exec {
        return Err(abort_exec(cx, NO_REPLICAS));
    }
    fail_multi(cx);
    refuse_commit(cx, command);
    Err(fail)
}

/// The reply to other commands while a script runs for too long.
const BUSY: &str = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";

/// Fails if a script has run for too long and the command may not run beside it.
fn check_busy(cx: &mut Cx<'_>, command: &Command, request: &Request) -> Done {
    let is_busy = !cx.session.turn.is_inside && cx.server.scripts.is_busy(cx.server.config.busy_ms());
    if !is_busy || command.flags_of(request) & flag::WHILE_BUSY != 0 {
        return Ok(());
    }
    if command.is(flag::RUNS_QUEUE) && cx.session.multi.is_some() {
        return Err(abort_exec(cx, BUSY));
    }
    fail_multi(cx);
    Err(BUSY.into())
}

/// Queues a command for `EXEC`.
fn enqueue(cx: &mut Cx<'_>, command: &Command, request: &Request) -> Done {
    let Some(multi) = &mut cx.session.multi else { return Ok(()) };
    if command.is(flag::BEFORE_MULTI) {
        let name = command.name.to_uppercase();
        return Err(Fail::text(format!("ERR {name} inside MULTI is not allowed")));
    }
    if command.is(flag::NO_MULTI) {
        multi.has_failed = true;
        return Err("ERR Command not allowed inside a transaction".into());
    }
    // A transaction that has failed never runs, so its commands are not kept.
    if !multi.has_failed {
        multi.queue.push(request.clone());
        multi.bytes += request.bytes() + size_of::<Request>();
        multi.may_write |= command.may_write();
        multi.is_first_of_commit |= must_be_first(cx.server, cx.access, command, request);
        cx.session.client.counts.queued.fetch_add(1, Ordering::Relaxed);
    }
    cx.out.simple("QUEUED");
    Ok(())
}

/// Marks the queued transaction as failed after one of its commands was refused.
fn fail_multi(cx: &mut Cx<'_>) {
    if let Some(multi) = &mut cx.session.multi {
        multi.has_failed = true;
    }
}

/// Discards the queued commands and the watched keys after `EXEC` was refused.
fn abort_exec(cx: &mut Cx<'_>, why: &str) -> Fail {
    cx.session.take_multi();
    unwatch(cx.server, cx.session);
    Fail::text(format!("EXECABORT Transaction discarded because of: {why}"))
}

/// Returns whether a command must be the first of its commit, or is a script or a function whose source names
/// such a command. The writes of other connections then do not come before those of the script.
#[cfg_attr(not(feature = "lua"), expect(unused_variables, reason = "only functions read the access"))]
fn must_be_first(server: &Server, access: &Access, command: &Command, request: &Request) -> bool {
    let word = request.get(1).unwrap_or_default();
    match (command.group, command.name) {
        (Group::Scripting, "evalsha" | "evalsha_ro") => {
            server.scripts.names_exchange(&String::from_utf8_lossy(word).to_lowercase())
        }
        #[cfg(feature = "lua")]
        (Group::Scripting, "fcall") => calls_exchange(server, access, word),
        (Group::Scripting, _) => names_exchange(word),
        _ => command.is(flag::FIRST_OF_COMMIT),
    }
}

/// Returns whether `FCALL` of this function must be the first of its commit.
#[cfg(feature = "lua")]
fn calls_exchange(server: &Server, access: &Access, function: &[u8]) -> bool {
    // An error is ignored: the call itself gets it again.
    let generation = functions::generation(&*server.store, access.reads());
    generation.is_ok_and(|(generation, _)| server.scripts.function_names_exchange(&generation, function))
}

/// Returns whether a command must be the first of its commit, or is an `EXEC` that runs such a command.
pub fn is_first_of_commit(server: &Server, access: &Access, session: &Session, request: &Request) -> bool {
    match &session.multi {
        None => {
            let found = server.commands.entry_of(request);
            found.is_some_and(|(command, _)| must_be_first(server, access, command, request))
        }
        Some(multi) => multi.is_first_of_commit && server.commands.has_flag(request, flag::RUNS_QUEUE),
    }
}

/// Returns whether the user may run the command, as far as known before it runs. A change of users takes
/// effect when it runs.
pub fn is_allowed(server: &Server, session: &Session, command: &Command, request: &Request) -> bool {
    match (&session.login.user, server.commands.entry(&request[0])) {
        (Some(user), Some((_, at))) => command.fits(request) && user.check(at, command, request).is_ok(),
        _ => false,
    }
}

fn unknown(request: &Request) -> String {
    if let Some(text) = not_built::why(&request[0]) {
        return text;
    }
    let shown = |word: &[u8]| String::from_utf8_lossy(&word[..word.len().min(128)]).into_owned();
    let words: String = request.from(1).take(20).map(|word| format!("'{}' ", shown(word))).collect();
    format!("ERR unknown command '{}', with args beginning with: {words}", shown(&request[0]))
}

/// Returns the error for an unknown subcommand, or for a subcommand with wrong arguments.
pub fn unknown_subcommand(request: &Request) -> Fail {
    let (name, sub) = (&request[0], request.get(1).unwrap_or_default());
    let text = |word: &[u8]| String::from_utf8_lossy(&word[..word.len().min(128)]).into_owned();
    let (sub, name) = (text(sub), text(name).to_uppercase());
    Fail::text(format!("ERR unknown subcommand or wrong number of arguments for '{sub}'. Try {name} HELP."))
}

/// Logs that a connection was refused a command.
pub fn note_refusal(cx: &Cx<'_>, reason: Reason, object: Vec<u8>, user: String) {
    let is_script = cx.server.scripts.is_running.load(Ordering::Relaxed);
    let context = match (cx.session.turn.is_inside, &cx.session.multi) {
        (true, _) if is_script => "lua",
        (false, None) => "toplevel",
        _ => "multi",
    };
    let client = cx.session.client.describe(cx.now);
    let shown = String::from_utf8_lossy(&object);
    trace::warn("refused", Some(&cx.session.client), &format!("{user}: {} {shown}", reason.name()));
    let refusal = Refusal { count: 1, reason, context, object, user, at: cx.now, client };
    cx.server.acl.log.add(refusal, cx.server.config.refusals_max());
}
