//! Undoes a command as a whole without affecting the other commands of its commit. This applies to scripts
//! that are ended, and to an `EXEC` that contains such a script.
//!
//! - Ending a script does not affect the writes or the replies of other commands.

use crate::command::flag;
use crate::command::spec::Group;
use crate::resp::Request;
use crate::resp::fail::{Done, ENDED_SCRIPT};
use crate::run::cx::{Access, Cx};
use crate::run::effects::EffectsMark;
use crate::run::registry::Command;

/// Returns whether a command sent by a client may run scripts.
pub(super) fn may_run_scripts(cx: &Cx<'_>, command: &Command) -> bool {
    let is_script = |request: &Request| {
        cx.server.commands.find(&request[0]).is_some_and(|command| command.group == Group::Scripting)
    };
    match command.is(flag::RUNS_QUEUE) {
        _ if cx.session.turn.is_inside => false,
        true => cx.session.multi.as_ref().is_some_and(|multi| multi.queue.iter().any(is_script)),
        false => command.group == Group::Scripting,
    }
}

/// Records the state before a command that may be ended.
pub fn begin(cx: &mut Cx<'_>, command: &Command) -> Option<(EffectsMark, usize)> {
    if !may_run_scripts(cx, command) {
        return None;
    }
    let Access::Write(transaction) = cx.access else { return None };
    Some((cx.effects.mark(), transaction.savepoint()))
}

/// Undoes everything since the recorded state if a script was ended.
pub fn end(cx: &mut Cx<'_>, (before, point): (EffectsMark, usize), done: Done) -> Done {
    let Access::Write(transaction) = cx.access else { return done };
    let has_ended = std::mem::take(&mut cx.effects.has_ended_script);
    let undone = if has_ended { transaction.rollback_to(point) } else { Ok(()) };
    transaction.release(point);
    if !has_ended {
        return done;
    }
    cx.effects.must_not_commit |= undone.is_err();
    cx.effects.undo(before);
    Err(ENDED_SCRIPT.into())
}
