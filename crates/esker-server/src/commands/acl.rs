//! `ACL`: users and their rights.

use crate::acl::{DEFAULT, User, random};
use crate::command::spec::CATEGORIES;
use crate::command::spec::Group::Server;
use crate::resp::Request;
use crate::resp::fail::{Done, Fail};
use crate::resp::numbers::int;
use crate::run::cx::Cx;
use crate::run::dispatch::unknown_subcommand;
use crate::run::registry::row::*;

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("acl", -2, ADMIN | NO_SCRIPT, NO_KEYS, Server, "whoami | users | list | getuser name | setuser name [rule ...] | deluser name ... | cat [category] | genpass [bits] | dryrun name command ... | log [n|reset] | save | load", "Manages users and their rights.", acl).own_flags(&[(&["cat", "genpass", "help", "whoami"], 0)]).hides(secrets::users),
];

fn acl(cx: &mut Cx<'_>, request: &Request) -> Done {
    let users = &cx.server.acl;
    match (request[1].to_ascii_lowercase().as_slice(), request.len()) {
        (b"whoami", 2) => {
            let name = cx.session.login.user.as_ref().map_or(DEFAULT, |user| &user.name);
            cx.out.bulk(name.as_bytes());
        }
        (b"users", 2) => {
            let users = users.users();
            cx.out.array(users.len());
            users.iter().for_each(|user| cx.out.bulk(user.name.as_bytes()));
        }
        (b"list", 2) => {
            let users = users.users();
            cx.out.array(users.len());
            users.iter().for_each(|user| cx.out.bulk(user.line().as_bytes()));
        }
        (b"getuser", 3) => match users.user(&text(&request[2])) {
            Some(user) => put_user(cx, &user),
            None => cx.out.null(),
        },
        (b"setuser", 3..) => {
            let name = std::str::from_utf8(&request[2]).map_err(|_| "ERR names of users are UTF-8")?;
            // Hashing passwords takes long.
            tokio::task::block_in_place(|| users.set(name, &request.tail(3))).map_err(Fail::text)?;
            cx.out.ok();
        }
        (b"deluser", 3..) => deluser(cx, request)?,
        (b"cat", 2) => {
            cx.out.array(CATEGORIES.len());
            CATEGORIES.iter().for_each(|category| cx.out.bulk(category.as_bytes()));
        }
        (b"cat", 3) => cat(cx, &text(&request[2]).to_lowercase())?,
        (b"genpass", 2 | 3) => genpass(cx, request.get(2))?,
        (b"dryrun", 4..) => dry_run(cx, request)?,
        (b"log", 2 | 3) => log(cx, request)?,
        (b"save", 2) => {
            tokio::task::block_in_place(|| users.save()).map_err(Fail::text)?;
            cx.out.ok();
        }
        (b"load", 2) => {
            let gone = tokio::task::block_in_place(|| users.load()).map_err(Fail::text)?;
            gone.iter().for_each(|name| end_connections(cx, name));
            cx.out.ok();
        }
        _ => return Err(unknown_subcommand(request)),
    }
    Ok(())
}

fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

fn put_user(cx: &mut Cx<'_>, user: &User) {
    let out = &mut *cx.out;
    let rights = user.rights();
    let put_rights = |out: &mut crate::resp::Out, rights: &[String; 3]| {
        for (name, value) in ["commands", "keys", "channels"].iter().zip(rights) {
            out.bulk(name.as_bytes());
            out.bulk(value.as_bytes());
        }
    };
    out.map(6);
    for (name, words) in [
        ("flags", user.flags().iter().map(|flag| (*flag).to_owned()).collect()),
        ("passwords", user.hashes()),
    ] {
        out.bulk(name.as_bytes());
        if name == "flags" {
            out.set(words.len())
        } else {
            out.array(words.len())
        }
        words.iter().for_each(|word| out.bulk(word.as_bytes()));
    }
    put_rights(out, &rights[0]);
    out.bulk(b"selectors");
    out.array(rights.len() - 1);
    for selector in &rights[1..] {
        out.map(3);
        put_rights(out, selector);
    }
}

