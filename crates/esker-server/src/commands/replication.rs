//! Commands about primaries and replicas.

use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::ordered::{FeedRequest, feed_request};
use super::slots::{ShownSlot, shown_slots};
use crate::command::spec::{Group::Esker, Group::Server as OfServer};
use crate::config::source::Source;
use crate::replication::{self, Batch, Link, Position};
use crate::resp::Request;
use crate::resp::fail::{Done, Fail, SYNTAX};
use crate::resp::numbers::{int, parse_int, timeout_ms};
use crate::run::cx::Cx;
use crate::run::registry::row::*;
use crate::run::server::Server;
use crate::run::session::{Moment, Session};

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("es.position", 1, FAST, NO_KEYS, Esker, "", "Returns the epoch and the number of the newest commit visible to reads here.", position),
    command("es.read", 5, FAST | NO_SCRIPT | WAITS, NO_KEYS, Esker, "after epoch number milliseconds", "Waits until reads here see this commit. 0 milliseconds means no limit.", read_after).awaits(Awaits::Position),
    command("es.replicate", -6, ADMIN | NO_SCRIPT | NO_MULTI, NO_KEYS, Esker, "version epoch number port slot [full] [ballot number]", "Turns the connection into that of a replica: docs/formats/replication.md.", replicate),
    command("failover", -1, ADMIN | NO_SCRIPT, NO_KEYS, OfServer, "", "Not supported: promote a replica with REPLICAOF NO ONE.", failover),
    command("replicaof", -3, ADMIN | NO_SCRIPT | NO_MULTI | SEQUENCED, NO_KEYS, OfServer, "no one|host port [discard]", "Makes the server a primary, or a replica of another server.", replica_of),
    command("role", 1, FAST | NO_SCRIPT | ADMIN, NO_KEYS, OfServer, "", "Shows whether the server is a primary, with its replicas, or a replica, with its primary.", role),
    command("slaveof", -3, ADMIN | NO_SCRIPT | NO_MULTI | SEQUENCED, NO_KEYS, OfServer, "no one|host port [discard]", "Same as REPLICAOF.", replica_of),
    command("wait", 3, NO_SCRIPT | WAITS, NO_KEYS, OfServer, "replicas milliseconds", "Waits until this number of replicas have all writes. Returns how many have them.", wait).in_categories(&["connection"]).awaits(Awaits::Replicas { count_at: 1, ms_at: 2, is_durable: false }),
    command("waitaof", 4, FAST | NO_SCRIPT | WAITS, NO_KEYS, OfServer, "local replicas milliseconds", "Waits until all writes are on disk here and on this number of replicas.", waitaof).awaits(Awaits::Replicas { count_at: 2, ms_at: 3, is_durable: true }),
];

/// The condition that a command waits for.
pub struct Awaited {
    what: What,
    /// State at the beginning of the wait.
    pub from: Moment,
    ms: u64,
}

enum What {
    /// This number of replicas has all commits, or has them on disk.
    Replicas(usize, bool),
    /// The commit is visible to readers here.
    Seen(Position),
    /// There are commits for this feed.
    Fed(FeedRequest),
}

/// Returns what a request waits for if it is valid. Called before the request runs, where waiting is
/// possible.
pub fn awaited(server: &Server, session: &Session, request: &Request) -> Option<Awaited> {
    let number = |at: usize| request.get(at).and_then(parse_int).and_then(|n| u64::try_from(n).ok());
    let replication = &server.replication;
    let (what, ms) = match server.commands.find(&request[0])?.awaits? {
        Awaits::Position => (What::Seen(position_of(request, 2).ok()?), number(4)?),
        Awaits::Feed => (What::Fed(feed_request(session, request).ok()?), 0),
        Awaits::Replicas { .. } if replication.is_replica() => return None,
        Awaits::Replicas { count_at, ms_at, is_durable } => {
            (What::Replicas(number(count_at)? as usize, is_durable), number(ms_at)?)
        }
    };
    let from = Moment { seq: replication.position().seq, was_replica: replication.is_replica() };
    Some(Awaited { what, from, ms })
}

