//! Commands about the connection: client, user, database and protocol.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::tracking;
use crate::acl::{DEFAULT, Reason};
use crate::clients::Client;
use crate::command::spec::Group::Connection;
use crate::resp::Request;
use crate::resp::fail::{Done, Fail, SYNTAX};
use crate::resp::numbers::{int, timeout_ms};
use crate::run::cx::Cx;
use crate::run::dispatch::note_refusal;
use crate::run::dispatch::unknown_subcommand;
use crate::run::leave::leave;
use crate::run::registry::row::*;
use crate::run::session::ReplyMode;

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("auth", -2, NO_AUTH | NO_SCRIPT | FAST | NO_MULTI | WHILE_BUSY, NO_KEYS, Connection, "[user] password", "Logs the connection in.", auth).hides(secrets::all).logs_in(secrets::auth),
    command("client", -2, NO_SCRIPT, NO_KEYS, Connection, "id | info | list [type kind|id id ...] | getname | setname name | setinfo lib-name|lib-ver text | kill address|filter ... | unblock id [timeout|error] | reply on|off|skip | pause ms [all|write] | unpause | import-source on|off | no-evict on|off | no-touch on|off | tracking on|off [redirect id] [bcast] [prefix text ...] [optin] [optout] [noloop] | trackinginfo | caching yes|no | getredir", "Shows connections and changes them.", client).own_flags(&[(&["import-source", "kill", "list", "no-evict", "pause", "unblock", "unpause"], ADMIN)]),
    command("echo", 2, FAST, NO_KEYS, Connection, "text", "Returns the text.", echo),
    command("hello", -1, NO_AUTH | NO_SCRIPT | FAST | NO_MULTI | WHILE_BUSY, NO_KEYS, Connection, "[2|3 [auth user password] [setname name]]", "Chooses the protocol version.", hello).hides(secrets::behind_auth).logs_in(secrets::hello),
    command("ping", -1, FAST | WHILE_SUBSCRIBED, NO_KEYS, Connection, "[text]", "Returns PONG, or the text.", ping),
    command("quit", -1, NO_AUTH | NO_SCRIPT | FAST | WHILE_SUBSCRIBED | ENDS_MULTI | WHILE_BUSY, NO_KEYS, Connection, "", "Ends the connection.", quit),
    command("reset", 1, NO_AUTH | NO_SCRIPT | FAST | WHILE_SUBSCRIBED | ENDS_MULTI | WHILE_BUSY, NO_KEYS, Connection, "", "Resets the connection to the state of a new one.", reset),
    command("select", 2, FAST, NO_KEYS, Connection, "number", "Chooses the database of the connection.", select),
];

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

fn log_in(cx: &mut Cx<'_>, command: &[u8], user: &[u8], password: &[u8]) -> Done {
    let Some(user) = cx.server.acl.log_in(user, password) else {
        let name = String::from_utf8_lossy(user).into_owned();
        note_refusal(cx, Reason::Auth, command.to_vec(), name);
        return Err(WRONG_PASSWORD.into());
    };
    cx.session.login.users_generation = cx.server.acl.generation();
    cx.session.become_user(Some(user));
    Ok(())
}

fn auth(cx: &mut Cx<'_>, request: &Request) -> Done {
    match request.len() {
        2 if cx.server.acl.user(DEFAULT).is_some_and(|user| user.needs_no_password) => {
            return Err("ERR AUTH <password> called without any password configured for the default user. \
                        Are you sure your configuration is correct?"
                .into());
        }
        2 => log_in(cx, &request[0], b"default", &request[1])?,
        3 => log_in(cx, &request[0], &request[1], &request[2])?,
        _ => return Err(SYNTAX.into()),
    }
    cx.out.ok();
    Ok(())
}

