//! Monitoring: what operators see.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use esker::Db;
use esker_env::{Env, FaultAction, FaultFs, FaultRule, MemFs, OpKind};
use esker_server::{Fsync, Options};

use crate::harness::{TestServer, until};

fn ask(server: &TestServer, request: &str) -> String {
    let port = server.server.ports.http.load(Ordering::Relaxed) as u16;
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let _ = stream.write_all(request.as_bytes());
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    String::from_utf8(reply).unwrap()
}

#[test]
fn figures_come_over_http() {
    let options = Options { http: Some("127.0.0.1:0".to_owned()), ..Options::default() };
    let server = TestServer::start_with(Db::in_memory().unwrap(), options);
    let mut wire = server.wire();
    for n in 0..40 {
        wire.say(&format!("SET k{n} v"));
    }
    assert!(wire.say("LPUSH k1 x").starts_with("-WRONGTYPE"));
    let metrics = ask(&server, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
    for line in [
        "esker_up 1",
        "esker_keys{db=\"0\"} 40",
        "esker_command_calls_total{command=\"set\"} 40",
        "esker_command_failures_total{command=\"lpush\"} 1",
        "esker_connected_clients 1",
        "# TYPE esker_engine_commits counter",
        "# TYPE esker_engine_commit_latency_seconds summary",
        "esker_engine_flushes 0",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} in {metrics}");
    }
    let body = metrics.split_once("\r\n\r\n").unwrap().1;
    for line in body.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(name.starts_with("esker_") && value.parse::<f64>().is_ok(), "{line}");
    }
    assert!(ask(&server, "GET /health HTTP/1.1\r\n\r\n").ends_with("\r\n\r\nok\n"));
    let page = ask(&server, "GET / HTTP/1.1\r\n\r\n");
    for part in ["All is well.", "<svg", "<td>set</td>", "<td>memtable bytes</td>"] {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert!(!page.contains("<script") && !page.contains("http://"));
    for (request, status) in [
        ("GET /none HTTP/1.1\r\n\r\n", "HTTP/1.1 404"),
        ("POST / HTTP/1.1\r\n\r\n", "HTTP/1.1 405"),
        ("hello\r\n\r\n", "HTTP/1.1 400"),
        (&format!("GET /{} HTTP/1.1\r\n", "a".repeat(10_000)), "HTTP/1.1 431"),
    ] {
        assert!(ask(&server, request).starts_with(status), "{status}");
    }
}

#[test]
fn health_is_no_more_once_writes_fail() {
    let faults = FaultFs::new(Arc::new(MemFs::new()));
    let env = Env { fs: Arc::new(faults.clone()), ..Env::real() };
    let options =
        Options { http: Some("127.0.0.1:0".to_owned()), fsync: Fsync::Always, ..Options::default() };
    let server = TestServer::start_with(Db::builder().env(env).open("db").unwrap(), options);
    let mut wire = server.wire();
    assert_eq!(wire.say("SET k v"), "+OK");
    let health = || ask(&server, "GET /health HTTP/1.1\r\n\r\n");
    assert!(health().starts_with("HTTP/1.1 200 OK\r\n"));
    let kinds = [OpKind::Write, OpKind::SyncData];
    faults.add(FaultRule::new(&kinds, FaultAction::Fail(ErrorKind::Other)).forever());
    assert!(wire.say("SET k w").starts_with("-"));
    until(|| health().starts_with("HTTP/1.1 503 Service Unavailable\r\n"));
    assert!(health().contains("reopen to write"), "it says why: {}", health());
    assert!(ask(&server, "GET /metrics HTTP/1.1\r\n\r\n").contains("\nesker_up 0\n"));
    assert!(ask(&server, "GET / HTTP/1.1\r\n\r\n").contains("reopen to write"));
    assert_eq!(wire.say("GET k"), "\"v\"");
    assert!(wire.say("SET k x").starts_with("-MISCONF"));
    drop(wire);
    assert!(server.end().is_some(), "what was written last is not durable");
}

#[test]
fn the_slow_log_has_the_newest_of_what_took_long() {
    let server = TestServer::start();
    let mut wire = server.wire();
    wire.say("CONFIG SET slowlog-log-slower-than 100000 slowlog-max-len 2");
    for seconds in ["0.11", "0.12", "0", "0.13"] {
        wire.say(&format!("DEBUG SLEEP {seconds}"));
    }
    let slow = wire.say("SLOWLOG GET");
    let (newest, older) = (slow.find("0.13"), slow.find("0.12"));
    assert!(newest.is_some() && newest < older && slow.starts_with("*[*[:2, "), "{slow}");
    assert_eq!(wire.say("SLOWLOG LEN"), ":2");
}

#[test]
fn latencies_and_averages_are_shown() {
    let server = TestServer::start();
    let mut wire = server.wire();
    assert_eq!(wire.say("CONFIG SET latency-monitor-threshold 20"), "+OK");
    assert_eq!(wire.say("DEBUG SLEEP 0.05"), "+OK");
    for _ in 0..100 {
        wire.say("GET k");
    }
    let latest = wire.say("LATENCY LATEST");
    assert!(latest.contains("\"command\""), "{latest}");
    assert!(wire.say("LATENCY HISTORY command").starts_with("*[*[:"));
    assert!(wire.say("LATENCY DOCTOR").contains("command: "));
    let histogram = wire.say("LATENCY HISTOGRAM get none");
    assert!(histogram.starts_with("*[\"get\", *[\"calls\", :100, \"histogram_usec\", *["), "{histogram}");
    assert_eq!(wire.say("LATENCY RESET"), ":1");
    assert_eq!(wire.say("LATENCY LATEST"), "*[]");
    assert!(wire.say("INFO latencystats").contains("latency_percentiles_usec_get:p50="));
    until(|| {
        wire.say("PING");
        let info = wire.say("INFO stats");
        info.contains("ops_per_sec_900s:") && !info.contains("\\nops_per_sec_60s:0.00")
    });
}