impl Awaited {
    /// Waits until the condition holds, the time is over, or the server has become a replica. Returns the
    /// commits if the request waits for a feed.
    pub async fn wait(self, server: &Arc<Server>) -> Option<Done<Batch>> {
        let replication = &server.replication;
        let is_demoted = || !self.from.was_replica && replication.is_replica();
        match self.what {
            What::Fed(asked) => {
                return tokio::select! {
                    batch = asked.wait(replication) => Some(batch),
                    () = replication.wait(0, is_demoted) => None,
                };
            }
            What::Seen(at) => replication.wait(self.ms, || replication.has(at) || is_demoted()).await,
            What::Replicas(wanted, is_durable) => {
                if wanted > 0 && replication.confirmed(self.from.seq, is_durable) < wanted {
                    // Only durable commits are sent. If the sync fails, no replica gets them, and the reply
                    // shows it.
                    let _ = tokio::task::block_in_place(|| replication.sync());
                }
                replication
                    .wait(self.ms, || {
                        is_demoted() || replication.confirmed(self.from.seq, is_durable) >= wanted
                    })
                    .await;
            }
        }
        None
    }
}

/// Parses an epoch and the number of a commit.
pub(super) fn position_of(request: &Request, at: usize) -> Done<Position> {
    let text = |at: usize| request.get(at).and_then(|word| std::str::from_utf8(word).ok());
    let epoch = text(at).and_then(|word| word.parse().ok()).ok_or("ERR invalid epoch")?;
    let seq = text(at + 1).and_then(|word| word.parse().ok()).ok_or("ERR invalid commit number")?;
    Ok(Position { epoch, seq })
}

fn position(cx: &mut Cx<'_>, _: &Request) -> Done {
    let position = cx.server.replication.position();
    cx.out.array(2);
    cx.out.bulk(position.epoch.to_string().as_bytes());
    cx.out.int(position.seq as i64);
    Ok(())
}

fn read_after(cx: &mut Cx<'_>, request: &Request) -> Done {
    if !request.is(1, "after") || int(&request[4])? < 0 {
        return Err(SYNTAX.into());
    }
    let at = position_of(request, 2)?;
    let newest = cx.server.replication.position();
    if cx.server.replication.has(at) {
        cx.out.ok();
        return Ok(());
    }
    check_demoted(cx)?;
    Err(Fail::text(match newest.seq < at.seq {
        true => format!("NOTYET this server is at {newest}, which is before {at}"),
        false => format!("FORKED {at} is not a commit of this server's history"),
    }))
}

fn replicate(cx: &mut Cx<'_>, request: &Request) -> Done {
    let version = replication::VERSION;
    if int(&request[1])? != i64::from(version) {
        return Err(Fail::text(format!(
            "ERR this server speaks version {version} of the stream: upgrade the older one"
        )));
    }
    let at = position_of(request, 2)?;
    let port = u16::try_from(int(&request[4])?).map_err(|_| "ERR invalid port")?;
    let slot = slot_name(request, 5)?;
    let wants_copy = request.len() > 6 && request.is(6, "full");
    let ballot = match &request.tail(6 + usize::from(wants_copy))[..] {
        [] => 0,
        [word, number] if word.eq_ignore_ascii_case(b"ballot") => {
            u32::try_from(int(number)?).map_err(|_| "ERR invalid ballot")?
        }
        _ => return Err(SYNTAX.into()),
    };
    cx.session.link = Some(Link { at, port, slot, wants_copy, ballot });
    Ok(())
}

/// Parses the name of a slot.
pub(super) fn slot_name(request: &Request, at: usize) -> Done<String> {
    let name = request.get(at).and_then(|word| std::str::from_utf8(word).ok());
    let name = name.filter(|name| replication::is_slot_name(name));
    Ok(name.ok_or("ERR a slot's name is up to 64 letters, digits and ._-")?.to_owned())
}

fn failover(_: &mut Cx<'_>, _: &Request) -> Done {
    Err("ERR FAILOVER is not supported: stop the primary, then promote a replica with REPLICAOF NO ONE"
        .into())
}

