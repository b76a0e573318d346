//! Removals of stream entries that regard consumer groups, and claims of idle entries.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fastrand::Rng;

use crate::harness::{TestServer, until};
use crate::node::Node;
use crate::wire::{Reply, Wire};

/// A consumer group of the model: the last id that it delivered, and its pending entries with their numbers
/// of deliveries.
#[derive(Default)]
struct Group {
    last: u64,
    pending: BTreeMap<u64, u64>,
}

/// A stream of which all ids are `n-0`.
#[derive(Default)]
struct Model {
    entries: BTreeSet<u64>,
    last: u64,
    groups: [Group; 2],
}

impl Model {
    fn is_referenced(&self, id: u64) -> bool {
        self.groups.iter().any(|group| id > group.last || group.pending.contains_key(&id))
    }

    fn forget(&mut self, id: u64) {
        self.groups.iter_mut().for_each(|group| _ = group.pending.remove(&id));
    }

    fn delete(&mut self, mode: &str, id: u64) -> i64 {
        match mode {
            "ACKED" if self.is_referenced(id) => return if self.entries.contains(&id) { 2 } else { -1 },
            "DELREF" => self.forget(id),
            _ => {}
        }
        if self.entries.remove(&id) { 1 } else { -1 }
    }

    fn ack_and_delete(&mut self, group: usize, mode: &str, id: u64) -> i64 {
        if self.groups[group].pending.remove(&id).is_none() {
            if mode == "DELREF" && !self.entries.contains(&id) {
                self.forget(id);
            }
            return -1;
        }
        if mode == "ACKED" && self.is_referenced(id) { 2 } else { self.delete(mode, id).max(1) }
    }

    fn trim(&mut self, mode: &str, len: usize, from: u64) -> usize {
        let mut removed = 0;
        for id in self.entries.iter().copied().collect::<Vec<_>>() {
            if self.entries.len() > len && id < from && !(mode == "ACKED" && self.is_referenced(id)) {
                self.delete(mode, id);
                removed += 1;
            }
        }
        removed
    }

    /// The ids that a read delivers, each with the number of its deliveries before.
    fn read(&mut self, group: usize, count: usize, claims: bool) -> Vec<(u64, u64)> {
        let Model { entries, groups, .. } = self;
        let group = &mut groups[group];
        let mut found = Vec::new();
        for (id, deliveries) in group.pending.iter_mut().filter(|(id, _)| claims && entries.contains(id)) {
            if found.len() < count {
                found.push((*id, *deliveries));
                *deliveries += 1;
            }
        }
        for id in entries.range(group.last + 1..).take(count - found.len()) {
            (group.last, _) = (*id, group.pending.insert(*id, 1));
            found.push((*id, 0));
        }
        found
    }
}

fn say_all(wire: &mut Wire, lines: &[&str]) {
    lines.iter().for_each(|line| drop(wire.say(line)));
}

fn numbers(reply: &Reply) -> Vec<i64> {
    let Reply::List(_, items) = reply else { panic!("{reply:?}") };
    items.iter().map(|item| if let Reply::Int(n) = item { *n } else { panic!("{item:?}") }).collect()
}

/// The ids of a reply of `XREADGROUP`, in order, with their numbers of previous deliveries if it has any.
fn delivered(reply: &str) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    for entry in reply.split("-0\", *[\"f\", \"v\"]").collect::<Vec<_>>().windows(2) {
        let id = entry[0].rsplit('"').next().and_then(|id| id.parse().ok()).unwrap();
        let count = entry[1].split(']').next().and_then(|rest| rest.rsplit(':').next()?.parse().ok());
        found.push((id, count.unwrap_or(0)));
    }
    found
}

