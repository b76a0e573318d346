//! Formats a [`Look`] for people, as JSON, or on one line. Does no I/O, so that any front end can use it.
//!
//! Each field of the statistics appears under its own name. In JSON, times are in nanoseconds and their names
//! say so.

use std::io::{self, Write};
use std::time::Duration;

use esker::{Latency, Stats};
use serde_json::{Map, Value, json};

use super::Look;
use crate::output::{count, json_figure, size};
use crate::text::shown;

/// A value, by its unit.
#[derive(Clone, Debug, PartialEq)]
enum Figure {
    Count(u64),
    Bytes(u64),
    Time(Option<Duration>),
    Latency(Latency),
    /// The quotient of two values.
    Ratio(Option<f64>),
    Text(Option<String>),
}

/// Whether a value is a level or a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Level,
    /// A sum since the database was opened, which has a rate.
    Counter,
}

use Figure::{Bytes, Count, Ratio, Text, Time};
use Kind::{Counter, Level};

struct Row(&'static str, Figure, Kind);

/// Values of one topic.
struct Group {
    title: &'static str,
    rows: Vec<Row>,
}

fn groups(look: &Look) -> Vec<Group> {
    let group = |(title, rows)| Group { title, rows };
    usage(&look.stats).into_iter().chain(upkeep(&look.stats)).map(group).collect()
}

/// Groups on what is stored and used.
fn usage(stats: &Stats) -> [(&'static str, Vec<Row>); 4] {
    [
        (
            "data",
            vec![
                Row("items", Count(stats.items), Level),
                Row("unresolved", Count(stats.unresolved), Level),
                Row("keyspaces", Count(stats.keyspaces), Level),
                Row("seqno", Count(stats.seqno.get()), Level),
                Row("tables", Count(stats.tables), Level),
                Row("table_bytes", Bytes(stats.table_bytes), Level),
                Row("runs", Count(stats.runs), Level),
                Row("tier_runs", Count(stats.tier_runs), Level),
                Row("base_bytes", Bytes(stats.base_bytes), Level),
                Row("blob_files", Count(stats.blob_files), Level),
                Row("blob_bytes", Bytes(stats.blob_bytes), Level),
                Row("blob_live_bytes", Bytes(stats.blob_live_bytes), Level),
                Row("space_amplification", Ratio(stats.space_amplification()), Level),
            ],
        ),
        (
            "operations",
            vec![
                Row("gets", Count(stats.gets), Counter),
                Row("commits", Count(stats.commits), Counter),
                Row("conflicts", Count(stats.conflicts), Counter),
                Row("committed_bytes", Bytes(stats.committed_bytes), Counter),
                Row("get_latency", Figure::Latency(stats.get_latency), Level),
                Row("commit_latency", Figure::Latency(stats.commit_latency), Level),
                Row("sync_latency", Figure::Latency(stats.sync_latency), Level),
                Row("stalls", Count(stats.stalls), Counter),
                Row("stall_time", Time(Some(stats.stall_time)), Level),
                Row("writers_waiting", Count(stats.writers_waiting), Level),
            ],
        ),
        (
            "memory",
            vec![
                Row("memtable_bytes", Bytes(stats.memtable_bytes), Level),
                Row("memtables_sealed", Count(stats.memtables_sealed), Level),
                Row("cache_bytes", Bytes(stats.cache_bytes), Level),
                Row("cache_hits", Count(stats.cache_hits), Counter),
                Row("cache_misses", Count(stats.cache_misses), Counter),
                Row("cache_hit_ratio", Ratio(stats.cache_hit_ratio()), Level),
            ],
        ),
        (
            "log",
            vec![
                Row("log_bytes", Bytes(stats.log_bytes), Level),
                Row("log_bytes_written", Bytes(stats.log_bytes_written), Counter),
                Row("log_files_recycled", Count(stats.log_files_recycled), Counter),
            ],
        ),
    ]
}

/// Groups on background work, readers, failures and the opening.
fn upkeep(stats: &Stats) -> [(&'static str, Vec<Row>); 4] {
    let oldest = stats.oldest_snapshot;
    [
        (
            "flushes and compactions",
            vec![
                Row("flushes", Count(stats.flushes), Counter),
                Row("flush_bytes_written", Bytes(stats.flush_bytes_written), Counter),
                Row("adoptions", Count(stats.adoptions), Counter),
                Row("blob_bytes_written", Bytes(stats.blob_bytes_written), Counter),
                Row("collections", Count(stats.collections), Counter),
                Row("collection_bytes_written", Bytes(stats.collection_bytes_written), Counter),
                Row("compactions", Count(stats.compactions), Counter),
                Row("moves", Count(stats.moves), Counter),
                Row("tables_dropped", Count(stats.tables_dropped), Counter),
                Row("expiring", Count(stats.expiring), Level),
                Row("swept_keys", Count(stats.swept_keys), Counter),
                Row("compaction_bytes_read", Bytes(stats.compaction_bytes_read), Counter),
                Row("compaction_bytes_written", Bytes(stats.compaction_bytes_written), Counter),
                Row("pending_compaction_bytes", Bytes(stats.pending_compaction_bytes), Level),
                Row("write_amplification", Ratio(stats.write_amplification()), Level),
            ],
        ),
        (
            "readers",
            vec![
                Row("snapshots", Count(stats.snapshots), Level),
                Row("oldest_snapshot", Text(oldest.map(|oldest| oldest.seqno.to_string())), Level),
                Row("oldest_snapshot_age", Time(oldest.map(|oldest| oldest.age)), Level),
                Row("iterators", Count(stats.iterators), Level),
                Row("oldest_iterator", Time(stats.oldest_iterator), Level),
            ],
        ),
        (
            "failures",
            vec![
                Row("flushes_failed", Count(stats.flushes_failed), Counter),
                Row("compactions_failed", Count(stats.compactions_failed), Counter),
                Row("tables_unreadable", Count(stats.tables_unreadable), Level),
                Row("background_error", Text(stats.background_error.clone()), Level),
            ],
        ),
        (
            "opening",
            vec![
                Row("recovered_commits", Count(stats.recovered_commits), Level),
                Row("recovered_torn_bytes", Bytes(stats.recovered_torn_bytes), Level),
            ],
        ),
    ]
}

/// Returns the growth per second of a counter since the earlier look.
fn rate(now: &Row, before: Option<(&Row, Duration)>) -> Option<f64> {
    let Row(_, Count(after) | Bytes(after), Counter) = now else { return None };
    let (Row(_, Count(earlier) | Bytes(earlier), _), elapsed) = before? else { return None };
    Some(after.saturating_sub(*earlier) as f64 / elapsed.as_secs_f64().max(1e-9))
}

/// The title of a group, and its rows with their rates.
type RatedGroup = (&'static str, Vec<(Row, Option<f64>)>);

/// Returns all rows with their rates since the earlier look.
fn rated(look: &Look, before: Option<&Look>) -> Vec<RatedGroup> {
    let earlier: Vec<_> = before.into_iter().flat_map(groups).flat_map(|group| group.rows).collect();
    let elapsed = before.map(|before| look.at.saturating_duration_since(before.at));
    let with_rate = |row: Row| {
        let same = earlier.iter().find(|earlier| earlier.0 == row.0);
        let rate = rate(&row, same.zip(elapsed));
        (row, rate)
    };
    groups(look)
        .into_iter()
        .map(|group| (group.title, group.rows.into_iter().map(with_rate).collect()))
        .collect()
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

fn in_words(figure: &Figure) -> String {
    match figure {
        Count(n) => count(*n),
        Bytes(n) => size(*n),
        Time(given) => given.map_or_else(|| "-".to_owned(), time),
        Ratio(given) => given.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}")),
        Text(given) => given.as_ref().map_or_else(|| "none".to_owned(), shown),
        Figure::Latency(Latency { samples: 0, .. }) => "-".to_owned(),
        Figure::Latency(latency) => format!(
            "p50 {}  p99 {}  p99.9 {}  max {}  ({} sampled)",
            time(latency.p50),
            time(latency.p99),
            time(latency.p99_9),
            time(latency.max),
            count(latency.samples)
        ),
    }
}

fn rate_in_words(figure: &Figure, rate: f64) -> String {
    match figure {
        Bytes(_) => format!("{}/s", size(rate as u64)),
        _ => format!("{}/s", count(rate.round() as u64)),
    }
}

/// Writes all values in groups, with rates since the earlier look.
pub(super) fn write_groups(out: &mut impl Write, look: &Look, before: Option<&Look>) -> io::Result<()> {
    writeln!(out, "health: {}", shown(&look.health))?;
    for (title, rows) in rated(look, before) {
        writeln!(out, "\n{title}")?;
        for (Row(name, figure, _), rate) in &rows {
            let rate = rate.map_or_else(String::new, |rate| format!("  {}", rate_in_words(figure, rate)));
            writeln!(out, "  {name:25}{}{rate}", in_words(figure))?;
        }
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
    let rows = rated(look, before).into_iter().flat_map(|(_, rows)| rows);
    let figures = rows.filter(|(row, _)| SHOWN.contains(&row.0)).map(|(Row(name, figure, _), rate)| {
        let figure = rate.map_or_else(|| in_words(&figure), |rate| rate_in_words(&figure, rate));
        format!("  {name} {figure}")
    });
    format!("health {}{}", shown(&look.health), figures.collect::<String>())
}

fn nanos(time: Duration) -> Value {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).into()
}

/// Returns the name and the value of a row in JSON.
fn in_json(Row(name, figure, _): Row) -> (String, Value) {
    match figure {
        Count(n) | Bytes(n) => (name.to_owned(), n.into()),
        Time(time) => (format!("{name}_ns"), time.map_or(Value::Null, nanos)),
        Ratio(ratio) => (name.to_owned(), ratio.into()),
        // One text is a number: the sequence number of the oldest snapshot.
        Text(text) => (name.to_owned(), text.map_or(Value::Null, |text| json_figure(&text))),
        Figure::Latency(latency) => {
            let value = json!({
                "samples": latency.samples,
                "p50_ns": nanos(latency.p50),
                "p99_ns": nanos(latency.p99),
                "p99_9_ns": nanos(latency.p99_9),
                "max_ns": nanos(latency.max),
            });
            (name.to_owned(), value)
        }
    }
}

/// Returns all values as one JSON object, with rates since the earlier look.
pub(super) fn json(look: &Look, before: Option<&Look>) -> Value {
    let mut object = Map::new();
    let mut rates = Map::new();
    object.insert("health".to_owned(), look.health.to_string().into());
    for (row, rate) in rated(look, before).into_iter().flat_map(|(_, rows)| rows) {
        rates.extend(rate.map(|rate| (row.0.to_owned(), rate.into())));
        object.extend([in_json(row)]);
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

    use esker::Health;

    use super::*;

    fn look(at: Instant, change: impl FnOnce(&mut Stats)) -> Look {
        let mut stats = Stats::default();
        change(&mut stats);
        Look { at, health: Health::Ok, stats, keyspaces: Vec::new() }
    }

    #[test]
    fn every_field_is_there() {
        let look = look(Instant::now(), |_| ());
        let json = json(&look, None);
        let debug = format!("{:#?}", look.stats);
        let fields =
            debug.lines().filter_map(|line| line.strip_prefix("    ")?.split_once(':')).map(|(name, _)| name);
        let fields: Vec<_> = fields.filter(|name| !name.starts_with(' ')).collect();
        assert!(fields.len() > 40, "{fields:?}");
        for name in fields {
            assert!(json.get(name).or(json.get(format!("{name}_ns"))).is_some(), "{name}");
        }
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
