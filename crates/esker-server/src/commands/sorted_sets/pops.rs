//! Removes members from sorted sets by score, and waits for members.

use super::super::sets::{count_of_pop, numbered_keys};
use super::save_smaller;
use crate::command::spec::Group::SortedSet as Sorted;
use crate::resp::Request;
use crate::resp::fail::{Done, Fail, SYNTAX};
use crate::resp::numbers::{int, timeout};
use crate::run::cx::Cx;
use crate::run::registry::row::*;
use crate::store::Order;
use crate::types::{Scored, SortedSet, ZSpan};

const WAITED: Keys = Keys::At(1, -2, 1);

#[rustfmt::skip]
pub(in super::super) const TABLE: &[Command] = &[
    command("bzmpop", -5, WRITE | BLOCKING, Keys::Numbered(2, 0), Sorted, "seconds n key ... min|max [count n]", "Removes and returns members like ZMPOP, and waits for some.", bzmpop).each(KeyUse::TAKE),
    command("bzpopmax", -3, WRITE | BLOCKING | FAST, WAITED, Sorted, "key ... seconds", "Removes and returns the member with the largest score, and waits for one.", |cx, r| bzpop(cx, r, Order::Down)).each(KeyUse::TAKE),
    command("bzpopmin", -3, WRITE | BLOCKING | FAST, WAITED, Sorted, "key ... seconds", "Removes and returns the member with the smallest score, and waits for one.", |cx, r| bzpop(cx, r, Order::Up)).each(KeyUse::TAKE),
    command("zmpop", -4, WRITE, Keys::Numbered(1, 0), Sorted, "n key ... min|max [count n]", "Removes and returns members of the first set that is not empty.", zmpop).each(KeyUse::TAKE),
    command("zpopmax", -2, WRITE | FAST, FIRST, Sorted, "key [count]", "Removes and returns the members with the largest scores.", |cx, r| zpop(cx, r, Order::Down)).each(KeyUse::TAKE),
    command("zpopmin", -2, WRITE | FAST, FIRST, Sorted, "key [count]", "Removes and returns the members with the smallest scores.", |cx, r| zpop(cx, r, Order::Up)).each(KeyUse::TAKE),
];

fn pop(cx: &mut Cx<'_>, key: &[u8], order: Order, count: usize) -> Done<Vec<Scored>> {
    let Some(mut set) = SortedSet::open(cx, key)? else { return Ok(Vec::new()) };
    let found = set.list(cx, &ZSpan::all(), order, 0, count)?;
    if found.is_empty() {
        return Ok(found);
    }
    for (member, score) in &found {
        set.remove(cx, member, *score)?;
    }
    save_smaller(cx, set, if order == Order::Up { "zpopmin" } else { "zpopmax" })?;
    Ok(found)
}

fn zpop(cx: &mut Cx<'_>, request: &Request, order: Order) -> Done {
    let count = match request.len() {
        2 => None,
        3 => Some(
            usize::try_from(int(&request[2])?).map_err(|_| "ERR value is out of range, must be positive")?,
        ),
        _ => return Err(SYNTAX.into()),
    };
    let found = pop(cx, &request[1], order, count.unwrap_or(1))?;
    let is_nested = cx.out.is_resp3 && count.is_some();
    cx.out.array(if is_nested { found.len() } else { 2 * found.len() });
    for (member, score) in &found {
        if is_nested {
            cx.out.array(2);
        }
        cx.out.bulk(member);
        cx.out.double(*score);
    }
    Ok(())
}

fn bzpop(cx: &mut Cx<'_>, request: &Request, order: Order) -> Done {
    let last = request.len() - 1;
    let ms = timeout(&request[last])?;
    let keys: Vec<_> = request.from(1).take(last - 1).collect();
    for key in &keys {
        if let [(member, score)] = pop(cx, key, order, 1)?.as_slice() {
            cx.out.array(3);
            cx.out.bulk(key);
            cx.out.bulk(member);
            cx.out.double(*score);
            return Ok(());
        }
    }
    Err(Fail::blocks(keys, ms, "zset"))
}

/// Removes members from the first set that has any, and replies. Returns the keys if all sets are empty.
fn pop_first<'r>(cx: &mut Cx<'_>, request: &'r Request, at: usize) -> Done<Option<Vec<&'r [u8]>>> {
    let (keys, next) = numbered_keys(request, at)?;
    let order = match request.get(next).map(<[u8]>::to_ascii_lowercase).as_deref() {
        Some(b"min") => Order::Up,
        Some(b"max") => Order::Down,
        _ => return Err(SYNTAX.into()),
    };
    let count = count_of_pop(request, next + 1)?;
    for key in &keys {
        let found = pop(cx, key, order, count)?;
        if !found.is_empty() {
            cx.out.array(2);
            cx.out.bulk(key);
            cx.out.array(found.len());
            for (member, score) in &found {
                cx.out.array(2);
                cx.out.bulk(member);
                cx.out.double(*score);
            }
            return Ok(None);
        }
    }
    Ok(Some(keys))
}

fn zmpop(cx: &mut Cx<'_>, request: &Request) -> Done {
    if pop_first(cx, request, 1)?.is_some() {
        cx.out.null_array();
    }
    Ok(())
}

fn bzmpop(cx: &mut Cx<'_>, request: &Request) -> Done {
    let ms = timeout(&request[1])?;
    match pop_first(cx, request, 2)? {
        None => Ok(()),
        Some(keys) => Err(Fail::blocks(keys, ms, "zset")),
    }
}
