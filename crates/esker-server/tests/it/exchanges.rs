//! Databases that are exchanged among other commands: in pipelines, in transactions and in scripts.

use esker::Db;
use esker_server::{Fsync, Options};

use crate::harness::TestServer;
use crate::wire::{Wire, encode};

/// Sends commands together and returns their replies.
fn pipe<T: AsRef<str>>(wire: &mut Wire, commands: &[T]) -> Vec<String> {
    let words = |command: &T| encode(&command.as_ref().split(' ').collect::<Vec<_>>());
    wire.send_bytes(&commands.iter().map(words).collect::<Vec<_>>().concat());
    commands.iter().map(|_| format!("{:?}", wire.reply())).collect()
}

#[test]
fn replies_before_an_exchange_come_first() {
    let dir = tempfile::tempdir().unwrap();
    // A commit that waits for the disk lets the connection send what is ready.
    let options = Options { fsync: Fsync::Always, ..Options::default() };
    let server = TestServer::start_with(Db::open(dir.path()).unwrap(), options);
    let mut wire = server.wire();
    wire.say("SET k text");
    for n in 0..20 {
        let echo = format!("ECHO {n}");
        let seen = pipe(&mut wire, &[&*echo, "GET k", "SET other 1", "INCR k", "SWAPDB 1 2", "GET k"]);
        let expected = [
            &format!("\"{n}\""),
            "\"text\"",
            "+OK",
            "-ERR value is not an integer or out of range",
            "+OK",
            "\"text\"",
        ];
        assert_eq!(seen, expected, "pipeline {n}");
        let seen = pipe(&mut wire, &[&*echo, "SET other 1", "MULTI", "SWAPDB 1 2", "GET k", "EXEC"]);
        let expected = [&format!("\"{n}\""), "+OK", "+OK", "+QUEUED", "+QUEUED", "*[+OK, \"text\"]"];
        assert_eq!(seen, expected, "transaction {n}");
    }
}
