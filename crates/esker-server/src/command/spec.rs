//! The specification of a command: everything except the work that it does.

use std::fmt::Write;

use super::flag;
use super::keys::Keys;
use super::reach::{self, Reach, Reaches};
use super::uses::{KeyUse, Uses};
use crate::resp::Request;

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

/// What a command with [`flag::WAITS`] waits for.
#[derive(Clone, Copy)]
pub enum Awaits {
    /// Replicas that have all commits, or have them on their disks. Where their number and the time stand.
    Replicas { count_at: usize, ms_at: usize, is_durable: bool },
    /// A commit that readers here see.
    Position,
    /// Commits behind a position.
    Feed,
}

/// The user and the password that a request gives.
pub type Credentials = for<'r> fn(&'r Request) -> Option<(&'r [u8], &'r [u8])>;

/// What there is to know of a command.
pub struct Spec {
    /// Its name, in lower case.
    pub name: &'static str,
    /// Number of words, the name included; negative: the least number, without the sign.
    pub arity: i32,
    /// What it may do: see [`flag`].
    pub flags: u32,
    /// Where its keys are.
    pub keys: Keys,
    /// How it uses them.
    pub uses: Uses,
    /// What it touches beside them.
    pub reaches: Option<Reaches>,
    /// What it is about.
    pub group: Group,
    /// The categories that it is in by what it is about; none: that of its group.
    pub categories: Option<&'static [&'static str]>,
    /// The words behind its name, for people. Subcommands stand apart by ` | `: users' rights go by them.
    pub usage: &'static str,
    /// What it does, for people.
    pub summary: &'static str,
    /// Subcommands whose flags are not those of the command.
    pub own_flags: &'static [(&'static [&'static str], u32)],
    /// Where passwords stand among its words, and what it logs in with.
    pub secrets: Option<fn(&Request) -> Vec<usize>>,
    pub credentials: Option<Credentials>,
    /// What it waits for.
    pub awaits: Option<Awaits>,
    /// Whether its usage has subcommands.
    pub has_subcommands: bool,
}

impl std::fmt::Debug for Spec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// All of them, in the order of the table.
pub type Specs = &'static [&'static Spec];

