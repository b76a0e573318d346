//! Subcommands as rights know them: `config|get`.

use crate::commands::{Command, flag};
use crate::resp::Request;

/// Subcommands whose rights are not those of their command: the command, the words, their flags.
const OWN_FLAGS: &[(&str, &[&str], u32)] = &[
    ("acl", &["cat", "genpass", "help", "whoami"], 0),
    ("client", &["kill", "list", "no-evict", "pause", "unblock", "unpause"], flag::ADMIN),
];

/// The subcommands that the usage of a command names: alternatives stand apart by ` | `.
pub fn of(command: &Command) -> impl Iterator<Item = &'static str> {
    let usage = command.usage.trim_matches(['[', ']']);
    let alternatives = usage.contains(" | ").then(|| usage.split(" | "));
    alternatives.into_iter().flatten().filter_map(|alternative| alternative.split(' ').next())
}

/// The subcommands that are in other categories than their command, and their flags.
pub fn with_own_flags(command: &Command) -> impl Iterator<Item = (&'static str, u32)> {
    let lines = OWN_FLAGS.iter().filter(|line| line.0 == command.name);
    lines.flat_map(|(_, words, flags)| words.iter().map(|word| (*word, *flags)))
}

/// The subcommand of a request, if its command has any.
pub fn asked(command: &Command, request: &Request) -> Option<&'static str> {
    of(command).find(|word| request.is(1, word))
}

/// The name of what a request asks for.
pub fn full_name(command: &Command, request: &Request) -> String {
    match asked(command, request) {
        Some(word) => format!("{}|{word}", command.name),
        None => command.name.to_owned(),
    }
}
