//! Draws the details of each row: latencies, bytes, memory, processor time, syncs, notes, and the command
//! that repeats it.
//!
//! - Write amplification counts what the device wrote, including the wait for background work. The count of
//!   the process is not used, because Linux adds a page each time that it becomes dirty. That is forty times
//!   as much if small commits append to one page.
//! - Processor time of an operation is the processor time of the row over the operations of all passes. It
//!   includes background work of the engine and the lab's own work, which clocks around calls do not see.
//! - Each figure is the median of those runs that have it.

use std::collections::BTreeSet;

use esker_bench_api::results::{Detail, Latency, Record, Unit, Usage};

use crate::report::markup::{escape, push};
use crate::report::runs::Runs;
use crate::report::summary::{Cell, RowSummary, Summary, Value, is_lacking, operations};
use crate::report::units::{bytes, count, figure, known_bytes, seconds};

/// Returns the command that repeats a suite as it was run; a row can only run with its suite. If calls
/// differ, the longest time limit applies.
pub(super) fn command(summary: &Summary, runs: &Runs) -> String {
    let engines: Vec<&str> = summary.engines.iter().map(|(engine, _)| engine.as_str()).collect();
    let features = if engines.contains(&"rocksdb") { " --features rocksdb" } else { "" };
    let mut command = format!(
        "cargo run --release -p esker-bench{features} -- run {} --scale {} --runs {}",
        summary.suite, summary.scale, summary.runs
    );
    // The suite that measures the machine has no engine.
    if engines != ["machine"] {
        engines.iter().for_each(|engine| command += &format!(" --engine {engine}"));
    }
    let calls = runs.calls(&summary.suite);
    if let Some(seconds) = calls.iter().filter_map(|call| call.timeout).max() {
        command += &format!(" --timeout {seconds}");
    }
    if calls.iter().any(|call| call.trim) {
        command += " --trim";
    }
    if calls.iter().any(|call| call.no_trace) {
        command += " --no-trace";
    }
    if calls.iter().any(|call| call.any_read_ahead) {
        command += " --any-read-ahead";
    }
    command
}

/// Draws the table of a row.
pub(super) fn draw(out: &mut String, row: &RowSummary, summary: &Summary) {
    push!(
        out,
        "<div class=\"wide\"><table><thead><tr><th>engine</th><th>time/op</th><th>read from the device</th><th>written to the device</th><th>write amp. (device)</th>\
             <th>written by the process</th><th>read by the process</th><th>on disk</th><th>at most</th><th>space amp.</th><th>peak anonymous memory</th><th>peak mapped file pages</th><th>mapped file pages</th><th>processor</th>\
             <th>processor/op</th><th>syncs per commit</th><th>drain</th>\
             <th>longest stall</th><th>latency of</th><th>count</th><th>mean</th><th>50</th><th>90</th><th>95</th><th>99</th><th>99.9</th>\
             <th>99.99</th><th>max</th><th>notes</th></tr></thead><tbody>"
    );
    for (at, cell) in row.cells.iter().enumerate() {
        engine(out, row, cell, &summary.engines[at].0);
    }
    out.push_str("</tbody></table></div>");
}

/// Returns the text, or a dash where there is none.
fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

/// Returns the median over the runs whose details have the figure.
fn of_detail(value: &Value, pick: &dyn Fn(&Detail) -> Option<f64>) -> Option<f64> {
    value.median_of(|record| record.detail.as_deref().and_then(pick))
}

fn engine(out: &mut String, row: &RowSummary, cell: &Cell, name: &str) {
    let value = match cell {
        Cell::Value(value) => value,
        Cell::Error(error) if !is_lacking(error) => {
            let (name, error) = (escape(name), escape(error));
            push!(out, "<tr><td>{name}</td><td colspan=\"28\">{error}</td></tr>");
            return;
        }
        _ => return,
    };
    let head = head(row, value, name);
    let note = format!("<td>{}</td>", escape(&notes(value).join("; ")));
    let details = value.records.iter().filter_map(|record| record.detail.as_deref());
    let kinds: BTreeSet<&String> = details.flat_map(|detail| detail.latency.keys()).collect();
    if kinds.is_empty() {
        push!(out, "<tr>{head}{}{note}</tr>", "<td>-</td>".repeat(10));
    }
    for (n, kind) in kinds.into_iter().enumerate() {
        let latencies = latencies(value, kind);
        if n == 0 {
            push!(out, "<tr>{head}{latencies}{note}</tr>");
        } else {
            let head = format!("<td>{}</td>{}", escape(name), "<td></td>".repeat(16));
            push!(out, "<tr>{head}{latencies}<td></td></tr>");
        }
    }
}

