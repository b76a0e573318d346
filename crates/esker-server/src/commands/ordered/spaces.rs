//! Commands for keyspaces, snapshots and the engine.

use crate::command::spec::Group::Esker;
use crate::commands::info::engine_figures;
use crate::resp::Request;
use crate::resp::fail::{Done, Fail, READ_ONLY};
use crate::resp::numbers::int;
use crate::run::cx::Cx;
use crate::run::dispatch::unknown_subcommand;
use crate::run::registry::row::*;

#[rustfmt::skip]
pub(in super::super) const TABLE: &[Command] = &[
    command("es.compact", 1, ADMIN | NO_SCRIPT, NO_KEYS, Esker, "", "Compacts all data into one sorted run.", compact),
    command("es.ks", -2, NO_SCRIPT | SEQUENCED, NO_KEYS, Esker, "list | use [name] | create name | drop name | rename old new | operator name operator", "Manages keyspaces, and chooses that of the connection.", keyspaces).reaches(reach::keyspace).own_flags(&[(&["drop"], DANGEROUS)]),
    command("es.snap", -2, NO_SCRIPT, NO_KEYS, Esker, "open | close id | list", "Manages the snapshots held by the connection.", snap),
    command("es.stats", 1, 0, NO_KEYS, Esker, "", "Shows the counters of the engine.", stats),
    command("es.sync", 1, 0, NO_KEYS, Esker, "", "Makes all writes durable.", sync),
    command("es.verify", 1, ADMIN | NO_SCRIPT, NO_KEYS, Esker, "", "Checks the stored data and returns what is wrong with it.", verify),
];

fn snap(cx: &mut Cx<'_>, request: &Request) -> Done {
    let held = &mut cx.session.places.snapshots;
    if request.is(1, "open") && request.len() == 2 {
        let id = held.last_key_value().map_or(1, |(last, _)| last + 1);
        held.insert(id, cx.server.store.snapshot());
        cx.out.int(id as i64);
    } else if request.is(1, "close") && request.len() == 3 {
        let id = int(&request[2])? as u64;
        let was_held = held.remove(&id).is_some();
        cx.out.int(i64::from(was_held));
    } else if request.is(1, "list") && request.len() == 2 {
        cx.out.array(held.len());
        held.keys().for_each(|id| cx.out.int(*id as i64));
    } else {
        return Err(unknown_subcommand(request));
    }
    Ok(())
}

/// Checks that a name is that of a keyspace and not that of a database.
fn own_name(word: &[u8]) -> Done<&str> {
    let name = std::str::from_utf8(word).map_err(|_| "ERR names of keyspaces are UTF-8")?;
    let digits = name.strip_prefix('r').map(|rest| rest.split('.').next().unwrap_or_default());
    if digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())) {
        return Err(Fail::text(format!("ERR the keyspace '{name}' is a part of a database: use SELECT")));
    }
    if name.starts_with(crate::replication::OWN_PREFIX) {
        return Err(Fail::text(format!("ERR the keyspace '{name}' is the server's own")));
    }
    Ok(name)
}

fn keyspaces(cx: &mut Cx<'_>, request: &Request) -> Done {
    let is_change = !request.is(1, "list") && !request.is(1, "use");
    if is_change && cx.server.replication.is_replica() {
        return Err(READ_ONLY.into());
    }
    if is_change {
        cx.server.check_replicas()?;
        cx.session.turn.has_written = true;
    }
    let store = &cx.server.store;
    let missing = |name: &str| Fail::text(format!("ERR no such keyspace '{name}'"));
    match (request[1].to_ascii_lowercase().as_slice(), request.len()) {
        (b"list", 2) => {
            let mut names = store.spaces()?;
            names.retain(|name| own_name(name.as_bytes()).is_ok());
            cx.out.array(names.len());
            names.iter().for_each(|name| cx.out.bulk(name.as_bytes()));
            return Ok(());
        }
        (b"use", 2) => cx.session.places.space = None,
        (b"use", 3) => {
            let name = own_name(&request[2])?;
            cx.session.places.space = Some(store.find_space(name)?.ok_or_else(|| missing(name))?);
        }
        (b"create", 3) => {
            store.space(own_name(&request[2])?, true)?;
        }
        (b"drop", 3) => {
            let name = own_name(&request[2])?;
            store.find_space(name)?.ok_or_else(|| missing(name))?;
            store.drop_space(name)?;
            cx.all_changed(name.to_owned());
        }
        (b"operator", 4) => {
            let name = own_name(&request[2])?;
            let operator = String::from_utf8_lossy(&request[3]);
            let space = store.find_space(name)?.ok_or_else(|| missing(name))?;
            store.set_merge_operator(&space, &operator)?;
        }
        (b"rename", 4) => {
            let (old, new) = (own_name(&request[2])?, own_name(&request[3])?);
            store.rename_spaces(&[(old, new)])?;
            cx.all_changed(old.to_owned());
            cx.all_changed(new.to_owned());
        }
        _ => return Err(unknown_subcommand(request)),
    }
    cx.out.ok();
    Ok(())
}

fn compact(cx: &mut Cx<'_>, _: &Request) -> Done {
    let store = &cx.server.store;
    tokio::task::block_in_place(|| store.compact())?;
    cx.out.ok();
    Ok(())
}

fn sync(cx: &mut Cx<'_>, _: &Request) -> Done {
    let store = &cx.server.store;
    tokio::task::block_in_place(|| store.sync())?;
    cx.out.ok();
    Ok(())
}

fn stats(cx: &mut Cx<'_>, _: &Request) -> Done {
    let figures = engine_figures(cx.server);
    cx.out.map(figures.len());
    for (name, value) in figures {
        cx.out.bulk(name.as_bytes());
        cx.out.bulk(value.to_string().as_bytes());
    }
    Ok(())
}

fn verify(cx: &mut Cx<'_>, _: &Request) -> Done {
    let server = cx.server.clone();
    let report = tokio::task::block_in_place(|| crate::commands::verify::verify(&server))?;
    cx.out.array(report.len());
    report.iter().for_each(|line| cx.out.bulk(line.as_bytes()));
    Ok(())
}
