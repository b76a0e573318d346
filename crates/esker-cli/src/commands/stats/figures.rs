//! Formats a [`Look`] for people, as JSON, or on one line. Does no I/O, so that any front end can use it.
//!
//! Each field of the statistics appears under its own name. In JSON, times are in nanoseconds and their names
//! say so.

use std::io::{self, Write};
use std::time::Duration;

use esker::FigureValue::{self, Bytes, Count, Ratio, Text, Time};
use esker::{Figure, FigureKind, Latency};
use serde_json::{Map, Value, json};

use super::Look;
use crate::output::{count, size};
use crate::text::shown;

/// Returns all figures.
fn figures(look: &Look) -> Vec<Figure> {
    let mut figures = Vec::new();
    look.stats.each(|figure| figures.push(figure));
    figures
}

/// Returns the growth per second of a counter since the earlier look.
fn rate(now: &Figure, before: Option<(&Figure, Duration)>) -> Option<f64> {
    let (before, elapsed) = before.filter(|_| now.kind == FigureKind::Counter)?;
    match (&now.value, &before.value) {
        (Count(after), Count(earlier)) | (Bytes(after), Bytes(earlier)) => {
            Some(after.saturating_sub(*earlier) as f64 / elapsed.as_secs_f64().max(1e-9))
        }
        _ => None,
    }
}

/// Returns all figures with their rates since the earlier look.
fn rated(look: &Look, before: Option<&Look>) -> Vec<(Figure, Option<f64>)> {
    let earlier = before.map_or_else(Vec::new, figures);
    let elapsed = before.map(|before| look.at.saturating_duration_since(before.at));
    let with_rate = |figure: Figure| {
        let same = earlier.iter().find(|earlier| earlier.name == figure.name);
        let rate = rate(&figure, same.zip(elapsed));
        (figure, rate)
    };
    figures(look).into_iter().map(with_rate).collect()
}

/// Formats a time: `17 ns`, `1.5 ms`, `3 min 20 s`.
fn time(time: Duration) -> String {
    let nanos = time.as_nanos();
    match nanos {
        0..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => format!("{:.1} us", nanos as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", nanos as f64 / 1e6),
        _ if time.as_secs() < 60 => format!("{:.1} s", time.as_secs_f64()),
        _ if time.as_secs() < 3600 => format!("{} min {} s", time.as_secs() / 60, time.as_secs() % 60),
        _ => format!("{} h {} min", time.as_secs() / 3600, time.as_secs() / 60 % 60),
    }
}

fn in_words(value: &FigureValue) -> String {
    match value {
        Count(n) => count(*n),
        Bytes(n) => size(*n),
        Time(given) => given.map_or_else(|| "-".to_owned(), time),
        Ratio(given) => given.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}")),
        Text(given) => given.as_ref().map_or_else(|| "none".to_owned(), shown),
        FigureValue::SeqNo(given) => given.map_or_else(|| "none".to_owned(), |seqno| seqno.to_string()),
        FigureValue::Latency(Latency { samples: 0, .. }) => "-".to_owned(),
        FigureValue::Latency(latency) => format!(
            "p50 {}  p99 {}  p99.9 {}  max {}  ({} sampled)",
            time(latency.p50),
            time(latency.p99),
            time(latency.p99_9),
            time(latency.max),
            count(latency.samples)
        ),
        other => other.to_string(),
    }
}

fn rate_in_words(value: &FigureValue, rate: f64) -> String {
    match value {
        Bytes(_) => format!("{}/s", size(rate as u64)),
        _ => format!("{}/s", count(rate.round() as u64)),
    }
}

/// Writes all values in groups, with rates since the earlier look.
pub(super) fn write_groups(out: &mut impl Write, look: &Look, before: Option<&Look>) -> io::Result<()> {
    writeln!(out, "health: {}", shown(&look.health))?;
    let mut title = "";
    for (figure, rate) in rated(look, before) {
        if figure.group != title {
            title = figure.group;
            writeln!(out, "\n{title}")?;
        }
        let rate = rate.map_or_else(String::new, |rate| format!("  {}", rate_in_words(&figure.value, rate)));
        writeln!(out, "  {:25}{}{rate}", figure.name, in_words(&figure.value))?;
    }
    writeln!(out, "\nkeyspaces (items, bytes in tables)")?;
    let width = look.keyspaces.iter().map(|keyspace| shown(&keyspace.name).len()).max().unwrap_or(0);
    for keyspace in &look.keyspaces {
        let (name, items) = (shown(&keyspace.name), count(keyspace.items));
        writeln!(out, "  {name:width$}  {items}  {}", size(keyspace.table_bytes))?;
    }
    Ok(())
}

