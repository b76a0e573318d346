//! Sends the statistics and the events of a database to an OpenTelemetry collector: figures as metrics, work
//! that has ended as spans. OTLP over HTTP takes JSON, so no further crate is needed.
//!
//! ```text
//! cargo run --release -p esker --example opentelemetry -- DIRECTORY [127.0.0.1:4318]
//! ```
#![expect(clippy::disallowed_methods, reason = "a program that measures time")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use esker::{Db, Event, FigureKind, FigureValue, Stats};

/// How often metrics are sent.
const EVERY: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("name the directory of a database")?;
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:4318".to_owned());
    let (sender, spans) = mpsc::channel();
    let db = Db::builder()
        .on_event(move |event| drop(span(event).map(|span| sender.send(span))))
        .open(directory)?;
    loop {
        let metrics: Vec<String> = metrics(&db.stats());
        send(&address, "metrics", "Metrics", &metrics)?;
        let mut ended: Vec<String> = spans.try_iter().collect();
        if let Ok(first) = spans.recv_timeout(EVERY) {
            ended.push(first);
        }
        send(&address, "traces", "Spans", &ended)?;
    }
}

fn unix_nanos() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos())
}

/// A text in JSON.
fn json(text: &str) -> String {
    let escaped = text.chars().flat_map(|c| match c {
        '"' | '\\' => vec!['\\', c],
        c if c.is_control() => vec![' '],
        c => vec![c],
    });
    format!("\"{}\"", escaped.collect::<String>())
}

/// All figures as metrics.
fn metrics(stats: &Stats) -> Vec<String> {
    let (mut metrics, now) = (Vec::new(), unix_nanos());
    stats.each(|figure| {
        let points = match &figure.value {
            FigureValue::Latency(latency) => latency
                .quantiles()
                .map(|(quantile, time)| {
                    let label = format!(r#"{{"key":"quantile","value":{{"doubleValue":{quantile}}}}}"#);
                    format!(
                        r#"{{"timeUnixNano":"{now}","asDouble":{},"attributes":[{label}]}}"#,
                        time.as_secs_f64()
                    )
                })
                .join(","),
            value => match value.number() {
                Some(number) => format!(r#"{{"timeUnixNano":"{now}","asDouble":{number}}}"#),
                None => return,
            },
        };
        let unit = match figure.value {
            FigureValue::Bytes(_) => "By",
            FigureValue::Time(_) | FigureValue::Latency(_) => "s",
            _ => "1",
        };
        let data = match figure.kind {
            // 2: since the database was opened.
            FigureKind::Counter => {
                format!(r#""sum":{{"aggregationTemporality":2,"isMonotonic":true,"dataPoints":[{points}]}}"#)
            }
            FigureKind::Gauge => format!(r#""gauge":{{"dataPoints":[{points}]}}"#),
        };
        let (name, help) = (figure.name, json(figure.help));
        metrics.push(format!(r#"{{"name":"esker.{name}","description":{help},"unit":"{unit}",{data}}}"#));
    });
    metrics
}

/// Work that has ended as a span of its own trace.
fn span(event: &Event) -> Option<String> {
    let (end, time) = (unix_nanos(), event.time()?);
    let start = end - time.as_nanos().min(end);
    let (trace, id) = (fastrand::u128(1..), fastrand::u64(1..));
    let (name, text) = (json(event.name()), json(&event.to_string()));
    // 1: well, 2: an error.
    let status = if event.error().is_some() { 2 } else { 1 };
    Some(format!(
        r#"{{"traceId":"{trace:032x}","spanId":"{id:016x}","name":{name},"kind":1,"startTimeUnixNano":"{start}","endTimeUnixNano":"{end}","status":{{"code":{status},"message":{text}}}}}"#
    ))
}

/// Posts metrics or spans.
fn send(address: &str, path: &str, kind: &str, items: &[String]) -> std::io::Result<()> {
    if items.is_empty() {
        return Ok(());
    }
    let list = kind.to_lowercase();
    let service = r#"{"attributes":[{"key":"service.name","value":{"stringValue":"esker"}}]}"#;
    let scope = format!(r#"{{"scope":{{"name":"esker"}},"{list}":[{}]}}"#, items.join(","));
    let body = format!(r#"{{"resource{kind}":[{{"resource":{service},"scope{kind}":[{scope}]}}]}}"#);
    let mut stream = TcpStream::connect(address)?;
    write!(
        stream,
        "POST /v1/{path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: \
         {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    match reply.lines().next() {
        Some(status) if status.contains(" 200") => Ok(()),
        status => Err(std::io::Error::other(format!("{address} answers {status:?}"))),
    }
}
