//! Ranges of sorted sets, by rank, by score and by member.

use std::ops::Bound;

use super::{put_members, save_smaller};
use crate::base::events::Event;
use crate::command::spec::Group::SortedSet as Sorted;
use crate::resp::Request;
use crate::resp::fail::{Done, SYNTAX};
use crate::resp::numbers::{int, parse_bound, places};
use crate::run::cx::Cx;
use crate::run::registry::row::*;
use crate::store::Order;
use crate::types::{Scored, SortedSet, ZSpan};

#[rustfmt::skip]
pub(in super::super) const TABLE: &[Command] = &[
    command("zcount", 4, READ | FAST, FIRST, Sorted, "key min max", "Counts the members with scores in a range.", |cx, r| count(cx, r, By::Score)),
    command("zlexcount", 4, READ | FAST, FIRST, Sorted, "key min max", "Counts the members in a range of names.", |cx, r| count(cx, r, By::Member)),
    command("zrange", -4, READ, FIRST, Sorted, "key from to [byscore|bylex] [rev] [limit skip n] [withscores]", "Returns the members of a range.", zrange),
    command("zrangebylex", -4, READ, FIRST, Sorted, "key min max [limit skip n]", "Returns the members in a range of names.", |cx, r| old(cx, r, By::Member, Order::Up)),
    command("zrangebyscore", -4, READ, FIRST, Sorted, "key min max [withscores] [limit skip n]", "Returns the members with scores in a range.", |cx, r| old(cx, r, By::Score, Order::Up)),
    command("zrangestore", -5, WRITE | DENY_OOM, FIRST_TWO, Sorted, "to key from to [byscore|bylex] [rev] [limit skip n]", "Stores the members of a range.", zrangestore).uses(Uses::STORE_FIRST),
    command("zremrangebylex", 4, WRITE, FIRST, Sorted, "key min max", "Removes the members in a range of names.", |cx, r| remove(cx, r, By::Member)).each(KeyUse::DELETE),
    command("zremrangebyrank", 4, WRITE, FIRST, Sorted, "key start stop", "Removes the members in a range of ranks.", |cx, r| remove(cx, r, By::Rank)).each(KeyUse::DELETE),
    command("zremrangebyscore", 4, WRITE, FIRST, Sorted, "key min max", "Removes the members with scores in a range.", |cx, r| remove(cx, r, By::Score)).each(KeyUse::DELETE),
    command("zrevrange", -4, READ, FIRST, Sorted, "key start stop [withscores]", "Returns the members in a range of ranks, largest score first.", |cx, r| old(cx, r, By::Rank, Order::Down)),
    command("zrevrangebylex", -4, READ, FIRST, Sorted, "key max min [limit skip n]", "Returns the members in a range of names, largest first.", |cx, r| old(cx, r, By::Member, Order::Down)),
    command("zrevrangebyscore", -4, READ, FIRST, Sorted, "key max min [withscores] [limit skip n]", "Returns the members with scores in a range, largest first.", |cx, r| old(cx, r, By::Score, Order::Down)),
];

/// How a range selects members.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Member,
}

/// A requested range.
enum Wanted {
    Ranks(i64, i64),
    Span(ZSpan),
}

struct Query {
    wanted: Wanted,
    order: Order,
    skip: usize,
    count: usize,
    with_scores: bool,
}

fn score_bound(word: &[u8]) -> Done<Bound<f64>> {
    let (is_open, number) = match word.split_first() {
        Some((b'(', number)) => (true, number),
        _ => (false, word),
    };
    let score = parse_bound(number).ok_or("ERR min or max is not a float")?;
    Ok(if is_open { Bound::Excluded(score) } else { Bound::Included(score) })
}

/// Parses a bound by member. Returns none if the range must be empty.
fn member_bound(word: &[u8], is_lower: bool) -> Done<Option<Bound<&[u8]>>> {
    match word.split_first() {
        Some((b'[', member)) => Ok(Some(Bound::Included(member))),
        Some((b'(', member)) => Ok(Some(Bound::Excluded(member))),
        Some((b'-', [])) => Ok(is_lower.then_some(Bound::Unbounded)),
        Some((b'+', [])) => Ok((!is_lower).then_some(Bound::Unbounded)),
        _ => Err("ERR min or max not valid string range item".into()),
    }
}

/// Parses the range between two words. In descending order the upper bound comes first.
fn wanted(by: By, first: &[u8], second: &[u8], order: Order) -> Done<Wanted> {
    if by == By::Rank {
        return Ok(Wanted::Ranks(int(first)?, int(second)?));
    }
    let (min, max) = if order == Order::Down { (second, first) } else { (first, second) };
    if by == By::Score {
        return Ok(Wanted::Span(ZSpan::scores(score_bound(min)?, score_bound(max)?)));
    }
    Ok(Wanted::Span(match (member_bound(min, true)?, member_bound(max, false)?) {
        (Some(min), Some(max)) => ZSpan::members(min, max),
        _ => ZSpan::members(Bound::Excluded(b""), Bound::Excluded(b"")),
    }))
}

const NO_SCORES: &str = "ERR syntax error, WITHSCORES not supported in combination with BYLEX";

/// Parses the numbers after `LIMIT`.
fn limit(request: &Request, at: usize) -> Done<(usize, usize)> {
    let (Some(skip), Some(count)) = (request.get(at + 1), request.get(at + 2)) else {
        return Err(SYNTAX.into());
    };
    let (skip, count) = (int(skip)?, int(count)?);
    // A negative offset returns nothing. A negative count returns all members.
    let count = if skip < 0 { 0 } else { usize::try_from(count).unwrap_or(usize::MAX) };
    Ok((usize::try_from(skip).unwrap_or(0), count))
}

