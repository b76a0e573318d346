//! The table of commands: what drives dispatch, `COMMAND` and docs/commands.md.

use std::fmt::Write;

use super::{
    acl, bits, connection, dump, expiry, geo, hashes, hyper_log_logs, inside, keys, latency, list_pops,
    lists, operations, options, ordered, pubsub, replication, rows, scan, scripts, server, sets, slots, sort,
    sorted_sets, stream_groups, stream_info, streams, strings, transactions,
};
use crate::acl::subcommands;
use crate::base::fail::Done;
use crate::base::numbers::parse_int;
use crate::resp::Request;
use crate::run::cx::Cx;

/// What a command may do, and where it runs.
pub mod flag {
    /// It changes data.
    pub const WRITE: u32 = 1;
    /// It reads data.
    pub const READ: u32 = 1 << 1;
    /// It takes about the same time whatever is stored.
    pub const FAST: u32 = 1 << 2;
    /// For operators.
    pub const ADMIN: u32 = 1 << 3;
    /// About channels.
    pub const PUBSUB: u32 = 1 << 4;
    /// Not from scripts.
    pub const NO_SCRIPT: u32 = 1 << 5;
    /// It may wait.
    pub const BLOCKING: u32 = 1 << 6;
    /// Also for those who have not said who they are.
    pub const NO_AUTH: u32 = 1 << 7;
    /// Not between `MULTI` and `EXEC`.
    pub const NO_MULTI: u32 = 1 << 8;
    /// Runs although `MULTI` was said.
    pub const ENDS_MULTI: u32 = 1 << 9;
    /// It needs memory.
    pub const DENY_OOM: u32 = 1 << 10;
    /// It runs in the sequencer, although it may write nothing.
    pub const SEQUENCED: u32 = 1 << 11;
    /// It reads nothing but the main record of one key, its first word.
    pub const ONE: u32 = 1 << 12;
    /// Also for clients of version 2 that are subscribed to something.
    pub const WHILE_SUBSCRIBED: u32 = 1 << 13;
    /// It waits for other servers, unless inside of `MULTI`.
    pub const WAITS: u32 = 1 << 15;
    /// It may do harm.
    pub const DANGEROUS: u32 = 1 << 14;
    /// It takes part in the transaction that its connection holds, as all commands of rows do.
    pub const TAKES_PART: u32 = 1 << 16;
}

/// What a command is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    Connection,
    Generic,
    String,
    Bitmap,
    HyperLogLog,
    List,
    Set,
    SortedSet,
    Geo,
    Hash,
    Stream,
    PubSub,
    Transactions,
    Scripting,
    Server,
    Esker,
    Rows,
}

impl Group {
    /// The name that `COMMAND DOCS` has for it.
    pub fn name(self) -> &'static str {
        match self {
            Group::Connection => "connection",
            Group::Generic => "generic",
            Group::String => "string",
            Group::Bitmap => "bitmap",
            Group::HyperLogLog => "hyperloglog",
            Group::List => "list",
            Group::Set => "set",
            Group::SortedSet => "sorted-set",
            Group::Geo => "geo",
            Group::Hash => "hash",
            Group::Stream => "stream",
            Group::PubSub => "pubsub",
            Group::Transactions => "transactions",
            Group::Scripting => "scripting",
            Group::Server => "server",
            Group::Esker => "esker",
            Group::Rows => "rows",
        }
    }

    /// The category that users' rights go by, if it is one.
    fn category(self) -> Option<&'static str> {
        match self {
            Group::Generic => Some("keyspace"),
            Group::SortedSet => Some("sortedset"),
            Group::Transactions => Some("transaction"),
            Group::Server => None,
            other => Some(other.name()),
        }
    }
}

/// Where the keys are among the words of a command.
#[derive(Clone, Copy, Debug)]
pub enum Keys {
    /// It has none.
    None,
    /// From the first to the last, in steps. A negative last counts from the end.
    At(i32, i32, i32),
    /// Their number stands there, and they follow. There is one more before, unless this is 0.
    Numbered(usize, usize),
    /// Behind the word `STREAMS`, the first half of what follows. Options stand before it, and their values may be any words.
    Streams,
    /// The first word, and the one behind the last `STORE`.
    Stored,
}