#[test]
fn removals_and_claims_agree_with_a_model() {
    let server = TestServer::start();
    let mut wire = server.wire();
    for seed in 0..6 {
        let (mut random, mut model) = (Rng::with_seed(seed), Model::default());
        wire.say("DEL s");
        say_all(&mut wire, &["XGROUP CREATE s g0 0 MKSTREAM", "XGROUP CREATE s g1 0"]);
        for step in 0..400 {
            let mode = *random.choice(&["KEEPREF", "DELREF", "ACKED"]).unwrap();
            let (group, some) = (random.usize(..2), random.u64(1..=model.last.max(1)));
            let ids: Vec<_> = (0..random.usize(1..4)).map(|_| random.u64(1..=model.last.max(1))).collect();
            let listed = ids.iter().map(|id| format!(" {id}-0")).collect::<String>();
            let place = format!("seed {seed} step {step}");
            match random.u32(..12) {
                0..4 => {
                    model.last += random.u64(1..3);
                    let (id, len) = (model.last, random.usize(..30));
                    wire.say(&format!("XADD s MAXLEN = {len} {mode} {id}-0 f v"));
                    model.entries.insert(id);
                    model.trim(mode, len, u64::MAX);
                }
                4 => {
                    let reply = wire.say(&format!("XTRIM s {mode} MINID = {some}-0"));
                    assert_eq!(reply, format!(":{}", model.trim(mode, 0, some)), "{place}");
                }
                5 | 6 => {
                    let line = format!("XDELEX s {mode} IDS {}{listed}", ids.len());
                    let reply = wire.call(&line.split(' ').collect::<Vec<_>>());
                    let known: Vec<_> = ids.iter().map(|id| model.delete(mode, *id)).collect();
                    assert_eq!(numbers(&reply), known, "{place}: {line}");
                }
                7 | 8 => {
                    let line = format!("XACKDEL s g{group} IDS {}{listed} {mode}", ids.len());
                    let reply = wire.call(&line.split(' ').collect::<Vec<_>>());
                    let known: Vec<_> = ids.iter().map(|id| model.ack_and_delete(group, mode, *id)).collect();
                    assert_eq!(numbers(&reply), known, "{place}: {line}");
                }
                _ => {
                    let (count, claims) = (random.usize(1..5), random.bool());
                    let claim = if claims { "CLAIM 0 " } else { "" };
                    let reply =
                        wire.say(&format!("XREADGROUP GROUP g{group} c COUNT {count} {claim}STREAMS s >"));
                    let mut known = model.read(group, count, claims);
                    let mut found = delivered(&reply);
                    // Entries that were delivered in the same millisecond may come in another order.
                    known.sort_unstable();
                    found.sort_unstable();
                    if known.len() < count {
                        assert_eq!(found, known, "{place}: {reply}");
                    } else {
                        assert_eq!(found.len(), known.len(), "{place}: {reply}");
                        model.groups[group].pending = pending(&mut wire, group);
                    }
                }
            }
            assert_eq!(wire.say("XLEN s"), format!(":{}", model.entries.len()), "{place}");
            assert_eq!(pending(&mut wire, group), model.groups[group].pending, "{place}");
        }
        assert_eq!(wire.say("ES.VERIFY"), "*[]");
    }
}

/// The pending entries of a group, with their numbers of deliveries.
fn pending(wire: &mut Wire, group: usize) -> BTreeMap<u64, u64> {
    let Reply::List(_, rows) = wire.call(&["XPENDING", "s", &format!("g{group}"), "-", "+", "10000"]) else {
        panic!("a list")
    };
    let words = rows.iter().map(|row| format!("{row:?}"));
    let pair = |row: String| {
        let id = row.trim_start_matches("*[\"").split('-').next()?.parse().ok()?;
        Some((id, row.trim_end_matches(']').rsplit(':').next()?.parse().ok()?))
    };
    words.map(|row| pair(row).unwrap()).collect()
}