fn replica_of(cx: &mut Cx<'_>, request: &Request) -> Done {
    let server = cx.server;
    let ballot = server.replication.ballot().number;
    if ballot > 0 {
        return Err(Fail::text(format!(
            "ERR `esker sentinel` chooses the primary of this server (ballot {ballot}): SENTINEL FAILOVER, or take the server out by ES.ELECT LEAVE"
        )));
    }
    if request.is(1, "no") && request.is(2, "one") && request.len() == 3 {
        if tokio::task::block_in_place(|| server.replication.become_primary())? {
            server.find_databases()?;
            server.database(0)?;
            server.has_garbage();
        }
        cx.out.ok();
        return Ok(());
    }
    let may_discard = match request.len() {
        3 => false,
        4 if request.is(3, "discard") => true,
        _ => return Err(SYNTAX.into()),
    };
    let source = primary_at(request, 1)?;
    if is_itself(server, &source) {
        return Err("ERR this is the server itself: it cannot be its own primary".into());
    }
    if server.replication.source().as_ref() != Some(&source) || may_discard {
        tokio::task::block_in_place(|| server.become_replica(source, may_discard))?;
    }
    cx.out.ok();
    Ok(())
}

/// Parses the address of a primary.
pub(super) fn primary_at(request: &Request, at: usize) -> Done<Source> {
    let host = std::str::from_utf8(&request[at]).map_err(|_| "ERR Invalid master host")?.to_owned();
    let port = int(&request[at + 1]).ok().and_then(|port| u16::try_from(port).ok());
    let port = port.filter(|port| *port > 0).ok_or("ERR Invalid master port")?;
    Ok(Source { host, port })
}

/// Returns whether a source is this server, as far as its address shows it. Host names are not resolved.
fn is_itself(server: &Server, source: &Source) -> bool {
    let ports = [&server.ports.plain, &server.ports.tls].map(|port| port.load(Ordering::Relaxed));
    if !ports.contains(&u64::from(source.port)) {
        return false;
    }
    // Binding succeeds only for addresses of this machine.
    source.host.eq_ignore_ascii_case("localhost")
        || source.host.parse::<IpAddr>().is_ok_and(|ip| UdpSocket::bind((ip, 0)).is_ok())
}

fn role(cx: &mut Cx<'_>, _: &Request) -> Done {
    let replication = &cx.server.replication;
    let seq = replication.position().seq as i64;
    if let Some(source) = replication.source() {
        let upstream = replication.upstream();
        cx.out.array(5);
        cx.out.bulk(b"slave");
        cx.out.bulk(source.host.as_bytes());
        cx.out.int(source.port.into());
        cx.out.bulk(match (upstream.is_up, upstream.is_copying) {
            (true, _) => b"connected",
            (_, true) => b"sync",
            _ => b"connect",
        });
        cx.out.int(seq);
        return Ok(());
    }
    let replicas = replication.replicas.list();
    cx.out.array(3);
    cx.out.bulk(b"master");
    cx.out.int(seq);
    cx.out.array(replicas.len());
    for replica in replicas {
        cx.out.array(3);
        cx.out.bulk(replica.address.as_bytes());
        cx.out.bulk(replica.port.to_string().as_bytes());
        cx.out.bulk(replica.numbers()[1].to_string().as_bytes());
    }
    Ok(())
}

/// Ends a connection whose command was waiting when the server became a replica.
pub(super) fn check_demoted(cx: &mut Cx<'_>) -> Done {
    let was_primary = cx.session.turn.awaited.is_some_and(|from| !from.was_replica);
    if was_primary && cx.server.replication.is_replica() {
        cx.session.is_over = true;
        return Err(crate::resp::fail::DEMOTED.into());
    }
    Ok(())
}

fn check_primary(cx: &mut Cx<'_>, name: &str) -> Done {
    check_demoted(cx)?;
    match cx.server.replication.is_replica() {
        true => Err(Fail::text(format!("ERR {name} cannot be used with replica instances."))),
        false => Ok(()),
    }
}

/// Checks that an argument is a non-negative integer.
fn natural(word: &[u8], wrong: &'static str) -> Done {
    if int(word)? < 0 { Err(wrong.into()) } else { Ok(()) }
}

