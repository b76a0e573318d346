//! Where `esker feed --to` sends changes.
//!
//! ```text
//!   jsonl:FILE | jsonl:- | http://.. | nats://.. | kafka://..  --Target--> FeedSink --deliver--> confirmed
//! ```

#[cfg(feature = "http")]
mod http;
mod jsonl;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "nats")]
mod nats;

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use super::change::Batch;
use super::source::Tried;
use crate::failure::{Failure, Result};
use crate::text::shown;

/// A place that takes changes.
pub(super) trait FeedSink {
    /// Delivers the changes in order. Returns once the receiver has confirmed all of them.
    ///
    /// After an error some of the first changes may have arrived, and none after the first that is missing.
    /// The caller repeats the call with the same batch, or ends.
    fn deliver(&mut self, batch: &Batch) -> Tried<()>;
}

/// What `--to` names.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target {
    Standard,
    File(PathBuf),
    Http(String),
    /// Servers, and the subject.
    Nats(String, String),
    /// Servers, and the topic.
    Kafka(String, String),
}

impl FromStr for Target {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self> {
        let (scheme, rest) = text.split_once(':').unwrap_or((text, ""));
        let split = |form: &str| {
            let parts = rest.strip_prefix("//").and_then(|rest| rest.rsplit_once('/'));
            let parts = parts.filter(|(servers, name)| !servers.is_empty() && !name.is_empty());
            let parts = parts.map(|(servers, name)| (servers.to_owned(), name.to_owned()));
            parts.ok_or_else(|| Failure::message(format!("--to {}: the form is {form}", shown(text))))
        };
        match scheme {
            "jsonl" if rest == "-" => Ok(Target::Standard),
            "jsonl" if !rest.is_empty() => Ok(Target::File(rest.into())),
            "http" | "https" if rest.starts_with("//") => Ok(Target::Http(text.to_owned())),
            "nats" => split("nats://HOST:PORT/SUBJECT").map(|(servers, name)| Target::Nats(servers, name)),
            "kafka" => {
                split("kafka://HOST:PORT,HOST:PORT/TOPIC").map(|(servers, name)| Target::Kafka(servers, name))
            }
            _ => Err(Failure::message(format!(
                "--to {}: sinks are jsonl:FILE, jsonl:-, http://HOST/PATH, nats://HOST:PORT/SUBJECT and \
                 kafka://HOST:PORT/TOPIC",
                shown(text)
            ))),
        }
    }
}

/// The settings of a sink, as names and values.
#[derive(Debug, Default)]
pub(super) struct Settings(Vec<(String, String)>);

impl Settings {
    /// Reads settings of a file, then those of the command line.
    pub(super) fn read(given: &[String], file: Option<&Path>) -> Result<Self> {
        let text = match file {
            Some(path) => {
                std::fs::read_to_string(path).map_err(|error| Failure::file("read", path, &error))?
            }
            None => String::new(),
        };
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let pair = |line: &str| {
            let pair = line.split_once('=').filter(|(name, _)| !name.trim().is_empty());
            let pair = pair.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
            // The line may be a password.
            pair.ok_or_else(|| Failure::message("a setting of a sink has the form NAME=VALUE"))
        };
        Ok(Settings(lines.chain(given.iter().map(String::as_str)).map(pair).collect::<Result<_>>()?))
    }

    /// Takes the values of a setting, in order.
    fn take_all(&mut self, name: &str) -> Vec<String> {
        let (found, left) = std::mem::take(&mut self.0).into_iter().partition(|(given, _)| given == name);
        self.0 = left;
        let found: Vec<(String, String)> = found;
        found.into_iter().map(|(_, value)| value).collect()
    }

    /// Takes a setting. The last value counts.
    fn take(&mut self, name: &str) -> Option<String> {
        self.take_all(name).pop()
    }

