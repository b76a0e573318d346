//! Tests `esker shell --server`.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};

use crate::common::{Esker, Outcome};

/// A server with a password.
pub struct Server {
    process: Child,
    pub address: String,
}

impl Server {
    fn start(esker: &Esker) -> Self {
        Self::run(esker, "serve")
    }

    /// Runs this command line with a free port and a password.
    pub fn run(esker: &Esker, line: &str) -> Self {
        let mut command = esker.command(&format!("{line} --port 0 --requirepass secret --bind 127.0.0.1"));
        let mut process = command.stderr(Stdio::piped()).spawn().expect("start esker");
        let mut line = String::new();
        let said = process.stderr.take().expect("it is piped");
        BufReader::new(said).read_line(&mut line).expect("it says where it listens");
        Server { process, address: address_of(&line) }
    }

    pub fn shell(&self, esker: &Esker, options: &str, script: &str) -> Outcome {
        let line = format!("{options} shell --server {} --password secret", self.address);
        esker.run_with(script.as_bytes(), line.split_whitespace())
    }
}

/// Returns the address in the line that announces it.
fn address_of(line: &str) -> String {
    let address = line.split_whitespace().find(|word| word.starts_with("127.0.0.1:"));
    address.unwrap_or_else(|| panic!("{line}")).to_owned()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _gone = self.process.wait();
    }
}

#[test]
fn the_commands_are_those_of_a_directory() {
    let esker = Esker::new();
    for line in ["put ann 1", "put -k users apple 3"] {
        esker.ok(line);
    }
    let server = Server::start(&esker);
    let script = "\
put ann 7
put 'two words' \"it's\" --ttl 100
scan
get -k default ann
use default
put bob 2
put --as i64 n 5
scan --from ann --to n
prefix an
first --json
get --as i64 n
del n ann
count
keyspaces create logs
keyspaces operator logs append
merge -k logs l a
merge -k logs l b
get -k logs l
keyspaces rename logs texts
keyspaces clear texts
keyspaces drop texts
keyspaces
check
use r1
count
";
    let outcome = server.shell(&esker, "", script);
    let expected = "ann\t7\ntwo words\tit's\n1\nann\t1\nbob\t2\nann\t1\n{\"key\":\"ann\",\"value\":\"1\"}\n5\n1\nab\n\
                    default\t1\nusers\t1\nthe database is sound\n0\n";
    assert_eq!((outcome.code, outcome.text(), outcome.err.as_str()), (0, expected, ""));
    for line in ["stats", "stats --json", "info", "help"] {
        let outcome = server.shell(&esker, "", line);
        assert!(outcome.code == 0 && !outcome.out.is_empty(), "{line}: {outcome:?}");
    }
    let many: String = (0..600).map(|n| format!("put {n:03} x\n")).collect();
    assert_eq!(server.shell(&esker, "-k users", &many).code, 0);
    for (line, count) in [("scan", 601), ("scan --reverse --keys-only", 601), ("scan -n 300", 300)] {
        let outcome = server.shell(&esker, "-k users", line);
        let lines: Vec<&str> = outcome.text().lines().collect();
        assert_eq!((outcome.code, lines.len()), (0, count), "{line}");
        let mut sorted = lines.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if line.contains("reverse") {
            sorted.reverse();
        }
        assert_eq!(lines, sorted, "{line}");
    }
}

#[test]
fn lifetimes_and_savepoints_are_those_of_the_server() {
    let esker = Esker::new();
    esker.ok("put -k users apple 3");
    let server = Server::start(&esker);
    let script = "\
use r0
put x 1 --ttl 100
ttl two
ttl x
use users
begin
put a 1
savepoint s
put a 2
rollback s
get a
savepoint t
rollback s
commit
get a
del a
";
    let outcome = server.shell(&esker, "", script);
    let lines: Vec<&str> = outcome.text().lines().collect();
    assert_eq!((outcome.code, lines.len(), &lines[1..]), (1, 3, &["1", "1"][..]), "{outcome:?}");
    assert!(lines[0].parse::<f64>().is_ok_and(|left| left > 90.0 && left <= 100.0), "{outcome:?}");
    for (line, said) in [
        ("ttl x", "in a database of the server"),
        ("feed", "works on a directory"),
        ("savepoint s", "there is no transaction"),
        ("rollback s", "there is no transaction"),
        ("begin\nrollback s", "the server: "),
    ] {
        let outcome = server.shell(&esker, "-k users", line);
        assert!(outcome.code == 2 && outcome.err.contains(said), "{line}: {outcome:?}");
    }
}