fn wait(cx: &mut Cx<'_>, request: &Request) -> Done {
    check_primary(cx, "WAIT")?;
    int(&request[1])?;
    timeout_ms(&request[2])?;
    let replication = &cx.server.replication;
    let seq = cx.session.turn.awaited.map_or_else(|| replication.position().seq, |from| from.seq);
    cx.out.count(replication.confirmed(seq, false));
    Ok(())
}

fn waitaof(cx: &mut Cx<'_>, request: &Request) -> Done {
    check_primary(cx, "WAITAOF")?;
    for at in 1..3 {
        natural(&request[at], "ERR value is out of range, must be positive")?;
    }
    timeout_ms(&request[3])?;
    let replication = &cx.server.replication;
    tokio::task::block_in_place(|| replication.sync())?;
    let seq = cx.session.turn.awaited.map_or_else(|| replication.position().seq, |from| from.seq);
    cx.out.array(2);
    cx.out.int(1);
    cx.out.count(replication.confirmed(seq, true));
    Ok(())
}

/// Returns the names and values of the section of `INFO`.
pub(super) fn figures(server: &Server) -> Vec<(String, String)> {
    let replication = &server.replication;
    let at = replication.position();
    let mut figures = Vec::new();
    let mut put =
        |name: &str, value: &dyn std::fmt::Display| figures.push((name.to_owned(), value.to_string()));
    let source = replication.source();
    put("role", &if source.is_some() { "slave" } else { "master" });
    if let Some(source) = source {
        let upstream = replication.upstream();
        let silent = crate::base::clock::now_ms().saturating_sub(upstream.heard) / 1000;
        put("master_host", &source.host);
        put("master_port", &source.port);
        put("master_link_status", &if upstream.is_up { "up" } else { "down" });
        put("master_last_io_seconds_ago", &if upstream.heard == 0 { -1 } else { silent as i64 });
        put("master_sync_in_progress", &u8::from(upstream.is_copying));
        put("master_link_error", &upstream.error.unwrap_or_default().replace(['\r', '\n'], " "));
        put("slave_repl_offset", &at.seq);
        put("slave_durable_offset", &replication.durable());
        put("slave_lag_commits", &upstream.newest.saturating_sub(at.seq));
        put("slave_read_only", &1);
    }
    let replicas = replication.replicas.list();
    put("connected_slaves", &replicas.len());
    for (n, replica) in replicas.iter().enumerate() {
        let [_, applied, durable] = replica.numbers();
        let state = if replica.is_online.load(Ordering::Relaxed) { "online" } else { "send_bulk" };
        let (address, port, lag) = (&replica.address, replica.port, replica.silent_ms() / 1000);
        let behind = at.seq.saturating_sub(applied);
        put(
            &format!("slave{n}"),
            &format_args!(
                "ip={address},port={port},state={state},offset={applied},lag={lag},durable={durable},behind={behind}"
            ),
        );
    }
    if let Some((_, ms)) = server.config.safety.replicas_min() {
        put("min_slaves_good_slaves", &replication.replicas.good(ms));
    }
    let slots = shown_slots(server);
    put("slots", &slots.len());
    for (n, slot) in slots.iter().enumerate() {
        let ShownSlot { name, connections, at, behind, bytes } = slot;
        put(
            &format!("slot{n}"),
            &format_args!(
                "name={name},connections={connections},offset={},behind={behind},bytes={bytes}",
                at.seq
            ),
        );
    }
    put("master_failover_state", &"no-failover");
    put("master_replid", &format_args!("{:08x}{:016x}{:016x}", at.epoch.number, at.epoch.mark, 0));
    put("master_repl_offset", &at.seq);
    if let Some(first) = replication.first_kept() {
        put("repl_backlog_active", &1);
        put("repl_backlog_first_byte_offset", &first);
        put("repl_backlog_histlen", &(at.seq + 1).saturating_sub(first));
    } else {
        put("repl_backlog_active", &0);
    }
    put("epoch", &at.epoch);
    put("ballot", &replication.ballot().number);
    let epochs = replication.epochs();
    let shown: Vec<_> =
        epochs.iter().rev().take(8).map(|(epoch, start)| format!("{epoch}>{start}")).collect();
    put("epochs", &shown.join(","));
    figures
}
