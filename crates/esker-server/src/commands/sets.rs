//! Sets. Each member is a part of the collection, without a value.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use super::hashes::{random_count, random_len, random_places, walk_step};
use super::scan::{Step, put_cursor};
use crate::base::events::Event;
use crate::command::spec::Group::Set;
use crate::resp::Request;
use crate::resp::fail::{Done, SYNTAX};
use crate::resp::numbers::int;
use crate::run::cx::Cx;
use crate::run::registry::row::*;
use crate::store::{Order, Span};
use crate::types::{Collection, Kind};

const ADD: u32 = WRITE | DENY_OOM;

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("sadd", -3, ADD | FAST, FIRST, Set, "key member ...", "Adds members.", sadd).each(KeyUse::INSERT),
    command("scard", 2, READ | FAST | ONE, FIRST, Set, "key", "Returns the number of members.", scard).each(KeyUse::LOOK),
    command("sdiff", -2, READ, ALL, Set, "key ...", "Returns the members of the first set that are in no other set.", |cx, r| combine(cx, r, Combine::Without)),
    command("sdiffstore", -3, ADD, ALL, Set, "to key ...", "Stores the difference of sets.", |cx, r| combine_store(cx, r, Combine::Without)).uses(Uses::STORE_FIRST),
    command("sinter", -2, READ, ALL, Set, "key ...", "Returns the members that all sets have.", |cx, r| combine(cx, r, Combine::Common)),
    command("sintercard", -3, READ, Keys::Numbered(1, 0), Set, "n key ... [limit n]", "Counts the members that all sets have.", sintercard),
    command("sinterstore", -3, ADD, ALL, Set, "to key ...", "Stores the intersection of sets.", |cx, r| combine_store(cx, r, Combine::Common)).uses(Uses::STORE_FIRST),
    command("sismember", 3, READ | FAST, FIRST, Set, "key member", "Returns whether the set has this member.", sismember).each(KeyUse::LOOK),
    command("smembers", 2, READ, FIRST, Set, "key", "Returns all members.", |cx, r| combine(cx, r, Combine::All)),
    command("smismember", -3, READ | FAST, FIRST, Set, "key member ...", "Returns for each member whether the set has it.", smismember).each(KeyUse::LOOK),
    command("smove", 4, WRITE | FAST, FIRST_TWO, Set, "from to member", "Moves a member to another set.", smove).uses(Uses::MOVE),
    command("spop", -2, WRITE | FAST, FIRST, Set, "key [count]", "Removes and returns random members.", spop).each(KeyUse::TAKE),
    command("srandmember", -2, READ, FIRST, Set, "key [count]", "Returns random members.", srandmember),
    command("srem", -3, WRITE | FAST, FIRST, Set, "key member ...", "Removes members.", srem).each(KeyUse::DELETE),
    command("sscan", -3, READ, FIRST, Set, "key cursor [match pattern] [count n]", "Returns some members, and a cursor to continue.", sscan),
    command("sunion", -2, READ, ALL, Set, "key ...", "Returns the members of all sets.", |cx, r| combine(cx, r, Combine::All)),
    command("sunionstore", -3, ADD, ALL, Set, "to key ...", "Stores the union of sets.", |cx, r| combine_store(cx, r, Combine::All)).uses(Uses::STORE_FIRST),
];

fn open(cx: &mut Cx<'_>, key: &[u8]) -> Done<Option<Collection>> {
    Collection::open(cx, key, Kind::Set)
}

fn members(cx: &mut Cx<'_>, key: &[u8]) -> Done<Vec<Vec<u8>>> {
    let Some(set) = open(cx, key)? else { return Ok(Vec::new()) };
    set.subs(cx)
}

fn add(cx: &mut Cx<'_>, set: &mut Collection, member: &[u8]) -> Done<bool> {
    let is_new = set.is_new() && set.is_empty() || set.get(cx, member)?.is_none();
    if is_new {
        set.put(cx, member, b"")?;
        set.shape.len += 1;
    }
    Ok(is_new)
}

fn take(cx: &mut Cx<'_>, set: &mut Collection, member: &[u8]) -> Done<bool> {
    let is_there = set.get(cx, member)?.is_some();
    if is_there {
        set.remove(cx, member)?;
        set.shape.len = set.shape.len.saturating_sub(1);
    }
    Ok(is_there)
}

