//! The specification of a command: everything except its implementation.

use std::fmt::Write;

use super::flag;
use super::keys::Keys;
use super::reach::{self, Reach, Reaches};
use super::uses::{KeyUse, Uses};
use crate::resp::Request;

/// The group of a command: its subject.
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
    /// The name in `COMMAND DOCS`.
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

    /// The category of users' rights that equals the group, if there is one.
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

/// Categories of users' rights.
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
    /// Replicas that have all commits, or have them on disk. The fields say where their number and the time
    /// are.
    Replicas { count_at: usize, ms_at: usize, is_durable: bool },
    /// A commit that becomes visible to readers here.
    Position,
    /// Commits after a position.
    Feed,
}

/// Function that returns the user and the password of a request.
pub type Credentials = for<'r> fn(&'r Request) -> Option<(&'r [u8], &'r [u8])>;

/// The specification of a command.
pub struct Spec {
    /// Name in lower case.
    pub name: &'static str,
    /// Number of words, including the name. Negative: the minimum number, negated.
    pub arity: i32,
    /// See [`flag`].
    pub flags: u32,
    /// Positions of its keys.
    pub keys: Keys,
    /// How it uses them.
    pub uses: Uses,
    /// What it uses besides its keys.
    pub reaches: Option<Reaches>,
    /// Its subject.
    pub group: Group,
    /// Categories by subject; none means the category of its group.
    pub categories: Option<&'static [&'static str]>,
    /// The arguments, for people. ` | ` separates subcommands, which users' rights refer to.
    pub usage: &'static str,
    /// What it does, for people.
    pub summary: &'static str,
    /// Subcommands whose flags differ from those of the command.
    pub own_flags: &'static [(&'static [&'static str], u32)],
    /// Positions of passwords among its words.
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

/// All specifications, in the order of the table.
pub type Specs = &'static [&'static Spec];

impl Spec {
    /// By default, the flags determine how keys are used. Commands of ordered maps and of rows without keys
    /// are taken to use a range of keys.
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

    /// Returns whether the command has one of these flags.
    #[inline]
    pub fn is(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }

    /// Returns whether a request has an acceptable number of words.
    pub fn fits(&self, request: &Request) -> bool {
        let len = request.len() as i32;
        if self.arity < 0 { len >= -self.arity } else { len == self.arity }
    }

    /// Returns whether the command runs in the transaction that its connection holds.
    pub fn takes_part(&self) -> bool {
        self.group == Group::Rows || self.is(flag::TAKES_PART)
    }

    /// Returns whether the command has to wait for all earlier requests of its connection: it uses a held
    /// transaction, or begins one.
    pub fn is_alone(&self, has_transaction: bool) -> bool {
        let works_in_it = has_transaction && self.takes_part() && !self.is(flag::BLOCKING | flag::COMMITS);
        self.is(flag::BEGINS) || works_in_it
    }

    /// Returns whether the command changes subscriptions.
    pub fn changes_subscriptions(&self) -> bool {
        self.group == Group::PubSub && self.is(flag::WHILE_SUBSCRIBED)
    }

    /// Returns whether the command runs other commands. Each of them is undone separately if it fails.
    pub fn runs_others(&self) -> bool {
        self.group == Group::Scripting || self.is(flag::RUNS_QUEUE)
    }

    /// Returns whether the command itself may change data or publish messages.
    pub fn may_write(&self) -> bool {
        self.is(flag::WRITE | flag::PAUSED)
    }

    /// The error reply for a wrong number of words.
    pub fn wrong_arity(&self) -> String {
        format!("ERR wrong number of arguments for '{}' command", self.name)
    }

    /// Returns the keys of a request.
    pub fn keys_of<'r>(&self, request: &'r Request) -> Vec<&'r [u8]> {
        self.keys.of(request)
    }

    /// Returns the keys of a request and how the command uses them.
    pub fn key_uses<'r>(&self, request: &'r Request) -> Vec<(&'r [u8], KeyUse)> {
        let keys = self.keys_of(request).into_iter().enumerate();
        keys.map(|(at, key)| (key, self.uses.of(request, at))).collect()
    }

    /// Returns what a request uses besides its keys.
    pub fn reaches_of<'r>(&self, request: &'r Request) -> Vec<Reach<'r>> {
        self.reaches.map_or(Vec::new(), |reaches| reaches(request))
    }

    /// Returns the user and the password of a request, if it has any.
    pub fn credentials_of<'r>(&self, request: &'r Request) -> Option<(&'r [u8], &'r [u8])> {
        self.credentials.and_then(|find| find(request))
    }

    /// Returns the words of a request with passwords replaced.
    pub fn shown_words<'r>(&self, request: &'r Request) -> Vec<&'r [u8]> {
        let mut words: Vec<&[u8]> = request.from(0).collect();
        for at in self.secrets.map_or(Vec::new(), |find| find(request)) {
            if let Some(word) = words.get_mut(at) {
                *word = super::secrets::REDACTED;
            }
        }
        words
    }

    /// Returns the names of flags, which are those of the command or of a subcommand.
    pub fn flag_names(&self, flags: u32) -> Vec<&'static str> {
        let mut names: Vec<_> = flag::NAMES.iter().filter(|(bit, _)| flags & bit != 0).map(|n| n.1).collect();
        if self.is(flag::MOVABLE_KEYS) || self.keys.are_movable() {
            names.push("movablekeys");
        }
        names
    }

    /// Returns the categories of the command with these flags. A subcommand may have its own flags.
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
            // The commands that a script runs are checked for reading and writing themselves.
            let is_script = self.group == Group::Scripting && bit & (flag::WRITE | flag::READ) != 0;
            if flags & bit != 0 && !is_script && !names.contains(&name) {
                names.push(name);
            }
        }
        names.push(if flags & flag::FAST != 0 { "fast" } else { "slow" });
        names.into_iter().map(|name| format!("@{name}")).collect()
    }
}

/// Generates docs/commands.md. A test compares the file with this text.
pub fn document(specs: Specs) -> String {
    let mut all = specs.to_vec();
    all.sort_by_key(|spec| (spec.group, spec.name));
    let mut text = String::from(
        "# Commands\n\nThe commands of `esker serve`. This page is generated from the server's table of commands, and a test\n\
         compares them. Differences from Redis: [server.md](server.md).\n",
    );
    let mut group = None;
    for spec in all {
        if group != Some(spec.group) {
            group = Some(spec.group);
            let _ = write!(text, "\n## {}\n\n| command | description |\n|---|---|\n", spec.group.name());
        }
        let usage = [spec.name.to_uppercase().as_str(), spec.usage].join(" ");
        let usage = usage.trim_end().replace('|', "\\|");
        let _ = writeln!(text, "| `{usage}` | {} |", spec.summary);
    }
    text
}