/// What a command does.
pub type Run = fn(&mut Cx<'_>, &Request) -> Done;

/// A command.
pub struct Command {
    /// Its name, in lower case.
    pub name: &'static str,
    /// Number of words, the name included; negative: the least number, without the sign.
    pub arity: i32,
    /// What it may do: see [`flag`].
    pub flags: u32,
    /// Where its keys are.
    pub keys: Keys,
    /// What it is about.
    pub group: Group,
    /// The words behind its name, for people. Subcommands stand apart by ` | `: users' rights go by them.
    pub usage: &'static str,
    /// Whether its usage has subcommands.
    pub has_subcommands: bool,
    /// What it does, for people.
    pub summary: &'static str,
    /// What it does.
    pub run: Run,
}

impl Command {
    /// Whether a request has as many words as this takes.
    pub fn fits(&self, request: &Request) -> bool {
        let len = request.len() as i32;
        if self.arity < 0 { len >= -self.arity } else { len == self.arity }
    }

    /// Whether it runs once all before it is done: it works in a transaction that its connection holds, or begins one.
    pub fn is_alone(&self, has_transaction: bool) -> bool {
        let takes_part = self.group == Group::Rows || self.flags & flag::TAKES_PART != 0;
        match self.name {
            "es.begin" | "ob.begin" => true,
            "es.commit" | "ob.commit" => false,
            _ => has_transaction && takes_part && self.flags & flag::BLOCKING == 0,
        }
    }

    /// Whether it begins or ends subscriptions.
    pub fn changes_subscriptions(&self) -> bool {
        self.group == Group::PubSub && self.flags & flag::WHILE_SUBSCRIBED != 0
    }

    /// What a client is told that has sent too many words, or too few.
    pub fn wrong_arity(&self) -> String {
        format!("ERR wrong number of arguments for '{}' command", self.name)
    }

    /// The keys of a request.
    pub fn keys_of<'r>(&self, request: &'r Request) -> Vec<&'r [u8]> {
        match self.keys {
            Keys::None => Vec::new(),
            Keys::At(first, last, step) => {
                let len = request.len() as i32;
                let last = if last < 0 { len + last } else { last };
                (first..=last).step_by(step as usize).filter_map(|at| request.get(at as usize)).collect()
            }
            Keys::Numbered(at, other) => {
                let count = request.get(at).and_then(parse_int).and_then(|n| usize::try_from(n).ok());
                let other = (other > 0).then(|| request.get(other)).flatten();
                other.into_iter().chain(request.from(at + 1).take(count.unwrap_or(0))).collect()
            }
            Keys::Streams => {
                let Some(at) = options::streams_at(request) else { return Vec::new() };
                let count = request.len() - at - 1;
                request.from(at + 1).take(if count.is_multiple_of(2) { count / 2 } else { 0 }).collect()
            }
            Keys::Stored => {
                let to = options::stored_to(self.name, request).and_then(|at| request.get(at));
                request.get(1).into_iter().chain(to).collect()
            }
        }
    }

    /// First, last and step, as `COMMAND INFO` has them.
    pub fn positions(&self) -> [i64; 3] {
        match self.keys {
            Keys::At(first, last, step) => [first.into(), last.into(), step.into()],
            Keys::Stored => [1, 1, 1],
            Keys::Numbered(_, other) if other > 0 => [other as i64, other as i64, 1],
            _ => [0, 0, 0],
        }
    }

    /// The flags of a subcommand.
    pub fn subcommand_flags(&self, sub: &str) -> u32 {
        let own = subcommands::with_own_flags(self).find(|(word, _)| *word == sub);
        own.map_or(self.flags, |(_, flags)| flags)
    }

    /// The names of flags: its own, or those of a subcommand.
    pub fn flag_names(&self, flags: u32) -> Vec<&'static str> {
        let names = [
            (flag::WRITE, "write"),
            (flag::READ, "readonly"),
            (flag::DENY_OOM, "denyoom"),
            (flag::ADMIN, "admin"),
            (flag::PUBSUB, "pubsub"),
            (flag::NO_SCRIPT, "noscript"),
            (flag::BLOCKING | flag::WAITS, "blocking"),
            (flag::FAST, "fast"),
            (flag::NO_AUTH, "no_auth"),
            (flag::NO_MULTI, "no_multi"),
        ];
        let mut names: Vec<_> = names.iter().filter(|(bit, _)| flags & bit != 0).map(|n| n.1).collect();
        // Where the keys are, other words tell.
        if self.name == "sort_ro" || matches!(self.keys, Keys::Numbered(..) | Keys::Streams | Keys::Stored) {
            names.push("movablekeys");
        }
        names
    }

    /// The categories it is in.
    pub fn categories(&self) -> Vec<String> {
        self.categories_with(self.flags)
    }

    /// The categories that it would be in with these flags: a subcommand may have others.
    pub fn categories_with(&self, flags: u32) -> Vec<String> {
        let of_flags = [
            (flag::WRITE, "write"),
            (flag::READ, "read"),
            (flag::ADMIN, "admin"),
            (flag::ADMIN, "dangerous"),
            (flag::DANGEROUS, "dangerous"),
            (flag::PUBSUB, "pubsub"),
            (flag::BLOCKING, "blocking"),
        ];
        let category = match self.name {
            "command" | "wait" => Some("connection"),
            "sort" | "sort_ro" => None,
            _ => self.group.category(),
        };
        let mut names: Vec<&str> = category.into_iter().collect();
        if self.name == "xread" {
            names.push("read");
        }
        if self.name.starts_with("sort") && self.group == Group::Generic {
            names.extend(["set", "sortedset", "list"]);
        }
        let is_of_keys = self.group == Group::Server && !matches!(self.name, "lolwut" | "memory");
        if is_of_keys && flags & (flag::WRITE | flag::READ) != 0 {
            names.push("keyspace");
        }
        for (bit, name) in of_flags {
            // What a script reads and writes, its commands say.
            let is_script = self.group == Group::Scripting && bit & (flag::WRITE | flag::READ) != 0;
            if flags & bit != 0 && !is_script && !names.contains(&name) {
                names.push(name);
            }
        }
        names.push(if flags & flag::FAST != 0 { "fast" } else { "slow" });
        names.into_iter().map(|name| format!("@{name}")).collect()
    }
}