/// Saves a set after members were removed.
fn save_smaller(cx: &mut Cx<'_>, set: Collection, event: &str) -> Done {
    let (key, is_empty) = (set.key().to_vec(), set.is_empty());
    set.save(cx)?;
    cx.event(Event::Set, event, &key);
    if is_empty {
        cx.event(Event::Generic, "del", &key);
    }
    Ok(())
}

fn sadd(cx: &mut Cx<'_>, request: &Request) -> Done {
    let mut set = Collection::open_or_new(cx, &request[1], Kind::Set)?;
    let mut added = 0;
    for member in request.from(2) {
        added += i64::from(add(cx, &mut set, member)?);
    }
    if added > 0 {
        set.save(cx)?;
        cx.event(Event::Set, "sadd", &request[1]);
    }
    cx.out.int(added);
    Ok(())
}

fn srem(cx: &mut Cx<'_>, request: &Request) -> Done {
    let mut removed = 0;
    if let Some(mut set) = open(cx, &request[1])? {
        for member in request.from(2) {
            removed += i64::from(take(cx, &mut set, member)?);
        }
        if removed > 0 {
            save_smaller(cx, set, "srem")?;
        }
    }
    cx.out.int(removed);
    Ok(())
}

fn scard(cx: &mut Cx<'_>, request: &Request) -> Done {
    let len = open(cx, &request[1])?.map_or(0, |set| set.len());
    cx.out.int(len as i64);
    Ok(())
}

fn sismember(cx: &mut Cx<'_>, request: &Request) -> Done {
    let is_member = match open(cx, &request[1])? {
        Some(set) => set.get(cx, &request[2])?.is_some(),
        None => false,
    };
    cx.out.int(i64::from(is_member));
    Ok(())
}

fn smismember(cx: &mut Cx<'_>, request: &Request) -> Done {
    let members = request.tail(2);
    let set = open(cx, &request[1])?;
    cx.out.array(members.len());
    cx.with_reply(|cx, out| match set {
        Some(set) => set.each_value(cx, &members, |found| {
            out.int(i64::from(found.is_some()));
            Ok(())
        }),
        None => {
            members.iter().for_each(|_| out.int(0));
            Ok(())
        }
    })
}

fn smove(cx: &mut Cx<'_>, request: &Request) -> Done {
    let (from, to, member) = (&request[1], &request[2], &request[3]);
    let Some(mut source) = open(cx, from)? else {
        cx.out.int(0);
        return Ok(());
    };
    let target = open(cx, to)?;
    if source.get(cx, member)?.is_none() {
        cx.out.int(0);
        return Ok(());
    }
    if from != to {
        take(cx, &mut source, member)?;
        save_smaller(cx, source, "srem")?;
        let mut target = match target {
            Some(target) => target,
            None => Collection::new(cx, to, Kind::Set)?,
        };
        if add(cx, &mut target, member)? {
            target.save(cx)?;
            cx.event(Event::Set, "sadd", to);
        }
    }
    cx.out.int(1);
    Ok(())
}

/// From larger sets, random members are chosen without reading all members.
const WHOLE_MAX: u64 = 1000;

