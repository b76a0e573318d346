//! Lists. Moves and waiting pops are in `list_pops.rs`.

use std::ops::ControlFlow;

use crate::base::events::Event;
use crate::command::spec::Group::List as Lists;
use crate::resp::Request;
use crate::resp::fail::{Done, Fail, NO_KEY, SYNTAX};
use crate::resp::numbers::{int, places};
use crate::run::cx::Cx;
use crate::run::registry::row::*;
use crate::store::{Order, Value};
use crate::types::{End, List};

const ADD: u32 = WRITE | DENY_OOM;

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("lindex", 3, READ, FIRST, Lists, "key index", "Returns the element at an index.", lindex),
    command("linsert", 5, ADD, FIRST, Lists, "key before|after pivot element", "Inserts an element before or after another.", linsert).each(KeyUse::INSERT),
    command("llen", 2, READ | FAST | ONE, FIRST, Lists, "key", "Returns the number of elements.", llen).each(KeyUse::LOOK),
    command("lpop", -2, WRITE | FAST, FIRST, Lists, "key [count]", "Removes and returns the first elements.", |cx, r| pop(cx, r, End::Left)).each(KeyUse::TAKE),
    command("lpos", -3, READ, FIRST, Lists, "key element [rank n] [count n] [maxlen n]", "Returns the positions of an element.", lpos),
    command("lpush", -3, ADD | FAST, FIRST, Lists, "key element ...", "Adds elements at the front.", |cx, r| push(cx, r, End::Left, false)).each(KeyUse::INSERT),
    command("lpushx", -3, ADD | FAST, FIRST, Lists, "key element ...", "Adds elements at the front of an existing list.", |cx, r| push(cx, r, End::Left, true)).each(KeyUse::INSERT),
    command("lrange", 4, READ, FIRST, Lists, "key start stop", "Returns the elements of a range.", lrange),
    command("lrem", 4, WRITE, FIRST, Lists, "key count element", "Removes elements with this value.", lrem).each(KeyUse::DELETE),
    command("lset", 4, ADD, FIRST, Lists, "key index element", "Sets the element at an index.", lset),
    command("ltrim", 4, WRITE, FIRST, Lists, "key start stop", "Removes all elements outside a range.", ltrim).each(KeyUse::DELETE),
    command("rpop", -2, WRITE | FAST, FIRST, Lists, "key [count]", "Removes and returns the last elements.", |cx, r| pop(cx, r, End::Right)).each(KeyUse::TAKE),
    command("rpush", -3, ADD | FAST, FIRST, Lists, "key element ...", "Adds elements at the end.", |cx, r| push(cx, r, End::Right, false)).each(KeyUse::INSERT),
    command("rpushx", -3, ADD | FAST, FIRST, Lists, "key element ...", "Adds elements at the end of an existing list.", |cx, r| push(cx, r, End::Right, true)).each(KeyUse::INSERT),
];

/// Saves a list after elements were removed.
pub(super) fn save_shorter(cx: &mut Cx<'_>, list: List, event: &str) -> Done {
    let (key, is_empty) = (list.key().to_vec(), list.is_empty());
    list.save(cx)?;
    cx.event(Event::List, event, &key);
    if is_empty {
        cx.event(Event::Generic, "del", &key);
    }
    Ok(())
}

fn push(cx: &mut Cx<'_>, request: &Request, end: End, must_be_there: bool) -> Done {
    let key = &request[1];
    let mut list = match must_be_there {
        true => match List::open(cx, key)? {
            Some(list) => list,
            None => {
                cx.out.int(0);
                return Ok(());
            }
        },
        false => List::open_or_new(cx, key)?,
    };
    for element in request.from(2) {
        list.push(cx, end, element)?;
    }
    cx.out.int(list.len() as i64);
    list.save(cx)?;
    cx.event(Event::List, if end == End::Left { "lpush" } else { "rpush" }, key);
    cx.filled(key);
    Ok(())
}

