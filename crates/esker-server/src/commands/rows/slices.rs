//! Slices of tables: the choice of keys and columns, and conditions on rows.

use super::super::words::Words;
use super::{read, write};
use crate::command::spec::Group::Rows;
use crate::resp::Request;
use crate::resp::fail::{Done, SYNTAX};
use crate::run::cx::Cx;
use crate::run::registry::row::*;
use crate::store::spans::{Spans, Stretch};
use crate::store::{Order, Write};
use crate::types::rows::condition::{Condition, Test};
use crate::types::rows::slice::{Keys, Query};
use crate::types::rows::walk::stored_stretch;

#[rustfmt::skip]
pub(in super::super) const TABLE: &[Command] = &[
    command("ob.count", -2, READ, NO_KEYS, Rows, "table [range from to] [prefix p] [keys n key ...] ...", "Counts the keys that have columns.", count),
    command("ob.delkeys", -4, WRITE, NO_KEYS, Rows, "table [range from to] [prefix p] [keys n key ...] ...", "Removes keys with all their columns.", delkeys),
    command("ob.keys", -2, READ, NO_KEYS, Rows, "table [range from to] [prefix p] [keys n key ...] ... [after key] [rev] [maxkeys n]", "Returns keys that have columns. The first element is the key to continue after, or null at the end.", keys),
    command("ob.slice", -2, READ, NO_KEYS, Rows, "table [range from to] [prefix p] [keys n key ...] ... [colrange from to] [colprefix p] [cols n column ...] ... [after key] [rev] [maxkeys n] [maxcols n] [where column test [and ...] [or ...]] [ts]", "Returns columns of rows. The first element is the key to continue after, or null at the end.", slice),
];

/// The options of a slice.
struct Options {
    query: Query,
    /// Set if the request names keys.
    has_keys: bool,
    /// Set if the reply includes timestamps.
    has_stamps: bool,
}

/// What a command accepts beside keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Takes {
    Keys,
    Pages,
    All,
}

fn options(request: &Request, takes: Takes) -> Done<Options> {
    // Without a choice of keys or columns, all are meant.
    let (mut keys, mut columns, mut after) = (None, None, None);
    let (mut order, mut condition, mut has_stamps) = (Order::Up, None, false);
    let (mut keys_max, mut columns_max) = (usize::MAX, usize::MAX);
    let mut words = Words::new(request, 2);
    while !words.is_over() {
        if let Some(parts) = read_part(&mut words, ["range", "prefix", "keys"])? {
            keys.get_or_insert_with(Vec::new).extend(parts);
        } else if takes >= Takes::Pages && words.takes("after") {
            after = Some(words.next()?);
        } else if takes >= Takes::Pages && words.takes("rev") {
            order = Order::Down;
        } else if takes >= Takes::Pages && words.takes("maxkeys") {
            keys_max = words.positive()?;
        } else if takes < Takes::All {
            return Err(SYNTAX.into());
        } else if let Some(parts) = read_part(&mut words, ["colrange", "colprefix", "cols"])? {
            columns.get_or_insert_with(Vec::new).extend(parts);
        } else if words.takes("maxcols") {
            columns_max = words.positive()?;
        } else if words.takes("where") {
            condition = Some(read_condition(&mut words)?);
        } else if words.takes("ts") {
            has_stamps = true;
        } else {
            return Err(SYNTAX.into());
        }
    }
    let has_keys = keys.is_some();
    let mut keys = keys.map_or_else(Spans::all, Spans::of);
    if let Some(after) = after {
        keys = keys.after(after, order);
    }
    let columns = columns.map_or_else(Spans::all, Spans::of);
    Ok(Options {
        query: Query { keys, columns, order, keys_max, columns_max, condition },
        has_keys,
        has_stamps,
    })
}

/// Parses a part of a selection, if there is one at this position.
pub(super) fn read_part(
    words: &mut Words<'_>,
    [range, prefix, list]: [&str; 3],
) -> Done<Option<Vec<Stretch>>> {
    Ok(Some(if words.takes(range) {
        vec![Stretch::range(words.next()?, words.next()?)]
    } else if words.takes(prefix) {
        vec![Stretch::prefix(words.next()?)]
    } else if words.takes(list) {
        words.list(1)?.into_iter().map(Stretch::point).collect()
    } else {
        return Ok(None);
    }))
}

fn read_condition(words: &mut Words<'_>) -> Done<Condition> {
    let mut any = vec![vec![read_test(words)?]];
    loop {
        if words.takes("and") {
            let test = read_test(words)?;
            if let Some(all) = any.last_mut() {
                all.push(test);
            }
        } else if words.takes("or") {
            any.push(vec![read_test(words)?]);
        } else {
            return Ok(Condition(any));
        }
    }
}

fn read_test(words: &mut Words<'_>) -> Done<(Vec<u8>, Test)> {
    let column = words.next()?.to_vec();
    let name = words.next()?.to_ascii_lowercase();
    let mut value = || words.next().map(<[u8]>::to_vec);
    let test = match name.as_slice() {
        b"exists" => Test::Exists,
        b"=" | b"eq" => Test::Equal(value()?),
        b"<" | b"lt" => Test::Less(value()?),
        b"<=" | b"le" => Test::AtMost(value()?),
        b">" | b"gt" => Test::More(value()?),
        b">=" | b"ge" => Test::AtLeast(value()?),
        b"between" => Test::Between(value()?, value()?),
        _ => return Err("ERR tests are EXISTS, EQ, LT, LE, GT, GE and BETWEEN".into()),
    };
    Ok((column, test))
}

fn count(cx: &mut Cx<'_>, request: &Request) -> Done {
    let options = options(request, Takes::Keys)?;
    let count = read(cx, |source| source.count(&request[1], &options.query.keys))?;
    cx.out.int(count as i64);
    Ok(())
}

fn delkeys(cx: &mut Cx<'_>, request: &Request) -> Done {
    let options = options(request, Takes::Keys)?;
    if !options.has_keys {
        return Err(SYNTAX.into());
    }
    let stored = |stretch| stored_stretch(&request[1], stretch);
    let ranges: Vec<_> = options.query.keys.in_order(Order::Up).map(stored).collect();
    let ranges = ranges.iter().filter(|(from, to)| from < to);
    let removals: Vec<_> = ranges.map(|(from, to)| Write::RemoveRange { from, to: Some(to) }).collect();
    write(cx, &removals)?;
    cx.out.ok();
    Ok(())
}

fn keys(cx: &mut Cx<'_>, request: &Request) -> Done {
    let options = options(request, Takes::Pages)?;
    let Keys { keys, last } = read(cx, |source| source.keys(&request[1], &options.query))?;
    cx.out.array(2);
    cx.out.bulk_or_null(last.as_deref());
    cx.out.array(keys.len());
    keys.iter().for_each(|key| cx.out.bulk(key));
    Ok(())
}

fn slice(cx: &mut Cx<'_>, request: &Request) -> Done {
    let options = options(request, Takes::All)?;
    let slice = read(cx, |source| source.slice(&request[1], &options.query))?;
    cx.out.array(2);
    cx.out.bulk_or_null(slice.last.as_deref());
    cx.out.array(slice.rows.len());
    for row in &slice.rows {
        cx.out.array(2);
        cx.out.bulk(&row.key);
        cx.out.array(row.columns.len() * if options.has_stamps { 3 } else { 2 });
        for column in &row.columns {
            cx.out.bulk(&column.name);
            cx.out.bulk(&column.data);
            if options.has_stamps {
                cx.out.int(column.stamp);
            }
        }
    }
    Ok(())
}
