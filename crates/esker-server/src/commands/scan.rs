//! Walks over keys: `KEYS` and `SCAN`, and the code that walks over fields and members share.

use std::ops::{Bound, ControlFlow};

use crate::base::glob;
use crate::command::spec::Group::Generic;
use crate::resp::Request;
use crate::resp::fail::{Done, NO_INTEGER, SYNTAX};
use crate::resp::numbers::int;
use crate::run::cursors::From;
use crate::run::cx::Cx;
use crate::run::registry::row::*;
use crate::store::record::HEAD_BYTES_MAX;
use crate::store::{Order, Span, Value, prefix_end};
use crate::types::{Main, is_absent};

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("keys", 2, READ | DANGEROUS, NO_KEYS, Generic, "pattern", "Returns all keys that match, in order.", keys),
    command("scan", -2, READ, NO_KEYS, Generic, "cursor [match pattern] [count n] [type name]", "Returns some of the keys that match, and a cursor to continue.", scan),
];

const UNKNOWN_CURSOR: &str = "ERR the cursor is not known: begin again with cursor 0";

/// The arguments of one step of a walk.
pub(super) struct Step {
    /// Where the step continues.
    from: From,
    pub pattern: Option<Vec<u8>>,
    pub count: usize,
    kind: Option<String>,
    pub without_values: bool,
}

impl Step {
    /// Parses the words from the cursor on.
    pub(super) fn parse(cx: &Cx<'_>, request: &Request, first: usize) -> Done<Self> {
        let cursor = std::str::from_utf8(&request[first]).ok().and_then(|text| text.parse().ok());
        let cursor: u64 = cursor.ok_or("ERR invalid cursor")?;
        let from = cx.server.databases.cursors.find(cursor).ok_or(UNKNOWN_CURSOR)?;
        let mut step = Step { from, pattern: None, count: 10, kind: None, without_values: false };
        let mut at = first + 1;
        while at < request.len() {
            if first == 2 && (request.is(at, "novalues") || request.is(at, "noscores")) {
                step.without_values = true;
                at += 1;
                continue;
            }
            let value = request.get(at + 1).ok_or(SYNTAX)?;
            if request.is(at, "match") {
                step.pattern = Some(value.to_vec());
            } else if request.is(at, "count") {
                let count = int(value).map_err(|_| NO_INTEGER)?;
                step.count = usize::try_from(count).ok().filter(|count| *count > 0).ok_or(SYNTAX)?;
            } else if request.is(at, "type") && first == 1 {
                step.kind = Some(String::from_utf8_lossy(value).to_lowercase());
            } else {
                return Err(SYNTAX.into());
            }
            at += 2;
        }
        Ok(step)
    }

    /// Returns whether a key or member matches the pattern.
    pub(super) fn wants(&self, name: &[u8]) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, name))
    }

    /// Returns the keys that the walk has not reached yet.
    pub(super) fn span(&self) -> Span<'_> {
        match &self.from {
            From::Start => Span::ALL,
            From::Behind(_, key) => Span { lower: Bound::Excluded(key), upper: Bound::Unbounded },
        }
    }
}

/// Begins the reply with the cursor of the next step.
pub(super) fn put_cursor(cx: &mut Cx<'_>, step: &Step, last: Option<&[u8]>) {
    let number = last.map_or(0, |key| cx.server.databases.cursors.number(&step.from, key));
    cx.out.array(2);
    cx.out.bulk(number.to_string().as_bytes());
}

fn keys(cx: &mut Cx<'_>, request: &Request) -> Done {
    let pattern = &request[1];
    let prefix = glob::prefix(pattern);
    let end = prefix_end(prefix);
    let upper = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    let span = Span { lower: Bound::Included(prefix), upper };
    let mark = cx.out.mark();
    let (now, mut found, mut wrong) = (cx.expiry_now(), 0, None);
    let Cx { access, session, out, .. } = cx;
    let (reads, data) = (access.reads(), &session.data);
    reads.range(&data.main, span, Order::Up, &mut |key, value| {
        if glob::matches(pattern, key) {
            let main = head_of(value);
            match main.and_then(|main| Ok(is_absent(reads, &data.sub, &main, now)?)) {
                Ok(true) => {}
                Ok(false) => {
                    out.bulk(key);
                    found += 1;
                    if out.is_cut() {
                        return ControlFlow::Break(());
                    }
                }
                Err(error) => {
                    wrong = Some(error);
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    })?;
    if let Some(error) = wrong {
        return Err(error);
    }
    cx.out.array_at(mark, found);
    Ok(())
}

/// Decodes the head of a main record. A value may be long.
fn head_of(raw: &[u8]) -> Done<Main> {
    Ok(Main::decode(Value::copy_of(&raw[..raw.len().min(HEAD_BYTES_MAX)]))?)
}

fn scan(cx: &mut Cx<'_>, request: &Request) -> Done {
    let step = Step::parse(cx, request, 1)?;
    let now = cx.expiry_now();
    let mut seen = 0;
    let (mut last, mut found, mut wrong) = (None, Vec::new(), None);
    let cx_seen = &*cx;
    let (reads, data) = (cx_seen.access.reads(), &cx.session.data);
    let is_wanted = |key: &[u8], value: &[u8]| -> Done<bool> {
        let main = head_of(value)?;
        let is_kind = step.kind.as_ref().is_none_or(|kind| main.kind.name() == kind);
        Ok(is_kind && step.wants(key) && !is_absent(reads, &data.sub, &main, now)?)
    };
    reads.range(&data.main, step.span(), Order::Up, &mut |key, value| {
        seen += 1;
        if seen > step.count {
            return ControlFlow::Break(());
        }
        if seen == step.count {
            last = Some(key.to_vec());
        }
        let mut take = || -> Done {
            if is_wanted(key, value)? {
                cx_seen.gather(key.len())?;
                found.push(key.to_vec());
            }
            Ok(())
        };
        match take() {
            Ok(()) => ControlFlow::Continue(()),
            Err(fail) => {
                wrong = Some(fail);
                ControlFlow::Break(())
            }
        }
    })?;
    if let Some(error) = wrong {
        return Err(error);
    }
    // Without a key beyond the count, the walk is complete.
    let last = last.filter(|_| seen > step.count);
    put_cursor(cx, &step, last.as_deref());
    cx.out.array(found.len());
    found.iter().for_each(|key| cx.out.bulk(key));
    Ok(())
}
