//! The protocol of Redis Sentinel, as far as clients use it: the address of the primary, the other servers
//! and sentinels, and messages about changes.

use std::io::{self, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Parser, Value};

use super::board::{Board, Look};
use super::plan::View;
use super::record::parse_source;
use super::reply::Reply;

/// Maximum number of connections.
const CLIENTS_MAX: usize = 1_000;
/// Maximum size of a request. What is longer ends its connection.
const REQUEST_BYTES_MAX: u64 = 64 << 10;
/// How often the listener looks whether the sentinel has to end.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Serves clients until `stop` is set.
pub(super) fn run(listener: &TcpListener, board: &Arc<Board>, stop: &Arc<AtomicBool>) {
    let (count, mut id) = (Arc::new(AtomicUsize::new(0)), 0);
    while !stop.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((stream, _)) if count.load(Ordering::Relaxed) < CLIENTS_MAX => {
                id += 1;
                count.fetch_add(1, Ordering::Relaxed);
                let (board, count) = (board.clone(), count.clone());
                #[expect(
                    clippy::disallowed_methods,
                    reason = "no data is behind it that could be simulated"
                )]
                std::thread::spawn(move || {
                    // However the connection ends, the client connects again.
                    let _ = serve(&stream, &board, id);
                    board.end(id);
                    count.fetch_sub(1, Ordering::Relaxed);
                });
            }
            Ok(_) => {}
            Err(_) => {
                #[expect(clippy::disallowed_methods, reason = "a thread of its own that waits for clients")]
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }
}

fn serve(stream: &TcpStream, board: &Board, id: u64) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(Duration::from_secs(5)))?;
    let out = Arc::new(Mutex::new(stream.try_clone()?));
    let mut input = BufReader::new(stream.try_clone()?.take(REQUEST_BYTES_MAX));
    let (mut parser, mut is_3) = (Parser::new(), false);
    loop {
        input.get_mut().set_limit(REQUEST_BYTES_MAX);
        let Ok(Value::Array(words)) = parser.parse_value(&mut input) else {
            return Ok(());
        };
        let words: Vec<Vec<u8>> = words
            .into_iter()
            .filter_map(|word| match word {
                Value::BulkString(word) => Some(word),
                _ => None,
            })
            .collect();
        let mut reply = Reply::new(is_3);
        let goes_on = answer(&words, board, id, &out, &mut reply);
        is_3 = reply.is_3;
        out.lock().write_all(&reply.bytes)?;
        if !goes_on {
            return Ok(());
        }
    }
}

/// Answers a request. Returns false if the connection ends.
fn answer(
    words: &[Vec<u8>],
    board: &Board,
    id: u64,
    stream: &Arc<Mutex<TcpStream>>,
    out: &mut Reply,
) -> bool {
    let lower: Vec<Vec<u8>> = words.iter().map(|word| word.to_ascii_lowercase()).collect();
    let lower: Vec<&[u8]> = lower.iter().map(Vec::as_slice).collect();
    match &lower[..] {
        [b"ping"] => out.line("+PONG"),
        [b"ping", _] => out.bulk(&words[1]),
        [b"quit"] => {
            out.line("+OK");
            return false;
        }
        [b"auth", ..] => out.error("ERR this sentinel has no password: connect without one"),
        [b"hello"] | [b"hello", b"2" | b"3", ..] => hello(lower.get(1).copied(), out),
        [b"hello", ..] => out.error("NOPROTO this sentinel speaks versions 2 and 3 of the protocol"),
        [b"client", b"setname" | b"setinfo" | b"no-evict" | b"no-touch", ..] | [b"select", _] => {
            out.line("+OK")
        }
        [b"client", b"id"] => out.line(&format!(":{id}")),
        [b"role"] => {
            out.head(2);
            out.bulk(b"sentinel");
            out.array(&[board.options.name.as_bytes()]);
        }
        [b"info", ..] => out.bulk(info(board).as_bytes()),
        [b"command", ..] => out.head(0),
        [word @ (b"subscribe" | b"psubscribe" | b"unsubscribe" | b"punsubscribe"), ..] if words.len() > 1 => {
            let is_pattern = word.starts_with(b"p");
            let is_added = word.ends_with(b"subscribe") && !word.ends_with(b"unsubscribe");
            for channel in &words[1..] {
                let count = board.subscribe((id, out.is_3), stream, (channel.clone(), is_pattern), is_added);
                out.push(3);
                out.bulk(word);
                out.bulk(channel);
                out.line(&format!(":{count}"));
            }
        }
        [b"sentinel", rest @ ..] => sentinel(rest, words, board, out),
        _ => out.error("ERR unknown command: a sentinel knows SENTINEL, INFO, PING, ROLE and SUBSCRIBE"),
    }
    true
}

fn hello(version: Option<&[u8]>, out: &mut Reply) {
    out.is_3 = version.map_or(out.is_3, |version| version == b"3");
    let role = [
        ("server", "redis"),
        ("version", env!("CARGO_PKG_VERSION")),
        ("mode", "sentinel"),
        ("role", "master"),
    ];
    out.map(role.len() + 1);
    out.bulk(b"proto");
    out.line(if out.is_3 { ":3" } else { ":2" });
    for word in role.into_iter().flat_map(|(name, value)| [name, value]) {
        out.bulk(word.as_bytes());
    }
}

