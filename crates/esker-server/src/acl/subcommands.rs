//! Subcommands as rights know them: `config|get`.

use crate::commands::{Command, flag};
use crate::resp::Request;

/// Subcommands whose rights are not those of their command: the command, the words, their flags.
const OWN_FLAGS: &[(&str, &[&str], u32)] = &[
    ("acl", &["cat", "genpass", "help", "whoami"], 0),
    ("config", &["help"], 0),
    ("latency", &["help"], 0),
    ("memory", &["doctor", "help", "malloc-stats", "purge", "stats"], 0),
    ("module", &["help"], 0),
    ("slowlog", &["help"], 0),
    ("es.ks", &["drop"], flag::DANGEROUS),
    ("ob.ks", &["drop"], flag::DANGEROUS),
    ("client", &["kill", "list", "no-evict", "pause", "unblock", "unpause"], flag::ADMIN),
];

/// The subcommands that are in other categories than their command, and their flags.
pub fn with_own_flags(command: &Command) -> impl Iterator<Item = (&'static str, u32)> {
    let lines = OWN_FLAGS.iter().filter(|line| line.0 == command.name);
    lines.flat_map(|(_, words, flags)| words.iter().map(|word| (*word, *flags)))
}

/// The name of what a request asks for.
pub fn full_name(command: &Command, request: &Request) -> String {
    match command.asked_subcommand(request) {
        // In Redis the words behind DEBUG are no subcommands.
        Some(word) if command.name != "debug" => format!("{}|{word}", command.name),
        _ => command.name.to_owned(),
    }
}
