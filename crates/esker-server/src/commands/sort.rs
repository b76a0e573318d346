//! `SORT`: sorts the elements of a list, a set or a sorted set, possibly by the values of other keys.

use crate::base::events::Event;
use crate::command::spec::Group::Generic;
use crate::resp::Request;
use crate::resp::fail::{Done, Fail, SYNTAX};
use crate::resp::numbers::{int, parse_weight};
use crate::run::cx::Cx;
use crate::run::registry::row::*;
use crate::types::{Collection, End, Kind, List, SortedSet};
use std::cmp::Ordering;

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("sort", -2, WRITE | DENY_OOM | DANGEROUS, Keys::Stored(sort_to), Generic, "key [by pattern] [limit skip n] [get pattern ...] [asc|desc] [alpha] [store to]", "Returns or stores the elements of a key, sorted.", |cx, r| sort(cx, r, false)).uses(Uses::STORE_SECOND).reaches(reach::sort_patterns).in_categories(&["set", "sortedset", "list"]),
    command("sort_ro", -2, READ | DANGEROUS | MOVABLE_KEYS, FIRST, Generic, "key [by pattern] [limit skip n] [get pattern ...] [asc|desc] [alpha]", "Same as SORT, without STORE.", |cx, r| sort(cx, r, true)).reaches(reach::sort_patterns).in_categories(&["set", "sortedset", "list"]),
];

struct Options<'r> {
    by: Option<&'r [u8]>,
    gets: Vec<&'r [u8]>,
    part: Option<(i64, i64)>,
    is_down: bool,
    is_alpha: bool,
    to: Option<&'r [u8]>,
}

fn options(request: &Request, only_reads: bool) -> Done<Options<'_>> {
    let mut options =
        Options { by: None, gets: Vec::new(), part: None, is_down: false, is_alpha: false, to: None };
    let mut at = 2;
    while at < request.len() {
        let next = || request.get(at + 1).ok_or(SYNTAX);
        match request[at].to_ascii_lowercase().as_slice() {
            b"asc" => options.is_down = false,
            b"desc" => options.is_down = true,
            b"alpha" => options.is_alpha = true,
            b"by" => {
                options.by = Some(next()?);
                at += 1;
            }
            b"get" => {
                options.gets.push(next()?);
                at += 1;
            }
            b"store" if !only_reads => {
                options.to = Some(next()?);
                at += 1;
            }
            b"limit" => {
                options.part = Some((int(next()?)?, int(request.get(at + 2).ok_or(SYNTAX)?)?));
                at += 2;
            }
            _ => return Err(SYNTAX.into()),
        }
        at += 1;
    }
    Ok(options)
}

/// Resolves a pattern: `#` is the element itself, `key->field` a field of a hash, and other patterns a
/// string.
fn look_up(cx: &mut Cx<'_>, pattern: &[u8], element: &[u8]) -> Done<Option<Vec<u8>>> {
    if pattern == b"#" {
        return Ok(Some(element.to_vec()));
    }
    let Some(star) = pattern.iter().position(|byte| *byte == b'*') else { return Ok(None) };
    let arrow =
        pattern.windows(2).position(|pair| pair == b"->").filter(|at| *at > star && at + 2 < pattern.len());
    let (key, field) = match arrow {
        Some(at) => (&pattern[..at], Some(&pattern[at + 2..])),
        None => (pattern, None),
    };
    let key = [&key[..star], element, &key[star + 1..]].concat();
    let Some(main) = cx.main(&key)? else { return Ok(None) };
    match (field, main.kind) {
        (None, Kind::String) => Ok(Some(main.text().to_vec())),
        (Some(field), Kind::Hash) => {
            Ok(Collection::of(&key, &main)?.get(cx, field)?.map(|value| value.to_vec()))
        }
        _ => Ok(None),
    }
}

fn elements(cx: &mut Cx<'_>, key: &[u8]) -> Done<Vec<Vec<u8>>> {
    let Some(main) = cx.main(key)? else { return Ok(Vec::new()) };
    match main.kind {
        Kind::List => List::open(cx, key)?.map_or(Ok(Vec::new()), |list| list.elements(cx)),
        Kind::Set => Collection::of(key, &main)?.subs(cx),
        Kind::SortedSet => Ok(SortedSet::all_of(cx, key)?.into_iter().map(|(member, _)| member).collect()),
        _ => Err(Fail::WrongType),
    }
}