/// Returns the cells of a row that do not depend on the kind of operation.
fn head(row: &RowSummary, value: &Value, name: &str) -> String {
    let of_usage = |pick: fn(&Usage) -> u64| value.median_of(|record| Some(pick(&record.usage) as f64));
    let all_bytes = |pick| or_dash(of_usage(pick).map(bytes));
    let known = |pick| or_dash(of_usage(pick).map(known_bytes));
    let over = |figures: fn(&Record) -> (u64, u64)| {
        let ratio = value.median_of(|record| match figures(record) {
            (0, _) | (_, 0) => None,
            (part, whole) => Some(part as f64 / whole as f64),
        });
        or_dash(ratio.map(|ratio| format!("{ratio:.2}")))
    };
    let stall = |detail: &Detail| Some(detail.longest_stall_s).filter(|stall| *stall > 0.0);
    let cells = [
        escape(name),
        or_dash((row.unit == Unit::Seconds && row.ops > 1).then(|| seconds(value.median / row.ops as f64))),
        known(|usage| usage.device_read_bytes),
        known(|usage| usage.device_written_bytes),
        over(|record| (record.usage.device_written_bytes, record.counts.user_written_bytes)),
        all_bytes(|usage| usage.written_bytes),
        all_bytes(|usage| usage.read_bytes),
        all_bytes(|usage| usage.disk_allocated_bytes),
        known(|usage| usage.peak_disk_bytes),
        over(|record| (record.usage.disk_allocated_bytes, record.counts.live_bytes)),
        all_bytes(|usage| usage.peak_anon_bytes),
        known(|usage| usage.peak_file_bytes),
        all_bytes(|usage| usage.rss_file_bytes),
        or_dash(value.median_of(|record| Some(record.usage.cpu_s)).map(seconds)),
        or_dash(value.median_of(cpu_of_one).map(seconds)),
        or_dash(value.syncs_text()),
        or_dash(of_detail(value, &|detail| detail.drain_s).map(seconds)),
        or_dash(of_detail(value, &stall).map(seconds)),
    ];
    cells.iter().map(|text| format!("<td>{text}</td>")).collect()
}

/// Returns the cells of one kind of operation.
fn latencies(value: &Value, kind: &str) -> String {
    let of_kind = |pick: fn(&Latency) -> f64| of_detail(value, &|detail| detail.latency.get(kind).map(pick));
    let figures: [fn(&Latency) -> f64; 8] = [
        |latency| latency.mean,
        |latency| latency.p50,
        |latency| latency.p90,
        |latency| latency.p95,
        |latency| latency.p99,
        |latency| latency.p999,
        |latency| latency.p9999,
        |latency| latency.max,
    ];
    let figures = figures.map(|figure| format!("<td>{}</td>", or_dash(of_kind(figure).map(seconds))));
    let count = or_dash(of_kind(|latency| latency.count as f64).map(count));
    format!("<td>{}</td><td>{count}</td>{}", escape(kind), figures.concat())
}

/// Processor time of one operation; `None` if the row is a single operation.
fn cpu_of_one(record: &Record) -> Option<f64> {
    let operations = operations(record);
    (operations > 1).then(|| record.usage.cpu_s / operations as f64)
}