/// A line of the table.
#[expect(clippy::too_many_arguments, reason = "a line of the table")]
pub(super) const fn command(
    name: &'static str,
    arity: i32,
    flags: u32,
    keys: Keys,
    group: Group,
    usage: &'static str,
    summary: &'static str,
    run: Run,
) -> Command {
    let has_subcommands = super::subcommands::are_in(usage);
    Command { name, arity, flags, keys, group, usage, has_subcommands, summary, run }
}

/// No keys.
pub(super) const NO_KEYS: Keys = Keys::None;
/// The first word.
pub(super) const FIRST: Keys = Keys::At(1, 1, 1);
/// The first two words.
pub(super) const FIRST_TWO: Keys = Keys::At(1, 2, 1);
/// The first word, and where the command stores to.
pub(super) const STORED: Keys = Keys::Stored;
/// All words.
pub(super) const ALL: Keys = Keys::At(1, -1, 1);

static TABLES: &[&[Command]] = &[
    connection::TABLE,
    keys::TABLE,
    expiry::TABLE,
    scan::TABLE,
    sort::TABLE,
    dump::TABLE,
    strings::TABLE,
    bits::TABLE,
    hyper_log_logs::TABLE,
    hashes::TABLE,
    sets::TABLE,
    sorted_sets::TABLE,
    sorted_sets::RANGES,
    sorted_sets::COMBINE,
    sorted_sets::POPS,
    geo::TABLE,
    lists::TABLE,
    list_pops::TABLE,
    streams::TABLE,
    stream_groups::TABLE,
    stream_info::TABLE,
    pubsub::TABLE,
    transactions::TABLE,
    scripts::TABLE,
    server::TABLE,
    replication::TABLE,
    slots::TABLE,
    inside::TABLE,
    acl::TABLE,
    latency::TABLE,
    ordered::TABLE,
    ordered::FEED,
    ordered::MESSAGES,
    ordered::SPACES,
    ordered::TRANSACTIONS,
    rows::TABLE,
    rows::SLICES,
    rows::TRANSACTIONS,
    operations::TABLE,
];