#[test]
fn idle_entries_are_claimed_longest_first_and_while_a_reader_waits() {
    let server = TestServer::start();
    let (mut wire, mut waiting, mut third) = (server.wire(), server.wire(), server.wire());
    for n in 1..=4 {
        wire.say(&format!("XADD s {n}-0 f v"));
    }
    wire.say("XGROUP CREATE s g 0");
    wire.say("XREADGROUP GROUP g a COUNT 3 STREAMS s >");
    for (id, idle) in [(1, 20_000), (2, 40_000), (3, 60_000)] {
        wire.say(&format!("XCLAIM s g a 0 {id}-0 IDLE {idle} JUSTID"));
    }
    let reply = wire.say("XREADGROUP GROUP g b CLAIM 30000 STREAMS s >");
    assert_eq!(delivered(&reply), [(3, 1), (2, 1), (4, 0)]);
    assert!(reply.contains("*[\"4-0\", *[\"f\", \"v\"], :0, :0]"), "{reply}");
    // What NOACK does not add to the pending entries it does not remove either.
    wire.say("XADD s 5-0 f v");
    let reply = wire.say("XREADGROUP GROUP g b CLAIM 10000 NOACK COUNT 5 STREAMS s >");
    assert_eq!(delivered(&reply), [(1, 1), (5, 0)]);
    assert!(wire.say("XPENDING s g").starts_with("*[:4,"));
    // A history has the form that it has without CLAIM.
    assert!(wire.say("XREADGROUP GROUP g b CLAIM 0 STREAMS s 3").ends_with("*[\"4-0\", *[\"f\", \"v\"]]]]]"));
    // A reader waits until an entry has been idle for long enough. It is not one of the first.
    wire.say("DEL s");
    wire.say("XGROUP CREATE s g $ MKSTREAM");
    let waiters = || server.server.sequencer.waiters();
    waiting.send(&["XREADGROUP", "GROUP", "g", "w", "BLOCK", "0", "CLAIM", "150", "STREAMS", "s", ">"]);
    until(|| waiters() == 1);
    third.send(&[
        "XREADGROUP",
        "GROUP",
        "g",
        "x",
        "BLOCK",
        "0",
        "CLAIM",
        "9223372036854775807",
        "STREAMS",
        "s",
        ">",
    ]);
    until(|| waiters() == 2);
    say_all(&mut wire, &["MULTI", "XADD s 1-0 f v", "XREADGROUP GROUP g a STREAMS s >", "EXEC"]);
    let reply = format!("{:?}", waiting.reply());
    assert_eq!(delivered(&reply), [(1, 1)], "claimed once it was idle");
    assert_eq!(waiters(), 1);
    // A time that is over ends the wait, and an entry that is gone is neither claimed nor lost.
    wire.say("XDEL s 1-0");
    waiting.send(&["XREADGROUP", "GROUP", "g", "w", "BLOCK", "300", "CLAIM", "100", "STREAMS", "s", ">"]);
    assert_eq!(format!("{:?}", waiting.reply()), "null");
    assert!(wire.say("XPENDING s g").starts_with("*[:1,"));
}

#[test]
fn each_of_several_waiting_readers_claims_an_entry_once_it_is_idle() {
    let server = TestServer::start();
    let mut wire = server.wire();
    wire.say("XGROUP CREATE s g $ MKSTREAM");
    let mut readers = [server.wire(), server.wire(), server.wire()];
    for (n, reader) in readers.iter_mut().enumerate() {
        let name = format!("w{n}");
        let words = ["XREADGROUP", "GROUP", "g", &name, "COUNT", "1", "BLOCK", "9000", "CLAIM", "150"];
        reader.send(&[&words[..], &["STREAMS", "s", ">"]].concat());
        until(|| server.server.sequencer.waiters() == n + 1);
    }
    // Only the first reader checks this change, because all wait for the same.
    let lines = ["MULTI", "XADD s 1-0 f v", "XADD s 2-0 f v", "XADD s 3-0 f v"];
    say_all(&mut wire, &lines);
    say_all(&mut wire, &["XREADGROUP GROUP g a STREAMS s >", "EXEC"]);
    let mut claimed = readers.map(|mut reader| delivered(&format!("{:?}", reader.reply())));
    claimed.sort_unstable();
    assert_eq!(claimed, [[(1, 1)], [(2, 1)], [(3, 1)]]);
}

