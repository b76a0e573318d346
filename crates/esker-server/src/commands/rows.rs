//! The data model of obigstore: commands that write rows and read them by key.

mod slices;
mod transactions;

pub(super) use self::slices::TABLE as SLICES;
pub(super) use self::transactions::TABLE as TRANSACTIONS;
use super::held::{held, write as write_to};
use super::words::Words;
use crate::base::clock;
use crate::command::spec::Group::Rows;
use crate::holdings::namespace::Namespace;
use crate::replication::NOTHING;
use crate::resp::Request;
use crate::resp::fail::{Done, Fail, READ_ONLY, SYNTAX};
use crate::resp::numbers::int;
use crate::run::cx::Cx;
use crate::run::dispatch::unknown_subcommand;
use crate::run::memory::each_value;
use crate::run::registry::row::*;
use crate::store::spans::{Spans, Stretch};
use crate::store::{Order, Write};
use crate::types::rows::PREFIX;
use crate::types::rows::codec::{behind, cell_key, decode_value, encode_value, prefix};
use crate::types::rows::slice::Query;
use crate::types::rows::walk::{Source, Step};

const ADD: u32 = WRITE | DENY_OOM;

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("ob.del", -3, WRITE, NO_KEYS, Rows, "table key [column ...]", "Removes some or all columns of a key.", del),
    command("ob.exists", -3, READ, NO_KEYS, Rows, "table key ...", "Returns 1 for each key that has columns, and 0 for others.", exists),
    command("ob.get", -3, READ, NO_KEYS, Rows, "table key [column ...]", "Returns the data of columns, or all columns of a key with their data.", get),
    command("ob.ks", -2, NO_SCRIPT | NO_MULTI, NO_KEYS, Rows, "list | use name | drop name", "Manages keyspaces of rows, and chooses that of the connection.", keyspaces).reaches(reach::keyspace).own_flags(&[(&["drop"], DANGEROUS)]),
    command("ob.mput", -7, ADD, NO_KEYS, Rows, "table row key n column data ... [at microseconds] [row ...]", "Sets n columns of each of several keys.", mput),
    command("ob.put", -5, ADD, NO_KEYS, Rows, "table key column data [column data ...]", "Sets columns of a key.", put),
    command("ob.size", -2, READ, NO_KEYS, Rows, "table [from to]", "Returns the number of bytes in the keys and data of a table, or of a range of its keys.", size),
    command("ob.tables", 1, READ, NO_KEYS, Rows, "", "Returns the names of all tables.", tables),
];

/// Keyspace of connections that have not chosen one.
const DEFAULT: &str = "default";

fn space_name(name: &str) -> String {
    format!("{PREFIX}{name}")
}

/// Returns the namespace of the connection.
fn namespace(cx: &mut Cx<'_>) -> Done<Namespace> {
    let space = match cx.session.places.rows.take() {
        Some(space) => space,
        None => {
            let (store, name) = (&cx.server.store, space_name(DEFAULT));
            match store.find_space(&name)? {
                Some(space) => space,
                // On a replica, only the primary creates keyspaces.
                None if cx.server.replication.is_replica() => {
                    return Ok(Namespace::keyspace(store.space(NOTHING, true)?));
                }
                None => store.space(&name, false)?,
            }
        }
    };
    cx.session.places.rows = Some(space.clone());
    Ok(Namespace::keyspace(space))
}

/// Reads the state that the connection sees.
fn read<T>(cx: &mut Cx<'_>, read: impl FnOnce(Source<'_>) -> Done<T>) -> Done<T> {
    let namespace = namespace(cx)?;
    match held(cx)? {
        Some(held) => held.with(cx.now, |state| {
            state.begin_read();
            read(Source { reads: state.reads(), space: &namespace.space })
        }),
        None => read(Source { reads: cx.access.reads(), space: &namespace.space }),
    }
}

