//! A NATS server, started by the test: `ESKER_NATS_SERVER` names its program. `cargo xtask sinks` runs this.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::process::{Command, Stdio};

use async_nats::jetstream::{self, stream};
use tokio::runtime::Runtime;

use super::live::{Counting, Killed, until};

/// Starts a server that keeps its streams in a directory of the test.
fn serve(counting: &Counting, port: u16) -> Killed {
    let program = std::env::var_os("ESKER_NATS_SERVER").expect("`cargo xtask sinks` sets it");
    let mut command = Command::new(program);
    command.args(["-a", "127.0.0.1", "-p", &port.to_string(), "-js", "-sd"]).arg(counting.esker.path("nats"));
    let server =
        Killed(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("start nats-server"));
    until("the server listens", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    server
}

async fn connect(port: u16) -> jetstream::Context {
    jetstream::new(async_nats::connect(format!("nats://127.0.0.1:{port}")).await.unwrap())
}

/// Returns the payloads of all messages.
async fn read(port: u16) -> String {
    let mut stream = connect(port).await.get_stream("CHANGES").await.unwrap();
    let messages = stream.info().await.unwrap().state.messages;
    let mut lines = String::new();
    for sequence in 1..=messages {
        let message = stream.get_raw_message(sequence).await.unwrap();
        lines.push_str(std::str::from_utf8(&message.payload).unwrap());
        lines.push('\n');
    }
    lines
}

#[test]
fn a_stream_gets_all_changes_in_order() {
    let mut counting = Counting::new();
    let port = super::free_port();
    let mut server = serve(&counting, port);
    let runtime = Runtime::new().unwrap();
    let config = stream::Config {
        name: "CHANGES".into(),
        subjects: vec!["changes".into()],
        ..stream::Config::default()
    };
    runtime.block_on(async { connect(port).await.create_stream(config).await.unwrap() });
    let to = format!("--to nats://127.0.0.1:{port}/changes --position p --set timeout=2");
    counting.finish(&to);
    for round in 0..8 {
        let sender = counting.feed(&to);
        counting.write(300);
        std::thread::sleep(std::time::Duration::from_millis(25 * round));
        if round % 3 == 1 {
            drop(server);
            server = serve(&counting, port);
        }
        drop(sender);
    }
    counting.finish(&to);
    let lines = runtime.block_on(read(port));
    counting.check(&lines);
    // Within the stream's window for duplicates, each message is there once.
    assert_eq!(lines.lines().count() as u64, counting.written());
    counting.write(1);
    let other = format!("--to nats://127.0.0.1:{port}/other --position p --give-up 0.1");
    let said = counting.esker.fails(&format!("feed --server unix:sock --once {other}"));
    assert!(said.contains("a stream must take it"), "{said}");
}

#[test]
fn a_stream_with_other_messages_gets_the_order_too() {
    let mut counting = Counting::new();
    let port = super::free_port();
    let _server = serve(&counting, port);
    let runtime = Runtime::new().unwrap();
    let context = runtime.block_on(connect(port));
    let config = stream::Config {
        name: "CHANGES".into(),
        subjects: vec!["changes".into(), "other".into()],
        ..stream::Config::default()
    };
    runtime.block_on(context.create_stream(config)).unwrap();
    let to = format!("--to nats://127.0.0.1:{port}/changes --position p");
    counting.finish(&to);
    counting.write(300);
    let other = context.clone();
    let publisher = runtime.spawn(async move {
        for _ in 0..3000 {
            other.publish("other", "x".into()).await.unwrap().await.unwrap();
        }
    });
    counting.finish(&to);
    runtime.block_on(publisher).unwrap();
    let lines = runtime.block_on(read(port));
    counting.check(&lines);
}