#[test]
fn a_pause_holds_the_claims_of_readers_that_wait() {
    let server = TestServer::start();
    let (mut wire, mut reader) = (server.wire(), server.wire());
    let lines = ["XADD s 1-0 f v", "XGROUP CREATE s g 0", "XREADGROUP GROUP g a STREAMS s >"];
    say_all(&mut wire, &lines);
    reader.send(&["XREADGROUP", "GROUP", "g", "b", "BLOCK", "0", "CLAIM", "300", "STREAMS", "s", ">"]);
    until(|| server.server.sequencer.waiters() == 1);
    wire.say("CLIENT PAUSE 60000 WRITE");
    std::thread::sleep(std::time::Duration::from_millis(600));
    assert!(wire.say("XPENDING s g").ends_with("*[*[\"a\", \"1\"]]]"), "a claim is a write");
    wire.say("CLIENT UNPAUSE");
    assert_eq!(delivered(&format!("{:?}", reader.reply())), [(1, 1)]);
}

#[test]
fn wrong_words_are_refused_and_change_nothing() {
    let server = TestServer::start();
    let mut wire = server.wire();
    say_all(
        &mut wire,
        &["XADD s 1-1 f v", "XGROUP CREATE s g 0", "XREADGROUP GROUP g c STREAMS s >", "SET text v"],
    );
    for (line, error) in [
        ("XDELEX s IDS 0 1-1", "-ERR Number of IDs must be a positive integer"),
        ("XDELEX s IDS x 1-1", "-ERR Number of IDs must be a positive integer"),
        ("XDELEX s IDS 2 1-1", "-ERR The `numids` parameter must match the number of arguments"),
        ("XDELEX s IDS 1 1-1 2-2", "-ERR syntax error"),
        ("XDELEX s KEEPREF ACKED IDS 1 1-1", "-ERR syntax error"),
        ("XDELEX s ACKED KEEPREF DELREF", "-ERR syntax error"),
        ("XDELEX s IDS 1 x", "-ERR Invalid stream ID specified as stream command argument"),
        ("XACKDEL s g KEEPREF IDS 1 1-x", "-ERR Invalid stream ID specified as stream command argument"),
        ("XACKDEL s g", "-ERR wrong number of arguments for 'xackdel' command"),
        ("XDELEX text IDS 1 1-1", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("XTRIM s MAXLEN 0 ACKED DELREF", "-ERR syntax error"),
        ("XTRIM s ACKED DELREF", "-ERR syntax error"),
        ("XADD s KEEPREF DELREF MAXLEN 0 * f v", "-ERR syntax error"),
        ("XREADGROUP GROUP g c CLAIM x STREAMS s >", "-ERR min-idle-time is not an integer"),
        ("XREADGROUP GROUP g c CLAIM -1 STREAMS s >", "-ERR min-idle-time must be a positive integer"),
        (
            "XREAD CLAIM 1 STREAMS s 0",
            "-ERR The CLAIM option is only supported by XREADGROUP. You called XREAD instead.",
        ),
    ] {
        assert_eq!(wire.say(line), error, "{line}");
    }
    assert_eq!(wire.say("XDELEX none DELREF IDS 2 1-1 2-2"), "*[:-1, :-1]");
    assert_eq!(wire.say("XACKDEL s none IDS 1 1-1"), "*[:-1]");
    assert_eq!(wire.say("XTRIM s MAXLEN 0 ACKED"), ":0", "the entry is pending");
    assert_eq!(wire.say("XLEN s"), ":1");
    assert_eq!(wire.say("XADD s ACKED 2-0 f v"), "\"2-0\"");
    // A group that comes later needs what it has yet to deliver.
    wire.say("XGROUP CREATE s late 1-1");
    assert_eq!(wire.say("XACKDEL s g ACKED IDS 1 1-1"), "*[:1]");
    assert_eq!(wire.say("XDELEX s ACKED IDS 1 2-0"), "*[:2]");
    say_all(&mut wire, &["XGROUP DESTROY s g", "XGROUP DESTROY s late"]);
    assert_eq!(wire.say("XDELEX s ACKED IDS 1 2-0"), "*[:1]");
    assert!(wire.say("XINFO STREAM s").contains("\"max-deleted-entry-id\", \"2-0\""));
}

#[test]
fn replicas_and_restarts_have_what_was_removed_and_claimed() {
    let dir = tempfile::tempdir().unwrap();
    let mut primary = Node::start(&dir.path().join("a"));
    let replica = Node::replica_of(&dir.path().join("b"), primary.port());
    let mut wire = primary.wire();
    for n in 1..=300 {
        wire.say(&format!("XADD s {n}-0 f {}", "v".repeat(30)));
    }
    say_all(
        &mut wire,
        &["XGROUP CREATE s g0 0", "XGROUP CREATE s g1 100", "XREADGROUP GROUP g0 a COUNT 200 STREAMS s >"],
    );
    say_all(
        &mut wire,
        &[
            "MULTI",
            "XACKDEL s g0 DELREF IDS 2 1-0 150-0",
            "XREADGROUP GROUP g0 b COUNT 3 CLAIM 0 STREAMS s >",
        ],
    );
    assert!(wire.say("EXEC").starts_with("*[*[:1, :1], *[*[\"s\","));
    #[cfg(feature = "lua")]
    {
        let script = "return#redis.call('XREADGROUP','GROUP','g1','c','CLAIM','0','BLOCK','0','STREAMS','s','>')[1][2]";
        assert_eq!(wire.call(&["EVAL", script, "1", "s"]), Reply::Int(199));
        assert_eq!(
            wire.call(&["EVAL", "return redis.call('XDELEX','s','ACKED','IDS',1,'201-0')", "1", "s"]),
            Reply::List('*', vec![Reply::Int(2)])
        );
        assert_eq!(wire.say("XGROUP SETID s g1 100"), "+OK");
        assert_eq!(wire.say("XGROUP DELCONSUMER s g1 c"), ":199");
    }
    assert_eq!(wire.say("XTRIM s MAXLEN = 5 ACKED"), ":0");
    assert_eq!(wire.say("XACK s g0 2-0 5-0"), ":2");
    assert_eq!(wire.say("XTRIM s MAXLEN = 5 ACKED"), ":2");
    let state = |wire: &mut Wire| {
        ["XINFO STREAM s", "XPENDING s g0", "XRANGE s - + COUNT 9", "XINFO GROUPS s"]
            .map(|line| wire.say(line))
    };
    let known = state(&mut wire);
    assert!(known[1].starts_with("*[:196, \"3-0\", \"200-0\""), "{}", known[1]);
    assert_eq!(wire.say("WAIT 1 10000"), ":1");
    assert_eq!(state(&mut replica.wire()), known);
    assert!(replica.wire().say("XDELEX s IDS 1 3-0").starts_with("-READONLY"));
    let Reply::Bulk(payload) = wire.call(&["DUMP", "s"]) else { panic!("a payload") };
    assert_eq!(wire.call(&[b"RESTORE".as_slice(), b"t", b"0", &payload]), Reply::Simple("OK".into()));
    assert_eq!(wire.say("XDELEX t DELREF IDS 2 3-0 4-0"), "*[:1, :1]");
    assert!(wire.say("XPENDING t g0").starts_with("*[:194,"));
    assert_eq!(wire.say("ES.VERIFY"), "*[]");
    drop(wire);
    primary.restart();
    assert_eq!(state(&mut primary.wire()), known);
    std::thread::sleep(Duration::from_millis(20));
    let reply = primary.wire().say("XREADGROUP GROUP g0 c COUNT 1 CLAIM 10 STREAMS s >");
    assert!(reply.contains("\"3-0\"") || reply.contains("\"4-0\"") || reply.contains("\"6-0\""), "{reply}");
}