fn hello(cx: &mut Cx<'_>, request: &Request) -> Done {
    let mut version = if cx.out.is_resp3 { 3 } else { 2 };
    if let Some(given) = request.get(1) {
        version = int(given).map_err(|_| "ERR Protocol version is not an integer or out of range")?;
        if !(2..=3).contains(&version) {
            return Err("NOPROTO unsupported protocol version".into());
        }
    }
    let mut at = 2;
    while at < request.len() {
        if request.is(at, "auth") && at + 2 < request.len() {
            log_in(cx, &request[0], &request[at + 1], &request[at + 2])?;
            at += 3;
        } else if request.is(at, "setname") && at + 1 < request.len() {
            set_name(cx, &request[at + 1])?;
            at += 2;
        } else {
            let word = String::from_utf8_lossy(&request[at]).into_owned();
            return Err(Fail::text(format!("ERR Syntax error in HELLO option '{word}'")));
        }
    }
    if !cx.session.login.is_known {
        return Err("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH \
                    <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time"
            .into());
    }
    set_version(cx, version == 3);
    let id = cx.session.client.id as i64;
    let role: &[u8] = if cx.server.replication.is_replica() { b"replica" } else { b"master" };
    let out = &mut *cx.out;
    out.map(7);
    for (name, value) in [("server", "redis"), ("version", super::server::REDIS_VERSION)] {
        out.bulk(name.as_bytes());
        out.bulk(value.as_bytes());
    }
    out.bulk(b"proto");
    out.int(version);
    out.bulk(b"id");
    out.int(id);
    out.bulk(b"mode");
    out.bulk(b"standalone");
    out.bulk(b"role");
    out.bulk(role);
    out.bulk(b"modules");
    out.array(0);
    Ok(())
}

fn set_version(cx: &mut Cx<'_>, is_resp3: bool) {
    cx.out.is_resp3 = is_resp3;
    cx.session.client.state.is_resp3.store(is_resp3, Ordering::Relaxed);
}

fn ping(cx: &mut Cx<'_>, request: &Request) -> Done {
    if request.len() > 2 {
        return Err("ERR wrong number of arguments for 'ping' command".into());
    }
    let text = request.get(1);
    if !cx.out.is_resp3 && cx.session.is_subscribed() {
        cx.out.array(2);
        cx.out.bulk(b"pong");
        cx.out.bulk(text.unwrap_or_default());
        return Ok(());
    }
    match text {
        Some(text) => cx.out.bulk(text),
        None => cx.out.simple("PONG"),
    }
    Ok(())
}

fn echo(cx: &mut Cx<'_>, request: &Request) -> Done {
    cx.out.bulk(&request[1]);
    Ok(())
}

fn quit(cx: &mut Cx<'_>, _: &Request) -> Done {
    cx.session.is_over = true;
    cx.out.ok();
    Ok(())
}

fn reset(cx: &mut Cx<'_>, _: &Request) -> Done {
    cx.session.multi = None;
    leave(cx.server, cx.session);
    cx.server.clients.set_monitor(&cx.session.client, false);
    cx.session.client.name.lock().clear();
    cx.session.client.counts.queued.store(0, Ordering::Relaxed);
    let state = &cx.session.client.state;
    for switch in [&state.is_no_evict, &state.is_no_touch] {
        switch.store(false, Ordering::Relaxed);
    }
    cx.session.reply = ReplyMode::On;
    cx.session.become_user(cx.server.acl.stranger());
    cx.session.places.space = None;
    cx.session.places.is_import = false;
    cx.session.places.snapshots.clear();
    choose(cx, 0)?;
    set_version(cx, false);
    cx.out.simple("RESET");
    Ok(())
}

fn choose(cx: &mut Cx<'_>, number: usize) -> Done {
    cx.session.data = cx.server.database(number)?;
    cx.session.db = number;
    cx.session.client.db.store(number, Ordering::Relaxed);
    Ok(())
}

fn select(cx: &mut Cx<'_>, request: &Request) -> Done {
    let number = int(&request[1])?;
    choose(cx, usize::try_from(number).map_err(|_| "ERR DB index is out of range")?)?;
    cx.out.ok();
    Ok(())
}

fn set_name(cx: &mut Cx<'_>, name: &[u8]) -> Done {
    if name.iter().any(|byte| !(b'!'..=b'~').contains(byte)) {
        return Err("ERR Client names cannot contain spaces, newlines or special characters.".into());
    }
    *cx.session.client.name.lock() = String::from_utf8_lossy(name).into_owned();
    Ok(())
}

