//! Changes as messages of a Kafka topic, one message each.
//!
//! ```text
//!   change: key, JSON, header esker-id --idempotent producer, acks=all--> partition 0 --> delivery report
//! ```
//!
//! feed_kafka.1. Messages have one order, so all go to partition 0.
//! feed_kafka.2. No message is stored without its predecessors: single messages never expire. When the
//!     brokers do not confirm in time, the producer is discarded with all that it holds.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::ClientContext;
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, ProducerContext};

use super::super::change::{Batch, Change};
use super::super::source::{Tried, Trouble};
use super::{FeedSink, Settings};
use crate::failure::{Failure, Result};
use crate::text::shown;

/// The partition that all messages go to.
const PARTITION: i32 = 0;
/// How long to wait for a delivery report.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long a look for delivery reports takes.
const POLL: Duration = Duration::from_millis(2);
/// What at least once, in order, depends on.
const FIXED: [(&str, &str); 4] = [
    ("acks", "all"),
    ("enable.gapless.guarantee", "true"),
    ("enable.idempotence", "true"),
    ("message.timeout.ms", "0"),
];

/// What the producer has reported.
#[derive(Default)]
struct Reports {
    stored: usize,
    failed: Option<KafkaError>,
    /// The last error of a connection.
    said: Option<String>,
}

#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Reports>>);

impl Listener {
    fn with<T>(&self, call: impl FnOnce(&mut Reports) -> T) -> T {
        call(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ClientContext for Listener {
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}

    fn error(&self, _: KafkaError, reason: &str) {
        self.with(|reports| reports.said = Some(reason.to_owned()));
    }
}

impl ProducerContext for Listener {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        self.with(|reports| match result {
            Ok(_) => reports.stored += 1,
            Err((error, _)) => {
                reports.failed.get_or_insert_with(|| error.clone());
            }
        });
    }
}

/// A topic.
pub(super) struct Kafka {
    config: ClientConfig,
    topic: String,
    timeout: Duration,
    producer: Option<(BaseProducer<Listener>, Listener)>,
}

impl Kafka {
    pub(super) fn open(servers: &str, topic: &str, mut settings: Settings) -> Result<Self> {
        let timeout = settings.take_seconds("timeout", TIMEOUT)?;
        let mut config = ClientConfig::new();
        config.set("client.id", "esker-feed").set("linger.ms", "0");
        for (name, value) in settings.take_rest() {
            if FIXED.iter().any(|(fixed, _)| *fixed == name) || name == "bootstrap.servers" {
                return Err(Failure::message(format!(
                    "the setting `{}` is fixed: the order of changes depends on it",
                    shown(name)
                )));
            }
            config.set(name, value);
        }
        config.set("bootstrap.servers", servers);
        for (name, value) in FIXED {
            config.set(name, value);
        }
        let mut kafka = Kafka { config, topic: topic.to_owned(), timeout, producer: None };
        // Finds wrong settings before anything is read.
        kafka.producer = Some(kafka.produce()?);
        Ok(kafka)
    }

    fn produce(&self) -> Result<(BaseProducer<Listener>, Listener)> {
        let listener = Listener::default();
        let made = BaseProducer::from_config_and_context(&self.config, listener.clone());
        let producer = made.map_err(|error| Failure::message(format!("kafka: {}", shown(error))))?;
        Ok((producer, listener))
    }

    fn send(&self, producer: &BaseProducer<Listener>, change: &Change) -> Tried<()> {
        let id = change.id();
        let headers = OwnedHeaders::new().insert(Header { key: "esker-id", value: Some(&id) });
        let record = BaseRecord::to(&self.topic).partition(PARTITION).payload(&change.line).headers(headers);
        let mut record = match &change.key {
            Some(key) => record.key(key),
            None => record,
        };
        loop {
            record = match producer.send(record) {
                Ok(()) => return Ok(()),
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => back,
                Err((error, _)) => return Err(self.trouble(&error)),
            };
            producer.poll(POLL);
        }
    }

    fn trouble(&self, error: &KafkaError) -> Trouble {
        let text = format!("{}: {}", shown(&self.topic), shown(error));
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::MessageSizeTooLarge) => Trouble::stop(format!(
                "{text}\n  raise max.message.bytes of the topic, and --set message.max.bytes=BYTES: a message has one change"
            )),
            Some(
                RDKafkaErrorCode::UnknownTopic
                | RDKafkaErrorCode::UnknownTopicOrPartition
                | RDKafkaErrorCode::UnknownPartition,
            ) => Trouble::Retry(format!("{text} (create the topic; its partition 0 is used)")),
            Some(
                RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::ClusterAuthorizationFailed
                | RDKafkaErrorCode::InvalidTopic,
            ) => Trouble::stop(text),
            _ => Trouble::Retry(text),
        }
    }

    fn send_all(&self, producer: &BaseProducer<Listener>, listener: &Listener, batch: &Batch) -> Tried<()> {
        listener.with(|reports| *reports = Reports::default());
        for change in &batch.changes {
            self.send(producer, change)?;
        }
        let (mut stored, mut progress) = (0, Instant::now());
        while stored < batch.changes.len() {
            producer.poll(POLL);
            let (now, failed) = listener.with(|reports| (reports.stored, reports.failed.take()));
            if let Some(error) = failed {
                return Err(self.trouble(&error));
            }
            if now > stored {
                (stored, progress) = (now, Instant::now());
            } else if progress.elapsed() >= self.timeout {
                let said = listener.with(|reports| reports.said.take());
                let said = said.unwrap_or_else(|| "no confirmation in time".to_owned());
                return Err(Trouble::Retry(format!("{}: {}", shown(&self.topic), shown(said))));
            }
        }
        Ok(())
    }
}

impl FeedSink for Kafka {
    fn deliver(&mut self, batch: &Batch) -> Tried<()> {
        let (producer, listener) = match self.producer.take() {
            Some(producer) => producer,
            None => self.produce().map_err(Trouble::Stop)?,
        };
        // feed_kafka.2
        self.send_all(&producer, &listener, batch)?;
        self.producer = Some((producer, listener));
        Ok(())
    }
}
