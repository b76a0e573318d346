//! Tests `esker serve` as a service: its log, signals, and what it tells systemd.
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "the test waits for a process")]

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::common::Esker;

/// Waits until the messages of a server contain a text, and returns them.
fn said(esker: &Esker, wanted: &str) -> String {
    let start = Instant::now();
    loop {
        let text = String::from_utf8(esker.read("messages")).expect("text");
        if text.contains(wanted) {
            return text;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{wanted}: {text}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Starts a server that writes its messages to a file.
fn start(esker: &Esker, line: &str, change: impl FnOnce(&mut Command)) -> Child {
    let mut command = esker.command(format!("serve --port 0 {line}").trim());
    command.stderr(File::create(esker.path("messages")).expect("a file")).env_remove("NOTIFY_SOCKET");
    change(&mut command);
    command.spawn().expect("start esker")
}

fn end(mut process: Child) {
    let pid = process.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("run kill").success());
    assert!(process.wait().expect("it ends").success());
}

/// Sends a command and returns the beginning of the reply.
fn ask(esker: &Esker, command: &str) -> String {
    let text = said(esker, "listens on ");
    let line = text.lines().find_map(|line| line.split_once("listens on ")).expect("an address");
    let mut stream = TcpStream::connect(line.1).expect("connect");
    write!(stream, "{command}\r\n").expect("send");
    let mut reply = [0; 64];
    let n = stream.read(&mut reply).expect("a reply");
    String::from_utf8_lossy(&reply[..n]).into_owned()
}

#[test]
fn slow_commands_are_logged_without_an_option() {
    let esker = Esker::new();
    for (options, is_logged) in [("", true), (" --log off", false), (" --log-format json", true)] {
        let process = start(&esker, &format!("--slowlog-log-slower-than 0{options}"), |_| {});
        assert_eq!(ask(&esker, "SET k secret"), "+OK\r\n");
        end(process);
        let text = said(&esker, "esker: stopped");
        assert_eq!(text.contains("a command took long"), is_logged, "{options}: {text}");
        assert!(!text.contains("secret"), "arguments are not logged: {text}");
        let lines = text.lines().filter(|line| line.starts_with('{'));
        let parsed: Vec<serde_json::Value> = lines.map(|line| line.parse().expect("JSON")).collect();
        assert_eq!(parsed.iter().any(|line| line["level"] == "WARN"), options.contains("json"), "{text}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn systemd_learns_when_the_server_is_ready_and_when_it_stops() {
    let esker = Esker::new();
    let path = esker.path("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a time limit");
    let process = start(&esker, "", |command| _ = command.env("NOTIFY_SOCKET", &path));
    let mut bytes = [0; 256];
    let n = socket.recv(&mut bytes).expect("a message");
    assert_eq!(String::from_utf8_lossy(&bytes[..n]).trim(), "READY=1");
    assert_eq!(ask(&esker, "PING"), "+PONG\r\n", "it serves by then");
    let pid = process.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().expect("run kill").success());
    said(&esker, "esker: SIGHUP: there are no encrypted connections");
    assert_eq!(ask(&esker, "PING"), "+PONG\r\n");
    end(process);
    let n = socket.recv(&mut bytes).expect("a message");
    assert_eq!(String::from_utf8_lossy(&bytes[..n]).trim(), "STOPPING=1");
}

#[test]
fn the_packaged_configuration_is_right() {
    let esker = Esker::new();
    let packaged = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/esker.toml");
    let outcome = esker.run(["serve", "--check-config", "--config", packaged]);
    assert_eq!(outcome.code, 0, "{outcome:?}");
    // So are the options that are commented out.
    let text = std::fs::read_to_string(packaged).expect("read it");
    let lines = text.lines().map(|line| match line.strip_prefix("# ") {
        Some(option) if option.contains(" = ") => option,
        _ => line,
    });
    esker.write("all.toml", lines.collect::<Vec<_>>().join("\n"));
    let outcome = esker.run(["serve", "--check-config", "--config", "all.toml"]);
    assert_eq!(outcome.code, 0, "{outcome:?}");
}