/// The value by which an element is sorted.
#[derive(PartialEq)]
enum Weight {
    Number(f64),
    Text(Option<Vec<u8>>),
}

impl Weight {
    fn order(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Weight::Number(a), Weight::Number(b)) => a.total_cmp(b),
            (Weight::Text(a), Weight::Text(b)) => a.cmp(b),
            _ => Ordering::Equal,
        }
    }
}

fn sort(cx: &mut Cx<'_>, request: &Request, only_reads: bool) -> Done {
    let options = options(request, only_reads)?;
    let mut found = elements(cx, &request[1])?;
    // A `BY` pattern without `*` means that the elements are not sorted.
    let is_unsorted = options.by.is_some_and(|by| !by.contains(&b'*'));
    if is_unsorted && options.is_down {
        found.reverse();
    }
    if !is_unsorted {
        let mut weighed = Vec::with_capacity(found.len());
        for element in found {
            let weight = match options.by {
                Some(by) => look_up(cx, by, &element)?,
                None => Some(element.clone()),
            };
            cx.gather(weight.as_ref().filter(|_| options.is_alpha).map_or(0, Vec::len))?;
            let weight = match (options.is_alpha, weight) {
                (true, weight) => Weight::Text(weight),
                (false, None) => Weight::Number(0.0),
                // C reads a text up to its first zero byte, and an empty one as 0.
                (false, Some(text)) if text.first().is_none_or(|byte| *byte == 0) => Weight::Number(0.0),
                (false, Some(text)) => Weight::Number(
                    parse_weight(&text).ok_or("ERR One or more scores can't be converted into double")?,
                ),
            };
            weighed.push((weight, element));
        }
        weighed.sort_by(|a, b| a.0.order(&b.0).then_with(|| a.1.cmp(&b.1)));
        found = weighed.into_iter().map(|(_, element)| element).collect();
        if options.is_down {
            found.reverse();
        }
    }
    if let Some((skip, count)) = options.part {
        let skip = usize::try_from(skip).unwrap_or(0).min(found.len());
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        found = found.into_iter().skip(skip).take(count).collect();
    }
    let shown = shown(cx, &options, found)?;
    match options.to {
        Some(to) => store(cx, to, shown),
        None => {
            cx.out.array(shown.len());
            shown.iter().for_each(|element| cx.out.bulk_or_null(element.as_deref()));
            Ok(())
        }
    }
}

/// Returns what the reply shows of the elements. `GET` may fetch the same large text any number of times.
fn shown(cx: &mut Cx<'_>, options: &Options<'_>, found: Vec<Vec<u8>>) -> Done<Vec<Option<Vec<u8>>>> {
    if options.gets.is_empty() {
        return Ok(found.into_iter().map(Some).collect());
    }
    let (mut shown, mut bytes) = (Vec::new(), 0);
    for element in found {
        for pattern in &options.gets {
            let text = look_up(cx, pattern, &element)?;
            let len = text.as_ref().map_or(0, Vec::len);
            bytes += len;
            if options.to.is_none() && bytes > cx.out.bytes_max {
                return Err(cx.out.too_large());
            }
            cx.gather(len)?;
            shown.push(text);
        }
    }
    Ok(shown)
}

fn store(cx: &mut Cx<'_>, to: &[u8], elements: Vec<Option<Vec<u8>>>) -> Done {
    if let Some(old) = cx.main(to)? {
        cx.remove_key(to, &old)?;
        if elements.is_empty() {
            cx.event(Event::Generic, "del", to);
        }
    }
    if !elements.is_empty() {
        let mut list = List::open_or_new(cx, to)?;
        for element in &elements {
            list.push(cx, End::Right, element.as_deref().unwrap_or_default())?;
        }
        list.save(cx)?;
        cx.event(Event::List, "sortstore", to);
        cx.filled(to);
    }
    cx.out.count(elements.len());
    Ok(())
}
