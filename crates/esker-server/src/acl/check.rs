//! Whether a user may run a request.

use super::selector::{READ, Selector, WRITE};
use super::subcommands;
use super::user::User;
use crate::commands::{Command, flag, sort_reads_others};
use crate::resp::Request;

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The user may not run the command.
    Command,
    /// It may not use a key in this way.
    Key,
    /// It may not use a channel.
    Channel,
    /// The name or the password is wrong.
    Auth,
}

impl Reason {
    /// The name that `ACL LOG` has for it.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Command => "command",
            Reason::Key => "key",
            Reason::Channel => "channel",
            Reason::Auth => "auth",
        }
    }
}

/// What a user may not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// Why.
    pub reason: Reason,
    /// The command, key or channel.
    pub object: Vec<u8>,
}

impl Denied {
    /// The text of the error reply.
    pub fn message(&self) -> String {
        let object = String::from_utf8_lossy(&self.object);
        match self.reason {
            Reason::Command => format!("NOPERM this user has no permissions to run the '{object}' command"),
            Reason::Key => {
                "NOPERM this user has no permissions to access one of the keys used as arguments".to_owned()
            }
            Reason::Channel => {
                "NOPERM this user has no permissions to access one of the channels used as arguments"
                    .to_owned()
            }
            Reason::Auth => "WRONGPASS invalid username-password pair or user is disabled.".to_owned(),
        }
    }

    /// What `ACL DRYRUN` tells.
    pub fn dry_message(&self) -> String {
        let object = String::from_utf8_lossy(&self.object);
        match self.reason {
            Reason::Command => format!("This user has no permissions to run the '{object}' command"),
            Reason::Key => format!("This user has no permissions to access the '{object}' key"),
            _ => format!("This user has no permissions to access the '{object}' channel"),
        }
    }
}

impl User {
    /// Whether it may run a request. `at`: the place of the command in the table.
    ///
    /// # Errors
    /// What it may not do, by the selector that comes closest.
    pub fn check(&self, at: usize, command: &Command, request: &Request) -> Result<(), Denied> {
        if self.is_unlimited || command.flags & flag::NO_AUTH != 0 {
            return Ok(());
        }
        let mut closest: Option<Denied> = None;
        for selector in &self.selectors {
            let Err(denied) = check_one(selector, at, command, request) else { return Ok(()) };
            if closest.as_ref().is_none_or(|known| known.reason < denied.reason) {
                closest = Some(denied);
            }
        }
        closest.map_or(Ok(()), Err)
    }
}

fn check_one(selector: &Selector, at: usize, command: &Command, request: &Request) -> Result<(), Denied> {
    let denied = |reason, object: &[u8]| Err(Denied { reason, object: object.to_vec() });
    if !selector.allows_command(at, command, request) {
        return denied(Reason::Command, subcommands::full_name(command, request).as_bytes());
    }
    for (key, uses) in key_uses(command, request) {
        if !selector.allows_key(key, uses) {
            return denied(Reason::Key, key);
        }
    }
    if let Some(uses) = uses_of_all_keys(command, request)
        && !selector.allows_all_keys(uses)
    {
        return denied(Reason::Key, b"*");
    }
    for (name, is_prefix) in watched(command, request) {
        let is_allowed = match is_prefix {
            true => selector.allows_keys_with(name, READ),
            false => selector.allows_key(name, READ),
        };
        if !is_allowed {
            return denied(Reason::Key, name);
        }
    }
    let channels = match command.name {
        "publish" | "spublish" | "es.notify" => request.get(1).into_iter().collect(),
        "subscribe" | "ssubscribe" | "psubscribe" | "es.listen" | "ob.listen" | "ob.plisten"
        | "ob.notify" => request.tail(1),
        _ => Vec::new(),
    };
    let is_allowed = |channel: &&[u8]| match command.name {
        "ob.plisten" => selector.allows_channels_with(channel),
        name => selector.allows_channel(channel, name == "psubscribe"),
    };
    match channels.iter().find(|channel| !is_allowed(channel)) {
        Some(channel) => denied(Reason::Channel, channel),
        None => Ok(()),
    }
}

/// The keys whose changes a request asks to be told of; true: all that begin so.
fn watched<'r>(command: &Command, request: &'r Request) -> Vec<(&'r [u8], bool)> {
    if command.name != "es.watch" {
        return Vec::new();
    }
    // A word that is neither is refused when the command runs: until then it is as much as it could be.
    let pairs = (1..request.len()).step_by(2);
    pairs.filter_map(|at| Some((request.get(at + 1)?, !request.is(at, "key")))).collect()
}

