//! Sorted sets: members, scores, ranks. See also `ranges.rs`, `combine.rs` (unions and the like) and
//! `pops.rs`.

mod combine;
mod pops;
mod ranges;

use std::ops::ControlFlow;

use super::hashes::{random_count, random_len, random_places};
use super::scan::{Step, put_cursor};
use crate::base::events::Event;
use crate::command::spec::Group::SortedSet as Sorted;
use crate::resp::fail::{Done, SYNTAX};
use crate::resp::numbers::float;
use crate::resp::{Request, format_double};
use crate::run::cx::Cx;
use crate::run::registry::row::*;
use crate::store::Order;
use crate::types::{Scored, SortedSet, ZSpan};

pub(super) use self::combine::TABLE as COMBINE;
pub(super) use self::pops::TABLE as POPS;
pub(super) use self::ranges::{TABLE as RANGES, store};

const ADD: u32 = WRITE | DENY_OOM;

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("zadd", -4, ADD | FAST, FIRST, Sorted, "key [nx|xx] [gt|lt] [ch] [incr] score member ...", "Adds members or changes their scores.", zadd),
    command("zcard", 2, READ | FAST | ONE, FIRST, Sorted, "key", "Returns the number of members.", zcard).each(KeyUse::LOOK),
    command("zincrby", 4, ADD | FAST, FIRST, Sorted, "key n member", "Adds to a score.", zincrby).each(KeyUse::SHOW_UPDATE),
    command("zmscore", -3, READ | FAST, FIRST, Sorted, "key member ...", "Returns the scores of members.", zmscore),
    command("zrandmember", -2, READ, FIRST, Sorted, "key [count [withscores]]", "Returns random members.", zrandmember),
    command("zrank", -3, READ | FAST, FIRST, Sorted, "key member [withscore]", "Returns the number of members with smaller scores.", |cx, r| rank(cx, r, Order::Up)),
    command("zrem", -3, WRITE | FAST, FIRST, Sorted, "key member ...", "Removes members.", zrem).each(KeyUse::DELETE),
    command("zrevrank", -3, READ | FAST, FIRST, Sorted, "key member [withscore]", "Returns the number of members with larger scores.", |cx, r| rank(cx, r, Order::Down)),
    command("zscan", -3, READ, FIRST, Sorted, "key cursor [match pattern] [count n] [noscores]", "Returns some members, and a cursor to continue.", zscan),
    command("zscore", 3, READ | FAST, FIRST, Sorted, "key member", "Returns the score of a member.", zscore),
];

/// Conditions of `ZADD`.
#[derive(Default)]
struct Conditions {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
    counts_changes: bool,
    adds: bool,
}

pub(super) fn zadd(cx: &mut Cx<'_>, request: &Request) -> Done {
    let mut given = Conditions::default();
    let mut at = 2;
    while at < request.len() {
        match request[at].to_ascii_lowercase().as_slice() {
            b"nx" => given.nx = true,
            b"xx" => given.xx = true,
            b"gt" => given.gt = true,
            b"lt" => given.lt = true,
            b"ch" => given.counts_changes = true,
            b"incr" => given.adds = true,
            _ => break,
        }
        at += 1;
    }
    let pairs = request.len() - at;
    if pairs == 0 || !pairs.is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    if given.nx && given.xx {
        return Err("ERR XX and NX options at the same time are not compatible".into());
    }
    if given.gt && given.lt || given.nx && (given.gt || given.lt) {
        return Err("ERR GT, LT, and/or NX options at the same time are not compatible".into());
    }
    if given.adds && pairs > 2 {
        return Err("ERR INCR option supports a single increment-element pair".into());
    }
    let scores: Done<Vec<f64>> = (at..request.len()).step_by(2).map(|at| float(&request[at])).collect();
    let scores = scores?;
    let mut set = SortedSet::open_or_new(cx, &request[1])?;
    let (mut added, mut changed, mut last) = (0, 0, None);
    for (n, score) in scores.into_iter().enumerate() {
        let member = &request[at + 2 * n + 1];
        let old = set.score(cx, member)?;
        last = set_score(cx, &mut set, &given, member, old, score)?;
        if let Some(new) = last {
            added += i64::from(old.is_none());
            changed += i64::from(old != Some(new));
        }
    }
    if changed > 0 {
        let key = request[1].to_vec();
        set.save(cx)?;
        cx.event(Event::SortedSet, if given.adds { "zincr" } else { "zadd" }, &key);
        cx.filled(&key);
    }
    match (given.adds, last) {
        (true, Some(score)) => cx.out.double(score),
        (true, None) => cx.out.null(),
        _ => cx.out.int(if given.counts_changes { changed } else { added }),
    }
    Ok(())
}