/// Removes up to `count` elements at one end of a list, and returns them.
pub(super) fn take(cx: &mut Cx<'_>, list: &mut List, end: End, count: usize) -> Done<Vec<Value>> {
    let mut taken = Vec::new();
    while taken.len() < count {
        match list.pop(cx, end)? {
            Some(element) => {
                cx.gather(element.len())?;
                taken.push(element);
            }
            None => break,
        }
    }
    Ok(taken)
}

pub(super) fn pop_event(end: End) -> &'static str {
    if end == End::Left { "lpop" } else { "rpop" }
}

fn pop(cx: &mut Cx<'_>, request: &Request, end: End) -> Done {
    let count = match request.len() {
        2 => None,
        3 => Some(
            usize::try_from(int(&request[2])?).map_err(|_| "ERR value is out of range, must be positive")?,
        ),
        _ => {
            return Err(Fail::text(format!(
                "ERR wrong number of arguments for '{}' command",
                pop_event(end)
            )));
        }
    };
    let Some(mut list) = List::open(cx, &request[1])? else {
        match count {
            None => cx.out.null(),
            Some(_) => cx.out.null_array(),
        }
        return Ok(());
    };
    let taken = take(cx, &mut list, end, count.unwrap_or(1))?;
    if !taken.is_empty() {
        save_shorter(cx, list, pop_event(end))?;
    }
    match count {
        None => cx.out.bulk_or_null(taken.first().map(|element| &**element)),
        Some(_) => {
            cx.out.array(taken.len());
            taken.iter().for_each(|element| cx.out.bulk(element));
        }
    }
    Ok(())
}

fn llen(cx: &mut Cx<'_>, request: &Request) -> Done {
    let len = List::open(cx, &request[1])?.map_or(0, |list| list.len());
    cx.out.int(len as i64);
    Ok(())
}

/// Resolves an index, which counts from the end if negative. Returns none if it is outside of the list.
fn position(index: i64, len: u64) -> Option<u64> {
    let index = if index < 0 { index.checked_add_unsigned(len)? } else { index };
    u64::try_from(index).ok().filter(|index| *index < len)
}

fn lindex(cx: &mut Cx<'_>, request: &Request) -> Done {
    let index = int(&request[2])?;
    let element = match List::open(cx, &request[1])? {
        Some(list) => match position(index, list.len()) {
            Some(at) => list.get(cx, at)?,
            None => None,
        },
        None => None,
    };
    cx.out.bulk_or_null(element.as_deref());
    Ok(())
}

fn lset(cx: &mut Cx<'_>, request: &Request) -> Done {
    let mut list = List::open(cx, &request[1])?.ok_or(NO_KEY)?;
    let at = position(int(&request[2])?, list.len()).ok_or("ERR index out of range")?;
    list.set(cx, at, &request[3])?;
    list.save(cx)?;
    cx.event(Event::List, "lset", &request[1]);
    cx.out.ok();
    Ok(())
}

