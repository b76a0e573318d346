//! Moves between lists, and pops that may wait.

use super::lists::{pop_event, save_shorter, take};
use super::sets::{count_of_pop, numbered_keys};
use crate::base::events::Event;
use crate::command::spec::Group::List as Lists;
use crate::resp::Request;
use crate::resp::fail::{Done, Fail, SYNTAX};
use crate::resp::numbers::timeout;
use crate::run::cx::Cx;
use crate::run::registry::row::*;
use crate::store::Value;
use crate::types::{End, List};

const WAITS: u32 = WRITE | BLOCKING;
const WAITED: Keys = Keys::At(1, -2, 1);

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("blmove", 6, WAITS | DENY_OOM, FIRST_TWO, Lists, "from to left|right left|right seconds", "Moves an element like LMOVE, and waits for one.", blmove).uses(Uses::MOVE),
    command("blmpop", -5, WAITS, Keys::Numbered(2, 0), Lists, "seconds n key ... left|right [count n]", "Removes and returns elements like LMPOP, and waits for some.", blmpop).each(KeyUse::TAKE),
    command("blpop", -3, WAITS, WAITED, Lists, "key ... seconds", "Removes and returns the first element, and waits for one.", |cx, r| wait_pop(cx, r, End::Left)).each(KeyUse::TAKE),
    command("brpop", -3, WAITS, WAITED, Lists, "key ... seconds", "Removes and returns the last element, and waits for one.", |cx, r| wait_pop(cx, r, End::Right)).each(KeyUse::TAKE),
    command("brpoplpush", 4, WAITS | DENY_OOM, FIRST_TWO, Lists, "from to seconds", "Moves an element like RPOPLPUSH, and waits for one.", brpoplpush).uses(Uses::MOVE),
    command("lmove", 5, WRITE | DENY_OOM, FIRST_TWO, Lists, "from to left|right left|right", "Moves an element from one end of a list to an end of another.", lmove).uses(Uses::MOVE),
    command("lmpop", -4, WRITE, Keys::Numbered(1, 0), Lists, "n key ... left|right [count n]", "Removes and returns elements of the first list that is not empty.", lmpop).each(KeyUse::TAKE),
    command("rpoplpush", 3, WRITE | DENY_OOM, FIRST_TWO, Lists, "from to", "Moves the last element of a list to the front of another.", rpoplpush).uses(Uses::MOVE),
];

fn end(word: &[u8]) -> Done<End> {
    match word.to_ascii_lowercase().as_slice() {
        b"left" => Ok(End::Left),
        b"right" => Ok(End::Right),
        _ => Err(SYNTAX.into()),
    }
}

fn move_element(cx: &mut Cx<'_>, from: &[u8], to: &[u8], ends: [End; 2]) -> Done<Option<Value>> {
    let Some(mut source) = List::open(cx, from)? else { return Ok(None) };
    if from != to {
        // Check the type of the destination before an element is removed.
        List::open(cx, to).map_err(Fail::ends_wait)?;
    }
    let Some(element) = source.pop(cx, ends[0])? else { return Ok(None) };
    let push = |end| if end == End::Left { "lpush" } else { "rpush" };
    if from == to {
        source.push(cx, ends[1], &element)?;
        source.save(cx)?;
        cx.event(Event::List, pop_event(ends[0]), from);
    } else {
        save_shorter(cx, source, pop_event(ends[0]))?;
        let mut target = List::open_or_new(cx, to)?;
        target.push(cx, ends[1], &element)?;
        target.save(cx)?;
    }
    cx.event(Event::List, push(ends[1]), to);
    cx.filled(to);
    Ok(Some(element))
}

fn lmove(cx: &mut Cx<'_>, request: &Request) -> Done {
    let ends = [end(&request[3])?, end(&request[4])?];
    let moved = move_element(cx, &request[1], &request[2], ends)?;
    cx.out.bulk_or_null(moved.as_deref());
    Ok(())
}

fn rpoplpush(cx: &mut Cx<'_>, request: &Request) -> Done {
    let moved = move_element(cx, &request[1], &request[2], [End::Right, End::Left])?;
    cx.out.bulk_or_null(moved.as_deref());
    Ok(())
}

fn wait_move(cx: &mut Cx<'_>, request: &Request, ends: [End; 2], ms: u64) -> Done {
    match move_element(cx, &request[1], &request[2], ends)? {
        Some(moved) => {
            cx.out.bulk(&moved);
            Ok(())
        }
        None => Err(Fail::blocks(vec![&request[1]], ms, "list")),
    }
}

fn blmove(cx: &mut Cx<'_>, request: &Request) -> Done {
    let ends = [end(&request[3])?, end(&request[4])?];
    let ms = timeout(&request[5])?;
    wait_move(cx, request, ends, ms)
}

fn brpoplpush(cx: &mut Cx<'_>, request: &Request) -> Done {
    let ms = timeout(&request[3])?;
    wait_move(cx, request, [End::Right, End::Left], ms)
}

fn wait_pop(cx: &mut Cx<'_>, request: &Request, end: End) -> Done {
    let last = request.len() - 1;
    let ms = timeout(&request[last])?;
    let keys: Vec<_> = request.from(1).take(last - 1).collect();
    for key in &keys {
        let Some(mut list) = List::open(cx, key)? else { continue };
        if let [element] = take(cx, &mut list, end, 1)?.as_slice() {
            save_shorter(cx, list, pop_event(end))?;
            cx.out.array(2);
            cx.out.bulk(key);
            cx.out.bulk(element);
            return Ok(());
        }
    }
    Err(Fail::blocks(keys, ms, "list"))
}

/// Removes elements from the first list that has any, and replies. Returns the keys if all lists are empty.
fn pop_first<'r>(cx: &mut Cx<'_>, request: &'r Request, at: usize) -> Done<Option<Vec<&'r [u8]>>> {
    let (keys, next) = numbered_keys(request, at)?;
    let end = end(request.get(next).ok_or(SYNTAX)?)?;
    let count = count_of_pop(request, next + 1)?;
    for key in &keys {
        let Some(mut list) = List::open(cx, key)? else { continue };
        let taken = take(cx, &mut list, end, count)?;
        if !taken.is_empty() {
            save_shorter(cx, list, pop_event(end))?;
            cx.out.array(2);
            cx.out.bulk(key);
            cx.out.array(taken.len());
            taken.iter().for_each(|element| cx.out.bulk(element));
            return Ok(None);
        }
    }
    Ok(Some(keys))
}

fn lmpop(cx: &mut Cx<'_>, request: &Request) -> Done {
    if pop_first(cx, request, 1)?.is_some() {
        cx.out.null_array();
    }
    Ok(())
}

fn blmpop(cx: &mut Cx<'_>, request: &Request) -> Done {
    let ms = timeout(&request[1])?;
    match pop_first(cx, request, 2)? {
        None => Ok(()),
        Some(keys) => Err(Fail::blocks(keys, ms, "list")),
    }
}
