//! Primaries and replicas.

use std::time::Duration;

use esker::History;
use esker::unload::{Load, Unload};
use esker_server::{Fsync, Options};

use crate::harness::until;
use crate::node::{Node, assert_same, source};

#[test]
fn a_replica_gets_a_copy_then_commits_and_comes_back_without_a_copy() {
    let dir = tempfile::tempdir().unwrap();
    let primary = Node::start(&dir.path().join("a"));
    let mut wire = primary.wire();
    for n in 0..200 {
        wire.say(&format!("SET before{n} {n}"));
        wire.say(&format!("ZADD many {n} member{n}"));
    }
    let mut replica = Node::replica_of(&dir.path().join("b"), primary.port());
    assert_same(&primary, &replica);
    assert_eq!(replica.info("role"), "slave");
    assert_eq!(replica.say("GET before7"), "\"7\"");
    assert_eq!(replica.say("ZCARD many"), ":200");
    assert!(replica.say("SET k v").starts_with("-READONLY"));
    assert!(replica.say("ES.KS CREATE k").starts_with("-READONLY"));
    assert_eq!(replica.say("DBSIZE"), ":201");

    // Databases, keyspaces, large values, removals.
    wire.say("SELECT 5");
    wire.say("RPUSH list a b c");
    wire.say("SELECT 0");
    wire.say("SWAPDB 0 5");
    wire.say("ES.KS CREATE plain");
    wire.say("ES.KS CREATE gone");
    wire.say("ES.KS RENAME plain renamed");
    wire.say("ES.KS DROP gone");
    wire.say("ES.KS USE renamed");
    wire.say("ES.SET key value");
    wire.say("ES.KS USE");
    wire.say(&format!("SET large {}", "x".repeat(3 << 20)));
    assert_eq!(wire.say("WAIT 1 0"), ":1");
    assert_eq!(replica.say("LRANGE list 0 -1"), "*[\"a\", \"b\", \"c\"]");
    assert_same(&primary, &replica);
    wire.say("SELECT 5");
    wire.say("DEL many");
    wire.say("FLUSHDB");
    assert_same(&primary, &replica);

    replica.stop();
    for n in 0..100 {
        wire.say(&format!("SET after{n} {n}"));
    }
    replica.restart();
    assert_same(&primary, &replica);
    assert_eq!(replica.info("master_link_status"), "up");
    until(|| !dir.path().join("b.esker-full").exists() && !dir.path().join("a.esker-copy-1").exists());
}

#[test]
fn wait_counts_replicas_that_have_it_and_readers_can_wait_for_a_commit() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { fsync: Fsync::Never, ..Options::default() };
    let primary = Node::start_with(&dir.path().join("a"), options, 64 << 20);
    let mut wire = primary.wire();
    assert_eq!(wire.say("WAIT 0 0"), ":0");
    assert_eq!(wire.say("WAIT 1 20"), ":0");
    assert!(wire.say("WAIT x 0").starts_with("-ERR"));
    let mut replica = Node::replica_of(&dir.path().join("b"), primary.port());
    until(|| primary.info("connected_slaves") == "1" && primary.info("slave0").contains("online"));
    for n in 0..50 {
        wire.say(&format!("SET k {n}"));
        assert_eq!(wire.say("WAIT 1 0"), ":1");
        assert_eq!(replica.say("GET k"), format!("\"{n}\""));
    }
    assert_eq!(wire.say("SET k last"), "+OK");
    assert_eq!(wire.say("WAITAOF 1 1 0"), "*[:1, :1]");
    assert_eq!(wire.say("WAIT 2 30"), ":1");
    assert!(replica.say("WAIT 1 0").starts_with("-ERR"));
    assert!(primary.say("ROLE").contains(&format!("[\"127.0.0.1\", \"{}\"", replica.port())));
    assert!(replica.say("ROLE").starts_with("*[\"slave\", \"127.0.0.1\""), "{}", replica.say("ROLE"));

    wire.say("SET k seen");
    let at = wire.say("ES.POSITION");
    let (epoch, seq) = (at.split('"').nth(1).unwrap(), at.split(':').nth(1).unwrap().trim_end_matches(']'));
    assert_eq!(replica.say(&format!("ES.READ AFTER {epoch} {seq} 0")), "+OK");
    assert_eq!(replica.say("GET k"), "\"seen\"");
    let far = format!("ES.READ AFTER {epoch} 999999 20");
    assert!(replica.say(&far).starts_with("-NOTYET"));
    assert!(replica.say("ES.READ AFTER 1-00 1 20").starts_with("-FORKED"));
    replica.stop();
    until(|| primary.info("connected_slaves") == "0");
}

