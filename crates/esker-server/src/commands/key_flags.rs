//! How a request uses each of its keys, in the words of `COMMAND GETKEYSANDFLAGS`.

use super::table::Command;
use crate::acl::{READ, WRITE, key_uses};
use crate::resp::Request;

/// Commands that remove whole keys.
const REMOVES_KEYS: &[&str] = &["del", "unlink"];
/// Commands that take something out of what a key holds.
const DELETES: &[&str] = &[
    "blmove",
    "blmpop",
    "blpop",
    "brpop",
    "brpoplpush",
    "bzmpop",
    "bzpopmax",
    "bzpopmin",
    "getdel",
    "hdel",
    "lmove",
    "lmpop",
    "lpop",
    "lrem",
    "ltrim",
    "move",
    "rpop",
    "rpoplpush",
    "smove",
    "spop",
    "srem",
    "xack",
    "xdel",
    "xtrim",
    "zmpop",
    "zpopmax",
    "zpopmin",
    "zrem",
    "zremrangebylex",
    "zremrangebyrank",
    "zremrangebyscore",
];
/// Commands that add to what a key holds, and change nothing of it.
const INSERTS: &[&str] = &[
    "append", "hsetnx", "linsert", "lpush", "lpushx", "pfadd", "rpush", "rpushx", "sadd", "setnx", "msetnx",
];
/// Commands that move something from their first key to their second.
const MOVES: &[&str] = &["blmove", "brpoplpush", "lmove", "rpoplpush", "smove"];
/// Commands that replace what a key holds, whatever it was.
const OVERWRITES: &[&str] = &[
    "bitop",
    "copy",
    "geosearchstore",
    "georadius",
    "georadiusbymember",
    "mset",
    "msetnx",
    "psetex",
    "rename",
    "renamenx",
    "restore",
    "sdiffstore",
    "set",
    "setex",
    "setnx",
    "sinterstore",
    "sort",
    "sunionstore",
    "zdiffstore",
    "zinterstore",
    "zrangestore",
    "zunionstore",
];

/// The keys of a request, and the names of what it does with each.
pub(super) fn key_flags<'r>(command: &Command, request: &'r Request) -> Vec<(&'r [u8], Vec<&'static str>)> {
    let is = |names: &[&str]| names.contains(&command.name);
    let flags = |at: usize, uses: u8| match uses {
        0 => vec!["RO"],
        READ => vec!["RO", "access"],
        _ if is(MOVES) && at == 1 => vec!["RW", "insert"],
        WRITE if is(REMOVES_KEYS) => vec!["RM", "delete"],
        _ => {
            let how = if is(OVERWRITES) && uses == WRITE { "OW" } else { "RW" };
            let change = if is(DELETES) {
                "delete"
            } else if is(INSERTS) {
                "insert"
            } else {
                "update"
            };
            let access = (uses & READ != 0).then_some("access");
            [how].into_iter().chain(access).chain([change]).collect()
        }
    };
    key_uses(command, request)
        .into_iter()
        .enumerate()
        .map(|(at, (key, uses))| (key, flags(at, uses)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::table::command_of;
    use super::*;

    #[test]
    fn uses_are_told_as_redis_does() {
        let show = |text: &str| {
            let request = Request::of(text.split(' '));
            let command = command_of(&request);
            let flags = key_flags(command, &request).into_iter();
            flags
                .map(|(key, flags)| format!("{} {}", key.escape_ascii(), flags.join(" ")))
                .collect::<Vec<_>>()
                .join(", ")
        };
        assert_eq!(show("get a"), "a RO access");
        assert_eq!(show("mset a 1 b 2"), "a OW update, b OW update");
        assert_eq!(show("incr a"), "a RW access update");
        assert_eq!(show("hset a f v"), "a RW update");
        assert_eq!(show("lmove a b left right"), "a RW access delete, b RW insert");
        assert_eq!(show("sort a store b"), "a RO access, b OW update");
        assert_eq!(show("del a"), "a RM delete");
    }
}