/// Writes to the namespace of the connection, directly or in the transaction that it holds.
fn write(cx: &mut Cx<'_>, writes: &[Write<'_>]) -> Done {
    let namespace = namespace(cx)?;
    write_to(cx, &namespace, writes)
}

/// Cells of columns: the keys under which they are stored, and their values.
type Cells = Vec<(Vec<u8>, Vec<u8>)>;

/// Adds cells of columns, given as pairs of a name and data.
fn add_cells<'r>(
    cells: &mut Cells,
    (table, key): (&[u8], &[u8]),
    pairs: impl Iterator<Item = (&'r [u8], &'r [u8])>,
    stamp: i64,
) -> Done {
    for (column, data) in pairs {
        cells.push((cell_key(table, key, column)?, encode_value(stamp, data)));
    }
    Ok(())
}

fn write_cells(cx: &mut Cx<'_>, cells: &Cells) -> Done {
    let writes: Vec<_> = cells.iter().map(|(key, value)| Write::Put { key, value }).collect();
    write(cx, &writes)
}

fn put(cx: &mut Cx<'_>, request: &Request) -> Done {
    let words = request.tail(3);
    let (pairs, []) = words.as_chunks::<2>() else { return Err(SYNTAX.into()) };
    let stamp = clock::now_us() as i64;
    let pairs = pairs.iter().map(|[column, data]| (*column, *data));
    let mut cells = Cells::new();
    add_cells(&mut cells, (&request[1], &request[2]), pairs, stamp)?;
    write_cells(cx, &cells)?;
    cx.out.ok();
    Ok(())
}

fn mput(cx: &mut Cx<'_>, request: &Request) -> Done {
    let now = clock::now_us() as i64;
    let mut rows = Vec::new();
    let mut words = Words::new(request, 2);
    while !words.is_over() {
        words.expect("row")?;
        let key = words.next()?;
        let pairs = words.list(2)?;
        let stamp = if words.takes("at") { int(words.next()?)? } else { now };
        rows.push((key, pairs, stamp));
    }
    let mut cells = Cells::new();
    for (key, pairs, stamp) in rows {
        let pairs = pairs.chunks_exact(2).map(|pair| (pair[0], pair[1]));
        add_cells(&mut cells, (&request[1], key), pairs, stamp)?;
    }
    write_cells(cx, &cells)?;
    cx.out.ok();
    Ok(())
}

fn del(cx: &mut Cx<'_>, request: &Request) -> Done {
    let (table, key) = (&request[1], &request[2]);
    if request.len() == 3 {
        let row = prefix(&[table, key]);
        let end = behind(row.clone());
        write(cx, &[Write::RemoveRange { from: &row, to: Some(&end) }])?;
    } else {
        let cells: Done<Vec<_>> = request.from(3).map(|column| cell_key(table, key, column)).collect();
        let cells = cells?;
        write(cx, &cells.iter().map(|key| Write::Remove { key }).collect::<Vec<_>>())?;
    }
    cx.out.ok();
    Ok(())
}

fn get(cx: &mut Cx<'_>, request: &Request) -> Done {
    let (table, key) = (&request[1], &request[2]);
    if request.len() == 3 {
        let query = Query {
            keys: Spans::of(vec![Stretch::point(key)]),
            columns: Spans::all(),
            order: Order::Up,
            keys_max: 1,
            columns_max: usize::MAX,
            condition: None,
        };
        let rows = read(cx, |source| source.slice(table, &query))?.rows;
        let columns = rows.first().map_or(&[][..], |row| &row.columns);
        cx.out.map(columns.len());
        for column in columns {
            cx.out.bulk(&column.name);
            cx.out.bulk(&column.data);
        }
        return Ok(());
    }
    let stored: Done<Vec<_>> = request.from(3).map(|column| cell_key(table, key, column)).collect();
    let stored = stored?;
    let stored: Vec<_> = stored.iter().map(Vec::as_slice).collect();
    cx.out.array(stored.len());
    let mut out = std::mem::take(cx.out);
    let done = read(cx, |source| {
        let read = |keys: &[&[u8]], bytes_max| source.reads.multi_get(source.space, keys, bytes_max);
        each_value(&stored, read, |value| {
            let data = value.as_deref().map(decode_value).transpose()?;
            out.bulk_or_null(data.map(|(_, data)| data));
            out.check()
        })
    });
    *cx.out = out;
    done
}

