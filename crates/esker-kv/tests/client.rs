//! The store in a server of Esker, with `kill -9` of both sides.
//!
//! Each job runs in a process of its own. The server is `esker`, by `ESKER_SERVE` or in the path.

#![cfg(feature = "client")]
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests of processes")]

mod support;

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use esker_client::{Client, es};
use esker_kv::client::open;
use esker_kv::{Blocking, Error, Query, Span, collect, conformance, connect, transact};
use support::{Job, acknowledged, check_after, errors, free_port};
use tokio::runtime::Runtime;

const URL: &str = "ESKER_KV_URL";

/// What a process with a job does.
#[test]
fn child() {
    let Some(job) = support::job() else { return };
    // Ends the line that the test's name is on.
    println!();
    let runtime = Runtime::new().unwrap();
    let layered = runtime.block_on(open(&std::env::var(URL).unwrap())).unwrap();
    let kv = Blocking::new(Arc::new(layered), runtime.handle().clone());
    match &job[..] {
        "check" => support::check(&kv),
        name => support::load(&kv, 4, name),
    }
}

/// A server on a directory.
struct Place {
    program: String,
    dir: tempfile::TempDir,
    port: u16,
    server: Option<Job>,
}

impl Place {
    fn new() -> Option<Place> {
        let program = support::program("ESKER_SERVE", "esker")?;
        let dir = tempfile::tempdir().unwrap();
        let mut place = Place { program, dir, port: free_port(), server: None };
        place.start();
        Some(place)
    }

    fn start(&mut self) {
        let mut command = Command::new(&self.program);
        command.arg("-d").arg(self.dir.path().join("db")).args(["serve", "--port", &self.port.to_string()]);
        self.server = Some(Job::spawn(command));
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn client(&self) -> Client {
        Client::connect(&format!("redis://127.0.0.1:{}/", self.port)).unwrap()
    }

    fn url(&self) -> String {
        format!("esker://127.0.0.1:{}/store", self.port)
    }
}

#[test]
fn conforms() {
    let Some(place) = Place::new() else { return };
    conformance(&*connect(&place.url()).unwrap()).unwrap();
}

#[test]
fn acknowledged_commits_outlive_killed_clients_and_servers() {
    let Some(mut place) = Place::new() else { return };
    let mut names = Vec::new();
    for round in 0..4 {
        let url = place.url();
        let mut job = Job::start(&format!("round{round}"), &[(URL, &url)]);
        job.until("ready");
        job.until("done");
        job.read_for(Duration::from_millis(700));
        if round % 2 == 1 {
            let server = place.server.take().unwrap();
            if round == 3 {
                server.signal("-TERM");
                std::thread::sleep(Duration::from_millis(500));
            }
            server.kill();
            place.start();
            // The client goes on by itself.
            job.until("error");
            job.until("done");
            job.read_for(Duration::from_millis(300));
        }
        let lines = job.kill();
        let is_expected = |line: &&String| line.contains(" Unavailable") || line.contains(" OutcomeUnknown");
        assert!(errors(&lines).iter().all(is_expected), "{:?}", errors(&lines));
        assert_eq!(errors(&lines).is_empty(), round % 2 == 0);
        names.extend(acknowledged(&lines));
        check_after(&names, &[(URL, &url)]);
    }
}

#[test]
fn large_values_limits_and_other_keyspaces() {
    let Some(place) = Place::new() else { return };
    let kv = connect(&place.url()).unwrap();
    let space = kv.space("large").unwrap();
    let value: Vec<u8> = (0..10_000_000_u32).map(|n| n as u8).collect();
    for key in 0..6 {
        transact(&*kv, |transaction| transaction.put(&space, &[key], &value)).unwrap();
    }
    let page = kv.page(&space, Query::new(Span::ALL)).unwrap();
    assert_eq!((page.entries.len(), page.has_more), (1, true));
    assert!(collect(&*kv, &space, Query::new(Span::ALL)).unwrap().iter().all(|(_, read)| *read == value));
    transact(&*kv, |transaction| transaction.remove_range(&space, Span::ALL)).unwrap();
    let limits = kv.limits();
    let mut transaction = kv.begin().unwrap();
    let too_long = vec![0; limits.value_bytes + 1];
    assert!(matches!(transaction.put(&space, b"k", &too_long), Err(Error::TooLarge(_))));
    transaction.put(&space, &too_long[..limits.key_bytes], &too_long[1..]).unwrap();
    transaction.commit().unwrap();
    assert_eq!(kv.count(&space, Span::ALL).unwrap(), 1);
    // Another keyspace is another store.
    let other = connect(&format!("esker://127.0.0.1:{}", place.port)).unwrap();
    assert!(other.spaces().unwrap().is_empty());
    assert!(matches!(connect("esker:///store").err(), Some(Error::Invalid(_))));
    assert!(matches!(connect("esker://127.0.0.1:1").err(), Some(Error::Unavailable(_))));
}

#[test]
fn a_keyspace_of_another_program_is_left_alone() {
    let Some(place) = Place::new() else { return };
    let mut client = place.client();
    client.run(es::create_keyspace("users")).unwrap();
    client.run(es::use_keyspace("users")).unwrap();
    // A store would take it for the record of a space that was dropped.
    let entries = [(&b"\0d\0\0\0\x07"[..], &b"x"[..]), (b"\x01\0\0\0\x07k", b"y")];
    for (key, value) in entries {
        client.run(es::set(key, value)).unwrap();
    }
    let refused = connect(&format!("esker://127.0.0.1:{}/users", place.port)).err();
    assert!(matches!(refused, Some(Error::Invalid(_))), "{refused:?}");
    for (key, value) in entries {
        assert_eq!(client.run(es::get(key)).unwrap().as_deref(), Some(value));
    }
    // A store is opened again, also without a space.
    let kv = connect(&place.url()).unwrap();
    kv.space("a").unwrap();
    kv.drop_space("a").unwrap();
    assert!(connect(&place.url()).unwrap().spaces().unwrap().is_empty());
}

#[test]
fn errors_say_whether_to_try_again() {
    let Some(place) = Place::new() else { return };
    let kv = connect(&place.url()).unwrap();
    let space = kv.space("a").unwrap();
    let connection = &mut place.client();
    let timeout = |seconds: &str, client: &mut Client| {
        let set = redis::cmd("CONFIG").arg("SET").arg("transaction-timeout").arg(seconds).to_owned();
        set.exec(client.connection()).unwrap();
    };
    timeout("1", connection);
    let mut transaction = kv.begin().unwrap();
    transaction.put(&space, b"k", b"v").unwrap();
    let snapshot = kv.snapshot().unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    // Both are sent as pipelines.
    let failed = transaction.commit();
    assert!(matches!(failed, Err(Error::SnapshotTooOld(_))), "{failed:?}");
    let failed = snapshot.multi_get(&space, &[b"k", b"l"]);
    assert!(matches!(failed, Err(Error::SnapshotTooOld(_))), "{failed:?}");
    timeout("60", connection);
    let password = connect(&format!("esker://u:wrong@127.0.0.1:{}/store", place.port)).err();
    assert!(matches!(password, Some(Error::Other(_))), "{password:?}");
    for url in ["esker://127.0.0.1:port/store", "esker://127.0.0.1?db=1"] {
        assert!(matches!(connect(url).err(), Some(Error::Invalid(_))), "{url}");
    }
}