fn deluser(cx: &mut Cx<'_>, request: &Request) -> Done {
    if request.from(2).any(|name| name == DEFAULT.as_bytes()) {
        return Err("ERR The 'default' user cannot be removed".into());
    }
    let mut removed = 0;
    for name in request.from(2).map(text) {
        if cx.server.acl.remove(&name) {
            removed += 1;
            end_connections(cx, &name);
        }
    }
    cx.out.int(removed);
    Ok(())
}

/// Ends the connections of a removed user. The current connection ends after its reply.
fn end_connections(cx: &mut Cx<'_>, name: &str) {
    for client in cx.server.clients.list() {
        if *client.user.lock() != name {
            continue;
        }
        if client.id == cx.session.client.id {
            cx.session.is_over = true;
        } else {
            client.kill();
        }
    }
}

fn cat(cx: &mut Cx<'_>, name: &str) -> Done {
    if !CATEGORIES.contains(&name) {
        return Err(Fail::text(format!("ERR Unknown category '{name}'")));
    }
    let category = format!("@{name}");
    let found: Vec<_> = cx
        .server
        .commands
        .specs()
        .iter()
        .filter(|spec| spec.categories_with(spec.flags).contains(&category))
        .collect();
    cx.out.array(found.len());
    found.iter().for_each(|command| cx.out.bulk(command.name.as_bytes()));
    Ok(())
}

fn genpass(cx: &mut Cx<'_>, bits: Option<&[u8]>) -> Done {
    let bits = bits.map_or(Ok(256), int)?;
    if !(1..=4096).contains(&bits) {
        return Err("ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096".into());
    }
    let digits = (bits as usize).div_ceil(4);
    let mut bytes = vec![0; digits.div_ceil(2)];
    random(&mut bytes).map_err(Fail::text)?;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    cx.out.bulk(&hex.as_bytes()[..digits]);
    Ok(())
}

fn dry_run(cx: &mut Cx<'_>, request: &Request) -> Done {
    let name = text(&request[2]);
    let user = cx.server.acl.user(&name).ok_or_else(|| Fail::text(format!("ERR User '{name}' not found")))?;
    let words = Request::of(request.from(3));
    let found = cx.server.commands.entry(&words[0]);
    let (command, at) =
        found.ok_or_else(|| Fail::text(format!("ERR Command '{}' not found", text(&words[0]))))?;
    if !command.fits(&words) {
        return Err(Fail::text(command.wrong_arity()));
    }
    if let Some(wrong) = command.wrong_subcommand(&words) {
        return Err(match command.asked_subcommand(&words) {
            Some(_) => Fail::text(wrong),
            None => Fail::text(format!("ERR Command '{}' not found", text(&words[0]))),
        });
    }
    match user.check(at, command, &words) {
        Ok(()) => cx.out.ok(),
        Err(denied) => cx.out.bulk(denied.dry_message().as_bytes()),
    }
    Ok(())
}

fn log(cx: &mut Cx<'_>, request: &Request) -> Done {
    if request.is(2, "reset") {
        cx.server.acl.log.clear();
        cx.out.ok();
        return Ok(());
    }
    let count = request.get(2).map_or(Ok(10), int)?;
    let newest =
        cx.server.acl.log.newest(usize::try_from(count).unwrap_or(0), cx.server.config.refusals_max());
    cx.out.array(newest.len());
    for refusal in newest {
        cx.out.map(7);
        cx.out.bulk(b"count");
        cx.out.int(refusal.count as i64);
        for (name, value) in [
            ("reason", refusal.reason.name().as_bytes()),
            ("context", refusal.context.as_bytes()),
            ("object", &refusal.object),
            ("username", refusal.user.as_bytes()),
        ] {
            cx.out.bulk(name.as_bytes());
            cx.out.bulk(value);
        }
        cx.out.bulk(b"age-seconds");
        cx.out.double(cx.now.saturating_sub(refusal.at) as f64 / 1000.0);
        cx.out.bulk(b"client-info");
        cx.out.bulk(refusal.client.as_bytes());
    }
    Ok(())
}