/// Chooses random members. In a large set, it skips a few members from a random point for each.
fn some(cx: &Cx<'_>, set: &Collection, count: usize, repeats: bool) -> Done<Vec<Vec<u8>>> {
    let len = set.len() as usize;
    if set.len() <= WHOLE_MAX || count > len / 4 {
        let members = set.subs(cx)?;
        let places = random_places(members.len(), count, repeats);
        let chosen = places.map(|place| {
            cx.gather(members[place].len())?;
            Ok(members[place].clone())
        });
        return chosen.collect();
    }
    let ends = [Order::Up, Order::Down].map(|order| {
        let mut end = Vec::new();
        let walked = set.range(cx, Span::ALL, order, &mut |member, _| {
            end = member.to_vec();
            ControlFlow::Break(())
        });
        walked.map(|()| end)
    });
    let [first, last] = ends;
    let (first, last) = (first?, last?);
    let shared = first.iter().zip(&last).take_while(|(a, b)| a == b).count();
    let head = |member: &[u8]| {
        let mut head = [0; 8];
        let rest = &member[shared.min(member.len())..];
        head[..rest.len().min(8)].copy_from_slice(&rest[..rest.len().min(8)]);
        u64::from_be_bytes(head)
    };
    let (low, high) = (head(&first), head(&last).max(head(&first)));
    let mut chosen = Vec::new();
    let mut seen = BTreeSet::new();
    while chosen.len() < count {
        let probe = [&first[..shared], &fastrand::u64(low..=high).to_be_bytes()].concat();
        let (mut skip, mut found) = (fastrand::usize(..16), None);
        set.range(cx, Span::from(&probe), Order::Up, &mut |member, _| {
            found = Some(member.to_vec());
            skip = skip.saturating_sub(1);
            if skip == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        let member = found.unwrap_or_else(|| last.clone());
        cx.gather(2 * member.len())?;
        if repeats || seen.insert(member.clone()) {
            chosen.push(member);
        } else {
            // Random probes alone may take long: take the next member that is not chosen yet.
            set.range(cx, Span::from(&member), Order::Up, &mut |member, _| {
                if seen.insert(member.to_vec()) {
                    chosen.push(member.to_vec());
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            })?;
        }
    }
    Ok(chosen)
}

fn spop(cx: &mut Cx<'_>, request: &Request) -> Done {
    let count = match request.len() {
        2 => None,
        3 => Some(
            usize::try_from(int(&request[2])?).map_err(|_| "ERR value is out of range, must be positive")?,
        ),
        _ => return Err(SYNTAX.into()),
    };
    let set = open(cx, &request[1])?;
    let chosen = match &set {
        Some(set) => some(cx, set, count.unwrap_or(1), false)?,
        None => Vec::new(),
    };
    if let Some(mut set) = set.filter(|_| !chosen.is_empty()) {
        for member in &chosen {
            take(cx, &mut set, member)?;
        }
        save_smaller(cx, set, "spop")?;
    }
    match count {
        None => cx.out.bulk_or_null(chosen.first().map(Vec::as_slice)),
        Some(_) => {
            cx.out.set(chosen.len());
            chosen.iter().for_each(|member| cx.out.bulk(member));
        }
    }
    Ok(())
}

fn srandmember(cx: &mut Cx<'_>, request: &Request) -> Done {
    let count = match request.len() {
        2 => None,
        3 => Some(random_count(request, 2, false)?),
        _ => return Err(SYNTAX.into()),
    };
    let (n, repeats) = count.unwrap_or((1, false));
    let set = open(cx, &request[1])?;
    if let Some(set) = set.as_ref().filter(|set| repeats && n as u64 > set.len() / 4) {
        // The request may ask for any number of members, so they are produced one by one.
        let members = set.subs(cx)?;
        cx.out.array(random_len(members.len(), n, repeats));
        for place in random_places(members.len(), n, repeats) {
            if cx.out.is_cut() {
                break;
            }
            cx.out.bulk(&members[place]);
        }
        return Ok(());
    }
    let chosen = match set {
        Some(set) => some(cx, &set, n, repeats)?,
        None => Vec::new(),
    };
    match count {
        None => cx.out.bulk_or_null(chosen.first().map(Vec::as_slice)),
        Some(_) => {
            cx.out.array(chosen.len());
            chosen.iter().for_each(|member| cx.out.bulk(member));
        }
    }
    Ok(())
}

fn sscan(cx: &mut Cx<'_>, request: &Request) -> Done {
    let step = Step::parse(cx, request, 2)?;
    let set = open(cx, &request[1])?;
    let (last, found) = walk_step(cx, set.as_ref(), &step)?;
    put_cursor(cx, &step, last.as_deref());
    cx.out.array(found.len());
    found.iter().for_each(|(member, _)| cx.out.bulk(member));
    Ok(())
}

/// How sets are combined.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Combine {
    All,
    Common,
    Without,
}

fn combined(cx: &mut Cx<'_>, keys: &[&[u8]], how: Combine, limit: usize) -> Done<Vec<Vec<u8>>> {
    if let [only] = keys {
        return members(cx, only);
    }
    if how == Combine::All {
        let mut all = BTreeSet::new();
        for key in keys {
            all.extend(members(cx, key)?);
        }
        return Ok(all.into_iter().collect());
    }
    // All types are checked, even if the first set is empty.
    let mut sets = Vec::new();
    for key in keys {
        sets.push(open(cx, key)?);
    }
    if how == Combine::Common {
        let Some(mut sets) = sets.into_iter().collect::<Option<Vec<_>>>() else { return Ok(Vec::new()) };
        sets.sort_by_key(Collection::len);
        let mut common = Vec::new();
        for member in sets[0].subs(cx)? {
            if is_in_all(cx, &sets[1..], &member)? {
                common.push(member);
                if common.len() == limit {
                    break;
                }
            }
        }
        return Ok(common);
    }
    let mut left = Vec::new();
    if let Some(first) = &sets[0] {
        let others: Vec<_> = sets[1..].iter().flatten().collect();
        'members: for member in first.subs(cx)? {
            for other in &others {
                if other.get(cx, &member)?.is_some() {
                    continue 'members;
                }
            }
            left.push(member);
        }
    }
    Ok(left)
}

fn is_in_all(cx: &Cx<'_>, sets: &[Collection], member: &[u8]) -> Done<bool> {
    for set in sets {
        if set.get(cx, member)?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn combine(cx: &mut Cx<'_>, request: &Request, how: Combine) -> Done {
    let members = combined(cx, &request.tail(1), how, usize::MAX)?;
    cx.out.set(members.len());
    members.iter().for_each(|member| cx.out.bulk(member));
    Ok(())
}

fn combine_store(cx: &mut Cx<'_>, request: &Request, how: Combine) -> Done {
    let members = combined(cx, &request.tail(2), how, usize::MAX)?;
    let to = &request[1];
    if let Some(old) = cx.main(to)? {
        cx.remove_key(to, &old)?;
        if members.is_empty() {
            cx.event(Event::Generic, "del", to);
        }
    }
    if !members.is_empty() {
        let mut set = Collection::new(cx, to, Kind::Set)?;
        for member in &members {
            set.put(cx, member, b"")?;
        }
        set.shape.len = members.len() as u64;
        set.save(cx)?;
        let event = match how {
            Combine::All => "sunionstore",
            Combine::Common => "sinterstore",
            Combine::Without => "sdiffstore",
        };
        cx.event(Event::Set, event, to);
    }
    cx.out.count(members.len());
    Ok(())
}

/// Parses a number of keys and the keys. Returns them and the position after them.
pub(super) fn numbered_keys(request: &Request, at: usize) -> Done<(Vec<&[u8]>, usize)> {
    let count = int(&request[at]).map_err(|_| "ERR numkeys should be greater than 0")?;
    let count =
        usize::try_from(count).ok().filter(|n| *n > 0).ok_or("ERR numkeys should be greater than 0")?;
    if count > request.len() - at - 1 {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    Ok((request.from(at + 1).take(count).collect(), at + 1 + count))
}

/// Parses a final `COUNT` of a command that pops. Without one, one item is popped.
pub(super) fn count_of_pop(request: &Request, at: usize) -> Done<usize> {
    match request.len() - at {
        0 => Ok(1),
        2 if request.is(at, "count") => {
            let count = int(&request[at + 1]).ok().and_then(|count| usize::try_from(count).ok());
            count.filter(|count| *count > 0).ok_or_else(|| "ERR count should be greater than 0".into())
        }
        _ => Err(SYNTAX.into()),
    }
}

/// Parses a final `LIMIT` of a command that counts. Without one, or with 0, there is no limit.
pub(super) fn limit_of_count(request: &Request, at: usize) -> Done<usize> {
    let limit = match request.len() - at {
        0 => 0,
        2 if request.is(at, "limit") => {
            let limit = int(&request[at + 1]).map_err(|_| "ERR LIMIT can't be negative")?;
            usize::try_from(limit).map_err(|_| "ERR LIMIT can't be negative")?
        }
        _ => return Err(SYNTAX.into()),
    };
    Ok(if limit == 0 { usize::MAX } else { limit })
}

fn sintercard(cx: &mut Cx<'_>, request: &Request) -> Done {
    let (keys, next) = numbered_keys(request, 1)?;
    let limit = limit_of_count(request, next)?;
    let common = combined(cx, &keys, Combine::Common, limit)?;
    cx.out.count(common.len().min(limit));
    Ok(())
}