/// Sets the score of a member if the conditions allow it. Returns the new score, or none if they do not.
fn set_score(
    cx: &mut Cx<'_>,
    set: &mut SortedSet,
    given: &Conditions,
    member: &[u8],
    old: Option<f64>,
    score: f64,
) -> Done<Option<f64>> {
    if given.nx && old.is_some() || given.xx && old.is_none() {
        return Ok(None);
    }
    let score = match old {
        Some(old) if given.adds => old + score,
        _ => score,
    };
    if score.is_nan() {
        return Err("ERR resulting score is not a number (NaN)".into());
    }
    if let Some(old) = old {
        if given.gt && score <= old || given.lt && score >= old {
            return Ok(None);
        }
        if old == score {
            return Ok(Some(score));
        }
    }
    set.put(cx, member, old, score)?;
    Ok(Some(score))
}

fn zincrby(cx: &mut Cx<'_>, request: &Request) -> Done {
    let n = float(&request[2])?;
    let mut set = SortedSet::open_or_new(cx, &request[1])?;
    let old = set.score(cx, &request[3])?;
    let given = Conditions { adds: true, ..Conditions::default() };
    let score = set_score(cx, &mut set, &given, &request[3], old, n)?.unwrap_or(n);
    set.save(cx)?;
    cx.event(Event::SortedSet, "zincr", &request[1]);
    cx.filled(&request[1]);
    cx.out.double(score);
    Ok(())
}

fn zcard(cx: &mut Cx<'_>, request: &Request) -> Done {
    let len = SortedSet::open(cx, &request[1])?.map_or(0, |set| set.len());
    cx.out.int(len as i64);
    Ok(())
}

fn put_score(cx: &mut Cx<'_>, score: Option<f64>) {
    match score {
        Some(score) => cx.out.double(score),
        None => cx.out.null(),
    }
}

fn zscore(cx: &mut Cx<'_>, request: &Request) -> Done {
    let score = match SortedSet::open(cx, &request[1])? {
        Some(set) => set.score(cx, &request[2])?,
        None => None,
    };
    put_score(cx, score);
    Ok(())
}

fn zmscore(cx: &mut Cx<'_>, request: &Request) -> Done {
    let set = SortedSet::open(cx, &request[1])?;
    cx.out.array(request.len() - 2);
    for member in request.from(2) {
        let score = match &set {
            Some(set) => set.score(cx, member)?,
            None => None,
        };
        put_score(cx, score);
    }
    Ok(())
}

fn zrem(cx: &mut Cx<'_>, request: &Request) -> Done {
    let mut removed = Vec::new();
    if let Some(mut set) = SortedSet::open(cx, &request[1])? {
        for member in request.from(2) {
            if let Some(score) = set.score(cx, member)? {
                set.remove(cx, member, score)?;
                removed.push(score);
            }
        }
        if !removed.is_empty() {
            save_smaller(cx, set, "zrem")?;
        }
    }
    cx.out.count(removed.len());
    Ok(())
}

/// Saves a set after members were removed.
fn save_smaller(cx: &mut Cx<'_>, set: SortedSet, event: &str) -> Done {
    let (key, is_empty) = (set.key().to_vec(), set.is_empty());
    set.save(cx)?;
    cx.event(Event::SortedSet, event, &key);
    if is_empty {
        cx.event(Event::Generic, "del", &key);
    }
    Ok(())
}