/// Parses the words of `ZRANGE` from the bounds on.
fn query(request: &Request, first: usize, may_have_scores: bool) -> Done<Query> {
    let (mut by, mut order, mut part, mut with_scores) = (By::Rank, Order::Up, None, false);
    let mut at = first + 2;
    while at < request.len() {
        match request[at].to_ascii_lowercase().as_slice() {
            b"byscore" if by == By::Rank => by = By::Score,
            b"bylex" if by == By::Rank => by = By::Member,
            b"rev" if order == Order::Up => order = Order::Down,
            b"withscores" if may_have_scores => with_scores = true,
            b"limit" => {
                part = Some(limit(request, at)?);
                at += 2;
            }
            _ => return Err(SYNTAX.into()),
        }
        at += 1;
    }
    if by == By::Rank && part.is_some() {
        return Err(
            "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX".into()
        );
    }
    if by == By::Member && with_scores {
        return Err(NO_SCORES.into());
    }
    let (skip, count) = part.unwrap_or((0, usize::MAX));
    let wanted = wanted(by, &request[first], &request[first + 1], order)?;
    Ok(Query { wanted, order, skip, count, with_scores })
}

fn find(cx: &Cx<'_>, set: Option<&SortedSet>, query: &Query) -> Done<Vec<Scored>> {
    let Some(set) = set else { return Ok(Vec::new()) };
    match &query.wanted {
        Wanted::Span(span) => set.list(cx, span, query.order, query.skip, query.count),
        Wanted::Ranks(start, stop) => {
            let Some((start, stop)) = places(*start, *stop, set.len()) else { return Ok(Vec::new()) };
            let count = (stop - start + 1) as usize;
            let behind = set.len() - 1 - stop;
            if behind < start {
                // The range is closer to the other end.
                let other = if query.order == Order::Up { Order::Down } else { Order::Up };
                let mut found = set.list(cx, &ZSpan::all(), other, behind as usize, count)?;
                found.reverse();
                return Ok(found);
            }
            set.list(cx, &ZSpan::all(), query.order, start as usize, count)
        }
    }
}

fn zrange(cx: &mut Cx<'_>, request: &Request) -> Done {
    let query = query(request, 2, true)?;
    let set = SortedSet::open(cx, &request[1])?;
    let found = find(cx, set.as_ref(), &query)?;
    put_members(cx, &found, query.with_scores);
    Ok(())
}

/// Runs the older commands that `ZRANGE` replaces.
fn old(cx: &mut Cx<'_>, request: &Request, by: By, order: Order) -> Done {
    let (mut with_scores, mut part) = (false, (0, usize::MAX));
    let mut at = 4;
    while at < request.len() {
        if request.is(at, "withscores") {
            with_scores = true;
            at += 1;
        } else if request.is(at, "limit") && by != By::Rank {
            part = limit(request, at)?;
            at += 3;
        } else {
            return Err(SYNTAX.into());
        }
    }
    if by == By::Member && with_scores {
        return Err(NO_SCORES.into());
    }
    let wanted = wanted(by, &request[2], &request[3], order)?;
    let query = Query { wanted, order, skip: part.0, count: part.1, with_scores };
    let set = SortedSet::open(cx, &request[1])?;
    let found = find(cx, set.as_ref(), &query)?;
    put_members(cx, &found, with_scores);
    Ok(())
}

fn count(cx: &mut Cx<'_>, request: &Request, by: By) -> Done {
    let wanted = wanted(by, &request[2], &request[3], Order::Up)?;
    let set = SortedSet::open(cx, &request[1])?;
    let count = match (&set, &wanted) {
        (Some(set), Wanted::Span(span)) => set.count(cx, span)?,
        _ => 0,
    };
    cx.out.count(count);
    Ok(())
}

fn remove(cx: &mut Cx<'_>, request: &Request, by: By) -> Done {
    let wanted = wanted(by, &request[2], &request[3], Order::Up)?;
    let query = Query { wanted, order: Order::Up, skip: 0, count: usize::MAX, with_scores: false };
    let set = SortedSet::open(cx, &request[1])?;
    let found = find(cx, set.as_ref(), &query)?;
    if let Some(mut set) = set.filter(|_| !found.is_empty()) {
        for (member, score) in &found {
            set.remove(cx, member, *score)?;
        }
        let event = match by {
            By::Rank => "zremrangebyrank",
            By::Score => "zremrangebyscore",
            By::Member => "zremrangebylex",
        };
        save_smaller(cx, set, event)?;
    }
    cx.out.count(found.len());
    Ok(())
}

/// Replaces a key by a sorted set of these members. Removes the key if there are none.
pub(in super::super) fn store(cx: &mut Cx<'_>, to: &[u8], members: &[Scored], event: &str) -> Done {
    if let Some(old) = cx.main(to)? {
        cx.remove_key(to, &old)?;
        if members.is_empty() {
            cx.event(Event::Generic, "del", to);
        }
    }
    if !members.is_empty() {
        let mut set = SortedSet::new(cx, to)?;
        for (member, score) in members {
            set.put(cx, member, None, *score)?;
        }
        set.save(cx)?;
        cx.event(Event::SortedSet, event, to);
        cx.filled(to);
    }
    cx.out.count(members.len());
    Ok(())
}

fn zrangestore(cx: &mut Cx<'_>, request: &Request) -> Done {
    let query = query(request, 3, false)?;
    let set = SortedSet::open(cx, &request[2])?;
    let found = find(cx, set.as_ref(), &query)?;
    store(cx, &request[1], &found, "zrangestore")
}