/// Returns what a reader must know of a cell: the notes of all runs, each once, and the medians of its other
/// figures.
fn notes(value: &Value) -> Vec<String> {
    let mut notes = Vec::new();
    for record in &value.records {
        let load = record.detail.as_deref().map(|detail| detail.load.as_str()).unwrap_or_default();
        let load = if load.is_empty() { String::new() } else { format!("{load} loop") };
        for note in [record.setting.memory_limit.clone(), record.note.clone(), load] {
            if !note.is_empty() && !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    let details = || value.records.iter().filter_map(|record| record.detail.as_deref());
    let names: BTreeSet<&String> = details().flat_map(|detail| detail.figures.keys()).collect();
    notes.extend(names.into_iter().filter_map(|name| {
        let of_run = |record: &Record| record.detail.as_deref()?.figures.get(name).copied();
        Some(format!("{name} {}", figure(name, value.median_of(of_run)?)))
    }));
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::tests::context;
    use crate::report::summary::tests::{counts, record, record_over_time};
    use esker_bench_api::results::Counts;

    #[test]
    fn the_command_names_all_that_a_repetition_needs() {
        let of = |engine: &str, suite: &str| Record {
            suite: suite.to_owned(),
            ..record(engine, "r", 5, Some(1.0))
        };
        let both = Summary::new(&[of("esker", "redb"), of("rocksdb", "redb")]);
        let ran = |commands: &[&str]| {
            let contexts = commands.iter().map(|command| context(command, Vec::new()));
            let mut contexts: Vec<_> = contexts.collect();
            contexts
                .iter_mut()
                .for_each(|context| context.suites = vec!["redb".to_owned(), "limits".to_owned()]);
            Runs::new(contexts)
        };
        // `cargo run` is not the `run` of the lab, an engine is not a suite, and a suite after a flag is not
        // the value of the flag.
        let runs = ran(&[
            "cargo run --release -p esker-bench -- run --resume ycsb --timeout 7000 --engine redb",
            "cargo run -p esker-bench -- run redb int --timeout 900 --dir /x",
            "cargo run -p esker-bench -- run --resume --retry-failed --trim redb --timeout=950",
        ]);
        assert_eq!(
            command(&both, &runs),
            "cargo run --release -p esker-bench --features rocksdb -- run redb --scale test --runs 5 --engine esker --engine rocksdb --timeout 950 --trim"
        );
        let machine = Summary::new(&[of("machine", "limits")]);
        assert_eq!(
            command(&machine, &runs),
            "cargo run --release -p esker-bench -- run limits --scale test --runs 5"
        );
        let machine_all = command(&machine, &ran(&["esker-bench run all --no-trace"]));
        assert!(machine_all.ends_with("--runs 5 --no-trace"), "{machine_all}");
    }

    #[test]
    fn figures_are_medians_of_the_runs_that_have_them() {
        let run = |run, figure: u64| {
            let mut record = record_over_time("esker", "H rand", run);
            (record.counts.user_written_bytes, record.counts.ops) = (100, 2);
            record.usage = Usage {
                device_written_bytes: figure * 1024,
                written_bytes: figure * 2048,
                cpu_s: figure as f64,
                ..Usage::default()
            };
            let detail = record.detail.as_deref_mut().unwrap();
            detail.drain_s = Some(figure as f64 * 1e-3);
            detail.figures.insert("hit rate".to_owned(), figure as f64);
            let latency = detail.latency.get_mut("read").unwrap();
            (latency.count, latency.p99) = (figure, figure as f64 * 1e-6);
            record
        };
        let mut records = vec![run(1, 9), run(2, 5), run(3, 70)];
        records[0].note = "seen once".to_owned();
        let summary = Summary::new(&records);
        let mut page = String::new();
        draw(&mut page, &summary.rows[0], &summary);
        for figure in ["<td>9.00 KiB</td><td>92.16</td><td>18.0 KiB</td>", "<td>9.00 s</td><td>1.00 s</td>"] {
            assert!(page.contains(figure), "{figure}: {page}");
        }
        assert!(page.contains("<td>9.00 ms</td>") && page.contains("<td>read</td><td>9.00</td>"), "{page}");
        assert!(page.contains("<td>9.00 us</td>"), "{page}");
        assert!(page.contains("seen once; closed loop; hit rate 9.000</td>"), "{page}");
    }

    #[test]
    fn amplification_is_of_the_device() {
        let mut record = record("esker", "individual writes", 1, Some(1.0));
        record.counts.user_written_bytes = 1000;
        record.counts.live_bytes = 1000;
        record.usage = Usage {
            written_bytes: 263_000,
            device_written_bytes: 6_500,
            disk_bytes: 9_000,
            disk_allocated_bytes: 3_000,
            peak_disk_bytes: 5_000,
            peak_anon_bytes: 7_168,
            peak_file_bytes: 6_144,
            rss_file_bytes: 1_024,
            cpu_s: 1.0,
            ..Usage::default()
        };
        let summary = Summary::new(&[record]);
        let mut page = String::new();
        draw(&mut page, &summary.rows[0], &summary);
        assert!(page.contains("<td>6.35 KiB</td><td>6.50</td><td>257 KiB</td>"), "{page}");
        assert!(page.contains("<td>2.93 KiB</td><td>4.88 KiB</td><td>3.00</td>"), "{page}");
        assert!(page.contains("<td>7.00 KiB</td><td>6.00 KiB</td><td>1.00 KiB</td>"), "{page}");
        // The record has 10 operations.
        assert!(page.contains("<td>1.00 s</td><td>100 ms</td><td>1.00</td>"), "{page}");
        let (head, rows) = page.split_once("</thead>").unwrap();
        assert_eq!(head.matches("<th>").count(), rows.matches("<td>").count());
    }

    #[test]
    fn processor_time_is_of_all_passes_and_operations() {
        let mut record = record("esker", "random reads", 1, Some(1.0));
        record.usage.cpu_s = 2.0;
        let per_operation = |record: &Record| {
            let summary = Summary::new(std::slice::from_ref(record));
            let mut page = String::new();
            draw(&mut page, &summary.rows[0], &summary);
            page.split("<td>2.00 s</td><td>").nth(1).unwrap().split('<').next().unwrap().to_owned()
        };
        assert_eq!(per_operation(&record), "200 ms");
        record.passes = vec![1.0; 2];
        assert_eq!(per_operation(&record), "100 ms");
        record.passes.clear();
        record.counts.ops = 1;
        assert_eq!(per_operation(&record), "-");
    }

    #[test]
    fn syncs_that_were_not_counted_are_not_shown_as_none() {
        let untraced = |commits| Record {
            counts: Counts { commits, syncs_per_commit: None, ..counts() },
            ..record("esker", "individual writes", 1, Some(1.0))
        };
        for (commits, is_shown) in [(10, true), (0, false)] {
            let summary = Summary::new(&[untraced(commits)]);
            let mut page = String::new();
            draw(&mut page, &summary.rows[0], &summary);
            assert_eq!(page.contains("<td>not traced</td>"), is_shown);
        }
    }
}
