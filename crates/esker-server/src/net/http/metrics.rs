//! Metrics in the text format of Prometheus.

use std::fmt::{Display, Write};
use std::sync::Arc;

use esker::{Figure, FigureKind, FigureValue};

use crate::commands::{ShownSlot, shown_slots};
use crate::run::server::Server;

struct Text(String);

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP esker_{name} {help}\n# TYPE esker_{name} {kind}\n");
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.head(name, kind, help);
        let _ = writeln!(self.0, "esker_{name} {value}");
    }

    fn labelled(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = writeln!(self.0, "esker_{name}{{{labels}}} {value}");
    }
}

/// Returns all metrics.
pub fn metrics(server: &Arc<Server>) -> String {
    let mut text = Text(String::new());
    let stats = &server.observed.stats;
    text.one(
        "up",
        "gauge",
        "1 if the server is well, 0 if writes fail.",
        u8::from(server.health_problem().is_none()),
    );
    text.one("uptime_seconds", "gauge", "Seconds since the start.", server.life.started.elapsed().as_secs());
    text.one("connected_clients", "gauge", "Connections.", server.clients.len());
    let blocked = server.sequencer.waiters() + server.clients.pause.waiting();
    text.one(
        "blocked_clients",
        "gauge",
        "Connections that wait for a key, or for the end of a pause.",
        blocked,
    );
    text.one("memory_bytes", "gauge", "Memory of the process.", crate::observe::process::memory());
    for (name, help, counter) in [
        ("connections_total", "Connections taken.", &stats.connections),
        ("rejected_connections_total", "Connections refused.", &stats.refused),
        ("commands_total", "Commands done.", &stats.commands),
        ("input_bytes_total", "Bytes received.", &stats.bytes_in),
        ("output_bytes_total", "Bytes sent.", &stats.bytes_out),
        ("expired_keys_total", "Keys that have expired.", &stats.expired),
        ("expired_fields_total", "Fields of hashes that have expired.", &stats.expired_fields),
        ("keyspace_hits_total", "Keys that were found.", &stats.hits),
        ("keyspace_misses_total", "Keys that were not found.", &stats.misses),
        ("commits_total", "Commits.", &stats.commits),
        ("changes_total", "Changes of keys.", &stats.changes),
        ("errors_total", "Error replies.", &stats.errors),
    ] {
        text.one(name, "counter", help, counter.get());
    }
    text.head("keys", "gauge", "Keys of a database.");
    for data in server.open_databases() {
        if let Ok(keys) = server.store.len(&data.main) {
            text.labelled("keys", &format!("db=\"{}\"", data.number), keys);
        }
    }
    commands(server, &mut text);
    slots(server, &mut text);
    text.head("commit_seconds", "summary", "How long commits took.");
    for (label, percent) in [("0.5", 50.0), ("0.99", 99.0), ("0.999", 99.9)] {
        if let Some(micros) = server.observed.commit_latency.percentile(percent) {
            text.labelled("commit_seconds", &format!("quantile=\"{label}\""), micros as f64 / 1e6);
        }
    }
    let _ = writeln!(text.0, "esker_commit_seconds_count {}", server.observed.commit_latency.count());
    server.store.figures().iter().for_each(|figure| engine(figure, &mut text));
    text.0
}

/// A figure of the engine. A text is not a metric.
fn engine(figure: &Figure, text: &mut Text) {
    let (name, help) = (format!("engine_{}", figure.name), figure.help);
    let kind = match figure.kind {
        FigureKind::Gauge => "gauge",
        FigureKind::Counter => "counter",
    };
    match &figure.value {
        FigureValue::Latency(latency) => {
            let name = format!("{name}_seconds");
            text.head(&name, "summary", help);
            for (quantile, time) in latency.quantiles() {
                text.labelled(&name, &format!("quantile=\"{quantile}\""), time.as_secs_f64());
            }
            let _ = writeln!(text.0, "esker_{name}_count {}", latency.samples);
        }
        value => {
            let unit = if matches!(value, FigureValue::Time(_)) { "_seconds" } else { "" };
            if value.number().is_some() {
                text.one(&format!("{name}{unit}"), kind, help, value);
            }
        }
    }
}

/// Metrics of each slot.
fn slots(server: &Server, text: &mut Text) {
    let slots = shown_slots(server);
    let mut each = |name: &str, help: &str, figure: fn(&ShownSlot) -> u64| {
        text.head(name, "gauge", help);
        for slot in &slots {
            // Slot names need no escaping.
            text.labelled(name, &format!("slot=\"{}\"", slot.name), figure(slot));
        }
    };
    each("slot_connections", "Replicas that follow by a slot.", |slot| slot.connections as u64);
    each("slot_behind_commits", "Commits that are kept for a slot.", |slot| slot.behind);
    each("slot_bytes", "Bytes of the log that are kept for a slot.", |slot| slot.bytes);
}

/// Metrics of each command that was called.
fn commands(server: &Server, text: &mut Text) {
    let called: Vec<_> = server.commands.stats().filter(|(_, stats)| stats.calls.get() > 0).collect();
    text.head("command_calls_total", "counter", "Calls of a command.");
    for (name, stats) in &called {
        text.labelled("command_calls_total", &format!("command=\"{name}\""), stats.calls.get());
    }
    text.head("command_failures_total", "counter", "Calls of a command that failed.");
    for (name, stats) in &called {
        text.labelled("command_failures_total", &format!("command=\"{name}\""), stats.failed.get());
    }
    text.head(
        "command_seconds",
        "summary",
        "How long calls of a command took; of fast commands one in 16 is measured.",
    );
    for (name, stats) in &called {
        for (label, percent) in [("0.5", 50.0), ("0.99", 99.0), ("0.999", 99.9)] {
            if let Some(micros) = stats.latency.percentile(percent) {
                let labels = format!("command=\"{name}\",quantile=\"{label}\"");
                text.labelled("command_seconds", &labels, micros as f64 / 1e6);
            }
        }
        let labels = format!("command=\"{name}\"");
        text.labelled("command_seconds_sum", &labels, stats.micros.get() as f64 / 1e6);
        text.labelled("command_seconds_count", &labels, stats.latency.count());
    }
}
