//! The server on a store past this process: any `Kv`.

use std::sync::Arc;

use esker::Db;
use esker_kv::local::Local;
use esker_server::Options;
use esker_server::store::RemoteStore;

use crate::differential::compare;
use crate::harness::TestServer;
use crate::rows_model;

/// A server on this database, which it knows as a `Kv` only.
fn serve(db: &Db, takes_over: bool) -> esker_server::store::Result<TestServer> {
    let store = RemoteStore::open(Arc::new(Local::new(db.clone())), takes_over)?;
    Ok(TestServer::start_on(Arc::new(store), db.clone(), None, Options::default()))
}

fn elsewhere() -> TestServer {
    serve(&Db::in_memory().unwrap(), false).unwrap()
}

#[test]
fn types_and_rows_work_on_any_store() {
    let (here, there) = (TestServer::start(), elsewhere());
    for (seed, version) in (1000..1004).zip(["2", "3"].into_iter().cycle()) {
        if let Err(difference) = compare(&mut there.wire(), &mut here.wire(), seed, 1500, version) {
            panic!("{difference}");
        }
    }
    rows_model::agree(&there, 3);
}

#[test]
fn ordered_commands_work_on_any_store_and_tell_what_it_cannot() {
    let servers = [TestServer::start(), elsewhere()];
    let mut wires = servers.each_ref().map(TestServer::wire);
    for line in [
        "ES.KS CREATE plain",
        "ES.KS USE plain",
        "ES.SET a 1",
        "ES.SET b 2",
        "ES.SET c 3",
        "ES.SET d 4",
        "ES.SET e 5",
        "ES.RANGE '' ''",
        "ES.RANGE b '' LIMIT 3 REV",
        "ES.COUNT",
        "ES.COUNT b e",
        "ES.BEGIN",
        "ES.DELRANGE b d",
        "ES.PREFIX ''",
        "ES.CAS a EQ 1 SET 2",
        "ES.COMMIT",
        "ES.RANGE '' ''",
        "ES.BEGIN SNAPSHOT",
        "ES.SET g 7",
        "ES.ROLLBACK",
        "ES.LAST",
        "ES.NEXT d",
        "ES.PREV d",
        "ES.KS LIST",
        "ES.KS DROP plain",
        "ES.KS USE",
        "DBSIZE",
        "SET k v",
        "DBSIZE",
        "FLUSHALL",
        "DBSIZE",
    ] {
        let [here, there] = wires.each_mut().map(|wire| wire.say(line));
        assert_eq!(here, there, "{line}");
    }
    let there = &mut wires[1];
    there.say("ES.KS CREATE plain");
    there.say("ES.KS USE plain");
    for line in [
        "ES.COMPACT",
        "REPLICAOF 127.0.0.1 1",
        "ES.FEED 1-0 1",
        "ES.KS OPERATOR plain append",
        "ES.MERGE m x",
        "ES.KS USE esker.server",
        "ES.KS DROP esker.server",
        "ES.BACKUP b",
        "ES.CHECKPOINT c",
    ] {
        assert!(there.say(line).starts_with("-ERR"), "{line}");
    }
    assert_eq!(there.say("INFO").get(..1), Some("\""));
    assert_eq!(there.say("ES.SLOTS"), "*[]");
    assert_eq!(there.say("PING"), "+PONG");
}

#[test]
fn one_server_at_a_time_uses_a_store() {
    let db = Db::in_memory().unwrap();
    let first = serve(&db, false).unwrap();
    let mut wire = first.wire();
    assert_eq!(wire.say("SET k 1"), "+OK");
    let refused = serve(&db, false).err().unwrap().to_string();
    assert!(refused.contains("another server uses this store"), "{refused}");
    let second = serve(&db, true).unwrap();
    let denied = wire.say("SET k 2");
    assert!(denied.starts_with("-UNAVAILABLE another server"), "{denied}");
    assert!(wire.say("GET k").starts_with("-UNAVAILABLE"), "reads of the server that was replaced");
    assert_eq!(second.wire().say("GET k"), "\"1\"");
    let ended = first.end().unwrap().to_string();
    assert!(ended.contains("another server has taken"), "{ended}");
    drop(second);
    // It ended cleanly: the next one need not wait.
    let started = std::time::Instant::now();
    let third = serve(&db, false).unwrap();
    assert!(started.elapsed().as_secs() < 5);
    assert_eq!(third.wire().say("GET k"), "\"1\"");
}