/// Returns the changing values on one line, with rates since the earlier look.
pub(super) fn line(look: &Look, before: Option<&Look>) -> String {
    const SHOWN: [&str; 11] = [
        "runs",
        "table_bytes",
        "memtable_bytes",
        "pending_compaction_bytes",
        "gets",
        "commits",
        "committed_bytes",
        "flush_bytes_written",
        "compaction_bytes_written",
        "log_bytes_written",
        "stalls",
    ];
    let shown_here = rated(look, before).into_iter().filter(|(figure, _)| SHOWN.contains(&figure.name));
    let figures = shown_here.map(|(Figure { name, value, .. }, rate)| {
        let value = rate.map_or_else(|| in_words(&value), |rate| rate_in_words(&value, rate));
        format!("  {name} {value}")
    });
    format!("health {}{}", shown(&look.health), figures.collect::<String>())
}

fn nanos(time: Duration) -> Value {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).into()
}

/// Returns the name and the value of a figure in JSON.
fn in_json(figure: Figure) -> (String, Value) {
    let name = figure.name.to_owned();
    match figure.value {
        Count(n) | Bytes(n) => (name, n.into()),
        Time(time) => (format!("{name}_ns"), time.map_or(Value::Null, nanos)),
        Ratio(ratio) => (name, ratio.into()),
        FigureValue::SeqNo(seqno) => (name, seqno.map(|seqno| seqno.get()).into()),
        Text(text) => (name, text.into()),
        FigureValue::Latency(latency) => {
            let value = json!({
                "samples": latency.samples,
                "p50_ns": nanos(latency.p50),
                "p99_ns": nanos(latency.p99),
                "p99_9_ns": nanos(latency.p99_9),
                "max_ns": nanos(latency.max),
            });
            (name, value)
        }
        other => (name, other.to_string().into()),
    }
}

/// Returns all values as one JSON object, with rates since the earlier look.
pub(super) fn json(look: &Look, before: Option<&Look>) -> Value {
    let mut object = Map::new();
    let mut rates = Map::new();
    object.insert("health".to_owned(), look.health.to_string().into());
    for (figure, rate) in rated(look, before) {
        rates.extend(rate.map(|rate| (figure.name.to_owned(), rate.into())));
        object.extend([in_json(figure)]);
    }
    let keyspaces = look.keyspaces.iter().map(|keyspace| {
        json!({ "name": keyspace.name, "items": keyspace.items, "table_bytes": keyspace.table_bytes })
    });
    object.insert("keyspace_stats".to_owned(), keyspaces.collect());
    if before.is_some() {
        object.insert("per_second".to_owned(), rates.into());
    }
    object.into()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use esker::{Health, Stats};

    use super::*;

    fn look(at: Instant, change: impl FnOnce(&mut Stats)) -> Look {
        let mut stats = Stats::default();
        change(&mut stats);
        Look { at, health: Health::Ok, stats, keyspaces: Vec::new() }
    }

    #[test]
    fn sums_have_rates() {
        let start = Instant::now();
        let before = look(start, |stats| (stats.gets, stats.items) = (1000, 5));
        let later = look(start + Duration::from_secs(2), |stats| {
            (stats.gets, stats.items, stats.flush_bytes_written) = (4000, 9, 3 << 20);
            stats.stall_time = Duration::from_millis(1500);
        });
        let line = line(&later, Some(&before));
        assert!(
            line.contains("  gets 1,500/s") && line.contains("  flush_bytes_written 1.5 MiB/s"),
            "{line}"
        );
        let json = json(&later, Some(&before));
        assert_eq!((&json["per_second"]["gets"], &json["items"]), (&json!(1500.0), &json!(9)));
        assert_eq!((&json["stall_time_ns"], json["per_second"].get("items")), (&json!(1_500_000_000), None));
        let mut out = Vec::new();
        write_groups(&mut out, &later, Some(&before)).unwrap();
        let text = String::from_utf8(out).unwrap();
        let has = |words: [&str; 3]| text.lines().any(|line| line.split_whitespace().eq(words));
        assert!(has(["gets", "4,000", "1,500/s"]) && text.starts_with("health: ok\n"), "{text}");
        assert!(text.lines().any(|line| line.split_whitespace().eq(["stall_time", "1.5", "s"])), "{text}");
    }

    #[test]
    fn times_are_readable() {
        let times = [17, 1_500, 2_300_000, 4_000_000_000, 200_000_000_000, 7_260_000_000_000];
        let shown = ["17 ns", "1.5 us", "2.3 ms", "4.0 s", "3 min 20 s", "2 h 1 min"];
        assert_eq!(times.map(Duration::from_nanos).map(time), shown);
    }
}