#[test]
fn a_promoted_replica_goes_on_and_an_old_primary_that_forked_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut old = Node::start(&dir.path().join("a"));
    let replica = Node::replica_of(&dir.path().join("b"), old.port());
    let third = Node::replica_of(&dir.path().join("c"), old.port());
    old.say("HSET hash field value");
    assert_eq!(old.say("WAIT 2 0"), ":2");
    assert_same(&old, &replica);
    assert_same(&old, &third);
    old.stop();
    assert_eq!(replica.say("REPLICAOF NO ONE"), "+OK");
    assert_eq!(replica.info("role"), "master");
    assert_eq!(replica.say("HSET hash other value"), ":1");
    assert_eq!(replica.say("LPUSH list x"), ":1");
    // Another replica follows the new primary without a copy.
    assert_eq!(third.say(&format!("REPLICAOF 127.0.0.1 {}", replica.port())), "+OK");
    assert_same(&replica, &third);

    // The old primary restarts, unaware of the change, and accepts a write: its history forks.
    old.restart();
    assert_eq!(old.say("SET only-here 1"), "+OK");
    assert_eq!(old.say(&format!("REPLICAOF 127.0.0.1 {}", replica.port())), "+OK");
    until(|| old.info("master_link_error").contains("REPLICAOF 127.0.0.1"));
    assert_eq!(old.say("GET only-here"), "\"1\"", "nothing of it was changed");
    assert_eq!(old.say("HLEN hash"), ":1");
    assert_eq!(old.say(&format!("REPLICAOF 127.0.0.1 {} DISCARD", replica.port())), "+OK");
    assert_same(&replica, &old);
    assert_eq!(old.say("GET only-here"), "null");
}

#[test]
fn an_old_primary_that_has_nothing_of_its_own_follows_the_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let old = Node::start(&dir.path().join("a"));
    let new = Node::replica_of(&dir.path().join("b"), old.port());
    old.say("SET k 1");
    assert_same(&old, &new);
    assert_eq!(new.say("REPLICAOF NO ONE"), "+OK");
    new.say("SET k 2");
    assert_eq!(old.say(&format!("SLAVEOF 127.0.0.1 {}", new.port())), "+OK");
    assert_same(&new, &old);
    assert_eq!(old.say("GET k"), "\"2\"");
    // And back again.
    assert_eq!(old.say("REPLICAOF NO ONE"), "+OK");
    old.say("SET k 3");
    assert_eq!(new.say(&format!("REPLICAOF 127.0.0.1 {}", old.port())), "+OK");
    assert_same(&old, &new);
    assert_eq!(new.say("GET k"), "\"3\"");
}

#[test]
fn replicas_of_replicas() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = Node::start(&dir.path().join("a"));
    first.say("SET k 1");
    let mut second = Node::replica_of(&dir.path().join("b"), first.port());
    assert_same(&first, &second);
    let mut third = Node::replica_of(&dir.path().join("c"), second.port());
    assert_same(&first, &third);
    for n in 0..100 {
        first.say(&format!("RPUSH list {n}"));
    }
    assert_same(&first, &third);
    // Each server restarts alone, the first one with a new epoch.
    third.stop();
    first.say("RPUSH list more");
    assert_same(&first, &second);
    second.restart();
    third.restart();
    assert_same(&first, &third);
    first.restart();
    first.say("RPUSH list and more");
    assert_same(&first, &third);
    assert_eq!(third.say("LLEN list"), ":103");
}

#[test]
fn a_replica_that_was_away_for_longer_than_the_backlog_gets_a_copy_again() {
    let dir = tempfile::tempdir().unwrap();
    let primary = Node::start_with(&dir.path().join("a"), Options::default(), 1 << 20);
    let mut replica = Node::replica_of(&dir.path().join("b"), primary.port());
    primary.say("SET k 1");
    assert_same(&primary, &replica);
    let offset: u64 = replica.info("slave_repl_offset").parse().unwrap();
    replica.stop();
    let mut wire = primary.wire();
    // Larger values would not be stored in the log.
    let value = "v".repeat(3000);
    for n in 0..2500 {
        wire.say(&format!("SET key{n} {value}"));
    }
    wire.say("ES.COMPACT");
    until(|| primary.info("repl_backlog_first_byte_offset").parse::<u64>().unwrap() > offset + 1);
    assert_eq!(primary.info("repl_backlog_active"), "1");
    replica.restart();
    assert_same(&primary, &replica);
    assert_eq!(replica.say("DBSIZE"), ":2501");
    until(|| primary.info("slave0").contains("behind=0"));
}

/// Commits a few MiB with several flushes.
fn fill(primary: &Node) {
    let mut wire = primary.wire();
    // Larger values would not be stored in the log.
    let value = "v".repeat(3000);
    for n in 0..1200 {
        wire.say(&format!("SET key{n} {value}"));
    }
    wire.say("ES.COMPACT");
}