#[test]
#[cfg(feature = "log")]
fn a_server_logs_if_requested() {
    let esker = Esker::new();
    esker.ok("put ann 1");
    let mut command = esker.command("serve --port 0 --requirepass secret --log warn,esker_server=debug");
    let mut process = command.stderr(Stdio::piped()).spawn().expect("start esker");
    let mut said = BufReader::new(process.stderr.take().expect("it is piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("it says where it listens");
    let address = address_of(&line);
    let server = Server { process, address };
    assert_eq!(server.shell(&esker, "", "put secret-key 1\nuse nothing\n").code, 2);
    esker.fails(&format!("shell --server {} --password guessed", server.address));
    drop(server);
    let mut text = String::new();
    said.read_to_string(&mut text).expect("messages are text");
    assert!(text.contains("command{client=") && text.contains("name=\"es.set\""), "{text}");
    assert!(text.contains("WARN") && text.contains("refused"), "{text}");
    assert!(!text.contains("secret-key") && !text.contains("guessed"), "{text}");
    assert!(esker.fails("serve --port 0 --log =x=").contains("--log"));
}

#[test]
fn transactions_and_errors_of_a_server() {
    let esker = Esker::new();
    esker.ok("put ann 1");
    let server = Server::start(&esker);
    let open = server.shell(&esker, "-k default", "begin\nput ann 2\nget ann\n");
    assert_eq!((open.code, open.text()), (1, "2\n"), "{open:?}");
    assert!(open.err.contains("rolled back"), "{}", open.err);
    let done =
        server.shell(&esker, "-k default", "begin\nput ann 3\nrollback\nbegin\nput bob 2\ncommit\nscan\n");
    assert_eq!((done.code, done.text()), (0, "ann\t1\nbob\t2\n"), "{done:?}");
    for (line, said) in [
        ("use nothing", "line 1: the server: ERR no such keyspace 'nothing'"),
        ("commit", "line 1: there is no transaction"),
        ("begin\nbegin", "line 2: a transaction is open"),
        ("versions ann", "line 1: `versions` works on a directory"),
        ("keyspaces create default", "line 1: the keyspace `default` is there"),
    ] {
        let outcome = server.shell(&esker, "", &format!("{line}\nput after 1\n"));
        assert!(outcome.code == 2 && outcome.err.contains(said), "{line}: {outcome:?}");
    }
    assert_eq!(server.shell(&esker, "", "get after").code, 1);
    let stranger = esker.fails(&format!("shell --server {} --password wrong", server.address));
    assert!(stranger.contains("WRONGPASS"), "{stranger}");
    assert!(esker.fails("shell --server 127.0.0.1:1 --password x").contains("127.0.0.1:1"));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the server's rate is that of real time")]
fn limits_of_the_engine_are_passed_on() {
    let esker = Esker::new();
    for (limit, said) in [
        ("--write-rate 1", "at least 1 KiB a second"),
        ("--compaction-rate 1kb", "at least 1 MiB a second"),
        ("--compaction-percent 0", "1..=100"),
    ] {
        let refused = esker.fails(&format!("serve --port 0 {limit}"));
        assert!(refused.contains(said), "{limit}: {refused}");
    }
    let server = Server::run(&esker, "serve --write-rate 1kb --compaction-rate 1mb --compaction-percent 50");
    assert_eq!(server.shell(&esker, "", "put a 1\nput b 2\nget a\n").text(), "1\n");
    // A second's worth passes at once, and the next write waits for what the first took.
    let begun = std::time::Instant::now();
    let script = format!("put c {0}\nput d {0}\nput e {0}\n", "x".repeat(1500));
    assert_eq!(server.shell(&esker, "", &script).code, 0);
    let took = begun.elapsed();
    assert!(took > std::time::Duration::from_secs(1), "{took:?} for 4.5 KB at 1 KB a second");
}