fn sentinel(rest: &[&[u8]], words: &[Vec<u8>], board: &Board, out: &mut Reply) {
    let look = board.look();
    let is_known = words.get(2).is_none_or(|name| *name == board.options.name.as_bytes());
    match rest {
        [b"get-master-addr-by-name", _] => match look.record.as_ref().and_then(|record| record.primary()) {
            Some(primary) if is_known => {
                out.array(&[primary.host.as_bytes(), primary.port.to_string().as_bytes()]);
            }
            _ => out.null_array(),
        },
        [b"myid"] => out.bulk(run_id(&board.options.announce.to_string()).as_bytes()),
        [b"masters"] => {
            out.head(1);
            out.pairs(&master(&look, board));
        }
        [_, _, ..] if !is_known => out.error("ERR No such master with that name"),
        [b"master", _] => out.pairs(&master(&look, board)),
        [b"replicas" | b"slaves", _] => {
            let primary = look.record.as_ref().and_then(|record| record.primary.clone());
            let others: Vec<_> =
                look.views.iter().filter(|view| Some(&view.name) != primary.as_ref()).collect();
            out.head(others.len());
            others.iter().for_each(|view| out.pairs(&replica(view, board)));
        }
        [b"sentinels", _] => {
            let me = board.options.announce.to_string();
            let others: Vec<_> = look.sentinels.iter().filter(|name| **name != me).collect();
            out.head(others.len());
            for name in others {
                let (host, port) = name.rsplit_once(':').unwrap_or((name, ""));
                out.pairs(&[
                    ("name", name.clone()),
                    ("ip", host.trim_matches(['[', ']']).to_owned()),
                    ("port", port.to_owned()),
                    ("runid", run_id(name)),
                    ("flags", "sentinel".to_owned()),
                ]);
            }
        }
        [b"ckquorum", _] => match &look.trouble {
            None => out.line("+OK the group works"),
            Some(why) => out.error(&format!("NOQUORUM {}", why.replace(['\r', '\n'], " "))),
        },
        [b"failover", _] => match look.acts {
            Some(acts) if acts == board.options.announce.to_string() => {
                board.ask_failover();
                out.line("+OK");
            }
            acts => {
                out.error(&format!(
                    "NOTACTING ask the sentinel at {}",
                    acts.unwrap_or_else(|| "no address yet".to_owned())
                ));
            }
        },
        _ => out.error("ERR unknown subcommand of SENTINEL"),
    }
}

/// Forty hexadecimal digits from an address, as clients expect them of an identity.
fn run_id(name: &str) -> String {
    format!("{:032x}{:08x}", xxhash_rust::xxh3::xxh3_128(name.as_bytes()), 0)
}

fn master(look: &Look, board: &Board) -> Vec<(&'static str, String)> {
    let record = look.record.as_ref();
    let primary = record.and_then(|record| record.primary());
    let name = record.and_then(|record| record.primary.clone()).unwrap_or_default();
    let view = look.views.iter().find(|view| view.name == name);
    let is_down = view.is_none_or(|view| view.silent >= board.options.down_after);
    let flags = if is_down { "master,s_down,o_down" } else { "master" };
    let host = primary.as_ref().map_or(String::new(), |primary| primary.host.clone());
    let run = view.and_then(|view| view.status.as_ref()).map_or(String::new(), |status| status.run.clone());
    vec![
        ("name", board.options.name.clone()),
        ("ip", host),
        ("port", primary.map_or(0, |primary| primary.port).to_string()),
        ("runid", run),
        ("flags", flags.to_owned()),
        ("link-pending-commands", "0".to_owned()),
        ("last-ok-ping-reply", view.map_or(0, |view| view.silent.as_millis()).to_string()),
        ("down-after-milliseconds", board.options.down_after.as_millis().to_string()),
        ("role-reported", "master".to_owned()),
        ("config-epoch", record.map_or(0, |record| record.ballot).to_string()),
        ("num-slaves", look.views.len().saturating_sub(1).to_string()),
        ("num-other-sentinels", look.sentinels.len().saturating_sub(1).to_string()),
        ("quorum", board.options.quorum.to_string()),
    ]
}

fn replica(view: &View, board: &Board) -> Vec<(&'static str, String)> {
    let source = parse_source(&view.name);
    let status = view.status.clone().unwrap_or_default();
    let is_down = view.silent >= board.options.down_after;
    let primary = parse_source(&status.primary);
    vec![
        ("name", view.name.clone()),
        ("ip", source.as_ref().map_or(String::new(), |source| source.host.clone())),
        ("port", source.map_or(0, |source| source.port).to_string()),
        ("runid", status.run),
        ("flags", if is_down { "slave,s_down" } else { "slave" }.to_owned()),
        ("master-link-status", if status.has_link { "ok" } else { "err" }.to_owned()),
        ("master-host", primary.as_ref().map_or("?".to_owned(), |source| source.host.clone())),
        ("master-port", primary.map_or(0, |source| source.port).to_string()),
        ("slave-priority", "100".to_owned()),
        ("slave-repl-offset", status.at.seq.to_string()),
    ]
}

fn info(board: &Board) -> String {
    let look = board.look();
    let record = look.record.as_ref();
    let primary = record.and_then(|record| record.primary.clone()).unwrap_or_default();
    let (name, replicas, sentinels) =
        (&board.options.name, look.views.len().saturating_sub(1), look.sentinels.len());
    let status = if look.trouble.is_some() { "odown" } else { "ok" };
    let trouble = look.trouble.unwrap_or_default().replace(['\r', '\n'], " ");
    format!(
        "# Server\r\nredis_mode:sentinel\r\nesker_version:{}\r\n\r\n# Sentinel\r\nsentinel_masters:1\r\nsentinel_acts:{}\r\nsentinel_ballot:{}\r\nsentinel_trouble:{trouble}\r\nmaster0:name={name},status={status},address={primary},slaves={replicas},sentinels={sentinels}\r\n",
        env!("CARGO_PKG_VERSION"),
        look.acts.unwrap_or_default(),
        record.map_or(0, |record| record.ballot),
    )
}
