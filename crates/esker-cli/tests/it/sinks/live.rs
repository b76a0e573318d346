//! A running server, followed by a process that is killed again and again.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::common::Esker;

/// Limit of each wait.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that is killed when dropped.
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

/// A server on the socket `sock`, with keys that count up.
pub struct Counting {
    pub esker: Esker,
    server: Killed,
    wire: BufReader<UnixStream>,
    next: u64,
}

impl Counting {
    pub fn new() -> Self {
        let esker = Esker::new();
        let (server, wire) = serve(&esker);
        Counting { esker, server, wire, next: 0 }
    }

    /// Kills the server and starts it again.
    pub fn restart(&mut self) {
        let _gone = self.server.0.kill();
        let _gone = self.server.0.wait();
        std::fs::remove_file(self.esker.path("sock")).unwrap();
        (self.server, self.wire) = serve(&self.esker);
    }

    /// Commits this many transactions of three keys.
    pub fn write(&mut self, commits: u64) {
        for _ in 0..commits {
            let n = self.next;
            let mut text = "MULTI\r\n".to_owned();
            (n..n + 3).for_each(|n| text.push_str(&format!("SET key:{n} {n}\r\n")));
            text.push_str("EXEC\r\n");
            self.wire.get_mut().write_all(text.as_bytes()).unwrap();
            // OK, three times QUEUED, the length, three times OK.
            let replies: Vec<_> = (0..8).map(|_| self.line()).collect();
            assert_eq!(replies[4], "*3", "{replies:?}");
            self.next += 3;
        }
    }

    /// Returns the number of keys written.
    #[cfg(feature = "nats")]
    pub fn written(&self) -> u64 {
        self.next
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.wire.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Starts a sender that follows the server.
    pub fn feed(&self, to: &str) -> Killed {
        let mut command = self.esker.command(&format!("feed --server unix:sock {to}"));
        Killed(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Sends what is left.
    pub fn finish(&self, to: &str) {
        self.esker.ok(&format!("feed --server unix:sock --once --give-up 60 {to}"));
    }

    /// Checks that all values arrived at least once, in order: a repetition goes back, then on without a gap.
    pub fn check(&self, lines: &str) {
        let values: Vec<u64> =
            super::members(lines, "value").iter().map(|value| value.parse().unwrap()).collect();
        assert_eq!(values.first(), Some(&0));
        let gap = values.windows(2).find(|pair| pair[1] > pair[0] + 1);
        assert_eq!(gap, None, "{} values", values.len());
        assert_eq!(values.last(), Some(&(self.next - 1)));
    }
}

fn serve(esker: &Esker) -> (Killed, BufReader<UnixStream>) {
    let mut command = esker.command("serve --no-port --unix-socket sock --fsync always");
    let server = Killed(command.stderr(Stdio::null()).spawn().unwrap());
    let path = esker.path("sock");
    let wire = until("the server listens", || UnixStream::connect(&path).ok());
    (server, BufReader::new(wire))
}

/// Repeats a look until it finds something.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_killed_sender_leaves_no_gap() {
    let mut counting = Counting::new();
    counting.finish("--to jsonl:out");
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    println!("seed {seed}");
    for round in 0..12 {
        let sender = counting.feed("--to jsonl:out --batch 5");
        counting.write(random.u64(1..60));
        std::thread::sleep(Duration::from_millis(random.u64(0..60)));
        if round % 4 == 3 {
            counting.restart();
        }
        drop(sender);
    }
    counting.finish("--to jsonl:out --batch 5");
    counting.check(&String::from_utf8(counting.esker.read("out")).unwrap());
}

#[test]
fn a_server_that_restarts_is_followed_on() {
    let mut counting = Counting::new();
    counting.finish("--to jsonl:out");
    let _sender = counting.feed("--to jsonl:out");
    let out: PathBuf = counting.esker.path("out");
    for _ in 0..3 {
        counting.write(20);
        let last = format!("\"value\":\"{}\",\"last\":true}}\n", counting.next - 1);
        until("the sender goes on", || std::fs::read_to_string(&out).ok().filter(|out| out.ends_with(&last)));
        counting.restart();
    }
    let said = counting.esker.fails("feed --server unix:sock --once --to jsonl:out");
    assert!(said.contains("another process uses the position"), "{said}");
    counting.check(&std::fs::read_to_string(&out).unwrap());
}

#[test]
fn a_position_that_the_server_does_not_have_is_an_error() {
    let counting = Counting::new();
    counting.finish("--to jsonl:out");
    counting.esker.write("out.position", "{\"esker_feed\":1,\"position\":\"1-00000000000000aa:7\"}");
    let said = counting.esker.fails("feed --server unix:sock --once --to jsonl:out");
    assert!(said.contains("FORKED") && said.contains("read all data again"), "{said}");
    let said = counting.esker.fails("feed --server unix:sock --once --to jsonl:- --since 7");
    assert!(said.contains("EPOCH:NUMBER"), "{said}");
    let said = counting.esker.fails("feed --server unix:gone --once --to jsonl:- --give-up 0.1");
    assert!(said.contains("given up"), "{said}");
}