    /// Takes a number of seconds.
    #[cfg_attr(
        not(any(feature = "http", feature = "kafka", feature = "nats")),
        allow(dead_code, reason = "files have no timeouts")
    )]
    fn take_seconds(&mut self, name: &str, default: Duration) -> Result<Duration> {
        let Some(text) = self.take(name) else { return Ok(default) };
        let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let seconds = seconds.filter(|seconds| !seconds.is_zero());
        seconds
            .ok_or_else(|| Failure::message(format!("the setting {name} is a number of seconds, such as 10")))
    }

    /// Takes a number of bytes, such as 64mb.
    fn take_bytes(&mut self, name: &str) -> Result<Option<u64>> {
        let Some(text) = self.take(name) else { return Ok(None) };
        let text = text.to_ascii_lowercase();
        let units = [("kb", 10), ("mb", 20), ("gb", 30)];
        let unit = units.into_iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)));
        let (digits, shift) = unit.unwrap_or((&text, 0));
        let bytes = digits.parse().ok().and_then(|number: u64| number.checked_mul(1 << shift));
        let bytes = bytes.filter(|bytes| *bytes > 0);
        let wrong = || Failure::message(format!("the setting {name} is a number of bytes, such as 64mb"));
        bytes.map(Some).ok_or_else(wrong)
    }

    /// Takes all settings that are left.
    #[cfg(feature = "kafka")]
    fn take_rest(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.0)
    }

    /// Refuses settings that nothing has taken.
    fn finish(&self, sink: &str, known: &str) -> Result<()> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => Err(Failure::message(format!(
                "the sink {sink} has no setting `{}`: it has {known}",
                shown(name)
            ))),
        }
    }
}

/// Opens a sink. `is_resumed` says whether a position is stored.
pub(super) fn open(target: &Target, settings: Settings, is_resumed: bool) -> Result<Box<dyn FeedSink>> {
    match target {
        Target::Standard => {
            settings.finish("jsonl:-", "none")?;
            Ok(Box::new(jsonl::Standard))
        }
        Target::File(path) => Ok(Box::new(jsonl::File::open(path, settings, is_resumed)?)),
        #[cfg(feature = "http")]
        Target::Http(url) => Ok(Box::new(http::Http::open(url, settings)?)),
        #[cfg(not(feature = "http"))]
        Target::Http(_) => unbuilt("http"),
        #[cfg(feature = "nats")]
        Target::Nats(servers, subject) => Ok(Box::new(nats::Nats::open(servers, subject, settings)?)),
        #[cfg(not(feature = "nats"))]
        Target::Nats(..) => unbuilt("nats"),
        #[cfg(feature = "kafka")]
        Target::Kafka(servers, topic) => Ok(Box::new(kafka::Kafka::open(servers, topic, settings)?)),
        #[cfg(not(feature = "kafka"))]
        Target::Kafka(..) => unbuilt("kafka"),
    }
}

#[cfg(not(all(feature = "http", feature = "nats", feature = "kafka")))]
fn unbuilt<T>(feature: &str) -> Result<T> {
    Err(Failure::message(format!(
        "this tool was built without the feature `{feature}`: build it with `cargo build --release -p esker-cli \
         --features {feature}`"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_and_settings_are_read() {
        let target = |text: &str| text.parse::<Target>();
        assert_eq!(target("jsonl:-").unwrap(), Target::Standard);
        assert_eq!(target("jsonl:a:b").unwrap(), Target::File("a:b".into()));
        assert_eq!(target("kafka://a:1,b:2/t").unwrap(), Target::Kafka("a:1,b:2".into(), "t".into()));
        for wrong in ["", "jsonl", "jsonl:", "http:x", "nats://a", "nats:///s", "kafka://a/", "file:x"] {
            assert!(target(wrong).is_err(), "{wrong}");
        }
        let given = ["rotate=1kb", "header=a: b=c", "header=d: e", "rotate=2KB"].map(str::to_owned);
        let mut settings = Settings::read(&given, None).unwrap();
        assert_eq!(settings.take_bytes("rotate").unwrap(), Some(2048));
        assert!(settings.finish("jsonl", "rotate").is_err());
        assert_eq!(settings.take_all("header"), ["a: b=c", "d: e"]);
        assert!(settings.finish("jsonl", "rotate").is_ok());
        for wrong in ["rotate", "=1"] {
            assert!(Settings::read(&[wrong.to_owned()], None).is_err(), "{wrong}");
        }
        for wrong in ["0", "x", "1tb", "99999999999gb"] {
            let mut settings = Settings::read(&[format!("rotate={wrong}")], None).unwrap();
            assert!(settings.take_bytes("rotate").is_err(), "{wrong}");
        }
    }
}
