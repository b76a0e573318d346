//! Where options that name keys stand in a request. `COMMAND GETKEYS`, users' rights and the commands themselves agree by this.

use crate::resp::Request;

/// Where the word `STREAMS` of `XREAD` or `XREADGROUP` stands. None if a word before it is no option.
pub(super) fn streams_at(request: &Request) -> Option<usize> {
    let mut at = 1;
    while !request.is(at, "streams") {
        at += match request.get(at)?.to_ascii_lowercase().as_slice() {
            b"group" => 3,
            b"count" | b"block" => 2,
            b"noack" => 1,
            _ => return None,
        };
    }
    Some(at)
}

/// Where the key stands that `SORT` or a `GEORADIUS` stores to: the last option counts.
pub(super) fn stored_to(command: &str, request: &Request) -> Option<usize> {
    let first = match command {
        "sort" => 2,
        "georadius" => 6,
        "georadiusbymember" => 5,
        _ => return None,
    };
    let (is_sort, mut at, mut to) = (command == "sort", first, None);
    while at < request.len() {
        at += match request[at].to_ascii_lowercase().as_slice() {
            b"store" => {
                to = Some(at + 1);
                2
            }
            b"storedist" if !is_sort => {
                to = Some(at + 1);
                2
            }
            b"limit" if is_sort => 3,
            b"by" | b"get" if is_sort => 2,
            b"count" if !is_sort => 2,
            _ => 1,
        };
    }
    to.filter(|at| *at < request.len())
}

/// What a command waits for, if all that wait for it get the same of a key: elements of a list, members of a sorted set, new entries for a group.
pub(crate) fn wait_class(request: &Request) -> Option<Vec<u8>> {
    let is = |names: &[&str]| names.iter().any(|name| request.is(0, name));
    if is(&["blpop", "brpop", "blmpop", "blmove", "brpoplpush"]) {
        Some(b"list".to_vec())
    } else if is(&["bzpopmin", "bzpopmax", "bzmpop"]) {
        Some(b"zset".to_vec())
    } else if is(&["xreadgroup"]) {
        Some([b"group ", request.get(2)?].concat())
    } else {
        None
    }
}

/// Whether a `SORT` reads keys that its patterns lead to.
pub(crate) fn sort_reads_others(request: &Request) -> bool {
    let mut at = 2;
    while at < request.len() {
        at += match request[at].to_ascii_lowercase().as_slice() {
            b"by" if request.get(at + 1).is_some_and(|pattern| pattern.contains(&b'*')) => return true,
            b"get" => return true,
            b"by" | b"store" => 2,
            b"limit" => 3,
            _ => 1,
        };
    }
    false
}