/// Commands that change keys and tell what was in them.
const READ_AND_WRITE: &[&str] = &[
    "bitfield",
    "blmpop",
    "blpop",
    "brpop",
    "bzmpop",
    "bzpopmax",
    "bzpopmin",
    "decr",
    "decrby",
    "es.cas",
    "getdel",
    "getex",
    "getset",
    "hincrby",
    "hincrbyfloat",
    "incr",
    "incrby",
    "incrbyfloat",
    "lmpop",
    "lpop",
    "move",
    "rpop",
    "setbit",
    "spop",
    "zincrby",
    "zmpop",
    "zpopmax",
    "zpopmin",
];
/// Commands that show of a key no more than that it is there, how large it is, or whether something is in it: any right to the key is enough.
const LOOKS: &[&str] = &[
    "exists",
    "hexists",
    "hlen",
    "hstrlen",
    "llen",
    "memory",
    "object",
    "scard",
    "sismember",
    "smismember",
    "strlen",
    "touch",
    "type",
    "watch",
    "xlen",
    "zcard",
];
/// Commands that read the first key and change the second; those that also remove from the first.
const COPIES: &[&str] = &["copy"];
const MOVES: &[&str] = &["blmove", "brpoplpush", "lmove", "rename", "renamenx", "rpoplpush", "smove"];
/// Commands that read a key, and change the one behind the word `STORE`.
const STORES_ELSEWHERE: &[&str] = &["georadius", "georadiusbymember", "sort"];
/// Commands that change the first key of many, and read the others.
const COMBINES: &[&str] = &[
    "bitop",
    "geosearchstore",
    "pfmerge",
    "sdiffstore",
    "sinterstore",
    "sunionstore",
    "zdiffstore",
    "zinterstore",
    "zrangestore",
    "zunionstore",
];

/// The keys of a request, and how it uses them.
pub fn key_uses<'r>(command: &Command, request: &'r Request) -> Vec<(&'r [u8], u8)> {
    let keys = command.keys_of(request);
    let is = |names: &[&str]| names.contains(&command.name);
    let use_of = |at: usize| {
        if command.name.starts_with("eval") {
            return if command.name.ends_with("_ro") { READ } else { READ | WRITE };
        }
        // A lock keeps others from what it names; a shared one keeps nobody from reading.
        if command.name == "es.lock" && !(2..request.len()).any(|at| request.is(at, "shared")) {
            return WRITE;
        }
        let only_reads = match command.name {
            // Reading moves the group on, and changes no entry.
            "xreadgroup" => true,
            "bitfield" => !(2..request.len()).any(|at| request.is(at, "set") || request.is(at, "incrby")),
            _ => command.flags & flag::WRITE == 0,
        };
        match at {
            _ if is(LOOKS) => 0,
            _ if only_reads => READ,
            0 if command.name == "pfmerge" => READ | WRITE,
            0 if is(COPIES) || is(STORES_ELSEWHERE) => READ,
            0 if is(COMBINES) => WRITE,
            _ if is(COMBINES) => READ,
            0 if is(MOVES) || is(READ_AND_WRITE) => READ | WRITE,
            _ if is(READ_AND_WRITE) => READ | WRITE,
            0 if command.name == "set" && (3..request.len()).any(|at| request.is(at, "get")) => READ | WRITE,
            _ => WRITE,
        }
    };
    keys.into_iter().enumerate().map(|(at, key)| (key, use_of(at))).collect()
}

/// How a request uses keys that it does not name; none if it shows nothing of their values.
fn uses_of_all_keys(command: &Command, request: &Request) -> Option<u8> {
    if matches!(command.name, "sort" | "sort_ro") {
        return sort_reads_others(request).then_some(READ);
    }
    if matches!(command.name, "es.ks" | "ob.ks") {
        let changes = ["create", "drop", "operator", "rename"].into_iter().any(|word| request.is(1, word));
        return changes.then_some(READ | WRITE);
    }
    if command.name == "es.watch" {
        return None;
    }
    let walks = command.name.contains('.') && matches!(command.keys, crate::commands::Keys::None);
    match command.flags & (flag::READ | flag::WRITE) {
        flag::READ if walks => Some(READ),
        flag::WRITE if walks => Some(READ | WRITE),
        _ => None,
    }
}
