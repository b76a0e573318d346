//! A Kafka broker, started by the test: `ESKER_KAFKA` names the directory of its jars. `cargo xtask sinks`
//! runs this.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::process::{Command, Stdio};
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};

use super::live::{Counting, Killed, until};

const TOPIC: &str = "changes";

fn java(counting: &Counting, main: &str, args: &[&str]) -> Command {
    let jars = std::env::var("ESKER_KAFKA").expect("`cargo xtask sinks` sets it");
    let mut command = Command::new("java");
    command.args(["-Xmx512m", "-cp", &format!("{jars}/*"), main]).args(args);
    command.current_dir(counting.esker.path("")).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Prepares a broker of its own.
fn prepare(counting: &Counting, port: u16) {
    let controller = super::free_port();
    let text = format!(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n\
         listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
         controller.listener.names=CONTROLLER\nlog.dirs={}\noffsets.topic.replication.factor=1\n\
         num.partitions=2\n",
        counting.esker.path("kafka").display()
    );
    counting.esker.write("server.properties", text);
    let args = ["format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", "server.properties"];
    assert!(java(counting, "kafka.tools.StorageTool", &args).status().expect("run java").success());
}

fn serve(counting: &Counting, port: u16) -> Killed {
    let broker = Killed(java(counting, "kafka.Kafka", &["server.properties"]).spawn().expect("start java"));
    until("the broker answers", || {
        let consumer = consumer(port);
        consumer.fetch_metadata(Some(TOPIC), Duration::from_secs(1)).ok()
    });
    broker
}

fn consumer(port: u16) -> BaseConsumer {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", format!("127.0.0.1:{port}")).set("group.id", "test");
    config.create().expect("a consumer")
}

/// Returns the payloads of all messages of partition 0.
fn read(port: u16) -> String {
    let consumer = consumer(port);
    let mut at = TopicPartitionList::new();
    at.add_partition_offset(TOPIC, 0, Offset::Beginning).unwrap();
    consumer.assign(&at).unwrap();
    let (_, end) = consumer.fetch_watermarks(TOPIC, 0, Duration::from_secs(30)).unwrap();
    let mut lines = String::new();
    loop {
        let message = consumer.poll(Duration::from_secs(30)).expect("a message").unwrap();
        let text = std::str::from_utf8(message.payload().unwrap()).unwrap();
        let key = std::str::from_utf8(message.key().unwrap()).unwrap();
        assert!(text.contains(&format!("\"key\":\"{key}\"")), "{text}");
        lines.push_str(text);
        lines.push('\n');
        if message.offset() + 1 >= end {
            return lines;
        }
    }
}

#[test]
fn a_topic_gets_all_changes_in_order() {
    let mut counting = Counting::new();
    let port = super::free_port();
    prepare(&counting, port);
    let mut broker = serve(&counting, port);
    let to = format!("--to kafka://127.0.0.1:{port}/{TOPIC} --position p --set timeout=10");
    counting.finish(&to);
    for round in 0..6 {
        let sender = counting.feed(&to);
        counting.write(300);
        std::thread::sleep(Duration::from_millis(100 * round));
        if round == 2 {
            drop(broker);
            broker = serve(&counting, port);
        }
        drop(sender);
    }
    counting.finish(&to);
    counting.check(&read(port));
    drop(broker);
    counting.write(1);
    let said =
        counting.esker.fails(&format!("feed --server unix:sock --once --give-up 1 {to} --set timeout=1"));
    assert!(said.contains("given up"), "{said}");
}