fn rank(cx: &mut Cx<'_>, request: &Request, order: Order) -> Done {
    let with_score = match request.len() {
        3 => false,
        4 if request.is(3, "withscore") => true,
        _ => return Err(SYNTAX.into()),
    };
    let member = &request[2];
    let found = match SortedSet::open(cx, &request[1])? {
        Some(set) => match set.score(cx, member)? {
            Some(score) => {
                let mut rank = 0;
                set.walk(cx, &ZSpan::all(), order, &mut |other, _| {
                    if other == member {
                        return ControlFlow::Break(());
                    }
                    rank += 1;
                    ControlFlow::Continue(())
                })?;
                Some((rank, score))
            }
            None => None,
        },
        None => None,
    };
    match found {
        Some((rank, score)) if with_score => {
            cx.out.array(2);
            cx.out.int(rank);
            cx.out.double(score);
        }
        Some((rank, _)) => cx.out.int(rank),
        None if with_score => cx.out.null_array(),
        None => cx.out.null(),
    }
    Ok(())
}

/// Replies with members, and their scores on request.
fn put_members(cx: &mut Cx<'_>, members: &[Scored], with_scores: bool) {
    begin_members(cx, members.len(), with_scores);
    members.iter().for_each(|member| put_member(cx, member, with_scores));
}

fn begin_members(cx: &mut Cx<'_>, len: usize, with_scores: bool) {
    cx.out.array(if with_scores && !cx.out.is_resp3 { 2 * len } else { len });
}

fn put_member(cx: &mut Cx<'_>, (member, score): &Scored, with_scores: bool) {
    if with_scores && cx.out.is_resp3 {
        cx.out.array(2);
    }
    cx.out.bulk(member);
    if with_scores {
        cx.out.double(*score);
    }
}

fn zscan(cx: &mut Cx<'_>, request: &Request) -> Done {
    let step = Step::parse(cx, request, 2)?;
    let (mut seen, mut last, mut found, mut failed) = (0, None, Vec::new(), None);
    if let Some(set) = SortedSet::open(cx, &request[1])? {
        let span = step.span();
        let span = ZSpan::members(span.lower, span.upper);
        set.walk(cx, &span, Order::Up, &mut |member, score| {
            seen += 1;
            if seen > step.count {
                return ControlFlow::Break(());
            }
            if seen == step.count {
                last = Some(member.to_vec());
            }
            if step.wants(member) {
                if let Err(fail) = cx.gather(member.len()) {
                    failed = Some(fail);
                    return ControlFlow::Break(());
                }
                found.push((member.to_vec(), score));
            }
            ControlFlow::Continue(())
        })?;
    }
    failed.map_or(Ok(()), Err)?;
    put_cursor(cx, &step, last.filter(|_| seen > step.count).as_deref());
    cx.out.array(if step.without_values { found.len() } else { 2 * found.len() });
    for (member, score) in found {
        cx.out.bulk(&member);
        if !step.without_values {
            cx.out.bulk(format_double(score).as_bytes());
        }
    }
    Ok(())
}

fn zrandmember(cx: &mut Cx<'_>, request: &Request) -> Done {
    let with_scores = match request.len() {
        2 | 3 => false,
        4 if request.is(3, "withscores") => true,
        _ => return Err(SYNTAX.into()),
    };
    let count = (request.len() > 2).then(|| random_count(request, 2, with_scores)).transpose()?;
    let all = match SortedSet::open(cx, &request[1])? {
        Some(set) => set.list(cx, &ZSpan::all(), Order::Up, 0, usize::MAX)?,
        None => Vec::new(),
    };
    let Some((count, repeats)) = count else {
        match all.is_empty() {
            true => cx.out.null(),
            false => cx.out.bulk(&all[fastrand::usize(..all.len())].0),
        }
        return Ok(());
    };
    begin_members(cx, random_len(all.len(), count, repeats), with_scores);
    for place in random_places(all.len(), count, repeats) {
        if cx.out.is_cut() {
            break;
        }
        put_member(cx, &all[place], with_scores);
    }
    Ok(())
}
