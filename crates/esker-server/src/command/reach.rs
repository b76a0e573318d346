//! Keys and channels that a request uses but does not list as its keys. Users' rights need them.

use super::uses::{READ, WRITE};
use crate::resp::Request;

/// Something that a request uses besides its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach<'r> {
    /// Any key, with these rights.
    AllKeys(u8),
    /// Changes of a key.
    Key(&'r [u8]),
    /// Changes of all keys with a prefix.
    KeysWith(&'r [u8]),
    /// A channel.
    Channel(&'r [u8]),
    /// All channels that match a pattern.
    Pattern(&'r [u8]),
    /// All channels with a prefix.
    ChannelsWith(&'r [u8]),
}

/// Function that returns what a request uses besides its keys.
pub type Reaches = for<'r> fn(&'r Request) -> Vec<Reach<'r>>;

/// Reads keys that the request does not name.
pub fn reads_all(_: &Request) -> Vec<Reach<'_>> {
    vec![Reach::AllKeys(READ)]
}

/// Reads and changes keys that the request does not name.
pub fn changes_all(_: &Request) -> Vec<Reach<'_>> {
    vec![Reach::AllKeys(READ | WRITE)]
}

/// Changes a whole keyspace, unless the request lists or selects keyspaces.
pub fn keyspace(request: &Request) -> Vec<Reach<'_>> {
    let changes = ["create", "drop", "operator", "rename"].into_iter().any(|word| request.is(1, word));
    if changes { changes_all(request) } else { Vec::new() }
}

/// Reads keys that the patterns of `SORT` refer to.
pub fn sort_patterns(request: &Request) -> Vec<Reach<'_>> {
    let mut at = 2;
    while at < request.len() {
        at += match request[at].to_ascii_lowercase().as_slice() {
            b"by" if request.get(at + 1).is_some_and(|pattern| pattern.contains(&b'*')) => {
                return reads_all(request);
            }
            b"get" => return reads_all(request),
            b"by" | b"store" => 2,
            b"limit" => 3,
            _ => 1,
        };
    }
    Vec::new()
}

/// Keys and prefixes whose changes are watched. The command rejects other words when it runs. Until then they
/// count as prefixes, which need more rights.
pub fn watched(request: &Request) -> Vec<Reach<'_>> {
    let pair = |at: usize| {
        let name = request.get(at + 1)?;
        Some(if request.is(at, "key") { Reach::Key(name) } else { Reach::KeysWith(name) })
    };
    (1..request.len()).step_by(2).filter_map(pair).collect()
}

/// The first argument is a channel.
pub fn channel(request: &Request) -> Vec<Reach<'_>> {
    request.get(1).into_iter().map(Reach::Channel).collect()
}

/// All arguments are channels.
pub fn channels(request: &Request) -> Vec<Reach<'_>> {
    request.from(1).map(Reach::Channel).collect()
}

/// All arguments are patterns of channels.
pub fn patterns(request: &Request) -> Vec<Reach<'_>> {
    request.from(1).map(Reach::Pattern).collect()
}

/// All arguments are prefixes of channels.
pub fn prefixes(request: &Request) -> Vec<Reach<'_>> {
    request.from(1).map(Reach::ChannelsWith).collect()
}