fn lrange(cx: &mut Cx<'_>, request: &Request) -> Done {
    let (start, stop) = (int(&request[2])?, int(&request[3])?);
    let (mark, mut len) = (cx.out.mark(), 0);
    if let Some(list) = List::open(cx, &request[1])?
        && let Some((from, to)) = places(start, stop, list.len())
    {
        cx.with_reply(|cx, out| {
            list.walk(cx, from, to, Order::Up, &mut |_, element| {
                out.bulk(element);
                len += 1;
                if out.is_cut() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
        })?;
    }
    cx.out.array_at(mark, len);
    Ok(())
}

fn ltrim(cx: &mut Cx<'_>, request: &Request) -> Done {
    let (start, stop) = (int(&request[2])?, int(&request[3])?);
    if let Some(mut list) = List::open(cx, &request[1])? {
        let kept = places(start, stop, list.len());
        list.trim(cx, kept)?;
        save_shorter(cx, list, "ltrim")?;
    }
    cx.out.ok();
    Ok(())
}

fn linsert(cx: &mut Cx<'_>, request: &Request) -> Done {
    let is_after = match request[2].to_ascii_lowercase().as_slice() {
        b"before" => false,
        b"after" => true,
        _ => return Err(SYNTAX.into()),
    };
    let Some(mut list) = List::open(cx, &request[1])? else {
        cx.out.int(0);
        return Ok(());
    };
    let mut pivot = None;
    list.walk(cx, 0, list.len() - 1, Order::Up, &mut |index, element| {
        if element == &request[3] {
            pivot = Some(index);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    let Some(pivot) = pivot else {
        cx.out.int(-1);
        return Ok(());
    };
    list.insert(cx, pivot + u64::from(is_after), &request[4])?;
    cx.out.int(list.len() as i64);
    list.save(cx)?;
    cx.event(Event::List, "linsert", &request[1]);
    Ok(())
}

fn lrem(cx: &mut Cx<'_>, request: &Request) -> Done {
    let count = int(&request[2])?;
    let Some(mut list) = List::open(cx, &request[1])? else {
        cx.out.int(0);
        return Ok(());
    };
    let old = list.elements(cx)?;
    let mut left = if count == 0 { u64::MAX } else { count.unsigned_abs() };
    let mut is_kept = |element: &&Vec<u8>| {
        let is_meant = left > 0 && **element == request[3];
        left -= u64::from(is_meant);
        !is_meant
    };
    // The elements are in memory twice: before and after the removal.
    old.iter().try_for_each(|element| cx.gather(element.len()))?;
    let new: Vec<Vec<u8>> = match count < 0 {
        false => old.iter().filter(&mut is_kept).cloned().collect(),
        true => {
            let mut new: Vec<_> = old.iter().rev().filter(&mut is_kept).cloned().collect();
            new.reverse();
            new
        }
    };
    let removed = old.len() - new.len();
    if removed > 0 {
        list.replace(cx, &old, &new)?;
        save_shorter(cx, list, "lrem")?;
    }
    cx.out.count(removed);
    Ok(())
}

fn lpos(cx: &mut Cx<'_>, request: &Request) -> Done {
    let (mut rank, mut count, mut max) = (1, None, 0);
    if request.len().is_multiple_of(2) {
        // An even number of words cannot be right, because options come in pairs.
        if request.len() > 3 {
            return Err(SYNTAX.into());
        }
    }
    for at in (3..request.len()).step_by(2) {
        let value = request.get(at + 1).ok_or(SYNTAX)?;
        match request[at].to_ascii_lowercase().as_slice() {
            b"rank" => {
                rank = int(value)?;
                if rank == 0 {
                    return Err(
                        "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... \
                                or use negative to start from the end of the list"
                            .into(),
                    );
                }
                if rank == i64::MIN {
                    return Err("ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807".into());
                }
            }
            b"count" => {
                let given = int(value).ok().and_then(|n| usize::try_from(n).ok());
                count = Some(given.ok_or("ERR COUNT can't be negative")?);
            }
            b"maxlen" => {
                let given = int(value).ok().and_then(|n| u64::try_from(n).ok());
                max = given.ok_or("ERR MAXLEN can't be negative")?;
            }
            _ => return Err(SYNTAX.into()),
        }
    }
    let mut found = Vec::new();
    if let Some(list) = List::open(cx, &request[1])? {
        let wanted = count.map_or(1, |count| if count == 0 { usize::MAX } else { count });
        let (mut skip, mut seen) = (rank.unsigned_abs() - 1, 0);
        let order = if rank < 0 { Order::Down } else { Order::Up };
        list.walk(cx, 0, list.len() - 1, order, &mut |index, element| {
            seen += 1;
            if element == &request[2] {
                if skip > 0 {
                    skip -= 1;
                } else {
                    found.push(index);
                }
            }
            match found.len() >= wanted || seen == max {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
    }
    match count {
        None => match found.first() {
            Some(index) => cx.out.int(*index as i64),
            None => cx.out.null(),
        },
        Some(_) => {
            cx.out.array(found.len());
            found.iter().for_each(|index| cx.out.int(*index as i64));
        }
    }
    Ok(())
}
