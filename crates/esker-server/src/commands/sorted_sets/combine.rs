//! Combines sorted sets: unions, intersections, differences.

use std::collections::BTreeMap;

use super::super::sets::{limit_of_count, numbered_keys};
use super::put_members;
use super::ranges::store;
use crate::command::spec::Group::SortedSet as Sorted;
use crate::resp::Request;
use crate::resp::fail::{Done, Fail, SYNTAX};
use crate::resp::numbers::{int, parse_float};
use crate::run::cx::Cx;
use crate::run::registry::row::*;
use crate::types::{Scored, SortedSet};

const NUMBERED: Keys = Keys::Numbered(1, 0);
const STORED: Keys = Keys::Numbered(2, 1);

#[rustfmt::skip]
pub(in super::super) const TABLE: &[Command] = &[
    command("zdiff", -3, READ, NUMBERED, Sorted, "n key ... [withscores]", "Returns the members of the first set that are in no other set.", |cx, r| show(cx, r, How::Without)),
    command("zdiffstore", -4, WRITE | DENY_OOM, STORED, Sorted, "to n key ...", "Stores the difference of sorted sets.", |cx, r| keep(cx, r, How::Without)).uses(Uses::STORE_FIRST),
    command("zinter", -3, READ, NUMBERED, Sorted, "n key ... [weights w ...] [aggregate sum|min|max] [withscores]", "Returns the members that all sets have.", |cx, r| show(cx, r, How::Common)),
    command("zintercard", -3, READ, NUMBERED, Sorted, "n key ... [limit n]", "Counts the members that all sets have.", zintercard),
    command("zinterstore", -4, WRITE | DENY_OOM, STORED, Sorted, "to n key ... [weights w ...] [aggregate sum|min|max]", "Stores the intersection of sorted sets.", |cx, r| keep(cx, r, How::Common)).uses(Uses::STORE_FIRST),
    command("zunion", -3, READ, NUMBERED, Sorted, "n key ... [weights w ...] [aggregate sum|min|max] [withscores]", "Returns the members of all sets.", |cx, r| show(cx, r, How::All)),
    command("zunionstore", -4, WRITE | DENY_OOM, STORED, Sorted, "to n key ... [weights w ...] [aggregate sum|min|max]", "Stores the union of sorted sets.", |cx, r| keep(cx, r, How::All)).uses(Uses::STORE_FIRST),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    All,
    Common,
    Without,
}

#[derive(Clone, Copy)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn of(self, a: f64, b: f64) -> f64 {
        match self {
            // The sum of inf and -inf is 0.
            Aggregate::Sum => Some(a + b).filter(|sum| !sum.is_nan()).unwrap_or(0.0),
            // If one score is NaN, `min` and `max` return the other.
            Aggregate::Min => a.min(b),
            Aggregate::Max => a.max(b),
        }
    }
}

/// Returns the combined members, sorted by score and then by member, and whether to reply with scores.
fn combined(cx: &mut Cx<'_>, request: &Request, at: usize, how: How) -> Done<(Vec<Scored>, bool)> {
    let name = String::from_utf8_lossy(&request[0]).to_lowercase();
    let (keys, mut next) = input_keys(request, at, &name)?;
    let (mut weights, mut aggregate, mut with_scores) = (vec![1.0; keys.len()], Aggregate::Sum, false);
    while next < request.len() {
        if request.is(next, "weights") && how != How::Without && next + keys.len() < request.len() {
            for (n, weight) in weights.iter_mut().enumerate() {
                *weight = parse_float(&request[next + 1 + n]).ok_or("ERR weight value is not a float")?;
            }
            next += 1 + keys.len();
        } else if request.is(next, "aggregate") && how != How::Without && next + 1 < request.len() {
            aggregate = match request[next + 1].to_ascii_lowercase().as_slice() {
                b"sum" => Aggregate::Sum,
                b"min" => Aggregate::Min,
                b"max" => Aggregate::Max,
                _ => return Err(SYNTAX.into()),
            };
            next += 2;
        } else if request.is(next, "withscores") && at == 1 {
            with_scores = true;
            next += 1;
        } else {
            return Err(SYNTAX.into());
        }
    }
    let sets: Done<Vec<_>> = keys.iter().map(|key| SortedSet::all_of(cx, key)).collect();
    let mut sets: Vec<_> = sets?.into_iter().zip(weights).collect();
    if how != How::Without {
        // Smallest first, like Redis. The order affects sums of scores that are infinite or differ much in
        // size.
        sets.sort_by_key(|(members, _)| members.len());
    }
    let mut all: BTreeMap<Vec<u8>, (f64, usize)> = BTreeMap::new();
    for (n, (members, weight)) in sets.into_iter().enumerate() {
        for (member, score) in members {
            let product = score * weight;
            // The product of inf and 0 is 0.
            let score = if product.is_nan() { 0.0 } else { product };
            match how {
                How::Without if n > 0 => {
                    all.remove(&member);
                }
                How::Common if n > 0 => {
                    if let Some(known) = all.get_mut(&member) {
                        *known = (aggregate.of(known.0, product), n);
                    }
                }
                _ => {
                    let known = all.entry(member).and_modify(|known| known.0 = aggregate.of(known.0, score));
                    known.or_insert((score, n));
                }
            }
        }
        if how == How::Common {
            // Drop the members that this set does not have.
            all.retain(|_, (_, last)| *last == n);
        }
    }
    let mut found: Vec<Scored> = all.into_iter().map(|(member, (score, _))| (member, score)).collect();
    found.sort_by(|a, b| a.1.total_cmp(&b.1).then_with(|| a.0.cmp(&b.0)));
    Ok((found, with_scores))
}

fn show(cx: &mut Cx<'_>, request: &Request, how: How) -> Done {
    let (found, with_scores) = combined(cx, request, 1, how)?;
    put_members(cx, &found, with_scores);
    Ok(())
}

fn keep(cx: &mut Cx<'_>, request: &Request, how: How) -> Done {
    let (found, _) = combined(cx, request, 2, how)?;
    let event = match how {
        How::All => "zunionstore",
        How::Common => "zinterstore",
        How::Without => "zdiffstore",
    };
    store(cx, &request[1], &found, event)
}

/// Parses a number of keys and the keys. Returns them and the position after them.
fn input_keys<'r>(request: &'r Request, at: usize, name: &str) -> Done<(Vec<&'r [u8]>, usize)> {
    if int(&request[at])? < 1 {
        return Err(Fail::text(format!("ERR at least 1 input key is needed for '{name}' command")));
    }
    numbered_keys(request, at).map_err(|_| SYNTAX.into())
}

fn zintercard(cx: &mut Cx<'_>, request: &Request) -> Done {
    let (keys, next) = input_keys(request, 1, "zintercard")?;
    let limit = limit_of_count(request, next)?;
    let words = [b"zinter", &request[1]].into_iter().chain(keys);
    let (found, _) = combined(cx, &Request::of(words), 1, How::Common)?;
    cx.out.count(found.len().min(limit));
    Ok(())
}