/// Says that the connection copies data from elsewhere. Its commands meet no expired keys.
fn import_source(cx: &mut Cx<'_>, request: &Request) -> Done {
    let is_import = request.is(2, "on");
    if !is_import && !request.is(2, "off") {
        return Err(SYNTAX.into());
    }
    if is_import && !cx.server.config.is_on("import-mode") {
        return Err("ERR Server is not in import mode".into());
    }
    cx.session.places.is_import = is_import;
    cx.out.ok();
    Ok(())
}

fn client(cx: &mut Cx<'_>, request: &Request) -> Done {
    let sub = request[1].to_ascii_lowercase();
    match (&*sub, request.len()) {
        (b"id", 2) => cx.out.int(cx.session.client.id as i64),
        (b"getname", 2) => {
            let name = cx.session.client.name.lock().clone();
            cx.out.bulk_or_null((!name.is_empty()).then_some(name.as_bytes()));
        }
        (b"setname", 3) => {
            set_name(cx, &request[2])?;
            cx.out.ok();
        }
        (b"setinfo", 4) => set_info(cx, request)?,
        (b"info", 2) => {
            let text = cx.session.client.describe(cx.now) + "\n";
            cx.out.verbatim(&text);
        }
        (b"list", _) => list(cx, request)?,
        (b"kill", 3..) => kill(cx, request)?,
        (b"unblock", 3 | 4) => unblock(cx, request)?,
        (b"reply", 3) => reply(cx, request)?,
        (b"no-evict" | b"no-touch", 3) => {
            let is_on = request.is(2, "on");
            if !is_on && !request.is(2, "off") {
                return Err(SYNTAX.into());
            }
            let state = &cx.session.client.state;
            let switch = if &*sub == b"no-evict" { &state.is_no_evict } else { &state.is_no_touch };
            switch.store(is_on, Ordering::Relaxed);
            cx.out.ok();
        }
        (b"import-source", 3) => import_source(cx, request)?,
        (b"pause", 3 | 4) => pause(cx, request)?,
        (b"unpause", 2) => {
            cx.server.clients.pause.end();
            cx.out.ok();
        }
        (b"tracking", 3..) => tracking::track(cx, request)?,
        (b"caching", 3) => tracking::caching(cx, request)?,
        (b"getredir", 2) => cx.out.int(cx.session.client.tracking.shown_redirect()),
        (b"trackinginfo", 2) => tracking::show(cx),
        _ => return Err(unknown_subcommand(request)),
    }
    Ok(())
}

fn set_info(cx: &mut Cx<'_>, request: &Request) -> Done {
    let text = String::from_utf8_lossy(&request[3]).into_owned();
    if text.bytes().any(|byte| !(b'!'..=b'~').contains(&byte)) {
        return Err(Fail::text(format!(
            "ERR {} cannot contain spaces, newlines or special characters.",
            String::from_utf8_lossy(&request[2]).to_lowercase()
        )));
    }
    let mut library = cx.session.client.library.lock();
    if request.is(2, "lib-name") {
        library.0 = text;
    } else if request.is(2, "lib-ver") {
        library.1 = text;
    } else {
        let option = String::from_utf8_lossy(&request[2]).into_owned();
        return Err(Fail::text(format!("ERR Unrecognized option '{option}'")));
    }
    drop(library);
    cx.out.ok();
    Ok(())
}

/// Parses a type of clients. The connection to a primary is not a client, so `master` has no clients.
fn kind_named(name: &str) -> Done<&'static str> {
    let kinds = [
        ("normal", "normal"),
        ("pubsub", "pubsub"),
        ("replica", "replica"),
        ("slave", "replica"),
        ("master", "master"),
        ("primary", "master"),
    ];
    let kind = kinds.iter().find(|(known, _)| name.eq_ignore_ascii_case(known)).map(|(_, kind)| *kind);
    kind.ok_or_else(|| Fail::text(format!("ERR Unknown client type '{name}'")))
}

fn list(cx: &mut Cx<'_>, request: &Request) -> Done {
    let mut clients = cx.server.clients.list();
    if request.is(2, "type") && request.len() == 4 {
        let kind = kind_named(&String::from_utf8_lossy(&request[3]))?;
        clients.retain(|client| client.kind() == kind);
    } else if request.is(2, "id") && request.len() > 3 {
        let ids: Result<Vec<i64>, _> = request.from(3).map(int).collect();
        let ids = ids.map_err(|_| "ERR Invalid client ID")?;
        clients.retain(|client| ids.contains(&(client.id as i64)));
    } else if request.len() > 2 {
        return Err(SYNTAX.into());
    }
    let lines: Vec<_> = clients.iter().map(|client| client.describe(cx.now) + "\n").collect();
    cx.out.verbatim(&lines.concat());
    Ok(())
}

