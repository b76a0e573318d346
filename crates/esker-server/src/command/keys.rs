//! Finds the keys among the words of a request. `COMMAND GETKEYS`, users' rights and the commands all use
//! this.

use crate::resp::Request;
use crate::resp::numbers::parse_int;

/// Positions of the keys among the words of a command.
#[derive(Clone, Copy)]
pub enum Keys {
    /// No keys.
    None,
    /// From the first to the last position, with a step. A negative last position counts from the end.
    At(i32, i32, i32),
    /// A number of keys at the first position, followed by the keys. A single key is at the second, unless it
    /// is 0.
    Numbered(usize, usize),
    /// A number of keys at this position, followed by the keys, each with its value.
    NumberedPairs(usize),
    /// The first half of the words after `STREAMS`. Options precede it, with any words as values.
    Streams,
    /// The first argument, and the destination that an option names.
    Stored(fn(&Request) -> Option<usize>),
}

/// No keys.
pub const NO_KEYS: Keys = Keys::None;
/// The first argument.
pub const FIRST: Keys = Keys::At(1, 1, 1);
/// The first two arguments.
pub const FIRST_TWO: Keys = Keys::At(1, 2, 1);
/// All arguments.
pub const ALL: Keys = Keys::At(1, -1, 1);
impl Keys {
    /// Returns the keys of a request.
    pub fn of<'r>(&self, request: &'r Request) -> Vec<&'r [u8]> {
        match *self {
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
            Keys::NumberedPairs(at) => {
                let count = request.get(at).and_then(parse_int).and_then(|n| usize::try_from(n).ok());
                request.from(at + 1).step_by(2).take(count.unwrap_or(0)).collect()
            }
            Keys::Streams => {
                let Some(at) = streams_at(request) else { return Vec::new() };
                let count = request.len() - at - 1;
                request.from(at + 1).take(if count.is_multiple_of(2) { count / 2 } else { 0 }).collect()
            }
            Keys::Stored(find) => {
                let to = find(request).and_then(|at| request.get(at));
                request.get(1).into_iter().chain(to).collect()
            }
        }
    }

    /// First, last and step, as in `COMMAND INFO`.
    pub fn positions(&self) -> [i64; 3] {
        match *self {
            Keys::At(first, last, step) => [first.into(), last.into(), step.into()],
            Keys::Stored(_) => [1, 1, 1],
            Keys::Numbered(_, other) if other > 0 => [other as i64, other as i64, 1],
            _ => [0, 0, 0],
        }
    }

    /// Returns whether other words determine the positions.
    pub fn are_movable(&self) -> bool {
        matches!(self, Keys::Numbered(..) | Keys::NumberedPairs(_) | Keys::Streams | Keys::Stored(_))
    }
}

/// Position of the word `STREAMS` of `XREAD` or `XREADGROUP`. None if a word before it is not an option.
pub fn streams_at(request: &Request) -> Option<usize> {
    let mut at = 1;
    while !request.is(at, "streams") {
        at += match request.get(at)?.to_ascii_lowercase().as_slice() {
            b"group" => 3,
            b"count" | b"block" | b"claim" => 2,
            b"noack" => 1,
            _ => return None,
        };
    }
    Some(at)
}

/// Position of the destination of `SORT`.
pub fn sort_to(request: &Request) -> Option<usize> {
    last_option(request, 2, &["store"], &[("limit", 3), ("by", 2), ("get", 2)])
}

/// Position of the destination of `GEORADIUS`.
pub fn radius_to(request: &Request) -> Option<usize> {
    last_option(request, 6, &["store", "storedist"], &[("count", 2)])
}

/// Position of the destination of `GEORADIUSBYMEMBER`.
pub fn radius_by_member_to(request: &Request) -> Option<usize> {
    last_option(request, 5, &["store", "storedist"], &[("count", 2)])
}

/// Position of the value of the last of these options. `wide`: other options with several words.
fn last_option(request: &Request, first: usize, names: &[&str], wide: &[(&str, usize)]) -> Option<usize> {
    let (mut at, mut found) = (first, None);
    while at < request.len() {
        if names.iter().any(|name| request.is(at, name)) {
            found = Some(at + 1);
            at += 2;
        } else {
            at += wide.iter().find(|(name, _)| request.is(at, name)).map_or(1, |(_, words)| *words);
        }
    }
    found.filter(|at| *at < request.len())
}
