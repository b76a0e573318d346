//! Tests a primary and its replicas as processes that are stopped and killed.
#![expect(clippy::disallowed_methods, reason = "the test waits for other processes")]

use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::Esker;
use crate::serving::Server;

fn signal(server: &Server, name: &str) {
    let pid = server.process.id().to_string();
    assert!(Command::new("kill").args([name, &pid]).status().expect("run kill").success());
}

/// Repeats a command until its reply begins with this.
fn until(server: &mut Server, command: &str, wanted: &str) {
    let start = Instant::now();
    loop {
        let reply = server.say(command);
        if reply.starts_with(wanted) {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{command}: {reply}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Starts a primary that demands a replica, and two replicas.
fn servers(esker: &Esker) -> [Server; 3] {
    let demands =
        "min-replicas-to-write = 1\nmin-replicas-max-lag = 2\nwrite-quorum = 1\nwrite-quorum-timeout = 300\n";
    esker.write("a.toml", format!("db = \"a\"\nport = 0\nbacklog = \"64mb\"\n{demands}"));
    let line = |name: &str| format!("-d {name} serve --port 0 --fsync always");
    let mut primary = Server::start(esker, "-d a serve --config a.toml");
    let follow =
        |name: &str| Server::start(esker, &format!("{} --replica-of {}", line(name), primary.address));
    let [mut b, mut c] = ["b", "c"].map(follow);
    until(&mut primary, "WAITAOF 0 2 100", "*2 :1 :2");
    b.reconnect();
    c.reconnect();
    [primary, b, c]
}

#[test]
fn a_write_is_acknowledged_only_while_a_replica_takes_it() {
    let esker = Esker::new();
    let [mut primary, mut b, c] = servers(&esker);
    until(&mut primary, "SET k 1", "+OK");
    signal(&c, "-STOP");
    assert_eq!(primary.say("SET k 2"), "+OK", "one of two is enough");
    signal(&b, "-STOP");
    let reply = primary.say("SET k 3");
    assert!(reply.starts_with("-UNCONFIRMED"), "{reply}");
    assert_eq!(primary.say("GET k"), "$1 3");
    // After the lag nothing is written.
    until(&mut primary, "SET k 4", "-NOREPLICAS");
    let before = primary.say("GET k");
    assert_eq!(primary.say("SET k 5"), "-NOREPLICAS Not enough good replicas to write.");
    assert_eq!(primary.say("GET k"), before);
    signal(&b, "-CONT");
    until(&mut primary, "SET k 6", "+OK");
    assert_eq!(b.say("GET k"), "$1 6");
    let _gone = (b.process.kill(), b.process.wait());
    let reply = primary.say("SET k 7");
    assert!(reply.starts_with("-UNCONFIRMED") || reply.starts_with("-NOREPLICAS"), "{reply}");
    signal(&c, "-CONT");
    until(&mut primary, "SET k 8", "+OK");
}

#[test]
fn acknowledged_writes_survive_the_loss_of_the_primary() {
    let esker = Esker::new();
    let [mut primary, b, c] = servers(&esker);
    let mut replicas = [b, c];
    let pid = primary.process.id().to_string();
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(400));
        Command::new("kill").args(["-KILL", &pid]).status().expect("run kill").success()
    });
    let mut acknowledged = 0;
    loop {
        match primary.say(&format!("SET n {}", acknowledged + 1)) {
            reply if reply == "+OK" => acknowledged += 1,
            reply if reply.is_empty() => break,
            reply => assert!(reply.starts_with("-UNCONFIRMED"), "{reply}"),
        }
    }
    assert!(killer.join().expect("it does not panic"));
    assert!(acknowledged > 0);
    // Of the two replicas, the one that is further has all.
    let found = replicas.each_mut().map(|replica| {
        assert_eq!(replica.say("REPLICAOF NO ONE"), "+OK");
        let reply = replica.say("GET n");
        reply.rsplit(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0)
    });
    let newest = found.into_iter().max().unwrap_or(0);
    assert!((acknowledged..=acknowledged + 1).contains(&newest), "{found:?}, acknowledged {acknowledged}");
}