#[test]
fn a_slot_keeps_the_log_for_its_replica_over_restarts_up_to_its_limit() {
    let dir = tempfile::tempdir().unwrap();
    let mut primary = Node::start_holding(&dir.path().join("a"), Options::default(), 1 << 20, 12 << 20);
    let of_primary = Options { replica_of: Some(source(primary.port())), ..Options::default() };
    let named = Options { replica_slot: Some("b".to_owned()), ..of_primary };
    let mut replica = Node::start_with(&dir.path().join("b"), named, 64 << 20);
    primary.say("SET k 1");
    assert_same(&primary, &replica);
    let figure = |primary: &Node, name: &str| {
        let slot = primary.info("slot0");
        let found = slot.split(',').find_map(|pair| pair.strip_prefix(&format!("{name}=")));
        found.map(str::to_owned)
    };
    until(|| figure(&primary, "connections").as_deref() == Some("1"));
    let is_at_rest = |primary: &Node| {
        until(|| figure(primary, "behind").is_some_and(|behind| behind.parse::<u64>().unwrap() < 2));
    };
    is_at_rest(&primary);
    assert!(primary.say("ES.SLOT DROP b").contains("in use"));
    assert_eq!(figure(&primary, "name").as_deref(), Some("b"));
    let at = primary.info("master_repl_offset");
    // A copy replaces the whole directory.
    let note = dir.path().join("b/note");
    std::fs::write(&note, "").unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(primary.info("master_repl_offset"), at, "slots come to rest");

    // The replica is offline while more than the backlog is committed and the primary restarts.
    replica.stop();
    until(|| figure(&primary, "connections").as_deref() == Some("0"));
    fill(&primary);
    primary.restart();
    fill(&primary);
    assert!(
        figure(&primary, "bytes").unwrap().parse::<u64>().unwrap() > 4 << 20,
        "{}",
        primary.info("slot0")
    );
    let first: u64 = primary.info("repl_backlog_first_byte_offset").parse().unwrap();
    assert!(first <= at.parse::<u64>().unwrap() + 1, "what the replica lacks is there");
    replica.restart();
    assert_same(&primary, &replica);
    assert!(note.exists(), "it went on without a copy");
    is_at_rest(&primary);
    primary.say("ES.COMPACT");
    until(|| primary.info("repl_backlog_first_byte_offset").parse::<u64>().unwrap() > first + 1000);

    // The replica is offline until the limit is exceeded.
    replica.stop();
    for _ in 0..5 {
        fill(&primary);
    }
    until(|| primary.info("slots") == "0");
    replica.restart();
    assert_same(&primary, &replica);
    assert!(!note.exists(), "it took a copy");
    until(|| figure(&primary, "connections").as_deref() == Some("1"));
    replica.stop();
    until(|| primary.say("ES.SLOT DROP b") == "+OK");
    assert_eq!(primary.say("ES.SLOTS"), "*[]");
    assert!(primary.say("ES.SLOT DROP b").contains("no slot"));
}

#[test]
fn keys_expire_by_the_primary_alone_and_are_read_as_absent_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let primary = Node::start(&dir.path().join("a"));
    let replica = Node::replica_of(&dir.path().join("b"), primary.port());
    primary.say("SET stays v PX 100000");
    for n in 0..20 {
        primary.say(&format!("SET k{n} v PX 150"));
    }
    assert_same(&primary, &replica);
    until(|| replica.say("EXISTS k19") == ":0");
    until(|| primary.say("DBSIZE") == ":1");
    assert_same(&primary, &replica);
    assert_eq!(replica.say("DBSIZE"), ":1");
    // Without its primary, the replica removes no expired keys.
    primary.say("SET k v PX 100");
    assert_eq!(primary.say("WAIT 1 0"), ":1");
    drop(primary);
    until(|| replica.say("EXISTS k") == ":0");
    std::thread::sleep(std::time::Duration::from_millis(250));
    assert_eq!(replica.say("DBSIZE"), ":2");
    assert_eq!(replica.say("REPLICAOF NO ONE"), "+OK");
    until(|| replica.say("DBSIZE") == ":1");
}

#[test]
fn a_primary_with_a_password_and_a_server_with_data_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { password: "secret".to_owned(), ..Options::default() };
    let primary = Node::start_with(&dir.path().join("a"), options, 64 << 20);
    let replica = Node::start(&dir.path().join("b"));
    assert_eq!(replica.say("SET own 1"), "+OK");
    assert_eq!(replica.say(&format!("REPLICAOF 127.0.0.1 {}", primary.port())), "+OK");
    until(|| replica.info("master_link_error").contains("NOAUTH"));
    assert_eq!(replica.say("CONFIG SET masterauth secret"), "+OK");
    until(|| replica.info("master_link_error").contains("DISCARD"));
    assert_eq!(replica.say("GET own"), "\"1\"");
    drop(primary);
    assert_eq!(replica.say("REPLICAOF NO ONE"), "+OK");
    assert_eq!(replica.say("SET own 2"), "+OK");
    assert_eq!(source(1).to_string(), "127.0.0.1:1");
}