impl Spec {
    /// Uses of keys that nothing else is said of follow from the flags. So does what commands of ordered maps
    /// and of rows touch, if they name no keys: a range.
    pub const fn new(
        (name, arity, flags): (&'static str, i32, u32),
        keys: Keys,
        group: Group,
        (usage, summary): (&'static str, &'static str),
    ) -> Self {
        let is_range = matches!(keys, Keys::None) && matches!(group, Group::Esker | Group::Rows);
        let (uses, reaches): (_, Reaches) = match flags & flag::WRITE {
            0 => (KeyUse::SHOW, reach::reads_all),
            _ => (KeyUse::UPDATE, reach::changes_all),
        };
        Spec {
            name,
            arity,
            flags,
            keys,
            uses: Uses::All(uses),
            reaches: if is_range && flags & (flag::READ | flag::WRITE) != 0 { Some(reaches) } else { None },
            group,
            categories: None,
            usage,
            summary,
            own_flags: &[],
            secrets: None,
            credentials: None,
            awaits: None,
            has_subcommands: super::subcommands::are_in(usage),
        }
    }

    /// Whether it has one of these flags.
    #[inline]
    pub fn is(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }

    /// Whether a request has as many words as this takes.
    pub fn fits(&self, request: &Request) -> bool {
        let len = request.len() as i32;
        if self.arity < 0 { len >= -self.arity } else { len == self.arity }
    }

    /// Whether it works in the transaction that its connection holds.
    pub fn takes_part(&self) -> bool {
        self.group == Group::Rows || self.is(flag::TAKES_PART)
    }

    /// Whether it runs once all before it is done: it works in a transaction that its connection holds, or
    /// begins one.
    pub fn is_alone(&self, has_transaction: bool) -> bool {
        let works_in_it = has_transaction && self.takes_part() && !self.is(flag::BLOCKING | flag::COMMITS);
        self.is(flag::BEGINS) || works_in_it
    }

    /// Whether it begins or ends subscriptions.
    pub fn changes_subscriptions(&self) -> bool {
        self.group == Group::PubSub && self.is(flag::WHILE_SUBSCRIBED)
    }

    /// Whether it runs other commands. Each of them is undone by itself if it fails.
    pub fn runs_others(&self) -> bool {
        self.group == Group::Scripting || self.is(flag::RUNS_QUEUE)
    }

    /// Whether it by itself may change data, or publish something.
    pub fn may_write(&self) -> bool {
        self.is(flag::WRITE | flag::PAUSED)
    }

    /// The reply to too many words, or too few.
    pub fn wrong_arity(&self) -> String {
        format!("ERR wrong number of arguments for '{}' command", self.name)
    }

    /// The keys of a request.
    pub fn keys_of<'r>(&self, request: &'r Request) -> Vec<&'r [u8]> {
        self.keys.of(request)
    }

    /// The keys of a request, and how it uses them.
    pub fn key_uses<'r>(&self, request: &'r Request) -> Vec<(&'r [u8], KeyUse)> {
        let keys = self.keys_of(request).into_iter().enumerate();
        keys.map(|(at, key)| (key, self.uses.of(request, at))).collect()
    }

    /// What a request touches beside its keys.
    pub fn reaches_of<'r>(&self, request: &'r Request) -> Vec<Reach<'r>> {
        self.reaches.map_or(Vec::new(), |reaches| reaches(request))
    }

    /// The user and the password that a request gives, if it gives any.
    pub fn credentials_of<'r>(&self, request: &'r Request) -> Option<(&'r [u8], &'r [u8])> {
        self.credentials.and_then(|find| find(request))
    }

    /// The words of a request, without passwords.
    pub fn shown_words<'r>(&self, request: &'r Request) -> Vec<&'r [u8]> {
        let mut words: Vec<&[u8]> = request.from(0).collect();
        for at in self.secrets.map_or(Vec::new(), |find| find(request)) {
            if let Some(word) = words.get_mut(at) {
                *word = super::secrets::REDACTED;
            }
        }
        words
    }

    /// The names of flags: its own, or those of a subcommand.
    pub fn flag_names(&self, flags: u32) -> Vec<&'static str> {
        let mut names: Vec<_> = flag::NAMES.iter().filter(|(bit, _)| flags & bit != 0).map(|n| n.1).collect();
        if self.is(flag::MOVABLE_KEYS) || self.keys.are_movable() {
            names.push("movablekeys");
        }
        names
    }

    /// The categories that it is in with these flags: a subcommand may have others than the command.
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
        let of_group = || self.group.category().into_iter().collect();
        let mut names: Vec<&str> = self.categories.map_or_else(of_group, <[&str]>::to_vec);
        for (bit, name) in of_flags {
            // The commands of a script say what it reads and writes.
            let is_script = self.group == Group::Scripting && bit & (flag::WRITE | flag::READ) != 0;
            if flags & bit != 0 && !is_script && !names.contains(&name) {
                names.push(name);
            }
        }
        names.push(if flags & flag::FAST != 0 { "fast" } else { "slow" });
        names.into_iter().map(|name| format!("@{name}")).collect()
    }
}

/// docs/commands.md, which a test compares with this.
pub fn document(specs: Specs) -> String {
    let mut all = specs.to_vec();
    all.sort_by_key(|spec| (spec.group, spec.name));
    let mut text = String::from(
        "# Commands\n\nWhat `esker serve` understands. This page is made from the server's table of commands; a test keeps it current.\n\
         How they differ from Redis: [server.md](server.md).\n",
    );
    let mut group = None;
    for spec in all {
        if group != Some(spec.group) {
            group = Some(spec.group);
            let _ = write!(text, "\n## {}\n\n| command | does |\n|---|---|\n", spec.group.name());
        }
        let usage = [spec.name.to_uppercase().as_str(), spec.usage].join(" ");
        let usage = usage.trim_end().replace('|', "\\|");
        let _ = writeln!(text, "| `{usage}` | {} |", spec.summary);
    }
    text
}
