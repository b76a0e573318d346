//! `HELP` of the commands that have subcommands, made from the table.

use super::table::Command;
use crate::base::fail::{Done, Fail};
use crate::resp::Request;
use crate::run::cx::Cx;

/// The subcommand that all of them have.
pub(super) const HELP: &str = "help";

/// Whether a request asks for help.
pub(super) fn is_asked(command: &Command, request: &Request) -> bool {
    request.is(1, HELP) && command.asked_subcommand(request).is_some()
}

/// Says which subcommands there are.
pub(super) fn help(cx: &mut Cx<'_>, command: &Command, request: &Request) -> Done {
    if request.len() > 2 {
        return Err(Fail::text(format!(
            "ERR wrong number of arguments for '{}|{HELP}' command",
            command.name
        )));
    }
    let title =
        format!("{} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:", command.name.to_uppercase());
    let ways = command.usage.trim_matches(['[', ']']).split(" | ");
    let lines: Vec<String> = [title].into_iter().chain(ways.map(str::to_owned)).collect();
    cx.out.array(lines.len());
    lines.iter().for_each(|line| cx.out.simple(line));
    Ok(())
}