fn pause(cx: &mut Cx<'_>, request: &Request) -> Done {
    let ms = timeout_ms(&request[2])?;
    let all = match request.get(3) {
        None => true,
        Some(_) if request.is(3, "all") => true,
        Some(_) if request.is(3, "write") => false,
        Some(_) => return Err("ERR CLIENT PAUSE mode must be WRITE or ALL".into()),
    };
    cx.server.clients.pause.begin(cx.now.saturating_add(ms), all, cx.now);
    cx.out.ok();
    Ok(())
}

fn kill(cx: &mut Cx<'_>, request: &Request) -> Done {
    let all = cx.server.clients.list();
    if request.len() == 3 {
        let address = String::from_utf8_lossy(&request[2]);
        let found = all.iter().find(|client| client.origin.address == address).ok_or("ERR No such client")?;
        end(cx, found);
        cx.out.ok();
        return Ok(());
    }
    let mut meant = all;
    let mut skip_me = true;
    if !request.len().is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    for at in (2..request.len()).step_by(2) {
        let value = String::from_utf8_lossy(&request[at + 1]).into_owned();
        match request[at].to_ascii_lowercase().as_slice() {
            b"id" => {
                let id = int(&request[at + 1]).ok().filter(|id| *id > 0);
                let id = id.ok_or("ERR client-id should be greater than 0")?;
                meant.retain(|client| client.id as i64 == id);
            }
            b"addr" => meant.retain(|client| client.origin.address == value),
            b"laddr" => meant.retain(|client| client.origin.own_address == value),
            b"type" => {
                let kind = kind_named(&value)?;
                meant.retain(|client| client.kind() == kind);
            }
            b"user" if cx.server.acl.user(&value).is_some() => {
                meant.retain(|client| *client.user.lock() == value)
            }
            b"user" => return Err(Fail::text(format!("ERR No such user '{value}'"))),
            b"skipme" if value.eq_ignore_ascii_case("yes") => skip_me = true,
            b"skipme" if value.eq_ignore_ascii_case("no") => skip_me = false,
            b"maxage" => {
                let age =
                    int(&request[at + 1]).map_err(|_| "ERR maxage is not an integer or out of range")?;
                let age = u64::try_from(age).ok().filter(|age| *age > 0);
                let age = age.ok_or("ERR maxage should be greater than 0")?;
                meant.retain(|client| cx.now.saturating_sub(client.origin.since) / 1000 >= age);
            }
            _ => return Err(SYNTAX.into()),
        }
    }
    meant.retain(|client| !skip_me || client.id != cx.session.client.id);
    meant.iter().for_each(|client| end(cx, client));
    cx.out.count(meant.len());
    Ok(())
}

/// Ends a connection. The current connection ends after its reply.
fn end(cx: &mut Cx<'_>, client: &Arc<Client>) {
    if client.id == cx.session.client.id {
        cx.session.is_over = true;
    } else {
        client.kill();
    }
}

fn unblock(cx: &mut Cx<'_>, request: &Request) -> Done {
    let id = int(&request[2])?;
    let with_error = match request.get(3) {
        None => false,
        Some(_) if request.is(3, "timeout") => false,
        Some(_) if request.is(3, "error") => true,
        Some(_) => return Err("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR".into()),
    };
    let client = cx.server.clients.get(id as u64);
    cx.out.int(i64::from(client.is_some_and(|client| client.unblock(with_error))));
    Ok(())
}

fn reply(cx: &mut Cx<'_>, request: &Request) -> Done {
    cx.session.reply = match request[2].to_ascii_lowercase().as_slice() {
        b"on" => ReplyMode::On,
        b"off" => ReplyMode::Off,
        b"skip" if cx.session.reply == ReplyMode::Off => ReplyMode::Off,
        b"skip" => ReplyMode::SkipNext,
        _ => return Err(SYNTAX.into()),
    };
    cx.out.ok();
    Ok(())
}