/// The categories that users' rights go by.
pub const CATEGORIES: &[&str] = &[
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
    "esker",
    "rows",
];

/// All commands.
pub fn commands() -> impl Iterator<Item = &'static Command> {
    TABLES.iter().copied().flatten()
}

/// The command of a request.
#[cfg(test)]
pub(super) fn command_of(request: &Request) -> &'static Command {
    commands().find(|command| request.is(0, command.name)).unwrap()
}

/// docs/commands.md, which a test compares with this.
pub fn commands_document() -> String {
    let mut all: Vec<_> = commands().collect();
    all.sort_by_key(|command| (command.group, command.name));
    let mut text = String::from(
        "# Commands\n\nWhat `esker serve` understands. This page is made from the server's table of commands; a test keeps it current.\n\
         How they differ from Redis: [server.md](server.md).\n",
    );
    let mut group = None;
    for command in all {
        if group != Some(command.group) {
            group = Some(command.group);
            let _ = write!(text, "\n## {}\n\n| command | does |\n|---|---|\n", command.group.name());
        }
        let usage = [command.name.to_uppercase().as_str(), command.usage].join(" ");
        let usage = usage.trim_end().replace('|', "\\|");
        let _ = writeln!(text, "| `{usage}` | {} |", command.summary);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a document of the repository, no file of a database")]
    fn the_document_is_that_of_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands.md");
        let made = commands_document();
        if std::env::var_os("ESKER_WRITE_DOCS").is_some() {
            std::fs::write(path, &made).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            written == made,
            "write docs/commands.md anew: ESKER_WRITE_DOCS=1 cargo test -p esker-server the_document"
        );
    }

    #[test]
    fn names_are_unique_and_lines_make_sense() {
        let mut names = HashSet::new();
        for command in commands() {
            assert!(names.insert(command.name), "{} twice", command.name);
            assert_eq!(command.name, command.name.to_lowercase());
            assert!(command.arity != 0 && command.summary.ends_with('.'), "{}", command.name);
            let is_both = flag::WRITE | flag::READ;
            assert!(command.flags & is_both != is_both, "{} reads or writes", command.name);
        }
    }

    #[test]
    fn keys_are_found_where_the_table_says() {
        let find = |text: &str| {
            let request = Request::of(text.split(' '));
            let keys = command_of(&request).keys_of(&request).into_iter();
            keys.map(|key| String::from_utf8_lossy(key).into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(find("mset a 1 b 2"), "a b");
        assert_eq!(find("get a"), "a");
        assert_eq!(find("del a b c"), "a b c");
        assert_eq!(find("ping"), "");
        // The values of options are no keys, whatever they are called.
        assert_eq!(find("xreadgroup group streams c streams a >"), "a");
        assert_eq!(find("xreadgroup group g streams count 1 noack streams a b > >"), "a b");
        assert_eq!(find("xreadgroup group g c streams a b >"), "");
        assert_eq!(find("xread block 5 count 1 streams streams 0"), "streams");
        assert_eq!(find("xread x streams a 0"), "");
        assert_eq!(find("sort a by store get store limit 0 store"), "a");
        assert_eq!(find("sort a store b by store store c"), "a c");
        assert_eq!(find("sort a store b get store"), "a b");
        assert_eq!(find("georadius a 0 0 1 m count store store b"), "a b");
        assert_eq!(find("georadiusbymember a store 1 m storedist b"), "a b");
        assert_eq!(find("georadius a 0 0 1 m store b storedist c"), "a c");
    }
}