#[test]
fn options_of_keyspaces_are_sent_whenever_they_are_set() {
    let dir = tempfile::tempdir().unwrap();
    let primary = Node::start(&dir.path().join("a"));
    primary.say("ES.KS CREATE before");
    let mut replica = Node::replica_of(&dir.path().join("b"), primary.port());
    let third = Node::replica_of(&dir.path().join("c"), replica.port());
    assert_same(&primary, &third);
    assert_eq!(primary.say("ES.KS OPERATOR before append"), "+OK");
    let mut wire = primary.wire();
    wire.say("ES.KS USE before");
    for part in ["one", "two"] {
        assert_eq!(wire.say(&format!("ES.MERGE k {part}")), "+OK");
    }
    assert_same(&primary, &third);
    // A program that embeds the primary writes, even while a replica is offline.
    replica.stop();
    let space = primary.db().keyspace("embedded").unwrap();
    space.set_default_ttl(Some(Duration::from_secs(86_400))).unwrap();
    space.set_history(History::Versions(3)).unwrap();
    space.put("day", "1").unwrap();
    space.put("ever", "1").unwrap();
    space.persist("ever").unwrap();
    replica.restart();
    assert_same(&primary, &replica);
    assert_same(&primary, &third);
    for node in [&primary, &replica, &third] {
        let space = node.db().open_keyspace("embedded").unwrap();
        assert_eq!(space.ttl("ever").unwrap(), Some(esker::Ttl::Unlimited));
        assert!(matches!(space.ttl("day").unwrap(), Some(esker::Ttl::Left(_))));
        assert_eq!(space.history(), History::Versions(3));
        assert_eq!(
            node.db().open_keyspace("before").unwrap().get("k").unwrap().as_deref(),
            Some(&b"onetwo"[..])
        );
    }
}

#[test]
fn what_was_loaded_from_a_file_is_a_history_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(&dir.path().join("a"));
    node.say("SADD set a b c");
    let file = dir.path().join("file");
    let all = node.db().keyspaces().unwrap();
    assert!(all.contains(&"es.repl".to_owned()));
    Unload::new().write(&node.db(), &file).unwrap();
    let loaded = esker::Db::open(dir.path().join("b")).unwrap();
    Load::new().read(&loaded, &file).unwrap();
    assert!(!loaded.keyspaces().unwrap().contains(&"es.repl".to_owned()));
    loaded.close().unwrap();
    let second = Node::start(&dir.path().join("b"));
    assert_eq!(second.say("SCARD set"), ":3");
    let newest = |node: &Node| node.info("master_repl_offset").parse::<u64>().unwrap();
    assert!(newest(&second) > newest(&node) + (1 << 32), "its commits have numbers that no collection has");
    assert_eq!(second.say(&format!("REPLICAOF 127.0.0.1 {}", node.port())), "+OK");
    until(|| second.info("master_link_error").contains("DISCARD"));
    assert_eq!(second.say("SCARD set"), ":3");
    node.stop();
}

#[test]
fn how_often_commits_are_synced_for_replicas_is_for_the_operator_to_say() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { fsync: Fsync::Never, replica_sync_ms: 400, ..Options::default() };
    let primary = Node::start_with(&dir.path().join("a"), options, 64 << 20);
    let replica = Node::replica_of(&dir.path().join("b"), primary.port());
    assert_same(&primary, &replica);
    let syncs = || primary.db().stats().sync_latency.samples;
    let write = |ms: u128| {
        let (mut wire, start, before) = (primary.wire(), std::time::Instant::now(), syncs());
        while start.elapsed().as_millis() < ms {
            wire.say("INCR n");
            std::thread::sleep(Duration::from_millis(1));
        }
        syncs() - before
    };
    // By default, the engine syncs about ten times a second.
    let seldom = write(600);
    assert_eq!(primary.say("CONFIG SET replica-sync-ms 2"), "+OK");
    let often = write(600);
    assert!(often > 2 * seldom, "{often} and {seldom}");
    assert_eq!(primary.say("CONFIG SET replica-sync-ms 0"), "+OK");
    assert_eq!((primary.say("INCR n").is_empty(), primary.say("WAIT 1 0")), (false, ":1".to_owned()));
    assert_same(&primary, &replica);
}
