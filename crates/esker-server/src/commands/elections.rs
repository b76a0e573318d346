//! `ES.BALLOT` and `ES.ELECT`: what `esker sentinel` asks of a server. The rules: replication/ballot.rs.

use super::replication::{position_of, primary_at};
use crate::base::clock;
use crate::command::spec::Group::Esker;
use crate::replication::{Position, Refused};
use crate::resp::Request;
use crate::resp::fail::{Done, Fail, SYNTAX};
use crate::resp::numbers::int;
use crate::run::cx::Cx;
use crate::run::registry::row::*;

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("es.ballot", 1, FAST | ADMIN | NO_SCRIPT, NO_KEYS, Esker, "", "Shows the server's part in elections of the primary, and its newest commit.", ballot),
    command("es.elect", -2, ADMIN | NO_SCRIPT | NO_MULTI | SEQUENCED, NO_KEYS, Esker, "begin ballot quorum|fence ballot|lead ballot quorum|follow ballot host port|join ballot epoch number|leave", "A step of an election: docs/server.md, `Automatic failover`.", elect),
];

impl From<Refused> for Fail {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Because(why) => Fail::text(format!("REFUSED {why}")),
            Refused::Engine(error) => error.into(),
        }
    }
}

/// Replies pairs of names and values.
fn ballot(cx: &mut Cx<'_>, _: &Request) -> Done {
    let replication = &cx.server.replication;
    let (ballot, at, upstream) = (replication.ballot(), replication.position(), replication.upstream());
    let source = replication.source();
    let role = match &source {
        None => "primary",
        Some(source) if source.is_unset() => "waiting",
        Some(_) => "replica",
    };
    let primary = source.filter(|source| !source.is_unset()).map_or(String::new(), |s| s.to_string());
    let link = match (upstream.is_up, upstream.is_copying) {
        (true, _) => "up",
        (_, true) => "copy",
        _ => "down",
    };
    let durable = if role == "primary" { at.seq } else { replication.durable() };
    let silent = match upstream.heard {
        0 => -1,
        heard => clock::now_ms().saturating_sub(heard) as i64,
    };
    let figures = [
        ("ballot", ballot.number.to_string()),
        ("quorum", ballot.quorum.to_string()),
        ("role", role.to_owned()),
        ("primary", primary),
        ("epoch", at.epoch.to_string()),
        ("number", at.seq.to_string()),
        ("durable", durable.to_string()),
        ("link", link.to_owned()),
        ("silent", silent.to_string()),
        ("run", cx.server.life.run_id.clone()),
    ];
    cx.out.map(figures.len());
    for (name, value) in figures {
        cx.out.bulk(name.as_bytes());
        cx.out.bulk(value.as_bytes());
    }
    Ok(())
}

fn elect(cx: &mut Cx<'_>, request: &Request) -> Done {
    let server = cx.server;
    let number = |at: usize| -> Done<u32> {
        u32::try_from(int(&request[at])?).map_err(|_| "ERR value is out of range".into())
    };
    match (request.len(), request[1].to_ascii_lowercase().as_slice()) {
        (3, b"fence") => {
            let ballot = number(2)?;
            let (before, at) =
                tokio::task::block_in_place(|| server.step_down(|replication| replication.fence(ballot)))?;
            cx.out.array(3);
            cx.out.int(before.into());
            reply_position(cx, at);
            return Ok(());
        }
        (4, word @ (b"begin" | b"lead")) => {
            let (ballot, quorum) = (number(2)?, number(3)?);
            // Demanded before the first write can come.
            server.config.safety.demand_quorum(quorum);
            let led = tokio::task::block_in_place(|| match word {
                b"begin" => server.step_down(|replication| replication.lead_first(ballot, quorum)),
                _ => server.replication.lead(ballot, quorum),
            });
            server.config.safety.demand_quorum(server.replication.ballot().quorum);
            led?;
            server.find_databases()?;
            server.database(0)?;
            server.has_garbage();
        }
        (5, b"follow") => {
            let source = primary_at(request, 3)?;
            let ballot = number(2)?;
            tokio::task::block_in_place(|| server.replication.follow(ballot, source))?;
        }
        (5, b"join") => {
            let (ballot, at) = (number(2)?, position_of(request, 3)?);
            tokio::task::block_in_place(|| server.replication.join(ballot, at))?;
        }
        (2, b"leave") => {
            tokio::task::block_in_place(|| server.replication.leave())?;
            server.config.safety.demand_quorum(0);
        }
        _ => return Err(SYNTAX.into()),
    }
    cx.out.ok();
    Ok(())
}

fn reply_position(cx: &mut Cx<'_>, at: Position) {
    cx.out.bulk(at.epoch.to_string().as_bytes());
    cx.out.bulk(at.seq.to_string().as_bytes());
}