fn exists(cx: &mut Cx<'_>, request: &Request) -> Done {
    let found: Vec<bool> = read(cx, |source| {
        let is_there = |key: &[u8]| {
            let (keys, mut is_there) = (Spans::of(vec![Stretch::point(key)]), false);
            source.walk(&request[1], &keys, &Spans::all(), Order::Up, |_| {
                is_there = true;
                Ok(Step::Stop)
            })?;
            Ok(is_there)
        };
        request.from(2).map(is_there).collect()
    })?;
    cx.out.array(found.len());
    found.iter().for_each(|found| cx.out.int(i64::from(*found)));
    Ok(())
}

fn tables(cx: &mut Cx<'_>, _: &Request) -> Done {
    let tables = read(cx, |source| source.tables())?;
    cx.out.array(tables.len());
    tables.iter().for_each(|table| cx.out.bulk(table));
    Ok(())
}

fn size(cx: &mut Cx<'_>, request: &Request) -> Done {
    let stretch = match request.len() {
        2 => Stretch::range(b"", b""),
        4 => Stretch::range(&request[2], &request[3]),
        _ => return Err(SYNTAX.into()),
    };
    let bytes = read(cx, |source| source.bytes(&request[1], &stretch))?;
    cx.out.int(bytes as i64);
    Ok(())
}

/// Checks that keyspaces may be created and removed here. The reply then waits for replicas, as those to
/// writes do.
fn check_may_change(cx: &mut Cx<'_>) -> Done {
    if cx.server.replication.is_replica() {
        return Err(READ_ONLY.into());
    }
    cx.server.check_replicas()?;
    cx.session.turn.has_written = true;
    Ok(())
}

fn keyspaces(cx: &mut Cx<'_>, request: &Request) -> Done {
    let store = cx.server.store.clone();
    if request.is(1, "list") && request.len() == 2 {
        let names = store.spaces()?;
        let names: Vec<_> = names.iter().filter_map(|name| name.strip_prefix(PREFIX)).collect();
        cx.out.array(names.len());
        names.iter().for_each(|name| cx.out.bulk(name.as_bytes()));
        return Ok(());
    }
    if request.len() != 3 {
        return Err(unknown_subcommand(request));
    }
    let name = std::str::from_utf8(&request[2]).map_err(|_| "ERR names of keyspaces are UTF-8")?;
    if name.is_empty() {
        return Err("ERR a keyspace has a name".into());
    }
    if request.is(1, "use") {
        if cx.session.own.transaction.is_some() {
            return Err("ERR the connection holds a transaction: commit it, or roll it back first".into());
        }
        let name = space_name(name);
        let space = store.find_space(&name)?;
        if space.is_none() {
            check_may_change(cx)?;
        }
        cx.session.places.rows = Some(space.map_or_else(|| store.space(&name, false), Ok)?);
    } else if request.is(1, "drop") {
        let full = space_name(name);
        if cx.server.holdings.transactions().iter().any(|held| held.began_in == full) {
            return Err("ERR a transaction is open in the keyspace: see OB.TXLIST".into());
        }
        store.find_space(&full)?.ok_or_else(|| Fail::text(format!("ERR no such keyspace '{name}'")))?;
        check_may_change(cx)?;
        store.drop_space(&full)?;
        if cx.session.places.rows.as_ref().is_some_and(|space| space.name() == full) {
            cx.session.places.rows = None;
        }
    } else {
        return Err(unknown_subcommand(request));
    }
    cx.out.ok();
    Ok(())
}
